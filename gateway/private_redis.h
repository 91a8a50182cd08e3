/* The embedded record store: a redis-server of our own behind a Unix socket in the state directory, every write on disk
 * before its answer, so a claim that was answered survives a kill of any process. */
#ifndef GATEWAY_PRIVATE_REDIS_H
#define GATEWAY_PRIVATE_REDIS_H

#include "gateway/child.h"

/* Fills the child (strings are kept for the process's life) for the directory `state`. */
void private_redis_prepare(child_t *child, const char *program, const char *state, int uid, int gid);

#endif
