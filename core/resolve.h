/*
 * Looks up a host name on a thread of its own, because getaddrinfo waits and a loop must not. Literal addresses need no
 * thread and no lookup; callers pass them to connect directly.
 */
#ifndef CORE_RESOLVE_H
#define CORE_RESOLVE_H

#include <stddef.h>
#include <netinet/in.h>

#include "core/loop.h"

enum { RESOLVE_ADDRESSES_MAX = 8 };

typedef struct {
    size_t count;       /* 0 = the lookup failed */
    const char *reason; /* static text when it failed */
    char texts[RESOLVE_ADDRESSES_MAX][INET6_ADDRSTRLEN];
} resolve_result_t;

typedef struct resolve resolve_t;

/* NULL when no thread or descriptor is to be had. One callback unless canceled; the handle dies with it. */
resolve_t *resolve_start(loop_t *loop, const char *host, void (*cb)(void *data, const resolve_result_t *result),
                         void *data);
/* No callback any more. The thread ends by itself: the C library bounds it (resolv.conf: timeout and attempts). */
void resolve_cancel(resolve_t *r);

#endif
