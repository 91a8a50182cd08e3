#include "gateway/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "config/options.h"
#include "core/clock.h"
#include "core/fault.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/random.h"
#include "gateway/answer.h"
#include "gateway/audit.h"
#include "gateway/connect.h"
#include "gateway/link.h"
#include "gateway/metrics.h"
#include "gateway/result.h"
#include "gateway/validate.h"

enum {
    RUN_MAGIC = 0x72756e21,
    BACKEND_RETRY_MS = 1000, /* when a backend without room does not say when to come again */
    WATCHDOG_MARGIN_MS =
        2000, /* a backend ends a run itself within 400 ms of its deadline; past this it is not going to */
};

static void finish(run_t *run);
static void dispatch_next(run_t *run);
static void settle(run_t *run, verdict_t verdict, bool give_back_rate);
static void look_at_claim(run_t *run);

static void run_check(const run_t *run)
{
    if (run == NULL || run->magic != RUN_MAGIC)
        mem_fatal("not a run");
}

static void run_move(run_t *run, run_state_t to)
{
    static const unsigned allowed[] = {
        [RUN_CLAIMING] =
            1u << RUN_FOLLOWING | 1u << RUN_JOINED | 1u << RUN_DISPATCHED | 1u << RUN_SETTLING | 1u << RUN_OVER,
        [RUN_FOLLOWING] = 1u << RUN_OVER,
        [RUN_JOINED] = 1u << RUN_OVER,
        [RUN_DISPATCHED] = 1u << RUN_DISPATCHED | 1u << RUN_SETTLING,
        [RUN_SETTLING] = 1u << RUN_OVER,
        [RUN_OVER] = 0,
    };
    if ((allowed[run->state] & 1u << to) == 0)
        mem_fatal("a run made an illegal move");
    run->state = to;
}

static const char *caller_id(const run_t *run)
{
    return run->gate->intake.caller_id;
}

static const char *request_id(const run_t *run)
{
    return run->keyed ? run->gate->intake.request_id : NULL;
}

/* The raw body has served; its pages go back to the kernel while the run is held. Their bytes still count in libh2o's
 * buffer, which is only ever skipped over from here on. */
static void let_go_of_body(const char *body, size_t len)
{
    enum { WORTH_IT = 32 * 1024 };
    if (len < WORTH_IT)
        return;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)body + page - 1) & ~(page - 1), to = ((uintptr_t)body + len) & ~(page - 1);
    if (to > from)
        madvise((void *)from, to - from, MADV_DONTNEED);
}

/* --- the end of every path: an outcome, for this request and all that follow it --- */

static void remember_refusal(run_t *run, const refusal_t *refusal)
{
    run->outcome = outcome_create();
    run->outcome->refusal = *refusal;
}

static void refuse(run_t *run, const refusal_t *refusal)
{
    remember_refusal(run, refusal);
    finish(run);
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
                  run->lane->front->rate_per_min != 0 ? 60 * a->rate_limit / run->lane->front->rate_per_min : 60);
    answer_header(run->req, "RateLimit", "\"runs\";r=%u;t=%u", a->rate_remaining, (a->rate_reset_ms + 999) / 1000);
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
    answer_send(run->req, 200, connect_media_type(run->gate->intake.codec), &body);
}

static void give_place_back(run_t *run)
{
    if (!run->has_place)
        return;
    run->has_place = false;
    front_place_give(run->lane->front);
}

static void finish(run_t *run)
{
    lane_t *lane = run->lane;
    run_move(run, RUN_OVER);
    loop_timer_stop(&run->deadline);
    loop_timer_stop(&run->watchdog);
    give_place_back(run);
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
    finish(run);
}

/* The last word on a run: what is recorded of it, for every copy of the gateway. */
static void settle(run_t *run, verdict_t verdict, bool give_back_rate)
{
    const outcome_t *o = run->outcome;
    store_settlement_t s = {
        .caller = caller_id(run),
        .request_id = request_id(run),
        .run_id = run->run_id,
        .verdict = verdict,
        .give_back_rate = give_back_rate,
        .backend = o->backend,
        .kind = run->kind,
        .request_sha256 = run->request_sha256,
        .started_unix_ms = run->gate->intake.began_unix_ms,
        .canceled = run->stop == STOP_CAUSE_HANG_UP || run->stop == STOP_CAUSE_DEADLINE,
        .trace_id = run->trace_id,
    };
    s.ended_unix_ms = s.started_unix_ms + (int64_t)((clock_mono_us() - run->gate->intake.began_us) / 1000);
    result_settlement_t kept = {0};
    if (verdict == VERDICT_ANSWERED)
        result_fill_settlement(o, &s, &kept);
    else if (verdict == VERDICT_UNKNOWN)
        s.unknown_code = code_name(o->refusal.code);
    else
        s.reason = mark_name(o->refusal.mark);
    metric_inc(verdict == VERDICT_ANSWERED  ? METRIC_VERDICT_ANSWERED
               : verdict == VERDICT_REFUSED ? METRIC_VERDICT_REFUSED
                                            : METRIC_VERDICT_UNKNOWN);
    run_move(run, RUN_SETTLING);
    loop_timer_stop(&run->watchdog);
    run->settle_began_us = clock_mono_us();
    fault_point("run.settle");
    store_settle(run->lane->store, &s, on_settled, run);
    result_settlement_dispose(&kept);
}

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
    remember_refusal(run, &failure);
    memcpy(run->outcome->run_id, run->run_id, sizeof(run->run_id));
    snprintf(run->outcome->backend, sizeof(run->outcome->backend), "%s", run->lane->front->backend_names[run->at]);
    audit_failure(run, failure.message, detail);
    settle(run, VERDICT_UNKNOWN, false);
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
    settle(run, VERDICT_ANSWERED, false);
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
        dispatch_next(run);
        return;
    }
    remember_refusal(run, &run->refusal);
    settle(run, VERDICT_REFUSED, true);
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
    remember_refusal(run, &run->refusal);
    settle(run, VERDICT_REFUSED, true);
}

static bool hand_to(run_t *run, size_t i, uint32_t timeout_ms)
{
    size_t len = plimsoll__v1__run_request__get_packed_size(run->request);
    uint8_t *packed = mem_alloc(len);
    Plimsoll__Backend__RunStart start = PLIMSOLL__BACKEND__RUN_START__INIT;
    plimsoll__v1__run_request__pack(run->request, packed);
    start.run_id = run->run_id;
    start.caller = (char *)caller_id(run);
    start.minimum_isolation = (char *)(run->terms.floor == TIER_UNKNOWN ? "" : tier_name(run->terms.floor));
    start.timeout_ms = timeout_ms;
    start.request = (ProtobufCBinaryData){len, packed};
    fault_point("run.dispatch");
    run->dispatched_us = clock_mono_us();
    run->call = link_run(run->lane->links[i], &start, on_backend_end, run);
    free(packed);
    return run->call != 0;
}

static void dispatch_next(run_t *run)
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
        if (!hand_to(run, run->at, run->placement.timeout_ms[k])) {
            note_passed_over(run, run->lane->front->backend_names[run->at], MARK_CAPACITY);
            continue;
        }
        run_move(run, RUN_DISPATCHED);
        metric_inc(METRIC_RUNS);
        metric_inc(METRIC_INFLIGHT);
        if (run->next == run->placement.count) {
            /* nobody else will be asked: the backend holds the request now, this process need not */
            plimsoll__v1__run_request__free_unpacked(run->request, NULL);
            run->request = NULL;
        }
        loop_timer_start(run->lane->loop, &run->watchdog, run->placement.timeout_ms[k] + WATCHDOG_MARGIN_MS);
        return;
    }
    nothing_left(run);
}

/* --- stopping early --- */

static void on_watchdog(loop_timer_t *timer)
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

static void leave_joined(run_t *run)
{
    if (run->next_joined != NULL)
        run->next_joined->prev_joined = run->prev_joined;
    if (run->prev_joined != NULL)
        run->prev_joined->next_joined = run->next_joined;
    else
        run->lane->joined = run->next_joined;
}

/* The caller went away, or its own deadline passed. */
static void stop_run(run_t *run, stop_cause_t cause)
{
    refusal_t refusal;
    if (run->stop != STOP_CAUSE_NONE)
        return;
    run->stop = cause;
    code_t code = cause == STOP_CAUSE_DEADLINE ? CODE_DEADLINE_EXCEEDED : CODE_CANCELED;
    metric_inc(cause == STOP_CAUSE_DEADLINE ? METRIC_CANCELED_DEADLINE : METRIC_CANCELED);
    switch (run->state) {
    case RUN_FOLLOWING:
        if (!flights_leave(run->lane->front->flights, &run->member))
            return; /* its outcome is on the way */
        failure_set(&refusal, code, "the wait for the run with this request ID ended; it may have run");
        refuse(run, &refusal);
        break;
    case RUN_JOINED:
        if (run->claim_us != 0)
            return; /* a look is on its way and must find the run; on_looked comes back here */
        leave_joined(run);
        failure_set(&refusal, code, "the wait for the run with this request ID ended; it may have run");
        refuse(run, &refusal);
        break;
    case RUN_DISPATCHED:
        if (run->flight != NULL && flights_has_followers(run->lane->front->flights, run->flight)) {
            /* others wait for this very run: it goes on for them */
            run->stop = STOP_CAUSE_NONE;
            return;
        }
        link_cancel(run->lane->links[run->at], run->call);
        loop_timer_start(run->lane->loop, &run->watchdog, CANCEL_GRACE_MS);
        break;
    default:
        break; /* claiming: seen when the claim is there; settling: about to be answered */
    }
}

static void on_hang_up(gate_t *gate, void *data)
{
    (void)gate;
    run_t *run = data;
    run_check(run);
    stop_run(run, STOP_CAUSE_HANG_UP);
}

static void on_deadline(loop_timer_t *timer)
{
    run_t *run = timer->data;
    run_check(run);
    stop_run(run, STOP_CAUSE_DEADLINE);
}

/* --- claim and admission --- */

static void take_stored(run_t *run, const store_admitted_t *a)
{
    outcome_t *o = run->outcome = outcome_create();
    o->answered = true;
    o->stored = true;
    o->response = mem_alloc(a->answer_len);
    memcpy(o->response, a->answer, a->answer_len);
    o->response_len = a->answer_len;
    memcpy(o->run_id, a->run_id, sizeof(o->run_id));
    snprintf(o->backend, sizeof(o->backend), "%s", a->backend);
    run->replayed = true;
    metric_inc(METRIC_REPLAYED);
    finish(run);
}

static void refuse_for_quota(run_t *run, const store_admitted_t *a)
{
    refusal_t r;
    front_t *front = run->lane->front;
    if (a->outcome == ADMIT_NO_PLACE) {
        metric_inc(METRIC_SHED_AT_CAPACITY);
        refusal_set(&r, CODE_RESOURCE_EXHAUSTED, MARK_CAPACITY,
                    "the gateway runs as much at once as SANDBOX_MAX_CONCURRENT allows (%u)", front->max_concurrent);
        r.quota = "concurrency";
        r.quota_limit = front->max_concurrent;
        r.retry_after_ms = 1000;
    } else if (a->outcome == ADMIT_NO_SLOT) {
        metric_inc(METRIC_SHED_PER_KEY);
        refusal_set(&r, CODE_RESOURCE_EXHAUSTED, MARK_CAPACITY, "this caller runs as much at once as it may (%u)",
                    front->per_caller);
        r.quota = "slots";
        r.quota_limit = front->per_caller;
        r.retry_after_ms = a->retry_after_ms != 0 ? a->retry_after_ms : 1000;
    } else {
        metric_inc(METRIC_SHED_RATE);
        refusal_set(&r, CODE_RESOURCE_EXHAUSTED, MARK_CAPACITY, "this caller's rate of %u runs a minute is spent",
                    front->rate_per_min);
        r.quota = "runs";
        r.quota_limit = a->rate_limit;
        r.quota_window_s = 60 * a->rate_limit / front->rate_per_min;
        r.retry_after_ms = a->retry_after_ms != 0 ? a->retry_after_ms : 1;
    }
    refuse(run, &r);
}

static void refuse_for_store(run_t *run)
{
    refusal_t r;
    metric_inc(METRIC_SHED_STORE);
    refusal_set(&r, CODE_UNAVAILABLE, MARK_CAPACITY,
                "the record store does not answer, and without it nothing runs; try again in a moment");
    r.retry_after_ms = 1000;
    refuse(run, &r);
}

/* What an ID that is taken already means, at admission and for a joined run that looks. true: the run is over. */
static bool heed_claim(run_t *run, const store_admitted_t *a)
{
    refusal_t r;
    switch (a->outcome) {
    case ADMIT_ANSWERED:
        take_stored(run, a);
        return true;
    case ADMIT_ANSWER_GONE:
        failure_set(&r, CODE_ALREADY_EXISTS,
                    "this request ID has run as %s and its answer was too large to be kept; its record still stands",
                    a->run_id);
        break;
    case ADMIT_OUTCOME_UNKNOWN: {
        code_t code = code_parse(a->unknown_code);
        failure_set(&r, code != CODE_COUNT ? code : CODE_UNAVAILABLE,
                    "an earlier request with this ID was dispatched and its outcome is unknown; it may have run");
        break;
    }
    case ADMIT_CONFLICT:
        metric_inc(METRIC_CONFLICTS);
        refusal_set(&r, CODE_INVALID_ARGUMENT, MARK_REQUEST,
                    "Plimsoll-Request-Id was used before with another request; a new request needs a new ID");
        break;
    default:
        return false;
    }
    remember_refusal(run, &r);
    if (a->outcome != ADMIT_CONFLICT)
        memcpy(run->outcome->run_id, a->run_id, sizeof(run->outcome->run_id));
    finish(run);
    return true;
}

static void on_looked(void *data, const store_admitted_t *a)
{
    run_t *run = data;
    run_check(run);
    run->claim_us = 0;
    if (run->stop != STOP_CAUSE_NONE) {
        stop_cause_t cause = run->stop;
        run->stop = STOP_CAUSE_NONE;
        stop_run(run, cause);
        return;
    }
    if (a->outcome == ADMIT_OK) {
        /* the run it waited for was refused without running, and the ID is free again: so is this request */
        refusal_t r;
        leave_joined(run);
        refusal_set(&r, CODE_RESOURCE_EXHAUSTED, MARK_CAPACITY,
                    "the run with this request ID was refused and nothing ran; send it again");
        r.retry_after_ms = 1000;
        refuse(run, &r);
        return;
    }
    if (a->outcome == ADMIT_ANSWERED || a->outcome == ADMIT_ANSWER_GONE || a->outcome == ADMIT_OUTCOME_UNKNOWN ||
        a->outcome == ADMIT_CONFLICT) {
        leave_joined(run);
        heed_claim(run, a);
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
    store_claim_look(run->lane->store, caller_id(run), request_id(run), run->request_sha256, on_looked, run);
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
    give_place_back(run);
    run->replayed = true;
    run->claim_us = 0;
    run->prev_joined = NULL;
    if ((run->next_joined = run->lane->joined) != NULL)
        run->next_joined->prev_joined = run;
    run->lane->joined = run;
    loop_timer_init(&run->watchdog, on_look_time, run);
    loop_timer_start(run->lane->loop, &run->watchdog, JOIN_LOOK_MS);
    if (run->stop != STOP_CAUSE_NONE) {
        stop_cause_t cause = run->stop;
        run->stop = STOP_CAUSE_NONE;
        stop_run(run, cause);
    }
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
        if (run->flight != NULL && flights_has_followers(run->lane->front->flights, run->flight))
            run->stop = STOP_CAUSE_NONE; /* others wait for this very run */
        if (run->stop != STOP_CAUSE_NONE) {
            /* the caller gave up while the claim was made: nothing ran, and the ID is given back */
            refusal_set(&run->refusal, run->stop == STOP_CAUSE_DEADLINE ? CODE_DEADLINE_EXCEEDED : CODE_CANCELED,
                        MARK_CAPACITY, "the caller gave up before the run was dispatched; nothing ran");
            remember_refusal(run, &run->refusal);
            settle(run, VERDICT_REFUSED, true);
        } else {
            dispatch_next(run);
        }
        break;
    case ADMIT_JOIN:
        join(run);
        break;
    case ADMIT_NO_PLACE:
    case ADMIT_NO_SLOT:
    case ADMIT_NO_RATE:
        if (run->only_claims)
            refuse(run, &run->refusal);
        else
            refuse_for_quota(run, a);
        break;
    default:
        refuse_for_store(run);
        break;
    }
}

static void claim(run_t *run)
{
    front_t *front = run->lane->front;
    uint32_t longest = 0;
    for (size_t i = 0; i < run->placement.count; i++)
        if (run->placement.timeout_ms[i] > longest)
            longest = run->placement.timeout_ms[i];
    run->has_place = !run->only_claims && front_place_take(front);
    store_admission_t admission = {
        .caller = caller_id(run),
        .request_id = request_id(run),
        .request_sha256 = run->request_sha256,
        .run_id = run->run_id,
        .lease_ms = longest + STORE_LEASE_MARGIN_MS,
        .has_place = run->has_place,
        .rate_per_min = front->rate_per_min,
        .burst = front->rate_burst,
        .slots = front->per_caller,
    };
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
    finish(run);
}

static void enter_flight(run_t *run)
{
    char key[STORE_CLAIM_KEY_MAX];
    refusal_t r;
    if (!run->keyed) {
        claim(run);
        return;
    }
    store_claim_key(caller_id(run), request_id(run), key);
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
                    "Plimsoll-Request-Id is in use by another request; a new request needs a new ID");
        refuse(run, &r);
        break;
    }
}

/* --- start --- */

static const char *grant_profile_of(const Plimsoll__V1__RunRequest *request)
{
    if (request->payload_case == PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_JAVASCRIPT)
        return request->javascript->grant_profile;
    if (request->payload_case == PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_PROJECT)
        return request->project->grant_profile;
    return "";
}

/* Everything that can be refused without asking anybody (spec 4.3 steps 1 to 9). */
static bool judge_request(run_t *run, refusal_t *refusal)
{
    const char *pinned = run->gate->intake.route.pinned ? run->gate->intake.route.backend : NULL;
    if (!validate_run(run->request, &run->terms, refusal))
        return false;
    if (run->lane->front->require_request_id && !run->keyed) {
        refusal_set(refusal, CODE_INVALID_ARGUMENT, MARK_REQUEST,
                    "Plimsoll-Request-Id is required here: exactly one, 32 lowercase hex digits");
        return false;
    }
    if (grant_profile_of(run->request)[0] != '\0') {
        /* unknown, not listed and no grants at all are one text: a caller cannot probe for profiles */
        refusal_set(refusal, CODE_PERMISSION_DENIED, MARK_PERMISSION, "grant_profile is not available to this caller");
        return false;
    }
    if (!placement_choose(run->lane, run->request, &run->terms, pinned, &run->placement, refusal))
        return false;
    if (atomic_load_explicit(&run->lane->front->draining, memory_order_relaxed)) {
        metric_inc(METRIC_SHED_DRAINING);
        refusal_set(refusal, CODE_UNAVAILABLE, MARK_CAPACITY,
                    "this copy of the gateway is shutting down; send it again");
        run->placement.passes = true;
        refusal->retry_after_ms = 1000;
        return false;
    }
    return true;
}

static void keep_facts(run_t *run)
{
    const Plimsoll__V1__RunRequest *request = run->request;
    run->kind = placement_kind_name(request);
    run->protocol = request->protocol;
    run->asked_timeout_ms = request->timeout_ms;
    snprintf(run->trace_id, sizeof(run->trace_id), "%s", run->terms.trace_id);
    run->terms.trace_id = run->trace_id;
    software_rule_id(request->software_rule, run->rule_id);
    if (request->payload_case == PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_JAVASCRIPT)
        run->code_bytes = (uint32_t)strlen(request->javascript->code);
    digest_request(request, run->request_sha256);
    random_hex(run->run_id, 16);
    if (request->software_rule != NULL) {
        size_t len = plimsoll__v1__software_rule__get_packed_size(request->software_rule);
        uint8_t *packed = mem_alloc(len);
        plimsoll__v1__software_rule__pack(request->software_rule, packed);
        run->rule = plimsoll__v1__software_rule__unpack(NULL, len, packed);
        free(packed);
    }
}

void run_start(h2o_req_t *req, gate_t *gate, const char *body, size_t len)
{
    lane_t *lane = gate->lane;
    refusal_t refusal;
    ProtobufCMessage *request =
        connect_decode(lane, &gate->intake, &plimsoll__v1__run_request__descriptor, body, len, &refusal);
    intake_release_slot(lane, &gate->intake);
    if (request == NULL) {
        answer_refusal(req, &refusal);
        return;
    }
    let_go_of_body(body, len);
    run_t *run = mem_alloc(sizeof(*run));
    run->magic = RUN_MAGIC;
    run->lane = lane;
    run->gate = gate;
    run->req = req;
    run->request = (Plimsoll__V1__RunRequest *)request;
    run->keyed = gate->intake.has_request_id;
    lane->runs++;
    loop_timer_init(&run->deadline, on_deadline, run);
    loop_timer_init(&run->watchdog, on_watchdog, run);
    if (!judge_request(run, &refusal)) {
        if (!run->keyed || !run->placement.passes) {
            refuse(run, &refusal);
            return;
        }
        /* The same request may have been taken before the backend was lost or the drain began. What its ID came to is
         * told first: a mark that nothing ran would be believed of the ID as a whole. */
        run->refusal = refusal;
        run->only_claims = true;
    }
    keep_facts(run);
    if (gate->intake.timeout_ms != 0)
        loop_timer_start(lane->loop, &run->deadline, gate->intake.timeout_ms);
    gate_watch(gate, on_hang_up, run);
    enter_flight(run);
}

void run_on_settled(lane_t *lane, const char *claim_key)
{
    char key[STORE_CLAIM_KEY_MAX];
    for (run_t *run = lane->joined, *next; run != NULL; run = next) {
        next = run->next_joined;
        store_claim_key(caller_id(run), request_id(run), key);
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
