/*
 * Settlements that Redis did not take: kept in order, tried again until they are taken. While it is not known whether
 * Redis takes anything, one at a time goes out as a probe; each that is taken doubles the window. Bounded in number
 * (the newest is refused and counted) and in bytes (outputs are given up, records are not).
 */
#include "records/store_internal.h"

#include <stdlib.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"

static void list_remove(store_retry_t *retry, store_settling_t *s);

/* What the disk did not take goes there as soon as it does: memory alone ends with the process. */
static void try_the_disk_again(store_t *store)
{
    if (store->spool.spool == NULL || !spool_has_room(store->spool.spool, 0))
        return;
    for (store_settling_t *s = store->retry._head, *next; s != NULL; s = next) {
        next = s->_next;
        if (!s->spooled.holds || s->in_flight)
            continue;
        list_remove(&store->retry, s);
        store_spool_again(s);
    }
}

static void on_timer(loop_timer_t *timer)
{
    try_the_disk_again(timer->data);
    store_retry_step(timer->data);
}

void store_retry_init(store_t *store)
{
    store->retry.window = 1;
    loop_timer_init(&store->retry.timer, on_timer, store);
}

/* Of the room for what only memory has. */
static size_t kept_bytes(const store_settling_t *s)
{
    return s->spooled.is_read_back ? 0 : s->size;
}

static void list_remove(store_retry_t *retry, store_settling_t *s)
{
    if (!s->listed)
        mem_fatal("store_retry: not listed");
    if (s->_prev != NULL)
        s->_prev->_next = s->_next;
    else
        retry->_head = s->_next;
    if (s->_next != NULL)
        s->_next->_prev = s->_prev;
    else
        retry->_tail = s->_prev;
    s->_next = s->_prev = NULL;
    s->listed = false;
    --retry->count;
    retry->withdrawals -= s->withdraws;
    retry->bytes -= kept_bytes(s);
}

/* Not in the spool either. */
static size_t in_memory_alone(const store_t *store)
{
    return store->retry.count - store->spool.ahead;
}

void store_retry_dispose(store_t *store)
{
    store_retry_t *retry = &store->retry;
    loop_timer_stop(&retry->timer);
    if (in_memory_alone(store) != 0)
        log_event(LOG_ERROR, "store_settlements_left", log_uint("count", in_memory_alone(store)));
    while (retry->_head != NULL) {
        store_settling_t *s = retry->_head;
        list_remove(retry, s);
        store_settling_free(s);
    }
}

static void pause_then_probe(store_t *store)
{
    store->retry.window = 1;
    if (!loop_timer_is_running(&store->retry.timer))
        loop_timer_start(store->loop, &store->retry.timer, STORE_RETRY_PAUSE_MS);
}

/* What was read back is bounded by who reads it. */
static bool has_room(const store_retry_t *retry, const store_settling_t *s)
{
    if (s->spooled.is_read_back)
        return true;
    return retry->count < STORE_RETRY_MAX && !(s->withdraws && retry->withdrawals == STORE_WITHDRAWALS_MAX);
}

static bool has_bytes(const store_retry_t *retry, const store_settling_t *s)
{
    return s->spooled.is_read_back || s->size <= STORE_RETRY_BYTES_MAX - retry->bytes;
}

bool store_retry_add(store_t *store, store_settling_t *s)
{
    store_retry_t *retry = &store->retry;
    if (!has_bytes(retry, s))
        store_settling_drop_answer(s);
    if (!has_room(retry, s) || !has_bytes(retry, s)) {
        ++retry->dropped;
        log_event(LOG_ERROR, "store_settlement_dropped", log_bool("withdrawal", s->withdraws),
                  log_uint("dropped", retry->dropped));
        return false;
    }
    s->_prev = retry->_tail;
    s->_next = NULL;
    if (retry->_tail != NULL)
        retry->_tail->_next = s;
    else
        retry->_head = s;
    retry->_tail = s;
    s->listed = true;
    ++retry->count;
    retry->withdrawals += s->withdraws;
    retry->bytes += kept_bytes(s);
    if (s->spooled.is_read_back && !loop_timer_is_running(&retry->timer))
        store_retry_step(store); /* Redis may take it, for all that is known */
    else
        pause_then_probe(store);
    return true;
}

static bool has_window(const store_retry_t *retry, const store_settling_t *s)
{
    return retry->in_flight == 0 ||
           (retry->in_flight < retry->window && retry->bytes_in_flight + s->size <= STORE_RETRY_WINDOW_BYTES);
}

/* A withdrawal follows its admission, which may still lie unread on its connection. */
static redis_t *way_of(store_t *store, const store_settling_t *s)
{
    return s->withdraws ? store_redis_for(store, s->link_id) : store->retry.redis;
}

/* Of settlements that wait, those behind which no other of their caller may go. */
typedef struct {
    uint8_t bits[SPOOL_BUCKETS / 8];
} blocked_t;

static bool is_blocked(const blocked_t *blocked, const store_settling_t *s)
{
    uint16_t bucket = spool_bucket(s->spooled.order_key);
    return s->spooled.is_read_back && (blocked->bits[bucket / 8] & 1 << bucket % 8) != 0;
}

static void block(blocked_t *blocked, const store_settling_t *s)
{
    uint16_t bucket = spool_bucket(s->spooled.order_key);
    if (store_spool_blocks(s))
        blocked->bits[bucket / 8] |= (uint8_t)(1 << bucket % 8);
}

void store_retry_step(store_t *store)
{
    store_retry_t *retry = &store->retry;
    uint64_t now = clock_mono_ms();
    blocked_t blocked = {{0}};
    if (retry->in_flight == 0)
        retry->redis = store_redis_for(store, "0");
    for (store_settling_t *s = retry->_head; s != NULL && has_window(retry, s); s = s->_next) {
        redis_t *redis = way_of(store, s);
        if (s->in_flight)
            continue;
        if (now < s->not_before || !redis_is_up(redis) || is_blocked(&blocked, s)) {
            block(&blocked, s);
        } else {
            ++retry->in_flight;
            retry->bytes_in_flight += s->size;
            store_settling_send(s, redis, STORE_RETRY_DEADLINE_MS);
        }
    }
    if (retry->count != 0 && retry->in_flight == 0)
        pause_then_probe(store);
}

static void landed(store_retry_t *retry, const store_settling_t *s)
{
    --retry->in_flight;
    retry->bytes_in_flight -= s->size;
}

void store_retry_taken(store_t *store, store_settling_t *s)
{
    store_retry_t *retry = &store->retry;
    landed(retry, s);
    list_remove(retry, s);
    if (s->spooled.is_read_back)
        store_spool_taken(s);
    store_settling_free(s);
    retry->window = retry->window < STORE_RETRY_WINDOW / 2 ? retry->window * 2 : STORE_RETRY_WINDOW;
    if (!store->closing)
        store_retry_step(store);
}

void store_retry_failed(store_t *store, store_settling_t *s, bool answered)
{
    landed(&store->retry, s);
    s->not_before = answered ? clock_mono_ms() + STORE_RETRY_REFUSED_MS : 0;
    if (!store->closing)
        pause_then_probe(store);
}
