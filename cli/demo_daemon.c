#include "cli/demo_daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "config/options.h"
#include "core/mem.h"

enum {
    ENV_MAX = 12,
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
    set_variable(env, "PLIMSOLL_DRAIN=10s");
    set_variable(env, "PLIMSOLL_LOG_FORMAT=text");
    set_variable(env, "SANDBOX_PROVIDER=wasm");
    return env;
}

/* The child after fork: only calls that are safe there. */
static void __attribute__((noreturn))
become_daemon(const demo_daemon_t *daemon, const environment_t *env, int log_fd, pid_t parent)
{
    char *argv[] = {(char *)daemon->path, NULL};
    int null_fd = open("/dev/null", O_RDONLY);
    setpgid(0, 0); /* the terminal's Ctrl-C reaches the demo, which stops the gateway in order */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent || null_fd < 0)
        _exit(127);
    signal(SIGPIPE, SIG_DFL);
    if (dup2(null_fd, 0) < 0 || dup2(log_fd, 1) < 0 || dup2(log_fd, 2) < 0)
        _exit(127);
    execve(daemon->path, argv, env->list);
    _exit(127);
}

pid_t demo_daemon_spawn(const demo_daemon_t *daemon)
{
    environment_t *env = make_environment(daemon);
    int log_fd = open(daemon->log_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    pid_t parent = getpid(), pid = -1;
    if (log_fd >= 0)
        pid = fork();
    if (pid == 0)
        become_daemon(daemon, env, log_fd, parent);
    int error = errno;
    if (pid > 0)
        setpgid(pid, pid); /* whoever of the two comes first */
    if (log_fd >= 0)
        close(log_fd);
    explicit_bzero(env, sizeof(*env));
    free(env);
    errno = error;
    return pid > 0 ? pid : 0;
}
