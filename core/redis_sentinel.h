/*
 * Asks Sentinels in turn for the address of a master: REDIS_SENTINEL_MS for each, each once. Whether what is named is a
 * master still has to be asked of it.
 */
#ifndef CORE_REDIS_SENTINEL_H
#define CORE_REDIS_SENTINEL_H

#include "core/redis.h"

typedef struct redis_sentinel redis_sentinel_t;

/* `host` NULL: none named one, and `reason` says why (the last one's). Both are valid during the callback. `which` is
 * the Sentinel that answered. */
typedef void (*redis_sentinel_cb)(void *data, const char *host, int port, unsigned which, const char *reason);

/* Begins with the Sentinel number `first` (cut to those there are). One callback unless canceled, never before the call
 * returned; the handle dies with it. `address` is copied. */
redis_sentinel_t *redis_sentinel_ask(loop_t *loop, const redis_address_t *address, unsigned first, redis_sentinel_cb cb,
                                     void *data);
void redis_sentinel_cancel(redis_sentinel_t *s);

#endif
