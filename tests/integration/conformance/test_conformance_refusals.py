"""What a wall does not do it refuses, marked with the reason, with nothing started; on every wall alike."""
import re
import subprocess

import pytest

import gateway as g

TIERS = ["process", "container", "kernel", "vm"]


@pytest.mark.parametrize("floor", TIERS)
def test_a_floor_is_met_or_refused(at, floor):
    code, key = at.language.out(b"1\n"), g.new_id()
    if TIERS.index(floor) <= TIERS.index(at.wall.tier):
        assert at.ok(code, key, minimumIsolation=floor).json()["isolation"] == at.wall.tier
        return
    before = at.gw.metric("plimsoll_runs_total")
    g.refused(at.run(code, key, minimumIsolation=floor), "failed_precondition", "isolation", key)
    assert at.gw.metric("plimsoll_runs_total") == before
    # the ID is free
    assert at.ok(code, key).header("Plimsoll-Replayed") is None


@pytest.mark.parametrize("floor", ["none", "unknown", "Process", "vm ", "galaxy"])
def test_a_floor_that_is_none(at, floor):
    g.refused(at.run("1", minimumIsolation=floor), "invalid_argument", "request")


@pytest.mark.parametrize("rule", [{"mode": "exact", "identities": ["oci-manifest:linux/amd64@sha256:" + "a" * 64]},
                                  {"mode": "approved", "identities": ["x:1", "x:2"]}])
def test_software_it_cannot_show_to_have(at, rule):
    g.refused(at.run("1", softwareRule=rule), "failed_precondition", "environment")


def test_software_it_shows_to_have(at):
    identity = at.describe()["javascriptEnvironment"].get("softwareIdentity", "")
    assert re.fullmatch(at.wall.software, identity)
    if identity:
        answer = at.ok("1", softwareRule={"mode": "exact", "identities": [identity]})
        assert answer.json()["softwareIdentity"] == identity


def test_a_grant_nobody_gave(at):
    body = {"protocol": 4, "javascript": {"code": "1", "grantProfile": "profile"}}
    g.refused(at.post(body), "permission_denied", "permission")


KINDS = {
    "project": {"project": {"steps": ["true"]}},
    "module": {"module": {"model": "M", "rows": [{"values": [1.0]}], "endTime": 1.0, "step": 0.5}},
    "cell": {"cell": {"language": "javascript", "code": "1"}}}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_it_does_not_run(at, kind):
    answer = at.post({"protocol": 4, **KINDS[kind]})
    if kind in at.wall.kinds:
        assert answer.status == 200, answer
    else:
        assert answer.status in (400, 501) and answer.reason in ("unsupported", "request"), answer
        assert kind == "cell" or answer.reason == "unsupported"


@pytest.mark.parametrize("code", ["", "x" * 262145], ids=["empty", "long"])
def test_code_that_is_none(at, code):
    before = at.gw.metric("plimsoll_runs_total")
    g.refused(at.run(code), "invalid_argument", "request")
    assert at.gw.metric("plimsoll_runs_total") == before


def test_settings_it_cannot_enforce_keep_the_gateway_down(wall):
    for name, value in wall.impossible.items():
        gw = g.Gateway({"SANDBOX_PROVIDER": wall.name, **wall.settings, name: value})
        try:
            done = subprocess.run([str(g.DAEMON)], env=gw.settings, capture_output=True, text=True, timeout=g.START_S, stdin=subprocess.DEVNULL)
            assert done.returncode == 2 and name in done.stderr, done.stderr[-2000:]
        finally:
            gw.remove()
