"""Drives the real daemon from outside: a process with a state directory, ports, a token, fault points and a captured log; a raw HTTP/1.1
client that reads answers strictly; the wire forms of requests; waits that poll a condition and have a bound.

PLIMSOLL_BUILD names the folder of the binaries (default build/test, the one with sanitizers and fault points).
"""
import base64
import collections
import contextlib
import hashlib
import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import urllib.request

from plimsoll_client import _record
from plimsoll_client._wire import Msg

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("PLIMSOLL_BUILD", "build/test")
DAEMON = BUILD / "plimsolld"
COMMAND = BUILD / "plimsoll"

SERVICE = "/plimsoll.v1.SandboxService/"
RUN = SERVICE + "Run"
DESCRIBE = SERVICE + "Describe"

START_S = 60       # a start, sanitizers and a busy machine included
STOP_S = 60
ANSWER_S = 60      # the longest any answer may take here
SETTLE_S = 10      # for something that happens by itself right away
MIB = 1024 * 1024
BODY_MAX = 8 * MIB

REASONS = {"CAE": "request", "CAI": "permission", "CAM": "protocol", "CAQ": "unsupported", "CAU": "isolation", "CAY": "capacity",
           "CAc": "environment"}
STATUS = {"canceled": 499, "unknown": 500, "invalid_argument": 400, "deadline_exceeded": 504, "not_found": 404, "already_exists": 409,
          "permission_denied": 403, "resource_exhausted": 429, "failed_precondition": 400, "aborted": 409, "out_of_range": 400,
          "unimplemented": 501, "internal": 500, "unavailable": 503, "data_loss": 500, "unauthenticated": 401}
# What a sanitizer says when it found something.
FINDINGS = ("ERROR: AddressSanitizer", "runtime error:", "LeakSanitizer")


def _homes():
    """In memory where there is plenty: the private Redis syncs each write, and a disk that is busy with containers' layers takes
    longer for that than a run may wait."""
    with contextlib.suppress(OSError):
        room = os.statvfs("/dev/shm")
        if room.f_bavail * room.f_frsize >= 1 << 30:
            return "/dev/shm"
    return "/tmp"


HOMES = _homes()


def has_fault_points():
    return b"%s.hit" in DAEMON.read_bytes()


def wait_for(condition, what, seconds=SETTLE_S):
    """Polls until the condition gives something true, and returns it."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds} s in vain for {what}")
        time.sleep(0.01)


def free_port():
    """Below the ports that the kernel gives to outgoing connections: one of those would take it before it is listened on."""
    while True:
        port = 12000 + secrets.randbelow(20000)
        with socket.socket() as s, contextlib.suppress(OSError):
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(("127.0.0.1", port))
            return port


def new_id():
    return secrets.token_hex(16)


# -- processes --


def _stat(pid):
    """(parent, group, session, start time, state) of a process, or None."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2:].split()
    return int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]), fields[0]


def _processes():
    return {int(p): s for p in os.listdir("/proc") if p.isdigit() for s in [_stat(p)] if s}


def descendants(pid):
    """{pid: start time} of all processes below one."""
    everyone = _processes()
    found, frontier = {}, {pid}
    while frontier:
        frontier = {p for p, s in everyone.items() if s[0] in frontier and p not in found}
        found.update((p, everyone[p][3]) for p in frontier)
    return found


def is_alive(pid, start_time=None):
    s = _stat(pid)
    return s is not None and s[4] != "Z" and (start_time is None or s[3] == start_time)


def name_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
    except OSError:
        return ""


# -- one answer --


class Answer:
    def __init__(self, status, headers, body, line, informational=()):
        self.status, self.headers, self.body, self.line = status, headers, body, line
        self.informational = list(informational)

    def all(self, name):
        return [v for n, v in self.headers if n.lower() == name.lower()]

    def header(self, name):
        values = self.all(name)
        assert len(values) <= 1, f"{name} stands there {len(values)} times"
        return values[0] if values else None

    def json(self):
        def once(pairs):
            keys = [k for k, _ in pairs]
            assert len(keys) == len(set(keys)), f"a member twice: {keys}"
            return dict(pairs)

        def bare(token):
            raise AssertionError(f"a bare {token}")
        return json.loads(self.body.decode("utf-8"), object_pairs_hook=once, parse_constant=bare)

    @property
    def code(self):
        return self.json().get("code")

    @property
    def message(self):
        return self.json().get("message", "")

    def details(self, kind):
        return [d["value"] for d in self.json().get("details", []) if d["type"] == "plimsoll.v1." + kind]

    @property
    def reason(self):
        """The NotDispatched detail's name; None = no such detail."""
        values = self.details("NotDispatched")
        assert len(values) <= 1
        return REASONS[values[0]] if values else None

    @property
    def closes(self):
        return (self.header("Connection") or "").lower() == "close"

    def __repr__(self):
        heads = "".join(f"\n  {n}: {v}" for n, v in self.headers)
        return f"<{self.line}{heads}\n  {self.body[:600]!r}>"


def expect(answer, status, code=None, reason=None, mark=None, echo=None):
    """Everything that says what a refusal is: HTTP status, Connect code, NotDispatched detail, the header's mark, the echo."""
    assert answer.status == status, answer
    if code is not None:
        assert answer.header("Content-Type") == "application/json", answer
        assert answer.code == code, answer
        assert answer.message, answer
    assert answer.reason == reason if answer.header("Content-Type") == "application/json" and status != 200 else reason is None, answer
    assert answer.header("Plimsoll-Not-Dispatched") == mark, answer
    assert answer.header("Plimsoll-Request-Id") == echo, answer


def refused(answer, code, reason, echo=None):
    """A refusal by a procedure: the detail marks it, no header does."""
    expect(answer, STATUS[code], code, reason, None, echo)


def refused_early(answer, code, reason, echo=None):
    """A refusal before the procedure that has a detail: the header is there too."""
    expect(answer, STATUS[code], code, reason, "request", echo)


def refused_http(answer, status, code, echo=None, mark="request"):
    """A refusal before the procedure that only the header marks."""
    expect(answer, status, code, None, mark, echo)


def failed(answer, code, echo=None):
    """An error after the dispatch: no mark of any kind."""
    expect(answer, STATUS[code], code, None, None, echo)


# -- a connection --


class Closed(Exception):
    """The peer closed before an answer was complete."""


class Connection:
    """Sends exact bytes and reads answers strictly."""

    def __init__(self, port, timeout=ANSWER_S, receive_buffer=None):
        self.sock = socket.socket()
        if receive_buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.settimeout(timeout)
        self.sock.connect(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def reset(self):
        """Closes with RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def half_close(self):
        self.sock.shutdown(socket.SHUT_WR)

    def send(self, data):
        self.sock.sendall(data)
        return self

    def send_all_it_takes(self, data):
        """Sends as a client does that reads an early refusal: a broken pipe ends the sending, not the call."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.sock.sendall(data)
        return self

    def _more(self):
        data = self.sock.recv(65536)
        if not data:
            raise Closed(f"closed after {self.buffer[:200]!r}")
        self.buffer += data

    def _read_head(self):
        while b"\r\n\r\n" not in self.buffer:
            assert len(self.buffer) < 65536, "no end of the answer's head"
            self._more()
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        assert b"\n" not in head.replace(b"\r\n", b""), "a bare LF in the answer's head"
        line, *fields = head.decode("ascii").split("\r\n")
        m = re.fullmatch(r"HTTP/1\.1 (\d{3}) [ -~]+", line)
        assert m, f"status line {line!r}"
        headers = []
        for f in fields:
            m2 = re.fullmatch(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*(.*?)[ \t]*", f)
            assert m2, f"header line {f!r}"
            headers.append((m2.group(1), m2.group(2)))
        return int(m.group(1)), headers, line

    def read_answer(self, head_only=False):
        informational = []
        while True:
            status, headers, line = self._read_head()
            if status >= 200:
                break
            informational.append(status)
        lengths = [v for n, v in headers if n.lower() == "content-length"]
        assert len(lengths) == 1 and lengths[0].isdigit(), f"framing: {headers}"
        assert not [n for n, _ in headers if n.lower() == "transfer-encoding"]
        length = 0 if head_only else int(lengths[0])
        while len(self.buffer) < length:
            self._more()
        body, self.buffer = self.buffer[:length], self.buffer[length:]
        return Answer(status, headers, body, line, informational)

    def read_informational(self):
        status, headers, _ = self._read_head()
        assert 100 <= status < 200 and not headers
        return status

    def is_closed_within(self, seconds=SETTLE_S):
        """Whether the peer ends the connection, sending nothing more."""
        if self.buffer:
            raise AssertionError(f"more came: {self.buffer[:300]!r}")
        self.sock.settimeout(seconds)
        try:
            data = self.sock.recv(65536)
        except (TimeoutError, socket.timeout):
            return False
        except ConnectionResetError:
            return True
        if data:
            raise AssertionError(f"more came: {data[:300]!r}")
        return True

    def call(self, path, body=b"", headers=(), method="POST", head_only=False):
        self.send(request(path, body, headers, method))
        return self.read_answer(head_only or method == "HEAD")


def head(path, headers=(), method="POST", host="gw", version="1.1"):
    lines = [f"{method} {path} HTTP/{version}"]
    if host is not None:
        lines.append(f"Host: {host}")
    lines += [f"{n}: {v}" for n, v in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def request(path, body=b"", headers=(), method="POST"):
    headers = list(headers)
    names = {n.lower() for n, _ in headers}
    if (body or method == "POST") and "content-length" not in names and "transfer-encoding" not in names:
        headers.append(("Content-Length", str(len(body))))
    return head(path, headers, method) + body


# -- the wire forms --


def javascript(code="1", protocol=4, **more):
    """A RunRequest in JSON."""
    return {"protocol": protocol, "javascript": {"code": code}, **more}


def varint(n):
    n &= (1 << 64) - 1
    out = b""
    while True:
        out += bytes([n & 0x7f | (0x80 if n > 0x7f else 0)])
        n >>= 7
        if not n:
            return out


def field(number, value):
    """One field in the binary form: int = varint, bytes or str = length-delimited, float = fixed 64."""
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    return varint(number << 3) + varint(value)


def fields(data):
    """{number: [values]} of a binary message; varints as unsigned, the rest as bytes."""
    out, at = collections.defaultdict(list), 0

    def number():
        nonlocal at
        n = shift = 0
        while True:
            b = data[at]
            at += 1
            n |= (b & 0x7f) << shift
            shift += 7
            if b < 0x80:
                return n
    while at < len(data):
        tag = number()
        kind = tag & 7
        if kind == 0:
            value = number()
        elif kind == 2:
            n = number()
            value, at = data[at:at + n], at + n
            assert len(value) == n
        else:
            n = {1: 8, 5: 4}[kind]
            value, at = data[at:at + n], at + n
        out[tag >> 3].append(value)
    return dict(out)


def check_record(sent, answer):
    """Recomputes every digest of a JSON answer with the official client's functions. `sent` is the request in canonical JSON form.
    Returns the record."""
    got = answer.json() if isinstance(answer, Answer) else answer
    message = Msg(got, "RunResponse")
    record = _record.record_from_wire(message.get_msg("record"))
    assert record.version == (4 if sent["protocol"] >= 4 else 2)
    assert record.request_sha256 == _record.request_digest(sent)
    assert record.result_sha256 == _record.result_digest(message)
    assert record.sha256 == _record.record_digest(record)
    assert (record.provider, record.isolation) == (got["sandbox"], got["isolation"])
    assert record.environment == got.get("environment", "")
    assert record.software_identity == got.get("softwareIdentity", "")
    assert record.instance == got.get("instance", "")
    assert (record.session, record.sequence, record.previous_sha256, record.unanswered) == ("", 0, "", "")
    assert record.ended_unix_ms >= record.started_unix_ms
    return record


def stdout(answer):
    return base64.b64decode(answer.json()["javascript"].get("stdout", ""), validate=True)


def stderr(answer):
    return base64.b64decode(answer.json()["javascript"].get("stderr", ""), validate=True)


# -- the daemon --


class Faults:
    """Fault points of one gateway (core/fault.h): a file arms a point, another says that it was reached."""

    def __init__(self, folder):
        self.folder = folder

    def arm(self, name, action):
        (self.folder / (name + ".hit")).unlink(missing_ok=True)
        part = self.folder / (name + ".part")
        part.write_text(action + "\n")
        part.chmod(0o666)
        part.rename(self.folder / name)

    def disarm(self, name):
        (self.folder / name).unlink(missing_ok=True)

    def hits(self, name):
        try:
            return len((self.folder / (name + ".hit")).read_text().splitlines())
        except FileNotFoundError:
            return 0

    def wait(self, name, count=1, seconds=SETTLE_S):
        wait_for(lambda: self.hits(name) >= count, f"fault point {name}, reached {count} times", seconds)

    @contextlib.contextmanager
    def armed(self, name, action):
        self.arm(name, action)
        try:
            yield
        finally:
            self.disarm(name)


class Gateway:
    """One plimsolld. `settings` None values leave a setting out; the rest are its environment."""

    def __init__(self, settings=None, auth=True, clean_exit=True, state=None):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="plg-", dir=HOMES))
        self.home.chmod(0o755)
        self.state = pathlib.Path(state) if state else self.home / "s"
        faults = self.home / "f"
        faults.mkdir()
        faults.chmod(0o777)
        self.faults = Faults(faults)
        self.token = secrets.token_hex(24) if auth else None
        self.secrets = [self.token] if auth else []
        self.port, self.metrics_port = free_port(), free_port()
        self.log_path = self.home / "log"
        self.process = None
        self.clean_exit = clean_exit
        self.exit_status = 0
        self.allowed_findings = ()
        self.is_shared = False
        self.settings = {
            "PATH": os.environ["PATH"], "HOME": "/nonexistent", "PLIMSOLL_ADDR": f"127.0.0.1:{self.port}",
            "PLIMSOLL_METRICS_ADDR": f"127.0.0.1:{self.metrics_port}", "PLIMSOLL_STATE_DIR": str(self.state),
            "PLIMSOLL_FAULT_DIR": str(faults), "PLIMSOLL_TOKEN": self.token, "SANDBOX_RATE_PER_MIN": "0",
            "SANDBOX_PER_KEY_CONCURRENT": "0"}
        self.settings.update(settings or {})
        self.settings = {k: v for k, v in self.settings.items() if v is not None}

    # start and stop

    def spawn(self, arguments=()):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([str(DAEMON), *arguments], env=self.settings, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, cwd=self.home, start_new_session=True)
        return self

    def start(self):
        before = len(self.log_lines("plimsolld listening"))
        self.spawn()

        def listening():
            if self.process.poll() is not None:
                raise AssertionError(f"plimsolld ended with {self.process.returncode} at its start:\n{self.log()[-4000:]}")
            return len(self.log_lines("plimsolld listening")) > before
        wait_for(listening, f"plimsolld to listen:\n{self.log()[-4000:]}", START_S)
        return self

    def signal(self, number):
        self.process.send_signal(number)

    def wait_exit(self, seconds=STOP_S):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"plimsolld did not end in {seconds} s:\n{self.log()[-4000:]}") from None

    def stop(self, seconds=STOP_S):
        """SIGTERM, then every check of a clean end."""
        if self.process is None:
            return
        process = self.process
        below = descendants(process.pid)
        if process.poll() is None:
            self.signal(signal.SIGTERM)
        try:
            status = self.wait_exit(seconds)
        finally:
            self.kill_rest()
        self.process = None
        left = self._left_over(process.pid, below)
        problems = self.problems_in_log()
        if self.clean_exit and status != self.exit_status:
            problems.append(f"exit status {status}, expected {self.exit_status}")
        if left:
            problems.append(f"left over: {left}")
        assert not problems, "\n".join(problems) + "\n--- log ---\n" + self.log()[-12000:]

    def _left_over(self, pid, below):
        """Processes of ours that outlived the parent. Dying takes a moment; the wait is bounded."""
        def left():
            found = {p for p, start in below.items() if is_alive(p, start)}
            found |= {p for p, s in _processes().items() if s[2] == pid and s[4] != "Z"}
            return {p: name_of(p) for p in found}
        end = time.monotonic() + 5
        while left() and time.monotonic() < end:
            time.sleep(0.02)
        remaining = left()
        for p in remaining:
            with contextlib.suppress(ProcessLookupError):
                os.kill(p, signal.SIGKILL)
        return remaining

    def kill_rest(self):
        """Ends the daemon when it did not end itself."""
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(STOP_S)

    def problems_in_log(self):
        text = self.log()
        found = [f"the log has {f!r}" for f in FINDINGS if f in text and f not in self.allowed_findings]
        found += ["the log has a secret" for s in self.secrets if s in text]
        found += [f"not a JSON line: {line[:300]!r}" for line in text.splitlines()
                  if line.startswith("{") and not _is_json(line)]
        return found

    def remove(self):
        shutil.rmtree(self.home, ignore_errors=True)

    def write_callers(self, callers):
        """The callers file from {id: token} or {id: entry without the id}; PLIMSOLL_CLIENTS_FILE names it."""
        entries = []
        for caller, what in callers.items():
            entry = {"token_sha256": token_hash(what), "scopes": ["code:run"]} if isinstance(what, str) else what
            entries.append({"id": caller, **entry})
            if isinstance(what, str):
                self.secrets.append(what)
        path = self.home / "callers.json"
        part = self.home / "callers.json.part"
        part.write_text(json.dumps({"clients": entries}))
        part.rename(path)
        self.settings["PLIMSOLL_CLIENTS_FILE"] = str(path)
        return path

    def barrier(self, name="barrier"):
        """Code for the stand-in wall that runs until the barrier's file is removed, and the file."""
        path = self.faults.folder / name
        path.touch()
        path.chmod(0o666)
        return f"standin: hold until {path} is gone", path

    def restart(self):
        self.stop()
        return self.start()

    # processes

    def child(self, name):
        """The pid of a direct child by its name: plimsolld-front, plimsolld-backend-wasm, redis-server."""
        for pid in descendants(self.process.pid):
            if name_of(pid).split(" ")[0].split("/")[-1].startswith(name):
                return pid
        return None

    # log

    def log(self):
        try:
            return self.log_path.read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def log_lines(self, message=None, **matching):
        lines = []
        for line in self.log().splitlines():
            if line.startswith("{") and _is_json(line):
                entry = json.loads(line)
                if (message is None or entry.get("msg") == message) and all(entry.get(k) == v for k, v in matching.items()):
                    lines.append(entry)
        return lines

    def wait_log(self, message, seconds=SETTLE_S, **matching):
        return wait_for(lambda: self.log_lines(message, **matching), f"log line {message!r} {matching}", seconds)[-1]

    # requests

    def connect(self, **more):
        return Connection(self.port, **more)

    def headers(self, request_id=None, token=None, content_type="application/json", more=()):
        out = []
        token = self.token if token is None else token
        if token:
            out.append(("Authorization", "Bearer " + token))
        if content_type:
            out.append(("Content-Type", content_type))
        if request_id:
            out.append(("Plimsoll-Request-Id", request_id))
        return out + list(more)

    def post(self, path, body=b"", request_id=None, token=None, content_type="application/json", more=(), on=None):
        """One POST; `body` may be bytes, text or something for JSON."""
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
        elif isinstance(body, str):
            body = body.encode()
        data = request(path, body, self.headers(request_id, token, content_type, more))
        if on is not None:
            on.send_all_it_takes(data)
            return on.read_answer()
        with self.connect() as c:
            c.send_all_it_takes(data)
            return c.read_answer()

    def get(self, path, token=None, more=(), method="GET", request_id=None):
        with self.connect() as c:
            c.send(head(path, self.headers(request_id, token, None, more), method))
            return c.read_answer(method == "HEAD")

    def run(self, code="1", request_id=None, protocol=4, token=None, on=None, headers=(), path=RUN, **more):
        return self.post(path, javascript(code, protocol, **more), request_id, token, more=headers, on=on)

    def ok(self, code="1", request_id=None, protocol=4, headers=(), path=RUN, **more):
        """A run that must be answered, with its record checked."""
        answer = self.run(code, request_id, protocol, headers=headers, path=path, **more)
        assert answer.status == 200, answer
        sent = javascript(code, protocol, **more)
        check_record(sent, answer)
        assert answer.header("Plimsoll-Request-Id") == request_id, answer
        return answer

    def describe(self, path=DESCRIBE, **more):
        return self.post(path, {}, **more)

    def start_run(self, code="1", request_id=None, **more):
        """Sends a run and does not wait for its answer."""
        c = self.connect()
        body = json.dumps(javascript(code, **more)).encode()
        c.send(request(RUN, body, self.headers(request_id)))
        return c

    def in_background(self, *args, **more):
        """A run in a thread; join gives the answer."""
        return Background(lambda: self.run(*args, **more))

    # numbers

    def metrics(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=ANSWER_S) as r:
            text = r.read().decode()
        out = {}
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                out[name] = float(value)
        return out

    def metric(self, name):
        return self.metrics()[name]

    def wait_metric(self, name, wanted, seconds=SETTLE_S):
        """Until a metric is at least `wanted` (a counter) or exactly it (a gauge)."""
        is_counter = "_total" in name
        wait_for(lambda: (lambda v: v >= wanted if is_counter else v == wanted)(self.metric(name)), f"{name} to be {wanted}", seconds)

    def wait_inflight(self, wanted, seconds=SETTLE_S):
        self.wait_metric("plimsoll_inflight", wanted, seconds)


class Background:
    def __init__(self, function):
        self.result = self.error = None
        self.thread = threading.Thread(target=self._run, args=(function,), daemon=True)
        self.thread.start()

    def _run(self, function):
        try:
            self.result = function()
        except BaseException as e:  # handed to whoever joins
            self.error = e

    @property
    def is_over(self):
        return not self.thread.is_alive()

    def join(self, seconds=ANSWER_S):
        self.thread.join(seconds)
        assert not self.thread.is_alive(), f"no answer in {seconds} s"
        if self.error is not None:
            raise self.error
        return self.result


def _is_json(line):
    try:
        json.loads(line)
        return True
    except ValueError:
        return False


running = []  # whose logs are shown with a failure


@contextlib.contextmanager
def served(gw):
    """Ends the gateway, which must end cleanly, and removes what it left in the file system."""
    running.append(gw)
    try:
        yield gw
        gw.stop()
    finally:
        gw.kill_rest()
        running.remove(gw)
        gw.remove()


def token_hash(token):
    return hashlib.sha256(token.encode()).hexdigest()


class Redis:
    """A redis-server of a test's own, on a Unix socket or a port."""

    def __init__(self, port=None):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="plr-", dir=HOMES))
        self.home.chmod(0o777)
        self.port = port or free_port()
        self.process = None

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self):
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.home), "--save", "", "--appendonly",
             "no", "--loglevel", "warning"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True)
        wait_for(self._answers, "redis-server to answer", START_S)
        return self

    def _answers(self):
        try:
            return self.command("PING") == b"+PONG"
        except OSError:
            return False

    def command(self, *words):
        """One command; the first line of the reply."""
        with socket.create_connection(("127.0.0.1", self.port), 10) as s:
            s.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w.encode()), w.encode()) for w in words))
            return s.makefile("rb").readline().rstrip(b"\r\n")

    def signal(self, number):
        self.process.send_signal(number)

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait(STOP_S)
        shutil.rmtree(self.home, ignore_errors=True)
