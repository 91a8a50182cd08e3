"""Real proxies in front of gateways: nginx and HAProxy with configurations of a test's own, on loopback, in a temporary folder, ended by
their process. The defaults are what docs/http.md shows."""
import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import gateway as g

START_S = 30


def missing(program):
    """Why a test of this program cannot run; None when it can."""
    return None if shutil.which(program) else f"{program} is not installed"


class Proxy:
    """A process that listens on `port` and ends when told. Subclasses write its configuration."""

    def __init__(self, program):
        self.program = program
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="plx-", dir="/tmp"))
        self.home.chmod(0o777)  # its workers may be another user
        self.port = g.free_port()
        self.log_path = self.home / "log"
        self.process = None

    def start(self):
        self.configure()
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.home, start_new_session=True)

        def listening():
            if self.process.poll() is not None:
                raise AssertionError(f"{self.program} ended with {self.process.returncode}:\n{self.log()}")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return all(path.exists() for path in self.sockets())
        try:
            g.wait_for(listening, f"{self.program} to listen", START_S)
        except BaseException:
            self.stop()
            raise
        return self

    def sockets(self):
        """Paths of the Unix sockets it makes, some of them after it listens."""
        return []

    def log(self):
        with contextlib.suppress(FileNotFoundError):
            return self.log_path.read_text(errors="replace")
        return ""

    def stop(self):
        """Its own process and those below it, each by its number."""
        if self.process is not None:
            below = g.descendants(self.process.pid)
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
                try:
                    self.process.wait(5)
                except subprocess.TimeoutExpired:
                    self.process.kill()
                    self.process.wait(5)
            for pid, start in below.items():
                if g.is_alive(pid, start):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            self.process = None
        shutil.rmtree(self.home, ignore_errors=True)

    def connect(self, **more):
        return g.Connection(self.port, **more)


def _indent(text, by):
    return "\n".join(" " * by + line for line in text.strip().splitlines())


NGINX = """\
daemon off;
worker_processes 1;
pid {home}/pid;
error_log stderr warn;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {home}/body;
    proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi;
    scgi_temp_path {home}/scgi;
    upstream plimsoll {{
{servers}
        keepalive {keepalive};
{upstream}
    }}
    server {{
        listen 127.0.0.1:{port};
{server}
        location / {{
            proxy_pass {scheme}://plimsoll{path};
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $host;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_read_timeout {read_timeout};
            client_max_body_size {body_max};
{location}
        }}
    }}
}}
"""


class Nginx(Proxy):
    """`ports`: the gateways'. `server`, `upstream` and `location` are lines put into those blocks."""

    def __init__(self, ports, scheme="http", path="", keepalive=32, server="", upstream="", location="", parameters="", body_max="8m", read_timeout="360s"):
        super().__init__("nginx")
        self.fields = {"servers": _indent("\n".join(f"server 127.0.0.1:{p} {parameters};" for p in ports), 8), "scheme": scheme, "path": path,
                       "keepalive": keepalive, "body_max": body_max, "read_timeout": read_timeout, "server": _indent(server, 8), "upstream": _indent(upstream, 8),
                       "location": _indent(location, 12)}

    def configure(self):
        (self.home / "nginx.conf").write_text(NGINX.format(home=self.home, port=self.port, **self.fields))

    def command(self):
        return ["nginx", "-p", str(self.home), "-c", str(self.home / "nginx.conf"), "-e", str(self.log_path)]


HAPROXY = """\
global
    maxconn 4000
    stats socket {home}/stats mode 600
    nbthread 1
defaults
    mode http
    timeout connect 5s
    timeout client 360s
    timeout server 360s
    timeout http-keep-alive 360s
    retries 3
{defaults}
frontend front
    bind 127.0.0.1:{port}
    default_backend plimsoll
{frontend}
backend plimsoll
    http-reuse always
{backend}
{servers}
"""


class HAProxy(Proxy):
    def __init__(self, ports, defaults="", frontend="", backend="", parameters=""):
        super().__init__("haproxy")
        self.fields = {"servers": _indent("\n".join(f"server gw{i} 127.0.0.1:{p} {parameters}" for i, p in enumerate(ports)), 4),
                       "defaults": _indent(defaults, 4), "frontend": _indent(frontend, 4), "backend": _indent(backend, 4)}

    def configure(self):
        (self.home / "haproxy.cfg").write_text(HAPROXY.format(home=self.home, port=self.port, **self.fields))

    def command(self):
        return ["haproxy", "-db", "-f", str(self.home / "haproxy.cfg")]

    def sockets(self):
        return [self.home / "stats"]

    def ask(self, command):
        """One command of its statistics socket."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(10)
            s.connect(str(self.home / "stats"))
            s.sendall(command.encode() + b"\n")
            out = b""
            while data := s.recv(65536):
                out += data
            return out.decode()

    def stat(self, name, server="gw0"):
        """A column of `show stat` for one server."""
        rows = self.ask("show stat").strip().splitlines()
        columns = rows[0].lstrip("# ").split(",")
        row = next(r.split(",") for r in rows[1:] if r.split(",")[:2] == ["plimsoll", server])
        return row[columns.index(name)]


class SourceConnection(g.Connection):
    """From an address of 127.0.0.0/8 of one's choice."""

    def __init__(self, port, source):
        self.sock = socket.create_connection(("127.0.0.1", port), g.ANSWER_S, source_address=(source, 0))
        self.buffer = b""


def make_certificate(folder):
    """A key and a certificate for the name gw, signed by itself."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(key), "-out",
                    str(cert), "-days", "2", "-subj", "/CN=gw", "-addext", "subjectAltName=DNS:gw"], check=True, capture_output=True)
    for path in (cert, key):
        path.chmod(0o644)
    return cert, key


class Chain:
    """Something that answers to `gw.post` and its kin through another port: the gateway as its callers behind the proxy see it."""

    def __init__(self, gw, proxy, token=None):
        self.gw, self.proxy, self.token = gw, proxy, token or gw.token

    def headers(self, request_id=None, content_type="application/json", more=()):
        return self.gw.headers(request_id, self.token, content_type, more)

    def connect(self, **more):
        return self.proxy.connect(**more)

    def post(self, path, body=b"", request_id=None, content_type="application/json", more=(), on=None):
        data = g.request(path, body, self.headers(request_id, content_type, more))
        if on is not None:
            on.send_all_it_takes(data)
            return on.read_answer()
        with self.connect() as c:
            c.send_all_it_takes(data)
            return c.read_answer()

    def run(self, code, request_id=None, on=None, more=(), **fields):
        return self.post(g.RUN, g.json.dumps(g.javascript(code, **fields)).encode(), request_id, more=more, on=on)

    def ok(self, code, request_id=None, on=None, **fields):
        """A run that must be answered, by its own answer, with its record checked."""
        answer = self.run(code, request_id, on, **fields)
        assert answer.status == 200, answer
        assert answer.header("Plimsoll-Request-Id") == request_id, answer
        g.check_record(g.javascript(code, **fields), answer)
        return answer

    def get(self, path, more=(), method="GET", request_id=None):
        with self.connect() as c:
            c.send(g.head(path, self.headers(request_id, None, more), method))
            return c.read_answer(method == "HEAD")


def pause(seconds):
    """For what is about time itself: idle timeouts against each other."""
    time.sleep(seconds)
