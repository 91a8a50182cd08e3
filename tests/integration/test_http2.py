"""HTTP/2, opt-in: off by default, ALPN and prior knowledge, the protocol over streams, many at once, bodies, callers that reset or leave, the
drain. Floods and malformed frames are in test_http2_hostile.py."""
import gzip
import json
import socket
import ssl
import subprocess
import time

import pytest
from hyperframe.frame import SettingsFrame

import gateway as g
import http2
from gateway import BODY_MAX, DESCRIBE, MIB, RUN, new_id, wait_for
from http2 import CANCEL, NO_ERROR, PREFACE, STREAMS_MAX, Peer, Raw

STANDIN = {"SANDBOX_PROVIDER": "standin"}
HTTP2 = {"PLIMSOLL_HTTP2": "1"}


@pytest.fixture(scope="module")
def h2_gw():
    """Both walls, so that code can run and barriers can hold. Its tests leave nothing behind."""
    gw = g.Gateway({**HTTP2, "SANDBOX_PROVIDER": "wasm,standin", "SANDBOX_MAX_CONCURRENT": "32"}).start()
    try:
        yield gw
        gw.stop()
    finally:
        gw.kill_rest()
        gw.remove()


@pytest.fixture
def peer(h2_gw):
    with Peer(h2_gw) as p:
        yield p


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=gw", "-addext",
                    "subjectAltName=DNS:gw,IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    folder.chmod(0o755)
    return cert, key


def tls_context(cert, protocols):
    context = ssl.create_default_context(cafile=str(cert))
    if protocols:
        context.set_alpn_protocols(protocols)
    return context


def tls_gateway(gateway, certificate, **settings):
    cert, key = certificate
    return gateway(PLIMSOLL_TLS_CERT=str(cert), PLIMSOLL_TLS_KEY=str(key), PLIMSOLL_METRICS_ADDR="off", **settings)


def chosen_protocol(gw, cert, protocols):
    with http2.connect(gw, tls_context(cert, protocols)) as sock:
        return sock.selected_alpn_protocol()


def curl(*arguments):
    p = subprocess.run(["curl", "--silent", "--show-error", "--max-time", "60", "--write-out", "\n%{http_version} %{http_code}", *arguments], capture_output=True,
                       text=True)
    assert p.returncode == 0, p.stderr
    body, _, line = p.stdout.rpartition("\n")
    version, status = line.split()
    return version, int(status), body


def curl_headers(gw, request_id=None):
    return [a for n, v in gw.headers(request_id) for a in ("-H", f"{n}: {v}")]


# -- off, unless asked for --


def test_off_by_default(gw):
    with gw.connect() as c:
        g.refused_http(c.send(PREFACE + SettingsFrame().serialize()).read_answer(), 400, "invalid_argument")
        assert c.is_closed_within()
    for settings in ("AAMAAABkAAQAAP__", ""):
        answer = gw.get("/healthz", more=[("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", settings)])
        assert answer.status == 200 and answer.body == b"ok\n" and answer.line.startswith("HTTP/1.1")
    assert gw.metric("plimsoll_http2_connections_total") == 0


def test_alpn_does_not_offer_it_by_default(gateway, certificate):
    gw = tls_gateway(gateway, certificate, **STANDIN)
    assert chosen_protocol(gw, certificate[0], ["h2", "http/1.1"]) == "http/1.1"
    assert chosen_protocol(gw, certificate[0], ["h2"]) is None
    version, status, _ = curl("--http2", "--cacert", str(certificate[0]), f"https://127.0.0.1:{gw.port}/healthz")
    assert (version, status) == ("1.1", 200)


def test_there_is_no_upgrade_in_the_middle_of_http1(h2_gw):
    """Prior knowledge alone: a request that asks to be upgraded is answered as what it is."""
    before = h2_gw.metric("plimsoll_http2_connections_total")
    upgrade = [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAMAAABkAAQAAP__")]
    answer = h2_gw.get("/healthz", more=upgrade)
    assert answer.status == 200 and answer.line.startswith("HTTP/1.1")
    answer = h2_gw.post(RUN, g.javascript("1"), more=upgrade)
    assert answer.status == 200 and answer.line.startswith("HTTP/1.1")
    # nor does a preface behind a request switch
    with h2_gw.connect() as c:
        c.send(g.request("/healthz", method="GET"))
        assert c.read_answer().status == 200
        g.refused_http(c.send(PREFACE).read_answer(), 400, "invalid_argument")
        assert c.is_closed_within()
    assert h2_gw.metric("plimsoll_http2_connections_total") == before


# -- how a connection begins --


def test_over_tls_by_alpn(gateway, certificate):
    gw = tls_gateway(gateway, certificate, **HTTP2)
    cert = certificate[0]
    assert chosen_protocol(gw, cert, ["h2", "http/1.1"]) == "h2"
    assert chosen_protocol(gw, cert, ["http/1.1", "h2"]) == "h2"
    assert chosen_protocol(gw, cert, ["http/1.1"]) == "http/1.1"
    assert chosen_protocol(gw, cert, None) is None
    url = f"https://127.0.0.1:{gw.port}"
    assert curl("--http2", "--cacert", str(cert), url + "/healthz") == ("2", 200, "ok\n")
    assert curl("--http1.1", "--cacert", str(cert), url + "/healthz") == ("1.1", 200, "ok\n")
    version, status, body = curl("--http2", "--cacert", str(cert), *curl_headers(gw), "-d", json.dumps(g.javascript("console.log(40 + 2)")), url + RUN)
    assert (version, status) == ("2", 200)
    g.check_record(g.javascript("console.log(40 + 2)"), json.loads(body))
    with Peer(gw, tls_context(cert, ["h2"])) as peer:
        big = peer.post(RUN, g.javascript("1" + " " * 4 * MIB))
        assert peer.answer(big).status in (200, 400)
        assert peer.answer(peer.run("1")).status == 200
    # a preface without ALPN is no HTTP/2 (RFC 9113 section 3.2)
    with http2.connect(gw, tls_context(cert, None)) as sock:
        sock.sendall(PREFACE)
        assert sock.recv(65536).startswith(b"HTTP/1.1 400 ")


def test_every_end_of_a_connection_over_tls(gateway, certificate):
    """Where closing takes TLS a moment: an idle one, one that resets too much, peers that leave in the middle of runs and of answers."""
    cert, key = certificate
    gw = gateway(PLIMSOLL_TLS_CERT=str(cert), PLIMSOLL_TLS_KEY=str(key), PLIMSOLL_METRICS_ADDR="off", PLIMSOLL_IDLE_TIMEOUT="400ms", SANDBOX_MAX_CONCURRENT="16",
                 **HTTP2, **STANDIN)
    context = tls_context(cert, ["h2"])
    with Peer(gw, context) as peer:
        assert peer.answer(peer.run("standin: answer")).status == 200
        assert peer.wait_closed(5) == [(NO_ERROR, 1)]
    with Raw(gw, tls=context) as raw:
        raw.send(b"".join(raw.headers(2 * i + 1) + http2.rst(2 * i + 1) for i in range(1000)))
        assert raw.wait_closed(5) == [http2.ENHANCE_YOUR_CALM]
    for leave in ("close", "abort", "unread"):
        with Peer(gw, context) as peer:
            code = "standin: bytes 3000000" if leave == "unread" else "standin: hold 20000"
            streams = [peer.run(code) for _ in range(STREAMS_MAX)]
            if leave == "unread":
                peer.wait(lambda: peer.streams[streams[0]].body)
            else:
                wait_for(lambda: len(gw.log_lines("code run")) >= 1, "a run before")
                time.sleep(0.2)
            if leave == "close":
                peer.sock.settimeout(2)
                try:
                    peer.sock.unwrap()
                except (OSError, ValueError):
                    pass
            else:
                peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, g.struct.pack("ii", 1, 0))
            peer.sock.close()
        # all places are free again: sixteen runs fit
        with Peer(gw, context) as one, Peer(gw, context) as two:
            def fits():
                streams = [(p, p.run("standin: hold 30")) for p in (one, two) for _ in range(STREAMS_MAX)]
                return {p.answer(s).status for p, s in streams} == {200}
            wait_for(fits, "the slots of those that left", 5)


def test_curl_by_prior_knowledge(h2_gw):
    url = f"http://127.0.0.1:{h2_gw.port}"
    assert curl("--http2-prior-knowledge", url + "/healthz") == ("2", 200, "ok\n")
    # without it, curl asks to upgrade, is not, and is served all the same
    assert curl("--http2", url + "/healthz") == ("1.1", 200, "ok\n")
    version, status, body = curl("--http2-prior-knowledge", *curl_headers(h2_gw), "-d", json.dumps(g.javascript("console.log('hi')")), url + RUN)
    assert (version, status) == ("2", 200)
    g.check_record(g.javascript("console.log('hi')"), json.loads(body))


def test_curl_gets_the_answer_to_a_body_that_is_too_large(h2_gw, tmp_path):
    """It uploads on while the answer comes: a reset right behind the answer would have cost it the answer."""
    big = tmp_path / "big"
    big.write_bytes(b" " * (9 * MIB))
    version, status, body = curl("--http2-prior-knowledge", *curl_headers(h2_gw), "--data-binary", f"@{big}", f"http://127.0.0.1:{h2_gw.port}{RUN}")
    assert (version, status, json.loads(body)["code"]) == ("2", 429, "resource_exhausted")


@pytest.mark.parametrize("pause", [0, 0.002])
def test_first_bytes_one_by_one(h2_gw, pause):
    with Raw(h2_gw, preface=b"") as raw:
        for byte in PREFACE + SettingsFrame().serialize() + raw.headers(1):
            raw.send(bytes([byte]))
            time.sleep(pause)
        raw.read(lambda: any(f.stream_id == 1 and "END_STREAM" in f.flags for f in raw.frames))
    with h2_gw.connect() as c:
        for byte in g.request("/healthz", method="GET"):
            c.send(bytes([byte]))
            time.sleep(pause)
        assert c.read_answer().status == 200


@pytest.mark.parametrize("first", [b"P", b"PR", b"PRI", PREFACE[:18], PREFACE[:23]])
def test_what_only_begins_like_a_preface(h2_gw, first):
    """Goes to the HTTP/1.1 reader with all that came."""
    with h2_gw.connect() as c:
        c.send(first)
        time.sleep(0.05)
        c.send(b"OST /healthz HTTP/1.1\r\nHost: gw\r\n\r\n")
        answer = c.read_answer()
        # a method of that name on a path that is only read, or a version nobody has
        assert answer.status == (405 if len(first) <= 3 else 400), answer
    with h2_gw.connect() as c:
        c.send(first)
        c.half_close()
        assert c.is_closed_within()


def test_a_connection_that_says_nothing_or_half_a_preface_is_closed(gateway):
    gw = gateway(PLIMSOLL_HEADER_TIMEOUT="300ms", **HTTP2, **STANDIN)
    for first in (b"", b"P", PREFACE[:23]):
        with gw.connect() as c:
            assert c.send(first).is_closed_within(5), first
    assert gw.metric('plimsoll_connections_closed_total{reason="header_timeout"}') == 3
    with Raw(gw, preface=PREFACE) as raw:  # a whole one, and no request
        assert raw.wait_closed(5) == [NO_ERROR]
    assert gw.metric('plimsoll_connections_closed_total{reason="header_timeout"}') == 4


def test_settings(peer):
    code = http2.h2.settings.SettingCodes
    assert peer.settings[code.MAX_CONCURRENT_STREAMS] == STREAMS_MAX
    assert peer.settings[code.INITIAL_WINDOW_SIZE] == http2.STREAM_WINDOW
    assert peer.settings[code.MAX_HEADER_LIST_SIZE] == 32 * 1024


# -- the protocol --


def test_describe_and_run(h2_gw, peer):
    request_id = new_id()
    describe = peer.answer(peer.post(DESCRIBE, {}, request_id))
    assert describe.status == 200 and describe.json()["sandbox"] == "wasm" and describe.header("plimsoll-request-id") == request_id
    assert describe.json() == h2_gw.describe().json()
    answer = peer.answer(peer.run("console.log(6 * 7)", request_id))
    assert answer.status == 200 and g.stdout(answer) == b"42\n"
    record = g.check_record(g.javascript("console.log(6 * 7)"), answer)
    for name in ("plimsoll-run-id", "plimsoll-backend", "server-timing", "x-request-id"):
        assert answer.header(name), name
    # the same ID over HTTP/1.1: the same run
    again = h2_gw.run("console.log(6 * 7)", request_id)
    assert again.header("Plimsoll-Replayed") == "1" and g.check_record(g.javascript("console.log(6 * 7)"), again).sha256 == record.sha256
    runs = peer.answer(peer.get("/v1/runs?limit=5"))
    assert request_id in [r["request_id"] for r in runs.json()["runs"]]
    assert peer.answer(peer.get("/v1/runs/" + answer.header("plimsoll-run-id"))).json()["request_id"] == request_id
    assert peer.answer(peer.get("/v1/backends")).status == 200


def test_the_binary_form(peer):
    body = g.field(1, 4) + g.field(10, g.field(1, "console.log('bin')"))
    stream = peer.post(RUN, body, content_type="application/proto")
    answer = peer.answer(stream)
    assert answer.status == 200 and answer.header("content-type") == "application/proto" and b"bin\n" in answer.body


@pytest.mark.parametrize("case", ["token", "floor", "path", "method", "media", "json", "procedure", "backend", "timeout"])
def test_refusals_are_those_of_http1(h2_gw, peer, case):
    request_id = new_id()
    path, body, options, method = RUN, g.javascript("1"), {}, "POST"
    if case == "token":
        options["token"] = "x" * 40
    elif case == "floor":
        body = g.javascript("1", minimumIsolation="vm")
    elif case == "path":
        path = "/nothing"
    elif case == "method":
        method = "PUT"
    elif case == "media":
        options["content_type"] = "text/plain"
    elif case == "json":
        body = b"{"
    elif case == "procedure":
        path = g.SERVICE + "Nothing"
    elif case == "backend":
        path = "/backends/nothing" + RUN
    else:
        options["more"] = [("Connect-Timeout-Ms", "x")]
    raw = json.dumps(body).encode() if isinstance(body, dict) else body
    headers = h2_gw.headers(request_id, options.get("token"), options.get("content_type", "application/json"), options.get("more", ()))
    with h2_gw.connect() as c:
        c.send(g.request(path, raw, headers, method))
        first = c.read_answer()
    second = peer.answer(peer.open(path, headers, raw, method))
    assert second.status == first.status >= 400, second
    assert second.body == first.body, second
    assert second.header("plimsoll-request-id") == request_id

    def told(answer):
        hidden = {"x-request-id", "date", "connection", "content-length", "server-timing"}
        return sorted((n.lower(), v) for n, v in answer.headers if n.lower() not in hidden)
    assert told(second) == told(first)


def test_traces_are_echoed_and_continued(peer):
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    answer = peer.answer(peer.get("/healthz", more=[("X-Request-ID", "abc/1"), ("traceparent", trace)]))
    assert answer.header("x-request-id") == "abc/1"
    assert answer.header("traceparent")[:36] == trace[:36] and answer.header("traceparent") != trace


def test_head_has_no_body(peer):
    answer = peer.answer(peer.get("/healthz", method="HEAD"), head_only=True)
    assert answer.status == 200 and answer.header("content-length") == "3"
    # a refused one too, even one that is malformed
    answer = peer.answer(peer.get("/nothing", method="HEAD"), head_only=True)
    assert answer.status == 404
    answer = peer.answer(peer.get('/a"b', method="HEAD"), head_only=True)
    assert answer.status == 400
    assert peer.answer(peer.get("/healthz")).body == b"ok\n"


def test_a_body_is_asked_for(peer):
    stream = peer.open(DESCRIBE, [*peer.gw.headers(), ("expect", "100-continue"), ("content-length", "2")], end=False)
    peer.wait(lambda: peer.streams[stream].informational == ["100"])
    peer.send(stream, b"{}", True)
    assert peer.answer(stream).status == 200
    # not of one that is refused on its head
    stream = peer.open(DESCRIBE, [*peer.gw.headers(token="x" * 40), ("expect", "100-continue"), ("content-length", "2")], end=False)
    answer = peer.answer(stream)
    assert answer.status == 401 and answer.informational == []


def test_the_metrics_listener_speaks_it_too(h2_gw):
    version, status, body = curl("--http2-prior-knowledge", f"http://127.0.0.1:{h2_gw.metrics_port}/metrics")
    assert (version, status) == ("2", 200) and "plimsoll_http2_connections_total" in body
    version, status, _ = curl("--http2-prior-knowledge", f"http://127.0.0.1:{h2_gw.metrics_port}/healthz")
    assert status == 404
    version, status, _ = curl("--http2-prior-knowledge", f"http://127.0.0.1:{h2_gw.port}/metrics")
    assert status == 404


# -- many at once --


def standin(code):
    return {"code": code, "path": "/backends/standin" + RUN}


def test_as_many_streams_as_there_may_be(h2_gw, peer):
    hold, path = h2_gw.barrier("h2-many")
    streams = [peer.run(**standin(hold)) for _ in range(STREAMS_MAX - 1)]
    h2_gw.wait_inflight(STREAMS_MAX - 1)
    # room for one more, that is answered while the others run
    assert peer.answer(peer.get("/healthz")).status == 200
    streams.append(peer.run(**standin(hold)))
    h2_gw.wait_inflight(STREAMS_MAX)
    with pytest.raises(http2.h2.exceptions.TooManyStreamsError):
        peer.get("/healthz")
    path.unlink()
    answers = [peer.answer(s) for s in streams]
    assert [a.status for a in answers] == [200] * STREAMS_MAX
    assert len({a.header("plimsoll-run-id") for a in answers}) == STREAMS_MAX
    # and again, on the same connection
    assert [peer.answer(s).status for s in [peer.run(**standin("standin: answer")) for _ in range(STREAMS_MAX)]] == [200] * STREAMS_MAX


def test_thousands_of_requests_on_one_connection(peer):
    for _ in range(250):
        streams = [peer.get("/healthz") for _ in range(STREAMS_MAX)]
        assert [peer.answer(s).status for s in streams] == [200] * STREAMS_MAX


def test_the_same_request_at_once_runs_once(h2_gw):
    peers = [Peer(h2_gw) for _ in range(4)]
    request_id = new_id()
    before = h2_gw.metric("plimsoll_runs_total")
    streams = [(p, p.run("Date.now()", request_id)) for p in peers for _ in range(STREAMS_MAX)]
    answers = [p.answer(s) for p, s in streams]
    assert {a.status for a in answers} == {200} and len({a.body for a in answers}) == 1
    assert h2_gw.metric("plimsoll_runs_total") == before + 1
    for p in peers:
        p.sock.close()


# -- bodies --


@pytest.mark.parametrize("with_length", [True, False])
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_bodies_at_the_limit(h2_gw, peer, more, with_length):
    body = b"{}" + b" " * (BODY_MAX + more - 2)
    answer = peer.answer(peer.post(DESCRIBE, body, with_length=with_length))
    if more <= 0:
        assert answer.status == 200, answer
    elif with_length:
        g.refused_early(answer, "resource_exhausted", "request")
    else:
        assert answer.status == 429 and answer.code == "resource_exhausted", answer
    # the connection goes on
    assert peer.answer(peer.post(DESCRIBE, {})).status == 200
    h2_gw.wait_metric("plimsoll_buffered_bytes", 0)


def test_gzip(peer):
    body = gzip.compress(b"{}" + b" " * 1000000)
    assert peer.answer(peer.post(DESCRIBE, body, more=[("content-encoding", "gzip")])).status == 200
    bomb = gzip.compress(b" " * (BODY_MAX + 1))
    assert peer.answer(peer.post(DESCRIBE, bomb, more=[("content-encoding", "gzip")])).code == "resource_exhausted"


def test_a_large_answer(peer):
    n = 3 * MIB
    answer = peer.answer(peer.run(**standin(f"standin: bytes {n}")))
    assert answer.status == 200 and len(answer.body) > 1000


def test_the_budget_is_decided_on_the_head(gateway):
    """PLIMSOLL_BUFFER_MB holds for streams as for connections, before a byte of the body came."""
    gw = gateway(PLIMSOLL_BUFFER_MB="8", **HTTP2, **STANDIN)
    with Peer(gw) as peer:
        held = peer.open(DESCRIBE, [*gw.headers(), ("content-length", str(BODY_MAX))], end=False)
        gw.wait_metric("plimsoll_buffered_bytes", BODY_MAX)
        g.refused_early(peer.answer(peer.open(DESCRIBE, [*gw.headers(), ("content-length", "1")], end=False)), "resource_exhausted", "capacity")
        g.refused_early(peer.answer(peer.open(DESCRIBE, gw.headers(), end=False)), "resource_exhausted", "capacity")
        peer.reset(held)
        gw.wait_metric("plimsoll_buffered_bytes", 0)
        # one of undeclared length takes it bit by bit
        grows = peer.open(DESCRIBE, gw.headers(), end=False)
        peer.send(grows, b"{}" + b" " * (2 * MIB - 2))
        gw.wait_metric("plimsoll_buffered_bytes", 2 * MIB)
        peer.send(grows, b"", True)
        assert peer.answer(grows).status == 200
        gw.wait_metric("plimsoll_buffered_bytes", 0)
    assert gw.metric('plimsoll_gateway_shed_total{reason="buffer_budget"}') == 2


def test_a_body_that_does_not_come(gateway):
    gw = gateway(PLIMSOLL_READ_TIMEOUT="500ms", PLIMSOLL_HEADER_TIMEOUT="400ms", **HTTP2, **STANDIN)
    with Peer(gw) as peer:
        slow = peer.open(DESCRIBE, [*gw.headers(), ("content-length", "100")], end=False)
        peer.send(slow, b"{")
        hold, path = gw.barrier()
        other = peer.run(hold)
        began = time.monotonic()
        peer.wait(lambda: peer.streams[slow].is_over, 5)
        assert peer.streams[slow].reset == CANCEL and 0.3 < time.monotonic() - began < 3
        gw.wait_metric("plimsoll_buffered_bytes", 0)
        path.unlink()
        assert peer.answer(other).status == 200  # the others never noticed
    assert gw.metric('plimsoll_http2_resets_total{by="gateway"}') == 1


@pytest.mark.parametrize("path", ["/healthz", "/v1/backends", "/nothing"])
def test_a_body_nobody_asked_for(h2_gw, peer, path):
    """Is discarded for a while; then the stream is reset without an error. The connection goes on."""
    stream = peer.open(path, h2_gw.headers(content_type=None), end=False, method="GET")
    answer = peer.answer(stream)
    assert answer.status == (404 if path == "/nothing" else 200)
    other = peer.open("/healthz", end=False, method="GET")
    peer.send(other, b"x" * (4 * MIB))
    assert peer.answer(other).status == 200
    peer.wait(lambda: peer.streams[other].reset is not None, 10)
    assert peer.streams[other].reset == NO_ERROR
    peer.wait(lambda: peer.streams[stream].reset is not None, 10)
    assert peer.streams[stream].reset == NO_ERROR
    assert peer.answer(peer.get("/healthz")).status == 200


# -- callers that leave (U24) --


def runs_with(gw, request_id):
    return [r for r in gw.get("/v1/runs").json()["runs"] if r["request_id"] == request_id]


def test_a_reset_stops_its_run(gateway):
    gw = gateway(SANDBOX_MAX_CONCURRENT="1", SANDBOX_PER_KEY_CONCURRENT="1", **HTTP2)
    request_id = new_id()
    with Peer(gw) as peer:
        stream = peer.run("for(;;);", request_id, timeoutMs=25000)
        gw.wait_inflight(1)
        began = time.monotonic()
        peer.reset(stream)
        gw.wait_inflight(0, 5)
        assert time.monotonic() - began < 1.0, "the run was not stopped within 1 s"
        assert gw.metric('plimsoll_canceled_total{cause="hang_up"}') == 1
        assert gw.metric('plimsoll_http2_resets_total{by="peer"}') == 1
        assert gw.metric("plimsoll_runs_failed_total") == 0
        # the slot is free, the connection goes on, the record says what happened
        wait_for(lambda: peer.answer(peer.run("1")).status == 200, "the slot to be free", 2)
        stored = runs_with(gw, request_id)
        assert len(stored) == 1 and stored[0]["canceled"] is True and stored[0]["verdict"] == "unknown" and stored[0]["unanswered"] == "canceled"
        g.failed(peer.answer(peer.run("for(;;);", request_id, timeoutMs=25000)), "canceled", request_id)
        assert gw.metric("plimsoll_runs_total") == 2


@pytest.mark.parametrize("leave", ["close", "half_close", "reset"])
def test_a_connection_that_ends_stops_its_runs(gateway, leave):
    gw = gateway(SANDBOX_MAX_CONCURRENT="16", **HTTP2)
    with Peer(gw) as peer:
        for _ in range(STREAMS_MAX):
            peer.run("for(;;);", timeoutMs=25000)
        gw.wait_inflight(STREAMS_MAX)
        began = time.monotonic()
        if leave == "half_close":
            peer.sock.shutdown(socket.SHUT_WR)
        else:
            if leave == "reset":
                peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, g.struct.pack("ii", 1, 0))
            peer.sock.close()
        gw.wait_inflight(0, 5)
        assert time.monotonic() - began < 1.0, "the runs were not stopped within 1 s"
    assert gw.metric('plimsoll_canceled_total{cause="hang_up"}') == STREAMS_MAX
    gw.ok("1")


@pytest.mark.faults
def test_a_reset_while_its_run_is_claimed(gateway):
    gw = gateway(PLIMSOLL_THREADS="1", **HTTP2, **STANDIN)
    request_id = new_id()
    with Peer(gw) as peer:
        with gw.faults.armed("run.claim", "once delay 300"):
            stream = peer.run("standin: answer", request_id)
            gw.faults.wait("run.claim")
            peer.reset(stream)
        wait_for(lambda: gw.metric('plimsoll_canceled_total{cause="hang_up"}') == 1 or
                 gw.metric('plimsoll_verdicts_total{verdict="answered"}') == 1, "the run to be over")
        gw.wait_inflight(0)
        answer = peer.answer(peer.run("standin: answer", request_id))
        assert answer.status == 200 or answer.code == "canceled", answer


@pytest.mark.faults
@pytest.mark.parametrize("leave", ["reset", "close"])
@pytest.mark.parametrize("point", ["run.admitted", "run.result", "run.settle", "run.answer"])
def test_leaving_at_every_step_of_a_run(gateway, point, leave):
    """The request is gone for libh2o while the run goes on: it is never touched again."""
    gw = gateway(PLIMSOLL_THREADS="1", SANDBOX_MAX_CONCURRENT="16", **HTTP2, **STANDIN)
    for _ in range(3):
        with Peer(gw) as peer:
            with gw.faults.armed(point, "delay 60"):
                streams = [peer.run("standin: answer", new_id()) for _ in range(4)]
                gw.faults.wait(point)
                if leave == "reset":
                    for s in streams:
                        peer.reset(s)
                else:
                    peer.sock.close()
            gw.wait_inflight(0)
    assert gw.run("standin: answer").status == 200


def test_a_leader_that_leaves_does_not_end_the_run_of_its_followers(gateway):
    gw = gateway(**HTTP2, **STANDIN)
    hold, path = gw.barrier()
    request_id = new_id()
    with Peer(gw) as leader, Peer(gw) as follower:
        first = leader.run(hold, request_id)
        gw.wait_inflight(1)
        second, third = follower.run(hold, request_id), follower.run(hold, request_id)
        wait_for(lambda: gw.metric('plimsoll_claims_total{outcome="joined"}') == 2, "the followers")
        leader.reset(first)
        follower.reset(third)
        time.sleep(0.2)
        assert gw.metric("plimsoll_inflight") == 1
        leader.sock.close()  # the run now outlives the connection of its request
        time.sleep(0.1)
        path.unlink()
        answer = follower.answer(second)
        assert answer.status == 200, answer
    assert gw.metric("plimsoll_runs_total") == 1


def test_followers_that_leave(gateway):
    gw = gateway(**HTTP2, **STANDIN)
    hold, path = gw.barrier()
    request_id = new_id()
    with Peer(gw) as leader:
        first = leader.run(hold, request_id)
        gw.wait_inflight(1)
        for leave in ("reset", "close"):
            with Peer(gw) as follower:
                streams = [follower.run(hold, request_id) for _ in range(4)]
                joined = 4 if leave == "reset" else 8
                wait_for(lambda: gw.metric('plimsoll_claims_total{outcome="joined"}') == joined, "the followers")
                if leave == "reset":
                    for s in streams:
                        follower.reset(s)
                    assert follower.answer(follower.get("/healthz")).status == 200
        path.unlink()
        assert leader.answer(first).status == 200
    gw.wait_inflight(0)


def test_a_lookup_that_nobody_waits_for(gateway, redis):
    """Redis answers after the stream, or the whole connection, is gone."""
    gw = gateway(PLIMSOLL_REDIS_URL=redis.url, **HTTP2, **STANDIN)
    assert gw.run("standin: answer").status == 200
    for leave in ("reset", "close"):
        with Peer(gw) as peer:
            redis.process.send_signal(g.signal.SIGSTOP)
            try:
                streams = [peer.get("/v1/runs") for _ in range(STREAMS_MAX)]
                time.sleep(0.2)
                if leave == "reset":
                    for s in streams:
                        peer.reset(s)
                else:
                    peer.sock.close()
                time.sleep(0.1)
            finally:
                redis.process.send_signal(g.signal.SIGCONT)
            time.sleep(0.3)
    assert gw.get("/v1/runs").status == 200


def test_a_reset_after_the_answer_changes_nothing(h2_gw, peer):
    before = h2_gw.metric('plimsoll_canceled_total{cause="hang_up"}')
    for _ in range(3 * http2.RESETS_MAX):
        stream = peer.get("/healthz")
        peer.answer(stream)
    assert h2_gw.metric('plimsoll_canceled_total{cause="hang_up"}') == before


def test_the_callers_deadline(gateway):
    gw = gateway(**HTTP2)
    with Peer(gw) as peer:
        stream = peer.run("for(;;);", timeoutMs=25000, more=[("Connect-Timeout-Ms", "300")])
        g.failed(peer.answer(stream), "deadline_exceeded")


# -- time and room --


def test_idle_connections_are_closed(gateway):
    gw = gateway(PLIMSOLL_IDLE_TIMEOUT="400ms", **HTTP2, **STANDIN)
    with Peer(gw) as peer:
        hold, path = gw.barrier()
        stream = peer.run(hold)
        time.sleep(0.8)  # a run is not idleness
        path.unlink()
        assert peer.answer(stream).status == 200
        began = time.monotonic()
        assert peer.wait_closed(5) == [(NO_ERROR, stream)]
        assert 0.3 < time.monotonic() - began < 3
    assert gw.metric('plimsoll_connections_closed_total{reason="idle_timeout"}') == 1


def test_pings_do_not_keep_a_connection(gateway):
    gw = gateway(PLIMSOLL_IDLE_TIMEOUT="400ms", **HTTP2, **STANDIN)
    with Raw(gw) as raw:
        raw.send(raw.headers(1))
        began = time.monotonic()
        with pytest.raises(AssertionError, match="closed: True"):
            while time.monotonic() - began < 5:
                raw.ping()
                time.sleep(0.02)
        assert time.monotonic() - began < 3
        assert [f.error_code for f in raw.of(http2.GoAwayFrame)] == [NO_ERROR]


def test_a_window_that_never_opens(gateway):
    """The answer is given up after PLIMSOLL_WRITE_TIMEOUT; the connection and its other requests are not."""
    gw = gateway(PLIMSOLL_WRITE_TIMEOUT="1s", **HTTP2, **STANDIN)
    with Peer(gw, window=0) as peer:
        streams = [peer.run("standin: bytes 1000000") for _ in range(4)]
        peer.wait(lambda: all(peer.streams[s].headers for s in streams))
        peer.wait(lambda: all(peer.streams[s].is_over for s in streams), 10)
        assert [peer.streams[s].reset for s in streams] == [CANCEL] * 4
        assert not any(peer.streams[s].body for s in streams)
        head = peer.get("/healthz", method="HEAD")
        assert peer.answer(head, head_only=True).status == 200
    assert gw.metric('plimsoll_http2_resets_total{by="gateway"}') == 4


def test_a_window_that_opens_late(h2_gw):
    with Peer(h2_gw, window=0) as peer:
        stream = peer.run(**standin("standin: bytes 300"))
        peer.wait(lambda: peer.streams[stream].headers)
        for _ in range(5):
            peer.h2.increment_flow_control_window(1, stream)
            peer.flush()
        peer.wait(lambda: len(peer.streams[stream].body) == 5)
        peer.h2.increment_flow_control_window(1000000, stream)
        peer.flush()
        assert peer.answer(stream).status == 200


def test_a_peer_that_reads_nothing(gateway):
    """Its socket is full: the connection ends after PLIMSOLL_WRITE_TIMEOUT."""
    gw = gateway(PLIMSOLL_WRITE_TIMEOUT="1s", SANDBOX_MAX_CONCURRENT="16", **HTTP2, **STANDIN)
    settings = SettingsFrame()
    settings.settings = {SettingsFrame.INITIAL_WINDOW_SIZE: 2**31 - 1}
    with Raw(gw, PREFACE + settings.serialize() + http2.window_update(0, 2**30), receive_buffer=4096) as raw:
        body = json.dumps(g.javascript("standin: bytes 4000000")).encode()
        for i in range(STREAMS_MAX):
            raw.send(raw.headers(2 * i + 1, flags=("END_HEADERS",), path=RUN, method="POST") + http2.data(2 * i + 1, body))
        wait_for(lambda: gw.metric("plimsoll_connections_open") <= 1, "the connection to be closed", 20)
    assert gw.metric('plimsoll_connections_closed_total{reason="write_timeout"}') == 1


def test_connections_are_capped_as_any(gateway):
    gw = gateway(PLIMSOLL_MAX_CONNECTIONS_PER_ADDRESS="2", **HTTP2, **STANDIN)
    with Peer(gw) as one, Peer(gw) as two:
        assert one.answer(one.get("/healthz")).status == two.answer(two.get("/healthz")).status == 200
        with Raw(gw) as third:
            assert third.wait_closed() == []
    gw.wait_metric('plimsoll_connections_closed_total{reason="address_cap"}', 1)


# -- the drain --


def test_a_drain_says_goaway_and_waits_for_what_runs(gateway):
    gw = gateway(**HTTP2, **STANDIN)
    hold, path = gw.barrier()
    body = json.dumps(g.javascript(hold)).encode()

    def goaways(raw):
        return [(f.error_code, f.last_stream_id) for f in raw.of(http2.GoAwayFrame)]

    def run(raw, stream):
        raw.send(raw.headers(stream, flags=("END_HEADERS",), path=RUN, method="POST") + http2.data(stream, body))

    def status(raw, stream):
        raw.read(lambda: any("END_STREAM" in f.flags for f in raw.of(http2.DataFrame, stream)))
        blocks = [f.data for f in raw.of(http2.HeadersFrame, stream)]
        return dict(raw.decoder.decode(b"".join(blocks)))[":status"]
    with Raw(gw) as idle, Raw(gw) as busy:
        idle.send(idle.headers(1)).ping()
        run(busy, 1)
        gw.wait_inflight(1)
        gw.signal(g.signal.SIGTERM)
        busy.read(lambda: goaways(busy))
        # what is asked between the two GOAWAYs is answered: refused, as HTTP/1.1 does
        run(busy, 3)
        assert status(busy, 3) == "503"
        busy.read(lambda: len(goaways(busy)) == 2)
        assert goaways(busy) == [(NO_ERROR, 2**31 - 1), (NO_ERROR, 3)]
        # what is asked after it is not looked at: the last GOAWAY said so
        run(busy, 5)
        assert idle.wait_closed(5) == [NO_ERROR, NO_ERROR]
        assert goaways(idle) == [(NO_ERROR, 2**31 - 1), (NO_ERROR, 1)]
        assert not busy.closed
        path.unlink()
        assert status(busy, 1) == "200"
        busy.wait_closed(5)
        assert not [f for f in busy.frames if f.stream_id == 5]
        assert gw.wait_exit(10) == 0


def test_a_drain_with_nothing_but_an_unfinished_preface(gateway):
    gw = gateway(**HTTP2, **STANDIN)
    with gw.connect() as c:
        c.send(PREFACE[:10])
        time.sleep(0.1)
        gw.signal(g.signal.SIGTERM)
        assert gw.wait_exit(10) == 0
