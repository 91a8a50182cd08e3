"""`plimsoll demo` against stand-in daemons: what it demands, that it notices when a promise is broken, and that it leaves nothing behind.

The stand-in is a script called plimsolld beside a copy of the command, as the demo starts what lies next to it.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import pytest

HERE = pathlib.Path(__file__).resolve().parent
BIN = os.environ.get("PLIMSOLL_BIN", str(HERE.parents[1] / "build/test/plimsoll"))

# A daemon that keeps the demo's three promises, unless a change to KNOBS breaks one.
DAEMON = """\
#!{python}
import http.server, json, os, signal, sys, time, hashlib
KNOBS = {knobs!r}
with open({seen!r}, "a") as seen:
    seen.write(json.dumps({{"pid": os.getpid(), "env": dict(os.environ), "argv": sys.argv}}) + "\\n")
if KNOBS.get("exit"):
    print("cannot start:", KNOBS["exit"], file=sys.stderr)
    sys.exit(1)
os.environ["PLIMSOLL_BIN"] = "unused"
sys.path.insert(0, {here!r})
from test_cli import answer_to, request_digest
answers, runs, ready_at = {{}}, [], time.monotonic() + KNOBS.get("ready_after", 0)

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args):
        pass
    def send(self, status, body, content_type="application/json", headers=()):
        self.send_response_only(status)
        for name, content in [("Content-Type", content_type), ("Content-Length", str(len(body))), *headers]:
            self.send_header(name, content)
        if "Plimsoll-Request-Id" in self.headers:
            self.send_header("Plimsoll-Request-Id", self.headers["Plimsoll-Request-Id"])
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        if self.path == "/readyz":
            ready = time.monotonic() >= ready_at
            return self.send(200 if ready else 503, b"ready\\n" if ready else b"not ready\\n", "text/plain")
        assert self.headers["Authorization"] == "Bearer " + os.environ["PLIMSOLL_TOKEN"]
        self.send(200, json.dumps({{"runs": runs, "next_cursor": None}}).encode())
    def do_POST(self):
        assert self.headers["Authorization"] == "Bearer " + os.environ["PLIMSOLL_TOKEN"]
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        identity = self.headers["Plimsoll-Request-Id"]
        if request.get("minimumIsolation") == "vm" and not KNOBS.get("ignores_floor"):
            detail = [] if KNOBS.get("no_mark") else [{{"type": "plimsoll.v1.NotDispatched", "value": "CAU"}}]
            return self.send(400, json.dumps({{"code": "failed_precondition", "message": "the wall is process", "details": detail}}).encode())
        replayed = identity in answers and not KNOBS.get("runs_twice")
        if not replayed:
            out = KNOBS.get("output", b"primes below 1000000: 78498\\n") if "primes" in request["javascript"]["code"] else os.urandom(8).hex().encode()
            answers[identity] = json.dumps(answer_to(request, stdout=out)).encode()
            runs.append({{"request_id": identity}})
        self.send(200, answers[identity], headers=[("Plimsoll-Replayed", "1")] if replayed and not KNOBS.get("hides_replay") else [])

host, port = os.environ["PLIMSOLL_ADDR"].split(":")
if KNOBS.get("ignores_sigterm"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(KNOBS.get("status", 0)))
if KNOBS.get("child"):
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
http.server.ThreadingHTTPServer((host, int(port)), Handler).serve_forever()
"""


class Demo:
    def __init__(self, tmp_path):
        self.dir, self.seen = tmp_path, tmp_path / "seen"
        self.command = tmp_path / "plimsoll"
        shutil.copy(BIN, self.command)

    def place(self, **knobs):
        path = self.dir / "plimsolld"
        path.write_text(textwrap.dedent(DAEMON).format(python=sys.executable, knobs=knobs, seen=str(self.seen), here=str(HERE)))
        path.chmod(0o755)

    def start(self):
        return subprocess.Popen([self.command, "demo"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/",
                                env={"PATH": os.environ["PATH"], "SANDBOX_PROVIDER": "docker", "PLIMSOLL_CALLER_TOKEN": "x" * 40})

    def run(self):
        process = self.start()
        out, err = process.communicate(timeout=120)
        return process.returncode, out.decode(), err.decode()

    def daemons(self):
        return [json.loads(line) for line in self.seen.read_text().splitlines()] if self.seen.exists() else []

    def directories(self):
        return [pathlib.Path(daemon["env"]["PLIMSOLL_STATE_DIR"]).parent for daemon in self.daemons()]


@pytest.fixture
def demo(tmp_path):
    one = Demo(tmp_path)
    yield one
    assert not [path for path in one.directories() if path.exists()]


def is_alive(pid):
    """Running, not merely waiting to be collected."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_everything_holds(demo):
    demo.place()
    status, out, err = demo.run()
    assert status == 0, out + err
    assert "Everything held." in out and "NOT SO" not in out and "evidence, not attestation" in out
    for part in ("78498", "failed_precondition", "isolation", "the wall is process", "replayed", "wasm", "process"):
        assert part in out
    [daemon] = demo.daemons()
    env = daemon["env"]
    assert env["SANDBOX_PROVIDER"] == "wasm" and env["PLIMSOLL_METRICS_ADDR"] == "off" and len(env["PLIMSOLL_TOKEN"]) == 64
    assert "PLIMSOLL_CALLER_TOKEN" not in env and env["PLIMSOLL_ADDR"].startswith("127.0.0.1:")
    assert env["PLIMSOLL_TOKEN"] not in out + err and env["PLIMSOLL_TOKEN"] not in " ".join(daemon["argv"])
    assert not is_alive(daemon["pid"])


def test_the_real_gateway_keeps_its_promises():
    result = subprocess.run([BIN, "demo"], env={"PATH": os.environ["PATH"]}, capture_output=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    assert b"Everything held." in result.stdout and b"NOT SO" not in result.stdout


@pytest.mark.parametrize("knobs, said", [
    ({"output": b"primes below 1000000: 78497\n"}, "right count"), ({"ignores_floor": True}, "nothing ran"), ({"no_mark": True}, "nothing ran"),
    ({"runs_twice": True}, "same record"), ({"hides_replay": True}, "marked as replayed"), ({"status": 3}, "status 3")])
def test_a_broken_promise_is_noticed(demo, knobs, said):
    demo.place(**knobs)
    status, out, err = demo.run()
    assert status == 1 and "Not everything held." in out
    assert any(said in line for line in (out + err).splitlines() if "NOT SO" in line or "demo:" in line)


def test_waits_until_ready_and_says_so(demo):
    demo.place(ready_after=4)
    status, out, err = demo.run()
    assert status == 0 and "waiting for /readyz" in err and "ready after" in err


@pytest.mark.parametrize("why, tries", [("it is Tuesday", 1), ("Address already in use", 5)])
def test_daemon_that_cannot_start(demo, why, tries):
    demo.place(exit=why)
    status, out, err = demo.run()
    assert status == 1 and out == "" and "cannot start: " + why in err
    assert len({daemon["env"]["PLIMSOLL_ADDR"] for daemon in demo.daemons()}) == tries  # another port each time


def test_no_daemon(demo):
    status, out, err = demo.run()
    assert status == 1 and "no plimsolld" in err


def test_daemon_that_does_not_stop_is_killed(demo):
    demo.place(ignores_sigterm=True, child=True)
    status, out, err = demo.run()
    assert status == 1 and "is killed" in err
    assert not is_alive(demo.daemons()[0]["pid"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_stops_the_daemon(demo, number):
    demo.place(ready_after=60)
    process = demo.start()
    deadline = time.monotonic() + 30
    while not demo.seen.exists() or not demo.seen.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == 1 and not is_alive(demo.daemons()[0]["pid"])


def test_daemon_ends_when_the_demo_is_killed(demo):
    demo.place(ready_after=60)
    process = demo.start()
    deadline = time.monotonic() + 30
    while not demo.seen.exists() or not demo.seen.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(1)  # the stand-in installs its handler after it has said who it is
    process.kill()
    process.communicate(timeout=30)
    pid = demo.daemons()[0]["pid"]
    while is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    # A killed demo cannot tidy up; its directory is this test's to remove.
    for path in demo.directories():
        shutil.rmtree(path)
