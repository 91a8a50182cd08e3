"""The conformance suite against a real service, with the operator's own credential from the environment and a cap on what it may cost (docs/live-tests.md).

    LIVE=1 E2B_API_KEY=... live.py --backend e2b

Without the credential, or without LIVE=1, nothing is started and it fails.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(pathlib.Path(__file__).parent))

import looks  # noqa: E402
import selection  # noqa: E402
import services  # noqa: E402

UNCONFIGURED = 2
MAX_USD, MAX_SECONDS = "0.25", "1800"


def refuse(why):
    print(f"live: {why}", file=sys.stderr)
    sys.exit(UNCONFIGURED)


def number(name, otherwise):
    try:
        value = float(os.environ.get(name, otherwise))
    except ValueError:
        value = -1.0
    if not 0 < value < 1e6:
        refuse(f"{name} is no number above zero")
    return value


def expected(service):
    seconds = selection.SANDBOXES * selection.SECONDS_EACH
    if not service.is_billed:
        return f"about {selection.SANDBOXES} sandboxes, unbilled"
    return f"about {selection.SANDBOXES} sandboxes, {seconds} s billed, {seconds * service.usd_per_second:.3f} USD at {service.usd_per_second:.8f} USD a second"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--backend", required=True)
    p.add_argument("--only", help="of the selection, the tests whose names hold this (pytest -k)")
    p.add_argument("--no-looks", action="store_true", help="without the report on what is not known of the service")
    a = p.parse_args()
    if a.backend not in services.SERVICES:
        refuse(f"BACKEND is one of {', '.join(services.SERVICES)}")
    try:
        service = services.SERVICES[a.backend]()
    except services.Missing as missing:
        refuse(str(missing))
    max_usd, max_seconds = number("LIVE_MAX_USD", MAX_USD), number("LIVE_MAX_SECONDS", MAX_SECONDS)
    print(f"live: {a.backend}: {expected(service)}; it ends at {max_usd} USD or {max_seconds:.0f} s (LIVE_MAX_USD, LIVE_MAX_SECONDS)", flush=True)
    if os.environ.get("LIVE") != "1":
        refuse("this uses the account of the credential above; LIVE=1 says yes to that")
    folder = ROOT / "build/live"
    folder.mkdir(parents=True, exist_ok=True)
    if not a.no_looks:
        report = looks.look(service)
        path = folder / f"{a.backend}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.json"
        path.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
        print(f"live: what was seen of the service is in {path.relative_to(ROOT)}", flush=True)
    wall = "dockercloud-rest" if a.backend == "dockercloud" and service.is_rest else a.backend
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'tests/live'}:{ROOT / 'tests/integration'}", "LIVE_BACKEND": a.backend, "PLIMSOLL_TEST_WALLS": wall,
                   "LIVE_MAX_USD": str(max_usd), "LIVE_MAX_SECONDS": str(max_seconds)}
    files = [f"{selection.CONFORMANCE}{name}.py" for name in selection.SELECTION]
    done = subprocess.run([sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "live_plugin", "--tb=short",
                           *(["-k", a.only] if a.only else []), *files], cwd=ROOT, env=environment)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
