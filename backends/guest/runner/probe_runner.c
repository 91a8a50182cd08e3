/* What of the runner (PID 1) and of the host can be reached from where a guest is. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "backends/guest/runner/probe_checks.h"
#include "backends/guest/runner/probe_json.h"

enum { RUNNER = 1 };

typedef struct {
    const char *name, *path;
    int flags;
} opened_t;

static void answer(int fd, long result, int error)
{
    const char *word = result >= 0 ? "ok" : probe_errno(error);
    if (write(fd, word, strlen(word) + 1) < 0)
        _exit(1);
}

static void try_open(const void *arg, int fd)
{
    const opened_t *what = arg;
    int file = open(what->path, what->flags | O_CLOEXEC | O_NONBLOCK);
    answer(fd, file, errno);
}

static void try_read_link(const void *arg, int fd)
{
    char target[256];
    ssize_t n = readlink(arg, target, sizeof(target));
    answer(fd, n, errno);
}

/* Does not stop the runner, and lets go of it when this process ends. */
static void try_trace(const void *arg, int fd)
{
    (void)arg;
    long result = ptrace(PTRACE_SEIZE, RUNNER, NULL, NULL);
    answer(fd, result, errno);
}

/* The address is a page of this program, which the runner has at the same place unless it was moved. Only a missing
 * right or a missing call counts as protection; EFAULT means it was allowed to look. */
static void try_read_memory(const void *arg, int fd)
{
    char byte;
    struct iovec here = {&byte, 1}, there = {(void *)(uintptr_t)arg, 1};
    long result = syscall(SYS_process_vm_readv, RUNNER, &here, 1, &there, 1, 0);
    answer(fd, result, errno);
}

static void try_take_descriptor(const void *arg, int fd)
{
    (void)arg;
    long pid = syscall(SYS_pidfd_open, RUNNER, 0);
    long result = pid >= 0 ? syscall(SYS_pidfd_getfd, pid, 0, 0) : -1;
    answer(fd, result, errno);
}

static void guarded(const char *name, void (*fn)(const void *, int), const void *arg)
{
    char word[32] = "";
    int signal;
    size_t len = probe_guarded(fn, arg, PROBE_GUARD_S, word, sizeof(word) - 1, &signal);
    probe_text(name, len > 0 ? word : signal != 0 ? "killed" : "no answer");
}

void probe_runner(void)
{
    static const opened_t files[] = {{"fd0", "/proc/1/fd/0", O_RDONLY},
                                     {"fd1", "/proc/1/fd/1", O_WRONLY},
                                     {"mem", "/proc/1/mem", O_RDONLY},
                                     {"environ", "/proc/1/environ", O_RDONLY},
                                     {"maps", "/proc/1/maps", O_RDONLY}};
    probe_open("runner", '{');
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); ++i)
        guarded(files[i].name, try_open, &files[i]);
    guarded("exe", try_read_link, "/proc/1/exe");
    guarded("ptrace", try_trace, NULL);
    guarded("process_vm_readv", try_read_memory, (const void *)(uintptr_t)probe_runner);
    guarded("pidfd_getfd", try_take_descriptor, NULL);
    probe_close('}');
}

/* Says ping, and wants pong. */
static void try_socket(const void *arg, int fd)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    char said[5] = "";
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(name.sun_path, sizeof(name.sun_path), "%s", (const char *)arg);
    if (s < 0 || connect(s, (struct sockaddr *)&name, sizeof(name)) != 0 || write(s, "ping", 4) != 4 ||
        recv(s, said, 4, MSG_WAITALL) != 4) {
        answer(fd, -1, errno);
        return;
    }
    answer(fd, strcmp(said, "pong") == 0 ? 0 : -1, EBADMSG);
}

void probe_host_socket(const char *path)
{
    guarded("host_socket", try_socket, path);
}
