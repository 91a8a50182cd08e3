/*
 * Removals of walls that leave them to the janitor: a few at once, each in a coroutine, again and again with growing
 * pauses until the provider confirms that the sandbox is not there.
 */
#include <stdio.h>
#include <string.h>

#include "backends/meters.h"
#include "backends/role_ledger_internal.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"

uint32_t removal_pause_ms(uint32_t tries)
{
    uint32_t doublings = tries > 0 ? tries - 1 : 0;
    if (doublings >= 6) /* 1 s << 6 is past the longest */
        return JANITOR_RETRY_MAX_MS;
    return (uint32_t)JANITOR_RETRY_MIN_MS << doublings;
}

static bool is_pending(const item_t *item)
{
    return item->released_ms != 0 && !item->is_gone;
}

size_t removal_pending(const role_ledger_t *ledger)
{
    size_t count = 0;
    for (const item_t *item = ledger->items; item != NULL; item = item->next)
        count += is_pending(item);
    return count;
}

static void removal_main(void *arg)
{
    item_t *item = arg;
    role_ledger_t *ledger = item->ledger;
    ledger_entry_t entry = item->entry; /* may change meanwhile */
    item->removal = ledger->settings.sandboxes->remove(ledger->wall, &entry, item->found_id, item->why);
}

/* Whether what is not seen can be no more: its creation was asked for long enough ago. */
static bool is_past_coming(const item_t *item, uint64_t now_ms)
{
    return now_ms - item->asked_ms >= item->ledger->settings.sandboxes->unseen_ms;
}

static void unseen(item_t *item, uint64_t now_ms)
{
    if (is_past_coming(item, now_ms))
        role_ledger_item_gone(item);
    else
        item->due_ms = now_ms + JANITOR_UNSEEN_MS;
}

static void failed(item_t *item, uint64_t now_ms)
{
    role_ledger_t *ledger = item->ledger;
    meter_inc(METER_REMOVALS_FAILED);
    role_ledger_failed(ledger, item->entry.stamp, item->why);
    uint32_t pause_ms = role_ledger_jitter(removal_pause_ms(item->entry.tries));
    item->due_ms = now_ms + pause_ms;
    log_event(LOG_WARN, "sandbox not removed", log_str("backend", ledger->settings.backend),
              log_str("stamp", item->entry.stamp), log_str("sandbox", item->entry.id),
              log_str("reason", item->entry.error), log_uint("tries", item->entry.tries),
              log_uint("again_ms", pause_ms));
}

static void on_removal_end(void *arg)
{
    item_t *item = arg;
    role_ledger_t *ledger = item->ledger;
    uint64_t now_ms = clock_mono_ms();
    role_ledger_check(ledger);
    item->worker = NULL;
    item->has_been_tried = true;
    --ledger->working;
    if (item->found_id[0] != '\0' && item->entry.id[0] == '\0') {
        snprintf(item->entry.id, sizeof(item->entry.id), "%s", item->found_id);
        role_ledger_item_changed(item);
    }
    if (!item->is_gone) {
        switch (item->removal) {
        case SANDBOX_GONE:
            role_ledger_item_gone(item);
            break;
        case SANDBOX_UNSEEN:
            unseen(item, now_ms);
            break;
        case SANDBOX_THERE:
            failed(item, now_ms);
            break;
        }
    }
    removal_pump(ledger);
    if (ledger->waiter != NULL)
        co_wake(ledger->waiter);
}

static item_t *next_due(const role_ledger_t *ledger, uint64_t now_ms, uint64_t *soonest_ms)
{
    item_t *found = NULL;
    *soonest_ms = UINT64_MAX;
    for (item_t *item = ledger->items; item != NULL; item = item->next) {
        if (!is_pending(item) || item->worker != NULL)
            continue;
        if (item->due_ms > now_ms)
            *soonest_ms = item->due_ms < *soonest_ms ? item->due_ms : *soonest_ms;
        else if (found == NULL || item->released_ms < found->released_ms)
            found = item;
    }
    return found;
}

static size_t workers_max(const role_ledger_t *ledger)
{
    uint32_t workers = ledger->settings.sandboxes->workers;
    return workers != 0 ? workers : JANITOR_WORKERS;
}

static void start_due(role_ledger_t *ledger)
{
    uint64_t now_ms = clock_mono_ms(), soonest_ms;
    if (ledger->wall == NULL || ledger->settings.sandboxes->remove == NULL)
        return;
    while (ledger->working < workers_max(ledger)) {
        item_t *item = next_due(ledger, now_ms, &soonest_ms);
        if (item == NULL) {
            if (soonest_ms != UINT64_MAX)
                loop_timer_start(ledger->loop, &ledger->work_timer, soonest_ms - now_ms);
            return;
        }
        ++ledger->working;
        item->found_id[0] = '\0';
        snprintf(item->why, sizeof(item->why), "no reason given");
        item->removal = SANDBOX_THERE;
        item->worker = co_start(ledger->loop, removal_main, item, on_removal_end);
    }
}

void removal_on_timer(loop_timer_t *timer)
{
    role_ledger_t *ledger = timer->data;
    role_ledger_check(ledger);
    start_due(ledger);
}

/* Never on the caller's stack: whoever releases one has an answer to give first. */
void removal_pump(role_ledger_t *ledger)
{
    if (!loop_timer_is_running(&ledger->work_timer) || loop_timer_left(&ledger->work_timer) > 0)
        loop_timer_start(ledger->loop, &ledger->work_timer, 0);
}

void removal_end(role_ledger_t *ledger)
{
    for (item_t *item = ledger->items; item != NULL; item = item->next) {
        if (item->worker != NULL)
            co_cancel(item->worker);
    }
    ledger->waiter = co_self();
    while (ledger->working > 0)
        co_wait(UINT64_MAX);
    ledger->waiter = NULL;
    loop_timer_stop(&ledger->work_timer);
}
