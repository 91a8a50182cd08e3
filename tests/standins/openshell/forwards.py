"""ForwardTcp: a connection into a sandbox's loopback, with the gateway's rules on tokens."""
import asyncio
import contextlib

from ..base import account as books
from ..base.box import BoxError
from . import schema
from .calls import Refuse
from .execs import ended_all
from .schema import api

SANDBOX_LIVE_MAX = 20
CHUNK_MAX = 32 * 1024
LOOPBACK = ("127.0.0.1", "::1", "localhost")
# runs in the box, whose loopback is its own
PUMP = """
const s = require("net").connect({port: +process.argv[2], host: process.argv[1], allowHalfOpen: true});
s.on("error", () => process.exit(1));
process.stdin.pipe(s).pipe(process.stdout);
"""


async def serve(gateway, call, first):
    if first.WhichOneof("payload") != "init":
        call.breach("a forward that does not begin with init", got=first.WhichOneof("payload"))
        raise Refuse("INVALID_ARGUMENT", "first frame must be init")
    init = first.init
    sandbox = gateway.ready(call, None, init.sandbox, plain=init.workspace)
    if init.WhichOneof("target") != "tcp":
        raise Refuse("UNIMPLEMENTED", "the stand-in has no ssh")
    if init.tcp.host not in LOOPBACK or not 1 <= init.tcp.port <= 65535:
        gateway.invalid(call, "target must be loopback", "target")
    call.line["token"] = books.mask(init.authorization_token)
    token = gateway.tokens.get(init.authorization_token)
    if token is None or token.is_revoked or token.sandbox is not sandbox or token.expires_ms <= gateway.account.clock.wall():
        raise Refuse("UNAUTHENTICATED", "invalid ssh session token")
    if token.live >= token.live_max or sandbox.forwards >= SANDBOX_LIVE_MAX:
        raise Refuse("RESOURCE_EXHAUSTED", "too many connections")
    line = {"sandbox": sandbox.name, "port": init.tcp.port, "in_bytes": 0, "out_bytes": 0, "ms": gateway.account.clock.now(), "request": call.line["n"], "how": None}
    gateway.forwards.append(line)
    token.live += 1
    sandbox.forwards += 1
    is_counted = True

    def free():
        nonlocal is_counted
        if is_counted:
            is_counted = False
            token.live -= 1
            sandbox.forwards -= 1
    try:
        async def given():
            while (data := await call.receive()) is not None:
                try:
                    frame, _ = schema.decode(api.TcpForwardFrame, data)
                except schema.Strange as e:
                    call.breach("the request", error=str(e))
                    raise Refuse("INVALID_ARGUMENT", str(e)) from None
                if frame.WhichOneof("payload") != "data":
                    call.breach("a frame that is not data", got=frame.WhichOneof("payload"))
                    raise Refuse("INVALID_ARGUMENT", "unexpected frame")
                if len(frame.data) > CHUNK_MAX:
                    call.breach("a forwarded chunk over 32 KiB", size=len(frame.data))
                line["in_bytes"] += len(frame.data)
                if frame.data:
                    yield frame.data
            free()          # a stream is counted until its half-close

        async def show(data):
            line["out_bytes"] += len(data)
            await call.send(api.TcpForwardFrame(data=data).SerializeToString())
        rule = call.rule
        what = rule.get("what") if rule is not None and rule.type == "forward" else None
        if what == "silent":
            await asyncio.Event().wait()
        if what == "refused":
            raise Refuse("UNAVAILABLE", "connection refused")
        if sandbox.box is None:
            await canned(sandbox, given(), show)
        else:
            await in_box(sandbox.box, init.tcp, given(), show)
        line["how"] = "over"
        if what == "fails-at-end":
            raise Refuse("INTERNAL", "injected")
        await call.finish()
    finally:
        line["how"] = line["how"] or "broken off"
        free()


async def canned(sandbox, given, show):
    """What the other side sends comes back; or, when the admin has left one, a guest's request goes out and the answer is kept."""
    asks = sandbox.__dict__.setdefault("asks", [])
    if not asks:
        async for data in given:
            await show(data)
        return
    ask = asks.pop(0)
    await show(ask["request"].encode("latin-1"))
    said = b""
    async for data in given:
        said += data
        ask["answer"] = said.decode("latin-1")
        if ask.get("until") and ask["until"] in ask["answer"]:
            break


async def in_box(box, target, given, show):
    try:
        process = await box.spawn(["node", "-e", PUMP, target.host.replace("localhost", "127.0.0.1"), str(target.port)], cwd="/", user="user", stdin=True)
    except BoxError:
        raise Refuse("UNAVAILABLE", "relay dropped") from None

    async def give():
        async for data in given:
            await process.stdin.write(data)
        process.stdin.close()
    giving = asyncio.ensure_future(give())
    try:
        sent = False
        while data := await process.stdout.read(CHUNK_MAX):
            sent = True
            await show(data)
        ended = await process.wait()
        if ended.code != 0 and not sent:
            raise Refuse("UNAVAILABLE", "relay target refused the connection")
        if giving.done():
            giving.result()
    finally:
        await ended_all([giving])
        with contextlib.suppress(Exception):
            await asyncio.shield(process.kill())
        process.close()
