"""What the gateway says of how its Redis is set up, and the narrowest user that suffices: docs/redis.md."""
import glob
import re

import pytest

import gateway as g
import redis_servers as r
from gateway import RUN, javascript, new_id, wait_for

STANDIN = {"SANDBOX_PROVIDER": "standin"}
PAGE = (g.ROOT / "docs" / "redis.md").read_text()
GAUGE = "plimsoll_redis_settings_wrong"
AS_RECOMMENDED = ("--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction")


@pytest.fixture
def server():
    started = []

    def make(*arguments):
        started.append(r.Server(*arguments))
        return started[-1].start()
    yield make
    for s in started:
        s.stop()


def url(server, user=""):
    return f"redis://{user}127.0.0.1:{server.port}"


def warned(gw):
    return [line["setting"] for line in gw.log_lines("redis_setting")]


def looked(gw, count):
    wait_for(lambda: gw.metric(GAUGE) == count, f"{count} settings to be counted:\n{warned(gw)}")


# -- settings --


def test_a_server_as_recommended_and_the_private_one_are_not_warned_about(server, gateway):
    gw = gateway(PLIMSOLL_REDIS_URL=url(server(*AS_RECOMMENDED)), **STANDIN)
    private = gateway(**STANDIN)
    for it in (gw, private):
        wait_for(lambda: it.get("/readyz").status == 200, "the store to be up")
        looked(it, 0)
    gw.stop()
    private.stop()
    assert not warned(gw) and not warned(private)


@pytest.mark.parametrize("arguments, settings", [
    (("--appendonly", "no"), ["appendonly"]),
    (("--appendonly", "no", "--save", "60 1"), ["appendonly"]),
    (("--appendonly", "yes", "--appendfsync", "everysec"), ["appendfsync"]),
    ((*AS_RECOMMENDED, "--maxmemory-policy", "volatile-lru"), ["maxmemory-policy"]),
    (("--appendonly", "no", "--maxmemory-policy", "allkeys-random"), ["appendonly", "maxmemory-policy"])],
    ids=["no_log", "snapshots", "everysec", "eviction", "two"])
def test_each_setting_is_named_once(server, gateway, arguments, settings):
    s = server(*arguments)
    gw = gateway(PLIMSOLL_REDIS_URL=url(s), **STANDIN)
    looked(gw, len(settings))
    assert warned(gw) == settings
    line = gw.log_lines("redis_setting")[0]
    assert line["level"] == "warn" and line["wanted"] and line["value"] and line["why"]
    assert ("snapshots" in line["why"]) == ("--save" in arguments)
    # the connection is lost and comes back: the same server is not warned about again
    before = s.ask("INFO", "commandstats").count(b"cmdstat_info")
    s.ask("CLIENT", "KILL", "TYPE", "normal")
    wait_for(lambda: int(re.search(rb"cmdstat_info:calls=(\d+)", s.ask("INFO", "commandstats")).group(1)) > before + 2, "another look")
    assert warned(gw) == settings
    # another server at the same address is
    s.kill()
    s.start()
    wait_for(lambda: len(warned(gw)) == 2 * len(settings), "the other server to be looked at")


def test_replicas_that_need_not_follow_are_warned_about(server, gateway):
    s = server(*AS_RECOMMENDED)
    replica = server("--replicaof", f"127.0.0.1 {s.port}")
    wait_for(lambda: replica.info("master_link_status") == "up", "the replica to follow", g.START_S)
    gw = gateway(PLIMSOLL_REDIS_URL=url(s), **STANDIN)
    looked(gw, 1)
    assert warned(gw) == ["min-replicas-to-write"]


def test_a_server_that_does_not_let_itself_be_looked_at(server, gateway):
    s = server("--appendonly", "no", "--rename-command", "CONFIG", "")
    gw = gateway(PLIMSOLL_REDIS_URL=url(s), **STANDIN)
    looked(gw, 2)
    assert warned(gw) == ["appendonly", "config"]
    s.ask("ACL", "SETUSER", "blind", "on", ">pa55word", "~*", "&*", "+@all", "-info", "-config", "-role")
    gw = gateway(PLIMSOLL_REDIS_URL=url(s, "blind:pa55word@"), **STANDIN)
    looked(gw, 2)
    assert warned(gw) == ["info", "config"]
    assert gw.run("standin: answer").status == 200


# -- the user --


def documented():
    """The words of the page's ACL SETUSER line after the user's name."""
    return re.search(r"^ACL SETUSER plimsoll (.*)$", PAGE, re.M).group(1).split()


def granted():
    return {w[1:] for w in documented() if w.startswith("+")}


def sources():
    return {path: open(path).read() for folder in ("core", "records", "cli") for path in glob.glob(f"{g.ROOT}/{folder}/*.[ch]")}


def test_the_page_names_every_command_of_the_scripts_and_none_that_nobody_uses(server):
    scripts = set()
    everything = "\n".join(sources().values())
    for path, text in sources().items():
        if "/records/" in path:
            scripts |= {m.lower() for m in re.findall(r"\b(?:call|try|pcall)\('([A-Z]+)'", text)}
    assert len(scripts) > 20
    assert scripts <= granted(), f"docs/redis.md lacks {sorted(scripts - granted())}"
    # what C sends: words in quotes that are commands. Three need no permission or are another page's line; one is also an error's first word
    known = {c.decode() for c in server().ask("COMMAND", "LIST")} - {"auth", "select", "sentinel", "readonly"}
    quoted = {m.lower() for m in re.findall(r'"([A-Z]{3,})"', everything)} & known
    allowed = {w.partition("|")[0] for w in granted()}
    assert {"get", "mget", "lrange"} <= quoted
    assert quoted <= allowed, f"docs/redis.md lacks {sorted(quoted - allowed)}"
    for command in granted():
        first, _, second = command.partition("|")
        assert re.search(rf"[\"']{first}\b", everything, re.I), f"docs/redis.md grants {command}, which nobody uses"


@pytest.mark.faults
def test_the_documented_user_suffices_for_everything(server, gateway):
    s = server()
    s.ask("ACL", "SETUSER", "plimsoll", *[w.replace("PASSWORD", "pa55word") for w in documented()])
    gw = gateway(PLIMSOLL_REDIS_URL=url(s, "plimsoll:pa55word@"), SANDBOX_PER_KEY_CONCURRENT="2", SANDBOX_RATE_PER_MIN="6000",
                 SANDBOX_RATE_BURST="3000", **STANDIN)
    gw.secrets.append("pa55word")
    wait_for(lambda: gw.get("/readyz").status == 200, "the store to be up")
    assert gw.run("standin: answer").status == 200
    request_id = new_id()
    gw.ok("standin: answer", request_id)
    assert gw.run("standin: answer", request_id).header("Plimsoll-Replayed") == "1"
    gw.run("standin: refuse capacity", new_id())
    gw.run("standin: fail unavailable", new_id())
    # the limit, a joined run, and the one that waits
    code, barrier = gw.barrier()
    held = new_id()
    runs = [gw.in_background(code, held) for _ in range(2)]
    gw.wait_inflight(1)
    barrier.unlink()
    assert {run.join().status for run in runs} == {200}
    # what the pages read
    listed = gw.get("/v1/runs").json()["runs"]
    assert len(listed) >= 3
    assert gw.get("/v1/runs/" + listed[0]["run_id"]).status == 200
    for page in ("/v1/usage", "/v1/log/head", f"/v1/runs/by-key/{request_id}"):
        assert gw.get(page).status in (200, 404)
    gw.restart()
    wait_for(lambda: gw.get("/readyz").status == 200, "the store to be up again")
    assert gw.post(RUN, javascript("standin: answer"), request_id).header("Plimsoll-Replayed") == "1"
    denied = [dict(zip(e[::2], e[1::2])) for e in s.ask("ACL", "LOG")]
    assert not denied, [(e[b"reason"], e[b"object"], e[b"context"]) for e in denied]
    assert warned(gw) and "config" not in warned(gw) and "info" not in warned(gw)

