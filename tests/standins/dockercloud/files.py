"""The single-file operations of the REST file service: stat, list, read, write, mkdir, move, remove."""
import posixpath

from . import running
from .canned import canonical
from .server import Answer, Call, said
from .wire import Refusal

PATHS_SHOWN = 1000


def info(path: str, about: dict) -> dict:
    """FileInfo; `about` is a place's: kind, size, mode, link."""
    shown = {"path": path, "size": str(about["size"]), "mode": about["mode"], "isDir": about["kind"] == "directory", "type": about["kind"]}
    if about["kind"] == "symlink":
        shown["linkTarget"] = about["link"]
    return {k: v for k, v in shown.items() if v not in (0, "0", False)}


def _refusal(reason: str, text: str) -> Refusal:
    return Refusal("failedPrecondition", f"{reason}: {text}", status=409)


async def stat(call: Call, message: dict) -> Answer:
    path = canonical(call.request.query["path"])
    return said({"info": info(path, await running.running_sandbox(call).place.about(path))})


async def list_folder(call: Call, message: dict) -> Answer:
    query = call.request.query
    folder = canonical(query["path"])
    order, _, direction = query.get("orderBy", "path").partition(" ")
    if order != "path" or direction not in ("", "asc", "desc"):
        raise Refusal("invalidArgument", "entries are ordered by path")
    names = sorted(await running.running_sandbox(call).place.names(folder), reverse=direction == "desc")
    size, start = int(query.get("pageSize") or 0) or 100, int(query.get("pageToken") or 0)
    place, entries = running.running_sandbox(call).place, []
    for name in names[start:start + size]:
        path = posixpath.join(folder, name)
        entries.append(info(path, await place.about(path)))
    answer: dict = {"entries": entries} if entries else {}
    if start + size < len(names):
        answer["nextPageToken"] = str(start + size)
    return said(answer)


async def read_file(call: Call, message: dict) -> Answer:
    _, data = await running.running_sandbox(call).place.read(call.request.query["path"])
    return Answer(200, data, kind="application/octet-stream")


async def write_file(call: Call, message: dict) -> Answer:
    if call.request.content_type != "application/octet-stream":
        raise Refusal("invalidArgument", "the content type is not application/octet-stream")
    query, sandbox = call.request.query, running.running_sandbox(call)
    path = canonical(query["path"])
    call.world.account.count("upload", sandbox.uid)
    await sandbox.place.write(path, int(query.get("mode") or 0) & 0o777 or 0o644, call.body, False)
    return said({"info": info(path, await sandbox.place.about(path))})


async def mkdir(call: Call, message: dict) -> Answer:
    await running.running_sandbox(call).place.add_folder(message["path"], int(message.get("mode", 0)) & 0o777 or 0o755, bool(message.get("parents")))
    return said({})


async def move(call: Call, message: dict) -> Answer:
    place, source, to = running.running_sandbox(call).place, canonical(message["from"]), canonical(message["to"])
    moved = await place.about(source)
    try:
        there = await place.about(to)
    except Refusal:
        there = None
    if there and moved["kind"] == "directory":
        raise _refusal("move_destination_occupied", "a directory does not replace what is there")
    if there and there["kind"] == "directory":
        raise _refusal("move_destination_is_directory", "a file is not moved into a directory")
    await place.rename(source, to)
    return said({})


async def remove(call: Call, message: dict) -> Answer:
    place, path = running.running_sandbox(call).place, canonical(call.request.query["path"])
    try:
        about = await place.about(path)
    except Refusal as wrong:
        if wrong.code != "notFound":
            raise
        return said({})
    inside = await place.below(path) if about["kind"] == "directory" else []
    if inside and call.request.query.get("recursive") != "true":
        raise Refusal("failedPrecondition", "the directory is not empty")
    await place.delete(path)
    removed = [*reversed(inside), path]
    return said({"completedPaths": removed[:PATHS_SHOWN], "completedCount": len(removed)})


HANDLERS = {"stat": stat, "list": list_folder, "readFile": read_file, "writeFile": write_file, "mkdir": mkdir, "move": move, "remove": remove}
