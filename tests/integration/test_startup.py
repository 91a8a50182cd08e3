"""The start: every problem named at once and nothing started, ports and directories in use, the arguments, and what is said of settings."""
import os
import pathlib
import re
import socket
import stat
import subprocess
import time

import pytest

import gateway as g
from gateway import wait_for


def run_daemon(*arguments, **settings):
    env = {"PATH": os.environ["PATH"], **{k: v for k, v in settings.items() if v is not None}}
    return subprocess.run([str(g.DAEMON), *arguments], env=env, capture_output=True, text=True, timeout=g.START_S, stdin=subprocess.DEVNULL)


def fails(gw, status=2):
    """Starts what must not start; its output. Nothing may be left, no Redis may have been there."""
    gw.exit_status = status
    gw.spawn()
    assert gw.wait_exit() == status, gw.log()
    return gw.log()


# -- arguments --


@pytest.mark.parametrize("argument", ["-h", "--help", "help"])
def test_help(argument):
    done = run_daemon(argument)
    assert done.returncode == 0 and done.stderr == ""
    text = done.stdout
    # every setting of the page, and nothing was started
    page = (g.ROOT / "docs" / "configuration.md").read_text()
    names = set(re.findall(r"^\| `([A-Z_0-9]+)`", page, re.M))
    assert len(names) > 40 and not [n for n in names if n not in text]


def test_the_help_names_the_status_of_a_wrong_setting(gateway):
    """It said 1."""
    said = re.search(r"^ +(\d) +a setting is wrong", run_daemon("-h").stdout, re.M).group(1)
    fails(gateway(start=False, PLIMSOLL_LOG_LEVEL="loud"), int(said))


def test_version():
    done = run_daemon("--version")
    assert done.returncode == 0 and re.fullmatch(r"plimsolld \d+\.\d+\.\d+\S*\n", done.stdout)


@pytest.mark.parametrize("arguments", [["-x"], ["run"], ["--help", "x"], ["-h", "-h"], [""], ["--"]])
def test_unknown_arguments(arguments):
    done = run_daemon(*arguments)
    assert done.returncode == 2 and done.stdout == "" and "PLIMSOLL_ADDR" in done.stderr


# -- problems --


def test_all_problems_are_named_at_once_and_nothing_is_started(gateway, tmp_path):
    trace = tmp_path / "redis-was-started"
    fake = tmp_path / "redis-server"
    fake.write_text(f"#!/bin/sh\ntouch {trace}\nexec sleep 1000\n")
    fake.chmod(0o755)
    gw = gateway(start=False, SANDBOX_MAX_CONCURRENT="0", SANDBOX_RATE_PER_MIN="-1", PLIMSOLL_READ_TIMEOUT="soon", PLIMSOLL_TOKEN="short",
                 SANDBOX_PROVIDER="wasm,nothing", PLIMSOLL_PATH_PREFIX="no-slash", PLIMSOLL_REDIS_SERVER=str(fake), PLIMSOLL_TLS_CERT="/x",
                 PLIMSOLL_HARDENED="perhaps", SANDBOX_MIN_ISOLATION="strong", PLIMSOLL_ADDR="nowhere", PLIMSOLL_TRUSTED_PROXIES="10.0.0.0/40")
    log = fails(gw)
    for name in ("SANDBOX_MAX_CONCURRENT", "SANDBOX_RATE_PER_MIN", "PLIMSOLL_READ_TIMEOUT", "PLIMSOLL_TOKEN", "SANDBOX_PROVIDER",
                 "PLIMSOLL_PATH_PREFIX", "PLIMSOLL_TLS", "PLIMSOLL_HARDENED", "SANDBOX_MIN_ISOLATION", "PLIMSOLL_ADDR", "PLIMSOLL_TRUSTED_PROXIES"):
        assert name in log, f"{name} is not named:\n{log}"
    assert "nothing was started" in log
    assert not trace.exists() and not gw.state.exists() and not gw.log_lines("process started")


@pytest.mark.parametrize("settings, named", [
    ({"SANDBOX_MAX_CONCURRENT": "8193"}, "SANDBOX_MAX_CONCURRENT"), ({"SANDBOX_MAX_CONCURRENT": "4", "SANDBOX_PER_KEY_CONCURRENT": "5"}, "SANDBOX_PER_KEY_CONCURRENT"),
    ({"SANDBOX_MAX_CONCURRENT": "8x"}, "SANDBOX_MAX_CONCURRENT"), ({"SANDBOX_PROVIDER": "e2b"}, "e2b"), ({"SANDBOX_PROVIDER": "wasm,wasm"}, "wasm"),
    ({"SANDBOX_CPUS": "1"}, "SANDBOX_CPUS"), ({"SANDBOX_PIDS": "10"}, "SANDBOX_PIDS"),
    ({"SANDBOX_MAX_SESSIONS": "1"}, "SANDBOX_MAX_SESSIONS"), ({"PLIMSOLL_GRANTS_FILE": "/x"}, "PLIMSOLL_GRANTS_FILE"),
    ({"PLIMSOLL_REDIS_URL": "http://x"}, "PLIMSOLL_REDIS_URL"), ({"PLIMSOLL_USER": "no-such-user"}, "PLIMSOLL_USER"),
    ({"PLIMSOLL_USER": "root"}, "PLIMSOLL_USER"),
    ({"PLIMSOLL_STATE_DIR": "relative"}, "PLIMSOLL_STATE_DIR"), ({"PLIMSOLL_STATE_DIR": "/tmp/" + "x" * 100}, "PLIMSOLL_STATE_DIR"),
    ({"PLIMSOLL_STATE_DIR": "/proc/nothing/here"}, "PLIMSOLL_STATE_DIR"), ({"PLIMSOLL_TLS_CERT": "/x", "PLIMSOLL_TLS_KEY": "/y"}, "PLIMSOLL_TLS_CERT"),
    ({"PLIMSOLL_CLIENTS_FILE": "/nonexistent/callers"}, "/nonexistent/callers"), ({"PLIMSOLL_TOKEN": None}, "PLIMSOLL_INSECURE"),
    ({"PLIMSOLL_EVIDENCE_MAX_AGE": "10s", "PLIMSOLL_PROOF_INTERVAL": "10s"}, "PLIMSOLL_EVIDENCE_MAX_AGE"), ({"PLIMSOLL_LOG_LEVEL": "loud"}, "PLIMSOLL_LOG_LEVEL")],
    ids=lambda v: "-".join(f"{k}={(x or '')[:20]}" for k, x in v.items()) if isinstance(v, dict) else "")
def test_a_problem_is_named(gateway, settings, named):
    log = fails(gateway(start=False, **settings))
    assert named in log
    assert "process started" not in log


def test_a_problem_with_a_secret_does_not_print_it(gateway):
    gw = gateway(start=False, PLIMSOLL_TOKEN="not-32-long", PLIMSOLL_REDIS_URL="redis://user:pa55word@host:99999/x")
    gw.secrets += ["not-32-long", "pa55word"]
    log = fails(gw)
    assert "PLIMSOLL_TOKEN" in log and "PLIMSOLL_REDIS_URL" in log


def test_hardened_mode_names_every_rule(gateway):
    log = fails(gateway(start=False, PLIMSOLL_HARDENED="1", PLIMSOLL_INSECURE="1", PLIMSOLL_ADDR=f":{g.free_port()}",
                        SANDBOX_RATE_PER_MIN="0"))
    for text in ("PLIMSOLL_INSECURE", "SANDBOX_RATE_PER_MIN", "PLIMSOLL_CLIENTS_FILE", "without TLS", "wasm", "SANDBOX_CPUS"):
        assert text in log, log


def test_unknown_settings_are_warned_about_and_ignored(gateway):
    gw = gateway(PLIMSOLL_TYPO="1", SANDBOX_MAX_CONCURENT="3", OTHER_THING="x")
    names = {line["name"] for line in gw.log_lines("unknown setting ignored", level="warn")}
    assert names == {"PLIMSOLL_TYPO", "SANDBOX_MAX_CONCURENT"}
    gw.ok("1")


def test_values_are_trimmed_and_empty_ones_are_none(gateway):
    gw = gateway(SANDBOX_MAX_CONCURRENT="  3\t", PLIMSOLL_PATH_PREFIX="   ", SANDBOX_RATE_PER_MIN="")
    line = gw.log_lines("plimsolld listening")[0]
    assert line["max_concurrent"] == 3 and line["rate_per_min"] == 30
    gw.ok("1")


def test_the_line_of_the_start(gateway):
    gw = gateway(SANDBOX_MAX_CONCURRENT="6", SANDBOX_PER_KEY_CONCURRENT=None, SANDBOX_RATE_PER_MIN="12", SANDBOX_MEMORY_MB="64")
    [line] = gw.log_lines("plimsolld listening")
    assert line["level"] == "info" and line["addr"] == f"127.0.0.1:{gw.port}" and line["metrics_addr"] == f"127.0.0.1:{gw.metrics_port}"
    assert (line["auth"], line["tls"], line["provider"], line["isolation"], line["redis"]) == (True, False, "wasm", "process", "private")
    assert (line["max_concurrent"], line["per_caller"], line["rate_per_min"], line["burst"], line["memory_mb"]) == (6, 3, 12, 12, 64)


# -- what is in use --


def test_a_port_in_use(gateway):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        gw = gateway(start=False, PLIMSOLL_ADDR=f"127.0.0.1:{s.getsockname()[1]}")
        log = fails(gw, 1)
        assert "PLIMSOLL_ADDR" in log and "use" in log and not gw.log_lines("process started")
        gw = gateway(start=False, PLIMSOLL_METRICS_ADDR=f"127.0.0.1:{s.getsockname()[1]}")
        log = fails(gw, 1)
        assert "PLIMSOLL_METRICS_ADDR" in log and not gw.log_lines("process started")


def test_both_ports_in_use_are_named_together(gateway):
    with socket.socket() as a, socket.socket() as b:
        for s in (a, b):
            s.bind(("127.0.0.1", 0))
            s.listen()
        log = fails(gateway(start=False, PLIMSOLL_ADDR=f"127.0.0.1:{a.getsockname()[1]}", PLIMSOLL_METRICS_ADDR=f"127.0.0.1:{b.getsockname()[1]}"), 1)
        assert "PLIMSOLL_ADDR" in log and "PLIMSOLL_METRICS_ADDR" in log


def test_a_state_directory_in_use(gateway):
    first = gateway()
    second = gateway(start=False, state=first.state)
    log = fails(second)
    assert "another gateway" in log and "process started" not in log
    # the first is none the worse
    first.ok("1")


def test_the_state_directory_is_private(gateway):
    gw = gateway()
    for path in (gw.state, gw.state / "run", gw.state / "redis"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
    assert gw.token not in "".join(p.read_text(errors="replace") for p in gw.state.rglob("*") if p.is_file())


def test_a_redis_program_that_is_not_there(gateway):
    gw = gateway(start=False, PLIMSOLL_REDIS_SERVER="/nonexistent/redis-server")
    began = time.monotonic()
    assert "the private Redis did not start" in fails(gw, 1)
    assert time.monotonic() - began < 10, "it was waited for"


def test_a_redis_that_is_not_there_is_waited_for(gateway):
    """A configured Redis may come later: nothing runs without it, and it is used as soon as it is there."""
    port = g.free_port()
    gw = gateway(PLIMSOLL_REDIS_URL=f"redis://127.0.0.1:{port}/0")
    assert gw.get("/readyz").status == 503 and gw.get("/healthz").status == 200
    answer = gw.run("1", g.new_id())
    assert answer.status == 503 and answer.reason == "capacity", answer
    assert gw.describe().status == 200
    server = g.Redis(port).start()
    try:
        wait_for(lambda: gw.get("/readyz").status == 200, "to be ready", 30)
        gw.ok("1")
    finally:
        server.stop()


@pytest.mark.faults
def test_a_wall_that_proves_nothing_serves_nothing(gateway):
    gw = gateway(start=False, SANDBOX_PROVIDER="standin")
    gw.faults.arm("standin.prove", "fail")
    log = fails(gw, 1)
    assert "no backend could prove its wall" in log and "plimsolld listening" not in log


@pytest.mark.faults
@pytest.mark.parametrize("floor, starts", [("process", True), ("container", True), ("kernel", False), ("vm", False)])
def test_the_floor_of_the_start(gateway, floor, starts):
    gw = gateway(start=False, SANDBOX_PROVIDER="standin", SANDBOX_MIN_ISOLATION=floor)
    if starts:
        gw.start()
        assert gw.run("standin: answer").status == 200
    else:
        assert "SANDBOX_MIN_ISOLATION" in fails(gw, 1)


def test_nothing_is_served_before_the_start_is_complete(gateway):
    """The port is bound early; whoever connects waits, and is served then."""
    gw = gateway(start=False)
    gw.spawn()

    def connected():
        try:
            return gw.connect()
        except ConnectionRefusedError:
            return None
    with wait_for(connected, "the port to be bound", g.START_S) as c:
        c.send(g.head("/readyz", method="GET"))
        answer = c.read_answer()
        assert answer.status in (200, 503)
    gw.wait_log("plimsolld listening", g.START_S)
    wait_for(lambda: gw.get("/readyz").status == 200, "to be ready")


# -- privileges --


@pytest.mark.skipif(os.geteuid() != 0, reason="root gives something up here")
def test_roles_are_not_root_and_cannot_become_it(gateway):
    gw = gateway()
    gw.ok("1")
    for pid in g.descendants(gw.process.pid):
        try:
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        uids = re.search(r"^Uid:\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)", status, re.M).groups()
        name = g.name_of(pid)
        assert "0" not in uids, f"{name} runs as root"
        assert re.search(r"^NoNewPrivs:\s+1", status, re.M), f"{name} may gain privileges"
        if "redis" not in name:
            assert int(re.search(r"^CapEff:\s+(\w+)", status, re.M).group(1), 16) == 0, f"{name} has capabilities"


def test_no_role_dumps_core(gateway):
    gw = gateway()
    for pid in g.descendants(gw.process.pid):
        try:
            limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
        except OSError:
            continue
        if "redis" not in g.name_of(pid):
            assert re.search(r"^Max core file size\s+0\s+0", limits, re.M), g.name_of(pid)
