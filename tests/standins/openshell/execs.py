"""Commands in a sandbox: really run in its box, or answered from a script."""
import asyncio
import contextlib
import errno
import fnmatch
import hashlib
import re
import shlex
import signal

from ..base import account as books
from ..base.box import BoxError
from . import runner, schema
from .calls import STDIN_MAX, Refuse
from .schema import api
from .state import DELETING
from .wire import varint

ENV = {"HOME": "/tmp", "USER": "sandbox", "LANG": "C.UTF-8"}
ARGS_MAX, ARG_MAX, ALL_MAX, WORKDIR_MAX = 1024, 32 * 1024, 256 * 1024, 4096
READ = 64 * 1024
MARK = re.compile(books.MARK.pattern.encode())
IDLE_S = 2.0            # a client that has said nothing for so long when a command ends has forgotten its half-close
CALLS_OF = re.compile(r"(?:console\.log|print)\((\d+)\)\s*;?\s*(?://.*)?\Z")
EVERYWHERE = "/opt/image"


class Exec:
    """One command: what the books tell of it."""

    def __init__(self, gateway, call, sandbox, request):
        self.gateway, self.call, self.sandbox, self.request = gateway, call, sandbox, request
        self.is_relay_lost = False
        self.timeout_s = request.execution_timeout.seconds + request.execution_timeout.nanos / 1e9 if request.HasField("execution_timeout") else None
        self.stdin = hashlib.sha256()
        self.mark, self.tail = None, b""
        gateway.exec_count += 1
        self.line = {"n": gateway.exec_count, "sandbox": sandbox.name, "command": list(request.command), "environment": sorted(request.environment),
                     "workdir": request.workdir, "timeout_s": self.timeout_s, "stdin_bytes": 0, "stdin_sha256": None, "out_bytes": 0, "exit": None,
                     "how": None, "ms": gateway.account.clock.now(), "request": call.line["n"]}
        gateway.execs.append(self.line)
        sandbox.execs.append(self)
        gateway.account.count("exec", sandbox.name)

    def took(self, data):
        if self.mark is None:
            found = MARK.search(self.tail + data)
            self.mark, self.tail = (found[0].decode() if found else None), data[-32:]
        self.stdin.update(data)
        self.line["stdin_bytes"] += len(data)

    def begins(self):
        """Its standard input is whole: what reads code from there executes it now."""
        self.gateway.account.ran(" ".join([self.mark or "", *self.request.command]), self.sandbox.name)

    async def out(self, kind, data):
        self.line["out_bytes"] += len(data)
        await self.call.send(event(kind, data))

    def relay_lost(self):
        """The sandbox is no longer there, or no longer running."""
        self.is_relay_lost = True
        if self.call.task is not None:
            self.call.task.cancel()

    def over(self, how, code=None):
        self.line["how"] = self.line["how"] or how
        self.line["exit"] = code if code is not None else self.line["exit"]
        self.line["stdin_sha256"] = self.stdin.hexdigest()
        self.line["ended_ms"] = self.gateway.account.clock.now()
        if self in self.sandbox.execs:
            self.sandbox.execs.remove(self)


def event(kind, data):
    """ExecSandboxEvent with output; written by hand, for speed."""
    inner = b"\x0a" + varint(len(data)) + data if data else b""
    return (b"\x0a" if kind == "stdout" else b"\x12") + varint(len(inner)) + inner


def exit_event(code):
    return api.ExecSandboxEvent(exit=api.ExecSandboxExit(exit_code=code)).SerializeToString()


# -- what is asked for --

def check(gateway, call, request):
    """Limits of a command, as the gateway joins it into one line for a shell."""
    args = [*request.command]
    if not args or not args[0]:
        gateway.invalid(call, "command is required", "command")
    if len(args) > ARGS_MAX or any(len(a.encode()) > ARG_MAX for a in args) or sum(len(a.encode()) for a in args) > ALL_MAX:
        gateway.invalid(call, "command is too large", "command")
    if any("\0" in a for a in args):
        gateway.invalid(call, "NUL in command", "command")
    workdir = request.workdir
    if len(workdir.encode()) > WORKDIR_MAX or "\n" in workdir or "\0" in workdir:
        gateway.invalid(call, "invalid workdir", "workdir")
    gateway.check_environment(call, request.environment, "environment", ARG_MAX)


def line_of(request):
    """The one line a shell gets."""
    assigned = "".join(f"{key}={shlex.quote(request.environment[key])} " for key in sorted(request.environment))
    place = f"cd {shlex.quote(request.workdir)} && " if request.workdir else ""
    return place + assigned + " ".join(shlex.quote(a) for a in request.command)


async def interactive(gateway, call, first):
    if first.WhichOneof("payload") != "start":
        call.breach("an exec that does not begin with start", got=first.WhichOneof("payload"))
        raise Refuse("INVALID_ARGUMENT", "first message must be start")
    request = first.start
    sandbox = gateway.ready(call, request, request.sandbox)
    check(gateway, call, request)
    if not request.no_login_shell:
        call.breach("an exec in a login shell")
    if not request.HasField("execution_timeout") or request.execution_timeout.seconds <= 0:
        call.breach("an exec without a timeout")
    if request.stdin:
        call.breach("stdin in the start message")
    await run(gateway, call, sandbox, request, stdin_of(gateway, call))


async def once(gateway, call, request):
    """ExecSandbox: its standard input came with it, and cancelling it leaves the command running."""
    sandbox = gateway.ready(call, request, request.sandbox)
    check(gateway, call, request)

    async def stdin():
        if request.stdin:
            yield request.stdin
    await run(gateway, call, sandbox, request, stdin(), cancel_kills=False)


async def stdin_of(gateway, call):
    """The client's standard input, until its half-close; a change of the window's size is given as a pair."""
    while True:
        data = await call.receive()
        if data is None:
            return
        try:
            message, _ = schema.decode(api.ExecSandboxInput, data)
        except schema.Strange as e:
            call.breach("the request", error=str(e))
            raise Refuse("INVALID_ARGUMENT", str(e)) from None
        kind = message.WhichOneof("payload")
        if kind == "resize":
            yield message.resize.cols, message.resize.rows
            continue
        if kind != "stdin":
            call.breach("a message that is neither stdin nor resize", got=kind)
            raise Refuse("INVALID_ARGUMENT", "unexpected message")
        if len(message.stdin) > STDIN_MAX:
            call.breach("a stdin message over 64 KiB", size=len(message.stdin))
        yield message.stdin


async def run(gateway, call, sandbox, request, stdin, cancel_kills=True):
    x = Exec(gateway, call, sandbox, request)
    rule = call.rule
    try:
        if call.delays[1]:
            await asyncio.sleep(call.delays[1] / 1000)
        if rule is not None and rule.type in ("no-read", "window-zero"):
            call.is_stuck = True
            if rule.type == "no-read":
                call.is_deaf = True
                call.messages.clear()
                if rule.get("stdout"):
                    await x.out("stdout", rule.get("stdout").encode())
                return await conclude(gateway, x, rule.get("exit", 7))
        entry = gateway.script.find(sandbox, request)
        if rule is not None and rule.type == "exit-124" and sandbox.box is None:
            await asyncio.sleep(rule.get("ms", 100) / 1000)
            return await conclude(gateway, x, 124)
        if rule is not None and rule.type == "exec" and rule.get("what") in ("endless", "hang", "stderr-flood"):
            entry = {"do": rule.get("what"), "wait_stdin": False}
        elif rule is not None and rule.type == "exec" and rule.get("what") == "silent":
            entry = {"do": "hang", "wait_stdin": True}
        if entry is None and sandbox.box is not None:
            code = await in_box(gateway, x, stdin, cancel_kills)
        else:
            code = await scripted(gateway, x, entry or {}, stdin)
        if code is not None:
            await conclude(gateway, x, code, (entry or {}).get("late"), (entry or {}).get("hold_open"))
    except asyncio.CancelledError:
        if x.is_relay_lost:
            asyncio.current_task().uncancel()
            x.over("relay lost")
            raise Refuse("UNAVAILABLE", "relay dropped") from None
        x.over("cancelled" if call.is_reset else "connection lost")
        raise
    except ConnectionError:
        x.over("connection lost")
        raise
    finally:
        x.over("ended by a fault")


async def conclude(gateway, x, code, late=None, hold_open=False):
    """The exit event, and what a fault makes of it."""
    call, rule = x.call, x.call.rule
    if not call.has_ended and not call.is_deaf and call.last_data and call.connection.loop.time() - call.last_data > IDLE_S and call.method.streams_in:
        call.breach("no half-close before the command ended by itself")
    x.over("exit", code)
    what = rule.get("what") if rule is not None and rule.type == "exec" else None
    if what == "exit":
        code = rule.get("exit", 7)
    if what == "late-exit":
        await asyncio.sleep(rule.get("ms", 500) / 1000)
    if what == "big-event":
        await x.out("stdout", b"x" * rule.get("bytes", 5 << 20))
    if what == "empty-event":
        await call.send(b"")
    if what == "unknown-event":
        await call.send(b"\x7a\x03new")
    if what == "no-exit":
        await call.finish()
        return
    # a fault that ends the call in the answer's place: the output was told, the exit is not
    if rule is not None and rule.type in ("status", "unavailable-after", "never", "rst", "close", "no-trailers", "bad-status", "goaway", "refuse-stream") \
            and rule.get("at") is None and rule.get("after_bytes") is None:
        await call.strike(rule)
    await call.send(exit_event(code), is_last=True)
    if what == "two-exits":
        await call.send(exit_event(rule.get("exit", 1)))
    if late or what == "late-output":
        await x.out("stdout", (late or rule.get("stdout", "late\n")).encode())
    if hold_open or what == "hold-open":
        await asyncio.Event().wait()
    if what == "bad-trailers":
        await call.finish(13, "injected after the exit")
        return
    await call.finish()


# -- from a script --

class Script:
    """Which commands are answered without being run, and with what.

    An entry: {"command": glob over the joined arguments, "stdin": the whole input, "contains": a part of it, "sandbox": name} says which; the rest
    what: stdout, stderr, exit (null: the stream ends without one), delay_ms, wait_stdin, bytes (so many of standard output), late, hold_open, and
    `do`: echo-stdin, hang, endless, stderr-flood, runner, relay, exit-without-reading.
    """
    WHICH = ("command", "stdin", "contains", "sandbox")
    WHAT = ("stdout", "stderr", "exit", "delay_ms", "wait_stdin", "bytes", "late", "hold_open", "do", "times")
    DO = (None, "echo-stdin", "hang", "endless", "stderr-flood", "runner", "relay", "exit-without-reading")

    def __init__(self):
        self.entries, self.answers = [], {}

    def load(self, entries):
        for e in entries:
            if not isinstance(e, dict) or set(e) - {*self.WHICH, *self.WHAT} or e.get("do") not in self.DO:
                raise ValueError(f"not an entry of a script: {e!r}")
        self.entries = entries
        # entries that hang on the text alone are looked up, not searched
        self.answers = {e["stdin"]: e for e in entries if "stdin" in e and "command" not in e and "sandbox" not in e}

    def find(self, sandbox, request):
        """The entry for a command whose input is not known yet; one that hangs on its input is found by `answer`."""
        if not self.entries:
            return None
        joined = " ".join(request.command)
        for e in self.entries:
            if "stdin" in e or "contains" in e:
                continue
            if ("command" not in e or fnmatch.fnmatchcase(joined, e["command"])) and e.get("sandbox", sandbox.name) == sandbox.name:
                return e
        return None

    def answer(self, text):
        """For a text of code: stdout, stderr, exit and the rest."""
        found = self.answers.get(text)
        if found is None and self.entries:
            found = next((e for e in self.entries if "contains" in e and e["contains"] in text), None)
        if found is not None:
            return found
        number = CALLS_OF.search(text)
        return {"stdout": (number.group(1) if number else "42") + "\n", "exit": 0}


async def scripted(gateway, x, entry, stdin):
    """The exit code; None when the stream was ended otherwise."""
    do, command = entry.get("do"), x.request.command
    if do is None and any(a.endswith("/runner") for a in command):
        do = "runner"
    if do == "runner":
        return await canned_runner(gateway, x, stdin)
    if do == "relay":
        return await canned_relay(x, entry, stdin)
    if do == "hang" and not entry.get("wait_stdin"):
        await asyncio.Event().wait()
    if do in ("endless", "stderr-flood"):
        kind = "stdout" if do == "endless" else "stderr"
        while True:
            await x.out(kind, b"endless\n" * 512)
            await asyncio.sleep(0)
    said = b""
    if do != "exit-without-reading" and entry.get("wait_stdin", True):
        async for data in stdin:
            if isinstance(data, bytes):
                x.took(data)
                said += data
    x.begins()
    if do == "hang":
        await asyncio.Event().wait()
    if do is None and not entry:
        entry = gateway.script.answer(said.decode("utf-8", "replace"))
    if entry.get("delay_ms"):
        await asyncio.sleep(entry["delay_ms"] / 1000)
    chunk = gateway.settings["chunk"]
    data = said if do == "echo-stdin" else entry.get("stdout", "").encode() + b"x" * entry.get("bytes", 0)
    for at in range(0, len(data), chunk):
        await x.out("stdout", data[at:at + chunk])
    data = entry.get("stderr", "").encode()
    for at in range(0, len(data), chunk):
        await x.out("stderr", data[at:at + chunk])
    code = entry.get("exit", 0)
    if code is None:
        raise Refuse("UNAVAILABLE", "exec relay ended without an exit status")
    return code


async def canned_runner(gateway, x, stdin):
    r = runner.Runner(gateway.script.answer)
    async for data in stdin:
        if isinstance(data, bytes):
            x.took(data)
            try:
                answer = r.feed(data)
            except (runner.BadFrames, ValueError, IndexError) as e:
                await x.out("stderr", f"runner: {e}\n".encode())
                return 2
            chunk = gateway.settings["chunk"]
            for at in range(0, len(answer), chunk):
                await x.out("stdout", answer[at:at + chunk])
            if r.is_done:
                x.begins()
                return 0
    return 3


async def canned_relay(x, entry, stdin):
    """A grant's relay: `ready`, then a `need` for each that is asked for by the admin, until its input or its call ends."""
    await x.out("stdout", b"ready\n")
    x.sandbox.relay = asyncio.Queue()

    async def needs():
        while True:
            count = await x.sandbox.relay.get()
            await x.out("stdout", b"need\n" * count)
    asking = asyncio.ensure_future(needs())
    try:
        await asyncio.Event().wait()
    finally:
        await ended_all([asking])


# -- in a box --

async def furnish(gateway, sandbox):
    """What the image and the runtime bring: the given files, and the limits as the kernel would show them."""
    box = sandbox.box
    for guest, (data, mode) in gateway.image_files.items():
        await box.write(place_of(gateway, guest), data, mode=mode, user="root")
    if box.mode != "ns":
        return
    limits = limits_of(sandbox.spec.template)
    if sandbox.box_fault == "memory-max":
        limits["memory.max"] = "max\n"
    elif sandbox.box_fault == "cpu-max":
        limits["cpu.max"] = "max 100000\n"
    for name, text in limits.items():
        await box.write(f"/sys/fs/cgroup/{name}", text.encode(), mode=0o444, user="root")


def limits_of(template):
    """memory.max and cpu.max as a control group of these resources has them."""
    found = {"memory.max": "max\n", "cpu.max": "max 100000\n"}
    if template.HasField("resources") and "limits" in template.resources:
        limits = template.resources["limits"]
        units = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "k": 1000, "M": 10 ** 6, "G": 10 ** 9, "": 1}
        memory = re.fullmatch(r"(\d+)(Ki|Mi|Gi|k|M|G|)", limits["memory"]) if "memory" in limits and isinstance(limits["memory"], str) else None
        cpu = re.fullmatch(r"(\d+(?:\.\d+)?)(m?)", limits["cpu"]) if "cpu" in limits and isinstance(limits["cpu"], str) else None
        if memory:
            found["memory.max"] = f"{int(memory[1]) * units[memory[2]]}\n"
        if cpu:
            found["cpu.max"] = f"{round(float(cpu[1]) * 100000 / (1000 if cpu[2] else 1))} 100000\n"
    return found


def place_of(gateway, guest):
    """Where an image's file is in the box: the host's /usr is shown there as it is, so what belongs below it is put aside."""
    return EVERYWHERE + guest if guest.startswith(("/usr/", "/bin/", "/lib/", "/sbin/")) else guest


def paths_of(gateway, sandbox):
    """What the sandbox's policy lets a command read and write, for the kernel to hold it to; None where there is no policy or no Landlock."""
    if not sandbox.has_policy or not gateway.has_landlock or sandbox.box_fault == "no-landlock":
        return None
    allowed = sandbox.spec.policy.filesystem
    # what stands for a path of the image elsewhere in the box
    read_only = [*allowed.read_only, EVERYWHERE, *sandbox.box.nursery.info["tools"]]
    return read_only, [*allowed.read_write, *(["/usr", "/var/tmp", "/home"] if sandbox.box_fault == "writable" else [])]


def tmp_of(sandbox):
    """Bytes of the tmpfs that the driver's configuration wants at /tmp, or None."""
    docker = sandbox.spec.template.driver_config["docker"] if "docker" in sandbox.spec.template.driver_config else {}
    for mount in docker["mounts"] if "mounts" in docker else ():
        if mount["type"] == "tmpfs" and mount["target"] == "/tmp":
            return int(mount["size_bytes"]) if "size_bytes" in mount else None
    return None


async def in_box(gateway, x, stdin, cancel_kills):
    box, request, call = x.sandbox.box, x.request, x.call
    line = line_of(request)
    for guest in gateway.image_files:
        line = line.replace(guest, place_of(gateway, guest))
    argv = ["/bin/sh", "-c", line] if request.no_login_shell else ["/bin/bash", "-lc", line]
    pty = (request.cols or 80, request.rows or 24) if request.tty else None
    try:
        process = await box.spawn(argv, env=ENV, cwd="/tmp", user="user", stdin=True, pty=pty, landlock=paths_of(gateway, x.sandbox))
    except BoxError:
        raise Refuse("UNAVAILABLE", "relay dropped") from None
    except OSError as e:
        # a policy that does not let the shell be read, or an image without one
        await x.out("stderr", f"{e}\n".encode())
        return 126 if e.errno == errno.EACCES else 127
    x.line["pid"] = process.pid
    chunk = gateway.settings["chunk"]

    async def give():
        async for data in stdin:
            if isinstance(data, tuple):
                if process.pty is not None:
                    process.pty.resize(*data)
                continue
            x.took(data)
            if process.pty is not None:
                await process.pty.write(data)
            elif not closed:
                try:
                    await process.stdin.write(data)
                except ConnectionError:
                    closed.append(True)         # it does not read any more: the rest is dropped
        x.begins()
        if process.stdin is not None:
            process.stdin.close()

    async def show(kind, reader):
        while data := await reader.read(READ):
            for at in range(0, len(data), chunk):
                await x.out(kind, data[at:at + chunk])

    closed = []
    shows = [asyncio.ensure_future(show("stdout", process.pty or process.stdout))]
    if process.stderr is not None:
        shows.append(asyncio.ensure_future(show("stderr", process.stderr)))
    giving = asyncio.ensure_future(give())
    everything = asyncio.ensure_future(finished(process, shows))
    rule, begun = call.rule, gateway.loop.time()
    backstop = x.timeout_s
    if rule is not None and rule.type == "exit-124":
        backstop = rule.get("ms", 100) / 1000
    is_left_alone = not cancel_kills or rule is not None and rule.type == "exec" and rule.get("what") == "cancel-ignored"
    try:
        done, _ = await asyncio.wait([everything, giving], timeout=backstop, return_when=asyncio.FIRST_COMPLETED)
        if giving in done and everything not in done:
            giving.result()         # a refusal of what the client sent
            left = None if backstop is None else max(0, backstop - (gateway.loop.time() - begun))
            await asyncio.wait([everything], timeout=left)
        if not everything.done():
            # the time is up: 124 is reported, and the process goes on
            everything.cancel()
            is_left_alone = True
            x.line["how"] = "timed out, lives on"
            return 124
        ended = everything.result()
        if x.sandbox.box is not box or x.sandbox.phase == DELETING or x.is_relay_lost:
            x.over("relay lost")
            raise Refuse("UNAVAILABLE", "relay dropped")
        is_left_alone = True        # after an end of its own nothing is killed
        return ended.code if ended.code is not None else 128 + ended.signal
    finally:
        is_over = asyncio.ensure_future(ended_all([everything, giving, *shows]))
        if not is_left_alone:
            with contextlib.suppress(Exception):
                await asyncio.shield(box.kill(-process.pid, signal.SIGKILL))
        await asyncio.shield(is_over)
        process.close()
        if process.pty is not None:
            process.pty.close()


async def ended_all(tasks):
    """Cancels them; what they end with is nobody's concern any more."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def finished(process, shows):
    """How it ended, once its output has closed too."""
    await asyncio.gather(*shows)
    return await process.wait()
