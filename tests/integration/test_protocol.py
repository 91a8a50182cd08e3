"""The wire protocol, seen from outside: each behaviour of the specification with its exact code, mark, header and echo."""
import base64
import gzip
import json
import re
import time

import pytest

import gateway as g
from gateway import BODY_MAX, DESCRIBE, RUN, SERVICE, field, javascript, new_id, refused, refused_early, refused_http

ID = "0123456789abcdef0123456789abcdef"
IDENTITY = "oci-manifest:linux/amd64@sha256:" + "a" * 64


# -- spec 1.5: the echo and the header's mark --


def test_malformed_json_is_marked_by_the_header(gw):
    request_id = new_id()
    refused_http(gw.post(RUN, b"{", request_id), 400, "invalid_argument", request_id)


def test_body_over_the_limit_is_429_with_both_marks(gw):
    request_id = new_id()
    with gw.connect() as c:
        c.send(g.head(RUN, gw.headers(request_id) + [("Content-Length", str(BODY_MAX + 1))]))
        answer = c.read_answer()
        refused_early(answer, "resource_exhausted", "request", request_id)
        assert answer.closes and str(BODY_MAX) in answer.message
        assert c.is_closed_within()


def test_unknown_content_type_is_415(gw):
    request_id = new_id()
    answer = gw.post(RUN, javascript(), request_id, content_type="text/plain")
    refused_http(answer, 415, "invalid_argument", request_id)
    assert answer.header("Accept-Post") == "application/json, application/proto"


def test_unknown_procedure_without_authentication_is_404(open_gw):
    request_id = new_id()
    for name in ("Nothing", "run", "", "Run/", "Describe/x"):
        refused_http(open_gw.post(SERVICE + name, {}, request_id), 404, "unimplemented", request_id, mark="unsupported")


def test_unknown_procedure_with_authentication_is_403(gw):
    request_id = new_id()
    for name in ("Nothing", "run", "", "Run/", "Describe/x"):
        refused_early(gw.post(SERVICE + name, {}, request_id), "permission_denied", "permission", request_id)


def test_refusal_by_the_procedure_has_a_detail_and_no_header(gw):
    request_id = new_id()
    refused(gw.post(RUN, {"javascript": {"code": "1"}}, request_id), "invalid_argument", "protocol", request_id)


def test_missing_token_is_401(gw):
    request_id = new_id()
    answer = gw.post(RUN, javascript(), request_id, token="")
    refused_early(answer, "unauthenticated", "permission", request_id)
    assert answer.header("WWW-Authenticate").startswith("Bearer")


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_echoes_the_id_and_needs_no_token(gw, path):
    request_id = new_id()
    answer = gw.get(path, token="", request_id=request_id)
    assert answer.status == 200 and answer.body == {"/healthz": b"ok\n", "/readyz": b"ready\n"}[path]
    assert answer.header("Plimsoll-Request-Id") == request_id
    assert answer.header("Plimsoll-Not-Dispatched") is None


@pytest.mark.parametrize("values", [
    [], [ID.upper()], [ID[:-1]], [ID + "0"], ["g" + ID[1:]], [""], [ID, ID], [ID, "f" * 32], [ID + ", " + ID], [ID[:-1] + " "]],
    ids=["none", "upper case", "31", "33", "not hex", "empty", "twice the same", "two", "a list", "31 and a space"])
def test_other_than_one_valid_id_is_neither_echoed_nor_refused(gw, values):
    more = [("Plimsoll-Request-Id", v) for v in values]
    answer = gw.run(headers=more)
    assert answer.status == 200 and answer.header("Plimsoll-Request-Id") is None, answer
    g.check_record(javascript(), answer)
    # nor is a refusal marked for an ID that was not taken
    assert gw.post(RUN, b"{", more=more).header("Plimsoll-Request-Id") is None


def test_spaces_around_the_id_are_not_part_of_it(gw):
    assert gw.run(headers=[("Plimsoll-Request-Id", f"  {ID[::-1]}\t")]).header("Plimsoll-Request-Id") == ID[::-1]


def test_success_has_no_mark(gw):
    answer = gw.ok("1", new_id())
    assert answer.header("Plimsoll-Not-Dispatched") is None and "details" not in answer.json()


# -- media types --


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8", "application/json;charset=utf-8",
                                          "application/json; charset=UTF-8", "Application/JSON", 'application/json; charset="utf-8"'])
def test_json_media_types(gw, content_type):
    answer = gw.post(RUN, javascript(), content_type=content_type)
    assert answer.status == 200, answer
    assert answer.header("Content-Type").split(";")[0] == "application/json"
    g.check_record(javascript(), answer)


@pytest.mark.parametrize("content_type", [
    "text/plain", "application/json; charset=latin-1", "application/jsonx", "application/connect+json", "application/connect+proto",
    "application/grpc", "application/grpc-web+proto", "application/x-protobuf", "application/protobuf", "text/json", "json", "*/*",
    "application/json, application/proto", "application/proto; charset=utf-8"])
def test_other_media_types_are_415(gw, content_type):
    answer = gw.post(RUN, javascript(), content_type=content_type)
    refused_http(answer, 415, "invalid_argument")
    assert answer.header("Accept-Post") == "application/json, application/proto"


def test_no_media_type_and_two_are_415(gw):
    refused_http(gw.post(RUN, javascript(), content_type=None), 415, "invalid_argument")
    refused_http(gw.post(RUN, javascript(), more=[("Content-Type", "application/json")]), 415, "invalid_argument")


def test_errors_are_json_whatever_the_codec(gw):
    answer = gw.post(RUN, field(1, 9), content_type="application/proto")
    refused(answer, "unimplemented", "protocol")
    refused_http(gw.post(RUN, b"\xff", content_type="application/proto"), 400, "invalid_argument")


# -- content encodings --


def gzipped(gw, body, **more):
    return gw.post(RUN, body, more=[("Content-Encoding", "gzip")], **more)


def test_gzip_body(gw):
    sent = javascript("console.log('☕'.repeat(3))")
    answer = gzipped(gw, gzip.compress(json.dumps(sent).encode()))
    assert answer.status == 200 and g.stdout(answer) == "☕☕☕\n".encode()
    g.check_record(sent, answer)


def test_gzip_body_of_several_members(gw):
    sent = javascript("console.log(1)")
    text = json.dumps(sent).encode()
    answer = gzipped(gw, gzip.compress(text[:7]) + gzip.compress(text[7:20]) + gzip.compress(text[20:]) + gzip.compress(b""))
    assert answer.status == 200, answer
    g.check_record(sent, answer)


def test_gzip_of_a_binary_body(gw):
    body = gzip.compress(field(1, 4) + field(10, field(1, "1")))
    assert gzipped(gw, body, content_type="application/proto").status == 200


@pytest.mark.parametrize("how", ["not gzip", "flipped", "cut", "cut trailer", "garbage behind", "cut second member", "zlib"])
def test_bad_gzip_is_malformed(gw, how):
    import zlib
    text = json.dumps(javascript("x" * 3000)).encode()
    good = gzip.compress(text)
    bad = {"not gzip": text, "flipped": good[:20] + bytes([good[20] ^ 0xff]) + good[21:], "cut": good[:len(good) // 2],
           "cut trailer": good[:-4], "garbage behind": good + b"garbage", "cut second member": good + good[:15],
           "zlib": zlib.compress(text)}[how]
    request_id = new_id()
    refused_http(gzipped(gw, bad, request_id=request_id), 400, "invalid_argument", request_id)


def padded(size):
    """A request whose JSON is exactly `size` bytes; white space is free."""
    text = json.dumps(javascript("1")).encode()
    return text + b" " * (size - len(text))


@pytest.mark.parametrize("size", [BODY_MAX - 1, BODY_MAX])
def test_message_up_to_8_mib_after_decompression(gw, size):
    answer = gzipped(gw, gzip.compress(padded(size), 1))
    assert answer.status == 200, answer


@pytest.mark.parametrize("size", [BODY_MAX + 1, 64 * g.MIB])
def test_message_over_8_mib_after_decompression_is_429(gw, size):
    request_id = new_id()
    answer = gzipped(gw, gzip.compress(padded(size), 1), request_id=request_id)
    refused_http(answer, 429, "resource_exhausted", request_id)


def test_many_members_that_add_up_over_8_mib_are_429(gw):
    refused_http(gzipped(gw, gzip.compress(b" " * g.MIB) * 9), 429, "resource_exhausted")


@pytest.mark.parametrize("encoding", ["identity", "Identity"])
def test_identity_encoding(gw, encoding):
    assert gw.post(RUN, javascript(), more=[("Content-Encoding", encoding)]).status == 200


@pytest.mark.parametrize("encoding", ["br", "deflate", "zstd", "gzip, gzip", "x"])
def test_unknown_encoding_is_501(gw, encoding):
    request_id = new_id()
    refused_http(gw.post(RUN, javascript(), request_id, more=[("Content-Encoding", encoding)]), 501, "unimplemented", request_id)


def test_answers_are_not_compressed(gw):
    answer = gw.run(headers=[("Accept-Encoding", "gzip, br")])
    assert answer.status == 200 and answer.header("Content-Encoding") is None


# -- Connect's own headers --


def test_connect_protocol_version_1_is_accepted(gw):
    assert gw.run(headers=[("Connect-Protocol-Version", "1")]).status == 200


@pytest.mark.parametrize("values", [["2"], ["0"], [""], ["01"], ["1.0"], ["1", "1"]])
def test_other_connect_protocol_versions_are_refused(gw, values):
    request_id = new_id()
    answer = gw.run(request_id=request_id, headers=[("Connect-Protocol-Version", v) for v in values])
    refused_http(answer, 400, "invalid_argument", request_id)


@pytest.mark.parametrize("values", [["abc"], ["-1"], ["+1"], ["1.5"], [""], ["12345678901"], ["1 0"], ["1e3"], ["5000", "5000"], ["0x10"]])
def test_malformed_connect_timeout_is_refused(gw, values):
    request_id = new_id()
    answer = gw.run(request_id=request_id, headers=[("Connect-Timeout-Ms", v) for v in values])
    refused_http(answer, 400, "invalid_argument", request_id)


@pytest.mark.parametrize("value", ["60000", "9999999999", "0000060000"])
def test_connect_timeouts_of_up_to_ten_digits(gw, value):
    assert gw.run(headers=[("Connect-Timeout-Ms", value)]).status == 200


def test_caller_deadline_stops_a_run_and_is_unmarked(gw):
    before = gw.metrics()
    request_id = new_id()
    began = time.monotonic()
    answer = gw.run("for(;;);", request_id, timeoutMs=20000, headers=[("Connect-Timeout-Ms", "400")])
    took = time.monotonic() - began
    g.failed(answer, "deadline_exceeded", request_id)
    assert 0.4 <= took < 3, took
    gw.wait_inflight(0)
    after = gw.metrics()
    assert after['plimsoll_canceled_total{cause="caller_deadline"}'] == before['plimsoll_canceled_total{cause="caller_deadline"}'] + 1
    # the deadline was the caller's, so nothing of ours failed
    assert after["plimsoll_runs_failed_total"] == before["plimsoll_runs_failed_total"]
    stored = gw.get("/v1/runs/" + answer.header("Plimsoll-Run-Id")).json()
    assert (stored["verdict"], stored["unanswered"], stored["canceled"]) == ("unknown", "deadline_exceeded", True)
    # the ID stays taken: what it did is not known, and it is not run again
    g.failed(gw.run("for(;;);", request_id, timeoutMs=20000), "deadline_exceeded", request_id)
    assert gw.metric("plimsoll_runs_total") == before["plimsoll_runs_total"] + 1


# -- JSON forms --


@pytest.mark.parametrize("text, sent", [
    ('{"protocol":4,"minimum_isolation":"process","timeout_ms":900,"trace_id":"t","javascript":{"code":"1","grant_profile":""}}',
     javascript("1", minimumIsolation="process", timeoutMs=900)),
    ('{"protocol":"4","timeoutMs":"900","javascript":{"code":"1"}}', javascript("1", timeoutMs=900)),
    ('{"protocol":4.0,"timeoutMs":9e2,"javascript":{"code":"1"}}', javascript("1", timeoutMs=900)),
    ('{"protocol":4,"timeoutMs":-0,"javascript":{"code":"1"}}', javascript("1")),
    ('{"protocol":4,"timeoutMs":-5,"javascript":{"code":"1"}}', javascript("1", timeoutMs=-5)),
    (' \t\r\n{ "javascript" : { "code" : "1" } , "protocol" : 4 } \n', javascript("1")),
    ('{"protocol":4,"nothing":{"a":[1,null,{"b":"\\ud83d\\ude00"}]},"x":NULLX,"javascript":{"code":"1","y":[]}}'.replace("NULLX", "null"),
     javascript("1")),
    ('{"protocol":4,"minimumIsolation":null,"softwareRule":null,"project":null,"javascript":{"code":"1","grantProfile":null}}',
     javascript("1")),
    ('{"protocol":4,"softwareRule":{},"javascript":{"code":"1"}}', javascript("1", softwareRule={})),
    ('{"protocol":4,"softwareRule":{"mode":"","identities":[]},"javascript":{"code":"1"}}', javascript("1", softwareRule={})),
    ('{"protocol":4,"javascript":{"code":"\\u0063onsole.log(\\"\\\\u2615\\ud83d\\ude00\\")"}}', javascript('console.log("\\u2615😀")')),
], ids=["snake case", "numbers as text", "numbers with exponent", "minus zero", "negative timeout", "white space", "unknown members",
        "null is absent", "empty rule object", "empty rule", "escapes"])
def test_json_forms(gw, text, sent):
    answer = gw.post(RUN, text)
    assert answer.status == 200, answer
    g.check_record(sent, answer)


MALFORMED = {
    "empty": b"", "white space": b"  \n", "array": b"[]", "text": b'"x"', "number": b"1", "null": b"null", "true": b"true",
    "open object": b'{"protocol":4', "trailing comma": b'{"protocol":4,}', "behind": b"{} {}", "behind text": b"{}x",
    "single quotes": b"{'protocol':4}", "comment": b'{"protocol":4/**/}', "unquoted": b"{protocol:4}",
    "twice": b'{"protocol":4,"protocol":4,"javascript":{"code":"1"}}',
    "twice in both spellings": b'{"protocol":4,"timeoutMs":1,"timeout_ms":1,"javascript":{"code":"1"}}',
    "twice by escape": b'{"protocol":4,"\\u0070rotocol":4,"javascript":{"code":"1"}}',
    "twice with null": b'{"protocol":4,"timeoutMs":null,"timeoutMs":5,"javascript":{"code":"1"}}',
    "payload twice": b'{"protocol":4,"javascript":{"code":"1"},"javascript":{"code":"2"}}',
    "two payloads": b'{"protocol":4,"javascript":{"code":"1"},"project":{"steps":["x"]}}',
    "two empty payloads": b'{"protocol":4,"project":{},"module":{}}',
    "code twice": b'{"protocol":4,"javascript":{"code":"1","code":"1"}}',
    "bad UTF-8": b'{"protocol":4,"javascript":{"code":"\xff"}}', "cut UTF-8": b'{"protocol":4,"javascript":{"code":"\xe2\x98"}}',
    "overlong UTF-8": b'{"protocol":4,"javascript":{"code":"\xc0\xaf"}}',
    "surrogate in UTF-8": b'{"protocol":4,"javascript":{"code":"\xed\xa0\x80"}}',
    "bad UTF-8 in an unknown member": b'{"protocol":4,"x":"\xff","javascript":{"code":"1"}}',
    "lone high surrogate": b'{"protocol":4,"javascript":{"code":"\\ud800"}}',
    "lone low surrogate": b'{"protocol":4,"javascript":{"code":"\\udc00"}}',
    "swapped surrogates": b'{"protocol":4,"javascript":{"code":"\\ude00\\ud83d"}}',
    "NUL": b'{"protocol":4,"javascript":{"code":"a\\u0000b"}}', "raw control": b'{"protocol":4,"javascript":{"code":"a\nb"}}',
    "bad escape": b'{"protocol":4,"javascript":{"code":"\\x41"}}', "short escape": b'{"protocol":4,"javascript":{"code":"\\u00"}}',
    "code a number": b'{"protocol":4,"javascript":{"code":1}}', "code an object": b'{"protocol":4,"javascript":{"code":{}}}',
    "payload a text": b'{"protocol":4,"javascript":"1"}', "payload an array": b'{"protocol":4,"javascript":[]}',
    "protocol a fraction": b'{"protocol":4.5,"javascript":{"code":"1"}}', "protocol negative": b'{"protocol":-1,"javascript":{"code":"1"}}',
    "protocol over 32 bits": b'{"protocol":4294967296,"javascript":{"code":"1"}}',
    "protocol a word": b'{"protocol":"four","javascript":{"code":"1"}}', "protocol spaced": b'{"protocol":" 4","javascript":{"code":"1"}}',
    "protocol true": b'{"protocol":true,"javascript":{"code":"1"}}', "leading zero": b'{"protocol":04,"javascript":{"code":"1"}}',
    "plus": b'{"protocol":+4,"javascript":{"code":"1"}}', "hex": b'{"protocol":0x4,"javascript":{"code":"1"}}',
    "timeout over 31 bits": b'{"protocol":4,"timeoutMs":2147483648,"javascript":{"code":"1"}}',
    "timeout under 31 bits": b'{"protocol":4,"timeoutMs":-2147483649,"javascript":{"code":"1"}}',
    "timeout NaN": b'{"protocol":4,"timeoutMs":"NaN","javascript":{"code":"1"}}', "bare NaN": b'{"protocol":NaN}',
    "bare Infinity": b'{"protocol":4,"x":Infinity,"javascript":{"code":"1"}}',
    "null in a list": b'{"protocol":4,"project":{"steps":[null]}}', "list a text": b'{"protocol":4,"project":{"steps":"x"}}',
    "byte order mark": b'\xef\xbb\xbf{"protocol":4,"javascript":{"code":"1"}}',
    "deep": b'{"protocol":4,"x":' + b"[" * 100000 + b"]" * 100000 + b"}",
    "deep objects": b'{"x":' * 1000 + b"1" + b"}" * 1000,
    "UTF-16": '{"protocol":4}'.encode("utf-16"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_json(gw, name):
    request_id = new_id()
    answer = gw.post(RUN, MALFORMED[name], request_id)
    refused_http(answer, 400, "invalid_argument", request_id)


def test_malformed_json_names_the_field(gw):
    for text, name in (('{"protocol":4,"timeoutMs":2147483648}', "timeout"), ('{"protocol":4,"javascript":{"code":7}}', "code")):
        assert name in gw.post(RUN, text).message


def test_doubles_in_every_form_reach_the_checks(gw):
    def module(values, end="1", step="0.1"):
        return gw.post(RUN, '{"protocol":4,"module":{"model":"M","rows":[{"values":[%s]}],"endTime":%s,"step":%s}}' % (values, end, step))
    for values in ('-0', '"-0"', '1e308', '"1.5"', '5e-324', '-0.0', '0'):
        refused(module(values), "unimplemented", "unsupported")
    for values in ('"NaN"', '"Infinity"', '"-Infinity"'):
        refused(module(values), "invalid_argument", "request")
        refused(module("1", end=values), "invalid_argument", "request")
        refused(module("1", step=values), "invalid_argument", "request")
    for values in ('NaN', 'Infinity', '"nan"', '"inf"', '1e309', '".5"', '1.', '"1_0"', '""', 'true'):
        refused_http(module(values), 400, "invalid_argument")


# -- the binary form --


def binary(gw, body, path=RUN, **more):
    return gw.post(path, body, content_type="application/proto", **more)


@pytest.mark.parametrize("protocol, version", [(3, 2), (4, 4)])
def test_binary_run(gw, protocol, version):
    request_id = new_id()
    code = "console.log('☕'); throw new Error('e')"
    answer = binary(gw, field(1, protocol) + field(2, "process") + field(4, 2000) + field(10, field(1, code)), request_id=request_id)
    assert answer.status == 200 and answer.header("Content-Type") == "application/proto", answer
    assert answer.header("Plimsoll-Request-Id") == request_id
    got = g.fields(answer.body)
    assert got[1] == [b"wasm"] and got[2] == [b"process"]
    result = g.fields(got[10][0])
    assert result[1] == ["☕\n".encode()] and b"Error: e" in result[2][0] and result[3] == [1]
    record = g.fields(got[4][0])
    assert record[1] == [version] and record[4] == [b"wasm"]
    # the same run in JSON: a replay of the stored answer, whose record must be the same and hold
    sent = javascript(code, protocol, minimumIsolation="process", timeoutMs=2000)
    replay = gw.post(RUN, sent, request_id)
    assert replay.header("Plimsoll-Replayed") == "1"
    checked = g.check_record(sent, replay)
    assert record[2][0].decode() == checked.request_sha256 and record[3][0].decode() == checked.result_sha256
    assert record[13][0].decode() == checked.sha256


def test_binary_describe_takes_an_empty_body(gw):
    answer = binary(gw, b"", DESCRIBE)
    assert answer.status == 200 and answer.header("Content-Type") == "application/proto"
    got = g.fields(answer.body)
    assert got[1] == [b"wasm"] and got[2] == [b"process"] and got[9] == [4]
    assert {10, 11, 12, 13} <= set(got)


def test_empty_bodies(gw):
    refused(binary(gw, b""), "invalid_argument", "protocol")
    refused_http(gw.post(DESCRIBE, b""), 400, "invalid_argument")
    assert gw.post(DESCRIBE, b"{}").status == 200


def test_binary_skips_unknown_fields_and_takes_the_last_of_a_oneof(gw):
    body = (field(1, 2) + field(99, 7) + field(98, b"abc") + field(97, 1.5) + field(11, field(2, "x")) + field(10, field(1, "bad(")) +
            field(11, field(2, "y")) + field(10, field(1, "console.log(5)")) + field(1, 4))
    answer = binary(gw, body)
    assert answer.status == 200 and g.fields(g.fields(answer.body)[10][0])[1] == [b"5\n"], answer


def test_binary_doubles_packed_and_not(gw):
    def module(row):
        return binary(gw, field(1, 4) + field(12, field(1, "M") + field(2, row) + field(3, 1.0) + field(4, 0.5)))
    import struct
    packed = field(1, struct.pack("<2d", 1.0, 2.0))
    refused(module(packed), "unimplemented", "unsupported")
    refused(module(field(1, 1.0) + field(1, 2.0)), "unimplemented", "unsupported")
    refused(module(field(1, struct.pack("<d", float("nan")))), "invalid_argument", "request")


@pytest.mark.parametrize("name, body", [
    ("cut", field(1, 4) + b"\x52\x05\x0a"), ("bad varint", b"\x08" + b"\xff" * 11), ("group", b"\x0b\x0c"), ("field 0", b"\x00\x01"),
    ("wire type 6", b"\x0e"), ("bad UTF-8", field(1, 4) + field(10, field(1, b"\xff"))), ("NUL", field(1, 4) + field(10, field(1, b"a\0b"))),
    ("bad UTF-8 in the floor", field(1, 4) + field(2, b"\xc0\xaf") + field(10, field(1, "1"))),
    ("wrong wire type", field(1, b"4") + field(10, field(1, "1"))), ("JSON", b'{"protocol":4}'),
    ("length over the end", b"\x52\xff\xff\xff\xff\x0f"), ("packed doubles of 7 bytes", field(1, 4) + field(12, field(2, field(1, b"1234567"))))])
def test_malformed_binary(gw, name, body):
    request_id = new_id()
    refused_http(binary(gw, body, request_id=request_id), 400, "invalid_argument", request_id)


# -- the protocol number --


@pytest.mark.parametrize("protocol", [1, 2, 5, 6, 4294967295])
def test_other_protocol_numbers_are_unimplemented(gw, protocol):
    request_id = new_id()
    for path in ("Run", "OpenSession", "SessionRun", "CloseSession"):
        # the number is looked at before anything else in the message
        body = {"protocol": protocol, "minimumIsolation": "bogus"} if path != "CloseSession" else {"protocol": protocol}
        refused(gw.post(SERVICE + path, body, request_id), "unimplemented", "protocol", request_id)


def test_no_protocol_number_is_invalid(gw):
    for path in ("Run", "OpenSession", "SessionRun", "CloseSession"):
        for body in ({}, {"protocol": 0}, {"protocol": None}):
            refused(gw.post(SERVICE + path, body), "invalid_argument", "protocol")


@pytest.mark.parametrize("protocol, version", [(3, 2), (4, 4)])
def test_record_version_follows_the_protocol_number(gw, protocol, version):
    answer = gw.ok("console.log('x'); throw new Error('y')", new_id(), protocol=protocol, timeoutMs=3000, minimumIsolation="process")
    assert answer.json()["record"]["version"] == version


# -- floors --


@pytest.mark.parametrize("floor", ["", "process"])
def test_floors_that_are_met(gw, floor):
    gw.ok("1", minimumIsolation=floor)


@pytest.mark.parametrize("floor", ["container", "kernel", "vm"])
def test_floors_that_are_not_met(gw, floor):
    before = gw.metric("plimsoll_runs_total")
    request_id = new_id()
    refused(gw.run(request_id=request_id, minimumIsolation=floor), "failed_precondition", "isolation", request_id)
    assert gw.metric("plimsoll_runs_total") == before


@pytest.mark.parametrize("floor", ["none", "unknown", "PROCESS", " process", "process ", "Vm", "microvm", "0", "x" * 5000])
def test_floors_that_are_none(gw, floor):
    answer = gw.run(minimumIsolation=floor)
    refused(answer, "invalid_argument", "request")
    assert "minimum_isolation" in answer.message and "process" in answer.message


# -- software rules --


@pytest.mark.parametrize("rule", [
    {"mode": "exact", "identities": [IDENTITY]}, {"mode": "approved", "identities": [IDENTITY]},
    {"mode": "approved", "identities": [f"i{n}" for n in range(32)]}, {"mode": "exact", "identities": ["a" * 256]},
    {"mode": "exact", "identities": ["AZaz09._:/@+-"]}])
def test_rules_the_software_does_not_meet(gw, rule):
    request_id = new_id()
    refused(gw.run(request_id=request_id, softwareRule=rule), "failed_precondition", "environment", request_id)


@pytest.mark.parametrize("rule", [
    {"mode": "exact"}, {"mode": "exact", "identities": ["a", "b"]}, {"mode": "approved"}, {"mode": "", "identities": ["a"]},
    {"mode": "approved", "identities": [f"i{n}" for n in range(33)]}, {"mode": "EXACT", "identities": ["a"]},
    {"mode": "any", "identities": ["a"]}, {"mode": "approved", "identities": ["a", "b", "a"]}, {"mode": "exact", "identities": [""]},
    {"mode": "exact", "identities": ["a" * 257]}, {"mode": "exact", "identities": ["a b"]}, {"mode": "exact", "identities": ["a,b"]},
    {"mode": "exact", "identities": ["é"]}, {"mode": "exact", "identities": ["a\n"]}])
def test_malformed_rules(gw, rule):
    answer = gw.run(softwareRule=rule)
    refused(answer, "invalid_argument", "request")
    assert "software_rule" in answer.message


# -- the order of the checks --


def test_order_of_checks(gw):
    bad_rule, some_rule = {"mode": "x"}, {"mode": "exact", "identities": ["a"]}

    def run(reason, code, **request):
        refused(gw.post(RUN, request), code, reason)
    run("protocol", "invalid_argument", minimumIsolation="x", softwareRule=bad_rule)
    run("protocol", "unimplemented", protocol=9, minimumIsolation="x", softwareRule=bad_rule, cell={})
    # form before evidence
    answer = gw.post(RUN, {"protocol": 4, "minimumIsolation": "x", "softwareRule": bad_rule})
    assert "minimum_isolation" in answer.message
    answer = gw.post(RUN, {"protocol": 4, "minimumIsolation": "vm", "softwareRule": bad_rule})
    assert "software_rule" in answer.message
    run("request", "invalid_argument", protocol=4, minimumIsolation="vm", softwareRule=some_rule)
    run("request", "invalid_argument", protocol=4, minimumIsolation="vm", javascript={"code": ""})
    run("request", "invalid_argument", protocol=4, minimumIsolation="vm", cell={"language": "python", "code": "1"})
    # then the grant, the floor, the software, and only then whether the wall can do it
    run("permission", "permission_denied", protocol=4, minimumIsolation="vm", javascript={"code": "1", "grantProfile": "p"})
    run("isolation", "failed_precondition", protocol=4, minimumIsolation="vm", softwareRule=some_rule, javascript={"code": "1"})
    run("isolation", "failed_precondition", protocol=4, minimumIsolation="vm", project={"steps": ["x"]})
    run("environment", "failed_precondition", protocol=4, softwareRule=some_rule, project={"steps": ["x"]})
    run("unsupported", "unimplemented", protocol=4, project={"steps": ["x"]})


# -- payloads --


CODE_MAX = 262144


@pytest.mark.parametrize("size", [CODE_MAX - 1, CODE_MAX])
@pytest.mark.parametrize("form", ["json", "binary"])
def test_code_up_to_256_kib(gw, size, form):
    code = "console.log('end')//" + "x" * (size - 20)
    assert len(code) == size
    if form == "json":
        assert g.stdout(gw.ok(code)) == b"end\n"
    else:
        assert binary(gw, field(1, 4) + field(10, field(1, code))).status == 200


@pytest.mark.parametrize("form", ["json", "binary"])
def test_code_over_256_kib(gw, form):
    for code in ("//" + "x" * (CODE_MAX - 1), "//" + "é" * (CODE_MAX // 2)):
        assert len(code.encode()) > CODE_MAX
        answer = gw.run(code) if form == "json" else binary(gw, field(1, 4) + field(10, field(1, code)))
        refused(answer, "invalid_argument", "request")
        assert "javascript.code" in answer.message and str(CODE_MAX) in answer.message


def test_code_is_counted_in_bytes(gw):
    gw.ok("//" + "é" * (CODE_MAX // 2 - 1))


def test_empty_code(gw):
    refused(gw.run(""), "invalid_argument", "request")
    refused(gw.post(RUN, {"protocol": 4, "javascript": {}}), "invalid_argument", "request")


def test_no_payload_and_a_cell(gw):
    refused(gw.post(RUN, {"protocol": 4}), "invalid_argument", "request")
    refused(gw.post(RUN, {"protocol": 4, "cell": {"language": "python", "code": "1"}}), "invalid_argument", "request")


@pytest.mark.parametrize("length", [1, 128])
def test_grant_profiles_are_not_available(gw, length):
    profile = "p" * length
    texts = set()
    for body in ({"javascript": {"code": "1", "grantProfile": profile}}, {"project": {"steps": ["x"], "grantProfile": profile}}):
        answer = gw.post(RUN, {"protocol": 4, **body})
        refused(answer, "permission_denied", "permission")
        texts.add(answer.message)
    assert len(texts) == 1 and profile * 2 not in texts.pop()


def test_grant_profile_over_128_bytes(gw):
    for body in ({"javascript": {"code": "1", "grantProfile": "p" * 129}}, {"project": {"steps": ["x"], "grantProfile": "p" * 129}}):
        refused(gw.post(RUN, {"protocol": 4, **body}), "invalid_argument", "request")


def project(gw, **more):
    return gw.post(RUN, {"protocol": 4, "project": {"steps": ["true"], **more}})


def files(count, size=1):
    return [{"path": f"f{n}", "content": "x" * size} for n in range(count)]


@pytest.mark.parametrize("more", [
    {}, {"steps": [""]}, {"steps": ["x"] * 20}, {"steps": ["x" * 16384]}, {"files": files(200)}, {"files": files(4, g.MIB)},
    {"artifacts": [f"a{n}" for n in range(100)]}, {"artifacts": ["p" * 1024]}, {"files": [{"path": "é" * 512, "content": ""}]},
    {"files": [{"path": "a/b.c/d e", "content": ""}]}, {"artifacts": ["..."]}], ids=lambda m: ",".join(m) or "plain")
def test_projects_within_the_limits_are_unsupported(gw, more):
    request_id = new_id()
    answer = gw.post(RUN, {"protocol": 4, "project": {"steps": ["true"], **more}}, request_id)
    refused(answer, "unimplemented", "unsupported", request_id)


@pytest.mark.parametrize("more, names", [
    ({"steps": []}, "steps"), ({"steps": ["x"] * 21}, "steps"), ({"steps": ["x" * 16385]}, "steps[0]"), ({"files": files(201)}, "files"),
    ({"files": files(4, g.MIB) + files(1)[:0] + [{"path": "z", "content": "x"}]}, "files"),
    ({"files": [{"path": "a", "content": ""}, {"path": "a", "content": ""}]}, "files"), ({"artifacts": [f"a{n}" for n in range(101)]}, "artifacts"),
    ({"artifacts": ["a", "b", "a"]}, "artifacts"), ({"artifacts": ["p" * 1025]}, "artifacts[0]"), ({"artifacts": [""]}, "artifacts[0]"),
    *[({"artifacts": [p]}, "artifacts[0]") for p in ("/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a\\b", "a\nb", "a\x7fb", "a\u0085b", "\u009f")],
    *[({"files": [{"path": p, "content": ""}]}, "files[0]") for p in ("/etc/passwd", "../x", "a/./b", "")]])
def test_projects_beyond_the_limits(gw, more, names):
    answer = project(gw, **more)
    refused(answer, "invalid_argument", "request")
    assert names in answer.message


def module(gw, **more):
    return gw.post(RUN, {"protocol": 4, "module": {"model": "VanDerPol", "rows": [{"values": [1.0, 2.0]}], "endTime": 1.0, "step": 0.5, **more}})


def rows(count, width=1):
    return [{"values": [0.0] * width}] * count


@pytest.mark.parametrize("more", [
    {}, {"model": "M" * 64}, {"model": "0._-"}, {"rows": rows(1, 64)}, {"rows": rows(100000), "endTime": 7.0, "step": 1.0},
    {"rows": rows(3), "endTime": 349522.0, "step": 1.0}, {"endTime": 1000000.0, "step": 1.0}, {"rows": rows(1), "endTime": 5e-324, "step": 5e-324}], ids=lambda m: ",".join(m) or "plain")
def test_modules_within_the_limits_are_unsupported(gw, more):
    refused(module(gw, **more), "unimplemented", "unsupported")


@pytest.mark.parametrize("more, names", [
    ({"model": ""}, "model"), ({"model": "M" * 65}, "model"), ({"model": "-a"}, "model"), ({"model": "a/b"}, "model"), ({"model": "é"}, "model"),
    ({"rows": []}, "rows"), ({"rows": rows(1, 0)}, "rows"), ({"rows": rows(1, 65)}, "rows"), ({"rows": rows(100001)}, "rows"),
    ({"rows": rows(1, 2) + rows(1, 3)}, "rows[1]"), ({"endTime": 0.0}, "end_time"), ({"endTime": -1.0}, "end_time"), ({"step": 0.0}, "step"),
    ({"step": -1.0}, "step"), ({"endTime": 1000001.0, "step": 1.0}, "end_time"), ({"endTime": 1.0, "step": 5e-324}, "end_time"),
    # 20 + rows * (4 + 8 * (steps + 2)) <= 8388608: 100000 rows leave 83 bytes each, which 7 steps fit and 8 do not; 3 rows of 349522
    # steps are the limit to the byte
    ({"rows": rows(100000), "endTime": 8.0, "step": 1.0}, "result"), ({"rows": rows(3), "endTime": 349523.0, "step": 1.0}, "result")])
def test_modules_beyond_the_limits_say_so_first(gw, more, names):
    answer = module(gw, **more)
    refused(answer, "invalid_argument", "request")
    assert names in answer.message


def test_modules_beyond_the_limits_say_so_before_the_floor(gw):
    answer = gw.post(RUN, {"protocol": 4, "minimumIsolation": "vm", "module": {"model": "", "rows": rows(1), "endTime": 1, "step": 1}})
    refused(answer, "invalid_argument", "request")
    answer = gw.post(RUN, {"protocol": 4, "minimumIsolation": "vm", "module": {"model": "M", "rows": rows(1), "endTime": 1, "step": 1}})
    refused(answer, "failed_precondition", "isolation")


# -- sessions, which this gateway does not keep --


@pytest.mark.parametrize("protocol", [3, 4])
def test_sessions_are_unsupported(gw, protocol):
    request_id = new_id()
    refused(gw.post(SERVICE + "OpenSession", {"protocol": protocol, "owner": "not looked at !"}, request_id), "unimplemented", "unsupported",
            request_id)
    refused(gw.post(SERVICE + "OpenSession", {"protocol": protocol, "minimumIsolation": "none"}), "invalid_argument", "request")
    refused(gw.post(SERVICE + "OpenSession", {"protocol": protocol, "softwareRule": {"mode": "x"}}), "invalid_argument", "request")


@pytest.mark.parametrize("body", [{"sessionId": "0" * 32}, {}, {"sessionId": "x"}])
def test_calls_of_a_session_find_none(gw, body):
    seen = set()
    for path in ("SessionRun", "CloseSession"):
        answer = gw.post(SERVICE + path, {"protocol": 4, **body})
        refused(answer, "not_found", "request")
        # 08 09 12 0f "unknown session"
        assert answer.details("SessionEnded") == ["CAkSD3Vua25vd24gc2Vzc2lvbg"]
        seen.add(answer.body)
    assert len(seen) == 1
    refused(gw.post(SERVICE + "SessionRun", {"protocol": 4, "minimumIsolation": "none", **body}), "invalid_argument", "request")


# -- paths and methods --


@pytest.mark.parametrize("path", ["/", "/x", "/plimsoll.v1.SandboxService", "/plimsoll.v1.Other/Run", "/healthz/", "/readyz/x", "/metrics", "/v1",
                                  "/v1/", "/v1/backends/", "/v1/backends/wasm", "/v1/runs/", "/v1/runs/a/b", "/backends/", "/backends/wasm", "*",
                                  "/backends//plimsoll.v1.SandboxService/Run", "//plimsoll.v1.SandboxService/Run",
                                  "/backends/wasm/v1/runs", "/%70limsoll.v1.SandboxService/Run", "/backends/" + "x" * 300 + SERVICE + "Run"])
def test_other_paths_are_404(gw, path):
    request_id = new_id()
    for method in ("GET", "POST", "OPTIONS"):
        with gw.connect() as c:
            answer = c.call(path, b"", gw.headers(request_id), method)
        refused_http(answer, 404, "unimplemented", request_id, mark="unsupported")


def test_other_paths_are_404_without_a_token(gw):
    refused_http(gw.get("/x", token=""), 404, "unimplemented", mark="unsupported")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "PATCH", "HEAD", "post", "PROPFIND"])
def test_a_procedure_is_called_with_post_only(gw, method):
    request_id = new_id()
    with gw.connect() as c:
        answer = c.call(RUN, b"", gw.headers(request_id), method)
    assert answer.status == 405 and answer.header("Allow") == "POST", answer
    assert answer.header("Plimsoll-Not-Dispatched") == "request" and answer.header("Plimsoll-Request-Id") == request_id
    # the token comes first
    with gw.connect() as c:
        assert c.call(RUN, b"", [], method).status == 401


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/v1/backends", "/v1/runs"])
def test_pages_are_read_with_get_only(gw, path):
    for method in ("POST", "DELETE", "OPTIONS"):
        with gw.connect() as c:
            answer = c.call(path, b"", gw.headers(), method)
        assert answer.status == 405 and answer.header("Allow") == "GET" and answer.header("Plimsoll-Not-Dispatched") == "request", answer
    head = gw.get(path, method="HEAD")
    assert head.status == 200 and head.body == b"" and int(head.header("Content-Length")) > 0


def test_path_prefix(gateway):
    gw = gateway(PLIMSOLL_PATH_PREFIX="/sand/box")
    gw.ok("1", path="/sand/box" + RUN)
    assert gw.describe("/sand/box" + DESCRIBE).status == 200
    gw.ok("1", path="/sand/box/backends/wasm" + RUN)
    assert gw.get("/sand/box/v1/backends").status == 200
    for path in ("/healthz", "/readyz", "/sand/box/healthz", "/sand/box/readyz"):
        assert gw.get(path, token="").status == 200
    for path in (RUN, "/backends/wasm" + RUN, "/sand/boxx" + RUN, "/sand" + RUN, "/sand/box/sand/box" + RUN, "/sand/box"):
        refused_http(gw.post(path, javascript()), 404, "unimplemented", mark="unsupported")


def test_pinned_backend(gw):
    assert gw.ok("1", path="/backends/wasm" + RUN).header("Plimsoll-Backend") == "wasm"
    assert gw.describe("/backends/wasm" + DESCRIBE).json() == gw.describe().json()
    for path in ("Nothing", ""):
        refused_early(gw.post("/backends/wasm" + SERVICE + path, {}), "permission_denied", "permission")
    refused(gw.run(path="/backends/wasm" + RUN, minimumIsolation="vm"), "failed_precondition", "isolation")


def test_pinned_backend_that_is_not_there(gw):
    request_id = new_id()
    for name in ("docker", "e2b", "WASM", "wasm."):
        refused_http(gw.post(f"/backends/{name}{RUN}", javascript(), request_id), 404, "unimplemented", request_id, mark="unsupported")
        # nobody without a token learns which backends exist
        refused_early(gw.post(f"/backends/{name}{RUN}", javascript(), token=""), "unauthenticated", "permission")
        refused_early(gw.post(f"/backends/wasm{RUN}", javascript(), token=""), "unauthenticated", "permission")


# -- Describe --


def test_describe(gw):
    request_id = new_id()
    answer = gw.describe(request_id=request_id)
    assert answer.status == 200 and answer.header("Plimsoll-Request-Id") == request_id
    got = answer.json()
    environment = got.pop("javascriptEnvironment")
    assert re.fullmatch(r"quickjs-wasm:sha256:[0-9a-f]{64}", environment.pop("identity"))
    assert environment == {"maxTimeoutMs": 30000, "languages": ["javascript"]}
    # fields 10 to 13 are always there; false, zero and empty ones never
    assert got == {"sandbox": "wasm", "isolation": "process", "protocol": 4, "projectEnvironment": {}, "moduleEnvironment": {},
                   "resources": {"memoryMb": 256}}


def test_describe_takes_any_object_and_no_protocol_number(gw):
    for body in ({}, {"protocol": 99}, {"x": [1]}):
        assert gw.post(DESCRIBE, body).status == 200


def test_describe_spends_no_rate_and_takes_no_slot(gateway):
    gw = gateway(SANDBOX_RATE_PER_MIN="1", SANDBOX_MAX_CONCURRENT="1")
    for _ in range(5):
        answer = gw.describe()
        assert answer.status == 200 and not answer.all("RateLimit")
    gw.ok("1")
    assert gw.describe().status == 200


def test_describe_states_the_environment_of_a_run(gw):
    identity = gw.describe().json()["javascriptEnvironment"]["identity"]
    assert gw.ok("1").json()["environment"] == identity


@pytest.mark.faults
def test_describe_states_what_a_wall_can_do(gateway):
    gw = gateway(SANDBOX_PROVIDER="standin", SANDBOX_MEMORY_MB="300",
                 PLIMSOLL_STANDIN1="tier=kernel,software=image:1,policy=policy:1,ceiling=400000")
    kind = {"identity": "standin:standin", "maxTimeoutMs": 300000, "softwareIdentity": "image:1"}
    assert gw.describe().json() == {
        "sandbox": "standin", "isolation": "kernel", "protocol": 4, "supportsProject": True, "policy": "policy:1", "resources": {"memoryMb": 300},
        "javascriptEnvironment": {**kind, "languages": ["javascript"]}, "projectEnvironment": {**kind, "languages": ["shell"]}, "moduleEnvironment": {}}
    got = g.fields(binary(gw, b"", DESCRIBE).body)
    assert got[3] == [1] and got[14] == [b"policy:1"] and got[12] == [b""] and g.fields(got[10][0])[2] == [300000]


# -- a run's answer --


def test_answer_headers(gw):
    request_id = new_id()
    answer = gw.ok("1", request_id)
    assert re.fullmatch(r"[0-9a-f]{32}", answer.header("Plimsoll-Run-Id"))
    assert answer.header("Plimsoll-Backend") == "wasm"
    assert answer.header("Plimsoll-Replayed") is None and answer.header("Plimsoll-Passed-Over") is None
    timing = answer.header("Server-Timing")
    assert re.fullmatch(r"auth;dur=\d+\.\d{3}, claim;dur=\d+\.\d{3}, queue;dur=\d+\.\d{3}, execute;dur=\d+\.\d{3}, settle;dur=\d+\.\d{3}", timing)
    # no rate is set here, so nothing is said of one
    assert not answer.all("RateLimit") and not answer.all("RateLimit-Policy")


def test_answers_have_run_ids_of_their_own(gw):
    assert gw.ok("1").header("Plimsoll-Run-Id") != gw.ok("1").header("Plimsoll-Run-Id")


def test_server_timing_can_be_turned_off(gateway):
    gw = gateway(PLIMSOLL_SERVER_TIMING="off")
    assert gw.ok("1").header("Server-Timing") is None


def test_rate_fields(rated_gw):
    answer = rated_gw.ok("1")
    # 6000 a minute with a burst of 3000: the bucket fills in 30 s
    assert answer.header("RateLimit-Policy") == '"runs";q=3000;w=30'
    m = re.fullmatch(r'"runs";r=(\d+);t=(\d+)', answer.header("RateLimit"))
    assert m and 2990 <= int(m.group(1)) <= 2999 and int(m.group(2)) <= 1


def test_result_of_a_run(gw):
    began = int(time.time() * 1000)
    answer = gw.ok("console.log('out'); console.error('too')", new_id())
    ended = int(time.time() * 1000)
    got = answer.json()
    assert got["javascript"] == {"stdout": base64.b64encode(b"out\ntoo\n").decode()}
    assert got["sandbox"] == "wasm" and got["isolation"] == "process"
    record = got["record"]
    assert isinstance(record["startedUnixMs"], str) and began - 5 <= int(record["startedUnixMs"]) <= int(record["endedUnixMs"]) <= ended + 5
    assert isinstance(got.get("durationMs", "0"), str) and int(got.get("durationMs", "0")) < 60000


def test_result_without_output_is_still_there(gw):
    assert gw.ok("1").json()["javascript"] == {}


def test_failing_code_is_an_answered_run(gw):
    for code in ("throw new Error('boom')", "syntax error here", "null.x", "(function f(){f()})()"):
        answer = gw.ok(code)
        assert answer.json()["javascript"]["exitCode"] == 1, answer
        assert g.stderr(answer)


@pytest.mark.parametrize("text", ["☕" * 1000, "😀", "\u00e9\u0301", "\ufffd"])
def test_output_is_returned_verbatim(gw, text):
    assert g.stdout(gw.ok(f"console.log({json.dumps(text, ensure_ascii=False)})")) == text.encode() + b"\n"


OUTPUT_MAX = 65536


@pytest.mark.parametrize("size, cut", [(OUTPUT_MAX - 1, False), (OUTPUT_MAX, False), (OUTPUT_MAX + 1, True), (10 * OUTPUT_MAX, True)])
def test_output_is_cut_at_the_limit_and_only_the_flag_says_so(gw, size, cut):
    """Counted in bytes, the line's end included."""
    answer = gw.ok(f"console.log('x'.repeat({size - 1}))")
    got = answer.json()["javascript"]
    assert g.stdout(answer) == (b"x" * (size - 1) + b"\n")[:OUTPUT_MAX]
    assert got.get("stdoutTruncated", False) is cut and "exitCode" not in got


def test_endless_output_ends_with_the_limit_or_the_deadline(gw):
    answer = gw.ok("for(;;) console.log('☕')", timeoutMs=1000)
    got = answer.json()["javascript"]
    # cut inside a character, which is nobody's business here
    assert g.stdout(answer) == ("☕\n".encode() * OUTPUT_MAX)[:OUTPUT_MAX] and got["stdoutTruncated"] is True


def test_timeout_of_a_run(gw):
    began = time.monotonic()
    answer = gw.ok("console.log('A'); for(;;);", new_id(), timeoutMs=1000)
    took = time.monotonic() - began
    got = answer.json()["javascript"]
    assert got["timedOut"] is True and got["exitCode"] == 124
    assert g.stdout(answer) == b"A\n" and "stdoutTruncated" not in got
    assert 1.0 <= took <= 1.6, took


@pytest.mark.parametrize("timeout", [-2147483648, -1, 0, 300001, 2147483647])
def test_timeouts_are_clamped_and_never_refused(gw, timeout):
    gw.ok("1", timeoutMs=timeout)


# -- trace IDs and what is passed through --


@pytest.mark.parametrize("trace, kept", [("a", True), ("A-z.9_:" + "x" * 57, True), ("x" * 65, False), ("a b", False), ("é", False), ("a/b", False)])
def test_trace_id_is_kept_or_dropped(gw, trace, kept):
    answer = gw.run(traceId=trace)
    assert answer.status == 200
    g.check_record(javascript(), answer)  # never part of a digest
    run_id = answer.header("Plimsoll-Run-Id")
    line = gw.wait_log("code run", run_id=run_id)
    assert line.get("trace_id") == (trace if kept else None)
    assert line.get("trace_id_rejected") == (None if kept else True)
    stored = gw.get("/v1/runs/" + run_id).json()
    assert stored["trace_id"] == (trace if kept else "")


@pytest.mark.parametrize("value", ["a", "A-Za-z0-9._:/+=@-", "x" * 128])
def test_clean_x_request_id_is_taken_over(gw, value):
    for answer in (gw.run(headers=[("X-Request-ID", value)]), gw.get("/healthz", more=[("X-Request-ID", value)]),
                   gw.get("/x", more=[("X-Request-ID", value)])):
        assert answer.header("X-Request-ID") == value


@pytest.mark.parametrize("values", [[], ["x" * 129], ["a b"], ["<script>"], ['a"b'], ["é"], [""], ["a", "a"]])
def test_x_request_id_is_minted_otherwise(gw, values):
    answers = [gw.run(headers=[("X-Request-ID", v) for v in values]) for _ in range(2)]
    minted = [a.header("X-Request-ID") for a in answers]
    assert all(re.fullmatch("[0-9a-f]{32}", m) for m in minted) and minted[0] != minted[1]


def test_traceparent_is_continued(gw):
    sent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    got = gw.run(headers=[("traceparent", sent)]).header("traceparent")
    assert re.fullmatch(r"00-0af7651916cd43dd8448eb211c80319c-[0-9a-f]{16}-01", got) and got != sent


@pytest.mark.parametrize("value", ["", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331", "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                                   "00-" + "0" * 32 + "-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01",
                                   "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01"])
def test_bad_traceparent_is_dropped(gw, value):
    answer = gw.run(headers=[("traceparent", value)])
    assert answer.status == 200 and answer.header("traceparent") is None


# -- pages --


def test_backends_page(gw):
    answer = gw.get("/v1/backends")
    assert answer.status == 200 and answer.header("Content-Type") == "application/json"
    got = answer.json()
    assert "not attestation" in got["note"]
    [wasm] = got["backends"]
    assert (wasm["name"], wasm["state"], wasm["isolation"], wasm["billed"]) == ("wasm", "ready", "process", False)
    assert 0 <= wasm["evidence_age_ms"] < 24 * 3600 * 1000
    assert wasm["limits"]["memory_mb"] == 256 and wasm["limits"]["concurrent"] == 16
    assert set(wasm["kinds"]) == {"javascript"} and wasm["kinds"]["javascript"]["max_timeout_ms"] == 30000
    refused_early(gw.get("/v1/backends", token=""), "unauthenticated", "permission")


def test_runs_page(gateway):
    gw = gateway()
    assert gw.get("/v1/runs").json() == {"runs": [], "next_cursor": None}
    ids = [new_id() for _ in range(5)]
    runs = [gw.ok(f"console.log({n})", i) for n, i in enumerate(ids)]
    gw.run(minimumIsolation="vm")  # refused before anything was claimed: no run
    page = gw.get("/v1/runs").json()
    assert [r["request_id"] for r in page["runs"]] == ids[::-1] and page["next_cursor"] is None
    first = page["runs"][-1]
    record = runs[0].json()["record"]
    assert first["run_id"] == runs[0].header("Plimsoll-Run-Id") and first["verdict"] == "answered" and first["backend"] == "wasm"
    assert first["isolation"] == "process" and first["kind"] == "javascript" and first["exit_code"] == 0 and first["timed_out"] is False
    assert first["request_sha256"] == record["requestSha256"] and first["result_sha256"] == record["resultSha256"]
    assert first["record_sha256"] == record["recordSha256"] and "record" not in first
    # by twos
    seen, cursor = [], ""
    for _ in range(4):
        page = gw.get("/v1/runs?limit=2" + (f"&cursor={cursor}" if cursor else "")).json()
        seen += [r["request_id"] for r in page["runs"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == ids[::-1] and cursor is None


def test_run_page(gw):
    request_id = new_id()
    answer = gw.ok("console.log(1)", request_id)
    run_id = answer.header("Plimsoll-Run-Id")
    got = gw.get("/v1/runs/" + run_id)
    assert got.status == 200, got
    stored = got.json()
    assert stored["run_id"] == run_id and stored["request_id"] == request_id and stored["record"] == answer.json()["record"]


@pytest.mark.parametrize("run_id", ["x", "0" * 31, "0" * 33, "G" * 32, "A" * 32])
def test_run_page_of_a_bad_id(gw, run_id):
    answer = gw.get("/v1/runs/" + run_id)
    assert answer.status == 400 and answer.code == "invalid_argument", answer


def test_run_page_of_an_unknown_id(gw):
    answer = gw.get("/v1/runs/" + "0" * 32)
    assert answer.status == 404 and answer.code == "not_found", answer


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "limit=-1", "limit=abc", "limit=", "limit=99999999999999999999", "limit=5&limit=5", "x=1",
                                   "cursor=", "cursor=%00", "cursor=zzz", "cursor=" + "a" * 129, "cursor=a&cursor=a", "limit=5&&", "limit"])
def test_runs_page_with_a_bad_query(gw, query):
    answer = gw.get("/v1/runs?" + query)
    assert answer.status == 400 and answer.code == "invalid_argument", answer


@pytest.mark.parametrize("limit", [1, 499, 500])
def test_runs_page_limits(gw, limit):
    assert gw.get(f"/v1/runs?limit={limit}").status == 200
    assert gw.get("/v1/runs?" + "x" * 5000).status == 400


def test_a_query_on_a_procedure_does_not_matter(gw):
    gw.ok("1", path=RUN + "?x=1")
