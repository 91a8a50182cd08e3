"""One gRPC call on one stream: its framing, how the client keeps to it, how it ends, and what a scripted fault does to it on the way."""
import asyncio
import base64
import collections
import re
import urllib.parse
import uuid

from . import schema

MESSAGE_MAX = 1 << 20           # of a request
HELD_MAX = 256 * 1024           # bytes of whole messages nobody has asked for, before the client gets no more window
STDIN_MAX = 64 * 1024
NAMES = ("OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED RESOURCE_EXHAUSTED FAILED_PRECONDITION "
         "ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED").split()
CODES = {name: code for code, name in enumerate(NAMES)}
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, REFUSED_STREAM, CANCEL = 0, 1, 2, 7, 8
TIMEOUT = re.compile(rb"[0-9]{1,8}[HMSmun]\Z")
PSEUDO = (b":method", b":scheme", b":path", b":authority")
FORBIDDEN = (b"connection", b"transfer-encoding", b"expect", b"grpc-encoding", b"upgrade", b"keep-alive", b"proxy-connection")


class Refuse(Exception):
    """The call ends with this status."""

    def __init__(self, code, text, reason=None, field=None, retry_s=None):
        super().__init__(text)
        self.code, self.text = CODES[code] if isinstance(code, str) else code, text
        self.reason, self.field, self.retry_s = reason, field, retry_s

    def details(self):
        return schema.status_details(self.code, self.text, self.reason, self.field, self.retry_s)


class Over(Exception):
    """The call has ended in a way of its own: there is nothing left to answer."""


def percent(text):
    return urllib.parse.quote(text, safe=" !\"#$&'()*+,-./:;<=>?@[]^_`{|}~").encode()


class Call:
    def __init__(self, connection, number, headers):
        self.connection, self.number, self.raw = connection, number, headers
        self.gateway = connection.gateway
        self.headers = dict(headers)
        self.buffer = bytearray()
        self.messages = collections.deque()
        self.waiter = self.task = self.method = None
        self.held = 0                   # bytes whose window the client has not got back
        self.has_ended = False          # the client's side
        self.is_reset = self.is_lost = self.is_over = self.is_headed = False
        self.is_stuck = False           # the client gets no more window
        self.is_deaf = False            # what the client sends is not looked at
        self.rule = self.flow = None    # the scripted fault of the call; the one of its way of writing
        self.delays = [0, 0]            # ms before the work and after it
        self.sent = self.sent_bytes = 0
        self.packed = bytearray()
        self.line = self.gateway.account.record("grpc", "?", self.headers.get(b":path", b"").decode("latin-1"), status=None, fault=None, sandbox=None,
                                                connection=connection.id, stream=number, messages=0, bytes=0, client_reset=None,
                                                half_closed=False)

    # -- what the client sends --

    def begin(self):
        self.check_headers()
        path = self.headers.get(b":path", b"").decode("latin-1")
        self.request_id = self.headers.get(b"x-request-id") or str(uuid.uuid4()).encode()
        self.line["request_id"] = self.request_id.decode("latin-1")
        self.line["timeout"] = self.headers.get(b"grpc-timeout", b"").decode("latin-1")
        self.method = self.gateway.methods.get(path)
        self.line["method"] = path.rpartition("/")[2]
        if self.method is None or self.method.streams_in:
            self.start()

    def start(self):
        self.task = self.connection.loop.create_task(self.run())

    def breach(self, what, **where):
        self.gateway.breach(what, method=self.line["method"], stream=self.number, sandbox=self.line["sandbox"], **where)

    def check_headers(self):
        names = [name for name, _ in self.raw]
        pseudo = [n for n in names if n.startswith(b":")]
        if names[:len(pseudo)] != pseudo:
            self.breach("a pseudo header after an ordinary one")
        if sorted(pseudo) != sorted(PSEUDO):
            self.breach("the pseudo headers", got=[n.decode("latin-1") for n in pseudo])
        if any(n != n.lower() for n in names):
            self.breach("a header name with capitals")
        repeated = [n for n, c in collections.Counter(names).items() if c > 1]
        if repeated:
            self.breach("a header twice", got=[n.decode("latin-1") for n in repeated])
        h = self.headers
        if h.get(b":method") != b"POST":
            self.breach("not a POST", got=h.get(b":method", b"").decode("latin-1"))
        if h.get(b":scheme") != (b"https" if self.gateway.is_tls else b"http"):
            self.breach("the scheme", got=h.get(b":scheme", b"").decode("latin-1"))
        if h.get(b"te") != b"trailers":
            self.breach("no te: trailers")
        if h.get(b"content-type", b"").split(b";")[0] not in (b"application/grpc", b"application/grpc+proto"):
            self.breach("the content type", got=h.get(b"content-type", b"").decode("latin-1"))
        for name in FORBIDDEN:
            if name in h:
                self.breach("a header that may not be sent", got=name.decode())
        if h.get(b"grpc-accept-encoding") not in (None, b"identity") and not self.is_of_grpcio():
            self.breach("an offer of compression")
        if b"content-length" in h:
            self.breach("a content-length")
        if b"grpc-timeout" in h and not TIMEOUT.match(h[b"grpc-timeout"]):
            self.breach("a malformed grpc-timeout")

    def is_of_grpcio(self):
        """grpcio cannot be told not to offer compression."""
        return self.headers.get(b"user-agent", b"").startswith(b"grpc-python/")

    def on_data(self, data, length):
        if self.is_over or self.is_deaf:
            if self.is_stuck and not self.is_over:
                self.held += length
            else:
                self.connection.acknowledge(self.number, length)
            return
        self.line["bytes"] += len(data)
        self.buffer += data
        while len(self.buffer) >= 5:
            flag, size = self.buffer[0], int.from_bytes(self.buffer[1:5], "big")
            if flag:
                self.breach("a compressed message", flag=flag)
                return self.refuse_now(Refuse("INTERNAL", "protocol error: received message with compressed-flag but no grpc-encoding was specified"))
            if size > MESSAGE_MAX:
                self.breach("a message over 1 MiB", size=size)
                return self.refuse_now(Refuse("OUT_OF_RANGE", f"Error, decoded message length too large: found {size} bytes, the limit is: {MESSAGE_MAX} bytes"))
            if len(self.buffer) < 5 + size:
                break
            self.messages.append(bytes(self.buffer[5:5 + size]))
            del self.buffer[:5 + size]
            self.line["messages"] += 1
        self.last_data = self.connection.loop.time()
        if self.is_stuck or sum(map(len, self.messages)) > HELD_MAX:
            self.held += length
        else:
            self.connection.acknowledge(self.number, length)
        self.wake()

    last_data = 0.0

    def refuse_now(self, refusal):
        self.is_deaf = True
        self.failure = refusal
        if self.task is None:
            self.start()
        self.wake()

    failure = None

    def on_end(self):
        self.has_ended = self.line["half_closed"] = True
        if self.buffer and not self.is_deaf:
            self.breach("a cut message", left=len(self.buffer))
            self.failure = Refuse("INTERNAL", "Unexpected EOF decoding stream.")
        if self.task is None:
            self.start()
        self.wake()
        if self.is_over:
            self.connection.forget(self)

    def on_reset(self, code):
        self.is_reset = True
        self.line["client_reset"] = code
        # of an answer that is none a client may say what it thinks
        if not self.is_over and code not in (CANCEL, NO_ERROR) and self.line["fault"] is None:
            self.breach("a reset with another code than CANCEL", code=code)
        self.stop()

    def lost(self):
        self.is_lost = True
        self.stop()

    def stop(self):
        if self.task is not None:
            self.task.cancel()
        elif not self.is_over:
            self.note(None)

    def wake(self):
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    async def receive(self):
        """The next message's bytes; None when the client has half-closed."""
        while True:
            if self.failure:
                raise self.failure
            if self.messages:
                message = self.messages.popleft()
                if self.held and not self.is_stuck and sum(map(len, self.messages)) <= HELD_MAX:
                    self.connection.acknowledge(self.number, self.held)
                    self.held = 0
                return message
            if self.has_ended:
                return None
            self.waiter = self.connection.loop.create_future()
            await self.waiter

    async def only(self):
        """The one message of a unary call."""
        message = await self.receive()
        if message is None:
            self.breach("a call without a message")
            raise Refuse("INTERNAL", "Missing request message.")
        if await self.receive() is not None:
            self.breach("two messages in a unary call")
            raise Refuse("INTERNAL", "Unexpected second message.")
        return message

    # -- what is answered --

    async def run(self):
        try:
            try:
                if self.failure:
                    raise self.failure
                if self.method is None:
                    raise Refuse("UNIMPLEMENTED", "")
                await self.gateway.serve(self)
            except Refuse as refusal:
                await self.finish(refusal.code, refusal.text, refusal.details())
            except Over:
                pass
        except (asyncio.CancelledError, ConnectionError):
            self.note(None)
        except Exception as e:      # noqa: BLE001
            self.gateway.breach("the stand-in failed", error=repr(e), method=self.line["method"])
            self.connection.reset_stream(self.number, INTERNAL_ERROR)
            self.connection.forget(self)
            self.note(None)
            raise

    def head(self):
        if not self.is_headed:
            self.is_headed = True
            self.connection.headers(self.number, [(b":status", b"200"), (b"content-type", b"application/grpc"), (b"x-request-id", self.request_id)])

    async def send(self, message, is_last=False):
        """One message's bytes."""
        frame = b"\0" + len(message).to_bytes(4, "big") + message
        rule = self.rule
        if rule is not None:
            frame = self.spoil(rule, frame, is_last)
        self.head()
        if self.flow is not None and self.flow.type == "pack":
            self.packed += frame
            if len(self.packed) < self.flow.get("bytes", 1 << 30):
                return
            frame, self.packed = bytes(self.packed), bytearray()
        if rule is not None and rule.get("at") == "inside" and self.sent + 1 == rule.get("message", self.sent + 1 if is_last else 1):
            await self.write(frame[:min(rule.get("byte", 7), len(frame) - 1)])
            await self.strike(rule)
        await self.write(frame)
        self.sent += 1
        if rule is not None and (rule.get("at") == "between" and self.sent == rule.get("message", 1) or rule.get("at") == "after-exit" and is_last):
            await self.flush_packed()
            await self.strike(rule)

    async def flush_packed(self):
        if self.packed:
            frame, self.packed = bytes(self.packed), bytearray()
            await self.write(frame)

    async def write(self, data, end=False):
        """Bytes of the answer's body, as the call's flow has it, cut where a fault says so."""
        rule, flow = self.rule, self.flow
        after = rule.get("after_bytes") if rule is not None else None
        strikes = after is not None and self.sent_bytes + len(data) > after
        if strikes:
            data = data[:after - self.sent_bytes]
        if data or end:
            kind = flow.type if flow is not None else None
            await self.connection.data(self.number, data, end, frame=flow.get("bytes", 1) if kind == "split" else 1024 if kind == "slow" else None,
                                       pad=flow.get("bytes", 16) if kind == "pad" else None, rate=flow.get("rate", 1024) if kind == "slow" else None)
            self.sent_bytes += len(data)
        if strikes:
            await self.strike(rule)

    def spoil(self, rule, frame, is_last):
        """The frame as `garbage` has it."""
        if rule.type != "garbage" or self.sent + 1 != rule.get("message", self.sent + 1 if is_last else 1):
            return frame
        what = rule.get("what")
        self.mark(rule)
        if what == "compressed":
            return b"\1" + frame[1:]
        if what == "long-prefix":
            return b"\0" + (len(frame) - 5 + 100).to_bytes(4, "big") + frame[5:]
        if what == "short-prefix":
            return b"\0" + max(len(frame) - 5 - 3, 0).to_bytes(4, "big") + frame[5:]
        if what == "huge-prefix":
            return b"\0\xff\xff\xff\xff" + frame[5:]
        if what == "truncated":
            cut = frame[5:-2] if len(frame) > 7 else b"\x0a"
            return b"\0" + len(cut).to_bytes(4, "big") + cut
        if what == "huge":
            return b"\0" + (5 << 20).to_bytes(4, "big") + bytes(5 << 20)
        if what == "twice":
            return frame + frame
        if what == "none":
            return b""
        return b"\0" + (8).to_bytes(4, "big") + b"\xff" * 8     # "bytes": no protobuf at all

    def mark(self, rule):
        self.line["fault"] = rule.id

    async def strike(self, rule):
        """What the fault does in the answer's place or in its middle; the call is over then."""
        self.mark(rule)
        kind, connection = rule.type, self.connection
        connection.flush()
        if kind == "rst":
            connection.reset_stream(self.number, rule.get("code", INTERNAL_ERROR))
        elif kind == "refuse-stream":
            connection.reset_stream(self.number, REFUSED_STREAM)
        elif kind == "close":
            self.note(None)
            if rule.get("how") == "fin":
                connection.flush()
                connection.transport.close()
            else:
                connection.reset()
            raise Over
        elif kind == "no-trailers":
            self.head()
            await connection.data(self.number, b"", True)
        elif kind == "bad-status":
            await self.end_badly(rule)
        elif kind == "goaway":
            connection.goaway(max(self.number - 2, 0), rule.get("code", 0))
        elif kind == "never":
            await asyncio.Event().wait()
        else:
            await self.finish(*self.status_of(rule))
            raise Over
        self.is_over = True
        self.note(None)
        connection.forget(self)
        raise Over

    def status_of(self, rule):
        code = rule.get("code", CODES["UNAVAILABLE"])
        code = CODES[code] if isinstance(code, str) else code
        text = rule.get("message_text", "injected")
        details = schema.status_details(code, text, rule.get("reason"), None, rule.get("retry_s")) if rule.get("details") or rule.get("reason") or rule.get("retry_s") is not None else b""
        return code, text, details

    async def end_badly(self, rule):
        """Ends that are no end of a gRPC call."""
        what, c = rule.get("what", "banana"), self.connection
        if self.is_headed and what in ("html", "http", "content-type"):
            # the head is out already: bytes that are no message, and no trailers
            await c.data(self.number, b"<html>" if what == "html" else b"", True)
        elif what == "html":
            c.headers(self.number, [(b":status", str(rule.get("status", 502)).encode()), (b"content-type", b"text/html")])
            await c.data(self.number, b"<html><body><h1>502 Bad Gateway</h1></body></html>", True)
        elif what == "http":
            c.headers(self.number, [(b":status", str(rule.get("status", 503)).encode())], True)
        elif what == "content-type":
            c.headers(self.number, [(b":status", b"200"), (b"content-type", b"text/plain")])
            await c.data(self.number, b"hello", True)
        else:
            value = {"banana": b"banana", "empty": b"", "negative": b"-1", "large": b"99999999999999999999", "seventeen": b"17", "plus": b"+0", "space": b" 0"}[what]
            if rule.get("headers_first") or self.is_headed:
                self.head()
                c.headers(self.number, [(b"grpc-status", value)], True)
            else:
                c.headers(self.number, [(b":status", b"200"), (b"content-type", b"application/grpc"), (b"grpc-status", value)], True)

    async def finish(self, code=0, text="", details=b""):
        """The trailers; trailers-only when nothing was sent."""
        if self.is_over:
            return
        await self.flush_packed()
        trailers = [(b"grpc-status", str(code).encode())]
        if text:
            trailers.append((b"grpc-message", percent(text)))
        if details:
            trailers.append((b"grpc-status-details-bin", base64.b64encode(details).rstrip(b"=")))
        rule = self.rule
        if rule is not None and rule.type == "status" and rule.get("after_headers"):
            self.head()
        if not self.is_headed:
            trailers = [(b":status", b"200"), (b"content-type", b"application/grpc"), (b"x-request-id", self.request_id)] + trailers
            self.is_headed = True
        self.is_over = True
        self.note(code)
        self.connection.headers(self.number, trailers, True)
        if not self.has_ended:
            # the rest of the request is not wanted
            self.connection.reset_stream(self.number, NO_ERROR)
            self.connection.forget(self)
        else:
            self.connection.forget(self)

    def note(self, code):
        self.is_over = True
        if self.line["status"] is None and code is not None:
            self.line["status"] = NAMES[code] if 0 <= code < len(NAMES) else code
        self.line["done_ms"] = self.gateway.account.clock.now()
