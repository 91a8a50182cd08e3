#include "core/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

enum { FIRST_CAPACITY = 64 };

void buffer_init(buffer_t *b, size_t limit)
{
    *b = (buffer_t){.limit = limit};
}

void buffer_dispose(buffer_t *b)
{
    free(b->base);
    buffer_init(b, b->limit);
}

void buffer_clear(buffer_t *b)
{
    b->len = 0;
    if (b->base != NULL)
        b->base[0] = '\0';
}

uint8_t *buffer_reserve(buffer_t *b, size_t len)
{
    if (len > b->limit - b->len)
        return NULL;
    size_t need = b->len + len;
    if (b->base == NULL || need > b->cap) {
        size_t cap = b->cap != 0 ? b->cap : FIRST_CAPACITY;
        while (cap < need)
            cap = cap > SIZE_MAX / 2 ? need : cap * 2;
        if (cap > b->limit)
            cap = b->limit;
        /* one more for the NUL, so the bytes can be handed to C string functions */
        b->base = mem_realloc(b->base, cap + 1);
        b->cap = cap;
        b->base[b->len] = '\0';
    }
    return b->base + b->len;
}

void buffer_commit(buffer_t *b, size_t len)
{
    if (len > b->cap - b->len)
        mem_fatal("buffer_commit past what was reserved");
    b->len += len;
    b->base[b->len] = '\0';
}

bool buffer_append(buffer_t *b, const void *data, size_t len)
{
    uint8_t *at = buffer_reserve(b, len);
    if (at == NULL)
        return false;
    if (len != 0)
        memcpy(at, data, len);
    buffer_commit(b, len);
    return true;
}

bool buffer_append_str(buffer_t *b, const char *s)
{
    return buffer_append(b, s, strlen(s));
}

bool buffer_printf(buffer_t *b, const char *fmt, ...)
{
    char small[512];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(small, sizeof(small), fmt, args);
    va_end(args);
    if (n < 0)
        return false;
    if ((size_t)n < sizeof(small))
        return buffer_append(b, small, (size_t)n);
    char *large = mem_alloc((size_t)n + 1);
    va_start(args, fmt);
    vsnprintf(large, (size_t)n + 1, fmt, args);
    va_end(args);
    bool fit = buffer_append(b, large, (size_t)n);
    free(large);
    return fit;
}

void buffer_consume(buffer_t *b, size_t len)
{
    if (len >= b->len) {
        buffer_clear(b);
        return;
    }
    memmove(b->base, b->base + len, b->len - len + 1);
    b->len -= len;
}
