/*
 * What is decided on a request's head, before a byte of its body is wanted: route, caller, declared length, decode slot
 * and budget, method and media type, in the order of spec 4.2. The result is kept with the connection until the answer
 * is out.
 */
#ifndef GATEWAY_INTAKE_H
#define GATEWAY_INTAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "config/callers.h"
#include "gateway/decode_slots.h"
#include "gateway/front.h"
#include "gateway/head.h"
#include "gateway/idempotency_key.h"
#include "gateway/limits.h"
#include "gateway/refusal.h"
#include "gateway/route.h"

typedef enum { CODEC_JSON, CODEC_PROTO } codec_t;

enum { QUERY_MAX = 512, TRACEPARENT_LEN = 55 };

typedef struct intake {
    route_t route;
    codec_t codec;
    bool gzip;
    bool head_only;      /* HEAD: everything but the body */
    bool has_request_id; /* echo it */
    char request_id[REQUEST_ID_LEN + 1];
    char claim_id[REQUEST_ID_LEN + 1]; /* what a run is claimed under, or looked for by key; "" = it has no key */
    idempotency_key_t key;             /* Idempotency-Key, which has the claim before the request ID; len 0 = none */
    char x_request_id[TRACE_TOKEN_MAX + 1]; /* taken over or minted */
    char traceparent[TRACEPARENT_LEN + 1];  /* ours: the caller's trace, a span of this request; "" without one */
    char address[PROXY_ADDRESS_MAX];        /* the client's */
    char query[QUERY_MAX + 1];
    uint32_t timeout_ms; /* Connect-Timeout-Ms; 0 = none */
    bool is_late;        /* it was 0: the caller's deadline has passed already */
    callers_t *callers;  /* reference that keeps caller alive */
    const caller_t *caller;
    const char *caller_id; /* "static", "anon" or caller->id */
    decode_holder_t *slot;
    uint64_t reserved; /* bytes of the budget */
    uint64_t began_us; /* monotonic: the head was complete */
    int64_t began_unix_ms;
    uint32_t auth_us;
} intake_t;

/* Fills `in` from a head that passed the strict check. false: *refusal says why; the body must not be read. `in` holds
 * resources in both cases: intake_release. */
bool intake_decide(lane_t *lane, const head_t *head, const struct sockaddr *peer, bool metrics_listener, intake_t *in,
                   refusal_t *refusal);
/* The part that works on a head of any quality, so that even a refused one gets its echo. */
void intake_identify(lane_t *lane, const head_t *head, const struct sockaddr *peer, intake_t *in);
/* The body is read and decoded. */
void intake_release_slot(lane_t *lane, intake_t *in);
/* More of an undeclared or compressed body. false: the budget is spent. */
bool intake_reserve(lane_t *lane, intake_t *in, uint64_t bytes);
void intake_release(lane_t *lane, intake_t *in);

#endif
