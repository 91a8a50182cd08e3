"""The Connect API: the eleven procedures the gateway uses, on the management base (/sbx) and on a sandbox's endpoint, all under the account's bearer.

No published document stands behind it any more; what is here is what the backend's specification has measured, and its unknown points are the README's.
"""
import asyncio
import re

from ..base.account import GONE
from . import running
from .facts import Check, compiled
from .rest import digest_of, limited, listed
from .server import Answer, Call, said
from .wire import FLAG_COMPRESSED, FLAG_END, FRAME_MAX, NUMBERS, Refusal, base64_read, base64_write, duration_seconds, frame, frames_read, json_read, time_text, whole_number
from .world import STATUS_NUMBERS, TTL_DEFAULT, Operation, Sandbox, new_id, size_of, status_name, ttl_of

MANAGEMENT, PROCESS, FILES = "docker.sbx.v1", "docker.sbx.process.v1", "docker.sbx.files.v1"
DATA_MAX = 512 << 10  # decoded bytes of one data frame
WAIT_MAX = 10.0
STEPS = {"CreateSandbox": "create", "GetSandbox": "read", "ListSandboxes": "list", "DeleteSandbox": "delete", "WaitOperation": "wait",
         "GetOperation": "poll", "GetCapabilities": "capabilities", "GetEffectiveNetworkPolicy": "policy", "Exec": "exec", "Upload": "upload",
         "Download": "download"}
_STRING, _REFERENCE = {"type": "string"}, {"type": "object", "properties": {"id": {"type": "string"}, "name": {"type": "string"}}, "additionalProperties": False}


def _message(properties: dict, *required: str) -> Check:
    return compiled({"type": "object", "properties": properties, "required": list(required), "additionalProperties": False})


_STRINGS, _MAP = {"type": "array", "items": _STRING}, {"type": "object", "additionalProperties": _STRING}
MESSAGES: dict[str, Check] = {
    "CreateSandbox": _message({
        "name": _STRING, "requestId": _STRING, "image": _STRING, "labels": _MAP, "environment": _MAP, "networkPolicies": {"type": "array", "items": {"type": "object"}},
        "cloud": {"type": "object", "properties": {
            "imageRef": _STRING, "startCmd": _STRINGS, "timeout": _STRING, "onTimeout": {"type": ["string", "integer"]}, "autoResume": {"type": "boolean"},
            "platform": {"type": "object", "properties": {"os": _STRING, "architecture": _STRING}, "additionalProperties": False}}, "additionalProperties": False},
        "resources": {"type": "object", "properties": {"cpus": {"type": "integer"}, "memoryMib": {"type": ["string", "integer"]}}, "additionalProperties": False}},
        "name", "requestId"),
    "GetSandbox": _message({"sandbox": _REFERENCE}, "sandbox"),
    "ListSandboxes": _message({"pageSize": {"type": "integer", "minimum": 0}, "pageToken": _STRING}),
    "DeleteSandbox": _message({"sandbox": _REFERENCE, "force": {"type": "boolean"}, "requestId": _STRING}, "sandbox", "requestId"),
    "WaitOperation": _message({"id": _STRING, "timeout": _STRING}, "id"),
    "GetOperation": _message({"id": _STRING}, "id"),
    "GetCapabilities": _message({}),
    "GetEffectiveNetworkPolicy": _message({"target": {"type": "object", "properties": {"sandbox": _REFERENCE}, "additionalProperties": False}}, "target"),
    "Exec": _message({"cmd": {"type": "array", "items": _STRING, "minItems": 1}, "env": _MAP, "workingDir": _STRING, "user": _STRING}, "cmd"),
}
_HEADER = {"type": "object", "properties": {"path": {"type": "string", "minLength": 1}, "mode": {"type": "integer"}}, "required": ["path"], "additionalProperties": False}
UPLOAD_FRAME = _message({"header": _HEADER, "data": _STRING})
DOWNLOAD_FRAME = _message({"paths": {"type": "array", "items": _STRING, "minItems": 1}}, "paths")
SERVICES = {
    (MANAGEMENT, "SandboxService"): ("CreateSandbox", "GetSandbox", "ListSandboxes", "DeleteSandbox"),
    (MANAGEMENT, "OperationService"): ("WaitOperation", "GetOperation"), (MANAGEMENT, "CapabilityService"): ("GetCapabilities",),
    (MANAGEMENT, "NetworkPolicyService"): ("GetEffectiveNetworkPolicy",), (PROCESS, "ProcessService"): ("Exec",), (FILES, "FileService"): ("Upload", "Download"),
}
PROCEDURES = {f"{package}.{service}/{method}": method for (package, service), methods in SERVICES.items() for method in methods}
STREAMS = ("Upload", "Download")


def route(segments: list[str], is_endpoint: bool) -> str:
    method = PROCEDURES.get("/".join(segments), "")
    return method if method and is_endpoint == (not segments[0].startswith(MANAGEMENT + ".")) else ""


def judge_head(call: Call) -> None:
    request = call.request
    wanted = "application/connect+json" if call.operation in STREAMS else "application/json"
    if request.method != "POST" or request.content_type != wanted:
        call.violation(f"{call.operation}: {request.method} with {request.headers.get('Content-Type')}")
        raise Refusal("unknown", f"{wanted} is expected", status=415)
    if request.headers.get("Connect-Protocol-Version") != "1":
        call.violation(f"{call.operation} without Connect-Protocol-Version: 1")
        raise Refusal("invalidArgument", "Connect-Protocol-Version is required")
    left = request.headers.get("Connect-Timeout-Ms")
    if left is None:
        if call.operation not in STREAMS:
            call.violation(f"{call.operation} without Connect-Timeout-Ms")
    elif not re.fullmatch(r"[0-9]{1,10}", left) or int(left) < 1:
        call.violation(f"{call.operation}: Connect-Timeout-Ms {left!r}")
        raise Refusal("invalidArgument", "Connect-Timeout-Ms is no time")
    if request.headers.get("Content-Encoding", "identity") != "identity" or request.headers.get("Connect-Content-Encoding", "identity") != "identity":
        raise Refusal("unimplemented", "compression was not agreed on")


# -- what things look like --


def view(call: Call, sandbox: Sandbox) -> dict:
    status = STATUS_NUMBERS[sandbox.status] if call.knob("enum_numbers") else status_name(sandbox.status)
    core: dict = {"id": sandbox.uid, "name": sandbox.name, "status": status, "createdAt": time_text(sandbox.created_at)}
    cloud: dict = {}
    if sandbox.cpus:
        core["resources"] = {"cpus": sandbox.cpus, "memoryMib": str(sandbox.memory)}
    if sandbox.place is not None or sandbox.is_stuck:
        core["endpoint"] = {"uri": f"{call.world.base_url}/ep/{sandbox.uid}", "protocol": 1 if call.knob("enum_numbers") else "SANDBOX_ENDPOINT_PROTOCOL_CONNECT"}
        cloud["imageDigest"] = sandbox.digest
    return {"core": core, "cloud": cloud}


def spoiled(shown: dict, kind: str) -> dict:
    kind, _, detail = kind.partition(":")
    core, cloud = shown["core"], shown["cloud"]
    match kind:
        case "no_uid":
            core.pop("id")
        case "hostile_uid":
            core["id"] = detail or "../../v1/sandboxes?x=\r\nX-Injected: 1"
        case "wrong_name":
            core["name"] = "gw-another-run"
        case "no_endpoint":
            core.pop("endpoint", None)
        case "http_endpoint_offhost" if "endpoint" in core:
            core["endpoint"]["uri"] = detail or "http://198.51.100.7/ep"
        case "unix_endpoint" if "endpoint" in core:
            core["endpoint"].update(uri="unix:///run/sandbox.sock", protocol="SANDBOX_ENDPOINT_PROTOCOL_UNIX_SOCKET")
        case "no_digest":
            cloud.pop("imageDigest", None)
        case "wrong_digest" | "wrong_image" if cloud:
            cloud["imageDigest"] = "sha256:" + "0" * 64
        case "no_resources":
            core.pop("resources", None)
        case "bigger_size":
            core["resources"] = {"cpus": 16, "memoryMib": "32768"}
    return shown


ONLY_ONCE = ("no_uid", "hostile_uid", "wrong_name")  # shown by the create's operation, not by a later read


def seen(call: Call, sandbox: Sandbox, is_operation: bool) -> dict:
    shown = view(call, sandbox)
    if sandbox.spoil and (is_operation or sandbox.spoil.partition(":")[0] not in ONLY_ONCE):
        shown = spoiled(shown, sandbox.spoil)
    return shown


def operation_view(call: Call, operation: Operation) -> dict:
    shown: dict = {"id": operation.id, "done": operation.done.is_set()}
    if not shown["done"]:
        return shown
    if operation.error:
        shown["error"] = {"code": operation.error[0], "message": operation.error[1]}
    elif operation.kind == "create":
        shown["response"] = {"@type": f"type.googleapis.com/{MANAGEMENT}.Sandbox", **seen(call, operation.sandbox, True)}
    else:
        shown["response"] = {"@type": "type.googleapis.com/google.protobuf.Empty", "value": {}}
    return shown


# -- management --


async def create_sandbox(call: Call, message: dict) -> Answer:
    world, key = call.world, message["requestId"]
    if first := world.replay(call.operation, key, call.body):
        return said(operation_view(call, first))
    if message.get("networkPolicies"):
        return said(operation_view(call, world.operate("create", None, (NUMBERS["internal"], "inline policies could not be attached"))))
    sandbox = sandbox_of(call, message)
    if any(s.name == sandbox.name for s in world.sandboxes.values()):
        raise Refusal("alreadyExists", "a sandbox of that name exists")
    world.admit(call.knob)
    operation = world.operate("create", sandbox)
    sandbox.spoil = call.turned.get("create_malformed") or ""
    world.keep(call.operation, key, call.body, operation)
    call.sandbox = sandbox.uid
    await world.create(sandbox, call.knob)
    if sandbox.settled.is_set():
        _settle(operation)
    else:
        world.later(_settle_later(operation))
    answer = said(operation_view(call, operation))
    if sandbox.spoil == "not_json":
        return Answer(200, b"<html>created</html>", kind="text/html")
    if sandbox.spoil == "huge_body":
        answer.body = answer.body[:-1] + b',"metadata":"' + b"x" * (8 << 20) + b'"}'
    return answer


async def _settle_later(operation: Operation) -> None:
    await operation.sandbox.settled.wait()
    _settle(operation)


def _settle(operation: Operation) -> None:
    sandbox = operation.sandbox
    if sandbox.status == "failed":
        operation.error = (NUMBERS[sandbox.failure["code"]], sandbox.failure["message"])
    elif sandbox.is_gone or sandbox.status == "deleting":
        operation.error = (NUMBERS["aborted"], "the sandbox was deleted")
    operation.done.set()


def sandbox_of(call: Call, message: dict) -> Sandbox:
    name, cloud, resources = message["name"], message.get("cloud", {}), message.get("resources")
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        raise Refusal("invalidArgument", "name is no name")
    if image := message.get("image"):
        if resources is not None or "imageRef" in cloud or "startCmd" in cloud:
            raise Refusal("invalidArgument", "resources, imageRef and startCmd are refused beside image")
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,128}", image):
            raise Refusal("invalidArgument", "image is no image's id")
        cpus, memory = 1, 2048
    else:
        if not cloud.get("imageRef"):
            raise Refusal("invalidArgument", "cloud.imageRef or image is required")
        if not resources or not resources.get("cpus"):
            raise Refusal("invalidArgument", "resources.cpus is required with an image reference")
        cpus, memory = size_of(resources["cpus"], whole_number(resources.get("memoryMib", 2048)))
    action = cloud.get("onTimeout", "ON_TIMEOUT_DELETE")
    if action not in ("ON_TIMEOUT_DELETE", "ON_TIMEOUT_STOP", 1, 2):
        raise Refusal("invalidArgument", f"onTimeout {action!r} is not known")
    platform = cloud.get("platform")
    if platform is not None and not (platform.get("os") and platform.get("architecture")):
        raise Refusal("invalidArgument", "platform needs os and architecture")
    timeout = ttl_of(cloud["timeout"], field_name="cloud.timeout") if "timeout" in cloud else TTL_DEFAULT
    reference = cloud.get("imageRef", "")
    return Sandbox(new_id("sbx_"), name, "connect", image_ref=reference, image_id=image or "", digest=digest_of(call, reference, image or ""), cpus=cpus,
                   memory=memory, platform=platform or {"os": "linux", "architecture": "amd64"}, labels=message.get("labels", {}),
                   environment=message.get("environment", {}), timeout=timeout, on_timeout="stop" if action in ("ON_TIMEOUT_STOP", 2) else "delete",
                   auto_resume=cloud.get("autoResume", False))


def referred(call: Call, reference: dict) -> Sandbox | None:
    """The sandbox a reference means: by id, or by name."""
    if not reference.get("id") and not reference.get("name"):
        raise Refusal("invalidArgument", "a sandbox reference is empty")
    if reference.get("id"):
        sandbox = call.world.find(reference["id"])
        return sandbox if sandbox and reference.get("name", sandbox.name) == sandbox.name else None
    return call.world.by_name(reference["name"])


async def get_sandbox(call: Call, message: dict) -> Answer:
    limited(call)
    sandbox = referred(call, message["sandbox"])
    if sandbox is None or call.world.read(sandbox) is None:
        raise Refusal("notFound", "sandbox not found")
    call.sandbox = sandbox.uid
    return said(seen(call, sandbox, False))


async def wait_operation(call: Call, message: dict) -> Answer:
    if call.knob("op_wait_unimplemented"):
        raise Refusal("unimplemented", "waiting is not served")
    operation = call.world.operations.get(message["id"])
    if operation is None:
        raise Refusal("notFound", "operation not found")
    call.sandbox = operation.sandbox.uid if operation.sandbox else ""
    wait = duration_seconds(message.get("timeout", "10s"))
    if wait is None:
        raise Refusal("invalidArgument", "timeout is no duration")
    if wait > WAIT_MAX:
        call.violation(f"WaitOperation for {message['timeout']}")
    if not operation.done.is_set():
        try:
            await asyncio.wait_for(operation.done.wait(), min(wait, WAIT_MAX))
        except asyncio.TimeoutError:
            pass
    return said(operation_view(call, operation))


async def get_operation(call: Call, message: dict) -> Answer:
    operation = call.world.operations.get(message["id"])
    if operation is None:
        raise Refusal("notFound", "operation not found")
    return said(operation_view(call, operation))


async def list_sandboxes(call: Call, message: dict) -> Answer:
    limited(call)
    rows, token = listed(call, message.get("pageSize", 0), message.get("pageToken", ""), "", "")
    answer: dict = {"sandboxes": [view(call, s) for s in rows]} if rows else {}
    if token:
        answer["nextPageToken"] = token
    return said(answer)


async def delete_sandbox(call: Call, message: dict) -> Answer:
    world, key = call.world, message["requestId"]
    if first := world.replay(call.operation, key, call.body):
        return said(operation_view(call, first))
    if call.counted("delete_fails"):
        if call.turned.get("in_operation"):
            return said(operation_view(call, world.operate("delete", None, (NUMBERS["internal"], "the deletion failed"))))
        raise Refusal(call.knob("code") or "internal", "the deletion failed", status=call.knob("delete_status"))
    sandbox = referred(call, message["sandbox"])
    if sandbox is None or world.read(sandbox) is None:
        if call.turned.get("in_operation"):
            return said(operation_view(call, world.operate("delete", None, (NUMBERS["notFound"], "sandbox not found"))))
        raise Refusal("notFound", "sandbox not found")
    call.sandbox = sandbox.uid
    world.account.count("delete", sandbox.uid)
    operation = world.operate("delete", sandbox)
    world.keep(call.operation, key, call.body, operation)
    if call.turned.get("delete_lies"):
        world.account.believe(sandbox.uid, GONE)
        operation.done.set()
    elif call.knob("delete_never"):
        await world.delete(sandbox, call.knob, "api")
    elif wait := call.knob("delete_ms"):
        sandbox.move("deleting")
        sandbox.is_stuck = True  # for as long
        world.later(_delete_later(call, operation, wait / 1000))
    else:
        await _delete(call, operation)
    return said(operation_view(call, operation))


async def _delete_later(call: Call, operation: Operation, wait: float) -> None:
    await asyncio.sleep(wait)
    operation.sandbox.status, operation.sandbox.is_stuck = "running", False
    await _delete(call, operation)


async def _delete(call: Call, operation: Operation) -> None:
    sandbox = operation.sandbox
    await call.world.delete(sandbox, lambda name: 0 if name == "delete_lag_reads" else call.knob(name), "api")
    call.world.account.believe(sandbox.uid, GONE)
    operation.done.set()


async def get_capabilities(call: Call, message: dict) -> Answer:
    held = call.knob("permissions")
    if held is None:
        held = ["PERMISSION_SANDBOXES_READ", "PERMISSION_SANDBOXES_CREATE", "PERMISSION_SANDBOXES_DELETE", "PERMISSION_NETWORK_POLICIES_READ"]
        if call.knob("enum_numbers"):
            held = [1, 2, 9, 18]
    answer = {"permissions": held, "canAttachPolicies": True, "resources": {"cpuMin": 1, "cpuMax": 16, "memoryMibMin": "2048", "memoryMibMax": "32768"}}
    if wrong := call.turned.get("capabilities"):
        answer.update(wrong)
    return said(answer)


async def get_effective_network_policy(call: Call, message: dict) -> Answer:
    if call.knob("policy_409"):
        raise Refusal("failedPrecondition", "installed network policy is unavailable")
    reference = message["target"].get("sandbox")
    sandbox = referred(call, reference) if reference else None
    if reference and sandbox is None:
        raise Refusal("notFound", "sandbox not found")
    if sandbox:
        call.sandbox = sandbox.uid
    mode, allow = call.world.rules(sandbox, call.knob)
    is_number = call.knob("enum_numbers")
    names = {"allowAll": 1 if is_number else "NETWORK_POLICY_MODE_ALLOW_ALL", "denyAll": 2 if is_number else "NETWORK_POLICY_MODE_DENY_ALL"}
    answer: dict = {"mode": names.get(mode, mode)}
    if allow:
        answer["allowNetworks"] = [{"network": n, "layer": "POLICY_LAYER_" + layer.upper()} for n, layer in allow]
    if missing := call.knob("policy_missing_field"):
        answer.pop(missing, None)
    return said(answer)


# -- a sandbox's own --


async def exec_command(call: Call, message: dict) -> Answer:
    if message.get("user") not in (None, "", "root", "user"):
        raise Refusal("invalidArgument", f"no user {message['user']!r}")
    ran = await running.run(call, running.running_sandbox(call), message, None)
    answer = running.ran_message(ran, base64_write)
    answer.pop("incomplete", None)
    return said(answer)


def stream(*frames: bytes) -> Answer:
    return Answer(200, b"".join(frames), kind="application/connect+json", is_stream=True)


def end_frame(wrong: Refusal | None = None) -> bytes:
    return frame({"error": wrong.body(True)} if wrong else {}, FLAG_END)


def files_of(frames: list[dict]) -> list[tuple[str, int, bytes]]:
    """The files of an upload's frames: a header, then its data; a file ends at the next header or with the body."""
    files: list[tuple[str, int, list[bytes]]] = []
    for n, message in enumerate(frames):
        if wrong := UPLOAD_FRAME(message, f"frame {n}"):
            raise Refusal("invalidArgument", wrong)
        if len(message) != 1:
            raise Refusal("invalidArgument", f"frame {n} is not one of header and data")
        if header := message.get("header"):
            files.append((header["path"], header.get("mode", 0) & 0o777 or 0o644, []))
            continue
        data = base64_read(message["data"])
        if not files:
            raise Refusal("invalidArgument", "data before a header")
        if len(data) > DATA_MAX:
            raise Refusal("resourceExhausted", f"a data frame of {len(data)} bytes")
        files[-1][2].append(data)
    return [(path, mode, b"".join(parts)) for path, mode, parts in files]


async def upload(call: Call, message: dict) -> Answer:
    files = files_of(frames_read(call.body))
    if not files:
        raise Refusal("invalidArgument", "no file")
    written = await running.store(call, running.running_sandbox(call), files, parents=False)
    turned = call.turned
    body = [] if turned.get("no_message") else [frame({"filesWritten": written} if written else {})]
    return _ended(call, body)


async def download(call: Call, message: dict) -> Answer:
    frames = frames_read(call.body)
    if len(frames) != 1 or (wrong := DOWNLOAD_FRAME(frames[0], "request")):
        raise Refusal("invalidArgument", "one frame with paths is expected" if len(frames) != 1 else wrong)
    body: list[bytes] = []
    for path, held in await running.fetch(call, running.running_sandbox(call), frames[0]["paths"]):
        if isinstance(held, Refusal):
            body.append(frame({"error": {"path": path, "failure": held.body(True)}}))
            continue
        mode, data = held
        if call.turned.get("content_before_metadata"):
            body.append(frame({"data": base64_write(b"x")}))
        body.append(frame({"header": {"path": path, "mode": mode}}))
        body += [frame({"data": base64_write(data[at:at + DATA_MAX])}) for at in range(0, len(data), DATA_MAX)]
    if call.turned.get("unrequested_path"):
        body += [frame({"header": {"path": "/etc/passwd", "mode": 0o644}}), frame({"data": base64_write(b"x")})]
    return _ended(call, body)


def _ended(call: Call, body: list[bytes]) -> Answer:
    """The end of an answer stream, and what a rule puts before or in place of it."""
    turned = call.turned
    if turned.get("unknown_part"):
        body.append(frame({"surprise": "x"}))
    if turned.get("compressed_frame"):
        body.append(frame(b"{}", FLAG_COMPRESSED))
    if turned.get("oversize_frame"):
        body.append(b"\0" + (FRAME_MAX + 1).to_bytes(4, "big") + b" " * 65536)
    if turned.get("truncate_stream"):
        return stream(*body)
    if turned.get("stream_error"):
        return stream(*body, end_frame(Refusal("internal", "the stream failed")))
    return stream(*body, end_frame())


HANDLERS = {"CreateSandbox": create_sandbox, "GetSandbox": get_sandbox, "ListSandboxes": list_sandboxes, "DeleteSandbox": delete_sandbox,
            "WaitOperation": wait_operation, "GetOperation": get_operation, "GetCapabilities": get_capabilities,
            "GetEffectiveNetworkPolicy": get_effective_network_policy, "Exec": exec_command, "Upload": upload, "Download": download}


async def handle(call: Call) -> Answer:
    if not call.operation:
        call.violation(f"no such procedure: {call.request.path}")
        return Answer(404, b"404 page not found\n", kind="text/plain")
    judge_head(call)
    try:
        running.management(call)
        if call.operation in STREAMS:
            return await _in_time(call, HANDLERS[call.operation](call, {}))
        message = json_read(call.body)
        if wrong := MESSAGES[call.operation](message, call.operation):
            call.violation(wrong)
            raise Refusal("invalidArgument", wrong)
        return await _in_time(call, HANDLERS[call.operation](call, message))
    except Refusal as wrong:
        # a stream's status is 200 even when it fails: its end frame says so
        if call.operation in STREAMS:
            return stream(end_frame(wrong))
        raise


async def _in_time(call: Call, work) -> Answer:
    """A conforming server keeps the client's own deadline."""
    left = call.request.headers.get("Connect-Timeout-Ms")
    if left is None:
        return await work
    try:
        return await asyncio.wait_for(work, int(left) / 1000)
    except asyncio.TimeoutError:
        raise Refusal("deadlineExceeded", "the request's own deadline passed") from None
