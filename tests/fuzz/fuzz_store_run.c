/* The value of a run's key on arbitrary bytes: what is read, packed again, must read the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "records/store_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char RUN_ID[] = "0123456789abcdef0123456789abcdef";

static void expect(int holds)
{
    if (!holds)
        abort();
}

static verdict_t verdict_of(const char *name)
{
    for (int verdict = VERDICT_ANSWERED; verdict <= VERDICT_UNKNOWN; ++verdict) {
        if (strcmp(name, verdict_name((verdict_t)verdict)) == 0)
            return (verdict_t)verdict;
    }
    abort();
}

static void expect_same(const store_run_t *a, const store_run_t *b)
{
    expect(strcmp(a->request_id, b->request_id) == 0 && strcmp(a->verdict, b->verdict) == 0);
    expect(strcmp(a->backend, b->backend) == 0 && strcmp(a->tier, b->tier) == 0 && strcmp(a->kind, b->kind) == 0);
    expect(strcmp(a->request_sha256, b->request_sha256) == 0 && strcmp(a->result_sha256, b->result_sha256) == 0);
    expect(strcmp(a->record_sha256, b->record_sha256) == 0 && strcmp(a->unknown_code, b->unknown_code) == 0);
    expect(strcmp(a->reason, b->reason) == 0 && strcmp(a->trace_id, b->trace_id) == 0);
    expect(strcmp(a->caller, b->caller) == 0 && strcmp(a->client_request_id, b->client_request_id) == 0);
    expect(strcmp(a->idempotency_key, b->idempotency_key) == 0 && strcmp(a->limits, b->limits) == 0);
    expect(a->spent.seconds_ms == b->spent.seconds_ms && a->spent.paid_ms == b->spent.paid_ms);
    expect(a->spent.cost_micro == b->spent.cost_micro && a->is_cost_known == b->is_cost_known);
    expect(a->log_index >= -1 && b->log_index == -1); /* the script's to set */
    expect(a->started_unix_ms == b->started_unix_ms && a->ended_unix_ms == b->ended_unix_ms);
    expect(a->exit_code == b->exit_code && a->timed_out == b->timed_out && a->canceled == b->canceled);
    expect(a->project_outcome == b->project_outcome);
    expect(a->record_len == b->record_len && (a->record_len == 0 || memcmp(a->record, b->record, a->record_len) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static store_run_text_t first, second;
    if (store_run_unpack(RUN_ID, data, size, &first) != NULL)
        return 0;
    const store_run_t *run = &first.run;
    uint8_t *packed;
    size_t len;
    store_run_pack(&(store_settlement_t){.request_id = run->request_id,
                                         .run_id = run->run_id,
                                         .verdict = verdict_of(run->verdict),
                                         .backend = run->backend,
                                         .tier = run->tier,
                                         .kind = run->kind,
                                         .request_sha256 = run->request_sha256,
                                         .result_sha256 = run->result_sha256,
                                         .record_sha256 = run->record_sha256,
                                         .started_unix_ms = run->started_unix_ms,
                                         .ended_unix_ms = run->ended_unix_ms,
                                         .exit_code = run->exit_code,
                                         .project_outcome = run->project_outcome,
                                         .timed_out = run->timed_out,
                                         .canceled = run->canceled,
                                         .unknown_code = run->unknown_code,
                                         .reason = run->reason,
                                         .trace_id = run->trace_id,
                                         .caller = run->caller,
                                         .client_request_id = run->client_request_id,
                                         .idempotency_key = run->idempotency_key,
                                         .limits = run->limits,
                                         .spent = run->spent,
                                         .is_cost_known = run->is_cost_known,
                                         .record = run->record,
                                         .record_len = run->record_len},
                   &packed, &len);
    expect(store_run_unpack(RUN_ID, packed, len, &second) == NULL);
    expect_same(&first.run, &second.run);
    free(packed);
    return 0;
}
