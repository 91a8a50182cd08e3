"""The facts of Docker's OpenAPI document, and the strict reading of a request by them.

The schemas are turned into closures once: a request is judged in microseconds, which load tests need. The keywords are those the facts use, and
a schema with any other is refused at start. `test_schema_dockercloud.py` holds this reading against the `jsonschema` package's.
"""
import json
import pathlib
import re
from collections.abc import Callable

FACTS = json.loads(pathlib.Path(__file__).with_name("docker-sandboxes-v1.json").read_text())
OPERATIONS: dict[str, dict] = FACTS["operations"]

Check = Callable[[object, str], "str | None"]  # value, where it stands -> what is wrong with it

RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.I)
_made: dict[str, Check] = {}


def _is_type(value, name: str) -> bool:
    match name:
        case "object": return isinstance(value, dict)
        case "array": return isinstance(value, list)
        case "string": return isinstance(value, str)
        case "boolean": return isinstance(value, bool)
        case "integer": return isinstance(value, int) and not isinstance(value, bool) or isinstance(value, float) and value.is_integer()
        case "null": return value is None
    raise ValueError(name)


def _same(a, b) -> bool:
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def _object(schema: dict) -> Check:
    fields = {k: compiled(v) for k, v in schema.get("properties", {}).items()}
    required, more = schema.get("required", ()), schema.get("additionalProperties", True)
    rest = compiled(more) if isinstance(more, dict) else None

    def check(value, at):
        if not isinstance(value, dict):
            return None
        for name in required:
            if name not in value:
                return f"{at}.{name} is missing"
        for name, inner in value.items():
            known = fields.get(name)
            if known is None and more is False:
                return f"{at}.{name} is not a field"
            if (judge := known or rest) and (wrong := judge(inner, f"{at}.{name}")):
                return wrong
        return None
    return check


def _dependent(table: dict) -> Check:
    inner = {k: compiled(v) for k, v in table.items()}

    def check(value, at):
        if isinstance(value, dict):
            for name, judge in inner.items():
                if name in value and (wrong := judge(value, at)):
                    return wrong
        return None
    return check


def _array(schema: dict) -> Check:
    item = compiled(schema["items"])

    def check(value, at):
        if isinstance(value, list):
            for n, inner in enumerate(value):
                if wrong := item(inner, f"{at}[{n}]"):
                    return wrong
        return None
    return check


def _several(keyword: str, schemas: list) -> Check:
    judges = [compiled(s) for s in schemas]

    def check(value, at):
        wrongs = [judge(value, at) for judge in judges]
        fitting = wrongs.count(None)
        if keyword == "allOf" and fitting < len(judges) or keyword == "anyOf" and fitting == 0 or keyword == "oneOf" and fitting != 1:
            return next((w for w in wrongs if w), f"{at} has more than one form")
        return None
    return check


def _plain(keyword: str, limit) -> Check:
    """A keyword that looks at one value of one type."""
    table = {
        "type": lambda v: not any(_is_type(v, t) for t in ([limit] if isinstance(limit, str) else limit)),
        "enum": lambda v: not any(_same(v, e) for e in limit),
        "const": lambda v: not _same(v, limit),
        "minLength": lambda v: isinstance(v, str) and len(v) < limit,
        "maxLength": lambda v: isinstance(v, str) and len(v) > limit,
        "minItems": lambda v: isinstance(v, list) and len(v) < limit,
        "maxItems": lambda v: isinstance(v, list) and len(v) > limit,
        "maxProperties": lambda v: isinstance(v, dict) and len(v) > limit,
        "minimum": lambda v: _is_type(v, "integer") and v < limit,
        "maximum": lambda v: _is_type(v, "integer") and v > limit,
        "uniqueItems": lambda v: limit and isinstance(v, list) and len({json.dumps(e, sort_keys=True) for e in v}) < len(v),
    }
    if keyword == "pattern":
        search = re.compile(limit).search
        is_wrong = lambda v: isinstance(v, str) and not search(v)  # noqa: E731
    else:
        is_wrong = table[keyword]
    return lambda value, at: f"{at} breaks {keyword} {limit}" if is_wrong(value) else None


def _date_time(value, at):
    return f"{at} is no time" if isinstance(value, str) and not RFC3339.fullmatch(value) else None


def _reference(name: str) -> Check:
    return lambda value, at: named(name)(value, at)


def compiled(schema: dict) -> Check:
    checks = []
    if "type" in schema:
        checks.append(_plain("type", schema["type"]))
    if schema.keys() & {"properties", "required", "additionalProperties"}:
        checks.append(_object(schema))
    for keyword, value in schema.items():
        match keyword:
            case "type" | "properties" | "required" | "additionalProperties" | "then": pass
            case "$ref": checks.append(_reference(value.removeprefix("#/$defs/")))
            case "items": checks.append(_array(schema))
            case "dependentSchemas": checks.append(_dependent(value))
            case "allOf" | "anyOf" | "oneOf": checks.append(_several(keyword, value))
            case "format": checks.append(_date_time)
            case "not":
                inner = compiled(value)
                checks.append(lambda v, at, inner=inner: None if inner(v, at) else f"{at} is not allowed so")
            case "if":
                when, then = compiled(value), compiled(schema["then"])
                checks.append(lambda v, at, when=when, then=then: None if when(v, at) else then(v, at))
            case _: checks.append(_plain(keyword, value))

    def check(value, at):
        for judge in checks:
            if wrong := judge(value, at):
                return wrong
        return None
    return checks[0] if len(checks) == 1 else check


def named(name: str) -> Check:
    if name not in _made:
        _made[name] = compiled(FACTS["$defs"][name])
    return _made[name]


for _name in FACTS["$defs"]:
    named(_name)  # a keyword unknown here is an error at start


def wrong_with(name: str, value) -> str | None:
    """What keeps `value` from being a `name` of the document; None when nothing does."""
    return named(name)(value, name)
