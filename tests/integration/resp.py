"""Redis as a test looks at it from outside: commands of bytes, text or numbers, whole replies."""
import socket


class ReplyError(Exception):
    pass


def _bytes(word):
    return word if isinstance(word, bytes) else str(word).encode()


class Client:
    """One connection, to a port or a Unix socket's path."""

    def __init__(self, where, timeout=30):
        self.sock = socket.socket(socket.AF_UNIX if isinstance(where, str) else socket.AF_INET)
        self.sock.settimeout(timeout)
        self.sock.connect(where if isinstance(where, str) else ("127.0.0.1", where))
        self.file = self.sock.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.file.close()
        self.sock.close()

    def _send(self, words):
        words = [_bytes(w) for w in words]
        self.sock.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))

    def _read(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("Redis closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            return ReplyError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            n = int(rest)
            return None if n < 0 else self.file.read(n + 2)[:-2]
        return None if int(rest) < 0 else [self._read() for _ in range(int(rest))]

    def __call__(self, *words):
        self._send(words)
        reply = self._read()
        if isinstance(reply, ReplyError):
            raise reply
        return reply

    def pipeline(self, commands):
        for words in commands:
            self._send(words)
        return [self._read() for _ in commands]

    def keys(self, pattern):
        cursor, found = b"0", set()
        while True:
            cursor, page = self("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
            found.update(page)
            if cursor == b"0":
                return sorted(k.decode() for k in found)
