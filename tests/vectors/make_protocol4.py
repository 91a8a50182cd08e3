#!/usr/bin/env python3
"""Writes protocol-4-vectors.json: request and record digests of protocol 4, computed here with nothing but hashlib and struct from
the construction below, so that the C code is compared with a second reading of it.

value(b)        = length of b as 8 bytes big-endian, then b
field(n, b)     = value(n) value(b); integers as decimal text, booleans true/false, doubles as 8 bytes big-endian
request digest  = hex SHA-256 of value("plimsoll.run-request.v2") and the fields of the request (protocol 2 and later)
result digest   = hex SHA-256 of value("plimsoll.run-result.v1") and the fields of the result
record digest   = hex SHA-256 of value("plimsoll.run-record.v4") and, in order: request_sha256, result_sha256, unanswered, provider,
                  isolation, environment, policy, software_identity, software_rule_id, instance, started_unix_ms, ended_unix_ms,
                  session, sequence, previous_sha256
"""
import hashlib
import json
import pathlib
import struct

IMAGE = "docker-image:sha256:" + "c" * 64
SOFTWARE = "oci-manifest:linux/amd64@sha256:" + "a" * 64
OTHER = "oci-manifest:linux/amd64@sha256:" + "b" * 64
POD = "k8s-pod-uid:0b1f6a52-3f0e-4c64-9d7a-2f3a0c1d9e77"
SESSION_ID = "00112233445566778899aabbccddeeff"


def value(b):
    return struct.pack(">Q", len(b)) + b


def digest(domain, fields):
    h = hashlib.sha256(value(domain.encode()))
    for name, content in fields:
        if isinstance(content, bool):
            content = "true" if content else "false"
        if isinstance(content, int):
            content = str(content)
        if isinstance(content, str):
            content = content.encode()
        h.update(value(name.encode()) + value(content))
    return h.hexdigest()


def request_digest(floor, timeout_ms, mode, identities, payload):
    fields = [("protocol", 4), ("minimum_isolation", floor), ("timeout_ms", timeout_ms), ("software_mode", mode),
              ("software_identities", len(identities))]
    fields += [("software_identity", i) for i in identities]
    return digest("plimsoll.run-request.v2", fields + payload)


def rule_id(identities):
    if not identities:
        return ""
    if len(identities) == 1:
        return "exact:" + identities[0]
    joined = b"\0".join(sorted(i.encode() for i in identities))
    return "approved:sha256:" + hashlib.sha256(joined).hexdigest()


RECORD = (("requestSha256", "request_sha256"), ("resultSha256", "result_sha256"), ("unanswered", "unanswered"),
          ("provider", "provider"), ("isolation", "isolation"), ("environment", "environment"), ("policy", "policy"),
          ("softwareIdentity", "software_identity"), ("softwareRuleId", "software_rule_id"), ("instance", "instance"),
          ("startedUnixMs", "started_unix_ms"), ("endedUnixMs", "ended_unix_ms"), ("session", "session"),
          ("sequence", "sequence"), ("previousSha256", "previous_sha256"))


def record_digest(record):
    return digest("plimsoll.run-record.v4", [(name, record.get(key, "0" if name in ("sequence", "started_unix_ms", "ended_unix_ms") else ""))
                                             for key, name in RECORD])


def javascript(code, profile=""):
    return [("kind", "javascript"), ("code", code), ("grant_profile", profile)]


def snippet_result(stdout, stderr=b"", code=0, timed_out=False, cut=(False, False)):
    return digest("plimsoll.run-result.v1", [("kind", "javascript"), ("exit_code", code), ("timed_out", timed_out),
                                             ("stdout", stdout), ("stderr", stderr), ("stdout_truncated", cut[0]),
                                             ("stderr_truncated", cut[1])])


def main():
    single_request = {"protocol": 4, "minimumIsolation": "container", "timeoutMs": 5000,
                      "softwareRule": {"mode": "approved", "identities": [OTHER, SOFTWARE]},
                      "javascript": {"code": "console.log('hé 🙂')"}}
    single_digest = request_digest("container", 5000, "approved", [OTHER, SOFTWARE], javascript("console.log('hé 🙂')"))
    result_digest = snippet_result("hé 🙂\n".encode())
    record = {"version": 4, "requestSha256": single_digest, "resultSha256": result_digest, "provider": "docker",
              "isolation": "container", "environment": IMAGE, "startedUnixMs": "1790000000000", "endedUnixMs": "1790000000812",
              "softwareIdentity": SOFTWARE, "softwareRuleId": rule_id([OTHER, SOFTWARE])}
    record["recordSha256"] = record_digest(record)

    pod_request = {"protocol": 4, "javascript": {"code": "1"}}
    pod_digest = request_digest("", 0, "", [], javascript("1"))
    pod_record = {"version": 4, "requestSha256": pod_digest, "resultSha256": snippet_result(b""), "provider": "openshell",
                  "isolation": "kernel", "policy": "openshell-policy:sha256:cd", "startedUnixMs": "1790000000000",
                  "endedUnixMs": "1790000000001", "instance": POD}
    pod_record["recordSha256"] = record_digest(pod_record)

    unanswered = {"version": 4, "requestSha256": pod_digest, "unanswered": "unavailable", "provider": "docker",
                  "isolation": "container", "environment": IMAGE, "startedUnixMs": "1790000001000",
                  "endedUnixMs": "1790000003000", "session": hashlib.sha256(SESSION_ID.encode()).hexdigest(), "sequence": "2",
                  "previousSha256": record["recordSha256"]}

    failed = digest("plimsoll.run-result.v1", [("kind", "project"), ("outcome", 5), ("outcome_detail", "the report was cut"),
                                               ("artifacts_truncated", False), ("steps", 0), ("artifacts", 0)])

    vectors = {
        "about": ["Protocol 4 in the form of protocol-vectors.json, computed by make_protocol4.py."],
        "derived": {
            "requests": [
                {"name": "protocol 4 javascript, approved rule", "rpc": "Run", "message": single_request, "sha256": single_digest},
                {"name": "protocol 4 javascript, smallest", "rpc": "Run", "message": pod_request, "sha256": pod_digest},
            ],
            "results": [{"name": "project, runner failed", "message": {"project": {
                "outcome": "PROJECT_OUTCOME_RUNNER_FAILED", "outcomeDetail": "the report was cut"}}, "sha256": failed}],
            "records": [
                {"name": "version 4, no instance", "record": record, "sha256": record["recordSha256"]},
                {"name": "version 4, with an instance", "record": pod_record, "sha256": pod_record["recordSha256"]},
                {"name": "version 4, unanswered session call", "record": unanswered, "sha256": record_digest(unanswered)},
            ],
            "exchanges": [
                {"name": "complete single run, protocol 4", "request": single_request, "response": {
                    "sandbox": "docker", "isolation": "container", "durationMs": "812", "softwareIdentity": SOFTWARE,
                    "environment": IMAGE, "javascript": {"stdout": "aMOpIPCfmYIK"}, "record": record}},
                {"name": "single run with an instance, protocol 4", "request": pod_request, "response": {
                    "sandbox": "openshell", "isolation": "kernel", "instance": POD, "javascript": {}, "record": pod_record}},
            ],
        },
    }
    out = pathlib.Path(__file__).with_name("protocol-4-vectors.json")
    out.write_text(json.dumps(vectors, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
