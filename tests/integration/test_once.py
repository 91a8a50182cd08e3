"""A request ID is dispatched at most once, per caller, whoever sends it how often and to whichever copy: joined while it runs, answered from
the store afterwards, refused with another request."""
import json
import os
import secrets
import signal
import threading
import time

import pytest

import gateway as g
import resp
from gateway import RUN, failed, field, javascript, new_id, refused, wait_for

STANDIN = {"SANDBOX_PROVIDER": "standin"}
BUSY = "const t = Date.now(); while (Date.now() - t < {ms}); console.log(Math.random())"


def at_once(calls):
    """All calls from threads that start together."""
    gate = threading.Barrier(len(calls))

    def held(call):
        gate.wait(g.ANSWER_S)
        return call()
    return [j.join() for j in [g.Background(lambda call=call: held(call)) for call in calls]]


def claims(gw, outcome):
    return gw.metric(f'plimsoll_claims_total{{outcome="{outcome}"}}')


def same_record(sent, answers):
    """Every answer holds the same, right record."""
    assert all(a.status == 200 for a in answers), [a for a in answers if a.status != 200][:3]
    bodies = {a.body for a in answers}
    assert len(bodies) == 1
    assert len({a.header("Plimsoll-Run-Id") for a in answers}) == 1
    return g.check_record(sent, answers[0])


@pytest.mark.parametrize("ms", [0, 400])
def test_the_same_request_200_times_at_once_runs_once(gateway, ms):
    gw = gateway()
    request_id = new_id()
    sent = javascript(BUSY.format(ms=ms), timeoutMs=10000)
    answers = at_once([lambda: gw.post(RUN, sent, request_id)] * 200)
    same_record(sent, answers)
    assert gw.metric("plimsoll_runs_total") == 1
    assert all(a.header("Plimsoll-Request-Id") == request_id for a in answers)
    # all but the one that ran say that theirs is a replay
    assert [a.header("Plimsoll-Replayed") for a in answers].count("1") == 199
    assert claims(gw, "joined") + claims(gw, "replayed") == 199
    # with another body it is refused, as is another 200 times
    answers = at_once([lambda: gw.post(RUN, javascript("2"), request_id)] * 200)
    for answer in answers:
        refused(answer, "invalid_argument", "request", request_id)
    assert gw.metric("plimsoll_runs_total") == 1 and len(gw.get("/v1/runs").json()["runs"]) == 1


def test_with_one_place_slot_and_rate_the_same_request_is_answered_every_time(gateway):
    """Whoever joins or replays takes nothing: one slot and one start serve all."""
    gw = gateway(SANDBOX_MAX_CONCURRENT="1", SANDBOX_PER_KEY_CONCURRENT="1", SANDBOX_RATE_PER_MIN="1")
    request_id = new_id()
    sent = javascript(BUSY.format(ms=300))
    answers = at_once([lambda: gw.post(RUN, sent, request_id)] * 20)
    # one caller may hold one decode slot here, so some are shed before they are read; nothing else may be
    shed = [a for a in answers if a.status != 200]
    assert all(a.header("Plimsoll-Not-Dispatched") == "request" and a.reason == "capacity" and "being read" in a.message for a in shed)
    same_record(sent, [a for a in answers if a.status == 200])
    for _ in range(3):
        assert gw.post(RUN, sent, request_id).header("Plimsoll-Replayed") == "1"
    assert gw.metric("plimsoll_runs_total") == 1
    assert gw.run().status == 429


def test_a_replay_after_the_end(gw):
    request_id = new_id()
    first = gw.ok("console.log(Math.random()); throw 1", request_id)
    assert first.header("Plimsoll-Replayed") is None
    for _ in range(3):
        again = gw.ok("console.log(Math.random()); throw 1", request_id)
        assert again.header("Plimsoll-Replayed") == "1" and again.body == first.body
        assert again.header("Plimsoll-Run-Id") == first.header("Plimsoll-Run-Id")
        assert again.header("Plimsoll-Backend") == "wasm"


def test_replays_of_every_form_of_the_same_request(gw):
    """The digest decides, not the bytes: JSON in other words, the binary form and another trace ID are the same request."""
    request_id = new_id()
    first = gw.ok("console.log(Math.random())", request_id, timeoutMs=2000)
    record = first.json()["record"]["recordSha256"]
    forms = ['{"javascript":{"code":"console.log(Math.random())"},"timeout_ms":"2000","protocol":4,"unknown":1}',
             json.dumps(javascript("console.log(Math.random())", timeoutMs=2000, traceId="another"))]
    for text in forms:
        again = gw.post(RUN, text, request_id)
        assert again.body == first.body and again.header("Plimsoll-Replayed") == "1"
    binary = gw.post(RUN, field(1, 4) + field(4, 2000) + field(10, field(1, "console.log(Math.random())")), request_id,
                     content_type="application/proto")
    assert g.fields(g.fields(binary.body)[4][0])[13] == [record.encode()]


@pytest.mark.parametrize("other", [javascript("console.log(2)"), javascript(protocol=3, code="console.log(1)"),
                                   javascript("console.log(1)", timeoutMs=1), javascript("console.log(1)", minimumIsolation="process")],
                         ids=["code", "protocol", "timeout", "floor"])
def test_the_same_id_with_another_request(gw, other):
    request_id = new_id()
    gw.ok("console.log(1)", request_id)
    before = gw.metrics()
    refused(gw.post(RUN, other, request_id), "invalid_argument", "request", request_id)
    after = gw.metrics()
    assert after["plimsoll_runs_total"] == before["plimsoll_runs_total"]
    assert after['plimsoll_claims_total{outcome="conflict"}'] == before['plimsoll_claims_total{outcome="conflict"}'] + 1
    # the first request is still answered
    assert gw.ok("console.log(1)", request_id).header("Plimsoll-Replayed") == "1"


def test_another_request_while_the_first_runs(gw):
    request_id = new_id()
    before = gw.metric("plimsoll_runs_total")
    with gw.start_run(BUSY.format(ms=700), request_id) as c:
        gw.wait_metric("plimsoll_runs_total", before + 1)
        refused(gw.run("2", request_id), "invalid_argument", "request", request_id)
        assert c.read_answer().status == 200


def test_requests_without_a_valid_id_run_each_time(gw):
    before = gw.metric("plimsoll_runs_total")
    answers = [gw.ok("console.log(Math.random())") for _ in range(2)]
    bad = [gw.run("console.log(Math.random())", headers=[("Plimsoll-Request-Id", "A" * 32)]) for _ in range(2)]
    assert len({a.body for a in answers + bad}) == 4
    assert all(a.header("Plimsoll-Replayed") is None for a in answers + bad)
    assert gw.metric("plimsoll_runs_total") == before + 4


def test_a_required_id(gateway):
    gw = gateway(PLIMSOLL_REQUIRE_REQUEST_ID="1")
    for headers in ([], [("Plimsoll-Request-Id", "A" * 32)], [("Plimsoll-Request-Id", "0" * 31)],
                    [("Plimsoll-Request-Id", "0" * 32), ("Plimsoll-Request-Id", "1" * 32)]):
        answer = gw.run(headers=headers)
        refused(answer, "invalid_argument", "request")
        assert "Plimsoll-Request-Id" in answer.message
    gw.ok("1", new_id())
    assert gw.describe().status == 200 and gw.get("/healthz").status == 200
    assert gw.metric("plimsoll_runs_total") == 1


def test_ids_belong_to_their_caller(gateway):
    tokens = {n: secrets.token_hex(20) for n in "ab"}
    gw = gateway(start=False, auth=False)
    gw.write_callers(tokens)
    gw.start()
    request_id = new_id()
    a = gw.run("console.log(Math.random())", request_id, token=tokens["a"])
    b = gw.run("console.log(Math.random())", request_id, token=tokens["b"])
    assert a.status == b.status == 200 and a.body != b.body and b.header("Plimsoll-Replayed") is None
    # another request of the other caller is no conflict
    other = new_id()
    assert gw.run("1", other, token=tokens["a"]).status == 200
    assert gw.run("2", other, token=tokens["b"]).status == 200
    # nor does a caller see the other's runs
    run_id = a.header("Plimsoll-Run-Id")
    assert gw.get("/v1/runs/" + run_id, token=tokens["a"]).status == 200
    answer = gw.get("/v1/runs/" + run_id, token=tokens["b"])
    assert answer.status == 404 and answer.code == "not_found"
    listed = gw.get("/v1/runs", token=tokens["b"]).json()["runs"]
    assert len(listed) == 2 and run_id not in {r["run_id"] for r in listed}


# -- what frees an ID and what does not --


def test_a_refusal_without_dispatch_takes_no_id(gw):
    request_id = new_id()
    assert gw.run("x", request_id, minimumIsolation="vm").status == 400
    assert gw.post(RUN, b"{", request_id).status == 400
    assert gw.run("", request_id).status == 400
    assert gw.post(RUN, {"protocol": 9}, request_id).status == 501
    assert gw.ok("1", request_id).header("Plimsoll-Replayed") is None


@pytest.mark.faults
@pytest.mark.parametrize("reason", ["capacity", "unsupported", "isolation", "environment", "request"])
def test_a_run_its_wall_refused_frees_its_id(gateway, reason):
    gw = gateway(**STANDIN)
    request_id = new_id()
    for _ in range(2):
        answer = gw.run("standin: refuse " + reason, request_id)
        assert answer.reason == reason and answer.header("Plimsoll-Not-Dispatched") is None, answer
    # free for any request
    assert gw.ok("standin: answer", request_id).header("Plimsoll-Replayed") is None


@pytest.mark.faults
def test_those_who_wait_for_a_refused_run_are_refused_alike(gateway):
    gw = gateway(SANDBOX_MAX_CONCURRENT="32", **STANDIN)
    code, barrier = gw.barrier()
    code += "\nstandin: refuse capacity 2000"
    request_id = new_id()
    jobs = [gw.in_background(code, request_id) for _ in range(10)]
    gw.wait_inflight(1)
    wait_for(lambda: claims(gw, "joined") == 9, "nine to wait for the one")
    barrier.unlink()
    for job in jobs:
        answer = job.join()
        refused(answer, "resource_exhausted", "capacity", request_id)
        assert answer.header("Retry-After") == "2"
    assert gw.metric("plimsoll_runs_total") == 1


@pytest.mark.faults
@pytest.mark.parametrize("act, code", [("fail internal", "internal"), ("fail unavailable", "unavailable"), ("fail deadline_exceeded", "deadline_exceeded"),
                                       ("lie kind", "internal"), ("exit", "unavailable")])
def test_a_run_whose_outcome_is_unknown_keeps_its_id(gateway, act, code):
    gw = gateway(**STANDIN)
    gw.settings["PLIMSOLL_STANDIN_LOG"] = str(gw.home / "given")
    request_id = new_id()
    first = gw.run("standin: " + act, request_id)
    g.failed(first, code, request_id)
    runs = gw.metric("plimsoll_runs_total")
    for _ in range(2):
        again = gw.run("standin: " + act, request_id)
        g.failed(again, code, request_id)
        assert again.header("Plimsoll-Run-Id") == first.header("Plimsoll-Run-Id")
    refused(gw.run("standin: answer", request_id), "invalid_argument", "request", request_id)
    assert gw.metric("plimsoll_runs_total") == runs


@pytest.mark.faults
def test_those_who_wait_for_a_failing_run_fail_alike(gateway):
    gw = gateway(SANDBOX_MAX_CONCURRENT="32", **STANDIN)
    code, barrier = gw.barrier()
    code += "\nstandin: fail internal"
    request_id = new_id()
    jobs = [gw.in_background(code, request_id) for _ in range(5)]
    wait_for(lambda: claims(gw, "joined") == 4, "four to wait for the one")
    barrier.unlink()
    answers = [j.join() for j in jobs]
    for answer in answers:
        g.failed(answer, "internal", request_id)
        assert "detail that is not the caller's" not in answer.message
    assert gw.metric("plimsoll_runs_total") == 1


@pytest.mark.faults
@pytest.mark.parametrize("leave", ["close", "half_close", "reset"])
def test_a_run_goes_on_for_those_who_wait_when_its_first_caller_leaves(gateway, leave):
    gw = gateway(SANDBOX_MAX_CONCURRENT="8", **STANDIN)
    code, barrier = gw.barrier()
    request_id = new_id()
    first = gw.start_run(code, request_id)
    gw.wait_inflight(1)
    second = gw.in_background(code, request_id)
    wait_for(lambda: claims(gw, "joined") == 1, "the second to wait")
    third = gw.start_run(code, request_id)
    wait_for(lambda: claims(gw, "joined") == 2, "the third to wait")
    getattr(third, leave)()  # one who waits leaves alone
    wait_for(lambda: gw.metric('plimsoll_canceled_total{cause="hang_up"}') == 1, "the third's hang-up to be seen")
    getattr(first, leave)()
    # the hang-up is seen, and the run is not stopped
    wait_for(lambda: gw.metric('plimsoll_canceled_total{cause="hang_up"}') == 2, "the first's hang-up to be seen")
    assert gw.metric("plimsoll_inflight") == 1 and not second.is_over
    barrier.unlink()
    answer = second.join()
    assert answer.status == 200 and answer.header("Plimsoll-Replayed") == "1", answer
    g.check_record(javascript(code), answer)
    assert g.stdout(answer) == b"ok\n"
    first.close()
    third.close()


@pytest.mark.faults
@pytest.mark.parametrize("leave", ["close", "half_close", "reset"])
def test_a_run_that_went_on_for_others_is_stopped_when_the_last_of_them_leaves(gateway, leave):
    gw = gateway(SANDBOX_MAX_CONCURRENT="8", **STANDIN)
    request_id = new_id()
    code = "standin: hold 20000"
    first = gw.start_run(code, request_id)
    gw.wait_inflight(1)
    second = gw.start_run(code, request_id)
    wait_for(lambda: claims(gw, "joined") == 1, "the second to wait")
    getattr(first, leave)()
    wait_for(lambda: gw.metric('plimsoll_canceled_total{cause="hang_up"}') == 1, "the first's hang-up to be seen")
    assert gw.metric("plimsoll_inflight") == 1
    getattr(second, leave)()
    gw.wait_inflight(0, 3)
    assert gw.metric('plimsoll_canceled_total{cause="hang_up"}') == 2
    first.close()
    second.close()


@pytest.mark.faults
def test_a_run_is_dispatched_for_those_who_wait_when_its_first_caller_leaves_before_that(gateway, redis):
    gw = gateway(PLIMSOLL_REDIS_URL=redis.url, **STANDIN)
    for _ in range(20):
        before = gw.metrics()
        request_id = new_id()
        redis.signal(signal.SIGSTOP)  # the claim waits; an answer that takes over 250 ms would be a refusal
        first = gw.start_run("standin: answer", request_id)
        try:
            second = gw.start_run("standin: answer", request_id)
            wait_for(lambda: claims(gw, "joined") > before['plimsoll_claims_total{outcome="joined"}'] or
                     gw.metric('plimsoll_gateway_shed_total{reason="store"}') > before['plimsoll_gateway_shed_total{reason="store"}'], "the second to wait")
            first.close()
            wait_for(lambda: gw.metric('plimsoll_canceled_total{cause="hang_up"}') > before['plimsoll_canceled_total{cause="hang_up"}'] or
                     gw.metric('plimsoll_gateway_shed_total{reason="store"}') > before['plimsoll_gateway_shed_total{reason="store"}'], "the hang-up to be seen")
        finally:
            redis.signal(signal.SIGCONT)
        answer = second.read_answer()
        second.close()
        if gw.metric('plimsoll_gateway_shed_total{reason="store"}') == before['plimsoll_gateway_shed_total{reason="store"}']:
            assert answer.status == 200, answer
            g.check_record(javascript("standin: answer"), answer)
            return
        wait_for(lambda: gw.get("/readyz").status == 200, "the store to be back")
    pytest.skip("this machine is too slow for a claim of 250 ms")


@pytest.mark.faults
def test_a_known_outcome_is_told_also_when_no_backend_is_ready(gateway):
    """A mark that nothing ran would be believed of the ID as a whole, and the request sent anew under another one."""
    gw = gateway(start=False, PLIMSOLL_PROOF_INTERVAL="1s", **STANDIN)
    gw.start()
    answered, failing = new_id(), new_id()
    first = gw.ok("standin: answer", answered, minimumIsolation="process")
    g.failed(gw.run("standin: fail unavailable", failing), "unavailable", failing)
    with gw.faults.armed("standin.prove", "fail"):
        wait_for(lambda: gw.get("/readyz").status == 503, "the backend to fail its proof")
        again = gw.ok("standin: answer", answered, minimumIsolation="process")
        assert again.body == first.body and again.header("Plimsoll-Replayed") == "1"
        g.failed(gw.run("standin: fail unavailable", failing), "unavailable", failing)
        refused(gw.run("standin: answer", failing), "invalid_argument", "request", failing)
        # an ID that is free is refused with the reason, and stays free
        fresh = new_id()
        refused(gw.run("standin: answer", fresh), "unavailable", "capacity", fresh)
        refused(gw.run("standin: answer"), "unavailable", "capacity")
        refused(gw.run("standin: answer", fresh, minimumIsolation="process"), "failed_precondition", "isolation", fresh)
    wait_for(lambda: gw.get("/readyz").status == 200, "the backend to prove itself again")
    assert gw.ok("standin: answer", fresh).header("Plimsoll-Replayed") is None


@pytest.mark.faults
def test_an_answer_up_to_1_mib_is_kept_and_a_larger_one_is_told_as_gone(gateway):
    gw = gateway(**STANDIN)
    for size, kept in ((1024 * 1024 - 1000, True), (1024 * 1024, False)):
        request_id = new_id()
        first = gw.ok(f"standin: bytes {size}", request_id)
        again = gw.run(f"standin: bytes {size}", request_id)
        if kept:
            assert again.body == first.body and again.header("Plimsoll-Replayed") == "1"
        else:
            g.failed(again, "already_exists", request_id)
            assert again.header("Plimsoll-Run-Id") == first.header("Plimsoll-Run-Id")
            stored = gw.get("/v1/runs/" + first.header("Plimsoll-Run-Id")).json()
            assert stored["record"] == first.json()["record"]
        assert gw.metric("plimsoll_runs_total") in (1, 2)


@pytest.mark.parametrize("at", ["output", "record", "middle", "end"])
def test_a_stored_answer_that_was_changed_was_told_as_the_run_s_own(gateway, redis, at):
    gw = gateway(PLIMSOLL_REDIS_URL=redis.url, **STANDIN)
    request_id = new_id()
    first = gw.ok("standin: answer", request_id)
    assert gw.ok("standin: answer", request_id).body == first.body
    run_id = first.header("Plimsoll-Run-Id")
    with resp.Client(redis.port) as direct:
        key, = direct.keys(f"*:answer:{run_id}")
        kept = direct("GET", key)
        place = {"output": kept.index(b"ok\n"), "record": kept.index(first.json()["record"]["recordSha256"].encode()), "middle": len(kept) // 2,
                 "end": len(kept) - 1}[at]
        direct("SET", key, kept[:place] + bytes([kept[place] ^ 1]) + kept[place + 1:])
    again = gw.run("standin: answer", request_id)
    failed(again, "already_exists", request_id)
    assert run_id in again.message and "damaged" in again.message
    found = gw.get(f"/v1/runs/by-key/{request_id}").json()
    assert found["state"] == "answered" and found["response"] is None and "damaged" in found["error"]
    assert found["record"] == first.json()["record"]
    assert gw.wait_log("stored_answer_corrupt", run_id=run_id)
    assert gw.metric("plimsoll_runs_total") == 1


# -- two copies that share a Redis --


@pytest.fixture
def pair(gateway, redis):
    token = secrets.token_hex(24)

    def make(**settings):
        pair = [gateway(PLIMSOLL_REDIS_URL=redis.url, PLIMSOLL_TOKEN=token, **settings) for _ in range(2)]
        for gw in pair:
            gw.token = token
            gw.secrets.append(token)
        return pair
    return make


def runs_of(copies):
    return sum(gw.metric("plimsoll_runs_total") for gw in copies)


@pytest.mark.parametrize("ms", [0, 400])
def test_the_same_request_at_two_copies_runs_once(pair, ms):
    copies = pair(SANDBOX_RATE_PER_MIN="1", SANDBOX_PER_KEY_CONCURRENT="1", SANDBOX_MAX_CONCURRENT="64")
    request_id = new_id()
    sent = javascript(BUSY.format(ms=ms), timeoutMs=10000)
    answers = at_once([lambda gw=gw: gw.post(RUN, sent, request_id) for gw in copies for _ in range(25)])
    same_record(sent, answers)
    assert runs_of(copies) == 1
    assert [a.header("Plimsoll-Replayed") for a in answers].count("1") == 49
    for gw in copies:
        refused(gw.run("2", request_id), "invalid_argument", "request", request_id)
        again = gw.post(RUN, sent, request_id)
        assert again.body == answers[0].body and again.header("Plimsoll-Replayed") == "1"


def test_many_requests_at_two_copies(pair):
    copies = pair(SANDBOX_MAX_CONCURRENT="64")
    ids = [new_id() for _ in range(30)]
    answers = at_once([lambda gw=gw, n=n: (n, gw.run(f"console.log({n}, Math.random())", ids[n])) for n in range(30) for gw in copies])
    for n in range(30):
        same_record(javascript(f"console.log({n}, Math.random())"), [a for m, a in answers if m == n])
    assert runs_of(copies) == 30


def held_and_waited_for(copies, then="answer"):
    """A run held at the first copy, and the same request waiting for it at the second."""
    code, barrier = copies[0].barrier()
    code += f"\nstandin: {then}"
    request_id = new_id()
    first = copies[0].in_background(code, request_id)
    copies[0].wait_inflight(1)
    second = copies[1].in_background(code, request_id)
    wait_for(lambda: claims(copies[1], "joined") == 1, "the second copy to wait")
    return code, barrier, request_id, first, second


@pytest.mark.faults
def test_who_waits_at_another_copy_is_answered_as_soon_as_the_run_is(pair):
    copies = pair(**STANDIN)
    code, barrier, request_id, first, second = held_and_waited_for(copies)
    refused(copies[1].run("standin: answer", request_id), "invalid_argument", "request", request_id)
    barrier.unlink()
    a, b = first.join(), second.join(5)
    same_record(javascript(code), [a, b])
    assert runs_of(copies) == 1


@pytest.mark.faults
def test_who_waits_at_another_copy_for_a_run_that_is_refused_may_send_again(pair):
    copies = pair(**STANDIN)
    code, barrier, request_id, first, second = held_and_waited_for(copies, then="refuse capacity")
    barrier.unlink()
    refused(first.join(), "resource_exhausted", "capacity", request_id)
    refused(second.join(), "resource_exhausted", "capacity", request_id)
    assert copies[1].ok("standin: answer", request_id).header("Plimsoll-Replayed") is None


@pytest.mark.faults
@pytest.mark.parametrize("loss", ["its claim", "everything"])
def test_who_waits_for_a_run_whose_claim_redis_lost_is_not_told_that_nothing_ran(pair, redis, loss):
    """It was marked as never dispatched, while it ran: sent again elsewhere, it ran twice."""
    copies = pair(**STANDIN)
    code, barrier, request_id, first, second = held_and_waited_for(copies)
    with resp.Client(redis.port) as direct:
        if loss == "everything":
            direct("FLUSHALL")
        else:
            assert direct("DEL", *direct.keys(f"*:claim:{request_id}")) == 1
    answer = second.join()
    failed(answer, "unavailable", request_id)
    assert "may have run" in answer.message
    barrier.unlink()
    assert first.join().status == 200
    assert copies[1].ok(code, request_id).header("Plimsoll-Replayed") == "1"  # who made it has settled it


@pytest.mark.faults
def test_who_waits_at_another_copy_and_leaves_stops_nothing(pair):
    copies = pair(**STANDIN)
    code, barrier = copies[0].barrier()
    request_id = new_id()
    first = copies[0].in_background(code, request_id)
    copies[0].wait_inflight(1)
    second = copies[1].start_run(code, request_id)
    wait_for(lambda: claims(copies[1], "joined") == 1, "the second copy to wait")
    second.close()
    copies[1].wait_metric('plimsoll_canceled_total{cause="hang_up"}', 1)
    assert not first.is_over
    barrier.unlink()
    assert first.join().status == 200


@pytest.mark.faults
def test_who_waits_behind_one_that_waits_at_another_copy_is_not_canceled_with_it(pair):
    copies = pair(**STANDIN)
    code, barrier = copies[0].barrier()
    request_id = new_id()
    first = copies[0].in_background(code, request_id)
    copies[0].wait_inflight(1)
    second = copies[1].start_run(code, request_id)
    wait_for(lambda: claims(copies[1], "joined") == 1, "the second copy to wait")
    third = copies[1].in_background(code, request_id)
    wait_for(lambda: claims(copies[1], "joined") == 2, "another to wait behind it")
    second.close()
    copies[1].wait_metric('plimsoll_canceled_total{cause="hang_up"}', 1)
    time.sleep(0.5)  # over several looks at the claim
    assert not third.is_over
    barrier.unlink()
    same_record(javascript(code), [first.join(), third.join()])


@pytest.mark.faults
def test_a_failure_is_told_at_another_copy(pair):
    copies = pair(**STANDIN)
    request_id = new_id()
    g.failed(copies[0].run("standin: fail unavailable", request_id), "unavailable", request_id)
    g.failed(copies[1].run("standin: fail unavailable", request_id), "unavailable", request_id)
    assert runs_of(copies) == 1


@pytest.mark.faults
def test_slots_and_rate_are_of_the_caller_at_all_copies(pair):
    copies = pair(SANDBOX_PER_KEY_CONCURRENT="1", SANDBOX_RATE_PER_MIN="3", **STANDIN)
    code, barrier = copies[0].barrier()
    held = copies[0].in_background(code)
    copies[0].wait_inflight(1)
    answer = copies[1].run("standin: answer")
    refused(answer, "resource_exhausted", "capacity")
    assert answer.header("RateLimit-Policy").startswith('"slots"')
    barrier.unlink()
    assert held.join().status == 200
    assert copies[1].run("standin: answer").status == 200
    assert copies[0].run("standin: answer").status == 200
    answer = copies[1].run("standin: answer")
    refused(answer, "resource_exhausted", "capacity")
    assert answer.header("RateLimit-Policy").startswith('"runs"')


def test_runs_are_listed_at_every_copy(pair):
    copies = pair()
    answers = [gw.ok("1", new_id()) for gw in copies]
    for gw in copies:
        assert {r["run_id"] for r in gw.get("/v1/runs").json()["runs"]} == {a.header("Plimsoll-Run-Id") for a in answers}


@pytest.mark.faults
def test_a_copy_killed_with_its_run_in_flight_leaves_the_id_taken(pair):
    """Its outcome is unknown: nobody runs it again."""
    copies = pair(**STANDIN)
    for gw in copies:
        gw.settings["PLIMSOLL_STANDIN_LOG"] = str(gw.home / "given")
    code, barrier = copies[0].barrier()
    request_id = new_id()
    sent = javascript(code, timeoutMs=1000)
    c = copies[0].connect()
    c.send(g.request(RUN, json.dumps(sent).encode(), copies[0].headers(request_id)))
    copies[0].wait_inflight(1)
    os.killpg(copies[0].process.pid, signal.SIGKILL)
    copies[0].clean_exit = False
    copies[0].process.wait(g.STOP_S)
    c.close()
    # joined while the dead copy's lease lasts (the run's time and 15 s), then told as unknown
    answer = copies[1].post(RUN, sent, request_id)
    assert answer.status == 503 and answer.code == "unavailable", answer
    assert answer.reason is None and answer.header("Plimsoll-Not-Dispatched") is None
    assert copies[1].metric("plimsoll_runs_total") == 0
    barrier.unlink()
