"""What relaying a run to E2B adds to the calls themselves, and what held relayed runs cost.

The other end is the stand-in of tests/standins/ with answers from a table, every one of them 20 ms late. A recorder between the gateway and it takes down
one run's requests; the same bytes (with a sandbox ID and tokens of their own) are then sent by a plain client over warm connections, in turn with runs
through the gateway. The difference of the two is what the gateway adds: its front, its records, its role, and the decisions between the calls."""
import contextlib
import json
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

import rig

sys.path.insert(0, str(rig.ROOT / "tests/integration"))
import clouds  # noqa: E402

KEY = "e2b_" + "0123456789abcdef" * 2
LATE_MS = 20
HELD_PACE_US = "20000"  # between two of them: the stand-in, which answers six calls for each, keeps up with that
SNIPPET = {"protocol": 4, "minimumIsolation": "vm", "javascript": {"code": "console.log(6*7)"}}
STOP, LOOK = b"DELETE ", b"GET /sandboxes/"
# what the wall's trial of itself prints where it is kept in (backends/cloud/cloud_smoke.c)
TRIAL = {"egressOpen: open": {"stdout": json.dumps({"probe": 1, "node": "v20.0.0", "cwd": "/home/user/project", "python": "", "egressOpen": []}) + "\n"}}


def answer_of(sock, left=b""):
    """(head, body, bytes beyond) of the next answer; a body by its length or in chunks."""
    while b"\r\n\r\n" not in left:
        left += _more(sock)
    head, _, left = left.partition(b"\r\n\r\n")
    lower = head.lower()
    if b"transfer-encoding: chunked" in lower:
        body = b""
        while True:
            while b"\r\n" not in left:
                left += _more(sock)
            size, _, left = left.partition(b"\r\n")
            size = int(size.split(b";")[0], 16)
            while len(left) < size + 2:
                left += _more(sock)
            body += left[:size]
            left = left[size + 2:]
            if size == 0:
                return head, body, left
    found = re.search(rb"content-length: *(\d+)", lower)
    size = int(found.group(1)) if found else 0
    while len(left) < size:
        left += _more(sock)
    return head, left[:size], left[size:]


def _more(sock):
    more = sock.recv(65536)
    if not more:
        raise SystemExit("bench: the stand-in closed a connection")
    return more


class Recorder:
    """Passes connections on, and keeps what goes to the stand-in, request by request, in the order of sending."""

    def __init__(self, port):
        self.target, self.requests, self.connections, self.lock = port, [], 0, threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                theirs, _ = self.listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(theirs,), daemon=True).start()

    def _serve(self, theirs):
        with theirs, socket.create_connection(("127.0.0.1", self.target)) as ours, contextlib.suppress(OSError):
            theirs.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            left = b""
            while True:
                while b"\r\n\r\n" not in left:
                    more = theirs.recv(65536)
                    if not more:
                        return
                    left += more
                size = re.search(rb"\r\ncontent-length: *(\d+)", left.partition(b"\r\n\r\n")[0].lower())
                whole = left.index(b"\r\n\r\n") + 4 + (int(size.group(1)) if size else 0)
                while len(left) < whole:
                    left += theirs.recv(65536)
                request, left = left[:whole], left[whole:]
                with self.lock:
                    number = len(self.requests)
                    self.requests.append([request, None, None])
                ours.sendall(request)
                head, body, _ = answer_of(ours)
                self.requests[number][1:] = head, body
                # said again with its length: what came in chunks is whole here
                lines = [line for line in head.split(b"\r\n") if not line.lower().startswith((b"transfer-encoding:", b"content-length:"))]
                none = head.split(b" ")[1] in (b"204", b"304")
                theirs.sendall(b"\r\n".join(lines) + (b"" if none else b"\r\nContent-Length: %d" % len(body)) + b"\r\n\r\n" + body)

    def close(self):
        self.listener.close()


class Sequence:
    """The calls of one run, to be made again."""

    def __init__(self, recorded):
        created = next(i for i, (request, *_) in enumerate(recorded) if request.startswith(b"POST") and b"sandboxes HTTP" in request.split(b"\r\n")[0])
        self.calls = [request for request, *_ in recorded[created:] if not request.startswith(STOP)]
        self.delete = next(request for request, *_ in recorded[created:] if request.startswith(STOP))
        told = json.loads(recorded[created][2])
        self.names = [told[k].encode() for k in ("sandboxID", "envdAccessToken", "trafficAccessToken") if told.get(k)]

    def words(self):
        return ", ".join(b" ".join(c.split(b" ", 2)[:2]).decode().replace(self.names[0].decode(), "ID") for c in self.calls)

    def run(self, sock, beside=None):
        """Milliseconds from the first call's first byte to the last answer's last: the calls one after the other or, over a second connection, the
        read-back beside the upload, as the gateway makes them."""
        began, names = time.perf_counter(), self.names

        def send(call, sock):
            for old, new in zip(self.names, names):
                call = call.replace(old, new)
            sock.sendall(call)

        def take(sock):
            head, body, _ = answer_of(sock)
            if head.split(b" ")[1][:1] != b"2":
                raise SystemExit(f"bench: a call made directly was answered {head[:60]!r} {body[:200]!r}")
            return body
        send(self.calls[0], sock)
        told = json.loads(take(sock))
        names = [told[k].encode() for k in ("sandboxID", "envdAccessToken", "trafficAccessToken") if told.get(k)]
        looks = [call for call in self.calls[1:] if call.startswith(LOOK)] if beside else []
        for look in looks:
            send(look, beside)
        for call in [call for call in self.calls[1:] if call not in looks]:
            send(call, sock)
            take(sock)
            while looks:
                take(beside)
                looks.pop()
        took = (time.perf_counter() - began) * 1000
        send(self.delete, sock)
        answer_of(sock)
        return took


class Caller:
    """Runs over one kept connection."""

    def __init__(self, gw):
        self.gw, self.sock = gw, socket.create_connection(("127.0.0.1", gw.port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        body = json.dumps(SNIPPET).encode()
        self.request = (f"POST {rig.SERVICE}Run HTTP/1.1\r\nHost: gw\r\nAuthorization: Bearer {gw.token}\r\nContent-Type: application/json\r\n"
                        f"Content-Length: {len(body)}\r\n\r\n").encode() + body

    def run(self):
        began = time.perf_counter()
        self.sock.sendall(self.request)
        head, body, _ = answer_of(self.sock)
        took = (time.perf_counter() - began) * 1000
        if json.loads(body).get("javascript", {}).get("stdout") != "NDIK":
            raise SystemExit(f"bench: a relayed run was not answered: {head[:40]!r} {body[:300]!r}")
        return took


def gateway(port, **settings):
    return rig.Gateway(SANDBOX_PROVIDER="e2b", E2B_API_KEY=KEY, E2B_API_URL=f"http://127.0.0.1:{port}", E2B_SANDBOX_URL=f"http://127.0.0.1:{port}",
                       E2B_CREATES_PER_SECOND="1000", SANDBOX_CLOUD_CREATES_PER_MINUTE="0", PLIMSOLL_PROOF_INTERVAL="4m", **settings)


def standin(codes):
    """The stand-in in its own process, its table of codes in a file that goes with it."""
    table = rig.DIRECTORY / "canned.json"
    table.write_text(json.dumps({**codes, **TRIAL}))
    return clouds.E2bStandin("--exec=canned", "--canned", table)


@contextlib.contextmanager
def redis_of_an_operator(appendonly="yes"):
    """A Redis that syncs its file once a second, as most are run; the private one does for every write."""
    home, port = pathlib.Path(tempfile.mkdtemp(prefix="redis-", dir=rig.DIRECTORY)), rig.free_port()
    process = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--appendonly", appendonly, "--appendfsync", "everysec", "--save", "",
                                "--maxmemory-policy", "noeviction", "--dir", home], stdout=subprocess.DEVNULL)
    try:
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def added(rounds, row):
    with standin({"console.log(6*7)": {"stdout": "42\n"}}) as cloud:
        recorder = Recorder(cloud.ready["port"])
        with gateway(recorder.port) as gw:
            Caller(gw).run()
            before = len(recorder.requests)
            Caller(gw).run()
            rig.wait_for(lambda: any(r[0].startswith(STOP) and r[1] for r in recorder.requests[before:]), "the sandbox's deletion")
            sequence = Sequence(recorder.requests[before:])
        recorder.close()
        cloud.faults([{"id": "late", "plane": "any", "phase": "before", "action": {"type": "delay", "ms": LATE_MS}}])
        for what, redis in (("", None), (", records in a Redis that syncs once a second", redis_of_an_operator())):
            with redis or contextlib.nullcontext() as url:
                against(cloud, sequence, what, {"PLIMSOLL_REDIS_URL": url} if url else {}, rounds, row)


def against(cloud, sequence, what, settings, rounds, row):
    ours, plain, paired = [], [], []
    direct = [socket.create_connection(("127.0.0.1", cloud.ready["port"])) for _ in range(2)]
    for sock in direct:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with gateway(cloud.ready["port"], **settings) as gw, direct[0], direct[1]:
        caller = Caller(gw)
        for i in range(rounds + 10):
            took = sequence.run(direct[0]), sequence.run(*direct), caller.run()
            if i >= 10:  # everything is warm
                for kept, ms in zip((plain, paired, ours), took):
                    kept.append(ms)
            time.sleep(0.05)  # its deletion is over
        seen = len({line.get("connection") for line in cloud.journal() if line.get("connection") is not None})

    def at(values, share):
        return sorted(values)[min(len(values) - 1, int(len(values) * share))]

    def rows(name, direct_ms, targets):
        for share, title, target in zip((0.5, 0.99), ("p50", "p99"), targets):
            more = at(ours, share) - at(direct_ms, share)
            row(f"a relayed run: what the gateway adds to {name}{what}, {title} ms", f"{more:.2f}", f"<= {target}" if target else "",
                more <= target if target else None, f"{at(ours, share):.1f} ms against {at(direct_ms, share):.1f} ms")
    print(f"relay: {rounds} runs{what}; calls: {sequence.words()}" + (f"; {seen} connections" if seen else ""), flush=True)
    rows("the same calls made directly one after the other", plain, (0.6, 3))
    rows("the same calls made directly with its overlap", paired, (None, None))


def wait_alive(cloud, count, seconds):
    """Looked at once a second: the account of thousands is long."""
    end = time.monotonic() + seconds
    while len(cloud.account()["alive"]) < count:
        if time.monotonic() > end:
            raise SystemExit(f"bench: waited {seconds} s in vain for {count} sandboxes to run")
        time.sleep(1)


def held(count, row):
    hold = "hold()"
    # A Redis without a file: what is measured is memory, and one slow sync of the disk would refuse a run
    with standin({hold: {"stdout": "", "delay_ms": 270_000}}) as cloud, redis_of_an_operator(appendonly="no") as redis:
        settings = dict(SANDBOX_MAX_CONCURRENT=str(count), E2B_MAX_CONCURRENT=str(count), SANDBOX_CLOUD_TIMEOUT_MAX="5m", PLIMSOLL_REDIS_URL=redis)
        with gateway(cloud.ready["port"], **settings) as gw:
            before = gw.memory()
            message = {"protocol": 4, "timeoutMs": 280000, "minimumIsolation": "vm", "javascript": {"code": hold}}
            with rig.held(gw, message, "--connections", str(count), "--ids", "fresh", "--pace", HELD_PACE_US) as said:
                wait_alive(cloud, count, 200)
                time.sleep(3)
                bytes_held = gw.memory()
                by_process = {name: rig.private_bytes(pid) // 1024 for pid, name in gw.pids().items()}
            if said["held"] != count:
                raise SystemExit(f"bench: of {count} relayed runs to be held: {said}")
    row(f"{count} held relayed runs, MiB in all", f"{bytes_held / (1 << 20):.0f}", "<= 1024", bytes_held <= 1 << 30,
        f"{(bytes_held - before) / count / 1024:.0f} KiB a run; KiB by process: {by_process}")


def measure(row, quiet, quick):
    quiet.wait()
    added(100 if quick else 1000, row)
    held(500 if quick else 5000, row)
