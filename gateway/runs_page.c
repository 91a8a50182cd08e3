#include "gateway/runs_page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/protojson.h"
#include "gateway/answer.h"
#include "gateway/runs_query.h"
#include "gateway/runs_render.h"

typedef struct {
    h2o_req_t *req;
    gate_t *gate;
    bool one;
} lookup_t;

static void on_runs(void *data, store_lookup_t found, const store_run_t *runs, size_t count, const char *next_cursor)
{
    lookup_t *l = data;
    refusal_t refusal;
    buffer_t body;
    h2o_req_t *req = l->req;
    bool one = l->one;
    prices_t *prices = front_prices(l->gate->lane->front);
    char currency[PRICE_CURRENCY_LEN + 1];
    snprintf(currency, sizeof(currency), "%s", prices != NULL ? prices_currency(prices) : "");
    prices_unref(prices);
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
    buffer_init(&body, RUNS_RENDER_MAX);
    if (one) {
        runs_render_run(&body, &runs[0], currency, true);
    } else {
        buffer_append_str(&body, "{\"runs\":[");
        for (size_t i = 0; i < count; i++) {
            if (i != 0)
                buffer_append_str(&body, ",");
            runs_render_run(&body, &runs[i], currency, false);
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

static bool is_run_id(const char *id)
{
    return strlen(id) == 32 && strspn(id, "0123456789abcdef") == 32;
}

void runs_answer(h2o_req_t *req, gate_t *gate)
{
    refusal_t refusal;
    runs_query_t page;
    bool one = gate->intake.route.kind == ROUTE_RUN_RECORD;
    const char *wrong = NULL;
    if (one && !is_run_id(gate->intake.route.argument))
        wrong = "a run ID is 32 lowercase hex digits";
    else if (one && gate->intake.query[0] != '\0')
        wrong = "this page takes no query";
    else if (!one)
        wrong = runs_query_parse(gate->intake.query, &page);
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
    else {
        const store_runs_query_t query = runs_query_for_store(&page);
        store_runs_list(gate->lane->store, gate->intake.caller_id, &query, on_runs, l);
    }
}
