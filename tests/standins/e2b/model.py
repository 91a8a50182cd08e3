"""What the service knows: templates, the plan, sandboxes and their states, and who ends what when.

    placing -> running -> {pausing -> paused -> resuming -> running} | gone

A sandbox is alive (its processes run, it bills) apart from whether the service has a record of it: the traps of deleting come from there.
"""
import asyncio
import heapq
import secrets
import string
from collections import deque

from ..base import account as books
from .guest import CannedGuest, RealGuest

ID_LETTERS = string.ascii_lowercase + string.digits
CLIENT_ID = "6532622b"
SWEEP_AGE_MS = 60_000
GONE_MAX = 20_000
TICK_S = 0.05
TTL_V1, TTL_V2 = 15, 300
PLANS = {"hobby": {"max_hours": 1, "max_concurrent": 20, "creates_per_s": 1}, "pro": {"max_hours": 24, "max_concurrent": 100, "creates_per_s": 5},
         "open": {"max_hours": 24, "max_concurrent": 10_000, "creates_per_s": 0}}
TEMPLATES = [
    {"templateID": "rki5dems9wqfm4r03t7g", "aliases": ["base"], "cpuCount": 2, "memoryMB": 512, "diskSizeMB": 10240, "envdVersion": "0.6.13"},
    {"templateID": "bigt0000000000000000", "aliases": ["big"], "cpuCount": 8, "memoryMB": 8192, "diskSizeMB": 20480, "envdVersion": "0.6.13"},
    {"templateID": "oldt0000000000000000", "aliases": ["old"], "cpuCount": 2, "memoryMB": 512, "diskSizeMB": 10240, "envdVersion": "0.4.0"},
]
VCPU_NANO, GIB_NANO = 14_000, 4_500      # per second, allocated


def nano_usd(ms, size):
    vcpu, mem_mib = size["cpuCount"], size["memoryMB"]
    return -(-ms * (vcpu * VCPU_NANO * 1024 + mem_mib * GIB_NANO) // (1024 * 1000))


def version(text):
    return tuple(int(p) for p in text.split("."))


class Sandbox:
    def __init__(self, name, template, number):
        self.id, self.template, self.number = name, template, number
        self.state = "placing"
        self.guest = None
        self.is_up = False              # its processes run, or are frozen
        self.has_record = True          # the service knows of it
        self.visible_from = 0           # listings show it from this time on
        self.metadata, self.env = {}, {}
        self.network, self.allow_internet = {}, None
        self.auto_pause = False
        self.auto_resume = False
        self.volume_mounts = None
        self.envd_version = template["envdVersion"]
        self.envd_token = secrets.token_hex(32)
        self.traffic_token = None
        self.started_ms = self.end_ms = self.ended_ms = None
        self.file_metadata = {}
        self.code = {}                  # path of an upload -> the start of its text, for the books of what was executed
        self.processes, self.finished, self.watchers = {}, {}, {}
        self.streams = set()            # of answers under way: what is cut when it ends
        self.down_until = 0             # envd does not listen until then
        self.has_crashed = False
        self.wedges = False
        self.skew_ms = 0

    @property
    def lease(self):
        return self.metadata.get("gw_lease")

    def size(self):
        return {k: self.template[k] for k in ("cpuCount", "memoryMB", "diskSizeMB")}

    def envd_is_down(self, now):
        return self.has_crashed or now < self.down_until


class World:
    """All of it. `options`: the program's."""

    def __init__(self, options, faults):
        self.options, self.faults = options, faults
        self.account = books.Account(nano_usd)
        self.clock = self.account.clock
        self.templates = options.templates
        self.plan = options.plan
        self.sandboxes = {}             # with a record
        self.alive = {}                 # with running or frozen processes, record or not
        self.gone = deque(maxlen=GONE_MAX)
        self.events = deque(maxlen=GONE_MAX)
        self.ends = []                  # heap of (end, number, id)
        self.number = 0
        self.create_times = deque()
        self.next_sweep = self.clock.now() + options.sweep_ms
        self.tasks = set()

    # -- time --

    async def tick_forever(self):
        while True:
            await asyncio.sleep(TICK_S)
            await self.tick()

    async def tick(self):
        now = self.clock.now()
        while self.ends and self.ends[0][0] <= now:
            end, _, name = heapq.heappop(self.ends)
            s = self.sandboxes.get(name)
            if s is not None and s.state == "running" and s.end_ms is not None and s.end_ms <= now:
                if s.auto_pause:
                    await self.pause(s)
                else:
                    await self.kill(s, "ttl")
        if now >= self.next_sweep:
            self.next_sweep = now + self.options.sweep_ms
            for s in [s for s in self.alive.values() if not s.has_record and now - s.started_ms >= SWEEP_AGE_MS]:
                await self.end_processes(s, "sweep")

    def set_end(self, s, seconds):
        s.end_ms = self.clock.now() + int(seconds * 1000 / self.clock.ttl_speed)
        heapq.heappush(self.ends, (s.end_ms, s.number, s.id))

    def later(self, seconds, function):
        """Runs an async function in a while; it ends with the program."""
        async def wait():
            await asyncio.sleep(seconds)
            await function()
        task = asyncio.ensure_future(wait())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    # -- looking up --

    def template(self, name):
        base = name.split("/")[-1].split(":")[0]
        return next((t for t in self.templates if base == t["templateID"] or base in t.get("aliases", ())), None)

    def running(self):
        return sum(1 for s in self.sandboxes.values() if s.state in ("running", "placing", "resuming"))

    def listed(self, stale_ms=0):
        """Sandboxes a listing shows, newest last; as things were `stale_ms` ago."""
        at = self.clock.now() - stale_ms
        found = [s for s in self.sandboxes.values() if s.state not in ("placing",) and s.started_ms is not None and s.started_ms <= at
                 and s.visible_from <= self.clock.now()]
        if stale_ms:
            found += [s for s in self.gone if s.started_ms is not None and s.started_ms <= at < s.ended_ms]
        return sorted(found, key=lambda s: s.number)

    # -- life --

    async def place(self, template, **fields):
        """A new sandbox that runs; its TTL is not set."""
        self.number += 1
        s = Sandbox("i" + "".join(ID_LETTERS[b % 36] for b in secrets.token_bytes(20)), template, self.number)
        for key, value in fields.items():
            setattr(s, key, value)
        s.started_ms = self.clock.now()
        self.sandboxes[s.id] = s
        self.account.open(s.id, s.metadata, s.size())
        self.account.count("create", s.id)
        self.alive[s.id] = s
        try:
            if self.options.placement_ms:
                await asyncio.sleep(self.options.placement_ms / 1000)
            s.guest = CannedGuest(self.options.canned) if self.options.exec == "canned" else await RealGuest.create(s.id, self.options.isolation, self.options.state_dir)
        except BaseException:
            self.sandboxes.pop(s.id, None)
            self.alive.pop(s.id, None)
            self.account.end(s.id, "api")
            raise
        s.is_up, s.state = True, "running"
        self.event("created", s)
        return s

    def event(self, kind, s):
        self.events.append({"version": "v2", "id": secrets.token_hex(16), "type": f"sandbox.lifecycle.{kind}", "eventData": None,
                            "sandboxId": s.id, "sandboxTemplateId": s.template["templateID"], "timestamp": self.clock.wall()})

    def forget(self, s):
        """The service's record goes; the processes stay."""
        s.has_record = False
        s.ended_ms = self.clock.now()
        if self.sandboxes.pop(s.id, None) is not None:
            self.gone.append(s)
        self.cut(s)

    def cut(self, s):
        """Ends every connection into it, as the edge does."""
        for stream in list(s.streams):
            stream.lose()

    async def end_processes(self, s, by):
        if self.alive.pop(s.id, None) is None:
            return
        s.is_up, s.state = False, "gone"
        s.code.clear()
        self.account.end(s.id, by)
        self.cut(s)
        for process in s.processes.values():
            process.abandon()
        if s.guest is not None:
            await s.guest.end()

    async def kill(self, s, by):
        self.forget(s)
        await self.end_processes(s, by)
        self.event("killed", s)

    async def pause(self, s):
        s.state = "pausing"
        self.cut(s)
        await s.guest.pause()
        if s.state != "pausing":
            return
        s.state = "paused"
        s.end_ms = self.clock.now()
        if s.id in self.account.entries:
            self.account.entries[s.id].turn(books.PAUSED)
        self.event("paused", s)

    async def resume(self, s, seconds):
        s.state = "resuming"
        await s.guest.resume()
        if s.state != "resuming":
            return
        self.account.entries[s.id].turn(books.RUNNING)
        s.state = "running"
        self.set_end(s, seconds)
        self.event("resumed", s)

    async def end(self):
        for s in list(self.alive.values()):
            await self.end_processes(s, "reset")
        self.sandboxes.clear()
        self.ends.clear()
        self.gone.clear()
        self.events.clear()
        for task in list(self.tasks):
            task.cancel()
