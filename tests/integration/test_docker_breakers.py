"""Attacks that got further than they should have, each with the fault it showed: see the test's name."""
import os
import signal

import gateway as g
import walls as w

FLOOD = """
import os, sys, time
try:
    out = os.open('/proc/1/fd/2', os.O_WRONLY)
except PermissionError:
    print('shut'); sys.exit()
print('open', flush=True)
written, until = 0, time.monotonic() + 15
while written < 64 << 20 and time.monotonic() < until:
    written += os.write(out, b'x' * 65536)
print(written)
"""
FORK = """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
"""


def test_what_a_guest_writes_to_the_runners_stderr_is_counted(on):
    """Where /proc lets a guest open it (gVisor), it came through to the gateway without a limit."""
    done = on.project(["python3 f.py", "echo next"], {"f.py": FLOOD}, timeoutMs=20000)
    if done.outcome == "completed":
        assert done.steps[0].out == b"shut\n" and done.codes == [0, 0], done
    else:
        assert done.outcome == "protocol_error" and len(done.steps) <= 1, done
        assert all(s.out == b"open\n" for s in done.steps), done
    assert g.stdout(on.ok("console.log(1)")) == b"1\n"


def test_a_step_too_busy_to_be_heard_of_is_not_said_never_to_have_begun(on):
    """A fork bomb leaves the runner no processor: the gateway answered that the time was over before the first step."""
    done = on.project(["python3 f.py"], {"f.py": FORK}, timeoutMs=2000)
    assert done.outcome in ("timed_out", "protocol_error") and "before" not in done.detail, done
    assert g.stdout(on.ok("console.log(1)")) == b"1\n"


def _sockets(gw):
    return {p.name for p in (gw.state / "run").iterdir() if p.name.startswith("smoke-")}


def test_a_wall_killed_in_its_smoke_test_leaves_no_socket(local_wall):
    """Those of a killed role stayed in the state directory for good."""
    with local_wall.gateway() as gw:
        on = w.At(gw, local_wall)

        def kill():
            os.kill(gw.child("plimsolld-backend-" + local_wall.name), signal.SIGKILL)

        def serves():
            g.wait_for(lambda: on.run("1").status == 200, "service again", local_wall.recovery_s)
        serves()
        kill()
        left = g.wait_for(lambda: _sockets(gw), "the smoke test's socket", local_wall.recovery_s)
        kill()
        serves()
        # one younger than a few seconds could be another wall's, not yet listened at: the next full proof takes it
        for _ in range(3):
            if not left & _sockets(gw):
                break
            kill()
            serves()
        assert not left & _sockets(gw)
