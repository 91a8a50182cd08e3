/*
 * The way of one run through a wall on somebody else's machines. Two lines decide what is said of its end: before the
 * create went out nothing can have run, and after a step may have begun nothing is a refusal any more. In between the
 * sandbox is there and nothing of the caller's was started: the run is refused, and the sandbox goes.
 */
#include <stdio.h>
#include <string.h>

#include "backends/cloud/cloud_internal.h"
#include "backends/guest/result.h"
#include "backends/meters.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"

#define REFUSAL(name) PLIMSOLL__BACKEND__REFUSAL__REFUSAL_##name

/* --- refusals: nothing ran --- */

static void refuse_capacity(backend_run_t *run, uint32_t retry_after_ms, const char *message, const char *detail)
{
    run->retry_after_ms = retry_after_ms > 0 ? retry_after_ms : CLOUD_RETRY_MS;
    backend_run_refuse(run, REFUSAL(CAPACITY), message, detail);
}

/* The operator's to mend, so said loudly; callers learn no more than that it did not work. */
static void alarm_operator(const cloud_t *cloud, const backend_run_t *run, const cloud_trouble_t *trouble)
{
    log_event(LOG_ERROR, "provider denied", log_str("backend", cloud->settings.ops->name),
              log_str("run_id", run->run_id), log_int("status", trouble->status), log_str("message", trouble->message),
              log_str("detail", trouble->detail));
}

static bool is_denied(const cloud_trouble_t *trouble)
{
    return trouble->fault == CLOUD_DENIED || trouble->fault == CLOUD_MISSING;
}

static void refuse_for(cloud_t *cloud, backend_run_t *run, const cloud_trouble_t *trouble)
{
    if (is_denied(trouble))
        alarm_operator(cloud, run, trouble);
    if (trouble->fault == CLOUD_DIFFERS)
        backend_run_refuse(run, REFUSAL(ISOLATION), trouble->message, trouble->detail);
    else if (trouble->fault == CLOUD_CANCELED)
        refuse_capacity(run, 0, "the run was stopped before it began", trouble->detail);
    else
        refuse_capacity(run, trouble->retry_after_ms, trouble->message, trouble->detail);
}

/* --- what is asked for --- */

static const char *grant_of(const backend_run_t *run)
{
    switch (run->request->payload_case) {
    case PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_JAVASCRIPT:
        return run->request->javascript->grant_profile;
    case PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_PROJECT:
        return run->request->project->grant_profile;
    default:
        return "";
    }
}

/* A project whose files cannot all exist: known without a sandbox, and nobody else's fault. */
static void answer_setup_failed(cloud_t *cloud, backend_run_t *run, const char *why)
{
    guest_result_t result = {.outcome = GUEST_SETUP_FAILED};
    result_view_t view = {.end = RESULT_WHOLE};
    snprintf(result.detail, sizeof(result.detail), "%s", why);
    backend_run_done(run, cloud->settings.ops->name, result_project(run->request->project, &result, &view), false);
}

/* False when the run was answered. */
static bool plan_run(cloud_t *cloud, backend_run_t *run, cloud_plan_t *plan)
{
    char why[CLOUD_PATH_MAX + 128];
    switch (cloud_plan_make(plan, &cloud->settings.ops->layout, run->request, why)) {
    case CLOUD_PLAN_MADE:
        return true;
    case CLOUD_PLAN_REQUEST:
        backend_run_refuse(run, REFUSAL(REQUEST), why, NULL);
        break;
    case CLOUD_PLAN_UNSUPPORTED:
        backend_run_refuse(run, REFUSAL(UNSUPPORTED), why, NULL);
        break;
    case CLOUD_PLAN_SETUP:
        answer_setup_failed(cloud, run, why);
        break;
    }
    return false;
}

/* --- create and stage --- */

static void fail_unknown(backend_run_t *run, const cloud_trouble_t *trouble)
{
    backend_run_fail(run, trouble->fault == CLOUD_CANCELED ? "canceled" : "unavailable", trouble->message,
                     trouble->detail);
}

/* Nothing of the caller's had a part in it: so it is of the wall. What goes wrong later may be of the run. */
static void refuse_made(cloud_t *cloud, backend_run_t *run, const cloud_trouble_t *trouble)
{
    if (trouble->fault == CLOUD_DENIED || trouble->fault == CLOUD_DIFFERS)
        cloud_suspect(cloud, trouble->message);
    refuse_for(cloud, run, trouble);
}

/* False when the run was answered. */
static bool create(cloud_t *cloud, cloud_box_t *box)
{
    cloud_trouble_t trouble;
    cloud_made_t made = cloud_box_create(box, &trouble);
    if (made == BOX_MADE && trouble.fault == CLOUD_FINE)
        return true;
    if (made == BOX_MAYBE) {
        fail_unknown(box->run, &trouble);
    } else {
        if (trouble.fault == CLOUD_MISSING)
            cloud_suspect(cloud, trouble.message);
        refuse_made(cloud, box->run, &trouble);
    }
    return false;
}

/* What the read-back said. False when the run was answered. */
static bool take_check(cloud_t *cloud, const cloud_box_t *box, bool holds, const cloud_trouble_t *trouble)
{
    if (holds) {
        cloud->seen_us = clock_mono_us();
        return true;
    }
    meter_inc(METER_READY_CHANGED);
    refuse_made(cloud, box->run, trouble);
    return false;
}

static bool hand_over(cloud_t *cloud, cloud_box_t *box, const cloud_plan_t *plan, cloud_trouble_t *trouble)
{
    const cloud_ops_t *ops = cloud->settings.ops;
    box->deadline_us = clock_mono_us() + (ops->stage_ms != 0 ? ops->stage_ms : CLOUD_STAGE_MS) * UINT64_C(1000);
    *trouble = (cloud_trouble_t){.fault = CLOUD_FINE};
    if (backend_step(box->run, STEP_STAGE))
        return cloud_trouble(trouble, CLOUD_NOTHING, "the files were not handed over", "fault point");
    return ops->stage(cloud->settings.self, box, plan, trouble);
}

/* False when the run was answered. */
static bool take_staged(cloud_t *cloud, const cloud_box_t *box, bool is_staged, cloud_trouble_t *trouble)
{
    if (is_staged)
        return true;
    /* a file that is not as it was sent is no other wall */
    if (trouble->fault == CLOUD_DIFFERS)
        trouble->fault = CLOUD_NOTHING;
    refuse_for(cloud, box->run, trouble);
    return false;
}

static bool check_then_stage(cloud_t *cloud, cloud_box_t *box, const cloud_plan_t *plan)
{
    cloud_trouble_t trouble = {.fault = CLOUD_FINE};
    bool holds = cloud->settings.ops->check(cloud->settings.self, box, &trouble);
    if (!take_check(cloud, box, holds, &trouble))
        return false;
    bool is_staged = hand_over(cloud, box, plan, &trouble);
    return take_staged(cloud, box, is_staged, &trouble);
}

static bool check_beside_stage(cloud_t *cloud, cloud_box_t *box, const cloud_plan_t *plan)
{
    cloud_look_t look;
    cloud_trouble_t trouble;
    cloud_look_begin(&look, box);
    bool is_staged = hand_over(cloud, box, plan, &trouble);
    /* Of a sandbox that is not what was asked for, how it took the files says nothing. */
    if (!is_staged && trouble.fault != CLOUD_CANCELED) {
        cloud_trouble_t ignored;
        cloud_box_is_right(box, &ignored);
    }
    bool is_answered = cloud_look_end(&look);
    if (is_staged && !is_answered)
        mem_fatal("files were handed over for good to a sandbox that was not read back");
    if (is_answered && !take_check(cloud, box, look.holds, &look.trouble))
        return false;
    return take_staged(cloud, box, is_staged, &trouble);
}

/* --- execute, collect, answer --- */

static void collect(cloud_t *cloud, cloud_box_t *box, const cloud_plan_t *plan, guest_result_t *result,
                    cloud_executed_t *executed)
{
    const cloud_ops_t *ops = cloud->settings.ops;
    cloud_trouble_t trouble = {.fault = CLOUD_FINE};
    bool is_fault = backend_step(box->run, STEP_COLLECT);
    if (executed->trouble.fault != CLOUD_FINE || plan->artifact_count == 0 || ops->execute != NULL)
        return;
    box->deadline_us = clock_mono_us() + (ops->collect_ms != 0 ? ops->collect_ms : CLOUD_COLLECT_MS) * UINT64_C(1000);
    if (is_fault)
        cloud_trouble(&trouble, CLOUD_LOST, "the artifacts were not read", "fault point");
    else if (ops->collect(cloud->settings.self, box, plan, result, &trouble))
        return;
    if (trouble.fault == CLOUD_CANCELED) {
        executed->is_canceled = true;
        executed->trouble = trouble;
        return;
    }
    /* How the steps ended is known, and stays; that artifacts are missing is told by the flag. */
    result->is_artifacts_truncated = true;
    log_event(LOG_WARN, "artifacts not collected", log_str("backend", ops->name), log_str("run_id", box->run->run_id),
              log_str("sandbox", box->id), log_str("message", trouble.message), log_str("detail", trouble.detail));
}

static result_end_t end_of(const cloud_executed_t *executed)
{
    if (executed->is_canceled)
        return RESULT_CANCELED;
    if (executed->trouble.fault == CLOUD_LATE)
        return RESULT_LATE;
    return executed->trouble.fault == CLOUD_FINE ? RESULT_WHOLE : RESULT_LOST;
}

static void answer(cloud_t *cloud, cloud_box_t *box, guest_result_t *result, const cloud_executed_t *executed)
{
    backend_run_t *run = box->run;
    const cloud_trouble_t *trouble = &executed->trouble;
    result_view_t view = {
        .end = end_of(executed), .detail = trouble->message, .given_us = clock_mono_us() - box->began_us};
    Plimsoll__V1__RunResponse *response = run->request->payload_case == PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_JAVASCRIPT
                                              ? result_javascript(result, &view)
                                              : result_project(run->request->project, result, &view);
    if (view.end == RESULT_LOST) {
        meter_inc(METER_RUNS_WITHOUT_VERDICT);
        log_event(LOG_WARN, "run without a verdict", log_str("backend", cloud->settings.ops->name),
                  log_str("run_id", run->run_id), log_str("sandbox", box->id),
                  log_str("fault", cloud_fault_name(trouble->fault)), log_str("reason", trouble->message),
                  log_str("detail", trouble->detail));
    }
    if (trouble->fault == CLOUD_DENIED)
        alarm_operator(cloud, run, trouble);
    bool is_ours = trouble->fault == CLOUD_PROTOCOL || trouble->fault == CLOUD_DIFFERS || view.end == RESULT_WHOLE;
    if (response != NULL)
        backend_run_done(run, cloud->settings.ops->name, response, view.end == RESULT_CANCELED);
    else
        backend_run_fail(run, is_ours ? "internal" : "unavailable",
                         trouble->message[0] != '\0' ? trouble->message : "the run gave no result", trouble->detail);
}

/* From here on a step may have begun. */
static void execute(cloud_t *cloud, cloud_box_t *box, const cloud_plan_t *plan)
{
    guest_result_t result;
    cloud_executed_t executed = {.trouble = {.fault = CLOUD_FINE}};
    cloud_result_init(&result, plan);
    if (backend_step(box->run, STEP_EXECUTE)) {
        box->began_us = clock_mono_us();
        cloud_trouble(&executed.trouble, CLOUD_LOST, "the run failed", "fault point");
    } else {
        cloud_execute(box, plan, &result, &executed);
    }
    collect(cloud, box, plan, &result, &executed);
    answer(cloud, box, &result, &executed);
    cloud_result_dispose(&result);
}

/* --- the run --- */

/* What a result tells of the sandbox's time is charged with it; of one without, the ledger charges all. */
static void report(cloud_t *cloud, const cloud_box_t *box)
{
    role_ledger_t *ledger = cloud->settings.host->ledger;
    if (box->run->outcome != RUN_DONE)
        return;
    box->run->billable_ms = role_ledger_age_ms(ledger, box->stamp);
    role_ledger_report(ledger, box->stamp, box->run->billable_ms);
}

static void serve(cloud_t *cloud, backend_run_t *run, const cloud_plan_t *plan)
{
    cloud_box_t box = {.run = run, .kind = "run"};
    char why[LEDGER_ERROR_MAX + 1];
    /* role.c counts from the request; this wall's runs are counted from their own beginning */
    box.timeout_ms = (uint32_t)((run->deadline_us - run->started_us + 999) / 1000);
    if (!cloud_box_open(cloud, &box, why)) {
        refuse_capacity(run, 0, "no sandbox could be asked for", why);
        return;
    }
    bool is_beside = cloud->settings.ops->is_checked_beside;
    if (create(cloud, &box) &&
        (is_beside ? check_beside_stage(cloud, &box, plan) : check_then_stage(cloud, &box, plan)))
        execute(cloud, &box, plan);
    report(cloud, &box);
    backend_step(run, STEP_DELETE);
    cloud_box_release(&box, run->outcome != RUN_DONE);
}

void cloud_run(cloud_t *cloud, backend_run_t *run)
{
    cloud_plan_t plan = {.file_count = 0};
    cloud_check(cloud);
    if (cloud->settings.problem != NULL) {
        backend_run_refuse(run, REFUSAL(UNSUPPORTED), "the backend is not configured to run anything",
                           cloud->settings.problem);
        return;
    }
    if (grant_of(run)[0] != '\0') {
        backend_run_refuse(run, REFUSAL(PERMISSION), "the grant cannot be issued", NULL);
        return;
    }
    if (plan_run(cloud, run, &plan)) {
        if (backend_step(run, STEP_CREATE))
            refuse_capacity(run, 0, "no sandbox could be asked for", "fault point");
        else
            serve(cloud, run, &plan);
    }
    cloud_plan_dispose(&plan);
}
