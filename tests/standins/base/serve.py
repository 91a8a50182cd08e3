"""How a stand-in runs as a process: loopback alone, one line of JSON when it is ready, gone with its parent."""
import argparse
import asyncio
import contextlib
import ctypes
import ipaddress
import json
import os
import resource
import signal
import sys

PARENT_S = 0.5


def loopback(text):
    """HOST:PORT as (host, port); nothing but loopback will do."""
    host, _, port = text.rpartition(":")
    try:
        if not ipaddress.ip_address(host.strip("[]")).is_loopback or not 0 <= int(port) < 65536:
            raise ValueError
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: a loopback address and a port are wanted, as 127.0.0.1:0") from None
    return host.strip("[]"), int(port)


def parser(about):
    """The options every stand-in has."""
    p = argparse.ArgumentParser(description=about)
    p.add_argument("--listen", type=loopback, default=("127.0.0.1", 0))
    p.add_argument("--parent-pid", type=int, help="end when this process has ended")
    p.add_argument("--faults", help="a file with a JSON list of rules")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--admin-token", help="the bearer token of /__standin/; made up and printed when it is not given")
    p.add_argument("--isolation", choices=["auto", "ns", "plain"], default="auto")
    p.add_argument("--exec", choices=["real", "canned"], default="real", help="canned: answers from a table, without processes")
    return p


async def _gone(pid):
    while True:
        if os.getppid() == 1 or not os.path.exists(f"/proc/{pid}"):
            return
        await asyncio.sleep(PARENT_S)


async def _serve(start, arguments):
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    ready, end = await start(arguments)
    print(json.dumps(ready), flush=True)
    waits = [asyncio.ensure_future(stop.wait())]
    if arguments.parent_pid:
        waits.append(asyncio.ensure_future(_gone(arguments.parent_pid)))
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for w in waits:
        w.cancel()
    await end()


def run(start, arguments):
    """start(arguments) -> ({what the ready line says}, an async function that ends it all)."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0) if arguments.parent_pid == os.getppid() else None
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(start, arguments))
    sys.exit(0)
