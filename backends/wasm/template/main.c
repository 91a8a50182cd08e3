/*
 * The template of the wasm wall: `plimsoll-wasm CONTROL_FD MAX_PAGES MAX_WORKERS`, started by the wasm role alone.
 * Boots the engine, then forks a worker for each socket it is handed and reports how each ended. It reads no byte of
 * any guest and holds no secret. Ends when the role does.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/wasm/template/confine.h"
#include "backends/wasm/template/engine.h"
#include "backends/wasm/template/shim.h"
#include "backends/wasm/template/worker.h"
#include "backends/wasm/wire.h"

#ifndef ENGINE_SHA256
#error "the build states which module this is"
#endif

enum {
    STACK_MIN = 8 * 1024 * 1024
}; /* native stack a worker needs for what 512 KiB of the module's own stack can hold */

typedef struct {
    pid_t pid; /* 0 = free */
    uint32_t serial;
} worker_t;

static int control_fd;
static worker_t workers[WASM_WORKERS_MAX];
static uint32_t worker_max;

static bool control_send(uint32_t op, uint32_t serial, int32_t value, int fd)
{
    wasm_control_t message = {.op = op, .serial = serial, .value = value};
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } extra;
    struct iovec part = {.iov_base = &message, .iov_len = sizeof(message)};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t n;

    if (op == WASM_CONTROL_HELLO)
        memcpy(message.identity, ENGINE_SHA256, sizeof(ENGINE_SHA256));
    if (fd >= 0) {
        memset(&extra, 0, sizeof(extra));
        header.msg_control = extra.space;
        header.msg_controllen = sizeof(extra.space);
        struct cmsghdr *c = CMSG_FIRSTHDR(&header);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &fd, sizeof(int));
    }
    do
        n = sendmsg(control_fd, &header, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n == sizeof(message);
}

/* The message and the descriptor beside it (-1 = none). False at the role's end. */
static bool control_receive(wasm_control_t *message, int *fd)
{
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } extra;
    struct iovec part = {.iov_base = message, .iov_len = sizeof(*message)};
    struct msghdr header = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = extra.space, .msg_controllen = sizeof(extra.space)};
    ssize_t n;

    *fd = -1;
    do
        n = recvmsg(control_fd, &header, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n != sizeof(*message))
        return false;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&header); c != NULL; c = CMSG_NXTHDR(&header, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int)))
            memcpy(fd, CMSG_DATA(c), sizeof(int));
    }
    return true;
}

static worker_t *worker_find(pid_t pid)
{
    for (uint32_t i = 0; i < worker_max; ++i) {
        if (workers[i].pid == pid)
            return &workers[i];
    }
    return NULL;
}

static bool worker_fork(uint32_t serial, int fd, bool is_probe)
{
    worker_t *worker = worker_find(0);
    pid_t template_pid = getpid(), pid;
    int pidfd;

    if (worker == NULL || fd < 0)
        return control_send(WASM_CONTROL_UNFORKED, serial, worker == NULL ? EAGAIN : EBADF, -1);
    if ((pid = fork()) == 0)
        worker_main(fd, template_pid, is_probe);
    if (pid < 0)
        return control_send(WASM_CONTROL_UNFORKED, serial, errno, -1);
    worker->pid = pid;
    worker->serial = serial;
    /* The role kills by this descriptor: a number could by then be another process's. Without one the worker is of no
     * use. */
    pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    bool ok = control_send(WASM_CONTROL_FORKED, serial, pid, pidfd);
    if (pidfd >= 0)
        close(pidfd);
    return ok;
}

static bool workers_reap(void)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        worker_t *worker = worker_find(pid);
        if (worker == NULL)
            continue;
        worker->pid = 0;
        if (!control_send(WASM_CONTROL_EXITED, worker->serial, status, -1))
            return false;
    }
    return true;
}

static bool parse_number(const char *text, uint32_t min, uint32_t max, uint32_t *out)
{
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < min || value > max)
        return false;
    *out = (uint32_t)value;
    return true;
}

static bool has_stack(void)
{
    struct rlimit stack;
    return getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur >= STACK_MIN;
}

int main(int argc, char **argv)
{
    uint32_t fd, pages;
    sigset_t children;
    int signal_fd;
    bool namespaces;

    if (argc != 4 || !parse_number(argv[1], 0, 1 << 20, &fd) ||
        !parse_number(argv[2], WASM_PAGES_MIN, WASM_PAGES_MAX, &pages) ||
        !parse_number(argv[3], 1, WASM_WORKERS_MAX, &worker_max) || !has_stack())
        return WASM_TEMPLATE_ARGUMENTS;
    control_fd = (int)fd;
    if (!confine_template_early(&namespaces))
        return WASM_TEMPLATE_SETUP;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    if (sigprocmask(SIG_SETMASK, &children, NULL) != 0 ||
        (signal_fd = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK)) < 0)
        return WASM_TEMPLATE_SETUP;
    if (!engine_boot(pages) || !shim_compile())
        return WASM_TEMPLATE_SETUP;
    size_t shim_len;
    const uint8_t *shim = shim_bytes(&shim_len);
    if (!engine_prepare(shim, shim_len))
        return WASM_TEMPLATE_CONTEXT;
    if (!confine_template())
        return WASM_TEMPLATE_SETUP;
    if (!control_send(WASM_CONTROL_HELLO, 0, namespaces ? WASM_HELLO_NAMESPACES : 0, -1))
        return 0;
    for (;;) {
        struct pollfd ready[2] = {{.fd = control_fd, .events = POLLIN}, {.fd = signal_fd, .events = POLLIN}};
        if (poll(ready, 2, -1) < 0) {
            if (errno == EINTR)
                continue;
            return 1;
        }
        if (ready[1].revents != 0) {
            struct signalfd_siginfo info;
            while (read(signal_fd, &info, sizeof(info)) == sizeof(info))
                ;
            if (!workers_reap())
                return 0;
        }
        if (ready[0].revents != 0) {
            wasm_control_t message;
            int worker_fd;
            if (!control_receive(&message, &worker_fd))
                return 0;
            if (message.op != WASM_CONTROL_FORK ||
                !worker_fork(message.serial, worker_fd, message.value == WASM_FORK_PROBE))
                return 0;
            if (worker_fd >= 0)
                close(worker_fd);
        }
    }
}
