/* One command in a sandbox: ExecSandboxInteractive (spec backend-openshell 2.6). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/openshell/openshell_internal.h"
#include "backends/openshell/wire.h"
#include "core/clock.h"
#include "core/mem.h"

static const char METHOD[] = "ExecSandboxInteractive", PATH[] = "/openshell.v1.OpenShell/ExecSandboxInteractive";

enum {
    EVENT_STDOUT = 1,
    EVENT_STDERR = 2,
    EVENT_EXIT = 3,
    DATA_BYTES = 1,
    EXIT_CODE = 1,
    STDIN_HEAD_MAX = 8, /* of a message with stdin: tag and length */
};

struct exec {
    grpc_call_t *call;
    bool is_broken; /* an event that makes no sense */
};

exec_t *exec_open(openshell_t *openshell, const char *name, const command_t *command, uint64_t until_us)
{
    uint64_t now_us = clock_mono_us(), left_us = until_us > now_us ? until_us - now_us : 0;
    exec_t *exec = mem_alloc(sizeof(*exec));
    buffer_t start;
    buffer_init(&start, OPENSHELL_REQUEST_MAX);
    message_exec(&openshell->shape, name, command, (uint32_t)(left_us / 1000000) + 1 + OPENSHELL_BACKSTOP_S, &start);
    exec->call = grpc_call_open(openshell->channel, PATH, false);
    if (!grpc_call_send(exec->call, start.base, start.len))
        mem_fatal("an exec's first message was not taken");
    buffer_dispose(&start);
    return exec;
}

bool exec_write(exec_t *exec, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;
    bool is_taken = true;
    buffer_t message;
    buffer_init(&message, OPENSHELL_STDIN_MAX + STDIN_HEAD_MAX);
    while (len > 0 && is_taken) {
        size_t n = len < OPENSHELL_STDIN_MAX ? len : OPENSHELL_STDIN_MAX;
        buffer_clear(&message);
        message_stdin(at, n, &message);
        is_taken = grpc_call_send(exec->call, message.base, message.len);
        at += n;
        len -= n;
    }
    buffer_dispose(&message);
    return is_taken;
}

void exec_finish(exec_t *exec)
{
    grpc_call_finish(exec->call);
}

/* --- events --- */

/* The last member of the oneof wins, as in protobuf; presence is what counts: exit code 0 is an empty message. */
static bool read_event(const uint8_t *message, size_t len, wire_field_t *event)
{
    wire_t wire = {message, len};
    wire_field_t field;
    *event = (wire_field_t){0};
    while (wire_next(&wire, &field)) {
        if (field.number < EVENT_STDOUT || field.number > EVENT_EXIT)
            continue;
        if (field.type != WIRE_BYTES)
            return false;
        *event = field;
    }
    return wire.left == 0;
}

static bool read_data(const wire_field_t *event, const uint8_t **bytes, size_t *len)
{
    wire_t wire = {event->bytes, event->len};
    wire_field_t field;
    *len = 0;
    while (wire_next(&wire, &field)) {
        if (field.number != DATA_BYTES)
            continue;
        if (field.type != WIRE_BYTES)
            return false;
        *bytes = field.bytes;
        *len = field.len;
    }
    return wire.left == 0;
}

static bool read_exit(const wire_field_t *event, int32_t *code)
{
    wire_t wire = {event->bytes, event->len};
    wire_field_t field;
    *code = 0;
    while (wire_next(&wire, &field)) {
        if (field.number != EXIT_CODE)
            continue;
        if (field.type != WIRE_VARINT)
            return false;
        *code = (int32_t)(uint32_t)field.value;
    }
    return wire.left == 0;
}

static exec_event_t broken(exec_t *exec)
{
    exec->is_broken = true;
    return EXEC_ENDED;
}

exec_event_t exec_next(exec_t *exec, uint64_t until_us, const uint8_t **bytes, size_t *len, int32_t *code)
{
    const uint8_t *message;
    size_t message_len;
    wire_field_t event;
    if (exec->is_broken)
        return EXEC_ENDED;
    for (;;) {
        switch (grpc_call_next(exec->call, until_us, &message, &message_len)) {
        case GRPC_ENDED:
            return EXEC_ENDED;
        case GRPC_LATE:
            return EXEC_LATE;
        case GRPC_CANCELED:
            return EXEC_CANCELED;
        case GRPC_MESSAGE:
            break;
        }
        if (!read_event(message, message_len, &event))
            return broken(exec);
        if (event.number == EVENT_EXIT)
            return read_exit(&event, code) ? EXEC_EXIT : broken(exec);
        if (event.number != EVENT_STDOUT && event.number != EVENT_STDERR)
            continue; /* a kind of event that is new to us */
        if (!read_data(&event, bytes, len))
            return broken(exec);
        if (*len > 0)
            return event.number == EVENT_STDOUT ? EXEC_OUT : EXEC_ERR;
    }
}

bool exec_may_have_run(const exec_t *exec)
{
    return grpc_call_may_have_run(exec->call);
}

bool exec_trouble(const exec_t *exec, cloud_trouble_t *trouble)
{
    if (exec->is_broken)
        return cloud_trouble(trouble, CLOUD_PROTOCOL, "the OpenShell gateway's answer makes no sense", METHOD);
    const grpc_end_t *end = grpc_call_end(exec->call);
    openshell_trouble(METHOD, CALL_ONCE, end, trouble);
    if (!trouble->is_sent)
        return false;
    /* once it may have begun, an end without an exit event is no verdict, whatever the gateway calls it */
    if (trouble->fault == CLOUD_MISSING)
        return cloud_trouble(trouble, CLOUD_LOST, "the OpenShell gateway lost the sandbox", trouble->detail);
    char detail[CLOUD_TEXT_LOG_MAX + 1], text[CLOUD_TEXT_CALLER_MAX + 1];
    snprintf(detail, sizeof(detail), "%s", trouble->detail);
    /* the gateway's own words stay in the log; ours name what was seen instead of an answer */
    snprintf(text, sizeof(text), "the command's stream ended without its exit: %s",
             end->origin == GRPC_BY_STREAM ? end->message : grpc_code_name(end->code));
    return cloud_trouble(trouble, CLOUD_LOST, text, detail);
}

void exec_close(exec_t *exec)
{
    if (exec == NULL)
        return;
    grpc_call_close(exec->call);
    free(exec);
}
