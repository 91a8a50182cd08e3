/*
 * One lane's connection to one backend role: what the role announces, and runs handed to it. Reconnects for ever; runs
 * in flight on a lost connection may have happened and end as LINK_LOST. The role's answers are bounded and checked
 * before use.
 */
#ifndef GATEWAY_LINK_H
#define GATEWAY_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/backend.pb-c.h"
#include "core/loop.h"
#include "records/tier.h"

typedef struct link link_t;

typedef enum {
    LINK_DONE,    /* done is set */
    LINK_REFUSED, /* refused is set: nothing ran */
    LINK_FAILED,  /* failed is set: may have run */
    LINK_LOST,    /* the role died or the connection broke: may have run */
    LINK_GARBLED, /* the role sent something that is no message: may have run */
} link_end_t;

typedef struct {
    link_end_t end;
    Plimsoll__Backend__RunDone *done; /* valid during the callback, as are the others */
    Plimsoll__Backend__RunRefused *refused;
    Plimsoll__Backend__RunFailed *failed;
} link_result_t;

typedef void (*link_cb)(void *data, const link_result_t *result);

/* `name` and `path` must outlive the link; on_change is called when the announcement changed or was lost. */
link_t *link_create(loop_t *loop, const char *name, const char *path, void (*on_change)(void *data), void *data);
/* Calls in flight end as LINK_LOST first. */
void link_destroy(link_t *link);
/* The latest announcement, or NULL while there is none. */
const Plimsoll__Backend__Announce *link_announce(const link_t *link);
bool link_is_ready(const link_t *link);
/* Changes with every announcement and loss. */
uint64_t link_version(const link_t *link);
/* The tier the evidence supports now; TIER_UNKNOWN when there is none or it is older than max_age_ms. */
tier_t link_tier(const link_t *link, uint64_t max_age_ms);
/* Milliseconds since the proof; UINT64_MAX without one. */
uint64_t link_evidence_age(const link_t *link);
/* Hands a run over. 0: nothing was sent (not connected, or the role does not keep up). Otherwise exactly one callback,
 * never before the call returned. */
uint64_t link_run(link_t *link, const Plimsoll__Backend__RunStart *start, link_cb cb, void *data);
/* Asks the role to stop the run; the callback still comes. */
void link_cancel(link_t *link, uint64_t call);
/* Gives the run up: its callback will not come, whatever the role still says of it. */
void link_abandon(link_t *link, uint64_t call);

enum {
    LINK_ANNOUNCE = 16,
    LINK_RUN_START = 17,
    LINK_RUN_REFUSED = 18,
    LINK_RUN_DONE = 19,
    LINK_RUN_FAILED = 20,
    LINK_METERS = 21
};

#endif
