/*
 * An answer's head, line by line (RFC 9112 sections 4 to 6), as libcurl hands it over: interim answers, the final head,
 * trailers. Stricter than libcurl, since an answer may come from a stranger: folded lines, space before the colon,
 * control bytes and conflicting lengths are malformed.
 */
#ifndef CORE_HTTP_HEAD_H
#define CORE_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/buffer.h"

typedef enum {
    HTTP_HEAD_MORE,      /* go on */
    HTTP_HEAD_END,       /* the final head is complete */
    HTTP_HEAD_TOO_LARGE, /* past the limit */
    HTTP_HEAD_MALFORMED,
} http_head_result_t;

typedef struct {
    int status;     /* of the head being read; the final one after HTTP_HEAD_END */
    bool has_ended; /* the final head is complete: what follows are trailers, counted and ignored */
    bool has_content_length;
    uint64_t content_length; /* UINT64_MAX when it does not fit */
    buffer_t fields;         /* "name\0value\0" pairs of the present head */
    size_t _bytes, _max;
    bool _in_fields;
} http_head_t;

/* `max` is the sum of all bytes of all heads and trailers. */
void http_head_init(http_head_t *head, size_t max);
void http_head_dispose(http_head_t *head);
/* One line with its line end; the empty line ends a head. */
http_head_result_t http_head_line(http_head_t *head, const char *line, size_t len);
/* The one value among "name\0value\0" pairs, NULL when absent or repeated. Names compare without case. */
const char *http_head_find(const char *fields, size_t len, const char *name);
/* RFC 9110 section 5.6.2. */
bool http_is_token(const char *s, size_t len);

#endif
