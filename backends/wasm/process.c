#include "backends/wasm/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/wasm/wire.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/watch.h"

enum {
    PROCESS_MAGIC = 0x77706373,
    EXE_FD_MIN = 10, /* above what the child rearranges before it starts the template */
    CONTROL_FD = 3,  /* the template's end there */
};

typedef enum {
    PROCESS_DOWN,     /* none; the restart timer runs, unless it was never started */
    PROCESS_STARTING, /* started, no hello yet */
    PROCESS_UP,
    PROCESS_DYING, /* killed, not reaped */
} process_state_t;

struct wasm_process {
    unsigned magic;
    loop_t *loop;
    wasm_process_events_t events;
    process_state_t state;
    int exe_fd;
    uint32_t pages, workers;
    pid_t pid;
    int control_fd, pidfd;
    watch_t *control, *death;
    loop_timer_t timer; /* PROCESS_STARTING: the limit; PROCESS_DOWN: the restart */
    uint32_t pause_ms;
    uint64_t up_at;
    char engine[65];
    bool has_namespaces;
};

static void start(wasm_process_t *process);

int wasm_process_open(void)
{
    static const char name[] = "plimsoll-wasm";
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    char *slash;

    if (n < 0)
        return -1;
    path[n] = '\0';
    slash = strrchr(path, '/');
    if (slash == NULL || (size_t)(slash + 1 - path) + sizeof(name) > sizeof(path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(slash + 1, name, sizeof(name));
    int fd = open(path, O_PATH | O_CLOEXEC), high;
    if (fd < 0)
        return -1;
    high = fcntl(fd, F_DUPFD_CLOEXEC, EXE_FD_MIN);
    close(fd);
    return high;
}

static void close_control(wasm_process_t *process)
{
    if (process->control != NULL)
        watch_destroy(process->control);
    if (process->control_fd >= 0)
        close(process->control_fd);
    process->control = NULL;
    process->control_fd = -1;
}

static void pause_then_start(wasm_process_t *process)
{
    process->state = PROCESS_DOWN;
    loop_timer_start(process->loop, &process->timer, process->pause_ms);
    process->pause_ms = process->pause_ms * 2 < WASM_RESTART_MAX_MS ? process->pause_ms * 2 : WASM_RESTART_MAX_MS;
}

void wasm_process_replace(wasm_process_t *process, const char *why)
{
    bool was_up = process->state == PROCESS_UP;
    if (process->state != PROCESS_UP && process->state != PROCESS_STARTING)
        return;
    log_event(LOG_WARN, "wasm template ended", log_str("reason", why), log_int("pid", process->pid));
    if (was_up && clock_mono_ms() - process->up_at >= WASM_HEALTHY_MS)
        process->pause_ms = WASM_RESTART_MIN_MS;
    loop_timer_stop(&process->timer);
    process->state = PROCESS_DYING;
    close_control(process);
    syscall(SYS_pidfd_send_signal, process->pidfd, SIGKILL, NULL, 0);
    if (was_up)
        process->events.on_down(process->events.data);
}

static const char *reason_of(int status)
{
    if (WIFSIGNALED(status))
        return "killed";
    switch (WEXITSTATUS(status)) {
    case WASM_TEMPLATE_ARGUMENTS:
        return "exited: it does not understand its arguments";
    case WASM_TEMPLATE_SETUP:
        return "exited: it could not be set up or confined";
    case WASM_TEMPLATE_CONTEXT:
        return "exited: the engine made no context that runs can share";
    default:
        return "exited";
    }
}

static void on_death(void *data, unsigned events)
{
    wasm_process_t *process = data;
    int status = 0;
    (void)events;
    if (process->magic != PROCESS_MAGIC)
        mem_fatal("not a template process");
    if (waitpid(process->pid, &status, WNOHANG) == 0)
        return;
    wasm_process_replace(process, reason_of(status));
    watch_destroy(process->death);
    process->death = NULL;
    close(process->pidfd);
    process->pidfd = -1;
    process->pid = 0;
    pause_then_start(process);
}

static bool is_engine_hash(const char *text)
{
    return strspn(text, "0123456789abcdef") == 64 && text[64] == '\0';
}

static void on_hello(wasm_process_t *process, const wasm_control_t *message)
{
    loop_timer_stop(&process->timer);
    memcpy(process->engine, message->identity, sizeof(process->engine));
    process->has_namespaces = (message->value & WASM_HELLO_NAMESPACES) != 0;
    process->state = PROCESS_UP;
    process->up_at = clock_mono_ms();
    log_event(LOG_INFO, "wasm template ready", log_int("pid", process->pid), log_str("engine", process->engine),
              log_bool("namespaces", process->has_namespaces));
    process->events.on_up(process->events.data);
}

/* False when the template said what it never would. */
static bool on_control_message(wasm_process_t *process, const wasm_control_t *message, int fd)
{
    const wasm_process_events_t *events = &process->events;
    bool is_up = process->state == PROCESS_UP;
    if (fd >= 0 && (message->op != WASM_CONTROL_FORKED || !is_up)) {
        close(fd);
        return false;
    }
    switch (message->op) {
    case WASM_CONTROL_HELLO:
        if (is_up || message->identity[sizeof(message->identity) - 1] != '\0' || !is_engine_hash(message->identity))
            return false;
        on_hello(process, message);
        return true;
    case WASM_CONTROL_FORKED:
        events->on_forked(events->data, message->serial, message->value, fd);
        return is_up;
    case WASM_CONTROL_UNFORKED:
        events->on_unforked(events->data, message->serial, message->value);
        return is_up;
    case WASM_CONTROL_EXITED:
        events->on_exited(events->data, message->serial, message->value);
        return is_up;
    default:
        return false;
    }
}

static void on_control(void *data, unsigned events)
{
    wasm_process_t *process = data;
    (void)events;
    if (process->magic != PROCESS_MAGIC)
        mem_fatal("not a template process");
    while (process->control != NULL) {
        wasm_control_t message;
        union {
            char space[CMSG_SPACE(sizeof(int))];
            struct cmsghdr align;
        } extra;
        struct iovec part = {.iov_base = &message, .iov_len = sizeof(message)};
        struct msghdr header = {
            .msg_iov = &part, .msg_iovlen = 1, .msg_control = extra.space, .msg_controllen = sizeof(extra.space)};
        int fd = -1;
        ssize_t n = recvmsg(process->control_fd, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        for (struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&header) : NULL; c != NULL; c = CMSG_NXTHDR(&header, c)) {
            if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int)))
                memcpy(&fd, CMSG_DATA(c), sizeof(int));
        }
        if (n <= 0) {
            wasm_process_replace(process, "control socket closed");
            return;
        }
        if (n != sizeof(message) || (header.msg_flags & MSG_TRUNC) != 0) {
            if (fd >= 0)
                close(fd);
            wasm_process_replace(process, "control message of a wrong size");
            return;
        }
        if (!on_control_message(process, &message, fd)) {
            wasm_process_replace(process, "control message out of place");
            return;
        }
    }
}

static void on_timer(loop_timer_t *timer)
{
    wasm_process_t *process = timer->data;
    if (process->magic != PROCESS_MAGIC)
        mem_fatal("not a template process");
    if (process->state == PROCESS_STARTING)
        wasm_process_replace(process, "no hello in time");
    else if (process->state == PROCESS_DOWN)
        start(process);
}

/* In the child: system calls only. */
static void become_template(const wasm_process_t *process, int control_fd, char *const argv[])
    __attribute__((noreturn));
static void become_template(const wasm_process_t *process, int control_fd, char *const argv[])
{
    static char *const no_environment[] = {NULL};
    struct rlimit stack;
    /* Set before the start, as the kernel lays out the address space by it. */
    if (getrlimit(RLIMIT_STACK, &stack) == 0) {
        rlim_t wanted = WASM_STACK_BYTES;
        stack.rlim_cur = stack.rlim_max == RLIM_INFINITY || stack.rlim_max > wanted ? wanted : stack.rlim_max;
        setrlimit(RLIMIT_STACK, &stack);
    }
    if (control_fd == CONTROL_FD ? fcntl(CONTROL_FD, F_SETFD, 0) != 0 : dup2(control_fd, CONTROL_FD) != CONTROL_FD)
        _exit(127);
    for (int fd = 0; fd < CONTROL_FD; ++fd)
        close(fd);
    close_range(CONTROL_FD + 1, ~0U, CLOSE_RANGE_CLOEXEC);
    syscall(SYS_execveat, process->exe_fd, "", argv, no_environment, AT_EMPTY_PATH);
    _exit(127);
}

static void start(wasm_process_t *process)
{
    int pair[2] = {-1, -1};
    char control[12], pages[12], workers[12];
    char *argv[] = {"plimsoll-wasm", control, pages, workers, NULL};
    const char *failed = "socketpair";

    process->state = PROCESS_DOWN;
    if (process->exe_fd < 0) {
        errno = ENOENT;
        failed = "plimsoll-wasm beside the executable";
        goto Failed;
    }
    snprintf(control, sizeof(control), "%d", CONTROL_FD);
    snprintf(pages, sizeof(pages), "%u", process->pages);
    snprintf(workers, sizeof(workers), "%u", process->workers);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        goto Failed;
    failed = "fork";
    pid_t pid = fork();
    if (pid == 0)
        become_template(process, pair[1], argv);
    if (pid < 0)
        goto Failed;
    close(pair[1]);
    process->pid = pid;
    process->control_fd = pair[0];
    process->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    process->control = watch_create(process->loop, process->control_fd, on_control, process);
    process->death = process->pidfd >= 0 ? watch_create(process->loop, process->pidfd, on_death, process) : NULL;
    if (process->control == NULL || process->death == NULL)
        mem_fatal("no descriptors for the wasm template");
    process->state = PROCESS_STARTING;
    watch_set(process->control, WATCH_READ);
    watch_set(process->death, WATCH_READ);
    loop_timer_start(process->loop, &process->timer, WASM_START_MS);
    return;

Failed:
    log_event(LOG_ERROR, "wasm template not started", log_str("failed", failed), log_str("error", strerror(errno)));
    if (pair[0] >= 0) {
        close(pair[0]);
        close(pair[1]);
    }
    pause_then_start(process);
}

wasm_process_t *wasm_process_create(loop_t *loop, int exe_fd, uint32_t pages, uint32_t workers,
                                    const wasm_process_events_t *events)
{
    wasm_process_t *process = mem_alloc(sizeof(*process));
    process->magic = PROCESS_MAGIC;
    process->loop = loop;
    process->events = *events;
    process->exe_fd = exe_fd;
    process->pages = pages;
    process->workers = workers;
    process->control_fd = process->pidfd = -1;
    process->pause_ms = WASM_RESTART_MIN_MS;
    loop_timer_init(&process->timer, on_timer, process);
    return process;
}

void wasm_process_start(wasm_process_t *process)
{
    if (process->state == PROCESS_DOWN && !loop_timer_is_running(&process->timer))
        start(process);
}

void wasm_process_destroy(wasm_process_t *process)
{
    loop_timer_stop(&process->timer);
    close_control(process);
    if (process->pid != 0) {
        int status;
        /* Killed, so the wait is short whatever it was doing. */
        syscall(SYS_pidfd_send_signal, process->pidfd, SIGKILL, NULL, 0);
        while (waitpid(process->pid, &status, 0) < 0 && errno == EINTR)
            ;
        watch_destroy(process->death);
        close(process->pidfd);
    }
    if (process->exe_fd >= 0)
        close(process->exe_fd);
    process->magic = 0;
    free(process);
}

bool wasm_process_is_up(const wasm_process_t *process)
{
    return process->state == PROCESS_UP;
}

const char *wasm_process_engine(const wasm_process_t *process)
{
    return process->engine;
}

bool wasm_process_has_namespaces(const wasm_process_t *process)
{
    return process->has_namespaces;
}

int wasm_process_pid(const wasm_process_t *process)
{
    return process->state == PROCESS_UP || process->state == PROCESS_STARTING ? process->pid : 0;
}

bool wasm_process_fork(wasm_process_t *process, uint32_t serial, int worker_fd, bool is_probe)
{
    wasm_control_t message = {
        .op = WASM_CONTROL_FORK, .serial = serial, .value = is_probe ? WASM_FORK_PROBE : WASM_FORK_RUN};
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } extra;
    struct iovec part = {.iov_base = &message, .iov_len = sizeof(message)};
    struct msghdr header = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = extra.space, .msg_controllen = sizeof(extra.space)};
    ssize_t n;

    if (process->state != PROCESS_UP)
        return false;
    memset(&extra, 0, sizeof(extra));
    struct cmsghdr *c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &worker_fd, sizeof(int));
    do
        n = sendmsg(process->control_fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    return n == sizeof(message);
}
