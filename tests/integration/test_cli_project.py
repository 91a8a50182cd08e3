"""`plimsoll run --project` through a real gateway whose wall is a stand-in: what is sent, what is told, what is written, and the status."""
import base64
import hashlib
import json
import os
import subprocess

import pytest

import gateway as g


@pytest.fixture(scope="module")
def walls():
    gw = g.Gateway({"SANDBOX_PROVIDER": "standin,wasm", "PLIMSOLL_STANDIN1": "tier=container"})
    with g.served(gw):
        yield gw.start()


@pytest.fixture
def home(tmp_path):
    (tmp_path / "p" / "src").mkdir(parents=True)
    (tmp_path / "p" / "main.js").write_text("console.log(1)\n")
    (tmp_path / "p" / "src" / "nul.txt").write_bytes(b"x\0y\xc3\xa9")
    return tmp_path


def run(gw, home, *args, token=None):
    return subprocess.run([str(g.COMMAND), "run", "--url", f"http://127.0.0.1:{gw.port}", *args], cwd=home, capture_output=True, timeout=60,
                          env={"PATH": os.environ["PATH"], "PLIMSOLL_CALLER_TOKEN": token or gw.token})


def acts(*lines):
    return "\n".join("standin: " + line for line in lines)


def test_files_steps_and_artifacts(walls, home):
    result = run(walls, home, "--project", "p", "--step", acts("copy"), "--step", "second", "--artifact", "src/nul.txt", "--artifact", "main.js",
                 "--artifact", "missing", "--out", "back")
    assert result.returncode == 0, result
    assert result.stdout == (acts("copy") + "second").encode()
    err = result.stderr.decode()
    assert "plimsoll: step 1 of 2, exit 0, 1 ms: standin: copy" in err and "plimsoll: step 2 of 2, exit 0, 1 ms: second" in err
    assert "artifact src/nul.txt, 5 bytes, written below back" in err and "artifact missing is not there" in err
    assert (home / "back/src/nul.txt").read_bytes() == b"x\0y\xc3\xa9"
    assert (home / "back/main.js").read_text() == "console.log(1)\n"
    assert sorted(p.name for p in (home / "back").rglob("*")) == ["main.js", "nul.txt", "src"]


def test_without_out_nothing_is_written(walls, home):
    result = run(walls, home, "--project", "p", "--step", acts("copy"), "--artifact", "main.js")
    assert result.returncode == 0 and b"artifact main.js, 15 bytes, not written (no --out)" in result.stderr
    assert sorted(p.name for p in home.iterdir()) == ["p"]


@pytest.mark.parametrize("lines, status, said", [
    (("steps 0 3",), 3, b"1 of 3 steps did not run"), (("steps 0 0 0",), 0, b"step 3 of 3, exit 0"), (("steps 0 -1",), 255, b"exit -1"),
    (("hold 5000",), 124, b"the run ended as timed_out"), (("outcome 4 no frame", "steps 0"), 70, b"the run ended as protocol_error: no frame"),
    (("outcome 2 cannot write", "steps"), 70, b"setup_failed: cannot write"), (("outcome 5", "steps 1"), 70, b"ended as runner_failed")])
def test_the_status(walls, home, lines, status, said):
    result = run(walls, home, "--project", "p", "--timeout", "300ms", "--step", acts(*lines), "--step", "b", "--step", "c")
    assert result.returncode == status and said in result.stderr, result


def test_json(walls, home):
    result = run(walls, home, "--json", "--project", "p", "--step", acts("copy", "steps 0 3"), "--step", "b", "--step", "c",
                 "--artifact", "src/nul.txt", "--artifact", "nowhere")
    told = json.loads(result.stdout)
    assert result.returncode == 3 and result.stderr == b""
    assert (told["verdict"], told["exit_code"], told["timed_out"], told["outcome"], told["isolation"]) == ("answered", 3, False, "completed", "container")
    assert [(s["command"], s["exit_code"], s["stdout"]) for s in told["steps"]] == [(acts("copy", "steps 0 3"), 0, acts("copy", "steps 0 3")), ("b", 3, "b")]
    assert told["artifacts_missing"] == ["nowhere"] and told["artifacts_truncated"] is False
    [artifact] = told["artifacts"]
    content = b"x\0y\xc3\xa9"
    assert (artifact["path"], artifact["bytes"], artifact["written"]) == ("src/nul.txt", 5, False)
    assert artifact["sha256"] == hashlib.sha256(content).hexdigest() and base64.b64decode(artifact["content_base64"]) == content
    assert told["record"]["recordSha256"] and told["error"] is None


def test_json_says_what_was_written(walls, home):
    result = run(walls, home, "--json", "--project", "p", "--step", acts("copy"), "--artifact", "main.js", "--out", "back")
    [artifact] = json.loads(result.stdout)["artifacts"]
    assert artifact["written"] is True and "content" not in artifact and (home / "back/main.js").exists()


def test_the_floor(walls, home):
    assert run(walls, home, "--project", "p", "--floor", "container", "--step", "true").returncode == 0
    result = run(walls, home, "--project", "p", "--floor", "kernel", "--step", "true")
    assert result.returncode == 69 and b"not dispatched (isolation)" in result.stderr and result.stdout == b""
    result = run(walls, home, "--project", "p", "--backend", "wasm", "--step", "true")
    assert result.returncode == 69 and b"not dispatched (unsupported)" in result.stderr


def test_the_same_request_id_does_not_run_twice(walls, home):
    key = g.new_id()
    args = ("--project", "p", "--request-id", key, "-v", "--step", acts("copy"))
    assert b"replayed" not in run(walls, home, *args).stderr
    assert b"replayed from the first answer" in run(walls, home, *args).stderr
    (home / "p" / "main.js").write_text("console.log(2)\n")
    result = run(walls, home, *args)
    assert result.returncode == 69 and b"not dispatched (request)" in result.stderr


def test_verbose(walls, home):
    result = run(walls, home, "-v", "--project", "p", "--step", acts("steps 7"))
    last = result.stderr.decode().splitlines()[-1]
    assert result.returncode == 7 and last.startswith("plimsoll: project completed, 1 steps ran in ") and "by standin behind container" in last


def test_artifacts_go_nowhere_else(walls, home):
    outside = home / "outside"
    outside.mkdir()
    (home / "back").mkdir()
    (home / "back" / "src").symlink_to(outside)
    (home / "back" / "main.js").symlink_to(home / "kept")
    (home / "kept").write_text("kept")
    result = run(walls, home, "--project", "p", "--step", acts("copy"), "--artifact", "main.js", "--artifact", "src/nul.txt", "--out", "back")
    assert result.returncode == 74, result
    assert b"src/nul.txt: a directory of its path is a symbolic link or a file" in result.stderr
    assert (home / "kept").read_text() == "kept" and not (home / "back/main.js").is_symlink() and list(outside.iterdir()) == []


def test_what_a_project_cannot_hold(walls, home):
    runs = walls.metric("plimsoll_runs_total")
    (home / "p" / "image.png").write_bytes(b"\x89PNG\xff")
    result = run(walls, home, "--project", "p", "--step", "true")
    assert result.returncode == 66 and b"cannot take p as a project: image.png: is not valid UTF-8" in result.stderr
    told = json.loads(run(walls, home, "--json", "--project", "p", "--step", "true").stdout)
    assert told["verdict"] == "refused" and told["error"]["nothing_ran"] is True
    assert run(walls, home, "--project", "nowhere", "--step", "true").returncode == 66
    assert walls.metric("plimsoll_runs_total") == runs


@pytest.mark.parametrize("args, said", [
    (("--project", "p"), b"which --step?"), (("--project", "p", "--step", "a", "main.js"), b"not both"), (("--step", "a", "x.js"), b"belong to a --project"),
    (("--out", "d", "x.js"), b"belongs to a --project"), (("--artifact", "a", "x.js"), b"belong to a --project"),
    (("--project", "p", "--step", "a", "--out", "d"), b"needs an --artifact"), (("--project", "p", "--step", "a", "--artifact", "../a"), b"relative"),
    (("--project", "p", "--step", "a", "--artifact", "/a"), b"relative"), (("--project", "p", "--step", "a", "--artifact", ""), b"1 to 1024 bytes"),
    (("--project", "p", "--step", "a", "--artifact", "a", "--artifact", "a"), b"a path twice"), ((), b"which FILE?"), (("a", "b"), b"one FILE at a time"),
    (("--project", "p", *["--step", "a"] * 21), b"at most 20 times"), (("--project", "p", "--step", "s" * 16385), b"at most 16384 bytes"),
    (("--project", "p", "--step", "a", *[x for n in range(101) for x in ("--artifact", f"a{n}")]), b"at most 100 times")])
def test_usage(walls, home, args, said):
    result = run(walls, home, *args)
    assert result.returncode == 2 and said in result.stderr and result.stdout == b"", result


@pytest.mark.parametrize("args", [["--step", "a"] * 20, ["--step", "s" * 16384], ["--step", "a", *[x for n in range(100) for x in ("--artifact", f"a{n}")]]])
def test_as_much_as_fits(walls, home, args):
    assert run(walls, home, "--project", "p", *args).returncode == 0


def test_the_list_shows_the_outcome(walls, home):
    run(walls, home, "--project", "p", "--step", acts("outcome 5", "steps 0"))
    listed = subprocess.run([str(g.COMMAND), "runs", "list", "--url", f"http://127.0.0.1:{walls.port}"], capture_output=True, timeout=60,
                            env={"PATH": os.environ["PATH"], "PLIMSOLL_CALLER_TOKEN": walls.token})
    assert b"runner_failed" in listed.stdout and b"project" in listed.stdout
