"""The parts that images are composed of, each made once and kept under build/images by the hash of what it is made from."""
import base64
import hashlib
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile

import recipe

CACHE = recipe.ROOT / "build/images"
COMMAND_S = 900  # of one command that fetches: over a slow line it takes minutes, and a mirror that hangs ends it


class Problem(Exception):
    """Something the person at the terminal has to see; the text says what to do."""


def keep_newest(path, pattern):
    """Removes what `path` replaces."""
    for old in CACHE.glob(pattern):
        if old != path:
            shutil.rmtree(old) if old.is_dir() else old.unlink()


def run(command, what, **keywords):
    try:
        p = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                           timeout=COMMAND_S, **keywords)
    except subprocess.TimeoutExpired as e:
        raise Problem(f"{what} took longer than {COMMAND_S} s; nothing was built") from e
    if p.returncode != 0:
        raise Problem(f"{what} failed ({command[0]} ended with {p.returncode}):\n" + "\n".join(p.stdout.splitlines()[-15:]))


def package_root(lists):
    """The tar of unpacked Debian packages."""
    name = "+".join(lists)
    path = CACHE / f"root-{name}-{recipe.root_digest(lists)[:16]}.tar"
    if path.exists():
        return path
    temporary = path.with_suffix(".part")
    # the text, not the file: inside of the mode `unshare` this tree may be out of reach
    hook = (recipe.HERE / "finish").read_text()
    command = ["mmdebstrap", "--quiet", "--mode=" + ("root" if os.geteuid() == 0 else "unshare"), "--variant=extract", "--format=tar",
               "--include=" + ",".join(recipe.packages(lists)), "--aptopt=Acquire::Languages \"none\"", "--extract-hook=" + hook, recipe.SUITE, str(temporary)]
    # A mirror, or a snapshot of one for an exact repetition; empty: mmdebstrap's own default with security updates.
    mirror = os.environ.get("IMAGES_MIRROR")
    run(command + ([mirror] if mirror else []), f"unpacking the packages of {name}",
        env=os.environ | {"SOURCE_DATE_EPOCH": str(recipe.EPOCH), "LC_ALL": "C", "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"})
    temporary.rename(path)
    keep_newest(path, f"root-{name}-*")
    return path


def matches_integrity(data, integrity):
    """Subresource integrity, as package-lock.json writes it."""
    algorithm, _, value = integrity.partition("-")
    return hashlib.new(algorithm, data).digest() == base64.b64decode(value)


def node():
    """Upstream's `node` of the pinned version."""
    package, version, integrity = recipe.node_pin()
    path = CACHE / f"node-{version}-{recipe.architecture()}"
    if path.exists():
        return path
    with tempfile.TemporaryDirectory(dir=CACHE) as work:
        run(["npm", "pack", "--silent", "--ignore-scripts", f"{package}@{version}"], f"fetching {package} {version}", cwd=work)
        [tgz] = pathlib.Path(work).glob("*.tgz")
        if not matches_integrity(tgz.read_bytes(), integrity):
            raise Problem(f"{package} {version} as served is not what node.txt pins; nothing of it was used")
        with tarfile.open(tgz) as tar, tar.extractfile("package/bin/node") as source, open(work + "/node", "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        os.rename(work + "/node", path)
    keep_newest(path, "node-*")
    return path


def js_tree(tree):
    """A directory with node_modules as its lockfile says; no package's script runs."""
    path = CACHE / f"{tree}-{recipe.tree_digest(tree)[:16]}"
    if path.exists():
        return path
    with tempfile.TemporaryDirectory(dir=CACHE) as work:
        inside = pathlib.Path(work) / tree
        inside.mkdir()
        for name in ("package.json", "package-lock.json"):
            shutil.copy(recipe.HERE / tree / name, inside)
        run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--omit=dev"], f"installing the packages of {tree}", cwd=inside)
        inside.rename(path)
    keep_newest(path, f"{tree}-*")
    return path
