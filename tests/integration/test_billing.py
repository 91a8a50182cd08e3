"""What billed sandboxes cost: held before anything starts, charged afterwards, told with each answer, record and line of the log; and
unknown, never zero, where nobody knows."""
import datetime
import decimal
import json
import os
import re
import signal

import pytest

import gateway as g
from gateway import refused, wait_for
from test_caps import ONE, TWO, capped

TEARDOWN_S = 33  # spec callers-and-limits 3.3


def today(days=0):
    return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=days)).strftime("%Y-%m-%d")


def write_prices(gw, date=None, **backends):
    path = gw.home / "prices.json"
    part = gw.home / "prices.json.part"
    part.write_text(json.dumps({"version": 1, "date": date or today(), "currency": "USD", "backends": backends}))
    part.rename(path)
    return path


@pytest.fixture
def paid(gateway):
    """Makes gateways whose first wall bills: paid(prices={...} or None, date=None, callers=None, SETTING=...)."""
    def make(prices=None, date=None, callers=None, **settings):
        gw = gateway(start=False, **{"SANDBOX_PROVIDER": "standinpaid", "SANDBOX_MAX_CONCURRENT": "16", **settings})
        account = gw.home / "account"
        account.mkdir()
        account.chmod(0o777)
        gw.settings["PLIMSOLL_STANDINPAID_DIR"] = str(account)
        gw.settings.setdefault("PLIMSOLL_STANDINPAID", "unseen=1500,attempt=300")
        if prices is not None:
            gw.settings["PLIMSOLL_PRICES_FILE"] = str(write_prices(gw, date, standinpaid=prices))
        if callers:
            gw.write_callers({name: {"token_sha256": g.token_hash(token), "scopes": ["code:run"], "paid_seconds_per_day": seconds}
                              for name, (token, seconds) in callers.items()})
        return gw.start()
    return make


def bill(answer):
    return decimal.Decimal(answer.header("Plimsoll-Billable-Seconds")), answer.header("Plimsoll-Cost")


def spent(gw, **more):
    """The usage once nothing is held any more."""
    return wait_for(lambda: (lambda u: u if u["paid_ms"]["held"] == 0 else None)(gw.get("/v1/usage", **more).json()), "nothing held")


PRICE = {"per_second": "0.001"}
# What a run at 1 a run and nothing a second comes to: time past the answer has a price of at least a millionth an hour, as 0 stands for an
# unknown one, and is rounded up.
A_RUN_FOR_ONE = ("1", "1.000001")


def test_an_answer_says_what_it_cost(paid):
    gw = paid(PRICE)
    answer = gw.ok("standin: hold 300", timeoutMs=5000)
    seconds, cost = bill(answer)
    assert decimal.Decimal("0.3") <= seconds < 30
    assert cost.endswith(" USD")
    micro = decimal.Decimal(cost.split(" ")[0]) * 1000000
    # a thousandth of the currency a second, rounded up to a millionth
    assert micro == (seconds * 1000).to_integral_value(decimal.ROUND_UP)
    answered_ms = int(seconds * 1000)
    line = gw.wait_log("code run")
    assert line["paid_ms"] == answered_ms and line["paid_seconds"] == -(-answered_ms // 1000) and line["cost_micro"] == int(micro)
    assert gw.metric("plimsoll_billed_milliseconds_total") == answered_ms and gw.metric("plimsoll_cost_micros_total") == int(micro)
    assert gw.metric("plimsoll_unpriced_runs_total") == 0
    usage = spent(gw)
    run = gw.get("/v1/runs/" + answer.header("Plimsoll-Run-Id")).json()
    assert run["currency"] == "USD"
    # what the sandbox stayed beyond its answer is added when its absence is confirmed
    for paid_ms, cost in ((usage["paid_ms"]["spent"], usage["cost"]["spent"]), (run["paid_ms"], run["cost"])):
        late = paid_ms - answered_ms
        assert 0 <= late < 5000 and 0 <= decimal.Decimal(cost) * 1000000 - micro <= late + 1
    assert usage["cost"]["currency"] == "USD" and usage["cost"]["prices_date"] == today() and usage["cost"]["prices_current"]


def test_a_minimum_is_billed(paid):
    gw = paid({"per_second": "0.001", "minimum_seconds": "60", "per_run": "0.5"})
    answer = gw.ok("standin: answer", timeoutMs=5000)
    assert bill(answer) == (60, "0.56 USD")


def test_a_wall_that_does_not_bill_costs_nothing(gateway):
    gw = gateway(SANDBOX_PROVIDER="standin")
    answer = gw.ok("standin: answer")
    assert bill(answer) == (0, "0")
    run = gw.get("/v1/runs/" + answer.header("Plimsoll-Run-Id")).json()
    assert run["paid_ms"] == 0 and run["cost"] == "0" and "currency" not in run
    assert "paid_seconds" not in gw.wait_log("code run")


@pytest.mark.parametrize("prices, date", [(None, None), ({"per_second": "0.001"}, "stale"), ({"per_second": "0.001"}, "early")])
def test_without_a_current_price_the_cost_is_unknown_and_never_zero(paid, prices, date):
    days = {"stale": today(-91), "early": today(3), None: None}[date]
    gw = paid(prices, days)
    answer = gw.ok("standin: hold 50", timeoutMs=5000)
    seconds, cost = bill(answer)
    assert seconds > 0 and cost == "unknown"
    run = gw.get("/v1/runs/" + answer.header("Plimsoll-Run-Id")).json()
    assert run["cost"] == "unknown" and run["paid_ms"] > 0
    assert gw.wait_log("code run")["cost"] == "unknown"
    assert gw.metric("plimsoll_unpriced_runs_total") == 1 and gw.metric("plimsoll_cost_micros_total") == 0
    usage = spent(gw)
    assert usage["cost"]["spent"] == "unknown" and not usage["cost"]["prices_current"] and usage["paid_ms"]["spent"] > 0
    if date:
        gw.wait_log("the price file is out of date: costs are unknown until it is renewed")


def test_prices_are_reloaded_with_the_callers(paid):
    gw = paid(PRICE)
    assert bill(gw.ok("standin: hold 100"))[1].startswith("0.000")
    write_prices(gw, standinpaid={"per_second": "0", "per_run": "2"})
    gw.signal(1)
    gw.wait_log("prices reloaded")
    wait_for(lambda: bill(gw.ok("standin: answer"))[1] == "2 USD", "the new price")
    (gw.home / "prices.json").write_text('{"version":1}')
    gw.signal(1)
    gw.wait_log("price file not taken over, the old table stays")
    assert bill(gw.ok("standin: answer"))[1] == "2 USD"


def test_a_new_front_has_the_prices_too(paid):
    gw = paid({"per_second": "0", "per_run": "3"}, callers={"one": (ONE, 0)})
    assert bill(gw.run("standin: answer", token=ONE))[1] == "3 USD"
    front = gw.child("plimsolld-front")
    os.kill(front, signal.SIGKILL)
    wait_for(lambda: gw.child("plimsolld-front") not in (None, front), "a new front", 30)

    def cost():
        try:
            answer = gw.run("standin: answer", token=ONE)
        except (OSError, g.Closed):
            return None
        return answer.status == 200 and bill(answer)[1]
    assert wait_for(cost, "the new front to serve", 30) == "3 USD"


def test_the_worst_case_is_held_before_anything_starts(paid):
    gw = paid(PRICE)
    code, barrier = gw.barrier()
    run = gw.in_background(code, timeoutMs=10000)
    gw.wait_inflight(1)
    usage = gw.get("/v1/usage").json()
    assert usage["paid_ms"]["held"] == (10 + TEARDOWN_S) * 1000
    assert usage["cost"]["held"] == "0.043"
    barrier.unlink()
    assert run.join().status == 200
    usage = spent(gw)
    assert 0 < usage["paid_ms"]["spent"] < 43000 and usage["cost"]["held"] == "0"


@pytest.mark.parametrize("allowance, fits", [(10 + TEARDOWN_S - 1, False), (10 + TEARDOWN_S, True), (10 + TEARDOWN_S + 1, True)])
def test_a_callers_allowance(paid, allowance, fits):
    gw = paid(PRICE, callers={"one": (ONE, allowance), "two": (TWO, 0)})
    answer = gw.run("standin: answer", timeoutMs=10000, token=ONE)
    if fits:
        assert answer.status == 200
    else:
        policy, q, w, _, retry = capped(answer, "paid-seconds", "caller")
        assert (q, w) == (allowance, 86400) and retry <= 86400 and str(10 + TEARDOWN_S) in answer.message
        assert gw.metric('plimsoll_shed_total{reason="paid_caller"}') == 1
        assert gw.metric("plimsoll_runs_total") == 0 and not list((gw.home / "account").iterdir())
        assert gw.run("standin: answer", timeoutMs=9000, token=ONE).status == 200
    # 0 is no allowance of its own, and not one of nothing
    assert gw.run("standin: answer", timeoutMs=10000, token=TWO).status == 200


def test_an_allowance_changes_with_the_callers_file(paid):
    gw = paid(PRICE, callers={"one": (ONE, 1)})
    capped(gw.run("standin: answer", timeoutMs=10000, token=ONE), "paid-seconds", "caller")
    gw.write_callers({"one": {"token_sha256": g.token_hash(ONE), "scopes": ["code:run"], "paid_seconds_per_day": 100}})
    gw.signal(1)
    wait_for(lambda: gw.run("standin: answer", timeoutMs=10000, token=ONE).status == 200, "the new allowance")
    assert gw.get("/v1/usage", token=ONE).json()["paid_ms"]["limit"] == 100000


def test_the_gateways_allowance_is_told_without_a_number(paid):
    gw = paid(PRICE, callers={"one": (ONE, 0), "two": (TWO, 0)}, SANDBOX_PAID_SECONDS_PER_DAY="50")
    code, barrier = gw.barrier()
    first = gw.in_background(code, timeoutMs=10000, token=ONE)
    gw.wait_inflight(1)
    answer = gw.run("standin: answer", timeoutMs=10000, token=TWO)
    capped(answer, "gateway-paid-seconds", "gateway")
    assert not re.search(r"\d", re.sub(r"resets in \d+ s", "", answer.message))
    assert gw.metric('plimsoll_shed_total{reason="paid_daemon"}') == 1
    barrier.unlink()
    assert first.join().status == 200


def test_a_cap_on_the_cost(paid):
    gw = paid(PRICE, PLIMSOLL_COST_PER_DAY="0.05")
    answer = gw.run("standin: answer", timeoutMs=17001)
    policy, q, w, _, retry = capped(answer, "cost", "caller")
    assert (q, w) == (50000, 86400) and "0.05 USD" in answer.message
    assert gw.run("standin: answer", timeoutMs=17000).status == 200
    assert gw.get("/v1/usage").json()["cost"]["limit"] == "0.05"


def test_a_cap_on_the_cost_of_all(paid):
    gw = paid(PRICE, PLIMSOLL_TOTAL_COST_PER_DAY="0.05")
    answer = gw.run("standin: answer", timeoutMs=20000)
    capped(answer, "gateway-cost", "gateway")
    assert "0.05" not in answer.message


def test_with_a_cap_on_the_cost_an_unknown_price_runs_nothing(paid):
    gw = paid(PRICE, today(-91), PLIMSOLL_COST_PER_DAY="5")
    answer = gw.run("standin: answer")
    refused(answer, "resource_exhausted", "capacity")
    assert "not known" in answer.message and answer.header("Retry-After") == "60"
    assert gw.metric("plimsoll_runs_total") == 0
    assert gw.metric('plimsoll_gateway_shed_total{reason="no_price"}') == 1


def test_with_a_cap_on_the_cost_a_wall_without_a_price_is_passed_over(paid):
    gw = paid(PRICE, today(-91), PLIMSOLL_COST_PER_DAY="5", SANDBOX_PROVIDER="standinpaid,standin")
    assert gw.ok("standin: answer").header("Plimsoll-Backend") == "standin"


def test_a_replay_says_what_the_run_cost_and_costs_nothing(paid):
    gw = paid({"per_second": "0", "per_run": "1"})
    request_id = g.new_id()
    first = gw.ok("standin: hold 20", request_id)
    again = gw.run("standin: hold 20", request_id)
    assert again.header("Plimsoll-Replayed") == "1"
    assert bill(first)[1] == "1 USD" and bill(again)[1].removesuffix(" USD") in A_RUN_FOR_ONE
    assert spent(gw)["cost"]["spent"] in A_RUN_FOR_ONE


def test_a_refusal_gives_all_of_it_back(paid):
    gw = paid(PRICE, SANDBOX_PAID_SECONDS_PER_DAY="50")
    for _ in range(3):
        refused(gw.run("standin: refuse capacity", timeoutMs=10000), "resource_exhausted", "capacity")
    usage = spent(gw)
    assert usage["cost"]["spent"] == "0" or usage["paid_ms"]["spent"] < 50000
    assert gw.run("standin: answer", timeoutMs=10000).status == 200


def test_what_was_spent_survives_a_restart(paid):
    gw = paid({"per_second": "0", "per_run": "1"}, PLIMSOLL_COST_PER_DAY="1.5")
    assert gw.run("standin: hold 20").status == 200
    spent(gw)
    gw.restart()
    assert gw.get("/v1/usage").json()["cost"]["spent"] in A_RUN_FOR_ONE
    capped(gw.run("standin: answer"), "cost", "caller")


def test_a_run_without_an_answer_holds_until_its_sandbox_is_gone(paid):
    gw = paid(PRICE)
    gw.clean_exit = False
    code, barrier = gw.barrier()
    run = gw.in_background(code, timeoutMs=10000, headers=[("Idempotency-Key", '"lost"')])
    gw.wait_inflight(1)
    os.kill(gw.child("plimsolld-backend-standinpaid"), signal.SIGKILL)
    answer = run.join()
    g.failed(answer, "unavailable")
    barrier.unlink()
    # nobody knows yet how long its sandbox stays
    usage = wait_for(lambda: (lambda u: u if u["paid_ms"]["held"] == 0 else None)(gw.get("/v1/usage").json()), "the ledger to settle it", 90)
    run = gw.get("/v1/runs/" + answer.header("Plimsoll-Run-Id")).json()
    assert run["verdict"] == "unknown" and run["paid_ms"] == usage["paid_ms"]["spent"] > 0
    assert run["cost"] == usage["cost"]["spent"] != "unknown" and not list((gw.home / "account").iterdir())
    page = gw.get("/v1/runs/by-key/lost").json()
    assert page["state"] == "unknown"


def test_hardened_mode_wants_an_allowance_of_every_caller(gateway):
    gw = gateway(start=False, SANDBOX_PROVIDER="standinpaid", PLIMSOLL_HARDENED="1", PLIMSOLL_TOKEN=None)
    gw.write_callers({"with": {"token_sha256": g.token_hash(ONE), "scopes": ["code:run"], "paid_seconds_per_day": 5},
                      "without": {"token_sha256": g.token_hash(TWO), "scopes": ["code:run"]}})
    gw.clean_exit = False
    gw.spawn()
    assert gw.wait_exit() != 0
    assert 'caller "without" has no paid_seconds_per_day' in gw.log() and 'caller "with" ' not in gw.log()
