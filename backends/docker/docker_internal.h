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

enum { DOCKER_MAGIC = 0x646f636b };

/* One of the two walls: what is different between them. */
typedef struct {
    const char *name;
    bool is_gvisor; /* its sandboxes have a kernel of their own: other evidence, other minimum limits, no profile */
} docker_wall_t;

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
    const docker_wall_t *wall;
    const backend_host_t *host;
    docker_settings_t settings;
    char problem[BACKEND_TEXT_MAX]; /* of the configuration; empty when there is none */
    char instance[17];              /* sbx.instance */
    char host_id[80];               /* sbx.host */
    engine_t *engine;
    teardown_t *teardown;
    reaper_t *reaper;
    pool_t *pools[DOCKER_KINDS];
    preflight_want_t want;
    /* Of the last proof that succeeded. */
    bool is_proven;
    preflight_t preflight;
    smoke_t smoke;
    uint32_t processors; /* of the machine the sandboxes run on, which is this one */
    uint32_t running;    /* guests that have a job now */
    member_t *members;   /* every one that was asked for and is not with the teardown */
};

/* The spec of a kind's containers from that image, exactly as runs have it. Borrows from `docker`. */
void docker_spec(const docker_t *docker, docker_kind_t kind, const image_t *image, container_spec_t *spec);
/* As many guests as processors: what can wait should. */
bool docker_is_busy(const docker_t *docker);
/* Whether a container of that name is a member's, or with the teardown. */
bool docker_owns(const docker_t *docker, const char *name);
/* Streams were cut that nobody closed: the Engine may have restarted. Drains the pools and proves anew. */
void docker_suspect(docker_t *docker);

/* launch.c: how the smoke test starts its sandboxes. */
void docker_launcher(docker_t *docker, smoke_launcher_t *launcher);

#endif
