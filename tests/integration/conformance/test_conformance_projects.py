"""Projects: files, ordered steps with their own outputs, one budget, artifacts; on every wall that runs them, and refused by the rest."""
import time

import pytest

import gateway as g
import walls
from stalls import Stalls

MIB = g.MIB
LINE = "yes y | tr -d '\\n' | head -c {}"


@pytest.fixture
def on(at):
    """The wall, if it runs projects; one that does not has its refusal seen here, once for each test that asks for it."""
    if "project" not in at.wall.kinds:
        before = at.gw.metric("plimsoll_runs_total")
        g.refused(at.post({"protocol": 4, "project": walls.project(["echo x"], {"f": "x"}, ["f"])}), "unimplemented", "unsupported")
        assert at.gw.metric("plimsoll_runs_total") == before and at.describe().get("projectEnvironment", {}) == {}
        return None
    return at


def test_files_steps_and_artifacts(on):
    if on is None:
        return
    done = on.project(["cat a/b/c.txt main.txt", "printf '%s' x > out.txt; wc -c < empty", "cat out.txt; echo e >&2"],
                      {"a/b/c.txt": "deep ☕\n", "main.txt": "top\n", "empty": "", "nul": "a\0b"}, ["out.txt", "a/b/c.txt", "nul", "missing"],
                      minimumIsolation=on.wall.tier)
    assert (done.outcome, done.detail, done.codes) == ("completed", "", [0, 0, 0])
    assert [s.out for s in done.steps] == ["deep ☕\ntop\n".encode(), b"0\n", b"x"] and done.steps[2].err == b"e\n"
    assert done.artifacts == [("out.txt", b"x"), ("a/b/c.txt", "deep ☕\n".encode()), ("nul", b"a\0b")] and not done.artifacts_cut


def test_it_stops_at_the_first_failure_and_still_collects(on):
    if on is None:
        return
    done = on.project(["echo 1 > f", "echo 2 >> f; exit 3", "echo never >> f"], artifacts=["f"])
    assert (done.outcome, done.codes, done.artifacts) == ("completed", [0, 3], [("f", b"1\n2\n")])


@pytest.mark.parametrize("line, code", [("exit 255", 255), ("no_such_program", 127), ("exit 124", 124), ("exit 125", 125), ("exit 137", 137)])
def test_exit_codes_of_steps(on, line, code):
    if on is None:
        return
    step, = on.project([line]).steps
    assert (step.code, step.timed_out, step.cut) == (code, False, (False, False))


def test_a_signal_is_a_failure(on):
    """-1, or 128 and its number; where only a shell's exit code comes back it cannot be told from one."""
    if on is None:
        return
    done = on.project(["kill -TERM $$", "echo never"])
    assert len(done.steps) == 1 and done.codes[0] in (-1, 143) and done.outcome == "completed"


def test_the_budget_ends_a_step_with_what_it_printed(on):
    if on is None:
        return
    with Stalls() as stalls:
        began = time.monotonic()
        done = on.project(["echo first", "echo A; echo kept > f; printf B; sleep 30; echo never", "echo never"], artifacts=["f"], timeoutMs=3000)
        took = time.monotonic() - began
    assert (done.outcome, done.codes) == ("timed_out", [0, 124])
    assert [(s.out, s.timed_out) for s in done.steps] == [(b"first\n", False), (b"A\nB", True)]
    assert done.artifacts in ([("f", b"kept\n")], [])
    assert on.wall.ends_early_s + took >= 3.0 and took <= 3.0 + on.wall.late_s + 1 + 3 * stalls.worst, (took, stalls.worst)


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_steps_output_at_its_limit(on, beyond):
    if on is None:
        return
    limit = on.wall.step_stream_max
    step, = on.project([LINE.format(limit + beyond)]).steps
    assert step.out == b"y" * limit and step.cut == (beyond > 0, False) and step.err == b""


def test_all_steps_together_are_bounded(on):
    if on is None:
        return
    each = on.wall.step_stream_max
    whole, rest = divmod(on.wall.steps_max, each)
    done = on.project([LINE.format(each)] * (whole + 1))
    assert [len(s.out) for s in done.steps] == [each] * whole + [rest] and done.steps[-1].cut[0] is True


@pytest.mark.parametrize("beyond", [0, 1])
def test_artifacts_at_their_budget(on, beyond):
    if on is None:
        return
    size = on.wall.artifacts_max + beyond
    done = on.project([LINE.format(size) + " > big; echo small > s"], artifacts=["big", "s"], timeoutMs=60000)
    if beyond == 0:
        assert done.artifacts[0] == ("big", b"y" * size) and len(done.artifacts) == 1 and done.artifacts_cut
    else:
        assert "big" not in dict(done.artifacts) and done.artifacts_cut


def test_links_and_what_is_no_file_are_no_artifacts(on):
    if on is None:
        return
    done = on.project(["echo in > file; ln -s /etc/passwd outside; ln -s /etc etc; mkdir dir; mkfifo fifo"],
                      artifacts=["file", "outside", "etc/passwd", "dir", "fifo", "missing"], timeoutMs=20000)
    followed = {None: [], "directories": ["etc/passwd"], "all": ["outside", "etc/passwd"]}[on.wall.follows_links]
    assert done.artifacts[0] == ("file", b"in\n") and done.outcome == "completed"
    assert [path for path, _ in done.artifacts[1:]] == followed and all(content.startswith(b"root:") for _, content in done.artifacts[1:])


def test_files_are_stored_whole(on):
    """U16: as many and as large as may be, each byte there before the first step."""
    if on is None:
        return
    content = {f"d{n % 3}/f{n}": chr(97 + n % 26) * (17 << 10 if n else MIB) for n in range(40)}
    done = on.project(["cat $(find . -type f | sort) | sha256sum | cut -c1-64"], content, timeoutMs=20000)
    whole = "".join(content[name[2:]] for name in sorted("./" + n for n in content)).encode()
    assert done.steps[0].out.decode().strip() == g.hashlib.sha256(whole).hexdigest()


@pytest.mark.parametrize("name", ["-rf", "$(id)", "a b", "'", "☕", "*", ";", "%s%n", "a/" * 60 + "f"])
def test_names_are_only_names(on, name):
    if on is None:
        return
    done = on.project(["find . -type f -exec cat {} +"], {name: "here\n"}, [name])
    assert done.steps[0].out == b"here\n" and done.artifacts == [(name, b"here\n")]


@pytest.mark.parametrize("files", [[("a", "x"), ("a/b", "y")], [("a/b", "y"), ("a", "x")]], ids=["below a file", "over a directory"])
def test_files_that_cannot_be_are_the_requests_own_fault(on, files):
    if on is None:
        return
    done = on.project(["echo ran"], files)
    assert (done.outcome, done.steps, done.artifacts) == ("setup_failed", [], []) and done.detail


def test_it_speaks_the_languages_it_says(on):
    if on is None:
        return
    languages = on.describe()["projectEnvironment"]["languages"]
    assert "javascript" in languages
    steps = {"javascript": "node m.mjs", "python": "python3 p.py"}
    run = [steps[name] for name in languages if name in steps]
    done = on.project(run, {"m.mjs": "console.log(await Promise.resolve(6 * 7))\n", "p.py": "print(6 * 7)\n"}, timeoutMs=20000)
    assert [s.out for s in done.steps] == [b"42\n"] * len(run)
