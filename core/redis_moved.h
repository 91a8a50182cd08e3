/*
 * What a node of a Redis Cluster answers about a slot it does not serve: "MOVED 3999 127.0.0.1:6381" and "ASK ..."
 * (Redis Cluster specification, "Redirection and resharding").
 */
#ifndef CORE_REDIS_MOVED_H
#define CORE_REDIS_MOVED_H

#include <stdbool.h>

#include "core/redis.h"

enum { REDIS_SLOTS = 16384 };

typedef struct {
    bool is_ask;
    int slot;                      /* 0 to REDIS_SLOTS - 1 */
    char host[REDIS_HOST_MAX + 1]; /* checked by redis_is_host; "" = the host that answered */
    int port;
} redis_moved_t;

/* False when the text is neither, or names no node that one could connect to. */
bool redis_moved_parse(const char *text, redis_moved_t *out);

#endif
