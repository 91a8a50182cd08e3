"""A sandbox without processes, for load tests: files in memory, and commands answered from a table."""
import asyncio
import dataclasses
import posixpath
import re

from .wire import Refusal
from .world import CAPTURE_MAX

FILES_BYTES_MAX = 64 << 20


@dataclasses.dataclass(slots=True)
class Ran:
    """How a command ended. `exit` is 128 + the signal where one ended it."""
    exit: int
    stdout: bytes
    stderr: bytes
    incomplete: bool = False


def capped(stdout: bytes, stderr: bytes) -> tuple[bytes, bytes, bool]:
    """The service's combined capture."""
    out = stdout[:CAPTURE_MAX]
    err = stderr[:CAPTURE_MAX - len(out)]
    return out, err, len(out) + len(err) < len(stdout) + len(stderr)


def absent(path: str) -> Refusal:
    return Refusal("notFound", f"{path} is not there")


def canonical(path: str) -> str:
    if not isinstance(path, str) or not path.startswith("/") or "\0" in path or len(path) > 4096:
        raise Refusal("invalidArgument", "the path is not absolute")
    return posixpath.normpath(path)


class CannedPlace:
    """`table`: rows {"code": regular expression, "exit", "stdout", "stderr", "delay_ms"}; the first whose expression is found in the command's text is
    taken. That text is the staged file the command names last, or the command itself."""

    is_canned = True

    def __init__(self, table: list[dict], ran=lambda text: None):
        self.ran = ran
        self.table = [(re.compile(row["code"]), row) for row in table]
        self.files: dict[str, tuple[int, bytes]] = {}
        self.folders = {"/", "/tmp"}
        self.size = 0

    async def end(self) -> None:
        self.files.clear()

    # -- files --

    async def write(self, path: str, mode: int, data: bytes, parents: bool) -> None:
        path = canonical(path)
        folder = posixpath.dirname(path)
        if folder not in self.folders:
            if not parents:
                raise absent(folder)
            self._add_folder(folder, True)
        if path in self.folders:
            raise Refusal("failedPrecondition", "path_authority_nonregular_object: the path is a directory", status=409)
        self.size += len(data) - len(self.files.get(path, (0, b""))[1])
        if self.size > FILES_BYTES_MAX:
            raise Refusal("resourceExhausted", "the disk is full")
        self.files[path] = (mode, data)

    async def read(self, path: str) -> tuple[int, bytes]:
        path = canonical(path)
        if path in self.folders:
            raise Refusal("failedPrecondition", "path_authority_nonregular_object: the path is a directory", status=409)
        if path not in self.files:
            raise absent(path)
        return self.files[path]

    async def add_folder(self, path: str, mode: int, parents: bool) -> None:
        self._add_folder(path, parents)

    def _add_folder(self, path: str, parents: bool) -> None:
        path = canonical(path)
        if path in self.files:
            raise Refusal("alreadyExists", "a file is there")
        parent = posixpath.dirname(path)
        if parent not in self.folders:
            if not parents:
                raise absent(parent)
            self._add_folder(parent, True)
        self.folders.add(path)

    async def about(self, path: str) -> dict:
        if path in self.folders:
            return {"kind": "directory", "size": 0, "mode": 0o755, "link": ""}
        if path not in self.files:
            raise absent(path)
        mode, data = self.files[path]
        return {"kind": "regular", "size": len(data), "mode": mode, "link": ""}

    async def names(self, folder: str) -> list[str]:
        if folder not in self.folders:
            raise absent(folder)
        return [posixpath.basename(p) for p in (*self.folders, *self.files) if p != "/" and posixpath.dirname(p) == folder]

    async def below(self, folder: str) -> list[str]:
        return sorted(p for p in (*self.folders, *self.files) if p.startswith(folder.rstrip("/") + "/"))

    async def rename(self, source: str, to: str) -> None:
        if posixpath.dirname(to) not in self.folders:
            raise absent(posixpath.dirname(to))
        for path in [p for p in self.files if p == source or p.startswith(source + "/")]:
            self.files[to + path[len(source):]] = self.files.pop(path)
        for path in [p for p in self.folders if p == source or p.startswith(source + "/")]:
            self.folders.discard(path)
            self.folders.add(to + path[len(source):])

    async def delete(self, path: str) -> None:
        for inner in [*await self.below(path), path]:
            self.folders.discard(inner)
            self.size -= len(self.files.pop(inner, (0, b""))[1])

    # -- commands --

    async def run(self, argv: list[str], env: dict, cwd: str, user: str, wrapped: "tuple[float, int] | None") -> Ran:
        if argv[:3] == ["mkdir", "-p", "--"]:
            for path in argv[3:]:
                self._add_folder(path, True)
            return Ran(0, b"", b"")
        staged = posixpath.join(cwd or "/", argv[-1])
        text = self.files[staged][1].decode("utf-8", "replace") if staged in self.files else " ".join(argv)
        self.ran(text)
        limit, cap = wrapped or (3600, CAPTURE_MAX)
        row = next((row for pattern, row in self.table if pattern.search(text)), None)
        if row is None and (m := re.match(r"\s*(?:exec )?sleep (\d+)", text)):
            await asyncio.sleep(min(int(m[1]), limit))
            return Ran(0 if int(m[1]) < limit else 137, b"", b"")
        if row is None and re.match(r"\s*(?:exec )?yes\b", text):
            return Ran(141, (b"y\n" * (cap // 2 + 1))[:cap], b"")
        if row is None and "egressOpen" in text:
            return Ran(0, b'{"node":"v20.0.0","cwd":"%s","egressOpen":[]}\n' % cwd.encode(), b"")
        row = row or {"stdout": "42\n"}
        if delay := row.get("delay_ms"):
            if delay > limit * 1000:
                await asyncio.sleep(limit)
                return Ran(137, b"", b"")
            await asyncio.sleep(delay / 1000)
        out, err, incomplete = capped(row.get("stdout", "").encode()[:cap], row.get("stderr", "").encode()[:cap])
        return Ran(row.get("exit", 0), out, err, incomplete)
