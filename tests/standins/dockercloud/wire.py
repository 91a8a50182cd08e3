"""How the two APIs write things down: refusals and their statuses, durations, times, JSON without duplicate keys, envelopes of a Connect stream."""
import base64
import binascii
import datetime
import json
import re
import struct

STATUS_REST = {"invalidArgument": 400, "outOfRange": 400, "unauthenticated": 401, "permissionDenied": 403, "notFound": 404, "alreadyExists": 409,
               "failedPrecondition": 409, "aborted": 409, "resourceExhausted": 429, "canceled": 499, "unimplemented": 501, "unavailable": 503,
               "deadlineExceeded": 504, "internal": 500, "unknown": 500, "dataLoss": 500}
STATUS_CONNECT = {**STATUS_REST, "failedPrecondition": 400}
NUMBERS = {"canceled": 1, "unknown": 2, "invalidArgument": 3, "deadlineExceeded": 4, "notFound": 5, "alreadyExists": 6, "permissionDenied": 7,
           "resourceExhausted": 8, "failedPrecondition": 9, "aborted": 10, "outOfRange": 11, "unimplemented": 12, "internal": 13, "unavailable": 14,
           "dataLoss": 15, "unauthenticated": 16}
DURATION = re.compile(r"(\d{1,12})(?:\.(\d{1,9}))?s")
FLAG_COMPRESSED, FLAG_END = 1, 2
FRAME_MAX = 16 << 20


class Refusal(Exception):
    """An answer that says no. `code` is the REST API's spelling; each API writes it its own way."""

    def __init__(self, code: str, message: str, *details: dict, status: int | None = None, headers: dict | None = None):
        super().__init__(message)
        self.code, self.message, self.details, self.status, self.headers = code, message, details, status, headers or {}

    def body(self, is_connect: bool) -> dict:
        body = {"code": snake(self.code) if is_connect else self.code, "message": self.message}
        if self.details:
            body["details"] = [_as_any(d) for d in self.details] if is_connect else list(self.details)
        return body

    def http_status(self, is_connect: bool) -> int:
        return self.status or (STATUS_CONNECT if is_connect else STATUS_REST).get(self.code, 500)


def snake(code: str) -> str:
    return re.sub(r"[A-Z]", lambda m: "_" + m[0].lower(), code)


def camel(code: str) -> str:
    head, *rest = code.split("_")
    return head + "".join(w.capitalize() for w in rest)


# The fields of the details that are sent, in the order of their numbers from 1.
DETAIL_FIELDS = {"google.rpc.ErrorInfo": ("reason", "domain"), "google.rpc.BadRequest": ("fieldViolations",), "google.rpc.QuotaFailure": ("violations",),
                 "google.rpc.RetryInfo": ("retryDelay",), "docker.sandboxes.v1.EtagMismatch": ("currentEtag",), "fieldViolations": ("field", "description"),
                 "violations": ("subject", "description")}


def _proto(kind: str, fields: dict) -> bytes:
    """A message of strings, messages and durations as protobuf."""
    out = b""
    for number, name in enumerate(DETAIL_FIELDS[kind], 1):
        value = fields.get(name)
        for one in value if isinstance(value, list) else [value] if value else ():
            if isinstance(one, dict):
                data = _proto(name, one)
            elif name == "retryDelay":
                seconds = duration_seconds(one) or 0.0
                data = b"\x08" + _varint(int(seconds)) + b"\x10" + _varint(int(seconds % 1 * 1e9))
            else:
                data = one.encode()
            out += bytes([number << 3 | 2]) + _varint(len(data)) + data
    return out


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def _as_any(detail: dict) -> dict:
    """Connect writes a detail as its type and its bytes (base64 without padding), with a readable copy beside."""
    kind, fields = detail["@type"].rpartition("/")[2], {k: v for k, v in detail.items() if k != "@type"}
    return {"type": kind, "value": base64_write(_proto(kind, fields)).rstrip("="), "debug": fields}


def error_info(reason: str, domain: str = "sandboxes.docker.com") -> dict:
    return {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": domain}


def bad_request(field: str, description: str) -> dict:
    return {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [{"field": field, "description": description}]}


def quota_failure(description: str) -> dict:
    return {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"subject": "account", "description": description}]}


def retry_info(seconds: float) -> dict:
    return {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": duration_text(seconds)}


def etag_mismatch(current: str) -> dict:
    return {"@type": "type.googleapis.com/docker.sandboxes.v1.EtagMismatch", "currentEtag": current}


def duration_seconds(text) -> float | None:
    m = DURATION.fullmatch(text) if isinstance(text, str) else None
    return None if m is None else int(m[1]) + int((m[2] or "0").ljust(9, "0")) / 1e9


def duration_text(seconds: float) -> str:
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


def time_text(at: float) -> str:
    whole = datetime.datetime.fromtimestamp(int(at), datetime.timezone.utc)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{int(at % 1 * 1e6):06d}Z"


def whole_number(value) -> int | None:
    """A 64-bit integer comes in as a number or as decimal text."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,19}", value):
        return int(value)
    return None


def _no_duplicates(pairs):
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a field stands twice")
    return fields


def _no_constant(name):
    raise ValueError(f"{name} is no JSON")


def json_read(data: bytes) -> dict:
    """The object in `data`; a Refusal for anything else."""
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except (ValueError, RecursionError) as wrong:
        raise Refusal("invalidArgument", f"the body is no JSON: {wrong}") from None
    if not isinstance(value, dict):
        raise Refusal("invalidArgument", "the body is no JSON object")
    return value


def json_write(value) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def base64_read(text) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise Refusal("invalidArgument", "bytes that are no base64") from None


def base64_write(data: bytes) -> str:
    return base64.b64encode(data).decode()


def frame(value, flag: int = 0) -> bytes:
    data = value if isinstance(value, bytes) else json_write(value)
    return struct.pack(">BI", flag, len(data)) + data


def frames_read(data: bytes) -> list[dict]:
    """The messages of a request stream; a client's stream has no end frame, so a flag is a refusal."""
    messages, at = [], 0
    while at < len(data):
        if len(data) - at < 5:
            raise Refusal("invalidArgument", "a frame's head is cut")
        flag, size = struct.unpack_from(">BI", data, at)
        if flag:
            raise Refusal("invalidArgument", f"a request frame with flag {flag}")
        if size > FRAME_MAX:
            raise Refusal("resourceExhausted", f"a frame of {size} bytes")
        if len(data) - at - 5 < size:
            raise Refusal("invalidArgument", "a frame is cut")
        messages.append(json_read(data[at + 5:at + 5 + size]))
        at += 5 + size
    return messages
