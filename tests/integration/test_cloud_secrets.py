"""A provider's credential is where it is used, and nowhere else: each process of a gateway is looked into, its environment and all its memory."""
import os
import pathlib
import re
import secrets

import pytest

import gateway as g

LARGEST = 1 << 30  # a mapping past this is a sanitizer's, reserved and not used


def memory_holds(pid, needles):
    """Those of `needles` that stand in the process's memory."""
    found = set()
    with open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
            begin, end, mode = re.match(r"([0-9a-f]+)-([0-9a-f]+) (....)", line).groups()
            begin, size = int(begin, 16), int(end, 16) - int(begin, 16)
            if mode[0] != "r" or size > LARGEST or "[v" in line:
                continue
            try:
                memory.seek(begin)
                bytes_ = memory.read(size)
            except OSError:
                continue
            found |= {n for n in needles if n in bytes_}
    return found


def processes(gw):
    """{name of the role: PID}."""
    return {g.name_of(pid): pid for pid in [gw.process.pid, *g.descendants(gw.process.pid)] if "plimsolld" in g.name_of(pid) or ":" in g.name_of(pid)}


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's memory is root's to read")
def test_each_credential_is_in_the_parent_and_in_its_own_role_alone(gateway):
    key, token = "e2b_" + secrets.token_hex(24), "dckr_pat_" + secrets.token_urlsafe(24)
    nobody = f"http://127.0.0.1:{g.free_port()}"
    gw = gateway(start=False, SANDBOX_PROVIDER="standin,e2b,dockercloud", E2B_API_KEY=key, E2B_API_URL=nobody, E2B_SANDBOX_URL=nobody,
                 DOCKER_SBX_TOKEN=token, DOCKER_SBX_USERNAME="somebody-" + secrets.token_hex(8), SANDBOX_DOCKERCLOUD_API_URL=nobody,
                 SANDBOX_DOCKERCLOUD_AUTH_URL=nobody, SANDBOX_DOCKERCLOUD_IMAGE="registry.example/node@sha256:" + "1" * 64, PLIMSOLL_CLOUD_SMOKE_PAUSE="1h")
    gw.secrets += [key, token]
    gw.start()
    g.wait_for(lambda: {b["name"]: b["state"] for b in gw.get("/v1/backends").json()["backends"]} ==
               {"standin": "ready", "e2b": "failed", "dockercloud": "failed"}, "both clouds to have been tried")
    assert gw.ok("standin: answer").header("Plimsoll-Backend") == "standin"
    needles = {key.encode(), token.encode()}
    holders = {}
    for name, pid in processes(gw).items():
        environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
        assert not any(n in environment for n in needles), name
        for needle in memory_holds(pid, needles):
            holders.setdefault(needle, set()).add(name)
    roles = {name for names in holders.values() for name in names}
    parent = next(name for name, pid in processes(gw).items() if pid == gw.process.pid)
    assert {n: {r for r in holders[n] if r != parent} for n in needles} == {
        key.encode(): {r for r in roles if r.endswith("e2b")}, token.encode(): {r for r in roles if r.endswith("dockercloud")}}
    assert all(len(holders[n]) == 2 for n in needles), holders
    assert len(processes(gw)) >= 5  # the parent, the front and three backends
