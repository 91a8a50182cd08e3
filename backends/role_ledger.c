#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/host_id.h"
#include "backends/role_ledger_internal.h"
#include "config/options.h"
#include "config/redis_settings.h"
#include "core/clock.h"
#include "core/fault.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/random.h"
#include "core/sha256.h"

enum {
    TICK_MS = 1000,
    BEAT_TICKS = LEDGER_BEAT_MS / TICK_MS,
    FIRST_LOOK_MS = 20, /* between looks whether Redis is there, at the start */
    /* The store answers each call within LEDGER_WRITE_MS; this is for a loop that is late itself. */
    ANSWER_MS = 2 * LEDGER_WRITE_MS,
};

void role_ledger_check(const role_ledger_t *ledger)
{
    if (ledger->magic != ROLE_LEDGER_MAGIC)
        mem_fatal("not a role's ledger");
}

uint32_t role_ledger_jitter(uint32_t ms)
{
    return ms - random_below(ms / 2 + 1);
}

/* --- Redis --- */

static void on_identity(void *data, const char *stamp)
{
    role_ledger_t *ledger = data;
    role_ledger_check(ledger);
    if (stamp == NULL || !ledger_is_up(ledger->store))
        return; /* the tick asks again */
    if (ledger->installation[0] != '\0' && strcmp(ledger->installation, stamp) != 0)
        log_event(LOG_ERROR, "the installation's identity in Redis has changed",
                  log_str("backend", ledger->settings.backend));
    snprintf(ledger->installation, sizeof(ledger->installation), "%s", stamp);
    if (ledger->is_up)
        return;
    ledger->is_up = true;
    ledger_beat(ledger->store, ledger->settings.instance);
    log_event(LOG_INFO, "ledger connected", log_str("backend", ledger->settings.backend),
              log_str("instance", ledger->settings.instance));
    role_ledger_send_all(ledger);
    janitor_look(ledger);
    if (ledger->settings.on_up != NULL)
        ledger->settings.on_up(ledger->settings.data);
}

static void ask_identity(role_ledger_t *ledger)
{
    ledger_identity(ledger->store, ledger->installation, on_identity, ledger);
}

static void on_state(void *data, bool up, const char *reason)
{
    role_ledger_t *ledger = data;
    role_ledger_check(ledger);
    if (up) {
        ask_identity(ledger);
        return;
    }
    if (ledger->is_up)
        log_event(LOG_WARN, "ledger away", log_str("backend", ledger->settings.backend), log_str("reason", reason));
    ledger->is_up = false;
}

/* The identity with it: a Redis that has lost its data is given it again, before anybody makes another. */
static void beat(role_ledger_t *ledger)
{
    ledger_beat(ledger->store, ledger->settings.instance);
    ask_identity(ledger);
}

static void on_beat_timer(loop_timer_t *timer)
{
    role_ledger_t *ledger = timer->data;
    role_ledger_check(ledger);
    if (ledger_is_up(ledger->store) && !ledger->is_up)
        ask_identity(ledger);
    if (ledger->is_up && ++ledger->ticks % BEAT_TICKS == 0)
        beat(ledger);
    role_ledger_meters(ledger);
    loop_timer_start(ledger->loop, &ledger->beat_timer, TICK_MS);
}

/* --- what a wall calls --- */

static void cut_caller(ledger_entry_t *entry, const char *caller)
{
    char digest[SHA256_HEX + 1];
    snprintf(entry->caller, sizeof(entry->caller), "%s", caller);
    entry->tag[0] = '\0';
    if (caller[0] == '\0')
        return;
    sha256_hex(caller, strlen(caller), digest);
    memcpy(entry->tag, digest, LEDGER_TAG);
    entry->tag[LEDGER_TAG] = '\0';
}

static void set_run(ledger_entry_t *entry, const char *run, const char *caller)
{
    if (run != NULL && strlen(run) == LEDGER_RUN && strspn(run, "0123456789abcdef") == LEDGER_RUN)
        snprintf(entry->run, sizeof(entry->run), "%s", run);
    cut_caller(entry, caller != NULL ? caller : "");
}

static bool may_stand_on_labels(const role_ledger_t *ledger, const role_ledger_ask_t *ask)
{
    return ledger->settings.sandboxes->is_local && !ledger->settings.is_billed &&
           (ledger->serves_without_redis || ask->is_trial);
}

static void await_first(const role_ledger_t *ledger)
{
    while (!ledger->is_up && clock_mono_ms() - ledger->begun_ms < ROLE_LEDGER_FIRST_WAIT_MS)
        if (co_sleep(FIRST_LOOK_MS) == CO_CANCELED)
            return;
}

static void await_answer(item_t *item)
{
    uint64_t until_ms = clock_mono_ms() + ANSWER_MS;
    while (!item->has_answer) {
        uint64_t now_ms = clock_mono_ms();
        if (now_ms >= until_ms || co_wait(until_ms - now_ms) == CO_CANCELED)
            break;
    }
    item->asker = NULL;
}

static const char *place_of(const role_ledger_t *ledger)
{
    const backend_sandboxes_t *sandboxes = ledger->settings.sandboxes;
    return sandboxes->place != NULL && ledger->wall != NULL ? sandboxes->place(ledger->wall) : "";
}

static bool fail(char why[LEDGER_ERROR_MAX + 1], const char *text, const char *detail)
{
    snprintf(why, LEDGER_ERROR_MAX + 1, "the ledger: %s%s", text, detail);
    return false;
}

bool role_ledger_ask(role_ledger_t *ledger, const role_ledger_ask_t *ask, char stamp[LEDGER_STAMP + 1],
                     char why[LEDGER_ERROR_MAX + 1])
{
    role_ledger_check(ledger);
    random_hex(stamp, LEDGER_STAMP / 2);
    await_first(ledger);
    if (fault_point("ledger.ask"))
        return fail(why, "fault point", "");
    if (!ledger->is_up && !may_stand_on_labels(ledger, ask))
        return fail(why, "Redis is away", "");
    item_t *item = role_ledger_item(ledger, stamp);
    if (item == NULL)
        return fail(why, "too many sandboxes are not known to be gone", "");
    snprintf(item->entry.place, sizeof(item->entry.place), "%s", place_of(ledger));
    set_run(&item->entry, ask->run, ask->caller);
    item->entry.price_micro = ask->price_micro < LEDGER_PRICE_MAX ? ask->price_micro : 0;
    item->life_ms = ask->life_ms;
    item->is_dirty = true;
    role_ledger_meters(ledger);
    if (!ledger->is_up)
        return true;
    item->asker = co_self();
    role_ledger_item_send(item);
    await_answer(item);
    if (item->has_answer && item->answer == LEDGER_DONE) {
        fault_point("ledger.asked");
        if (item->is_dirty)
            role_ledger_item_send(item);
        return true;
    }
    bool was_canceled = !item->has_answer;
    ledger_status_t status = item->answer;
    if (!was_canceled && status >= LEDGER_NOT_WRITTEN && may_stand_on_labels(ledger, ask))
        return true;
    item->never_was = true;
    role_ledger_item_gone(item); /* nothing was asked for, and nothing will be */
    return was_canceled ? fail(why, "canceled", "")
                        : fail(why, "the entry was not written: ", ledger_status_name(status));
}

void role_ledger_name(role_ledger_t *ledger, const char *stamp, const char *id)
{
    item_t *item = ledger != NULL ? role_ledger_find(ledger, stamp) : NULL;
    if (item == NULL || item->is_gone || id[0] == '\0' || strlen(id) > LEDGER_PROVIDER_ID_MAX ||
        strcmp(item->entry.id, id) == 0)
        return;
    snprintf(item->entry.id, sizeof(item->entry.id), "%s", id);
    if (item->entry.state == LEDGER_ASKED)
        item->entry.state = LEDGER_NAMED;
    role_ledger_item_changed(item);
    fault_point("ledger.named");
}

bool role_ledger_knows(const role_ledger_t *ledger, const char *stamp, const char *id)
{
    for (const item_t *item = ledger != NULL ? ledger->items : NULL; item != NULL; item = item->next) {
        if (!item->is_gone && strcmp(item->entry.id, id) == 0 && strcmp(item->entry.stamp, stamp) != 0)
            return true;
    }
    return false;
}

void role_ledger_serve(role_ledger_t *ledger, const char *stamp, const char *run, const char *caller)
{
    item_t *item = ledger != NULL ? role_ledger_find(ledger, stamp) : NULL;
    if (item == NULL || item->is_gone)
        return;
    set_run(&item->entry, run, caller);
    role_ledger_item_changed(item);
}

void role_ledger_report(role_ledger_t *ledger, const char *stamp, uint64_t reported_ms)
{
    item_t *item = ledger != NULL ? role_ledger_find(ledger, stamp) : NULL;
    if (item == NULL || item->is_gone)
        return;
    item->entry.reported_ms = reported_ms < (uint64_t)LEDGER_TIME_MAX ? reported_ms : (uint64_t)LEDGER_TIME_MAX;
    role_ledger_item_changed(item);
}

void role_ledger_release(role_ledger_t *ledger, const char *stamp)
{
    item_t *item = ledger != NULL ? role_ledger_find(ledger, stamp) : NULL;
    if (item == NULL || item->is_gone || item->released_ms != 0)
        return;
    item->released_ms = clock_mono_ms();
    role_ledger_meters(ledger);
    fault_point("ledger.release");
    if (ledger->settings.sandboxes->remove != NULL)
        removal_pump(ledger);
}

void role_ledger_failed(role_ledger_t *ledger, const char *stamp, const char *why)
{
    item_t *item = ledger != NULL ? role_ledger_find(ledger, stamp) : NULL;
    if (item == NULL || item->is_gone)
        return;
    if (item->released_ms == 0)
        item->released_ms = clock_mono_ms();
    if (item->entry.tries < LEDGER_TRIES_MAX)
        ++item->entry.tries;
    ledger_scrub(why, item->entry.error);
    item->entry.state = LEDGER_CONDEMNED;
    role_ledger_item_changed(item);
}

void role_ledger_gone(role_ledger_t *ledger, const char *stamp)
{
    if (ledger == NULL || !ledger_is_stamp(stamp))
        return;
    item_t *item = role_ledger_find(ledger, stamp);
    if (item == NULL && (item = role_ledger_item(ledger, stamp)) != NULL)
        item->may_be_written = true;
    if (item != NULL && !item->is_gone)
        role_ledger_item_gone(item);
}

void role_ledger_void(role_ledger_t *ledger, const char *stamp)
{
    item_t *item = ledger != NULL ? role_ledger_find(ledger, stamp) : NULL;
    if (item == NULL || item->is_gone)
        return;
    item->never_was = true;
    role_ledger_item_gone(item);
}

uint64_t role_ledger_age_ms(role_ledger_t *ledger, const char *stamp)
{
    const item_t *item = ledger != NULL ? role_ledger_find(ledger, stamp) : NULL;
    return item != NULL ? clock_mono_ms() - item->asked_ms : 0;
}

bool role_ledger_is_live(const role_ledger_t *ledger, const char *stamp)
{
    const item_t *item = ledger != NULL ? role_ledger_find(ledger, stamp) : NULL;
    return item != NULL && !item->is_gone;
}

bool role_ledger_is_tried(const role_ledger_t *ledger, const char *stamp)
{
    const item_t *item = ledger != NULL ? role_ledger_find(ledger, stamp) : NULL;
    return item == NULL || item->is_gone || item->has_been_tried;
}

size_t role_ledger_live(const role_ledger_t *ledger)
{
    return ledger != NULL ? ledger->live_count : 0;
}

void role_ledger_on_gone(role_ledger_t *ledger, void (*on_gone)(void *data), void *data)
{
    if (ledger == NULL)
        return;
    ledger->on_gone = on_gone;
    ledger->on_gone_data = data;
}

const char *role_ledger_installation(const role_ledger_t *ledger)
{
    return ledger != NULL ? ledger->installation : "";
}

bool role_ledger_is_foreign(const role_ledger_t *ledger, const char *installation)
{
    return ledger != NULL && ledger->installation[0] != '\0' && strcmp(ledger->installation, installation) != 0;
}

/* --- what the role calls --- */

role_ledger_t *role_ledger_create(loop_t *loop, const role_ledger_settings_t *settings, char why[LEDGER_ERROR_MAX + 1])
{
    problems_t problems = {0};
    role_ledger_t *ledger = mem_alloc(sizeof(*ledger));
    ledger->magic = ROLE_LEDGER_MAGIC;
    ledger->loop = loop;
    ledger->settings = *settings;
    snprintf(ledger->name, sizeof(ledger->name), "%s", option_str(OPT_PLIMSOLL_INSTALLATION));
    ledger->serves_without_redis = strcmp(option_str(OPT_PLIMSOLL_REDIS_DOWN), "serve") == 0;
    host_id(ledger->host, sizeof(ledger->host));
    loop_timer_init(&ledger->beat_timer, on_beat_timer, ledger);
    loop_timer_init(&ledger->write_timer, role_ledger_on_write_timer, ledger);
    loop_timer_init(&ledger->work_timer, removal_on_timer, ledger);
    if (!option_is_set(OPT_PLIMSOLL_REDIS_URL) || !redis_settings_read(&ledger->address, &problems)) {
        snprintf(why, LEDGER_ERROR_MAX + 1, "%s",
                 problems.count > 0 ? problems.texts[0] : "PLIMSOLL_REDIS_URL is not set");
        problems_dispose(&problems);
        ledger->magic = 0;
        free(ledger);
        return NULL;
    }
    problems_dispose(&problems);
    return ledger;
}

void role_ledger_begin(role_ledger_t *ledger, void *wall)
{
    role_ledger_check(ledger);
    ledger->wall = wall;
    ledger->begun_ms = clock_mono_ms();
    ledger->store = ledger_create(ledger->loop, &ledger->address, ledger->name, on_state, ledger);
    loop_timer_start(ledger->loop, &ledger->beat_timer, TICK_MS);
    janitor_begin(ledger);
}

/* Whether something is still to be removed by this role, or to be written. */
static bool has_unwritten(const role_ledger_t *ledger)
{
    for (const item_t *item = ledger->items; item != NULL; item = item->next) {
        if (item->is_gone || item->is_writing)
            return true;
    }
    return false;
}

void role_ledger_end(role_ledger_t *ledger)
{
    uint64_t until_ms = clock_mono_ms() + JANITOR_FLUSH_MS;
    role_ledger_check(ledger);
    janitor_end(ledger);
    ledger->waiter = co_self();
    while (ledger->settings.sandboxes->remove != NULL && removal_pending(ledger) > 0) {
        uint64_t now_ms = clock_mono_ms();
        if (now_ms >= until_ms || co_wait(until_ms - now_ms) == CO_CANCELED)
            break;
    }
    ledger->waiter = NULL;
    removal_end(ledger);
    ledger->wall = NULL;
}

static void on_left(void *data, const ledger_answer_t *answer)
{
    role_ledger_t *ledger = data;
    (void)answer;
    role_ledger_check(ledger);
    ledger->has_left = true;
    if (ledger->waiter != NULL)
        co_wake(ledger->waiter);
}

void role_ledger_leave(role_ledger_t *ledger)
{
    uint64_t until_ms = clock_mono_ms() + ROLE_LEDGER_END_MS;
    role_ledger_check(ledger);
    ledger->waiter = co_self();
    while (ledger->is_up && has_unwritten(ledger)) {
        uint64_t now_ms = clock_mono_ms();
        if (now_ms >= until_ms || co_wait(until_ms - now_ms) == CO_CANCELED)
            break;
    }
    ledger->waiter = NULL;
    for (const item_t *item = ledger->items; item != NULL; item = item->next)
        log_event(LOG_WARN, "ledger entry left", log_str("backend", ledger->settings.backend),
                  log_str("stamp", item->entry.stamp), log_str("sandbox", item->entry.id),
                  log_str("error", item->entry.error));
    loop_timer_stop(&ledger->beat_timer);
    /* Others need not wait for the lease. */
    if (ledger->is_up) {
        ledger->waiter = co_self();
        ledger_leave(ledger->store, ledger->settings.instance, on_left, ledger);
        while (!ledger->has_left)
            co_wait(UINT64_MAX); /* answered within LEDGER_WRITE_MS */
        ledger->waiter = NULL;
    }
}

void role_ledger_destroy(role_ledger_t *ledger)
{
    role_ledger_check(ledger);
    loop_timer_stop(&ledger->beat_timer);
    loop_timer_stop(&ledger->write_timer);
    loop_timer_stop(&ledger->work_timer);
    ledger->is_up = false;
    if (ledger->store != NULL)
        ledger_destroy(ledger->store);
    while (ledger->items != NULL) {
        item_t *item = ledger->items;
        ledger->items = item->next;
        free(item);
    }
    loop_timer_stop(&ledger->write_timer);
    redis_address_dispose(&ledger->address);
    ledger->magic = 0;
    free(ledger);
}
