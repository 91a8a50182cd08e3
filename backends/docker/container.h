/*
 * One container as the wall asks for it (spec backend-docker 1.2) and as the Engine says it is (1.7). Pure: nothing
 * here speaks to the Engine.
 */
#ifndef BACKENDS_DOCKER_CONTAINER_H
#define BACKENDS_DOCKER_CONTAINER_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "backends/guest/host.h"
#include "core/sha256.h"

enum {
    CONTAINER_IMAGE_MAX = 72,   /* "sha256:", 64 hex digits and the NUL */
    CONTAINER_RUNTIME_MAX = 65, /* a runtime's name and the NUL */
    CONTAINER_TEXT_MAX = 128,   /* the name of a field that differs */

    CONTAINER_NOFILE = 4096, /* open files of each guest process (spec 1.2) */
};

/* In every guest image (spec 7.1). */
#define CONTAINER_RUNNER "/opt/sbx/runner"

/* Everything that decides what a container is. Two specs that make the same digest and name the same image and
 * pre-boot are one pool's. */
typedef struct {
    char image[CONTAINER_IMAGE_MAX];     /* content ID, as the smoke test proved it; never a tag */
    char runtime[CONTAINER_RUNTIME_MAX]; /* always sent, so a changed default cannot move a tier */
    uint32_t uid;                        /* gid is the same */
    uint64_t memory_bytes, nano_cpus;
    uint32_t pids;
    uint32_t tmp_mb, shm_mb, work_mb; /* work_mb 0: there is no /work */
    /* The profile's JSON text, "unconfined", or NULL: not sent (the Engine's default, or a runtime that filters in its
     * own kernel). Borrowed. */
    const char *seccomp;
    guest_preboot_t preboot;
    const char *bind; /* one entry of HostConfig.Binds, or NULL. Borrowed. */
} container_spec_t;

/* What differs between containers of one spec. Borrowed strings. */
typedef struct {
    const char *instance, *host; /* sbx.instance, sbx.host */
    const char *installation;    /* sbx.installation; NULL or "": not known, and not sent */
    const char *role;            /* "pool", "run", "session", "smoke" */
    int64_t expires_s;           /* Unix seconds */
} container_labels_t;

/* SHA-256 of the HostConfig that is sent, its keys sorted: the label sbx.spec. */
void container_spec_digest(const container_spec_t *spec, char out[SHA256_HEX + 1]);
/* The body of POST /containers/create; json_decref it. */
json_t *container_body(const container_spec_t *spec, const container_labels_t *labels);

/* Compares an answer of GET /containers/{id}/json with what was asked, field by field; fields that were not sent must
 * be as the Engine leaves them. False with the name of the first that differs, such as "HostConfig.Memory". The
 * container's state is not looked at. */
bool container_matches(const json_t *inspect, const container_spec_t *spec, char difference[CONTAINER_TEXT_MAX]);
/* The whole HostConfig, the mounts and the networks in one digest, for comparing an answer with an earlier one. Empty
 * when the answer has not their shape. */
void container_seal(const json_t *inspect, char out[SHA256_HEX + 1]);

/* State of an inspect answer. False when it has not the shape. */
typedef struct {
    bool is_running, is_paused, is_oom_killed;
    int64_t pid, exit_code;
} container_state_t;
bool container_state(const json_t *inspect, container_state_t *out);

#endif
