/*
 * The only place an RPC error is made. A refusal is a value: a Connect code, the not-dispatched mark when nothing ran,
 * a text for people and what goes with it. An error without a mark says the run may have happened; only stages after
 * the dispatch may make one, through failure_set.
 */
#ifndef GATEWAY_REFUSAL_H
#define GATEWAY_REFUSAL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/buffer.h"
#include "records/codes.h"

enum { REFUSAL_MESSAGE_MAX = 384 };

typedef struct {
    code_t code;
    mark_t mark;         /* MARK_NONE only from failure_set or for answers before the handler, which the header marks */
    int status;          /* HTTP */
    bool before_handler; /* made before a procedure was entered: the header carries a mark too (spec 1.5) */
    bool detail;         /* the mark travels as a NotDispatched detail */
    int session_end;     /* SessionEnd of a SessionEnded detail; 0 = none */
    const char *session_text; /* its detail */
    uint32_t retry_after_ms;  /* 0 = none */
    const char *quota;        /* "runs", "slots", ...: the policy the RateLimit fields speak of; NULL = none */
    uint64_t quota_limit;
    uint32_t quota_window_s; /* 0 = it has none */
    const char *allow;       /* Allow header of a 405 */
    bool accept_post;        /* Accept-Post header of a 415 */
    bool challenge;          /* WWW-Authenticate header of a 401 */
    char message[REFUSAL_MESSAGE_MAX];
} refusal_t;

/* In the handler: nothing ran, and the detail says so. */
void refusal_set(refusal_t *r, code_t code, mark_t mark, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* Before the handler, with a detail (spec 4.2 steps 3 to 5). */
void refusal_set_early(refusal_t *r, code_t code, mark_t mark, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Before the handler, marked by the header alone (the rest of spec 1.5). status 0 = the code's own. */
void refusal_set_http(refusal_t *r, int status, code_t code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* After the dispatch: no mark, the run may have happened. */
void failure_set(refusal_t *r, code_t code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* An internal failure: the caller gets a fixed text with a random 16-digit ID, `detail` goes to the log under it, cut
 * at 4096 bytes. */
void failure_set_internal(refusal_t *r, const char *detail);

/* The value of the Plimsoll-Not-Dispatched header, or NULL when the answer has none. */
const char *refusal_header(const refusal_t *r);
/* The Connect JSON error body. */
void refusal_body(const refusal_t *r, buffer_t *out);
/* Whole seconds, rounded up, at least 1; 0 when there is nothing to wait for. */
uint32_t refusal_retry_seconds(const refusal_t *r);

#endif
