/*
 * Private to the walls of a local Docker Engine: what their parts share. One docker_t a role; `docker` and `gvisor` are
 * two roles with the same code, and share nothing at run time.
 */
#ifndef BACKENDS_DOCKER_INTERNAL_H
#define BACKENDS_DOCKER_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/backend.h"
#include "backends/docker/container.h"
#include "backends/docker/engine.h"
#include "backends/docker/member.h"
#include "backends/docker/pool.h"
#include "backends/docker/preflight.h"
#include "backends/docker/reaper.h"
#include "backends/docker/smoke.h"
#include "backends/docker/teardown.h"
#include "backends/docker/turns.h"

enum {
    DOCKER_MAGIC = 0x646f636b,
    DOCKER_SUSPECT_MS = 5 * 1000, /* not suspected again within this: what was replaced is new */
    DOCKER_FLUSH_MS = 15 * 1000,  /* at the end, for removals under way */
    DOCKER_PROOF_MS = 120 * 1000, /* a full smoke test on a busy machine, with a start and a removal a check */
};

/* The configuration, read once. */
typedef struct {
    char runtime[CONTAINER_RUNTIME_MAX];
    const char *references[DOCKER_KINDS];
    docker_promise_t promise;
    /* The profile's text, or "unconfined"; NULL: not sent (the Engine's default, or a wall that filters in its own
     * kernel). Owned. */
    char *seccomp;
    double cpus;
    bool is_pinned_only;
    bool is_registered_enough; /* SANDBOX_GVISOR_EVIDENCE=registered */
    uint64_t idle_ms;
    uint32_t pool_sizes[DOCKER_KINDS];
} docker_settings_t;

struct docker {
    unsigned magic;
    const char *name; /* of the wall: "docker" or "gvisor" */
    bool is_gvisor;   /* the runtime is to be gVisor: other evidence, other minimum limits, no profile. Both can be. */
    const backend_host_t *host;
    docker_settings_t settings;
    char problem[BACKEND_TEXT_MAX];       /* of the configuration; empty when there is none */
    char instance[LEDGER_INSTANCE + 1];   /* sbx.instance, and the ledger's */
    char engine_id[LEDGER_PLACE_MAX + 1]; /* of the last preflight that succeeded; what IDs are names in */
    char host_id[80];                     /* sbx.host */
    engine_t *engine;
    teardown_t *teardown;
    reaper_t *reaper;
    pool_t *pools[DOCKER_KINDS];
    preflight_want_t want;
    /* Of the last proof that succeeded. */
    bool is_proven;
    preflight_t preflight;
    smoke_t smoke;
    int kept_group; /* when root was dropped; -1 for none */
    bool was_root;
    uint64_t suspected_ms; /* when docker_suspect last acted */
    uint32_t processors;   /* of the machine the sandboxes run on, which is this one */
    uint32_t running;      /* guests that have a job now */
    turns_t turns;         /* whose guest begins */
    member_t *members;     /* every one that was asked for and is not with the teardown */
};

/* Fills docker->settings; what is wrong with them becomes docker->problem. */
void docker_settings_read(docker_t *docker);
/* The spec of a kind's containers from that image, exactly as runs have it. Borrows from `docker`. */
void docker_spec(const docker_t *docker, docker_kind_t kind, const image_t *image, container_spec_t *spec);
/* As many guests as processors: what can wait should. */
bool docker_is_busy(const docker_t *docker);
/* Whether a container of that name is a member's, or with the teardown. */
bool docker_owns(const docker_t *docker, const char *name);
/* Streams were cut that nobody closed: the Engine may have restarted. Drains the pools and proves anew. */
void docker_suspect(docker_t *docker);

/* sandboxes.c: what the ledger's janitor asks of this wall. */
extern const backend_sandboxes_t DOCKER_SANDBOXES;
/* The ledger hears what the teardown does. */
void docker_tell_ledger(docker_t *docker);
/* "plimsoll-STAMP" -> STAMP; NULL for another name. */
const char *docker_stamp_of(const char *name);

/* launch.c: how the smoke test starts its sandboxes. */
void docker_launcher(docker_t *docker, smoke_launcher_t *launcher);

#endif
