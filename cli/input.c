#include "cli/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *input_read(const char *path, buffer_t *out)
{
    static char why[160];
    bool is_stdin = strcmp(path, "-") == 0;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return strerror(errno);
    const char *problem = NULL;
    for (;;) {
        uint8_t chunk[65536];
        ssize_t n = read(fd, chunk, sizeof(chunk));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            problem = strerror(errno);
        if (n > 0 && !buffer_append(out, chunk, (size_t)n)) {
            snprintf(why, sizeof(why), "it is larger than %zu bytes", out->limit);
            problem = why;
        }
        if (n == 0 || problem != NULL)
            break;
    }
    if (!is_stdin)
        close(fd);
    return problem;
}

bool output_write(int fd, const void *data, size_t len)
{
    const uint8_t *at = data;
    while (len > 0) {
        ssize_t n = write(fd, at, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        len -= (size_t)n;
    }
    return true;
}
