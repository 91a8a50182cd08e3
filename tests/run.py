"""Runs every kind of test and ends with one line: N passed, N failed, N skipped.

    run.py [unit] [lint] [fuzz] [outside]     all of them when none is named

A part that is missing on a continuous-integration machine (CI=true) is a failure; elsewhere it is a skip with its reason.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CI = os.environ.get("CI") == "true"
FOLDERS = ["core", "config", "records", "broker", "backends", "gateway", "cli", "loadtest", "tests"]
UNIT_SECONDS = 300
AGAIN_MAX = 20  # more that fail than this are no accident
PARALLEL = os.cpu_count() or 2


class Count:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.bad = []  # names, said once more at the end: hours of output may lie between a failure and that

    def one(self, name, ok, output=""):
        if ok:
            self.passed += 1
        else:
            self.fail(name)
            print(f"FAILED {name}\n{output}", flush=True)

    def fail(self, name, how_many=1):
        self.failed += how_many
        self.bad.append(name)

    def missing(self, name, reason):
        if CI:
            self.one(name, False, reason)
        else:
            self.skipped += 1
            print(f"SKIPPED {name}: {reason}", flush=True)


def call(args, seconds, **kwargs):
    try:
        p = subprocess.run(args, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds, **kwargs)
        return p.returncode, p.stdout.decode("utf-8", "replace")
    except subprocess.TimeoutExpired as e:
        return 124, (e.stdout or b"").decode("utf-8", "replace") + f"\nnot finished after {seconds} s"


def sources(*endings):
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True).stdout.split("\n")
    return [f for f in listed if f.endswith(endings) and f.split("/")[0] in FOLDERS and os.path.exists(os.path.join(ROOT, f))]


def count_unit(count, binary, status, output):
    name = os.path.basename(binary)
    passed = sum(int(n) for n in re.findall(r"\[  PASSED  \] (\d+) test", output))
    failed = sum(int(n) for n in re.findall(r"\[  FAILED  \] (\d+) test", output))
    skipped = sum(int(n) for n in re.findall(r"\[  SKIPPED \] (\d+) test", output))
    count.passed += passed
    if skipped:
        count.missing(name, f"{skipped} skipped: {output[-2000:]}")
    if failed or status != 0 or passed == 0:
        count.fail(name, max(failed, 1))
        print(f"FAILED {name} (status {status})\n{output[-8000:]}", flush=True)
    else:
        print(f"{name}: {passed} passed", flush=True)


def unit(count):
    binaries = sorted(glob.glob(os.path.join(ROOT, "build/test/unit/test_*")))
    binaries = [b for b in binaries if os.path.exists(os.path.join(ROOT, "tests/unit", os.path.basename(b) + ".c"))]
    # those want an Engine, which the tests from outside have: tests/integration/test_engine_live.py
    binaries = [b for b in binaries if not b.endswith("_live")]
    env = dict(os.environ, TREE=ROOT, PLIMSOLL_BUILD=os.path.join(ROOT, "build/test"))

    def run(binary):
        return binary, call([binary], UNIT_SECONDS, env=env)

    again = []
    with ThreadPoolExecutor(PARALLEL) as pool:
        for binary, (status, output) in pool.map(run, binaries):
            if status != 0 and len(again) < AGAIN_MAX:
                again.append(binary)
                print(f"{os.path.basename(binary)}: failed beside others, once more alone below\n{output[-8000:]}", flush=True)
            else:
                count_unit(count, binary, status, output)
    for binary in again:
        _, (status, output) = run(binary)
        count_unit(count, binary, status, output)
    if not binaries:
        count.one("unit", False, "no unit test is built")


def lint(count):
    formatter = shutil.which("clang-format-14") or shutil.which("clang-format")
    if formatter is None:
        count.missing("clang-format", "clang-format is not installed")
    else:
        status, output = call([formatter, "--dry-run", "-Werror"] + sources(".c", ".h"), 120)
        count.one("clang-format", status == 0, output[-4000:])
    if shutil.which("cppcheck") is None:
        count.missing("cppcheck", "cppcheck is not installed")
    else:
        files = [f for f in sources(".c") if not f.startswith("tests/")]
        status, output = call(
            ["cppcheck", "--quiet", "--std=c11", "--enable=warning,portability", "--inline-suppr", "--error-exitcode=3",
             "--suppress=missingIncludeSystem", "--suppress=normalCheckLevelMaxBranches", "--suppressions-list=tests/cppcheck.txt",
             "-j", str(PARALLEL), "-I.", "-Ibuild/gen", "-D_GNU_SOURCE="] + files, 900)
        count.one("cppcheck", status == 0, output[-6000:])


def fuzz(count):
    seconds = int(os.environ.get("FUZZ_SECONDS", "10"))
    if shutil.which("clang-14") is None:
        count.missing("fuzz", "clang-14 is not installed")
        return
    status, output = call(["make", "--no-print-directory", f"-j{PARALLEL}", "VARIANT=fuzz", "CC=clang-14", "fuzz-binaries"], 1200)
    if status != 0:
        count.one("fuzz build", False, output[-6000:])
        return
    targets = sorted(glob.glob(os.path.join(ROOT, "build/fuzz/fuzz/fuzz_*")))
    targets = [t for t in targets if os.path.exists(os.path.join(ROOT, "tests/fuzz", os.path.basename(t) + ".c"))]

    def run(target):
        name = os.path.basename(target)[len("fuzz_"):]
        work = tempfile.mkdtemp(prefix="fuzz-")
        corpus = os.path.join(ROOT, "tests/fuzz/corpus", name)
        args = [target, f"-max_total_time={seconds}", "-rss_limit_mb=4096", "-timeout=20", "-print_final_stats=0", "-verbosity=1", f"-artifact_prefix={work}/", work]
        if os.path.isdir(corpus):
            args.append(corpus)
        result = call(args, seconds + 120)
        if result[0] == 0:
            shutil.rmtree(work, ignore_errors=True)
        return name, result

    with ThreadPoolExecutor(PARALLEL) as pool:
        for name, (status, output) in pool.map(run, targets):
            count.one(f"fuzz {name}", status == 0, output[-6000:])
            if status == 0:
                print(f"fuzz {name}: clean for {seconds} s", flush=True)
    if not targets:
        count.one("fuzz", False, "no fuzz target is built")


def pytest(report, *arguments):
    """Its exit status, and {node ID: outcome} of every test; an error around a test counts as that test's."""
    if os.path.exists(report):
        os.unlink(report)
    status = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junit-xml", report, *arguments], cwd=ROOT).returncode
    if not os.path.exists(report):
        return status, None
    found = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        node = case.get("classname").replace(".", "/") + ".py::" + case.get("name")
        now = "failed" if case.find("failure") is not None or case.find("error") is not None else "skipped" if case.find("skipped") is not None else "passed"
        if found.get(node) != "failed":
            found[node] = now
    return status, found


def outside(count):
    report = os.path.join(ROOT, "build/test/outside.xml")
    os.makedirs(os.path.dirname(report), exist_ok=True)
    # files side by side: most tests wait for their own gateway more than they compute
    status, found = pytest(report, "-n", str(PARALLEL), "--dist", "loadfile", "--durations=10", "tests/integration", *os.environ.get("PYTEST_ARGS", "").split())
    if found is None:
        count.one("pytest", False, f"pytest ended with status {status} and no report")
        return
    bad = sorted(node for node, outcome in found.items() if outcome == "failed")
    if 0 < len(bad) <= AGAIN_MAX and status == 1:
        # Many have bounds of milliseconds, and the machine is shared by several gateways and an Engine: what fails beside others is tried
        # once more alone, and said by name either way.
        print(f"== once more, alone: {len(bad)}", flush=True)
        _, again = pytest(os.path.join(ROOT, "build/test/again.xml"), *bad)
        for node in bad:
            outcome = (again or {}).get(node, "failed")
            found[node] = outcome
            print(f"{node}: failed beside others, {outcome} alone", flush=True)
    for node, outcome in found.items():
        count.passed += outcome == "passed"
        count.skipped += outcome == "skipped" and not CI
        if outcome == "failed" or (CI and outcome == "skipped"):
            count.fail(node)
    if status not in (0, 1):
        count.one("pytest", False, f"pytest ended with status {status}")


def main():
    stages = {"unit": unit, "lint": lint, "fuzz": fuzz, "outside": outside}
    wanted = sys.argv[1:] or list(stages)
    count = Count()
    for name in wanted:
        print(f"== {name}", flush=True)
        stages[name](count)
    for name in count.bad:
        print(f"FAILED {name}", flush=True)
    print(f"{count.passed} passed, {count.failed} failed, {count.skipped} skipped", flush=True)
    return 1 if count.failed else 0


if __name__ == "__main__":
    sys.exit(main())
