"""Projects behind the walls of a local Docker Engine: files, steps in order, budgets, artifacts, languages; under runc and under gVisor."""
import time

import pytest

import gateway as g
from stalls import Stalls

MIB = g.MIB


# -- files and steps --


def test_files_steps_and_artifacts(on):
    done = on.project(["cat a/b/c.txt main.txt", "printf '%s' x > out.txt; wc -c < empty", "cat out.txt"],
                      {"a/b/c.txt": "deep ☕\n", "main.txt": "top\n", "empty": "", "nul": "a\0b"}, ["out.txt", "a/b/c.txt", "nul"])
    assert (done.outcome, done.detail, done.codes) == ("completed", "", [0, 0, 0])
    assert [s.out for s in done.steps] == ["deep ☕\ntop\n".encode(), b"0\n", b"x"]
    assert [s.command for s in done.steps][1:] == ["printf '%s' x > out.txt; wc -c < empty", "cat out.txt"]
    assert done.artifacts == [("out.txt", b"x"), ("a/b/c.txt", "deep ☕\n".encode()), ("nul", b"a\0b")] and not done.artifacts_cut


def test_it_stops_at_the_first_failure_and_still_collects(on):
    done = on.project(["echo 1 > f", "echo 2 >> f; exit 3", "echo never >> f"], artifacts=["f"])
    assert (done.outcome, done.codes) == ("completed", [0, 3])
    assert done.artifacts == [("f", b"1\n2\n")]


@pytest.mark.parametrize("line, code", [("exit 255", 255), ("false", 1), ("no_such_program", 127), ("kill -9 $$", -1), ("kill -TERM $$", -1),
                                        ("exit 124", 124), ("exit 137", 137), ("exit 2", 2)])
def test_exit_codes(on, line, code):
    step, = on.project([line]).steps
    assert (step.code, step.timed_out) == (code, False)


def test_where_a_step_runs(on):
    step, = on.project(["pwd; id -u; id -g; umask; cat; echo $(env | sort | sed 's/=.*//'); test -x f || echo no;"
                        "python3 -c \"import os; s = os.stat('f'); print(oct(s.st_mode & 0o7777), s.st_uid)\""],
                       {"f": "x"}).steps
    lines = step.out.decode().splitlines()
    assert lines[:4] == ["/work", "61000", "61000", "0022"]      # `cat` found nothing to read
    names = set(lines[4].split()) - {"_", "PWD", "SHLVL", "OLDPWD"}
    assert {"PATH"} <= names and not [n for n in names if n.startswith(("LD_", "NODE_OPT", "SANDBOX", "PLIMSOLL", "DOCKER"))]
    assert lines[5:] == ["no", "0o644 61000"] and step.err == b""


def test_nothing_it_writes_can_be_executed(on):
    done = on.project(["cp /bin/sh s; chmod 755 s; ./s -c 'echo out'; echo $?; cp /bin/sh /tmp/s; /tmp/s -c 'echo out'; echo $?;"
                       "cp /bin/sh /dev/shm/s; /dev/shm/s -c 'echo out'; echo $?"])
    assert done.steps[0].out == b"126\n" * 3
    assert on.project(["echo x > /etc/x || echo 1; echo x > /opt/x || echo 2; echo x > /usr/bin/x || echo 3; echo x > /var/tmp/x || echo 4"]
                      ).steps[0].out == b"1\n2\n3\n4\n"


def test_nothing_of_a_step_goes_on(on):
    """A step's end is its main process's; what it left is dead before the next one starts."""
    began = time.monotonic()
    done = on.project(["sleep 300 & (setsid nohup sleep 301 >/dev/null 2>&1 &) ; (sh -c 'trap \"\" TERM HUP INT; sleep 302' &); echo left",
                       "ls -d /proc/[0-9]* | wc -l; cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 30[0-2]'; true"])
    assert time.monotonic() - began < 10
    assert done.codes == [0, 0] and done.steps[0].out == b"left\n"
    assert done.steps[1].out.splitlines()[1] == b"0", done.steps[1]


def test_what_a_step_leaves_in_files_is_there_for_the_next(on):
    done = on.project(["mkdir -p d && echo 1 > d/f && export X=1 && cd d", "pwd; cat d/f; echo \"[$X]\""])
    assert done.steps[1].out == b"/work\n1\n[]\n"


def test_twenty_steps_and_a_line_as_long_as_may_be(on):
    done = on.project([f"echo {n}" for n in range(19)] + [":" + " " * (16384 - 9) + "; echo x"])
    assert len(done.steps) == 20 and done.steps[-1].out == b"x\n" and len(done.steps[-1].command) == 16384


@pytest.mark.parametrize("files", [199, 200])
def test_as_many_files_as_may_be(on, files):
    """200 files, 4 MiB."""
    each, rest = divmod(4 * MIB, files)
    content = {f"d{n % 7}/f{n}": chr(97 + n % 26) * (each + (rest if n == 0 else 0)) for n in range(files)}
    done = on.project(["find . -type f | wc -l; cat $(find . -type f) | wc -c", "cat $(find . -type f | sort) | sha256sum | cut -c1-64"], content)
    assert done.steps[0].out.split() == [str(files).encode(), str(4 * MIB).encode()]
    whole = "".join(content[name[2:]] for name in sorted("./" + n for n in content)).encode()
    assert done.steps[1].out.decode().strip() == g.hashlib.sha256(whole).hexdigest()


@pytest.mark.parametrize("files", [{f"f{n}": "" for n in range(201)}, {"f": "x" * (4 * MIB + 1)}, {"../f": "x"}, {"/f": "x"}, {"a//b": "x"},
                                   {"./a": "x"}, {"a/..": "x"}, {"a\nb": "x"}, {"": "x"}, {"a\\b": "x"}, {"x" * 1025: "x"}],
                         ids=["201", "4 MiB + 1", "..", "/", "//", ".", "/..", "newline", "empty", "backslash", "long"])
def test_files_that_may_not_be(on, files):
    body = {"protocol": 4, "project": {"steps": ["true"], "files": [{"path": p, "content": c} for p, c in files.items()]}}
    g.refused(on.post(body), "invalid_argument", "request")


@pytest.mark.parametrize("files", [[("a", "x"), ("a/b", "y")], [("a/b", "y"), ("a", "x")], [("n" * 256, "x")]],
                         ids=["below a file", "over a directory", "a name too long"])
def test_files_that_cannot_be_are_the_requests_own_fault(on, files):
    done = on.project(["echo ran"], files)
    assert (done.outcome, done.steps, done.artifacts) == ("setup_failed", [], []) and done.detail


@pytest.mark.parametrize("name", ["-rf", "$(id)", "a b", "'", '"', "☕", "*", "~", ";", "%s%n", "x" * 255, "a/" * 100 + "f"])
def test_names_are_only_names(on, name):
    done = on.project(["find . -type f -exec cat {} +"], {name: "here\n"}, [name])
    assert done.steps[0].out == b"here\n" and done.artifacts == [(name, b"here\n")]


# -- budgets --


def test_the_budget_ends_a_step_with_what_it_printed(on):
    with Stalls() as stalls:
        began = time.monotonic()
        done = on.project(["echo first", "echo A; printf B; sleep 30; echo never", "echo never"], timeoutMs=2000)
        took = time.monotonic() - began
    assert done.outcome == "timed_out" and done.detail and done.codes == [0, 124]
    assert [(s.out, s.timed_out) for s in done.steps] == [(b"first\n", False), (b"A\nB", True)]
    assert 2.0 <= took <= 2.4 + 3 * stalls.worst, (took, stalls.worst)


def test_the_budget_is_of_the_whole_project(on):
    began = time.monotonic()
    done = on.project(["sleep 0.6"] * 9, timeoutMs=2500)
    assert 2.5 <= time.monotonic() - began < 5
    assert done.outcome == "timed_out" and 1 <= len(done.steps) <= 5 and done.codes == [0] * (len(done.steps) - 1) + [124]
    assert done.steps[-1].timed_out


def test_artifacts_are_taken_after_the_budgets_end(on):
    for _ in range(5):
        done = on.project(["echo kept > f; sleep 30"], artifacts=["f"], timeoutMs=1500)
        assert done.outcome == "timed_out" and done.codes == [124]
        if done.artifacts == [("f", b"kept\n")]:
            return
        # a busy machine: the gateway answers in time all the same, without what has not come by then
    raise AssertionError(done)


@pytest.mark.parametrize("beyond", [-1, 0, 1])
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_steps_streams_at_their_limit(on, stream, beyond):
    size = on.wall.step_stream_max + beyond
    step, = on.project([f"head -c {size} /dev/zero | tr '\\0' y{' >&2' if stream == 'stderr' else ''}"]).steps
    kept, other = (step.out, step.err) if stream == "stdout" else (step.err, step.out)
    assert kept == b"y" * min(size, on.wall.step_stream_max) and other == b""
    assert step.cut == ((beyond > 0, False) if stream == "stdout" else (False, beyond > 0))
    assert step.code == 0       # a chatty step is not killed


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_all_steps_together_at_their_limit(on, beyond):
    """3 MiB over all steps: the newest one is shortened."""
    line = "head -c {} /dev/zero | tr '\\0' y"
    done = on.project([line.format(MIB), line.format(MIB), line.format(MIB - 1000), line.format(1000 + beyond), "echo more"])
    kept = [len(s.out) for s in done.steps]
    assert done.codes == [0] * 5
    assert kept[:3] == [MIB, MIB, MIB - 1000] and kept[3] == min(1000, 1000 + beyond)
    assert done.steps[3].cut == (beyond > 0, False)
    # what is left for the last one: a byte, or nothing
    assert (done.steps[4].out, done.steps[4].cut) == ((b"m", (True, False)) if beyond < 0 else (b"", (True, False)))


# -- artifacts --


def test_only_files_of_the_work_directory_are_artifacts(on):
    make = ["echo inside > file; ln -s file link; ln -s /etc/passwd outside; ln -s /etc etc; mkdir dir; echo d > dir/f; ln -s dir dirlink;"
            "mkfifo fifo; ln file hard; ln -s /proc/1/environ environ; ln -s $PWD/dir abs; mkdir closed; echo c > closed/f; chmod 0 closed;"
            "ln -s loop loop; printf x > /tmp/t; ln -s ../tmp/t t; : > empty; echo s > secret; chmod 0 secret"]
    wanted = ["file", "link", "outside", "etc/passwd", "dir", "fifo", "hard", "missing", "environ", "loop", "t", "empty", "closed/f", "file/x",
              "secret", "dir/f"]
    done = on.project(make, artifacts=wanted)
    assert done.outcome == "completed"
    got = dict(done.artifacts)
    assert got["file"] == got["hard"] == b"inside\n" and got["empty"] == b"" and got["dir/f"] == b"d\n"
    for name in ("link", "outside", "etc/passwd", "dir", "fifo", "missing", "environ", "loop", "t", "file/x"):
        assert name not in got, name
    assert [p for p, _ in done.artifacts] == [p for p in wanted if p in got] and not done.artifacts_cut


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_artifacts_at_their_budget(on, beyond):
    size = on.wall.artifacts_max + beyond
    done = on.project([f"head -c {size} /dev/zero | tr '\\0' y > big; echo s > small"], artifacts=["big", "small"])
    if beyond > 0:
        assert done.artifacts == [] and done.artifacts_cut      # the first that does not fit ends it
    else:
        assert done.artifacts[0] == ("big", b"y" * size)
        # a byte is left for "small", which has two; or none
        assert len(done.artifacts) == 1 and done.artifacts_cut


def test_artifacts_that_fit_and_one_that_does_not(on):
    done = on.project(["for n in 1 2 3; do head -c 3000000 /dev/urandom > f$n; done; sha256sum f1 f2 | cut -c1-64"], artifacts=["f1", "f2", "f3"])
    assert [p for p, _ in done.artifacts] == ["f1", "f2"] and done.artifacts_cut
    assert [g.hashlib.sha256(c).hexdigest() for _, c in done.artifacts] == done.steps[0].out.decode().split()


def test_a_hundred_artifacts(on):
    names = [f"a{n}" for n in range(100)]
    done = on.project(["for n in $(seq 0 99); do echo $n > a$n; done"], artifacts=names)
    assert done.artifacts == [(n, f"{i}\n".encode()) for i, n in enumerate(names)]


def test_a_hole_is_read_as_it_is(on):
    """A file of 100 MiB without a block does not fit; one of 1 MiB does, as zeros."""
    done = on.project(["truncate -s 1M hole; truncate -s 100M huge"], artifacts=["hole", "huge"])
    assert done.artifacts == [("hole", bytes(MIB))] and done.artifacts_cut


# -- languages --


def test_languages_are_stated_as_proven(on):
    described = on.describe()
    assert described["supportsProject"] is True
    assert tuple(described["projectEnvironment"]["languages"]) == on.wall.languages
    assert described["projectEnvironment"]["maxTimeoutMs"] == on.wall.project_timeout_max_ms
    assert described["projectEnvironment"]["identity"] != described["javascriptEnvironment"]["identity"]
    resources = described["resources"]
    assert (resources["memoryMb"], resources["cpus"], resources["pids"]) == (256, 1, 256)


def test_javascript_typescript_and_python(on):
    files = {"lib.ts": "export const f = (n: number): number => n * 7\n", "main.ts": "import { f } from './lib'\nconsole.log(f(6))\n",
             "m.mjs": "import os from 'node:os'\nconsole.log(await Promise.resolve(6 * 7), os.userInfo().uid)\n",
             "p.py": "import os, sys\nprint(6 * 7, os.getuid(), sys.stdin.read() == '')\n"}
    done = on.project(["node m.mjs", "tsx main.ts", "python3 p.py", "python3 -c 'import numpy; print(numpy.arange(4).sum() * 7)'"], files,
                      timeoutMs=60000)
    assert [s.out for s in done.steps] == [b"42 61000\n", b"42\n", b"42 61000 True\n", b"42\n"], done


def test_a_program_of_many_parts(on):
    """Threads, child processes and sockets between them."""
    code = ("const {Worker} = require('worker_threads'), {execFileSync} = require('child_process'), net = require('net');"
            "const w = new Worker('require(\"worker_threads\").parentPort.postMessage(1)', {eval: true});"
            "w.on('message', m => { const s = net.createServer(c => { c.end('hello'); s.close() }).listen(process.cwd() + '/sock', () =>"
            " net.connect(process.cwd() + '/sock').on('data', d => console.log(m, String(d), String(execFileSync('echo', ['child'])).trim()))) })")
    assert on.project(["node x.js"], {"x.js": code}).steps[0].out == b"1 hello child\n"
