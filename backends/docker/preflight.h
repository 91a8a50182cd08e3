/*
 * What can be told of a wall from the Engine's own words and this machine's files, before a container is made (spec
 * backend-docker 3.1). Says what is configured; that it works is smoke.h's to show.
 */
#ifndef BACKENDS_DOCKER_PREFLIGHT_H
#define BACKENDS_DOCKER_PREFLIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/backend.h"
#include "backends/docker/engine.h"
#include "backends/docker/evidence.h"
#include "backends/docker/image.h"

/* The kinds of sandbox, each with an image of its own. */
typedef enum { DOCKER_SNIPPET, DOCKER_PROJECT } docker_kind_t;

enum {
    DOCKER_KINDS = 2,
    PREFLIGHT_CALL_MS = 10 * 1000,          /* for all of its calls together */
    PREFLIGHT_WORK_MIN_BYTES = 1024 * 1024, /* what the disk budget must leave for /work */
    PREFLIGHT_RUNSC_MEMORY_MIN_MB = 128,    /* gVisor's own memory is charged too (spec 8 (7)) */
    PREFLIGHT_RUNSC_PIDS_MIN = 256,         /* its own threads count (spec 8 (8)) */
};

/* What every sandbox is promised to be; the smoke test looks for exactly this. */
typedef struct {
    uint32_t uid; /* and gid */
    uint64_t memory_bytes, nano_cpus;
    uint32_t pids;
    uint64_t tmp_bytes, shm_bytes;
    uint64_t work_bytes; /* of a project's /work; a snippet's sandbox has none */
    bool has_profile;    /* our own seccomp profile is sent: the deny list is asserted (not under gVisor) */
    bool has_filter;     /* some filter is in force: Seccomp must read 2 (not under gVisor) */
} docker_promise_t;

typedef struct {
    engine_t *engine;
    const char *runtime;                  /* its name with the Engine: "runc", "runsc" */
    bool is_gvisor;                       /* this wall's name promises gVisor: a runtime that is none is refused */
    const char *references[DOCKER_KINDS]; /* configured images, by kind */
    bool is_pinned_only;
    bool needs_host_socket; /* grants: gVisor must have been told to let host sockets in */
    docker_promise_t promise;
} preflight_want_t;

typedef struct {
    image_t images[DOCKER_KINDS];
    evidence_runtime_t runtime; /* E1 and E2 */
    char engine_id[ENGINE_TEXT_MAX], engine_version[64];
    char arch[16];      /* "amd64" */
    int cgroup_version; /* 1 or 2, as the Engine says */
} preflight_t;

/* In a coroutine; cancels end it. False with one sentence for the operator that says what to do. `is_untried` is then
 * true when nothing was learnt (canceled, or the Engine did not answer in time). */
bool docker_preflight(const preflight_want_t *want, preflight_t *out, bool *is_untried, char failure[BACKEND_TEXT_MAX]);
/* Whether what was proven of `a` holds for `b`: the same Engine, runtime file and images. Then a canary will do. */
bool preflight_is_same(const preflight_t *a, const preflight_t *b);
void preflight_copy(preflight_t *to, const preflight_t *from);

/* The group that may write to the Engine's socket, for what the role keeps; -1 when there is none. */
int preflight_socket_group(const char *path);

/* The parts that need no Engine: an answer of /info against what is wanted; the guest's uid and the one after it
 * against account files (NULL: this machine's) and systemd's dynamic bands. */
bool preflight_vet_info(const json_t *info, const preflight_want_t *want, preflight_t *out,
                        char failure[BACKEND_TEXT_MAX]);
bool preflight_vet_uid(uint32_t uid, const char *passwd_path, const char *group_path, char failure[BACKEND_TEXT_MAX]);

#endif
