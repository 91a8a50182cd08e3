"""The books after everything ended: what the days say was spent is what the runs' records say, and what is held is what the open holds come to."""
import collections
import re

AMOUNTS = ("seconds_ms", "paid_ms", "cost_micro")
PRICES = {"version": 1, "currency": "USD", "backends": {"standinpaid": {"per_second": "0.0001", "minimum_seconds": "0", "increment_seconds": "0"}}}
CAPS = {"PLIMSOLL_TOTAL_CONCURRENT": "64", "PLIMSOLL_SECONDS_PER_DAY": "1000000", "PLIMSOLL_TOTAL_SECONDS_PER_DAY": "1000000",
        "PLIMSOLL_RUNS_PER_WINDOW": "100000", "PLIMSOLL_TOTAL_RUNS_PER_WINDOW": "100000", "SANDBOX_RATE_PER_MIN": "100000",
        "SANDBOX_RATE_BURST": "100000", "PLIMSOLL_TOTAL_RATE_PER_MIN": "100000", "PLIMSOLL_TOTAL_RATE_BURST": "100000"}


def _fields(client, key):
    flat = client("HGETALL", key)
    return {k.decode(): v for k, v in zip(flat[::2], flat[1::2])}


def _micros(text):
    whole, _, part = text.partition(".")
    return int(whole) * 10**6 + int((part + "000000")[:6])


def _sums(client, pattern):
    """Each scope's sum over the keys of a pattern; a scope is what stands before the name."""
    sums = collections.defaultdict(collections.Counter)
    for key in client.keys(pattern):
        for name, number in _fields(client, key).items():
            if re.fullmatch(rb"-?\d+", number):
                sums[re.sub(r"(day:\d+|holds)$", "", key)][name] += int(number)
    return sums


def check(client, records):
    """`records`: every run's, as /v1/runs lists them, all of one caller. Problems, as texts."""
    problems = []
    wanted = collections.Counter()
    for run in records:
        wanted["seconds_ms"] += run["sandbox_ms"]
        wanted["paid_ms"] += run["paid_ms"]
        wanted["cost_micro"] += 0 if run["cost"] == "unknown" else _micros(run["cost"])
        wanted["runs"] += run["verdict"] != "refused"
    for scope, spent in _sums(client, "plimsoll:2:*day:*").items():
        for name in ("runs", *AMOUNTS):
            if spent[name] != wanted[name]:
                problems.append(f"{scope}: the days say {name} {spent[name]}, the records {wanted[name]}")
    held = collections.Counter()
    for key in client.keys("plimsoll:2:*:held"):
        for ticket in _fields(client, key).values():
            m = re.fullmatch(r"([HXBL])([0-9a-f]{32}) (\d+) (\d+) (\d+) (\d+) (\d+) \d+ \d+", ticket.decode())
            if m is None:
                problems.append(f"a ticket of another form: {ticket!r}")
            elif m[1] == "H":
                held.update(dict(zip(AMOUNTS, (int(m[5]), int(m[6]), int(m[7])))))
    scopes = _sums(client, "plimsoll:2:*holds")
    for scope, sums in scopes.items():
        for name in AMOUNTS:
            if sums[name] != held[name]:
                problems.append(f"{scope}: held {name} is {sums[name]}, the open holds come to {held[name]}")
    if any(held.values()) and not scopes:
        problems.append(f"open holds of {dict(held)} and no sums")
    return problems
