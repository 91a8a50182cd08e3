"""python -m standins.dockercloud [--listen 127.0.0.1:0] ...: both APIs of Docker Cloud Sandboxes on a loopback port."""
import asyncio
import contextlib
import json
import pathlib
import secrets

from aiohttp import web

from ..base import serve
from ..base.account import Account
from ..base.admin import PREFIX, Admin
from ..base.box import Box, Nursery, mode
from .app import Control, Standin
from .canned import CannedPlace
from .knobs import Knobs
from .place import RealPlace
from .server import BODY_MAX
from .world import World

MICRO_NANO_USD_MS = 70_000_000 / 3_600_000  # seven cents an hour; the larger sizes are taken to cost as many times that as they have CPUs


async def start(arguments):
    account = Account(price=lambda ms, size: int(ms * size[0] * MICRO_NANO_USD_MS))
    table = json.loads(pathlib.Path(arguments.canned).read_text()) if arguments.canned else []
    is_real = arguments.exec == "real"

    async def make_place(sandbox):
        if is_real:
            return await RealPlace.create(sandbox.name, arguments.jail, arguments.isolation)
        return CannedPlace(table, lambda text: account.ran(text, sandbox.uid))

    world = World(account=account, identifier=arguments.identifier, secret=arguments.secret, make_place=make_place, knobs=json.loads(arguments.knobs))
    knobs = Knobs(arguments.seed)
    if arguments.faults:
        knobs.load(json.loads(pathlib.Path(arguments.faults).read_text()))
    boxes = await mode() if is_real and arguments.isolation != "plain" else {"mode": "plain" if is_real else "none"}
    if is_real:
        # the first box is the slow one
        await (await Box.create(name="first", mode=arguments.isolation)).end()
    standin = Standin(world, knobs)

    async def reset():
        await world.clear()
        world.reset()
        account.clock.offset_ms, account.clock.ttl_speed = 0, world.knobs["time_scale"]

    token = arguments.admin_token or secrets.token_urlsafe(24)
    admin = Admin(token, account, knobs, lambda: {"standin": "dockercloud", "exec": arguments.exec, "boxes": boxes, "knobs": world.knobs}, reset)
    control = Control(standin, admin)

    async def handle(request):
        return await (control.serve(request) if request.path.startswith(PREFIX) else standin.serve(request))

    def made(message, payload, protocol, writer, task):
        return web.BaseRequest(message, payload, protocol, writer, task, asyncio.get_running_loop(), client_max_size=BODY_MAX)

    runner = web.ServerRunner(web.Server(handle, request_factory=made, access_log=None, keepalive_timeout=75, auto_decompress=False))
    await runner.setup()
    site = web.TCPSite(runner, *arguments.listen, backlog=1024)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    host = arguments.listen[0]
    world.base_url = base = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    watch = asyncio.ensure_future(world.watch_deadlines())

    async def end():
        watch.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watch
        await world.clear()
        await runner.shutdown()
        await runner.cleanup()
        if is_real:
            await (await Nursery.own()).stop()

    ready = {"port": port, "auth_url": f"{base}/v2/auth/token", "rest_url": f"{base}/rest", "connect_url": f"{base}/sbx", "policy_url": f"{base}/policy/v1",
             "admin_url": base + PREFIX, "admin_token": token, "identifier": world.identifier, "secret": world.secret, "boxes": boxes}
    return ready, end


def main():
    p = serve.parser(__doc__)
    p.add_argument("--identifier", default="standin-user", help="the Docker ID that the exchange knows")
    p.add_argument("--secret", default="dckr_pat_standin_0123456789abcdef", help="its access token")
    p.add_argument("--knobs", default="{}", help="settings of the service at its start and after each reset, as JSON")
    p.add_argument("--canned", help="with --exec=canned: a file with the table of answers (canned.py)")
    p.add_argument("--jail", default="", help="a folder that the file service does not leave; the whole sandbox when not given")
    serve.run(start, p.parse_args())


main()
