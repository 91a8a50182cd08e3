#include "backends/guest/runner/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backends/guest/runner/probe_checks.h"
#include "backends/guest/runner/probe_json.h"

size_t probe_read_file(const char *path, char *out, size_t size, int *error)
{
    size_t len = 0;
    ssize_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *error = fd < 0 ? errno : 0;
    while (fd >= 0 && len < size - 1 && (n = read(fd, out + len, size - 1 - len)) > 0)
        len += (size_t)n;
    if (fd >= 0 && n < 0)
        *error = errno;
    if (fd >= 0)
        close(fd);
    out[len] = '\0';
    return len;
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Until the pipe's end, the limit, or the time's end. */
static size_t read_answer(int fd, uint64_t until_ms, char *out, size_t size)
{
    size_t len = 0;
    for (uint64_t now; len < size && (now = now_ms()) < until_ms;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        int n = poll(&ready, 1, (int)(until_ms - now));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        ssize_t got = read(fd, out + len, size - len);
        if (got <= 0)
            break;
        len += (size_t)got;
    }
    return len;
}

size_t probe_guarded(void (*fn)(const void *arg, int fd), const void *arg, unsigned seconds, void *out, size_t size,
                     int *signal_number)
{
    int pipe_fds[2], status = 0;
    *signal_number = 0;
    if (pipe2(pipe_fds, O_CLOEXEC) != 0)
        return 0;
    pid_t pid = fork();
    if (pid == 0) {
        close(pipe_fds[0]);
        alarm(seconds);
        fn(arg, pipe_fds[1]);
        _exit(0);
    }
    close(pipe_fds[1]);
    size_t len = pid > 0 ? read_answer(pipe_fds[0], now_ms() + seconds * UINT64_C(1000), out, size) : 0;
    close(pipe_fds[0]);
    if (pid > 0) {
        /* Most have ended by now. One that hangs where its alarm cannot reach it is killed, and is not waited for
         * without end: the runner kills everything after the step. */
        for (int looks = 0; waitpid(pid, &status, WNOHANG) == 0 && looks < 200; ++looks) {
            const struct timespec pause = {.tv_nsec = looks < 20 ? 500 * 1000 : 10 * 1000 * 1000};
            if (looks >= 20)
                kill(pid, SIGKILL);
            nanosleep(&pause, NULL);
        }
        if (WIFSIGNALED(status))
            *signal_number = WTERMSIG(status);
    }
    return len;
}

static void take_value(probe_spec_t *spec, const char *name, const char *value)
{
    if (strcmp(name, "nonce") == 0)
        strncpy(spec->nonce, value, sizeof(spec->nonce) - 1);
    else if (strcmp(name, "socket") == 0)
        strncpy(spec->socket, value, sizeof(spec->socket) - 1);
    else if (strcmp(name, "fill_max") == 0)
        spec->fill_max = strtoull(value, NULL, 10);
    else if (strcmp(name, "hold_ms") == 0)
        spec->hold_ms = (uint32_t)strtoul(value, NULL, 10);
    else if (strcmp(name, "calls") == 0)
        spec->has_calls = strcmp(value, "1") == 0;
}

/* Lines of name=value. */
static void read_spec(const uint8_t *bytes, size_t len, probe_spec_t *spec)
{
    char text[1024];
    len = len < sizeof(text) ? len : sizeof(text) - 1;
    if (len > 0)
        memcpy(text, bytes, len);
    text[len] = '\0';
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL;) {
        char *value = strchr(line, '=');
        if (value == NULL)
            continue;
        *value = '\0';
        take_value(spec, line, value + 1);
    }
}

int probe_main(const uint8_t *bytes, size_t len)
{
    probe_spec_t spec = {.nonce = ""};
    uint64_t began_ms = now_ms();
    read_spec(bytes, len, &spec);
    if (spec.nonce[0] != '\0')
        prctl(PR_SET_NAME, spec.nonce, 0, 0, 0);
    probe_open(NULL, '{');
    probe_number("probe", 1);
    probe_self();
    probe_places(&spec);
    probe_runner();
    if (spec.socket[0] != '\0')
        probe_host_socket(spec.socket);
    if (spec.has_calls)
        probe_calls();
    probe_close('}');
    for (uint64_t now; (now = now_ms()) - began_ms < spec.hold_ms;)
        usleep((useconds_t)(spec.hold_ms - (now - began_ms)) * 1000);
    return probe_print() ? 0 : 1;
}
