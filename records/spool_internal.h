/* What the spool's files share. Nothing outside records/ includes this. */
#ifndef RECORDS_SPOOL_INTERNAL_H
#define RECORDS_SPOOL_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "records/spool.h"

typedef struct spool_mark {
    spool_place_t place;
    uint32_t order_key;
    struct spool_mark *next;
} spool_mark_t;

struct spool {
    uint32_t magic;
    uint64_t limit, in_flight;
    pthread_t thread;

    /* under the lock */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    spool_append_t *queue, **queue_end;
    spool_mark_t *marks, **marks_end;
    spool_reader_t *reader; /* who asked; NULL once its answer is posted */
    bool rewind, closing;

    /* anybody's */
    _Atomic uint64_t file_bytes, queued_bytes, records, stuck;
    _Atomic uint64_t appended_total, replayed_total, set_aside_total, torn_total, failures_total, late_total;
    _Atomic int64_t oldest_ms; /* when it was appended; 0 = none */
    _Atomic bool usable;
    _Atomic bool unread; /* some file has records nobody read yet */
    _Atomic uint32_t held[SPOOL_BUCKETS];

    /* the thread's own */
    int dir_fd;
    char *dir;
    spool_file_t *files;  /* oldest first; the last may be the active one */
    spool_file_t *active; /* NULL: the next append begins one */
    uint64_t next_number;
    uint64_t file_max;
    char trouble[160];
};

/* spool_dir.c; all on the spool's thread, but for begin and end. */
void spool_dir_begin(spool_t *spool, const char *dir);
void spool_dir_end(spool_t *spool);
/* Takes over what dead processes left, and tries a disk in trouble again. */
void spool_dir_look(spool_t *spool);
bool spool_dir_append(spool_t *spool, uint32_t order_key, const spool_piece_t *pieces, size_t count);
/* false: nothing of what was appended since the last sync stands. */
bool spool_dir_sync(spool_t *spool);
void spool_dir_mark(spool_t *spool, const spool_place_t *place);
/* At most SPOOL_BATCH_RECORDS; the payloads are the caller's. */
size_t spool_dir_read(spool_t *spool, spool_item_t *items);
/* What was read and not taken is read again. */
void spool_dir_rewind(spool_t *spool);
/* Brings the counts up to date. */
void spool_dir_count(spool_t *spool);

#endif
