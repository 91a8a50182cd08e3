#include "gateway/run_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/provider.h"
#include "core/clock.h"
#include "core/fault.h"
#include "core/log.h"
#include "core/mem.h"
#include "gateway/audit.h"
#include "gateway/billing.h"
#include "gateway/link.h"
#include "gateway/metrics.h"
#include "gateway/result.h"

enum {
    BACKEND_RETRY_MS = 1000, /* when a backend without room does not say when to come again */
};

/* --- the backend's answer --- */

static void note_passed_over(run_t *run, const char *backend, mark_t mark)
{
    size_t used = strlen(run->passed_over);
    metric_inc(METRIC_PASSED_OVER);
    snprintf(run->passed_over + used, sizeof(run->passed_over) - used, "%s%s;reason=%s", used != 0 ? ", " : "", backend,
             mark_name(mark));
}

static void settle_failure(run_t *run, const char *code, const char *message, const char *detail)
{
    refusal_t failure;
    code_t c = code_parse(code);
    bool ours = c == CODE_CANCELED || c == CODE_DEADLINE_EXCEEDED || c == CODE_UNAVAILABLE;
    if (ours) {
        failure_set(&failure, c, "%s; it may have run", message);
        log_event(LOG_WARN, "run failed", log_str("run_id", run->run_id), log_str("code", code),
                  log_str("error", detail));
    } else {
        failure_set_internal(&failure, detail[0] != '\0' ? detail : message);
    }
    if (run->stop != STOP_CAUSE_HANG_UP && run->stop != STOP_CAUSE_DEADLINE)
        metric_inc(METRIC_RUNS_FAILED); /* what the caller ended is no failure of ours */
    run_remember_refusal(run, &failure);
    memcpy(run->outcome->run_id, run->run_id, sizeof(run->run_id));
    snprintf(run->outcome->backend, sizeof(run->outcome->backend), "%s", run->lane->front->backend_names[run->at]);
    uint64_t took_ms = (clock_mono_us() - run->dispatched_us) / 1000;
    run->spent = billing_spent(run->lane, run->at, took_ms, took_ms);
    audit_failure(run, failure.message, detail);
    run_settle(run, VERDICT_UNKNOWN, false);
}

static const char *stop_text(stop_cause_t cause)
{
    switch (cause) {
    case STOP_CAUSE_HANG_UP:
        return "the caller went away and the run was stopped";
    case STOP_CAUSE_DEADLINE:
        return "the caller's deadline passed and the run was stopped";
    default:
        return "the run was overdue and was stopped";
    }
}

static void on_done(run_t *run, const Plimsoll__Backend__RunDone *done)
{
    run->execute_us = (uint32_t)(done->execute_us > UINT32_MAX ? UINT32_MAX : done->execute_us);
    uint64_t whole = clock_mono_us() - run->dispatched_us;
    run->queue_us = whole > run->execute_us ? (uint32_t)(whole - run->execute_us) : 0;
    run->spent = billing_spent(run->lane, run->at, run->execute_us / 1000, done->billable_ms);
    if (done->canceled && run->stop != STOP_CAUSE_NONE) {
        /* we stopped it: what the wall says of its end is not the code's own verdict. One that ended by itself first
         * keeps its result. */
        settle_failure(run, run->stop == STOP_CAUSE_HANG_UP ? "canceled" : "deadline_exceeded", stop_text(run->stop),
                       stop_text(run->stop));
        return;
    }
    const char *wrong = result_complete(run, done);
    if (wrong != NULL) {
        settle_failure(run, "internal", wrong, wrong);
        return;
    }
    run_settle(run, VERDICT_ANSWERED, false);
}

/* A backend that ran nothing is passed over when another might do better; the last refusal is the answer when none is
 * left. */
static void on_refused(run_t *run, const Plimsoll__Backend__RunRefused *refused)
{
    const char *name = run->lane->front->backend_names[run->at];
    mark_t mark = refused->reason >= 1 && refused->reason <= 7 ? (mark_t)refused->reason : MARK_NONE;
    code_t code = mark == MARK_ISOLATION || mark == MARK_ENVIRONMENT ? CODE_FAILED_PRECONDITION
                  : mark == MARK_UNSUPPORTED                         ? CODE_UNIMPLEMENTED
                  : mark == MARK_CAPACITY                            ? CODE_RESOURCE_EXHAUSTED
                  : mark == MARK_PERMISSION                          ? CODE_PERMISSION_DENIED
                                                                     : CODE_INVALID_ARGUMENT;
    if (mark == MARK_NONE) {
        settle_failure(run, "internal", "refusal without a reason", "a backend refused without a reason");
        return;
    }
    if (refused->detail[0] != '\0')
        log_event(LOG_INFO, "backend refused", log_str("run_id", run->run_id), log_str("backend", name),
                  log_str("reason", mark_name(mark)), log_str("detail", refused->detail));
    refusal_set(&run->refusal, code, mark, "%s", refused->message);
    /* whoever is told to come again is told when */
    run->refusal.retry_after_ms =
        mark == MARK_CAPACITY && refused->retry_after_ms == 0 ? BACKEND_RETRY_MS : refused->retry_after_ms;
    bool others_may_do_better = mark == MARK_UNSUPPORTED || mark == MARK_ISOLATION || mark == MARK_CAPACITY;
    if (others_may_do_better && run->stop == STOP_CAUSE_NONE && run->request != NULL) {
        note_passed_over(run, name, mark);
        run_dispatch(run);
        return;
    }
    run_remember_refusal(run, &run->refusal);
    snprintf(run->outcome->backend, sizeof(run->outcome->backend), "%s", name);
    run_settle(run, VERDICT_REFUSED, true);
}

static void on_backend_end(void *data, const link_result_t *result)
{
    run_t *run = data;
    run_check(run);
    fault_point("run.result");
    run->call = 0;
    metric_add(METRIC_INFLIGHT, -1);
    switch (result->end) {
    case LINK_DONE:
        on_done(run, result->done);
        break;
    case LINK_REFUSED:
        on_refused(run, result->refused);
        break;
    case LINK_FAILED:
        settle_failure(run, result->failed->code, result->failed->message, result->failed->detail);
        break;
    case LINK_LOST:
        metric_inc(METRIC_BACKEND_LOST);
        settle_failure(run, "unavailable", "the backend was lost during the run",
                       "the backend role's connection was lost");
        break;
    case LINK_GARBLED:
        settle_failure(run, "internal", "garbled", "a backend role sent a message that does not unpack");
        break;
    }
}

/* --- dispatch --- */

static void nothing_left(run_t *run)
{
    if (run->refusal.mark == MARK_NONE) {
        metric_inc(METRIC_SHED_BACKENDS);
        refusal_set(&run->refusal, CODE_UNAVAILABLE, MARK_CAPACITY,
                    "no backend is ready for this run now; try again in a moment");
        run->refusal.retry_after_ms = 1000;
    }
    run_remember_refusal(run, &run->refusal);
    run_settle(run, VERDICT_REFUSED, true);
}

static bool hand_to(run_t *run, size_t i, uint32_t timeout_ms)
{
    size_t len = plimsoll__v1__run_request__get_packed_size(run->request);
    uint8_t *packed = mem_alloc(len);
    Plimsoll__Backend__RunStart start = PLIMSOLL__BACKEND__RUN_START__INIT;
    plimsoll__v1__run_request__pack(run->request, packed);
    start.run_id = run->run_id;
    start.caller = (char *)run_caller_id(run);
    start.minimum_isolation = (char *)(run->terms.floor == TIER_UNKNOWN ? "" : tier_name(run->terms.floor));
    start.timeout_ms = timeout_ms;
    start.price_micro_hour = billing_price_micro_hour(run->lane, i);
    start.request = (ProtobufCBinaryData){len, packed};
    fault_point("run.dispatch");
    run->dispatched_us = clock_mono_us();
    run->tier = placement_tier(run->lane, i);
    run->call = link_run(run->lane->links[i], &start, on_backend_end, run);
    free(packed);
    return run->call != 0;
}

/* Past its deadline by this, a backend is not going to end the run itself. */
static unsigned late_ms(const run_t *run)
{
    const provider_t *provider = provider_find(run->lane->front->backend_names[run->at]);
    return provider != NULL ? provider->late_ms : PROVIDER_LATE_MS;
}

/* Whether others still leave its key and slots to it, for the time a renewal takes. A process that was stopped, or cut
 * off from Redis, leaves too little. What is served without Redis has neither. */
static bool has_its_lease(const run_t *run)
{
    return run->served_alone || store_lease_left_ms(&run->lease) >= STORE_LEASE_LEAST_MS;
}

/* Whether a run of so long, and what it takes to find its end, still lies within the run's life, for which its key is
 * kept and its hold waits. A backend that refuses late leaves too little. */
static bool is_within_life(const run_t *run, uint32_t timeout_ms)
{
    uint64_t age_ms = (clock_mono_us() - run->claim_us) / 1000;
    return age_ms + timeout_ms + late_ms(run) + CANCEL_GRACE_MS <= run->life_ms;
}

void run_dispatch(run_t *run)
{
    while (run->next < run->placement.count) {
        size_t k = run->next++;
        run->at = run->placement.backend[k];
        /* evidence may have aged since the placement: the floor is compared again, right before the dispatch */
        if (!tier_meets(placement_tier(run->lane, run->at), run->terms.floor)) {
            refusal_set(&run->refusal, CODE_FAILED_PRECONDITION, MARK_ISOLATION,
                        "minimum_isolation %s is not met by %s: nothing ran", tier_name(run->terms.floor),
                        run->lane->front->backend_names[run->at]);
            note_passed_over(run, run->lane->front->backend_names[run->at], MARK_ISOLATION);
            continue;
        }
        if (!has_its_lease(run) || !is_within_life(run, run->placement.timeout_ms[k]) ||
            !hand_to(run, run->at, run->placement.timeout_ms[k])) {
            note_passed_over(run, run->lane->front->backend_names[run->at], MARK_CAPACITY);
            continue;
        }
        run_move(run, RUN_DISPATCHED);
        if (run->flight != NULL)
            flights_dispatched(run->lane->front->flights, run->flight);
        metric_inc(METRIC_RUNS);
        metric_inc(METRIC_INFLIGHT);
        if (run->next == run->placement.count) {
            /* nobody else will be asked: the backend holds the request now, this process need not */
            plimsoll__v1__run_request__free_unpacked(run->request, NULL);
            run->request = NULL;
        }
        loop_timer_start(run->lane->loop, &run->watchdog, (uint64_t)run->placement.timeout_ms[k] + late_ms(run));
        return;
    }
    nothing_left(run);
}

/* --- a backend that does not answer --- */

void run_on_watchdog(loop_timer_t *timer)
{
    run_t *run = timer->data;
    run_check(run);
    if (run->state != RUN_DISPATCHED)
        return;
    if (run->stop == STOP_CAUSE_NONE) {
        run->stop = STOP_CAUSE_WATCHDOG;
        log_event(LOG_ERROR, "backend overdue", log_str("run_id", run->run_id),
                  log_str("backend", run->lane->front->backend_names[run->at]));
        link_cancel(run->lane->links[run->at], run->call);
        loop_timer_start(run->lane->loop, &run->watchdog, CANCEL_GRACE_MS);
        return;
    }
    /* neither an answer nor an end: the run is given up here; its lease and the backend's ledger take it from there */
    link_abandon(run->lane->links[run->at], run->call);
    run->call = 0;
    metric_add(METRIC_INFLIGHT, -1);
    settle_failure(run, run->stop == STOP_CAUSE_HANG_UP ? "canceled" : "deadline_exceeded",
                   "the backend neither answered nor stopped in time", "overdue and deaf to the cancel");
}
