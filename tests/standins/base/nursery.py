"""Makes boxes: a small process of one thread, forked from before it knows anything, so that a box costs a few system calls.

Run by box.py with one end of a socket as its standard input. One message asks for one box and carries the box's own socket; the box's first
process (number 1 inside) then takes its orders from that socket until it ends, and everything in the box ends with it. The nursery ends with
its parent, and every box with the nursery.

Built by root, a box has a user namespace whose root is nobody outside, and mounts its own root may not change. Built by another user, that
user is the box's root, and there is one user inside.
"""
# Everything is imported here: inside a box there may be no library of Python to import from later.
import ctypes
import fcntl
import os
import platform
import shutil
import signal
import socket
import struct
import sys
import traceback
import warnings  # noqa: F401  os.execvpe would

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from inside import Inside  # noqa: E402
from messages import Orders, receive, send  # noqa: E402

USER = 1000


def _ids():
    """(the first, how many) IDs of this machine that are the boxes': far from anybody else's, or where there are fewer, in a container, the upper half."""
    with open("/proc/self/uid_map", encoding="ascii") as f:
        have = max((int(first) + int(count) for first, _, count in map(str.split, f)), default=0)
    return (200000, 65536) if have >= 265536 else (have // 2, have - have // 2)


HOST_UID, UIDS = _ids()       # the boxes' root, and how many IDs from there are theirs
SIZE_MAX = "512m"
SYS_CLONE = {"x86_64": 56, "aarch64": 220}
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

libc = ctypes.CDLL(None, use_errno=True)
libc.mount.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p]
libc.syscall.restype = ctypes.c_long


def check(result, what):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def mount(source, target, kind, flags=0, data=None):
    enc = lambda s: s.encode() if s is not None else None  # noqa: E731
    check(libc.mount(enc(source), enc(target), enc(kind), flags, enc(data)), f"mount {target}")


def bind(source, target, read_only=True, nodev=True):
    mount(source, target, None, MS_BIND)
    if read_only:
        # flags that the source's mount has may not be left out by a user who is not its owner
        flags = MS_RDONLY | MS_NOSUID | (MS_NODEV if nodev else 0)
        try:
            mount(None, target, None, MS_BIND | MS_REMOUNT | flags)
        except OSError:
            mount(None, target, None, MS_BIND | MS_REMOUNT | flags | MS_NODEV | MS_NOEXEC * (not os.access(source, os.X_OK)))


def write(path, text, mode=0o644):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    os.write(fd, text.encode())
    os.close(fd)


# -- the root of a box --

TOP = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
OF_ETC = ("ssl", "alternatives", "ld.so.cache", "ld.so.conf.d", "ld.so.conf", "ca-certificates", "localtime", "bash.bashrc", "nsswitch.conf",
          "protocols", "services", "login.defs", "pam.d", "pam.conf", "security")


def tools():
    """Folders outside /usr that hold the runtimes tests use."""
    found = []
    for name in ("node", "bash"):
        path = shutil.which(name)
        if path:
            prefix = os.path.dirname(os.path.dirname(os.path.realpath(path)))
            if prefix not in ("/", "") and not prefix.startswith("/usr") and prefix not in found:
                found.append(prefix)
    return found


def is_merged(name):
    return os.path.islink("/" + name)


class Recipe:
    """What every box's root is made of; found out once."""

    def __init__(self):
        self.links = [(os.readlink("/" + n), "/" + n) for n in TOP if is_merged(n)]
        self.read_only = ["/usr"] + ["/" + n for n in TOP if os.path.isdir("/" + n) and not is_merged(n)] + tools()
        self.etc = []
        for name in OF_ETC:
            path = "/etc/" + name
            if os.path.isdir(path):
                self.etc.append((path, None))
            elif os.path.isfile(path) and os.path.getsize(path) < 1 << 20:
                with open(path, "rb") as f:
                    self.etc.append((path, f.read()))
        self.bin = ":".join(["/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", *(t + "/bin" for t in tools())])

    def build(self, root, name, uid, tmp):
        """A file system at `root`, ready to become /; `uid` owns what is made."""
        mount("box", root, "tmpfs", MS_NOSUID | MS_NODEV, f"mode=755,size={SIZE_MAX}" + (f",uid={uid},gid={uid}" if uid else ""))
        if uid:
            # makes files as the box's root does, and keeps the right to mount
            libc.setfsgid(uid)
            libc.setfsuid(uid)
        for path in ("/etc", "/home", "/home/user", "/root", "/tmp", "/var", "/var/tmp", "/run", "/proc", "/dev", "/opt", "/srv", "/mnt"):
            os.mkdir(root + path)
        if tmp:
            mount("tmp", root + "/tmp", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, f"mode=1777,size={tmp}" + (f",uid={uid},gid={uid}" if uid else ""))
        else:
            os.chmod(root + "/tmp", 0o1777)
        os.chmod(root + "/var/tmp", 0o1777)
        os.chmod(root + "/root", 0o700)
        for target, link in self.links:
            os.symlink(target, root + link)
        for path in self.read_only:
            os.makedirs(root + path)
            bind(path, root + path)
        for path, content in self.etc:
            if content is None:
                os.mkdir(root + path)
                bind(path, root + path)
            else:
                write(root + path, content.decode("latin-1")) if content.isascii() else open(root + path, "wb").write(content)
        user = USER if uid else 0
        write(root + "/etc/passwd", f"root:x:0:0:root:/root:/bin/bash\nuser:x:{user}:{user}::/home/user:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n")
        write(root + "/etc/group", f"root:x:0:\nuser:x:{user}:\nnogroup:x:65534:\n")
        write(root + "/etc/shadow", "root::20000:0:99999:7:::\nuser::20000:0:99999:7:::\nnobody:*:20000:0:99999:7:::\n", 0o640)
        write(root + "/etc/hosts", f"127.0.0.1\tlocalhost {name}\n::1\tlocalhost\n")
        write(root + "/etc/hostname", name + "\n")
        write(root + "/etc/resolv.conf", "options attempts:1 timeout:1\n")
        write(root + "/etc/profile", f'PATH="{self.bin}"; export PATH\n')
        dev = root + "/dev"
        mount("dev", dev, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755,size=1m" + (f",uid={uid},gid={uid}" if uid else ""))
        for node in ("null", "zero", "full", "random", "urandom", "tty"):
            write(f"{dev}/{node}", "", 0o666)
            bind("/dev/" + node, f"{dev}/{node}", read_only=False)
        for target, link in (("/proc/self/fd", "fd"), ("/proc/self/fd/0", "stdin"), ("/proc/self/fd/1", "stdout"), ("/proc/self/fd/2", "stderr")):
            os.symlink(target, f"{dev}/{link}")
        os.mkdir(dev + "/shm")
        os.chmod(dev + "/shm", 0o1777)
        mount("shm", dev + "/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777,size=64m")
        if uid:
            libc.setfsuid(0)
            libc.setfsgid(0)
            os.chown(root + "/home/user", uid + USER, uid + USER)
        mount("proc", root + "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)


def lo_up():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, 0x8914, struct.pack("16sH14s", b"lo", 0x1 | 0x40, b""))


def become_root_of(root):
    os.chdir(root)
    check(libc.syscall(SYS_PIVOT_ROOT[platform.machine()], b".", b"."), "pivot_root")
    check(libc.umount2(b".", MNT_DETACH), "umount")
    os.chdir("/")


def holder_of_user_namespace():
    """A descriptor of a user namespace whose IDs begin at HOST_UID outside; all boxes share it, and none sees another."""
    ready_r, ready_w = os.pipe()
    done_r, done_w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ready_r)
        os.close(done_w)
        os.write(ready_w, b"1" if libc.unshare(NEWUSER) == 0 else b"0")
        os.read(done_r, 1)
        os._exit(0)
    os.close(ready_w)
    os.close(done_r)
    try:
        if os.read(ready_r, 1) != b"1":
            raise OSError("no user namespace")
        for kind in ("uid", "gid"):
            write(f"/proc/{pid}/{kind}_map", f"0 {HOST_UID} {UIDS}\n")
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(done_w)
        os.close(ready_r)
        os.waitpid(pid, 0)


class Nursery:
    def __init__(self, sock, root, mode):
        self.sock, self.root, self.mode = sock, root, mode
        self.boxes = {}
        self.user_namespace = None
        self.recipe = None
        self.why_plain = None
        if mode != "plain":
            self.prepare()

    def prepare(self):
        """A box for trial: it says whether this machine lets boxes be made."""
        self.recipe = Recipe()
        try:
            if os.geteuid() == 0:
                self.user_namespace = holder_of_user_namespace()
            os.makedirs(self.root, exist_ok=True)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with ours:
                self.mode = "ns"
                pid = self.bear("trial", theirs, None)
                theirs.close()
                answer = receive(ours)
            os.waitpid(pid, 0)
            if not answer or answer[0].get("up") is not True:
                raise OSError(answer[0].get("error") if answer else "the first process ended")
        except (OSError, KeyError) as e:
            if self.mode == "ns" and os.environ.get("STANDIN_BOX") == "ns":
                raise
            self.mode, self.why_plain = "plain", str(e)

    def bear(self, name, sock, directory, tmp=None, has_network=False):
        """Forks a box's first process; the number outside."""
        sys.stdout.flush()
        if self.mode == "plain":
            pid = os.fork()
        else:
            flags = NEWNS | NEWPID | NEWIPC | NEWUTS | (0 if has_network else NEWNET) | (0 if os.geteuid() == 0 else NEWUSER)
            pid = check(libc.syscall(SYS_CLONE[platform.machine()], flags | signal.SIGCHLD, 0, 0, 0, 0), "clone")
        if pid:
            return pid
        try:
            self.grow(name, sock, directory, tmp, has_network)
        except BaseException as e:  # noqa: BLE001
            try:
                send(sock, {"up": False, "error": repr(e) + "".join(traceback.format_tb(e.__traceback__)[-1:])})
            except OSError:
                pass
        finally:
            os._exit(1)

    def grow(self, name, sock, directory, tmp, has_network):
        signal.set_wakeup_fd(-1)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        self.sock.close()
        if self.mode == "plain":
            libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            for path in ("home/user", "tmp", "root"):
                os.makedirs(f"{directory}/{path}", exist_ok=True)
            users = {"root": (os.getuid(), os.getgid(), f"{directory}/root"), "user": (os.getuid(), os.getgid(), f"{directory}/home/user")}
            box = Inside(sock, users, os.environ.get("PATH", ""), directory)
        else:
            as_root = os.geteuid() == 0
            if not as_root:
                uid, gid = os.getuid(), os.getgid()
                self.map_self()
            mount(None, "/", None, MS_REC | MS_PRIVATE)
            socket.sethostname(name[:60])
            if not has_network:
                lo_up()
            self.recipe.build(self.root, name, HOST_UID if as_root else 0, tmp)
            become_root_of(self.root)
            if as_root:
                check(libc.setns(self.user_namespace, NEWUSER), "setns")
                os.close(self.user_namespace)
                os.setgroups([])
                os.setresgid(0, 0, 0)
                os.setresuid(0, 0, 0)
                # after a change of user it has to be said again
                libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                libc.prctl(4, 1, 0, 0, 0)
            user = USER if as_root else 0
            box = Inside(sock, {"root": (0, 0, "/root"), "user": (user, user, "/home/user")}, self.recipe.bin, None)
        os.umask(0o022)
        send(sock, {"up": True})
        if name != "trial":
            box.serve()
        os._exit(0)

    def map_self(self):
        """As a user without rights: the box's root is that user. The maps are written from inside, which such a user may."""
        outside = int(os.environ["STANDIN_UID"]), int(os.environ["STANDIN_GID"])
        write("/proc/self/setgroups", "deny")
        write("/proc/self/uid_map", f"0 {outside[0]} 1\n")
        write("/proc/self/gid_map", f"0 {outside[1]} 1\n")

    def serve(self):
        orders = Orders(self.sock, self.reap)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)     # the parent decides
        users = "two" if os.geteuid() == 0 and self.mode == "ns" else "one"
        send(self.sock, {"mode": self.mode, "users": users, "why_plain": self.why_plain, "tools": tools()})
        for asked in orders:
            self.make(*asked)

    def make(self, asked, fds):
        with socket.socket(fileno=fds[0]) as sock:
            try:
                pid = self.bear(asked["name"], sock, asked.get("directory"), asked.get("tmp"), asked.get("network"))
                self.boxes[pid] = asked["id"]
                send(self.sock, {"born": asked["id"], "pid": pid})
            except OSError as e:
                send(sock, {"up": False, "error": str(e)})
                send(self.sock, {"gone": asked["id"]})

    def reap(self):
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            name = self.boxes.pop(pid, None)
            if name is not None:
                try:
                    send(self.sock, {"gone": name})
                except OSError:
                    return


def main():
    root, mode = sys.argv[1], sys.argv[2]
    os.environ["STANDIN_UID"], os.environ["STANDIN_GID"] = str(os.getuid()), str(os.getgid())
    # its parent's end shows as the socket's end, so that there is time to tidy up
    sock = socket.socket(fileno=os.dup(0), family=socket.AF_UNIX, type=socket.SOCK_SEQPACKET)
    try:
        Nursery(sock, root, mode).serve()
    finally:
        os.rmdir(root)


if __name__ == "__main__":
    main()
