"""The guests' seccomp profile: made by its traces and lists, enough for every workload it was traced from, and nothing that it removes gets through.
docs/seccomp.md."""
import json
import pathlib
import re
import subprocess

import pytest

import engine as e
import gateway as g
import guest_container

HERE = pathlib.Path(g.ROOT) / "backends/docker/seccomp"
PROFILE = guest_container.PROFILE.read_text()


@pytest.fixture(scope="module")
def api():
    return e.shared()


def words(name):
    return re.sub(r"#[^\n]*", "", (HERE / name).read_text()).split()


REMOVED = [w.partition(":")[0] for w in words("remove.txt")]
# These are told as not there, so that a library goes on with something else.
NOT_THERE = {w.partition(":")[0] for w in words("remove.txt") if w.endswith(":ENOSYS")}


def allowed(with_arguments):
    return {n for rule in json.loads(PROFILE)["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW" and ("args" in rule) == with_arguments for n in rule["names"]}


# -- the file --


def test_the_profile_is_what_its_traces_and_lists_make():
    done = subprocess.run([HERE / "derive", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_is_removed_is_allowed_nowhere():
    assert len(REMOVED) > 100 and NOT_THERE == {"clone3", "pkey_alloc"}
    assert not set(REMOVED) & (allowed(False) | allowed(True))
    # The law's list, written down a second time.
    law = """ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd io_uring_setup io_uring_enter io_uring_register bpf perf_event_open userfaultfd keyctl
             add_key request_key unshare setns mount umount2 open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr chroot pivot_root name_to_handle_at
             open_by_handle_at modify_ldt init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff settimeofday clock_settime
             clock_adjtime adjtimex shmget shmat shmctl shmdt semget semop semtimedop semctl msgget msgsnd msgrcv msgctl mq_open mq_unlink mq_timedsend
             mq_timedreceive mq_notify mq_getsetattr seccomp setuid setgid setreuid setregid setresuid setresgid setfsuid setfsgid setgroups capset vmsplice io_setup
             io_destroy io_submit io_cancel io_getevents io_pgetevents landlock_create_ruleset landlock_add_rule landlock_restrict_self""".split()
    assert set(law) <= set(REMOVED)


def test_every_traced_call_is_allowed_or_removed_on_purpose():
    traced = {w for path in HERE.glob("traces/*.txt") for w in words(f"traces/{path.name}")}
    assert len(traced) > 100
    assert traced - allowed(False) - allowed(True) <= set(REMOVED)
    assert {p.stem for p in HERE.glob("traces/*.txt")} >= {"node-eval", "node-files", "tsc", "tsx", "eslint", "python", "numpy", "shell", "wasm-cc", "runner"}


def test_arguments_decide_as_the_specification_says():
    rules = {}
    for rule in json.loads(PROFILE)["syscalls"]:
        if "args" in rule:
            for name in rule["names"]:
                rules.setdefault(name, []).append([(a["index"], a["op"], a["value"], a.get("valueTwo", 0)) for a in rule["args"]])
    assert rules == {
        "socket": [[(0, "SCMP_CMP_EQ", 1, 0)]], "socketpair": [[(0, "SCMP_CMP_EQ", 1, 0)]],
        "clone": [[(0, "SCMP_CMP_MASKED_EQ", 0x7e020000, 0)]],
        "personality": [[(0, "SCMP_CMP_EQ", 0, 0)], [(0, "SCMP_CMP_EQ", 0xffffffff, 0)]],
        "mknod": [[(1, "SCMP_CMP_MASKED_EQ", 0o170000, 0o010000)]], "mknodat": [[(2, "SCMP_CMP_MASKED_EQ", 0o170000, 0o010000)]]}


def test_both_machines_are_in_it_and_no_32_bit_calls():
    assert {(a["architecture"], tuple(a["subArchitectures"])) for a in json.loads(PROFILE)["archMap"]} == {
        ("SCMP_ARCH_X86_64", ()), ("SCMP_ARCH_AARCH64", ())}


def test_the_page_counts_as_the_profile_does():
    page = (pathlib.Path(g.ROOT) / "docs/seccomp.md").read_text()
    assert f"- {len(allowed(False))} calls are allowed by name" in page
    assert len([r for r in json.loads(PROFILE)["syscalls"] if "args" in r]) == 6 and "- Six rules look at an argument" in page


# -- in containers --


WORKLOADS = [("project", ["node", "-e", "console.log(6*7)"], "42"), ("project", ["node", "/w/files.js"], "files.js: done"),
             ("project", ["sh", "/w/typescript.sh"], "typescript.sh: done"), ("python", ["python3", "/w/threads.py"], "threads.py: done"),
             ("python", ["python3", "/w/arrays.py"], "arrays.py: done"), ("project", ["sh", "/w/tools.sh"], "tools.sh: done"),
             ("wasm-cc", ["sh", "/w/compile.sh"], "compile.sh: done")]


@pytest.mark.parametrize("image, command, last", WORKLOADS, ids=[" ".join(c)[:20] for _, c, _ in WORKLOADS])
def test_a_workload_runs_under_the_profile(api, image, command, last):
    out = guest_container.expect(api, f"plimsoll/{image}:latest", command, profile=PROFILE, binds=[f"{HERE}/workloads:/w:ro"])
    assert out.splitlines()[-1].startswith(last)


# Every argument is -1: bad as an address, a descriptor and a set of flags, so that nothing happens where a call gets through.
CALLS = """
import ctypes, errno, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
bad = [ctypes.c_long(-1)] * 6
def call(*args):
    ctypes.set_errno(0)
    r = libc.syscall(*[ctypes.c_long(a) for a in args])
    return errno.errorcode.get(ctypes.get_errno(), "?") if r == -1 else "done"
told = {name: call(number, -1, -1, -1, -1, -1, -1) for name, number in json.loads(sys.argv[1]).items()}
print(json.dumps(told))
"""


def numbers():
    """{name: number} of this machine's calls, from the kernel's header as the compiler finds it."""
    header = subprocess.run(["gcc", "-E", "-dM", "-include", "sys/syscall.h", "-x", "c", "/dev/null"], capture_output=True, text=True, check=True).stdout
    return {m.group(1): int(m.group(2)) for m in re.finditer(r"#define __NR_(\w+) (\d+)$", header, re.M)}


def told(api, profile):
    known = {name: number for name, number in numbers().items() if name in REMOVED}
    assert len(known) > 80
    out = guest_container.expect(api, "plimsoll/python:latest", ["python3", "-c", CALLS, json.dumps(known)], profile=profile)
    return json.loads(out)


def test_every_removed_call_fails(api):
    got = told(api, PROFILE)
    assert {n: error for n, error in got.items() if error != ("ENOSYS" if n in NOT_THERE else "EPERM")} == {}


def test_the_test_of_removed_calls_can_fail(api):
    """Without a filter most of them get to the kernel, which has something else to say."""
    got = told(api, "unconfined")
    assert len([n for n, error in got.items() if error not in ("EPERM", "ENOSYS")]) > 50


ARGUMENTS = """
import ctypes, errno, json, os, socket, stat, sys
libc = ctypes.CDLL(None, use_errno=True)
number = json.loads(sys.argv[1])
told = {}
def note(name, function):
    try:
        function()
        told[name] = "done"
    except OSError as e:
        told[name] = errno.errorcode[e.errno]
def raw(name, *args):
    ctypes.set_errno(0)
    r = libc.syscall(*[ctypes.c_long(a) for a in (number[name],) + args])
    if r == -1:
        raise OSError(ctypes.get_errno(), name)
    return r
for family in (1, 2, 10, 16, 17, 38, 40, 44, 31, 15):
    note(f"socket {family}", lambda: socket.socket(family, socket.SOCK_DGRAM).close())
note("socketpair", lambda: socket.socketpair())
def clone(flags):
    pid = raw("clone", flags | 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
note("clone", lambda: clone(0))
for bit in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
    note(f"clone {bit:#x}", lambda: clone(bit))
note("clone3", lambda: raw("clone3", 0, 0))
note("pkey_alloc", lambda: raw("pkey_alloc", 0, 0))
note("personality 0", lambda: raw("personality", 0))
note("personality query", lambda: raw("personality", 0xffffffff))
note("personality no randomization", lambda: raw("personality", 0x40000))
os.chdir("/work")
note("fifo", lambda: os.mkfifo("fifo"))
note("regular file", lambda: os.mknod("file", stat.S_IFREG | 0o600))
note("socket file", lambda: os.mknod("socket", stat.S_IFSOCK | 0o600))
note("device", lambda: os.mknod("device", stat.S_IFCHR | 0o600, os.makedev(1, 3)))
print(json.dumps(told))
"""


def by_argument(api, profile):
    known = numbers()
    wanted = {n: known[n] for n in ("clone", "clone3", "pkey_alloc", "personality")}
    return json.loads(guest_container.expect(api, "plimsoll/python:latest", ["python3", "-c", ARGUMENTS, json.dumps(wanted)], profile=profile))


def test_calls_are_let_through_by_their_arguments(api):
    got = by_argument(api, PROFILE)
    wanted = {name: "EPERM" for name in got}
    wanted |= {name: "done" for name in ("socket 1", "socketpair", "clone", "personality 0", "personality query", "fifo")}
    wanted |= {"clone3": "ENOSYS", "pkey_alloc": "ENOSYS"}
    assert len(wanted) > 25 and got == wanted


def test_the_test_of_arguments_can_fail(api):
    got = by_argument(api, "unconfined")
    assert got["socket 2"] == got["regular file"] == got["socket file"] == got["personality no randomization"] == "done"
    assert got["clone3"] != "ENOSYS"
