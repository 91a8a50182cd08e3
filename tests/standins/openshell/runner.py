"""The gateway's in-guest runner as a canned one: it keeps to the frames, runs nothing and answers from a table.

Written from the frames' description, for load tests; in a box the real runner runs.
"""
import hashlib
import hmac
import struct

MAGIC = b"\xf5SB1"
PAYLOAD_MAX = 4048
PROJECT = 1


class BadFrames(ValueError):
    pass


class Runner:
    """feed(bytes) -> bytes to answer; `is_done` after FINAL."""

    def __init__(self, answers, artifact=b"canned\n"):
        self.answers, self.artifact = answers, artifact
        self.buffer = b""
        self.hello = self.job = None
        self.number = 0
        self.digest = hashlib.sha256()
        self.is_done = False

    def frame(self, kind, payload):
        head = MAGIC + kind + b"\0" + struct.pack(">II", self.number, len(payload))
        self.number += 1
        if kind != b"X":
            self.digest.update(payload)
        return head + payload + hmac.new(self.to_gateway, head + payload, hashlib.sha256).digest()[:16]

    def feed(self, data):
        self.buffer += data
        out = b""
        while not self.is_done and len(self.buffer) >= 14:
            kind, size = self.buffer[4:5], struct.unpack(">I", self.buffer[10:14])[0]
            if self.buffer[:4] != MAGIC or size > PAYLOAD_MAX:
                raise BadFrames("no frame where one is due")
            is_hello = kind == b"H"
            end = 14 + size + (0 if is_hello else 16)
            if len(self.buffer) < end:
                break
            whole, self.buffer = self.buffer[:end], self.buffer[end:]
            out += self.take(kind, whole[14:14 + size], whole)
        return out

    def take(self, kind, payload, whole):
        if kind == b"H":
            self.key = payload[7:39]
            self.to_runner = hmac.new(self.key, b"h2r", hashlib.sha256).digest()
            self.to_gateway = hmac.new(self.key, b"r2h", hashlib.sha256).digest()
            self.hello = bytearray(payload)
        else:
            tag = hmac.new(self.to_runner, whole[:-16], hashlib.sha256).digest()[:16]
            if not hmac.compare_digest(tag, whole[-16:]):
                raise BadFrames("a wrong tag")
            if kind == b"h":
                self.hello += payload
            elif kind == b"J":
                self.job = bytearray(payload)
            elif kind == b"j":
                self.job += payload
            else:
                raise BadFrames(f"frame {kind!r}")
        if kind in b"Hh" and self.is_whole(self.hello):
            return self.frame(b"R", self.hello[4:6] + b"\0" + struct.pack(">H", 3))
        if kind in b"Jj" and self.is_whole(self.job):
            return self.work(bytes(self.job[4:]))
        return b""

    @staticmethod
    def is_whole(message):
        return len(message) - 4 >= struct.unpack(">I", message[:4])[0]

    def work(self, body):
        kind, timeout, stream_max, output_max, artifacts_max, size = struct.unpack(">BIIIII", body[:21])
        at = 21
        code, at = body[at:at + size], at + size

        def list_of(width):
            nonlocal at
            count, = struct.unpack(">H", body[at:at + 2])
            at += 2
            for _ in range(count):
                size, = struct.unpack(">H" if width == 2 else ">I", body[at:at + width])
                at += width + size
                yield body[at - size:at]
        files, = struct.unpack(">H", body[at:at + 2])
        at += 2
        for _ in range(files):
            for width in (2, 4):
                size, = struct.unpack(">H" if width == 2 else ">I", body[at:at + width])
                at += width + size
        steps = list(list_of(4)) if kind == PROJECT else []
        if kind != PROJECT:
            list(list_of(4))
        artifacts = list(list_of(2))
        out = self.frame(b"A", hashlib.sha256(body).digest())
        begun = 0
        for number, line in enumerate(steps or [code]):
            begun += 1
            answer = self.answers(line.decode("utf-8", "replace"))
            kept = []
            for which, text in ((b"O", answer.get("stdout", "")), (b"E", answer.get("stderr", ""))):
                data = text.encode()
                for i in range(0, len(data), PAYLOAD_MAX - 1):
                    out += self.frame(which, bytes([number]) + data[i:i + PAYLOAD_MAX - 1])
                kept.append(len(data))
            out += self.frame(b"T", struct.pack(">BBiBIIQQQ", number, 0, answer.get("exit", 0), 0, *kept, *kept, 1000))
            if answer.get("exit", 0):
                break
        else:
            for number, _ in enumerate(artifacts):
                out += self.frame(b"F", struct.pack(">HI", number, len(self.artifact))) + self.frame(b"f", self.artifact)
        sent = len(artifacts) if not answer.get("exit", 0) else 0
        self.is_done = True
        return out + self.frame(b"X", struct.pack(">BBHH", 0, 0, begun, sent) + self.digest.digest())
