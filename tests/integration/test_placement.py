"""Which backend gets a run: the operator's order, floor, kind, software rule and timeout; who is passed over, and what is said of it.

The backends are the stand-ins of loadtest/standin (their acts are described there), with the embedded wall where a real one matters.
"""
import pathlib
import subprocess

import pytest

import gateway as g
from plimsoll_client import AtCapacityError, Client, InsufficientIsolationError, SoftwareMismatchError, SoftwareRule

PINNED = "/backends/{}" + g.RUN
PINNED_DESCRIBE = "/backends/{}" + g.DESCRIBE
ONE, TWO = "oci-manifest:linux/amd64@sha256:" + "1" * 64, "oci-manifest:linux/amd64@sha256:" + "2" * 64


def backend_of(answer):
    return answer.header("Plimsoll-Backend")


def project(step="standin: answer", protocol=4, files=(), **more):
    return {"protocol": protocol, "project": {"files": list(files), "steps": [step]}, **more}


def given(path):
    """What the stand-ins were given: (run ID, wall), in order."""
    try:
        return [(line.split()[0], line.split()[-1]) for line in path.read_text().splitlines()]
    except FileNotFoundError:
        return []


@pytest.fixture(scope="module")
def three():
    """standin (container), standin2 (vm), wasm (process), in this order; nobody changes it."""
    gw = g.Gateway({"SANDBOX_PROVIDER": "standin,standin2,wasm", "PLIMSOLL_STANDIN1": f"tier=container,software={ONE},ceiling=2000",
                    "PLIMSOLL_STANDIN2": f"tier=vm,software={TWO}", "SANDBOX_MAX_CONCURRENT": "16"})
    gw.settings["PLIMSOLL_STANDIN_LOG"] = str(gw.home / "given")
    gw.given = lambda: given(gw.home / "given")
    try:
        yield gw.start()
        gw.stop()
    finally:
        gw.kill_rest()
        gw.remove()


# -- who is chosen --


def test_the_first_in_the_operators_order_gets_a_run_without_demands(three):
    for _ in range(3):
        answer = three.ok()
        assert backend_of(answer) == "standin"
        assert answer.json()["sandbox"] == "standin" and answer.json()["isolation"] == "container"
        assert answer.header("Plimsoll-Passed-Over") is None


@pytest.mark.parametrize("order, first", [("standin2,standin", "standin2"), ("wasm,standin", "wasm"), ("standin,wasm", "standin")])
def test_another_order_is_another_choice(gateway, order, first):
    assert backend_of(gateway(SANDBOX_PROVIDER=order).ok()) == first


@pytest.mark.parametrize("floor, who", [("process", "standin"), ("container", "standin"), ("kernel", "standin2"), ("vm", "standin2")])
def test_the_floor_decides(three, floor, who):
    answer = three.ok(minimumIsolation=floor)
    assert backend_of(answer) == who
    # a backend that was never asked was not passed over
    assert answer.header("Plimsoll-Passed-Over") is None


def test_a_floor_that_no_backend_meets_is_refused_and_nobody_is_asked(gateway):
    gw = gateway(SANDBOX_PROVIDER="standin,wasm")
    key = g.new_id()
    g.refused(gw.run("1", key, minimumIsolation="vm"), "failed_precondition", "isolation", key)
    assert gw.metric("plimsoll_runs_total") == 0


@pytest.mark.parametrize("rule, who", [
    ({"mode": "exact", "identities": [ONE]}, "standin"), ({"mode": "exact", "identities": [TWO]}, "standin2"),
    ({"mode": "approved", "identities": [TWO, ONE]}, "standin"), ({"mode": "approved", "identities": ["somebody:else", TWO]}, "standin2")])
def test_the_software_rule_decides(three, rule, who):
    answer = three.ok(softwareRule=rule)
    assert backend_of(answer) == who
    assert answer.json()["softwareIdentity"] in rule["identities"]
    assert answer.json()["record"]["softwareRuleId"]


def test_software_that_no_backend_has_is_refused(three):
    answer = three.run(softwareRule={"mode": "exact", "identities": ["oci:nobody"]})
    g.refused(answer, "failed_precondition", "environment")


def test_floor_and_software_must_meet_in_one_backend(three):
    answer = three.run(softwareRule={"mode": "exact", "identities": [ONE]}, minimumIsolation="vm")
    # standin has the software and not the wall, standin2 the wall and not the software: the one that came further is told
    g.refused(answer, "failed_precondition", "environment")


def test_the_kind_decides(gateway):
    gw = gateway(SANDBOX_PROVIDER="wasm,standin", PLIMSOLL_STANDIN1="kinds=project")
    assert backend_of(gw.ok("console.log(1)")) == "wasm"
    answer = gw.post(g.RUN, project())
    assert answer.status == 200 and backend_of(answer) == "standin", answer
    g.check_record(project(), answer)
    assert answer.json()["project"]["outcome"] == "PROJECT_OUTCOME_COMPLETED"


def test_a_kind_nobody_runs_is_unsupported(gateway):
    gw = gateway(SANDBOX_PROVIDER="wasm,standin", PLIMSOLL_STANDIN1="kinds=javascript")
    key = g.new_id()
    g.refused(gw.post(g.RUN, project(), key), "unimplemented", "unsupported", key)


@pytest.mark.parametrize("timeout, who", [(0, "standin"), (1999, "standin"), (2000, "standin"), (2001, "standin2"), (300000, "standin2")])
def test_a_backend_that_grants_the_whole_time_comes_first(three, timeout, who):
    assert backend_of(three.ok(timeoutMs=timeout)) == who


def test_when_all_would_shorten_the_time_the_order_decides_and_the_ceiling_holds(gateway):
    gw = gateway(SANDBOX_PROVIDER="standin,standin2", PLIMSOLL_STANDIN1="ceiling=500", PLIMSOLL_STANDIN2="ceiling=700")
    answer = gw.ok("standin: hold 5000", timeoutMs=60000)
    assert backend_of(answer) == "standin"
    assert answer.json()["javascript"]["timedOut"] is True
    assert 500 <= int(answer.json()["durationMs"]) < 1500


# -- who is passed over --


@pytest.mark.parametrize("reason", ["capacity", "isolation", "unsupported"])
def test_a_backend_that_refused_without_running_is_passed_over_and_named(gateway, reason):
    gw = gateway(SANDBOX_PROVIDER="standin,standin2", PLIMSOLL_STANDIN1=f"then=refuse {reason}")
    key = g.new_id()
    answer = gw.ok("1", key)
    assert backend_of(answer) == "standin2"
    assert answer.header("Plimsoll-Passed-Over") == f"standin;reason={reason}"
    assert gw.metric("plimsoll_passed_over_total") == 1
    record = gw.get("/v1/runs/" + answer.header("Plimsoll-Run-Id")).json()
    assert (record["verdict"], record["backend"], record["request_id"]) == ("answered", "standin2", key)


def test_several_are_passed_over_in_order(gateway):
    gw = gateway(SANDBOX_PROVIDER="standin2,standin,wasm", PLIMSOLL_STANDIN1="then=refuse unsupported",
                 PLIMSOLL_STANDIN2="then=refuse capacity")
    answer = gw.ok("console.log(6*7)")
    assert backend_of(answer) == "wasm" and g.stdout(answer) == b"42\n"
    assert answer.header("Plimsoll-Passed-Over") == "standin2;reason=capacity, standin;reason=unsupported"


def test_when_all_refuse_the_last_refusal_is_the_answer(gateway):
    gw = gateway(SANDBOX_PROVIDER="standin,standin2", PLIMSOLL_STANDIN1="then=refuse isolation",
                 PLIMSOLL_STANDIN2="then=refuse capacity 2500")
    key = g.new_id()
    answer = gw.run("1", key)
    g.refused(answer, "resource_exhausted", "capacity", key)
    assert answer.header("Plimsoll-Passed-Over") == "standin;reason=isolation"
    assert answer.header("Retry-After") == "3"  # whole seconds, never too early
    assert gw.metric("plimsoll_inflight") == 0


@pytest.mark.parametrize("reason, code", [("request", "invalid_argument"), ("permission", "permission_denied"),
                                          ("environment", "failed_precondition")])
def test_a_refusal_another_backend_would_not_mend_is_the_answer(gateway, reason, code):
    gw = gateway(SANDBOX_PROVIDER="standin,standin2", PLIMSOLL_STANDIN1=f"then=refuse {reason}")
    key = g.new_id()
    answer = gw.run("1", key)
    g.refused(answer, code, reason, key)
    assert answer.header("Plimsoll-Passed-Over") is None


@pytest.mark.parametrize("act, code", [("fail internal", "internal"), ("fail unavailable", "unavailable"), ("exit", "unavailable"),
                                       ("lie name", "internal"), ("lie garbage", "internal")])
def test_after_a_dispatch_that_may_have_run_nobody_else_is_asked(gateway, tmp_path, act, code):
    gw = gateway(start=False, SANDBOX_PROVIDER="standin,standin2")
    gw.settings["PLIMSOLL_STANDIN_LOG"] = str(gw.home / "given")
    gw.start()
    key = g.new_id()
    answer = gw.run("standin: " + act, key)
    g.failed(answer, code, key)
    assert answer.header("Plimsoll-Passed-Over") is None
    assert backend_of(answer) == "standin"
    assert [wall for _, wall in given(gw.home / "given")] == ["standin"]


# -- walls on somebody else's machines: what may be passed over, and what never may --


@pytest.fixture()
def clouds(gateway):
    """standinpaid, whose sandboxes are a provider's, before standin2; both are vm."""
    def start(**more):
        gw = gateway(start=False, SANDBOX_PROVIDER="standinpaid,standin2", PLIMSOLL_STANDINPAID="unseen=200", **more)
        account = gw.home / "account"
        account.mkdir()
        account.chmod(0o777)
        gw.settings["PLIMSOLL_STANDINPAID_DIR"] = str(account)
        gw.settings["PLIMSOLL_STANDIN_LOG"] = str(gw.home / "given")
        gw.given = lambda: [wall for _, wall in given(gw.home / "given")]
        gw.there = lambda: len(list(account.iterdir()))
        return gw.start()
    return start


def test_a_run_for_a_vm_that_one_cloud_has_no_room_for_goes_to_the_next_and_the_answer_says_so(clouds):
    gw = clouds()
    key = g.new_id()
    answer = gw.ok("standin: paid create fail\nstandin: answer", key, minimumIsolation="vm")
    assert backend_of(answer) == "standin2" and answer.json()["isolation"] == "vm"
    assert answer.header("Plimsoll-Passed-Over") == "standinpaid;reason=capacity"
    assert gw.given() == ["standin2"] and gw.there() == 0
    assert gw.metric("plimsoll_passed_over_total") == 1
    record = gw.get("/v1/runs/" + answer.header("Plimsoll-Run-Id")).json()
    assert (record["verdict"], record["backend"], record["request_id"]) == ("answered", "standin2", key)
    # the line of the run, for whoever looks it up later
    gw.wait_log("code run", run_id=answer.header("Plimsoll-Run-Id"), passed_over="standinpaid;reason=capacity")
    # and when there is room, nobody is passed over
    answer = gw.ok("standin: answer", minimumIsolation="vm")
    assert backend_of(answer) == "standinpaid" and answer.header("Plimsoll-Passed-Over") is None


@pytest.mark.parametrize("act", ["lost", "late 50"])
def test_a_create_whose_answer_was_lost_goes_nowhere_else_and_may_have_run(clouds, act):
    gw = clouds()
    key = g.new_id()
    code = f"standin: paid create {act}\nstandin: answer"
    answer = gw.run(code, key, minimumIsolation="vm")
    g.failed(answer, "unavailable", key)
    assert "may have run" in answer.message
    assert backend_of(answer) == "standinpaid" and answer.header("Plimsoll-Passed-Over") is None
    assert gw.given() == []
    # the same key again is the same outcome, and no second sandbox
    again = gw.run(code, key, minimumIsolation="vm")
    assert again.status != 200 and again.reason is None and gw.given() == []
    g.wait_for(lambda: gw.there() == 0, "the sandbox that nobody heard of to be deleted")


def test_after_a_cloud_that_began_nobody_else_is_asked(clouds):
    gw = clouds()
    for act, code in (("fail unavailable", "unavailable"), ("fail internal", "internal"), ("exit", "unavailable")):
        key = g.new_id()
        before = len(gw.given())
        answer = gw.run("standin: " + act, key, minimumIsolation="vm")
        g.failed(answer, code, key)
        assert backend_of(answer) == "standinpaid" and answer.header("Plimsoll-Passed-Over") is None
        assert gw.given()[before:] == ["standinpaid"]
        g.wait_for(lambda: gw.run("standin: answer", path=PINNED.format("standinpaid")).status == 200, "the role to be back")


@pytest.mark.faults
@pytest.mark.parametrize("point, goes_on", [("paid.create", True), ("paid.created", False)])
def test_what_may_have_been_made_is_given_to_nobody_else(clouds, point, goes_on):
    gw = clouds()
    gw.faults.arm(point, "once fail")
    key = g.new_id()
    answer = gw.run("standin: answer", key, minimumIsolation="vm")
    if goes_on:
        assert answer.status == 200 and backend_of(answer) == "standin2"
        assert answer.header("Plimsoll-Passed-Over") == "standinpaid;reason=capacity"
    else:
        g.failed(answer, "unavailable", key)
        assert gw.given() == []
    g.wait_for(lambda: gw.there() == 0, "what was made to be deleted")


def test_when_every_cloud_is_full_the_caller_is_told_when_to_come_again(clouds):
    gw = clouds()
    key = g.new_id()
    answer = gw.run("standin: paid create fail\nstandin: refuse capacity 7000", key, minimumIsolation="vm")
    g.refused(answer, "resource_exhausted", "capacity", key)
    # the last one's refusal is the answer
    assert answer.header("Plimsoll-Passed-Over") == "standinpaid;reason=capacity" and backend_of(answer) == "standin2"
    assert answer.header("Retry-After") == "7"
    # a refusal frees its key
    assert gw.run("standin: answer", key, minimumIsolation="vm").status == 200


def test_a_backend_without_a_proof_is_not_waited_for(gateway):
    gw = gateway(start=False, SANDBOX_PROVIDER="standin,standin2", PLIMSOLL_PROOF_INTERVAL="1s")
    gw.faults.arm("standin.prove", "fail")
    gw.start()
    assert backend_of(gw.ok()) == "standin2"
    assert gw.describe().json()["sandbox"] == "standin2"
    assert gw.get("/readyz").status == 200
    gw.faults.disarm("standin.prove")
    g.wait_for(lambda: backend_of(gw.ok()) == "standin", "the first backend to come into service")
    assert gw.describe().json()["sandbox"] == "standin"


# -- a base URL of one backend --


@pytest.mark.parametrize("name, tier", [("standin", "container"), ("standin2", "vm"), ("wasm", "process")])
def test_a_pinned_request_goes_to_that_backend(three, name, tier):
    answer = three.ok(path=PINNED.format(name))
    assert backend_of(answer) == name and answer.json()["isolation"] == tier


def test_a_pinned_request_is_not_placed_elsewhere(gateway):
    gw = gateway(SANDBOX_PROVIDER="standin,standin2", PLIMSOLL_STANDIN1="tier=container,then=refuse capacity")
    key = g.new_id()
    answer = gw.run("1", key, path=PINNED.format("standin"))
    g.refused(answer, "resource_exhausted", "capacity", key)
    assert answer.header("Plimsoll-Passed-Over") is None
    answer = gw.run("standin: answer", minimumIsolation="vm", path=PINNED.format("standin"))
    g.refused(answer, "failed_precondition", "isolation")
    assert "standin" in answer.message
    assert backend_of(gw.ok(minimumIsolation="vm", path=PINNED.format("standin2"))) == "standin2"


@pytest.mark.parametrize("name", ["docker", "standin3", "STANDIN", "standin.", "-", "a" * 300])
def test_a_backend_that_is_not_enabled_has_no_url(three, name):
    runs = len(three.given())
    answer = three.run(path=PINNED.format(name))
    assert answer.status == 404, answer
    assert answer.header("Plimsoll-Not-Dispatched") == "unsupported"
    assert len(three.given()) == runs


# -- what is stated --


def test_describe_states_what_a_request_without_a_floor_would_get_and_never_more(three):
    root = three.describe().json()
    # standin2 and its vm are there; a request without a floor would not get them
    assert (root["sandbox"], root["isolation"], root["protocol"]) == ("standin", "container", 4)
    assert root["javascriptEnvironment"]["softwareIdentity"] == ONE
    assert root["javascriptEnvironment"]["maxTimeoutMs"] == 2000
    run = three.ok()
    assert (run.json()["sandbox"], run.json()["isolation"]) == (root["sandbox"], root["isolation"])


@pytest.mark.parametrize("name, tier, project_too", [("standin", "container", True), ("standin2", "vm", True), ("wasm", "process", False)])
def test_describe_of_one_backend(three, name, tier, project_too):
    answer = three.describe(PINNED_DESCRIBE.format(name))
    assert answer.status == 200 and backend_of(answer) == name
    assert (answer.json()["sandbox"], answer.json()["isolation"]) == (name, tier)
    assert answer.json().get("supportsProject", False) is project_too


def test_the_list_of_backends(three):
    answer = three.get("/v1/backends")
    assert answer.status == 200
    backends = answer.json()["backends"]
    assert [b["name"] for b in backends] == ["standin", "standin2", "wasm"]
    assert [b["isolation"] for b in backends] == ["container", "vm", "process"]
    assert {b["state"] for b in backends} == {"ready"}
    assert all(b["evidence"] == "tested" and 0 <= b["evidence_age_ms"] < 120000 for b in backends)
    assert [sorted(b["kinds"]) for b in backends] == [["javascript", "project"], ["javascript", "project"], ["javascript"]]
    assert backends[0]["kinds"]["javascript"]["max_timeout_ms"] == 2000
    assert all(b["limits"]["concurrent"] == 16 and b["billed"] is False for b in backends)
    assert "not attestation" in answer.json()["note"]
    assert three.get("/v1/backends", token="x" * 40).status == 401


# -- evidence grows old --


@pytest.mark.faults
def test_stale_evidence_counts_as_none(gateway):
    gw = gateway(SANDBOX_PROVIDER="standin", PLIMSOLL_PROOF_INTERVAL="1s", PLIMSOLL_EVIDENCE_MAX_AGE="2s")
    gw.ok(minimumIsolation="process")
    gw.faults.arm("standin.prove.hang", "fail")
    gw.faults.wait("standin.prove.hang")
    g.wait_for(lambda: gw.run(minimumIsolation="process").status != 200, "the evidence to grow old")
    for floor in ("process", "container", "kernel", "vm"):
        key = g.new_id()
        g.refused(gw.run("1", key, minimumIsolation=floor), "failed_precondition", "isolation", key)
    # without a floor it runs, and says that there is no evidence
    assert gw.describe().json()["isolation"] == "unknown"
    assert gw.ok().json()["isolation"] == "unknown"
    listed = gw.get("/v1/backends").json()["backends"][0]
    assert listed["isolation"] == "unknown" and listed["evidence_age_ms"] > 2000
    assert gw.get("/readyz").status == 503
    gw.faults.disarm("standin.prove.hang")
    g.wait_for(lambda: gw.run(minimumIsolation="container").status == 200, "new evidence")
    assert gw.describe().json()["isolation"] == "container"
    assert gw.get("/readyz").status == 200


@pytest.mark.faults
def test_stale_evidence_moves_a_floored_run_to_the_next_backend(gateway):
    gw = gateway(SANDBOX_PROVIDER="standin,standin2", PLIMSOLL_PROOF_INTERVAL="1s", PLIMSOLL_EVIDENCE_MAX_AGE="2s")
    assert backend_of(gw.ok(minimumIsolation="container")) == "standin"
    gw.faults.arm("standin.prove.hang", "fail")
    g.wait_for(lambda: backend_of(gw.ok(minimumIsolation="container")) == "standin2", "the evidence to grow old")
    assert gw.ok(minimumIsolation="container").json()["isolation"] == "vm"
    gw.faults.disarm("standin.prove.hang")


@pytest.mark.faults
def test_a_refuted_wall_serves_nobody(gateway):
    gw = gateway(SANDBOX_PROVIDER="standin", PLIMSOLL_PROOF_INTERVAL="1s")
    gw.ok()
    gw.faults.arm("standin.prove", "fail")
    g.wait_for(lambda: gw.run().status != 200, "the proof to fail")
    key = g.new_id()
    g.refused(gw.run("1", key), "unavailable", "capacity", key)
    assert gw.get("/readyz").status == 503
    assert gw.get("/v1/backends").json()["backends"][0]["state"] == "failed"
    gw.faults.disarm("standin.prove")
    g.wait_for(lambda: gw.run("1", key).status == 200, "the wall to be proven again")


def test_a_backend_below_the_operators_floor_keeps_the_gateway_down(gateway):
    gw = gateway(start=False, SANDBOX_PROVIDER="standin", PLIMSOLL_STANDIN1="tier=process", SANDBOX_MIN_ISOLATION="container")
    gw.exit_status = 1
    gw.spawn()
    assert gw.wait_exit() == 1
    gw.wait_log("a backend is below SANDBOX_MIN_ISOLATION", backend="standin", isolation="process")


@pytest.mark.faults
def test_below_the_operators_floor_nothing_is_served_even_without_a_floor(gateway):
    gw = gateway(SANDBOX_PROVIDER="standin", SANDBOX_MIN_ISOLATION="container", PLIMSOLL_PROOF_INTERVAL="1s",
                 PLIMSOLL_EVIDENCE_MAX_AGE="2s")
    gw.ok()
    gw.faults.arm("standin.prove.hang", "fail")
    g.wait_for(lambda: gw.run().status != 200, "the evidence to grow old")
    key = g.new_id()
    g.refused(gw.run("1", key), "unavailable", "capacity", key)
    gw.faults.disarm("standin.prove.hang")
    g.wait_for(lambda: gw.run("1", key).status == 200, "new evidence")


# -- a request ID knows no backend --


def test_a_stored_answer_is_given_whichever_backend_the_repetition_names(three):
    key = g.new_id()
    first = three.ok("standin: answer 7", key)
    runs = len(three.given())
    again = three.ok("standin: answer 7", key, path=PINNED.format("standin2"))
    assert backend_of(again) == "standin" and again.json() == first.json()
    assert again.header("Plimsoll-Replayed") == "1" and first.header("Plimsoll-Replayed") is None
    assert again.header("Plimsoll-Run-Id") == first.header("Plimsoll-Run-Id")
    assert len(three.given()) == runs
    assert again.header("Plimsoll-Passed-Over") is None


# -- the official client --


def test_the_official_client_with_the_url_of_one_backend(three):
    client = Client(f"http://127.0.0.1:{three.port}/backends/standin2", token=three.token)
    info = client.describe()
    assert (info.provider, info.isolation) == ("standin2", "vm")
    result = client.run_javascript("standin: answer 3", minimum_isolation="vm",
                                   software=SoftwareRule(mode="exact", identities=(TWO,)))
    assert (result.exit_code, result.stdout_text, result.isolation) == (3, "ok\n", "vm")
    assert result.record.provider == "standin2"
    project_result = client.run_project({"main.sh": "echo"}, ["standin: bytes 256"])
    assert project_result.steps[0].stdout == bytes(range(256))


def test_the_official_client_at_the_root(three):
    client = Client(f"http://127.0.0.1:{three.port}", token=three.token)
    assert client.describe().isolation == "container"
    assert client.run_javascript("1").record.provider == "standin"
    assert client.run_javascript("1", minimum_isolation="kernel").record.provider == "standin2"


def test_the_official_client_gets_the_reasons(three):
    pinned = Client(f"http://127.0.0.1:{three.port}/backends/standin", token=three.token)
    with pytest.raises(InsufficientIsolationError) as e:
        pinned.run_javascript("1", minimum_isolation="vm")
    assert e.value.not_dispatched
    with pytest.raises(SoftwareMismatchError) as e:
        pinned.run_javascript("1", software=SoftwareRule(mode="exact", identities=(TWO,)))
    assert e.value.not_dispatched
    with pytest.raises(AtCapacityError) as e:
        pinned.run_javascript("standin: refuse capacity")
    assert e.value.not_dispatched


# -- the stand-ins stay out of what is shipped --


def test_a_release_build_has_no_stand_in():
    """Neither the names nor the settings are in what a release compiles, and the object is not among its parts."""
    for source in ("config/provider.c", "config/options_table.c"):
        text = subprocess.run(["gcc", "-E", "-P", "-I.", "-D_GNU_SOURCE=", source], cwd=g.ROOT, capture_output=True, check=True).stdout
        assert b"standin" not in text.lower().replace(b"standins", b"").replace(b"stand-ins", b"")
    plan = subprocess.run(["make", "-nB", "VARIANT=release", "OUT=" + str(pathlib.Path("build")), "build/plimsolld"], cwd=g.ROOT,
                          capture_output=True, check=True).stdout
    assert b"standin" not in plan.lower()
