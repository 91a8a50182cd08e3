#include "backends/docker/docker_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/co.h"
#include "core/mem.h"

enum {
    LAUNCH_MAGIC = 0x6c61756e,
    GONE_LOOK_MS = 20,
    LAUNCH_LIFE_S = 300, /* all a smoke sandbox may take, for its label */
};

typedef struct {
    unsigned magic;
    docker_t *docker;
    member_t *member;
} launched_t;

static launched_t *check(void *sandbox)
{
    launched_t *launched = sandbox;
    if (launched->magic != LAUNCH_MAGIC)
        mem_fatal("not a launched sandbox");
    return launched;
}

static void *launch(void *wall, docker_kind_t kind, const image_t *image, const char *bind,
                    char failure[ENGINE_TEXT_MAX])
{
    docker_t *docker = wall;
    container_spec_t spec;
    docker_spec(docker, kind, image, &spec);
    spec.bind = bind;
    member_plan_t plan = {
        .spec = &spec, .role = "smoke", .env = image->env, .env_count = image->env_count, .life_s = LAUNCH_LIFE_S};
    member_t *member = member_start(docker, &plan, failure);
    if (member == NULL)
        return NULL;
    launched_t *launched = mem_alloc(sizeof(*launched));
    launched->magic = LAUNCH_MAGIC;
    launched->docker = docker;
    launched->member = member;
    return launched;
}

static const char *container_id(void *sandbox)
{
    return member_id(check(sandbox)->member);
}

static int pid(void *sandbox)
{
    return (int)member_pid(check(sandbox)->member);
}

static bool execute(void *sandbox, const guest_job_t *job, uint64_t deadline_us, char failure[ENGINE_TEXT_MAX])
{
    member_t *member = check(sandbox)->member;
    const char *why;
    if (member_give(member, job, deadline_us, &why) != MEMBER_GIVEN) {
        snprintf(failure, ENGINE_TEXT_MAX, "%s", why);
        return false;
    }
    member_wait(member, false, deadline_us, &why);
    return true;
}

static guest_t *guest(void *sandbox)
{
    return member_guest(check(sandbox)->member);
}

static bool dispose(void *sandbox)
{
    launched_t *launched = check(sandbox);
    docker_t *docker = launched->docker;
    char name[ENGINE_NAME_MAX];
    uint64_t until_ms = clock_mono_ms() + SMOKE_GONE_MS;

    snprintf(name, sizeof(name), "%s", member_name(launched->member));
    member_release(launched->member);
    launched->magic = 0;
    free(launched);
    while (teardown_has(docker->teardown, name)) {
        if (clock_mono_ms() >= until_ms || co_sleep(GONE_LOOK_MS) == CO_CANCELED)
            break;
    }
    return !teardown_has(docker->teardown, name);
}

void docker_launcher(docker_t *docker, smoke_launcher_t *launcher)
{
    *launcher = (smoke_launcher_t){.wall = docker,
                                   .launch = launch,
                                   .container_id = container_id,
                                   .pid = pid,
                                   .execute = execute,
                                   .guest = guest,
                                   .dispose = dispose};
}
