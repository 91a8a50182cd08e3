/*
 * The Docker walls in the ledger. A container's name is its stamp; its removal is the teardown's, which asks the Engine
 * until an exact look-up says that it is gone. What no ledger knows is found by the reaper, by its labels.
 */
#include <stdio.h>
#include <string.h>

#include "backends/docker/docker_internal.h"
#include "core/mem.h"

static docker_t *check(void *self)
{
    docker_t *docker = self;
    if (docker->magic != DOCKER_MAGIC)
        mem_fatal("not a docker wall");
    return docker;
}

const char *docker_stamp_of(const char *name)
{
    size_t len = sizeof(REAPER_NAME_PREFIX) - 1;
    return strncmp(name, REAPER_NAME_PREFIX, len) == 0 && ledger_is_stamp(name + len) ? name + len : "";
}

static void condemn(void *self, const ledger_entry_t *entry)
{
    docker_t *docker = check(self);
    char name[sizeof(REAPER_NAME_PREFIX) + LEDGER_STAMP];
    snprintf(name, sizeof(name), "%s%s", REAPER_NAME_PREFIX, entry->stamp);
    teardown_add(docker->teardown, name, entry->id, TEARDOWN_NOW);
}

static bool is_alive(void *self, const char *instance)
{
    check(self);
    return reaper_is_alive(instance);
}

static const char *place(void *self)
{
    return check(self)->engine_id;
}

const backend_sandboxes_t DOCKER_SANDBOXES = {
    .is_local = true,
    .settle_ms = REAPER_START_S * 1000,
    .condemn = condemn,
    .is_alive = is_alive,
    .place = place,
};

static void on_gone(void *data, const char *name)
{
    role_ledger_gone(check(data)->host->ledger, docker_stamp_of(name));
}

static void on_failed(void *data, const char *name, const char *why)
{
    role_ledger_failed(check(data)->host->ledger, docker_stamp_of(name), why);
}

void docker_tell_ledger(docker_t *docker)
{
    teardown_events_t events = {.on_gone = on_gone, .on_failed = on_failed, .data = docker};
    teardown_tell(docker->teardown, &events);
}
