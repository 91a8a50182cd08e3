"""python -m standins.openshell: prints one line of JSON with its ports when it is ready."""
import argparse
import asyncio
import json
import os
import secrets
import shutil
import tempfile

from ..base import box, serve
from ..base.account import Account
from . import faults, tls
from .control import Control
from .gateway import VERSION, Gateway
from .transport import Connection


def image_file(text):
    host, _, guest = text.partition("=")
    if not guest.startswith("/") or ".." in guest:
        raise argparse.ArgumentTypeError(f"{text}: HOST=GUEST is wanted, GUEST from the root")
    return host, guest


def arguments():
    p = serve.parser("A stand-in of an OpenShell gateway, on loopback: it isolates what it runs in namespaces at best, and in nothing with --isolation plain.")
    p.add_argument("--admin-listen", type=serve.loopback, default=("127.0.0.1", 0))
    p.add_argument("--tls-dir", help="serve TLS with certificates made in this folder: ca.crt, client.crt, client.key; a folder of its own for ''")
    p.add_argument("--tls-cert", help="serve TLS with this certificate (and --tls-key, --client-ca)")
    p.add_argument("--tls-key")
    p.add_argument("--client-ca")
    p.add_argument("--client-certificate", choices=["required", "optional", "none"], default="required")
    p.add_argument("--alpn", default="h2,http/1.1", help="what ALPN offers; '' for no ALPN at all")
    p.add_argument("--bearer", action="append", default=[], help="ask for one of these bearer tokens")
    p.add_argument("--image-file", type=image_file, action="append", default=[], metavar="HOST=GUEST", help="a read-only file of the guest's image")
    p.add_argument("--runner", help="--image-file of the gateway's in-guest runner, at /usr/libexec/plimsoll/runner")
    p.add_argument("--stream-window", type=int, default=1 << 20, help="bytes of HTTP/2 window of each stream")
    p.add_argument("--connection-window", type=int, default=16 << 20)
    p.add_argument("--streams-max", type=int, default=16384, help="streams a connection may have at once; one more ends it, and is a breach")
    p.add_argument("--ping-s", type=float, default=20.0, help="seconds between PINGs to an idle client; 0 for none")
    p.add_argument("--ping-wait-s", type=float, default=10.0)
    p.add_argument("--script", help="a file with a JSON list of entries (execs.Script)")
    p.add_argument("--settings", type=json.loads, default={}, help="JSON of settings")
    return p.parse_args()


async def start(a):
    rules = faults.make(a.seed)
    if a.faults:
        with open(a.faults) as f:
            rules.load(json.load(f))
    folder = a.tls_dir
    if folder == "":
        folder = tempfile.mkdtemp(prefix="openshell-tls-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    context = None
    if folder is not None or a.tls_cert:
        if folder is not None:
            tls.make(folder)
        certificate, key, ca = (a.tls_cert or f"{folder}/server.crt"), (a.tls_key or f"{folder}/server.key"), (a.client_ca or f"{folder}/ca.crt")
        context = tls.context(certificate, key, ca, a.client_certificate, [n for n in a.alpn.split(",") if n])
    files = {}
    for host, guest in a.image_file + ([(a.runner, "/usr/libexec/plimsoll/runner")] if a.runner else []):
        with open(host, "rb") as f:
            data = f.read()
        files[guest] = data, 0o555
    is_canned = a.exec == "canned"
    if not is_canned:
        await box.Nursery.own(a.isolation)
    gateway = Gateway(Account(), rules, is_tls=context is not None, auth="bearer" if a.bearer else "certificate" if context else "open", bearers=a.bearer,
                      canned=is_canned, image_files=files, stream_window=a.stream_window,
                      connection_window=a.connection_window, streams_max=a.streams_max, ping_s=a.ping_s, ping_wait_s=a.ping_wait_s)
    gateway.settings.update(a.settings)
    if a.script:
        with open(a.script) as f:
            gateway.script.load(json.load(f))
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(gateway), *a.listen, ssl=context, ssl_handshake_timeout=10 if context else None, backlog=1024)
    gateway.port = server.sockets[0].getsockname()[1]
    mode = {"mode": "canned"} if is_canned else await box.mode()
    token = a.admin_token or secrets.token_hex(16)

    def info():
        return {"standin": "openshell", "version": VERSION, "tls": context is not None, "exec": a.exec, "boxes": mode,
                "isolates": mode["mode"] == "ns", "landlock": gateway.has_landlock, "image_files": sorted(files)}
    control = Control(token, gateway, info)
    admin_port = await control.listen(*a.admin_listen)

    async def end():
        server.close()
        control.server.close()
        await gateway.close()
        if not is_canned:
            await (await box.Nursery.own()).stop()
        if a.tls_dir == "":
            shutil.rmtree(folder, ignore_errors=True)
    ready = {"port": gateway.port, "url": f"{'https' if context else 'http'}://127.0.0.1:{gateway.port}", "admin_port": admin_port,
             "admin_token": token,
             "tls_dir": folder, "boxes": mode["mode"]}
    return ready, end


if __name__ == "__main__":
    options = arguments()
    serve.run(start, options)
