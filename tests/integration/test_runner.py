"""The guests' runner as PID 1 of namespaces of its own, against guests that want something else. Its frames are read by a program that shares
nothing with it but the specification."""
import os
import signal
import socket
import struct
import subprocess
import time

import pytest

import runner_frames as rf
from runner_frames import COMPLETED, PROBE, PROJECT, SETUP_FAILED, SNIPPET, TIMED_OUT, Runner, job, project, run

if not rf.RUNNER.exists():
    raise FileNotFoundError(f"{rf.RUNNER} is not built")

pytestmark = pytest.mark.skipif(rf.missing() is not None, reason=str(rf.missing()))


# -- snippets --


def test_a_snippet_in_the_interpreter_started_ahead():
    with Runner("node") as r:
        assert r.begin() == (1, 2)
        result = r.result(r.give(job(SNIPPET, code="console.log(6*7); console.error('e')")))
        (step,) = result.steps
        assert (result.outcome, step.out, step.err, step.code, step.timed_out, step.signal) == (COMPLETED, b"42\n", b"e\n", 0, False, 0)
        assert (step.out_total, step.err_total) == (3, 2) and not r.unframed
        assert r.wait() == 0


@pytest.mark.parametrize("argument,wish", [("none", 1), ("node", 0), ("none", 0)])
def test_a_snippet_whose_interpreter_is_started_on_the_spot(argument, wish):
    with Runner(argument) as r:
        assert r.begin(preboot=wish) == (0, 1)
        result = r.result(r.give(job(SNIPPET, code="console.log(process.ppid, process.cwd())")))
        assert result.steps[0].out == b"1 /work\n"


def test_a_snippet_after_its_interpreter_died_waiting():
    with Runner("node") as r:
        r.begin()
        nodes = [int(p) for p in os.listdir("/proc") if p.isdigit() and is_of(p) and cmdline(p).startswith(b"node\0")]
        assert len(nodes) == 1
        os.kill(nodes[0], signal.SIGKILL)
        while nodes[0] in map(int, filter(str.isdigit, os.listdir("/proc"))) and state(nodes[0]) != "Z":
            time.sleep(0.01)
        assert r.result(r.give(job(SNIPPET, code="console.log(1)"))).steps[0].out == b"1\n"


def is_of(pid):
    try:
        return os.stat(f"/proc/{pid}").st_uid == rf.UID
    except OSError:
        return False


def cmdline(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read()
    except OSError:
        return b""


def state(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "Z"


@pytest.mark.parametrize("code,exit_code", [("process.exit(3)", 3), ("throw new Error('x')", 1), ("", 0), ("process.kill(process.pid, 'SIGTERM')", -1)])
def test_how_a_snippet_ends(code, exit_code):
    step = run(job(SNIPPET, code=code), "node").steps[0]
    assert step.code == exit_code and step.signal == (15 if exit_code == -1 else 0)


def test_a_snippet_of_the_largest_size():
    code = "console.log('" + "x" * (256 * 1024 - 30) + "'.length)"
    assert run(job(SNIPPET, code=code), "node").steps[0].out == b"%d\n" % (256 * 1024 - 30)


def test_a_snippet_at_its_deadline():
    begun = time.monotonic()
    result = run(job(SNIPPET, code="process.stdout.write('A'); process.stderr.write('B'); for (;;);", timeout_ms=1000), "node")
    (step,) = result.steps
    assert (result.outcome, step.code, step.timed_out, step.signal) == (TIMED_OUT, 124, True, 0)
    assert (step.out, step.err) == (b"A", b"B")  # what it said before is not lost
    assert 1_000_000 <= step.duration_us < 3_000_000 and time.monotonic() - begun < 10


def test_output_is_bytes():
    code = "process.stdout.write(Buffer.from([0xff,0xfe,0,0x80])); process.stderr.write(Buffer.from([0,0xf5,0x53,0x42,0x31]))"
    step = run(job(SNIPPET, code=code), "node").steps[0]
    assert (step.out, step.err) == (b"\xff\xfe\0\x80", b"\0\xf5SB1")


@pytest.mark.parametrize("count", [65535, 65536, 65537])
def test_a_stream_at_its_limit(count):
    code = f"process.stdout.write('o'.repeat({count})); process.stderr.write('e'.repeat({count}))"
    step = run(job(SNIPPET, code=code, stream_max=65536), "node").steps[0]
    kept = min(count, 65536)
    assert (step.out, step.err) == (b"o" * kept, b"e" * kept)
    assert (step.out_total, step.err_total) == (count, count)
    assert step.out_truncated == step.err_truncated == (count > 65536)


def test_no_output_at_all_is_kept_when_none_is_allowed():
    step = run(job(SNIPPET, code="console.log(1)", stream_max=0), "node").steps[0]
    assert (step.out, step.out_total, step.out_truncated) == (b"", 2, True)


# -- projects --


def test_a_project_runs_its_steps_in_order():
    result = project("cat a/b/in.txt > out.txt; pwd", "cat out.txt; echo warn >&2", "printenv | sort",
                     files=[("a/b/in.txt", "hello\n"), ("z.bin", bytes(range(256)))], artifacts=["out.txt", "z.bin"])
    assert result.outcome == COMPLETED and result.detail == ""
    assert [s.out for s in result.steps[:2]] == [b"/work\n", b"hello\n"] and result.steps[1].err == b"warn\n"
    assert result.artifacts == [(0, b"hello\n"), (1, bytes(range(256)))]
    # only what the greeting gave, and what the shell adds of its own
    assert [v for v in result.steps[2].out.split() if not v.startswith((b"PWD=", b"OLDPWD=", b"SHLVL=", b"_="))] == sorted(v.encode() for v in rf.ENV)


def test_steps_stop_at_the_first_failure_and_artifacts_are_still_taken():
    result = project("echo one > a", "exit 7", "echo three", artifacts=["a"])
    assert [s.code for s in result.steps] == [0, 7]
    assert result.outcome == COMPLETED and result.artifacts == [(0, b"one\n")]


@pytest.mark.parametrize("line,code", [("false", 1), ("kill -9 $$", -1), ("kill -TERM $$", -1), ("no-such-program-at-all", 127), ("", 0), ("exit 124", 124), ("exit 255", 255)])
def test_how_a_step_ends(line, code):
    step = project(line).steps[0]
    assert (step.code, step.timed_out) == (code, False)


def test_the_jobs_time_is_one_for_all_steps():
    begun = time.monotonic()
    result = project("sleep 0.6", "echo before; sleep 30", "echo never", timeout_ms=1200, artifacts=["x"])
    assert [(s.code, s.timed_out) for s in result.steps] == [(0, False), (124, True)]
    assert result.outcome == TIMED_OUT and "step 2" in result.detail
    assert result.steps[1].out == b"before\n"
    assert 1.1 < time.monotonic() - begun < 10


def test_a_step_that_ignores_signals_ends_at_the_deadline():
    result = project("trap '' TERM INT HUP QUIT PIPE ALRM USR1; while :; do sleep 1; done", timeout_ms=700)
    assert result.steps[0].timed_out and result.outcome == TIMED_OUT


def test_a_grandchild_that_holds_the_output_does_not_delay_the_result():
    result = project("(setsid sleep 60 &) ; echo started", "ps -e -o comm= | sort | uniq -c || ls /proc")
    assert result.steps[0].out == b"started\n" and result.steps[0].duration_us < 5_000_000
    assert b"sleep" not in result.steps[1].out


def test_a_daemon_that_goes_on_writing_ends_with_its_step():
    result = project("(setsid sh -c 'while :; do echo x; done' &) ; sleep 0.2; echo $$ > pid", "ls -d /proc/[0-9]* | wc -l", stream_max=4096)
    assert result.outcome == COMPLETED and len(result.steps) == 2
    assert int(result.steps[1].out) <= 4  # the runner, the step's shell, ls and wc
    assert result.steps[0].out_truncated and len(result.steps[0].out) == 4096


def test_a_flood_is_counted_and_dropped():
    result = project("head -c 100000000 /dev/zero; head -c 5000000 /dev/zero >&2; echo end")
    (step,) = result.steps
    assert step.code == 0 and (step.out_total, step.err_total) == (100000004, 5000000)
    assert (len(step.out), len(step.err)) == (1 << 20, 1 << 20) and step.out_truncated and step.err_truncated


def test_the_output_of_all_steps_has_a_limit_of_its_own():
    result = project(*["head -c 400 /dev/zero; head -c 400 /dev/zero >&2"] * 3, stream_max=500, output_max=1000)
    assert [(len(s.out) + len(s.err)) for s in result.steps] == [800, 200, 0]
    assert [s.out_truncated or s.err_truncated for s in result.steps] == [False, True, True]


def test_output_in_crumbs_takes_few_frames():
    code = "const fs = require('fs'); for (let i = 0; i < 200000; i++) fs.writeSync(1, 'x');"
    result = run(job(SNIPPET, code=code, timeout_ms=30000), "node", 60)
    assert result.steps[0].out == b"x" * 200000
    assert result.frames < 5000


def test_a_fork_bomb_ends_with_its_step():
    result = run(job(PROJECT, steps=["b() { b | b & }; b; sleep 1; echo $?", "ls -d /proc/[0-9]* | wc -l"], timeout_ms=20000), processes=200)
    assert result.outcome == COMPLETED and len(result.steps) == 2
    assert int(result.steps[1].out) <= 4


def test_a_fork_bomb_that_never_ends_is_ended_at_the_deadline():
    bomb = """
        const { spawn } = require('child_process');
        const one = () => { try { spawn('/bin/sh', ['-c', 'sleep 100 & sleep 100'], { detached: true, stdio: 'ignore' }).on('error', () => {}); } catch {} setImmediate(one); };
        one();
    """
    result = run(job(PROJECT, files=[("bomb.js", bomb)], steps=["node bomb.js & node bomb.js & wait"], timeout_ms=2000), processes=200)
    assert result.outcome == TIMED_OUT and result.steps[0].code == 124


def test_stopped_processes_are_ended():
    result = project("(setsid sh -c 'kill -STOP $$' &) ; sleep 0.2", "ls -d /proc/[0-9]* | wc -l")
    assert int(result.steps[1].out) <= 4


@pytest.mark.parametrize("name", ["KILL", "STOP", "TERM", "INT", "CHLD", "PIPE", "HUP"])
def test_signals_to_the_runner_do_nothing(name):
    result = project(f"for i in 1 2 3; do kill -{name} 1; done; echo sent; sleep 0.2", "echo next")
    assert [s.out for s in result.steps] == [b"sent\n", b"next\n"] and result.outcome == COMPLETED


def test_a_full_work_directory_is_the_guests_own_affair():
    result = project("head -c 200000000 /dev/zero > big; echo $?; rm big", "echo fine", timeout_ms=20000)
    assert result.steps[0].out == b"1\n" and result.steps[1].out == b"fine\n"


# -- files --


def test_as_many_and_as_large_files_as_a_job_may_have():
    content = os.urandom(20 * 1024)
    files = [(f"d{i % 7}/f{i}", content) for i in range(200)]
    result = project("find . -type f | wc -l; cat d*/* | wc -c", files=files, artifacts=[files[0][0], files[199][0]])
    assert result.steps[0].out.split() == [b"200", b"%d" % (200 * 20 * 1024)]
    assert result.artifacts == [(0, content), (1, content)]
    assert project("wc -c < f", files=[("f", os.urandom(4 << 20))]).steps[0].out == b"4194304\n"


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/x", "./x", "a//b", "a/", "..", ".", "a/./b", "a\0b"])
def test_a_path_that_leaves_the_work_directory_writes_nothing(path):
    result = project("echo ran", files=[("ok", "1"), (path, "2")])
    assert result.outcome == SETUP_FAILED and result.steps == [] and "not a path" in result.detail


@pytest.mark.parametrize("files", [[("a", "1"), ("a", "2")], [("a", "1"), ("a/b", "2")], [("a/b", "1"), ("a", "2")], [("x" * 300, "1")]])
def test_files_that_cannot_be_made_are_a_failed_setup(files):
    result = project("echo ran", files=files)
    assert result.outcome == SETUP_FAILED and result.steps == [] and result.detail.startswith("file ")


def test_the_detail_of_a_failed_setup_is_text():
    result = project("echo ran", files=[("é" * 120, "1"), ("é" * 120 + "/x", "1")])
    assert result.outcome == SETUP_FAILED and "ééé" in result.detail and len(result.detail.encode()) < 256


# -- artifacts --


def test_artifacts_are_regular_files_below_the_work_directory():
    lines = """
        echo plain > plain; mkdir dir; echo in > dir/in; mkfifo fifo; ln plain hard; ln -s plain link; ln -s /etc/passwd out; ln -s / root
        ln -s dir dirlink; ln -s "$PWD/dir" abs; ln -s ../work2 up; mkdir -p deep/er; ln -s ../../dir deep/er/back; ln -s a2 a1; ln -s a1 a2; ln -s /workshop near; ln -s / deep/top; : > empty; printf '\\377\\000\\365SB1' > binary; ln -s loop loop; echo no > unreadable; chmod 0 unreadable; mkdir shut; echo x > shut/f; chmod 311 shut
    """
    names = ["plain", "missing", "dir", "fifo", "hard", "link", "out", "root/etc/passwd", "loop", "empty", "dir/in", "binary", "plain/x", "unreadable",
             "../etc/passwd", "/etc/passwd", "dir/../plain", "shut/f", "dir/in/",
             "dirlink/in", "abs/in", "deep/er/back/in", "a1/in", "up/in", "near/in", "deep/top/work/dir/in", "dirlink"]
    begun = time.monotonic()
    result = project(lines, artifacts=names)
    assert {names[n]: c for n, c in result.artifacts} == {
        "plain": b"plain\n", "hard": b"plain\n", "empty": b"", "dir/in": b"in\n", "binary": b"\xff\0\xf5SB1", "shut/f": b"x\n",
        "dirlink/in": b"in\n", "abs/in": b"in\n", "deep/er/back/in": b"in\n"}
    assert result.outcome == COMPLETED and not result.artifacts_truncated
    assert time.monotonic() - begun < 5  # the FIFO did not hold it up


@pytest.mark.parametrize("size,kept", [(999, True), (1000, True), (1001, False)])
def test_artifacts_at_their_limit(size, kept):
    result = project(f"head -c {size} /dev/zero > a; echo x > b", artifacts=["a", "b"], artifacts_max=1000)
    assert (result.artifacts[:1] == [(0, bytes(size))]) == kept
    # with the first one 1000 bytes long there is no room for the second
    assert result.artifacts_truncated == (size >= 999)


def test_the_first_artifact_that_does_not_fit_ends_them():
    result = project("head -c 600 /dev/zero > a; cp a b; echo x > c", artifacts=["missing", "a", "b", "c"], artifacts_max=1000)
    assert result.artifacts == [(1, bytes(600))] and result.artifacts_truncated


def test_artifacts_of_the_largest_size():
    result = project("head -c 8388608 /dev/urandom > a; sha256sum < a", artifacts=["a"])
    import hashlib
    assert hashlib.sha256(result.artifacts[0][1]).hexdigest().encode() == result.steps[0].out.split()[0]


# -- the runner's own protection --


def test_the_runner_cannot_be_read_or_written():
    probe = "for f in fd/0 fd/1 mem environ maps auxv; do (exec 3</proc/1/$f) 2>/dev/null && echo read $f; (exec 3>>/proc/1/$f) 2>/dev/null && echo write $f; done; ls /proc/1/fd 2>/dev/null; echo done"
    assert project(probe).steps[0].out == b"done\n"


def test_frames_made_by_a_guest_count_for_nothing():
    forged = rf.frame(bytes(32), 3, b"X", struct.pack(">BBHH", 0, 0, 1, 0) + bytes(32))
    result = project("cat f; cat f > /proc/1/fd/1; cat f > /proc/1/fd/0; echo $?", "cat f f f >&2; exit 5", files=[("f", forged)])
    assert result.steps[0].out.startswith(forged) and result.steps[1].err == forged * 3
    assert [s.code for s in result.steps] == [0, 5] and result.unframed == b""


def test_what_is_put_between_the_runners_frames_is_found_and_skipped():
    """Where a guest can open the runner's stdout (gVisor), its bytes come between whole frames."""
    out, theirs = os.pipe()
    with Runner("none", stdout=theirs) as r:
        r.out = out
        r.begin(preboot=0)
        junk = rf.MAGIC + b"O\0" + struct.pack(">II", 2, 4048) + b"junk"
        os.write(theirs, junk)
        result = r.result(r.give(job(PROJECT, steps=["echo a", "echo b"])))
        assert [s.out for s in result.steps] == [b"a\n", b"b\n"] and r.unframed == junk
        os.close(theirs)
    os.close(out)


def test_after_the_result_it_ends_with_its_stream_and_not_before():
    """Its end is the start of the sandbox's removal: the gateway says when."""
    with Runner("none") as r:
        r.begin(preboot=0)
        r.result(r.give(job(PROJECT, steps=["echo a"])))
        with pytest.raises(subprocess.TimeoutExpired):
            r.process.wait(0.3)
        r.close_input()
        assert r.wait() == 0


def test_after_the_result_it_waits_for_nobody_for_long():
    with Runner("none") as r:
        r.begin(preboot=0)
        r.result(r.give(job(PROJECT, steps=["echo a"])))
        assert r.wait(4) == 0


# -- the way to a job --


def test_nobody_comes():
    with Runner() as r:
        r.close_input()
        assert r.frame() is None and r.wait() == 0


def test_the_gateway_leaves_before_the_job():
    with Runner() as r:
        r.begin()
        r.close_input()
        assert r.frame() is None and r.wait() == 0


def test_the_gateway_leaves_in_the_middle_of_the_job():
    with Runner("none") as r:
        r.begin(preboot=0)
        data, _ = rf.message(r.to_runner, 1, b"J", b"j", job(PROJECT, files=[("f", bytes(10000))], steps=["echo ran"]))
        r.write(data[:-1])
        r.close_input()
        assert r.frame() is None and r.wait() == 0


def test_a_job_with_a_wrong_tag_is_no_job():
    with Runner("none") as r:
        r.begin(preboot=0)
        good, _ = rf.message(r.to_runner, 1, b"J", b"j", job(PROJECT, steps=["echo ran"]))
        r.write(good[:-1] + bytes([good[-1] ^ 1]))
        other, _ = rf.message(r.to_gateway, 1, b"J", b"j", job(PROJECT, steps=["echo ran"]))
        r.write(other + os.urandom(5000) + rf.MAGIC * 3)
        wrong, _ = rf.message(r.to_runner, 2, b"J", b"j", job(PROJECT, steps=["echo ran"]))
        r.write(wrong)
        result = r.result(r.give(job(PROJECT, steps=["echo right"])))
        assert result.steps[0].out == b"right\n"


def test_a_second_job_is_not_taken():
    with Runner("none") as r:
        r.begin(preboot=0)
        digest = r.give(job(PROJECT, steps=["echo one; sleep 0.3"]))
        r.give(job(PROJECT, steps=["echo two"]))
        result = r.result(digest)
        assert [s.out for s in result.steps] == [b"one\n"]
        assert r.frame() is None and r.wait() == 0


def test_the_input_may_end_behind_the_job():
    with Runner("none") as r:
        r.begin(preboot=0)
        digest = r.give(job(PROJECT, steps=["sleep 0.2; echo a", "cat; echo b"]))
        r.close_input()
        assert [s.out for s in r.result(digest).steps] == [b"a\n", b"b\n"]


@pytest.mark.parametrize("body", [b"", job(PROJECT), job(9, steps=["x"]), job(PROJECT, steps=["true"]) + b"x", job(PROJECT, steps=["true"])[:-1],
                                  job(SNIPPET, code="1", steps=["x"]), job(PROJECT, steps=["true"], timeout_ms=0), job(PROJECT, steps=["a\0b"]),
                                  job(PROJECT, steps=["true"], stream_max=(1 << 20) + 1)])
def test_a_job_that_makes_no_sense_is_answered_and_not_run(body):
    with Runner("none") as r:
        r.begin(preboot=0)
        result = r.result(r.give(body))
        assert result.final and result.outcome == rf.RUNNER_FAILED and result.steps == [] and result.detail


def test_a_job_longer_than_the_greeting_allows_is_refused():
    with Runner("none") as r:
        r.begin(preboot=0, job_max=100)
        r.give(job(PROJECT, steps=["echo " + "x" * 200]))
        assert r.frame() is None and r.wait() == 125
        assert b"limit" in r.process.stderr.read()


def test_a_greeting_of_several_frames():
    env = rf.ENV + tuple(f"V{i}=" + "v" * 600 for i in range(50))
    with Runner("node") as r:
        assert r.begin(env=env) == (1, 2)
        result = r.result(r.give(job(SNIPPET, code="console.log(Object.keys(process.env).length, process.env.V49.length)")))
        assert result.steps[0].out == b"52 600\n"


@pytest.mark.parametrize("junk", [b"x" * 64, rf.MAGIC + b"J\0" + struct.pack(">II", 0, 100) + bytes(100), rf.MAGIC + b"H\0" + struct.pack(">II", 1, 100) + bytes(100),
                                  rf.MAGIC + b"H\0" + struct.pack(">II", 0, 4049) + bytes(4049), rf.MAGIC + b"H\0" + struct.pack(">II", 0, 10) + bytes(10)])
def test_anything_before_the_greeting_ends_it(junk):
    with Runner() as r:
        r.write(junk)
        assert r.frame() is None and r.wait() == 125


def test_a_greeting_of_another_version():
    with Runner() as r:
        r.hello(version=2)
        assert r.frame() is None and r.wait() == 125 and b"version" in r.process.stderr.read()


def test_an_argument_it_does_not_know():
    with Runner(arguments=["--mode=else"]) as r:
        assert r.frame() is None and r.wait() == 125


def test_it_is_process_1_or_nothing():
    import subprocess
    p = subprocess.run([rf.RUNNER, "--mode=run"], stdin=subprocess.DEVNULL, capture_output=True, timeout=10)
    assert p.returncode == 125 and b"process 1" in p.stderr


def test_the_interpreter_is_missing():
    with Runner("node") as r:
        assert r.begin(env=["PATH=/nowhere"]) == (2, 1)
        result = r.result(r.give(job(SNIPPET, code="1")))
        assert result.outcome == SETUP_FAILED and result.steps == [] and "interpreter" in result.detail


# -- readers that go away --


def test_the_reader_goes_away():
    with Runner("none") as r:
        r.begin(preboot=0)
        r.give(job(PROJECT, steps=["sleep 0.3; echo x; sleep 60"], timeout_ms=60000))
        r.close_output()
        assert r.wait(10) == 123


def test_the_reader_takes_nothing_any_more():
    """The deadline is kept meanwhile, and the runner ends when the rest of the result finds no room."""
    with Runner("none") as r:
        r.begin(preboot=0)
        begun = time.monotonic()
        r.give(job(PROJECT, steps=["head -c 3000000 /dev/zero; sleep 60"], timeout_ms=1000))
        assert r.wait(20) == 123
        assert 10 <= time.monotonic() - begun < 18


def test_a_slow_reader_gets_everything():
    with Runner("none") as r:
        r.begin(preboot=0)
        digest = r.give(job(PROJECT, steps=["head -c 1000000 /dev/zero; echo end >&2"]))
        time.sleep(0.5)
        (step,) = r.result(digest).steps
        assert len(step.out) == 1000000 and step.err == b"end\n"


@pytest.mark.parametrize("wait,size", [(0.5, 60000), (0.5, 72000), (0.5, 80000), (0.5, 100000), (0.5, 131000), (4, 80000)])
def test_output_that_waited_behind_a_reader_when_its_step_ended(wait, size):
    """Pipes of 64 KiB before and behind the runner, and what it holds itself, were full when the step ended; nothing of it may be lost."""
    with Runner("none") as r:
        r.begin(preboot=0)
        digest = r.give(job(PROJECT, steps=[f"head -c {size} /dev/zero"]))
        time.sleep(wait)
        (step,) = r.result(digest).steps
        assert (len(step.out), step.out_total, step.out_truncated) == (size, size, False)


def test_one_socket_for_both_directions():
    """What carries the streams need not be pipes: a cloud's may take a part of a frame."""
    ours, theirs = socket.socketpair()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with ours, theirs, Runner("node", stdin=theirs.fileno(), stdout=theirs.fileno()) as r:
        theirs.close()
        r.input = r.out = ours.fileno()
        assert r.begin() == (1, 2)
        result = r.result(r.give(job(SNIPPET, code="process.stdout.write('x'.repeat(500000))" + " " * 200000)))
        assert result.steps[0].out == b"x" * 500000
        assert r.frame() is None and r.wait() == 0


# -- the probe --


def test_the_probe_runs_as_a_guest_does():
    import json
    result = run(job(PROBE, code="{}", timeout_ms=30000), "node", 60)
    (step,) = result.steps
    assert step.code == 0 and result.outcome == COMPLETED, step
    json.loads(step.out)


# -- nobody comes --


def patient(ms):
    return Runner(arguments=["--mode=run", "--preboot=node", f"--patience={ms}"])


def test_a_runner_that_nobody_greets_ends_by_itself():
    with patient(300) as r:
        assert r.wait() == 0


def test_half_a_greeting_is_not_waited_for_for_ever():
    with patient(300) as r:
        r.write(b"\0" * 3)
        assert r.wait() == 0


def test_a_runner_that_gets_no_job_ends_by_itself_with_its_interpreter():
    with patient(1000) as r:
        assert r.begin() == (1, 2)
        assert r.wait() == 0


@pytest.mark.parametrize("text", ["", "1s", "-1", "123456789", "0x10"])
def test_a_patience_that_is_no_number(text):
    with Runner(arguments=["--mode=run", f"--patience={text}"]) as r:
        assert r.wait() == 125
