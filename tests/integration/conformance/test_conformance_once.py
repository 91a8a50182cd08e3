"""Runs at once: the cap, what is above it, and one request ID that runs once; on every wall alike."""
import pytest

import gateway as g
import walls

CAP = 2


@pytest.fixture(scope="module")
def own(wall):
    with wall.gateway({"SANDBOX_MAX_CONCURRENT": str(CAP)}) as gw:
        yield walls.At(gw, wall)


def held(own, ms=30000):
    """A run that goes on until its connection is closed."""
    return own.start(own.language.forever, g.new_id(), timeoutMs=ms)


def test_the_cap(own):
    connections = [held(own) for _ in range(CAP)]
    own.gw.wait_inflight(CAP)
    key = g.new_id()
    answer = own.run("1", key)
    g.refused(answer, "resource_exhausted", "capacity", key)
    assert int(answer.header("Retry-After")) >= 1
    connections.pop().close()
    own.gw.wait_inflight(CAP - 1, 2)
    own.ok("1", key)
    connections.pop().close()
    own.gw.wait_inflight(0, 2)


def test_a_burst_below_the_cap_is_served_whole(own):
    for _ in range(3):
        jobs = [g.Background(lambda: own.ok(own.language.random, g.new_id(), timeoutMs=20000)) for _ in range(CAP)]
        answers = [j.join() for j in jobs]
        assert len({g.stdout(a) for a in answers}) == CAP


def test_one_request_id_joins_and_replays(own):
    key = g.new_id()
    code = own.language.wait(500) + ";" + own.language.random
    before = own.gw.metric("plimsoll_runs_total")
    jobs = [own.gw.in_background(code, key, path=walls.pinned(own.wall), timeoutMs=20000) for _ in range(8)]
    answers = [j.join() for j in jobs] + [own.ok(code, key, timeoutMs=20000)]
    assert {a.status for a in answers} == {200} and len({a.body for a in answers}) == 1
    assert [a.header("Plimsoll-Replayed") for a in answers].count("1") == 8
    assert own.gw.metric("plimsoll_runs_total") == before + 1
    g.refused(own.run("2", key), "invalid_argument", "request", key)


def test_many_runs_leave_nothing(own):
    """What stands ready afterwards is what stood ready before, and no file descriptor is lost."""
    own.ok("1")
    settled = len(own.sandboxes())
    role = next(p for p in g.descendants(own.gw.process.pid) if g.name_of(p).split(" ")[0].endswith("plimsolld-backend-" + own.wall.name))

    def descriptors():
        return len(g.os.listdir(f"/proc/{role}/fd"))
    before = descriptors()
    for n in range(12):
        assert g.stdout(own.ok(own.language.out(b"%d\n" % n))) == b"%d\n" % n
    g.wait_for(lambda: len(own.sandboxes()) <= max(settled, 1) and descriptors() <= before + 2, "what was used to be gone", 10)
