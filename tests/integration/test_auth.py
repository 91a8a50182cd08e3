"""Who may call: the shared token, the callers file with its scopes and token windows, the reload, and that no secret reaches the log."""
import contextlib
import datetime
import json
import os
import pathlib
import secrets
import signal
import time

import pytest

import gateway as g
from gateway import DESCRIBE, RUN, SERVICE, javascript, new_id, refused_early, wait_for

STANDIN = {"SANDBOX_PROVIDER": "standin"}


def authorized(gw, value, path=RUN, body=None):
    """One POST with this Authorization header, or with these when it is a list."""
    values = value if isinstance(value, list) else [value]
    return gw.post(path, javascript() if body is None else body, token="", more=[("Authorization", v) for v in values])


# -- the header --


@pytest.mark.parametrize("form", ["Bearer {}", "bearer {}", "BEARER {}", "Bearer  {}", "Bearer\t{}", " Bearer {} "])
def test_forms_of_the_header(gw, form):
    assert authorized(gw, form.format(gw.token)).status == 200


@pytest.mark.parametrize("form", ["", "Bearer", "Bearer ", "{}", "Basic {}", "Token {}", "Bearer{}", "Bearer {} x", "Bearer x {}", "Bearer, {}",
                                  "Bearer:{}", "Bearer\xa0{}", "Bearers {}"])
def test_a_header_that_is_none(gw, form):
    answer = authorized(gw, form.format(gw.token))
    refused_early(answer, "unauthenticated", "permission")
    assert gw.token not in answer.body.decode()


def test_no_header_and_two(gw):
    refused_early(authorized(gw, []), "unauthenticated", "permission")
    refused_early(authorized(gw, ["Bearer " + gw.token] * 2), "unauthenticated", "permission")


@pytest.mark.parametrize("change", [lambda t: t[:-1], lambda t: t + "0", lambda t: t.upper(), lambda t: "x" * len(t), lambda t: "x", lambda t: "x" * 4096,
                                    lambda t: "x" * 4097, lambda t: "x" * 20000, lambda t: '"' + t + '"', lambda t: "é" + t])
def test_an_unknown_token(gw, change):
    request_id = new_id()
    answer = gw.run(request_id=request_id, token=change(gw.token))
    refused_early(answer, "unauthenticated", "permission", request_id)
    assert answer.header("WWW-Authenticate")


def test_missing_and_unknown_have_texts_of_their_own(gw):
    assert authorized(gw, []).message != authorized(gw, "Bearer " + "x" * 40).message


@pytest.mark.parametrize("name", ["Describe", "Run", "OpenSession", "SessionRun", "CloseSession", "Nothing"])
def test_every_procedure_wants_the_token(gw, name):
    refused_early(gw.post(SERVICE + name, {}, token=""), "unauthenticated", "permission")


def test_the_token_is_asked_for_before_the_body_is_read(gw):
    with gw.connect() as c:
        c.send(g.head(RUN, [("Content-Type", "application/json"), ("Content-Length", "1000000")]))
        refused_early(c.read_answer(), "unauthenticated", "permission")
    # and before the body's size, the media type, the method and the encoding are looked at
    more = [("Content-Type", "x"), ("Content-Length", str(9 * g.MIB)), ("Content-Encoding", "x")]
    for method in ("POST", "GET"):
        with gw.connect() as c:
            c.send(g.head(RUN, more, method))
            assert c.read_answer().status == 401


def test_open_mode_takes_any_token_and_none(open_gw):
    for headers in ([], ["Bearer x"], ["nonsense"]):
        assert authorized(open_gw, headers).status == 200
    assert open_gw.wait_log("code run")["caller"] == "anon"
    assert open_gw.log_lines("configuration"), "no warning that everybody may run code"


def test_the_shared_token_is_one_caller(gw):
    gw.ok("1")
    assert gw.wait_log("code run")["caller"] == "static"


# -- the callers file --


def entry(token, **more):
    return {"token_sha256": g.token_hash(token), "scopes": ["code:run"], **more}


@pytest.fixture
def with_callers(gateway):
    """with_callers({id: token or entry}, SETTING=...) starts a gateway with a callers file."""
    def make(callers, **settings):
        gw = gateway(start=False, auth=False, **settings)
        gw.write_callers(callers)
        return gw.start()
    return make


def test_callers_of_the_file(with_callers):
    tokens = {n: secrets.token_hex(20) for n in ("alice", "bob é", "x" * 200)}
    gw = with_callers(tokens)
    for name, token in tokens.items():
        answer = gw.run(token=token)
        assert answer.status == 200
        assert gw.wait_log("code run", run_id=answer.header("Plimsoll-Run-Id"))["caller"] == name
    refused_early(gw.run(token=secrets.token_hex(20)), "unauthenticated", "permission")
    refused_early(gw.run(token=""), "unauthenticated", "permission")
    # the fingerprint is not the token
    refused_early(gw.run(token=g.token_hash(tokens["alice"])), "unauthenticated", "permission")


def test_the_file_wins_over_the_shared_token(gateway):
    gw = gateway(start=False)
    alice = secrets.token_hex(20)
    gw.write_callers({"alice": alice})
    gw.start()
    assert gw.run(token=alice).status == 200
    refused_early(gw.run(token=gw.token), "unauthenticated", "permission")


@pytest.mark.parametrize("scopes, runs", [(["code:run"], True), (["*"], True), (["other", "code:run"], True), (["other"], False), ([], False),
                                          (["code:runs"], False), (["CODE:RUN"], False), (["code:*"], False)])
def test_scopes(with_callers, scopes, runs):
    token = secrets.token_hex(20)
    gw = with_callers({"a": entry(token, scopes=scopes)})
    gw.secrets.append(token)
    for path, body in ((RUN, javascript()), (DESCRIBE, {})):
        answer = gw.post(path, body, token=token)
        if runs:
            assert answer.status == 200
        else:
            refused_early(answer, "permission_denied", "permission")
    for path in ("/v1/backends", "/v1/runs"):
        assert gw.get(path, token=token).status == (200 if runs else 403)
    answer = gw.post(SERVICE + "Nothing", {}, token=token)
    refused_early(answer, "permission_denied", "permission")


def at(seconds):
    return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_two_tokens_with_windows(with_callers):
    """Rotation with overlap: the old token ends by itself, the new one begins by itself."""
    old, new, never, past = (secrets.token_hex(20) for _ in range(4))
    begin = time.time()
    gw = with_callers({
        "a": {"scopes": ["code:run"], "tokens": [{"token_sha256": g.token_hash(old), "not_after": at(6)},
                                                 {"token_sha256": g.token_hash(new), "not_before": at(4)}]},
        "b": {"scopes": ["code:run"], "tokens": [{"token_sha256": g.token_hash(never), "not_before": at(3600)},
                                                 {"token_sha256": g.token_hash(past), "not_after": at(-5)}]}})
    gw.secrets += [old, new, never, past]
    for token in (never, past):
        refused_early(gw.run(token=token), "unauthenticated", "permission")
    with gw.connect() as c:
        def status(token):
            # an open connection notices both ends too
            c.send(g.head("/v1/backends", gw.headers(token=token, content_type=None), "GET"))
            return c.read_answer().status
        statuses = []
        while time.time() - begin < 7.5:
            statuses.append((time.time() - begin, status(old), status(new)))
            time.sleep(0.1)
    # the file's times are whole seconds, so a second is left on either side of each
    assert all((o, n) == (200, 401) for t, o, n in statuses if t < 2.8), statuses
    assert all(o == 200 and n == 200 for t, o, n in statuses if 4.3 < t < 4.8), statuses
    assert all((o, n) == (401, 200) for t, o, n in statuses if t > 6.3), statuses


# -- reload (U23) --


def reload(gw, callers=None, text=None):
    before = len(gw.log_lines("callers in force"))
    if text is None:
        gw.write_callers(callers)
    else:
        (gw.home / "callers.json").write_text(text)
    gw.signal(signal.SIGHUP)
    if text is None:
        wait_for(lambda: len(gw.log_lines("callers in force")) > before, "the new callers to be in force")


def test_a_reload_takes_an_old_token_away_at_once(with_callers):
    old, new, other = (secrets.token_hex(20) for _ in range(3))
    gw = with_callers({"a": old, "b": other})
    with gw.connect() as c, gw.connect() as d:
        assert gw.run(token=old, on=c).status == 200
        assert gw.run(token=other, on=d).status == 200
        reload(gw, {"a": new, "b": other})
        # the open connection, the next request on it, and a fresh one
        refused_early(gw.describe(token=old, on=c), "unauthenticated", "permission")
        refused_early(gw.run(token=old), "unauthenticated", "permission")
        assert gw.run(token=new).status == 200
        assert gw.run(token=other, on=d).status == 200
    [line] = gw.log_lines("callers reloaded")
    assert line["level"] == "info" and not any(t in json.dumps(line) for t in (old, new, g.token_hash(old), g.token_hash(new)))
    # the identity is the same, and so are its runs
    assert len({r["run_id"] for r in gw.get("/v1/runs", token=new).json()["runs"]}) == 2


@pytest.mark.faults
def test_a_run_goes_on_over_a_reload(with_callers):
    old, new = secrets.token_hex(20), secrets.token_hex(20)
    gw = with_callers({"a": old}, **STANDIN)
    code, barrier = gw.barrier()
    request_id = new_id()
    job = gw.in_background(code, request_id, token=old)
    gw.wait_inflight(1)
    reload(gw, {"b": new})
    refused_early(gw.run(token=old), "unauthenticated", "permission")
    assert not job.is_over
    barrier.unlink()
    answer = job.join()
    assert answer.status == 200
    g.check_record(javascript(code), answer)
    # of a caller that is no more, and still its record
    assert gw.wait_log("code run", run_id=answer.header("Plimsoll-Run-Id"))["caller"] == "a"


BROKEN = {
    "no JSON": "{", "empty": "", "no clients": "{}", "null": '{"clients":null}', "none left": '{"clients":[]}', "an array": "[]",
    "unknown member": '{"clients":[],"x":1}', "behind": '{"clients":[{"id":"a","token_sha256":"%s","scopes":["code:run"]}]} x' % ("0" * 64),
    "short hash": '{"clients":[{"id":"a","token_sha256":"00","scopes":["code:run"]}]}',
    "id twice": json.dumps({"clients": [{"id": "a", "token_sha256": c * 64, "scopes": []} for c in "01"]}),
    "hash twice": json.dumps({"clients": [{"id": i, "token_sha256": "0" * 64, "scopes": []} for i in "ab"]}),
    "star": '{"clients":[{"id":"*","token_sha256":"%s","scopes":[]}]}' % ("0" * 64),
    "scope with a space": '{"clients":[{"id":"a","token_sha256":"%s","scopes":["a b"]}]}' % ("0" * 64),
    "the same member twice": '{"clients":[{"id":"a","id":"a","token_sha256":"%s","scopes":[]}]}' % ("0" * 64),
}


def test_a_broken_file_keeps_the_old_set_and_says_so(with_callers):
    token, new = secrets.token_hex(20), secrets.token_hex(20)
    gw = with_callers({"a": token})
    for name, text in BROKEN.items():
        before = len(gw.log_lines("callers file not taken over, the old set stays"))
        reload(gw, text=text)
        wait_for(lambda: len(gw.log_lines("callers file not taken over, the old set stays")) > before, f"the complaint about {name}")
        assert gw.run(token=token).status == 200, name
    (gw.home / "callers.json").unlink()
    before = len(gw.log_lines("callers file not taken over, the old set stays"))
    gw.signal(signal.SIGHUP)
    wait_for(lambda: len(gw.log_lines("callers file not taken over, the old set stays")) > before, "the complaint about no file")
    assert gw.run(token=token).status == 200
    assert not gw.log_lines("callers reloaded")
    reload(gw, {"a": new})
    assert gw.run(token=new).status == 200 and gw.run(token=token).status == 401


def test_many_reloads_under_load(with_callers):
    always = secrets.token_hex(20)
    gw = with_callers({"always": always, "other": secrets.token_hex(20)})
    over = []

    def load():
        statuses = set()
        with gw.connect() as c:
            while not over:
                statuses.add(gw.run(token=always, on=c).status)
        return statuses
    jobs = [g.Background(load) for _ in range(4)]
    for n in range(20):
        reload(gw, {"always": always, f"other{n}": secrets.token_hex(20)})
    over.append(True)
    assert all(j.join() == {200} for j in jobs)


def test_a_front_that_was_restarted_has_the_callers_of_the_last_reload(with_callers):
    old, new = secrets.token_hex(20), secrets.token_hex(20)
    gw = with_callers({"a": old})
    reload(gw, {"a": new})
    before = len(gw.log_lines("callers in force"))
    os.kill(gw.child("plimsolld-front"), signal.SIGKILL)
    wait_for(lambda: len(gw.log_lines("callers in force")) > before, "the front to be back", g.START_S)

    def answered(token):
        try:
            return gw.run(token=token).status
        except (OSError, g.Closed):
            return None
    wait_for(lambda: answered(new) == 200, "service to resume", g.START_S)
    assert answered(old) == 401


def test_hangup_without_a_callers_file_changes_nothing(gateway):
    gw = gateway()
    gw.signal(signal.SIGHUP)
    gw.wait_log("nothing to reload: no callers file is in use")
    gw.ok("1")


@pytest.mark.parametrize("name", BROKEN)
def test_the_start_refuses_a_broken_file(gateway, name):
    gw = gateway(start=False, auth=False)
    path = gw.write_callers({})
    path.write_text(BROKEN[name])
    gw.exit_status = 2
    gw.spawn()
    assert gw.wait_exit() == 2
    assert "callers file" in gw.log() or "clients" in gw.log(), gw.log()


# -- secrets and the log --


def test_refused_credentials_are_logged_as_a_count_only(gateway):
    gw = gateway()
    tried = [secrets.token_hex(20) for _ in range(50)]
    gw.secrets += tried
    for token in tried:
        assert gw.run(token=token).status == 401
    lines = gw.wait_log("credentials refused") and gw.log_lines("credentials refused")
    # one line in 30 s for each loop
    assert 1 <= len(lines) <= 8 and all(set(line) <= {"time", "level", "role", "msg", "count"} for line in lines), lines
    assert gw.metric("plimsoll_auth_refused_total") == 50
    assert not any(g.token_hash(t) in gw.log() for t in tried)


def test_nothing_of_a_request_but_its_numbers_is_logged(gateway):
    gw = gateway(PLIMSOLL_LOG_LEVEL="debug")
    marks = [secrets.token_hex(16) for _ in range(5)]
    gw.secrets += marks
    gw.ok(f"console.log('{marks[0]}'); throw new Error('{marks[1]}')", new_id())
    gw.post(RUN, '{"protocol":4,"javascript":{"code":"%s"},}' % marks[2])
    gw.post(RUN, javascript("1", minimumIsolation=marks[3]))
    gw.run("1", headers=[("X-Other", marks[4]), ("Cookie", marks[4])])
    gw.wait_log("code run")


def test_the_token_is_in_no_process_environment_but_the_readers(gateway):
    """The parent and the front read it; the wall, the Redis and the workers must not see it."""
    gw = gateway()
    gw.ok("1")
    seen = {}
    for p in g.descendants(gw.process.pid):
        with contextlib.suppress(OSError):  # a worker that ended meanwhile
            seen[g.name_of(p)] = gw.token.encode() in pathlib.Path(f"/proc/{p}/environ").read_bytes()
    assert any("redis" in n for n in seen) and any("wasm" in n for n in seen)
    assert [n for n, has in seen.items() if has and "front" not in n] == []
