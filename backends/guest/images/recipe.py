"""What is in each guest image, and the hash over everything it is made of."""
import hashlib
import pathlib
import platform
import re

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
SUITE = "bookworm"
# Times in the images are not after this: the same inputs give the same bytes.
EPOCH = 1767225600
RUNNER = ROOT / "build/guest/runner"
GUEST = 61000
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

ENV = {"PATH": PATH, "LANG": "C.UTF-8"}
# A BLAS sizes its threads by the machine's processors, not by the quota; one also makes results repeatable.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

# image: package lists, whether the JavaScript toolchain is in it, environment
IMAGES = {
    "snippet": (("base",), False, ENV),
    "project": (("base",), True, ENV),
    "python": (("base", "python"), True, ENV | ONE_THREAD),
    "wasm-cc": (("base", "wasm-cc"), True, ENV),
}
TREES = {"toolchain": "/opt/toolchain", "modules": ""}
COMMANDS = ("tsc", "tsx", "eslint")
# These decide what the bytes of an image are; how it gets into the Engine does not.
CODE = ("recipe.py", "roots.py", "compose.py", "finish", "excludes")


def architecture():
    """Debian's name of this machine's."""
    names = {"x86_64": "amd64", "aarch64": "arm64"}
    machine = platform.machine()
    if machine not in names:
        raise SystemExit(f"guest images are for x86_64 and aarch64; this machine is {machine}")
    return names[machine]


def rows(path):
    lines = (line.split("#")[0].split() for line in path.read_text().splitlines())
    return [row for row in lines if row]


def packages(lists):
    return sorted({row[0] for name in lists for row in rows(HERE / f"packages/{name}.txt")})


def node_pin():
    """(package, version, integrity) of Node for this machine."""
    for arch, package, version, integrity in rows(HERE / "node.txt"):
        if arch == architecture():
            return package, version, integrity
    raise SystemExit(f"node.txt has no line for {architecture()}")


def protocol():
    """The number of the runner's frames, as its own header has it."""
    return re.search(r"\bJOB_PROTOCOL = (\d+)", (ROOT / "backends/guest/job.h").read_text()).group(1)


def digest_of(parts):
    h = hashlib.sha256()
    for name, data in parts:
        h.update(f"{name} {len(data)}\n".encode() + data)
    return h.hexdigest()


def root_digest(lists):
    """What an unpacked set of packages is made of, so far as it is ours; which versions a mirror had is not."""
    return digest_of([(n, (HERE / n).read_bytes()) for n in ("roots.py", "finish")]
                     + [("packages", " ".join(packages(lists)).encode()), ("arch", f"{architecture()} {SUITE} {EPOCH}".encode())])


def tree_digest(tree):
    return digest_of([(n, (HERE / tree / n).read_bytes()) for n in ("package.json", "package-lock.json")] + [("arch", architecture().encode())])


def inputs(image):
    """The hash that an image's label `sbx.inputs` carries. Needs the built runner."""
    lists, has_toolchain, env = IMAGES[image]
    parts = [(n, (HERE / n).read_bytes()) for n in CODE]
    parts += [("image", f"{image} {env}".encode()), ("root", root_digest(lists).encode()), ("node", " ".join(node_pin()).encode())]
    if has_toolchain:
        parts += [(t, tree_digest(t).encode()) for t in TREES]
    parts += [("protocol", protocol().encode()), ("runner", RUNNER.read_bytes())]
    return digest_of(parts)


def labels(image):
    return {"sbx.runner.protocol": protocol(), "sbx.inputs": inputs(image), "sbx.node": node_pin()[1]}


def changes(image):
    """Lines of a Dockerfile that the Engine's import applies to the new image."""
    lines = [f"USER {GUEST}:{GUEST}", 'ENTRYPOINT ["/opt/sbx/runner"]']
    lines += [f"ENV {k}={v}" for k, v in IMAGES[image][2].items()]
    lines += [f"LABEL {k}={v}" for k, v in labels(image).items()]
    return lines
