"""The local walls' figures: the same guest images on the bare Engine and behind the gateway, in turn, in one run. Both sides do all of
their work: nothing is kept, nothing is reused. Needs an Engine with the guest images (`make images`)."""
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import secrets
import socket
import time

import rig

SOCKET = os.environ.get("SANDBOX_DOCKER_SOCKET", "/var/run/docker.sock").removeprefix("unix://")
IMAGE = os.environ.get("SANDBOX_DOCKER_IMAGE", "plimsoll/snippet:latest")
API = "/v1.41"
# What a run of the gateway gets by default, as the Engine is told it.
HOST = {"NetworkMode": "none", "ReadonlyRootfs": True, "CapDrop": ["ALL"], "SecurityOpt": ["no-new-privileges"], "PidsLimit": 256,
        "Memory": 256 << 20, "MemorySwap": 256 << 20, "NanoCpus": 10**9, "LogConfig": {"Type": "none"}, "IpcMode": "private",
        "Tmpfs": {"/tmp": "rw,noexec,nosuid,nodev,size=16m,mode=1777", "/dev/shm": "rw,noexec,nosuid,nodev,size=16m,mode=1777"}}
SNIPPET = {"protocol": 4, "javascript": {"code": "console.log(6*7)"}}
WALLS = {"docker": ("runc", 25, 90), "gvisor": ("runsc", 45, 150)}  # runtime; targets in ms: a pool hit, one of a burst of ten


class _Unix(http.client.HTTPConnection):
    def __init__(self):
        super().__init__("engine", timeout=60)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(SOCKET)


class Engine:
    """The bare Engine, one connection a thread."""

    def __init__(self):
        self.connection = _Unix()

    def call(self, method, path, body=None):
        self.connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        data = answer.read()
        if answer.status >= 400:
            raise SystemExit(f"bench: the Engine answered {answer.status} to {method} {path}: {data[:200]!r}")
        return json.loads(data) if data and answer.getheader("Content-Type", "").startswith("application/json") else data

    def create(self, runtime, entrypoint, command, **more):
        body = {"Image": IMAGE, "Entrypoint": entrypoint, "Cmd": command, "User": "61000:61000", "Labels": {"plimsoll.bench": "1"},
                "HostConfig": {**HOST, "Runtime": runtime}, **more}
        return self.call("POST", f"{API}/containers/create?name=plimsoll-bench-{secrets.token_hex(6)}", body)["Id"]

    def start(self, container):
        self.call("POST", f"{API}/containers/{container}/start")

    def wait(self, container):
        return self.call("POST", f"{API}/containers/{container}/wait")["StatusCode"]

    def remove(self, container):
        self.call("DELETE", f"{API}/containers/{container}?force=1&v=1")

    def names(self):
        return [n for c in self.call("GET", f"{API}/containers/json?all=1") for n in c["Names"]]


def is_served():
    """Why there is nothing to measure here; None when there is."""
    with socket.socket(socket.AF_UNIX) as s:
        if s.connect_ex(SOCKET) != 0:
            return f"no Engine at {SOCKET}; set SANDBOX_DOCKER_SOCKET"
    engine = Engine()
    engine.connection.request("GET", f"{API}/images/{IMAGE}/json")
    return None if engine.connection.getresponse().status == 200 else f"no image {IMAGE}; `make images` builds it"


def gateway(wall, **settings):
    return rig.Gateway(SANDBOX_PROVIDER=wall, SANDBOX_DOCKER_SOCKET=SOCKET, SANDBOX_DOCKER_PROJECT_POOL="0",
                       SANDBOX_MAX_CONCURRENT="16", PLIMSOLL_PROOF_INTERVAL="4m", **settings)


refused = []  # runs that were refused without running and sent again: the disk kept the record store waiting, or sandboxes did not start in time


def ask(gw):
    """One run; its time in ms, repeats of a refused one included."""
    began = time.perf_counter()
    answer = json.loads(gw.post("Run", SNIPPET))
    while answer.get("code") in ("unavailable", "resource_exhausted") and any(d["type"] == "plimsoll.v1.NotDispatched" for d in answer.get("details", [])):
        refused.append(answer["message"])
        if len(refused) > 50:
            raise SystemExit(f"bench: too many runs were refused: {refused[-1]}")
        time.sleep(0.2)
        answer = json.loads(gw.post("Run", SNIPPET))
    if answer.get("javascript", {}).get("stdout") != "NDIK":  # "42\n"
        raise SystemExit(f"bench: a run was not answered: {str(answer)[:300]}")
    return (time.perf_counter() - began) * 1000


def processes():
    """Names of what may be left of a sandbox on this machine."""
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit():
                name = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")[0].decode("ascii", "replace").split("/")[-1]
                if name.startswith(("containerd-shim", "runsc", "runner")):
                    found.append(name)
    return found


def wait_pool(gw, size, wall):
    """Until `size` sandboxes stand ready, by the gauge of /v1 or, failing that, by the Engine's own list."""
    engine = Engine()

    def ready():
        return sum(c["State"] == "running" and c["Labels"].get("sbx.role") == "pool" for c in engine.call("GET", f"{API}/containers/json?all=1")) >= size
    rig.wait_for(ready, f"{size} sandboxes of {wall} to stand ready")
    time.sleep(0.5)  # the last one's interpreter has started when its cgroup is calm; READY is not visible from outside


def cold_bare(engine, runtime):
    began = time.perf_counter()
    container = engine.create(runtime, ["/usr/local/bin/node"], ["-e", SNIPPET["javascript"]["code"]])
    engine.start(container)
    status = engine.wait(container)
    took = (time.perf_counter() - began) * 1000
    engine.remove(container)
    if status != 0:
        raise SystemExit(f"bench: the bare Engine's container ended with {status}")
    return took


def refills(runtime, seconds, workers, is_booted):
    """Fresh sandboxes a second on the bare Engine: created, started, removed; `is_booted`: with the interpreter up in between, as one that
    is to be given a run has it (here it says so by ending)."""
    end = time.perf_counter() + seconds

    def work(_):
        engine, count = Engine(), 0
        while time.perf_counter() < end:
            if is_booted:
                container = engine.create(runtime, ["/usr/local/bin/node"], ["-e", SNIPPET["javascript"]["code"]])
            else:
                container = engine.create(runtime, ["/opt/sbx/runner"], ["--mode=run", "--preboot=node"], OpenStdin=True, StdinOnce=True)
            engine.start(container)
            if is_booted and engine.wait(container) != 0:
                raise SystemExit("bench: the bare Engine's container failed")
            engine.remove(container)
            count += 1
        return count
    began = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        count = sum(pool.map(work, range(workers)))
    return count / (time.perf_counter() - began)


def runs(gw, seconds, workers):
    """Runs a second with `workers` callers that never pause."""
    end = time.perf_counter() + seconds

    def work(_):
        count = 0
        while time.perf_counter() < end:
            ask(gw)
            count += 1
        return count
    began = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        count = sum(pool.map(work, range(workers)))
    return count / (time.perf_counter() - began)


def hits(wall, rounds, quiet, row):
    runtime, target, _ = WALLS[wall]
    seen = []
    with gateway(wall, SANDBOX_DOCKER_POOL="4") as gw:
        for _ in range(rounds):
            wait_pool(gw, 4, wall)
            quiet.wait()
            seen += [ask(gw) for _ in range(2)]
    row(f"{wall} ({runtime}): a pool hit end to end, p50 ms", f"{rig.median(seen):.1f} of {min(seen):.1f} to {max(seen):.1f}", f"<= {target}",
        rig.median(seen) <= target)


def cold(wall, rounds, quiet, row):
    runtime = WALLS[wall][0]
    engine, ours, bare = Engine(), [], []
    with gateway(wall, SANDBOX_DOCKER_POOL="0") as gw:
        ask(gw)
        for _ in range(rounds):
            quiet.wait()
            bare.append(cold_bare(engine, runtime))
            quiet.wait()
            ours.append(ask(gw))
    ratio = rig.median(ours) / rig.median(bare)
    row(f"{wall}: cold path : bare Engine create, start, wait", f"{ratio:.2f}", "<= 1.15", ratio <= 1.15,
        f"p50 {rig.median(ours):.0f} ms, bare {rig.median(bare):.0f} ms")


def sustained(wall, rounds, seconds, quiet, row):
    runtime = WALLS[wall][0]
    ours, bare, unbooted = [], {4: [], 8: []}, []
    with gateway(wall, SANDBOX_DOCKER_POOL="4") as gw:
        for _ in range(rounds):
            quiet.wait()
            for workers, seen in bare.items():
                seen.append(refills(runtime, seconds, workers, True))
            unbooted.append(refills(runtime, seconds, 4, False))
            wait_pool(gw, 4, wall)
            quiet.wait()
            ours.append(runs(gw, seconds, 8))
    best = max(bare.values(), key=rig.median)
    ratio = rig.median(ours) / rig.median(best)
    row(f"{wall}: sustained fresh runs : what the bare Engine refills", f"{ratio:.2f}", ">= 0.9", ratio >= 0.9,
        f"{rig.median(ours):.1f} runs/s ({min(ours):.1f} to {max(ours):.1f}), bare {rig.median(best):.1f}/s ({min(best):.1f} to {max(best):.1f}); "
        f"{rig.median(unbooted):.1f}/s when no interpreter comes up in them")


def burst(wall, rounds, quiet, row):
    target = WALLS[wall][2]
    seen = []
    with gateway(wall, SANDBOX_DOCKER_POOL="10") as gw, concurrent.futures.ThreadPoolExecutor(10) as pool:
        for _ in range(rounds):
            wait_pool(gw, 10, wall)
            quiet.wait()
            seen += pool.map(lambda _: ask(gw), range(10))
    row(f"{wall}: burst of ten, p50 ms", f"{rig.median(seen):.0f} of {min(seen):.0f} to {max(seen):.0f}", f"<= {target}", rig.median(seen) <= target)


def role_bytes(gw, wall):
    return next(rig.private_bytes(p) for p, n in gw.pids().items() if n == f"plimsolld-backend-{wall}")


def pooled_memory(wall, count, row):
    with gateway(wall, SANDBOX_DOCKER_POOL="0") as gw:
        ask(gw)
        before = role_bytes(gw, wall)
    with gateway(wall, SANDBOX_DOCKER_POOL=str(count)) as gw:
        wait_pool(gw, count, wall)
        after = role_bytes(gw, wall)
    each = max(0, after - before) / count / 1024
    row(f"{wall}: the gateway's memory a pooled sandbox, KiB ({count} pooled)", f"{each:.1f}", "<= 32", each <= 32)


def growth(wall, count, row):
    """`count` runs on one gateway: memory after the first tenth against the end, and what is left on the machine."""
    before_left, engine = sorted(processes()), Engine()
    with gateway(wall, SANDBOX_DOCKER_POOL="4") as gw, concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: ask(gw), range(max(20, count // 10))))
        before = gw.memory()
        list(pool.map(lambda _: ask(gw), range(count - max(20, count // 10))))
        after = gw.memory()
    rig.wait_for(lambda: not [n for n in engine.names() if n.startswith("/plimsoll-")], "the sandboxes to be gone")
    left = list(processes())
    for name in before_left:
        with contextlib.suppress(ValueError):
            left.remove(name)
    row(f"{wall}: growth of the gateway's memory over {count} runs, KiB", f"{(after - before) / 1024:.0f}", "<= 1024", after - before <= 1 << 20,
        f"{after / 1024:.0f} KiB at the end")
    row(f"{wall}: containers, shims, runtimes left after them", str(len(left)), "0", not left, ", ".join(sorted(set(left))))


def measure(row, quiet, quick):
    reason = is_served()
    if reason:
        print(f"walls: not measured: {reason}", flush=True)
        return
    for wall in os.environ.get("BENCH_WALLS", "docker gvisor").split():
        hits(wall, 4 if quick else 12, quiet, row)
        cold(wall, 4 if quick else 15, quiet, row)
        burst(wall, 1 if quick else 5, quiet, row)
        sustained(wall, 1 if quick else 7, 5 if quick else 10, quiet, row)
        pooled_memory(wall, 8 if quick else 24, row)
        growth(wall, 100 if quick else 2000, row)
    row("runs refused without running and sent again", str(len(refused)), "", None)
