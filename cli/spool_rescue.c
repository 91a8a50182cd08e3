#include "cli/spool_rescue.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/exit_codes.h"
#include "core/mem.h"
#include "records/spool_file.h"

enum { NAME_BYTES = 128, DIGITS = 16, TRIES = 64 };

static int complain(const char *what)
{
    fprintf(stderr, "plimsoll: error: %s: %s\n", what, strerror(errno));
    return CLI_FAILED;
}

static bool has_number(const char *name)
{
    return strspn(name, "0123456789abcdef") == DIGITS && strncmp(name + DIGITS, ".spool", 6) == 0;
}

/* One past the highest number in use. */
static uint64_t next_number(int dir_fd)
{
    uint64_t highest = 0;
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        uint64_t number = has_number(e->d_name) ? strtoull(e->d_name, NULL, 16) : 0;
        if (number > highest && number < UINT64_C(1) << 62)
            highest = number;
    }
    if (dir != NULL)
        closedir(dir);
    return highest + 1;
}

/* A new file under a name of its own that no gateway takes over yet: its final one comes when it is complete. Owned
 * like the one that was set aside, so that the gateway may read it. */
static spool_file_t *begin_part(int dir_fd, const struct stat *like, uint64_t number, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%016" PRIx64 ".part", number);
    int fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return NULL;
    spool_file_t *f = fchown(fd, like->st_uid, like->st_gid) == 0 ? spool_file_begin(fd, number) : NULL;
    if (f == NULL) {
        int error = errno;
        close(fd);
        unlinkat(dir_fd, name, 0);
        errno = error;
    }
    return f;
}

typedef struct {
    uint64_t copied, taken, unreadable_bytes;
} counts_t;

/* false: errno. */
static bool copy(const spool_file_t *from, uint64_t size, spool_file_t *to, counts_t *counts)
{
    spool_frame_t frame;
    uint64_t at = SPOOL_FILE_HEADER;
    bool fine = true;
    while (fine && spool_file_find(from, at, size, &frame)) {
        counts->unreadable_bytes += frame.offset - at;
        at = frame.offset + spool_frame_size(frame.len);
        spool_piece_t piece = {frame.payload, frame.len};
        if (frame.taken)
            ++counts->taken;
        else
            fine = spool_file_append(to, frame.order_key, frame.appended_ms, &piece, 1);
        counts->copied += fine && !frame.taken;
        free(frame.payload);
    }
    if (at < size)
        counts->unreadable_bytes += size - at;
    return fine && spool_file_sync(to);
}

/* Nobody's name is overwritten. */
static bool publish(int dir_fd, const char *part, uint64_t number, char name[NAME_BYTES])
{
    for (int i = 0; i != TRIES; ++i) {
        snprintf(name, NAME_BYTES, "%016" PRIx64 ".spool", number + (uint64_t)i);
        if (linkat(dir_fd, part, dir_fd, name, 0) == 0)
            return unlinkat(dir_fd, part, 0) == 0 && fsync(dir_fd) == 0;
        if (errno != EEXIST)
            return false;
    }
    return false;
}

static int rescue(int dir_fd, const char *name)
{
    char part[NAME_BYTES], made[NAME_BYTES], done[NAME_BYTES];
    struct stat st;
    uint64_t size;
    counts_t counts = {0};
    int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    spool_file_t *from = fd >= 0 ? spool_file_look(fd, strtoull(name, NULL, 16), &size) : NULL;
    if (from == NULL || fstat(fd, &st) != 0)
        return complain(name);
    uint64_t number = next_number(dir_fd);
    spool_file_t *to = begin_part(dir_fd, &st, number, part);
    if (to == NULL)
        return complain("no new file can be made");
    bool fine = copy(from, size, to, &counts);
    spool_file_close(from);
    if (fine && counts.copied != 0)
        fine = publish(dir_fd, part, number, made);
    spool_file_close(to);
    if (!fine || counts.copied == 0)
        unlinkat(dir_fd, part, 0);
    if (!fine)
        return complain("the records could not be written");
    snprintf(done, sizeof(done), "%.*s.spool.rescued%s", DIGITS, name, strrchr(name, '-'));
    if (renameat(dir_fd, name, dir_fd, done) != 0)
        return complain(name);
    printf("%" PRIu64 " record%s rescued, %" PRIu64 " had been taken, %" PRIu64 " bytes are no record\n", counts.copied,
           counts.copied == 1 ? "" : "s", counts.taken, counts.unreadable_bytes);
    if (counts.copied != 0)
        printf("they are in %s, which a running gateway takes over within seconds\n", made);
    printf("%s is kept as %s\n", name, done);
    return fflush(stdout) == 0 ? CLI_OK : CLI_FAILED;
}

int spool_rescue(const char *path)
{
    char *dir_copy = mem_strdup(path), *name_copy = mem_strdup(path);
    const char *dir = dirname(dir_copy), *name = basename(name_copy);
    int status, dir_fd = -1;
    if (!has_number(name) || strstr(name, ".spool.corrupt-") == NULL || strlen(name) >= NAME_BYTES - 16) {
        fprintf(stderr, "plimsoll: error: %s is no file that was set aside (NUMBER.spool.corrupt-OFFSET)\n", path);
        status = CLI_USAGE;
    } else if ((dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
        status = complain(dir);
    } else {
        status = rescue(dir_fd, name);
    }
    if (dir_fd >= 0)
        close(dir_fd);
    free(dir_copy);
    free(name_copy);
    return status;
}
