/* Calls of the gateway's: which may be repeated, and what their ends mean for a sandbox. */
#include <stdio.h>
#include <string.h>

#include "backends/openshell/openshell_internal.h"
#include "core/clock.h"
#include "core/co.h"
#include "core/mem.h"
#include "core/random.h"

static const char SERVICE[] = "openshell.v1.OpenShell";

/* --- what an end means --- */

/* The gateway's own words for a call it refused before it did anything (spec 1.5). */
static bool is_denial(grpc_code_t code)
{
    return code == GRPC_INVALID_ARGUMENT || code == GRPC_PERMISSION_DENIED || code == GRPC_UNAUTHENTICATED ||
           code == GRPC_UNIMPLEMENTED || code == GRPC_FAILED_PRECONDITION;
}

static cloud_fault_t fault_by_server(call_kind_t kind, grpc_code_t code)
{
    if (is_denial(code))
        return CLOUD_DENIED;
    if (code == GRPC_NOT_FOUND)
        return CLOUD_MISSING;
    if (code == GRPC_RESOURCE_EXHAUSTED)
        return CLOUD_BUSY;
    return kind == CALL_READ ? CLOUD_NOTHING : CLOUD_UNKNOWN;
}

static bool is_nonsense(grpc_code_t code)
{
    return code == GRPC_INTERNAL || code == GRPC_UNKNOWN;
}

static cloud_fault_t fault_of(call_kind_t kind, const grpc_end_t *end)
{
    if (end->origin == GRPC_BY_CANCEL)
        return end->may_have_run && kind == CALL_ONCE ? CLOUD_UNKNOWN : CLOUD_CANCELED;
    if (end->origin == GRPC_BY_SERVER)
        return fault_by_server(kind, end->code);
    if (!end->may_have_run)
        return CLOUD_NOTHING;
    if (kind == CALL_ONCE)
        return CLOUD_UNKNOWN;
    if (end->origin == GRPC_BY_DEADLINE)
        return CLOUD_LATE;
    return is_nonsense(end->code) ? CLOUD_PROTOCOL : kind == CALL_READ ? CLOUD_NOTHING : CLOUD_UNKNOWN;
}

static const char *message_of(cloud_fault_t fault, const grpc_end_t *end)
{
    switch (fault) {
    case CLOUD_BUSY:
        return "the OpenShell gateway is at its own limit";
    case CLOUD_DENIED:
        return "the OpenShell gateway refused the call";
    case CLOUD_MISSING:
        return "the OpenShell gateway does not know the sandbox";
    case CLOUD_LATE:
        return "the OpenShell gateway did not answer in time";
    case CLOUD_CANCELED:
        return "the call was stopped";
    case CLOUD_PROTOCOL:
        return "the OpenShell gateway's answer makes no sense";
    case CLOUD_NOTHING:
        return end->origin == GRPC_BY_CONNECT ? "the OpenShell gateway cannot be reached"
                                              : "the OpenShell gateway could not serve the call";
    default:
        return end->origin == GRPC_BY_SERVER ? "the OpenShell gateway failed"
                                             : "the OpenShell gateway's answer was lost";
    }
}

bool openshell_trouble(const char *method, call_kind_t kind, const grpc_end_t *end, cloud_trouble_t *trouble)
{
    static const char *const origins[] = {"", " (no whole answer)", " (our deadline)", " (canceled)",
                                          " (not connected)"};
    char text[GRPC_TEXT_MAX + 128], scrubbed[CLOUD_TEXT_LOG_MAX + 1];
    cloud_fault_t fault = fault_of(kind, end);
    int len = snprintf(text, sizeof(text), "%s: %s%s: %s, request %s", method, grpc_code_name(end->code),
                       origins[end->origin], end->message, end->request_id);
    cloud_text_scrub(NULL, text, (size_t)len, CLOUD_TEXT_LOG_MAX, scrubbed);
    cloud_trouble(trouble, fault, message_of(fault, end), scrubbed);
    trouble->status = (int)end->code;
    trouble->is_sent = end->may_have_run;
    return false;
}

/* --- a call --- */

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static bool is_repeatable(const call_t *call, const grpc_end_t *end, int tries)
{
    if (call->kind != CALL_READ || tries >= OPENSHELL_READS_MAX)
        return false;
    return end->code == GRPC_UNAVAILABLE || end->code == GRPC_RESOURCE_EXHAUSTED || end->origin == GRPC_BY_STREAM;
}

static bool pause_before_again(uint64_t until_us)
{
    return cloud_sleep_ms(OPENSHELL_PAUSE_MIN_MS + random_below(OPENSHELL_PAUSE_MAX_MS - OPENSHELL_PAUSE_MIN_MS + 1),
                          until_us);
}

bool openshell_call(openshell_t *openshell, const call_t *call, const buffer_t *request, uint64_t until_us,
                    buffer_t *answer, cloud_trouble_t *trouble)
{
    char path[GRPC_PATH_MAX + 1];
    grpc_end_t end;
    snprintf(path, sizeof(path), "/%s/%s", call->service != NULL ? call->service : SERVICE, call->method);
    for (int tries = 1;; ++tries) {
        uint64_t try_us = earlier(until_us, clock_mono_us() + call->limit_ms * UINT64_C(1000));
        buffer_clear(answer);
        if (grpc_unary(openshell->channel, path, request->base, request->len, try_us, answer, &end)) {
            trouble->fault = CLOUD_FINE;
            return true;
        }
        if (!is_repeatable(call, &end, tries) || !pause_before_again(until_us) || clock_mono_us() >= until_us)
            return openshell_trouble(call->method, call->kind, &end, trouble);
    }
}
