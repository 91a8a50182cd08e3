"""Kills parts of the gateway under runs, a seeded trial at a time, and checks what must hold: `make chaos TRIALS=1000 SEED=1`.

    chaos.py [--trials N] [--seed N] [--jobs N] [--only N[,N...]] [--seconds N] [--verbose]

Trials run side by side, each worker on a rig of its own (one Redis, two copies of the gateway). A failed trial prints its seed, number and what was
wrong, and leaves the logs under build/chaos/. Exit code 0: every trial held.
"""
import argparse
import collections
import itertools
import pathlib
import sys
import threading
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import books  # noqa: E402
import rig as r  # noqa: E402
import trial as t  # noqa: E402
from rig import g  # noqa: E402

LOG_TAIL = 400  # lines of each copy's log that are kept of a failed trial
WORKERS_MAX = 16
BATCH = 40       # trials of a rig between two waits for the leases of what died


class Chaos:
    def __init__(self, numbers, seed, jobs, seconds=None, verbose=False, points=None, private=False, say=print):
        self.numbers, self.seed, self.verbose, self.say = iter(numbers), seed, verbose, say
        self.jobs, self.private = jobs, private
        self.until = time.monotonic() + seconds if seconds else None
        self.points = points or r.fault_points()
        self.lock = threading.Lock()
        self.done = 0
        self.failed = {}  # number -> texts
        self.kinds, self.hits = collections.Counter(), collections.Counter()
        self.began = time.monotonic()

    def next_number(self):
        with self.lock:
            if self.until is not None and time.monotonic() > self.until:
                return None
            return next(self.numbers, None)

    def fail(self, number, texts, what, rig=None):
        with self.lock:
            self.failed.setdefault(number, []).extend(texts)
            self.say(f"FAILED seed {self.seed} {what}{' (private Redis)' if rig is not None and rig.redis.url is None else ''}")
            for text in texts:
                self.say(f"    {text}")
        if rig is not None:
            folder = r.ROOT / "build/chaos" / f"{self.seed}-{number}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "what").write_text("\n".join([what, *texts]) + "\n")
            for i, c in enumerate(rig.copies):
                (folder / f"copy{i}.log").write_text("\n".join(c.gw.log().splitlines()[-LOG_TAIL:]) + "\n")

    def new_rig(self, private):
        rig = r.Rig(prices=books.PRICES, private=private, **books.CAPS)
        rig.points = self.points
        rig.orphans = set()
        return rig

    def one(self, rig, number):
        """Returns what is left to its lease; None when the rig is not to be used again."""
        trial = t.Trial(rig, self.seed, number)
        if self.verbose:
            self.say(str(trial))
        try:
            left = trial.go()
        except Exception:
            self.fail(number, [*trial.problems, traceback.format_exc()], str(trial), rig)
            return None
        with self.lock:
            self.done += 1
            self.kinds[trial.fault if trial.fault != "point" else trial.point] += 1
            if trial.point and trial.was_hit:
                self.hits[trial.point] += 1
        if trial.problems:
            self.fail(number, trial.problems, str(trial), rig)
        return left

    def settle(self, rig, lefts):
        """Checks what trials left, once the last of it is due. Nothing is killed meanwhile: a copy sweeps when it has been up for a while."""
        if lefts:
            time.sleep(max(0, lefts[-1].due - time.monotonic()))
        while lefts:
            left = lefts.popleft()
            problems = t.check_left(rig, left)
            if problems:
                self.fail(left.number, problems, f"trial {left.number}, after its leases", rig)

    def work(self, private):
        rig = lefts = None
        trials = 0
        while (number := self.next_number()) is not None:
            if rig is None:
                rig, lefts = self.new_rig(private), collections.deque()
            left = self.one(rig, number)
            if left is None:
                rig.discard()
                rig = None
                continue
            if left.dispatched or left.slots or left.requests:
                lefts.append(left)
            trials += 1
            if trials % BATCH == 0:
                self.settle(rig, lefts)
        if rig is None:
            return
        try:
            self.settle(rig, lefts)
            problems = t.check_rig(rig)
            if problems:
                self.fail(-1, problems, f"of everything the rig {rig.home.name} ran", rig)
            rig.end()
        except Exception:
            self.fail(-1, [traceback.format_exc()], "the end of a rig", rig)
        finally:
            rig.discard()

    def guarded(self, private):
        try:
            self.work(private)
        except Exception:
            self.fail(-1, [traceback.format_exc()], "a worker")

    def run(self):
        # one in three has a gateway with its private Redis
        workers = [threading.Thread(target=self.guarded, args=(self.private or i % 3 == 2,)) for i in range(self.jobs)]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        return not self.failed

    def summary(self):
        seconds = time.monotonic() - self.began
        faults = ", ".join(f"{k} {n}" + (f" ({self.hits[k]} reached)" if k in self.points else "") for k, n in sorted(self.kinds.items()))
        lines = [f"{self.done} trials in {seconds:.0f} s, seed {self.seed}: {faults}"]
        if self.failed:
            lines.append(f"FAILED: {len(self.failed)}; again with --seed {self.seed} --only " + ",".join(str(n) for n in sorted(self.failed) if n >= 0))
        else:
            lines.append("no double dispatch, no lost record, no held slot, no stuck key, no leak, books that agree")
        return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=None, help="start no trial after so long")
    parser.add_argument("--only", default=None, help="numbers of trials, with commas")
    parser.add_argument("--point", default=None, help="only this fault point")
    parser.add_argument("--private", action="store_true", help="only gateways with their private Redis")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    if not g.has_fault_points():
        sys.exit("chaos.py needs a build with fault points: make VARIANT=test all")
    numbers = [int(n) for n in args.only.split(",")] if args.only else itertools.islice(itertools.count(), args.trials)
    chaos = Chaos(numbers, args.seed, min(args.jobs, WORKERS_MAX), args.seconds, args.verbose, [args.point] if args.point else None, args.private,
                  say=lambda text: print(text, flush=True))
    held = chaos.run()
    print(chaos.summary(), flush=True)
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
