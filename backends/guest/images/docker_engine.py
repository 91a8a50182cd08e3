"""The few calls of the Engine API (Docker Engine API 1.41) that importing an image needs, over its Unix socket."""
import http.client
import json
import os
import socket
import urllib.parse

DEFAULT_SOCKET = "/var/run/docker.sock"


class EngineProblem(Exception):
    pass


def socket_path():
    return os.environ.get("SANDBOX_DOCKER_SOCKET", DEFAULT_SOCKET).removeprefix("unix://")


class Connection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("engine", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Engine:
    def __init__(self, path=None):
        self.path = path or socket_path()

    def call(self, method, target, body=None, headers=None, timeout=60):
        """(status, body); the body is sent in chunks when it is an iterable."""
        connection = Connection(self.path, timeout)
        try:
            try:
                connection.request(method, target, body=body, headers=headers or {}, encode_chunked=body is not None and not isinstance(body, bytes))
            except BrokenPipeError:
                # it has answered before it read the body: the reason is in the answer
                pass
            answer = connection.getresponse()
            return answer.status, answer.read(4 << 20)
        except OSError as e:
            raise EngineProblem(f"the Engine at {self.path}: {e.strerror or e}") from e
        finally:
            connection.close()

    def ping(self):
        status, _ = self.call("GET", "/_ping", timeout=5)
        if status != 200:
            raise EngineProblem(f"the Engine at {self.path} answers its ping with {status}")

    def image(self, reference):
        """Image inspect, or None when there is none."""
        status, body = self.call("GET", f"/images/{reference}/json")
        if status == 404:
            return None
        if status != 200:
            raise EngineProblem(f"inspect of {reference}: {status} {body[:200]!r}")
        return json.loads(body)

    def import_image(self, repository, tag, changes, chunks):
        query = [("fromSrc", "-"), ("repo", repository), ("tag", tag)] + [("changes", c) for c in changes]
        status, body = self.call("POST", "/images/create?" + urllib.parse.urlencode(query), body=chunks,
                                 headers={"Transfer-Encoding": "chunked", "Content-Type": "application/x-tar"}, timeout=600)
        lines = [json.loads(line) for line in body.splitlines() if line.strip().startswith(b"{")]
        failed = [line["error"] for line in lines if "error" in line]
        if status != 200 or failed:
            raise EngineProblem(f"import of {repository}: {status} {failed or body[:300]!r}")

    def prune_replaced(self):
        """Images that an import of ours took the name from, an hour old at least: a gateway may still start one of them."""
        filters = json.dumps({"dangling": ["true"], "label": ["sbx.inputs"], "until": ["1h"]})
        self.call("POST", "/images/prune?" + urllib.parse.urlencode({"filters": filters}), timeout=120)
