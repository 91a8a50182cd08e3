"""The official Python client, unchanged: runs, every refusal it can be given, every record it checks; and its older versions, which speak
protocol 3."""
import asyncio
import contextlib
import json
import os
import ssl
import subprocess
import sys
import threading
import time

import plimsoll_client
import pytest
from plimsoll_client import Client, SoftwareRule, errors

import gateway as g


@pytest.fixture(scope="module")
def client(gw):
    return Client(f"http://127.0.0.1:{gw.port}", gw.token)


def test_describe(client):
    info = client.describe()
    assert (info.provider, info.isolation, info.protocol) == ("wasm", "process", plimsoll_client.PROTOCOL)
    assert not info.supports_project and not info.supports_module and not info.supports_sessions
    assert not info.supports_javascript_grants and not info.supports_project_grants
    assert info.javascript_environment.identity.startswith("quickjs-wasm:sha256:")
    assert info.javascript_environment.max_timeout_ms == 30000 and info.javascript_environment.languages == ("javascript",)
    assert info.project_environment.languages == () and info.session_environment.identity == ""
    assert info.resources.memory_mb == 256


def test_a_run(client):
    result = client.run_javascript("console.log('wasm', 6 * 7)", timeout=5, minimum_isolation="process", trace_id="t.1")
    assert result.stdout == b"wasm 42\n" and result.stderr == b"" and result.exit_code == 0 and not result.timed_out
    assert (result.provider, result.isolation) == ("wasm", "process")
    record = result.record
    assert record.version == 4 and record.session == "" and record.sequence == 0 and len(record.sha256) == 64


@pytest.mark.parametrize("code", ["throw new Error('☕')", "console.log('\\u0000\\ud83d\\ude00')", "", "console.log(NaN, -0, 1e400)", "x" * 262144,
                                  "console.log('y'.repeat(100000))", "for(;;);", "'use strict'; undefined_name"])
def test_every_record_holds(client, code):
    """The client recomputes all digests of each answer and raises when one does not hold."""
    if code == "":
        with pytest.raises(errors.InvalidRequestError):
            client.run_javascript(code)
        return
    result = client.run_javascript(code, timeout=1)
    assert result.record is not None and result.record.result_sha256
    assert result.timed_out == (code == "for(;;);")


def test_two_hundred_records_hold(client):
    for n in range(200):
        assert client.run_javascript(f"console.log({n})").stdout == b"%d\n" % n


def test_runs_of_many_threads(gateway):
    gw = gateway(SANDBOX_MAX_CONCURRENT="32")
    client = Client(f"http://127.0.0.1:{gw.port}", gw.token)
    jobs = [g.Background(lambda n=n: [client.run_javascript(f"console.log({n}, {i})").stdout for i in range(10)]) for n in range(8)]
    assert [j.join() for j in jobs] == [[b"%d %d\n" % (n, i) for i in range(10)] for n in range(8)]


def test_the_asynchronous_client(gw):
    async def both():
        client = plimsoll_client.AsyncClient(f"http://127.0.0.1:{gw.port}", gw.token)
        info, result = await asyncio.gather(client.describe(), client.run_javascript("console.log(1)"))
        return info.provider, result.stdout
    assert asyncio.run(both()) == ("wasm", b"1\n")


@pytest.mark.parametrize("path", ["/backends/wasm", "/backends/wasm/", "/"])
def test_a_base_url_that_pins_the_backend(gw, path):
    client = Client(f"http://127.0.0.1:{gw.port}{path}", gw.token)
    assert client.describe().provider == "wasm"
    assert client.run_javascript("console.log(1)").stdout == b"1\n"


def test_a_base_url_with_a_backend_that_is_not_there(gw):
    client = Client(f"http://127.0.0.1:{gw.port}/backends/docker", gw.token)
    for call in (client.describe, lambda: client.run_javascript("1")):
        with pytest.raises(errors.UnsupportedError) as e:
            call()
        assert e.value.not_dispatched == "unsupported" and e.value.http_status == 404 and not e.value.answer_not_bound


def test_over_tls(gateway, tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=gw",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    gw = gateway(PLIMSOLL_TLS_CERT=str(cert), PLIMSOLL_TLS_KEY=str(key))
    url = f"https://127.0.0.1:{gw.port}"
    client = Client(url, gw.token, ssl_context=ssl.create_default_context(cafile=str(cert)))
    assert client.describe().provider == "wasm"
    for n in range(5):
        assert client.run_javascript(f"console.log({n})", minimum_isolation="process").stdout == b"%d\n" % n
    with pytest.raises(errors.InsufficientIsolationError):
        client.run_javascript("1", minimum_isolation="vm")
    # a certificate nobody vouches for: nothing was sent, and the client says so
    with pytest.raises(errors.TransportError) as e:
        Client(url, gw.token).run_javascript("1")
    assert e.value.not_dispatched == "environment"
    # cleartext to a TLS port is no request
    with gw.connect() as c:
        c.send(g.head("/healthz", method="GET"))
        with contextlib.suppress(ConnectionResetError):
            assert not c.sock.recv(100).startswith(b"HTTP/1.1 200")


# -- every reason --


def is_refused(error, code, reason, status):
    assert (error.code, error.not_dispatched, error.http_status) == (code, reason, status), error
    assert not error.answer_not_bound


@pytest.fixture
def bare(monkeypatch):
    """The client without its own checks, so that the gateway's are met."""
    from plimsoll_client import _validate
    monkeypatch.setattr(_validate, "code", lambda code: code)
    monkeypatch.setattr(_validate, "floor", lambda floor: floor or "")
    monkeypatch.setattr(_validate, "grant_profile", lambda p: p or "")


def test_reason_request(client, bare):
    for call in (lambda: client.run_javascript(""), lambda: client.run_javascript("x" * 262145),
                 lambda: client.run_javascript("1", minimum_isolation="none"), lambda: client.run_javascript("1", grant_profile="p" * 129)):
        with pytest.raises(errors.InvalidRequestError) as e:
            call()
        is_refused(e.value, "invalid_argument", "request", 400)


def test_reason_request_of_a_body_too_large(client, bare):
    with pytest.raises(errors.InvalidRequestError) as e:
        client.run_javascript("x" * (9 * g.MIB))
    is_refused(e.value, "resource_exhausted", "request", 429)


def test_reason_permission(gw, client):
    with pytest.raises(errors.PlimsollError) as e:
        client.run_javascript("1", grant_profile="profile")
    is_refused(e.value, "permission_denied", "permission", 403)
    for token in (None, "x" * 40):
        stranger = Client(f"http://127.0.0.1:{gw.port}", token)
        for call in (stranger.describe, lambda: stranger.run_javascript("1")):
            with pytest.raises(errors.PlimsollError) as e:
                call()
            is_refused(e.value, "unauthenticated", "permission", 401)


@pytest.mark.parametrize("number, code, status", [(0, "invalid_argument", 400), (2, "unimplemented", 501), (5, "unimplemented", 501)])
def test_reason_protocol(client, monkeypatch, number, code, status):
    from plimsoll_client import client as module
    monkeypatch.setattr(module, "PROTOCOL", number)
    with pytest.raises(errors.PlimsollError) as e:
        client.run_javascript("1")
    is_refused(e.value, code, "protocol", status)
    if number:
        assert isinstance(e.value, errors.ProtocolMismatchError)
        with pytest.raises(errors.ProtocolMismatchError) as e:
            client.describe()
        assert e.value.info.provider == "wasm"


def test_reason_unsupported(client):
    calls = (lambda: client.run_project({"a": "b"}, ["cat a"], ["a"]), lambda: client.run_module("M", [[1.0]], end_time=1.0, step=0.5),
             lambda: client.open_session(owner="somebody"))
    for call in calls:
        with pytest.raises(errors.UnsupportedError) as e:
            call()
        is_refused(e.value, "unimplemented", "unsupported", 501)


@pytest.mark.parametrize("floor", ["container", "kernel", "vm"])
def test_reason_isolation(client, floor):
    for call in (lambda: client.run_javascript("1", minimum_isolation=floor), lambda: client.run_project({}, ["x"], minimum_isolation=floor)):
        with pytest.raises(errors.InsufficientIsolationError) as e:
            call()
        is_refused(e.value, "failed_precondition", "isolation", 400)


@pytest.mark.parametrize("rule", [SoftwareRule.exact("oci-manifest:linux/amd64@sha256:" + "a" * 64), SoftwareRule.approved("a", "b")])
def test_reason_environment(client, rule):
    with pytest.raises(errors.SoftwareMismatchError) as e:
        client.run_javascript("1", software=rule)
    is_refused(e.value, "failed_precondition", "environment", 400)


def test_reason_capacity(gateway):
    gw = gateway(SANDBOX_RATE_PER_MIN="1")
    client = Client(f"http://127.0.0.1:{gw.port}", gw.token)
    client.run_javascript("1")
    with pytest.raises(errors.AtCapacityError) as e:
        client.run_javascript("1")
    is_refused(e.value, "resource_exhausted", "capacity", 429)


@pytest.mark.faults
def test_every_reason_a_wall_can_give(gateway):
    gw = gateway(SANDBOX_PROVIDER="standin", PLIMSOLL_STANDIN1="software=image:1,policy=policy:1")
    client = Client(f"http://127.0.0.1:{gw.port}", gw.token)
    for reason in ("request", "permission", "unsupported", "isolation", "capacity", "environment"):
        with pytest.raises(errors.PlimsollError) as e:
            client.run_javascript("standin: refuse " + reason)
        assert e.value.not_dispatched == reason
    for code in ("internal", "unavailable", "canceled", "deadline_exceeded"):
        with pytest.raises(errors.PlimsollError) as e:
            client.run_javascript("standin: fail " + code)
        assert e.value.not_dispatched is None and e.value.code == code and not e.value.answer_not_bound
    # records with software and policy in them, snippets and projects
    for rule in (None, SoftwareRule.exact("image:1"), SoftwareRule.approved("image:1"), SoftwareRule.approved("image:1", "image:0")):
        result = client.run_javascript("standin: bytes 300", software=rule, minimum_isolation="container")
        assert result.stdout == bytes(n % 256 for n in range(300)) and result.record.policy == "policy:1"
        assert result.record.software_rule_id == (rule.rule_id() if rule else "")
        result = client.run_project({"a/b": "☕"}, ["standin: answer 3", "x"], software=rule)
        assert result.outcome == "completed" and result.steps[0].exit_code == 3 and result.record.software_identity == "image:1"


def test_a_call_that_is_cancelled(gateway):
    gw = gateway()
    client = Client(f"http://127.0.0.1:{gw.port}", gw.token)
    handle = plimsoll_client.CancelHandle() if hasattr(plimsoll_client, "CancelHandle") else None
    if handle is None:
        from plimsoll_client._transport import CancelHandle
        handle = CancelHandle()
    errors_seen = []

    def call():
        try:
            client.run_javascript("for(;;);", timeout=25, cancel=handle)
        except errors.PlimsollError as e:
            errors_seen.append(e)
    thread = threading.Thread(target=call)
    thread.start()
    gw.wait_inflight(1)
    handle.cancel()
    thread.join(g.ANSWER_S)
    assert isinstance(errors_seen[0], errors.RequestCanceledError) and errors_seen[0].not_dispatched is None
    gw.wait_inflight(0, 1.5)
    assert gw.metric('plimsoll_canceled_total{cause="hang_up"}') == 1


# -- older versions --


OLD = """
import json, sys
import plimsoll_client
from plimsoll_client import Client, SoftwareRule, errors
url, token = sys.argv[1:]
client = Client(url, token)
out = {"protocol": plimsoll_client.PROTOCOL}
result = client.run_javascript("console.log('old'); throw new Error('x')", timeout=5, minimum_isolation="process", trace_id="t")
out["run"] = [result.stdout.decode(), result.exit_code, result.record.version, result.provider, result.isolation]
try:
    client.describe()
except errors.PlimsollError as e:
    out["describe"] = [type(e).__name__, e.not_dispatched, e.info.protocol, e.info.provider]
calls = {
    "isolation": lambda: client.run_javascript("1", minimum_isolation="vm"),
    "environment": lambda: client.run_javascript("1", software=SoftwareRule.exact("a")),
    "unsupported": lambda: client.run_project({"a": "b"}, ["x"]),
    "permission": lambda: client.run_javascript("1", grant_profile="p"),
    "session": lambda: client.open_session(),
}
for name, call in calls.items():
    try:
        call()
        out[name] = None
    except errors.PlimsollError as e:
        out[name] = [type(e).__name__, e.code, e.not_dispatched]
print(json.dumps(out))
"""


@pytest.fixture(scope="module", params=["0.22.0", "0.21.0"])
def old_client(request):
    """The folder of an older version, kept in the build folder between runs."""
    folder = g.ROOT / "build" / "clients" / request.param
    if not (folder / "plimsoll_client").is_dir():
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), f"plimsoll-client=={request.param}"],
                       check=True, timeout=300)
    return folder


def test_versions_that_speak_protocol_3(gw, old_client):
    done = subprocess.run([sys.executable, "-S", "-c", OLD, f"http://127.0.0.1:{gw.port}", gw.token], capture_output=True, text=True, timeout=120,
                          env={"PYTHONPATH": str(old_client), "PATH": os.environ["PATH"]})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "protocol": 3, "run": ["old\n", 1, 2, "wasm", "process"],
        # one number has room in a description; it is the newest, and this client says so
        "describe": ["ProtocolMismatchError", "protocol", 4, "wasm"],
        "isolation": ["InsufficientIsolationError", "failed_precondition", "isolation"],
        "environment": ["SoftwareMismatchError", "failed_precondition", "environment"],
        "unsupported": ["UnsupportedError", "unimplemented", "unsupported"],
        "permission": ["PlimsollError", "permission_denied", "permission"],
        "session": ["UnsupportedError", "unimplemented", "unsupported"]}


# -- the walls of a local engine --


def test_a_snippet_and_a_project_with_artifacts(all_walls, local_wall):
    """On both walls; the client checks every record it is given, and raises when one does not hold."""
    client = Client(f"http://127.0.0.1:{all_walls.port}/backends/{local_wall.name}", all_walls.token)
    info = client.describe()
    assert (info.provider, info.isolation, info.supports_project) == (local_wall.name, local_wall.tier, True)
    assert info.project_environment.languages == ("javascript", "python") and info.project_environment.max_timeout_ms == 120000
    result = client.run_javascript("console.log(process.version, 6 * 7)", timeout=20, minimum_isolation=local_wall.tier)
    assert result.stdout.endswith(b" 42\n") and (result.provider, result.isolation) == (local_wall.name, local_wall.tier)
    assert result.record.version == 4 and result.record.environment == info.javascript_environment.identity
    result = client.run_project({"main.py": "print(sum(map(int, open('in.txt'))))\n", "in.txt": "20\n22\n"},
                                ["python3 main.py > out.txt", "cat out.txt; head -c 3 /dev/zero > zeros; exit 3", "echo never"],
                                ["out.txt", "zeros", "missing"], timeout=60, minimum_isolation=local_wall.tier)
    assert result.outcome == "completed" and [s.exit_code for s in result.steps] == [0, 3] and result.steps[1].stdout == b"42\n"
    assert {a.path: a.content for a in result.artifacts} == {"out.txt": b"42\n", "zeros": b"\0\0\0"}
    assert result.record.environment == info.project_environment.identity and result.record.result_sha256
    with pytest.raises(errors.InsufficientIsolationError):
        client.run_project({}, ["true"], minimum_isolation="vm")


def test_many_records_of_the_walls_hold(all_walls, local_wall):
    client = Client(f"http://127.0.0.1:{all_walls.port}/backends/{local_wall.name}", all_walls.token)
    codes = ["throw new Error('☕')", "process.stdout.write(Buffer.from([255, 254, 0, 128]))", "process.exit(77)", "console.log('y'.repeat(100000))",
             "for(;;);", "process.kill(process.pid, 'SIGKILL')"]
    for code in codes:
        # a marked refusal for want of a started sandbox is sent again, as the client's own documentation says
        for attempt in range(20):
            try:
                result = client.run_javascript(code, timeout=3)
                break
            except errors.AtCapacityError:
                time.sleep(0.5)
        assert result.record is not None and result.timed_out == (code == "for(;;);")
