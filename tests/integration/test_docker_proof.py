"""What the walls of an Engine rest on: images that users derived, digests that were pinned, what may be seen of the sandbox's process, and who
removes what of whom."""
import contextlib
import os
import secrets
import signal
import subprocess
import urllib.parse

import pytest

import engine as e
import gateway as g
import walls
from fake_engine import FakeEngine, answer, edit

PINNED = "plimsoll/snippet@sha256:" + "ab" * 32
FAST = {"PLIMSOLL_PROOF_INTERVAL": "2s"}


@contextlib.contextmanager
def served(provider="docker", state=None, **settings):
    with g.served(g.Gateway({"SANDBOX_PROVIDER": provider, **walls.LOCAL_WALLS[0].settings, **settings}, state=state)) as gw:
        yield gw.start()


def told(gw, backend):
    return next(b for b in gw.get("/v1/backends").json()["backends"] if b["name"] == backend)


def not_proven(gw, backend="docker"):
    return gw.wait_log("backend not proven", walls.LOCAL_WALLS[0].proof_s, backend=backend)["reason"]


# -- derived images --


@pytest.fixture
def derive():
    """An image made of plimsoll/snippet with lines of a Dockerfile; its name."""
    e.require()
    api, made = e.shared(), []

    def make(*lines):
        name = "plimsoll-test/" + secrets.token_hex(6)
        container = api.create("plimsoll/snippet:latest", ["/opt/sbx/runner"])
        try:
            changes = "".join("&changes=" + urllib.parse.quote(line) for line in lines)
            status, body = api.call("POST", f"/commit?container={container}&repo={name}&tag=latest{changes}", {})
            assert status == 201, body
        finally:
            api.remove(container)
        made.append(name)
        return name + ":latest"
    yield make
    for name in made:
        api.call("DELETE", f"/images/{name}:latest?force=1")


def test_what_a_derived_image_says_of_itself_changes_nothing(derive):
    """As docs/guest-images.md tells to derive one, and with all that the Engine would otherwise act on."""
    image = derive("WORKDIR /", 'HEALTHCHECK --interval=1s --timeout=1s CMD touch /tmp/checked', 'ENTRYPOINT ["/bin/sh"]', 'CMD ["-c", "id"]',
                   "USER 0:0", "EXPOSE 80", "ENV GREETING=hello", "LABEL sbx.gateway=0")
    with served(SANDBOX_DOCKER_IMAGE=image) as gw:
        done = gw.ok("Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2500);"
                     "console.log(process.getuid(), process.env.GREETING, require('fs').readdirSync('/tmp').join())")
        assert g.stdout(done) == b"61000 hello \n" and done.json()["environment"] == "docker-image:" + e.shared().image(image)["Id"]


@pytest.mark.parametrize("line, why", [
    ("VOLUME /data", "declares a VOLUME"), ("ENV LD_PRELOAD=/x.so", "sets LD_PRELOAD"), ("ENV LOCPATH=/usr/lib/locale", "sets LOCPATH"),
    ("ENV PATH=/usr/bin:/tmp", "has a PATH with"), ("ENV NODE_PATH=modules", "has a NODE_PATH with"),
    ("LABEL sbx.runner.protocol=9", "speaks the runner's protocol 9")])
def test_images_that_are_refused(derive, line, why):
    image = derive(line)
    with served("docker,wasm", SANDBOX_DOCKER_IMAGE=image) as gw:
        reason = not_proven(gw)
        assert image in reason and why in reason
        g.refused(gw.run("1", path=walls.pinned(walls.LOCAL_WALLS[0])), "unavailable", "capacity")


# -- pinned images --


def pinned_engine(fake, **changes):
    """The Engine knows plimsoll/snippet by a digest, as one that pulled it would."""
    image = {**e.shared().image("plimsoll/snippet:latest"), "RepoDigests": [PINNED], **changes}
    return fake.rule("GET", r"/images/plimsoll(/|%2F)snippet(@|%40)", answer(200, image))


def test_a_pinned_image_has_a_software_identity(local_wall):
    with FakeEngine(e.shared()) as fake, pinned_engine(fake), \
            served(local_wall.name, SANDBOX_DOCKER_SOCKET=fake.path, SANDBOX_DOCKER_IMAGE=PINNED) as gw:
        identity = gw.describe().json()["javascriptEnvironment"]["softwareIdentity"]
        kind, _, platform = identity.removesuffix("@sha256:" + "ab" * 32).partition(":")
        assert kind == "oci-manifest" and platform.startswith("linux/")
        assert gw.ok("1").json()["softwareIdentity"] == identity
        for mode, identities in (("exact", [identity]), ("approved", ["oci-manifest:x@sha256:" + "0" * 64, identity])):
            got = gw.ok("1", softwareRule={"mode": mode, "identities": identities}).json()
            assert got["record"]["softwareIdentity"] == identity and got["record"]["softwareRuleId"].startswith(mode)
        other = {"mode": "exact", "identities": [identity.replace("ab", "ac")]}
        g.refused(gw.run("1", softwareRule=other), "failed_precondition", "environment")
        # the project's image is a name, which shows nothing
        assert "softwareIdentity" not in gw.describe().json()["projectEnvironment"]


@pytest.mark.parametrize("digests", [None, [], ["plimsoll/snippet@sha256:" + "ac" * 32]])
def test_a_digest_that_the_engine_does_not_confirm(digests):
    e.require()
    with FakeEngine(e.shared()) as fake, pinned_engine(fake, RepoDigests=digests), \
            served("docker,wasm", SANDBOX_DOCKER_SOCKET=fake.path, SANDBOX_DOCKER_IMAGE=PINNED) as gw:
        assert "pull it by its digest" in not_proven(gw)


# -- what may be seen of the sandbox --


def test_gvisor_under_the_other_name():
    e.require()
    with served(SANDBOX_DOCKER_RUNTIME="runsc") as gw:
        assert gw.ok("1", minimumIsolation="kernel").json()["isolation"] == "kernel"
        assert (told(gw, "docker")["isolation"], told(gw, "docker")["evidence"]) == ("kernel", "observed")


@pytest.mark.parametrize("change", [{"runtimeArgs": ["--network=sandbox"]}, {"path": "/nonexistent/runsc"}])
def test_a_sandbox_that_is_not_what_was_registered(change):
    """The tier falls with the next proof, floors above it are refused, and it comes back with the evidence."""
    e.require()
    with FakeEngine(e.shared()) as fake, served("gvisor", SANDBOX_DOCKER_SOCKET=fake.path, **FAST) as gw:
        gw.ok("1", minimumIsolation="kernel")
        with fake.rule("GET", "/info", edit(lambda info: info["Runtimes"]["runsc"].update(change))):
            g.wait_for(lambda: told(gw, "gvisor")["isolation"] == "container", "the tier to fall", 60)
            g.refused(gw.run("1", minimumIsolation="kernel"), "failed_precondition", "isolation")
            assert gw.ok("1", minimumIsolation="container").json()["isolation"] == "container"
            assert told(gw, "gvisor")["evidence"] == "tested"
        g.wait_for(lambda: told(gw, "gvisor")["isolation"] == "kernel", "the evidence to be seen again", 60)
        gw.ok("1", minimumIsolation="kernel")


@pytest.mark.parametrize("evidence, tier, kind", [("observed", "container", "tested"), ("registered", "kernel", "registered")])
def test_a_daemon_that_may_not_look_at_others_processes(evidence, tier, kind):
    """Not root, but of the socket's group: all of it works, and the tier is what can be shown."""
    e.require()
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    gw = g.Gateway({"SANDBOX_PROVIDER": "gvisor", **walls.LOCAL_WALLS[0].settings, "SANDBOX_GVISOR_EVIDENCE": evidence})
    group = os.stat(e.shared().path).st_gid
    gw.home.chmod(0o777)
    with g.served(gw), open(gw.log_path, "ab") as log:
        gw.process = subprocess.Popen([str(g.DAEMON)], env=gw.settings, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=gw.home,
                                      start_new_session=True, user=65534, group=group, extra_groups=[])
        gw.wait_log("plimsolld listening", g.START_S)
        assert gw.ok("1").json()["isolation"] == tier
        assert told(gw, "gvisor")["evidence"] == kind
        assert "no right to see" in gw.log_lines("gvisor not observed")[0]["reason"]


def test_an_engine_that_comes_after_the_gateway():
    """The role drops root before there is a socket, whose group it would have kept."""
    e.require()
    with FakeEngine(e.shared()) as fake:
        fake.unlisten()
        with served("docker,wasm", SANDBOX_DOCKER_SOCKET=fake.path, **FAST) as gw:
            assert "there is no Docker Engine" in not_proven(gw)
            fake.listen()
            g.wait_for(lambda: told(gw, "docker")["isolation"] == "container", "the wall to be proven", 60)
            gw.ok("1", minimumIsolation="container")


# -- several gateways on one Engine --


def of(instances):
    return {c["Id"] for c in e.shared().containers() if c["Labels"]["sbx.instance"] in instances and c["Labels"]["sbx.role"] == "pool"}


def with_a_pool(gw):
    instances = set(e.instances_of(gw, "plimsolld-backend-docker"))
    g.wait_for(lambda: len(of(instances)) == 2, "sandboxes to stand ready", 30)
    return instances, of(instances)


def test_a_dead_gateways_sandboxes_are_removed_and_a_living_ones_are_not():
    e.require()
    with served(SANDBOX_DOCKER_POOL="2") as living, served(SANDBOX_DOCKER_POOL="2") as dying:
        its, kept = with_a_pool(living)
        others, left = with_a_pool(dying)
        for pid in [dying.process.pid, *(p for p, _ in g.descendants(dying.process.pid).items())]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        dying.process.wait()
        dying.clean_exit = False
        assert left and of(others) == left
        # another installation's are never touched, dead or not; the same one's records have the same identity
        with served(SANDBOX_DOCKER_POOL="0") as third:
            third.ok("1")
            assert of(others) == left
        with served(SANDBOX_DOCKER_POOL="0", state=dying.state) as fourth:
            g.wait_for(lambda: not of(others), "the dead one's to be gone", 30)
            assert of(its) == kept and not living.log_lines("sandbox refused")
            fourth.ok("1")
        assert of(its) == kept
        living.ok("1")
