"""Counts and budgets of a caller and of the whole gateway: what is refused, what the refusal says, and that it cost nothing."""
import re
import time

import pytest

import gateway as g
from gateway import RUN, javascript, new_id, refused, wait_for

STANDIN = {"SANDBOX_PROVIDER": "standin", "SANDBOX_MAX_CONCURRENT": "16"}
ONE, TWO = "1" * 40, "2" * 40


def two_callers(gateway, **settings):
    gw = gateway(start=False, **STANDIN, **settings)
    gw.write_callers({"one": ONE, "two": TWO})
    return gw.start()


def quota(answer):
    """(policy, q, w or None, r, t, Retry-After) of a refusal, which must agree with each other (U18)."""
    policy = re.fullmatch(r'"([a-z-]+)";q=(\d+)(?:;w=(\d+))?', answer.header("RateLimit-Policy"))
    state = re.fullmatch(r'"([a-z-]+)";r=(\d+);t=(\d+)', answer.header("RateLimit"))
    assert policy and state and policy.group(1) == state.group(1), answer
    retry = answer.header("Retry-After")
    assert re.fullmatch(r"[1-9]\d*", retry) and retry == state.group(3), answer
    return policy.group(1), int(policy.group(2)), policy.group(3) and int(policy.group(3)), int(state.group(2)), int(retry)


def capped(answer, policy, scope):
    refused(answer, "resource_exhausted", "capacity")
    assert answer.status == 429
    told = quota(answer)
    assert told[0] == policy and told[3] == 0
    assert ("this caller" in answer.message) == (scope == "caller"), answer.message
    assert ("all callers" in answer.message or "over all its copies" in answer.message) == (scope == "gateway"), answer.message
    return told


def until_refused(call, most):
    """The answers up to and with the first 429; a busy machine gives more room back meanwhile."""
    answers = []
    while not answers or answers[-1].status == 200:
        assert len(answers) < most
        answers.append(call())
    return answers


def runs(gw):
    return gw.metric("plimsoll_runs_total")


def test_the_61st_of_a_minute_waits_as_long_as_it_is_told(gateway):
    """U18: waiting exactly that long, then sending, succeeds."""
    gw = gateway(**STANDIN, SANDBOX_RATE_PER_MIN="60", SANDBOX_RATE_BURST="60")
    with gw.connect() as c:
        answers = until_refused(lambda: gw.run("standin: answer", on=c), 300)
    assert len(answers) > 60  # as many as the burst, and what came back meanwhile
    policy, q, w, _, retry = capped(answers[-1], "runs", "caller")
    assert (q, w) == (60, 60) and retry == 1
    time.sleep(retry)
    assert gw.run("standin: answer").status == 200


def test_what_is_refused_for_a_slot_spends_no_rate(gateway):
    """U19."""
    gw = gateway(**STANDIN, SANDBOX_RATE_PER_MIN="2", SANDBOX_RATE_BURST="2", SANDBOX_PER_KEY_CONCURRENT="1")
    code, barrier = gw.barrier()
    first = gw.in_background(code)
    gw.wait_inflight(1)
    for _ in range(5):
        assert capped(gw.run("standin: answer"), "slots", "caller")[1] == 1
    barrier.unlink()
    assert first.join().status == 200
    assert gw.run("standin: answer").status == 200
    capped(gw.run("standin: answer"), "runs", "caller")


def test_the_gateways_slots_are_all_callers_together(gateway):
    gw = two_callers(gateway, PLIMSOLL_TOTAL_CONCURRENT="1")
    code, barrier = gw.barrier()
    first = gw.in_background(code, token=ONE)
    gw.wait_inflight(1)
    answer = gw.run("standin: answer", token=TWO)
    capped(answer, "gateway-slots", "gateway")
    assert not re.search(r"\d", answer.message), "no number of others"
    assert gw.metric('plimsoll_quota_shed_total{scope="gateway",cap="slots"}') == 1
    barrier.unlink()
    assert first.join().status == 200
    assert gw.run("standin: answer", token=TWO).status == 200


def test_the_gateways_rate_is_all_callers_together(gateway):
    gw = two_callers(gateway, PLIMSOLL_TOTAL_RATE_PER_MIN="6", PLIMSOLL_TOTAL_RATE_BURST="2")
    assert gw.run("standin: answer", token=ONE).status == 200
    assert gw.run("standin: answer", token=TWO).status == 200
    told = capped(gw.run("standin: answer", token=ONE), "gateway-runs", "gateway")
    assert told[1] == 2 and told[4] <= 10
    assert gw.metric('plimsoll_quota_shed_total{scope="gateway",cap="rate"}') == 1


def test_runs_of_a_window(gateway):
    gw = two_callers(gateway, PLIMSOLL_RUNS_PER_WINDOW="2", PLIMSOLL_RUNS_WINDOW="24h")
    for _ in range(2):
        assert gw.run("standin: answer", token=ONE).status == 200
    answer = gw.run("standin: answer", token=ONE)
    policy, q, w, _, retry = capped(answer, "window", "caller")
    assert (q, w) == (2, 86400) and 1 <= retry <= 86400
    assert gw.run("standin: answer", token=TWO).status == 200
    usage = gw.get("/v1/usage", token=ONE).json()
    assert usage["window"]["runs"] == 2 and usage["window"]["limit"] == 2 and usage["window"]["seconds"] == 86400
    assert abs(usage["window"]["resets_in_ms"] / 1000 - retry) < 30


def test_runs_of_a_window_of_all_callers(gateway):
    gw = two_callers(gateway, PLIMSOLL_TOTAL_RUNS_PER_WINDOW="3", PLIMSOLL_RUNS_WINDOW="24h")
    for token in (ONE, TWO, ONE):
        assert gw.run("standin: answer", token=token).status == 200
    for token in (ONE, TWO):
        answer = gw.run("standin: answer", token=token)
        capped(answer, "gateway-window", "gateway")


def test_a_window_begins_anew(gateway):
    gw = gateway(**STANDIN, PLIMSOLL_RUNS_PER_WINDOW="1", PLIMSOLL_RUNS_WINDOW="2s")
    answers = until_refused(lambda: gw.run("standin: answer"), 100)
    time.sleep(quota(answers[-1])[4])
    assert gw.run("standin: answer").status == 200


def test_a_refused_run_of_a_backend_spends_nothing(gateway):
    gw = gateway(**STANDIN, PLIMSOLL_RUNS_PER_WINDOW="1", PLIMSOLL_RUNS_WINDOW="24h", PLIMSOLL_SECONDS_PER_DAY="40",
                 SANDBOX_RATE_PER_MIN="1", SANDBOX_RATE_BURST="1")
    for _ in range(3):
        answer = gw.run("standin: refuse capacity", timeoutMs=20000)
        refused(answer, "resource_exhausted", "capacity")
        assert "backend" not in (answer.header("RateLimit") or "") and answer.header("RateLimit") is None
    assert gw.run("standin: answer", timeoutMs=20000).status == 200
    assert gw.get("/v1/usage").json()["sandbox_ms"]["held"] == 0


def test_sandbox_seconds_of_a_day_hold_the_worst_case(gateway):
    gw = gateway(**STANDIN, PLIMSOLL_SECONDS_PER_DAY="60")
    code, barrier = gw.barrier()
    first = gw.in_background(code, timeoutMs=40000)
    gw.wait_inflight(1)
    usage = gw.get("/v1/usage").json()
    assert usage["sandbox_ms"]["held"] == 40000 and usage["sandbox_ms"]["limit"] == 60000 and usage["slots"]["used"] == 1
    answer = gw.run("standin: answer", timeoutMs=30000)
    policy, q, w, _, retry = capped(answer, "seconds", "caller")
    assert (q, w) == (60, 86400) and retry <= 86400 and "40" in answer.message and "30" in answer.message
    assert gw.run("standin: answer", timeoutMs=10000).status == 200
    barrier.unlink()
    assert first.join().status == 200
    usage = wait_for(lambda: (lambda u: u if u["sandbox_ms"]["held"] == 0 else None)(gw.get("/v1/usage").json()), "nothing held")
    assert 0 < usage["sandbox_ms"]["spent"] < 40000 and usage["runs"] == 2 and usage["slots"]["used"] == 0
    assert gw.run("standin: answer", timeoutMs=30000).status == 200


def test_a_timeout_no_day_has_room_for_is_told_so(gateway):
    gw = gateway(**STANDIN, PLIMSOLL_SECONDS_PER_DAY="10")
    answer = gw.run("standin: answer", timeoutMs=10001)
    capped(answer, "seconds", "caller")
    assert "no day has enough" in answer.message
    assert gw.run("standin: answer", timeoutMs=10000).status == 200
    assert runs(gw) == 1


def test_sandbox_seconds_of_all_callers(gateway):
    gw = two_callers(gateway, PLIMSOLL_TOTAL_SECONDS_PER_DAY="50")
    code, barrier = gw.barrier()
    first = gw.in_background(code, timeoutMs=40000, token=ONE)
    gw.wait_inflight(1)
    answer = gw.run("standin: answer", timeoutMs=20000, token=TWO)
    capped(answer, "gateway-seconds", "gateway")
    said = re.sub(r"resets in \d+ s", "", answer.message)  # that is the time of day
    assert "40" not in said and "50" not in said
    # the other's own page says nothing of it either
    own = gw.get("/v1/usage", token=TWO).json()["sandbox_ms"]
    assert (own["spent"], own["held"], own["limit"]) == (0, 0, None)
    barrier.unlink()
    first.join()


def test_caps_hold_over_all_copies(gateway, redis):
    settings = {**STANDIN, "PLIMSOLL_REDIS_URL": redis.url, "PLIMSOLL_RUNS_PER_WINDOW": "10", "PLIMSOLL_RUNS_WINDOW": "24h"}
    copies = [gateway(**settings)]
    copies += [gateway(**settings, PLIMSOLL_TOKEN=copies[0].token) for _ in range(2)]
    for copy in copies:
        copy.token = copies[0].token
    answers = [job.join() for job in [copies[n % 3].in_background("standin: answer") for n in range(30)]]
    assert sorted(a.status for a in answers) == [200] * 10 + [429] * 20
    assert sum(runs(copy) for copy in copies) == 10
    for answer in answers:
        if answer.status == 429:
            capped(answer, "window", "caller")


def test_joins_and_replays_take_nothing(gateway):
    gw = gateway(**STANDIN, PLIMSOLL_RUNS_PER_WINDOW="1", PLIMSOLL_RUNS_WINDOW="24h", PLIMSOLL_SECONDS_PER_DAY="10")
    request_id = new_id()
    sent = javascript("standin: answer", timeoutMs=10000)
    for _ in range(4):
        assert gw.post(RUN, sent, request_id).status == 200
    usage = gw.get("/v1/usage").json()
    assert usage["window"]["runs"] == 1 and usage["runs"] == 1


def test_usage_without_caps(gateway):
    gw = gateway(**STANDIN)
    usage = gw.get("/v1/usage").json()
    assert usage["caller"] == "static" and re.fullmatch(r"\d{8}", usage["day"]) and usage["runs"] == 0
    assert usage["slots"] == {"used": 0, "limit": None} and usage["rate"] is None
    assert usage["window"]["limit"] is None and usage["window"]["seconds"] == 3600 and 0 < usage["window"]["resets_in_ms"] <= 3600000
    for budget in ("sandbox_ms", "paid_ms"):
        assert usage[budget]["limit"] is None and usage[budget]["spent"] == 0 and 0 < usage[budget]["resets_in_ms"] <= 86400000
    assert usage["cost"]["spent"] == "0" and usage["cost"]["limit"] is None and usage["cost"]["currency"] is None


def test_usage_takes_no_query_and_needs_a_caller(gateway):
    gw = gateway(**STANDIN)
    assert gw.get("/v1/usage?x=1").status == 400
    assert gw.get("/v1/usage", token="x" * 40).status == 401
    assert gw.get("/v1/usage", method="POST").status == 405


def test_usage_without_redis_says_so(gateway, redis):
    gw = gateway(**STANDIN, PLIMSOLL_REDIS_URL=redis.url)
    redis.stop()
    began = time.monotonic()
    answer = gw.get("/v1/usage")
    assert answer.status == 503 and answer.header("Retry-After") == "1"
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("settings, says", [
    ({"PLIMSOLL_COST_PER_DAY": "1"}, "PLIMSOLL_COST_PER_DAY is set without PLIMSOLL_PRICES_FILE"),
    ({"PLIMSOLL_TOTAL_COST_PER_DAY": "1.0000001"}, "at most 6 places"),
    ({"PLIMSOLL_RUNS_WINDOW": "1500ms"}, "whole seconds"),
    ({"PLIMSOLL_RUNS_PER_WINDOW": "3", "PLIMSOLL_TOTAL_RUNS_PER_WINDOW": "2"}, "above PLIMSOLL_TOTAL_RUNS_PER_WINDOW"),
    ({"PLIMSOLL_TOTAL_RATE_BURST": "3"}, "without PLIMSOLL_TOTAL_RATE_PER_MIN"),
    ({"PLIMSOLL_ANSWER_RETENTION": "2h", "PLIMSOLL_RUN_RETENTION": "1h"}, "longer than PLIMSOLL_RUN_RETENTION"),
    ({"PLIMSOLL_PRICES_FILE": "/nonexistent/prices.json"}, "cannot be read"),
])
def test_settings_that_contradict_each_other_do_not_start(gateway, settings, says):
    gw = gateway(start=False, **STANDIN, **settings)
    gw.exit_status = 78
    gw.clean_exit = False
    gw.spawn()
    assert gw.wait_exit() != 0
    assert says in gw.log()
