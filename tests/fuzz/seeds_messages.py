#!/usr/bin/env python3
"""Writes the seeds of fuzz_protojson and fuzz_protobuf from the vector files: a byte that picks the message, then the message."""
import json
import pathlib

HERE = pathlib.Path(__file__).parent
VECTORS = HERE.parent / "vectors"
JSON_MESSAGES = ["RunRequest", "RunResponse", "SessionRunRequest", "SessionRunResponse", "OpenSessionRequest", "DescribeResponse",
                 "RunRecord", "CloseSessionResponse"]
BINARY_MESSAGES = ["RunRequest", "RunResponse", "SessionRunRequest", "OpenSessionRequest"]

OTHERS = [
    ("DescribeResponse", '{"sandbox":"docker","isolation":"container","supportsProject":true,"protocol":4,'
                         '"javascriptEnvironment":{"languages":["javascript"],"maxTimeoutMs":30000},"resources":{"cpus":0.5}}'),
    ("OpenSessionRequest", '{"protocol":4,"minimum_isolation":"vm","lifetimeMs":"60000","languages":["python"],"owner":"o"}'),
    ("RunRequest", '{"protocol":4.0,"timeout_ms":"-1e3","x":[{"y":[null,true,"\\ud83d\\ude42\\n"]}],"module":{"model":"m",'
                   '"rows":[{"values":[-0,1e-7,"NaN",123456789012345678]}],"end_time":1e0,"step":0.1}}'),
    ("RunRequest", '{"protocol":4,"project":{"files":[{"path":"a","content":"x\\u0000y\\u00e9"},{"path":"b","content":""}],"steps":["true"]}}'),
    ("CloseSessionResponse", '{"session":"s","calls":18446744073709551615,"ended":9}'),
    ("SessionRunResponse", '{"run":{"module":{"runs":[{"status":-3,"outputs":["Infinity",5e-324]}],"outcome":77}},"ended":"SESSION_END_CLOSED"}'),
]


def varint(n):
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def main():
    seeds = {"protojson": [], "protobuf": []}
    for name in ("protocol-vectors.json", "protocol-4-vectors.json"):
        vectors = json.loads((VECTORS / name).read_text())
        for part in ("published", "derived"):
            sections = vectors.get(part, {})
            for entry in sections.get("requests", []):
                message = "SessionRunRequest" if entry["rpc"] == "SessionRun" else "RunRequest"
                seeds["protojson"].append((message, json.dumps(entry["message"])))
            for entry in sections.get("results", []):
                seeds["protojson"].append(("RunResponse", json.dumps(entry["message"])))
            for entry in sections.get("records", []):
                seeds["protojson"].append(("RunRecord", json.dumps(entry["record"])))
            for entry in sections.get("exchanges", []):
                seeds["protojson"].append(("RunResponse", json.dumps(entry["response"])))
            for entry in sections.get("binary_messages", []):
                if entry["message"] in BINARY_MESSAGES:
                    seeds["protobuf"].append((entry["message"], bytes.fromhex(entry["hex"])))
                if entry["message"] == "RunRecord":
                    seeds["protobuf"].append(("RunResponse", field(4, bytes.fromhex(entry["hex"])) + field(10, field(1, b"out"))))
    seeds["protojson"] += OTHERS
    project = b"\x08\x04" + field(11, field(1, field(1, b"a/b") + field(2, b"content")) + field(2, b"true") + field(4, b"a/b"))
    nul = b"\x08\x04" + field(11, field(1, field(1, b"a") + field(2, b"x\0y")) + field(2, b"true"))
    rule = field(5, field(1, b"exact") + field(2, b"oci:x"))
    seeds["protobuf"] += [("RunRequest", project), ("RunRequest", nul), ("RunRequest", project + rule), ("SessionRunRequest", project[:2] + field(5, b"id")),
                          ("OpenSessionRequest", b"\x08\x04" + field(6, b"") + field(7, b"python") + field(8, b"o")),
                          ("RunResponse", field(11, field(1, field(1, b"s")) + b"\x18\x01" + field(4, field(1, b"p") + field(2, b"\xff"))))]
    for corpus, entries in seeds.items():
        names = JSON_MESSAGES if corpus == "protojson" else BINARY_MESSAGES
        out = HERE / "corpus" / corpus
        out.mkdir(parents=True, exist_ok=True)
        for i, (message, content) in enumerate(entries):
            content = content.encode() if isinstance(content, str) else content
            (out / f"{i:02}-{message}").write_bytes(bytes([names.index(message)]) + content)


if __name__ == "__main__":
    main()
