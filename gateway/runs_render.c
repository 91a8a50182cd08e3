#include "gateway/runs_render.h"

#include <inttypes.h>
#include <string.h>

#include "config/decimal.h"
#include "config/prices.h"
#include "core/protojson.h"
#include "records/plimsoll.pb-c.h"
#include "records/project_outcome.h"

static void add_string(buffer_t *b, const char *key, const char *value)
{
    buffer_printf(b, ",\"%s\":", key);
    protojson_print_string(b, value, strlen(value));
}

void runs_render_record(buffer_t *b, const store_run_t *r)
{
    if (r->record_len == 0)
        return;
    Plimsoll__V1__RunRecord *record = plimsoll__v1__run_record__unpack(NULL, r->record_len, r->record);
    if (record == NULL)
        return;
    buffer_append_str(b, ",\"record\":");
    protojson_print(&record->base, b);
    plimsoll__v1__run_record__free_unpacked(record, NULL);
}

/* What it was charged. A cost that is not known is never shown as a number. */
static void add_bill(buffer_t *b, const store_run_t *r, const char *currency)
{
    char number[DECIMAL_TEXT_MAX];
    buffer_printf(b, ",\"sandbox_ms\":%" PRIu64 ",\"paid_ms\":%" PRIu64, r->spent.seconds_ms, r->spent.paid_ms);
    add_string(b, "cost", r->is_cost_known ? decimal_print(r->spent.cost_micro, COST_PLACES, number) : "unknown");
    if (r->is_cost_known && r->spent.cost_micro != 0)
        add_string(b, "currency", currency);
}

void runs_render_run(buffer_t *b, const store_run_t *r, const char *currency, bool with_record)
{
    buffer_append_str(b, "{\"run_id\":");
    protojson_print_string(b, r->run_id, strlen(r->run_id));
    add_string(b, "request_id",
               r->client_request_id[0] != '\0' ? r->client_request_id
               : r->idempotency_key[0] != '\0' ? ""
                                               : r->request_id);
    add_string(b, "idempotency_key", r->idempotency_key);
    add_string(b, "verdict", r->verdict);
    add_string(b, "backend", r->backend);
    add_string(b, "isolation", r->tier);
    add_string(b, "kind", r->kind);
    add_string(b, "request_sha256", r->request_sha256);
    add_string(b, "result_sha256", r->result_sha256);
    add_string(b, "record_sha256", r->record_sha256);
    add_string(b, "unanswered", r->unknown_code);
    add_string(b, "reason", r->reason);
    add_string(b, "limits", r->limits);
    add_string(b, "trace_id", r->trace_id);
    add_string(b, "outcome", project_outcome_name(r->project_outcome));
    add_bill(b, r, currency);
    buffer_printf(b, ",\"started_unix_ms\":%" PRId64 ",\"ended_unix_ms\":%" PRId64 ",\"exit_code\":%" PRId32,
                  r->started_unix_ms, r->ended_unix_ms, r->exit_code);
    buffer_printf(b, ",\"timed_out\":%s,\"canceled\":%s", r->timed_out ? "true" : "false",
                  r->canceled ? "true" : "false");
    if (r->log_index >= 0)
        buffer_printf(b, ",\"log_index\":%" PRId64, r->log_index);
    else
        buffer_append_str(b, ",\"log_index\":null");
    if (with_record)
        runs_render_record(b, r);
    buffer_append_str(b, "}");
}
