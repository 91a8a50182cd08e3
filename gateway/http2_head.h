/*
 * An HTTP/2 request's head, written as the HTTP/1.1 text that means the same (RFC 9113 section 8.3, RFC 9112), so the
 * one strict check of heads decides on both. nghttp2 has refused most of what is malformed before; what could turn one
 * field into two lines, or one request line into another, is refused here all the same. Pure; fuzzed.
 */
#ifndef GATEWAY_HTTP2_HEAD_H
#define GATEWAY_HTTP2_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/buffer.h"
#include "gateway/head.h"

typedef struct {
    buffer_t method, path, scheme, authority, host, fields;
    buffer_t text;     /* what the parsed head points into */
    size_t total;      /* bytes of names and values */
    const char *wrong; /* the first thing that is; NULL = nothing yet */
    bool too_large;
    bool has_host;
} http2_head_t;

void http2_head_init(http2_head_t *h);
/* One field in the order it came. Names and values of any bytes; past HEAD_MAX nothing more is kept. */
void http2_head_add(http2_head_t *h, const uint8_t *name, size_t name_len, const uint8_t *value, size_t value_len);
/* No more fields come. `out` as head_parse gives it, valid until http2_head_dispose; never HEAD_INCOMPLETE. On HEAD_BAD
 * and HEAD_TOO_LARGE *why says what is wrong (static text), and out->request_id is filled when it could be read. */
head_result_t http2_head_parse(http2_head_t *h, head_t *out, const char **why);
void http2_head_dispose(http2_head_t *h);

#endif
