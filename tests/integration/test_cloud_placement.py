"""Two clouds behind one gateway: who gets a run that wants a microVM, who is passed over, and when nobody else is asked."""
import contextlib

import pytest

import gateway as g
import walls

E2B, DOCKER = (next(w for w in walls.CLOUD_WALLS if repr(w) == name) for name in ("e2b", "dockercloud"))
CODE = "console.log(6 * 7)"


class Two:
    """A gateway with E2B first, then Docker Cloud, then the embedded wall, and the books of both services."""

    def __init__(self, gw, e2b, docker):
        self.gw, self.e2b, self.docker = gw, e2b, docker

    def vm(self, key=None, **more):
        return self.gw.run(CODE, key, minimumIsolation="vm", timeoutMs=10000, **more)

    def made(self):
        return self.e2b.account()["created"], self.docker.account()["created"]

    def executed(self):
        """Commands that each was asked to run."""
        return tuple(cloud.account()["counts"].get("exec", 0) for cloud in (self.e2b, self.docker))

    def wait_empty(self):
        def is_empty():
            metrics = self.gw.metrics()
            return not self.e2b.alive() and not self.docker.alive() and all(
                metrics[f'plimsoll_ledger_entries{{backend="{w.name}"}}'] == 0 for w in (E2B, DOCKER))
        g.wait_for(is_empty, "both accounts and the ledgers to be empty", 30)


@pytest.fixture(scope="module")
def both():
    for wall in (E2B, DOCKER):
        wall.require()
    with contextlib.ExitStack() as stack:
        e2b, docker = (stack.enter_context(w.standin_process()) for w in (E2B, DOCKER))
        settings = {"SANDBOX_PROVIDER": "e2b,dockercloud,wasm", "SANDBOX_MAX_CONCURRENT": "8", **walls.Cloud.hasty, **E2B.settings_for(e2b), **DOCKER.settings_for(docker)}
        gw = stack.enter_context(g.served(g.Gateway(settings)))
        gw.start()
        g.wait_for(lambda: {b["state"] for b in gw.get("/v1/backends").json()["backends"]} == {"ready"}, "both walls to be proven", g.START_S)
        yield Two(gw, e2b, docker)
        for cloud in (e2b, docker):
            assert cloud.alive() == [] and cloud.leaks() == [] and cloud.violations() == []


@pytest.fixture
def two(both):
    yield both
    both.e2b.clear_faults()
    both.docker.clear_faults()
    both.gw.wait_inflight(0)
    both.wait_empty()


def test_a_run_that_wants_a_microvm_goes_to_the_first(two):
    made = two.made()
    answer = two.vm()
    assert answer.status == 200 and g.stdout(answer) == b"42\n"
    g.check_record(g.javascript(CODE, minimumIsolation="vm", timeoutMs=10000), answer)
    assert (answer.json()["sandbox"], answer.json()["isolation"], answer.header("Plimsoll-Backend")) == ("e2b", "vm", "e2b")
    assert answer.header("Plimsoll-Passed-Over") is None
    assert two.made() == (made[0] + 1, made[1])


@pytest.mark.parametrize("wait", [None, "7"])
def test_a_busy_provider_is_passed_over_and_named(two, wait):
    """U17: 429 from E2B, with and without a time to wait, makes nothing there; the run is the next one's."""
    two.e2b.add_fault(plane="control", method="POST", path="/v2/sandboxes", action={**E2B.busy, "headers": {"Retry-After": wait}} if wait else E2B.busy)
    made, executed, key = two.made(), two.executed(), g.new_id()
    answer = two.vm(key)
    assert answer.status == 200 and g.stdout(answer) == b"42\n", answer
    assert (answer.json()["sandbox"], answer.json()["isolation"], answer.header("Plimsoll-Backend")) == ("dockercloud", "vm", "dockercloud")
    assert answer.header("Plimsoll-Passed-Over") == "e2b;reason=capacity"
    assert two.made() == (made[0], made[1] + 1) and two.executed()[0] == executed[0]
    record = two.gw.get("/v1/runs/" + answer.header("Plimsoll-Run-Id")).json()
    assert (record["verdict"], record["backend"], record["request_id"]) == ("answered", "dockercloud", key)


def test_both_busy_is_a_refusal_that_says_when_to_come_again(two):
    two.e2b.add_fault(plane="control", method="POST", path="/v2/sandboxes", action={**E2B.busy, "headers": {"Retry-After": "7"}})
    two.docker.add_fault(step="create", action={"type": "respond", "status": 429, "code": "resourceExhausted"})
    made, key = two.made(), g.new_id()
    answer = two.vm(key)
    g.refused(answer, "resource_exhausted", "capacity", key)
    assert answer.header("Plimsoll-Passed-Over") == "e2b;reason=capacity" and int(answer.header("Retry-After")) >= 1
    assert two.made() == made
    two.e2b.clear_faults()
    # nothing ran, so the ID is free
    again = two.vm(key)
    assert again.status == 200 and again.header("Plimsoll-Replayed") is None and again.json()["sandbox"] == "e2b"


def test_a_create_whose_answer_was_lost_goes_nowhere_else(two):
    """It may have run; nobody else is asked, it is not marked, and the ID stays taken. What was made goes."""
    two.e2b.add_fault(plane="control", method="POST", path="/v2/sandboxes", phase="after", times=1, action={"type": "drop"})
    made, executed, key = two.made(), two.executed(), g.new_id()
    answer = two.vm(key)
    g.failed(answer, "unavailable", key)
    assert answer.header("Plimsoll-Passed-Over") is None and answer.header("Plimsoll-Backend") == "e2b"
    assert two.made() == (made[0] + 1, made[1]) and two.executed() == executed
    run, = [r for r in two.gw.get("/v1/runs?limit=100").json()["runs"] if r["request_id"] == key]
    assert (run["verdict"], run["backend"]) == ("unknown", "e2b")
    g.failed(two.vm(key), "unavailable", key)
    assert two.made() == (made[0] + 1, made[1])
    two.wait_empty()


@pytest.mark.parametrize("nth, command", [(1, "that checks the staged files"), (2, "of the caller's")])
def test_a_stream_that_breaks(two, nth, command):
    """Before the caller's code was started it is a refusal, and the next is asked; afterwards nobody is."""
    two.e2b.add_fault(plane="data", path="/process.Process/Start", phase="frames", nth=nth, times=1, action={"type": "vanish", "after_frames": 1, "how": "rst"})
    made, key = two.made(), g.new_id()
    answer = two.vm(key)
    assert two.e2b.faults()[0]["hits"] == 1, command
    if nth == 1:
        assert answer.status == 200 and answer.header("Plimsoll-Passed-Over") == "e2b;reason=capacity", answer
        assert two.made() == (made[0] + 1, made[1] + 1)
    else:
        g.failed(answer, "unavailable", key)
        assert answer.header("Plimsoll-Passed-Over") is None and two.made() == (made[0] + 1, made[1])


def test_a_sandbox_that_differs_from_what_was_asked_runs_nothing_and_the_next_is_asked(two):
    """Its network is open: no byte of the code leaves, the sandbox goes, and the wall is tried before it is used again."""
    two.e2b.add_fault(plane="control", method="GET", path="/sandboxes/{id}", action={"type": "readback", "set": {"network": {"allowOut": ["0.0.0.0/0"]}}})
    executed = two.executed()
    answer = two.vm()
    assert answer.status == 200 and answer.json()["sandbox"] == "dockercloud", answer
    assert answer.header("Plimsoll-Passed-Over") == "e2b;reason=isolation"
    assert two.executed()[0] == executed[0]
    two.e2b.clear_faults()
    assert two.vm().json()["sandbox"] in ("e2b", "dockercloud")
