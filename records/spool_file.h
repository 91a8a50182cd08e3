/*
 * One file of the spool: records appended one after the other, each in a frame with its length and checksums, and a
 * mark that says that Redis took it. Big-endian numbers, all offsets multiples of 8:
 *
 *   file header, 32 bytes:  "plimsoll-spool-1", u64 number of the file, u64 check of the 24 bytes before
 *   frame header, 48 bytes: u32 magic, u32 bytes of the payload, u64 ms since 1970 when it was appended, u32 order key,
 *                           u32 zero, u64 check of the payload, u64 check of the 32 bytes before with the file's number
 *                           and the frame's offset, u64 mark (0, or the bits of the header's check turned over: taken)
 *   payload, and zeros to the next multiple of 8
 *
 * A check is the first 8 bytes of a SHA-256. As a header has a check of its own, a frame that ends past the file's end
 * was cut while it was written (torn), while a changed length is corruption. A mark of another value counts as none:
 * its record is whole, and settling may be repeated. No thread, no lock: the spool's thread alone uses a file.
 */
#ifndef RECORDS_SPOOL_FILE_H
#define RECORDS_SPOOL_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SPOOL_FILE_HEADER = 32,
    SPOOL_FRAME_HEADER = 48,
    SPOOL_PAYLOAD_MAX =
        2 * 1024 * 1024,  /* a record (SPOOL_RECORD_MAX) and the largest output that is kept, and spare */
    SPOOL_BUCKETS = 4096, /* callers share these; sharing costs a detour over the spool, nothing else */
};

/* What is known of one record without reading it again. */
typedef struct {
    uint32_t age_ms_after; /* appended this long after the file's first */
    uint16_t bucket;
    bool taken;
} spool_entry_t;

typedef struct spool_file {
    int fd;
    uint64_t number;       /* in its header */
    uint64_t end;          /* where the next frame goes */
    uint64_t synced;       /* what is surely on the disk: up to here records are read */
    uint64_t allocated;    /* of the disk, as far as that can be said */
    uint64_t at;           /* the next frame to read back */
    uint32_t at_ordinal;   /* its place in entries */
    uint32_t count, taken; /* of entries */
    uint32_t lowest;       /* entries before it are taken */
    uint32_t room;
    spool_entry_t *entries;
    int64_t first_ms;
    bool corrupt; /* at `corrupt_at`; what is before it stands */
    uint64_t corrupt_at;
    struct spool_file *next; /* the spool's list, by number of the name */
    char *path;
    uint64_t name_number;
    bool active;
    bool clings; /* it is done, and cannot be moved out of the way */
} spool_file_t;

typedef enum {
    SPOOL_FRAME,     /* a whole record */
    SPOOL_END,       /* nothing more */
    SPOOL_TORN,      /* the file ends within a frame, or holds nothing but zeros from here on */
    SPOOL_CORRUPT,   /* it was written and is not what was written */
    SPOOL_UNREADABLE /* errno says why */
} spool_frame_result_t;

typedef struct {
    uint64_t offset;
    uint32_t len;
    uint32_t order_key;
    int64_t appended_ms;
    bool taken;
    uint8_t *payload; /* the caller's to free; NULL when it was not asked for */
} spool_frame_t;

/* Bytes a record of `len` takes. */
uint64_t spool_frame_size(size_t len);
uint16_t spool_bucket(uint32_t order_key);

/* Writes the header of a new, empty file; `fd` becomes the file's. NULL, or errno is why not and `fd` is still the
 * caller's. */
spool_file_t *spool_file_begin(int fd, uint64_t number);
/* Takes over a file that was written before, by whatever process: checks every frame, cuts a torn tail (`*cut` = bytes
 * cut) and knows every record before a corrupt one. A file without even a header comes back empty. NULL: it cannot be
 * read (errno), and `fd` is still the caller's. */
spool_file_t *spool_file_adopt(int fd, uint64_t *cut);
/* The same of a file that is somebody else's, or was set aside: nothing is written or cut. `*size` is all its bytes.
 * `number` serves when the file's own cannot be read. */
spool_file_t *spool_file_look(int fd, uint64_t number, uint64_t *size);
/* Stands for one that cannot be read; `fd` (-1: none) becomes its own. */
spool_file_t *spool_file_unreadable(int fd);
void spool_file_close(spool_file_t *f);

/* Reads the frame at `offset`, at most up to `end` of the file's bytes. */
spool_frame_result_t spool_file_read(const spool_file_t *f, uint64_t offset, uint64_t end, bool with_payload,
                                     spool_frame_t *out);
/* The next whole frame at or after `offset`, over anything that is none; false: there is no more. A frame's check holds
 * its place, so what is found was written there. */
bool spool_file_find(const spool_file_t *f, uint64_t offset, uint64_t end, spool_frame_t *out);
/* A piece of a payload. */
typedef struct {
    const void *base;
    size_t len;
} spool_piece_t;
/* Appends one record of at most SPOOL_PAYLOAD_MAX bytes; not yet synced. false: errno says why, and the file ends where
 * it did. */
bool spool_file_append(spool_file_t *f, uint32_t order_key, int64_t now_ms, const spool_piece_t *pieces, size_t count);
/* Makes sure of `bytes` of the disk past the end. false: errno. */
bool spool_file_reserve(spool_file_t *f, uint64_t bytes);
bool spool_file_sync(spool_file_t *f);
/* Forgets what was appended since the last sync. */
void spool_file_cut_back(spool_file_t *f);
/* A record that was read is taken; not synced, as taking one twice is harmless. */
void spool_file_mark(spool_file_t *f, uint64_t offset, uint32_t ordinal);
/* Nothing in it waits for Redis: whole, or as far as it can be read. */
bool spool_file_is_done(const spool_file_t *f);
/* Empties a file that is done. */
bool spool_file_reset(spool_file_t *f);
/* When its oldest record that is not taken was appended, ms since 1970; 0 = there is none. */
int64_t spool_file_oldest_ms(const spool_file_t *f);

#endif
