"""A step of the run fails, or the wall's role dies in it: the verdict, the mark, the slot, and nothing left; on every wall alike."""
import os
import signal

import pytest

import gateway as g
import walls

pytestmark = pytest.mark.faults
STEPS = ("create", "stage", "execute", "collect", "delete")


@pytest.fixture(scope="module")
def own(wall):
    with wall.gateway() as gw:
        yield walls.At(gw, wall)


@pytest.fixture
def calm(own):
    """In service, nothing in flight; and so again afterwards."""
    yield own
    g.wait_for(lambda: own.run(own.language.out(b"1\n"), minimumIsolation=own.wall.tier).status == 200, "service", own.wall.recovery_s)
    own.gw.wait_inflight(0, 1)


def run_of(gw, key):
    runs = [r for r in gw.get("/v1/runs?limit=100").json()["runs"] if r["request_id"] == key]
    assert len(runs) == 1, runs
    return runs[0]


def role_of(own):
    for pid in g.descendants(own.gw.process.pid):
        if g.name_of(pid).split(" ")[0].split("/")[-1] == "plimsolld-backend-" + own.wall.name:
            return pid
    raise AssertionError("no role")


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_fails(calm, step):
    own, key, code = calm, g.new_id(), calm.language.out(b"x\n")
    with own.gw.faults.armed("backend." + step, "once fail"):
        answer = own.run(code, key)
        assert own.gw.faults.hits("backend." + step) == 1
    verdict, why = own.wall.failed_steps[step]
    run = run_of(own.gw, key)
    assert run["verdict"] == verdict
    if verdict == "answered":
        # the answer is known; what comes after it is nobody else's business
        assert answer.status == 200 and g.stdout(answer) == b"x\n"
    elif verdict == "refused":
        assert answer.reason == why and run["reason"] == why, answer
        # nothing ran, so the ID is free for anything
        assert own.ok(code, key).header("Plimsoll-Replayed") is None
    else:
        g.failed(answer, why, key)
        g.failed(own.run(code, key), why, key)


@pytest.mark.parametrize("step", STEPS)
def test_the_role_dies_in_a_step(calm, step):
    """What it was doing may have run: never marked, never made again, and its sandbox goes."""
    own, key = calm, g.new_id()
    code = own.language.out(b"x\n")
    during = own.sandboxes()
    with own.gw.faults.armed("backend." + step, "once kill"):
        answer = own.run(code, key)
    if step == "delete" and answer.status == 200:
        assert g.stdout(answer) == b"x\n" and run_of(own.gw, key)["verdict"] == "answered"
    else:
        g.failed(answer, "unavailable", key)
        assert run_of(own.gw, key)["verdict"] == "unknown"
    own.wall.wait_adopted(own.gw, during)
    g.wait_for(lambda: own.run(code, minimumIsolation=own.wall.tier).status == 200, "service", own.wall.recovery_s)
    again = own.run(code, key)
    if answer.status == 200:
        assert again.header("Plimsoll-Replayed") == "1" and again.json() == answer.json()
    else:
        g.failed(again, "unavailable", key)


def test_kill_of_the_role_while_code_runs(calm):
    own, key = calm, g.new_id()
    connection = own.start(own.language.forever, key, timeoutMs=20000)
    own.gw.wait_inflight(1)
    during = own.sandboxes()
    os.kill(role_of(own), signal.SIGKILL)
    answer = connection.read_answer()
    connection.close()
    g.failed(answer, "unavailable", key)
    own.wall.wait_adopted(own.gw, during)
