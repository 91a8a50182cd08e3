"""The log of records over HTTP and by the command: heads and proofs against a Merkle tree of this file's own, two copies with one order, and a
log that was changed behind the gateway's back."""
import hashlib
import json
import os
import secrets
import subprocess
import threading

import pytest

import gateway as g
import resp
from gateway import new_id, wait_for

STANDIN = {"SANDBOX_PROVIDER": "standin"}
KEY = "plimsoll:2:{default}:log"


# -- RFC 6962 section 2.1, written down again --


def leaf_hash(data):
    return hashlib.sha256(b"\0" + data).digest()


def root(leaves):
    """MTH of the leaves' data."""
    n = len(leaves)
    if n == 0:
        return hashlib.sha256().digest()
    if n == 1:
        return leaf_hash(leaves[0])
    k = 1 << ((n - 1).bit_length() - 1)
    return hashlib.sha256(b"\1" + root(leaves[:k]) + root(leaves[k:])).digest()


def path(m, leaves):
    n = len(leaves)
    if n == 1:
        return []
    k = 1 << ((n - 1).bit_length() - 1)
    return path(m, leaves[:k]) + [root(leaves[k:])] if m < k else path(m - k, leaves[k:]) + [root(leaves[:k])]


def proof(m, leaves, whole=True):
    n = len(leaves)
    if m == n:
        return [] if whole else [root(leaves)]
    k = 1 << ((n - 1).bit_length() - 1)
    if m <= k:
        return proof(m, leaves[:k], whole) + [root(leaves[k:])]
    return proof(m - k, leaves[k:], False) + [root(leaves[:k])]


def hexes(hashes):
    return [h.hex() for h in hashes]


def data(n):
    return hashlib.sha256(b"record %d" % n).digest()


# -- the gateway --


def push(client, leaves):
    for i in range(0, len(leaves), 500):
        client("RPUSH", KEY, *leaves[i:i + 500])


def get(gw, what, **query):
    answer = gw.get("/v1/log/" + what + ("?" + "&".join(f"{k}={v}" for k, v in query.items()) if query else ""))
    return answer


def ok(gw, what, **query):
    """The page, once Redis is reached."""
    answer = wait_for(lambda: (lambda a: a if a.status != 503 else None)(get(gw, what, **query)), what)
    assert answer.status == 200, answer
    assert answer.header("Content-Type") == "application/json"
    return answer.json()


def told(answer, code, *parts):
    assert answer.code == code, answer
    for part in parts:
        assert part in answer.message, answer
    return answer


@pytest.fixture
def copies(gateway, redis):
    """Two copies on one Redis, and a client of that."""
    first = gateway(PLIMSOLL_REDIS_URL=redis.url, **STANDIN)
    second = gateway(PLIMSOLL_REDIS_URL=redis.url, PLIMSOLL_TOKEN=first.token, **STANDIN)
    second.token = first.token
    with resp.Client(redis.port) as client:
        yield first, second, client


@pytest.fixture
def one(gateway, redis):
    with resp.Client(redis.port) as client:
        yield gateway(PLIMSOLL_REDIS_URL=redis.url, **STANDIN), client


def test_heads_and_proofs_are_those_of_the_tree(one):
    gw, client = one
    leaves = [data(n) for n in range(700)]
    head = ok(gw, "head")
    assert (head["size"], head["root_sha256"], head["origin"]) == (0, root([]).hex(), "plimsoll/default")
    push(client, leaves)
    head = ok(gw, "head")
    assert (head["size"], head["root_sha256"]) == (700, root(leaves).hex())
    assert set(head) == {"size", "root_sha256", "time_unix_ms", "origin"}
    for size in (1, 2, 255, 256, 257, 511, 699, 700):
        assert ok(gw, "head", size=size)["root_sha256"] == root(leaves[:size]).hex()
        for index in {0, size // 2, size - 1}:
            page = ok(gw, "inclusion", index=index, size=size)
            assert page["inclusion"] == {"size": size, "index": index, "record_sha256": leaves[index].hex(),
                                         "path": hexes(path(index, leaves[:size]))}
            assert (page["head"]["size"], page["head"]["root_sha256"]) == (size, root(leaves[:size]).hex())
        for first in {1, size // 3 + 1, size}:
            page = ok(gw, "consistency", first=first, second=size)
            assert page["consistency"] == {"first_size": first, "second_size": size, "path": hexes(proof(first, leaves[:size]))}
            assert page["old_head"]["root_sha256"] == root(leaves[:first]).hex()
    assert ok(gw, "consistency", first=0)["consistency"] == {"first_size": 0, "second_size": 700, "path": []}
    assert ok(gw, "inclusion", index=699)["inclusion"]["size"] == 700
    assert gw.metric("plimsoll_log_records") == 700 and gw.metric("plimsoll_log_changed") == 0


LONG = "9223372036854775807"


def test_what_is_asked_wrongly_is_told_by_its_name(one):
    gw, client = one
    push(client, [data(n) for n in range(9)])
    ok(gw, "head", size=9)
    for what, query, parts in [
            ("head", "size=10", ["size is 10", "9 records"]), ("head", "size=", ["size must be"]), ("head", "size=01", ["size must be"]),
            ("head", "size=-1", ["size must be"]), ("head", "size=" + LONG, [f"size is {LONG}", "9 records"]),
            ("head", "size=9223372036854775808", ["size must be"]), ("head", "size=18446744073709551617", ["size must be"]),
            ("head", "size=1&size=1", ["once"]), ("head", "index=1", ["size"]), ("head", "size", ["size"]),
            ("inclusion", "", ["run or index"]), ("inclusion", "size=3", ["run or index"]), ("inclusion", "index=9", ["index is 9", "9 records"]),
            ("inclusion", "index=3&size=3", ["index is 3", "size (3)"]), ("inclusion", "index=3&size=10", ["size is 10"]),
            ("inclusion", "run=1", ["run must be"]), ("inclusion", "run=" + "A" * 32, ["run must be"]),
            ("inclusion", "run=" + "0" * 32 + "&index=1", ["run or index"]), ("inclusion", "index=x", ["index must be"]),
            ("consistency", "", ["first"]), ("consistency", "second=3", ["first"]), ("consistency", "first=4&second=3", ["first is 4", "second (3)"]),
            ("consistency", "first=1&second=10", ["second is 10", "9 records"]), ("consistency", "first=10", ["first is 10", "9 records"]),
            ("consistency", "first=1&run=1", ["first"])]:
        answer = gw.get(f"/v1/log/{what}?{query}")
        g.expect(answer, 400, "invalid_argument", None, "request")
        told(answer, "invalid_argument", *parts)
    # the least and the largest that are right
    for what, query in [("head", "size=0"), ("inclusion", "index=8"), ("inclusion", "index=0&size=1"), ("consistency", "first=9"),
                        ("consistency", "first=0&second=0")]:
        assert gw.get(f"/v1/log/{what}?{query}").status == 200, query
    g.expect(gw.get("/v1/log/head", method="POST"), 405, "unimplemented", None, "request")
    assert gw.get("/v1/log/head", method="HEAD").status == 200


def test_a_stranger_sees_nothing(one):
    gw, _ = one
    for what in ("head", "inclusion?index=0", "consistency?first=0"):
        assert gw.get("/v1/log/" + what, token="0" * 48).status == 401


def test_two_copies_have_one_order_while_it_grows(copies):
    """Heads that either copy gives at any moment are beginnings of what the other gives next."""
    first, second, client = copies
    leaves = [data(n) for n in range(3000)]
    done = threading.Event()

    def grow():
        for i in range(0, len(leaves), 7):
            push(client, leaves[i:i + 7])
        done.set()
    grower = g.Background(grow)
    heads, at = [], 0
    while not done.is_set() or at % 2 or not heads or heads[-1]["size"] != len(leaves):
        head = ok((first, second)[at % 2], "head")
        assert not heads or head["size"] >= heads[-1]["size"], "a later head is shorter"
        assert head["root_sha256"] == root(leaves[:head["size"]]).hex()
        if heads and heads[-1]["size"]:
            page = ok((second, first)[at % 2], "consistency", first=heads[-1]["size"], second=head["size"])
            assert page["consistency"]["path"] == hexes(proof(heads[-1]["size"], leaves[:head["size"]]))
        heads.append(head)
        at += 1
    grower.join()
    assert len({h["size"] for h in heads}) > 2


def test_a_leaf_changed_by_hand_is_noticed_by_every_copy(copies):
    first, second, client = copies
    leaves = [data(n) for n in range(1000)]
    push(client, leaves)
    for gw in (first, second):
        assert ok(gw, "head")["size"] == 1000
    client("LSET", KEY, 300, data(5000))
    # by a proof that goes through it, and by itself
    told(get(first, "inclusion", index=301), "data_loss", "256 to 511")
    second.wait_metric("plimsoll_log_changed", 1)
    for gw in (first, second):
        for what, query in (("head", {}), ("inclusion", {"index": 1}), ("consistency", {"first": 10})):
            told(get(gw, what, **query), "data_loss", "256 to 511")
        assert gw.wait_log("record_log_changed")["key"] == KEY
        assert gw.metric("plimsoll_log_current") == 0
    # put back, it is not believed either: who changed it once may do so between two looks
    client("LSET", KEY, 300, leaves[300])
    told(get(first, "head"), "data_loss")


@pytest.mark.parametrize("cut", [("RPOP", KEY), ("LPOP", KEY), ("LTRIM", KEY, 0, 3), ("DEL", KEY)], ids=lambda c: c[0])
def test_a_log_that_was_cut_is_noticed(one, cut):
    gw, client = one
    push(client, [data(n) for n in range(300)])
    assert ok(gw, "head")["size"] == 300
    client(*cut)
    gw.wait_metric("plimsoll_log_changed", 1)
    told(get(gw, "head"), "data_loss")
    assert gw.run().status == 200, "runs go on"


def test_what_is_no_digest_is_noticed(one):
    gw, client = one
    client("RPUSH", KEY, "short")
    gw.wait_metric("plimsoll_log_changed", 1)
    told(get(gw, "head"), "data_loss", "32 bytes")


def test_a_start_reads_the_whole_log(gateway, redis):
    leaves = [data(n) for n in range(20000)]
    with resp.Client(redis.port) as client:
        push(client, leaves)
    gw = gateway(PLIMSOLL_REDIS_URL=redis.url, **STANDIN)
    head = ok(gw, "head")
    assert (head["size"], head["root_sha256"]) == (20000, root(leaves).hex())


def test_redis_away(one, redis):
    gw, client = one
    push(client, [data(0)])
    ok(gw, "head")
    redis.process.kill()
    redis.process.wait()
    answer = wait_for(lambda: (lambda a: a if a.status == 503 else None)(get(gw, "head")), "the log to be away")
    told(answer, "unavailable", "record store")
    assert int(answer.header("Retry-After")) == 1


# -- the command --


def plimsoll(gw, *args):
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PLIMSOLL_URL": f"http://127.0.0.1:{gw.port}", "PLIMSOLL_CALLER_TOKEN": gw.token}
    return subprocess.run([str(g.COMMAND), *map(str, args)], capture_output=True, text=True, env=env, timeout=g.ANSWER_S)


def refused(result, *parts):
    assert result.returncode == 1 and len(result.stderr.splitlines()) == 1, result
    for part in parts:
        assert part in result.stderr, result


def test_the_command_keeps_a_head_and_checks_that_the_log_only_grew(one, tmp_path):
    gw, client = one
    leaves = [data(n) for n in range(60)]
    push(client, leaves[:20])
    ok(gw, "head", size=20)
    kept = tmp_path / "kept"
    assert plimsoll(gw, "log", "head", "-out", kept).returncode == 0
    head = json.loads(kept.read_text())
    assert (head["size"], head["root_sha256"]) == (20, root(leaves[:20]).hex())
    assert json.loads(plimsoll(gw, "log", "head").stdout)["root_sha256"] == head["root_sha256"]
    # nothing came since, then something did
    assert plimsoll(gw, "log", "verify", "-old", kept).returncode == 0
    push(client, leaves[20:])
    newer = tmp_path / "newer"
    result = plimsoll(gw, "log", "verify", "-old", kept, "-out", newer)
    assert result.returncode == 0 and "grew from the older head's 20" in result.stdout, result
    assert json.loads(newer.read_text())["size"] == 60
    told = json.loads(plimsoll(gw, "log", "verify", "-old", kept, "-json").stdout)
    assert told["ok"] and told["consistent_from"] == 20 and told["head"]["size"] == 60
    # a head of another log
    (tmp_path / "other").write_text(json.dumps({**head, "root_sha256": root(leaves[1:21]).hex()}))
    refused(plimsoll(gw, "log", "verify", "-old", tmp_path / "other"), "rewritten")
    (tmp_path / "other").write_text(json.dumps({**head, "size": 61}))
    refused(plimsoll(gw, "log", "verify", "-old", tmp_path / "other"), "the log was cut")
    # signed ones
    assert plimsoll(gw, "attest", "keygen", "-out", tmp_path / "key").returncode == 0
    assert plimsoll(gw, "attest", "sign-head", "-key", tmp_path / "key.key", "-out", tmp_path / "signed", kept).returncode == 0
    assert plimsoll(gw, "log", "verify", "-old", tmp_path / "signed", "-pub", tmp_path / "key.pub").returncode == 0
    refused(plimsoll(gw, "log", "verify", "-old", kept, "-pub", tmp_path / "key.pub"), "not signed")
    refused(plimsoll(gw, "log", "verify"), "nothing to check")
    refused(plimsoll(gw, "log", "verify", "-run", "x"), "-run takes")
    refused(plimsoll(gw, "log", "prove", "x"), "a RUN is")
    refused(plimsoll(gw, "log", "prove", "0" * 32), "not_found")


# -- runs --


def value(data):
    return len(data).to_bytes(8, "big") + data


def digest(domain, *fields):
    """attest.md section 3."""
    text = value(domain.encode()) + b"".join(value(n.encode()) + value(str(v).encode()) for n, v in fields)
    return hashlib.sha256(text).hexdigest()


def test_each_run_is_a_leaf_where_its_record_says(copies):
    first, second, client = copies
    records, runs = [], []
    for n in range(12):
        gw = (first, second)[n % 2]
        answer = gw.ok(f"standin: note {n}", new_id() if n % 3 else None)
        records.append(answer.json()["record"]["recordSha256"])
        runs.append(answer.header("Plimsoll-Run-Id"))
    assert [leaf.hex() for leaf in client("LRANGE", KEY, 0, -1)] == records
    for n, run in enumerate(runs):
        for gw in (first, second):
            page = ok(gw, "inclusion", run=run)
            leaves = [bytes.fromhex(r) for r in records]
            assert page["inclusion"] == {"size": 12, "index": n, "record_sha256": records[n], "path": hexes(path(n, leaves))}
            assert page["head"]["root_sha256"] == root(leaves).hex()
            assert gw.get("/v1/runs/" + run).json()["log_index"] == n
    # a head at which it was not there yet
    told(get(first, "inclusion", run=runs[7], size=7), "invalid_argument", "the run's index is 7", "size (7)")


def test_what_ran_nothing_is_no_leaf_and_what_may_have_run_is_one(one):
    gw, client = one
    refused_run = gw.run("standin: refuse capacity")
    assert refused_run.reason == "capacity"
    run = gw.get("/v1/runs").json()["runs"][0]
    assert run["verdict"] == "refused" and run["log_index"] is None and client("LLEN", KEY) == 0
    told(get(gw, "inclusion", run=run["run_id"]), "not_found", "refused")
    gw.run("standin: fail unavailable")
    run = gw.get("/v1/runs").json()["runs"][0]
    assert run["verdict"] == "unknown" and run["log_index"] == 0
    page = ok(gw, "inclusion", run=run["run_id"])
    receipt = page["receipt"]
    names = ["run_id", "caller_tag", "request_sha256", "verdict", "backend", "unanswered", "started_unix_ms", "ended_unix_ms"]
    assert list(receipt) == names
    assert receipt["caller_tag"] == hashlib.sha256(b"static").hexdigest()[:32]
    assert page["inclusion"]["record_sha256"] == digest("plimsoll.run-receipt.v1", *((n, receipt[n]) for n in names)) == client("LINDEX", KEY, 0).hex()
    result = plimsoll(gw, "log", "verify", "-run", run["run_id"])
    assert result.returncode == 0 and "outcome is unknown" in result.stdout and "is leaf 0" in result.stdout, result


def test_a_run_is_somebody_elses(gateway, redis):
    gw = gateway(start=False, auth=False, PLIMSOLL_REDIS_URL=redis.url, **STANDIN)
    tokens = {"a": secrets.token_hex(20), "b": secrets.token_hex(20)}
    gw.write_callers(tokens)
    gw.start()
    run = gw.run("standin: answer", token=tokens["a"]).header("Plimsoll-Run-Id")
    assert wait_for(lambda: gw.get("/v1/log/inclusion?run=" + run, token=tokens["a"]).status == 200, "the log")
    told(gw.get("/v1/log/inclusion?run=" + run, token=tokens["b"]), "not_found")
    # the leaf itself says nothing of whose it is
    assert gw.get("/v1/log/inclusion?index=0", token=tokens["b"]).status == 200


def test_the_command_finds_a_run_in_the_log_and_the_log_unbroken(one, tmp_path):
    gw, client = one
    runs = [gw.ok(f"standin: note {n}").header("Plimsoll-Run-Id") for n in range(5)]
    kept = tmp_path / "kept"
    result = plimsoll(gw, "log", "verify", "-run", runs[2], "-out", kept)
    assert result.returncode == 0 and "is leaf 2" in result.stdout, result
    later = gw.ok("standin: note 5").header("Plimsoll-Run-Id")
    result = plimsoll(gw, "log", "verify", "-run", later, "-old", kept)
    assert result.returncode == 0 and "is leaf 5" in result.stdout and "grew from the older head's 5" in result.stdout, result
    # under a head that was kept, and signed
    assert plimsoll(gw, "log", "verify", "-run", runs[4], kept).returncode == 0
    refused(plimsoll(gw, "log", "verify", "-run", later, kept), "invalid_argument", "index is 5")
    assert plimsoll(gw, "attest", "keygen", "-out", tmp_path / "key").returncode == 0
    assert plimsoll(gw, "attest", "sign-head", "-key", tmp_path / "key.key", "-out", tmp_path / "signed", kept).returncode == 0
    result = plimsoll(gw, "log", "verify", "-run", runs[0], "-pub", tmp_path / "key.pub", tmp_path / "signed")
    assert result.returncode == 0 and "signed by" in result.stdout, result
    # the proof kept for later needs no gateway
    proof_file = tmp_path / "proof"
    assert plimsoll(gw, "log", "prove", "-old", kept, "-out", proof_file, later).returncode == 0
    gw.stop()
    assert plimsoll(gw, "log", "verify", proof_file).returncode == 0
    document = json.loads(proof_file.read_text())
    document["inclusion"]["index"] = 4
    proof_file.write_text(json.dumps(document))
    refused(plimsoll(gw, "log", "verify", proof_file), "is not leaf 4")


def test_a_run_whose_leaf_was_replaced_is_told(gateway, redis):
    """Before a start, so no gateway remembers the old leaf: the run's own record does."""
    gw = gateway(PLIMSOLL_REDIS_URL=redis.url, **STANDIN)
    run = gw.ok("standin: answer").header("Plimsoll-Run-Id")
    gw.stop()
    with resp.Client(redis.port) as client:
        client("LSET", KEY, 0, data(7))
    gw.start()
    answer = wait_for(lambda: (lambda a: a if a.status != 503 else None)(get(gw, "inclusion", run=run)), "the log")
    told(answer, "data_loss", "leaf 0", "not this run's record")
    refused(plimsoll(gw, "log", "verify", "-run", run), "data_loss")
