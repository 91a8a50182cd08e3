"""What the stand-ins are built on: boxes are walls and leave nothing, rules of faults act when they say, the books add up."""
import asyncio
import gc
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from standins.base import account, box, faults  # noqa: E402

CI = os.environ.get("CI") == "true"


def boxed(test):
    """Runs the test with a nursery of its own, in which boxes are walls; a machine where they cannot be is a failure under CI."""
    async def run():
        about = await box.mode()
        try:
            if about["mode"] != "ns":
                assert not CI, about["why_plain"]
                pytest.skip(about["why_plain"])
            await test()
        finally:
            await (await box.Nursery.own()).stop()
    asyncio.run(run())


async def shell(b, script, **options):
    process = await b.spawn(["/bin/sh", "-c", script], **options)
    out, err = await asyncio.gather(process.stdout.read(), process.stderr.read())
    ended = await process.wait()
    return out.decode(), err.decode(), ended


def test_commands_in_a_box_are_confined():
    async def test():
        b = await box.Box.create(name="inside")
        out, _, ended = await shell(b, "id -un; pwd; hostname; touch /usr/x 2>&1; ls /proc | grep -c '^[0-9]'; exit 7")
        assert ended == (7, None)
        user, cwd, name, touched, processes = out.split("\n")[:5]
        assert (user, cwd, name) == (("user", "/home/user", "inside") if b.nursery.info["users"] == "two" else ("root", "/root", "inside"))
        assert "Read-only" in touched and int(processes) <= 6
        out, _, _ = await shell(b, "id -u; umount /usr 2>/dev/null || echo kept; ls /home", user="root")
        assert out == "0\nkept\nuser\n"
        # nothing but a loopback: an address outside cannot be reached, at once
        node = "require('net').connect(443,'192.0.2.1').on('error',e=>{console.log(e.code)})"
        process = await b.spawn(["node", "-e", node])
        assert await process.stdout.read() == b"ENETUNREACH\n"
        await b.end()
    boxed(test)


def test_a_process_ends_as_it_did_and_alone():
    async def test():
        b = await box.Box.create()
        assert (await shell(b, "kill -SEGV $$"))[2] == (None, signal.SIGSEGV)
        process = await b.spawn(["/bin/sh", "-c", "sleep 1000 & echo $!; wait"])
        child = int(await process.stdout.readline())
        assert await process.kill() and await process.wait() == (None, signal.SIGKILL) and not await process.kill()
        # a signal reaches the one process; its child lives on until the box ends
        assert child in await b.list_processes()
        for argv, cwd, text in ((["nope"], None, "nope"), (["/bin/true"], "/nope", "/nope")):
            with pytest.raises(FileNotFoundError, match=text):
                await b.spawn(argv, cwd=cwd)
        process = await b.spawn(["cat"], stdin=True)
        await process.stdin.write(b"x" * 300_000)
        process.stdin.close()
        assert len(await process.stdout.read()) == 300_000
        long = "y" * 130_000
        process = await b.spawn(["/bin/echo", long, long])
        assert len(await process.stdout.read()) == 260_002
        await b.end()
    boxed(test)


def test_a_canceled_start_closes_no_descriptor_twice():
    """A second close hits whoever has the number by then."""
    async def test():
        b = await box.Box.create()
        loop = asyncio.get_running_loop()
        wire = loop.connect_read_pipe

        async def canceled(*arguments):
            starting.cancel()
            return await wire(*arguments)
        loop.connect_read_pipe = canceled
        starting = asyncio.create_task(b.spawn(["true"], stdin=True))
        with pytest.raises(asyncio.CancelledError):
            await starting
        mine = [os.open("/dev/null", os.O_RDONLY) for _ in range(16)]
        del starting
        for _ in range(5):
            gc.collect()
            await asyncio.sleep(0)
        for fd in mine:
            os.close(fd)    # EBADF: somebody else closed it
        loop.connect_read_pipe = wire
        await b.end()
    boxed(test)


def test_files_are_served_inside():
    async def test():
        b = await box.Box.create()
        await b.write("/home/user/a/b.txt", b"hello")
        assert (await shell(b, "cat a/b.txt"))[0] == "hello"
        # a link of the guest's leads to the guest's own file
        await shell(b, "ln -s /etc/passwd p; mkfifo f; ln -s ../../../../../../etc/hostname h")
        assert b"root:x:0:0" in await b.read("p") and pathlib.Path("/etc/passwd").read_bytes() != await b.read("p")
        assert open(b.resolve("/home/user/h")).read() == "box\n"
        entry = (await b.service("stat", path="a/b.txt"))["entry"]
        assert entry["size"] == 5 and entry["type"] == "FILE_TYPE_FILE"
        assert entry["path"] == "/home/user/a/b.txt"
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(b.open("/home/user/f"), 0.2)
        with pytest.raises(FileNotFoundError):
            await b.read("/home/user/none")
        await b.end()
    boxed(test)


def test_many_boxes_at_once_and_nothing_is_left():
    async def test():
        start = time.monotonic()
        boxes = await asyncio.gather(*(box.Box.create(name=f"b{i}") for i in range(64)))
        outs = await asyncio.gather(*(shell(b, "sleep 1000 >/dev/null 2>&1 & hostname") for b in boxes))
        assert sorted(o[0] for o in outs) == sorted(f"b{i}\n" for i in range(64))
        pids = [b.nursery.pids[b.number] for b in boxes]
        await asyncio.gather(*(b.end() for b in boxes))
        assert time.monotonic() - start < 20
        assert not [p for p in pids if os.path.exists(f"/proc/{p}")]
    boxed(test)


def test_boxes_end_with_a_killed_parent(tmp_path):
    program = tmp_path / "parent.py"
    program.write_text("import asyncio\nfrom standins.base import box\nasync def main():\n    b = await box.Box.create()\n"
                       "    await b.spawn(['sleep', '1000'])\n    print(b.nursery.pids[b.number] if b.mode == 'ns' else 0, b.nursery.process.pid, flush=True)\n"
                       "    await asyncio.sleep(1000)\nasyncio.run(main())\n")
    tests = pathlib.Path(__file__).resolve().parents[1]
    with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(tests)}) as p:
        pids = [int(n) for n in p.stdout.readline().split() if n != b"0"]
        assert pids and all(os.path.exists(f"/proc/{n}") for n in pids)
        p.kill()
        p.wait()
    end = time.monotonic() + 10
    while [n for n in pids if os.path.exists(f"/proc/{n}") and b"Z" not in pathlib.Path(f"/proc/{n}/stat").read_bytes().rpartition(b")")[2][:3]]:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_without_namespaces_processes_are_swept(tmp_path):
    async def run():
        b = await box.Box.create(tmp_path, mode="plain")
        try:
            assert b.mode == "plain"
            out, _, ended = await shell(b, "pwd; setsid sleep 1000 >/dev/null 2>&1 & echo $!")
            assert ended == (0, None) and out.startswith(f"{tmp_path}/home/user\n")
            await (await b.spawn(["touch", "/tmp/t"])).wait()
            assert (tmp_path / "tmp/t").exists()
            child = int(out.split()[-1])
            await b.end()
            assert not os.path.exists(f"/proc/{child}")
        finally:
            await (await box.Nursery.own()).stop()
    asyncio.run(run())


# -- faults --


ACTIONS = {"respond": {"status", "body"}, "delay": {"ms"}}


def taken(rules, count=6, **request):
    f = faults.Faults(ACTIONS, seed=3)
    f.load(rules)
    request = {"plane": "control", "method": "POST", "path": "/v2/sandboxes/i123abc/connect", **request}
    return [bool(f.take(request.get("phase", "before"), **{k: v for k, v in request.items() if k != "phase"})) for _ in range(count)], f


def test_a_rule_acts_from_nth_on_so_many_times():
    action = {"type": "respond", "status": 500}
    assert taken([{"action": action}])[0] == [True] * 6
    assert taken([{"action": action, "nth": 3, "times": 2}])[0] == [False, False, True, True, False, False]
    assert taken([{"action": action, "path": "/v2/sandboxes/{id}/connect"}])[0] == [True] * 6
    assert not any(taken([{"action": action, "path": "/v2/sandboxes/{id}"}])[0])
    assert taken([{"action": action, "path": "/v2/*"}])[0] == [True] * 6
    assert not any(taken([{"action": action, "plane": "data"}])[0] + taken([{"action": action, "method": "GET"}])[0])
    assert not any(taken([{"action": action, "phase": "after"}])[0])
    assert not any(taken([{"action": action, "sandbox": "other"}], sandbox="i1")[0])
    draws, f = taken([{"id": "r", "action": action, "prob": 0.5}], 400)
    assert 150 < sum(draws) < 250 and draws == taken([{"id": "r", "action": action, "prob": 0.5}], 400)[0]
    assert f.as_json()[0]["hits"] == sum(draws) and f.as_json()[0]["matches"] == 400


@pytest.mark.parametrize("rule", [{}, {"action": {"type": "nope"}}, {"action": {"type": "delay", "s": 1}}, {"action": {"type": "delay"}, "nth": 0},
                                  {"action": {"type": "delay"}, "phase": "later"}, {"action": {"type": "delay"}, "pathh": "/"},
                                  {"action": {"type": "delay"}, "times": "2"}, []])
def test_a_rule_nobody_could_mean_is_refused(rule):
    with pytest.raises(faults.BadRule):
        faults.Faults(ACTIONS).load([rule])


# -- the books --


def test_a_sandbox_bills_while_it_runs_and_only_then():
    a = account.Account(lambda ms, size: ms * size)
    e = a.open("s1", {"gw_lease": "x"}, 3)
    a.clock.offset_ms += 5000
    e.turn(account.PAUSED)
    a.clock.offset_ms += 60_000
    e.turn(account.RUNNING)
    a.clock.offset_ms += 2000
    a.believe("s1", account.GONE)
    assert [leak["reason"] for leak in a.leaks()] == ["believed gone"]
    a.end("s1", "api")
    a.clock.offset_ms += 60_000
    [row] = a.as_json()["sandboxes"]
    assert 7000 <= row["billed_ms"] < 7100 and 60_000 <= row["paused_ms"] < 60_100 and row["nano_usd"] == row["billed_ms"] * 3
    assert row["ended_by"] == "api" and a.leaks() == [] and a.as_json()["alive"] == []
    a.open("s2", {"gw_expires": str(a.clock.wall() // 1000 - 10)}, 1)
    assert [leak["reason"] for leak in a.leaks()] == ["past its expiry"]
    assert json.dumps(a.as_json())


def test_a_secret_stands_masked():
    assert account.mask("tok") == "sha256:" + __import__("hashlib").sha256(b"tok").hexdigest()[:12]
