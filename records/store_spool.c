#include "records/store_internal.h"

#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/fault.h"
#include "core/log.h"
#include "core/mem.h"
#include "records/spool_record.h"

enum { WAITING_LOOK_MS = 2 };

static void answer(store_settling_t *s)
{
    store_settled_cb cb = s->cb;
    s->cb = NULL;
    if (cb != NULL)
        cb(s->data, false);
}

/* --- into the spool --- */

static void keep_in_memory(store_settling_t *s)
{
    store_settled_cb cb = s->cb;
    void *data = s->data;
    s->cb = NULL;
    if (s->store->closing || !store_retry_add(s->store, s))
        store_settling_free(s);
    if (cb != NULL)
        cb(data, false);
}

static void on_appended(spool_append_t *append, bool durable)
{
    store_settling_t *s = append->data;
    --s->store->spool.under_way;
    loop_timer_stop(&s->spooled.patience);
    if (!durable) {
        s->spooled.holds = true;
        keep_in_memory(s);
        return;
    }
    fault_point("store.spooled");
    answer(s);
    store_settling_free(s);
}

static void on_impatient(loop_timer_t *timer)
{
    store_settling_t *s = timer->data;
    spool_note_late(s->store->spool.spool);
    log_event(LOG_WARN, "spool_late", log_uint("waited_ms", STORE_SPOOL_WAIT_MS));
    answer(s);
}

static void append_to_spool(store_settling_t *s)
{
    store_spooled_t *spooled = &s->spooled;
    store_t *store = s->store;
    if (!spool_takes(store->spool.spool, spooled->len + s->answer_len))
        store_settling_drop_answer(s);
    spooled->append = (spool_append_t){
        .loop = store->loop,
        .cb = on_appended,
        .data = s,
        .order_key = spooled->order_key,
        .pieces = {{spooled->base, s->answer_len != 0 ? spooled->len : spooled->len_without_answer},
                   {store_settling_answer(s), s->answer_len}},
    };
    ++store->spool.under_way;
    loop_timer_init(&spooled->patience, on_impatient, s);
    if (s->cb != NULL)
        loop_timer_start(store->loop, &spooled->patience, STORE_SPOOL_WAIT_MS);
    spool_append(store->spool.spool, &spooled->append);
}

void store_spool_again(store_settling_t *s)
{
    s->spooled.holds = false;
    spool_release(s->store->spool.spool, s->spooled.order_key);
    append_to_spool(s); /* holds it anew */
}

/* --- past the spool, once it has nothing of the caller any more --- */

static bool is_taking(const store_t *store)
{
    return store_is_up(store) && !store->silent;
}

/* What waits is not added to the spool, so a caller that never pauses leaves it too. */
static void wait_for_the_spool(store_settling_t *s)
{
    store_spool_t *spool = &s->store->spool;
    s->spooled.waits_until = clock_mono_ms() + STORE_SPOOL_DETOUR_MS;
    s->spooled._next_waiting = NULL;
    *spool->_waiting_end = s;
    spool->_waiting_end = &s->spooled._next_waiting;
    if (!loop_timer_is_running(&spool->waiting_timer))
        loop_timer_start(s->store->loop, &spool->waiting_timer, WAITING_LOOK_MS);
}

static void on_waiting_look(loop_timer_t *timer)
{
    store_t *store = timer->data;
    store_spool_t *spool = &store->spool;
    uint64_t now = clock_mono_ms();
    for (store_settling_t **at = &spool->_waiting, *s; (s = *at) != NULL;) {
        bool held = spool_is_held(spool->spool, s->spooled.order_key);
        if (held && is_taking(store) && now < s->spooled.waits_until) {
            at = &s->spooled._next_waiting;
            continue;
        }
        *at = s->spooled._next_waiting;
        if (held || !is_taking(store))
            append_to_spool(s);
        else
            store_settling_send(s, store_redis_for(store, s->link_id), STORE_DEADLINE_MS);
    }
    spool->_waiting_end = &spool->_waiting;
    while (*spool->_waiting_end != NULL)
        spool->_waiting_end = &(*spool->_waiting_end)->spooled._next_waiting;
    if (spool->_waiting != NULL)
        loop_timer_start(store->loop, &spool->waiting_timer, WAITING_LOOK_MS);
}

bool store_spool_takes_over(store_settling_t *s, const store_settlement_t *settlement)
{
    store_t *store = s->store;
    store_spooled_t *spooled = &s->spooled;
    if (store->spool.spool == NULL)
        return false;
    spooled->len = spool_record_pack(settlement, s->answer_len, &spooled->base, &spooled->len_without_answer);
    spooled->order_key = spool_order_key(settlement->caller);
    if (spooled->len_without_answer > SPOOL_PAYLOAD_MAX) {
        /* a backend with texts of megabytes: no frame holds it, so it is memory's */
        free(spooled->base);
        spooled->base = NULL;
        return false;
    }
    s->size += spooled->len;
    if (!is_taking(store))
        append_to_spool(s);
    else if (spool_is_held(store->spool.spool, spooled->order_key))
        wait_for_the_spool(s);
    else
        return false;
    return true;
}

void store_spool_keep(store_settling_t *s)
{
    if (s->spooled.base != NULL && !s->store->closing)
        append_to_spool(s);
    else
        keep_in_memory(s);
}

/* --- out of the spool --- */

static void ask_for_more(store_t *store)
{
    const store_spool_t *spool = &store->spool;
    if (spool->reader != NULL && spool->ahead - spool->stuck <= SPOOL_BATCH_RECORDS / 2 &&
        spool->stuck <= STORE_AHEAD_STUCK_MAX)
        spool_reader_ask(store->spool.reader);
}

/* It stays in its file, for a version that understands it; its caller's other records do not wait for it. */
static void pass_over(store_t *store, const spool_item_t *item, const char *why)
{
    log_event(LOG_ERROR, "spool_record_passed_over", log_str("reason", why), log_uint("bytes", item->len),
              log_int("appended_unix_ms", item->appended_ms));
    spool_release(store->spool.spool, item->order_key);
    spool_note_stuck(store->spool.spool, 1);
}

static void on_items(void *data, const spool_item_t *items, size_t count)
{
    store_t *store = data;
    for (size_t i = 0; i != count; ++i) {
        spool_record_t record;
        const char *wrong = spool_record_unpack(items[i].payload, items[i].len, &record);
        free(items[i].payload);
        if (wrong != NULL) {
            pass_over(store, &items[i], wrong);
            continue;
        }
        store_settling_t *s = store_settling_of(store, &record.settlement);
        spool_record_dispose(&record);
        s->spooled.is_read_back = true;
        s->spooled.place = items[i].place;
        s->spooled.order_key = items[i].order_key;
        ++store->spool.ahead;
        store_retry_add(store, s);
    }
    ask_for_more(store);
}

static bool is_stuck(const store_settling_t *s)
{
    return s->spooled.is_read_back && s->spooled.refusals >= STORE_REFUSALS_MAX;
}

void store_spool_refused(store_settling_t *s, const char *err)
{
    if (is_stuck(s) || store_error_of(err) != STORE_ERROR_COMMAND)
        return;
    ++s->spooled.refusals;
    if (!is_stuck(s))
        return;
    ++s->store->spool.stuck;
    spool_note_stuck(s->store->spool.spool, 1);
    log_event(LOG_ERROR, "spool_record_refused", log_str("reason", err), log_uint("times", s->spooled.refusals),
              log_str("effect", "it stays in the spool and is tried again; what came after it goes on"));
    ask_for_more(s->store);
}

bool store_spool_blocks(const store_settling_t *s)
{
    return s->spooled.is_read_back && !is_stuck(s);
}

void store_spool_taken(store_settling_t *s)
{
    store_t *store = s->store;
    fault_point("store.replayed");
    spool_taken(store->spool.spool, &s->spooled.place, s->spooled.order_key);
    if (!store->closing)
        ask_for_more(store);
}

bool store_spool_is_empty(const store_t *store)
{
    spool_stats_t stats = {0};
    if (store->spool.spool != NULL)
        spool_stats(store->spool.spool, &stats);
    return stats.records <= stats.stuck;
}

static bool is_sending(const store_t *store)
{
    return store->spool.reader != NULL && is_taking(store) && !store_spool_is_empty(store);
}

bool store_may_end(store_t *store)
{
    size_t left = store_backlog(store);
    uint64_t now = clock_mono_ms();
    if (store->spool.end_asked_ms == 0)
        store->spool.end_asked_ms = now;
    if (is_sending(store) && now - store->spool.end_asked_ms < STORE_SPOOL_FLUSH_MS)
        return false;
    return left == 0 || (left == store->retry.withdrawals && !is_taking(store));
}

void store_spooled_dispose(store_settling_t *s)
{
    if (s->spooled.holds)
        spool_release(s->store->spool.spool, s->spooled.order_key);
    if (s->spooled.is_read_back)
        --s->store->spool.ahead;
    if (is_stuck(s)) {
        --s->store->spool.stuck;
        spool_note_stuck(s->store->spool.spool, -1);
    }
    free(s->spooled.base);
}

void store_use_spool(store_t *store, spool_t *spool, bool replays)
{
    store->spool.spool = spool;
    store->spool._waiting_end = &store->spool._waiting;
    loop_timer_init(&store->spool.waiting_timer, on_waiting_look, store);
    if (!replays)
        return;
    store->spool.reader = spool_reader_create(spool, store->loop, on_items, store);
    spool_reader_ask(store->spool.reader);
}

void store_spool_dispose(store_t *store)
{
    if (store->spool.reader != NULL)
        spool_reader_destroy(store->spool.reader);
    store->spool.reader = NULL;
    if (store->spool.spool != NULL)
        loop_timer_stop(&store->spool.waiting_timer);
    while (store->spool._waiting != NULL) {
        store_settling_t *s = store->spool._waiting;
        store->spool._waiting = s->spooled._next_waiting;
        append_to_spool(s);
    }
    /* the spool answers for each, whatever the disk does */
    while (store->spool.under_way != 0)
        loop_run_once(store->loop, 10);
}
