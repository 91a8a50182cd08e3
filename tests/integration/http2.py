"""An HTTP/2 client for the tests: one that keeps every rule (the h2 package, which checks what it receives), and one that writes the frames it is
told to."""
import contextlib
import json
import socket
import time

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
import hpack
from hyperframe.frame import (DataFrame, Frame, GoAwayFrame, HeadersFrame, PingFrame, RstStreamFrame, SettingsFrame,
                              WindowUpdateFrame)

import gateway as g

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# The gateway's limits, as gateway/limits.h has them.
STREAMS_MAX = 8
STREAMS_CUT = 128
EARLY_MAX = 100
WINDING_MAX = 8
RESETS_MAX = 64
STREAM_WINDOW = 256 * 1024

NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR, STREAM_CLOSED, REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 0, 1, 3, 5, 7, 8, 11
# RFC 9113 section 8.2.2
OF_HTTP1 = {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"}


def connect(gw, tls=None, receive_buffer=None):
    sock = socket.socket()
    if receive_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.settimeout(g.ANSWER_S)
    sock.connect(("127.0.0.1", gw.port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return tls.wrap_socket(sock, server_hostname="gw") if tls else sock


class Stream:
    def __init__(self):
        self.headers, self.body, self.informational = None, b"", []
        self.ended = False
        self.reset = None  # the code

    @property
    def is_over(self):
        return self.ended or self.reset is not None


class Peer:
    """A client that keeps the rules. Nothing is read but in wait()."""

    def __init__(self, gw, tls=None, window=None, receive_buffer=None, wait_for_settings=True):
        self.gw = gw
        self.sock = connect(gw, tls, receive_buffer)
        config = h2.config.H2Configuration(client_side=True, header_encoding="utf-8", validate_outbound_headers=False, normalize_outbound_headers=False)
        self.h2 = h2.connection.H2Connection(config)
        if window is not None:
            self.h2.local_settings = h2.settings.Settings(client=True, initial_values={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.h2.initiate_connection()
        self.streams = {}
        self.goaways = []  # (code, last stream)
        self.settings = None
        self.closed = False
        self.gives_window = window is None
        self.flush()
        if wait_for_settings:
            self.wait(lambda: self.settings is not None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def flush(self):
        data = self.h2.data_to_send()
        if data:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.sock.sendall(data)

    def _take(self, event):
        if isinstance(event, h2.events.RemoteSettingsChanged):
            self.settings = {int(c): s.new_value for c, s in event.changed_settings.items()}
        elif isinstance(event, h2.events.InformationalResponseReceived):
            self.streams[event.stream_id].informational.append(dict(event.headers)[":status"])
        elif isinstance(event, h2.events.ResponseReceived):
            stream = self.streams[event.stream_id]
            assert stream.headers is None
            stream.headers = event.headers
        elif isinstance(event, h2.events.DataReceived):
            self.streams[event.stream_id].body += event.data
            if self.gives_window and event.flow_controlled_length:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            self.streams[event.stream_id].ended = True
        elif isinstance(event, h2.events.StreamReset):
            if event.stream_id in self.streams:
                self.streams[event.stream_id].reset = int(event.error_code)
        elif isinstance(event, h2.events.ConnectionTerminated):
            self.goaways.append((int(event.error_code), event.last_stream_id))

    def wait(self, condition, seconds=g.ANSWER_S):
        end = time.monotonic() + seconds
        while not condition():
            if self.closed:
                raise g.Closed(f"closed; GOAWAYs: {self.goaways}")
            left = end - time.monotonic()
            assert left > 0, f"waited {seconds} s in vain"
            self.sock.settimeout(left)
            try:
                data = self.sock.recv(65536)
            except TimeoutError:
                continue
            except ConnectionResetError:
                data = b""
            if not data:
                self.closed = True
                continue
            for event in self.h2.receive_data(data):
                self._take(event)
            self.flush()

    def wait_closed(self, seconds=g.SETTLE_S):
        with contextlib.suppress(g.Closed):
            self.wait(lambda: False, seconds)
        return self.goaways

    def open(self, path, headers=(), body=None, method="POST", end=True, pseudo=None):
        """Begins a request: its head, and the body as far as the window allows when it is given whole."""
        stream = self.h2.get_next_available_stream_id()
        fields = list(pseudo if pseudo is not None else [(":method", method), (":scheme", "http"), (":authority", "gw"), (":path", path)])
        fields += [(n.lower(), v) for n, v in headers]
        self.streams[stream] = Stream()
        self.h2.send_headers(stream, fields, end_stream=end and not body)
        self.flush()
        if body:
            self.send(stream, body, end)
        return stream

    def send(self, stream, data, end=False):
        at = 0
        while at < len(data):
            room = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size)
            if room == 0:
                self.wait(lambda: self.streams[stream].is_over or self.h2.local_flow_control_window(stream) > 0)
                if self.streams[stream].is_over:
                    return
                continue
            part = data[at:at + room]
            at += len(part)
            self.h2.send_data(stream, part, end_stream=end and at == len(data))
            self.flush()
        if not data and end:
            self.h2.send_data(stream, b"", end_stream=True)
            self.flush()

    def post(self, path, body=b"", request_id=None, token=None, content_type="application/json", more=(), with_length=True):
        """Sends a whole request and gives its stream."""
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
        headers = self.gw.headers(request_id, token, content_type, more)
        if with_length and "content-length" not in {n.lower() for n, _ in headers}:
            headers.append(("content-length", str(len(body))))
        stream = self.open(path, headers, end=False)
        self.send(stream, body, True)
        return stream

    def run(self, code="1", request_id=None, protocol=4, more=(), path=g.RUN, **fields):
        return self.post(path, g.javascript(code, protocol, **fields), request_id, more=more)

    def get(self, path, more=(), method="GET", token=None):
        return self.open(path, self.gw.headers(None, token, None, more), method=method)

    def reset(self, stream, code=CANCEL):
        self.h2.reset_stream(stream, code)
        self.flush()

    def answer(self, stream, head_only=False, seconds=g.ANSWER_S):
        s = self.streams[stream]
        self.wait(lambda: s.is_over, seconds)
        assert s.ended, f"reset with {s.reset}"
        headers = [(n, v) for n, v in s.headers if not n.startswith(":")]
        pseudo = [(n, v) for n, v in s.headers if n.startswith(":")]
        assert len(pseudo) == 1 and pseudo[0][0] == ":status", s.headers
        assert not [n for n, _ in headers if n != n.lower() or n in OF_HTTP1], headers
        answer = g.Answer(int(pseudo[0][1]), headers, s.body, "HTTP/2 " + pseudo[0][1], s.informational)
        length = answer.header("content-length")
        assert length.isdigit() and (s.body == b"" if head_only else int(length) == len(s.body)), headers
        assert answer.header("date")
        return answer

    def answer_or_reset(self, stream):
        """The answer's status, or the code of the reset."""
        s = self.streams[stream]
        self.wait(lambda: s.is_over)
        return int(dict(s.headers)[":status"]) if s.headers else ("reset", s.reset)


class Raw:
    """Writes what it is told; reads frames and forgets nothing."""

    def __init__(self, gw, preface=PREFACE + SettingsFrame().serialize(), tls=None, receive_buffer=None):
        self.gw = gw
        self.sock = connect(gw, tls, receive_buffer)
        self.encoder, self.decoder = hpack.Encoder(), hpack.Decoder()
        self.frames, self.buffer = [], b""
        self.closed = False
        self.send(preface)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, data):
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.sock.sendall(data)
        return self

    def head(self, path="/healthz", method="GET", more=(), pseudo=None, authorized=True):
        fields = list(pseudo if pseudo is not None else [(":method", method), (":scheme", "http"), (":authority", "gw"), (":path", path)])
        if authorized:
            fields += [(n.lower(), v) for n, v in self.gw.headers(None, None, "application/json" if method == "POST" else None)]
        return self.encoder.encode(fields + list(more))

    def headers(self, stream, block=None, flags=("END_HEADERS", "END_STREAM"), **more):
        f = HeadersFrame(stream)
        f.data = block if block is not None else self.head(**more)
        for flag in flags:
            f.flags.add(flag)
        return f.serialize()

    def run(self, stream, code="standin: answer", end=True):
        body = json.dumps(g.javascript(code)).encode()
        return self.headers(stream, flags=("END_HEADERS",), path=g.RUN, method="POST") + data(stream, body, end)

    def unfinished(self, first, count):
        """Requests whose bodies never come."""
        return b"".join(self.headers(first + 2 * i, flags=("END_HEADERS",), path=g.DESCRIBE, method="POST") for i in range(count))

    def read(self, condition, seconds=g.SETTLE_S):
        """Until a frame (or the end) meets the condition on (frames, closed)."""
        end = time.monotonic() + seconds
        while not condition():
            left = end - time.monotonic()
            assert left > 0 and not self.closed, f"waited in vain; closed: {self.closed}; {self.frames[-5:]}"
            self.sock.settimeout(left)
            try:
                data = self.sock.recv(65536)
            except TimeoutError:
                continue
            except ConnectionResetError:
                data = b""
            self.closed = not data
            self.buffer += data
            while len(self.buffer) >= 9:
                frame, length = Frame.parse_frame_header(memoryview(self.buffer[:9]))
                if len(self.buffer) < 9 + length:
                    break
                frame.parse_body(memoryview(self.buffer[9:9 + length]))
                self.buffer = self.buffer[9 + length:]
                self.frames.append(frame)

    def of(self, kind, stream=None):
        return [f for f in self.frames if isinstance(f, kind) and (stream is None or f.stream_id == stream)]

    def ping(self):
        """Everything sent so far was read."""
        f = PingFrame()
        f.opaque_data = b"%08d" % (len(self.frames) % 10**8)
        self.send(f.serialize())
        self.read(lambda: any(p.opaque_data == f.opaque_data for p in self.of(PingFrame)))
        return self

    def status(self, stream):
        """Waits for an answer. Streams are to be asked for in the order of their answers, as heads are decoded only here."""
        self.read(lambda: any("END_STREAM" in f.flags for f in self.frames if f.stream_id == stream))
        return dict(self.decoder.decode(b"".join(f.data for f in self.of(HeadersFrame, stream))))[":status"]

    def wait_closed(self, seconds=g.SETTLE_S):
        self.read(lambda: self.closed, seconds)
        return [f.error_code for f in self.of(GoAwayFrame)]

    def resets(self):
        return {f.stream_id: f.error_code for f in self.of(RstStreamFrame)}


def _settings_ack():
    f = SettingsFrame()
    f.flags.add("ACK")
    return f.serialize()


SETTINGS_ACK = _settings_ack()


def rst(stream, code=CANCEL):
    f = RstStreamFrame(stream)
    f.error_code = code
    return f.serialize()


def window_update(stream, n):
    f = WindowUpdateFrame(stream)
    f.window_increment = n
    return f.serialize()


def data(stream, payload, end=True):
    f = DataFrame(stream)
    f.data = payload
    if end:
        f.flags.add("END_STREAM")
    return f.serialize()
