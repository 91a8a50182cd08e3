"""What the service keeps: tokens, sandboxes and their life, operations, replay keys, policies. One account, seen by both APIs."""
import asyncio
import base64
import collections
import hashlib
import heapq
import itertools
import json
import secrets
from dataclasses import dataclass, field

from ..base.account import GONE, RUNNING, Account
from .knobs import SERVICE
from .wire import Refusal, duration_seconds, quota_failure, snake

SIZES = {(1, 2048), (2, 4096), (4, 8192), (8, 16384), (16, 32768)}
STATUS_NUMBERS = {"creating": 1, "starting": 2, "running": 3, "stopping": 4, "stopped": 5, "failed": 6, "deleting": 7, "degraded": 8}
PERMISSIONS_ENDPOINT = ("sandboxesExec", "sandboxesFilesRead", "sandboxesFilesWrite")
CREDENTIAL_LIFE = 300.0
TTL_MIN, TTL_MAX, TTL_DEFAULT = 1.0, 24 * 3600.0, 3600.0
KEYS_MAX = 50000  # replay keys kept; the service promises 24 hours
OPERATIONS_MAX = 20000
CAPTURE_MAX = 4 << 20

def new_id(prefix: str) -> str:
    return prefix + base64.b32encode(secrets.token_bytes(16)).decode().rstrip("=").lower()


@dataclass(slots=True)
class Credential:
    """What `createEndpointCredential` gave out."""
    sandbox: str
    permissions: tuple
    expires: float  # monotonic
    is_refused_once: bool = False


@dataclass(slots=True, eq=False)
class Sandbox:
    uid: str
    name: str
    made_by: str
    image_ref: str = ""
    image_id: str = ""
    digest: str = ""
    cpus: int = 0
    memory: int = 0
    platform: dict = field(default_factory=dict)
    labels: dict = field(default_factory=dict)
    environment: dict = field(default_factory=dict)
    timeout: float | None = None
    on_timeout: str = "delete"
    auto_resume: bool = False
    status: str = "creating"
    version: int = 1
    created_at: float = 0.0
    deadline: float | None = None  # monotonic
    failure: dict | None = None
    put_rules: list | None = None  # what the undocumented PUT installed
    reads_left: int = 0
    visible_at: float = 0.0
    spoil: str = ""
    place: object = None
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    is_gone: bool = False
    is_stuck: bool = False  # delete_never: accepted, and never done
    execs: int = 0
    tokens: list = field(default_factory=list)

    @property
    def etag(self) -> str:
        return f'"{self.uid[-8:]}-{self.version}"'

    def move(self, status: str) -> None:
        self.status = status
        self.version += 1

    @property
    def is_alive(self) -> bool:
        return not self.is_gone


@dataclass(slots=True, eq=False)
class Operation:
    id: str
    kind: str
    sandbox: Sandbox | None
    done: asyncio.Event = field(default_factory=asyncio.Event)
    error: tuple | None = None  # (numeric code, message)


class World:
    def __init__(self, *, account: Account, identifier: str, secret: str, make_place, knobs: dict | None = None):
        self.account = account
        self.identifier, self.secret = identifier, secret
        self.make_place = make_place
        self.base_url = ""
        self.defaults = {**SERVICE, **(knobs or {})}
        self.reset()

    def reset(self) -> None:
        self.knobs = dict(self.defaults)
        self.sandboxes: dict[str, Sandbox] = {}
        self.operations: collections.OrderedDict[str, Operation] = collections.OrderedDict()
        self.bearers: dict[str, float] = {}
        self.credentials: dict[str, Credential] = {}
        self.keys: collections.OrderedDict[tuple, tuple] = collections.OrderedDict()
        self.account_rules: list[tuple[str, str]] = []
        self._deadlines: list = []
        self._order = itertools.count()
        self._tasks: set[asyncio.Task] = set()
        self.exchanges = 0

    def mono(self) -> float:
        """Seconds of the clock that a test may move on."""
        return self.account.clock.now() / 1000

    def wall(self) -> float:
        return self.account.clock.wall() / 1000

    def later(self, work) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- tokens --

    def exchange(self, life: float) -> str:
        """A bearer in the form of a JWT; what is read from it is `exp` alone."""
        self.exchanges += 1
        now = self.wall()
        part = lambda v: base64.urlsafe_b64encode(json.dumps(v, separators=(",", ":")).encode()).decode().rstrip("=")  # noqa: E731
        payload = {"exp": int(now + life + self.knobs["clock_skew_ms"] / 1000), "iat": int(now), "sub": self.identifier, "jti": secrets.token_hex(8)}
        token = f"{part({'alg': 'none', 'typ': 'JWT'})}.{part(payload)}.{secrets.token_urlsafe(24)}"
        self.bearers = {t: e for t, e in self.bearers.items() if e > self.mono() - 60}
        self.bearers[token] = self.mono() + life
        return token

    def mint(self, sandbox: Sandbox, permissions: list, life: float) -> tuple[str, Credential]:
        token = "sbxep_" + secrets.token_urlsafe(32)
        credential = Credential(sandbox.uid, tuple(permissions), self.mono() + life)
        self.credentials[token] = credential
        sandbox.tokens.append(token)
        return token, credential

    # -- replay --

    def replay(self, operation: str, key: str, request: bytes):
        """The first answer to this key; None when the key is new; a Refusal when it was another request's."""
        kept = self.keys.get((operation, key))
        if kept is None:
            return None
        if kept[0] != hashlib.sha256(request).digest():
            raise Refusal("failedPrecondition", "the Idempotency-Key was used with another request")
        return kept[1]

    def keep(self, operation: str, key: str, request: bytes, answer) -> None:
        self.keys[operation, key] = (hashlib.sha256(request).digest(), answer)
        while len(self.keys) > KEYS_MAX:
            self.keys.popitem(last=False)

    # -- sandboxes --

    def visible(self) -> list[Sandbox]:
        now = self.mono()
        return [s for s in self.sandboxes.values() if s.visible_at <= now]

    def find(self, uid: str) -> Sandbox | None:
        return self._seen(self.sandboxes.get(uid))

    def by_name(self, name: str) -> Sandbox | None:
        return self._seen(next((s for s in self.sandboxes.values() if s.name == name), None))

    def _seen(self, sandbox: Sandbox | None) -> Sandbox | None:
        """The sandbox, unless it is not to be seen yet: then the client is told that it is not there, and takes that for gone."""
        if sandbox and sandbox.visible_at > self.mono():
            self.account.believe(sandbox.uid, GONE)
            return None
        return sandbox

    def admit(self, knob) -> None:
        """Room in the account's two quotas, or a 429 that waiting does not cure."""
        alive = len(self.sandboxes)
        running = sum(s.status not in ("deleting", "stopped", "failed") for s in self.sandboxes.values()) if alive >= knob("quota_concurrent") else alive
        if running >= knob("quota_concurrent"):
            raise Refusal("resourceExhausted", "too many concurrent sandboxes", quota_failure("concurrent sandboxes"))
        if alive >= knob("quota_stored"):
            raise Refusal("resourceExhausted", "too many sandboxes", quota_failure("stored sandboxes"))

    async def create(self, sandbox: Sandbox, knob) -> None:
        """Takes the sandbox in. It is running at return when nothing makes it wait."""
        sandbox.created_at = self.wall()
        if late := knob("late_appearance_ms"):
            sandbox.visible_at = self.mono() + late / 1000
        self.sandboxes[sandbox.uid] = sandbox
        self.account.open(sandbox.uid, {**sandbox.labels, "name": sandbox.name, "api": sandbox.made_by}, (sandbox.cpus, sandbox.memory))
        self.account.count("create", sandbox.uid)
        self.account.believe(sandbox.uid, RUNNING)
        boot, fails, is_pending = knob("boot_ms"), knob("create_fails_after_accept"), knob("create_pending_forever")
        if is_pending:
            return
        work = self._boot(sandbox, boot / 1000, fails)
        if boot:
            self.later(work)
        else:
            await work

    async def _boot(self, sandbox: Sandbox, wait: float, fails) -> None:
        if wait:
            await asyncio.sleep(wait)
        if sandbox.status != "creating":
            return
        if fails:
            sandbox.failure = {"code": "internal", "message": fails if isinstance(fails, str) else "the image could not be started"}
            sandbox.move("failed")
        else:
            place = await self.make_place(sandbox)
            if sandbox.status != "creating":  # deleted while it came up
                await place.end()
                return
            sandbox.place = place
            self.arm(sandbox, sandbox.timeout)
            sandbox.move("running")
        sandbox.settled.set()

    def arm(self, sandbox: Sandbox, seconds: float | None) -> None:
        if seconds is None:
            return
        sandbox.deadline = self.mono() + seconds / self.account.clock.ttl_speed
        heapq.heappush(self._deadlines, (sandbox.deadline, next(self._order), sandbox))

    async def watch_deadlines(self) -> None:
        """The service's own clock ends sandboxes whose time is up."""
        while True:
            await asyncio.sleep(0.02)
            now = self.mono()
            while self._deadlines and self._deadlines[0][0] <= now:
                _, _, sandbox = heapq.heappop(self._deadlines)
                if sandbox.is_gone or sandbox.deadline is None or sandbox.deadline > now:
                    continue
                if sandbox.on_timeout == "stop":
                    await self.stop(sandbox)
                elif not sandbox.is_stuck and sandbox.status != "deleting":
                    await self.end_place(sandbox)
                    self.forget(sandbox, "ttl")

    async def end_place(self, sandbox: Sandbox) -> None:
        place, sandbox.place = sandbox.place, None
        if place:
            await place.end()

    async def stop(self, sandbox: Sandbox) -> None:
        sandbox.deadline = None
        sandbox.move("stopped")
        await self.end_place(sandbox)

    async def start(self, sandbox: Sandbox) -> None:
        sandbox.place = await self.make_place(sandbox)
        self.arm(sandbox, sandbox.timeout)
        sandbox.move("running")

    async def delete(self, sandbox: Sandbox, knob, by: str) -> None:
        """Accepts a deletion: `deleting` from now on, its machine ended, gone after its reads (`read`) or at once."""
        if sandbox.status == "deleting":
            return
        sandbox.move("deleting")
        sandbox.settled.set()
        if knob("delete_never"):
            sandbox.is_stuck = True
            return
        await self.end_place(sandbox)
        self.account.end(sandbox.uid, by)
        sandbox.reads_left = knob("delete_lag_reads")
        if not sandbox.reads_left:
            self.forget(sandbox, by)

    def read(self, sandbox: Sandbox) -> Sandbox | None:
        """One read of a sandbox; a deleted one is seen for its last reads."""
        if sandbox.status == "deleting" and not sandbox.is_stuck:
            if sandbox.reads_left <= 0:
                self.forget(sandbox, "")
                self.account.believe(sandbox.uid, GONE)
                return None
            sandbox.reads_left -= 1
        return sandbox

    def forget(self, sandbox: Sandbox, by: str) -> None:
        if sandbox.is_gone:
            return
        sandbox.is_gone = True
        sandbox.settled.set()
        self.sandboxes.pop(sandbox.uid, None)
        for token in sandbox.tokens:
            self.credentials.pop(token, None)
        self.account.end(sandbox.uid, by)

    async def clear(self) -> None:
        """Ends every machine; for reset and for the program's end."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*(self.end_place(s) for s in list(self.sandboxes.values())), return_exceptions=True)

    # -- operations --

    def operate(self, kind: str, sandbox: Sandbox | None, error: tuple | None = None) -> Operation:
        operation = Operation(new_id("op_"), kind, sandbox, error=error)
        if error:
            operation.done.set()
        self.operations[operation.id] = operation
        while len(self.operations) > OPERATIONS_MAX:
            self.operations.popitem(last=False)
        return operation

    # -- policy --

    def rules(self, sandbox: Sandbox | None, knob) -> tuple[str, list[tuple[str, str]]]:
        """(mode, allow rules with their layer) that hold for a sandbox, or for the account."""
        allow = [(r, "owner") if isinstance(r, str) else tuple(r) for r in knob("policy_allow")] + self.account_rules
        if sandbox and sandbox.put_rules is not None and not knob("policy_put_ignored"):
            allow += [(r, "owner") for r in sandbox.put_rules]
        return knob("policy_mode"), allow


def status_name(status: str) -> str:
    return "SANDBOX_STATUS_" + snake(status).upper()


def ttl_of(text, *, field_name: str) -> float:
    seconds = duration_seconds(text)
    if seconds is None or not TTL_MIN <= seconds <= TTL_MAX:
        raise Refusal("invalidArgument", f"{field_name} is out of range")
    return seconds


def size_of(cpus: int | None, memory: int | None) -> tuple[int, int]:
    """The pair of one of the five sizes."""
    if (cpus, memory) not in SIZES:
        raise Refusal("invalidArgument", f"resources {cpus}/{memory} are none of the compute sizes")
    return cpus, memory
