"""The machines of the benchmark: gateways, nginx, load generators; what they cost in processor time and memory. Loopback only; everything
started here is ended here, by its own process ID."""
import contextlib
import json
import os
import pathlib
import re
import resource
import secrets
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("PLIMSOLL_BUILD", ROOT / "build/bench"))
START_S = 60
SERVER_CORE, CLIENT_CORE = "0", "1"
SERVICE = "/plimsoll.v1.SandboxService/"

DIRECTORY = pathlib.Path(tempfile.mkdtemp(prefix="plb-", dir="/tmp"))
DIRECTORY.chmod(0o755)


DESCRIPTORS = 65536  # a gateway takes connections up to half of it


def raise_descriptors():
    """Descriptors for this process and all it starts: DESCRIPTORS, or what the machine's owner allows. Returns how many."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (max(DESCRIPTORS, most), most):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
            return limit
    return most


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def file_of(text):
    path = DIRECTORY / secrets.token_hex(4)
    path.write_bytes(text if isinstance(text, bytes) else json.dumps(text).encode())
    return path


def pinned(core, *words):
    return ["taskset", "-c", core, *map(str, words)] if core else [str(w) for w in words]


def wait_for(condition, what, seconds=START_S):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"bench: waited {seconds} s in vain for {what}")
        time.sleep(0.02)


# -- processes --


def _children(pid):
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):
            for child in pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                found += [int(child), *_children(int(child))]
    return found


def _name(pid):
    return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode().split(" ")[0].split("/")[-1]


def processor_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def private_bytes(pid):
    """Anonymous resident memory: what the process itself filled. The programs' text is shared and not counted."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return sum(int(kb) for kb in re.findall(r"^(?:RssAnon|RssShmem):\s+(\d+) kB$", text, re.M)) * 1024


class Gateway:
    """One plimsolld with the settings given. Rates and shares of a caller are off."""

    def __init__(self, core=None, **settings):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="gw-", dir=DIRECTORY))
        self.home.chmod(0o755)
        self.port, self.token = free_port(), secrets.token_hex(24)
        self.core = core
        self.settings = {
            "PATH": os.environ["PATH"], "PLIMSOLL_ADDR": f"127.0.0.1:{self.port}", "PLIMSOLL_METRICS_ADDR": "off",
            "PLIMSOLL_STATE_DIR": str(self.home / "s"), "PLIMSOLL_TOKEN": self.token, "SANDBOX_RATE_PER_MIN": "0",
            "SANDBOX_PER_KEY_CONCURRENT": "0", "PLIMSOLL_MAX_CONNECTIONS_PER_ADDRESS": "0", "PLIMSOLL_DRAIN": "1s", **settings}

    def __enter__(self):
        with open(self.home / "log", "wb") as log:
            self.process = subprocess.Popen(pinned(self.core, BUILD / "plimsolld"), env=self.settings, stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, cwd=self.home)
        try:
            wait_for(self._listens, "plimsolld")
        except BaseException:
            self.__exit__()
            raise
        return self

    def _listens(self):
        if self.process.poll() is not None:
            raise SystemExit("bench: plimsolld did not start:\n" + (self.home / "log").read_text())
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def pids(self, but=()):
        """{pid: name} of its processes, the private Redis left out."""
        everyone = {p: _name(p) for p in [self.process.pid, *_children(self.process.pid)]}
        return {p: n for p, n in everyone.items() if not n.startswith("redis-server") and n not in but}

    def front(self):
        return next(p for p, n in self.pids().items() if n == "plimsolld-front")

    def memory(self):
        return sum(private_bytes(p) for p in self.pids())

    def post(self, procedure, message):
        """One request; its answer's body."""
        body = json.dumps(message).encode()
        with socket.create_connection(("127.0.0.1", self.port), 30) as s:
            s.sendall(f"POST {SERVICE}{procedure} HTTP/1.1\r\nHost: gw\r\nAuthorization: Bearer {self.token}\r\n"
                      f"Content-Type: application/json\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = b""
            while chunk := s.recv(65536):
                answer += chunk
        return answer.partition(b"\r\n\r\n")[2]


class Nginx:
    """nginx as a reverse proxy with kept connections to an upstream that answers `body` at once: one worker each."""

    CONF = """
daemon off; master_process off; worker_processes 1; pid {home}/pid; error_log {home}/error.log;
events {{ worker_connections 4096; }}
http {{
    access_log off; keepalive_requests 1000000000;
    client_body_temp_path {home}/b; proxy_temp_path {home}/p; fastcgi_temp_path {home}/f; uwsgi_temp_path {home}/u; scgi_temp_path {home}/s;
    {http}
}}
"""
    PROXY = """
    upstream trivial {{ server 127.0.0.1:{upstream}; keepalive 128; keepalive_requests 1000000000; }}
    server {{ listen 127.0.0.1:{port}; location / {{
        proxy_pass http://trivial; proxy_http_version 1.1; proxy_set_header Connection ""; }} }}
"""
    UPSTREAM = """
    server {{ listen 127.0.0.1:{port}; default_type application/json; location / {{ return 200 '{body}'; }} }}
"""

    def __init__(self, body):
        self.body = body.decode().replace("'", "")
        self.port, self.upstream = free_port(), free_port()

    def _start(self, core, http):
        home = pathlib.Path(tempfile.mkdtemp(prefix="nginx-", dir=DIRECTORY))
        (home / "conf").write_text(self.CONF.format(home=home, http=http))
        return subprocess.Popen(pinned(core, "nginx", "-e", home / "error.log", "-p", home, "-c", home / "conf"),
                                stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self):
        # the upstream is on the client's core, so that the proxy has its own core to itself, as the gateway has
        self.processes = [self._start(CLIENT_CORE, self.UPSTREAM.format(port=self.upstream, body=self.body)),
                          self._start(SERVER_CORE, self.PROXY.format(port=self.port, upstream=self.upstream))]
        try:
            for port in (self.upstream, self.port):
                wait_for(lambda p=port: self._listens(p), "nginx")
        except BaseException:
            self.__exit__()
            raise
        return self

    def _listens(self, port):
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", port)) == 0

    def __exit__(self, *_):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()

    def front(self):
        return self.processes[1].pid


# -- the rest of the machine --


class Quiet:
    """Lets each round begin on an idle machine, as long as its patience lasts; keeps how often it did not."""

    IDLE, LOOK_S = 0.9, 0.3

    def __init__(self, patience_s):
        self.patience_s, self.rounds, self.disturbed = patience_s, 0, 0

    @staticmethod
    def _times():
        fields = [int(f) for f in pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
        return fields[3] + fields[4], sum(fields)

    def _is_idle(self):
        before = self._times()
        time.sleep(self.LOOK_S)
        idle, whole = (b - a for a, b in zip(before, self._times()))
        return idle >= self.IDLE * whole

    def wait(self):
        self.rounds += 1
        end = time.monotonic() + self.patience_s
        while not self._is_idle():
            if time.monotonic() > end:
                self.patience_s = 0
                self.disturbed += 1
                return
        self.patience_s = max(0, end - time.monotonic())


# -- load --


def wrk(port, path, message, token, seconds, connections=32):
    """Requests a second by wrk, one thread; (rate, answers other than 2xx)."""
    script = file_of("\n".join([
        'wrk.method = "POST"', f"wrk.body = [[{json.dumps(message)}]]", 'wrk.headers["Content-Type"] = "application/json"',
        f'wrk.headers["Authorization"] = "Bearer {token}"', f'wrk.headers["Plimsoll-Request-Id"] = "{secrets.token_hex(16)}"']).encode())
    out = subprocess.run(pinned(CLIENT_CORE, "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", script,
                                f"http://127.0.0.1:{port}{path}"), capture_output=True, text=True, check=True).stdout
    if "Socket errors" in out:
        raise SystemExit("bench: wrk met socket errors:\n" + out)
    other = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
    return float(re.search(r"Requests/sec:\s+([\d.]+)", out).group(1)), int(other.group(1)) if other else 0


def _load_words(gateway, message, more):
    return [BUILD / "load", "--port", gateway.port, "--path", SERVICE + "Run", "--body", file_of(message), "--token", gateway.token,
            *more]


def load(gateway, message, *more, core=None):
    """Closed loop by our own generator; what it printed."""
    out = subprocess.run(pinned(core, *_load_words(gateway, message, more)), capture_output=True, text=True)
    if out.returncode != 0:
        raise SystemExit("bench: " + out.stderr)
    return json.loads(out.stdout)


@contextlib.contextmanager
def held(gateway, message, *more):
    """Requests that are held while the block runs; what the generator says of them."""
    process = subprocess.Popen(pinned(None, *_load_words(gateway, message, ["--hold", *more])), stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        if not line:
            raise SystemExit("bench: the load generator ended early")
        yield json.loads(line)
    finally:
        process.stdin.close()
        process.wait()


def median(values):
    return statistics.median(values)


def clean_up():
    shutil.rmtree(DIRECTORY, ignore_errors=True)
