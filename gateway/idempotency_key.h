/*
 * The Idempotency-Key header field (draft-ietf-httpapi-idempotency-key-header, section 2.1): an RFC 8941 String, and
 * nothing after it. The same key in the path of GET /v1/runs/by-key/KEY. Pure; fuzzed.
 */
#ifndef GATEWAY_IDEMPOTENCY_KEY_H
#define GATEWAY_IDEMPOTENCY_KEY_H

#include <stdbool.h>
#include <stddef.h>

#include "gateway/limits.h"

typedef struct {
    char text[IDEMPOTENCY_KEY_MAX + 1]; /* decoded, printable ASCII, NUL-terminated */
    size_t len;                         /* 1 to IDEMPOTENCY_KEY_MAX */
} idempotency_key_t;

/* The field's value without white space around it: "..." with \" and \\ as the only escapes. false: *why says what is
 * wrong with it (static text). */
bool idempotency_key_parse(const char *value, size_t len, idempotency_key_t *out, const char **why);

typedef enum { PATH_KEY_WRONG, PATH_KEY_REQUEST_ID, PATH_KEY_IDEMPOTENCY } path_key_t;

/* One percent-encoded path segment: 32 lowercase hex digits are a Plimsoll-Request-Id; what begins with a quotation
 * mark is an Idempotency-Key as its field has it; anything else is an Idempotency-Key without quotation marks and
 * escapes. So a key of 32 hex digits is found with its quotation marks. PATH_KEY_WRONG: *why says what is wrong. */
path_key_t idempotency_key_of_path(const char *segment, size_t len, idempotency_key_t *out, const char **why);

#endif
