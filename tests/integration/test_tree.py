"""The tree keeps the order of its house: which folder may include which, headers that stand alone, one place for RPC errors, pages and tables
that agree with the code."""
import functools
import os
import pathlib
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# A folder may include from itself and from these. backends/ has one interface (backend.h, the role); what is inside one wall is the wall's.
ARROWS = {
    "core": set(),
    "config": {"core"},
    "records": {"core", "config"},
    "broker": {"core", "config", "records"},
    "backends": {"core", "config", "records"},
    "gateway": {"core", "config", "records", "broker", "backends"},
    "cli": {"core", "config", "records"},
}
FOLDERS = tuple(ARROWS)
LINES_MAX = 600
BYTES_MAX = 1024 * 1024
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)


@functools.cache
def tracked():
    """Every file under version control; in a tree without one, every file but what is built."""
    if (ROOT / ".git").exists() and shutil.which("git"):
        out = subprocess.run(["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
        names = [n for n in out.decode().split("\0") if n]
    else:
        names = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if p.is_file()]
        names = [n for n in names if not re.match(r"(build|\.git)/|.*(__pycache__|\.pytest_cache)/", n)]
    files = sorted(n for n in names if (ROOT / n).is_file())
    assert len(files) > 100, "the list of files is not the tree's"
    return files


@functools.cache
def text(name):
    return (ROOT / name).read_text(encoding="utf-8", errors="replace")


def sources(*endings, folders=FOLDERS):
    return [n for n in tracked() if n.endswith(endings) and n.split("/")[0] in folders]


def without_comments(code):
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", code, flags=re.S)


def is_allowed(name, included):
    """Whether the file `name` may include `included` (a path from the root)."""
    folder, target = name.split("/")[0], included.split("/")[0]
    if target != folder and target not in ARROWS[folder]:
        return False
    inside = re.match(r"backends/([^/]+)/", included)
    if inside is None:
        return True
    # one wall's files: for that wall, and for the table of walls in backends/backend.c, which takes the wall's own front header alone
    wall = inside.group(1)
    # the guests' runner, and the gateway's end of it, serve every wall that has an operating system inside
    if wall == "guest" and name.startswith("backends/") and name.count("/") > 1:
        return True
    # what the walls on somebody else's machines share is theirs, and no local wall's
    if wall == "cloud" and re.match(r"backends/(e2b|dockercloud|openshell)/", name):
        return True
    return name.startswith(f"backends/{wall}/") or (name == "backends/backend.c" and included == f"backends/{wall}/{wall}.h")


def test_the_rule_of_arrows_can_say_no():
    assert is_allowed("gateway/run.c", "backends/role.h") and is_allowed("records/store.c", "core/loop.h")
    assert not is_allowed("core/loop.c", "config/options.h")
    assert not is_allowed("config/options.c", "records/digest.h")
    assert not is_allowed("records/store.c", "backends/backend.h")
    assert not is_allowed("backends/role.c", "gateway/metrics.h")
    assert not is_allowed("cli/run.c", "gateway/refusal.h") and not is_allowed("cli/run.c", "backends/backend.h")
    assert not is_allowed("gateway/run.c", "backends/wasm/worker.h")
    assert not is_allowed("gateway/run.c", "backends/wasm/wasm.h")
    assert not is_allowed("backends/docker/docker.c", "backends/wasm/wire.h")
    assert is_allowed("backends/docker/run.c", "backends/guest/host.h") and not is_allowed("gateway/run.c", "backends/guest/host.h")
    assert not is_allowed("backends/guest/host.c", "backends/docker/engine.h") and not is_allowed("backends/role.c", "backends/guest/host.h")
    assert is_allowed("backends/e2b/run.c", "backends/cloud/cloud.h") and not is_allowed("backends/docker/run.c", "backends/cloud/cloud.h")
    assert not is_allowed("backends/guest/host.c", "backends/cloud/cloud.h") and not is_allowed("backends/cloud/cloud_run.c", "backends/e2b/e2b.h")
    assert not is_allowed("gateway/run.c", "tests/unit/store_fixture.h") and not is_allowed("gateway/run.c", "loadtest/load.h")


def test_includes_follow_the_arrows():
    wrong = []
    for name in sources(".c", ".h", ".def"):
        for included in INCLUDE.findall(text(name)):
            # a generated X.pb-c.h counts as its proto's folder: the path says it
            if included.split("/")[0] in FOLDERS + ("loadtest", "tests"):
                if not is_allowed(name, included):
                    wrong.append(f"{name} includes {included}")
            elif "/" in included:
                wrong.append(f"{name} includes {included}, which is no folder of the design")
            else:
                # without a folder: only what a build step makes, or something right beside the file, which is to be named in full
                if (ROOT / name).with_name(included).exists():
                    wrong.append(f"{name} includes {included} without its folder")
    assert not wrong, "\n".join(wrong)


def test_protos_follow_the_arrows():
    wrong = []
    for name in sources(".proto"):
        for included in re.findall(r'^import\s+(?:public\s+)?"([^"]+)"', text(name), re.M):
            if not included.startswith("google/") and not is_allowed(name, included):
                wrong.append(f"{name} imports {included}")
    assert not wrong, "\n".join(wrong)


def test_included_files_exist():
    protos = {n[:-len(".proto")] for n in sources(".proto")}
    rules = "\n".join(text(n) for n in tracked() if n.endswith(".mk"))
    missing = []
    for name in sources(".c", ".h", ".def"):
        for included in INCLUDE.findall(text(name)):
            if included.split("/")[0] in FOLDERS and not (ROOT / included).exists():
                is_made = included.endswith(".pb-c.h") and included[:-len(".pb-c.h")] in protos or pathlib.Path(included).name in rules
                if not is_made:
                    missing.append(f"{name} includes {included}")
    assert not missing, "\n".join(missing)


@functools.cache
def compile_flags():
    """The Makefile's own flags, so that the headers are tried as they are used."""
    show = "show-flags: ; @printf '%s\\n' '$(CFLAGS) $(TEMPLATE_CFLAGS)'"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(["make", "-s", "--eval", show, "show-flags"], cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout.split()


def test_every_header_compiles_alone():
    def compile_alone(name):
        p = subprocess.run(["gcc", *compile_flags(), "-fsyntax-only", "-MF", "/dev/null", "-x", "c", "-"],
                           input=f'#include "{name}"\n#include "{name}"\n', cwd=ROOT, capture_output=True, text=True)
        return None if p.returncode == 0 else f"{name}: {p.stderr[:400]}"
    headers = sources(".h")
    assert len(headers) > 50
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = [w for w in pool.map(compile_alone, headers) if w]
    assert not wrong, "\n".join(wrong[:5])


def test_every_header_has_a_guard_of_its_own():
    guards = {}
    for name in sources(".h"):
        m = re.search(r"^#ifndef (\w+_H)\n#define \1$", text(name), re.M)
        assert m, f"{name} has no guard"
        assert m.group(1) not in guards, f"{name} and {guards[m.group(1)]} have one guard"
        guards[m.group(1)] = name


# -- errors --


ERROR_BUILDING = [
    (r'\\"code\\"', "builds an error's JSON"),
    (r'\\"details\\"', "builds an error's details"),
    (r"(?:->|\.)status\s*=\s*[45]\d\d\b", "sets an error's status by hand"),
    (r"\bNOT_DISPATCHED__INIT\b", "builds a mark"),
    (r"\brefusal_t\b[^;=()]*=\s*\{[^}0]", "fills in a refusal by hand"),
    (r"->(?:code|mark|detail|before_handler)\s*=(?!=)", "rewrites a refusal"),
]


def test_rpc_errors_are_built_in_one_place():
    wrong = []
    for name in sources(".c", ".h", folders=("gateway",)):
        if name in ("gateway/refusal.c", "gateway/refusal.h"):
            continue
        code = without_comments(text(name))
        for pattern, what in ERROR_BUILDING:
            for m in re.finditer(pattern, code):
                line = code[:m.start()].count("\n") + 1
                wrong.append(f"{name}, near line {line}: {what}: {m.group(0)!r}")
        for m in re.finditer(r"answer_(?:text|send)\([^;\n]*?,\s*([45]\d\d)\s*,[^\n]*", code):
            # readiness is no RPC: its 503 has a fixed text
            if not (m.group(1) == "503" and "not ready" in m.group(0)):
                wrong.append(f"{name} answers {m.group(1)} by hand: {m.group(0)}")
    assert not wrong, "\n".join(wrong)


def test_the_search_for_errors_finds_what_refusal_c_does():
    """The patterns above are of use only as long as they match the one place where it is allowed."""
    code = without_comments(text("gateway/refusal.c"))
    for pattern in (r'\\"code\\"', r'\\"details\\"', r"\bNOT_DISPATCHED__INIT\b|__NOT_DISPATCHED__INIT\b"):
        assert re.search(pattern, code), pattern


# -- names and texts --


def test_no_file_has_a_name_that_says_nothing():
    wrong = [n for n in tracked() if re.search(r"(^|[/_\-.])(utils?|misc|helpers?|managers?|common|stuff)([_\-.]|$)", n, re.I)]
    assert not wrong, wrong


def readable(name):
    data = (ROOT / name).read_bytes()
    return data.decode("utf-8", "replace") if b"\0" not in data[:4096] else None


def lines_with(pattern, names):
    found = []
    for name in names:
        content = readable(name)
        for number, line in enumerate((content or "").splitlines(), 1):
            if re.search(pattern, line):
                found.append(f"{name}:{number}: {line.strip()[:120]}")
    return found


def outside_fuzz():
    return [n for n in tracked() if not n.startswith("tests/fuzz/corpus/")]


def test_nothing_is_left_to_do():
    marks = "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK"])
    assert not (found := lines_with(rf"\b({marks})\b", outside_fuzz())), "\n".join(found)


def test_no_path_of_a_machine_and_no_registry_host():
    # a guest's home at a provider is no machine's of ours
    paths = "|".join(["/wo" + "rk/", "/ro" + "ot/", r"/home/(?!user\b)[a-z]", "/Us" + "ers/"])
    hosts = "|".join(["registry" + r"\.npmjs", "pypi" + r"\.org", "python" + r"hosted\.org", "deb" + r"\.debian\.org", "debian" + r"\.org/debian",
                      "proxy" + r"\.golang\.org", "crates" + r"\.io", "index" + r"\.docker\.io", "registry-1" + r"\.docker"])
    assert not (found := lines_with(rf"(?<![\w.])({paths})|({hosts})", outside_fuzz())), "\n".join(found)


def test_sources_fit_on_a_few_screens():
    wrong = {n: text(n).count("\n") for n in sources(".c", ".h", ".def", ".proto") if text(n).count("\n") > LINES_MAX}
    assert not wrong, wrong


def test_nothing_large_and_nothing_vendored():
    large = {n: (ROOT / n).stat().st_size for n in tracked() if (ROOT / n).stat().st_size > BYTES_MAX}
    assert not large, large
    foreign = [n for n in tracked() if re.search(r"(^|/)(vendor|vendored|third_party|node_modules|deps)/|\.(wasm|so|a|o|tgz|tar|gz|zip|whl|jar)$", n)]
    assert not foreign, foreign


# -- tables and pages --


def metric_rows():
    return re.findall(r"^(?:COUNTER|GAUGE)\((\w+), \"(\w+)\"", text("gateway/metrics.def"), re.M)


# Names the wire contract fixes for backends that bill: the series stands there, and stays 0 as long as none does.
OF_THE_CONTRACT = {"SHED_PAID_CALLER", "SHED_PAID_DAEMON"}


def test_every_metric_is_counted_somewhere():
    rows = metric_rows()
    assert len(rows) > 30
    code = "\n".join(without_comments(text(n)) for n in sources(".c", folders=("gateway",)))
    unused = [i for i, _ in rows if not re.search(rf"\bMETRIC_{i}\b", code) and i not in OF_THE_CONTRACT]
    assert not unused, unused


def test_everything_walls_count_is_counted_somewhere():
    rows = re.findall(r"^METER\((\w+), (COUNTER|GAUGE), \"(\w+)\"", text("backends/meters.def"), re.M)
    assert len(rows) > 10
    code = "\n".join(without_comments(text(n)) for n in sources(".c", folders=("backends",)))
    assert not (unused := [i for i, _, _ in rows if not re.search(rf"\bMETER_{i}\b", code)]), unused
    for _, kind, family in rows:
        assert family.startswith("plimsoll_") and family.endswith("_total") == (kind == "COUNTER"), family
    assert not {f for _, _, f in rows} & {f for _, f in metric_rows()}


def test_every_metric_family_keeps_to_the_names_of_its_kind():
    for kind, family in re.findall(r"^(COUNTER|GAUGE)\(\w+, \"(\w+)\"", text("gateway/metrics.def"), re.M):
        assert family.startswith("plimsoll_") and family.endswith("_total") == (kind == "COUNTER"), family


def option_rows():
    table = text("config/options.def")
    table = re.sub(r"^#ifdef PLIMSOLL_STANDIN.*?^#endif", "", table, flags=re.M | re.S)
    return re.findall(r"^OPTION\((\w+),", table, re.M)


def test_every_setting_is_on_the_page():
    rows, page = option_rows(), text("docs/configuration.md")
    assert len(rows) > 40
    missing = [r for r in rows if not re.search(rf"\b{r}\b", page)]
    assert not missing, missing


def test_no_page_names_a_setting_that_is_not_there():
    known = set(option_rows())
    # what only looks like a setting: the shells' and tests' own
    other = {"PLIMSOLL_BUILD"}
    wrong = []
    for name in [n for n in tracked() if n.endswith(".md")]:
        for word in set(re.findall(r"\b(?:PLIMSOLL|SANDBOX)_[A-Z0-9_]+\b", text(name))) - known - other:
            wrong.append(f"{name} names {word}")
    assert not wrong, "\n".join(wrong)


def pages():
    return [n for n in tracked() if re.fullmatch(r"docs/[^/]+\.md", n)]


def test_readme_links_every_page_and_only_pages_that_exist():
    linked = set(re.findall(r"\]\((docs/[^)#]+\.md)", text("README.md")))
    assert linked == set(pages()), {"linked, not there": sorted(linked - set(pages())), "there, not linked": sorted(set(pages()) - linked)}


def test_links_between_pages_lead_somewhere():
    wrong = []
    for name in [n for n in tracked() if n.endswith(".md")]:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text(name)):
            if "://" not in target and not target.startswith("mailto:") and not ((ROOT / name).parent / target).exists():
                wrong.append(f"{name} links {target}")
    assert not wrong, "\n".join(wrong)


def make_targets():
    found = set()
    for name in [n for n in tracked() if n == "Makefile" or n.endswith(".mk")]:
        found |= set(re.findall(r"^([a-z][a-z_-]*):", text(name), re.M))
    return found


@pytest.mark.parametrize("page", ["README.md", ".ci/run"])
def test_make_targets_that_are_named_exist(page):
    named = set(re.findall(r"^[^#\n]*\bmake (?:-\S+ )*([a-z][a-z-]+)\b", text(page), re.M)) - {"it"}
    assert named and named <= make_targets(), named - make_targets()


def test_the_unit_starts_the_program_that_was_installed_with_it(tmp_path):
    """It named /usr/local whatever PREFIX said."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    plan = subprocess.run(["make", "-sn", "install", "PREFIX=/opt/p", f"DESTDIR={tmp_path}"], cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout
    [line] = [l for l in plan.splitlines() if l.endswith("plimsolld.service") and "install" in l]
    subprocess.run(["sh", "-c", line], cwd=ROOT, check=True)
    assert "ExecStart=/opt/p/bin/plimsolld\n" in (tmp_path / "opt/p/lib/systemd/system/plimsolld.service").read_text()


def test_packages_in_the_lists_are_named_once():
    lists = [n for n in tracked() if re.fullmatch(r"packages/[a-z]+\.txt", n)]
    assert len(lists) >= 4
    for name in lists:
        rows = [r for r in text(name).splitlines() if r and not r.startswith("#")]
        assert len(rows) == len(set(rows)), name
