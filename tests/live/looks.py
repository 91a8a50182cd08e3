"""What the specifications of the services leave open and a few cheap calls can tell: looked at and written down, never asserted. Each look is its own, may
fail, and deletes what it made."""
import base64
import json
import struct
import time
import uuid

import services

LIFE_S = 60             # of a sandbox of a look, if it were not deleted
MARK = uuid.uuid4().hex  # on every one of them


class Look:
    """One line of the report: a question, and what was seen."""

    def __init__(self):
        self.report = []

    def at(self, question, function):
        began = time.monotonic()
        try:
            seen = function()
        except Exception as e:  # whatever it is, it is what was seen
            seen = f"{type(e).__name__}: {e}"[:600]
        self.report.append({"question": question, "seen": seen, "took_s": round(time.monotonic() - began, 3)})


# -- E2B: L1 to L8 of its specification --

class _E2bBox:
    """A sandbox of a look, deleted at the end of its block."""

    def __init__(self, service, path="/v2/sandboxes", **more):
        self.service = service
        body = {"templateID": service.settings.get("E2B_TEMPLATE", "base"), "timeout": LIFE_S, "autoPause": False, "allow_internet_access": False,
                "network": {"denyOut": ["0.0.0.0/0"], "allowPublicTraffic": False},
                "metadata": {"gw": "plimsoll-live", "gw_kind": "look", "gw_instance": MARK, "gw_lease": uuid.uuid4().hex}, **more}
        began = time.monotonic()
        self.status, _, text = service.ask("POST", path, body)
        self.took_s = time.monotonic() - began
        self.shown = json.loads(text) if text[:1] == b"{" else {"text": text[:300].decode("utf-8", "replace")}
        self.id = self.shown.get("sandboxID")
        domain = service.settings.get("E2B_DOMAIN", "e2b.app")
        self.url = service.settings.get("E2B_SANDBOX_URL", f"https://sandbox.{domain}").rstrip("/")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.id:
            self.service.delete(self.id)

    def _headers(self):
        return {"E2b-Sandbox-Id": self.id, "E2b-Sandbox-Port": "49983", "X-Access-Token": self.shown.get("envdAccessToken") or "",
                **({"e2b-traffic-access-token": self.shown["trafficAccessToken"]} if self.shown.get("trafficAccessToken") else {})}

    def run(self, *argv, user="user"):
        """(how it ended, what it printed)."""
        import urllib.request
        message = json.dumps({"process": {"cmd": argv[0], "args": list(argv[1:]), "envs": {}}, "stdin": False}).encode()
        headers = {**self._headers(), "Authorization": "Basic " + base64.b64encode(f"{user}:".encode()).decode(), "Content-Type": "application/connect+json",
                   "Connect-Protocol-Version": "1", "Connect-Timeout-Ms": "20000", "Keepalive-Ping-Interval": "15"}
        request = urllib.request.Request(self.url + "/process.Process/Start", struct.pack(">BI", 0, len(message)) + message, headers, method="POST")
        out, end = b"", None
        with services._OPENER.open(request, timeout=services.CALL_S) as answer:
            body = answer.read(1 << 20)
        at = 0
        while at + 5 <= len(body):
            flag, size = struct.unpack_from(">BI", body, at)
            frame, at = json.loads(body[at + 5:at + 5 + size] or b"{}"), at + 5 + size
            event = frame.get("event", {})
            for stream in ("stdout", "stderr"):
                out += base64.b64decode(event.get("data", {}).get(stream, ""))
            end = event.get("end", end)
            if flag == 2 and frame.get("error"):
                end = frame["error"]
        return end, out.decode("utf-8", "replace")[:2000]


NETWORK = """const net=require('net');const go=(h,p)=>new Promise(d=>{const s=net.connect({host:h,port:p});const t=setTimeout(()=>{s.destroy();d('silent')},3000);
s.on('connect',()=>s.write('GET / HTTP/1.0\\r\\n\\r\\n'));s.on('data',()=>{clearTimeout(t);s.destroy();d('ANSWERS')});s.on('error',e=>{clearTimeout(t);d(e.code)});s.on('close',()=>{clearTimeout(t);d('closed')})});
(async()=>{const r={};for(const [n,h,p] of [['v4','1.1.1.1',80],['v6','2606:4700:4700::1111',80],['dns','8.8.8.8',53]])r[n]=await go(h,p);console.log(JSON.stringify(r))})()"""


def e2b(service, look):
    def created(path, **more):
        with _E2bBox(service, path, **more) as box:
            return {"status": box.status, "said": box.shown.get("message"), "keys": sorted(box.shown), "took_s": round(box.took_s, 3), "envd": box.shown.get("envdVersion"), "domain": box.shown.get("domain")}
    look.at("L1: v2 create, its answer's keys", lambda: created("/v2/sandboxes"))
    look.at("L1: v1 create, its answer's keys", lambda: created("/sandboxes", secure=True))

    def inside():
        with _E2bBox(service) as box:
            seen = {"network (L3)": box.run("node", "-e", NETWORK), "node (L7)": box.run("node", "--version"), "who": box.run("/bin/sh", "-c", "id; uname -r; which sha256sum python3 bash"),
                    "sudo without a password (L7)": box.run("/bin/sh", "-c", "sudo -n id 2>&1"), "ssh server (L7)": box.run("/bin/sh", "-c", "ps aux 2>/dev/null | grep -c '[s]shd'"),
                    "signal (exit status text)": box.run("/bin/sh", "-c", "kill -9 $$"), "root": box.run("/usr/bin/id", user="root")}
            status, headers, _ = services.call("POST", box.url + "/files?username=user&path=/tmp/x", {**{k: v for k, v in box._headers().items() if k != "X-Access-Token"}}, {})
            seen["an upload without a token"] = status
            status, headers, text = service.ask("GET", f"/sandboxes/{box.id}")
            seen["read back"] = {k: v for k, v in json.loads(text).items() if "oken" not in k}
            seen["headers"] = sorted(headers.keys())
            return seen
    look.at("L3, L7: what a sandbox is inside", inside)

    def rules():
        header = {"allowOut": ["example.com"], "denyOut": ["0.0.0.0/0"], "allowPublicTraffic": False, "rules": {"example.com": [{"transform": {"headers": {"X-Live": "1"}}}]}}
        with _E2bBox(service, network=header) as box:
            return {"status": box.status, "said": box.shown.get("message", "created")}
    look.at("L4: whether the team may use transform rules", rules)

    def ended():
        with _E2bBox(service) as box:
            first = service.ask("DELETE", f"/sandboxes/{box.id}")[0]
            began = time.monotonic()
            while any(s["sandboxID"] == box.id for s in service.listed()) and time.monotonic() - began < 30:
                time.sleep(0.5)
            return {"delete": first, "listed_for_s": round(time.monotonic() - began, 1), "get": service.ask("GET", f"/sandboxes/{box.id}")[0],
                    "delete again": service.ask("DELETE", f"/sandboxes/{box.id}")[0]}
    look.at("L5: a delete, and how long the listing shows it", ended)

    def paused():
        with _E2bBox(service) as box:
            began = time.monotonic()
            status = service.ask("POST", f"/sandboxes/{box.id}/pause", {"memory": True})[0]
            slept = time.monotonic()
            resumed, _, text = service.ask("POST", f"/v2/sandboxes/{box.id}/connect", {"timeout": LIFE_S})
            return {"pause": status, "pause_s": round(slept - began, 2), "connect": resumed, "connect_s": round(time.monotonic() - slept, 2)}
    look.at("L6: pause and resume, once", paused)
    look.at("L8: lifecycle events and their keys (prices are compared a day later)",
            lambda: (lambda r: [r[0], [sorted(e) for e in (json.loads(r[2]) or [])][:3] if r[0] == 200 else r[2][:200].decode("utf-8", "replace")])(service.ask("GET", "/events/sandboxes?limit=3")))


# -- Docker Cloud: its list of what is unconfirmed --

def dockercloud(service, look):
    if service.is_rest:
        look.at("2: a listing filtered by name", lambda: service.ask("GET", "/v1/sandboxes?filter=display_name%3Dgw-none")[0])
        look.at("3: status and code of a sandbox that is not there", lambda: [(r := service.ask("GET", "/v1/sandboxes/sbx_none"))[0], r[2][:300].decode("utf-8", "replace")])
        look.at("6: a delete without If-Match of what is not there", lambda: service.ask("DELETE", "/v1/sandboxes/sbx_none?force=true")[0])
    else:
        look.at("9: how a sandbox that is not there is told", lambda: [(r := service.connect("SandboxService/GetSandbox", {"sandbox": {"id": "sbx_none"}}))[0], r[2][:300].decode("utf-8", "replace")])
        look.at("9: what becomes of a field nobody knows", lambda: service.connect("SandboxService/ListSandboxes", {"pageSize": 1, "nobodyKnows": 1})[0])
        look.at("15: what the service says it can do", lambda: service.connect("CapabilityService/GetCapabilities", {})[2][:2000].decode("utf-8", "replace"))
    look.at("how many sandboxes the account lists", lambda: len(service.everything()))


# -- OpenShell: its open points --

def openshell(service, look):
    client = service.client
    look.at("1: the gateway's version", lambda: str(client.health().version))

    def tried():
        name = "plp-look-" + uuid.uuid4().hex[:8]
        from openshell._proto import openshell_pb2 as api
        spec = api.SandboxSpec(command=["sleep", "2147483647"])
        spec.template.image = service.settings["SANDBOX_OPENSHELL_IMAGE"]
        client.create(workspace=service.workspace, name=name, spec=spec, labels={"plimsoll.run": "look", "plimsoll.installation": MARK})
        try:
            client.wait_ready(name, workspace=service.workspace, timeout_seconds=120)
            run = lambda *argv: (lambda r: [r.exit_code, r.stdout[:500], r.stderr[:300]])(client.exec(name, list(argv), workspace=service.workspace))  # noqa: E731
            seen = {"4: bash": run("sh", "-c", "command -v bash sh"), "10: ended by a signal": run("sh", "-c", "kill -9 $$"), "who": run("sh", "-c", "id"), "main": run("sh", "-c", "cat /proc/1/cmdline | tr '\\0' ' '")}
        finally:
            began = time.monotonic()
            made = client.delete(name, workspace=service.workspace)
            client.wait_deleted(name, workspace=service.workspace, expected_sandbox_id=made.sandbox_id)
        return {**seen, "7: seconds to delete": round(time.monotonic() - began, 2)}
    look.at("4, 7, 10: a sandbox, inside and at its end", tried)


KINDS = {"e2b": e2b, "dockercloud": dockercloud, "openshell": openshell}


def look(service):
    """The report. Whatever a look left is deleted, and is part of it."""
    it = Look()
    service.installations["looks"] = MARK
    KINDS[service.name](service, it)
    it.at("what the looks left behind, and is deleted now", service.expect_none)
    for line in it.report:
        print(f"  {line['question']}: {json.dumps(line['seen'], ensure_ascii=False)[:400]}", flush=True)
    return {"backend": service.name, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "looks": it.report}
