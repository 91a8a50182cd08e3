"""One command in a container locked down as a guest's, without a gateway: for the tests of what is inside the images."""
import json
import pathlib
import struct

import gateway as g

PROFILE = pathlib.Path(g.ROOT) / "backends/docker/seccomp.json"
UID = 61000


def demultiplexed(data):
    """(stdout, stderr) of the Engine's raw stream."""
    streams = {1: b"", 2: b""}
    while data:
        kind, size = struct.unpack(">BxxxI", data[:8])
        streams[kind] += data[8:8 + size]
        data = data[8 + size:]
    return streams[1].decode(errors="replace"), streams[2].decode(errors="replace")


def run(api, image, command, runtime="runc", profile=None, binds=(), has_mounts=True, seconds=120):
    """(exit status, stdout, stderr). profile: seccomp text, "unconfined", or None for the Engine's own."""
    noexec = "rw,noexec,nosuid,nodev,mode=1777,size="
    status, body = api.call("POST", "/containers/create", {
        "Image": image, "Entrypoint": list(command[:1]), "Cmd": list(command[1:]), "User": f"{UID}:{UID}", "NetworkDisabled": True,
        "HostConfig": {"Runtime": runtime, "NetworkMode": "none", "ReadonlyRootfs": True, "CapDrop": ["ALL"], "PidsLimit": 256,
                       "SecurityOpt": ["no-new-privileges"] + ([f"seccomp={profile}"] if profile and runtime == "runc" else []),
                       "Memory": 512 << 20, "MemorySwap": 512 << 20, "Binds": list(binds), "IpcMode": "private",
                       "Tmpfs": {"/tmp": noexec + "16m", "/dev/shm": noexec + "16m", "/work": noexec + "128m"} if has_mounts else {},
                       "Ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}, {"Name": "nofile", "Soft": 4096, "Hard": 4096}],
                       "LogConfig": {"Type": "json-file"}}})
    assert status == 201, body
    container = body["Id"]
    try:
        api.start(container)
        status, body = api.call("POST", f"/containers/{container}/wait", timeout=seconds)
        assert status == 200, body
        status, log = api.call("GET", f"/containers/{container}/logs?stdout=1&stderr=1")
        assert status == 200, log
        return json.loads(body)["StatusCode"] if isinstance(body, bytes) else body["StatusCode"], *demultiplexed(log)
    finally:
        api.remove(container)


def expect(api, image, command, **kwargs):
    """stdout of a command that has to succeed."""
    status, out, err = run(api, image, command, **kwargs)
    assert status == 0, f"{image} {command}: {status}\n{out[-2000:]}\n{err[-2000:]}"
    return out
