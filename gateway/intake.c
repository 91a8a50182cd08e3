#include "gateway/intake.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/random.h"
#include "gateway/auth.h"
#include "gateway/metrics.h"

static bool is_trace_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c != '\0' && strchr("._:/+=@-", c) != NULL);
}

static bool is_lower_hex(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'f')))
            return false;
    return true;
}

static void take_x_request_id(const head_field_t *f, char out[TRACE_TOKEN_MAX + 1])
{
    bool clean = f->count == 1 && f->len >= 1 && f->len <= TRACE_TOKEN_MAX;
    for (size_t i = 0; clean && i < f->len; i++)
        clean = is_trace_char(f->base[i]);
    if (!clean) {
        random_hex(out, 16);
        return;
    }
    memcpy(out, f->base, f->len);
    out[f->len] = '\0';
}

/* W3C trace context: version 00 only is continued; the trace ID and flags stay, the span is this request's. */
static void continue_trace(const head_field_t *f, char out[TRACEPARENT_LEN + 1])
{
    static const char zeros[] = "00000000000000000000000000000000";
    const char *t = f->base;
    out[0] = '\0';
    if (f->count != 1 || f->len != TRACEPARENT_LEN || memcmp(t, "00-", 3) != 0 || t[35] != '-' || t[52] != '-' ||
        !is_lower_hex(t + 3, 32) || !is_lower_hex(t + 36, 16) || !is_lower_hex(t + 53, 2) ||
        memcmp(t + 3, zeros, 32) == 0 || memcmp(t + 36, zeros, 16) == 0)
        return;
    memcpy(out, t, TRACEPARENT_LEN);
    out[TRACEPARENT_LEN] = '\0';
    char span[17];
    random_hex(span, 8);
    memcpy(out + 36, span, 16);
}

void intake_identify(lane_t *lane, const head_t *head, const struct sockaddr *peer, intake_t *in)
{
    *in = (intake_t){.caller_id = "anon"};
    in->began_us = clock_mono_us();
    in->began_unix_ms = clock_wall_ms();
    /* of every answer, refusals included: a body after a HEAD would be read as the next answer */
    in->head_only = head_text_is(&head->method, "HEAD");
    in->has_request_id = head_request_id_is_valid(&head->request_id);
    if (in->has_request_id)
        memcpy(in->request_id, head->request_id.base, REQUEST_ID_LEN);
    take_x_request_id(&head->x_request_id, in->x_request_id);
    continue_trace(&head->traceparent, in->traceparent);
    proxies_client(lane->front->proxies, peer, head->forwarded_for, head->forwarded_lines, in->address);
}

/* "application/json", optionally with charset=utf-8, or "application/proto". */
static bool take_media_type(const head_field_t *f, codec_t *codec)
{
    if (f->count != 1)
        return false;
    const char *semicolon = memchr(f->base, ';', f->len);
    head_field_t type = {f->base, semicolon != NULL ? (size_t)(semicolon - f->base) : f->len, 1};
    while (type.len > 0 && (type.base[type.len - 1] == ' ' || type.base[type.len - 1] == '\t'))
        type.len--;
    if (head_text_is_nocase(&type, "application/proto")) {
        *codec = CODEC_PROTO;
        return semicolon == NULL;
    }
    if (!head_text_is_nocase(&type, "application/json"))
        return false;
    *codec = CODEC_JSON;
    if (semicolon == NULL)
        return true;
    head_field_t parameter = {semicolon + 1, f->len - (size_t)(semicolon + 1 - f->base), 1};
    while (parameter.len > 0 && *parameter.base == ' ') {
        parameter.base++;
        parameter.len--;
    }
    return head_text_is_nocase(&parameter, "charset=utf-8") || head_text_is_nocase(&parameter, "charset=\"utf-8\"");
}

static bool take_timeout(const head_field_t *f, uint32_t *ms, bool *is_late)
{
    uint64_t value = 0;
    if (f->count == 0)
        return true;
    if (f->count != 1 || f->len < 1 || f->len > TIMEOUT_HEADER_DIGITS)
        return false;
    for (size_t i = 0; i < f->len; i++) {
        if (f->base[i] < '0' || f->base[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(f->base[i] - '0');
    }
    *is_late = value == 0;
    *ms = value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
    return true;
}

/* Spec 4.2 step 6: what Connect wants of a unary request's head. */
static bool judge_procedure_head(const head_t *head, intake_t *in, refusal_t *refusal)
{
    if (!head_text_is(&head->method, "POST")) {
        refusal_set_http(refusal, 405, CODE_UNIMPLEMENTED, "a procedure is called with POST");
        refusal->allow = "POST";
        return false;
    }
    if (!take_media_type(&head->content_type, &in->codec)) {
        refusal_set_http(refusal, 415, CODE_INVALID_ARGUMENT,
                         "Content-Type must be application/json or application/proto");
        refusal->accept_post = true;
        return false;
    }
    if (head->connect_version.count != 0 &&
        (head->connect_version.count != 1 || !head_text_is(&head->connect_version, "1"))) {
        refusal_set_http(refusal, 0, CODE_INVALID_ARGUMENT, "Connect-Protocol-Version must be 1");
        return false;
    }
    if (!take_timeout(&head->connect_timeout, &in->timeout_ms, &in->is_late)) {
        refusal_set_http(refusal, 0, CODE_INVALID_ARGUMENT, "Connect-Timeout-Ms must be 1 to 10 decimal digits");
        return false;
    }
    if (head->content_encoding.count == 1 && head_text_is_nocase(&head->content_encoding, "gzip")) {
        in->gzip = true;
    } else if (head->content_encoding.count != 0 && !head_text_is_nocase(&head->content_encoding, "identity")) {
        refusal_set_http(refusal, 0, CODE_UNIMPLEMENTED, "Content-Encoding must be identity or gzip");
        return false;
    }
    return true;
}

/* What makes a retry of this run the same run: the key the caller chose for it, else the ID of the HTTP request. */
static bool take_claim(const head_field_t *f, intake_t *in, refusal_t *refusal)
{
    const char *why = "it stands there more than once";
    if (f->count == 0) {
        if (in->has_request_id)
            memcpy(in->claim_id, in->request_id, sizeof(in->claim_id));
        return true;
    }
    if (f->count != 1 || !idempotency_key_parse(f->base, f->len, &in->key, &why)) {
        in->key.len = 0;
        refusal_set_early(refusal, CODE_INVALID_ARGUMENT, MARK_REQUEST,
                          "Idempotency-Key must be one string of 1 to %d characters in quotation marks: %s",
                          IDEMPOTENCY_KEY_MAX, why);
        return false;
    }
    store_claim_id_of_key(in->key.text, in->key.len, in->claim_id);
    return true;
}

/* KEY of GET /v1/runs/by-key/KEY. */
static bool take_path_key(intake_t *in, refusal_t *refusal)
{
    const char *why;
    idempotency_key_t key;
    path_key_t kind = idempotency_key_of_path(in->route.key, in->route.key_len, &key, &why);
    in->route.key = NULL; /* the head's bytes do not last */
    if (kind == PATH_KEY_WRONG) {
        refusal_set_http(refusal, 0, CODE_INVALID_ARGUMENT,
                         "the path must end with a Plimsoll-Request-Id or a percent-encoded Idempotency-Key: %s", why);
        return false;
    }
    if (kind == PATH_KEY_REQUEST_ID)
        memcpy(in->claim_id, key.text, sizeof(in->claim_id));
    else
        store_claim_id_of_key(key.text, key.len, in->claim_id);
    return true;
}

bool intake_reserve(lane_t *lane, intake_t *in, uint64_t bytes)
{
    if (!front_buffer_take(lane->front, bytes))
        return false;
    in->reserved += bytes;
    return true;
}

void intake_release_slot(lane_t *lane, intake_t *in)
{
    if (in->slot != NULL)
        decode_slots_give(lane->front->decode_slots, in->slot);
    in->slot = NULL;
}

void intake_release(lane_t *lane, intake_t *in)
{
    intake_release_slot(lane, in);
    if (in->reserved != 0)
        front_buffer_give(lane->front, in->reserved);
    in->reserved = 0;
    if (in->callers != NULL)
        callers_unref(in->callers);
    in->callers = NULL;
    in->caller = NULL;
    in->caller_id = "anon";
}

static bool known_backend(const front_t *front, const char *name)
{
    for (size_t i = 0; i < front->backend_count; i++)
        if (strcmp(front->backend_names[i], name) == 0)
            return true;
    return false;
}

/* Spec 4.2 steps 4 and 5: room for the body. */
static bool make_room(lane_t *lane, const head_t *head, intake_t *in, refusal_t *refusal)
{
    if (head->has_length && head->length > BODY_MAX) {
        refusal_set_early(refusal, CODE_RESOURCE_EXHAUSTED, MARK_REQUEST,
                          "the body is %" PRIu64 " bytes; at most %d are accepted", head->length, BODY_MAX);
        return false;
    }
    int total_full;
    in->slot = decode_slots_take(lane->front->decode_slots, in->caller_id, &total_full);
    if (in->slot == NULL) {
        metric_inc(METRIC_SHED_DECODE);
        refusal_set_early(refusal, CODE_RESOURCE_EXHAUSTED, MARK_CAPACITY,
                          total_full ? "too many requests are being read at once; try again in a moment"
                                     : "this caller has too many requests being read at once; try again in a moment");
        refusal->retry_after_ms = 1000;
        return false;
    }
    if (!intake_reserve(lane, in, head->has_length ? head->length : head->chunked ? CHUNKED_RESERVE_STEP : 0)) {
        metric_inc(METRIC_SHED_BUFFER);
        refusal_set_early(
            refusal, CODE_RESOURCE_EXHAUSTED, MARK_CAPACITY,
            "the gateway holds as many request bytes as PLIMSOLL_BUFFER_MB allows; try again in a moment");
        refusal->retry_after_ms = 1000;
        return false;
    }
    return true;
}

bool intake_decide(lane_t *lane, const head_t *head, const struct sockaddr *peer, bool metrics_listener, intake_t *in,
                   refusal_t *refusal)
{
    front_t *front = lane->front;
    intake_identify(lane, head, peer, in);
    route_parse(head->path.base, head->path.len, front->prefix, front->prefix_len, &in->route);
    route_kind_t kind = in->route.kind;
    if (metrics_listener != (kind == ROUTE_METRICS))
        kind = in->route.kind = ROUTE_NONE;
    if (kind == ROUTE_NONE || (in->route.pinned && !known_backend(front, in->route.backend))) {
        /* with authentication on, a stranger learns nothing about which backends exist */
        if (kind != ROUTE_NONE && !auth_check(lane, &head->authorization, in, refusal))
            return false;
        refusal_set_http(refusal, 404, CODE_UNIMPLEMENTED, "there is nothing at this path");
        return false;
    }
    if (route_needs_caller(kind)) {
        bool known = auth_check(lane, &head->authorization, in, refusal);
        in->auth_us = (uint32_t)(clock_mono_us() - in->began_us);
        if (!known)
            return false;
    }
    if (kind == ROUTE_UNKNOWN_PROCEDURE) {
        if (front->auth_mode != AUTH_OPEN)
            refusal_set_early(refusal, CODE_PERMISSION_DENIED, MARK_PERMISSION, "no scope allows this procedure");
        else
            refusal_set_http(refusal, 404, CODE_UNIMPLEMENTED, "there is no such procedure");
        return false;
    }
    if (route_is_procedure(kind))
        return make_room(lane, head, in, refusal) && judge_procedure_head(head, in, refusal) &&
               (kind != ROUTE_RUN || take_claim(&head->idempotency_key, in, refusal));
    if (!head_text_is(&head->method, "GET") && !head_text_is(&head->method, "HEAD")) {
        refusal_set_http(refusal, 405, CODE_UNIMPLEMENTED, "this path is read with GET");
        refusal->allow = "GET";
        return false;
    }
    if (head->query.base != NULL) {
        if (head->query.len > QUERY_MAX) {
            refusal_set_http(refusal, 0, CODE_INVALID_ARGUMENT, "the query is longer than %d bytes", QUERY_MAX);
            return false;
        }
        memcpy(in->query, head->query.base, head->query.len);
    }
    return kind != ROUTE_RUN_BY_KEY || take_path_key(in, refusal);
}
