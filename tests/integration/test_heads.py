"""Raw heads and bodies, byte for byte: what another parser on the way might read differently is refused, the connection ends, and the next
one works."""
import json

import pytest

import gateway as g
from gateway import BODY_MAX, RUN, Closed, javascript, new_id, refused_early, refused_http

HEAD_MAX = 32 * 1024
FIELDS_MAX = 128
BODY = json.dumps(javascript()).encode()


def lines(*items, end=b"\r\n"):
    return b"".join(i.encode("latin-1") + end for i in items) + end


def post_lines(gw, request_id, *more, length=len(BODY), host="Host: gw", version="HTTP/1.1"):
    items = [f"POST {RUN} {version}"]
    if host:
        items.append(host)
    items += [f"Authorization: Bearer {gw.token}", "Content-Type: application/json", f"Plimsoll-Request-Id: {request_id}"]
    if length is not None:
        items.append(f"Content-Length: {length}")
    return items + list(more)


def is_refused(gw, data, request_id=None, status=400):
    """The head is refused, marked, the connection ends, and the next connection works."""
    before = gw.metric("plimsoll_runs_total")
    with gw.connect() as c:
        c.send_all_it_takes(data)
        answer = c.read_answer()
        refused_http(answer, status, "invalid_argument", request_id)
        assert answer.closes and c.is_closed_within()
    assert gw.metric("plimsoll_runs_total") == before
    assert gw.get("/healthz", token="").status == 200
    return answer


FRAMING = {
    "CL and TE": (["Transfer-Encoding: chunked"], len(BODY)),
    "TE and CL": (["Transfer-Encoding: chunked", f"Content-Length: {len(BODY)}"], None),
    "two CL, same": ([f"Content-Length: {len(BODY)}"], len(BODY)),
    "two CL, different": (["Content-Length: 3"], len(BODY)),
    "CL as a list": ([f"Content-Length: {len(BODY)}, {len(BODY)}"], None),
    "CL +": ([f"Content-Length: +{len(BODY)}"], None),
    "CL -": ([f"Content-Length: -{len(BODY)}"], None),
    "CL -0": (["Content-Length: -0"], None),
    "CL hex": ([f"Content-Length: {hex(len(BODY))}"], None),
    "CL hex without 0x": (["Content-Length: 2f"], None),
    "CL empty": (["Content-Length:"], None),
    "CL fraction": ([f"Content-Length: {len(BODY)}.0"], None),
    "CL with a space": ([f"Content-Length: {len(BODY)} 0"], None),
    "CL beyond 64 bits": (["Content-Length: 18446744073709551616"], None),
    "CL of 64 bits": (["Content-Length: 18446744073709551615"], None),
    "CL of 40 digits": (["Content-Length: " + "0" * 38 + "47"], None),
    "TE gzip": (["Transfer-Encoding: gzip"], None),
    "TE identity": (["Transfer-Encoding: identity"], None),
    "TE gzip, chunked": (["Transfer-Encoding: gzip, chunked"], None),
    "TE chunked, chunked": (["Transfer-Encoding: chunked, chunked"], None),
    "TE chunked twice": (["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"], None),
    "TE xchunked": (["Transfer-Encoding: xchunked"], None),
    "TE empty": (["Transfer-Encoding:"], None),
    "TE chunked;": (["Transfer-Encoding: chunked;q=1"], None),
    "TE quoted": (['Transfer-Encoding: "chunked"'], None),
    "TE vertical tab": (["Transfer-Encoding:\x0bchunked"], None),
    "space before colon": ([f"Content-Length : {len(BODY)}"], None),
    "tab before colon": ([f"Content-Length\t: {len(BODY)}"], None),
    "TE, space before colon": (["Transfer-Encoding : chunked"], len(BODY)),
    "two hosts": (["Host: other"], len(BODY)),
    "two hosts, the same": (["Host: gw"], len(BODY)),
    "folded": (["X-A: b", " Transfer-Encoding: chunked"], len(BODY)),
    "folded with a tab": (["X-A: b", "\tc"], len(BODY)),
    "no colon": (["X-A"], len(BODY)),
    "no name": ([": x"], len(BODY)),
    "name with a NUL": (["X\x00A: b"], len(BODY)),
    "value with a NUL": (["X-A: a\x00b"], len(BODY)),
    "value with a CR": (["X-A: a\rb"], len(BODY)),
    "value with a bell": (["X-A: \x07"], len(BODY)),
    "value with DEL": (["X-A: \x7f"], len(BODY)),
    "name with é": (["X-\xe9: b"], len(BODY)),
    "name with (": (["X(: b"], len(BODY)),
    "name with {": (["{x}: b"], len(BODY)),
    "name in quotes": (['"X": b'], len(BODY)),
    "bare LF in a value": (["X-A: a\nTransfer-Encoding: chunked"], len(BODY)),
    "Expect other": (["Expect: 200-ok"], len(BODY)),
    "Expect twice": (["Expect: 100-continue", "Expect: 100-continue"], len(BODY)),
}


@pytest.mark.parametrize("name", FRAMING)
def test_framing_that_could_be_read_two_ways(gw, name):
    more, length = FRAMING[name]
    request_id = new_id()
    is_refused(gw, lines(*post_lines(gw, request_id, *more, length=length)) + BODY, request_id)


@pytest.mark.parametrize("host", [None, "Host: a b", "Host: a/b", "Host: a@b", "Host: a,b", "Host: \xe9", "Host: a?b", "Host: <a>"])
def test_host(gw, host):
    request_id = new_id()
    is_refused(gw, lines(*post_lines(gw, request_id, host=host)) + BODY, request_id)


@pytest.mark.parametrize("host", ["Host: gw", "host:gw", "HOST: gw:8746 ", "Host: [::1]:80", "Host: a.example", "Host:"])
def test_hosts_that_are_fine(gw, host):
    with gw.connect() as c:
        c.send(lines(*post_lines(gw, new_id(), host=host)) + BODY)
        assert c.read_answer().status == 200


REQUEST_LINES = ["GET", "GET /healthz", "GET  /healthz HTTP/1.1", "GET /healthz  HTTP/1.1", "GET /healthz HTTP/1.1 ", " GET /healthz HTTP/1.1",
                 "GET\t/healthz HTTP/1.1", "GET /healthz\tHTTP/1.1", "GET /healthz HTTP/1.2", "GET /healthz HTTP/2.0", "GET /healthz HTTP/0.9",
                 "GET /healthz http/1.1", "GET /healthz HTTP/1", "GET /healthz HTTP/1.10", "GET /healthz HTTP/01.1", "GET /healthz HTTP/1.1x",
                 "GET /healthz FTP/1.1", "GET healthz HTTP/1.1", "GET http:/healthz HTTP/1.1", "GET ftp://x/healthz HTTP/1.1", "GET http:// HTTP/1.1", "GET http:///healthz HTTP/1.1",
                 "CONNECT gw:80 HTTP/1.1", "GE(T /healthz HTTP/1.1", "GÉT /healthz HTTP/1.1", "GET /\xe9 HTTP/1.1", "GET /a\x00b HTTP/1.1",
                 "GET /a\x7fb HTTP/1.1", "GET /a\x0bb HTTP/1.1", "GET /a#b HTTP/1.1", "GET /a\\b HTTP/1.1", 'GET /a"b HTTP/1.1', "GET /a<b HTTP/1.1",
                 "X" * 33 + " /healthz HTTP/1.1", "/healthz HTTP/1.1", "", "\x16\x03\x01\x02\x00\x01"]


@pytest.mark.parametrize("line", REQUEST_LINES)
def test_malformed_request_lines(gw, line):
    request_id = new_id()
    is_refused(gw, lines(line, "Host: gw", f"Plimsoll-Request-Id: {request_id}"), request_id)


def test_http_2_preface_is_refused(gw):
    is_refused(gw, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")


def test_http_0_9_ends_without_harm(gw):
    with gw.connect() as c:
        c.send(b"GET /healthz\r\n")
        c.half_close()
        assert c.is_closed_within()
    assert gw.get("/healthz", token="").status == 200


def test_absolute_form_is_read_by_its_path(gw):
    for target in ("http://gw/healthz", "HTTP://other:1/healthz", "https://x/healthz?a"):
        with gw.connect() as c:
            c.send(lines(f"GET {target} HTTP/1.1", "Host: gw"))
            answer = c.read_answer()
            assert answer.status == 200 and answer.body == b"ok\n"


# -- line ends --


@pytest.mark.parametrize("data", [
    b"GET /healthz HTTP/1.1\nHost: gw\n\n", b"GET /healthz HTTP/1.1\r\nHost: gw\n\n", b"GET /healthz HTTP/1.1\nHost: gw\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: gw\r\n\n", b"\nGET /healthz HTTP/1.1\r\nHost: gw\r\n\r\n"])
def test_bare_lf(gw, data):
    is_refused(gw, data)


@pytest.mark.parametrize("data", [b"GET /healthz HTTP/1.1\rHost: gw\r\r\n\r\n", b"GET /healthz HTTP/1.1\r\r\nHost: gw\r\n\r\n",
                                  b"GET /healthz HTTP/1.1\r\nHost: gw\r\r\n\r\n"])
def test_bare_cr(gw, data):
    is_refused(gw, data)


@pytest.mark.parametrize("ahead", [b"\r\n", b"\r\n\r\n", b"\r\n\r\n\r\n"])
def test_empty_lines_ahead_of_a_request(gw, ahead):
    is_refused(gw, ahead + b"GET /healthz HTTP/1.1\r\nHost: gw\r\n\r\n")


# -- sizes --


def head_of(gw, size, request_id):
    """A head of exactly `size` bytes, one long field among it."""
    start = lines(*post_lines(gw, request_id))[:-2]
    return start + b"X-Fill: " + b"x" * (size - len(start) - 8 - 4) + b"\r\n\r\n"


@pytest.mark.parametrize("size", [HEAD_MAX - 1, HEAD_MAX])
def test_head_up_to_32_kib(gw, size):
    request_id = new_id()
    data = head_of(gw, size, request_id)
    assert len(data) == size
    with gw.connect() as c:
        c.send(data + BODY)
        answer = c.read_answer()
        assert answer.status == 200 and answer.header("Plimsoll-Request-Id") == request_id


@pytest.mark.parametrize("size", [HEAD_MAX + 1, 2 * HEAD_MAX, 1024 * 1024])
def test_head_over_32_kib(gw, size):
    request_id = new_id()
    before = gw.metric("plimsoll_runs_total")
    with gw.connect() as c:
        c.send_all_it_takes(head_of(gw, size, request_id) + BODY)
        answer = c.read_answer()
        assert answer.header("Plimsoll-Request-Id") == request_id
        assert answer.status == 431 and answer.header("Plimsoll-Not-Dispatched") == "request" and answer.closes, answer
        assert "32768" in answer.message
        assert c.is_closed_within()
    assert gw.metric("plimsoll_runs_total") == before


def test_head_that_never_ends_is_refused_at_the_limit(gw):
    with gw.connect() as c:
        c.send_all_it_takes(b"GET /healthz HTTP/1.1\r\n" + b"X-A: b\r\n" * 5000)
        assert c.read_answer().status in (400, 431)
        assert c.is_closed_within()


def with_fields(gw, count, request_id):
    start = post_lines(gw, request_id)
    return lines(*start, *[f"X-{n}: v" for n in range(count - (len(start) - 1))]) + BODY


@pytest.mark.parametrize("count", [FIELDS_MAX - 1, FIELDS_MAX])
def test_header_fields_up_to_128(gw, count):
    with gw.connect() as c:
        c.send(with_fields(gw, count, new_id()))
        assert c.read_answer().status == 200


def test_header_fields_over_128(gw):
    request_id = new_id()
    answer = is_refused(gw, with_fields(gw, FIELDS_MAX + 1, request_id), request_id)
    assert "128" in answer.message
    is_refused(gw, with_fields(gw, 2000, request_id), request_id)


@pytest.mark.parametrize("size, status", [(8191, 404), (8192, 404), (8193, 400)])
def test_target_of_8_kib(gw, size, status):
    with gw.connect() as c:
        c.send(lines("GET /" + "x" * (size - 1) + " HTTP/1.1", "Host: gw"))
        assert c.read_answer().status == status


# -- how it arrives --


def test_byte_by_byte(gw):
    request_id = new_id()
    with gw.connect() as c:
        for byte in lines(*post_lines(gw, request_id)) + BODY:
            c.send(bytes([byte]))
        answer = c.read_answer()
        assert answer.status == 200 and answer.header("Plimsoll-Request-Id") == request_id
        g.check_record(javascript(), answer)


def test_chunked_byte_by_byte(gw):
    with gw.connect() as c:
        for byte in lines(*post_lines(gw, new_id(), "Transfer-Encoding: chunked", length=None)) + chunked([BODY[:5], BODY[5:]]):
            c.send(bytes([byte]))
        assert c.read_answer().status == 200


@pytest.mark.parametrize("cut", [1, 20, 100])
def test_a_bare_lf_is_found_wherever_the_reads_are_cut(gw, cut):
    data = b"GET /healthz HTTP/1.1\r\nHost: gw\r\nX-A: " + b"a" * 80 + b"\nX-B: c\r\n\r\n"
    with gw.connect() as c:
        c.send_all_it_takes(data[:cut])
        gw.wait_metric("plimsoll_connections_open", gw.metric("plimsoll_connections_open"))
        c.send_all_it_takes(data[cut:])
        assert c.read_answer().status == 400


def test_keep_alive(gw):
    with gw.connect() as c:
        for n in range(20):
            request_id = new_id()
            answer = gw.run(f"console.log({n})", request_id, on=c)
            assert answer.status == 200 and not answer.closes and answer.header("Plimsoll-Request-Id") == request_id
            assert g.stdout(answer) == b"%d\n" % n
            assert gw.post(RUN, b"{", on=c).status == 400
            assert gw.describe(on=c).status == 200


def test_refusals_that_read_their_body_keep_the_connection(gw):
    with gw.connect() as c:
        for _ in range(3):
            assert gw.post(RUN, {"protocol": 9}, on=c).status == 501
            assert gw.run(minimumIsolation="vm", on=c).status == 400
            assert gw.get("/healthz").status == 200


def test_a_refusal_that_leaves_its_body_unread_ends_the_connection(gw):
    for token, path, status in (("wrong" * 8, RUN, 401), (None, "/nothing", 404), (None, g.SERVICE + "Nothing", 403)):
        with gw.connect() as c:
            answer = gw.post(path, b"x" * 100000, token=token, on=c)
            assert answer.status == status and answer.closes
            assert c.is_closed_within()


def test_a_refused_get_keeps_the_connection(gw):
    with gw.connect() as c:
        for _ in range(3):
            c.send(g.head("/nothing", gw.headers(), "GET"))
            answer = c.read_answer()
            assert answer.status == 404 and not answer.closes


def test_a_body_on_a_page_is_left_unread(gw):
    with gw.connect() as c:
        c.send(lines("GET /healthz HTTP/1.1", "Host: gw", "Content-Length: 40") + b"GET /metrics HTTP/1.1\r\nHost: gw\r\n\r\nxx")
        answer = c.read_answer()
        assert answer.status == 200 and answer.closes and c.is_closed_within()


@pytest.mark.parametrize("second", ["request", "rubbish", "smuggled"])
def test_a_second_request_on_the_heels_of_the_first_is_not_read(gw, second):
    tail = {"request": g.request(RUN, BODY, gw.headers()), "rubbish": b"\x00\xff" * 50, "smuggled": b"0\r\n\r\n" + g.request(RUN, BODY, gw.headers())}
    before = gw.metric("plimsoll_runs_total")
    with gw.connect() as c:
        c.send_all_it_takes(g.request(RUN, BODY, gw.headers()) + tail[second])
        answer = c.read_answer()
        assert answer.status == 200 and answer.closes, answer
        assert c.is_closed_within()
    assert gw.metric("plimsoll_runs_total") == before + 1


def test_a_request_that_comes_while_the_first_runs_is_answered_after_it_or_not_at_all(gw):
    before = gw.metric("plimsoll_runs_total")
    with gw.connect() as c:
        body = json.dumps(javascript("const t = Date.now(); while (Date.now() - t < 300); console.log('first')")).encode()
        c.send(g.request(RUN, body, gw.headers()))
        gw.wait_metric("plimsoll_runs_total", before + 1)
        c.send(g.request(RUN, BODY.replace(b'"1"', b'"console.log(2)"'), gw.headers()))
        answer = c.read_answer()
        assert answer.status == 200 and g.stdout(answer) == b"first\n"
        if not answer.closes:
            answer = c.read_answer()
            assert answer.status == 200 and g.stdout(answer) == b"2\n"


# -- chunked bodies --


def chunked(pieces, extension=b"", trailers=b"", upper=False):
    out = b""
    for p in pieces:
        size = b"%X" % len(p) if upper else b"%x" % len(p)
        out += size + extension + b"\r\n" + p + b"\r\n"
    return out + b"0" + extension + b"\r\n" + trailers + b"\r\n"


def send_chunked(gw, body, request_id=None, c=None):
    c.send_all_it_takes(lines(*post_lines(gw, request_id or new_id(), "Transfer-Encoding: chunked", length=None)) + body)
    return c.read_answer()


@pytest.mark.parametrize("body", [
    chunked([BODY]), chunked([BODY[:1], BODY[1:7], BODY[7:]]), chunked([BODY], b";a=b"), chunked([BODY], b';a="b c"'), chunked([BODY], b";"),
    chunked([BODY], trailers=b"X-T: 1\r\nX-U: 2\r\n"), chunked([BODY], upper=True), b"0000" + chunked([BODY])], ids=[
    "one", "three", "extension", "quoted extension", "empty extension", "trailers", "upper case", "leading zeros"])
def test_chunked_bodies(gw, body):
    with gw.connect() as c:
        for _ in range(2):  # and the connection is still in step afterwards
            request_id = new_id()
            answer = send_chunked(gw, body, request_id, c)
            assert answer.status == 200 and answer.header("Plimsoll-Request-Id") == request_id, answer
            assert not answer.closes


def test_empty_chunked_body_is_an_empty_body(gw):
    with gw.connect() as c:
        refused_http(send_chunked(gw, b"0\r\n\r\n", ID := new_id(), c), 400, "invalid_argument", ID)


def test_many_small_chunks(gw):
    with gw.connect() as c:
        assert send_chunked(gw, chunked([bytes([b]) for b in BODY]), c=c).status == 200


def test_trailers_change_nothing(gw):
    with gw.connect() as c:
        answer = send_chunked(gw, chunked([BODY], trailers=b"Plimsoll-Request-Id: " + b"f" * 32 + b"\r\nContent-Length: 5\r\n"), ID := new_id(), c)
        assert answer.status == 200 and answer.header("Plimsoll-Request-Id") == ID


BAD_CHUNKED = {
    "no size": b"\r\n" + BODY, "not hex": b"g\r\n", "0x": b"0x2f\r\n" + BODY, "negative": b"-1\r\n", "plus": b"+5\r\nabcde\r\n", "space ahead": b" 5\r\n",
    "space behind": b"5 \r\nabcde\r\n0\r\n\r\n", "tab behind": b"5\t\r\nabcde\r\n0\r\n\r\n", "bare LF size": b"2f\n" + BODY + b"\r\n0\r\n\r\n",
    "bare LF data": b"5\r\nabcde\n0\r\n\r\n", "bare CR": b"5\rabcde", "LF in an extension": b"5;a\nb\r\nabcde\r\n0\r\n\r\n",
    "CR in an extension": b"5;a\rb\r\n", "NUL in an extension": b"5;\x00\r\n", "data too long": b"5\r\nabcdef\r\n0\r\n\r\n",
    "data too short": b"6\r\nabcde\r\n0\r\n\r\n", "size too large": b"ffffffffffffffff\r\n", "17 digits": b"0" * 16 + b"5\r\nabcde\r\n0\r\n\r\n",
    "extension over 256": b"5;" + b"x" * 260 + b"\r\nabcde\r\n0\r\n\r\n", "17 trailers": chunked([BODY], trailers=b"X: y\r\n" * 17),
    "bare LF trailer": b"0\r\nX: y\n\r\n", "long trailer": b"0\r\nX: " + b"y" * 300 + b"\r\n\r\n", "bare LF end": b"0\r\n\n", "comma": b"5,5\r\nabcde\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("name", BAD_CHUNKED)
def test_malformed_chunked_bodies(gw, name):
    request_id = new_id()
    before = gw.metric("plimsoll_runs_total")
    with gw.connect() as c:
        answer = send_chunked(gw, BAD_CHUNKED[name], request_id, c)
        refused_http(answer, 400, "invalid_argument", request_id)
        assert answer.closes and c.is_closed_within()
    assert gw.metric("plimsoll_runs_total") == before


def test_up_to_16_trailers(gw):
    with gw.connect() as c:
        assert send_chunked(gw, chunked([BODY], trailers=b"X: y\r\n" * 16), c=c).status == 200


@pytest.mark.parametrize("cut", ["in the size", "in the data", "before the end"])
def test_chunked_body_cut_by_a_half_close(gw, cut):
    whole = chunked([BODY])
    data = {"in the size": whole[:1], "in the data": whole[:20], "before the end": whole[:-2]}[cut]
    before = gw.metric("plimsoll_runs_total")
    with gw.connect() as c:
        c.send(lines(*post_lines(gw, new_id(), "Transfer-Encoding: chunked", length=None)) + data)
        c.half_close()
        assert c.is_closed_within()
    assert gw.metric("plimsoll_runs_total") == before


def test_declared_body_cut_by_a_half_close(gw):
    before = gw.metric("plimsoll_runs_total")
    with gw.connect() as c:
        c.send(lines(*post_lines(gw, new_id())) + BODY[:-1])
        c.half_close()
        assert c.is_closed_within()
    assert gw.metric("plimsoll_runs_total") == before


def test_chunked_body_of_8_mib_raw(gw):
    """The limit is of the raw body: one chunk's framing is 8 + 2 + 5 bytes."""
    text = BODY + b" " * (BODY_MAX - 15 - len(BODY))
    body = b"%06x\r\n" % len(text) + text + b"\r\n0\r\n\r\n"
    assert len(body) == BODY_MAX
    with gw.connect() as c:
        assert send_chunked(gw, body, c=c).status == 200
    text += b" "
    request_id = new_id()
    with gw.connect() as c:
        answer = send_chunked(gw, b"%06x\r\n" % len(text) + text + b"\r\n0\r\n\r\n", request_id, c)
        refused_http(answer, 429, "resource_exhausted", request_id)
        assert answer.closes and c.is_closed_within()


def test_chunked_body_without_end(gw):
    request_id = new_id()
    with gw.connect() as c:
        c.send_all_it_takes(lines(*post_lines(gw, request_id, "Transfer-Encoding: chunked", length=None)))
        c.send_all_it_takes((b"10000\r\n" + b" " * 65536 + b"\r\n") * 140)
        answer = c.read_answer()
        refused_http(answer, 429, "resource_exhausted", request_id)
        assert answer.closes and c.is_closed_within()


# -- Expect --


def test_expect_100_continue(gw):
    with gw.connect() as c:
        for _ in range(2):
            c.send(lines(*post_lines(gw, new_id(), "Expect: 100-continue")))
            assert c.read_informational() == 100
            c.send(BODY)
            answer = c.read_answer()
            assert answer.status == 200 and not answer.informational


def test_expect_100_continue_of_a_chunked_body(gw):
    with gw.connect() as c:
        c.send(lines(*post_lines(gw, new_id(), "Expect: 100-Continue", "Transfer-Encoding: chunked", length=None)))
        assert c.read_informational() == 100
        c.send(chunked([BODY]))
        assert c.read_answer().status == 200


def test_expect_is_not_answered_when_the_body_came_along(gw):
    with gw.connect() as c:
        c.send(lines(*post_lines(gw, new_id(), "Expect: 100-continue")) + BODY)
        assert c.read_answer().status == 200


def test_expect_of_a_refused_request_gets_the_refusal_alone(gw):
    with gw.connect() as c:
        request_id = new_id()
        c.send(lines(*post_lines(gw, request_id, "Expect: 100-continue", length=BODY_MAX + 1)))
        answer = c.read_answer()
        refused_early(answer, "resource_exhausted", "request", request_id)
        assert not answer.informational and answer.closes and c.is_closed_within()


def test_expect_without_a_body(gw):
    with gw.connect() as c:
        c.send(lines("GET /healthz HTTP/1.1", "Host: gw", "Expect: 100-continue"))
        assert c.read_answer().status == 200


# -- HTTP/1.0 and HEAD --


def test_http_1_0_ends_the_connection(gw):
    with gw.connect() as c:
        c.send(lines(*post_lines(gw, new_id(), version="HTTP/1.0")) + BODY)
        answer = c.read_answer()
        assert answer.status == 200 and answer.closes and c.is_closed_within()


def test_http_1_0_without_host(gw):
    with gw.connect() as c:
        c.send(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert c.read_answer().status == 200 and c.is_closed_within()


def test_http_1_0_keep_alive(gw):
    with gw.connect() as c:
        for _ in range(3):
            c.send(lines(*post_lines(gw, new_id(), "Connection: Keep-Alive", version="HTTP/1.0")) + BODY)
            answer = c.read_answer()
            assert answer.status == 200 and answer.header("Connection").lower() == "keep-alive"


def test_http_1_0_has_no_transfer_encoding(gw):
    request_id = new_id()
    is_refused(gw, lines(*post_lines(gw, request_id, "Transfer-Encoding: chunked", length=None, version="HTTP/1.0")) + chunked([BODY]), request_id)


def test_http_1_0_gets_no_100_continue(gw):
    with gw.connect() as c:
        c.send(lines(*post_lines(gw, new_id(), "Expect: 100-continue", version="HTTP/1.0")) + BODY)
        answer = c.read_answer()
        assert answer.status == 200 and not answer.informational


@pytest.mark.parametrize("value", ["close", "Close", "x, close", "close, x", "keep-alive, close"])
def test_connection_close(gw, value):
    with gw.connect() as c:
        c.send(lines("GET /healthz HTTP/1.1", "Host: gw", f"Connection: {value}"))
        answer = c.read_answer()
        assert answer.status == 200 and answer.closes and c.is_closed_within()


def test_head(gw):
    with gw.connect() as c:
        for _ in range(3):
            c.send(lines("HEAD /healthz HTTP/1.1", "Host: gw"))
            answer = c.read_answer(head_only=True)
            assert answer.status == 200 and answer.header("Content-Length") == "3"
        c.send(lines("GET /healthz HTTP/1.1", "Host: gw"))
        assert c.read_answer().body == b"ok\n"


@pytest.mark.parametrize("path, status", [("/nothing", 404), (RUN, 405)])
def test_head_of_what_is_refused_has_no_body(gw, path, status):
    """A body after a HEAD would be read as the next answer."""
    with gw.connect() as c:
        for _ in range(2):
            c.send(g.head(path, gw.headers(), "HEAD"))
            answer = c.read_answer(head_only=True)
            assert answer.status == status, answer
        c.send(lines("GET /healthz HTTP/1.1", "Host: gw"))
        assert c.read_answer().body == b"ok\n"


def test_upgrade_is_ignored(gw):
    with gw.connect() as c:
        c.send(lines("GET /healthz HTTP/1.1", "Host: gw", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"))
        answer = c.read_answer()
        assert answer.status == 200 and answer.body == b"ok\n"
        c.send(lines("GET /healthz HTTP/1.1", "Host: gw"))
        assert c.read_answer().status == 200


def test_a_client_that_leaves_in_the_middle_of_anything(gw):
    whole = lines(*post_lines(gw, new_id())) + BODY
    for n in range(0, len(whole), 7):
        for leave in ("close", "reset"):
            with gw.connect() as c:
                c.send(whole[:n])
                getattr(c, leave)()
    gw.wait_inflight(0)
    gw.wait_metric("plimsoll_buffered_bytes", 0)
    gw.ok("1")


def test_nothing_is_sent_without_a_request(gw):
    with gw.connect() as c:
        c.half_close()
        assert c.is_closed_within()
    with gw.connect() as c:
        c.sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            c.sock.recv(1)


def test_closed_is_told_from_an_answer():
    """The harness itself: an answer cut short is no answer."""
    import socket
    import threading
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def serve():
            s, _ = listener.accept()
            s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort")
            s.close()
        threading.Thread(target=serve, daemon=True).start()
        with g.Connection(listener.getsockname()[1]) as c, pytest.raises(Closed):
            c.read_answer()
