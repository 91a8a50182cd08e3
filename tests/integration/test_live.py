"""`make live` itself, against the stand-ins by its own settings: what it refuses to start without, the cap, and that nothing is left and that it would
notice. docs/live-tests.md says how an operator uses it."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "live"))

import gateway as g
import services
import walls

LIVE = g.ROOT / "tests/live/live.py"
UNCONFIGURED, CAP_REACHED = 2, 3
PREFIXES = ("LIVE", "E2B_", "DOCKER_SBX_", "SANDBOX_")


def live(backend, settings, *arguments, timeout=120, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(PREFIXES)}
    return subprocess.run([sys.executable, str(LIVE), "--backend", backend, *arguments], env={**env, "PLIMSOLL_BUILD": str(g.BUILD), **settings, **more},
                          capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)


def of(name):
    return next(w for w in walls.CLOUD_WALLS if repr(w) == name)


@pytest.fixture(scope="module")
def e2b():
    of("e2b").require()
    with of("e2b").standin_process() as cloud:
        yield cloud


@pytest.fixture
def settings(e2b):
    e2b.reset()
    yield of("e2b").settings_for(e2b)
    assert e2b.alive() == []


def test_it_does_not_start_without_a_credential_or_a_yes(e2b, settings):
    for backend, names in (("e2b", "E2B_API_KEY"), ("dockercloud", "DOCKER_SBX_TOKEN and DOCKER_SBX_USERNAME"), ("openshell", "SANDBOX_OPENSHELL_GATEWAY_URL")):
        done = live(backend, {}, LIVE="1")
        assert done.returncode == UNCONFIGURED and names in done.stderr
    assert live("all", settings, LIVE="1").returncode == live("wasm", settings, LIVE="1").returncode == UNCONFIGURED
    done = live("e2b", settings)
    # what it would cost is said before it is asked for
    assert done.returncode == UNCONFIGURED and "LIVE=1" in done.stderr and "USD" in done.stdout
    assert live("e2b", settings, LIVE="yes").returncode == UNCONFIGURED
    for wrong in ("0", "-1", "much", "nan", "inf"):
        assert live("e2b", settings, LIVE="1", LIVE_MAX_USD=wrong).returncode == UNCONFIGURED
    assert e2b.account()["created"] == 0 and walls.E2B_KEY not in done.stdout + done.stderr


def test_the_suite_and_the_report_run_and_leave_nothing(e2b, settings):
    done = live("e2b", settings, "--only", "test_a_result or test_a_caller_that_leaves or test_files_steps", LIVE="1")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert "3 passed" in done.stdout and "the account lists nothing of ours" in done.stdout and walls.E2B_KEY not in done.stdout + done.stderr
    path = next(g.ROOT / line.split(" is in ")[1] for line in done.stdout.splitlines() if "what was seen of the service is in" in line)
    looks = json.loads(path.read_text())["looks"]
    path.unlink()
    seen = {look["question"]: look["seen"] for look in looks}
    assert {q[:2] for q in seen if q.startswith("L")} == {"L1", "L3", "L4", "L5", "L6", "L8"}
    inside = seen["L3, L7: what a sandbox is inside"]
    assert inside["an upload without a token"] == 401 and "ENETUNREACH" in inside["network (L3)"][1] and seen["what the looks left behind, and is deleted now"] == []
    # it over-counts, never the other way
    account = e2b.account()
    said = float(done.stdout.split("e2b: about ")[2].split(" s of")[0])
    of_runs = sum(s["billed_ms"] for s in account["sandboxes"] if s["labels"].get("gw_kind") != "look") / 1000
    assert said >= of_runs > 0 and e2b.violations() == []


def test_the_cap_ends_it(e2b, settings):
    done = live("e2b", settings, "--no-looks", LIVE="1", LIVE_MAX_USD="0.0005")
    assert done.returncode == CAP_REACHED and "LIVE_MAX_USD reached" in done.stdout, done.stdout[-3000:] + done.stderr[-2000:]
    assert "the account lists nothing of ours" in done.stdout
    # the one trial of the wall at its start is over the cap, and the test it was made for
    assert 0 < e2b.account()["created"] <= 3


def test_what_is_left_is_noticed_and_deleted(e2b, settings, monkeypatch):
    """A sandbox that carries an installation's mark, and one of somebody else's; then one whose deletion is said and not done."""
    monkeypatch.setattr(services, "LOOK_S", 0.05)
    service = services.E2b(settings)
    service.installations["a gateway's"] = "ab" * 16

    def made(mark):
        body = {"templateID": "base", "timeout": 60, "metadata": {"gw_instance": mark}}
        return json.loads(service.ask("POST", "/v2/sandboxes", body)[2])["sandboxID"]
    ours, theirs = made("ab" * 16), made("cd" * 16)
    assert service.expect_none() == [ours] and e2b.alive() == [theirs]
    assert service.expect_none() == []
    made("ab" * 16)
    e2b.add_fault(method="DELETE", path="/sandboxes/{id}", action={"type": "lost_delete", "kind": "204_alive"})
    with pytest.raises(AssertionError, match="still listed"):
        service.expect_none()
    e2b.reset()


@pytest.mark.parametrize("name", ["dockercloud", "dockercloud-rest", "openshell"])
def test_the_others(name):
    wall = of(name)
    wall.require()
    with wall.standin_process() as cloud:
        done = live(wall.name, wall.settings_for(cloud), "--only", "test_a_result", LIVE="1")
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
        assert "1 passed" in done.stdout and "the account lists nothing of ours" in done.stdout
        assert cloud.alive() == [] and cloud.leaks() == []
