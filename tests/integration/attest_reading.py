"""A second reading of the attestation format, for the tests: keys, envelopes, statements, bundles and the log's tree, written from the
specification with `cryptography`, `hashlib` and the official client's digests alone. Nothing here is shared with the program under test.
"""
import base64
import collections
import hashlib
import json
import struct

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from plimsoll_client import _record
from plimsoll_client._wire import Msg

OURS = "urn:plimsoll-gateway:"
REFERENCE = "https://plimsollmark.github.io/plimsoll/"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"


def sha256(data):
    return hashlib.sha256(data).hexdigest()


# -- keys --


class Key:
    def __init__(self, private=None):
        self.private = private or Ed25519PrivateKey.generate()
        self.public = self.private.public_key()

    @classmethod
    def read(cls, path):
        return cls(serialization.load_pem_private_key(path.read_bytes(), None))

    @property
    def id(self):
        return key_id(self.public)

    def sign(self, data):
        return self.private.sign(data)

    def write(self, folder, name="other"):
        key, pub = folder / (name + ".key"), folder / (name + ".pub")
        key.write_bytes(self.private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                                   serialization.NoEncryption()))
        key.chmod(0o600)
        pub.write_bytes(self.public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo))
        return key, pub


def key_id(public):
    return sha256(public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo))


def read_public(path):
    return serialization.load_pem_public_key(path.read_bytes())


# -- canonical JSON --


def canonical(value):
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    for character, escape in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029")):
        text = text.replace(character, escape)
    return text.encode()


def read_once(data):
    def once(pairs):
        names = [n for n, _ in pairs]
        assert len(names) == len(set(names)), names
        return dict(pairs)
    return json.loads(data.decode(), object_pairs_hook=once)


# -- envelopes and statements --


def pae(payload):
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)


def envelope(key, payload):
    return {"payloadType": PAYLOAD_TYPE, "payload": base64.b64encode(payload).decode(),
            "signatures": [{"keyid": key.id, "sig": base64.b64encode(key.sign(pae(payload))).decode()}]}


def statement(prefix, subject, digest, kind, predicate):
    return canonical({"_type": STATEMENT_TYPE, "subject": [{"name": subject, "digest": {"sha256": digest}}],
                      "predicateType": prefix + kind + "/v1", "predicate": predicate})


PREDICATE = ["version", "request_sha256", "result_sha256", "provider", "isolation", "environment", "software_identity", "software_rule_id",
             "instance", "policy", "started_unix_ms", "ended_unix_ms", "session", "sequence", "previous_sha256", "unanswered",
             "record_sha256"]
OMITTED_WHEN_EMPTY = {"software_identity", "software_rule_id", "instance", "unanswered"}
NUMBERS = {"version", "started_unix_ms", "ended_unix_ms", "sequence"}


def camel(name):
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def record_predicate(record):
    """Of a RunRecord in JSON form."""
    out = {}
    for name in PREDICATE:
        value = record.get(camel(name), 0 if name in NUMBERS else "")
        if name in NUMBERS:
            value = int(value)
        if value != "" or name not in OMITTED_WHEN_EMPTY:
            out[name] = value
    return out


def record_statement(prefix, record):
    return statement(prefix, "run-record", record["recordSha256"], "run-record", record_predicate(record))


def close_statement(prefix, close):
    return statement(prefix, "session", close["session"], "session-close",
                     {"session": close["session"], "calls": int(close["calls"]), "last_record_sha256": close.get("lastRecordSha256", "")})


def open_envelope(env, public, alone=False):
    """Verifies one, and gives the statement."""
    assert list(env) == ["payloadType", "payload", "signatures"] and env["payloadType"] == PAYLOAD_TYPE
    payload = base64.b64decode(env["payload"], validate=True)
    assert base64.b64encode(payload).decode() == env["payload"]
    mine = [s for s in env["signatures"] if s["keyid"] in ("", key_id(public))]
    assert mine and (not alone or env["signatures"] == mine and len(mine) == 1 and mine[0]["keyid"])
    for s in mine:
        assert list(s) == ["keyid", "sig"]
        public.verify(base64.b64decode(s["sig"], validate=True), pae(payload))
    said = read_once(payload)
    assert list(said) == ["_type", "subject", "predicateType", "predicate"] and said["_type"] == STATEMENT_TYPE
    assert canonical(said) == payload
    [subject] = said["subject"]
    assert list(subject) == ["name", "digest"] and list(subject["digest"]) == ["sha256"]
    return said


# -- messages in binary protobuf: number, name, kind; a kind in capitals is a message, a star a list --

MESSAGES = {
    "RunRequest": "1 protocol int, 2 minimumIsolation str, 3 traceId str, 4 timeoutMs int, 5 softwareRule SoftwareRule, "
                  "10 javascript JavaScriptRun, 11 project ProjectRun, 12 module ModuleRun, 13 cell CellRun",
    "SoftwareRule": "1 mode str, 2 identities str*",
    "JavaScriptRun": "1 code str, 2 grantProfile str",
    "ProjectRun": "1 files File*, 2 steps str*, 4 artifacts str*, 5 grantProfile str",
    "File": "1 path str, 2 content str",
    "ModuleRun": "1 model str, 2 rows Row*, 3 endTime double, 4 step double",
    "Row": "1 values double*",
    "CellRun": "1 language str, 2 code str, 3 files File*",
    "RunResponse": "1 sandbox str, 2 isolation str, 3 durationMs int64, 4 record RunRecord, 5 softwareIdentity str, 6 environment str, "
                   "7 instance str, 10 javascript JavaScriptResult, 11 project ProjectResult, 12 module ModuleResult, 13 cell CellResult",
    "JavaScriptResult": "1 stdout bytes, 2 stderr bytes, 3 exitCode int, 4 timedOut bool, 8 stdoutTruncated bool, 9 stderrTruncated bool",
    "ProjectResult": "1 steps Step*, 3 outcome outcome, 4 artifacts Artifact*, 6 outcomeDetail str, 7 artifactsTruncated bool",
    "Step": "1 command str, 2 stdout bytes, 3 stderr bytes, 4 exitCode int, 5 timedOut bool, 6 durationMs int64, 7 stdoutTruncated bool, "
            "8 stderrTruncated bool",
    "Artifact": "1 path str, 2 content bytes",
    "ModuleResult": "1 runs RowResult*, 2 width int, 5 outcome outcome, 6 outcomeDetail str, 7 stdout bytes, 8 stderr bytes",
    "RowResult": "1 status int, 2 outputs double*",
    "CellResult": "1 stdout bytes, 2 stderr bytes, 3 exitCode int, 4 timedOut bool, 5 stdoutTruncated bool, 6 stderrTruncated bool, "
                  "7 interpreterStarted bool, 8 interpreterEnded bool",
    "RunRecord": "1 version int, 2 requestSha256 str, 3 resultSha256 str, 4 provider str, 5 isolation str, 6 environment str, 7 policy str, "
                 "8 startedUnixMs int64, 9 endedUnixMs int64, 10 session str, 11 sequence int64, 12 previousSha256 str, 13 recordSha256 str, "
                 "14 softwareIdentity str, 15 softwareRuleId str, 16 unanswered str, 17 instance str",
}
FIELDS = {m: [(int(n), name, kind) for n, name, kind in (f.split() for f in text.split(", "))] for m, text in MESSAGES.items()}
OUTCOMES = ["UNSPECIFIED", "COMPLETED", "SETUP_FAILED", "TIMED_OUT", "PROTOCOL_ERROR", "RUNNER_FAILED"]


def varint(n):
    n &= (1 << 64) - 1
    out = b""
    while n > 0x7f:
        out += bytes([n & 0x7f | 0x80])
        n >>= 7
    return out + bytes([n])


def number_of(value):
    return {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}.get(value, value)


def pack(message, value):
    """The binary form of a message in JSON form."""
    out = b""
    for number, name, kind in FIELDS[message]:
        if name not in value:
            continue
        items = value[name] if kind.endswith("*") else [value[name]]
        kind = kind.rstrip("*")
        if kind == "double":
            data = b"".join(struct.pack("<d", float(number_of(i))) for i in items)
            if isinstance(value[name], list):
                out += varint(number << 3 | 2) + varint(len(data)) + data if items else b""
            else:
                out += varint(number << 3 | 1) + data
            continue
        for item in items:
            if kind in ("int", "int64", "bool", "outcome"):
                if kind == "outcome" and isinstance(item, str):
                    item = OUTCOMES.index(item.removeprefix("PROJECT_OUTCOME_"))
                out += varint(number << 3) + varint(int(item))
                continue
            data = item.encode() if kind == "str" else base64.b64decode(item) if kind == "bytes" else pack(kind, item)
            out += varint(number << 3 | 2) + varint(len(data)) + data
    return out


def wire_fields(data):
    at = 0

    def number():
        nonlocal at
        n = shift = 0
        while True:
            b = data[at]
            at += 1
            n |= (b & 0x7f) << shift
            shift += 7
            if b < 0x80:
                return n
    while at < len(data):
        tag = number()
        if tag & 7 == 0:
            yield tag >> 3, number()
            continue
        size = 8 if tag & 7 == 1 else number()
        assert tag & 7 in (1, 2) and at + size <= len(data)
        yield tag >> 3, data[at:at + size]
        at += size


def unpack(message, data):
    """The JSON form of a message in binary form."""
    names = {number: (name, kind) for number, name, kind in FIELDS[message]}
    out = {}
    for number, value in wire_fields(data):
        name, kind = names[number]
        is_list, kind = kind.endswith("*"), kind.rstrip("*")
        if kind == "double":
            values = [d for (d,) in struct.iter_unpack("<d", value)]
            told = [("NaN" if d != d else "Infinity" if d == float("inf") else "-Infinity" if d == float("-inf") else d) for d in values]
            if is_list:
                out.setdefault(name, []).extend(told)
            else:
                out[name] = told[0]
            continue
        if kind in ("int", "int64"):
            value = value - (1 << 64) if value >= 1 << 63 else value
            value = str(value) if kind == "int64" else value
        elif kind == "bool":
            value = bool(value)
        elif kind == "outcome":
            value = "PROJECT_OUTCOME_" + OUTCOMES[value]
        else:
            value = value.decode() if kind == "str" else base64.b64encode(value).decode() if kind == "bytes" else unpack(kind, value)
        if is_list:
            out.setdefault(name, []).append(value)
        else:
            out[name] = value
    return out


# -- digests --


def value(b):
    return struct.pack(">Q", len(b)) + b


def record_digest(record):
    def text(name):
        return record.get(name, "")
    version = record["version"]
    names = ["requestSha256", "resultSha256"] + ["unanswered"] * (version >= 3) + ["provider", "isolation", "environment", "policy"] + \
        ["softwareIdentity", "softwareRuleId"] * (version >= 2) + ["instance"] * (version >= 4) + ["startedUnixMs", "endedUnixMs"] + \
        ["session", "sequence", "previousSha256"]
    h = hashlib.sha256(value(f"plimsoll.run-record.v{version}".encode()))
    for name in names:
        content = str(int(record.get(name, 0))) if name in ("startedUnixMs", "endedUnixMs", "sequence") else text(name)
        snake = "".join("_" + c.lower() if c.isupper() else c for c in name)
        h.update(value(snake.encode()) + value(content.encode()))
    return h.hexdigest()


request_digest = _record.request_digest


def result_digest(response):
    return _record.result_digest(Msg(response, "RunResponse"))


# -- bundles --


class Writer:
    """A bundle as any holder of the key could write it: nothing is checked."""

    def __init__(self, key, prefix=OURS):
        self.key, self.prefix, self.lines = key, prefix, []

    def _link(self, entry):
        previous = sha256(self.lines[-1]) if self.lines else ""
        predicate = {"index": len(self.lines) + 1, "previous_sha256": previous}
        if entry is None:
            predicate.update(checkpoint=True, lines=len(self.lines))
        else:
            predicate["entry_sha256"] = sha256(canonical(entry))
        subject = previous if entry is None else predicate["entry_sha256"]
        link = envelope(self.key, statement(self.prefix, "bundle-line", subject, "bundle-link", predicate))
        self.lines.append(canonical({**(entry or {}), "link": link}))
        return self

    def entry(self, request=None, response=None, payload=b""):
        entry = {}
        if request is not None:
            entry["request"] = base64.b64encode(pack("RunRequest", request)).decode()
        if response is not None:
            entry["response"] = base64.b64encode(pack("RunResponse", response)).decode()
        entry["envelope"] = envelope(self.key, payload)
        return self._link(entry)

    def call(self, request, response):
        return self.entry(request, response, record_statement(self.prefix, response["record"]))

    def unanswered(self, request, record):
        return self.entry(request, None, record_statement(self.prefix, record))

    def close(self, close):
        return self.entry(None, None, close_statement(self.prefix, close))

    def checkpoint(self):
        return self._link(None)

    def bytes(self):
        return b"".join(line + b"\n" for line in self.lines)


Read = collections.namedtuple("Read", "requests responses records closes checkpoints prefixes")


def verify(data, public):
    """Every rule of the specification's sections 5 and 6; an AssertionError or an invalid signature is a refusal."""
    assert data and data.endswith(b"\n")
    read = Read([], [], [], [], 0, set())
    chains, closed, checkpoints, previous = {}, set(), 0, ""
    lines = data[:-1].split(b"\n")
    for index, line in enumerate(lines, 1):
        assert len(line) < 64 * 1024 * 1024
        parsed = read_once(line)
        assert canonical(parsed) == line and list(parsed) in (
            ["request", "response", "envelope", "link"], ["request", "envelope", "link"], ["envelope", "link"], ["link"])
        said = open_envelope(parsed.pop("link"), public, alone=True)
        prefix = said["predicateType"].removesuffix("bundle-link/v1")
        assert prefix in (OURS, REFERENCE)
        read.prefixes.add(prefix)
        link = said["predicate"]
        entry_digest = sha256(canonical(parsed)) if parsed else None
        wanted = {"index": index, "previous_sha256": previous}
        wanted.update({"entry_sha256": entry_digest} if parsed else {"checkpoint": True, "lines": index - 1})
        assert link == wanted and said["subject"] == [
            {"name": "bundle-line", "digest": {"sha256": entry_digest if parsed else previous}}]
        previous = sha256(line)
        if not parsed:
            checkpoints += 1
        elif "request" in parsed:
            _verify_call(parsed, public, prefix, read, chains, closed)
        else:
            close = open_envelope(parsed["envelope"], public)
            assert close["predicateType"] == prefix + "session-close/v1" and close["subject"][0]["name"] == "session"
            said = close["predicate"]
            assert said["session"] not in closed and chains.get(said["session"], (0, "")) == (said["calls"], said["last_record_sha256"])
            closed.add(said["session"])
            read.closes.append(said)
    assert list(read_once(lines[-1])) == ["link"] and set(chains) <= closed
    return read._replace(checkpoints=checkpoints)


def _verify_call(parsed, public, prefix, read, chains, closed):
    said = open_envelope(parsed["envelope"], public)
    assert said["predicateType"] == prefix + "run-record/v1" and said["subject"][0]["name"] == "run-record"
    request = unpack("RunRequest", base64.b64decode(parsed["request"]))
    record = {camel(n): v for n, v in said["predicate"].items()}
    assert record["recordSha256"] == record_digest(record) == said["subject"][0]["digest"]["sha256"]
    assert record["requestSha256"] == request_digest(request) and record["version"] in (2, 3, 4)
    if "response" in parsed:
        response = unpack("RunResponse", base64.b64decode(parsed["response"]))
        assert record_predicate(response["record"]) == said["predicate"] and not record.get("unanswered")
        assert record["resultSha256"] == result_digest(response)
        assert (record["provider"], record["isolation"], record["environment"]) == (
            response["sandbox"], response["isolation"], response.get("environment", ""))
        read.responses.append(response)
    else:
        assert record["unanswered"] and record["session"] and not record["resultSha256"]
    if record["session"]:
        calls, last = chains.get(record["session"], (0, ""))
        assert record["session"] not in closed and (record["sequence"], record["previousSha256"]) == (calls + 1, last)
        chains[record["session"]] = (record["sequence"], record["recordSha256"])
    else:
        assert (record["sequence"], record["previousSha256"]) == (0, "")
    read.requests.append(request)
    read.records.append(record)


# -- the log's tree, RFC 6962 section 2.1 --


def mth(leaves):
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\0" + leaves[0]).digest()
    k = _split(len(leaves))
    return hashlib.sha256(b"\1" + mth(leaves[:k]) + mth(leaves[k:])).digest()


def _split(n):
    return 1 << (n - 1).bit_length() - 1


def inclusion(index, leaves):
    if len(leaves) == 1:
        return []
    k = _split(len(leaves))
    return inclusion(index, leaves[:k]) + [mth(leaves[k:])] if index < k else inclusion(index - k, leaves[k:]) + [mth(leaves[:k])]


def consistency(first, leaves, is_whole=True):
    if first == len(leaves):
        return [] if is_whole else [mth(leaves)]
    k = _split(len(leaves))
    if first <= k:
        return consistency(first, leaves[:k], is_whole) + [mth(leaves[k:])]
    return consistency(first - k, leaves[k:], False) + [mth(leaves[:k])]
