"""A bounded share of `make chaos`: trials that kill parts of the gateway under runs, and what must hold afterwards. The seed changes with the day, so
that a year of runs is not the same 25 trials; a failure names it, and docs/chaos.md says how to run it again."""
import datetime
import itertools
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "chaos"))

import chaos as c  # noqa: E402

TRIALS, SECONDS, JOBS = 25, 50, 3  # and 26 s until the last lease has run out


@pytest.mark.faults
def test_a_share_of_the_trials_holds():
    said = []
    seed = datetime.date.today().toordinal()
    chaos = c.Chaos(itertools.islice(itertools.count(), TRIALS), seed, JOBS, SECONDS, say=said.append)
    held = chaos.run()
    assert held, "\n".join([*said, chaos.summary()])
    assert chaos.done >= 5, chaos.summary()


def test_a_fault_that_loses_a_record_is_noticed():
    """The harness itself: what a trial must not find is found when it is put there."""
    rig = c.r.Rig(copies=1)
    rig.points, rig.orphans = ["run.claim"], set()
    try:
        number = next(n for n in itertools.count() if c.t.Trial(rig, 1, n).fault == "wall")
        trial = c.t.Trial(rig, 1, number)
        trial.strike = lambda: None
        real = rig.copies[0].lines
        rig.copies[0].lines = lambda: [*real(), "0" * 32 + " anon standin", f"note {trial.requests[0].token}", f"note {trial.requests[0].token}"] if \
            hasattr(trial, "before") else real()
        trial.requests[0].act = "standin: answer"
        trial.go()
        text = "\n".join(trial.problems)
        assert "no final record of ['00000000000000000000000000000000']" in text and "executed" in text, trial.problems
    finally:
        rig.discard()
