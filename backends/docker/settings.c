#include "backends/docker/docker_internal.h"

#include <stdio.h>
#include <string.h>

#include "backends/docker/seccomp.h"
#include "config/docker.h"
#include "config/options.h"
#include "core/log.h"

static void problem(docker_t *docker, const char *what)
{
    if (docker->problem[0] == '\0')
        snprintf(docker->problem, sizeof(docker->problem), "%s", what);
}

static void read_seccomp(docker_t *docker)
{
    docker_settings_t *settings = &docker->settings;
    const char *which = option_str(OPT_SANDBOX_DOCKER_SECCOMP);
    char digest[SECCOMP_DIGEST_MAX], failure[SECCOMP_FAILURE_MAX] = "";

    if (docker->is_gvisor)
        return; /* it filters in its own kernel, and installs its own filter outside (spec 6.2) */
    settings->seccomp = docker_seccomp_load(which, digest, failure);
    settings->promise.has_filter = strcmp(which, "unconfined") != 0;
    settings->promise.has_profile = strcmp(which, "builtin") == 0;
    if (failure[0] != '\0')
        problem(docker, failure);
    else
        log_event(LOG_INFO, "seccomp profile", log_str("backend", docker->name), log_str("sha256", digest));
}

void docker_settings_read(docker_t *docker)
{
    docker_settings_t *settings = &docker->settings;
    bool is_gvisor_row = strcmp(docker->name, "gvisor") == 0;
    const char *runtime = option_str(is_gvisor_row ? OPT_SANDBOX_GVISOR_RUNTIME : OPT_SANDBOX_DOCKER_RUNTIME);

    if (strlen(runtime) >= sizeof(settings->runtime))
        problem(docker, "the runtime's name is too long");
    snprintf(settings->runtime, sizeof(settings->runtime), "%s", runtime);
    settings->references[DOCKER_SNIPPET] = option_str(OPT_SANDBOX_DOCKER_IMAGE);
    settings->references[DOCKER_PROJECT] = option_str(OPT_SANDBOX_DOCKER_PROJECT_IMAGE);
    settings->promise = (docker_promise_t){
        .uid = (uint32_t)option_int(OPT_SANDBOX_GUEST_UID),
        .memory_bytes = (uint64_t)option_int(OPT_SANDBOX_MEMORY_MB) * 1024 * 1024,
        .nano_cpus = (uint64_t)docker_nano_cpus(),
        .pids = docker_pids(),
        .tmp_bytes = (uint64_t)DOCKER_TMP_MB * 1024 * 1024,
        .shm_bytes = (uint64_t)DOCKER_SHM_MB * 1024 * 1024,
        .work_bytes = (uint64_t)docker_work_mb() * 1024 * 1024,
    };
    if (settings->promise.work_bytes < PREFLIGHT_WORK_MIN_BYTES)
        problem(docker, "SANDBOX_DISK_MB leaves nothing for /work");
    settings->is_pinned_only = option_bool(OPT_SANDBOX_REQUIRE_PINNED_IMAGES);
    settings->is_registered_enough = strcmp(option_str(OPT_SANDBOX_GVISOR_EVIDENCE), "registered") == 0;
    settings->idle_ms = (uint64_t)option_int(OPT_SANDBOX_DOCKER_POOL_IDLE);
    settings->pool_sizes[DOCKER_SNIPPET] = (uint32_t)option_int(OPT_SANDBOX_DOCKER_POOL);
    settings->pool_sizes[DOCKER_PROJECT] = (uint32_t)option_int(OPT_SANDBOX_DOCKER_PROJECT_POOL);
    read_seccomp(docker);
}

void docker_spec(const docker_t *docker, docker_kind_t kind, const image_t *image, container_spec_t *spec)
{
    const docker_promise_t *promise = &docker->settings.promise;
    memset(spec, 0, sizeof(*spec));
    snprintf(spec->image, sizeof(spec->image), "%s", image->id);
    snprintf(spec->runtime, sizeof(spec->runtime), "%s", docker->settings.runtime);
    spec->uid = promise->uid;
    spec->memory_bytes = promise->memory_bytes;
    spec->nano_cpus = promise->nano_cpus;
    spec->pids = promise->pids;
    spec->tmp_mb = (uint32_t)(promise->tmp_bytes / (1024 * 1024));
    spec->shm_mb = (uint32_t)(promise->shm_bytes / (1024 * 1024));
    spec->work_mb = kind == DOCKER_PROJECT ? (uint32_t)(promise->work_bytes / (1024 * 1024)) : 0;
    spec->seccomp = docker->settings.seccomp;
    spec->preboot = kind == DOCKER_SNIPPET ? GUEST_PREBOOT_JAVASCRIPT : GUEST_PREBOOT_NONE;
}
