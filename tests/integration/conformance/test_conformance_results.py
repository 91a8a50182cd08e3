"""What a run's answer says: the output byte for byte, the limits to the byte, exit codes, the wall and its record; on every wall alike."""
import base64
import re

import pytest

import gateway as g

CUP = "☕".encode()


def test_a_result(at):
    answer = at.ok(at.language.out(b"42\n"), g.new_id(), minimumIsolation=at.wall.tier)
    got = answer.json()
    assert g.stdout(answer) == b"42\n" and g.stderr(answer) == b""
    assert got["javascript"] == {"stdout": base64.b64encode(b"42\n").decode()}
    assert re.fullmatch(at.wall.environment, got.get("environment", ""))
    assert answer.header("Plimsoll-Backend") == at.wall.name and answer.header("Plimsoll-Replayed") is None
    described = at.describe()
    assert (described["sandbox"], described["isolation"]) == (at.wall.name, at.wall.tier)
    assert described["javascriptEnvironment"].get("identity", "") == got.get("environment", "")
    assert described["javascriptEnvironment"]["maxTimeoutMs"] == at.wall.timeout_max_ms
    assert "javascript" in described["javascriptEnvironment"]["languages"]
    assert described.get("supportsProject", False) == ("project" in at.wall.kinds)


def test_the_record_of_every_outcome_holds_and_is_kept(at):
    """check_record recomputes each; the kept one is the same."""
    for code in (at.language.out(b"a\n"), at.language.uncaught, at.language.forever, "this is no program"):
        answer = at.ok(code, timeoutMs=700)
        kept = at.gw.get("/v1/runs/" + answer.header("Plimsoll-Run-Id")).json()
        assert kept["record_sha256"] == answer.json()["record"]["recordSha256"]
        assert (kept["backend"], kept["isolation"]) == (at.wall.name, at.wall.tier)


def test_both_forms_carry_the_same_bytes(at):
    data = CUP * 5 + b"\0" + b"\n"
    code = at.language.out(data)
    body = g.field(1, 4) + g.field(10, g.field(1, code))
    key = g.new_id()
    binary = at.post(body, key, content_type="application/proto")
    assert binary.status == 200, binary
    assert g.fields(g.fields(binary.body)[10][0])[1] == [data]
    text = at.ok(code, key)  # the same run, in the other form
    assert text.header("Plimsoll-Replayed") == "1" and g.stdout(text) == data


@pytest.mark.parametrize("shift", range(3))
def test_a_character_is_cut_only_by_the_limit_and_never_replaced(at, shift):
    """U11: reads of a stream end within characters."""
    limit = at.wall.stream_max
    data = b"x" * shift + CUP * (limit // 3 + 10) + b"\n"
    if at.language.has_bare_output:
        code = f"process.stdout.write('x'.repeat({shift}) + '☕'.repeat({limit // 3 + 10}) + '\\n')"
    else:
        code = f"console.log('x'.repeat({shift}) + '☕'.repeat({limit // 3 + 10}))"
    answer = at.ok(code)
    assert g.stdout(answer) == data[:limit]
    assert answer.json()["javascript"]["stdoutTruncated"] is True
    at_rest = at.ok(code.replace(f"{limit // 3 + 10}", "20000"))
    assert g.stdout(at_rest) == b"x" * shift + CUP * 20000 + b"\n" and "stdoutTruncated" not in at_rest.json()["javascript"]


def test_a_character_that_comes_in_two_writes(at):
    if not at.language.has_raw_bytes:
        # its output is whole lines of text; half a character has no form there
        assert g.stdout(at.ok("console.log('\\ud83d\\ude00')")) == "😀\n".encode()
        return
    code = at.language.out(CUP[:2]) + at.language.wait(100) + at.language.out(CUP[2:])
    assert g.stdout(at.ok(code)) == CUP


@pytest.mark.parametrize("data", [bytes.fromhex("fffe0080"), b"\0", bytes(range(256)), b"\x80" * 1000, b"\xf0\x9f"])
def test_bytes_that_are_no_text(at, data):
    """U12."""
    if not at.language.has_raw_bytes:
        text = "".join(f"\\u{b:04x}" for b in data)
        assert g.stdout(at.ok(f"console.log('{text}')")) == data.decode("latin-1").encode() + b"\n"
        return
    answer = at.ok(at.language.out(data) + at.language.err(data[::-1]))
    assert (g.stdout(answer), g.stderr(answer)) == (data, data[::-1])
    assert data.decode("latin-1") not in at.gw.log() or data == b"\0"


@pytest.mark.parametrize("beyond", [-1, 0, 1, 4096])
def test_output_at_the_limit(at, beyond):
    """U13: exactly the limit is kept, the flag is the only sign, and the exit code is the program's own."""
    limit = at.wall.stream_max
    answer = at.ok(at.language.fill(limit + beyond))
    kept = g.stdout(answer)
    whole = b"y" * (limit + beyond) if at.language.has_bare_output else b"y" * (limit + beyond - 1) + b"\n"
    assert kept == whole[:limit]
    got = answer.json()["javascript"]
    assert got.get("stdoutTruncated", False) == (beyond > 0) and got.get("exitCode", 0) == 0 and not got.get("timedOut", False)
    assert g.stderr(answer) == b"" and "stderrTruncated" not in got


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_errors_at_the_limit(at, beyond):
    limit = at.wall.stream_max
    if at.language.has_bare_output:
        answer = at.ok(at.language.fill(limit + beyond, "stderr"))
        assert g.stdout(answer) == b""
    else:
        around = len(g.stderr(at.ok("throw 'y'.repeat(1000)"))) - 1000
        answer = at.ok(f"throw 'y'.repeat({limit + beyond - around})")
    kept = g.stderr(answer)
    assert len(kept) == min(limit, limit + beyond) and kept.count(b"y") > limit - 100
    assert answer.json()["javascript"].get("stderrTruncated", False) == (beyond > 0)


def test_endless_output_is_cut_and_ends(at):
    """By the time, by a pipe that is closed on it, or past all that is carried: as the wall says."""
    ends = at.wall.flood_ends
    answer = at.ok(at.language.flood(), timeoutMs=1000 if ends == "time" else 20000)
    got = answer.json()["javascript"]
    if ends == "budget":
        # what was kept of such a run is nobody's business: it is a failed run of the user's, with both flags
        assert (got["exitCode"], got["stdoutTruncated"], got["stderrTruncated"]) == (153, True, True) and not got.get("timedOut", False)
        return
    assert len(g.stdout(answer)) == at.wall.stream_max and set(g.stdout(answer)) <= set(b"y\n") and got["stdoutTruncated"] is True
    if ends == "pipe":
        assert got["exitCode"] != 0 and not got.get("timedOut", False)
    else:
        assert got["timedOut"] is True and got["exitCode"] == 124


def test_both_streams_are_told_apart(at):
    answer = at.ok(at.language.out(b"to out\n") + ";" + at.language.err(b"to err\n"))
    assert g.stdout(answer) == b"to out\n"
    assert b"to err" in g.stderr(answer) and b"to out" not in g.stderr(answer)


def test_no_output_at_all(at):
    answer = at.ok("1")
    assert answer.json()["javascript"] == {}


@pytest.mark.parametrize("code", [0, 1, 2, 3, 7, 77, 124, 125, 126, 127, 128, 137, 139, 143, 255])
def test_exit_codes_are_the_programs_own(at, code):
    """125 to 127 and 137 are what engines and shells say of themselves; here a program said them."""
    if not at.language.has_exit_codes:
        assert at.ok(at.language.uncaught).json()["javascript"]["exitCode"] == 1
        return
    got = at.ok(at.language.out(b"x") + at.language.exit(code)).json()["javascript"]
    assert got.get("exitCode", 0) == code and not got.get("timedOut", False)


def test_an_uncaught_error(at):
    answer = at.ok(at.language.out(b"before\n") + ";" + at.language.uncaught)
    assert answer.json()["javascript"]["exitCode"] == 1
    assert g.stdout(answer) == b"before\n" and b"Error: no" in g.stderr(answer)


def test_what_is_no_program(at):
    answer = at.ok("this is no program")
    assert answer.json()["javascript"]["exitCode"] == 1 and b"SyntaxError" in g.stderr(answer)


@pytest.mark.parametrize("size", [262144 - 1, 262144])
def test_code_at_its_limit(at, size):
    code = at.language.out(b"whole\n")
    assert g.stdout(at.ok(code + " " * (size - len(code.encode())))) == b"whole\n"


def test_runs_do_not_see_each_other(at):
    at.ok("globalThis.left = 1; try { require('fs').writeFileSync('/tmp/left', 'x') } catch {}")
    answer = at.ok("let seen = typeof left; try { require('fs').readFileSync('/tmp/left'); seen = 'a file' } catch {} console.log(seen)")
    assert g.stdout(answer) == b"undefined\n"
    assert len({g.stdout(at.ok(at.language.random)) for _ in range(5)}) == 5
