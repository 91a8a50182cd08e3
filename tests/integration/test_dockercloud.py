"""The Docker Cloud wall against the stand-in of the service, over both of its APIs from one table: runs from end to end, and every fault of the
service at every step, with the answer's code and mark, how often a command was started, and both books (the service's account and the ledger) empty
at the end. A difference between the APIs is an expectation of its own."""
import base64
import contextlib
import json
import os
import signal
import time

import pytest

import clouds
import gateway as g
import walls

pytestmark = pytest.mark.faults

RUN = "/backends/dockercloud" + g.RUN
DIGEST = "sha256:" + "a" * 64
PAUSE_S = 0.2        # between two trials of the wall
CODE = "console.log('out'); console.error('err'); process.exit(3)"
# exec calls of a run's sandbox before its first step: mkdir, and the look at what arrived
OWN_EXECS = 2


APIS = ("connect", "rest")


@pytest.fixture(scope="module", params=APIS)
def api(request):
    walls.Dockercloud().require()
    return request.param


class Service:
    """One gateway with the stand-in behind it."""

    def __init__(self, api, cloud, gw):
        self.api, self.cloud, self.gw = api, cloud, gw

    def snippet(self, code=CODE, **more):
        return self.gw.post(RUN, g.javascript(code, minimumIsolation="vm", **more))

    def project(self, steps=("echo one > out.txt; echo 1", "exit 4", "echo never"), files=(("a/b.txt", "text"),), artifacts=("out.txt", "none.txt"), **more):
        project = {"steps": list(steps), "files": [{"path": p, "content": c} for p, c in files], "artifacts": list(artifacts)}
        return self.gw.post(RUN, {"protocol": 4, "minimumIsolation": "vm", "project": project, **more})

    def ready(self):
        """Until the wall is proven and takes runs."""
        g.wait_for(lambda: self.gw.get("/readyz").status == 200 and self.is_proven(), "the wall to be proven", 60)

    def is_proven(self):
        return self.gw.describe(path="/backends/dockercloud" + g.DESCRIBE).json().get("isolation") == "vm"

    def boxes(self, since=0):
        """The service's own rows of sandboxes, from the one of that number on."""
        return self.cloud.account()["sandboxes"][since:]

    def settle(self, seconds=30):
        """Both books are empty, and nobody did what the service's contract forbids."""
        ledger = 'plimsoll_ledger_entries{backend="dockercloud"}'
        g.wait_for(lambda: not self.cloud.alive() and self.gw.metrics().get(ledger) == 0, "the account and the ledger to be empty", seconds)
        assert self.cloud.leaks() == [] and self.cloud.violations() == []
        assert self.gw.metrics()["plimsoll_inflight"] == 0


def settings_of(api, cloud, **more):
    return {"SANDBOX_PROVIDER": "dockercloud", "SANDBOX_DOCKERCLOUD_API": api, "SANDBOX_DOCKERCLOUD_API_URL": cloud.ready[f"{api}_url"],
            "SANDBOX_DOCKERCLOUD_AUTH_URL": cloud.ready["auth_url"], "DOCKER_SBX_USERNAME": cloud.ready["identifier"],
            "DOCKER_SBX_TOKEN": cloud.ready["secret"], "SANDBOX_DOCKERCLOUD_IMAGE": f"registry.example/team/node@{DIGEST}",
            "SANDBOX_CLOUD_CREATES_PER_MINUTE": "0", "PLIMSOLL_CLOUD_UNSEEN": "1s", "PLIMSOLL_CLOUD_SMOKE_PAUSE": f"{int(PAUSE_S * 1000)}ms",
            "PLIMSOLL_PROOF_INTERVAL": "30m", "PLIMSOLL_EVIDENCE_MAX_AGE": "2h", **more}


@contextlib.contextmanager
def served(api, *options, **more):
    with clouds.DockercloudStandin(*options) as cloud:
        with g.served(g.Gateway(settings_of(api, cloud, **more))) as gw:
            gw.secrets += [cloud.ready["secret"]]
            service = Service(api, cloud, gw.start())
            service.ready()
            service.settle()
            yield service


@pytest.fixture(scope="module")
def service(api):
    with served(api, "--knobs", json.dumps({"quota_concurrent": 100, "quota_stored": 100, **DEFAULTS})) as service:
        yield service


def text(answer, name):
    return base64.b64decode(answer.json()["javascript"].get(name, ""))


# As the service is between the cases: as quick as it can be.
DEFAULTS = {"create_fails_after_accept": False, "op_wait_unimplemented": False, "enum_numbers": False, "rate_limit_reads": 0, "echo_secret": False,
            "policy_mode": "denyAll", "policy_allow": [], "policy_missing_field": "", "policy_409": False, "mint_limited": 0, "refuse_credential_once": 0,
            "quoted_parts": False, "delete_fails": 0, "delete_stale_once": 0, "delete_lag_reads": 0, "boot_ms": 0, "list_pages": 0, "clock_skew_ms": 0,
            "credential_life_ms": 0}


# -- what it does --


def test_a_snippet_and_what_is_asked_for_it(service, api):
    service.ready()
    before, since = len(service.boxes()), len(service.cloud.journal())
    answer = service.snippet()
    assert answer.status == 200, answer
    got = answer.json()
    g.check_record(g.javascript(CODE, minimumIsolation="vm"), answer)
    assert (got["sandbox"], got["isolation"], got["javascript"]["exitCode"]) == ("dockercloud", "vm", 3)
    assert (text(answer, "stdout"), text(answer, "stderr")) == (b"out\n", b"err\n")
    # only Connect tells what started
    assert got["record"].get("softwareIdentity", "") == (f"oci-manifest:linux/amd64@{DIGEST}" if api == "connect" else "")
    service.settle()
    boxes = service.boxes(before)
    assert len(boxes) == 1 and boxes[0]["ended_by"] == "api"
    counts = boxes[0]["counts"]
    assert (counts["exec"], counts["upload"], counts.get("download", 0)) == (OWN_EXECS + 1, 1, 0)
    steps = [line["step"] for line in service.cloud.journal()[since:]]
    assert steps.count("create") == 1 and steps.count("policy") == 1 and steps.count("mint") == (1 if api == "rest" else 0)
    assert "exchange" not in steps, "the bearer is kept"
    # nothing of the caller's leaves before the sandbox and its policy were read back
    assert steps.index("policy") < steps.index("exec") < steps.index("upload")
    # billed from its create to its answer, and the rest by the ledger
    assert float(answer.header("Plimsoll-Billable-Seconds")) <= boxes[0]["billed_ms"] / 1000 + 0.2


def test_a_project_stops_at_its_first_failure_and_gives_its_artifacts(service):
    service.ready()
    before = len(service.boxes())
    answer = service.project(("cat a/b.txt > out.txt; pwd", "exit 4", "echo never"))
    got = answer.json()["project"]
    assert got["outcome"] == "PROJECT_OUTCOME_COMPLETED" and [s.get("exitCode", 0) for s in got["steps"]] == [0, 4]
    assert [(a["path"], base64.b64decode(a["content"])) for a in got["artifacts"]] == [("out.txt", b"text")]
    assert not got.get("artifactsTruncated")
    service.settle()
    (box,) = service.boxes(before)
    assert box["counts"]["exec"] == OWN_EXECS + 2 and box["counts"]["download"] == 1


def test_the_first_artifact_past_the_budget_ends_them(service):
    service.ready()
    steps = ("head -c 3000000 /dev/zero > a; head -c 30000000 /dev/zero > b; head -c 100 /dev/zero > c; mkdir d",)
    for asked, given, is_cut in ((("a", "b", "c"), [("a", 3000000)], True), (("c", "d", "missing", "a"), [("c", 100), ("a", 3000000)], False),
                                 (("b", "a"), [], True)):
        got = service.project(steps, (), asked).json()["project"]
        assert [(a["path"], len(base64.b64decode(a["content"]))) for a in got.get("artifacts", [])] == given, asked
        assert got.get("artifactsTruncated", False) is is_cut, asked
    service.settle()


def test_many_files_with_all_sizes_arrive_whole(service):
    service.ready()
    sizes = (0, 1, 17 << 10, 19 << 10, 64 << 10, (512 << 10) - 1, 512 << 10, (512 << 10) + 1)
    files = [(f"d{n}/f{n}", "x" * size) for n, size in enumerate(sizes)] + [("sp ace/ü☕.txt", "é")]
    got = service.project(("for f in d*/f* sp*/*; do wc -c < \"$f\"; done",), files, ()).json()["project"]
    assert [int(n) for n in base64.b64decode(got["steps"][0]["stdout"]).split()] == [*sizes, 2]
    service.settle()


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_output_is_kept_to_its_last_byte(service, stream):
    service.ready()
    for size, is_cut in ((65535, False), (65536, False), (65537, True), (5_000_000, True)):
        answer = service.snippet(f"process.{stream}.write(Buffer.alloc({size}, 'y'))", timeoutMs=10000)
        js = answer.json()["javascript"]
        assert (len(text(answer, stream)), js.get(f"{stream}Truncated", False)) == (min(size, 65536), is_cut), answer
    service.settle()


def test_a_run_has_its_time_and_no_more(service):
    service.ready()
    began = time.monotonic()
    answer = service.snippet("console.log('A'); process.stdout.write('B'); setTimeout(() => {}, 60000)", timeoutMs=2000)
    took, js = time.monotonic() - began, answer.json()["javascript"]
    assert (js["timedOut"], js["exitCode"], text(answer, "stdout")) == (True, 124, b"A\nB")
    assert 1.8 < took < 4
    # one that ends that way by itself is no timeout
    js = service.snippet("process.kill(process.pid, 'SIGKILL')", timeoutMs=5000).json()["javascript"]
    assert (js.get("timedOut", False), js["exitCode"]) == (False, 137)
    service.settle()


def test_there_is_no_way_out(service):
    service.ready()
    code = ("const net = require('net'); const s = net.connect({host: '1.1.1.1', port: 443, timeout: 1500});"
            "s.on('error', e => { console.log('closed'); process.exit(0); }); s.on('timeout', () => { console.log('closed'); process.exit(0); });"
            "s.on('connect', () => console.log('open'));")
    assert text(service.snippet(code, timeoutMs=8000), "stdout") == b"closed\n"
    service.settle()


def test_who_goes_away_leaves_nothing(service):
    service.ready()
    before = len(service.boxes())
    body = json.dumps(g.javascript("setTimeout(() => {}, 60000)", timeoutMs=60000)).encode()
    with service.gw.connect() as c:
        c.send(g.request(RUN, body, service.gw.headers()))
        g.wait_for(lambda: [b for b in service.boxes(before) if b["counts"].get("exec", 0) == OWN_EXECS + 1], "the code to run")
        c.reset()
    service.settle(10)


# -- what the service does wrong --


def rule(step, **action):
    return {"step": step, "times": 1, "action": action}


OK, MARKED, UNMARKED = "ok", "marked", "unmarked"


class Case:
    """What happens, and what must come of it. `what`: ok (the run's own result), marked with the reason (nothing ran; none = any), unmarked (it may
    have run). `creates` and `runs`: creates the service saw, and commands of the caller's that were started; None = not said. `suspects`: the wall
    is tried anew before the next run."""

    def __init__(self, name, *rules, knobs=None, what=OK, reason="capacity", runs=None, suspects=False, creates=None, project=False, api=None, settles_s=30,
                 timeout_ms=8000, code=None, says=None):
        self.name, self.rules, self.knobs, self.what, self.reason = name, list(rules), knobs or {}, what, reason
        self.runs = runs if runs is not None else (1 if what == OK else 0)
        self.suspects, self.creates, self.project, self.api, self.settles_s = suspects, creates, project, api, settles_s
        self.timeout_ms, self.code, self.says = timeout_ms, code, says

    def __repr__(self):
        return self.name


def malformed(kind, **more):
    return Case(f"create says {kind}", rule("create", create_malformed=kind), what=MARKED, reason="isolation", suspects=True, **more)


# The others of their kind are in tests/unit/test_dockercloud_answers.c: each of these costs the wall a new trial of itself.
MALFORMED = [malformed("http_endpoint_offhost"), malformed("no_resources"), malformed("wrong_digest"), malformed("wrong_ttl", api="rest"),
             malformed("endpoint_missing_cap:upload", api="rest")]

IN_OPERATION = rule("create", status=200, after=True, body='{"id":"op_1","done":true,"error":{"code":8,"message":"no room"}}')

CREATE = [
    Case("create is slow", rule("create", latency_ms=700), creates=1),
    Case("it takes its time to start", knobs={"boot_ms": 700}, creates=1),
    Case("create: 429", rule("create", status=429, code="resource_exhausted", retry_after="7"), what=MARKED, creates=0, says="limit"),
    Case("create: 429 without Retry-After", rule("create", status=429), what=MARKED, creates=0),
    Case("create: 429 as a page", rule("create", status=429, html=True), what=MARKED, creates=0, api="rest"),
    # an edge's 429, which no word of the service is in, is "unavailable" on Connect: the create may have been taken
    Case("create: 429 as a page, told by nobody", rule("create", status=429, html=True), what=UNMARKED, creates=0, api="connect"),
    Case("create: 429 as a page after its effect", rule("create", status=429, html=True, after=True), what=UNMARKED, creates=1, api="connect", settles_s=10),
    Case("create: 403", rule("create", status=403, code="permission_denied"), what=MARKED, creates=0, suspects=True),
    Case("create: a redirect", rule("create", redirect="http://127.0.0.1:9/"), what=UNMARKED, api="connect"),
    # once more under the same key, where that is documented
    Case("create: 500", rule("create", status=500, code="internal"), what=UNMARKED, api="connect"),
    Case("create: 500 once", rule("create", status=500, code="internal"), creates=1, api="rest"),
    Case("create: 503 as a page", rule("create", status=503, html=True), what=UNMARKED, api="connect"),
    Case("create: lost after its effect", rule("create", drop_before_response=True), what=UNMARKED, creates=1, api="connect"),
    Case("create: lost after its effect, asked again", rule("create", drop_before_response=True), creates=1, api="rest"),
    Case("create: lost before its effect", rule("create", drop_before_effect=True), what=UNMARKED, creates=0, api="connect"),
    Case("create: not JSON", rule("create", create_malformed="not_json"), what=UNMARKED, creates=1, api="connect"),
    Case("create: not JSON, asked again", rule("create", create_malformed="not_json"), what=None, creates=1, api="rest"),
    Case("create: no ID", rule("create", create_malformed="no_uid"), what=None, creates=1),
    Case("create: a hostile ID", rule("create", create_malformed="hostile_uid"), what=None, creates=1),
    Case("create: endless", rule("create", create_malformed="huge_body"), what=None, creates=1),
    Case("create: a duplicate key", rule("create", duplicate_key=True), what=None, creates=1),
    Case("create: cut JSON", rule("create", truncate_json=True), what=None, creates=1),
    Case("create fails after it was accepted", knobs={"create_fails_after_accept": True}, what=None, creates=1),
    Case("an operation that only looking tells", knobs={"op_wait_unimplemented": True}, api="connect", creates=1),
    # its end is what a look shows, and not what a deletion answered
    Case("create: its operation fails, its sandbox is there", IN_OPERATION, what=MARKED, creates=1, api="connect"),
    Case("create: its operation fails, its deletion lies", IN_OPERATION, rule("delete", delete_lies=True), what=UNMARKED, creates=1, api="connect", settles_s=10),
    Case("numbers for names", knobs={"enum_numbers": True}, api="connect", creates=1),
    Case("create: 401 once", rule("create", status=401, code="unauthenticated"), creates=1),
    Case("create: lost, and it appears later", rule("create", drop_before_response=True, late_appearance_ms=500), what=UNMARKED, creates=1, api="connect"),
    Case("create: no ID, and the list has pages", rule("create", create_malformed="no_uid"), knobs={"list_pages": 3}, what=None, creates=1, api="rest"),
    Case("clocks differ", knobs={"clock_skew_ms": -200000}, creates=1),
    Case("reads are limited", knobs={"rate_limit_reads": 2}, creates=1),
    Case("the echo of a secret", rule("create", status=403, code="permission_denied"), knobs={"echo_secret": True}, what=MARKED, creates=0, suspects=True),
]

# The first answer is lost with its sandbox made: no refusal of what is asked under the same key says that there is none.
CREATE += [
    Case(f"create: lost after its effect, then {name}", rule("create", drop_before_response=True), {**rule("create", **then), "nth": 2}, what=UNMARKED,
         creates=1, api="rest", settles_s=10)
    for name, then in {"429": {"status": 429}, "429 as a page": {"status": 429, "html": True}, "400": {"status": 400, "code": "invalidArgument"},
                       "403": {"status": 403, "code": "permissionDenied"}, "409": {"status": 409, "code": "failedPrecondition"},
                       "404 as a page": {"status": 404, "html": True}}.items()
] + [
    Case("create: lost after its effect, then no bearer", rule("create", drop_before_response=True), {**rule("create", status=401), "nth": 2},
         rule("exchange", status=500), what=UNMARKED, creates=1, api="rest", settles_s=10),
]

CHECK = [
    Case("policy allows all", knobs={"policy_mode": "allowAll"}, what=MARKED, reason="isolation", suspects=True, creates=1),
    Case("policy allows something", knobs={"policy_allow": [["example.com:443", "kit"]]}, what=MARKED, reason="isolation", suspects=True, creates=1),
    Case("policy has no mode", knobs={"policy_missing_field": "mode"}, what=MARKED, reason="isolation", suspects=True, creates=1),
    Case("policy: 409", knobs={"policy_409": True}, what=MARKED, reason=None, creates=1),
    Case("policy: 500", {"step": "policy", "action": {"status": 500, "code": "internal"}}, what=MARKED, creates=1),
    Case("policy: 429 once", rule("policy", status=429), creates=1),
]

STAGE = [
    Case("upload: 500", rule("upload", status=500, code="internal"), what=MARKED, creates=1),
    Case("upload: lost after its effect", rule("upload", drop_before_response=True), what=MARKED, creates=1),
    Case("upload: the wrong count", rule("upload", upload_count_wrong=True), what=MARKED, creates=1),
    Case("upload: silently lost", rule("upload", upload_lost=True), what=MARKED, creates=1, says="arrive whole"),
    Case("upload: fails in the middle", rule("upload", upload_fails_at=1), what=MARKED, creates=1),
    Case("upload: no message", rule("upload", no_message=True), what=MARKED, creates=1, api="connect"),
    Case("upload: the end frame has an error", rule("upload", stream_error=True), what=MARKED, creates=1, api="connect"),
    Case("upload: cut", rule("upload", truncate_stream=True), what=MARKED, creates=1, api="connect"),
    Case("upload: compressed", rule("upload", compressed_frame=True), what=MARKED, creates=1, api="connect"),
    Case("mkdir: 500", rule("exec", status=500, code="internal"), what=MARKED, creates=1),
    Case("mkdir fails", rule("exec", exec_exit=1), what=MARKED, creates=1),
    Case("mint: 429 twice", knobs={"mint_limited": 2}, api="rest", creates=1),
    Case("mint: a permission is missing", rule("mint", mint_without=["sandboxesExec"]), what=MARKED, api="rest", creates=1),
    Case("mint: for another sandbox", rule("mint", mint_wrong={"sandbox": "sandboxes/another"}), what=MARKED, api="rest", creates=1),
    Case("credentials are short", knobs={"credential_life_ms": 15000}, api="rest", creates=1),
    Case("a credential is refused once", knobs={"refuse_credential_once": 1}, api="rest", creates=1),
]

THIRD = {"nth": 3}   # the caller's command: after mkdir and the look at the files

EXECUTE = [
    Case("exec: 500", {**rule("exec", status=500, code="internal"), **THIRD}, what=UNMARKED),
    Case("exec: 502 as a page", {**rule("exec", status=502, html=True), **THIRD}, what=UNMARKED),
    Case("exec: lost after its effect", {**rule("exec", drop_before_response=True), **THIRD}, what=UNMARKED, runs=1),
    Case("exec: its connection dies", {**rule("exec", drop_reused_connection=True), **THIRD}, what=None, runs=None),
    Case("exec: cut with its credential", {**rule("exec", expire_during_exec=True), **THIRD}, what=UNMARKED, runs=1, api="rest"),
    Case("exec: cut JSON", {**rule("exec", truncate_json=True), **THIRD}, what=UNMARKED, runs=1),
    Case("exec: a duplicate key", {**rule("exec", duplicate_key=True), **THIRD}, what=UNMARKED, runs=1),
    # success is 200 with a result in it
    *(Case(f"exec: {status}", {**rule("exec", status=status, body='{"exitCode":0}', after=True), **THIRD}, what=UNMARKED, runs=1) for status in (201, 202, 206)),
    Case("exec: an error as a success", {**rule("exec", status=200, code="internal"), **THIRD}, what=UNMARKED),
    Case("exec: something else as a success", {**rule("exec", status=200, body='{"status":"accepted"}'), **THIRD}, what=UNMARKED),
    Case("exec: a long error is no flood", {**rule("exec", status=500, body="x" * (1 << 20)), **THIRD}, what=UNMARKED),
    Case("exec: an exit code that is none", {**rule("exec", exec_exit=-1), **THIRD}, what=UNMARKED, runs=1),
    Case("exec stalls", {**rule("exec", stall_after_bytes=10), **THIRD}, what="late", runs=1, timeout_ms=1500),
    Case("exec floods", {**rule("exec", exec_flood=True), **THIRD}, what="flood", runs=1),
    Case("exec is incomplete", {**rule("exec", exec_incomplete=True), **THIRD}, what="flood", runs=1, api="rest"),
]

COLLECT = [
    Case(f"download: {name}", rule("download", **{name: True}), what="no artifacts", project=True, api=api, runs=2)
    for name, api in (("truncate_stream", None), ("stream_error", None), ("unknown_part", "rest"), ("unrequested_path", None), ("oversize_frame", None),
                      ("compressed_frame", "connect"), ("content_before_metadata", None))
] + [
    Case("download: 500", {"step": "download", "action": {"status": 500, "code": "internal"}}, what="no artifacts", project=True, runs=2),
    Case("download: 429 once", rule("download", status=429), project=True, runs=2),
    Case("download: lost, asked again", rule("download", drop_before_response=True), project=True, runs=2),
    Case("download: 206", {"step": "download", "action": {"status": 206, "body": "", "after": True}}, what="no artifacts", project=True, runs=2),
    Case("download: not a word on what was asked for", rule("download", status=200, body="\2\0\0\0\2{}"), what="no artifacts", project=True, runs=2,
         api="connect"),
    Case("download: quoted names", knobs={"quoted_parts": True}, project=True, runs=2, api="rest"),
]

DELETE = [
    Case("delete: 500 twice", knobs={"delete_fails": 2}),
    Case("delete: a stale ETag", knobs={"delete_stale_once": 1}, api="rest"),
    Case("delete takes its time", knobs={"delete_lag_reads": 6}),
    Case("delete: lost after its effect", rule("delete", drop_before_response=True)),
    Case("delete lies", rule("delete", delete_lies=True)),
    Case("delete: 429", rule("delete", status=429)),
]


def verdict_of(answer):
    if answer.status != 200:
        return MARKED if answer.reason or answer.header("Plimsoll-Not-Dispatched") else UNMARKED
    js = answer.json().get("javascript")
    if js is None:
        project = answer.json()["project"]
        assert [s.get("exitCode", 0) for s in project["steps"]] == [0, 4] and project["outcome"] == "PROJECT_OUTCOME_COMPLETED", project
        if project.get("artifactsTruncated"):
            assert not project.get("artifacts"), project
            return "no artifacts"
        assert [a["path"] for a in project["artifacts"]] == ["out.txt"], project
        return OK
    if js.get("timedOut"):
        return "late"
    if js.get("exitCode") == 153:
        assert js["stdoutTruncated"] and js["stderrTruncated"] and "stdout" not in js
        return "flood"
    assert js["exitCode"] == 3 and (text(answer, "stdout"), text(answer, "stderr")) == (b"out\n", b"err\n"), answer
    return OK


@pytest.mark.parametrize("api,case", [(api, case) for api in APIS for case in [*CREATE, *MALFORMED, *CHECK, *STAGE, *EXECUTE, *COLLECT, *DELETE]
                                      if case.api in (None, api)], ids=str, indirect=["api"])
def test_a_fault_of_the_service(service, api, case):
    service.ready()
    before, creates = len(service.boxes()), service.cloud.account()["counts"].get("create", 0)
    service.cloud.knobs(**case.knobs)
    service.cloud.faults(case.rules)
    try:
        answer = service.project(timeoutMs=case.timeout_ms) if case.project else service.snippet(case.code or CODE, timeoutMs=case.timeout_ms)
        boxes = service.boxes(before)
    finally:
        hits = service.cloud.faults()
        service.cloud.clear_faults()
        if not case.knobs.keys() & {"delete_fails", "delete_stale_once", "delete_lag_reads"}:
            service.cloud.knobs(**{k: DEFAULTS[k] for k in case.knobs})
    got = verdict_of(answer)
    if case.what is not None:
        assert got == case.what, answer
    if got == MARKED and case.reason is not None and case.what == MARKED:
        assert answer.reason == case.reason, answer
    if case.says:
        assert case.says in answer.message, answer
    if case.rules:
        assert any(h.get("hits", 1) for h in hits), "the fault was not met"
    # nothing is started twice, and nothing of the caller's before everything was verified; a wall that is suspected has tried itself since
    if case.suspects:
        boxes = boxes[:case.creates if case.creates is not None else 1]
    runs = sum(max(0, b["counts"].get("exec", 0) - OWN_EXECS) for b in boxes)
    assert len(boxes) <= 1, boxes
    if got == MARKED:
        assert runs == 0, boxes
    elif case.runs is not None and case.what is not None:
        assert runs == case.runs or (case.what == UNMARKED and runs <= 1), boxes
    if case.creates is not None:
        assert len(boxes) == case.creates, boxes
    service.settle(case.settles_s)
    service.cloud.knobs(**{k: DEFAULTS[k] for k in case.knobs})
    if case.suspects:
        service.gw.wait_log("wall suspected")
        service.ready()
        service.settle()
    assert service.gw.problems_in_log() == []


# -- the bearer --


def exchanges(service, since):
    return [line["status"] for line in service.cloud.journal()[since:] if line["step"] == "exchange"]


def test_one_exchange_serves_everybody_who_waits(service):
    service.ready()
    since, count = len(service.cloud.journal()), 6
    # every create finds its bearer refused, all of them before there is a new one
    service.cloud.faults([{"step": "create", "times": count, "action": {"status": 401, "code": "unauthenticated", "latency_ms": 300}},
                          {"step": "exchange", "action": {"latency_ms": 600}}])
    try:
        runs = [service.gw.in_background(CODE, path=RUN, timeoutMs=20000) for _ in range(count)]
        answers = [run.join() for run in runs]
    finally:
        service.cloud.clear_faults()
    assert [verdict_of(a) for a in answers] == [OK] * count
    assert exchanges(service, since) == [200]
    service.settle()


@pytest.mark.parametrize("fault", [{"status": 429, "retry_after": "1"}, {"status": 500}, {"exchange_no_token": True}, {"status": 401, "echo_secret": True}],
                         ids=["429", "500", "no token", "401"])
def test_an_exchange_that_fails_sends_nothing(service, fault):
    service.ready()
    before, since = len(service.boxes()), len(service.cloud.journal())
    service.cloud.faults([rule("create", status=401, code="unauthenticated"), {"step": "exchange", "action": fault}])
    try:
        answers = [service.snippet(), service.snippet(), service.snippet()]
    finally:
        service.cloud.clear_faults()
    assert answers[0].reason == "capacity", answers[0]
    # with a credential that is refused there is no wall any more
    later = "isolation" if fault.get("status") == 401 else "capacity"
    assert [(verdict_of(a), a.reason) for a in answers[1:]] == [(MARKED, later)] * 2, answers
    # nobody comes again before the pause is over
    assert len(exchanges(service, since)) == 1
    assert [b for b in service.boxes(before) if b["counts"].get("exec")] == []
    g.wait_for(lambda: service.snippet().status == 200, "the bearer to be had again", 30)
    service.settle()
    assert service.gw.problems_in_log() == []


def test_a_token_that_looks_like_none_is_in_no_text(api):
    """A bearer need not be a JWT; what the service repeats of it, whole, cut or in a reason, is in no log, answer or state."""
    opaque = "Zq9xOpaque-Bearer_Value.K1w"
    with served(api) as service:
        service.cloud.faults([{"step": "exchange", "action": {"exchange_token": opaque}}, {"step": "create", "times": 1, "action": {"status": 401}}])
        assert verdict_of(service.snippet()) == OK
        service.settle()
        for message in (f"cannot use {opaque} here", "x " * 249 + opaque):
            service.cloud.faults([{"step": "create", "action": {"status": 403, "code": "permissionDenied", "message": message}},
                                  {"step": "list", "action": {"status": 500, "code": "internal", "message": message}}])
            answer = service.snippet()
            assert verdict_of(answer) == MARKED, answer
            service.gw.wait_log("backend not proven")
            texts = service.gw.log() + repr(answer.body) + repr(service.gw.get("/v1/backends").body)
            assert "cannot use" in texts
            assert opaque[:8] not in texts
            service.cloud.clear_faults()
            service.ready()
        service.settle()


# -- the account --


def test_a_service_at_its_limit_is_said_to_be_that(api):
    with served(api, "--knobs", json.dumps({**DEFAULTS, "quota_concurrent": 2})) as service:
        hold = "setTimeout(() => { console.log('out'); console.error('err'); process.exit(3) }, 1500)"
        runs = [service.gw.in_background(hold, path=RUN, timeoutMs=20000) for _ in range(2)]
        g.wait_for(lambda: len(service.cloud.alive()) == 2, "both sandboxes")
        answer = service.snippet()
        assert verdict_of(answer) == MARKED and answer.reason == "capacity" and "limit of its own" in answer.message, answer
        assert answer.status == 429 and int(answer.header("Retry-After")) >= 1
        assert [verdict_of(run.join()) for run in runs] == [OK, OK]
        service.settle()


@pytest.mark.parametrize("api", ["rest"], indirect=True)  # a lease has to run out: one of the APIs is enough
def test_what_a_dead_process_left_is_deleted_and_nothing_else(api):
    """The role dies with a run in flight; a sandbox of another installation, and one of nobody's, stay."""
    with served(api, "--knobs", json.dumps({**DEFAULTS, "quota_concurrent": 20, "list_page_size": 1})) as service:
        foreign = service.cloud.seed_sandboxes({"name": "gw-" + "f" * 24 + "-" + "e" * 32}, {"name": "somebody-elses"})
        run = service.gw.in_background("setTimeout(() => {}, 60000)", path=RUN, timeoutMs=60000)
        g.wait_for(lambda: [b for b in service.boxes() if b["counts"].get("exec", 0) == OWN_EXECS + 1 and b["state"] == "running"], "the code to run")
        os.kill(service.gw.child("plimsolld-backend-dockercloud"), signal.SIGKILL)
        answer = run.join()
        assert verdict_of(answer) == UNMARKED, answer
        ledger = 'plimsoll_ledger_entries{backend="dockercloud"}'
        g.wait_for(lambda: sorted(service.cloud.alive()) == sorted(foreign) and service.gw.metrics().get(ledger) == 0, "the dead process' sandbox to be gone", 60)
        assert service.cloud.violations() == []
        assert service.gw.problems_in_log() == []
