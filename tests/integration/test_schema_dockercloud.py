"""The Docker Cloud stand-in against Docker's published OpenAPI document (the facts kept of it: standins/dockercloud/docker-sandboxes-v1.json).

The judge here is the `jsonschema` package: over the facts themselves, over the published examples, over what the stand-in's own reading of a request
accepts, and over every answer that the stand-in gives."""
import asyncio
import copy
import json
import pathlib
import re
import sys

import aiohttp
import jsonschema
import pytest

from clouds import ROOT, DockercloudStandin
from dockercloud_clients import Refused, Rest, parts, wrapped

sys.path.insert(0, str(ROOT / "tests"))
from standins.dockercloud.facts import wrong_with  # noqa: E402

FACTS = json.loads((ROOT / "tests/standins/dockercloud/docker-sandboxes-v1.json").read_text())
OPERATIONS, EXAMPLES = FACTS["operations"], FACTS["examples"]
REQUESTS = sorted({o["request"] for o in OPERATIONS.values() if "request" in o})
STATUS_OF = {"invalidArgument": {400}, "unauthenticated": {401}, "permissionDenied": {403}, "notFound": {404}, "alreadyExists": {409}, "failedPrecondition": {409, 412, 428},
             "aborted": {409}, "resourceExhausted": {429}, "unimplemented": {501}, "internal": {500}, "unavailable": {503}}
# Examples of the document that its own schemas refuse: they leave out what is required (core.createdAt, core.etag; what a policy's node is).
UNFIT = {("createSandbox", "202"), ("deleteSandbox", "202"), ("getNetworkPolicies", "200")}


def judge(name):
    return jsonschema.Draft202012Validator({"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": FACTS["$defs"], "$ref": f"#/$defs/{name}"})


# -- the facts --


def test_the_facts_are_schemas_and_lead_somewhere():
    assert FACTS["about"]["version"] == "v1" and len(OPERATIONS) == 23
    for name, schema in FACTS["$defs"].items():
        jsonschema.Draft202012Validator.check_schema(schema)
        for target in re.findall(r'"#/\$defs/(\w+)"', json.dumps(schema)):
            assert target in FACTS["$defs"], f"{name} refers to {target}"
    for name, operation in OPERATIONS.items():
        used = [operation.get("request")] + [a and a["schema"] for a in operation["answers"].values()]
        assert all(u in FACTS["$defs"] for u in used if u), name


@pytest.mark.parametrize("operation, status", [(o, s) for o, answers in EXAMPLES["answers"].items() for s in answers])
def test_published_answers_fit_their_schemas(operation, status):
    example, schema = EXAMPLES["answers"][operation][status], OPERATIONS[operation]["answers"][status]["schema"]
    assert judge(schema).is_valid(example) == (wrong_with(schema, example) is None) == ((operation, status) not in UNFIT)


@pytest.mark.parametrize("operation", EXAMPLES["requests"])
def test_published_requests_fit_their_schemas(operation):
    schema = OPERATIONS[operation]["request"]
    if operation == "createSandbox":
        # the example's kit has neither of the artifact's required forms
        assert not judge(schema).is_valid(EXAMPLES["requests"][operation])
        example = copy.deepcopy(EXAMPLES["requests"][operation])
        example["kits"][0]["artifact"]["inline"] = ""
    else:
        example = EXAMPLES["requests"][operation]
    judge(schema).validate(example)
    assert wrong_with(schema, example) is None


def test_the_published_error_fits():
    judge("Error").validate(EXAMPLES["errors"]["any"])
    assert wrong_with("Error", EXAMPLES["errors"]["any"]) is None


# -- the stand-in's reading of a request --


def mutants(value):
    """The value with one thing wrong (or not) at each place: a field gone, one more, another type, an empty or an odd one."""
    odd = [None, True, 0, -1, 1.5, 1.0, 65536, "", "x", "300s", "a/b", "images/x", "denyAll", [], ["x"], ["", ""], {}, {"colour": 1}]

    def at(path, change):
        made = copy.deepcopy(value)
        here = made
        for step in path[:-1]:
            here = here[step]
        change(here, path[-1])
        return made

    def walk(here, path):
        if path:
            for other in odd:
                yield at(path, lambda h, k, o=other: h.__setitem__(k, o))
            yield at(path, lambda h, k: h.pop(k))
        if isinstance(here, dict):
            yield at([*path, "colour"], lambda h, k: h.__setitem__(k, 1))
            for k, inner in here.items():
                yield from walk(inner, [*path, k])
        elif isinstance(here, list):
            for n, inner in enumerate(here):
                yield from walk(inner, [*path, n])
    yield from walk(value, [])
    yield from odd


BODIES = {
    "CreateSandboxRequest": {**{k: v for k, v in EXAMPLES["requests"]["createSandbox"].items() if k not in ("kits", "image")}, "imageRef": "x", "labels": {"a": "b"},
                             "kits": [{"artifact": {"ref": {"ref": "k", "kind": "mixin"}, "inline": ""}}]},
    "UpdateSandboxRequest": {"displayName": "a"}, "EmptyRequest": {}, "RenewSandboxTimeoutRequest": {"timeout": "1.5s"},
    "CreateEndpointCredentialRequest": {"permissions": ["sandboxesExec", "sandboxesFilesRead"], "ttl": "300s"},
    "ExecRequest": {"cmd": ["a", ""], "env": {"A": "b"}, "workingDir": "/", "user": ""}, "FilesMkdirRequest": {"path": "/a", "mode": 493, "parents": True},
    "FilesMoveRequest": {"from": "/a", "to": "/b"}, "FileHeader": {"path": "/a", "mode": 420},
    "Sandbox": {"uid": "u", "name": "sandboxes/u", "displayName": "n", "core": {"status": "running", "createdAt": "2026-01-02T03:04:05Z", "etag": '"x"', "imageRef": "r",
                "resources": {"cpus": 1, "memoryMib": "2048"}, "endpoint": {"uri": "http://x", "protocol": "http", "credentialAudience": "a", "sandbox": "sandboxes/u", "sandboxUid": "u",
                "apiVersion": "v1", "capabilities": ["exec"], "authentication": {"scheme": "scopedBearer", "defaultTtl": "300s", "maxTtl": "300.0s"}}},
                "effectiveFeatures": {"lifecycle": {"stopMemoryOutcome": "discard"}, "outputRetention": {"minBytes": "65536"}, "timeouts": {"onTimeout": "delete", "initialTimeout": "150s"}},
                "failure": {"code": "internal", "message": "m", "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1s"}, {"@type": "other", "x": 1}]}},
    "GetNetworkPoliciesResponse": {"effective": {"mode": "denyAll", "allowNetworks": [{"network": "a:443", "layer": "owner"}]}, "exact": {"revision": "r", "selectorVersion": "destination.v1",
                "nodes": [{"constant": "false", "source": {"origin": "owner", "id": "i"}}, {"destination": {"kind": "dns", "value": "a", "port": 443}}, {"any": {"nodes": [0, 1]}}, {"not": 2}]}},
}


def test_every_request_has_a_body_here():
    assert set(REQUESTS) <= set(BODIES)


@pytest.mark.parametrize("schema", BODIES)
def test_two_readings_agree(schema):
    """The stand-in's own and the package's say the same of every body, right or wrong; formats aside, which the package leaves to others."""
    right, other, refused = judge(schema), [], 0
    assert right.is_valid(BODIES[schema]) and wrong_with(schema, BODIES[schema]) is None
    for body in mutants(BODIES[schema]):
        wrong = wrong_with(schema, body)
        refused += wrong is not None
        if right.is_valid(body) != (wrong is None) and "is no time" not in str(wrong):
            other.append((body, wrong))
    assert other == [] and refused > 3


# -- the stand-in's answers --


class Judged(Rest):
    """A client that has every answer judged by the document."""
    seen: set

    async def send(self, method, url, **more):
        said = await super().send(method, url, **more)
        path = "/" + url.partition("?")[0].split("/", 3)[3]
        place, _, path = path.lstrip("/").partition("/")
        if place == "ep":
            path = path.partition("/")[2]
        if place not in ("rest", "ep"):
            return said
        name = operation_of(method, "/" + path, place == "ep")
        self.seen.add((name, said.status))
        facts = OPERATIONS[name]
        if said.status >= 400:
            error = said.json
            judge("Error").validate(error)
            assert said.status in STATUS_OF[error["code"]], (name, said)
            assert said.headers["content-type"].startswith("application/json")
            if "Cache-Control" in facts.get("errorHeaders", ()):
                assert said.headers["cache-control"] == "no-store"
            return said
        assert str(said.status) in facts["answers"], (name, said)
        wanted = facts["answers"][str(said.status)]
        if wanted:
            judge(wanted["schema"]).validate(said.json)
            for header in wanted.get("headers", ()):
                assert header.lower() in said.headers, (name, header)
            if "ETag" in wanted.get("headers", ()):
                assert said.headers["etag"] == said.json["core"]["etag"]
            assert said.headers.get("cache-control") == ("no-store" if "Cache-Control" in wanted.get("headers", ()) else None)
        elif said.status in (204, 304):
            assert said.body == b""
        return said


def operation_of(method, path, is_endpoint):
    found = [n for n, o in OPERATIONS.items() if o["method"] == method and (o["surface"] == "sandboxEndpoint") == is_endpoint
             and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", o["path"]), path)]
    assert len(found) == 1, (method, path, found)
    return found[0]


@pytest.fixture(scope="module")
def seen():
    """What every operation answered, each answer judged as it came."""
    Judged.seen = set()
    with DockercloudStandin("--knobs", '{"boot_ms": 30}', "--jail", "/tmp") as cloud:
        asyncio.run(asyncio.wait_for(every_operation(cloud), 60))
        assert cloud.violations() == [] and cloud.alive() == []
    return Judged.seen


async def every_operation(cloud):
    async with aiohttp.ClientSession() as session:
        api = await Judged(cloud.ready, session).login()
        management = lambda verb, path, **more: api.send(verb, api.management(path), **more)  # noqa: E731
        sandbox = await api.create()
        one = f"sandboxes/{sandbox.uid}"
        tag = (await api.get(sandbox.uid)).headers["etag"]
        await api.get(sandbox.uid, **{"If-None-Match": tag})
        for path in ("sandboxes", "sandboxes?pageSize=1&orderBy=created_at", one + "/network-policies", "network-policies", one + "/policy-logs?filter=domain%3Dnetwork", "policy-logs"):
            await management("GET", path)
        cloud.knobs(policy_allow=["a.example:443", ["b.example", "kit"], ["c.example", "org"]])
        await api.policy(sandbox)
        cloud.knobs(policy_mode="allowAll")
        await api.policy(sandbox)
        cloud.knobs(policy_mode="denyAll", policy_allow=[])
        await management("POST", one + "/renew-timeout", body=EXAMPLES["requests"]["renewSandboxTimeout"] | {"timeout": "600s"})
        said = await management("POST", one + "/endpoint-credentials", body=EXAMPLES["requests"]["createEndpointCredential"])
        assert said.status == 200 and said.json["permissions"] == ["sandboxesExec"]
        # the published example of a command is well formed, and asks for a user that is not there
        said = await api.own("POST", sandbox, "processes/exec", body=EXAMPLES["requests"]["exec"])
        assert said.status == 400 and "user" in said.json["message"]
        await api.run(sandbox, wrapped("sh", "-c", "echo a; echo b >&2; exit 3; mkfifo /tmp/fifo"))
        await api.run(sandbox, wrapped("sh", "-c", "mkfifo /tmp/fifo; ln -s /etc/passwd /tmp/out"))
        await api.upload(sandbox, {"/tmp/a": b"a", "/tmp/d/e": b""})
        await api.download(sandbox, ["/tmp/a", "/tmp/none", "/tmp/fifo", "/tmp/out"])
        octets = {"Content-Type": "application/octet-stream"}
        await api.own("PUT", sandbox, "files/content?path=/tmp/w&mode=0", data=b"w", headers=octets)
        for path in ("files/content?path=/tmp/w", "files/content?path=/tmp/none", "files/stat?path=/tmp/w", "files/stat?path=/tmp", "files/stat?path=/tmp/fifo", "files?path=/tmp&pageSize=2&orderBy=path"):
            await api.own("GET", sandbox, path)
        await api.own("PUT", sandbox, "files/directories", body={"path": "/tmp/f"})
        assert (await api.own("POST", sandbox, "files/move", body=EXAMPLES["requests"]["move"])).status == 400  # its paths are not absolute
        await api.own("POST", sandbox, "files/move", body={"from": "/tmp/w", "to": "/tmp/f/w"})
        await api.own("DELETE", sandbox, "files?path=/tmp/f&recursive=true")
        key = {"Idempotency-Key": "p", "If-Match": (await api.get(sandbox.uid)).headers["etag"]}
        await management("PATCH", one, headers=key, body=EXAMPLES["requests"]["updateSandbox"])
        for verb in ("stop", "start"):
            await management("POST", f"{one}/{verb}", headers={"If-Match": (await api.get(sandbox.uid)).headers["etag"]}, **({"body": EXAMPLES["requests"]["stopSandbox"]} if verb == "stop" else {}))
        # every kind of refusal there is
        for headers in ({}, {"If-Match": "*"}, {"If-Match": '"stale"'}):
            await management("DELETE", one, headers=headers)
        await api.get("none")
        cloud.knobs(boot_ms=0, quota_concurrent=1, rate_limit_reads=1, mint_limited=1, renew_unimplemented=True)
        for verb, path, body in (("POST", "sandboxes", api.create_body("two")), ("GET", "sandboxes", None), ("POST", one + "/endpoint-credentials", {"permissions": ["sandboxesExec"]}),
                                 ("POST", one + "/renew-timeout", {"timeout": "1s"}), ("POST", "sandboxes", api.create_body("two", networkPolicies=[{"mode": "denyAll"}]))):
            assert (await management(verb, path, **({"body": body} if body else {}))).status >= 400
        assert (await management("GET", "sandboxes", auth="none")).status == 401
        cloud.knobs(quota_concurrent=10)
        for wanted in ({"times": 1, "action": {"type": "respond", "status": 503}}, {"times": 1, "action": {"create_fails_after_accept": True}}, {}):
            cloud.faults([{"step": "create", **wanted}] if wanted else [])
            said = await api.create_call("three-" + str(len(wanted)), key=json.dumps(wanted))
            if said.status == 201:
                said = await api.get(said.json["uid"])
                assert ("failure" in said.json) == (said.json["core"]["status"] == "failed") == bool(wanted)
                await api.delete(type(sandbox)(said.json["uid"], "", said.json))
        await api.delete(sandbox)
        assert (await api.delete_call(sandbox, '"x"')).status == 204


@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_operation_answered_as_published(seen, operation):
    # stop and start are done at once here, so that 202 is not theirs
    wanted = {int(s) for s in OPERATIONS[operation]["answers"]} - ({202} if operation in ("startSandbox", "stopSandbox") else set())
    assert wanted <= {status for name, status in seen if name == operation}


def test_refusals_of_many_kinds_were_among_them(seen):
    assert {status for _, status in seen if status >= 400} >= {400, 401, 404, 409, 412, 428, 429, 501, 503}


def test_named_errors_are_named():
    async def go(cloud):
        async with aiohttp.ClientSession() as session:
            api = await Judged(cloud.ready, session).login()
            sandbox = await api.create()
            await api.run(sandbox, wrapped("sh", "-c", "mkfifo /tmp/fifo; ln -s /etc/passwd /tmp/out; mkdir /tmp/d; touch /tmp/f"))
            move = lambda source, to: api.own("POST", sandbox, "files/move", body={"from": source, "to": to})  # noqa: E731
            return {"etagRequired": await api.delete_call(sandbox, None), "etagMismatch": await api.delete_call(sandbox, '"x"'), "absent": await api.get("none"),
                    "keyReused": await api.create_call(resources={"cpus": 2, "memoryMib": "4096"}), "symlinkEscape": await api.upload_call(sandbox, {"/tmp/out": b""}),
                    "nonregular": await api.upload_call(sandbox, {"/tmp/fifo": b""}), "moveOntoDirectory": await move("/tmp/f", "/tmp/d"), "moveOntoOccupied": await move("/tmp/d", "/tmp/f"),
                    "unserved": await api.create_call(key="k", agent="claude")}
    Judged.seen = set()
    with DockercloudStandin("--jail", "/tmp") as cloud:
        answers = asyncio.run(asyncio.wait_for(go(cloud), 60))
    assert set(answers) == set(EXAMPLES["errors"]) - {"any"}
    for name, said in answers.items():
        wanted = EXAMPLES["errors"][name]
        assert (said.status, said.json["code"]) == (wanted["status"], wanted["code"]), name
        assert said.json["message"].startswith(wanted.get("named", "")), name
        assert "detail" not in wanted or said.json["details"][0]["@type"] == wanted["detail"]


def test_a_download_is_framed_as_published():
    async def go(cloud):
        async with aiohttp.ClientSession() as session:
            api = await Rest(cloud.ready, session).login()
            sandbox = await api.create()
            await api.upload(sandbox, {"/tmp/a": b"a"})
            whole = await api.download_call(sandbox, ["/tmp/a", "/tmp/none"])
            cloud.add_fault(step="download", action={"stream_error": True})
            failed = await api.download_call(sandbox, ["/tmp/a"])
            with pytest.raises(Refused):
                await api.download(sandbox, ["/tmp/a"])
            return whole, failed
    with DockercloudStandin() as cloud:
        answers = asyncio.run(asyncio.wait_for(go(cloud), 60))
    names = set()
    for said in answers:
        pieces, is_closed = parts(said)
        assert is_closed
        for name, kind, data in pieces:
            names.add(name)
            wanted, schema = FACTS["framing"]["download"]["types"][name]
            assert kind == wanted
            if schema:
                judge(schema).validate(json.loads(data))
        assert set(re.findall(r"Content-Disposition: ([^\r]+)", said.body.decode())) <= set(FACTS["framing"]["download"]["dispositions"])
    assert names == set(FACTS["framing"]["download"]["types"])


def test_a_create_as_published_is_refused_for_a_reason_of_its_own():
    """It asks for two names at once, and for a kit without an artifact."""
    async def go(cloud):
        async with aiohttp.ClientSession() as session:
            api = await Rest(cloud.ready, session).login()
            example = copy.deepcopy(EXAMPLES["requests"]["createSandbox"])
            example["kits"][0]["artifact"]["inline"] = ""
            return await api.send("POST", api.management("sandboxes"), body=example)
    with DockercloudStandin("--exec=canned") as cloud:
        said = asyncio.run(asyncio.wait_for(go(cloud), 60))
        assert cloud.violations() == []
    assert said.status in (400, 501) and "is not a field" not in said.json["message"]


def test_the_facts_keep_none_of_the_documents_wording():
    text = pathlib.Path(ROOT / "tests/standins/dockercloud/docker-sandboxes-v1.json").read_text()
    assert '"description"' not in re.sub(r'"description":\{"type":"string"\}', "", text)
    # the longest value is a pattern or a name, never a sentence
    assert all(v.count(" ") < 3 for v in re.findall(r'"((?:[^"\\]|\\.)*)"', text.partition('"framing"')[2]))
