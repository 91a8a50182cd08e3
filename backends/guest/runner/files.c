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

/* The directory of `path` below `work`, and the last component in `name`. -1 with errno. */
static int open_parent(int work, job_bytes_t path, bool is_made, char name[JOB_PATH_MAX + 1])
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
        if (is_made && mkdirat(dir, name, 0755) != 0 && errno != EEXIST)
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

/* A descriptor of the path's file, or -1 with errno. */
static int open_below(int work, job_bytes_t path, int flags)
{
    char name[JOB_PATH_MAX + 1];
    int dir = open_parent(work, path, (flags & O_CREAT) != 0, name);
    if (dir < 0)
        return -1;
    int fd = openat(dir, name, flags | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC, 0644);
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
    int fd = open_below(work, file->path, O_WRONLY | O_CREAT | O_EXCL);
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

/* --- artifacts --- */

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static void send_head(link_t *link, size_t number, uint32_t len)
{
    uint8_t payload[FRAME_PAYLOAD_MAX];
    job_artifact_t head = {.number = (uint16_t)number, .len = len};
    link_send(link, FRAME_ARTIFACT, payload, job_artifact_encode(&head, payload));
}

/* Sends `len` bytes; false when there are other than `len` in the file. */
static bool send_content(link_t *link, int fd, size_t len)
{
    uint8_t chunk[FRAME_PAYLOAD_MAX];
    for (;;) {
        size_t want = len < sizeof(chunk) ? len : sizeof(chunk);
        ssize_t n = read(fd, chunk, want != 0 ? want : 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0 || len == 0)
            return n == 0 && len == 0;
        link_send(link, FRAME_ARTIFACT_MORE, chunk, (size_t)n);
        len -= (size_t)n;
    }
}

typedef enum { ARTIFACT_SENT, ARTIFACT_NONE, ARTIFACT_TOO_LARGE } artifact_t;

static artifact_t send_one(link_t *link, int fd, size_t number, dev_t device, size_t *left)
{
    struct stat before, after;
    if (fstat(fd, &before) != 0 || !S_ISREG(before.st_mode) || before.st_dev != device || before.st_size < 0)
        return ARTIFACT_NONE;
    if ((uint64_t)before.st_size > *left)
        return ARTIFACT_TOO_LARGE;
    size_t len = (size_t)before.st_size;
    send_head(link, number, (uint32_t)len);
    if (!send_content(link, fd, len) || fstat(fd, &after) != 0 || !is_same(&before, &after)) {
        send_head(link, number, JOB_WITHDRAWN);
        return ARTIFACT_NONE;
    }
    *left -= len;
    return ARTIFACT_SENT;
}

files_sent_t files_send_artifacts(int work, const job_t *job, link_t *link)
{
    files_sent_t sent = {0};
    size_t left = job->artifacts_max;
    struct stat root;
    if (fstat(work, &root) != 0)
        return sent;
    for (size_t i = 0; i < job->artifact_count && !sent.is_truncated; i++) {
        if (!job_is_path_valid(job->artifacts[i]))
            continue;
        /* a FIFO does not make this wait; nothing that is no regular file is read */
        int fd = open_below(work, job->artifacts[i], O_RDONLY | O_NONBLOCK);
        if (fd < 0)
            continue;
        artifact_t one = send_one(link, fd, i, root.st_dev, &left);
        close(fd);
        sent.count += one == ARTIFACT_SENT;
        sent.is_truncated = one == ARTIFACT_TOO_LARGE;
    }
    return sent;
}
