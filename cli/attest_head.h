/* Heads of the log as JSON: bare, or as the signed statement of one. docs/attest.md has the format. */
#ifndef CLI_ATTEST_HEAD_H
#define CLI_ATTEST_HEAD_H

#include "cli/attest.h"
#include "records/attest_statement.h"

enum { ATTEST_HEAD_FILE_MAX = 16 * 1024 * 1024 }; /* bytes of a document of heads and proofs */

typedef struct {
    attest_head_t head;
    bool is_signed;
} attest_given_head_t;

/* A bare head, or an envelope that verifies under `key` (NULL: an envelope is refused). NULL, or a literal that says
 * why not. */
const char *attest_head_read(const json_t *json, const attest_public_t *key, attest_given_head_t *out);
/* A document of one JSON object; a new reference, or NULL: told. */
json_t *attest_head_load(const attest_options_t *options, const char *path);
/* A bare head as JSON; a new reference. */
json_t *attest_head_json(const attest_head_t *head);

#endif
