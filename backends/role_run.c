#include "backends/role.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/role_result.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "records/digest.h"

enum { RUN_MAGIC = 0x72756e21 };

#define REFUSAL(name) PLIMSOLL__BACKEND__REFUSAL__REFUSAL_##name

static void run_check(const role_run_t *run)
{
    if (run->magic != RUN_MAGIC)
        mem_fatal("not a run");
}

/* --- answers --- */

static void run_free(role_run_t *run)
{
    if (run->run.response != NULL)
        plimsoll__v1__run_response__free_unpacked(run->run.response, NULL);
    if (run->request != NULL)
        plimsoll__v1__run_request__free_unpacked(run->request, NULL);
    plimsoll__backend__run_start__free_unpacked(run->start, NULL);
    run->magic = 0;
    free(run);
}

static void run_forget(role_run_t *run)
{
    role_t *role = run->role;
    for (role_run_t **at = &role->runs; *at != NULL; at = &(*at)->next) {
        if (*at == run) {
            *at = run->next;
            --role->run_count;
            break;
        }
    }
    run_free(run);
    role_has_ended_one(role);
}

static ipc_result_t send_done(role_run_t *run)
{
    Plimsoll__Backend__RunDone done = PLIMSOLL__BACKEND__RUN_DONE__INIT;
    Plimsoll__Backend__Step steps[STEP_COUNT], *list[STEP_COUNT];
    size_t len = plimsoll__v1__run_response__get_packed_size(run->run.response);
    uint8_t *packed = mem_alloc(len + 1);
    ipc_result_t result;

    done.response.len = plimsoll__v1__run_response__pack(run->run.response, packed);
    done.response.data = packed;
    for (backend_step_t step = STEP_NONE + 1; step < STEP_COUNT; ++step) {
        plimsoll__backend__step__init(&steps[step]);
        steps[step].name = (char *)backend_step_name(step);
        steps[step].us = run->run.step_us[step];
        list[done.n_steps++] = &steps[step];
        done.execute_us += run->run.step_us[step];
    }
    done.execute_us += run->run.step_us[STEP_NONE];
    done.steps = list;
    done.canceled = run->run.is_canceled;
    done.billable_ms = run->run.billable_ms;
    result = ipc_send(run->peer->ipc, ROLE_RUN_DONE, run->call, &done.base);
    free(packed);
    return result;
}

static ipc_result_t send_refused(role_run_t *run)
{
    Plimsoll__Backend__RunRefused refused = PLIMSOLL__BACKEND__RUN_REFUSED__INIT;
    refused.reason = run->run.refusal;
    refused.message = run->run.message;
    refused.detail = run->run.detail;
    refused.retry_after_ms = run->run.retry_after_ms;
    refused.step = (char *)backend_step_name(run->run.ended_in);
    return ipc_send(run->peer->ipc, ROLE_RUN_REFUSED, run->call, &refused.base);
}

static ipc_result_t send_failed(role_run_t *run, const char *code, const char *message, const char *detail)
{
    Plimsoll__Backend__RunFailed failed = PLIMSOLL__BACKEND__RUN_FAILED__INIT;
    failed.code = (char *)code;
    failed.message = (char *)message;
    failed.detail = (char *)detail;
    failed.step = (char *)backend_step_name(run->run.ended_in);
    return ipc_send(run->peer->ipc, ROLE_RUN_FAILED, run->call, &failed.base);
}

static ipc_result_t send_answer(role_run_t *run)
{
    ipc_result_t result;
    switch (run->run.outcome) {
    case RUN_DONE:
        result = send_done(run);
        if (result == IPC_TOO_LARGE)
            result =
                send_failed(run, "internal", "the result is too large to be passed on", "RunDone above IPC_FRAME_MAX");
        return result;
    case RUN_REFUSED:
        return send_refused(run);
    case RUN_FAILED:
        return send_failed(run, run->run.code, run->run.message, run->run.detail);
    case RUN_OPEN:
        break;
    }
    mem_fatal("a run ended without an answer");
}

/* Exactly one answer a RunStart, unless nobody is there to take it. */
static void run_answer(role_run_t *run)
{
    if (run->peer != NULL && send_answer(run) == IPC_FULL) {
        run->peer->is_full = true;
        return;
    }
    run_forget(run);
}

void role_run_answer_waiting(role_peer_t *peer)
{
    peer->is_full = false;
    for (role_run_t *run = peer->role->runs, *next; run != NULL && !peer->is_full; run = next) {
        next = run->next;
        if (run->peer == peer && run->co == NULL)
            run_answer(run);
    }
}

/* --- a run --- */

static void run_log(const role_run_t *run)
{
    static const char *const outcomes[] = {"open", "done", "refused", "failed"};
    const backend_run_t *r = &run->run;
    log_event(r->outcome == RUN_DONE      ? LOG_DEBUG
              : r->outcome == RUN_REFUSED ? LOG_INFO
                                          : LOG_WARN,
              "backend run", log_str("run_id", r->run_id), log_str("outcome", outcomes[r->outcome]),
              log_str("step", backend_step_name(r->ended_in)), log_str("message", r->message),
              log_str("detail", r->detail), log_bool("canceled", r->is_canceled),
              log_uint("us", clock_mono_us() - r->started_us));
}

static void run_main(void *arg)
{
    role_run_t *run = arg;
    run_check(run);
    run->role->ops->run(run->role->wall, &run->run);
}

static void on_run_end(void *arg)
{
    role_run_t *run = arg;
    run_check(run);
    run->co = NULL;
    if (run->run.outcome == RUN_DONE)
        role_result_settle(run->run.response);
    run_log(run);
    run_answer(run);
}

static const backend_kind_t *kind_of(const role_t *role, const Plimsoll__V1__RunRequest *request)
{
    switch (request->payload_case) {
    case PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_JAVASCRIPT:
        return &role->facts.javascript;
    case PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_PROJECT:
        return &role->facts.project;
    case PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_MODULE:
        return &role->facts.module;
    default:
        return NULL;
    }
}

static void set_deadline(backend_run_t *run, uint32_t asked_ms)
{
    uint32_t timeout_ms = asked_ms != 0 ? asked_ms : run->kind->default_timeout_ms;
    if (timeout_ms > run->kind->max_timeout_ms)
        timeout_ms = run->kind->max_timeout_ms;
    run->deadline_us = run->started_us + (uint64_t)timeout_ms * 1000;
}

static bool refuse(role_run_t *run, Plimsoll__Backend__Refusal reason, const char *message, const char *detail)
{
    if (reason == REFUSAL(CAPACITY))
        run->run.retry_after_ms = ROLE_BUSY_RETRY_MS;
    backend_run_refuse(&run->run, reason, message, detail);
    return false;
}

/* The checks that are the same for every wall, in the order of spec section 4.3: the request, the floor, the software
 * rule, the kind, then what depends on the moment. False when it was refused. */
static bool is_acceptable(role_run_t *run)
{
    role_t *role = run->role;
    /* a run may still come while the wall has stopped and the role is about to end: it is refused as draining below */
    const char *problem = role->wall != NULL ? role->ops->check(role->wall) : NULL;
    tier_t floor;

    run->request = plimsoll__v1__run_request__unpack(NULL, run->start->request.len, run->start->request.data);
    if (run->request == NULL)
        return refuse(run, REFUSAL(REQUEST), "the request cannot be read", NULL);
    run->run.request = run->request;
    /* The packed form has served. A run may be held for minutes, and need not be held twice. */
    free(run->start->request.data);
    run->start->request = (ProtobufCBinaryData){0};
    if (!tier_parse_floor(run->start->minimum_isolation, &floor))
        return refuse(run, REFUSAL(REQUEST), "the isolation floor is not one", NULL);
    run->run.kind = kind_of(role, run->request);
    if (run->run.kind == NULL)
        return refuse(run, REFUSAL(REQUEST), "the request carries nothing to run", NULL);
    run->run.tier = role_tier(role);
    if (!tier_meets(run->run.tier, floor))
        return refuse(run, REFUSAL(ISOLATION), "the backend's isolation is below the request's floor", NULL);
    if (problem != NULL)
        return refuse(run, REFUSAL(UNSUPPORTED), "the backend is not configured to run anything", problem);
    if (!run->run.kind->supported)
        return refuse(run, REFUSAL(UNSUPPORTED), "the backend does not run this kind", NULL);
    if (!software_rule_allows(run->request->software_rule, run->run.kind->software_identity))
        return refuse(run, REFUSAL(ENVIRONMENT), "the backend's software does not satisfy the request's rule", NULL);
    if (role->state == PLIMSOLL__BACKEND__STATE__STATE_DRAINING)
        return refuse(run, REFUSAL(CAPACITY), "the backend is going out of service", NULL);
    if (role->state != PLIMSOLL__BACKEND__STATE__STATE_READY)
        return refuse(run, REFUSAL(CAPACITY), "the backend is not ready", role->failure);
    if (role->run_count > role->host.capacity) /* this one is counted */
        return refuse(run, REFUSAL(CAPACITY), "the backend runs as much as it may", NULL);
    set_deadline(&run->run, run->start->timeout_ms);
    return true;
}

static role_run_t *run_find(const role_peer_t *peer, uint64_t call)
{
    for (role_run_t *run = peer->role->runs; run != NULL; run = run->next) {
        if (run->peer == peer && run->call == call)
            return run;
    }
    return NULL;
}

void role_run_start(role_peer_t *peer, uint64_t call, Plimsoll__Backend__RunStart *start)
{
    role_t *role = peer->role;
    role_run_t *run = mem_alloc(sizeof(*run));
    run->magic = RUN_MAGIC;
    run->role = role;
    run->peer = peer;
    run->call = call;
    run->start = start;
    run->run.run_id = start->run_id;
    run->run.caller = start->caller;
    run->run.price_micro_hour = start->price_micro_hour;
    run->run.started_us = run->run._step_us = clock_mono_us();
    if (run_find(peer, call) != NULL) {
        /* Two runs under one number could not be told apart: the first keeps it, the second is left unanswered on
         * purpose. */
        log_event(LOG_ERROR, "run number in use", log_str("run_id", start->run_id));
        run_free(run);
        return;
    }
    run->next = role->runs;
    role->runs = run;
    ++role->run_count;
    if (is_acceptable(run)) {
        run->co = co_start(role->loop, run_main, run, on_run_end);
    } else {
        run_log(run);
        run_answer(run);
    }
}

void role_run_cancel(role_peer_t *peer, uint64_t call)
{
    role_run_t *run = run_find(peer, call);
    if (run != NULL && run->co != NULL)
        co_cancel(run->co);
}

void role_run_orphan(role_peer_t *peer)
{
    for (role_run_t *run = peer->role->runs, *next; run != NULL; run = next) {
        next = run->next;
        if (run->peer != peer)
            continue;
        run->peer = NULL;
        if (run->co != NULL)
            co_cancel(run->co);
        else
            run_forget(run); /* its answer waited for the peer's queue */
    }
}

void role_cancel_all(role_t *role)
{
    for (role_run_t *run = role->runs; run != NULL; run = run->next) {
        if (run->co != NULL)
            co_cancel(run->co);
    }
}
