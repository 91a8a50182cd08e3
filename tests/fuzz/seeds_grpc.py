#!/usr/bin/env python3
"""Writes the seeds of fuzz_grpc: the size of the pieces less one, then what a server says after its SETTINGS to calls on streams 1, 3 and 5."""
import pathlib

OUT = pathlib.Path(__file__).parent / "corpus" / "grpc"


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def block(*pairs):
    """Literals without indexing and new names (RFC 7541, 6.2.2)."""
    return b"".join(b"\x00" + bytes([len(n)]) + n.encode() + bytes([len(v)]) + v.encode() for n, v in pairs)


HEAD = [(":status", "200"), ("content-type", "application/grpc+proto")]
DATA, HEADERS, RST, SETTINGS, PING, GOAWAY, WINDOW = 0, 1, 3, 4, 6, 7, 8


def message(data):
    return b"\0" + len(data).to_bytes(4, "big") + data


def answer(stream, data=b"yes", status="0"):
    return (frame(HEADERS, 4, stream, block(*HEAD)) + frame(DATA, 0, stream, message(data))
            + frame(HEADERS, 5, stream, block(("grpc-status", status), ("grpc-message", "a%20b"))))


SEEDS = {
    "answers": b"\xff" + answer(1) + answer(3) + answer(5),
    "bytes": b"\x00" + answer(1) + answer(5, b"", "7"),
    "only_trailers": b"\x20" + frame(HEADERS, 5, 1, block(*HEAD, ("grpc-status", "5"))),
    "resets": b"\x10" + b"".join(frame(RST, 0, s, c.to_bytes(4, "big")) for s, c in ((1, 7), (3, 8), (5, 0))),
    "goaway": b"\x10" + frame(GOAWAY, 0, 0, (1).to_bytes(4, "big") + bytes(4)) + answer(1),
    "ping": b"\x10" + frame(PING, 0, 0, b"12345678") + frame(WINDOW, 0, 0, (100).to_bytes(4, "big")) + answer(3),
    "padded": b"\x30" + frame(HEADERS, 4, 1, block(*HEAD)) + frame(DATA, 9, 1, b"\x04" + message(b"hi") + bytes(4)),
    "compressed": b"\x30" + frame(HEADERS, 4, 1, block(*HEAD)) + frame(DATA, 1, 1, b"\1\0\0\0\2hi"),
    "large": b"\x30" + frame(HEADERS, 4, 1, block(*HEAD)) + frame(DATA, 1, 1, b"\0\0\0\x20\0hi"),
    "interim": b"\x30" + frame(HEADERS, 4, 1, block((":status", "103"))) + answer(1),
    "settings": b"\x30" + frame(SETTINGS, 0, 0, b"\0\3\0\0\0\2\0\4\0\0\0\0") + answer(1),
}

if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    for name, data in SEEDS.items():
        (OUT / name).write_bytes(data)
