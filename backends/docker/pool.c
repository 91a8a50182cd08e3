#include "backends/docker/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/docker/docker_internal.h"
#include "backends/meters.h"
#include "core/clock.h"
#include "core/co.h"
#include "core/log.h"
#include "core/mem.h"

enum { POOL_MAGIC = 0x706f6f6c };

/* What members are made from. Starts under way keep theirs when the pool moves on. */
typedef struct {
    size_t refs;
    container_spec_t spec;
    char digest[SHA256_HEX + 1];
    char **env;
    member_plan_t plan;
} recipe_t;

typedef struct start {
    pool_t *pool;
    recipe_t *recipe;
    co_t *co;
    member_t *member;
    bool is_canceled;
    char failure[ENGINE_TEXT_MAX];
    struct start *next;
} start_t;

/* A run that waits; on its coroutine's stack. */
typedef struct waiter {
    const char *caller;
    co_t *co;
    uint64_t turn, number;
    bool is_served; /* `member`, or NULL with `failure` */
    member_t *member;
    char *failure;
    struct waiter *next;
} waiter_t;

struct pool {
    unsigned magic;
    docker_t *docker;
    pool_limits_t limits;
    recipe_t *recipe; /* NULL: nothing may be started */
    member_t *idle;   /* the newest first */
    size_t idle_count;
    start_t *starts;
    size_t start_count;
    waiter_t *waiters;
    size_t waiter_count;
    uint64_t turn, number;
    uint64_t pause_ms; /* the next pause; 0 = the last start went well */
    loop_timer_t fill_timer, age_timer;
    bool is_closing;
    co_t *closer;
};

static void check(const pool_t *pool)
{
    if (pool->magic != POOL_MAGIC)
        mem_fatal("not a pool");
}

/* --- recipes --- */

static recipe_t *recipe_create(const member_plan_t *plan)
{
    recipe_t *recipe = mem_alloc(sizeof(*recipe));
    recipe->refs = 1;
    recipe->spec = *plan->spec;
    container_spec_digest(&recipe->spec, recipe->digest);
    recipe->env = mem_alloc_array(plan->env_count + 1, sizeof(*recipe->env));
    for (size_t i = 0; i < plan->env_count; ++i)
        recipe->env[i] = mem_strdup(plan->env[i]);
    recipe->plan = *plan;
    recipe->plan.spec = &recipe->spec;
    recipe->plan.env = (const char *const *)recipe->env;
    return recipe;
}

static void recipe_release(recipe_t *recipe)
{
    if (recipe == NULL || --recipe->refs > 0)
        return;
    for (size_t i = 0; i < recipe->plan.env_count; ++i)
        free(recipe->env[i]);
    free(recipe->env);
    free(recipe);
}

static bool recipe_is_same(const recipe_t *a, const recipe_t *b)
{
    if (strcmp(a->digest, b->digest) != 0 || strcmp(a->spec.image, b->spec.image) != 0 ||
        a->spec.preboot != b->spec.preboot || a->spec.uid != b->spec.uid || a->plan.life_s != b->plan.life_s ||
        a->plan.env_count != b->plan.env_count)
        return false;
    for (size_t i = 0; i < a->plan.env_count; ++i) {
        if (strcmp(a->env[i], b->env[i]) != 0)
            return false;
    }
    return true;
}

/* --- runs that wait: in turn by caller --- */

static void waiter_add(pool_t *pool, waiter_t *waiter)
{
    waiter->turn = pool->turn;
    waiter->number = pool->number++;
    for (const waiter_t *other = pool->waiters; other != NULL; other = other->next) {
        if (strcmp(other->caller, waiter->caller) == 0 && other->turn >= waiter->turn)
            waiter->turn = other->turn + 1;
    }
    waiter->next = pool->waiters;
    pool->waiters = waiter;
    ++pool->waiter_count;
}

static void waiter_remove(pool_t *pool, waiter_t *waiter)
{
    for (waiter_t **at = &pool->waiters; *at != NULL; at = &(*at)->next) {
        if (*at == waiter) {
            *at = waiter->next;
            --pool->waiter_count;
            return;
        }
    }
}

static waiter_t *waiter_next(pool_t *pool)
{
    waiter_t *first = pool->waiters;
    for (waiter_t *other = pool->waiters; other != NULL; other = other->next) {
        if (other->turn < first->turn || (other->turn == first->turn && other->number < first->number))
            first = other;
    }
    return first;
}

static void waiter_serve(pool_t *pool, member_t *member, const char *failure)
{
    waiter_t *waiter = waiter_next(pool);
    pool->turn = waiter->turn;
    waiter_remove(pool, waiter);
    waiter->is_served = true;
    waiter->member = member;
    snprintf(waiter->failure, ENGINE_TEXT_MAX, "%s", failure);
    co_wake(waiter->co);
}

/* --- ready members --- */

static void age_timer_set(pool_t *pool)
{
    const member_t *oldest = pool->idle;
    if (oldest == NULL) {
        loop_timer_stop(&pool->age_timer);
        return;
    }
    while (member_next(oldest) != NULL)
        oldest = member_next(oldest);
    uint64_t due_ms = member_ready_ms(oldest) + pool->limits.idle_ms, now_ms = clock_mono_ms();
    loop_timer_start(pool->docker->host->loop, &pool->age_timer, due_ms > now_ms ? due_ms - now_ms : 0);
}

static void idle_remove(pool_t *pool, member_t *member)
{
    member_t *before = NULL;
    for (member_t *at = pool->idle; at != NULL; before = at, at = member_next(at)) {
        if (at != member)
            continue;
        if (before == NULL)
            pool->idle = member_next(at);
        else
            member_set_next(before, member_next(at));
        member_set_next(member, NULL);
        member_watch(member, NULL, NULL);
        --pool->idle_count;
        meter_add(METER_SANDBOXES_READY, -1);
        age_timer_set(pool);
        return;
    }
}

static void fill_after(pool_t *pool, uint64_t ms)
{
    if (!loop_timer_is_running(&pool->fill_timer))
        loop_timer_start(pool->docker->host->loop, &pool->fill_timer, ms);
}

static void pause_filling(pool_t *pool)
{
    pool->pause_ms = pool->pause_ms == 0 ? POOL_PAUSE_MIN_MS : pool->pause_ms * 2;
    if (pool->pause_ms > POOL_PAUSE_MAX_MS)
        pool->pause_ms = POOL_PAUSE_MAX_MS;
    loop_timer_start(pool->docker->host->loop, &pool->fill_timer, pool->pause_ms);
}

static void on_spoilt(void *data, member_t *member, const char *why)
{
    pool_t *pool = data;
    check(pool);
    log_event(LOG_WARN, "ready sandbox lost", log_str("pool", pool->limits.name), log_str("name", member_name(member)),
              log_str("container", member_id(member)), log_str("reason", why));
    if (clock_mono_ms() - member_ready_ms(member) < POOL_LASTS_MS)
        pause_filling(pool);
    meter_inc(METER_READY_LOST);
    idle_remove(pool, member);
    member_release(member);
    fill_after(pool, POOL_FILL_AFTER_MS);
    /* One may end by itself. That all did at once, nobody but the Engine could have done. */
    if (pool->idle_count == 0)
        docker_suspect(pool->docker);
}

static void idle_add(pool_t *pool, member_t *member)
{
    member_set_next(member, pool->idle);
    pool->idle = member;
    ++pool->idle_count;
    meter_inc(METER_SANDBOXES_READY);
    age_timer_set(pool);
    member_watch(member, on_spoilt, pool); /* at once when it has ended already */
}

static void discard_idle(pool_t *pool)
{
    while (pool->idle != NULL) {
        member_t *member = pool->idle;
        idle_remove(pool, member);
        member_release(member);
    }
}

static void on_age(loop_timer_t *timer)
{
    pool_t *pool = timer->data;
    check(pool);
    uint64_t now_ms = clock_mono_ms();
    for (member_t *member = pool->idle, *next; member != NULL; member = next) {
        next = member_next(member);
        if (now_ms - member_ready_ms(member) >= pool->limits.idle_ms) {
            meter_inc(METER_READY_AGED);
            idle_remove(pool, member);
            member_release(member);
        }
    }
    age_timer_set(pool);
    fill_after(pool, POOL_FILL_AFTER_MS);
}

/* --- starts --- */

static void kick(pool_t *pool);

static void start_main(void *arg)
{
    start_t *start = arg;
    start->member = member_start(start->pool->docker, &start->recipe->plan, start->failure);
}

static void start_forget(start_t *start)
{
    pool_t *pool = start->pool;
    for (start_t **at = &pool->starts; *at != NULL; at = &(*at)->next) {
        if (*at == start) {
            *at = start->next;
            --pool->start_count;
            meter_add(METER_SANDBOXES_STARTING, -1);
            break;
        }
    }
    recipe_release(start->recipe);
    free(start);
}

/* A ready member goes to the run whose turn it is, or waits for one. */
static void take_in(pool_t *pool, member_t *member)
{
    if (pool->waiter_count > 0)
        waiter_serve(pool, member, "");
    else if (pool->idle_count < pool->limits.size)
        idle_add(pool, member);
    else
        member_release(member);
}

static void on_start_end(void *arg)
{
    start_t *start = arg;
    pool_t *pool = start->pool;
    check(pool);
    bool is_of_now = start->recipe == pool->recipe && !pool->is_closing;
    if (start->member != NULL && is_of_now) {
        pool->pause_ms = 0;
        take_in(pool, start->member);
    } else if (start->member != NULL) {
        member_release(start->member);
    } else if (is_of_now && !start->is_canceled) {
        meter_inc(METER_STARTS_FAILED);
        pause_filling(pool);
        if (pool->waiter_count > 0)
            waiter_serve(pool, NULL, start->failure);
    }
    start_forget(start);
    if (pool->closer != NULL)
        co_wake(pool->closer);
    else
        kick(pool);
}

static void start_begin(pool_t *pool)
{
    start_t *start = mem_alloc(sizeof(*start));
    start->pool = pool;
    start->recipe = pool->recipe;
    ++start->recipe->refs;
    start->next = pool->starts;
    pool->starts = start;
    ++pool->start_count;
    meter_inc(METER_SANDBOXES_STARTING);
    start->co = co_start(pool->docker->host->loop, start_main, start, on_start_end);
}

static size_t starts_for_runs(const pool_t *pool)
{
    size_t processors = pool->docker->processors;
    return processors < POOL_STARTS_MIN ? POOL_STARTS_MIN : processors > POOL_STARTS_MAX ? POOL_STARTS_MAX : processors;
}

static size_t starts_ahead(const pool_t *pool)
{
    size_t processors = pool->docker->processors;
    return processors < 2 ? 1 : processors / 2 < POOL_STARTS_MAX ? processors / 2 : POOL_STARTS_MAX;
}

static bool is_full(const pool_t *pool)
{
    return pool->idle_count + pool->start_count >= pool->limits.size;
}

/* Starts what runs wait for. Places left over go to starts ahead: whoever waits now is likely to come again, and two
 * at once take hardly longer than one (spec 4.4). */
static void kick(pool_t *pool)
{
    if (pool->recipe == NULL || pool->is_closing)
        return;
    while (pool->start_count < pool->waiter_count && pool->start_count < starts_for_runs(pool))
        start_begin(pool);
    while (pool->waiter_count > 0 && !is_full(pool) && pool->start_count < starts_for_runs(pool) &&
           !docker_is_busy(pool->docker))
        start_begin(pool);
    if (pool->waiter_count == 0 && !is_full(pool))
        fill_after(pool, POOL_FILL_AFTER_MS);
}

/* Starts one ahead of any run. */
static void on_fill(loop_timer_t *timer)
{
    pool_t *pool = timer->data;
    check(pool);
    if (pool->recipe == NULL || pool->is_closing || pool->waiter_count > 0)
        return;
    while (!is_full(pool) && pool->start_count < starts_ahead(pool) && !docker_is_busy(pool->docker))
        start_begin(pool);
}

/* --- its users --- */

pool_t *pool_create(docker_t *docker, const pool_limits_t *limits)
{
    pool_t *pool = mem_alloc(sizeof(*pool));
    pool->magic = POOL_MAGIC;
    pool->docker = docker;
    pool->limits = *limits;
    loop_timer_init(&pool->fill_timer, on_fill, pool);
    loop_timer_init(&pool->age_timer, on_age, pool);
    return pool;
}

static void set_recipe(pool_t *pool, recipe_t *recipe)
{
    recipe_release(pool->recipe);
    pool->recipe = recipe;
    pool->pause_ms = 0;
    discard_idle(pool);
    while (recipe == NULL && pool->waiter_count > 0)
        waiter_serve(pool, NULL, "the wall is not proven any more");
    kick(pool);
}

void pool_set(pool_t *pool, const member_plan_t *plan)
{
    check(pool);
    recipe_t *recipe = plan != NULL ? recipe_create(plan) : NULL;
    if (recipe != NULL && pool->recipe != NULL && recipe_is_same(recipe, pool->recipe)) {
        recipe_release(recipe);
        kick(pool);
        return;
    }
    set_recipe(pool, recipe);
}

void pool_drain(pool_t *pool)
{
    check(pool);
    /* The same again, but another: starts under way belong to the one before. */
    if (pool->recipe != NULL)
        set_recipe(pool, recipe_create(&pool->recipe->plan));
}

static member_t *claim_ready(pool_t *pool)
{
    member_t *member = pool->idle;
    if (member != NULL) {
        idle_remove(pool, member);
        fill_after(pool, POOL_FILL_AFTER_MS);
    }
    return member;
}

member_t *pool_claim(pool_t *pool, const char *caller, uint64_t until_us, bool *is_hit, char failure[ENGINE_TEXT_MAX])
{
    check(pool);
    *is_hit = false;
    if (pool->recipe == NULL || pool->is_closing) {
        snprintf(failure, ENGINE_TEXT_MAX, "the wall is not proven");
        return NULL;
    }
    member_t *member = claim_ready(pool);
    *is_hit = member != NULL;
    if (member != NULL)
        return member;

    waiter_t waiter = {.caller = caller, .co = co_self(), .failure = failure};
    waiter_add(pool, &waiter);
    kick(pool);
    while (!waiter.is_served) {
        uint64_t now_us = clock_mono_us();
        co_wake_t woken = now_us >= until_us ? CO_TIMED_OUT : co_wait((until_us - now_us + 999) / 1000);
        if (woken == CO_WOKEN || waiter.is_served)
            continue;
        waiter_remove(pool, &waiter);
        snprintf(failure, ENGINE_TEXT_MAX, "%s",
                 woken == CO_CANCELED ? "canceled" : "no sandbox became ready early enough in the run's time");
        return NULL;
    }
    return waiter.member;
}

void pool_poke(pool_t *pool)
{
    check(pool);
    kick(pool);
}

size_t pool_idle(const pool_t *pool)
{
    check(pool);
    return pool->idle_count;
}

size_t pool_starting(const pool_t *pool)
{
    check(pool);
    return pool->start_count;
}

static void await_starts(pool_t *pool, uint64_t until_ms)
{
    while (pool->start_count > 0) {
        uint64_t now_ms = clock_mono_ms();
        if (now_ms >= until_ms || co_wait(until_ms - now_ms) == CO_CANCELED)
            return;
    }
}

void pool_destroy(pool_t *pool)
{
    check(pool);
    pool->is_closing = true;
    pool->closer = co_self();
    loop_timer_stop(&pool->fill_timer);
    discard_idle(pool);
    if (pool->start_count > 0) {
        /* A start cut short may leave a container whose ID nobody was told: better let it finish. */
        await_starts(pool, clock_mono_ms() + POOL_END_MS);
        for (start_t *start = pool->starts; start != NULL; start = start->next) {
            start->is_canceled = true;
            co_cancel(start->co);
        }
        await_starts(pool, UINT64_MAX);
    }
    loop_timer_stop(&pool->fill_timer);
    loop_timer_stop(&pool->age_timer);
    recipe_release(pool->recipe);
    pool->magic = 0;
    free(pool);
}
