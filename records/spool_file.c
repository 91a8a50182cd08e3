#include "records/spool_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/fault.h"
#include "core/mem.h"
#include "core/sha256.h"

static const char FILE_MAGIC[16] = {'p', 'l', 'i', 'm', 's', 'o', 'l', 'l', '-', 's', 'p', 'o', 'o', 'l', '-', '1'};

enum {
    FRAME_MAGIC = 0x50535231, /* "PSR1" */
    CHECKED = 32,             /* bytes of a frame's header under its check */
    CHECK_AT = 32,
    MARK_AT = 40,
    ALIGN = 8,
    ZEROS_STEP = 64 * 1024,
    ENTRIES_FIRST = 64,
    PIECES_MAX = 4,
};

static void put_number(uint8_t *at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i != bytes; ++i)
        at[i] = (uint8_t)(value >> (8 * (bytes - 1 - i)));
}

static uint64_t get_number(const uint8_t *at, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i != bytes; ++i)
        value = value << 8 | at[i];
    return value;
}

static uint64_t check_end(sha256_t *s)
{
    uint8_t digest[SHA256_BYTES];
    sha256_end(s, digest);
    return get_number(digest, 8);
}

static uint64_t file_check(const uint8_t header[SPOOL_FILE_HEADER])
{
    sha256_t *s = sha256_begin();
    sha256_add(s, header, SPOOL_FILE_HEADER - 8);
    return check_end(s);
}

/* The place belongs to it, so that bytes that ended up elsewhere are no record there. */
static uint64_t frame_check(const uint8_t header[SPOOL_FRAME_HEADER], uint64_t number, uint64_t offset)
{
    uint8_t place[16];
    put_number(place, number, 8);
    put_number(place + 8, offset, 8);
    sha256_t *s = sha256_begin();
    sha256_add(s, header, CHECKED);
    sha256_add(s, place, sizeof(place));
    return check_end(s);
}

static uint64_t payload_check(const spool_piece_t *pieces, size_t count)
{
    sha256_t *s = sha256_begin();
    for (size_t i = 0; i != count; ++i)
        sha256_add(s, pieces[i].base, pieces[i].len);
    return check_end(s);
}

static size_t padding(size_t len)
{
    return (ALIGN - len % ALIGN) % ALIGN;
}

uint64_t spool_frame_size(size_t len)
{
    return SPOOL_FRAME_HEADER + len + padding(len);
}

uint16_t spool_bucket(uint32_t order_key)
{
    return (uint16_t)(order_key % SPOOL_BUCKETS);
}

/* All of it, or false with errno; a file that ends early is EIO. */
static bool read_all(int fd, void *base, size_t len, uint64_t offset)
{
    uint8_t *at = base;
    while (len != 0) {
        ssize_t n = pread(fd, at, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            if (n == 0)
                errno = EIO;
            return false;
        }
        at += n;
        len -= (size_t)n;
        offset += (size_t)n;
    }
    return true;
}

static bool write_all(int fd, struct iovec *iov, int count, uint64_t offset)
{
    while (count != 0) {
        ssize_t n = pwritev(fd, iov, count, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            if (n == 0)
                errno = ENOSPC;
            return false;
        }
        offset += (size_t)n;
        while (count != 0 && (size_t)n >= iov->iov_len) {
            n -= (ssize_t)iov->iov_len;
            ++iov;
            --count;
        }
        if (count != 0) {
            iov->iov_base = (uint8_t *)iov->iov_base + n;
            iov->iov_len -= (size_t)n;
        }
    }
    return true;
}

static spool_file_t *file_create(int fd, uint64_t number)
{
    spool_file_t *f = mem_alloc(sizeof(*f));
    f->fd = fd;
    f->number = number;
    f->end = f->synced = f->at = SPOOL_FILE_HEADER;
    return f;
}

spool_file_t *spool_file_begin(int fd, uint64_t number)
{
    uint8_t header[SPOOL_FILE_HEADER];
    memcpy(header, FILE_MAGIC, sizeof(FILE_MAGIC));
    put_number(header + 16, number, 8);
    put_number(header + 24, file_check(header), 8);
    struct iovec iov = {header, sizeof(header)};
    if (!write_all(fd, &iov, 1, 0))
        return NULL;
    return file_create(fd, number);
}

static void become_corrupt(spool_file_t *f, uint64_t at)
{
    f->corrupt = true;
    f->corrupt_at = f->end = f->synced = at;
}

spool_file_t *spool_file_unreadable(int fd)
{
    spool_file_t *f = file_create(fd, 0);
    become_corrupt(f, 0);
    return f;
}

void spool_file_close(spool_file_t *f)
{
    if (f->fd >= 0)
        close(f->fd);
    free(f->entries);
    free(f->path);
    free(f);
}

/* Nothing but zeros from `offset` on: room the file system gave and nobody wrote to before a crash. */
static bool is_zeros(int fd, uint64_t offset, uint64_t end)
{
    bool zeros = true;
    uint8_t *step = mem_alloc(ZEROS_STEP);
    while (zeros && offset < end) {
        size_t n = end - offset < ZEROS_STEP ? (size_t)(end - offset) : ZEROS_STEP;
        zeros = read_all(fd, step, n, offset);
        for (size_t i = 0; zeros && i != n; ++i)
            zeros = step[i] == 0;
        offset += n;
    }
    free(step);
    return zeros;
}

static bool is_header_of(const spool_file_t *f, const uint8_t header[SPOOL_FRAME_HEADER], uint64_t offset)
{
    return get_number(header, 4) == FRAME_MAGIC && get_number(header + 20, 4) == 0 &&
           get_number(header + 4, 4) <= SPOOL_PAYLOAD_MAX &&
           get_number(header + CHECK_AT, 8) == frame_check(header, f->number, offset);
}

spool_frame_result_t spool_file_read(const spool_file_t *f, uint64_t offset, uint64_t end, bool with_payload,
                                     spool_frame_t *out)
{
    uint8_t header[SPOOL_FRAME_HEADER];
    *out = (spool_frame_t){.offset = offset};
    if (offset >= end)
        return SPOOL_END;
    if (end - offset < sizeof(header))
        return SPOOL_TORN;
    if (!read_all(f->fd, header, sizeof(header), offset))
        return SPOOL_UNREADABLE;
    if (!is_header_of(f, header, offset))
        return is_zeros(f->fd, offset, end) ? SPOOL_TORN : SPOOL_CORRUPT;
    out->len = (uint32_t)get_number(header + 4, 4);
    out->appended_ms = (int64_t)(get_number(header + 8, 8) & INT64_MAX);
    out->order_key = (uint32_t)get_number(header + 16, 4);
    out->taken = get_number(header + MARK_AT, 8) == ~get_number(header + CHECK_AT, 8);
    size_t whole = out->len + padding(out->len);
    if (end - offset - sizeof(header) < whole)
        return SPOOL_TORN;
    uint8_t *payload = mem_alloc(whole != 0 ? whole : 1);
    if (!read_all(f->fd, payload, whole, offset + sizeof(header))) {
        free(payload);
        return SPOOL_UNREADABLE;
    }
    bool fine = payload_check(&(spool_piece_t){payload, out->len}, 1) == get_number(header + 24, 8);
    for (size_t i = out->len; i != whole; ++i)
        fine = fine && payload[i] == 0;
    if (fine && with_payload)
        out->payload = payload;
    else
        free(payload);
    return fine ? SPOOL_FRAME : SPOOL_CORRUPT;
}

static void note_entry(spool_file_t *f, uint32_t order_key, int64_t appended_ms, bool taken)
{
    if (f->count == f->room) {
        f->room = f->room != 0 ? f->room * 2 : ENTRIES_FIRST;
        f->entries = mem_realloc(f->entries, f->room * sizeof(*f->entries));
    }
    if (f->count == 0)
        f->first_ms = appended_ms;
    int64_t after = appended_ms - f->first_ms;
    f->entries[f->count++] = (spool_entry_t){
        .age_ms_after = after < 0            ? 0
                        : after > UINT32_MAX ? UINT32_MAX
                                             : (uint32_t)after,
        .bucket = spool_bucket(order_key),
        .taken = taken,
    };
    f->taken += taken;
    while (f->lowest != f->count && f->entries[f->lowest].taken)
        ++f->lowest;
}

/* Every frame up to the first that is none. */
static spool_frame_result_t scan(spool_file_t *f, uint64_t size)
{
    spool_frame_t frame;
    spool_frame_result_t result;
    while ((result = spool_file_read(f, f->end, size, false, &frame)) == SPOOL_FRAME) {
        note_entry(f, frame.order_key, frame.appended_ms, frame.taken);
        f->end += spool_frame_size(frame.len);
        if (f->count == UINT32_MAX / 2)
            return SPOOL_CORRUPT; /* no file of ours: at 48 bytes a frame it has 100 GB */
    }
    f->synced = f->end;
    return result;
}

/* NULL: it cannot be read, errno. */
static spool_file_t *open_file(int fd, uint64_t *size)
{
    struct stat st;
    uint8_t header[SPOOL_FILE_HEADER];
    if (fstat(fd, &st) != 0)
        return NULL;
    if (!S_ISREG(st.st_mode)) {
        errno = EINVAL;
        return NULL;
    }
    *size = (uint64_t)st.st_size;
    if (!read_all(fd, header, *size < sizeof(header) ? (size_t)*size : sizeof(header), 0))
        return NULL;
    spool_file_t *f = file_create(fd, 0);
    if (*size < sizeof(header) || is_zeros(fd, 0, *size)) {
        f->end = f->synced = 0; /* a crash between its creation and its first record */
        return f;
    }
    if (memcmp(header, FILE_MAGIC, sizeof(FILE_MAGIC)) != 0 || get_number(header + 24, 8) != file_check(header)) {
        become_corrupt(f, 0);
        return f;
    }
    f->number = get_number(header + 16, 8);
    spool_frame_result_t result = scan(f, *size);
    if (result == SPOOL_UNREADABLE) {
        int error = errno;
        f->fd = -1;
        spool_file_close(f);
        errno = error;
        return NULL;
    }
    if (result == SPOOL_CORRUPT)
        become_corrupt(f, f->end);
    return f;
}

spool_file_t *spool_file_adopt(int fd, uint64_t *cut)
{
    uint64_t size;
    *cut = 0;
    spool_file_t *f = open_file(fd, &size);
    if (f == NULL || f->corrupt || f->end == size)
        return f;
    *cut = size - f->end;
    if (ftruncate(fd, (off_t)f->end) != 0)
        become_corrupt(f, f->end); /* it cannot be cut: set aside, then */
    return f;
}

spool_file_t *spool_file_look(int fd, uint64_t number, uint64_t *size)
{
    spool_file_t *f = open_file(fd, size);
    if (f != NULL && f->corrupt && f->corrupt_at == 0)
        f->number = number;
    return f;
}

bool spool_file_find(const spool_file_t *f, uint64_t offset, uint64_t end, spool_frame_t *out)
{
    uint8_t magic[4];
    offset += padding((size_t)(offset % ALIGN));
    for (; offset < end && end - offset >= SPOOL_FRAME_HEADER; offset += ALIGN) {
        if (!read_all(f->fd, magic, sizeof(magic), offset))
            return false;
        if (get_number(magic, 4) == FRAME_MAGIC && spool_file_read(f, offset, end, true, out) == SPOOL_FRAME)
            return true;
    }
    return false;
}

bool spool_file_append(spool_file_t *f, uint32_t order_key, int64_t now_ms, const spool_piece_t *pieces, size_t count)
{
    static const uint8_t zeros[ALIGN];
    uint8_t header[SPOOL_FRAME_HEADER] = {0};
    struct iovec iov[PIECES_MAX + 2];
    size_t len = 0;
    if (count > PIECES_MAX)
        mem_fatal("spool_file_append: too many pieces");
    iov[0] = (struct iovec){header, sizeof(header)};
    for (size_t i = 0; i != count; ++i) {
        iov[i + 1] = (struct iovec){(void *)pieces[i].base, pieces[i].len};
        len += pieces[i].len;
    }
    if (len > SPOOL_PAYLOAD_MAX) {
        errno = EFBIG;
        return false;
    }
    iov[count + 1] = (struct iovec){(void *)zeros, padding(len)};
    put_number(header, FRAME_MAGIC, 4);
    put_number(header + 4, len, 4);
    put_number(header + 8, now_ms > 0 ? (uint64_t)now_ms : 0, 8);
    put_number(header + 16, order_key, 4);
    put_number(header + 24, payload_check(pieces, count), 8);
    put_number(header + CHECK_AT, frame_check(header, f->number, f->end), 8);
    errno = EIO;
    bool fine = !fault_point("spool.write") && write_all(f->fd, iov, (int)count + 2, f->end);
    if (!fine) {
        int error = errno;
        if (ftruncate(f->fd, (off_t)f->end) != 0)
            f->active = false; /* the torn frame is cut by whoever adopts the file */
        errno = error;
        return false;
    }
    note_entry(f, order_key, now_ms, false);
    f->end += spool_frame_size(len);
    return true;
}

bool spool_file_reserve(spool_file_t *f, uint64_t bytes)
{
    if (bytes == 0 || f->end + bytes <= f->allocated)
        return true;
    if (fault_point("spool.reserve")) {
        errno = ENOSPC;
        return false;
    }
    if (fallocate(f->fd, FALLOC_FL_KEEP_SIZE, (off_t)f->end, (off_t)bytes) != 0) {
        if (errno != EOPNOTSUPP && errno != ENOSYS)
            return false;
        /* a file system without it: its errors come with the append */
    }
    f->allocated = f->end + bytes;
    return true;
}

bool spool_file_sync(spool_file_t *f)
{
    errno = EIO;
    if (fault_point("spool.sync") || fdatasync(f->fd) != 0)
        return false;
    f->synced = f->end;
    return true;
}

void spool_file_cut_back(spool_file_t *f)
{
    spool_frame_t frame;
    uint32_t count = 0;
    uint64_t at = SPOOL_FILE_HEADER;
    while (at < f->synced && spool_file_read(f, at, f->synced, false, &frame) == SPOOL_FRAME) {
        at += spool_frame_size(frame.len);
        ++count;
    }
    f->end = f->synced;
    if (count < f->count)
        f->count = count;
    if (ftruncate(f->fd, (off_t)f->synced) != 0)
        f->active = false;
}

void spool_file_mark(spool_file_t *f, uint64_t offset, uint32_t ordinal)
{
    uint8_t check[8];
    if (ordinal >= f->count || f->entries[ordinal].taken)
        return;
    f->entries[ordinal].taken = true;
    ++f->taken;
    while (f->lowest != f->count && f->entries[f->lowest].taken)
        ++f->lowest;
    if (fault_point("spool.mark") || !read_all(f->fd, check, sizeof(check), offset + CHECK_AT))
        return; /* sent once more after a restart, which changes nothing */
    for (size_t i = 0; i != sizeof(check); ++i)
        check[i] = (uint8_t)~check[i];
    struct iovec iov = {check, sizeof(check)};
    (void)write_all(f->fd, &iov, 1, offset + MARK_AT);
}

bool spool_file_is_done(const spool_file_t *f)
{
    return f->taken == f->count;
}

bool spool_file_reset(spool_file_t *f)
{
    if (ftruncate(f->fd, SPOOL_FILE_HEADER) != 0)
        return false;
    f->end = f->synced = f->at = SPOOL_FILE_HEADER;
    f->allocated = 0;
    f->at_ordinal = f->count = f->taken = f->lowest = 0;
    return true;
}

int64_t spool_file_oldest_ms(const spool_file_t *f)
{
    return f->lowest < f->count ? f->first_ms + (int64_t)f->entries[f->lowest].age_ms_after : 0;
}
