/*
 * One line of a bundle (attest section 5): what a call, a session's close or a checkpoint stores, in the one spelling
 * that a line may have.
 */
#ifndef RECORDS_ATTEST_LINE_H
#define RECORDS_ATTEST_LINE_H

#include "core/sha256.h"
#include "records/attest_dsse.h"
#include "records/attest_statement.h"

enum { ATTEST_LINE_MAX = 64 * 1024 * 1024 }; /* bytes of a line, its newline included */

typedef enum {
    ATTEST_LINE_ANSWERED,   /* request, response, envelope */
    ATTEST_LINE_UNANSWERED, /* request, envelope */
    ATTEST_LINE_CLOSE,      /* envelope */
    ATTEST_LINE_CHECKPOINT, /* nothing but its link */
} attest_line_shape_t;

typedef struct {
    attest_line_shape_t shape;
    uint8_t *request, *response; /* binary protobuf; NULL = not there */
    size_t request_len, response_len;
    attest_envelope_t envelope, link;  /* without signatures = not there */
    char line_sha256[SHA256_HEX + 1];  /* of the line without its newline */
    char entry_sha256[SHA256_HEX + 1]; /* of the line without its link member */
} attest_line_t;

/* A line without its newline; `has_link` false for an entry that no bundle holds yet. NULL, or a literal that says why
 * not. Dispose it whatever came of it. */
const char *attest_line_read(const char *line, size_t len, bool has_link, attest_line_t *out);
void attest_line_dispose(attest_line_t *line);

/* Append an entry without link and newline; messages NULL = not there. Signs nothing: `envelope` is canonical JSON. */
bool attest_entry_write(buffer_t *out, const ProtobufCMessage *request, const ProtobufCMessage *response,
                        const buffer_t *envelope);
/* Appends the line of an entry (NULL: a checkpoint) that follows `lines` others, its newline included. */
bool attest_line_write(buffer_t *out, const attest_key_t *key, attest_prefix_t prefix, const buffer_t *entry,
                       uint64_t lines, const char previous_sha256[SHA256_HEX + 1]);

#endif
