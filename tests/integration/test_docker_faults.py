"""An Engine that refuses, fails, hangs, lies, loses answers and cuts streams, call by call (fake_engine.py): nothing that ran is marked, nothing
that may have run is called a result, whatever was made is removed, and the wall serves again."""
import json
import re
import threading
import time

import pytest

import engine as e
import gateway as g
import walls
from fake_engine import FakeEngine, answer, cut, done_then, drop, edit, hang, html
from stalls import Stalls

CREATE, START, ATTACH = r"/containers/create", r"/containers/[0-9a-f]{64}/start", r"/containers/[0-9a-f]{64}/attach"
INSPECT, REMOVE = r"/containers/[0-9a-f]{64}/json", r"/containers/[^/]+\?.*force"
SETTINGS = {"SANDBOX_DOCKER_POOL": "0", "SANDBOX_DOCKER_PROJECT_POOL": "0", "SANDBOX_DOCKER_PROJECT_IMAGE": "plimsoll/snippet:latest",
            "PLIMSOLL_PROOF_INTERVAL": "20m", "PLIMSOLL_EVIDENCE_MAX_AGE": "40m"}


@pytest.fixture(scope="module")
def own(local_wall):
    """Every run starts a sandbox of its own, through the fake engine. What went wrong is mended after each test."""
    with local_wall.gateway(SETTINGS, spoilable=True) as gw:
        yield walls.At(gw, local_wall)


@pytest.fixture
def fake(own):
    """The engine's stand-in; afterwards everything it ever made for this gateway is gone, and the wall serves."""
    own.gw.fake.forget()
    yield own.gw.fake
    assert not own.gw.fake.rules
    own.ok("1", timeoutMs=20000)
    own.gw.wait_inflight(0, 2)
    expect_all_removed(own)


def expect_all_removed(own, seconds=25):
    fake = own.gw.fake
    engine = e.shared()
    # what was made without its answer coming through is known by its name
    names = {m.group(1) for c in fake.made("POST", CREATE) for m in [re.search(r"name=([\w.-]+)", c.path)] if m}

    def left():
        return [c["Names"] for c in engine.containers() if {n.lstrip("/") for n in c["Names"]} & names]
    g.wait_for(lambda: not left(), f"what was made to be removed: {left()}", seconds)


def starts_once(fake):
    """No request that can start or create is ever sent twice for one container."""
    for pattern in (CREATE, START):
        paths = [c.path for c in fake.made("POST", pattern)]
        assert len(paths) == len(set(paths)), f"sent twice: {[p for p in paths if paths.count(p) > 1][:3]}"


def refused_once(own, code="console.log('ran')", timeout_ms=6000, reasons=("capacity",)):
    """Marked, within its time, and nothing of the engine's words in it."""
    key = g.new_id()
    with Stalls() as stalls:
        began = time.monotonic()
        reply = own.run(code, key, timeoutMs=timeout_ms)
        took = time.monotonic() - began
    assert reply.status != 200 and reply.reason in reasons, reply
    assert took <= timeout_ms / 1000 + 0.4 + 3 * stalls.worst, took
    assert "<html" not in reply.message and "made up" not in reply.message and "docker" not in reply.message.lower(), reply.message
    run = [r for r in own.gw.get("/v1/runs?limit=100").json()["runs"] if r["request_id"] == key][0]
    assert (run["verdict"], run["reason"]) == ("refused", reply.reason)
    return reply


# -- before a job is given: nothing ran --


@pytest.mark.parametrize("action", [answer(500), answer(404), answer(409), answer(400), html(502), answer(201, {"Warnings": []}), answer(201, "not json"),
                                    answer(500, {"message": "no space left on device"}), drop()],
                         ids=["500", "404", "409", "400", "HTML", "no ID", "no JSON", "disk full", "dropped"])
@pytest.mark.one_wall
def test_a_container_cannot_be_made(own, fake, action):
    with fake.rule("POST", CREATE, action) as rule:
        refused_once(own)
    assert rule.hits >= 1
    starts_once(fake)


@pytest.mark.parametrize("then", [drop(), answer(500), html(504)], ids=["dropped", "500", "HTML"])
@pytest.mark.one_wall
def test_a_container_is_made_and_nobody_told(own, fake, then):
    """What was made without an answer is removed by its name."""
    before = len(fake.made("POST", CREATE))
    with fake.rule("POST", CREATE, done_then(then), times=1):
        own.run("1", timeoutMs=3000)
    assert len(fake.made("POST", CREATE)) > before
    starts_once(fake)


@pytest.mark.one_wall
def test_making_hangs(own, fake):
    over = threading.Event()
    with fake.rule("POST", CREATE, hang(over)):
        refused_once(own, timeout_ms=1500)
    over.set()


@pytest.mark.parametrize("action", [answer(500), answer(404), answer(400), answer(409), html(502), drop(), done_then(drop()), done_then(answer(500))],
                         ids=["500", "404", "400", "409", "HTML", "dropped", "done and dropped", "done and 500"])
@pytest.mark.one_wall
def test_a_container_cannot_be_started(own, fake, action):
    with fake.rule("POST", START, action) as rule:
        refused_once(own, timeout_ms=3000)
    assert rule.hits >= 1
    starts_once(fake)


def test_starting_hangs(own, fake):
    over = threading.Event()
    with fake.rule("POST", START, hang(over)):
        refused_once(own, timeout_ms=1500)
    over.set()


@pytest.mark.parametrize("action", [answer(500), answer(404), html(502), answer(200), drop()], ids=["500", "404", "HTML", "200 with a length", "dropped"])
@pytest.mark.one_wall
def test_nobody_can_attach(own, fake, action):
    with fake.rule("POST", ATTACH, action) as rule:
        refused_once(own, timeout_ms=3000)
    assert rule.hits >= 1


@pytest.mark.parametrize("action", [answer(500), answer(404), html(502), answer(200, []), answer(200, {}), answer(200, "x"), drop()],
                         ids=["500", "404", "HTML", "a list", "nothing", "no JSON", "dropped"])
@pytest.mark.one_wall
def test_nobody_says_what_it_is(own, fake, action):
    # once: a second 404 would be the engine's word that it is gone
    with fake.rule("GET", INSPECT, action, times=1) as rule:
        reply = own.run("console.log('ran')", timeoutMs=4000)
    # another one is tried while there is time
    assert rule.hits >= 1 and (reply.status == 200 or reply.reason in ("capacity", "isolation")), reply


FIELDS = {
    "another image": lambda c: c.update(Image="sha256:" + "0" * 64),
    "another user": lambda c: c["Config"].update(User="0:0"),
    "no user": lambda c: c["Config"].update(User=""),
    "another spec": lambda c: c["Config"]["Labels"].update({"sbx.spec": "0" * 64}),
    "another runtime": lambda c: c["HostConfig"].update(Runtime="runc" if c["HostConfig"]["Runtime"] == "runsc" else "runsc"),
    "a network": lambda c: c["HostConfig"].update(NetworkMode="bridge"),
    "networks": lambda c: c["NetworkSettings"]["Networks"].update(bridge={}),
    "a writable root": lambda c: c["HostConfig"].update(ReadonlyRootfs=False),
    "privileged": lambda c: c["HostConfig"].update(Privileged=True),
    "a capability": lambda c: c["HostConfig"].update(CapAdd=["SYS_ADMIN"]),
    "capabilities kept": lambda c: c["HostConfig"].update(CapDrop=None),
    "new privileges": lambda c: c["HostConfig"].update(SecurityOpt=[o for o in c["HostConfig"]["SecurityOpt"] or [] if "no-new" not in o]),
    "no profile": lambda c: c["HostConfig"].update(SecurityOpt=["no-new-privileges", "seccomp=unconfined"]),
    "more processes": lambda c: c["HostConfig"].update(PidsLimit=100000),
    "no limit of processes": lambda c: c["HostConfig"].update(PidsLimit=None),
    "more memory": lambda c: c["HostConfig"].update(Memory=1 << 40),
    "swap": lambda c: c["HostConfig"].update(MemorySwap=-1),
    "more processors": lambda c: c["HostConfig"].update(NanoCpus=0),
    "another mount of memory": lambda c: c["HostConfig"]["Tmpfs"].update({"/tmp": "rw,exec"}),
    "one mount more": lambda c: c["HostConfig"]["Tmpfs"].update({"/x": "rw"}),
    "a bind": lambda c: c["HostConfig"].update(Binds=["/:/host"]),
    "a mount": lambda c: c.update(Mounts=[{"Type": "bind", "Source": "/", "Destination": "/host", "RW": True}]),
    "a volume": lambda c: c["HostConfig"].update(VolumesFrom=["x"]),
    "a device": lambda c: c["HostConfig"].update(Devices=[{"PathOnHost": "/dev/mem", "PathInContainer": "/dev/mem", "CgroupPermissions": "rwm"}]),
    "the machine's processes": lambda c: c["HostConfig"].update(PidMode="host"),
    "the machine's users": lambda c: c["HostConfig"].update(UsernsMode="host"),
    "the machine's shared memory": lambda c: c["HostConfig"].update(IpcMode="host"),
    "another init": lambda c: c["HostConfig"].update(Init=True),
    "masked paths shown": lambda c: c["HostConfig"].update(MaskedPaths=[]),
    "read-only paths writable": lambda c: c["HostConfig"].update(ReadonlyPaths=[]),
    "a group": lambda c: c["HostConfig"].update(GroupAdd=["0"]),
    "a log": lambda c: c["HostConfig"].update(LogConfig={"Type": "json-file", "Config": {}}),
    "another program": lambda c: c["Config"].update(Entrypoint=["/bin/sh"]),
    "other arguments": lambda c: c["Config"].update(Cmd=["-c", "id"]),
    "no longer running": lambda c: c["State"].update(Running=False),
    "paused": lambda c: c["State"].update(Paused=True),
}


@pytest.mark.parametrize("what", FIELDS)
@pytest.mark.one_wall
def test_a_container_that_is_not_what_was_asked_for_gets_no_job(own, fake, what):
    """Read back before the job is given; each field alone."""
    with fake.rule("GET", INSPECT, edit(FIELDS[what])) as rule:
        refused_once(own, timeout_ms=5000, reasons=("isolation", "capacity"))
    assert rule.hits >= 1


@pytest.mark.parametrize("what", ["a network", "more memory", "paused", "another image"])
@pytest.mark.one_wall
def test_a_container_that_was_changed_after_its_start_gets_no_job(own, fake, what):
    """The read-back before the job, after one that was right."""
    with fake.rule("GET", INSPECT, edit(FIELDS[what]), skip=1) as rule:
        reply = own.run("console.log('ran')", timeoutMs=6000)
    assert rule.hits >= 1 and (reply.status == 200 or reply.reason in ("isolation", "capacity")), reply
    # the first inspect may serve the start and the claim alike; a run that was answered was given to one that is right
    assert reply.status != 200 or rule.hits <= 1


@pytest.mark.one_wall
def test_a_start_is_one_trial(local_wall):
    """The ledger that connects while the wall is being proven is no reason to prove it again at once."""
    with local_wall.gateway(SETTINGS, spoilable=True) as gw:
        walls.At(gw, local_wall).ok("1", timeoutMs=20000)
        roles = [json.loads(call.body)["Labels"]["sbx.role"] for call in gw.fake.made("POST", CREATE)]
    assert roles[-1] == "pool" and roles.count("pool") == 1, roles


# -- the stream --


def stream_length(own):
    """Bytes of the container's that an answered run takes, and of those that come before its job is given."""
    fake = own.gw.fake
    for _ in range(5):
        measured = cut(1 << 40)
        with fake.rule("POST", ATTACH, measured):
            own.ok("console.log('A')", timeoutMs=20000)
        if measured.first > 0:
            return measured
    raise AssertionError("the greeting came in pieces five times: what the container said before its job could not be told from the rest")


def test_a_stream_that_is_cut(own, fake):
    """U14, at every kind of place: before READY nothing ran; from the job on nobody knows; after the verdict it stands."""
    whole = stream_length(own)
    assert whole.seen > 100, whole.seen
    ready = whole.first
    # the Engine puts 8 bytes before each piece it reads, and may read two frames as one: 40 before the end is within the last frame's 76
    for after in (0, 1, 8, ready - 1, ready, ready + 1, (ready + whole.seen) // 2, whole.seen - 40, whole.seen + 40):
        key = g.new_id()
        with fake.rule("POST", ATTACH, cut(after), times=1):
            reply = own.run("console.log('A')", key, timeoutMs=6000)
        if after < ready:
            # the pool tries again within the run's time, so it may be answered; what is not answered is marked
            assert reply.status == 200 or reply.reason == "capacity", (after, reply)
        elif after == ready:
            # the end and the job cross each other: marked only when the job was not given
            assert reply.status == 200 or reply.reason == "capacity" or reply.code == "internal", (after, reply)
        elif after < whole.seen:
            assert reply.reason is None and reply.status != 200, (after, reply)
            g.failed(reply, "internal", key)
            assert b"QQ" not in reply.body
            # never made again
            g.failed(own.run("console.log('A')", key, timeoutMs=6000), "internal", key)
        else:
            assert reply.status == 200 and g.stdout(reply) == b"A\n", (after, reply)


def test_a_project_whose_stream_is_cut_keeps_what_came(own, fake):
    ran = threading.Event()
    with fake.rule("POST", ATTACH, cut(1 << 40, until=ran), times=1):
        waiting = g.Background(lambda: own.project(["echo HEARD; sleep 2; echo B", "echo C"], timeoutMs=20000))
        fake.wait_for_stream(b"HEARD\n")
        ran.set()
        done = waiting.join()
    assert done.outcome == "protocol_error" and done.detail and done.steps[0].out == b"HEARD\n" and done.codes == [-1], done


def test_a_stream_that_stalls_after_the_start(own, fake):
    """No READY: nothing ran."""
    with fake.rule("POST", ATTACH, cut(0, "hold")):
        refused_once(own, timeout_ms=2500)
        fake.end_connections()  # or its start is given all the time it may take


def test_a_stream_that_stalls_after_the_job(own, fake):
    """ACCEPTED never comes: nobody knows, and it is said within five seconds or at the deadline."""
    ready = stream_length(own).first
    with fake.rule("POST", ATTACH, cut(ready, "hold"), times=1):
        began = time.monotonic()
        reply = own.run("console.log('A')", timeoutMs=20000)
    g.failed(reply, "internal")
    assert time.monotonic() - began < 10


def test_a_stream_that_stalls_with_output(own, fake):
    """U05, U09: the deadline holds, and what came is kept."""
    ran = threading.Event()
    with fake.rule("POST", ATTACH, cut(1 << 40, "hold", until=ran), times=1):
        code = "process.stdout.write('HEARD\\n'); setTimeout(() => console.log('B'), 800); setTimeout(() => {}, 60000)"
        with Stalls() as stalls:
            began = time.monotonic()
            waiting = g.Background(lambda: own.run(code, timeoutMs=3000))
            fake.wait_for_stream(b"HEARD\n")
            ran.set()
            reply = waiting.join()
            took = time.monotonic() - began
    got = reply.json()["javascript"]
    assert g.stdout(reply) == b"HEARD\n" and got["timedOut"] is True and got["exitCode"] == 124 and "stdoutTruncated" not in got
    assert 3.0 <= took <= 3.4 + 3 * stalls.worst, took


@pytest.mark.one_wall
def test_noise_in_the_stream_is_passed_over(own, fake):
    """Bytes that are no frames, and output of the engine's other stream, change nothing."""
    noise = b"\x02\0\0\0\0\0\0\x05noise" + b"\x01\0\0\0\0\0\0\x04\xf5SB1"
    with fake.rule("POST", ATTACH, cut(1 << 40, inject=noise), times=1):
        assert g.stdout(own.ok("console.log('A')", timeoutMs=20000)) == b"A\n"


@pytest.mark.parametrize("noise", [b"\x07\0\0\0\0\0\0\x01x", b"\x01\1\1\1\0\0\0\x01x"], ids=["stream 7", "no zeros"])
@pytest.mark.one_wall
def test_a_stream_that_is_none(own, fake, noise):
    with fake.rule("POST", ATTACH, cut(1 << 40, inject=noise)):
        refused_once(own, timeout_ms=4000)


@pytest.mark.one_wall
def test_a_length_that_swallows_all_that_follows(own, fake):
    """4 GiB are announced: what follows is all of one frame of the engine's. The runner's frames in it are found, and are right, or nobody knows."""
    with fake.rule("POST", ATTACH, cut(1 << 40, inject=b"\x01\0\0\0\xff\xff\xff\xff"), times=1):
        reply = own.run("console.log('A')", timeoutMs=6000)
    assert g.stdout(reply) == b"A\n" if reply.status == 200 else reply.reason in ("capacity", None), reply


# -- the sandbox is lost --


@pytest.mark.parametrize("how", ["kill", "remove"])
def test_the_engine_loses_the_container(own, fake, how):
    """U08: named as what it is, never a timeout, never a result."""
    waiting = g.Background(lambda: own.project(["echo HEARD; sleep 30"], timeoutMs=30000))
    fake.wait_for_stream(b"HEARD\n")
    container = fake.created[-1]
    e.shared().call(*(("POST", f"/containers/{container}/kill?signal=KILL") if how == "kill" else ("DELETE", f"/containers/{container}?force=1&v=1")))
    done = waiting.join(15)
    assert done.outcome == "protocol_error" and done.steps[0].out == b"HEARD\n" and not done.steps[0].timed_out and done.codes == [-1], done
    assert done.detail.startswith("the sandbox"), done.detail


def test_the_engine_goes_away_while_code_runs(own, fake):
    waiting = g.Background(lambda: own.run("console.log('HEARD'); setTimeout(() => console.log('B'), 5000)", timeoutMs=20000))
    fake.wait_for_stream(b"HEARD\n")
    fake.unlisten()
    reply = waiting.join(20)
    g.failed(reply, "internal")
    refused_once(own, timeout_ms=2000)
    fake.listen()
    g.wait_for(lambda: own.run("1", timeoutMs=10000).status == 200, "service", own.wall.recovery_s)


# -- removal --


@pytest.mark.parametrize("action", [answer(500), answer(409), html(502), drop(), done_then(answer(500)), done_then(answer(409))],
                         ids=["500", "409", "HTML", "dropped", "done and 500", "done and 409"])
@pytest.mark.one_wall
def test_removal_is_tried_until_it_is_true(own, fake, action):
    """U02: the caller has the answer without waiting for it; only absence counts."""
    with fake.rule("DELETE", REMOVE, action, times=1) as rule:
        began = time.monotonic()
        assert g.stdout(own.ok("console.log('A')", timeoutMs=20000)) == b"A\n"
        assert time.monotonic() - began < 10
        g.wait_for(lambda: rule.hits >= 1, "a removal")
        container = fake.created[-1]
        g.wait_for(lambda: e.shared().inspect(container) is None, "the container to be gone", 30)


@pytest.mark.one_wall
def test_removal_that_hangs_keeps_nobody(own, fake):
    over = threading.Event()
    with fake.rule("DELETE", REMOVE, hang(over), times=2):
        for _ in range(3):
            assert g.stdout(own.ok("console.log('A')", timeoutMs=20000)) == b"A\n"
        over.set()


# -- what is not ours --


def test_foreign_containers_are_left_alone(own, fake):
    """Without our labels, with our name alone, with a label of ours but not our name, and of a gateway on another machine."""
    engine = e.shared()
    image = engine.image("plimsoll/snippet:latest")["Id"]
    mine = {"sbx.gateway": "1", "sbx.role": "run", "sbx.expires": "1"}
    foreign = [engine.create(image, ["/bin/true"], name=name, labels=labels) for name, labels in (
        ("somebody", {}), ("plimsoll-" + g.secrets.token_hex(8), {}), ("not-" + g.secrets.token_hex(8), {**mine, "sbx.instance": "0" * 16, "sbx.host": "x"}),
        ("plimsoll-" + g.secrets.token_hex(8), {"sbx.gateway": "1", "sbx.instance": "f" * 16, "sbx.host": "another.1", "sbx.role": "run",
                                               "sbx.expires": str(int(time.time()) + 3600)}))]
    try:
        role = next(p for p in g.descendants(own.gw.process.pid) if g.name_of(p).split(" ")[0].endswith("plimsolld-backend-" + own.wall.name))
        g.os.kill(role, g.signal.SIGKILL)      # the next one looks through everything at its start
        g.wait_for(lambda: own.run("1", timeoutMs=10000).status == 200, "service", own.wall.recovery_s)
        assert all(engine.inspect(c) is not None for c in foreign)
    finally:
        for container in foreign:
            engine.remove(container)


def test_an_image_that_moved_is_not_run(local_wall):
    """The tag points elsewhere: runs go on with what was proven, or nothing runs until the new one is; never the new one unproven."""
    engine = e.shared()
    engine.call("POST", "/images/plimsoll/snippet:latest/tag?repo=plimsoll-test&tag=moving")
    try:
        settings = {**SETTINGS, "SANDBOX_DOCKER_IMAGE": "plimsoll-test:moving", "PLIMSOLL_PROOF_INTERVAL": "1s", "PLIMSOLL_EVIDENCE_MAX_AGE": "5m"}
        with local_wall.gateway(settings) as gw:
            own = walls.At(gw, local_wall)
            first = own.ok("1").json()["environment"]
            engine.call("POST", "/images/plimsoll/project:latest/tag?repo=plimsoll-test&tag=moving")
            moved = "docker-image:" + engine.image("plimsoll-test:moving")["Id"]
            seen = set()

            def is_over():
                reply = own.run("1", timeoutMs=10000)
                if reply.status == 200:
                    seen.add(reply.json()["environment"])
                    # what is answered is always what is announced as proven
                    return reply.json()["environment"] == moved
                assert reply.reason in ("capacity", "isolation", "environment"), reply
                return False
            g.wait_for(is_over, "the moved image to be proven", local_wall.recovery_s)
            assert seen <= {first, moved} and first != moved
    finally:
        engine.call("DELETE", "/images/plimsoll-test:moving?noprune=1")
