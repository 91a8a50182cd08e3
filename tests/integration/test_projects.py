"""Projects from outside: their limits one below, at and one above; what a file may hold; outcomes by protocol number; how large an answer may
be; what is recorded of them; which wall gets them.

The walls are the stand-ins of loadtest/standin (their acts are described there and in project.h), with the embedded wall where a kind must
fall through.
"""
import base64
import itertools
import json

import pytest
from plimsoll_client import Client, InvalidRequestError

import gateway as g

PROTOCOLS = (3, 4)


def project(*acts, steps=(), files=(), artifacts=(), protocol=4, **more):
    """A RunRequest of a project, whose first step is the stand-in's lines."""
    first = "\n".join("standin: " + act for act in acts) or "standin: answer"
    run = {"files": [{"path": p, "content": c} for p, c in files], "steps": [first, *steps], "artifacts": list(artifacts)}
    return {"protocol": protocol, "project": {k: v for k, v in run.items() if v}, **more}


def binary(request):
    """The same in the binary form."""
    run = b""
    for f in request["project"].get("files", ()):
        run += g.field(1, g.field(1, f["path"]) + g.field(2, f["content"]))
    for s in request["project"].get("steps", ()):
        run += g.field(2, s)
    for a in request["project"].get("artifacts", ()):
        run += g.field(4, a)
    return g.field(1, request["protocol"]) + g.field(11, run)


@pytest.fixture(scope="module")
def walls():
    """standin (container), standin2 (kernel), wasm (process); nobody changes it."""
    gw = g.Gateway({"SANDBOX_PROVIDER": "standin,standin2,wasm", "PLIMSOLL_STANDIN1": "tier=container,policy=policy:1",
                    "PLIMSOLL_STANDIN2": "tier=kernel,software=oci:two", "SANDBOX_MAX_CONCURRENT": "16", "PLIMSOLL_BUFFER_MB": "512"})
    with g.served(gw):
        yield gw.start()


def ask(gw, request, **more):
    answer = gw.post(g.RUN, request, **more)
    assert answer.status == 200, answer
    return answer


def result_of(gw, request, **more):
    answer = ask(gw, request, **more)
    g.check_record(request, answer)
    return answer.json()["project"]


def artifacts_of(result):
    return [(a["path"], base64.b64decode(a.get("content", ""))) for a in result.get("artifacts", ())]


def refused(gw, request, naming):
    """By either codec, and nothing was dispatched."""
    runs = gw.metric("plimsoll_runs_total")
    answer = gw.post(g.RUN, request)
    g.refused(answer, "invalid_argument", "request")
    assert naming in answer.message, answer
    other = gw.post(g.RUN, binary(request), content_type="application/proto")
    assert other.status == 400 and other.json()["message"] == answer.json()["message"]
    assert gw.metric("plimsoll_runs_total") == runs


# -- limits --


@pytest.mark.parametrize("count", [0, 1, 199, 200, 201])
def test_files(walls, count):
    request = project("copy", files=[(f"d/{n}", f"content {n}") for n in range(count)], artifacts=[f"d/{n}" for n in range(min(count, 100))])
    if count > 200:
        refused(walls, request, "project.files has 201 files; at most 200 are accepted")
    else:
        assert artifacts_of(result_of(walls, request)) == [(f"d/{n}", b"content %d" % n) for n in range(min(count, 100))]


@pytest.mark.parametrize("over", [-1, 0, 1])
@pytest.mark.parametrize("parts", [1, 200])
def test_bytes_of_all_files(walls, over, parts):
    total = 4 * 1024 * 1024 + over
    sizes = [total // parts + (n < total % parts) for n in range(parts)]
    request = project("copy", files=[(str(n), "x" * size) for n, size in enumerate(sizes)], artifacts=["0"])
    if over > 0:
        refused(walls, request, f"project.files hold {total} bytes; at most 4194304 are accepted")
    else:
        assert artifacts_of(result_of(walls, request)) == [("0", b"x" * sizes[0])]


def test_bytes_count_not_characters(walls):
    half = "é" * (2 * 1024 * 1024)
    for more, status in (("", 200), ("x", 400)):
        request = project(files=[("a", half), ("b", more)])
        for body, kind in ((json.dumps(request, ensure_ascii=False).encode(), "application/json"), (binary(request), "application/proto")):
            assert walls.post(g.RUN, body, content_type=kind).status == status


@pytest.mark.parametrize("count", [1, 2, 19, 20, 21])
def test_steps(walls, count):
    request = project("copy", steps=[f"step {n}" for n in range(1, count)])
    if count > 20:
        refused(walls, request, "project.steps has 21 steps; 1 to 20 are accepted")
        return
    steps = result_of(walls, request)["steps"]
    assert [s["command"] for s in steps] == request["project"]["steps"]
    assert [base64.b64decode(s["stdout"]).decode() for s in steps] == request["project"]["steps"]


def test_a_project_without_steps(walls):
    request = project()
    request["project"] = {"files": [{"path": "a", "content": "b"}]}
    refused(walls, request, "project.steps has 0 steps; 1 to 20 are accepted")
    request["project"] = {}
    refused(walls, request, "project.steps has 0 steps")


@pytest.mark.parametrize("size", [0, 1, 16383, 16384, 16385])
def test_bytes_of_a_step(walls, size):
    request = project("copy", steps=["s" * size])
    if size > 16384:
        refused(walls, request, "project.steps[1] is 16385 bytes; at most 16384 are accepted")
    else:
        assert result_of(walls, request)["steps"][1].get("command", "") == "s" * size


@pytest.mark.parametrize("count", [0, 1, 99, 100, 101])
def test_artifacts(walls, count):
    request = project(f"artifacts {count} 2", artifacts=[f"a/{n}" for n in range(count)])
    if count > 100:
        refused(walls, request, "project.artifacts has 101 paths; at most 100 are accepted")
    else:
        assert artifacts_of(result_of(walls, request)) == [(f"a/{n}", b"\0\1") for n in range(count)]


GOOD_PATHS = ["a", "a/b", ".a", "..a", "a..", "a/...", " ", "-", "a b/c d", "é/ü", "\u00a0", "\u2028", "x" * 1023, "x" * 1024,
              "/".join(["d"] * 512) + "/", "~", "C:", "%2e%2e/x"]
GOOD_PATHS = [p for p in GOOD_PATHS if not p.endswith("/")]
BAD_PATHS = ["", "/", "/a", "a/", "a//b", ".", "./a", "a/.", "..", "../a", "a/../b", "a/..", "a\\b", "\\", "a\nb", "a\x1fb", "a\x7fb", "a\u0080b",
             "a\u009fb", "x" * 1025, "é" * 512 + "x"]


@pytest.mark.parametrize("where", ["files", "artifacts"])
def test_paths(walls, where):
    for path in GOOD_PATHS:
        ask(walls, project("copy", files=[(path, "c")]) if where == "files" else project("copy", artifacts=[path]))
    for path in BAD_PATHS:
        request = project(files=[("ok", ""), (path, "c")]) if where == "files" else project(artifacts=["ok", path])
        refused(walls, request, f"project.{where}[1]")


def test_paths_by_the_byte(walls):
    for size in (1023, 1024):
        assert artifacts_of(result_of(walls, project("copy", files=[("é" + "x" * (size - 2), "c")], artifacts=["é" + "x" * (size - 2)])))
    refused(walls, project(files=[("é" + "x" * 1023, "c")]), "project.files[0].path is 1025 bytes; 1 to 1024 are accepted")


def test_a_nul_in_a_path_or_step(walls):
    for request in (project(files=[("a\0b", "")]), project(artifacts=["a\0b"]), project(steps=["a\0b"])):
        answer = walls.post(g.RUN, request)
        g.refused_http(answer, 400, "invalid_argument")
        answer = walls.post(g.RUN, binary(request), content_type="application/proto")
        g.refused_http(answer, 400, "invalid_argument")


def test_duplicates(walls):
    refused(walls, project(files=[("a", "1"), ("b", "2"), ("a", "1")]), "project.files has a path twice")
    refused(walls, project(artifacts=["a", "b", "a"]), "project.artifacts has a path twice")
    # other spellings are other paths, and a file may be asked for as an artifact
    ask(walls, project(files=[("a", "1"), ("A", "2"), ("a ", "3"), ("\u00e9", ""), ("e\u0301", "")], artifacts=["a", "A"]))


def test_what_is_told_first(walls):
    """Steps, files, artifacts, grant profile (docs/protocol-notes.md)."""
    def wrong(parts):
        request = project(files=[("/", "")] if "files" in parts else (), artifacts=["/"] if "artifacts" in parts else ())
        if "steps" in parts:
            request["project"]["steps"] = []
        request["project"]["grantProfile"] = "g" * 129
        return request
    for first, parts in (("steps", ("steps", "files", "artifacts")), ("files", ("files", "artifacts")), ("artifacts", ("artifacts",)),
                         ("grant_profile", ())):
        assert f"project.{first}" in walls.post(g.RUN, wrong(parts)).message
    request = project()
    request["project"]["grantProfile"] = "g" * 128
    g.refused(walls.post(g.RUN, request), "permission_denied", "permission")


# -- what a file may hold --


TEXTS = ["", "\0", "a\0b", "\0\0\0", "é\0☕\U0001f642", "\x01\x1f\x7f\u0080\ufeff\uffff", '"\\/', "line\r\nline\n", "\ud7ff\ue000"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_character_of_a_file_arrives(walls, protocol):
    files = [(f"f{n}", text) for n, text in enumerate(TEXTS)]
    request = project("copy", files=files, artifacts=[path for path, _ in files], protocol=protocol)
    wanted = [(path, text.encode()) for path, text in files]
    answer = ask(walls, request)
    record = g.check_record(request, answer)
    assert artifacts_of(answer.json()["project"]) == wanted
    other = ask(walls, binary(request), content_type="application/proto")
    message = g.fields(other.body)
    result = g.fields(message[11][0])
    assert [(g.fields(a)[1][0].decode(), g.fields(a).get(2, [b""])[0]) for a in result[4]] == wanted
    # one message, one digest, whatever carried it
    assert g.fields(message[4][0])[2][0].decode() == record.request_sha256


def test_the_official_client_sends_a_nul(walls):
    client = Client(f"http://127.0.0.1:{walls.port}", walls.token)
    result = client.run_project(files={"a": "x\0y"}, steps=["standin: copy"], artifacts=["a"])
    assert {a.path: a.content for a in result.artifacts} == {"a": b"x\0y"} and result.record.request_sha256
    with pytest.raises(InvalidRequestError):
        client.run_project(files={"a\0b": ""}, steps=["true"])


@pytest.mark.parametrize("content", [b"\xff", b"a\xc0\x80", b"\xed\xa0\x80", b"\xe2\x82"])
def test_a_file_that_is_no_text(walls, content):
    run = g.field(1, g.field(1, "a") + g.field(2, content)) + g.field(2, "true")
    answer = walls.post(g.RUN, g.field(1, 4) + g.field(11, run), content_type="application/proto")
    g.refused_http(answer, 400, "invalid_argument")
    raw = b'{"protocol":4,"project":{"files":[{"path":"a","content":"' + content + b'"}],"steps":["true"]}}'
    g.refused_http(walls.post(g.RUN, raw), 400, "invalid_argument")


def test_a_lone_surrogate_in_a_file(walls):
    raw = b'{"protocol":4,"project":{"files":[{"path":"a","content":"\\ud800"}],"steps":["true"]}}'
    g.refused_http(walls.post(g.RUN, raw), 400, "invalid_argument")


# -- outcomes --


OUTCOMES = {1: "COMPLETED", 2: "SETUP_FAILED", 3: "TIMED_OUT", 4: "PROTOCOL_ERROR", 5: "RUNNER_FAILED"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("number", OUTCOMES)
def test_an_outcome_by_protocol_number(walls, protocol, number):
    result = result_of(walls, project(f"outcome {number} in our words", protocol=protocol))
    told = 2 if protocol == 3 and number == 5 else number
    assert result["outcome"] == "PROJECT_OUTCOME_" + OUTCOMES[told]
    assert result["outcomeDetail"] == "in our words"


def test_protocol_3_never_sees_outcome_5_in_the_binary_form(walls):
    answer = ask(walls, binary(project("outcome 5", protocol=3)), content_type="application/proto")
    assert g.fields(g.fields(answer.body)[11][0])[3] == [2]


@pytest.mark.parametrize("number", [6, 99, -1])
def test_an_outcome_there_is_not(gateway, number):
    gw = gateway(SANDBOX_PROVIDER="standin")
    gw.allowed_findings = ("error",)
    g.failed(gw.post(g.RUN, project(f"outcome {number}")), "internal")


def test_texts_are_repaired_before_the_digest(walls):
    result = result_of(walls, project("outcome 4 a%ffb%e2%82c%c0%80"))
    assert result["outcomeDetail"] == "a\ufffdb\ufffdc\ufffd\ufffd"


def test_steps_stop_at_the_first_failure_and_are_told_as_they_were(walls):
    result = result_of(walls, project("steps 0 3", steps=["second", "third"]))
    assert [(s["command"], s.get("exitCode", 0)) for s in result["steps"]][1:] == [("second", 3)]
    assert result["outcome"] == "PROJECT_OUTCOME_COMPLETED"


def test_a_project_that_ran_out_of_time(walls):
    result = result_of(walls, project("hold 5000", timeoutMs=200))
    assert result["outcome"] == "PROJECT_OUTCOME_TIMED_OUT"
    assert (result["steps"][0]["exitCode"], result["steps"][0]["timedOut"]) == (124, True)


# -- how large an answer may be --


LIMIT = 15 * 1024 * 1024


def encoded(result):
    """As backends/role_result.h counts it."""
    def text(s):
        return 2 + sum(6 if c < 0x20 else 2 if c in b'"\\' else 1 for c in s.encode())
    size = 256 + text(result.get("outcomeDetail", ""))
    for s in result.get("steps", ()):
        size += 256 + text(s.get("command", "")) + len(s.get("stdout", "")) + len(s.get("stderr", ""))
    return size + sum(32 + text(a["path"]) + len(a.get("content", "")) for a in result.get("artifacts", ()))


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_artifacts_past_15_mib_are_dropped_from_the_end(walls, over):
    def request(length):
        path = "p" * length
        return project(f"artifacts 3 {size}", steps=(), artifacts=["first", "second", path])
    size = 3_900_000
    small = result_of(walls, request(3))
    assert len(small["artifacts"]) == 3 and "artifactsTruncated" not in small
    assert encoded(small) < LIMIT - 1100
    # a few larger artifacts, then the last path's bytes: exactly the limit
    size += 3 * ((LIMIT - encoded(small) - 1000) // 12)
    small = result_of(walls, request(3))
    rest = LIMIT - encoded(small)
    assert 0 < 3 + rest + over <= 1024
    result = result_of(walls, request(3 + rest + over))
    assert len(result["artifacts"]) == (3 if over <= 0 else 2)
    assert result.get("artifactsTruncated", False) == (over > 0)
    assert result["outcome"] == "PROJECT_OUTCOME_COMPLETED" and encoded(result) <= LIMIT


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_steps_past_15_mib_end_as_a_failure_of_the_runner(walls, protocol):
    result = result_of(walls, project("output 6000000", "steps 0 7", steps=["two"], artifacts=["a"], protocol=protocol))
    assert result["outcome"] == ("PROJECT_OUTCOME_RUNNER_FAILED" if protocol == 4 else "PROJECT_OUTCOME_SETUP_FAILED")
    assert "15 MiB" in result["outcomeDetail"]
    assert [s.get("exitCode", 0) for s in result["steps"]] == [0, 7]
    assert all(s["stdoutTruncated"] and "stdout" not in s for s in result["steps"])


# -- what is recorded --


@pytest.mark.parametrize("acts, exit_code, timed_out, outcome", [
    (("steps 0 3",), 3, False, "completed"), (("steps 0 0",), 0, False, "completed"), (("hold 5000",), 124, True, "timed_out"),
    (("outcome 4 lost", "steps 0"), -1, False, "protocol_error"), (("outcome 2", "steps"), -1, False, "setup_failed"),
    (("outcome 5", "steps 0 1"), -1, False, "runner_failed")])
def test_the_run_in_the_list(walls, acts, exit_code, timed_out, outcome):
    counted = walls.metric(f'plimsoll_project_outcomes_total{{outcome="{outcome}"}}')
    answer = ask(walls, project(*acts, steps=["two"], timeoutMs=300))
    run = walls.get("/v1/runs/" + answer.header("Plimsoll-Run-Id")).json()
    assert (run["kind"], run["verdict"], run["backend"]) == ("project", "answered", "standin")
    assert (run["exit_code"], run["timed_out"], run["outcome"]) == (exit_code, timed_out, outcome)
    assert run["record"]["recordSha256"] == answer.json()["record"]["recordSha256"]
    assert walls.metric(f'plimsoll_project_outcomes_total{{outcome="{outcome}"}}') == counted + 1


def test_a_snippet_has_no_outcome(walls):
    run = walls.get("/v1/runs/" + walls.ok("1").header("Plimsoll-Run-Id")).json()
    assert (run["kind"], run["outcome"]) == ("javascript", "")


def test_the_audit_line(walls):
    answer = ask(walls, project("outcome 3 step 2", "steps 0 124", files=[("a", "xyz"), ("b", "é\0")], steps=["two", "three"], traceId="t.9"))
    line = walls.wait_log("project run", run_id=answer.header("Plimsoll-Run-Id"))
    wanted = {"op": "project", "files": 2, "steps": 3, "total_bytes": 6, "grant_profile": "", "outcome": "timed_out", "outcome_detail": "step 2",
              "steps_ran": 2, "exit_code": 124, "sandbox": "standin", "isolation": "container", "trace_id": "t.9"}
    assert {k: line.get(k) for k in wanted} == wanted and line["timed_out"] is False
    assert line["record_sha256"] == answer.json()["record"]["recordSha256"]
    assert "xyz" not in walls.log()


def test_the_audit_line_of_a_failure(gateway):
    gw = gateway(SANDBOX_PROVIDER="standin")
    gw.allowed_findings = ("error",)
    answer = gw.post(g.RUN, project("fail internal", files=[("a", "b")]))
    g.failed(answer, "internal")
    line = gw.wait_log("project run failed", run_id=answer.header("Plimsoll-Run-Id"))
    assert (line["op"], line["files"], line["steps"], line["total_bytes"]) == ("project", 1, 1, 1)


def test_a_project_sent_twice_runs_once(walls):
    key = g.new_id()
    request = project("copy", files=[("a", "x\0")], artifacts=["a"])
    first, second = (ask(walls, request, request_id=key) for _ in range(2))
    assert second.header("Plimsoll-Replayed") == "1" and first.json() == second.json()
    other = project("copy", files=[("a", "x")], artifacts=["a"])  # what follows the NUL counts
    g.refused(walls.post(g.RUN, other, request_id=key), "invalid_argument", "request", key)


# -- which wall --


def test_describe(walls):
    first = walls.describe().json()
    assert (first["sandbox"], first["isolation"], first["supportsProject"], first["policy"]) == ("standin", "container", True, "policy:1")
    assert first["resources"] == {"memoryMb": 256}
    assert first["projectEnvironment"]["languages"] == ["shell"] and first["javascriptEnvironment"]["languages"] == ["javascript"]
    assert first["projectEnvironment"]["maxTimeoutMs"] == 300000 and first["moduleEnvironment"] == {}
    second = walls.describe("/backends/standin2" + g.DESCRIBE).json()
    assert (second["isolation"], second["projectEnvironment"]["softwareIdentity"]) == ("kernel", "oci:two")
    third = walls.describe("/backends/wasm" + g.DESCRIBE).json()
    assert "supportsProject" not in third and third["projectEnvironment"] == {}


def test_the_list_of_backends(walls):
    listed = {b["name"]: b for b in walls.get("/v1/backends").json()["backends"]}
    assert list(listed["standin"]["kinds"]) == ["javascript", "project"] and list(listed["wasm"]["kinds"]) == ["javascript"]
    assert listed["standin"]["limits"]["concurrent"] == listed["wasm"]["limits"]["concurrent"] == 16


TIERS = {"standin": 2, "standin2": 3, "wasm": 1}
FLOORS = {"": 0, "process": 1, "container": 2, "kernel": 3, "vm": 4}


@pytest.mark.parametrize("order", list(itertools.permutations(TIERS)), ids=",".join)
def test_the_order_the_floor_and_the_kind_decide(gateway, order):
    """A wall that runs only projects, one that runs all, and one that runs only snippets, in every order."""
    kinds = {"standin": {"project"}, "standin2": {"javascript", "project"}, "wasm": {"javascript"}}
    gw = gateway(SANDBOX_PROVIDER=",".join(order), PLIMSOLL_STANDIN1="tier=container,kinds=project", PLIMSOLL_STANDIN2="tier=kernel")
    for floor, rank in FLOORS.items():
        for kind, request in (("javascript", g.javascript("console.log(1)")), ("project", project())):
            answer = gw.post(g.RUN, {**request, "minimumIsolation": floor})
            able = [w for w in order if TIERS[w] >= rank and kind in kinds[w]]
            if able:
                assert answer.status == 200 and answer.header("Plimsoll-Backend") == able[0], (floor, kind, answer)
                assert FLOORS[answer.json()["isolation"]] >= rank
            else:
                g.refused(answer, "failed_precondition", "isolation")


def test_a_floor_only_a_wall_without_projects_meets(gateway):
    """The wall that came further is told of: it has the tier and not the kind."""
    gw = gateway(SANDBOX_PROVIDER="standin,standin2", PLIMSOLL_STANDIN1="tier=container", PLIMSOLL_STANDIN2="tier=kernel,kinds=javascript")
    g.refused(gw.post(g.RUN, project(minimumIsolation="kernel")), "unimplemented", "unsupported")
    g.refused(gw.post("/backends/standin2" + g.RUN, project()), "unimplemented", "unsupported")
    g.refused(gw.post(g.RUN, project(minimumIsolation="vm")), "failed_precondition", "isolation")
    assert gw.post(g.RUN, project()).header("Plimsoll-Backend") == "standin"
