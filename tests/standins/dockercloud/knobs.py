"""What may be turned: the service's own settings, and what a fault rule does to the requests it meets.

A rule is the base's (faults.py), with one field more, `step`: the same word for both APIs (create, read, list, delete, wait, poll, mint, policy, exec,
upload, download, ...; see STEPS in rest.py and connect.py) or an operation's own name; `lease` is a sandbox's name, `sandbox` its id. Its action is {"type": "turn", KNOB: VALUE, ...}, or one of the
short forms respond, delay, drop and stall. All rules that act on a request act together.
"""
import json

from ..base.faults import BadRule, Faults, Rule

# For the whole service; a rule may turn any of these for its requests alone.
SERVICE = {
    "boot_ms": 20, "delete_lag_reads": 1, "delete_ms": 0, "delete_never": False, "exchange_life_s": 900, "credential_life_ms": 0,
    "clock_skew_ms": 0, "quota_concurrent": 10, "quota_stored": 50, "policy_mode": "denyAll", "policy_allow": [], "policy_409": False,
    "policy_missing_field": "", "policy_put_ignored": False, "list_page_size": 0, "list_pages": 0, "list_hide": "", "enum_numbers": False, "unserved_html": False,
    "quoted_parts": False, "renew_unimplemented": False, "op_wait_unimplemented": False, "wrapper_required": True, "image_digest": "", "permissions": None,
    "latency_ms": 0, "latency_jitter_ms": 0, "latency_after_ms": 0, "echo_secret": False, "rate_limit_reads": 0, "mint_limited": 0, "retry_after": None,
    "create_pending_forever": False, "create_fails_after_accept": False, "delete_fails": 0, "delete_status": None, "delete_stale_once": 0,
    "refuse_credential_once": 0, "late_appearance_ms": 0, "time_scale": 1.0, "unique_names": False,
}
# For single requests.
REQUEST = {
    "status", "code", "message", "html", "body", "retry_info", "after", "redirect", "drop_before_effect", "drop_before_response", "drop_reused_connection",
    "stall_after_bytes", "stall_ms", "drop_after_bytes", "duplicate_key", "truncate_json", "huge_answer", "create_malformed", "exchange_no_token",
    "exchange_token", "expire_during_exec", "exec_flood", "exec_incomplete", "exec_exit", "late_exit_ms", "upload_count_wrong", "upload_lost",
    "upload_fails_at", "no_message", "truncate_stream", "stream_error", "compressed_frame", "oversize_frame", "unknown_part", "unrequested_path",
    "content_before_metadata", "mint_without", "mint_wrong", "policy_put_wrong_echo", "delete_lies", "in_operation", "capabilities",
}
SHORT = {"respond": {"status", "code", "message", "html", "body", "retry_after", "retry_info"}, "delay": {"ms", "jitter_ms"}, "drop": {"bytes"}, "stall": {"bytes", "ms"}}
ACTIONS = {"turn": SERVICE.keys() | REQUEST, **SHORT}


def _turned(rule: Rule) -> dict:
    """A rule's action as knobs."""
    action, is_after = rule.action, rule.phase != "before"
    match rule.type:
        case "respond": return {**action, "status": action.get("status", 500), "after": is_after}
        case "delay" if is_after: return {"latency_after_ms": action.get("ms", 0)}
        case "delay": return {"latency_ms": action.get("ms", 0), "latency_jitter_ms": action.get("jitter_ms", 0)}
        case "drop" if "bytes" in action: return {"drop_after_bytes": action["bytes"]}
        case "drop": return {"drop_before_response" if is_after else "drop_before_effect": True}
        case "stall": return {"stall_after_bytes": action.get("bytes", 0), **({"stall_ms": action["ms"]} if "ms" in action else {})}
    return {**action, "after": is_after} if "status" in action and "after" not in action else dict(action)


class Knobs(Faults):
    def __init__(self, seed: int = 0):
        super().__init__(ACTIONS, seed)

    def _made(self, values):
        if not isinstance(values, list) or not all(isinstance(v, dict) for v in values):
            raise BadRule("a list of rules is wanted")
        plain = []
        for value in values:
            action = value.get("action", {})
            plain.append({**{k: v for k, v in value.items() if k != "step"}, "action": {"type": "turn", **action} if isinstance(action, dict) else action})
        made = super()._made(plain)
        for rule, value in zip(made, values):
            rule.step = value.get("step")
            if rule.step is not None:
                rule.value = {**rule.value, "step": rule.step}
        return made

    def meet(self, call) -> None:
        """Turns the request's knobs as the rules that act on it say."""
        if not self.rules:
            return
        uid, name = whose(call) if any("lease" in r.value or "sandbox" in r.value for r in self.rules) else (None, None)
        for rule in self.rules:
            if rule.phase != "body" and _is_meant(rule, call, uid, name) and rule.acts():
                call.turned.update(_turned(rule))
                call.fault_id = rule.id

    def cut(self, call) -> int | None:
        """After how many bytes of its body the request's connection is to break: a drop of phase `body`, which is asked for before the body is read."""
        for rule in self.rules:
            if rule.phase == "body" and rule.type == "drop" and _is_meant(rule, call, call.sandbox or None, None) and rule.acts():
                call.fault_id = rule.id
                return rule.action.get("bytes", 0)
        return None


def _is_meant(rule: Rule, call, uid: str | None, name: str | None) -> bool:
    return rule.step in (None, call.step, call.operation) and rule.matches_request(call.api, call.request.method, call.request.path, uid, name)


def whose(call) -> tuple[str | None, str | None]:
    """(id, name) of the sandbox that a request is about, as far as it says."""
    uid, name = call.sandbox or None, None
    if uid is None and call.body[:1] == b"{":
        try:
            message = json.loads(call.body)
        except ValueError:
            return None, None
        inner = message.get("target", message)
        reference = inner.get("sandbox") if isinstance(inner, dict) else None
        if isinstance(reference, dict):
            uid, name = reference.get("id"), reference.get("name")
        elif operation := call.world.operations.get(message.get("id")):
            uid = operation.sandbox and operation.sandbox.uid
        else:
            name = message.get("displayName", message.get("name"))
    if name is None and uid in call.world.sandboxes:
        name = call.world.sandboxes[uid].name
    elif uid is None and name:
        uid = next((s.uid for s in call.world.sandboxes.values() if s.name == name), None)
    return uid, name
