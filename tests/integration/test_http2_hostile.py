"""HTTP/2 from peers that break it or abuse it: floods of resets, of frames that ask for answers, of streams; malformed heads and frames. The work
and the memory of one connection stay bounded, and the gateway serves on."""
import json
import os
import random
import time

import pytest
from hpack.struct import HeaderTuple
from hyperframe.frame import ContinuationFrame, GoAwayFrame, HeadersFrame, PingFrame, PriorityFrame, RstStreamFrame, SettingsFrame

import gateway as g
import http2
from gateway import DESCRIBE, RUN, new_id, wait_for
from http2 import (CANCEL, ENHANCE_YOUR_CALM, NO_ERROR, PREFACE, PROTOCOL_ERROR, REFUSED_STREAM, RESETS_MAX, STREAMS_MAX, WINDING_MAX, Peer, Raw, data, rst,
                   window_update)

HTTP2 = {"PLIMSOLL_HTTP2": "1"}
STANDIN = {"SANDBOX_PROVIDER": "standin"}
RESETS_CLOSED = 'plimsoll_connections_closed_total{reason="http2_resets"}'
ERROR_CLOSED = 'plimsoll_connections_closed_total{reason="http2_error"}'


@pytest.fixture(scope="module")
def h2_gw():
    gw = g.Gateway({**HTTP2, **STANDIN, "SANDBOX_MAX_CONCURRENT": "16", "PLIMSOLL_MAX_CONNECTIONS_PER_ADDRESS": "0"}).start()
    try:
        yield gw
        gw.stop()
    finally:
        gw.kill_rest()
        gw.remove()


@pytest.fixture
def raw(h2_gw):
    with Raw(h2_gw) as it:
        yield it
    # whatever was done to one connection, others are served
    with Peer(h2_gw) as peer:
        assert peer.answer(peer.run("standin: answer")).status == 200


# -- resets --


def test_a_request_that_is_reset_right_away_never_starts(gateway):
    """The rapid reset: head, body and reset in one piece. Nothing is dispatched, nothing claimed."""
    gw = gateway(PLIMSOLL_THREADS="1", **HTTP2, **STANDIN)
    with Raw(gw) as raw:
        raw.ping()
        raw.send(b"".join(raw.run(2 * i + 1) + rst(2 * i + 1) for i in range(RESETS_MAX)))
        raw.ping()
        metrics = gw.metrics()
        assert metrics["plimsoll_runs_total"] == 0
        assert metrics["plimsoll_requests_total"] == 1  # the one that reads this
        assert metrics['plimsoll_http2_resets_total{by="peer"}'] == RESETS_MAX
        assert metrics["plimsoll_buffered_bytes"] == 0
        # the connection has done all it may, and is served still
        raw.send(raw.run(2 * RESETS_MAX + 1))
        assert raw.status(2 * RESETS_MAX + 1) == "200"


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_resets_at_the_limit(h2_gw, raw, more):
    before, resets = h2_gw.metric(RESETS_CLOSED), h2_gw.metric('plimsoll_http2_resets_total{by="peer"}')
    lines = len(h2_gw.log_lines("connection closed for its resets"))
    for i in range(RESETS_MAX + more):
        raw.send(raw.headers(2 * i + 1) + rst(2 * i + 1))
    if more <= 0:
        raw.ping()
        assert h2_gw.metric(RESETS_CLOSED) == before
    else:
        assert raw.wait_closed() == [ENHANCE_YOUR_CALM]
        h2_gw.wait_metric(RESETS_CLOSED, before + 1)
        assert h2_gw.log_lines("connection closed for its resets")[lines:][0]["client"] == "127.0.0.1"
    assert h2_gw.metric('plimsoll_http2_resets_total{by="peer"}') == resets + RESETS_MAX + more


def test_requests_that_finish_make_up_for_resets(h2_gw, raw):
    """Half of all requests may be given up, for ever."""
    stream = 1
    for _ in range(4 * RESETS_MAX):
        raw.send(raw.headers(stream, flags=("END_HEADERS",), path=DESCRIBE, method="POST") + rst(stream))
        raw.send(raw.headers(stream + 2))
        stream += 4
        if stream % 32 == 1:
            raw.ping()
    raw.ping()
    assert not raw.closed and not raw.of(GoAwayFrame)


def test_a_flood_that_comes_in_one_piece(h2_gw, raw):
    """Thousands of resets in one segment: what is behind the limit is not read."""
    resets = h2_gw.metric('plimsoll_http2_resets_total{by="peer"}')
    raw.send(b"".join(raw.headers(2 * i + 1) + rst(2 * i + 1) for i in range(5000)))
    assert raw.wait_closed() == [ENHANCE_YOUR_CALM]
    assert h2_gw.metric('plimsoll_http2_resets_total{by="peer"}') == resets + RESETS_MAX + 1


@pytest.mark.parametrize("how", ["window", "malformed", "length"])
def test_resets_the_gateway_is_made_to_send_count_too(h2_gw, raw, how):
    """The peer breaks a rule of each stream, so that the gateway resets it."""
    resets = h2_gw.metric('plimsoll_http2_resets_total{by="gateway"}')
    for i in range(RESETS_MAX + 1):
        stream = 2 * i + 1
        if how == "window":
            raw.send(raw.headers(stream, flags=("END_HEADERS",), path=DESCRIBE, method="POST") + window_update(stream, 2**31 - 1))
        elif how == "malformed":
            raw.send(raw.headers(stream, more=[("connection", "close")]))
        else:
            raw.send(raw.headers(stream, flags=("END_HEADERS",), path=DESCRIBE, method="POST", more=[("content-length", "5")]) + data(stream, b"123456"))
        if i < RESETS_MAX:
            raw.ping()
    assert raw.wait_closed() == [ENHANCE_YOUR_CALM]
    assert h2_gw.metric('plimsoll_http2_resets_total{by="gateway"}') == resets + RESETS_MAX + 1


def test_resets_of_streams_that_are_over_count(h2_gw, raw):
    raw.send(raw.headers(1))
    raw.ping()
    raw.send(rst(1) * (RESETS_MAX + 2))
    assert raw.wait_closed() == [ENHANCE_YOUR_CALM]


def test_runs_that_are_being_stopped_count_as_streams(gateway):
    """A peer cannot have more than twice its streams under way by resetting them: the next one is refused, unread."""
    gw = gateway(SANDBOX_MAX_CONCURRENT="32", **HTTP2, **STANDIN)
    with Raw(gw) as raw:
        raw.ping()
        for i in range(WINDING_MAX):
            raw.send(raw.run(2 * i + 1, "standin: deaf 1500"))
        gw.wait_inflight(WINDING_MAX)
        raw.send(b"".join(rst(2 * i + 1) for i in range(WINDING_MAX)))
        raw.ping()
        next_stream = 2 * WINDING_MAX + 1
        raw.send(raw.run(next_stream))
        raw.read(lambda: next_stream in raw.resets())
        assert raw.resets()[next_stream] == REFUSED_STREAM
        assert gw.metric("plimsoll_inflight") == WINDING_MAX and gw.metric("plimsoll_runs_total") == WINDING_MAX
        gw.wait_inflight(0)
        for attempt in range(1, 40):  # they count until they are settled, a moment after
            stream = next_stream + 2 * attempt
            raw.send(raw.run(stream))
            raw.read(lambda: any(f.stream_id == stream for f in raw.frames))
            if stream not in raw.resets():
                break
            time.sleep(0.05)
        assert raw.status(stream) == "200"


# -- too many, too much --


@pytest.mark.parametrize("knows", [False, True])
def test_more_streams_than_there_may_be(h2_gw, raw, knows):
    """Are refused, unread: clients assume 100 before they know better, and some a moment longer."""
    before = h2_gw.metric("plimsoll_http2_refused_total")
    if knows:
        raw.ping()
        raw.send(http2.SETTINGS_ACK)
    raw.send(raw.unfinished(1, 100))
    raw.read(lambda: len(raw.resets()) == 100 - STREAMS_MAX)
    assert raw.resets() == {2 * i + 1: REFUSED_STREAM for i in range(STREAMS_MAX, 100)}
    assert h2_gw.metric("plimsoll_http2_refused_total") == before + 100 - STREAMS_MAX
    # those that were taken are served
    for i in range(STREAMS_MAX):
        raw.send(data(2 * i + 1, b"{}"))
    for i in range(STREAMS_MAX):
        assert raw.status(2 * i + 1) == "200"


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_refused_streams_at_the_limit(raw, more):
    """Past what a client may assume, one that is refused counts as a reset."""
    raw.send(raw.unfinished(1, STREAMS_MAX))
    stream, left = 2 * STREAMS_MAX + 1, http2.EARLY_MAX + RESETS_MAX + more
    while left:
        count = min(left, 50)
        raw.send(raw.unfinished(stream, count))
        stream, left = stream + 2 * count, left - count
        if left or more <= 0:
            raw.ping()
    if more > 0:
        assert raw.wait_closed() == [ENHANCE_YOUR_CALM]
    else:
        assert not raw.closed and not raw.of(GoAwayFrame)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_streams_at_the_number_nobody_may_pass(h2_gw, more):
    before = h2_gw.metric(ERROR_CLOSED)
    with Raw(h2_gw) as raw:
        raw.ping()
        raw.send(http2.SETTINGS_ACK).ping()
        # in one piece, so that none of them is closed yet
        raw.sock.setsockopt(http2.socket.IPPROTO_TCP, http2.socket.TCP_NODELAY, 0)
        raw.send(raw.unfinished(1, http2.STREAMS_CUT + more))
        if more > 0:
            assert raw.wait_closed() in ([PROTOCOL_ERROR], [])
            h2_gw.wait_metric(ERROR_CLOSED, before + 1)
        else:
            raw.ping()
    h2_gw.wait_metric("plimsoll_buffered_bytes", 0)


@pytest.mark.parametrize("kind", ["ping", "settings"])
def test_frames_that_want_an_answer_get_one(raw, kind):
    """As many as a peer likes that reads them."""
    count, got = 20000, 0
    answers = {"ping": PingFrame, "settings": SettingsFrame}[kind]
    frame = answers()
    if kind == "ping":
        frame.opaque_data = b"12345678"
    flood = frame.serialize() * count
    at, end = 0, time.monotonic() + 30
    raw.sock.setblocking(False)
    while got < count and time.monotonic() < end:
        try:
            at += raw.sock.send(flood[at:at + 100000]) if at < len(flood) else 0
        except BlockingIOError:
            pass
        try:
            raw.read(lambda: False, 0.005)
        except (AssertionError, BlockingIOError):
            assert not raw.closed
        got = len([f for f in raw.of(answers) if "ACK" in f.flags]) - (1 if kind == "settings" else 0)
        raw.sock.setblocking(False)
    assert got == count


@pytest.mark.parametrize("kind", ["priority", "empty_data", "window", "unknown", "continuation"])
def test_floods_of_frames_without_effect(h2_gw, raw, kind):
    raw.send(raw.headers(1, flags=("END_HEADERS",), path=DESCRIBE, method="POST"))
    if kind == "priority":
        flood = b"".join(PriorityFrame(3 + 2 * i).serialize() for i in range(20000))
    elif kind == "empty_data":
        flood = data(1, b"", end=False) * 50000
    elif kind == "window":
        flood = window_update(1, 1) * 50000
    elif kind == "unknown":
        flood = b"\x00\x00\x08\xee\x00\x00\x00\x00\x00" + b"12345678"
        flood *= 20000
    else:
        c = ContinuationFrame(3)
        flood = raw.headers(3, flags=()) + c.serialize() * 50000
    raw.send(flood)
    if kind == "continuation":
        assert raw.wait_closed()[-1:] != [NO_ERROR]
    else:
        raw.ping()
        raw.send(data(1, b"{}"))
        assert raw.status(1) == "200"


def test_a_head_that_never_ends(gateway):
    gw = gateway(PLIMSOLL_HEADER_TIMEOUT="400ms", **HTTP2, **STANDIN)
    with Raw(gw) as raw:
        raw.send(raw.headers(1))
        raw.ping()
        raw.send(raw.headers(3, flags=("END_STREAM",)))
        began = time.monotonic()
        for _ in range(100):
            if raw.closed or time.monotonic() - began > 3:
                break
            raw.send(ContinuationFrame(3).serialize()[:9])
            time.sleep(0.1)
            raw.sock.settimeout(0.01)
            try:
                raw.closed = raw.sock.recv(65536) == b"" or raw.closed
            except TimeoutError:
                pass
            except OSError:
                raw.closed = True
        assert raw.closed and time.monotonic() - began < 3
    assert gw.metric('plimsoll_connections_closed_total{reason="header_timeout"}') == 1


def test_a_frame_that_never_ends(gateway):
    gw = gateway(PLIMSOLL_IDLE_TIMEOUT="400ms", PLIMSOLL_READ_TIMEOUT="600ms", PLIMSOLL_HEADER_TIMEOUT="500ms", **HTTP2, **STANDIN)
    with Raw(gw) as raw:
        raw.send(raw.headers(1))
        raw.ping()
        raw.send(PingFrame().serialize()[:12])
        assert raw.wait_closed(5) == [NO_ERROR]
    with Raw(gw) as raw:
        raw.send(raw.headers(1, flags=("END_HEADERS",), path=DESCRIBE, method="POST") + data(1, b"x" * 1000)[:500])
        # the stream's time is up; its connection is idle then
        assert raw.wait_closed(5) == [NO_ERROR]
        assert raw.resets() == {1: CANCEL}
    gw.wait_metric("plimsoll_buffered_bytes", 0)


def test_a_compressed_head_that_is_much_larger_than_it_looks(h2_gw, raw):
    """One entry of 4 KB in the table, named a thousand times."""
    raw.send(raw.headers(1, block=raw.head() + raw.encoder.encode([("x-big", "v" * 3700)])))
    assert raw.status(1) == "200"
    head, again = raw.head(), raw.encoder.encode([("x-big", "v" * 3700)])
    assert len(head) < 10 and len(again) == 1
    for i in range(8):
        raw.send(raw.headers(2 * i + 3, block=head + again * 10000))
        assert raw.status(2 * i + 3) == "431"


# -- heads --


@pytest.mark.parametrize("case", [
    "upper", "space_in_name", "colon_in_name", "empty_name", "connection", "keep_alive", "proxy_connection", "transfer_encoding", "upgrade", "te", "no_method",
    "no_scheme", "no_path", "empty_path", "two_paths", "two_methods", "unknown_pseudo", "late_pseudo", "status", "relative_path", "crlf_in_value", "lf_in_value",
    "nul_in_value", "crlf_in_path", "space_in_path", "space_in_method", "two_lengths", "bad_length", "padded_value", "crlf_in_authority"])
def test_malformed_heads(h2_gw, raw, case):
    """Reset with PROTOCOL_ERROR or answered 400; never dispatched, and the connection goes on."""
    good = {":method": "GET", ":scheme": "http", ":authority": "gw", ":path": "/healthz"}
    pseudo, more = list(good.items()), []
    fields = {
        "upper": ("X-Upper", "1"), "space_in_name": ("x y", "1"), "colon_in_name": ("x:y", "1"), "empty_name": ("", "1"), "connection": ("connection", "close"),
        "keep_alive": ("keep-alive", "1"), "proxy_connection": ("proxy-connection", "close"), "transfer_encoding": ("transfer-encoding", "chunked"),
        "upgrade": ("upgrade", "h2c"), "te": ("te", "gzip"), "late_pseudo": (":path", "/healthz"), "crlf_in_value": ("x-y", "a\r\nauthorization: b"),
        "lf_in_value": ("x-y", "a\nb"), "nul_in_value": ("x-y", "a\0b"), "bad_length": ("content-length", "x"), "padded_value": ("x-y", " a ")}
    replaced = {
        "no_method": (":method", None), "no_scheme": (":scheme", None), "no_path": (":path", None), "empty_path": (":path", ""),
        "relative_path": (":path", "healthz"), "crlf_in_path": (":path", "/healthz HTTP/1.1\r\nx: y"), "space_in_path": (":path", "/healthz HTTP/1.1"),
        "space_in_method": (":method", "GET /healthz"), "crlf_in_authority": (":authority", "gw\r\nauthorization: b")}
    if case in fields:
        more = [fields[case]]
    elif case in replaced:
        name, value = replaced[case]
        pseudo = [(n, value if n == name else v) for n, v in pseudo if n != name or value is not None]
    elif case == "two_lengths":
        more = [("content-length", "0"), ("content-length", "1")]
    else:
        pseudo.append({"two_paths": (":path", "/healthz"), "two_methods": (":method", "GET"), "unknown_pseudo": (":what", "1"), "status": (":status", "200")}[case])
    block = raw.encoder.encode([HeaderTuple(*f) for f in pseudo] + [HeaderTuple(*f) for f in more])
    before = h2_gw.metric("plimsoll_runs_total")
    raw.send(raw.headers(1, block=block))
    raw.read(lambda: 1 in raw.resets() or any(f.stream_id == 1 for f in raw.of(HeadersFrame)))
    if 1 in raw.resets():
        assert raw.resets()[1] == PROTOCOL_ERROR
    else:
        assert raw.status(1) == "400"
    assert h2_gw.metric("plimsoll_runs_total") == before
    raw.send(raw.headers(3))
    assert raw.status(3) == "200"


@pytest.mark.parametrize("case", ["target_char", "authority_char", "host_differs", "no_host", "scheme", "fields", "expect", "two_hosts", "connect"])
def test_heads_that_only_the_strict_check_refuses(h2_gw, case):
    """Answered 400, with the request ID and everything else an answer has."""
    request_id = new_id()
    pseudo, more = {":method": "GET", ":scheme": "http", ":authority": "gw", ":path": "/healthz"}, []
    if case == "target_char":
        pseudo[":path"] = '/health"z'
    elif case == "authority_char":
        pseudo[":authority"] = "g|w"
    elif case == "host_differs":
        more = [("host", "other")]
    elif case == "no_host":
        del pseudo[":authority"]
    elif case == "scheme":
        pseudo[":scheme"] = "ftp"
    elif case == "fields":
        more = [(f"x-{i}", "1") for i in range(200)]
    elif case == "expect":
        more = [("expect", "something")]
    elif case == "two_hosts":
        more = [("host", "gw"), ("host", "gw")]
    else:
        pseudo = {":method": "CONNECT", ":authority": "gw:80"}
    with Peer(h2_gw) as peer:
        stream = peer.open("", [("plimsoll-request-id", request_id), *more], pseudo=list(pseudo.items()))
        s = peer.streams[stream]
        peer.wait(lambda: s.is_over)
        if s.headers is None:
            assert s.reset == PROTOCOL_ERROR and case in ("two_hosts", "authority_char", "scheme", "no_host", "target_char"), (case, s.reset)
        else:
            g.refused_http(peer.answer(stream), 400, "invalid_argument", request_id)
        # the same head without what is wrong
        assert peer.answer(peer.open("/healthz", [("host", "gw")], method="GET")).status == 200


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_the_number_of_fields_at_the_limit(h2_gw, more):
    with Peer(h2_gw) as peer:  # Host is one of them
        answer = peer.answer(peer.open("/healthz", [(f"x-{i}", "1") for i in range(128 - 1 + more)], method="GET"))
        assert answer.status == (200 if more <= 0 else 400), answer


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_the_size_of_a_head_at_the_limit(h2_gw, more):
    """As the text of HTTP/1.1 it would be: 32 KiB, of values that the compression cannot shrink."""
    def text(size):
        lines = ["GET /healthz HTTP/1.1", "host:gw"] + [f"x-{i}:" for i in range(8)]
        rest = size - sum(len(line) + 2 for line in lines) - 2
        return [rest // 8 + (1 if i < rest % 8 else 0) for i in range(8)]
    with Peer(h2_gw) as peer:
        answer = peer.answer(peer.open("/healthz", [(f"x-{i}", "v" * n) for i, n in enumerate(text(32 * 1024 + more))], method="GET"))
        assert answer.status == (200 if more <= 0 else 431), answer
        if more > 0:
            g.refused_http(answer, 431, "invalid_argument")
        assert peer.answer(peer.get("/healthz")).status == 200


def test_a_head_far_over_the_limit(h2_gw):
    with Peer(h2_gw) as peer:
        stream = peer.open("/healthz", [(f"x-{i}", "v" * 8000) for i in range(7)], method="GET")
        assert peer.answer_or_reset(stream) in (431, ("reset", PROTOCOL_ERROR), ("reset", REFUSED_STREAM))
        assert peer.answer(peer.get("/healthz")).status == 200


def test_trailers_are_nobodys_header_fields(gateway):
    gw = gateway(PLIMSOLL_TRUSTED_PROXIES="127.0.0.1", **HTTP2, **STANDIN)
    request_id = new_id()
    with Raw(gw) as raw:
        head = raw.encoder.encode([(":method", "POST"), (":scheme", "http"), (":authority", "gw"), (":path", RUN), ("content-type", "application/json"),
                                   ("authorization", "Bearer " + gw.token), ("x-forwarded-for", "192.0.2.1")])
        raw.send(raw.headers(1, block=head, flags=("END_HEADERS",)) + data(1, json.dumps(g.javascript("standin: answer")).encode(), end=False))
        raw.send(raw.headers(1, block=raw.encoder.encode([("x-forwarded-for", "203.0.113.9"), ("plimsoll-request-id", request_id), ("content-type", "text/plain")])))
        assert raw.status(1) == "200"
        # nor does a token in them let anybody in
        head = raw.encoder.encode([(":method", "POST"), (":scheme", "http"), (":authority", "gw"), (":path", RUN), ("content-type", "application/json")])
        raw.send(raw.headers(3, block=head, flags=("END_HEADERS",)))
        raw.send(raw.headers(3, block=raw.encoder.encode([("authorization", "Bearer " + gw.token)])))
        assert raw.status(3) == "401"
        # trailers with a pseudo-header, or without an end, are malformed
        raw.send(raw.headers(5, block=raw.head(path=DESCRIBE, method="POST"), flags=("END_HEADERS",)))
        raw.send(raw.headers(5, block=raw.encoder.encode([(":path", "/healthz")])))
        raw.read(lambda: 5 in raw.resets())
    line = gw.wait_log("code run")
    assert line["client"] == "192.0.2.1" and "request_id" not in line


# -- frames --


@pytest.mark.parametrize("case", ["even_stream", "data_on_idle", "data_on_0", "headers_on_0", "rst_on_idle", "push", "window_overflow",
                                  "frame_size", "settings_size", "continuation_alone", "no_settings", "bad_hpack", "own_priority", "goaway"])
def test_frames_that_break_the_protocol(h2_gw, raw, case):
    """The connection ends with a GOAWAY that says why, and nothing else is touched."""
    raw.ping()
    big = data(1, b"")
    frames = {
        "even_stream": lambda: raw.headers(2), "data_on_idle": lambda: data(1, b"x"),
        "data_on_0": lambda: b"\x00\x00\x01\x00\x00\x00\x00\x00\x00x", "headers_on_0": lambda: b"\x00\x00\x01\x01\x05\x00\x00\x00\x00\x82",
        "rst_on_idle": lambda: rst(7), "push": lambda: b"\x00\x00\x05\x05\x04\x00\x00\x00\x01\x00\x00\x00\x02\x82",
        "window_overflow": lambda: window_update(0, 2**31 - 1), "frame_size": lambda: b"\x00\x40\x01" + big[3:] + b"x" * 16385,
        "settings_size": lambda: b"\x00\x00\x05\x04\x00\x00\x00\x00\x00" + b"x" * 5, "continuation_alone": lambda: ContinuationFrame(1).serialize(),
        "no_settings": lambda: None, "bad_hpack": lambda: raw.headers(1, block=b"\xff\xff\xff\xff\xff"),
        "own_priority": lambda: None, "goaway": lambda: None}
    if case == "no_settings":
        with Raw(h2_gw, preface=PREFACE) as other:
            other.send(PingFrame().serialize())
            assert other.wait_closed() == [PROTOCOL_ERROR]
        return
    if case == "goaway":
        # a peer that says goodbye is let go once it has its answers
        f = GoAwayFrame(0)
        raw.send(raw.run(1, "standin: hold 300") + f.serialize())
        assert raw.status(1) == "200"
        assert raw.wait_closed(5) in ([], [NO_ERROR])
        return
    if case == "own_priority":
        f = PriorityFrame(3)
        f.depends_on = 3
        raw.send(f.serialize())  # of no meaning here: priorities are not taken
        raw.send(raw.headers(1))
        assert raw.closed or raw.status(1) == "200"
        return
    before = h2_gw.metric(ERROR_CLOSED)
    raw.send(frames[case]())
    goaways = raw.wait_closed()
    assert len(goaways) == 1 and goaways[0] != NO_ERROR, goaways
    h2_gw.wait_metric(ERROR_CLOSED, before + 1)


def test_a_stream_with_a_number_behind_the_last_is_not_looked_at(raw):
    raw.send(raw.headers(5) + raw.headers(3) + raw.headers(7))
    assert raw.status(5) == raw.status(7) == "200"
    assert not [f for f in raw.frames if f.stream_id == 3]


@pytest.mark.parametrize("seed", range(12))
def test_random_frames(h2_gw, seed):
    """Streams of frames that are mostly right, cut and changed here and there."""
    chance = random.Random(seed)
    for _ in range(40):
        with Raw(h2_gw) as raw:
            stream, out = 1, b""
            for _ in range(chance.randrange(1, 40)):
                kind = chance.randrange(9)
                if kind == 0:
                    out += raw.headers(stream)
                elif kind == 1:
                    out += raw.run(stream, chance.choice(["standin: answer", "standin: hold 50", "standin: bytes 20000"]))
                elif kind == 2:
                    out += raw.headers(stream, flags=("END_HEADERS",), path=DESCRIBE, method="POST") + data(stream, b"{", end=False)
                elif kind == 3:
                    out += rst(max(1, stream - 2 * chance.randrange(4)), chance.randrange(14))
                elif kind == 4:
                    out += window_update(chance.choice([0, max(1, stream - 2)]), chance.randrange(2**31))
                elif kind == 5:
                    out += data(max(1, stream - 2), os.urandom(chance.randrange(3000)), chance.random() < 0.5)
                elif kind == 6:
                    f = SettingsFrame()
                    f.settings = {chance.randrange(1, 9): chance.choice([0, 1, 100, 65535, 2**24])}
                    out += f.serialize()
                elif kind == 7:
                    out += raw.headers(stream, more=[("x-" + chr(97 + chance.randrange(26)), "v" * chance.randrange(2000))], path=chance.choice(["/v1/runs", "/nothing"]))
                else:
                    out += bytes(chance.randrange(256) for _ in range(chance.randrange(30)))
                if kind in (0, 1, 2, 7):
                    stream += 2
                if chance.random() < 0.3 and out:
                    spot = chance.randrange(len(out))
                    out = out[:spot] + bytes([chance.randrange(256)]) + out[spot + 1:]
                if chance.random() < 0.4:
                    raw.send(out)
                    out = b""
            raw.send(out)
            if chance.random() < 0.5:
                raw.sock.settimeout(0.02)
                try:
                    while raw.sock.recv(65536):
                        pass
                except OSError:
                    pass
    with Peer(h2_gw) as peer:
        assert peer.answer(peer.run("standin: answer")).status == 200
    h2_gw.wait_inflight(0)
    h2_gw.wait_metric("plimsoll_buffered_bytes", 0)


def test_everything_is_given_back(h2_gw):
    """After all of the above."""
    wait_for(lambda: h2_gw.metric("plimsoll_connections_open") <= 1, "the connections to be closed", 20)
    h2_gw.wait_metric("plimsoll_buffered_bytes", 0)
    h2_gw.wait_inflight(0)
