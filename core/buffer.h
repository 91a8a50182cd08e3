/*
 * A growable byte buffer with a hard limit. Every append reports whether it fit; a buffer that refused an append is
 * unchanged.
 */
#ifndef CORE_BUFFER_H
#define CORE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint8_t *base; /* NULL until the first append; always followed by a NUL once allocated */
    size_t len;
    size_t cap;
    size_t limit; /* most bytes it may hold */
} buffer_t;

/* Holds nothing; `limit` in bytes. */
void buffer_init(buffer_t *b, size_t limit);
/* Frees the bytes; the buffer is empty and usable again with the same limit. */
void buffer_dispose(buffer_t *b);
/* Forgets the bytes, keeps the memory. */
void buffer_clear(buffer_t *b);
/* false (and unchanged) when it would exceed the limit. Aborts only when the process is out of memory. */
bool buffer_append(buffer_t *b, const void *data, size_t len);
bool buffer_append_str(buffer_t *b, const char *s);
bool buffer_printf(buffer_t *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Room for at least `len` more bytes: the place to write them, or NULL when past the limit. Follow with buffer_commit.
 */
uint8_t *buffer_reserve(buffer_t *b, size_t len);
void buffer_commit(buffer_t *b, size_t len);
/* Drops the first `len` bytes (all of them when fewer). */
void buffer_consume(buffer_t *b, size_t len);

#endif
