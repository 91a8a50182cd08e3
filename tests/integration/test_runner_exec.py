"""The runner as one process among others: PID 1 is somebody else's, a neighbour has the guests' uid too, and only what a job started may end with it."""
import pytest

import runner_frames as rf
from runner_frames import COMPLETED, PROJECT, SNIPPET, TIMED_OUT, job

pytestmark = pytest.mark.skipif(rf.missing() is not None, reason=str(rf.missing()))

NEIGHBOUR = "sleep 86400"
# A shell is PID 1, as where an exec comes in through one; the sandbox's own main process runs beside it.
IN_A_SHELL = rf.SANDBOX.replace('/opt/sbx/runner "$@"', f"""/bin/sh -c '{NEIGHBOUR} & /opt/sbx/runner "$@"; exit $?' sh "$@" """)
# Which processes there are, by their command lines.
LIST = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null; echo; done | grep ^sleep; true"


class Among(rf.Runner):
    sandbox = IN_A_SHELL

    def __init__(self, **kwargs):
        super().__init__(arguments=["--mode=exec", "--work=/tmp/work", "--preboot=none", "--patience=20000"], **kwargs)


def run(body, seconds=30, **kwargs):
    with Among(**kwargs) as r:
        assert r.begin(preboot=0) == (0, 1)
        digest = r.give(body)
        r.close_input()
        result = r.result(digest, seconds)
        assert result.final and r.wait() == 0
        return result


def project(*steps, **kwargs):
    return run(job(PROJECT, steps=steps, **kwargs))


def test_a_snippet_and_a_project():
    r = run(job(SNIPPET, code="console.log(process.cwd(), 6 * 7)"))
    assert (r.outcome, r.steps[0].out, r.steps[0].code) == (COMPLETED, b"/tmp/work 42\n", 0)
    r = project("cat a/b > c; pwd", "exit 3", "echo never", files=[("a/b", "text")], artifacts=["c"])
    assert [(s.out, s.code) for s in r.steps] == [(b"/tmp/work\n", 0), (b"", 3)]
    assert r.artifacts == [(0, b"text")]


def test_what_a_step_leaves_behind_ends_with_it_and_its_neighbours_do_not():
    r = project("setsid sleep 1001 & (setsid sh -c 'sleep 1002; true' &) ; true", LIST)
    assert r.outcome == COMPLETED
    assert r.steps[1].out.decode().strip() == NEIGHBOUR


def test_at_the_deadline_all_of_the_job_ends():
    with Among() as r:
        r.begin(preboot=0)
        result = r.result(r.give(job(PROJECT, steps=["setsid sleep 1003 & setsid sh -c 'trap \"\" TERM; sleep 1004' ; sleep 1005"], timeout_ms=500)))
        assert result.outcome == TIMED_OUT and result.steps[0].timed_out and result.steps[0].code == 124


def test_a_fork_bomb_ends_with_its_step():
    r = run(job(PROJECT, steps=["b() { b | b & }; b; sleep 1; echo $?", "ls -d /proc/[0-9]* | wc -l; " + LIST], timeout_ms=20000), processes=200)
    assert r.outcome == COMPLETED and len(r.steps) == 2
    count, others = r.steps[1].out.decode().split("\n", 1)
    assert int(count) <= 6 and others.strip() == NEIGHBOUR  # PID 1, its neighbour, the runner, the step's shell, ls and wc


def test_its_memory_and_descriptors_are_nobodys():
    """Guests have its uid; the kernel refuses them all the same, because it is not dumpable."""
    r = project("cat /proc/$PPID/environ; cat /proc/$PPID/maps; cat /proc/$PPID/mem; ls /proc/$PPID/fd/; echo x > /proc/$PPID/fd/1; cat /proc/$PPID/fd/0; "
                "cat /proc/$PPID/comm")
    assert r.steps[0].out == b"runner\n"
    assert r.steps[0].err.count(b"ermission denied") == 6, r.steps[0].err


def test_it_wants_a_directory_of_its_own():
    for arguments in (["--mode=exec"], ["--mode=run", "--work=/tmp/work"], ["--mode=exec", "--work=tmp"]):
        with rf.Runner(arguments=arguments) as r:
            assert r.frame() is None and r.wait() == 125
    with Among() as r:
        r.begin(preboot=0)
        assert r.result(r.give(job(PROJECT, steps=["stat -c %a . && touch x && rm x && touch /usr/x"]))).steps[0].out == b"700\n"
