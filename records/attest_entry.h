/*
 * What is signed, and the entry of a bundle around it (attest sections 4.2 and 5). Nothing is signed that does not pass
 * its exchange check.
 */
#ifndef RECORDS_ATTEST_ENTRY_H
#define RECORDS_ATTEST_ENTRY_H

#include "records/attest_line.h"

/* Append the envelope, in canonical JSON. NULL, or why it is not signed. */
const char *attest_sign_answered(buffer_t *out, const attest_key_t *key, attest_prefix_t prefix,
                                 const Plimsoll__V1__RunRequest *request, const Plimsoll__V1__RunResponse *response);
const char *attest_sign_unanswered(buffer_t *out, const attest_key_t *key, attest_prefix_t prefix,
                                   const Plimsoll__V1__RunRequest *request, const Plimsoll__V1__RunRecord *record);
const char *attest_sign_close(buffer_t *out, const attest_key_t *key, attest_prefix_t prefix,
                              const attest_close_t *close);

/* A call or a close that is to be kept: exactly one of response, record and close is there. */
typedef struct {
    const Plimsoll__V1__RunRequest *request;   /* of a call; a session's without its session id */
    const Plimsoll__V1__RunResponse *response; /* of an answered call */
    const Plimsoll__V1__RunRecord *record;     /* of an unanswered call */
    const attest_close_t *close;
} attest_content_t;

/* Appends the signed entry, without link and newline; `out` holds nothing before. */
const char *attest_entry_sign(buffer_t *out, const attest_key_t *key, attest_prefix_t prefix,
                              const attest_content_t *content);

#endif
