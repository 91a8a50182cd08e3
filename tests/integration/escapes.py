"""Attempts to get out of a sandbox, run inside one as a guest: escapes.py SEEDS.json prints one JSON line an attempt.

Each attempt is a function: it raises OSError (the system's refusal), returns nothing (it was let, and it got nothing), or returns what it got.
Only the last is an escape. It runs in a process of its own, so one that is killed or hangs is told as such. Standard library only.
"""
import ctypes
import errno
import glob
import json
import os
import signal
import socket
import stat
import struct
import sys
import time

ATTEMPTS = []
AT = "/work" + "/"     # where a guest may write
ATTEMPT_S = 10
# Things of a kernel that a sandbox with a kernel of its own may have of that one: they reach nothing of the machine's.
OWN_KERNELS = {"write /proc/self/oom_score_adj", "write /proc/1/oom_score_adj", "a better priority", "io_uring", "shared memory (System V)",
               "a message queue (System V)", "semaphores (System V)", "a message queue (POSIX)", "asynchronous reads (io_setup)"}
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
SEEDS = {}      # what the test planted outside: paths, ports, names

# x86-64 and aarch64 share the numbers from 424 on; these are older
X86 = os.uname().machine == "x86_64"
NUMBERS = {  # name: (x86-64, aarch64)
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272), "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438), "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "mount_setattr": (442, 442),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "io_uring_setup": (425, 425), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "kexec_load": (246, 104), "reboot": (169, 142), "swapon": (167, 224), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "sethostname": (170, 161), "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None),
    "acct": (163, 89), "syslog": (103, 116), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "quotactl": (179, 60),
    "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180), "capset": (126, 91), "vmsplice": (278, 75),
    "io_setup": (206, 0), "seccomp": (317, 277), "landlock_create_ruleset": (444, 444), "fanotify_init": (300, 262), "personality": (135, 92),
    "sched_setscheduler": (144, 119), "memfd_create": (319, 279), "process_madvise": (440, 440), "setuid": (105, 146), "setgid": (106, 144),
    "setresuid": (117, 147), "setgroups": (116, 159), "clone": (56, 220), "clone3": (435, 435), "lookup_dcookie": (212, 18)}
CLONE = {"user": 0x10000000, "mount": 0x00020000, "network": 0x40000000, "process": 0x20000000, "ipc": 0x08000000, "host name": 0x04000000,
         "control group": 0x02000000, "time": 0x00000080}


def attempt(topic, what):
    def add(function):
        ATTEMPTS.append((topic, what, function))
        return function
    return add


def call(name, *arguments):
    """A system call by its number; OSError as the kernel said it."""
    number = NUMBERS[name][0 if X86 else 1]
    if number is None:
        raise OSError(errno.ENOSYS, "not on this machine")
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


def calls(topic, what, name, *arguments, then=None):
    """An attempt that is one call; getting through at all counts, unless `then` judges."""
    @attempt(topic, what)
    def one():
        result = call(name, *arguments)
        return then(result) if then else f"{name} returned {result}"


def read(path, limit=1 << 20):
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return os.read(fd, limit)
    finally:
        os.close(fd)


def write(path, data):
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def is_secret(data):
    return SEEDS["secret"].encode() in data


def reads_secret(*paths):
    """Whether any of the paths leads to the file the test planted on the host."""
    last = None
    for path in paths:
        try:
            if is_secret(read(path)):
                return f"read the host's file through {path}"
        except OSError as problem:
            last = problem
    if last is not None:
        raise last
    return None


def writes(*paths, data=b"0\n"):
    """Whether any of those that exist takes bytes."""
    last = None
    for path in paths:
        for found in sorted(glob.glob(path)) or [path]:
            try:
                write(found, data)
                return f"wrote {found}"
            except OSError as problem:
                last = problem
    if last is not None:
        raise last
    return None


# -- mounts and files of the host --

calls("mounts", "mount a tmpfs over /work", "mount", b"tmpfs", b"/work", b"tmpfs", 0, None)
calls("mounts", "mount the root again, writable", "mount", None, b"/", None, 0x20, None)       # MS_REMOUNT
calls("mounts", "mount /work again without noexec", "mount", None, b"/work", None, 0x1020, None)
calls("mounts", "bind the root elsewhere", "mount", b"/", b"/work", None, 0x1000, None)
calls("mounts", "mount a new /proc", "mount", b"proc", b"/work", b"proc", 0, None)
calls("mounts", "unmount /work", "umount2", b"/work", 2)
calls("mounts", "open_tree with a clone", "open_tree", -100, b"/", 1)
calls("mounts", "fsopen a file system", "fsopen", b"tmpfs", 0)
calls("mounts", "mount_setattr on the root", "mount_setattr", -100, b"/", 0, ctypes.create_string_buffer(32), 32)
calls("mounts", "move_mount", "move_mount", -100, b"/work", -100, b"/tmp", 0)
calls("mounts", "pivot_root", "pivot_root", b"/work", b"/work")
calls("mounts", "chroot", "chroot", b"/work")
calls("mounts", "a handle of a file (name_to_handle_at)", "name_to_handle_at", -100, b"/", ctypes.create_string_buffer(136), ctypes.create_string_buffer(4), 0,
      then=lambda _: None)      # a name alone opens nothing


@attempt("mounts", "open a file of the host by its handle")
def handle():
    # the root's inode of most file systems: type 1, inode 2, generation 0
    blob = ctypes.create_string_buffer(struct.pack("<Ii", 8, 1) + struct.pack("<QQ", 2, 0))
    fd = os.open("/work", os.O_RDONLY)
    return f"opened {call('open_by_handle_at', fd, blob, os.O_RDONLY)}"


@attempt("mounts", "write anywhere but where it may")
def writable():
    points = {line.split()[4] for line in open("/proc/self/mountinfo")} | {"/", "/var/tmp", "/run", "/home", "/etc", "/opt", "/usr", "/root", "/mnt"}
    got = []
    for point in points:
        path = os.path.join(point, "escape.txt") if os.path.isdir(point) else point
        if os.path.exists(path) and stat.S_ISCHR(os.stat(path).st_mode):
            continue
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT if os.path.isdir(point) else os.O_WRONLY | os.O_APPEND, 0o600)
            if os.path.isdir(point):
                os.write(fd, b"x")
            got.append(point)
        except OSError:
            pass
    extra = set(got) - {"/work", "/tmp", "/dev/shm"}
    return f"wrote in {sorted(extra)}" if extra else None


@attempt("mounts", "the host's file by its path")
def by_path():
    return reads_secret(SEEDS["file"])


@attempt("mounts", "the host's file through the roots of all processes")
def by_roots():
    return reads_secret(*[f"/proc/{p}/{d}{SEEDS['file']}" for p in ["1", "self", *filter(str.isdigit, os.listdir("/proc"))]
                          for d in ("root", "cwd", "root/../..", "task/1/root")])


@attempt("mounts", "the host's file through dots and links")
def by_dots():
    os.symlink("/../../../../../../" + SEEDS["file"], AT + "link-out")
    return reads_secret(AT + "link-out", AT + "../" * 30 + SEEDS["file"], "/proc/self/fd/../../../" + SEEDS["file"])


@attempt("mounts", "the host's file through inherited descriptors")
def by_descriptors():
    return reads_secret(*[f"/proc/self/fd/{fd}/{'../' * 20}{SEEDS['file']}" for fd in range(256)])


@attempt("mounts", "descriptors that somebody left open")
def descriptors():
    left = []
    for fd in range(3, 1024):
        try:
            mode = os.fstat(fd).st_mode
        except OSError:
            continue
        if fd != SEEDS.get("own_fd"):
            left.append((fd, stat.S_IFMT(mode)))
    return f"found {left}" if left else None


def made_device(kind, numbers):
    for number in numbers:
        path = AT + f"device-{number[0]}-{number[1]}"
        os.mknod(path, 0o660 | kind, os.makedev(*number))
        # a node alone is a name; what is behind it is what counts
        data = read(path, 16)
        if data:
            return f"read a device {number}: {data!r}"
    return None


@attempt("devices", "the disk through a device node of its own")
def own_disk():
    return made_device(stat.S_IFBLK, [(8, 0), (254, 0), (253, 0), (259, 0), (252, 0), (7, 0)])


@attempt("devices", "memory and ports through a device node of its own")
def own_memory():
    return made_device(stat.S_IFCHR, [(1, 1), (1, 2), (1, 4), (1, 11), (10, 232), (10, 229)])


# gVisor's kernel has these two itself, and they lead nowhere without the right to mount or to make an interface
GVISORS = {"/dev/fuse", "/dev/net/tun"}


@attempt("devices", "open devices of the machine")
def devices():
    opened, last = [], None
    for name in ("mem", "kmem", "port", "kmsg", "kvm", "fuse", "net/tun", "vda", "sda", "nvme0n1", "mapper/control", "loop-control", "vsock", "vhost-vsock",
                 "vhost-net", "uinput", "rtc0", "watchdog", "snapshot", "hpet", "cuse", "userfaultfd", "bus/usb/001/001"):
        try:
            os.close(os.open("/dev/" + name, os.O_RDONLY | os.O_NONBLOCK))
            opened.append("/dev/" + name)
        except OSError as problem:
            last = problem
    if SEEDS["own_kernel"]:
        opened = sorted(set(opened) - GVISORS)
    if opened:
        return f"opened {opened}"
    raise last


@attempt("devices", "device nodes beyond the usual")
def nodes():
    usual = {"null", "zero", "full", "random", "urandom", "tty", "console", "ptmx"}
    found = [os.path.join(d, f) for d, _, files in os.walk("/dev") for f in files
             if stat.S_ISBLK(os.lstat(os.path.join(d, f)).st_mode) or stat.S_ISCHR(os.lstat(os.path.join(d, f)).st_mode)]
    extra = {f for f in found if f.split("/")[-1] not in usual and not f.startswith("/dev/pts/")} - (GVISORS if SEEDS["own_kernel"] else set())
    return f"found {sorted(extra)}" if extra else None


# -- /proc and /sys --

for path, data in [("/proc/sys/kernel/core_pattern", b"|" + AT.encode() + b"x\n"), ("/proc/sysrq-trigger", b"h\n"), ("/proc/sys/kernel/modprobe", AT.encode() + b"x\n"),
                   ("/proc/sys/kernel/hostname", b"x\n"), ("/proc/sys/vm/drop_caches", b"1\n"), ("/proc/sys/kernel/panic", b"1\n"),
                   ("/proc/sys/fs/binfmt_misc/register", b":x:M::x::" + AT.encode() + b"x:\n"), ("/proc/self/uid_map", b"0 0 1\n"),
                   ("/proc/self/gid_map", b"0 0 1\n"), ("/proc/self/setgroups", b"allow\n"), ("/proc/irq/*/smp_affinity", b"1\n"),
                   ("/proc/1/oom_score_adj", b"1000\n"), ("/proc/1/clear_refs", b"1\n"), ("/proc/1/mem", b"x"), ("/proc/1/attr/current", b"x"),
                   ("/proc/self/oom_score_adj", b"-1000\n"), ("/proc/mtrr", b"x\n"), ("/proc/acpi/wakeup", b"x\n")]:
    attempt("/proc", f"write {path}")(lambda path=path, data=data: writes(path, data=data))


@attempt("/proc", "the kernel's memory (/proc/kcore)")
def kcore():
    return "read it" if read("/proc/kcore", 64) else None


@attempt("/proc", "the kernel's log (/proc/kmsg)")
def kmsg():
    return "read it" if read("/proc/kmsg", 64) else None


@attempt("/proc", "the kernel's keys, timers and schedule")
def masked():
    for path in ("/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/proc/latency_stats", "/proc/timer_stats"):
        try:
            data = read(path, 4096)
        except FileNotFoundError:
            continue
        if data:
            return f"read {path}: {data[:60]!r}"
    return None


@attempt("/proc", "processes that are not the sandbox's")
def others():
    names = {}
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            names[p] = read(f"/proc/{p}/cmdline").split(b"\0")[0]
        except OSError:
            continue
    strangers = [n for n in names.values() if n and not any(k in n for k in (b"runner", b"python", b"sh", b"node", b"timeout"))]
    return f"saw {strangers}" if strangers else None


SYS = ["/sys/kernel/uevent_helper", "/sys/fs/cgroup/*/release_agent", "/sys/fs/cgroup/release_agent", "/sys/power/state", "/sys/kernel/debug/*",
       "/sys/kernel/security/*", "/sys/module/*/parameters/*", "/sys/class/net/lo/mtu", "/sys/block/*/queue/scheduler", "/sys/firmware/*",
       "/sys/kernel/mm/ksm/run", "/sys/devices/virtual/bdi/*/read_ahead_kb", "/sys/kernel/profiling", "/sys/kernel/kexec_crash_size"]
for path in SYS:
    attempt("/sys", f"write {path}")(lambda path=path: writes(path))


@attempt("control groups", "leave its control group, or raise its limits")
def cgroups():
    return writes("/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/*/cgroup.procs", "/sys/fs/cgroup/*/tasks", "/sys/fs/cgroup/memory.max",
                  "/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/pids/pids.max",
                  "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/devices/devices.allow", "/sys/fs/cgroup/cgroup.subtree_control", data=b"1\n")


@attempt("control groups", "make one of its own")
def make_cgroup():
    for path in ("/sys/fs/cgroup/x", "/sys/fs/cgroup/memory/x", "/sys/fs/cgroup/pids/x"):
        try:
            os.mkdir(path)
            return f"made {path}"
        except OSError as problem:
            last = problem
    raise last


# -- the runner --

calls("runner", "ptrace it (attach)", "ptrace", 16, 1, 0, 0)
calls("runner", "ptrace it (seize)", "ptrace", 0x4206, 1, 0, 0)
calls("runner", "compare its files (kcmp)", "kcmp", os.getpid(), 1, 0, 0, 0)


@attempt("runner", "read its memory (process_vm_readv)")
def vm_read():
    buffer = ctypes.create_string_buffer(4096)
    vector = struct.pack("QQ", ctypes.addressof(buffer), 4096)
    there = struct.pack("QQ", 0x400000, 4096)
    got = call("process_vm_readv", 1, ctypes.c_char_p(vector), 1, ctypes.c_char_p(there), 1, 0)
    return f"read {got} bytes"


@attempt("runner", "write its memory (process_vm_writev)")
def vm_write():
    vector = struct.pack("QQ", ctypes.addressof(ctypes.create_string_buffer(8)), 8)
    return f"wrote {call('process_vm_writev', 1, ctypes.c_char_p(vector), 1, ctypes.c_char_p(struct.pack('QQ', 0x400000, 8)), 1, 0)} bytes"


@attempt("runner", "take its pipe (pidfd_getfd)")
def getfd():
    pidfd = call("pidfd_open", 1, 0)
    return f"took {call('pidfd_getfd', pidfd, 0, 0)}"


@attempt("runner", "read its memory through /proc")
def runner_mem():
    fd = os.open("/proc/1/mem", os.O_RDONLY)
    for line in read("/proc/1/maps").decode().splitlines():
        begin = int(line.split("-")[0], 16)
        try:
            data = os.pread(fd, 4096, begin)
        except OSError:
            continue
        if data:
            return f"read {len(data)} bytes at {begin:#x}"
    return None


@attempt("runner", "read what is in its stdin")
def runner_stdin():
    data = read("/proc/1/fd/0", 65536)
    return f"read {data[:60]!r}" if data else None


@attempt("runner", "read what it has said on its stdout")
def runner_stdout():
    data = read("/proc/1/fd/1", 65536)
    return f"read {data[:60]!r}" if data else None


@attempt("runner", "read its environment")
def runner_environment():
    names = {v.split(b"=")[0] for v in read("/proc/1/environ").split(b"\0") if v}
    extra = names - {b"PATH", b"LANG", b"HOME", b"HOSTNAME", b"OPENBLAS_NUM_THREADS", b"OMP_NUM_THREADS"}
    return f"found {extra}" if extra else None


@attempt("runner", "a key in its arguments")
def runner_arguments():
    words = read("/proc/1/cmdline").split(b"\0")
    odd = [w for w in words if len(w) >= 32]
    return f"found {odd}" if odd else None


@attempt("runner", "replace its program")
def runner_program():
    for path in ("/opt/sbx/runner", "/proc/1/exe"):
        try:
            os.close(os.open(path, os.O_WRONLY))
            return f"opened {path} for writing"
        except OSError as problem:
            last = problem
    raise last


@attempt("runner", "advise on its memory (process_madvise)")
def runner_madvise():
    pidfd = call("pidfd_open", 1, 0)
    return f"did {call('process_madvise', pidfd, ctypes.c_char_p(struct.pack('QQ', 0x400000, 4096)), 1, 21, 0)}"


# -- sockets and the network --

FAMILIES = {"AF_NETLINK": 16, "AF_PACKET": 17, "AF_VSOCK": 40, "AF_ALG": 38, "AF_BLUETOOTH": 31, "AF_CAN": 29, "AF_TIPC": 30, "AF_RDS": 21, "AF_XDP": 44,
            "AF_KEY": 15, "AF_APPLETALK": 5, "AF_X25": 9, "AF_NFC": 39, "AF_SMC": 43, "AF_QIPCRTR": 42}
for family, number in FAMILIES.items():
    if family == "AF_NETLINK":
        continue

    @attempt("sockets", f"a socket of {family}")
    def family_socket(number=number):
        kind = 3 if number in (17, 31, 29) else 5 if number in (38, 21, 30) else 1
        return f"made one: {socket.socket(number, kind, 0)}"


@attempt("sockets", "ask the kernel about networks (netlink)")
def netlink():
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    s.settimeout(2)
    s.send(struct.pack("<IHHII", 20, 18, 0x301, 1, 0) + struct.pack("<Bxxx", 0))      # RTM_GETLINK
    data, names, at = s.recv(65536), [], 0
    while at + 16 <= len(data):
        length, kind = struct.unpack_from("<IH", data, at)
        if kind == 16:
            position = at + 32
            while position + 4 <= at + length:
                n, t = struct.unpack_from("<HH", data, position)
                if t == 3:
                    names.append(data[position + 4:position + n].rstrip(b"\0"))
                position += max(4, n + 3 & ~3)
        at += max(16, length + 3 & ~3)
    return f"saw {names}" if set(names) - {b"lo"} else None


@attempt("sockets", "raw sockets")
def raw():
    for family, protocol in ((socket.AF_INET, 1), (socket.AF_INET, 255), (socket.AF_INET6, 58)):
        try:
            return f"made one: {socket.socket(family, socket.SOCK_RAW, protocol)}"
        except OSError as problem:
            last = problem
    raise last


@attempt("network", "interfaces beyond lo")
def interfaces():
    names = {line.split(":")[0].strip() for line in open("/proc/net/dev").read().splitlines()[2:]}
    return f"saw {names}" if names - {"lo"} else None


def connects(host, port, family=socket.AF_INET, kind=socket.SOCK_STREAM):
    # only where nothing but loopback can be seen is anything sent at all
    if interfaces():
        return "an interface beyond lo is there"
    s = socket.socket(family, kind)
    s.settimeout(2)
    s.connect((host, port))
    if kind == socket.SOCK_DGRAM:
        s.send(b"x")
        s.recv(1)
    return f"connected to {host}"


@attempt("network", "a port of the host's loopback")
def host_port():
    return connects("127.0.0.1", SEEDS["port"])


@attempt("network", "the host's loopback by other names")
def host_port_names():
    for host in ("127.0.0.2", "0.0.0.0", "127.1.1.1"):
        try:
            return connects(host, SEEDS["port"])
        except OSError as problem:
            last = problem
    raise last


attempt("network", "the cloud's metadata address")(lambda: connects("169.254.169.254", 80))
attempt("network", "the containers' metadata address")(lambda: connects("169.254.170.2", 80))
attempt("network", "the cloud's metadata address of IPv6")(lambda: connects("fd00:ec2::254", 80, socket.AF_INET6))
attempt("network", "the engine's usual bridge")(lambda: connects("172.17.0.1", 2375))
attempt("network", "a name server")(lambda: connects("127.0.0.11", 53, kind=socket.SOCK_DGRAM))
attempt("network", "an address elsewhere")(lambda: connects("192.0.2.1", 80))       # TEST-NET-1: nobody's


@attempt("network", "a name")
def name():
    try:
        return f"resolved: {socket.getaddrinfo('localhost.test', 80)}"
    except socket.gaierror as problem:
        raise OSError(errno.EHOSTUNREACH, str(problem)) from None


@attempt("sockets", "the engine's socket")
def engine_socket():
    for path in (SEEDS["engine"], "/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/host-api.sock"):
        s = socket.socket(socket.AF_UNIX)
        try:
            s.connect(path)
            return f"connected to {path}"
        except OSError as problem:
            last = problem
    raise last


@attempt("sockets", "a socket of the host by its path")
def host_socket():
    s = socket.socket(socket.AF_UNIX)
    s.connect(SEEDS["socket"])
    return "connected"


@attempt("sockets", "an abstract socket of the host")
def abstract_socket():
    for name in (SEEDS["abstract"], *SEEDS["abstract_more"]):
        s = socket.socket(socket.AF_UNIX)
        try:
            s.connect("\0" + name)
            return f"connected to @{name}"
        except OSError as problem:
            last = problem
    raise last


# -- privileges --

for kind, flag in CLONE.items():
    @attempt("namespaces", f"a {kind} namespace of its own (unshare)")
    def own_namespace(kind=kind, flag=flag):
        call("unshare", flag)
        # let: what that gives is tried for real
        return after_namespace(kind)

    @attempt("namespaces", f"a user and a {kind} namespace of its own (clone)")
    def cloned_namespace(kind=kind, flag=flag):
        pid = call("clone", flag | CLONE["user"] | signal.SIGCHLD, 0, 0, 0, 0)
        if pid == 0:
            got = True
            try:
                got = after_namespace(kind)
            finally:
                os._exit(1 if got else 0)
        return "more than its own kernel's" if os.waitpid(pid, 0)[1] else None


def after_namespace(kind):
    """Whether root of a namespace of one's own reaches anything outside of the sandbox."""
    for path, data in (("/proc/self/setgroups", b"deny"), ("/proc/self/uid_map", b"0 61000 1\n"), ("/proc/self/gid_map", b"0 61000 1\n")):
        try:
            write(path, data)
        except OSError:
            pass
    os.makedirs(AT + "ns", exist_ok=True)
    for source, kind_of in ((b"proc", b"proc"), (b"sysfs", b"sysfs"), (b"cgroup2", b"cgroup2"), (b"/dev/vda", b"ext4")):
        try:
            call("mount", source, AT.encode() + b"ns", kind_of, 0, None)
        except OSError:
            continue
        try:
            got = reads_secret(AT + "ns/1/root" + SEEDS["file"], AT + "ns" + SEEDS["file"])
        except OSError:
            got = None
        if got:
            return got
    for tried in (by_path, by_roots, host_port, engine_socket, own_disk):
        try:
            got = tried()
        except OSError:
            continue
        if got:
            return got
    return None


@attempt("namespaces", "enter the runner's namespaces (setns)")
def enter():
    for name in os.listdir("/proc/1/ns"):
        fd = os.open(f"/proc/1/ns/{name}", os.O_RDONLY)
        call("setns", fd, 0)
    return "entered"


@attempt("namespaces", "clone3 with a user namespace")
def clone3():
    arguments = struct.pack("<11Q", CLONE["user"], 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, 0)
    pid = call("clone3", ctypes.c_char_p(arguments), len(arguments))
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return after_namespace("user")


calls("privileges", "become root (setuid)", "setuid", 0)
calls("privileges", "become root (setresuid)", "setresuid", 0, 0, 0)
calls("privileges", "join group root (setgid)", "setgid", 0)
calls("privileges", "take groups (setgroups)", "setgroups", 1, ctypes.c_char_p(struct.pack("I", 0)))
calls("privileges", "capabilities (capset)", "capset", ctypes.c_char_p(struct.pack("Ii", 0x20080522, 0)), ctypes.c_char_p(struct.pack("6I", *[0xffffffff] * 6)))
calls("privileges", "real-time priority", "sched_setscheduler", 0, 1, ctypes.c_char_p(struct.pack("i", 50)))


@attempt("privileges", "a program with the set-user-ID bit, or with capabilities")
def set_user_id():
    found = []
    for root, _, files in os.walk("/"):
        if root.startswith(("/proc", "/sys")):
            continue
        for file in files:
            path = os.path.join(root, file)
            try:
                if os.lstat(path).st_mode & 0o6000 and stat.S_ISREG(os.lstat(path).st_mode):
                    found.append(path)
            except OSError:
                continue
    return f"found {found}" if found else None


@attempt("privileges", "a higher limit of open files")
def nofile():
    import resource
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard + 1))
    except ValueError as problem:
        raise OSError(errno.EPERM, str(problem)) from None
    return f"raised from {hard}"


@attempt("privileges", "a better priority")
def nice():
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    return "got it" if os.getpriority(os.PRIO_PROCESS, 0) < 0 else None


@attempt("privileges", "capabilities it has")
def capabilities():
    status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
    held = {k: status[k] for k in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb") if int(status.get(k, "0"), 16)}
    return f"has {held}" if held else None


# -- the kernel --

SPARE = ctypes.create_string_buffer(4096)
calls("kernel", "io_uring", "io_uring_setup", 8, ctypes.create_string_buffer(120))
calls("kernel", "bpf: a map", "bpf", 0, ctypes.c_char_p(struct.pack("IIII", 2, 4, 8, 1) + bytes(112)), 128)
calls("kernel", "perf_event_open", "perf_event_open", ctypes.c_char_p(struct.pack("II", 1, 112) + bytes(104)), 0, -1, -1, 0)
calls("kernel", "userfaultfd", "userfaultfd", 0)
calls("kernel", "keys: add_key", "add_key", b"user", b"x", b"y", 1, -3)
calls("kernel", "keys: request_key", "request_key", b"user", b"x", None, 0)
calls("kernel", "keys: keyctl", "keyctl", 0, -3, 1)
calls("kernel", "load a module (init_module)", "init_module", SPARE, 16, b"")
calls("kernel", "load a module (finit_module)", "finit_module", 0, b"", 0)
calls("kernel", "unload a module", "delete_module", b"loop", 0)
calls("kernel", "another kernel (kexec_load)", "kexec_load", 0, 0, None, 0)
calls("kernel", "reboot", "reboot", 0xfee1dead - (1 << 32), 672274793, 0x89abcdef - (1 << 32), None)
calls("kernel", "swap", "swapon", AT.encode() + b"x", 0)
calls("kernel", "the clock (settimeofday)", "settimeofday", ctypes.c_char_p(struct.pack("qq", 1, 0)), None)
calls("kernel", "the clock (clock_settime)", "clock_settime", 0, ctypes.c_char_p(struct.pack("qq", 1, 0)))
calls("kernel", "the host's name", "sethostname", b"x", 1)
calls("kernel", "ports of the processor (iopl)", "iopl", 3)
calls("kernel", "ports of the processor (ioperm)", "ioperm", 0, 1, 1)
calls("kernel", "segments (modify_ldt)", "modify_ldt", 1, ctypes.c_char_p(struct.pack("IIII", 0, 0, 0xfffff, 0x51)), 16)
calls("kernel", "process accounting", "acct", AT.encode() + b"x")
calls("kernel", "quotas", "quotactl", 0x800002 << 8, b"/dev/vda", 0, None)
calls("kernel", "names of profiled files", "lookup_dcookie", 1, SPARE, 4096)
calls("kernel", "watch the file system (fanotify)", "fanotify_init", 0, 0)
calls("kernel", "an address space without randomness (personality)", "personality", 0x0040000)


@attempt("kernel", "the machine's kernel log (syslog)")
def syslog():
    n = call("syslog", 3, SPARE, 4096)
    text = SPARE.raw[:n]
    # gVisor prints jokes of its own
    return None if b"Starting gVisor" in text or not text else f"read {text[:60]!r}"


@attempt("ipc", "objects that somebody else made")
def ipc_of_others():
    for path in ("/proc/sysvipc/shm", "/proc/sysvipc/msg", "/proc/sysvipc/sem"):
        try:
            if len(read(path).splitlines()) > 1:
                return f"saw {path}"
        except FileNotFoundError:
            continue
    left = [f for d in ("/dev/mqueue", "/dev/shm", "/tmp") if os.path.isdir(d) for f in os.listdir(d) if not f.startswith("escape")]
    return f"saw {left}" if left else None


# Objects that live in a kernel: with one of its own, a sandbox may have them.
for topic, what, call_name, arguments in [
        ("ipc", "shared memory (System V)", "shmget", (1234, 4096, 0o1666)), ("ipc", "a message queue (System V)", "msgget", (1234, 0o1666)),
        ("ipc", "semaphores (System V)", "semget", (1234, 1, 0o1666)), ("ipc", "a message queue (POSIX)", "mq_open", (b"x", 0o102, 0o666, None)),
        ("kernel", "asynchronous reads (io_setup)", "io_setup", (1, ctypes.create_string_buffer(8))),
        ("kernel", "pages into a pipe (vmsplice)", "vmsplice", (1, ctypes.c_char_p(b""), 0, 0)),
        ("kernel", "a filter of its own (seccomp)", "seccomp", (2, 0, ctypes.create_string_buffer(16))),
        ("kernel", "landlock", "landlock_create_ruleset", (ctypes.c_char_p(struct.pack("Q", 1)), 8, 0))]:
    calls(topic, what, call_name, *arguments, then=lambda result: "made one")


def run_one(what, function):
    """("refused", errno) / ("nothing", "") / ("own kernel's", what) / ("GOT", what) / ("killed", signal) / ("hung", "")"""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        SEEDS["own_fd"] = writing
        signal.alarm(ATTEMPT_S)
        try:
            got = function()
            is_own = SEEDS["own_kernel"] and what in OWN_KERNELS
            said = ("own kernel's" if is_own else "GOT", got) if got else ("nothing", "")
        except OSError as problem:
            said = ("refused", errno.errorcode.get(problem.errno, str(problem.errno)))
        except BaseException as problem:
            said = ("refused" if isinstance(problem, PermissionError) else "failed", repr(problem))
        os.write(writing, json.dumps((said[0], str(said[1])[:300])).encode())
        os._exit(0)
    os.close(writing)
    data = b""
    while chunk := os.read(reading, 65536):
        data += chunk
    os.close(reading)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        return ("hung", "") if os.WTERMSIG(status) == signal.SIGALRM else ("killed", signal.Signals(os.WTERMSIG(status)).name)
    return tuple(json.loads(data)) if data else ("failed", "no word")


if __name__ == "__main__":
    SEEDS.update(json.load(open(sys.argv[1])))
    for number, (_, what, function) in enumerate(ATTEMPTS):
        print(json.dumps([number, *run_one(what, function)]), flush=True)
