"""The first process of a box: starts commands, says how they ended, and serves files as the box's root.

It takes messages from its socket (nursery.py says their form) and answers each by its id. In `plain` mode, which has no namespaces, paths below
/home/user, /root and /tmp mean the box's folder.
"""
import ctypes
import errno
import fcntl
import grp
import json
import os
import pwd
import resource
import select
import signal
import socket
import stat
import struct
import termios
import time

import landlock
from messages import Orders, send

ENTRIES_MAX = 10000
TRANSLATED = ("/home/user", "/tmp", "/root")
READY_S = 5


class Inside:
    def __init__(self, sock, users, path, directory):
        self.sock, self.users, self.path, self.directory = sock, users, path, directory
        self.started = {}       # process -> id of its spawn
        self.services = {}      # process -> id of its request

    # -- paths --

    def outside(self, text):
        """A path or a text with paths, as it is on the host in plain mode; unchanged otherwise."""
        if self.directory is None:
            return text
        for prefix in TRANSLATED:
            if text == prefix or text.startswith(prefix + "/"):
                return self.directory + text
        return text

    def inside(self, path):
        if self.directory is not None and path.startswith(self.directory + "/"):
            return path[len(self.directory):]
        return path

    def of_user(self, path, user):
        home = self.users[user][2]
        if path in ("", "~"):
            return home
        if path.startswith("~/"):
            return os.path.join(home, path[2:])
        return self.outside(os.path.normpath(path)) if path.startswith("/") else os.path.normpath(os.path.join(home, path))

    # -- orders --

    def serve(self):
        for value, fds in Orders(self.sock, self.reap):
            try:
                self.order(value, fds)
            except OSError as e:
                self.answer(value.get("id"), error=e.errno, text=str(e))
            finally:
                for fd in fds:
                    os.close(fd)
        self.kill_all(signal.SIGKILL, until_gone=True)

    def answer(self, number, fds=(), **fields):
        try:
            send(self.sock, {"id": number, **fields}, fds)
        except OSError:
            pass

    def order(self, value, fds):
        what = value["op"]
        if what == "spawn":
            self.spawn(value, fds)
        elif what == "kill":
            try:
                os.kill(value["pid"], value["signal"])
                self.answer(value["id"], done=True)
            except ProcessLookupError:
                self.answer(value["id"], done=False)
        elif what == "kill_all":
            self.kill_all(value["signal"])
            self.answer(value["id"], done=True)
        elif what == "processes":
            self.answer(value["id"], pids=self.processes())
        else:
            self.service(what, value, fds)

    # -- processes --

    def spawn(self, value, fds):
        uid, gid, home = self.users[value["user"]] if isinstance(value["user"], str) else (*value["user"], "/")
        said_r, said_w = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                os.setsid()
                for target, fd in enumerate(fds[:3]):
                    os.dup2(fd, target)
                if value.get("tty"):
                    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
                for number in range(1, signal.NSIG):
                    if number not in (signal.SIGKILL, signal.SIGSTOP) and signal.getsignal(number) not in (signal.SIG_DFL, None):
                        signal.signal(number, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_SETMASK, ())
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                os.umask(0o022)
                if self.directory is None and len(self.users["root"]) and self.users["user"][0] != 0:
                    os.setgroups([])
                    os.setresgid(gid, gid, gid)
                    os.setresuid(uid, uid, uid)
                os.chdir(self.outside(value["cwd"]) if value.get("cwd") else home)
                env = {k: self.outside(v) for k, v in value["env"].items()}
                env.setdefault("PATH", self.path)
                argv = [self.outside(a) for a in value["argv"]]
                if value.get("landlock") and self.directory is None:
                    landlock.restrict(*value["landlock"])
                os.execvpe(argv[0], argv, env)
            except OSError as e:
                os.write(said_w, json.dumps({"error": e.errno, "text": f"{value['cwd'] if e.filename == value.get('cwd') else value['argv'][0]}: {os.strerror(e.errno)}"}).encode())
            except BaseException as e:  # noqa: BLE001
                os.write(said_w, json.dumps({"error": errno.EINVAL, "text": repr(e)}).encode())
            finally:
                os._exit(127)
        os.close(said_w)
        said = b""
        while piece := os.read(said_r, 4096):
            said += piece
        os.close(said_r)
        if said:
            os.waitpid(pid, 0)
            self.answer(value["id"], **json.loads(said))
            return
        self.started[pid] = value["id"]
        self.answer(value["id"], pid=pid)

    def reap(self):
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            number = self.started.pop(pid, None)
            if number is not None:
                how = {"signal": os.WTERMSIG(status)} if os.WIFSIGNALED(status) else {"code": os.WEXITSTATUS(status)}
                self.answer(number, ended=pid, **how)
            elif pid in self.services:
                # says nothing when the service has answered: box.py has forgotten the id then
                self.answer(self.services.pop(pid), error=errno.EINTR, text="the service ended without an answer")

    def processes(self):
        if self.directory is None:
            return [int(n) for n in os.listdir("/proc") if n.isdigit() and n != "1" and self.parent_of(int(n)) is not None]
        parents = {}
        for name in os.listdir("/proc"):
            if name.isdigit():
                parents.setdefault(self.parent_of(int(name)), []).append(int(name))
        found, queue = [], [os.getpid()]
        while queue:
            for child in parents.get(queue.pop(), ()):
                found.append(child)
                queue.append(child)
        return found

    @staticmethod
    def parent_of(pid):
        try:
            with open(f"/proc/{pid}/stat") as f:
                return int(f.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            return None

    def kill_all(self, number, until_gone=False):
        if self.directory is None:
            try:
                os.kill(-1, number)
            except ProcessLookupError:
                pass
            return
        end = time.monotonic() + READY_S
        while True:
            for pid in self.processes():
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
            self.reap()
            if not until_gone or not self.processes() or time.monotonic() > end:
                return
            time.sleep(0.005)

    # -- files, each request in a process of its own: one that blocks (a FIFO) blocks nothing else --

    def service(self, what, value, fds):
        number = value["id"]
        pid = os.fork()
        if pid:
            self.services[pid] = number
            self.answer(number, service=pid)
            return
        try:
            signal.set_wakeup_fd(-1)
            fd, fields = getattr(self, "do_" + what)(value, fds)
            self.answer(number, [fd] if fd is not None else (), **fields)
        except OSError as e:
            self.answer(number, error=e.errno or errno.EIO, text=os.strerror(e.errno or errno.EIO), path=self.inside(str(e.filename or "")))
        except BaseException as e:  # noqa: BLE001
            self.answer(number, error=errno.EINVAL, text=repr(e))
        finally:
            os._exit(0)

    def target(self, value, key="path"):
        return self.of_user(value[key], value.get("user", "user"))

    def make_parents(self, path, user):
        """Missing folders, 0755, given to the user."""
        uid, gid, _ = self.users[user]
        made = []
        while not os.path.isdir(path):
            made.append(path)
            path = os.path.dirname(path)
        for folder in reversed(made):
            os.mkdir(folder, 0o755)
            os.chown(folder, uid, gid)
        return bool(made)

    def do_open(self, value, fds):
        path, user = self.target(value), value.get("user", "user")
        if value.get("parents"):
            self.make_parents(os.path.dirname(path), user)
        flags = value["flags"]
        is_new = bool(flags & os.O_CREAT) and not os.path.exists(path)
        fd = os.open(path, flags | os.O_NOCTTY, value.get("mode", 0o666))
        kind = os.fstat(fd)
        if value.get("owner") and (is_new or stat.S_ISREG(kind.st_mode)):
            os.fchown(fd, *self.users[user][:2])
        return fd, {"size": kind.st_size, "regular": stat.S_ISREG(kind.st_mode), "folder": stat.S_ISDIR(kind.st_mode), "path": self.inside(path)}

    def entry(self, path):
        own = os.lstat(path)
        found, target = own, None
        if stat.S_ISLNK(own.st_mode):
            target = os.path.realpath(path)
            try:
                found = os.stat(path)
            except OSError:
                found = own
        kinds = {stat.S_IFREG: "FILE_TYPE_FILE", stat.S_IFDIR: "FILE_TYPE_DIRECTORY", stat.S_IFLNK: "FILE_TYPE_SYMLINK"}

        def name_of(look, number):
            try:
                return look(number)[0]
            except KeyError:
                return str(number)
        value = {"name": os.path.basename(path), "type": kinds.get(stat.S_IFMT(found.st_mode)), "path": self.inside(path), "size": own.st_size,
                 "mode": stat.S_IMODE(own.st_mode), "permissions": permissions(own.st_mode), "owner": name_of(pwd.getpwuid, own.st_uid),
                 "group": name_of(grp.getgrgid, own.st_gid), "modified_ns": own.st_mtime_ns}
        if target is not None:
            value["symlink_target"] = self.inside(target)
        return value

    def do_stat(self, value, fds):
        return None, {"entry": self.entry(self.target(value))}

    def do_list(self, value, fds):
        top, depth = self.target(value), value.get("depth", 1)
        top = os.path.realpath(top)
        found = []

        def walk(folder, left):
            for name in sorted(os.listdir(folder)):
                path = os.path.join(folder, name)
                found.append(self.entry(path))
                if len(found) > ENTRIES_MAX:
                    raise OSError(errno.E2BIG, "too many entries", folder)
                if left > 1 and stat.S_ISDIR(os.lstat(path).st_mode):
                    walk(path, left - 1)
        if not os.path.isdir(top):
            os.lstat(top)
            raise OSError(errno.ENOTDIR, "not a folder", top)
        walk(top, depth)
        return None, {"entries": found}

    def do_mkdir(self, value, fds):
        path = self.target(value)
        if os.path.lexists(path):
            raise OSError(errno.EEXIST if os.path.isdir(path) else errno.ENOTDIR, "exists", path)
        self.make_parents(path, value.get("user", "user"))
        return None, {"entry": self.entry(path)}

    def do_move(self, value, fds):
        source, to = self.target(value, "source"), self.target(value, "destination")
        os.lstat(source)
        self.make_parents(os.path.dirname(to), value.get("user", "user"))
        os.rename(source, to)
        return None, {"entry": self.entry(to)}

    def do_remove(self, value, fds):
        path = self.target(value)

        def remove(p):
            if stat.S_ISDIR(os.lstat(p).st_mode):
                for name in os.listdir(p):
                    remove(os.path.join(p, name))
                os.rmdir(p)
            else:
                os.unlink(p)
        try:
            remove(path)
        except FileNotFoundError:
            pass
        return None, {}

    def do_space(self, value, fds):
        s = os.statvfs(self.of_user("~", "user"))
        return None, {"total": s.f_blocks * s.f_frsize, "free": s.f_bavail * s.f_frsize}

    def do_user(self, value, fds):
        """A user by name: the box's own, or one that its root has added."""
        name = value["name"]
        if name in self.users:
            uid, gid, home = self.users[name]
        elif self.directory is None:
            try:
                row = pwd.getpwnam(name)
            except KeyError:
                raise OSError(errno.ENOENT, "no such user", name) from None
            uid, gid, home = row.pw_uid, row.pw_gid, row.pw_dir
        else:
            raise OSError(errno.ENOENT, "no such user", name)
        return None, {"uid": uid, "gid": gid, "home": self.inside(home)}

    def do_watch(self, value, fds):
        """Events of one folder as lines of JSON, written to the given descriptor until its reader has gone."""
        libc = ctypes.CDLL(None, use_errno=True)
        top = os.path.realpath(self.target(value))
        if not os.path.isdir(top):
            os.lstat(top)
            raise OSError(errno.ENOTDIR, "not a folder", top)
        watcher = libc.inotify_init1(os.O_CLOEXEC)
        folders = {}
        mask = 0x2 | 0x4 | 0x40 | 0x80 | 0x100 | 0x200     # modify, attrib, moved from, moved to, create, delete

        def watch(folder):
            number = libc.inotify_add_watch(watcher, os.fsencode(folder), mask)
            if number < 0:
                return
            folders[number] = folder
            if value.get("recursive"):
                for e in os.scandir(folder):
                    if e.is_dir(follow_symlinks=False):
                        watch(e.path)
        watch(top)
        self.answer(value["id"], watching=True)
        kinds = ((0x100, "CREATE"), (0x2, "WRITE"), (0x200, "REMOVE"), (0x40, "RENAME"), (0x80, "CREATE"), (0x4, "CHMOD"))
        out = fds[0]
        poll = select.poll()
        poll.register(watcher, select.POLLIN)
        poll.register(out, 0)
        while True:
            ready = dict(poll.poll())
            if out in ready:
                os._exit(0)
            data, at = os.read(watcher, 65536), 0
            lines = []
            while at < len(data):
                number, bits, _, length = struct.unpack_from("iIII", data, at)
                name = os.fsdecode(data[at + 16:at + 16 + length].rstrip(b"\0"))
                at += 16 + length
                if not name or number not in folders:
                    continue
                full = os.path.join(folders[number], name)
                if bits & 0x40000000 and bits & 0x180 and value.get("recursive"):
                    watch(full)
                for bit, kind in kinds:
                    if bits & bit:
                        lines.append(json.dumps({"name": os.path.relpath(full, top), "type": "EVENT_TYPE_" + kind}) + "\n")
            if lines:
                os.write(out, "".join(lines).encode())


def permissions(mode):
    return stat.filemode(mode) if not stat.S_ISLNK(mode) else "L" + stat.filemode(mode)[1:]
