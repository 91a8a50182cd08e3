"""Commands and files of a sandbox, as both APIs ask for them: one way to check who asks, one to run, one to store and fetch."""
import asyncio
import re

from .canned import Ran
from .wire import Refusal, error_info
from .world import Credential, Sandbox

OVERDUE = "ENDPOINT_CREDENTIAL_EXPIRED"
ARGV_ONE_MAX = 128 << 10  # what the kernel takes as one argument


def management(call) -> None:
    """The exchanged bearer, and nothing else, opens the management routes (and, over Connect, the sandbox's own)."""
    token, world = call.bearer(), call.world
    if not token:
        raise Refusal("unauthenticated", "no bearer token")
    expires = world.bearers.get(token)
    if expires is None:
        if token == world.secret:
            call.violation("the access token was sent as a bearer")
            raise Refusal("unauthenticated", "TOKEN_INVALID", error_info("TOKEN_INVALID"))
        if token in world.credentials or token.startswith("sbxep_"):
            call.violation("an endpoint credential was sent where the account's bearer belongs")
        raise Refusal("unauthenticated", "invalid token", error_info("TOKEN_INVALID"))
    if expires <= world.mono():
        raise Refusal("unauthenticated", "token expired", error_info("TOKEN_EXPIRED"))


def endpoint_credential(call, permission: str) -> Credential:
    """A credential minted for this very sandbox, with the permission the operation asks for."""
    token, world = call.bearer(), call.world
    if not token:
        raise Refusal("unauthenticated", "invalid endpoint credential")
    credential = world.credentials.get(token)
    if credential is None or credential.sandbox != call.sandbox:
        if token in world.bearers:
            call.violation("the account's bearer was sent to a sandbox endpoint")
        elif token == world.secret:
            call.violation("the access token was sent to a sandbox endpoint")
        elif credential:
            call.violation("another sandbox's credential was sent to this endpoint")
        raise Refusal("unauthenticated", "invalid endpoint credential")
    if credential.expires <= world.mono():
        raise overdue()
    if call.counted("refuse_credential_once"):
        raise Refusal("unauthenticated", "invalid endpoint credential")
    if permission not in credential.permissions:
        raise Refusal("permissionDenied", f"the credential lacks {permission}")
    return credential


def overdue() -> Refusal:
    return Refusal("unauthenticated", "endpoint_credential_expired", error_info(OVERDUE))


def running_sandbox(call) -> Sandbox:
    sandbox = call.world.find(call.sandbox)
    if sandbox is None or sandbox.status == "deleting":
        raise Refusal("notFound", "sandbox not found")
    if sandbox.place is None:
        raise Refusal("failedPrecondition", f"sandbox is {sandbox.status}")
    return sandbox


def wrapping_of(cmd: list[str]) -> tuple[float, int] | None:
    """(seconds, bytes a stream) of a command in the in-guest wrapper; None for one without it."""
    if len(cmd) < 7 or cmd[0].rpartition("/")[2] != "sh" or cmd[1] != "-c":
        return None
    text, limit, cap = cmd[2], cmd[4], cmd[5]
    if not (re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,3})?", limit) and re.fullmatch(r"[0-9]{1,12}", cap) and float(limit) > 0 and int(cap) > 0):
        return None
    if not ("timeout" in text and re.search(r"-s\s*KILL", text) and re.search(r"head\s+-c", text)):
        return None
    return float(limit), int(cap)


def judge_command(call, cmd: list[str]) -> tuple[list[str], tuple[float, int] | None]:
    """The command inside the wrapper, and the wrapper's bounds. Everything but the fixed mkdir has to be in one."""
    if not cmd[0]:
        raise Refusal("invalidArgument", "the command's name is empty")
    if any(len(a.encode()) >= ARGV_ONE_MAX for a in cmd) or any("\0" in a for a in cmd):
        raise Refusal("invalidArgument", "an argument is too long")
    wrapped = wrapping_of(cmd)
    if wrapped:
        return cmd[6:], wrapped
    if cmd[:3] != ["mkdir", "-p", "--"] and call.knob("wrapper_required"):
        call.violation(f"a command without the wrapper: {' '.join(cmd)[:80]}")
    return cmd, None


async def run(call, sandbox: Sandbox, message: dict, expires: float | None) -> Ran:
    """Runs one command to its end. It goes on when the client leaves, and when its credential's time is up it is only the answer that is cut."""
    world = call.world
    cmd = message["cmd"]
    inner, wrapped = judge_command(call, cmd)
    sandbox.execs += 1
    world.account.count("exec", sandbox.uid)
    call.note["argv"] = [a[:200] for a in inner[:8]]
    place = sandbox.place
    command = inner if place.is_canned else cmd
    task = asyncio.ensure_future(place.run(command, {**sandbox.environment, **message.get("env", {})}, message.get("workingDir", ""), message.get("user", ""), wrapped))
    task.add_done_callback(lambda t: t.cancelled() or t.exception())
    world.later(_wait(task))
    limits = [expires - world.mono()] if expires is not None else []
    cut = call.turned.get("expire_during_exec")
    if cut and cut is not True:
        limits.append(cut / 1000)
    try:
        ran = await asyncio.wait_for(asyncio.shield(task), min(limits) if limits else None)
    except asyncio.TimeoutError:
        raise overdue() from None
    if cut is True:
        raise overdue()
    if sandbox.is_gone or sandbox.status == "deleting":
        raise Refusal("unavailable", "the sandbox went away")
    if late := call.turned.get("late_exit_ms"):
        await asyncio.sleep(late / 1000)
    if flood := call.turned.get("exec_flood"):
        ran.stdout = b"y" * (8 << 20 if flood is True else int(flood))
    if call.turned.get("exec_incomplete"):
        ran.incomplete = True
    if (code := call.turned.get("exec_exit")) is not None:
        ran.exit = code
    return ran


async def _wait(task: asyncio.Task) -> None:
    await asyncio.wait([task])


def ran_message(ran: Ran, encode) -> dict:
    """Defaults are left out: a zero exit code, empty streams, a false flag."""
    message = {"exitCode": ran.exit, "stdout": encode(ran.stdout), "stderr": encode(ran.stderr), "incomplete": ran.incomplete}
    return {k: v for k, v in message.items() if v}


async def store(call, sandbox: Sandbox, files: list[tuple[str, int, bytes]], parents: bool) -> int:
    """Writes an upload's files in order; the number that the service says it wrote."""
    call.world.account.count("upload", sandbox.uid)
    call.note["files"] = [path for path, _, _ in files[:16]]
    if not call.turned.get("upload_lost"):
        for n, (path, mode, data) in enumerate(files):
            if call.turned.get("upload_fails_at") == n:
                raise Refusal("internal", "the write failed")
            await sandbox.place.write(path, mode, data, parents)
    wrong = call.turned.get("upload_count_wrong")
    return len(files) if wrong is None or wrong is False else len(files) - 1 if wrong is True else int(wrong)


async def fetch(call, sandbox: Sandbox, paths: list[str]) -> list[tuple[str, object]]:
    """(path, (mode, bytes) or the Refusal) of each path in the order asked."""
    call.world.account.count("download", sandbox.uid)
    found: list[tuple[str, object]] = []
    for path in paths:
        try:
            found.append((path, await sandbox.place.read(path)))
        except Refusal as wrong:
            found.append((path, wrong))
    return found
