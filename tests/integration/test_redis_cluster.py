"""The record store on a Cluster: the node that has the installation's slot is found, and found again when the slot moves under load."""
import pytest

import gateway as g
import redis_servers as r
from gateway import new_id, wait_for
from test_redis_sentinel import Load, all_are_answered_or_refused_for_want_of_the_store, logged, none_ran_twice

PREFIX = "plimsoll:2:{default}:"


@pytest.fixture(scope="module")
def cluster():
    c = r.Cluster().start()
    yield c
    c.stop()


def keys_of(cluster):
    """How many of the gateway's keys each node has."""
    return {node.port: len(node.ask("KEYS", "plimsoll:*")) for node in cluster.nodes}


@pytest.mark.faults
def test_any_node_leads_to_the_one_with_the_slot(cluster, gateway):
    home = cluster.owner(cluster.slot(PREFIX + "stamp"))
    request_id = new_id()
    for i, node in enumerate(cluster.nodes):
        gw = logged(gateway, PLIMSOLL_REDIS_URL=f"redis://127.0.0.1:{node.port}", PLIMSOLL_TOKEN="0123456789abcdef" * 2)
        gw.token = "0123456789abcdef" * 2
        # no run is refused on the way there
        answer = gw.ok("standin: answer", request_id)
        assert answer.header("Plimsoll-Replayed") == (None if i == 0 else "1")
        gw.ok("standin: answer", new_id())
        assert len(gw.get("/v1/runs").json()["runs"]) == 2 + i
        assert not gw.log_lines("record store away")
        gw.stop()
    assert [port for port, n in keys_of(cluster).items() if n] == [home.port]


@pytest.mark.faults
def test_the_slot_moves_to_another_node_under_load(cluster, gateway):
    """Refused while it moves, answered afterwards, none twice, and every record is at the new node."""
    slot = cluster.slot(PREFIX + "stamp")
    gw = logged(gateway, PLIMSOLL_REDIS_URL=f"redis://127.0.0.1:{cluster.nodes[0].port}")
    kept = new_id()
    gw.ok("standin: answer", kept)
    load = Load(gw)
    for _ in range(3):
        before = len(load.answered)
        wait_for(lambda: len(load.answered) >= before + 20, "runs between moves")
        source = cluster.owner(slot)
        target = cluster.nodes[(cluster.nodes.index(source) + 1) % 3]
        assert cluster.move(slot, target) > 0
        assert cluster.owner(slot) is target
        before = len(load.answered)
        wait_for(lambda: len(load.answered) >= before + 20, "runs after the move")
    load.end()
    all_are_answered_or_refused_for_want_of_the_store(load)
    none_ran_twice(gw, load)
    wait_for(lambda: gw.metric("plimsoll_settle_backlog") == 0 == gw.metric("plimsoll_spool_records"), "what waited to be written")
    wait_for(lambda: gw.run("standin: answer", kept).header("Plimsoll-Replayed") == "1", "the claim at its new node")
    assert [port for port, n in keys_of(cluster).items() if n] == [cluster.owner(slot).port]


@pytest.mark.faults
def test_a_slot_that_stays_half_moved_refuses_and_frees_nobody(cluster, gateway):
    """A claim that is still at the old node must not be found free at the new one."""
    slot = cluster.slot(PREFIX + "stamp")
    gw = logged(gateway, PLIMSOLL_REDIS_URL=f"redis://127.0.0.1:{cluster.nodes[0].port}")
    taken = [new_id() for _ in range(5)]
    for request_id in taken:
        gw.ok("standin: answer", request_id)
    given = (gw.home / "given").read_text()
    source = cluster.owner(slot)
    target = cluster.nodes[(cluster.nodes.index(source) + 1) % 3]
    cluster.begin_move(slot, source, target)
    try:
        for request_id in taken + [new_id() for _ in range(5)]:
            answer = gw.run("standin: answer", request_id)
            if answer.status == 200:
                assert request_id in taken and answer.header("Plimsoll-Replayed") == "1"
            else:
                g.refused(answer, "unavailable", "capacity", request_id)
        cluster.carry(slot, source, target)
        for request_id in taken:
            g.refused(gw.run("standin: answer", request_id), "unavailable", "capacity", request_id)
    finally:
        cluster.carry(slot, source, target)
        cluster.end_move(slot, source, target)
    for request_id in taken:
        wait_for(lambda: gw.run("standin: answer", request_id).header("Plimsoll-Replayed") == "1", "the claim at its new node")
    assert (gw.home / "given").read_text() == given


@pytest.mark.faults
def test_the_node_with_the_slot_dies_and_comes_back(cluster, gateway):
    home = cluster.owner(cluster.slot(PREFIX + "stamp"))
    other = next(node for node in cluster.nodes if node is not home)
    gw = logged(gateway, PLIMSOLL_REDIS_URL=f"redis://127.0.0.1:{other.port}")
    assert gw.run("standin: answer").status == 200
    home.kill()
    wait_for(lambda: gw.get("/readyz").status == 503, "the loss to be seen")
    fresh = new_id()
    g.refused(gw.run("standin: answer", fresh), "unavailable", "capacity", fresh)
    home.start()
    wait_for(lambda: gw.run("standin: answer", fresh).status == 200, "the node to serve again", g.START_S)


# -- fail-over --


@pytest.fixture
def pair():
    """A cluster, the node with the slot, its replica, and a node that has nothing to do with either."""
    c = r.Cluster()
    try:
        c.start()
        home = c.owner(c.slot(PREFIX + "stamp"))
        yield c, home, c.add_replica(home), next(node for node in c.nodes if node is not home)
    finally:
        c.stop()


@pytest.mark.faults
def test_the_replica_takes_over_by_hand_and_by_the_death_of_its_master(pair, gateway):
    c, home, replica, other = pair
    # a replica leads to its master
    gw = logged(gateway, PLIMSOLL_REDIS_URL=f"redis://127.0.0.1:{replica.port}")
    assert gw.run("standin: answer").status == 200
    gw.stop()
    gw = logged(gateway, PLIMSOLL_REDIS_URL=f"redis://127.0.0.1:{other.port}")
    kept = new_id()
    gw.ok("standin: answer", kept)
    load = Load(gw)
    wait_for(lambda: len(load.answered) >= 20, "runs before")
    # by hand: nothing is lost, the old master stays and answers MOVED
    replica.ask("CLUSTER", "FAILOVER")
    wait_for(lambda: replica.info("role") == "master" and home.info("role") == "slave", "the roles to change", g.START_S)
    before = len(load.answered)
    wait_for(lambda: len(load.answered) >= before + 20, "runs after it", g.START_S)
    wait_for(lambda: gw.run("standin: answer", kept).header("Plimsoll-Replayed") == "1", "the claim at its new node")
    wait_for(lambda: home.info("master_link_status") == "up", "the old master to follow", g.START_S)
    # by death
    replica.kill()
    wait_for(lambda: home.info("role") == "master", "the old master to take over again", g.START_S)
    before = len(load.answered)
    wait_for(lambda: len(load.answered) >= before + 20, "runs after it", g.START_S)
    load.end()
    all_are_answered_or_refused_for_want_of_the_store(load)
    none_ran_twice(gw, load)
    wait_for(lambda: gw.metric("plimsoll_settle_backlog") == 0 == gw.metric("plimsoll_spool_records"), "what waited to be written")
    wait_for(lambda: gw.run("standin: answer", kept).header("Plimsoll-Replayed") == "1", "the claim at its new node")
