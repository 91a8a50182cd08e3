#include "cli/attest_store.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/input.h"
#include "core/random.h"
#include "records/attest_bundle.h"

enum {
    PATH_BYTES = 4096,
    OPEN_TRIES = 5,     /* a bundle that is replaced between being opened and being locked is opened again */
    UNSEALED_TRIES = 3, /* of 32 random bits each */
};

/* ---- which file may be a bundle ---- */

static const char *check_file(int fd, const attest_options_t *options)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return strerror(errno);
    if (!S_ISREG(st.st_mode))
        return "it is not a regular file";
    if (!options->shared_bundle && (st.st_mode & (S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH)) != 0)
        return "its mode lets others read or write it; change that, or say -shared-bundle";
    return NULL;
}

static bool parent_of(const char *path, char out[PATH_BYTES])
{
    char copy[PATH_BYTES];
    if (snprintf(copy, sizeof(copy), "%s", path) >= (int)sizeof(copy))
        return false;
    snprintf(out, PATH_BYTES, "%s", dirname(copy));
    return true;
}

const char *attest_store_check(const attest_options_t *options, const attest_key_t *key,
                               char error[ATTEST_STORE_ERROR_MAX])
{
    char parent[PATH_BYTES];
    uint64_t size = 0;
    if (!parent_of(options->bundle, parent)) {
        snprintf(error, ATTEST_STORE_ERROR_MAX, "the bundle's path is too long");
        return error;
    }
    int fd = open(options->bundle, O_RDWR | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && access(parent, W_OK | X_OK) == 0)
        return NULL;
    const char *why = fd < 0 ? strerror(errno) : check_file(fd, options);
    attest_verifier_t *verifier = attest_verifier_create(attest_key_public(key), NULL, NULL);
    if (why == NULL)
        why = attest_bundle_read_to_continue(fd, verifier, &size);
    if (why != NULL)
        snprintf(error, ATTEST_STORE_ERROR_MAX, "the bundle %.200s cannot be continued: %.600s", options->bundle, why);
    attest_verifier_destroy(verifier);
    if (fd >= 0)
        close(fd);
    return why != NULL ? error : NULL;
}

/* ---- appending ---- */

/* Whether the path still leads to the open file. */
static bool is_at(int fd, const char *path)
{
    struct stat open_one, named_one;
    return fstat(fd, &open_one) == 0 && stat(path, &named_one) == 0 && open_one.st_dev == named_one.st_dev &&
           open_one.st_ino == named_one.st_ino;
}

/* The bundle, open and locked, made when it was not there; -1 with errno (EWOULDBLOCK: the lock never came). */
static int open_locked(const char *path, bool *is_new)
{
    for (int i = 0; i < OPEN_TRIES; i++) {
        int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        *is_new = fd >= 0;
        if (fd < 0 && errno == EEXIST)
            fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0 && errno == ENOENT) /* gone in between */
            continue;
        if (fd < 0)
            return -1;
        if (!attest_bundle_lock(fd, ATTEST_LOCK_WAIT_MS)) {
            int why = errno;
            close(fd);
            errno = why;
            return -1;
        }
        if (is_at(fd, path))
            return fd;
        close(fd);
    }
    errno = ESTALE;
    return -1;
}

/* A name that has just been made is as safe as its file only once its directory is synced. */
static const char *sync_parent(const char *path)
{
    char parent[PATH_BYTES];
    if (!parent_of(path, parent))
        return "the path is too long";
    int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const char *why = fd < 0 || fsync(fd) != 0 ? strerror(errno) : NULL;
    if (fd >= 0)
        close(fd);
    return why;
}

static const char *write_entries(int fd, uint64_t size, attest_verifier_t *verifier, const attest_key_t *key,
                                 attest_next_t *next, void *data, uint64_t *written, char error[ATTEST_STORE_ERROR_MAX])
{
    attest_writer_t writer;
    const char *why = NULL;
    bool is_end = false;
    attest_prefix_t prefix = attest_verifier_summary(verifier).prefix;
    attest_writer_init(&writer, fd, size, verifier, key);
    *written = 0;
    while (why == NULL) {
        buffer_t entry;
        buffer_init(&entry, ATTEST_LINE_MAX);
        why = next(data, key, prefix, &entry, &is_end);
        if (why != NULL)
            why = attest_writer_abort(&writer, why);
        else if (!is_end)
            why = attest_writer_add(&writer, &entry);
        buffer_dispose(&entry);
        if (is_end)
            break;
        *written += 1;
    }
    if (why == NULL)
        why = attest_writer_finish(&writer);
    if (why != NULL)
        snprintf(error, ATTEST_STORE_ERROR_MAX, "%s", why);
    attest_writer_dispose(&writer);
    return why != NULL ? error : NULL;
}

static const char *append(const attest_options_t *options, const attest_key_t *key, attest_next_t *next, void *data,
                          uint64_t *written, char error[ATTEST_STORE_ERROR_MAX])
{
    bool is_new = false;
    uint64_t size = 0;
    int fd = open_locked(options->bundle, &is_new);
    if (fd < 0) {
        snprintf(error, ATTEST_STORE_ERROR_MAX, "the bundle %.200s cannot be locked: %s", options->bundle,
                 errno == EWOULDBLOCK ? "somebody else has held it for two minutes" : strerror(errno));
        return error;
    }
    attest_verifier_t *verifier = attest_verifier_create(attest_key_public(key), NULL, NULL);
    const char *why = check_file(fd, options);
    if (why == NULL)
        why = attest_bundle_read_to_continue(fd, verifier, &size);
    if (why != NULL) {
        snprintf(error, ATTEST_STORE_ERROR_MAX, "the bundle %.200s cannot be continued: %.600s", options->bundle, why);
        why = error;
    } else {
        why = write_entries(fd, size, verifier, key, next, data, written, error);
    }
    if (why == NULL && is_new && (why = sync_parent(options->bundle)) != NULL) {
        snprintf(error, ATTEST_STORE_ERROR_MAX, "it is written, but its directory cannot be synced: %s", why);
        why = error;
    }
    attest_verifier_destroy(verifier);
    close(fd); /* and the lock is free */
    return why;
}

const char *attest_store_append(const attest_options_t *options, const attest_key_t *key, attest_next_t *next,
                                void *data, uint64_t *written, char error[ATTEST_STORE_ERROR_MAX])
{
    sigset_t ending, kept;
    sigemptyset(&ending);
    sigaddset(&ending, SIGINT);
    sigaddset(&ending, SIGTERM);
    sigaddset(&ending, SIGHUP);
    sigaddset(&ending, SIGQUIT);
    /* A limit on a file's size then fails the write, which can be taken back. */
    signal(SIGXFSZ, SIG_IGN);
    sigprocmask(SIG_BLOCK, &ending, &kept);
    const char *why = append(options, key, next, data, written, error);
    sigprocmask(SIG_SETMASK, &kept, NULL);
    return why;
}

/* ---- an entry that found no place ---- */

const char *attest_store_unsealed(const char *bundle, const buffer_t *entry, char path[ATTEST_UNSEALED_PATH_MAX])
{
    char when[32], random[2 * 4 + 1];
    time_t now = time(NULL);
    struct tm utc;
    int fd = -1;
    gmtime_r(&now, &utc);
    strftime(when, sizeof(when), "%Y%m%dT%H%M%SZ", &utc);
    for (int i = 0; fd < 0 && i < UNSEALED_TRIES; i++) {
        random_hex(random, 4);
        if (snprintf(path, ATTEST_UNSEALED_PATH_MAX, "%s.unsealed-%s-%s.jsonl", bundle, when, random) >=
            ATTEST_UNSEALED_PATH_MAX)
            return "the bundle's path is too long";
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    if (fd < 0)
        return strerror(errno);
    bool ok = output_write(fd, entry->base, entry->len) && output_write(fd, "\n", 1) && fsync(fd) == 0;
    int why = errno;
    if (close(fd) != 0 && ok) {
        ok = false;
        why = errno;
    }
    if (!ok) {
        unlink(path);
        return strerror(why);
    }
    return sync_parent(bundle);
}
