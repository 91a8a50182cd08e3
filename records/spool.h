/*
 * The spool: records that Redis did not take, on the disk until it does. A directory of append-only files
 * (records/spool_file.h), written, synced and read back on a thread of its own and shared by the loops of one front.
 * A process locks each of its files; what a dead process left is taken over, oldest first.
 *
 * Bounded: when `limit` is reached, or the disk does not take what is written, spool_has_room says no and no new run
 * may start. What is already under way still fits: its room was counted before it started.
 */
#ifndef RECORDS_SPOOL_H
#define RECORDS_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/loop.h"
#include "records/spool_file.h"

typedef struct spool spool_t;

enum {
    /* Bytes of one record without its output, frame included: some 20 texts of at most 256 bytes, the packed RunRecord
     * (4 texts of a backend's and 5 digests, 8 KiB with room to spare) and the frame's 56. */
    SPOOL_RECORD_MAX = 16 * 1024,
    SPOOL_FILES_PER_LIMIT = 16,          /* a file is given back as a whole, so the room comes back in sixteenths */
    SPOOL_FILE_MIN = 64 * 1024,          /* but no smaller files than this */
    SPOOL_BATCH_RECORDS = 64,            /* read back at once ... */
    SPOOL_BATCH_BYTES = 2 * 1024 * 1024, /* ... and bytes, of which one record alone may have more */
    SPOOL_RETRY_MS = 1000,               /* after trouble with the disk it is tried again this often */
    SPOOL_LOOK_MS = 2000,                /* how often files that another process held are looked at */
    SPOOL_FILES_MAX = 4096,              /* of one directory; more stay until some are gone */
};

/* Opens the directory, which must be there; never fails: a directory that cannot be used is trouble like a full disk,
 * tried again each second. `limit` and `in_flight` are bytes: of all files, and what the runs that may be in flight can
 * come to (SPOOL_RECORD_MAX each). Everything a dead process left is read and checked before this returns. */
spool_t *spool_open(const char *dir, uint64_t limit, uint64_t in_flight);
/* Ends the thread; whatever was handed in is written, and its callback posted, before this returns. A file with nothing
 * in it is removed. Loops may go once they have run what was posted. */
void spool_close(spool_t *spool);

/* Whether `runs` more records, without outputs, are sure to find room. Any thread. */
bool spool_has_room(const spool_t *spool, uint32_t runs);
/* Whether a record of `len` bytes, output included, leaves room for all runs in flight. Any thread. */
bool spool_takes(const spool_t *spool, size_t len);

/* What has one order key is kept in order. */
uint32_t spool_order_key(const char *caller);
/* Whether something of this key, or of one that shares its bucket, is not taken yet: what follows must go the same way.
 * Any thread. */
bool spool_is_held(const spool_t *spool, uint32_t order_key);
void spool_release(spool_t *spool, uint32_t order_key);

typedef struct spool_append {
    loop_t *loop;
    /* On `loop`, exactly once. `durable` false: the disk did not take it; the key stays held, and that is the caller's
     * from then on (spool_release). */
    void (*cb)(struct spool_append *append, bool durable);
    void *data;
    uint32_t order_key;
    spool_piece_t pieces[2]; /* the record's bytes, the caller's until the callback */
    struct spool_append *_next;
    bool _durable;
} spool_append_t;
/* Any thread. */
void spool_append(spool_t *spool, spool_append_t *append);

typedef struct {
    spool_file_t *_file;
    uint64_t _offset;
    uint32_t _ordinal;
} spool_place_t;

typedef struct {
    spool_place_t place;
    uint32_t order_key;
    int64_t appended_ms;
    uint8_t *payload; /* the receiver's to free */
    size_t len;
} spool_item_t;

/* Reads back what is on the disk, oldest first, each record once. One reader at a time; its functions are its loop's
 * thread's. */
typedef struct spool_reader spool_reader_t;
spool_reader_t *spool_reader_create(spool_t *spool, loop_t *loop,
                                    void (*on_items)(void *data, const spool_item_t *items, size_t count), void *data);
/* Asks for the next records: on_items is called once, when there are some. Asked twice is asked once. */
void spool_reader_ask(spool_reader_t *reader);
/* Records that were read and not taken come again, to the next reader. */
void spool_reader_destroy(spool_reader_t *reader);
/* Redis has it: the record is marked and its key released. Any thread. */
void spool_taken(spool_t *spool, const spool_place_t *place, uint32_t order_key);

typedef struct {
    uint64_t bytes, limit; /* of all files and of what waits to be written */
    uint64_t records;      /* not taken */
    uint64_t stuck;        /* of those: Redis refuses them, or this version cannot read them */
    uint64_t oldest_ms;    /* age of the oldest of them */
    uint64_t appended_total, replayed_total;
    uint64_t set_aside_total; /* files that were not read to their end */
    uint64_t torn_total;      /* files whose tail was cut */
    uint64_t late_total;
    uint64_t failures_total; /* appends the disk did not take */
    bool usable;             /* false: the disk is in trouble */
} spool_stats_t;
/* One record more, or (-1) one less, of those counted is not going to be taken as things are. Any thread. */
void spool_note_stuck(spool_t *spool, int change);
/* Somebody was answered before the disk had taken a record. Any thread. */
void spool_note_late(spool_t *spool);
void spool_stats(const spool_t *spool, spool_stats_t *out);

#endif
