"""What floods over HTTP/2 cost: the memory of one front of a release build stays bounded, and no more runs than there may be are under way.
Sanitizers keep freed memory back, so this is measured as test_floods.py does."""
import time

import pytest
from hyperframe.frame import ContinuationFrame, PingFrame, PriorityFrame, SettingsFrame

import http2
from gateway import BODY_MAX, DESCRIBE, MIB, wait_for
from http2 import ENHANCE_YOUR_CALM, PREFACE, RESETS_MAX, STREAMS_MAX, Peer, Raw, data, rst, window_update
from test_floods import KIB, SLACK, lean, release, resident, warm  # noqa: F401  (fixtures)

HTTP2 = {"PLIMSOLL_HTTP2": "1"}
RESETS_CLOSED = 'plimsoll_connections_closed_total{reason="http2_resets"}'


def closed_for(gw):
    return {k.split('"')[1]: v for k, v in gw.metrics().items() if "closed_total" in k and v}


ASKING = ["ping", "settings", "refused", "malformed"]


def asking_frames(raw, kind, count):
    """Frames that each want one in return."""
    if kind == "ping":
        frame = PingFrame()
        frame.opaque_data = b"12345678"
        return frame.serialize() * count
    if kind == "settings":
        frame = SettingsFrame()
        frame.settings = {SettingsFrame.INITIAL_WINDOW_SIZE: 70000}
        return frame.serialize() * count
    first = getattr(raw, "next_stream", 1)
    raw.next_stream = first + 2 * count
    if kind == "refused":
        return raw.unfinished(first, count)
    return b"".join(raw.headers(first + 2 * i, more=[("connection", "close")]) for i in range(count))


@pytest.mark.parametrize("kind", ASKING)
def test_a_flood_of_frames_that_want_an_answer(lean, kind):
    """From a peer that reads none of them: it is not read any more, and closed when nothing moved for PLIMSOLL_WRITE_TIMEOUT."""
    gw = lean(PLIMSOLL_WRITE_TIMEOUT="2s", **HTTP2)
    before = warm(gw)
    with Raw(gw, receive_buffer=4096) as raw:
        end = time.monotonic() + 30
        sent, closed, largest = 0, False, 0
        raw.sock.settimeout(3)
        while not closed and time.monotonic() < end:
            part = asking_frames(raw, kind, 2000)
            try:
                raw.sock.sendall(part)
                sent += len(part)
                largest = max(largest, resident(gw))
            except OSError as e:
                closed = not isinstance(e, TimeoutError)
        assert closed, sent
    # what the kernel had for it, read in one tick, is 6 MiB at most; frames to be sent are 1000 and a few, of 200 bytes
    assert max(largest, resident(gw)) - before < SLACK + 8 * MIB
    reasons = closed_for(gw)
    assert sum(reasons.get(r, 0) for r in ("write_timeout", "header_timeout", "http2_resets", "http2_error")) == 1, reasons


def test_a_flood_of_resets(lean):
    """Two thousand runs begun and reset, over as many connections as it takes."""
    gw = lean(SANDBOX_MAX_CONCURRENT="4", **HTTP2)
    before, connections, sent = warm(gw), 0, 0
    runs = gw.metric("plimsoll_runs_total")
    began = time.monotonic()
    while sent < 2000:
        connections += 1
        with Raw(gw) as raw:
            for i in range(100):
                raw.send(raw.run(2 * i + 1, "standin: hold 20000"))
                if i % 3 == 0:
                    time.sleep(0.001)  # some of them do start
                raw.send(rst(2 * i + 1))
                sent += 1
            assert raw.wait_closed(5) == [ENHANCE_YOUR_CALM]
        assert gw.metric("plimsoll_inflight") <= 4
    gw.wait_inflight(0)
    assert connections == 20 and gw.metric(RESETS_CLOSED) == connections
    assert gw.metric("plimsoll_runs_total") - runs <= connections * RESETS_MAX
    assert gw.metric("plimsoll_buffered_bytes") == 0
    assert time.monotonic() - began < 60
    assert resident(gw) - before < SLACK
    gw.wait_metric("plimsoll_connections_open", 1)  # the one that reads the metrics
    wait_for(lambda: gw.run("standin: answer").status == 200, "the slots to be free")


@pytest.mark.parametrize("kind", ["priority", "empty_data", "window", "unknown", "continuation"])
def test_floods_of_frames_without_effect(lean, kind):
    gw = lean(**HTTP2)
    before = warm(gw)
    with Raw(gw) as raw:
        raw.send(raw.unfinished(1, 1))
        one = {"priority": lambda i: PriorityFrame(3 + 2 * i).serialize(), "empty_data": lambda i: data(1, b"", end=False),
               "window": lambda i: window_update(1, 1), "unknown": lambda i: b"\x00\x00\x08\xee\x00\x00\x00\x00\x0012345678",
               "continuation": lambda i: ContinuationFrame(3).serialize()}[kind]
        if kind == "continuation":
            raw.send(raw.headers(3, flags=()))
        raw.send(b"".join(one(i) for i in range(200000)))
        if kind == "continuation":
            raw.wait_closed()
        else:
            raw.ping()
            raw.send(data(1, b"{}"))
            assert raw.status(1) == "200"
    assert resident(gw) - before < SLACK + 8 * MIB


def test_heads_that_are_much_larger_than_they_look(lean):
    """One entry of 4 KB in the table, named ten thousand times in each head."""
    gw = lean(**HTTP2)
    before = warm(gw)
    peers = [Raw(gw) for _ in range(20)]
    for raw in peers:
        raw.send(raw.headers(1, block=raw.head() + raw.encoder.encode([("x-big", "v" * 3700)])))
        assert raw.status(1) == "200"
    for raw in peers:
        head, again = raw.head(), raw.encoder.encode([("x-big", "v" * 3700)])
        raw.send(b"".join(raw.headers(2 * i + 3, block=head + again * 10000) for i in range(STREAMS_MAX)))
    for raw in peers:
        assert [raw.status(2 * i + 3) for i in range(STREAMS_MAX)] == ["431"] * STREAMS_MAX
    assert resident(gw) - before < SLACK + 8 * MIB
    for raw in peers:
        raw.sock.close()


def test_what_a_quiet_connection_costs(lean):
    """nghttp2's session with its tables, the gate, libh2o's socket: below 40 KiB, of which most is nghttp2's."""
    gw = lean(**HTTP2)
    before, count = warm(gw), 400
    peers = [Peer(gw) for _ in range(count)]
    for p in peers:
        assert p.answer(p.get("/healthz")).status == 200
    each = (resident(gw) - before) / count
    for p in peers:
        p.sock.close()
    assert each < 40 * KIB, each


def test_bodies_stay_within_the_budget(lean):
    """Eight streams on each of eight connections, each with 8 MiB on its way: PLIMSOLL_BUFFER_MB decides what is held."""
    gw = lean(PLIMSOLL_BUFFER_MB="16", **HTTP2)
    before, largest = warm(gw), 0
    peers = [Peer(gw) for _ in range(8)]
    streams = [(p, p.open(DESCRIBE, gw.headers(), end=False)) for p in peers for _ in range(STREAMS_MAX)]
    chunk = b" " * (256 * KIB)
    for _ in range(BODY_MAX // len(chunk)):
        for p, s in streams:
            if not p.streams[s].is_over:
                p.send(s, chunk)
        largest = max(largest, resident(gw))
    statuses = [p.answer_or_reset(s) for p, s in streams if p.streams[s].is_over]
    assert statuses and set(statuses) == {429}
    # the budget, and as much again for buffers that grow by doubling; and what one tick reads of each connection
    assert largest - before < 2 * 16 * MIB + SLACK + 8 * MIB, (largest - before) // MIB
    for p in peers:
        p.sock.close()
    gw.wait_metric("plimsoll_buffered_bytes", 0)


def test_answers_nobody_reads(lean):
    """Are held until PLIMSOLL_WRITE_TIMEOUT, as those of as many HTTP/1.1 connections would be, and then given back."""
    gw = lean(PLIMSOLL_WRITE_TIMEOUT="2s", SANDBOX_MAX_CONCURRENT="16", **HTTP2)
    before, size = warm(gw), 4 * MIB
    peers = [Peer(gw, window=0) for _ in range(2)]
    streams = [(p, p.run(f"standin: bytes {size}")) for p in peers for _ in range(STREAMS_MAX)]
    for p, s in streams:
        p.wait(lambda p=p, s=s: p.streams[s].headers is not None or p.streams[s].is_over)
    # base64 makes 4/3 of them; each is decoded, encoded and held
    assert resident(gw) - before < len(streams) * 4 * size + SLACK
    for p, s in streams:
        p.wait(lambda p=p, s=s: p.streams[s].is_over)
        p.sock.setblocking(True)
    wait_for(lambda: resident(gw) - before < 4 * size + SLACK, "the memory to be given back")
    for p in peers:
        p.sock.close()
