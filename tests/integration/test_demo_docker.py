"""`plimsoll demo --docker`: what it shows on an Engine that runs, what it says when there is none it could use, and that it leaves nothing."""
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess

import pytest

import engine as e
import gateway as g

NOBODY = 65534


def settings(path):
    return {"PATH": os.environ["PATH"], "SANDBOX_DOCKER_SOCKET": str(path), "SANDBOX_PROVIDER": "wasm", "PLIMSOLL_CALLER_TOKEN": "x" * 40}


def directories():
    return {p.name for pattern in ("plimsoll-demo-*", "plimsoll-engine-*") for p in pathlib.Path("/tmp").glob(pattern)}


def rows(out):
    """The table: a list of {heading: cell}."""
    lines = out[out.index("RUN  "):].splitlines()
    starts = [m.start() for m in re.finditer(r"(?:^|  )\S", lines[0])]
    cut = [[line[a:b].strip() for a, b in zip(starts, [*starts[1:], None])] for line in lines[:lines.index("")]]
    return [dict(zip(cut[0], cells)) for cells in cut[1:]]


@pytest.fixture
def alone(tmp_path):
    """The command where another user can start it."""
    tmp_path.chmod(0o755)
    shutil.copy(g.COMMAND, tmp_path / "plimsoll")
    (tmp_path / "plimsoll").chmod(0o755)
    # every directory of pytest's own above it is closed to others
    home = pathlib.Path(g.tempfile.mkdtemp(prefix="pld-", dir="/tmp"))
    home.chmod(0o755)
    shutil.move(tmp_path / "plimsoll", home / "plimsoll")
    yield home
    shutil.rmtree(home)


def test_everything_is_shown_on_an_engine_that_runs():
    engine = e.shared()
    before = directories()
    done = subprocess.run([str(g.COMMAND), "demo", "--docker"], env=settings(engine.path), capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Everything held." in done.stdout and "NOT SO" not in done.stdout and "using the Engine at" in done.stderr
    table = rows(done.stdout)
    assert [(r["RUN"], r["FLOOR"], r["VERDICT"], r["BACKEND"], r["TIER"]) for r in table] == [
        ("snippet", "container", "ran", "docker", "container"), ("snippet", "kernel", "ran", "gvisor", "kernel"), ("snippet", "vm", "refused", "-", "-"),
        ("snippet", "-", "ran", "wasm", "process"), ("TypeScript", "container", "ran", "docker", "container"),
        ("TypeScript", "kernel", "ran", "gvisor", "kernel"), ("Python", "container", "ran", "docker", "container"), ("Python", "kernel", "ran", "gvisor", "kernel")]
    for kind in ("snippet", "TypeScript", "Python"):
        prints = {r["OUTPUT SHA-256"] for r in table if r["RUN"] == kind and r["VERDICT"] == "ran"}
        assert len(prints) == 1 and re.fullmatch("[0-9a-f]{16}", prints.pop())
    assert directories() <= before
    e.expect_nothing_left(engine)


def test_interrupted_it_leaves_nothing():
    engine = e.shared()
    before = directories()
    process = subprocess.Popen([str(g.COMMAND), "demo", "--docker"], env=settings(engine.path), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in process.stdout:
        if line.startswith("   ok: docker took it"):
            break
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)  # an impatient person
    rest = process.stdout.read()
    assert process.wait(60) == 1, rest
    assert "interrupted" in rest, rest
    assert directories() <= before
    e.expect_nothing_left(engine)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_no_engine_and_no_right_to_start_one(alone):
    done = subprocess.run([str(alone / "plimsoll"), "demo", "--docker"], env=settings(alone / "no.sock"), capture_output=True, text=True, timeout=60,
                          user=NOBODY, cwd="/")
    assert done.returncode == 1 and "no Engine answers at" in done.stderr and "must be run as root" in done.stderr, done


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_an_engine_this_user_may_not_use(alone):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(alone / "engine.sock"))
        (alone / "engine.sock").chmod(0o600)
        listener.listen()
        done = subprocess.run([str(alone / "plimsoll"), "demo", "--docker"], env=settings(alone / "engine.sock"), capture_output=True, text=True,
                              timeout=60, user=NOBODY, cwd="/")
    assert done.returncode == 1 and "which this user may not use" in done.stderr, done


def test_an_argument_too_many():
    done = subprocess.run([str(g.COMMAND), "demo", "--docker", "x"], env=settings("/nowhere"), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "it takes no arguments" in done.stderr
