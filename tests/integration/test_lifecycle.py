"""From the start to the end and over it: drains, second signals, records and request IDs that outlive the process, roles that die."""
import json
import os
import secrets
import signal
import socket
import time

import pytest

import gateway as g
from gateway import RUN, javascript, new_id, refused, wait_for

STANDIN = {"SANDBOX_PROVIDER": "standin"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_gateway_ends_at_once(gateway, number):
    gw = gateway()
    gw.ok("1")
    began = time.monotonic()
    gw.signal(number)
    assert gw.wait_exit() == 0
    assert time.monotonic() - began < 5
    assert gw.log_lines("shutting down")[0]["why"] == number.name


def test_a_gateway_that_is_just_starting_ends_at_once(gateway, redis):
    gw = gateway(start=False, PLIMSOLL_REDIS_URL=redis.url)
    gw.spawn()
    wait_for(lambda: [x for x in gw.log_lines("process started") if x["process"] == "front"], "the front to be started", g.START_S)
    redis.signal(signal.SIGSTOP)  # so that its lanes are held up before they listen
    gw.wait_log("front connected", connections=2)
    began = time.monotonic()
    gw.signal(signal.SIGTERM)
    assert gw.wait_exit() == 0
    assert time.monotonic() - began < 5
    assert not gw.log_lines("drain cut short")


@pytest.mark.faults
def test_a_drain_lets_a_run_finish(gateway):
    gw = gateway(**STANDIN)
    code, barrier = gw.barrier()
    request_id = new_id()
    with gw.connect() as idle, gw.connect() as c:
        assert gw.get("/healthz").status == 200
        idle.send(g.head("/healthz", method="GET"))
        assert idle.read_answer().status == 200
        c.send(g.request(RUN, json.dumps(javascript(code)).encode(), gw.headers(request_id)))
        gw.wait_inflight(1)
        gw.signal(signal.SIGTERM)
        gw.wait_log("draining", role="front")
        # idle connections end, new ones are refused, the run goes on
        assert idle.is_closed_within()
        wait_for(lambda: refuses_connections(gw), "the listener to be closed")
        assert gw.process.poll() is None
        # metrics are served to the end
        assert gw.metric("plimsoll_inflight") == 1
        barrier.unlink()
        answer = c.read_answer()
        assert answer.status == 200 and answer.closes, answer
        g.check_record(javascript(code), answer)
        assert c.is_closed_within()
    assert gw.wait_exit() == 0


def refuses_connections(gw):
    try:
        socket.create_connection(("127.0.0.1", gw.port), 5).close()
        return False
    except ConnectionRefusedError:
        return True


@pytest.mark.faults
def test_a_request_on_an_open_connection_during_a_drain(gateway):
    """Whoever was in the middle of sending is answered: not ready, and to be sent elsewhere."""
    gw = gateway(**STANDIN)
    code, barrier = gw.barrier()
    request_id, fresh = new_id(), new_id()
    with gw.connect() as run, gw.connect() as ready, gw.connect() as late, gw.connect() as same:
        run.send(g.request(RUN, json.dumps(javascript(code)).encode(), gw.headers(request_id)))
        gw.wait_inflight(1)
        halves = []
        for c, data in ((ready, g.head("/readyz", method="GET")), (late, g.request(RUN, json.dumps(javascript("standin: answer")).encode(), gw.headers(fresh))),
                        (same, g.request(RUN, json.dumps(javascript(code)).encode(), gw.headers(request_id)))):
            c.send(data[:20])
            halves.append((c, data[20:]))
        gw.wait_metric("plimsoll_connections_open", 5)
        # the pieces are read, or the drain would take the connections for idle ones
        gw.ok("standin: answer")
        gw.signal(signal.SIGTERM)
        gw.wait_log("draining", role="front")
        for c, rest in halves:
            c.send(rest)
        answer = ready.read_answer()
        assert answer.status == 503 and answer.body == b"not ready\n" and answer.closes
        answer = late.read_answer()
        refused(answer, "unavailable", "capacity", fresh)
        assert answer.header("Retry-After") and answer.closes
        # the same request as the one that runs is no new run: it waits for it
        barrier.unlink()
        first, second = run.read_answer(), same.read_answer()
        assert first.status == second.status == 200 and first.body == second.body
        assert second.header("Plimsoll-Replayed") == "1" and second.closes
    assert gw.wait_exit() == 0


@pytest.mark.faults
def test_an_interrupt_of_the_whole_group_is_a_drain(gateway):
    """Ctrl-C in a terminal reaches every process: the private Redis and the backends ended under the run."""
    gw = gateway(**STANDIN)
    code, barrier = gw.barrier()
    c = gw.start_run(code)
    gw.wait_inflight(1)
    os.killpg(gw.process.pid, signal.SIGINT)
    gw.wait_log("draining", role="front")
    barrier.unlink()
    assert c.read_answer().status == 200
    c.close()
    assert gw.wait_exit() == 0
    assert not gw.log_lines("process died") and not gw.log_lines("record store away")


@pytest.mark.faults
def test_a_hangup_for_every_process_drops_no_run(gateway):
    """`pkill -HUP plimsolld` ended the front and the backends."""
    gw = gateway(**STANDIN)
    code, barrier = gw.barrier()
    c = gw.start_run(code)
    gw.wait_inflight(1)
    for pid in [gw.process.pid, *g.descendants(gw.process.pid)]:
        os.kill(pid, signal.SIGHUP)
    gw.wait_log("nothing to reload: no callers file is in use")
    barrier.unlink()
    assert c.read_answer().status == 200
    c.close()
    assert not gw.log_lines("process died")


def test_no_socket_is_left_behind(gateway):
    gw = gateway()
    gw.ok("1")
    gw.signal(signal.SIGTERM)
    assert gw.wait_exit() == 0
    assert list((gw.state / "run").iterdir()) == []


@pytest.mark.faults
def test_a_second_signal_kills(gateway):
    gw = gateway(**STANDIN)
    code, barrier = gw.barrier()
    c = gw.start_run(code)
    gw.wait_inflight(1)
    gw.signal(signal.SIGTERM)
    gw.wait_log("draining", role="front")
    began = time.monotonic()
    gw.signal(signal.SIGTERM)
    assert gw.wait_exit() == 1
    assert time.monotonic() - began < 5
    gw.exit_status = 1
    # no answer, and so no claim that nothing ran
    with pytest.raises((g.Closed, ConnectionError)):
        c.read_answer()
    c.close()
    barrier.unlink()


def test_no_time_to_drain_is_enough_when_nothing_runs(gateway):
    gw = gateway(PLIMSOLL_DRAIN="0")
    gw.ok("1")
    gw.stop()  # which wants exit status 0
    assert not gw.log_lines("drain cut short")


@pytest.mark.faults
def test_a_drain_has_an_end(gateway):
    gw = gateway(PLIMSOLL_DRAIN="500ms", **STANDIN)
    code, barrier = gw.barrier()
    c = gw.start_run(code)
    gw.wait_inflight(1)
    began = time.monotonic()
    gw.signal(signal.SIGTERM)
    status = gw.wait_exit()
    assert 0.4 < time.monotonic() - began < 12
    assert gw.log_lines("drain cut short"), gw.log()
    gw.exit_status = status
    c.close()
    barrier.unlink()


def test_requests_that_never_come_do_not_hold_a_drain(gateway):
    gw = gateway(PLIMSOLL_HEADER_TIMEOUT="1s", PLIMSOLL_READ_TIMEOUT="2s")
    with gw.connect() as a, gw.connect() as b:
        a.send(b"GET /healthz HT")
        b.send(g.head(RUN, gw.headers() + [("Content-Length", "100")]))
        gw.wait_metric("plimsoll_buffered_bytes", 100)
        began = time.monotonic()
        gw.signal(signal.SIGTERM)
        assert gw.wait_exit() == 0
        assert time.monotonic() - began < 8


def test_records_outlive_a_restart(gateway):
    gw = gateway()
    request_id = new_id()
    first = gw.ok("console.log(Math.random())", request_id)
    run_id = first.header("Plimsoll-Run-Id")
    for _ in range(2):
        gw.restart()
        again = gw.ok("console.log(Math.random())", request_id)
        assert again.body == first.body and again.header("Plimsoll-Replayed") == "1"
        assert again.header("Plimsoll-Run-Id") == run_id
        refused(gw.run("2", request_id), "invalid_argument", "request", request_id)
        assert gw.get("/v1/runs/" + run_id).json()["record"] == first.json()["record"]
        assert gw.metric("plimsoll_runs_total") == 0


def test_the_rate_outlives_a_restart(gateway):
    gw = gateway(SANDBOX_RATE_PER_MIN="1")
    gw.ok("1")
    gw.restart()
    refused(gw.run("1"), "resource_exhausted", "capacity")


# -- roles that die (each is restarted and says so) --


def answers(gw, code="1"):
    try:
        return gw.run(code).status == 200
    except (OSError, g.Closed):
        return False


@pytest.mark.parametrize("role", ["plimsolld-front", "plimsolld-backend-wasm", "redis-server", "plimsoll-wasm"])
def test_a_role_that_is_killed_is_restarted(gateway, role):
    gw = gateway()
    request_id = new_id()
    first = gw.ok("console.log(Math.random())", request_id)
    pid = gw.child(role)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not g.is_alive(pid), "the role to die")
    wait_for(lambda: answers(gw), "service to resume", g.START_S)
    wait_for(lambda: gw.get("/readyz").status == 200, "to be ready", g.START_S)
    again = gw.ok("console.log(Math.random())", request_id)
    assert again.body == first.body and again.header("Plimsoll-Replayed") == "1"
    if role != "plimsoll-wasm":
        name = {"plimsolld-front": "front", "plimsolld-backend-wasm": "wasm", "redis-server": "redis-server"}[role]
        assert gw.wait_log("process died", process=name)["signal"] == signal.SIGKILL
        assert len(gw.log_lines("process restarted", process=name)) == 1


@pytest.mark.faults
def test_a_wall_that_dies_under_a_run(gateway):
    gw = gateway(**STANDIN)
    code, barrier = gw.barrier()
    request_id = new_id()
    job = gw.in_background(code, request_id)
    gw.wait_inflight(1)
    os.kill(gw.child("plimsolld-backend-standin"), signal.SIGKILL)
    answer = job.join()
    g.failed(answer, "unavailable", request_id)
    gw.wait_inflight(0)
    assert gw.metric("plimsoll_backend_lost_total") == 1
    wait_for(lambda: gw.get("/readyz").status == 200, "the wall to be back", g.START_S)
    g.failed(gw.run(code, request_id), "unavailable", request_id)
    assert gw.run("standin: answer").status == 200
    barrier.unlink()


def test_a_front_that_dies_with_runs_in_flight(gateway):
    """Its callers learn nothing, so they may not conclude anything; the wall stops what nobody waits for, and the IDs stay taken."""
    gw = gateway(SANDBOX_MAX_CONCURRENT="4", SANDBOX_PER_KEY_CONCURRENT="4")
    ids = [new_id() for _ in range(3)]
    connections = [gw.start_run("for(;;);", i, timeoutMs=2000) for i in ids]
    gw.wait_inflight(3)
    os.kill(gw.child("plimsolld-front"), signal.SIGKILL)
    for c in connections:
        with pytest.raises((g.Closed, ConnectionError)):
            c.read_answer()
        c.close()
    wait_for(lambda: answers(gw), "service to resume", g.START_S)
    for i in ids:
        # joined while the dead process's lease lasts, then told as unknown: never run again, never marked
        answer = gw.run("for(;;);", i, timeoutMs=2000)
        assert answer.status == 503 and answer.reason is None and answer.header("Plimsoll-Not-Dispatched") is None, answer
    assert gw.metric("plimsoll_runs_total") == len([r for r in gw.log_lines("code run") if r["code_bytes"] == 1])


POINTS = ["run.claim", "run.admitted", "run.dispatch", "run.result", "run.settle", "run.answer"]


@pytest.mark.faults
def test_a_front_killed_at_any_point_of_a_run_never_runs_it_twice(gateway):
    gw = gateway(start=False, auth=False, **STANDIN)
    tokens = {p: secrets.token_hex(20) for p in POINTS}
    gw.write_callers({**tokens, "other": (other := secrets.token_hex(20))})
    gw.settings["PLIMSOLL_STANDIN_LOG"] = str(gw.home / "given")
    gw.start()
    sent = javascript("standin: answer", timeoutMs=1000)
    ids = {p: new_id() for p in POINTS}

    def executed(point):
        return sum(line.split()[1] == point for line in (gw.home / "given").read_text().splitlines())

    def serves():
        try:
            return gw.run("standin: answer", token=other).status == 200
        except (OSError, g.Closed):
            return False
    for point in POINTS:
        gw.faults.arm(point, "once kill")
        with gw.connect() as c:
            c.send(g.request(RUN, json.dumps(sent).encode(), gw.headers(ids[point], tokens[point])))
            with pytest.raises((g.Closed, ConnectionError)):
                c.read_answer()
        gw.faults.wait(point)
        wait_for(serves, "service to resume", g.START_S)
    # each again: joined while the dead process's lease lasts (the run's time and 15 s), then answered or told as unknown
    jobs = {p: g.Background(lambda p=p: gw.post(RUN, sent, ids[p], tokens[p])) for p in POINTS}
    for point, job in jobs.items():
        answer = job.join()
        if point in ("run.claim", "run.answer"):
            # before the claim nothing was taken, so it runs now; after the settling it is answered from the store
            assert answer.status == 200 and executed(point) == 1, (point, answer)
            assert answer.header("Plimsoll-Replayed") == ("1" if point == "run.answer" else None), point
            g.check_record(sent, answer)
        else:
            assert answer.status == 503 and answer.code == "unavailable", (point, answer)
            assert answer.reason is None and answer.header("Plimsoll-Not-Dispatched") is None, (point, answer)
            assert executed(point) == (0 if point in ("run.admitted", "run.dispatch") else 1), point


# -- the harness itself --


@pytest.mark.parametrize("found", ["==1==ERROR: AddressSanitizer: heap-use-after-free", "x.c:1:2: runtime error: signed integer overflow",
                                   "SUMMARY: LeakSanitizer", "the token", '{"msg":"half'])
def test_a_finding_in_the_log_fails_the_end(gateway, found):
    gw = gateway()
    with open(gw.log_path, "a") as log:
        log.write((gw.token if found == "the token" else found) + "\n")
    with pytest.raises(AssertionError):
        gw.stop()


def test_a_process_left_over_fails_the_end(gateway):
    gw = gateway()
    process = gw.process
    child = gw.child("plimsolld-front")
    gw.clean_exit = False
    os.kill(process.pid, signal.SIGSTOP)
    os.kill(child, signal.SIGSTOP)  # it cannot end itself
    os.kill(process.pid, signal.SIGKILL)
    try:
        with pytest.raises(AssertionError, match="left over"):
            gw.stop()
    finally:
        wait_for(lambda: not g.is_alive(child), "the rest to be gone")


def test_guest_code_makes_way_for_the_gateway_itself():
    gw = g.Gateway().start()
    try:
        here = os.getpriority(os.PRIO_PROCESS, 0)

        def niceness(name):
            return os.getpriority(os.PRIO_PROCESS, gw.child(name))
        assert [niceness(n) for n in ("plimsolld-front", "plimsolld-backend-wasm", "redis-server")] == [here] * 3
        template = niceness("plimsoll-wasm")
        assert template == min(19, here + 10)
        workers = [p for p in g.descendants(gw.child("plimsoll-wasm"))]
        assert workers and {os.getpriority(os.PRIO_PROCESS, p) for p in workers} == {template}
        gw.stop()
    finally:
        gw.kill_rest()
        gw.remove()
