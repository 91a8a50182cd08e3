"""An Engine with faults: a proxy on a Unix socket in front of a real one. It passes everything on, and does to a matching call what a rule
says: another status, HTML, no answer, a connection that ends after the effect, a stream that is cut, an answer with a field changed.

    with FakeEngine(engine) as fake:
        with fake.rule("POST", r"/start$", answer(500)) as rule: ...
"""
import contextlib
import json
import os
import pathlib
import re
import select
import shutil
import socket
import tempfile
import threading
import time

HEAD_MAX = 65536
ANSWER_S = 120


class _Drop(Exception):
    """The client's connection ends here."""


# -- what a rule does: called with the call and a function that asks the real engine, once; gives the bytes of an answer's head and body --


def _made(status, body, kind="application/json"):
    if isinstance(body, (dict, list)):
        body = json.dumps(body)
    body = body.encode() if isinstance(body, str) else body
    return f"HTTP/1.1 {status} Made up\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode(), body


def answer(status, body=None, kind="application/json"):
    """Instead of the real engine's answer; it is not asked."""
    return lambda call, ask: _made(status, {"message": "made up for a test"} if body is None else body, kind)


def html(status=502):
    """As a proxy in between answers that cannot reach the engine."""
    return answer(status, "<html><body><h1>Bad Gateway</h1></body></html>", "text/html")


def drop():
    """The connection ends with nothing done."""
    def do(call, ask):
        raise _Drop
    return do


def done_then(then):
    """The real engine does it; its answer is lost, and `then` decides what the client gets."""
    def do(call, ask):
        ask()
        return then(call, ask)
    return do


def hang(until, then=None):
    """No answer until the event is set (a test's own end sets all of them); then as `then` says, or as the engine does."""
    def do(call, ask):
        call.fake.wait(until)
        return then(call, ask) if then else ask()
    return do


def edit(change):
    """The real answer, when it is one, with its JSON changed in place by `change`."""
    def do(call, ask):
        head, body = ask()
        if head.split(b" ", 2)[1] != b"200":
            return head, body
        value = json.loads(body)
        changed = change(value)
        return _made(200, value if changed is None else changed)
    return do


def tell(notice):
    """Calls notice(call) before it is passed on."""
    def do(call, ask):
        notice(call)
        return ask()
    return do


class cut:
    """A hijacked stream: ended when `after` bytes of the container's came (without the engine's headers) or once `until` is set, or held back from
    then on; `inject` comes before everything. Afterwards `seen` counts the container's bytes, `first` those before the client had sent a second
    time (HELLO is the first)."""

    def __init__(self, after, how="close", until=None, inject=b""):
        self.after, self.how, self.until, self.inject = after, how, until, inject
        self.seen = self.first = self.sends = 0
        self.header, self.left = b"", 0

    def take(self, data):
        """What of the next bytes is still passed on; all, or up to the cut."""
        at = 0
        while at < len(data):
            if self.left == 0:
                n = min(8 - len(self.header), len(data) - at)
                self.header += data[at:at + n]
                at += n
                if len(self.header) == 8:
                    self.left, self.header = int.from_bytes(self.header[4:], "big"), b""
                continue
            n = min(self.left, len(data) - at, max(0, self.after - self.seen))
            if n == 0:
                return data[:at]
            self.seen, self.left, at = self.seen + n, self.left - n, at + n
        if self.sends <= 1:
            self.first = self.seen
        return data

    @property
    def is_cut(self):
        return self.seen >= self.after


class Rule:
    def __init__(self, method, pattern, action, times, skip):
        self.method, self.pattern, self.action = method, re.compile(pattern), action
        self.times, self.skip, self.hits = times, skip, 0
        self.hit = threading.Event()


class Call:
    def __init__(self, fake, method, path, body):
        self.fake, self.method, self.path, self.body = fake, method, path, body
        self.status = None

    def json(self):
        return json.loads(self.body)


def _read_head(sock, buffer):
    while b"\r\n\r\n" not in buffer:
        if len(buffer) > HEAD_MAX:
            raise _Drop
        buffer += _some(sock)
    head, _, rest = bytes(buffer).partition(b"\r\n\r\n")
    return head + b"\r\n\r\n", bytearray(rest)


def _header(head, name):
    m = re.search(rb"(?im)^" + name + rb":[ \t]*(.*?)[ \t]*\r$", head)
    return m.group(1).decode().lower() if m else None


def _some(sock):
    data = sock.recv(65536)
    if not data:
        raise _Drop
    return data


def _read_exactly(sock, buffer, n):
    while len(buffer) < n:
        buffer += _some(sock)
    taken = bytes(buffer[:n])
    del buffer[:n]
    return taken


def _read_body(sock, head, buffer, is_answer):
    """The body as it was framed, in full; a chunked one is put together."""
    if _header(head, b"transfer-encoding") == "chunked":
        body = b""
        while True:
            while b"\r\n" not in buffer:
                buffer += _some(sock)
            size, _, rest = bytes(buffer).partition(b"\r\n")
            buffer[:] = rest
            chunk = _read_exactly(sock, buffer, int(size, 16) + 2)
            if int(size, 16) == 0:
                return body
            body += chunk[:-2]
    length = _header(head, b"content-length")
    if length is not None:
        return _read_exactly(sock, buffer, int(length))
    if is_answer and not re.match(rb"HTTP/1\.\d (1..|204|304)", head):
        body = bytes(buffer)
        while data := sock.recv(65536):
            body += data
        return body
    return b""


class FakeEngine:
    def __init__(self, engine):
        self.target = engine.path
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="plf-", dir="/tmp"))
        self.home.chmod(0o755)
        self.path = str(self.home / "docker.sock")
        self.lock = threading.Lock()
        self.rules, self.calls, self.created = [], [], []
        self.over = threading.Event()
        self.connections = set()
        self.listener = None
        self.said, self.heard = threading.Condition(), b""      # the latest of what containers said

    def __enter__(self):
        self.listen()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.unlisten()
        shutil.rmtree(self.home, ignore_errors=True)

    def listen(self):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        os.chmod(self.path, 0o660)
        shutil.chown(self.path, group=os.stat(self.target).st_gid)
        self.listener.listen(128)
        threading.Thread(target=self._accept, args=(self.listener,), daemon=True).start()

    def unlisten(self):
        """The engine is gone: every connection ends, no further one is taken."""
        listener, self.listener = self.listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            pathlib.Path(self.path).unlink(missing_ok=True)
        self.end_connections()

    def end_connections(self):
        with self.lock:
            ending = list(self.connections)
        for sock in ending:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def wait(self, event):
        while not event.wait(0.05) and not self.over.is_set():
            pass
        if self.over.is_set():
            raise _Drop

    # rules

    @contextlib.contextmanager
    def rule(self, method, pattern, action, times=None, skip=0):
        """The first rule that matches acts; `times` of its calls, after the first `skip`."""
        rule = Rule(method, pattern, action, times, skip)
        with self.lock:
            self.rules.insert(0, rule)
        try:
            yield rule
        finally:
            with self.lock:
                if rule in self.rules:
                    self.rules.remove(rule)

    def _rule_for(self, method, path):
        with self.lock:
            for rule in self.rules:
                if rule.method == method and rule.pattern.search(path):
                    if rule.skip > 0:
                        rule.skip -= 1
                        continue
                    if rule.times is None or rule.hits < rule.times:
                        rule.hits += 1
                        rule.hit.set()
                        return rule
        return None

    def made(self, method, pattern):
        """The calls that matched so far."""
        with self.lock:
            return [c for c in self.calls if c.method == method and re.search(pattern, c.path)]

    # passing on

    def _accept(self, listener):
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with self.lock:
                self.connections.add(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        upstream = socket.socket(socket.AF_UNIX)
        try:
            client.settimeout(None)
            upstream.settimeout(ANSWER_S)
            upstream.connect(self.target)
            buffer = bytearray()
            while self._one(client, upstream, buffer):
                pass
        except (_Drop, OSError, ValueError):
            pass
        finally:
            with self.lock:
                self.connections.discard(client)
            client.close()
            upstream.close()

    def _one(self, client, upstream, buffer):
        head, rest = _read_head(client, buffer)
        method, path = head.split(b" ")[0].decode(), head.split(b" ")[1].decode()
        is_hijack = _header(head, b"upgrade") is not None
        body = b"" if is_hijack else _read_body(client, head, rest, False)
        buffer[:] = rest
        call = Call(self, method, path, body)
        with self.lock:
            self.calls.append(call)
        rule = self._rule_for(method, path)
        asked = []

        def ask():
            upstream.sendall(head + body)
            back, more = _read_head(upstream, bytearray())
            if is_hijack and back.split(b" ")[1] in (b"101", b"200"):
                asked.append(bytes(more))
                return back, bytes(more)
            content = _read_body(upstream, back, more, True)
            if method == "POST" and "/containers/create" in path and back.split(b" ")[1] == b"201":
                with self.lock:
                    self.created.append(json.loads(content)["Id"])
            # told again with a length: what the engine sends in chunks has been put together
            lines = [line for line in back.split(b"\r\n") if line and not re.match(rb"(?i)(transfer-encoding|content-length):", line)]
            if not re.match(rb"HTTP/1\.\d (1..|204|304)", back):
                lines.append(b"Content-Length: %d" % len(content))
            return b"\r\n".join(lines) + b"\r\n\r\n", content
        action = rule.action if rule else None
        back, content = action(call, ask) if action and not isinstance(action, cut) else ask()
        call.status = int(back.split(b" ", 2)[1])
        client.sendall(back + content)
        if asked:
            self._stream(client, upstream, bytes(rest), content, action if isinstance(action, cut) else None)
            return False
        return True

    def forget(self):
        with self.said:
            self.heard = b""

    def wait_for_stream(self, data, seconds=30):
        """Until a container has said this."""
        end = time.monotonic() + seconds
        with self.said:
            while data not in self.heard:
                assert self.said.wait(end - time.monotonic()), f"no container said {data!r}"
            self.heard = b""

    def _hear(self, data):
        with self.said:
            self.heard = (self.heard + data)[-65536:]
            self.said.notify_all()

    def _stream(self, client, upstream, early, first, cutting):
        """Both ways until either has ended."""
        cutting = cutting or cut(1 << 60)
        upstream.settimeout(None)
        if early:
            upstream.sendall(early)
        client.sendall(cutting.inject)
        cutting.take(first)
        is_held = is_half_closed = False
        while True:
            sources = [upstream] if is_half_closed else [client, upstream]
            ready = select.select(sources, [], [], 0.02)[0]
            is_due = cutting.is_cut or (cutting.until is not None and cutting.until.is_set())
            if is_due and cutting.how == "close":
                return
            is_held = is_held or is_due
            if upstream in ready:
                data = upstream.recv(65536)
                if not data and is_held:
                    # the client is to hear nothing, not even the end
                    while client.recv(65536):
                        pass
                if not data:
                    return
                self._hear(data)
                if not is_held:
                    client.sendall(cutting.take(data))
                    continue
            if client in ready:
                data = client.recv(65536)
                if data:
                    cutting.sends += 1
                    upstream.sendall(data)
                else:
                    # a half-close is passed on; a client that is gone for good ends it
                    with contextlib.suppress(OSError):
                        upstream.shutdown(socket.SHUT_WR)
                    if self._is_gone(client):
                        return
                    is_half_closed = True

    @staticmethod
    def _is_gone(sock):
        poll = select.poll()
        poll.register(sock, select.POLLHUP)
        return any(events & select.POLLHUP for _, events in poll.poll(0))
