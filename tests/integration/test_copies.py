"""Three copies of the gateway on one Redis act as one: a request ID runs once whichever copy it is sent to, a limit is one number, and a copy that
is killed leaves nothing behind once its leases have run out."""
import collections
import pathlib
import random
import secrets
import sys
import threading
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "chaos"))

import gateway as g  # noqa: E402
import rig as r  # noqa: E402
import trial as t  # noqa: E402
from gateway import RUN, javascript, new_id, wait_for  # noqa: E402


@pytest.fixture
def rig(request):
    rigs = []

    def make(copies=3, **settings):
        rigs.append(r.Rig(copies, **settings))
        rigs[-1].orphans = set()
        return rigs[-1]
    yield make
    for one in rigs:
        try:
            one.end()
        finally:
            one.discard()


def notes_of(rig):
    return collections.Counter(line.split()[1] for line in rig.lines() if line.startswith("note "))


def all_at_once(jobs, workers):
    """Runs the jobs from so many threads; the results in order."""
    results, at, lock = [None] * len(jobs), iter(range(len(jobs))), threading.Lock()

    def work():
        while True:
            with lock:
                i = next(at, None)
            if i is None:
                return
            results[i] = jobs[i]()
    backgrounds = [g.Background(work) for _ in range(workers)]
    for b in backgrounds:
        b.join(2 * g.ANSWER_S)
    return results


def patient(gw, sent, request_id):
    """Sent again as long as nothing ran for want of room: what any client does."""
    end = time.monotonic() + g.ANSWER_S
    while True:
        answer = gw.post(RUN, sent, request_id)
        if answer.status == 200 or answer.reason != "capacity" or time.monotonic() > end:
            return answer
        time.sleep(0.05)


def test_500_requests_with_50_keys_at_random_copies_run_50_times(rig):
    three = rig()
    rng = random.Random(4)
    keys = [new_id() for _ in range(50)]
    sent = {k: javascript(f"standin: note {k}\nstandin: hold {rng.choice([0, 0, 10, 60])}", timeoutMs=20000) for k in keys}
    order = keys * 10
    rng.shuffle(order)
    jobs = [lambda k=k, c=rng.choice(three.copies): (k, patient(c.gw, sent[k], k)) for k in order]
    bodies = collections.defaultdict(set)
    for key, answer in all_at_once(jobs, 24):
        assert answer.status == 200, (key, answer)
        bodies[key].add(answer.body)
        g.check_record(sent[key], answer)
    assert all(len(b) == 1 for b in bodies.values()) and len(bodies) == 50
    notes = notes_of(three)
    assert {k: notes[k] for k in keys} == {k: 1 for k in keys}
    # each is listed once, by whichever copy is asked, and is one leaf of the log
    for c in three.copies:
        runs = c.gw.get("/v1/runs?limit=100").json()["runs"]
        assert len(runs) == 50 and {x["verdict"] for x in runs} == {"answered"}
    assert t.check_rig(three) == []


@pytest.mark.parametrize("setting", ["SANDBOX_PER_KEY_CONCURRENT", "PLIMSOLL_TOTAL_CONCURRENT"])
def test_a_shared_limit_is_never_exceeded(rig, setting):
    """Each run notes its begin and its end in the order they happen, in one file for all copies: never more than N are between."""
    limit = 5
    three = rig(PLIMSOLL_STANDIN1=None, **{"SANDBOX_PER_KEY_CONCURRENT": "0", setting: str(limit)})
    shared = three.home / "notes"
    for c in three.copies:
        c.gw.stop()
        c.dispatches = shared
        c.gw.settings["PLIMSOLL_STANDIN_LOG"] = str(shared)
    shared.touch()
    shared.chmod(0o666)
    three.home.chmod(0o755)
    for c in three.copies:
        c.start()
    three.restore()
    rng = random.Random(5)

    def job(i):
        sent = javascript(f"standin: note begin-{i}\nstandin: hold {rng.choice([5, 20, 40])}\nstandin: note end-{i}", timeoutMs=20000)
        copy = rng.choice(three.copies)
        return patient(copy.gw, sent, new_id() if i % 2 else None)
    answers = all_at_once([lambda i=i: job(i) for i in range(150)], 20)
    assert all(a.status == 200 for a in answers), [a for a in answers if a.status != 200][:3]
    now = most = 0
    for line in shared.read_text().splitlines():
        if line.startswith("note begin-"):
            now += 1
        elif line.startswith("note end-"):
            now -= 1
        most = max(most, now)
    assert now == 0 and most <= limit
    assert most == limit, "the limit was never reached, so nothing was shown"


def test_a_full_limit_refuses_at_every_copy_and_frees_at_every_copy(rig):
    three = rig(SANDBOX_PER_KEY_CONCURRENT="3")
    barrier = three.home / "barrier"
    barrier.touch()
    barrier.chmod(0o666)
    three.home.chmod(0o755)
    held = [g.Background(lambda c=c: c.gw.run(f"standin: hold until {barrier} is gone", timeoutMs=60000)) for c in three.copies]
    wait_for(lambda: len(three.lines()) == 3, "three runs, one at each copy")
    for c in three.copies:
        answer = c.gw.run("standin: answer")
        g.refused(answer, "resource_exhausted", "capacity")
    barrier.unlink()
    assert [h.join().status for h in held] == [200, 200, 200]
    for c in three.copies:
        assert c.gw.run("standin: answer").status == 200


def test_a_shared_rate_counts_starts_at_every_copy(rig):
    three = rig(SANDBOX_RATE_PER_MIN="1", SANDBOX_RATE_BURST="7")
    jobs = [lambda c=c: c.gw.run("standin: answer") for c in three.copies for _ in range(10)]
    answers = all_at_once(jobs, 15)
    assert collections.Counter(a.status for a in answers)[200] == 7
    assert all(a.reason == "capacity" for a in answers if a.status != 200)
    assert len(three.lines()) == 7


STATES = ["run.claim", "run.admitted", "run.dispatch", "executing", "run.result", "run.settle", "run.answer"]


@pytest.mark.faults
def test_a_copy_killed_with_runs_in_each_state_leaves_nothing(rig):
    """For each state a run can be in, a copy is killed as a whole with a keyed and an unkeyed run in it. Within the leases and the sweep after them:
    no held slot, no stuck key, no process, and one final record of each run that was dispatched."""
    three = rig()
    lefts = []
    for n, state in enumerate(STATES):
        copy = three.copies[n % 3]
        requests = [t.Request(f"{state}-{kind}-{secrets.token_hex(4)}", new_id() if kind == "keyed" else None,
                              "standin: hold 800" if state == "executing" else "standin: answer") for kind in ("keyed", "unkeyed")]
        if state != "executing":
            copy.gw.faults.arm(state, "block")
        before = len(three.lines())
        sent = [t.Sent(q, copy, 0) for q in requests]
        threads = [threading.Thread(target=s.go) for s in sent]
        for thread in threads:
            thread.start()
        if state == "executing":
            wait_for(lambda: sum(line.startswith("note ") for line in three.lines()[before:]) == 2, "both runs to execute")
        else:
            copy.gw.faults.wait(state)
        copy.kill_whole()
        for thread in threads:
            thread.join()
        # the point of no return: what a dead copy's caller got is nothing at all
        assert all(s.answer is None for s in sent), (state, [s.answer for s in sent])
        three.restore()
        left = t.Left(state)
        left.requests = requests
        lefts.append(left)
    runs = collections.Counter(line.split()[0] for line in three.lines() if not line.startswith("note "))
    assert set(runs.values()) == {1}
    time.sleep(max(0, lefts[-1].due - time.monotonic()))
    with three.client() as client:
        now = three.now_ms(client)
        assert not {i for i, lease in three.slots(client).items() if lease > now}
    for run_id in runs:
        record = three.run_record(run_id)
        assert record is not None and record["verdict"] in ("answered", "unknown"), (run_id, record)
    notes = notes_of(three)
    for left in lefts:
        keyed, unkeyed = left.requests
        assert notes[keyed.token] <= 1 and notes[unkeyed.token] <= 1, left.number
        assert t.check_key(three, keyed) == [], left.number
    assert t.check_rig(three) == []
