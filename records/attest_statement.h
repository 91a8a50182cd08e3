/*
 * The in-toto statements of attestation (attest sections 4 to 5): a run record, a session's close, a bundle's link, and
 * the head of the log. Each has one subject with one SHA-256, and a predicate under a type of ours or, except for the
 * head, of the reference's; both are read.
 */
#ifndef RECORDS_ATTEST_STATEMENT_H
#define RECORDS_ATTEST_STATEMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/buffer.h"
#include "core/sha256.h"
#include "records/plimsoll.pb-c.h"

/* Whose predicate types a statement carries. A bundle that was begun with one goes on with it. */
typedef enum { ATTEST_OURS, ATTEST_REFERENCE } attest_prefix_t;
#define ATTEST_PREFIX_OURS "urn:plimsoll-gateway:"
#define ATTEST_PREFIX_REFERENCE "https://plimsollmark.github.io/plimsoll/"

typedef enum { ATTEST_RECORD, ATTEST_CLOSE, ATTEST_LINK, ATTEST_HEAD } attest_kind_t;

typedef struct {
    char session[SHA256_HEX + 1];
    uint64_t calls;
    char last_record_sha256[SHA256_HEX + 1]; /* "" when there was no call */
} attest_close_t;

typedef struct {
    uint64_t index;                       /* of the line, from 1 */
    char previous_sha256[SHA256_HEX + 1]; /* "" on the first line */
    char entry_sha256[SHA256_HEX + 1];    /* "" on a checkpoint */
    bool is_checkpoint;
    uint64_t lines; /* before it; 0 on any other line */
} attest_link_t;

enum { ATTEST_ORIGIN_MAX = 255 };
typedef struct {
    uint64_t size; /* leaves */
    char root_sha256[SHA256_HEX + 1];
    int64_t time_unix_ms;               /* 0 = not stated */
    char origin[ATTEST_ORIGIN_MAX + 1]; /* which log; "" = not stated */
} attest_head_t;

/* Append the statement. Texts must be valid UTF-8. false when the buffer's limit was hit. */
bool attest_statement_record(buffer_t *out, attest_prefix_t prefix, const Plimsoll__V1__RunRecord *record);
bool attest_statement_close(buffer_t *out, attest_prefix_t prefix, const attest_close_t *close);
bool attest_statement_link(buffer_t *out, attest_prefix_t prefix, const attest_link_t *link);
bool attest_statement_head(buffer_t *out, const attest_head_t *head);

/* What a payload states, read strictly: no unknown, missing or repeated member. */
typedef struct {
    attest_kind_t kind;
    attest_prefix_t prefix;
    Plimsoll__V1__RunRecord *record; /* ATTEST_RECORD: owned; its digest is that of its fields and the subject's */
    attest_close_t close;
    attest_link_t link;
    attest_head_t head;
} attest_statement_t;

/* NULL, or a literal that says why not. Dispose it whatever came of it. */
const char *attest_statement_read(const void *payload, size_t len, attest_statement_t *out);
void attest_statement_dispose(attest_statement_t *statement);

/* 64 lowercase hex digits. */
bool attest_is_digest(const char *text);

#endif
