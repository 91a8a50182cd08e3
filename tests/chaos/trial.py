"""One seeded trial: a few runs, one fault, and what must hold afterwards.

What must hold at once (everything that was killed is up again):
  - nothing was executed twice: each request leaves a note of its own in the stand-in wall's log when it is executed
  - each run that was handed to a wall has one final record, unless its front died; an answer a caller got is recorded as that answer
  - whoever was told that nothing ran, by the mark, was told the truth
  - no slot is held by a run that has ended
And what must hold when the leases of what died have run out: `Left`.
"""
import collections
import json
import os
import random
import re
import threading
import time

import books
import rig as r
from rig import g

ACTS = [("standin: answer", 30), ("standin: hold 20", 15), ("standin: hold 90", 20), ("standin: bytes 3000", 10), ("standin: answer 3", 5),
        ("standin: fail internal", 8), ("standin: refuse capacity", 6), ("standin: exit", 3), ("standin: hold 3000", 3)]
PAID_ACTS = [("", 50), ("standin: paid create lost\n", 10), ("standin: paid create late 300\n", 8), ("standin: paid create slow 60\n", 8),
             ("standin: paid create fail\n", 6), ("standin: paid delete fail 2\n", 8), ("standin: paid delete lie 1\n", 6),
             ("standin: paid delete hang 1\n", 6), ("standin: paid delete rude\n", 6)]
STYLES = [("unkeyed", 33), ("keyed", 27), ("joined", 25), ("idempotency", 15)]
FAULTS = [("point", 50), ("front", 12), ("wall", 11), ("whole", 9), ("parent", 5), ("redis", 8), ("spooled", 5), ("frozen", 4), ("term", 5)]
OF_THE_FRONT = ("run.", "spool.", "store.")  # who dies at a fault point
KILLS_FRONT = ("front", "whole", "parent", "spooled")
MOMENT_S = 0.15      # within which a kill comes
CLIENT_S = 4         # a caller waits so long, then hangs up
MARGIN_S = 3         # for something that happens by itself right away
PAID_SHARE = 0.3     # of the requests


def chosen(rng, weighted):
    return rng.choices([w[0] for w in weighted], [w[1] for w in weighted])[0]


class Sent:
    """One request as one caller sent it."""

    def __init__(self, request, copy, delay):
        self.request, self.copy, self.delay = request, copy, delay
        self.answer = self.error = None

    def go(self):
        time.sleep(self.delay)
        try:
            with g.Connection(self.copy.gw.port, timeout=CLIENT_S) as c:
                c.send(g.request(self.request.path, self.request.body, self.request.headers(self.copy.gw)))
                self.answer = c.read_answer()
        except (OSError, g.Closed) as e:
            self.error = e

    @property
    def is_marked(self):
        a = self.answer
        return a is not None and a.status != 200 and (a.header("Plimsoll-Not-Dispatched") is not None or a.reason is not None)


class Request:
    def __init__(self, token, key, act, paid=None, style="keyed"):
        """`paid`: lines for the wall that bills; None = for the other one."""
        self.token, self.key, self.act, self.is_paid, self.style = token, key, (paid or "") + act, paid is not None, style
        self.path = ("/backends/standinpaid" if self.is_paid else "") + g.RUN
        # a refusal comes before the note: whatever is noted was executed
        lines = [act, f"standin: note {token}"] if "refuse" in act else [f"standin: note {token}", act]
        self.sent = g.javascript((paid or "") + "\n".join(lines), timeoutMs=r.TIMEOUT_S * 1000)
        self.body = json.dumps(self.sent).encode()

    def headers(self, gw):
        if self.style == "idempotency":  # as the official clients: an ID of its own for each request
            return gw.headers(g.new_id(), more=[("Idempotency-Key", f'"{self.key}"')])
        return gw.headers(self.key)

    @property
    def may_be_refused(self):
        return re.search("refuse|create (fail|lost|late)", self.act) is not None


class Left:
    """What a trial's fault may leave until leases have run out: runs without a record, slots, keys to be asked for."""

    def __init__(self, number):
        self.number = number
        self.dispatched = set()  # run IDs
        self.slots = set()
        self.requests = []
        self.due = time.monotonic() + r.LEASE_S + r.SWEEP_S


class Trial:
    def __init__(self, rig, seed, number):
        self.rig, self.number = rig, number
        self.rng = rng = random.Random(f"{seed}/{number}")
        self.problems = []
        self.copies = rng.sample(rig.copies, rng.choice([1, len(rig.copies)]))
        self.victim = rng.choice(self.copies)
        self.fault = chosen(rng, FAULTS)
        self.point = rng.choice(rig.points) if self.fault == "point" else None
        self.moment = rng.uniform(0, MOMENT_S)
        self.away = rng.uniform(0, 0.8)  # how long Redis is away
        self.wall = rng.choice([r.WALL, r.PAID_WALL])
        self.requests, self.sent = [], []
        for i in range(rng.randint(1, 5)):
            style = chosen(rng, STYLES)
            token = f"{seed}-{number}-{i}-{os.getpid()}-{rig.home.name}"
            key, act, paid = None if style == "unkeyed" else "%032x" % rng.getrandbits(128), chosen(rng, ACTS), chosen(rng, PAID_ACTS)
            if i == 0 and self.freezes_redis:
                act = "standin: hold 90"  # it ends while Redis does not take its settlement
            is_paid = rng.random() < PAID_SHARE or (i == 0 and (self.point or "").startswith(r.OF_THE_PAID))
            request = Request(token, key, act, paid if is_paid else None, style)
            self.requests.append(request)
            for _ in range(rng.randint(2, 3) if style in ("joined", "idempotency") else 1):
                # what is to die has something to do
                copy = rng.choice(self.copies) if self.sent else self.victim
                self.sent.append(Sent(request, copy, rng.uniform(0, 0.04)))

    def __str__(self):
        what = f"point {self.point}" if self.point else f"{self.fault} after {self.moment * 1000:.0f} ms"
        acts = ", ".join(f"{q.act[9:]!r}{' paid' if q.is_paid else ''}{' ' + q.style if q.key else ''} x{sum(s.request is q for s in self.sent)}" for q in self.requests)
        return f"trial {self.number}: {what} of copy {self.rig.copies.index(self.victim)}; {len(self.copies)} used; {acts}"

    @property
    def freezes_redis(self):
        return self.fault in ("spooled", "frozen") or (self.point or "").startswith(r.BEHIND_REDIS)

    @property
    def may_orphan(self):
        """Whether runs may be left to their leases: their front died, or could not say what became of an admission."""
        return self.fault in KILLS_FRONT + ("redis", "frozen") or (self.point is not None and self.point.startswith(OF_THE_FRONT))

    def wrong(self, text):
        self.problems.append(text)

    # -- doing it --

    def strike(self):
        victim, fault = self.victim, self.fault
        if self.freezes_redis:
            time.sleep(0.05 + self.moment / 5)
            self.rig.redis.freeze()
            time.sleep(0.3 + self.away)
            if fault == "spooled":
                victim.kill_whole() if self.rng.random() < 0.5 else victim.kill_role("plimsolld-front")
            self.rig.redis.thaw()
            return
        if fault == "point":
            return
        time.sleep(self.moment)
        if fault == "front":
            victim.kill_role("plimsolld-front")
        elif fault == "wall":
            victim.kill_role(self.wall)
        elif fault == "whole":
            victim.kill_whole()
        elif fault == "parent":
            victim.kill_parent()
        elif fault == "term":
            victim.stop_cleanly()
        else:
            self.rig.redis.kill()
            time.sleep(self.away)
            self.rig.redis.start()

    def go(self):
        self.before = {c: len(c.lines()) for c in self.rig.copies}
        if self.point:
            self.victim.gw.faults.arm(self.point, "once kill")
        threads = [threading.Thread(target=s.go) for s in self.sent]
        strike = g.Background(self.strike)
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        strike.join()
        self.was_hit = self.fault != "point" or self.victim.gw.faults.hits(self.point) > 0
        self.rig.restore()
        return self.check()

    # -- what must hold at once --

    def quiet(self):
        for c in self.rig.copies:
            m = c.gw.metrics()
            if m["plimsoll_inflight"] or m.get("plimsoll_settle_backlog", 0) or m.get("plimsoll_spool_records", 0):
                return False
        return True

    def dispatches(self):
        runs, notes = collections.Counter(), collections.Counter()
        for c in self.rig.copies:
            for line in c.lines()[self.before[c]:]:
                words = line.split()
                if words[0] == "note":
                    notes[words[1]] += 1
                else:
                    runs[words[0], words[2]] += 1
        return runs, notes

    def check(self):
        g.wait_for(self.quiet, "runs to end and settlements to be taken", g.START_S)
        left = Left(self.number)
        runs, notes = self.dispatches()
        for (run_id, wall), count in runs.items():
            if count != 1:
                self.wrong(f"run {run_id} was dispatched to {wall} {count} times")
        for q in self.requests:
            if notes[q.token] > 1:
                self.wrong(f"executed {notes[q.token]} times: {q.act} key {q.key}")
        # one that a wall refused goes on to the next
        records = {run_id: self.record_of(run_id) for run_id, _ in runs}
        left.dispatched = {i for i, record in records.items() if record is None}
        if left.dispatched and not self.may_orphan:
            self.wrong(f"no final record of {sorted(left.dispatched)}")
        for run_id, record in records.items():
            if record is not None and record["verdict"] not in ("answered", "unknown", "refused"):
                self.wrong(f"run {run_id} ended as {record['verdict']}")
        self.check_answers(runs, notes, records)
        self.check_slots(left)
        left.requests = [q for q in self.requests if q.key]
        return left

    def record_of(self, run_id, seconds=None):
        """A moment is allowed: a settlement may be on its way."""
        end = time.monotonic() + (seconds if seconds is not None else 0 if self.may_orphan else MARGIN_S)
        while True:
            record = self.rig.run_record(run_id)
            if record is not None or time.monotonic() > end:
                return record
            time.sleep(0.05)

    def check_answers(self, runs, notes, records):
        for q in self.requests:
            mine = [s for s in self.sent if s.request is q]
            bodies = {s.answer.body for s in mine if s.answer is not None and s.answer.status == 200}
            if q.key and len(bodies) > 1:
                self.wrong(f"the key {q.key} was answered in {len(bodies)} ways")
            if bodies and notes[q.token] == 0:
                self.wrong(f"an answer without an execution: {q.act}")
            for s in mine:
                self.check_answer(q, s, mine, notes, records)

    def check_answer(self, q, s, mine, notes, records):
        if s.answer is None:
            return
        if s.answer.status == 200:
            run_id = s.answer.header("Plimsoll-Run-Id")
            record = self.record_of(run_id, MARGIN_S)  # it may have come from the spool just now
            g.check_record(q.sent, s.answer)
            if record is None or record["verdict"] != "answered":
                self.wrong(f"run {run_id} was answered and its record says {record and record['verdict']}")
            elif record["record_sha256"] != s.answer.json()["record"]["recordSha256"]:
                self.wrong(f"run {run_id} was answered with another record")
        elif s.is_marked and len(mine) == 1 and notes[q.token] != 0:
            self.wrong(f"told that nothing ran, and it did: {q.act}, {s.answer.code} {s.answer.message}")

    def check_slots(self, left):
        end = time.monotonic() + MARGIN_S
        with self.rig.client() as client:
            while True:
                now = self.rig.now_ms(client)
                held = {i: lease for i, lease in self.rig.slots(client).items() if lease > now and i not in self.rig.orphans}
                wrong = [i for i in held if not self.may_orphan or self.rig.run_record(i) is not None]
                if not wrong or time.monotonic() > end:
                    break
                time.sleep(0.05)
            if wrong:
                self.wrong(f"slots held by runs that have ended, or that nobody left: {wrong}")
            for run_id, lease in held.items():
                if lease > now + (r.LEASE_S + 1) * 1000:
                    self.wrong(f"the slot of {run_id} is held for {(lease - now) / 1000:.0f} s")
            left.slots = set(held)
            self.rig.orphans |= left.slots


# -- what must hold when the leases have run out --


def check_left(rig, left):
    """Problems, as texts."""
    problems = []
    for run_id in left.dispatched:
        record = rig.run_record(run_id)
        if record is None:
            problems.append(f"no final record of {run_id}, {r.LEASE_S + r.SWEEP_S} s after its front died")
        elif record["verdict"] not in ("answered", "unknown"):
            problems.append(f"run {run_id} was dispatched and its record says {record['verdict']}")
    with rig.client() as client:
        now = rig.now_ms(client)
        held = {i for i, lease in rig.slots(client).items() if lease > now}
    if held & left.slots:
        problems.append(f"slots still held: {sorted(held & left.slots)}")
    rig.orphans -= left.slots
    for q in left.requests:
        problems += check_key(rig, q)
    return problems


def check_key(rig, q):
    """The same request again is answered soon, and whatever it gets, it was executed once in all."""
    end = time.monotonic() + g.SETTLE_S
    while True:
        sent = Sent(q, rig.copies[0], 0)
        sent.go()
        # a wall that was ended by an earlier run may be coming back
        if not sent.is_marked or sent.answer.reason != "capacity" or q.may_be_refused or time.monotonic() > end:
            break
        time.sleep(0.1)
    notes = sum(line == f"note {q.token}" for line in rig.lines())
    if sent.answer is None:
        return [f"the key {q.key} is stuck: {sent.error!r}"]
    if notes > 1:
        return [f"asked again, the key {q.key} ran again: {notes} executions"]
    if sent.is_marked and not q.may_be_refused:
        return [f"the key {q.key} is refused after its lease: {sent.answer!r}"]
    return []


def check_rig(rig):
    """Of everything a rig ever ran: each run listed once, each in the log once."""
    problems, listed, cursor = [], collections.Counter(), None
    end = time.monotonic() + r.CLEAN_S
    while any(rig.leaks()) and time.monotonic() < end:
        time.sleep(0.2)
    if any(rig.leaks()):
        problems.append(f"left at the provider and in the ledger: {rig.leaks()}")
    records = {}
    while True:
        page = rig.copies[0].gw.get("/v1/runs?limit=100" + (f"&cursor={cursor}" if cursor else "")).json()
        for run in page["runs"]:
            listed[run["run_id"]] += 1
            records[run["run_id"]] = run
        cursor = page["next_cursor"]
        if not cursor:
            break
    problems += [f"run {i} is listed {n} times" for i, n in listed.items() if n != 1]
    dispatched = {line.split()[0] for line in rig.lines() if not line.startswith("note ")}
    problems += [f"run {i} was dispatched and is not listed" for i in dispatched - set(listed) if len(listed) < 9000]
    with rig.client() as client:
        if len(listed) < 9000:
            problems += books.check(client, list(records.values()))
        leaves = [leaf for key in client.keys("plimsoll:2:*:log") for leaf in client("LRANGE", key, 0, -1)]
    if leaves:
        ended = [run for run in records.values() if run["verdict"] != "refused"]
        if len(leaves) != len(set(leaves)):
            problems.append("the log has a leaf twice")
        if len(leaves) != len(ended) and len(listed) < 9000:
            problems.append(f"the log has {len(leaves)} leaves, and {len(ended)} runs were answered or are unknown")
        known = {leaf.hex() for leaf in leaves}
        problems += [f"run {run['run_id']} is no leaf" for run in ended if run["record_sha256"] and run["record_sha256"] not in known]
    return problems
