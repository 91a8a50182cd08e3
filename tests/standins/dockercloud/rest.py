"""The REST API: management routes under /rest, a sandbox's own under /ep/{uid}. Section numbers are those of the backend's specification."""
import base64
import fnmatch
import hashlib
import secrets

from . import files, multipart, running
from .facts import OPERATIONS, wrong_with
from .server import Answer, Call, said
from .wire import (Refusal, bad_request, base64_write, duration_seconds, duration_text, etag_mismatch, json_read, json_write, time_text,
                   whole_number)
from .world import CREDENTIAL_LIFE, TTL_DEFAULT, Sandbox, new_id, size_of, ttl_of

CAPABILITIES = ["exec", "upload", "download", "list", "mkdir", "move", "readFile", "remove", "stat", "writeFile"]
NOT_SERVED = ("agent", "kits", "mcp", "displayNamePrefix", "policyIds")
STEPS = {"createSandbox": "create", "listSandboxes": "list", "getSandbox": "read", "deleteSandbox": "delete", "createEndpointCredential": "mint",
         "getNetworkPolicies": "policy", "getNetworkPoliciesInOwnerScope": "account_policy", "exec": "exec", "upload": "upload", "download": "download"}
PAGE_DEFAULT, PAGE_MAX = 25, 100
ROUTES: dict[tuple[str, bool, tuple], str] = {}
for _name, _operation in OPERATIONS.items():
    _shape = tuple("*" if s.startswith("{") else s for s in _operation["path"].strip("/").split("/"))
    ROUTES[_operation["method"], _operation["surface"] == "sandboxEndpoint", _shape] = _name


def route(method: str, segments: list[str], is_endpoint: bool) -> tuple[str, str]:
    """(operation, sandbox of the path) of a request; empty for a route that is not served."""
    shape = tuple(segments)
    if operation := ROUTES.get((method, is_endpoint, shape)):
        return operation, ""
    if not is_endpoint and len(segments) >= 3 and segments[1] == "sandboxes" and segments[2]:
        if operation := ROUTES.get((method, is_endpoint, (*shape[:2], "*", *shape[3:]))):
            return operation, segments[2]
    return "", ""


def judge_request(call: Call) -> dict:
    """Headers, query and body as the document has them. The body's message comes back."""
    facts, request = OPERATIONS[call.operation], call.request
    accepted = facts.get("headers", {})
    if "Idempotency-Key" in request.headers and "Idempotency-Key" not in accepted:
        call.violation(f"{call.operation} takes no Idempotency-Key")
    for name in accepted:
        if accepted[name] and name == "Idempotency-Key" and not request.headers.get(name):
            raise Refusal("invalidArgument", "Idempotency-Key is required", bad_request("idempotencyKey", "required"))
    _judge_query(call, facts.get("query", {}))
    schema = facts.get("request")
    if schema is None:
        if call.body and call.operation not in ("upload", "writeFile"):
            call.violation(f"{call.operation} takes no body")
        return {}
    if not call.body and facts.get("optionalBody"):
        return {}
    if request.content_type != "application/json":
        call.violation(f"{call.operation}: content type {request.headers.get('Content-Type')}")
        raise Refusal("invalidArgument", "the content type is not application/json")
    message = json_read(call.body)
    if wrong := wrong_with(schema, message):
        call.violation(f"{call.operation}: {wrong}")
        raise Refusal("invalidArgument", wrong, bad_request(wrong.split(" ")[0], wrong))
    return message


def _judge_query(call: Call, known: dict) -> None:
    query = call.request.query
    for name in query:
        if name not in known:
            call.violation(f"{call.operation} has no query parameter {name}")
            raise Refusal("invalidArgument", f"query parameter {name} is not known")
    for name, kind in known.items():
        values = query.getall(name, [])
        if kind.endswith("!") and not any(values):
            raise Refusal("invalidArgument", f"query parameter {name} is required")
        if len(values) > 1 and not kind.startswith("strings"):
            raise Refusal("invalidArgument", f"query parameter {name} stands twice")
        if values and kind == "boolean" and values[0] not in ("true", "false"):
            raise Refusal("invalidArgument", f"query parameter {name} is no boolean")
        if values and kind == "integer" and not values[0].isdecimal():
            raise Refusal("invalidArgument", f"query parameter {name} is no number")


# -- what a sandbox looks like --


def endpoint_view(world, sandbox: Sandbox) -> dict:
    return {"uri": f"{world.base_url}/ep/{sandbox.uid}", "protocol": "http", "credentialAudience": f"sandbox:{sandbox.uid}",
            "sandbox": f"sandboxes/{sandbox.uid}", "sandboxUid": sandbox.uid, "apiVersion": "v1", "capabilities": list(CAPABILITIES),
            "authentication": {"scheme": "scopedBearer", "defaultTtl": "300s", "maxTtl": "300s", "credentialTransports": ["authorizationHeader"]}}


def view(world, sandbox: Sandbox) -> dict:
    core = {"status": sandbox.status, "createdAt": time_text(sandbox.created_at), "etag": sandbox.etag}
    if sandbox.cpus:
        core["resources"] = {"cpus": sandbox.cpus, "memoryMib": str(sandbox.memory)}
    for name, value in (("imageRef", sandbox.image_ref), ("image", sandbox.image_id and f"images/{sandbox.image_id}"), ("platform", sandbox.platform),
                        ("labels", sandbox.labels), ("environment", sandbox.environment)):
        if value:
            core[name] = value
    if sandbox.place is not None or sandbox.is_stuck:
        core["endpoint"] = endpoint_view(world, sandbox)
    features: dict = {"lifecycle": {"stopMemoryOutcome": "discard"}, "outputRetention": {"minBytes": "65536"}}
    if sandbox.timeout is not None:
        features["timeouts"] = timeouts = {"onTimeout": sandbox.on_timeout, "initialTimeout": duration_text(sandbox.timeout)}
        if sandbox.auto_resume:
            timeouts["autoResume"] = True
        if sandbox.on_timeout in ("delete", "stop"):
            timeouts["resumeTimeout"] = duration_text(sandbox.timeout)
        if sandbox.deadline is not None:
            timeouts["expiresAt"] = time_text(world.wall() + (sandbox.deadline - world.mono()) * world.account.clock.ttl_speed)
    shown = {"uid": sandbox.uid, "name": f"sandboxes/{sandbox.uid}", "core": core, "effectiveFeatures": features}
    if sandbox.name:
        shown["displayName"] = sandbox.name
    if sandbox.failure:
        shown["failure"] = sandbox.failure
    return shown


def spoiled(shown: dict, kind: str) -> dict:
    """A view as a `create_malformed` rule wants it."""
    kind, _, detail = kind.partition(":")
    core = shown["core"]
    endpoint = core.get("endpoint", {})
    match kind:
        case "no_uid":
            shown.pop("uid")
        case "hostile_uid":
            shown["uid"] = detail or "../../v1/sandboxes?x=\r\nX-Injected: 1"
        case "wrong_uid_name":
            shown["name"] = "sandboxes/another"
        case "wrong_name":
            shown["displayName"] = "gw-another-run"
        case "no_endpoint":
            core.pop("endpoint", None)
        case "http_endpoint_offhost" if endpoint:
            endpoint["uri"] = detail or "http://198.51.100.7/ep"
        case "unix_endpoint" if endpoint:
            endpoint.update(protocol="unixSocket", uri="unix:///run/sandbox.sock", credentialAudience="", authentication={"scheme": "localSocket"})
        case "endpoint_missing_cap" if endpoint:
            endpoint["capabilities"] = [c for c in CAPABILITIES if c != detail]
        case "wrong_endpoint_uid" if endpoint:
            endpoint["sandboxUid"] = "another"
        case "wrong_scheme" if endpoint:
            endpoint["authentication"]["scheme"] = "openBar"
        case "wrong_image" | "wrong_digest":
            core["imageRef"] = "registry.example/other@sha256:" + "0" * 64
        case "no_digest":
            core["imageRef"] = core.get("imageRef", "").partition("@")[0]
        case "no_resources":
            core.pop("resources", None)
        case "bigger_size":
            core["resources"] = {"cpus": 16, "memoryMib": "32768"}
        case "wrong_ttl":
            shown["effectiveFeatures"]["timeouts"] = {"onTimeout": "stop", "autoResume": True, "initialTimeout": "86400s"}
        case "bad_etag":
            core["etag"] = '"a\r\nX-Injected: 1"'
    return shown


ONLY_ONCE = ("no_uid", "hostile_uid", "wrong_uid_name", "wrong_name", "not_json", "huge_body")  # what a read of the same sandbox does not show again


def shown(call: Call, sandbox: Sandbox, status: int = 200) -> Answer:
    seen = view(call.world, sandbox)
    if sandbox.spoil and sandbox.spoil.partition(":")[0] not in ONLY_ONCE:
        seen = spoiled(seen, sandbox.spoil)
    return said(seen, status, etag=seen["core"]["etag"].replace("\r\n", ""))


# -- management --


async def create_sandbox(call: Call, message: dict) -> Answer:
    world = call.world
    key = call.request.headers.get("Idempotency-Key")
    if key and (first := world.replay(call.operation, key, call.body)):
        return Answer(first.status, first.body, first.headers)
    sandbox = sandbox_of(call, message)
    if call.knob("unique_names") and any(s.name == sandbox.name for s in world.sandboxes.values()):
        raise Refusal("alreadyExists", "a sandbox of that display name exists")
    world.admit(call.knob)
    await world.create(sandbox, call.knob)
    call.sandbox = sandbox.uid
    malformed = call.turned.get("create_malformed")
    if malformed:
        sandbox.spoil = malformed
    answer = shown(call, sandbox, 202 if sandbox.status == "creating" else 201)
    if key:
        world.keep(call.operation, key, call.body, answer)
    if malformed == "not_json":
        return Answer(201, b"<html>created</html>", kind="text/html")
    if malformed == "huge_body":
        return Answer(answer.status, answer.body[:-1] + b',"origin":"' + b"x" * (8 << 20) + b'"}', answer.headers)
    if malformed in ONLY_ONCE or malformed and malformed.partition(":")[0] in ONLY_ONCE:
        answer.body = json_write(spoiled(view(world, sandbox), malformed))
    return answer


def sandbox_of(call: Call, message: dict) -> Sandbox:
    """The sandbox a create asks for; a Refusal before anything has an effect."""
    for name in NOT_SERVED:
        if message.get(name):
            raise Refusal("unimplemented", f"{name} is not served here")
    if message.get("displayName") and message.get("displayNamePrefix"):
        raise Refusal("invalidArgument", "displayName and displayNamePrefix exclude each other")
    if message.get("networkPolicies"):
        raise Refusal("failedPrecondition", "the account's default policy governs: inline network policies are refused")
    if not message.get("imageRef") and not message.get("image"):
        raise Refusal("invalidArgument", "imageRef or image is required", bad_request("imageRef", "required"))
    resources = message.get("resources") or {}
    cpus, memory = resources.get("cpus"), whole_number(resources.get("memoryMib"))
    if message.get("image"):
        if resources:
            raise Refusal("invalidArgument", "a managed image supplies its own size", bad_request("resources", "not allowed beside image"))
        cpus, memory = 1, 2048
    elif cpus is None:
        raise Refusal("invalidArgument", "resources.cpus is required with an image reference", bad_request("resources.cpus", "required"))
    else:
        cpus, memory = size_of(cpus, memory)
    platform = message.get("platform")
    if platform is not None and not (platform.get("os") and platform.get("architecture")):
        raise Refusal("invalidArgument", "platform needs os and architecture", bad_request("platform", "incomplete"))
    argv = message.get("startupExecution", {}).get("rawImage", {}).get("start", {}).get("argv")
    if argv is not None and not argv[0]:
        raise Refusal("invalidArgument", "the start command's name is empty")
    features = message.get("features", {})
    if features.get("managedVolumes") or features.get("storedSecrets"):
        raise Refusal("unimplemented", "volumes and secrets are not served here")
    timeout, action, resume = None, "delete", False
    if (wanted := features.get("timeouts")) is not None:
        action = wanted.get("onTimeout") or "delete"
        timeout = ttl_of(wanted["timeout"], field_name="timeout") if "timeout" in wanted else TTL_DEFAULT
        if action in ("restart", "keep") and timeout < 3600:
            raise Refusal("invalidArgument", "a restart's timeout is an hour at least")
        resume = bool(wanted.get("autoResume"))
    reference = message.get("imageRef", "")
    return Sandbox(new_id("sbx_"), message.get("displayName") or new_id("sandbox-"), "rest", image_ref=reference,
                   image_id=message.get("image", "").removeprefix("images/"), digest=digest_of(call, reference, message.get("image", "")), cpus=cpus,
                   memory=memory, platform=platform or {"os": "linux", "architecture": "amd64"}, labels=message.get("labels", {}),
                   environment=message.get("environment", {}), timeout=timeout, on_timeout=action, auto_resume=resume)


def digest_of(call: Call, reference: str, image: str) -> str:
    """The manifest that boots: the pinned one, the one a knob names, or one made up from the reference."""
    if digest := call.knob("image_digest"):
        return digest
    pinned = reference.partition("@")[2]
    return pinned if pinned.startswith("sha256:") else "sha256:" + hashlib.sha256((reference or image).encode()).hexdigest()


def found(call: Call) -> Sandbox:
    sandbox = call.world.find(call.sandbox)
    if sandbox is None:
        raise Refusal("notFound", "sandbox not found")
    return sandbox


async def get_sandbox(call: Call, message: dict) -> Answer:
    limited(call)
    sandbox = call.world.read(found(call))
    if sandbox is None:
        raise Refusal("notFound", "sandbox not found")
    wanted = call.request.headers.get("If-None-Match")
    if wanted and sandbox.etag in [w.strip().removeprefix("W/") for w in wanted.split(",")]:
        return Answer(304)
    return shown(call, sandbox)


def limited(call: Call) -> None:
    if call.counted("rate_limit_reads"):
        raise too_many(call)


def too_many(call: Call) -> Refusal:
    after = call.knob("retry_after")
    return Refusal("resourceExhausted", "too many requests", *([] if after is not None else [{"@type": "type.googleapis.com/google.rpc.RetryInfo",
                   "retryDelay": "0.05s"}]), headers={"Retry-After": str(after)} if after is not None else {})


def precondition(call: Call, sandbox: Sandbox) -> None:
    """If-Match has to be the tag of the last read, in full."""
    tag = call.request.headers.get("If-Match")
    if not tag or tag == "*":
        raise Refusal("failedPrecondition", "etag_required: no precondition was sent", status=428)
    if call.counted("delete_stale_once"):
        sandbox.version += 1
    if tag != sandbox.etag:
        raise Refusal("failedPrecondition", "etag_mismatch: not the current etag", etag_mismatch(sandbox.etag), status=412)


async def delete_sandbox(call: Call, message: dict) -> Answer:
    world, sandbox = call.world, call.world.find(call.sandbox)
    tag = call.request.headers.get("If-Match")
    if not tag or tag == "*":
        raise Refusal("failedPrecondition", "etag_required: no precondition was sent", status=428)
    key = call.request.headers.get("Idempotency-Key")
    whole = (tag + call.request.query_string).encode()
    if key and (first := world.replay(call.operation, key, whole)):
        return first
    if call.counted("delete_fails"):
        raise Refusal(call.knob("code") or "internal", "the deletion failed", status=call.knob("delete_status"))
    if sandbox is None or world.read(sandbox) is None:
        return Answer(204)
    if sandbox.status == "deleting":
        return shown(call, sandbox, 202)
    precondition(call, sandbox)
    world.account.count("delete", sandbox.uid)
    if call.turned.get("delete_lies"):
        return Answer(204)
    await world.delete(sandbox, call.knob, "api")
    answer = Answer(204) if sandbox.is_gone else shown(call, sandbox, 202)
    if key:
        world.keep(call.operation, key, whole, answer)
    return answer


async def update_sandbox(call: Call, message: dict) -> Answer:
    sandbox, key = found(call), call.request.headers["Idempotency-Key"]
    whole = call.body + call.request.headers.get("If-Match", "").encode()
    if first := call.world.replay(call.operation, key, whole):
        return first
    precondition(call, sandbox)
    if not message["displayName"]:
        raise Refusal("invalidArgument", "displayName is required")
    sandbox.name = message["displayName"]
    sandbox.version += 1
    answer = shown(call, sandbox)
    call.world.keep(call.operation, key, whole, answer)
    return answer


async def start_sandbox(call: Call, message: dict) -> Answer:
    return await turn(call, "stopped", call.world.start, "running")


async def stop_sandbox(call: Call, message: dict) -> Answer:
    return await turn(call, "running", call.world.stop, "stopped")


async def turn(call: Call, from_status: str, way, to_status: str) -> Answer:
    """Starts or stops, once for each key; one that is there already is left as it is."""
    sandbox, world = found(call), call.world
    key, whole = call.request.headers.get("Idempotency-Key"), call.request.headers.get("If-Match", "").encode()
    if key and (first := world.replay(call.operation, key, whole)):
        return first
    precondition(call, sandbox)
    if sandbox.status == from_status:
        await way(sandbox)
    elif sandbox.status != to_status:
        raise Refusal("failedPrecondition", f"sandbox is {sandbox.status}")
    answer = shown(call, sandbox)
    if key:
        world.keep(call.operation, key, whole, answer)
    return answer


async def renew_sandbox_timeout(call: Call, message: dict) -> Answer:
    if call.knob("renew_unimplemented"):
        raise Refusal("unimplemented", "renewal is not served")
    sandbox, world = found(call), call.world
    if sandbox.deadline is None:
        raise Refusal("failedPrecondition", "no deadline is armed")
    seconds = ttl_of(message["timeout"], field_name="timeout")
    if world.mono() + seconds / world.account.clock.ttl_speed < sandbox.deadline:
        raise Refusal("failedPrecondition", "a renewal only extends")
    world.arm(sandbox, seconds)
    sandbox.version += 1
    return shown(call, sandbox)


async def list_sandboxes(call: Call, message: dict) -> Answer:
    limited(call)
    query = call.request.query
    rows, token = listed(call, int(query.get("pageSize") or 0), query.get("pageToken", ""), query.get("filter", ""), query.get("orderBy", ""))
    answer: dict = {"sandboxes": [view(call.world, s) for s in rows]} if rows else {}
    if token:
        answer["nextPageToken"] = token
    return said(answer)


def listed(call: Call, size: int, token: str, wanted: str, order: str) -> tuple[list[Sandbox], str]:
    """One page, and the token of the next. A token holds for the same query alone."""
    world = call.world
    size = min(size or PAGE_DEFAULT, PAGE_MAX)
    if forced := call.knob("list_page_size"):
        size = min(size, forced)
    terms = []
    for term in filter(None, wanted.split(",")):
        name, equals, value = term.partition("=")
        if not equals or name not in ("name", "display_name", "uid", "status", "agent"):
            raise Refusal("invalidArgument", f"filter term {term!r} is not known")
        terms.append((name, value))
    field_name, _, direction = order.partition(" ")
    if field_name not in ("", "created_at", "name") or direction not in ("", "asc", "desc"):
        raise Refusal("invalidArgument", f"order {order!r} is not known")
    query = hashlib.sha256(f"{size}|{wanted}|{order}".encode()).hexdigest()[:12]
    start, empty = 0, int(call.knob("list_pages") or 0)
    if token:
        try:
            of, start_text, empty_text = base64.urlsafe_b64decode(token.encode()).decode().split(":")
            start, empty = int(start_text), int(empty_text)
        except ValueError:
            raise Refusal("invalidArgument", "pageToken is not known") from None
        if of != query:
            call.violation("a pageToken with another query than the one it came from")
            raise Refusal("invalidArgument", "pageToken is another query's")
    next_token = lambda at, left: base64.urlsafe_b64encode(f"{query}:{at}:{left}".encode()).decode()  # noqa: E731
    if empty > 1:
        return [], next_token(start, empty - 1)
    rows = [s for s in world.visible() if matches(s, terms) and not fnmatch.fnmatchcase(s.name, call.knob("list_hide"))]
    rows.sort(key=(lambda s: s.uid) if field_name == "name" else (lambda s: (s.created_at, s.uid)), reverse=direction == "desc")
    page = rows[start:start + size]
    return [s for s in page if world.read(s)], next_token(start + size, 0) if start + size < len(rows) else ""


def matches(sandbox: Sandbox, terms: list[tuple[str, str]]) -> bool:
    own = {"name": f"sandboxes/{sandbox.uid}", "display_name": sandbox.name, "uid": sandbox.uid, "status": sandbox.status, "agent": ""}
    return all(own[name] == value for name, value in terms)


async def create_endpoint_credential(call: Call, message: dict) -> Answer:
    if call.counted("mint_limited"):
        raise too_many(call)
    sandbox, world = found(call), call.world
    if sandbox.status == "deleting":
        raise Refusal("notFound", "sandbox not found")
    wanted = duration_seconds(message["ttl"]) if "ttl" in message else CREDENTIAL_LIFE
    life = min(max(wanted if wanted is not None else 0.0, 1.0), CREDENTIAL_LIFE)
    if short := call.knob("credential_life_ms"):
        life = short / 1000
    world.account.count("mint", sandbox.uid)
    permissions = [p for p in message["permissions"] if p not in (call.turned.get("mint_without") or ())]
    token, _ = world.mint(sandbox, permissions, life)
    answer = {"token": token, "expireTime": time_text(world.wall() + life + (call.knob("clock_skew_ms") or 0) / 1000),
              "permissions": permissions, "sandbox": f"sandboxes/{sandbox.uid}", "audience": f"sandbox:{sandbox.uid}"}
    if wrong := call.turned.get("mint_wrong"):
        answer.update(wrong)
    return said(answer, Cache_Control="no-store")


def exact_of(mode: str, allow: list[tuple[str, str]], revision: str) -> dict:
    """The effective rules as the expression that is installed; its last node decides."""
    origin = {"org": "organization"}
    if mode == "allowAll":
        nodes: list[dict] = [{"constant": "true", "source": {"origin": "owner", "id": "account"}}]
    else:
        nodes = [{"constant": "false", "source": {"origin": "owner", "id": "account"}}]
        for network, layer in allow:
            host, _, port = network.rpartition(":") if ":" in network else (network, "", "")
            nodes.append({"destination": {"kind": "dns", "value": host, **({"port": int(port)} if port.isdecimal() else {})},
                          "source": {"origin": origin.get(layer, layer), "id": f"{layer}-rule"}})
        if allow:
            nodes.append({"any": {"nodes": list(range(len(nodes)))}})
    return {"revision": revision, "selectorVersion": "destination.v1", "nodes": nodes}


async def get_network_policies(call: Call, message: dict) -> Answer:
    limited(call)
    sandbox = found(call) if call.operation == "getNetworkPolicies" else None
    if call.knob("policy_409") or sandbox is not None and sandbox.put_rules is not None:
        raise Refusal("failedPrecondition", "installed network policy is unavailable")
    mode, allow = call.world.rules(sandbox, call.knob)
    effective: dict = {"mode": mode}
    if allow:
        effective["allowNetworks"] = [{"network": n, "layer": layer} for n, layer in allow]
    answer = {"effective": effective, "exact": exact_of(mode, allow, hashlib.sha256(repr((mode, allow)).encode()).hexdigest()[:16])}
    if missing := call.knob("policy_missing_field"):
        answer.pop(missing, None)
        effective.pop(missing, None)
    return said(answer)


async def list_policy_log_entries(call: Call, message: dict) -> Answer:
    return said({})


# -- a sandbox's own --


async def exec_command(call: Call, message: dict) -> Answer:
    if message.get("user") not in (None, "", "root", "user"):
        raise Refusal("invalidArgument", f"no user {message['user']!r}")
    ran = await running.run(call, running.running_sandbox(call), message, call.credential.expires)
    return said(running.ran_message(ran, base64_write))


async def upload(call: Call, message: dict) -> Answer:
    sent = multipart.upload_read(call.body, call.request.headers.get("Content-Type", ""))
    written = await running.store(call, running.running_sandbox(call), sent, parents=True)
    return said({"filesWritten": written} if written else {})


async def download(call: Call, message: dict) -> Answer:
    paths = call.request.query.getall("paths")
    found_files = await running.fetch(call, running.running_sandbox(call), paths)
    boundary, quoted, turned = secrets.token_hex(16), bool(call.knob("quoted_parts")), call.turned
    parts = []
    for path, held in found_files:
        if isinstance(held, Refusal):
            parts.append(multipart.part(boundary, "error", {"path": path, "failure": held.body(False)}, quoted))
            continue
        mode, data = held
        if turned.get("content_before_metadata"):
            parts.append(multipart.part(boundary, "content", data, quoted))
        parts.append(multipart.part(boundary, "metadata", {"path": path, "mode": mode}, quoted))
        parts.append(multipart.part(boundary, "content", data, quoted))
    if turned.get("unknown_part"):
        parts.append(multipart.part(boundary, "surprise", b"x", quoted))
    if turned.get("unrequested_path"):
        parts += [multipart.part(boundary, "metadata", {"path": "/etc/passwd", "mode": 0o644}, quoted), multipart.part(boundary, "content", b"x", quoted)]
    if turned.get("oversize_frame"):
        parts += [multipart.part(boundary, "metadata", {"path": paths[0], "mode": 0o644}, quoted), multipart.part(boundary, "content", b"\0" * (32 << 20), quoted)]
    if turned.get("stream_error"):
        parts.append(multipart.part(boundary, "stream-error", {"code": "internal", "message": "the stream failed"}, quoted))
    body = b"".join(parts) + (b"" if turned.get("truncate_stream") else multipart.closing(boundary))
    return Answer(200, body, {}, kind=f"multipart/mixed; boundary={boundary}", is_stream=True)


HANDLERS = {"createSandbox": create_sandbox, "listSandboxes": list_sandboxes, "getSandbox": get_sandbox, "deleteSandbox": delete_sandbox,
            "updateSandbox": update_sandbox, "startSandbox": start_sandbox, "stopSandbox": stop_sandbox, "renewSandboxTimeout": renew_sandbox_timeout,
            "createEndpointCredential": create_endpoint_credential, "getNetworkPolicies": get_network_policies,
            "getNetworkPoliciesInOwnerScope": get_network_policies, "listPolicyLogEntries": list_policy_log_entries,
            "listPolicyLogEntriesInOwnerScope": list_policy_log_entries, "exec": exec_command, "upload": upload, "download": download, **files.HANDLERS}


async def handle(call: Call) -> Answer:
    try:
        return await admitted(call)
    except Refusal as wrong:
        if "Cache-Control" in OPERATIONS.get(call.operation, {}).get("errorHeaders", ()):
            wrong.headers["Cache-Control"] = "no-store"
        raise


async def admitted(call: Call) -> Answer:
    """Whoever may ask, and asks in the document's form, is heard."""
    if not call.operation:
        call.violation(f"no such route: {call.request.method} {call.request.path}")
        if call.knob("unserved_html"):
            return Answer(404, b"<html><body>404 page not found</body></html>", kind="text/html")
        raise Refusal("notFound", "not found")
    facts = OPERATIONS[call.operation]
    if facts["surface"] == "sandboxEndpoint":
        call.credential = running.endpoint_credential(call, facts["permissions"][0])
    else:
        running.management(call)
        held = call.knob("permissions")
        if held is not None and not set(facts["permissions"]) <= set(held):
            raise Refusal("permissionDenied", f"the caller lacks {facts['permissions'][0]}")
    return await HANDLERS[call.operation](call, judge_request(call))

