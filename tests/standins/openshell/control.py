"""The admin's routes of this stand-in, beside those all stand-ins have.

    GET|PUT settings · GET state · GET execs · GET forwards · PUT script (a list of entries) · POST sandboxes {name, labels, phase, age_ms, workspace}
    POST phase {name, phase, reason, message} · POST need {name, count} · POST ask {name, request, until} · GET asks?name= · POST goaway
"""
from ..base.admin import Admin
from .gateway import SETTINGS
from .state import PHASES


class Control(Admin):
    def __init__(self, token, gateway, info):
        super().__init__(token, gateway.account, gateway.faults, info, gateway.reset)
        self.gateway = gateway

    def named(self, value):
        return self.gateway.sandboxes[value.get("workspace", "default"), value["name"]]

    async def _route(self, method, name, query, value):
        g = self.gateway
        if name == "settings":
            if method == "PUT":
                if set(value) - set(SETTINGS):
                    raise ValueError(f"no settings {sorted(set(value) - set(SETTINGS))}; there are {sorted(SETTINGS)}")
                g.settings.update(value)
            return g.settings
        if name == "state" and method == "GET":
            return {"sandboxes": [s.as_json() for s in g.sandboxes.values()], "unrevoked": g.unrevoked(), "connections": len(g.connections),
                    "connections_ever": g.connection_count, "streams": sum(len(c.calls) for c in g.connections), "pings_acknowledged": g.pings_acknowledged}
        if name == "execs" and method == "GET":
            return list(g.execs)
        if name == "forwards" and method == "GET":
            return list(g.forwards)
        if name == "script" and method == "PUT":
            g.script.load(value)
            return value
        if name == "sandboxes" and method == "POST":
            return g.plant(value.get("workspace", "default"), value["name"], value.get("labels", {}), PHASES.index(value.get("phase", "READY")), int(value.get("age_ms", 0))).as_json()
        if name == "phase" and method == "POST":
            sandbox = self.named(value)
            sandbox.next_phase = None
            sandbox.turn(PHASES.index(value["phase"]), ("Ready", "False", value.get("reason", "Injected"), value.get("message", "by the admin")))
            return sandbox.as_json()
        if name == "need" and method == "POST":
            self.named(value).relay.put_nowait(int(value.get("count", 1)))
            return {}
        if name == "ask" and method == "POST":
            ask = {"request": value["request"], "until": value.get("until"), "answer": ""}
            sandbox = self.named(value)
            sandbox.__dict__.setdefault("asks", []).append(ask)
            sandbox.__dict__.setdefault("asked", []).append(ask)
            return {}
        if name == "asks" and method == "GET":
            return self.named(query).__dict__.get("asked", [])
        if name == "goaway" and method == "POST":
            for connection in list(g.connections):
                connection.goaway(connection.highest)
            return {"connections": len(g.connections)}
        return await super()._route(method, name, query, value)
