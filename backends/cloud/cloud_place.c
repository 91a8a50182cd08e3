/*
 * Who may ask for a sandbox next. A place is taken until the sandbox is confirmed to be gone, so a provider whose
 * deletions hang is not given ever more; and creates are spread over time, as providers count them. Waiting runs take
 * turns by caller: a caller's second waits behind every other caller's first.
 */
#include <string.h>

#include "backends/cloud/cloud_internal.h"
#include "core/clock.h"
#include "core/mem.h"

enum { MILLI = 1000, MINUTE_MS = 60 * 1000 };

/* --- the rate --- */

/* Thousandths of a create: rate * ms / 60000 creates are rate * ms / 60 of them. */
static uint64_t tokens_of(const cloud_t *cloud, uint64_t ms)
{
    return (uint64_t)cloud->creates_per_minute * ms / (MINUTE_MS / MILLI);
}

static uint64_t tokens_max(const cloud_t *cloud)
{
    uint64_t max = tokens_of(cloud, CLOUD_RATE_SECONDS * 1000);
    return max > MILLI ? max : MILLI;
}

static void tokens_refill(cloud_t *cloud)
{
    uint64_t now_ms = clock_mono_ms(), passed_ms = now_ms - cloud->tokens_ms, max = tokens_max(cloud);
    uint64_t more = passed_ms < MINUTE_MS * 10 ? tokens_of(cloud, passed_ms) : max;
    if (more == 0)
        return; /* too little to be counted: it adds up */
    cloud->tokens_ms = now_ms;
    cloud->tokens_milli = cloud->tokens_milli + more < max ? cloud->tokens_milli + more : max;
}

/* 0: one may be asked for now. */
static uint64_t ms_to_next_token(cloud_t *cloud)
{
    if (cloud->creates_per_minute == 0)
        return 0;
    tokens_refill(cloud);
    if (cloud->tokens_milli >= MILLI)
        return 0;
    uint64_t missing = MILLI - cloud->tokens_milli;
    return missing * (MINUTE_MS / MILLI) / cloud->creates_per_minute + 1;
}

/* --- turns --- */

static bool has_place(const cloud_t *cloud)
{
    return role_ledger_live(cloud->settings.host->ledger) + cloud->reserved < cloud->capacity;
}

static void give(cloud_t *cloud)
{
    cloud_waiter_t *first = cloud->waiters;
    cloud->waiters = first->next;
    first->has_place = true;
    ++cloud->reserved;
    if (cloud->creates_per_minute != 0)
        cloud->tokens_milli -= MILLI;
    co_wake(first->co);
}

static void pump(cloud_t *cloud)
{
    while (cloud->waiters != NULL && has_place(cloud)) {
        uint64_t wait_ms = ms_to_next_token(cloud);
        if (wait_ms > 0) {
            loop_timer_start(cloud->settings.host->loop, &cloud->token_timer, wait_ms);
            return;
        }
        give(cloud);
    }
}

static void on_token(loop_timer_t *timer)
{
    pump(timer->data);
}

static void on_gone(void *data)
{
    pump(data);
}

static unsigned rank_of(const cloud_t *cloud, const char *caller)
{
    unsigned rank = 0;
    for (const cloud_waiter_t *waiter = cloud->waiters; waiter != NULL; waiter = waiter->next)
        rank += strcmp(waiter->caller, caller) == 0;
    return rank;
}

static void enqueue(cloud_t *cloud, cloud_waiter_t *waiter)
{
    cloud_waiter_t **at = &cloud->waiters;
    waiter->rank = rank_of(cloud, waiter->caller);
    while (*at != NULL && (*at)->rank <= waiter->rank)
        at = &(*at)->next;
    waiter->next = *at;
    *at = waiter;
}

static void leave(cloud_t *cloud, const cloud_waiter_t *waiter)
{
    for (cloud_waiter_t **at = &cloud->waiters; *at != NULL; at = &(*at)->next) {
        if (*at == waiter) {
            *at = waiter->next;
            return;
        }
    }
}

void cloud_place_init(cloud_t *cloud)
{
    cloud->tokens_ms = clock_mono_ms();
    cloud->tokens_milli = tokens_max(cloud);
    loop_timer_init(&cloud->token_timer, on_token, cloud);
    role_ledger_on_gone(cloud->settings.host->ledger, on_gone, cloud);
}

void cloud_place_end(cloud_t *cloud)
{
    if (cloud->waiters != NULL)
        mem_fatal("a cloud wall ends under runs that wait for a place");
    loop_timer_stop(&cloud->token_timer);
    role_ledger_on_gone(cloud->settings.host->ledger, NULL, NULL);
}

bool cloud_place_take(cloud_t *cloud, const char *caller, uint64_t until_us, const char **why)
{
    cloud_waiter_t waiter = {.co = co_self(), .caller = caller};
    bool is_canceled = co_is_canceled(waiter.co);
    enqueue(cloud, &waiter);
    pump(cloud);
    while (!waiter.has_place && !is_canceled) {
        uint32_t left_ms = cloud_left_ms(until_us);
        if (left_ms == 0)
            break;
        is_canceled = co_wait(left_ms) == CO_CANCELED;
    }
    if (waiter.has_place && !is_canceled)
        return true;
    *why = is_canceled        ? "the run was stopped"
           : has_place(cloud) ? "no more sandboxes may be asked for at present"
                              : "there are as many sandboxes as there may be";
    if (waiter.has_place)
        cloud_place_used(cloud);
    else
        leave(cloud, &waiter);
    return false;
}

void cloud_place_used(cloud_t *cloud)
{
    --cloud->reserved;
    pump(cloud);
}
