"""The front: which plane a request is for, the journal, the faults around the work, and the answer's bytes."""
import asyncio
import base64
import posixpath
import random
import re
import urllib.parse

from aiohttp import web

from ..base.account import mask
from ..base.admin import PREFIX
from ..base.box import BoxError
from .answers import Answer, Done, drop, error, reset, send_raw, text
from .control import BODY_MAX, Control
from .faults import OF_THE_WORK
from .files import UNAUTHORIZED, Files, is_signed
from .process import Processes
from .rpc import REQUEST_MAX, RpcError, Stream, Writer, request_of, timeout_of, unary_error

HOST = re.compile(r"(\d+)-([a-z0-9]+)\.")
LABEL = re.compile(r"[A-Za-z0-9-]{1,128}\Z")
ENVD_PORT = 49983
ENVD_PATHS = ("/files", "/envs", "/metrics", "/health")
RESERVED = {"/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"}
SHOWN = ("Content-Type", "User-Agent", "Connect-Protocol-Version", "Connect-Timeout-Ms", "Keepalive-Ping-Interval", "Range", "Accept-Encoding",
         "E2b-Sandbox-Id", "E2b-Sandbox-Port", "Content-Length", "Transfer-Encoding")
SECRET = ("X-API-Key", "X-Access-Token", "e2b-traffic-access-token")


class Call:
    """One request, from its arrival to its line in the journal."""

    def __init__(self, world, request):
        self.world, self.request = world, request
        self.method = request.method
        self.path, _, self.raw = request.raw_path.partition("?") if request.raw_path.startswith("/") else (request.path, "", request.query_string)
        self.path = urllib.parse.unquote(self.path)
        self.query = {}
        for pair in self.raw.split("&"):
            key, _, value = pair.partition("=")
            if key:
                self.query.setdefault(urllib.parse.unquote_plus(key), urllib.parse.unquote_plus(value))
        self.sandbox = self.lease = self.rule = None
        self.body, self.has_token, self.user = b"", False, "user"
        self.status, self.bytes, self.received = 0, 0, 0
        self.plane = "control"
        headers = {n: request.headers[n] for n in SHOWN if n in request.headers}
        headers.update({n: mask(request.headers[n]) for n in SECRET if n in request.headers})
        self.line = world.account.record(self.plane, self.method, self.path, query=self.shown_query(), status=None, headers=headers, fault=None)

    def shown_query(self):
        return "&".join(f"signature={mask(p[10:])}" if p.startswith("signature=") else p for p in self.raw.split("&"))

    def raw_query(self, name):
        """The value as it came over the wire, undecoded."""
        for pair in self.raw.split("&"):
            if pair.startswith(name + "="):
                return pair[len(name) + 1:]
        return None

    def note(self, sandbox, name):
        """The sandbox it is about."""
        self.sandbox = sandbox or self.sandbox
        self.line["sandbox"] = name
        if sandbox is not None:
            self.lease = sandbox.lease
            self.line["lease"] = self.lease

    def take(self, phase, skip=()):
        name = self.line.get("sandbox")
        rule = self.world.faults.take(phase, self.plane, self.method, self.path, name, self.lease, skip)
        if rule is not None:
            self.line["fault"] = rule.id
        return rule

    def lose(self):
        reset(self.request.transport)


class Server:
    def __init__(self, world, admin):
        self.world, self.admin = world, admin
        self.control, self.processes, self.files = Control(world), Processes(world), Files(world)
        world.json = Writer(world.options.seed)
        self.random = random.Random(f"jitter {world.options.seed}")
        p, f = self.processes, self.files
        self.unary = {"/process.Process/List": p.list, "/process.Process/SendInput": p.send_input, "/process.Process/CloseStdin": p.close_stdin,
                      "/process.Process/SendSignal": p.send_signal, "/process.Process/Update": p.update, "/filesystem.Filesystem/Stat": f.stat,
                      "/filesystem.Filesystem/MakeDir": f.make_dir, "/filesystem.Filesystem/Move": f.move, "/filesystem.Filesystem/ListDir": f.list_dir,
                      "/filesystem.Filesystem/Remove": f.remove, "/filesystem.Filesystem/CreateWatcher": f.create_watcher,
                      "/filesystem.Filesystem/GetWatcherEvents": f.get_watcher_events, "/filesystem.Filesystem/RemoveWatcher": f.remove_watcher}
        self.streams = {"/process.Process/Start": p.start, "/process.Process/Connect": p.connect, "/filesystem.Filesystem/WatchDir": f.watch_dir}

    async def handle(self, request):
        if request.path.startswith(PREFIX):
            body = await request.read()
            status, data = await self.admin.handle(request.method, request.path, dict(request.query), body, request.headers.get("Authorization"))
            return web.Response(status=status, body=data, content_type="application/json")
        call = Call(self.world, request)
        try:
            if "100-continue" in request.headers.get("Expect", "").lower():
                request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            answer = await self.around(call)
            if isinstance(answer, Answer):
                return await self.send(call, answer)
            call.status = call.status or answer.status
            return answer
        except ConnectionError:
            return Done()
        finally:
            call.line.update(status=call.status, bytes=call.bytes, received=call.received + len(call.body), end_ms=self.world.clock.now())

    # -- faults around the work --

    async def around(self, call):
        try:
            target = self.aim(call)
            if call.plane == "control" and call.method in ("POST", "PUT"):
                await self.read_body(call, BODY_MAX)
            delayed = []
            while (rule := call.take("before", delayed)) is not None and rule.type == "delay":
                # whatever else is to happen happens later
                delayed.append(rule)
                await self.instead(call, rule)
            if rule is not None:
                made = await self.instead(call, rule)
                if made is not None:
                    return made
                if rule.type in OF_THE_WORK:
                    call.rule = rule
            answer = await target(call)
        except Answer as made:
            answer = made
        except BoxError:
            # it went under the request
            answer = Answer(502, {"sandboxId": call.line.get("sandbox"), "message": "The sandbox was not found", "code": 502})
        if isinstance(answer, Answer) and answer.status == 0:
            return Done()
        rule = call.take("after")
        if rule is not None:
            made = await self.instead(call, rule)
            if made is not None:
                return made
        return answer

    async def instead(self, call, rule):
        """What is answered in place of the work's answer, or None to go on."""
        if rule.type == "delay":
            await asyncio.sleep((rule.get("ms", 0) + self.random.random() * rule.get("jitter_ms", 0)) / 1000)
        elif rule.type == "respond":
            body = rule.get("body", "")
            kind = rule.get("content_type", "application/json; charset=utf-8" if isinstance(body, (dict, list)) else "text/plain; charset=utf-8")
            return Answer(rule.get("status", 500), body if isinstance(body, (dict, list)) else str(body).encode(), rule.get("headers") or {}, kind)
        elif rule.type == "drop":
            await drop(call.request.transport, rule.get("how", "rst"))
            return Done()
        elif rule.type == "envd_down" and call.sandbox is not None:
            ms = rule.get("ms", 1000)
            call.sandbox.down_until = self.world.clock.now() + ms if ms >= 0 else float("inf")
            return self.not_open(call.sandbox, ENVD_PORT)
        return None

    async def send(self, call, answer):
        call.status, call.bytes = answer.status, len(answer.body)
        rule = call.take("body")
        if rule is not None and rule.type in ("drop", "truncate", "split", "stall"):
            return await send_raw(call.request, answer, rule)
        if rule is not None and rule.type == "delay":
            await asyncio.sleep(rule.get("ms", 0) / 1000)
        return web.Response(status=answer.status, body=answer.body if answer.status != 204 else None, headers=answer.headers)

    async def read_body(self, call, most):
        parts, size = [], 0
        async for data in call.request.content.iter_chunked(1 << 16):
            size += len(data)
            if size > most:
                raise error(413, "request body is too large")
            parts.append(data)
        call.body = b"".join(parts)

    # -- which plane --

    def aim(self, call):
        headers = call.request.headers
        host = headers.get("Host", "")
        name, port = headers.get("E2b-Sandbox-Id"), headers.get("E2b-Sandbox-Port")
        if (found := HOST.match(host)):
            return self.data(call, found[2], int(found[1]))
        if name is not None or port is not None:
            if name is None or port is None:
                self.world.account.violation("one routing header without the other", path=call.path)
                raise text(400, f"missing header: {'E2b-Sandbox-Id' if name is None else 'E2b-Sandbox-Port'}")
            if not LABEL.match(name):
                raise text(400, "invalid sandbox ID")
            if not port.isdigit() or not 0 < int(port) < 65536:
                raise text(400, "invalid sandbox port")
            return self.data(call, name.split("-")[0], int(port))
        if call.path.startswith(("/process.Process/", "/filesystem.Filesystem/")) or call.path in ENVD_PATHS and (
                "X-Access-Token" in headers or "signature" in call.query):
            return self.data_by_secret(call)
        route = self.control.route(call.method, call.path)
        if route is None:
            call.line["unknown_route"] = True
            raise error(404, "no matching operation was found")
        function, sandbox_id = route
        if sandbox_id is not None:
            call.line["sandbox"] = sandbox_id.split("-")[0]
            call.lease = getattr(self.world.sandboxes.get(call.line["sandbox"]), "lease", None)

        async def work(call):
            if function != self.control.health:
                self.control.check_key(call)
            return await function(call, sandbox_id)
        return work

    def data_by_secret(self, call):
        """Without routing marks: the sandbox whose token or signature it is."""
        call.plane = call.line["plane"] = "data"
        token = call.request.headers.get("X-Access-Token")
        if token is not None and self.world.options.route_by_token:
            found = [s for s in self.world.sandboxes.values() if s.envd_token == token]
        else:
            found = [s for s in self.world.sandboxes.values() if is_signed(call.query, call.method, s.envd_token)]
        if len(found) != 1:
            if "signature" not in call.query:
                self.world.account.violation("no routing headers", path=call.path)
            raise text(400, "missing header: E2b-Sandbox-Id")
        return self.data(call, found[0].id, ENVD_PORT)

    # -- the edge --

    def not_open(self, s, port):
        return Answer(502, {"sandboxId": s.id, "message": "The sandbox is running but port is not open", "port": port, "code": 502})

    def data(self, call, name, port):
        call.plane = call.line["plane"] = "data"
        s = self.world.sandboxes.get(name)
        call.note(s, name)
        if "X-API-Key" in call.request.headers and not call.request.headers.get("User-Agent", "").startswith("e2b-"):
            self.world.account.violation("the API key was sent to the data plane", path=call.path)

        async def work(call):
            if s is None or s.state in ("placing", "paused", "gone"):
                return Answer(502, {"sandboxId": name, "message": "The sandbox was not found", "code": 502})
            if s.state in ("pausing", "resuming"):
                return Answer(409, {"sandboxId": name, "message": "The sandbox is still transitioning, please try again", "code": 409})
            if port != ENVD_PORT:
                if s.traffic_token and call.request.headers.get("e2b-traffic-access-token") != s.traffic_token:
                    return Answer(403, {"sandboxId": name, "message": "The traffic access token is missing or wrong", "code": 403})
                return self.not_open(s, port)
            if posixpath.normpath(call.path) in RESERVED:
                return Answer(404, {"message": "this endpoint is reserved", "path": posixpath.normpath(call.path), "code": 404})
            if s.envd_is_down(self.world.clock.now()):
                return self.not_open(s, port)
            return await self.envd(call)
        return work

    # -- envd --

    async def envd(self, call):
        s, path = call.sandbox, call.path
        token = call.request.headers.get("X-Access-Token")
        call.has_token = token is not None and token == s.envd_token
        if path == "/health" and call.method == "GET":
            return Answer(204)
        if path == "/files":
            function = {"GET": self.files.get, "POST": self.files.post}.get(call.method)
            return Answer(405) if function is None else await self.tracked(call, function)
        if s.envd_token is not None and not call.has_token:
            return Answer(401, UNAUTHORIZED)
        if path in self.unary or path in self.streams:
            if call.method != "POST":
                return Answer(405, b"", {"Allow": "POST"})
            await self.read_body(call, REQUEST_MAX)
            return await self.rpc(call)
        if path == "/metrics" and call.method == "GET":
            return Answer(200, self.metrics(s))
        if path == "/envs" and call.method == "GET":
            return Answer(200, {"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": s.id, "E2B_TEMPLATE_ID": s.template["templateID"], **s.env})
        if path == "/process.Process/StreamInput":
            return unary_error(RpcError("unimplemented", "client streams need HTTP/2"))
        call.line["unknown_route"] = True
        return text(404, "404 page not found\n")

    async def tracked(self, call, function):
        """A request whose connection is cut when the sandbox goes."""
        call.sandbox.streams.add(call)
        try:
            return await function(call)
        finally:
            call.sandbox.streams.discard(call)

    async def rpc(self, call):
        is_stream = call.path in self.streams
        try:
            call.user = self.user_of(call)
            request = request_of(call, is_stream)
            if is_stream:
                return await Stream(call).run(lambda stream: self.streams[call.path](call, request, stream))
            seconds = timeout_of(call)
            try:
                value = await asyncio.wait_for(self.unary[call.path](call, request), seconds)
            except asyncio.TimeoutError:
                raise RpcError("deadline_exceeded", "context deadline exceeded") from None
            return Answer(200, self.world.json(value), content_type="application/json")
        except RpcError as e:
            if not is_stream:
                return unary_error(e)

            async def refuse(stream, e=e):
                raise e
            return await Stream(call).run(refuse)

    def user_of(self, call):
        given = call.request.headers.get("Authorization")
        if given is None:
            return "user"
        try:
            kind, _, value = given.partition(" ")
            name, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
            if kind.lower() != "basic" or not colon:
                raise ValueError
        except ValueError:
            self.world.account.violation("an Authorization that picks no user", path=call.path)
            raise RpcError("unauthenticated", "invalid username: ''") from None
        return name or "user"

    def metrics(self, s):
        size, mib = s.size(), 1024 * 1024
        total, used = size["memoryMB"] * mib, 64 * mib
        return {"ts": (self.world.clock.wall() + s.skew_ms) // 1000, "cpu_count": size["cpuCount"], "cpu_used_pct": 1.5, "mem_total_mib": size["memoryMB"],
                "mem_used_mib": 64, "mem_total": total, "mem_used": used, "mem_cache": 16 * mib, "disk_used": 1024 * mib, "disk_total": size["diskSizeMB"] * mib}


