"""Answers, and what faults do to their bytes."""
import asyncio
import contextlib
import json
import socket
import struct

from aiohttp import web

HOW = ("rst", "fin", "hang")
REASONS = {200: "OK", 201: "Created", 204: "No Content", 206: "Partial Content"}
SPLIT_PAUSES_MAX = 2000


class Answer(Exception):
    """A status, headers and all of a body. May be raised."""

    def __init__(self, status, body=b"", headers=(), content_type="application/json; charset=utf-8"):
        super().__init__(status)
        self.status, self.body = status, body if isinstance(body, bytes) else json.dumps(body).encode()
        self.headers = dict(headers)
        if self.body or status not in (204, 304):
            self.headers.setdefault("Content-Type", content_type)

    def raw(self):
        lines = [f"HTTP/1.1 {self.status} {REASONS.get(self.status, 'Answer')}"] + [f"{k}: {v}" for k, v in self.headers.items()]
        if self.status not in (204, 304):
            lines.append(f"Content-Length: {len(self.body)}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace"), self.body


def error(status, message, error_code=None):
    """An error of the control plane."""
    return Answer(status, {"code": status, "message": message, **({"error_code": error_code} if error_code else {})})


def text(status, body, content_type="text/plain; charset=utf-8"):
    return Answer(status, body.encode(), content_type=content_type)


def reset(transport):
    """Ends a connection with an RST."""
    if transport is None:
        return
    sock = transport.get_extra_info("socket")
    with contextlib.suppress(OSError, AttributeError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


class Done(web.Response):
    """For aiohttp: the answer was written, or never will be."""

    def __init__(self):
        super().__init__()
        self.force_close()

    async def prepare(self, request):
        return None

    async def write_eof(self, data=b""):
        return None


async def drop(transport, how):
    """hang: silence until the client goes, or the program."""
    if how == "hang":
        while transport is not None and not transport.is_closing():
            await asyncio.sleep(0.05)
    elif how == "fin":
        transport.close()
    else:
        reset(transport)


async def send_raw(request, answer, rule):
    """Writes the answer by hand as a rule of phase `body` says; the connection ends with it unless it was only split."""
    transport = request.transport
    if transport is None:
        return Done()
    head, body = answer.raw()
    data = head + body
    if rule.type == "drop":
        keep = rule.get("after_bytes", 0)
        transport.write(data[:keep])
        await drop(transport, rule.get("how", "rst"))
    elif rule.type == "truncate":
        transport.write(head + body[:rule.get("keep_bytes", len(body) // 2)])
        transport.close()
    elif rule.type == "split":
        size = max(1, rule.get("bytes", 1))
        for at in range(0, len(data), size):
            transport.write(data[at:at + size])
            await asyncio.sleep(0.0005 if at // size < SPLIT_PAUSES_MAX else 0)
        transport.close()
    elif rule.type == "stall":
        keep = rule.get("after_bytes", len(head) + len(body) // 2)
        transport.write(data[:keep])
        if rule.get("ms", -1) < 0:
            await drop(transport, "hang")
        else:
            await asyncio.sleep(rule.get("ms") / 1000)
            transport.write(data[keep:])
            transport.close()
    return Done()
