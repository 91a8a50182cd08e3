#include "gateway/result.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/provider.h"
#include "core/clock.h"
#include "core/mem.h"
#include "core/protowire.h"
#include "gateway/metrics.h"
#include "records/project_outcome.h"
#include "gateway/audit.h"
#include "gateway/link.h"

#define PROJECT_OUTCOME(name) PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_##name

enum { RECORD_VERSION_OF_PROTOCOL_3 = 2, RECORD_VERSION_OF_PROTOCOL_4 = 4 };

static const metric_t OUTCOME_METRICS[PROJECT_OUTCOME_LAST + 1] = {
    [PROJECT_OUTCOME(COMPLETED)] = METRIC_OUTCOME_COMPLETED,
    [PROJECT_OUTCOME(SETUP_FAILED)] = METRIC_OUTCOME_SETUP_FAILED,
    [PROJECT_OUTCOME(TIMED_OUT)] = METRIC_OUTCOME_TIMED_OUT,
    [PROJECT_OUTCOME(PROTOCOL_ERROR)] = METRIC_OUTCOME_PROTOCOL_ERROR,
    [PROJECT_OUTCOME(RUNNER_FAILED)] = METRIC_OUTCOME_RUNNER_FAILED,
};

static bool is_result_of(const Plimsoll__V1__RunResponse *r, const char *kind)
{
    switch (r->result_case) {
    case PLIMSOLL__V1__RUN_RESPONSE__RESULT_JAVASCRIPT:
        return strcmp(kind, "javascript") == 0;
    case PLIMSOLL__V1__RUN_RESPONSE__RESULT_PROJECT:
        return strcmp(kind, "project") == 0;
    case PLIMSOLL__V1__RUN_RESPONSE__RESULT_MODULE:
        return strcmp(kind, "module") == 0;
    default:
        return false;
    }
}

static bool names_a_tier(const char *text)
{
    return tier_parse(text) != TIER_UNKNOWN || strcmp(text, tier_name(TIER_UNKNOWN)) == 0;
}

/* A backend's word is checked like anybody's: what does not hold never reaches the caller as a result. */
static const char *judge(const run_t *run, const Plimsoll__V1__RunResponse *r)
{
    if (strcmp(r->sandbox, run->lane->front->backend_names[run->at]) != 0)
        return "the backend's answer names another backend";
    if (!is_result_of(r, run->kind))
        return "the backend's answer holds no result of the request's kind";
    if (strcmp(run->kind, "project") == 0 && project_outcome_name(r->project->outcome)[0] == '\0')
        return "the backend's answer states no outcome of the project";
    if (!names_a_tier(r->isolation))
        return "the backend's answer states a tier there is not";
    const provider_t *provider = provider_find(r->sandbox);
    if (provider == NULL || tier_parse(r->isolation) > tier_parse(provider_tier(provider)))
        return "the backend's answer states a tier above what this wall can prove";
    if (!tier_meets(tier_parse(r->isolation), run->terms.floor))
        return "the backend's answer states a tier below the request's floor";
    if (run->rule != NULL && !software_rule_allows(run->rule, r->software_identity))
        return "the backend's answer states software outside the request's rule";
    return NULL;
}

static void make_record(const run_t *run, Plimsoll__V1__RunResponse *r, Plimsoll__V1__RunRecord *record,
                        char result_sha256[SHA256_HEX + 1], char record_sha256[SHA256_HEX + 1])
{
    const intake_t *in = &run->gate->intake;
    const Plimsoll__Backend__Announce *a = link_announce(run->lane->links[run->at]);
    record->version = run->protocol >= 4 ? RECORD_VERSION_OF_PROTOCOL_4 : RECORD_VERSION_OF_PROTOCOL_3;
    record->request_sha256 = (char *)run->request_sha256;
    digest_result(r, result_sha256);
    record->result_sha256 = result_sha256;
    record->provider = r->sandbox;
    record->isolation = r->isolation;
    record->environment = r->environment;
    record->policy = a != NULL ? a->policy : (char *)"";
    record->started_unix_ms = in->began_unix_ms;
    /* start plus monotonic time: never before the start, whatever the wall clock does meanwhile */
    record->ended_unix_ms = in->began_unix_ms + (int64_t)((clock_mono_us() - in->began_us) / 1000);
    record->software_identity = r->software_identity;
    record->software_rule_id = (char *)run->rule_id;
    record->instance = r->instance;
    const char *err = digest_record(record, record_sha256);
    if (err != NULL)
        mem_fatal(err);
    record->record_sha256 = record_sha256;
}

const char *result_complete(run_t *run, const Plimsoll__Backend__RunDone *done)
{
    char result_sha256[SHA256_HEX + 1], record_sha256[SHA256_HEX + 1];
    Plimsoll__V1__RunRecord record = PLIMSOLL__V1__RUN_RECORD__INIT;
    char error[PROTOWIRE_ERROR_MAX];
    const char *wrong;
    Plimsoll__V1__RunResponse *r = (Plimsoll__V1__RunResponse *)protowire_parse(
        &plimsoll__v1__run_response__descriptor, done->response.data, done->response.len, error);
    if (r == NULL)
        return "the backend's answer is malformed";
    if ((wrong = judge(run, r)) != NULL)
        goto Exit;
    if (r->record != NULL) {
        wrong = "the backend's answer holds a record, which is the gateway's to make";
        goto Exit;
    }
    if (run->protocol < 4 && r->instance[0] != '\0') {
        /* version 2 records know no instance, so nothing would vouch for it */
        free(r->instance);
        r->instance = (char *)protobuf_c_empty_string;
    }
    if (r->result_case == PLIMSOLL__V1__RUN_RESPONSE__RESULT_PROJECT) {
        metric_inc(OUTCOME_METRICS[r->project->outcome]);
        if (run->protocol < 4 && r->project->outcome == PROJECT_OUTCOME(RUNNER_FAILED))
            r->project->outcome = PROJECT_OUTCOME(SETUP_FAILED); /* what protocol 3 has for it */
    }
    make_record(run, r, &record, result_sha256, record_sha256);
    r->record = &record;
    outcome_t *o = run->outcome = outcome_create();
    o->answered = true;
    o->response_len = plimsoll__v1__run_response__get_packed_size(r);
    o->response = mem_alloc(o->response_len);
    plimsoll__v1__run_response__pack(r, o->response);
    memcpy(o->run_id, run->run_id, sizeof(run->run_id));
    snprintf(o->backend, sizeof(o->backend), "%s", run->lane->front->backend_names[run->at]);
    o->has_bill = true;
    o->bill = run->spent;
    audit_run(run, r);
    r->record = NULL; /* ours, on the stack */
Exit:
    /* strings set to the library's empty string are not freed by it */
    plimsoll__v1__run_response__free_unpacked(r, NULL);
    return wrong;
}

void result_fill_settlement(const outcome_t *o, store_settlement_t *s, result_settlement_t *kept)
{
    Plimsoll__V1__RunResponse *r = kept->response =
        plimsoll__v1__run_response__unpack(NULL, o->response_len, o->response);
    s->answer = o->response;
    s->answer_len = o->response_len;
    if (r == NULL || r->record == NULL)
        mem_fatal("an answer made here does not unpack");
    s->tier = r->isolation;
    s->result_sha256 = r->record->result_sha256;
    s->record_sha256 = r->record->record_sha256;
    s->ended_unix_ms = r->record->ended_unix_ms;
    if (r->result_case == PLIMSOLL__V1__RUN_RESPONSE__RESULT_JAVASCRIPT) {
        s->exit_code = r->javascript->exit_code;
        s->timed_out = r->javascript->timed_out;
    } else if (r->result_case == PLIMSOLL__V1__RUN_RESPONSE__RESULT_PROJECT) {
        s->exit_code = project_exit_code(r->project);
        s->timed_out = r->project->outcome == PROJECT_OUTCOME(TIMED_OUT);
        s->project_outcome = (uint8_t)r->project->outcome;
    }
    s->record_len = plimsoll__v1__run_record__get_packed_size(r->record);
    kept->record = mem_alloc(s->record_len);
    plimsoll__v1__run_record__pack(r->record, kept->record);
    s->record = kept->record;
}

void result_settlement_dispose(result_settlement_t *kept)
{
    if (kept->response != NULL)
        plimsoll__v1__run_response__free_unpacked(kept->response, NULL);
    free(kept->record);
}
