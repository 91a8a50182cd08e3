"""Docker Engines for the tests: one shared by every worker of a pytest session, engines of a test's own that may be killed, and a small client.

The shared engine starts at its first use, under a file lock, and ends with the process that started the session (the workers' parent): by its
PID, with its shims, control groups, mounts and directory. The engine of a session that was killed is cleaned up by the next one.

PLIMSOLL_TEST_ENGINE=/path/docker.sock uses an engine that runs already, and leaves it running.
"""
import contextlib
import fcntl
import http.client
import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import socket
import subprocess
import time
import urllib.parse

import pytest

import gateway as g

PREFIX = "ple-"                       # of the folders of engines, in /tmp: a socket's path has 107 bytes
SESSION = "PLIMSOLL_TEST_SESSION"     # the folder of this pytest session's engine, for the workers
GIVEN = "PLIMSOLL_TEST_ENGINE"
LABEL = "sbx.gateway"
RUNTIMES = {"runc": {"path": "/usr/sbin/runc"},
            "runsc": {"path": "/usr/bin/runsc", "runtimeArgs": ["--network=none", "--platform=ptrace", "--fsgofer-host-uds"]}}
PROGRAMS = ("dockerd", "containerd", "containerd-shim-runc-v2", "runc", "runsc", "mmdebstrap")
UP_S, DOWN_S = 60, 30
IMAGES_S = 900        # the first build of the guest images fetches packages
IMAGES = ("snippet", "project", "python", "wasm-cc")
CI = os.environ.get("CI") == "true"


# -- what must be there --


def missing():
    """Why no engine can be had here, or None."""
    if os.environ.get(GIVEN):
        return None
    if os.geteuid() != 0:
        return "a Docker Engine of the tests' own needs root"
    absent = [p for p in PROGRAMS if shutil.which(p, path=os.environ["PATH"] + ":/usr/sbin:/sbin") is None]
    return f"not installed: {', '.join(absent)} (packages/docker.txt)" if absent else None


def require():
    """A missing part is a failure on a continuous-integration machine, and a skip with its reason elsewhere."""
    reason = missing()
    if reason is not None:
        assert not CI, reason
        pytest.skip(reason)


# -- the API --


class _Connection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("engine", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Api:
    """Calls to an Engine at a Unix socket, with a connection each."""

    def __init__(self, path):
        self.path = str(path)

    def call(self, method, path, body=None, timeout=60):
        """(status, parsed or raw body)."""
        connection = _Connection(self.path, timeout)
        try:
            data = json.dumps(body).encode() if body is not None else None
            connection.request(method, path, data, {"Content-Type": "application/json"} if data else {})
            answer = connection.getresponse()
            data = answer.read()
            is_json = (answer.getheader("Content-Type") or "").startswith("application/json")
            return answer.status, json.loads(data) if is_json and data else data
        finally:
            connection.close()

    def get(self, path, **more):
        status, body = self.call("GET", path, **more)
        assert status == 200, (path, status, body)
        return body

    def is_up(self):
        try:
            return self.call("GET", "/_ping", timeout=5)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def containers(self, label=LABEL):
        """All containers with the label (None = every one), running or not."""
        filters = "&filters=" + urllib.parse.quote(json.dumps({"label": [label]})) if label else ""
        listed = self.get("/containers/json?all=1" + filters)
        # An Engine 20.10 may go on listing a container, without a name, that it removed while it noted its end: there is none of that ID.
        return [c for c in listed if c["Names"] or self.inspect(c["Id"]) is not None]

    def inspect(self, container):
        """None when it is not there."""
        status, body = self.call("GET", f"/containers/{container}/json")
        return body if status == 200 else None

    def image(self, ref):
        status, body = self.call("GET", f"/images/{ref}/json")
        return body if status == 200 else None

    def remove(self, container):
        self.call("POST", f"/containers/{container}/unpause")  # a paused container under gVisor is not removed cleanly
        self.call("DELETE", f"/containers/{container}?force=1&v=1")

    def create(self, image, command, name=None, labels=None, **host):
        """A container that is none of the gateway's; its ID."""
        status, body = self.call("POST", "/containers/create" + (f"?name={name}" if name else ""), {
            "Image": image, "Entrypoint": command[:1], "Cmd": command[1:], "User": "0:0", "Labels": labels or {},
            "HostConfig": {"NetworkMode": "none", **host}})
        assert status == 201, body
        return body["Id"]

    def start(self, container):
        status, body = self.call("POST", f"/containers/{container}/start")
        assert status in (204, 304), body


# -- an engine --


def _mounts_below(folder):
    """Mount points in a folder, the deepest first."""
    found = []
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        at = line.split()[4].encode().decode("unicode_escape")
        if at == str(folder) or at.startswith(str(folder) + "/"):
            found.append(at)
    return sorted(found, key=len, reverse=True)


def _group_folders(group):
    """The folders of a control group, in whichever hierarchies are mounted."""
    root = pathlib.Path("/sys/fs/cgroup")
    return [d for d in [root / group, *(h / group for h in root.iterdir() if h.is_dir())] if d.is_dir()]


def members(group):
    """The processes of a control group and those below it."""
    pids = set()
    for folder in _group_folders(group):
        # os.walk passes over what is removed under it: groups end as containers do
        for below, _, files in os.walk(folder):
            if "cgroup.procs" in files:
                with contextlib.suppress(OSError):
                    pids.update(int(p) for p in pathlib.Path(below, "cgroup.procs").read_text().split())
    return pids


def _end(pids, number=signal.SIGKILL):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def mount_control_groups():
    """As the engine's own start script does where no init system did it."""
    root = pathlib.Path("/sys/fs/cgroup")
    if any(" - cgroup" in line for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()):
        return
    if subprocess.run(["mount", "-t", "cgroup2", "cgroup2", str(root)], capture_output=True).returncode == 0:
        if "memory" in (root / "cgroup.controllers").read_text().split():
            return
        subprocess.run(["umount", str(root)], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755", "cgroup", str(root)], check=True)
    for line in pathlib.Path("/proc/cgroups").read_text().splitlines()[1:]:
        name, _, _, enabled = line.split()
        if enabled == "1":
            (root / name).mkdir(exist_ok=True)
            subprocess.run(["mount", "-t", "cgroup", "-o", name, "cgroup", str(root / name)], capture_output=True)


def _shims(is_ours):
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, ValueError):
                words = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes().decode().split("\0")
                if "containerd-shim" in words[0] and is_ours(words):
                    found[words[words.index("-id") + 1]] = int(entry)
    return found


class Engine(Api):
    """A dockerd with its own folder, containerd namespace and control group. It outlives the process that started it, if it must."""

    def __init__(self, home):
        self.home = pathlib.Path(home)
        self.group = self.home.name
        super().__init__(self.home / "docker.sock")

    # start and stop

    def start_engine(self):
        mount_control_groups()
        (self.home / "daemon.json").write_text(json.dumps({"runtimes": {"runsc": RUNTIMES["runsc"]}}))
        environment = dict(os.environ, PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        with open(self.home / "log", "ab") as log:
            self.process = subprocess.Popen(
                ["dockerd", "--data-root", str(self.home / "data"), "--exec-root", str(self.home / "exec"), "-H", f"unix://{self.path}",
                 "--pidfile", str(self.home / "pid"), "--config-file", str(self.home / "daemon.json"), "--bridge", "none",
                 "--iptables=false", "--ip6tables=false", "--cgroup-parent", "/" + self.group, "--containerd-namespace", self.group,
                 "--containerd-plugins-namespace", self.group + "-plugins", "--shutdown-timeout", "2"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd="/", start_new_session=True)
        g.wait_for(lambda: self._is_starting() and self.is_up(), "dockerd to answer", UP_S)
        return self

    def _is_starting(self):
        assert self.process.poll() is None, f"dockerd ended at its start:\n{self.log()[-4000:]}"
        return True

    def log(self):
        with contextlib.suppress(OSError):
            return (self.home / "log").read_text(errors="replace")
        return ""

    @property
    def pid(self):
        """Of the dockerd; None when there is none."""
        with contextlib.suppress(OSError, ValueError):
            pid = int((self.home / "pid").read_text())
            command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            if str(self.home) in command and g.is_alive(pid):
                return pid
        return None

    def _own_processes(self):
        """The engine's processes, and those of its containers."""
        ours = set()
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with contextlib.suppress(OSError):
                    words = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
                    if any(str(self.home).encode() in word for word in words) or self._is_shim(words):
                        ours.add(int(entry))
        ours.discard(os.getpid())
        return {pid for pid in ours | members(self.group) if g.is_alive(pid)}

    def _is_shim(self, words):
        return b"containerd-shim" in words[0] and self.group.encode() in words

    def shims(self):
        """{container ID: pid} of the shims of this engine."""
        return _shims(lambda words: self.group in words)

    def stop_engine(self, is_kind=True):
        """Ends dockerd by its PID and whatever it left running."""
        pid = self.pid
        containerd = [p for p in self._own_processes() if g.name_of(p).endswith("containerd")]
        if pid is not None:
            _end([pid], signal.SIGCONT)
            if is_kind:
                _end([pid], signal.SIGTERM)
                with contextlib.suppress(AssertionError):
                    g.wait_for(lambda: not g.is_alive(pid), "dockerd to end", DOWN_S)
            _end([pid])
        process = getattr(self, "process", None)
        if process is not None:
            process.wait(DOWN_S)
        # Its containerd dies with it. A dockerd started before that one is reaped takes it for a living one, and waits for it in vain.
        g.wait_for(lambda: not any(os.path.exists(f"/proc/{p}") for p in containerd), "containerd to be reaped", DOWN_S)

    def kill_engine(self):
        """kill -9: its containers go on without it."""
        self.stop_engine(is_kind=False)

    def restart_engine(self):
        self.stop_engine()
        return self.start_engine()

    @contextlib.contextmanager
    def stopped(self):
        """SIGSTOP: it takes connections and answers none."""
        pid = self.pid
        _end([pid], signal.SIGSTOP)
        try:
            yield
        finally:
            _end([pid], signal.SIGCONT)

    def remove_all(self):
        """The engine and every trace of it. For a stale one too."""
        if self.pid is not None and self.is_up():
            with contextlib.suppress(Exception):
                for container in self.containers(None):
                    self.remove(container["Id"])
        self.stop_engine()
        end = time.monotonic() + DOWN_S
        while (rest := self._own_processes()) and time.monotonic() < end:
            _end(rest)
            time.sleep(0.05)
        for point in _mounts_below(self.home):
            subprocess.run(["umount", "-l", point], capture_output=True)
        for folder in _group_folders(self.group):
            for below in sorted([folder, *(d for d in folder.rglob("*") if d.is_dir())], key=lambda d: -len(str(d))):
                with contextlib.suppress(OSError):
                    below.rmdir()
        shutil.rmtree(self.home, ignore_errors=True)
        assert not self.home.exists() and not rest, (rest, list(self.home.rglob("*"))[:10])


class GivenEngine(Api):
    """An engine somebody else runs. Its shims are known by the folder of its socket."""

    def shims(self):
        return _shims(lambda words: any(w.startswith(os.path.dirname(self.path) + "/") for w in words))

    def log(self):
        return ""


# -- one for a session --


def _owner_is_alive(home):
    with contextlib.suppress(OSError, ValueError):
        pid, started = (home / "owner").read_text().split()
        return g.is_alive(int(pid), int(started))
    # being made, or by somebody who died while making it
    with contextlib.suppress(OSError):
        return time.time() - home.stat().st_mtime < 60
    return True


def _new_home():
    # the name is a containerd namespace too, where a word neither starts nor ends with the underscores of mkdtemp
    home = pathlib.Path("/tmp") / (PREFIX + secrets.token_hex(4))
    home.mkdir(0o700)
    home.chmod(0o755)
    part = home / "owner.part"
    part.write_text(f"{os.getpid()} {g._stat(os.getpid())[3]}")
    part.rename(home / "owner")
    return home


def clean_stale():
    """Engines of sessions that were killed."""
    if os.geteuid() == 0:
        for home in pathlib.Path("/tmp").glob(PREFIX + "*"):
            if home.is_dir() and not _owner_is_alive(home):
                Engine(home).remove_all()


def session_begin():
    """In the process that starts the workers: the folder the session's engine will have, if any test wants one."""
    if SESSION not in os.environ and not os.environ.get(GIVEN) and missing() is None:
        clean_stale()
        os.environ[SESSION] = str(_new_home())
        return pathlib.Path(os.environ[SESSION])
    return None


def session_end(home):
    if home is not None:
        Engine(home).remove_all()
        os.environ.pop(SESSION, None)


def make_images(api):
    """Builds the guest images, or takes them from the build folder, and imports them."""
    _about_images(api, "make", "--no-print-directory", "images", "IMAGES=" + " ".join(IMAGES))


def check_images(api):
    """Stale ones are refused: what they would show is of another tree."""
    _about_images(api, "backends/guest/images/check", *IMAGES)


def _about_images(api, *command):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    environment["SANDBOX_DOCKER_SOCKET"] = api.path
    done = subprocess.run(command, cwd=g.ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=IMAGES_S)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout.decode(errors='replace')[-6000:]}"


@contextlib.contextmanager
def _locked(path):
    with open(path, "a") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


_shared = None


def is_in_use():
    """Whether a test of this process has used the shared engine."""
    return _shared is not None


def shared():
    """The session's engine, made once a process."""
    global _shared
    if _shared is None:
        _shared = _make_shared()
    return _shared


def _make_shared():
    """The session's engine with the guest images in it; started by whoever comes first."""
    require()
    given = os.environ.get(GIVEN)
    if given:
        api = GivenEngine(given)
        assert api.is_up(), f"{GIVEN}: no engine at {given}"
        check_images(api)
        return api
    home = pathlib.Path(os.environ[SESSION])
    engine = Engine(home)
    with _locked(home / "lock"):
        if not (home / "ready").exists():
            if engine.pid is None:
                engine.start_engine()
            make_images(engine)
            (home / "ready").touch()
    return engine


def copy_images(source, target, refs):
    """Images from one engine to another, as the engine packs them."""
    query = "&".join("names=" + urllib.parse.quote(ref) for ref in refs)
    reading, writing = _Connection(source.path, 120), _Connection(target.path, 120)
    try:
        reading.request("GET", "/images/get?" + query)
        packed = reading.getresponse()
        assert packed.status == 200, packed.read()
        writing.request("POST", "/images/load?quiet=1", packed, {"Content-Type": "application/x-tar", "Transfer-Encoding": "chunked"},
                        encode_chunked=True)
        loaded = writing.getresponse()
        assert loaded.status == 200, loaded.read()
        loaded.read()
    finally:
        reading.close()
        writing.close()


@contextlib.contextmanager
def own_engine(*refs):
    """An engine for one test file alone, which may be killed, stopped and started again, with these images of the shared one."""
    require()
    assert os.geteuid() == 0
    source = shared()
    engine = Engine(_new_home())
    try:
        engine.start_engine()
        copy_images(source, engine, refs)
        yield engine
    finally:
        engine.remove_all()


# -- what is left --


def live_instances():
    """The gateways' docker roles of this machine, by their liveness sockets."""
    return set(re.findall(r"@plimsoll-docker-([0-9A-Za-z_-]+)", pathlib.Path("/proc/net/unix").read_text()))


def instances_of(gw, role="plimsolld-backend-"):
    """Those of one gateway, or of one of its roles."""
    nodes = {}
    for line in pathlib.Path("/proc/net/unix").read_text().splitlines():
        m = re.search(r"\s(\d+) @plimsoll-docker-([0-9A-Za-z_-]+)", line)
        if m:
            nodes[f"socket:[{m.group(1)}]"] = m.group(2)
    found = set()
    for pid in g.descendants(gw.process.pid):
        if not g.name_of(pid).split(" ")[0].split("/")[-1].startswith(role):
            continue
        with contextlib.suppress(OSError):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    found.add(nodes.get(os.readlink(f"/proc/{pid}/fd/{fd}")))
    return found - {None}


def leftovers(api):
    """Containers of gateways that are gone, and what goes on running without a container. A shim with nothing below it is none of the
    gateway's: this Engine leaves one whenever a start under gVisor fails, and its API cannot remove it (spec backend-docker 8 (9))."""
    live = live_instances()
    everyone = api.containers(None)
    orphans = [f"container {c['Names']} {c['Labels']} {c['State']}" for c in everyone
               if LABEL in c["Labels"] and c["Labels"].get("sbx.instance") not in live]
    ids = {c["Id"] for c in everyone}
    shims = {i: pid for i, pid in api.shims().items() if i not in ids}
    if shims:
        # listed after the shims: one whose container was made in between has one now
        ids = {c["Id"] for c in api.containers(None)}
    for i, pid in shims.items():
        below = [g.name_of(p) for p, started in g.descendants(pid).items() if g.is_alive(p, started)]
        if i not in ids and below:
            orphans.append(f"shim {i} (pid {pid}) with {below}")
    return orphans


def expect_nothing_left(api, seconds=80):
    """A runner that the Engine forgot in the middle of its start ends by itself when nobody greets it for a minute."""
    end = time.monotonic() + seconds
    while (left := leftovers(api)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left, "left over:\n" + "\n".join(left)
