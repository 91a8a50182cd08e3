"""The ledger of the Docker walls with a real Engine: every container stands in it before it exists and leaves it when it is gone; what a dead
role, a dead gateway or another installation left; Redis away."""
import contextlib
import os
import signal
import time

import pytest

import engine as e
import gateway as g
import redis_servers
import walls

pytestmark = pytest.mark.faults

DOCKER = next(w for w in walls.LOCAL_WALLS if w.name == "docker")
LEASE_S, ROUND_S = 15, 5
GONE_S = 60


class Place:
    """A Redis and an Engine."""

    def __init__(self, engine):
        self.redis = redis_servers.Server().start()
        self.engine = engine

    def settings(self, **more):
        return {**walls.settings_of([DOCKER]), "SANDBOX_DOCKER_SOCKET": self.engine.path, "SANDBOX_DOCKER_PROJECT_IMAGE": "plimsoll/snippet:latest",
                "SANDBOX_DOCKER_POOL": "2", "SANDBOX_DOCKER_PROJECT_POOL": "0", "PLIMSOLL_PROOF_INTERVAL": "20m", "PLIMSOLL_EVIDENCE_MAX_AGE": "40m",
                "PLIMSOLL_REDIS_URL": f"redis://127.0.0.1:{self.redis.port}", **more}

    def entries(self, name="default"):
        flat = self.redis.ask("HGETALL", f"plimsoll:2:{{{name}}}:ledger:docker")
        return {k.decode(): v.decode().split(" ") for k, v in zip(flat[::2], flat[1::2])}

    def containers(self):
        """{stamp: container} of the gateways."""
        return {c["Names"][0].removeprefix("/plimsoll-"): c for c in self.engine.containers() if c["Names"]}

    def wait_agreed(self, count, seconds=GONE_S):
        """The ledger and the Engine name the same sandboxes, so many."""
        def agreed():
            entries = self.entries()
            return len(entries) == count and set(entries) == set(self.containers()) and all(w[1] == "named" for w in entries.values())
        g.wait_for(agreed, f"{count} sandboxes in both", seconds)
        return self.entries()


@pytest.fixture(scope="module")
def engine():
    with e.own_engine("plimsoll/snippet:latest") as it:
        yield it


@pytest.fixture()
def place(engine):
    it = Place(engine)
    try:
        yield it
        g.wait_for(lambda: not engine.containers(), "the Engine to be empty", GONE_S)
    finally:
        it.redis.stop()


def kill_all(gw):
    below = g.descendants(gw.process.pid)
    os.killpg(gw.process.pid, signal.SIGKILL)
    for pid in below:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    gw.process.wait(g.STOP_S)


@contextlib.contextmanager
def doomed(place, **more):
    """A gateway that the test kills."""
    gw = g.Gateway(place.settings(**more), clean_exit=False)
    try:
        yield gw.start()
    finally:
        gw.kill_rest()
        gw.remove()


def test_every_container_stands_in_the_ledger(place):
    with g.served(g.Gateway(place.settings()).start()) as gw:
        entries = place.wait_agreed(2)
        identity = place.redis.ask("GET", "plimsoll:2:{default}:stamp").decode()
        for stamp, container in place.containers().items():
            words = entries[stamp]
            assert words[11] == container["Id"] and words[7] == "0" and words[8] == "-"
            assert container["Labels"]["sbx.installation"] == identity and container["Labels"]["sbx.instance"] == words[2]
            assert abs(int(words[6]) // 1000 - int(container["Labels"]["sbx.expires"])) <= 10
        key = g.new_id()
        running = gw.in_background("setTimeout(() => console.log('ok'), 3000)", key)
        words = g.wait_for(lambda: [w for w in place.entries().values() if w[8] != "-"], "the run to be written down")[0]
        assert words[10] == "static"
        answer = running.join()
        assert answer.status == 200 and answer.header("Plimsoll-Run-Id") == words[8]
        place.wait_agreed(2)
        assert words[11] not in {w[11] for w in place.entries().values()}
        gw.wait_metric('plimsoll_ledger_entries{backend="docker"}', 2)
    assert not place.entries() and not place.containers() and not place.redis.ask("KEYS", "*:instance:*")


def test_no_leak_when_the_role_is_killed_at_each_point(place):
    points = ("ledger.asked", "ledger.named", "backend.create", "backend.execute", "ledger.release", "ledger.gone")
    with g.served(g.Gateway(place.settings()).start()) as gw:
        place.wait_agreed(2)
        for point in points:
            gw.faults.arm(point, "once kill")
            for _ in range(1200):
                gw.run("1")
                if gw.faults.hits(point):
                    break
                time.sleep(0.05)
            gw.faults.wait(point)
            g.wait_for(lambda: gw.run("1").status == 200, f"a role after {point}", 60)
        assert len(gw.log_lines("process died")) == len(points)
        place.wait_agreed(2)
    assert not place.entries()


def test_another_installation_is_left_alone_and_ones_own_is_not(place):
    with doomed(place) as dead:
        place.wait_agreed(2)
        kill_all(dead)
        left = set(place.containers())
        with g.served(g.Gateway(place.settings(PLIMSOLL_INSTALLATION="other")).start()) as gw:
            g.wait_for(lambda: len(place.containers()) == 4, "the other's own", GONE_S)
            gw.ok("1")
            time.sleep(LEASE_S + ROUND_S)
            assert left <= set(place.containers()) and set(place.entries()) == left
        assert set(place.containers()) == left
    with g.served(g.Gateway(place.settings()).start()) as gw:
        g.wait_for(lambda: not left & set(place.containers()), "what the dead gateway left to be removed", GONE_S)
        place.wait_agreed(2)
        assert not left & set(place.entries())


def test_a_copy_that_lives_adopts_of_its_own_machine(place):
    with g.served(g.Gateway(place.settings()).start()) as gw:
        place.wait_agreed(2)
        with doomed(place) as dead:
            place.wait_agreed(4)
            runs = [dead.start_run("setTimeout(() => {}, 60000)", timeoutMs=60000) for _ in range(2)]
            g.wait_for(lambda: sum(w[8] != "-" for w in place.entries().values()) == 2, "two runs", GONE_S)
            kill_all(dead)
            for c in runs:
                c.close()
        place.wait_agreed(2)
        gw.ok("1")


def test_while_redis_is_away_the_setting_decides(place):
    for down, expected in (("refuse", 0), ("serve", 2)):
        with g.served(g.Gateway(place.settings(PLIMSOLL_REDIS_DOWN=down, SANDBOX_DOCKER_POOL="2")).start()) as gw:
            place.wait_agreed(2)
            # ready, and none on its way: one whose entry was written before may still be made after
            gw.wait_metric('plimsoll_sandboxes{backend="docker",state="ready"}', 2, GONE_S)
            before = set(place.wait_agreed(2))
            place.redis.signal(signal.SIGSTOP)
            try:
                g.wait_for(lambda: gw.get("/readyz").status == 503 or gw.log_lines("ledger away"), "the gateway to notice", 20)
                for container in place.containers().values():
                    place.engine.remove(container["Id"])
                if expected:
                    g.wait_for(lambda: len(place.containers()) == expected, "new sandboxes on their labels", GONE_S)
                else:
                    time.sleep(5)
                assert len(place.containers()) == expected and not before & set(place.containers())
            finally:
                place.redis.signal(signal.SIGCONT)
            place.wait_agreed(2)
            gw.ok("1")


def test_a_start_before_redis_is_there(place):
    """The wall proves itself in sandboxes that stand on their labels; the pool and the runs wait for Redis."""
    port = place.redis.port
    place.redis.kill()
    with g.served(g.Gateway(place.settings()).start()) as gw:
        assert gw.get("/readyz").status == 503 and gw.run("1").reason == "capacity"
        assert not [c for c in place.containers().values() if c["Labels"]["sbx.role"] != "smoke"]
        assert place.redis.port == port
        place.redis.start()
        g.wait_for(lambda: gw.run("1").status == 200, "runs", GONE_S)
        place.wait_agreed(2)


def test_an_operator_reaps_a_ready_sandbox(place):
    with g.served(g.Gateway(place.settings()).start()) as gw:
        stamp = next(iter(place.wait_agreed(2)))
        g.subprocess.run([str(g.COMMAND), "ledger", "reap", "--stamp", stamp], check=True, timeout=g.ANSWER_S, capture_output=True,
                         env={"PATH": os.environ["PATH"], "PLIMSOLL_REDIS_URL": f"redis://127.0.0.1:{place.redis.port}"})
        assert stamp not in place.containers() and stamp not in place.entries()
        place.wait_agreed(2)
        gw.ok("1")
