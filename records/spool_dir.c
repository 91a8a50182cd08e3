/* The spool's directory: which files there are, which is written, what dead processes left. */
#include "records/spool_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"

enum {
    NAME_MAX_BYTES = 96,
    NAME_DIGITS = 16,
    BEGIN_TRIES = 64, /* names taken by others; two fronts at once take a few */
};
#define NUMBER_MAX (UINT64_C(1) << 62) /* a name beyond is none of ours; counting on from it cannot overflow */

static const char SUFFIX[] = ".spool";

/* --- trouble with the disk --- */

static void note_trouble(spool_t *spool, const char *what, int error)
{
    char text[sizeof(spool->trouble)];
    snprintf(text, sizeof(text), "%s: %s", what, strerror(error));
    atomic_store(&spool->usable, false);
    if (strcmp(text, spool->trouble) == 0)
        return;
    memcpy(spool->trouble, text, sizeof(text));
    log_event(LOG_ERROR, "spool_trouble", log_str("directory", spool->dir), log_str("reason", text),
              log_str("effect", "no new run starts until the disk takes records again"));
}

static void note_usable(spool_t *spool)
{
    if (spool->trouble[0] != '\0')
        log_event(LOG_INFO, "spool_usable", log_str("directory", spool->dir), log_str("after", spool->trouble));
    spool->trouble[0] = '\0';
    atomic_store(&spool->usable, true);
}

/* --- the list --- */

static void list_add(spool_t *spool, spool_file_t *f)
{
    spool_file_t **at = &spool->files;
    while (*at != NULL && (*at)->name_number < f->name_number)
        at = &(*at)->next;
    f->next = *at;
    *at = f;
}

static void list_remove(spool_t *spool, spool_file_t *f)
{
    spool_file_t **at = &spool->files;
    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
}

static bool is_listed(const spool_t *spool, uint64_t number)
{
    for (const spool_file_t *f = spool->files; f != NULL; f = f->next)
        if (f->name_number == number)
            return true;
    return false;
}

/* --- a file's end --- */

static bool set_aside(spool_t *spool, const spool_file_t *f)
{
    char aside[NAME_MAX_BYTES];
    snprintf(aside, sizeof(aside), "%s.corrupt-%" PRIu64, f->path, f->corrupt_at);
    if (renameat(spool->dir_fd, f->path, spool->dir_fd, aside) != 0)
        return false;
    fsync(spool->dir_fd);
    log_event(LOG_WARN, "spool_file_set_aside", log_str("directory", spool->dir), log_str("file", aside));
    return true;
}

static void say_corrupt(spool_t *spool, const char *name, uint64_t at, uint64_t before, const char *reason)
{
    atomic_fetch_add(&spool->set_aside_total, 1);
    log_event(LOG_ERROR, "spool_file_corrupt", log_str("directory", spool->dir), log_str("file", name),
              log_uint("offset", at), log_uint("records_before", before), log_str("reason", reason),
              log_str("effect", "what is before it is replayed, then the file is set aside"));
}

/* Nothing of it waits any more. One that cannot be moved out of the way stays listed, and is tried again. */
static void retire(spool_t *spool, spool_file_t *f)
{
    if (f == spool->active)
        spool->active = NULL;
    if (f->corrupt ? set_aside(spool, f) : unlinkat(spool->dir_fd, f->path, 0) == 0 || errno == ENOENT) {
        list_remove(spool, f);
        spool_file_close(f);
        return;
    }
    if (!f->clings)
        log_event(LOG_ERROR, "spool_file_clings", log_str("directory", spool->dir), log_str("file", f->path),
                  log_str("error", strerror(errno)));
    f->clings = true;
}

static void retire_again(spool_t *spool)
{
    for (spool_file_t *f = spool->files, *next; f != NULL; f = next) {
        next = f->next;
        if (f->clings)
            retire(spool, f);
    }
}

/* No longer written. The room past its end goes back to the disk. */
static void leave_active(spool_t *spool)
{
    spool_file_t *f = spool->active;
    if (f == NULL)
        return;
    spool->active = NULL;
    f->active = false;
    if (spool_file_is_done(f))
        retire(spool, f);
    else if (ftruncate(f->fd, (off_t)f->end) != 0)
        log_event(LOG_WARN, "spool_file_not_cut", log_str("file", f->path), log_str("error", strerror(errno)));
}

/* --- what dead processes left --- */

static bool parse_name(const char *name, uint64_t *number)
{
    *number = 0;
    for (int i = 0; i != NAME_DIGITS; ++i) {
        char c = name[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
        *number = *number << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return strcmp(name + NAME_DIGITS, SUFFIX) == 0 && *number < NUMBER_MAX;
}

static void make_name(uint64_t number, char out[NAME_MAX_BYTES])
{
    snprintf(out, NAME_MAX_BYTES, "%016" PRIx64 "%s", number, SUFFIX);
}

/* Locked, and still the file of that name: its last owner may have removed it meanwhile. */
static bool is_ours(const spool_t *spool, int fd, const char *name)
{
    struct stat held, named;
    return flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &held) == 0 &&
           fstatat(spool->dir_fd, name, &named, AT_SYMLINK_NOFOLLOW) == 0 && held.st_ino == named.st_ino &&
           held.st_dev == named.st_dev;
}

static void hold_all(spool_t *spool, const spool_file_t *f)
{
    for (uint32_t i = 0; i != f->count; ++i)
        if (!f->entries[i].taken)
            atomic_fetch_add(&spool->held[f->entries[i].bucket], 1);
    atomic_fetch_add(&spool->records, f->count - f->taken);
}

static void adopt(spool_t *spool, uint64_t number)
{
    char name[NAME_MAX_BYTES];
    uint64_t cut;
    make_name(number, name);
    int fd = openat(spool->dir_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return;
    if (fd >= 0 && !is_ours(spool, fd, name)) {
        close(fd);
        return;
    }
    spool_file_t *f = fd >= 0 ? spool_file_adopt(fd, &cut) : NULL;
    int error = errno;
    bool is_readable = f != NULL;
    if (!is_readable)
        f = spool_file_unreadable(fd);
    f->path = mem_strdup(name);
    f->name_number = number;
    list_add(spool, f);
    if (!is_readable) {
        say_corrupt(spool, name, 0, 0, strerror(error));
        retire(spool, f);
        return;
    }
    hold_all(spool, f);
    if (cut != 0) {
        atomic_fetch_add(&spool->torn_total, 1);
        log_event(LOG_WARN, "spool_tail_cut", log_str("file", name), log_uint("offset", f->end), log_uint("bytes", cut),
                  log_str("why", "the process ended while it wrote; nobody was answered for it"));
    }
    if (f->corrupt)
        say_corrupt(spool, name, f->corrupt_at, f->count, "a record is not what was written");
    else if (f->count != f->taken)
        log_event(LOG_INFO, "spool_file_taken_over", log_str("file", name), log_uint("records", f->count - f->taken));
    if (spool_file_is_done(f))
        retire(spool, f);
}

static int compare_numbers(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* false: the directory cannot be read, errno. */
static bool adopt_all(spool_t *spool)
{
    uint64_t *numbers, number;
    size_t count = 0;
    int fd = openat(spool->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    numbers = mem_alloc_array(SPOOL_FILES_MAX, sizeof(*numbers));
    for (struct dirent *e; count != SPOOL_FILES_MAX && (e = readdir(dir)) != NULL;)
        if (parse_name(e->d_name, &number) && !is_listed(spool, number))
            numbers[count++] = number;
    closedir(dir);
    qsort(numbers, count, sizeof(*numbers), compare_numbers);
    for (size_t i = 0; i != count; ++i) {
        if (numbers[i] >= spool->next_number)
            spool->next_number = numbers[i] + 1;
        adopt(spool, numbers[i]);
    }
    free(numbers);
    return true;
}

/* --- a file of our own --- */

/* The new file's descriptor, locked; -1 with errno. */
static int create_file(spool_t *spool, char name[NAME_MAX_BYTES])
{
    for (int i = 0; i != BEGIN_TRIES; ++i) {
        make_name(spool->next_number++, name);
        int fd = openat(spool->dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0 && errno != EEXIST)
            return -1;
        if (fd >= 0 && is_ours(spool, fd, name))
            return fd;
        if (fd >= 0)
            close(fd); /* another process looked at it before it was locked, and will remove it */
    }
    errno = EEXIST;
    return -1;
}

static bool begin_file(spool_t *spool)
{
    char name[NAME_MAX_BYTES];
    int error, fd = create_file(spool, name);
    if (fd < 0) {
        note_trouble(spool, "no new file can be made", errno);
        return false;
    }
    spool_file_t *f = spool_file_begin(fd, spool->next_number - 1);
    if (f == NULL || !spool_file_reserve(f, spool->in_flight) || !spool_file_sync(f) || fsync(spool->dir_fd) != 0)
        goto Fail;
    f->path = mem_strdup(name);
    f->name_number = spool->next_number - 1;
    f->active = true;
    list_add(spool, f);
    spool->active = f;
    return true;
Fail:
    error = errno;
    unlinkat(spool->dir_fd, name, 0);
    if (f != NULL)
        spool_file_close(f);
    else
        close(fd);
    note_trouble(spool, "no new file can be made", error);
    return false;
}

/* A file is left between two syncs, so that one sync is always enough. */
static bool is_full(const spool_t *spool, const spool_file_t *f)
{
    return f->synced == f->end && (!f->active || f->end >= spool->file_max);
}

bool spool_dir_append(spool_t *spool, uint32_t order_key, const spool_piece_t *pieces, size_t count)
{
    if (spool->active != NULL && is_full(spool, spool->active))
        leave_active(spool);
    if (spool->active == NULL && (spool->dir_fd < 0 || !begin_file(spool)))
        return false;
    if (!spool_file_append(spool->active, order_key, clock_wall_ms(), pieces, count)) {
        note_trouble(spool, "a record cannot be written", errno);
        spool->active->active = false; /* what was written before it is still to be synced */
        return false;
    }
    if (!spool_file_reserve(spool->active, spool->in_flight))
        note_trouble(spool, "there is no room for what the runs in flight may come to", errno);
    return true;
}

/* Releases what is not going to be read. */
static void cut_entries(spool_t *spool, spool_file_t *f, uint32_t count)
{
    for (uint32_t i = count; i < f->count; ++i) {
        if (f->entries[i].taken) {
            --f->taken;
            continue;
        }
        atomic_fetch_sub(&spool->held[f->entries[i].bucket], 1);
        atomic_fetch_sub(&spool->records, 1);
    }
    f->count = count;
}

bool spool_dir_sync(spool_t *spool)
{
    spool_file_t *f = spool->active;
    if (f == NULL)
        return false;
    bool synced = spool_file_sync(f);
    if (!synced) {
        note_trouble(spool, "a record cannot be synced", errno);
        /* whether any of it is on the disk is not known: those who wait for it are told no */
        spool_file_cut_back(f);
    }
    if (!synced || !f->active)
        leave_active(spool);
    return synced;
}

void spool_dir_mark(spool_t *spool, const spool_place_t *place)
{
    spool_file_t *f = place->_file;
    spool_file_mark(f, place->_offset, place->_ordinal);
    if (!spool_file_is_done(f))
        return;
    if (f != spool->active)
        retire(spool, f);
    else if (!spool_file_reset(f))
        leave_active(spool);
    else if (!spool_file_reserve(f, spool->in_flight))
        note_trouble(spool, "there is no room for what the runs in flight may come to", errno);
}

/* --- reading back --- */

static void found_corrupt(spool_t *spool, spool_file_t *f, const char *reason)
{
    if (f == spool->active)
        leave_active(spool);
    f->corrupt = true;
    f->corrupt_at = f->end = f->synced = f->at;
    say_corrupt(spool, f->path, f->at, f->at_ordinal, reason);
    cut_entries(spool, f, f->at_ordinal);
}

static const char *reason_of(spool_frame_result_t result)
{
    return result == SPOOL_UNREADABLE ? strerror(errno) : "a record is not what was written";
}

size_t spool_dir_read(spool_t *spool, spool_item_t *items)
{
    size_t count = 0, bytes = 0;
    spool_frame_t frame;
    for (spool_file_t *f = spool->files, *next; f != NULL; f = next) {
        next = f->next;
        while (f->at < f->synced && count != SPOOL_BATCH_RECORDS && bytes < SPOOL_BATCH_BYTES) {
            bool skip = f->entries[f->at_ordinal].taken;
            spool_frame_result_t result = spool_file_read(f, f->at, f->synced, !skip, &frame);
            if (result != SPOOL_FRAME) {
                found_corrupt(spool, f, reason_of(result));
                if (spool_file_is_done(f))
                    retire(spool, f);
                break;
            }
            if (!skip) {
                items[count++] = (spool_item_t){
                    .place = {f, f->at, f->at_ordinal},
                    .order_key = frame.order_key,
                    .appended_ms = frame.appended_ms,
                    .payload = frame.payload,
                    .len = frame.len,
                };
                bytes += frame.len;
            }
            f->at += spool_frame_size(frame.len);
            ++f->at_ordinal;
        }
    }
    return count;
}

void spool_dir_rewind(spool_t *spool)
{
    for (spool_file_t *f = spool->files; f != NULL; f = f->next) {
        f->at = SPOOL_FILE_HEADER < f->end ? SPOOL_FILE_HEADER : f->end;
        f->at_ordinal = 0;
    }
}

void spool_dir_count(spool_t *spool)
{
    uint64_t bytes = 0;
    int64_t oldest = 0;
    bool unread = false;
    for (const spool_file_t *f = spool->files; f != NULL; f = f->next) {
        int64_t of_file = spool_file_oldest_ms(f);
        bytes += f->end;
        unread = unread || f->at < f->synced;
        if (oldest == 0 || (of_file != 0 && of_file < oldest))
            oldest = of_file;
    }
    atomic_store(&spool->file_bytes, bytes);
    atomic_store(&spool->oldest_ms, oldest);
    atomic_store(&spool->unread, unread);
}

/* --- from the start to the end --- */

static bool open_dir(spool_t *spool)
{
    if (spool->dir_fd < 0)
        spool->dir_fd = open(spool->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (spool->dir_fd < 0 || !adopt_all(spool)) {
        note_trouble(spool, "the directory cannot be read", errno);
        return false;
    }
    return true;
}

void spool_dir_look(spool_t *spool)
{
    bool usable = atomic_load(&spool->usable);
    if (!open_dir(spool))
        return;
    retire_again(spool);
    if (usable)
        return;
    if (spool->active != NULL && !spool->active->active)
        leave_active(spool);
    if (spool->active != NULL ? spool_file_reserve(spool->active, spool->in_flight) : begin_file(spool))
        note_usable(spool);
}

void spool_dir_begin(spool_t *spool, const char *dir)
{
    spool->dir = mem_strdup(dir);
    spool->dir_fd = -1;
    spool->next_number = 1;
    spool->file_max = spool->limit / SPOOL_FILES_PER_LIMIT;
    if (spool->file_max < SPOOL_FILE_MIN)
        spool->file_max = SPOOL_FILE_MIN;
    if (open_dir(spool) && begin_file(spool))
        note_usable(spool);
}

void spool_dir_end(spool_t *spool)
{
    leave_active(spool);
    while (spool->files != NULL) {
        spool_file_t *f = spool->files;
        list_remove(spool, f);
        spool_file_close(f);
    }
    if (spool->dir_fd >= 0)
        close(spool->dir_fd);
    free(spool->dir);
}
