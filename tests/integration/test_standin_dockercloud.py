"""The stand-in of Docker Cloud Sandboxes, held against two clients written from the specification: what it serves, what it refuses, what each of its
knobs does, and that its books are right. What both APIs do is tested on both."""
import asyncio
import base64
import contextlib
import functools
import hashlib
import json
import socket
import subprocess
import sys
import time

import aiohttp
import pytest

from clouds import ROOT, DockercloudStandin
from dockercloud_clients import DIGEST, IMAGE, WRAPPER, Connect, Refused, Rest, form, frame, frames, mixed, parts, wrapped

LIMIT_S = 60
BOTH = pytest.mark.parametrize("kind", [Rest, Connect], ids=["rest", "connect"])
EXPIRED = "ENDPOINT_CREDENTIAL_EXPIRED"


@pytest.fixture(scope="module")
def standin():
    with DockercloudStandin("--knobs", json.dumps({"boot_ms": 5, "quota_concurrent": 100, "quota_stored": 200})) as cloud:
        yield cloud


@pytest.fixture
def cloud(standin):
    """The stand-in as new. A test that has it breaks no rule and leaves nothing alive."""
    standin.reset()
    yield standin
    assert standin.violations() == []
    assert standin.leaks() == []
    assert standin.alive() == []


@pytest.fixture
def loose(standin):
    """The stand-in as new, for tests that break rules or leave something."""
    standin.reset()
    yield standin
    standin.reset()


def together(test):
    """An async test with a limit of its own."""
    @functools.wraps(test)
    def run(*args, **kwargs):
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), LIMIT_S))
    return run


@contextlib.asynccontextmanager
async def client(kind, cloud):
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        yield await kind(cloud.ready, session).login()


def entry_of(cloud, uid):
    return next(e for e in cloud.account()["sandboxes"] if e["id"] == uid)


def reasons(said):
    """ErrorInfo reasons in an error's details, in either API's form."""
    return [d.get("reason") or d.get("debug", {}).get("reason") for d in said.json.get("details", [])]


# -- the whole way --


@BOTH
@together
async def test_a_snippet_goes_the_whole_way(cloud, kind):
    async with client(kind, cloud) as api:
        before = time.monotonic()
        sandbox, ran = await api.snippet(b"console.log('out'); console.error('err'); process.exit(3)")
        took_ms = (time.monotonic() - before) * 1000
    assert (ran.exit, ran.stdout, ran.stderr) == (3, b"out\n", b"err\n")
    entry = entry_of(cloud, sandbox.uid)
    assert entry["state"] == "gone" and entry["ended_by"] == "api" and 0 < entry["billed_ms"] <= took_ms + 5
    assert entry["counts"] == {"create": 1, "upload": 1, "exec": 1, "delete": 1, **({"mint": 1} if kind is Rest else {})}
    lines = cloud.journal(sandbox=sandbox.uid, step="exec")
    assert len(lines) == 1 and lines[0]["status"] == 200 and lines[0]["argv"] == ["node", "/tmp/gw-test-1.js"]
    assert lines[0]["auth"] == ("credential" if kind is Rest else "bearer")
    assert api.token not in json.dumps(cloud.journal()) and cloud.ready["secret"] not in json.dumps(cloud.journal())


@BOTH
@together
async def test_a_project_runs_step_by_step_in_its_folder(cloud, kind):
    async with client(kind, cloud) as api:
        sandbox = await api.create()
        assert (await api.run(sandbox, ["mkdir", "-p", "--", "/tmp/p/src", "/tmp/s"])).exit == 0
        await api.upload(sandbox, {"/tmp/p/src/a.js": b"require('fs').writeFileSync('made.bin', Buffer.from([0, 255, 10]))", "/tmp/s/1": b"node src/a.js && pwd",
                                   "/tmp/p/empty": b"", "/tmp/p/tool": (0o755, b"#!/bin/sh\necho tool\n")})
        assert await api.run(sandbox, wrapped("sh", "/tmp/s/1"), workingDir="/tmp/p") == (0, b"/tmp/p\n", b"", False)
        assert (await api.run(sandbox, wrapped("./tool"), workingDir="/tmp/p")).stdout == b"tool\n"
        found = await api.download(sandbox, ["/tmp/p/made.bin", "/tmp/p/none", "/tmp/p/empty"])
        assert list(found) == ["/tmp/p/made.bin", "/tmp/p/none", "/tmp/p/empty"]
        assert found["/tmp/p/made.bin"] == bytes([0, 255, 10]) and found["/tmp/p/empty"] == b""
        assert found["/tmp/p/none"]["code"] in ("notFound", "not_found")
        await api.delete(sandbox)


@BOTH
@together
async def test_it_works_where_there_are_no_namespaces(kind):
    with DockercloudStandin("--isolation", "plain") as cloud:
        assert cloud.info()["boxes"]["mode"] == "plain"
        async with client(kind, cloud) as api:
            sandbox = await api.create()
            await api.run(sandbox, ["mkdir", "-p", "--", "/tmp/p"])
            await api.upload(sandbox, {"/tmp/p/a.js": b"require('fs').writeFileSync('out', process.cwd())"})
            assert (await api.run(sandbox, wrapped("node", "/tmp/p/a.js"), workingDir="/tmp/p")).exit == 0
            assert (await api.download(sandbox, ["/tmp/p/out"]))["/tmp/p/out"].endswith(b"/tmp/p")
            await api.delete(sandbox)
        assert cloud.violations() == [] and cloud.alive() == []


@BOTH
@together
async def test_megabytes_come_back_as_they_went(cloud, kind):
    data = hashlib.shake_256(b"seed").digest(3 << 20)
    async with client(kind, cloud) as api:
        sandbox = await api.create()
        await api.upload(sandbox, {"/tmp/large": data})
        assert (await api.download(sandbox, ["/tmp/large"]))["/tmp/large"] == data
        assert (await api.run(sandbox, wrapped("sha256sum", "/tmp/large"))).stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()
        await api.delete(sandbox)


@together
async def test_the_two_apis_see_the_same_sandboxes(cloud):
    async with client(Rest, cloud) as rest, client(Connect, cloud) as connect:
        sandbox = await rest.create("gw-both-1")
        seen = (await connect.get(sandbox.uid)).json
        assert seen["core"]["name"] == "gw-both-1" and seen["core"]["status"] == "SANDBOX_STATUS_RUNNING" and seen["cloud"]["imageDigest"] == DIGEST
        assert (await connect.names())[0] == (await rest.names())[0] == ["gw-both-1"]
        await connect.delete(sandbox)
        assert (await rest.get(sandbox.uid)).status == 404


@BOTH
@together
async def test_many_at_once(cloud, kind):
    async with client(kind, cloud) as api:
        done = await asyncio.gather(*(api.snippet(b"console.log(%d * 2)" % n, f"gw-many-{n}") for n in range(64)))
    assert [r.stdout for _, r in done] == [b"%d\n" % (n * 2) for n in range(64)]
    assert cloud.counts()["exec"] == cloud.counts()["create"] == 64


# -- tokens --


@together
async def test_the_exchange_takes_the_right_secret_alone(cloud):
    async with client(Rest, cloud) as api:
        said = await api.exchange(secret="wrong")
        assert said.status == 401 and set(said.json) == {"detail"}
        said = await api.exchange()
        head, payload, _ = said.json["access_token"].split(".")
        read = lambda part: json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))  # noqa: E731
        assert read(head)["alg"] == "none" and 890 < read(payload)["exp"] - time.time() <= 900


@BOTH
@together
async def test_a_bearer_ends_with_its_time(loose, kind):
    loose.knobs(exchange_life_s=60)
    async with client(kind, loose) as api:
        assert await api.names() == ([], 1)
        loose.clock(advance_ms=61_000)
        with pytest.raises(Refused) as refused:
            await api.names()
        assert refused.value.said.status == 401 and reasons(refused.value.said) == ["TOKEN_EXPIRED"]
        await api.login()
        assert await api.names() == ([], 1)


@together
async def test_faults_of_the_exchange(loose):
    async with client(Rest, loose) as api:
        loose.faults([{"step": "exchange", "times": 1, "action": {"exchange_no_token": True}}])
        assert (await api.exchange()).json == {}
        loose.faults([{"step": "exchange", "action": {"type": "respond", "status": 429, "retry_after": 1.5}}])
        said = await api.exchange()
        assert said.status == 429 and said.headers["retry-after"] == "1.5"
        loose.faults([{"plane": "auth", "action": {"exchange_token": "not-a-jwt"}}])
        assert (await api.exchange()).json["access_token"] == "not-a-jwt"
        api.token = "not-a-jwt"
        assert (await api.names())[1] == 1


@BOTH
@together
async def test_the_access_token_is_no_bearer(loose, kind):
    async with client(kind, loose) as api:
        api.token = loose.ready["secret"]
        with pytest.raises(Refused) as refused:
            await api.names()
    assert refused.value.said.status == 401 and reasons(refused.value.said) == ["TOKEN_INVALID"]
    assert [v["what"] for v in loose.violations()] == ["the access token was sent as a bearer"]


@together
async def test_credentials_are_never_mixed(loose):
    async with client(Rest, loose) as api:
        one, two = await api.create("gw-1"), await api.create("gw-2")
        said = await api.send("POST", f"{one.endpoint}/v1/processes/exec", body={"cmd": ["true"]})
        assert said.status == 401 and said.json["message"] == "invalid endpoint credential"
        said = await api.send("POST", f"{one.endpoint}/v1/processes/exec", auth=await api.credential(two), body={"cmd": ["true"]})
        assert said.status == 401
        said = await api.send("GET", api.management("sandboxes"), auth=await api.credential(one))
        assert said.status == 401
        assert (await api.send("GET", api.management("sandboxes"), auth="")).status == 401
    async with client(Connect, loose) as connect:
        said = await connect.ask("process.v1.ProcessService/Exec", {"cmd": ["true"]}, one.endpoint, auth=one.credential)
        assert said.status == 401
    assert [v["what"] for v in loose.violations()] == [
        "the account's bearer was sent to a sandbox endpoint", "another sandbox's credential was sent to this endpoint",
        "an endpoint credential was sent where the account's bearer belongs", "an endpoint credential was sent where the account's bearer belongs"]
    assert loose.counts().get("exec", 0) == 0


# -- create --


REFUSED_BY_REST = {
    "unknown field": ({"colour": "red"}, 400, "invalid_argument"),
    "unknown field, deep": ({"features": {"timeouts": {"timeout": "9s", "colour": 1}}}, 400, "invalid_argument"),
    "inline policy": ({"networkPolicies": [{"mode": "denyAll"}]}, 409, "failed_precondition"),
    "no size of the five": ({"resources": {"cpus": 1, "memoryMib": 4096}}, 400, "invalid_argument"),
    "no cpus": ({"resources": {"memoryMib": 2048}}, 400, "invalid_argument"),
    "no resources": ({"resources": None}, 400, "invalid_argument"),
    "name with a dot": ({"displayName": "a.b"}, 400, "invalid_argument"),
    "name of 65": ({"displayName": "a" * 65}, 400, "invalid_argument"),
    "half a platform": ({"platform": {"os": "linux"}}, 400, "invalid_argument"),
    "two images": ({"image": "images/one"}, 400, "invalid_argument"),
    "image beside resources": ({"imageRef": None, "image": "images/one"}, 400, "invalid_argument"),
    "no image": ({"imageRef": None}, 400, "invalid_argument"),
    "empty argv": ({"startupExecution": {"rawImage": {"start": {"argv": []}}}}, 400, "invalid_argument"),
    "empty program": ({"startupExecution": {"rawImage": {"start": {"argv": [""]}}}}, 400, "invalid_argument"),
    "timeout without unit": ({"features": {"timeouts": {"timeout": "150"}}}, 400, "invalid_argument"),
    "timeout of two days": ({"features": {"timeouts": {"timeout": "172800s"}}}, 400, "invalid_argument"),
    "unknown action": ({"features": {"timeouts": {"onTimeout": "explode"}}}, 400, "invalid_argument"),
    "short restart": ({"features": {"timeouts": {"timeout": "60s", "onTimeout": "restart"}}}, 400, "invalid_argument"),
    "65 labels": ({"labels": {f"l{n}": "" for n in range(65)}}, 400, "invalid_argument"),
    "kits": ({"kits": [{"artifact": {"ref": {"ref": "k"}, "inline": ""}}]}, 501, "unimplemented"),
}


@pytest.mark.parametrize("case", REFUSED_BY_REST)
@together
async def test_rest_refuses_a_create(loose, case):
    changes, status, code = REFUSED_BY_REST[case]
    async with client(Rest, loose) as api:
        said = await api.create_call(key="k", **changes)
    assert (said.status, said.code) == (status, code), said.body
    assert loose.account()["created"] == 0


REFUSED_BY_CONNECT = {
    "unknown field": {"colour": "red"},
    "no cpus": {"resources": {"memoryMib": "2048"}},
    "no size of the five": {"resources": {"cpus": 3, "memoryMib": "2048"}},
    "image beside resources": {"image": "tmpl_abc", "cloud": {"timeout": "9s"}},
    "image beside imageRef": {"image": "tmpl_abc", "resources": None, "cloud": {"imageRef": IMAGE}},
    "image beside startCmd": {"image": "tmpl_abc", "resources": None, "cloud": {"startCmd": ["true"]}},
    "image id with a slash": {"image": "a/b", "resources": None, "cloud": {}},
    "bad name": {"name": "a b"},
    "no request id": {"requestId": None},
    "unknown action": {"cloud": {"imageRef": IMAGE, "onTimeout": "ON_TIMEOUT_EXPLODE"}},
}


@pytest.mark.parametrize("case", REFUSED_BY_CONNECT)
@together
async def test_connect_refuses_a_create(loose, case):
    async with client(Connect, loose) as api:
        said = await api.create_call(**REFUSED_BY_CONNECT[case])
    assert (said.status, said.json["code"]) == (400, "invalid_argument"), said.body
    assert loose.account()["created"] == 0


@together
async def test_an_inline_policy_fails_the_connect_operation(cloud):
    async with client(Connect, cloud) as api:
        said = await api.create_call(networkPolicies=[{"mode": "NETWORK_POLICY_MODE_DENY_ALL"}])
    assert said.status == 200 and said.json["done"] is True and said.json["error"]["code"] == 13


@together
async def test_a_store_image_brings_its_own_size(cloud):
    cloud.knobs(image_digest="sha256:" + "cd" * 32)
    async with client(Connect, cloud) as api:
        sandbox = await api.create(image="tmpl_abc", resources=None, cloud={"timeout": "150s", "onTimeout": "ON_TIMEOUT_DELETE", "autoResume": False})
        assert sandbox.shown["cloud"]["imageDigest"] == "sha256:" + "cd" * 32
        await api.delete(sandbox)


@together
async def test_a_rest_create_answers_creating_and_then_runs(cloud):
    cloud.knobs(boot_ms=60)
    async with client(Rest, cloud) as api:
        said = await api.create_call()
        shown = said.json
        assert said.status == 202 and shown["core"]["status"] == "creating" and "endpoint" not in shown["core"] and "expiresAt" not in shown["effectiveFeatures"]["timeouts"]
        assert said.headers["etag"] == shown["core"]["etag"] and shown["core"]["resources"]["memoryMib"] == "2048"
        sandbox = await api.create()  # the same key: the same one
        assert sandbox.uid == shown["uid"] and sandbox.shown["core"]["etag"] != shown["core"]["etag"]
        assert sandbox.shown["effectiveFeatures"]["timeouts"]["initialTimeout"] == "150s" and "autoResume" not in sandbox.shown["effectiveFeatures"]["timeouts"]
        assert "failure" not in sandbox.shown
        await api.delete(sandbox)


@BOTH
@together
async def test_a_create_is_replayed_by_its_key_alone(loose, kind):
    async with client(kind, loose) as api:
        first = await api.create_call("gw-r")
        again = await api.create_call("gw-r")
        assert again.status == first.status
        assert kind is Connect and again.json["id"] == first.json["id"] or again.body == first.body
        other = await api.create_call("gw-r", **({"resources": {"cpus": 2, "memoryMib": 4096}}))
        assert (other.status, other.code) == (409 if kind is Rest else 400, "failed_precondition")
    assert loose.account()["created"] == 1


@together
async def test_the_etag_header_is_lower_case_on_the_wire(loose):
    async with client(Rest, loose) as api:
        uid = (await api.create()).uid
        with socket.create_connection(("127.0.0.1", loose.ready["port"])) as s:
            s.sendall(f"GET /rest/v1/sandboxes/{uid} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.token}\r\nConnection: close\r\n\r\n".encode())
            head = b"".join(iter(lambda: s.recv(65536), b"")).partition(b"\r\n\r\n")[0]
    assert b"\r\netag: \"" in head


@BOTH
@together
async def test_a_quota_is_a_429_that_says_so(loose, kind):
    loose.knobs(quota_concurrent=1)
    async with client(kind, loose) as api:
        await api.create("gw-1")
        said = await api.create_call("gw-2")
        assert said.status == 429 and said.code == "resource_exhausted" and "QuotaFailure" in said.body.decode() and "retry-after" not in said.headers
        loose.knobs(quota_concurrent=100, quota_stored=1)
        assert (await api.create_call("gw-3")).status == 429


@together
async def test_connect_writes_the_details_of_an_error_as_protobuf(loose):
    loose.knobs(quota_concurrent=0)
    async with client(Connect, loose) as api:
        [detail] = (await api.create_call()).json["details"]
        assert detail["type"] == "google.rpc.QuotaFailure"
        subject, text = b"\x0a\x07account", b"\x12\x14concurrent sandboxes"
        assert base64.b64decode(detail["value"] + "==") == b"\x0a" + bytes([len(subject + text)]) + subject + text
        loose.faults([{"step": "list", "action": {"type": "respond", "status": 429, "retry_info": 1.5}}])
        with pytest.raises(Refused) as refused:
            await api.names()
        assert base64.b64decode(refused.value.said.json["details"][0]["value"] + "==") == b"\x0a\x08\x08\x01\x10\x80\xca\xb5\xee\x01"


@together
async def test_names_may_be_held_unique(loose):
    async with client(Connect, loose) as api:
        await api.create("gw-1")
        said = await api.create_call("gw-1", requestId="another")
        assert (said.status, said.json["code"]) == (409, "already_exists")
    async with client(Rest, loose) as api:
        assert (await api.create_call("gw-1", key="another")).status in (201, 202)
        loose.knobs(unique_names=True)
        said = await api.create_call("gw-1", key="a third")
        assert (said.status, said.code) == (409, "already_exists")


# -- create, spoiled --


def uid_of(kind, shown):
    return shown.get("uid") if kind is Rest else shown["core"].get("id")


SPOILED = {
    "no_uid": lambda k, s: uid_of(k, s) is None,
    "hostile_uid": lambda k, s: ".." in uid_of(k, s),
    "no_endpoint": lambda k, s: "endpoint" not in s["core"],
    "http_endpoint_offhost": lambda k, s: s["core"]["endpoint"]["uri"] == "http://198.51.100.7/ep",
    "http_endpoint_offhost:https://elsewhere.example/x": lambda k, s: s["core"]["endpoint"]["uri"] == "https://elsewhere.example/x",
    "unix_endpoint": lambda k, s: s["core"]["endpoint"]["uri"].startswith("unix:"),
    "wrong_name": lambda k, s: (s["displayName"] if k is Rest else s["core"]["name"]) == "gw-another-run",
    "wrong_image": lambda k, s: (s["core"]["imageRef"] if k is Rest else s["cloud"]["imageDigest"]).endswith("0" * 64),
    "wrong_digest": lambda k, s: (s["core"]["imageRef"] if k is Rest else s["cloud"]["imageDigest"]).endswith("0" * 64),
    "no_digest": lambda k, s: "@" not in s["core"]["imageRef"] if k is Rest else "imageDigest" not in s["cloud"],
    "no_resources": lambda k, s: "resources" not in s["core"],
    "bigger_size": lambda k, s: s["core"]["resources"]["cpus"] == 16,
}
SPOILED_REST = {
    "endpoint_missing_cap:exec": lambda k, s: "exec" not in s["core"]["endpoint"]["capabilities"] and "upload" in s["core"]["endpoint"]["capabilities"],
    "wrong_ttl": lambda k, s: s["effectiveFeatures"]["timeouts"]["onTimeout"] == "stop",
    "wrong_uid_name": lambda k, s: s["name"] != "sandboxes/" + s["uid"],
    "wrong_endpoint_uid": lambda k, s: s["core"]["endpoint"]["sandboxUid"] != s["uid"],
    "wrong_scheme": lambda k, s: s["core"]["endpoint"]["authentication"]["scheme"] != "scopedBearer",
    "bad_etag": lambda k, s: "\r\n" in s["core"]["etag"],
}


@pytest.mark.parametrize("kind, spoil", [(k, s) for k in (Rest, Connect) for s in SPOILED] + [(Rest, s) for s in SPOILED_REST], ids=lambda v: getattr(v, "name", v))
@together
async def test_a_create_is_answered_wrong(loose, kind, spoil):
    loose.knobs(boot_ms=0)
    loose.add_fault(step="create", times=1, action={"create_malformed": spoil})
    async with client(kind, loose) as api:
        said = await api.create_call("gw-s")
        assert said.status in (200, 201)
        shown = said.json if kind is Rest else said.json["response"]
        assert {**SPOILED, **SPOILED_REST}[spoil](kind, shown), shown
        # a listing shows what is really there, so that it can be deleted
        assert (await api.names())[0] == ["gw-s"]


@BOTH
@together
async def test_a_create_is_answered_with_no_json_or_with_too_much(loose, kind):
    loose.faults([{"step": "create", "times": 1, "action": {"create_malformed": "not_json"}}, {"step": "create", "nth": 2, "action": {"create_malformed": "huge_body"}}])
    async with client(kind, loose) as api:
        assert (await api.create_call("gw-1")).body.startswith(b"<html>")
        assert len((await api.create_call("gw-2")).body) > 8 << 20
        assert sorted((await api.names())[0]) == ["gw-1", "gw-2"]


@BOTH
@together
async def test_a_create_that_fails_after_it_was_taken(loose, kind):
    loose.add_fault(step="create", action={"create_fails_after_accept": "no such image"})
    async with client(kind, loose) as api:
        said = await api.create_call("gw-f")
        if kind is Connect:
            said = await api.finish(said)
            assert said.json["error"] == {"code": 13, "message": "no such image"}
        else:
            while (shown := (await api.get(said.json["uid"])).json)["core"]["status"] == "creating":
                await asyncio.sleep(0.01)
            assert shown["core"]["status"] == "failed" and shown["failure"] == {"code": "internal", "message": "no such image"}


@BOTH
@together
async def test_a_create_that_never_runs(loose, kind):
    loose.add_fault(step="create", action={"create_pending_forever": True})
    async with client(kind, loose) as api:
        said = await api.create_call("gw-p")
        if kind is Rest:
            await asyncio.sleep(0.1)
            assert (await api.get(said.json["uid"])).json["core"]["status"] == "creating"
        else:
            waited = await api.ask("v1.OperationService/WaitOperation", {"id": said.json["id"], "timeout": "0.2s"})
            assert waited.json == {"id": said.json["id"], "done": False}


@BOTH
@together
async def test_a_sandbox_appears_late_and_counts_as_leaked(loose, kind):
    loose.knobs(boot_ms=0)
    loose.add_fault(step="create", action={"late_appearance_ms": 60_000, "drop_before_response": True})
    async with client(kind, loose) as api:
        with pytest.raises(aiohttp.ClientError):
            await api.create_call("gw-late")
        [uid] = loose.alive()
        assert (await api.names())[0] == [] and (await api.get(uid)).status == 404
        assert [e["id"] for e in loose.leaks()] == [uid]
        loose.clock(advance_ms=61_000)
        assert (await api.names())[0] == ["gw-late"]


# -- reads and deletes --


@together
async def test_a_rest_delete_wants_the_tag_of_the_last_read(cloud):
    cloud.knobs(delete_lag_reads=2)
    async with client(Rest, cloud) as api:
        sandbox = await api.create()
        for tag, status, named in ((None, 428, "etag_required"), ("*", 428, "etag_required"), ('"stale"', 412, "etag_mismatch"), (sandbox.shown["core"]["etag"].strip('"'), 412, "etag_mismatch")):
            said = await api.delete_call(sandbox, tag)
            assert (said.status, said.code) == (status, "failed_precondition") and said.json["message"].startswith(named)
        assert said.json["details"] == [{"@type": "type.googleapis.com/docker.sandboxes.v1.EtagMismatch", "currentEtag": sandbox.shown["core"]["etag"]}]
        said = await api.delete_call(sandbox, sandbox.shown["core"]["etag"])
        assert said.status == 202 and said.json["core"]["status"] == "deleting" and "endpoint" not in said.json["core"]
        assert cloud.alive() == []
        assert [(await api.get(sandbox.uid)).status for _ in range(3)] == [200, 200, 404]
        said = await api.delete_call(sandbox, '"any"')
        assert said.status == 204 and said.body == b""


@together
async def test_a_delete_key_goes_with_its_tag(cloud):
    async with client(Rest, cloud) as api:
        sandbox = await api.create()
        first = await api.delete_call(sandbox, sandbox.shown["core"]["etag"], **{"Idempotency-Key": "d"})
        again = await api.delete_call(sandbox, sandbox.shown["core"]["etag"], **{"Idempotency-Key": "d"})
        assert first.status == again.status == 202 and first.body == again.body
        said = await api.delete_call(sandbox, first.json["core"]["etag"], **{"Idempotency-Key": "d"})
        assert (said.status, said.code) == (409, "failed_precondition")


@together
async def test_connect_deletes_by_name_too_and_says_when_nothing_is_there(cloud):
    async with client(Connect, cloud) as api:
        await api.create("gw-n")
        said = await api.ask("v1.SandboxService/DeleteSandbox", {"sandbox": {"name": "gw-n"}, "force": True, "requestId": "delete-gw-n"})
        assert said.json["done"] is True and "error" not in said.json
        said = await api.ask("v1.SandboxService/DeleteSandbox", {"sandbox": {"name": "gw-n"}, "force": True, "requestId": "delete-gw-n-2"})
        assert (said.status, said.json["code"]) == (404, "not_found")
        cloud.add_fault(step="delete", action={"in_operation": True})
        said = await api.ask("v1.SandboxService/DeleteSandbox", {"sandbox": {"name": "gw-n"}, "force": True, "requestId": "delete-gw-n-3"})
        assert said.json["done"] is True and said.json["error"]["code"] == 5


@BOTH
@together
async def test_a_delete_fails_as_often_as_told(cloud, kind):
    cloud.knobs(delete_fails=2, delete_status=503)
    async with client(kind, cloud) as api:
        sandbox = await api.create()
        for _ in range(2):
            with pytest.raises(Refused) as refused:
                await api.delete(sandbox)
            assert refused.value.said.status == 503
        assert cloud.alive() == [sandbox.uid]
        await api.delete(sandbox)


@BOTH
@together
async def test_a_delete_that_never_ends(loose, kind):
    loose.add_fault(step="delete", action={"delete_never": True})
    async with client(kind, loose) as api:
        sandbox = await api.create()
        if kind is Rest:
            assert (await api.delete_call(sandbox, sandbox.shown["core"]["etag"])).status == 202
        else:
            assert (await api.delete_call(sandbox)).json["done"] is False
        for _ in range(3):
            assert "deleting" in (await api.get(sandbox.uid)).body.decode().lower()
    assert loose.alive() == [sandbox.uid]


@BOTH
@together
async def test_a_delete_that_lies(loose, kind):
    loose.add_fault(step="delete", times=1, action={"delete_lies": True})
    async with client(kind, loose) as api:
        sandbox = await api.create()
        said = await (api.delete_call(sandbox, sandbox.shown["core"]["etag"]) if kind is Rest else api.delete_call(sandbox))
        assert said.status == 204 or said.json["done"] is True
        assert loose.alive() == [sandbox.uid]
        assert [e["id"] for e in loose.leaks()] == ([sandbox.uid] if kind is Connect else [])
        assert (await api.get(sandbox.uid)).status == 200


@together
async def test_a_tag_gets_stale_between_read_and_delete(cloud):
    async with client(Rest, cloud) as api:
        sandbox = await api.create()
        cloud.add_fault(step="delete", times=1, action={"delete_stale_once": True})
        assert (await api.delete_call(sandbox, sandbox.shown["core"]["etag"])).status == 412
        assert (await api.delete_call(sandbox, sandbox.shown["core"]["etag"])).status == 412
        await api.delete(sandbox)


@together
async def test_a_connect_delete_takes_its_time(cloud):
    cloud.knobs(delete_ms=500)
    async with client(Connect, cloud) as api:
        sandbox = await api.create()
        said = await api.delete_call(sandbox)
        assert said.json["done"] is False
        assert (await api.get(sandbox.uid)).json["core"]["status"] == "SANDBOX_STATUS_DELETING"
        assert (await api.finish(said)).json["done"] is True and (await api.get(sandbox.uid)).status == 404


@BOTH
@together
async def test_reads_are_limited(cloud, kind):
    cloud.knobs(rate_limit_reads=2, retry_after=1)
    async with client(kind, cloud) as api:
        for _ in range(2):
            with pytest.raises(Refused) as refused:
                await api.names()
            assert refused.value.said.status == 429 and refused.value.said.headers["retry-after"] == "1"
        assert await api.names() == ([], 1)


@together
async def test_an_unchanged_sandbox_is_304(cloud):
    async with client(Rest, cloud) as api:
        sandbox = await api.create()
        tag = (await api.get(sandbox.uid)).headers["etag"]
        said = await api.get(sandbox.uid, **{"If-None-Match": f'"x", {tag}'})
        assert said.status == 304 and said.body == b""
        assert (await api.get(sandbox.uid, **{"If-None-Match": '"x"'})).status == 200
        await api.delete(sandbox)


# -- lists --


@BOTH
@together
async def test_a_list_has_pages(loose, kind):
    async with client(kind, loose) as api:
        loose.seed_sandboxes(*({"name": f"gw-{n}", "age_s": 100 - n} for n in range(7)))
        assert await api.names(size=3) == ([f"gw-{n}" for n in range(7)], 3)
        loose.knobs(list_page_size=2)
        assert await api.names() == ([f"gw-{n}" for n in range(7)], 4)
        loose.knobs(list_page_size=0, list_pages=3)
        assert await api.names() == ([f"gw-{n}" for n in range(7)], 3)  # two empty ones with a token first
        loose.knobs(list_pages=0, list_hide="gw-3")
        assert "gw-3" not in (await api.names())[0] and len((await api.names())[0]) == 6


@together
async def test_a_list_is_filtered_and_ordered_exactly(loose):
    async with client(Rest, loose) as api:
        ids = loose.seed_sandboxes(*({"name": f"gw-{n}", "age_s": 100 - n} for n in range(3)), {"name": "x", "status": "stopped"})
        assert (await api.names(filter="display_name=gw-1"))[0] == ["gw-1"]
        assert (await api.names(filter="display_name=gw"))[0] == []
        assert (await api.names(filter="status=stopped"))[0] == ["x"]
        assert (await api.names(filter=f"uid={ids[0]},status=running"))[0] == ["gw-0"]
        assert (await api.names(orderBy="created_at desc"))[0] == ["x", "gw-2", "gw-1", "gw-0"]
        for query in ({"filter": "colour=red"}, {"orderBy": "colour"}, {"pageToken": "nonsense"}):
            with pytest.raises(Refused) as refused:
                await api.names(**query)
            assert refused.value.said.status == 400
        assert len((await api.send("GET", api.management("sandboxes"))).json["sandboxes"]) == 4 and loose.violations() == []
        token = (await api.send("GET", api.management("sandboxes?pageSize=1"))).json["nextPageToken"]
        assert (await api.send("GET", api.management(f"sandboxes?pageSize=2&pageToken={token}"))).status == 400
    assert [v["what"] for v in loose.violations()] == ["a pageToken with another query than the one it came from"]


# -- policy --


@BOTH
@together
async def test_the_policy_reads_deny_all(cloud, kind):
    async with client(kind, cloud) as api:
        sandbox = await api.create()
        shown = (await api.policy(sandbox)).json
        if kind is Rest:
            assert shown["effective"] == {"mode": "denyAll"} and shown["exact"]["nodes"][-1]["constant"] == "false"
            account = (await api.send("GET", api.management("network-policies"))).json
            assert account == shown
        else:
            assert shown == {"mode": "NETWORK_POLICY_MODE_DENY_ALL"}
        await api.delete(sandbox)


@BOTH
@together
async def test_the_policy_reads_otherwise(loose, kind):
    async with client(kind, loose) as api:
        sandbox = await api.create()
        effective = lambda said: said.json["effective"] if kind is Rest else said.json  # noqa: E731
        loose.knobs(policy_mode="allowAll")
        assert effective(await api.policy(sandbox))["mode"] == ("allowAll" if kind is Rest else "NETWORK_POLICY_MODE_ALLOW_ALL")
        loose.knobs(policy_mode="denyAll", policy_allow=["a.example:443", ["b.example", "kit"]])
        said = await api.policy(sandbox)
        assert effective(said)["allowNetworks"] == [{"network": "a.example:443", "layer": "owner" if kind is Rest else "POLICY_LAYER_OWNER"},
                                                    {"network": "b.example", "layer": "kit" if kind is Rest else "POLICY_LAYER_KIT"}]
        if kind is Rest:
            nodes = said.json["exact"]["nodes"]
            assert nodes[1]["destination"] == {"kind": "dns", "value": "a.example", "port": 443} and nodes[-1] == {"any": {"nodes": [0, 1, 2]}}
        loose.knobs(policy_allow=[], policy_missing_field="mode")
        assert "mode" not in effective(await api.policy(sandbox))
        loose.knobs(policy_missing_field="", policy_409=True)
        assert (await api.policy(sandbox)).code == "failed_precondition"
        # a rule may turn it for one read alone
        loose.knobs(policy_409=False)
        loose.add_fault(step="policy", nth=2, times=1, action={"policy_mode": "allowAll"})
        assert ["DENY" in (await api.policy(sandbox)).body.decode().upper() for _ in range(3)] == [True, False, True]


@together
async def test_the_unpublished_put_sets_one_rule(loose):
    async with client(Connect, loose) as api:
        sandbox = await api.create()
        said = await api.put_policy(sandbox, "guard.example.com:443")
        assert said.status == 200 and said.json == {"mode": "deny-all", "allowNetworks": ["guard.example.com:443"]}
        assert (await api.policy(sandbox)).json["allowNetworks"] == [{"network": "guard.example.com:443", "layer": "POLICY_LAYER_OWNER"}]
        loose.add_fault(step="policy_put", times=1, action={"policy_put_wrong_echo": True})
        assert (await api.put_policy(sandbox, "g.example:443")).json["allowNetworks"] == ["g.example:443", "*"]
        loose.knobs(policy_put_ignored=True)
        await api.put_policy(sandbox, "g.example:443")
        assert "allowNetworks" not in (await api.policy(sandbox)).json
        loose.add_fault(step="policy_put", action={"type": "respond", "status": 403})
        assert (await api.put_policy(sandbox, "g.example:443")).status == 403
    async with client(Rest, loose) as api:
        assert (await api.policy(sandbox)).status == 409  # what was put that way is not readable this way
        assert loose.violations() == []
        loose.clear_faults()
        assert (await api.put_policy(sandbox, "g.example:443", colour=1)).status == 400 and len(loose.violations()) == 1
        assert (await api.put_policy(sandbox, "g.example:443", mode="allow-all")).status == 400


# -- commands --


@BOTH
@together
async def test_the_wrapper_bounds_time_and_output(cloud, kind):
    async with client(kind, cloud) as api:
        sandbox = await api.create()
        before = time.monotonic()
        ran = await api.run(sandbox, wrapped("sh", "-c", "echo before; sleep 30", limit=1))
        assert (ran.exit, ran.stdout) == (137, b"before\n") and time.monotonic() - before >= 1
        ran = await api.run(sandbox, wrapped("yes", cap=1001))
        assert ran.exit != 0 and ran.stdout == (b"y\n" * 501)[:1001] and not ran.incomplete
        assert (await api.run(sandbox, wrapped("no-such-program"))).exit == 127
        await api.delete(sandbox)


@BOTH
@together
async def test_what_is_nothing_is_left_out(cloud, kind):
    async with client(kind, cloud) as api:
        sandbox = await api.create()
        assert (await api.exec_call(sandbox, wrapped("true"))).json == {}
        assert (await api.exec_call(sandbox, wrapped("sh", "-c", "echo e >&2; exit 2"))).json == {"exitCode": 2, "stderr": "ZQo="}
        assert (await api.policy(sandbox)).json in ({"mode": "NETWORK_POLICY_MODE_DENY_ALL"}, {**(await api.policy(sandbox)).json, "effective": {"mode": "denyAll"}})
        await api.delete(sandbox)
        assert (await api.send("GET", api.management("sandboxes")) if kind is Rest else await api.ask("v1.SandboxService/ListSandboxes", {})).json == {}


@BOTH
@together
async def test_the_capture_of_both_streams_together_has_an_end(loose, kind):
    async with client(kind, loose) as api:
        sandbox = await api.create()
        ran = await api.run(sandbox, ["sh", "-c", "head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2; exit 9"])
        assert ran.exit == 9 and len(ran.stdout) + len(ran.stderr) == 4 << 20 and ran.incomplete == (kind is Rest)
        ran = await api.run(sandbox, ["sh", "-c", f"head -c {4 << 20} /dev/zero"])
        assert len(ran.stdout) == 4 << 20 and not ran.incomplete


@BOTH
@together
async def test_a_command_outside_the_wrapper_is_written_down(loose, kind):
    async with client(kind, loose) as api:
        sandbox = await api.create()
        assert (await api.run(sandbox, ["mkdir", "-p", "--", "/tmp/a"])).exit == 0
        assert loose.violations() == []
        for cmd in (["true"], ["sh", "-c", WRAPPER, "gwx", "x", "10", "true"], ["sh", "-c", WRAPPER, "gwx", "10", "0", "true"], ["sh", "-c", "exec $@", "gwx", "10", "10", "true"]):
            await api.exec_call(sandbox, cmd)
        assert len(loose.violations()) == 4
        loose.knobs(wrapper_required=False)
        await api.exec_call(sandbox, ["true"])
    assert len(loose.violations()) == 4


@BOTH
@together
async def test_a_command_has_its_folder_its_variables_and_no_input(cloud, kind):
    async with client(kind, cloud) as api:
        sandbox = await api.create()
        ran = await api.run(sandbox, wrapped("sh", "-c", "pwd; echo $A; cat | wc -c; id -u"), workingDir="/tmp", env={"A": "b c"})
        folder, variable, size, uid = ran.stdout.decode().split("\n")[:4]
        assert (folder, variable, size.strip()) == ("/tmp", "b c", "0") and uid != "0"
        assert (await api.run(sandbox, wrapped("id", "-u"), user="root")).stdout == b"0\n"
        other = await api.create("gw-test-2", environment={"A": "of the sandbox", "B": "b"})
        assert (await api.run(other, wrapped("sh", "-c", "echo $A $B"), env={"A": "mine"})).stdout == b"mine b\n"
        await api.delete(other)
        assert (await api.exec_call(sandbox, wrapped("id"), user="nobody-at-all")).status == 400
        await api.delete(sandbox)


@BOTH
@together
async def test_a_sandbox_reaches_nothing(cloud, kind):
    """A guest under deny-all: neither the stand-in itself nor an address outside answers."""
    probe = b"""const s = require('net').connect(%d, '127.0.0.1'); s.on('error', e => { console.log(e.code); }); s.on('connect', () => { console.log('open'); s.end(); });
    require('dns').lookup('a.example', e => console.log(e ? 'no name' : 'name'));""" % cloud.ready["port"]
    async with client(kind, cloud) as api:
        _, ran = await api.snippet(probe)
    if cloud.info()["boxes"]["mode"] == "plain":
        pytest.skip("boxes of this machine have no network of their own")
    assert sorted(ran.stdout.decode().split("\n")) == ["", "ECONNREFUSED", "no name"]


@BOTH
@together
async def test_a_command_goes_on_when_its_client_leaves(cloud, kind):
    async with client(kind, cloud) as api:
        sandbox = await api.create()
        asked = asyncio.ensure_future(api.exec_call(sandbox, wrapped("sh", "-c", "sleep 0.4; echo done > /tmp/done")))
        while not cloud.counts().get("exec"):
            await asyncio.sleep(0.01)
        asked.cancel()
        while isinstance((await api.download(sandbox, ["/tmp/done"]))["/tmp/done"], dict):
            await asyncio.sleep(0.05)
        assert entry_of(cloud, sandbox.uid)["counts"]["exec"] == 1
        await api.delete(sandbox)


@BOTH
@together
async def test_who_holds_the_output_holds_the_answer(cloud, kind):
    async with client(kind, cloud) as api:
        sandbox = await api.create()
        before = time.monotonic()
        ran = await api.run(sandbox, wrapped("sh", "-c", "sleep 0.7 & echo at once"))
        assert ran.stdout == b"at once\n" and time.monotonic() - before >= 0.7
        await api.delete(sandbox)


@BOTH
@together
async def test_a_delete_ends_a_running_command(cloud, kind):
    async with client(kind, cloud) as api:
        sandbox = await api.create()
        asked = asyncio.ensure_future(api.exec_call(sandbox, wrapped("sleep", "30", limit=60)))
        while not cloud.counts().get("exec"):
            await asyncio.sleep(0.01)
        await api.delete(sandbox)
        assert (await asked).status != 200
        assert (await api.exec_call(sandbox, wrapped("true"))).status in (401, 404)


@together
async def test_a_credential_is_held_to_its_permissions_and_its_time(cloud):
    async with client(Rest, cloud) as api:
        sandbox = await api.create()
        said = await api.mint_call(sandbox, "sandboxesFilesRead", ttl="9000s")
        shown = said.json
        assert said.headers["cache-control"] == "no-store" and shown["permissions"] == ["sandboxesFilesRead"] and shown["sandbox"] == f"sandboxes/{sandbox.uid}"
        assert shown["audience"] == sandbox.shown["core"]["endpoint"]["credentialAudience"]
        sandbox.credential = shown["token"]
        assert (await api.exec_call(sandbox, wrapped("true"))).code == "permission_denied"
        assert (await api.upload_call(sandbox, {"/tmp/a": b""})).status == 403
        assert (await api.download_call(sandbox, ["/tmp/a"])).status == 200
        cloud.clock(advance_ms=301_000)
        said = await api.download_call(sandbox, ["/tmp/a"])
        assert said.status == 401 and reasons(said) == [EXPIRED]
        await api.login()
        await api.delete(sandbox)


@together
async def test_a_credential_that_ends_in_a_command_cuts_the_answer_alone(cloud):
    cloud.knobs(credential_life_ms=1500)
    async with client(Rest, cloud) as api:
        sandbox = await api.create()
        said = await api.exec_call(sandbox, wrapped("sh", "-c", "sleep 2; echo done > /tmp/done"))
        assert said.status == 401 and reasons(said) == [EXPIRED] and said.json["message"] == "endpoint_credential_expired"
        cloud.knobs(credential_life_ms=0)
        sandbox.credential = None
        while isinstance((await api.download(sandbox, ["/tmp/done"]))["/tmp/done"], dict):
            await asyncio.sleep(0.05)
        cloud.add_fault(step="exec", times=1, action={"expire_during_exec": True})
        assert reasons(await api.exec_call(sandbox, wrapped("sh", "-c", "echo again > /tmp/done"))) == [EXPIRED]
        assert (await api.download(sandbox, ["/tmp/done"]))["/tmp/done"] == b"again\n"
        cloud.add_fault(step="exec", times=1, action={"expire_during_exec": 100})
        assert reasons(await api.exec_call(sandbox, wrapped("sleep", "1"))) == [EXPIRED]
        assert entry_of(cloud, sandbox.uid)["counts"]["exec"] == 3
        await api.delete(sandbox)


@together
async def test_faults_of_credentials(cloud):
    async with client(Rest, cloud) as api:
        sandbox = await api.create()
        cloud.knobs(mint_limited=2)
        assert [(await api.mint_call(sandbox)).status for _ in range(3)] == [429, 429, 200]
        cloud.add_fault(step="exec", times=1, action={"refuse_credential_once": True})
        said = await api.exec_call(sandbox, wrapped("true"))
        assert said.status == 401 and reasons(said) == [] and cloud.counts().get("exec", 0) == 0
        assert (await api.run(sandbox, wrapped("true"))).exit == 0
        cloud.faults([{"step": "mint", "times": 1, "action": {"mint_wrong": {"audience": "other"}}}, {"step": "mint", "nth": 2, "action": {"mint_without": ["sandboxesExec"]}}])
        assert (await api.mint_call(sandbox)).json["audience"] == "other"
        assert (await api.mint_call(sandbox)).json["permissions"] == ["sandboxesFilesWrite", "sandboxesFilesRead"]
        assert [r["hits"] for r in cloud.faults()] == [1, 1]
        cloud.clear_faults()
        cloud.knobs(clock_skew_ms=3_600_000)
        from datetime import datetime
        assert datetime.fromisoformat((await api.mint_call(sandbox)).json["expireTime"]).timestamp() - time.time() > 3700
        await api.delete(sandbox)


@BOTH
@together
async def test_faults_of_a_command(cloud, kind):
    async with client(kind, cloud) as api:
        sandbox = await api.create()
        once = lambda **action: cloud.faults([{"step": "exec", "times": 1, "action": action}])  # noqa: E731
        once(exec_flood=5 << 20)
        assert len((await api.run(sandbox, wrapped("true"))).stdout) == 5 << 20
        once(exec_incomplete=True)
        assert (await api.run(sandbox, wrapped("true"))).incomplete == (kind is Rest)
        once(exec_exit=-9)
        assert (await api.run(sandbox, wrapped("true"))).exit == -9
        once(late_exit_ms=300)
        before = time.monotonic()
        await api.run(sandbox, wrapped("true"))
        assert time.monotonic() - before >= 0.3
        once(drop_before_response=True)
        with pytest.raises(aiohttp.ClientError):
            await api.run(sandbox, wrapped("sh", "-c", "echo ran > /tmp/ran"))
        assert (await api.download(sandbox, ["/tmp/ran"]))["/tmp/ran"] == b"ran\n"
        assert entry_of(cloud, sandbox.uid)["counts"]["exec"] == 5
        once(drop_before_effect=True)
        with pytest.raises(aiohttp.ClientError):
            await api.run(sandbox, wrapped("true"))
        assert entry_of(cloud, sandbox.uid)["counts"]["exec"] == 5
        assert [r["hits"] for r in cloud.faults()] == [1]
        await api.delete(sandbox)


# -- files --


MALFORMED = {
    "part named header": lambda b: b.replace(b'name="metadata"', b'name="header"'),
    "content first": lambda b: b.replace(b'name="metadata"', b'name="content"', 1),
    "no closing delimiter": lambda b: b[:b.rindex(b"--a-boundary")],
    "cut in the closing delimiter": lambda b: b[:-3],
    "a transfer encoding": lambda b: b.replace(b"Content-Type: application/octet-stream", b"Content-Type: application/octet-stream\r\nContent-Transfer-Encoding: binary"),
    "a file name": lambda b: b.replace(b'name="content"', b'name="content"; filename="a"'),
    "metadata of no JSON": lambda b: b.replace(b'{"path"', b'{path'),
    "an unknown field": lambda b: b.replace(b'{"path"', b'{"colour": 1, "path"'),
    "content of another type": lambda b: b.replace(b"application/octet-stream", b"text/plain"),
    "bytes after the end": lambda b: b + b"more",
    "metadata alone": lambda b: b[:b.rindex(b'--a-boundary', 0, b.rindex(b'--a-boundary'))] + b"--a-boundary-of-the-test--\r\n",
    "no part": lambda b: b"--a-boundary-of-the-test--\r\n",
}


@pytest.mark.parametrize("case", MALFORMED)
@together
async def test_an_upload_out_of_form_is_refused(loose, case):
    async with client(Rest, loose) as api:
        sandbox = await api.create()
        data, boundary = form([("/tmp/a", 420, b"content"), ("/tmp/b", 420, b"")])
        said = await api.own("POST", sandbox, "files/upload", data=MALFORMED[case](data), headers={"Content-Type": f"multipart/form-data; boundary={boundary}"})
        assert (said.status, said.code) == (400, "invalid_argument"), case
        assert "BadRequest" in said.body.decode() and ("encoding" not in case or "Content-Transfer-Encoding" in said.json["message"])
        assert isinstance((await api.download(sandbox, ["/tmp/a"]))["/tmp/a"], dict)


def header(path="/tmp/a"):
    return frame({"header": {"path": path, "mode": 420}})


def data(content=b"content"):
    return frame({"data": base64.b64encode(content).decode()})


BROKEN_FRAMES = {
    "data before a header": (data(), "invalid_argument"),
    "both in one": (frame({"header": {"path": "/tmp/a"}, "data": ""}), "invalid_argument"),
    "an unknown field": (frame({"header": {"path": "/tmp/a", "colour": 1}}), "invalid_argument"),
    "a compressed frame": (frame({"header": {"path": "/tmp/a"}}, 1), "invalid_argument"),
    "an end frame": (header() + frame({}, 2), "invalid_argument"),
    "a frame cut short": ((header() + data())[:-1], "invalid_argument"),
    "a head cut short": (header() + b"\0\0\0", "invalid_argument"),
    "a data frame too long": (header() + data(b"x" * ((512 << 10) + 1)), "resource_exhausted"),
    "no base64": (header() + frame({"data": "?"}), "invalid_argument"),
    "nothing": (b"", "invalid_argument"),
    "a missing folder": (header("/tmp/none/a") + data(), "not_found"),
}


@pytest.mark.parametrize("case", BROKEN_FRAMES)
@together
async def test_a_connect_upload_out_of_form_is_refused(loose, case):
    body, code = BROKEN_FRAMES[case]
    async with client(Connect, loose) as api:
        sandbox = await api.create()
        said = await api.stream("files.v1.FileService/Upload", body, sandbox.endpoint)
        messages, end = frames(said.body)
        assert said.status == 200 and messages == [] and end["error"]["code"] == code, said.body
        said = await api.stream("files.v1.FileService/Upload", header("/tmp/e") + header("/tmp/f") + data(), sandbox.endpoint)
        assert frames(said.body) == ([{"filesWritten": 2}], {})


@together
async def test_rest_makes_the_folders_of_an_upload(cloud):
    async with client(Rest, cloud) as api:
        sandbox = await api.create()
        await api.upload(sandbox, {"/tmp/x/y/z": (0, b"z"), "/tmp/m": (0o4777, b"m")})
        ran = await api.run(sandbox, wrapped("sh", "-c", "stat -c %a /tmp/x /tmp/x/y/z /tmp/m; touch /tmp/x/y/new"))
        assert (ran.exit, ran.stdout) == (0, b"755\n644\n777\n"), ran
        await api.delete(sandbox)


@BOTH
@together
async def test_what_is_no_plain_file_is_not_touched(cloud, kind):
    async with client(kind, cloud) as api:
        sandbox = await api.create()
        await api.run(sandbox, wrapped("sh", "-c", "mkfifo /tmp/fifo; ln -s /tmp/real /tmp/link; echo real > /tmp/real; ln -s none /tmp/dangling; mkdir /tmp/folder"))
        found = await api.download(sandbox, ["/tmp/fifo", "/tmp/folder", "/dev/null", "/tmp/link", "/tmp/dangling"])
        named = [f"{v['code']} {v['message'].split(':')[0]}" if isinstance(v, dict) else v for v in found.values()]
        nonregular = f"{'failedPrecondition' if kind is Rest else 'failed_precondition'} path_authority_nonregular_object"
        assert named[:4] == [nonregular, nonregular, nonregular, b"real\n"] and named[4].startswith(("notFound", "not_found"))
        said = await api.upload_call(sandbox, {"/tmp/fifo": b"x"})
        if kind is Rest:
            assert (said.status, said.code) == (409, "failed_precondition")
        else:
            assert frames(said.body)[1]["error"]["code"] == "failed_precondition"
        await api.delete(sandbox)


@BOTH
@together
async def test_faults_of_files(cloud, kind):
    async with client(kind, cloud) as api:
        sandbox = await api.create()
        await api.upload(sandbox, {"/tmp/a": b"content"})
        async def fails(step, **action):
            cloud.faults([{"step": step, "times": 1, "action": action}])
            with pytest.raises((Refused, aiohttp.ClientError)) as refused:
                await (api.upload(sandbox, {"/tmp/b": b"b", "/tmp/c": b"c"}) if step == "upload" else api.download(sandbox, ["/tmp/a"]))
            return getattr(refused.value, "said", None)
        for knob in ("truncate_stream", "stream_error", "unknown_part", "content_before_metadata"):
            assert (await fails("download", **{knob: True})).status == 200, knob
        if kind is Connect:
            for knob in ("compressed_frame", "oversize_frame"):
                assert frames((await fails("download", **{knob: True})).body)[1] is not None, knob
            assert frames((await fails("upload", no_message=True)).body) == ([], {})
        assert (await fails("upload", upload_count_wrong=True)).status == 200
        await fails("upload", upload_fails_at=1)
        found = await api.download(sandbox, ["/tmp/b", "/tmp/c"])
        assert found["/tmp/b"] == b"b" and found["/tmp/c"] == b"c"  # written by the upload whose count was wrong
        cloud.faults([{"step": "upload", "times": 1, "action": {"upload_lost": True}}])
        await api.upload(sandbox, {"/tmp/lost": b"x"})
        assert isinstance((await api.download(sandbox, ["/tmp/lost"]))["/tmp/lost"], dict)
        cloud.faults([{"step": "download", "times": 1, "action": {"unrequested_path": True}}])
        assert "/etc/passwd" in await api.download(sandbox, ["/tmp/a"])
        for count in (0, 1, 60):
            await fails("download", drop_after_bytes=count)
        if kind is Rest:
            cloud.faults([{"step": "download", "times": 1, "action": {"oversize_frame": True}}])
            assert len((await api.download_call(sandbox, ["/tmp/a"])).body) > 32 << 20
            cloud.knobs(quoted_parts=True)
            said = await api.download_call(sandbox, ["/tmp/a"])
            assert b'attachment; name="content"' in said.body and mixed(said) == {"/tmp/a": b"content"}
        await api.delete(sandbox)


@together
async def test_the_parts_of_a_download(cloud):
    async with client(Rest, cloud) as api:
        sandbox = await api.create()
        await api.upload(sandbox, {"/tmp/a": (0o600, b"one\r\n--two"), "/tmp/b": b""})
        said = await api.download_call(sandbox, ["/tmp/b", "/tmp/none", "/tmp/a", "/tmp/a"])
        assert said.headers["content-type"].startswith("multipart/mixed; boundary=")
        pieces, is_closed = parts(said)
        assert is_closed and [(n, t) for n, t, _ in pieces] == [
            ("metadata", "application/json"), ("content", "application/octet-stream"), ("error", "application/json"),
            ("metadata", "application/json"), ("content", "application/octet-stream"), ("metadata", "application/json"), ("content", "application/octet-stream")]
        assert pieces[4][2] == b"one\r\n--two" and json.loads(pieces[3][2]) == {"path": "/tmp/a", "mode": 0o600}
        assert json.loads(pieces[2][2])["failure"]["code"] == "notFound"
        await api.delete(sandbox)


@together
async def test_single_files(cloud):
    async with client(Rest, cloud) as api:
        sandbox = await api.create()
        own = functools.partial(api.own, sandbox=sandbox)
        octets = {"Content-Type": "application/octet-stream"}
        mkdir = lambda **body: api.own("PUT", sandbox, "files/directories", body=body)  # noqa: E731
        assert (await mkdir(path="/tmp/a/b", mode=0o700)).status == 404
        assert (await mkdir(path="/tmp/a/b", mode=0o700, parents=True)).json == {} and (await mkdir(path="/tmp/a/b", mode=0o777)).status == 200
        assert (await own("GET", path="files/stat?path=/tmp/a/b")).json["info"] == {"path": "/tmp/a/b", "size": (await own("GET", path="files/stat?path=/tmp/a/b")).json["info"]["size"], "mode": 0o700, "isDir": True, "type": "directory"}
        said = await own("PUT", path="files/content?path=/tmp/a/f&mode=384", data=b"12345", headers=octets)
        assert said.json == {"info": {"path": "/tmp/a/f", "size": "5", "mode": 0o600, "type": "regular"}}
        said = await own("GET", path="files/content?path=/tmp/a/f")
        assert said.body == b"12345" and said.headers["content-length"] == "5"
        assert [e["path"] for e in (await own("GET", path="files?path=/tmp/a")).json["entries"]] == ["/tmp/a/b", "/tmp/a/f"]
        said = await own("GET", path="files?path=/tmp/a&pageSize=1")
        assert len(said.json["entries"]) == 1 and [e["path"] for e in (await own("GET", path=f"files?path=/tmp/a&pageSize=1&pageToken={said.json['nextPageToken']}")).json["entries"]] == ["/tmp/a/f"]
        move = lambda source, to: api.own("POST", sandbox, "files/move", body={"from": source, "to": to})  # noqa: E731
        assert (await move("/tmp/a/f", "/tmp/a/b")).json["message"].startswith("move_destination_is_directory")
        assert (await move("/tmp/a/b", "/tmp/a/f")).json["message"].startswith("move_destination_occupied")
        assert (await move("/tmp/a/f", "/tmp/a/b/g")).json == {} and (await own("GET", path="files/content?path=/tmp/a/f")).status == 404
        assert (await own("DELETE", path="files?path=/tmp/a")).status == 409
        assert (await own("DELETE", path="files?path=/tmp/a&recursive=true")).json == {"completedPaths": ["/tmp/a/b/g", "/tmp/a/b", "/tmp/a"], "completedCount": 3}
        assert (await own("DELETE", path="files?path=/tmp/a")).json == {}
        await api.delete(sandbox)


@together
async def test_a_jail_holds_links_back():
    with DockercloudStandin("--jail", "/tmp") as cloud:
        async with client(Rest, cloud) as api:
            sandbox = await api.create()
            await api.run(sandbox, wrapped("ln", "-s", "/etc/hostname", "/tmp/out"))
            found = await api.download(sandbox, ["/tmp/out", "/etc/passwd"])
            assert all(v["message"].startswith("path_authority_symlink_escape") for v in found.values())
            said = await api.upload_call(sandbox, {"/tmp/out": b"x"})
            assert (said.status, said.code) == (409, "failed_precondition")
            await api.delete(sandbox)


# -- time --


@BOTH
@together
async def test_the_service_deletes_when_time_is_up(cloud, kind):
    async with client(kind, cloud) as api:
        sandbox = await api.create()
        if kind is Rest:
            shown = (await api.get(sandbox.uid)).json["effectiveFeatures"]["timeouts"]["expiresAt"]
            from datetime import datetime
            assert 140 < datetime.fromisoformat(shown).timestamp() - time.time() <= 150
        cloud.clock(advance_ms=149_000)
        assert (await api.get(sandbox.uid)).status == 200
        cloud.clock(advance_ms=1_100)
        while cloud.alive():
            await asyncio.sleep(0.02)
        assert (await api.get(sandbox.uid)).status == 404
    entry = entry_of(cloud, sandbox.uid)
    assert entry["ended_by"] == "ttl" and 150_000 <= entry["billed_ms"] < 152_000


@together
async def test_time_may_run_faster(cloud):
    cloud.knobs(time_scale=100.0)
    async with client(Rest, cloud) as api:
        sandbox = await api.create()
        while (await api.get(sandbox.uid)).status == 200:
            await asyncio.sleep(0.02)
    cloud.clock(ttl_speed=1.0)


@together
async def test_stop_start_rename_and_renew(cloud):
    async with client(Rest, cloud) as api:
        stop = {"timeouts": {"timeout": "100s", "onTimeout": "stop"}}
        sandbox = await api.create(features=stop)
        async def change(verb, method="POST", **more):
            tag = (await api.get(sandbox.uid)).headers["etag"]
            return await api.send(method, api.management(f"sandboxes/{sandbox.uid}{verb}"), headers={"If-Match": tag, **more.pop("headers", {})}, **more)
        said = await change("/stop")
        assert said.status == 200 and said.json["core"]["status"] == "stopped" and "endpoint" not in said.json["core"]
        assert (await api.exec_call(sandbox, wrapped("true"))).status == 409
        tag = (await api.get(sandbox.uid)).headers["etag"]
        starts = [await api.send("POST", api.management(f"sandboxes/{sandbox.uid}/start"), headers={"If-Match": tag, "Idempotency-Key": "s"}) for _ in range(2)]
        assert starts[0].status == 200 and starts[0].body == starts[1].body and starts[0].json["core"]["status"] == "running"
        assert (await api.run(sandbox, wrapped("true"))).exit == 0
        cloud.clock(advance_ms=101_000)
        while (await api.get(sandbox.uid)).json["core"]["status"] != "stopped":
            await asyncio.sleep(0.02)
        await change("/start")
        renew = lambda seconds: api.send("POST", api.management(f"sandboxes/{sandbox.uid}/renew-timeout"), body={"timeout": seconds})  # noqa: E731
        assert (await renew("200s")).status == 200 and (await renew("50s")).status == 409
        cloud.knobs(renew_unimplemented=True)
        assert (await renew("300s")).status == 501
        assert (await change("", "PATCH", body={"displayName": "renamed"})).status == 400  # the key is required
        assert (await change("", "PATCH", body={"displayName": "renamed"}, headers={"Idempotency-Key": "p"})).json["displayName"] == "renamed"
        assert (await api.names())[0] == ["renamed"]
        await api.delete(sandbox)


# -- Connect's own --


@together
async def test_connect_wants_its_headers(loose):
    async with client(Connect, loose) as api:
        url = loose.ready["connect_url"] + "/docker.sbx.v1.SandboxService/ListSandboxes"
        good = {"Connect-Protocol-Version": "1", "Connect-Timeout-Ms": "1000"}
        assert (await api.send("POST", url, body={}, headers=good)).status == 200 and loose.violations() == []
        for headers, status in (({"Connect-Timeout-Ms": "1000"}, 400), ({**good, "Connect-Timeout-Ms": "0"}, 400), ({**good, "Connect-Timeout-Ms": "soon"}, 400),
                                ({**good, "Content-Type": "application/proto"}, 415), ({**good, "Content-Encoding": "br"}, 501)):
            assert (await api.send("POST", url, data=b"{}", headers={"Content-Type": "application/json", **headers})).status in (status, 400), headers
        assert (await api.send("GET", url, headers=good)).status == 415
        assert (await api.send("POST", url, body={"colour": 1}, headers=good)).json["code"] == "invalid_argument"
        assert (await api.send("POST", url, data=b'{"pageSize":1,"pageSize":2}', headers={**good, "Content-Type": "application/json"})).status == 400
        assert (await api.ask("v1.SandboxService/DropSandbox", {})).status == 404


@together
async def test_connect_keeps_the_clients_deadline(cloud):
    async with client(Connect, cloud) as api:
        sandbox = await api.create()
        api.timeout_ms = 200
        said = await api.exec_call(sandbox, wrapped("sleep", "1"))
        assert (said.status, said.json["code"]) == (504, "deadline_exceeded")
        api.timeout_ms = 10000
        await api.delete(sandbox)


@together
async def test_connect_speaks_numbers_and_polls(cloud):
    cloud.knobs(enum_numbers=True, op_wait_unimplemented=True)
    async with client(Connect, cloud) as api:
        sandbox = await api.create()
        assert sandbox.shown["core"]["status"] == 3 and sandbox.shown["core"]["endpoint"]["protocol"] == 1
        assert (await api.policy(sandbox)).json["mode"] == 2
        shown = (await api.ask("v1.CapabilityService/GetCapabilities", {})).json
        assert shown["permissions"] == [1, 2, 9, 18] and shown["canAttachPolicies"] is True
        assert len(cloud.journal(step="poll")) >= 1
        await api.delete(sandbox)


@together
async def test_capabilities_say_what_they_are_told(cloud):
    async with client(Connect, cloud) as api:
        ask = functools.partial(api.ask, "v1.CapabilityService/GetCapabilities", {})
        assert "PERMISSION_NETWORK_POLICIES_READ" in (await ask()).json["permissions"]
        cloud.knobs(permissions=["PERMISSION_SANDBOXES_READ"])
        assert (await ask()).json["permissions"] == ["PERMISSION_SANDBOXES_READ"]
        cloud.add_fault(step="capabilities", action={"capabilities": {"resources": {"cpuMax": 2}}})
        assert (await ask()).json["resources"] == {"cpuMax": 2}


@together
async def test_a_rest_caller_may_lack_permissions(cloud):
    async with client(Rest, cloud) as api:
        cloud.knobs(permissions=["sandboxesRead"])
        assert (await api.names())[1] == 1
        assert (await api.create_call()).code == "permission_denied"


@together
async def test_an_operation_may_be_waited_for_in_slices(loose):
    loose.knobs(boot_ms=700)
    async with client(Connect, loose) as api:
        said = await api.create_call("gw-w")
        wait = lambda seconds: api.ask("v1.OperationService/WaitOperation", {"id": said.json["id"], "timeout": seconds})  # noqa: E731
        assert (await wait("0.05s")).json["done"] is False
        assert (await wait("10s")).json["done"] is True and loose.violations() == []
        assert (await wait("11s")).json["done"] is True and len(loose.violations()) == 1
        assert (await api.ask("v1.OperationService/WaitOperation", {"id": "op_none", "timeout": "1s"})).status == 404


# -- the wire --


@BOTH
@together
async def test_a_rule_answers_in_the_services_place(cloud, kind):
    async with client(kind, cloud) as api:
        async def said(**action):
            cloud.faults([{"step": "list", "times": 1, "action": {"type": "respond", **action}}])
            with pytest.raises(Refused) as refused:
                await api.names()
            return refused.value.said
        answer = await said(status=503, code="unavailable", message="try later")
        assert (answer.status, answer.code, answer.json["message"]) == (503, "unavailable", "try later")
        answer = await said(status=502, html=True)
        assert answer.body.startswith(b"<html>") and answer.headers["content-type"].startswith("text/html")
        assert (await said(status=429, retry_after="Wed, 21 Oct 2026 07:28:00 GMT")).headers["retry-after"].startswith("Wed")
        assert "RetryInfo" in (await said(status=429, retry_info=0.5)).body.decode()
        assert (await said(status=500, body="")).body == b""
        assert (await said(status=500, body="\xff\x00")).body == b"\xff\x00"


@BOTH
@together
async def test_an_answer_is_lost_after_its_effect(loose, kind):
    async with client(kind, loose) as api:
        loose.faults([{"step": "create", "times": 1, "phase": "after", "action": {"type": "respond", "status": 500}}])
        assert (await api.create_call("gw-1")).status == 500 and len(loose.alive()) == 1
        loose.faults([{"step": "create", "times": 1, "phase": "after", "action": {"type": "drop"}}])
        with pytest.raises(aiohttp.ClientError):
            await api.create_call("gw-2")
        assert len(loose.alive()) == 2
        loose.faults([{"step": "create", "times": 1, "action": {"type": "drop"}}])
        with pytest.raises(aiohttp.ClientError):
            await api.create_call("gw-3")
        assert len(loose.alive()) == 2


@BOTH
@together
async def test_an_answer_is_slow_stalls_or_breaks(cloud, kind):
    async with client(kind, cloud) as api:
        async def names(limit=5.0, **action):
            cloud.faults([{"step": "list", "times": 1, "action": action}])
            return await asyncio.wait_for(api.names(), limit)
        before = time.monotonic()
        assert await names(latency_ms=150) == ([], 1) and time.monotonic() - before >= 0.15
        assert await names(latency_jitter_ms=20) == ([], 1)
        assert await names(type="delay", ms=10) == ([], 1)
        before = time.monotonic()
        cloud.faults([{"step": "list", "phase": "after", "action": {"type": "delay", "ms": 100}}])
        assert await api.names() == ([], 1) and time.monotonic() - before >= 0.1
        with pytest.raises(asyncio.TimeoutError):
            await names(0.3, stall_after_bytes=1)
        with pytest.raises(asyncio.TimeoutError):
            await names(0.3, type="stall")
        with pytest.raises(aiohttp.ClientError):
            await names(stall_after_bytes=0, stall_ms=50)
        with pytest.raises(aiohttp.ClientError):
            await names(type="drop", bytes=1)
        with pytest.raises(json.JSONDecodeError):
            await names(truncate_json=1)
        with pytest.raises(Refused):
            await names(redirect="http://127.0.0.1:1/")
        cloud.seed_sandboxes({"name": "gw-1"})
        cloud.faults([{"step": "list", "times": 1, "action": {"duplicate_key": True}}])
        said = await api.send("GET", api.management("sandboxes")) if kind is Rest else await api.ask("v1.SandboxService/ListSandboxes", {})
        assert said.body.startswith(b'{"sandboxes":null,"sandboxes":[')
        cloud.faults([{"step": "list", "times": 1, "action": {"huge_answer": 20 << 20}}])
        said = await api.send("GET", api.management("sandboxes")) if kind is Rest else await api.ask("v1.SandboxService/ListSandboxes", {})
        assert len(said.body) > 19 << 20
    cloud.reset()


@BOTH
@together
async def test_a_rule_is_meant_for_one_sandbox(loose, kind):
    async with client(kind, loose) as api:
        one, two = await api.create("gw-1"), await api.create("gw-2")
        tell = functools.partial(loose.add_fault, action={"type": "respond", "status": 503})
        tell(lease="gw-2", step="exec")
        tell(sandbox=one.uid, step="policy")
        tell(lease="gw-3", step="create")
        assert (await api.run(one, wrapped("true"))).exit == 0 and (await api.exec_call(two, wrapped("true"))).status == 503
        assert (await api.policy(one)).status == 503 and (await api.policy(two)).status == 200
        assert (await api.create_call("gw-3")).status == 503 and (await api.create_call("gw-4")).status != 503
        assert [r["hits"] for r in loose.faults()] == [1, 1, 1]


@BOTH
@together
async def test_a_kept_connection_breaks_after_it_was_read(cloud, kind):
    async with client(kind, cloud) as api:
        sandbox = await api.create()
        await api.run(sandbox, wrapped("true"))
        cloud.add_fault(step="exec", action={"drop_reused_connection": True})
        with pytest.raises(aiohttp.ClientError):
            await api.run(sandbox, wrapped("true"))
        assert cloud.counts()["exec"] == 2
    async with client(kind, cloud) as fresh:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
            fresh.session = session
            assert (await fresh.run(sandbox, wrapped("true"))).exit == 0
            await fresh.delete(sandbox)


@BOTH
@together
async def test_a_connection_breaks_within_a_request(cloud, kind):
    async with client(kind, cloud) as api:
        sandbox = await api.create()
        await api.run(sandbox, wrapped("true"))
        for count in (0, 100, 1 << 20):
            cloud.faults([{"id": "cut", "step": "upload", "phase": "body", "times": 1, "action": {"type": "drop", "bytes": count}}])
            with pytest.raises(aiohttp.ClientError):
                await api.upload(sandbox, {"/tmp/a": b"x" * (3 << 20)})
            line = cloud.journal(step="upload")[-1]
            assert line["status"] == 0 and line["fault"] == "cut" and line["bytes"] == count
        assert "upload" not in cloud.counts() and isinstance((await api.download(sandbox, ["/tmp/a"]))["/tmp/a"], dict)
        await api.delete(sandbox)


@BOTH
@together
async def test_the_journal_tells_connections_apart(cloud, kind):
    async with client(kind, cloud) as api:
        for _ in range(3):
            await api.names()
    lines = cloud.journal(step="list")
    assert len({line["connection"] for line in lines}) == 1
    assert [b["nth"] - a["nth"] for a, b in zip(lines, lines[1:])] == [1, 1]
    async with client(kind, cloud) as api:
        await api.names()
    assert cloud.journal(step="list")[-1]["connection"] > lines[0]["connection"]


@BOTH
@together
async def test_an_error_may_echo_the_secret(cloud, kind):
    cloud.knobs(echo_secret=True)
    async with client(kind, cloud) as api:
        said = await api.get("sbx_none")
        assert api.token in said.json["message"]
        cloud.add_fault(step="list", action={"type": "respond", "status": 500})
        with pytest.raises(Refused) as refused:
            await api.names()
        assert f"Bearer {api.token}" in refused.value.said.json["message"]


@together
async def test_what_is_not_served(loose):
    async with client(Rest, loose) as api:
        said = await api.send("GET", api.management("volumes"))
        assert said.status == 404 and said.json["code"] == "notFound"
        loose.knobs(unserved_html=True)
        assert (await api.send("GET", api.management("volumes"))).body.startswith(b"<html>")
        assert (await api.send("PUT", api.management("sandboxes"))).status == 404
        assert (await api.send("GET", loose.ready["rest_url"] + "/v2/sandboxes")).status == 404
    assert len(loose.violations()) == 4


@together
async def test_what_the_document_does_not_have_is_a_breach(loose):
    async with client(Rest, loose) as api:
        sandbox = await api.create()
        assert (await api.get(sandbox.uid + "?colour=1")).status == 400
        assert (await api.exec_call(sandbox, wrapped("true"), timeout="9s")).status == 400
        assert (await api.own("POST", sandbox, "processes/exec", body={"cmd": wrapped("true")}, headers={"Idempotency-Key": "k"})).status == 200
        assert (await api.own("POST", sandbox, "processes/exec", data=b'{"cmd":["a"]}', headers={"Content-Type": "text/plain"})).status == 400
        assert (await api.own("GET", sandbox, "files/download")).status == 400
        assert (await api.send("DELETE", api.management(f"sandboxes/{sandbox.uid}?force=yes"), headers={"If-Match": '"x"'})).status == 400
    assert len(loose.violations()) == 4


# -- the program --


@together
async def test_rules_and_knobs_that_nobody_could_mean_are_refused(loose):
    for rules in ([{"step": "exec", "action": {"explode": True}}], [{"action": {"type": "respond", "colour": 1}}], {"step": "exec"}):
        with pytest.raises(AssertionError, match="400"):
            loose.faults(rules)
    with pytest.raises(AssertionError, match="400"):
        loose.knobs(explode=True)
    loose.faults([{"id": "mine", "step": "exec", "plane": "rest", "prob": 0.5, "action": {"exec_exit": 1}}])
    assert [(r["id"], r["step"], r["hits"]) for r in loose.faults()] == [("mine", "exec", 0)]


@together
async def test_chance_is_seeded():
    async def draws(seed):
        with DockercloudStandin("--exec=canned", seed=seed) as cloud:
            cloud.faults([{"id": "r", "step": "list", "prob": 0.5, "action": {"type": "respond", "status": 500}}])
            async with client(Rest, cloud) as api:
                return [(await api.send("GET", api.management("sandboxes"))).status for _ in range(24)]
    one = await draws(7)
    assert one == await draws(7) and one != await draws(8) and set(one) == {200, 500}


@BOTH
@together
async def test_canned_answers_need_no_process(tmp_path, kind):
    table = tmp_path / "table.json"
    table.write_text(json.dumps([{"code": "six times seven", "stdout": "forty-two", "stderr": "e", "exit": 4, "delay_ms": 50}, {"code": "slow", "delay_ms": 5000}]))
    with DockercloudStandin("--exec=canned", "--canned", table, "--knobs", '{"boot_ms": 0, "delete_lag_reads": 0}') as cloud:
        async with client(kind, cloud) as api:
            sandbox = await api.create()
            await api.run(sandbox, ["mkdir", "-p", "--", "/tmp/p"])
            await api.upload(sandbox, {"/tmp/p/a.js": b"// six times seven", "/tmp/p/b.js": b"anything", "/tmp/p/c": b"sleep 30", "/tmp/p/d": b"yes", "/tmp/p/e": b"slow", "/tmp/p/f": b"egressOpen"})
            assert await api.run(sandbox, wrapped("node", "/tmp/p/a.js")) == (4, b"forty-two", b"e", False)
            assert (await api.run(sandbox, wrapped("node", "b.js"), workingDir="/tmp/p")).stdout == b"42\n"
            for name in "ce":
                before = time.monotonic()
                assert (await api.run(sandbox, wrapped("sh", f"/tmp/p/{name}", limit=1))).exit == 137 and time.monotonic() - before >= 1
            assert len((await api.run(sandbox, wrapped("sh", "/tmp/p/d", cap=1001))).stdout) == 1001
            assert json.loads((await api.run(sandbox, wrapped("node", "/tmp/p/f"), workingDir="/tmp/p")).stdout)["cwd"] == "/tmp/p"
            assert (await api.download(sandbox, ["/tmp/p/b.js"])) == {"/tmp/p/b.js": b"anything"}
            assert isinstance((await api.download(sandbox, ["/tmp/none"]))["/tmp/none"], dict)
            await api.delete(sandbox)
        assert cloud.alive() == [] and cloud.violations() == []


def test_only_loopback_is_bound():
    for address in ("0.0.0.0:0", "[::]:0", "198.51.100.1:0", "localhost:0"):
        done = subprocess.run([sys.executable, "-m", "standins.dockercloud", "--listen", address], cwd=ROOT / "tests", capture_output=True, text=True, timeout=30)
        assert done.returncode == 2 and "loopback" in done.stderr


@together
async def test_it_ends_with_everything_in_it():
    with DockercloudStandin() as cloud:
        async with client(Rest, cloud) as api:
            sandbox = await api.create()
            asyncio.ensure_future(api.exec_call(sandbox, wrapped("sleep", "4321", limit=5000))).add_done_callback(lambda t: t.cancelled() or t.exception())
            while not cloud.counts().get("exec"):
                await asyncio.sleep(0.01)
            cloud.stop()
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "sleep 4321" not in listed
