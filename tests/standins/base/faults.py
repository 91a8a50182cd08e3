"""Scripted faults: rules that say which request gets what done to it, with counts of how often each did.

    faults = Faults({"respond": {"status", "body"}, "delay": {"ms"}}, seed=1)
    faults.load([{"id": "busy", "plane": "control", "method": "POST", "path": "/v2/sandboxes", "times": 2,
                  "phase": "before", "action": {"type": "respond", "status": 429}}])
    rule = faults.take("before", plane="control", method="POST", path="/v2/sandboxes")

A rule matches a request once, at its own phase. It acts from its `nth` match on (1 by default), `times` times (without end by default), each
time with the chance `prob` (1 by default, drawn from the seed and the rule's name, so that a rule's draws do not hang on other rules).
`path` is a glob in which * also crosses slashes and {id} stands for one name; for gRPC it is the operation. The first rule that acts wins.
"""
import fnmatch
import random
import re

PHASES = ("before", "after", "body", "frames")
RULES_MAX = 1000
FIELDS = {"id": str, "plane": str, "method": str, "path": str, "sandbox": str, "lease": str, "nth": int, "times": int, "prob": (int, float),
          "phase": str, "action": dict}


class BadRule(ValueError):
    """A rule nobody could mean."""


def _path_pattern(glob):
    pieces = re.split(r"(\{[a-z]+\})", glob)
    text = "".join("[A-Za-z0-9._-]+" if p.startswith("{") and p.endswith("}") else fnmatch.translate(p)[4:-3] for p in pieces)
    return re.compile(text + r"\Z", re.S)


class Rule:
    def __init__(self, value, actions, phases, number, seed):
        if not isinstance(value, dict) or set(value) - set(FIELDS):
            raise BadRule(f"unknown fields: {sorted(set(value) - set(FIELDS)) if isinstance(value, dict) else value!r}")
        for name, kind in FIELDS.items():
            if name in value and (not isinstance(value[name], kind) or isinstance(value[name], bool)):
                raise BadRule(f"{name}: {value[name]!r}")
        action = dict(value.get("action") or {})
        self.type = action.pop("type", None)
        if self.type not in actions:
            raise BadRule(f"no action {self.type!r}; there are {sorted(actions)}")
        if set(action) - set(actions[self.type]):
            raise BadRule(f"{self.type} has no {sorted(set(action) - set(actions[self.type]))}")
        self.value, self.action = value, action
        self.id = value.get("id") or f"rule-{number}"
        self.phase = value.get("phase", phases.get(self.type, "before"))
        if self.phase not in PHASES:
            raise BadRule(f"phase {self.phase!r}")
        self.nth, self.times, self.prob = value.get("nth", 1), value.get("times"), value.get("prob", 1)
        if self.nth < 1 or (self.times is not None and self.times < 1) or not 0 <= self.prob <= 1:
            raise BadRule("nth and times are at least 1, prob is 0 to 1")
        self.path = _path_pattern(value["path"]) if "path" in value else None
        self.matches = self.hits = 0
        self.random = random.Random(f"{seed}:{self.id}")

    def matches_request(self, plane, method, path, sandbox, lease):
        v = self.value
        return (v.get("plane", "any") in ("any", plane) and v.get("method", method) in (method, "*") and (self.path is None or self.path.match(path or "") is not None)
                and ("sandbox" not in v or v["sandbox"] == sandbox) and ("lease" not in v or v["lease"] == lease))

    def acts(self):
        """Whether it acts on one more match."""
        self.matches += 1
        if self.matches < self.nth or (self.times is not None and self.hits >= self.times) or (self.prob < 1 and self.random.random() >= self.prob):
            return False
        self.hits += 1
        return True

    def get(self, name, default=None):
        return self.action.get(name, default)

    def as_json(self):
        return {**self.value, "id": self.id, "matches": self.matches, "hits": self.hits}


class Faults:
    def __init__(self, actions, seed=0, phases=None):
        """`actions`: each one's name and the set of its parameters; `phases`: an action's phase when its rule names none (before)."""
        self.actions, self.seed, self.phases = actions, seed, phases or {}
        self.rules = []
        self.count = 0

    def _made(self, values):
        if not isinstance(values, list) or len(values) > RULES_MAX:
            raise BadRule("a list of rules is wanted")
        made = []
        for value in values:
            self.count += 1
            made.append(Rule(value, self.actions, self.phases, self.count, self.seed))
        return made

    def load(self, values):
        self.rules = self._made(values)

    def add(self, values):
        self.rules += self._made(values)

    def clear(self):
        self.rules = []

    def take(self, phase, plane="any", method=None, path=None, sandbox=None, lease=None, skip=()):
        """The rule that acts on this request at this phase, or None; `skip`: rules that have acted on it already."""
        if not self.rules:
            return None
        found = None
        for rule in self.rules:
            if rule.phase == phase and rule not in skip and rule.matches_request(plane, method, path, sandbox, lease) and found is None and rule.acts():
                found = rule
        return found

    def as_json(self):
        return [rule.as_json() for rule in self.rules]
