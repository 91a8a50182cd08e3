"""A real Engine, a test's own, that hangs, is restarted or is killed at each step of a run, with the role or without it: no wrong verdict, and no
container left once it is back. Both walls at once, each with a run of its own."""
import contextlib
import os
import pathlib
import re
import signal
import time

import pytest

import engine as e
import gateway as g
import walls
from stalls import Stalls

IMAGES = ("plimsoll/snippet:latest",)


@pytest.fixture(scope="module")
def engine():
    with e.own_engine(*IMAGES) as it:
        yield it


@pytest.fixture(scope="module")
def gw(engine):
    settings = {**walls.settings_of(walls.LOCAL_WALLS), "SANDBOX_DOCKER_SOCKET": engine.path, "SANDBOX_DOCKER_PROJECT_IMAGE": IMAGES[0],
                "PLIMSOLL_PROOF_INTERVAL": "20m", "PLIMSOLL_EVIDENCE_MAX_AGE": "40m", "PLIMSOLL_LOG_LEVEL": "debug"}
    with g.served(g.Gateway(settings)) as it:
        yield it.start()


class Both:
    """A run behind each of the two walls."""

    def __init__(self, gw, code, timeout_ms=30000):
        self.gw, self.code, self.keys = gw, code, [g.new_id(), g.new_id()]
        self.timeout_ms = timeout_ms
        self.waiting = [self.send(n) for n in (0, 1)]

    def send(self, n):
        return g.Background(lambda: sides(self.gw)[n].run(self.code, self.keys[n], timeoutMs=self.timeout_ms))

    def wait_running(self, seconds=2):
        """Until both have been under way for a while; one that was refused for want of a sandbox is sent again."""
        def both():
            for n in (0, 1):
                if self.waiting[n].is_over and self.waiting[n].join().reason == "capacity":
                    self.waiting[n] = self.send(n)
            return self.gw.metric("plimsoll_inflight") == 2
        g.wait_for(both, "both runs to be under way", 30)
        time.sleep(seconds)

    def answers(self, seconds=60):
        return [w.join(seconds) for w in self.waiting]

    def expect_kept(self, answers):
        """What was said once is said again; a run without a verdict is never made again."""
        for at, key, first in zip(sides(self.gw), self.keys, answers):
            if first.status == 200 or first.reason is None:
                again = at.run(self.code, key, timeoutMs=self.timeout_ms)
                assert (again.status, again.code if again.status != 200 else again.json()) == (first.status, first.code if first.status != 200 else first.json())


def sides(gw):
    return [walls.At(gw, w) for w in walls.LOCAL_WALLS]


@pytest.fixture
def own(engine, gw):
    """In service; and afterwards again, with nothing left of what was."""
    expect_service(gw)
    yield gw
    if engine.pid is None:
        engine.start_engine()
    expect_service(gw)
    gw.wait_inflight(0, 2)
    live = e.live_instances()
    g.wait_for(lambda: not [c for c in engine.containers() if c["Labels"]["sbx.instance"] not in live], "the dead's containers to be gone", 30)
    g.wait_for(lambda: not [c for c in engine.containers() if c["State"] in ("exited", "dead")], "ended containers to be gone", 30)
    # An engine that was killed forgets what it was just starting, and leaves that and shims behind (spec 8 (9)): sandboxes that nobody was ever
    # given. Of those that had a run, nothing goes on.
    g.wait_for(lambda: not still_running(engine, gw), f"what ran to end: {still_running(engine, gw)}", 15)


def still_running(engine, gw):
    """Processes of sandboxes that were given to a run, and that the engine no longer has."""
    known = {c["Id"] for c in engine.containers(None)}
    given = {line["container"] for line in gw.log_lines("sandbox claimed")}
    assert given, "no sandbox was ever given"
    found = {}
    for pid in e.members(engine.group):
        with contextlib.suppress(OSError):
            m = re.search(r"[0-9a-f]{64}", pathlib.Path(f"/proc/{pid}/cgroup").read_text())
            if m and m.group() in given - known and g.is_alive(pid):
                found[pid] = (m.group(), g.name_of(pid))
    return found


def expect_service(gw, seconds=90):
    for at in sides(gw):
        g.wait_for(lambda: at.run("1", timeoutMs=10000, minimumIsolation=at.wall.tier).status == 200, f"{at.wall} to serve", seconds)


def test_an_engine_that_hangs(engine, own):
    """Runs under way end at their deadline with what came; new ones are refused in time; nothing is killed that need not be."""
    code = "process.stdout.write('A\\n'); setTimeout(() => {}, 60000)"
    with Stalls() as stalls:
        under_way = Both(own, code, 5000)
        began = time.monotonic()
        under_way.wait_running()
        with engine.stopped():
            for at in sides(own):
                key, asked = g.new_id(), time.monotonic()
                reply = at.run("console.log('ran')", key, timeoutMs=1500)
                assert reply.status != 200 and reply.reason in ("capacity", "isolation"), reply
                assert time.monotonic() - asked <= 1.5 + 0.4 + 3 * stalls.worst
            answers = under_way.answers()
            took = time.monotonic() - began
    assert took <= 5.4 + 3 * stalls.worst + 2, took
    for answer in answers:
        # given before it hung: timed out with what came; not given: marked
        if answer.status == 200:
            assert answer.json()["javascript"]["timedOut"] is True and g.stdout(answer) in (b"A\n", b"")
        else:
            assert answer.reason == "capacity", answer
    under_way.expect_kept(answers)


def test_an_engine_that_is_restarted_under_a_run(engine, own):
    """U14: the stream ends without a verdict."""
    under_way = Both(own, "process.stdout.write('A\\n'); setTimeout(() => {}, 60000)")
    under_way.wait_running()
    engine.restart_engine()
    answers = under_way.answers()
    for answer, key in zip(answers, under_way.keys):
        g.failed(answer, "internal", key)
    under_way.expect_kept(answers)


def test_an_engine_that_is_killed_under_a_run(engine, own):
    under_way = Both(own, "process.stdout.write('A\\n'); setTimeout(() => {}, 60000)")
    under_way.wait_running()
    engine.kill_engine()
    answers = under_way.answers()
    for answer, key in zip(answers, under_way.keys):
        g.failed(answer, "internal", key)
    for at in sides(own):
        reply = at.run("1", timeoutMs=1500)
        assert reply.reason in ("capacity", "isolation"), reply
    engine.start_engine()
    under_way.expect_kept(answers)


@pytest.mark.faults
@pytest.mark.parametrize("step", ["create", "stage", "execute", "collect", "delete"])
def test_an_engine_that_is_killed_in_a_step(engine, own, step):
    """The run waits in the step while its engine dies under it."""
    point = "backend." + step
    own.faults.arm(point, "block")
    under_way = Both(own, "console.log('A')")
    own.faults.wait(point, 2, 30)
    engine.kill_engine()
    own.faults.disarm(point)
    answers = under_way.answers()
    for answer, key in zip(answers, under_way.keys):
        if answer.status == 200:
            # the whole result had come before
            assert step in ("execute", "collect", "delete") and g.stdout(answer) == b"A\n", (step, answer)
        elif answer.reason is not None:
            # marked: only where no job had been given
            assert step in ("create", "stage") and answer.reason in ("capacity", "isolation"), (step, answer)
        else:
            g.failed(answer, "internal", key)
    engine.start_engine()
    under_way.expect_kept(answers)


def test_the_roles_and_the_engine_die_together(engine, own):
    under_way = Both(own, "process.stdout.write('A\\n'); setTimeout(() => {}, 60000)")
    under_way.wait_running(1)
    for pid in g.descendants(own.process.pid):
        if g.name_of(pid).split(" ")[0].split("/")[-1] in ("plimsolld-backend-docker", "plimsolld-backend-gvisor"):
            os.kill(pid, signal.SIGKILL)
    engine.kill_engine()
    for answer, key in zip(under_way.answers(), under_way.keys):
        g.failed(answer, "unavailable", key)
    engine.start_engine()
