"""The program: one port for the exchange, both APIs, the sandboxes' endpoints, the policy route and the control."""
import asyncio
import json
import re

from aiohttp import web

from ..base.account import mask
from ..base.admin import PREFIX, Admin
from . import connect, rest, running
from .facts import compiled
from .knobs import SERVICE
from .server import Answer, Call, hang_up, injected, pause, refused, said, send
from .wire import Refusal, json_read
from .world import Sandbox, new_id

EXCHANGE = compiled({"type": "object", "properties": {"identifier": {"type": "string"}, "secret": {"type": "string"}}, "required": ["identifier", "secret"],
                     "additionalProperties": False})
POLICY = compiled({"type": "object", "properties": {"mode": {"type": "string"}, "allowNetworks": {"type": "array", "items": {"type": "string"}}},
                   "required": ["mode", "allowNetworks"], "additionalProperties": False})


async def exchange(call: Call) -> Answer:
    """POST /v2/auth/token"""
    request, world = call.request, call.world
    if request.method != "POST" or request.content_type != "application/json":
        call.violation(f"exchange: {request.method} with {request.headers.get('Content-Type')}")
        raise Refusal("invalidArgument", "a JSON POST is expected")
    if "Authorization" in request.headers:
        call.violation("the exchange carries an Authorization header")
    message = json_read(call.body)
    if wrong := EXCHANGE(message, "exchange"):
        call.violation(wrong)
        raise Refusal("invalidArgument", wrong)
    if message["identifier"] != world.identifier or message["secret"] != world.secret:
        return said({"detail": "Incorrect authentication credentials"}, 401)
    if call.turned.get("exchange_no_token"):
        return said({})
    token = world.exchange(call.knob("exchange_life_s"))
    if "exchange_token" in call.turned:
        token = call.turned["exchange_token"]
        world.bearers[token] = world.mono() + call.knob("exchange_life_s")
    return said({"access_token": token})


async def put_policy(call: Call) -> Answer:
    """PUT /policy/v1/sandboxes/{id}/network-policy: in no published contract; what the vendor's own tool sends for an allow rule."""
    running.management(call)
    if call.request.method != "PUT" or call.request.content_type != "application/json":
        call.violation(f"policy: {call.request.method} with {call.request.headers.get('Content-Type')}")
        raise Refusal("invalidArgument", "a JSON PUT is expected")
    message = json_read(call.body)
    if wrong := POLICY(message, "policy"):
        call.violation(wrong)
        raise Refusal("invalidArgument", wrong)
    sandbox = call.world.find(call.sandbox)
    if sandbox is None:
        raise Refusal("notFound", "sandbox not found")
    if message["mode"] != "deny-all" or not all(re.fullmatch(r"[A-Za-z0-9.*-]+(:\d{1,5})?", n) for n in message["allowNetworks"]):
        raise Refusal("invalidArgument", "only deny-all with host rules is taken")
    sandbox.put_rules = list(message["allowNetworks"])
    sandbox.version += 1
    if call.turned.get("policy_put_wrong_echo"):
        return said({"mode": "deny-all", "allowNetworks": [*message["allowNetworks"], "*"]})
    return said({"mode": message["mode"], "allowNetworks": message["allowNetworks"]})


def addressed(world, request: web.BaseRequest) -> tuple[Call, object]:
    """What a request is for, and who handles it."""
    path = request.path
    segments = path.strip("/").split("/")
    head = segments[0]
    if head == "rest":
        operation, sandbox = rest.route(request.method, segments[1:], False)
        return Call(request, world, "rest", rest.STEPS.get(operation, "other"), operation, sandbox), rest.handle
    if head == "sbx":
        operation = connect.route(segments[1:], False)
        return Call(request, world, "connect", connect.STEPS.get(operation, "other"), operation, ""), connect.handle
    if head == "ep" and len(segments) > 2:
        if segments[2].startswith("docker.sbx."):
            operation = connect.route(segments[2:], True)
            return Call(request, world, "connect", connect.STEPS.get(operation, "other"), operation, segments[1]), connect.handle
        operation, _ = rest.route(request.method, segments[2:], True)
        return Call(request, world, "rest", rest.STEPS.get(operation, "other"), operation, segments[1]), rest.handle
    if path == "/v2/auth/token":
        return Call(request, world, "auth", "exchange", "exchange", ""), exchange
    if head == "policy" and len(segments) == 5 and segments[1:3] == ["v1", "sandboxes"] and segments[4] == "network-policy":
        return Call(request, world, "policy", "policy_put", "putNetworkPolicy", segments[3]), put_policy
    return Call(request, world, "none", "other", "", ""), nothing


async def nothing(call: Call) -> Answer:
    call.violation(f"no such route: {call.request.method} {call.request.path}")
    return Answer(404, b"404 page not found\n", kind="text/plain")


class Standin:
    """Takes requests: reads them, lets the rules have their say, hands them on, writes them down."""

    def __init__(self, world, knobs):
        self.world, self.knobs = world, knobs
        self.connections = 0

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        call, handle = addressed(self.world, request)
        place = self.connection(request)
        cut = self.knobs.cut(call) if self.knobs.rules else None
        if cut is not None:
            while len(call.body) < cut and (piece := await request.content.read(cut - len(call.body))):
                call.body += piece
            self.note(call, place)
            return hang_up(request)
        if request.can_read_body:
            call.body = await request.read()
        self.knobs.meet(call)
        turned, answer, is_reused = call.turned, None, place[1] > 1
        line = self.note(call, place)
        if where := turned.get("redirect"):
            answer = Answer(307, headers={"Location": str(where)})
        elif "status" in turned and not turned.get("after"):
            answer = injected(call)
        await pause(call)
        if answer is None and not turned.get("drop_before_effect"):
            try:
                answer = await handle(call)
            except Refusal as wrong:
                answer = refused(call, wrong)
            if turned.get("after"):
                answer = injected(call) or answer
        if wait := call.knob("latency_after_ms"):
            await asyncio.sleep(wait / 1000)
        line.update(call.note, sandbox=call.sandbox)
        if answer is None or turned.get("drop_before_response") or turned.get("drop_reused_connection") and is_reused:
            return hang_up(request)
        line["status"] = answer.status
        try:
            return await send(call, answer)
        except ConnectionError:  # the client had enough
            return hang_up(request)

    def connection(self, request: web.BaseRequest) -> tuple[int, int]:
        """(number of the request's connection, its place among the connection's requests)."""
        transport = request.transport
        if transport is None:
            return 0, 1
        number, nth = getattr(transport, "standin_place", (0, 0))
        if not number:
            self.connections += 1
            number = self.connections
        transport.standin_place = number, nth + 1
        return transport.standin_place

    def note(self, call: Call, place: tuple[int, int]) -> dict:
        """A request's line of the journal, from when it was read; its status is 0 until it is answered."""
        request, world = call.request, self.world
        token = call.bearer()
        auth = "none" if not token else "bearer" if token in world.bearers else "credential" if token in world.credentials else mask(token)
        line = world.account.record(call.api, request.method, request.path, status=0, step=call.step, operation=call.operation, sandbox=call.sandbox,
                                    auth=auth, fault=call.fault_id, bytes=len(call.body), connection=place[0], nth=place[1])
        for name in ("Idempotency-Key", "If-Match", "Connect-Timeout-Ms"):
            if name in request.headers:
                line[name] = request.headers[name]
        return line


class Control:
    """/__standin/: the base's routes, and two of this stand-in's own: knobs (GET; PUT merges) and sandboxes (POST seeds some that a list shows)."""

    def __init__(self, standin: Standin, admin: Admin):
        self.standin, self.admin = standin, admin

    async def serve(self, request: web.BaseRequest) -> web.Response:
        body, name = await request.read(), request.path[len(PREFIX):]
        own = {"knobs": self.knobs, "sandboxes": self.seed}.get(name)
        if own is None or not self.admin.is_admin(request.headers.get("Authorization")):
            status, data = await self.admin.handle(request.method, request.path, request.query, body, request.headers.get("Authorization"))
        else:
            try:
                status, data = 200, json.dumps(own(json.loads(body) if body else None)).encode()
            except (ValueError, KeyError, TypeError) as wrong:
                status, data = 400, json.dumps({"error": str(wrong)}).encode()
        return web.Response(status=status, body=data, content_type="application/json")

    def knobs(self, value: dict | None) -> dict:
        world = self.standin.world
        for name, wanted in (value or {}).items():
            if name not in SERVICE:
                raise ValueError(f"no knob {name!r}; there are {sorted(SERVICE)}")
            if name == "time_scale":
                world.account.clock.ttl_speed = float(wanted)
            world.knobs[name] = wanted
        return world.knobs

    def seed(self, value: list[dict]) -> list[str]:
        """Sandboxes that are there without ever having been asked for: {"name", "status", "labels", "age_s", "foreign"}."""
        world, made = self.standin.world, []
        for row in value:
            sandbox = Sandbox(new_id("sbx_"), row["name"], row.get("api", "rest"), cpus=1, memory=2048, labels=row.get("labels", {}), timeout=row.get("timeout", 3600.0),
                              status=row.get("status", "running"), created_at=world.wall() - row.get("age_s", 0))
            sandbox.settled.set()
            world.sandboxes[sandbox.uid] = sandbox
            world.account.open(sandbox.uid, {**sandbox.labels, "name": sandbox.name, "seeded": "yes"}, (1, 2048))
            made.append(sandbox.uid)
        return made
