"""The Connect protocol as envd speaks it: errors, unary calls and streams of envelopes, and what faults do to a stream."""
import asyncio
import base64
import json
import random
import struct

from aiohttp import web

from ..base.box import BoxError
from . import schema
from .answers import Answer, Done, drop, reset

STATUS = {"canceled": 499, "unknown": 500, "invalid_argument": 400, "deadline_exceeded": 504, "not_found": 404, "already_exists": 409,
          "permission_denied": 403, "resource_exhausted": 429, "failed_precondition": 400, "aborted": 409, "out_of_range": 400, "unimplemented": 501,
          "internal": 500, "unavailable": 503, "data_loss": 500, "unauthenticated": 401}
REQUEST_MAX = 16 * 1024 * 1024
OVERSIZE = 0x7FFFFFF0
FLOOD_CHUNK = 24 * 1024
END = 0x02


class RpcError(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code, self.message = code, message

    def as_json(self):
        return {"code": self.code, "message": self.message}


class Writer:
    """JSON with white space that is never the same, as protobuf's own: nobody may compare its bytes."""

    def __init__(self, seed):
        self.random = random.Random(f"white space {seed}")
        self.styles = ((",", ":"), (", ", ":"), (",", ": "), (", ", ": "))

    def __call__(self, value):
        return json.dumps(value, separators=self.random.choice(self.styles), ensure_ascii=False).encode("utf-8", "surrogateescape")


def unary_error(e):
    return Answer(STATUS[e.code], json.dumps(e.as_json()).encode(), content_type="application/json")


def request_of(call, is_stream):
    """The message of a call, checked against its schema; RpcError or an Answer is raised."""
    account, headers = call.world.account, call.request.headers
    kind = headers.get("Content-Type", "").split(";")[0].strip().lower()
    if kind != ("application/connect+json" if is_stream else "application/json"):
        raise Answer(415, b"", {"Accept-Post": "application/json, application/connect+json"})
    if headers.get("Connect-Protocol-Version") != "1":
        account.violation("no Connect-Protocol-Version: 1", path=call.path)
    for name in ("Connect-Content-Encoding", "Content-Encoding"):
        if headers.get(name, "identity") != "identity":
            raise RpcError("unimplemented", f"unknown compression {headers[name]!r}")
    data = call.body
    if is_stream:
        if len(data) < 5 or data[0] & ~1 or struct.unpack(">I", data[1:5])[0] != len(data) - 5 or data[0] & 1:
            account.violation("a stream's request that is not one envelope", path=call.path)
            raise RpcError("invalid_argument", "protocol error: incomplete envelope")
        data = data[5:]
    try:
        value = json.loads(data or b"{}")
        if not isinstance(value, dict):
            raise ValueError("no object")
        # half a surrogate is no text
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as e:
        account.violation("an RPC's body that is no JSON object", path=call.path, why=str(e)[:200])
        raise RpcError("invalid_argument", "unmarshal message: invalid JSON") from None
    wrong, unknown = schema.check(value, schema.RPC[call.path])
    for key in unknown:
        account.violation("a key that the schema does not have", path=call.path, key=key)
    if wrong:
        account.violation("an RPC against its schema", path=call.path, why=wrong)
        raise RpcError("invalid_argument", f"unmarshal message: {wrong}")
    return value


def timeout_of(call):
    """Seconds, or None."""
    text = call.request.headers.get("Connect-Timeout-Ms")
    if text is None:
        return None
    if not text.isdigit() or len(text) > 10 or int(text) == 0:
        call.world.account.violation("Connect-Timeout-Ms", value=text[:40])
    if not text.isdigit() or len(text) > 10:
        raise RpcError("invalid_argument", f"protocol error: invalid Connect-Timeout-Ms {text!r}")
    return int(text) / 1000


class Lost(Exception):
    """The sandbox has gone under an open stream."""


class Stream:
    """One answer of envelopes. A rule of phase `frames` changes what goes out."""

    def __init__(self, call):
        self.call, self.world, self.request = call, call.world, call.request
        self.rule = call.take("frames")
        self.kind = (self.rule.get("kind") or "") if self.rule is not None and self.rule.type == "stream" else ""
        self.split = self.rule.get("bytes", 1) if self.rule is not None and self.rule.type == "split" else 0
        self.response = None
        self.frames = self.sent = 0
        self.lost = asyncio.get_running_loop().create_future()
        self.is_over = self.is_whole = False

    async def begin(self):
        self.response = web.StreamResponse(status=200, headers={"Content-Type": "application/connect+json"})
        self.response.enable_chunked_encoding()
        await self.response.prepare(self.request)
        if self.rule is not None and self.rule.type == "keepalives":
            self.beat = asyncio.ensure_future(self.keep_beating(self.rule.get("every_ms", 10) / 1000))
        if self.rule is not None and self.rule.type == "vanish" and self.rule.get("ms") is not None:
            asyncio.get_running_loop().call_later(self.rule.get("ms") / 1000, lambda: asyncio.ensure_future(self.vanish()))

    def lose(self):
        """The sandbox has ended, or is pausing."""
        if not self.lost.done():
            self.lost.set_result(None)

    async def keep_beating(self, seconds):
        while not self.is_over:
            await asyncio.sleep(seconds)
            if not self.is_over:
                await self.write(self.envelope({"event": {"keepalive": {}}}))

    def envelope(self, value, flags=0):
        data = value if isinstance(value, bytes) else self.world.json(value)
        return struct.pack(">BI", flags, len(data)) + data

    async def write(self, data):
        if self.rule is not None and self.rule.type == "drop":
            keep = self.rule.get("after_bytes", 0) - self.sent
            if len(data) >= keep:
                await self.response.write(data[:keep]) if keep > 0 else None
                await self.cut(self.rule.get("how", "rst"))
        self.sent += len(data)
        self.call.bytes += len(data)
        if not self.split:
            await self.response.write(data)
            return
        for at in range(0, len(data), self.split):
            await self.response.write(data[at:at + self.split])
            await asyncio.sleep(0.0002)

    async def cut(self, how):
        self.is_over = True
        await drop(self.request.transport, how)
        raise Lost

    async def vanish(self, before=b""):
        """The sandbox goes, as a host that fails takes it."""
        how, s = self.rule.get("how", "rst"), self.call.sandbox
        if self.is_over:
            return
        self.is_over = True
        s.streams.discard(self)
        # gone first: the client asks about it as soon as it sees the end
        await self.world.kill(s, "evict")
        if how == "half_frame":
            whole = before or self.envelope({"event": {"data": {"stdout": "aGFsZg=="}}})
            await self.response.write(whole[:max(3, len(whole) // 2)])
            await asyncio.sleep(0.01)
        elif how == "unavailable_frame":
            await self.response.write(self.unavailable())
            await self.response.write_eof()
            self.is_whole = True
        if how in ("rst", "half_frame"):
            reset(self.request.transport)
        if how == "silent":
            await drop(self.request.transport, "hang")
        self.lose()

    def unavailable(self):
        return self.envelope({"error": {"code": "unavailable", "message": f"the connection to sandbox {self.call.sandbox.id} ended before the stream completed"}}, END)

    async def event(self, event):
        """One message."""
        rule, kind, name = self.rule, self.kind, next(iter(event.get("event", event)))
        if rule is not None and rule.type == "stall" and self.frames == rule.get("after_frames", 1):
            if rule.get("ms", -1) < 0:
                await self.cut("hang")
            await asyncio.sleep(rule.get("ms") / 1000)
        if rule is not None and rule.type == "vanish" and rule.get("ms") is None and self.frames >= rule.get("after_frames", 1):
            await self.vanish(self.envelope(event))
            raise Lost
        self.frames += 1
        data = self.envelope(event)
        if kind == "data_before_start" and name == "start":
            await self.write(self.envelope({"event": {"data": {"stdout": "ZWFybHk="}}}))
        elif name == "data" and kind in ("compressed_flag", "unknown_flag"):
            data = bytes([1 if kind == "compressed_flag" else 4]) + data[1:]
        elif name == "data" and kind == "oversize_frame":
            await self.write(struct.pack(">BI", 0, OVERSIZE) + b"x" * 1024)
            await self.cut("hang")
        elif name == "data" and kind == "bad_base64":
            data = self.envelope({"event": {"data": {"stdout": "!!! no base64 !!!"}}})
        elif name == "data" and kind == "bad_json":
            data = self.envelope(b'{"event":{"data":')
        elif name == "data" and kind == "duplicate_key":
            data = self.envelope(b'{"event":{"data":{"stdout":"b25l"}},"event":{"data":{"stdout":"dHdv"}}}')
        elif name == "data" and kind == "not_utf8":
            data = self.envelope(b'{"event":{"data":{"stdout":"b25l"},"\xff\xfe":1}}')
        elif name == "end":
            if kind == "no_end_event" or (kind.startswith("eos_error") and not rule.get("after_end")):
                return
            if kind == "two_ends":
                data += data
            elif kind == "exit_zero_explicit":
                data = self.envelope({"event": {"end": {"exitCode": 0, **event["event"]["end"]}}})
            elif kind == "signal_end":
                data = self.envelope({"event": {"end": {"exitCode": -1, "status": "signal: killed", "error": "signal: killed"}}})
        await self.write(data)
        if name == "start" and rule is not None and rule.type == "flood":
            await self.flood(rule.get("bytes", -1))

    async def flood(self, left):
        """Output without end, or so many bytes of it."""
        while left:
            size = FLOOD_CHUNK if left < 0 else min(FLOOD_CHUNK, left)
            await self.write(self.envelope({"event": {"data": {"stdout": base64.b64encode(b"x" * size).decode()}}}))
            left -= size if left > 0 else 0

    async def whole(self, events):
        """All of it at once, end frame included; one by one where a rule looks at each."""
        if self.rule is not None:
            await self.begin()
            for event in events:
                await self.event(event)
            return await self.end()
        self.is_over = True
        await self.begin()
        data = b"".join(map(self.envelope, events)) + self.envelope({}, END)
        self.call.bytes += len(data)
        await self.response.write_eof(data)

    async def end(self, error=None):
        """The end frame, and the end of the body."""
        if self.rule is not None and self.rule.type == "vanish" and self.rule.get("ms") is None:
            await self.vanish(self.envelope({}, END))
            raise Lost
        self.is_over = True
        value = {"error": error.as_json()} if error else {}
        if self.kind.startswith("eos_error"):
            code = self.kind.partition(":")[2] or "internal"
            value = {"error": {"code": code, "message": f"{code} for a test"}}
        if self.kind != "no_eos":
            await self.write(self.envelope(value, END))
        if self.kind == "bytes_after_eos":
            await self.write(self.envelope({"event": {"keepalive": {}}}))
        await self.response.write_eof()

    async def run(self, work):
        """`work(stream)` sends the events; every ending is dealt with here."""
        s = self.call.sandbox
        s.streams.add(self)
        task = asyncio.ensure_future(work(self))
        try:
            await asyncio.wait({task, self.lost}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                try:
                    task.result()
                    return self.response if self.response is not None else Done()
                except RpcError as e:
                    if self.response is None:
                        await self.begin()
                    await self.end(e)
                    return self.response
            if not self.is_over:
                self.is_over = True
                if self.world.options.lost == "frame" and self.response is not None:
                    await self.response.write(self.unavailable())
                    await self.response.write_eof()
                    return self.response
                reset(self.request.transport)
            return Done()
        except (Lost, ConnectionError, BoxError):
            self.call.status = self.call.status or 200
            return self.response if self.is_whole else Done()
        finally:
            self.is_over = True
            s.streams.discard(self)
            for t in (task, getattr(self, "beat", None)):
                if t is not None and not t.done():
                    t.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if not self.lost.done():
                self.lost.cancel()
