"""The ledger of sandboxes, with the wall that bills (loadtest/standin/paid.c): its provider is a folder, so what a dead process left is seen
from outside. No leak and no entry, whatever dies where, whatever the provider does; and what is charged for it."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

import gateway as g
import redis_servers

pytestmark = pytest.mark.faults

LEASE_S = 15            # records/ledger.h
ROUND_S = 5             # backends/role_ledger.h
ADOPTED_S = LEASE_S + 2 * ROUND_S + 20
NAME = "default"


class Place:
    """A Redis of the installation, and the provider's account."""

    def __init__(self):
        self.redis = redis_servers.Server().start()
        # whom the role becomes must get there
        self.account = pathlib.Path(tempfile.mkdtemp(prefix="plpd-", dir=g.HOMES))
        self.account.chmod(0o777)

    def stop(self):
        self.redis.stop()
        shutil.rmtree(self.account, ignore_errors=True)

    def settings(self, **more):
        return {"SANDBOX_PROVIDER": "standinpaid", "PLIMSOLL_STANDINPAID_DIR": str(self.account), "PLIMSOLL_STANDINPAID": "unseen=1500,attempt=300",
                "PLIMSOLL_REDIS_URL": f"redis://127.0.0.1:{self.redis.port}", "SANDBOX_MAX_CONCURRENT": "16", "PLIMSOLL_DRAIN": "2s", **more}

    def key(self, name):
        return f"plimsoll:2:{{{NAME}}}:{name}"

    def sandboxes(self):
        return sorted(p.name for p in self.account.iterdir() if re.fullmatch("[0-9a-f]{32}", p.name))

    def entries(self, backend="standinpaid"):
        flat = self.redis.ask("HGETALL", self.key("ledger:" + backend))
        return {k.decode(): v.decode().split(" ") for k, v in zip(flat[::2], flat[1::2])}

    def instances(self):
        return [k for k in self.redis.ask("KEYS", self.key("instance:*"))]

    def is_empty(self):
        return not self.sandboxes() and not self.entries()

    def wait_empty(self, seconds=ADOPTED_S):
        g.wait_for(self.is_empty, f"account and ledger to be empty: {self.sandboxes()} {self.entries()}", seconds)


@pytest.fixture()
def place():
    it = Place()
    try:
        yield it
    finally:
        it.stop()


@pytest.fixture()
def copies(place):
    with contextlib.ExitStack() as stack:
        def start(**more):
            return stack.enter_context(g.served(g.Gateway(place.settings(**more)).start()))
        yield start


def lines(*acts):
    return "".join(f"standin: {act}\n" for act in acts)


def role(gw, name="standinpaid"):
    return gw.child("plimsolld-backend-" + name)


def is_ready(gw):
    return gw.metrics().get('plimsoll_backend_ready{backend="standinpaid"}', None) == 1 or gw.get("/readyz").status == 200


# -- the ordinary way --


def test_an_entry_stands_before_the_create_and_goes_with_the_sandbox(place, copies):
    gw = copies()
    hold, barrier = gw.barrier()
    with gw.faults.armed("paid.create", "block"):
        run_id = g.new_id()
        running = gw.in_background(hold, request_id=run_id)
        gw.faults.wait("paid.create")
        # asked for, and nothing at the provider yet
        (stamp, words), = place.entries().items()
        assert words[1] == "asked" and not place.sandboxes() and words[11] == "-"
    g.wait_for(lambda: place.entries()[stamp][1] == "named", "the provider's ID to be written")
    words = place.entries()[stamp]
    assert place.sandboxes() == [stamp] and words[11] == "sb-" + stamp[:12]
    assert words[7] == "1" and re.fullmatch("[0-9a-f]{32}", words[8]) and words[10] == "static"
    assert int(words[6]) - int(words[5]) >= 60_000
    gw.wait_metric('plimsoll_ledger_entries{backend="standinpaid"}', 1)
    installation = (place.account / stamp).read_text().split()[0]
    assert place.redis.ask("GET", place.key("stamp")).decode() == installation
    barrier.unlink()
    assert running.join().status == 200
    place.wait_empty(g.SETTLE_S)
    gw.wait_metric('plimsoll_ledger_entries{backend="standinpaid"}', 0)
    assert len(place.instances()) == 1


def test_the_lease_ends_with_the_role(place):
    with g.served(g.Gateway(place.settings()).start()) as gw:
        gw.ok(lines("answer"))
        assert len(place.instances()) == 1
    assert place.is_empty() and not place.instances()


@pytest.mark.parametrize("acts", [
    ("paid create fail",), ("paid create lost",), ("paid create late 1000",), ("paid delete fail 2",), ("paid delete lie 2",),
    ("paid delete hang 2",), ("paid delete rude",), ("refuse capacity",), ("fail internal",), ("hold 200", "paid delete fail 1"),
], ids=lambda a: a[0].replace(" ", "-"))
def test_no_leak_whatever_the_provider_does(place, copies, acts):
    gw = copies()
    answers = [gw.run(lines(*acts)) for _ in range(3)]
    if acts[0] == "paid create fail":
        assert all(a.reason == "capacity" for a in answers)
    elif acts[0].startswith("paid create"):
        for answer in answers:
            g.failed(answer, "unavailable")
    place.wait_empty()
    if acts[0].startswith("paid delete fail 2"):
        gw.wait_metric('plimsoll_sandbox_removals_failed_total{backend="standinpaid"}', 6)


def test_a_removal_that_failed_says_why_and_hides_credentials(place, copies):
    gw = copies()
    gw.ok(lines("paid delete fail 2"))
    words = g.wait_for(lambda: [w for w in place.entries().values() if w[1] == "condemned"], "a failed removal to be written")[0]
    assert words[12] != "0" and words[13] != "0" and words[16].startswith("HTTP%20500")
    assert "0123456789abcdef0123" not in words[16] and "..." in words[16]
    place.wait_empty()
    # waited for 1 s to 2 s after each of two tries
    gw.wait_metric('plimsoll_unreleased_seconds_total{backend="standinpaid"}', 1)


# -- what dies --

POINTS = ["ledger.ask", "ledger.asked", "paid.create", "paid.created", "ledger.named", "backend.execute", "backend.collect", "ledger.release",
          "paid.delete", "paid.deleted", "ledger.gone"]


def test_no_leak_when_the_role_is_killed_at_each_point(place, copies):
    gw = copies()
    for point in POINTS:
        gw.faults.arm(point, "once kill")
        for _ in range(600):
            gw.run(lines("answer"))
            if gw.faults.hits(point):
                break
            time.sleep(0.05)
        gw.faults.wait(point)
        g.wait_for(lambda: gw.run(lines("answer")).status == 200, f"a role after {point}", 30)
    assert len(gw.log_lines("process died")) == len(POINTS)
    place.wait_empty()
    # nothing was run twice, and the last role is whole
    gw.ok(lines("answer"))
    place.wait_empty(g.SETTLE_S)


def test_a_late_sandbox_of_a_dead_role_is_found_by_its_stamp(place, copies):
    """The role dies with the create unanswered; the sandbox shows up after the adopter first looked."""
    gw = copies(PLIMSOLL_STANDINPAID="unseen=40000,attempt=300")
    gw.faults.arm("ledger.release", "once kill")
    gw.run(lines(f"paid create late {(LEASE_S + 8) * 1000}"))
    gw.faults.wait("ledger.release")
    assert len(place.sandboxes()) == 1
    place.wait_empty(ADOPTED_S + 20)


def test_a_copy_adopts_what_a_killed_copy_left(place, copies):
    left = copies()
    with contextlib.ExitStack() as stack:
        dead = g.Gateway(place.settings(), clean_exit=False).start()
        stack.callback(dead.remove)
        stack.callback(dead.kill_rest)
        hold, _ = dead.barrier()
        runs = [dead.start_run(hold) for _ in range(4)]
        g.wait_for(lambda: len(place.sandboxes()) == 4, "four sandboxes")
        below = g.descendants(dead.process.pid)
        os.killpg(dead.process.pid, signal.SIGKILL)
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for c in runs:
            c.close()
        began = time.monotonic()
        mine, barrier = left.barrier("mine")
        own = left.in_background(mine, timeoutMs=100000)
        g.wait_for(lambda: len(place.sandboxes()) == 5, "the other copy's own")
        g.wait_for(lambda: len(place.sandboxes()) == 1, "the dead copy's to be removed", ADOPTED_S)
        assert time.monotonic() - began > LEASE_S - ROUND_S - 1     # not before its lease could have ended
        left.wait_metric('plimsoll_sandboxes_adopted_total{backend="standinpaid"}', 4)
        barrier.unlink()
        assert own.join().status == 200
    place.wait_empty(g.SETTLE_S)


def test_a_role_that_could_not_be_heard_is_not_taken_for_dead_while_it_beats(place, copies):
    a, b = copies(), copies()
    hold, barrier = a.barrier()
    running = a.in_background(hold, timeoutMs=60000)
    g.wait_for(place.sandboxes, "a sandbox")
    time.sleep(LEASE_S + ROUND_S + 2)       # past a lease: only what beats is still there
    assert len(place.sandboxes()) == 1 and b.metric('plimsoll_sandboxes_adopted_total{backend="standinpaid"}') == 0
    barrier.unlink()
    assert running.join().status == 200


# -- what nobody wrote --


def test_what_carries_our_stamp_and_stands_in_no_ledger_is_taken_in(place, copies):
    installation = "5" * 32
    place.redis.ask("SET", place.key("stamp"), installation)
    unknown, foreign = "a" * 32, "b" * 32
    now = int(time.time() * 1000)
    for stamp, whose in ((unknown, installation), (foreign, "6" * 32)):
        (place.account / stamp).write_text(f"{whose} sb-{stamp[:12]} {now} 0 - 0\n")
        (place.account / stamp).chmod(0o666)
    gw = copies()
    g.wait_for(lambda: place.sandboxes() == [foreign], "the unknown one to be removed", 20)
    g.wait_for(lambda: not place.entries(), "its entry to go")
    assert gw.log_lines("sandbox in no ledger")
    gw.ok(lines("answer"))
    assert (place.account / foreign).exists()


def test_a_corrupt_entry_is_named_and_left(place, copies):
    corrupt = {"c" * 32: "1 named what", "not-a-stamp": "x", "d" * 32: "2 asked " + "0 " * 14 + "-"}
    for stamp, value in corrupt.items():
        place.redis.ask("HSET", place.key("ledger:standinpaid"), stamp, value)
    gw = copies()
    gw.ok(lines("answer"))
    g.wait_for(lambda: len(gw.log_lines("ledger_entry_corrupt")) >= 3, "the log to name them", 20)
    g.wait_for(lambda: set(place.entries()) == set(corrupt), "the run's own entry to go")
    listed = command(place)
    assert "known to be gone" not in listed.stdout and "3 values in the ledger cannot be read" in listed.stderr
    place.redis.ask("DEL", place.key("ledger:standinpaid"))
    gw.restart()
    place.redis.ask("SET", place.key("ledger:standinpaid"), "no hash")
    refused = gw.run(lines("answer"))
    assert refused.reason == "capacity" and not place.sandboxes()
    place.redis.ask("DEL", place.key("ledger:standinpaid"))
    gw.ok(lines("answer"))
    place.wait_empty(g.SETTLE_S)


def test_only_the_roles_that_keep_a_ledger_are_given_redis(place, copies):
    gw = copies(SANDBOX_PROVIDER="standinpaid,wasm", PLIMSOLL_INSTALLATION=NAME)
    for name, knows in (("standinpaid", True), ("wasm", False)):
        given = pathlib.Path(f"/proc/{role(gw, name)}/environ").read_bytes()
        # a secret's value is wiped once it is read; its name stays
        assert (b"PLIMSOLL_REDIS_URL" in given) == knows and (b"PLIMSOLL_INSTALLATION" in given) == knows
        assert str(place.redis.port).encode() not in given
    assert not gw.log_lines("fatal")


# -- Redis trouble --


def test_what_redis_lost_is_written_again(place, copies):
    gw = copies()
    hold, barrier = gw.barrier()
    running = gw.in_background(hold, timeoutMs=60000)
    stamp, = g.wait_for(place.sandboxes, "a sandbox")
    g.wait_for(lambda: place.entries()[stamp][1] == "named", "its ID")
    identity, before = place.redis.ask("GET", place.key("stamp")), place.entries()[stamp]
    place.redis.ask("FLUSHALL")
    g.wait_for(place.entries, "the entry again", 2 * ROUND_S + 5)
    assert place.entries()[stamp][11] == before[11] and abs(int(place.entries()[stamp][5]) - int(before[5])) < 1000
    g.wait_for(lambda: place.redis.ask("GET", place.key("stamp")) == identity, "the identity again", 2 * ROUND_S)
    barrier.unlink()
    running.join()
    place.wait_empty(20)


def test_no_create_without_the_ledger(place, copies):
    gw = copies(PLIMSOLL_REDIS_DOWN="serve")
    gw.ok(lines("answer"))
    place.wait_empty(g.SETTLE_S)
    place.redis.signal(signal.SIGSTOP)
    try:
        with contextlib.suppress(AssertionError):
            g.wait_for(lambda: gw.get("/readyz").status == 503, "the gateway to notice", 5)
        answer = gw.run(lines("note never", "answer"))
        assert answer.reason == "capacity", answer
        assert not place.sandboxes()
    finally:
        place.redis.signal(signal.SIGCONT)
    g.wait_for(lambda: gw.run(lines("answer")).status == 200, "runs again", 20)
    place.wait_empty(20)


def test_removals_wait_for_redis(place, copies):
    """The sandbox goes while Redis is away; its entry follows."""
    gw = copies()
    with gw.faults.armed("paid.delete", "block"):
        gw.ok(lines("answer"))
        gw.faults.wait("paid.delete")
        place.redis.signal(signal.SIGSTOP)
    try:
        g.wait_for(lambda: not place.sandboxes(), "the sandbox to go")
        time.sleep(1.5)
    finally:
        place.redis.signal(signal.SIGCONT)
    place.wait_empty(20)


# -- what it costs --

MICRO_A_SECOND = 1000


@pytest.fixture()
def priced(place, copies, tmp_path):
    """A copy with a price of a thousandth a second; what the caller's day has come to."""
    prices = place.account.parent / (place.account.name + "-prices.json")
    prices.write_text(json.dumps({"version": 1, "date": time.strftime("%Y-%m-%d", time.gmtime()), "currency": "USD",
                                  "backends": {"standinpaid": {"per_second": "0.001"}}}))
    prices.chmod(0o644)
    try:
        yield lambda **more: copies(PLIMSOLL_PRICES_FILE=str(prices), **more)
    finally:
        prices.unlink()


def usage(gw):
    answer = gw.get("/v1/usage").json()
    return answer["paid_ms"]["spent"], answer["paid_ms"]["held"], round(float(answer["cost"]["spent"]) * 1e6)


def expect_cost(paid_ms, cost):
    """Each charge is rounded up by itself."""
    assert paid_ms * MICRO_A_SECOND / 1000 - 2 <= cost <= paid_ms * MICRO_A_SECOND / 1000 + 4


def test_an_answered_run_pays_for_the_time_its_sandbox_stayed(place, priced):
    gw = priced()
    began = time.monotonic()
    answer = gw.ok(lines("paid delete fail 2", "hold 300"))
    told_ms = round(float(answer.header("Plimsoll-Billable-Seconds")) * 1000)
    answered_ms = (time.monotonic() - began) * 1000
    assert 300 <= told_ms <= answered_ms
    paid, held, cost = usage(gw)
    assert paid == told_ms and held == 0
    place.wait_empty()
    gone_ms = (time.monotonic() - began) * 1000
    paid, held, cost = usage(gw)
    # two pauses of 500 ms at least lie between
    assert told_ms + 1400 <= paid <= gone_ms and held == 0
    expect_cost(paid, cost)
    run = gw.get("/v1/runs/" + answer.header("Plimsoll-Run-Id")).json()
    assert run["paid_ms"] == paid


def test_a_run_without_a_verdict_is_charged_from_creation_to_confirmed_absence(place, priced):
    gw = priced()
    with gw.faults.armed("paid.delete", "block"):
        began = time.monotonic()
        g.failed(gw.run(lines("hold 200", "fail internal")), "internal")
        gw.faults.wait("paid.delete")
        paid, held, _ = usage(gw)
        assert paid == 0 and held >= 10_000     # its worst case
        time.sleep(1)
    place.wait_empty()
    took = (time.monotonic() - began) * 1000
    paid, held, cost = usage(gw)
    assert 1200 <= paid <= took and held == 0, (paid, held, took)
    expect_cost(paid, cost)


def test_a_run_whose_role_died_is_charged_what_its_sandbox_came_to(place, priced):
    gw = priced()
    began = time.monotonic()
    gw.faults.arm("backend.execute", "once kill")
    g.failed(gw.run(lines("answer")), "unavailable")
    paid, held, _ = usage(gw)
    assert paid == 0 and held > 0
    place.wait_empty()
    took = (time.monotonic() - began) * 1000
    paid, held, cost = usage(gw)
    # its lease had to end first
    assert LEASE_S * 1000 - ROUND_S * 1000 <= paid <= took and held == 0, (paid, held, took)
    expect_cost(paid, cost)


def test_a_refused_run_that_made_no_sandbox_costs_nothing(place, priced):
    gw = priced()
    assert gw.run(lines("paid create fail")).reason == "capacity"
    place.wait_empty(g.SETTLE_S)
    assert usage(gw) == (0, 0, 0)


# -- the command --


def command(place, *arguments, environment=None, status=0):
    env = {"PATH": os.environ["PATH"], "PLIMSOLL_REDIS_URL": f"redis://127.0.0.1:{place.redis.port}"}
    done = subprocess.run([str(g.COMMAND), "ledger", *arguments], env=env if environment is None else environment, capture_output=True, text=True,
                          timeout=g.ANSWER_S)
    assert done.returncode == status, done
    return done


def test_the_command_lists(place, copies):
    gw = copies()
    assert "nothing" in command(place).stdout
    hold, barrier = gw.barrier()
    running = gw.in_background(hold)
    stamp, = g.wait_for(place.sandboxes, "a sandbox")
    g.wait_for(lambda: place.entries()[stamp][1] == "named", "its ID")
    out = command(place).stdout
    assert stamp in out and "named" in out and "standinpaid" in out and "static" in out
    listed = [json.loads(line) for line in command(place, "list", "--json").stdout.splitlines()]
    assert [e["stamp"] for e in listed] == [stamp]
    entry = listed[0]
    assert entry["backend"] == "standinpaid" and entry["state"] == "named" and entry["billed"] is True and entry["instance_alive"] is True
    assert entry["sandbox"] == "sb-" + stamp[:12] and entry["caller"] == "static" and entry["deadline_unix_ms"] > entry["created_unix_ms"]
    assert "nothing" in command(place, "--backend", "docker").stdout
    barrier.unlink()
    running.join()


def test_the_command_moves_no_cursor(place):
    """What a provider said, or somebody wrote into Redis, went to the terminal as it was when it was reaped."""
    now = int(time.time() * 1000)
    entry = f"1 condemned {'0' * 16} %1B%5B31mhost place {now - 1000} {now - 1000} 1 - - - %1B%5D0%3Bx%07 1 {now} 0 0 %1B%5B2Jgone"
    place.redis.ask("HSET", place.key("ledger:docker"), "c" * 32, entry)
    for arguments, status in (([], 0), (["list", "--json"], 0), (["reap", "--stamp", "c" * 32, "--wait", "6"], 1)):
        done = command(place, *arguments, status=status)
        assert "\x1b" not in done.stdout + done.stderr and "\x07" not in done.stdout + done.stderr
        assert "c" * 32 in done.stdout


def test_the_command_reaps(place, copies):
    gw = copies()
    hold, _ = gw.barrier()
    running = gw.in_background(hold)
    stamp, = g.wait_for(place.sandboxes, "a sandbox")
    out = command(place, "reap", "--stamp", stamp)
    assert stamp in out.stdout
    place.wait_empty(g.SETTLE_S)
    (gw.faults.folder / "barrier").unlink()
    running.join()
    command(place, "reap", "--stamp", "e" * 32, status=1)


def test_the_command_reaps_what_has_expired(place, copies):
    """A sandbox past its deadline whose role is alive and holds it: only an operator's word ends it."""
    gw = copies()
    hold, barrier = gw.barrier()
    running = [gw.in_background(hold) for _ in range(2)]
    old, new = g.wait_for(lambda: len(place.sandboxes()) == 2 and place.sandboxes(), "two sandboxes")
    g.wait_for(lambda: all(w[1] == "named" for w in place.entries().values()), "their IDs")
    words = place.entries()[old]
    words[5], words[6] = "1000", "2000"
    place.redis.ask("HSET", place.key("ledger:standinpaid"), old, " ".join(words))
    command(place, "reap", "--all-expired")
    assert place.sandboxes() == [new]
    barrier.unlink()
    for r in running:
        r.join()


def test_the_command_says_when_it_cannot(place):
    place.redis.stop()
    assert "Redis" in command(place, status=1).stderr


def test_the_command_finds_the_private_redis(place):
    settings = {k: v for k, v in place.settings(PLIMSOLL_INSTALLATION="left-1").items() if k != "PLIMSOLL_REDIS_URL"}
    with g.served(g.Gateway(settings).start()) as gw:
        hold, barrier = gw.barrier()
        running = gw.in_background(hold)
        g.wait_for(place.sandboxes, "a sandbox")
        env = {"PATH": os.environ["PATH"], "PLIMSOLL_STATE_DIR": str(gw.state), "PLIMSOLL_INSTALLATION": "left-1"}
        assert "standinpaid" in command(place, environment=env).stdout
        assert "nothing" in command(place, environment=dict(env, PLIMSOLL_INSTALLATION="right")).stdout
        barrier.unlink()
        running.join()
