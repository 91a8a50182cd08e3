"""The control plane: the JSON API at api.<domain>."""
import asyncio
import base64
import binascii
import copy
import json
import re
import secrets
import time
import urllib.parse

from ..base.account import GONE
from . import network, schema
from .answers import Answer, drop, error, text
from .model import CLIENT_ID, TTL_V1, TTL_V2, version

BODY_MAX = 16 * 1024 * 1024
REFRESH_MIN, REFRESH_MAX = 15, 3600
NOT_A_RECORD = 'Sandbox "{}" doesn\'t exist or you don\'t have access to it'
ID = r"(?P<id>[^/]+)"
EVENT_TYPES = {f"sandbox.lifecycle.{k}" for k in ("created", "updated", "paused", "resumed", "killed")}
ORDERS = ("desc", "asc")


def stamp(ms):
    """RFC 3339, from milliseconds since 1970."""
    seconds, rest = divmod(int(ms), 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:03d}Z"


class Control:
    def __init__(self, world):
        self.world = world
        v1, v2 = world.options.flavour in ("v1", "both"), world.options.flavour in ("v2", "both")
        table = [("GET", "/health", self.health), ("GET", "/v2/sandboxes", self.list_v2), ("GET", "/sandboxes", self.list_v1),
                 ("GET", "/sandboxes/metrics", self.metrics_of_several), ("GET", f"/sandboxes/{ID}", self.get), ("DELETE", f"/sandboxes/{ID}", self.delete),
                 ("POST", f"/sandboxes/{ID}/timeout", self.timeout), ("POST", f"/sandboxes/{ID}/refreshes", self.refreshes),
                 ("POST", f"/sandboxes/{ID}/pause", self.pause), ("POST", f"/sandboxes/{ID}/resume", self.resume),
                 ("PUT", f"/sandboxes/{ID}/network", self.put_network), ("GET", f"/sandboxes/{ID}/metrics", self.metrics),
                 ("GET", f"/v2/sandboxes/{ID}/logs", self.logs), ("GET", "/events/sandboxes", self.all_events),
                 ("GET", f"/events/sandboxes/{ID}", self.events)]
        if v2:
            table += [("POST", "/v2/sandboxes", self.create_v2), ("POST", f"/v2/sandboxes/{ID}/connect", self.connect_v2)]
        if v1:
            table += [("POST", "/sandboxes", self.create_v1), ("POST", f"/sandboxes/{ID}/connect", self.connect_v1)]
        self.fixed = {(m, p): f for m, p, f in table if "(?P" not in p}
        self.patterns = [(m, re.compile(p + r"\Z"), f) for m, p, f in table if "(?P" in p]

    def route(self, method, path):
        """(function, ID or None), or None when there is no such route."""
        function = self.fixed.get((method, path))
        if function is not None:
            return function, None
        for m, pattern, function in self.patterns:
            if m == method and (match := pattern.match(path)):
                return function, match["id"]
        return None

    # -- what every route does first --

    def check_key(self, call):
        key = call.request.headers.get("X-API-Key")
        if call.request.headers.get("X-Access-Token"):
            self.world.account.violation("envd's token was sent to the control plane", path=call.path)
        if not key:
            raise error(401, "Missing API key: the X-API-Key header is required")
        if self.world.options.api_key and key != self.world.options.api_key:
            raise error(401, "Invalid API key")

    def body(self, call, shape, is_required=True):
        """The JSON body, checked."""
        if not call.body and not is_required:
            return {}
        kind = call.request.headers.get("Content-Type", "").split(";")[0].strip().lower()
        if kind != "application/json":
            self.world.account.violation("a body that is not said to be JSON", path=call.path, kind=kind)
            raise error(400, f"validation error: header Content-Type has unexpected value {kind!r}")
        try:
            value = json.loads(call.body, object_pairs_hook=_no_twins)
        except (ValueError, RecursionError) as e:
            self.world.account.violation("a body that is no JSON", path=call.path, why=str(e)[:200])
            raise error(400, "validation error: failed to decode request body") from None
        wrong, unknown = schema.check(value, shape)
        for key in unknown:
            self.world.account.violation("a key that the schema does not have", path=call.path, key=key)
        if wrong:
            self.world.account.violation("a body against the schema", path=call.path, why=wrong)
            raise error(400, f"validation error: {wrong}")
        return value

    def find(self, call, sandbox_id):
        """The sandbox with a record; 400 or 404 otherwise."""
        short = sandbox_id.split("-")[0]
        if not re.fullmatch(r"[a-z0-9]+", short):
            raise error(400, "Invalid sandbox ID")
        s = self.world.sandboxes.get(short)
        call.note(s, short)
        if s is None or s.state == "placing" or s.visible_from > self.world.clock.now():
            raise error(404, NOT_A_RECORD.format(short))
        return s

    def check_timeout(self, seconds):
        if seconds <= 0:
            raise error(400, "Timeout must be greater than 0")
        hours = self.world.plan["max_hours"]
        if seconds > hours * 3600:
            raise error(400, f"Timeout cannot be greater than {hours} hours")

    # -- create --

    async def create_v1(self, call, _):
        return await self.create(call, self.body(call, schema.NEW_V1), is_v1=True)

    async def create_v2(self, call, _):
        return await self.create(call, self.body(call, schema.NEW_V2), is_v1=False)

    async def create(self, call, new, is_v1):
        world, rule = self.world, call.rule
        call.lease = (new.get("metadata") or {}).get("gw_lease")
        seconds = new.get("timeout", TTL_V1 if is_v1 else TTL_V2)
        self.check_timeout(seconds)
        template = world.template(new["templateID"])
        if template is None:
            raise error(404, f"template '{new['templateID']}' not found")
        envd, is_secure = version(template["envdVersion"]), new.get("secure", False) if is_v1 else True
        net = new.get("network") or {}
        if is_secure and envd < (0, 2, 0):
            raise error(400, "current template build does not support access flag, you need to re-build template to allow it")
        if (wrong := network.wrong(net, is_secure, world.options.transform_rules, False, envd)):
            raise error(*wrong)
        if new.get("autoPauseMemory") is False and (not new.get("autoPause") or (new.get("autoResume") or {}).get("enabled")):
            raise error(400, "autoPauseMemory false needs autoPause and cannot be combined with autoResume")
        if new.get("volumeMounts") and envd < (0, 5, 14):
            raise error(400, "volumes need a newer template")
        if len((new.get("iam") or {}).get("tokens") or {}) > 5:
            raise error(400, "at most 5 identity tokens")
        self.check_limits()
        is_ghost = rule is not None and rule.type == "ghost_create"
        s = await world.place(
            template, metadata=dict(new.get("metadata") or {}), env=dict(new.get("envVars") or {}), network=net, allow_internet=new.get("allow_internet_access"),
            auto_pause=bool(new.get("autoPause")), auto_resume=bool((new.get("autoResume") or {}).get("enabled")), volume_mounts=new.get("volumeMounts"),
            traffic_token=secrets.token_hex(32) if net.get("allowPublicTraffic") is False else None, envd_token=secrets.token_hex(32) if is_secure else None)
        call.note(s, s.id)
        world.set_end(s, seconds)
        if is_ghost:
            await self.ghost(call, s, rule)
        answer = self.sandbox_json(s)
        if rule is not None and rule.type == "malform_create":
            return Answer(201, self.malformed(s, answer, rule.get("kind")))
        return Answer(201, answer)

    def check_limits(self):
        world, limit = self.world, self.world.plan["max_concurrent"]
        if len(world.sandboxes) >= limit and world.running() >= limit:
            raise error(429, f"you have reached the maximum number of concurrent E2B sandboxes ({limit}). If you need more, please contact us")
        rate, now = world.plan["creates_per_s"], world.clock.now()
        if rate:
            while world.create_times and world.create_times[0] <= now - 1000:
                world.create_times.popleft()
            if len(world.create_times) >= rate:
                answer = error(429, "Rate limit exceeded")
                answer.headers.update({"RateLimit-Limit": str(rate), "RateLimit-Remaining": "0", "RateLimit-Reset": "1", "Retry-After": "1"})
                raise answer
            world.create_times.append(now)

    async def ghost(self, call, s, rule):
        """It runs, and no answer tells so; it is listed later, or never."""
        after = rule.get("appear_after_ms", 0)
        if after < 0:
            self.world.forget(s)
        else:
            s.visible_from = self.world.clock.now() + after
        how = str(rule.get("answer", "none"))
        if how == "500":
            raise error(500, "Failed to place sandbox: internal error", "sandbox_create_failed")
        if how == "504":
            raise text(504, "upstream request timeout")
        await drop(call.request.transport, "rst")
        raise Answer(0)

    def sandbox_json(self, s):
        value = {"clientID": CLIENT_ID, "envdVersion": s.envd_version, "sandboxID": s.id, "templateID": s.template["templateID"], "domain": None}
        if s.template.get("aliases"):
            value["alias"] = s.template["aliases"][0]
        if s.envd_token:
            value["envdAccessToken"] = s.envd_token
        if s.traffic_token:
            value["trafficAccessToken"] = s.traffic_token
        return value

    def malformed(self, s, value, kind):
        others = [o.id for o in self.world.sandboxes.values() if o is not s]
        changes = {"null_id": {"sandboxID": None}, "bad_chars_id": {"sandboxID": "../../v2/sandboxes?x=" + s.id}, "foreign_id": {"sandboxID": (others or ["iforeign000000000000x"])[0]},
                   "ctl_in_token": {"envdAccessToken": s.envd_token[:8] + "\r\nX-Evil: 1"}, "huge": {"alias": "x" * (2 << 20)},
                   "foreign_domain": {"domain": "attacker.example"}, "old_envd": {"envdVersion": "0.1.0"}}
        gone = {"no_id": "sandboxID", "no_envd_token": "envdAccessToken", "no_traffic_token": "trafficAccessToken", "no_version": "envdVersion"}
        if kind in changes:
            return json.dumps({**value, **changes[kind]}).encode()
        if kind in gone:
            value.pop(gone[kind], None)
            return json.dumps(value).encode()
        whole = json.dumps(value).encode()
        return {"bad_json": whole[:len(whole) // 2], "not_object": b"[" + whole + b"]", "empty": b"",
                "duplicate_key": whole[:-1] + b',"sandboxID":"' + (others or ["iforeign000000000000x"])[0].encode() + b'"}'}[kind]

    # -- get and list --

    def listed_json(self, s):
        value = {"templateID": s.template["templateID"], "sandboxID": s.id, "clientID": CLIENT_ID, "startedAt": stamp(s.started_ms + self.world.clock.epoch_ms),
                 "endAt": stamp((s.end_ms or s.started_ms) + self.world.clock.epoch_ms), **s.size(),
                 "state": "paused" if s.state in ("pausing", "paused") else "running", "envdVersion": s.envd_version}
        if s.metadata:
            value["metadata"] = s.metadata
        if s.template.get("aliases"):
            value["alias"] = s.template["aliases"][0]
        if s.volume_mounts:
            value["volumeMounts"] = s.volume_mounts
        return value

    async def get(self, call, sandbox_id):
        s = self.find(call, sandbox_id)
        value = {**self.listed_json(s), "domain": None, "lifecycle": {"autoResume": s.auto_resume, "onTimeout": "pause" if s.auto_pause else "kill"}}
        if s.envd_token:
            value["envdAccessToken"] = s.envd_token
        if s.allow_internet is not None:
            value["allowInternetAccess"] = s.allow_internet
        if s.network:
            value["network"] = s.network
        if call.rule is not None and call.rule.type == "readback":
            value = copy.deepcopy(value)        # what is said once, not what is
            for path, v in (call.rule.get("set") or {}).items():
                *folders, last = path.split(".")
                at = value
                for folder in folders:
                    at = at.setdefault(folder, {})
                at[last] = v
            for path in call.rule.get("drop") or ():
                *folders, last = path.split(".")
                at = value
                for folder in folders:
                    at = at.get(folder) or {}
                at.pop(last, None)
        return Answer(200, value)

    def filter_of(self, raw):
        """Metadata wanted, from the raw query's value: HTTP's layer, then the whole once, then each key and value once."""
        whole = urllib.parse.unquote_plus(urllib.parse.unquote_plus(raw))
        wanted = {}
        for pair in whole.split("&"):
            if pair.count("=") != 1:
                raise error(400, "Invalid metadata query")
            key, value = pair.split("=")
            wanted[urllib.parse.unquote_plus(key)] = urllib.parse.unquote_plus(value)
        return wanted

    def selected(self, call, states):
        stale = call.rule.get("ms", 5000) if call.rule is not None and call.rule.type == "stale_list" else 0
        raw = call.raw_query("metadata")
        wanted = self.filter_of(raw) if raw else {}
        template = call.query.get("template")
        return [s for s in self.world.listed(stale) if (s in self.world.gone or ("paused" if s.state in ("pausing", "paused") else "running") in states)
                and all(s.metadata.get(k) == v for k, v in wanted.items()) and (not template or template in (s.template["templateID"], *s.template.get("aliases", ())))]

    async def list_v1(self, call, _):
        return Answer(200, [self.listed_json(s) for s in reversed(self.selected(call, {"running"}))])

    async def list_v2(self, call, _):
        states = set((call.query.get("state") or "running,paused").split(","))
        if states - {"running", "paused"}:
            raise error(400, "validation error: parameter \"state\" in query has an error")
        order = call.query.get("order", "desc")
        try:
            limit = int(call.query.get("limit", 100))
        except ValueError:
            limit = 0
        if order not in ORDERS or not 1 <= limit <= 100:
            raise error(400, "validation error: parameter in query has an error")
        found = self.selected(call, states)
        if order == "desc":
            found.reverse()
        after = self.page_of(call, order)
        page = [s for s in found if after is None or (s.number < after if order == "desc" else s.number > after)]
        headers = {}
        rule = call.rule if call.rule is not None and call.rule.type == "bad_pages" else None
        if len(page) > limit:
            page = page[:limit]
            headers["X-Next-Token"] = base64.urlsafe_b64encode(json.dumps([order, page[-1].number]).encode()).decode()
        if rule is not None:
            kind = rule.get("kind")
            if kind == "no_token":
                headers.pop("X-Next-Token", None)
            elif kind == "same_token":
                headers["X-Next-Token"] = call.query.get("nextToken") or base64.urlsafe_b64encode(json.dumps([order, 1 << 60 if order == "desc" else 0]).encode()).decode()
            elif kind == "500_on_page" and (after is not None or rule.get("page", 2) == 1):
                raise error(500, "Error listing sandboxes", "internal_server_error")
        if "running" in states:
            headers["X-Total-Running"] = str(sum(1 for s in found if s.state == "running"))
        return Answer(200, [self.listed_json(s) for s in page], headers)

    def page_of(self, call, order):
        token = call.query.get("nextToken")
        if not token:
            return None
        try:
            its_order, number = json.loads(base64.urlsafe_b64decode(token.encode() + b"=" * (-len(token) % 4)))
            if its_order != order or not isinstance(number, int):
                raise ValueError
        except (ValueError, TypeError, binascii.Error):
            raise error(400, "Invalid next token") from None
        return number

    # -- life --

    async def delete(self, call, sandbox_id):
        world = self.world
        try:
            s = self.find(call, sandbox_id)
        except Answer as e:
            if e.status == 404:
                # whoever hears this takes it for gone, also when its processes still run
                world.account.believe(sandbox_id.split("-")[0], GONE)
            raise
        world.account.count("delete", s.id)
        if call.rule is not None and call.rule.type == "lost_delete":
            kind = call.rule.get("kind", "204_alive")
            if kind == "204_alive":
                world.account.believe(s.id, GONE)
                return Answer(204)
            if kind == "500_then_404_alive":
                world.forget(s)
                raise error(500, f"Error killing sandbox: {s.id}")
            if kind == "500_dead":
                await world.kill(s, "api")
                raise error(500, f"Error killing sandbox: {s.id}")
            await asyncio.sleep(call.rule.get("ms", 3000) / 1000)
        await world.kill(s, "api")
        world.account.believe(s.id, GONE)
        return Answer(204)

    async def timeout(self, call, sandbox_id):
        seconds = self.body(call, schema.TIMEOUT)["timeout"]
        s = self.find(call, sandbox_id)
        if seconds < 0:
            raise error(400, "validation error: timeout must not be negative")
        if s.state != "running":
            raise error(409, f"Sandbox {s.id} is not running")
        self.world.set_end(s, min(seconds, self.world.plan["max_hours"] * 3600))
        return Answer(204)

    async def refreshes(self, call, sandbox_id):
        seconds = self.body(call, schema.REFRESH, is_required=False).get("duration", REFRESH_MIN)
        s = self.find(call, sandbox_id)
        if not 0 <= seconds <= REFRESH_MAX:
            raise error(400, "validation error: duration")
        if self.world.clock.now() + max(seconds, REFRESH_MIN) * 1000 > (s.end_ms or 0):
            self.world.set_end(s, max(seconds, REFRESH_MIN))
        return Answer(204)

    async def pause(self, call, sandbox_id):
        world = self.world
        self.body(call, schema.PAUSE, is_required=False)
        s = self.find(call, sandbox_id)
        if call.rule is not None and call.rule.type == "pause_fail":
            kind = call.rule.get("kind")
            if kind == "500_gone":
                world.forget(s)
                raise error(500, "Error pausing sandbox", "internal_server_error")
            if kind == "500_running":
                raise error(500, "Error pausing sandbox", "internal_server_error")
            if kind == "503":
                raise error(503, "Node is too busy to pause the sandbox, please try again")
            raise error(409, f"Sandbox {s.id} cannot be paused in its state")
        if s.state != "running":
            raise error(409, f"Sandbox {s.id} is {s.state}")
        if s.streams and any(p.subscribers for p in s.processes.values()):
            s.had_streams_at_pause = True
        await world.pause(s)
        world.account.count("pause", s.id)
        return Answer(204)

    async def resume(self, call, sandbox_id):
        value = self.body(call, schema.RESUME)
        s = self.find(call, sandbox_id)
        if s.state == "running":
            raise error(409, f"Sandbox {s.id} is already running")
        return await self.wake(call, s, value.get("timeout", TTL_V1))

    async def connect_v1(self, call, sandbox_id):
        return await self.connect(call, sandbox_id, self.body(call, schema.CONNECT_V1)["timeout"])

    async def connect_v2(self, call, sandbox_id):
        return await self.connect(call, sandbox_id, self.body(call, schema.CONNECT_V2, is_required=False).get("timeout", TTL_V2))

    async def connect(self, call, sandbox_id, seconds):
        s = self.find(call, sandbox_id)
        self.check_timeout(seconds)
        if s.state == "running":
            if self.world.clock.now() + seconds * 1000 / self.world.clock.ttl_speed > s.end_ms:
                self.world.set_end(s, seconds)
            return Answer(200, self.sandbox_json(s))
        return await self.wake(call, s, seconds)

    async def wake(self, call, s, seconds):
        self.check_timeout(seconds)
        if s.state != "paused":
            raise error(409, f"Sandbox {s.id} is being {s.state}", "sandbox_start_in_flight")
        rule = call.rule
        if rule is not None and rule.type == "wedge_after_resume":
            for process in s.processes.values():
                process.is_wedged = True
        if rule is not None and rule.type == "clock_skew":
            s.skew_ms = rule.get("ms", 0)
        s.envd_token = secrets.token_hex(32) if self.world.options.new_tokens and s.envd_token else s.envd_token
        await self.world.resume(s, seconds)
        self.world.account.count("resume", s.id)
        return Answer(201, self.sandbox_json(s))

    async def put_network(self, call, sandbox_id):
        value = self.body(call, schema.UPDATE)
        s = self.find(call, sandbox_id)
        if s.state != "running":
            raise error(409, f"Sandbox {s.id} is not running")
        if (wrong := network.wrong(value, True, self.world.options.transform_rules, False, version(s.envd_version))):
            raise error(*wrong)
        if call.rule is not None and call.rule.type == "network_sticky":
            return Answer(204)
        kept = {k: s.network[k] for k in ("allowPublicTraffic", "maskRequestHost", "httpsPorts") if k in s.network}
        s.network = {**kept, **{k: v for k, v in value.items() if k != "allow_internet_access"}}
        s.allow_internet = value.get("allow_internet_access")
        self.world.event("updated", s)
        return Answer(204)

    # -- the rest --

    async def health(self, call, _):
        return text(200, "Health check successful")

    def metric(self, s):
        now = self.world.clock.wall()
        size, mib = s.size(), 1024 * 1024
        return {"timestamp": stamp(now), "timestampUnix": now // 1000, "cpuCount": size["cpuCount"], "cpuUsedPct": 1.5, "memUsed": 64 * mib,
                "memTotal": size["memoryMB"] * mib, "memCache": 16 * mib, "diskUsed": 1024 * mib, "diskTotal": size["diskSizeMB"] * mib}

    async def metrics(self, call, sandbox_id):
        return Answer(200, [self.metric(self.find(call, sandbox_id))])

    async def metrics_of_several(self, call, _):
        names = [n for n in (call.query.get("sandbox_ids") or "").split(",") if n]
        if not 1 <= len(names) <= 100:
            raise error(400, "validation error: sandbox_ids")
        return Answer(200, {"sandboxes": {n: self.metric(self.world.sandboxes[n]) for n in names if n in self.world.sandboxes}})

    async def logs(self, call, sandbox_id):
        self.find(call, sandbox_id)
        return Answer(200, {"logs": []})

    def _events(self, call, events):
        try:
            offset, limit = int(call.query.get("offset", 0)), int(call.query.get("limit", 10))
        except ValueError:
            raise error(400, "validation error: offset or limit") from None
        types = set((call.query.get("types") or "").split(",")) - {""}
        if offset < 0 or not 1 <= limit <= 100 or types - EVENT_TYPES:
            raise error(400, "validation error: offset, limit or types")
        if call.query.get("orderAsc") != "true":
            events = list(reversed(events))
        events = [{**e, "timestamp": stamp(e["timestamp"])} for e in events if not types or e["type"] in types]
        return Answer(200, events[offset:offset + limit])

    async def all_events(self, call, _):
        return self._events(call, list(self.world.events))

    async def events(self, call, sandbox_id):
        return self._events(call, [e for e in self.world.events if e["sandboxId"] == sandbox_id])


def _no_twins(pairs):
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key stands twice")
    return value
