"""Writes the seeds of fuzz_attest_bundle, with the second reading of the format that the tests from outside use.

    build/venv/bin/python tests/fuzz/seeds_attest.py        from the root of the tree
"""
import json
import pathlib
import struct
import sys

sys.path.insert(0, "tests/integration")

import attest_reading as a  # noqa: E402
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: E402

OUT = pathlib.Path("tests/fuzz/corpus/attest_bundle")
# RFC 8410 section 10.3, which the target verifies with
KEY = a.Key(Ed25519PrivateKey.from_private_bytes(bytes.fromhex("d4ee72dbf913584ad5b6d8f1f769f8ad3afe7c28cbf1d4fbe097a88f44755842")))
VECTORS = json.loads(pathlib.Path("tests/vectors/protocol-vectors.json").read_text())["derived"]
EXCHANGE, CHAIN = VECTORS["exchanges"][0], VECTORS["session_chains"][0]
ZERO = "0" * 64


def put(name, kind, data):
    (OUT / name).write_bytes(bytes([kind]) + data)


def call_request(call):
    return {k: v for k, v in call["request"].items() if k != "sessionId"}


def bundle(prefix):
    w = a.Writer(KEY, prefix).call(EXCHANGE["request"], EXCHANGE["response"]).checkpoint()
    for call in CHAIN["calls"]:
        if "response" in call:
            w.call(call_request(call), call["response"]["run"])
        else:
            w.unanswered(call_request(call), call["record"])
    return w.close(CHAIN["close"]).checkpoint()


def piece(data):
    return struct.pack(">H", len(data)) + data


def link(**predicate):
    return a.statement(a.OURS, "bundle-line", ZERO, "bundle-link", predicate)


OUT.mkdir(parents=True, exist_ok=True)
ours = bundle(a.OURS)
put("bundle", 0, ours.bytes())
put("bundle-reference", 0, bundle(a.REFERENCE).bytes())
put("bundle-single", 0, b"".join(line + b"\n" for line in ours.lines[:2]))
put("line-call", 1, ours.lines[0])
put("line-checkpoint", 1, ours.lines[1])
put("line-close", 1, ours.lines[5])
put("line-escapes", 1, b'{"link":{"payloadType":"application/vnd.in-toto+json","payload":"e30=",'
    b'"signatures":[{"keyid":"\\u003c\\n\\u2028\\"","sig":"AA=="}]}}')
put("line-no-keyid", 1, b'{"link":{"payloadType":"application/vnd.in-toto+json","payload":"e30=","signatures":[{"keyid":"","sig":"AA=="}]}}')
entry = a.read_once(ours.lines[0])
del entry["link"]
put("entry", 2, a.canonical(entry))
put("statement-record", 3, a.record_statement(a.OURS, EXCHANGE["response"]["record"]))
put("statement-unanswered", 3, a.record_statement(a.REFERENCE, CHAIN["calls"][1]["record"]))
put("statement-close", 3, a.close_statement(a.OURS, CHAIN["close"]))
put("statement-link", 3, link(index=2, previous_sha256=ZERO, checkpoint=True, lines=1))
put("statement-entry-link", 3, link(index=1, previous_sha256="", entry_sha256=ZERO))
put("statement-head", 3, a.statement(a.OURS, "log-head", ZERO, "log-head", {"size": 3, "root_sha256": ZERO, "time_unix_ms": 1, "origin": "o"}))
put("call", 4, piece(a.pack("RunRequest", EXCHANGE["request"])) + piece(a.pack("RunResponse", EXCHANGE["response"])) +
    a.record_statement(a.OURS, EXCHANGE["response"]["record"]))
put("call-unanswered", 4, piece(a.pack("RunRequest", call_request(CHAIN["calls"][1]))) + piece(b"") +
    a.record_statement(a.OURS, CHAIN["calls"][1]["record"]))
put("call-close", 4, piece(b"") + piece(b"") + a.close_statement(a.OURS, {**CHAIN["close"], "calls": 0, "lastRecordSha256": ""}))
put("list", 5, f"{ZERO} a label\n\n\t{'f' * 64}\n".encode())
put("key", 6, b"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----\n")
put("key-public", 6, b"-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n")
