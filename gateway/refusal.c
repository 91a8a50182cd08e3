#include "gateway/refusal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "core/protojson.h"
#include "core/random.h"
#include "records/plimsoll.pb-c.h"

static void set(refusal_t *r, code_t code, mark_t mark, const char *fmt, va_list args)
{
    *r = (refusal_t){.code = code, .mark = mark, .status = code_status(code)};
    vsnprintf(r->message, sizeof(r->message), fmt, args);
}

void refusal_set(refusal_t *r, code_t code, mark_t mark, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    set(r, code, mark, fmt, args);
    va_end(args);
    r->detail = true;
}

void refusal_set_early(refusal_t *r, code_t code, mark_t mark, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    set(r, code, mark, fmt, args);
    va_end(args);
    r->detail = true;
    r->before_handler = true;
    r->challenge = code == CODE_UNAUTHENTICATED;
}

void refusal_set_http(refusal_t *r, int status, code_t code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    set(r, code, MARK_NONE, fmt, args);
    va_end(args);
    if (status != 0)
        r->status = status;
    r->before_handler = true;
}

void failure_set(refusal_t *r, code_t code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    set(r, code, MARK_NONE, fmt, args);
    va_end(args);
}

void failure_set_internal(refusal_t *r, const char *detail)
{
    char id[17];
    random_hex(id, 8);
    log_event(LOG_ERROR, "internal error", log_str("error_id", id), log_str("error", detail));
    failure_set(r, CODE_INTERNAL, "internal error %s; the operator finds the cause in the log under this number", id);
}

const char *refusal_header(const refusal_t *r)
{
    if (!r->before_handler)
        return NULL;
    return r->status == 404 ? "unsupported" : "request";
}

/* A detail that is too long is left out: what the refusal says does not depend on it. */
static void add_detail(buffer_t *out, const char *type, const ProtobufCMessage *message, bool *any)
{
    uint8_t packed[512];
    size_t len = protobuf_c_message_get_packed_size(message);
    if (len > sizeof(packed))
        return;
    protobuf_c_message_pack(message, packed);
    buffer_append_str(out, *any ? ",{\"type\":\"" : ",\"details\":[{\"type\":\"");
    *any = true;
    buffer_append_str(out, type);
    buffer_append_str(out, "\",\"value\":\"");
    base64_encode(out, packed, len, false);
    buffer_append_str(out, "\"}");
}

void refusal_body(const refusal_t *r, buffer_t *out)
{
    buffer_printf(out, "{\"code\":\"%s\",\"message\":", code_name(r->code));
    protojson_print_string(out, r->message, strlen(r->message));
    bool any = false;
    if (r->detail && r->mark != MARK_NONE) {
        Plimsoll__V1__NotDispatched nd = PLIMSOLL__V1__NOT_DISPATCHED__INIT;
        nd.reason = (Plimsoll__V1__NotDispatchedReason)r->mark;
        add_detail(out, "plimsoll.v1.NotDispatched", &nd.base, &any);
    }
    if (r->session_end != 0) {
        Plimsoll__V1__SessionEnded se = PLIMSOLL__V1__SESSION_ENDED__INIT;
        se.reason = (Plimsoll__V1__SessionEnd)r->session_end;
        se.detail = (char *)(r->session_text != NULL ? r->session_text : "");
        add_detail(out, "plimsoll.v1.SessionEnded", &se.base, &any);
    }
    buffer_append_str(out, any ? "]}" : "}");
}

uint32_t refusal_retry_seconds(const refusal_t *r)
{
    return r->retry_after_ms == 0 ? 0 : 1 + (r->retry_after_ms - 1) / 1000;
}
