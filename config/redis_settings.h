/* Where the record store is, from the settings that speak of it. */
#ifndef CONFIG_REDIS_SETTINGS_H
#define CONFIG_REDIS_SETTINGS_H

#include <stdbool.h>

#include "config/options.h"
#include "core/redis.h"

/* Parses PLIMSOLL_REDIS_URL (set, in a role that reads it), reads the files its TLS needs and names the installation's
 * key whose slot tells the node of a Cluster. Before a role gives up the right to read the files. False adds to
 * `problems`, and `out` is empty; otherwise the caller disposes of it. */
bool redis_settings_read(redis_address_t *out, problems_t *problems);
/* Whether what is said to Redis, passwords among it, leaves this machine without TLS. False for an URL that is none. */
bool redis_settings_are_in_the_clear(void);

#endif
