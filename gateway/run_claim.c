#include "gateway/run_internal.h"

#include <stdio.h>
#include <string.h>

#include "config/provider.h"
#include "core/clock.h"
#include "core/fault.h"
#include "core/mem.h"
#include "gateway/billing.h"
#include "gateway/metrics.h"
#include "gateway/front_spool.h"
#include "gateway/quota.h"
#include "gateway/run_serve.h"
#include "gateway/stored_answer.h"

void run_leave_joined(run_t *run)
{
    if (run->next_joined != NULL)
        run->next_joined->prev_joined = run->prev_joined;
    if (run->prev_joined != NULL)
        run->prev_joined->next_joined = run->next_joined;
    else
        run->lane->joined = run->next_joined;
}

/* --- claim and admission --- */

/* false: it is not the answer any more that was stored. */
static bool take_stored(run_t *run, const store_admitted_t *a)
{
    Plimsoll__V1__RunResponse *response = stored_answer_unpack(run_caller_id(run), a);
    if (response == NULL)
        return false;
    plimsoll__v1__run_response__free_unpacked(response, NULL);
    outcome_t *o = run->outcome = outcome_create();
    o->answered = true;
    o->stored = true;
    o->response = mem_alloc(a->answer_len);
    memcpy(o->response, a->answer, a->answer_len);
    o->response_len = a->answer_len;
    memcpy(o->run_id, a->run_id, sizeof(o->run_id));
    snprintf(o->backend, sizeof(o->backend), "%s", a->backend);
    o->has_bill = a->has_spent;
    o->bill = (bill_t){.amounts = a->spent, .is_billed = a->spent.paid_ms != 0, .is_cost_known = a->is_cost_known};
    run->replayed = true;
    metric_inc(METRIC_REPLAYED);
    run_finish(run);
    return true;
}

static void refuse_for_place(run_t *run)
{
    refusal_t r;
    uint32_t most = run->lane->front->max_concurrent;
    metric_inc(METRIC_SHED_AT_CAPACITY);
    refusal_set(&r, CODE_RESOURCE_EXHAUSTED, MARK_CAPACITY,
                "the gateway runs as much at once as SANDBOX_MAX_CONCURRENT allows (%u); try again in a moment", most);
    r.quota = "concurrency";
    r.quota_limit = most;
    r.retry_after_ms = 1000;
    snprintf(run->limits_seen, sizeof(run->limits_seen), "cap=concurrency;scope=copy;limit=%u", most);
    run_refuse(run, &r);
}

static void refuse_for_quota(run_t *run, const store_admitted_t *a)
{
    refusal_t r;
    front_t *front = run->lane->front;
    prices_t *prices = front_prices(front);
    const quota_terms_t terms = {.caps = &run->caps,
                                 .total_caps = &front->total_caps,
                                 .window_s = front->window_s,
                                 .hold = &run->hold.amounts,
                                 .currency = prices != NULL ? prices_currency(prices) : ""};
    quota_refuse(a, &terms, &r);
    quota_seen(a, run->limits_seen);
    prices_unref(prices);
    run_refuse(run, &r);
}

static void refuse_for_store(run_t *run)
{
    refusal_t r;
    metric_inc(METRIC_SHED_STORE);
    refusal_set(&r, CODE_UNAVAILABLE, MARK_CAPACITY,
                "the record store does not answer, and without it nothing runs; try again in a moment");
    r.retry_after_ms = 1000;
    run_refuse(run, &r);
}

/* What an ID that is taken already means, at admission and for a joined run that looks. true: the run is over. */
static bool heed_claim(run_t *run, const store_admitted_t *a)
{
    refusal_t r;
    switch (a->outcome) {
    case ADMIT_ANSWERED:
        if (take_stored(run, a))
            return true;
        failure_set(&r, CODE_ALREADY_EXISTS,
                    "this %s has run as %s, and what the record store kept of its output is damaged; its record still "
                    "stands (GET /v1/runs/%s)",
                    run_key_name(run), a->run_id, a->run_id);
        break;
    case ADMIT_ANSWER_GONE:
        failure_set(
            &r, CODE_ALREADY_EXISTS,
            "this %s has run as %s, and its output is not kept any more: it was too large, or its time is over; "
            "its record still stands (GET /v1/runs/%s)",
            run_key_name(run), a->run_id, a->run_id);
        break;
    case ADMIT_OUTCOME_UNKNOWN: {
        code_t code = code_parse(a->unknown_code);
        failure_set(&r, code != CODE_COUNT ? code : CODE_UNAVAILABLE,
                    "an earlier request with this %s was dispatched and its outcome is unknown; it may have run",
                    run_key_name(run));
        break;
    }
    case ADMIT_CONFLICT:
        metric_inc(METRIC_CONFLICTS);
        refusal_set(&r, CODE_INVALID_ARGUMENT, MARK_REQUEST,
                    "%s was used before with another request; a new request needs a new one", run_key_name(run));
        break;
    default:
        return false;
    }
    run_remember_refusal(run, &r);
    if (a->outcome != ADMIT_CONFLICT)
        memcpy(run->outcome->run_id, a->run_id, sizeof(run->outcome->run_id));
    run_finish(run);
    return true;
}

/* A look of a joined run is over. true: so is the run, or its next look is due. */
static bool end_look(run_t *run)
{
    run_check(run);
    run->claim_us = 0;
    if (run->stop == STOP_CAUSE_NONE)
        return false;
    stop_cause_t cause = run->stop;
    run->stop = STOP_CAUSE_NONE;
    loop_timer_start(run->lane->loop, &run->watchdog, JOIN_LOOK_MS); /* should it go on, for others */
    run_stop(run, cause);
    return true;
}

/* Redis has not said for so long what became of the run that it must be over: waiting further has no end. */
static bool is_beyond_its_life(const run_t *run)
{
    return clock_mono_us() >= run->lost_us;
}

static void give_up_the_wait(run_t *run)
{
    refusal_t r;
    run_leave_joined(run);
    failure_set(&r, CODE_UNAVAILABLE,
                "the record store does not say what became of the run with this %s (%s); it may have run",
                run_key_name(run), run->admitted.run_id);
    r.retry_after_ms = 1000;
    run_remember_refusal(run, &r);
    run_finish(run);
}

/* The ID is free again. That the run it waited for was refused, and nothing ran, only its record can tell: Redis may as
 * well have lost the claim of a run that goes on. */
static void on_freed(void *data, store_lookup_t found, const store_run_t *runs, size_t count, const char *next_cursor)
{
    run_t *run = data;
    refusal_t r;
    (void)next_cursor;
    if (end_look(run))
        return;
    if (found == STORE_AWAY && is_beyond_its_life(run)) {
        give_up_the_wait(run);
        return;
    }
    if (found == STORE_AWAY) {
        loop_timer_start(run->lane->loop, &run->watchdog, JOIN_LOOK_MS);
        return;
    }
    run_leave_joined(run);
    if (found == STORE_FOUND && count == 1 && strcmp(runs[0].verdict, verdict_name(VERDICT_REFUSED)) == 0) {
        refusal_set(&r, CODE_RESOURCE_EXHAUSTED, MARK_CAPACITY,
                    "the run with this %s was refused and nothing ran; send it again", run_key_name(run));
        r.retry_after_ms = 1000;
        run_refuse(run, &r);
        return;
    }
    failure_set(&r, CODE_UNAVAILABLE,
                "the record store has lost what it had of the run with this %s (%s); it may have run",
                run_key_name(run), run->admitted.run_id);
    run_remember_refusal(run, &r);
    run_finish(run);
}

static void on_looked(void *data, const store_admitted_t *a)
{
    run_t *run = data;
    if (end_look(run))
        return;
    if (a->outcome == ADMIT_OK) {
        run->claim_us = clock_mono_us(); /* a look as well */
        store_run_get(run->lane->store, run_caller_id(run), run->admitted.run_id, on_freed, run);
        return;
    }
    if (a->outcome == ADMIT_ANSWERED || a->outcome == ADMIT_ANSWER_GONE || a->outcome == ADMIT_OUTCOME_UNKNOWN ||
        a->outcome == ADMIT_CONFLICT) {
        run_leave_joined(run);
        heed_claim(run, a);
        return;
    }
    if (a->outcome != ADMIT_JOIN && is_beyond_its_life(run)) {
        give_up_the_wait(run);
        return;
    }
    loop_timer_start(run->lane->loop, &run->watchdog, JOIN_LOOK_MS);
}

static void look_at_claim(run_t *run)
{
    if (run->claim_us != 0)
        return; /* a look is on its way */
    run->claim_us = clock_mono_us();
    loop_timer_stop(&run->watchdog);
    store_claim_look(run->lane->store, run_caller_id(run), run_claim_id(run), run->request_sha256, on_looked, run);
}

static void on_look_time(loop_timer_t *timer)
{
    run_t *run = timer->data;
    run_check(run);
    look_at_claim(run);
}

static void join(run_t *run)
{
    run_move(run, RUN_JOINED);
    metric_inc(METRIC_JOINED);
    run_give_place_back(run);
    run->replayed = true;
    run->claim_us = 0;
    run->lost_us = clock_mono_us() + UINT64_C(1000) * run->life_ms;
    run->prev_joined = NULL;
    if ((run->next_joined = run->lane->joined) != NULL)
        run->next_joined->prev_joined = run;
    run->lane->joined = run;
    loop_timer_init(&run->watchdog, on_look_time, run);
    loop_timer_start(run->lane->loop, &run->watchdog, JOIN_LOOK_MS);
    if (run->stop != STOP_CAUSE_NONE) {
        stop_cause_t cause = run->stop;
        run->stop = STOP_CAUSE_NONE;
        run_stop(run, cause);
    }
}

/* How long a hold that nobody settles is waited for before all of it is charged. */
static uint32_t hold_ms(const run_t *run)
{
    /* a billed sandbox that outlived its gateway is found, deleted and charged by the ledger, before this is over */
    enum { LEDGER_MS = 15 * 60 * 1000 };
    return run->life_ms + PAID_TEARDOWN_MS + (run->hold.is_billed ? LEDGER_MS : 0);
}

static store_admission_t admission_of(const run_t *run)
{
    const front_t *front = run->lane->front;
    return (store_admission_t){
        .caller = run_caller_id(run),
        .request_id = run_claim_id(run),
        .request_sha256 = run->request_sha256,
        .run_id = run->run_id,
        .lease_ms = run->life_ms < STORE_LEASE_MS ? run->life_ms : STORE_LEASE_MS,
        .life_ms = run->life_ms,
        .has_place = run->has_place,
        .caps = run->caps,
        .total_caps = front->total_caps,
        .window_s = front->window_s,
        .hold = run->hold.amounts,
        .hold_ms = hold_ms(run),
    };
}

static void hold_lease(run_t *run)
{
    store_admission_t admission = admission_of(run);
    store_lease_hold(run->lane->store, &run->lease, &admission, run->claim_us);
}

static void on_admitted(void *data, const store_admitted_t *a)
{
    run_t *run = data;
    run_check(run);
    fault_point("run.admitted");
    run->claim_took_us = (uint32_t)(clock_mono_us() - run->claim_us);
    run->admitted = *a;
    run->admitted.answer = NULL;
    if (heed_claim(run, a))
        return;
    switch (a->outcome) {
    case ADMIT_OK:
        hold_lease(run);
        if (run->stop != STOP_CAUSE_NONE && run->flight != NULL &&
            flights_has_followers(run->lane->front->flights, run->flight)) {
            run_outlive(run, run->stop);
            run->stop = STOP_CAUSE_NONE;
        }
        if (run->stop != STOP_CAUSE_NONE) {
            /* the caller gave up while the claim was made: nothing ran, and the ID is given back */
            refusal_set(&run->refusal, run->stop == STOP_CAUSE_DEADLINE ? CODE_DEADLINE_EXCEEDED : CODE_CANCELED,
                        MARK_CAPACITY, "the caller gave up before the run was dispatched; nothing ran");
            run_remember_refusal(run, &run->refusal);
            run_settle(run, VERDICT_REFUSED, true);
        } else {
            run_dispatch(run);
        }
        break;
    case ADMIT_JOIN:
        join(run);
        break;
    case ADMIT_NO_PLACE:
    case ADMIT_CAPPED:
        if (run->only_claims)
            run_refuse(run, &run->refusal);
        else if (a->outcome == ADMIT_NO_PLACE)
            refuse_for_place(run);
        else
            refuse_for_quota(run, a);
        break;
    default:
        if (!run_serve(run))
            refuse_for_store(run);
        break;
    }
}

/* A wall that has a long way before and after the run's own time. STORE_LIFE_MARGIN_MS holds what the others take. */
static uint32_t way_ms(const char *backend)
{
    const provider_t *provider = provider_find(backend);
    return provider != NULL && provider->late_ms > DOCKER_LATE_MS ? provider->late_ms - DOCKER_LATE_MS : 0;
}

/* The run's own time, where it is longest, and the ways of all: one that refuses late must leave the next one its. */
static uint32_t whole_way(const front_t *front, const placement_t *placement)
{
    uint32_t longest = 0, ways = 0;
    for (size_t i = 0; i < placement->count; i++) {
        ways += way_ms(front->backend_names[placement->backend[i]]);
        if (placement->timeout_ms[i] > longest)
            longest = placement->timeout_ms[i];
    }
    return longest + ways;
}

static void claim(run_t *run)
{
    front_t *front = run->lane->front;
    if (!billing_hold(run->lane, &run->placement, &run->hold, &run->refusal))
        run->only_claims = true; /* nothing may run; an outcome its key has already comes first */
    run->has_place = !run->only_claims && front_place_take(front);
    if (run->has_place && !front_spool_has_room(front, &run->refusal)) {
        run_give_place_back(run);
        run->only_claims = true; /* the same */
        snprintf(run->limits_seen, sizeof(run->limits_seen), "cap=spool;scope=copy");
    }
    run->life_ms = whole_way(front, &run->placement) + STORE_LIFE_MARGIN_MS;
    run->caps = quota_caps(front, run->gate->intake.caller);
    store_admission_t admission = admission_of(run);
    if (run->only_claims && admission.request_id == NULL) {
        run_refuse(run, &run->refusal);
        return;
    }
    run->claim_us = clock_mono_us();
    fault_point("run.claim");
    store_admit(run->lane->store, &admission, on_admitted, run);
}

/* --- the same request already under way here --- */

static void on_leader_outcome(flight_member_t *member, outcome_t *outcome)
{
    run_t *run = member->data;
    run_check(run);
    run->outcome = outcome;
    run->replayed = true;
    run_finish(run);
}

void run_enter_flight(run_t *run)
{
    char key[STORE_CLAIM_KEY_MAX];
    refusal_t r;
    if (run_claim_id(run) == NULL) {
        claim(run);
        return;
    }
    store_claim_key(run->lane->store, run_caller_id(run), run_claim_id(run), key);
    run->member = (flight_member_t){.loop = run->lane->loop, .on_outcome = on_leader_outcome, .data = run};
    switch (flights_enter(run->lane->front->flights, key, run->request_sha256, &run->member, &run->flight)) {
    case FLIGHT_LEADS:
        claim(run);
        break;
    case FLIGHT_FOLLOWS:
        run_move(run, RUN_FOLLOWING);
        metric_inc(METRIC_JOINED);
        /* a follower needs nothing but its place in line */
        plimsoll__v1__run_request__free_unpacked(run->request, NULL);
        run->request = NULL;
        break;
    case FLIGHT_CONFLICTS:
        metric_inc(METRIC_CONFLICTS);
        refusal_set(&r, CODE_INVALID_ARGUMENT, MARK_REQUEST,
                    "%s is in use by another request; a new request needs a new one", run_key_name(run));
        run_refuse(run, &r);
        break;
    }
}

void run_on_settled(lane_t *lane, const char *claim_key)
{
    char key[STORE_CLAIM_KEY_MAX];
    for (run_t *run = lane->joined, *next; run != NULL; run = next) {
        next = run->next_joined;
        store_claim_key(run->lane->store, run_caller_id(run), run_claim_id(run), key);
        if (strcmp(key, claim_key) == 0)
            look_at_claim(run);
    }
}

void run_look_all(lane_t *lane)
{
    for (run_t *run = lane->joined, *next; run != NULL; run = next) {
        next = run->next_joined;
        look_at_claim(run);
    }
}
