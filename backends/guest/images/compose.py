"""One image's tar, written as it is made: packages without what `excludes` names, Node, the toolchain, the runner, and the
contract of every guest image (accounts, writable places, nothing setuid)."""
import fnmatch
import io
import os
import posixpath
import re
import tarfile

import recipe

PASSWD = f"root:x:0:0:root:/:/usr/sbin/nologin\nguest:x:{recipe.GUEST}:{recipe.GUEST}::/work:/bin/sh\nnobody:x:65534:65534::/:/usr/sbin/nologin\n"
GROUP = f"root:x:0:\nguest:x:{recipe.GUEST}:\nnogroup:x:65534:\n"
# Left over from unpacking, or the Engine's to make.
NOT_OURS = re.compile(r"/(dev|proc|sys|run|boot|media|mnt|srv|root|home)/.|/var/(lib/(apt|dpkg)|cache|log|backups)/.|/etc/(apt/.*|fstab|hostname|resolv\.conf|passwd.*|group.*|shadow.*|gshadow.*)$")
WORLD_WRITABLE = ("tmp", "var/tmp", "work")


def rules(text):
    """dpkg's path filters: the last that matches decides."""
    found = []
    for line in text.splitlines():
        kind, _, glob = line.partition("=")
        if kind in ("path-exclude", "path-include"):
            found.append((kind == "path-exclude", re.compile(fnmatch.translate(glob)).match))
    return found


def is_excluded(path, filters):
    verdict = False
    for excludes, matches in filters:
        if matches(path):
            verdict = excludes
    return verdict


def kept_members(tar):
    """The members that go into the image, in order; links whose target was excluded go with it."""
    filters = rules((recipe.HERE / "excludes").read_text())
    kept, dropped = [], set()
    for member in tar:
        path = posixpath.normpath("/" + member.name)
        if NOT_OURS.match(path) or (not member.isdir() and is_excluded(path, filters)):
            dropped.add(path)
        else:
            kept.append((path, member))
    while True:
        dangling = [(p, m) for p, m in kept if (m.issym() and posixpath.normpath(posixpath.join(posixpath.dirname(p), m.linkname)) in dropped)
                    or (m.islnk() and posixpath.normpath("/" + m.linkname) in dropped)]
        if not dangling:
            break
        dropped |= {p for p, _ in dangling}
        kept = [(p, m) for p, m in kept if p not in dropped]
    # directories that nothing is in any more
    full = set()
    for path, member in kept:
        if not member.isdir() or path.count("/") == 1:
            while path not in full:
                full.add(path)
                path = posixpath.dirname(path)
    return [(p, m) for p, m in kept if p in full]


class Image:
    def __init__(self, out):
        self.tar = tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT, bufsize=1 << 20)
        self.seen = set()

    def add(self, info, source=None):
        # the Engine takes no path twice, not even a directory's; the first is the contract's
        info.name = posixpath.normpath("/" + info.name)[1:]
        if info.name in self.seen or not info.name:
            return
        self.seen.add(info.name)
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.mtime = min(int(info.mtime), recipe.EPOCH)
        info.mode &= 0o1777
        info.pax_headers = {}
        self.tar.addfile(info, source)

    def entry(self, name, kind, mode, **fields):
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.mtime = kind, mode, recipe.EPOCH
        for key, value in fields.items():
            setattr(info, key, value)
        return info

    def directory(self, name, mode=0o755):
        self.add(self.entry(name, tarfile.DIRTYPE, mode))

    def link(self, name, target):
        self.add(self.entry(name, tarfile.SYMTYPE, 0o777, linkname=target))

    def text(self, name, content):
        data = content.encode()
        self.add(self.entry(name, tarfile.REGTYPE, 0o644, size=len(data)), io.BytesIO(data))

    def program(self, name, path):
        with open(path, "rb") as source:
            self.add(self.entry(name, tarfile.REGTYPE, 0o755, size=os.stat(path).st_size), source)

    def packages(self, path):
        with tarfile.open(path) as root:
            for _, member in kept_members(root):
                self.add(member, root.extractfile(member) if member.isreg() else None)

    def tree(self, name, path):
        """A directory of the machine's, whoever owns it there."""
        self.directory(name)
        for entry in sorted(os.scandir(path), key=lambda e: e.name):
            inside = f"{name}/{entry.name}"
            if entry.is_symlink():
                self.link(inside, os.readlink(entry.path))
            elif entry.is_dir():
                self.tree(inside, entry.path)
            else:
                with open(entry.path, "rb") as source:
                    info = self.entry(inside, tarfile.REGTYPE, 0o755 if os.stat(entry.path).st_mode & 0o100 else 0o644, size=os.stat(entry.path).st_size)
                    self.add(info, source)


def compose(image, parts, out):
    """Writes the whole tar of `image` to `out`. parts: {"root", "node", "runner", "toolchain", "modules"} → path."""
    tar = Image(out)
    for name in ("etc", "usr", "usr/local", "usr/local/bin", "opt", "opt/sbx", "proc", "sys", "dev", "run", "home", "var"):
        tar.directory(name)
    for name in WORLD_WRITABLE:
        tar.directory(name, 0o1777)
    tar.text("etc/passwd", PASSWD)
    tar.text("etc/group", GROUP)
    tar.packages(parts["root"])
    tar.program("usr/local/bin/node", parts["node"])
    if recipe.IMAGES[image][1]:
        tar.tree("opt/toolchain", parts["toolchain"])
        tar.tree("node_modules", parts["modules"] / "node_modules")
        for command in recipe.COMMANDS:
            tar.link(f"usr/local/bin/{command}", f"/opt/toolchain/node_modules/.bin/{command}")
    tar.program("opt/sbx/runner", parts["runner"])
    # once more below /usr: an OpenShell sandbox shows little else of its image (docs/openshell.md)
    tar.directory("usr/libexec/plimsoll")
    tar.program("usr/libexec/plimsoll/runner", parts["runner"])
    tar.tar.close()
