#include "gateway/usage_page.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "config/decimal.h"
#include "core/clock.h"
#include "core/mem.h"
#include "core/protojson.h"
#include "gateway/answer.h"
#include "gateway/quota.h"

enum { USAGE_BYTES_MAX = 16 * 1024 };

typedef struct {
    h2o_req_t *req;
    gate_t *gate;
    store_caps_t caps;
} ask_t;

static void add_limit(buffer_t *b, uint64_t limit)
{
    if (limit != 0)
        buffer_printf(b, ",\"limit\":%" PRIu64, limit);
    else
        buffer_append_str(b, ",\"limit\":null");
}

static void add_rate(buffer_t *b, const store_caps_t *caps, const store_usage_t *u)
{
    if (caps->rate_per_min == 0) {
        buffer_append_str(b, ",\"rate\":null");
        return;
    }
    buffer_printf(b,
                  ",\"rate\":{\"per_minute\":%" PRIu32 ",\"burst\":%" PRIu32 ",\"remaining\":%" PRIu32
                  ",\"full_in_ms\":%" PRIu32 "}",
                  caps->rate_per_min, caps->burst, u->rate_remaining, u->rate_reset_ms);
}

static void add_time_budget(buffer_t *b, const char *name, uint64_t spent, uint64_t held, uint64_t limit,
                            uint32_t reset)
{
    buffer_printf(b, ",\"%s\":{\"spent\":%" PRIu64 ",\"held\":%" PRIu64, name, spent, held);
    add_limit(b, limit);
    buffer_printf(b, ",\"resets_in_ms\":%" PRIu32 "}", reset);
}

static void add_money(buffer_t *b, const char *name, uint64_t micro, bool is_known)
{
    char number[DECIMAL_TEXT_MAX];
    buffer_printf(b, "\"%s\":\"%s\"", name, is_known ? decimal_print(micro, COST_PLACES, number) : "unknown");
}

/* Paid time without a price makes the sum unknown: what is known of it would pass for all of it. */
static void add_cost(buffer_t *b, front_t *front, const store_caps_t *caps, const store_usage_t *u)
{
    prices_t *prices = front_prices(front);
    bool is_current = prices != NULL && prices_are_current(prices, clock_wall_ms(), front->prices_max_age_ms);
    buffer_append_str(b, ",\"cost\":{");
    add_money(b, "spent", u->spent.cost_micro, u->unpriced_ms == 0);
    buffer_append_str(b, ",");
    add_money(b, "held", u->held.cost_micro, u->held.paid_ms == 0 || is_current);
    buffer_append_str(b, ",");
    if (caps->per_day.cost_micro != 0)
        add_money(b, "limit", caps->per_day.cost_micro, true);
    else
        buffer_append_str(b, "\"limit\":null");
    if (prices != NULL)
        buffer_printf(b, ",\"currency\":\"%s\",\"prices_date\":\"%s\",\"prices_current\":%s", prices_currency(prices),
                      prices_date(prices), is_current ? "true" : "false");
    else
        buffer_append_str(b, ",\"currency\":null,\"prices_date\":null,\"prices_current\":false");
    buffer_printf(b, ",\"resets_in_ms\":%" PRIu32 "}", u->day_reset_ms);
    prices_unref(prices);
}

static void render(const ask_t *ask, const store_usage_t *u, buffer_t *b)
{
    front_t *front = ask->gate->lane->front;
    const store_caps_t *caps = &ask->caps;
    const char *caller = ask->gate->intake.caller_id;
    buffer_append_str(b, "{\"caller\":");
    protojson_print_string(b, caller, strlen(caller));
    buffer_printf(b, ",\"day\":\"%s\",\"runs\":%" PRIu64 ",\"slots\":{\"used\":%" PRIu32, u->day, u->runs,
                  u->slots_in_use);
    add_limit(b, caps->slots);
    buffer_append_str(b, "}");
    add_rate(b, caps, u);
    buffer_printf(b, ",\"window\":{\"seconds\":%" PRIu32 ",\"runs\":%" PRIu64, front->window_s, u->window_runs);
    add_limit(b, caps->runs_per_window);
    buffer_printf(b, ",\"resets_in_ms\":%" PRIu32 "}", u->window_reset_ms);
    add_time_budget(b, "sandbox_ms", u->spent.seconds_ms, u->held.seconds_ms, caps->per_day.seconds_ms,
                    u->day_reset_ms);
    add_time_budget(b, "paid_ms", u->spent.paid_ms, u->held.paid_ms, caps->per_day.paid_ms, u->day_reset_ms);
    add_cost(b, front, caps, u);
    buffer_append_str(b, "}");
}

static void on_usage(void *data, store_lookup_t found, const store_usage_t *usage, size_t count,
                     const char *next_cursor)
{
    ask_t *ask = data;
    h2o_req_t *req = ask->req;
    refusal_t refusal;
    buffer_t body;
    (void)next_cursor;
    ask->gate->lane->runs--;
    if (found != STORE_FOUND || count != 1) {
        free(ask);
        failure_set(&refusal, CODE_UNAVAILABLE, "the record store does not answer; try again in a moment");
        refusal.retry_after_ms = 1000;
        answer_refusal(req, &refusal);
        return;
    }
    buffer_init(&body, USAGE_BYTES_MAX);
    render(ask, usage, &body);
    free(ask);
    answer_send(req, 200, "application/json", &body);
}

void usage_answer(h2o_req_t *req, gate_t *gate)
{
    refusal_t refusal;
    if (gate->intake.query[0] != '\0') {
        refusal_set_http(&refusal, 0, CODE_INVALID_ARGUMENT, "this page takes no query");
        answer_refusal(req, &refusal);
        return;
    }
    ask_t *ask = mem_alloc(sizeof(*ask));
    *ask = (ask_t){.req = req, .gate = gate, .caps = quota_caps(gate->lane->front, gate->intake.caller)};
    gate->lane->runs++;
    store_usage(gate->lane->store, gate->intake.caller_id, &ask->caps, gate->lane->front->window_s, on_usage, ask);
}
