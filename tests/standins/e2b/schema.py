"""What a request's body may hold: the published schemas of the control plane (OpenAPI) and of envd (protobuf, in its JSON form), in short.

A schema is str, int, bool or ANY; {key: schema} for an object, where a key ending in "!" must be there; [schema] for a list; Map(schema) for an
object with free keys; Or(...) for one of several. A number in a 64-bit field of protobuf may also be a string, which is what INT64 is.
"""
import base64


class Map:
    def __init__(self, value):
        self.value = value


class Or:
    def __init__(self, *several):
        self.several = several


class Same:
    """A name for something that is not a type of JSON."""

    def __init__(self, name):
        self.name = name


ANY, NULL, BYTES, UINT32 = Same("any"), Same("null"), Same("bytes"), Same("uint32")
NUMBER_MAX = (1 << 32) - 1


def check(value, schema, where="body"):
    """(what is wrong or None, [keys nobody knows])."""
    unknown = []
    return _check(value, schema, where, unknown), unknown


def _check(value, schema, where, unknown):
    if schema is ANY:
        return None
    if schema is NULL:
        return None if value is None else f"{where}: null is wanted"
    if schema is bool:
        return None if isinstance(value, bool) else f"{where}: value must be a boolean"
    if schema is int:
        return None if isinstance(value, int) and not isinstance(value, bool) else f"{where}: value must be an integer"
    if schema is str:
        return None if isinstance(value, str) else f"{where}: value must be a string"
    if schema is UINT32:
        if isinstance(value, str) and value.isdigit():
            value = int(value)
        good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= NUMBER_MAX
        return None if good else f"{where}: no unsigned number of 32 bits"
    if schema is BYTES:
        try:
            from_base64(value)
            return None
        except ValueError:
            return f"{where}: no base64"
    if isinstance(schema, Or):
        wrong = [_check(value, s, where, []) for s in schema.several]
        return None if None in wrong else wrong[0]
    if isinstance(schema, list):
        if not isinstance(value, list):
            return f"{where}: value must be an array"
        return next((w for i, v in enumerate(value) if (w := _check(v, schema[0], f"{where}[{i}]", unknown))), None)
    if not isinstance(value, dict):
        return f"{where}: value must be an object"
    if isinstance(schema, Map):
        return next((w for k, v in value.items() if (w := _check(v, schema.value, f"{where}.{k}", unknown))), None)
    known = {k.rstrip("!"): s for k, s in schema.items()}
    for key in schema:
        if key.endswith("!") and key[:-1] not in value:
            return f"{where}: property \"{key[:-1]}\" is missing"
    for key, v in value.items():
        if key not in known:
            unknown.append(f"{where}.{key}")
        elif (w := _check(v, known[key], f"{where}.{key}", unknown)):
            return w
    return None


def from_base64(text):
    """Either alphabet, with or without padding."""
    if not isinstance(text, str):
        raise ValueError("no text")
    text = text.replace("-", "+").replace("_", "/").rstrip("=")
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


# -- control plane --

RULES = Map([{"transform": {"headers": Map(str)}}])
PROXY = {"address!": str, "username": str, "password": str, "tls": ANY}
UPDATE = {"allow_internet_access": bool, "allowOut": [str], "denyOut": [str], "egressProxy": PROXY, "rules": RULES}
NETWORK = {"allowOut": [str], "denyOut": [str], "allowPublicTraffic": bool, "egressProxy": PROXY, "httpsPorts": [int], "maskRequestHost": str,
           "rules": RULES}
NEW_V2 = {"templateID!": str, "timeout": int, "allow_internet_access": bool, "autoPause": bool, "autoPauseMemory": bool,
          "autoResume": {"enabled!": bool, "timeout": int}, "envVars": Map(str), "iam": {"tokens": Map({"audience": str, "tokenType": str})}, "mcp": Or(ANY),
          "metadata": Map(str), "network": NETWORK, "volumeMounts": [{"name!": str, "path!": str}]}
NEW_V1 = {**NEW_V2, "secure": bool}
CONNECT_V1 = {"timeout!": int, "memory": bool}
CONNECT_V2 = {"timeout": int, "memory": bool}
PAUSE = {"memory": bool}
RESUME = {"timeout": int, "autoPause": bool, "memory": bool}
TIMEOUT = {"timeout!": int}
REFRESH = {"duration": int}

# -- envd --

SELECTOR = {"pid": UINT32, "tag": str}
SIZE = {"cols": UINT32, "rows": UINT32}
RPC = {
    "/process.Process/List": {},
    "/process.Process/Start": {"process": {"cmd": str, "args": [str], "envs": Map(str), "cwd": str}, "pty": {"size": SIZE}, "tag": str, "stdin": bool},
    "/process.Process/Connect": {"process": SELECTOR},
    "/process.Process/Update": {"process": SELECTOR, "pty": {"size": SIZE}},
    "/process.Process/SendInput": {"process": SELECTOR, "input": {"stdin": BYTES, "pty": BYTES}},
    "/process.Process/CloseStdin": {"process": SELECTOR},
    "/process.Process/SendSignal": {"process": SELECTOR, "signal": Or(str, int)},
    "/filesystem.Filesystem/Stat": {"path": str},
    "/filesystem.Filesystem/MakeDir": {"path": str},
    "/filesystem.Filesystem/Move": {"source": str, "destination": str},
    "/filesystem.Filesystem/ListDir": {"path": str, "depth": UINT32},
    "/filesystem.Filesystem/Remove": {"path": str},
    "/filesystem.Filesystem/WatchDir": {"path": str, "recursive": bool, "includeEntry": bool, "allowNetworkMounts": bool},
    "/filesystem.Filesystem/CreateWatcher": {"path": str, "recursive": bool, "includeEntry": bool, "allowNetworkMounts": bool},
    "/filesystem.Filesystem/GetWatcherEvents": {"watcherId": str},
    "/filesystem.Filesystem/RemoveWatcher": {"watcherId": str},
}
