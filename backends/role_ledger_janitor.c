/*
 * The janitor: at every round it reads the whole ledger of its backend, and now and then the provider's own list. What
 * a dead instance left it takes over; what carries our stamp and stands in no ledger it takes in; what an operator
 * condemned goes. A listing comes before the reading it is compared with: an entry is written before its sandbox can
 * exist, so one that is listed and then not found in the ledger belongs to nobody.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/meters.h"
#include "backends/role_ledger_internal.h"
#include "config/options.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"

enum { CALL_MS = 2 * LEDGER_WRITE_MS, PAGES_MAX = 4096 };

/* --- decisions --- */

static bool is_reachable(const ledger_entry_t *entry, const janitor_view_t *view)
{
    if (!view->is_local)
        return true;
    /* Another Engine under the same socket does not have it, which says nothing about where it is. */
    if (entry->place[0] != '\0' && strcmp(entry->place, view->place) != 0)
        return false;
    if (view->host[0] != '\0' && strcmp(entry->host, view->host) == 0)
        return true;
    /* Of a boot of this machine that is over, or of another container of it: the same Engine, and nobody's by now. */
    return entry->place[0] != '\0' && view->now_ms - entry->deadline_ms > JANITOR_EXPIRED_MARGIN_MS;
}

bool janitor_is_due(const ledger_entry_t *entry, const janitor_view_t *view)
{
    if (!view->is_lease_over && !view->is_surely_dead)
        return false;
    if (!is_reachable(entry, view))
        return false;
    /* Redis' clock may have been set back, or a fail-over has led to one that is behind: what was made in days to come
     * is not left until then. */
    int64_t age_ms = view->now_ms - entry->created_ms, settle_ms = view->settle_ms;
    return age_ms >= settle_ms || age_ms < -settle_ms;
}

/* --- one call to the ledger at a time; the round outlives whatever waits for it --- */

static bool await(role_ledger_t *ledger, janitor_round_t *round)
{
    uint64_t until_ms = clock_mono_ms() + CALL_MS;
    while (!round->has_answer) {
        uint64_t now_ms = clock_mono_ms();
        if (now_ms >= until_ms || co_wait(until_ms - now_ms) == CO_CANCELED)
            break;
    }
    /* The store answers every call; what it is given to write to must be there. */
    co_shield_begin();
    while (!round->has_answer)
        co_wait(CALL_MS);
    co_shield_end();
    return round->is_read && !ledger->is_ending;
}

static void answered(role_ledger_t *ledger, bool is_read)
{
    ledger->round->has_answer = true;
    ledger->round->is_read = is_read;
    if (ledger->janitor != NULL)
        co_wake(ledger->janitor);
}

/* --- reading --- */

static void mark_known(janitor_round_t *round, const char *stamp)
{
    for (size_t i = 0; i < round->seen_count; ++i) {
        if (strcmp(round->seen[i].stamp, stamp) == 0)
            round->is_known[i] = true;
    }
}

static void keep_other(janitor_round_t *round, const ledger_entry_t *entry)
{
    if (round->other_count == LEDGER_ENTRIES_MAX)
        return;
    if (round->other_count == round->other_cap) {
        round->other_cap = round->other_cap == 0 ? 64 : 2 * round->other_cap;
        round->others = mem_realloc(round->others, round->other_cap * sizeof(*round->others));
    }
    round->others[round->other_count++] = *entry;
}

/* Its own, as the ledger has it: one that this process does not know is left from a write that was thought lost, or
 * from a removal that another copy of its name began. */
static void meet_own(role_ledger_t *ledger, const ledger_entry_t *entry, int64_t now_ms)
{
    item_t *item = role_ledger_find(ledger, entry->stamp);
    if (item != NULL)
        item->is_seen = true;
    if (item == NULL) {
        if ((item = role_ledger_item(ledger, entry->stamp)) == NULL)
            return;
        uint64_t age_ms = now_ms > entry->created_ms ? (uint64_t)(now_ms - entry->created_ms) : 0;
        item->entry = *entry;
        item->asked_ms = clock_mono_ms() > age_ms ? clock_mono_ms() - age_ms : 1;
        item->life_ms = (uint64_t)(entry->deadline_ms - entry->created_ms);
        item->is_written = true;
        item->released_ms = clock_mono_ms();
        item->is_dirty = entry->state != LEDGER_CONDEMNED;
        item->entry.state = LEDGER_CONDEMNED;
        log_event(LOG_WARN, "sandbox nobody holds", log_str("backend", ledger->settings.backend),
                  log_str("stamp", entry->stamp), log_str("sandbox", entry->id));
        if (item->is_dirty)
            role_ledger_item_changed(item);
        if (ledger->settings.sandboxes->condemn != NULL)
            ledger->settings.sandboxes->condemn(ledger->wall, &item->entry);
        else
            removal_pump(ledger);
    } else if (entry->state == LEDGER_CONDEMNED && item->released_ms == 0 && !item->is_gone) {
        item->is_dirty = true; /* what the write answers says the rest */
        role_ledger_item_changed(item);
    }
}

static void meet_other(role_ledger_t *ledger, janitor_round_t *round, const ledger_entry_t *entry)
{
    item_t *item = role_ledger_find(ledger, entry->stamp);
    if (item != NULL)
        item->is_seen = true; /* somebody has taken it over; the next write is told so */
    keep_other(round, entry);
}

static void on_page(void *data, const ledger_page_t *page)
{
    role_ledger_t *ledger = data;
    janitor_round_t *round = ledger->round;
    for (size_t i = 0; page->is_read && i < page->count && ledger->wall != NULL; ++i) {
        const ledger_entry_t *entry = &page->entries[i];
        mark_known(round, entry->stamp);
        if (strcmp(entry->instance, ledger->settings.instance) == 0)
            meet_own(ledger, entry, page->now_ms);
        else
            meet_other(ledger, round, entry);
    }
    round->now_ms = page->now_ms;
    round->next_cursor = page->next_cursor;
    answered(ledger, page->is_read);
}

/* Redis has lost what this role wrote before the reading began: it is written again. */
static void write_what_was_lost(role_ledger_t *ledger, uint64_t began_ms)
{
    for (item_t *item = ledger->items, *next; item != NULL; item = next) {
        next = item->next;
        if (item->is_seen || !item->is_written || item->is_gone || item->is_taken || item->is_writing ||
            item->written_ms >= began_ms)
            continue;
        log_event(LOG_ERROR, "ledger entry lost", log_str("backend", ledger->settings.backend),
                  log_str("stamp", item->entry.stamp));
        role_ledger_item_changed(item);
    }
}

static bool read_ledger(role_ledger_t *ledger, janitor_round_t *round)
{
    uint64_t cursor = 0, began_ms = clock_mono_ms();
    for (item_t *item = ledger->items; item != NULL; item = item->next)
        item->is_seen = false;
    for (int pages = 0; pages < PAGES_MAX; ++pages) {
        round->has_answer = false;
        ledger_scan(ledger->store, ledger->settings.backend, cursor, on_page, ledger);
        if (!await(ledger, round))
            return false;
        if ((cursor = round->next_cursor) == 0) {
            write_what_was_lost(ledger, began_ms);
            return true;
        }
    }
    return false;
}

/* --- who is dead --- */

typedef struct {
    char (*ids)[LEDGER_INSTANCE + 1];
    size_t count;
} instances_t;

static size_t index_of(const instances_t *instances, const char *id)
{
    size_t i = 0;
    while (i < instances->count && strcmp(instances->ids[i], id) != 0)
        ++i;
    return i;
}

static void on_instances(void *data, const bool *alive, size_t count)
{
    role_ledger_t *ledger = data;
    if (alive != NULL)
        memcpy(ledger->round->alive, alive, count * sizeof(*alive));
    answered(ledger, alive != NULL);
}

/* Fills is_other_alive. Of more instances than can be asked about at once, those past that count as alive until a later
 * round. */
static bool look_at_leases(role_ledger_t *ledger, janitor_round_t *round)
{
    instances_t instances = {.ids = mem_alloc_array(LEDGER_INSTANCES_MAX, sizeof(*instances.ids))};
    bool is_told = true;
    round->is_other_alive = mem_alloc_array(round->other_count + 1, sizeof(*round->is_other_alive));
    for (size_t i = 0; i < round->other_count; ++i) {
        if (index_of(&instances, round->others[i].instance) == instances.count &&
            instances.count < LEDGER_INSTANCES_MAX)
            memcpy(instances.ids[instances.count++], round->others[i].instance, LEDGER_INSTANCE + 1);
    }
    if (instances.count > 0) {
        round->has_answer = false;
        ledger_instances(ledger->store, (const char(*)[LEDGER_INSTANCE + 1]) instances.ids, instances.count,
                         on_instances, ledger);
        is_told = await(ledger, round);
    }
    for (size_t i = 0; is_told && i < round->other_count; ++i) {
        size_t at = index_of(&instances, round->others[i].instance);
        round->is_other_alive[i] = at == instances.count || round->alive[at];
    }
    free(instances.ids);
    return is_told;
}

/* --- taking over --- */

static void take_in(role_ledger_t *ledger, const ledger_entry_t *entry, uint64_t age_ms, bool is_written)
{
    item_t *item = role_ledger_find(ledger, entry->stamp);
    if (item != NULL || (item = role_ledger_item(ledger, entry->stamp)) == NULL)
        return;
    char host[LEDGER_HOST_MAX + 1], instance[LEDGER_INSTANCE + 1];
    memcpy(host, item->entry.host, sizeof(host));
    memcpy(instance, item->entry.instance, sizeof(instance));
    item->entry = *entry;
    memcpy(item->entry.host, host, sizeof(host));
    memcpy(item->entry.instance, instance, sizeof(instance));
    item->entry.state = LEDGER_CONDEMNED;
    item->asked_ms = clock_mono_ms() > age_ms ? clock_mono_ms() - age_ms : 1;
    item->life_ms = (uint64_t)(entry->deadline_ms - entry->created_ms);
    item->released_ms = clock_mono_ms();
    item->is_written = is_written;
    meter_inc(METER_ADOPTED);
    role_ledger_meters(ledger);
    if (!is_written)
        role_ledger_item_changed(item);
    if (ledger->settings.sandboxes->condemn != NULL)
        ledger->settings.sandboxes->condemn(ledger->wall, &item->entry);
    else
        removal_pump(ledger);
}

static void on_adopted(void *data, const ledger_answer_t *answer)
{
    role_ledger_t *ledger = data;
    ledger->round->status = answer->status;
    answered(ledger, answer->status < LEDGER_NOT_WRITTEN);
}

static bool is_surely_dead(const role_ledger_t *ledger, const ledger_entry_t *entry, bool *is_surely_alive)
{
    const backend_sandboxes_t *sandboxes = ledger->settings.sandboxes;
    bool is_here = ledger->host[0] != '\0' && strcmp(entry->host, ledger->host) == 0;
    *is_surely_alive = false;
    if (!is_here || sandboxes->is_alive == NULL)
        return false;
    *is_surely_alive = sandboxes->is_alive(ledger->wall, entry->instance);
    return !*is_surely_alive;
}

/* Its instance is dead, and nobody else has taken it. */
static bool adopt(role_ledger_t *ledger, janitor_round_t *round, size_t at)
{
    const ledger_entry_t *entry = &round->others[at];
    const backend_sandboxes_t *sandboxes = ledger->settings.sandboxes;
    bool is_surely_alive, is_dead = is_surely_dead(ledger, entry, &is_surely_alive);
    janitor_view_t view = {.host = ledger->host,
                           .place = sandboxes->place != NULL ? sandboxes->place(ledger->wall) : "",
                           .is_local = sandboxes->is_local,
                           .is_lease_over = !round->is_other_alive[at] && !is_surely_alive,
                           .is_surely_dead = is_dead,
                           .now_ms = round->now_ms,
                           .settle_ms = sandboxes->settle_ms};
    if (!janitor_is_due(entry, &view))
        return false;
    round->has_answer = false;
    ledger_adopt(ledger->store, ledger->settings.backend, entry, ledger->settings.instance,
                 sandboxes->is_local ? ledger->host : "", is_dead, on_adopted, ledger);
    if (!await(ledger, round) || round->status != LEDGER_DONE)
        return false;
    log_event(LOG_WARN, "sandbox adopted", log_str("backend", ledger->settings.backend), log_str("stamp", entry->stamp),
              log_str("sandbox", entry->id), log_str("run_id", entry->run), log_str("of", entry->instance));
    take_in(ledger, entry, round->now_ms > entry->created_ms ? (uint64_t)(round->now_ms - entry->created_ms) : 0, true);
    return true;
}

/* --- the provider's own list --- */

static void on_seen(void *data, const sandbox_seen_t *seen)
{
    role_ledger_t *ledger = data;
    janitor_round_t *round = ledger->round;
    if (round->seen_count < JANITOR_LISTED_MAX && ledger_is_stamp(seen->stamp))
        round->seen[round->seen_count++] = *seen;
}

static uint64_t list_pause_ms(void)
{
#ifdef PLIMSOLL_STANDIN
    if (option_is_set(OPT_PLIMSOLL_CLOUD_LISTING))
        return (uint64_t)option_int(OPT_PLIMSOLL_CLOUD_LISTING);
#endif
    return JANITOR_LIST_MS;
}

static void list(role_ledger_t *ledger, janitor_round_t *round)
{
    char why[LEDGER_ERROR_MAX + 1] = "";
    if (ledger->settings.sandboxes->list == NULL || ledger->installation[0] == '\0' ||
        (ledger->listed_ms != 0 && clock_mono_ms() - ledger->listed_ms < list_pause_ms()))
        return;
    round->seen = mem_alloc_array(JANITOR_LISTED_MAX, sizeof(*round->seen));
    round->is_known = mem_alloc_array(JANITOR_LISTED_MAX, sizeof(*round->is_known));
    round->is_listed = ledger->settings.sandboxes->list(ledger->wall, ledger->installation, on_seen, ledger, why);
    if (round->is_listed)
        ledger->listed_ms = clock_mono_ms();
    else
        log_event(LOG_WARN, "sandboxes not listed", log_str("backend", ledger->settings.backend),
                  log_str("reason", why));
}

/* In no ledger: a create that came to be after its entry was removed, or data that Redis lost. What a listing that was
 * not whole did show is there all the same. */
static void take_in_unknown(role_ledger_t *ledger, janitor_round_t *round)
{
    for (size_t i = 0; i < round->seen_count; ++i) {
        ledger_entry_t entry = {.is_billed = ledger->settings.is_billed};
        if (round->is_known[i] || role_ledger_find(ledger, round->seen[i].stamp) != NULL)
            continue;
        memcpy(entry.stamp, round->seen[i].stamp, sizeof(entry.stamp));
        memcpy(entry.id, round->seen[i].id, sizeof(entry.id));
        log_event(LOG_WARN, "sandbox in no ledger", log_str("backend", ledger->settings.backend),
                  log_str("stamp", entry.stamp), log_str("sandbox", entry.id));
        take_in(ledger, &entry, 0, false);
    }
}

/* --- rounds --- */

static void round_dispose(janitor_round_t *round)
{
    free(round->seen);
    free(round->is_known);
    free(round->others);
    free(round->is_other_alive);
    free(round);
}

static void look_round(role_ledger_t *ledger)
{
    janitor_round_t *round = ledger->round = mem_alloc(sizeof(*round));
    size_t adopted = 0;
    list(ledger, round);
    if (!ledger->is_ending && read_ledger(ledger, round) && look_at_leases(ledger, round)) {
        for (size_t i = 0; i < round->other_count && adopted < JANITOR_ADOPTED_AT_ONCE && !ledger->is_ending; ++i)
            adopted += adopt(ledger, round, i);
        if (!ledger->is_ending)
            take_in_unknown(ledger, round);
    }
    ledger->is_look_wanted = ledger->is_look_wanted || adopted == JANITOR_ADOPTED_AT_ONCE;
    ledger->round = NULL;
    round_dispose(round);
}

static void janitor_main(void *arg)
{
    role_ledger_t *ledger = arg;
    while (!ledger->is_ending) {
        ledger->is_look_wanted = false;
        if (ledger->is_up)
            look_round(ledger);
        uint64_t until_ms = clock_mono_ms() + role_ledger_jitter(JANITOR_ROUND_MS);
        while (!ledger->is_ending && !ledger->is_look_wanted) {
            uint64_t now_ms = clock_mono_ms();
            if (now_ms >= until_ms)
                break;
            if (co_wait(until_ms - now_ms) == CO_CANCELED)
                return;
        }
    }
}

static void on_janitor_end(void *arg)
{
    role_ledger_t *ledger = arg;
    ledger->janitor = NULL;
    if (ledger->waiter != NULL)
        co_wake(ledger->waiter);
}

void janitor_begin(role_ledger_t *ledger)
{
    ledger->janitor = co_start(ledger->loop, janitor_main, ledger, on_janitor_end);
}

void janitor_look(role_ledger_t *ledger)
{
    ledger->is_look_wanted = true;
    if (ledger->janitor != NULL)
        co_wake(ledger->janitor);
}

void janitor_end(role_ledger_t *ledger)
{
    ledger->is_ending = true;
    if (ledger->janitor == NULL)
        return;
    co_cancel(ledger->janitor);
    ledger->waiter = co_self();
    while (ledger->janitor != NULL)
        co_wait(UINT64_MAX);
    ledger->waiter = NULL;
}
