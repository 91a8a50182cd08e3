"""The gateway: one method of its API after the other, its settings, and what a scripted fault changes in each.

Everything the specification says of refusals, phases, pages and tokens is here; how bytes travel is in calls.py and transport.py, what runs in a
sandbox in execs.py and forwards.py.
"""
import asyncio
import base64
import collections
import functools
import re

from ..base import account as books
from ..base import landlock
from ..base.box import Box, BoxError
from . import execs, faults, forwards, schema
from .calls import Call, Refuse
from .policy import policy_fault
from .schema import api, sandbox as config
from .state import COMPLETED, DELETING, ERROR, PHASES, PROVISIONING, READY, STARTING, STOPPED, STOPPING, Sandbox, Token, ms_to, response
from .wire import field_bytes, message_field, turned_spec

VERSION = "0.1.2-standin"
NAME = re.compile(r"[a-z0-9](?:-?[a-z0-9])*\Z")
NAME_MAX, IMAGE_MAX, STRUCT_MAX = 19, 1024, 64 * 1024
LABEL_KEY = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")
LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?\Z")
ENV_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
ENV_MAX, ENV_VALUE_MAX, ARGS_MAX, ARG_MAX, COMMAND_MAX = 128, 8 * 1024, 256, 32 * 1024, 256 * 1024
SELECTOR_MAX = 64
PAGE_DEFAULT, PAGE_MAX = 100, 1000
TOKEN_HOURS = 24

SETTINGS = {"ready_after_polls": 1, "delete_polls": 0, "delete_outcome": 2, "stop_polls": 0, "start_polls": 0, "latency_ms": 0, "allow_driver_config": True,
            "rate_calls": 0, "rate_window_s": 60, "workspaces": ["default"], "chunk": 4096, "token_hours": TOKEN_HOURS, "struct_order": "received"}


class Method:
    def __init__(self, name, request, handle, of=lambda r: r.name, streams=False, first=None):
        """`of` gives the sandbox's name of the (first) request; `first` names the field of the first message that is the request."""
        self.name, self.request, self.handle, self.of = name, request, handle, of
        self.streams_in = streams == "both"
        self.streams_out = bool(streams)
        self.first = first


class Gateway:
    def __init__(self, account, rules, *, is_tls=False, auth="open", bearers=(), canned=False, image_files=(), stream_window=1 << 20, connection_window=16 << 20, streams_max=16384,
                 ping_s=20.0, ping_wait_s=10.0):
        self.account, self.faults = account, rules
        self.is_tls, self.auth, self.bearers = is_tls, auth, set(bearers)
        self.is_canned, self.image_files = canned, dict(image_files)
        self.has_landlock = landlock.abi() > 0
        self.streams_max = streams_max
        self.stream_window, self.connection_window, self.ping_s, self.ping_wait_s = stream_window, connection_window, ping_s, ping_wait_s
        self.loop = asyncio.get_running_loop()
        self.connections = set()
        self.connection_count = self.pings_acknowledged = 0
        self.tasks = set()
        self.host, self.port = "127.0.0.1", 0
        self.reset_state()
        service = "/openshell.v1.OpenShell/"
        self.methods = {service + m.name: m for m in (
            Method("Health", api.HealthRequest, self.health, lambda r: None),
            Method("GetGatewayInfo", api.GetGatewayInfoRequest, self.info, lambda r: None),
            Method("CreateSandbox", api.CreateSandboxRequest, self.create),
            Method("GetSandbox", api.GetSandboxRequest, self.get),
            Method("ListSandboxes", api.ListSandboxesRequest, self.list, lambda r: None),
            Method("DeleteSandbox", api.DeleteSandboxRequest, self.delete),
            Method("StopSandbox", api.StopSandboxRequest, self.stop),
            Method("StartSandbox", api.StartSandboxRequest, self.begin),
            Method("GetSandboxConfig", config.GetSandboxConfigRequest, self.config),
            Method("GetSandboxPolicyStatus", api.GetSandboxPolicyStatusRequest, self.policy_status, lambda r: r.sandbox),
            Method("WatchSandbox", api.WatchSandboxRequest, self.watch, lambda r: r.sandbox, "out"),
            Method("ExecSandbox", api.ExecSandboxRequest, self.exec_once, lambda r: r.sandbox, "out"),
            Method("ExecSandboxInteractive", api.ExecSandboxInput, self.exec, lambda r: r.start.sandbox, "both", "start"),
            Method("CreateSshSession", api.CreateSshSessionRequest, self.ssh, lambda r: r.sandbox),
            Method("RevokeSshSession", api.RevokeSshSessionRequest, self.revoke, lambda r: None),
            Method("ForwardTcp", api.TcpForwardFrame, self.forward, lambda r: r.init.sandbox, "both", "init"),
        )}

    def reset_state(self):
        self.sandboxes, self.tokens = {}, {}
        self.settings = dict(SETTINGS)
        self.script = execs.Script()
        self.execs, self.forwards = (collections.deque(maxlen=books.JOURNAL_MAX) for _ in range(2))
        self.exec_count = 0
        self.rate_began = self.rate_used = 0

    def breach(self, what, **where):
        self.account.violation(what, **where)

    def note_connection(self, connection, what, **where):
        self.account.record("http2", what, None, status=None, **where)

    def keep(self, coroutine):
        task = self.loop.create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    # -- one call --

    async def serve(self, call: Call):
        method = call.method
        data = await (call.receive() if method.streams_in else call.only())
        if data is None:
            call.breach("a stream without a message")
            raise Refuse("INVALID_ARGUMENT", "missing first message")
        try:
            request, foreign = schema.decode(method.request, data)
        except schema.Strange as e:
            call.breach("the request", error=str(e))
            raise Refuse("INVALID_ARGUMENT", str(e)) from None
        if foreign:
            call.breach("a field outside the specification", fields=foreign)
        call.data = data
        name = call.line["sandbox"] = method.of(request)
        self.account.count(method.name, name)
        rule = self.arm(call, method.name, name)
        if self.settings["latency_ms"]:
            await asyncio.sleep(self.settings["latency_ms"] / 1000)
        if rule is not None and rule.type in faults.ENDS:
            if rule.type == "goaway" and rule.get("last", "below") == "at":
                call.mark(rule)
                call.rule = None
                call.connection.goaway(call.number, rule.get("code", 0))
            elif not faults.is_performed(rule):
                await call.strike(rule)
        if call.delays[0]:
            await asyncio.sleep(call.delays[0] / 1000)
        self.admit(call)
        answer = await method.handle(call, request)
        if method.streams_out:
            return
        if rule is not None and rule.type in faults.ENDS and call.rule is rule and rule.get("at") is None and rule.get("after_bytes") is None:
            await call.strike(rule)
        await call.send(answer if isinstance(answer, bytes) else answer.SerializeToString(), is_last=True)
        await call.finish()

    def arm(self, call, name, sandbox):
        """The fault that acts on this call, if any; delays and ways of writing are set beside it."""
        if not self.faults.rules:
            return None
        for phase in ("before", "after", "body", "frames"):
            rule = self.faults.take(phase, plane="grpc", method=name, path=call.line["path"], sandbox=sandbox)
            if rule is None:
                continue
            call.mark(rule)
            if rule.type in faults.FLOWS:
                call.flow = rule
            elif rule.type == "delay":
                call.delays[phase != "before"] += rule.get("ms", 0)
            elif call.rule is None:
                call.rule = rule
        return call.rule

    def admit(self, call):
        """Who may call, and how often."""
        limit = self.settings["rate_calls"]
        if limit:
            now = self.account.clock.now()
            if now - self.rate_began >= self.settings["rate_window_s"] * 1000:
                self.rate_began, self.rate_used = now, 0
            self.rate_used += 1
            if self.rate_used > limit:
                raise Refuse("RESOURCE_EXHAUSTED", "rate limit exceeded", retry_s=(self.rate_began - now) / 1000 + self.settings["rate_window_s"])
        if call.method.name == "Health" or self.auth == "open":
            return
        if self.auth == "certificate" and call.connection.subject is None:
            raise Refuse("UNAUTHENTICATED", "no client certificate")
        if self.auth == "bearer":
            kind, _, token = call.headers.get(b"authorization", b"").decode("latin-1").partition(" ")
            if kind.lower() != "bearer" or token not in self.bearers:
                raise Refuse("UNAUTHENTICATED", "missing or invalid bearer token")

    def invalid(self, call, text, field=None):
        call.breach("an invalid argument", text=text, field=field)
        raise Refuse("INVALID_ARGUMENT", text, field=field)

    def scope(self, call, request, plain=None):
        """The workspace a request names."""
        if plain is not None:
            name = plain
        else:
            name = request.workspace_scope.workspace if request.workspace_scope.WhichOneof("selection") == "workspace" else ""
        if not name:
            self.invalid(call, "workspace_scope is required", "workspace_scope")
        if name not in self.settings["workspaces"]:
            raise Refuse("NOT_FOUND", "workspace not found")
        return name

    def find(self, call, request, name, plain=None):
        workspace = self.scope(call, request, plain)
        if not name:
            self.invalid(call, "name is required", "name")
        found = self.sandboxes.get((workspace, name))
        if found is None:
            raise Refuse("NOT_FOUND", "sandbox not found")
        return found

    # -- health and what the gateway is --

    async def health(self, call, request):
        return api.HealthResponse(status=1, version=VERSION)

    async def info(self, call, request):
        rule = call.rule
        if rule is not None and rule.type == "driver":
            if rule.get("what") in ("PERMISSION_DENIED", "UNAUTHENTICATED", "UNIMPLEMENTED"):
                raise Refuse(rule.get("what"), "not for you")
            return faults.gateway_info(VERSION, rule)
        return faults.gateway_info(VERSION, None)

    # -- making one --

    async def create(self, call, request):
        workspace = self.scope(call, request)
        spec = request.spec
        name = request.name or f"sbx-{len(self.sandboxes)}-{call.number}"
        self.check_create(call, request, name)
        if request.workload_template:
            raise Refuse("NOT_FOUND", "workload template not found")
        rule = call.rule
        if spec.template.HasField("driver_config") and (not self.settings["allow_driver_config"] or rule is not None and rule.type == "driver-config"):
            raise Refuse("INVALID_ARGUMENT", "driver_config is not allowed: set allow_driver_config = true in the gateway's configuration")
        if (workspace, name) in self.sandboxes:
            raise Refuse("ALREADY_EXISTS", "sandbox already exists")
        ahead = rule.get("ms", 0) if rule is not None and rule.type == "clock" else 0
        sandbox = Sandbox(self, workspace, name, request.labels, request.annotations, spec, self.account.clock.wall() + ahead, field_bytes(call.data, 1))
        self.sandboxes[workspace, name] = sandbox
        self.book(sandbox)
        if rule is not None and rule.type == "box":
            sandbox.box_fault = rule.get("what")
        if not self.is_canned:
            sandbox.being_made = self.keep(self.make_box(sandbox))
        if rule is not None and rule.type == "phase":
            phase, conditions, sandbox.exit_code = faults.phase_of(rule)
            self.keep(self.turn_when_made(sandbox, phase, conditions))
        else:
            sandbox.later(READY, self.settings["ready_after_polls"])
        answer = response(sandbox.encoded())
        await self.pause(call)
        return answer

    async def turn_when_made(self, sandbox, phase, conditions):
        if sandbox.being_made is not None:
            await asyncio.wait([sandbox.being_made])
        sandbox.turn(phase, *conditions)

    async def pause(self, call):
        """The delay of an answer whose work is done."""
        if call.delays[1]:
            await asyncio.sleep(call.delays[1] / 1000)

    def book(self, sandbox):
        old = self.account.entries.get(sandbox.name)
        if old is not None:
            self.account.entries[f"{sandbox.name}#{len(self.account.entries)}"] = old
        limits = sandbox.spec.template.resources
        size = {key: str(limits["limits"][key]) for key in ("cpu", "memory") if "limits" in limits and key in limits["limits"]} if sandbox.spec.template.HasField("resources") else {}
        self.account.open(sandbox.name, sandbox.labels, size)
        self.account.believe(sandbox.name, books.RUNNING)

    def check_create(self, call, request, name):
        spec = request.spec
        refuse = functools.partial(self.invalid, call)
        if len(name) > NAME_MAX or not NAME.match(name):
            refuse("name must be a DNS-1123 label of at most 19 characters", "name")
        for labels, where in ((request.labels, "labels"), (spec.template.labels, "spec.template.labels")):
            for key, value in labels.items():
                if not LABEL_KEY.match(key) or not LABEL_VALUE.match(value):
                    refuse(f"invalid label {key[:80]!r}", where)
        template = spec.template
        if len(template.image.encode()) > IMAGE_MAX:
            refuse("image exceeds 1024 bytes", "spec.template.image")
        for field in ("resources", "driver_config"):
            if template.HasField(field) and getattr(template, field).ByteSize() > STRUCT_MAX:
                refuse(f"{field} exceeds 64 KiB", f"spec.template.{field}")
        self.check_environment(call, spec.environment, "spec.environment", ENV_VALUE_MAX)
        self.check_environment(call, template.environment, "spec.template.environment", ENV_VALUE_MAX)
        if len(spec.command) > ARGS_MAX or any(len(a.encode()) > ARG_MAX or "\0" in a for a in spec.command) or sum(len(a.encode()) for a in spec.command) > COMMAND_MAX:
            refuse("command is too large", "spec.command")
        if spec.HasField("policy"):
            fault = policy_fault(spec.policy)
            if fault:
                refuse(fault[1], fault[0])
            if spec.policy.landlock.compatibility not in ("", "best_effort", "hard_requirement"):
                call.breach("an unknown landlock compatibility, which means best_effort", got=spec.policy.landlock.compatibility)

    def check_environment(self, call, environment, where, value_max):
        if len(environment) > ENV_MAX:
            self.invalid(call, "too many environment variables", where)
        for key, value in environment.items():
            if not ENV_KEY.match(key) or key.startswith("OPENSHELL_") and where != "environment":
                self.invalid(call, f"invalid environment key {key[:80]!r}", where)
            if len(value.encode()) > value_max or "\n" in value or "\0" in value or "\r" in value:
                self.invalid(call, f"invalid environment value of {key[:80]!r}", where)

    async def make_box(self, sandbox):
        try:
            sandbox.box = await Box.create(name=sandbox.name, tmp=execs.tmp_of(sandbox), has_network=sandbox.box_fault == "net")
            await execs.furnish(self, sandbox)
            await self.start_main(sandbox)
        except (BoxError, OSError) as e:
            sandbox.next_phase = None
            sandbox.turn(ERROR, ("Ready", "False", "ContainerFailed", str(e)))
            self.breach("the stand-in could not make a box", error=str(e))

    async def start_main(self, sandbox):
        """The main process: the command asked for; without one a shell would wait there, which nothing here needs."""
        if sandbox.spec.command and sandbox.box is not None:
            sandbox.main = await sandbox.box.spawn(list(sandbox.spec.command), env=execs.ENV, cwd="/tmp", user="root")
            self.keep(self.watch_main(sandbox, sandbox.main))

    async def watch_main(self, sandbox, process):
        ended = await process.wait()
        process.close()
        if sandbox.is_gone or sandbox.main is not process or sandbox.phase in (DELETING, STOPPING, STOPPED):
            return
        sandbox.exit_code = ended.code if ended.code is not None else 128 + ended.signal
        sandbox.next_phase = None
        sandbox.turn(COMPLETED if sandbox.exit_code == 0 else ERROR, ("Ready", "False", "MainProcessExited", f"the main process ended with {sandbox.exit_code}"))

    # -- reading --

    async def get(self, call, request):
        sandbox = self.find(call, request, request.name)
        sandbox.poll()
        if sandbox.is_gone:
            raise Refuse("NOT_FOUND", "sandbox not found")
        answer = self.told(call, sandbox)
        await self.pause(call)
        return response(answer)

    def told(self, call, sandbox):
        """A record's bytes, as a fault has them."""
        rule = call.rule
        order = self.settings["struct_order"]
        if rule is not None and rule.type == "phase":
            value = sandbox.whole()
            value.status.phase, conditions, code = faults.phase_of(rule)
            for kind, status, reason, message in conditions:
                value.status.conditions.add(type=kind, status=status, reason=reason, message=message)
            if code is not None:
                value.status.exit_code = code
            return value.SerializeToString(deterministic=True)
        if rule is not None and rule.type == "clock":
            value = sandbox.whole()
            ms_to(value.metadata.created_time, sandbox.created_ms + rule.get("ms", 0))
            return value.SerializeToString(deterministic=True)
        if rule is not None and (rule.type == "readback" or rule.type == "drift" and sandbox.reads > rule.get("reads", 1)):
            value = sandbox.whole()
            if faults.change_record(value, rule.get("what")):
                if rule.get("what") == "harmless-order":
                    order = "reversed"
                else:
                    return value.SerializeToString(deterministic=True)
        if order != "received":
            return sandbox.encoded(turned_spec(sandbox.spec_bytes)) if order == "reversed" else sandbox.whole().SerializeToString(deterministic=True)
        return sandbox.encoded()

    async def config(self, call, request):
        sandbox = self.find(call, request, request.name)
        rule = call.rule
        answer = sandbox.config()
        raw = field_bytes(sandbox.spec_bytes, 7)
        if rule is not None and (rule.type == "readback" or rule.type == "drift" and sandbox.reads > rule.get("reads", 1)):
            if faults.change_config(answer, rule.get("what")):
                raw = None
        await self.pause(call)
        if raw is not None:
            answer.ClearField("policy")
            return message_field(1, raw) + answer.SerializeToString(deterministic=True)
        return answer.SerializeToString(deterministic=True)

    async def policy_status(self, call, request):
        sandbox = self.find(call, request, request.sandbox)
        if request.version not in (0, 1):
            raise Refuse("NOT_FOUND", "policy revision not found")
        answer = api.GetSandboxPolicyStatusResponse(active_version=1)
        revision = answer.revision
        revision.version, revision.policy_hash, revision.status = 1, sandbox.hash(), 2
        ms_to(revision.created_time, sandbox.created_ms)
        ms_to(revision.loaded_time, sandbox.created_ms)
        await self.pause(call)
        return answer

    async def list(self, call, request):
        every = request.workspace_scope.WhichOneof("selection") == "all_workspaces"
        workspace = None if every else self.scope(call, request)
        if request.page_size < 0:
            self.invalid(call, "page_size must not be negative", "page_size")
        wanted = self.selector(call, request.label_selector)
        size = min(request.page_size or PAGE_DEFAULT, PAGE_MAX)
        rule = call.rule
        what = rule.get("what") if rule is not None and rule.type == "list" else None
        after = 0
        if request.page_token:
            try:
                after = int(base64.urlsafe_b64decode(request.page_token.encode()).decode().removeprefix("after:"))
            except ValueError:
                raise Refuse("INVALID_ARGUMENT", "invalid page token", field="page_token") from None
            if what == "second-page-fails":
                raise Refuse("UNAVAILABLE", "injected")
        found = [s for s in self.sandboxes.values() if (every or s.workspace == workspace) and all(s.labels.get(k) == v for k, v in wanted)]
        page, rest = found[after:after + size], found[after + size:]
        answer = b"".join(response(s.encoded()) for s in page)
        if what == "duplicates":
            answer += answer
        token = base64.urlsafe_b64encode(f"after:{after + size}".encode()).decode() if rest else ""
        if what == "same-token":
            token = base64.urlsafe_b64encode(b"after:0").decode()
        elif what == "huge-token":
            token = "A" * 200_000
        elif what == "empty":
            answer, token = b"", ""
        await self.pause(call)
        return answer + api.ListSandboxesResponse(next_page_token=token).SerializeToString()

    def selector(self, call, text):
        pairs = [part.partition("=") for part in text.split(",")] if text else []
        if len(pairs) > SELECTOR_MAX or any(eq != "=" or not LABEL_KEY.match(k) or not LABEL_VALUE.match(v) for k, eq, v in pairs):
            self.invalid(call, "invalid label selector", "label_selector")
        return [(k, v) for k, _, v in pairs]

    async def watch(self, call, request):
        sandbox = self.find(call, request, request.sandbox)
        changed = asyncio.Event()
        sandbox.watchers.add(changed)
        try:
            cursor = 0
            while True:
                sandbox.poll()
                cursor += 1
                event = api.SandboxStreamEvent(cursor=str(cursor))
                event.sandbox.MergeFromString(sandbox.encoded())
                seen = sandbox.version
                await call.send(event.SerializeToString())
                if sandbox.is_gone or request.stop_on_terminal and sandbox.phase in (READY, ERROR, COMPLETED):
                    break
                while sandbox.version == seen and not sandbox.is_gone:
                    changed.clear()
                    try:
                        await asyncio.wait_for(changed.wait(), 0.05)
                    except asyncio.TimeoutError:
                        sandbox.poll()
        finally:
            sandbox.watchers.discard(changed)
        await call.finish()

    # -- the end of one, and pauses --

    async def delete(self, call, request):
        rule = call.rule
        what = rule.get("what") if rule is not None and rule.type == "delete-fails" else None
        workspace = self.scope(call, request)
        if not request.name:
            self.invalid(call, "name is required", "name")
        sandbox = self.sandboxes.get((workspace, request.name))
        if what == "internal":
            raise Refuse("INTERNAL", "delete sandbox failed: injected")
        if sandbox is None:
            if not request.allow_missing:
                raise Refuse("NOT_FOUND", "sandbox not found")
            await self.pause(call)
            return api.DeleteSandboxResponse(outcome=3)
        answer = api.DeleteSandboxResponse(outcome=2, sandbox_id=sandbox.id)
        if what == "unspecified":
            return api.DeleteSandboxResponse(sandbox_id=sandbox.id)
        if what == "seventeen":
            return api.DeleteSandboxResponse(outcome=17, sandbox_id=sandbox.id)
        if what == "lies":
            # said to be over, and still there
            self.account.believe(sandbox.name, books.GONE)
            return api.DeleteSandboxResponse(outcome=1, sandbox_id=sandbox.id)
        if what == "never-gone":
            sandbox.turn(DELETING)
            return answer
        outcome = self.settings["delete_outcome"]
        if sandbox.phase != DELETING or sandbox.next_phase == "gone":
            sandbox.turn(DELETING)
            ending = self.keep(self.end(sandbox, "api", self.settings["delete_polls"] if outcome == 2 else 0))
            if outcome == 1:
                await asyncio.shield(ending)
            if what == "replaced":
                await asyncio.shield(ending)
                self.plant(workspace, sandbox.name, {}, READY, 0)
        answer.outcome = outcome
        await self.pause(call)
        return answer

    async def end(self, sandbox, by, polls=0):
        """Ends what is in it, then the record, after so many more reads of it."""
        if sandbox.being_made is not None:
            await asyncio.wait([sandbox.being_made])
        if sandbox.box is not None:
            box, sandbox.box = sandbox.box, None
            await box.end()
        for token in sandbox.tokens:
            token.is_revoked = True
        self.account.end(sandbox.name, by)
        self.account.believe(sandbox.name, books.GONE)
        seen = sandbox.reads
        while sandbox.reads - seen < polls and by == "api":
            await asyncio.sleep(0.002)
        sandbox.is_gone = True
        sandbox.turn(DELETING)
        if self.sandboxes.get((sandbox.workspace, sandbox.name)) is sandbox:
            del self.sandboxes[sandbox.workspace, sandbox.name]

    async def stop(self, call, request):
        sandbox = self.find(call, request, request.name)
        if sandbox.phase != READY:
            raise Refuse("FAILED_PRECONDITION", f"sandbox is {PHASES[sandbox.phase]}")
        sandbox.turn(STOPPING)
        if sandbox.box is not None:
            await sandbox.box.kill_all()
        for task in list(sandbox.execs):
            task.relay_lost()
        sandbox.later(STOPPED, self.settings["stop_polls"])
        self.account.entries[sandbox.name].turn(books.PAUSED)
        await self.pause(call)
        return response(self.told(call, sandbox))

    async def begin(self, call, request):
        sandbox = self.find(call, request, request.name)
        if sandbox.phase != STOPPED:
            raise Refuse("FAILED_PRECONDITION", f"sandbox is {PHASES[sandbox.phase]}")
        sandbox.turn(STARTING)
        await self.start_main(sandbox)
        sandbox.later(READY, self.settings["start_polls"])
        self.account.entries[sandbox.name].turn(books.RUNNING)
        await self.pause(call)
        return response(self.told(call, sandbox))

    def plant(self, workspace, name, labels, phase, age_ms, spec=None):
        """A sandbox nobody asked for over the API."""
        sandbox = Sandbox(self, workspace, name, labels, {}, spec or api.SandboxSpec(), self.account.clock.wall() - age_ms)
        self.sandboxes[workspace, name] = sandbox
        self.book(sandbox)
        sandbox.turn(phase)
        if not self.is_canned and phase in (READY, PROVISIONING):
            sandbox.being_made = self.keep(self.make_box(sandbox))
        return sandbox

    # -- commands, and connections into a sandbox --

    def ready(self, call, request, name, plain=None):
        sandbox = self.find(call, request, name, plain)
        if sandbox.phase != READY:
            raise Refuse("FAILED_PRECONDITION", f"sandbox is not ready: {PHASES[sandbox.phase]}")
        return sandbox

    async def exec(self, call, request):
        await execs.interactive(self, call, request)

    async def exec_once(self, call, request):
        await execs.once(self, call, request)

    async def ssh(self, call, request):
        sandbox = self.ready(call, request, request.sandbox)
        hours = self.settings["token_hours"]
        rule = call.rule
        if rule is not None and rule.type == "token" and rule.get("what") == "expired":
            hours = -1
        token = Token(sandbox, self.account.clock.wall() + int(hours * 3_600_000))
        if rule is not None and rule.type == "token" and rule.get("what") == "limit":
            token.live_max = rule.get("limit", 1)
        sandbox.tokens.append(token)
        self.tokens[token.value] = token
        call.line["token"] = books.mask(token.value)
        answer = api.CreateSshSessionResponse(sandbox_id=sandbox.id, token=token.value, gateway_host=self.host, gateway_port=self.port,
                                              gateway_scheme="https" if self.is_tls else "http", host_key_fingerprint="SHA256:standin")
        ms_to(answer.expiration_time, token.expires_ms)
        await self.pause(call)
        return answer

    async def revoke(self, call, request):
        rule = call.rule
        call.line["token"] = books.mask(request.token)
        if rule is not None and rule.type == "token" and rule.get("what") == "revoke-fails":
            raise Refuse("INTERNAL", "revoke ssh session failed: injected")
        token = self.tokens.get(request.token)
        if token is None or token.is_revoked:
            if not request.allow_missing:
                raise Refuse("NOT_FOUND", "ssh session not found")
            return api.RevokeSshSessionResponse(outcome=3)
        token.is_revoked = True
        await self.pause(call)
        return api.RevokeSshSessionResponse(outcome=1)

    async def forward(self, call, request):
        await forwards.serve(self, call, request)

    # -- for the admin --

    def unrevoked(self):
        return [books.mask(t.value) for t in self.tokens.values() if not t.is_revoked]

    async def reset(self):
        for sandbox in list(self.sandboxes.values()):
            await self.end(sandbox, "reset")
        self.reset_state()

    async def close(self):
        for connection in list(self.connections):
            connection.transport.abort()
        await self.reset()
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=5)
