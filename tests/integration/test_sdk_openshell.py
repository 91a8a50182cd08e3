"""The vendor's own client against the stand-in of an OpenShell gateway: its main flows, and with its generated messages over plain grpcio what the
client has no method for. A stand-in that the vendor's client does not take would prove nothing about a backend."""
import contextlib
import hashlib
import json
import os
import pathlib
import queue
import sys
import time

import grpc
import openshell
import pytest
from openshell._proto import datamodel_pb2 as datamodel
from openshell._proto import openshell_pb2 as api
from openshell._proto import openshell_pb2_grpc as services
from openshell._proto import sandbox_pb2 as config

import clouds

sys.path.insert(0, str(clouds.ROOT / "tests"))
from standins.openshell import schema  # noqa: E402

DEFAULT = datamodel.WorkspaceSelector(workspace="default")
READ_ONLY = "/bin /usr /lib /etc /proc /dev/urandom /sys/fs/cgroup".split()
POLICY = config.SandboxPolicy(version=1, filesystem=config.FilesystemPolicy(read_only=READ_ONLY, read_write=["/tmp", "/dev/null"]),
                              landlock=config.LandlockPolicy(compatibility="hard_requirement"))


@pytest.fixture(scope="module")
def cloud():
    with clouds.OpenshellStandin() as c:
        yield c


@pytest.fixture
def client(cloud):
    cloud.reset()
    cloud.tune(ready_after_polls=0)
    with openshell.SandboxClient(f"127.0.0.1:{cloud.ready['port']}") as c:
        yield c
    assert cloud.violations() == []


@pytest.fixture
def gateway(client):
    return services.OpenShellStub(client._channel)


@pytest.fixture
def walled(cloud):
    """For what a box without namespaces has not."""
    about = cloud.info()
    if not about["isolates"]:
        assert os.environ.get("CI") != "true", about["boxes"]
        pytest.skip(f"boxes without namespaces: {about['boxes']['why_plain']}")


def spec(command=("sleep", "1000000"), **more):
    value = api.SandboxSpec(command=command, policy=POLICY, **more)
    value.template.image = "registry.test/image@sha256:" + "0" * 64
    value.template.resources.update({"limits": {"cpu": "0.5", "memory": "256Mi"}})
    return value


@pytest.fixture
def ready(client):
    """A sandbox that is READY."""
    client.create(workspace="default", name="plp-sdk", spec=spec(), labels={"plimsoll.run": "1"})
    wait(lambda: client.get("plp-sdk", workspace="default").phase == api.SANDBOX_PHASE_READY)
    yield "plp-sdk"
    client.delete("plp-sdk", workspace="default", allow_missing=True)
    wait(lambda: not client.list_all(workspace="default"))


def wait(until, seconds=10):
    """Asks again and again until the answer is true."""
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end
        time.sleep(0.01)


def refused(code, call, *args, **kwargs):
    with pytest.raises(grpc.RpcError) as e:
        call(*args, **kwargs)
    assert e.value.code() is code, e.value
    return e.value


class Interactive:
    """One exec whose input and output run side by side."""

    def __init__(self, gateway, sandbox, command, timeout=15, **more):
        self.input = queue.Queue()
        start = api.ExecSandboxRequest(sandbox=sandbox, command=command, no_login_shell=True, workspace_scope=DEFAULT, **more)
        start.execution_timeout.seconds = timeout
        self.input.put(api.ExecSandboxInput(start=start))
        self.call = gateway.ExecSandboxInteractive(iter(self.input.get, None), timeout=20)

    def give(self, data):
        for at in range(0, len(data), 65536):
            self.input.put(api.ExecSandboxInput(stdin=data[at:at + 65536]))
        return self

    def close(self):
        self.input.put(None)
        return self

    def next(self):
        event = next(self.call)
        return getattr(event, event.WhichOneof("payload"))

    def result(self):
        """(exit code, stdout, stderr): of the one exit event, which is the last."""
        out, err, code = b"", b"", None
        for event in self.call:
            assert code is None
            kind = event.WhichOneof("payload")
            out += event.stdout.data if kind == "stdout" else b""
            err += event.stderr.data if kind == "stderr" else b""
            code = event.exit.exit_code if kind == "exit" else None
        return code, out, err


# -- the client's own flows --

def test_health(client):
    answer = client.health()
    assert answer.status == api.SERVICE_STATUS_HEALTHY and answer.version.startswith("0.1.")


def test_the_life_of_a_sandbox(client, cloud):
    made = client.create(workspace="default", name="plp-life", labels={"a": "b"}, spec=spec())
    assert made.name == "plp-life" and made.id and made.labels == {"a": "b"} and made.workspace == "default"
    assert client.wait_ready("plp-life", workspace="default", timeout_seconds=10).id == made.id
    assert client.get("plp-life", workspace="default").current_policy_version == 1
    gone = client.delete("plp-life", workspace="default")
    assert gone.outcome is openshell.DeletionOutcome.ACCEPTED and gone.sandbox_id == made.id
    client.wait_deleted("plp-life", workspace="default", expected_sandbox_id=made.id)
    assert client.delete("plp-life", workspace="default", allow_missing=True).outcome is openshell.DeletionOutcome.ALREADY_ABSENT
    assert cloud.alive() == [] and cloud.leaks() == []


def test_a_sandbox_without_anything_but_a_workspace(client):
    """The client's default: no name, no image, no policy."""
    made = client.create(workspace="default")
    assert made.name
    assert client.delete(made.name, workspace="default").outcome in (1, 2)


def test_list_selects_by_label_and_pages(client, cloud):
    for n in range(5):
        cloud.plant(f"plp-{n}", labels={"plimsoll.run": "1", "n": str(n)})
    cloud.plant("other", labels={"plimsoll.run": "2"})
    pages = list(client.list(workspace="default", page_size=2, label_selector="plimsoll.run=1"))
    assert [len(p.items) for p in pages] == [2, 2, 1]
    assert {s.name for p in pages for s in p.items} == {f"plp-{n}" for n in range(5)}
    assert [s.name for s in client.list_all(workspace="default", label_selector="plimsoll.run=1,n=3")] == ["plp-3"]
    assert len(client.list_all_for_all_workspaces(page_size=4)) == 6


def test_exec_gives_output_and_exit_code(client, ready):
    r = client.exec(ready, ["sh", "-c", "echo out; echo err >&2; exit 3"], workspace="default")
    assert (r.exit_code, r.stdout, r.stderr) == (3, "out\n", "err\n")
    assert client.exec(ready, ["true"], workspace="default").exit_code == 0
    assert client.exec(ready, ["sh", "-c", "kill -9 $$"], workspace="default").exit_code == 137


def test_exec_takes_input_environment_and_workdir(client, ready):
    r = client.exec(ready, ["sh", "-c", "cat; echo $A; pwd"], workspace="default", stdin=b"in'put\n", env={"A": "it's \"$x\" `y`"}, workdir="/usr", no_login_shell=True)
    assert (r.exit_code, r.stdout) == (0, "in'put\nit's \"$x\" `y`\n/usr\n")


def test_exec_streams_in_order(client, ready):
    items = list(client.exec_stream(ready, ["sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.05; done"], workspace="default", no_login_shell=True))
    assert b"".join(i.data for i in items[:-1]) == b"1\n2\n3\n" and len(items) >= 3 and items[-1].exit_code == 0


def test_large_output_is_whole(client, ready):
    r = client.exec(ready, ["sh", "-c", "yes | head -c 3000000"], workspace="default", no_login_shell=True)
    assert r.exit_code == 0 and r.stdout == "y\n" * 1500000


def test_a_session_stops_and_starts_and_keeps_its_files(client):
    session = client.create_session(workspace="default", name="plp-session", spec=spec())
    client.wait_ready("plp-session", workspace="default", timeout_seconds=10)
    assert session.exec(["sh", "-c", "echo kept > /tmp/f"]).exit_code == 0
    assert session.stop().phase == api.SANDBOX_PHASE_STOPPED
    refused(grpc.StatusCode.FAILED_PRECONDITION, session.exec, ["true"])
    refused(grpc.StatusCode.FAILED_PRECONDITION, session.stop)
    assert client.wait_stopped("plp-session", workspace="default", timeout_seconds=5).phase == api.SANDBOX_PHASE_STOPPED
    assert session.start().phase == api.SANDBOX_PHASE_READY
    assert session.exec(["cat", "/tmp/f"]).stdout == "kept\n"
    session.delete()


def test_a_main_process_that_ends_ends_the_sandbox(client):
    client.create(workspace="default", name="plp-main", spec=spec(command=["true"]))
    wait(lambda: client.get("plp-main", workspace="default").phase == api.SANDBOX_PHASE_COMPLETED)
    assert client.get("plp-main", workspace="default").status.exit_code == 0
    client.create(workspace="default", name="plp-main2", spec=spec(command=["sh", "-c", "exit 4"]))
    wait(lambda: client.get("plp-main2", workspace="default").phase == api.SANDBOX_PHASE_ERROR)
    assert client.get("plp-main2", workspace="default").status.exit_code == 4


def test_errors_carry_their_details(client, cloud):
    error = refused(grpc.StatusCode.NOT_FOUND, client.get, "plp-none", workspace="default")
    assert isinstance(error, openshell.GatewayError)
    refused(grpc.StatusCode.NOT_FOUND, client.delete, "plp-none", workspace="default")
    refused(grpc.StatusCode.NOT_FOUND, client.get, "plp-none", workspace="elsewhere")
    client.create(workspace="default", name="plp-twice", spec=spec())
    refused(grpc.StatusCode.ALREADY_EXISTS, client.create, workspace="default", name="plp-twice", spec=spec())
    cloud.fault("GetSandbox", "status", code="RESOURCE_EXHAUSTED", message_text="slow down, 100 %", reason="RATE", retry_s=1.5)
    error = refused(grpc.StatusCode.RESOURCE_EXHAUSTED, client.get, "plp-twice", workspace="default")
    assert error.retry_delay == 1.5 and error.error_info.reason == "RATE" and error.error_info.domain == "openshell.nvidia.com"
    assert error.details() == "slow down, 100 %"


@pytest.mark.parametrize("name", ["x" * 20, "Upper", "a_b", "-a", "a--b", "a."])
def test_a_bad_name_is_an_invalid_argument(client, cloud, name):
    error = refused(grpc.StatusCode.INVALID_ARGUMENT, client.create, workspace="default", name=name)
    assert [v.field for v in error.field_violations] == ["name"]
    assert [v["what"] for v in cloud.violations()] == ["an invalid argument"]
    cloud.admin("DELETE", "violations")


def test_the_context_manager_finds_its_gateway_and_cleans_up(cloud, client, tmp_path, monkeypatch):
    folder = tmp_path / "openshell/gateways/standin"
    folder.mkdir(parents=True)
    (folder / "metadata.json").write_text(json.dumps({"gateway_endpoint": cloud.ready["url"]}))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with openshell.Sandbox(workspace="default", cluster="standin", spec=spec()) as sandbox:
        assert sandbox.exec(["echo", "hi"]).stdout == "hi\n"
        name = sandbox.sandbox.name
    refused(grpc.StatusCode.NOT_FOUND, client.get, name, workspace="default")


# -- TLS --

@pytest.fixture(scope="module")
def secure():
    with clouds.OpenshellStandin("--tls-dir", "", "--exec", "canned") as c:
        yield c
    assert not pathlib.Path(c.ready["tls_dir"]).exists()


def config_of(secure, who="client", ca="ca.crt"):
    folder = pathlib.Path(secure.ready["tls_dir"])
    return openshell.TlsConfig(folder / ca, folder / f"{who}.crt" if who else None, folder / f"{who}.key" if who else None)


def test_a_client_certificate_opens_the_gateway(secure):
    with openshell.SandboxClient(f"127.0.0.1:{secure.ready['port']}", tls=config_of(secure)) as c:
        assert c.health().status == api.SERVICE_STATUS_HEALTHY
        c.create(workspace="default", name="plp-tls", spec=spec())
        secure.tune(ready_after_polls=0)
        wait(lambda: c.get("plp-tls", workspace="default").phase == api.SANDBOX_PHASE_READY)
        assert c.exec("plp-tls", ["node", "-"], workspace="default", stdin=b"console.log(6)").stdout == "6\n"
        c.delete("plp-tls", workspace="default")
    assert secure.violations() == []


@pytest.mark.parametrize(("who", "ca"), [(None, "ca.crt"), ("stranger", "ca.crt"), ("client", "other-ca.crt")])
def test_no_other_certificate_does(secure, who, ca):
    with openshell.SandboxClient(f"127.0.0.1:{secure.ready['port']}", tls=config_of(secure, who, ca), timeout=5) as c:
        refused(grpc.StatusCode.UNAVAILABLE, c.health)


def test_bearer_tokens(tmp_path):
    with clouds.OpenshellStandin("--bearer", "right", "--exec", "canned") as cloud:
        for token, code in (("right", None), ("wrong", grpc.StatusCode.UNAUTHENTICATED)):
            with openshell.SandboxClient(f"127.0.0.1:{cloud.ready['port']}", bearer_token=token) as c:
                assert c.health().version
                c.list_all(workspace="default") if code is None else refused(code, c.list_all, workspace="default")


# -- what the client has no method for: its messages over grpcio --

def test_gateway_info_names_one_docker_driver(gateway):
    answer = gateway.GetGatewayInfo(api.GetGatewayInfoRequest())
    driver, = answer.compute_drivers
    limits = driver.capabilities.resource_capabilities
    assert answer.gateway_version == "0.1.2-standin" and (driver.name, driver.capabilities.driver_name) == ("docker", "docker")
    assert limits.cpu.limit_supported and limits.memory.limit_supported


def test_what_was_asked_for_is_read_back(gateway, ready):
    asked = spec()
    got = gateway.GetSandbox(api.GetSandboxRequest(name=ready, workspace_scope=DEFAULT)).sandbox
    assert got.spec == asked and got.metadata.labels == {"plimsoll.run": "1"} and got.metadata.HasField("created_time")
    answer = gateway.GetSandboxConfig(config.GetSandboxConfigRequest(name=ready, workspace_scope=DEFAULT))
    assert answer.policy == POLICY and answer.policy_source == config.POLICY_SOURCE_SANDBOX and answer.configuration_admitted
    assert not answer.settings["agent_policy_proposals_enabled"].HasField("value")
    status = gateway.GetSandboxPolicyStatus(api.GetSandboxPolicyStatusRequest(sandbox=ready, workspace_scope=DEFAULT))
    assert status.revision.status == api.POLICY_STATUS_LOADED and status.revision.policy_hash == answer.policy_hash


def test_a_shell_is_filled_in_where_no_command_was_given(gateway, client):
    client.create(workspace="default", name="plp-shell", spec=spec(command=()))
    got = gateway.GetSandbox(api.GetSandboxRequest(name="plp-shell", workspace_scope=DEFAULT)).sandbox.spec
    assert list(got.command) == ["/bin/bash", "-l"] and got.tty


# hashes reported by a gateway of release 0.1.2 (spec 3.4)
@pytest.mark.parametrize(("expected", "include", "ro", "rw", "compatibility", "process"), [
    ("d1c56801c3fcf0b1d8473339f3b625b1cbf43d5401c1268026551dd28a39d871", False, "/bin /usr /lib /etc /proc /dev/urandom /sys/fs/cgroup /runner.mjs", "/tmp /dev/null",
     "hard_requirement", None),
    ("a45a8ff3564f00ae26cbd66f1131f37eedd8b54a66fbfec103d65a204c19c6e8", True, "/bin /usr /lib /proc /dev/urandom /etc /var/log", "/tmp /dev/null", "best_effort", None),
    ("cb87d045a485ed8bbbd10c0580ef19f61a72312572b48664000d6c68014653bc", False, "/bin /usr /lib /proc /dev/urandom /etc /runner.mjs", "/sandbox/work /tmp /dev/null",
     "best_effort", None),
    ("a407726e71fc08e1452222192dafdfffe9676ce9c3c6ff3f6e7ae1d1ffd24917", False, "/bin /usr /lib /proc /dev/urandom /etc /runner.mjs /sys/fs/cgroup",
     "/sandbox/work /tmp /dev/null", "best_effort", "1000"),
])
def test_the_policy_hash_is_a_real_gateways(gateway, client, expected, include, ro, rw, compatibility, process):
    asked = api.SandboxSpec(command=["sleep", "100"])
    policy = asked.policy
    policy.version, policy.filesystem.include_workdir, policy.landlock.compatibility = 1, include, compatibility
    policy.filesystem.read_only.extend(ro.split())
    policy.filesystem.read_write.extend(rw.split())
    if process:
        policy.process.run_as_user = policy.process.run_as_group = process
    client.create(workspace="default", name="plp-hash", spec=asked)
    assert gateway.GetSandboxConfig(config.GetSandboxConfigRequest(name="plp-hash", workspace_scope=DEFAULT)).policy_hash == expected


def test_interactive_exec_runs_both_ways_at_once(gateway, ready):
    x = Interactive(gateway, ready, ["sh", "-c", "while read a; do echo got $a; done; exit 7"])
    for word in ("one", "two"):
        x.give(word.encode() + b"\n")
        assert x.next().data == f"got {word}\n".encode()
    assert x.close().result() == (7, b"", b"")


def test_interactive_exec_of_code_on_standard_input(gateway, ready):
    assert Interactive(gateway, ready, ["node", "-"]).give(b"console.log(6 * 7)").close().result() == (0, b"42\n", b"")


def test_sixteen_mib_of_input_arrive(gateway, ready):
    data = bytes(range(256)) * 65536
    code, out, _ = Interactive(gateway, ready, ["sha256sum"]).give(data).close().result()
    assert code == 0 and out.split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_a_command_that_reads_nothing_ends_all_the_same(gateway, ready):
    assert Interactive(gateway, ready, ["sh", "-c", "exit 7"]).give(bytes(16 << 20)).close().result() == (7, b"", b"")


def test_a_terminal(gateway, ready):
    x = Interactive(gateway, ready, ["sh", "-c", "stty size; read a; echo =$a="], tty=True, cols=99, rows=33)
    out = b""
    while b"33 99" not in out:
        out += x.next().data
    code, out, err = x.give(b"typed\n").close().result()
    assert code == 0 and b"=typed=" in out and err == b""


@pytest.mark.parametrize("action", [{"type": "rst", "code": 2, "at": "inside", "message": 3}, {"type": "rst", "code": 2, "at": "between", "message": 3},
                                    {"type": "rst", "code": 2, "after_bytes": 20000}, {"type": "no-trailers", "after_bytes": 20000}, {"type": "status", "phase": "after"},
                                    {"type": "close", "after_bytes": 20000}])
def test_faults_in_the_middle_of_output_end_the_command(gateway, ready, client, cloud, action):
    """That the stand-in says nothing of tasks left over is looked at when it is stopped."""
    phase = action.pop("phase", "before")
    cloud.add_fault(method="ExecSandboxInteractive", phase=phase, action=action, times=1)
    endless = "(yes a; true) & (yes b >&2; true) & cat; wait" if phase == "before" else "seq 9 >&2; seq 9; cat"
    with pytest.raises(grpc.RpcError):
        Interactive(gateway, ready, ["sh", "-c", endless]).give(bytes(200_000)).close().result()
    wait(lambda: "yes" not in running(client, ready))


def test_cancelling_kills_the_group_but_not_what_left_it(gateway, ready, client):
    script = "setsid sleep 3001 </dev/null >/dev/null 2>&1 & sleep 3002 & echo up; sleep 3003"
    x = Interactive(gateway, ready, ["sh", "-c", script])
    assert x.next().data == b"up\n"
    wait(lambda: all(n in running(client, ready) for n in ("3001", "3002", "3003")))
    x.call.cancel()
    wait(lambda: "3003" not in running(client, ready) and "3002" not in running(client, ready))
    assert "3001" in running(client, ready)


def running(client, name):
    return client.exec(name, ["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"], workspace="default", no_login_shell=True).stdout


def test_the_gateways_own_timeout_says_124_and_leaves_the_command_running(gateway, ready, client):
    assert Interactive(gateway, ready, ["sleep", "3004"], timeout=1).close().result() == (124, b"", b"")
    assert "sleep 3004" in running(client, ready)


def test_cancelling_the_plain_exec_leaves_the_command_running(client, ready, gateway):
    call = gateway.ExecSandbox(api.ExecSandboxRequest(sandbox=ready, command=["sh", "-c", "echo up; sleep 3005"], workspace_scope=DEFAULT, no_login_shell=True))
    assert next(call).stdout.data == b"up\n"
    call.cancel()
    time.sleep(0.3)
    assert "sleep 3005" in running(client, ready)


def test_deleting_ends_a_running_exec_as_unavailable(client, ready, gateway):
    x = Interactive(gateway, ready, ["sh", "-c", "echo up; sleep 3006"])
    assert x.next().data == b"up\n"
    client.delete(ready, workspace="default")
    assert refused(grpc.StatusCode.UNAVAILABLE, x.result)


def test_nothing_leaves_a_sandbox(gateway, ready, walled):
    code, out, _ = Interactive(gateway, ready, ["sh", "-c", "cat /proc/net/dev | tail -n +3 | cut -d: -f1; cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/cpu.max"]).close().result()
    assert code == 0 and out.decode().split() == ["lo", str(256 << 20), "50000", "100000"]


PLACES = "/ /tmp /home /home/user /root /var /var/tmp /dev /dev/shm /usr /usr/lib /etc /opt /run /srv /mnt /proc /sys"


def test_the_policy_holds_commands_to_its_paths(gateway, ready, cloud, walled):
    if not cloud.info()["landlock"]:
        pytest.skip("this kernel has no Landlock")
    script = f"for d in {PLACES}; do (echo x > $d/probe-$$) 2>/dev/null && echo $d; done; echo x > /dev/null && echo null; cat /etc/hostname /dev/zero /sys/kernel/x 2>&1 | wc -l"
    code, out, _ = Interactive(gateway, ready, ["sh", "-c", script]).close().result()
    assert code == 0 and out.decode().split() == ["/tmp", "null", "3"]


def test_a_disk_cap_is_a_tmpfs_from_which_nothing_runs(client, gateway, walled):
    asked = spec()
    asked.template.driver_config.update({"docker": {"mounts": [{"type": "tmpfs", "target": "/tmp", "size_bytes": 8 << 20, "options": ["noexec"]}]}})
    client.create(workspace="default", name="plp-disk", spec=asked)
    wait(lambda: client.get("plp-disk", workspace="default").phase == api.SANDBOX_PHASE_READY)
    script = "grep ' /tmp ' /proc/mounts | tail -n 1; cp /bin/true /tmp/t && /tmp/t; echo $?; yes | dd of=/tmp/f bs=1M count=9 iflag=fullblock 2>/dev/null; echo $?"
    code, out, _ = Interactive(gateway, "plp-disk", ["sh", "-c", script]).close().result()
    mount, ran, wrote = out.decode().splitlines()
    assert code == 0 and mount.split()[2] == "tmpfs" and {"noexec", "nosuid", "nodev", "size=8192k"} <= set(mount.split()[3].split(",")) and ran == "126" and wrote != "0"


@pytest.mark.parametrize(("what", "script", "expected"), [
    ("memory-max", "cat /sys/fs/cgroup/memory.max", "max"),
    ("cpu-max", "cat /sys/fs/cgroup/cpu.max", "max 100000"),
    ("net", "tail -n +3 /proc/net/dev | wc -l", None),
    ("writable", "echo x > /var/tmp/x && echo written", "written"),
])
def test_a_place_that_is_not_what_was_asked_for(client, gateway, cloud, walled, what, script, expected):
    cloud.fault("CreateSandbox", "box", what=what)
    client.create(workspace="default", name="plp-box", spec=spec())
    wait(lambda: client.get("plp-box", workspace="default").phase == api.SANDBOX_PHASE_READY)
    code, out, _ = Interactive(gateway, "plp-box", ["sh", "-c", script]).close().result()
    assert code == 0 and (out.decode().strip() == expected if expected else int(out) > 1 or pathlib.Path("/proc/net/dev").read_text().count(":") == 1)


def test_watch_tells_of_phases(gateway, cloud, client):
    cloud.tune(ready_after_polls=2)
    client.create(workspace="default", name="plp-watch", spec=spec())
    phases = [e.sandbox.status.phase for e in gateway.WatchSandbox(api.WatchSandboxRequest(sandbox="plp-watch", workspace_scope=DEFAULT, follow_status=True, stop_on_terminal=True), timeout=10)]
    assert phases[-1] == api.SANDBOX_PHASE_READY and set(phases[:-1]) <= {api.SANDBOX_PHASE_PROVISIONING}


def test_other_methods_are_unimplemented(gateway, cloud):
    refused(grpc.StatusCode.UNIMPLEMENTED, gateway.ListProviders, api.ListProvidersRequest(workspace_scope=DEFAULT))


# -- grants: ssh sessions and forwarded connections --

SERVER = "require('net').createServer(s => s.on('data', d => s.write('<' + d + '>')).on('end', () => s.end('bye'))).listen(%d, '127.0.0.1', () => console.log('ready'))"


class Forward:
    def __init__(self, gateway, sandbox, token, port=8123):
        self.input = queue.Queue()
        init = api.TcpForwardInit(sandbox=sandbox, workspace="default", authorization_token=token)
        init.tcp.host, init.tcp.port = "127.0.0.1", port
        self.input.put(api.TcpForwardFrame(init=init))
        self.call = gateway.ForwardTcp(iter(self.input.get, None), timeout=20)

    def give(self, data):
        self.input.put(api.TcpForwardFrame(data=data))

    def close(self):
        self.input.put(None)

    def rest(self):
        return b"".join(f.data for f in self.call)


@pytest.fixture
def server(gateway, ready):
    x = Interactive(gateway, ready, ["node", "-e", SERVER % 8123])
    assert x.next().data == b"ready\n"
    yield
    x.call.cancel()


def token_of(gateway, sandbox):
    return gateway.CreateSshSession(api.CreateSshSessionRequest(sandbox=sandbox, workspace_scope=DEFAULT))


def test_a_forwarded_connection(gateway, ready, server, cloud):
    session = token_of(gateway, ready)
    assert session.gateway_port == cloud.ready["port"] and session.expiration_time.seconds > time.time() + 3600
    f = Forward(gateway, ready, session.token)
    f.give(b"hello")
    assert next(f.call).data == b"<hello>"
    f.close()
    assert f.rest() == b"bye"
    assert gateway.RevokeSshSession(api.RevokeSshSessionRequest(token=session.token)).outcome == api.DELETION_OUTCOME_COMPLETED
    refused(grpc.StatusCode.NOT_FOUND, gateway.RevokeSshSession, api.RevokeSshSessionRequest(token=session.token))
    assert gateway.RevokeSshSession(api.RevokeSshSessionRequest(token=session.token, allow_missing=True)).outcome == api.DELETION_OUTCOME_ALREADY_ABSENT
    refused(grpc.StatusCode.UNAUTHENTICATED, Forward(gateway, ready, session.token).rest)
    assert cloud.state()["unrevoked"] == []


def test_three_streams_a_token(gateway, ready, server):
    token = token_of(gateway, ready).token
    live = [Forward(gateway, ready, token) for _ in range(3)]
    for f in live:
        f.give(b"x")
        assert next(f.call).data == b"<x>"
    refused(grpc.StatusCode.RESOURCE_EXHAUSTED, Forward(gateway, ready, token).rest)
    live[0].close()                 # the half-close frees the slot
    assert live[0].rest() == b"bye"
    f = Forward(gateway, ready, token)
    f.give(b"y")
    assert next(f.call).data == b"<y>"
    live[1].call.cancel()           # and so does a reset

    def again():
        f = Forward(gateway, ready, token)
        f.give(b"z")
        with contextlib.suppress(grpc.RpcError):
            return next(f.call).data == b"<z>"
    wait(again)


def test_a_port_nobody_listens_on(gateway, ready):
    refused(grpc.StatusCode.UNAVAILABLE, Forward(gateway, ready, token_of(gateway, ready).token, port=9).rest)


# -- the schema --

def test_the_specifications_tables_are_the_vendors(cloud):
    wrong, besides = schema.differences()
    assert wrong == []
    assert "Sandbox.host_key_fingerprint 6 string" in besides


def test_a_wrong_table_would_be_noticed(monkeypatch):
    monkeypatch.setitem(schema.FIELDS, api.GetSandboxRequest, "name 2 string, workspace_scope 1 WorkspaceSelector")
    monkeypatch.setitem(schema.ENUMS, api.DeletionOutcome, "UNSPECIFIED ACCEPTED COMPLETED ALREADY_ABSENT")
    assert len(schema.differences()[0]) == 3


# the encodings a backend in C is held to (spec 2.10), made by the vendor's classes
NAME = "plp-0123456789abcd"


def start_message():
    start = api.ExecSandboxRequest(sandbox=NAME, command=["node", "-"], no_login_shell=True, workspace_scope=DEFAULT)
    start.execution_timeout.seconds = 15
    return api.ExecSandboxInput(start=start)


@pytest.mark.parametrize(("message", "expected"), [
    (DEFAULT, "0a0764656661756c74"),
    (api.GetSandboxRequest(name=NAME, workspace_scope=DEFAULT), "0a12706c702d303132333435363738396162636412090a0764656661756c74"),
    (api.DeleteSandboxRequest(name=NAME, workspace_scope=DEFAULT, allow_missing=True), "0a12706c702d303132333435363738396162636412090a0764656661756c741801"),
    (api.ListSandboxesRequest(page_size=100, label_selector="plimsoll.run=1", workspace_scope=DEFAULT), "08641a0e706c696d736f6c6c2e72756e3d3122090a0764656661756c74"),
    (config.GetSandboxConfigRequest(name=NAME, workspace_scope=DEFAULT), "0a12706c702d30313233343536373839616263641a090a0764656661756c74"),
    (start_message(), "0a2f0a12706c702d303132333435363738396162636412046e6f646512012d500162090a0764656661756c74ca0602080f"),
    (api.ExecSandboxInput(stdin=b"1"), "120131"),
    (api.ExecSandboxEvent(stdout=api.ExecSandboxStdout(data=b"hi")), "0a040a026869"),
    (api.ExecSandboxEvent(exit=api.ExecSandboxExit()), "1a00"),
    (api.ExecSandboxEvent(exit=api.ExecSandboxExit(exit_code=7)), "1a020807"),
    (api.ExecSandboxEvent(exit=api.ExecSandboxExit(exit_code=-1)), "1a0b08ffffffffffffffffff01"),
])
def test_encodings(message, expected):
    assert message.SerializeToString(deterministic=True).hex() == expected
