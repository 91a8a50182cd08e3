"""What becomes of a run when its backend refuses, fails, lies, goes deaf or dies, and when a process of the gateway is killed: the right
code, marked only when nothing ran; the claim, the record and the slots afterwards; nothing executed twice.

The backends are the stand-ins of loadtest/standin (their acts are described there), with the embedded wall where its own processes matter.
"""
import contextlib
import os
import re
import select
import signal
import socket
import threading
import time

import pytest

import gateway as g
from stalls import Stalls

LEASE_MARGIN_S = 15     # a claim outlives the run's own timeout by this (records/store.h)
WATCHDOG_S = 2          # the front lets a backend be late by this, then cancels (gateway/run.c)
GRACE_S = 5             # and waits this long for the cancel to work


def notes(gw):
    """The words of all `note` acts: what was executed, in order."""
    try:
        lines = (gw.home / "given").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [line.split()[1] for line in lines if line.startswith("note ")]


def noted(*acts):
    """Code that notes a word of its own before its acts; (word, code)."""
    word = g.new_id()
    return word, "".join(f"standin: {act}\n" for act in (f"note {word}", *acts))


class StoreSocket:
    """Commands to the private Redis."""

    def __init__(self, gw):
        self.path = str(gw.state / "run/redis.sock")

    def command(self, *words):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(10)
            s.connect(self.path)
            s.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w.encode()), w.encode()) for w in words))
            return self._read(s.makefile("rb"))

    def _read(self, f):
        line = f.readline().rstrip(b"\r\n")
        kind, rest = line[:1], line[1:]
        if kind == b"*":
            return [self._read(f) for _ in range(int(rest))]
        if kind == b"$":
            return None if rest == b"-1" else f.read(int(rest) + 2)[:-2]
        assert kind in b"+:", line
        return int(rest) if kind == b":" else rest

    def slots(self):
        """Slots whose lease still runs, of all callers."""
        seconds, micros = self.command("TIME")
        now = int(seconds) * 1000 + int(micros) // 1000
        return sum(self.command("ZCOUNT", key.decode(), f"({now}", "+inf") for key in self.command("KEYS", "plimsoll:2:*:slots"))


def process(gw, name):
    """The pid of the gateway's process of this name; redis-server adds its socket to its own."""
    for pid in g.descendants(gw.process.pid):
        words = g.name_of(pid).split(" ")
        if words and words[0].split("/")[-1] == name:
            return pid
    raise AssertionError(f"no process {name}")


def expect_all_free(gw):
    """Nothing in flight and no slot taken, within a second of the last answer."""
    gw.wait_inflight(0, 1)
    store = StoreSocket(gw)
    g.wait_for(lambda: store.slots() == 0, "the slots to be free", 1)


def run_of(gw, request_id):
    """The listed run of a request ID."""
    runs = [r for r in gw.get("/v1/runs?limit=100").json()["runs"] if r["request_id"] == request_id]
    assert len(runs) == 1, runs
    return runs[0]


@contextlib.contextmanager
def started(**settings):
    gw = g.Gateway({"SANDBOX_PROVIDER": "standin", "SANDBOX_MAX_CONCURRENT": "64", **settings})
    gw.settings["PLIMSOLL_STANDIN_LOG"] = str(gw.home / "given")
    try:
        yield gw.start()
        gw.stop()
    finally:
        gw.kill_rest()
        gw.remove()


@pytest.fixture(scope="module")
def gw():
    """One stand-in; its tests leave nothing in flight. (It hides the shared gateway of the other files.)"""
    with started() as it:
        yield it


@pytest.fixture
def own():
    with contextlib.ExitStack() as stack:
        yield lambda **settings: stack.enter_context(started(**settings))


# -- it refused: nothing ran --


@pytest.mark.parametrize("reason, code", [
    ("request", "invalid_argument"), ("permission", "permission_denied"), ("protocol", "invalid_argument"), ("unsupported", "unimplemented"),
    ("isolation", "failed_precondition"), ("capacity", "resource_exhausted"), ("environment", "failed_precondition")])
def test_a_refusal_is_marked_recorded_and_frees_the_id(gw, reason, code):
    key = g.new_id()
    word, text = noted(f"refuse {reason}")
    g.refused(gw.run(text, key), code, reason, key)
    run = run_of(gw, key)
    assert (run["verdict"], run["reason"], run["record_sha256"]) == ("refused", reason, "")
    expect_all_free(gw)
    # the ID is free: even for another request
    assert gw.ok("standin: answer", key).header("Plimsoll-Replayed") is None
    assert notes(gw).count(word) == 1


@pytest.mark.parametrize("wait_ms, header", [(0, "1"), (1, "1"), (1000, "1"), (1001, "2"), (7000, "7")])
def test_the_wait_a_backend_states_is_told_in_whole_seconds(gw, wait_ms, header):
    answer = gw.run(f"standin: refuse capacity {wait_ms}")
    g.refused(answer, "resource_exhausted", "capacity")
    assert answer.header("Retry-After") == header


def test_a_refusal_of_a_backend_names_it_and_the_run_it_is_recorded_as(gw):
    """It was listed under an ID that no answer had told."""
    key = g.new_id()
    answer = gw.run("standin: refuse environment", key)
    g.refused(answer, "failed_precondition", "environment", key)
    run = run_of(gw, key)
    assert (run["verdict"], run["reason"]) == ("refused", "environment")
    assert answer.header("Plimsoll-Run-Id") == run["run_id"] and answer.header("Plimsoll-Backend") == run["backend"] == "standin"


def test_a_refusal_without_a_reason_may_have_run(gw):
    key = g.new_id()
    g.failed(gw.run("standin: refuse none", key), "internal", key)
    assert run_of(gw, key)["verdict"] == "unknown"
    expect_all_free(gw)


@pytest.mark.faults
def test_a_refusal_costs_no_rate(own):
    gw = own(SANDBOX_RATE_PER_MIN="2")
    for _ in range(5):
        g.refused(gw.run("standin: refuse capacity"), "resource_exhausted", "capacity")
    gw.ok()
    gw.ok()
    assert gw.run().header("Retry-After") is not None


# -- it failed: it may have run --


@pytest.mark.parametrize("act, code", [
    ("fail internal", "internal"), ("fail unavailable", "unavailable"), ("fail canceled", "canceled"),
    ("fail deadline_exceeded", "deadline_exceeded"), ("fail something_new", "internal"), ("hold 20\nstandin: fail internal", "internal"),
    ("dance", "internal")])
def test_a_failure_is_unmarked_and_keeps_the_id(gw, act, code):
    key = g.new_id()
    word, text = noted(act)
    first = gw.run(text, key)
    g.failed(first, code, key)
    assert "detail" not in first.message and "stand-in knows" not in first.message
    if code == "internal":
        number = re.fullmatch(r"internal error ([0-9a-f]{16});.*", first.message).group(1)
        assert number in gw.log()
    run = run_of(gw, key)
    assert (run["verdict"], run["unanswered"], run["run_id"]) == ("unknown", code, first.header("Plimsoll-Run-Id"))
    # the wall it was behind was not told, of all runs of these
    assert run["isolation"] == gw.wait_log("code run failed", run_id=run["run_id"])["isolation"] != ""
    expect_all_free(gw)
    for _ in range(2):
        again = gw.run(text, key)
        g.failed(again, code, key)
        assert again.header("Plimsoll-Run-Id") == first.header("Plimsoll-Run-Id")
    assert notes(gw).count(word) == 1
    # with another body the ID is refused, for good
    g.refused(gw.run("standin: answer", key), "invalid_argument", "request", key)


# -- it lied: what does not hold is no result --


@pytest.mark.parametrize("lie, floor", [("kind", None), ("name", None), ("record", None), ("garbage", None), ("tier none", "container"),
                                        ("tier process", "container"), ("tier galaxy", "container"), ("tier galaxy", None), ("tier VM", None)])
def test_an_answer_that_does_not_hold_never_reaches_the_caller(gw, lie, floor):
    key = g.new_id()
    answer = gw.run("standin: lie " + lie, key, **({"minimumIsolation": floor} if floor else {}))
    g.failed(answer, "internal", key)
    assert b"bGllCg" not in answer.body  # the lie's output
    assert run_of(gw, key)["verdict"] == "unknown"
    expect_all_free(gw)


def test_a_project_answered_as_a_snippet_is_no_result(gw):
    key = g.new_id()
    body = {"protocol": 4, "project": {"steps": ["standin: lie kind"]}}
    g.failed(gw.post(g.RUN, body, key), "internal", key)
    assert run_of(gw, key)["verdict"] == "unknown"


# -- bytes --


@pytest.mark.parametrize("count", [0, 1, 255, 256, 65536, 300001])
def test_output_comes_byte_for_byte(gw, count):
    key = g.new_id()
    first = gw.ok(f"standin: bytes {count}", key)
    assert g.stdout(first) == (bytes(range(256)) * (count // 256 + 1))[:count]
    assert gw.ok(f"standin: bytes {count}", key).body == first.body


def test_an_answer_too_large_to_keep_is_given_once_and_its_record_stands(gw):
    key = g.new_id()
    word, text = noted(f"bytes {2 * g.MIB}")
    first = gw.ok(text, key)
    assert len(g.stdout(first)) == 2 * g.MIB
    again = gw.run(text, key)
    g.failed(again, "already_exists", key)
    assert again.header("Plimsoll-Run-Id") == first.header("Plimsoll-Run-Id")
    record = gw.get("/v1/runs/" + first.header("Plimsoll-Run-Id")).json()
    assert record["record_sha256"] == first.json()["record"]["recordSha256"] == record["record"]["recordSha256"]
    assert notes(gw).count(word) == 1


def test_an_answer_no_client_would_accept_is_an_error(gw):
    key = g.new_id()
    # in base64 more than 32 MiB
    g.failed(gw.run(f"standin: bytes {26 * 1000 * 1000}", key), "internal", key)
    expect_all_free(gw)


# -- time --


def test_a_run_past_its_deadline_is_answered_as_timed_out(gw):
    began = time.monotonic()
    answer = gw.ok("standin: hold 60000", timeoutMs=500)
    assert 0.5 <= time.monotonic() - began < 0.5 + 0.4 + 0.5  # 400 ms of margin, and a busy machine
    assert answer.json()["javascript"]["timedOut"] is True and answer.json()["javascript"]["exitCode"] == 124


def test_a_deaf_backend_is_given_up_after_its_margin(gw):
    key = g.new_id()
    word, text = noted("deaf 9000")
    began = time.monotonic()
    waiting = gw.in_background(text, key, timeoutMs=500)
    g.wait_for(lambda: word in notes(gw), "the run to begin")
    gw.ok()  # others go on
    answer = waiting.join()
    took = time.monotonic() - began
    g.failed(answer, "deadline_exceeded", key)
    assert 0.5 + WATCHDOG_S + GRACE_S <= took < 0.5 + WATCHDOG_S + GRACE_S + 1.2
    assert (run_of(gw, key)["verdict"], run_of(gw, key)["unanswered"]) == ("unknown", "deadline_exceeded")
    expect_all_free(gw)
    g.failed(gw.run(text, key, timeoutMs=500), "deadline_exceeded", key)
    assert notes(gw).count(word) == 1


def test_a_caller_that_leaves_a_deaf_backend_holds_nothing_for_long(gw):
    key = g.new_id()
    word, text = noted("deaf 7000")
    connection = gw.start_run(text, key, timeoutMs=60000)
    g.wait_for(lambda: word in notes(gw), "the run to begin")
    connection.close()
    gw.wait_inflight(0, GRACE_S + 2)
    expect_all_free(gw)
    run = run_of(gw, key)
    assert (run["verdict"], run["unanswered"]) == ("unknown", "canceled")


def test_a_caller_that_hangs_up_cancels_the_run(gw):
    key = g.new_id()
    word, text = noted("hold 60000")
    connection = gw.start_run(text, key, timeoutMs=60000)
    g.wait_for(lambda: word in notes(gw), "the run to begin")
    connection.close()
    gw.wait_inflight(0, 1)
    expect_all_free(gw)
    assert run_of(gw, key)["canceled"] is True


# -- a backend's process dies --


def expect_lost(gw, answer, key):
    g.failed(answer, "unavailable", key)
    run = run_of(gw, key)
    assert (run["verdict"], run["unanswered"]) == ("unknown", "unavailable")


def expect_service(gw, seconds=g.START_S):
    g.wait_for(lambda: gw.run().status == 200, "service to resume", seconds)
    gw.ok()
    g.wait_for(lambda: gw.get("/readyz").status == 200, "readiness")


def test_a_wall_that_refuses_late_had_the_next_one_run_past_the_lease(own):
    """After the lease other copies settle a run as lost and give its slot away, while it ran on at the second wall."""
    gw = own(SANDBOX_PROVIDER="standin,standin2")
    word, code = noted("deaf 8500\nstandin: refuse capacity")  # 8.5 s + 7 s + the time to find its end, of 7 s + 15 s
    key = g.new_id()
    answer = gw.run(code, key, timeoutMs=7000)
    g.refused(answer, "resource_exhausted", "capacity", key)
    assert answer.header("Plimsoll-Passed-Over") == "standin;reason=capacity, standin2;reason=capacity"
    assert notes(gw).count(word) == 1
    word, code = noted("refuse capacity")  # at once: the second is asked
    g.refused(gw.run(code, key, timeoutMs=7000), "resource_exhausted", "capacity", key)
    assert notes(gw).count(word) == 2
    expect_all_free(gw)


@pytest.mark.parametrize("how", ["exit", "kill -9"])
def test_a_role_that_dies_loses_only_its_own_runs(own, how):
    gw = own(SANDBOX_PROVIDER="standin,standin2")
    key, other_key, third_key = g.new_id(), g.new_id(), g.new_id()
    word, held = noted("hold 20000")
    third_word, on_the_other = noted("hold 1500")
    waiting = gw.in_background(held, key)
    third = gw.in_background(on_the_other, third_key, path="/backends/standin2" + g.RUN)
    g.wait_for(lambda: {word, third_word} <= set(notes(gw)), "the runs to begin")
    role = process(gw, "plimsolld-backend-standin")
    if how == "exit":
        expect_lost(gw, gw.run("standin: exit", other_key), other_key)
    else:
        os.kill(role, signal.SIGKILL)
    expect_lost(gw, waiting.join(), key)
    answer = third.join()
    assert answer.status == 200, answer
    assert answer.header("Plimsoll-Backend") == "standin2"
    gw.wait_log("process died", process="standin")
    gw.wait_log("process restarted", process="standin")
    g.wait_for(lambda: gw.run().header("Plimsoll-Backend") == "standin", "the role to be back")
    expect_service(gw)
    expect_all_free(gw)
    # the lost run stays what it was, and is not made again
    g.failed(gw.run(held, key), "unavailable", key)
    assert notes(gw).count(word) == 1
    assert gw.metric("plimsoll_backend_lost_total") == (2 if how == "exit" else 1)


def test_while_a_role_is_away_the_next_backend_serves(own):
    gw = own(SANDBOX_PROVIDER="standin,standin2")
    role = process(gw, "plimsolld-backend-standin")
    os.kill(role, signal.SIGSTOP)  # it cannot end itself, so that it is away for a while once killed
    os.kill(role, signal.SIGKILL)
    for _ in range(20):
        answer = gw.run()
        # a run handed over in the very moment of the death may be lost; every other one is served
        assert answer.status == 200 or (answer.status == 503 and answer.reason is None), answer
    expect_service(gw)


def test_the_wasm_template_is_replaced_when_killed(own):
    gw = own(SANDBOX_PROVIDER="wasm")
    key = g.new_id()
    gw.ok("console.log(1)")
    waiting = gw.in_background("for(;;){}", key, timeoutMs=20000)
    gw.wait_inflight(1)
    os.kill(process(gw, "plimsoll-wasm"), signal.SIGKILL)
    answer = waiting.join(15)
    assert answer.status in (500, 503) and answer.reason is None and answer.header("Plimsoll-Not-Dispatched") is None, answer
    assert run_of(gw, key)["verdict"] == "unknown"
    expect_service(gw)
    assert g.stdout(gw.ok("console.log(6*7)", minimumIsolation="process")) == b"42\n"
    expect_all_free(gw)


# -- the front dies --


def kill_front(gw):
    before = len(gw.log_lines("process restarted", process="front"))
    os.kill(process(gw, "plimsolld-front"), signal.SIGKILL)
    g.wait_for(lambda: len(gw.log_lines("process restarted", process="front")) > before, "the parent to start the front again")


def expect_closed(connection):
    with pytest.raises((g.Closed, ConnectionError)):
        connection.read_answer()
    connection.close()


def retry_until_final(gw, code, key, seconds, **more):
    """As a client repeats itself: the same ID until an answer that is no marked refusal."""
    end = time.monotonic() + seconds
    while True:
        try:
            answer = gw.run(code, key, **more)
            if answer.status == 200 or answer.reason is None:
                return answer
        except (OSError, g.Closed):
            pass
        assert time.monotonic() < end, "no final answer"
        time.sleep(0.05)


def test_a_run_whose_front_was_killed_is_never_made_again(own):
    gw = own()
    key = g.new_id()
    word, text = noted("hold 20000")
    connection = gw.start_run(text, key, timeoutMs=1000)
    g.wait_for(lambda: word in notes(gw), "the run to begin")
    kill_front(gw)
    expect_closed(connection)
    began = time.monotonic()
    expect_service(gw)
    # it waits for the lease: until then the run may still be under way somewhere
    answer = retry_until_final(gw, text, key, 1 + LEASE_MARGIN_S + 10, timeoutMs=1000)
    g.failed(answer, "unavailable", key)
    assert time.monotonic() - began > LEASE_MARGIN_S - 5
    assert notes(gw).count(word) == 1
    assert StoreSocket(gw).slots() == 0
    gw.ok()


@pytest.mark.faults
def test_wherever_the_front_dies_a_request_id_runs_at_most_once(own):
    gw = own()
    sent = {}
    for point, ran in (("run.claim", 0), ("run.admitted", 0), ("run.dispatch", 0), ("run.result", 1), ("run.settle", 1), ("run.answer", 1)):
        key = g.new_id()
        word, text = noted("answer")
        gw.faults.arm(point, "once kill")
        connection = gw.start_run(text, key, timeoutMs=100)
        gw.faults.wait(point)
        expect_closed(connection)
        sent[point] = (key, word, text, ran)
        expect_service(gw)
    waiting = {point: g.Background(lambda a=args: retry_until_final(gw, a[2], a[0], 40, timeoutMs=100)) for point, args in sent.items()}
    answers = {point: w.join(60) for point, w in waiting.items()}
    done = notes(gw)
    for point, (key, word, _, ran) in sent.items():
        answer = answers[point]
        assert done.count(word) <= 1, point
        if point == "run.claim":
            assert answer.status == 200  # nothing had been written
        elif point == "run.answer":
            assert answer.status == 200 and answer.header("Plimsoll-Replayed") == "1", (point, answer)
            g.check_record(g.javascript(sent[point][2], timeoutMs=100), answer)
        else:
            g.failed(answer, "unavailable", key)
            assert done.count(word) == ran, point
    expect_all_free(gw)


# -- the store dies or freezes --


class Client(threading.Thread):
    """Sends keyed runs one after the other, each until its final answer, and keeps what it saw."""

    def __init__(self, gw, count):
        super().__init__(daemon=True)
        self.gw, self.count = gw, count
        self.seen, self.errors = [], []

    def run(self):
        try:
            for _ in range(self.count):
                key = g.new_id()
                word, text = noted("hold 25")
                answer = retry_until_final(self.gw, text, key, 60, timeoutMs=1000)
                if answer.status == 200:
                    g.check_record(g.javascript(text, timeoutMs=1000), answer)
                assert answer.header("Plimsoll-Request-Id") == key
                self.seen.append((word, text, key, answer))
        except BaseException as e:  # told to the test
            self.errors.append(e)


def under_load(gw, disturb, clients=8, each=30):
    """240 keyed runs with `disturb` in their midst; what was seen."""
    load = [Client(gw, each) for _ in range(clients)]
    for client in load:
        client.start()
    g.wait_for(lambda: sum(len(c.seen) for c in load) >= clients * each // 5, "the load to be under way", 30)
    disturb()
    for client in load:
        client.join(120)
        assert not client.is_alive() and not client.errors, client.errors
    return [entry for client in load for entry in client.seen]


def expect_once(gw, seen):
    done = notes(gw)
    answered = 0
    for word, _, _, answer in seen:
        assert done.count(word) <= 1
        if answer.status == 200:
            assert done.count(word) == 1
            answered += 1
        else:
            assert answer.reason is None and answer.code == "unavailable", answer
    return answered


def test_a_killed_store_under_load_makes_nothing_run_twice(own):
    gw = own()
    seen = under_load(gw, lambda: os.kill(process(gw, "redis-server"), signal.SIGKILL))
    answered = expect_once(gw, seen)
    assert answered >= len(seen) * 9 // 10
    gw.wait_log("process restarted", process="redis-server")
    expect_service(gw)
    # what was answered is answered again from the store that came back
    for word, text, key, answer in seen[:5] + seen[-5:]:
        if answer.status == 200:
            again = gw.ok(text, key, timeoutMs=1000)
            assert again.json() == answer.json() and again.header("Plimsoll-Replayed") == "1"
    expect_once(gw, seen)


def test_killed_roles_under_load_make_nothing_run_twice(own):
    gw = own()

    def kill_them():
        for name in ("plimsolld-backend-standin", "plimsolld-front"):
            os.kill(process(gw, name), signal.SIGKILL)
            time.sleep(0.3)
    seen = under_load(gw, kill_them)
    assert expect_once(gw, seen) >= len(seen) * 8 // 10
    expect_service(gw)


def burst(gw, requests):
    """Sends all at once on connections that are open already; [(seconds, answer)]."""
    connections = [gw.connect() for _ in requests]
    began = time.monotonic()
    for connection, data in zip(connections, requests):
        connection.send(data)
    waiting, took = {c.sock: i for i, c in enumerate(connections)}, {}
    while waiting and time.monotonic() - began < 10:
        for sock in select.select(list(waiting), [], [], 1)[0]:
            took[waiting.pop(sock)] = time.monotonic() - began
    assert not waiting, "no answer"
    answers = [c.read_answer() for c in connections]
    for connection in connections:
        connection.close()
    return [(took[i], answer) for i, answer in enumerate(answers)]


def test_a_frozen_store_refuses_at_once_and_nothing_runs_later(own):
    gw = own()
    gw.ok()
    redis = process(gw, "redis-server")
    cases = []
    for i in range(20):
        word, text = noted("answer")
        cases.append((word, text, g.new_id() if i % 2 else None))
    requests = [g.request(g.RUN, g.json.dumps(g.javascript(text)).encode(), gw.headers(key)) for _, text, key in cases]
    os.kill(redis, signal.SIGSTOP)
    try:
        frozen = time.monotonic()
        with Stalls() as stalls:
            answers = burst(gw, requests)
        for (took, answer), (_, _, key) in zip(answers, cases):
            g.refused(answer, "unavailable", "capacity", key)
            assert took <= 0.3 + 2 * stalls.worst, (took, stalls.worst)
            assert int(answer.header("Retry-After")) >= 1
        assert gw.get("/healthz").status == 200
        g.wait_for(lambda: gw.get("/readyz").status == 503, "unreadiness", 4)
        # later ones too, each at once
        while time.monotonic() - frozen < 5:
            with Stalls() as stalls:
                (took, answer), = burst(gw, [requests[1]])
            g.refused(answer, "unavailable", "capacity", cases[1][2])
            assert took <= 0.3 + 2 * stalls.worst, (took, stalls.worst)
            time.sleep(0.2)
        assert gw.get("/healthz").status == 200
    finally:
        os.kill(redis, signal.SIGCONT)
    thawed = time.monotonic()
    with Stalls() as stalls:
        g.wait_for(lambda: gw.run().status == 200, "service to resume")
        resumed = time.monotonic() - thawed
    assert resumed <= 1 + 5 * stalls.worst, (resumed, stalls.worst)
    g.wait_for(lambda: gw.get("/readyz").status == 200, "readiness")
    time.sleep(0.5)
    assert not {word for word, _, _ in cases} & set(notes(gw)), "a refused run was made"
    # the IDs are free again, and what is sent with them now runs
    for word, text, key in cases[:6]:
        answer = retry_until_final(gw, text, key, 10)
        assert answer.status == 200 and answer.header("Plimsoll-Replayed") is None, answer
        assert notes(gw).count(word) == 1
    expect_all_free(gw)
