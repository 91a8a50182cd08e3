"""The E2B wall through the real gateway, against the stand-in of E2B's two planes (tests/standins/e2b): every fault at every step has the right code,
mark and verdict, nothing is created or started twice, and at the end of each test the stand-in's account and the ledger are empty.

The stand-in's journal is what was really asked of E2B; its account says what was there and for how long.
"""
import base64
import contextlib
import datetime
import json
import re
import time
import urllib.request

import pytest

import clouds
import gateway as g
import redis_servers

KEY = "e2b_" + "0123456789abcdef" * 2
CREATE, START, FILES, STAT = "/v2/sandboxes", "/process.Process/Start", "/files", "/filesystem.Filesystem/Stat"
UNSEEN_MS = 1500
EMPTY_S = 20
HTML = "<html><head><title>502</title></head><body><h1>Bad gateway</h1></body></html>"
FULL = {"code": 429, "message": "you have reached the maximum number of concurrent E2B sandboxes (20). If you need more, please contact us"}
RATE = {"code": 429, "message": "Rate limit exceeded"}


class Site:
    """A Redis, the stand-in, and gateways that use both."""

    def __init__(self, *options):
        self.stack = contextlib.ExitStack()
        self.redis = redis_servers.Server().start()
        self.stack.callback(self.redis.stop)
        self.cloud = self.stack.enter_context(clouds.E2bStandin("--api-key", KEY, *options))
        self.marks = {"journal": 0, "sandboxes": 0}

    def settings(self, **more):
        return {"SANDBOX_PROVIDER": "e2b", "E2B_API_KEY": KEY, "E2B_API_URL": self.cloud.ready["api_url"], "E2B_SANDBOX_URL": self.cloud.ready["sandbox_url"],
                "E2B_MAX_CONCURRENT": "64", "E2B_CREATES_PER_SECOND": "1000", "SANDBOX_MAX_CONCURRENT": "32", "PLIMSOLL_CLOUD_UNSEEN": f"{UNSEEN_MS}ms",
                "PLIMSOLL_CLOUD_SMOKE_PAUSE": "20ms", "PLIMSOLL_PROOF_INTERVAL": "20m", "PLIMSOLL_EVIDENCE_MAX_AGE": "40m", "PLIMSOLL_DRAIN": "2s",
                "PLIMSOLL_REDIS_URL": f"redis://127.0.0.1:{self.redis.port}", **more}

    def gateway(self, **more):
        gw = g.Gateway(self.settings(**more))
        gw.secrets.append(KEY)
        self.stack.enter_context(g.served(gw))
        gw.start()
        g.wait_for(lambda: gw.get("/readyz").status == 200, "the wall to be proven", g.START_S)
        return gw

    def entries(self):
        flat = self.redis.ask("HGETALL", "plimsoll:2:{default}:ledger:e2b")
        return {k.decode(): v.decode().split(" ") for k, v in zip(flat[::2], flat[1::2])}

    def wait_empty(self, seconds=EMPTY_S):
        try:
            g.wait_for(lambda: not self.cloud.alive() and not self.entries(), "the account and the ledger to be empty", seconds)
        except AssertionError as e:
            raise AssertionError(f"{e}: {self.cloud.alive()} {self.entries()}") from None

    def begin(self):
        """What follows is looked at from here on."""
        self.cloud.clear_faults()
        self.mark = max((line["n"] for line in self.cloud.journal()), default=0)
        self.known = {s["id"] for s in self.cloud.account()["sandboxes"]}
        return self

    def journal(self, **where):
        return self.cloud.journal(self.mark, **where)

    def made(self):
        """The sandboxes since `begin`."""
        return [s for s in self.cloud.account()["sandboxes"] if s["id"] not in self.known]

    def end(self, waits_for_ledger=True):
        """What holds after every test: nothing is left, nothing was done twice, and no rule of the interface was broken. The ledger keeps what may
        still come to be for a while; the last test waits for it."""
        self.cloud.clear_faults()
        if waits_for_ledger:
            self.wait_empty()
        g.wait_for(lambda: not self.cloud.alive(), "all machines to be gone", EMPTY_S)
        assert self.cloud.leaks() == [] and self.cloud.violations() == []
        leases = [s["labels"]["gw_lease"] for s in self.made()]
        assert len(leases) == len(set(leases)), "two sandboxes for one lease"
        assert not [line for line in self.journal() if line.get("unknown_route")]


@pytest.fixture(scope="module")
def standing():
    site = Site()
    with site.stack:
        site.gw = site.gateway()
        yield site
        site.begin().end()


@pytest.fixture
def site(standing):
    """The shared site; afterwards it is as it was."""
    standing.begin()
    yield standing
    standing.gw.wait_inflight(0)
    standing.end(waits_for_ledger=False)
    # a wall that was suspected has tried itself again
    g.wait_for(lambda: standing.gw.get("/readyz").status == 200, "the wall to be proven anew", 15)


@pytest.fixture
def place():
    """A stand-in and a Redis of the test's own, for gateways that die, or that suspect their wall afterwards."""
    site = Site()
    with site.stack:
        site.begin()
        yield site
        site.end()


def respond(status, body="", **more):
    is_json = isinstance(body, (dict, list))
    return {"type": "respond", "status": status, "body": json.dumps(body) if is_json else body,
            "content_type": "application/json" if is_json else "text/plain", **more}


def ask(site, method, path, body=None):
    """One call to the stand-in's control plane, past the gateway."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(site.cloud.ready["api_url"] + path, data, {"X-API-Key": KEY, "Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read() or "null")


def rule(path, action, method="POST", nth=1, times=1, **more):
    """`times` None: without an end."""
    return {"method": method, "path": path, "nth": nth, **({} if times is None else {"times": times}), "action": action, **more}


def project(files=None, steps=("true",), artifacts=(), **more):
    return {"protocol": 4, "project": {"files": [{"path": p, "content": c} for p, c in (files or {}).items()], "steps": list(steps),
                                       "artifacts": list(artifacts)}, **more}


def run_project(gw, body, key=None):
    answer = gw.post(g.RUN, body, key)
    if answer.status == 200:
        g.check_record(body, answer)
    return answer


def step(answer, number=0):
    found = answer.json()["project"]["steps"][number]
    return {"out": base64.b64decode(found.get("stdout", "")), "err": base64.b64decode(found.get("stderr", "")), "exit": found.get("exitCode", 0),
            "timed_out": found.get("timedOut", False), "cut": (found.get("stdoutTruncated", False), found.get("stderrTruncated", False))}


def js(answer):
    found = answer.json()["javascript"]
    return {"out": g.stdout(answer), "err": g.stderr(answer), "exit": found.get("exitCode", 0), "timed_out": found.get("timedOut", False),
            "cut": (found.get("stdoutTruncated", False), found.get("stderrTruncated", False))}


def artifacts(answer):
    return {a["path"]: base64.b64decode(a.get("content", "")) for a in answer.json()["project"].get("artifacts", [])}


def starts(site):
    """The commands sent since `begin`: the check of the files, then the run's own."""
    return site.journal(path=START)


def refused(site, answer, reason="capacity", key=None):
    """Marked: nothing of the caller's ran."""
    g.refused(answer, {"capacity": "resource_exhausted", "isolation": "failed_precondition"}[reason], reason, key)
    return answer


# -- the ordinary way --


def test_a_snippet(site):
    answer = site.gw.ok("process.stdout.write('out'); process.stderr.write('err'); process.exit(3)", minimumIsolation="vm", timeoutMs=7000)
    assert answer.json()["sandbox"] == "e2b" and answer.json()["isolation"] == "vm"
    assert js(answer) == {"out": b"out", "err": b"err", "exit": 3, "timed_out": False, "cut": (False, False)}
    assert float(answer.header("Plimsoll-Billable-Seconds")) > 0
    site.wait_empty()
    (box,) = site.made()
    assert box["labels"] == {"gw": "plimsoll", "gw_instance": site.redis.ask("GET", "plimsoll:2:{default}:stamp").decode(), "gw_kind": "run",
                             "gw_lease": box["labels"]["gw_lease"]}
    assert box["ended_by"] == "api" and box["counts"]["exec"] == 2
    # what is asked for: 15 s to stage, the run's time, 15 s to collect, and 10 s
    (create,) = site.journal(path=CREATE, method="POST")
    assert create["status"] == 201
    assert [line["path"] for line in site.journal() if line["plane"] == "data"] == [FILES, START, START]


def test_what_a_machine_is_asked_for_and_what_it_costs(site):
    """15 s to stage, the run's time, 15 s to collect and 10 s; and the bill is the provider's own count, to a second."""
    run = site.gw.in_background("setTimeout(() => {}, 700)", timeoutMs=7001)
    g.wait_for(lambda: len(starts(site)) == 2, "the run to begin")
    (name,) = site.cloud.alive()
    record = ask(site, "GET", "/sandboxes/" + name)
    moment = [datetime.datetime.fromisoformat(record[k].replace("Z", "+00:00")) for k in ("startedAt", "endAt")]
    assert 47.9 <= (moment[1] - moment[0]).total_seconds() < 49     # counted from the end of the placement
    assert record["lifecycle"] == {"autoResume": False, "onTimeout": "kill"} and record["allowInternetAccess"] is False
    assert record["network"] == {"denyOut": ["0.0.0.0/0"], "allowPublicTraffic": False}
    answer = run.join()
    site.wait_empty()
    (box,) = site.made()
    paid = g.wait_for(lambda: site.gw.get("/v1/runs/" + answer.header("Plimsoll-Run-Id")).json().get("paid_ms"), "the bill")
    assert 0 <= paid - box["billed_ms"] < 1000 and paid >= float(answer.header("Plimsoll-Billable-Seconds")) * 1000
    # nobody who only asks how it is makes a machine
    made = site.cloud.account()["created"]
    assert site.gw.get("/readyz").status == 200 and site.gw.get("/healthz").status == 200 and site.gw.describe().status == 200
    assert site.cloud.account()["created"] == made


def test_a_project(site):
    body = project({"a.txt": "one", "dir/b.sh": "echo $1-$PWD", "empty": ""},
                   ["cat a.txt; printf e >&2", "sh dir/b.sh x; printf 'two\\0' > out.bin; mkdir made; ln -s /etc/passwd link", "exit 5", "echo never"],
                   ["out.bin", "a.txt", "empty", "missing", "made", "link"], timeoutMs=10000, minimumIsolation="vm")
    answer = run_project(site.gw, body)
    assert answer.status == 200, answer
    got = answer.json()["project"]
    assert got["outcome"] == "PROJECT_OUTCOME_COMPLETED" and len(got["steps"]) == 3
    assert step(answer)["out"] == b"one" and step(answer)["err"] == b"e"
    assert step(answer, 1)["out"] == b"x-/home/user/project\n"
    assert step(answer, 2)["exit"] == 5
    # after a failing step too; what is no regular file is not read
    assert artifacts(answer) == {"out.bin": b"two\0", "a.txt": b"one", "empty": b""} and not got.get("artifactsTruncated")
    site.wait_empty()
    assert site.made()[0]["counts"]["exec"] == 4


def test_a_project_without_files(site):
    answer = run_project(site.gw, project({}, ["pwd; ls -A | wc -l"]))
    assert step(answer)["out"] == b"/home/user/project\n0\n"


def test_no_network(site):
    code = ("const s = require('net').connect(443, '1.1.1.1'); s.on('error', () => console.log('no')); s.on('connect', () => { console.log('yes'); s.end(); });"
            "s.setTimeout(3000, () => { console.log('no'); s.destroy(); })")
    assert js(site.gw.ok(code))["out"] == b"no\n"


def test_bytes_as_they_are(site):
    """What is no text, a character cut between two chunks, and nothing."""
    assert js(site.gw.ok("process.stdout.write(Buffer.from('fffe0080', 'hex')); process.stderr.write(Buffer.from([0]))"))["out"] == b"\xff\xfe\0\x80"
    site.cloud.faults([rule(START, {"type": "split", "bytes": 3}, nth=2)])
    coffee = site.gw.ok("const fs = require('fs'); fs.writeSync(1, Buffer.from([0xe2, 0x98])); setTimeout(() => fs.writeSync(1, Buffer.from([0x95])), 50)")
    assert js(coffee)["out"] == "☕".encode()
    site.cloud.clear_faults()
    assert js(site.gw.ok(" "))["out"] == b""


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_output_is_kept_to_its_limit(site, over):
    answer = site.gw.ok(f"process.stdout.write(Buffer.alloc({64 * 1024 + over}, 'y'))")
    got = js(answer)
    assert len(got["out"]) == min(64 * 1024 + over, 64 * 1024) and got["cut"] == (over > 0, False) and got["exit"] == 0


def test_a_flood_is_a_failed_run(site):
    answer = site.gw.ok("const b = Buffer.alloc(65536, 'y'); for (;;) require('fs').writeSync(1, b)", timeoutMs=60000)
    got = js(answer)
    assert got["exit"] == 153 and got["cut"] == (True, True) and not got["timed_out"] and len(got["out"]) == 64 * 1024


def test_a_signal_is_128_and_its_number(site):
    assert js(site.gw.ok("process.kill(process.pid, 'SIGTERM'); setInterval(() => {}, 1000)"))["exit"] == 143


def test_names_that_need_care(site):
    body = project({"ä b&c%22.txt": "x", "-n": "y"}, ["cat -- 'ä b&c%22.txt' ./-n > 'o ü+.bin'"], ["o ü+.bin"])
    answer = run_project(site.gw, body)
    assert step(answer)["exit"] == 0, answer
    assert artifacts(answer) == {"o ü+.bin": b"xy"}


# -- time --


def own_start_ms(site):
    return starts(site)[-1]["ms"]


def test_a_timeout_is_kept_and_the_whole_tree_ends(site):
    """The daemon's own verdict, and the machine's deletion, which ends what the command has left."""
    code = "require('child_process').spawn('sleep', ['60'], {stdio: 'inherit', detached: true}); process.stdout.write('A'); setTimeout(() => {}, 5000)"
    began = time.monotonic()
    got = js(site.gw.ok(code, timeoutMs=1500))
    took = time.monotonic() - began
    assert got["timed_out"] and got["exit"] == 124 and got["out"] == b"A" and got["cut"] == (False, False)
    assert took < 1500 / 1000 + 1.5
    site.wait_empty()
    (delete,) = site.journal(method="DELETE")
    assert 1450 <= delete["ms"] - own_start_ms(site) <= 2500


@pytest.mark.parametrize("stall", [{"type": "stall", "ms": 60000}, {"type": "stall", "ms": 60000, "after_frames": 2}])
def test_our_own_clock_ends_a_run_whose_deadline_the_backend_ignores(site, stall):
    site.cloud.faults([rule(START, stall, nth=2)])
    began = time.monotonic()
    got = js(site.gw.ok("process.stdout.write('A'); setInterval(() => {}, 1000)", timeoutMs=2000))
    assert got["timed_out"] and got["exit"] == 124
    assert 2.0 <= time.monotonic() - began < 3.5
    (delete,) = g.wait_for(lambda: site.journal(method="DELETE"), "the deletion")
    assert delete["ms"] - own_start_ms(site) <= 2400


def test_a_timed_out_step_is_the_last_and_artifacts_are_read(site):
    answer = run_project(site.gw, project({}, ["echo 1 > a", "echo 2 >> a; sleep 30", "echo 3 >> a"], ["a"], timeoutMs=2000))
    got = answer.json()["project"]
    assert got["outcome"] == "PROJECT_OUTCOME_TIMED_OUT" and len(got["steps"]) == 2
    assert step(answer, 1)["timed_out"] and step(answer, 1)["exit"] == 124
    assert artifacts(answer) == {"a": b"1\n2\n"}


def test_the_machine_goes_within_a_second_of_the_last_output(site):
    site.gw.ok("setTimeout(() => console.log('done'), 200)", timeoutMs=120000)
    (delete,) = g.wait_for(lambda: site.journal(method="DELETE"), "the deletion")
    assert 200 <= delete["ms"] - own_start_ms(site) < 1200


def test_a_quiet_run_is_not_cut_off(site):
    """Keepalives count as life; between them nothing comes for as long as they say."""
    site.cloud.faults([rule(START, {"type": "keepalives", "every_ms": 20}, nth=2)])
    assert js(site.gw.ok("setTimeout(() => console.log('done'), 1500)"))["out"] == b"done\n"


# -- faults at the creation: the code, the mark, and whether it may have run --

DENIED, LOST, BUSY, OURS = "denied", "lost", "busy", "isolation"
CREATES = {
    "400": (respond(400, {"code": 400, "message": "validation error: x"}), DENIED),
    "401": (respond(401, {"code": 401, "message": "unauthorized"}), DENIED),
    "403": (respond(403, {"code": 403, "message": "blocked"}), DENIED),
    "404": (respond(404, {"code": 404, "message": "template 'base' not found"}), DENIED),
    "404 html": (respond(404, HTML), DENIED),
    "409": (respond(409, {"code": 409, "message": "x"}), DENIED),
    "full": (respond(429, FULL), BUSY),
    "full, 7 s": (respond(429, FULL, headers={"Retry-After": "7"}), BUSY),
    "429 of an edge": (respond(429, HTML), LOST),
    "408": (respond(408, ""), LOST),
    "499": (respond(499, ""), LOST),
    "500": (respond(500, {"code": 500, "message": "Failed to place sandbox"}), LOST),
    "502 html": (respond(502, HTML), LOST),
    "503 capacity": (respond(503, {"code": 503, "message": "no room", "error_code": "sandbox_capacity_unavailable"}), LOST),
    "504 text": (respond(504, "upstream request timeout"), LOST),
    "redirect": (respond(307, "", headers={"Location": "http://127.0.0.1:9/"}), LOST),
    "202": (respond(202, {}), LOST),
    "200 with a sandbox": (respond(200, {"sandboxID": "iabcdefghij0123456789"}), LOST),
    "cut before": ({"type": "drop", "how": "rst"}, LOST),
    "closed before": ({"type": "drop", "how": "fin"}, LOST),
}


@pytest.mark.parametrize("name", CREATES)
def test_a_create_that_goes_wrong_before_anything_is_made(site, name):
    action, kind = CREATES[name]
    site.cloud.faults([rule(CREATE, action)])
    key = g.new_id()
    answer = site.gw.run("console.log('ran')", key)
    if kind == LOST:
        g.failed(answer, "unavailable", key)
        assert len(site.entries()) >= 1     # nobody knows that there is none
    else:
        refused(site, answer, "capacity", key)
        assert answer.header("Retry-After") == ("7" if "7 s" in name else "1")
        if kind == BUSY:
            assert "the backend's own limit" in answer.message
    assert HTML not in answer.message and "<h1>" not in site.gw.log()
    creates = site.journal(path=CREATE, method="POST")
    if kind == DENIED:
        # the operator's to mend, so said loudly, and tried again with a sandbox of the wall's own
        site.gw.wait_log("provider denied", status=action["status"])
    else:
        assert len(creates) == 1 and not site.made() and not starts(site)
    assert "status" not in action or creates[0]["status"] == action["status"]


AFTER = {
    "lost answer, rst": ({"type": "drop", "how": "rst"}, "after"),
    "lost answer, fin": ({"type": "drop", "how": "fin"}, "after"),
    "cut answer": ({"type": "truncate", "keep_bytes": 20}, "body"),
    "500 after": (respond(500, ""), "after"),
    "ghost": ({"type": "ghost_create", "appear_after_ms": 400, "answer": "none"}, "before"),
    "ghost, 500": ({"type": "ghost_create", "appear_after_ms": 400, "answer": "500"}, "before"),
    "ghost, 504": ({"type": "ghost_create", "appear_after_ms": 0, "answer": "504"}, "before"),
    **{kind: ({"type": "malform_create", "kind": kind}, "before") for kind in
       ("bad_json", "not_object", "no_id", "null_id", "bad_chars_id", "duplicate_key", "huge")},
}


@pytest.mark.parametrize("name", AFTER)
def test_a_create_whose_answer_tells_nothing_is_looked_for_by_its_stamp(site, name):
    """One was made; the run goes nowhere else, says that it may have run, and the machine is found and deleted."""
    action, phase = AFTER[name]
    site.cloud.faults([rule(CREATE, action, phase=phase)])
    key = g.new_id()
    g.failed(site.gw.run("console.log('ran')", key), "unavailable", key)
    site.wait_empty()
    (box,) = site.made()
    assert box["ended_by"] == "api" and box["counts"].get("exec", 0) == 0
    assert len(site.journal(path=CREATE, method="POST")) == 1
    assert [line for line in site.journal(path=CREATE, method="GET") if "gw_lease" in line["query"]]


@pytest.mark.parametrize("kind", ["no_envd_token", "no_traffic_token", "ctl_in_token", "foreign_domain", "no_version"])
def test_a_machine_that_cannot_be_used_is_deleted_unused(site, kind):
    site.cloud.faults([rule(CREATE, {"type": "malform_create", "kind": kind})])
    key = g.new_id()
    refused(site, site.gw.run("1", key), "capacity", key)
    site.wait_empty()
    (box,) = site.made()
    assert box["ended_by"] == "api" and not starts(site)


def test_an_id_that_is_somebody_elses_is_never_deleted(site):
    """The answer names a machine that is another run's: that one goes on, and the one that was made is found by its stamp."""
    held = site.gw.in_background("setTimeout(() => console.log('mine'), 1500)")
    g.wait_for(lambda: len(starts(site)) == 2, "the first run to begin")
    site.cloud.faults([rule(CREATE, {"type": "malform_create", "kind": "foreign_id"})])
    key = g.new_id()
    g.failed(site.gw.run("1", key), "unavailable", key)
    assert js(held.join())["out"] == b"mine\n"
    site.wait_empty()
    assert len(site.made()) == 2


def test_the_rate_limiter_is_asked_again_with_the_same_stamp(site):
    limited = respond(429, RATE, headers={"Retry-After": "1", "RateLimit-Limit": "1", "RateLimit-Remaining": "0", "RateLimit-Reset": "1"})
    site.cloud.faults([rule(CREATE, limited, times=2)])
    assert js(site.gw.ok("console.log(1)"))["out"] == b"1\n"
    creates = site.journal(path=CREATE, method="POST")
    assert [line["status"] for line in creates] == [429, 429, 201]
    assert all(b["ms"] - a["ms"] >= 1000 for a, b in zip(creates, creates[1:]))
    site.cloud.faults([rule(CREATE, limited, times=10)])
    key = g.new_id()
    refused(site, site.gw.run("1", key), "capacity", key)
    assert len(site.journal(path=CREATE, method="POST")) == 6


def test_a_lost_create_and_its_key_make_no_second_machine(site):
    site.cloud.faults([rule(CREATE, {"type": "drop", "how": "rst"}, phase="after")])
    key = g.new_id()
    both = [site.gw.in_background("1", request_id=key) for _ in range(2)]
    for answer in [b.join() for b in both]:
        g.failed(answer, "unavailable", key)
    assert len(site.made()) == 1
    site.wait_empty()


@pytest.mark.parametrize("listing", [{"type": "respond", "status": 500}, {"type": "bad_pages", "kind": "500_on_page", "page": 1}, {"type": "truncate", "keep_bytes": 9},
                                     {"type": "respond", "status": 200, "body": "{}", "content_type": "application/json"},
                                     {"type": "respond", "status": 206, "body": "[]", "content_type": "application/json"}])
def test_a_listing_that_is_not_whole_proves_no_absence(site, listing):
    """The machine shows up late, and until it could the listings are of no use: it is not taken for gone."""
    site.cloud.faults([rule(CREATE, {"type": "drop", "how": "rst"}, phase="after"), rule(CREATE, listing, method="GET", times=12)])
    g.failed(site.gw.run("1"), "unavailable")
    g.wait_for(lambda: len(site.journal(path=CREATE, method="GET")) >= 2, "the look-ups")
    assert site.entries() and site.cloud.alive()
    time.sleep(UNSEEN_MS / 1000)
    assert site.entries() and site.cloud.alive()
    site.cloud.clear_faults()
    site.wait_empty()


def test_one_that_is_found_on_pages_without_an_end_is_deleted(site):
    site.cloud.faults([rule(CREATE, {"type": "bad_pages", "kind": "same_token"}, method="GET", times=None), rule(CREATE, {"type": "drop", "how": "rst"}, phase="after")])
    g.failed(site.gw.run("1"), "unavailable")
    g.wait_for(lambda: not site.cloud.alive(), "the machine to be deleted")


def test_what_was_deleted_may_stay_listed_for_a_moment(site):
    site.cloud.faults([rule(CREATE, {"type": "stale_list", "ms": 700}, method="GET", times=None), rule(CREATE, {"type": "drop", "how": "rst"}, phase="after")])
    g.failed(site.gw.run("1"), "unavailable")
    site.wait_empty()


def test_others_machines_are_left_alone_and_forgotten_ones_are_not(place):
    """At its start a gateway looks at all that carry its stamp: what stands in no ledger goes, another installation's stays."""
    with g.served(g.Gateway(place.settings())) as gw:
        gw.start()
        stamp = place.redis.ask("GET", "plimsoll:2:{default}:stamp").decode()
    place.wait_empty()

    def make(**labels):
        return ask(place, "POST", CREATE, {"templateID": "base", "timeout": 300, "metadata": {"gw": "plimsoll", "gw_kind": "run", "gw_lease": g.new_id(), **labels}})["sandboxID"]
    ours, paused, others, unmarked = make(gw_instance=stamp), make(gw_instance=stamp), make(gw_instance="f" * 32), make(gw="other", gw_instance=stamp)
    ask(place, "POST", f"/sandboxes/{paused}/pause", {})
    gw = place.gateway()
    g.wait_for(lambda: not {ours, paused} & set(place.cloud.alive()), "ours to be deleted", EMPTY_S)
    gw.ok("1")
    assert set(place.cloud.alive()) >= {others, unmarked}
    for name in (others, unmarked):
        ask(place, "DELETE", "/sandboxes/" + name)


# -- what is read back --


READ_BACK = {
    "other stamps": {"set": {"metadata.gw_lease": "f" * 32}},
    "another installation": {"set": {"metadata.gw_instance": "f" * 32}},
    "paused": {"set": {"state": "paused"}},
    "no memory": {"drop": ["memoryMB"]},
    "no disk": {"drop": ["diskSizeMB"]},
    "open": {"set": {"network.denyOut": []}},
    "a way out": {"set": {"network.allowOut": ["example.com"]}},
    "rules": {"set": {"network.rules": {"a.example": [{"transform": {"headers": {"x": "secret"}}}]}}},
    "public": {"set": {"network.allowPublicTraffic": True}},
    "no network": {"drop": ["network"]},
    "kept at its end": {"set": {"lifecycle.onTimeout": "pause"}},
    "wakes up": {"set": {"lifecycle.autoResume": True}},
}


@pytest.mark.parametrize("name", READ_BACK)
def test_a_machine_that_is_not_what_was_asked_for_is_not_used(site, name):
    """Files may be on their way there meanwhile, but nothing is started; the wall is suspected, and tries itself anew."""
    tried = len(site.gw.log_lines("wall tried"))
    site.cloud.faults([rule("/sandboxes/{id}", {"type": "readback", **READ_BACK[name]}, method="GET")])
    key = g.new_id()
    refused(site, site.gw.run("1", key), "isolation", key)
    unused = site.made()[0]["id"]
    assert {line["path"] for line in site.journal(plane="data", sandbox=unused)} <= {"/files"}
    g.wait_for(lambda: len(site.gw.log_lines("wall tried")) > tried, "another trial", 15)


def test_files_may_be_on_their_way_but_nothing_is_started_before_the_read_back_is_answered(site):
    site.cloud.faults([rule("/sandboxes/{id}", {"type": "delay", "ms": 700}, method="GET")])
    site.gw.ok("1")
    # the journal tells when each arrived
    arrived = {}
    for line in site.journal():
        arrived.setdefault("read" if re.fullmatch(r"/sandboxes/[^/]+", line["path"]) else line["path"], line["ms"])
    assert arrived["/files"] < arrived["read"] + 500 and arrived["/process.Process/Start"] >= arrived["read"] + 700, arrived


def test_a_template_that_is_larger_than_allowed_is_not_used(place):
    gw = g.Gateway(place.settings(SANDBOX_MEMORY_MB="256"))
    gw.exit_status = 1
    with g.served(gw):
        gw.spawn()
        line = gw.wait_log("wall tried", g.START_S)
        assert not line["holds"] and "memory" in line["reason"]
        assert gw.wait_exit() == 1
    place.wait_empty()


@pytest.mark.parametrize("rules, said", [
    ([rule(FILES, respond(200, "[]"))], "takes files from anybody"), ([rule("/v2/sandboxes", respond(401, {"code": 401, "message": "no"}), method="GET")], "did not accept"),
    ([rule("/sandboxes/{id}", {"type": "readback", "set": {"network.allowPublicTraffic": True}}, method="GET")], "open to everybody")])
def test_a_wall_that_does_not_hold_serves_nobody(place, rules, said):
    place.cloud.faults(rules)
    gw = g.Gateway(place.settings())
    gw.exit_status = 1
    with g.served(gw):
        gw.spawn()
        assert said in gw.wait_log("backend not proven", g.START_S)["reason"]
        assert gw.wait_exit() == 1
    place.wait_empty()


@pytest.mark.parametrize("action, phase", [(respond(500, ""), "before"), (respond(503, HTML), "before"), ({"type": "drop", "how": "rst"}, "after"),
                                           (respond(429, RATE, headers={"Retry-After": "1"}), "before")])
def test_a_reading_is_repeated(site, action, phase):
    site.cloud.faults([rule("/sandboxes/{id}", action, method="GET", phase=phase)])
    assert js(site.gw.ok("console.log(1)"))["out"] == b"1\n"


# -- staging --


@pytest.mark.parametrize("body", [g.javascript("console.log('ran')"), project({"a": "x"}, ["true"])], ids=["snippet", "project"])
@pytest.mark.parametrize("path, action, more", [
    (FILES, respond(500, {"code": 500, "message": "permission denied"}), {}), (FILES, respond(401, {"code": 401, "message": "unauthorized access"}), {}),
    (FILES, respond(507, {"code": 507, "message": "not enough disk space available"}), {}), (FILES, respond(200, "[]"), {}),
    (FILES, respond(200, HTML), {}), (FILES, respond(202, []), {}), (FILES, {"type": "drop", "how": "rst"}, {}), (FILES, {"type": "drop", "how": "rst"}, {"phase": "after"}),
    (FILES, respond(302, "", headers={"Location": "http://127.0.0.1:9/"}), {}),
    (START, respond(500, ""), {}), (START, {"type": "drop", "how": "rst"}, {}), (START, {"type": "vanish", "after_frames": 1, "how": "rst"}, {}),
    (START, {"type": "stream", "kind": "no_end_event"}, {}), (START, {"type": "stream", "kind": "no_eos"}, {})])
def test_nothing_was_handed_over_and_the_delete_comes_first(site, path, action, more, body):
    """A refusal that may be repeated safely, and the machine was told to end before the caller heard of it."""
    site.cloud.faults([rule(path, action, **more)])
    key = g.new_id()
    answer = site.gw.post(g.RUN, body, key)
    deletes = site.journal(method="DELETE")
    refused(site, answer, "capacity", key)
    assert len(deletes) == 1, "the delete had not been sent when the answer came"
    assert len(starts(site)) <= 1
    assert "<h1>" not in answer.message


@pytest.mark.parametrize("kib", [17, 19, 64, 1024])
def test_files_that_were_lost_on_the_way_are_named(site, kib):
    """The service answers 200 and keeps nothing of files over 18 KiB."""
    site.cloud.faults([rule(FILES, {"type": "lost_upload", "path": "/home/user/project/big", "keep_bytes": 0})] if kib > 18 else [])
    key = g.new_id()
    answer = run_project(site.gw, project({"small": "x", "big": "y" * (kib * 1024)}, ["wc -c < big"]), key)
    if kib <= 18:
        assert step(answer)["out"].strip() == str(kib * 1024).encode()
        return
    refused(site, answer, "capacity", key)
    assert "/home/user/project/big" in answer.message


def test_a_daemon_that_is_not_up_yet_is_waited_for(site):
    site.cloud.faults([rule(FILES, {"type": "envd_down", "ms": 700})])
    assert js(site.gw.ok("console.log(1)"))["out"] == b"1\n"
    assert len(site.journal(path="/health")) >= 2


# -- the run's own command --

UNKNOWN_JS = [
    ("401", respond(401, {"code": 401, "message": "unauthorized access"})),
    ("429", respond(429, "")),
    ("502 html", respond(502, HTML)),
    ("502 gone", respond(502, {"sandboxId": "x", "message": "The sandbox was not found", "code": 502})),
    ("rst before", {"type": "drop", "how": "rst"}),
    ("fin before", {"type": "drop", "how": "fin"}),
    ("vanish rst", {"type": "vanish", "after_frames": 2, "how": "rst"}),
    ("vanish frame", {"type": "vanish", "after_frames": 2, "how": "unavailable_frame"}),
    ("vanish half", {"type": "vanish", "after_frames": 2, "how": "half_frame"}),
    *((kind, {"type": "stream", "kind": kind}) for kind in (
        "no_end_event", "no_eos", "eos_error:unavailable", "eos_error:internal", "eos_error:invalid_argument", "compressed_flag", "unknown_flag",
        "bad_base64", "bad_json", "duplicate_key", "not_utf8", "two_ends", "bytes_after_eos", "data_before_start")),
    ("an end, then an error", {"type": "stream", "kind": "eos_error:unavailable", "after_end": True}),
]


@pytest.mark.parametrize("name, action", UNKNOWN_JS, ids=[n for n, _ in UNKNOWN_JS])
@pytest.mark.parametrize("kind", ["snippet", "project"])
def test_no_verdict_is_no_result_and_no_refusal(site, name, action, kind):
    """Never exit 0, never a timeout, never marked; a project tells how far it came."""
    site.cloud.faults([rule(START, action, nth=2 if kind == "snippet" else 3)])
    key = g.new_id()
    if kind == "snippet":
        answer = site.gw.run("console.log('A')", key)
        g.failed(answer, answer.code, key)
        assert answer.code in ("unavailable", "internal")
    else:
        answer = run_project(site.gw, project({}, ["echo one", "echo two"]), key)
        assert answer.status == 200, answer
        assert answer.json()["project"]["outcome"] == "PROJECT_OUTCOME_PROTOCOL_ERROR"
        assert step(answer)["out"] == b"one\n"
        if len(answer.json()["project"]["steps"]) > 1:
            assert step(answer, 1)["exit"] != 0 and not step(answer, 1)["timed_out"]
    assert "<h1>" not in answer.body.decode()
    site.wait_empty()
    assert len(starts(site)) == (2 if kind == "snippet" else 3), "a command was sent twice"


def test_what_a_lost_run_is_told(site):
    site.cloud.faults([rule(START, respond(502, HTML), nth=2)])
    assert "the backend answered 502" in site.gw.run("1").message
    site.cloud.faults([rule(START, {"type": "vanish", "after_frames": 2, "how": "unavailable_frame"}, nth=2)])
    assert "lost the sandbox" in site.gw.run("console.log(1)").message


def test_a_frame_past_its_limit_is_a_flood(site):
    site.cloud.faults([rule(START, {"type": "stream", "kind": "oversize_frame"}, nth=2)])
    got = js(site.gw.ok("console.log(1)"))
    assert got["exit"] == 153 and got["cut"] == (True, True)


@pytest.mark.parametrize("kind, exit_code", [("exit_zero_explicit", 0), ("signal_end", 137)])
def test_ends_in_other_words(site, kind, exit_code):
    site.cloud.faults([rule(START, {"type": "stream", "kind": kind}, nth=2)])
    assert js(site.gw.ok("console.log(1)"))["exit"] == exit_code


def test_a_deadline_that_only_the_daemons_clock_has_reached_is_no_timeout(site):
    site.cloud.faults([rule(START, {"type": "stream", "kind": "eos_error:deadline_exceeded"}, nth=2)])
    g.failed(site.gw.run("console.log(1)", timeoutMs=8000), "unavailable")


def test_a_caller_who_goes_takes_the_machine_along(site):
    c = site.gw.start_run("setTimeout(() => {}, 60000)", timeoutMs=60000)
    g.wait_for(lambda: len(starts(site)) == 2, "the run to begin")
    c.reset()
    site.wait_empty(5)
    assert site.made()[0]["ended_by"] == "api"


# -- artifacts --


def test_artifacts_that_are_traps(site):
    """A FIFO, a file without an end and a directory's way up: bounded, and the rest is read."""
    body = project({}, ["mkfifo fifo; echo ok > fine; dd if=/dev/zero of=large bs=1M count=9 2>/dev/null; ln -s fine link"], ["fifo", "fine", "large", "link"])
    answer = run_project(site.gw, body)
    assert artifacts(answer) == {"fine": b"ok\n"} and answer.json()["project"]["artifactsTruncated"] is True


@pytest.mark.parametrize("path, method, action", [
    (STAT, "POST", respond(401, {"code": "unauthenticated", "message": "x"})), (STAT, "POST", respond(200, HTML)), (FILES, "GET", respond(403, "")),
    (FILES, "GET", {"type": "endless_file", "path": "/home/user/project/a"})])
def test_artifacts_that_cannot_be_read_do_not_change_the_verdict(site, path, method, action):
    site.cloud.faults([rule(path, action, method=method)])
    answer = run_project(site.gw, project({}, ["echo 1 > a; exit 4"], ["a"]))
    got = answer.json()["project"]
    assert got["outcome"] == "PROJECT_OUTCOME_COMPLETED" and step(answer)["exit"] == 4
    assert artifacts(answer) == {} and got["artifactsTruncated"] is True


# -- the end of a machine --


@pytest.mark.parametrize("status, body", [(200, HTML), (202, ""), (404, HTML), (410, {"code": 410, "message": "x"})])
def test_only_the_services_own_word_says_that_a_machine_is_gone(site, status, body):
    """A page of something in between, or a status that is not promised: it is there until 204, or until E2B says 404."""
    site.cloud.faults([rule("/sandboxes/{id}", respond(status, body), method="DELETE")])
    site.gw.ok("1")
    site.wait_empty()
    assert len(site.journal(method="DELETE")) == 2 and site.made()[0]["ended_by"] == "api"


@pytest.mark.parametrize("answers", [[(401, "before"), (429, "before")], [(404, "after")]])
def test_a_delete_that_was_refused_is_sent_again(site, answers):
    """The result does not wait for it; 404 to the first is gone."""
    site.cloud.faults([rule("/sandboxes/{id}", respond(status, {"code": status, "message": "x"}), method="DELETE", phase=phase) for status, phase in answers])
    began = time.monotonic()
    assert js(site.gw.ok("console.log(1)"))["out"] == b"1\n"
    assert time.monotonic() - began < 5
    site.wait_empty()


@pytest.mark.parametrize("kind", ["500_then_404_alive", "500_dead", "204_alive"])
def test_a_delete_that_lies_or_fails(place, kind):
    """After a 5xx nothing but time proves that the machine is gone: the entry stays, and says so."""
    gw = place.gateway(PLIMSOLL_CLOUD_UNSEEN="4s")
    place.begin()
    place.cloud.faults([rule("/sandboxes/{id}", {"type": "lost_delete", "kind": kind}, method="DELETE")])
    assert js(gw.ok("console.log(1)"))["out"] == b"1\n"
    if kind != "204_alive":
        words = g.wait_for(lambda: [w for w in place.entries().values() if "unconfirmed" in w[-1]], "the doubt in the ledger")
        assert words
        g.wait_for(lambda: not place.entries(), "the ledger to be empty", EMPTY_S)
    if place.cloud.alive():
        # lost for the ledger; the service's own clocks end it: its listing, its sweep or its life
        place.cloud.clock(120_000)
        g.wait_for(lambda: not place.cloud.alive(), "the machine's end", 100)


# -- in front of other walls --


def test_a_full_backend_is_passed_over_and_a_lost_create_is_not(place):
    gw = place.gateway(SANDBOX_PROVIDER="e2b,standin2")
    place.begin()
    place.cloud.faults([rule(CREATE, respond(429, FULL))])
    answer = gw.ok("1", minimumIsolation="vm")
    assert answer.json()["sandbox"] == "standin2" and answer.header("Plimsoll-Passed-Over") == "e2b;reason=capacity"
    place.cloud.faults([rule(CREATE, {"type": "drop", "how": "rst"}, phase="after")])
    key = g.new_id()
    answer = gw.run("1", key)
    g.failed(answer, "unavailable", key)
    assert answer.header("Plimsoll-Passed-Over") is None


def test_the_older_flavour(place):
    gw = place.gateway(E2B_API_FLAVOUR="v1")
    place.begin()
    assert js(gw.ok("console.log(1)"))["out"] == b"1\n"
    assert len(place.journal(path="/sandboxes", method="POST")) == 1 and not place.journal(path=CREATE, method="POST")


def test_over_tls():
    """With the right authority, and with another one, where not even the key is sent."""
    certificates = redis_servers.Certificates()
    cert, key = certificates.server
    try:
        site = Site("--tls-cert", cert, "--tls-key", key)
        with site.stack:
            gw = site.gateway(E2B_CA_FILE=str(certificates.ca))
            site.begin()
            assert js(gw.ok("console.log(1)"))["out"] == b"1\n"
            site.end()
            before = len(site.cloud.journal())
            other = g.Gateway(site.settings(E2B_CA_FILE=str(certificates.other_ca)))
            other.exit_status = 1
            with g.served(other):
                other.spawn()
                assert "could not be reached" in other.wait_log("backend not proven", g.START_S)["reason"]
                assert other.wait_exit() == 1
            assert len(site.cloud.journal()) == before
    finally:
        certificates.remove()


def test_many_at_once(site):
    runs = [site.gw.in_background(f"setTimeout(() => console.log({i}), {i % 7 * 20})") for i in range(24)]
    assert [js(r.join())["out"] for r in runs] == [f"{i}\n".encode() for i in range(24)]
    site.wait_empty()
    assert len(site.made()) == 24
