"""What holds a run's key and slot: a short lease that is renewed while the run lives. It outlives its first length with the run, ends soon after
whoever renewed it died, and one that ran out under a run that lives never has it run twice."""
import json
import os
import secrets
import signal
import time

import pytest

import gateway as g
from gateway import RUN, failed, javascript, new_id, wait_for

pytestmark = pytest.mark.faults

LEASE_S = 20            # STORE_LEASE_MS
SWEEP_S = 12            # a copy sweeps once it has been up for 9 s, every 3 s
LONG_MS = 90000         # of runs that are longer than any lease here: its life is 15 s more
STANDIN = {"SANDBOX_PROVIDER": "standin", "SANDBOX_PER_KEY_CONCURRENT": "1"}


@pytest.fixture
def copies(gateway, redis):
    token = secrets.token_hex(24)

    def make(count, **settings):
        settings = {**STANDIN, **settings, "PLIMSOLL_REDIS_URL": redis.url, "PLIMSOLL_TOKEN": token}
        made = [gateway(**settings) for _ in range(count)]
        for gw in made:
            gw.token = token
            gw.secrets.append(token)
        return made
    return make


def begin(gw, sent, key):
    """A run under way; its connection."""
    c = gw.connect()
    c.send(g.request(RUN, json.dumps(sent).encode(), gw.headers(key)))
    gw.wait_inflight(1)
    return c


def state_of(gw, key):
    return gw.get(f"/v1/runs/by-key/{key}").json().get("state")  # none while Redis does not answer


def join(gw, sent, key):
    """Sent again while the copy, or the thread of it that is asked, has no Redis yet."""
    while (answer := gw.post(RUN, sent, key)).reason == "capacity":
        time.sleep(0.05)
    return answer


def left_s(redis):
    """What is left of the lease of the one run there is, by Redis' clock."""
    said = redis.command("EVAL", "local t = redis.call('TIME') local v = redis.call('HVALS', KEYS[1]) "
                         "return tonumber(string.match(v[1] or '0', '^%d+')) - t[1] * 1000 - math.floor(t[2] / 1000)", "1", "plimsoll:2:{default}:live")
    return int(said[1:]) / 1000


def test_a_long_run_keeps_its_key_over_a_paused_front_and_a_frozen_redis(copies, redis):
    one, two = copies(2)
    code, barrier = one.barrier()
    sent, key = javascript(code, timeoutMs=LONG_MS), new_id()
    c = begin(one, sent, key)
    began, least, was = time.monotonic(), LEASE_S, LEASE_S
    while (now := left_s(redis)) <= was:  # until it is renewed, which is after a quarter or up to a third of it; a look is every half second
        least, was = min(least, now), now
        time.sleep(0.05)
    assert LEASE_S / 2 < least < LEASE_S * 3 / 4 + 0.5, least  # with room for a busy machine
    time.sleep(LEASE_S / 4 - 0.5)  # a pause hurts most when the next one is due
    os.kill(front := one.child("plimsolld-front"), signal.SIGSTOP)
    time.sleep(10)
    assert state_of(two, key) == "live"
    os.kill(front, signal.SIGCONT)
    wait_for(lambda: left_s(redis) > LEASE_S * 2 / 3, "the lease to be renewed")
    redis.signal(signal.SIGSTOP)
    time.sleep(5)
    redis.signal(signal.SIGCONT)
    wait_for(lambda: left_s(redis) > LEASE_S * 2 / 3, "the lease to be renewed again")
    waiting = g.Background(lambda: join(two, sent, key))
    two.wait_metric('plimsoll_claims_total{outcome="joined"}', 1)
    assert time.monotonic() - began > LEASE_S
    barrier.unlink()
    answer = c.read_answer()
    c.close()
    assert answer.status == 200
    assert waiting.join().body == answer.body
    assert [r["verdict"] for r in two.get("/v1/runs").json()["runs"]] == ["answered"]
    assert one.metric("plimsoll_runs_total") + two.metric("plimsoll_runs_total") == 1
    assert one.ok("1").status == 200  # the slot is free


def cut_off(gw, how):
    """The front ends with its run under way, without a word about it."""
    if how == "kill -9":
        os.kill(gw.child("plimsolld-front"), signal.SIGKILL)
        gw.clean_exit = False
    else:
        gw.signal(signal.SIGTERM)
        gw.exit_status = gw.wait_exit()


def expect_left_alone_for_a_lease(how, one, two):
    code, barrier = one.barrier()
    sent, key = javascript(code, timeoutMs=LONG_MS), new_id()
    c = begin(one, sent, key)
    time.sleep(8)  # so that it was renewed once
    began = time.monotonic()
    cut_off(one, how)
    c.close()
    told = g.Background(lambda: (two.post(RUN, sent, key), time.monotonic() - began))
    g.refused(two.run("2"), "resource_exhausted", "capacity")
    wait_for(lambda: two.run("2").status == 200, "the slot to be free", LEASE_S + 2)
    free_s = time.monotonic() - began
    answer, told_s = told.join()
    failed(answer, "unavailable", key)
    print(f"{how}: slot free after {free_s:.1f} s, key told after {told_s:.1f} s")
    assert LEASE_S / 2 < free_s < LEASE_S + 2 and LEASE_S / 2 < told_s < LEASE_S + 2
    wait_for(lambda: "unknown" in [r["verdict"] for r in two.get("/v1/runs").json()["runs"]], "the record", SWEEP_S)
    failed(two.post(RUN, sent, key), "unavailable", key)
    barrier.unlink()


def test_what_a_front_left_is_free_or_unknown_when_its_lease_is_over(copies):
    """Not when the run would have been over, in 105 s."""
    ways = [(how, *copies(2, PLIMSOLL_DRAIN="500ms", PLIMSOLL_INSTALLATION=name)) for how, name in (("kill -9", "killed"), ("drain", "drained"))]
    for way in [g.Background(lambda way=way: expect_left_alone_for_a_lease(*way)) for way in ways]:
        way.join()


def test_a_front_that_was_frozen_past_its_lease_had_its_run_taken_for_lost_once(copies):
    """Another copy records it as unknown, and that stands; the run is not made again, and its own caller gets what it came to."""
    one, two = copies(2)
    code, barrier = one.barrier()
    sent, key = javascript(code, timeoutMs=LONG_MS), new_id()
    c = begin(one, sent, key)
    front = one.child("plimsolld-front")
    os.kill(front, signal.SIGSTOP)
    try:
        failed(two.post(RUN, sent, key), "unavailable", key)  # waits for it until its lease is over
        wait_for(lambda: [r["verdict"] for r in two.get("/v1/runs").json()["runs"]] == ["unknown"], "the record", SWEEP_S)
    finally:
        os.kill(front, signal.SIGCONT)
    one.wait_log("a run's lease has ended: its outcome is unknown to others")
    failed(two.post(RUN, sent, key), "unavailable", key)
    assert two.ok("2").status == 200
    barrier.unlink()
    answer = c.read_answer()
    c.close()
    assert answer.status == 200
    assert sorted(r["verdict"] for r in one.get("/v1/runs").json()["runs"]) == ["answered", "unknown"]
    for gw in (one, two):
        failed(gw.post(RUN, sent, key), "unavailable", key)
        assert gw.metric("plimsoll_runs_total") == 1  # each its own
