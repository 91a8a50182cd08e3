#include "gateway/run_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/mem.h"
#include "core/random.h"
#include "gateway/answer.h"
#include "gateway/connect.h"
#include "gateway/link.h"
#include "gateway/metrics.h"
#include "gateway/validate.h"

enum {
    RUN_MAGIC = 0x72756e21,
    FOLLOWERS_LOOK_MS = 250, /* a run whose own caller left is stopped this soon after the last one who waited for it */
};

void run_check(const run_t *run)
{
    if (run == NULL || run->magic != RUN_MAGIC)
        mem_fatal("not a run");
}

void run_move(run_t *run, run_state_t to)
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

const char *run_caller_id(const run_t *run)
{
    return run->gate->intake.caller_id;
}

const char *run_claim_id(const run_t *run)
{
    return run->gate->intake.claim_id[0] != '\0' ? run->gate->intake.claim_id : NULL;
}

const char *run_key_name(const run_t *run)
{
    return run->gate->intake.key.len != 0 ? "Idempotency-Key" : "Plimsoll-Request-Id";
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

/* --- stopping early --- */

static bool has_followers(const run_t *run)
{
    return run->flight != NULL && flights_has_followers(run->lane->front->flights, run->flight);
}

/* A run with an Idempotency-Key is one its caller may come back for, with the same request or by the key: a connection
 * that breaks must cost nothing, so the run goes on to its own end. */
static bool goes_on(const run_t *run, stop_cause_t cause)
{
    return has_followers(run) || (cause == STOP_CAUSE_HANG_UP && run->gate->intake.key.len != 0);
}

/* Each caller that gives up is counted once, also when its run goes on for others. */
static void count_caller(const run_t *run, stop_cause_t cause)
{
    if (run->outlived == STOP_CAUSE_NONE)
        metric_inc(cause == STOP_CAUSE_DEADLINE ? METRIC_CANCELED_DEADLINE : METRIC_CANCELED);
}

void run_outlive(run_t *run, stop_cause_t cause)
{
    run->outlived = cause;
    /* its own deadline has no meaning any more; the timer looks for followers instead */
    loop_timer_start(run->lane->loop, &run->deadline, FOLLOWERS_LOOK_MS);
}

/* The caller went away, or its own deadline passed. */
void run_stop(run_t *run, stop_cause_t cause)
{
    refusal_t refusal;
    if (run->stop != STOP_CAUSE_NONE || run->state == RUN_SETTLING)
        return; /* stopped already, or at its end by itself */
    count_caller(run, cause);
    if (run->state == RUN_DISPATCHED && goes_on(run, cause)) {
        run_outlive(run, cause);
        return;
    }
    run->stop = cause;
    code_t code = cause == STOP_CAUSE_DEADLINE ? CODE_DEADLINE_EXCEEDED : CODE_CANCELED;
    switch (run->state) {
    case RUN_FOLLOWING:
        if (!flights_leave(run->lane->front->flights, &run->member))
            return; /* its outcome is on the way */
        failure_set(&refusal, code, "the wait for the run with this %s ended; it may have run", run_key_name(run));
        run_refuse(run, &refusal);
        break;
    case RUN_JOINED:
        if (run->claim_us != 0)
            return; /* a look is on its way and must find the run; on_looked comes back here */
        if (run->flight != NULL && flights_has_followers(run->lane->front->flights, run->flight)) {
            run->stop = STOP_CAUSE_NONE; /* others wait behind it, until the last of them leaves */
            run_outlive(run, cause);
            return;
        }
        run_leave_joined(run);
        failure_set(&refusal, code, "the wait for the run with this %s ended; it may have run", run_key_name(run));
        run_refuse(run, &refusal);
        break;
    case RUN_DISPATCHED:
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
    run_stop(run, STOP_CAUSE_HANG_UP);
}

static void on_deadline(loop_timer_t *timer)
{
    run_t *run = timer->data;
    run_check(run);
    run_stop(run, run->outlived != STOP_CAUSE_NONE ? run->outlived : STOP_CAUSE_DEADLINE);
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
    else if (request->payload_case == PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_PROJECT) {
        run->files = (uint32_t)request->project->n_files;
        run->steps = (uint32_t)request->project->n_steps;
        for (size_t i = 0; i < request->project->n_files; i++)
            run->total_bytes += (uint32_t)request->project->files[i]->content.len; /* within FILES_BYTES_MAX */
    }
    digest_request(request, run->request_sha256);
    random_hex(run->run_id, 16);
    if (request->software_rule != NULL) {
        size_t len = plimsoll__v1__software_rule__get_packed_size(request->software_rule);
        uint8_t *packed = mem_alloc(len);
        plimsoll__v1__software_rule__pack(request->software_rule, packed);
        run->rule = plimsoll__v1__software_rule__unpack(NULL, len, packed);
        free(packed);
    }
    run->leaves_receipt = true;
}

/* Everything that can be refused without asking anybody (spec 4.3 steps 1 to 9). */
static bool judge_request(run_t *run, refusal_t *refusal)
{
    const char *pinned = run->gate->intake.route.pinned ? run->gate->intake.route.backend : NULL;
    if (!validate_run(run->request, &run->terms, refusal))
        return false;
    if (run->lane->front->require_request_id && run_claim_id(run) == NULL) {
        refusal_set(
            refusal, CODE_INVALID_ARGUMENT, MARK_REQUEST,
            "Plimsoll-Request-Id is required here: exactly one, 32 lowercase hex digits; or an Idempotency-Key");
        return false;
    }
    keep_facts(run);
    if (grant_profile_of(run->request)[0] != '\0') {
        /* unknown, not listed and no grants at all are one text: a caller cannot probe for profiles */
        refusal_set(refusal, CODE_PERMISSION_DENIED, MARK_PERMISSION, "grant_profile is not available to this caller");
        return false;
    }
    if (!placement_choose(run->lane, run->request, &run->terms, pinned, &run->placement, refusal))
        return false;
    if (run->gate->intake.is_late) {
        refusal_set(
            refusal, CODE_DEADLINE_EXCEEDED, MARK_CAPACITY,
            "Connect-Timeout-Ms is 0: the caller's deadline had passed before the run was dispatched; nothing ran");
        run->placement.passes = true;
        return false;
    }
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
    lane->runs++;
    loop_timer_init(&run->deadline, on_deadline, run);
    loop_timer_init(&run->watchdog, run_on_watchdog, run);
    if (!judge_request(run, &refusal)) {
        if (run_claim_id(run) == NULL || !run->placement.passes) {
            run_refuse(run, &refusal);
            return;
        }
        /* The same request may have been taken before the backend was lost or the drain began. What its ID came to is
         * told first: a mark that nothing ran would be believed of the ID as a whole. */
        run->refusal = refusal;
        run->only_claims = true;
    }
    if (gate->intake.timeout_ms != 0)
        loop_timer_start(lane->loop, &run->deadline, gate->intake.timeout_ms);
    gate_watch(gate, on_hang_up, run);
    run_enter_flight(run);
}
