"""Idempotency-Key beside the request ID: it has the claim, so clients that mint a fresh ID for every HTTP request retry safely."""
import http.client
import json
import random
import signal
import time
import urllib.parse

import plimsoll_client
import pytest
from plimsoll_client import errors

import gateway as g
from gateway import expect, failed, new_id, refused, refused_early, refused_http, wait_for
from http2 import Peer

STANDIN = {"SANDBOX_PROVIDER": "standin"}
RANDOM = "console.log(Math.random())"


def with_key(key):
    return [("Idempotency-Key", key)]


def by_key(gw, key, wait=None, **more):
    return gw.get(f"/v1/runs/by-key/{key}" + (f"?wait={wait}" if wait is not None else ""), **more)


def test_a_key_is_run_once_under_fresh_request_ids(gw):
    first = gw.ok(RANDOM, new_id(), headers=with_key('"job 1"'))
    assert first.header("Plimsoll-Replayed") is None
    for request_id in (new_id(), None, new_id()):
        again = gw.run(RANDOM, request_id, headers=with_key('"job 1"'))
        assert again.status == 200 and again.body == first.body, again
        assert again.header("Plimsoll-Replayed") == "1"
        assert again.header("Plimsoll-Run-Id") == first.header("Plimsoll-Run-Id")
        assert again.header("Plimsoll-Request-Id") == request_id
    assert gw.run(RANDOM, new_id(), headers=with_key('"job 2"')).body != first.body


def test_the_request_id_of_a_keyed_run_has_no_claim_of_its_own(gw):
    request_id = new_id()
    first = gw.ok(RANDOM, request_id, headers=with_key('"its own"'))
    other = gw.ok(RANDOM, request_id)
    assert other.header("Plimsoll-Replayed") is None and other.body != first.body


def test_another_request_with_the_key_is_refused(gw):
    gw.ok("1", new_id(), headers=with_key('"taken"'))
    request_id = new_id()
    answer = gw.run("2", request_id, headers=with_key('"taken"'))
    refused(answer, "invalid_argument", "request", request_id)
    assert "Idempotency-Key" in answer.message


def test_keys_are_told_apart_by_every_character(gw):
    runs = {gw.ok(RANDOM, headers=with_key(key)).header("Plimsoll-Run-Id")
            for key in ('"a"', '"A"', '"a "', '" a"', '"a\\""', '"a\\\\"', '"' + "a" * 255 + '"', '"' + "a" * 254 + '"')}
    assert len(runs) == 8


@pytest.mark.parametrize("key", ['', 'bare', '"', '""', '"a', '"a" ; b', '"a";b=1', '"a\\n"', "'a'", '"' + "a" * 256 + '"', '"a", "b"', '"é"'])
def test_a_malformed_key_is_refused_and_nothing_runs(gw, key):
    before = gw.metric("plimsoll_runs_total")
    request_id = new_id()
    answer = gw.run("1", request_id, headers=with_key(key))
    refused_early(answer, "invalid_argument", "request", request_id)
    assert "Idempotency-Key" in answer.message
    assert gw.metric("plimsoll_runs_total") == before


def test_a_repeated_key_is_refused(gw):
    answer = gw.run("1", headers=[("Idempotency-Key", '"a"'), ("Idempotency-Key", '"a"')])
    refused_early(answer, "invalid_argument", "request")


def test_other_procedures_do_not_look_at_the_key(gw):
    assert gw.describe(more=with_key("malformed")).status == 200


def test_either_header_satisfies_the_setting(gateway):
    gw = gateway(PLIMSOLL_REQUIRE_REQUEST_ID="1")
    refused(gw.run("1"), "invalid_argument", "request")
    gw.ok("1", new_id())
    gw.ok("1", headers=with_key('"k"'))


def test_requests_with_one_key_at_once_run_once(gateway):
    gw = gateway(**STANDIN)
    code, barrier = gw.barrier()
    runs = [gw.in_background(code, new_id(), headers=with_key('"many"')) for _ in range(20)]
    gw.wait_inflight(1)
    wait_for(lambda: gw.metric('plimsoll_claims_total{outcome="joined"}') == 19, "19 to follow")
    barrier.unlink()
    answers = [r.join() for r in runs]
    assert {a.status for a in answers} == {200} and len({a.body for a in answers}) == 1
    assert [a.header("Plimsoll-Replayed") for a in answers].count("1") == 19
    assert gw.metric("plimsoll_runs_total") == 1


def test_an_unknown_outcome_is_told_again_and_nothing_runs_again(gateway):
    gw = gateway(**STANDIN)
    failed(gw.run("standin: fail unavailable", headers=with_key('"lost"')), "unavailable")
    for _ in range(2):
        answer = gw.run("standin: fail unavailable", new_id(), headers=with_key('"lost"'))
        assert answer.status == 503 and answer.reason is None and "may have run" in answer.message
    assert gw.metric("plimsoll_runs_total") == 1
    found = by_key(gw, "lost")
    assert found.status == 200
    assert found.json()["state"] == "unknown" and found.json()["unanswered"] == "unavailable"


def test_a_refusal_frees_the_key(gateway):
    gw = gateway(**STANDIN)
    request_id = new_id()
    refused(gw.run("standin: refuse capacity", request_id, headers=with_key('"free"')), "resource_exhausted", "capacity", request_id)
    assert by_key(gw, "free").status == 404
    assert gw.run("standin: answer", headers=with_key('"free"')).status == 200


def test_an_answer_too_large_to_keep_leaves_its_record(gateway):
    gw = gateway(**STANDIN, PLIMSOLL_ANSWER_MAX_KB="4")
    code = "standin: bytes 5000"
    first = gw.ok(code, headers=with_key('"large"'))
    answer = gw.run(code, new_id(), headers=with_key('"large"'))
    assert answer.status == 409 and answer.code == "already_exists" and answer.reason is None
    assert answer.header("Plimsoll-Not-Dispatched") is None
    run_id = first.header("Plimsoll-Run-Id")
    assert run_id in answer.message and "not kept" in answer.message
    found = by_key(gw, "large").json()
    assert found["state"] == "answered" and found["response"] is None and "not kept" in found["error"]
    assert found["run_id"] == run_id and found["record"] == first.json()["record"]
    assert gw.metric("plimsoll_runs_total") == 1


def test_an_answer_whose_time_is_over_leaves_its_record(gateway):
    gw = gateway(**STANDIN, PLIMSOLL_ANSWER_RETENTION="1s")
    first = gw.ok("standin: answer", headers=with_key('"brief"'))
    wait_for(lambda: by_key(gw, "brief").json()["response"] is None, "the output's time to be over", 20)
    answer = gw.run("standin: answer", new_id(), headers=with_key('"brief"'))
    assert answer.code == "already_exists" and "its time is over" in answer.message
    assert gw.metric("plimsoll_runs_total") == 1
    assert by_key(gw, "brief").json()["record"] == first.json()["record"]


# -- by key --


def test_a_key_says_what_became_of_its_run(gw):
    request_id = new_id()
    first = gw.ok(RANDOM, request_id)
    found = by_key(gw, request_id)
    assert found.status == 200 and found.header("Content-Type") == "application/json"
    page = found.json()
    assert page["state"] == "answered" and page["run_id"] == first.header("Plimsoll-Run-Id")
    assert page["response"] == first.json() and page["record"] == first.json()["record"]
    assert page["record_sha256"] == page["record"]["recordSha256"] and page["backend"] == first.json()["sandbox"]


def test_a_key_is_found_with_and_without_its_quotation_marks(gw):
    for key in ("job/7", 'say "hi" \\ there', "0123456789abcdef0123456789abcdef"):
        quoted = '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'
        run_id = gw.ok(RANDOM, headers=with_key(quoted)).header("Plimsoll-Run-Id")
        found = by_key(gw, urllib.parse.quote(quoted, safe=""))
        assert found.status == 200 and found.json()["run_id"] == run_id, found
        bare = by_key(gw, urllib.parse.quote(key, safe=""))
        # 32 hex digits without quotation marks are a request ID
        assert bare.status == (404 if len(key) == 32 else 200), bare


def test_a_key_that_was_never_used_is_not_found(gw):
    answer = by_key(gw, new_id())
    expect(answer, 404, "not_found")
    assert by_key(gw, "never").status == 404


@pytest.mark.parametrize("path", ["", "a/b", "%", "%zz", "%22a", "a%00", "%C3%A9", "k?wait=61", "k?wait=-1", "k?wait=1.5", "k?wait=", "k?wait=01",
                                  "k?wait=1&wait=1", "k?other=1", "k" * 256])
def test_what_is_no_key_or_no_wait_is_refused(gw, path):
    refused_http(gw.get("/v1/runs/by-key/" + path), 400, "invalid_argument")


def test_a_key_is_the_callers_own(gateway):
    one, two = "1" * 40, "2" * 40
    gw = gateway(start=False)
    gw.write_callers({"one": one, "two": two})
    gw.start()
    gw.run("1", headers=with_key('"mine"'), token=one)
    assert by_key(gw, "mine", token=one).status == 200
    assert by_key(gw, "mine", token=two).status == 404
    assert by_key(gw, "mine", token="x" * 40).status == 401


def test_a_run_under_way_is_waited_for(gateway):
    gw = gateway(**STANDIN)
    code, barrier = gw.barrier()
    run = gw.in_background(code, headers=with_key('"slow"'))
    gw.wait_inflight(1)
    now = by_key(gw, "slow")
    assert now.status == 202 and now.json()["state"] == "dispatched" and now.header("Retry-After") == "1"
    waits = [g.Background(lambda: by_key(gw, "slow", 60)) for _ in range(5)]
    gw.wait_metric("plimsoll_key_waits_total", 5)
    barrier.unlink()
    answer = run.join()
    for wait in waits:
        found = wait.join(20)  # at once, and not after a minute
        assert found.status == 200 and found.json()["response"] == answer.json()


def test_a_wait_ends_at_its_time(gateway):
    gw = gateway(**STANDIN)
    code, barrier = gw.barrier()
    run = gw.in_background(code, headers=with_key('"longer"'))
    gw.wait_inflight(1)
    assert by_key(gw, "longer", 1).status == 202
    barrier.unlink()
    assert run.join().status == 200


def test_a_wait_that_is_dropped_leaves_nothing(gateway):
    gw = gateway(**STANDIN)
    code, barrier = gw.barrier()
    run = gw.in_background(code, headers=with_key('"dropped"'))
    gw.wait_inflight(1)
    for _ in range(3):
        connections = []
        for _ in range(10):
            c = gw.connect()
            c.send(g.head("/v1/runs/by-key/dropped?wait=60", gw.headers(content_type=None), "GET"))
            connections.append(c)
        gw.wait_metric("plimsoll_key_waits_total", gw.metric("plimsoll_key_waits_total"))
        for c in connections:
            c.close()
    wait_for(lambda: gw.metric("plimsoll_connections_open") <= 2, "the dropped connections to be gone")
    assert gw.metric("plimsoll_inflight") == 1
    barrier.unlink()
    assert run.join().status == 200
    assert by_key(gw, "dropped").json()["state"] == "answered"


def test_a_wait_for_a_refused_run_ends_with_not_found(gateway):
    gw = gateway(**STANDIN)
    code, barrier = gw.barrier()
    run = gw.in_background(code + "\nstandin: refuse capacity", headers=with_key('"no"'))
    gw.wait_inflight(1)
    wait = g.Background(lambda: by_key(gw, "no", 60))
    gw.wait_metric("plimsoll_key_waits_total", 1)
    barrier.unlink()
    assert run.join().status == 429
    assert wait.join(20).status == 404


def test_one_callers_waits_are_bounded(gateway):
    gw = gateway(**STANDIN, PLIMSOLL_MAX_CONNECTIONS_PER_ADDRESS="0")
    code, barrier = gw.barrier()
    run = gw.in_background(code, headers=with_key('"crowd"'))
    gw.wait_inflight(1)
    connections = []
    for _ in range(256):
        c = gw.connect()
        c.send(g.head("/v1/runs/by-key/crowd?wait=60", gw.headers(content_type=None), "GET"))
        connections.append(c)
    gw.wait_metric("plimsoll_key_waits_total", 256)
    answer = by_key(gw, "crowd", 60)
    refused(answer, "resource_exhausted", "capacity")
    assert answer.header("Retry-After") == "1"
    assert by_key(gw, "crowd").status == 202  # to ask without waiting takes no place
    barrier.unlink()
    assert run.join().status == 200
    for c in connections:
        assert c.read_answer().status == 200
        c.close()
    assert by_key(gw, "crowd", 60).status == 200


def test_a_wait_follows_a_run_of_another_copy(gateway, redis):
    one = gateway(**STANDIN, PLIMSOLL_REDIS_URL=redis.url)
    two = gateway(**STANDIN, PLIMSOLL_REDIS_URL=redis.url, PLIMSOLL_TOKEN=one.token)
    two.token = one.token
    code, barrier = one.barrier()
    run = one.in_background(code, headers=with_key('"elsewhere"'))
    one.wait_inflight(1)
    now = by_key(two, "elsewhere")
    assert now.status == 202 and now.json()["state"] == "live"
    wait = g.Background(lambda: by_key(two, "elsewhere", 60))
    two.wait_metric("plimsoll_key_waits_total", 1)
    barrier.unlink()
    answer = run.join()
    assert wait.join(20).json()["response"] == answer.json()


def test_waits_that_come_and_go_while_runs_settle(gateway):
    gw = gateway(**STANDIN, SANDBOX_MAX_CONCURRENT="128", PLIMSOLL_MAX_CONNECTIONS_PER_ADDRESS="0")
    random.seed(7)

    def one(n):
        key = f"churn{n % 5}-{n // 5}"
        run = gw.start_run(f"standin: hold {random.randrange(40)}") if n % 3 == 0 else None
        c = gw.connect()
        body = json.dumps(g.javascript(f"standin: hold {random.randrange(40)}")).encode()
        c.send(g.request(g.RUN, body, gw.headers(more=with_key(f'"{key}"'))))
        waits = []
        for _ in range(4):
            w = gw.connect()
            w.send(g.head(f"/v1/runs/by-key/{key}?wait=60", gw.headers(content_type=None), "GET"))
            waits.append(w)
        for w in waits[:2]:
            if random.random() < 0.5:
                w.reset()
            else:
                w.close()
        if n % 4 == 0:
            c.reset()  # its own caller leaves: unknown, or answered already
        else:
            assert c.read_answer().status == 200
        found = [w.read_answer() for w in waits[2:]]
        assert all(a.status in (200, 404) for a in found), found  # a wait may have come before its run
        if run is not None:
            run.close()
        return [a.json()["state"] for a in found if a.status == 200]
    jobs = [g.Background(lambda n=n: one(n)) for n in range(40)]
    states = {state for job in jobs for state in job.join()}
    assert states <= {"answered", "unknown"} and "answered" in states
    wait_for(lambda: gw.metric("plimsoll_inflight") == 0 and gw.metric("plimsoll_connections_open") <= 1, "everything to be over")


def test_waits_end_when_the_gateway_drains(gateway):
    gw = gateway(**STANDIN)
    code, barrier = gw.barrier()
    run = gw.in_background(code, headers=with_key('"drained"'))
    gw.wait_inflight(1)
    wait = g.Background(lambda: by_key(gw, "drained", 60))
    gw.wait_metric("plimsoll_key_waits_total", 1)
    gw.signal(15)
    assert wait.join(20).status == 202
    barrier.unlink()
    assert run.join().status == 200
    gw.wait_exit()


def test_the_official_client_retries_safely_with_a_key(gateway, monkeypatch):
    """It mints a request ID for each HTTP request, so a retry of its own would be a second run; the key makes it one."""
    gw = gateway()
    client = plimsoll_client.Client(f"http://127.0.0.1:{gw.port}", gw.token)
    send, sent = http.client.HTTPConnection.request, []

    def request(self, method, url, body=None, headers={}, **more):
        sent.append(headers["Plimsoll-Request-Id"])
        return send(self, method, url, body=body, headers={**headers, "Idempotency-Key": '"client 1"'}, **more)
    with monkeypatch.context() as patched:
        patched.setattr(http.client.HTTPConnection, "request", request)
        results = [client.run_javascript(RANDOM) for _ in range(3)]
        with pytest.raises(errors.InvalidRequestError):
            client.run_javascript("another")
    assert len(set(sent)) == 4 and len({r.stdout for r in results}) == 1 and len({r.record.sha256 for r in results}) == 1
    assert gw.metric("plimsoll_runs_total") == 1


def test_without_redis_nothing_is_known_of_a_key(gateway, redis):
    gw = gateway(**STANDIN, PLIMSOLL_REDIS_URL=redis.url)
    request_id = new_id()
    gw.ok("standin: answer", request_id)
    redis.signal(signal.SIGSTOP)
    try:
        began = time.monotonic()
        for answer in (by_key(gw, request_id), by_key(gw, request_id, 60)):
            assert answer.status == 503 and answer.code == "unavailable" and answer.header("Retry-After") == "1"
        assert time.monotonic() - began < 5  # and not after a minute
    finally:
        redis.signal(signal.SIGCONT)
    wait_for(lambda: by_key(gw, request_id).status == 200, "the store to answer again")


# -- over HTTP/2 --


def test_keys_and_waits_over_http2(gateway):
    gw = gateway(**STANDIN, PLIMSOLL_HTTP2="1")
    code, barrier = gw.barrier()
    with Peer(gw) as peer:
        run = peer.run(code, new_id(), more=with_key('"streams"'))
        gw.wait_inflight(1)
        waits = [peer.get("/v1/runs/by-key/%22streams%22?wait=60") for _ in range(3)]
        gw.wait_metric("plimsoll_key_waits_total", 3)
        # one that is reset leaves nothing, and the others go on
        peer.reset(waits[0])
        barrier.unlink()
        answer = peer.answer(run)
        for wait in waits[1:]:
            assert peer.answer(wait, seconds=20).json()["response"] == answer.json()
        again = peer.answer(peer.run(code, new_id(), more=with_key('"streams"')))
        assert again.body == answer.body and again.header("Plimsoll-Replayed") == "1"
        refused_early(peer.answer(peer.run("1", more=with_key("streams"))), "invalid_argument", "request")
    assert gw.metric("plimsoll_runs_total") == 1


def test_a_dropped_connection_costs_the_run_of_a_key_nothing(gateway):
    gw = gateway(**STANDIN)
    code, barrier = gw.barrier()
    c = gw.connect()
    c.send(g.request(g.RUN, json.dumps(g.javascript(code)).encode(), gw.headers(more=with_key('"come-back"'))))
    gw.wait_inflight(1)
    c.close()
    gw.wait_metric('plimsoll_canceled_total{cause="hang_up"}', 1)
    assert by_key(gw, "come-back").status == 202
    barrier.unlink()
    found = by_key(gw, "come-back", 20)
    assert found.status == 200 and found.json()["state"] == "answered", found
    again = gw.run(code, new_id(), headers=with_key('"come-back"'))
    assert again.status == 200 and again.header("Plimsoll-Replayed") == "1"
    wait_for(lambda: gw.metric("plimsoll_inflight") == 0, "nothing to be in flight")
