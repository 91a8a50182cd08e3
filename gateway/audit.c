#include "gateway/audit.h"

#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "records/project_outcome.h"

enum { AUDIT_FIELDS_MAX = 32 };

typedef struct {
    log_field_t fields[AUDIT_FIELDS_MAX];
    size_t count;
} line_t;

static void add(line_t *l, log_field_t field)
{
    if (l->count < AUDIT_FIELDS_MAX)
        l->fields[l->count++] = field;
}

static const char *message_of(const run_t *run, bool failed)
{
    if (strcmp(run->kind, "project") == 0)
        return failed ? "project run failed" : "project run";
    if (strcmp(run->kind, "module") == 0)
        return failed ? "module run failed" : "module run";
    return failed ? "code run failed" : "code run";
}

static void add_common(line_t *l, const run_t *run)
{
    const intake_t *in = &run->gate->intake;
    add(l, log_str("op", run->kind));
    add(l, log_str("caller", in->caller_id));
    add(l, log_str("run_id", run->run_id));
    if (in->has_request_id)
        add(l, log_str("request_id", in->request_id));
    if (in->key.len != 0)
        add(l, log_str("claim_id", in->claim_id)); /* what the key is in the store; the key itself is the caller's */
    add(l, log_str("x_request_id", in->x_request_id));
    add(l, log_str("client", in->address));
    if (in->traceparent[0] != '\0')
        add(l, log_strn("trace", in->traceparent + 3, 32));
    add(l, log_str("sandbox", run->lane->front->backend_names[run->at]));
    if (strcmp(run->kind, "javascript") == 0) {
        add(l, log_uint("code_bytes", run->code_bytes));
        add(l, log_str("grant_profile", "")); /* no run has one while there is no broker */
    }
    if (strcmp(run->kind, "project") == 0) {
        add(l, log_uint("files", run->files));
        add(l, log_uint("steps", run->steps));
        add(l, log_uint("total_bytes", run->total_bytes));
        add(l, log_str("grant_profile", ""));
    }
    if (run->spent.is_billed && !run->outcome->answered) {
        add(l, log_str("cost", "pending")); /* until the ledger has seen its sandbox go */
    } else if (run->spent.is_billed) {
        add(l, log_uint("paid_seconds", (run->spent.amounts.paid_ms + 999) / 1000));
        add(l, log_uint("paid_ms", run->spent.amounts.paid_ms));
        if (run->spent.is_cost_known)
            add(l, log_uint("cost_micro", run->spent.amounts.cost_micro));
        else
            add(l, log_str("cost", "unknown"));
    }
    if (run->trace_id[0] != '\0')
        add(l, log_str("trace_id", run->trace_id));
    if (run->terms.trace_id_dropped)
        add(l, log_bool("trace_id_rejected", 1));
    if (run->passed_over[0] != '\0')
        add(l, log_str("passed_over", run->passed_over));
    add(l, log_uint("duration_ms", (clock_mono_us() - in->began_us) / 1000));
}

static void add_project(line_t *l, const Plimsoll__V1__ProjectResult *r)
{
    const Plimsoll__V1__StepResult *last = r->n_steps != 0 ? r->steps[r->n_steps - 1] : NULL;
    add(l, log_str("outcome", project_outcome_name(r->outcome)));
    add(l, log_str("outcome_detail", r->outcome_detail));
    add(l, log_uint("steps_ran", r->n_steps));
    add(l, log_int("exit_code", last != NULL ? last->exit_code : project_exit_code(r)));
    add(l,
        log_bool("timed_out", last != NULL ? last->timed_out
                                           : r->outcome == PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_TIMED_OUT));
}

void audit_run(const run_t *run, const Plimsoll__V1__RunResponse *r)
{
    line_t l = {.count = 0};
    add_common(&l, run);
    add(&l, log_str("isolation", r->isolation));
    if (r->result_case == PLIMSOLL__V1__RUN_RESPONSE__RESULT_JAVASCRIPT) {
        add(&l, log_int("exit_code", r->javascript->exit_code));
        add(&l, log_bool("timed_out", r->javascript->timed_out));
    }
    if (r->result_case == PLIMSOLL__V1__RUN_RESPONSE__RESULT_PROJECT)
        add_project(&l, r->project);
    if (r->record != NULL)
        add(&l, log_str("record_sha256", r->record->record_sha256));
    log_write(LOG_INFO, message_of(run, false), l.fields, l.count);
}

void audit_failure(const run_t *run, const char *told, const char *detail)
{
    line_t l = {.count = 0};
    add_common(&l, run);
    add(&l, log_str("isolation", tier_name(run->tier)));
    add(&l, log_str("error", detail[0] != '\0' ? detail : told));
    log_write(LOG_ERROR, message_of(run, true), l.fields, l.count);
}
