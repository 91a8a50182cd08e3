#include "backends/cloud/cloud.h"

#include "core/mem.h"

enum { WALL_MAGIC = 0x636c776c };

static cloud_wall_t *check(void *self)
{
    cloud_wall_t *wall = self;
    if (wall->magic != WALL_MAGIC)
        mem_fatal("not a cloud wall");
    return wall;
}

void cloud_wall_begin(cloud_wall_t *wall, cloud_settings_t settings)
{
    wall->magic = WALL_MAGIC;
    settings.problem = cloud_wall_problem(wall);
    wall->cloud = cloud_create(&settings);
}

const char *cloud_wall_problem(void *self)
{
    const cloud_wall_t *wall = check(self);
    return wall->problem[0] != '\0' ? wall->problem : NULL;
}

void cloud_wall_describe(void *self, backend_facts_t *facts)
{
    cloud_describe(check(self)->cloud, facts);
}

bool cloud_wall_prove(void *self, backend_facts_t *facts, char failure[BACKEND_TEXT_MAX])
{
    return cloud_prove(check(self)->cloud, facts, failure);
}

void cloud_wall_run(void *self, backend_run_t *run)
{
    cloud_run(check(self)->cloud, run);
}
