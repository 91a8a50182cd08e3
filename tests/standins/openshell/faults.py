"""The kinds of scripted faults (base/faults.py says how a rule is written), and what they change in what the gateway says.

`phase` before: nothing was done; after: all was done and the answer is lost. `at` and `after_bytes` strike in the middle of the answer.
"""
from ..base.faults import Faults
from .policy import policy_hash
from .schema import api
from .state import COMPLETED, DELETING, ERROR, PHASES, SETTING, UNKNOWN

_WHERE = {"at", "message", "byte", "after_bytes", "perform"}
# how a call ends in another way than with its answer
ENDS = {
    "status": {"code", "message_text", "details", "reason", "retry_s", "after_headers"},
    "unavailable-before": {"message_text", "reason", "retry_s"},
    "unavailable-after": {"message_text", "reason", "retry_s"},
    "never": set(),
    "refuse-stream": set(),
    "rst": {"code"},
    "close": {"how"},
    "goaway": {"code", "last"},
    "no-trailers": set(),
    "bad-status": {"what", "status", "headers_first"},
}
# how an answer is written
FLOWS = {"split": {"bytes"}, "pad": {"bytes"}, "pack": {"bytes"}, "slow": {"rate"}}
# what the answer says, or what the gateway does
CHANGES = {
    "delay": {"ms"},
    "garbage": {"what", "message"},
    "window-zero": set(),
    "no-read": {"exit", "stdout"},
    "phase": {"told", "reason", "message_text", "exit_code"},
    "readback": {"what"},
    "drift": {"what", "reads"},
    "delete-fails": {"what"},
    "list": {"what"},
    "driver": {"what"},
    "token": {"what", "limit"},
    "exit-124": {"ms"},
    "exec": {"what", "ms", "bytes", "stdout", "exit"},
    "clock": {"ms"},
    "forward": {"what"},
    "driver-config": set(),
    "box": {"what"},
}
ACTIONS = {**{k: v | _WHERE for k, v in ENDS.items()}, **FLOWS, **CHANGES}


def make(seed):
    return Faults(ACTIONS, seed)


def is_performed(rule):
    """Whether the work is done before the call is ended by the fault."""
    if rule.type == "unavailable-before":
        return False
    if rule.type == "unavailable-after" or rule.get("at") in ("inside", "between", "after-exit") or rule.get("after_bytes") is not None:
        return True
    return rule.phase != "before" or bool(rule.get("perform"))


# -- what the gateway tells of a sandbox --

class NoSuchChange(ValueError):
    pass


def _policy_path(policy):
    policy.filesystem.read_write.append("/etc")


def _unknown_field(message):
    """The message with a field nobody knows."""
    message.MergeFromString(b"\xfa\x7f\x03new")      # 2047, three bytes


def change_record(value, what):
    """One difference in a GetSandbox answer (an api.Sandbox with its spec)."""
    t = value.spec.template
    if what == "policy-path":
        _policy_path(value.spec.policy)
    elif what == "policy":
        value.spec.policy.landlock.compatibility = "best_effort"
    elif what == "policy-network":
        value.spec.policy.network_policies["open"].name = "open"
    elif what == "policy-process":
        value.spec.policy.process.SetInParent()
    elif what == "policy-missing":
        value.spec.ClearField("policy")
    elif what == "unknown-field":
        _unknown_field(value.spec.policy)
    elif what == "label":
        value.metadata.labels["plimsoll.run"] = "2"
    elif what == "label-missing":
        value.metadata.labels.clear()
    elif what == "label-extra":
        value.metadata.labels["somebody.else"] = "1"
    elif what == "image":
        t.image = t.image + "x"
    elif what == "image-case":
        t.image = t.image.upper()
    elif what == "resources":
        t.resources["limits"]["memory"] = "512Mi"
    elif what == "resources-extra":
        t.resources["requests"] = {"cpu": "1"}
    elif what == "resources-number":
        t.resources["limits"]["cpu"] = 1
    elif what == "resources-missing":
        t.ClearField("resources")
    elif what == "driver-config":
        t.driver_config["docker"] = {"mounts": [{"type": "bind", "source": "/", "target": "/host"}]}
    elif what == "provider":
        value.spec.providers.append("aws")
    elif what == "environment":
        value.spec.environment["LD_PRELOAD"] = "/tmp/x.so"
    elif what == "template-environment":
        t.environment["LD_PRELOAD"] = "/tmp/x.so"
    elif what == "template-labels":
        t.labels["a"] = "b"
    elif what == "template-annotations":
        t.annotations["a"] = "b"
    elif what == "agent-socket":
        t.agent_socket = "/run/agent.sock"
    elif what == "runtime-class":
        t.runtime_class_name = "runc"
    elif what == "user-namespaces":
        t.user_namespaces = False           # there, which is what counts
    elif what == "command":
        value.spec.command[:] = ["/bin/sh", "-c", "sleep 1"]
    elif what == "id-empty":
        value.metadata.id = ""
    elif what == "id-other":
        value.metadata.id = "00000000-0000-4000-8000-000000000000"
    elif what == "id-hostile":
        value.metadata.id = "../../x\r\nSet-Cookie: a=b\u0000" + "A" * 5000
    elif what == "name-other":
        value.metadata.name = "plp-ffffffffffffff"
    elif what == "name-empty":
        value.metadata.name = ""
    elif what == "workspace":
        value.metadata.workspace = "another"
    elif what == "no-sandbox":
        value.Clear()
    elif what == "no-metadata":
        value.ClearField("metadata")
    elif what == "no-spec":
        value.ClearField("spec")
    elif what == "no-status":
        value.ClearField("status")
    # what may differ without harm
    elif what == "harmless-order":
        pass                                # decided where it is encoded: maps in another order
    elif what == "harmless-newer":
        value.host_key_fingerprint = "SHA256:abc"
        value.status.restart_count = 0
        value.status.main_process_started_time.seconds = 1
        value.spec.tty = True
        value.spec.log_level = "info"
        _unknown_field(value.status)
    else:
        return False
    return True


def change_config(value, what):
    """One difference in a GetSandboxConfig answer."""
    setting = value.settings[SETTING]
    if what == "policy-path":
        _policy_path(value.policy)
        value.policy_hash = policy_hash(value.policy)
    elif what == "policy":
        _policy_path(value.policy)
    elif what == "policy-network":
        value.policy.network_policies["open"].name = "open"
        value.policy_hash = policy_hash(value.policy)
    elif what == "policy-missing":
        value.ClearField("policy")
    elif what == "hash":
        value.policy_hash = "0" * 64
    elif what == "hash-empty":
        value.policy_hash = ""
    elif what == "hash-case":
        value.policy_hash = value.policy_hash.upper()
    elif what == "source-global":
        value.policy_source = 2
    elif what == "source-unspecified":
        value.policy_source = 0
    elif what == "not-admitted":
        value.configuration_admitted = False
        value.configuration_error = "landlock is not there"
    elif what == "setting-true":
        setting.value.bool_value = True
    elif what == "setting-string":
        setting.value.string_value = "false"
    elif what == "setting-int":
        setting.value.int_value = 0
    elif what == "setting-missing":
        del value.settings[SETTING]
    elif what == "unknown-field":
        _unknown_field(value.policy)
    elif what == "harmless-newer":
        value.settings_revision = 7
        setting.value.bool_value = False
        value.settings["another"].value.bool_value = True
    else:
        return False
    return True


RECORD_CHANGES = ("policy-path policy policy-network policy-process policy-missing unknown-field label label-missing image image-case resources resources-extra "
                  "resources-number resources-missing driver-config provider environment template-environment template-labels template-annotations agent-socket "
                  "runtime-class user-namespaces command id-empty id-hostile name-other name-empty no-sandbox no-metadata no-spec").split()
CONFIG_CHANGES = ("policy-path policy policy-network policy-missing hash hash-empty hash-case source-global source-unspecified not-admitted setting-true "
                  "setting-string setting-int setting-missing unknown-field").split()
HARMLESS_CHANGES = "label-extra harmless-order harmless-newer".split()


def phase_of(rule):
    """(phase, conditions, exit code) that a `phase` fault reports."""
    phase = PHASES.index(rule.get("told", "ERROR"))
    text = rule.get("message_text", "injected")
    reason = rule.get("reason", {ERROR: "ContainerFailed", COMPLETED: "MainProcessExited", UNKNOWN: "Unreachable", DELETING: "Deleting"}.get(phase, "Injected"))
    return phase, [("Ready", "False", reason, text)], rule.get("exit_code")


def gateway_info(version, rule):
    """GetGatewayInfo's answer."""
    answer = api.GetGatewayInfoResponse(status=1, gateway_version=version)

    def driver(name, of_capabilities=None, cpu=True, memory=True):
        row = answer.compute_drivers.add(name=name)
        row.capabilities.driver_name, row.capabilities.driver_version = of_capabilities or name, "28.1.0"
        row.capabilities.resource_capabilities.cpu.limit_supported = cpu
        row.capabilities.resource_capabilities.memory.limit_supported = memory
    what = rule.get("what") if rule else None
    if what == "none":
        pass
    elif what == "two":
        driver("docker")
        driver("podman")
    elif what == "podman":
        driver("podman")
    elif what == "mismatch":
        driver("docker", "podman")
    elif what == "mismatch-outer":
        driver("podman", "docker")
    elif what == "no-cpu":
        driver("docker", cpu=False)
    elif what == "no-memory":
        driver("docker", memory=False)
    elif what == "no-capabilities":
        answer.compute_drivers.add(name="docker")
    elif what in (None, "version-0.2", "version-0.0", "version-empty"):
        driver("docker")
        answer.gateway_version = {"version-0.2": "0.2.0", "version-0.0": "0.0.111", "version-empty": ""}.get(what, version)
    else:
        raise NoSuchChange(what)
    return answer
