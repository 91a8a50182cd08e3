#include "gateway/billing.h"

#include "config/provider.h"
#include "core/clock.h"
#include "gateway/metrics.h"

enum { PRICE_RETRY_MS = 60 * 1000 /* a price file is renewed by people */ };

bool billing_is_billed(const lane_t *lane, size_t i)
{
    /* Not as it announces itself: one whose process has died announces nothing, and its run's sandbox bills on. */
    const provider_t *provider = provider_find(lane->front->backend_names[i]);
    return provider != NULL && provider->billed;
}

/* The price that holds now, copied; false: unknown. */
static bool price_now(front_t *front, size_t i, price_t *out)
{
    prices_t *prices = front_prices(front);
    const price_t *price = NULL;
    if (prices != NULL && prices_are_current(prices, clock_wall_ms(), front->prices_max_age_ms))
        price = prices_find(prices, front->backend_names[i]);
    if (price != NULL)
        *out = *price;
    prices_unref(prices);
    return price != NULL;
}

uint64_t billing_price_micro_hour(const lane_t *lane, size_t i)
{
    price_t price;
    if (!billing_is_billed(lane, i) || !price_now(lane->front, i, &price))
        return 0;
    return price_micro_hour(&price);
}

/* A backend's word is cut to what can be counted. */
static uint64_t countable(uint64_t ms)
{
    return ms < STORE_AMOUNT_MAX ? ms : STORE_AMOUNT_MAX;
}

bill_t billing_spent(const lane_t *lane, size_t i, uint64_t took_ms, uint64_t billable_ms)
{
    bill_t bill = {
        .amounts.seconds_ms = countable(took_ms), .is_billed = billing_is_billed(lane, i), .is_cost_known = true};
    price_t price;
    if (!bill.is_billed)
        return bill;
    bill.is_cost_known = price_now(lane->front, i, &price);
    billable_ms = countable(billable_ms);
    bill.amounts.paid_ms = bill.is_cost_known ? price_billable_ms(&price, billable_ms) : billable_ms;
    bill.amounts.cost_micro = bill.is_cost_known ? price_cost_micro(&price, billable_ms) : 0;
    return bill;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void take_worst(bill_t *worst, const bill_t *bill)
{
    worst->amounts.seconds_ms = larger(worst->amounts.seconds_ms, bill->amounts.seconds_ms);
    worst->amounts.paid_ms = larger(worst->amounts.paid_ms, bill->amounts.paid_ms);
    worst->amounts.cost_micro = larger(worst->amounts.cost_micro, bill->amounts.cost_micro);
    worst->is_billed |= bill->is_billed;
    worst->is_cost_known &= bill->is_cost_known;
}

bool billing_hold(const lane_t *lane, placement_t *placement, bill_t *hold, refusal_t *refusal)
{
    const front_t *front = lane->front;
    bool is_capped = front->caps.per_day.cost_micro != 0 || front->total_caps.per_day.cost_micro != 0;
    size_t kept = 0;
    *hold = (bill_t){.is_cost_known = true};
    for (size_t k = 0; k < placement->count; k++) {
        size_t i = placement->backend[k];
        uint64_t most = (uint64_t)placement->timeout_ms[k] + (billing_is_billed(lane, i) ? PAID_TEARDOWN_MS : 0);
        bill_t worst = billing_spent(lane, i, most, most);
        if (is_capped && !worst.is_cost_known)
            continue;
        take_worst(hold, &worst);
        placement->backend[kept] = placement->backend[k];
        placement->timeout_ms[kept++] = placement->timeout_ms[k];
    }
    bool had_any = placement->count != 0;
    placement->count = kept;
    if (kept != 0 || !had_any)
        return true;
    metric_inc(METRIC_SHED_PRICE);
    refusal_set(
        refusal, CODE_RESOURCE_EXHAUSTED, MARK_CAPACITY,
        "what this run would cost is not known, as its backend's price is missing or out of date, and costs are "
        "capped here: nothing ran");
    refusal->retry_after_ms = PRICE_RETRY_MS;
    return false;
}
