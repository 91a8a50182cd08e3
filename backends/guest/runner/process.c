#include "backends/guest/runner/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATH_BYTES_MAX = 4096, DESCRIPTORS_MAX = 4096, STAT_BYTES_MAX = 512, KIN_MAX = 4096 };

static const char PATH_DEFAULT[] = "/usr/local/bin:/usr/bin:/bin";

uint64_t process_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

const char *process_init(process_world_t *world)
{
    sigset_t all, child;
    /* Blocked, not ignored: a kernel that does not shield PID 1 (gVisor) delivers none of them either. */
    sigfillset(&all);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    if (sigprocmask(SIG_SETMASK, &all, NULL) != 0)
        return "sigprocmask";
    signal(SIGPIPE, SIG_IGN);
    world->signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    return world->signals < 0 ? "signalfd" : NULL;
}

static void close_one(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void process_close(process_t *process)
{
    close_one(&process->in);
    close_one(&process->out);
    close_one(&process->err);
}

static bool make_quiet(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

/* Our ends in `process`, theirs in `ends`. false with errno set. */
static bool open_pipes(process_t *process, int ends[3], bool has_input)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1};
    bool is_open = pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0;
    if (is_open && has_input) {
        is_open = pipe2(in, O_CLOEXEC) == 0;
    } else if (is_open) {
        in[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        /* an image without it: a pipe nobody writes to reads the same */
        if (in[0] < 0 && (is_open = pipe2(in, O_CLOEXEC) == 0))
            close_one(&in[1]);
    }
    ends[0] = in[0];
    ends[1] = out[1];
    ends[2] = err[1];
    *process = (process_t){.in = in[1], .out = out[0], .err = err[0]};
    return is_open && (in[1] < 0 || make_quiet(in[1])) && make_quiet(out[0]) && make_quiet(err[0]);
}

static const char *find_path(char **env)
{
    for (; *env != NULL; env++)
        if (strncmp(*env, "PATH=", 5) == 0)
            return *env + 5;
    return PATH_DEFAULT;
}

static bool is_program(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* Only absolute directories count: a guest writes the others. */
static bool find_program(char **env, const char *name, char found[PATH_BYTES_MAX])
{
    size_t name_len = strlen(name);
    const char *at = find_path(env);
    if (strchr(name, '/') != NULL) {
        if (name_len >= PATH_BYTES_MAX)
            return false;
        memcpy(found, name, name_len + 1);
        return true;
    }
    while (*at != '\0') {
        size_t len = strcspn(at, ":");
        if (len != 0 && at[0] == '/' && len + 1 + name_len < PATH_BYTES_MAX) {
            memcpy(found, at, len);
            found[len] = '/';
            memcpy(found + len + 1, name, name_len + 1);
            if (is_program(found))
                return true;
        }
        at += len + (at[len] == ':');
    }
    return false;
}

static int spawn(const process_world_t *world, pid_t *pid, const char *path, char *const argv[], const int ends[3])
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    int err = 0;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    for (int i = 0; err == 0 && i < 3; i++)
        err = posix_spawn_file_actions_adddup2(&actions, ends[i], i);
    if (err == 0)
        err = posix_spawn_file_actions_addchdir_np(&actions, world->directory);
    if (err == 0)
        err = posix_spawn(pid, path, &actions, &attributes, argv, world->env);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return err;
}

static int end_start(process_t *process, int ends[3], int err)
{
    for (int i = 0; i < 3; i++)
        close_one(&ends[i]);
    if (err != 0) {
        process_close(process);
        process->pid = 0;
    }
    return err;
}

int process_start(process_world_t *world, process_t *process, char *const argv[], bool has_input)
{
    char path[PATH_BYTES_MAX];
    int ends[3];
    if (!open_pipes(process, ends, has_input))
        return end_start(process, ends, errno);
    if (!find_program(world->env, argv[0], path))
        return end_start(process, ends, ENOENT);
    return end_start(process, ends, spawn(world, &process->pid, path, argv, ends));
}

static void become_guest(const process_world_t *world, const int ends[3])
{
    sigset_t none;
    setsid();
    for (int i = 0; i < 3; i++)
        if (dup2(ends[i], i) < 0)
            _exit(126);
    for (int fd = 3; fd < DESCRIPTORS_MAX; fd++)
        close(fd);
    if (chdir(world->directory) != 0)
        _exit(126);
    signal(SIGPIPE, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    environ = world->env;
    /* what a program started by exec would be */
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

int process_fork(process_world_t *world, process_t *process, void (*prepare)(void *data), int (*run)(void *data),
                 void *data)
{
    int ends[3];
    if (!open_pipes(process, ends, false))
        return end_start(process, ends, errno);
    process->pid = fork();
    if (process->pid == 0) {
        prepare(data);
        become_guest(world, ends);
        exit(run(data) & 0xff);
    }
    return end_start(process, ends, process->pid < 0 ? errno : 0);
}

static void drain_signals(const process_world_t *world)
{
    struct signalfd_siginfo info[8];
    while (read(world->signals, info, sizeof(info)) > 0)
        ;
}

/* How many were reaped; *is_empty when no process is left. */
static size_t reap(process_t *process, bool *is_empty)
{
    size_t count = 0;
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid < 0 && errno == EINTR)
            continue;
        if (pid <= 0) {
            *is_empty = pid < 0;
            return count;
        }
        count++;
        if (process != NULL && pid == process->pid && !process->has_ended) {
            process->has_ended = true;
            process->status = status;
        }
    }
}

bool process_reap(process_world_t *world, process_t *process)
{
    bool is_empty;
    drain_signals(world);
    reap(process, &is_empty);
    return process->has_ended;
}

/* The parent of a process, from /proc/PID/stat (proc(5)): the name in brackets may hold anything. -1 when it is gone.
 */
static pid_t parent_of(pid_t pid)
{
    char path[32], text[STAT_BYTES_MAX];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *end = strrchr(text, ')'); /* then " S PARENT " */
    return end != NULL && strlen(end) > 4 ? (pid_t)strtol(end + 4, NULL, 10) : -1;
}

typedef struct {
    pid_t pid, parent;
    bool is_ours;
} kin_t;

static size_t read_processes(kin_t list[KIN_MAX])
{
    const struct dirent *entry;
    size_t count = 0;
    DIR *proc = opendir("/proc");
    while (proc != NULL && count < KIN_MAX && (entry = readdir(proc)) != NULL) {
        pid_t pid = atoi(entry->d_name);
        if (pid > 0)
            list[count++] = (kin_t){.pid = pid, .parent = parent_of(pid)};
    }
    if (proc != NULL)
        closedir(proc);
    return count;
}

static bool is_kin(const kin_t *list, size_t count, pid_t parent)
{
    if (parent == getpid())
        return true;
    for (size_t i = 0; i < count; i++)
        if (list[i].pid == parent)
            return list[i].is_ours;
    return false;
}

/* Children, and all that came of them, at once: of those killed one generation a round a bomb has made more by the
 * next. Orphans become children of ours, so nothing of the job's is missed for long. */
static void kill_descendants(void)
{
    static kin_t list[KIN_MAX];
    size_t count = read_processes(list);
    for (bool is_more = true; is_more;) {
        is_more = false;
        for (size_t i = 0; i < count; i++) {
            if (list[i].is_ours || !is_kin(list, count, list[i].parent))
                continue;
            list[i].is_ours = is_more = true;
            kill(list[i].pid, SIGKILL);
        }
    }
}

bool process_kill_all(process_world_t *world, process_t *process)
{
    uint64_t until = process_now_us() + PROCESS_KILL_MS * 1000;
    for (int round = 0; round < PROCESS_ROUNDS && process_now_us() < until;) {
        bool is_empty;
        if (world->is_among_others)
            kill_descendants();
        else
            kill(-1, SIGKILL); /* from PID 1: every other process there is */
        drain_signals(world);
        size_t count = reap(process, &is_empty);
        if (is_empty)
            return true;
        struct pollfd p = {.fd = world->signals, .events = POLLIN};
        if (poll(&p, 1, PROCESS_ROUND_MS) == 0 && count == 0)
            round++;
    }
    return false;
}
