#!/usr/bin/env python3
"""Writes the seeds of fuzz_openshell: a byte that picks the answer, then the answer of a gateway that does what it was asked."""
import pathlib
import struct

OUT = pathlib.Path(__file__).parent / "corpus" / "openshell"
STAMP, INSTALLATION, INSTANCE = "0123456789abcd0123456789abcdef01", "fedcba9876543210fedcba9876543210", "00112233445566aa"


def varint(n):
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n])


def f(number, content):
    content = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(content)) + content


def n(number, value):
    return varint(number << 3) + varint(value)


def text(value):
    return f(3, value)


def number(value):
    return b"\x11" + struct.pack("<d", value)


def struct_of(**fields):
    return b"".join(f(1, f(1, k) + f(2, v)) for k, v in fields.items())


RESOURCES = struct_of(limits=f(5, struct_of(cpu=text("1"), memory=text("256Mi"))))
MOUNT = struct_of(options=f(6, f(1, text("noexec"))), size_bytes=number(64 << 20), target=text("/tmp"), type=text("tmpfs"))
DRIVER = struct_of(docker=f(5, struct_of(mounts=f(6, f(1, f(5, MOUNT))))))
PATHS = ["/bin", "/usr", "/lib", "/etc", "/proc", "/dev/urandom", "/sys/fs/cgroup"]
POLICY = n(1, 1) + f(2, b"".join(f(2, p) for p in PATHS) + f(3, "/tmp") + f(3, "/dev/null")) + f(3, f(1, "hard_requirement"))
LABELS = {"plimsoll.installation": INSTALLATION, "plimsoll.instance": INSTANCE, "plimsoll.lifetime": "40", "plimsoll.run": "1", "plimsoll.stamp": STAMP}
METADATA = f(1, "3f2b0c1e-0000-4000-8000-000000000001") + f(2, "plp-" + STAMP[:14]) + b"".join(f(4, f(1, k) + f(2, v)) for k, v in LABELS.items())
TEMPLATE = f(1, "guest@sha256:00") + f(7, RESOURCES) + f(11, DRIVER)
SPEC = f(1, "info") + f(6, TEMPLATE) + f(7, POLICY) + f(12, "sleep") + f(12, "2147483647") + n(13, 1)
STATUS = f(5, f(1, "Ready") + f(2, "False") + f(3, "Failed") + f(4, "no image")) + n(6, 2)
SANDBOX = f(1, METADATA) + f(2, SPEC) + f(3, STATUS)
SETTING = f(4, f(1, "agent_policy_proposals_enabled") + f(2, f(1, n(2, 0))))
CONFIG = f(1, POLICY) + f(3, "0" * 64) + SETTING + n(6, 1) + n(13, 1)
LIMITS = f(1, n(1, 1)) + f(2, n(1, 1))
INFO = f(2, "0.1.2") + f(3, f(1, "docker") + f(2, f(1, "docker") + f(3, LIMITS)))

SEEDS = {"sandbox": b"\0" + f(1, SANDBOX), "list": b"\1" + f(1, SANDBOX) + f(1, SANDBOX) + f(2, "next"), "config": b"\2" + CONFIG, "info": b"\3" + INFO,
         "resources": b"\4" + RESOURCES * 2, "driver": b"\4" + DRIVER * 2, "deletion": b"\5" + n(2, 2), "policy": b"\5" + POLICY}

if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    for name, data in SEEDS.items():
        (OUT / name).write_bytes(data)
