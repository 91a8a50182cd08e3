"""The real services, as an operator reaches them with a credential of their own: what is there, and its end. Clients of the tests' own, so that the proof
that nothing is left does not come from the gateway.

A service stands where a stand-in stands in tests/integration/walls.py; what only a stand-in can do (faults) it cannot, and such tests are left out.
"""
import contextlib
import json
import os
import sys
import pathlib
import time
import urllib.error
import urllib.parse
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))

import gateway as g  # noqa: E402
import resp  # noqa: E402

CALL_S = 30
PAGES_MAX = 100
LOOKS, LOOK_S = 10, 3       # until a deletion shows in the listing
STAMP = "plimsoll:2:{default}:stamp"


class Missing(Exception):
    """What the environment lacks."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def call(method, url, headers=None, body=None):
    """(status, headers, bytes), whatever the status. A credential follows no redirect."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **(headers or {})} if data is not None else dict(headers or {}), method=method)
    try:
        with _OPENER.open(request, timeout=CALL_S) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as e:
        return e.code, e.headers, e.read()


class Service:
    """One provider's account. `prefixes` of settings are passed on to the gateway."""
    name: str
    prefixes: tuple
    needed: tuple               # variables without which nothing is tried
    usd_per_second = 0.0        # of the sandbox's size here; LIVE_USD_PER_SECOND says otherwise
    smoke_s = 30                # what a gateway's start is taken to bill at the most
    is_billed = True

    def __init__(self, environment=os.environ):
        absent = [n for n in self.needed if not environment.get(n)]
        if absent:
            raise Missing(f"{self.name} needs {' and '.join(absent)} in the environment")
        self.settings = {k: v for k, v in environment.items() if k.startswith(self.prefixes)}
        self.usd_per_second = float(environment.get("LIVE_USD_PER_SECOND", self.usd_per_second))
        self.installations = {}     # of each gateway, by its home
        self.read = {}              # what each gateway has spent: (seconds, starts)

    # as a stand-in

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def learn(self):
        """Who the gateways that run now are to the provider, and what they have spent."""
        for gw in g.running:
            if gw.process is None or gw.process.poll() is not None:
                continue
            with contextlib.suppress(OSError, resp.ReplyError, ValueError, KeyError):
                if gw.home not in self.installations:
                    with resp.Client(str(gw.state / "run/redis.sock")) as redis:
                        self.installations[gw.home] = redis("GET", STAMP).decode()
                paid = gw.get("/v1/usage").json()["paid_ms"]
                self.read[gw.home] = ((paid["spent"] + paid["held"]) / 1000, len(gw.log_lines("wall tried")))

    def seconds(self):
        """Billed so far, over-counted: what runs were charged and what is held for those under way, and for each of the wall's trials of itself."""
        self.learn()
        return sum(paid + starts * self.smoke_s for paid, starts in self.read.values())

    def usd(self):
        return self.seconds() * self.usd_per_second

    def alive(self):
        self.learn()
        return self.ours()

    def leaks(self):
        return []

    violations = leaks

    # what each provides

    def everything(self):
        """[(id, installation or a text that begins with it)] of the account."""
        raise NotImplementedError

    def delete(self, name):
        raise NotImplementedError

    def is_of(self, mark, installation):
        return mark == installation

    def ours(self):
        known = list(self.installations.values())
        return [name for name, mark in self.everything() if any(self.is_of(mark, i) for i in known)]

    def expect_none(self):
        """Nothing of ours is listed; whatever is, is deleted, and named."""
        left = self.ours()
        for name in left:
            self.delete(name)
        for _ in range(LOOKS):
            if not self.ours():
                return left
            time.sleep(LOOK_S)
        raise AssertionError(f"{self.name}: still listed after {LOOKS * LOOK_S} s: {self.ours()}; delete them by hand")


class E2b(Service):
    name, prefixes, needed = "e2b", ("E2B_",), ("E2B_API_KEY",)
    usd_per_second = 2 * 0.000014 + 0.5 * 0.0000045     # the default template: 2 processors, 512 MiB

    def __init__(self, environment=os.environ):
        super().__init__(environment)
        domain = environment.get("E2B_DOMAIN", "e2b.app")
        self.api = environment.get("E2B_API_URL", f"https://api.{domain}").rstrip("/")
        self.headers = {"X-API-Key": environment["E2B_API_KEY"]}

    def ask(self, method, path, body=None):
        return call(method, self.api + path, self.headers, body)

    def listed(self):
        found, token = [], None
        for _ in range(PAGES_MAX):
            query = {"state": "running,paused", "limit": 100, **({"nextToken": token} if token else {})}
            status, headers, body = self.ask("GET", "/v2/sandboxes?" + urllib.parse.urlencode(query))
            assert status == 200, f"the listing answered {status}"
            found += json.loads(body)
            token = headers.get("X-Next-Token")
            if not token:
                return found
        raise AssertionError("the listing does not end")

    def everything(self):
        return [(s["sandboxID"], (s.get("metadata") or {}).get("gw_instance", "")) for s in self.listed()]

    def delete(self, name):
        status, _, _ = self.ask("DELETE", f"/sandboxes/{name}")
        assert status in (204, 404), f"deleting {name} answered {status}"


class Dockercloud(Service):
    name, prefixes, needed = "dockercloud", ("DOCKER_SBX_", "SANDBOX_DOCKERCLOUD_"), ("DOCKER_SBX_TOKEN", "DOCKER_SBX_USERNAME", "SANDBOX_DOCKERCLOUD_IMAGE")
    usd_per_second = 0.07 / 3600        # the smallest size

    def __init__(self, environment=os.environ):
        super().__init__(environment)
        self.is_rest = environment.get("SANDBOX_DOCKERCLOUD_API", "connect") == "rest"
        self.auth = environment.get("SANDBOX_DOCKERCLOUD_AUTH_URL", "https://hub.docker.com/v2/auth/token")
        self.api = environment.get("SANDBOX_DOCKERCLOUD_API_URL", "https://connect.docker.com/sandboxes" if self.is_rest else "").rstrip("/")
        if not self.api:
            raise Missing("dockercloud needs SANDBOX_DOCKERCLOUD_API_URL in the environment, as the connect API has no documented place")
        self.identity = {"identifier": environment["DOCKER_SBX_USERNAME"], "secret": environment["DOCKER_SBX_TOKEN"]}
        self.bearer = None

    def ask(self, method, path, body=None, **headers):
        for is_fresh in (self.bearer is None, True):
            if is_fresh:
                status, _, text = call("POST", self.auth, body=self.identity)
                assert status == 200, f"the exchange of the token answered {status}"
                self.bearer = json.loads(text)["access_token"]
            status, answer_headers, text = call(method, self.api + path, {"Authorization": f"Bearer {self.bearer}", **headers}, body)
            if status != 401:
                break
        return status, answer_headers, text

    def connect(self, procedure, body):
        return self.ask("POST", f"/docker.sbx.v1.{procedure}", body, **{"Connect-Protocol-Version": "1", "Connect-Timeout-Ms": "20000"})

    def everything(self):
        found, token = [], ""
        for _ in range(PAGES_MAX):
            page = {"pageSize": 100, **({"pageToken": token} if token else {})}
            if self.is_rest:
                status, _, text = self.ask("GET", "/v1/sandboxes?" + urllib.parse.urlencode(page))
            else:
                status, _, text = self.connect("SandboxService/ListSandboxes", page)
            assert status == 200, f"the listing answered {status}"
            answer = json.loads(text)
            for s in answer.get("sandboxes", []):
                found.append((s["uid"], s.get("displayName", "")) if self.is_rest else (s["core"]["id"], s["core"]["name"]))
            token = answer.get("nextPageToken", "")
            if not token:
                return found
        raise AssertionError("the listing does not end")

    def is_of(self, mark, installation):
        """A name is gw-, the first digits of the installation, -, the stamp."""
        return mark.startswith(f"gw-{installation[:24]}-")

    def delete(self, name):
        if self.is_rest:
            status, _, text = self.ask("GET", f"/v1/sandboxes/{name}")
            if status == 404:
                return
            status, _, _ = self.ask("DELETE", f"/v1/sandboxes/{name}?force=true", **{"If-Match": json.loads(text)["core"]["etag"]})
            assert status in (202, 204, 404, 412), f"deleting {name} answered {status}"
        else:
            status, _, _ = self.connect("SandboxService/DeleteSandbox", {"sandbox": {"id": name}, "force": True, "requestId": f"live-{name}"[:64]})
            assert status in (200, 404), f"deleting {name} answered {status}"


class Openshell(Service):
    name, prefixes, needed = "openshell", ("SANDBOX_OPENSHELL_",), ("SANDBOX_OPENSHELL_GATEWAY_URL", "SANDBOX_OPENSHELL_IMAGE")
    is_billed = False

    def __init__(self, environment=os.environ):
        super().__init__(environment)
        self.workspace = environment.get("SANDBOX_OPENSHELL_WORKSPACE", "default")
        self._client = None

    @property
    def client(self):
        if self._client is None:
            import openshell
            url = urllib.parse.urlsplit(self.settings["SANDBOX_OPENSHELL_GATEWAY_URL"])
            files = [self.settings.get(f"SANDBOX_OPENSHELL_{n}_FILE") for n in ("CA", "CERT", "KEY")]
            tls = openshell.TlsConfig(*(pathlib.Path(f) for f in files)) if url.scheme == "https" else None
            self._client = openshell.SandboxClient(f"{url.hostname}:{url.port or 443}", tls=tls)
        return self._client

    def everything(self):
        return [(s.name, s.labels.get("plimsoll.installation", "")) for s in self.client.list_all(workspace=self.workspace)]

    def delete(self, name):
        self.client.delete(name, workspace=self.workspace, allow_missing=True)


SERVICES = {s.name: s for s in (E2b, Dockercloud, Openshell)}
