"""The stand-in of an OpenShell gateway by itself: every kind of fault as it looks on the wire, every breach it notices, and what it keeps book of.

The client here is written on frames (h2), because what most of these tests look at is what a gRPC library hides or cannot do.
"""
import base64
import collections
import hashlib
import hmac
import select
import socket
import ssl
import struct
import subprocess
import sys
import time

import grpc
import h2.config
import h2.connection
import h2.events
import h2.exceptions
import pytest
from google.rpc import error_details_pb2, status_pb2
from openshell._proto import datamodel_pb2 as datamodel
from openshell._proto import openshell_pb2 as api
from openshell._proto import openshell_pb2_grpc as stubs
from openshell._proto import sandbox_pb2 as config

import clouds
import runner_frames as frames

sys.path.insert(0, str(clouds.ROOT / "tests"))
from standins.openshell import faults as kinds  # noqa: E402

PREFIX = "/openshell.v1.OpenShell/"
DEFAULT = datamodel.WorkspaceSelector(workspace="default")
NAME = "plp-0123456789abcd"
OUT, ERR, EXIT = "stdout", "stderr", "exit"
WAIT_S = 10


class Stream:
    def __init__(self, number):
        self.number = number
        self.headers = self.trailers = None
        self.frames = []            # payloads of DATA, one an entry
        self.padding = 0
        self.ended = False
        self.reset = None

    @property
    def body(self):
        return b"".join(self.frames)

    @property
    def over(self):
        return self.ended or self.reset is not None

    @property
    def status(self):
        return dict(self.trailers or self.headers or {}).get("grpc-status")

    def messages(self):
        """Whole messages; what is left over is not looked at."""
        found, at = [], 0
        while len(self.body) - at >= 5:
            size = int.from_bytes(self.body[at + 1:at + 5], "big")
            if len(self.body) - at < 5 + size:
                break
            found.append(self.body[at + 5:at + 5 + size])
            at += 5 + size
        return found

    def events(self):
        return [api.ExecSandboxEvent.FromString(m) for m in self.messages()]


def frames_of(data):
    """(type, flags, stream, payload) of each."""
    frames = []
    while len(data) >= 9:
        size = int.from_bytes(data[:3], "big")
        frames.append((data[3], data[4], int.from_bytes(data[5:9], "big"), data[9:9 + size]))
        data = data[9 + size:]
    return frames


def goaways_in(data):
    return [struct.unpack(">II", payload[:8]) for kind, _, _, payload in frames_of(data) if kind == 7]


class Client:
    """An HTTP/2 client of a few lines. `window` is its streams' initial one."""

    def __init__(self, port, window=1 << 20):
        self.sock = socket.create_connection(("127.0.0.1", port), WAIT_S)
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8", validate_outbound_headers=False,
                                                                       normalize_outbound_headers=False))
        self.h2.initiate_connection()
        self.h2.update_settings({4: window})
        self.h2.increment_flow_control_window(64 << 20)
        self.streams, self.closed, self.was_reset, self.goaways, self.pings = {}, False, False, [], 0
        self.answers_pings = True
        self.consumes = True
        self.flush()

    def flush(self):
        data = self.h2.data_to_send()
        if data and not self.closed:
            try:
                self.sock.sendall(data)
            except OSError:
                self.closed = self.was_reset = True

    def headers(self, method, **more):
        base = {":method": "POST", ":scheme": "http", ":path": PREFIX + method, ":authority": "127.0.0.1", "content-type": "application/grpc", "te": "trailers",
                "user-agent": "test/1"}
        base.update(more)
        return [(k, v) for k, v in base.items() if v is not None]

    def open(self, method, headers=None):
        number = self.h2.get_next_available_stream_id()
        self.h2.send_headers(number, self.headers(method) if headers is None else headers)
        stream = self.streams[number] = Stream(number)
        self.flush()
        return stream

    def send(self, stream, data, end=False):
        """Bytes as the windows allow."""
        at = 0
        until = time.monotonic() + WAIT_S
        while True:
            room = min(self.h2.local_flow_control_window(stream.number), self.h2.max_outbound_frame_size, len(data) - at)
            if room > 0 or at == len(data):
                self.h2.send_data(stream.number, data[at:at + room], end_stream=end and at + room == len(data))
                at += room
                self.flush()
                if at == len(data):
                    return True
            else:
                if stream.over or time.monotonic() > until:
                    return False
                self.pump(0.05)
                if stream.over:
                    return False

    def message(self, stream, message, end=False):
        data = message if isinstance(message, bytes) else message.SerializeToString()
        return self.send(stream, b"\0" + struct.pack(">I", len(data)) + data, end)

    def pump(self, seconds):
        """What has come, or comes in so long."""
        ready, _, _ = select.select([self.sock], [], [], seconds)
        if not ready:
            return False
        try:
            data = self.sock.recv(1 << 16)
        except ConnectionResetError:
            data, self.was_reset = b"", True
        if not data:
            self.closed = True
            return False
        try:
            events = self.h2.receive_data(data)
        except h2.exceptions.ProtocolError:
            # h2 takes nothing after a GOAWAY, and says nothing of it when a PING came with it
            self.goaways += goaways_in(data)
            return True
        for event in events:
            stream = self.streams.get(getattr(event, "stream_id", None))
            if isinstance(event, h2.events.ResponseReceived):
                stream.headers = list(event.headers)
            elif isinstance(event, h2.events.TrailersReceived):
                stream.trailers = list(event.headers)
            elif isinstance(event, h2.events.DataReceived):
                stream.frames.append(event.data)
                stream.padding += event.flow_controlled_length - len(event.data)
                if self.consumes:
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                stream.ended = True
            elif isinstance(event, h2.events.StreamReset):
                stream.reset = int(event.error_code)
            elif isinstance(event, h2.events.ConnectionTerminated):
                self.goaways.append((event.last_stream_id, int(event.error_code)))
            elif isinstance(event, h2.events.PingReceived):
                self.pings += 1
                if not self.answers_pings:
                    self.h2.data_to_send()
        self.flush()
        return True

    def until(self, condition, seconds=WAIT_S):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end and not (self.closed and not condition()), "it did not come"
            self.pump(0.2)

    def finish(self, stream):
        self.until(lambda: stream.over or self.closed)
        return stream

    def call(self, method, message, answer=None):
        """A unary call to its end; with `answer`, that message."""
        stream = self.open(method)
        self.message(stream, message, end=True)
        self.finish(stream)
        if answer is None:
            return stream
        assert stream.status == "0", stream.trailers or stream.headers
        return answer.FromString(stream.messages()[0])

    def cancel(self, stream, code=8):
        self.h2.reset_stream(stream.number, code)
        self.flush()

    def close(self):
        self.sock.close()


@pytest.fixture(scope="module")
def shared():
    with clouds.OpenshellStandin("--exec", "canned", "--ping-s", "0") as c:
        yield c


@pytest.fixture
def cloud(shared):
    shared.reset()
    shared.tune(ready_after_polls=0)
    return shared


@pytest.fixture
def client(cloud):
    c = Client(cloud.ready["port"])
    yield c
    c.close()


def breaches(cloud):
    return [v["what"] for v in cloud.violations()]


def create(client, name=NAME, **more):
    spec = api.SandboxSpec(command=["sleep", "2147483647"])
    spec.template.image = "image"
    spec.template.resources.update({"limits": {"cpu": "1", "memory": "256Mi"}})
    spec.template.driver_config.update({"docker": {"mounts": [{"type": "tmpfs", "target": "/tmp", "size_bytes": 1 << 20, "options": ["noexec"]}]}})
    spec.policy.version, spec.policy.landlock.compatibility = 1, "hard_requirement"
    spec.policy.filesystem.read_only.extend("/bin /usr /lib /etc /proc /dev/urandom /sys/fs/cgroup".split())
    spec.policy.filesystem.read_write.extend(["/tmp", "/dev/null"])
    request = api.CreateSandboxRequest(name=name, labels={"plimsoll.run": "1"}, spec=spec, workspace_scope=DEFAULT)
    return client.call("CreateSandbox", request, **more)


def get(client, **more):
    return client.call("GetSandbox", api.GetSandboxRequest(name=NAME, workspace_scope=DEFAULT), **more)


def get_config(client, **more):
    return client.call("GetSandboxConfig", config.GetSandboxConfigRequest(name=NAME, workspace_scope=DEFAULT), **more)


def delete(client, **more):
    return client.call("DeleteSandbox", api.DeleteSandboxRequest(name=NAME, workspace_scope=DEFAULT, allow_missing=True), **more)


def start(command=("node", "-"), timeout=30, **more):
    request = api.ExecSandboxRequest(sandbox=NAME, command=command, no_login_shell=True, workspace_scope=DEFAULT, **more)
    request.execution_timeout.seconds = timeout
    return api.ExecSandboxInput(start=request)


def execute(client, code="console.log(7)", end=True, **more):
    stream = client.open("ExecSandboxInteractive")
    client.message(stream, start(**more))
    if code:
        client.message(stream, api.ExecSandboxInput(stdin=code.encode()), end)
    return stream


def told(stream):
    """(stdout, the exit codes) of an exec."""
    events = stream.events()
    return b"".join(e.stdout.data for e in events), [e.exit.exit_code for e in events if e.WhichOneof("payload") == EXIT]


# -- how a call ends --

def test_a_success_has_headers_a_message_and_trailers(client):
    s = create(client)
    assert dict(s.headers)[":status"] == "200" and dict(s.headers)["content-type"] == "application/grpc" and dict(s.headers)["x-request-id"]
    assert len(s.messages()) == 1 and s.trailers == [("grpc-status", "0")] and s.reset is None


def test_a_refusal_is_trailers_only(client):
    s = get(client)
    assert s.trailers is None and s.frames == [] and s.ended and dict(s.headers)["grpc-status"] == "5" and dict(s.headers)["grpc-message"] == "sandbox not found"


def test_a_request_id_is_kept(client, cloud):
    s = client.open("Health", client.headers("Health", **{"x-request-id": "mine"}))
    client.message(s, api.HealthRequest(), end=True)
    assert dict(client.finish(s).headers)["x-request-id"] == "mine" and cloud.calls()[-1]["request_id"] == "mine"


def test_an_unknown_method_is_unimplemented(client, cloud):
    s = client.open("Nothing")
    client.message(s, b"", end=True)
    client.finish(s)
    assert s.status == "12" and s.trailers is None and breaches(cloud) == []


def test_exit_zero_is_an_empty_message(client):
    create(client)
    s = client.finish(execute(client, "print(7)"))
    assert s.messages() == [bytes.fromhex("0a040a02370a"), bytes.fromhex("1a00")] and s.trailers == [("grpc-status", "0")]


@pytest.mark.parametrize("code", range(1, 17))
@pytest.mark.parametrize("after_headers", [False, True])
def test_status(client, cloud, code, after_headers):
    cloud.fault("Health", "status", code=code, message_text="no\n100 %é", after_headers=after_headers)
    s = client.call("Health", api.HealthRequest())
    assert s.status == str(code) and (s.trailers is not None) is after_headers and s.messages() == []
    assert dict(s.trailers or s.headers)["grpc-message"] == "no%0A100 %25%C3%A9"
    assert cloud.faults()[0]["hits"] == 1 and cloud.calls()[-1]["fault"] == "rule-1" or cloud.calls()[-1]["fault"]


def test_status_with_details(client, cloud):
    cloud.fault("Health", "status", code=10, reason="RESOURCE_VERSION_CONFLICT", retry_s=0.25, message_text="again")
    s = client.call("Health", api.HealthRequest())
    raw = dict(s.headers)["grpc-status-details-bin"]
    status = status_pb2.Status.FromString(base64.b64decode(raw + "=" * (-len(raw) % 4)))
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    assert (status.code, status.message) == (10, "again") and status.details[0].Unpack(info) and status.details[1].Unpack(retry)
    assert (info.reason, info.domain, retry.retry_delay.nanos) == ("RESOURCE_VERSION_CONFLICT", "openshell.nvidia.com", 250_000_000)


@pytest.mark.parametrize(("phase", "kind", "is_there"), [("before", "status", False), ("after", "status", True), ("before", "unavailable-before", False),
                                                        ("before", "unavailable-after", True), ("after", "rst", True), ("after", "close", True), ("after", "no-trailers", True)])
def test_an_answer_that_is_lost_before_or_after_its_effect(client, cloud, phase, kind, is_there):
    cloud.fault("CreateSandbox", kind, phase=phase, times=1)
    s = create(client)
    assert s.messages() == [] and s.status != "0"
    assert (cloud.alive() == [NAME]) is is_there and cloud.leaks() == []


@pytest.mark.parametrize(("action", "code"), [({"type": "refuse-stream"}, 7), ({"type": "rst", "code": 8}, 8), ({"type": "rst", "code": 0}, 0), ({"type": "rst", "code": 11}, 11)])
def test_resets_before_headers(client, cloud, action, code):
    cloud.add_fault(method="CreateSandbox", action=action)
    s = create(client)
    assert s.reset == code and s.headers is None and cloud.alive() == []


def test_a_reset_inside_a_message_and_after_any_byte(client, cloud):
    create(client)
    whole = get(client).body
    for k in (0, 1, 4, 5, 6, len(whole) - 1):
        cloud.faults([{"method": "GetSandbox", "action": {"type": "rst", "code": 2, "after_bytes": k}}])
        s = get(client)
        assert s.reset == 2 and s.body == whole[:k] and s.trailers is None
    cloud.faults([{"method": "GetSandbox", "action": {"type": "rst", "code": 2, "at": "inside", "byte": 9}}])
    assert get(client).body == whole[:9]


def test_a_connection_cut_after_any_byte(cloud):
    c = Client(cloud.ready["port"])
    create(c)
    whole = get(c).body
    c.close()
    for k, how in ((0, "rst"), (3, "rst"), (len(whole) - 1, "rst"), (5, "fin")):
        cloud.faults([{"method": "GetSandbox", "action": {"type": "close", "after_bytes": k, "how": how}}])
        c = Client(cloud.ready["port"])
        s = get(c)
        assert c.closed and not s.over and s.body in (whole[:k], b"") and (c.was_reset or how == "fin")
        c.close()


@pytest.mark.parametrize("at", ["between", "after-exit"])
def test_an_exec_reset_between_messages_or_after_its_exit(client, cloud, at):
    create(client)
    cloud.fault("ExecSandboxInteractive", "rst", code=2, at=at)
    s = client.finish(execute(client))
    assert s.reset == 2 and s.trailers is None and told(s) == (b"7\n", [0] if at == "after-exit" else [])


@pytest.mark.parametrize(("kind", "status"), [("status", "14"), ("no-trailers", None)])
def test_an_exec_whose_exit_is_lost(client, cloud, kind, status):
    create(client)
    cloud.fault("ExecSandboxInteractive", kind, phase="after")
    s = client.finish(execute(client))
    assert told(s) == (b"7\n", []) and s.status == status and s.ended


def test_no_trailers(client, cloud):
    cloud.fault("Health", "no-trailers", at="between")
    s = client.call("Health", api.HealthRequest())
    assert len(s.messages()) == 1 and s.ended and s.trailers is None and s.status is None


@pytest.mark.parametrize(("what", "status", "grpc_status"), [
    ("banana", "200", "banana"), ("empty", "200", ""), ("negative", "200", "-1"), ("seventeen", "200", "17"), ("large", "200", "99999999999999999999"), ("plus", "200", "+0"),
    ("html", "502", None), ("http", "503", None), ("content-type", "200", None)])
def test_bad_ends(client, cloud, what, status, grpc_status):
    cloud.fault("Health", "bad-status", what=what)
    s = client.call("Health", api.HealthRequest())
    assert dict(s.headers)[":status"] == status and s.status == grpc_status and s.ended
    assert (b"<html>" in s.body) is (what == "html") and (dict(s.headers).get("content-type") == "text/plain") is (what == "content-type")


def test_never_and_the_clients_cancel(client, cloud):
    cloud.fault("CreateSandbox", "never", phase="after")
    s = client.open("CreateSandbox")
    client.message(s, api.CreateSandboxRequest(name=NAME, workspace_scope=DEFAULT), end=True)
    wait(lambda: cloud.alive() == [NAME])
    while client.pump(0.1):
        pass
    assert s.headers is None and not s.over
    client.cancel(s)
    wait(lambda: cloud.calls("CreateSandbox")[0]["client_reset"] == 8)


def test_delay_before_and_after(client, cloud):
    for phase in ("before", "after"):
        cloud.faults([{"method": "Health", "phase": phase, "action": {"type": "delay", "ms": 150}}] if phase == "before" else
                     [{"method": "GetSandbox", "phase": phase, "action": {"type": "delay", "ms": 150}}])
        create(client) if phase == "after" else None
        begun = time.monotonic()
        client.call("Health", api.HealthRequest()) if phase == "before" else get(client)
        assert 0.15 <= time.monotonic() - begun < 2


def wait(until, seconds=WAIT_S):
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end
        time.sleep(0.01)


# -- bytes --

@pytest.mark.parametrize("what", ["compressed", "long-prefix", "short-prefix", "huge-prefix", "truncated", "huge", "twice", "none", "bytes"])
def test_garbage(cloud, what):
    client = Client(cloud.ready["port"], window=8 << 20)
    create(client)
    whole = get(client).body
    cloud.fault("GetSandbox", "garbage", what=what)
    s = get(client)
    n = len(whole) - 5
    expected = {"compressed": b"\1" + whole[1:], "long-prefix": b"\0" + struct.pack(">I", n + 100) + whole[5:], "short-prefix": b"\0" + struct.pack(">I", n - 3) + whole[5:],
                "huge-prefix": b"\0\xff\xff\xff\xff" + whole[5:], "truncated": b"\0" + struct.pack(">I", n - 2) + whole[5:-2],
                "huge": b"\0" + struct.pack(">I", 5 << 20) + bytes(5 << 20), "twice": whole * 2, "none": b"", "bytes": b"\0\0\0\0\x08" + b"\xff" * 8}[what]
    assert s.body == expected and s.status == "0"
    client.close()


def test_frames_of_one_byte_padded_frames_and_packed_messages(client, cloud):
    create(client)
    cloud.script({"command": "node -", "stdout": "abc", "stderr": "def", "exit": 3})
    plain = client.finish(execute(client))
    assert len(plain.frames) == 3
    cloud.faults([{"method": "ExecSandboxInteractive", "phase": "frames", "action": {"type": "split", "bytes": 1}}])
    one = client.finish(execute(client))
    assert [len(f) for f in one.frames] == [1] * len(plain.body) and one.body == plain.body and one.status == "0"
    cloud.faults([{"method": "ExecSandboxInteractive", "phase": "frames", "action": {"type": "pad", "bytes": 200}}])
    padded = client.finish(execute(client))
    assert padded.padding >= 3 * 200 and padded.body == plain.body
    cloud.faults([{"method": "ExecSandboxInteractive", "phase": "frames", "action": {"type": "pack"}}])
    packed = client.finish(execute(client))
    assert len(packed.frames) == 1 and packed.body == plain.body and packed.status == "0"


def test_slow(client, cloud):
    create(client)
    cloud.script({"command": "*", "bytes": 4096})
    cloud.fault("ExecSandboxInteractive", "slow", phase="frames", rate=16384)
    begun = time.monotonic()
    s = client.finish(execute(client))
    assert len(told(s)[0]) == 4096 and 0.25 <= time.monotonic() - begun < 5


def test_output_waits_for_the_clients_window(cloud):
    client = Client(cloud.ready["port"], window=1000)
    create(client)
    cloud.script({"command": "*", "bytes": 50000})
    client.consumes = False
    s = execute(client)
    while client.pump(0.3):
        pass
    assert len(s.body) == 1000 and not s.over
    client.consumes = True
    client.h2.acknowledge_received_data(1000, s.number)
    client.flush()
    client.finish(s)
    assert told(s) == (b"x" * 50000, [0])
    client.close()


def test_no_read_answers_without_reading(client, cloud):
    create(client)
    cloud.fault("ExecSandboxInteractive", "no-read", exit=7)
    s = client.open("ExecSandboxInteractive")
    client.message(s, start())
    client.finish(s)
    assert told(s) == (b"", [7]) and s.status == "0" and s.reset == 0       # the rest is not wanted


def test_what_was_not_read_is_the_connections_again_when_the_call_is_over():
    with clouds.OpenshellStandin("--exec", "canned", "--stream-window", 256 << 10, "--connection-window", 1 << 20, "--settings", '{"ready_after_polls": 0}') as cloud:
        client = Client(cloud.ready["port"])
        create(client)
        for _ in range(6):          # each holds most of a stream's window; six of them would be more than the connection's
            cloud.fault("ExecSandboxInteractive", "window-zero", times=1)
            s = client.open("ExecSandboxInteractive")
            client.message(s, start())
            while client.h2.local_flow_control_window(s.number) > 66000:
                client.message(s, api.ExecSandboxInput(stdin=bytes(65000)))
            client.cancel(s)
        client.finish(execute(client))
        client.close()


def test_window_zero_gives_no_more_window(client, cloud):
    create(client)
    cloud.fault("ExecSandboxInteractive", "window-zero")
    s = client.open("ExecSandboxInteractive")
    client.message(s, start())
    wait(lambda: cloud.execs())
    sent = 0
    while client.h2.local_flow_control_window(s.number) > 65600:
        client.message(s, api.ExecSandboxInput(stdin=bytes(65000)))
        sent += 65000
    while client.pump(0.3):
        pass
    assert client.h2.local_flow_control_window(s.number) <= 65600 and (1 << 20) - 200_000 < sent <= 1 << 20
    client.cancel(s)
    wait(lambda: cloud.execs()[0]["how"] == "cancelled")


# -- connections --

def test_goaway_below_the_call(client, cloud):
    cloud.fault("CreateSandbox", "goaway", last="below")
    s = client.open("CreateSandbox")
    client.message(s, api.CreateSandboxRequest(name=NAME, workspace_scope=DEFAULT), end=True)
    client.until(lambda: client.goaways)
    assert client.goaways == [(0, 0)] and s.headers is None and cloud.alive() == []
    client.until(lambda: client.closed)


def test_goaway_at_the_call_lets_it_finish(client, cloud):
    create(client)
    cloud.fault("GetSandbox", "goaway", last="at")
    raw = raw_frames(cloud, "GetSandbox", api.GetSandboxRequest(name=NAME, workspace_scope=DEFAULT))
    assert [f for f in raw if f[0] == 7][0][3][:4] == struct.pack(">I", 1)           # GOAWAY that names this stream, the first
    assert [f[0] for f in raw if f[2] == 1] == [1, 0, 1]                              # and its HEADERS, DATA and trailers all the same
    assert breaches(cloud) == []


def raw_frames(cloud, method, message):
    """(type, flags, stream, payload) of each frame of the answer to one call on a connection of its own."""
    c = Client(cloud.ready["port"])
    s = c.open(method)
    c.message(s, message, end=True)
    data = b""
    c.sock.settimeout(WAIT_S)
    while True:
        piece = c.sock.recv(65536)
        if not piece:
            break
        data += piece
    c.close()
    return frames_of(data)


def test_a_stream_after_goaway_is_a_breach(client, cloud):
    create(client)
    cloud.admin("POST", "goaway")
    client.until(lambda: client.goaways)
    # h2 does nothing after a GOAWAY: the PING's acknowledgement and another request, by hand
    block = client.h2.encoder.encode(client.headers("Health"))
    client.sock.sendall(struct.pack(">I", 8)[1:] + b"\x06\x01" + struct.pack(">IQ", 0, 1))
    client.sock.sendall(struct.pack(">I", len(block))[1:] + b"\x01\x05" + struct.pack(">I", 101) + block)
    wait(lambda: breaches(cloud) == ["a stream after GOAWAY"])


def test_pings_are_sent_and_their_answers_counted():
    with clouds.OpenshellStandin("--exec", "canned", "--ping-s", "0.1", "--ping-wait-s", "2") as cloud:
        client = Client(cloud.ready["port"])
        client.until(lambda: client.pings >= 3)
        assert cloud.state()["pings_acknowledged"] >= 2 and cloud.violations() == []
        client.answers_pings = False
        client.until(lambda: client.closed)
        assert breaches(cloud) == ["a PING without an answer"]
        client.close()


def test_more_streams_at_once_than_may_be():
    with clouds.OpenshellStandin("--exec", "canned", "--streams-max", 2) as cloud:
        client = Client(cloud.ready["port"])
        cloud.fault("Health", "never")
        client.until(lambda: client.h2.remote_settings.max_concurrent_streams == 2)
        block = client.h2.encoder.encode(client.headers("Health"))
        for number in (1, 3, 5):        # by hand: h2 would not
            client.sock.sendall(struct.pack(">I", len(block))[1:] + b"\x01\x04" + struct.pack(">I", number) + block)
            block = client.h2.encoder.encode(client.headers("Health"))
        wait(lambda: breaches(cloud) == ["HTTP/2"] and "TooManyStreams" in cloud.violations()[0]["error"])
        client.close()


def test_http_1_and_other_garbage_end_the_connection(cloud):
    with socket.create_connection(("127.0.0.1", cloud.ready["port"]), WAIT_S) as s:
        s.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        while s.recv(4096):
            pass
    assert breaches(cloud) == ["HTTP/2"]


def test_a_client_that_is_gone_ends_its_execs(cloud):
    client = Client(cloud.ready["port"])
    create(client)
    cloud.script({"command": "*", "do": "hang"})
    execute(client)
    wait(lambda: cloud.execs())
    client.close()
    wait(lambda: cloud.execs()[0]["how"] == "connection lost" and cloud.state()["streams"] == 0)


# -- what the gateway says --

@pytest.mark.parametrize("what", kinds.RECORD_CHANGES)
def test_every_change_of_a_record_is_one(client, cloud, what):
    create(client)
    before = get(client, answer=api.SandboxResponse)
    cloud.fault("GetSandbox", "readback", what=what)
    after = get(client)
    changed = api.SandboxResponse.FromString(after.messages()[0])
    before.sandbox.status.Clear(), changed.sandbox.status.Clear()
    assert after.status == "0" and changed != before


@pytest.mark.parametrize("what", kinds.CONFIG_CHANGES)
def test_every_change_of_a_config_is_one(client, cloud, what):
    create(client)
    before = get_config(client).messages()[0]
    cloud.fault("GetSandboxConfig", "readback", what=what)
    after = get_config(client).messages()[0]
    assert config.GetSandboxConfigResponse.FromString(before) != config.GetSandboxConfigResponse.FromString(after)


def test_what_was_sent_comes_back_byte_for_byte(client, cloud):
    """Bytes no encoder of the vendor's would write in that order: the policy's parts turned round."""
    policy = b"\x1a\x12\x0a\x10hard_requirement" + b"\x08\x01"
    spec = b"\x3a" + bytes([len(policy)]) + policy
    request = b"\x0a" + bytes([len(spec)]) + spec + api.CreateSandboxRequest(name=NAME, workspace_scope=DEFAULT).SerializeToString()
    assert client.call("CreateSandbox", request).status == "0"
    assert policy in get(client).body and policy in get_config(client).body


def test_harmless_changes_are_other_bytes_with_the_same_meaning(client, cloud):
    create(client)
    plain = get(client, answer=api.SandboxResponse)
    body = get(client).body
    cloud.fault("GetSandbox", "readback", what="harmless-order")
    turned = get(client)
    message = api.SandboxResponse.FromString(turned.messages()[0])
    assert turned.body != body and message.sandbox.spec == plain.sandbox.spec
    cloud.faults([{"method": "GetSandbox", "action": {"type": "readback", "what": "harmless-newer"}}])
    newer = get(client, answer=api.SandboxResponse)
    assert newer.sandbox.spec.template == plain.sandbox.spec.template and newer.sandbox.host_key_fingerprint


def test_drift_begins_with_a_later_read(client, cloud):
    create(client)
    cloud.fault("GetSandbox", "drift", what="image", reads=2)
    images = [get(client, answer=api.SandboxResponse).sandbox.spec.template.image for _ in range(4)]
    assert images == ["image", "image", "imagex", "imagex"]


@pytest.mark.parametrize("phase", ["ERROR", "COMPLETED", "UNKNOWN", "DELETING"])
def test_phases_that_are_told(client, cloud, phase):
    create(client)
    cloud.fault("GetSandbox", "phase", told=phase, message_text="why", times=1)
    status = get(client, answer=api.SandboxResponse).sandbox.status
    assert status.phase == api.SandboxPhase.Value("SANDBOX_PHASE_" + phase) and status.conditions[0].message == "why"
    assert get(client, answer=api.SandboxResponse).sandbox.status.phase == api.SANDBOX_PHASE_READY


def test_readiness_takes_the_reads_it_is_told_to(client, cloud):
    cloud.tune(ready_after_polls=3)
    create(client)
    assert [get(client, answer=api.SandboxResponse).sandbox.status.phase for _ in range(5)] == [1, 1, 1, 2, 2]


def test_exec_on_a_sandbox_that_is_not_ready(client, cloud):
    cloud.tune(ready_after_polls=3)
    create(client)
    assert client.finish(execute(client)).status == "9"


@pytest.mark.parametrize(("what", "outcomes", "is_there"), [("internal", None, True), ("unspecified", 0, True), ("lies", 1, True), ("never-gone", 2, True), ("seventeen", 17, True),
                                                           ("replaced", 2, True)])
def test_deletes_that_fail(client, cloud, what, outcomes, is_there):
    create(client)
    first = get(client, answer=api.SandboxResponse).sandbox.metadata.id
    cloud.fault("DeleteSandbox", "delete-fails", what=what, times=1)
    s = delete(client)
    assert s.status == ("13" if outcomes is None else "0")
    if outcomes is not None:
        assert api.DeleteSandboxResponse.FromString(s.messages()[0]).outcome == outcomes
    record = get(client, answer=api.SandboxResponse).sandbox
    assert (record.metadata.id != first) is (what == "replaced") and (record.status.phase == 4) is (what == "never-gone")
    assert [r["reason"] for r in cloud.leaks()] == (["believed gone"] if what == "lies" else [])
    if what != "never-gone":
        assert delete(client, answer=api.DeleteSandboxResponse).outcome == 2
        wait(lambda: get(client).status == "5" and cloud.alive() == [])


def test_delete_takes_the_reads_it_is_told_to(client, cloud):
    cloud.tune(delete_polls=2)
    create(client)
    assert delete(client, answer=api.DeleteSandboxResponse).outcome == 2
    assert [get(client, answer=api.SandboxResponse).sandbox.status.phase for _ in range(2)] == [4, 4]
    assert delete(client, answer=api.DeleteSandboxResponse).outcome in (2, 3)
    wait(lambda: get(client).status == "5")


def test_delete_may_be_complete_at_once(client, cloud):
    cloud.tune(delete_outcome=1)
    create(client)
    assert delete(client, answer=api.DeleteSandboxResponse).outcome == 1 and get(client).status == "5"
    assert delete(client, answer=api.DeleteSandboxResponse).outcome == 3
    entry, = cloud.account()["sandboxes"]
    assert (entry["state"], entry["ended_by"], entry["believed"]) == ("gone", "api", "gone")


def list_page(client, **more):
    return client.call("ListSandboxes", api.ListSandboxesRequest(workspace_scope=DEFAULT, **more))


def test_lists_that_lie(client, cloud):
    for n in range(3):
        cloud.plant(f"plp-{n}", labels={"plimsoll.run": "1"})
    for what, check in (("same-token", lambda a: a.next_page_token and len(a.sandboxes) == 2), ("duplicates", lambda a: len(a.sandboxes) == 4),
                        ("huge-token", lambda a: len(a.next_page_token) == 200_000), ("empty", lambda a: not a.sandboxes and not a.next_page_token)):
        cloud.faults([{"method": "ListSandboxes", "action": {"type": "list", "what": what}}])
        assert check(api.ListSandboxesResponse.FromString(list_page(client, page_size=2).messages()[0])), what
    cloud.faults([{"method": "ListSandboxes", "action": {"type": "list", "what": "second-page-fails"}}])
    token = api.ListSandboxesResponse.FromString(list_page(client, page_size=2).messages()[0]).next_page_token
    assert list_page(client, page_size=2, page_token=token).status == "14"
    assert list_page(client, page_token="nonsense").status == "3"


@pytest.mark.parametrize(("what", "check"), [
    ("none", lambda a: not a.compute_drivers), ("two", lambda a: len(a.compute_drivers) == 2), ("podman", lambda a: a.compute_drivers[0].name == "podman"),
    ("mismatch", lambda a: a.compute_drivers[0].name != a.compute_drivers[0].capabilities.driver_name), ("no-cpu", lambda a: not limits(a).cpu.limit_supported),
    ("mismatch-outer", lambda a: a.compute_drivers[0].name == "podman"), ("no-memory", lambda a: not limits(a).memory.limit_supported),
    ("no-capabilities", lambda a: not a.compute_drivers[0].HasField("capabilities")), ("version-0.2", lambda a: a.gateway_version == "0.2.0"),
    ("version-0.0", lambda a: a.gateway_version.startswith("0.0.")), ("version-empty", lambda a: a.gateway_version == "")])
def test_drivers(client, cloud, what, check):
    cloud.fault("GetGatewayInfo", "driver", what=what)
    assert check(client.call("GetGatewayInfo", api.GetGatewayInfoRequest(), answer=api.GetGatewayInfoResponse))


def limits(answer):
    return answer.compute_drivers[0].capabilities.resource_capabilities


@pytest.mark.parametrize(("what", "code"), [("PERMISSION_DENIED", "7"), ("UNAUTHENTICATED", "16"), ("UNIMPLEMENTED", "12")])
def test_a_gateway_that_does_not_tell_its_drivers(client, cloud, what, code):
    cloud.fault("GetGatewayInfo", "driver", what=what)
    assert client.call("GetGatewayInfo", api.GetGatewayInfoRequest()).status == code


def test_created_times_may_be_off(client, cloud):
    cloud.fault("CreateSandbox", "clock", ms=-90_000)
    create(client)
    seconds = get(client, answer=api.SandboxResponse).sandbox.metadata.created_time.seconds
    assert -95 < seconds - time.time() < -85
    cloud.clock(advance_ms=600_000)
    cloud.clear_faults()
    cloud.plant("plp-old", age_ms=60_000)
    got = client.call("GetSandbox", api.GetSandboxRequest(name="plp-old", workspace_scope=DEFAULT), answer=api.SandboxResponse)
    assert 535 < got.sandbox.metadata.created_time.seconds - time.time() < 545
    cloud.clock(advance_ms=-600_000)


def test_rate_limits(client, cloud):
    cloud.tune(rate_calls=2)
    assert [client.call("Health", api.HealthRequest()).status for _ in range(4)] == ["0", "0", "8", "8"]


def test_driver_config_may_not_be_allowed(client, cloud):
    cloud.tune(allow_driver_config=False)
    s = create(client)
    assert s.status == "3" and "allow_driver_config" in dict(s.headers)["grpc-message"] and cloud.alive() == []


# -- exec --

@pytest.mark.parametrize(("what", "more", "check"), [
    ("exit", {"exit": -1}, lambda s: told(s) == (b"7\n", [-1])),
    ("late-exit", {"ms": 50}, lambda s: told(s) == (b"7\n", [0])),
    ("no-exit", {}, lambda s: told(s) == (b"7\n", []) and s.status == "0"),
    ("two-exits", {"exit": 1}, lambda s: told(s)[1] == [0, 1]),
    ("late-output", {"stdout": "late"}, lambda s: s.events()[-1].stdout.data == b"late" and told(s)[1] == [0]),
    ("empty-event", {}, lambda s: s.events()[-2].WhichOneof("payload") is None),
    ("unknown-event", {}, lambda s: s.messages()[-2] == b"\x7a\x03new"),
    ("big-event", {"bytes": 300_000}, lambda s: len(s.events()[-2].stdout.data) == 300_000),
    ("bad-trailers", {}, lambda s: told(s)[1] == [0] and s.status == "13"),
])
def test_exec_faults(client, cloud, what, more, check):
    create(client)
    cloud.fault("ExecSandboxInteractive", "exec", what=what, **more)
    assert check(client.finish(execute(client)))


def test_a_timeout_of_the_gateways_own(client, cloud):
    create(client)
    cloud.fault("ExecSandboxInteractive", "exit-124", ms=50)
    assert told(client.finish(execute(client))) == (b"", [124])


@pytest.mark.parametrize(("what", "kind"), [("endless", OUT), ("stderr-flood", ERR), ("hang", None), ("silent", None), ("hold-open", EXIT)])
def test_execs_without_an_end_end_with_the_cancel(client, cloud, what, kind):
    create(client)
    cloud.fault("ExecSandboxInteractive", "exec", what=what)
    s = execute(client)
    if kind:
        client.until(lambda: len(s.body) > (0 if kind == EXIT else 1 << 20))
        assert s.events()[-1].WhichOneof("payload") == kind
    else:
        client.pump(0.2)
        assert s.body == b""
    assert not s.over
    client.cancel(s)
    wait(lambda: cloud.state()["streams"] == 0 and cloud.calls("ExecSandboxInteractive")[0]["client_reset"] == 8)
    assert cloud.execs()[0]["how"] == ("exit" if kind == EXIT else "cancelled")


def test_the_script_answers_by_command_and_by_input(client, cloud):
    create(client)
    cloud.script({"command": "sh -c *", "stdout": "shell\n", "exit": 4}, {"stdin": "exact", "stdout": "by input\n"}, {"contains": "mark", "stderr": "e", "exit": 5},
                 {"command": "echo *", "do": "echo-stdin"}, {"command": "none", "exit": None})
    run = lambda code, *command: client.finish(execute(client, code, command=command or ("node", "-")))  # noqa: E731
    assert told(run("x", "sh", "-c", "ls")) == (b"shell\n", [4])
    assert told(run("exact")) == (b"by input\n", [0])
    s = run("a mark in it")
    assert told(s) == (b"", [5]) and s.events()[0].stderr.data == b"e"
    assert told(run("console.log(123)")) == (b"123\n", [0]) and told(run("anything")) == (b"42\n", [0])
    assert told(run("as it is", "echo", "x")) == (b"as it is", [0])
    assert run("x", "none").status == "14"


class Framed(frames.Runner):
    """The runner's other end, over an exec."""

    def __init__(self, client, stream):
        self.client, self.stream = client, stream
        self.key = bytes(range(32))
        self.to_runner, self.to_gateway = (hmac.new(self.key, way, hashlib.sha256).digest() for way in (b"h2r", b"r2h"))
        self.sent, self.received, self.taken = 1, 0, 0
        self.buffer, self.unframed, self.digest = b"", b"", hashlib.sha256()

    def write(self, data):
        for at in range(0, len(data), 65536):
            self.client.message(self.stream, api.ExecSandboxInput(stdin=data[at:at + 65536]))

    def frame(self, seconds=20):
        end = time.monotonic() + seconds
        while True:
            one = self._take()
            if one is not None:
                if one[0] != b"X":
                    self.digest.update(one[1])
                return one
            out = told(self.stream)[0]
            if len(out) > self.taken:
                self.buffer += out[self.taken:]
                self.taken = len(out)
            elif self.stream.over:
                return None
            else:
                assert time.monotonic() < end, "nothing came from the runner"
                self.client.pump(0.2)


def test_the_canned_runner_keeps_to_the_frames(client, cloud):
    create(client)
    cloud.script({"stdin": "step one", "stdout": "one\n" * 3000}, {"stdin": "step two", "stderr": "two\n", "exit": 3})
    s = client.open("ExecSandboxInteractive")
    client.message(s, start(command=["/usr/libexec/plimsoll/runner", "--mode=exec"]))
    r = Framed(client, s)
    assert r.begin(preboot=0)[0] == 0
    result = r.result(r.give(frames.job(frames.PROJECT, steps=["step one", "step two", "step three"], files=[("a", "b" * 50000)], artifacts=["x"])))
    assert [(step.out, step.err, step.code) for step in result.steps] == [(b"one\n" * 3000, b"", 0), (b"", b"two\n", 3)] and result.artifacts == []
    assert told(client.finish(s))[1] == [0]


def test_the_real_runner_works_in_a_sandbox():
    assert clouds.OpenshellStandin.runner.exists(), "build/guest/runner is not built"
    with clouds.OpenshellStandin("--settings", '{"ready_after_polls": 0}') as cloud:
        client = Client(cloud.ready["port"])
        create(client)
        wait(lambda: get(client, answer=api.SandboxResponse).sandbox.status.phase == api.SANDBOX_PHASE_READY)
        s = client.open("ExecSandboxInteractive")
        client.message(s, start(command=["/usr/libexec/plimsoll/runner", "--mode=exec", "--work=/tmp/work", "--preboot=none"]))
        r = Framed(client, s)
        r.begin(preboot=0)
        digest = r.give(frames.job(frames.PROJECT, steps=["node main.mjs", "cat out.txt; pwd; exit 3", "echo never"], artifacts=["out.txt"],
                                            files=[("main.mjs", "import fs from 'fs'; fs.writeFileSync('out.txt', 'made\\n'); console.log(6 * 7)")]))
        client.send(s, b"", end=True)
        result = r.result(digest)
        client.finish(s)
        assert [(step.out, step.code) for step in result.steps] == [(b"42\n", 0), (b"made\n/tmp/work\n", 3)] and result.outcome == frames.COMPLETED
        assert told(s)[1] == [0] and cloud.violations() == []
        client.close()


# -- TLS --

@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    with clouds.OpenshellStandin("--tls-dir", tmp_path_factory.mktemp("tls"), "--exec", "canned") as c:
        yield c


def handshake(cloud, alpn, least=None, most=None):
    """What ALPN came to, and whether the gateway keeps the connection."""
    folder = cloud.ready["tls_dir"]
    context = ssl.create_default_context(cafile=f"{folder}/ca.crt")
    context.load_cert_chain(f"{folder}/client.crt", f"{folder}/client.key")
    if alpn:
        context.set_alpn_protocols(alpn)
    if most:
        context.maximum_version = most
    with socket.create_connection(("127.0.0.1", cloud.ready["port"]), WAIT_S) as plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as s:
        chosen = s.selected_alpn_protocol()
        try:
            return chosen, s.version(), s.recv(9)[3:4] == b"\x04"      # SETTINGS
        except OSError:
            return chosen, s.version(), False


def test_alpn_and_versions(secure):
    assert handshake(secure, ["h2"]) == ("h2", "TLSv1.3", True)
    assert handshake(secure, ["h2"], most=ssl.TLSVersion.TLSv1_2) == ("h2", "TLSv1.2", True)
    assert handshake(secure, ["http/1.1"])[::2] == ("http/1.1", False)
    assert handshake(secure, None)[::2] == (None, False)
    assert breaches(secure) == ["a TLS connection without ALPN h2"] * 2
    secure.reset()


@pytest.mark.parametrize("alpn", ["http/1.1", ""])
def test_a_gateway_without_h2(tmp_path, alpn):
    with clouds.OpenshellStandin("--tls-dir", tmp_path, "--exec", "canned", "--alpn", alpn) as cloud:
        assert handshake(cloud, ["h2", "http/1.1"])[0] == (alpn or None)


def test_a_certificate_for_another_host(tmp_path):
    with clouds.OpenshellStandin("--tls-dir", tmp_path, "--tls-cert", tmp_path / "wrong-host.crt", "--tls-key", tmp_path / "wrong-host.key", "--exec", "canned") as cloud:
        with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
            handshake(cloud, ["h2"])


def test_without_a_certificate_where_it_is_optional(tmp_path):
    with clouds.OpenshellStandin("--tls-dir", tmp_path, "--client-certificate", "optional", "--exec", "canned") as cloud:
        with grpc.secure_channel(f"127.0.0.1:{cloud.ready['port']}", grpc.ssl_channel_credentials((tmp_path / "ca.crt").read_bytes())) as channel:
            stub = stubs.OpenShellStub(channel)
            assert stub.Health(api.HealthRequest()).version
            with pytest.raises(grpc.RpcError) as e:
                stub.ListSandboxes(api.ListSandboxesRequest(workspace_scope=DEFAULT))
            assert e.value.code() is grpc.StatusCode.UNAUTHENTICATED


# -- what it notices --

@pytest.mark.parametrize(("headers", "breach"), [
    ({"te": None}, "no te: trailers"), ({"content-type": "application/json"}, "the content type"), ({":method": "PUT"}, "not a POST"), ({"expect": "100-continue"}, "a header that may not be sent"),
    ({"grpc-encoding": "gzip"}, "a header that may not be sent"), ({"grpc-timeout": "10"}, "a malformed grpc-timeout"), ({"grpc-accept-encoding": "gzip"}, "an offer of compression"),
    ({":scheme": "https"}, "the scheme"), ({":authority": None}, "the pseudo headers"), ({"X-Upper": "a"}, "a header name with capitals")])
def test_breaches_in_headers(client, cloud, headers, breach):
    s = client.open("Health", client.headers("Health", **headers))
    client.message(s, api.HealthRequest(), end=True)
    client.finish(s)
    assert breaches(cloud) == [breach]


def test_pseudo_headers_come_first(client, cloud):
    s = client.open("Health", sorted(client.headers("Health"), key=lambda h: h[0] != "te"))
    client.message(s, api.HealthRequest(), end=True)
    client.finish(s)
    assert breaches(cloud) == ["a pseudo header after an ordinary one"]


FIELD = b"\xfa\x7f\x03new"         # number 2047


@pytest.mark.parametrize(("data", "status", "breach"), [
    (b"\0\0\0\0\x04ab", "13", "a cut message"), (b"\0\0\0", "13", "a cut message"), (b"\1\0\0\0\0", "13", "a compressed message"), (b"\2\0\0\0\0", "13", "a compressed message"),
    (b"\0\x00\x10\x00\x01", "11", "a message over 1 MiB"), (b"\0\0\0\0\0" * 2, "13", "two messages in a unary call"), (b"", "13", "a call without a message"),
    (b"\0\0\0\0\x01\xff", "3", "the request"), (b"\0\0\0\0\x06" + FIELD, "3", "the request")])
def test_breaches_in_framing(client, cloud, data, status, breach):
    s = client.open("Health")
    client.send(s, data, end=True)
    client.finish(s)
    assert s.status == status and breaches(cloud) == [breach]


def test_a_message_of_one_mib_is_taken(client, cloud):
    create(client)
    s = client.open("ExecSandboxInteractive")
    client.message(s, start())
    client.message(s, api.ExecSandboxInput(stdin=bytes((1 << 20) - 4)), end=True)
    client.finish(s)
    assert told(s)[1] == [0] and breaches(cloud) == ["a stdin message over 64 KiB"]


def nested():
    request = api.CreateSandboxRequest(name=NAME, workspace_scope=DEFAULT)
    request.spec.policy.version = 1
    request.spec.policy.MergeFromString(FIELD)
    return request


@pytest.mark.parametrize(("method", "message", "status", "breach"), [
    ("CreateSandbox", nested(), "3", "the request"),
    ("GetSandbox", api.GetSandboxRequest(name=NAME), "3", "an invalid argument"),
    ("GetSandbox", b"\x0a\x02\xff\xfe", "3", "the request"),
    ("CreateSandbox", api.CreateSandboxRequest(name=NAME, workspace_scope=DEFAULT, labels={"a": "b c"}), "3", "an invalid argument"),
    ("CreateSandbox", api.CreateSandboxRequest(name=NAME, workspace_scope=DEFAULT, labels={"a": "b" * 64}), "3", "an invalid argument"),
    ("CreateSandbox", api.CreateSandboxRequest(name=NAME + "ef", workspace_scope=DEFAULT), "3", "an invalid argument"),
    ("CreateSandbox", api.CreateSandboxRequest(name=NAME, workspace_scope=DEFAULT, spec=api.SandboxSpec(environment={"OPENSHELL_X": "1"})), "3", "an invalid argument"),
    ("CreateSandbox", api.CreateSandboxRequest(name=NAME, workspace_scope=DEFAULT, spec=api.SandboxSpec(policy=config.SandboxPolicy(version=2))), "3", "an invalid argument"),
    ("CreateSandbox", api.CreateSandboxRequest(name=NAME, workspace_scope=DEFAULT, spec=api.SandboxSpec(policy=config.SandboxPolicy(
        version=1, filesystem=config.FilesystemPolicy(read_write=["/"])))), "3", "an invalid argument"),
    ("CreateSandbox", api.CreateSandboxRequest(name=NAME, workspace_scope=DEFAULT, spec=api.SandboxSpec(policy=config.SandboxPolicy(
        version=1, filesystem=config.FilesystemPolicy(read_only=["/a/../b"])))), "3", "an invalid argument"),
    ("CreateSandbox", api.CreateSandboxRequest(name=NAME, workspace_scope=DEFAULT, spec=api.SandboxSpec(policy=config.SandboxPolicy(
        version=1, landlock=config.LandlockPolicy(compatibility="hard")))), "0", "an unknown landlock compatibility, which means best_effort"),
    ("CreateSandbox", api.CreateSandboxRequest(name=NAME, workspace_scope=DEFAULT, spec=api.SandboxSpec(restart_policy=1)), "0",
     "a field outside the specification"),
    ("ListSandboxes", api.ListSandboxesRequest(workspace_scope=DEFAULT, label_selector="a==b"), "3", "an invalid argument"),
    ("ListSandboxes", api.ListSandboxesRequest(workspace_scope=DEFAULT, page_size=-1), "3", "an invalid argument"),
])
def test_breaches_in_requests(client, cloud, method, message, status, breach):
    assert client.call(method, message).status == status and breaches(cloud) == [breach]


def exec_request(**more):
    return api.ExecSandboxRequest(sandbox=NAME, command=["true"], workspace_scope=DEFAULT, **more)


@pytest.mark.parametrize(("messages", "status", "expected"), [
    ([api.ExecSandboxInput(stdin=b"x")], "3", ["an exec that does not begin with start"]),
    ([api.ExecSandboxInput(start=exec_request())], "0", ["an exec in a login shell", "an exec without a timeout"]),
    ([api.ExecSandboxInput(start=start(stdin=b"x").start)], "0", ["stdin in the start message"]),
    ([start(), start()], "3", ["a message that is neither stdin nor resize"]),
    ([start(), b"\x12"], "3", ["the request"]),
    ([start(), api.ExecSandboxInput(stdin=bytes(65537))], "0", ["a stdin message over 64 KiB"]),
    ([start(), api.ExecSandboxInput(stdin=bytes(65536))], "0", []),
    ([start(command=["a\0b"])], "3", ["an invalid argument"]),
    ([start(command=["x"] * 1025)], "3", ["an invalid argument"]),
    ([start(environment={"A": "1\n2"})], "3", ["an invalid argument"]),
    ([start(workdir="/a\nb")], "3", ["an invalid argument"]),
    ([], "3", ["a stream without a message"]),
])
def test_breaches_in_exec(client, cloud, messages, status, expected):
    create(client)
    s = client.open("ExecSandboxInteractive")
    for m in messages:
        if not s.over:
            client.message(s, m)
    if not s.over:
        client.send(s, b"", end=True)
    client.finish(s)
    assert s.status == status and sorted(breaches(cloud)) == sorted(expected)


def test_a_half_close_that_never_comes_is_noticed(client, cloud):
    create(client)
    cloud.script({"command": "*", "do": "exit-without-reading", "delay_ms": 2200})
    s = client.open("ExecSandboxInteractive")
    client.message(s, start())
    client.message(s, api.ExecSandboxInput(stdin=b"x"))
    client.finish(s)
    assert told(s)[1] == [0] and breaches(cloud) == ["no half-close before the command ended by itself"]


def test_resets_with_another_code_are_noticed(client, cloud):
    create(client)
    cloud.script({"command": "*", "do": "hang"})
    s = execute(client)
    wait(lambda: cloud.execs())
    client.cancel(s, code=2)
    wait(lambda: breaches(cloud) == ["a reset with another code than CANCEL"])


def forward(client, token, port=80, first=None):
    init = api.TcpForwardInit(sandbox=NAME, workspace="default", authorization_token=token)
    init.tcp.host, init.tcp.port = "127.0.0.1", port
    s = client.open("ForwardTcp")
    client.message(s, first or api.TcpForwardFrame(init=init))
    return s


def ssh(client):
    return client.call("CreateSshSession", api.CreateSshSessionRequest(sandbox=NAME, workspace_scope=DEFAULT), answer=api.CreateSshSessionResponse)


def test_forwards_and_their_faults(client, cloud):
    create(client)
    token = ssh(client).token
    s = forward(client, token)
    client.message(s, api.TcpForwardFrame(data=b"there and back"), end=True)
    client.finish(s)
    assert [api.TcpForwardFrame.FromString(m).data for m in s.messages()] == [b"there and back"] and s.status == "0"
    assert client.finish(forward(client, token, first=api.TcpForwardFrame(data=b"x"))).status == "3"
    assert client.finish(forward(client, "another")).status == "16"
    assert breaches(cloud) == ["a forward that does not begin with init"]
    for what, check in (("refused", lambda s: s.status == "14"), ("fails-at-end", lambda s: s.status == "13")):
        cloud.faults([{"method": "ForwardTcp", "action": {"type": "forward", "what": what}}])
        s = forward(client, token)
        client.send(s, b"", end=True) if not s.over else None
        assert check(client.finish(s))
    for what, more, status in (("expired", {}, "16"), ("limit", {"limit": 1}, "8")):
        cloud.faults([{"method": "CreateSshSession", "action": {"type": "token", "what": what, **more}}])
        token = ssh(client).token
        first, second = forward(client, token), forward(client, token)
        assert client.finish(second).status == status
        client.cancel(first) if not first.over else None
    cloud.faults([{"method": "RevokeSshSession", "action": {"type": "token", "what": "revoke-fails"}}])
    assert client.call("RevokeSshSession", api.RevokeSshSessionRequest(token=token)).status == "13"
    assert len(cloud.state()["unrevoked"]) == 3 and token not in str(cloud.journal()) and token not in str(cloud.state())


def test_twenty_forwards_a_sandbox(client, cloud):
    create(client)
    live = []
    for _ in range(7):
        token = ssh(client).token
        for _ in range(3):
            live.append(forward(client, token))
    client.finish(live[-1])
    assert live[-1].status == "8" and not any(s.over for s in live[:20])


def test_a_guests_request_over_a_forward(client, cloud):
    create(client)
    cloud.admin("POST", "ask", {"name": NAME, "request": "GET / HTTP/1.1\r\n\r\n", "until": "\r\n\r\n"})
    s = forward(client, ssh(client).token)
    client.until(lambda: s.messages())
    assert api.TcpForwardFrame.FromString(s.messages()[0]).data == b"GET / HTTP/1.1\r\n\r\n"
    client.message(s, api.TcpForwardFrame(data=b"HTTP/1.1 204 No\r\n\r\n"))
    client.finish(s)
    assert cloud.admin("GET", f"asks?name={NAME}")[0]["answer"] == "HTTP/1.1 204 No\r\n\r\n"


def test_a_relay_asks_for_connections_when_told(client, cloud):
    create(client)
    cloud.script({"command": "node -e *", "do": "relay"})
    s = execute(client, code=None, command=["node", "-e", "relay", "30000", "/tmp/s"])
    client.until(lambda: told(s)[0] == b"ready\n")
    cloud.admin("POST", "need", {"name": NAME, "count": 2})
    client.until(lambda: told(s)[0] == b"ready\nneed\nneed\n")
    client.cancel(s)


# -- the books --

def test_the_books_tell_what_was_run(client, cloud):
    create(client)
    code = "console.log(1) // mark-0123456789abcdef"
    client.finish(execute(client, code))
    x, = cloud.execs()
    assert (x["sandbox"], x["command"], x["timeout_s"], x["stdin_bytes"], x["out_bytes"], x["exit"], x["how"]) == (NAME, ["node", "-"], 30.0, len(code), 2, 0, "exit")
    assert cloud.admin("GET", "marks") == {"mark-0123456789abcdef": [NAME]}
    counts = collections.Counter(line["method"] for line in cloud.calls())
    assert counts == {"CreateSandbox": 1, "ExecSandboxInteractive": 1}
    entry, = cloud.account()["sandboxes"]
    assert entry["labels"] == {"plimsoll.run": "1"} and entry["size"] == {"cpu": "1", "memory": "256Mi"} and entry["counts"]["exec"] == 1


def test_a_reset_ends_everything(client, cloud):
    create(client)
    cloud.script({"command": "*", "do": "hang"})
    execute(client)
    wait(lambda: cloud.execs())
    cloud.reset()
    assert cloud.alive() == [] and cloud.execs() == [] and cloud.journal() == [] and cloud.violations() == []


def test_bad_rules_are_refused(cloud):
    for rule in ({"action": {"type": "nothing"}}, {"action": {"type": "rst", "bytes": 1}}, {"phase": "never", "action": {"type": "rst"}}):
        with pytest.raises(AssertionError, match="400"):
            cloud.faults([rule])


def test_only_loopback():
    r = subprocess.run([sys.executable, "-m", "standins.openshell", "--listen", "0.0.0.0:0"], cwd=clouds.ROOT / "tests", capture_output=True, timeout=30)
    assert r.returncode == 2 and b"loopback" in r.stderr
