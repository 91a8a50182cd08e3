/*
 * Started, never-used sandboxes of one kind (spec backend-docker 4.4). A start is a start: one made ahead and one a run
 * waits for go the same way, and whatever becomes ready goes first to a run that waits. Filling up happens off the
 * request path, and not while the machine has guests for all its processors.
 */
#ifndef BACKENDS_DOCKER_POOL_H
#define BACKENDS_DOCKER_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/docker/member.h"

typedef struct pool pool_t;

enum {
    /* Starts at once that runs wait for: one a processor within these two. More than a few only lengthen each (spec
     * 4.4). */
    POOL_STARTS_MIN = 2,
    POOL_STARTS_MAX = 16,
    POOL_FILL_AFTER_MS = 10, /* a claim's own run, which takes about as long, goes first */
    POOL_PAUSE_MIN_MS = 500, /* after a start made ahead has failed, or its member did not last; doubles */
    POOL_PAUSE_MAX_MS = 30 * 1000,
    POOL_LASTS_MS = 10 * 1000, /* a member cut off younger than this did not last */
    POOL_END_MS = 3 * 1000,    /* at the end: what starts under way get to finish, before they are canceled */
};

typedef struct {
    uint32_t size; /* ready members kept; 0: every run waits for its own start */
    uint64_t idle_ms;
    const char *name; /* for the log; a literal */
} pool_limits_t;

pool_t *pool_create(docker_t *docker, const pool_limits_t *limits);
/* What members are from now on; those of another spec or environment are discarded, as are the starts under way. The
 * environment is copied, the spec but for the texts it borrows. NULL: nothing is started any more, and everything is
 * discarded. */
void pool_set(pool_t *pool, const member_plan_t *plan);
/* Every member goes and is replaced: they may be cut off, as after a restart of the Engine. */
void pool_drain(pool_t *pool);
/* In a coroutine: a ready member, the newest first, or the next that becomes ready; runs that wait are served in turn
 * by caller. NULL with the reason: none could be started, `until_us` passed, or the coroutine was canceled. `is_hit`:
 * one was ready. */
member_t *pool_claim(pool_t *pool, const char *caller, uint64_t until_us, bool *is_hit, char failure[ENGINE_TEXT_MAX]);
/* The number of guests that run has changed: filling up may go on. */
void pool_poke(pool_t *pool);
/* Ready members and starts under way. */
size_t pool_idle(const pool_t *pool);
size_t pool_starting(const pool_t *pool);
/* In a coroutine: discards everything and returns when no start is under way. No run may be waiting. */
void pool_destroy(pool_t *pool);

#endif
