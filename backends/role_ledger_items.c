/*
 * What a role knows of its sandboxes, and how Redis follows: each item is written until Redis has taken what it says,
 * one write of it at a time, and its entry removed when it is gone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/meters.h"
#include "backends/role_ledger_internal.h"
#include "core/clock.h"
#include "core/fault.h"
#include "core/log.h"
#include "core/mem.h"

static void item_check(const item_t *item)
{
    if (item->magic != ITEM_MAGIC)
        mem_fatal("not a ledger's item");
    role_ledger_check(item->ledger);
}

/* --- items --- */

static unsigned digit(char c)
{
    return (unsigned)(c >= 'a' ? c - 'a' + 10 : c - '0') & 15u;
}

/* A text that is no stamp lands somewhere, and is not found there. */
static size_t bucket_of(const char *stamp)
{
    size_t at = 0, len = strnlen(stamp, LEDGER_STAMP);
    for (size_t i = len < 3 ? 0 : len - 3; i < len; ++i)
        at = at * 16 + digit(stamp[i]);
    return at;
}
_Static_assert(ITEM_BUCKETS == 16 * 16 * 16, "three digits");

item_t *role_ledger_find(const role_ledger_t *ledger, const char *stamp)
{
    item_t *item = ledger->buckets[bucket_of(stamp)];
    while (item != NULL && strcmp(item->entry.stamp, stamp) != 0)
        item = item->next_in_bucket;
    return item;
}

void role_ledger_meters(role_ledger_t *ledger)
{
    uint64_t now_ms = clock_mono_ms(), oldest_ms = 0;
    int64_t live = 0, pending = 0;
    if (ledger->item_count > METERS_ALL_MAX && now_ms - ledger->metered_ms < METERS_PAUSE_MS)
        return;
    ledger->metered_ms = now_ms;
    for (const item_t *item = ledger->items; item != NULL; item = item->next) {
        if (item->is_gone)
            continue;
        ++live;
        if (item->released_ms == 0)
            continue;
        ++pending;
        if (now_ms - item->released_ms > oldest_ms)
            oldest_ms = now_ms - item->released_ms;
    }
    meter_set(METER_LEDGER_ENTRIES, live);
    meter_set(METER_TEARDOWN_PENDING, pending);
    meter_set(METER_TEARDOWN_OLDEST, (int64_t)(oldest_ms / 1000));
    meter_set(METER_UNRELEASED, (int64_t)(ledger->unreleased_ms / 1000));
}

item_t *role_ledger_item(role_ledger_t *ledger, const char *stamp)
{
    if (ledger->item_count >= ROLE_LEDGER_ITEMS_MAX)
        return NULL;
    item_t *item = mem_alloc(sizeof(*item));
    item->magic = ITEM_MAGIC;
    item->ledger = ledger;
    snprintf(item->entry.stamp, sizeof(item->entry.stamp), "%s", stamp);
    snprintf(item->entry.instance, sizeof(item->entry.instance), "%s", ledger->settings.instance);
    snprintf(item->entry.host, sizeof(item->entry.host), "%s",
             ledger->settings.sandboxes->is_local ? ledger->host : "");
    item->entry.is_billed = ledger->settings.is_billed;
    item->asked_ms = clock_mono_ms();
    item->pause_ms = JANITOR_RETRY_MIN_MS;
    item->write_pause_ms = ROLE_LEDGER_RETRY_MIN_MS;
    item->next = ledger->items;
    ledger->items = item;
    item->next_in_bucket = ledger->buckets[bucket_of(stamp)];
    ledger->buckets[bucket_of(stamp)] = item;
    ++ledger->item_count;
    ++ledger->live_count;
    return item;
}

static void item_forget(item_t *item)
{
    role_ledger_t *ledger = item->ledger;
    for (item_t **at = &ledger->items; *at != NULL; at = &(*at)->next) {
        if (*at == item) {
            *at = item->next;
            --ledger->item_count;
            break;
        }
    }
    for (item_t **at = &ledger->buckets[bucket_of(item->entry.stamp)]; *at != NULL; at = &(*at)->next_in_bucket) {
        if (*at == item) {
            *at = item->next_in_bucket;
            break;
        }
    }
    item->magic = 0;
    free(item);
    role_ledger_meters(ledger);
    if (ledger->waiter != NULL)
        co_wake(ledger->waiter);
}

/* --- writing: Redis follows what the items say --- */

static void item_retry(item_t *item)
{
    role_ledger_t *ledger = item->ledger;
    meter_inc(METER_LEDGER_WRITE_FAILURES);
    item->write_due_ms = clock_mono_ms() + role_ledger_jitter(item->write_pause_ms);
    item->write_pause_ms = item->write_pause_ms * 2 < ROLE_LEDGER_RETRY_MAX_MS ? item->write_pause_ms * 2
                                                                               : (uint32_t)ROLE_LEDGER_RETRY_MAX_MS;
    if (!loop_timer_is_running(&ledger->write_timer))
        loop_timer_start(ledger->loop, &ledger->write_timer, ROLE_LEDGER_RETRY_MIN_MS);
}

void role_ledger_on_write_timer(loop_timer_t *timer)
{
    role_ledger_t *ledger = timer->data;
    uint64_t now_ms = clock_mono_ms();
    bool is_waiting = false;
    role_ledger_check(ledger);
    for (item_t *item = ledger->items, *next; item != NULL; item = next) {
        next = item->next;
        if (item->is_writing || !(item->is_dirty || item->is_gone))
            continue;
        if (item->write_due_ms <= now_ms)
            role_ledger_item_send(item);
        else
            is_waiting = true;
    }
    if (is_waiting && ledger->is_up)
        loop_timer_start(ledger->loop, &ledger->write_timer, ROLE_LEDGER_RETRY_MIN_MS);
}

static void condemned_elsewhere(item_t *item)
{
    role_ledger_t *ledger = item->ledger;
    if (item->is_operators || item->released_ms != 0)
        return;
    item->is_operators = true;
    log_event(LOG_WARN, "sandbox condemned", log_str("backend", ledger->settings.backend),
              log_str("stamp", item->entry.stamp), log_str("sandbox", item->entry.id),
              log_str("run_id", item->entry.run));
    item->entry.state = LEDGER_CONDEMNED;
    item->released_ms = clock_mono_ms();
    role_ledger_meters(ledger);
    if (ledger->wall == NULL)
        return;
    if (ledger->settings.sandboxes->condemn != NULL)
        ledger->settings.sandboxes->condemn(ledger->wall, &item->entry);
    else
        removal_pump(ledger);
}

static void on_put(void *data, const ledger_answer_t *answer)
{
    item_t *item = data;
    item_check(item);
    item->is_writing = false;
    switch (answer->status) {
    case LEDGER_DONE:
        item->is_written = true;
        item->written_ms = clock_mono_ms();
        item->may_be_written = false;
        item->write_pause_ms = ROLE_LEDGER_RETRY_MIN_MS;
        item->entry.created_ms = answer->created_ms;
        break;
    case LEDGER_TAKEN:
    case LEDGER_CORRUPT:
        item->is_written = item->is_taken = true;
        log_event(LOG_WARN, "ledger entry is another's", log_str("backend", item->ledger->settings.backend),
                  log_str("stamp", item->entry.stamp), log_str("is", ledger_status_name(answer->status)));
        break;
    default:
        item->may_be_written = item->may_be_written || answer->status == LEDGER_MAYBE_WRITTEN;
        item->is_dirty = true;
        item_retry(item);
        break;
    }
    if (item->asker != NULL) {
        item->has_answer = true;
        item->answer = answer->status;
        co_wake(item->asker);
        return; /* it says how to go on */
    }
    if (answer->status == LEDGER_DONE && answer->is_condemned)
        condemned_elsewhere(item);
    if (answer->status == LEDGER_DONE || item->is_taken)
        role_ledger_item_send(item);
}

static void on_removed(void *data, const ledger_answer_t *answer)
{
    item_t *item = data;
    role_ledger_t *ledger = item->ledger;
    item_check(item);
    item->is_writing = false;
    switch (answer->status) {
    case LEDGER_DONE:
        ledger->unreleased_ms += answer->unreleased_ms;
        log_event(LOG_DEBUG, "ledger entry removed", log_str("backend", ledger->settings.backend),
                  log_str("stamp", item->entry.stamp), log_uint("existed_ms", answer->existed_ms),
                  log_uint("unreleased_ms", answer->unreleased_ms));
        item_forget(item);
        break;
    case LEDGER_NOT_WRITTEN:
    case LEDGER_MAYBE_WRITTEN:
        item_retry(item);
        break;
    default:
        item_forget(item); /* not there, or nothing that is ours to remove */
        break;
    }
}

void role_ledger_item_send(item_t *item)
{
    role_ledger_t *ledger = item->ledger;
    uint64_t now_ms = clock_mono_ms();
    if (item->is_writing)
        return;
    if (item->is_gone && !item->is_written && !item->may_be_written) {
        item_forget(item);
        return;
    }
    if (!ledger->is_up)
        return;
    /* What the answer told already must stand there before the removal charges. */
    bool owes_report = item->is_dirty && item->is_written && !item->is_taken && item->entry.reported_ms > 0;
    if (item->is_gone && !owes_report) {
        item->is_writing = true;
        ledger_remove(ledger->store, ledger->settings.backend, item->entry.stamp,
                      item->released_ms != 0 ? now_ms - item->released_ms : 0, item->never_was, on_removed, item);
    } else if (item->is_dirty && !item->is_taken) {
        item->is_dirty = false;
        item->is_writing = true;
        ledger_put(ledger->store, ledger->settings.backend, &item->entry, now_ms - item->asked_ms, item->life_ms,
                   !item->is_written, on_put, item);
    }
}

void role_ledger_item_changed(item_t *item)
{
    item_check(item);
    item->is_dirty = true;
    if (!item->is_writing && item->asker == NULL)
        role_ledger_item_send(item);
}

void role_ledger_item_gone(item_t *item)
{
    role_ledger_t *ledger = item->ledger;
    item_check(item);
    if (!item->is_gone)
        --ledger->live_count;
    item->is_gone = true;
    if (ledger->on_gone != NULL)
        ledger->on_gone(ledger->on_gone_data);
    if (item->released_ms == 0)
        item->released_ms = clock_mono_ms();
    role_ledger_meters(ledger);
    fault_point("ledger.gone");
    role_ledger_item_send(item);
}

void role_ledger_send_all(role_ledger_t *ledger)
{
    for (item_t *item = ledger->items, *next; item != NULL; item = next) {
        next = item->next;
        if (item->is_dirty || item->is_gone)
            role_ledger_item_send(item);
    }
}
