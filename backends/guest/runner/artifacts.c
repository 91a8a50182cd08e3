#include "backends/guest/runner/artifacts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINKS_MAX = 40 }; /* followed for one artifact, as the kernel's own limit */

/* The way that is left to an artifact. */
typedef struct {
    char rest[PATH_MAX];
    int links;
} way_t;

/* Takes the next component off. False: there is none. */
static bool take_component(way_t *way, char name[PATH_MAX], bool *is_last)
{
    const char *at = way->rest + strspn(way->rest, "/");
    size_t len = strcspn(at, "/");
    if (len == 0)
        return false;
    memcpy(name, at, len);
    name[len] = '\0';
    at += len;
    *is_last = *at == '\0';
    memmove(way->rest, at, strlen(at) + 1);
    return true;
}

/* Puts a link's target before what is left. False: it is no link, leads out of the work directory, or too far. */
static bool follow(way_t *way, int dir, const char *name, const char *work_path, bool *is_absolute)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(dir, name, target, sizeof(target) - 1);
    if (n <= 0 || way->links++ >= LINKS_MAX)
        return false;
    target[n] = '\0';
    const char *from = target;
    *is_absolute = target[0] == '/';
    if (*is_absolute) {
        size_t len = strlen(work_path);
        if (strncmp(target, work_path, len) != 0 || (target[len] != '/' && target[len] != '\0'))
            return false;
        from += len;
    }
    size_t before = strlen(from), left = strlen(way->rest);
    if (before + left >= sizeof(way->rest))
        return false;
    memmove(way->rest + before, way->rest, left + 1);
    memcpy(way->rest, from, before);
    return true;
}

static bool is_directory_of(int fd, const struct stat *of)
{
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_dev == of->st_dev && st.st_ino == of->st_ino;
}

/*
 * A descriptor of the file, or -1: one component at a time, none of them followed by the kernel. Links on the way are
 * followed here, as long as they stay below the work directory; the last component may be none.
 */
static int open_artifact(int work, const struct stat *root, const char *work_path, job_bytes_t path)
{
    way_t way = {.links = 0};
    char name[PATH_MAX];
    bool is_last;
    int dir = work, found = -1;
    memcpy(way.rest, path.bytes, path.len);
    while (take_component(&way, name, &is_last)) {
        int next;
        if (is_last) {
            /* a FIFO does not make this wait */
            found = openat(dir, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC);
            break;
        }
        if (strcmp(name, "..") == 0 && is_directory_of(dir, root))
            break;
        next = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (next < 0) {
            bool is_absolute;
            if (!follow(&way, dir, name, work_path, &is_absolute))
                break;
            if (!is_absolute)
                continue;
            next = work;
        }
        if (dir != work)
            close(dir);
        dir = next;
    }
    if (dir != work)
        close(dir);
    return found;
}

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

typedef enum { ARTIFACT_SENT, ARTIFACT_NONE, ARTIFACT_TOO_LARGE } send_t;

static send_t send_one(link_t *link, int fd, size_t number, dev_t device, size_t *left)
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

artifacts_t artifacts_send(int work, const char *work_path, const job_t *job, link_t *link)
{
    artifacts_t sent = {0};
    size_t left = job->artifacts_max;
    struct stat root;
    if (fstat(work, &root) != 0)
        return sent;
    for (size_t i = 0; i < job->artifact_count && !sent.is_truncated; i++) {
        if (!job_is_path_valid(job->artifacts[i]))
            continue;
        int fd = open_artifact(work, &root, work_path, job->artifacts[i]);
        if (fd < 0)
            continue;
        send_t one = send_one(link, fd, i, root.st_dev, &left);
        close(fd);
        sent.count += one == ARTIFACT_SENT;
        sent.is_truncated = one == ARTIFACT_TOO_LARGE;
    }
    return sent;
}
