#include "backends/docker/docker_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#if __has_include("backends/docker/seccomp.h")
#include "backends/docker/seccomp.h"
#else
#define docker_seccomp_builtin() "{\"defaultAction\": \"SCMP_ACT_ERRNO\"}"
#endif
#include "config/docker.h"
#include "config/options.h"
#include "core/mem.h"

enum { PROFILE_MAX = 1024 * 1024 }; /* bytes of a profile of the operator's; the built-in one has some 4 KiB */

static void *problem(docker_t *docker, const char *fmt, const char *what)
{
    if (docker->problem[0] == '\0')
        snprintf(docker->problem, sizeof(docker->problem), fmt, what);
    return NULL;
}

/* NULL with the problem told. */
static char *read_profile(docker_t *docker, const char *path)
{
    struct stat st;
    char *text = NULL;
    size_t len = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size <= 0 || st.st_size > PROFILE_MAX) {
        problem(docker, "the seccomp profile cannot be used: %s",
                fd < 0 ? strerror(errno) : "not a file of a profile's size");
        goto Exit;
    }
    text = mem_alloc((size_t)st.st_size + 1);
    while (len < (size_t)st.st_size) {
        ssize_t n = read(fd, text + len, (size_t)st.st_size - len);
        if (n <= 0)
            break;
        len += (size_t)n;
    }

Exit:
    if (fd >= 0)
        close(fd);
    return text;
}

/* A profile the Engine would choke on is told before anything is started (spec 3.1 item 8). */
static bool is_profile(const char *text)
{
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    bool is_one = json_is_string(json_object_get(json, "defaultAction"));
    json_decref(json);
    return is_one;
}

static void read_seccomp(docker_t *docker)
{
    docker_settings_t *settings = &docker->settings;
    const char *which = option_str(OPT_SANDBOX_DOCKER_SECCOMP);

    if (docker->is_gvisor)
        return; /* it filters in its own kernel, and installs its own filter outside (spec 6.2) */
    settings->promise.has_filter = strcmp(which, "unconfined") != 0;
    if (strcmp(which, "default") == 0)
        return;
    if (strcmp(which, "unconfined") == 0) {
        settings->seccomp = mem_strdup(which);
        return;
    }
    settings->promise.has_profile = strcmp(which, "builtin") == 0;
    settings->seccomp =
        settings->promise.has_profile ? mem_strdup(docker_seccomp_builtin()) : read_profile(docker, which);
    if (settings->seccomp != NULL && !is_profile(settings->seccomp))
        problem(docker, "%s is not a seccomp profile", which);
}

void docker_settings_read(docker_t *docker)
{
    docker_settings_t *settings = &docker->settings;
    bool is_gvisor_row = strcmp(docker->name, "gvisor") == 0;
    const char *runtime = option_str(is_gvisor_row ? OPT_SANDBOX_GVISOR_RUNTIME : OPT_SANDBOX_DOCKER_RUNTIME);

    if (strlen(runtime) >= sizeof(settings->runtime))
        problem(docker, "the runtime's name is too long: %.80s", runtime);
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
        problem(docker, "%s leaves nothing for /work", "SANDBOX_DISK_MB");
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
