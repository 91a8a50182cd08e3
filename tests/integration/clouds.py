"""Launchers of the stand-ins of the clouds' APIs (tests/standins/), one class each: start and stop, faults, and the stand-in's own books.

    with E2bStandin() as cloud:
        cloud.faults([{"path": "/v2/sandboxes", "times": 1, "action": {"type": "respond", "status": 429}}])
        ...
        assert cloud.leaks() == [] and cloud.violations() == []
"""
import contextlib
import functools
import http.client
import json
import os
import pathlib
import select
import signal
import ssl
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
START_S, STOP_S, ANSWER_S = 30, 30, 60


class Cloud:
    """A stand-in as a process of its own. `module` is set by each class; `ready` holds what its ready line says."""
    module: str
    admin_port = "port"       # the key of the ready line that names the admin's port

    def __init__(self, *options, seed=1):
        self.options, self.seed = [str(o) for o in options], seed
        self.process = None

    # -- start and stop --

    def start(self):
        self.token = "admin-" + os.urandom(8).hex()
        self.stderr = tempfile.TemporaryFile()
        env = {**os.environ, "PYTHONPATH": str(ROOT / "tests"), "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", self.module, "--listen", "127.0.0.1:0", "--parent-pid", str(os.getpid()), "--seed", str(self.seed), *self.options,
             "--admin-token", self.token], cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.stderr)
        readable, _, _ = select.select([self.process.stdout], [], [], START_S)
        line = self.process.stdout.readline() if readable else b""
        if not line:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"{self.module} did not start: {self.said()}")
        self.ready = json.loads(line)
        return self

    def stop(self):
        """Ends it; what it leaves behind is an error."""
        if self.process is None:
            return
        process, self.process = self.process, None
        process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"{self.module} did not end in {STOP_S} s: {self.said()}") from None
        finally:
            process.stdout.close()
        said = self.said()
        self.stderr.close()
        assert status == 0 and "Traceback" not in said, f"{self.module} ended with {status}: {said}"

    def said(self):
        self.stderr.seek(0)
        return self.stderr.read().decode("utf-8", "replace")[-8000:]

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, *_):
        if kind is None:
            self.stop()
        else:
            with contextlib.suppress(AssertionError):
                self.stop()

    # -- the admin's routes --

    def admin(self, method, name, value=None):
        is_tls = self.ready.get("api_url", "").startswith("https:")
        kind = functools.partial(http.client.HTTPSConnection, context=ssl._create_unverified_context()) if is_tls else http.client.HTTPConnection
        connection = kind("127.0.0.1", self.ready[self.admin_port], timeout=ANSWER_S)
        try:
            connection.request(method, "/__standin/" + name, None if value is None else json.dumps(value),
                               {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"})
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status == 200, f"{method} {name}: {answer.status} {body[:500]!r}"
            return json.loads(body)
        finally:
            connection.close()

    def info(self):
        return self.admin("GET", "info")

    def faults(self, rules=None):
        """Replaces the rules, or only gives them with their counts."""
        return self.admin("GET", "faults") if rules is None else self.admin("PUT", "faults", rules)

    def add_fault(self, **rule):
        return self.admin("POST", "faults", [rule])

    def clear_faults(self):
        return self.admin("DELETE", "faults")

    def journal(self, since=0, **where):
        """Lines whose fields are as said, as journal(plane="control", method="DELETE")."""
        return [line for line in self.admin("GET", f"journal?since={since}") if all(line.get(k) == v for k, v in where.items())]

    def account(self):
        return self.admin("GET", "account")

    def marks(self):
        """With --exec=canned: {mark-... of a code that was executed: the sandboxes it was executed in, once for each time}."""
        return self.admin("GET", "marks")

    def alive(self):
        return self.account()["alive"]

    def leaks(self):
        return self.admin("GET", "leaks")

    def violations(self):
        return self.admin("GET", "violations")

    def clock(self, advance_ms=0, **more):
        return self.admin("POST", "clock", {"advance_ms": advance_ms, **more})

    def reset(self):
        return self.admin("POST", "reset")


class DockercloudStandin(Cloud):
    """Both APIs of Docker Cloud Sandboxes on one port. `ready` has auth_url, rest_url, connect_url, policy_url, identifier and secret; what a rule may
    turn is in standins/dockercloud/knobs.py.

        cloud.add_fault(step="create", times=1, action={"create_malformed": "no_resources"})
    """
    module = "standins.dockercloud"

    def knobs(self, **values):
        """Turns settings of the service, until a reset; gives them all."""
        return self.admin("PUT", "knobs", values)

    def seed_sandboxes(self, *rows):
        """Sandboxes that are there without ever having been asked for ({"name", "status", "age_s"}); their ids."""
        return self.admin("POST", "sandboxes", list(rows))

    def counts(self):
        """What the service did for all sandboxes together: create, exec, upload, delete, ..."""
        return self.account()["counts"]


class OpenshellStandin(Cloud):
    """An OpenShell gateway. `ready` has url, port and, with --tls-dir, tls_dir; the kinds of faults are in standins/openshell/faults.py.

        cloud.add_fault(method="CreateSandbox", phase="after", times=1, action={"type": "status", "code": "UNAVAILABLE"})
    """
    module = "standins.openshell"
    admin_port = "admin_port"
    runner = pathlib.Path(os.environ.get("PLIMSOLL_RUNNER", ROOT / "build/guest/runner"))

    def __init__(self, *options, **more):
        # the guest's image has the runner; the boxes of a stand-in get the one that was built
        mine = ("--runner", self.runner) if self.runner.exists() and not {"--runner", "canned", "--exec=canned"} & {str(o) for o in options} else ()
        super().__init__(*options, *mine, **more)

    def fault(self, method, kind, *, phase="before", nth=1, times=None, sandbox=None, **action):
        """One more rule, in short."""
        rule = {"method": method, "phase": phase, "nth": nth, "action": {"type": kind, **action}}
        return self.add_fault(**rule, **({"times": times} if times else {}), **({"sandbox": sandbox} if sandbox else {}))

    @property
    def settings(self):
        """Of a gateway that is to use it."""
        folder = self.ready["tls_dir"]
        files = {f"SANDBOX_OPENSHELL_{name}_FILE": f"{folder}/{file}" for name, file in (("CA", "ca.crt"), ("CERT", "client.crt"), ("KEY", "client.key"))} if folder else {}
        files = files or {"SANDBOX_OPENSHELL_PLAINTEXT": "on"}
        return {"SANDBOX_OPENSHELL_GATEWAY_URL": self.ready["url"], "SANDBOX_OPENSHELL_IMAGE": "registry.test/plimsoll-guest@sha256:" + "0" * 64, **files}

    @property
    def secrets(self):
        """What may be found in no log: the client's key and the tokens of ssh sessions."""
        return [pathlib.Path(self.ready["tls_dir"], "client.key").read_text()] if self.ready["tls_dir"] else []

    def tune(self, **values):
        """Settings of the stand-in itself (standins/openshell/gateway.py), until a reset."""
        return self.admin("PUT", "settings", values)

    def state(self):
        """Sandboxes, connections, tokens that were not revoked."""
        return self.admin("GET", "state")

    def execs(self, **where):
        return [line for line in self.admin("GET", "execs") if all(line.get(k) == v for k, v in where.items())]

    def script(self, *entries):
        """Commands that are answered without being run (standins/openshell/execs.py)."""
        return self.admin("PUT", "script", list(entries))

    def plant(self, name, **about):
        """A sandbox nobody asked for: labels, phase, age_ms."""
        return self.admin("POST", "sandboxes", {"name": name, **about})

    def phase(self, name, phase, **about):
        return self.admin("POST", "phase", {"name": name, "phase": phase, **about})

    def calls(self, method=None, **where):
        """The journal's lines of gRPC calls."""
        return self.journal(plane="grpc", **({"method": method} if method else {}), **where)


class E2bStandin(Cloud):
    """E2B's control plane, edge and envd. Options as of `python -m standins.e2b --help`."""
    module = "standins.e2b"

    @property
    def api_url(self):
        return self.ready["api_url"]

    @property
    def sandbox_url(self):
        return self.ready["sandbox_url"]

    def environment(self):
        """What makes an official SDK use it."""
        return {"E2B_API_URL": self.api_url, "E2B_SANDBOX_URL": self.sandbox_url, "E2B_API_KEY": "e2b_" + "0123456789abcdef" * 2}
