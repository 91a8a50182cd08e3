"""A sandbox whose commands and files are real: a box of its own (base/box.py)."""
import asyncio
import errno
import os
import posixpath
import stat

from ..base.box import Box, BoxError
from .canned import Ran, absent, canonical
from .wire import Refusal
from .world import CAPTURE_MAX

FILE_MAX = 64 << 20
DEPTH_MAX = 64
KINDS = {"FILE_TYPE_FILE": "regular", "FILE_TYPE_DIRECTORY": "directory", "FILE_TYPE_SYMLINK": "symlink"}


def nonregular(path: str) -> Refusal:
    return Refusal("failedPrecondition", f"path_authority_nonregular_object: {path} is no regular file", status=409)


def of_system(wrong: OSError, path: str) -> Refusal:
    """What the file service says for an error of the system."""
    match wrong.errno:
        case errno.ENOENT | errno.ENOTDIR: return absent(path)
        case errno.EISDIR | errno.ENXIO | errno.EINVAL | errno.ENODEV: return nonregular(path)
        case errno.EEXIST: return Refusal("alreadyExists", f"{path} is there")
        case errno.EACCES | errno.EPERM | errno.EROFS: return Refusal("permissionDenied", f"{path}: {os.strerror(wrong.errno)}")
        case errno.ENOSPC | errno.EDQUOT: return Refusal("resourceExhausted", "the disk is full")
        case errno.ENOTEMPTY: return Refusal("failedPrecondition", f"{path} is not empty")
    return Refusal("internal", f"{path}: {os.strerror(wrong.errno or errno.EIO)}")


class RealPlace:
    is_canned = False

    def __init__(self, box: Box, jail: str):
        self.box, self.jail = box, jail

    @classmethod
    async def create(cls, name: str, jail: str = "", mode: str = "auto") -> "RealPlace":
        try:
            return cls(await Box.create(name=name, mode=mode), jail)
        except BoxError as wrong:
            raise Refusal("internal", f"no machine: {wrong}") from wrong

    async def end(self) -> None:
        await self.box.end()

    # -- commands --

    async def run(self, argv: list[str], env: dict, cwd: str, user: str, wrapped) -> Ran:
        """To the end of the command and of everyone who holds its outputs, as the service does it; what goes over the capture is read and dropped."""
        try:
            process = await self.box.spawn(argv, env=env, cwd=cwd or None, user=user or "user")
        except BoxError:
            raise Refusal("unavailable", "the sandbox went away") from None
        except OSError as wrong:
            return Ran(127 if wrong.errno == errno.ENOENT else 126, b"", f"{argv[0]}: {os.strerror(wrong.errno or 0)}\n".encode())
        kept, over = [bytearray(), bytearray()], False

        async def drain(reader, into):
            nonlocal over
            while piece := await reader.read(65536):
                room = CAPTURE_MAX - len(kept[0]) - len(kept[1])
                over = over or len(piece) > room
                into += piece[:max(0, room)]
        await asyncio.gather(drain(process.stdout, kept[0]), drain(process.stderr, kept[1]))
        ended = await process.wait()
        process.close()
        return Ran(ended.code if ended.code is not None else 128 + ended.signal, bytes(kept[0]), bytes(kept[1]), over)

    # -- files --

    def _judge(self, path: str) -> str:
        """The path in its plain form; a link that leaves the jail is a refusal."""
        path = canonical(path)
        if self.jail:
            root = self.box.resolve("/")
            real = "/" + self.box.resolve(path)[len(root):].lstrip("/")
            if posixpath.commonpath([real, self.jail]) != self.jail:
                raise Refusal("failedPrecondition", f"path_authority_symlink_escape: {path} leaves the jail", status=409)
        return path

    async def write(self, path: str, mode: int, data: bytes, parents: bool) -> None:
        path = self._judge(path)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC
            fd, about = await self.box.open(path, flags, mode, parents=parents, owner=True)
            with os.fdopen(fd, "wb") as f:
                if not about["regular"]:
                    raise nonregular(path)
                f.write(data)
                os.fchmod(f.fileno(), mode)
        except BoxError:
            raise Refusal("unavailable", "the sandbox went away") from None
        except OSError as wrong:
            raise of_system(wrong, path) from None

    async def read(self, path: str) -> tuple[int, bytes]:
        path = self._judge(path)
        try:
            fd, about = await self.box.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(fd, "rb") as f:
                if not about["regular"]:
                    raise nonregular(path)
                return stat.S_IMODE(os.fstat(f.fileno()).st_mode) & 0o777, f.read(FILE_MAX)
        except BoxError:
            raise Refusal("unavailable", "the sandbox went away") from None
        except OSError as wrong:
            raise of_system(wrong, path) from None

    async def _ask(self, what: str, path: str, **fields) -> dict:
        path = self._judge(path)
        try:
            return await self.box.service(what, path=path, **fields)
        except BoxError:
            raise Refusal("unavailable", "the sandbox went away") from None
        except OSError as wrong:
            raise of_system(wrong, path) from None

    async def about(self, path: str) -> dict:
        entry = (await self._ask("stat", path))["entry"]
        return {"kind": KINDS.get(entry["type"], "other"), "size": entry["size"], "mode": entry["mode"] & 0o777, "link": entry.get("symlink_target", "")}

    async def names(self, folder: str) -> list[str]:
        return [e["name"] for e in (await self._ask("list", folder))["entries"]]

    async def below(self, folder: str) -> list[str]:
        """All that is in a folder, parents before what is in them."""
        return [e["path"] for e in (await self._ask("list", folder, depth=DEPTH_MAX))["entries"]]

    async def add_folder(self, path: str, mode: int, parents: bool) -> None:
        path = canonical(path)
        if not parents and (await self.about(posixpath.dirname(path)))["kind"] != "directory":
            raise absent(posixpath.dirname(path))
        try:
            await self._ask("mkdir", path)
        except Refusal as wrong:
            if wrong.code == "alreadyExists":
                return  # a repeated call converges, and leaves the mode alone
            raise
        os.chmod(self.box.resolve(path), mode)

    async def rename(self, source: str, to: str) -> None:
        await self.about(posixpath.dirname(to))
        await self._ask("move", source, source=source, destination=self._judge(to))

    async def delete(self, path: str) -> None:
        await self._ask("remove", path)
