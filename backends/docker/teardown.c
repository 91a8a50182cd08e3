#include "backends/docker/teardown.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "backends/docker/container.h"
#include "backends/meters.h"
#include "core/clock.h"
#include "core/co.h"
#include "core/log.h"
#include "core/mem.h"

enum {
    TEARDOWN_MAGIC = 0x74656172,
    CALL_MIN_MS = 100,     /* a call begun at an attempt's very end still gets this */
    PENDING_LOOK_MS = 100, /* between looks at a removal that the Engine says is under way */
    YIELD_LOOK_MS = 50,
};

typedef enum { ATTEMPT_GONE, ATTEMPT_UNBORN, ATTEMPT_FAILED } attempt_t;

typedef struct entry {
    char name[ENGINE_NAME_MAX];
    char id[ENGINE_ID_BYTES + 1]; /* empty while unknown */
    teardown_urgency_t urgency;
    uint64_t added_ms, due_ms;
    uint64_t absent_ms; /* when a container without an ID was first seen absent; 0 = not yet */
    uint64_t later_ms;  /* pause of the next round, once it is set aside */
    uint32_t attempts;  /* of this round */
    bool is_set_aside;
    co_t *worker;      /* busy with it */
    attempt_t outcome; /* of its last attempt */
    char text[ENGINE_TEXT_MAX];
    attach_t *attach; /* held open until its removal begins */
    teardown_t *teardown;
    struct entry *next;
} entry_t;

struct teardown {
    unsigned magic;
    loop_t *loop;
    engine_t *engine;
    bool (*is_busy)(void *data);
    void *data;
    teardown_events_t events;
    entry_t *entries;
    size_t count, failed, working;
    uint64_t done;
    bool is_flushing, is_closing;
    co_t *waiter; /* of a flush or the end */
    loop_timer_t timer;
};

static void check(const teardown_t *teardown)
{
    if (teardown->magic != TEARDOWN_MAGIC)
        mem_fatal("not a teardown");
}

/* --- one attempt at one container, in a coroutine of its own --- */

static uint32_t left(uint64_t until_ms)
{
    uint64_t now_ms = clock_mono_ms();
    return until_ms > now_ms + CALL_MIN_MS ? (uint32_t)(until_ms - now_ms) : CALL_MIN_MS;
}

static void remember(entry_t *entry, const char *call, const engine_answer_t *answer)
{
    snprintf(entry->text, sizeof(entry->text), "%s: %s %s", call, engine_outcome_name(answer->outcome), answer->text);
}

static bool is_id(const char *text)
{
    return text != NULL && strlen(text) == ENGINE_ID_BYTES && strspn(text, "0123456789abcdef") == ENGINE_ID_BYTES;
}

/* Looks it up. True when it is there; else `absent` tells whether it certainly is not. A state that makes no sense is
 * all false. */
static bool look(entry_t *entry, uint64_t until_ms, container_state_t *state, bool *is_absent)
{
    const char *by = entry->id[0] != '\0' ? entry->id : entry->name;
    engine_answer_t answer;
    bool is_there = false;

    *state = (container_state_t){.is_running = false};
    *is_absent = false;
    engine_container_inspect(entry->teardown->engine, by, left(until_ms), &answer);
    if (answer.outcome == ENGINE_ABSENT) {
        *is_absent = true;
    } else if (answer.outcome != ENGINE_OK) {
        remember(entry, "inspect", &answer);
    } else {
        const char *id = json_string_value(json_object_get(answer.json, "Id"));
        is_there = true;
        if (!container_state(answer.json, state))
            *state = (container_state_t){.is_running = false};
        if (entry->id[0] == '\0' && is_id(id))
            memcpy(entry->id, id, ENGINE_ID_BYTES + 1);
    }
    engine_answer_dispose(&answer);
    return is_there;
}

/* An Engine asked to remove a paused gVisor container takes ten seconds over it and leaves its shim (spec 8 (16)). */
static bool unpause(entry_t *entry, uint64_t until_ms)
{
    engine_answer_t answer;
    engine_container_unpause(entry->teardown->engine, entry->id, left(until_ms), &answer);
    bool is_fine = answer.outcome == ENGINE_OK;
    if (!is_fine)
        remember(entry, "unpause", &answer);
    engine_answer_dispose(&answer);
    return is_fine;
}

/*
 * A runner ends with its stream. An Engine that is asked meanwhile to remove it by force finds nobody to kill, waits
 * for no end, and leaves the runtime's shim behind for good; so it is asked when it has seen the end. What may still
 * run is told to end first, and nothing that goes wrong here keeps the removal from being asked for.
 */
static void await_end(entry_t *entry, uint64_t until_ms)
{
    uint64_t now_ms = clock_mono_ms(),
             half_ms = until_ms > now_ms ? (until_ms - now_ms) / 2 : 0; /* the rest is the removal's */
    uint64_t end_ms = now_ms + (half_ms < TEARDOWN_END_MS ? half_ms : TEARDOWN_END_MS);
    engine_answer_t answer;
    if (entry->urgency == TEARDOWN_NOW) {
        engine_container_kill(entry->teardown->engine, entry->id, left(end_ms), &answer);
        engine_answer_dispose(&answer);
    }
    engine_container_wait(entry->teardown->engine, entry->id, left(end_ms), &answer);
    engine_answer_dispose(&answer);
}

/* What it answers is for the log; whether it is gone is for a look to say. True when it is worth looking again soon. */
static bool ask_removal(entry_t *entry, uint64_t until_ms)
{
    engine_answer_t answer;
    engine_container_remove(entry->teardown->engine, entry->id, left(until_ms), &answer);
    bool is_pending = answer.outcome == ENGINE_CONFLICT;
    if (answer.outcome != ENGINE_OK && answer.outcome != ENGINE_ABSENT)
        remember(entry, "remove", &answer);
    engine_answer_dispose(&answer);
    return is_pending;
}

static attempt_t attempt(entry_t *entry)
{
    uint64_t until_ms = clock_mono_ms() + TEARDOWN_ATTEMPT_MS;
    container_state_t state;
    bool is_absent, is_there, is_pending;

    is_there = look(entry, until_ms, &state, &is_absent);
    if (is_absent)
        return entry->id[0] != '\0' ? ATTEMPT_GONE : ATTEMPT_UNBORN;
    entry->absent_ms = 0;
    if (entry->id[0] == '\0')
        return ATTEMPT_FAILED; /* removed by its exact ID or not at all */
    if (is_there && state.is_running && (!state.is_paused || unpause(entry, until_ms)))
        await_end(entry, until_ms);
    is_pending = ask_removal(entry, until_ms);
    for (;;) {
        look(entry, until_ms, &state, &is_absent);
        if (is_absent)
            return ATTEMPT_GONE;
        if (!is_pending || clock_mono_ms() + PENDING_LOOK_MS >= until_ms || co_sleep(PENDING_LOOK_MS) == CO_CANCELED)
            return ATTEMPT_FAILED;
    }
}

/* --- the list --- */

static void pump(teardown_t *teardown);

static void wake_waiter(teardown_t *teardown)
{
    if (teardown->waiter != NULL)
        co_wake(teardown->waiter);
}

static void let_go(entry_t *entry)
{
    if (entry->attach != NULL)
        attach_close(entry->attach);
    entry->attach = NULL;
}

static void forget(entry_t *entry)
{
    teardown_t *teardown = entry->teardown;
    for (entry_t **at = &teardown->entries; *at != NULL; at = &(*at)->next) {
        if (*at == entry) {
            *at = entry->next;
            break;
        }
    }
    meter_set(METER_SANDBOXES_REMOVING, (int64_t)--teardown->count);
    if (entry->is_set_aside)
        --teardown->failed;
    let_go(entry);
    free(entry);
}

static void gone(entry_t *entry)
{
    teardown_t *teardown = entry->teardown;
    ++teardown->done;
    if (teardown->events.on_gone != NULL)
        teardown->events.on_gone(teardown->events.data, entry->name);
    log_event(entry->is_set_aside ? LOG_INFO : LOG_DEBUG, "sandbox removed", log_str("name", entry->name),
              log_str("container", entry->id), log_uint("ms", clock_mono_ms() - entry->added_ms));
    forget(entry);
}

static void unborn(entry_t *entry)
{
    uint64_t now_ms = clock_mono_ms();
    if (entry->absent_ms == 0)
        entry->absent_ms = now_ms;
    if (now_ms - entry->added_ms >= TEARDOWN_UNBORN_MS) {
        gone(entry);
        return;
    }
    entry->due_ms = now_ms + TEARDOWN_LOOK_MS;
}

static void set_aside(entry_t *entry)
{
    if (!entry->is_set_aside) {
        entry->is_set_aside = true;
        entry->later_ms = TEARDOWN_LATER_MIN_MS;
        ++entry->teardown->failed;
    }
    meter_inc(METER_REMOVALS_FAILED);
    log_event(LOG_ERROR, "sandbox not removed", log_str("name", entry->name), log_str("container", entry->id),
              log_str("reason", entry->text), log_uint("age_ms", clock_mono_ms() - entry->added_ms),
              log_uint("not_removed", entry->teardown->failed), log_uint("again_ms", entry->later_ms));
    entry->attempts = 0;
    entry->due_ms = clock_mono_ms() + entry->later_ms;
    entry->later_ms = entry->later_ms * 2 < TEARDOWN_LATER_MAX_MS ? entry->later_ms * 2 : TEARDOWN_LATER_MAX_MS;
}

static void failed(entry_t *entry)
{
    teardown_t *teardown = entry->teardown;
    ++entry->attempts;
    if (teardown->events.on_failed != NULL)
        teardown->events.on_failed(teardown->events.data, entry->name, entry->text);
    if (entry->attempts >= TEARDOWN_ATTEMPTS)
        set_aside(entry);
    else
        entry->due_ms = clock_mono_ms() + ((uint64_t)TEARDOWN_PAUSE_MS << (entry->attempts - 1));
}

static void worker_main(void *arg)
{
    entry_t *entry = arg;
    entry->outcome = attempt(entry);
}

static void on_worker_end(void *arg)
{
    entry_t *entry = arg;
    teardown_t *teardown = entry->teardown;
    check(teardown);
    entry->worker = NULL;
    --teardown->working;
    switch (entry->outcome) {
    case ATTEMPT_GONE:
        gone(entry);
        break;
    case ATTEMPT_UNBORN:
        unborn(entry);
        break;
    case ATTEMPT_FAILED:
        failed(entry);
        break;
    }
    pump(teardown);
    wake_waiter(teardown);
}

static bool should_yield(const teardown_t *teardown, const entry_t *entry, uint64_t now_ms)
{
    return entry->urgency == TEARDOWN_IDLE && !teardown->is_flushing && now_ms - entry->added_ms < TEARDOWN_YIELD_MS &&
           teardown->is_busy != NULL && teardown->is_busy(teardown->data);
}

/* The next to be tried: what may still run goes first, then the oldest. `soonest_ms` is when to look again otherwise.
 */
static entry_t *next_due(teardown_t *teardown, uint64_t now_ms, uint64_t *soonest_ms)
{
    entry_t *found = NULL;
    *soonest_ms = UINT64_MAX;
    for (entry_t *entry = teardown->entries; entry != NULL; entry = entry->next) {
        if (entry->worker != NULL)
            continue;
        uint64_t due_ms = entry->due_ms;
        if (due_ms <= now_ms && should_yield(teardown, entry, now_ms))
            due_ms = now_ms + YIELD_LOOK_MS;
        if (due_ms > now_ms)
            *soonest_ms = due_ms < *soonest_ms ? due_ms : *soonest_ms;
        else if (found == NULL || entry->urgency > found->urgency ||
                 (entry->urgency == found->urgency && entry->added_ms < found->added_ms))
            found = entry;
    }
    return found;
}

static void pump(teardown_t *teardown)
{
    uint64_t now_ms = clock_mono_ms(), soonest_ms;

    if (teardown->is_closing)
        return;
    while (teardown->working < TEARDOWN_WORKERS) {
        entry_t *entry = next_due(teardown, now_ms, &soonest_ms);
        /* What can wait may have to be waited for: one worker stays for what may still run. */
        bool is_kept = entry != NULL && entry->urgency == TEARDOWN_IDLE && teardown->working == TEARDOWN_WORKERS - 1;
        if (entry == NULL || is_kept) {
            if (soonest_ms != UINT64_MAX)
                loop_timer_start(teardown->loop, &teardown->timer, soonest_ms - now_ms);
            return;
        }
        ++teardown->working;
        let_go(entry);
        entry->worker = co_start(teardown->loop, worker_main, entry, on_worker_end);
    }
}

static void on_timer(loop_timer_t *timer)
{
    teardown_t *teardown = timer->data;
    check(teardown);
    pump(teardown);
}

/* --- its users --- */

teardown_t *teardown_create(loop_t *loop, engine_t *engine, bool (*is_busy)(void *data), void *data)
{
    teardown_t *teardown = mem_alloc(sizeof(*teardown));
    teardown->magic = TEARDOWN_MAGIC;
    teardown->loop = loop;
    teardown->engine = engine;
    teardown->is_busy = is_busy;
    teardown->data = data;
    loop_timer_init(&teardown->timer, on_timer, teardown);
    return teardown;
}

void teardown_tell(teardown_t *teardown, const teardown_events_t *events)
{
    check(teardown);
    teardown->events = events != NULL ? *events : (teardown_events_t){0};
}

bool teardown_has(const teardown_t *teardown, const char *name)
{
    check(teardown);
    for (const entry_t *entry = teardown->entries; entry != NULL; entry = entry->next) {
        if (strcmp(entry->name, name) == 0)
            return true;
    }
    return false;
}

void teardown_add(teardown_t *teardown, const char *name, const char *id, teardown_urgency_t urgency)
{
    check(teardown);
    if (teardown_has(teardown, name))
        return;
    entry_t *entry = mem_alloc(sizeof(*entry));
    snprintf(entry->name, sizeof(entry->name), "%s", name);
    if (is_id(id))
        memcpy(entry->id, id, ENGINE_ID_BYTES + 1);
    entry->urgency = urgency;
    entry->teardown = teardown;
    entry->added_ms = entry->due_ms = clock_mono_ms();
    entry->next = teardown->entries;
    teardown->entries = entry;
    meter_set(METER_SANDBOXES_REMOVING, (int64_t)++teardown->count);
    /* Never on the caller's stack: whoever hands one over has an answer to give first. */
    if (!teardown->is_closing && (!loop_timer_is_running(&teardown->timer) || loop_timer_left(&teardown->timer) > 0))
        loop_timer_start(teardown->loop, &teardown->timer, 0);
}

void teardown_hold(teardown_t *teardown, const char *name, attach_t *attach)
{
    check(teardown);
    for (entry_t *entry = teardown->entries; entry != NULL; entry = entry->next) {
        if (strcmp(entry->name, name) != 0 || entry->worker != NULL || entry->attach != NULL)
            continue;
        attach_mute(attach);
        entry->attach = attach;
        return;
    }
    attach_close(attach);
}

size_t teardown_count(const teardown_t *teardown)
{
    check(teardown);
    return teardown->count;
}

size_t teardown_failed_count(const teardown_t *teardown)
{
    check(teardown);
    return teardown->failed;
}

uint64_t teardown_done_count(const teardown_t *teardown)
{
    check(teardown);
    return teardown->done;
}

static void wait_for(teardown_t *teardown, const size_t *what, uint64_t until_ms)
{
    teardown->waiter = co_self();
    while (*what > 0) {
        uint64_t now_ms = clock_mono_ms();
        if (now_ms >= until_ms || co_wait(until_ms - now_ms) == CO_CANCELED)
            break;
    }
    teardown->waiter = NULL;
}

void teardown_retry(teardown_t *teardown)
{
    check(teardown);
    for (entry_t *entry = teardown->entries; entry != NULL; entry = entry->next) {
        if (entry->worker == NULL)
            entry->due_ms = 0;
    }
    pump(teardown);
}

bool teardown_flush(teardown_t *teardown, uint32_t ms)
{
    check(teardown);
    teardown->is_flushing = true;
    teardown_retry(teardown);
    wait_for(teardown, &teardown->count, clock_mono_ms() + ms);
    teardown->is_flushing = false;
    return teardown->count == 0;
}

void teardown_destroy(teardown_t *teardown)
{
    check(teardown);
    teardown->is_closing = true;
    loop_timer_stop(&teardown->timer);
    for (entry_t *entry = teardown->entries; entry != NULL; entry = entry->next) {
        if (entry->worker != NULL)
            co_cancel(entry->worker);
    }
    if (teardown->working > 0)
        wait_for(teardown, &teardown->working, UINT64_MAX);
    while (teardown->entries != NULL) {
        log_event(LOG_WARN, "sandbox left behind", log_str("name", teardown->entries->name),
                  log_str("container", teardown->entries->id), log_str("reason", teardown->entries->text));
        forget(teardown->entries);
    }
    teardown->magic = 0;
    free(teardown);
}
