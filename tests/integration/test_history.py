"""The history: filters and cursors of the list, everything recorded of one run, exports, receipts of refusals."""
import datetime
import json
import subprocess
import time

import pytest

import gateway as g
from gateway import COMMAND, new_id, refused, refused_http, wait_for
from test_caps import ONE, TWO

STANDIN = {"SANDBOX_PROVIDER": "standin,standin2", "SANDBOX_MAX_CONCURRENT": "16"}
WORDS = {"PLIMSOLL_STANDIN1": "kinds=javascript+project", "PLIMSOLL_STANDIN2": "kinds=javascript+project"}


def listed(gw, query="", **more):
    answer = gw.get("/v1/runs" + ("?" + query if query else ""), **more)
    assert answer.status == 200, answer
    return answer.json()


def all_pages(gw, query="", limit=3, **more):
    runs, cursor, pages = [], None, 0
    while True:
        page = listed(gw, f"limit={limit}" + ("&" + query if query else "") + (f"&cursor={cursor}" if cursor else ""), **more)
        runs += page["runs"]
        pages += 1
        cursor = page["next_cursor"]
        if cursor is None:
            return runs
        assert pages < 100


def plimsoll(gw, *arguments, **environment):
    return subprocess.run([str(COMMAND), *arguments], capture_output=True, text=True, timeout=g.ANSWER_S,
                          env={"PATH": "/usr/bin:/bin", "PLIMSOLL_URL": f"http://127.0.0.1:{gw.port}",
                               **({"PLIMSOLL_CALLER_TOKEN": gw.token} if gw.token else {}), **environment})


@pytest.fixture
def history(gateway):
    """A gateway with 12 answered runs of two kinds on two backends, 2 refused by a backend, 2 unknown."""
    gw = gateway(**STANDIN, **WORDS)
    for n in range(6):
        assert gw.run("standin: answer", path=("/backends/standin2" if n % 2 else "/backends/standin") + g.RUN).status == 200
    for _ in range(6):
        assert gw.post(g.RUN, {"protocol": 4, "project": {"steps": ["standin: answer"]}}).status == 200
    for _ in range(2):
        assert gw.run("standin: refuse environment", path="/backends/standin" + g.RUN).status == 400
        assert gw.run("standin: fail unavailable").status == 503
    return gw


def test_filters(history):
    everything = all_pages(history)
    assert len(everything) == 16 and len({r["run_id"] for r in everything}) == 16
    started = [r["started_unix_ms"] for r in everything]
    assert started == sorted(started, reverse=True)
    for query, member, wanted in (("verdict=answered", "verdict", "answered"), ("verdict=refused", "verdict", "refused"),
                                  ("verdict=unknown", "verdict", "unknown"), ("backend=standin2", "backend", "standin2"),
                                  ("kind=project", "kind", "project")):
        for limit in (1, 3, 100):
            found = all_pages(history, query, limit)
            assert found == [r for r in everything if r[member] == wanted] and found, query
    both = all_pages(history, "kind=javascript&verdict=answered&backend=standin")
    assert len(both) == 3
    assert all_pages(history, "backend=nowhere") == []


def test_since_and_until(gateway):
    gw = gateway(**STANDIN)
    for _ in range(4):
        gw.ok("standin: answer")
        time.sleep(0.02)
    runs = all_pages(gw)
    middle = runs[1]["started_unix_ms"]
    assert all_pages(gw, f"since={middle}") == [r for r in runs if r["started_unix_ms"] >= middle]
    assert all_pages(gw, f"until={middle}") == [r for r in runs if r["started_unix_ms"] < middle]
    tomorrow = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)
    assert all_pages(gw, tomorrow.strftime("since=%Y-%m-%dT%H:%M:%SZ")) == []
    assert all_pages(gw, tomorrow.strftime("until=%Y-%m-%dT%H:%M:%SZ")) == runs


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "verdict=good", "kind=cell", "receipts=2", "since=yesterday", "since=5&until=5", "color=red",
                                   "limit=1&limit=1", "backend=a%20b", "cursor=%00", "limit"])
def test_a_query_that_is_not_understood_is_refused(gw, query):
    refused_http(gw.get("/v1/runs?" + query), 400, "invalid_argument")


@pytest.mark.parametrize("length, too_long", [(511, False), (512, False), (513, True)])
def test_a_query_has_up_to_512_bytes(gw, length, too_long):
    answer = gw.get("/v1/runs?" + ("backend=" + "b" * length)[:length])
    refused_http(answer, 400, "invalid_argument")
    assert ("longer than 512" in answer.message) == too_long


def test_a_cursor_is_a_run_of_the_list(gw):
    gw.ok("1")
    assert gw.get("/v1/runs?cursor=none").status == 400
    # one that has left the list: so has everything after it
    assert listed(gw, "cursor=" + new_id()) == {"runs": [], "next_cursor": None}


def test_a_run_has_everything_recorded(gateway):
    gw = gateway(**STANDIN)
    answer = gw.ok("standin: answer", headers=[("Idempotency-Key", '"once \\"more\\""')], request_id=new_id(), traceId="t.1")
    run = gw.get("/v1/runs/" + answer.header("Plimsoll-Run-Id")).json()
    assert run["idempotency_key"] == 'once "more"' and run["request_id"] == answer.header("Plimsoll-Request-Id")
    assert run["trace_id"] == "t.1" and run["verdict"] == "answered" and run["record"] == answer.json()["record"]
    assert isinstance(run["log_index"], int) and run["log_index"] >= 0
    assert run["sandbox_ms"] >= 0 and run["cost"] == "0"
    assert gw.wait_log("code run")["trace_id"] == "t.1"
    assert len(gw.log_lines("code run", run_id=run["run_id"])) == 1


def test_a_run_without_a_key_of_its_own_shows_its_request_id(gateway):
    gw = gateway(**STANDIN)
    request_id = new_id()
    gw.ok("standin: answer", request_id)
    run = listed(gw)["runs"][0]
    assert run["request_id"] == request_id and run["idempotency_key"] == ""


def test_a_refusal_before_anything_leaves_a_receipt(gateway):
    gw = gateway(**STANDIN, SANDBOX_RATE_PER_MIN="1", SANDBOX_RATE_BURST="1")
    gw.ok("standin: answer", traceId="ran")
    request_id = new_id()
    refused(gw.run("standin: answer", request_id, traceId="late"), "resource_exhausted", "capacity", request_id)
    refused(gw.run("standin: answer", minimumIsolation="vm", path="/backends/standin" + g.RUN), "failed_precondition", "isolation")
    receipts = wait_for(lambda: (lambda r: r if len(r) == 2 else None)(listed(gw, "receipts=1")["runs"]), "two receipts")
    isolation, rate = sorted(receipts, key=lambda r: r["reason"], reverse=True)  # two loops may write them in any order
    assert rate["verdict"] == isolation["verdict"] == "refused"
    assert rate["reason"] == "capacity" and rate["trace_id"] == "late" and rate["request_id"] == request_id
    assert rate["limits"].startswith("cap=rate;scope=caller;limit=1;retry_after_ms=")
    assert isolation["reason"] == "isolation" and isolation["limits"] == ""
    assert abs(rate["started_unix_ms"] / 1000 - time.time()) < 120 and rate["log_index"] is None
    # they are no runs
    assert len(listed(gw)["runs"]) == 1
    assert all_pages(gw, "receipts=1", 1) == receipts


def test_what_is_malformed_or_of_nobody_leaves_no_receipt(gateway):
    gw = gateway(start=False, **STANDIN)
    gw.write_callers({"one": ONE, "two": TWO})
    gw.start()
    assert gw.run("", token=ONE).status == 400
    assert gw.run("standin: answer", token="x" * 40).status == 401
    assert gw.run("standin: answer", token=ONE, protocol=9).status == 501
    assert gw.run("standin: answer", token=TWO, minimumIsolation="vm", path="/backends/standin" + g.RUN).status == 400
    wait_for(lambda: listed(gw, "receipts=1", token=TWO)["runs"], "the receipt")
    assert listed(gw, "receipts=1", token=ONE)["runs"] == []


def test_receipts_are_bounded(gateway):
    gw = gateway(**STANDIN)
    began = time.monotonic()
    with gw.connect() as c:
        for _ in range(400):
            gw.run("standin: answer", minimumIsolation="vm", path="/backends/standin" + g.RUN, on=c)
    took = time.monotonic() - began

    def told():
        kept = len(all_pages(gw, "receipts=1", 100))
        return kept + gw.metric("plimsoll_receipts_dropped_total") == 400 and kept
    # 50 a second at most, and every one of the others is counted
    kept = wait_for(told, "each to be kept or counted")
    assert kept <= 50 * (took + 2), f"{kept} kept in {took:.1f} s"


# -- the command --


def test_the_command_lists_and_filters(history):
    out = plimsoll(history, "runs", "list", "--kind", "project", "--verdict", "answered", "--limit", "100")
    assert out.returncode == 0, out.stderr
    assert len(out.stdout.splitlines()) == 7 and all("project" in line for line in out.stdout.splitlines()[1:])
    page = json.loads(plimsoll(history, "runs", "list", "--backend", "standin2", "--json", "--limit", "100").stdout)
    assert {r["backend"] for r in page["runs"]} == {"standin2"}
    assert plimsoll(history, "runs", "list", "--since", "2999-01-01T00:00:00Z").stdout.count("\n") == 1


@pytest.mark.parametrize("arguments", [["list", "x"], ["list", "--limit", "0"], ["list", "--kind", "a/b"], ["list", "--records"], ["export", "x"], ["show"],
                                       ["show", "x"], ["nothing"], ["list", "--cursor", "a&b=c"], ["list", "--since", "a b"], ["find"], ["find", ""], ["find", "a", "b"],
                                       ["find", "a", "--wait", "61"], ["list", "--wait", "1"], ["find", "k" * 513]])
def test_the_command_refuses_what_it_does_not_understand(gw, arguments):
    assert plimsoll(gw, "runs", *arguments).returncode == 2


def test_an_export_has_every_run_and_goes_on_from_a_cursor(history):
    everything = all_pages(history)
    out = plimsoll(history, "runs", "export", "--limit", "5")
    assert out.returncode == 0, out.stderr
    lines = [json.loads(line) for line in out.stdout.splitlines()]
    assert lines == everything
    told = [line for line in out.stderr.splitlines() if "goes on from here" in line]
    assert len(told) >= 3 and "16 runs" in out.stderr
    cursor = told[0].split("--cursor ")[1].split()[0]
    rest = plimsoll(history, "runs", "export", "--cursor", cursor)
    assert [json.loads(line) for line in rest.stdout.splitlines()] == everything[5:]


def test_an_export_with_records(history):
    out = plimsoll(history, "runs", "export", "--records", "--verdict", "answered")
    assert out.returncode == 0, out.stderr
    lines = [json.loads(line) for line in out.stdout.splitlines()]
    assert len(lines) == 12 and all(line["record"]["recordSha256"] == line["record_sha256"] for line in lines)


def test_an_export_that_breaks_off_says_how_to_go_on(gateway, redis):
    gw = gateway(**STANDIN, PLIMSOLL_REDIS_URL=redis.url)
    gw.ok("standin: answer")
    redis.stop()
    out = plimsoll(gw, "runs", "export", "--cursor", "f" * 32)
    assert out.returncode == 1 and "not all; --cursor " + "f" * 32 in out.stderr


def test_receipts_by_the_command(gateway):
    gw = gateway(**STANDIN)
    assert gw.run("standin: answer", minimumIsolation="vm", path="/backends/standin" + g.RUN).status == 400
    wait_for(lambda: listed(gw, "receipts=1")["runs"], "the receipt")
    out = plimsoll(gw, "runs", "list", "--receipts")
    assert out.returncode == 0 and "isolation" in out.stdout
    assert json.loads(plimsoll(gw, "runs", "export", "--receipts").stdout)["verdict"] == "refused"


def test_a_run_is_found_by_its_key(gateway):
    gw = gateway(**STANDIN)
    request_id = new_id()
    gw.ok("standin: answer", request_id)
    run_id = gw.ok("standin: answer", headers=[("Idempotency-Key", '"job/7 \\"x\\""')]).header("Plimsoll-Run-Id")
    for key in ('job/7 "x"', '"job/7 \\"x\\""'):
        out = plimsoll(gw, "runs", "find", key)
        assert out.returncode == 0 and run_id in out.stdout and "holds" in out.stdout, out
    assert json.loads(plimsoll(gw, "runs", "find", request_id, "--json").stdout)["state"] == "answered"
    assert plimsoll(gw, "runs", "find", "never").returncode == 1
    g.failed(gw.run("standin: fail unavailable", headers=[("Idempotency-Key", '"lost"')]), "unavailable")
    assert plimsoll(gw, "runs", "find", "lost").returncode == 70
    code, barrier = gw.barrier()
    run = gw.in_background(code, headers=[("Idempotency-Key", '"slow"')])
    gw.wait_inflight(1)
    out = plimsoll(gw, "runs", "find", "slow")
    assert out.returncode == 75 and "dispatched" in out.stdout
    found = g.Background(lambda: plimsoll(gw, "runs", "find", "slow", "--wait", "60"))
    gw.wait_metric("plimsoll_key_waits_total", 1)
    barrier.unlink()
    assert run.join().status == 200 and found.join(30).returncode == 0


def test_usage_by_the_command(gateway):
    gw = gateway(**STANDIN, SANDBOX_RATE_PER_MIN="100", PLIMSOLL_SECONDS_PER_DAY="3600")
    gw.ok("standin: hold 20")
    out = plimsoll(gw, "usage")
    assert out.returncode == 0, out.stderr
    rows = {line.split("  ")[0]: line for line in out.stdout.splitlines()}
    assert "3600.000 s" in rows["sandbox time of the day"] and "none" in rows["paid time of the day"]
    assert json.loads(plimsoll(gw, "usage", "--json").stdout)["runs"] == 1
    assert plimsoll(gw, "usage", "x").returncode == 2 and plimsoll(gw, "usage", "--day", "20261130").returncode == 2


def test_usage_of_everybody(gateway, redis):
    gw = gateway(start=False, **STANDIN, PLIMSOLL_REDIS_URL=redis.url)
    gw.write_callers({"one": ONE, "two": TWO})
    gw.start()
    for token in (ONE, ONE, TWO):
        assert gw.run("standin: hold 20", token=token).status == 200
    out = wait_for(lambda: (lambda o: o if '"runs":3' in o.stdout.replace(" ", "") else None)(
        plimsoll(gw, "usage", "--all", "--json", PLIMSOLL_REDIS_URL=redis.url)), "everybody's runs")
    assert out.returncode == 0, out.stderr
    rows = {row["caller"]: row for row in json.loads(out.stdout)["callers"]}
    assert rows[None]["runs"] == 3 and rows["one"]["runs"] == 2 and rows["two"]["runs"] == 1
    assert rows["one"]["sandbox_ms"] > 0 and rows["one"]["cost"] == "0" and rows["one"]["running"] == 0
    table = plimsoll(gw, "usage", "--all", PLIMSOLL_REDIS_URL=redis.url)
    assert table.returncode == 0 and "(all)" in table.stdout and "two" in table.stdout
    assert plimsoll(gw, "usage", "--all", "--day", "20200101", "--json", PLIMSOLL_REDIS_URL=redis.url).returncode == 0
    # another installation's callers are not shown
    other = plimsoll(gw, "usage", "--all", "--json", PLIMSOLL_REDIS_URL=redis.url, PLIMSOLL_INSTALLATION="other")
    assert '"one"' not in other.stdout


def test_usage_of_everybody_in_the_private_redis(gateway):
    gw = gateway(**STANDIN)
    gw.ok("standin: answer")
    wait_for(lambda: '"static"' in plimsoll(gw, "usage", "--all", "--json", PLIMSOLL_STATE_DIR=str(gw.state)).stdout, "the caller to be listed")


def test_usage_of_everybody_without_redis(gw):
    out = plimsoll(gw, "usage", "--all", PLIMSOLL_REDIS_URL=f"redis://127.0.0.1:{g.free_port()}/0")
    assert out.returncode == 1 and "does not answer" in out.stderr


def test_usage_of_everybody_aborted_on_an_installation_with_capitals(gw):
    out = plimsoll(gw, "usage", "--all", PLIMSOLL_REDIS_URL=f"redis://127.0.0.1:{g.free_port()}/0", PLIMSOLL_INSTALLATION="BAD")
    assert out.returncode == 78 and "PLIMSOLL_INSTALLATION takes 1 to 32 of a-z, 0-9 and -" in out.stderr


@pytest.mark.parametrize("day", ["20261232", "20260230", "20261301", "20260001", "2026113", "202611300", "2026113x", "-2026113", ""])
def test_usage_took_days_that_no_calendar_has(gw, day):
    out = plimsoll(gw, "usage", "--all", "--day", day, PLIMSOLL_REDIS_URL=f"redis://127.0.0.1:{g.free_port()}/0")
    assert out.returncode == 2 and "--day" in out.stderr


def test_usage_of_everybody_says_why_redis_does_not_answer(gw, redis):
    out = plimsoll(gw, "usage", "--all", PLIMSOLL_REDIS_URL=redis.url.replace("redis://", "redis://nobody:wrong@"))
    assert out.returncode == 1 and "AUTH refused" in out.stderr and "wrong@" not in out.stderr


def test_the_page_of_a_run_took_any_query(gw):
    run = gw.ok("standin: answer").header("Plimsoll-Run-Id")
    assert gw.get(f"/v1/runs/{run}").status == 200
    refused_http(gw.get(f"/v1/runs/{run}?fields=record"), 400, "invalid_argument")
