#include "backends/openshell/messages.h"

#include <stdio.h>
#include <string.h>

#include "backends/openshell/wire.h"
#include "core/mem.h"
#include "core/protowire.h"

enum { SHAPE_PART_MAX = 4096, ARGV_MAX = 16, PAIRS_MAX = 16, NUMBER_MAX = 24 };

/* Our image has no shell to log in to, and a main process that ends ends the sandbox: one that never does. */
static const char *const MAIN_PROCESS[] = {"sleep", "2147483647"};
enum { MAIN_PROCESS_ARGS = 2 };

static ProtobufCBinaryData bytes_of(const char *text)
{
    return (ProtobufCBinaryData){.data = (uint8_t *)text, .len = strlen(text)};
}

static ProtobufCBinaryData bytes_in(const buffer_t *buffer)
{
    return (ProtobufCBinaryData){.data = buffer->base, .len = buffer->len};
}

static void pack(const ProtobufCMessage *message, buffer_t *out)
{
    if (!wire_pack(message, out))
        mem_fatal("a request to the gateway is larger than one can be");
}

/* --- the shape --- */

static void must(bool fits)
{
    if (!fits)
        mem_fatal("a sandbox's shape is larger than one can be");
}

static void make_resources(shape_t *shape, const char *cpus, uint32_t memory_mb)
{
    buffer_t limits;
    char memory[NUMBER_MAX];
    buffer_init(&limits, SHAPE_PART_MAX);
    snprintf(memory, sizeof(memory), "%uMi", memory_mb);
    /* texts both: a number is taken for no limit */
    must(wire_struct_text(&limits, "cpu", cpus) && wire_struct_text(&limits, "memory", memory) &&
         wire_struct_struct(&shape->resources, "limits", &limits));
    buffer_dispose(&limits);
}

static void make_driver_config(shape_t *shape, uint32_t disk_mb)
{
    buffer_t options, mount, mounts, docker;
    buffer_init(&options, SHAPE_PART_MAX);
    buffer_init(&mount, SHAPE_PART_MAX);
    buffer_init(&mounts, SHAPE_PART_MAX);
    buffer_init(&docker, SHAPE_PART_MAX);
    must(wire_list_text(&options, "noexec") && wire_struct_list(&mount, "options", &options) &&
         wire_struct_number(&mount, "size_bytes", (double)disk_mb * 1024 * 1024) &&
         wire_struct_text(&mount, "target", "/tmp") && wire_struct_text(&mount, "type", "tmpfs") &&
         wire_list_struct(&mounts, &mount) && wire_struct_list(&docker, "mounts", &mounts) &&
         wire_struct_struct(&shape->driver_config, "docker", &docker));
    buffer_dispose(&options);
    buffer_dispose(&mount);
    buffer_dispose(&mounts);
    buffer_dispose(&docker);
}

void shape_init(shape_t *shape, const char *workspace, const char *image, const char *cpus, uint32_t memory_mb,
                uint32_t disk_mb)
{
    memset(shape, 0, sizeof(*shape));
    snprintf(shape->workspace, sizeof(shape->workspace), "%s", workspace);
    shape->image = image;
    buffer_init(&shape->policy, POLICY_BYTES_MAX);
    buffer_init(&shape->resources, SHAPE_PART_MAX);
    buffer_init(&shape->driver_config, SHAPE_PART_MAX);
    make_resources(shape, cpus, memory_mb);
    if (disk_mb > 0)
        make_driver_config(shape, disk_mb);
    must(policy_encode(&POLICY_RUN, &shape->policy) &&
         policy_hash(shape->policy.base, shape->policy.len, shape->policy_hash));
}

void shape_dispose(shape_t *shape)
{
    buffer_dispose(&shape->policy);
    buffer_dispose(&shape->resources);
    buffer_dispose(&shape->driver_config);
}

/* --- requests --- */

void openshell_name(const char *stamp, char name[OPENSHELL_NAME + 1])
{
    snprintf(name, OPENSHELL_NAME + 1, "plp-%.14s", stamp);
}

static void scope_to(const shape_t *shape, Plimsoll__Openshell__WorkspaceSelector *scope)
{
    plimsoll__openshell__workspace_selector__init(scope);
    scope->workspace = bytes_of(shape->workspace);
}

/* Pairs and the list of them that protobuf-c wants. */
typedef struct {
    Plimsoll__Openshell__Pair pairs[PAIRS_MAX], *list[PAIRS_MAX];
    size_t count;
} pairs_t;

static void add_pair(pairs_t *pairs, const char *key, const char *value)
{
    if (pairs->count == PAIRS_MAX)
        mem_fatal("more entries than a request has");
    Plimsoll__Openshell__Pair *pair = &pairs->pairs[pairs->count];
    plimsoll__openshell__pair__init(pair);
    pair->key = bytes_of(key);
    pair->value = bytes_of(value);
    pairs->list[pairs->count++] = pair;
}

/* The labels, in the order of their keys. */
static void make_labels(const owner_t *owner, char lifetime[NUMBER_MAX], pairs_t *labels)
{
    snprintf(lifetime, NUMBER_MAX, "%u", owner->lifetime_s);
    labels->count = 0;
    add_pair(labels, "plimsoll.installation", owner->installation);
    add_pair(labels, "plimsoll.instance", owner->instance);
    add_pair(labels, "plimsoll.lifetime", lifetime);
    add_pair(labels, "plimsoll.run", "1");
    add_pair(labels, "plimsoll.stamp", owner->stamp);
}

void message_create(const shape_t *shape, const owner_t *owner, buffer_t *out)
{
    Plimsoll__Openshell__CreateRequest request = PLIMSOLL__OPENSHELL__CREATE_REQUEST__INIT;
    Plimsoll__Openshell__SandboxSpec spec = PLIMSOLL__OPENSHELL__SANDBOX_SPEC__INIT;
    Plimsoll__Openshell__SandboxTemplate template = PLIMSOLL__OPENSHELL__SANDBOX_TEMPLATE__INIT;
    Plimsoll__Openshell__WorkspaceSelector scope;
    ProtobufCBinaryData command[MAIN_PROCESS_ARGS];
    char name[OPENSHELL_NAME + 1], lifetime[NUMBER_MAX];
    pairs_t labels;

    scope_to(shape, &scope);
    openshell_name(owner->stamp, name);
    make_labels(owner, lifetime, &labels);
    for (size_t i = 0; i < MAIN_PROCESS_ARGS; ++i)
        command[i] = bytes_of(MAIN_PROCESS[i]);
    template.image = bytes_of(shape->image);
    template.resources = bytes_in(&shape->resources);
    template.driver_config = bytes_in(&shape->driver_config);
    spec.template_ = &template;
    spec.policy = bytes_in(&shape->policy);
    spec.command = command;
    spec.n_command = MAIN_PROCESS_ARGS;
    request.spec = &spec;
    request.name = bytes_of(name);
    request.labels = labels.list;
    request.n_labels = labels.count;
    request.workspace_scope = &scope;
    pack(&request.base, out);
}

void message_get(const shape_t *shape, const char *name, buffer_t *out)
{
    Plimsoll__Openshell__GetRequest request = PLIMSOLL__OPENSHELL__GET_REQUEST__INIT;
    Plimsoll__Openshell__WorkspaceSelector scope;
    scope_to(shape, &scope);
    request.name = bytes_of(name);
    request.workspace_scope = &scope;
    pack(&request.base, out);
}

void message_config(const shape_t *shape, const char *name, buffer_t *out)
{
    Plimsoll__Openshell__ConfigRequest request = PLIMSOLL__OPENSHELL__CONFIG_REQUEST__INIT;
    Plimsoll__Openshell__WorkspaceSelector scope;
    scope_to(shape, &scope);
    request.name = bytes_of(name);
    request.workspace_scope = &scope;
    pack(&request.base, out);
}

void message_delete(const shape_t *shape, const char *name, buffer_t *out)
{
    Plimsoll__Openshell__DeleteRequest request = PLIMSOLL__OPENSHELL__DELETE_REQUEST__INIT;
    Plimsoll__Openshell__WorkspaceSelector scope;
    scope_to(shape, &scope);
    request.name = bytes_of(name);
    request.workspace_scope = &scope;
    request.allow_missing = true;
    pack(&request.base, out);
}

void message_list(const shape_t *shape, const char *installation, const uint8_t *token, size_t token_len, buffer_t *out)
{
    Plimsoll__Openshell__ListRequest request = PLIMSOLL__OPENSHELL__LIST_REQUEST__INIT;
    Plimsoll__Openshell__WorkspaceSelector scope;
    char selector[64 + LEDGER_STAMP];
    scope_to(shape, &scope);
    snprintf(selector, sizeof(selector), "plimsoll.run=1%s%.*s", installation != NULL ? ",plimsoll.installation=" : "",
             LEDGER_STAMP, installation != NULL ? installation : "");
    request.page_size = OPENSHELL_PAGE;
    request.page_token = (ProtobufCBinaryData){.data = (uint8_t *)token, .len = token_len};
    request.label_selector = bytes_of(selector);
    request.workspace_scope = &scope;
    pack(&request.base, out);
}

void message_exec(const shape_t *shape, const char *name, const command_t *command, uint32_t timeout_s, buffer_t *out)
{
    Plimsoll__Openshell__ExecInput input = PLIMSOLL__OPENSHELL__EXEC_INPUT__INIT;
    Plimsoll__Openshell__ExecStart start = PLIMSOLL__OPENSHELL__EXEC_START__INIT;
    Plimsoll__Openshell__Duration timeout = PLIMSOLL__OPENSHELL__DURATION__INIT;
    Plimsoll__Openshell__WorkspaceSelector scope;
    ProtobufCBinaryData argv[ARGV_MAX];
    pairs_t pairs = {.count = 0};

    scope_to(shape, &scope);
    for (size_t i = 0; command->argv[i] != NULL; ++i) {
        if (i == ARGV_MAX)
            mem_fatal("more arguments than a command has");
        argv[i] = bytes_of(command->argv[i]);
        start.n_command = i + 1;
    }
    for (size_t i = 0; command->env != NULL && command->env[i] != NULL; i += 2)
        add_pair(&pairs, command->env[i], command->env[i + 1]);
    if (command->workdir != NULL)
        start.workdir = bytes_of(command->workdir);
    start.command = argv;
    start.sandbox = bytes_of(name);
    start.environment = pairs.list;
    start.n_environment = pairs.count;
    start.no_login_shell = true;
    start.workspace_scope = &scope;
    timeout.seconds = timeout_s;
    start.execution_timeout = &timeout;
    input.input_case = PLIMSOLL__OPENSHELL__EXEC_INPUT__INPUT_START;
    input.start = &start;
    pack(&input.base, out);
}

void message_stdin(const uint8_t *bytes, size_t len, buffer_t *out)
{
    Plimsoll__Openshell__ExecInput input = PLIMSOLL__OPENSHELL__EXEC_INPUT__INIT;
    input.input_case = PLIMSOLL__OPENSHELL__EXEC_INPUT__INPUT_STDIN;
    input.stdin = (ProtobufCBinaryData){.data = (uint8_t *)bytes, .len = len};
    pack(&input.base, out);
}

/* --- answers --- */

static void *parse(const ProtobufCMessageDescriptor *descriptor, const buffer_t *bytes)
{
    char error[PROTOWIRE_ERROR_MAX];
    return protowire_parse(descriptor, bytes->base, bytes->len, error);
}

Plimsoll__Openshell__GatewayInfo *read_info(const buffer_t *bytes)
{
    return parse(&plimsoll__openshell__gateway_info__descriptor, bytes);
}

Plimsoll__Openshell__Sandbox *read_sandbox(const buffer_t *bytes)
{
    Plimsoll__Openshell__SandboxResponse *response = parse(&plimsoll__openshell__sandbox_response__descriptor, bytes);
    if (response == NULL)
        return NULL;
    Plimsoll__Openshell__Sandbox *sandbox = response->sandbox;
    response->sandbox = NULL;
    protobuf_c_message_free_unpacked(&response->base, NULL);
    return sandbox;
}

Plimsoll__Openshell__Config *read_config(const buffer_t *bytes)
{
    return parse(&plimsoll__openshell__config__descriptor, bytes);
}

Plimsoll__Openshell__ListResponse *read_list(const buffer_t *bytes)
{
    return parse(&plimsoll__openshell__list_response__descriptor, bytes);
}

int read_deletion(const buffer_t *bytes)
{
    Plimsoll__Openshell__DeleteResponse *response = parse(&plimsoll__openshell__delete_response__descriptor, bytes);
    int outcome = response != NULL ? response->outcome : -1;
    if (response != NULL)
        protobuf_c_message_free_unpacked(&response->base, NULL);
    return outcome;
}

bool bytes_are(ProtobufCBinaryData bytes, const char *text)
{
    return bytes.len == strlen(text) && (bytes.len == 0 || memcmp(bytes.data, text, bytes.len) == 0);
}

const char *bytes_text(ProtobufCBinaryData bytes, char *out, size_t size)
{
    size_t len = bytes.len < size - 1 ? bytes.len : size - 1;
    for (size_t i = 0; i < len; ++i)
        out[i] = bytes.data[i] >= 0x20 && bytes.data[i] < 0x7f ? (char)bytes.data[i] : '?';
    out[len] = '\0';
    return out;
}

const ProtobufCBinaryData *label_of(const Plimsoll__Openshell__Sandbox *sandbox, const char *key)
{
    const ProtobufCBinaryData *found = NULL;
    for (size_t i = 0; sandbox->metadata != NULL && i < sandbox->metadata->n_labels; ++i) {
        if (!bytes_are(sandbox->metadata->labels[i]->key, key))
            continue;
        if (found != NULL)
            return NULL;
        found = &sandbox->metadata->labels[i]->value;
    }
    return found;
}

bool stamp_of(const Plimsoll__Openshell__Sandbox *sandbox, char stamp[LEDGER_STAMP + 1])
{
    const ProtobufCBinaryData *label = label_of(sandbox, "plimsoll.stamp");
    char name[OPENSHELL_NAME + 1];
    if (label == NULL || label->len != LEDGER_STAMP)
        return false;
    memcpy(stamp, label->data, LEDGER_STAMP);
    stamp[LEDGER_STAMP] = '\0';
    if (!ledger_is_stamp(stamp))
        return false;
    openshell_name(stamp, name);
    return bytes_are(sandbox->metadata->name, name);
}

static bool is_id_byte(uint8_t c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '_' ||
           c == ':' || c == '-';
}

bool id_of(const Plimsoll__Openshell__Sandbox *sandbox, char id[OPENSHELL_ID_MAX + 1])
{
    if (sandbox->metadata == NULL || sandbox->metadata->id.len == 0 || sandbox->metadata->id.len > OPENSHELL_ID_MAX)
        return false;
    size_t len = sandbox->metadata->id.len;
    for (size_t i = 0; i < len; ++i) {
        if (!is_id_byte(sandbox->metadata->id.data[i]))
            return false;
    }
    memcpy(id, sandbox->metadata->id.data, len);
    id[len] = '\0';
    return true;
}

int phase_of(const Plimsoll__Openshell__Sandbox *sandbox)
{
    return sandbox->status != NULL ? sandbox->status->phase : PHASE_UNSPECIFIED;
}

const char *phase_name(int phase)
{
    static const char *const names[] = {"UNSPECIFIED", "PROVISIONING", "READY",   "ERROR",    "DELETING",
                                        "UNKNOWN",     "STOPPING",     "STOPPED", "STARTING", "COMPLETED"};
    return phase >= 0 && (size_t)phase < sizeof(names) / sizeof(names[0]) ? names[phase] : "of an unknown number";
}

bool phase_is_coming(int phase)
{
    return phase == PHASE_UNSPECIFIED || phase == PHASE_PROVISIONING || phase == PHASE_UNKNOWN ||
           phase == PHASE_STARTING;
}

void conditions_of(const Plimsoll__Openshell__Sandbox *sandbox, char *out, size_t size)
{
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; sandbox->status != NULL && i < sandbox->status->n_conditions && at + 1 < size; ++i) {
        const Plimsoll__Openshell__Condition *condition = sandbox->status->conditions[i];
        char type[64], reason[64], message[256];
        int n = snprintf(out + at, size - at, "%s%s=%s (%s)", i > 0 ? "; " : "",
                         bytes_text(condition->type, type, sizeof(type)),
                         bytes_text(condition->reason, reason, sizeof(reason)),
                         bytes_text(condition->message, message, sizeof(message)));
        at += n > 0 ? (size_t)n : 0;
    }
}
