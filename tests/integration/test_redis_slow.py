"""A Redis that answers, and late: every page is answered within its 300 ms all the same, with what there is by then."""
import time

import pytest

import gateway as g
import resp
from gateway import new_id
from relay import Slow
from stalls import Stalls


@pytest.fixture
def late(redis):
    proxy = Slow(redis)
    yield proxy
    proxy.stop()


def test_a_filter_over_a_long_index_took_seconds(gateway, redis, late):
    gw = gateway(PLIMSOLL_REDIS_URL=f"redis://127.0.0.1:{late.port}/0", SANDBOX_PROVIDER="standin")
    wanted = gw.ok("standin: answer", new_id()).header("Plimsoll-Run-Id")
    with resp.Client(redis.port) as direct:
        index, = direct.keys("*:runs")
        run, = direct.keys("*:run:*")
        value = direct("GET", run)
        newer = [i.to_bytes(16, "big") for i in range(1000)]  # of another verdict than the one looked for
        direct.pipeline([["SET", run[:-32] + i.hex(), value[:7] + b"\2" + value[8:]] for i in newer])
        direct("LPUSH", index, *newer)
    assert gw.get("/v1/runs?verdict=answered&limit=1").status == 200  # Redis has the script
    late.delay = 0.06
    with Stalls() as stalls:
        began = time.monotonic()
        answer = gw.get("/v1/runs?verdict=answered")
        took = time.monotonic() - began
    assert answer.status == 200 and answer.json()["next_cursor"] is not None
    assert took < 0.3 + stalls.worst, f"{took * 1000:.0f} ms"
    # the pages that follow reach it: no entry is passed over
    late.delay = 0
    runs, cursor, pages = answer.json()["runs"], answer.json()["next_cursor"], 1
    while cursor is not None and not runs and pages < 20:
        page = gw.get(f"/v1/runs?verdict=answered&cursor={cursor}").json()
        runs, cursor, pages = page["runs"], page["next_cursor"], pages + 1
    assert [r["run_id"] for r in runs] == [wanted]


def test_every_page_and_every_run_is_answered_in_time(gateway, redis, late):
    gw = gateway(PLIMSOLL_REDIS_URL=f"redis://127.0.0.1:{late.port}/0", SANDBOX_PROVIDER="standin")
    request_id = new_id()
    gw.ok("standin: answer", request_id)
    late.delay = 0.28  # past what a script may take
    pages = ["/v1/runs", "/v1/runs?kind=javascript", "/v1/runs/" + "a" * 32, f"/v1/runs/by-key/{request_id}", "/v1/usage", "/v1/log/head",
             "/v1/log/inclusion?index=0", "/v1/log/inclusion?run=" + "a" * 32, "/v1/log/consistency?first=1"]
    for what in [lambda p=p: gw.get(p) for p in pages] + [lambda: gw.run("standin: answer"), lambda: gw.run("standin: answer", new_id())]:
        with Stalls() as stalls:
            began = time.monotonic()
            answer = what()
            took = time.monotonic() - began
        assert answer.status in (200, 503), answer
        assert took < 0.3 + stalls.worst, f"{took * 1000:.0f} ms: {answer}"
