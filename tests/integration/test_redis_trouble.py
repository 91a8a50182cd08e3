"""Redis frozen, killed and started again, and the spool meanwhile: every request is answered in time, every answered run's record reaches Redis
exactly once and in its caller's order, whatever dies when; and without room for records nothing runs."""
import os
import random
import re
import signal
import subprocess
import threading
import time

import pytest

import gateway as g
import resp
from gateway import new_id, refused, wait_for

pytestmark = pytest.mark.faults

ANSWER_DUE_S = 0.3
# What a busy machine and the sanitizers may add to one answer.
SLACK_S = 0.5
STANDIN = {"SANDBOX_PROVIDER": "standin", "SANDBOX_MAX_CONCURRENT": "32"}
SERVE = {**STANDIN, "PLIMSOLL_REDIS_DOWN": "serve"}


class KeepingRedis(g.Redis):
    """One that keeps its data over a kill, as docs/redis-keys.md asks for."""

    def start(self):
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.home), "--save", "", "--appendonly",
             "yes", "--appendfsync", "always", "--loglevel", "warning"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True)
        wait_for(self._answers, "redis-server to answer", g.START_S)
        return self

    def kill(self):
        self.process.kill()
        self.process.wait(g.STOP_S)


@pytest.fixture
def keeping():
    server = KeepingRedis().start()
    yield server
    server.stop()


def spool_of(gw):
    return gw.state / "spool"


def spool_files(gw, part=".spool"):
    return sorted(p for p in spool_of(gw).iterdir() if part in p.name)


def spooled(gw):
    return gw.metric("plimsoll_spool_records")


def wait_replayed(gw, seconds=30):
    gw.wait_metric("plimsoll_spool_records", 0, seconds)


def wait_ready(gw, seconds=g.SETTLE_S):
    wait_for(lambda: gw.get("/readyz").status == 200, "to be ready", seconds)


def history(gw, token=None):
    """The caller's run IDs, oldest first."""
    runs, cursor = [], ""
    while True:
        page = gw.get("/v1/runs?limit=100" + (f"&cursor={cursor}" if cursor else ""), token=token).json()
        runs += page["runs"]
        cursor = page.get("next_cursor") or page.get("nextCursor")
        if not cursor:
            return [r["run_id"] for r in reversed(runs) if r["verdict"] != "refused"]


def command(*words):
    done = subprocess.run([str(g.COMMAND), "spool", *words], capture_output=True, text=True, timeout=g.ANSWER_S,
                          env={"PATH": os.environ["PATH"]})
    return done.returncode, done.stdout, done.stderr


def spool_list(gw, *words):
    status, text, complaint = command("list", "--json", "--dir", str(spool_of(gw)), *words)
    return status, [g.json.loads(line) for line in text.splitlines()], complaint


def run_id(answer):
    return answer.header("Plimsoll-Run-Id")


def timed(call):
    began = time.monotonic()
    answer = call()
    return answer, time.monotonic() - began


def wait_silent(gw):
    """Until the gateway has noticed that Redis is away."""
    wait_for(lambda: gw.get("/readyz").status == 503, "the outage to be noticed")


def refused_for_redis(answer, request_id=None):
    refused(answer, "unavailable", "capacity", request_id)
    assert int(answer.header("Retry-After")) >= 1


# -- frozen --


@pytest.mark.parametrize("mode", ["refuse", "serve"])
def test_a_frozen_redis_is_answered_for_in_time_and_nothing_that_was_refused_runs_later(gateway, redis, mode):
    """U21."""
    gw = gateway(start=False, PLIMSOLL_REDIS_URL=redis.url, **{**STANDIN, "PLIMSOLL_REDIS_DOWN": mode})
    ran = gw.home / "ran"
    ran.touch()
    ran.chmod(0o666)
    gw.settings["PLIMSOLL_STANDIN_LOG"] = str(ran)
    gw.start()
    gw.ok("standin: answer")
    before = len(ran.read_text().splitlines())
    ids = [new_id() if i % 2 else None for i in range(20)]
    redis.signal(signal.SIGSTOP)
    stopped = time.monotonic()
    try:
        answers = [j.join() for j in [g.Background(lambda i=i: timed(lambda: gw.run("standin: answer", i))) for i in ids]]
        for i, (answer, took) in zip(ids, answers):
            if mode == "serve" and i is None:
                assert answer.status == 200, answer
            else:
                refused_for_redis(answer, i)
            assert took <= ANSWER_DUE_S + SLACK_S, f"{took:.3f} s"
        assert gw.get("/healthz").status == 200
        wait_silent(gw)
        assert gw.get("/healthz").status == 200
        time.sleep(max(0, stopped + 5 - time.monotonic()))  # as the report has it
    finally:
        redis.signal(signal.SIGCONT)
    resumed = time.monotonic()
    wait_ready(gw)
    gw.ok("standin: answer", new_id())
    assert time.monotonic() - resumed <= 1 + 2 * SLACK_S
    wait_replayed(gw)
    served = [run_id(a) for a, _ in answers if a.status == 200]
    assert len(ran.read_text().splitlines()) == before + 1 + len(served)
    assert sorted(history(gw)[1:-1]) == sorted(served)
    # the IDs are free again
    for i in ids:
        if i is not None:
            assert gw.ok("standin: answer", i).header("Plimsoll-Replayed") is None


def test_a_run_that_was_under_way_is_answered_and_its_record_follows(gateway, redis):
    gw = gateway(PLIMSOLL_REDIS_URL=redis.url, **STANDIN)
    request_id = new_id()
    code, barrier = gw.barrier()
    job = gw.in_background(code, request_id)
    gw.wait_inflight(1)
    redis.signal(signal.SIGSTOP)
    try:
        barrier.unlink()
        answer = job.join()
        assert answer.status == 200, answer
        gw.wait_metric("plimsoll_spool_records", 1)
        assert gw.metric("plimsoll_spool_appended_total") == 1 and gw.metric("plimsoll_spool_bytes") > 0
        wait_for(lambda: gw.metric("plimsoll_spool_oldest_seconds") >= 1, "the record to age")
    finally:
        redis.signal(signal.SIGCONT)
    wait_ready(gw)
    wait_replayed(gw)
    assert gw.metric("plimsoll_spool_replayed_total") == 1 and gw.metric("plimsoll_spool_oldest_seconds") == 0
    again = gw.run(code, request_id)
    assert again.status == 200 and again.body == answer.body and again.header("Plimsoll-Replayed") == "1"
    assert history(gw) == [run_id(answer)]


# -- killed and started again --


def with_four_callers(gateway, redis, settings):
    callers = {f"team-{i}": g.secrets.token_hex(24) for i in range(4)}
    gw = gateway(start=False, PLIMSOLL_REDIS_URL=redis.url, **settings)
    gw.write_callers(callers)
    gw.settings.pop("PLIMSOLL_TOKEN", None)
    return gw.start(), callers


def test_a_redis_killed_twice_under_load_loses_no_answered_run_and_no_order(gateway, keeping):
    gw, callers = with_four_callers(gateway, keeping, STANDIN)
    answered = {c: [] for c in callers}
    over = threading.Event()

    def load(caller, token):
        keyed = False
        while not over.is_set():
            keyed = not keyed
            answer = gw.run("standin: hold 5", new_id() if keyed else None, token=token)
            if answer.status == 200:
                answered[caller].append(run_id(answer))
            else:
                assert answer.reason == "capacity", answer
                time.sleep(0.01)

    jobs = [g.Background(lambda c=c, t=t: load(c, t)) for c, t in callers.items()]

    def progress(n):
        before = {c: len(a) for c, a in answered.items()}
        wait_for(lambda: all(len(a) >= before[c] + n for c, a in answered.items()) or any(j.is_over for j in jobs), "runs to be answered", 60)

    try:
        for _ in range(2):
            progress(15)
            keeping.kill()
            wait_silent(gw)
            keeping.start()
            progress(15)
    finally:
        over.set()
        for job in jobs:
            job.join()
    wait_ready(gw)
    wait_replayed(gw)
    gw.wait_metric("plimsoll_settle_backlog", 0)
    for caller, token in callers.items():
        recorded = history(gw, token)
        assert len(set(recorded)) == len(recorded)
        assert recorded == answered[caller]


def test_everything_served_without_redis_is_in_it_once_it_is_there(gateway, keeping):
    gw = gateway(PLIMSOLL_REDIS_URL=keeping.url, **SERVE)
    first = gw.ok("standin: answer")
    keeping.kill()
    wait_silent(gw)
    served = [gw.ok("standin: answer") for _ in range(30)]
    assert gw.metric("plimsoll_served_without_redis_total") == 30
    status, rows, complaint = spool_list(gw)
    assert status == 0, complaint
    assert [r["run_id"] for r in rows] == [run_id(a) for a in served]
    assert {(r["state"], r["caller"], r["verdict"], r["backend"], r["claim"]) for r in rows} == {("waiting", "static", "answered", "standin", None)}
    assert "30 records wait for Redis" in command("--dir", str(spool_of(gw)))[1]
    for i in range(3):
        refused_for_redis(gw.run("standin: answer", i := new_id()), i)
    wait_for(lambda: spooled(gw) == 30, "the records to be counted")
    keeping.start()
    wait_ready(gw)
    wait_replayed(gw)
    last = gw.ok("standin: answer")
    assert history(gw) == [run_id(a) for a in [first, *served, last]]


def test_a_killed_front_and_a_restarted_gateway_leave_nothing_behind(gateway, keeping):
    """The records are on the disk before their runs are answered: who dies after that does not matter."""
    gw = gateway(PLIMSOLL_REDIS_URL=keeping.url, **SERVE)
    keeping.kill()
    wait_silent(gw)
    served = [run_id(gw.ok("standin: answer")) for _ in range(10)]
    front = gw.child("plimsolld-front")
    os.kill(front, signal.SIGKILL)
    wait_for(lambda: gw.child("plimsolld-front") not in (None, front), "a new front")

    def answers():
        try:
            return spooled(gw) == 10
        except OSError:
            return False
    wait_for(answers, "the new front to take the records over")
    served += [run_id(gw.ok("standin: answer")) for _ in range(10)]
    gw.stop()
    assert spool_files(gw)
    gw.start()
    wait_for(lambda: spooled(gw) == 20, "the records to be taken over")
    served += [run_id(gw.ok("standin: answer")) for _ in range(10)]
    # the whole gateway, at once
    pids = list(g.descendants(gw.process.pid)) + [gw.process.pid]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    gw.process.wait(g.STOP_S)
    gw.process = None
    wait_for(lambda: not any(g.is_alive(p) for p in pids), "all of it to be gone")
    keeping.start()
    gw.start()
    wait_ready(gw)
    wait_replayed(gw)
    assert history(gw) == served
    gw.stop()
    assert not spool_files(gw)
    gw.start()


def try_run(gw, *args):
    """None when the front died under it."""
    try:
        return gw.run("standin: answer", *args)
    except (OSError, g.Closed):
        return None


@pytest.mark.parametrize("point", ["spool.write", "spool.sync", "store.spooled"])
def test_a_front_killed_while_it_keeps_a_record_loses_none_it_has_answered(gateway, keeping, point):
    gw = gateway(PLIMSOLL_REDIS_URL=keeping.url, **SERVE)
    keeping.kill()
    wait_silent(gw)
    served = [run_id(gw.ok("standin: answer")) for _ in range(5)]
    with gw.faults.armed(point, "once kill"):
        assert try_run(gw) is None
    wait_for(lambda: len(gw.log_lines("process restarted", process="front")) == 1, "a new front")
    served.append(run_id(wait_for(lambda: try_run(gw), "an answer")))
    keeping.start()
    wait_ready(gw)
    wait_replayed(gw)
    recorded = history(gw)
    assert [r for r in recorded if r in served] == served
    # the one nobody was answered for is there when it was written: it did run
    assert len(recorded) - len(served) == (0 if point == "spool.write" else 1)


@pytest.mark.parametrize("point", ["store.replayed", "spool.mark"])
def test_a_front_killed_while_it_sends_records_sends_each_once(gateway, keeping, point):
    gw = gateway(PLIMSOLL_REDIS_URL=keeping.url, **SERVE)
    keeping.kill()
    wait_silent(gw)
    served = [run_id(gw.ok("standin: answer")) for _ in range(20)]
    with gw.faults.armed(point, "once kill"):
        keeping.start()
        wait_for(lambda: gw.log_lines("process restarted", process="front"), "a new front")
    wait_for(lambda: gw.child("plimsolld-front") is not None, "a new front")

    def is_replayed():
        try:
            return spooled(gw) == 0 and gw.get("/readyz").status == 200
        except (OSError, g.Closed):
            return False
    wait_for(is_replayed, "the records to be sent", 30)
    assert history(gw) == served
    # the log has a leaf for each, and no more
    assert gw.get("/v1/log/head").json()["size"] in (20, "20")


@pytest.mark.parametrize("seed", range(2))
def test_fronts_and_redis_die_and_freeze_in_any_order_and_no_answered_run_is_lost_or_out_of_order(gateway, keeping, seed):
    rng = random.Random(seed)
    gw, callers = with_four_callers(gateway, keeping, SERVE)
    answered = {c: [] for c in callers}
    over = threading.Event()

    def load(caller, token):
        n = 0
        while not over.is_set():
            n += 1
            try:
                answer = gw.run("standin: answer", new_id() if n % 3 == 0 else None, token=token)
            except (OSError, g.Closed):
                time.sleep(0.02)
                continue
            if answer.status == 200:
                answered[caller].append(run_id(answer))
            else:
                time.sleep(0.01)

    jobs = [g.Background(lambda c=c, t=t: load(c, t)) for c, t in callers.items()]

    def progress():
        """Every caller is served, whatever is down just now; a new front takes a moment."""
        before = {c: len(a) for c, a in answered.items()}
        wait_for(lambda: all(len(a) > before[c] + 2 for c, a in answered.items()), "runs to be answered", 60)

    def kill_front():
        restarts = len(gw.log_lines("process restarted", process="front"))
        os.kill(wait_for(lambda: gw.child("plimsolld-front"), "a front"), signal.SIGKILL)
        wait_for(lambda: len(gw.log_lines("process restarted", process="front")) > restarts, "a new front", 30)

    down = frozen = False
    try:
        for _ in range(8):
            progress()
            what = rng.choice(["redis", "freeze", "front", "front"])
            if what == "front":
                kill_front()
            elif what == "freeze" and not down:
                keeping.signal(signal.SIGCONT if frozen else signal.SIGSTOP)
                frozen = not frozen
            elif down:
                keeping.start()
                down = False
            else:
                keeping.kill()
                down, frozen = True, False
        progress()
    finally:
        over.set()
        for job in jobs:
            job.join()
        if frozen:
            keeping.signal(signal.SIGCONT)
    if down:
        keeping.start()
    wait_ready(gw, 30)
    wait_replayed(gw)
    gw.wait_metric("plimsoll_settle_backlog", 0)
    for caller, token in callers.items():
        recorded = history(gw, token)
        assert len(set(recorded)) == len(recorded)
        # others are there too: a front died before it answered for them
        told = set(answered[caller])
        assert [r for r in recorded if r in told] == answered[caller]
    assert gw.metric("plimsoll_spool_set_aside_total") == 0


# -- the spool's own trouble --


def test_a_full_spool_refuses_runs_and_loses_none(gateway, keeping):
    gw = gateway(PLIMSOLL_REDIS_URL=keeping.url, PLIMSOLL_SPOOL_MB="1", **SERVE)
    keeping.kill()
    wait_silent(gw)
    served = []
    while True:
        # 32 runs at once and nothing of an output: each keyless run's record is some hundred bytes
        answers = [j.join() for j in [gw.in_background("standin: answer") for _ in range(16)]]
        served += [run_id(a) for a in answers if a.status == 200]
        full = [a for a in answers if a.status != 200]
        if full or len(served) > 4000:
            break
    for answer in full:
        refused_for_redis(answer)
        assert "PLIMSOLL_SPOOL_MB" in answer.message
    assert gw.metric('plimsoll_gateway_shed_total{reason="spool"}') >= 1
    assert gw.metric("plimsoll_spool_bytes") <= gw.metric("plimsoll_spool_limit_bytes") == 1 << 20
    front = gw.child("plimsolld-front")
    os.kill(front, signal.SIGKILL)
    wait_for(lambda: gw.child("plimsolld-front") not in (None, front), "a new front")

    def answer_now():
        try:
            return gw.run("standin: answer")
        except (OSError, g.Closed):
            return None
    keeping.start()
    wait_ready(gw, 30)
    wait_replayed(gw)
    assert wait_for(answer_now, "an answer").status == 200
    assert history(gw)[:-1] and sorted(history(gw)[:-1]) == sorted(served)


def test_a_disk_that_does_not_sync_lets_nothing_run_until_it_does(gateway, keeping):
    gw = gateway(PLIMSOLL_REDIS_URL=keeping.url, **SERVE)
    keeping.kill()
    wait_silent(gw)
    with gw.faults.armed("spool.sync", "fail"):
        # this one was let in while the disk was fine as far as anybody knew; its record is in memory
        first = gw.ok("standin: answer")
        wait_for(lambda: gw.metric("plimsoll_spool_usable") == 0, "the trouble to be seen")
        for _ in range(3):
            answer = gw.run("standin: answer")
            refused_for_redis(answer)
            assert "disk" in answer.message
        assert gw.metric("plimsoll_spool_failed_total") == 1
        assert gw.log_lines("spool_trouble")
    gw.wait_metric("plimsoll_spool_usable", 1)
    second = gw.ok("standin: answer")
    keeping.start()
    wait_ready(gw)
    wait_replayed(gw)
    gw.wait_metric("plimsoll_settle_backlog", 0)
    assert sorted(history(gw)) == sorted([run_id(first), run_id(second)])


def test_a_directory_that_cannot_be_written_lets_nothing_run_until_it_can(gateway, redis):
    gw = gateway(start=False, PLIMSOLL_REDIS_URL=redis.url, **STANDIN)
    gw.state.mkdir()
    spool_of(gw).mkdir(mode=0o500)
    if os.geteuid() != 0:
        # without root the parent is the user that will write there, and sees it at once
        gw.exit_status = 2
        gw.spawn()
        assert gw.wait_exit() == 2 and "spool cannot be written" in gw.log()
        return
    gw.start()
    [line] = gw.log_lines("spool_trouble")
    assert "Permission denied" in line["reason"]
    assert gw.get("/readyz").status == 503 and gw.get("/healthz").status == 200
    refused_for_redis(gw.run("standin: answer", request_id := new_id()), request_id)
    spool_of(gw).chmod(0o700)
    wait_ready(gw)
    gw.ok("standin: answer", request_id)
    assert gw.log_lines("spool_usable")


def test_a_corrupt_file_is_named_and_set_aside_and_what_is_before_it_follows(gateway, keeping):
    gw = gateway(PLIMSOLL_REDIS_URL=keeping.url, **SERVE)
    keeping.kill()
    wait_silent(gw)
    served = [run_id(gw.ok("standin: answer")) for _ in range(6)]
    gw.stop()
    [file] = spool_files(gw)
    data = bytearray(file.read_bytes())
    at = data.index(served[3].encode())
    data[at] ^= 1
    file.write_bytes(data)
    keeping.start()
    gw.start()
    wait_ready(gw)
    wait_replayed(gw)
    assert history(gw) == served[:3]
    assert gw.metric("plimsoll_spool_set_aside_total") == 1
    [line] = gw.log_lines("spool_file_corrupt")
    assert line["file"] == file.name and line["records_before"] == 3
    [aside] = wait_for(lambda: spool_files(gw, ".corrupt-"), "the file to be set aside")
    assert aside.name.startswith(file.name) and aside.read_bytes()[line["offset"]:] == bytes(data)[line["offset"]:]
    last = gw.ok("standin: answer")
    gw.restart()
    assert gw.metric("plimsoll_spool_set_aside_total") == 0 and aside.exists()
    # what is whole in it is listed, and can be sent after all
    status, rows, complaint = spool_list(gw)
    assert status == 1 and f"{aside.name}: bytes {line['offset']} to " in complaint
    assert [(r["run_id"], r["state"]) for r in rows] == [(r, "set_aside") for r in served[4:]]
    status, text, complaint = command("rescue", str(aside))
    assert status == 0 and "2 records rescued, 3 had been taken" in text, (text, complaint)
    wait_for(lambda: set(served[4:]) <= set(history(gw)), "the rescued records to be taken")
    assert sorted(history(gw)) == sorted(served[:3] + served[4:] + [run_id(last)])
    assert not aside.exists() and spool_files(gw, ".rescued-")
    status, text, complaint = command("rescue", str(aside))
    assert status == 1 and "No such file" in complaint


def test_a_torn_tail_is_cut_and_said(gateway, keeping):
    gw = gateway(PLIMSOLL_REDIS_URL=keeping.url, **SERVE)
    keeping.kill()
    wait_silent(gw)
    served = [run_id(gw.ok("standin: answer")) for _ in range(3)]
    gw.stop()
    [file] = spool_files(gw)
    os.truncate(file, file.stat().st_size - 5)
    keeping.start()
    gw.start()
    wait_ready(gw)
    wait_replayed(gw)
    assert history(gw) == served[:2]
    assert gw.metric("plimsoll_spool_torn_total") == 1 and gw.metric("plimsoll_spool_set_aside_total") == 0
    assert gw.log_lines("spool_tail_cut")


@pytest.mark.parametrize("words,status", [(["--help"], 0), (["lisst"], 2), (["rescue"], 2), (["rescue", "a", "b"], 2), (["rescue", "notes.txt"], 2),
                                          (["list", "more"], 2), (["--nothing"], 2), (["--dir", "/nonexistent"], 1)])
def test_the_command_and_what_it_does_not_take(words, status):
    found, text, complaint = command(*words)
    assert found == status and bool(text) == (status == 0) and bool(complaint) == (status != 0)


def test_the_command_reads_what_was_written_by_another_hand(tmp_path):
    """The seeds of the fuzz target are computed from the description of the form alone."""
    corpus = g.ROOT / "tests/fuzz/corpus/spool"
    for i, name in enumerate(["whole", "taken", "empty", "torn", "corrupt", "not-one"]):
        (tmp_path / f"{i:016x}.spool").write_bytes((corpus / f"file-{name}").read_bytes()[1:])
    status, text, complaint = command("list", "--json", "--all", "--dir", str(tmp_path))
    rows = [g.json.loads(line) for line in text.splitlines()]
    found = [(int(r["file"].split(".")[0], 16), r.get("run_id", r.get("error")), r["state"]) for r in rows]
    one, two = f"{1:032x}", f"{2:032x}"
    assert found == [(0, one, "waiting"), (0, "no caller", "waiting"), (0, two, "waiting"), (1, one, "taken"), (1, two, "waiting"),
                     (3, one, "waiting"), (3, "no caller", "waiting"), (4, "no caller", "waiting"), (4, two, "waiting")]
    assert status == 1 and complaint.count("are no record") == 4
    [output] = {r["has_output"] for r in rows if r.get("run_id") == two and r["state"] == "waiting" and r["file"].startswith("0" * 16)}
    assert output is True


# -- serve --


def test_served_runs_are_counted_per_caller_in_this_process(gateway, keeping):
    gw = gateway(PLIMSOLL_REDIS_URL=keeping.url, SANDBOX_RATE_PER_MIN="4", SANDBOX_PER_KEY_CONCURRENT="2", **SERVE)
    keeping.kill()
    wait_silent(gw)
    code, barrier = gw.barrier()
    jobs = [gw.in_background(code) for _ in range(2)]
    gw.wait_inflight(2)
    third = gw.run("standin: answer")
    refused(third, "resource_exhausted", "capacity")
    assert "at once" in third.message
    barrier.unlink()
    assert [j.join().status for j in jobs] == [200, 200]
    gw.ok("standin: answer")
    # a refusal by the wall costs nothing
    assert gw.run("standin: refuse capacity").reason == "capacity"
    gw.ok("standin: answer")
    fifth = gw.run("standin: answer")
    refused(fifth, "resource_exhausted", "capacity")
    assert "rate" in fifth.message and 1 <= int(fifth.header("Retry-After")) <= 15


def test_a_backend_that_bills_is_never_served_without_redis(gateway, keeping):
    gw = gateway(start=False, PLIMSOLL_REDIS_URL=keeping.url, **{**SERVE, "SANDBOX_PROVIDER": "standinpaid,standin"})
    rooms = gw.home / "rooms"
    rooms.mkdir()
    rooms.chmod(0o777)
    gw.settings["PLIMSOLL_STANDINPAID_DIR"] = str(rooms)
    gw.start()
    assert gw.ok("standin: answer").header("Plimsoll-Backend") == "standinpaid"
    keeping.kill()
    wait_silent(gw)
    assert gw.ok("standin: answer").header("Plimsoll-Backend") == "standin"
    refused_for_redis(gw.run("standin: answer", path="/backends/standinpaid" + g.RUN))


@pytest.mark.parametrize("trouble,cure", [(("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
                                          (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE"))], ids=["full", "demoted"])
def test_a_redis_that_answers_and_takes_nothing_is_served_without_too(gateway, keeping, trouble, cure):
    gw = gateway(PLIMSOLL_REDIS_URL=keeping.url, **SERVE)
    first = gw.ok("standin: answer")
    code, barrier = gw.barrier()
    request_id = new_id()
    under_way = gw.in_background(code, request_id)
    gw.wait_inflight(1)
    assert keeping.command(*trouble).startswith(b"+OK")
    served = [gw.ok("standin: answer") for _ in range(10)]
    refused_for_redis(gw.run("standin: answer", i := new_id()), i)
    barrier.unlink()
    assert under_way.join().status == 200
    assert spooled(gw) == 11
    assert keeping.command(*cure).startswith(b"+OK")
    wait_ready(gw)
    wait_replayed(gw)
    last = gw.ok("standin: answer")
    assert history(gw) == [run_id(a) for a in [first, *served, under_way.join(), last]]
    assert gw.run(code, request_id).header("Plimsoll-Replayed") == "1"


def test_a_full_redis_that_refused_every_run_was_said_to_be_ready(gateway, keeping):
    gw = gateway(PLIMSOLL_REDIS_URL=keeping.url, PLIMSOLL_THREADS="1", **STANDIN)
    gw.ok("standin: answer")
    assert keeping.command("CONFIG", "SET", "maxmemory", "1").startswith(b"+OK")
    refused_for_redis(gw.run("standin: answer", i := new_id()), i)
    wait_for(lambda: gw.get("/readyz").status == 503, "not to be ready")
    with resp.Client(keeping.port) as direct:
        def tries():
            found = re.search(rb"cmdstat_setrange:.*rejected_calls=(\d+)", direct("INFO", "commandstats"))
            return int(found.group(1)) if found else 0
        before = tries()
        wait_for(lambda: tries() > before + 1, "a write to be tried again")
    assert gw.get("/readyz").status == 503 and gw.get("/healthz").status == 200
    assert keeping.command("CONFIG", "SET", "maxmemory", "0").startswith(b"+OK")
    wait_ready(gw)
    gw.ok("standin: answer", i)


def test_the_places_of_the_process_hold_for_served_runs_too(gateway, keeping):
    gw = gateway(PLIMSOLL_REDIS_URL=keeping.url, **{**SERVE, "SANDBOX_MAX_CONCURRENT": "1"})
    keeping.kill()
    wait_silent(gw)
    code, barrier = gw.barrier()
    job = gw.in_background(code)
    gw.wait_inflight(1)
    assert gw.run("standin: answer").reason == "capacity"
    barrier.unlink()
    assert job.join().status == 200
    gw.ok("standin: answer")


# -- settings --


@pytest.mark.parametrize("runs,mib,fine", [("63", "1", True), ("64", "1", False), ("65", "1", False), ("127", "2", True), ("128", "2", False)])
def test_the_spool_has_room_for_the_records_of_all_runs_at_once(gateway, runs, mib, fine):
    gw = gateway(start=False, **{**STANDIN, "SANDBOX_MAX_CONCURRENT": runs, "PLIMSOLL_SPOOL_MB": mib})
    if fine:
        gw.start()
        return
    gw.exit_status = 2
    gw.spawn()
    assert gw.wait_exit() != 0
    assert "PLIMSOLL_SPOOL_MB" in gw.log()
