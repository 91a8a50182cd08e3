"""`make bench`: the gateway's figures as ratios against what the same machine does in the same minute, medians of interleaved rounds.
Prints them and writes build/bench/report.md. BENCH_QUICK=1 takes a minute and is good for a look, not for a claim.

    bench.py [describe] [run] [replays] [records] [memory] [walls] [relay]      all of them when none is named
"""
import os
import pathlib
import platform
import re
import subprocess
import sys
import time

import relay
import rig
import walls

QUICK = os.environ.get("BENCH_QUICK") == "1"
ROUNDS = 3 if QUICK else 7
SECONDS = 1 if QUICK else 2
SNIPPET = {"protocol": 4, "javascript": {"code": "console.log(6*7)"}}
REPORT = rig.ROOT / "build/bench/report.md"

PATIENCE_S = 20 if QUICK else 150  # in all, for the machine to be idle before a round
quiet = rig.Quiet(PATIENCE_S)
rows = []


def row(what, value, target, met, note=""):
    """One line of the report. `met` None: no target."""
    verdict = "" if met is None else "met" if met else "missed"
    rows.append((what, value, target, verdict, note))
    print(f"{what}: {value}" + (f"  (target {target}: {verdict})" if target else "") + (f"  [{note}]" if note else ""), flush=True)


def spread(values, form="{:.0f}"):
    return f"median {form.format(rig.median(values))} of {form.format(min(values))} to {form.format(max(values))}"


# -- Describe and a refused run against nginx --


def timed(measure, pid):
    """(rate, other answers, the server's processor time for a request in us)."""
    before = rig.processor_seconds(pid)
    rate, other = measure()
    return rate, other, (rig.processor_seconds(pid) - before) / (rate * SECONDS) * 1e6


def against_nginx():
    refused = {**SNIPPET, "minimumIsolation": "vm"}
    with rig.Gateway(core=rig.SERVER_CORE, PLIMSOLL_THREADS="1") as gw, rig.Nginx(gw.post("Describe", {})) as nginx:
        cases = {
            "describe": (gw.front(), lambda: rig.wrk(gw.port, rig.SERVICE + "Describe", {}, gw.token, SECONDS)),
            "nginx": (nginx.front(), lambda: rig.wrk(nginx.port, rig.SERVICE + "Describe", {}, gw.token, SECONDS)),
            "refused": (gw.front(), lambda: rig.wrk(gw.port, rig.SERVICE + "Run", refused, gw.token, SECONDS)),
            "nginx, the run": (nginx.front(), lambda: rig.wrk(nginx.port, rig.SERVICE + "Run", refused, gw.token, SECONDS)),
        }
        rates, costs = {name: [] for name in cases}, {name: [] for name in cases}
        for _ in range(ROUNDS):
            quiet.wait()
            for name, (pid, measure) in cases.items():
                rate, other, cost = timed(measure, pid)
                if name != "refused" and other:
                    raise SystemExit(f"bench: {name} was answered with errors")
                rates[name].append(rate)
                costs[name].append(cost)
    for ours, theirs, what, target in (("describe", "nginx", "authenticated Describe : nginx proxy_pass", 1.8),
                                       ("refused", "nginx, the run", "refused run : nginx proxy_pass", 1.0)):
        ratios = [a / b for a, b in zip(rates[ours], rates[theirs])]
        row(what, spread(ratios, "{:.2f}"), f">= {target}", rig.median(ratios) >= target,
            f"{rig.median(rates[ours]):.0f}/s, nginx {rig.median(rates[theirs]):.0f}/s")
        row(what + ", processor time a request", f"{rig.median(costs[theirs]) / rig.median(costs[ours]):.2f}", "", None,
            f"{rig.median(costs[ours]):.1f} us, nginx {rig.median(costs[theirs]):.1f} us")


# -- a whole run --


def whole_runs():
    seen, alone = [], []
    with rig.Gateway() as gw:
        rig.load(gw, SNIPPET, "--connections", "4", "--ids", "fresh", "--seconds", "1")
        for _ in range(ROUNDS):
            quiet.wait()
            seen.append(rig.load(gw, SNIPPET, "--connections", "4", "--ids", "fresh", "--seconds", str(SECONDS)))
            alone.append(rig.load(gw, SNIPPET, "--connections", "1", "--ids", "fresh", "--seconds", "1"))
    if any(s["broken"] or list(s["status"]) != ["200"] for s in seen + alone):
        raise SystemExit(f"bench: runs were not answered: {seen}")
    p50, p99, own = ([s[k] / 1000 for s in seen] for k in ("p50_us", "p99_us", "own_p50_us"))
    row("a wasm run over loopback, 4 in flight: p50 ms", spread(p50, "{:.2f}"), "<= 3", rig.median(p50) <= 3)
    row("a wasm run over loopback, 4 in flight: p99 ms", spread(p99, "{:.2f}"), "<= 10", rig.median(p99) <= 10)
    stages = ", ".join(f"{name} {rig.median([s['stages_p50_us'][name] for s in seen]) / 1000:.2f}" for name in seen[0]["stages_p50_us"])
    row("the gateway's own share (auth, claim, queue, settle), 4 in flight: p50 ms", spread(own, "{:.2f}"), "<= 0.5", rig.median(own) <= 0.5,
        f"p50 of each stage: {stages}")
    row("wasm runs a second, 4 in flight", spread([s["rate"] for s in seen]), "", None)
    p50, own = ([s[k] / 1000 for s in alone] for k in ("p50_us", "own_p50_us"))
    row("a wasm run alone: p50 ms", spread(p50, "{:.2f}"), "", None, f"own share {rig.median(own):.2f} ms")


# -- the same request again --


def replays():
    """What an answer from the record store takes beyond the one script that finds it, as Server-Timing tells both."""
    beyond, whole = [], []
    with rig.Gateway(SANDBOX_PROVIDER="standin") as gw:
        words = ("--connections", "1", "--ids", "1", "--seconds", "1")
        rig.load(gw, {"protocol": 4, "javascript": {"code": "standin: answer"}}, *words)
        for _ in range(ROUNDS):
            quiet.wait()
            seen = rig.load(gw, {"protocol": 4, "javascript": {"code": "standin: answer"}}, *words)
            if seen["broken"] or list(seen["status"]) != ["200"]:
                raise SystemExit(f"bench: replays were not answered: {seen}")
            whole.append(seen["p50_us"] / 1000)
            beyond.append((seen["p50_us"] - seen["own_p50_us"]) / 1000)
    row("a replayed answer beyond the claim's own round trip: p50 ms", spread(beyond, "{:.3f}"), "<= 0.3", rig.median(beyond) <= 0.3,
        f"the whole of it {rig.median(whole):.2f} ms")


# -- admitted, claimed and settled --


def records_round(n):
    """(EVALSHA/s of redis-benchmark, pairs/s of the store), by records.sh on a Redis of its own; None when a round did not count."""
    out = subprocess.run(["bash", rig.ROOT / "loadtest/records.sh", rig.BUILD / "records_bench"], capture_output=True, text=True,
                         env={**os.environ, "ROUNDS": "1", "N": str(n), "TARGET": "0"})
    found = re.search(r"round 1: (\d+) admissions/s, (\d+) pairs/s", out.stdout)
    if found:
        return float(found.group(1)), float(found.group(2))
    print("a round that does not count: " + out.stderr.strip().splitlines()[-1], flush=True)
    return None


def whole_round(gw):
    """Runs/s of the whole gateway, the wall answering at once; None when Redis did not keep up with the disk."""
    seen = rig.load(gw, {"protocol": 4, "javascript": {"code": "standin: answer"}}, "--connections", "256", "--ids", "fresh",
                    "--seconds", str(SECONDS))
    if not seen["broken"] and list(seen["status"]) == ["200"]:
        return seen["rate"]
    print(f"a round that does not count: {seen['status']}", flush=True)
    return None


def admitted_and_settled():
    pairs, whole = [], []
    with rig.Gateway(SANDBOX_PROVIDER="standin", SANDBOX_MAX_CONCURRENT="1024") as gw:
        for _ in range(ROUNDS):
            quiet.wait()
            store, runs = records_round(20000 if QUICK else 100000), whole_round(gw)
            if store is not None:
                pairs.append(store)
            if store is not None and runs is not None:
                whole.append((store[0], runs))
    what = "store: admitted, claimed and settled : redis-benchmark EVALSHA"
    if len(pairs) * 2 <= ROUNDS:
        row(what, "not measured", ">= 0.5", False, "the disk was too slow or too busy")
        return
    ratios = [p / a for a, p in pairs]
    row(what, spread(ratios, "{:.2f}"), ">= 0.5", rig.median(ratios) >= 0.5,
        f"{rig.median([p for _, p in pairs]):.0f}/s, redis-benchmark {rig.median([a for a, _ in pairs]):.0f}/s")
    if whole:
        row("whole gateway, the wall answering at once : redis-benchmark EVALSHA", spread([w / a for a, w in whole], "{:.2f}"), "", None,
            f"{rig.median([w for _, w in whole]):.0f} runs/s over HTTP, generator on the same two cores")


# -- memory --


def held_memory(gw, message, count, *more):
    """Bytes of private memory that `count` held requests add."""
    gw.post("Run", {"protocol": 4, "javascript": {"code": "standin: answer"}})
    before = gw.memory()
    with rig.held(gw, message, "--connections", str(count), *more) as said:
        if said["held"] != count:
            raise SystemExit(f"bench: of {count} requests to be held: {said}")
        after = gw.memory()
        by_process = {name: rig.private_bytes(pid) // 1024 for pid, name in gw.pids().items()}
    return after - before, by_process


def memory(descriptors):
    count = min(10000, descriptors // 2)
    hold = "standin: hold 120000\n"
    small = {"protocol": 4, "timeoutMs": 200000, "javascript": {"code": hold + "/" * (1024 - 100 - len(hold))}}
    settings = dict(SANDBOX_PROVIDER="standin", SANDBOX_MAX_CONCURRENT="1024")
    added, by_process = [], {}
    for _ in range(1 if QUICK else 5):
        with rig.Gateway(**settings) as gw:
            bytes_added, by_process = held_memory(gw, small, count, "--ids", "1000")
            added.append(bytes_added / count / 1024)
    row(f"resident KiB a held request with a 1 KiB body ({count} held, 1000 IDs)", spread(added, "{:.1f}"), "<= 24",
        rig.median(added) <= 24, f"KiB by process: {by_process}")
    megabyte = {"protocol": 4, "timeoutMs": 200000,
                "project": {"files": [{"path": "data", "content": "x" * (1024 * 1024 - 200)}], "steps": [hold.strip()]}}
    size = rig.file_of(megabyte).stat().st_size
    shares = []
    for _ in range(1 if QUICK else 5):
        with rig.Gateway(PLIMSOLL_BUFFER_MB="512", **settings) as gw:
            bytes_added, by_process = held_memory(gw, megabyte, 200, "--ids", "fresh", "--pace", "20000")
            shares.append(bytes_added / (200 * size))
    row("resident bytes a byte of 1 MiB bodies (200 held)", spread(shares, "{:.2f}"), "<= 1.3", rig.median(shares) <= 1.3,
        f"KiB by process: {by_process}")


# -- the report --


def version(*words):
    out = subprocess.run(words, capture_output=True, text=True)
    return (out.stdout + out.stderr).strip().splitlines()[0]


def write_report(took):
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    lines = ["# Benchmark", "", f"{cpu.group(1) if cpu else 'unknown processor'}, {os.cpu_count()} cores, Linux {platform.release()}; "
             f"{version('nginx', '-v')}; {version('redis-server', '--version')}; {took:.0f} s"
             + ("; a quick look, not a claim" if QUICK else "")
             + (f"; the machine was busy before {quiet.disturbed} of {quiet.rounds} rounds, so this is no claim" if quiet.disturbed else ""),
             "",
             f"Medians of {ROUNDS} interleaved rounds, the least and the most beside them.", "",
             "| What | Figure | Target | | Note |", "|---|---|---|---|---|"]
    lines += ["| " + " | ".join(r) + " |" for r in rows]
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text("\n".join(lines) + "\n")
    print(f"written to {REPORT}")


def main():
    wanted = sys.argv[1:] or ["describe", "run", "replays", "records", "memory", "walls", "relay"]
    descriptors = rig.raise_descriptors()
    began = time.monotonic()
    parts = {"describe": against_nginx, "run": whole_runs, "replays": replays, "records": admitted_and_settled, "memory": lambda: memory(descriptors),
             "walls": lambda: walls.measure(row, quiet, QUICK), "relay": lambda: relay.measure(row, quiet, QUICK)}
    try:
        for name in wanted:
            parts[name]()
        write_report(time.monotonic() - began)
    finally:
        rig.clean_up()


if __name__ == "__main__":
    main()
