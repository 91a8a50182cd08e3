"""python -m standins.e2b --listen 127.0.0.1:0: one line of JSON with the ports when it is ready; README.md says the rest."""
import asyncio
import json
import secrets
import ssl

from aiohttp import web

from ..base import box, serve
from ..base.admin import Admin
from ..base.faults import Faults
from .faults import ACTIONS, PHASES
from .model import PLANS, TEMPLATES, World
from .server import Server

KEEPALIVE_S = 620


def arguments():
    p = serve.parser(__doc__)
    p.add_argument("--data-listen", type=serve.loopback, help="the data plane's own listener; the same port serves both without it")
    p.add_argument("--tls-cert")
    p.add_argument("--tls-key")
    p.add_argument("--templates", help="a file with a JSON list of templates")
    p.add_argument("--plan", default="open", help="hobby, pro, open (no limit in the way), or a file with max_hours, max_concurrent, creates_per_s")
    p.add_argument("--state-dir", help="where plain boxes keep their files")
    p.add_argument("--route-by-token", action="store_true", help="find the sandbox by its token when the routing headers are missing")
    p.add_argument("--flavour", choices=["v1", "v2", "both"], default="both")
    p.add_argument("--lost", choices=["rst", "frame"], default="rst", help="how a stream ends under a sandbox that goes")
    p.add_argument("--api-key", help="the one key that is known; any without it")
    p.add_argument("--canned", help="a file with the table of --exec=canned: text of the code -> {exit, stdout, stderr, delay_ms}")
    p.add_argument("--sweep-ms", type=int, default=20_000)
    p.add_argument("--placement-ms", type=int, default=0)
    p.add_argument("--new-tokens", action="store_true", help="a resumed sandbox has a new envd token")
    p.add_argument("--no-transform-rules", dest="transform_rules", action="store_false", help="the team may not use network rules")
    return p.parse_args()


def read(path, otherwise):
    if path is None:
        return otherwise
    with open(path, encoding="utf-8") as f:
        return json.load(f)


async def start(options):
    options.templates = read(options.templates, TEMPLATES)
    options.plan = PLANS[options.plan] if options.plan in PLANS else read(options.plan, None)
    options.canned = read(options.canned, {})
    faults = Faults(ACTIONS, options.seed, PHASES)
    faults.load(read(options.faults, []))
    world = World(options, faults)
    about = {"mode": "canned", "users": "two", "why_plain": None} if options.exec == "canned" else (await box.Nursery.own(options.isolation)).info
    token = options.admin_token or secrets.token_hex(16)

    def info():
        return {"stand_in": "e2b", "exec": options.exec, **about, "egress": {"ns": "denied", "plain": "unenforced", "canned": "none"}[about["mode"]],
                "plan": options.plan, "flavour": options.flavour, "envd": sorted({t["envdVersion"] for t in options.templates})}
    admin = Admin(token, world.account, faults, info, world.end, world.tick)
    server = Server(world, admin)
    context = None
    if options.tls_cert:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(options.tls_cert, options.tls_key)
    runner = web.ServerRunner(web.Server(server.handle, keepalive_timeout=KEEPALIVE_S, access_log=None))
    await runner.setup()
    ports = []
    for address in [options.listen] + ([options.data_listen] if options.data_listen else []):
        site = web.TCPSite(runner, *address, ssl_context=context, shutdown_timeout=0.1, backlog=1024)
        await site.start()
        ports.append(site._server.sockets[0].getsockname()[1])
    ticking = asyncio.ensure_future(world.tick_forever())

    async def end():
        ticking.cancel()
        await world.end()
        await runner.cleanup()
        if options.exec != "canned":
            await (await box.Nursery.own()).stop()
    scheme = "https" if context else "http"
    return {"port": ports[0], "data_port": ports[-1], "api_url": f"{scheme}://127.0.0.1:{ports[0]}", "sandbox_url": f"{scheme}://127.0.0.1:{ports[-1]}",
            "admin_token": token, **about}, end


if __name__ == "__main__":
    serve.run(start, arguments())
