"""envd's file service: the RPCs, and GET and POST /files. It works as the guest's root, and follows the guest's links inside the guest."""
import asyncio
import base64
import errno
import fnmatch
import hashlib
import hmac
import json
import os
import re
import secrets
import time

import aiohttp
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from .answers import Answer, Done, drop
from .rpc import RpcError

CHUNK = 64 * 1024
PART = re.compile(r'\b(name|filename)="((?:[^"\\]|\\.)*)"')
RANGE = re.compile(r"bytes=(\d+)-(\d*)\Z")
UNAUTHORIZED = {"code": 401, "message": "unauthorized access, please provide a valid access token or method signing if supported"}
WATCHERS_MAX = 100


def failure(status, message):
    return Answer(status, {"message": message, "code": status})


def signature(path, operation, user, token, expires=None):
    """How a signed URL is made; the token is what makes it a secret."""
    raw = ":".join([path, operation, user, token, *([expires] if expires else [])])
    return "v1_" + base64.b64encode(hashlib.sha256(raw.encode()).digest()).decode().rstrip("=")


def is_signed(query, method, token):
    """Whether the URL carries a signature of this sandbox's."""
    given = query.get("signature")
    if not given or not token:
        return False
    made = signature(query.get("path", ""), "read" if method == "GET" else "write", query.get("username", ""), token, query.get("signature_expiration"))
    return hmac.compare_digest(made, given)


class Files:
    def __init__(self, world):
        self.world = world

    # -- RPCs --

    def entry(self, s, e):
        seconds, nanos = divmod(e["modified_ns"] + s.skew_ms * 1_000_000, 1_000_000_000)
        value = {"name": e["name"], "type": e["type"], "path": e["path"], "size": str(e["size"]) if e["size"] else None, "mode": e["mode"] or None,
                 "permissions": e["permissions"], "owner": e["owner"], "group": e["group"],
                 "modifiedTime": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{nanos:09d}Z", "symlinkTarget": e.get("symlink_target"),
                 "metadata": s.file_metadata.get(e["path"])}
        return {k: v for k, v in value.items() if v is not None}

    async def ask(self, call, what, **fields):
        """The guest's answer; KeyError of a user and OSError as RpcErrors."""
        try:
            await call.sandbox.guest.user(call.user)
            return await call.sandbox.guest.service(what, user=call.user, **fields)
        except KeyError:
            raise RpcError("unauthenticated", f"invalid username: '{call.user}'") from None
        except FileNotFoundError:
            raise RpcError("not_found", f"path not found: {fields.get('path', fields.get('source'))}") from None
        except FileExistsError:
            raise RpcError("already_exists", f"directory already exists: {fields['path']}") from None
        except NotADirectoryError:
            raise RpcError("invalid_argument", f"path is not a directory: {fields.get('path')}") from None
        except OSError as e:
            raise RpcError("internal", f"error: {os.strerror(e.errno) if e.errno else e}") from None

    async def stat(self, call, request):
        return {"entry": self.entry(call.sandbox, (await self.ask(call, "stat", path=request.get("path", "")))["entry"])}

    async def make_dir(self, call, request):
        return {"entry": self.entry(call.sandbox, (await self.ask(call, "mkdir", path=request.get("path", "")))["entry"])}

    async def move(self, call, request):
        e = (await self.ask(call, "move", source=request.get("source", ""), destination=request.get("destination", "")))["entry"]
        kept = call.sandbox.file_metadata.pop(request.get("source"), None)
        if kept:
            call.sandbox.file_metadata[e["path"]] = kept
        return {"entry": self.entry(call.sandbox, e)}

    async def list_dir(self, call, request):
        found = (await self.ask(call, "list", path=request.get("path", ""), depth=int(request.get("depth", 0)) or 1))["entries"]
        return {"entries": [self.entry(call.sandbox, e) for e in found]} if found else {}

    async def remove(self, call, request):
        await self.ask(call, "remove", path=request.get("path", ""))
        return {}

    async def watching(self, call, request):
        try:
            return await call.sandbox.guest.watch(request.get("path", ""), bool(request.get("recursive")), call.user)
        except FileNotFoundError:
            raise RpcError("not_found", f"path not found: {request.get('path')}") from None
        except NotADirectoryError:
            raise RpcError("invalid_argument", f"path is not a directory: {request.get('path')}") from None
        except OSError as e:
            raise RpcError("unimplemented" if e.errno == errno.ENOSYS else "internal", str(e)) from None

    async def watch_dir(self, call, request, stream):
        reader, transport = await self.watching(call, request)
        try:
            await stream.begin()
            await stream.event({"start": {}})
            while True:
                try:
                    line = await asyncio.wait_for(reader.readline(), 50)
                except asyncio.TimeoutError:
                    await stream.event({"keepalive": {}})
                    continue
                if not line:
                    break
                await stream.event({"filesystem": json.loads(line)})
            await stream.end()
        finally:
            transport.close()

    async def create_watcher(self, call, request):
        watchers = call.sandbox.watchers
        if len(watchers) >= WATCHERS_MAX:
            raise RpcError("resource_exhausted", "too many watchers")
        reader, transport = await self.watching(call, request)
        name, events = "w" + secrets.token_hex(8), []

        async def collect():
            while line := await reader.readline():
                events.append(json.loads(line))
        watchers[name] = (events, transport, asyncio.ensure_future(collect()))
        return {"watcherId": name}

    def watcher(self, call, request):
        name = request.get("watcherId", "")
        if name not in call.sandbox.watchers:
            raise RpcError("not_found", f"watcher with id {name} not found")
        return name

    async def get_watcher_events(self, call, request):
        events = call.sandbox.watchers[self.watcher(call, request)][0]
        found, events[:] = list(events), []
        return {"events": found} if found else {}

    async def remove_watcher(self, call, request):
        _, transport, task = call.sandbox.watchers.pop(self.watcher(call, request))
        task.cancel()
        transport.close()
        return {}

    # -- /files --

    def check_access(self, call):
        """The token, or a signature in the URL."""
        s, q = call.sandbox, call.query
        if s.envd_token is None or call.has_token:
            return
        if is_signed(q, call.method, s.envd_token):
            expires = q.get("signature_expiration")
            if expires and (not expires.isdigit() or int(expires) < self.world.clock.wall() // 1000):
                raise failure(401, "signature is already expired")
            return
        raise Answer(401, UNAUTHORIZED)

    def trouble(self, call, path, *types):
        """The rule when one of these faults is for this path."""
        rule = call.rule
        if rule is not None and rule.type in types and fnmatch.fnmatchcase(path, rule.get("path") or "*"):
            return rule
        return None

    async def user_of(self, call):
        name = call.query.get("username") or "user"
        try:
            await call.sandbox.guest.user(name)
        except KeyError:
            raise failure(400, f"error looking up user '{name}': user: unknown user {name}") from None
        return name

    async def post(self, call):
        self.check_access(call)
        user, path = await self.user_of(call), call.query.get("path")
        kind = call.request.headers.get("Content-Type", "")
        metadata = {k[len("x-metadata-"):].lower(): v for k, v in call.request.headers.items() if k.lower().startswith("x-metadata-")} or None
        if kind.lower().startswith("multipart/form-data"):
            written = await self.post_form(call, user, path, metadata)
        elif kind.split(";")[0].strip().lower() == "application/octet-stream":
            if not path:
                raise failure(400, "path is required for an octet-stream upload")
            written = [await self.store(call, user, path, call.request.content.iter_chunked(CHUNK), metadata)]
        else:
            raise failure(400, f"unsupported content type {kind!r}")
        return Answer(200, written, content_type="text/plain; charset=utf-8")

    async def post_form(self, call, user, path, metadata):
        try:
            reader = aiohttp.MultipartReader(call.request.headers, call.request.content)
        except (ValueError, AssertionError):
            raise failure(400, "error parsing multipart form: no multipart boundary param in Content-Type") from None
        written = []
        try:
            while (part := await reader.next()) is not None:
                found = dict(PART.findall(part.headers.get("Content-Disposition", "")))
                if found.get("name") != "file":
                    self.world.account.violation("a part that is not named file", name=found.get("name"))
                    continue
                to = path or found.get("filename", "")
                if not to:
                    raise failure(400, "a part has no filename")
                if path and written:
                    raise failure(400, "with a path there can be one file")
                written.append(await self.store(call, user, to, _chunks(part), metadata, written))
        except (ValueError, HttpProcessingError) as e:
            raise failure(400, f"error parsing multipart form: {e}"[:200]) from None
        return written

    async def store(self, call, user, path, chunks, metadata, before=()):
        if self.trouble(call, path, "fs_500"):
            raise failure(500, f"error opening file: open {path}: permission denied")
        if self.trouble(call, path, "fs_507"):
            raise failure(507, "not enough disk space available")
        head = b""
        lost = self.trouble(call, path, "lost_upload")
        keep = lost.get("keep_bytes", 0) if lost is not None else None
        try:
            file, full = await call.sandbox.guest.writer(path, user)
        except IsADirectoryError:
            raise failure(400, f"path is a directory: {path}") from None
        except OSError as e:
            raise failure(507 if e.errno == errno.ENOSPC else 500, f"error opening file: {os.strerror(e.errno)}") from None
        try:
            if any(w["path"] == full for w in before):
                raise failure(400, f"you cannot upload multiple files to the same path '{full}' in one upload request")
            async for data in chunks:
                call.received += len(data)
                if len(head) < CHUNK:
                    head += data
                if keep is not None:
                    data, keep = data[:keep], max(0, keep - len(data))
                view = memoryview(data)
                while view:
                    view = view[file.write(view):]
        except OSError as e:
            raise failure(507 if e.errno == errno.ENOSPC else 500, f"error writing file: {os.strerror(e.errno or errno.EIO)}") from None
        finally:
            file.close()
        self.world.account.count("upload", call.sandbox.id)
        call.sandbox.code[full] = head[:CHUNK].decode("utf-8", "replace") if b"\0" not in head[:CHUNK] else ""
        if metadata:
            call.sandbox.file_metadata[full] = metadata
        else:
            call.sandbox.file_metadata.pop(full, None)
        return {"path": full, "name": full.rsplit("/", 1)[-1], "type": "file", **({"metadata": metadata} if metadata else {})}

    async def get(self, call):
        self.check_access(call)
        user, path = await self.user_of(call), call.query.get("path") or "~"
        if re.search(r"(identity|\*)\s*;\s*q=0(\.0*)?\s*(,|$)", call.request.headers.get("Accept-Encoding", "")):
            raise failure(406, "no acceptable encoding found")
        if self.trouble(call, path, "fs_500"):
            raise failure(500, f"error reading file '{path}'")
        if self.trouble(call, path, "fifo_hang"):
            await drop(call.request.transport, "hang")
            return Done()
        self.world.account.count("download", call.sandbox.id)
        if self.trouble(call, path, "endless_file"):
            return await self.send_endless(call)
        try:
            fd, about = await call.sandbox.guest.reader(path, user)
        except FileNotFoundError:
            raise failure(404, f"path '{path}' does not exist") from None
        except OSError as e:
            raise failure(500, f"error opening file '{path}': {os.strerror(e.errno)}") from None
        if about["folder"]:
            os.close(fd)
            raise failure(400, f"path '{path}' is a directory")
        with os.fdopen(fd, "rb", 0) as file:
            if not about["regular"]:
                return await self.send_special(call, file)
            return await self.send_regular(call, file, about["size"], path)

    async def send_regular(self, call, file, size, path):
        start, end, status = 0, size, 200
        headers = {"Accept-Ranges": "bytes", "Content-Disposition": f"inline; filename={os.path.basename(path)!r}".encode("ascii", "replace").decode()}
        if (found := RANGE.match(call.request.headers.get("Range", ""))) and size:
            start = int(found[1])
            if start >= size:
                return Answer(416, b"invalid range: failed to overlap\n", {"Content-Range": f"bytes */{size}"}, "text/plain; charset=utf-8")
            end = min(size, int(found[2]) + 1) if found[2] else size
            if end <= start:
                return Answer(416, b"invalid range\n", content_type="text/plain; charset=utf-8")
            status = 206
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        if call.method == "HEAD" or end - start <= 1 << 20:
            file.seek(start)
            return Answer(status, file.read(end - start), headers, "application/octet-stream")
        response = web.StreamResponse(status=status, headers={**headers, "Content-Type": "application/octet-stream", "Content-Length": str(end - start)})
        await response.prepare(call.request)
        file.seek(start)
        left = end - start
        while left and (data := file.read(min(CHUNK, left))):
            await response.write(data)
            left -= len(data)
        await response.write_eof()
        return response

    async def send_special(self, call, file):
        """A device, or a FIFO whose other end is open: until it ends."""
        os.set_blocking(file.fileno(), False)
        response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
        response.enable_chunked_encoding()
        await response.prepare(call.request)
        try:
            while (data := file.read(CHUNK)) != b"":
                if data is None:
                    await asyncio.sleep(0.01)
                else:
                    await response.write(data)
            await response.write_eof()
        except ConnectionError:
            return Done()
        return response

    async def send_endless(self, call):
        response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
        response.enable_chunked_encoding()
        await response.prepare(call.request)
        try:
            while True:
                await response.write(b"\0" * CHUNK)
        except ConnectionError:
            return Done()


async def _chunks(part):
    while data := await part.read_chunk(CHUNK):
        yield data
