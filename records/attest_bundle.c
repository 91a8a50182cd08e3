#include "records/attest_bundle.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/mem.h"

enum {
    READ_CHUNK = 1024 * 1024,
    PENDING_FLUSH = 8 * 1024 * 1024,                   /* bytes gathered before they are written */
    PENDING_MAX = PENDING_FLUSH + 2 * ATTEST_LINE_MAX, /* and the line that passed it, and a checkpoint */
    LOCK_POLL_NS = 20 * 1000 * 1000,
};

/* ---- reading ---- */

void attest_lines_init(attest_lines_t *lines, int fd)
{
    *lines = (attest_lines_t){.fd = fd};
}

void attest_lines_dispose(attest_lines_t *lines)
{
    free(lines->_base);
    *lines = (attest_lines_t){.fd = -1};
}

/* Moves what is left to the front and makes room for another chunk. */
static void make_room(attest_lines_t *lines)
{
    if (lines->_start != 0 && lines->_len != 0)
        memmove(lines->_base, lines->_base + lines->_start, lines->_len);
    lines->_start = 0;
    if (lines->_cap - lines->_len >= READ_CHUNK)
        return;
    lines->_cap = 2 * lines->_cap > lines->_len + READ_CHUNK ? 2 * lines->_cap : lines->_len + READ_CHUNK;
    lines->_base = mem_realloc(lines->_base, lines->_cap);
}

/* false with *err, or at the end of the file. */
static bool read_more(attest_lines_t *lines, const char **err)
{
    make_room(lines);
    for (;;) {
        uint8_t *to = lines->_base + lines->_len;
        ssize_t n = pread(lines->fd, to, READ_CHUNK, (off_t)(lines->offset + lines->_len));
        if (n < 0 && errno == ESPIPE) /* a pipe, as standard input may be: there is only one place to read from */
            n = read(lines->fd, to, READ_CHUNK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            *err = strerror(errno);
        lines->_at_end = n == 0;
        if (n > 0)
            lines->_len += (size_t)n;
        return n > 0;
    }
}

bool attest_lines_next(attest_lines_t *lines, const char **line, size_t *len, const char **err)
{
    *err = NULL;
    lines->_scanned = 0;
    for (;;) {
        const uint8_t *start = lines->_len != 0 ? lines->_base + lines->_start : NULL, *end = NULL;
        if (lines->_scanned < lines->_len)
            end = memchr(start + lines->_scanned, '\n', lines->_len - lines->_scanned);
        if (end != NULL) {
            *line = (const char *)start;
            *len = (size_t)(end - start);
            lines->_start += *len + 1;
            lines->_len -= *len + 1;
            lines->offset += *len + 1;
            if (*len + 1 > ATTEST_LINE_MAX)
                *err = "it is longer than 64 MiB";
            return *err == NULL;
        }
        lines->_scanned = lines->_len;
        if (lines->_len >= ATTEST_LINE_MAX) {
            *err = "it is longer than 64 MiB";
            return false;
        }
        if (!read_more(lines, err)) {
            if (*err == NULL && lines->_len != 0)
                *err = "it does not end in a newline";
            return false;
        }
    }
}

const char *attest_bundle_read(int fd, attest_verifier_t *verifier, uint64_t *size)
{
    attest_lines_t lines;
    const char *line, *why = NULL, *err = NULL;
    size_t len;
    attest_lines_init(&lines, fd);
    while (why == NULL && attest_lines_next(&lines, &line, &len, &err))
        why = attest_verifier_line(verifier, line, len);
    if (why == NULL && err != NULL)
        why = attest_verifier_fail(verifier, err);
    *size = lines.offset;
    attest_lines_dispose(&lines);
    return why;
}

const char *attest_bundle_verify(int fd, attest_verifier_t *verifier)
{
    uint64_t size;
    const char *why = attest_bundle_read(fd, verifier, &size);
    return why != NULL ? why : attest_verifier_end(verifier);
}

const char *attest_bundle_read_to_continue(int fd, attest_verifier_t *verifier, uint64_t *size)
{
    const char *why = attest_bundle_read(fd, verifier, size);
    return why != NULL || *size == 0 ? why : attest_verifier_end(verifier);
}

/* ---- appending ---- */

bool attest_bundle_lock(int fd, int64_t wait_ms)
{
    const struct timespec poll = {.tv_nsec = LOCK_POLL_NS};
    int64_t end = (int64_t)clock_mono_ms() + wait_ms;
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        bool is_held = errno == EWOULDBLOCK;
        if ((!is_held && errno != EINTR) || (is_held && (int64_t)clock_mono_ms() >= end))
            return false;
        nanosleep(&poll, NULL);
    }
    return true;
}

void attest_writer_init(attest_writer_t *w, int fd, uint64_t size, attest_verifier_t *verifier, const attest_key_t *key)
{
    *w = (attest_writer_t){._verifier = verifier, ._key = key, ._fd = fd, ._start = size, ._at = size};
    w->_prefix = attest_verifier_summary(verifier).prefix;
    buffer_init(&w->_pending, PENDING_MAX);
}

void attest_writer_dispose(attest_writer_t *w)
{
    buffer_dispose(&w->_pending);
}

/* Puts the file back, and says so. */
static const char *fail(attest_writer_t *w, const char *why)
{
    char told[ATTEST_WRITER_ERROR_MAX];
    snprintf(told, sizeof(told), "%s", why);
    w->_has_failed = true;
    if (w->_at == w->_start || (ftruncate(w->_fd, (off_t)w->_start) == 0 && fsync(w->_fd) == 0))
        snprintf(w->error, sizeof(w->error), "%.400s; the bundle is as it was", told);
    else
        snprintf(w->error, sizeof(w->error),
                 "%.300s; and it could not be put back (%.60s): cut it to %" PRIu64 " bytes before using it again",
                 told, strerror(errno), w->_start);
    return w->error;
}

const char *attest_writer_abort(attest_writer_t *w, const char *why)
{
    return w->_has_failed ? w->error : fail(w, why);
}

static const char *flush(attest_writer_t *w)
{
    size_t done = 0;
    while (done < w->_pending.len) {
        ssize_t n = pwrite(w->_fd, w->_pending.base + done, w->_pending.len - done, (off_t)w->_at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            char why[128];
            snprintf(why, sizeof(why), "the bundle cannot be written: %s", n == 0 ? "no room" : strerror(errno));
            return fail(w, why);
        }
        done += (size_t)n;
        w->_at += (uint64_t)n;
    }
    buffer_clear(&w->_pending);
    return NULL;
}

/* Gathers a line (NULL: the checkpoint), once it verifies where it will stand. */
static const char *gather(attest_writer_t *w, const buffer_t *entry)
{
    attest_summary_t so_far = attest_verifier_summary(w->_verifier);
    size_t start = w->_pending.len;
    if (!attest_line_write(&w->_pending, w->_key, w->_prefix, entry, so_far.lines, so_far.last_sha256))
        return fail(w, "the entry makes a line of more than 64 MiB");
    const char *line = (const char *)w->_pending.base + start;
    const char *why = attest_verifier_line(w->_verifier, line, w->_pending.len - start - 1);
    return why != NULL ? fail(w, why) : NULL;
}

const char *attest_writer_add(attest_writer_t *w, const buffer_t *entry)
{
    if (w->_has_failed)
        return w->error;
    const char *why = gather(w, entry);
    return why == NULL && w->_pending.len > PENDING_FLUSH ? flush(w) : why;
}

const char *attest_writer_finish(attest_writer_t *w)
{
    if (w->_has_failed)
        return w->error;
    const char *why = gather(w, NULL);
    if (why != NULL)
        return why;
    if ((why = attest_verifier_end(w->_verifier)) != NULL)
        return fail(w, why);
    if ((why = flush(w)) != NULL)
        return why;
    if (fsync(w->_fd) == 0)
        return NULL;
    char told[128];
    snprintf(told, sizeof(told), "the bundle cannot be synced: %s", strerror(errno));
    return fail(w, told);
}
