"""What is inside a sandbox: a box with real processes, or for load a table of answers. envd.py and files.py see the same of both."""
import asyncio
import base64
import errno
import hashlib
import json
import os
import posixpath
import re
import stat as st
import time

from ..base import box as boxes

CHUNK_MAX = 32 * 1024
HOMES = {"root": "/root", "user": "/home/user"}


class RealGuest:
    """A box of base/box.py."""

    @classmethod
    async def create(cls, name, mode, state_dir):
        """`state_dir`: where plain mode keeps its files, a temporary folder when None."""
        self = cls()
        self.box = await boxes.Box.create(os.path.join(state_dir, name) if state_dir else None, name=name, mode=mode)
        self.users = {}
        return self

    async def user(self, name):
        """(uid, gid), home; KeyError when there is none."""
        if name not in self.users or name not in HOMES:
            try:
                found = await self.box.service("user", name=name)
            except OSError:
                raise KeyError(name) from None
            self.users[name] = (found["uid"], found["gid"]), found["home"]
        return self.users[name]

    async def spawn(self, argv, env, cwd, user, stdin, pty):
        ids, home = await self.user(user)
        return await self.box.spawn(argv, env=env, cwd=cwd or home, user=user if user in HOMES else ids, stdin=stdin, pty=pty)

    async def writer(self, path, user):
        """(file, path): one that is made or emptied, its parents made."""
        fd, about = await self.box.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666, user if user in HOMES else "user", parents=True,
                                        owner=True)
        return os.fdopen(fd, "wb", 0), about["path"]

    async def reader(self, path, user):
        return await self.box.open(path, os.O_RDONLY | os.O_CLOEXEC, user=user if user in HOMES else "user")

    async def service(self, what, **fields):
        if fields.get("user") not in HOMES:
            fields["user"] = "user"
        return await self.box.service(what, **fields)

    async def watch(self, path, recursive, user):
        return await self.box.watch(path, recursive, user if user in HOMES else "user")

    async def pause(self):
        await self.box.pause()

    async def resume(self):
        await self.box.resume()

    async def end(self):
        await self.box.end()


class CannedProcess:
    """Answers as the table says, without a process."""

    def __init__(self, pid, answer):
        self.pid, self.answer = pid, answer
        self.stdin = self.pty = self.stdout = self.stderr = None
        self.ended = asyncio.get_running_loop().create_future()
        if answer.get("delay_ms"):
            self.stdout, self.stderr = asyncio.StreamReader(), asyncio.StreamReader()
            asyncio.get_running_loop().call_later(answer["delay_ms"] / 1000, self.finish)
        else:
            self.ended.set_result(self.how())

    def how(self):
        return boxes.Ended(self.answer.get("exit", 0), None)

    def outputs(self):
        return [(name, self.answer[name].encode("utf-8", "surrogateescape")) for name in ("stdout", "stderr") if self.answer.get(name)]

    def data(self):
        """Its data events, when it ended at once."""
        return [{"data": {name: base64.b64encode(data[at:at + CHUNK_MAX]).decode()}} for name, data in self.outputs() for at in range(0, len(data), CHUNK_MAX)]

    def finish(self, how=None):
        if self.ended.done():
            return
        for name, data in self.outputs() if how is None else ():
            getattr(self, name).feed_data(data)
        self.stdout.feed_eof()
        self.stderr.feed_eof()
        self.ended.set_result(how or self.how())

    async def wait(self):
        return await asyncio.shield(self.ended)

    async def kill(self, number=9):
        if self.ended.done():
            return False
        self.finish(boxes.Ended(None, int(number)))
        return True

    def close(self):
        pass


class CannedGuest:
    """Files in a dictionary, commands in a table: {text of the code or a part of it: {exit, stdout, stderr, delay_ms}}; "" is the default."""

    def __init__(self, table):
        self.table, self.files, self.folders, self.pids = table, {}, set(), 100
        self.processes = set()

    async def user(self, name):
        if name not in HOMES:
            raise KeyError(name)
        return ((0, 0) if name == "root" else (1000, 1000)), HOMES[name]

    def _path(self, path, user="user"):
        home = HOMES.get(user, HOMES["user"])
        path = home + path[1:] if path == "~" or path.startswith("~/") else path
        return posixpath.normpath(posixpath.join(home, path))

    def _code(self, argv, cwd):
        """The text that runs: the last argument that names a file of the guest's, else the last argument."""
        for argument in reversed(argv):
            data = self.files.get(posixpath.normpath(posixpath.join(cwd or HOMES["user"], argument)))
            if data is not None:
                return data.decode("utf-8", "replace")
        return argv[-1] if argv else ""

    def _answer(self, argv, cwd):
        if argv and argv[0].rpartition("/")[2] == "sha256sum":
            return self._hashes(argv, "", cwd) or {"exit": 1, "stderr": "sha256sum: no such file\n"}
        text = self._code(argv, cwd)
        if argv and argv[0].endswith("sha256sum"):      # a file's text is not what it is run for
            return self._hashes(argv, text, cwd)
        if text in self.table:
            return self.table[text]
        for part, answer in self.table.items():
            if part and part in text:
                return answer
        if "egressOpen" in text:
            # a probe of what is reachable: nothing, and no program to ask
            report = {"probe": 1, "node": "v20.0.0", "cwd": cwd or HOMES["user"], "python": "3.11.2", "egressOpen": []}
            return {"stdout": json.dumps(report) + "\n"}
        hashed = self._hashes(argv, text, cwd)
        if hashed is not None:
            return hashed
        printed = re.search(r"(?:print|console\.log)\(?\s*(\d+)", text)
        if printed and "" not in self.table:
            return {"stdout": printed.group(1) + "\n"}
        return self.table.get("", {"stdout": "42\n"})

    def _hashes(self, argv, text, cwd):
        """`sha256sum` of files that were staged, as a command or inside a script."""
        words = argv[1:] if not text else re.split(r"[\s;&|]+", text) if "sha256sum" in text else None
        if words is None:
            return None
        lines = []
        for word in words:
            path = posixpath.normpath(posixpath.join(cwd or HOMES["user"], word.strip("'\"")))
            if path in self.files:
                lines.append(f"{hashlib.sha256(self.files[path]).hexdigest()}  {word}\n")
        return {"stdout": "".join(lines)} if lines else None

    async def spawn(self, argv, env, cwd, user, stdin, pty):
        self.pids += 1
        # the wrapper's own words come first: /bin/sh -c 'exec "$@"' sh
        process = CannedProcess(self.pids, self._answer(argv[4:], cwd))
        if not process.ended.done():
            self.processes.add(process)
            process.ended.add_done_callback(lambda _: self.processes.discard(process))
        return process

    async def writer(self, path, user):
        full = self._path(path, user)
        return _CannedFile(self, full), full

    async def reader(self, path, user):
        full = self._path(path, user)
        if full not in self.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        fd = os.memfd_create("canned")
        os.write(fd, self.files[full])
        os.lseek(fd, 0, os.SEEK_SET)
        return fd, {"size": len(self.files[full]), "regular": True, "folder": False, "path": full}

    def _entry(self, path):
        if path in self.files:
            kind, mode, size = "FILE_TYPE_FILE", 0o644, len(self.files[path])
        elif path in HOMES.values() or path in self.folders or any(f.startswith(path + "/") for f in self.files):
            kind, mode, size = "FILE_TYPE_DIRECTORY", 0o755, 4096
        else:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        kind_bits = st.S_IFREG if kind == "FILE_TYPE_FILE" else st.S_IFDIR
        return {"name": posixpath.basename(path), "type": kind, "path": path, "size": size, "mode": mode, "permissions": st.filemode(mode | kind_bits),
                "owner": "user", "group": "user", "modified_ns": time.time_ns()}

    async def service(self, what, user="user", **fields):
        if what == "move":
            source, to = self._path(fields["source"], user), self._path(fields["destination"], user)
            self._entry(source)
            for name in [f for f in self.files if f == source or f.startswith(source + "/")]:
                self.files[to + name[len(source):]] = self.files.pop(name)
            return {"entry": self._entry(to)}
        if what == "space":
            return {"total": 512 << 20, "free": 256 << 20}
        path = self._path(fields["path"], user)
        if what == "stat":
            return {"entry": self._entry(path)}
        if what == "list":
            self._entry(path)
            names = {path + "/" + f[len(path) + 1:].split("/")[0] for f in (*self.files, *self.folders) if f.startswith(path + "/")}
            return {"entries": [self._entry(n) for n in sorted(names)]}
        if what == "mkdir":
            if path in self.files:
                raise NotADirectoryError(errno.ENOTDIR, "exists", path)
            if path in self.folders or path in HOMES.values():
                raise FileExistsError(errno.EEXIST, "exists", path)
            self.folders.add(path)
            return {"entry": self._entry(path)}
        if what == "remove":
            for name in [f for f in self.files if f == path or f.startswith(path + "/")]:
                del self.files[name]
            self.folders = {f for f in self.folders if f != path and not f.startswith(path + "/")}
            return {}
        raise OSError(errno.ENOSYS, what)

    async def watch(self, path, recursive, user):
        raise OSError(errno.ENOSYS, "no watching without a box")

    async def pause(self):
        pass

    async def resume(self):
        pass

    async def end(self):
        for process in list(self.processes):
            await process.kill()
        self.files, self.folders = {}, set()


class _CannedFile:
    """What an upload is written to: stored when it is closed."""

    def __init__(self, guest, path):
        self.guest, self.path, self.parts = guest, path, []

    def write(self, data):
        self.parts.append(bytes(data))
        return len(data)

    def close(self):
        self.guest.files[self.path] = b"".join(self.parts)
