"""The `plimsoll` command as a program, against a scripted stand-in gateway: answers that hold, answers that do not, and what the command
says and returns for each; then the commands that need no gateway, on real files.

The digests here are computed with hashlib alone, from the field order of the wire specification, so the command's checks are compared
with a second reading. PLIMSOLL_BIN names the command (default build/test/plimsoll).
"""
import base64
import contextlib
import hashlib
import http.server
import json
import os
import pathlib
import signal
import socket
import ssl
import stat
import struct
import subprocess
import threading
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = os.environ.get("PLIMSOLL_BIN", str(ROOT / "build/test/plimsoll"))
TOKEN = "t" * 32
REQUEST_ID = "0123456789abcdef0123456789abcdef"
CODE = "console.log(6*7)\n"


# -- the second reading of the digests --


def value(b):
    return struct.pack(">Q", len(b)) + b


def digest(domain, fields):
    h = hashlib.sha256(value(domain.encode()))
    for name, content in fields:
        if isinstance(content, bool):
            content = "true" if content else "false"
        if isinstance(content, int):
            content = str(content)
        if isinstance(content, str):
            content = content.encode()
        h.update(value(name.encode()) + value(content))
    return h.hexdigest()


def request_digest(request):
    return digest("plimsoll.run-request.v2", [
        ("protocol", request["protocol"]), ("minimum_isolation", request.get("minimumIsolation", "")),
        ("timeout_ms", request.get("timeoutMs", 0)), ("software_mode", ""), ("software_identities", 0),
        ("kind", "javascript"), ("code", request["javascript"]["code"]), ("grant_profile", "")])


def result_digest(exit_code=0, timed_out=False, stdout=b"", stderr=b"", stdout_cut=False, stderr_cut=False):
    return digest("plimsoll.run-result.v1", [
        ("kind", "javascript"), ("exit_code", exit_code), ("timed_out", timed_out), ("stdout", stdout), ("stderr", stderr),
        ("stdout_truncated", stdout_cut), ("stderr_truncated", stderr_cut)])


def record_digest(record):
    def text(name):
        return record.get(name, "")
    return digest(f"plimsoll.run-record.v{record['version']}", [
        ("request_sha256", text("requestSha256")), ("result_sha256", text("resultSha256")), ("unanswered", text("unanswered")),
        ("provider", text("provider")), ("isolation", text("isolation")), ("environment", text("environment")),
        ("policy", text("policy")), ("software_identity", text("softwareIdentity")),
        ("software_rule_id", text("softwareRuleId")), ("instance", text("instance")),
        ("started_unix_ms", int(record.get("startedUnixMs", 0))), ("ended_unix_ms", int(record.get("endedUnixMs", 0))),
        ("session", text("session")), ("sequence", int(record.get("sequence", 0))), ("previous_sha256", text("previousSha256"))])


def answer_to(request, tier="process", **result):
    """An answer that holds, as a message; tests break it from there."""
    record = {"version": 4, "requestSha256": request_digest(request), "resultSha256": result_digest(**result),
              "provider": "wasm", "isolation": tier, "environment": "wasm-module:sha256:" + "e" * 64,
              "startedUnixMs": "1790000000000", "endedUnixMs": "1790000000012"}
    record["recordSha256"] = record_digest(record)
    names = {"stdout": "stdout", "stderr": "stderr", "exit_code": "exitCode", "timed_out": "timedOut",
             "stdout_cut": "stdoutTruncated", "stderr_cut": "stderrTruncated"}
    body = {names[k]: base64.b64encode(v).decode() if isinstance(v, bytes) else v for k, v in result.items() if v}
    return {"sandbox": "wasm", "isolation": tier, "durationMs": "12", "environment": record["environment"],
            "javascript": body, "record": record}


# -- the stand-in --


class Answer:
    """status, body (bytes, or JSON for anything else), headers; `echo` is how often the request's ID comes back."""

    def __init__(self, body=b"", status=200, headers=(), echo=1, content_type="application/json", raw=None):
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.status, self.headers, self.echo, self.content_type, self.raw = status, list(headers), echo, content_type, raw


class Gateway:
    def __init__(self, script):
        """`script(handler, request)` gives the Answer, or None to close the connection without one."""
        self.seen = []
        gateway = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                request = json.loads(body) if body else None
                gateway.seen.append((self.command, self.path, self.headers, request))
                answer = script(self, request)
                if answer is None:
                    self.close_connection = True
                    return
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    if answer.raw is not None:
                        self.wfile.write(answer.raw)
                        self.close_connection = True
                        return
                    self.send_response_only(answer.status)
                    if answer.content_type:
                        self.send_header("Content-Type", answer.content_type)
                    self.send_header("Content-Length", str(len(answer.body)))
                    for _ in range(answer.echo):
                        self.send_header("Plimsoll-Request-Id", self.headers.get("Plimsoll-Request-Id", ""))
                    for name, content in answer.headers:
                        self.send_header(name, content)
                    self.end_headers()
                    self.wfile.write(answer.body)

            do_GET = do_POST = answer

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def gateway():
    started = []

    def start(script):
        started.append(Gateway(script))
        return started[-1]

    yield start
    for one in started:
        one.close()


def plimsoll(*args, stdin=b"", env=(), timeout=60, **kwargs):
    environment = {"PATH": os.environ["PATH"], **dict(env)}
    for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
        if name in os.environ:
            environment[name] = os.environ[name]
    return subprocess.run([BIN, *args], input=stdin, env=environment, capture_output=True, timeout=timeout, **kwargs)


def run(server, *args, code=CODE, env=(), **kwargs):
    return plimsoll("run", "--url", server.url, *args, "-", stdin=code if isinstance(code, bytes) else code.encode(),
                    env=env, **kwargs)


def holds(**result):
    return lambda handler, request: Answer(answer_to(request, **result))


def refusal(code, message, reason=None, status=400, **kwargs):
    body = {"code": code, "message": message}
    if reason is not None:
        body["details"] = [{"type": "plimsoll.v1.NotDispatched", "value": base64.b64encode(bytes([8, reason])).decode().rstrip("=")}]
    return lambda handler, request: Answer(body, status=status, **kwargs)


# -- run: answers that hold --


def test_output_is_verbatim_and_alone(gateway):
    out, err = bytes(range(256)) + b"no newline", b"\x1b[31mred\x00\xff"
    result = run(gateway(holds(stdout=out, stderr=err)))
    assert (result.returncode, result.stdout, result.stderr) == (0, out, err)


def test_empty_output_prints_nothing(gateway):
    result = run(gateway(holds()))
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")


@pytest.mark.parametrize("exit_code, timed_out, status", [
    (0, False, 0), (1, False, 1), (255, False, 255), (256, False, 255), (-1, False, 255), (124, True, 124), (0, True, 124)])
def test_exit_code_is_the_runs(gateway, exit_code, timed_out, status):
    assert run(gateway(holds(exit_code=exit_code, timed_out=timed_out))).returncode == status


def test_request_on_the_wire(gateway):
    server = gateway(holds(stdout=b"42\n"))
    result = run(server, "--floor", "process", "--timeout", "2500ms", "--trace-id", "t-1", "--backend", "wasm", "--request-id",
                 REQUEST_ID, env={"PLIMSOLL_CALLER_TOKEN": TOKEN})
    assert result.returncode == 0, result.stderr
    [(method, path, headers, request)] = server.seen
    assert (method, path) == ("POST", "/backends/wasm/plimsoll.v1.SandboxService/Run")
    assert request == {"protocol": 4, "minimumIsolation": "process", "traceId": "t-1", "timeoutMs": 2500, "javascript": {"code": CODE}}
    assert headers["Content-Type"] == "application/json" and headers["Connect-Protocol-Version"] == "1"
    assert headers["Authorization"] == "Bearer " + TOKEN and headers["Plimsoll-Request-Id"] == REQUEST_ID
    assert "Expect" not in headers and headers["Accept-Encoding"] == "identity"


def test_request_ids_are_fresh(gateway):
    server = gateway(holds())
    run(server)
    run(server)
    first, second = (seen[2]["Plimsoll-Request-Id"] for seen in server.seen)
    assert first != second and len(first) == len(second) == 32


def test_token_file_and_no_token(gateway, tmp_path):
    server = gateway(holds())
    path = tmp_path / "token"
    path.write_text(TOKEN + "\r\n")
    assert run(server, "--token-file", str(path), env={"PLIMSOLL_CALLER_TOKEN": "u" * 40}).returncode == 0
    assert run(server).returncode == 0
    assert [seen[2]["Authorization"] for seen in server.seen] == ["Bearer " + TOKEN, None]


def test_json_of_an_answer(gateway):
    def script(handler, request):
        return Answer(answer_to(request, stdout=b"caf\xc3\xa9\n", stderr=b"\xff", exit_code=3, stderr_cut=True),
                      headers=[("Plimsoll-Replayed", "1"), ("Plimsoll-Run-Id", "b" * 32), ("Plimsoll-Backend", "wasm")])
    result = run(gateway(script), "--json", "--request-id", REQUEST_ID)
    told = json.loads(result.stdout)
    assert result.returncode == 3 and result.stderr == b"" and result.stdout.count(b"\n") == 1
    assert (told["verdict"], told["exit_code"], told["timed_out"], told["request_id"]) == ("answered", 3, False, REQUEST_ID)
    assert told["stdout"] == "café\n" and base64.b64decode(told["stdout_base64"]) == b"caf\xc3\xa9\n"
    assert told["stderr"] is None and base64.b64decode(told["stderr_base64"]) == b"\xff"
    assert (told["stdout_truncated"], told["stderr_truncated"], told["replayed"]) == (False, True, True)
    assert (told["run_id"], told["backend"], told["passed_over"]) == ("b" * 32, "wasm", None)
    assert (told["provider"], told["isolation"], told["duration_ms"]) == ("wasm", "process", 12)
    assert told["record"]["recordSha256"] == record_digest(told["record"]) and told["error"] is None


def test_verbose_summary_goes_to_stderr(gateway):
    result = run(gateway(holds(stdout=b"42\n")), "-v")
    assert result.stdout == b"42\n" and result.stderr.count(b"\n") == 1
    for part in (b"exit 0", b"12 ms", b"wasm", b"process", b"evidence, not attestation", b"record "):
        assert part in result.stderr


def test_interim_answer_before_the_real_one(gateway):
    """A 1xx head is not the answer's: its echo must neither bind nor double the echo."""
    def script(handler, request):
        body = json.dumps(answer_to(request, stdout=b"42\n")).encode()
        echo = b"Plimsoll-Request-Id: " + handler.headers["Plimsoll-Request-Id"].encode() + b"\r\n"
        return Answer(raw=b"HTTP/1.1 103 Early Hints\r\n" + echo + b"\r\nHTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + echo +
                      b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert run(gateway(script)).stdout == b"42\n"


# -- run: answers that do not hold --


def broken(change):
    def script(handler, request):
        answer = answer_to(request, stdout=b"42\n")
        change(answer)
        return Answer(answer)
    return script


def rehash(answer, **changes):
    answer["record"].update(changes)
    answer["record"]["recordSha256"] = record_digest(answer["record"])


def other_output(a):
    a["javascript"]["stdout"] = base64.b64encode(b"43\n").decode()


def other_kind(a):
    a["cell"] = a.pop("javascript")


BROKEN = {
    "no record": lambda a: a.pop("record"),
    "output other than recorded": other_output,
    "flag other than recorded": lambda a: a["javascript"].update(stdoutTruncated=True),
    "request of somebody else": lambda a: rehash(a, requestSha256="0" * 64),
    "record digest off": lambda a: a["record"].update(recordSha256="0" * 64),
    "record fields changed": lambda a: a["record"].update(endedUnixMs="1790000000013"),
    "old record version": lambda a: rehash(a, version=2),
    "provider other than recorded": lambda a: a.update(sandbox="docker"),
    "isolation other than recorded": lambda a: a.update(isolation="vm"),
    "session fields": lambda a: rehash(a, sequence="1"),
    "software rule nobody asked for": lambda a: rehash(a, softwareRuleId="exact:x"),
    "result of another kind": other_kind,
    "two results": lambda a: a.update(cell={}),
    "no result": lambda a: a.pop("javascript"),
    "unanswered on an answer": lambda a: rehash(a, unanswered="internal"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_answer_that_does_not_hold(gateway, name):
    result = run(gateway(broken(BROKEN[name])))
    assert result.returncode == 76 and result.stdout == b"", result.stderr
    assert b"data_loss" in result.stderr and b"may have run" in result.stderr


def test_floor_not_met(gateway):
    result = run(gateway(lambda h, request: Answer(answer_to(request, tier="container", stdout=b"42\n"))), "--floor", "kernel")
    assert result.returncode == 76 and result.stdout == b"" and b"floor" in result.stderr


@pytest.mark.parametrize("tier", ["kernel", "vm"])
def test_floor_met(gateway, tier):
    result = run(gateway(lambda h, request: Answer(answer_to(request, tier=tier, stdout=b"42\n"))), "--floor", "kernel")
    assert (result.returncode, result.stdout) == (0, b"42\n")


@pytest.mark.parametrize("echo", [0, 2])
def test_success_must_echo_once(gateway, echo):
    result = run(gateway(lambda h, request: Answer(answer_to(request, stdout=b"42\n"), echo=echo)))
    assert result.returncode == 76 and result.stdout == b"" and b"Plimsoll-Request-Id" in result.stderr


def test_success_with_another_echo(gateway):
    script = lambda h, request: Answer(answer_to(request, stdout=b"42\n"), echo=0, headers=[("Plimsoll-Request-Id", "f" * 32)])  # noqa: E731
    assert run(gateway(script)).returncode == 76


def test_echo_in_a_trailer_does_not_bind(gateway):
    def script(handler, request):
        body = json.dumps(answer_to(request, stdout=b"42\n")).encode()
        return Answer(raw=b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
                      b"%x\r\n" % len(body) + body + b"\r\n0\r\nPlimsoll-Request-Id: " +
                      handler.headers["Plimsoll-Request-Id"].encode() + b"\r\n\r\n")
    assert run(gateway(script)).returncode == 76


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"<html>", b'{"record":{},"record":{}}',
                                  b'{"durationMs":NaN}', b"[" * 100000])
def test_garbage_answer(gateway, body):
    result = run(gateway(lambda h, request: Answer(body)))
    assert result.returncode == 76 and result.stdout == b"", result.stderr


@pytest.mark.parametrize("content_type", ["text/html", "application/jsonx", None])
def test_answer_of_another_type(gateway, content_type):
    script = lambda h, request: Answer(answer_to(request, stdout=b"42\n"), content_type=content_type)  # noqa: E731
    assert run(gateway(script)).returncode == 76


def test_type_parameters_and_case_are_ignored(gateway):
    script = lambda h, request: Answer(answer_to(request, stdout=b"42\n"), content_type="Application/JSON; charset=utf-8")  # noqa: E731
    assert run(gateway(script)).stdout == b"42\n"


@pytest.mark.parametrize("size, status", [(32 * 1024 * 1024 - 1, 0), (32 * 1024 * 1024, 0), (32 * 1024 * 1024 + 1, 76)])
def test_answer_size_limit(gateway, size, status):
    def script(handler, request):
        body = json.dumps(answer_to(request, stdout=b"42\n")).encode()
        return Answer(body + b" " * (size - len(body)))
    result = run(gateway(script))
    assert result.returncode == status, result.stderr


def test_endless_head(gateway):
    script = lambda h, request: Answer(answer_to(request), headers=[(f"X-{i}", "v" * 1000) for i in range(70)])  # noqa: E731
    assert run(gateway(script)).returncode == 76


def test_redirect_is_not_followed(gateway):
    other = gateway(holds(stdout=b"42\n"))
    for status in (301, 302, 307, 308):
        server = gateway(lambda h, request: Answer(status=status, headers=[
            ("Location", other.url + h.path), ("Plimsoll-Not-Dispatched", "request")]))
        result = run(server, env={"PLIMSOLL_CALLER_TOKEN": TOKEN})
        assert result.returncode == 70 and b"redirect" in result.stderr
    assert other.seen == []


def test_proxy_of_the_environment_is_not_used(gateway):
    proxy, server = gateway(holds()), gateway(holds(stdout=b"42\n"))
    env = {name: proxy.url for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy")}
    assert run(server, env=env).stdout == b"42\n" and proxy.seen == []


def test_cut_short_answer(gateway):
    def script(handler, request):
        body = json.dumps(answer_to(request)).encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (len(body) + 5)
        return Answer(raw=head + body)
    result = run(gateway(script))
    assert result.returncode == 70 and b"may have run" in result.stderr and b"runs show" in result.stderr


def test_connection_closed_after_the_request(gateway):
    server = gateway(lambda h, request: None)
    result = run(server)
    assert result.returncode == 70 and len(server.seen) == 1  # sent once, never again


# -- run: refusals --


@pytest.mark.parametrize("reason, name, status", [
    (1, "request", 69), (2, "permission", 69), (3, "protocol", 69), (4, "unsupported", 69), (5, "isolation", 69), (6, "capacity", 75),
    (7, "environment", 69), (99, "unknown", 69)])
def test_refusal_by_detail(gateway, reason, name, status):
    result = run(gateway(refusal("failed_precondition", "because", reason)))
    assert result.returncode == status and result.stdout == b""
    assert b"failed_precondition: because" in result.stderr and b"nothing ran" in result.stderr
    assert f"({name})".encode() in result.stderr


def test_refusal_says_when_to_send_again(gateway):
    result = run(gateway(refusal("resource_exhausted", "busy", 6, status=429, headers=[("Retry-After", "3")])))
    assert result.returncode == 75 and b"nothing ran; safe to send again after 3 s" in result.stderr


def test_refusal_by_header(gateway):
    result = run(gateway(refusal("unauthenticated", "who?", status=401, headers=[("Plimsoll-Not-Dispatched", "permission")])))
    assert result.returncode == 69 and b"(permission)" in result.stderr


def test_detail_wins_over_header(gateway):
    result = run(gateway(refusal("resource_exhausted", "busy", 6, status=429, headers=[("Plimsoll-Not-Dispatched", "request")])))
    assert result.returncode == 75 and b"(capacity)" in result.stderr


@pytest.mark.parametrize("kwargs", [
    {"echo": 0}, {"echo": 2}, {"echo": 0, "headers": [("Plimsoll-Request-Id", "f" * 32)]},
    {"echo": 0, "headers": [("Plimsoll-Not-Dispatched", "request")]}])
def test_mark_of_an_unbound_answer_does_not_count(gateway, kwargs):
    result = run(gateway(refusal("failed_precondition", "because", 5, **kwargs)))
    assert result.returncode == 70 and b"failed_precondition: because" in result.stderr and b"may have run" in result.stderr


def test_unmarked_error_names_the_request(gateway):
    result = run(gateway(refusal("internal", "it broke", status=500)), "--request-id", REQUEST_ID)
    assert result.returncode == 70 and result.stdout == b""
    assert REQUEST_ID.encode() in result.stderr and b"plimsoll runs" in result.stderr


@pytest.mark.parametrize("value, named", [("b" * 32, True), ("$(reboot)", False), ("B" * 32, False)])
def test_unmarked_error_names_the_run(gateway, value, named):
    result = run(gateway(refusal("internal", "it broke", status=500, headers=[("Plimsoll-Run-Id", value)])))
    assert result.returncode == 70 and (f"runs show {value}`".encode() in result.stderr) == named and (named or value.encode() not in result.stderr)


def test_message_cannot_steer_the_terminal(gateway):
    result = run(gateway(refusal("internal", "a\x1b]0;title\x07b\nplimsoll: fine\x9b", status=500)))
    assert b"\x1b" not in result.stderr and b"\x07" not in result.stderr and "\x9b".encode() not in result.stderr
    assert result.stderr.count(b"\n") == 2


def test_refusal_as_json(gateway):
    server = gateway(refusal("resource_exhausted", "busy", 6, status=429, headers=[("Retry-After", "7")]))
    result = run(server, "--json", "--request-id", REQUEST_ID)
    told = json.loads(result.stdout)
    assert result.returncode == 75 and result.stderr == b""
    assert (told["verdict"], told["exit_code"], told["request_id"]) == ("refused", None, REQUEST_ID)
    error = told["error"]
    assert (error["code"], error["mark"], error["retry_after_s"], error["nothing_ran"]) == ("resource_exhausted", "capacity", 7, True)


@pytest.mark.parametrize("script, code, status", [
    (refusal("internal", "it broke", status=500), "internal", 70), (broken(lambda a: a.pop("record")), "data_loss", 76)])
def test_may_have_run_as_json(gateway, script, code, status):
    result = run(gateway(script), "--json")
    told = json.loads(result.stdout)
    assert result.returncode == status and (told["verdict"], told["error"]["code"], told["error"]["mark"]) == ("unknown", code, None)


def test_no_gateway_means_nothing_ran():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        result = plimsoll("run", "--url", url, "-", stdin=CODE.encode())
    assert result.returncode == 69 and b"nothing ran" in result.stderr and b"not reached" in result.stderr


def test_tls_with_a_private_authority(gateway, tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=t",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert], check=True, capture_output=True)
    server = gateway(holds(stdout=b"42\n"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server.server.socket = context.wrap_socket(server.server.socket, server_side=True, do_handshake_on_connect=False)
    url = server.url.replace("http:", "https:")
    trusted = plimsoll("run", "--url", url, "--ca-file", str(cert), "-", stdin=CODE.encode())
    assert (trusted.returncode, trusted.stdout) == (0, b"42\n"), trusted.stderr
    assert len(server.seen) == 1
    for args in (["--url", url], ["--url", url.replace("127.0.0.1", "localhost"), "--ca-file", str(cert)]):
        refused = plimsoll("run", *args, "-", stdin=CODE.encode(), env={"PLIMSOLL_CALLER_TOKEN": TOKEN})
        assert refused.returncode == 69 and b"nothing ran" in refused.stderr, refused.stderr
    assert len(server.seen) == 1


def test_tls_that_cannot_be_trusted_means_nothing_ran(gateway):
    server = gateway(holds())
    result = plimsoll("run", "--url", server.url.replace("http:", "https:"), "-", stdin=CODE.encode())
    assert result.returncode == 69 and server.seen == []


# -- run: nothing is sent --


@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "http://example.com", "http://192.0.2.1:8746", "127.0.0.1:8746", "http://u:p@127.0.0.1",
                                 "http://127.0.0.1/?q=1", "http://127.0.0.1/#f", "https://", "http://127.0.0.1.example.com", "file:///etc/passwd",
                                 "http://127.0.0.1@example.com", ""])
def test_urls_that_are_refused(url):
    result = plimsoll("run", "--url", url, "-", stdin=CODE.encode())
    assert result.returncode == 78 and result.stderr.count(b"\n") == 1


@pytest.mark.parametrize("args", [["--floor", "none"], ["--floor", "VM"], ["--timeout", "0"], ["--timeout", "301s"], ["--timeout", "5"],
                                  ["--request-id", "A" * 32], ["--request-id", "0" * 31], ["--trace-id", "a b"], ["--trace-id", "a" * 65],
                                  ["--bogus"], ["--json=1"], ["more", "files"]])
def test_usage_errors(args):
    result = plimsoll("run", *args, "-", stdin=CODE.encode())
    assert result.returncode == 2 and result.stdout == b"" and b"plimsoll run --help" in result.stderr


@pytest.mark.parametrize("code", [b"", b"\xff", b"a\0b", b"x" * (256 * 1024 + 1)])
def test_code_that_is_refused_here(gateway, code):
    server = gateway(holds())
    result = run(server, code=code)
    assert result.returncode == 69 and server.seen == []


@pytest.mark.parametrize("size", [256 * 1024 - 1, 256 * 1024])
def test_code_up_to_the_limit(gateway, size):
    assert run(gateway(holds()), code=b"x" * size).returncode == 0


def test_input_that_cannot_be_read(tmp_path):
    result = plimsoll("run", str(tmp_path / "absent.js"))
    assert result.returncode == 66 and b"absent.js" in result.stderr


@pytest.mark.parametrize("text", ["short", "with space " * 8, "t" * 4097, "", "t" * 32 + "\n\n", "t" * 32 + "\x00"])
def test_token_files_that_are_refused(gateway, tmp_path, text):
    server = gateway(holds())
    path = tmp_path / "token"
    path.write_text(text)
    result = run(server, "--token-file", str(path))
    assert result.returncode == 78 and server.seen == []
    if text.strip():
        assert text.encode().strip() not in result.stderr


def test_output_nobody_reads(gateway):
    server = gateway(holds(stdout=b"x" * 1000000))
    read, write = os.pipe()
    os.close(read)
    process = subprocess.Popen([BIN, "run", "--url", server.url, "-"], stdin=subprocess.PIPE, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    _, err = process.communicate(CODE.encode(), timeout=60)
    assert process.returncode == 74 and b"it ran" in err


# -- looking --

BACKENDS = {"backends": [{"name": "wasm", "state": "ready", "isolation": "process", "evidence": "tested", "evidence_age_ms": 1500, "billed": False,
                          "kinds": {"javascript": {"max_timeout_ms": 30000, "default_timeout_ms": 5000}},
                          "limits": {"memory_mb": 256, "concurrent": 8}}], "note": "A tier is evidence, not attestation."}


def test_backends(gateway):
    server = gateway(lambda h, request: Answer(BACKENDS))
    table = plimsoll("backends", "--url", server.url, env={"PLIMSOLL_CALLER_TOKEN": TOKEN}).stdout.decode()
    assert [seen[:2] for seen in server.seen] == [("GET", "/v1/backends")]
    assert server.seen[0][2]["Authorization"] == "Bearer " + TOKEN
    for part in ("wasm", "ready", "process", "tested", "1.5 s", "javascript", "30 s", "256", "8", "evidence, not attestation"):
        assert part in table
    assert json.loads(plimsoll("backends", "--url", server.url, "--json").stdout) == BACKENDS


def test_describe(gateway):
    message = {"sandbox": "wasm", "isolation": "process", "protocol": 4,
               "javascriptEnvironment": {"maxTimeoutMs": 30000, "languages": ["javascript"]}, "resources": {"memoryMb": 256}}
    server = gateway(lambda h, request: Answer(message))
    table = plimsoll("describe", "--url", server.url, "--backend", "wasm").stdout.decode()
    assert server.seen[0][:2] == ("POST", "/backends/wasm/plimsoll.v1.SandboxService/Describe") and server.seen[0][3] == {}
    for part in ("wasm", "process (evidence, not attestation)", "30 s", "256 MiB"):
        assert part in table
    assert json.loads(plimsoll("describe", "--url", server.url, "--json").stdout)["protocol"] == 4


def stored_run():
    request = {"protocol": 4, "javascript": {"code": CODE}}
    record = answer_to(request, stdout=b"42\n")["record"]
    return {"run_id": "a" * 32, "request_id": REQUEST_ID, "verdict": "answered", "backend": "wasm", "isolation": "process",
            "kind": "javascript", "request_sha256": record["requestSha256"], "result_sha256": record["resultSha256"],
            "record_sha256": record["recordSha256"], "started_unix_ms": 1790000000000, "ended_unix_ms": 1790000000012, "exit_code": 0,
            "timed_out": False, "canceled": False, "unanswered": "", "trace_id": "", "reason": "", "record": record}


def test_runs_list(gateway):
    run_ = {k: v for k, v in stored_run().items() if k != "record"}
    server = gateway(lambda h, request: Answer({"runs": [run_, dict(run_, verdict="refused", reason="capacity")], "next_cursor": "abc"}))
    result = plimsoll("runs", "list", "--limit", "2", "--cursor", "x-1", "--url", server.url)
    assert server.seen[0][1] == "/v1/runs?limit=2&cursor=x-1" and result.returncode == 0
    lines = result.stdout.decode().splitlines()
    assert len(lines) == 3 and "a" * 32 in lines[1] and "2026-09-21 14:13:20Z" in lines[1] and "capacity" in lines[2]
    assert b"--cursor abc" in result.stderr


@pytest.mark.parametrize("limit", ["1", "499", "500"])
def test_runs_list_limits(gateway, limit):
    server = gateway(lambda h, request: Answer({"runs": [], "next_cursor": None}))
    assert plimsoll("runs", "list", "--limit", limit, "--url", server.url).returncode == 0
    assert server.seen[0][1] == "/v1/runs?limit=" + limit


def test_runs_show_checks_the_record(gateway):
    server = gateway(lambda h, request: Answer(stored_run()))
    result = plimsoll("runs", "show", "a" * 32, "--url", server.url)
    assert server.seen[0][1] == "/v1/runs/" + "a" * 32 and result.returncode == 0 and b"holds" in result.stdout


@pytest.mark.parametrize("change", [
    lambda r: r["record"].update(endedUnixMs="1"), lambda r: r.update(record_sha256="0" * 64), lambda r: r.update(result_sha256="0" * 64),
    lambda r: r.update(isolation="vm"), lambda r: r.update(record="text"), lambda r: r["record"].update(version=9)])
def test_runs_show_of_a_record_that_does_not_hold(gateway, change):
    stored = stored_run()
    change(stored)
    server = gateway(lambda h, request: Answer(stored))
    for flags in ([], ["--json"]):
        result = plimsoll("runs", "show", "a" * 32, "--url", server.url, *flags)
        assert result.returncode == 76 and b"does not hold" in result.stderr


@pytest.mark.parametrize("args", [["list", "x"], ["show"], ["show", "../x"], ["show", "a/b"], ["list", "--limit", "0"],
                                  ["list", "--limit", "501"], ["show", "a" * 31], ["list", "--cursor", "a" * 129], ["list", "--cursor", "a&b"], []])
def test_runs_usage(args):
    assert plimsoll("runs", *args).returncode == 2


@pytest.mark.parametrize("command", [["backends"], ["runs", "list"], ["describe"]])
def test_looking_needs_a_bound_answer(gateway, command):
    server = gateway(lambda h, request: Answer({}, echo=0))
    result = plimsoll(*command, "--url", server.url)
    assert result.returncode == 1 and result.stdout == b"" and b"may have run" not in result.stderr


def test_looking_reports_a_refusal(gateway):
    result = plimsoll("runs", "list", "--url", gateway(refusal("unauthenticated", "no token", 2, status=401)).url)
    assert result.returncode == 1 and b"unauthenticated: no token" in result.stderr


# -- clients --


@pytest.fixture
def callers(tmp_path):
    return tmp_path / "clients.json"


def clients(*args, **kwargs):
    return plimsoll("clients", *args, **kwargs)


def create(path, name="a", *args):
    result = clients("create", "-file", str(path), "-id", name, "-token-stdout", *args)
    assert result.returncode == 0, result.stderr
    return result.stdout.decode().rstrip("\n")


def entries(path):
    return {e["id"]: e for e in json.loads(path.read_text())["clients"]}


def test_create_makes_the_file(callers):
    token = create(callers)
    assert len(token) == 64 and set(token) <= set("0123456789abcdef")
    assert stat.S_IMODE(callers.stat().st_mode) == 0o600
    assert entries(callers)["a"] == {"id": "a", "token_sha256": hashlib.sha256(token.encode()).hexdigest(), "scopes": ["code:run"]}
    assert token not in callers.read_text() and callers.read_text().endswith("}\n")


def test_create_with_scopes_and_two_dashes(callers):
    result = clients("create", "--file", str(callers), "--id=b", "--scope", "code:run", "-scope", "x:y", "--token-stdout",
                     "-paid-seconds-per-day", "60")
    assert result.returncode == 0 and result.stdout.count(b"\n") == 1
    assert entries(callers)["b"]["scopes"] == ["code:run", "x:y"] and entries(callers)["b"]["paid_seconds_per_day"] == 60


def test_import_list_limit_revoke(callers):
    token = "!" * 32
    result = clients("import", "-file", str(callers), "-id", "a", stdin=token.encode() + b"\r\n")
    assert result.returncode == 0 and result.stdout == b""
    assert entries(callers)["a"]["token_sha256"] == hashlib.sha256(token.encode()).hexdigest()
    assert clients("limit", "-file", str(callers), "-id", "a", "-paid-seconds-per-day", "5").returncode == 0
    listed = json.loads(clients("list", "-file", str(callers), "-json").stdout)
    assert listed == [{"id": "a", "scopes": ["code:run"], "paid_seconds_per_day": 5}]
    assert clients("limit", "-file", str(callers), "-id", "a", "-paid-seconds-per-day", "0").returncode == 0
    assert "paid_seconds_per_day" not in entries(callers)["a"]
    result = clients("revoke", "-file", str(callers), "-id", "a")
    assert result.returncode == 0 and b"refuses to start" in result.stderr and entries(callers) == {}


def test_rotate(callers):
    old = create(callers)
    result = clients("rotate", "-file", str(callers), "-id", "a", "-token-stdout")
    new = result.stdout.decode().strip()
    assert new != old and entries(callers)["a"]["token_sha256"] == hashlib.sha256(new.encode()).hexdigest()
    result = clients("rotate", "-file", str(callers), "-id", "a", "-token-stdin", stdin=new.encode())
    assert result.returncode == 1  # an unchanged token is no rotation


def test_rotate_with_overlap_keeps_the_old_token_a_while(callers):
    old = create(callers)
    before = time.time()
    result = clients("rotate", "-file", str(callers), "-id", "a", "-token-stdout", "--overlap", "2h")
    new = result.stdout.decode().strip()
    tokens = {t["token_sha256"]: t for t in entries(callers)["a"]["tokens"]}
    ends = tokens[hashlib.sha256(old.encode()).hexdigest()]["not_after"]
    assert abs(time.mktime(time.strptime(ends, "%Y-%m-%dT%H:%M:%SZ")) - time.timezone - before - 7200) < 60
    assert "not_after" not in tokens[hashlib.sha256(new.encode()).hexdigest()]


@pytest.mark.parametrize("args, said", [
    (["create", "-file", "F", "-id", "a"], b"-token-stdout"), (["create", "-id", "a", "-token-stdout"], b"-file"),
    (["create", "-file", "F", "-token-stdout"], b"-id"), (["rotate", "-file", "F", "-id", "a"], b"one of"),
    (["rotate", "-file", "F", "-id", "a", "-token-stdout", "-token-stdin"], b"one of"), (["limit", "-file", "F", "-id", "a"], b"paid-seconds"),
    (["limit", "-file", "F", "-id", "a", "-paid-seconds-per-day", "-1"], b"not negative"),
    (["limit", "-file", "F", "-id", "a", "-paid-seconds-per-day", "99999999999999999999"], b"whole number"),
    (["list", "-file", "F", "-id", "a"], b"-id"), (["list", "-file", "F", "more"], b"arguments"), (["list", "-file", "absent"], b""),
    (["revoke", "-file", "F", "-id", "nobody"], b"nobody"), (["create", "-file", "F", "-id", "a", "-token-stdout"], b""),
    (["create", "-file", "F", "-id", "*", "-token-stdout"], b""), (["create", "-file", "F", "-id", "c", "-scope", "a b", "-token-stdout"], b""),
    (["rotate", "-file", "F", "-id", "a", "-token-stdout", "-overlap", "0"], b"overlap"),
    (["rotate", "-file", "F", "-id", "a", "-token-stdout", "-overlap", "721h"], b"720h"), (["bogus"], b"bogus"), (["list", "-x"], b"-x")])
def test_clients_failures_are_one_line_and_change_nothing(callers, args, said):
    create(callers)
    before = callers.read_bytes()
    result = clients(*[str(callers) if a == "F" else a for a in args])
    assert result.returncode == 1 and result.stdout == b"" and result.stderr.count(b"\n") == 1 and said in result.stderr
    assert callers.read_bytes() == before and not (callers.parent / "clients.json.lock").exists()


@pytest.mark.parametrize("size, status", [(31, 1), (32, 0), (4096, 0), (4097, 1)])
def test_imported_token_limits(callers, size, status):
    assert clients("import", "-file", str(callers), "-id", "a", stdin=b"x" * size + b"\n").returncode == status


@pytest.mark.parametrize("args", [[], ["help"], ["-h"], ["--help"], ["-help"], ["list", "--help"]])
def test_clients_help(args):
    result = clients(*args)
    assert result.returncode == 0 and result.stdout.startswith(b"Usage:") and result.stderr == b""


def test_clients_refuses_a_link_and_a_lock(callers, tmp_path):
    create(callers)
    link = tmp_path / "link.json"
    link.symlink_to(callers)
    assert clients("revoke", "-file", str(link), "-id", "a").returncode == 1
    (tmp_path / "clients.json.lock").mkdir()
    result = clients("revoke", "-file", str(callers), "-id", "a")
    assert result.returncode == 1 and b"lock" in result.stderr and (tmp_path / "clients.json.lock").is_dir()


def test_token_that_cannot_be_delivered_is_reported(callers):
    read, write = os.pipe()
    os.close(read)
    process = subprocess.Popen([BIN, "clients", "create", "-file", str(callers), "-id", "a", "-token-stdout"], stdout=write,
                               stderr=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL))
    os.close(write)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and b"rotate" in err and "a" in entries(callers)


# -- digest --


def test_digest_of_files(tmp_path):
    request = {"protocol": 4, "timeoutMs": 5, "javascript": {"code": CODE}}
    answer = answer_to(request, stdout=b"42\n")
    for subject, message, expected in (("request", request, request_digest(request)), ("result", answer, result_digest(stdout=b"42\n")),
                                       ("record", answer["record"], answer["record"]["recordSha256"])):
        path = tmp_path / subject
        path.write_text(json.dumps(message))
        result = plimsoll("digest", subject, str(path))
        assert (result.returncode, result.stdout.decode()) == (0, expected + "\n")
    result = plimsoll("digest", "record", "-", stdin=json.dumps(dict(answer["record"], policy="x")).encode())
    assert result.returncode == 76 and len(result.stdout) == 65


@pytest.mark.parametrize("args, status", [(["request"], 2), (["verdict", "-"], 2), (["request", "absent"], 1), (["request", "-"], 1),
                                          (["--vectors", "absent"], 1), (["--vectors", "absent", "x"], 2), ([], 2)])
def test_digest_failures(args, status):
    result = plimsoll("digest", *args, stdin=b"{")
    assert result.returncode == status and result.stdout == b"" and result.stderr != b""


def test_vectors(tmp_path):
    vectors = ROOT / "tests/vectors/protocol-vectors.json"
    result = plimsoll("digest", "--vectors", str(vectors))
    passed, failed = (int(word.split()[0]) for word in result.stdout.decode().splitlines()[-1].split(", "))
    assert result.returncode == 0 and passed >= 14 and failed == 0
    wrong = tmp_path / "wrong.json"
    wrong.write_text(vectors.read_text().replace("585a1b46c55e", "585a1b46c55f", 1))
    result = plimsoll("digest", "--vectors", str(wrong))
    assert result.returncode == 1 and result.stdout.decode().splitlines()[-1].endswith(", 1 failed")


# -- help --


@pytest.mark.parametrize("args", [["--help"], ["-h"], ["help"], ["run", "--help"], ["help", "run"], ["describe", "-h"], ["backends", "--help"],
                                  ["runs", "--help"], ["digest", "--help"], ["demo", "--help"], ["help", "clients"]])
def test_help(args):
    result = plimsoll(*args)
    assert result.returncode == 0 and result.stdout.startswith(b"Usage: plimsoll") and result.stderr == b""


def test_version_and_wrong_words():
    assert plimsoll("--version").stdout.startswith(b"plimsoll ")
    for args in ([], ["bogus"], ["--bogus"], ["help", "bogus"], ["demo", "x"], ["backends", "--limit", "1"]):
        result = plimsoll(*args)
        assert result.returncode == 2 and result.stdout == b"" and b"plimsoll" in result.stderr
