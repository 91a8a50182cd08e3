"""A tier is evidence with an age: a proof that can no longer be tried makes it old, and what is old counts as none; on every wall alike."""
import pytest

import gateway as g
import walls


@pytest.fixture(scope="module")
def own(wall):
    """A gateway whose proof the test can get in the way of."""
    with wall.gateway({"PLIMSOLL_PROOF_INTERVAL": "1s", "PLIMSOLL_EVIDENCE_MAX_AGE": f"{wall.proof_s + 2}s"}, spoilable=True) as gw:
        yield walls.At(gw, wall)


def test_evidence_that_grows_old_counts_as_none(own):
    code, tier = own.language.out(b"1\n"), own.wall.tier
    own.ok(code, minimumIsolation=tier)
    assert own.gw.get("/v1/backends").json()["backends"][0]["evidence"] == ("observed" if tier == "kernel" else "tested")
    with own.wall.unprovable(own.gw):
        g.wait_for(lambda: own.run(code, minimumIsolation=tier).reason == "isolation", "the evidence to grow old", own.wall.proof_s + 15)
        for floor in ("process", "container", "kernel", "vm"):
            key = g.new_id()
            g.refused(own.run(code, key, minimumIsolation=floor), "failed_precondition", "isolation", key)
        assert own.describe()["isolation"] == "unknown"
        assert own.gw.get("/readyz").status == 503
        listed = own.gw.get("/v1/backends").json()["backends"][0]
        assert listed["isolation"] == "unknown" and listed["evidence"] is None
    g.wait_for(lambda: own.run(code, minimumIsolation=tier).status == 200, "new evidence", own.wall.recovery_s)
    assert own.describe()["isolation"] == tier
    g.wait_for(lambda: own.gw.get("/readyz").status == 200, "readiness")


def test_a_refuted_wall_serves_nobody_until_it_holds_again(own):
    if own.wall.refuted is None:
        # nothing a test can do makes this wall's own proof fail
        assert own.wall.name == "wasm"
        return
    code = own.language.out(b"1\n")
    own.ok(code)
    with own.wall.refuted(own.gw):
        g.wait_for(lambda: own.run(code).status != 200, "runs to be refused", own.wall.proof_s + 15)
        g.wait_for(lambda: own.gw.get("/v1/backends").json()["backends"][0]["state"] == "failed", "the proof to fail", own.wall.proof_s + 15)
        key = g.new_id()
        g.refused(own.run(code, key), "unavailable", "capacity", key)
        assert own.gw.get("/readyz").status == 503
        for floor in ("process", own.wall.tier):
            answer = own.run(code, minimumIsolation=floor)
            assert answer.status != 200 and answer.reason in ("isolation", "capacity"), answer
    g.wait_for(lambda: own.run(code, key).status == 200, "the wall to be proven again", own.wall.recovery_s)
