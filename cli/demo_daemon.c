#include "cli/demo_daemon.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/options.h"
#include "core/mem.h"

enum {
    ENV_MAX = 20,
    ENV_TEXT_MAX = 4608, /* a PATH of PATH_MAX and its name */
};

bool demo_daemon_find(char out[DEMO_PATH_MAX])
{
    static const char name[] = "plimsolld";
    ssize_t len = readlink("/proc/self/exe", out, DEMO_PATH_MAX - sizeof(name));
    if (len <= 0 || len >= (ssize_t)(DEMO_PATH_MAX - sizeof(name)))
        return false;
    out[len] = '\0';
    char *slash = strrchr(out, '/');
    if (slash == NULL)
        return false;
    memcpy(slash + 1, name, sizeof(name));
    return true;
}

/* The gateway's whole environment: nothing of the demo's own reaches it. */
typedef struct {
    char texts[ENV_MAX][ENV_TEXT_MAX];
    char *list[ENV_MAX + 1];
    size_t count;
} environment_t;

static void __attribute__((format(printf, 2, 3))) set_variable(environment_t *env, const char *fmt, ...)
{
    if (env->count == ENV_MAX)
        mem_fatal("too many variables");
    char *text = env->texts[env->count];
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(text, ENV_TEXT_MAX, fmt, args);
    va_end(args);
    if (len < 0 || len >= ENV_TEXT_MAX)
        mem_fatal("a variable of the demo is too long");
    env->list[env->count++] = text;
    env->list[env->count] = NULL;
}

static environment_t *make_environment(const demo_daemon_t *daemon)
{
    environment_t *env = mem_alloc(sizeof(*env));
    const char *path = options_path(); /* the private Redis is looked up there */
    bool has_path = strlen(path) < ENV_TEXT_MAX - 8;
    set_variable(env, "PATH=%s", has_path ? path : "/usr/sbin:/usr/bin:/sbin:/bin");
    set_variable(env, "PLIMSOLL_ADDR=127.0.0.1:%u", daemon->port);
    set_variable(env, "PLIMSOLL_TOKEN=%s", daemon->token);
    set_variable(env, "PLIMSOLL_METRICS_ADDR=off");
    set_variable(env, "PLIMSOLL_STATE_DIR=%s/state", daemon->dir);
    set_variable(env, "PLIMSOLL_LOG_FORMAT=text");
    for (const char *const *setting = daemon->settings; *setting != NULL; setting++)
        set_variable(env, "%s", *setting);
    return env;
}

pid_t demo_daemon_spawn(const demo_daemon_t *daemon)
{
    environment_t *env = make_environment(daemon);
    char *argv[] = {(char *)daemon->path, NULL};
    pid_t pid = demo_process_spawn(argv, env->list, daemon->log_path);
    int error = errno;
    explicit_bzero(env, sizeof(*env));
    free(env);
    errno = error;
    return pid;
}
