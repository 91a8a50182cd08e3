#include "records/store_internal.h"

#include <stdlib.h>

#include "core/fault.h"
#include "core/log.h"
#include "core/mem.h"
#include "records/spool_record.h"

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
    loop_timer_start(store->loop, &spooled->patience, STORE_SPOOL_WAIT_MS);
    spool_append(store->spool.spool, &spooled->append);
}

bool store_spool_takes_over(store_settling_t *s, const store_settlement_t *settlement)
{
    store_t *store = s->store;
    store_spooled_t *spooled = &s->spooled;
    if (store->spool.spool == NULL)
        return false;
    spooled->len = spool_record_pack(settlement, s->answer_len, &spooled->base, &spooled->len_without_answer);
    spooled->order_key = spool_order_key(settlement->caller);
    s->size += spooled->len;
    if (!spool_is_held(store->spool.spool, spooled->order_key) && store_is_up(store) && !store->silent)
        return false;
    append_to_spool(s);
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
    if (store->spool.reader != NULL && store->spool.ahead <= SPOOL_BATCH_RECORDS / 2)
        spool_reader_ask(store->spool.reader);
}

/* It stays in its file, for a version that understands it; its caller's other records do not wait for it. */
static void pass_over(store_t *store, const spool_item_t *item, const char *why)
{
    log_event(LOG_ERROR, "spool_record_passed_over", log_str("reason", why), log_uint("bytes", item->len),
              log_int("appended_unix_ms", item->appended_ms));
    spool_release(store->spool.spool, item->order_key);
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

void store_spool_taken(store_settling_t *s)
{
    store_t *store = s->store;
    fault_point("store.replayed");
    spool_taken(store->spool.spool, &s->spooled.place, s->spooled.order_key);
    if (!store->closing)
        ask_for_more(store);
}

void store_spooled_dispose(store_settling_t *s)
{
    if (s->spooled.holds)
        spool_release(s->store->spool.spool, s->spooled.order_key);
    if (s->spooled.is_read_back)
        --s->store->spool.ahead;
    free(s->spooled.base);
}

void store_use_spool(store_t *store, spool_t *spool, bool replays)
{
    store->spool.spool = spool;
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
    /* the spool answers for each, whatever the disk does */
    while (store->spool.under_way != 0)
        loop_run_once(store->loop, 10);
}
