"""What stands between the gateway and Redis may cut an answer at any byte, change it, say it twice or say something else: requests are answered,
no process ends, and once it is honest again the gateway is well."""
import random
import time

import pytest

import gateway as g
from gateway import new_id, wait_for
from relay import Relay

GARBAGE = [b"+OK\r\n", b":1\r\n", b"$-1\r\n", b"*-1\r\n", b"*0\r\n", b"*3\r\n:1\r\n:2\r\n:3\r\n", b"$2000000000\r\n", b"*2000000000\r\n", b"-MOVED 1 127.0.0.1:1\r\n",
           b"-ASK 1 x\r\n", b"-READONLY\r\n", b"-LOADING\r\n", b"-NOSCRIPT\r\n", b"-\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b"\x16\x03\x01\x00\x01", b"\r\n", b":99999999999999999999\r\n",
           b":-9223372036854775808\r\n", b":9223372036854775807\r\n", b"*5\r\n:0\r\n:9223372036854775807\r\n:-1\r\n:0\r\n:4294967296\r\n", b"%1\r\n+a\r\n+b\r\n",
           b"*4\r\n:1796083200000\r\n$20\r\n99999999999999999999\r\n*0\r\n:0\r\n"]


class Hostile(Relay):
    """A relay whose answers pass through `_spoil` while it is not honest."""

    def __init__(self, server, seed):
        self.rng, self.honest, self.spoiled = random.Random(seed), True, 0
        super().__init__(server)

    def answer(self, data):
        if self.honest or self.rng.random() >= 0.3:
            return data, True
        self.spoiled += 1
        return self._spoil(data)

    def _spoil(self, data):
        rng = self.rng
        at = rng.randrange(len(data))
        way = rng.randrange(9)
        if way == 0:
            return data[:at], False
        if way == 1:
            return data[:at] + bytes([rng.randrange(256)]) + data[at + 1:], True
        if way == 2:
            return data + data, True
        if way == 3:
            return rng.choice(GARBAGE) + data, True
        if way == 4:
            return rng.choice(GARBAGE), True
        if way == 5:  # another type
            kinds = [i for i, b in enumerate(data) if b in b":$*+-" and (i == 0 or data[i - 1:i] == b"\n")] or [0]
            i = rng.choice(kinds)
            return data[:i] + bytes([rng.choice(b":$*+-%")]) + data[i + 1:], True
        if way == 6:  # another number
            digits = [i for i, b in enumerate(data) if b in b"0123456789"] or [at]
            i = rng.choice(digits)
            return data[:i] + rng.choice([b"9" * 18, b"-1", b"0", b"4294967296", b"9223372036854775807"]) + data[i + 1:], True
        if way == 7:
            return data[at:], True
        return b"", True


@pytest.fixture
def hostile(redis):
    made = []

    def make(seed):
        made.append(Hostile(redis, seed))
        return made[-1]
    yield make
    for h in made:
        h.stop()


@pytest.mark.parametrize("provider", ["standin", "standinpaid"])
@pytest.mark.parametrize("seed", range(2))
def test_answers_that_are_none_end_no_process(gateway, hostile, seed, provider):
    relay = hostile(seed)
    gw = gateway(start=False, PLIMSOLL_REDIS_URL=f"redis://127.0.0.1:{relay.port}/0", SANDBOX_PROVIDER=provider, SANDBOX_RATE_PER_MIN="60000",
                 SANDBOX_RATE_BURST="60000", PLIMSOLL_TOTAL_CONCURRENT="50", PLIMSOLL_SECONDS_PER_DAY="100000", PLIMSOLL_RUNS_PER_WINDOW="100000")
    if provider == "standinpaid":
        account = gw.home / "account"
        account.mkdir()
        account.chmod(0o777)
        gw.settings["PLIMSOLL_STANDINPAID_DIR"] = str(account)
        gw.settings["PLIMSOLL_STANDINPAID"] = "unseen=1500,attempt=300"
    gw.start()
    wait_for(lambda: gw.get("/readyz").status == 200, "the gateway to be ready")
    pids = {name: gw.child(name) for name in ("plimsolld-front", f"plimsolld-backend-{provider}")}
    assert None not in pids.values(), pids
    relay.honest = False
    end, rng, slow = time.monotonic() + 6, random.Random(seed), []

    def ask(i):
        rng = random.Random(seed * 100 + i)
        keys = [new_id() for _ in range(3)]
        while time.monotonic() < end:
            what = rng.randrange(7)
            key = rng.choice(keys)
            answer = (gw.run("standin: answer", key) if what == 0 else gw.run("standin: answer") if what == 1 else gw.get("/v1/runs?verdict=answered") if what == 2
                      else gw.get("/v1/usage") if what == 3 else gw.get(f"/v1/runs/by-key/{key}?wait=1") if what == 4
                      else gw.get("/v1/log/head") if what == 5 else gw.get(f"/v1/log/inclusion?index={rng.randrange(5)}"))
            assert 200 <= answer.status < 600
    askers = [g.Background(lambda i=i: ask(i)) for i in range(4)]
    for a in askers:
        a.join(60)
    relay.honest = True
    assert relay.spoiled > 50
    assert {name: gw.child(name) for name in pids} == pids
    wait_for(lambda: gw.get("/readyz").status == 200, "the gateway to be ready again", 30)
    wait_for(lambda: gw.run("standin: answer", new_id()).status == 200, "a run", 30)
