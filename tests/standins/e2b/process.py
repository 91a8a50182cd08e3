"""envd's process service: processes that outlive their streams."""
import asyncio
import base64
import binascii
import collections
import contextlib
import os
import posixpath
import signal as sig

from . import schema
from .guest import CannedProcess
from .rpc import RpcError, timeout_of

CHUNK_MAX, PTY_CHUNK_MAX = 32 * 1024, 16 * 1024
QUEUE_MAX = 64
REMEMBERED_S = 30
KEEPALIVE_S = 90
SIZE_MAX = 65535
HAS_BASH = os.path.exists("/bin/bash")
WRAPPER = ["/bin/sh", "-c", 'exec "$@"', "sh"]
NAMES = {1: "hangup", 2: "interrupt", 3: "quit", 4: "illegal instruction", 5: "trace/breakpoint trap", 6: "aborted", 7: "bus error",
         8: "floating point exception", 9: "killed", 10: "user defined signal 1", 11: "segmentation fault", 12: "user defined signal 2", 13: "broken pipe",
         14: "alarm clock", 15: "terminated", 24: "CPU time limit exceeded", 25: "file size limit exceeded"}
SIGNALS = {"SIGNAL_SIGKILL": 9, "SIGNAL_SIGTERM": 15, 9: 9, 15: 15}


def ending(ended):
    """An end event's content, defaults left out."""
    if ended.signal is not None:
        text = "signal: " + NAMES.get(int(ended.signal), f"signal {int(ended.signal)}")
        return {"exitCode": -1, "status": text, "error": text}
    text = f"exit status {ended.code}"
    return {"exitCode": ended.code, "exited": True, "status": text, "error": text} if ended.code else {"exited": True, "status": text}


class Subscriber:
    """One stream's queue; full, it holds the process back."""

    def __init__(self):
        self.items = collections.deque()
        self.changed = asyncio.Event()
        self.is_closed = False

    async def put(self, item):
        while len(self.items) >= QUEUE_MAX and not self.is_closed:
            self.changed.clear()
            await self.changed.wait()
        if not self.is_closed:
            self.items.append(item)
            self.changed.set()

    async def get(self, seconds):
        """An item, or None when nothing came for so long."""
        while not self.items:
            self.changed.clear()
            try:
                await asyncio.wait_for(self.changed.wait(), seconds)
            except asyncio.TimeoutError:
                return None
        item = self.items.popleft()
        self.changed.set()
        return item

    def close(self):
        self.is_closed = True
        self.changed.set()


class Running:
    """A process of the guest's."""

    def __init__(self, sandbox, process, config, tag, wants_stdin):
        self.sandbox, self.process, self.config, self.tag = sandbox, process, config, tag
        self.pid = process.pid
        self.subscribers = []
        self.is_wedged = False
        self.has_stdin = wants_stdin
        self.end = None
        self.pumps = [asyncio.ensure_future(self.pump(reader, name, most)) for reader, name, most in self.sources()]
        self.waiter = asyncio.ensure_future(self.wait())

    def sources(self):
        p = self.process
        return [(p.pty, "pty", PTY_CHUNK_MAX)] if p.pty else [(p.stdout, "stdout", CHUNK_MAX), (p.stderr, "stderr", CHUNK_MAX)]

    async def pump(self, reader, name, most):
        while data := await reader.read(most):
            event = {"event": {"data": {name: base64.b64encode(data).decode()}}}
            for subscriber in list(self.subscribers):
                if not self.is_wedged:
                    await subscriber.put(event)

    async def wait(self):
        ended = await self.process.wait()
        # the pipes may be held by a descendant: the end waits for them
        await asyncio.gather(*self.pumps, return_exceptions=True)
        self.end = ending(ended)
        self.process.close()
        self.sandbox.processes.pop(self.pid, None)
        self.sandbox.finished[self.pid] = self
        asyncio.get_running_loop().call_later(REMEMBERED_S, self.sandbox.finished.pop, self.pid, None)
        for subscriber in self.subscribers:
            await subscriber.put({"event": {"end": self.end}})

    def subscribe(self):
        subscriber = Subscriber()
        self.subscribers.append(subscriber)
        if self.end is not None:
            subscriber.items.append({"event": {"end": self.end}})
        return subscriber

    def unsubscribe(self, subscriber):
        subscriber.close()
        if subscriber in self.subscribers:
            self.subscribers.remove(subscriber)

    def abandon(self):
        """The sandbox has gone with it."""
        for task in (*self.pumps, self.waiter):
            task.cancel()
        for subscriber in self.subscribers:
            subscriber.close()
        with contextlib.suppress(Exception):
            self.process.close()
            if self.process.pty:
                self.process.pty.close()


class Processes:
    """The service's methods; `call.sandbox` is alive."""

    def __init__(self, world):
        self.world = world

    def interval_of(self, call):
        """Seconds between keepalives; zero or less takes envd down."""
        text = call.request.headers.get("Keepalive-Ping-Interval")
        try:
            seconds = int(text) if text is not None else KEEPALIVE_S
        except ValueError:
            return KEEPALIVE_S
        if seconds <= 0:
            self.world.account.violation("Keepalive-Ping-Interval that crashes envd", value=text, sandbox=call.sandbox.id)
            call.sandbox.has_crashed = True
            self.world.cut(call.sandbox)
            call.lose()
            return None
        return seconds

    async def start(self, call, request, stream):
        s, config = call.sandbox, request.get("process") or {}
        seconds, interval = timeout_of(call), self.interval_of(call)
        if interval is None:
            return
        user = call.user
        ids, home = await self.user(s, user)
        env = {"HOME": home, "USER": user, "LOGNAME": user, "E2B_SANDBOX": "true", "E2B_SANDBOX_ID": s.id, "E2B_TEMPLATE_ID": s.template["templateID"],
               "E2B_EVENTS_ADDRESS": "http://192.0.2.1", **s.env, **(config.get("envs") or {})}
        cwd = self.folder(config.get("cwd"), home)
        if cwd != home:
            try:
                entry = (await s.guest.service("stat", path=cwd, user=user))["entry"]
                missing = entry["type"] != "FILE_TYPE_DIRECTORY"
            except OSError:
                missing = self.world.options.exec != "canned"
            if missing:
                raise RpcError("invalid_argument", f"cwd '{cwd}' does not exist")
        arguments = [config.get("cmd", ""), *(config.get("args") or [])]
        if arguments[0] == "/bin/bash" and not HAS_BASH:
            arguments[0], call.line["shell"] = "/bin/sh", "/bin/sh instead of /bin/bash, which this machine lacks"
        if any(len(a.encode()) >= 128 * 1024 for a in arguments):
            raise RpcError("invalid_argument", "error starting process: argument list too long")
        size = ((request.get("pty") or {}).get("size") or {}) if "pty" in request else None
        pty = self.size(size) if size is not None else None
        wants_stdin = request.get("stdin", True)
        try:
            process = await s.guest.spawn([*WRAPPER, *arguments], env, cwd, user, wants_stdin and pty is None, pty)
        except OSError as e:
            raise RpcError("invalid_argument", f"error starting process: {e.strerror or e}") from None
        self.world.account.count("exec", s.id)
        self.note_code(s, arguments, cwd)
        call.line["pid"] = process.pid
        if process.ended.done() and isinstance(process, CannedProcess):
            return await stream.whole([{"event": e} for e in ({"start": {"pid": process.pid}}, *process.data(), {"end": ending(process.ended.result())})])
        running = Running(s, process, config, request.get("tag"), wants_stdin)
        s.processes[running.pid] = running
        await self.follow(stream, running, interval, seconds, kills=True)

    @staticmethod
    def size(size):
        """(columns, rows), as far as a terminal goes."""
        return min(int(size.get("cols", 80)) or 80, SIZE_MAX), min(int(size.get("rows", 24)) or 24, SIZE_MAX)

    def note_code(self, s, arguments, cwd):
        """Which of the uploads is executed: the last argument that names one, or the last argument's own text."""
        if arguments[0].rpartition("/")[2] == "sha256sum":
            return
        paths = [posixpath.normpath(posixpath.join(cwd, a)) for a in arguments]
        self.world.account.ran(next((s.code[p] for p in reversed(paths) if p in s.code), arguments[-1]), s.id)

    async def user(self, s, name):
        try:
            return await s.guest.user(name)
        except KeyError:
            raise RpcError("unauthenticated", f"invalid username: '{name}'") from None

    @staticmethod
    def folder(cwd, home):
        if not cwd or cwd == "~":
            return home
        if cwd.startswith("~/"):
            return home + cwd[1:]
        return cwd if cwd.startswith("/") else f"{home}/{cwd}"

    async def follow(self, stream, running, interval, seconds, kills):
        """Events until its end; the deadline kills the one process when `kills`."""
        subscriber = running.subscribe()
        end = asyncio.get_running_loop().time() + seconds if seconds is not None else None
        try:
            await stream.begin()
            await stream.event({"event": {"start": {"pid": running.pid}}})
            while True:
                now = asyncio.get_running_loop().time()
                wait = interval if end is None else min(interval, end - now)
                item = await subscriber.get(wait) if wait > 0 else None
                if item is None:
                    if end is not None and asyncio.get_running_loop().time() >= end:
                        if kills:
                            await running.process.kill(sig.SIGKILL)
                        raise RpcError("deadline_exceeded", "context deadline exceeded")
                    await stream.event({"event": {"keepalive": {}}})
                    continue
                await stream.event(item)
                if "end" in item["event"]:
                    await stream.end()
                    return
        finally:
            running.unsubscribe(subscriber)

    # -- of processes that run --

    def select(self, s, request, finished=False):
        selector = request.get("process") or {}
        if "pid" in selector:
            pid = int(selector["pid"])
            found = s.processes.get(pid) or (s.finished.get(pid) if finished else None)
            if found is None:
                raise RpcError("not_found", f"process with pid {pid} not found")
            return found
        if "tag" in selector:
            # as envd's own search: the first tagged process decides
            tagged = next((p for p in s.processes.values() if p.tag is not None), None)
            if tagged is None or tagged.tag != selector["tag"]:
                raise RpcError("not_found", f"process with tag {selector['tag']} not found")
            return tagged
        raise RpcError("unimplemented", "invalid input type: no selector")

    async def connect(self, call, request, stream):
        seconds, interval = timeout_of(call), self.interval_of(call)
        if interval is None:
            return
        await self.follow(stream, self.select(call.sandbox, request, finished=True), interval, seconds, kills=False)

    async def list(self, call, request):
        found = []
        for p in call.sandbox.processes.values():
            value = {"config": {k: v for k, v in p.config.items() if v}, "pid": p.pid}
            if p.tag is not None:
                value["tag"] = p.tag
            found.append(value)
        return {"processes": found} if found else {}

    async def send_input(self, call, request):
        running = self.select(call.sandbox, request)
        given = request.get("input") or {}
        try:
            if "pty" in given and running.process.pty:
                await running.process.pty.write(schema.from_base64(given["pty"]))
            elif "stdin" in given and running.process.stdin:
                await running.process.stdin.write(schema.from_base64(given["stdin"]))
            else:
                raise RpcError("failed_precondition", "stdin is not open, or the process has a terminal")
        except (BrokenPipeError, ConnectionError, RuntimeError):
            raise RpcError("internal", "error writing to stdin: broken pipe") from None
        except binascii.Error:
            raise RpcError("invalid_argument", "no base64") from None
        return {}

    async def close_stdin(self, call, request):
        running = self.select(call.sandbox, request)
        if running.process.stdin is None:
            raise RpcError("failed_precondition", "stdin is not open, or the process has a terminal")
        running.process.stdin.close()
        return {}

    async def send_signal(self, call, request):
        running = self.select(call.sandbox, request)
        number = SIGNALS.get(request.get("signal"))
        if number is None:
            raise RpcError("unimplemented", f"invalid signal: {request.get('signal')}")
        self.world.account.count("signal", call.sandbox.id)
        if not await running.process.kill(number):
            raise RpcError("not_found", f"process with pid {running.pid} not found")
        return {}

    async def update(self, call, request):
        running = self.select(call.sandbox, request)
        size = (request.get("pty") or {}).get("size")
        if size and running.process.pty:
            running.process.pty.resize(*self.size(size))
        elif size:
            raise RpcError("failed_precondition", "tty not assigned to process")
        return {}
