"""The gateway at home behind somebody else's: a real nginx and a real HAProxy in front, connections shared by many callers, retries switched
on, large bodies, addresses and traces passed on, TLS between the two, idle timeouts against each other, health checks."""
import base64
import contextlib
import gzip
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess

import pytest

import gateway as g
import proxies
from gateway import DESCRIBE, MIB, RUN, javascript, new_id, refused_early, refused_http, wait_for
from proxies import Chain, HAProxy, Nginx

pytestmark = [pytest.mark.skipif(proxies.missing(p) is not None, reason=f"{p} is not installed") for p in ("nginx", "haproxy")]

KINDS = ["nginx", "haproxy"]
STANDIN = {"SANDBOX_PROVIDER": "standin", "SANDBOX_MAX_CONCURRENT": "64"}


@pytest.fixture
def front():
    """Starts proxies of this test's own: front(Nginx, gateway, ...) gives the chain of the two."""
    with contextlib.ExitStack() as stack:
        def make(proxy, *gateways, **more):
            if isinstance(proxy, str):
                proxy = {"nginx": Nginx, "haproxy": HAProxy}[proxy]
            it = proxy([gw.port for gw in gateways], **more)
            stack.callback(it.stop)
            return Chain(gateways[0], it.start())
        yield make


@pytest.fixture
def pair(gateway, redis):
    """Two copies over one Redis, with stand-in walls that leave a line for each run they were given."""
    def make(**settings):
        token, copies = secrets.token_hex(24), []
        for _ in range(2):
            gw = gateway(start=False, PLIMSOLL_REDIS_URL=redis.url, PLIMSOLL_TOKEN=token, **STANDIN, **settings)
            gw.token = token
            gw.secrets.append(token)
            gw.runs = gw.home / "runs"
            gw.settings["PLIMSOLL_STANDIN_LOG"] = str(gw.runs)
            copies.append(gw.start())
        return copies
    return make


def notes(*copies):
    """How often each word was noted, by all copies."""
    counts = {}
    for gw in copies:
        for line in gw.runs.read_text().splitlines() if gw.runs.exists() else []:
            if line.startswith("note "):
                counts[line[5:]] = counts.get(line[5:], 0) + 1
    return counts


def connections(gw):
    return gw.metric("plimsoll_connections_total")


# -- many callers over few connections --


@pytest.mark.parametrize("kind", KINDS)
def test_many_callers_over_few_connections(kind, gateway, front):
    callers = {f"caller{i}": secrets.token_hex(24) for i in range(8)}
    gw = gateway(start=False, SANDBOX_MAX_CONCURRENT="16")
    gw.write_callers(callers)
    gw.start()
    chain = front(kind, gw)
    before = connections(gw)

    def calls(caller, token):
        mine, sent = Chain(gw, chain.proxy, token), {}
        with mine.connect() as c:
            for n in range(30):
                request_id = new_id()
                answer = mine.ok(f'console.log("{caller} {n}")', request_id, on=c)
                assert g.stdout(answer) == f"{caller} {n}\n".encode()
                sent[request_id] = caller
        page = Chain(gw, chain.proxy, token).get("/v1/runs")
        assert page.status == 200 and not set(re.findall(r'"requestId":"([0-9a-f]{32})"', page.body.decode())) - set(sent)
        return sent
    threads = [g.Background(lambda a=a: calls(*a)) for a in callers.items()]
    sent = {}
    for t in threads:
        sent.update(t.join())
    assert len(sent) == 8 * 30
    # as many as callers are at work at once, and not one for each of the 248 requests
    assert connections(gw) - before <= 24
    audited = {line["request_id"]: line["caller"] for line in gw.log_lines("code run")}
    assert audited == sent


@pytest.mark.parametrize("kind", KINDS)
def test_refusals_do_not_cost_the_connection_or_mix_up_answers(kind, gw, front):
    """Good and bad requests in turn, all callers at once: each gets the answer to its own."""
    chain = front(kind, gw)
    before = connections(gw)

    def calls(number):
        with chain.connect() as c:
            for n in range(30):
                request_id = new_id()
                if n % 3 == 0:
                    answer = chain.post(RUN, b"{", request_id, on=c)
                    refused_http(answer, 400, "invalid_argument", request_id)
                elif n % 3 == 1:
                    answer = chain.run("1", request_id, on=c, minimumIsolation="vm")
                    g.refused(answer, "failed_precondition", "isolation", request_id)
                else:
                    answer = chain.ok(f'console.log("{number} {n}")', request_id, on=c)
                    assert g.stdout(answer) == f"{number} {n}\n".encode()
    for t in [g.Background(lambda i=i: calls(i)) for i in range(6)]:
        t.join()
    assert connections(gw) - before <= 18


def test_http_2_at_the_proxy(gw, front):
    if not shutil.which("curl"):
        pytest.skip("curl is not installed")
    chain = front(HAProxy, gw)
    text = (chain.proxy.home / "haproxy.cfg").read_text()
    other = g.free_port()
    chain.proxy.stop()
    h2 = HAProxy([gw.port], frontend=f"bind 127.0.0.1:{other} proto h2")
    assert "proto h2" not in text
    try:
        h2.start()
        request_id = new_id()
        out = subprocess.run(
            ["curl", "-sS", "--http2-prior-knowledge", "-D", "-", f"http://127.0.0.1:{other}{RUN}", "-H", f"Authorization: Bearer {gw.token}",
             "-H", "Content-Type: application/json", "-H", f"Plimsoll-Request-Id: {request_id}", "--data-binary", json.dumps(javascript("console.log(6*7)"))],
            capture_output=True, timeout=g.ANSWER_S, check=True).stdout.decode()
        assert out.startswith("HTTP/2 200") and f"plimsoll-request-id: {request_id}" in out.lower()
        assert base64.b64decode(json.loads(out.split("\r\n\r\n", 1)[1])["javascript"]["stdout"]) == b"42\n"
    finally:
        h2.stop()


# -- retries in the proxy --

# Everything a careful operator would not do: all methods are sent again after any failure.
RETRIES = {
    "nginx": {"location": "proxy_next_upstream error timeout http_502 http_503 http_504 non_idempotent;\nproxy_connect_timeout 2s;"},
    "haproxy": {"backend": "retries 3\noption redispatch 1\nretry-on all-retryable-errors\noption http-buffer-request"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_copy_and_retries_run_nothing_twice(kind, pair, front):
    copies = pair()
    chain = front(kind, *copies, **RETRIES[kind])
    requests = {new_id(): f"w{i}" for i in range(24)}

    def body(word, ms):
        return json.dumps(javascript(f"standin: note {word}\nstandin: hold {ms}", timeoutMs=1000)).encode()
    bodies = {i: body(w, 300 + 20 * n) for n, (i, w) in enumerate(requests.items())}
    answers = {i: g.Background(lambda i=i: chain.post(RUN, bodies[i], i)) for i in requests}
    wait_for(lambda: len(notes(copies[0])) >= 3 and len(notes(*copies)) >= 12, "runs at the copy that is to die")
    os.killpg(copies[0].process.pid, signal.SIGKILL)
    copies[0].clean_exit = False
    copies[0].process.wait(g.STOP_S)
    answers = {i: t.join() for i, t in answers.items()}

    counts = notes(*copies)
    assert set(counts) <= set(requests.values()) and max(counts.values()) == 1, counts
    lost = 0
    for i, answer in answers.items():
        if answer.status == 200:
            assert answer.header("Plimsoll-Request-Id") == i and counts[requests[i]] == 1
            g.check_record(json.loads(bodies[i]), answer)
        else:
            # it may have run: whoever says so, nobody says that it did not
            lost += 1
            assert answer.status in (502, 503, 504) and answer.header("Plimsoll-Not-Dispatched") is None, answer
            if answer.header("Plimsoll-Request-Id") is not None:
                assert answer.code == "unavailable" and answer.reason is None, answer
    assert 0 < lost < 24
    # a client that sends it again, to the copy that lives, gets the same answer or the same doubt, and nothing runs
    for i, answer in answers.items():
        again = copies[1].post(RUN, bodies[i], i)
        if answer.status == 200:
            assert again.body == answer.body and again.header("Plimsoll-Replayed") == "1"
        else:
            assert again.status in (200, 503) and again.reason is None and again.header("Plimsoll-Not-Dispatched") is None, again
            assert again.status != 200 or counts.get(requests[i]) == 1
    assert notes(*copies) == counts


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_that_drains_loses_nothing(kind, pair, front):
    copies = pair()
    chain = front(kind, *copies, **RETRIES[kind])
    words = [f"w{i}" for i in range(60)]

    def calls(mine):
        with chain.connect() as c:
            for word in mine:
                chain.ok(f"standin: note {word}\nstandin: hold 50", new_id(), on=c)
    threads = [g.Background(lambda n=n: calls(words[n::6])) for n in range(6)]
    wait_for(lambda: len(notes(copies[0])) >= 5, "runs at the copy that is to drain")
    copies[0].signal(signal.SIGTERM)
    for t in threads:
        t.join()
    assert notes(*copies) == {w: 1 for w in words}
    assert copies[0].wait_exit() == 0
    assert len(notes(copies[1])) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_cut_off_on_its_way_is_sent_again_from_the_record(kind, gateway, front):
    """The backend role dies under a run: 503 and unmarked. The proxy's retry asks again under the same ID, and is told the same."""
    gw = gateway(**STANDIN)
    gw.runs = gw.home / "runs"
    chain = front(kind, gw, gw, **RETRIES[kind])
    request_id = new_id()
    answer = chain.run("standin: exit", request_id)
    # nginx gives up with its own page when every upstream has failed; what reached us otherwise is the gateway's own
    assert answer.status in (502, 503) and answer.header("Plimsoll-Not-Dispatched") is None, answer
    assert gw.metric("plimsoll_runs_total") == 1
    wait_for(lambda: gw.describe().status == 200, "the role to be back")
    assert gw.run("standin: exit", request_id).code == "unavailable"
    assert gw.metric("plimsoll_runs_total") == 1


# -- what is passed on --


def audit(gw, request_id):
    return gw.wait_log("code run", request_id=request_id)


@pytest.mark.parametrize("kind", KINDS)
def test_addresses_are_believed_from_listed_proxies_alone(kind, gateway, front):
    adds = {"nginx": {}, "haproxy": {"frontend": "option forwardfor"}}[kind]
    gw = gateway(PLIMSOLL_TRUSTED_PROXIES="127.0.0.1, 10.0.0.0/8")
    chain = front(kind, gw, **adds)

    def client(port, source, *forwarded):
        request_id = new_id()
        with proxies.SourceConnection(port, source) as c:
            more = [("X-Forwarded-For", f) for f in forwarded]
            assert chain.run("1", request_id, on=c, more=more).status == 200
        return audit(gw, request_id)["client"]
    assert client(chain.proxy.port, "127.0.0.2") == "127.0.0.2"
    # what the client wrote itself stands before what the proxy adds
    assert client(chain.proxy.port, "127.0.0.2", "198.51.100.1") == "127.0.0.2"
    assert client(chain.proxy.port, "127.0.0.2", "198.51.100.1, 127.0.0.1") == "127.0.0.2"
    assert client(chain.proxy.port, "127.0.0.2", "198.51.100.1", "10.0.0.1") == "127.0.0.2"
    # another proxy of ours before this one
    assert client(chain.proxy.port, "127.0.0.1", "198.51.100.1") == "198.51.100.1"
    assert client(chain.proxy.port, "127.0.0.1", "6.6.6.6, 198.51.100.1, 10.1.1.1") == "198.51.100.1"
    assert client(chain.proxy.port, "127.0.0.1", "6.6.6.6, unknown") == "127.0.0.1"
    # past the proxy: whoever is not listed is taken for what it is
    assert client(gw.port, "127.0.0.3", "198.51.100.1") == "127.0.0.3"
    assert client(gw.port, "127.0.0.1", "198.51.100.1") == "198.51.100.1"


def test_no_proxy_is_believed_unless_listed(gw, front):
    chain = front(Nginx, gw)
    request_id = new_id()
    assert chain.run("1", request_id, more=[("X-Forwarded-For", "198.51.100.1")]).status == 200
    assert audit(gw, request_id)["client"] == "127.0.0.1"


@pytest.mark.parametrize("kind", KINDS)
def test_request_ids_and_traces_on_every_answer(kind, gw, front):
    chain = front(kind, gw)
    trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    body = json.dumps(javascript()).encode()
    calls = {
        200: lambda more: chain.post(RUN, body, more=more),
        400: lambda more: chain.post(RUN, b"{", more=more),
        401: lambda more: Chain(gw, chain.proxy, "x" * 40).post(RUN, body, more=more),
        404: lambda more: chain.get("/nothing", more=more),
        405: lambda more: chain.get(RUN, more=more),
        415: lambda more: chain.post(RUN, body, content_type="text/plain", more=more),
    }
    for status, call in calls.items():
        minted = set()
        for value, is_kept in (("a.b-1/2:3", True), ("x" * 128, True), ("x" * 129, False), ("two words", False), ("a;b", False), (None, False)):
            more = [("traceparent", f"00-{trace}-{span}-01")] + ([("X-Request-ID", value)] if value else [])
            answer = call(more)
            if status == 401:
                assert answer.status in (401, 403), answer  # two Authorization fields are none
            else:
                assert answer.status == status, answer
            got = answer.header("X-Request-ID")
            assert got == value if is_kept else re.fullmatch(r"[0-9a-f]{32}", got), answer
            minted.add(got)
            m = re.fullmatch(rf"00-{trace}-([0-9a-f]{{16}})-01", answer.header("traceparent"))
            assert m and m.group(1) != span, answer
        assert len(minted) == 6
        for bad in ("", "00-" + "0" * 32 + f"-{span}-01", f"00-{trace}-{span}", f"ff-{trace}-{span}-01", f"00-{trace.upper()}-{span}-01"):
            assert call([("traceparent", bad)]).header("traceparent") is None


def test_an_error_before_libh2o_has_them_too(gw):
    """A head that is refused outright carries what could be read of it."""
    with gw.connect() as c:
        c.send(f"POST {RUN} HTTP/1.1\r\nHost: gw\r\nX-Request-ID: mine\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n".encode())
        answer = c.read_answer()
        assert answer.status == 400 and answer.header("X-Request-ID") == "mine" and answer.closes


@pytest.mark.parametrize("way", ["passed on", "taken off"])
def test_a_path_prefix(way, gateway, front):
    """The proxy passes /sandbox on and the gateway knows of it, or takes it off and the gateway does not."""
    gw = gateway(PLIMSOLL_PATH_PREFIX="/sandbox") if way == "passed on" else gateway()
    if way == "passed on":
        chain = front(Nginx, gw)
    else:
        chain = front(Nginx, gw, server="location /sandbox/ { proxy_pass http://plimsoll/; proxy_http_version 1.1; proxy_set_header Connection \"\"; }")
    request_id = new_id()
    body = json.dumps(javascript("console.log(6*7)")).encode()
    for path in ("/sandbox", "/sandbox/backends/wasm"):
        answer = chain.post(path + RUN, body, request_id := new_id())
        assert answer.status == 200 and answer.header("Plimsoll-Request-Id") == request_id, answer
        assert chain.post(path + DESCRIBE, b"{}").status == 200
    assert chain.get("/sandbox/healthz").body == b"ok\n" and chain.get("/sandbox/v1/backends").status == 200
    assert chain.get("/healthz").body == b"ok\n"
    answer = chain.get("/sandboxx/healthz", request_id=request_id)
    assert answer.status == 404 and answer.header("Plimsoll-Not-Dispatched") == "unsupported"
    if way == "passed on":
        refused_http(chain.post(RUN, body, request_id), 404, "unimplemented", request_id, mark="unsupported")
        refused_http(chain.post("/sandbox/sandbox" + RUN, body, request_id), 404, "unimplemented", request_id, mark="unsupported")
    from plimsoll_client import Client
    r = Client(f"http://127.0.0.1:{chain.proxy.port}/sandbox", token=gw.token).run_javascript("console.log(6*7)", timeout=5)
    assert r.stdout_text == "42\n"


@pytest.mark.parametrize("kind", KINDS)
def test_a_caller_that_leaves_the_proxy_stops_its_run(kind, gateway, front):
    gw = gateway(**STANDIN)
    chain = front(kind, gw, **({"defaults": "option abortonclose"} if kind == "haproxy" else {}))
    with chain.connect() as c:
        c.send(g.request(RUN, json.dumps(javascript("standin: hold 60000")).encode(), chain.headers(new_id())))
        gw.wait_inflight(1)
    gw.wait_metric('plimsoll_canceled_total{cause="hang_up"}', 1)
    gw.wait_inflight(0)


# -- bodies and answers --


def project(size):
    text = base64.b64encode(os.urandom(size))[:size].decode()
    return {"protocol": 4, "project": {"files": [{"path": "a/b.txt", "content": text}], "steps": ["standin: answer"]}}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["plain", "gzip", "chunked", "chunked gzip"])
def test_bodies_of_1_mib(kind, form, gateway, front):
    gw = gateway(**STANDIN)
    chain = front(kind, gw, **({"location": "proxy_request_buffering off;"} if kind == "nginx" else {}))
    sent = project(MIB)
    body = json.dumps(sent).encode()
    more = [("Content-Encoding", "gzip")] if "gzip" in form else []
    data = gzip.compress(body, 1) if "gzip" in form else body
    with chain.connect() as c:
        for _ in range(3):
            request_id = new_id()
            if "chunked" in form:
                c.send(g.head(RUN, chain.headers(request_id, more=more + [("Transfer-Encoding", "chunked")])))
                for at in range(0, len(data), 100_000):
                    piece = data[at:at + 100_000]
                    c.send(b"%x;x=y\r\n" % len(piece) + piece + b"\r\n")
                c.send(b"0\r\nTrailer-Field: 1\r\n\r\n")
                answer = c.read_answer()
            else:
                answer = chain.post(RUN, data, request_id, more=more, on=c)
            assert answer.status == 200 and answer.header("Plimsoll-Request-Id") == request_id, answer
            g.check_record(sent, answer)
    gw.wait_metric("plimsoll_buffered_bytes", 0)


@pytest.mark.parametrize("kind", KINDS)
def test_large_answers(kind, gateway, front):
    gw = gateway(**STANDIN)
    chain = front(kind, gw)
    with chain.connect() as c:
        for count in (1, 65536, MIB, 8 * MIB, 1):
            answer = chain.ok(f"standin: bytes {count}", new_id(), on=c)
            assert g.stdout(answer) == bytes(i & 255 for i in range(256)) * (count // 256) + bytes(range(count % 256))


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_over_the_limit(kind, gw, front):
    """nginx refuses it itself (client_max_body_size); without that, and at HAProxy, the gateway's refusal arrives."""
    chain = front(kind, gw, **({"body_max": "0"} if kind == "nginx" else {}))
    request_id = new_id()
    with chain.connect() as c:
        c.send_all_it_takes(g.head(RUN, chain.headers(request_id) + [("Content-Length", str(g.BODY_MAX + 1))]))
        c.send_all_it_takes(b" " * (g.BODY_MAX + 1))
        answer = c.read_answer()
    refused_early(answer, "resource_exhausted", "request", request_id)
    chain.ok("1", new_id())


@pytest.mark.parametrize("kind", KINDS)
def test_an_early_refusal_arrives_while_the_proxy_still_sends(kind, gw, front):
    """The gateway answers on the head and leaves the body unread; a reset for it must not overtake the answer."""
    chain = front(kind, gw)
    stranger = Chain(gw, chain.proxy, "x" * 40)
    for size in (100_000, MIB, 4 * MIB, 8 * MIB) * 4:
        request_id = new_id()
        refused_early(stranger.post(RUN, b" " * size, request_id), "unauthenticated", "permission", request_id)


@pytest.mark.parametrize("kind", KINDS)
def test_expect_100_continue_through_the_proxy(kind, gw, front):
    chain = front(kind, gw)
    body = json.dumps(javascript("console.log(1)")).encode()
    with chain.connect() as c:
        for _ in range(3):
            request_id = new_id()
            c.send(g.head(RUN, chain.headers(request_id) + [("Content-Length", str(len(body))), ("Expect", "100-continue")]))
            assert c.read_informational() == 100
            c.send(body)
            answer = c.read_answer()
            assert answer.status == 200 and answer.header("Plimsoll-Request-Id") == request_id, answer


def test_a_refusal_instead_of_100_continue_through_haproxy(gw, front):
    chain = front(HAProxy, gw)
    for _ in range(3):
        request_id = new_id()
        with chain.connect() as c:
            c.send(g.head(RUN, gw.headers(request_id, "x" * 40) + [("Content-Length", "100"), ("Expect", "100-continue")]))
            answer = c.read_answer()
            refused_early(answer, "unauthenticated", "permission", request_id)
            assert not answer.informational
        chain.ok("1", new_id())


# -- TLS between the two --


@pytest.mark.parametrize("kind", KINDS)
def test_tls_from_the_proxy(kind, gateway, front, tmp_path):
    tmp_path.chmod(0o755)
    cert, key = proxies.make_certificate(tmp_path)
    gw = gateway(start=False, PLIMSOLL_TLS_CERT=str(cert), PLIMSOLL_TLS_KEY=str(key), PLIMSOLL_METRICS_ADDR="off", **STANDIN)
    gw.start()
    if kind == "nginx":
        chain = front(Nginx, gw, scheme="https",
                      location=f"proxy_ssl_trusted_certificate {cert};\nproxy_ssl_verify on;\nproxy_ssl_name gw;\nproxy_ssl_server_name on;")
    else:
        chain = front(HAProxy, gw, parameters=f"ssl verify required verifyhost gw sni str(gw) ca-file {cert} check", backend="option httpchk GET /readyz")
        wait_for(lambda: chain.proxy.stat("status") == "UP", "the health check over TLS")
    with chain.connect() as c:
        for count in (1, MIB, 100):
            chain.ok(f"standin: bytes {count}", new_id(), on=c)
        sent = project(MIB)
        answer = chain.post(RUN, json.dumps(sent).encode(), new_id(), on=c)
        g.check_record(sent, answer)
    if kind == "haproxy":
        assert int(chain.proxy.stat("reuse")) >= 3
    # nothing is served in the clear on that port
    with gw.connect() as c:
        c.send(b"GET /healthz HTTP/1.1\r\nHost: gw\r\n\r\n")
        with contextlib.suppress(g.Closed, ConnectionResetError):
            c.sock.settimeout(g.SETTLE_S)
            assert b"HTTP" not in c.sock.recv(100)


# -- idle timeouts --


def test_reused_connections_while_the_gateway_ends_them_first(pair, front):
    """The gateway's idle time is the shorter one, so the proxy now and then sends on a connection that just ended. With retries switched on
    and request IDs, every request is answered and runs once."""
    gw, _ = pair(PLIMSOLL_IDLE_TIMEOUT="100ms")
    # the same gateway several times: nginx asks a second upstream, never the same one again, and its kept connection may have ended too
    chain = front(Nginx, gw, gw, gw, gw, parameters="max_fails=0", **RETRIES["nginx"])
    words = [f"w{i}" for i in range(150)]

    def calls(mine, number):
        with chain.connect() as c:
            for n, word in enumerate(mine):
                chain.ok(f"standin: note {word}", new_id(), on=c)
                proxies.pause(0.09 + 0.0007 * ((n * 7 + number * 3) % 30))  # around the moment of the end
    for t in [g.Background(lambda i=i: calls(words[i::5], i)) for i in range(5)]:
        t.join()
    assert notes(gw) == {w: 1 for w in words}
    assert gw.metric('plimsoll_connections_closed_total{reason="idle_timeout"}') > 0


def test_reused_connections_while_the_proxy_ends_them_first(gateway, front):
    """The order docs/http.md recommends: nothing is ever lost, with no retry at all."""
    gw = gateway(**STANDIN, PLIMSOLL_IDLE_TIMEOUT="5s")
    chain = front(Nginx, gw, upstream="keepalive_timeout 100ms;", location="proxy_next_upstream off;")
    with chain.connect() as c:
        for n in range(40):
            chain.ok("standin: answer", new_id(), on=c)
            proxies.pause(0.09 + 0.0007 * (n * 7 % 30))
    assert gw.metric("plimsoll_runs_total") == 40


# -- health checks --


def test_health_checks_of_haproxy(pair, front):
    copies = pair()
    chain = front(HAProxy, *copies, backend="option httpchk GET /readyz", parameters="check inter 100ms fall 2 rise 1")
    for server in ("gw0", "gw1"):
        wait_for(lambda s=server: chain.proxy.stat("status", s) == "UP" and chain.proxy.stat("check_status", s) == "L7OK", f"{server} to be up")
    # a run in flight keeps the draining copy there; new ones go to the other
    code, barrier = copies[0].barrier()
    held = copies[0].in_background(code, new_id())
    copies[0].wait_inflight(1)
    copies[0].signal(signal.SIGTERM)
    wait_for(lambda: chain.proxy.stat("status", "gw0").startswith("DOWN"), "gw0 to be down")
    for _ in range(5):
        chain.ok("standin: answer", new_id())
    barrier.unlink()
    assert held.join().status == 200
    assert copies[0].wait_exit() == 0


def test_a_health_check_of_http_1_0_without_host(gw):
    for path, body in (("/readyz", b"ready\n"), ("/healthz", b"ok\n")):
        with gw.connect() as c:
            c.send(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            answer = c.read_answer()
            assert answer.status == 200 and answer.body == body
            assert c.is_closed_within()


def test_a_tcp_check_that_sends_nothing(gw, front):
    chain = front(HAProxy, gw, parameters="check inter 20ms")
    wait_for(lambda: int(chain.proxy.stat("check_duration") or 0) >= 0 and chain.proxy.stat("status") == "UP", "the check")
    before = connections(gw)
    errors = len(gw.log_lines(level="error"))  # of tests before this one
    wait_for(lambda: connections(gw) - before >= 20, "twenty checks")
    chain.ok("1", new_id())
    assert len(gw.log_lines(level="error")) == errors


def test_proxies_have_no_cap_per_address_when_listed(gateway, front):
    gw = gateway(**STANDIN, PLIMSOLL_TRUSTED_PROXIES="127.0.0.1", PLIMSOLL_MAX_CONNECTIONS_PER_ADDRESS="4")
    chain = front(HAProxy, gw)
    code, barrier = gw.barrier()
    held = [g.Background(lambda: chain.run(code, new_id())) for _ in range(12)]
    gw.wait_inflight(12)
    barrier.unlink()
    assert [h.join().status for h in held] == [200] * 12
    # and one that is not listed has
    gw2 = gateway(**STANDIN, PLIMSOLL_MAX_CONNECTIONS_PER_ADDRESS="4")
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(gw2.connect())
        gw2.wait_metric("plimsoll_connections_open", 5)  # the one that asks is on another listener, and counts
        with gw2.connect() as c:
            assert c.is_closed_within()


def test_two_proxies_in_a_row(gateway, front):
    """nginx, then HAProxy, then the gateway."""
    gw = gateway(PLIMSOLL_TRUSTED_PROXIES="127.0.0.1")
    inner = front(HAProxy, gw, frontend="option forwardfor")
    outer = Nginx([inner.proxy.port]).start()
    try:
        chain = Chain(gw, outer)
        request_id = new_id()
        with proxies.SourceConnection(outer.port, "127.0.0.2") as c:
            for n in range(20):
                chain.ok(f"console.log({n})", request_id := new_id(), on=c)
        assert audit(gw, request_id)["client"] == "127.0.0.2"
    finally:
        outer.stop()


def test_a_proxy_protocol_head_is_no_request(gw):
    """A proxy set up to send its own preamble is told so, not misread."""
    with gw.connect() as c:
        c.send(b"PROXY TCP4 198.51.100.1 198.51.100.2 1 2\r\nGET /healthz HTTP/1.1\r\nHost: gw\r\n\r\n")
        answer = c.read_answer()
        assert answer.status == 400 and answer.closes and c.is_closed_within()


def test_the_metrics_are_not_behind_the_proxy(gw, front):
    chain = front(Nginx, gw)
    for path in ("/metrics", "/metrics/", "//metrics", "/%6detrics"):
        assert chain.get(path).status == 404
    with socket.create_connection(("127.0.0.1", gw.metrics_port), 5) as s:
        s.sendall(b"GET /healthz HTTP/1.1\r\nHost: gw\r\n\r\n")
        assert b" 404 " in s.recv(4096)
