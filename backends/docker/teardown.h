/*
 * Explicit removal (spec backend-docker 1.6), off the request path, by a small set of workers. A container is on the
 * list from the moment it is handed over until an exact look-up says that it is gone; nothing the Engine answers or
 * does, restarts included, takes it off otherwise.
 */
#ifndef BACKENDS_DOCKER_TEARDOWN_H
#define BACKENDS_DOCKER_TEARDOWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/docker/attach.h"
#include "backends/docker/engine.h"
#include "core/loop.h"

typedef struct teardown teardown_t;

enum {
    TEARDOWN_WORKERS = 4,
    TEARDOWN_ATTEMPTS = 3, /* in a row, then it is set aside (spec 1.6) */
    TEARDOWN_ATTEMPT_MS = 10 * 1000,
    TEARDOWN_END_MS = 2 * 1000,        /* of that, for a runner to end by itself */
    TEARDOWN_PAUSE_MS = 1000,          /* after the first attempt; doubles after each */
    TEARDOWN_LATER_MIN_MS = 10 * 1000, /* then again after this; doubles */
    TEARDOWN_LATER_MAX_MS = 5 * 60 * 1000,
    /* A container whose creation was never answered may still come: longer than MEMBER_CREATE_MS, and the Engine's own
     * delay in noticing that nobody listens. */
    TEARDOWN_UNBORN_MS = 30 * 1000,
    TEARDOWN_LOOK_MS = 2 * 1000, /* between two looks for one */
    TEARDOWN_LIST_MAX = 4096,    /* with so many not known to be gone, no further sandbox is to be made */
    TEARDOWN_YIELD_MS = 1000,    /* longest a removal that can wait does so for runs */
};

typedef enum {
    TEARDOWN_IDLE, /* nothing of a caller's runs in it: it may wait for runs */
    TEARDOWN_NOW,  /* something may still run */
} teardown_urgency_t;

/* What becomes of each, for whoever keeps a list of them. May be called before teardown_add returned. */
typedef struct {
    void (*on_gone)(void *data, const char *name); /* confirmed */
    void (*on_failed)(void *data, const char *name, const char *why);
    void *data;
} teardown_events_t;

/* `is_busy` (may be NULL) says whether removals that can wait should. */
teardown_t *teardown_create(loop_t *loop, engine_t *engine, bool (*is_busy)(void *data), void *data);
/* NULL: nobody cares. Copied. */
void teardown_tell(teardown_t *teardown, const teardown_events_t *events);
/* `id` NULL or empty: the answer to its creation never came, and the name is all there is. Then it is gone only when
 * the name stays absent for longer than a creation can take. A name on the list already is left as it is. */
void teardown_add(teardown_t *teardown, const char *name, const char *id, teardown_urgency_t urgency);
/* Takes over the stream of a container that was just added: it is closed when the container's removal begins. Its
 * runner ends with its stream, and the Engine, which then clears away what it ran in, would do so while runs need the
 * machine. Closed at once when the container is not on the list. */
void teardown_hold(teardown_t *teardown, const char *name, attach_t *attach);
bool teardown_has(const teardown_t *teardown, const char *name);
/* Containers not known to be gone, and how many of them are set aside after TEARDOWN_ATTEMPTS. */
size_t teardown_count(const teardown_t *teardown);
size_t teardown_failed_count(const teardown_t *teardown);
/* Removed and confirmed since the start. */
uint64_t teardown_done_count(const teardown_t *teardown);
/* The Engine is back: whatever waits for its next attempt has waited enough. */
void teardown_retry(teardown_t *teardown);
/* In a coroutine: waits until the list is empty, at most `ms`. */
bool teardown_flush(teardown_t *teardown, uint32_t ms);
/* Cancels the workers; in a coroutine it waits for them. What is still listed is logged: the next instance's reaper
 * finds it by its labels. */
void teardown_destroy(teardown_t *teardown);

#endif
