"""The one door: which route a request is for, which faults it meets, and how an answer leaves, whole or spoiled."""
import asyncio
import contextlib
import json
import random

from aiohttp import web

from .wire import Refusal, json_write, retry_info

BODY_MAX = 96 << 20
STALL_MAX = 600.0


class Answer:
    """What a handler wants to say. A stream is one whose length the client is not told."""
    __slots__ = ("status", "headers", "body", "is_stream", "kind")

    def __init__(self, status: int, body: bytes = b"", headers: dict | None = None, kind: str = "application/json", is_stream: bool = False):
        self.status, self.body, self.headers, self.kind, self.is_stream = status, body, headers or {}, kind, is_stream


def said(value, status: int = 200, **headers: str) -> Answer:
    return Answer(status, json_write(value), {k.replace("_", "-"): v for k, v in headers.items()})


class Call:
    """One request on its way: what it is for, and the knobs that its fault rules turn for it alone."""
    __slots__ = ("request", "world", "api", "step", "operation", "sandbox", "body", "turned", "fault_id", "note", "credential")

    def __init__(self, request: web.BaseRequest, world, api: str, step: str, operation: str, sandbox: str):
        self.request, self.world, self.api, self.step, self.operation, self.sandbox = request, world, api, step, operation, sandbox
        self.body = b""
        self.turned: dict = {}
        self.fault_id = None
        self.note: dict = {}
        self.credential = None  # of a request to a sandbox over REST

    def knob(self, name: str):
        """This request's own setting, else the service's; None for a knob that nobody turned."""
        return self.turned[name] if name in self.turned else self.world.knobs.get(name)

    def counted(self, name: str) -> bool:
        """A knob that is a number of times: takes one of them."""
        source = self.turned if name in self.turned else self.world.knobs
        left = source.get(name)
        if left is True:
            return True
        if not left:
            return False
        source[name] = left - 1
        return True

    @property
    def is_connect(self) -> bool:
        return self.api == "connect"

    def violation(self, what: str) -> None:
        self.world.account.violation(what, operation=self.operation, sandbox=self.sandbox)

    def bearer(self) -> str:
        """The token of the Authorization header; empty when there is none."""
        scheme, _, token = self.request.headers.get("Authorization", "").partition(" ")
        return token if scheme == "Bearer" else ""


def refused(call: Call, wrong: Refusal) -> Answer:
    message = wrong.message
    if call.knob("echo_secret"):
        message += f" (Authorization: {call.request.headers.get('Authorization', '')})"
        wrong = Refusal(wrong.code, message, *wrong.details, status=wrong.status, headers=wrong.headers)
    return Answer(wrong.http_status(call.is_connect), json_write(wrong.body(call.is_connect)), dict(wrong.headers))


def injected(call: Call) -> Answer | None:
    """The answer of a `status` rule: an error object, or a page when `html` is set."""
    status = call.turned.get("status")
    if status is None:
        return None
    headers = {}
    if (after := call.turned.get("retry_after")) is not None:
        headers["Retry-After"] = str(after)
    if call.turned.get("html"):
        return Answer(status, b"<html><body><h1>%d</h1>upstream said no</body></html>" % status, headers, kind="text/html")
    if "body" in call.turned:
        return Answer(status, call.turned["body"].encode("latin-1"), headers)
    code = call.turned.get("code") or {400: "invalidArgument", 401: "unauthenticated", 403: "permissionDenied", 404: "notFound", 409: "aborted",
                                       412: "failedPrecondition", 428: "failedPrecondition", 429: "resourceExhausted", 501: "unimplemented",
                                       503: "unavailable", 504: "deadlineExceeded"}.get(status, "internal")
    details = [retry_info(call.turned["retry_info"])] if call.turned.get("retry_info") else []
    return refused(call, Refusal(code, call.turned.get("message", "injected"), *details, status=status, headers=headers))


async def pause(call: Call) -> None:
    wait = call.knob("latency_ms") or 0
    if jitter := call.knob("latency_jitter_ms"):
        wait += random.uniform(0, jitter)
    if wait:
        await asyncio.sleep(wait / 1000)


def hang_up(request: web.BaseRequest) -> web.StreamResponse:
    """Closes the connection without a byte."""
    if request.transport:
        request.transport.abort()
    return web.Response(status=500)


async def send(call: Call, answer: Answer) -> web.StreamResponse:
    """The answer as it stands, or as the call's knobs spoil it on the way."""
    request, turned = call.request, call.turned
    if turned.get("duplicate_key") and answer.kind == "application/json" and answer.body[:1] == b"{":
        key = next(iter(json.loads(answer.body)), None)
        if key is not None:
            answer.body = b'{"%s":null,' % key.encode() + answer.body[1:]
    if (cut := turned.get("truncate_json")) and answer.kind == "application/json":
        answer.body = answer.body[:max(0, len(answer.body) - int(cut))]
    if turned.get("huge_answer"):
        return await _endless(request, answer, int(turned["huge_answer"]))
    stall, drop = turned.get("stall_after_bytes"), turned.get("drop_after_bytes")
    if stall is None and drop is None:
        if not answer.is_stream:
            return web.Response(status=answer.status, body=answer.body, headers=answer.headers, content_type=answer.kind if answer.status != 204 else None)
        response = _begin(answer)
        response.enable_chunked_encoding()
        with contextlib.suppress(ConnectionError):     # a client need not read to the end
            await response.prepare(request)
            await response.write(answer.body)
            await response.write_eof()
        return response
    response = _begin(answer)
    if answer.is_stream:
        response.enable_chunked_encoding()
    else:
        response.content_length = len(answer.body)
    await response.prepare(request)
    limit = stall if stall is not None else drop
    if limit:
        await response.write(answer.body[:limit])
    if stall is not None:
        await _until_left(request, (turned.get("stall_ms") or STALL_MAX * 1000) / 1000)
    if request.transport:
        request.transport.abort()
    return response


def _begin(answer: Answer) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    response.content_type = answer.kind
    return response


async def _until_left(request: web.BaseRequest, most: float) -> None:
    """Keeps the socket until the client goes."""
    loop = asyncio.get_running_loop()
    end = loop.time() + most
    while loop.time() < end and request.transport and not request.transport.is_closing():
        await asyncio.sleep(0.02)


async def _endless(request: web.BaseRequest, answer: Answer, size: int) -> web.StreamResponse:
    """A body of `size` bytes, whatever the answer was."""
    response = _begin(answer)
    response.enable_chunked_encoding()
    try:
        await response.prepare(request)
        await response.write(answer.body[:-1] if answer.body[-1:] == b"}" else answer.body)
        block = b" " * 65536
        for _ in range(size // len(block)):
            await response.write(block)
        await response.write_eof()
    except (ConnectionError, asyncio.CancelledError):
        pass
    return response
