"""`plimsoll attest` and `plimsoll log` from outside: what they write is read by a second program (attest_reading.py), what that program
writes is read by them, and every way to be lied to is refused.
"""
import base64
import contextlib
import fcntl
import json
import os
import pathlib
import re
import resource
import subprocess
import threading

import attest_reading as a
import gateway as g
import pytest
from cryptography.hazmat.primitives import serialization
from test_cli import Answer, Gateway as StandIn, answer_to, plimsoll

ROOT = pathlib.Path(__file__).resolve().parents[2]
VECTORS = json.loads((ROOT / "tests/vectors/protocol-vectors.json").read_text())["derived"]
EXCHANGE = VECTORS["exchanges"][0]
CHAIN = VECTORS["session_chains"][0]
CODE = "console.log(6*7)"
FAILED_WRITE = "File too large"


class Harness:
    """A folder with a key, its bundle and a request."""

    def __init__(self, folder):
        self.folder, self.bundle = folder, folder / "runs.jsonl"
        assert attest("keygen", "-out", str(folder / "h")).returncode == 0
        self.key_path, self.pub_path = folder / "h.key", folder / "h.pub"
        self.key, self.public = a.Key.read(self.key_path), a.read_public(self.pub_path)
        self.request = folder / "request.json"
        self.request.write_text(json.dumps({"protocol": 4, "javascript": {"code": CODE}}))

    def run(self, url, *args, token=None, request=None, **kwargs):
        env = {"PLIMSOLL_CALLER_TOKEN": token} if token else {}
        return attest("run", "-daemon", url, "-key", str(self.key_path), "-bundle", str(self.bundle), *args,
                      str(request or self.request), env=env, **kwargs)

    def verify(self, *args, bundle=None):
        return attest("verify", "-pub", str(self.pub_path), *args, str(bundle or self.bundle))

    def write(self, data):
        self.bundle.write_bytes(data)
        self.bundle.chmod(0o600)
        return self

    def read(self):
        return a.verify(self.bundle.read_bytes(), self.public)


@pytest.fixture
def harness(tmp_path):
    return Harness(tmp_path)


@pytest.fixture
def stand_in():
    with contextlib.ExitStack() as stack:
        def start(script):
            server = StandIn(script)
            stack.callback(server.close)
            return server
        yield start


def attest(*args, env=(), **kwargs):
    return plimsoll("attest", *args, env=env, **kwargs)


def refused(result, *parts):
    """Exit code 1 and one line on stderr that says so."""
    text = result.stderr.decode()
    assert result.returncode == 1 and text.count("\n") == 1 and text.endswith("\n"), text
    for part in parts:
        assert part in text, text


def answers(handler, request):
    return Answer(answer_to(request, stdout=b"42\n"))


def vectors_bundle(key, prefix=a.OURS, checkpoints=True):
    """The vectors' single exchange, a checkpoint, their session with its unanswered call and close, a checkpoint."""
    w = a.Writer(key, prefix).call(EXCHANGE["request"], EXCHANGE["response"])
    if checkpoints:
        w.checkpoint()
    for call in CHAIN["calls"]:
        request = {k: v for k, v in call["request"].items() if k != "sessionId"}
        if "response" in call:
            w.call(request, call["response"]["run"])
        else:
            w.unanswered(request, call["record"])
    return w.close(CHAIN["close"]).checkpoint()


# -- keys --


def test_a_key_is_two_files_that_were_not_there(tmp_path):
    result = attest("keygen", "-out", str(tmp_path / "k"), preexec_fn=lambda: os.umask(0o077))
    key, pub = tmp_path / "k.key", tmp_path / "k.pub"
    assert result.returncode == 0 and result.stderr == b""
    assert (key.stat().st_mode & 0o777, pub.stat().st_mode & 0o777) == (0o600, 0o644)
    ours = a.Key.read(key)
    assert a.key_id(a.read_public(pub)) == ours.id and ours.id.encode() in result.stdout
    kept = key.read_bytes()
    refused(attest("keygen", "-out", str(tmp_path / "k")), "File exists")
    assert key.read_bytes() == kept
    key.unlink()
    refused(attest("keygen", "-out", str(tmp_path / "k")), "k.pub", "File exists")
    assert not key.exists()
    refused(attest("keygen"), "-out")
    refused(attest("keygen", "-out", str(tmp_path / "no" / "k")), "No such file")


def test_the_private_key_is_never_told(harness):
    secret = harness.key_path.read_text().split("\n")[1]
    results = [harness.run("http://127.0.0.1:1"), attest("verify", "-pub", str(harness.key_path), str(harness.bundle)),
               attest("sign", "-key", str(harness.key_path), "-request", str(harness.key_path), "-response", str(harness.key_path)),
               attest("keygen", "-out", str(harness.folder / "x"))]
    for result in results:
        assert secret.encode() not in result.stdout + result.stderr


def places_of(pid, needle):
    """The permissions of every mapping of a process in which the bytes stand, once for each time they do."""
    found = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for low, high, permissions in re.findall(r"^(\w+)-(\w+) (\S+)", maps.read(), re.M):
            low, high = int(low, 16), int(high, 16)
            if high - low > 1 << 32 or low >= 1 << 47:  # a sanitizer's shadow; the kernel's own
                continue
            with contextlib.suppress(OSError):
                memory.seek(low)
                found += [permissions] * memory.read(high - low).count(needle)
    return found


def test_the_private_key_stands_in_one_place_that_nothing_may_touch(stand_in, harness):
    """Looked for in the whole process while it waits for its answer: freed memory counts as well."""
    waits, release = threading.Event(), threading.Event()

    def script(handler, request):
        waits.set()
        release.wait(60)
        return answers(handler, request)
    raw = serialization.Encoding.Raw, serialization.PrivateFormat.Raw, serialization.NoEncryption()
    seed, text = harness.key.private.private_bytes(*raw), harness.key_path.read_bytes().split(b"\n")[1]
    process = subprocess.Popen([str(g.COMMAND), "attest", "run", "-daemon", stand_in(script).url, "-key", str(harness.key_path), "-bundle",
                                str(harness.bundle), str(harness.request)], env={"PATH": os.environ["PATH"]}, stdout=subprocess.DEVNULL)
    try:
        assert waits.wait(60)
        assert places_of(process.pid, seed) == ["---p"] and places_of(process.pid, text) == []
        assert places_of(process.pid, harness.key.id.encode()) != []  # it would be found
    finally:
        release.set()
        assert process.wait(60) == 0


def test_openssl_reads_the_key(harness):
    text = subprocess.run(["openssl", "pkey", "-in", harness.key_path, "-pubout"], capture_output=True, check=True).stdout
    assert text == harness.pub_path.read_bytes()


# -- a run that is kept --


def test_what_is_kept_is_what_ran(gw, harness):
    url = f"http://127.0.0.1:{gw.port}"
    first = harness.run(url, token=gw.token)
    assert first.returncode == 0 and first.stderr == b"", first
    where, record, expect = first.stdout.decode().splitlines()
    assert re.fullmatch(r"ran by wasm behind process \(evidence, not attestation\): exit 0, 3 bytes of stdout, 0 of stderr", where)
    assert harness.bundle.stat().st_mode & 0o777 == 0o600
    read = harness.read()
    assert [r["javascript"]["code"] for r in read.requests] == [CODE]
    assert [base64.b64decode(r["javascript"]["stdout"]) for r in read.responses] == [b"42\n"]
    assert record == "record " + read.records[0]["recordSha256"]
    assert expect.split() == [a.request_digest(read.requests[0]), "request.json"]
    assert read.prefixes == {a.OURS} and read.checkpoints == 1
    told = json.loads(harness.run(url, "-json", token=gw.token).stdout)
    assert told["ok"] and told["request_sha256"] == expect.split()[0] and told["response"]["javascript"]["stdout"] == "NDIK"
    (harness.folder / "expect").write_text(f"{expect}\n\n  {expect}\n")
    result = harness.verify("-expect", str(harness.folder / "expect"), "-expect-count", "2")
    assert result.returncode == 0, result
    assert result.stdout.decode() == f"2 entries under key {harness.key.id}, whole to the last checkpoint: 2 single runs\n"
    replayed = attest("replay", "-daemon", url, "-pub", str(harness.pub_path), str(harness.bundle), env={"PLIMSOLL_CALLER_TOKEN": gw.token})
    assert replayed.returncode == 0 and replayed.stderr == b""
    digest = read.records[0]["resultSha256"][:16]
    assert replayed.stdout.decode() == f"line 1: same result {digest}\nline 3: same result {digest}\n"


def test_the_key_may_come_from_the_environment(stand_in, harness):
    server = stand_in(answers)
    result = attest("run", "-daemon", server.url, "-bundle", str(harness.bundle), str(harness.request),
                    env={"PLIMSOLL_ATTEST_KEY": harness.key_path.read_text()})
    assert result.returncode == 0, result
    assert len(harness.read().records) == 1
    refused(attest("run", "-daemon", server.url, "-bundle", str(harness.bundle), str(harness.request)), "no key")
    refused(attest("run", "-daemon", server.url, "-bundle", str(harness.bundle), str(harness.request),
                   env={"PLIMSOLL_ATTEST_KEY": "x" * 100}), "PLIMSOLL_ATTEST_KEY")
    assert len(server.seen) == 1


def test_a_key_file_that_others_read_is_noted(stand_in, harness):
    harness.key_path.chmod(0o644)
    result = harness.run(stand_in(answers).url)
    assert result.returncode == 0 and b"others than its owner" in result.stderr


def lost(handler, request):
    return None


def does_not_hold(handler, request):
    answer = answer_to(request, stdout=b"42\n")
    answer["javascript"]["stdout"] = base64.b64encode(b"43\n").decode()
    return Answer(answer)


def below_the_floor(handler, request):
    return Answer(answer_to(request, tier="process"))


def of_a_session(handler, request):
    answer = answer_to(request)
    answer["record"].update(session="5" * 64, sequence="1")
    answer["record"]["recordSha256"] = a.record_digest(answer["record"])
    return Answer(answer)


def refusal(handler, request):
    return Answer({"code": "resource_exhausted", "message": "full", "details": [{"type": "plimsoll.v1.NotDispatched", "value": "CAY"}]},
                  status=429)


@pytest.mark.parametrize("script, told", [
    (lost, "may have run"), (does_not_hold, "does not hold"), (below_the_floor, "below the request's floor"),
    (of_a_session, "carries session fields"), (refusal, "nothing ran")])
def test_a_failed_run_leaves_the_bundle_as_it_was(stand_in, harness, script, told):
    harness.request.write_text(json.dumps({"protocol": 4, "minimumIsolation": "container", "javascript": {"code": CODE}}))
    refused(harness.run(stand_in(script).url), told)
    assert not harness.bundle.exists()
    harness.write(vectors_bundle(harness.key).bytes())
    kept = harness.bundle.read_bytes()
    refused(harness.run(stand_in(script).url), told)
    assert harness.bundle.read_bytes() == kept and sorted(p.name for p in harness.folder.iterdir()) == [
        "h.key", "h.pub", "request.json", "runs.jsonl"]


def test_nothing_is_sent_unless_the_bundle_can_be_continued(stand_in, harness):
    server = stand_in(answers)
    whole = vectors_bundle(harness.key)
    cases = {
        "half a line": (whole.bytes()[:-1], "does not end in a newline"),
        "no checkpoint": (b"\n".join(whole.lines[:-1]) + b"\n", "does not end in a checkpoint"),
        "another key": (vectors_bundle(a.Key()).bytes(), "line 1"),
        "junk": (b"junk\n", "line 1"),
    }
    for name, (data, told) in cases.items():
        harness.write(data)
        refused(harness.run(server.url), told, "nothing was sent")
        assert harness.bundle.read_bytes() == data, name
    harness.bundle.unlink()
    refused(harness.run(server.url, request=harness.folder / "none.json"), "No such file")
    harness.bundle.mkdir()
    refused(harness.run(server.url), "nothing was sent")
    harness.bundle.rmdir()
    harness.bundle = harness.folder / "no" / "runs.jsonl"
    refused(harness.run(server.url), "nothing was sent")
    assert server.seen == []


def test_an_empty_file_starts_fresh(stand_in, harness):
    harness.write(b"")
    assert harness.run(stand_in(answers).url).returncode == 0
    assert len(harness.read().records) == 1


@pytest.mark.parametrize("mode", [0o640, 0o620, 0o604, 0o602, 0o666])
def test_a_bundle_that_others_reach_is_refused_unless_told(stand_in, harness, mode):
    server = stand_in(answers)
    harness.write(vectors_bundle(harness.key).bytes())
    harness.bundle.chmod(mode)
    refused(harness.run(server.url), "-shared-bundle", "nothing was sent")
    assert server.seen == []
    assert harness.run(server.url, "-shared-bundle").returncode == 0
    assert harness.bundle.stat().st_mode & 0o777 == mode and len(harness.read().records) == 5


def test_a_bundle_of_the_reference_goes_on_as_one(stand_in, harness):
    harness.write(vectors_bundle(harness.key, a.REFERENCE).bytes())
    assert harness.run(stand_in(answers).url).returncode == 0
    assert harness.read().prefixes == {a.REFERENCE}


def test_many_at_once_are_all_kept(stand_in, harness):
    """All of them have their answer before any may append."""
    count = 8
    barrier, numbers = threading.Barrier(count), iter(range(1000))

    def script(handler, request):
        answer = answer_to(request, stdout=b"42\n")
        answer["record"]["endedUnixMs"] = str(1790000000012 + next(numbers))
        answer["record"]["recordSha256"] = a.record_digest(answer["record"])
        barrier.wait(60)
        return Answer(answer)
    url, results = stand_in(script).url, []
    threads = [threading.Thread(target=lambda: results.append(harness.run(url, timeout=120))) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [r.returncode for r in results] == [0] * count, results
    read = harness.read()
    assert len(read.records) == count and read.checkpoints == count
    assert len({r["recordSha256"] for r in read.records}) == count
    assert harness.verify("-expect-count", str(count)).returncode == 0


def test_a_lock_is_waited_for(stand_in, harness):
    harness.write(b"")
    arrived = threading.Event()

    def script(handler, request):
        arrived.set()
        return answers(handler, request)
    server, results = stand_in(script), []
    with open(harness.bundle, "r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        thread = threading.Thread(target=lambda: results.append(harness.run(server.url)))
        thread.start()
        assert arrived.wait(60)
        thread.join(1)
        assert thread.is_alive() and harness.bundle.read_bytes() == b""
    thread.join(60)
    assert results[0].returncode == 0 and len(harness.read().records) == 1


def limit(size):
    def apply():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return apply


def test_a_write_that_fails_midway_is_taken_back_and_the_run_kept_aside(stand_in, harness):
    server = stand_in(answers)
    harness.write(vectors_bundle(harness.key).bytes())
    kept = harness.bundle.read_bytes()
    # half a line more fits
    result = harness.run(server.url, preexec_fn=limit(len(kept) + 1000))
    refused(result, "it ran, but is not recorded", FAILED_WRITE, "the bundle is as it was", ".unsealed-")
    assert result.stdout.startswith(b"ran by wasm")
    assert harness.bundle.read_bytes() == kept
    [aside] = harness.folder.glob("runs.jsonl.unsealed-*.jsonl")
    assert re.fullmatch(r"runs\.jsonl\.unsealed-\d{8}T\d{6}Z-[0-9a-f]{8}\.jsonl", aside.name) and aside.stat().st_mode & 0o777 == 0o600
    entry = a.read_once(aside.read_bytes()[:-1])
    assert list(entry) == ["request", "response", "envelope"] and a.canonical(entry) + b"\n" == aside.read_bytes()
    assert a.open_envelope(entry["envelope"], harness.public)["predicateType"] == a.OURS + "run-record/v1"
    # and from there it can be brought in
    result = attest("bundle", "-key", str(harness.key_path), "-bundle", str(harness.bundle), str(aside))
    assert (result.returncode, result.stdout) == (0, b"1 entry appended\n"), result
    assert len(harness.read().records) == 5 and len(server.seen) == 1


def test_a_run_that_can_be_kept_nowhere_is_told(stand_in, harness):
    result = harness.run(stand_in(answers).url, preexec_fn=limit(100))
    refused(result, "it ran, but is not recorded", "could not be kept either")
    assert result.stdout.startswith(b"ran by wasm") and harness.bundle.read_bytes() == b""
    assert not list(harness.folder.glob("*.unsealed-*"))


def test_json_of_a_run_that_is_not_kept_has_its_result(stand_in, harness):
    result = harness.run(stand_in(answers).url, "-json", preexec_fn=limit(100))
    told = json.loads(result.stdout)
    assert result.returncode == 1 and not told["ok"] and "not recorded" in told["error"] and told["response"]["javascript"]["stdout"] == "NDIK"


@pytest.mark.parametrize("request_text, told", [
    ('{"protocol":4,"minimumIsolaton":"vm","javascript":{"code":"1"}}', "there is no member minimumIsolaton"),
    ('{"protocol":4,"javascript":{"code":"1","grants":"x"}}', "there is no member grants"),
    ('{"protocol":4,"project":{"steps":["x"],"files":[{"path":"a","contents":"b"}]}}', "there is no member contents"),
    ('{"protocol":4,"minimum_Isolation":"vm"}', "there is no member minimum_Isolation"),
    ("{", "malformed"), ("", "malformed")])
def test_a_request_with_a_member_nobody_knows_is_not_sent(stand_in, harness, request_text, told):
    server = stand_in(answers)
    harness.request.write_text(request_text)
    refused(harness.run(server.url), told)
    assert server.seen == []
    for spelling in ("minimumIsolation", "minimum_isolation"):
        harness.request.write_text(json.dumps({"protocol": 4, spelling: "process", "javascript": {"code": CODE, "grantProfile": ""}}))
        assert harness.run(server.url).returncode == 0


# -- verify and chain --


@pytest.mark.parametrize("prefix", [a.OURS, a.REFERENCE])
def test_a_bundle_by_another_program_verifies(harness, prefix):
    harness.write(vectors_bundle(harness.key, prefix).bytes())
    assert len(harness.read().records) == 4
    result = harness.verify()
    assert result.returncode == 0 and result.stderr == b"", result
    assert result.stdout.decode() == (f"5 entries under key {harness.key.id}, whole to the last checkpoint: 1 single run, "
                                      f"session {CHAIN['session'][:12]} with 3 calls\n")
    told = json.loads(harness.verify("-json").stdout)
    assert told == {"ok": True, "lines": 7, "entries": 5, "calls": 4, "single_runs": 1, "key_id": harness.key.id, "is_complete": None,
                    "sessions": [{"session": CHAIN["session"], "calls": 3}]}


def test_a_chain_is_printed_call_by_call(harness):
    harness.write(vectors_bundle(harness.key).bytes())
    result = attest("chain", "-pub", str(harness.pub_path), str(harness.bundle))
    lines = result.stdout.decode().splitlines()
    assert result.returncode == 0 and lines[0] == "single runs: 1"
    assert lines[2] == f"session {CHAIN['session']}: 3 calls, closed after record {CHAIN['close']['lastRecordSha256'][:16]}"
    assert [line.split()[0] for line in lines[3:]] == ["1", "2", "3"]
    assert lines[4].endswith("docker behind container, unanswered: it may have run, and ended in internal")
    told = json.loads(attest("chain", "-json", "-pub", str(harness.pub_path), str(harness.bundle)).stdout)
    assert [c["verdict"] for c in told["chain"]] == ["answered", "answered", "unanswered", "answered"]
    assert [c["previous_sha256"] for c in told["chain"][2:]] == [c["record_sha256"] for c in told["chain"][1:3]]


def test_the_list_shows_what_is_missing_and_what_nobody_asked_for(harness):
    w = vectors_bundle(harness.key)
    harness.write(w.bytes())
    digests = [a.request_digest(r) for r in harness.read().requests]
    listed = harness.folder / "list"

    def expect(lines):
        listed.write_text("".join(f"{line}\n" for line in lines))
        return harness.verify("-expect", str(listed))
    assert expect(digests).returncode == 0
    assert expect(["  " + d + "\ta label of it" for d in reversed(digests)] + [""]).returncode == 0
    refused(expect(digests + ["0" * 64 + " the lost one"]), "missing 0000000000000000 (the lost one)")
    refused(expect(digests + digests[:1]), f"missing {digests[0][:16]}")
    refused(expect(digests[1:]), f"unexpected {digests[0][:16]}")
    refused(expect(digests[2:] + ["f" * 64]), "missing ffffffffffffffff", f"unexpected {digests[0][:16]}", f"unexpected {digests[1][:16]}")
    refused(expect([digests[0].upper()]), "line 1 of the list")
    refused(expect(["", digests[0], "x"]), "line 3 of the list")
    refused(expect([f"{i:064x}" for i in range(8)]), "missing", " and 4 more")
    refused(harness.verify("-expect-count", "3"), "4 calls and not 3")
    refused(harness.verify("-expect-count", "x"), "-expect-count")
    assert harness.verify("-expect-count", "4").returncode == 0
    # cut back to its first checkpoint it verifies, and the list tells
    harness.write(b"".join(line + b"\n" for line in w.lines[:2]))
    assert harness.verify().returncode == 0
    refused(expect(digests), "missing")
    refused(harness.verify("-expect-count", "4"), "1 calls and not 4")


def test_the_trace_id_names_an_unexpected_call(stand_in, harness):
    harness.request.write_text(json.dumps({"protocol": 4, "traceId": "ticket-7", "javascript": {"code": CODE}}))
    assert harness.run(stand_in(answers).url).returncode == 0
    (harness.folder / "list").write_text("")
    refused(harness.verify("-expect", str(harness.folder / "list")), "(ticket-7)")


def relinked(w, change):
    """The bundle with its first entry changed and linked rightly: what only the key's holder could do."""
    entry = a.read_once(w.lines[0])
    del entry["link"]
    change(entry)
    return a.Writer(w.key, w.prefix)._link(entry).checkpoint()


def second_signature(env, key):
    other = a.Key()
    payload = base64.b64decode(env["payload"])
    env["signatures"].append({"keyid": other.id, "sig": base64.b64encode(other.sign(a.pae(payload))).decode()})


def test_signatures_beside_ours(harness):
    w = vectors_bundle(harness.key)
    # on an entry: one that verifies is enough
    harness.write(relinked(w, lambda e: second_signature(e["envelope"], harness.key)).bytes())
    assert harness.verify().returncode == 0
    harness.write(relinked(w, lambda e: e["envelope"]["signatures"][0].update(keyid="")).bytes())
    assert harness.verify().returncode == 0
    harness.write(relinked(w, lambda e: e["envelope"]["signatures"][0].update(keyid="0" * 64)).bytes())
    refused(harness.verify(), "line 1", "does not verify under this key")
    # on a link: exactly one
    line = a.read_once(w.lines[-1])
    second_signature(line["link"], harness.key)
    harness.write(b"".join(x + b"\n" for x in w.lines[:-1]) + a.canonical(line) + b"\n")
    refused(harness.verify(), "line 7", "exactly one signature")


@pytest.mark.parametrize("name, change", {
    "unpadded": lambda e: e.update({n: e[n].rstrip("=") for n in ("request", "response")}),
    "other alphabet": lambda e: e.update(request=e["request"].replace("/", "_").replace("+", "-") + "_-=="),
    "another request": lambda e: e.update(request=base64.b64encode(a.pack("RunRequest", {"protocol": 3})).decode()),
    "no request": lambda e: (e.pop("request"), e.pop("response")),
    "no answer": lambda e: e.pop("response"),
    "junk for an answer": lambda e: e.update(response="AAAA"),
    "another type": lambda e: e["envelope"].update(payloadType="application/json"),
    "an unknown member": lambda e: e.update(more="x"),
}.items())
def test_what_a_call_stores_is_checked(harness, name, change):
    harness.write(relinked(vectors_bundle(harness.key), change).bytes())
    refused(harness.verify(), "line 1")


def test_a_predicate_with_a_strange_member_is_refused(harness):
    predicate = a.record_predicate(EXCHANGE["response"]["record"])
    for change in ({"instance": "pod:1"}, {"more": 1}, {"sequence": "0"}, {"version": 9}):
        payload = a.statement(a.OURS, "run-record", predicate["record_sha256"], "run-record", {**predicate, **change})
        harness.write(a.Writer(harness.key).entry(EXCHANGE["request"], EXCHANGE["response"], payload).checkpoint().bytes())
        refused(harness.verify(), "line 1")


# -- sign and bundle --


def test_one_exchange_is_signed(harness, tmp_path):
    (tmp_path / "q").write_text(json.dumps(EXCHANGE["request"]))
    (tmp_path / "a").write_text(json.dumps(EXCHANGE["response"]))
    result = attest("sign", "-key", str(harness.key_path), "-request", str(tmp_path / "q"), "-response", str(tmp_path / "a"))
    assert result.returncode == 0, result
    said = a.open_envelope(a.read_once(result.stdout), harness.public)
    assert said["predicate"] == a.record_predicate(EXCHANGE["response"]["record"])
    out = tmp_path / "entry"
    args = ["sign", "-key", str(harness.key_path), "-request", str(tmp_path / "q"), "-response", "-", "-entry", "-out", str(out)]
    result = attest(*args, stdin=(tmp_path / "a").read_bytes())
    assert result.returncode == 0 and list(a.read_once(out.read_bytes())) == ["request", "response", "envelope"]
    refused(attest(*args, stdin=(tmp_path / "a").read_bytes()), "File exists")


def test_nothing_is_signed_that_does_not_hold(harness, tmp_path):
    def sign(request, response=None, record=None):
        args = ["-key", str(harness.key_path)]
        for name, content in (("request", request), ("response", response), ("record", record)):
            if content is not None:
                (tmp_path / name).write_text(json.dumps(content))
                args += ["-" + name, str(tmp_path / name)]
        return attest("sign", *args)
    request, response = EXCHANGE["request"], EXCHANGE["response"]
    call = CHAIN["calls"][1]
    assert sign(request, response).returncode == 0
    assert sign(call["request"], record=call["record"]).returncode == 0
    refused(sign({**request, "timeoutMs": 1}, response), "nothing is signed", "request digest")
    refused(sign({**request, "minimumIsolation": "vm"}, response), "nothing is signed")
    refused(sign(request, {**response, "sandbox": "e2b"}), "nothing is signed")
    refused(sign(request, {**response, "record": {**response["record"], "version": 1}}), "nothing is signed")
    refused(sign(request, {k: v for k, v in response.items() if k != "record"}), "carries no record")
    refused(sign(call["request"], record={**call["record"], "unanswered": ""}), "nothing is signed")
    refused(sign(request, record=response["record"]), "nothing is signed")
    refused(sign(None, response), "-request")
    refused(sign(request), "-response")
    refused(sign(request, response, response["record"]), "one of")
    (tmp_path / "request").write_text('{"protocol":3,"protocol":3}')
    refused(attest("sign", "-key", str(harness.key_path), "-request", str(tmp_path / "request"), "-response", str(tmp_path / "request")),
            "malformed")


def stored_lines():
    lines = [{"request": EXCHANGE["request"], "response": EXCHANGE["response"]}]
    for call in CHAIN["calls"]:
        lines.append({"request": call["request"], "response": call["response"]["run"]} if "response" in call
                     else {"request": call["request"], "record": call["record"]})
    return lines + [{"close": CHAIN["close"]}]


def test_stored_exchanges_become_a_bundle(harness, tmp_path):
    args = ["bundle", "-key", str(harness.key_path), "-bundle", str(harness.bundle)]
    text = "".join(json.dumps(line, indent=None) + "\n\n" for line in stored_lines())
    (tmp_path / "stored").write_text(text)
    assert attest(*args, str(tmp_path / "stored")).stdout == b"5 entries appended\n"
    read = harness.read()
    assert (len(read.records), len(read.closes), read.checkpoints) == (4, 1, 1)
    assert harness.bundle.stat().st_mode & 0o777 == 0o600
    lines = stored_lines()
    harness.write(a.Writer(harness.key).call(EXCHANGE["request"], EXCHANGE["response"]).checkpoint().bytes())
    kept = harness.bundle.read_bytes()
    for broken, told in ((lines[1:3], "never closed"), (lines[:1] + lines[2:], "without a gap"), ([{"request": EXCHANGE["request"]}], "line 1"),
                         ([{**lines[0], "x": 1}], "line 1: it has a member that is not known"), ([1], "line 1"),
                         ([{"close": {"session": "x"}}], "name its session"), (lines[:1] + [lines[0] | {"record": {}}], "line 2")):
        result = attest(*args, "-", stdin="".join(json.dumps(line) + "\n" for line in broken).encode())
        refused(result, told, "the bundle is as it was")
        assert harness.bundle.read_bytes() == kept
    # somebody else's signed entry is not ours
    other = a.Writer(a.Key()).call(EXCHANGE["request"], EXCHANGE["response"])
    entry = a.read_once(other.lines[0])
    del entry["link"]
    refused(attest(*args, "-", stdin=a.canonical(entry) + b"\n"), "does not verify under this key")
    refused(attest(*args, str(tmp_path / "none")), "No such file")
    assert harness.bundle.read_bytes() == kept


def module_exchange(outputs):
    request = {"protocol": 4, "module": {"model": "M", "rows": [{"values": [1.5]}], "endTime": 1, "step": 0.5}}
    response = {"sandbox": "wasm", "isolation": "process", "environment": "e",
                "module": {"outcome": "PROJECT_OUTCOME_COMPLETED", "width": len(outputs), "runs": [{"status": 1, "outputs": outputs}]}}
    record = {"version": 4, "requestSha256": a.request_digest(request), "resultSha256": a.result_digest(response), "provider": "wasm",
              "isolation": "process", "environment": "e", "startedUnixMs": "1790000000000", "endedUnixMs": "1790000000001"}
    record["recordSha256"] = a.record_digest(record)
    return request, {**response, "record": record}


def test_doubles_come_through_exactly(harness):
    """NaN, infinities, a negative zero as the gateway prints it (-0), and the last bit of a fraction."""
    request, response = module_exchange(["NaN", "Infinity", "-Infinity", -0.0, 0.1, 5e-324])
    line = json.dumps({"request": request, "response": response}).replace("-0.0", "-0")
    result = attest("bundle", "-key", str(harness.key_path), "-bundle", str(harness.bundle), "-", stdin=line.encode() + b"\n")
    assert result.returncode == 0, result
    assert harness.read().records[0]["resultSha256"] == response["record"]["resultSha256"]
    assert harness.verify().returncode == 0


def test_a_nan_with_a_payload_is_the_same_result(harness):
    """A binary message may carry any NaN; all of them digest as one."""
    request, response = module_exchange(["NaN"])
    quiet = bytes.fromhex("000000000000f87f")
    w = a.Writer(harness.key).call(request, response)
    entry = a.read_once(w.lines[0])
    del entry["link"]
    packed = base64.b64decode(entry["response"])
    assert packed.count(quiet) == 1
    for other in ("010000000000f87f", "000000000000f8ff", "010000000000f07f"):
        entry["response"] = base64.b64encode(packed.replace(quiet, bytes.fromhex(other))).decode()
        harness.write(a.Writer(harness.key)._link(entry).checkpoint().bytes())
        assert harness.verify().returncode == 0, other


# -- replay --


def test_a_result_that_differs_is_told(stand_in, harness):
    assert harness.run(stand_in(answers).url).returncode == 0
    other = stand_in(lambda handler, request: Answer(answer_to(request, stdout=b"43\n")))
    args = ["replay", "-pub", str(harness.pub_path), str(harness.bundle)]
    result = attest(*args, "-daemon", other.url)
    recorded, now = a.result_digest(answer_to({"protocol": 4, "javascript": {"code": CODE}}, stdout=b"42\n")), a.result_digest(
        answer_to({"protocol": 4, "javascript": {"code": CODE}}, stdout=b"43\n"))
    refused(result, "1 of 1 calls differed")
    assert result.stdout.decode() == f"line 1: different: recorded {recorded[:16]}, now {now[:16]}\n"
    for script, told in ((lost, "may have run"), (refusal, "nothing ran"), (does_not_hold, "result digest")):
        result = attest(*args, "-daemon", stand_in(script).url)
        refused(result, "1 of 1 calls differed")
        assert result.stdout.startswith(b"line 1: failed: ") and told.encode() in result.stdout
    told = json.loads(attest(*args, "-json", "-daemon", other.url).stdout)
    assert (told["ok"], told["same"], told["different"]) == (False, 0, 1) and told["calls"][0]["replayed_sha256"] == now


def test_nothing_is_replayed_of_a_bundle_that_does_not_verify(stand_in, harness):
    server = stand_in(answers)
    assert harness.run(server.url).returncode == 0
    data = bytearray(harness.bundle.read_bytes())
    data[40] ^= 1
    harness.write(bytes(data))
    refused(attest("replay", "-pub", str(harness.pub_path), "-daemon", server.url, str(harness.bundle)), "nothing was sent")
    assert len(server.seen) == 1


class Sessions:
    """A gateway that keeps sessions, and answers each call with what the vectors recorded for it."""

    def __init__(self):
        self.script_calls, self.open, self.last, self.calls = [], "c0ffee00" * 4, "", 0

    def __call__(self, handler, request):
        procedure = handler.path.rsplit("/", 1)[1]
        self.script_calls.append((procedure, request))
        fingerprint = a.sha256(self.open.encode())
        if procedure == "OpenSession":
            return Answer({"sessionId": self.open, "session": fingerprint, "sandbox": "docker", "isolation": "container"})
        if procedure == "CloseSession":
            return Answer({"session": fingerprint, "calls": str(self.calls), "lastRecordSha256": self.last, "ended": "SESSION_END_CLOSED"})
        recorded = CHAIN["calls"][self.calls]
        response = recorded["response"]["run"] if "response" in recorded else {
            "sandbox": "docker", "isolation": "container", "environment": "e", "javascript": {}, "record": {
                **{k: v for k, v in recorded["record"].items() if k != "unanswered"}, "version": 2, "environment": "e",
                "softwareIdentity": ""}}
        response = json.loads(json.dumps(response))
        record = response["record"]
        self.calls += 1
        record.update(session=fingerprint, sequence=str(self.calls), previousSha256=self.last, resultSha256=a.result_digest(response))
        record["recordSha256"] = self.last = a.record_digest(record)
        return Answer({"run": response})


def test_a_session_is_replayed_in_a_fresh_one(stand_in, harness):
    w = a.Writer(harness.key)
    for call in CHAIN["calls"]:
        request = {k: v for k, v in call["request"].items() if k != "sessionId"}
        w.call(request, call["response"]["run"]) if "response" in call else w.unanswered(request, call["record"])
    harness.write(w.close(CHAIN["close"]).checkpoint().bytes())
    sessions = Sessions()
    result = attest("replay", "-pub", str(harness.pub_path), "-daemon", stand_in(sessions).url, str(harness.bundle))
    refused(result, "1 of 3 calls differed")
    lines = result.stdout.decode().splitlines()
    assert re.fullmatch(r"line 1 \(session 5947d7c33d78 call 1\): same result [0-9a-f]{16}", lines[0]), lines
    assert lines[1].startswith("line 2 (session 5947d7c33d78 call 2): different: the recorded call was not answered, now ")
    assert lines[2].startswith("line 3 (session 5947d7c33d78 call 3): same result ")
    procedures = [p for p, _ in sessions.script_calls]
    assert procedures == ["OpenSession", "SessionRun", "SessionRun", "SessionRun", "CloseSession"]
    opened = sessions.script_calls[0][1]
    assert opened == {"protocol": 3, "minimumIsolation": "container", "languages": ["python"]}
    assert all(request["sessionId"] == sessions.open for _, request in sessions.script_calls[1:])


def test_a_session_that_cannot_be_opened_fails_each_of_its_calls(stand_in, harness):
    harness.write(vectors_bundle(harness.key).bytes())
    result = attest("replay", "-pub", str(harness.pub_path), "-daemon", stand_in(refusal).url, str(harness.bundle))
    refused(result, "4 of 4 calls differed")
    assert result.stdout.decode().count("failed: resource_exhausted: full") == 4


# -- the log --

LEAVES = [bytes.fromhex(a.sha256(b"%d" % i)) for i in range(11)]


def head(size, **more):
    return {"size": size, "root_sha256": a.mth(LEAVES[:size]).hex(), **more}


def log_verify(tmp_path, *documents, args=(), stdin=None):
    paths = []
    for i, document in enumerate(documents):
        paths.append(str(tmp_path / f"document{i}"))
        pathlib.Path(paths[-1]).write_text(document if isinstance(document, str) else json.dumps(document))
    return plimsoll("log", "verify", *args, *(paths if stdin is None else ["-"]), stdin=(stdin or "").encode())


def inclusion(index, size):
    return {"size": size, "index": index, "record_sha256": LEAVES[index].hex(), "path": [h.hex() for h in a.inclusion(index, LEAVES[:size])]}


def consistency(first, second):
    return {"first_size": first, "second_size": second, "path": [h.hex() for h in a.consistency(first, LEAVES[:second])]}


def test_a_head_is_signed_and_verified(harness, tmp_path):
    (tmp_path / "head").write_text(json.dumps(head(11, time_unix_ms=1790000000000, origin="prod")))
    result = attest("sign-head", "-key", str(harness.key_path), str(tmp_path / "head"))
    assert result.returncode == 0, result
    said = a.open_envelope(a.read_once(result.stdout), harness.public)
    assert said["predicateType"] == a.OURS + "log-head/v1" and said["predicate"] == head(11, time_unix_ms=1790000000000, origin="prod")
    signed = result.stdout.decode()
    pub = ["-pub", str(harness.pub_path)]
    assert log_verify(tmp_path, signed, args=pub).returncode == 0
    told = json.loads(log_verify(tmp_path, stdin=signed, args=[*pub, "-json"]).stdout)
    assert told == {"ok": True, "head": head(11, time_unix_ms=1790000000000, origin="prod"), "key_id": harness.key.id, "inclusion": []}
    refused(log_verify(tmp_path, signed), "-pub FILE is needed")
    refused(log_verify(tmp_path, head(11), args=pub), "not signed")
    refused(log_verify(tmp_path, signed.replace('"payload":"ey', '"payload":"ez'), args=pub), "document0")
    _, other = a.Key().write(tmp_path)
    refused(log_verify(tmp_path, signed, args=["-pub", str(other)]), "does not verify under this key")
    refused(attest("sign-head", "-key", str(harness.key_path), "-", stdin=b'{"size":-1,"root_sha256":"%064d"}' % 0), "a head is")
    result = attest("sign-head", "-key", str(harness.key_path), "-", stdin=json.dumps({"head": head(3)}).encode())
    assert a.open_envelope(a.read_once(result.stdout), harness.public)["predicate"] == head(3)
    # a bundle's link is signed by the same key, and is no head
    link = a.read_once(a.Writer(harness.key).checkpoint().lines[0])["link"]
    refused(log_verify(tmp_path, a.canonical(link).decode(), args=pub), "does not state a head")


def test_every_record_is_shown_to_be_in_the_log(tmp_path):
    for size in range(1, len(LEAVES) + 1):
        document = {"head": head(size), "inclusion": [inclusion(i, size) for i in range(size)]}
        result = log_verify(tmp_path, document)
        assert result.returncode == 0 and result.stdout.decode().count(" is leaf ") == size
    refused(log_verify(tmp_path, {"head": head(10), "inclusion": inclusion(3, 11)}), "for a log of 11")
    refused(log_verify(tmp_path, {"head": head(11), "inclusion": {**inclusion(3, 11), "index": 4}}), "is not leaf 4")
    refused(log_verify(tmp_path, {"head": head(11), "inclusion": {**inclusion(3, 11), "record_sha256": LEAVES[4].hex()}}), "is not leaf 3")
    refused(log_verify(tmp_path, {"head": head(11), "inclusion": {**inclusion(3, 11), "more": 1}}), "not well-formed")
    refused(log_verify(tmp_path, {"head": head(11), "inclusion": {**inclusion(3, 11), "path": ["x"]}}), "not well-formed")
    assert log_verify(tmp_path, head(11), inclusion(3, 11)).returncode == 0


def test_a_log_that_was_rewritten_is_told(tmp_path):
    def old(document):
        (tmp_path / "old").write_text(json.dumps(document))
        return ["-old", str(tmp_path / "old")]
    for first in range(1, 12):
        result = log_verify(tmp_path, head(11), consistency(first, 11), args=old(head(first)))
        assert result.returncode == 0, result
    rewritten = {**head(6), "root_sha256": a.mth(LEAVES[1:7]).hex()}
    refused(log_verify(tmp_path, head(11), consistency(6, 11), args=old(rewritten)), "rewritten")
    refused(log_verify(tmp_path, {"head": head(11), "old_head": head(7), "consistency": consistency(6, 11)}), "other sizes")
    refused(log_verify(tmp_path, {"head": head(11), "consistency": consistency(6, 11)}), "-old")
    refused(log_verify(tmp_path, head(11), args=old(head(6))), "a consistency proof from 6 to 11 is needed")
    refused(log_verify(tmp_path, head(5), args=old(head(6))), "the log was cut")
    refused(log_verify(tmp_path, head(6), args=old(rewritten)), "rewritten")
    assert log_verify(tmp_path, head(6), args=old(head(6))).returncode == 0
    refused(log_verify(tmp_path, head(6)), "nothing to check the head by")
    refused(log_verify(tmp_path, head(6), head(6)), "two heads")
    refused(log_verify(tmp_path, {"heads": head(6)}), "not known")
    refused(log_verify(tmp_path, "[]"), "not one JSON object")
    refused(log_verify(tmp_path, consistency(6, 11)), "there is no head")


def test_the_records_themselves_show_the_root(tmp_path):
    records = tmp_path / "records"

    def recompute(size, leaves, args=()):
        records.write_text("".join(leaf.hex() + " run\n" for leaf in leaves))
        return log_verify(tmp_path, head(size), args=["-records", str(records), *args])
    (tmp_path / "old").write_text(json.dumps(head(4)))
    for size in range(0, 12):
        assert recompute(size, LEAVES).returncode == 0, size
    assert b"grew from the older head's 4" in recompute(9, LEAVES, ["-old", str(tmp_path / "old")]).stdout
    refused(recompute(11, LEAVES[:10]), "10 records, the head 11")
    refused(recompute(11, LEAVES[:3] + LEAVES[4:] + LEAVES[3:4]), "root is not the head's")
    (tmp_path / "old").write_text(json.dumps({**head(4), "root_sha256": head(5)["root_sha256"]}))
    refused(recompute(9, LEAVES, ["-old", str(tmp_path / "old")]), "rewritten")
    records.write_text("xyz\n")
    refused(log_verify(tmp_path, head(1), args=["-records", str(records)]), "line 1 of the records")


# -- usage --


def test_exit_codes_and_help():
    for family, verbs in (("attest", ["keygen", "run", "verify", "chain", "replay", "sign", "bundle", "sign-head"]), ("log", ["verify", "head", "prove"])):
        for args in ([], ["bogus"], ["-bogus"]):
            result = plimsoll(family, *args)
            assert result.returncode == 2 and result.stdout == b"" and result.stderr.startswith(b"Usage:"), args
        for args in (["-help"], ["--help"], ["help"], ["-h"]):
            result = plimsoll(family, *args)
            assert result.returncode == 0 and result.stdout.startswith(b"Usage:") and result.stderr == b""
        for verb in verbs:
            for flag in ("-help", "--help", "-h"):
                result = plimsoll(family, verb, flag)
                assert result.returncode == 0 and result.stdout.startswith(f"Usage: plimsoll {family} {verb}".encode())
                assert max(map(len, result.stdout.decode().splitlines())) <= 120
            refused(plimsoll(family, verb, "-bogus"), f"plimsoll {family} {verb}: ")
            refused(plimsoll(family, verb, "-pub"), f"plimsoll {family} {verb}: ")
            result = plimsoll(family, verb, *["x"] * 3000)
            assert result.returncode == 1
    assert plimsoll("help", "attest").stdout == plimsoll("attest", "-help").stdout


def test_flags_in_every_spelling(harness):
    harness.write(vectors_bundle(harness.key).bytes())
    for args in (["-pub", str(harness.pub_path)], ["--pub", str(harness.pub_path)], [f"-pub={harness.pub_path}"], [f"--pub={harness.pub_path}"]):
        assert attest("verify", *args, str(harness.bundle)).returncode == 0
    assert attest("verify", str(harness.bundle), "-pub", str(harness.pub_path)).returncode == 0
    refused(attest("verify", str(harness.bundle)), "-pub")
    refused(attest("verify", "-pub", str(harness.pub_path)), "missing")
    refused(attest("verify", "-pub", str(harness.pub_path), "a", "b"), "too many")
    refused(attest("verify", "-pub", str(harness.pub_path), str(harness.folder / "none")), "No such file")
    refused(attest("run", "-timeout", "0s", "-bundle", "x", "x"), "-timeout")
    refused(attest("run", "-timeout", "25h", "-bundle", "x", "x"), "-timeout")
    refused(harness.run("http://example.com:1"), "http is allowed to loopback only", "nothing was sent")


def test_the_timeout_is_kept(stand_in, harness):
    release = threading.Event()

    def slow(handler, request):
        release.wait(30)
        return answers(handler, request)
    result = harness.run(stand_in(slow).url, "-timeout", "300ms")
    release.set()
    refused(result, "no complete answer came in time", "may have run")


def test_json_says_what_went_wrong(harness):
    result = harness.verify("-json")
    assert result.returncode == 1 and json.loads(result.stdout) == {"ok": False, "error": result.stderr.decode().split(": ", 1)[1][:-1]}
