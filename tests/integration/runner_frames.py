"""The runner of the guests from outside: its frames, written down a second time from the specification, and a sandbox that makes it PID 1."""
import hashlib
import hmac
import os
import pathlib
import resource
import select
import shutil
import struct
import subprocess
import tempfile
import time
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUNNER = pathlib.Path(os.environ.get("PLIMSOLL_RUNNER", ROOT / "build/guest/runner"))
UID = 61417  # of nobody's on the machine, so that a limit on its processes counts this test's alone
MAGIC = b"\xf5SB1"
SNIPPET, PROJECT, PROBE = 0, 1, 2
COMPLETED, SETUP_FAILED, TIMED_OUT, RUNNER_FAILED = 0, 1, 2, 3
ENV = ("PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8")

# Makes $1 the root of a sandbox like a container's and becomes the program after it: read-only system, /work and /tmp the only places to write.
SANDBOX = r"""
set -e
R=$1; shift
mount -t tmpfs -o mode=755 none "$R"
mkdir -p "$R/usr" "$R/etc" "$R/dev" "$R/proc" "$R/work" "$R/tmp" "$R/opt/sbx"
for d in bin sbin lib lib64; do [ -L /$d ] && cp -a /$d "$R/$d" || { mkdir "$R/$d"; mount --bind /$d "$R/$d"; }; done
mount --bind /usr "$R/usr"; mount -o remount,bind,ro "$R/usr"
mount --bind /etc "$R/etc"; mount -o remount,bind,ro "$R/etc"
for d in null zero urandom; do : > "$R/dev/$d"; mount --bind /dev/$d "$R/dev/$d"; done
cp "$1" "$R/opt/sbx/runner"; shift
mount -t proc proc "$R/proc"
mount -t tmpfs -o size=128m,mode=1777,noexec,nosuid,nodev none "$R/work"
mount -t tmpfs -o size=16m,mode=1777,noexec,nosuid,nodev none "$R/tmp"
U=$1; shift
cd /
exec env -i PATH="$PATH:/usr/sbin:/sbin" SECRET_OF_THE_CARRIER=1 chroot "$R" /usr/bin/setpriv --reuid "$U" --regid "$U" --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all /opt/sbx/runner "$@"
"""


def missing():
    """Why this machine cannot make the sandbox, or None."""
    if os.geteuid() != 0:
        return "a sandbox of namespaces is made by root"
    for program in ("unshare", "setpriv", "chroot", "node"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    return None


def frame(key, number, kind, payload):
    head = MAGIC + kind + b"\0" + struct.pack(">II", number, len(payload))
    return head + payload + hmac.new(key, head + payload, hashlib.sha256).digest()[:16]


def message(key, number, first, more, body):
    """The frames of one message, and how many."""
    rest = struct.pack(">I", len(body)) + body
    parts = [rest[i:i + 4048] for i in range(0, len(rest), 4048)]
    return b"".join(frame(key, number + i, more if i else first, p) for i, p in enumerate(parts)), len(parts)


def short(b):
    return struct.pack(">H", len(b)) + b


def long(b):
    return struct.pack(">I", len(b)) + b


def as_bytes(s):
    return s.encode() if isinstance(s, str) else s


def job(kind, code=b"", files=(), steps=(), artifacts=(), timeout_ms=10000, stream_max=1 << 20, output_max=3 << 20, artifacts_max=8 << 20):
    body = struct.pack(">BIIII", kind, timeout_ms, stream_max, output_max, artifacts_max) + long(as_bytes(code))
    body += struct.pack(">H", len(files)) + b"".join(short(as_bytes(p)) + long(as_bytes(c)) for p, c in files)
    body += struct.pack(">H", len(steps)) + b"".join(long(as_bytes(s)) for s in steps)
    return body + struct.pack(">H", len(artifacts)) + b"".join(short(as_bytes(a)) for a in artifacts)


@dataclass
class Step:
    out: bytes = b""
    err: bytes = b""
    ended: bool = False
    timed_out: bool = False
    out_truncated: bool = False
    err_truncated: bool = False
    code: int = 0
    signal: int = 0
    out_total: int = 0
    err_total: int = 0
    duration_us: int = 0


@dataclass
class Result:
    steps: list = field(default_factory=list)
    artifacts: list = field(default_factory=list)  # (number, content)
    accepted: bool = False
    final: bool = False
    outcome: int = -1
    artifacts_truncated: bool = False
    detail: str = ""
    frames: int = 0


class Runner:
    """One runner, PID 1 of namespaces of its own."""
    sandbox = SANDBOX

    def __init__(self, preboot="node", arguments=None, processes=None, stdin=None, stdout=None):
        self.root = tempfile.mkdtemp(prefix="runner-")
        args = arguments if arguments is not None else ["--mode=run", f"--preboot={preboot}"]
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--", "/bin/sh", "-c", self.sandbox, "sandbox", self.root, str(RUNNER), str(UID), *args],
            stdin=stdin or subprocess.PIPE, stdout=stdout or subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
            preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))) if processes else None)
        self.key = os.urandom(32)
        self.to_runner = hmac.new(self.key, b"h2r", hashlib.sha256).digest()
        self.to_gateway = hmac.new(self.key, b"r2h", hashlib.sha256).digest()
        self.sent, self.received = 1, 0
        self.buffer, self.unframed = b"", b""
        self.digest = hashlib.sha256()
        self.input = self.process.stdin.fileno() if self.process.stdin else -1
        self.out = self.process.stdout.fileno() if self.process.stdout else -1

    # -- sending --

    def write(self, data):
        view = memoryview(data)
        while view:
            view = view[os.write(self.input, view):]

    def hello(self, preboot=1, env=ENV, run_id=b"r1", job_max=6 << 20, version=1):
        body = struct.pack(">HB", version, preboot) + self.key + struct.pack(">IB", job_max, len(run_id)) + run_id
        body += struct.pack(">H", len(env)) + b"".join(short(as_bytes(v)) for v in env)
        rest = struct.pack(">I", len(body)) + body
        first, rest = rest[:4048], rest[4048:]
        self.write(MAGIC + b"H\0" + struct.pack(">II", 0, len(first)) + first)
        while rest:
            self.write(frame(self.to_runner, self.sent, b"h", rest[:4048]))
            self.sent += 1
            rest = rest[4048:]

    def give(self, body):
        data, count = message(self.to_runner, self.sent, b"J", b"j", body)
        self.sent += count
        self.write(data)
        return hashlib.sha256(body).digest()

    # -- receiving --

    def _take(self):
        """The next frame in the buffer that verifies: (type, payload) or None."""
        at = self.buffer.find(MAGIC)
        while at >= 0:
            head = self.buffer[at:at + 14]
            if len(head) == 14:
                number, size = struct.unpack(">II", head[6:])
                end = at + 14 + size + 16
                if number == self.received and size <= 4048 and len(self.buffer) >= end:
                    tag = hmac.new(self.to_gateway, self.buffer[at:end - 16], hashlib.sha256).digest()[:16]
                    if hmac.compare_digest(tag, self.buffer[end - 16:end]):
                        kind, payload = head[4:5], self.buffer[at + 14:end - 16]
                        assert head[5] == 0
                        self.unframed += self.buffer[:at]
                        self.buffer = self.buffer[end:]
                        self.received += 1
                        return kind, payload
            at = self.buffer.find(MAGIC, at + 1)
        return None

    def frame(self, seconds=20):
        """(type, payload); None at the end of the stream. Asserts that one of the two comes in time."""
        until = time.monotonic() + seconds
        while True:
            one = self._take()
            if one is not None:
                if one[0] != b"X":
                    self.digest.update(one[1])
                return one
            ready, _, _ = select.select([self.out], [], [], max(0, until - time.monotonic()))
            assert ready, "nothing came from the runner"
            data = os.read(self.out, 1 << 16)
            if not data:
                return None
            self.buffer += data

    def ready(self):
        kind, payload = self.frame()
        assert kind == b"R"
        version, started, processes = struct.unpack(">HBH", payload)
        assert version == 1
        return started, processes

    def begin(self, **kwargs):
        self.hello(**kwargs)
        return self.ready()

    def result(self, digest=None, seconds=20):
        """Every frame up to FINAL or the end of the stream, held to what the specification says of them."""
        r = Result()
        until = time.monotonic() + seconds
        open_artifact = 0
        while True:
            one = self.frame(max(0.01, until - time.monotonic()))
            if one is None:
                return r
            kind, p = one
            r.frames += 1
            if kind == b"A":
                assert not r.accepted and (digest is None or p == digest)
                r.accepted = True
                continue
            assert r.accepted, kind
            if kind in b"OE":
                self._step(r, p[0])
                s = r.steps[p[0]]
                assert len(p) > 1 and not s.ended
                if kind == b"O":
                    s.out += p[1:]
                else:
                    s.err += p[1:]
            elif kind == b"T":
                n, flags, code, signal, out, err, out_total, err_total, us = struct.unpack(">BBiBIIQQQ", p)
                self._step(r, n)
                s = r.steps[n]
                assert not s.ended and (out, err) == (len(s.out), len(s.err)) and flags < 8
                s.ended, s.timed_out, s.out_truncated, s.err_truncated = True, bool(flags & 1), bool(flags & 2), bool(flags & 4)
                s.code, s.signal, s.out_total, s.err_total, s.duration_us = code, signal, out_total, err_total, us
                assert s.out_truncated == (out_total > out) and s.err_truncated == (err_total > err)
            elif kind == b"F":
                number, size = struct.unpack(">HI", p)
                assert open_artifact == 0 and all(number > n for n, _ in r.artifacts)
                r.artifacts.append((number, bytearray()))
                open_artifact = size
            elif kind == b"f":
                r.artifacts[-1][1].extend(p)
                open_artifact -= len(p)
                assert open_artifact >= 0 and p
            else:
                assert kind == b"X" and open_artifact == 0 and all(s.ended for s in r.steps)
                outcome, flags, steps, artifacts = struct.unpack(">BBHH", p[:6])
                assert (steps, artifacts) == (len(r.steps), len(r.artifacts))
                assert p[6:38] == self.digest.digest()
                r.final, r.outcome, r.artifacts_truncated, r.detail = True, outcome, flags == 1, p[38:].decode()
                return r

    @staticmethod
    def _step(r, n):
        if n == len(r.steps):
            assert all(s.ended for s in r.steps)
            r.steps.append(Step())
        assert n == len(r.steps) - 1

    # -- ending --

    def wait(self, seconds=10):
        return self.process.wait(seconds)

    def close_input(self):
        self.process.stdin.close()

    def close_output(self):
        self.process.stdout.close()

    def end(self):
        """Everything in the namespaces ends with their PID 1, and PID 1 with unshare."""
        self.process.kill()
        self.process.wait(10)
        for f in (self.process.stdin, self.process.stdout, self.process.stderr):
            if f is not None and not f.closed:
                f.close()
        os.rmdir(self.root)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def run(body, preboot="none", seconds=30, **kwargs):
    """One job from beginning to end."""
    with Runner(preboot, **kwargs) as r:
        r.begin(preboot=1 if preboot == "node" else 0)
        result = r.result(r.give(body), seconds)
        assert result.final
        assert r.wait() == 0
        result.unframed = r.unframed
        return result


def project(*steps, **kwargs):
    return run(job(PROJECT, steps=steps, **kwargs))
