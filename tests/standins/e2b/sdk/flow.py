"""The official Python SDK against the stand-in: its main flows ("flow"), or every row of oracle.json ("oracle").

Prints a line of JSON for each check: {name, ok, detail}. The stand-in's addresses come from the SDK's own environment variables."""
import hashlib
import json
import os
import re
import sys
import time
import urllib.error
import urllib.request

from e2b import (AuthenticationException, CommandExitException, FileNotFoundException, InvalidArgumentException, PtySize, Sandbox, SandboxException,
                 SandboxQuery, SandboxState, TimeoutException)

CHECKS = []


def check(name):
    return lambda function: CHECKS.append((name, function)) or function


def sha(data):
    return hashlib.sha256(data).hexdigest()


def equal(a, b):
    if a != b:
        raise AssertionError(f"{a!r} is not {b!r}"[:800])


def thrown(kind, function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except kind as e:
        return e
    raise AssertionError("nothing was thrown")


def until(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("it did not become so")
        time.sleep(0.02)


def admin(method, name, value=None):
    request = urllib.request.Request(f"{os.environ['E2B_API_URL']}/__standin/{name}", None if value is None else json.dumps(value).encode(),
                                     {"Authorization": f"Bearer {os.environ['STANDIN_TOKEN']}"}, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def say(name, ok, detail):
    print(json.dumps({"name": name, "ok": ok, "detail": detail}), flush=True)


class S:
    """The sandbox the checks share."""
    s: Sandbox


@check("create without options")
def _():
    S.s = Sandbox.create()
    assert re.fullmatch(r"i[a-z0-9]{20}", S.s.sandbox_id), S.s.sandbox_id
    equal(S.s.traffic_access_token, None)


@check("create with metadata, deny-all and no public traffic")
def _():
    b = Sandbox.create(metadata={"k": "v"}, timeout=60, allow_internet_access=False, network={"deny_out": ["0.0.0.0/0"], "allow_public_traffic": False})
    assert b.traffic_access_token
    info = b.get_info()
    equal((info.metadata, info.allow_internet_access, info.network["deny_out"], info.network["allow_public_traffic"]), ({"k": "v"}, False, ["0.0.0.0/0"], False))
    b.kill()


@check("exit 0, both outputs")
def _():
    r = S.s.commands.run("echo out; echo err >&2")
    equal((r.exit_code, r.stdout, r.stderr), (0, "out\n", "err\n"))


@check("exit 3")
def _():
    e = thrown(CommandExitException, S.s.commands.run, "echo partial; exit 3")
    equal((e.exit_code, e.stdout), (3, "partial\n"))


@check("missing command")
def _():
    equal(thrown(CommandExitException, S.s.commands.run, "no-such-command").exit_code, 127)


@check("callbacks in order")
def _():
    seen = []
    S.s.commands.run("for i in 1 2 3; do echo $i; sleep 0.05; done", on_stdout=seen.append)
    equal("".join(seen), "1\n2\n3\n")


@check("environment and folder")
def _():
    equal(S.s.commands.run("echo $A; pwd; id -un; echo $E2B_SANDBOX", envs={"A": "b c"}, cwd="/tmp").stdout, "b c\n/tmp\nuser\ntrue\n")


@check("as root")
def _():
    equal(S.s.commands.run("id -u", user="root").stdout, "0\n")


@check("unknown user")
def _():
    thrown(AuthenticationException, S.s.commands.run, "id", user="nobody-here")


@check("missing folder")
def _():
    thrown(InvalidArgumentException, S.s.commands.run, "id", cwd="/nope")


@check("in the background, connect and kill")
def _():
    handle = S.s.commands.run("read x; echo late; exec sleep 100", background=True, stdin=True)
    again = S.s.commands.connect(handle.pid)
    S.s.commands.send_stdin(handle.pid, "go\n")
    assert handle.pid in [p.pid for p in S.s.commands.list()]
    equal(next(iter(again))[0], "late\n")
    again.disconnect()
    equal(handle.kill(), True)
    e = thrown(CommandExitException, handle.wait)
    equal((e.exit_code, e.error), (-1, "signal: killed"))
    equal(S.s.commands.kill(handle.pid), False)


@check("standard input and its end")
def _():
    handle = S.s.commands.run("cat", background=True, stdin=True)
    S.s.commands.send_stdin(handle.pid, "abc")
    S.s.commands.send_stdin(handle.pid, "def")
    S.s.commands.close_stdin(handle.pid)
    equal(handle.wait().stdout, "abcdef")


@check("a MiB of output")
def _():
    out = S.s.commands.run("head -c 1048576 /dev/zero | tr '\\0' x").stdout
    equal((len(out), sha(out.encode())), (1048576, sha(b"x" * 1048576)))


@check("a terminal")
def _():
    handle = S.s.pty.create(PtySize(rows=20, cols=90))
    S.s.pty.resize(handle.pid, PtySize(rows=30, cols=100))
    S.s.pty.send_stdin(handle.pid, b"stty size; exit 4\n")
    text = bytearray()
    e = thrown(CommandExitException, handle.wait, on_pty=text.extend)
    equal((e.exit_code, b"30 100" in text), (4, True))


@check("a time limit")
def _():
    thrown(TimeoutException, S.s.commands.run, "sleep 100", timeout=1)
    until(lambda: not S.s.commands.list())


@check("write, read, exists, info")
def _():
    w = S.s.files.write("/home/user/d/a.txt", "hello é")
    equal((w.name, w.path), ("a.txt", "/home/user/d/a.txt"))
    equal(S.s.files.read("d/a.txt"), "hello é")
    equal((S.s.files.exists("/home/user/d/a.txt"), S.s.files.exists("/nope")), (True, False))
    info = S.s.files.get_info("/home/user/d/a.txt")
    equal((info.size, info.owner, info.permissions), (8, "user", "-rw-r--r--"))


@check("metadata of a file")
def _():
    S.s.files.write("/home/user/meta", "x", metadata={"made-by": "check"})
    equal(S.s.files.get_info("/home/user/meta").metadata, {"made-by": "check"})


@check("list, make, rename, remove")
def _():
    f = S.s.files
    equal((f.make_dir("/home/user/m/n"), f.make_dir("/home/user/m/n")), (True, False))
    f.write("/home/user/m/f", "1")
    equal(sorted(f"{e.name} {e.type.value}" for e in f.list("/home/user/m")), ["f file", "n dir"])
    assert "n" in [e.name for e in f.list("/home/user", depth=2)]
    f.rename("/home/user/m/f", "/home/user/m/g")
    equal(f.read("/home/user/m/g"), "1")
    f.remove("/home/user/m")
    equal(f.exists("/home/user/m"), False)


@check("several files in one write")
def _():
    written = S.s.files.write_files([{"path": "/tmp/w1", "data": "one"}, {"path": "/tmp/w2", "data": b"two"}])
    equal([w.path for w in written], ["/tmp/w1", "/tmp/w2"])
    equal(S.s.commands.run("cat /tmp/w1 /tmp/w2").stdout, "onetwo")


@check("bytes of every value")
def _():
    data = bytes((i % 251) ^ (i >> 8 & 0xFF) for i in range(300_000))
    S.s.files.write("/home/user/bin", data)
    equal(sha(bytes(S.s.files.read("/home/user/bin", format="bytes"))), sha(data))
    equal(S.s.commands.run("sha256sum bin").stdout.split()[0], sha(data))


@check("a file that is not there")
def _():
    thrown(FileNotFoundException, S.s.files.read, "/nope")


@check("a folder is watched by polling")
def _():
    watch = S.s.files.watch_dir("/home/user")
    S.s.files.write("/home/user/watched", "x")
    seen = []
    until(lambda: seen.extend(f"{e.type.value} {e.name}" for e in watch.get_new_events()) or "create watched" in seen)
    watch.stop()


@check("signed URLs")
def _():
    up = S.s.upload_url("/home/user/signed", use_signature_expiration=100)
    body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="signed"\r\n\r\nby form\r\n--b--\r\n'
    with urllib.request.urlopen(urllib.request.Request(up, body, {"Content-Type": "multipart/form-data; boundary=b"})) as answer:
        equal(answer.status, 200)
    down = S.s.download_url("/home/user/signed")
    with urllib.request.urlopen(down) as answer:
        equal(answer.read(), b"by form")


@check("a list by metadata that needs every layer of encoding")
def _():
    b = Sandbox.create(metadata={"inst": "a b&c=d/é"})
    found = Sandbox.list(query=SandboxQuery(metadata={"inst": "a b&c=d/é"})).next_items()
    none = Sandbox.list(query=SandboxQuery(metadata={"inst": "a b"})).next_items()
    b.kill()
    equal(([f.sandbox_id for f in found], len(none)), ([b.sandbox_id], 0))


@check("pages of two over five")
def _():
    made = [Sandbox.create(metadata={"pages": "yes"}) for _ in range(5)]
    pages = Sandbox.list(limit=2, query=SandboxQuery(metadata={"pages": "yes"}))
    sizes, ids = [], set()
    while pages.has_next:
        page = pages.next_items()
        sizes.append(len(page))
        ids |= {p.sandbox_id for p in page}
    for m in made:
        m.kill()
    equal((sizes, len(ids)), ([2, 2, 1], 5))


@check("info and time to live")
def _():
    info = S.s.get_info()
    equal((info.sandbox_id, info.cpu_count, info.memory_mb, info.envd_version), (S.s.sandbox_id, 2, 512, "0.6.13"))
    S.s.set_timeout(3600)
    assert S.s.get_info().end_at > info.end_at


@check("metrics")
def _():
    equal(S.s.get_metrics()[0].cpu_count, 2)


@check("network update")
def _():
    S.s.update_network({"deny_out": ["0.0.0.0/0"], "allow_out": ["guard.example"]})
    network = S.s.get_info().network
    equal((network["deny_out"], network["allow_out"]), (["0.0.0.0/0"], ["guard.example"]))
    thrown(SandboxException, S.s.update_network, {"allow_out": ["guard.example"]})
    S.s.update_network({})


@check("pause, listed as paused, connect: same file, same process")
def _():
    handle = S.s.commands.run("while :; do sleep 0.2; done", background=True)
    handle.disconnect()
    S.s.files.write("/home/user/kept", "kept")
    S.s.pause()
    equal([f.sandbox_id for f in Sandbox.list(query=SandboxQuery(state=[SandboxState.PAUSED])).next_items()], [S.s.sandbox_id])
    equal(S.s.is_running(), False)
    S.s = Sandbox.connect(S.s.sandbox_id, timeout=60)
    equal((S.s.files.read("/home/user/kept"), [p.pid for p in S.s.commands.list()]), ("kept", [handle.pid]))


@check("running, killed, killed again")
def _():
    equal((S.s.is_running(), S.s.kill(), S.s.kill(), S.s.is_running()), (True, True, False, False))


@check("ends at its time to live")
def _():
    b = Sandbox.create(timeout=30)
    admin("POST", "clock", {"advance_ms": 31_000})
    equal((b.is_running(), b.kill()), (False, False))


@check("a template that is not there")
def _():
    thrown(SandboxException, Sandbox.create, "no-such-template")


def kill_command(s):
    return s.commands.run("sleep 100", background=True).kill()


OPERATIONS = {
    "create": lambda s: Sandbox.create().kill() and None,
    "kill": lambda s: s.kill(),
    "run": lambda s: s.commands.run("echo out").exit_code,
    "run_long": lambda s: s.commands.run("for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.05; done").stdout,
    "kill_command": kill_command,
    "read": lambda s: s.files.read("/etc/hostname"),
    "write": lambda s: s.files.write("/home/user/oracle", "x").path,
    "exists": lambda s: s.files.exists("/etc/hostname"),
    "make_dir": lambda s: s.files.make_dir("/home/user/oracle-folder"),
    "pause": lambda s: s.pause(),
    "set_timeout": lambda s: s.set_timeout(100),
    "get_info": lambda s: s.get_info().state.value,
    "connect": lambda s: Sandbox.connect(s.sandbox_id) and None,
    "is_running": lambda s: s.is_running(),
}


def oracle(file):
    with open(file, encoding="utf-8") as f:
        rows = json.load(f)
    for row in rows:
        admin("DELETE", "faults")
        s = None if row["do"] == "create" else Sandbox.create()
        admin("PUT", "faults", row["rules"])
        try:
            result = {"value": OPERATIONS[row["do"]](s)}
        except Exception as e:  # noqa: BLE001  which one it is is the point
            result = {"error": type(e).__name__, "message": str(e)[:300]}
        hits = [r["hits"] for r in admin("GET", "faults")]
        admin("DELETE", "faults")
        if s:
            s.kill()
        say(row["name"], True, {**result, "hits": hits})


def main():
    if sys.argv[1] == "oracle":
        return oracle(sys.argv[2])
    for name, function in CHECKS:
        try:
            function()
            say(name, True, None)
        except Exception as e:  # noqa: BLE001
            say(name, False, f"{type(e).__name__}: {e}"[:500])


main()
