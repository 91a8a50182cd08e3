/*
 * Verification of a bundle, a line at a time (attest sections 4.3, 5 and 6): the form of each line, its link, what it
 * signs, the stored exchange, and the chains of sessions. The same machine reads a file that is to be continued and
 * then the lines that are to follow, so nothing is written that would not verify.
 */
#ifndef RECORDS_ATTEST_VERIFY_H
#define RECORDS_ATTEST_VERIFY_H

#include "records/attest_key.h"
#include "records/attest_line.h"

typedef struct attest_verifier attest_verifier_t;

/* What a line says that has been found to hold. Pointers are good during the call. */
typedef struct {
    uint64_t line; /* from 1 */
    attest_line_shape_t shape;
    const char *line_sha256;
    const Plimsoll__V1__RunRequest *request;   /* of a call */
    const Plimsoll__V1__RunResponse *response; /* of an answered call */
    const Plimsoll__V1__RunRecord *record;     /* of a call */
    const attest_close_t *close;               /* of a close */
} attest_entry_t;

typedef struct {
    char session[SHA256_HEX + 1];
    uint64_t calls;
    char last_record_sha256[SHA256_HEX + 1];
    bool is_closed;
} attest_session_t;

typedef struct {
    uint64_t lines;
    uint64_t entries; /* lines that are no checkpoint */
    uint64_t calls;   /* lines with a request */
    uint64_t single_runs;
    size_t session_count;
    const attest_session_t *sessions; /* in order of first appearance */
    attest_prefix_t prefix;           /* of the last line's link; ours when there is none */
    const char *last_sha256;          /* of the last line; "" when there is none */
} attest_summary_t;

typedef void attest_on_entry_t(void *data, const attest_entry_t *entry);

/* `on_entry` may be NULL. The key is copied. */
attest_verifier_t *attest_verifier_create(const attest_public_t *key, attest_on_entry_t *on_entry, void *data);
void attest_verifier_destroy(attest_verifier_t *verifier);
/* The next line, without its newline. NULL, or why the bundle does not verify, the line's number in it; kept until the
 * verifier is destroyed, and the answer to every later call too. */
const char *attest_verifier_line(attest_verifier_t *verifier, const char *line, size_t len);
/* The same for a fault of the file itself: a literal, at the line after the last. */
const char *attest_verifier_fail(attest_verifier_t *verifier, const char *why);
/* The end of the file: NULL when all of it verifies. */
const char *attest_verifier_end(attest_verifier_t *verifier);
/* Valid until the next line. */
attest_summary_t attest_verifier_summary(const attest_verifier_t *verifier);

/* One envelope that states a run record, on its own (section 4.3); version 1 is let through here. NULL, or a literal.
 * The statement is to be disposed of either way. */
const char *attest_verify_envelope(const attest_envelope_t *envelope, const attest_public_t *key,
                                   attest_statement_t *out);

#endif
