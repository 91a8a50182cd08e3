#include "gateway/answer.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *reason_of(int status)
{
    static const struct {
        int status;
        const char *reason;
    } known[] = {
        {200, "OK"},
        {202, "Accepted"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {409, "Conflict"},
        {415, "Unsupported Media Type"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {499, "Client Closed Request"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (known[i].status == status)
            return known[i].reason;
    return "Error";
}

static void add(h2o_req_t *req, const char *name, const char *value, size_t len)
{
    h2o_iovec_t copy = h2o_strdup(&req->pool, value, len);
    h2o_add_header_by_str(&req->pool, &req->res.headers, name, strlen(name), 0, NULL, copy.base, copy.len);
}

void answer_header(h2o_req_t *req, const char *name, const char *fmt, ...)
{
    char value[1024];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(value, sizeof(value), fmt, args);
    va_end(args);
    if (n > 0)
        add(req, name, value, (size_t)n < sizeof(value) ? (size_t)n : sizeof(value) - 1);
}

void answer_header_text(h2o_req_t *req, const char *name, const char *value)
{
    add(req, name, value, strlen(value));
}

static void add_common(h2o_req_t *req, const gate_t *gate)
{
    const intake_t *in = &gate->intake;
    if (in->has_request_id)
        add(req, "Plimsoll-Request-Id", in->request_id, REQUEST_ID_LEN);
    if (in->x_request_id[0] != '\0')
        add(req, "X-Request-ID", in->x_request_id, strlen(in->x_request_id));
    if (in->traceparent[0] != '\0')
        add(req, "traceparent", in->traceparent, TRACEPARENT_LEN);
}

static void send_bytes(h2o_req_t *req, int status, const char *content_type, h2o_iovec_t body)
{
    static h2o_generator_t generator; /* stateless: everything goes out in one piece */
    gate_t *gate = gate_of(req);
    gate_unwatch(gate);
    add_common(req, gate);
    h2o_add_header(&req->pool, &req->res.headers, H2O_TOKEN_CONTENT_TYPE, NULL, content_type, strlen(content_type));
    if (gate->keep && atomic_load_explicit(&gate->lane->front->draining, memory_order_relaxed)) {
        /* the drain began during the request */
        gate->keep = false;
        gate->close_reason = METRIC_CLOSE_DRAIN;
    }
    req->http1_is_persistent = gate->keep && !gate->hung_up;
    gate->keep = req->http1_is_persistent;
    req->res.status = status;
    req->res.reason = reason_of(status);
    req->res.content_length = body.len;
    gate_answering(gate);
    h2o_start_response(req, &generator);
    size_t count = body.len != 0 && !gate->intake.head_only ? 1 : 0;
    h2o_send(req, &body, count, H2O_SEND_STATE_FINAL);
}

static void free_body(void *data)
{
    free(*(void **)data);
}

void answer_send(h2o_req_t *req, int status, const char *content_type, buffer_t *body)
{
    void **owner = h2o_mem_alloc_shared(&req->pool, sizeof(*owner), free_body);
    h2o_iovec_t bytes = h2o_iovec_init((char *)body->base, body->len);
    *owner = body->base;
    buffer_init(body, body->limit);
    if (bytes.len >= ANSWER_CHARGED_FROM) {
        /* given back with the rest of what the request holds, when the peer has read it all */
        gate_t *gate = gate_of(req);
        front_buffer_charge(gate->lane->front, bytes.len);
        gate->intake.reserved += bytes.len;
    }
    send_bytes(req, status, content_type, bytes);
}

void answer_copy(h2o_req_t *req, int status, const char *content_type, const void *bytes, size_t len)
{
    send_bytes(req, status, content_type, h2o_strdup(&req->pool, bytes, len));
}

void answer_text(h2o_req_t *req, int status, const char *content_type, const char *text)
{
    answer_copy(req, status, content_type, text, strlen(text));
}

void answer_refusal(h2o_req_t *req, const refusal_t *r)
{
    enum { BODY_LIMIT = 8192 };
    const char *mark = refusal_header(r);
    uint32_t retry = refusal_retry_seconds(r);
    if (mark != NULL)
        answer_header_text(req, "Plimsoll-Not-Dispatched", mark);
    if (retry != 0)
        answer_header(req, "Retry-After", "%u", retry);
    if (r->quota != NULL) {
        if (r->quota_window_s != 0)
            answer_header(req, "RateLimit-Policy", "\"%s\";q=%" PRIu64 ";w=%u", r->quota, r->quota_limit,
                          r->quota_window_s);
        else
            answer_header(req, "RateLimit-Policy", "\"%s\";q=%" PRIu64, r->quota, r->quota_limit);
        answer_header(req, "RateLimit", "\"%s\";r=0;t=%u", r->quota, retry);
    }
    if (r->allow != NULL)
        answer_header_text(req, "Allow", r->allow);
    if (r->accept_post)
        answer_header_text(req, "Accept-Post", "application/json, application/proto");
    if (r->challenge)
        answer_header_text(req, "WWW-Authenticate", "Bearer");
    buffer_t body;
    buffer_init(&body, BODY_LIMIT);
    refusal_body(r, &body);
    answer_send(req, r->status, "application/json", &body);
}
