#include "backends/docker/preflight.h"

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/docker.h"
#include "core/clock.h"
#include "core/log.h"

enum { MEGABYTE = 1024 * 1024, WARNINGS_LOGGED_MAX = 8 };

static bool fail(char failure[BACKEND_TEXT_MAX], const char *what)
{
    snprintf(failure, BACKEND_TEXT_MAX, "%s", what);
    return false;
}

/* --- the answer of /info --- */

/* As images name it; the Engine says it as uname does. */
static const char *image_arch(const char *machine)
{
    static const struct {
        const char *machine, *arch;
    } names[] = {{"x86_64", "amd64"},    {"aarch64", "arm64"},   {"armv7l", "arm"},
                 {"ppc64le", "ppc64le"}, {"riscv64", "riscv64"}, {"s390x", "s390x"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        if (strcmp(machine, names[i].machine) == 0)
            return names[i].arch;
    }
    return "";
}

static const char *string_of(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value != NULL ? value : "";
}

/* What has no limit has no wall (3.1 item 4). */
static bool vet_controllers(const json_t *info, char failure[BACKEND_TEXT_MAX])
{
    static const struct {
        const char *key, *what;
    } needed[] = {
        {"MemoryLimit", "cannot limit memory: turn the kernel's memory cgroup controller on"},
        {"SwapLimit", "cannot limit swap: start the kernel with swapaccount=1, or use cgroup version 2"},
        {"PidsLimit", "cannot limit processes: turn the kernel's pids cgroup controller on"},
        {"CpuCfsQuota", "cannot limit processors: the kernel needs CONFIG_CFS_BANDWIDTH and its cpu cgroup controller"},
    };
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); ++i) {
        if (!json_is_true(json_object_get(info, needed[i].key))) {
            snprintf(failure, BACKEND_TEXT_MAX, "the Docker Engine %s", needed[i].what);
            return false;
        }
    }
    return true;
}

static bool has_seccomp(const json_t *info)
{
    size_t i;
    json_t *option;
    json_array_foreach(json_object_get(info, "SecurityOptions"), i, option)
    {
        const char *text = json_string_value(option);
        /* "name=seccomp,profile=default"; "seccomp" of old */
        if (text != NULL && strstr(text, "seccomp") != NULL)
            return true;
    }
    return false;
}

static bool not_registered(const json_t *info, const preflight_want_t *want, char failure[BACKEND_TEXT_MAX])
{
    char known[96] = "";
    size_t used = 0;
    const char *name;
    json_t *runtime;
    if (want->is_gvisor) {
        snprintf(failure, BACKEND_TEXT_MAX,
                 "the Docker Engine has no runtime %.64s: run backends/docker/install-gvisor, or set "
                 "SANDBOX_GVISOR_RUNTIME to the name gVisor is registered under",
                 want->runtime);
        return false;
    }
    json_object_foreach((json_t *)info, name, runtime)
    {
        if (strlen(name) + 3 < sizeof(known) - used)
            used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", used > 0 ? ", " : "", name);
    }
    snprintf(failure, BACKEND_TEXT_MAX,
             "the Docker Engine has no runtime %.64s; set SANDBOX_DOCKER_RUNTIME to one of: %s", want->runtime, known);
    return false;
}

/* A wall that promises gVisor is refused any other runtime, and a runtime that calls itself runsc must be one. */
static bool vet_runtime(const json_t *info, const preflight_want_t *want, preflight_t *out,
                        char failure[BACKEND_TEXT_MAX])
{
    bool promises_gvisor = want->is_gvisor || strcmp(want->runtime, "runsc") == 0;
    if (!evidence_registered(info, want->runtime, &out->runtime))
        return not_registered(json_object_get(info, "Runtimes"), want, failure);
    if (promises_gvisor && !out->runtime.is_gvisor) {
        snprintf(failure, BACKEND_TEXT_MAX,
                 "the runtime %.64s is registered with a program that is not named runsc: run "
                 "backends/docker/install-gvisor",
                 want->runtime);
        return false;
    }
    if (!out->runtime.is_gvisor)
        return has_seccomp(info) || fail(failure, "the Docker Engine has no seccomp: its machine's kernel, or the "
                                                  "Engine itself, was built without");
    if (want->needs_host_socket && !evidence_has_host_sockets(&out->runtime)) {
        snprintf(failure, BACKEND_TEXT_MAX,
                 "the runtime %.64s does not let host sockets in, which grants need: register it with --host-uds=open "
                 "(releases before 2023: --fsgofer-host-uds)",
                 want->runtime);
        return false;
    }
    return true;
}

/* gVisor's own memory and threads count (8 (7), 8 (8)): below these its sandbox dies of itself. */
static bool vet_limits(const preflight_want_t *want, bool is_gvisor, char failure[BACKEND_TEXT_MAX])
{
    const docker_promise_t *promise = &want->promise;
    if (is_gvisor && promise->memory_bytes < (uint64_t)PREFLIGHT_RUNSC_MEMORY_MIN_MB * MEGABYTE) {
        snprintf(failure, BACKEND_TEXT_MAX, "SANDBOX_MEMORY_MB is below %d, which gVisor needs",
                 PREFLIGHT_RUNSC_MEMORY_MIN_MB);
        return false;
    }
    if (is_gvisor && promise->pids < PREFLIGHT_RUNSC_PIDS_MIN) {
        snprintf(failure, BACKEND_TEXT_MAX, "SANDBOX_PIDS is below %d, which gVisor's own threads need",
                 PREFLIGHT_RUNSC_PIDS_MIN);
        return false;
    }
    return promise->work_bytes >= PREFLIGHT_WORK_MIN_BYTES ||
           fail(failure, "SANDBOX_DISK_MB leaves less than 1 MiB for /work: /tmp and /dev/shm take their part first");
}

static void log_warnings(const json_t *info, const preflight_want_t *want, const preflight_t *out)
{
    size_t i;
    json_t *warning;
    json_array_foreach(json_object_get(info, "Warnings"), i, warning)
    {
        if (i < WARNINGS_LOGGED_MAX)
            log_event(LOG_WARN, "docker engine warning", log_str("warning", json_string_value(warning)));
    }
    const char *network = evidence_flag(&out->runtime, "network");
    if (out->runtime.is_gvisor && (network == NULL || strcmp(network, "none") != 0))
        log_event(LOG_WARN, "gvisor without --network=none", log_str("runtime", want->runtime));
}

bool preflight_vet_info(const json_t *info, const preflight_want_t *want, preflight_t *out,
                        char failure[BACKEND_TEXT_MAX])
{
    const char *version = string_of(info, "CgroupVersion");
    if (!json_is_object(info) || strcmp(string_of(info, "OSType"), "linux") != 0)
        return fail(failure, "the Docker Engine does not run Linux containers");
    snprintf(out->engine_id, sizeof(out->engine_id), "%s", string_of(info, "ID"));
    snprintf(out->engine_version, sizeof(out->engine_version), "%s", string_of(info, "ServerVersion"));
    snprintf(out->arch, sizeof(out->arch), "%s", image_arch(string_of(info, "Architecture")));
    out->cgroup_version = strcmp(version, "2") == 0 ? 2 : 1;
    if (out->arch[0] == '\0') {
        snprintf(failure, BACKEND_TEXT_MAX,
                 "the Docker Engine's machine is a %.64s, for which there are no guest images",
                 string_of(info, "Architecture"));
        return false;
    }
    return vet_controllers(info, failure) && vet_runtime(info, want, out, failure) &&
           vet_limits(want, out->runtime.is_gvisor, failure);
}

/* --- the Engine's socket --- */

static const char *group_name(gid_t gid, char number[24])
{
    const struct group *group = getgrgid(gid);
    if (group != NULL)
        return group->gr_name;
    snprintf(number, 24, "%u", (unsigned)gid);
    return number;
}

/* What stands between this process and the Engine is told better by the socket's file than by a failed connection. */
static void explain_unreachable(const char *path, const char *said, char failure[BACKEND_TEXT_MAX])
{
    struct stat file;
    char number[24];
    if (stat(path, &file) != 0 && errno == ENOENT)
        snprintf(failure, BACKEND_TEXT_MAX,
                 "there is no Docker Engine at %.107s: start it, or set SANDBOX_DOCKER_SOCKET", path);
    else if (access(path, W_OK) != 0 && errno == EACCES)
        snprintf(failure, BACKEND_TEXT_MAX,
                 "no right to the Docker Engine's socket %.107s: start plimsolld as root, or add its user to the "
                 "socket's group, %.32s",
                 path, stat(path, &file) == 0 ? group_name(file.st_gid, number) : "which cannot be seen");
    else
        snprintf(failure, BACKEND_TEXT_MAX, "the Docker Engine at %.107s cannot be used: %.110s", path, said);
}

int preflight_socket_group(const char *path)
{
    struct stat file;
    return stat(path, &file) == 0 && (file.st_mode & S_IWGRP) != 0 ? (int)file.st_gid : -1;
}

/* --- all of it --- */

static uint32_t left_ms(uint64_t until_ms)
{
    uint64_t now_ms = clock_mono_ms();
    return now_ms < until_ms ? (uint32_t)(until_ms - now_ms) : 1;
}

static bool ask_info(const preflight_want_t *want, uint64_t until_ms, preflight_t *out, bool *is_untried,
                     char failure[BACKEND_TEXT_MAX])
{
    engine_answer_t answer;
    char said[ENGINE_TEXT_MAX];
    bool is_vetted = false;
    if (!engine_negotiate(want->engine, left_ms(until_ms), said)) {
        explain_unreachable(engine_socket(want->engine), said, failure);
        return false;
    }
    engine_info(want->engine, left_ms(until_ms), &answer);
    *is_untried = answer.outcome == ENGINE_UNKNOWN || answer.outcome == ENGINE_CANCELED;
    if (answer.outcome == ENGINE_OK) {
        is_vetted = preflight_vet_info(answer.json, want, out, failure);
        log_warnings(answer.json, want, out);
    } else {
        snprintf(failure, BACKEND_TEXT_MAX, "the Docker Engine does not tell about itself: %s %.150s",
                 engine_outcome_name(answer.outcome), answer.text);
    }
    engine_answer_dispose(&answer);
    return is_vetted;
}

bool docker_preflight(const preflight_want_t *want, preflight_t *out, bool *is_untried, char failure[BACKEND_TEXT_MAX])
{
    uint64_t until_ms = clock_mono_ms() + PREFLIGHT_CALL_MS;
    memset(out, 0, sizeof(*out));
    *is_untried = false;
    if (!preflight_vet_uid(want->promise.uid, NULL, NULL, failure) ||
        !ask_info(want, until_ms, out, is_untried, failure))
        return false;
    for (size_t kind = 0; kind < DOCKER_KINDS; ++kind) {
        const image_want_t image = {
            .reference = want->references[kind], .is_pinned_only = want->is_pinned_only, .arch = out->arch};
        if (!image_find(want->engine, &image, left_ms(until_ms), &out->images[kind], is_untried, failure))
            return false;
    }
    if (out->runtime.is_gvisor)
        evidence_read_file(&out->runtime);
    return true;
}

static bool is_same_runtime(const evidence_runtime_t *a, const evidence_runtime_t *b)
{
    if (strcmp(a->path, b->path) != 0 || a->is_file != b->is_file || strcmp(a->sha256, b->sha256) != 0 ||
        a->device != b->device || a->inode != b->inode || a->flag_count != b->flag_count)
        return false;
    for (size_t i = 0; i < a->flag_count; ++i) {
        if (strcmp(a->flags[i], b->flags[i]) != 0)
            return false;
    }
    return true;
}

bool preflight_is_same(const preflight_t *a, const preflight_t *b)
{
    for (size_t kind = 0; kind < DOCKER_KINDS; ++kind) {
        /* The content ID decides what is in it, the identity what is claimed of it. */
        if (strcmp(a->images[kind].id, b->images[kind].id) != 0 ||
            strcmp(a->images[kind].software_identity, b->images[kind].software_identity) != 0)
            return false;
    }
    return strcmp(a->engine_id, b->engine_id) == 0 && strcmp(a->engine_version, b->engine_version) == 0 &&
           is_same_runtime(&a->runtime, &b->runtime);
}

void preflight_copy(preflight_t *to, const preflight_t *from)
{
    *to = *from;
    for (size_t kind = 0; kind < DOCKER_KINDS; ++kind)
        image_copy(&to->images[kind], &from->images[kind]);
}
