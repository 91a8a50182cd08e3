#define _GNU_SOURCE
#include "backends/wasm/template/shim.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/wasm/template/engine.h"
#include "shim-source.h" /* made from shim.js */

enum { SHIM_MAX = 64 * 1024 }; /* several times what the script compiles to */

static uint8_t compiled[SHIM_MAX];
static size_t compiled_len;

static void compile_and_send(int fd) __attribute__((noreturn));
static void compile_and_send(int fd)
{
    size_t len = 0;
    const uint8_t *bytes = engine_compile(SHIM_SOURCE, sizeof(SHIM_SOURCE) - 1, &len);
    /* At most a pipe's capacity, so one write is all. */
    _exit(bytes != NULL && len <= SHIM_MAX && write(fd, bytes, len) == (ssize_t)len ? 0 : 1);
}

static void receive(int fd)
{
    ssize_t n;
    while (compiled_len < SHIM_MAX && (n = read(fd, compiled + compiled_len, SHIM_MAX - compiled_len)) != 0) {
        if (n < 0 && errno != EINTR)
            return;
        compiled_len += n > 0 ? (size_t)n : 0;
    }
}

bool shim_compile(void)
{
    int ends[2], status = 1;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    pid_t pid = fork();
    if (pid == 0)
        compile_and_send(ends[1]);
    close(ends[1]);
    if (pid > 0) {
        receive(ends[0]);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
    }
    close(ends[0]);
    return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 && compiled_len > 0;
}

const uint8_t *shim_bytes(size_t *len)
{
    *len = compiled_len;
    return compiled;
}
