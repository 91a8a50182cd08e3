/*
 * The strict check of a request's raw head (RFC 9112), made before libh2o's lenient parser sees anything. What two
 * parsers could read differently is refused: bare LF, obs-fold, control bytes, white space around names, repeated or
 * list-valued Content-Length, Transfer-Encoding beside Content-Length or other than exactly "chunked", a missing
 * (HTTP/1.1) or repeated Host. Pure; fuzzed.
 */
#ifndef GATEWAY_HEAD_H
#define GATEWAY_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/limits.h"

typedef struct {
    const char *base; /* points into the head; NULL = absent */
    size_t len;
    unsigned count; /* times the field came; base is the first */
} head_field_t;

typedef struct {
    head_field_t method, path; /* path: without query; "*", or "/" when an absolute target has none */
    int minor;                 /* HTTP/1.minor */
    bool has_length, chunked, expects_continue, persistent;
    uint64_t length; /* Content-Length */
    head_field_t authorization, request_id, content_type, content_encoding, connect_version, connect_timeout,
        x_request_id, traceparent, idempotency_key, query;
    head_field_t forwarded_for[FORWARDED_LINES_MAX]; /* X-Forwarded-For, line by line as they came; the last ones */
    size_t forwarded_lines;
    size_t bytes; /* of the head, its empty line included */
} head_t;

typedef enum { HEAD_INCOMPLETE, HEAD_OK, HEAD_BAD, HEAD_TOO_LARGE } head_result_t;

/* `scanned` remembers across calls how far the end was looked for; start at 0. On HEAD_BAD *why says what is wrong
 * (static text), and request_id is filled when it could be read. */
head_result_t head_parse(const char *bytes, size_t len, size_t *scanned, head_t *out, const char **why);

/* Exactly one value of 32 lowercase hex digits. */
bool head_request_id_is_valid(const head_field_t *field);
bool head_text_is(const head_field_t *field, const char *text);        /* exact */
bool head_text_is_nocase(const head_field_t *field, const char *text); /* ASCII case ignored */

#endif
