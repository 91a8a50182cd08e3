"""The stand-in's own books: every sandbox ever made and what it costs, every request, and what a client did that it may not do.

Times are milliseconds of a clock that a test may move on: monotonic, plus what was added. A backend's verdicts and bills are checked against
these books, so nothing in them comes from the client but what it believes.
"""
import collections
import hashlib
import re
import time

JOURNAL_MAX = 200_000
VIOLATIONS_MAX = 1000
RUNNING, PAUSED, GONE = "running", "paused", "gone"
# What code may carry in a comment, so that a test finds out whether and where it was executed.
MARK = re.compile(r"mark-[0-9a-f]{16}")


def mask(secret):
    """A secret as it may stand in a journal."""
    return "sha256:" + hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()[:12]


class Clock:
    def __init__(self):
        self.offset_ms = 0
        self.ttl_speed = 1.0
        self.epoch_ms = time.time_ns() // 1_000_000 - time.monotonic_ns() // 1_000_000

    def now(self):
        return time.monotonic_ns() // 1_000_000 + self.offset_ms

    def wall(self):
        """Milliseconds since 1970, moved on as far as the clock."""
        return self.now() + self.epoch_ms


class Entry:
    """One sandbox. It bills while it is `running`, whatever the client knows of it."""

    def __init__(self, account, name, labels, size):
        self.account, self.id, self.labels, self.size = account, name, labels, size
        self.state = RUNNING
        self.created_ms = self.since_ms = account.clock.now()
        self.ended_ms = self.ended_by = None
        self.running_ms = self.paused_ms = 0
        self.counts = collections.Counter()
        self.believed = None      # what the client was told last: "running", "paused" or "gone"

    def _settle(self):
        now = self.account.clock.now()
        if self.state == RUNNING:
            self.running_ms += now - self.since_ms
        elif self.state == PAUSED:
            self.paused_ms += now - self.since_ms
        self.since_ms = now

    def turn(self, state, by=None):
        if self.state == GONE:
            return
        self._settle()
        self.state = state
        if state == GONE:
            self.ended_ms, self.ended_by = self.since_ms, by
            self.account.alive.pop(self.id, None)

    def billed_ms(self):
        return self.running_ms + (self.account.clock.now() - self.since_ms if self.state == RUNNING else 0)

    def as_json(self):
        ms = self.billed_ms()
        return {"id": self.id, "labels": self.labels, "size": self.size, "state": self.state, "created_ms": self.created_ms, "ended_ms": self.ended_ms,
                "ended_by": self.ended_by, "running_ms": ms, "paused_ms": self.paused_ms, "billed_ms": ms, "nano_usd": self.account.price(ms, self.size),
                "believed": self.believed, "counts": dict(self.counts)}


class Account:
    def __init__(self, price=lambda ms, size: 0):
        """`price(ms, size)`: billionths of a dollar for that long at that size."""
        self.clock, self.price = Clock(), price
        self.reset()

    def reset(self):
        self.entries, self.alive = {}, {}
        self.journal = collections.deque(maxlen=JOURNAL_MAX)
        self.violations = []
        self.number = 0
        self.totals = collections.Counter()
        self.marks = {}

    # -- sandboxes --

    def open(self, name, labels, size):
        entry = Entry(self, name, dict(labels or {}), size)
        self.entries[name] = self.alive[name] = entry
        self.totals["created"] += 1
        return entry

    def end(self, name, by):
        """by: api, ttl, evict, sweep, reset: whose doing it was."""
        if name in self.entries:
            self.entries[name].turn(GONE, by)

    def believe(self, name, state):
        if name in self.entries:
            self.entries[name].believed = state

    def leaks(self):
        """Sandboxes that are there although the client believes them gone, or whose own stamp of expiry has passed."""
        found, now_s = [], self.clock.wall() / 1000
        for entry in self.alive.values():
            if entry.believed == GONE:
                found.append({"id": entry.id, "reason": "believed gone", **entry.as_json()})
            elif str(entry.labels.get("gw_expires", "")).isdigit() and int(entry.labels["gw_expires"]) < now_s:
                found.append({"id": entry.id, "reason": "past its expiry", **entry.as_json()})
        return found

    def as_json(self):
        entries = [e.as_json() for e in self.entries.values()]
        return {"sandboxes": entries, "alive": list(self.alive), "created": self.totals["created"], "requests": self.totals["requests"],
                "billed_ms": sum(e["billed_ms"] for e in entries), "nano_usd": sum(e["nano_usd"] for e in entries),
                "counts": {k: v for k, v in self.totals.items() if k not in ("created", "requests")}}

    # -- requests --

    def record(self, plane, method, path, **fields):
        """One request that was answered (or was not: status 0). Gives its line, which may still be filled in."""
        self.number += 1
        self.totals["requests"] += 1
        line = {"n": self.number, "ms": self.clock.now(), "plane": plane, "method": method, "path": path, **fields}
        self.journal.append(line)
        return line

    def count(self, what, name=None):
        """what: exec, create, upload, delete, download, signal, ..."""
        self.totals[what] += 1
        if name in self.entries:
            self.entries[name].counts[what] += 1

    def ran(self, text, name):
        """Code was executed in a sandbox: its mark, if it has one, is written down, as often as that happens."""
        if found := MARK.search(text):
            self.marks.setdefault(found[0], []).append(name)

    def violation(self, what, **where):
        """The client broke the protocol."""
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append({"what": what, "ms": self.clock.now(), **where})
