"""One confined place where commands really run.

    box = await Box.create(folder)
    process = await box.spawn(["/bin/sh", "-c", "echo hi"], user="user")
    await process.stdout.read(); await process.wait()      # Ended(code=0, signal=None)
    await box.end()                                        # everything in it is gone

A box has its own user, mount, process, IPC, name and network namespaces: nothing but a loopback, so nothing can be reached from it; the host's
/usr, /bin and /lib read-only; its own /etc, /home/user, /root, /tmp and /proc in memory. `user` is an ordinary user inside, `root` the
namespace's root, who is nobody outside. Where namespaces cannot be made there is `plain` mode: a folder and processes that are swept at the end,
no wall, and the network open; `mode()` says which it is. Boxes end with the process that made them, however it ends.
"""
import asyncio
import contextlib
import errno
import os
import signal
import socket
import sys
import tempfile
from typing import NamedTuple

from .messages import receive, send

ANSWER_S = 30
LINKS_MAX = 40


class Ended(NamedTuple):
    """How a process ended: one of the two is None."""
    code: int | None
    signal: int | None


class BoxError(Exception):
    """A box could not be made, or is gone."""


class _Channel:
    """Messages over a SEQPACKET socket."""

    def __init__(self, sock, on_message, on_end):
        self.sock, self.on_message, self.on_end = sock, on_message, on_end
        sock.setblocking(False)
        self.loop = asyncio.get_running_loop()
        self.loop.add_reader(sock, self._read)
        self.closed = False

    def _read(self):
        for _ in range(64):
            try:
                message = receive(self.sock)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                message = None
            if message is None:
                self.close()
                self.on_end()
                return
            self.on_message(*message)

    async def send(self, value, fds=()):
        while True:
            if self.closed:
                raise BoxError("the box is gone")
            try:
                send(self.sock, value, fds)
                return
            except (BlockingIOError, InterruptedError):
                await asyncio.sleep(0.001)
            except OSError as e:
                raise BoxError(str(e)) from e

    def close(self):
        if not self.closed:
            self.closed = True
            self.loop.remove_reader(self.sock)
            self.sock.close()


class Nursery:
    """The process that makes boxes; one for a program."""
    _own = None

    @classmethod
    async def own(cls, mode="auto"):
        if cls._own is None:
            cls._own = asyncio.ensure_future(cls._start(mode))
        return await asyncio.shield(cls._own)

    @classmethod
    async def _start(cls, mode):
        self = cls()
        self.root = tempfile.mkdtemp(prefix="box-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", os.path.join(os.path.dirname(__file__), "nursery.py"), self.root, mode, stdin=theirs)
        self.gone, self.pids, self.count = {}, {}, 0
        self.ready = asyncio.get_running_loop().create_future()
        self.channel = _Channel(ours, self._message, self._end)
        self.info = await asyncio.wait_for(self.ready, ANSWER_S)
        return self

    def _message(self, value, fds):
        if "gone" in value:
            self.pids.pop(value["gone"], None)
            future = self.gone.pop(value["gone"], None)
            if future and not future.done():
                future.set_result(None)
        elif "born" in value:
            self.pids[value["born"]] = value["pid"]
        elif not self.ready.done():
            self.ready.set_result(value)

    def _end(self):
        if not self.ready.done():
            self.ready.set_exception(BoxError("the nursery did not start"))
        for future in self.gone.values():
            if not future.done():
                future.set_result(None)
        self.gone.clear()

    async def bear(self, name, directory, tmp=None, has_network=False):
        self.count += 1
        number = self.count
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.gone[number] = asyncio.get_running_loop().create_future()
        with theirs:
            await self.channel.send({"id": number, "name": name, "directory": directory, "tmp": tmp, "network": has_network}, [theirs.fileno()])
        return ours, number, self.gone[number]

    async def stop(self):
        """Every box ends with it."""
        self.channel.close()
        with contextlib.suppress(ProcessLookupError):
            await self.process.wait()
        type(self)._own = None


class Stdin:
    """The writing end of a process's standard input."""

    def __init__(self, transport, protocol):
        self.writer = asyncio.StreamWriter(transport, protocol, None, asyncio.get_running_loop())

    async def write(self, data):
        self.writer.write(data)
        await self.writer.drain()

    def close(self):
        self.writer.close()


class Process:
    def __init__(self, box, number):
        self.box, self.number = box, number
        self.pid = 0
        self.stdin = self.stdout = self.stderr = self.pty = None
        self.transports = []
        self.ended = asyncio.get_running_loop().create_future()

    async def wait(self) -> Ended:
        return await asyncio.shield(self.ended)

    async def kill(self, number=signal.SIGKILL) -> bool:
        """Sends the one process a signal; False when it has ended."""
        if self.ended.done():
            return False
        return (await self.box.ask({"op": "kill", "pid": self.pid, "signal": int(number)}))["done"]

    def close(self):
        """Its pipes' ends on this side."""
        for transport in self.transports:
            transport.close()
        if self.stdin is not None:
            self.stdin.close()


class Box:
    @classmethod
    async def create(cls, directory=None, name="box", mode="auto", tmp=None, has_network=False) -> "Box":
        """`directory` is where plain mode keeps its files; an empty one of its own when None. `tmp`: bytes of a /tmp of its own from which nothing is
        executed (not in plain mode). `has_network`: the host's, which is what a wall must notice."""
        nursery = await Nursery.own(mode)
        self = cls()
        self.nursery, self.name = nursery, name
        self.own_directory = None
        if nursery.info["mode"] == "plain" and directory is None:
            self.own_directory = directory = tempfile.mkdtemp(prefix="box-")
        self.directory = str(directory) if directory else None
        self.asked, self.processes, self.next = {}, {}, 0
        self.up = asyncio.get_running_loop().create_future()
        self.is_paused = False
        sock, self.number, self.gone = await nursery.bear(name, self.directory, tmp, has_network)
        self.channel = _Channel(sock, self._message, self._end)
        try:
            await asyncio.wait_for(asyncio.shield(self.up), ANSWER_S)
        except BaseException:
            self.channel.close()
            raise
        return self

    def _message(self, value, fds):
        if "up" in value:
            if not self.up.done():
                self.up.set_result(None) if value["up"] else self.up.set_exception(BoxError(value.get("error")))
        elif "ended" in value:
            process = self.processes.pop(value["id"], None)
            if process and not process.ended.done():
                process.ended.set_result(Ended(value.get("code"), value.get("signal")))
        elif "service" in value:
            if value["id"] in self.asked:
                self.asked[value["id"]].service = value["service"]
        else:
            future = self.asked.pop(value["id"], None)
            if future and not future.done():
                future.set_result((value, fds))
                return
            for fd in fds:
                os.close(fd)

    def _end(self):
        if not self.up.done():
            self.up.set_exception(BoxError("the box did not come up"))
        for future in self.asked.values():
            if not future.done():
                future.set_exception(BoxError("the box is gone"))
        for process in self.processes.values():
            if not process.ended.done():
                process.ended.set_result(Ended(None, signal.SIGKILL))
        self.asked.clear()
        self.processes.clear()

    async def _ask(self, value, fds=()):
        self.next += 1
        future = _Asked(loop=asyncio.get_running_loop())
        self.asked[self.next] = future
        number = self.next
        try:
            await self.channel.send({**value, "id": number}, fds)
            return await future
        except asyncio.CancelledError:
            # a service that blocks (a FIFO with no other end) is ended with its request
            self.asked.pop(number, None)
            if future.service and not self.channel.closed:
                with contextlib.suppress(BoxError):
                    await self.channel.send({"op": "kill", "pid": future.service, "signal": 9, "id": 0})
            raise

    async def ask(self, value) -> dict:
        answer, fds = await self._ask(value)
        for fd in fds:
            os.close(fd)
        if "error" in answer:
            raise OSError(answer["error"], answer.get("text", ""), answer.get("path") or None)
        return answer

    # -- commands --

    async def spawn(self, argv, env=None, cwd=None, user="user", stdin=False, pty=None, merge=False, landlock=None) -> Process:
        """`landlock` is (paths to read, paths to write): nothing else is there for the command. `user` is "user", "root" or (uid, gid). `pty` is (columns, rows): one terminal instead of three pipes. `merge`: one pipe for both outputs.
        OSError when the command or the folder is not there."""
        self.next += 1
        process = Process(self, self.next)
        loop = asyncio.get_running_loop()
        ours, theirs, made = [], [], []
        try:
            if pty:
                import fcntl
                import struct
                import termios
                master, slave = os.openpty()
                fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", pty[1], pty[0], 0, 0))
                made += [master, slave]
                theirs = [slave, slave, slave]
            else:
                if stdin:
                    r, w = os.pipe()
                    made += [r, w]
                    theirs.append(r)
                    ours.append(w)
                else:
                    made.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
                    theirs.append(made[0])
                for _ in range(1 if merge else 2):
                    r, w = os.pipe()
                    made += [r, w]
                    ours.append(r)
                    theirs.append(w)
                if merge:
                    theirs.append(theirs[-1])
            future = _Asked(loop=loop)
            self.asked[self.next] = future
            # registered first: its end may arrive in the same read as its start
            self.processes[self.next] = process
            value = {"op": "spawn", "id": self.next, "argv": list(argv), "env": dict(env or {}), "cwd": cwd, "user": user, "tty": bool(pty), "landlock": landlock}
            await self.channel.send(value, theirs)
            answer, _ = await future
            if "error" in answer:
                self.processes.pop(process.number, None)
                raise OSError(answer["error"], answer.get("text", ""))
            process.pid = answer["pid"]
            for fd in set(theirs):
                os.close(fd)
                made.remove(fd)
            if pty:
                made.remove(master)
                await self._wire_pty(process, master)
            else:
                await self._wire_pipes(process, ours, stdin, merge, made)
            return process
        finally:
            for fd in made:
                os.close(fd)

    async def _wire_pipes(self, process, fds, stdin, merge, made):
        """A number leaves `made` as a file takes it: closed by both, it would hit whoever has it by then."""
        loop = asyncio.get_running_loop()
        fds = list(fds)

        def taken(fd, mode):
            made.remove(fd)
            return os.fdopen(fd, mode, 0)
        if stdin:
            transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, taken(fds.pop(0), "wb"))
            process.stdin = Stdin(transport, protocol)
        readers = []
        for fd in fds:
            reader = asyncio.StreamReader(limit=64 * 1024, loop=loop)
            transport, _ = await loop.connect_read_pipe(lambda r=reader: asyncio.StreamReaderProtocol(r, loop=loop), taken(fd, "rb"))
            process.transports.append(transport)
            readers.append(reader)
        process.stdout = readers[0]
        process.stderr = None if merge else readers[1]

    async def _wire_pty(self, process, master):
        loop = asyncio.get_running_loop()
        process.pty = Pty(master, loop)

    async def kill(self, pid, number) -> bool:
        return (await self.ask({"op": "kill", "pid": pid, "signal": int(number)}))["done"]

    async def kill_all(self, number=signal.SIGKILL):
        """Every process but the box's own first."""
        await self.ask({"op": "kill_all", "signal": int(number)})

    async def list_processes(self) -> list[int]:
        return (await self.ask({"op": "processes"}))["pids"]

    async def pause(self):
        await self.kill_all(signal.SIGSTOP)
        self.is_paused = True

    async def resume(self):
        await self.kill_all(signal.SIGCONT)
        self.is_paused = False

    # -- files, as the box's root; relative paths are the user's home's --

    async def open(self, path, flags=os.O_RDONLY, mode=0o666, user="user", parents=False, owner=False):
        """(descriptor, {size, regular, folder, path}); the caller closes it. May block as open(2) does: cancel it."""
        answer, fds = await self._ask({"op": "open", "path": path, "flags": flags, "mode": mode, "user": user, "parents": parents, "owner": owner})
        if "error" in answer:
            raise OSError(answer["error"], answer.get("text", ""), path)
        return fds[0], answer

    async def write(self, path, data: bytes, mode=0o644, user="user"):
        fd, _ = await self.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode, user, parents=True, owner=True)
        with os.fdopen(fd, "wb") as f:
            f.write(data)

    async def read(self, path, limit=1 << 26, user="user") -> bytes:
        """At most `limit` bytes of a regular file."""
        fd, about = await self.open(path, os.O_RDONLY | os.O_NONBLOCK, user=user)
        with os.fdopen(fd, "rb") as f:
            if not about["regular"]:
                raise OSError(errno.EISDIR if about["folder"] else errno.EINVAL, "no regular file", path)
            return f.read(limit)

    async def service(self, what, **fields) -> dict:
        """stat, list, mkdir, move, remove, space, user: inside.py says their fields."""
        return await self.ask({"op": what, **fields})

    async def watch(self, path, recursive=False, user="user"):
        """An asyncio reader of lines of JSON ({name, type}), one for each change in the folder, and the transport to close."""
        loop = asyncio.get_running_loop()
        r, w = os.pipe()
        try:
            answer, _ = await self._ask({"op": "watch", "path": path, "recursive": recursive, "user": user}, [w])
        finally:
            os.close(w)
        reader = asyncio.StreamReader(loop=loop)
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader, loop=loop), os.fdopen(r, "rb", 0))
        if "error" in answer:
            transport.close()
            raise OSError(answer["error"], answer.get("text", ""), path)
        return reader, transport

    def resolve(self, path, last=True) -> str:
        """A guest's path as a path of this process, with links followed inside the box (`last`: the last part's too). For files nothing in the
        box writes to meanwhile; `open`, `read` and `write` work inside and cannot be led astray."""
        root = self.directory if self.mode == "plain" else f"/proc/{self.nursery.pids[self.number]}/root"
        if self.mode == "plain" and not path.startswith(("/home/user", "/tmp", "/root")):
            return path
        parts, at, links = [p for p in path.split("/") if p not in ("", ".")], "", 0
        while parts:
            part = parts.pop(0)
            if part == "..":
                at = at.rpartition("/")[0]
                continue
            here = f"{at}/{part}"
            try:
                link = os.readlink(root + here) if parts or last else None
            except OSError:
                link = None
            if link is None:
                at = here
                continue
            links += 1
            if links > LINKS_MAX:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            at = "" if link.startswith("/") else at
            parts = [p for p in link.split("/") if p not in ("", ".")] + parts
        return root + at

    async def end(self):
        """Kills everything in it and waits until it is gone."""
        self.channel.close()
        self._end()
        await self.gone
        if self.own_directory:
            import shutil
            shutil.rmtree(self.own_directory, ignore_errors=True)

    @property
    def mode(self):
        return self.nursery.info["mode"]


class _Asked(asyncio.Future):
    service = None


class Pty:
    """A terminal's master end."""

    def __init__(self, fd, loop):
        self.fd, self.loop = fd, loop
        os.set_blocking(fd, False)

    async def read(self, limit=16384) -> bytes:
        """b"" at the end, which is when no process has the terminal open."""
        while True:
            try:
                return os.read(self.fd, limit)
            except BlockingIOError:
                ready = self.loop.create_future()
                self.loop.add_reader(self.fd, lambda: ready.done() or ready.set_result(None))
                try:
                    await ready
                finally:
                    self.loop.remove_reader(self.fd)
            except OSError:
                return b""

    async def write(self, data):
        while data:
            try:
                data = data[os.write(self.fd, data):]
            except BlockingIOError:
                await asyncio.sleep(0.005)

    def resize(self, columns, rows):
        import fcntl
        import struct
        import termios
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


async def mode() -> dict:
    """{mode, users, why_plain} of the boxes this machine can make."""
    return (await Nursery.own()).info
