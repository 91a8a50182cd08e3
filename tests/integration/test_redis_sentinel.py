"""The record store behind Sentinels, and a server that stops being the one to write to: runs are refused while there is no master, nothing
runs twice, and service comes back by itself."""
import collections
import json
import signal
import threading
import time

import pytest

import gateway as g
import redis_servers as r
from gateway import failed, new_id, refused, wait_for
from relay import Slow

STANDIN = {"SANDBOX_PROVIDER": "standin", "SANDBOX_MAX_CONCURRENT": "64"}
ANSWER_MS = 300        # how long an answer may take whatever Redis does (the store's own limit is 250 ms)
FAILOVER_S = 30        # half a second until it is noticed, an election, and a busy machine


class Load:
    """Runs from several threads, each with an ID of its own, sent again under the same ID while they are refused. Keeps every answer."""

    def __init__(self, gw, threads=4, pause=0.01, keyed=True, again=True):
        self.gw, self.pause, self.keyed, self.again = gw, pause, keyed, again
        self.ending = threading.Event()
        self.answers = []  # (began, seconds, request ID, answer)
        self.workers = [g.Background(self._work) for _ in range(threads)]

    def _work(self):
        with self.gw.connect() as c:
            while not self.ending.is_set():
                request_id = new_id() if self.keyed else None
                while True:
                    began = time.monotonic()
                    answer = self.gw.run("standin: answer", request_id, on=c)
                    self.answers.append((began, time.monotonic() - began, request_id, answer))
                    if answer.status == 200 or not self.again or self.ending.is_set():
                        break
                    time.sleep(self.pause)
                time.sleep(self.pause)

    def end(self):
        self.ending.set()
        for worker in self.workers:
            worker.join()
        return self

    @property
    def refusals(self):
        return [a for _, _, _, a in self.answers if a.status != 200]

    @property
    def answered(self):
        return [a for _, _, _, a in self.answers if a.status == 200]

    def slowest(self):
        return max(seconds for _, seconds, _, _ in self.answers)


def all_are_answered_or_refused_for_want_of_the_store(load):
    for _, _, request_id, a in load.answers:
        if a.status != 200:
            refused(a, "unavailable", "capacity", request_id)
            assert int(a.header("Retry-After")) >= 1


def none_ran_twice(gw, load):
    """By what the wall itself wrote down, and by the answers."""
    given = [line.split()[0] for line in (gw.home / "given").read_text().splitlines()]
    assert len(given) == len(set(given))
    runs = collections.Counter(a.header("Plimsoll-Run-Id") for a in load.answered if a.header("Plimsoll-Replayed") is None)
    assert not [run for run, n in runs.items() if n > 1]
    assert set(runs) <= set(given)


def logged(gateway, **settings):
    gw = gateway(start=False, **settings, **STANDIN)
    (gw.home / "given").touch()
    (gw.home / "given").chmod(0o666)
    gw.settings["PLIMSOLL_STANDIN_LOG"] = str(gw.home / "given")
    gw.start()
    wait_for(lambda: gw.get("/readyz").status == 200, "the store to be up")
    return gw


@pytest.fixture
def sentinels():
    started = []

    def make(**more):
        started.append(r.Sentinels(**more))
        return started[-1].start()
    yield make
    for s in started:
        s.stop()


@pytest.mark.faults
def test_the_master_dies_and_another_takes_over(sentinels, gateway):
    """Affected runs are refused (or their outcome is kept and told), none runs twice, nobody restarts anything."""
    s = sentinels(replicas=1)
    gw = logged(gateway, PLIMSOLL_REDIS_URL=s.url)
    load = Load(gw)
    wait_for(lambda: len(load.answered) >= 50, "runs before")
    old = s.master()
    died = time.monotonic()
    old.kill()
    wait_for(lambda: gw.get("/readyz").status == 503, "the loss to be seen")
    wait_for(lambda: s.master() is not old, "a new master", FAILOVER_S)
    wait_for(lambda: gw.get("/readyz").status == 200, "the new master to be found", FAILOVER_S)
    before = len(load.answered)
    wait_for(lambda: len(load.answered) >= before + 50, "runs after", FAILOVER_S)
    load.end()
    all_are_answered_or_refused_for_want_of_the_store(load)
    assert load.refusals
    none_ran_twice(gw, load)
    # its records: what could not be written when the master died followed, and all is found at the new one
    wait_for(lambda: gw.metric("plimsoll_settle_backlog") == 0 == gw.metric("plimsoll_spool_records"), "what waited to be written")
    assert time.monotonic() - died < 2 * FAILOVER_S
    # the old one comes back as a replica; nothing moves to it
    old.arguments = [a for a in old.arguments if "replicaof" not in a]
    old.start()
    wait_for(lambda: old.info("role") == "slave", "the Sentinels to demote it", FAILOVER_S)
    wait_for(lambda: gw.get("/readyz").status == 200, "every loop to have found the new master")
    assert gw.ok("standin: answer", new_id())


@pytest.mark.faults
def test_a_master_that_is_frozen_is_left_for_its_successor(sentinels, gateway):
    s = sentinels(replicas=1)
    gw = logged(gateway, PLIMSOLL_REDIS_URL=s.url)
    request_id = new_id()
    gw.ok("standin: answer", request_id)
    wait_for(lambda: s.servers[0].ask("WAIT", 1, 1000) == 1, "the replica to have it")
    old = s.master()
    old.signal(signal.SIGSTOP)
    wait_for(lambda: s.master() is not old, "a new master", FAILOVER_S)
    # the new one knows the claim; until the frozen one is left, nothing answers
    wait_for(lambda: gw.run("standin: answer", request_id).header("Plimsoll-Replayed") == "1", "the new master to be found", FAILOVER_S)
    old.signal(signal.SIGCONT)
    wait_for(lambda: old.info("role") == "slave", "the Sentinels to demote it", FAILOVER_S)
    wait_for(lambda: gw.get("/readyz").status == 200, "every loop to have found the new master")
    for _ in range(20):
        gw.ok("standin: answer", new_id())


def test_sentinels_that_are_dead_frozen_or_know_nothing_are_passed_over(sentinels, gateway):
    s = sentinels(replicas=0)
    s.sentinels[0].kill()
    s.sentinels[1].signal(signal.SIGSTOP)
    gw = gateway(PLIMSOLL_REDIS_URL=s.url, **STANDIN)
    wait_for(lambda: gw.get("/readyz").status == 200, "the third Sentinel to be asked")
    assert gw.run("standin: answer").status == 200
    gw = gateway(PLIMSOLL_REDIS_URL=f"redis+sentinel://{s.hosts}/other", **STANDIN)
    wait_for(lambda: "it knows no master of that name" in gw.log(), "the reason to be told")
    refused(gw.run("standin: answer"), "unavailable", "capacity")


def test_sentinels_and_servers_have_passwords_of_their_own(sentinels, gateway):
    s = sentinels(replicas=0, password="watchword")
    s.servers[0].ask("ACL", "SETUSER", "gw", "on", ">pa55word", "~*", "&*", "+@all")
    gw = gateway(PLIMSOLL_REDIS_URL=f"redis+sentinel://gw:pa55word@{s.hosts}/{s.NAME}?sentinel_password=watchword", **STANDIN)
    gw.secrets += ["pa55word", "watchword"]
    wait_for(lambda: gw.get("/readyz").status == 200, "the store to be up")
    assert gw.run("standin: answer").status == 200
    gw = gateway(PLIMSOLL_REDIS_URL=f"redis+sentinel://gw:pa55word@{s.hosts}/{s.NAME}?sentinel_password=wrong", **STANDIN)
    wait_for(lambda: "AUTH refused: wrong user or password" in gw.log(), "the reason to be told")
    assert "pa55word" not in gw.log()


def test_a_sentinel_named_as_the_server_is_told(sentinels, gateway):
    s = sentinels(replicas=0)
    gw = gateway(PLIMSOLL_REDIS_URL=f"redis://127.0.0.1:{s.sentinels[0].port}", **STANDIN)
    wait_for(lambda: "redis+sentinel://" in gw.log(), "the reason to be told")
    refused(gw.run("standin: answer"), "unavailable", "capacity")


# -- one server, no Sentinel --


@pytest.fixture
def server():
    s = r.Server().start()
    yield s
    s.stop()


@pytest.mark.faults
def test_a_master_that_is_demoted_and_comes_back_at_the_same_address(server, gateway):
    """n8n-io/n8n#25038: a client that stayed on the read-only server until it was restarted."""
    gw = logged(gateway, PLIMSOLL_REDIS_URL=f"redis://127.0.0.1:{server.port}")
    load = Load(gw)
    wait_for(lambda: len(load.answered) >= 20, "runs before")
    server.ask("REPLICAOF", "127.0.0.1", "1")
    wait_for(lambda: gw.get("/readyz").status == 503, "the demotion to be seen")
    before = len(load.answered)
    wait_for(lambda: len(load.refusals) >= 20, "runs to be refused")
    assert len(load.answered) == before
    server.ask("REPLICAOF", "NO", "ONE")
    wait_for(lambda: len(load.answered) >= before + 20, "runs after")
    load.end()
    all_are_answered_or_refused_for_want_of_the_store(load)
    none_ran_twice(gw, load)
    wait_for(lambda: gw.get("/readyz").status == 200, "the store to be up")


@pytest.mark.faults
def test_a_server_that_is_loading_is_waited_for(server, gateway):
    gw = logged(gateway, PLIMSOLL_REDIS_URL=f"redis://127.0.0.1:{server.port}")
    request_id = new_id()
    gw.ok("standin: answer", request_id)
    # enough to load for some seconds, a key at a time
    server.ask("DEBUG", "POPULATE", 3000, "filling")
    server.ask("SAVE")
    server.kill()
    server.arguments += ["--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024"]
    server.start()
    wait_for(lambda: server.info("loading") == "1", "the server to load")
    fresh = new_id()
    began = time.monotonic()
    refused(gw.run("standin: answer", fresh), "unavailable", "capacity", fresh)
    assert time.monotonic() - began < ANSWER_MS / 1000
    assert gw.get("/readyz").status == 503
    wait_for(lambda: gw.get("/readyz").status == 200, "the server to have loaded", g.START_S)
    assert gw.ok("standin: answer", request_id).header("Plimsoll-Replayed") == "1"
    assert any(line["reason"].startswith("LOADING") for line in gw.log_lines("record store away"))


@pytest.mark.faults
def test_scripts_flushed_under_load_are_sent_again(server, gateway):
    gw = logged(gateway, PLIMSOLL_REDIS_URL=f"redis://127.0.0.1:{server.port}")
    load = Load(gw)
    for _ in range(40):
        before = len(load.answered)
        server.ask("SCRIPT", "FLUSH")
        wait_for(lambda: len(load.answered) > before, "a run after it")
    load.end()
    assert not load.refusals, load.refusals[:2]
    none_ran_twice(gw, load)


@pytest.mark.faults
def test_a_full_server_refuses_runs_and_keeps_what_it_has(server, gateway):
    gw = logged(gateway, PLIMSOLL_REDIS_URL=f"redis://127.0.0.1:{server.port}")
    request_id, held = new_id(), new_id()
    gw.ok("standin: answer", request_id)
    code, barrier = gw.barrier()
    run = gw.in_background(code, held)
    gw.wait_inflight(1)
    server.ask("CONFIG", "SET", "maxmemory", "1")
    fresh = new_id()
    refused(gw.run("standin: answer", fresh), "unavailable", "capacity", fresh)
    refused(gw.run("standin: answer"), "unavailable", "capacity")
    # the one that was admitted is answered, and its record follows when there is room
    barrier.unlink()
    assert run.join().status == 200
    refused(gw.run("standin: answer", fresh), "unavailable", "capacity", fresh)
    server.ask("CONFIG", "SET", "maxmemory", "0")
    wait_for(lambda: gw.run("standin: answer").status == 200, "runs to be taken again")
    wait_for(lambda: gw.metric("plimsoll_settle_backlog") == 0 == gw.metric("plimsoll_spool_records"), "what waited to be written")
    assert gw.run("standin: answer", request_id).header("Plimsoll-Replayed") == "1"
    assert gw.run(code, held).header("Plimsoll-Replayed") == "1"


@pytest.mark.faults
def test_a_master_without_its_replicas_refuses_runs_until_they_are_back(server, gateway):
    gw = logged(gateway, PLIMSOLL_REDIS_URL=f"redis://127.0.0.1:{server.port}")
    code, barrier = gw.barrier()
    held, fresh = new_id(), new_id()
    run = gw.in_background(code, held)
    gw.wait_inflight(1)
    server.ask("CONFIG", "SET", "min-replicas-to-write", "1")
    refused(gw.run("standin: answer", fresh), "unavailable", "capacity", fresh)
    barrier.unlink()
    assert run.join().status == 200
    server.ask("CONFIG", "SET", "min-replicas-to-write", "0")
    wait_for(lambda: gw.run("standin: answer", fresh).status == 200, "runs to be taken again")
    wait_for(lambda: gw.metric("plimsoll_settle_backlog") == 0 == gw.metric("plimsoll_spool_records"), "what waited to be written")
    assert gw.run(code, held).header("Plimsoll-Replayed") == "1"


def test_a_client_that_sends_at_once_while_redis_is_away_does_not_end_the_front(gateway):
    """A refusal written by a task left the connection to libh2o for a moment: the next request was read past the gate, and the front ended."""
    gw = gateway(PLIMSOLL_REDIS_URL=f"redis://127.0.0.1:{g.free_port()}", PLIMSOLL_THREADS="1", **STANDIN)
    data = g.request(g.RUN, json.dumps(g.javascript("standin: answer")).encode(), gw.headers(new_id()))
    with gw.connect() as one, gw.connect() as other:
        for _ in range(2000):
            for c in (one, other):
                c.send(data)
            for c in (one, other):
                assert c.read_answer().status == 503
    assert not gw.log_lines("process died")


@pytest.fixture
def slow(server):
    s = Slow(server)
    yield s
    s.stop()


@pytest.mark.faults
@pytest.mark.parametrize("how", ["sleep", "proxy"])
def test_a_slow_server_keeps_nobody_waiting(server, slow, gateway, how):
    gw = logged(gateway, PLIMSOLL_REDIS_URL=slow.url if how == "proxy" else f"redis://127.0.0.1:{server.port}")
    refusals = 0
    for _ in range(3):
        load = Load(gw, threads=8, pause=0.02, again=False)
        wait_for(lambda: len(load.answered) >= 8, "runs")
        if how == "proxy":
            slow.delay = 0.6
            time.sleep(1.5)
            slow.delay = 0.0
        else:
            with server.connection() as ask:
                ask("DEBUG", "SLEEP", "1.5")
        time.sleep(0.2)
        load.end()
        all_are_answered_or_refused_for_want_of_the_store(load)
        refusals += len(load.refusals)
        # a busy machine adds to it: the slowest but two of hundreds
        took = sorted(seconds for _, seconds, _, _ in load.answers)
        assert took[-3] < ANSWER_MS / 1000 + 0.1, took[-5:]
        wait_for(lambda: gw.get("/readyz").status == 200, "the store to be up")
        none_ran_twice(gw, load)
    assert refusals


@pytest.mark.faults
def test_who_joined_a_run_of_another_copy_waited_without_an_end_while_redis_took_no_writes(server, gateway):
    one, two = (logged(gateway, PLIMSOLL_REDIS_URL=f"redis://127.0.0.1:{server.port}") for _ in range(2))
    code, barrier = one.barrier()
    key = new_id()
    run = one.in_background(code, key, timeoutMs=1000)
    one.wait_inflight(1)
    waiting = two.in_background(code, key, timeoutMs=1000)
    two.wait_metric('plimsoll_claims_total{outcome="joined"}', 1)
    server.ask("CONFIG", "SET", "maxmemory", "1")
    assert run.join().status == 200
    # its lease is the timeout and 15 s; nobody can write what became of it
    failed(waiting.join(25), "unavailable", key)
    server.ask("CONFIG", "SET", "maxmemory", "0")
    wait_for(lambda: one.metric("plimsoll_spool_records") == 0, "what waited to be written")
    assert two.run(code, key, timeoutMs=1000).header("Plimsoll-Replayed") == "1"
