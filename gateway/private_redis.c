#include "gateway/private_redis.h"

#include <stdio.h>

#include "config/options.h"
#include "core/mem.h"
#include "gateway/control.h"

void private_redis_prepare(child_t *child, const char *program, const char *state, int uid, int gid)
{
    enum { PATH_BYTES = 4200, ARGS = 40 };
    static char path_setting[PATH_BYTES];
    static char *env[2] = {path_setting, NULL};
    char *dir = mem_alloc(PATH_BYTES);
    char **argv = mem_alloc_array(ARGS, sizeof(*argv));
    size_t n = 0;
    snprintf(dir, PATH_BYTES, "%s/redis", state);
    snprintf(path_setting, sizeof(path_setting), "PATH=%s", options_path());
    const char *const args[] = {
        program, "--port", "0", "--unixsocket", control_redis_path(), "--unixsocketperm", "600", "--dir", dir,
        "--daemonize", "no", "--appendonly", "yes",
        /* a claim must outlive a kill: everysec may hold writes back for two seconds while a sync runs */
        "--appendfsync", "always", "--save", "", "--maxmemory-policy", "noeviction", "--logfile", "redis.log",
        "--supervised", "no", "--always-show-logo", "no", "--tcp-keepalive", "0", "--databases", "1"};
    for (size_t i = 0; i < sizeof(args) / sizeof(args[0]); i++)
        argv[n++] = (char *)args[i];
    *child = (child_t){.name = "redis-server",
                       .program = program,
                       .argv = argv,
                       .env = env,
                       .quiet = true,
                       .own_group = true,
                       .uid = uid,
                       .gid = gid};
}
