"""HTTP/2 connections of the gateway's listener, down to the single frame: what gRPC libraries do not let a test do.

A Connection feeds bytes to `h2` and gives each stream to a Call (calls.py). It pings an idle client, judges how the client behaves as an HTTP/2
peer, and can be told to misbehave: half a message, a cut after n bytes, GOAWAY, frames of one byte, padding, a window that never opens.
"""
import asyncio
import socket
import ssl
import struct
import time

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
from hyperframe.frame import GoAwayFrame

from .calls import Call

HEADERS_MAX = 64 * 1024


class Connection(asyncio.Protocol):
    def __init__(self, gateway):
        self.gateway = gateway
        self.loop = gateway.loop
        self.calls = {}
        self.transport = None
        self.is_lost = self.flush_planned = self.paused = False
        self.window = asyncio.Event()       # set by anything that may let a sender go on
        self.cut_after = None               # bytes still to be written before the connection is reset
        self.written = 0
        self.last_stream = None             # of a GOAWAY that was sent
        self.goaway_seen = False            # the client has acknowledged a PING sent after the GOAWAY
        self.ping_sent = self.ping_timer = None
        self.pings = 0
        self.highest = 0
        self.subject = None

    # -- the connection --

    def connection_made(self, transport):
        self.transport = transport
        gateway = self.gateway
        gateway.connections.add(self)
        gateway.connection_count += 1
        self.id = gateway.connection_count
        tls = transport.get_extra_info("ssl_object")
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if isinstance(tls, ssl.SSLObject):
            if tls.selected_alpn_protocol() != "h2":
                gateway.breach("a TLS connection without ALPN h2", offered=tls.selected_alpn_protocol())
                transport.abort()
                return
            names = [value for row in (tls.getpeercert() or {}).get("subject", ()) for key, value in row if key == "commonName"]
            self.subject = names[0] if names else None
        # what a client may not send is judged in calls.py, where it can be written down, not by h2
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(
            client_side=False, header_encoding=None, validate_inbound_headers=False, normalize_inbound_headers=False,
            validate_outbound_headers=False, normalize_outbound_headers=False))
        codes = h2.settings.SettingCodes
        self.h2.initiate_connection()
        self.h2.update_settings({codes.INITIAL_WINDOW_SIZE: gateway.stream_window, codes.MAX_CONCURRENT_STREAMS: gateway.streams_max,
                                 codes.MAX_HEADER_LIST_SIZE: HEADERS_MAX})
        self.h2.increment_flow_control_window(gateway.connection_window - 65535)
        self.plan_ping()
        self.flush()

    def connection_lost(self, error):
        self.is_lost = True
        self.gateway.connections.discard(self)
        if self.ping_timer:
            self.ping_timer.cancel()
        for call in list(self.calls.values()):
            call.lost()
        self.calls.clear()
        self.window.set()

    def pause_writing(self):
        self.paused = True

    def resume_writing(self):
        self.paused = False
        self.window.set()

    def data_received(self, data):
        try:
            events = self.h2.receive_data(data)
        except h2.exceptions.ProtocolError as e:
            self.gateway.breach("HTTP/2", error=f"{type(e).__name__}: {e}")
            self.flush()
            self.transport.close()
            return
        for event in events:
            take = self.TAKE.get(type(event))
            if take:
                take(self, event)
        self.flush()

    def flush(self):
        self.flush_planned = False
        if self.is_lost or self.transport is None:
            return
        data = self.h2.data_to_send()
        if data:
            self.write(data)

    def write(self, data):
        """Raw bytes, after all that `h2` has to send."""
        if self.cut_after is not None and len(data) >= self.cut_after:
            self.transport.write(data[:self.cut_after])
            self.reset()
            return
        if self.cut_after is not None:
            self.cut_after -= len(data)
        self.written += len(data)
        self.transport.write(data)

    def flush_soon(self):
        if not self.flush_planned:
            self.flush_planned = True
            self.loop.call_soon(self.flush)

    def reset(self):
        """Drops the connection with a TCP reset."""
        sock = self.transport.get_extra_info("socket")
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            pass
        self.is_lost = True
        self.transport.abort()

    def cut(self, after):
        """Resets the connection once `after` more bytes were written; at once for 0."""
        self.flush()
        if after <= 0:
            self.reset()
        else:
            self.cut_after = after

    def goaway(self, last, code=0):
        """A GOAWAY that names `last` as the last stream; those at or below go on, later ones are not looked at."""
        self.flush()
        self.last_stream = last
        self.write(GoAwayFrame(0, last_stream_id=last, error_code=code).serialize())
        self.ping()
        for number, call in list(self.calls.items()):
            if number > last:
                call.lost()
                self.calls.pop(number)
        self.close_when_idle()

    def close_when_idle(self):
        if self.last_stream is not None and not self.calls and not self.is_lost:
            # a client that still waits for a stream above the last one must learn it from the GOAWAY alone
            self.loop.call_later(0.5, self.transport.close)

    # -- PING --

    def plan_ping(self):
        if self.gateway.ping_s:
            self.ping_timer = self.loop.call_later(self.gateway.ping_s, self.ping_now)

    def ping_now(self):
        if not self.is_lost:
            self.ping()
            self.ping_timer = self.loop.call_later(self.gateway.ping_wait_s, self.ping_missed)

    def ping(self):
        self.pings += 1
        self.ping_sent = time.monotonic()
        self.h2.ping(struct.pack(">Q", self.pings))
        self.flush()

    def ping_missed(self):
        self.gateway.breach("a PING without an answer", seconds=self.gateway.ping_wait_s)
        self.transport.abort()

    def on_ping_ack(self, event):
        self.gateway.pings_acknowledged += 1
        self.ping_sent = None
        if self.last_stream is not None:
            self.goaway_seen = True
        if self.ping_timer:
            self.ping_timer.cancel()
        self.plan_ping()

    # -- streams --

    def on_request(self, event):
        number = event.stream_id
        if self.last_stream is not None and number > self.last_stream:
            if self.goaway_seen:
                self.gateway.breach("a stream after GOAWAY", stream=number)
            return
        self.highest = number
        call = self.calls[number] = Call(self, number, event.headers)
        call.begin()
        if event.stream_ended:
            call.on_end()

    def on_data(self, event):
        call = self.calls.get(event.stream_id)
        if call is None:
            self.acknowledge(event.stream_id, event.flow_controlled_length)
            return
        call.on_data(event.data, event.flow_controlled_length)

    def on_stream_end(self, event):
        call = self.calls.get(event.stream_id)
        if call is not None and not call.has_ended:
            call.on_end()

    def on_trailers(self, event):
        self.gateway.breach("trailers in a request", stream=event.stream_id)

    def on_reset(self, event):
        call = self.calls.pop(event.stream_id, None)
        if call is not None:
            self.acknowledge(call.number, call.held)
            call.on_reset(int(event.error_code))
        self.close_when_idle()

    def on_window(self, event):
        self.window.set()

    def on_terminated(self, event):
        self.gateway.note_connection(self, "goaway", code=int(event.error_code))
        if int(event.error_code) != 0:
            self.gateway.breach("GOAWAY with an error", code=int(event.error_code), text=(event.additional_data or b"").decode("latin-1"))
        self.transport.close()

    TAKE = {
        h2.events.RequestReceived: on_request, h2.events.DataReceived: on_data, h2.events.StreamEnded: on_stream_end,
        h2.events.TrailersReceived: on_trailers, h2.events.StreamReset: on_reset, h2.events.WindowUpdated: on_window,
        h2.events.RemoteSettingsChanged: on_window, h2.events.PingAckReceived: on_ping_ack, h2.events.ConnectionTerminated: on_terminated,
    }

    def acknowledge(self, number, length):
        """Gives the window back for bytes of the client's that were used."""
        if length and not self.is_lost:
            try:
                self.h2.acknowledge_received_data(length, number)
            except (h2.exceptions.ProtocolError, KeyError):
                pass
            self.flush_soon()

    def headers(self, number, headers, end=False):
        self.h2.send_headers(number, headers, end_stream=end)
        self.flush_soon()

    async def data(self, number, data, end=False, frame=None, pad=None, rate=None):
        """DATA as the client's windows allow; `frame` bytes in each at most, `pad` bytes of padding, `rate` bytes a second."""
        view, at = memoryview(data), 0
        while True:
            if self.is_lost or number not in self.calls:
                raise ConnectionError
            room = min(self.h2.local_flow_control_window(number), self.h2.max_outbound_frame_size)
            if pad is not None:
                room -= pad + 1
            left = len(view) - at
            size = min(left, room, frame or left or 1)
            if (size <= 0 and left) or self.paused:
                self.window.clear()
                self.flush()
                if self.is_lost:
                    raise ConnectionError
                if self.paused or self.h2.local_flow_control_window(number) <= 0 or pad is not None:
                    await self.window.wait()
                continue
            is_last = at + size == len(view)
            self.h2.send_data(number, bytes(view[at:at + size]), end_stream=end and is_last, pad_length=pad)
            at += size
            if rate:
                self.flush()
                await asyncio.sleep(size / rate)
            elif frame:
                self.flush()        # frames apart, in writes of their own
            if is_last:
                self.flush_soon()
                return

    def reset_stream(self, number, code):
        if not self.is_lost:
            try:
                self.h2.reset_stream(number, code)
            except h2.exceptions.ProtocolError:
                pass
            self.flush_soon()

    def forget(self, call):
        if self.calls.pop(call.number, None) is not None:
            # what was held back from one stream is the connection's again
            self.acknowledge(call.number, call.held)
            call.held = 0
        self.close_when_idle()
