#include "gateway/runs_page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/protojson.h"
#include "gateway/answer.h"
#include "records/plimsoll.pb-c.h"
#include "records/project_outcome.h"

enum { PAGE_DEFAULT = 50, PAGE_MAX = 500, CURSOR_MAX = 128, PAGE_BYTES_MAX = 4 * 1024 * 1024 };

typedef struct {
    h2o_req_t *req;
    gate_t *gate;
    bool one;
} lookup_t;

static void add_string(buffer_t *b, const char *key, const char *value)
{
    buffer_printf(b, ",\"%s\":", key);
    protojson_print_string(b, value, strlen(value));
}

static void add_run(buffer_t *b, const store_run_t *r, bool with_record)
{
    buffer_append_str(b, "{\"run_id\":");
    protojson_print_string(b, r->run_id, strlen(r->run_id));
    add_string(b, "request_id", r->request_id);
    add_string(b, "verdict", r->verdict);
    add_string(b, "backend", r->backend);
    add_string(b, "isolation", r->tier);
    add_string(b, "kind", r->kind);
    add_string(b, "request_sha256", r->request_sha256);
    add_string(b, "result_sha256", r->result_sha256);
    add_string(b, "record_sha256", r->record_sha256);
    add_string(b, "unanswered", r->unknown_code);
    add_string(b, "reason", r->reason);
    add_string(b, "trace_id", r->trace_id);
    add_string(b, "outcome", project_outcome_name(r->project_outcome));
    buffer_printf(b,
                  ",\"started_unix_ms\":%lld,\"ended_unix_ms\":%lld,\"exit_code\":%d,\"timed_out\":%s,\"canceled\":%s",
                  (long long)r->started_unix_ms, (long long)r->ended_unix_ms, r->exit_code,
                  r->timed_out ? "true" : "false", r->canceled ? "true" : "false");
    if (with_record && r->record_len != 0) {
        Plimsoll__V1__RunRecord *record = plimsoll__v1__run_record__unpack(NULL, r->record_len, r->record);
        if (record != NULL) {
            buffer_append_str(b, ",\"record\":");
            protojson_print(&record->base, b);
            plimsoll__v1__run_record__free_unpacked(record, NULL);
        }
    }
    buffer_append_str(b, "}");
}

static void on_runs(void *data, store_lookup_t found, const store_run_t *runs, size_t count, const char *next_cursor)
{
    lookup_t *l = data;
    refusal_t refusal;
    buffer_t body;
    h2o_req_t *req = l->req;
    bool one = l->one;
    l->gate->lane->runs--;
    free(l);
    if (found == STORE_AWAY) {
        failure_set(&refusal, CODE_UNAVAILABLE, "the record store does not answer; try again in a moment");
        refusal.retry_after_ms = 1000;
        answer_refusal(req, &refusal);
        return;
    }
    if (one && (found == STORE_NOT_FOUND || count != 1)) {
        failure_set(&refusal, CODE_NOT_FOUND, "this caller has no run with this ID");
        answer_refusal(req, &refusal);
        return;
    }
    if (found == STORE_NOT_FOUND) {
        refusal_set_http(&refusal, 0, CODE_INVALID_ARGUMENT, "cursor is not one this gateway gave");
        answer_refusal(req, &refusal);
        return;
    }
    buffer_init(&body, PAGE_BYTES_MAX);
    if (one) {
        add_run(&body, &runs[0], true);
    } else {
        buffer_append_str(&body, "{\"runs\":[");
        for (size_t i = 0; i < count; i++) {
            if (i != 0)
                buffer_append_str(&body, ",");
            add_run(&body, &runs[i], false);
        }
        buffer_append_str(&body, "],\"next_cursor\":");
        if (next_cursor != NULL && next_cursor[0] != '\0')
            protojson_print_string(&body, next_cursor, strlen(next_cursor));
        else
            buffer_append_str(&body, "null");
        buffer_append_str(&body, "}");
    }
    answer_send(req, 200, "application/json", &body);
}

typedef struct {
    uint32_t limit;
    char cursor[CURSOR_MAX + 1];
} page_t;

static bool is_cursor_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-' || c == '_' ||
           c == '.';
}

/* limit=N&cursor=C, each at most once. */
static const char *parse_query(const char *query, page_t *out)
{
    bool seen_limit = false, seen_cursor = false;
    *out = (page_t){.limit = PAGE_DEFAULT};
    while (*query != '\0') {
        size_t len = strcspn(query, "&");
        if (len > 6 && strncmp(query, "limit=", 6) == 0 && !seen_limit) {
            seen_limit = true;
            out->limit = 0;
            for (size_t i = 6; i < len; i++) {
                if (query[i] < '0' || query[i] > '9' || out->limit > PAGE_MAX)
                    return "limit must be a number from 1 to 500";
                out->limit = out->limit * 10 + (uint32_t)(query[i] - '0');
            }
            if (out->limit < 1 || out->limit > PAGE_MAX)
                return "limit must be a number from 1 to 500";
        } else if (len > 7 && strncmp(query, "cursor=", 7) == 0 && !seen_cursor) {
            seen_cursor = true;
            if (len - 7 > CURSOR_MAX)
                return "cursor is not one this gateway gave";
            for (size_t i = 7; i < len; i++)
                if (!is_cursor_char(query[i]))
                    return "cursor is not one this gateway gave";
            memcpy(out->cursor, query + 7, len - 7);
        } else {
            return "the query may hold limit and cursor, each once";
        }
        query += len;
        if (*query == '&')
            query++;
    }
    return NULL;
}

static bool is_run_id(const char *id)
{
    return strlen(id) == 32 && strspn(id, "0123456789abcdef") == 32;
}

void runs_answer(h2o_req_t *req, gate_t *gate)
{
    refusal_t refusal;
    page_t page;
    bool one = gate->intake.route.kind == ROUTE_RUN_RECORD;
    const char *wrong = NULL;
    if (one && !is_run_id(gate->intake.route.argument))
        wrong = "a run ID is 32 lowercase hex digits";
    else if (!one)
        wrong = parse_query(gate->intake.query, &page);
    if (wrong != NULL) {
        refusal_set_http(&refusal, 0, CODE_INVALID_ARGUMENT, "%s", wrong);
        answer_refusal(req, &refusal);
        return;
    }
    lookup_t *l = mem_alloc(sizeof(*l));
    *l = (lookup_t){.req = req, .gate = gate, .one = one};
    gate->lane->runs++;
    if (one)
        store_run_get(gate->lane->store, gate->intake.caller_id, gate->intake.route.argument, on_runs, l);
    else
        store_runs_list(gate->lane->store, gate->intake.caller_id,
                        &(store_runs_query_t){.limit = page.limit, .cursor = page.cursor}, on_runs, l);
}
