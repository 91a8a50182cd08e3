"""The backends that must behave alike, each described: what it is, what it runs, how a program of its language does a thing, and how to see
what a run left. A backend to come is one more Wall in WALLS; what it does not support it says here, and is tested for refusing it."""
import base64
import contextlib
import functools
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest

import clouds
import engine as e
import gateway as g
from fake_engine import FakeEngine, edit, hang


# -- how a program does a thing --


class QuickJs:
    """The embedded engine's JavaScript: console.log and nothing else, in text and in whole lines."""
    has_raw_bytes = False       # whether it can print what is no UTF-8
    has_exit_codes = False      # whether it ends with a code of its choice
    has_signals = False         # whether it can ask for a signal to be ignored
    has_bare_output = False     # whether it can print without a newline

    def out(self, data):
        assert data.endswith(b"\n")
        return f"console.log({_text(data[:-1])})"

    def err(self, data):
        return f"throw {_text(data)}"

    def fill(self, count):
        """Exactly `count` bytes on stdout."""
        return f"console.log('y'.repeat({count - 1}))"

    def flood(self):
        return "for (;;) console.log('y'.repeat(10000))"

    def wait(self, ms):
        return f"{{const t = Date.now(); while (Date.now() - t < {ms});}}"

    forever = "for (;;);"
    stubborn = "for (;;) { try { for (;;); } catch (e) {} finally { continue; } }"
    random = "console.log(Math.random())"
    uncaught = "throw new Error('no')"


class Node:
    has_raw_bytes = has_exit_codes = has_signals = has_bare_output = True

    def out(self, data):
        return f"process.stdout.write(Buffer.from('{base64.b64encode(data).decode()}', 'base64'));"

    def err(self, data):
        return f"process.stderr.write(Buffer.from('{base64.b64encode(data).decode()}', 'base64'));"

    def fill(self, count, stream="stdout"):
        return f"process.{stream}.write(Buffer.alloc({count}, 'y'));"

    def flood(self, stream="stdout"):
        return f"const b = Buffer.alloc(65536, 'y'); for (;;) require('fs').writeSync({2 if stream == 'stderr' else 1}, b);"

    def wait(self, ms):
        return f"Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, {ms});"

    def exit(self, code):
        return f"process.exit({code})"

    forever = "for (;;);"
    stubborn = "for (const s of ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT']) process.on(s, () => {}); setInterval(() => {}, 1000);"
    random = "console.log(Math.random())"
    uncaught = "throw new Error('no')"


def _text(data):
    return g.json.dumps(data.decode()).replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


# -- the walls --

E2B_KEY = "e2b_" + "0123456789abcdef" * 2
DIGEST = "sha256:" + "ab" * 32
NOWHERE = "http://127.0.0.1:9"


class Wall:
    name = tier = None
    language = None
    kinds = ("javascript",)
    environment = ""            # a pattern of the environment's identity
    stream_max = 64 * 1024      # bytes kept of each of a snippet's streams
    timeout_max_ms, timeout_default_ms = 30000, 5000
    settings = {}               # for a gateway with this wall alone
    impossible = {}             # settings it cannot enforce, and must refuse to start with
    starts_s = 0.7              # within which a run has its sandbox, and what is refilled behind it is there or on its way
    gone_s = 1.5                # from the end of a run to the end of its sandbox
    proof_s = 3                 # the longest its proof takes here
    recovery_s = 30             # from the death of its role to service
    late_s = 0.4                # an answer after its deadline, on a machine that does nothing else
    clock_starts_with_code = False  # and not with the request: what its sandbox takes to be made comes before
    ends_early_s = 0            # how long before its deadline a run may be ended, where the guest's own clock does it
    # Artifacts that are read by a service outside, which follows links, to nothing but the guest's own files: "directories" only, or "all".
    follows_links = None
    holders_cost_output = False # whether a run that is ended under such a holder loses what it had printed
    software = ""               # a pattern of the software identity that it shows to have
    shares_gateway = True       # in the tests: one of several of a gateway
    waits_for_holders = False   # whether a run lasts as long as somebody whom it left holds its output
    # How a program ends that prints without end: its "time" is up, its "pipe" is closed on it, or it is past the "budget" of what is carried.
    flood_ends = "time"
    # what a snippet gets when a step of its run fails: the verdict, and the refusal's reason or the failure's code
    failed_steps = {"create": ("refused", "capacity"), "stage": ("refused", "capacity"), "execute": ("unknown", "internal"),
                    "collect": ("unknown", "internal"), "delete": ("answered", None)}

    def __repr__(self):
        return self.name

    def is_called(self, names):
        return repr(self) in names

    def can_be_had(self):
        return True

    def require(self):
        """Skips, or fails, without what it needs."""

    @contextlib.contextmanager
    def gateway(self, settings=None, spoilable=False):
        """A gateway with this wall alone, stopped and looked over at the end."""
        with g.served(g.Gateway({"SANDBOX_PROVIDER": self.name, **self.settings, **(settings or {})})) as gw:
            yield gw.start()

    def sandboxes(self, gw):
        """What stands for this wall's sandboxes of the gateway now: those that run somebody's code and those kept ready."""
        raise NotImplementedError

    def expect_nothing_left(self):
        """Of any gateway that is gone."""

    def look_over(self, gw):
        """After each test on a gateway."""

    def wait_adopted(self, gw, sandboxes):
        """Until what a role had that died is gone."""
        g.wait_for(lambda: not sandboxes & self.sandboxes(gw), "every sandbox of the role that died to be gone", self.recovery_s)

    @contextlib.contextmanager
    def unprovable(self, gw):
        """The proof cannot be tried: evidence grows old."""
        raise NotImplementedError
        yield

    refuted = None              # a context in which the proof is tried and fails, where a test can bring that about


class Wasm(Wall):
    name, tier, language = "wasm", "process", QuickJs()
    environment = "quickjs-wasm:sha256:[0-9a-f]{64}"
    impossible = {"SANDBOX_CPUS": "1", "SANDBOX_PIDS": "64", "SANDBOX_DISK_MB": "64"}

    def sandboxes(self, gw):
        found = g.descendants(gw.process.pid)
        return {(p, start) for p, start in found.items() if "plimsoll-wasm" in g.name_of(p)}

    @contextlib.contextmanager
    def unprovable(self, gw):
        # a stopped template forks no worker, and neither does the next one that takes its place
        over, role = threading.Event(), gw.child("plimsolld-backend-wasm")

        def hold():
            # the role's own children: a look at every process takes a busy machine longer than a proof takes
            while not over.wait(0.01):
                with contextlib.suppress(OSError):
                    for pid in pathlib.Path(f"/proc/{role}/task/{role}/children").read_text().split():
                        os.kill(int(pid), signal.SIGSTOP)
        thread = threading.Thread(target=hold, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            for pid, _ in self.sandboxes(gw):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


class Docker(Wall):
    name, tier, language = "docker", "container", Node()
    kinds = ("javascript", "project")
    environment = "docker-image:sha256:[0-9a-f]{64}"
    runtime = "runc"
    proof_s, recovery_s = 20, 60
    project_timeout_max_ms, project_timeout_default_ms = 120000, 30000
    step_stream_max, steps_max, artifacts_max = 1024 * 1024, 3 * 1024 * 1024, 8 * 1024 * 1024
    languages = ("javascript", "python")

    @property
    def settings(self):
        return {"SANDBOX_DOCKER_SOCKET": e.shared().path, "SANDBOX_DOCKER_PROJECT_IMAGE": "plimsoll/python:latest",
                "SANDBOX_DOCKER_POOL": "1", "SANDBOX_DOCKER_PROJECT_POOL": "0"}

    def can_be_had(self):
        return e.missing() is None

    def require(self):
        e.require()

    @contextlib.contextmanager
    def gateway(self, settings=None, spoilable=False):
        if not spoilable:
            with super().gateway(settings) as gw:
                yield gw
            return
        with FakeEngine(e.shared()) as fake, super().gateway({"SANDBOX_DOCKER_SOCKET": fake.path, **(settings or {})}) as gw:
            gw.fake = fake
            yield gw

    def sandboxes(self, gw):
        # the smoke test's come and go by themselves; the two walls of one gateway are two instances
        instances = e.instances_of(gw, "plimsolld-backend-" + self.name)
        return {c["Id"] for c in e.shared().containers() if c["Labels"]["sbx.instance"] in instances and c["Labels"]["sbx.role"] != "smoke"}

    def expect_nothing_left(self):
        e.expect_nothing_left(e.shared())

    @contextlib.contextmanager
    def unprovable(self, gw):
        over = threading.Event()
        with gw.fake.rule("GET", r"/(info|_ping|version|images/)", hang(over)):
            try:
                yield
            finally:
                over.set()


    @contextlib.contextmanager
    def refuted(self, gw):
        with gw.fake.rule("GET", r"/info", edit(lambda info: info["Runtimes"].pop(self.runtime))):
            yield


class Gvisor(Docker):
    name, tier, runtime = "gvisor", "kernel", "runsc"


@functools.cache
def boxes():
    """What the stand-ins can run commands in on this machine: {mode, why_plain, landlock}."""
    ask = "import asyncio, json; from standins.base import box, landlock; print(json.dumps({**asyncio.run(box.mode()), 'landlock': landlock.abi() > 0}))"
    done = subprocess.run([sys.executable, "-c", ask], env={**os.environ, "PYTHONPATH": str(g.ROOT / "tests")}, capture_output=True, text=True, timeout=clouds.START_S)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


class Cloud(Wall):
    """On somebody else's machines: a stand-in of the service that really runs commands, or the service itself (tests/live)."""
    tier, language = "vm", Node()
    kinds = ("javascript", "project")
    timeout_max_ms, timeout_default_ms = 120000, 30000
    project_timeout_max_ms, project_timeout_default_ms = 120000, 30000
    step_stream_max, steps_max, artifacts_max = 1024 * 1024, 3 * 1024 * 1024, 8 * 1024 * 1024
    gone_s, proof_s, recovery_s = 3, 3, 75
    failed_steps = {**Wall.failed_steps, "execute": ("unknown", "unavailable"), "collect": ("answered", None)}
    clock_starts_with_code = True
    adopted_s = 60                  # from the death of a role to the end of the sandboxes it had: its lease, and two rounds of another's janitor
    shares_gateway = False
    standin = None                  # of clouds.py
    standin_options = ()
    canned = ("--exec=canned",)     # its options where nothing is really executed (tests/soak)
    roomy = {}                      # settings for as many sandboxes as that takes, those whose end is not confirmed included
    faulty_proof = refuting_proof = None    # rules for the stand-in: of the call that costs nothing
    service = None                  # instead of the stand-in: what `make live` puts here
    # of every gateway with a wall of a cloud that is tried against its stand-in
    hasty = {"SANDBOX_CLOUD_CREATES_PER_MINUTE": "0", "PLIMSOLL_CLOUD_UNSEEN": "1500ms", "PLIMSOLL_CLOUD_SMOKE_PAUSE": "500ms"}

    def missing(self):
        """Why its stand-in would be no wall on this machine, or None: a trial that looks for one would rightly fail."""
        if self.service is not None:
            return None
        return None if boxes()["mode"] == "ns" else f"commands cannot be confined here: {boxes()['why_plain']}"

    def can_be_had(self):
        return self.missing() is None

    def require(self):
        if why := self.missing():
            assert not e.CI, why
            pytest.skip(why)

    def settings_for(self, cloud):
        """Of a gateway, for this service."""
        raise NotImplementedError

    @property
    def settings(self):
        """Those of a service that nobody reaches: for a gateway that must not start."""
        return self.settings_for(None)

    def stop_executing(self, cloud):
        """Of a stand-in that was started with `canned`, once the wall is proven: from now on nothing is executed."""

    def secrets_of(self, gw):
        """What must not be found in its log."""
        return [v for k, v in gw.settings.items() if k in ("E2B_API_KEY", "DOCKER_SBX_TOKEN")]

    @contextlib.contextmanager
    def standin_process(self, options=None, **more):
        with self.standin(*(self.standin_options if options is None else options), **more) as cloud:
            yield cloud

    @contextlib.contextmanager
    def gateway(self, settings=None, spoilable=False):
        with self.service or self.standin_process() as cloud:
            with g.served(g.Gateway({"SANDBOX_PROVIDER": self.name, **self.hasty, **self.settings_for(cloud), **(settings or {})})) as gw:
                gw.secrets += self.secrets_of(gw)
                gw.cloud = cloud
                yield gw.start()
                self.expect_empty(gw)
            assert cloud.alive() == [], "sandboxes outlived their gateway"
            self.look_over(gw)

    def expect_empty(self, gw):
        """No slot, no entry in the ledger, no sandbox."""
        gw.wait_inflight(0)
        ledger = f'plimsoll_ledger_entries{{backend="{self.name}"}}'

        def is_empty():
            return gw.metrics().get(ledger) == 0 and not gw.cloud.alive()
        g.wait_for(is_empty, "the ledger and the service's account to be empty", self.adopted_s)
        assert gw.cloud.leaks() == []

    def look_over(self, gw):
        assert gw.cloud.violations() == []

    def sandboxes(self, gw):
        return set(gw.cloud.alive())

    def wait_adopted(self, gw, sandboxes):
        """A lease has to run out first: waited for once, at the gateway's end (expect_empty)."""

    @contextlib.contextmanager
    def _rule(self, gw, rule):
        gw.cloud.add_fault(**rule)
        try:
            yield
        finally:
            gw.cloud.clear_faults()

    def unprovable(self, gw):
        return self._rule(gw, self.faulty_proof)

    def refuted(self, gw):
        return self._rule(gw, self.refuting_proof)


class E2b(Cloud):
    name = "e2b"
    follows_links = "directories"
    roomy = {"E2B_MAX_CONCURRENT": "1000"}
    waits_for_holders = True
    flood_ends = "budget"
    impossible = {"SANDBOX_PIDS": "64", "SANDBOX_CPUS": "1.5"}

    standin = clouds.E2bStandin
    standin_options = ("--api-key", E2B_KEY)
    # One of the shapes in which it says itself that nothing was made; a 429 of somebody in between says nothing.
    busy = {"type": "respond", "status": 429, "body": '{"code":429,"message":"you have reached the maximum number of concurrent sandboxes"}'}
    faulty_proof = {"plane": "control", "action": busy}
    refuting_proof = {"plane": "control", "action": {"type": "respond", "status": 401}}

    def settings_for(self, cloud):
        api, sandbox = (cloud.api_url, cloud.sandbox_url) if cloud else (NOWHERE, NOWHERE)
        return {"E2B_API_KEY": E2B_KEY, "E2B_API_URL": api, "E2B_SANDBOX_URL": sandbox, "E2B_MAX_CONCURRENT": "64", "E2B_CREATES_PER_SECOND": "1000"}


class Dockercloud(Cloud):
    name = "dockercloud"
    api = "connect"
    environment = software = f"oci-manifest:linux/amd64@{DIGEST}"
    standin = clouds.DockercloudStandin
    standin_options = ("--knobs", '{"quota_concurrent": 100, "quota_stored": 200}')
    canned = ("--exec=canned", "--knobs", '{"quota_concurrent": 5000, "quota_stored": 5000}')
    roomy = {"SANDBOX_DOCKERCLOUD_MAX_CONCURRENT": "1000"}
    flood_ends = "pipe"
    waits_for_holders = holders_cost_output = True
    follows_links = "all"

    faulty_proof = {"action": {"type": "respond", "status": 429}}
    refuting_proof = {"action": {"type": "respond", "status": 401}}

    def settings_for(self, cloud):
        where = cloud.ready if cloud else {"auth_url": NOWHERE, f"{self.api}_url": NOWHERE, "identifier": "nobody", "secret": "dckr_pat_" + "0" * 20}
        return {"SANDBOX_DOCKERCLOUD_API": self.api, "SANDBOX_DOCKERCLOUD_AUTH_URL": where["auth_url"],
                "SANDBOX_DOCKERCLOUD_API_URL": where[f"{self.api}_url"], "DOCKER_SBX_USERNAME": where["identifier"],
                "DOCKER_SBX_TOKEN": where["secret"], "SANDBOX_DOCKERCLOUD_IMAGE": f"registry.example/team/image@{DIGEST}", "SANDBOX_DOCKERCLOUD_MAX_CONCURRENT": "64"}


class DockercloudRest(Dockercloud):
    api, environment, software = "rest", "", ""

    def __repr__(self):
        return "dockercloud-rest"


class Openshell(Cloud):
    name, tier = "openshell", "container"
    waits_for_holders = True
    environment = "openshell-image:sha256:[0-9a-f]{64}"
    standin = clouds.OpenshellStandin
    standin_options = canned = ("--runner", g.ROOT / "build/guest/runner")  # what its trial looks for is there only where commands are executed
    faulty_proof = {"action": {"type": "status", "code": "RESOURCE_EXHAUSTED"}}
    refuting_proof = {"action": {"type": "status", "code": "UNAUTHENTICATED"}}

    def missing(self):
        return super().missing() or (None if boxes()["landlock"] or self.service else "the kernel has no Landlock")

    @contextlib.contextmanager
    def standin_process(self, options=None, **more):
        """Over TLS, with certificates on both sides."""
        with tempfile.TemporaryDirectory(prefix="plos-", dir=g.HOMES) as folder, \
                super().standin_process(("--tls-dir", folder, *(self.standin_options if options is None else options)), **more) as cloud:
            yield cloud

    def stop_executing(self, cloud):
        cloud.script({"command": "*/runner *", "do": "runner"}, {"command": "node -", "stdout": "42\n"})

    def settings_for(self, cloud):
        url, folder = (cloud.ready["url"], cloud.ready["tls_dir"]) if cloud else ("https://127.0.0.1:9", "/nonexistent")
        return {"SANDBOX_OPENSHELL_GATEWAY_URL": url, "SANDBOX_OPENSHELL_CA_FILE": f"{folder}/ca.crt", "SANDBOX_OPENSHELL_CERT_FILE": f"{folder}/client.crt",
                "SANDBOX_OPENSHELL_KEY_FILE": f"{folder}/client.key", "SANDBOX_OPENSHELL_IMAGE": f"registry.test/plimsoll/openshell@{DIGEST}",
                "SANDBOX_OPENSHELL_CREATES_PER_MINUTE": "100000"}


LOCAL_WALLS = [Docker(), Gvisor()]
CLOUD_WALLS = [E2b(), Dockercloud(), DockercloudRest(), Openshell()]
WALLS = [Wasm(), *LOCAL_WALLS, *CLOUD_WALLS]


def pinned(wall, path=g.RUN):
    return f"/backends/{wall.name}{path}"


def patiently(send, seconds=30):
    end = time.monotonic() + seconds
    while True:
        answer = send()
        if answer.status == 200 or answer.reason != "capacity" or time.monotonic() > end:
            return answer
        time.sleep(0.2)


class At:
    """One wall of a gateway that may have several: its runs are pinned to it."""

    def __init__(self, gw, wall):
        self.gw, self.wall, self.language = gw, wall, wall.language

    def run(self, code, request_id=None, **more):
        return self.gw.run(code, request_id, path=pinned(self.wall), **more)

    def ok(self, code, request_id=None, **more):
        """Answered, by this wall, with a record that holds. As a client does, it comes again after a marked refusal for want of capacity: on a
        busy machine a sandbox may not be started before a short deadline."""
        answer = patiently(lambda: self.run(code, request_id, **more))
        assert answer.status == 200, answer
        g.check_record(g.javascript(code, **more), answer)
        assert (answer.json()["sandbox"], answer.json()["isolation"]) == (self.wall.name, self.wall.tier)
        assert answer.header("Plimsoll-Request-Id") == request_id, answer
        return answer

    def start(self, code, request_id=None, **more):
        """Sends a run and does not wait for its answer."""
        connection = self.gw.connect()
        body = g.json.dumps(g.javascript(code, **more)).encode()
        return connection.send(g.request(pinned(self.wall), body, self.gw.headers(request_id)))

    def post(self, body, request_id=None, **more):
        return self.gw.post(pinned(self.wall), body, request_id, **more)

    def project(self, steps, files=(), artifacts=(), request_id=None, **more):
        """A project that must be answered, with its record checked; its result."""
        sent = {"protocol": 4, "project": project(steps, files, artifacts), **more}
        answer = patiently(lambda: self.post(sent, request_id))
        assert answer.status == 200, answer
        g.check_record(sent, answer)
        got = answer.json()
        assert (got["sandbox"], got["isolation"]) == (self.wall.name, self.wall.tier)
        return Project(got["project"], answer)

    def describe(self):
        answer = self.gw.describe(path=pinned(self.wall, g.DESCRIBE))
        assert answer.status == 200, answer
        return answer.json()

    def sandboxes(self):
        return self.wall.sandboxes(self.gw)

    def expect_gone(self, during, seconds=None):
        """Of the sandboxes seen during a run, its own is no longer there."""
        g.wait_for(lambda: len(during & self.sandboxes()) < len(during), "the run's sandbox to be gone", seconds or self.wall.gone_s)


def project(steps, files=(), artifacts=()):
    files = files.items() if isinstance(files, dict) else files
    out = {"steps": list(steps)}
    if files:
        out["files"] = [{"path": path, "content": content} for path, content in files]
    if artifacts:
        out["artifacts"] = list(artifacts)
    return out


class Step:
    def __init__(self, got):
        self.command = got.get("command", "")
        self.out, self.err = (base64.b64decode(got.get(name, ""), validate=True) for name in ("stdout", "stderr"))
        self.code, self.timed_out = got.get("exitCode", 0), got.get("timedOut", False)
        self.cut = (got.get("stdoutTruncated", False), got.get("stderrTruncated", False))

    def __repr__(self):
        return f"<{self.command[:80]!r}: {self.code}{' timed out' if self.timed_out else ''} {self.out[:300]!r} {self.err[:300]!r}>"


class Project:
    def __init__(self, got, answer):
        self.answer = answer
        self.steps = [Step(s) for s in got.get("steps", [])]
        self.outcome = got.get("outcome", "").removeprefix("PROJECT_OUTCOME_").lower()
        self.detail = got.get("outcomeDetail", "")
        self.artifacts = [(a["path"], base64.b64decode(a.get("content", ""), validate=True)) for a in got.get("artifacts", [])]
        self.artifacts_cut = got.get("artifactsTruncated", False)

    @property
    def codes(self):
        return [s.code for s in self.steps]

    def __repr__(self):
        return f"<{self.outcome} {self.detail!r} {self.steps} {[(p, len(c)) for p, c in self.artifacts]} {self.artifacts_cut}>"


def settings_of(several):
    """Of a gateway with several walls."""
    out = {"SANDBOX_PROVIDER": ",".join(w.name for w in several), "SANDBOX_MAX_CONCURRENT": "8"}
    for wall in several:
        out.update(wall.settings)
    return out
