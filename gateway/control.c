#include "gateway/control.h"

#include <stdio.h>

#include "config/options.h"
#include "core/mem.h"

static char *in_run_dir(const char *name)
{
    enum { PATH_BYTES = 4200 };
    char *path = mem_alloc(PATH_BYTES);
    snprintf(path, PATH_BYTES, "%s/run/%s.sock", option_str(OPT_PLIMSOLL_STATE_DIR), name);
    return path;
}

char *control_backend_path(const char *name)
{
    return in_run_dir(name);
}

char *control_redis_path(void)
{
    return in_run_dir("redis");
}
