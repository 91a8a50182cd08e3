/* What is registered, and the file behind it: E1 and E2. */
#include "backends/docker/evidence.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/co.h"
#include "core/mem.h"
#include "core/sha256.h"

enum {
    SLICE_BYTES = 1024 * 1024, /* hashed in about a millisecond */
    SLICE_OVERLAP = 64,        /* a version's text may lie across two slices */
    /* "release-20221219.0", "0.0~20221219.0": the day of the release, a dot and a number */
    VERSION_DATE = 8,
};

const evidence_host_t EVIDENCE_HOST = {.proc = "/proc", .cgroup = "/sys/fs/cgroup"};

const char *evidence_name(evidence_t evidence)
{
    static const char *const names[] = {"none", "registered", "observed"};
    return names[evidence];
}

/* --- E1 --- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* A name without a directory is looked up by the daemon in its PATH, which is mostly this one. */
static void find_path(const char *registered, char out[EVIDENCE_PATH_MAX])
{
    static const char *const places[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"};
    snprintf(out, EVIDENCE_PATH_MAX, "%s", registered);
    for (size_t i = 0; strchr(registered, '/') == NULL && i < sizeof(places) / sizeof(places[0]); ++i) {
        snprintf(out, EVIDENCE_PATH_MAX, "%s/%s", places[i], registered);
        if (access(out, X_OK) == 0)
            return;
        snprintf(out, EVIDENCE_PATH_MAX, "%s", registered);
    }
}

bool evidence_registered(const json_t *info, const char *name, evidence_runtime_t *out)
{
    const json_t *runtime = json_object_get(json_object_get(info, "Runtimes"), name);
    const char *path = json_string_value(json_object_get(runtime, "path"));
    size_t i;
    json_t *flag;

    memset(out, 0, sizeof(*out));
    if (!json_is_object(runtime))
        return false;
    find_path(path != NULL ? path : "", out->path);
    out->is_gvisor = path != NULL && strcmp(base_name(path), "runsc") == 0 && strlen(path) < sizeof(out->path);
    json_array_foreach(json_object_get(runtime, "runtimeArgs"), i, flag)
    {
        if (out->flag_count < EVIDENCE_FLAGS_MAX && json_is_string(flag))
            snprintf(out->flags[out->flag_count++], EVIDENCE_FLAG_BYTES_MAX, "%s", json_string_value(flag));
    }
    return true;
}

const char *evidence_flag(const evidence_runtime_t *runtime, const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < runtime->flag_count; ++i) {
        const char *flag = runtime->flags[i] + strspn(runtime->flags[i], "-");
        if (flag == runtime->flags[i] || strncmp(flag, name, len) != 0)
            continue;
        if (flag[len] == '\0')
            return "true";
        if (flag[len] == '=')
            return flag + len + 1;
    }
    return NULL;
}

bool evidence_has_host_sockets(const evidence_runtime_t *runtime)
{
    const char *now = evidence_flag(runtime, "host-uds"), *before = evidence_flag(runtime, "fsgofer-host-uds");
    return (now != NULL && (strcmp(now, "open") == 0 || strcmp(now, "all") == 0)) ||
           (before != NULL && strcmp(before, "true") == 0);
}

/* --- E2 --- */

typedef struct {
    struct stat of;
    char sha256[65], version[EVIDENCE_VERSION_MAX];
} read_file_t;

static read_file_t last_read;

static bool is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static bool are_digits(const char *p, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        if (p[i] < '0' || p[i] > '9')
            return false;
    }
    return true;
}

static void find_version(const char *bytes, size_t len, char out[EVIDENCE_VERSION_MAX])
{
    static const char *const before[] = {"release-20", "0.0~20"};
    for (size_t k = 0; k < sizeof(before) / sizeof(before[0]); ++k) {
        const char *p = bytes, *end = bytes + len;
        while ((p = memmem(p, (size_t)(end - p), before[k], strlen(before[k]))) != NULL) {
            p += strlen(before[k]) - 2;
            if (end - p > VERSION_DATE + 1 && are_digits(p, VERSION_DATE) && p[VERSION_DATE] == '.' &&
                are_digits(p + VERSION_DATE + 1, 1)) {
                snprintf(out, EVIDENCE_VERSION_MAX, "%.*s", VERSION_DATE + 2, p);
                return;
            }
        }
    }
}

static bool read_whole(int fd, read_file_t *out)
{
    char *bytes = mem_alloc(SLICE_OVERLAP + SLICE_BYTES);
    size_t kept = 0;
    ssize_t n;
    sha256_t *hash = sha256_begin();
    while ((n = read(fd, bytes + kept, SLICE_BYTES)) > 0) {
        size_t len = kept + (size_t)n;
        sha256_add(hash, bytes + kept, (size_t)n);
        if (out->version[0] == '\0')
            find_version(bytes, len, out->version);
        kept = len < SLICE_OVERLAP ? len : SLICE_OVERLAP;
        memmove(bytes, bytes + len - kept, kept);
        if (co_self() != NULL)
            co_sleep(0);
    }
    sha256_end_hex(hash, out->sha256);
    free(bytes);
    return n == 0;
}

void evidence_read_file(evidence_runtime_t *runtime)
{
    struct stat before, after;
    read_file_t file = {.sha256 = ""};
    int fd = runtime->path[0] == '/' ? open(runtime->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    runtime->is_file = false;
    runtime->sha256[0] = runtime->version[0] = '\0';
    if (fd < 0 || fstat(fd, &before) != 0 || !S_ISREG(before.st_mode))
        goto Exit;
    if (last_read.sha256[0] != '\0' && is_same_file(&last_read.of, &before))
        file = last_read;
    else if (!read_whole(fd, &file) || fstat(fd, &after) != 0 || !is_same_file(&before, &after))
        goto Exit; /* it is being replaced */
    file.of = before;
    last_read = file;
    runtime->is_file = true;
    runtime->device = before.st_dev;
    runtime->inode = before.st_ino;
    memcpy(runtime->sha256, file.sha256, sizeof(runtime->sha256));
    memcpy(runtime->version, file.version, sizeof(runtime->version));

Exit:
    if (fd >= 0)
        close(fd);
}
