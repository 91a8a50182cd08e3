/* The spool's thread and what the loops call. The directory and its files are records/spool_dir.c. */
#include "records/spool_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"

enum { SPOOL_MAGIC = 0x73706f6c, READER_MAGIC = 0x73707264 };

struct spool_reader {
    uint32_t magic;
    spool_t *spool;
    loop_t *loop;
    void (*on_items)(void *data, const spool_item_t *items, size_t count);
    void *data;
    bool asked;   /* under the spool's lock; from the question until its answer was given */
    bool stopped; /* the loop's */
};

typedef struct {
    spool_reader_t *reader;
    size_t count;
    spool_item_t items[SPOOL_BATCH_RECORDS];
} batch_t;

static void spool_check(const spool_t *spool)
{
    if (spool->magic != SPOOL_MAGIC)
        mem_fatal("not a spool");
}

/* --- what any thread may ask --- */

static uint64_t bytes_used(const spool_t *spool)
{
    return atomic_load(&spool->file_bytes) + atomic_load(&spool->queued_bytes);
}

bool spool_has_room(const spool_t *spool, uint32_t runs)
{
    uint64_t used = bytes_used(spool);
    return atomic_load(&spool->usable) && used <= spool->limit &&
           (uint64_t)runs * SPOOL_RECORD_MAX <= spool->limit - used;
}

bool spool_takes(const spool_t *spool, size_t len)
{
    uint64_t used = bytes_used(spool) + spool->in_flight;
    return len <= SPOOL_PAYLOAD_MAX && used <= spool->limit && spool_frame_size(len) <= spool->limit - used;
}

uint32_t spool_order_key(const char *caller)
{
    /* FNV-1a: on every run's path, and a collision costs a detour, no more. It is in the files, so it stays. */
    uint32_t hash = 2166136261;
    for (; *caller != '\0'; ++caller)
        hash = (hash ^ (uint8_t)*caller) * 16777619;
    return hash;
}

bool spool_is_held(const spool_t *spool, uint32_t order_key)
{
    return atomic_load(&spool->held[spool_bucket(order_key)]) != 0;
}

void spool_release(spool_t *spool, uint32_t order_key)
{
    atomic_fetch_sub(&spool->held[spool_bucket(order_key)], 1);
}

static size_t append_len(const spool_append_t *append)
{
    return append->pieces[0].len + append->pieces[1].len;
}

void spool_append(spool_t *spool, spool_append_t *append)
{
    spool_check(spool);
    atomic_fetch_add(&spool->held[spool_bucket(append->order_key)], 1);
    atomic_fetch_add(&spool->records, 1);
    atomic_fetch_add(&spool->queued_bytes, spool_frame_size(append_len(append)));
    append->_next = NULL;
    pthread_mutex_lock(&spool->lock);
    *spool->queue_end = append;
    spool->queue_end = &append->_next;
    pthread_cond_signal(&spool->wake);
    pthread_mutex_unlock(&spool->lock);
}

void spool_taken(spool_t *spool, const spool_place_t *place, uint32_t order_key)
{
    spool_check(spool);
    spool_mark_t *mark = mem_alloc(sizeof(*mark));
    mark->place = *place;
    mark->order_key = order_key;
    pthread_mutex_lock(&spool->lock);
    *spool->marks_end = mark;
    spool->marks_end = &mark->next;
    pthread_cond_signal(&spool->wake);
    pthread_mutex_unlock(&spool->lock);
}

void spool_note_stuck(spool_t *spool, int change)
{
    atomic_fetch_add(&spool->stuck, (uint64_t)(int64_t)change);
}

void spool_note_late(spool_t *spool)
{
    atomic_fetch_add(&spool->late_total, 1);
}

void spool_stats(const spool_t *spool, spool_stats_t *out)
{
    int64_t oldest = atomic_load(&spool->oldest_ms), now = clock_wall_ms();
    *out = (spool_stats_t){
        .bytes = bytes_used(spool),
        .limit = spool->limit,
        .records = atomic_load(&spool->records),
        .stuck = atomic_load(&spool->stuck),
        .oldest_ms = oldest != 0 && now > oldest ? (uint64_t)(now - oldest) : 0,
        .appended_total = atomic_load(&spool->appended_total),
        .replayed_total = atomic_load(&spool->replayed_total),
        .set_aside_total = atomic_load(&spool->set_aside_total),
        .torn_total = atomic_load(&spool->torn_total),
        .late_total = atomic_load(&spool->late_total),
        .failures_total = atomic_load(&spool->failures_total),
        .usable = atomic_load(&spool->usable),
    };
}

/* --- the reader --- */

spool_reader_t *spool_reader_create(spool_t *spool, loop_t *loop,
                                    void (*on_items)(void *data, const spool_item_t *items, size_t count), void *data)
{
    spool_reader_t *reader = mem_alloc(sizeof(*reader));
    reader->magic = READER_MAGIC;
    reader->spool = spool;
    reader->loop = loop;
    reader->on_items = on_items;
    reader->data = data;
    return reader;
}

static void reader_free(spool_reader_t *reader)
{
    reader->magic = 0;
    free(reader);
}

void spool_reader_ask(spool_reader_t *reader)
{
    spool_t *spool = reader->spool;
    pthread_mutex_lock(&spool->lock);
    if (!reader->asked) {
        reader->asked = true;
        spool->reader = reader;
        pthread_cond_signal(&spool->wake);
    }
    pthread_mutex_unlock(&spool->lock);
}

void spool_reader_destroy(spool_reader_t *reader)
{
    spool_t *spool = reader->spool;
    pthread_mutex_lock(&spool->lock);
    bool answered_soon = reader->asked && spool->reader != reader;
    if (spool->reader == reader)
        spool->reader = NULL;
    spool->rewind = true;
    pthread_cond_signal(&spool->wake);
    pthread_mutex_unlock(&spool->lock);
    reader->stopped = true;
    if (!answered_soon)
        reader_free(reader);
}

static void on_batch(void *arg)
{
    batch_t *batch = arg;
    spool_reader_t *reader = batch->reader;
    if (reader->magic != READER_MAGIC)
        mem_fatal("not a spool's reader");
    if (reader->stopped) {
        for (size_t i = 0; i != batch->count; ++i)
            free(batch->items[i].payload);
        reader_free(reader);
    } else {
        pthread_mutex_lock(&reader->spool->lock);
        reader->asked = false;
        pthread_mutex_unlock(&reader->spool->lock);
        reader->on_items(reader->data, batch->items, batch->count);
    }
    free(batch);
}

/* --- the thread --- */

static void on_appended(void *arg)
{
    spool_append_t *append = arg;
    append->cb(append, append->_durable);
}

static void give_back(spool_t *spool, spool_append_t *append, bool durable)
{
    atomic_fetch_sub(&spool->queued_bytes, spool_frame_size(append_len(append)));
    if (durable) {
        atomic_fetch_add(&spool->appended_total, 1);
    } else {
        atomic_fetch_sub(&spool->records, 1);
        atomic_fetch_add(&spool->failures_total, 1);
    }
    append->_durable = durable;
    loop_post(append->loop, on_appended, append);
}

/* Written one after the other, synced once. From the first that the disk does not take, none is, so that none overtakes
 * another. */
static void write_queue(spool_t *spool, spool_append_t *queue)
{
    spool_append_t *next, *refused = queue;
    while (refused != NULL && spool_dir_append(spool, refused->order_key, refused->pieces, 2))
        refused = refused->_next;
    bool synced = refused != queue && spool_dir_sync(spool);
    spool_dir_count(spool); /* before the callbacks: nobody is to see less than there is */
    for (spool_append_t *a = queue; a != NULL; a = next) {
        next = a->_next;
        synced = synced && a != refused;
        give_back(spool, a, synced);
    }
}

static void take_marks(spool_t *spool, spool_mark_t *marks)
{
    spool_mark_t *next;
    for (spool_mark_t *m = marks; m != NULL; m = next) {
        next = m->next;
        spool_dir_mark(spool, &m->place);
        spool_release(spool, m->order_key);
        atomic_fetch_sub(&spool->records, 1);
        atomic_fetch_add(&spool->replayed_total, 1);
        free(m);
    }
}

/* true: the reader got something and asks again when it wants more. */
static void answer_reader(spool_t *spool)
{
    batch_t *batch = mem_alloc(sizeof(*batch));
    batch->count = spool_dir_read(spool, batch->items);
    pthread_mutex_lock(&spool->lock);
    batch->reader = spool->reader;
    if (batch->count == 0 || spool->reader == NULL) {
        if (batch->count != 0)
            spool->rewind = true;
        pthread_mutex_unlock(&spool->lock);
        for (size_t i = 0; i != batch->count; ++i)
            free(batch->items[i].payload);
        free(batch);
        return;
    }
    spool->reader = NULL;
    loop_post(batch->reader->loop, on_batch, batch);
    pthread_mutex_unlock(&spool->lock);
}

static bool has_work(const spool_t *spool)
{
    return spool->queue != NULL || spool->marks != NULL || spool->rewind || spool->closing ||
           (spool->reader != NULL && spool->unread);
}

static void wait_for_work(spool_t *spool)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint32_t ms = atomic_load(&spool->usable) ? SPOOL_LOOK_MS : SPOOL_RETRY_MS;
    until.tv_sec += ms / 1000;
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        ++until.tv_sec;
        until.tv_nsec -= 1000000000;
    }
    while (!has_work(spool) && pthread_cond_timedwait(&spool->wake, &spool->lock, &until) != ETIMEDOUT)
        ;
}

static void *spool_main(void *arg)
{
    spool_t *spool = arg;
    uint64_t looked_at = clock_mono_ms();
    bool closing = false;
    while (!closing) {
        pthread_mutex_lock(&spool->lock);
        wait_for_work(spool);
        spool_append_t *queue = spool->queue;
        spool_mark_t *marks = spool->marks;
        bool rewind = spool->rewind, reads = spool->reader != NULL;
        spool->queue = NULL;
        spool->queue_end = &spool->queue;
        spool->marks = NULL;
        spool->marks_end = &spool->marks;
        spool->rewind = false;
        closing = spool->closing;
        pthread_mutex_unlock(&spool->lock);
        take_marks(spool, marks);
        if (rewind)
            spool_dir_rewind(spool);
        if (queue != NULL)
            write_queue(spool, queue);
        uint64_t now = clock_mono_ms();
        if (now - looked_at >= (atomic_load(&spool->usable) ? SPOOL_LOOK_MS : SPOOL_RETRY_MS)) {
            looked_at = now;
            spool_dir_look(spool);
        }
        spool_dir_count(spool);
        if (reads)
            answer_reader(spool);
    }
    return NULL;
}

/* --- from the start to the end --- */

spool_t *spool_open(const char *dir, uint64_t limit, uint64_t in_flight)
{
    pthread_condattr_t monotonic;
    spool_t *spool = mem_alloc(sizeof(*spool));
    spool->magic = SPOOL_MAGIC;
    spool->limit = limit;
    spool->in_flight = in_flight;
    spool->queue_end = &spool->queue;
    spool->marks_end = &spool->marks;
    pthread_mutex_init(&spool->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&spool->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    spool_dir_begin(spool, dir);
    spool_dir_count(spool);
    if (pthread_create(&spool->thread, NULL, spool_main, spool) != 0)
        mem_fatal("the spool's thread could not be started");
    return spool;
}

void spool_close(spool_t *spool)
{
    spool_check(spool);
    pthread_mutex_lock(&spool->lock);
    spool->closing = true;
    pthread_cond_signal(&spool->wake);
    pthread_mutex_unlock(&spool->lock);
    pthread_join(spool->thread, NULL);
    spool_dir_end(spool);
    pthread_cond_destroy(&spool->wake);
    pthread_mutex_destroy(&spool->lock);
    spool->magic = 0;
    free(spool);
}
