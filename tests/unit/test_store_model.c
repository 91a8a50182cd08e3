/*
 * Random sequences of admissions, settlements, repetitions, removals and time, held against a plain model: what is
 * admitted, which cap refuses, what is spent on which day and what is held. The seed is printed; PLIMSOLL_SEED repeats
 * one.
 */
#include "tests/unit/store_clock.h"

#include "records/store_bill_lua.h"

enum {
    CALLERS = 3,
    SCOPES = CALLERS + 1, /* the last: the whole gateway */
    RUNS = 40,            /* alive or lately settled */
    STEPS = 2500,
    DAYS = 12,
    WINDOW_S = 30,
    HOLD_MS = 120 * 1000,
    LEASE_MS = 60 * 1000,
};
static const int64_t DAY = 86400000, BEGIN = INT64_C(1796083200000) - 40 * 1000; /* 40 s before midnight */

static char *removed_text;

typedef enum { FREE, LIVE, WAITS /* settled, its hold kept */, WHOLE /* charged whole */, BILLED, OVER } stage_t;

typedef struct {
    stage_t stage;
    ids_t ids;
    int caller;
    bool settled, has_slot[2];
    int64_t since, lease_ends, hold_ends;
    int64_t held[3];
    int64_t record; /* sandbox ms its record shows */
    store_settlement_t last;
    bool has_last;
} model_run_t;

typedef struct {
    int64_t spent[DAYS][3], runs[DAYS];
    int64_t window, window_runs;
} model_scope_t;

static struct {
    char caller[CALLERS][33];
    model_run_t runs[RUNS];
    model_scope_t scopes[SCOPES];
    int64_t now;
    long long leaves;
    store_caps_t caps, total;
} m;

static uint64_t rng;
static uint32_t below(uint32_t n)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (uint32_t)(rng >> 16) % n;
}

static int day_of(int64_t ms)
{
    return (int)(ms / DAY - BEGIN / DAY);
}

static void charge(int caller, int64_t from, const int64_t amounts[3], int sign)
{
    for (int scope = caller;; scope = CALLERS) {
        int64_t at = from, ends = from + amounts[0], done[3] = {0, 0, 0};
        do {
            int64_t stop = (at / DAY + 1) * DAY < ends ? (at / DAY + 1) * DAY : ends, part = stop - from, now[3];
            int day = day_of(stop - 1 > at ? stop - 1 : at);
            for (int k = 0; k != 3; ++k)
                now[k] = stop == ends ? amounts[k] : amounts[k] * part / amounts[0];
            for (int k = 0; k != 3; ++k) {
                m.scopes[scope].spent[day][k] += sign * (now[k] - done[k]);
                done[k] = now[k];
            }
            at = stop;
        } while (at < ends);
        if (scope == CALLERS)
            return;
    }
}

static int64_t held_of(int scope, int k)
{
    int64_t sum = 0;
    for (int i = 0; i != RUNS; ++i) {
        const model_run_t *r = &m.runs[i];
        if ((r->stage == LIVE || r->stage == WAITS) && (scope == CALLERS || r->caller == scope))
            sum += r->held[k];
    }
    return sum;
}

static void expire(void)
{
    for (int i = 0; i != RUNS; ++i) {
        model_run_t *r = &m.runs[i];
        if ((r->stage == LIVE || r->stage == WAITS) && r->hold_ends <= m.now) {
            charge(r->caller, r->since, r->held, 1);
            r->stage = WHOLE;
        }
    }
}

static int slots_of(int scope)
{
    int count = 0;
    for (int i = 0; i != RUNS; ++i) {
        const model_run_t *r = &m.runs[i];
        count += (scope == CALLERS || r->caller == scope) && r->has_slot[scope == CALLERS] && r->lease_ends > m.now;
    }
    return count;
}

static int64_t window_of(int scope)
{
    return m.scopes[scope].window == m.now / 1000 / WINDOW_S ? m.scopes[scope].window_runs : 0;
}

static const store_caps_t *caps_of(int scope)
{
    return scope == CALLERS ? &m.total : &m.caps;
}

/* In the order the script looks. */
static store_cap_t refusing(int caller, const int64_t hold[3], bool *is_total)
{
    const int order[2] = {caller, CALLERS};
    *is_total = slots_of(CALLERS) >= (int)m.total.slots;
    if (*is_total || slots_of(caller) >= (int)m.caps.slots)
        return CAP_SLOTS;
    for (int i = 0; i != 2; ++i) {
        *is_total = i == 1;
        if (window_of(order[i]) >= caps_of(order[i])->runs_per_window)
            return CAP_RUNS;
    }
    for (int i = 0; i != 2; ++i) {
        const store_amounts_t *most = &caps_of(order[i])->per_day;
        const uint64_t limits[3] = {most->seconds_ms, most->paid_ms, most->cost_micro};
        *is_total = i == 1;
        for (int k = 0; k != 3; ++k) {
            int64_t have = m.scopes[order[i]].spent[day_of(m.now)][k] + held_of(order[i], k);
            if (limits[k] != 0 && have + hold[k] > (int64_t)limits[k])
                return (store_cap_t)(CAP_SECONDS + k);
        }
    }
    return CAP_NONE;
}

static void count_window(int scope, int sign, int64_t window)
{
    model_scope_t *s = &m.scopes[scope];
    if (sign > 0 && s->window != window) {
        s->window = window;
        s->window_runs = 0;
    }
    if (s->window == window)
        s->window_runs += sign;
}

static model_run_t *some_run(stage_t stage)
{
    for (int tries = 0; tries != 4 * RUNS; ++tries) {
        model_run_t *r = &m.runs[below(RUNS)];
        if (r->stage == stage)
            return r;
    }
    return NULL;
}

static void step_admit(void)
{
    model_run_t *r = some_run(FREE);
    if (r == NULL)
        r = some_run(OVER);
    if (r == NULL)
        return;
    int caller = (int)below(CALLERS);
    ids_t ids = ids_fresh();
    char sha[65];
    strcpy(ids.caller, m.caller[caller]);
    sha256_hex(ids.caller, strlen(ids.caller), sha);
    snprintf(ids.prefix, sizeof(ids.prefix), ROOT "%.32s:", sha);
    int64_t hold[3] = {1 + below(20000), below(20000), below(1000)};
    store_admission_t a = admission_of(&ids);
    a.caps = m.caps;
    a.total_caps = m.total;
    a.window_s = WINDOW_S;
    a.lease_ms = LEASE_MS;
    a.hold = (store_amounts_t){(uint64_t)hold[0], (uint64_t)hold[1], (uint64_t)hold[2]};
    a.hold_ms = HOLD_MS;
    if (below(2) == 0)
        a.request_id = NULL;
    bool is_total;
    store_cap_t cap;
    /* slots and windows are looked at before the script charges what has expired, which changes neither */
    expire();
    cap = refusing(caller, hold, &is_total);
    store_admitted_t said = admit_now(&a);
    if (cap != CAP_NONE) {
        assert_int_equal(said.outcome, ADMIT_CAPPED);
        assert_int_equal(said.cap, cap);
        assert_int_equal(said.is_total, is_total);
        return;
    }
    assert_int_equal(said.outcome, ADMIT_OK);
    *r = (model_run_t){.stage = LIVE,
                       .caller = caller,
                       .has_slot = {true, true},
                       .since = m.now,
                       .lease_ends = m.now + LEASE_MS,
                       .hold_ends = m.now + HOLD_MS,
                       .held = {hold[0], hold[1], hold[2]}};
    r->ids = ids;
    if (a.request_id == NULL)
        r->ids.request_id[0] = '\0';
    count_window(caller, 1, m.now / 1000 / WINDOW_S);
    count_window(CALLERS, 1, m.now / 1000 / WINDOW_S);
    /* leases that ran out are counted until they would matter */
    assert_in_range(said.slots_in_use, slots_of(caller), m.caps.slots);
}

static store_settlement_t settlement_for(const model_run_t *r, verdict_t verdict, const int64_t spent[3])
{
    store_settlement_t s = settlement_of(&r->ids, verdict);
    s.request_id = r->ids.request_id[0] != '\0' ? r->ids.request_id : NULL;
    s.ended_unix_ms = INT64_MAX;
    s.spent = (store_amounts_t){(uint64_t)spent[0], (uint64_t)spent[1], (uint64_t)spent[2]};
    s.is_cost_known = true;
    return s;
}

static void step_settle(void)
{
    static const stage_t stages[] = {LIVE, LIVE, LIVE, WHOLE, BILLED};
    model_run_t *r = some_run(stages[below(5)]);
    if (r == NULL || r->settled)
        return;
    verdict_t verdict = (verdict_t)below(3);
    bool keeps = verdict == VERDICT_UNKNOWN && below(2) == 0;
    const int64_t spent[3] = {below(20000), below(20000), below(1000)};
    store_settlement_t s = settlement_for(r, verdict, spent);
    s.keeps_hold = keeps;
    assert_true(settle_now(&s));
    bool freed = r->has_slot[0];
    r->has_slot[0] = r->has_slot[1] = false;
    r->settled = true;
    if (verdict == VERDICT_REFUSED && freed) {
        count_window(r->caller, -1, r->since / 1000 / WINDOW_S);
        count_window(CALLERS, -1, r->since / 1000 / WINDOW_S);
    }
    m.leaves += verdict != VERDICT_REFUSED;
    r->record = r->stage == BILLED ? r->record : spent[0];
    if (keeps) {
        int64_t now = m.now;
        m.scopes[r->caller].runs[day_of(now)] += 1;
        m.scopes[CALLERS].runs[day_of(now)] += 1;
        if (r->stage == LIVE)
            r->stage = WAITS;
        return;
    }
    if (r->stage == WHOLE)
        charge(r->caller, r->since, r->held, -1);
    if (verdict != VERDICT_REFUSED) {
        const int64_t nothing[3] = {0, 0, 0}, *real = r->stage == BILLED ? nothing : spent;
        int64_t from = r->stage == BILLED ? m.now : r->since, ends = from + real[0];
        charge(r->caller, from, real, 1);
        int day = day_of(ends - 1 > from ? ends - 1 : from);
        m.scopes[r->caller].runs[day] += 1;
        m.scopes[CALLERS].runs[day] += 1;
    }
    r->stage = OVER;
}

static void step_settle_again(void)
{
    model_run_t *r = some_run(OVER);
    if (r == NULL || !r->settled)
        return;
    const int64_t spent[3] = {7, 7, 7};
    store_settlement_t s = settlement_for(r, (verdict_t)below(3), spent);
    s.keeps_hold = below(2) == 0;
    assert_true(settle_now(&s));
}

/* The ledger: of a run that never reported. */
static void step_remove(void)
{
    static const stage_t stages[] = {LIVE, WAITS, WAITS, WHOLE};
    model_run_t *r = some_run(stages[below(4)]);
    if (r == NULL)
        return;
    const int64_t total = 1 + below(30000);
    const int64_t amounts[3] = {total, total, (total * 36 + 3599) / 3600}; /* 36,000 micros an hour */
    char tag[33];
    memcpy(tag, r->ids.prefix + strlen(ROOT), 32);
    tag[32] = '\0';
    assert_int_equal(direct_int("EVAL %s 0 %s %s %s %lld", removed_text, ROOT, r->ids.run_id, tag, (long long)total),
                     0);
    if (r->stage == WHOLE)
        charge(r->caller, r->since, r->held, -1);
    charge(r->caller, m.now - total, amounts, 1);
    r->record = total;
    r->stage = r->settled ? OVER : BILLED;
}

static void step_time(void)
{
    static const uint32_t jumps[] = {5, 500, 5000, 30000, 90000, 3 * 3600 * 1000};
    m.now += 1 + below(jumps[below(6)]);
    if (day_of(m.now) >= DAYS - 1)
        m.now = BEGIN + (DAYS - 1) * DAY;
    clock_set(m.now);
    for (int i = 0; i != RUNS; ++i) {
        model_run_t *r = &m.runs[i];
        /* a place in the table is used again once nothing comes of it any more */
        if (r->stage == OVER && below(8) == 0)
            *r = (model_run_t){.stage = FREE};
    }
}

static void compare(void)
{
    int today = day_of(m.now);
    expire();
    for (int scope = 0; scope != SCOPES; ++scope) {
        const usage_seen_t *seen =
            usage_seen(scope == CALLERS ? NULL : m.caller[scope], &(store_caps_t){.slots = 0}, WINDOW_S);
        assert_int_equal(seen->found, STORE_FOUND);
        const store_usage_t *u = &seen->first;
        const int64_t *spent = m.scopes[scope].spent[today];
        if (!amounts_are(&u->spent, (uint64_t)spent[0], (uint64_t)spent[1], (uint64_t)spent[2]))
            fprintf(stderr, "scope %d day %d: the model has %lld %lld %lld\n", scope, today, (long long)spent[0],
                    (long long)spent[1], (long long)spent[2]);
        assert_amounts(u->spent, (uint64_t)spent[0], (uint64_t)spent[1], (uint64_t)spent[2]);
        assert_amounts(u->held, (uint64_t)held_of(scope, 0), (uint64_t)held_of(scope, 1), (uint64_t)held_of(scope, 2));
        assert_int_equal(u->slots_in_use, slots_of(scope));
        assert_int_equal(u->window_runs, window_of(scope));
        assert_int_equal(u->runs, m.scopes[scope].runs[today]);
    }
    assert_int_equal(direct_int("LLEN " ROOT "log"), m.leaves);
}

static void a_sequence(uint64_t seed)
{
    direct_do("FLUSHALL");
    memset(&m, 0, sizeof(m));
    rng = seed * 2 + 1;
    for (int i = 0; i != 8; ++i)
        below(2);
    for (int i = 0; i != CALLERS; ++i)
        random_hex(m.caller[i], 16);
    m.caps = (store_caps_t){.slots = 4, .runs_per_window = 6, .per_day = {120000, 100000, 6000}};
    m.total = (store_caps_t){.slots = 8, .runs_per_window = 12, .per_day = {250000, 0, 14000}};
    m.now = BEGIN;
    clock_set(m.now);
    unsigned odds[] = {40, 25, 5, 6, 20, 4};
    void (*const steps[])(void) = {step_admit, step_settle, step_settle_again, step_remove, step_time, compare};
    for (int i = 0; i != STEPS; ++i) {
        unsigned pick = below(100), step = 0;
        while (pick >= odds[step])
            pick -= odds[step++];
        steps[step]();
    }
    compare();
}

static void the_store_does_what_the_model_does(void **state)
{
    (void)state;
    const char *given = getenv("PLIMSOLL_SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : clock_mono_us();
    for (int i = 0; i != (given != NULL ? 1 : 3); ++i) {
        fprintf(stderr, "PLIMSOLL_SEED=%llu\n", (unsigned long long)(seed + (uint64_t)i));
        a_sequence(seed + (uint64_t)i);
    }
}

static int setup(void **state)
{
    static const char body[] =
        "local P = ARGV[1]\n" STORE_BILL_LUA "return bill_removed(ARGV[2], ARGV[3], tonumber(ARGV[4]), 0, 1, 36000)";
    clock_setup(state);
    removed_text = clock_text(body);
    return 0;
}

static int teardown(void **state)
{
    free(removed_text);
    return clock_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_store_does_what_the_model_does)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
