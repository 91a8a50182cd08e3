#include "core/mem.h"

#include <stdlib.h>
#include <string.h>

#include "core/log.h"

void mem_fatal(const char *why)
{
    log_event(LOG_ERROR, "fatal", log_str("why", why));
    abort();
}

void *mem_alloc(size_t size)
{
    void *p = calloc(1, size != 0 ? size : 1);
    if (p == NULL)
        mem_fatal("out of memory");
    return p;
}

void *mem_alloc_array(size_t n, size_t size)
{
    void *p = calloc(n != 0 ? n : 1, size != 0 ? size : 1);
    if (p == NULL)
        mem_fatal("out of memory");
    return p;
}

void *mem_realloc(void *p, size_t size)
{
    p = realloc(p, size != 0 ? size : 1);
    if (p == NULL)
        mem_fatal("out of memory");
    return p;
}

char *mem_strndup(const char *s, size_t len)
{
    char *copy = mem_alloc(len + 1);
    memcpy(copy, s, len);
    return copy;
}

char *mem_strdup(const char *s)
{
    return mem_strndup(s, strlen(s));
}
