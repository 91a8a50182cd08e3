/* The records' Redis, for the commands that an operator speaks to it with. */
#ifndef CLI_RECORDS_REDIS_H
#define CLI_RECORDS_REDIS_H

#include <stdbool.h>

#include "core/redis.h"

/* Where it is, from PLIMSOLL_REDIS_URL and the settings that belong to it, else the private one of PLIMSOLL_STATE_DIR;
 * loads the options of the command's role and checks PLIMSOLL_INSTALLATION. The caller disposes of `address`. False:
 * what is wrong has been told on stderr, a line each, and `address` is empty. */
bool records_redis_address(redis_address_t *address);

#endif
