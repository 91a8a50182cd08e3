#include "gateway/run_internal.h"

#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/fault.h"
#include "gateway/answer.h"
#include "gateway/connect.h"
#include "gateway/metrics.h"
#include "gateway/result.h"
#include "gateway/run_serve.h"

/* --- the end of every path: an outcome, for this request and all that follow it --- */

void run_remember_refusal(run_t *run, const refusal_t *refusal)
{
    run->outcome = outcome_create();
    run->outcome->refusal = *refusal;
}

static void answer_timing(const run_t *run)
{
    if (!run->lane->front->server_timing)
        return;
    answer_header(run->req, "Server-Timing",
                  "auth;dur=%.3f, claim;dur=%.3f, queue;dur=%.3f, execute;dur=%.3f, settle;dur=%.3f",
                  run->gate->intake.auth_us / 1e3, run->claim_took_us / 1e3, run->queue_us / 1e3, run->execute_us / 1e3,
                  run->settle_took_us / 1e3);
}

static void answer_rate(const run_t *run)
{
    const store_admitted_t *a = &run->admitted;
    if (a->rate_limit == 0 || a->outcome != ADMIT_OK)
        return;
    answer_header(run->req, "RateLimit-Policy", "\"runs\";q=%u;w=%u", a->rate_limit,
                  quota_rate_window_s(&run->caps, a->rate_limit));
    answer_header(run->req, "RateLimit", "\"runs\";r=%u;t=%u", a->rate_remaining, (a->rate_reset_ms + 999) / 1000);
}

static void answer_bill(const run_t *run)
{
    char seconds[BILL_SECONDS_MAX], cost[BILL_COST_MAX];
    const outcome_t *o = run->outcome;
    if (!o->has_bill)
        return;
    prices_t *prices = o->bill.is_billed ? front_prices(run->lane->front) : NULL;
    answer_header_text(run->req, "Plimsoll-Billable-Seconds", bill_seconds(&o->bill, seconds));
    answer_header_text(run->req, "Plimsoll-Cost",
                       bill_cost(&o->bill, prices != NULL ? prices_currency(prices) : "", cost));
    prices_unref(prices);
}

static void answer(run_t *run)
{
    const outcome_t *o = run->outcome;
    refusal_t trouble;
    const refusal_t *refusal = o->answered ? NULL : &o->refusal;
    buffer_t body;
    buffer_init(&body, RESPONSE_MAX);
    if (o->answered) {
        Plimsoll__V1__RunResponse *response = plimsoll__v1__run_response__unpack(NULL, o->response_len, o->response);
        if (response == NULL || !connect_encode(run->gate->intake.codec, &response->base, &body)) {
            failure_set_internal(&trouble, response == NULL ? "a stored answer does not unpack"
                                                            : "an answer is larger than 32 MiB");
            refusal = &trouble;
        }
        if (response != NULL)
            plimsoll__v1__run_response__free_unpacked(response, NULL);
    }
    if (o->run_id[0] != '\0')
        answer_header_text(run->req, "Plimsoll-Run-Id", o->run_id);
    if (o->backend[0] != '\0')
        answer_header_text(run->req, "Plimsoll-Backend", o->backend);
    if (run->passed_over[0] != '\0')
        answer_header_text(run->req, "Plimsoll-Passed-Over", run->passed_over);
    if (run->replayed && refusal == NULL)
        answer_header_text(run->req, "Plimsoll-Replayed", "1");
    answer_timing(run);
    if (refusal != NULL) {
        buffer_dispose(&body);
        answer_refusal(run->req, refusal);
        return;
    }
    answer_rate(run);
    answer_bill(run);
    answer_send(run->req, 200, connect_media_type(run->gate->intake.codec), &body);
}

void run_give_place_back(run_t *run)
{
    if (!run->has_place)
        return;
    run->has_place = false;
    front_place_give(run->lane->front);
}

void run_finish(run_t *run)
{
    lane_t *lane = run->lane;
    run_move(run, RUN_OVER);
    loop_timer_stop(&run->deadline);
    loop_timer_stop(&run->watchdog);
    run_give_place_back(run);
    run_serve_end(run);
    if (run->flight != NULL)
        flights_land(lane->front->flights, run->flight, run->outcome);
    fault_point("run.answer");
    answer(run);
    outcome_unref(run->outcome);
    if (run->request != NULL)
        plimsoll__v1__run_request__free_unpacked(run->request, NULL);
    if (run->rule != NULL)
        plimsoll__v1__software_rule__free_unpacked(run->rule, NULL);
    run->magic = 0;
    free(run);
    lane->runs--;
    front_lane_changed(lane);
}

/* --- settle --- */

static void on_settled(void *data, bool stored)
{
    run_t *run = data;
    run_check(run);
    if (!stored)
        metric_inc(METRIC_SETTLE_LATE);
    run->settle_took_us = (uint32_t)(clock_mono_us() - run->settle_began_us);
    run_finish(run);
}

/* What is said of every run that leaves something behind. */
static void fill_settlement(const run_t *run, verdict_t verdict, store_settlement_t *s)
{
    const intake_t *in = &run->gate->intake;
    *s = (store_settlement_t){
        .caller = run_caller_id(run),
        .request_id = run_claim_id(run),
        .run_id = run->run_id,
        .verdict = verdict,
        .backend = run->outcome->backend,
        .kind = run->kind,
        .request_sha256 = run->request_sha256,
        .started_unix_ms = in->began_unix_ms,
        .canceled = run->stop == STOP_CAUSE_HANG_UP || run->stop == STOP_CAUSE_DEADLINE,
        .is_cost_known = true,
        .trace_id = run->trace_id,
    };
    if (in->key.len != 0) {
        s->client_request_id = in->has_request_id ? in->request_id : NULL;
        s->idempotency_key = in->key.text;
    }
    s->ended_unix_ms = s->started_unix_ms + (int64_t)((clock_mono_us() - in->began_us) / 1000);
}

/* A refusal of which nothing else is recorded. */
static void leave_receipt(const run_t *run)
{
    store_settlement_t s;
    if (!run->leaves_receipt)
        return;
    fill_settlement(run, VERDICT_REFUSED, &s);
    s.reason = mark_name(run->outcome->refusal.mark);
    s.limits = run->limits_seen;
    store_receipt(run->lane->store, &s);
}

void run_refuse(run_t *run, const refusal_t *refusal)
{
    run_remember_refusal(run, refusal);
    if (refusal->mark != MARK_NONE)
        leave_receipt(run);
    run_finish(run);
}

/* What it is charged. Nobody knows yet how long the sandbox of a billed run without an answer is there: its hold stays
 * for the ledger to settle. */
static void charge(const run_t *run, verdict_t verdict, store_settlement_t *s)
{
    if (verdict == VERDICT_REFUSED)
        return;
    s->spent = run->spent.amounts;
    s->is_cost_known = run->spent.is_cost_known;
    s->keeps_hold = verdict == VERDICT_UNKNOWN && run->spent.is_billed;
    if (verdict != VERDICT_ANSWERED || !run->spent.is_billed)
        return;
    metric_add(METRIC_BILLED_MS, (int64_t)s->spent.paid_ms);
    metric_add(METRIC_COST_MICRO, (int64_t)s->spent.cost_micro);
    if (!s->is_cost_known)
        metric_inc(METRIC_UNPRICED_RUNS);
}

/* The last word on a run: what is recorded of it, for every copy of the gateway. */
void run_settle(run_t *run, verdict_t verdict, bool give_back_rate)
{
    outcome_t *o = run->outcome;
    store_settlement_t s;
    /* what is recorded can be looked up, a refusal included */
    memcpy(o->run_id, run->run_id, sizeof(o->run_id));
    fill_settlement(run, verdict, &s);
    s.give_back_rate = give_back_rate;
    charge(run, verdict, &s);
    run->leaves_receipt = false;
    result_settlement_t kept = {0};
    if (verdict == VERDICT_ANSWERED) {
        result_fill_settlement(o, &s, &kept);
    } else if (verdict == VERDICT_UNKNOWN) {
        s.unknown_code = code_name(o->refusal.code);
        s.tier = tier_name(run->tier);
    } else {
        s.reason = mark_name(o->refusal.mark);
    }
    metric_inc(verdict == VERDICT_ANSWERED  ? METRIC_VERDICT_ANSWERED
               : verdict == VERDICT_REFUSED ? METRIC_VERDICT_REFUSED
                                            : METRIC_VERDICT_UNKNOWN);
    run_move(run, RUN_SETTLING);
    store_lease_drop(&run->lease);
    loop_timer_stop(&run->watchdog);
    run->settle_began_us = clock_mono_us();
    fault_point("run.settle");
    store_settle(run->lane->store, &s, on_settled, run);
    result_settlement_dispose(&kept);
}
