"""The stand-in of E2B by its own measure: routing, checks, the traps its specification tells of, faults, books. What the official SDKs confirm is in
test_sdk_e2b.py."""
import base64
import hashlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time

import pytest

import clouds

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from standins.e2b import control, files, model, network, rpc, schema  # noqa: E402

KEY = "e2b_0123456789abcdef"
DENY = {"allow_internet_access": False, "network": {"denyOut": ["0.0.0.0/0"], "allowPublicTraffic": False}}
ROUTE = "E2b-Sandbox-Id", "E2b-Sandbox-Port"


class Client:
    """A bare HTTP/1.1 client of both planes."""

    def __init__(self, cloud):
        self.cloud, self.port = cloud, cloud.ready["port"]

    def call(self, method, path, body=None, headers=(), key=KEY, timeout=20):
        """(status, headers, bytes)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        headers = dict(headers)
        if key and ROUTE[0] not in headers:
            headers.setdefault("X-API-Key", key)
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
            headers.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def json(self, *args, **kwargs):
        status, _, body = self.call(*args, **kwargs)
        return status, json.loads(body) if body else None

    def create(self, **more):
        status, value = self.json("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 60, **more})
        assert status == 201, value
        return value

    def ids(self, query=""):
        return [s["sandboxID"] for s in self.json("GET", "/v2/sandboxes" + query)[1]]


def marks(s, user="user", **more):
    """The headers of a data-plane call."""
    headers = {ROUTE[0]: s["sandboxID"], ROUTE[1]: "49983", "X-Access-Token": s["envdAccessToken"], "Connect-Protocol-Version": "1"}
    if user:
        headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:".encode()).decode()
    return {**headers, **more}


def envelope(value):
    data = json.dumps(value).encode()
    return struct.pack(">BI", 0, len(data)) + data


def frames(data):
    """[(flags, JSON)], and what is left over."""
    found = []
    while len(data) >= 5:
        flags, length = struct.unpack(">BI", data[:5])
        if len(data) < 5 + length:
            break
        found.append((flags, json.loads(data[5:5 + length])))
        data = data[5 + length:]
    return found, data


def start_body(*argv, stdin=False, **process):
    return envelope({"process": {"cmd": argv[0], "args": list(argv[1:]), **process}, "stdin": stdin})


def start(client, s, *argv, headers=(), user="user", **process):
    """(frames, what is left over, status) of a Start that is read to its end."""
    body = start_body(*argv, **process)
    status, _, data = client.call("POST", "/process.Process/Start", body,
                                  marks(s, user, **{"Content-Type": "application/connect+json", "Keepalive-Ping-Interval": "15", **dict(headers)}))
    return *frames(data), status


def outcome(found):
    """(stdout, the end event, the end frame)."""
    out = b"".join(base64.b64decode(v["event"]["data"].get("stdout", "")) for f, v in found if "data" in v.get("event", {}))
    ends = [v["event"]["end"] for f, v in found if "end" in v.get("event", {})]
    return out, ends, [v for f, v in found if f == 2]


def rpc_call(client, s, method, value, **more):
    return client.json("POST", method, value, marks(s, **more))


@pytest.fixture(scope="module")
def cloud():
    with clouds.E2bStandin() as c:
        yield c


@pytest.fixture
def client(cloud):
    cloud.reset()
    yield Client(cloud)
    cloud.reset()


# -- facts with check values of the specification's own --


def test_check_values_of_the_specification():
    assert files.signature("/tmp/a", "read", "root", "tok") == "v1_3layKTMu9T5rrUdohkkj62/BfDuUr/I5eKs0dggncos"
    size = lambda vcpu, mem: {"cpuCount": vcpu, "memoryMB": mem}  # noqa: E731
    for ms, vcpu, mem, nano in ((1000, 2, 512, 30_250), (1000, 2, 1024, 32_500), (1000, 4, 4096, 74_000), (1000, 8, 4096, 130_000),
                                (4500, 2, 512, 136_125), (40_000, 2, 512, 1_210_000), (3_600_000, 2, 512, 108_900_000)):
        assert model.nano_usd(ms, size(vcpu, mem)) == nano
    assert rpc.STATUS["deadline_exceeded"] == 504 and rpc.STATUS["canceled"] == 499 and rpc.STATUS["not_found"] == 404
    assert control.stamp(0) == "1970-01-01T00:00:00.000Z"


def test_white_space_of_messages_is_never_the_same():
    write = rpc.Writer(1)
    texts = {write({"event": {"data": {"stdout": "eA==", "x": 1}}}) for _ in range(50)}
    assert len(texts) == 4 and len({json.dumps(json.loads(t)) for t in texts}) == 1


@pytest.mark.parametrize("value, shape, wrong, unknown", [
    ({"templateID": "x"}, schema.NEW_V2, False, 0), ({}, schema.NEW_V2, True, 0), ({"templateID": 1}, schema.NEW_V2, True, 0),
    ({"templateID": "x", "timeout": "5"}, schema.NEW_V2, True, 0), ({"templateID": "x", "timeout": True}, schema.NEW_V2, True, 0),
    ({"templateID": "x", "metadata": {"a": 1}}, schema.NEW_V2, True, 0), ({"templateID": "x", "secure": True}, schema.NEW_V2, False, 1),
    ({"templateID": "x", "secure": True}, schema.NEW_V1, False, 0), ({"templateID": "x", "network": {"allowout": []}}, schema.NEW_V2, False, 1),
    ([], schema.NEW_V2, True, 0), ({"pid": -1}, schema.SELECTOR, True, 0), ({"pid": "7"}, schema.SELECTOR, False, 0),
    ({"stdin": "!"}, {"stdin": schema.BYTES}, True, 0), ({"stdin": "_-8"}, {"stdin": schema.BYTES}, False, 0)])
def test_schema(value, shape, wrong, unknown):
    said, keys = schema.check(value, shape)
    assert bool(said) == wrong and len(keys) == unknown


def test_the_schema_has_the_keys_of_the_published_client():
    """The types that the official JavaScript client was generated with, where it is installed."""
    types = pathlib.Path(os.environ.get("STANDIN_NPM", clouds.ROOT / "build/npm")) / "node_modules/e2b/dist/index.d.ts"
    if not types.exists():
        assert os.environ.get("CI") != "true"
        pytest.skip("the npm package e2b is not installed: make sdks")
    text = types.read_text()
    for name, shape in {"NewSandbox": schema.NEW_V1, "NewSandboxV2": schema.NEW_V2, "SandboxNetworkConfig": schema.NETWORK, "ConnectSandbox": schema.CONNECT_V1,
                        "SandboxNetworkUpdateConfig": schema.UPDATE, "ConnectSandboxV2": schema.CONNECT_V2, "SandboxTimeoutRequest": schema.TIMEOUT,
                        "SandboxPauseRequest": schema.PAUSE, "ResumedSandbox": schema.RESUME, "SandboxRefreshRequest": schema.REFRESH}.items():
        indent, block = re.search(rf"^( +){name}: \{{\n(.*?)^\1\}}", text, re.M | re.S).groups()
        fields = dict(re.findall(rf"^{indent}  (\w+)(\??):", block, re.M))
        assert {k.rstrip("!") for k in shape} == set(fields), name
        assert {k.rstrip("!") for k in shape if k.endswith("!")} == {k for k, optional in fields.items() if not optional}, name


@pytest.mark.parametrize("net, status", [
    ({"denyOut": ["0.0.0.0/0"]}, None), ({"denyOut": ["example.com"]}, 400), ({"denyOut": ["0.0.0.0"]}, 400), ({"denyOut": ["0.0.0.0/8"]}, 400),
    ({"allowOut": ["1.2.3.4", "10.0.0.0/8"]}, None), ({"allowOut": ["example.com"]}, 400), ({"allowOut": ["*.example.com"], "denyOut": ["0.0.0.0/0"]}, None),
    ({"egressProxy": {"address": "x"}}, 403), ({"httpsPorts": [49983]}, 400),
    ({"rules": {"a.example": [{"transform": {"headers": {"X-A": "v"}}}]}}, None), ({"rules": {"a.example": [{}, {}]}}, 400),
    ({"rules": {f"a{i}.example": [] for i in range(10)}}, None), ({"rules": {f"a{i}.example": [] for i in range(11)}}, 400),
    ({"rules": {"a.example": [{"transform": {"headers": {"X A": "v"}}}]}}, 400), ({"rules": {"a.example": [{"transform": {"headers": {"X-A": "v" * 2049}}}]}}, 400),
    ({"rules": {"a.example": [{"transform": {"headers": {"X-A": "${e2b.secrets.K}"}}}]}}, None),
    ({"rules": {"a.example": [{"transform": {"headers": {"X-A": "${e2b.nonsense}"}}}]}}, 400)])
def test_network_checks(net, status):
    assert (network.wrong(net) or (None,))[0] == status


# -- the control plane --


@pytest.mark.parametrize("change, status, starts", [
    ({"timeout": 0}, 400, "Timeout must be greater than 0"), ({"timeout": 24 * 3600 + 1}, 400, "Timeout cannot be greater than 24 hours"),
    ({"timeout": "60"}, 400, "validation error:"), ({"templateID": "nope"}, 404, "template 'nope'"), ({"metadata": {"a": 1}}, 400, "validation error:"),
    ({"network": {"denyOut": ["x"]}}, 400, "invalid denied CIDR"), ({"autoPauseMemory": False}, 400, "autoPauseMemory")])
def test_a_create_that_is_refused(client, change, status, starts):
    got, value = client.json("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 60, **change})
    assert got == status and value["code"] == status and value["message"].startswith(starts) and set(value) <= {"code", "message", "error_code"}
    assert client.cloud.alive() == []


def test_keys_flavours_and_routes(client):
    assert client.call("GET", "/v2/sandboxes", key=None)[0] == 401
    status, value = client.json("GET", "/nope")
    assert status == 404 and value["code"] == 404 and client.cloud.journal()[-1]["unknown_route"]
    assert client.call("GET", "/health", key=None)[0] == 200
    assert client.json("GET", "/sandboxes/No-Such")[1]["message"] == "Invalid sandbox ID"
    status, value = client.json("GET", "/sandboxes/i0000")
    assert status == 404 and value["message"].startswith('Sandbox "i0000" doesn\'t exist')
    # v1: the default time to live is 15 s, and no public traffic needs secured access
    status, v1 = client.json("POST", "/sandboxes", {"templateID": "base"})
    detail = client.json("GET", f"/sandboxes/{v1['sandboxID']}")[1]
    assert status == 201 and "envdAccessToken" not in v1 and "trafficAccessToken" not in v1
    assert client.json("POST", "/sandboxes", {"templateID": "base", "network": {"allowPublicTraffic": False}})[0] == 400
    wait = lambda d: time.mktime(time.strptime(d["endAt"][:19], "%Y-%m-%dT%H:%M:%S")) - time.mktime(time.strptime(d["startedAt"][:19], "%Y-%m-%dT%H:%M:%S"))  # noqa: E731
    assert 14 <= wait(detail) <= 16
    v2 = client.json("POST", "/v2/sandboxes", {"templateID": "base", **DENY})[1]
    detail = client.json("GET", f"/sandboxes/{v2['sandboxID']}")[1]
    assert 299 <= wait(detail) <= 301 and len(v2["trafficAccessToken"]) >= 32 and v2["domain"] is None and re.fullmatch(r"i[a-z0-9]{20}", v2["sandboxID"])
    assert detail["network"] == DENY["network"] and detail["allowInternetAccess"] is False and detail["lifecycle"] == {"autoResume": False, "onTimeout": "kill"}


def test_one_flavour_alone():
    with clouds.E2bStandin("--flavour", "v1", "--exec=canned") as cloud:
        c = Client(cloud)
        assert c.call("POST", "/v2/sandboxes", {"templateID": "base"})[0] == 404 and c.call("POST", "/sandboxes", {"templateID": "base"})[0] == 201


def test_what_a_client_may_not_send_is_written_down(client):
    client.create(surplus=1)
    client.call("POST", "/v2/sandboxes", b'{"templateID":"base","templateID":"big"}', {"Content-Type": "application/json"})
    client.call("POST", "/v2/sandboxes", b'{"templateID":"base"}', {"Content-Type": "text/plain"})
    s = client.create()
    client.call("GET", "/health", headers={ROUTE[0]: s["sandboxID"]})
    client.call("POST", "/process.Process/List", {"x": 1}, marks(s))
    client.call("POST", "/process.Process/List", {}, {**marks(s), "X-API-Key": KEY})
    what = [v["what"] for v in client.cloud.violations()]
    assert what == ["a key that the schema does not have", "a body that is no JSON", "a body that is not said to be JSON", "one routing header without the other",
                    "a key that the schema does not have", "the API key was sent to the data plane"]


def test_the_list_is_filtered_and_walked(client):
    made = [client.create(metadata={"gw_lease": f"l{i}", "gw": "x"})["sandboxID"] for i in range(5)]
    assert client.ids() == made[::-1] and client.ids("?metadata=gw_lease%3Dl3%26gw%3Dx") == [made[3]]
    assert client.call("GET", "/v2/sandboxes?metadata=gw")[0] == 400 and client.call("GET", "/v2/sandboxes?limit=101")[0] == 400
    status, headers, body = client.call("GET", "/v2/sandboxes?limit=2&order=asc")
    assert [s["sandboxID"] for s in json.loads(body)] == made[:2] and headers["X-Total-Running"] == "5"
    assert client.ids(f"?limit=3&order=asc&nextToken={headers['X-Next-Token']}") == made[2:]
    assert client.call("GET", f"/v2/sandboxes?nextToken={headers['X-Next-Token']}")[0] == 400 and client.call("GET", "/v2/sandboxes?nextToken=x")[0] == 400
    assert "X-Next-Token" not in client.call("GET", f"/v2/sandboxes?limit=3&order=asc&nextToken={headers['X-Next-Token']}")[1]
    assert client.ids("?state=paused") == []


def test_plans_refuse_in_the_two_shapes(client, tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"max_hours": 1, "max_concurrent": 2, "creates_per_s": 3}))
    with clouds.E2bStandin("--plan", plan, "--exec=canned") as cloud:
        c = Client(cloud)
        first = [c.create()["sandboxID"] for _ in range(2)]
        status, headers, body = c.call("POST", "/v2/sandboxes", {"templateID": "base"})
        assert status == 429 and "Retry-After" not in headers and b"maximum number of concurrent E2B sandboxes (2)" in body
        for s in first:
            c.call("DELETE", f"/sandboxes/{s}")
        answers = [c.call("POST", "/v2/sandboxes", {"templateID": "base"}) for _ in range(2)]
        status, headers, body = answers[-1]
        assert status == 429 and int(headers["Retry-After"]) >= 1 and b"Rate limit exceeded" in body and headers["RateLimit-Remaining"] == "0"


def test_times_to_live(client):
    s = client.create(timeout=30)
    path = f"/sandboxes/{s['sandboxID']}"
    assert client.call("POST", path + "/timeout", {"timeout": 100})[0] == 204
    client.cloud.clock(40_000)
    assert client.call("GET", path)[0] == 200
    assert client.call("POST", f"/v2{path}/connect", {"timeout": 10})[0] == 200      # only ever extends
    client.cloud.clock(50_000)
    assert client.call("GET", path)[0] == 200
    client.cloud.clock(11_000)
    assert client.call("GET", path)[0] == 404 and client.cloud.alive() == []
    [row] = client.cloud.account()["sandboxes"]
    assert row["ended_by"] == "ttl" and 101_000 <= row["billed_ms"] < 103_000
    p = client.create(timeout=30, autoPause=True)
    client.cloud.clock(31_000)
    assert client.json("GET", f"/sandboxes/{p['sandboxID']}")[1]["state"] == "paused"
    client.cloud.clock(3_600_000)
    assert client.call("DELETE", f"/sandboxes/{p['sandboxID']}")[0] == 204 and client.cloud.account()["sandboxes"][1]["billed_ms"] < 33_000


def test_pause_and_resume(client):
    s = client.create()
    path = f"/sandboxes/{s['sandboxID']}"
    assert client.call("POST", path + "/pause", {"memory": True})[0] == 204 and client.call("POST", path + "/pause", {})[0] == 409
    assert client.call("GET", "/health", headers=marks(s))[0] == 502 and client.call("POST", path + "/timeout", {"timeout": 5})[0] == 409
    assert client.call("POST", path + "/resume")[0] == 400
    status, again = client.json("POST", f"/v2{path}/connect", {"timeout": 60})
    assert status == 201 and again["sandboxID"] == s["sandboxID"] and client.call("GET", "/health", headers=marks(again))[0] == 204


def test_a_network_update_replaces_everything(client):
    s = client.create(**DENY)
    path = f"/sandboxes/{s['sandboxID']}"
    client.cloud.add_fault(path="/sandboxes/{id}/network", times=1, action={"type": "network_sticky"})
    assert client.call("PUT", path + "/network", {})[0] == 204 and client.json("GET", path)[1]["network"]["denyOut"] == ["0.0.0.0/0"]
    assert client.call("PUT", path + "/network", {})[0] == 204
    detail = client.json("GET", path)[1]
    assert detail["network"] == {"allowPublicTraffic": False} and "allowInternetAccess" not in detail
    assert client.call("PUT", path + "/network", {"allowOut": ["x.example"]})[0] == 400


# -- the edge --


def test_routing(client):
    s = client.create(**DENY)
    sandbox_id = s["sandboxID"]
    assert client.call("GET", "/health", headers={"Host": f"49983-{sandbox_id}.e2b.example"})[0] == 204
    for headers, text in (({ROUTE[0]: sandbox_id}, b"E2b-Sandbox-Port"), ({ROUTE[1]: "49983", ROUTE[0]: "!"}, b"invalid sandbox ID"),
                          ({ROUTE[0]: sandbox_id, ROUTE[1]: "0"}, b"invalid sandbox port")):
        status, got, body = client.call("GET", "/health", headers=headers)
        assert status == 400 and text in body and got["Content-Type"].startswith("text/plain")
    status, value = client.json("GET", "/health", headers={ROUTE[0]: "i0", ROUTE[1]: "49983"})
    assert status == 502 and value == {"sandboxId": "i0", "message": "The sandbox was not found", "code": 502}
    port = {ROUTE[0]: sandbox_id, ROUTE[1]: "8080"}
    assert client.call("GET", "/", headers=port)[0] == 403
    status, value = client.json("GET", "/", headers={**port, "e2b-traffic-access-token": s["trafficAccessToken"]})
    assert status == 502 and value["port"] == 8080 and "port is not open" in value["message"]
    for path in ("/init", "/x/../freeze"):
        assert client.json("POST", path, {}, marks(s))[0] == 404
    wrong = {**marks(s), "X-Access-Token": "wrong"}
    status, value = client.json("POST", "/process.Process/List", {}, wrong)
    assert status == 401 and value["message"].startswith("unauthorized access")
    assert client.call("GET", "/files?path=/etc/hostname", headers=wrong)[0] == 401
    assert client.call("POST", "/process.Process/List", b"{}", {**marks(s), "Content-Type": "application/proto"})[0] == 415
    assert client.call("GET", "/process.Process/List", headers=marks(s))[0] == 405


def test_a_sandbox_is_found_by_its_token_when_that_is_asked_for():
    with clouds.E2bStandin("--route-by-token", "--exec=canned") as cloud:
        c = Client(cloud)
        s, _ = c.create(), c.create()
        status, value = c.json("POST", "/process.Process/List", {}, {"X-Access-Token": s["envdAccessToken"], "Connect-Protocol-Version": "1"}, key=None)
        assert status == 200 and value == {} and cloud.journal()[-1]["sandbox"] == s["sandboxID"]


# -- processes --


def test_how_processes_end(client):
    s = client.create()
    for argv, out, end in ((["/bin/echo", "hi"], b"hi\n", {"exited": True, "status": "exit status 0"}),
                           (["/bin/sh", "-c", "exit 7"], b"", {"exitCode": 7, "exited": True, "status": "exit status 7", "error": "exit status 7"}),
                           (["/bin/sh", "-c", "kill -SEGV $$"], b"", {"exitCode": -1, "status": "signal: segmentation fault", "error": "signal: segmentation fault"})):
        found, rest, status = start(client, s, *argv)
        assert (status, rest) == (200, b"") and "pid" in found[0][1]["event"]["start"]
        assert outcome(found) == (out, [end], [{}])
    assert outcome(start(client, s, "no-such-command")[0])[1][0]["exitCode"] == 127
    assert outcome(start(client, s, "/etc/passwd")[0])[1][0]["exitCode"] == 126
    for more, code, text in (({"cwd": "/nope"}, "invalid_argument", "cwd '/nope' does not exist"), ({"user": "ghost"}, "unauthenticated", "invalid username: 'ghost'")):
        [(flags, last)] = start(client, s, "/bin/true", **more)[0]
        assert flags == 2 and last["error"]["code"] == code and text in last["error"]["message"]
    assert outcome(start(client, s, "/bin/sh", "-c", "echo $A $HOME $USER $E2B_SANDBOX_ID", envs={"A": "b"}, user="root")[0])[0].split() == [
        b"b", b"/" + b"root", b"root", s["sandboxID"].encode()]


def test_a_deadline_ends_the_stream_and_the_one_process(client):
    s = client.create()
    begin = time.monotonic()
    found, _, _ = start(client, s, "/bin/sh", "-c", "echo $$; sleep 1000 >/dev/null 2>&1 & echo $!; wait", headers={"Connect-Timeout-Ms": "700"})
    assert 0.6 < time.monotonic() - begin < 5 and outcome(found)[2][0]["error"]["code"] == "deadline_exceeded"
    parent, child = outcome(found)[0].split()
    alive, _, _ = start(client, s, "/bin/sh", "-c", f"kill -0 {child.decode()} && echo alive; "
                        f"while kill -0 {parent.decode()} 2>/dev/null; do sleep 0.05; done; echo dead")
    assert outcome(alive)[0] == b"alive\ndead\n"
    # a child that holds the output makes the end wait
    begin = time.monotonic()
    found, _, _ = start(client, s, "/bin/sh", "-c", "sleep 0.6 & exit 5")
    assert time.monotonic() - begin > 0.5 and outcome(found)[1][0]["exitCode"] == 5


def read_until(sock, text, seconds=10):
    data, end = b"", time.monotonic() + seconds
    while text not in data:
        assert time.monotonic() < end
        piece = sock.recv(65536)
        assert piece, data
        data += piece
    return data


def raw_start(client, s, *argv, **headers):
    """A socket with a Start under way."""
    body = start_body(*argv)
    lines = {**marks(s), "Content-Type": "application/connect+json", "Content-Length": str(len(body)), "Host": "localhost", **headers}
    sock = socket.create_connection(("127.0.0.1", client.port), timeout=20)
    sock.sendall(b"POST /process.Process/Start HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in lines.items()).encode() + b"\r\n" + body)
    return sock


def test_a_dropped_stream_does_not_end_the_process(client):
    s = client.create()
    with raw_start(client, s, "/bin/sh", "-c", "sleep 1; echo late > kept; exec sleep 1000") as sock:
        data = read_until(sock, b'"pid"')
    pid = json.loads(re.search(rb'\{"event.*?\}\}\}', data)[0])["event"]["start"]["pid"]
    assert [p["pid"] for p in rpc_call(client, s, "/process.Process/List", {})[1]["processes"]] == [pid]
    end = time.monotonic() + 10
    while client.call("GET", "/files?path=kept&username=user", headers=marks(s))[2] != b"late\n":
        assert time.monotonic() < end
        time.sleep(0.05)
    selector = {"process": {"pid": pid}}
    assert rpc_call(client, s, "/process.Process/SendSignal", {**selector, "signal": "SIGNAL_SIGKILL"}) == (200, {})
    status, value = rpc_call(client, s, "/process.Process/SendSignal", {"process": {"pid": 99999}, "signal": "SIGNAL_SIGKILL"})
    assert status == 404 and value["code"] == "not_found"
    # a finished process is remembered for a late Connect
    status, _, data = client.call("POST", "/process.Process/Connect", envelope(selector), marks(s, **{"Content-Type": "application/connect+json"}))
    assert outcome(frames(data)[0])[1][0]["status"] == "signal: killed"


def test_a_slow_reader_holds_the_process_back(client):
    s = client.create()
    with raw_start(client, s, "/bin/sh", "-c", "head -c 67108864 /dev/zero; echo done > flag; sleep 1000") as sock:
        read_until(sock, b'"pid"')
        time.sleep(0.7)
        assert client.call("GET", "/files?path=flag", headers=marks(s))[0] == 404
    # nobody listens any more: the rest is thrown away
    end = time.monotonic() + 15
    while client.call("GET", "/files?path=flag", headers=marks(s))[0] != 200:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_keepalive_interval_of_zero_takes_envd_down(client):
    s = client.create()
    client.cloud.clear_faults()
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        start(client, s, "/bin/true", headers={"Keepalive-Ping-Interval": "0"})
    status, value = client.json("GET", "/health", headers=marks(s))
    assert status == 502 and "port is not open" in value["message"]
    assert [v["what"] for v in client.cloud.violations()] == ["Keepalive-Ping-Interval that crashes envd"]
    assert client.call("DELETE", f"/sandboxes/{s['sandboxID']}")[0] == 204 and client.cloud.alive() == []


def test_keepalives_come_in_silence(client):
    found, _, _ = start(client, client.create(), "/bin/sleep", "2.2", headers={"Keepalive-Ping-Interval": "1"})
    names = [next(iter(v["event"])) for f, v in found if f == 0]
    assert names[0] == "start" and names[-1] == "end" and names.count("keepalive") == len(names) - 2 >= 2


def test_a_killed_sandbox_cuts_its_streams(client):
    for how in ("rst", "frame"):
        with clouds.E2bStandin("--lost", how) as cloud:
            c = Client(cloud)
            s = c.create()
            with raw_start(c, s, "/bin/sleep", "1000") as sock:
                data = read_until(sock, b'"pid"')
                assert c.call("DELETE", f"/sandboxes/{s['sandboxID']}")[0] == 204
                if how == "rst":
                    with pytest.raises(ConnectionResetError):
                        while sock.recv(65536):
                            pass
                else:
                    data = read_until(sock, b"0\r\n\r\n")
                    assert b"unavailable" in data and b"ended before the stream completed" in data
            assert c.call("GET", "/health", headers=marks(s))[0] == 502


# -- files --


def form(parts):
    """(body, content type)."""
    body = b"".join(b'--b\r\nContent-Disposition: form-data; name="file"; filename="' + n.encode() + b'"\r\n\r\n' + d + b"\r\n" for n, d in parts) + b"--b--\r\n"
    return body, {"Content-Type": "multipart/form-data; boundary=b"}


def upload(client, s, parts, query="?username=user", **more):
    body, kind = form(parts)
    return client.json("POST", "/files" + query, body, {**marks(s), **kind, **more})


def test_uploads_and_downloads(client):
    s = client.create()
    status, written = upload(client, s, [("/home/user/p/a", b"1" * 100_000), ("rel", b"")])
    assert status == 200 and [(w["path"], w["name"], w["type"]) for w in written] == [("/home/user/p/a", "a", "file"), ("/home/user/rel", "rel", "file")]
    assert upload(client, s, [("/tmp/x", b"1"), ("/tmp/x", b"2")])[0] == 400 and upload(client, s, [("/tmp", b"1")])[0] == 400
    assert upload(client, s, [("a", b"1"), ("b", b"2")], "?path=/tmp/one")[0] == 400 and upload(client, s, [("a", b"1")], "?username=ghost")[0] == 400
    assert client.call("POST", "/files?path=/tmp/y", b"x", {**marks(s), "Content-Type": "text/plain"})[0] == 400
    # a quote is not decoded
    assert upload(client, s, [("/tmp/a%22b", b"1")])[1][0]["path"] == "/tmp/a%22b"
    get = lambda query, **h: client.call("GET", "/files" + query, headers={**marks(s), **h})  # noqa: E731
    assert get("?path=/nope")[0] == 404 and get("?path=/tmp")[0] == 400 and get("?path=/tmp/x", **{"Accept-Encoding": "gzip, identity;q=0"})[0] == 406
    status, headers, body = get("?path=p/a", Range="bytes=0-9")
    assert (status, body, headers["Content-Range"]) == (206, b"1" * 10, "bytes 0-9/100000")
    assert get("?path=p/a", Range="bytes=100000-")[0] == 416 and get("?path=rel", Range="bytes=0-9")[::2] == (200, b"")
    assert get("?path=p/a", Range="bytes=0-100000")[0] == 206
    # served as root, links followed inside
    start(client, s, "/bin/sh", "-c", "ln -s /etc/shadow link")
    assert get("?path=link")[2].startswith(b"root:")
    status, entry = rpc_call(client, s, "/filesystem.Filesystem/Stat", {"path": "link"})
    assert entry["entry"]["symlinkTarget"] == "/etc/shadow" and entry["entry"]["permissions"].startswith("L")


def test_the_guest_has_less_room_than_it_may_write(client):
    s = client.create()
    assert outcome(start(client, s, "/bin/sh", "-c", "head -c 700000000 /dev/zero > big 2>/dev/null; echo $?")[0])[0] != b"0\n"
    status, value = upload(client, s, [("/home/user/more", b"x" * 100_000)])
    assert status == 507 and value == {"message": "not enough disk space available", "code": 507} or "No space" in value["message"]


# -- the traps --


def test_a_lost_delete_leaves_a_machine_that_bills(client):
    a, b, c = (client.create(timeout=600) for _ in range(3))
    paths = [f"/sandboxes/{s['sandboxID']}" for s in (a, b, c)]
    client.cloud.faults([{"method": "DELETE", "nth": n, "times": 1, "path": p, "action": {"type": "lost_delete", "kind": k}}
                         for n, p, k in ((1, paths[0], "204_alive"), (1, paths[1], "500_then_404_alive"), (1, paths[2], "500_dead"))])
    assert client.call("DELETE", paths[0])[0] == 204 and a["sandboxID"] in client.ids()
    status, value = client.json("DELETE", paths[1])
    assert status == 500 and value["message"].startswith("Error killing sandbox")
    assert client.call("DELETE", paths[1])[0] == 404 and b["sandboxID"] not in client.ids() and client.call("GET", "/health", headers=marks(b))[0] == 502
    assert client.call("DELETE", paths[2])[0] == 500 and client.call("DELETE", paths[2])[0] == 404
    assert set(client.cloud.alive()) == {a["sandboxID"], b["sandboxID"]} == {leak["id"] for leak in client.cloud.leaks()}
    # the TTL no longer ends what has no record; the orphan sweep does
    client.cloud.clock(61_000)
    client.cloud.clock(20_000)
    assert client.cloud.alive() == [a["sandboxID"]]
    client.cloud.clock(600_000)
    rows = {s["id"]: s for s in client.cloud.account()["sandboxes"]}
    assert [rows[s["sandboxID"]]["ended_by"] for s in (a, b, c)] == ["ttl", "sweep", "api"] and client.cloud.leaks() == []
    assert rows[a["sandboxID"]]["nano_usd"] == model.nano_usd(rows[a["sandboxID"]]["billed_ms"], {"cpuCount": 2, "memoryMB": 512})


def test_a_lost_create_shows_up_later_or_never(client):
    rule = {"path": "/v2/sandboxes", "method": "POST", "times": 1}
    body = {"templateID": "base", "timeout": 300, "metadata": {"gw_lease": "ghost"}}
    client.cloud.faults([{**rule, "action": {"type": "ghost_create", "appear_after_ms": 30_000, "answer": "504"}}])
    status, headers, text = client.call("POST", "/v2/sandboxes", body)
    assert status == 504 and text == b"upstream request timeout" and client.ids() == [] and len(client.cloud.alive()) == 1
    client.cloud.clock(31_000)
    assert client.ids("?metadata=gw_lease%3Dghost") == client.cloud.alive()
    client.cloud.reset()
    client.cloud.faults([{**rule, "action": {"type": "ghost_create", "appear_after_ms": -1}}])
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        client.call("POST", "/v2/sandboxes", body)
    assert client.ids() == [] and len(client.cloud.alive()) == 1
    client.cloud.clock(61_000)
    client.cloud.clock(20_000)
    assert client.cloud.alive() == [] and client.cloud.account()["sandboxes"][0]["ended_by"] == "sweep"


@pytest.mark.parametrize("kind", ["bad_json", "not_object", "no_id", "null_id", "bad_chars_id", "foreign_id", "duplicate_key", "no_envd_token", "no_traffic_token",
                                  "ctl_in_token", "huge", "foreign_domain", "old_envd", "empty", "no_version"])
def test_a_malformed_create_made_a_machine(client, kind):
    other = client.create()["sandboxID"]
    client.cloud.faults([{"method": "POST", "path": "/v2/sandboxes", "action": {"type": "malform_create", "kind": kind}}])
    status, _, body = client.call("POST", "/v2/sandboxes", {"templateID": "base", **DENY})
    made = next(i for i in client.cloud.alive() if i != other)
    assert status == 201
    try:
        value = json.loads(body)
        value = value[0] if isinstance(value, list) else value
    except ValueError:
        assert kind in ("bad_json", "empty")
        return
    wrong = {"not_object": body[:1] == b"[", "no_id": "sandboxID" not in value, "null_id": value.get("sandboxID") is None, "bad_chars_id": "/" in (value.get("sandboxID") or ""),
             "foreign_id": value.get("sandboxID") == other, "duplicate_key": body.count(b'"sandboxID"') == 2, "no_envd_token": "envdAccessToken" not in value,
             "no_traffic_token": "trafficAccessToken" not in value, "ctl_in_token": "\r\n" in value.get("envdAccessToken", ""), "huge": len(body) > 1 << 20,
             "foreign_domain": value.get("domain") == "attacker.example", "old_envd": value.get("envdVersion") == "0.1.0", "no_version": "envdVersion" not in value}
    assert wrong[kind] and made != other


def test_stale_and_broken_lists(client):
    gone = client.create()["sandboxID"]
    client.cloud.clock(10_000)
    kept = client.create()["sandboxID"]
    client.call("DELETE", f"/sandboxes/{gone}")
    listing = {"method": "GET", "path": "/v2/sandboxes"}
    client.cloud.faults([{**listing, "action": {"type": "stale_list", "ms": 5000}}])
    assert client.ids() == [gone]
    client.cloud.faults([{**listing, "action": {"type": "bad_pages", "kind": "no_token"}}])
    client.create()
    assert "X-Next-Token" not in client.call("GET", "/v2/sandboxes?limit=1")[1]
    client.cloud.faults([{**listing, "action": {"type": "bad_pages", "kind": "same_token"}}])
    token = client.call("GET", "/v2/sandboxes?limit=1")[1]["X-Next-Token"]
    assert client.call("GET", f"/v2/sandboxes?limit=1&nextToken={token}")[1]["X-Next-Token"] == token
    client.cloud.faults([{**listing, "action": {"type": "bad_pages", "kind": "500_on_page"}}])
    token = client.call("GET", "/v2/sandboxes?limit=1")[1]["X-Next-Token"]
    assert client.call("GET", f"/v2/sandboxes?limit=1&nextToken={token}")[0] == 500 and kept in client.cloud.alive()


@pytest.mark.parametrize("kind, status, state", [("500_gone", 500, None), ("500_running", 500, "running"), ("503", 503, "running"), ("409", 409, "running")])
def test_pauses_that_fail(client, kind, status, state):
    s = client.create()
    client.cloud.faults([{"path": "/sandboxes/{id}/pause", "action": {"type": "pause_fail", "kind": kind}}])
    assert client.call("POST", f"/sandboxes/{s['sandboxID']}/pause", {})[0] == status
    got, value = client.json("GET", f"/sandboxes/{s['sandboxID']}")
    assert (value["state"] if got == 200 else None) == state and client.cloud.alive() == [s["sandboxID"]]


def test_output_stops_after_a_wedged_resume(client):
    s = client.create()
    with raw_start(client, s, "/bin/sh", "-c", "while :; do echo x; sleep 0.1; done") as sock:
        data = read_until(sock, b'"pid"')
    pid = json.loads(re.search(rb'\{"event.*?\}\}\}', data)[0])["event"]["start"]["pid"]
    client.cloud.faults([{"path": "/v2/sandboxes/{id}/connect", "action": {"type": "wedge_after_resume"}}])
    client.call("POST", f"/sandboxes/{s['sandboxID']}/pause", {})
    again = client.json("POST", f"/v2/sandboxes/{s['sandboxID']}/connect", {"timeout": 60})[1]
    headers = marks(again, **{"Content-Type": "application/connect+json", "Connect-Timeout-Ms": "800"})
    data = client.call("POST", "/process.Process/Connect", envelope({"process": {"pid": pid}}), headers)[2]
    assert outcome(frames(data)[0])[0] == b""
    assert outcome(start(client, again, "/bin/echo", "fresh")[0])[0] == b"fresh\n"


# -- faults of bytes --


def faulty_start(client, action, *argv, **rule):
    s = client.create()
    client.cloud.faults([{"id": "f", "path": "/process.Process/Start", "action": action, **rule}])
    try:
        found, rest, _ = start(client, s, *(argv or ("/bin/echo", "hello")))
    except (http.client.IncompleteRead, ConnectionError, http.client.RemoteDisconnected) as e:
        found, rest = frames(getattr(e, "partial", b""))
    finally:
        assert client.cloud.faults()[0]["hits"] == 1 and client.cloud.journal(path="/process.Process/Start")[-1]["fault"] == "f"
    return s, found, rest


def kinds(found):
    return [next(iter(v.get("event", v)), "{}") if f == 0 else "eos" for f, v in found]


@pytest.mark.parametrize("kind, names", [
    ("no_end_event", ["start", "data", "eos"]), ("no_eos", ["start", "data", "end"]), ("eos_error:unavailable", ["start", "data", "eos"]),
    ("two_ends", ["start", "data", "end", "end", "eos"]), ("bytes_after_eos", ["start", "data", "end", "eos", "keepalive"]),
    ("data_before_start", ["data", "start", "data", "end", "eos"]), ("exit_zero_explicit", ["start", "data", "end", "eos"]), ("signal_end", ["start", "data", "end", "eos"])])
def test_streams_that_end_wrong(client, kind, names):
    _, found, rest = faulty_start(client, {"type": "stream", "kind": kind})
    assert kinds(found) == names and rest == b""
    if kind.startswith("eos_error"):
        assert found[-1][1]["error"]["code"] == "unavailable"
    if kind == "exit_zero_explicit":
        assert outcome(found)[1][0]["exitCode"] == 0
    if kind == "signal_end":
        assert outcome(found)[1][0] == {"exitCode": -1, "status": "signal: killed", "error": "signal: killed"}


def test_an_error_may_follow_the_end_event(client):
    _, found, _ = faulty_start(client, {"type": "stream", "kind": "eos_error:internal", "after_end": True})
    assert kinds(found) == ["start", "data", "end", "eos"] and found[-1][1]["error"]["code"] == "internal"


def raw_faulty(client, action, seconds=3, **rule):
    """The answer's raw bytes until it ends or goes silent, and how it ended."""
    s = client.create()
    client.cloud.faults([{"path": "/process.Process/Start", "action": action, **rule}])
    with raw_start(client, s, "/bin/echo", "hello") as sock:
        sock.settimeout(seconds)
        data = b""
        try:
            while piece := sock.recv(65536):
                data += piece
                if data.endswith(b"0\r\n\r\n"):
                    return s, data, "whole"
            return s, data, "fin"
        except ConnectionResetError:
            return s, data, "rst"
        except TimeoutError:
            return s, data, "silent"


def test_frames_no_parser_may_take(client):
    data = raw_faulty(client, {"type": "stream", "kind": "compressed_flag"})[1]
    assert b"\x01\x00\x00\x00" in data
    data = raw_faulty(client, {"type": "stream", "kind": "unknown_flag"})[1]
    assert b"\x04\x00\x00\x00" in data
    _, data, how = raw_faulty(client, {"type": "stream", "kind": "oversize_frame"}, seconds=0.7)
    assert struct.pack(">BI", 0, rpc.OVERSIZE) in data and how == "silent"
    assert b"!!! no base64 !!!" in raw_faulty(client, {"type": "stream", "kind": "bad_base64"})[1]
    assert b'"event":{"data":{"stdout":"b25l"}},"event"' in raw_faulty(client, {"type": "stream", "kind": "duplicate_key"})[1]
    assert b"\xff\xfe" in raw_faulty(client, {"type": "stream", "kind": "not_utf8"})[1]
    assert b'{"event":{"data":\r\n' in raw_faulty(client, {"type": "stream", "kind": "bad_json"})[1]


@pytest.mark.parametrize("how, end", [("rst", "rst"), ("fin", "fin"), ("hang", "silent")])
def test_a_stream_is_cut_at_any_byte(client, how, end):
    for after in (0, 1, 4, 5, 40):
        _, data, got = raw_faulty(client, {"type": "drop", "after_bytes": after, "how": how}, seconds=0.4, phase="frames")
        body = data.partition(b"\r\n\r\n")[2]
        chunks = b"".join(re.findall(rb"[0-9a-f]+\r\n(.*?)\r\n", body, re.S)) if after < 5 else body
        assert got == end and (len(chunks) == after if after < 5 else len(chunks) >= after)


@pytest.mark.parametrize("how, end", [("rst", "rst"), ("unavailable_frame", "whole"), ("half_frame", "rst"), ("silent", "silent")])
def test_a_sandbox_vanishes_under_a_run(client, how, end):
    s, data, got = raw_faulty(client, {"type": "vanish", "after_frames": 1, "how": how}, seconds=0.7)
    assert got == end and client.call("GET", "/health", headers=marks(s))[0] == 502
    [row] = client.cloud.account()["sandboxes"]
    assert row["ended_by"] == "evict" and client.cloud.alive() == []
    assert (b"ended before the stream completed" in data) == (how == "unavailable_frame")


def test_split_keepalives_and_stalls_change_no_content(client):
    for action, phase in (({"type": "split", "bytes": 1}, "frames"), ({"type": "keepalives", "every_ms": 5}, "frames"), ({"type": "stall", "ms": 300}, "frames")):
        begin = time.monotonic()
        _, found, rest = faulty_start(client, action, "/bin/sh", "-c", "echo a; sleep 0.1; echo b", phase=phase)
        assert outcome(found)[0] == b"a\nb\n" and outcome(found)[2] == [{}] and rest == b""
        assert (action["type"] == "keepalives") == ("keepalive" in kinds(found)) and (action["type"] != "stall" or time.monotonic() - begin >= 0.3)


def test_a_flood_is_as_long_as_it_says_or_without_end(client):
    _, found, _ = faulty_start(client, {"type": "flood", "bytes": 100_000})
    assert outcome(found)[0] == b"x" * 100_000 + b"hello\n" and len(outcome(found)[1]) == 1
    s = client.create()
    client.cloud.faults([{"path": "/process.Process/Start", "action": {"type": "flood"}}])
    with raw_start(client, s, "/bin/true") as sock:
        seen = 0
        while seen < 40 << 20:
            piece = sock.recv(1 << 20)
            assert piece
            seen += len(piece)


def test_a_delay_leaves_the_next_rule_its_turn(client):
    client.cloud.faults([{"id": "d", "action": {"type": "delay", "ms": 200}}, {"id": "r", "action": {"type": "respond", "status": 503}}])
    begin = time.monotonic()
    assert client.call("GET", "/sandboxes/i0")[0] == 503 and time.monotonic() - begin >= 0.2
    assert [r["hits"] for r in client.cloud.faults()] == [1, 1]


def test_without_walls_it_says_so():
    with clouds.E2bStandin("--isolation", "plain") as cloud:
        c = Client(cloud)
        s = c.create()
        assert cloud.info()["mode"] == "plain" and cloud.info()["egress"] == "unenforced"
        assert upload(c, s, [("/home/user/p/a.sh", b"echo plain; exit 4")])[0] == 200
        found, _, _ = start(c, s, "/bin/sh", "/home/user/p/a.sh", cwd="/home/user/p")
        assert outcome(found)[0] == b"plain\n" and outcome(found)[1][0]["exitCode"] == 4
        assert rpc_call(c, s, "/filesystem.Filesystem/Stat", {"path": "p/a.sh"})[1]["entry"]["path"] == "/home/user/p/a.sh"
        assert c.call("DELETE", f"/sandboxes/{s['sandboxID']}")[0] == 204


def test_faults_of_plain_answers(client):
    path = "/sandboxes/i0"
    whole = client.call("GET", path)
    do = lambda action, **rule: client.cloud.faults([{"path": path, "action": action, **rule}])  # noqa: E731
    do({"type": "respond", "status": 302, "headers": {"Location": "http://127.0.0.1:1/"}, "body": "<html>", "content_type": "text/html"})
    status, headers, body = client.call("GET", path)
    assert (status, headers["Location"], headers["Content-Type"], body) == (302, "http://127.0.0.1:1/", "text/html", b"<html>")
    for how, error in (("rst", ConnectionResetError), ("fin", http.client.RemoteDisconnected)):
        do({"type": "drop", "how": how})
        with pytest.raises(error):
            client.call("GET", path)
    do({"type": "truncate", "keep_bytes": 7})
    with pytest.raises(http.client.IncompleteRead) as e:
        client.call("GET", path)
    assert e.value.partial == whole[2][:7]
    do({"type": "split", "bytes": 1})
    assert client.call("GET", path)[2] == whole[2]
    do({"type": "drop", "how": "hang"})
    with pytest.raises(TimeoutError):
        client.call("GET", path, timeout=0.5)
    do({"type": "delay", "ms": 300})
    begin = time.monotonic()
    assert client.call("GET", path)[0] == 404 and time.monotonic() - begin >= 0.3


def test_the_answer_is_lost_after_the_work(client):
    client.cloud.faults([{"method": "POST", "path": "/v2/sandboxes", "phase": "after", "times": 1, "action": {"type": "drop", "how": "rst"}}])
    with pytest.raises(ConnectionError):
        client.create()
    [lost] = client.ids()
    client.cloud.faults([{"method": "DELETE", "phase": "after", "times": 1, "action": {"type": "respond", "status": 500}}])
    assert client.call("DELETE", f"/sandboxes/{lost}")[0] == 500 and client.ids() == []


def test_faults_of_files(client):
    s = client.create()
    client.cloud.faults([{"path": "/files", "action": {"type": t, "path": p}} for t, p in (("fs_500", "/tmp/a"), )])
    assert upload(client, s, [("/tmp/a", b"1")])[0] == 500
    assert upload(client, s, [("/tmp/b", b"1")])[0] == 200
    client.cloud.faults([{"path": "/files", "action": {"type": "lost_upload", "path": "/tmp/c", "keep_bytes": 2}}])
    assert upload(client, s, [("/tmp/c", b"12345")])[0] == 200
    client.cloud.clear_faults()
    assert client.call("GET", "/files?path=/tmp/c", headers=marks(s))[2] == b"12"
    client.cloud.faults([{"path": "/files", "method": "GET", "action": {"type": "fifo_hang"}}])
    with pytest.raises(TimeoutError):
        client.call("GET", "/files?path=/tmp/c", headers=marks(s), timeout=0.4)
    client.cloud.faults([{"path": "/files", "method": "GET", "action": {"type": "endless_file"}}])
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=10)
    connection.request("GET", "/files?path=/tmp/c", None, marks(s))
    assert len(connection.getresponse().read(1 << 22)) == 1 << 22
    connection.close()
    client.cloud.faults([{"path": "/files", "action": {"type": "envd_down", "ms": 3000}, "times": 1}])
    assert client.call("GET", "/files?path=/tmp/c", headers=marks(s))[0] == client.call("GET", "/health", headers=marks(s))[0] == 502
    client.cloud.clock(3000)
    assert client.call("GET", "/health", headers=marks(s))[0] == 204


def test_faults_that_are_told_late(client):
    s = client.create()
    path = f"/sandboxes/{s['sandboxID']}"
    client.cloud.faults([{"path": "/files", "action": {"type": "fs_507"}},
                         {"path": "/v2/sandboxes/{id}/connect", "action": {"type": "clock_skew", "ms": 3_600_000}},
                         {"path": "/sandboxes/{id}/metrics", "phase": "body", "action": {"type": "stall", "ms": 300}},
                         {"method": "DELETE", "action": {"type": "lost_delete", "kind": "slow", "ms": 400}}])
    assert upload(client, s, [("/tmp/a", b"1")]) == (507, {"message": "not enough disk space available", "code": 507})
    client.call("POST", path + "/pause", {})
    again = client.json("POST", f"/v2{path}/connect", {"timeout": 60})[1]
    assert client.json("GET", "/metrics", headers=marks(again))[1]["ts"] - time.time() > 3500
    begin = time.monotonic()
    assert client.json("GET", path + "/metrics")[1][0]["cpuCount"] == 2 and time.monotonic() - begin >= 0.3
    begin = time.monotonic()
    assert client.call("DELETE", path)[0] == 204 and time.monotonic() - begin >= 0.4 and client.cloud.alive() == []


def test_it_waits_for_a_body_that_is_announced(client):
    s = client.create()
    body, kind = form([("/tmp/expected", b"x" * 1000)])
    lines = {**marks(s), **kind, "Host": "localhost", "Content-Length": str(len(body)), "Expect": "100-continue"}
    with socket.create_connection(("127.0.0.1", client.port), timeout=10) as sock:
        sock.sendall(b"POST /files HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in lines.items()).encode() + b"\r\n")
        assert read_until(sock, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(body)
        assert read_until(sock, b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_events_of_lives(client):
    s = client.create()
    client.call("POST", f"/sandboxes/{s['sandboxID']}/pause", {})
    client.call("DELETE", f"/sandboxes/{s['sandboxID']}")
    kinds_of = lambda q: [e["type"].rpartition(".")[2] for e in client.json("GET", f"/events/sandboxes/{s['sandboxID']}{q}")[1]]  # noqa: E731
    assert kinds_of("") == ["killed", "paused", "created"] and kinds_of("?orderAsc=true&limit=2") == ["created", "paused"]
    assert kinds_of("?types=sandbox.lifecycle.killed") == ["killed"] and client.call("GET", "/events/sandboxes?limit=101")[0] == 400


def test_a_readback_may_differ(client):
    s = client.create(**DENY)
    client.cloud.faults([{"method": "GET", "path": "/sandboxes/{id}", "action": {"type": "readback", "set": {"memoryMB": 4096, "network.denyOut": []}, "drop": ["diskSizeMB", "metadata"]}}])
    detail = client.json("GET", f"/sandboxes/{s['sandboxID']}")[1]
    assert (detail["memoryMB"], detail["network"]["denyOut"], "diskSizeMB" in detail) == (4096, [], False)


def test_rules_that_make_no_sense_are_refused(client):
    for rule in ({"action": {"type": "nope"}}, {"action": {"type": "drop", "bytes": 1}}, {"method": "GET"}):
        with pytest.raises(AssertionError, match="400"):
            client.cloud.faults([rule])


# -- the program --


def test_the_books_say_which_marked_code_was_executed(client):
    s = client.create()
    mark = "mark-0123456789abcdef"
    upload(client, s, [("/home/user/p/main.sh", f"echo {mark}".encode()), ("/home/user/p/other", b"x")])
    start(client, s, "sha256sum", "--", "/home/user/p/main.sh", cwd="/")
    assert client.cloud.admin("GET", "marks") == {}
    for _ in range(2):
        start(client, s, "/bin/sh", "main.sh", cwd="/home/user/p")
    client.cloud.faults([{"path": "/process.Process/Start", "action": {"type": "respond", "status": 502}}])
    start(client, s, "/bin/sh", "/home/user/p/main.sh")
    assert client.cloud.admin("GET", "marks") == {mark: [s["sandboxID"]] * 2}


HOSTILE = [None, True, -1, 0, 1, 10 ** 30, 1.5, "", "x", "\ud800", "\0", "../../x", "a" * 70_000, "\r\nX: y", [], [[]], {}, {"a": {"b": []}}, "0.0.0.0/0", "é"]


def mutated(value, random):
    """The value with something in it replaced, doubled or left out."""
    if isinstance(value, dict) and value and random.random() < 0.8:
        key = random.choice(list(value))
        changed = {k: v for k, v in value.items() if k != key or random.random() < 0.8}
        return {**changed, key: mutated(value[key], random)} if random.random() < 0.8 else {**changed, random.choice(["x", "path", ""]): random.choice(HOSTILE)}
    if isinstance(value, list) and value and random.random() < 0.7:
        return [mutated(v, random) if random.random() < 0.5 else v for v in value] * random.choice([1, 1, 2])
    return random.choice(HOSTILE)


def test_hostile_requests_are_answered_and_break_nothing(client):
    """Whatever comes, the answer is a status that was meant, never one of a program that stumbled (its launcher looks for a trace, too)."""
    random = __import__("random").Random(8)
    s = client.create(timeout=3600)
    path = f"/sandboxes/{s['sandboxID']}"
    control_calls = [("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 60, "metadata": {"a": "b"}, "network": {"allowOut": ["a.example"], "denyOut": ["0.0.0.0/0"], "rules": {
        "a.example": [{"transform": {"headers": {"A": "b"}}}]}}, "autoResume": {"enabled": True}, "iam": {"tokens": {"t": {"audience": "a"}}}}),
        ("POST", path + "/timeout", {"timeout": 60}), ("POST", f"/v2{path}/connect", {"timeout": 60}), ("PUT", path + "/network", {"denyOut": ["0.0.0.0/0"]}),
        ("POST", path + "/refreshes", {"duration": 5}), ("POST", path + "/resume", {"timeout": 5})]
    data_calls = [("/process.Process/Start", {"process": {"cmd": "/bin/true", "args": ["a"], "envs": {"A": "b"}, "cwd": "/tmp"}, "pty": {"size": {"cols": 80, "rows": 24}}, "tag": "t", "stdin": False}),
                  ("/process.Process/Connect", {"process": {"pid": 1}}), ("/process.Process/SendInput", {"process": {"pid": 1}, "input": {"stdin": "eA=="}}),
                  ("/process.Process/SendSignal", {"process": {"tag": "t"}, "signal": "SIGNAL_SIGKILL"}), ("/filesystem.Filesystem/Stat", {"path": "/tmp"}),
                  ("/filesystem.Filesystem/ListDir", {"path": "/tmp", "depth": 2}), ("/filesystem.Filesystem/MakeDir", {"path": "/tmp/x"}),
                  ("/filesystem.Filesystem/Move", {"source": "/tmp/x", "destination": "/tmp/y"}), ("/filesystem.Filesystem/Remove", {"path": "/tmp/y"})]
    queries = ["limit=x", "limit=-1", "metadata=%25%25%3D", "metadata=%ff%fe", "nextToken=%00", "nextToken=WzEsMl0", "state=x", "order=up", "state=,", "offset=x"]
    for query in queries:
        assert client.call("GET", "/v2/sandboxes?" + query)[0] in (200, 400) and client.call("GET", "/events/sandboxes?" + query)[0] in (200, 400)
    for _ in range(500):
        method, route, body = random.choice(control_calls)
        assert client.call(method, route, json.dumps(mutated(body, random)).encode() if random.random() < 0.9 else random.choice([b"[" * 100_000, b"\xff", b"{", b"null"]), {"Content-Type": "application/json"})[0] < 500
    s = client.create(timeout=3600)       # the first one's time to live may have been changed
    for _ in range(500):
        route, body = random.choice(data_calls)
        data = json.dumps(mutated(body, random)).encode() if random.random() < 0.9 else random.choice([b"[" * 100_000, b"\xff", b"{", b""])
        if route.endswith(("Start", "Connect")):
            data = struct.pack(">BI", random.choice([0] * 9 + [1]), len(data) + random.choice([0] * 9 + [1])) + data
            kind = "application/connect+json"
        else:
            kind = "application/json"
        headers = marks(s, **{"Content-Type": kind, "Connect-Timeout-Ms": random.choice(["2000", "300"])})
        assert client.call("POST", route, data, headers)[0] in (200, 400, 401, 404, 409, 412, 500, 501, 504)
    for name, data in ((b"\xff\xfe", b"1"), (b"a\0b", b"1"), (b"/" + b"n" * 5000, b"1"), (b"../../../../etc/x", b"1"), (b"", b"1")):
        body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="' + name + b'"\r\n\r\n' + data + b"\r\n--b--\r\n"
        assert client.call("POST", "/files", body, {**marks(s), "Content-Type": "multipart/form-data; boundary=b"})[0] in (200, 400, 500)
    for body, kind in ((b"--b", "multipart/form-data; boundary=b"), (b"", "multipart/form-data"), (b"--b\r\n\r\n", "multipart/form-data; boundary=b")):
        assert client.call("POST", "/files", body, {**marks(s), "Content-Type": kind})[0] in (200, 400)
    assert client.call("GET", "/files?path=/etc/passwd", headers={**marks(s), "Range": "bytes=5-2"})[0] == 416
    assert outcome(start(client, s, "/bin/echo", "still here")[0])[0] == b"still here\n"


def test_secrets_do_not_stand_in_the_journal(client):
    s = client.create(**DENY)
    start(client, s, "/bin/true")
    text = json.dumps(client.cloud.journal())
    assert s["envdAccessToken"] not in text and KEY not in text and s["trafficAccessToken"] not in text and "sha256:" in text
    counts = client.cloud.account()["sandboxes"][0]["counts"]
    assert counts == {"create": 1, "exec": 1}


def test_admin_needs_its_token(cloud):
    connection = http.client.HTTPConnection("127.0.0.1", cloud.ready["port"])
    connection.request("GET", "/__standin/info", None, {"Authorization": "Bearer x"})
    assert connection.getresponse().status == 401


def test_it_listens_on_loopback_alone():
    done = subprocess.run([sys.executable, "-m", "standins.e2b", "--listen", "0.0.0.0:0"], cwd=clouds.ROOT / "tests", capture_output=True, text=True)
    assert done.returncode == 2 and "loopback" in done.stderr


def test_over_tls(tmp_path):
    cert, key = tmp_path / "c.pem", tmp_path / "k.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", cert, "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True)
    process = subprocess.Popen([sys.executable, "-m", "standins.e2b", "--tls-cert", cert, "--tls-key", key, "--exec=canned"], cwd=clouds.ROOT / "tests", stdout=subprocess.PIPE)
    try:
        ready = json.loads(process.stdout.readline())
        connection = http.client.HTTPSConnection("127.0.0.1", ready["port"], context=ssl.create_default_context(cafile=cert), timeout=10)
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200 and ready["api_url"].startswith("https://")
        connection.close()
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        process.stdout.close()


def test_a_table_answers_without_processes(tmp_path):
    table = tmp_path / "table.json"
    table.write_text(json.dumps({"console.log('table')": {"stdout": "from the table\n", "exit": 3}, "slow": {"stdout": "late", "delay_ms": 200}}))
    with clouds.E2bStandin("--exec=canned", "--canned", table) as cloud:
        c = Client(cloud)
        s = c.create()
        assert cloud.info()["egress"] == "none"
        for text, out, code in ((b"console.log('table')", b"from the table\n", 3), (b"print(41)", b"41\n", None), (b"anything", b"42\n", None), (b"# slow", b"late", None)):
            assert upload(c, s, [("/home/user/project/main.cjs", text)])[0] == 200
            found, rest, _ = start(c, s, "node", "/home/user/project/main.cjs", cwd="/home/user/project")
            assert outcome(found)[0] == out and outcome(found)[1][0].get("exitCode") == code and rest == b""
            hashed = outcome(start(c, s, "sha256sum", "--", "/home/user/project/main.cjs", cwd="/")[0])[0]
            assert hashed == f"{hashlib.sha256(text).hexdigest()}  /home/user/project/main.cjs\n".encode()
        assert rpc_call(c, s, "/filesystem.Filesystem/Stat", {"path": "/home/user/project/main.cjs"})[1]["entry"]["type"] == "FILE_TYPE_FILE"
        assert rpc_call(c, s, "/filesystem.Filesystem/Stat", {"path": "/nope"})[0] == 404
        assert c.call("DELETE", f"/sandboxes/{s['sandboxID']}")[0] == 204 and cloud.violations() == []


def commands():
    """The command lines of every process there is."""
    found = b""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            found += pathlib.Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            pass
    return found


def test_nothing_is_left_when_its_parent_is_killed(tmp_path):
    program = tmp_path / "parent.py"
    program.write_text("import subprocess, sys, os, time\np = subprocess.Popen([sys.executable, '-m', 'standins.e2b', '--parent-pid', str(os.getpid())], stdout=subprocess.PIPE)\n"
                       "print(p.stdout.readline().decode().strip(), flush=True)\nprint(p.pid, flush=True)\ntime.sleep(1000)\n")
    with subprocess.Popen([sys.executable, program], cwd=clouds.ROOT / "tests", stdout=subprocess.PIPE) as parent:
        ready, pid = json.loads(parent.stdout.readline()), int(parent.stdout.readline())

        class Ready:
            pass
        Ready.ready = ready
        c = Client(Ready)
        s = c.create()
        with raw_start(c, s, "/bin/sleep", "31337"):
            pass
        parent.kill()
        parent.wait()
    end = time.monotonic() + 20
    while os.path.exists(f"/proc/{pid}") or b"\x0031337\x00" in commands():
        assert time.monotonic() < end
        time.sleep(0.1)
