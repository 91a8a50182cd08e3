"""Requests that two parsers could read differently, sent straight and through a real nginx and a real HAProxy (as shipped, and with its checks
switched off). The proof is always the same: whoever comes next on a shared connection gets the answer to its own request, and nothing of it
reaches the sender of the odd bytes."""
import contextlib
import json
import socket

import pytest

import gateway as g
import proxies
from gateway import RUN, javascript, new_id
from proxies import Chain, HAProxy, Nginx

pytestmark = [pytest.mark.skipif(proxies.missing(p) is not None, reason=f"{p} is not installed") for p in ("nginx", "haproxy")]

SMUGGLED_ID = "5" * 32
ANSWERED_S = 1  # in which an answer comes if it ever will
QUIET_S = 0.04  # after which no more of an answer is expected; only how much an attacker reads hangs on it
VICTIMS = 2
BODY = json.dumps(javascript('console.log("mine")')).encode()


def crlf(*lines):
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


def post(gw, *more, path=RUN, version="1.1", host="Host: gw"):
    """The head of a good request with `more` instead of its framing."""
    fields = [f"{n}: {v}" for n, v in gw.headers(new_id())]
    return crlf(f"POST {path} HTTP/{version}", *([host] if host else []), *fields, *more)


def chunk(data, extension=b""):
    return b"%x" % len(data) + extension + b"\r\n" + data + b"\r\n"


def smuggled(gw):
    """A request that would answer in the victim's place, and eat the beginning of the victim's own."""
    return crlf("GET /healthz HTTP/1.1", "Host: gw", f"Plimsoll-Request-Id: {SMUGGLED_ID}")[:-2] + b"X-Ignore: "


def smuggled_run(gw):
    """One that would swallow the victim's request as its body."""
    fields = [f"{n}: {v}" for n, v in gw.headers(SMUGGLED_ID)]
    return crlf(f"POST {RUN} HTTP/1.1", "Host: gw", *fields, "Content-Length: 600")


def cl(n):
    return f"Content-Length: {n}"


TE = "Transfer-Encoding: chunked"


def _with_cl_and_te(gw, hidden):
    end = b"0\r\n\r\n"
    return {
        "CL.TE": post(gw, cl(len(chunk(BODY) + end + hidden)), TE) + chunk(BODY) + end + hidden,
        "TE.CL": post(gw, TE, cl(4)) + chunk(hidden) + end,
        "CL.TE, CL 0": post(gw, cl(0), TE) + chunk(BODY) + end + hidden,
        "CL.TE, half a chunk": post(gw, cl(6), TE) + end + b"G",
    }


OBFUSCATED = {
    "space before the colon": "Transfer-Encoding : chunked", "tab before the colon": "Transfer-Encoding\t: chunked",
    "folded": "Transfer-Encoding:\r\n chunked", "after a fold": "X-A: b\r\n Transfer-Encoding: chunked", "leading space": " Transfer-Encoding: chunked",
    "vertical tab": "Transfer-Encoding:\x0bchunked", "form feed": "Transfer-Encoding: chunked\x0c", "NUL": "Transfer-Encoding: chunked\0",
    "NUL in the name": "Transfer-Encoding\0: chunked", "bare LF": "X-A: b\nTransfer-Encoding: chunked", "bare CR": "X-A: b\rTransfer-Encoding: chunked",
    "LF before the value": "Transfer-Encoding:\nchunked", "xchunked": "Transfer-Encoding: xchunked", "quoted": 'Transfer-Encoding: "chunked"',
    "identity": "Transfer-Encoding: identity", "chunked, identity": "Transfer-Encoding: chunked, identity",
    "identity, chunked": "Transfer-Encoding: identity, chunked", "chunked chunked": "Transfer-Encoding: chunked chunked",
    "comma": "Transfer-Encoding: ,chunked", "parameter": "Transfer-Encoding: chunked;a=b", "twice": TE + "\r\n" + TE,
    "twice, one odd": TE + "\r\nTransfer-Encoding: cow", "twice, odd first": "Transfer-Encoding: cow\r\n" + TE, "case": "tRANSFER-eNCODING: cHUNKED",
    "obs-text": "Transfer-Encoding: chunked\xa0", "underscore": "Transfer_Encoding: chunked", "empty": "Transfer-Encoding:",
}


def _obfuscated(gw, hidden):
    out, end = {}, b"0\r\n\r\n"
    for name, field in OBFUSCATED.items():
        raw = chunk(BODY) + end + hidden
        out[f"TE {name}, CL long"] = post(gw, cl(len(raw)), field) + raw
        out[f"TE {name}, CL short"] = post(gw, field, cl(len(b"%x\r\n" % len(hidden)))) + chunk(hidden) + end
        out[f"TE {name}"] = post(gw, field) + chunk(BODY) + end
    return out


def _lengths(gw, hidden):
    n = len(BODY)
    long = n + len(hidden)
    rows = {
        "CL.CL short, long": (cl(n), cl(long)), "CL.CL long, short": (cl(long), cl(n)), "CL.CL the same": (cl(n), cl(n)), "CL list": (f"Content-Length: {n}, {long}",),
        "CL list of one value": (f"Content-Length: {n}, {n}",), "CL plus": (f"Content-Length: +{n}",), "CL minus": (f"Content-Length: -{n}",),
        "CL hex": (f"Content-Length: {hex(n)}",), "CL underscore": ("Content-Length: 4_2",), "CL space in it": ("Content-Length: 4 2",),
        "CL folded": (f"Content-Length:\r\n {n}",), "CL space before the colon": (f"Content-Length : {long}", cl(n)), "CL wraps 2^64": (f"Content-Length: {2 ** 64 + n}",),
        "CL wraps 2^32": (f"Content-Length: {2 ** 32 + n}",), "CL zeros": (f"Content-Length: {n:020}",), "CL behind a NUL": (f"Content-Length: {n}\0{long}",),
        "CL of another name": (f"Content_Length: {long}", cl(n)), "CL by Connection": ("Connection: Content-Length, keep-alive", cl(n)),
        "CL and bare LF": (f"X-A: b\nContent-Length: {long}", cl(n)), "CL empty": ("Content-Length:",), "CL tab": (f"Content-Length:\t{n}\t",),
        "no CL": (),
    }
    return {name: post(gw, *fields) + BODY + hidden for name, fields in rows.items()}


def _chunks(gw, hidden):
    end = b"0\r\n\r\n"
    head = post(gw, TE)
    n = b"%x" % len(BODY)
    return {
        "chunk extension": head + chunk(BODY, b";a=b") + end + hidden,
        "chunk extension with LF": head + n + b";\n" + b"a\r\n" + BODY + b"\r\n" + end + hidden,
        "chunk extension ends in LF": head + n + b";a\n" + BODY + b"\r\n" + end + hidden,
        "chunk extension ends in CR": head + n + b";a\r" + BODY + b"\r\n" + end + hidden,
        "chunk extension in quotes": head + chunk(BODY, b';a="\r\n"') + end + hidden,
        "chunk size ends in LF": head + n + b"\n" + BODY + b"\n0\n\n" + hidden,
        "chunk data ends in LF": head + n + b"\r\n" + BODY + b"\n" + end + hidden,
        "chunk data ends in anything": head + n + b"\r\n" + BODY + b"XX" + end + hidden,
        "chunk size with 0x": head + b"0x" + n + b"\r\n" + BODY + b"\r\n" + end + hidden,
        "chunk size with a space": head + n + b" \r\n" + BODY + b"\r\n" + end + hidden,
        "chunk size negative": head + b"-" + n + b"\r\n" + BODY + b"\r\n" + end + hidden,
        "chunk size wraps": head + b"1" + b"0" * 15 + n.rjust(2, b"0") + b"\r\n" + BODY + b"\r\n" + end + hidden,
        "chunk size underscore": head + b"_" + n + b"\r\n" + BODY + b"\r\n" + end + hidden,
        "end without its line": head + chunk(BODY) + b"0\r\nX" + hidden,
        "end in LF": head + chunk(BODY) + b"0\n\n" + hidden,
        "trailers that frame": head + chunk(BODY) + b"0\r\nContent-Length: 60\r\nTransfer-Encoding: chunked\r\n\r\n" + hidden,
        "trailer that is a request": head + chunk(BODY) + b"0\r\n" + hidden + b"\r\n\r\n",
        "trailer with bare LF": head + chunk(BODY) + b"0\r\nA: b\n\r\n" + hidden,
        "two ends": head + chunk(BODY) + end + end + hidden,
    }


def _heads(gw, hidden):
    n = len(BODY)
    return {
        "bare LF head": post(gw, cl(n)).replace(b"\r\n", b"\n") + BODY + hidden,
        "LF CRLF end": post(gw, cl(n))[:-4] + b"\n\r\n" + BODY + hidden,
        "request within a header by LF": post(gw, "X-A: b\n\nGET /healthz HTTP/1.1\nHost: gw", cl(n)) + BODY,
        "absolute-form": post(gw, cl(n), path="http://other" + RUN) + BODY + hidden,
        "absolute-form with a query for a host": post(gw, cl(n), path="http://other?/x" + RUN) + BODY + hidden,
        "absolute-form with userinfo": post(gw, cl(n), path="http://gw@other" + RUN) + BODY + hidden,
        "two hosts": post(gw, "Host: other", cl(n)) + BODY + hidden,
        "no host": post(gw, cl(n), host=None) + BODY + hidden,
        "host with a space": post(gw, cl(n), host="Host: gw other") + BODY + hidden,
        "NUL in a value": post(gw, "X-A: a\0b", cl(n)) + BODY + hidden,
        "space in the target": post(gw, cl(n), path=RUN + " HTTP/1.1\t") + BODY + hidden,
        "tab in the request line": post(gw, cl(n)).replace(b" HTTP", b"\tHTTP", 1) + BODY + hidden,
        "version 1.0 with TE": post(gw, TE, "Connection: keep-alive", version="1.0") + chunk(BODY) + b"0\r\n\r\n" + hidden,
        "version 1.0 with CL": post(gw, cl(n), "Connection: keep-alive", version="1.0") + BODY + hidden,
        "version 1.2": post(gw, cl(n), version="1.2") + BODY + hidden,
        "version 0.9": b"GET /healthz\r\n" + hidden,
        "upgrade to h2c": post(gw, cl(n), "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA") + BODY + hidden,
        "upgrade to websocket": crlf("GET /healthz HTTP/1.1", "Host: gw", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
                                     "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==") + hidden,
        "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + hidden,
        "CONNECT": crlf("CONNECT gw:80 HTTP/1.1", "Host: gw:80") + hidden,
        "TRACE": crlf("TRACE /healthz HTTP/1.1", "Host: gw", cl(n)) + BODY + hidden,
        "empty lines ahead": b"\r\n\r\n\r\n" + post(gw, cl(n)) + BODY + hidden,
        "a request on the heels": post(gw, cl(n)) + BODY + post(gw, cl(n)) + BODY + hidden,
    }


def _unread(gw, hidden):
    """Bodies nobody asked for, and early answers."""
    n = len(hidden)
    return {
        "CL.0 health": crlf("POST /healthz HTTP/1.1", "Host: gw", cl(n)) + hidden,
        "CL.0 health by GET": crlf("GET /healthz HTTP/1.1", "Host: gw", cl(n)) + hidden,
        "CL.0 nothing": crlf("POST /nothing HTTP/1.1", "Host: gw", cl(n)) + hidden,
        "CL.0 without a token": crlf(f"POST {RUN} HTTP/1.1", "Host: gw", "Content-Type: application/json", cl(n)) + hidden,
        "CL.0 of another type": post(gw, cl(n)).replace(b"application/json", b"text/plain") + hidden,
        "CL.0 by GET at a procedure": post(gw, cl(n)).replace(b"POST", b"GET", 1) + hidden,
        "CL.0 by HEAD": crlf("HEAD /healthz HTTP/1.1", "Host: gw", cl(n)) + hidden,
        "CL.0 pages": crlf("GET /v1/backends HTTP/1.1", "Host: gw", f"Authorization: Bearer {gw.token}", cl(n)) + hidden,
        "TE.0 health": crlf("POST /healthz HTTP/1.1", "Host: gw", TE) + chunk(hidden) + b"0\r\n\r\n",
        "TE.0 by OPTIONS": crlf("OPTIONS * HTTP/1.1", "Host: gw", TE) + chunk(hidden) + b"0\r\n\r\n",
        "Expect": post(gw, cl(len(BODY)), "Expect: 100-continue") + BODY + hidden,
        "Expect something else": post(gw, cl(len(BODY)), "Expect: 100-continue, x") + BODY + hidden,
        "Expect obfuscated": post(gw, cl(len(BODY)), "Expect: y 100-continue") + BODY + hidden,
        "Expect refused": crlf(f"POST {RUN} HTTP/1.1", "Host: gw", "Content-Type: application/json", "Expect: 100-continue", cl(n)) + hidden,
        "a body that is not JSON": post(gw, cl(n)) + hidden,
        "a body cut short": post(gw, cl(len(BODY) + 50)) + BODY,
    }


GROUPS = {"lengths and encodings": _with_cl_and_te, "encodings": _obfuscated, "lengths": _lengths, "chunks": _chunks, "heads": _heads, "unread": _unread}


def attacks(gw, group):
    """(name, bytes) of a group, each with both things to hide."""
    for what, hidden in (("", smuggled(gw)), (", swallowing", smuggled_run(gw))):
        for name, data in GROUPS[group](gw, hidden).items():
            yield name + what, data


def read_all(c, seconds=QUIET_S):
    """What comes until it is quiet or over."""
    out = c.buffer
    c.sock.settimeout(seconds)
    with contextlib.suppress(OSError):
        while data := c.sock.recv(65536):
            out += data
    return out


def victim(chain, on=None):
    """A request of somebody else: the answer must be its own, to the byte of what it printed."""
    word = "victim-" + new_id()
    answer = chain.ok(f'console.log("{word}")', new_id(), on=on)
    assert g.stdout(answer) == word.encode() + b"\n", answer


@pytest.fixture(scope="module")
def served():
    gw = g.Gateway({"SANDBOX_MAX_CONCURRENT": "16", "PLIMSOLL_READ_TIMEOUT": "2s", "PLIMSOLL_HEADER_TIMEOUT": "2s"}).start()
    try:
        yield gw
        gw.stop()
    finally:
        gw.kill_rest()
        gw.remove()


def _chain(gw, kind):
    if kind == "nginx":
        # the fewest upstream connections, so that the next request takes the odd one's
        return Nginx([gw.port], keepalive=1, read_timeout="5s", location="proxy_request_buffering off;",
                     server="ignore_invalid_headers off;\nunderscores_in_headers on;\nmerge_slashes off;")
    if kind == "haproxy":
        return HAProxy([gw.port], defaults="timeout http-request 2s")
    return HAProxy([gw.port], defaults="timeout http-request 2s", frontend="option accept-invalid-http-request")


@pytest.fixture(scope="module", params=["nginx", "haproxy", "haproxy without checks"])
def chain(served, request):
    proxy = _chain(served, request.param).start()
    yield Chain(served, proxy)
    proxy.stop()


@pytest.mark.parametrize("group", GROUPS)
def test_through_a_proxy(chain, group):
    for name, data in attacks(chain.gw, group):
        with chain.connect() as attacker:
            attacker.send_all_it_takes(data)
            got = read_all(attacker)
            for _ in range(VICTIMS):
                victim(chain)
            # as late as this, nothing of a victim's has come to the attacker
            assert b"victim" not in got + read_all(attacker, 0.01), name
        with chain.connect() as c:  # and one connection of a client's own, used again and again
            for _ in range(2):
                victim(chain, on=c)


@pytest.mark.parametrize("group", GROUPS)
def test_straight_on_a_shared_connection(served, group):
    """The proxy that believes anything: it sends the odd bytes as one request, takes one answer for them, and goes on with the victim's request
    on the same connection as long as that is open."""
    gw, went_on = served, []
    chain = Chain(gw, None)
    for name, data in attacks(gw, group):
        with gw.connect() as c:
            c.send_all_it_takes(data)
            c.sock.settimeout(ANSWERED_S)
            try:
                answer = c.read_answer("HEAD" in name)
            except TimeoutError:
                continue  # it waits for the rest of a body: no answer, no next request
            c.sock.settimeout(g.ANSWER_S)
            if answer.closes:
                assert c.is_closed_within(), name
                continue
            try:
                victim(chain, on=c)
                went_on.append(name)
            except AssertionError as e:
                raise AssertionError(f"{name}: {e}") from e
    if group in ("chunks", "unread"):
        assert went_on, "no connection of this group was used again, so nothing was proven"


def test_the_answer_before_a_pipelined_flood_arrives(served):
    """What was sent on the heels of a request is not read; a reset for it must not overtake the answer to that request."""
    gw = served
    busy = json.dumps(javascript("const t = Date.now(); while (Date.now() - t < 100); console.log(1)")).encode()
    for _ in range(5):
        with gw.connect() as c:
            c.send(post(gw, cl(len(busy))) + busy + post(gw, cl(len(BODY))))
            c.send_all_it_takes(BODY * (8 * g.MIB // len(BODY)))
            answer = c.read_answer()
            assert answer.status == 200 and answer.closes


def test_the_victims_would_notice(served):
    """The check can fail: with a lenient reader in the gateway's place, the victim gets the smuggled answer."""
    gw = served
    with gw.connect() as c:
        hidden = crlf("GET /healthz HTTP/1.1", "Host: gw")
        c.send(crlf("GET /healthz HTTP/1.1", "Host: gw"))
        assert c.read_answer().status == 200
        c.send(hidden)
        with pytest.raises(AssertionError):
            victim(Chain(gw, None), on=c)


def test_no_smuggled_request_was_left_in_the_gateway(served):
    """Last of this file: nothing is held, nothing is still in flight, and the log has no error."""
    gw = served
    gw.wait_metric("plimsoll_inflight", 0)
    gw.wait_metric("plimsoll_buffered_bytes", 0, 10)
    assert not gw.log_lines(level="error"), gw.log_lines(level="error")[:3]
    with socket.create_connection(("127.0.0.1", gw.port), 5) as s:
        s.sendall(b"GET /readyz HTTP/1.1\r\nHost: gw\r\nConnection: close\r\n\r\n")
        assert s.recv(100).startswith(b"HTTP/1.1 200")
