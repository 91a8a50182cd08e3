"""The vendor's own messages (package `openshell`), and the judge of what a client sends in them.

A request is decoded with the generated classes; a field they do not know is refused and written down. So is one that they know and the backend's
specification does not: FIELDS below is that specification's table, and `differences` compares it with the vendor's descriptors.
"""
from google.protobuf import descriptor, duration_pb2, struct_pb2, timestamp_pb2, unknown_fields
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from openshell._proto import datamodel_pb2 as datamodel
from openshell._proto import openshell_pb2 as api
from openshell._proto import sandbox_pb2 as sandbox

DOMAIN = "openshell.nvidia.com"
SERVICE = api.DESCRIPTOR.services_by_name["OpenShell"]

# message -> "name number type" of each field, after the tables of the specification (release 0.1.2); types: the scalar's or message's or enum's
# name, `map` for map<string,string>, `rep T`, `opt T` for one with presence.
FIELDS = {
    datamodel.WorkspaceSelector: "workspace 1 string, all_workspaces 2 AllWorkspaces",
    datamodel.ObjectMeta: "id 1 string, name 2 string, labels 4 map, resource_version 5 uint64, annotations 6 map, workspace 7 string, "
                          "created_time 103 Timestamp, deletion_time 108 Timestamp",
    timestamp_pb2.Timestamp: "seconds 1 int64, nanos 2 int32",
    duration_pb2.Duration: "seconds 1 int64, nanos 2 int32",
    struct_pb2.Struct: "fields 1 map<string,Value>",
    struct_pb2.Value: "null_value 1 NullValue, number_value 2 double, string_value 3 string, bool_value 4 bool, struct_value 5 Struct, list_value 6 ListValue",
    struct_pb2.ListValue: "values 1 rep Value",
    api.HealthRequest: "",
    api.HealthResponse: "status 1 ServiceStatus, version 2 string",
    api.GetGatewayInfoRequest: "",
    api.GetGatewayInfoResponse: "status 1 ServiceStatus, gateway_version 2 string, compute_drivers 3 rep ComputeDriverInfo",
    api.ComputeDriverInfo: "name 1 string, capabilities 2 ComputeDriverCapabilities",
    api.ComputeDriverCapabilities: "driver_name 1 string, driver_version 2 string, resource_capabilities 3 ResourceCapabilities",
    api.ResourceCapabilities: "cpu 1 CpuResourceCapabilities, memory 2 MemoryResourceCapabilities",
    api.CpuResourceCapabilities: "limit_supported 1 bool",
    api.MemoryResourceCapabilities: "limit_supported 1 bool",
    api.CreateSandboxRequest: "spec 1 SandboxSpec, name 2 string, labels 3 map, annotations 4 map, await_main_process_attachment 5 bool, "
                              "workload_template 6 string, workspace_scope 7 WorkspaceSelector, request_id 8 string, service_exposures 9 rep SandboxServiceExposure",
    api.SandboxSpec: "log_level 1 string, environment 5 map, template 6 SandboxTemplate, policy 7 SandboxPolicy, providers 8 rep string, "
                     "resource_requirements 9 ResourceRequirements, command 12 rep string, tty 13 bool, provider_attachment_epoch 14 string",
    api.SandboxTemplate: "image 1 string, runtime_class_name 2 string, agent_socket 3 string, labels 4 map, annotations 5 map, environment 6 map, "
                         "resources 7 Struct, user_namespaces 10 opt bool, driver_config 11 Struct",
    api.SandboxResponse: "sandbox 1 Sandbox, service_urls 2 map",
    api.Sandbox: "metadata 1 ObjectMeta, spec 2 SandboxSpec, status 3 SandboxStatus, created_from_workload_template 20 SandboxWorkloadTemplateProvenance",
    api.SandboxStatus: "conditions 5 rep SandboxCondition, phase 6 SandboxPhase, current_policy_version 7 uint32, main_process_instance_id 8 string, "
                       "exit_code 9 opt int32, configuration_admission 11 SandboxConfigurationAdmission, configuration_activated 12 opt bool, "
                       "provisioning 13 SandboxProvisioning",
    api.SandboxCondition: "type 1 string, status 2 string, reason 3 string, message 4 string, transition_time 105 Timestamp",
    api.SandboxConfigurationAdmission: "instance_id 1 string, state 2 ConfigurationAdmissionState, policy_version 3 uint32, policy_hash 4 string, "
                                       "config_revision 5 uint64, provider_env_revision 6 uint64, error 7 string",
    api.GetSandboxRequest: "name 1 string, workspace_scope 2 WorkspaceSelector",
    api.ListSandboxesRequest: "page_size 1 int32, page_token 2 string, label_selector 3 string, workspace_scope 4 WorkspaceSelector",
    api.ListSandboxesResponse: "sandboxes 1 rep Sandbox, next_page_token 2 string",
    api.DeleteSandboxRequest: "name 1 string, workspace_scope 2 WorkspaceSelector, allow_missing 3 bool, request_id 4 string",
    api.DeleteSandboxResponse: "outcome 2 DeletionOutcome, sandbox_id 3 string",
    api.StopSandboxRequest: "name 1 string, workspace_scope 2 WorkspaceSelector, request_id 3 string",
    api.StartSandboxRequest: "name 1 string, workspace_scope 2 WorkspaceSelector, request_id 3 string",
    api.WatchSandboxRequest: "sandbox 1 string, follow_status 2 bool, follow_logs 3 bool, follow_events 4 bool, log_tail_lines 5 uint32, event_tail 6 uint32, "
                             "stop_on_terminal 7 bool, since_time 108 Timestamp, log_sources 9 rep string, log_min_level 10 string, "
                             "workspace_scope 11 WorkspaceSelector, resume_after_cursor 12 string",
    api.SandboxStreamEvent: "sandbox 1 Sandbox, log 2 SandboxLogLine, event 3 PlatformEvent, warning 4 SandboxStreamWarning, "
                            "draft_policy_update 5 DraftPolicyUpdate, cursor 6 string",
    api.SandboxStreamWarning: "message 1 string",
    api.ExecSandboxRequest: "sandbox 1 string, command 2 rep string, workdir 3 string, environment 4 map, stdin 6 bytes, tty 7 bool, cols 8 uint32, rows 9 uint32, "
                            "no_login_shell 10 bool, request_id 11 string, workspace_scope 12 WorkspaceSelector, execution_timeout 105 Duration",
    api.ExecSandboxInput: "start 1 ExecSandboxRequest, stdin 2 bytes, resize 3 ExecSandboxWindowResize",
    api.ExecSandboxWindowResize: "cols 1 uint32, rows 2 uint32",
    api.ExecSandboxEvent: "stdout 1 ExecSandboxStdout, stderr 2 ExecSandboxStderr, exit 3 ExecSandboxExit",
    api.ExecSandboxStdout: "data 1 bytes",
    api.ExecSandboxStderr: "data 1 bytes",
    api.ExecSandboxExit: "exit_code 1 int32",
    api.CreateSshSessionRequest: "sandbox 1 string, workspace_scope 3 WorkspaceSelector",
    api.CreateSshSessionResponse: "sandbox_id 1 string, token 2 string, gateway_host 3 string, gateway_port 4 uint32, gateway_scheme 5 string, "
                                  "host_key_fingerprint 7 string, expiration_time 108 Timestamp",
    api.RevokeSshSessionRequest: "token 1 string, allow_missing 2 bool",
    api.RevokeSshSessionResponse: "outcome 2 DeletionOutcome",
    api.TcpForwardFrame: "init 1 TcpForwardInit, data 2 bytes",
    api.TcpForwardInit: "sandbox 1 string, workspace 3 string, service_id 4 string, ssh 5 SshRelayTarget, tcp 6 TcpRelayTarget, authorization_token 7 string",
    api.SshRelayTarget: "",
    api.TcpRelayTarget: "host 1 string, port 2 uint32",
    sandbox.GetSandboxConfigRequest: "name 1 string, workspace_scope 3 WorkspaceSelector",
    sandbox.GetSandboxConfigResponse: "policy 1 SandboxPolicy, version 2 uint32, policy_hash 3 string, settings 4 map<string,EffectiveSetting>, "
                                      "config_revision 5 uint64, policy_source 6 PolicySource, global_policy_version 7 uint32, provider_env_revision 8 uint64, "
                                      "workspace 10 string, policy_validation_failure_mode 11 string, extension_authentication_enabled 12 bool, "
                                      "configuration_admitted 13 bool, provider_attachment_epoch 14 string, configuration_instance_id 15 string, "
                                      "configuration_error 16 string",
    sandbox.EffectiveSetting: "value 1 SettingValue, scope 2 SettingScope",
    sandbox.SettingValue: "string_value 1 string, bool_value 2 bool, int_value 3 int64, bytes_value 4 bytes",
    api.GetSandboxPolicyStatusRequest: "sandbox 1 string, version 2 uint32, global 3 bool, workspace_scope 4 WorkspaceSelector",
    api.GetSandboxPolicyStatusResponse: "revision 1 SandboxPolicyRevision, active_version 2 uint32",
    api.SandboxPolicyRevision: "version 1 uint32, policy_hash 2 string, status 3 PolicyStatus, load_error 4 string, created_time 105 Timestamp, "
                               "loaded_time 106 Timestamp, policy 7 SandboxPolicy, provenance 8 map",
    sandbox.SandboxPolicy: "version 1 uint32, filesystem 2 FilesystemPolicy, landlock 3 LandlockPolicy, process 4 ProcessPolicy, "
                           "network_policies 5 map<string,NetworkPolicyRule>, network_middlewares 6 map<string,NetworkMiddlewareConfig>",
    sandbox.FilesystemPolicy: "include_workdir 1 bool, read_only 2 rep string, read_write 3 rep string",
    sandbox.LandlockPolicy: "compatibility 1 string",
    sandbox.ProcessPolicy: "run_as_user 1 string, run_as_group 2 string",
    sandbox.NetworkPolicyRule: "name 1 string, endpoints 2 rep NetworkEndpoint, binaries 3 rep NetworkBinary",
}

ENUMS = {
    api.SandboxPhase: "UNSPECIFIED PROVISIONING READY ERROR DELETING UNKNOWN STOPPING STOPPED STARTING COMPLETED",
    api.DeletionOutcome: "UNSPECIFIED COMPLETED ACCEPTED ALREADY_ABSENT",
    api.ServiceStatus: "UNSPECIFIED HEALTHY DEGRADED UNHEALTHY",
    api.ConfigurationAdmissionState: "UNSPECIFIED PENDING ACCEPTED REJECTED",
    api.PolicyStatus: "UNSPECIFIED PENDING LOADED FAILED SUPERSEDED",
    sandbox.PolicySource: "UNSPECIFIED SANDBOX GLOBAL",
    sandbox.SettingScope: "UNSPECIFIED SANDBOX GLOBAL",
}

_SCALARS = {value: name[5:].lower() for name, value in vars(descriptor.FieldDescriptor).items() if name.startswith("TYPE_")}


def _type_of(field):
    kind = _SCALARS[field.type]
    if field.enum_type:
        kind = field.enum_type.name
    if field.message_type:
        kind = field.message_type.name
        if field.message_type.GetOptions().map_entry:
            key, value = (_type_of(f) for f in field.message_type.fields)
            return "map" if (key, value) == ("string", "string") else f"map<{key},{value}>"
    if field.is_repeated:
        return "rep " + kind
    is_optional = field.containing_oneof is not None and field.containing_oneof.name == "_" + field.name
    return "opt " + kind if is_optional else kind


def _parsed(table):
    return {name: (int(number), kind) for name, number, kind in (part.split(" ", 2) for part in table.split(", ") if part)}


def differences():
    """(what the tables have wrong or the vendor's descriptors lack, what the descriptors have besides): lists of lines."""
    wrong, besides = [], []
    for kind, table in FIELDS.items():
        ours, theirs = _parsed(table), {f.name: (f.number, _type_of(f)) for f in kind.DESCRIPTOR.fields}
        for name, field in ours.items():
            if theirs.get(name) != field:
                wrong.append(f"{kind.DESCRIPTOR.full_name}.{name}: {field} in the tables, {theirs.get(name)} at the vendor's")
        besides += [f"{kind.DESCRIPTOR.name}.{name} {number} {what}" for name, (number, what) in theirs.items() if name not in ours]
    for kind, names in ENUMS.items():
        prefix = "".join("_" + c if c.isupper() and i else c for i, c in enumerate(kind.DESCRIPTOR.name)).upper() + "_"
        theirs = {v.name.removeprefix(prefix): v.number for v in kind.DESCRIPTOR.values}
        if theirs != {name: number for number, name in enumerate(names.split())}:
            wrong.append(f"enum {kind.DESCRIPTOR.name}: {theirs}")
    return wrong, besides


_ALLOWED = {kind.DESCRIPTOR.full_name: set(_parsed(table)) for kind, table in FIELDS.items()}


class Strange(Exception):
    """A request that is not one of the vendor's."""


def decode(kind, data):
    """(the message, names of fields that the vendor knows and the tables do not)."""
    try:
        message = kind.FromString(data)
    except DecodeError as e:
        raise Strange(f"not a {kind.DESCRIPTOR.name}: {e}") from None
    foreign, unknown = [], []
    _walk(message, kind.DESCRIPTOR.name, foreign, unknown)
    if unknown:
        raise Strange(f"unknown fields: {', '.join(unknown)}")
    return message, foreign


def _walk(message, where, foreign, unknown):
    for field in unknown_fields.UnknownFieldSet(message):
        unknown.append(f"{where}.{field.field_number}")
    allowed = _ALLOWED.get(message.DESCRIPTOR.full_name)
    for field, value in message.ListFields():
        name = f"{where}.{field.name}"
        if allowed is not None and field.name not in allowed:
            foreign.append(name)
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type:
                for v in value.values():
                    _walk(v, name, foreign, unknown)
        elif field.is_repeated:
            for v in value:
                _walk(v, name, foreign, unknown)
        else:
            _walk(value, name, foreign, unknown)


def has_unknown(message):
    """Whether a message, or one in it, has a field that the descriptors do not."""
    found = []
    _walk(message, "", [], found)
    return bool(found)


def status_details(code, text, reason=None, field=None, retry_s=None):
    """google.rpc.Status as it travels in grpc-status-details-bin."""
    status = status_pb2.Status(code=code, message=text)
    if field:
        bad = error_details_pb2.BadRequest()
        bad.field_violations.add(field=field, description=text)
        status.details.add().Pack(bad)
        reason = reason or "INVALID_ARGUMENT"
    if reason:
        status.details.add().Pack(error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN))
    if retry_s is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromNanoseconds(int(retry_s * 1e9))
        status.details.add().Pack(retry)
    return status.SerializeToString()
