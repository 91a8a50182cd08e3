"""Deadlines and cancels, on every wall alike: what was printed is kept, the sandbox is gone, a verdict that was known stands."""
import time

import pytest

import gateway as g
from stalls import Stalls

def expect_timed_out(answer, out=None):
    got = answer.json()["javascript"]
    assert got["timedOut"] is True and got["exitCode"] == 124
    assert not got.get("stdoutTruncated", False)
    if out is not None:
        assert g.stdout(answer) == out


def test_a_deadline_answers_in_time_with_what_was_printed(at):
    """U05, U09."""
    code = at.language.out(b"A\n") + ";" + at.language.out(b"B\n") + ";" + at.language.forever
    with Stalls() as stalls:
        before = time.monotonic()
        at.ok("1")
        began = time.monotonic()
        answer = at.ok(code, timeoutMs=2000)
        took = time.monotonic() - began
    expect_timed_out(answer, b"A\nB\n")
    way = began - before if at.wall.clock_starts_with_code else 0
    assert 2.0 <= took <= 2.0 + at.wall.late_s + way + 3 * stalls.worst, (took, way, stalls.worst)


def test_what_ignores_every_signal_ends_all_the_same(at):
    began = time.monotonic()
    expect_timed_out(at.ok(at.language.stubborn, timeoutMs=1000))
    assert time.monotonic() - began < 1 + at.wall.late_s + 1


def test_a_quiet_run_is_not_cut_off(at):
    """U10: silence is no sign of anything."""
    code = at.language.wait(3000) + ";" + at.language.out(b"done\n")
    answer = at.ok(code, timeoutMs=20000)
    assert g.stdout(answer) == b"done\n" and "timedOut" not in answer.json()["javascript"]


def test_a_run_that_ends_before_its_deadline_keeps_its_verdict(at):
    answer = at.ok(at.language.out(b"x\n"), timeoutMs=2000)
    began = time.monotonic()
    assert "timedOut" not in answer.json()["javascript"]
    assert time.monotonic() - began < 1


def test_a_timeout_above_the_ceiling_is_the_ceiling(at):
    """Nothing waits for it here; the run ends by itself, and the request is served as any other."""
    assert g.stdout(at.ok(at.language.out(b"x\n"), timeoutMs=300001)) == b"x\n"


def test_after_a_deadline_the_sandbox_is_gone(at):
    waiting = g.Background(lambda: at.ok(at.language.forever, timeoutMs=int(1000 * at.wall.starts_s) + 800))
    at.gw.wait_inflight(1)
    time.sleep(at.wall.starts_s)
    during = at.sandboxes()
    expect_timed_out(waiting.join())
    at.expect_gone(during)
    at.gw.wait_inflight(0, 1)


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_caller_that_leaves_ends_the_run(at, how):
    """U24: within a second or so the sandbox is gone and the slot is free."""
    key = g.new_id()
    connection = at.start(at.language.forever, key, timeoutMs=30000)
    at.gw.wait_inflight(1)
    time.sleep(at.wall.starts_s)
    during = at.sandboxes()
    began = time.monotonic()
    getattr(connection, how)()
    at.gw.wait_inflight(0, 1.5)
    at.expect_gone(during)
    assert time.monotonic() - began < 1 + at.wall.gone_s
    runs = [r for r in at.gw.get("/v1/runs?limit=100").json()["runs"] if r["request_id"] == key]
    assert len(runs) == 1 and runs[0]["canceled"] is True


def test_what_is_left_running_ends_with_the_run(at):
    """Nothing of it goes on. Where the wall sees only when all output is over, its run lasts till then, and no longer than its time."""
    if not at.language.has_signals:
        assert g.stdout(at.ok("console.log(typeof require, typeof process)")) == b"undefined undefined\n"
        return
    code = ("const c = require('child_process').spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], {detached: true,"
            " stdio: ['ignore', 'inherit', 'inherit']}); c.unref(); process.stdout.write('started\\n');")
    began = time.monotonic()
    if at.wall.waits_for_holders:
        expect_timed_out(at.ok(code, timeoutMs=2000), b"" if at.wall.holders_cost_output else b"started\n")
        assert time.monotonic() - began < 2 + at.wall.late_s + 2
    else:
        answer = at.ok(code, timeoutMs=20000)
        assert g.stdout(answer) == b"started\n" and time.monotonic() - began < 5
