/* The sessions of one bundle: their chains (attest section 6.3), in order of first appearance, found by fingerprint. */
#ifndef RECORDS_ATTEST_SESSIONS_H
#define RECORDS_ATTEST_SESSIONS_H

#include "records/attest_verify.h"

typedef struct {
    attest_session_t *items;
    size_t count, _cap;
    uint32_t *_slots; /* index + 1 into items, 0 = free; a power of two of them, at most half full */
    size_t _slot_count;
} attest_sessions_t;

/* NULL, or a literal that says how the chain breaks. The record has passed its exchange check. */
const char *attest_sessions_call(attest_sessions_t *sessions, const Plimsoll__V1__RunRecord *record);
const char *attest_sessions_close(attest_sessions_t *sessions, const attest_close_t *close);
/* The first session that was never closed, or NULL. */
const attest_session_t *attest_sessions_open(const attest_sessions_t *sessions);
void attest_sessions_dispose(attest_sessions_t *sessions);

#endif
