"""Writes the seeds of the spool's fuzz target: whole, torn, taken and corrupt files, and payloads. Computed here from the form in
records/spool_file.h alone."""
import hashlib
import pathlib
import struct

OUT = pathlib.Path(__file__).parent / "corpus/spool"


def check(data):
    return hashlib.sha256(data).digest()[:8]


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(n):
    out = b""
    while n >= 0x80:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])


def settlement(i, answer=b""):
    body = field(1, b"team-a") + field(5, b"%032x" % i) + field(6, 0) + field(8, field(1, 250)) + field(12, b"wasm")
    return body + field(18, 1790000000000) + field(19, 1790000000250) + (field(100, answer) if answer else b"")


def file(payloads, number=1, taken=()):
    out = b"plimsoll-spool-1" + struct.pack(">Q", number)
    out += check(out)
    for i, payload in enumerate(payloads):
        head = struct.pack(">IIQII", 0x50535231, len(payload), 1790000000000 + i, 5, 0) + check(payload)
        head_check = check(head + struct.pack(">QQ", number, len(out)))
        mark = bytes(b ^ 0xFF for b in head_check) if i in taken else bytes(8)
        out += head + head_check + mark + payload + bytes(-len(payload) % 8)
    return out


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    whole = file([settlement(1), b"", settlement(2, b"output")])
    flipped = bytearray(whole)
    flipped[90] ^= 1
    files = {"whole": whole, "taken": file([settlement(1), settlement(2)], taken=(0,)), "empty": file([]), "torn": whole[:-20],
             "torn-head": whole[:-140], "zeros": whole + bytes(100), "corrupt": bytes(flipped), "not-one": b"hello" * 20}
    for name, data in files.items():
        (OUT / f"file-{name}").write_bytes(b"\0" + data)
    (OUT / "payload-answered").write_bytes(b"\1" + settlement(3, b"output"))
    (OUT / "payload-unknown").write_bytes(b"\1" + field(1, b"c") + field(2, b"%032x" % 9) + field(5, b"%032x" % 4) + field(6, 2) + field(24, b"unavailable"))


if __name__ == "__main__":
    main()
