/* Chunked bodies (RFC 9112 section 7.1), decoded in place and strictly: CRLF only, hexadecimal sizes, bounded lines and
 * trailers, chunk extensions skipped, trailers discarded. Pure; fuzzed. */
#ifndef GATEWAY_CHUNKED_H
#define GATEWAY_CHUNKED_H

#include <stddef.h>
#include <stdint.h>

typedef enum { CHUNKED_MORE, CHUNKED_DONE, CHUNKED_BAD, CHUNKED_TOO_LARGE } chunked_result_t;

typedef struct {
    int state;
    uint64_t left; /* bytes of the present chunk, or the size being read */
    unsigned line; /* bytes of the present line */
    unsigned digits;
    unsigned trailers;
    uint64_t raw; /* bytes taken in all */
} chunked_t;

/* Takes bytes[*decoded .. *decoded + fresh): the fresh raw bytes stand right behind what is decoded already. Afterwards
 * the body is bytes[0 .. *decoded) and, when done, `*extra` raw bytes of whatever follows stand right behind it. Raw
 * bytes past `limit` are CHUNKED_TOO_LARGE. */
chunked_result_t chunked_feed(chunked_t *c, char *bytes, size_t *decoded, size_t fresh, uint64_t limit, size_t *extra);

#endif
