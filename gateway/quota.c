#include "gateway/quota.h"

#include <inttypes.h>
#include <stdio.h>

#include "config/decimal.h"
#include "config/prices.h"
#include "gateway/metrics.h"

enum { DAY_S = 86400, SECOND_PLACES = 3, SLOT_RETRY_MS = 1000 };

uint32_t quota_rate_window_s(const store_caps_t *caps, uint32_t limit)
{
    return caps->rate_per_min != 0 ? (uint32_t)(((uint64_t)60 * limit + caps->rate_per_min - 1) / caps->rate_per_min)
                                   : 60;
}

store_caps_t quota_caps(const front_t *front, const caller_t *caller)
{
    store_caps_t caps = front->caps;
    if (caller != NULL)
        caps.per_day.paid_ms = caller->paid_seconds_per_day * 1000; /* at most CALLER_PAID_MAX: no overflow */
    return caps;
}

static metric_t metric_of(store_cap_t cap, bool is_total)
{
    switch (cap) {
    case CAP_SLOTS:
        return is_total ? METRIC_SHED_TOTAL_SLOTS : METRIC_SHED_PER_KEY;
    case CAP_RATE:
        return is_total ? METRIC_SHED_TOTAL_RATE : METRIC_SHED_RATE;
    case CAP_RUNS:
        return is_total ? METRIC_SHED_TOTAL_RUNS : METRIC_SHED_RUNS;
    case CAP_SECONDS:
        return is_total ? METRIC_SHED_TOTAL_SECONDS : METRIC_SHED_SECONDS;
    case CAP_PAID:
        return is_total ? METRIC_SHED_PAID_DAEMON : METRIC_SHED_PAID_CALLER;
    default:
        return is_total ? METRIC_SHED_TOTAL_COST : METRIC_SHED_COST;
    }
}

/* The policy's name; "runs" is the rate's, as it always was. */
static const char *policy_of(store_cap_t cap, bool is_total)
{
    static const char *const own[CAP_COUNT] = {"", "slots", "runs", "window", "seconds", "paid-seconds", "cost"};
    static const char *const total[CAP_COUNT] = {"",
                                                 "gateway-slots",
                                                 "gateway-runs",
                                                 "gateway-window",
                                                 "gateway-seconds",
                                                 "gateway-paid-seconds",
                                                 "gateway-cost"};
    return is_total ? total[cap] : own[cap];
}

static uint32_t seconds_of(uint32_t ms)
{
    return ms == 0 ? 1 : 1 + (ms - 1) / 1000;
}

/* "…: 55 of 60 are used or held, and this run may need 38": for the three budgets of a day, in their own units. */
static void tell_budget(refusal_t *r, const store_admitted_t *a, uint64_t need, unsigned places, const char *name,
                        const char *unit)
{
    char used[DECIMAL_TEXT_MAX], limit[DECIMAL_TEXT_MAX], needed[DECIMAL_TEXT_MAX];
    decimal_print(a->cap_used, places, used);
    decimal_print(a->cap_limit, places, limit);
    decimal_print(need, places, needed);
    refusal_set(r, CODE_RESOURCE_EXHAUSTED, MARK_CAPACITY,
                "this caller's %s of the day would be passed: of %s%s, %s are used or held, and this run may need %s; "
                "the day ends in %u s%s",
                name, limit, unit, used, needed, seconds_of(a->retry_after_ms),
                need > a->cap_limit ? ", and no day has enough for this timeout" : "");
}

static void tell_own(refusal_t *r, const store_admitted_t *a, const quota_terms_t *t)
{
    char unit[16];
    switch (a->cap) {
    case CAP_SLOTS:
        refusal_set(r, CODE_RESOURCE_EXHAUSTED, MARK_CAPACITY,
                    "this caller runs as much at once as it may (%u); send it again when one of its runs has ended",
                    t->caps->slots);
        break;
    case CAP_RATE:
        refusal_set(
            r, CODE_RESOURCE_EXHAUSTED, MARK_CAPACITY,
            "this caller's rate of %u runs a minute is spent; Retry-After says in how many seconds to send it again",
            t->caps->rate_per_min);
        break;
    case CAP_RUNS:
        refusal_set(r, CODE_RESOURCE_EXHAUSTED, MARK_CAPACITY,
                    "this caller's %u runs of each %u seconds are spent; the next ones begin in %u s",
                    t->caps->runs_per_window, t->window_s, seconds_of(a->retry_after_ms));
        break;
    case CAP_SECONDS:
        tell_budget(r, a, t->hold->seconds_ms, SECOND_PLACES, "sandbox time", " seconds");
        break;
    case CAP_PAID:
        tell_budget(r, a, t->hold->paid_ms, SECOND_PLACES, "paid sandbox time", " seconds");
        break;
    default:
        snprintf(unit, sizeof(unit), "%s%s", t->currency[0] != '\0' ? " " : "", t->currency);
        tell_budget(r, a, t->hold->cost_micro, COST_PLACES, "cost", unit);
        break;
    }
}

static void tell_total(refusal_t *r, const store_admitted_t *a)
{
    static const char *const what[CAP_COUNT] = {
        "",
        "the gateway runs as much at once as it may, over all its copies; try again in a moment",
        "the gateway's rate of runs, of all callers together, is spent",
        "the gateway's runs of this window, of all callers together, are spent",
        "the gateway's sandbox time of the day, of all callers together, is spent or held",
        "the gateway's paid sandbox time of the day, of all callers together, is spent or held",
        "the gateway's cost of the day, of all callers together, is spent or held",
    };
    if (a->cap == CAP_SLOTS)
        refusal_set(r, CODE_RESOURCE_EXHAUSTED, MARK_CAPACITY, "%s", what[a->cap]);
    else
        refusal_set(r, CODE_RESOURCE_EXHAUSTED, MARK_CAPACITY, "%s; it resets in %u s", what[a->cap],
                    seconds_of(a->retry_after_ms));
}

/* The cap in the unit of its policy: runs, seconds, or millionths of the currency. */
static uint64_t policy_limit(const store_admitted_t *a, const store_caps_t *caps)
{
    switch (a->cap) {
    case CAP_SLOTS:
        return caps->slots;
    case CAP_RATE:
        return caps->burst;
    case CAP_RUNS:
        return caps->runs_per_window;
    case CAP_COST:
        return a->cap_limit;
    default:
        return a->cap_limit / 1000;
    }
}

static uint32_t policy_window(const store_admitted_t *a, const store_caps_t *caps, uint32_t window_s)
{
    if (a->cap == CAP_SLOTS)
        return 0;
    if (a->cap == CAP_RATE)
        return quota_rate_window_s(caps, caps->burst);
    return a->cap == CAP_RUNS ? window_s : DAY_S;
}

void quota_refuse(const store_admitted_t *a, const quota_terms_t *t, refusal_t *out)
{
    const store_caps_t *caps = a->is_total ? t->total_caps : t->caps;
    metric_inc(metric_of(a->cap, a->is_total));
    if (a->is_total)
        tell_total(out, a);
    else
        tell_own(out, a, t);
    out->quota = policy_of(a->cap, a->is_total);
    out->quota_limit = policy_limit(a, caps);
    out->quota_window_s = policy_window(a, caps, t->window_s);
    out->retry_after_ms = a->retry_after_ms != 0 ? a->retry_after_ms : a->cap == CAP_SLOTS ? SLOT_RETRY_MS : 1;
}

void quota_seen(const store_admitted_t *a, char out[QUOTA_SEEN_MAX])
{
    if (a->is_total)
        snprintf(out, QUOTA_SEEN_MAX, "cap=%s;scope=gateway;retry_after_ms=%u", store_cap_name(a->cap),
                 a->retry_after_ms);
    else if (a->cap == CAP_RATE)
        snprintf(out, QUOTA_SEEN_MAX, "cap=rate;scope=caller;limit=%" PRIu64 ";retry_after_ms=%u", a->cap_limit,
                 a->retry_after_ms);
    else
        snprintf(out, QUOTA_SEEN_MAX, "cap=%s;scope=caller;limit=%" PRIu64 ";used=%" PRIu64 ";retry_after_ms=%u",
                 store_cap_name(a->cap), a->cap_limit, a->cap_used, a->retry_after_ms);
}
