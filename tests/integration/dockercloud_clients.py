"""Two plain clients of Docker Cloud Sandboxes, REST and Connect, with the same verbs, written from the service's specification and sharing no code with
the stand-in they are held against. They do what they are told: a test that wants to break a rule can."""
import asyncio
import base64
import json
import re
import struct
from typing import NamedTuple

DIGEST = "sha256:" + "ab" * 32
IMAGE = "registry.example/team/image@" + DIGEST
# the in-guest wrapper in the form that the specification tested
WRAPPER = """lim=$1; cap=$2; shift 2
for t in timeout head mktemp mkfifo rm; do command -v "$t" >/dev/null 2>&1 || exit 127; done
exec 3>&2 2>/dev/null
d=$(mktemp -d /tmp/.gwx.XXXXXX) && mkfifo "$d/1" "$d/2" || exit 125
head -c "$cap" <"$d/1" 3>&- & a=$!
head -c "$cap" <"$d/2" >&3 3>&- & b=$!
timeout -s KILL "$lim" "$@" >"$d/1" 2>"$d/2" </dev/null 3>&- & c=$!
wait "$c"; st=$?
wait "$a" "$b"
rm -rf "$d"
exit "$st"
"""


def wrapped(*argv, limit=20, cap=1 << 20):
    return ["sh", "-c", WRAPPER, "gwx", str(limit), str(cap), *argv]


class Said(NamedTuple):
    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        """An error's code in snake case, whichever API it came from."""
        return re.sub(r"[A-Z]", lambda m: "_" + m[0].lower(), self.json["code"])


class Ran(NamedTuple):
    exit: int
    stdout: bytes
    stderr: bytes
    incomplete: bool


class Sandbox:
    """What a client knows of one: its id, its name, its endpoint."""

    def __init__(self, uid, name, shown):
        self.uid, self.name, self.shown = uid, name, shown
        self.credential = None

    @property
    def endpoint(self):
        return self.shown["core"]["endpoint"]["uri"]


class Refused(Exception):
    """An answer that was not the one hoped for."""

    def __init__(self, said: Said):
        super().__init__(f"{said.status} {said.body[:400]!r}")
        self.said = said


class Api:
    def __init__(self, ready, session):
        self.ready, self.session = ready, session
        self.token = None

    async def send(self, method, url, *, auth=None, headers=None, data=None, body=None) -> Said:
        """`body` is JSON, `data` is bytes; `auth` a token, the account's bearer when None, no header when empty."""
        token = self.token if auth is None else auth
        headers = {**({"Authorization": f"Bearer {token}"} if token else {}), **(headers or {})}
        if body is not None:
            data, headers = json.dumps(body).encode(), {"Content-Type": "application/json", **headers}
        async with self.session.request(method, url, headers=headers, data=data, allow_redirects=False) as answer:
            return Said(answer.status, {k.lower(): v for k, v in answer.headers.items()}, await answer.read())

    async def exchange(self, identifier=None, secret=None) -> Said:
        body = {"identifier": identifier or self.ready["identifier"], "secret": secret or self.ready["secret"]}
        return await self.send("POST", self.ready["auth_url"], auth="", body=body)

    async def login(self):
        said = await self.exchange()
        if said.status != 200:
            raise Refused(said)
        self.token = said.json["access_token"]
        return self

    async def put_policy(self, sandbox, *networks, **changes) -> Said:
        return await self.send("PUT", f"{self.ready['policy_url']}/sandboxes/{sandbox.uid}/network-policy", body={"mode": "deny-all", "allowNetworks": list(networks), **changes})

    async def snippet(self, code: bytes, name="gw-test-1"):
        """A whole run, from create to gone: (sandbox, how it ended)."""
        sandbox = await self.create(name)
        try:
            await self.upload(sandbox, {f"/tmp/{name}.js": code})
            ran = await self.run(sandbox, wrapped("node", f"/tmp/{name}.js"))
        finally:
            await self.delete(sandbox)
        return sandbox, ran


class Rest(Api):
    name = "rest"

    def management(self, path):
        return self.ready["rest_url"] + "/v1/" + path

    def create_body(self, name, **changes):
        body = {"displayName": name, "imageRef": IMAGE, "platform": {"os": "linux", "architecture": "amd64"}, "resources": {"cpus": 1, "memoryMib": 2048},
                "startupExecution": {"rawImage": {"start": {"argv": ["tail", "-f", "/dev/null"]}}},
                "features": {"timeouts": {"timeout": "150s", "onTimeout": "delete", "autoResume": False}}}
        body.update(changes)
        return {k: v for k, v in body.items() if v is not None}

    async def create_call(self, name="gw-test-1", key=None, **changes) -> Said:
        return await self.send("POST", self.management("sandboxes"), headers={"Idempotency-Key": key or name}, body=self.create_body(name, **changes))

    async def create(self, name="gw-test-1", **changes) -> Sandbox:
        said = await self.create_call(name, **changes)
        if said.status not in (201, 202):
            raise Refused(said)
        shown = said.json
        while shown["core"]["status"] != "running":
            if shown["core"]["status"] != "creating":
                raise Refused(said)
            await asyncio.sleep(0.01)
            said = await self.get(shown["uid"])
            if said.status != 200:
                raise Refused(said)
            shown = said.json
        return Sandbox(shown["uid"], name, shown)

    async def get(self, uid, **headers) -> Said:
        return await self.send("GET", self.management(f"sandboxes/{uid}"), headers=headers)

    async def policy(self, sandbox) -> Said:
        return await self.send("GET", self.management(f"sandboxes/{sandbox.uid}/network-policies"))

    async def mint_call(self, sandbox, *permissions, **body) -> Said:
        body = {"permissions": list(permissions) or ["sandboxesExec", "sandboxesFilesWrite", "sandboxesFilesRead"], **body}
        return await self.send("POST", self.management(f"sandboxes/{sandbox.uid}/endpoint-credentials"), body=body)

    async def credential(self, sandbox):
        if sandbox.credential is None:
            said = await self.mint_call(sandbox)
            if said.status != 200:
                raise Refused(said)
            sandbox.credential = said.json["token"]
        return sandbox.credential

    async def own(self, method, sandbox, path, **more) -> Said:
        return await self.send(method, f"{sandbox.endpoint}/v1/{path}", auth=await self.credential(sandbox), **more)

    async def exec_call(self, sandbox, cmd, **more) -> Said:
        return await self.own("POST", sandbox, "processes/exec", body={"cmd": cmd, **more})

    async def upload_call(self, sandbox, files) -> Said:
        data, boundary = form([(path, *(held if isinstance(held, tuple) else (420, held))) for path, held in files.items()])
        return await self.own("POST", sandbox, "files/upload", data=data, headers={"Content-Type": f"multipart/form-data; boundary={boundary}"})

    async def upload(self, sandbox, files):
        said = await self.upload_call(sandbox, files)
        if said.status != 200 or said.json.get("filesWritten", 0) != len(files):
            raise Refused(said)

    async def download_call(self, sandbox, paths) -> Said:
        from urllib.parse import quote
        return await self.own("GET", sandbox, "files/download?" + "&".join("paths=" + quote(p) for p in paths))

    async def download(self, sandbox, paths):
        said = await self.download_call(sandbox, paths)
        if said.status != 200:
            raise Refused(said)
        return mixed(said)

    async def delete(self, sandbox):
        """Until it is gone."""
        for _ in range(100):
            said = await self.get(sandbox.uid)
            if said.status == 404:
                return
            if said.status != 200:
                raise Refused(said)
            if said.json["core"]["status"] != "deleting":
                gone = await self.delete_call(sandbox, said.json["core"]["etag"])
                if gone.status not in (202, 204, 412):
                    raise Refused(gone)
        raise AssertionError("it does not go")

    async def delete_call(self, sandbox, etag, **headers) -> Said:
        return await self.send("DELETE", self.management(f"sandboxes/{sandbox.uid}?force=true"), headers={**({"If-Match": etag} if etag else {}), **headers})

    async def names(self, size=100, **query):
        """The names of a whole list, and how many pages it had."""
        names, token, pages = [], "", 0
        while True:
            from urllib.parse import urlencode
            said = await self.send("GET", self.management("sandboxes?" + urlencode({"pageSize": size, **query, **({"pageToken": token} if token else {})})))
            if said.status != 200:
                raise Refused(said)
            pages += 1
            names += [s.get("displayName") for s in said.json.get("sandboxes", [])]
            token = said.json.get("nextPageToken", "")
            if not token:
                return names, pages

    async def run(self, sandbox, cmd, **more) -> Ran:
        return ran(await self.exec_call(sandbox, cmd, **more))


class Connect(Api):
    name = "connect"
    timeout_ms = 60000

    async def ask(self, procedure, body, base=None, **more) -> Said:
        headers = {"Connect-Protocol-Version": "1", "Connect-Timeout-Ms": str(self.timeout_ms), **more.pop("headers", {})}
        return await self.send("POST", f"{base or self.ready['connect_url']}/docker.sbx.{procedure}", body=body, headers=headers, **more)

    async def stream(self, procedure, data, base, **headers) -> Said:
        return await self.send("POST", f"{base}/docker.sbx.{procedure}", data=data, headers={"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1", **headers})

    def create_body(self, name, **changes):
        body = {"name": name, "requestId": name, "resources": {"cpus": 1, "memoryMib": "2048"},
                "cloud": {"imageRef": IMAGE, "startCmd": ["tail", "-f", "/dev/null"], "timeout": "150s", "onTimeout": "ON_TIMEOUT_DELETE", "autoResume": False,
                          "platform": {"os": "linux", "architecture": "amd64"}}}
        body.update(changes)
        return {k: v for k, v in body.items() if v is not None}

    async def create_call(self, name="gw-test-1", **changes) -> Said:
        return await self.ask("v1.SandboxService/CreateSandbox", self.create_body(name, **changes))

    async def finish(self, said: Said) -> Said:
        """An operation's last word."""
        while said.status == 200 and not said.json["done"]:
            waited = await self.ask("v1.OperationService/WaitOperation", {"id": said.json["id"], "timeout": "10s"})
            if waited.status == 501:
                waited = await self.ask("v1.OperationService/GetOperation", {"id": said.json["id"]})
            said = waited
        return said

    async def create(self, name="gw-test-1", **changes) -> Sandbox:
        said = await self.finish(await self.create_call(name, **changes))
        if said.status != 200 or "error" in said.json:
            raise Refused(said)
        shown = said.json["response"]
        return Sandbox(shown["core"]["id"], name, shown)

    async def get(self, uid) -> Said:
        return await self.ask("v1.SandboxService/GetSandbox", {"sandbox": {"id": uid}})

    async def policy(self, sandbox) -> Said:
        return await self.ask("v1.NetworkPolicyService/GetEffectiveNetworkPolicy", {"target": {"sandbox": {"id": sandbox.uid}}})

    async def exec_call(self, sandbox, cmd, **more) -> Said:
        return await self.ask("process.v1.ProcessService/Exec", {"cmd": cmd, **more}, sandbox.endpoint)

    async def run(self, sandbox, cmd, **more) -> Ran:
        return ran(await self.exec_call(sandbox, cmd, **more))

    async def upload_call(self, sandbox, files) -> Said:
        data = b""
        for path, held in files.items():
            mode, content = held if isinstance(held, tuple) else (420, held)
            data += frame({"header": {"path": path, "mode": mode}})
            data += b"".join(frame({"data": base64.b64encode(content[n:n + (512 << 10)]).decode()}) for n in range(0, len(content), 512 << 10))
        return await self.stream("files.v1.FileService/Upload", data, sandbox.endpoint)

    async def upload(self, sandbox, files):
        said = await self.upload_call(sandbox, files)
        messages, end = frames(said.body)
        if end != {} or len(messages) != 1 or messages[0].get("filesWritten", 0) != len(files):
            raise Refused(said)

    async def download_call(self, sandbox, paths) -> Said:
        return await self.stream("files.v1.FileService/Download", frame({"paths": list(paths)}), sandbox.endpoint)

    async def download(self, sandbox, paths):
        said = await self.download_call(sandbox, paths)
        messages, end = frames(said.body)
        if end != {}:
            raise Refused(said)
        found, path = {}, None
        for message in messages:
            match message:
                case {"header": header}:
                    path = header["path"]
                    found[path] = b""
                case {"data": data} if path:
                    found[path] += base64.b64decode(data, validate=True)
                case {"error": error}:
                    found[error["path"]] = error["failure"]
                case _:
                    raise Refused(said)
        return found

    async def delete(self, sandbox):
        said = await self.finish(await self.delete_call(sandbox))
        if said.status != 404 and (said.status != 200 or "error" in said.json and said.json["error"]["code"] != 5):
            raise Refused(said)

    async def delete_call(self, sandbox, key=None) -> Said:
        return await self.ask("v1.SandboxService/DeleteSandbox", {"sandbox": {"id": sandbox.uid}, "force": True, "requestId": key or f"delete-{sandbox.name}"})

    async def names(self, size=100):
        names, token, pages = [], "", 0
        while True:
            said = await self.ask("v1.SandboxService/ListSandboxes", {"pageSize": size, **({"pageToken": token} if token else {})})
            if said.status != 200:
                raise Refused(said)
            pages += 1
            names += [s["core"]["name"] for s in said.json.get("sandboxes", [])]
            token = said.json.get("nextPageToken", "")
            if not token:
                return names, pages


def ran(said: Said) -> Ran:
    if said.status != 200:
        raise Refused(said)
    read = lambda name: base64.b64decode(said.json.get(name, ""), validate=True)  # noqa: E731
    return Ran(said.json.get("exitCode", 0), read("stdout"), read("stderr"), said.json.get("incomplete", False))


def form(files, boundary="a-boundary-of-the-test"):
    """(body, boundary) of an upload."""
    parts = b"".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="metadata"\r\nContent-Type: application/json\r\n\r\n'.encode() + json.dumps({"path": path, "mode": mode}).encode()
        + f'\r\n--{boundary}\r\nContent-Disposition: form-data; name="content"\r\nContent-Type: application/octet-stream\r\n\r\n'.encode() + content + b"\r\n"
        for path, mode, content in files)
    return parts + f"--{boundary}--\r\n".encode(), boundary


def parts(said: Said):
    """(name, type, bytes) of each part of a download, and whether its closing delimiter was there."""
    boundary = re.search(r"boundary=\"?([^\";]+)", said.headers["content-type"])[1].encode()
    head, *pieces = (b"\r\n" + said.body).split(b"\r\n--" + boundary)
    assert head == b""
    is_closed = pieces[-1].strip() == b"--"
    found = []
    for piece in pieces[:-1] if is_closed else pieces:
        headers, _, data = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        name = re.search(rb'Content-Disposition: attachment; name="?([a-z-]+)"?', headers)[1].decode()
        found.append((name, re.search(rb"Content-Type: ([^\r]+)", headers)[1].decode(), data))
    return found, is_closed


def mixed(said: Said):
    """A download's files; what is not one in good order is refused."""
    found, path = {}, None
    pieces, is_closed = parts(said)
    for name, _, data in pieces:
        if name == "metadata":
            path = json.loads(data)["path"]
        elif name == "content" and path:
            found[path], path = data, None
        elif name == "error":
            error = json.loads(data)
            found[error["path"]] = error["failure"]
        else:
            raise Refused(said)
    if not is_closed:
        raise Refused(said)
    return found


def frame(value, flag=0):
    data = json.dumps(value).encode()
    return struct.pack(">BI", flag, len(data)) + data


def frames(body):
    """(messages, the end frame's object) of an answer stream; the end is None when there is none."""
    messages, at = [], 0
    while at < len(body):
        flag, size = struct.unpack_from(">BI", body, at)
        data = body[at + 5:at + 5 + size]
        if len(data) < size or flag not in (0, 2):
            return messages, {"broken": flag}
        if flag == 2:
            assert at + 5 + size == len(body), "bytes after the end"
            return messages, json.loads(data)
        messages.append(json.loads(data))
        at += 5 + size
    return messages, None
