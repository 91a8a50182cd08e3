"""backends/docker/install-gvisor: what it registers, what it keeps, what it refuses, and that --undo leaves no trace. The program it registers is a
stand-in that tells the version and the flags it is asked to; one test has an Engine and the real runsc."""
import hashlib
import http.client
import io
import json
import os
import pathlib
import platform
import shutil
import signal
import socket
import stat
import subprocess
import tarfile
import threading
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "backends" / "docker" / "install-gvisor"
NEW_FLAGS = """  -fsgofer-host-uds
    \tDEPRECATED: use host-uds=all
  -host-uds value
    \tcontrols permission to access host Unix-domain sockets. Values: none|open|create|all, default: none
  -network value
    \tspecifies which network to use: sandbox (default), host, none.
  -platform value
    \tspecifies which platform to use: systrap (default), ptrace, kvm. (default "systrap")
  -platform_device_path string
    \tpath to a platform-specific device file, nested or not.
"""
OLD_FLAGS = NEW_FLAGS.split("  -host-uds value")[0] + "  -platform value\n    \tspecifies which platform to use: ptrace (default), kvm.\n"
NO_FLAGS = "  -platform value\n    \tptrace\n"
FAKE = """#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int n, char **v) {
    if (n == 2 && strcmp(v[1], "--version") == 0) printf("runsc version %s\\nspec: 1.1.0\\n", getenv("FAKE_VERSION"));
    else if (n == 2 && strcmp(v[1], "flags") == 0) fputs(getenv("FAKE_FLAGS"), stderr);
    else return 1;
    return 0;
}
"""


def compile_c(source, into, *flags):
    subprocess.run(["cc", "-x", "c", "-", "-o", str(into), *flags], input=source, text=True, check=True)


@pytest.fixture(scope="session")
def fake_runsc(tmp_path_factory):
    path = tmp_path_factory.mktemp("fake") / "runsc"
    compile_c(FAKE, path)
    return path


class Machine:
    """A folder that is all the script may know of a machine: a PATH, a program, a configuration."""

    def __init__(self, home, fake):
        self.home = home
        (home / "bin").mkdir()
        (home / "etc").mkdir()
        shutil.copy(fake, home / "bin" / "runsc")
        self.config = home / "etc" / "daemon.json"
        self.flags, self.version = NEW_FLAGS, "release-20260907.0"
        self.path = f"{home}/bin:/usr/bin:/bin"

    def run(self, *arguments, status=0, **env):
        done = subprocess.run([str(SCRIPT), "--config", str(self.config), *map(str, arguments)], capture_output=True, text=True, timeout=60,
                              env={"PATH": self.path, "FAKE_FLAGS": self.flags, "FAKE_VERSION": self.version, **env}, stdin=subprocess.DEVNULL)
        assert done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def entry(self, name="runsc"):
        return json.loads(self.config.read_text())["runtimes"][name]

    def tree(self):
        """Everything below the folder: kind, mode, owner, content."""
        found = {}
        for path in sorted(self.home.rglob("*")):
            s = path.lstat()
            content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
            found[str(path.relative_to(self.home))] = (stat.S_IFMT(s.st_mode), stat.S_IMODE(s.st_mode), s.st_uid, s.st_gid, content)
        return found

    def bundle(self, sums=("sha512",), line="{sum}  runsc\n", content=None, name="bundle"):
        folder = self.home / name
        folder.mkdir()
        data = content if content is not None else (self.home / "bin" / "runsc").read_bytes()
        (folder / "runsc").write_bytes(data)
        for kind in sums:
            (folder / f"runsc.{kind}").write_text(line.format(sum=getattr(hashlib, kind)(data).hexdigest()))
        return folder

    def stand_in(self, name, text):
        path = self.home / "bin" / name
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)


@pytest.fixture
def machine(tmp_path, fake_runsc):
    return Machine(tmp_path, fake_runsc)


WANTED = ["--network=none", "--host-uds=open"]

# -- what is kept --

ORIGINALS = {
    "absent": None,
    "empty": b"",
    "blank": b" \n\n",
    "braces": b"{}",
    "one line": b'{"runtimes":{"kata":{"path":"/k","runtimeArgs":["-a"]}},"default-runtime":"kata"}',
    "tabs": b'{\n\t"debug": true,\n\t"log-opts": {\n\t\t"max-size": "10m"\n\t}\n}\n',
    "four spaces, no newline": b'{\n    "hosts": ["unix:///var/run/docker.sock"],\n    "runtimes": {}\n}',
    "numbers": b'{"a":1.10,"b":-0,"c":1e400,"d":123456789012345678901234567890,"e":0.1e-7,"f":[1,2.0,[]],"g":{},"h":null,"i":false}',
    "text": '{"é":"\\u00e9\\ud83d\\ude00 \\"\\\\ \\u0007","":"","proxies":{"http-proxy":"http://u:p@h"}}'.encode(),
    "null runtimes": b'{"runtimes":null,"x":1}',
    "windows lines": b'{\r\n  "debug": true\r\n}\r\n',
}


def loose(data):
    """As JSON, with numbers by their text."""
    value = json.loads(data, parse_float=lambda t: ("number", t), parse_int=lambda t: ("number", t)) if data and data.strip() else {}
    runtimes = value.pop("runtimes", None) or {}
    runtimes.pop("runsc", None)
    return value, runtimes


@pytest.mark.parametrize("original", ORIGINALS.values(), ids=ORIGINALS.keys())
def test_nothing_else_changes_and_undo_puts_every_byte_back(machine, original):
    if original is not None:
        machine.config.write_bytes(original)
        machine.config.chmod(0o640)
    before = machine.tree()
    said = machine.run()
    assert machine.entry() == {"path": f"{machine.home}/bin/runsc", "runtimeArgs": WANTED}
    assert loose(machine.config.read_bytes()) == loose(original)
    if original is not None:
        keys = list(loose(original)[0])
        assert list(loose(machine.config.read_bytes())[0]) == keys, "the order of the keys changed"
        assert stat.S_IMODE(machine.config.stat().st_mode) == 0o640
    assert "release-20260907.0" in said and "--host-uds=open" in said and str(machine.config) in said
    machine.run("--undo")
    assert machine.tree() == before


def test_a_second_time_changes_nothing(machine):
    machine.config.write_text('{"debug": true}')
    machine.run()
    once = machine.tree()
    at = machine.config.stat().st_mtime_ns
    assert "nothing to change" in machine.run()
    assert machine.tree() == once and machine.config.stat().st_mtime_ns == at
    machine.run("--undo")
    assert machine.config.read_text() == '{"debug": true}'
    assert "nothing to undo" in machine.run("--undo")


def test_undo_after_several_changes_goes_back_to_the_first(machine):
    machine.config.write_text('{"debug":true}')
    before = machine.tree()
    machine.run()
    machine.run("--platform", "kvm" if os.path.exists("/dev/kvm") else "ptrace")
    machine.run("--name", "runsc-two")
    assert machine.entry()["runtimeArgs"][2].startswith("--platform=") and machine.entry("runsc-two")["runtimeArgs"] == WANTED
    machine.run("--undo")
    assert machine.tree() == before


def test_a_link_to_the_configuration_stays_a_link(machine):
    real = machine.home / "real.json"
    real.write_text("{}")
    machine.config.symlink_to(real)
    before = machine.tree()
    machine.run()
    assert machine.config.is_symlink() and "runsc" in json.loads(real.read_text())["runtimes"]
    machine.run("--undo")
    assert machine.tree() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_the_owner_of_the_configuration_stays(machine):
    machine.config.write_text("{}")
    os.chown(machine.config, 1234, 2345)
    machine.run()
    assert (machine.config.stat().st_uid, machine.config.stat().st_gid) == (1234, 2345)
    machine.run("--undo")
    assert (machine.config.stat().st_uid, machine.config.stat().st_gid) == (1234, 2345)


def test_what_is_kept_for_undo_is_for_its_owner_alone(machine):
    """The old configuration may hold a proxy's password."""
    machine.config.write_text('{"proxies":{"http-proxy":"http://u:secret@h"}}')
    machine.run()
    [kept] = [p for p in machine.config.parent.iterdir() if p != machine.config]
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_what_others_changed_since_is_kept_by_undo(machine):
    machine.config.write_text('{"debug":true}')
    machine.run()
    value = json.loads(machine.config.read_text())
    value["debug"], value["runtimes"]["kata"] = False, {"path": "/k"}
    machine.config.write_text(json.dumps(value))
    machine.run("--undo")
    assert json.loads(machine.config.read_text()) == {"debug": False, "runtimes": {"kata": {"path": "/k"}}}
    assert len(list(machine.config.parent.iterdir())) == 1


def test_undo_leaves_an_entry_somebody_changed(machine):
    machine.run()
    value = json.loads(machine.config.read_text())
    value["runtimes"]["runsc"]["runtimeArgs"].append("--debug")
    machine.config.write_text(json.dumps(value))
    assert "left as it is" in machine.run("--undo")
    assert json.loads(machine.config.read_text()) == value


def test_undo_of_what_was_undone_by_hand(machine):
    machine.config.write_text('{"debug":true}')
    before = machine.tree()
    machine.run()
    machine.config.write_text('{"debug":true}')
    machine.run("--undo")
    assert machine.tree() == before


# -- what is refused --


@pytest.mark.parametrize("content", ['{"a":1,"a":2}', '{"runtimes":{"x":{},"x":{}}}', '{"a":', "[]", '"x"', "null", '{"runtimes":[]}', '{"runtimes":"x"}',
                                     '{"a":NaN}', '{"a":1} {}', "{'a':1}", '\ufeff{"a":1}', "[" * 100000])
def test_a_configuration_that_is_none_is_left_alone(machine, content):
    machine.config.write_text(content, encoding="utf-8")
    before = machine.tree()
    assert "Nothing was changed" in machine.run(status=1)
    assert machine.tree() == before
    bundle = machine.bundle()
    before = machine.tree()
    machine.run("--bundle", bundle, "--dest", machine.home / "lib/gvisor", status=1)
    assert machine.tree() == before, "the copy of a release that was not registered is left"


def test_a_runtime_of_somebody_else_is_replaced_only_when_asked(machine):
    content = '{"runtimes": {"runsc": {"path": "/elsewhere/runsc", "runtimeArgs": ["--debug"]}}}'
    machine.config.write_text(content)
    before = machine.tree()
    assert "--replace" in machine.run(status=1)
    assert machine.tree() == before
    machine.run("--name", "runsc-two")
    assert machine.entry()["path"] == "/elsewhere/runsc" and machine.entry("runsc-two")["runtimeArgs"] == WANTED
    machine.run("--undo")
    machine.run("--replace")
    assert machine.entry()["runtimeArgs"] == WANTED
    # somebody's other change, so that undo has to put back the one entry
    value = json.loads(machine.config.read_text())
    machine.config.write_text(json.dumps({**value, "debug": True}))
    machine.run("--undo")
    assert json.loads(machine.config.read_text()) == {**json.loads(content), "debug": True}


def test_no_directory_for_the_configuration(machine):
    machine.config = machine.home / "none" / "daemon.json"
    bundle = machine.bundle()
    before = machine.tree()
    assert "is a Docker Engine installed" in machine.run("--bundle", bundle, "--dest", machine.home / "lib", status=1)
    assert machine.tree() == before


@pytest.mark.parametrize("arguments", [["--what"], ["--name"], ["--name", ""], ["--name", "runc"], ["--name", "a b"], ["--name", "-x"], ["--name", "A"],
                                       ["--platform", "k;m"], ["--runsc", "/a", "--bundle", "/b"], ["--config", "relative"], ["--dest", "relative"], ["x"]])
def test_wrong_options(machine, arguments):
    before = machine.tree()
    assert "--help" in machine.run(*arguments, status=2)
    assert machine.tree() == before


def test_help_names_every_option(machine):
    said = machine.run("--help")
    cases = SCRIPT.read_text()
    for option in {"--name", "--runsc", "--bundle", "--dest", "--platform", "--replace", "--config", "--reload", "--pidfile", "--socket", "--undo", "--dry-run"}:
        assert option in said and option in cases
    assert not machine.config.exists()


def test_it_says_what_it_needs(machine):
    folder = machine.home / "tools"
    folder.mkdir()
    for tool in ("sh", "cat", "uname", "od"):
        (folder / tool).symlink_to(shutil.which(tool))
    machine.path = str(folder)
    assert "python3 is needed" in machine.run(status=1)


def test_no_runsc(machine):
    (machine.home / "bin/runsc").unlink()
    if shutil.which("runsc", path="/usr/bin:/bin"):
        machine.run("--runsc", machine.home / "bin/runsc", status=1)
    else:
        assert "no runsc in PATH" in machine.run(status=1)
    assert not machine.config.exists()


@pytest.mark.parametrize("change", ["script", "32 bits", "other machine", "big endian", "short", "empty", "renamed", "writable", "not executable", "silent"])
def test_a_program_that_is_no_runsc_of_this_machine(machine, change):
    path = machine.home / "bin/runsc"
    data = bytearray(path.read_bytes())
    if change == "script":
        data = b"#!/bin/sh\necho runsc version 1\n"
    elif change == "32 bits":
        data[4] = 1
    elif change == "big endian":
        data[5] = 2
    elif change == "other machine":
        data[18] = {"x86_64": 0xb7}.get(platform.machine(), 0x3e)
    elif change == "short":
        data = data[:19]
    elif change == "empty":
        data = b""
    path.write_bytes(data)
    if change == "writable":
        path.chmod(0o777)
    elif change == "not executable":
        path.chmod(0o644)
    elif change == "silent":
        machine.version = ""
    elif change == "renamed":
        path = path.rename(machine.home / "bin/gvisor")
    before = machine.tree()
    machine.run("--runsc", path, status=1)
    assert machine.tree() == before


@pytest.mark.parametrize("name", ["armv7l", "riscv64", "i686", "s390x", ""])
def test_other_architectures_are_refused(machine, name):
    machine.stand_in("uname", f"echo {name}\n")
    bundle = machine.bundle()
    before = machine.tree()
    assert "x86_64 and aarch64" in machine.run(status=1)
    assert "x86_64 and aarch64" in machine.run("--bundle", bundle, "--dest", machine.home / "lib", status=1)
    assert machine.tree() == before


# -- flags --


def test_flags_follow_the_release(machine):
    machine.flags = OLD_FLAGS
    machine.run()
    assert machine.entry()["runtimeArgs"] == ["--network=none", "--fsgofer-host-uds"]
    machine.run("--undo")
    machine.flags = NO_FLAGS
    assert "no flag for mounted host sockets" in machine.run(status=1)
    assert not machine.config.exists()


def test_the_platform_is_one_the_release_knows(machine):
    for name in ("systrap", "ptrace"):
        machine.run("--platform", name)
        assert machine.entry()["runtimeArgs"] == [*WANTED, f"--platform={name}"]
    # words of the flag behind it are no platforms
    for name in ("nested", "device", "xen", "sys"):
        assert "does not know the platform" in machine.run("--platform", name, status=1)
    machine.flags = OLD_FLAGS
    machine.run("--platform", "systrap", status=1)
    if not os.path.exists("/dev/kvm"):
        assert "/dev/kvm" in machine.run("--platform", "kvm", status=1)
    machine.run("--undo")
    assert not machine.config.exists()


# -- bundles --


@pytest.mark.parametrize("sums, line", [(["sha512"], "{sum}  runsc\n"), (["sha256"], "{sum} *runsc\n"), (["sha512", "sha256"], "{sum}  runsc\n"),
                                        (["sha512"], "00  other\n{sum}  runsc\n")])
def test_a_bundle_is_checked_copied_and_removed_again(machine, sums, line):
    bundle = machine.bundle(sums, line)
    before = machine.tree()
    dest = machine.home / "lib" / "plimsoll" / "gvisor"
    said = machine.run("--bundle", bundle, "--dest", dest)
    path = pathlib.Path(machine.entry()["path"])
    assert path.name == "runsc" and dest in path.parents
    assert path.read_bytes() == (bundle / "runsc").read_bytes() and stat.S_IMODE(path.stat().st_mode) == 0o755
    assert "matches its checksum (" + " ".join(sums) + ")" in said and str(path) in said
    machine.run("--undo")
    assert machine.tree() == before


def test_two_releases_side_by_side(machine):
    first, second = machine.bundle(), machine.bundle(content=(machine.home / "bin/runsc").read_bytes() + b"\0", name="second")
    before = machine.tree()
    machine.run("--bundle", first, "--dest", machine.home / "lib")
    one = machine.entry()["path"]
    machine.run("--bundle", second, "--dest", machine.home / "lib")
    two = machine.entry()["path"]
    # a container of the first may still run: its program stays as it is
    assert one != two and os.path.exists(one)
    machine.run("--undo")
    assert machine.tree() == before


BAD_SUMS = {
    "another sum": ("sha512", lambda s: "0" * 128 + "  runsc\n"),
    "one digit off": ("sha512", lambda s: ("1" if s[0] == "0" else "0") + s[1:] + "  runsc\n"),
    "of another file": ("sha512", lambda s: s + "  containerd-shim-runsc-v1\n"),
    "twice": ("sha512", lambda s: (s + "  runsc\n") * 2),
    "too short": ("sha512", lambda s: s[:64] + "  runsc\n"),
    "no digits": ("sha512", lambda s: "g" * 128 + "  runsc\n"),
    "empty": ("sha512", lambda s: ""),
    "no name": ("sha512", lambda s: s + "\n"),
    "the other kind": ("sha256", lambda s: "0" * 64 + "  runsc\n"),
}


@pytest.mark.parametrize("kind, make", BAD_SUMS.values(), ids=BAD_SUMS.keys())
def test_a_bundle_whose_checksum_does_not_hold(machine, kind, make):
    # the sound sum of the other kind does not help
    bundle = machine.bundle(["sha256" if kind == "sha512" else "sha512"])
    (bundle / f"runsc.{kind}").write_text(make(getattr(hashlib, kind)((bundle / "runsc").read_bytes()).hexdigest()))
    before = machine.tree()
    machine.run("--bundle", bundle, "--dest", machine.home / "lib", status=1)
    assert machine.tree() == before


def test_bundles_that_are_none(machine):
    without_sum, empty = machine.bundle([]), machine.home / "empty"
    empty.mkdir()
    script = machine.bundle(content=b"#!/bin/sh\necho runsc version 1\n", name="script")
    before = machine.tree()
    for bundle, why in ((without_sum, "neither"), (empty, "no runsc"), (machine.home / "none", "not a directory"), (script, "not a 64-bit program")):
        assert why in machine.run("--bundle", bundle, "--dest", machine.home / "lib", status=1)
    assert machine.tree() == before


def test_a_release_with_running_sandboxes_is_not_removed(machine):
    compile_c(FAKE.replace("else return 1;", 'else { puts(""); fflush(stdout); getchar(); }'), machine.home / "bin/runsc")
    machine.run("--bundle", machine.bundle(), "--dest", machine.home / "lib")
    path = machine.entry()["path"]
    sandbox = subprocess.Popen([path, "boot", "x"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    sandbox.stdout.readline()
    before = machine.tree()
    assert "running sandboxes" in machine.run("--undo", status=1)
    assert machine.tree() == before
    sandbox.communicate()
    machine.run("--undo")
    assert not os.path.exists(path) and not machine.config.exists()


# -- dry run, check, reload --


def test_a_dry_run_changes_nothing(machine):
    machine.config.write_text('{"debug":true}')
    bundle = machine.bundle()
    before = machine.tree()
    for arguments in ([], ["--bundle", bundle, "--dest", machine.home / "lib"], ["--reload"]):
        said = machine.run("--dry-run", *arguments)
        assert "would change" in said and '+    "runsc": {' in said
    assert machine.tree() == before
    machine.run("--bundle", bundle, "--dest", machine.home / "lib")
    before = machine.tree()
    assert "would put back" in machine.run("--dry-run", "--undo") and machine.tree() == before


def test_the_engine_s_own_check_comes_before_the_change(machine):
    machine.config.write_text('{"debug":true}')
    machine.stand_in("dockerd", f"""[ "$1" != --help ] || {{ echo '      --validate   Validate daemon configuration and exit'; exit 0; }}
[ "$1 $2" = "--validate --config-file" ] && grep -q '"runsc"' "$3" || exit 7
grep -q '"debug":true' {machine.config} || exit 8
[ ! -e {machine.home}/bad ] || {{ echo 'conflicting settings'; exit 1; }}
""")
    (machine.home / "bad").touch()
    before = machine.tree()
    assert "conflicting settings" in machine.run(status=1)
    assert machine.tree() == before
    (machine.home / "bad").unlink()
    assert "own check accepts" in machine.run()
    assert machine.entry()["runtimeArgs"] == WANTED


def test_nothing_is_sent_to_an_engine_unless_asked(machine):
    for name in ("systemctl", "kill"):
        machine.stand_in(name, f"touch {machine.home}/was-called\n")
    assert "has not been told" in machine.run()
    assert "has not been told" in machine.run("--undo")
    assert not (machine.home / "was-called").exists()


def test_a_signal_goes_to_the_engine_of_this_configuration_only(machine):
    pidfile = machine.home / "pid"
    sleeper = subprocess.Popen(["sleep", "60"])
    # by its name an Engine, but of another configuration
    shutil.copy(shutil.which("sleep"), machine.home / "dockerd")
    other = subprocess.Popen([machine.home / "dockerd", "60", "--config-file=/elsewhere.json"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for content, why in ((str(sleeper.pid), "not dockerd"), ("no number", "no running process"), ("99999999", "no running process"), (None, "no running process")):
            if content is not None:
                pidfile.write_text(content)
            else:
                pidfile.unlink()
            assert why in machine.run("--reload", "--pidfile", pidfile, status=3)
            assert sleeper.poll() is None
        assert "names an Engine" in machine.run("--reload", status=3)
        assert machine.entry()["runtimeArgs"] == WANTED
    finally:
        for process in (sleeper, other):
            process.kill()
            process.wait()


def test_it_has_no_way_to_download():
    words = SCRIPT.read_text()
    for tool in ("curl ", "wget ", "urllib", "https://", "http://", "git clone"):
        assert tool not in words
    assert words.startswith("#!/bin/sh\n") and os.access(SCRIPT, os.X_OK)
    assert subprocess.run(["sh", "-n", str(SCRIPT)]).returncode == 0


# -- with an Engine --

CONNECT = """#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
int main(void) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char c;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    strcpy(a.sun_path, "/run/host-api.sock");
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) != 0) return 10;
    return read(fd, &c, 1) == 1 && c == 'p' ? 42 : 11;
}
"""


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("d", timeout=60)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self.path)


class Engine:
    """A dockerd of this test's own, on nothing the machine has besides."""

    def __init__(self, home):
        self.home, self.socket, self.pidfile, self.config = home, home / "s", home / "p", home / "daemon.json"
        self.config.write_text('{"max-concurrent-downloads": 2}\n')
        self.log = open(home / "log", "wb")
        self.process = subprocess.Popen(
            ["dockerd", "--data-root", home / "d", "--exec-root", home / "e", "-H", f"unix://{self.socket}", "--pidfile", self.pidfile, "--config-file", self.config,
             "--bridge", "none", "--iptables=false"], stdout=self.log, stderr=self.log)

    def ask(self, method, path, body=None, kind="application/json"):
        link = UnixConnection(self.socket)
        link.request(method, path, body, {"Content-Type": kind} if body else {})
        answer = link.getresponse()
        data = answer.read()
        link.close()
        return answer.status, data

    def wait(self):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            assert self.process.poll() is None, (self.home / "log").read_text()[-2000:]
            try:
                if self.ask("GET", "/_ping")[0] == 200:
                    return self
            except OSError:
                time.sleep(0.1)
        raise AssertionError("the Engine does not come up: " + (self.home / "log").read_text()[-2000:])

    def runtimes(self):
        return json.loads(self.ask("GET", "/info")[1])["Runtimes"]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def import_image(engine, binary):
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as t:
        t.add(binary, "connect")
        for name in ("run", "tmp", "proc", "dev", "sys", "etc"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            t.addfile(folder)
    status, data = engine.ask("POST", "/images/create?fromSrc=-", tar.getvalue(), "application/x-tar")
    assert status == 200, data
    return json.loads(data.decode().splitlines()[-1])["status"]


def run_container(engine, image, runtime, host_socket):
    """The exit code of the image's program."""
    body = {"Image": image, "Entrypoint": ["/connect"], "HostConfig": {"Runtime": runtime, "NetworkMode": "none", "Binds": [f"{host_socket}:/run/host-api.sock"]}}
    status, data = engine.ask("POST", "/containers/create", json.dumps(body))
    assert status == 201, data
    container = json.loads(data)["Id"]
    try:
        status, data = engine.ask("POST", f"/containers/{container}/start")
        assert status == 204, data
        end = time.monotonic() + 60
        while time.monotonic() < end:
            state = json.loads(engine.ask("GET", f"/containers/{container}/json")[1])["State"]
            if not state["Running"]:
                return state["ExitCode"]
            time.sleep(0.05)
        raise AssertionError("the container does not end")
    finally:
        engine.ask("DELETE", f"/containers/{container}?force=1&v=1")


def can_run_an_engine():
    return os.geteuid() == 0 and shutil.which("dockerd") and shutil.which("runsc")


def test_an_engine_takes_it_over_runs_with_it_and_forgets_it(tmp_path_factory):
    """The flags are the real ones: a sandbox under them connects to the one socket mounted into it."""
    if not can_run_an_engine():
        pytest.skip("needs root, dockerd and runsc")
    home = pathlib.Path(tmp_path_factory.mktemp("engine"))
    compile_c(CONNECT, home / "connect", "-static", "-s")
    host = socket.socket(socket.AF_UNIX)
    host.bind(str(home / "api"))
    host.listen(8)
    os.chmod(home / "api", 0o666)
    engine = Engine(home)

    def script(*arguments):
        done = subprocess.run([str(SCRIPT), "--config", engine.config, "--pidfile", engine.pidfile, "--socket", engine.socket, "--reload", *arguments],
                              capture_output=True, text=True, timeout=90)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    try:
        engine.wait()
        assert "runsc" not in engine.runtimes()
        before = engine.config.read_bytes()
        known = subprocess.run(["runsc", "flags"], capture_output=True, text=True)
        platform_flag = ["--platform", "systrap" if "systrap" in known.stdout + known.stderr else "ptrace"]
        assert "the Engine knows runsc" in script(*platform_flag)
        entry = engine.runtimes()["runsc"]
        assert entry["path"] == shutil.which("runsc") and "--network=none" in entry["runtimeArgs"]
        image = import_image(engine, home / "connect")

        def serve():
            while True:
                try:
                    link, _ = host.accept()
                except OSError:
                    return
                link.sendall(b"p")
                link.close()
        threading.Thread(target=serve, daemon=True).start()
        assert run_container(engine, image, "runc", home / "api") == 42
        assert run_container(engine, image, "runsc", home / "api") == 42
        assert "until it is started again" in script("--undo")
        assert engine.config.read_bytes() == before
        # with another runtime in the file an Engine does forget
        engine.config.write_text('{"runtimes": {"other": {"path": "/usr/sbin/runc"}}}')
        assert "the Engine knows runsc" in script(*platform_flag)
        assert "has forgotten runsc" in script("--undo")
        assert "other" in engine.runtimes() and "runsc" not in engine.runtimes()
    finally:
        host.close()
        engine.stop()
        shutil.rmtree(home, ignore_errors=True)
