/* The user the processes become (PLIMSOLL_USER), by name or number. */
#ifndef GATEWAY_USER_H
#define GATEWAY_USER_H

#include <stdbool.h>

bool user_lookup(const char *name, int *uid, int *gid);

#endif
