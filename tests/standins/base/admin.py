"""The admin's routes of a stand-in, below /__standin/: for tests, with a bearer token of their own.

    GET info · GET|PUT|POST|DELETE faults · GET journal?since=N&sandbox=ID · GET account (or ledger) · GET marks · GET leaks · GET|DELETE violations
    GET|POST clock {"advance_ms", "ttl_speed"} · POST reset

Served by the stand-in's own HTTP server through `handle`, or on a port of its own by `listen`.
"""
import asyncio
import hmac
import json

from .faults import BadRule

PREFIX = "/__standin/"
BODY_MAX = 4 * 1024 * 1024
HEAD_MAX = 16 * 1024


class Admin:
    def __init__(self, token, account, faults, info, reset=None, moved=None):
        """info() -> dict; reset() is awaited and ends every sandbox; moved() is called when the clock was moved."""
        self.token, self.account, self.faults = token, account, faults
        self.info, self.on_reset, self.on_moved = info, reset, moved

    def is_admin(self, authorization):
        return hmac.compare_digest((authorization or "").encode(), f"Bearer {self.token}".encode())

    async def handle(self, method, path, query, body, authorization):
        """(status, JSON bytes)."""
        if not self.is_admin(authorization):
            return 401, b'{"error":"the admin\'s token is wanted"}'
        try:
            value = json.loads(body) if body else None
            answer = await self._route(method, path[len(PREFIX):], query, value)
        except (BadRule, ValueError, KeyError, TypeError) as e:
            return 400, json.dumps({"error": f"{type(e).__name__}: {e}"}).encode()
        return (404, b'{"error":"no such route"}') if answer is None else (200, json.dumps(answer).encode())

    async def _route(self, method, name, query, value):
        a = self.account
        if name == "info" and method == "GET":
            return self.info()
        if name == "faults":
            {"GET": lambda: None, "PUT": lambda: self.faults.load(value), "POST": lambda: self.faults.add(value if isinstance(value, list) else [value]),
             "DELETE": self.faults.clear}[method]()
            return self.faults.as_json()
        if name == "journal" and method == "GET":
            since, sandbox = int(query.get("since", 0)), query.get("sandbox")
            return [line for line in a.journal if line["n"] > since and (sandbox is None or line.get("sandbox") == sandbox)]
        if name in ("account", "ledger") and method == "GET":
            return a.as_json()
        if name == "marks" and method == "GET":
            return a.marks
        if name == "leaks" and method == "GET":
            return a.leaks()
        if name == "violations":
            if method == "DELETE":
                a.violations.clear()
            return a.violations
        if name == "clock":
            if method == "POST":
                a.clock.offset_ms += int(value.get("advance_ms", 0))
                a.clock.ttl_speed = float(value.get("ttl_speed", a.clock.ttl_speed))
                if self.on_moved:
                    await self.on_moved()
            return {"now_ms": a.clock.now(), "wall_ms": a.clock.wall(), "offset_ms": a.clock.offset_ms, "ttl_speed": a.clock.ttl_speed}
        if name == "reset" and method == "POST":
            if self.on_reset:
                await self.on_reset()
            self.faults.clear()
            a.reset()
            return {"reset": True}
        return None

    # -- a port of its own --

    async def listen(self, host="127.0.0.1", port=0):
        """The port: a small HTTP/1.1 server, one request a connection."""
        self.server = await asyncio.start_server(self._serve, host, port, limit=HEAD_MAX)
        return self.server.sockets[0].getsockname()[1]

    async def _serve(self, reader, writer):
        try:
            head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).decode("latin-1")
            first, *lines = head.split("\r\n")
            method, target, _ = first.split(" ", 2)
            headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines if line)}
            length = int(headers.get("content-length", 0))
            body = await asyncio.wait_for(reader.readexactly(length), 10) if 0 < length <= BODY_MAX else b""
            path, _, query = target.partition("?")
            pairs = dict(p.partition("=")[::2] for p in query.split("&") if p)
            status, data = (404, b"{}") if not path.startswith(PREFIX) else await self.handle(method, path, pairs, body, headers.get("authorization"))
            writer.write(f"HTTP/1.1 {status} Answer\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data)
            await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.TimeoutError, ValueError, ConnectionError):
            pass
        finally:
            writer.close()
