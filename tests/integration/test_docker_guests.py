"""Guests that flood, fork, fill, hold on, eat memory and attack PID 1: each run ends in the specified verdict within its time, its sandbox goes,
and the next run is served; under runc and under gVisor."""
import time

import pytest

import gateway as g
from stalls import Stalls

MIB = g.MIB
OWN_WORDS = ("", "the sandbox ended without a result", "the sandbox was lost before it gave a result", "the sandbox broke the protocol")


@pytest.fixture(autouse=True)
def goes_on(on):
    """After each: the slot is free, and the wall serves."""
    yield
    on.gw.wait_inflight(0, 2)
    assert g.stdout(on.ok("console.log(6*7)", minimumIsolation=on.wall.tier)) == b"42\n"


def in_time(seconds, call):
    with Stalls() as stalls:
        began = time.monotonic()
        result = call()
        took = time.monotonic() - began
    assert took <= seconds + 0.4 + 3 * stalls.worst + 2, took  # 2 s for a sandbox to be started in
    return result


def expect_lost(done):
    """No verdict of the runner's: said in our own words, with what had been printed."""
    assert done.outcome == "protocol_error" and done.detail, done
    assert done.detail.startswith(OWN_WORDS[1:]), done.detail


def test_a_flood_is_cut_and_passed_over(on):
    """100 MB on each stream: exactly the limit of each is kept, the program's own verdict stands."""
    done = in_time(40, lambda: on.project(["head -c 104857600 /dev/zero | tr '\\0' y; head -c 104857600 /dev/zero | tr '\\0' z >&2; exit 3"],
                                          timeoutMs=40000))
    step, = done.steps
    assert (done.outcome, step.code, step.cut) == ("completed", 3, (True, True))
    assert step.out == b"y" * MIB and step.err == b"z" * MIB


def test_a_flood_without_end_ends_by_time(on):
    done = in_time(2, lambda: on.project(["yes", "echo never"], timeoutMs=2000))
    step, = done.steps
    assert (done.outcome, step.code, step.timed_out) == ("timed_out", 124, True)
    assert len(step.out) == MIB and set(step.out) == set(b"y\n") and step.cut == (True, False)


def test_a_fork_bomb(on):
    """Held by the process limit; under gVisor it may end the sandbox, and is then never said to be the program's own exit."""
    done = in_time(4, lambda: on.project(["b() { b | b & }; b; sleep 60", "echo never"], timeoutMs=4000))
    if done.outcome == "protocol_error":
        assert on.wall.runtime == "runsc"
        expect_lost(done)
    else:
        assert done.outcome in ("timed_out", "completed") and len(done.steps) == 1 and done.codes != [0], done


def test_a_fork_bomb_of_a_snippet(on):
    code = "const {spawn} = require('child_process'); const f = () => { for (let i = 0; i < 4; i++) try { spawn('sleep', ['60']).on('error', () => {}) } catch {} }; setInterval(f, 1)"
    answer = on.run(code, timeoutMs=3000)
    if answer.status == 200:
        assert answer.json()["javascript"]["exitCode"] != 0
    else:
        assert on.wall.runtime == "runsc"
        g.failed(answer, "internal")


def test_every_mount_is_filled(on):
    """Each holds what it may and no more; nothing else of the machine is used up."""
    fill = ("import os\nfor d, most in (('/tmp', 16), ('/dev/shm', 16), ('/work', 128)):\n"
            "    n = 0\n    try:\n        with open(d + '/fill', 'wb', 0) as f:\n            while True:\n                n += f.write(b'x' * 65536)\n"
            "    except OSError as e:\n        print(d, n // 65536 * 65536 <= most << 20 and n > (most << 20) - (1 << 20), e.errno, flush=True)\n"
            "    os.remove(d + '/fill')\n")
    done = on.project(["python3 fill.py"], {"fill.py": fill}, timeoutMs=30000)
    assert done.steps[0].out.decode().splitlines() == ["/tmp True 28", "/dev/shm True 28", "/work True 28"], done


def test_many_small_files(on):
    """Inodes cost memory: the memory limit holds them. Whatever ends it, it is this run alone."""
    done = in_time(3, lambda: on.project(["python3 -c \"\nimport os\nfor i in range(10**7): os.mkdir('%d' % i)\""], timeoutMs=3000))
    assert done.outcome in ("completed", "timed_out", "protocol_error") and done.codes[-1:] != [0], done


@pytest.mark.parametrize("where", ["main", "child", "tmpfs"])
def test_memory_runs_out(on, where):
    """256 MiB: under runc the process is killed and the runner says so; under gVisor the whole sandbox goes."""
    eat = "python3 -c 'x = bytearray(400 << 20); import time; time.sleep(30)'"
    lines = {"main": f"echo before; exec {eat}", "child": f"echo before; {eat} & wait $!; exit 9",
             "tmpfs": "echo before; head -c 120M /dev/zero > a; " + eat.replace("400 << 20", "200 << 20")}
    done = in_time(20, lambda: on.project([lines[where], "echo never"], timeoutMs=20000))
    assert done.steps and done.steps[0].out == b"before\n", done
    if on.wall.runtime == "runsc":
        if done.outcome == "protocol_error":
            expect_lost(done)
            return
    assert done.outcome == "completed" and len(done.steps) == 1 and done.codes[0] != 0, done
    assert done.codes == [{"main": -1, "child": 9, "tmpfs": 137}[where]] or on.wall.runtime == "runsc", done


def test_memory_of_a_snippet_runs_out(on):
    answer = on.run("const a = []; for (;;) a.push(Buffer.alloc(16 << 20, 1))", timeoutMs=20000)
    if answer.status == 200:
        assert answer.json()["javascript"]["exitCode"] not in (0, 124)
    else:
        # the sandbox went with it: no verdict, unmarked
        assert on.wall.runtime == "runsc"
        g.failed(answer, "internal")


@pytest.mark.parametrize("signal", ["KILL", "TERM", "INT", "SEGV", "QUIT"])
def test_a_signal_to_the_runner(on, signal):
    """Linux keeps it from PID 1. gVisor lets it through: then the run has no verdict, and says so."""
    done = in_time(8, lambda: on.project([f"echo A; kill -{signal} 1; sleep 1; echo B"], timeoutMs=8000))
    if done.outcome == "protocol_error":
        assert on.wall.runtime == "runsc"
        expect_lost(done)
        # with what had come by then, which may be nothing
        assert done.codes in ([], [-1]) and [s.out for s in done.steps] in ([], [b""], [b"A\n"])
    else:
        assert (done.outcome, done.codes, done.steps[0].out) == ("completed", [0], b"A\nB\n")


def test_a_snippet_that_kills_the_runner_is_unmarked(on):
    answer = on.run("process.stdout.write('A'); process.kill(1, 'SIGKILL'); setTimeout(() => console.log('B'), 300)", timeoutMs=8000)
    if on.wall.runtime == "runc":
        assert answer.status == 200 and g.stdout(answer) == b"AB\n"
    elif answer.status != 200:
        g.failed(answer, "internal")
        assert "internal error" in answer.message or answer.message.startswith(OWN_WORDS[1:]), answer.message


def test_the_runner_stopped_ends_by_deadline(on):
    done = in_time(2, lambda: on.project(["echo A; sleep 0.3; kill -STOP 1; sleep 30"], timeoutMs=2000))
    assert done.outcome == "timed_out" and done.steps[0].timed_out and done.codes == [124]
    assert done.steps[0].out == b"A\n"


def test_the_runner_starved(on):
    """Its limits lowered by the guest, who has its user ID: whatever that does is done to this run alone."""
    done = in_time(5, lambda: on.project(["python3 -c \"\nimport resource\nfor r in (resource.RLIMIT_NOFILE, resource.RLIMIT_CPU, resource.RLIMIT_AS):\n"
                                          "    try: resource.prlimit(1, r, (0, 0)); print('let')\n    except OSError as e: print(e.errno)\"", "echo next"],
                                         timeoutMs=5000))
    assert done.outcome in ("completed", "protocol_error", "timed_out", "setup_failed"), done


def test_output_held_open_by_what_is_left(on):
    began = time.monotonic()
    done = on.project(["sleep 100 & sleep 100 >&2 & (setsid sh -c 'trap \"\" HUP TERM; sleep 100' &); echo x; exit 4"], timeoutMs=30000)
    assert done.codes == [4] and done.steps[0].out == b"x\n" and time.monotonic() - began < 10


def test_a_step_that_ignores_every_signal(on):
    done = in_time(2, lambda: on.project(["trap '' TERM INT HUP QUIT; while :; do sleep 1; done"], timeoutMs=2000))
    assert done.codes == [124] and done.outcome == "timed_out"


def test_a_stopped_step_ends_by_deadline(on):
    done = in_time(2, lambda: on.project(["echo A; kill -STOP $$"], timeoutMs=2000))
    assert (done.outcome, done.codes, done.steps[0].out) == ("timed_out", [124], b"A\n")


def test_closed_streams_end_nothing(on):
    """A program that closes its output goes on, and its exit counts."""
    began = time.monotonic()
    done = on.project(["exec >&- 2>&-; sleep 1; exit 5"])
    assert done.codes == [5] and time.monotonic() - began >= 1
