/*
 * What a sandbox is, tried from inside and read back from outside (spec backend-docker 3.2, 3.4). The sandboxes are
 * launched by the wall's own code, exactly as a run's are; this file only decides what is asked and what is believed.
 */
#ifndef BACKENDS_DOCKER_SMOKE_H
#define BACKENDS_DOCKER_SMOKE_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/backend.h"
#include "backends/docker/evidence.h"
#include "backends/docker/preflight.h"
#include "backends/guest/host.h"

enum {
    SMOKE_LAUNCH_MS = 20 * 1000, /* READY of one sandbox (spec 2.3) */
    SMOKE_JOB_MS = 15 * 1000,    /* one job */
    SMOKE_ANSWER_MS = 5 * 1000,  /* beside the job's own time, as for runs (spec 2.3) */
    SMOKE_GONE_MS = 15 * 1000,   /* S16: from the verdict to the container's absence */
};

/* How the wall launches. All of it in a coroutine. `sandbox` is the wall's. */
typedef struct {
    void *wall;
    /* A fresh sandbox of the kind from exactly this image (not a stocked one), in GUEST_READY; NULL with the reason.
     * `bind` is NULL or one more HostConfig.Binds entry. The guests' environment is image->env. */
    void *(*launch)(void *wall, docker_kind_t kind, const image_t *image, const char *bind,
                    char failure[ENGINE_TEXT_MAX]);
    /* 64 hex digits; and State.Pid as the read-back of this sandbox said after its start. */
    const char *(*container_id)(void *sandbox);
    int (*pid)(void *sandbox);
    /* Gives the job and waits until FINAL, the stream's end, a broken frame or `deadline_us` (monotonic). False with
     * the reason when the job was not written whole. What came is in guest_result(guest). */
    bool (*execute)(void *sandbox, const guest_job_t *job, uint64_t deadline_us, char failure[ENGINE_TEXT_MAX]);
    guest_t *(*guest)(void *sandbox);
    /* Kills and removes, waits for the container's absence; false: not gone within SMOKE_GONE_MS. Frees `sandbox`. */
    bool (*dispose)(void *sandbox);
} smoke_launcher_t;

typedef struct {
    engine_t *engine;
    const preflight_want_t *want;
    const preflight_t *preflight;
    smoke_launcher_t launcher;
    bool is_registered_enough;   /* SANDBOX_GVISOR_EVIDENCE=registered */
    const char *socket_dir;      /* a private directory for S12's throwaway socket; NULL leaves S12 out */
    const evidence_host_t *host; /* a test's; NULL: this machine */
    bool is_canary;              /* S1-S8 and the evidence only: the same preflight was proven before */
} smoke_want_t;

typedef struct {
    tier_t tier; /* container or kernel */
    evidence_t evidence;
    char evidence_gap[BACKEND_TEXT_MAX]; /* why a wall of gVisor's is no more than a container, or only registered */
    bool has_host_socket;                /* S12 */
    bool has_python;                     /* S15, the project image */
    bool are_runner_fds_protected;       /* S13: recorded, decides nothing */
    char node_version[32], python_version[32];
    char banner[128]; /* S20: for the log */
} smoke_t;

/* In a coroutine; cancels end it, with nothing left running. False with one sentence for the operator that names the
 * check. `is_untried` is then true when nothing was learnt of the wall. A canary leaves `out`'s languages, versions and
 * host socket as they are. */
bool docker_smoke(const smoke_want_t *want, smoke_t *out, bool *is_untried, char failure[BACKEND_TEXT_MAX]);

#endif
