/* A connection to Redis and what it told of its states. */
#ifndef TESTS_REDIS_SEEN_H
#define TESTS_REDIS_SEEN_H

#include <stdio.h>

#include "core/redis.h"

typedef struct {
    redis_t *r;
    int ups, downs;
    char reason[256];
} seen_t;

static void on_state(void *data, bool up, const char *reason)
{
    seen_t *s = data;
    *(up ? &s->ups : &s->downs) += 1;
    snprintf(s->reason, sizeof(s->reason), "%s", reason);
}

#endif
