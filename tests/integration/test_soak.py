"""A bounded share of `make soak`: runs through each wall of a cloud with faults at random in its calls, and every verdict held against the stand-in's
account. The seed changes with the day; a failure names it, and docs/soak.md says how to run it again."""
import datetime
import os
import pathlib
import subprocess
import sys

import pytest

import gateway as g

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "soak"))

import soak as s  # noqa: E402

RUNS, SECONDS = 150, 120
# Memory is measured on a build without sanitizers, which `make test` has made before.
BUILD = next(b for b in ("build/bench", str(g.BUILD)) if (g.ROOT / b / "plimsolld").exists())


@pytest.mark.parametrize("backend", s.SERVICES)
def test_every_verdict_is_right(backend):
    if backend == "openshell":
        # it is proven before nothing is executed any more
        next(w for w in s.walls.CLOUD_WALLS if repr(w) == backend).require()
    seed = datetime.date.today().toordinal()
    done = subprocess.run([sys.executable, str(g.ROOT / "tests/soak/soak.py"), "--backend", backend, "--runs", str(RUNS), "--seed", str(seed), "--seconds", str(SECONDS)],
                          env={**os.environ, "PLIMSOLL_BUILD": BUILD}, capture_output=True, text=True, timeout=SECONDS + 120)
    assert done.returncode == 0, f"seed {seed}\n{done.stdout[-6000:]}\n{done.stderr[-3000:]}"


class Books:
    """A stand-in's account as a test wants it."""

    def __init__(self, marks, journal):
        self.marks, self.journal = lambda: marks, lambda: [{"n": n, **line} for n, line in enumerate(journal, 1)]


ANSWERED = g.Answer(200, [], b'{"javascript":{"stdout":"NDIK"}}', "")
CUT = g.Answer(200, [], b'{"javascript":{"stdout":"NDI="}}', "")
MARKED = g.Answer(503, [], b'{"code":"unavailable","message":"x","details":[{"type":"plimsoll.v1.NotDispatched","value":"CAY"}]}', "")
UNMARKED = g.Answer(503, [], b'{"code":"unavailable","message":"x"}', "")
START = {"method": "POST", "path": "/process.Process/Start", "sandbox": "a"}


@pytest.mark.parametrize("answer, executed, journal, wrong", [
    (ANSWERED, ["a"], [], None), (ANSWERED, [], [], "answered, executed 0 times"), (ANSWERED, ["a", "b"], [], "executed 2 times"),
    (CUT, ["a"], [], "an answer that is none"), (MARKED, ["a"], [{**START, "fault": "f"}], "refused, executed 1 times"), (MARKED, [], [], "calls disturbed"),
    (MARKED, [], [{**START, "fault": "f"}], None), (UNMARKED, ["a"], [START], "nothing happened to its sandbox"), (UNMARKED, ["a"], [{**START, "fault": "f"}], None),
    (UNMARKED, [], [{**START, "path": "/files", "fault": "f"}], "never executed"), (UNMARKED, [], [{**START, "fault": "f"}], None)])
def test_the_soak_finds_what_is_wrong(answer, executed, journal, wrong):
    soak = s.Soak("e2b", 1, 1, faults=0)
    soak.first_line = 0
    sent = soak.sent[0]
    sent.answer, sent.is_project = answer, False
    soak.judge(Books({sent.mark: executed} if executed else {}, journal))
    assert [wrong in p for p in soak.problems] == ([True] if wrong else []), soak.problems
