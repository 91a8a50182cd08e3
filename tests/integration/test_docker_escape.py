"""Attempts to get out of a sandbox, made as a guest under runc and under gVisor (escapes.py): none gets anything. What was tried, and what
came of it, is printed and kept in docs/escape-attempts.md; PLIMSOLL_WRITE_PAGES=1 writes that page anew."""
import base64
import contextlib
import json
import os
import pathlib
import secrets
import shutil
import socket
import tempfile
import threading
import time

import pytest

import engine as e
import escapes
import gateway as g
import walls

PAGE = g.ROOT / "docs/escape-attempts.md"
FINE = ("refused", "nothing", "own kernel's")
IDS = [f"{topic}: {what}" for topic, what, _ in escapes.ATTEMPTS]
_seen = {}


class Host:
    """What is on this machine for a guest to find: a file with a secret, a port, a socket with a path and one without; who came is kept."""

    def __init__(self):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="plx-", dir="/tmp"))
        self.home.chmod(0o755)
        self.secret = secrets.token_hex(16)
        (self.home / "secret").write_text(self.secret)
        (self.home / "secret").chmod(0o644)
        self.visitors = []
        self.abstract = "plimsoll-test-" + secrets.token_hex(8)
        self.sockets = []
        for family, address in ((socket.AF_INET, ("0.0.0.0", 0)), (socket.AF_UNIX, str(self.home / "socket")), (socket.AF_UNIX, "\0" + self.abstract)):
            s = socket.socket(family)
            s.bind(address)
            s.listen(8)
            self.sockets.append(s)
            threading.Thread(target=self._accept, args=(s,), daemon=True).start()
        (self.home / "socket").chmod(0o666)

    def _accept(self, listener):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                self.visitors.append(str(listener.getsockname()))
                connection.close()

    def seeds(self, wall):
        return {"secret": self.secret, "file": str(self.home / "secret"), "port": self.sockets[0].getsockname()[1], "engine": e.shared().path,
                "socket": str(self.home / "socket"), "abstract": self.abstract, "own_kernel": wall.runtime == "runsc",
                "abstract_more": ["plimsoll-docker-" + i for i in e.live_instances()]}

    def close(self):
        for s in self.sockets:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
            s.close()
        shutil.rmtree(self.home, ignore_errors=True)


@pytest.fixture(scope="module")
def host():
    it = Host()
    yield it
    it.close()


@pytest.fixture(scope="module")
def came_of_it(all_walls, local_wall, host):
    """{number: (verdict, detail)} of every attempt behind the wall, all in one run."""
    on = walls.At(all_walls, local_wall)
    files = {"escapes.py": pathlib.Path(escapes.__file__).read_text(), "seeds.json": json.dumps(host.seeds(local_wall))}
    done = on.project(["python3 -B escapes.py seeds.json 2>&1"], files, timeoutMs=120000)
    assert done.outcome == "completed" and done.codes == [0], done
    lines = [json.loads(line) for line in done.steps[0].out.decode().splitlines()]
    _seen[local_wall.name] = {number: (verdict, detail) for number, verdict, detail in lines}
    return _seen[local_wall.name]


@pytest.mark.parametrize("number", range(len(IDS)), ids=IDS)
def test_an_attempt_gets_nothing(came_of_it, number):
    verdict, detail = came_of_it[number]
    assert verdict in FINE, f"{IDS[number]}: {verdict} {detail}"


def test_nobody_came(came_of_it, host):
    assert len(came_of_it) == len(IDS) and host.visitors == []


def test_what_a_snippet_sees(on, host):
    """The same wall from JavaScript: no way to the machine's files, sockets or processes."""
    seeds = host.seeds(on.wall)
    code = f"""
        const fs = require('fs'), net = require('net'), out = [];
        for (const p of [{json.dumps(seeds['file'])}, '/proc/1/root{seeds['file']}', '/proc/1/mem', '/etc/shadow', '/dev/mem', '/dev/kmsg'])
            try {{ out.push(p + ' ' + fs.readFileSync(p).length) }} catch (e) {{ if (!e.code) out.push(String(e)) }}
        for (const p of ['/x', '/etc/x', '/usr/x', '/var/tmp/x', '/opt/sbx/runner', '/proc/sys/kernel/core_pattern', '/sys/kernel/uevent_helper'])
            try {{ fs.writeFileSync(p, 'x'); out.push('wrote ' + p) }} catch {{}}
        try {{ process.setuid(0); out.push('root') }} catch {{}}
        const pids = fs.readdirSync('/proc').filter(n => /^[0-9]+$/.test(n)).length;
        if (pids > 3) out.push(pids + ' processes');
        const tries = [{{port: {seeds['port']}, host: '127.0.0.1'}}, {{path: {json.dumps(seeds['engine'])}}}, {{path: {json.dumps(seeds['socket'])}}},
                       {{path: {json.dumps(chr(0) + seeds['abstract'])}}}, {{port: 80, host: '169.254.169.254'}}];
        let open = tries.length;
        const done = () => {{ if (--open === 0) console.log(JSON.stringify(out)) }};
        for (const t of tries) {{
            const s = net.connect(t, () => {{ out.push('connected ' + JSON.stringify(t)); s.destroy(); done() }});
            s.on('error', done);
        }}"""
    answer = on.ok(code, timeoutMs=20000)
    assert g.stdout(answer) == b"[]\n", (g.stdout(answer), g.stderr(answer))
    assert host.visitors == []


# -- between sandboxes --


def test_two_sandboxes_at_once_see_nothing_of_each_other(on):
    """Files, shared memory, processes and abstract sockets of one are not there for the other."""
    word = secrets.token_hex(12)
    leave = (f"for d in /work /tmp /dev/shm; do echo {word} > $d/{word}; done; python3 -c \"import socket, time;"
             f" s = socket.socket(socket.AF_UNIX); s.bind('\\x00{word}'); s.listen(); print('up', flush=True); time.sleep(20)\"")
    look = (f"find / -xdev -name '*{word}*' 2>/dev/null; echo /tmp/* /dev/shm/* $PWD/* | grep {word}; ls -d /proc/[0-9]* | wc -l;"
            f"python3 -c \"import socket; print(socket.socket(socket.AF_UNIX).connect_ex('\\x00{word}'))\"; grep -l {word} /proc/*/cmdline")
    first = on.gw.connect().send(g.request(walls.pinned(on.wall), json.dumps({"protocol": 4, "project": {"steps": [leave]}, "timeoutMs": 60000}).encode(),
                                           on.gw.headers()))
    on.gw.wait_inflight(1, 20)
    time.sleep(2)  # it is up by then; should it not be, there is less to see
    seen = on.project([look]).steps[0].out.decode().split()
    assert on.gw.metric("plimsoll_inflight") == 1
    first.close()
    on.gw.wait_inflight(0, 3)
    # its own processes, ECONNREFUSED, and its own command line
    assert word not in " ".join(w for w in seen if not w.startswith("/proc/")) and int(seen[0]) <= 8
    assert seen[1] == "111" and all(w.startswith(("/proc/self", "/proc/thread-self")) or w.split("/")[2].isdigit() for w in seen[2:])


def test_nothing_stays_for_the_next_run(on):
    word = secrets.token_hex(12)
    on.project([f"for d in /work /tmp /dev/shm; do echo x > $d/{word}; done; (setsid sleep 100 &)"])
    assert on.project([f"find / -xdev -name '*{word}*' 2>/dev/null; echo $PWD/* /tmp/* /dev/shm/*; cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 10[0]'; true"]
                      ).steps[0].out.decode().split() == ["/work" "/*", "/tmp/*", "/dev/shm/*", "0"]


# -- what it says of itself --


FORGED = """
import os, struct, sys
def frame(kind, seq, payload, tag=b'\\0' * 16):
    return b'\\xf5SB1' + kind + b'\\0' + struct.pack('>II', seq, len(payload)) + payload + tag
final = b'\\0\\0' + struct.pack('>HH', 1, 0) + b'\\0' * 32
noise = b''.join(frame(k, s, p) for k in (b'X', b'T', b'O', b'A', b'R') for s in range(8) for p in (final, b'', b'\\0' * 40))
engine = struct.pack('>BxxxI', 1, len(noise)) + noise + struct.pack('>BxxxI', 1, 0xffffffff)
for data in (noise, engine, b'\\xf5SB1' * 1000, b'\\xf5SB1X\\0' + b'\\xff' * 8):
    os.write(1, data)
    os.write(2, data)
for path in ('/proc/1/fd/1', '/proc/1/fd/2', '/proc/1/fd/0', '/dev/console', '/dev/tty'):
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        continue
    for data in (noise, engine):
        try:
            os.write(fd, data[:4096])
        except OSError:
            pass
sys.stdout.buffer.flush()
os._exit(7)
"""


def test_forged_frames_change_nothing(on):
    """The runner's own frames carry a key nobody in the sandbox has: what a guest writes among them is output, or noise."""
    done = on.project(["python3 forged.py", "echo never"], {"forged.py": FORGED}, ["forged.py"])
    assert done.outcome == "completed" and done.codes == [7], done
    assert done.steps[0].out == done.steps[0].err and done.steps[0].out.startswith(b"\xf5SB1X\0") and done.steps[0].out.endswith(b"\xff" * 8)
    assert done.artifacts == [("forged.py", FORGED.encode())]


def test_forged_frames_of_a_snippet_change_nothing(on):
    code = ("const h = Buffer.from('f553423158000000000000000026' + '00'.repeat(54), 'hex'); const fs = require('fs');"
            "for (const p of ['/proc/1/fd/1', '/proc/1/fd/0']) try { fs.writeFileSync(p, h) } catch {}"
            "fs.writeSync(1, h); process.exit(9)")
    answer = on.ok(code)
    assert answer.json()["javascript"]["exitCode"] == 9
    assert g.stdout(answer) == bytes.fromhex("f553423158000000000000000026" + "00" * 54)


@pytest.mark.parametrize("outside", ["/etc/passwd", "/proc/1/environ", "/opt/sbx/runner", "/tmp/t", "/dev/zero"])
def test_a_link_that_changes_while_artifacts_are_read(on, outside):
    """Whatever still runs when the last step ends is dead before anything is read; and what is read is what the kernel says lies in /work."""
    race = (f"echo inside > real; echo outside > /tmp/t; mkdir d e; echo inside > d/f; ln -s {os.path.dirname(outside)} e/x;"
            f"(setsid sh -c 'while :; do ln -sfn real a; ln -sfn {outside} a; rm -f a; cp real a; mv d d2; ln -s {os.path.dirname(outside)} d; rm d; mv d2 d; done'"
            " >/dev/null 2>&1 &) ; sleep 0.3")
    done = on.project([race], artifacts=["a", "real", f"e/x/{os.path.basename(outside)}", f"d/{os.path.basename(outside)}", "d/f"])
    assert dict(done.artifacts)["real"] == b"inside\n"
    assert {content for _, content in done.artifacts} <= {b"inside\n", b""}, done


def test_hostile_names_are_only_names(on):
    """Names of what a guest makes reach no shell, no path outside and no log as they are."""
    make = r"""python3 -c "
import os
for n in (b'a;reboot', b'\$(id)', b'-rf', b'x\x1b[2J', b'new\nline', b'\xff\xfe', b'..x', b'a\\\\b', b'%n%s', b'\xe2\x80\xae'):
    open(b'/work' + b'/' + n, 'w').write('x')
" """
    done = on.project([make], artifacts=["a;reboot", "$(id)", "-rf", "..x", "%n%s", "\u202e", "missing\u200b"])
    assert done.codes == [0], done
    assert [p for p, _ in done.artifacts] == ["a;reboot", "$(id)", "-rf", "..x", "%n%s", "\u202e"]


# -- the page --


def table():
    lines = ["| what | attempt | under runc | under gVisor |", "|---|---|---|---|"]
    for number, (topic, what, _) in enumerate(escapes.ATTEMPTS):
        cells = []
        for name in ("docker", "gvisor"):
            verdict, detail = _seen.get(name, {}).get(number, ("not tried", ""))
            cells.append(f"refused ({detail})" if verdict == "refused" else verdict)
        lines.append(f"| {topic} | {what} | {cells[0]} | {cells[1]} |".replace("*", "\\*"))
    return lines


HEAD = """# What has been tried to get out of a sandbox, and what came of it?

Each row is an attempt made by guest code inside a sandbox, as `tests/integration/escapes.py` makes it on every test run; any that gets something
fails the tests. **refused** names the kernel's word; **nothing** was let and led nowhere; **own kernel's** got something of the sandbox's own
kernel, which under gVisor is a program on this machine and not the machine's kernel. The words differ between kernels; that nothing is got does not.

Known and left: under runc a guest can write its own `/proc/self/loginuid` once, where the kernel audits; that changes the number this machine's
audit log gives for the sandbox's own processes, and nothing else. Under an old gVisor (before the release protects them) the runner's standard
streams can be opened: what is read there is nothing, what is written is noise, and who stops or kills the runner ends their own run.

`tests/integration/test_docker_escape.py` tries more that does not fit a row: forged frames of the runner's, two sandboxes at once, what a run
leaves for the next one, links that change while artifacts are read, and hostile names.

"""


def test_the_page_has_every_attempt(capsys):
    rows = table()
    with capsys.disabled():
        print("\n" + "\n".join(rows))
    if os.environ.get("PLIMSOLL_WRITE_PAGES") == "1":
        assert set(_seen) >= {"docker", "gvisor"}, "the page is written from a run of both walls"
        PAGE.write_text(HEAD + "\n".join(rows) + "\n")
    page = PAGE.read_text()
    missing = [what for _, what, _ in escapes.ATTEMPTS if f"| {what} |".replace("*", "\\*") not in page]
    assert not missing and page.count("\n| ") == len(IDS) + 1
    assert not [row for row in page.splitlines() if "| GOT" in row or "not tried" in row]
