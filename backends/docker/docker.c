#include "backends/docker/docker.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "backends/docker/docker_internal.h"
#include "backends/docker/run.h"
#include "backends/host_id.h"
#include "config/docker.h"
#include "config/options.h"
#include "config/provider.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/sha256.h"

static docker_t *check(void *self)
{
    docker_t *docker = self;
    if (docker->magic != DOCKER_MAGIC)
        mem_fatal("not a docker wall");
    return docker;
}

/* --- what its parts ask --- */

bool docker_is_busy(const docker_t *docker)
{
    return docker->running >= docker->processors;
}

/* A removal waits for runs, and for what will be runs. */
static bool is_busy_for_removal(void *data)
{
    const docker_t *docker = check(data);
    bool is_starting = false;
    for (int kind = 0; kind < DOCKER_KINDS; ++kind)
        is_starting = is_starting || pool_starting(docker->pools[kind]) > 0;
    return is_starting || docker_is_busy(docker);
}

bool docker_owns(const docker_t *docker, const char *name)
{
    return member_exists(docker, name) || teardown_has(docker->teardown, name);
}

void docker_suspect(docker_t *docker)
{
    uint64_t now_ms = clock_mono_ms();
    check(docker);
    if (docker->suspected_ms != 0 && now_ms - docker->suspected_ms < DOCKER_SUSPECT_MS)
        return;
    docker->suspected_ms = now_ms;
    log_event(LOG_WARN, "engine suspected of a restart", log_str("backend", docker->name));
    for (int kind = 0; kind < DOCKER_KINDS; ++kind)
        pool_drain(docker->pools[kind]);
    docker->host->reprove(docker->host->data);
}

/* --- the start --- */

static uint32_t life_of(const docker_t *docker, docker_kind_t kind)
{
    uint32_t run_ms = kind == DOCKER_SNIPPET ? DOCKER_SNIPPET_MAX_MS : DOCKER_PROJECT_MAX_MS;
    return (uint32_t)((docker->settings.idle_ms + run_ms) / 1000);
}

static void set_problem(docker_t *docker, const char *text, int error)
{
    if (docker->problem[0] == '\0')
        snprintf(docker->problem, sizeof(docker->problem), "%s%s%s", text, error != 0 ? ": " : "",
                 error != 0 ? strerror(error) : "");
}

static void create_parts(docker_t *docker)
{
    static const char *const names[DOCKER_KINDS] = {"snippet", "project"};
    char socket[DOCKER_SOCKET_MAX + 1];

    if (strlen(docker_socket_path()) > DOCKER_SOCKET_MAX)
        set_problem(docker, "the path of the Engine's socket is too long", 0);
    snprintf(socket, sizeof(socket), "%s", docker_socket_path());
    docker->engine = engine_create(docker->host->loop, socket);
    docker->teardown = teardown_create(docker->host->loop, docker->engine, is_busy_for_removal, docker);
    for (int kind = 0; kind < DOCKER_KINDS; ++kind) {
        pool_limits_t limits = {
            .size = docker->settings.pool_sizes[kind], .idle_ms = docker->settings.idle_ms, .name = names[kind]};
        docker->pools[kind] = pool_create(docker, &limits);
    }
    docker_tell_ledger(docker);
    docker->reaper = reaper_create(docker);
    if (docker->reaper == NULL)
        set_problem(docker, "the socket that shows this gateway is alive cannot be had", errno);
}

static docker_t *setup(const backend_host_t *host, const char *name)
{
    docker_t *docker = mem_alloc(sizeof(*docker));
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    docker->magic = DOCKER_MAGIC;
    docker->name = name;
    docker->is_gvisor = provider_is_gvisor(provider_find(name));
    docker->host = host;
    docker->kept_group = -1;
    docker->processors = processors > 0 ? (uint32_t)processors : 1;
    turns_init(&docker->turns, host->loop, docker->processors);
    snprintf(docker->instance, sizeof(docker->instance), "%s", host->instance);
    host_id(docker->host_id, sizeof(docker->host_id));
    docker_settings_read(docker);
    create_parts(docker);
    docker->want = (preflight_want_t){.engine = docker->engine,
                                      .runtime = docker->settings.runtime,
                                      .is_gvisor = docker->is_gvisor,
                                      .is_pinned_only = docker->settings.is_pinned_only,
                                      .promise = docker->settings.promise};
    for (int kind = 0; kind < DOCKER_KINDS; ++kind)
        docker->want.references[kind] = docker->settings.references[kind];
    return docker;
}

static void *docker_setup(const backend_host_t *host)
{
    return setup(host, DOCKER_BACKEND.name);
}

static void *gvisor_setup(const backend_host_t *host)
{
    return setup(host, GVISOR_BACKEND.name);
}

/* The Engine's socket belongs to a group as a rule; the sandbox process's link in /proc is another user's (spec 3.4,
 * E3). */
static void wall_privileges(void *self, backend_privileges_t *keep)
{
    docker_t *docker = check(self);
    keep->group = preflight_socket_group(docker_socket_path());
    keep->sees_processes = docker->is_gvisor;
    docker->kept_group = keep->group;
    docker->was_root = geteuid() == 0;
}

/* An Engine that was started after this role, or with another group: what root could have kept then is out of reach
 * now. */
static bool is_group_missed(const docker_t *docker)
{
    const char *path = docker_socket_path();
    int group = preflight_socket_group(path);
    return docker->was_root && group >= 0 && group != docker->kept_group && access(path, W_OK) != 0 && errno == EACCES;
}

/* The parent starts it again, as root. */
static void start_anew(docker_t *docker, char failure[BACKEND_TEXT_MAX])
{
    snprintf(failure, BACKEND_TEXT_MAX,
             "the Docker Engine's socket came, or changed its group, after this role's start: "
             "the role starts anew");
    log_event(LOG_WARN, "engine socket of another group", log_str("backend", docker->name));
    kill(getpid(), SIGTERM);
}

static const char *wall_problem(void *self)
{
    docker_t *docker = check(self);
    return docker->problem[0] != '\0' ? docker->problem : NULL;
}

/* --- facts and proof --- */

static void wall_describe(void *self, backend_facts_t *facts)
{
    docker_t *docker = check(self);
    const docker_promise_t *promise = &docker->settings.promise;

    memset(facts, 0, sizeof(*facts));
    facts->tier = TIER_UNKNOWN;
    facts->javascript.supported = true;
    facts->javascript.max_timeout_ms = DOCKER_SNIPPET_MAX_MS;
    facts->javascript.default_timeout_ms = DOCKER_SNIPPET_DEFAULT_MS;
    facts->javascript.languages[0] = "javascript";
    facts->project.supported = true;
    facts->project.max_timeout_ms = DOCKER_PROJECT_MAX_MS;
    facts->project.default_timeout_ms = DOCKER_PROJECT_DEFAULT_MS;
    facts->memory_mb = (uint32_t)(promise->memory_bytes / (1024 * 1024));
    facts->pids = promise->pids;
    facts->disk_mb = docker_disk_mb();
    facts->cpus = (double)promise->nano_cpus / 1e9;
}

static void tell_kind(backend_kind_t *kind, const image_t *image)
{
    snprintf(kind->environment, sizeof(kind->environment), "%s", image->environment);
    snprintf(kind->software_identity, sizeof(kind->software_identity), "%s", image->software_identity);
}

/* What the sandboxes of both kinds were asked for and read back with, the system call list included: one digest that
 * changes whenever the lockdown does. */
static void tell_policy(const docker_t *docker, char policy[BACKEND_IDENTITY_MAX])
{
    char digests[DOCKER_KINDS][SHA256_HEX + 1], all[DOCKER_KINDS * SHA256_HEX + 1] = "", policy_sha256[SHA256_HEX + 1];
    for (int kind = 0; kind < DOCKER_KINDS; ++kind) {
        container_spec_t spec;
        docker_spec(docker, (docker_kind_t)kind, &docker->preflight.images[kind], &spec);
        container_spec_digest(&spec, digests[kind]);
        memcpy(all + kind * SHA256_HEX, digests[kind], SHA256_HEX);
    }
    sha256_hex(all, sizeof(all) - 1, policy_sha256);
    snprintf(policy, BACKEND_IDENTITY_MAX, "docker-lockdown:sha256:%s", policy_sha256);
}

static void tell(docker_t *docker, backend_facts_t *facts)
{
    size_t languages = 0;
    wall_describe(docker, facts);
    tell_policy(docker, facts->policy);
    facts->tier = docker->smoke.tier;
    if (docker->smoke.evidence != EVIDENCE_NONE)
        facts->evidence = evidence_name(docker->smoke.evidence);
    tell_kind(&facts->javascript, &docker->preflight.images[DOCKER_SNIPPET]);
    tell_kind(&facts->project, &docker->preflight.images[DOCKER_PROJECT]);
    if (docker->smoke.node_version[0] != '\0')
        facts->project.languages[languages++] = "javascript";
    if (docker->smoke.has_python)
        facts->project.languages[languages] = "python";
}

static void set_pools(docker_t *docker)
{
    for (int kind = 0; kind < DOCKER_KINDS; ++kind) {
        const image_t *image = &docker->preflight.images[kind];
        container_spec_t spec;
        docker_spec(docker, (docker_kind_t)kind, image, &spec);
        member_plan_t plan = {.spec = &spec,
                              .role = "pool",
                              .env = image->env,
                              .env_count = image->env_count,
                              .life_s = life_of(docker, (docker_kind_t)kind)};
        pool_set(docker->pools[kind], &plan);
    }
}

/* Nothing is started any more, until the next proof. */
static void withdraw(docker_t *docker)
{
    docker->is_proven = false;
    for (int kind = 0; kind < DOCKER_KINDS; ++kind)
        pool_set(docker->pools[kind], NULL);
}

static bool not_proven(docker_t *docker, backend_facts_t *facts, bool is_untried)
{
    facts->is_untried = is_untried;
    if (!is_untried)
        withdraw(docker);
    return false;
}

static void proven(docker_t *docker, const preflight_t *found, const smoke_t *smoke)
{
    /* Sandboxes of another Engine are none of this one's. */
    if (docker->is_proven && strcmp(docker->preflight.engine_id, found->engine_id) != 0) {
        for (int kind = 0; kind < DOCKER_KINDS; ++kind)
            pool_drain(docker->pools[kind]);
    }
    preflight_copy(&docker->preflight, found);
    docker->smoke = *smoke;
    docker->is_proven = true;
    set_pools(docker);
}

static bool wall_prove(void *self, backend_facts_t *facts, char failure[BACKEND_TEXT_MAX])
{
    docker_t *docker = check(self);
    bool is_untried = false;
    char socket_dir[sizeof(((struct sockaddr_un *)0)->sun_path)];

    if (docker->problem[0] != '\0') {
        snprintf(failure, BACKEND_TEXT_MAX, "%s", docker->problem);
        return false;
    }
    snprintf(socket_dir, sizeof(socket_dir), "%s/run", option_str(OPT_PLIMSOLL_STATE_DIR));
    /* Too large for a coroutine's stack. */
    preflight_t *found = mem_alloc(sizeof(*found));
    bool is_proven = docker_preflight(&docker->want, found, &is_untried, failure);
    if (is_proven) {
        smoke_t smoke = docker->smoke;
        smoke_want_t want = {.engine = docker->engine,
                             .want = &docker->want,
                             .preflight = found,
                             .is_registered_enough = docker->settings.is_registered_enough,
                             .socket_dir = socket_dir,
                             .is_canary = docker->is_proven && preflight_is_same(found, &docker->preflight)};
        snprintf(docker->engine_id, sizeof(docker->engine_id), "%s", found->engine_id);
        reaper_begin(docker->reaper);
        docker_launcher(docker, &want.launcher);
        is_proven = docker_smoke(&want, &smoke, &is_untried, failure);
        if (is_proven)
            proven(docker, found, &smoke);
    }
    free(found);
    if (!is_proven && is_group_missed(docker))
        start_anew(docker, failure);
    if (!is_proven)
        return not_proven(docker, facts, is_untried);
    tell(docker, facts);
    return true;
}

static void wall_run(void *self, backend_run_t *run)
{
    docker_run(check(self), run);
}

/* --- the end --- */

static void wall_stop(void *self)
{
    docker_t *docker = check(self);
    if (docker->reaper != NULL)
        reaper_end(docker->reaper);
    for (int kind = 0; kind < DOCKER_KINDS; ++kind)
        pool_destroy(docker->pools[kind]);
    if (teardown_count(docker->teardown) > 0)
        teardown_flush(docker->teardown, DOCKER_FLUSH_MS);
    /* The liveness socket goes last: until then nobody takes for a leftover what is being removed. */
    teardown_destroy(docker->teardown);
    if (docker->reaper != NULL)
        reaper_destroy(docker->reaper);
    engine_destroy(docker->engine);
    free(docker->settings.seccomp);
    docker->magic = 0;
    free(docker);
}

const backend_ops_t DOCKER_BACKEND = {
    .name = "docker",
    .sandboxes = &DOCKER_SANDBOXES,
    .proof_ms = DOCKER_PROOF_MS,
    .setup = docker_setup,
    .privileges = wall_privileges,
    .check = wall_problem,
    .describe = wall_describe,
    .prove = wall_prove,
    .run = wall_run,
    .stop = wall_stop,
};

const backend_ops_t GVISOR_BACKEND = {
    .name = "gvisor",
    .sandboxes = &DOCKER_SANDBOXES,
    .proof_ms = DOCKER_PROOF_MS,
    .setup = gvisor_setup,
    .privileges = wall_privileges,
    .check = wall_problem,
    .describe = wall_describe,
    .prove = wall_prove,
    .run = wall_run,
    .stop = wall_stop,
};
