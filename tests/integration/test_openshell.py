"""The OpenShell wall against the stand-in of its gateway: runs from end to end, every difference a read-back may show, every fault at every step with
the answer's code and mark and how often code was started, deaths of the role; and both books (the gateway's account and the ledger) empty at the end."""
import base64
import contextlib
import hashlib
import itertools
import json
import sys
import time

import pytest

import clouds
import gateway as g

sys.path.insert(0, str(clouds.ROOT / "tests"))
from standins.openshell import faults as kinds  # noqa: E402

pytestmark = pytest.mark.faults

RUN = "/backends/openshell" + g.RUN
IMAGE = "registry.example/plimsoll/openshell@sha256:" + "ab" * 32
CODE = "console.log('out'); console.error('err'); process.exit(3)"
RUNNER = clouds.ROOT / "build/guest/runner"
FOREVER = {"times": 1000}


class Service:
    """One gateway with the stand-in behind it."""

    def __init__(self, cloud, gw):
        self.cloud, self.gw, self.since = cloud, gw, 0

    def snippet(self, code=CODE, floor="container", **more):
        return self.gw.post(RUN, g.javascript(code, minimumIsolation=floor, **more))

    def project(self, steps=("cat a/b.txt > out.txt; echo 1", "exit 4", "echo never"), files=(("a/b.txt", "text"),), artifacts=("out.txt", "none.txt"), **more):
        project = {"steps": list(steps), "files": [{"path": p, "content": c} for p, c in files], "artifacts": list(artifacts)}
        return self.gw.post(RUN, {"protocol": 4, "minimumIsolation": "container", "project": project, **more})

    def is_proven(self):
        return self.gw.describe(path="/backends/openshell" + g.DESCRIBE).json().get("isolation") == "container"

    def ready(self):
        g.wait_for(lambda: self.gw.get("/readyz").status == 200 and self.is_proven(), "the wall to be proven", 60)

    def ledger(self):
        return self.gw.metrics().get('plimsoll_ledger_entries{backend="openshell"}')

    def settle(self, seconds=30):
        """Both books are empty, and nobody did what the gateway's contract forbids."""
        g.wait_for(lambda: not self.cloud.alive() and self.ledger() == 0, "the account and the ledger to be empty", seconds)
        assert self.cloud.leaks() == [] and self.cloud.violations() == []
        assert self.gw.metrics()["plimsoll_inflight"] == 0
        assert self.gw.problems_in_log() == []

    def mark(self):
        """A place in the journal: what comes after it is what `calls` and `execs` give."""
        self.since += len(self.cloud.journal(self.since))
        self.execs_since = len(self.cloud.execs())
        self.trials = len(self.gw.log_lines("wall tried"))

    def calls(self, method=None):
        return [line["method"] for line in self.cloud.journal(self.since) if line["plane"] == "grpc" and method in (None, line["method"])]

    def execs(self):
        return self.cloud.execs()[self.execs_since:]

    def own_execs(self, is_project=False):
        """Those of CODE, or of projects; not what a trial of the wall looks at."""
        code = hashlib.sha256(CODE.encode()).hexdigest()
        return [e for e in self.execs() if (e["command"][0].endswith("/runner") if is_project else e["stdin_sha256"] == code)]

    def retried(self):
        """Until a suspected wall was tried anew: nothing goes on behind what comes next."""
        self.gw.wait_log("wall suspected")
        g.wait_for(lambda: len(self.gw.log_lines("wall tried")) > self.trials and self.gw.log_lines("wall tried")[-1]["holds"], "the wall to be tried anew", 60)


def settings_of(cloud, **more):
    return {"SANDBOX_PROVIDER": "openshell", "SANDBOX_OPENSHELL_GATEWAY_URL": cloud.ready["url"], "SANDBOX_OPENSHELL_PLAINTEXT": "on",
            "SANDBOX_OPENSHELL_IMAGE": IMAGE, "SANDBOX_OPENSHELL_CREATES_PER_MINUTE": "100000", "PLIMSOLL_CLOUD_UNSEEN": "1s",
            "PLIMSOLL_CLOUD_SMOKE_PAUSE": "100ms", "PLIMSOLL_PROOF_INTERVAL": "30m", "PLIMSOLL_EVIDENCE_MAX_AGE": "2h", "PLIMSOLL_DRAIN": "5s", **more}


@contextlib.contextmanager
def served(*options, **more):
    with clouds.OpenshellStandin("--runner", RUNNER, *options) as cloud:
        with g.served(g.Gateway(settings_of(cloud, **more))) as gw:
            service = Service(cloud, gw.start())
            service.ready()
            service.settle()
            yield service


@pytest.fixture(scope="module")
def service():
    with served(SANDBOX_DISK_MB="64", SANDBOX_CPUS="0.5") as service:
        yield service


@pytest.fixture(autouse=True)
def _clear(request):
    if "service" in request.fixturenames:
        service = request.getfixturevalue("service")
        service.cloud.clear_faults()
        service.ready()
        service.mark()


def text(answer, name):
    return base64.b64decode(answer.json()["javascript"].get(name, ""))


# -- what it does --


def test_a_snippet_and_what_is_asked_for_it(service):
    answer = service.snippet()
    assert answer.status == 200, answer
    got = answer.json()
    g.check_record(g.javascript(CODE, minimumIsolation="container"), answer)
    assert (got["sandbox"], got["isolation"], got["javascript"]["exitCode"]) == ("openshell", "container", 3)
    assert (text(answer, "stdout"), text(answer, "stderr")) == (b"out\n", b"err\n")
    assert got["environment"] == "openshell-image:sha256:" + "ab" * 32
    assert got["record"]["policy"].startswith("openshell-policy:sha256:")
    service.settle()
    # one create, read back before anything runs, one exec, one delete
    calls = [c for c, _ in itertools.groupby(service.calls())]
    assert service.calls().count("CreateSandbox") == service.calls().count("ExecSandboxInteractive") == service.calls().count("DeleteSandbox") == 1
    assert calls.index("CreateSandbox") < calls.index("GetSandboxConfig") < calls.index("ExecSandboxInteractive") < calls.index("DeleteSandbox")


def test_the_sandbox_carries_whose_it_is(service):
    answer = service.gw.in_background("setTimeout(() => {}, 1500)", path=RUN)
    sandbox, = g.wait_for(lambda: service.cloud.state()["sandboxes"], "the sandbox")
    labels = sandbox["labels"]
    assert set(labels) == {"plimsoll.installation", "plimsoll.instance", "plimsoll.lifetime", "plimsoll.run", "plimsoll.stamp"}
    assert sandbox["name"] == "plp-" + labels["plimsoll.stamp"][:14] and len(labels["plimsoll.stamp"]) == 32
    assert len(labels["plimsoll.instance"]) == 16 and 0 < int(labels["plimsoll.lifetime"]) < 600
    assert answer.join().status == 200
    service.settle()


def test_a_project_stops_at_its_first_failure_and_gives_its_artifacts(service):
    got = service.project().json()["project"]
    assert got["outcome"] == "PROJECT_OUTCOME_COMPLETED" and [s.get("exitCode", 0) for s in got["steps"]] == [0, 4]
    assert [(a["path"], base64.b64decode(a["content"])) for a in got["artifacts"]] == [("out.txt", b"text")]
    service.settle()


def test_files_of_all_sizes_arrive_whole(service):
    sizes = (0, 1, 17 << 10, 19 << 10, 64 << 10, 1 << 20)
    files = [(f"d{n}/f{n}", "x" * size) for n, size in enumerate(sizes)] + [("sp ace/ü☕.txt", "é")]
    got = service.project(("for f in d*/f* sp*/*; do wc -c < \"$f\"; done",), files, ()).json()["project"]
    assert [int(n) for n in base64.b64decode(got["steps"][0]["stdout"]).split()] == [*sizes, 2]
    service.settle()


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_output_is_kept_to_its_last_byte(service, stream):
    for size, is_cut in ((65535, False), (65536, False), (65537, True), (5_000_000, True)):
        answer = service.snippet(f"process.{stream}.write(Buffer.alloc({size}, 'y'), () => process.exit(5))", timeoutMs=10000)
        js = answer.json()["javascript"]
        assert (len(text(answer, stream)), js.get(f"{stream}Truncated", False), js["exitCode"]) == (min(size, 65536), is_cut, 5), answer
    service.settle()


def test_a_run_has_its_time_and_no_more(service):
    began = time.monotonic()
    answer = service.snippet("console.log('A'); process.stdout.write('B'); setTimeout(() => {}, 60000)", timeoutMs=2000)
    took, js = time.monotonic() - began, answer.json()["javascript"]
    assert (js["timedOut"], js["exitCode"], text(answer, "stdout")) == (True, 124, b"A\nB")
    assert 2 < took < 4
    g.wait_for(lambda: service.execs()[-1]["how"] == "cancelled", "the command to be canceled")
    # one that ends that way by itself is no timeout
    js = service.snippet("process.exit(124)", timeoutMs=5000).json()["javascript"]
    assert (js.get("timedOut", False), js["exitCode"]) == (False, 124)
    project = service.project(("echo begun; sleep 60", "echo never"), timeoutMs=1500).json()["project"]
    assert project["outcome"] == "PROJECT_OUTCOME_TIMED_OUT" and len(project["steps"]) == 1
    assert base64.b64decode(project["steps"][0]["stdout"]) == b"begun\n" and project["steps"][0]["timedOut"]
    service.settle()


def test_who_goes_away_leaves_nothing(service):
    body = json.dumps(g.javascript("setTimeout(() => {}, 60000)", timeoutMs=60000)).encode()
    with service.gw.connect() as c:
        c.send(g.request(RUN, body, service.gw.headers()))
        g.wait_for(lambda: "ExecSandboxInteractive" in service.calls() or service.execs(), "the code to run")
        c.reset()
    service.settle(10)
    g.wait_for(lambda: [e["how"] for e in service.execs()] == ["cancelled"], "the command to be canceled")


def test_a_floor_above_the_wall_is_refused_before_any_call(service):
    for floor in ("kernel", "vm"):
        answer = service.snippet(floor=floor)
        g.refused(answer, "failed_precondition", "isolation")
    assert service.calls() == []


def test_runs_share_connections_and_each_has_its_own_sandbox(service):
    answers = [service.gw.in_background(f"setTimeout(() => console.log({n}), 300)", path=RUN) for n in range(8)]
    assert sorted(int(text(a.join(), "stdout")) for a in answers) == list(range(8))
    service.settle()
    assert service.calls("CreateSandbox") == ["CreateSandbox"] * 8
    assert service.cloud.state()["connections"] == 1


# -- what is read back --


# One of each kind; tests/unit/test_openshell_messages.c has them all.
RECORD = "id-empty policy-path unknown-field label-missing image resources driver-config provider environment user-namespaces command".split()
CONFIG = "policy policy-path hash source-global not-admitted setting-true setting-missing".split()


@pytest.mark.parametrize("method,changes", [("GetSandbox", RECORD), ("GetSandboxConfig", CONFIG)], ids=["record", "config"])
def test_a_difference_refuses_before_anything_runs(service, method, changes):
    assert set(changes) <= set(kinds.RECORD_CHANGES + kinds.CONFIG_CHANGES)
    for what in changes:
        service.ready()
        service.mark()
        service.cloud.faults([{"method": method, **FOREVER, "action": {"type": "readback", "what": what}}])
        answer = service.snippet()
        # one without an ID cannot be told from another's: nothing more of it is looked at
        assert answer.reason == ("capacity" if what == "id-empty" else "isolation"), f"{what}: {answer}"
        assert service.own_execs() == [], what
        service.cloud.clear_faults()
    service.retried()
    service.settle()


def test_what_may_differ_does_not_matter(service):
    for what in kinds.HARMLESS_CHANGES:
        service.cloud.faults([{"method": m, **FOREVER, "action": {"type": "readback", "what": what}} for m in ("GetSandbox", "GetSandboxConfig")
                              if what == "harmless-newer" or m == "GetSandbox"])
        assert service.snippet().json()["javascript"]["exitCode"] == 3, what
    service.settle()


def test_another_gateway_than_was_proven_serves_no_run(service):
    """The gateway is asked at most every five seconds; then what it says counts at once."""
    time.sleep(5)
    service.mark()
    service.cloud.faults([{"method": "GetGatewayInfo", **FOREVER, "action": {"type": "driver", "what": "version-0.2"}}])
    answer = service.snippet()
    assert answer.reason == "isolation" and "0.2.0" in answer.message, answer
    assert service.execs() == []
    g.wait_for(lambda: not service.is_proven(), "the wall to be suspected")
    service.cloud.clear_faults()
    service.settle()


# -- what the gateway does wrong --

OK, MARKED, UNMARKED, LATE = "ok", "marked", "unmarked", "late"


class Case:
    """A fault of one method, and what must come of it: ok (the run's own result), marked with the reason (nothing ran), unmarked (it may have run) with
    the code, late (timed out). `creates` is how many sandboxes the gateway made."""

    def __init__(self, method, kind, what=OK, *, phase="before", nth=1, times=1, code=None, reason="capacity", says=None, creates=1, project=False,
                 timeout_ms=8000, is_suspect=False, stdout=None, **action):
        self.rule = {"method": method, "phase": phase, "nth": nth, "times": times, "action": {"type": kind, **{k.rstrip("_"): v for k, v in action.items()}}}
        self.what, self.code, self.reason, self.says, self.creates, self.project = what, code, reason, says, creates, project
        self.timeout_ms, self.is_suspect, self.stdout = timeout_ms, is_suspect, stdout
        words = [method, kind, *(f"{v}"[:30] for v in action.values()), *([phase] * (phase != "before")), *([f"x{times}"] * (times > 1)), *(["project"] * project)]
        self.name = " ".join(words)

    def __repr__(self):
        return self.name


CREATE = [
    Case("CreateSandbox", "delay", ms=700),
    Case("CreateSandbox", "status", MARKED, code_="RESOURCE_EXHAUSTED", code="resource_exhausted", says="own limit", creates=0),
    Case("CreateSandbox", "status", MARKED, code_="INVALID_ARGUMENT", creates=0, is_suspect=True),
    Case("CreateSandbox", "status", MARKED, code_="UNAUTHENTICATED", creates=0, is_suspect=True),
    Case("CreateSandbox", "status", UNMARKED, code_="ALREADY_EXISTS", code="unavailable", creates=0),
    Case("CreateSandbox", "status", UNMARKED, code_="INTERNAL", code="unavailable", creates=0, after_headers=True),
    Case("CreateSandbox", "unavailable-before", UNMARKED, code="unavailable", creates=0),
    Case("CreateSandbox", "unavailable-after", UNMARKED, code="unavailable"),
    Case("CreateSandbox", "refuse-stream", MARKED, creates=0),
    Case("CreateSandbox", "goaway", MARKED, creates=0),
    Case("CreateSandbox", "rst", UNMARKED, creates=0),
    Case("CreateSandbox", "rst", UNMARKED, phase="after"),
    Case("CreateSandbox", "rst", UNMARKED, at="inside"),
    Case("CreateSandbox", "close", UNMARKED, creates=0),
    Case("CreateSandbox", "close", UNMARKED, phase="after"),
    Case("CreateSandbox", "close", UNMARKED, after_bytes=40),
    Case("CreateSandbox", "no-trailers", UNMARKED, phase="after"),
    Case("CreateSandbox", "bad-status", UNMARKED, what_="html", creates=0),
    Case("CreateSandbox", "bad-status", UNMARKED, what_="banana", phase="after"),
    Case("CreateSandbox", "garbage", UNMARKED, what_="compressed"),
    Case("CreateSandbox", "garbage", UNMARKED, what_="twice"),
    Case("CreateSandbox", "garbage", UNMARKED, what_="none"),
    # an answer of the gateway's that cannot be read: it was made, and nothing of the caller's left
    Case("CreateSandbox", "garbage", MARKED, what_="bytes"),
    Case("CreateSandbox", "split", bytes=1),
    Case("CreateSandbox", "pad", bytes=30),
]

READY = [
    Case("GetSandbox", "phase", MARKED, told="ERROR", times=1000, says="ERROR"),
    Case("GetSandbox", "phase", MARKED, told="COMPLETED", times=1000, says="COMPLETED"),
    Case("GetSandbox", "phase", MARKED, told="DELETING", times=1000, says="DELETING"),
    Case("GetSandbox", "phase", told="UNKNOWN", times=3),
    Case("GetSandbox", "unavailable-before", times=2),
    Case("GetSandbox", "status", code_="RESOURCE_EXHAUSTED", times=2),
    Case("GetSandbox", "status", MARKED, code_="RESOURCE_EXHAUSTED", times=3, code="resource_exhausted"),
    Case("GetSandbox", "status", MARKED, code_="NOT_FOUND", is_suspect=True),
    Case("GetSandbox", "close"),
    Case("GetSandbox", "close", at="inside"),
    Case("GetSandbox", "goaway"),
    Case("GetSandbox", "rst", at="inside"),
    Case("GetSandbox", "bad-status", what_="banana", times=2),
    Case("GetSandbox", "bad-status", MARKED, what_="banana", times=3),
    Case("GetSandbox", "bad-status", what_="html", status=502),
    Case("GetSandbox", "garbage", MARKED, what_="truncated"),
    Case("GetSandbox", "garbage", what_="huge"),
    Case("GetSandbox", "clock", ms=-3_600_000),
    Case("GetSandboxConfig", "unavailable-before", times=2),
    Case("GetSandboxConfig", "unavailable-before", MARKED, times=3),
    Case("GetSandboxConfig", "status", MARKED, code_="PERMISSION_DENIED", is_suspect=True),
    Case("GetSandboxConfig", "garbage", MARKED, what_="bytes"),
    Case("GetSandboxConfig", "split", bytes=1),
]


def of_exec(kind, what=UNMARKED, **more):
    return Case("ExecSandboxInteractive", kind, what, **more)


EXECUTE = [
    # nothing of it left, or certainly nobody acted on it: it is begun once more
    of_exec("refuse-stream", OK),
    of_exec("goaway", OK),
    # from here on it may have run, whatever the gateway calls it
    of_exec("status", code_="FAILED_PRECONDITION", code="unavailable"),
    of_exec("status", code_="RESOURCE_EXHAUSTED", code="unavailable"),
    of_exec("status", code_="NOT_FOUND", code="unavailable", says="lost the sandbox"),
    of_exec("unavailable-before", code="unavailable"),
    of_exec("unavailable-after", code="unavailable"),
    of_exec("bad-status", what_="html", status=502, code="unavailable", says="502"),
    of_exec("bad-status", what_="banana", code="unavailable"),
    of_exec("no-trailers", phase="after", code="unavailable"),
    of_exec("rst", code="unavailable"),
    of_exec("rst", code="unavailable", at="between"),
    of_exec("rst", code="unavailable", at="inside"),
    of_exec("close", code="unavailable"),
    of_exec("close", code="unavailable", at="inside"),
    of_exec("exec", what_="no-exit", code="unavailable"),
    of_exec("garbage", what_="compressed", code="unavailable"),
    of_exec("garbage", what_="bytes", code="internal"),
    # the exit event was seen: the verdict stands
    of_exec("rst", OK, at="after-exit"),
    of_exec("close", OK, at="after-exit"),
    of_exec("exec", OK, what_="bad-trailers"),
    of_exec("exec", OK, what_="hold-open"),
    of_exec("exec", OK, what_="two-exits"),
    of_exec("exec", OK, what_="unknown-event"),
    of_exec("exec", OK, what_="empty-event"),
    of_exec("exec", OK, what_="late-output", stdout=b"out\nlate\n"),
    of_exec("exec", OK, what_="late-exit", ms=700),
    of_exec("split", OK, bytes=1),
    of_exec("pad", OK, bytes=100),
    of_exec("exec", LATE, what_="silent", timeout_ms=1200),
    of_exec("exec", LATE, what_="endless", timeout_ms=1200),
    of_exec("never", LATE, timeout_ms=1200),
    # projects: the runner's own report is the verdict
    of_exec("refuse-stream", OK, project=True),
    of_exec("split", OK, bytes=1, project=True),
    of_exec("pad", OK, bytes=100, project=True),
    of_exec("exec", OK, what_="no-exit", project=True),
    of_exec("exec", OK, what_="hold-open", project=True),
    of_exec("rst", OK, at="after-exit", project=True),
]

DELETE = [
    Case("DeleteSandbox", "delete-fails", what_="internal", times=2),
    Case("DeleteSandbox", "delete-fails", what_="unspecified"),
    Case("DeleteSandbox", "delete-fails", what_="seventeen"),
    Case("DeleteSandbox", "delete-fails", what_="lies"),
    Case("DeleteSandbox", "unavailable-before", times=2),
    Case("DeleteSandbox", "unavailable-after"),
    Case("DeleteSandbox", "close", phase="after"),
    Case("DeleteSandbox", "status", code_="RESOURCE_EXHAUSTED"),
    Case("DeleteSandbox", "garbage", what_="bytes"),
]


def verdict_of(answer, case):
    if answer.status != 200:
        return MARKED if answer.reason or answer.header("Plimsoll-Not-Dispatched") else UNMARKED
    js = answer.json().get("javascript")
    if js is None:
        project = answer.json()["project"]
        if project["outcome"] == "PROJECT_OUTCOME_PROTOCOL_ERROR":
            return UNMARKED
        assert [s.get("exitCode", 0) for s in project["steps"]] == [0, 4] and project["outcome"] == "PROJECT_OUTCOME_COMPLETED", project
        assert [a["path"] for a in project["artifacts"]] == ["out.txt"], project
        return OK
    if js.get("timedOut"):
        assert js["exitCode"] == 124
        return LATE
    assert (js["exitCode"], text(answer, "stdout"), text(answer, "stderr")) == (3, case.stdout or b"out\n", b"err\n"), answer
    return OK


@pytest.mark.parametrize("case", [*CREATE, *READY, *EXECUTE, *DELETE], ids=repr)
def test_a_fault_of_the_gateway(service, case):
    before = len(service.cloud.account()["sandboxes"])
    service.cloud.faults([case.rule])
    answer = service.project(timeoutMs=case.timeout_ms) if case.project else service.snippet(timeoutMs=case.timeout_ms)
    creates, (rule,) = len(service.cloud.account()["sandboxes"]) - before, service.cloud.faults()
    if rule["action"]["type"] not in ("delete-fails",) and case.rule["method"] != "DeleteSandbox":
        service.cloud.clear_faults()
        assert rule["hits"] >= 1, "the fault was not met"
    assert verdict_of(answer, case) == case.what, answer
    if case.what == MARKED:
        assert answer.reason == case.reason, answer
    if case.code:
        assert answer.code == case.code, answer
    if case.says:
        assert case.says in answer.message, answer
    if "html" in case.name:
        assert "<html" not in answer.message
    # nothing is made or started twice, and nothing is started that is said not to have been
    assert creates == case.creates or (case.is_suspect and creates >= case.creates)
    started = len(service.own_execs(case.project))
    assert started == (1 if case.what == OK else 0) or (case.what in (UNMARKED, LATE) and started <= 1), service.execs()
    if case.is_suspect:
        service.retried()
    # one that may still come to be is looked for a while: the books are closed with a later test
    if case.creates > 0 or case.what != UNMARKED:
        service.settle()


def test_another_sandbox_under_the_name_of_one_that_went_is_left_alone():
    with served() as service:
        service.cloud.fault("DeleteSandbox", "delete-fails", what="replaced", times=1)
        assert service.snippet().status == 200
        g.wait_for(lambda: service.ledger() == 0 and [s["labels"] for s in service.cloud.state()["sandboxes"]] == [{}], "the ledger to forget ours")
        assert service.cloud.violations() == []
        service.cloud.reset()


# -- deaths --


def test_deaths_of_the_role_leave_nothing():
    """A new role of the installation takes over what a dead one left, when its lease is over."""
    with served() as service:
        for point in ("cloud.created", "cloud.started", "cloud.ended", "backend.delete"):
            service.mark()
            service.gw.faults.arm(point, "once kill")
            answer = service.snippet()
            assert answer.status != 200 and answer.header("Plimsoll-Not-Dispatched") is None, (point, answer)
            assert len(service.own_execs()) <= 1, point
            service.ready()
        service.settle(60)


def test_what_a_lost_installation_left_is_deleted_and_nothing_else_is():
    """Redis lost its data: what was made before carries an identity that nobody has any more. It goes when it is past its time by five minutes, by the gateway's
    own clock; a living neighbour's sandbox is never touched."""
    lifetime, margin = 60, 5 * 60

    def plant(number, age_s, **labels):
        stamp = f"{number:x}" * 32
        mine = {"plimsoll.run": "1", "plimsoll.stamp": stamp, "plimsoll.installation": "e" * 32, "plimsoll.instance": "e" * 16, "plimsoll.lifetime": str(lifetime)}
        mine = {k: v for k, v in {**mine, **{"plimsoll." + k: v for k, v in labels.items()}}.items() if v is not None}
        service.cloud.admin("POST", "sandboxes", {"name": "plp-" + stamp[:14], "labels": mine, "age_ms": int(age_s * 1000)})
        return "plp-" + stamp[:14]

    with served(PLIMSOLL_CLOUD_LISTING="100ms") as service:
        service.mark()
        lost = {plant(1, lifetime + margin + 5), plant(2, 86400), plant(3, lifetime + margin + 3)}
        kept = {plant(4, 1), plant(5, lifetime + margin - 60), plant(6, 86400, lifetime=None), plant(7, 86400, lifetime="soon"), plant(8, 86400, run=None),
                plant(9, 86400, installation=None), plant(10, 86400, lifetime=str(2 * 86400))}
        g.wait_for(lambda: len(service.gw.log_lines("sandbox of a lost installation deleted")) == len(lost), "the lost ones to be deleted", 30)
        g.wait_for(lambda: {s["name"] for s in service.cloud.state()["sandboxes"]} == kept, "the others to be all there is", 10)
        # and once more round, with a run in between
        assert service.snippet().status == 200
        before = service.calls().count("ListSandboxes")
        g.wait_for(lambda: service.calls().count("ListSandboxes") >= before + 4, "two more rounds", 30)
        assert {s["name"] for s in service.cloud.state()["sandboxes"]} == kept
        assert service.calls().count("DeleteSandbox") == len(lost) + 1
        assert service.cloud.violations() == []
        service.cloud.reset()


def test_what_ran_when_redis_lost_its_data_and_nobody_was_left_goes_in_its_time():
    """The gateway is killed, Redis comes back empty, and the new identity selects nothing of the old one's. An hour later, by the OpenShell gateway's clock, it goes."""
    redis = g.Redis().start()
    try:
        with served(PLIMSOLL_REDIS_URL=redis.url, PLIMSOLL_CLOUD_LISTING="100ms") as service:
            gw, cloud = service.gw, service.cloud
            service.mark()
            with gw.connect() as c:
                c.send(g.request(RUN, json.dumps(g.javascript("setTimeout(() => {}, 60000)", timeoutMs=60000)).encode(), gw.headers()))
                old, = g.wait_for(lambda: [s for s in cloud.state()["sandboxes"] if s["execs"]], "the code to run")
                gw.kill_rest()
            assert redis.command("FLUSHALL") == b"+OK"
            gw.start()
            service.ready()
            service.mark()
            g.wait_for(lambda: len(service.calls("ListSandboxes")) >= 3, "it to be looked for", 30)
            assert [s["id"] for s in cloud.state()["sandboxes"]] == [old["id"]]
            cloud.clock(advance_ms=3600 * 1000)
            assert service.snippet().status == 200  # tells the hour
            service.settle(30)
            assert len(gw.log_lines("sandbox of a lost installation deleted")) == 1
    finally:
        redis.stop()


def test_one_answer_that_it_is_not_there_ends_no_entry_before_its_deletion_was_asked_for():
    """GetSandbox says NOT_FOUND, once, of a sandbox that is there."""
    with served() as service:
        answer = service.gw.in_background("setTimeout(() => {}, 1500)", path=RUN)
        sandbox, = g.wait_for(lambda: [s for s in service.cloud.state()["sandboxes"] if s["execs"]], "the code to run")
        service.mark()
        service.cloud.fault("GetSandbox", "status", code="NOT_FOUND", times=1)
        assert answer.join().status == 200
        g.wait_for(lambda: service.ledger() == 0, "the ledger to be empty")
        assert service.calls()[:2] == ["GetSandbox", "DeleteSandbox"], sandbox
        service.cloud.clear_faults()
        service.settle(10)


# -- its connection --


def test_over_tls_with_a_client_certificate(tmp_path):
    folder = tmp_path / "tls"
    with clouds.OpenshellStandin("--runner", RUNNER, "--tls-dir", folder) as cloud:
        assert cloud.ready["url"].startswith("https://")
        files = {"SANDBOX_OPENSHELL_CA_FILE": str(folder / "ca.crt"), "SANDBOX_OPENSHELL_CERT_FILE": str(folder / "client.crt"),
                 "SANDBOX_OPENSHELL_KEY_FILE": str(folder / "client.key"), "SANDBOX_OPENSHELL_PLAINTEXT": None}
        with g.served(g.Gateway(settings_of(cloud, **files))) as gw:
            service = Service(cloud, gw.start())
            service.ready()
            gw.secrets += [line for line in (folder / "client.key").read_text().splitlines() if "-" not in line]
            assert service.snippet().json()["javascript"]["exitCode"] == 3
            assert service.project().json()["project"]["outcome"] == "PROJECT_OUTCOME_COMPLETED"
            service.settle()


@pytest.mark.parametrize("what,says", [("http/1.1", "ALPN"), ("another authority", "not trusted")])
def test_a_gateway_that_is_not_the_one_is_sent_nothing(tmp_path, what, says):
    folder, other = tmp_path / "tls", tmp_path / "other"
    with clouds.OpenshellStandin("--tls-dir", other) as elsewhere, \
            clouds.OpenshellStandin("--tls-dir", folder, *(("--alpn", what) if "/" in what else ())) as cloud:
        authority = folder if "/" in what else other
        files = {"SANDBOX_OPENSHELL_CA_FILE": str(authority / "ca.crt"), "SANDBOX_OPENSHELL_CERT_FILE": str(folder / "client.crt"),
                 "SANDBOX_OPENSHELL_KEY_FILE": str(folder / "client.key"), "SANDBOX_OPENSHELL_PLAINTEXT": None}
        gw = g.Gateway(settings_of(cloud, **files), clean_exit=False)
        with g.served(gw):
            gw.spawn()
            assert says in gw.wait_log("backend not proven", 20)["reason"]
            assert cloud.calls() == [] and elsewhere.calls() == []


def test_the_connection_goes_away_between_runs_and_in_one(service):
    running = service.gw.in_background("setTimeout(() => console.log('kept'), 1500)", path=RUN)
    g.wait_for(lambda: service.execs(), "the code to run")
    # a call on the same connection is answered with GOAWAY: what runs on it ends in peace, and what comes takes another
    service.cloud.faults([{"method": "GetSandbox", "times": 1, "action": {"type": "goaway"}}])
    assert service.snippet().json()["javascript"]["exitCode"] == 3
    assert text(running.join(), "stdout") == b"kept\n"
    service.settle()


def test_a_command_that_never_reads_its_input(service):
    service.cloud.faults([{"method": "ExecSandboxInteractive", "times": 1, "action": {"type": "no-read", "exit": 7}}])
    assert service.snippet("// " + "x" * 200_000).json()["javascript"]["exitCode"] == 7
    service.settle()


# -- walls that are not what they should be --


@pytest.mark.parametrize("what", ["none", "two", "podman", "mismatch", "no-memory", "version-0.2", "PERMISSION_DENIED", "UNIMPLEMENTED"])
def test_a_gateway_that_cannot_be_stood_behind_is_not_served(what):
    with clouds.OpenshellStandin("--runner", RUNNER) as cloud:
        cloud.faults([{"method": "GetGatewayInfo", **FOREVER, "action": {"type": "driver", "what": what}}])
        gw = g.Gateway(settings_of(cloud, PLIMSOLL_PROOF_INTERVAL="2s"), clean_exit=False)
        with g.served(gw):
            gw.spawn()
            failed = gw.wait_log("backend not proven", 20)
            assert failed["backend"] == "openshell"
            assert [line for line in cloud.journal(method="CreateSandbox")] == []


@pytest.mark.parametrize("what", ["memory-max", "cpu-max", "net", "writable"])
def test_a_sandbox_that_is_not_what_it_says_fails_the_trial(what):
    with clouds.OpenshellStandin("--runner", RUNNER) as cloud:
        cloud.faults([{"method": "CreateSandbox", **FOREVER, "action": {"type": "box", "what": what}}])
        gw = g.Gateway(settings_of(cloud), clean_exit=False)
        with g.served(gw):
            gw.spawn()
            failed = gw.wait_log("wall tried", 20)
            assert not failed["holds"], failed
            g.wait_for(lambda: cloud.alive() == [] or not cloud.alive(), "the trial's sandbox to be gone", 30)
            assert cloud.leaks() == [] and cloud.violations() == []
