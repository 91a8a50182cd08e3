"""The record store over TLS: who is believed, who is not, and that bytes of every size come through."""
import signal
import socket
import time

import pytest

import gateway as g
import redis_servers as r
from gateway import new_id, refused, wait_for
from relay import Slow

STANDIN = {"SANDBOX_PROVIDER": "standin"}


@pytest.fixture(scope="module")
def certificates():
    c = r.Certificates()
    yield c
    c.remove()


@pytest.fixture
def tls_server(certificates):
    started = []

    def make(*arguments, pair=None):
        server = r.Server(*certificates.of(pair or certificates.server), *arguments, tls=certificates)
        started.append(server)
        return server.start()
    yield make
    for server in started:
        server.stop()


def is_never_up(gw, reason):
    """The store is away for that reason, a run is refused, and the gateway lives."""
    wait_for(lambda: reason in gw.log(), f"{reason!r} in the log")
    assert gw.get("/readyz").status == 503 and gw.get("/healthz").status == 200
    refused(gw.run("standin: answer"), "unavailable", "capacity")
    assert not gw.log_lines("record store up")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
@pytest.mark.parametrize("asks_for_one", ["no", "yes"])
def test_a_server_of_a_known_authority(gateway, tls_server, certificates, host, asks_for_one):
    server = tls_server("--tls-auth-clients", asks_for_one)
    mine = {"PLIMSOLL_REDIS_CERT": str(certificates.client[0]), "PLIMSOLL_REDIS_KEY": str(certificates.client[1])} if asks_for_one == "yes" else {}
    gw = gateway(PLIMSOLL_REDIS_URL=f"rediss://{host}:{server.port}", PLIMSOLL_REDIS_CA=str(certificates.ca), **mine, **STANDIN)
    wait_for(lambda: gw.get("/readyz").status == 200, "the store to be up")
    # answers of sizes around a TLS record's, and one that takes many
    for size in (0, 1, 16 * 1024 - 200, 16 * 1024, 600 * 1024):
        request_id = new_id()
        first = gw.ok(f"standin: bytes {size}", request_id)
        again = gw.run(f"standin: bytes {size}", request_id)
        assert again.header("Plimsoll-Replayed") == "1" and again.body == first.body
    # the connection is lost and made again
    before = server.info("total_connections_received")
    server.ask("CLIENT", "KILL", "TYPE", "normal")
    server.ask("CLIENT", "KILL", "TYPE", "pubsub")
    wait_for(lambda: gw.run("standin: answer").status == 200, "the connection to be back")
    assert int(server.info("total_connections_received")) > int(before)


def test_bytes_that_come_one_by_one(tls_server, gateway, certificates):
    slow = Slow(tls_server("--tls-auth-clients", "no"), piece=1)
    try:
        gw = gateway(PLIMSOLL_REDIS_URL=f"rediss://localhost:{slow.port}", PLIMSOLL_REDIS_CA=str(certificates.ca), **STANDIN)
        wait_for(lambda: gw.get("/readyz").status == 200, "the store to be up")
        request_id = new_id()
        wait_for(lambda: gw.run("standin: bytes 300", request_id).status == 200, "an answer")
        wait_for(lambda: gw.run("standin: bytes 300", request_id).header("Plimsoll-Replayed") == "1", "the same again")
        gw.stop()
    finally:
        slow.stop()


@pytest.mark.faults
def test_more_than_the_sockets_take_waits_and_arrives_whole(tls_server, gateway, certificates):
    server = tls_server("--tls-auth-clients", "no")
    gw = gateway(PLIMSOLL_REDIS_URL=f"rediss://localhost:{server.port}", PLIMSOLL_REDIS_CA=str(certificates.ca), SANDBOX_MAX_CONCURRENT="32", **STANDIN)
    wait_for(lambda: gw.get("/readyz").status == 200, "the store to be up")
    code, barrier = gw.barrier()
    code += "\nstandin: bytes 900000"
    ids = [new_id() for _ in range(16)]
    runs = [gw.in_background(code, request_id) for request_id in ids]
    gw.wait_inflight(len(ids))
    server.signal(signal.SIGSTOP)
    barrier.unlink()
    time.sleep(0.6)  # less than the silence after which a connection is dropped
    server.signal(signal.SIGCONT)
    answers = [run.join() for run in runs]
    assert {a.status for a in answers} == {200}
    wait_for(lambda: gw.metric("plimsoll_settle_backlog") == 0 == gw.metric("plimsoll_spool_records"), "what waited to be written")
    for request_id, first in zip(ids, answers):
        again = gw.run(code, request_id)
        assert again.header("Plimsoll-Replayed") == "1" and again.body == first.body


@pytest.mark.parametrize("is_ours", [True, False], ids=["other_ca", "system"])
def test_a_server_of_an_unknown_authority(gateway, tls_server, certificates, is_ours):
    server = tls_server("--tls-auth-clients", "no")
    ca = {"PLIMSOLL_REDIS_CA": str(certificates.other_ca)} if is_ours else {}
    gw = gateway(PLIMSOLL_REDIS_URL=f"rediss://localhost:{server.port}", **ca, **STANDIN)
    is_never_up(gw, "the server's certificate is not trusted")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_certificate_of_another_name(gateway, tls_server, certificates, host):
    server = tls_server("--tls-auth-clients", "no", pair=certificates.elsewhere)
    gw = gateway(PLIMSOLL_REDIS_URL=f"rediss://{host}:{server.port}", PLIMSOLL_REDIS_CA=str(certificates.ca), **STANDIN)
    is_never_up(gw, "mismatch")


def test_a_server_that_asks_for_a_certificate_and_gets_none(gateway, tls_server, certificates):
    server = tls_server("--tls-auth-clients", "yes")
    gw = gateway(PLIMSOLL_REDIS_URL=f"rediss://localhost:{server.port}", PLIMSOLL_REDIS_CA=str(certificates.ca), **STANDIN)
    is_never_up(gw, "certificate required")


def test_a_server_that_speaks_only_an_old_tls(gateway, tls_server, certificates):
    server = r.Server(*certificates.of(certificates.server), "--tls-auth-clients", "no", "--tls-protocols", "TLSv1.1", "--tls-ciphers",
                      "ALL:@SECLEVEL=0", tls=certificates).spawn()
    try:
        wait_for(lambda: "Ready to accept connections" in server.log(), "redis-server to be ready", g.START_S)
        gw = gateway(PLIMSOLL_REDIS_URL=f"rediss://localhost:{server.port}", PLIMSOLL_REDIS_CA=str(certificates.ca), **STANDIN)
        is_never_up(gw, "TLS: ")
    finally:
        server.stop()


def test_a_plain_server_is_not_spoken_to_over_tls_and_the_other_way_round(gateway, tls_server, certificates, redis):
    gw = gateway(PLIMSOLL_REDIS_URL=f"rediss://localhost:{redis.port}", PLIMSOLL_REDIS_CA=str(certificates.ca), **STANDIN)
    is_never_up(gw, '"reason":"')
    server = tls_server("--tls-auth-clients", "no")
    gw = gateway(PLIMSOLL_REDIS_URL=f"redis://127.0.0.1:{server.port}", **STANDIN)
    is_never_up(gw, '"reason":"')


def test_a_server_that_says_nothing_is_given_up_within_a_second(gateway, certificates):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        began = time.monotonic()
        gw = gateway(PLIMSOLL_REDIS_URL=f"rediss://localhost:{listener.getsockname()[1]}", PLIMSOLL_REDIS_CA=str(certificates.ca), **STANDIN)
        is_never_up(gw, "TLS timed out")
        assert time.monotonic() - began < g.START_S


@pytest.mark.parametrize("settings, said", [
    ({"PLIMSOLL_REDIS_CA": "missing"}, "authorities' file"), ({"PLIMSOLL_REDIS_CERT": "client"}, "go together"),
    ({"PLIMSOLL_REDIS_KEY": "client"}, "go together"), ({"PLIMSOLL_REDIS_CERT": "client", "PLIMSOLL_REDIS_KEY": "server"}, "no usable key"),
    ({"PLIMSOLL_REDIS_CERT": "missing", "PLIMSOLL_REDIS_KEY": "client"}, "certificate chain")])
def test_files_that_cannot_be_used_stop_the_start_by_name(gateway, certificates, settings, said):
    paths = {("PLIMSOLL_REDIS_CERT", "client"): certificates.client[0], ("PLIMSOLL_REDIS_KEY", "client"): certificates.client[1],
             ("PLIMSOLL_REDIS_KEY", "server"): certificates.server[1]}
    gw = gateway(start=False, PLIMSOLL_REDIS_URL="rediss://user:pa55word@localhost:1",
                 **{k: str(paths.get((k, v), "/nonexistent/file")) for k, v in settings.items()})
    gw.spawn()
    gw.clean_exit = False
    assert gw.wait_exit() != 0
    log = gw.log()
    assert said in log and "PLIMSOLL_REDIS_" in log and "pa55word" not in log


def test_tls_files_without_tls_stop_the_start(gateway, certificates):
    gw = gateway(start=False, PLIMSOLL_REDIS_URL="redis://127.0.0.1:1", PLIMSOLL_REDIS_CA=str(certificates.ca))
    gw.spawn()
    gw.clean_exit = False
    assert gw.wait_exit() != 0
    assert "rediss://" in gw.log()


def test_sentinels_and_their_master(gateway, certificates):
    s = r.Sentinels(replicas=0, tls=certificates)
    try:
        s.start()
        gw = gateway(PLIMSOLL_REDIS_URL=s.url, PLIMSOLL_REDIS_CA=str(certificates.ca), **STANDIN)
        wait_for(lambda: gw.get("/readyz").status == 200, "the store to be up")
        assert gw.run("standin: answer").status == 200
        gw.stop()
        gw = gateway(PLIMSOLL_REDIS_URL=s.url, PLIMSOLL_REDIS_CA=str(certificates.other_ca), **STANDIN)
        is_never_up(gw, "no Sentinel named the master")
        assert "the server's certificate is not trusted" in gw.log()
    finally:
        s.stop()


def test_the_nodes_of_a_cluster(gateway, certificates):
    c = r.Cluster(tls=certificates)
    try:
        c.start()
        for node in c.nodes:
            gw = gateway(PLIMSOLL_REDIS_URL=f"rediss://localhost:{node.port}", PLIMSOLL_REDIS_CA=str(certificates.ca),
                         PLIMSOLL_REDIS_CERT=str(certificates.client[0]), PLIMSOLL_REDIS_KEY=str(certificates.client[1]), **STANDIN)
            wait_for(lambda: gw.get("/readyz").status == 200, "the store to be up")
            assert gw.run("standin: answer").status == 200
            gw.stop()
    finally:
        c.stop()
