#include "backends/role.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/options.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/random.h"

/* One proof at a time, each in a coroutine of its own; its outcome is read when it has ended. */
typedef struct {
    role_t *role;
    backend_facts_t facts;
    bool is_proven;
    char failure[BACKEND_TEXT_MAX];
} proof_t;

static bool is_stale(const role_t *role)
{
    return role->proven_ms == 0 ||
           clock_mono_ms() - role->proven_ms > (uint64_t)option_int(OPT_PLIMSOLL_EVIDENCE_MAX_AGE);
}

tier_t role_tier(const role_t *role)
{
    return role->state == PLIMSOLL__BACKEND__STATE__STATE_FAILED || is_stale(role) ? TIER_UNKNOWN : role->facts.tier;
}

static void proof_main(void *arg)
{
    proof_t *proof = arg;
    role_t *role = proof->role;
    proof->is_proven = role->ops->prove(role->wall, &proof->facts, proof->failure);
}

static void proven(role_t *role, const proof_t *proof)
{
    bool is_news = role->state != PLIMSOLL__BACKEND__STATE__STATE_READY;
    role->facts = proof->facts;
    role->proven_ms = clock_mono_ms();
    role->failure[0] = '\0';
    role->retry_ms = ROLE_RETRY_MIN_MS;
    role->state = PLIMSOLL__BACKEND__STATE__STATE_READY;
    /* Just past the age at which it stops counting. */
    loop_timer_start(role->loop, &role->stale_timer, (uint64_t)option_int(OPT_PLIMSOLL_EVIDENCE_MAX_AGE) + 1);
    log_event(is_news ? LOG_INFO : LOG_DEBUG, "backend proven", log_str("backend", role->ops->name),
              log_str("tier", tier_name(role->facts.tier)), log_str("environment", role->facts.javascript.environment));
}

static void not_proven(role_t *role, const proof_t *proof)
{
    bool is_served = proof->facts.is_untried && role->state == PLIMSOLL__BACKEND__STATE__STATE_READY;
    /* A proof that met a busy machine at the start has learnt nothing: that is no reason yet to serve nobody. */
    bool is_starting = proof->facts.is_untried && role->state == PLIMSOLL__BACKEND__STATE__STATE_STARTING &&
                       ++role->untried < ROLE_UNTRIED_MAX;
    snprintf(role->failure, sizeof(role->failure), "%s", proof->failure);
    if (!is_served && !is_starting)
        role->state = PLIMSOLL__BACKEND__STATE__STATE_FAILED;
    log_event(LOG_ERROR, "backend not proven", log_str("backend", role->ops->name), log_str("reason", role->failure),
              log_bool("served", is_served));
}

static uint64_t next_proof_ms(role_t *role, bool is_proven)
{
    uint64_t interval_ms = (uint64_t)option_int(OPT_PLIMSOLL_PROOF_INTERVAL), wait_ms = interval_ms;
    if (!is_proven && role->retry_ms < interval_ms) {
        wait_ms = role->retry_ms;
        role->retry_ms *= 2;
    }
    /* Roles that started together need not prove together: up to a tenth earlier. */
    return wait_ms - random_below((uint32_t)(wait_ms / 10 + 1));
}

static void on_proof_end(void *arg)
{
    proof_t *proof = arg;
    role_t *role = proof->role;
    bool is_proven = proof->is_proven, is_draining = role->state == PLIMSOLL__BACKEND__STATE__STATE_DRAINING;

    loop_timer_stop(&role->proof_timer);
    role->proof = NULL;
    if (!is_draining) {
        if (is_proven)
            proven(role, proof);
        else
            not_proven(role, proof);
        role_announce(role);
        bool is_now = role->is_proof_wanted || (!is_proven && role->is_retry_wanted);
        loop_timer_start(role->loop, &role->proof_timer, is_now ? 0 : next_proof_ms(role, is_proven));
    }
    free(proof);
    role_has_ended_one(role);
}

static void on_proof_timer(loop_timer_t *timer)
{
    role_t *role = timer->data;
    if (role->proof == NULL) {
        role_prove(role);
        return;
    }
    log_event(LOG_ERROR, "backend proof takes too long", log_str("backend", role->ops->name));
    co_cancel(role->proof);
}

static void on_stale(loop_timer_t *timer)
{
    role_t *role = timer->data;
    log_event(LOG_WARN, "backend evidence too old", log_str("backend", role->ops->name));
    role_announce(role);
}

void role_prove(role_t *role)
{
    if (role->state == PLIMSOLL__BACKEND__STATE__STATE_DRAINING)
        return;
    role->is_proof_wanted = role->proof != NULL;
    if (role->proof != NULL)
        return;
    role->is_retry_wanted = false;
    proof_t *proof = mem_alloc(sizeof(*proof));
    proof->role = role;
    snprintf(proof->failure, sizeof(proof->failure), "no reason given");
    loop_timer_start(role->loop, &role->proof_timer,
                     role->ops->proof_ms != 0 ? role->ops->proof_ms : (uint64_t)ROLE_PROOF_MS);
    role->proof = co_start(role->loop, proof_main, proof, on_proof_end);
}

void role_proof_begin(role_t *role)
{
    role->retry_ms = ROLE_RETRY_MIN_MS;
    loop_timer_init(&role->proof_timer, on_proof_timer, role);
    loop_timer_init(&role->stale_timer, on_stale, role);
    role_prove(role);
}

void role_proof_end(role_t *role)
{
    loop_timer_stop(&role->stale_timer);
    if (role->proof != NULL)
        co_cancel(role->proof);
    else
        loop_timer_stop(&role->proof_timer);
}
