"""Health pages and metrics: what they say, when they turn, and that they are kept apart."""
import re
import signal
import socket

import pytest

import gateway as g
from gateway import RUN, javascript, new_id, refused_http, wait_for

CONTRACT = {  # names and types of the wire contract
    "plimsoll_runs_total": "counter", "plimsoll_runs_failed_total": "counter", "plimsoll_inflight": "gauge", "plimsoll_shed_total": "counter"}


def metrics_answer(gw, path="/metrics", method="GET"):
    with g.Connection(gw.metrics_port) as c:
        c.send(g.head(path, method=method))
        return c.read_answer(method == "HEAD")


def test_metrics_are_prometheus_text(gw):
    gw.ok("1")
    answer = metrics_answer(gw)
    assert answer.status == 200 and answer.header("Content-Type") == "text/plain; version=0.0.4"
    types, helps, family = {}, set(), None
    for line in answer.body.decode().splitlines():
        if line.startswith("# HELP "):
            family = line.split()[2]
            assert family not in helps and len(line.split()) > 3
            helps.add(family)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name == family and kind in ("counter", "gauge", "histogram")
            types[name] = kind
        else:
            m = re.fullmatch(r'([a-z_][a-z0-9_]*)(\{[a-z_]+="[^"]*"(?:,[a-z_]+="[^"]*")*\})? (-?\d+(?:\.\d+)?)', line)
            assert m and m.group(1) == family and family in types, line
    assert {n: types.get(n) for n in CONTRACT} == CONTRACT
    assert all(n.endswith("_total") == (t == "counter") for n, t in types.items())


def test_shed_reasons_of_the_contract_are_there_from_the_start(gw):
    assert {f'plimsoll_shed_total{{reason="{r}"}}' for r in ("at_capacity", "per_key", "rate", "paid_caller", "paid_daemon")} <= set(gw.metrics())


def test_metrics_are_on_their_own_listener_only(gw):
    refused_http(gw.get("/metrics"), 404, "unimplemented", mark="unsupported")
    for path in ("/healthz", "/readyz", RUN, "/v1/runs", "/", "/metrics/"):
        assert metrics_answer(gw, path).status == 404
    assert metrics_answer(gw, method="POST").status == 405
    head = metrics_answer(gw, method="HEAD")
    assert head.status == 200 and head.body == b""


def test_metrics_need_no_token(gw):
    assert metrics_answer(gw).status == 200


def test_metrics_can_be_turned_off(gateway):
    for off in ("off", "OFF"):
        gw = gateway(PLIMSOLL_METRICS_ADDR=off)
        gw.ok("1")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", gw.metrics_port), 5)


def test_a_run_is_counted_once(gateway):
    gw = gateway()
    before = gw.metrics()
    assert before["plimsoll_runs_total"] == before["plimsoll_inflight"] == 0
    gw.ok("1", request_id := new_id())
    gw.ok("1", request_id)
    gw.ok("throw 1")
    gw.run("1", minimumIsolation="vm")
    after = gw.metrics()
    assert after["plimsoll_runs_total"] == 2 and after["plimsoll_runs_failed_total"] == 0 and after["plimsoll_inflight"] == 0
    assert after['plimsoll_verdicts_total{verdict="answered"}'] == 2
    assert after['plimsoll_claims_total{outcome="replayed"}'] == 1


@pytest.mark.faults
def test_only_failures_of_the_infrastructure_count_as_failed(gateway):
    gw = gateway(SANDBOX_PROVIDER="standin")
    for act, failed in (("answer 1", 0), ("refuse capacity", 0), ("fail canceled", None), ("fail internal", 1), ("lie kind", 1)):
        before = gw.metric("plimsoll_runs_failed_total")
        gw.run("standin: " + act)
        if failed is not None:
            assert gw.metric("plimsoll_runs_failed_total") - before == failed, act
    assert gw.metric('plimsoll_verdicts_total{verdict="refused"}') == 1


def test_inflight_while_a_run_runs(gw):
    before = gw.metric("plimsoll_inflight")
    with gw.start_run("const t = Date.now(); while (Date.now() - t < 500);") as c:
        gw.wait_inflight(before + 1)
        assert c.read_answer().status == 200
    gw.wait_inflight(before)


def test_health_does_not_depend_on_the_token_or_the_method_of_auth(gw, open_gw):
    for it in (gw, open_gw):
        for path, body in (("/healthz", b"ok\n"), ("/readyz", b"ready\n")):
            for token in ("", "wrong" * 10):
                answer = it.get(path, token=token)
                assert answer.status == 200 and answer.body == body and answer.header("Content-Type").startswith("text/plain")


def test_readiness_follows_the_store(gateway, redis):
    gw = gateway(PLIMSOLL_REDIS_URL=redis.url)
    assert gw.get("/readyz").status == 200
    redis.signal(signal.SIGSTOP)
    try:
        # noticed with the next use, and by itself
        answer = gw.run("1", request_id := new_id())
        assert answer.status == 503 and answer.reason == "capacity" and answer.header("Plimsoll-Request-Id") == request_id, answer
        wait_for(lambda: gw.get("/readyz").status == 503, "not to be ready")
        answer = gw.get("/readyz")
        assert answer.body == b"not ready\n" and answer.header("Plimsoll-Not-Dispatched") is None or answer.header("Plimsoll-Not-Dispatched") == "request"
        assert gw.get("/healthz").status == 200
        assert gw.metric("plimsoll_store_up") == 0
    finally:
        redis.signal(signal.SIGCONT)
    wait_for(lambda: gw.get("/readyz").status == 200, "to be ready again")
    gw.ok("1", request_id)
    assert gw.metric("plimsoll_runs_total") == 1


@pytest.mark.faults
def test_readiness_follows_the_wall(gateway):
    gw = gateway(SANDBOX_PROVIDER="standin", PLIMSOLL_PROOF_INTERVAL="1s")
    assert gw.get("/readyz").status == 200
    with gw.faults.armed("standin.prove", "fail"):
        wait_for(lambda: gw.get("/readyz").status == 503, "not to be ready")
        assert gw.get("/healthz").status == 200
        [page] = gw.get("/v1/backends").json()["backends"]
        assert page["state"] == "failed" and page["isolation"] == "unknown"
        assert gw.describe().json()["isolation"] == "unknown"
        assert gw.metric("plimsoll_backends_ready") == 0
    wait_for(lambda: gw.get("/readyz").status == 200, "to be ready again")
    gw.ok("1")


def test_a_poll_that_hangs_up_changes_nothing(gw):
    for _ in range(20):
        with gw.connect() as c:
            c.send(g.head("/readyz", method="GET"))
    assert gw.get("/readyz").status == 200


def test_metrics_connections_have_a_cap_of_their_own(gateway):
    """64 of them; they take nothing from the callers."""
    gw = gateway(PLIMSOLL_MAX_CONNECTIONS="5")
    held = [g.Connection(gw.metrics_port) for _ in range(64)]
    try:
        for c in held:
            c.send(g.head("/metrics", method="GET"))
            assert c.read_answer().status == 200
        gw.ok("1")
        with g.Connection(gw.metrics_port, timeout=0.5) as c:
            c.send(g.head("/metrics", method="GET"))
            with pytest.raises(TimeoutError):
                c.read_answer()
            held.pop().close()
            c.sock.settimeout(g.ANSWER_S)
            assert c.read_answer().status == 200
    finally:
        for c in held:
            c.close()


def test_an_internal_failure_keeps_its_text_in_the_log(gateway):
    if not g.has_fault_points():
        pytest.skip("needs the stand-in wall")
    gw = gateway(SANDBOX_PROVIDER="standin")
    answer = gw.post(RUN, javascript("standin: fail internal"), new_id_ := new_id())
    g.failed(answer, "internal", new_id_)
    m = re.search(r"\b([0-9a-f]{16})\b", answer.message)
    assert m and "detail that is not the caller's" not in answer.body.decode()
    line = gw.wait_log("internal error", error_id=m.group(1))
    assert "detail that is not the caller's" in line["error"]
