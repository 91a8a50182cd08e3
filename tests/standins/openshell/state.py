"""What the gateway knows: sandboxes with their phases, and the tokens of ssh sessions."""
import secrets
import uuid

from .policy import policy_hash
from .schema import api, sandbox as config
from .wire import message_field

UNSPECIFIED, PROVISIONING, READY, ERROR, DELETING, UNKNOWN, STOPPING, STOPPED, STARTING, COMPLETED = range(10)
PHASES = "UNSPECIFIED PROVISIONING READY ERROR DELETING UNKNOWN STOPPING STOPPED STARTING COMPLETED".split()
DEFAULT_COMMAND = ("/bin/bash", "-l")
TOKEN_LIVE_MAX = 3
SETTING = "agent_policy_proposals_enabled"


def ms_to(stamp, ms):
    stamp.seconds, stamp.nanos = ms // 1000, ms % 1000 * 1_000_000


class Token:
    def __init__(self, sandbox, expires_ms):
        self.value = "osh_" + secrets.token_urlsafe(32)
        self.sandbox, self.expires_ms = sandbox, expires_ms
        self.is_revoked = False
        self.live, self.live_max = 0, TOKEN_LIVE_MAX


class Sandbox:
    def __init__(self, gateway, workspace, name, labels, annotations, spec, created_ms, spec_bytes=None):
        self.gateway = gateway
        self.id = str(uuid.uuid4())
        self.workspace, self.name = workspace, name
        self.labels, self.annotations = dict(labels), dict(annotations)
        self.spec = spec
        # as it came; what the gateway fills in is appended, which protobuf reads as one message
        filled = api.SandboxSpec()
        if not spec.command:
            filled.command.extend(DEFAULT_COMMAND)
            filled.tty = True
        self.spec_bytes = (spec.SerializeToString(deterministic=True) if spec_bytes is None else spec_bytes) + filled.SerializeToString()
        self.created_ms = created_ms
        self.version = 1
        self.phase, self.next_phase, self.polls = PROVISIONING, None, 0
        self.conditions = []
        self.exit_code = None
        self.is_gone = False
        self.reads = 0
        self.tokens = []
        self.forwards = 0
        self.box = self.main = None
        self.box_fault = None       # what is wrong with the place itself
        self.being_made = None      # the task that makes its box
        self.execs = []
        self.watchers = set()

    @property
    def has_policy(self):
        return self.spec.HasField("policy")

    def policy(self):
        return self.spec.policy if self.has_policy else config.SandboxPolicy(version=1)

    def hash(self):
        return policy_hash(self.policy())

    def turn(self, phase, *conditions):
        self.phase = phase
        self.version += 1
        self.conditions = list(conditions) or self.conditions
        for watcher in list(self.watchers):
            watcher.set()

    def later(self, phase, polls):
        """It will be in `phase` after so many more reads that do not show it."""
        self.next_phase, self.polls = phase, polls
        if polls <= 0 and not self.is_being_made():
            self.turn(phase)
            self.next_phase = None

    def is_being_made(self):
        return self.being_made is not None and not self.being_made.done()

    def poll(self):
        """One read of the record."""
        self.reads += 1
        if self.next_phase is None:
            return
        if self.polls <= 0 and not self.is_being_made():
            self.turn(self.next_phase)
            self.next_phase = None
        self.polls -= 1

    def record(self):
        """The record as a message."""
        value = api.Sandbox()
        m = value.metadata
        m.id, m.name, m.workspace, m.resource_version = self.id, self.name, self.workspace, self.version
        m.labels.update(self.labels)
        m.annotations.update(self.annotations)
        ms_to(m.created_time, self.created_ms)
        if self.phase == DELETING:
            ms_to(m.deletion_time, self.gateway.account.clock.wall())
        s = value.status
        s.phase = self.phase
        s.current_policy_version = 1
        s.main_process_instance_id = self.id[:8]
        if self.exit_code is not None:
            s.exit_code = self.exit_code
        for kind, status, reason, message in self.conditions:
            row = s.conditions.add(type=kind, status=status, reason=reason, message=message)
            ms_to(row.transition_time, self.gateway.account.clock.wall())
        if self.phase == READY:
            s.configuration_admission.instance_id = self.id[:8]
            s.configuration_admission.state = 2
            s.configuration_admission.policy_version = 1
            s.configuration_admission.policy_hash = self.hash()
            s.configuration_activated = True
        return value

    def encoded(self, spec_bytes=None):
        """The record's bytes, its spec as it came."""
        value = self.record().SerializeToString(deterministic=True)
        return value + message_field(2, self.spec_bytes if spec_bytes is None else spec_bytes)

    def whole(self):
        """The record with its spec, as a message that may be changed."""
        value = self.record()
        value.spec.ParseFromString(self.spec_bytes)
        return value

    def config(self):
        answer = config.GetSandboxConfigResponse(version=1, policy_hash=self.hash(), config_revision=1, policy_source=1, workspace=self.workspace,
                                                 configuration_admitted=True, configuration_instance_id=self.id[:8])
        answer.policy.CopyFrom(self.policy())
        answer.settings[SETTING].scope = 1
        return answer

    def as_json(self):
        return {"id": self.id, "name": self.name, "workspace": self.workspace, "labels": self.labels, "phase": PHASES[self.phase], "reads": self.reads,
                "created_ms": self.created_ms, "image": self.spec.template.image, "policy_hash": self.hash(), "command": list(self.spec.command),
                "tokens": len([t for t in self.tokens if not t.is_revoked]), "forwards": self.forwards, "execs": len(self.execs)}


def response(encoded_sandbox):
    """SandboxResponse around a record's bytes."""
    return message_field(1, encoded_sandbox)
