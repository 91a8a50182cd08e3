"""Protobuf at the level of its bytes: what generated classes do not let one do, such as keeping a message just as it came."""


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def fields(data):
    """(number, whole field's bytes, payload or None) of each field of a message that has been decoded before."""
    at, found = 0, []
    while at < len(data):
        begin = at
        key, at = read_varint(data, at)
        kind, payload = key & 7, None
        if kind == 0:
            _, at = read_varint(data, at)
        elif kind == 2:
            size, at = read_varint(data, at)
            payload = data[at:at + size]
            at += size
        else:
            at += 8 if kind == 1 else 4
        found.append((key >> 3, data[begin:at], payload))
    return found


def field_bytes(data, number):
    """The payload of the message field `number`, pieces joined as protobuf merges them; None when there is none."""
    pieces = [payload for n, _, payload in fields(data) if n == number]
    return b"".join(pieces) if pieces else None


def message_field(number, payload):
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def turned_struct(data):
    """A google.protobuf.Struct with the entries of every map in the other order."""
    out = []
    for number, whole, entry in fields(data):
        parts = []
        for n, raw, payload in fields(entry):
            if n == 2:
                value = b"".join(message_field(5, turned_struct(p)) if k == 5 else r for k, r, p in fields(payload))
                raw = message_field(2, value)
            parts.append(raw)
        out.append(message_field(number, b"".join(parts)))
    return b"".join(reversed(out))


def turned_spec(data):
    """A SandboxSpec whose template's two Structs are turned."""
    out = b""
    for number, whole, payload in fields(data):
        if number == 6:
            whole = message_field(6, b"".join(message_field(n, turned_struct(p)) if n in (7, 11) else raw for n, raw, p in fields(payload)))
        out += whole
    return out
