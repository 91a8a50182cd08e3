"""Runs through one wall of a cloud against its stand-in, many at once, with faults at random (seeded) in the calls between the two; then every
verdict is held against the stand-in's own account (docs/soak.md).

    soak.py --backend e2b [--runs 2000] [--seed 1] [--in-flight 64] [--faults 0.05]

The stand-in answers from a table and runs nothing, so the time goes into the gateway. PLIMSOLL_BUILD names the build, as in the other tests.
"""
import argparse
import collections
import json
import pathlib
import random
import re
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/integration"))

import gateway as g  # noqa: E402
import walls  # noqa: E402

PROJECTS = 0.2          # of the runs
TIMEOUT_MS = 20000      # of each; what is answered from a table takes no time
OUTPUT = b"42\n"
GROWTH_MIB, GROWTH = 6, 0.10    # of the gateway's memory from the second quarter of the runs to the last
MEASURE_S = 0.1
ANSWERED, REFUSED, UNKNOWN = "answered", "refused", "unknown"


# -- what is done to the calls, by the service --

def http_kinds(delay, drop_bytes):
    """What may befall any call: (phase, action)."""
    return [("before", {"type": "respond", "status": 500}), ("after", {"type": "respond", "status": 503}), ("before", {"type": "respond", "status": 429}),
            ("before", {"type": "drop"}), ("after", {"type": "drop"}), drop_bytes, ("before", {"type": "delay", **delay})]


def rules_of(kinds, share, extra=()):
    """Rules that together act on `share` of the calls."""
    each = share / len(kinds)
    return [*extra, *({"id": f"any-{n}", "phase": phase, "prob": each, "action": action} for n, (phase, action) in enumerate(kinds))]


def e2b_rules(share):
    streams = [("frames", {"type": "stream", "kind": kind}) for kind in ("no_end_event", "no_eos", "bad_json")] + \
              [("frames", {"type": "vanish", "after_frames": 1, "how": "rst"}), ("frames", {"type": "split", "bytes": 3})]
    of_start = [{"id": f"start-{n}", "path": "/process.Process/Start", "phase": phase, "prob": share / len(streams), "action": action}
                for n, (phase, action) in enumerate(streams)]
    lost = [{"id": "ghost", "method": "POST", "path": "/v2/sandboxes", "prob": share / 5, "action": {"type": "ghost_create", "appear_after_ms": 300, "answer": "none"}}]
    spoiled = [("body", {"type": "truncate", "keep_bytes": 30}), ("before", {"type": "respond", "status": 502, "body": "<html>Bad Gateway</html>", "content_type": "text/html"})]
    return rules_of([*http_kinds({"ms": 20, "jitter_ms": 100}, ("body", {"type": "drop", "after_bytes": 20, "how": "rst"})), *spoiled], share, [*lost, *of_start])


def dockercloud_rules(share):
    spoiled = [("after", {"truncate_json": 30}), ("after", {"duplicate_key": True}), ("before", {"status": 502, "html": True}), ("after", {"drop_reused_connection": True})]
    return rules_of([*http_kinds({"ms": 20, "jitter_ms": 100}, ("before", {"type": "drop", "bytes": 20})), *spoiled], share)


def openshell_rules(share):
    kinds = [("before", {"type": "status", "code": "UNAVAILABLE"}), ("after", {"type": "status", "code": "UNAVAILABLE"}),
             ("before", {"type": "status", "code": "RESOURCE_EXHAUSTED"}), ("before", {"type": "refuse-stream"}), ("before", {"type": "rst"}),
             ("after", {"type": "rst"}), ("before", {"type": "delay", "ms": 60}), ("before", {"type": "no-trailers"}), ("after", {"type": "no-trailers"}),
             ("before", {"type": "bad-status", "what": "html", "status": 502}), ("before", {"type": "split", "bytes": 1})]  # not those that strike a connection: it is many runs'
    return rules_of(kinds, share)


def e2b_step(line):
    if line["path"] == "/process.Process/Start":
        return "execute"
    return "create" if line["method"] == "POST" and re.fullmatch(r"(/v2)?/sandboxes", line["path"]) else "delete" if line["method"] == "DELETE" else "other"


def dockercloud_step(line):
    # a read of the operation that creates tells what became of the create
    return {"create": "create", "wait": "create", "poll": "create", "read": "create", "exec": "execute", "delete": "delete"}.get(line["step"], "other")


def openshell_step(line):
    return {"CreateSandbox": "create", "ExecSandboxInteractive": "execute", "DeleteSandbox": "delete"}.get(line["method"], "other")


def is_struck(line):
    """Whether something was done to the call: by a rule of its own, or because another call's rule ended the connection that both had."""
    return bool(line.get("fault")) or (line.get("plane") == "grpc" and line.get("status") is None and line.get("client_reset") is None)


# rules, and the step that a line of the journal belongs to
SERVICES = {"e2b": (e2b_rules, e2b_step), "dockercloud": (dockercloud_rules, dockercloud_step), "dockercloud-rest": (dockercloud_rules, dockercloud_step),
            "openshell": (openshell_rules, openshell_step)}


# -- the runs --

class Sent:
    def __init__(self, number, seed):
        rng = random.Random(f"{seed}:{number}")
        self.mark = f"mark-{rng.getrandbits(64):016x}"
        self.key = g.new_id()
        self.is_project = rng.random() < PROJECTS
        if self.is_project:
            self.request = {"protocol": 4, "project": walls.project([f"echo {self.mark}"], {"f": "x"}), "timeoutMs": TIMEOUT_MS}
        else:
            self.request = g.javascript(f"/* {self.mark} */ console.log(42)", timeoutMs=TIMEOUT_MS)
        self.answer = None

    def verdict(self):
        """What the caller was told; None for what nobody may be told here."""
        a = self.answer
        if a.status != 200:
            return UNKNOWN if a.reason is None and a.header("Plimsoll-Not-Dispatched") is None else REFUSED
        got = a.json()
        if not self.is_project:
            run = got["javascript"]
            is_whole = g.stdout(a) == OUTPUT and not run.get("exitCode") and not run.get("timedOut")
            return ANSWERED if is_whole else None
        outcome = walls.Project(got["project"], a)
        if outcome.outcome == "completed":
            return ANSWERED if outcome.codes == [0] else None
        return UNKNOWN if outcome.outcome in ("protocol_error", "runner_failed") else None


class Memory:
    """Resident memory of the gateway's processes of its own, again and again while runs are answered."""

    def __init__(self, gw, done):
        self.pids = [p for p in g.descendants(gw.process.pid) if re.search("plimsolld-(front|backend)", g.name_of(p))]
        self.done, self.seen = done, []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)
        self.thread.start()

    def _look(self):
        while not self.over.wait(MEASURE_S):
            total = 0
            for pid in self.pids:
                text = pathlib.Path(f"/proc/{pid}/status").read_text()
                total += int(re.search(r"RssAnon:\s+(\d+)", text)[1])
            self.seen.append((self.done(), total / 1024))

    def stop(self):
        self.over.set()
        self.thread.join()

    def of(self, first, last):
        """The most that was seen between two numbers of runs, in MiB."""
        return max((mib for n, mib in self.seen if first <= n <= last), default=0)


class Soak:
    def __init__(self, backend, runs, seed, in_flight=64, faults=0.05, say=print):
        self.wall = next(w for w in walls.CLOUD_WALLS if repr(w) == backend)
        self.rules, self.step = SERVICES[backend]
        self.runs, self.seed, self.in_flight, self.share, self.say = runs, seed, in_flight, faults, say
        self.sent, self.next, self.lock = [Sent(n, seed) for n in range(runs)], 0, threading.Lock()
        self.done = 0
        self.problems = []

    def wrong(self, what):
        self.problems.append(what)

    def settings(self, cloud):
        return {"SANDBOX_PROVIDER": self.wall.name, **self.wall.hasty, **self.wall.settings_for(cloud), **self.wall.roomy, "SANDBOX_MAX_CONCURRENT": str(self.in_flight),
                "PLIMSOLL_PROOF_INTERVAL": "5s"}

    def work(self, gw):
        connection = gw.connect()
        path = walls.pinned(self.wall)
        while True:
            with self.lock:
                if self.next == self.runs:
                    return connection.close()
                sent, self.next = self.sent[self.next], self.next + 1
            try:
                sent.answer = connection.call(path, json.dumps(sent.request).encode(), gw.headers(sent.key))
            except (OSError, g.Closed, AssertionError) as wrong:
                self.wrong(f"{sent.mark}: no answer: {wrong!r}")
                connection = gw.connect()
            with self.lock:
                self.done += 1

    def go(self, seconds):
        """Whether all held."""
        began = time.monotonic()
        with self.wall.standin_process(self.wall.canned, seed=self.seed) as cloud, g.served(g.Gateway(self.settings(cloud))) as gw:
            gw.secrets += self.wall.secrets_of(gw)
            gw.start()
            g.wait_for(lambda: gw.get("/readyz").status == 200, "the wall to be proven", g.START_S)
            self.wall.stop_executing(cloud)
            self.first_line = cloud.journal()[-1]["n"]
            cloud.faults(self.rules(self.share))
            memory = Memory(gw, lambda: self.done)
            threads = [threading.Thread(target=self.work, args=(gw,), daemon=True) for _ in range(self.in_flight)]
            for t in threads:
                t.start()
            end = time.monotonic() + seconds
            for t in threads:
                t.join(max(0.0, end - time.monotonic()))
            if any(t.is_alive() for t in threads):
                self.wrong(f"{self.done} of {self.runs} runs answered in {seconds} s")
            took = time.monotonic() - began
            memory.stop()
            self.expect_settled(gw, cloud)
            self.judge(cloud)
            self.judge_memory(memory)
            self.say(f"{self.wall!r}: {self.runs} runs, {self.in_flight} at once, seed {self.seed}: {took:.1f} s; {self.summary}; memory {self.memory}",
                     flush=True)
        return not self.problems

    def expect_settled(self, gw, cloud):
        """No slot, no entry, no sandbox: while calls go on failing as often as before."""
        ledger = f'plimsoll_ledger_entries{{backend="{self.wall.name}"}}'
        try:
            gw.wait_inflight(0)
            g.wait_for(lambda: gw.metrics().get(ledger) == 0 and not cloud.alive(), "ledger and account to be empty", self.wall.adopted_s)
        except AssertionError as wrong:
            self.wrong(f"{wrong}: {gw.metrics().get(ledger)} entries, {len(cloud.alive())} sandboxes, {gw.metrics().get('plimsoll_inflight')} in flight")
        for what in ("leaks", "violations"):
            if found := getattr(cloud, what)():
                self.wrong(f"{len(found)} {what}: {found[:3]}")

    def judge(self, cloud):
        """Each verdict against what was executed, and against the calls that something was done to."""
        executed, lines = cloud.marks(), [line for line in cloud.journal() if line["n"] > self.first_line]
        faulty = [line for line in lines if is_struck(line)]
        disturbed = {line.get("sandbox") for line in faulty if self.step(line) != "delete"}
        counts = collections.Counter()
        strangers = set(executed) - {s.mark for s in self.sent}
        if strangers:
            self.wrong(f"code that nobody sent: {sorted(strangers)[:3]}")
        for sent in self.sent:
            if sent.answer is None:
                continue
            where, verdict = executed.get(sent.mark, []), sent.verdict()
            counts[verdict] += 1
            if len(where) > 1:
                self.wrong(f"{sent.mark}: executed {len(where)} times: {sent.answer}")
            elif verdict is None:
                self.wrong(f"{sent.mark}: an answer that is none, executed {len(where)} times: {sent.answer}")
            elif verdict == ANSWERED and not where or verdict == REFUSED and where:
                self.wrong(f"{sent.mark}: {verdict}, executed {len(where)} times: {sent.answer}")
            elif verdict == UNKNOWN and where and where[0] not in disturbed:
                self.wrong(f"{sent.mark}: unknown, and nothing happened to its sandbox {where[0]}: {sent.answer}")
            counts["unknown, never executed"] += verdict == UNKNOWN and not where
        # what was never executed may be called unknown only where the answer to a create or to a start went astray
        doubtful = sum(self.step(line) in ("create", "execute") for line in faulty)
        if counts["unknown, never executed"] > doubtful:
            self.wrong(f"{counts['unknown, never executed']} runs unknown that were never executed, and {doubtful} creates and starts disturbed")
        harmless = sum(self.step(line) == "delete" for line in faulty)
        if counts[REFUSED] > len(faulty) - harmless:
            self.wrong(f"{counts[REFUSED]} runs refused, with {len(faulty) - harmless} calls disturbed")
        if self.share and self.runs >= 100 and not faulty:
            self.wrong("no call was disturbed")
        self.summary = f"{dict(counts)}; {len(lines)} calls, {len(faulty)} of them disturbed"

    def judge_memory(self, memory):
        quarter = self.runs // 4
        early, late = memory.of(quarter, 2 * quarter), memory.of(3 * quarter, self.runs)
        self.memory = f"{early:.1f} MiB, then {late:.1f} MiB"
        if g.has_fault_points():
            self.memory += " (with sanitizers, which keep what is freed)"
        elif not early or late > early * (1 + GROWTH) + GROWTH_MIB:
            self.wrong(f"memory grew: {self.memory}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--backend", required=True, choices=[*SERVICES, "all"])
    p.add_argument("--runs", type=int, default=2000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--in-flight", type=int, default=64)
    p.add_argument("--faults", type=float, default=0.05, help="the share of the calls that something is done to")
    p.add_argument("--seconds", type=float, default=900, help="the longest the runs may take")
    a = p.parse_args()
    held = True
    for backend in SERVICES if a.backend == "all" else [a.backend]:
        soak = Soak(backend, a.runs, a.seed, a.in_flight, a.faults)
        if not soak.go(a.seconds):
            held = False
            print("\n".join(f"  {p}" for p in soak.problems[:40]), f"\n  {len(soak.problems)} problems")
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
