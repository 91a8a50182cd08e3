"""A sandbox's policy: what the gateway refuses, and the hash it reports."""
import hashlib
import struct

from .schema import sandbox

PATHS_MAX, PATH_MAX, POLICY_MAX = 256, 4096, 256 * 1024
COMPATIBILITY = ("best_effort", "hard_requirement")


def _le64(value):
    return struct.pack("<Q", value)


def policy_hash(policy):
    """The gateway's hash of a policy without network parts. For one with them the specification has no canonical form: those bytes are our own."""
    bare = sandbox.SandboxPolicy()
    bare.CopyFrom(policy)
    bare.ClearField("network_policies")
    bare.ClearField("network_middlewares")
    encoded = bare.SerializeToString(deterministic=True)
    text = _le64(len(encoded)) + encoded
    for name in ("network_policies", "network_middlewares"):
        entries = getattr(policy, name)
        text += _le64(len(name)) + name.encode() + _le64(len(entries))
        for key in sorted(entries):
            value = entries[key].SerializeToString(deterministic=True)
            text += _le64(len(key.encode())) + key.encode() + _le64(len(value)) + value
    return hashlib.sha256(text).hexdigest()


def policy_fault(policy):
    """What is wrong with a policy as (field, text), or None."""
    if policy.ByteSize() > POLICY_MAX:
        return "spec.policy", "policy exceeds 256 KiB"
    if policy.version != 1:
        return "spec.policy.version", "unsupported policy version"
    paths = [*policy.filesystem.read_only, *policy.filesystem.read_write]
    if len(paths) > PATHS_MAX:
        return "spec.policy.filesystem", "too many paths"
    for path in paths:
        if not path.startswith("/") or len(path.encode()) > PATH_MAX or ".." in path.split("/") or "\0" in path:
            return "spec.policy.filesystem", f"unsafe path {path[:80]!r}"
    if any(path.rstrip("/") == "" for path in policy.filesystem.read_write):
        return "spec.policy.filesystem.read_write", "read_write of / is not allowed"
    for who in (policy.process.run_as_user, policy.process.run_as_group):
        if who not in ("", "sandbox") and not (who.isdigit() and 1 <= int(who) <= 4294967294):
            return "spec.policy.process", f"unsafe identity {who[:40]!r}"
    return None
