#include "backends/guest/runner/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int files_open_work(const char *path)
{
    return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* The directory of `path` below `work`, made as needed, and the last component in `name`. -1 with errno. */
static int make_parent(int work, job_bytes_t path, char name[JOB_PATH_MAX + 1])
{
    const uint8_t *at = path.bytes, *end = path.bytes + path.len;
    int dir = work;
    for (;;) {
        const uint8_t *slash = memchr(at, '/', (size_t)(end - at));
        size_t len = (size_t)((slash != NULL ? slash : end) - at);
        memcpy(name, at, len);
        name[len] = '\0';
        if (slash == NULL)
            return dir;
        if (mkdirat(dir, name, 0755) != 0 && errno != EEXIST)
            break;
        int next = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (next < 0)
            break;
        if (dir != work)
            close(dir);
        dir = next;
        at = slash + 1;
    }
    int err = errno;
    if (dir != work)
        close(dir);
    errno = err;
    return -1;
}

/* A descriptor of the new file, or -1 with errno. */
static int create(int work, job_bytes_t path)
{
    char name[JOB_PATH_MAX + 1];
    int dir = make_parent(work, path, name);
    if (dir < 0)
        return -1;
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    int err = errno;
    if (dir != work)
        close(dir);
    errno = err;
    return fd;
}

static bool write_whole(int fd, job_bytes_t content)
{
    while (content.len != 0) {
        ssize_t n = write(fd, content.bytes, content.len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        content.bytes += n;
        content.len -= (size_t)n;
    }
    return true;
}

static bool write_one(int work, const job_file_t *file)
{
    int fd = create(work, file->path);
    if (fd < 0)
        return false;
    bool is_written = write_whole(fd, file->content);
    int err = errno;
    close(fd);
    errno = err;
    return is_written;
}

enum { SHOWN_MAX = 160 };

/* As much of a path as fits, without half a character at its end. */
static void show_path(job_bytes_t path, char shown[SHOWN_MAX + 4])
{
    size_t len = path.len < SHOWN_MAX ? path.len : SHOWN_MAX;
    if (len < path.len)
        while (len > 0 && (path.bytes[len] & 0xc0) == 0x80)
            len--;
    for (size_t i = 0; i < len; i++)
        shown[i] = path.bytes[i] < 0x20 || path.bytes[i] == 0x7f ? '?' : (char)path.bytes[i];
    strcpy(shown + len, len < path.len ? "..." : "");
}

bool files_write(int work, const job_t *job, char detail[JOB_DETAIL_MAX + 1])
{
    char shown[SHOWN_MAX + 4];
    for (size_t i = 0; i < job->file_count; i++) {
        const job_file_t *file = &job->files[i];
        bool is_valid = job_is_path_valid(file->path);
        if (is_valid && write_one(work, file))
            continue;
        const char *why = is_valid ? strerror(errno) : "not a path below the work directory";
        show_path(file->path, shown);
        snprintf(detail, JOB_DETAIL_MAX + 1, "file %s: %s", shown, why);
        return false;
    }
    return true;
}
