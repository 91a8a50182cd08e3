/*
 * Finds containers that a crash left, by their labels (spec backend-docker 1.10), at the start and every minute: what
 * has expired, what belongs to a gateway of this machine that is gone, and what is this one's own but known to nobody.
 * Touches nothing that does not carry the labels and the name of a gateway's container, nor what carries the label of
 * another installation. Whatever it finds goes to the teardown, which tells the ledger.
 */
#ifndef BACKENDS_DOCKER_REAPER_H
#define BACKENDS_DOCKER_REAPER_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

typedef struct docker docker_t;
typedef struct reaper reaper_t;

#define REAPER_NAME_PREFIX "plimsoll-"

enum {
    REAPER_PERIOD_MS = 60 * 1000,
    REAPER_RETRY_MS = 2 * 1000,    /* when the Engine did not answer, or something is better removed a little later */
    REAPER_START_S = 5,            /* one created and not started for this long is not being started any more */
    REAPER_EXPIRED_MARGIN_S = 300, /* clocks of several gateways on one Engine differ (spec 1.10) */
    REAPER_LIST_MS = 10 * 1000,
};

/* Opens the liveness socket of docker->instance: while it accepts, this instance is alive. The reaper itself begins
 * with reaper_begin. NULL with errno when the socket cannot be had. */
reaper_t *reaper_create(docker_t *docker);
/* Starts looking, at once; harmless when it has begun. */
void reaper_begin(reaper_t *reaper);
/* In a coroutine: no further round; waits for the one under way. The liveness socket still accepts. */
void reaper_end(reaper_t *reaper);
/* After reaper_end. */
void reaper_destroy(reaper_t *reaper);

/* Whether another instance of this machine is alive. Only a refusal says that nobody is there. */
bool reaper_is_alive(const char *instance);

/* Whether one entry of the container list is to be removed. `is_alive` is asked about other instances of this machine
 * only, `is_owned` about containers of this one. */
typedef struct {
    const char *instance, *host;
    const char *installation; /* the ledger's identity, as in the label sbx.installation; NULL or "": not known */
    int64_t now_s;
    bool (*is_alive)(void *data, const char *instance);
    bool (*is_owned)(void *data, const char *name);
    void *data;
} reaper_view_t;
bool reaper_is_due(const json_t *entry, const reaper_view_t *view, const char **name, const char **id);

#endif
