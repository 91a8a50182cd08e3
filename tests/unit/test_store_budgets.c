/* Budgets: holds, days split at midnight, holds that expire, what the ledger charges, settlements that are repeated. */
#include "tests/unit/store_clock.h"

#include "records/store_bill_lua.h"

enum { HOUR = 3600 * 1000, DAY = 24 * HOUR };
static const int64_t MIDNIGHT = INT64_C(1796083200000); /* 2026-12-01 00:00:00 UTC */
static char *removed_text;

static int setup(void **state)
{
    static const char body[] = "local P = ARGV[1]\n" STORE_BILL_LUA
                               "return bill_removed(ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), "
                               "tonumber(ARGV[6]), tonumber(ARGV[7]))";
    clock_setup(state);
    removed_text = clock_text(body);
    return 0;
}

static int teardown(void **state)
{
    free(removed_text);
    return clock_teardown(state);
}

/* What the ledger's script does once a sandbox is gone. */
static long long removed(const ids_t *ids, int64_t total_ms, int64_t reported_ms, int paid, int64_t price)
{
    char tag[33];
    memcpy(tag, ids->prefix + strlen(ROOT), 32);
    tag[32] = '\0';
    return direct_int("EVAL %s 0 %s %s %s %lld %lld %d %lld", removed_text, ROOT, ids->run_id, tag, (long long)total_ms,
                      (long long)reported_ms, paid, (long long)price);
}

static store_admission_t held(const ids_t *ids, uint64_t seconds, uint64_t paid, uint64_t cost)
{
    store_admission_t a = admission_of(ids);
    a.hold = (store_amounts_t){seconds, paid, cost};
    a.hold_ms = 10 * 60 * 1000;
    a.caps.per_day = a.total_caps.per_day = (store_amounts_t){DAY, DAY, 1000000};
    return a;
}

static void hold(const ids_t *ids, uint64_t seconds, uint64_t paid, uint64_t cost)
{
    store_admission_t a = held(ids, seconds, paid, cost);
    assert_int_equal(admit_now(&a).outcome, ADMIT_OK);
}

static store_settlement_t spent(const ids_t *ids, verdict_t verdict, uint64_t seconds, uint64_t paid, uint64_t cost)
{
    store_settlement_t s = settlement_of(ids, verdict);
    s.ended_unix_ms = INT64_MAX; /* of age 0 */
    s.spent = (store_amounts_t){seconds, paid, cost};
    s.is_cost_known = true;
    return s;
}

static void settle_spent(const ids_t *ids, uint64_t seconds, uint64_t paid, uint64_t cost)
{
    store_settlement_t s = spent(ids, VERDICT_ANSWERED, seconds, paid, cost);
    assert_true(settle_now(&s));
}

/* Of a day, by what the operator's list shows; zeros when the caller is not in it. */
static store_usage_t on_day(const ids_t *ids, const char *day)
{
    const usage_seen_t *seen = usage_all(day, NULL);
    assert_int_equal(seen->found, STORE_FOUND);
    for (size_t i = 0; i != seen->count; ++i) {
        assert_string_equal(seen->rows[i].day, day);
        if (strcmp(seen->callers[i], ids->caller) == 0)
            return seen->rows[i];
    }
    return (store_usage_t){.runs = 0};
}

/* The gateway's numbers are the sum of its callers', day by day. */
static store_amounts_t total_on(const char *day)
{
    store_amounts_t sum = {0, 0, 0};
    redisReply *reply = direct("HMGET " ROOT "day:%s seconds_ms paid_ms cost_micro", day);
    uint64_t *parts[] = {&sum.seconds_ms, &sum.paid_ms, &sum.cost_micro};
    for (size_t i = 0; i != 3; ++i)
        *parts[i] = reply->element[i]->type == REDIS_REPLY_STRING ? strtoull(reply->element[i]->str, NULL, 10) : 0;
    freeReplyObject(reply);
    return sum;
}

/* ---- holds ---- */

static void the_worst_case_is_held_and_the_real_amount_charged(void **state)
{
    (void)state;
    ids_t a = ids_fresh(), b = ids_next_request(a);
    hold(&a, 1000, 900, 80);
    hold(&b, 500, 400, 30);
    assert_amounts(usage_of(a.caller).held, 1500, 1300, 110);
    assert_amounts(usage_of(NULL).held, 1500, 1300, 110);
    assert_amounts(usage_of(NULL).spent, 0, 0, 0);
    settle_spent(&a, 700, 600, 50);
    assert_amounts(usage_of(a.caller).held, 500, 400, 30);
    assert_amounts(usage_of(a.caller).spent, 700, 600, 50);
    settle_spent(&b, 600, 450, 31); /* more than it held */
    assert_amounts(usage_of(a.caller).held, 0, 0, 0);
    assert_amounts(usage_of(NULL).held, 0, 0, 0);
    assert_amounts(usage_of(a.caller).spent, 1300, 1050, 81);
    assert_amounts(usage_of(NULL).spent, 1300, 1050, 81);
    assert_int_equal(usage_of(a.caller).runs, 2);
    assert_int_equal(direct_int("EXISTS " ROOT "held " ROOT "held:ends " ROOT "holds %sholds", a.prefix), 0);
}

static void what_is_spent_and_held_is_held_against_the_cap(void **state)
{
    (void)state;
    ids_t a = ids_fresh();
    hold(&a, 1000, 0, 0);
    settle_spent(&a, 400, 0, 0);
    ids_t b = ids_next_request(a), c = ids_next_request(a);
    hold(&b, 300, 0, 0);
    for (int more = -1; more <= 1; ++more) {
        store_admission_t ask = held(&c, (uint64_t)(300 + more), 0, 0);
        ask.caps.per_day = (store_amounts_t){1000, 0, 0};
        ask.total_caps.per_day = (store_amounts_t){0, 0, 0};
        store_admitted_t said = admit_now(&ask);
        assert_int_equal(said.outcome, more <= 0 ? ADMIT_OK : ADMIT_CAPPED);
        if (more > 0) {
            assert_int_equal(said.cap, CAP_SECONDS);
            assert_int_equal(said.cap_limit, 1000);
            assert_int_equal(said.cap_used, 700);
            assert_int_equal(said.retry_after_ms, 12 * HOUR);
        } else {
            store_settlement_t s = spent(&c, VERDICT_REFUSED, 0, 0, 0);
            s.give_back_rate = true;
            assert_true(settle_now(&s));
            c = ids_next_request(a);
        }
    }
}

static void settling_again_changes_nothing(void **state)
{
    (void)state;
    for (int verdict = VERDICT_ANSWERED; verdict <= VERDICT_UNKNOWN; ++verdict) {
        for (int keeps = 0; keeps != 2; ++keeps) {
            ids_t ids = ids_fresh();
            store_admission_t a = held(&ids, 1000, 900, 80);
            a.total_caps.slots = 10;
            a.window_s = 60;
            a.caps.runs_per_window = a.total_caps.runs_per_window = 10;
            a.caps.rate_per_min = a.total_caps.rate_per_min = 60;
            a.caps.burst = a.total_caps.burst = 10;
            assert_int_equal(admit_now(&a).outcome, ADMIT_OK);
            store_settlement_t s = spent(&ids, (verdict_t)verdict, 700, 600, 50);
            s.keeps_hold = keeps && verdict == VERDICT_UNKNOWN;
            assert_true(settle_now(&s));
            long long leaves = direct_int("LLEN " ROOT "log");
            for (int i = 0; i != 3; ++i)
                assert_writes_nothing(assert_true(settle_now(&s)));
            /* whatever somebody else says of the same run */
            store_settlement_t other = spent(&ids, (verdict_t)((verdict + 1) % 3), 1, 1, 1);
            other.give_back_rate = true;
            assert_true(settle_now(&other));
            assert_int_equal(direct_int("LLEN " ROOT "log"), leaves);
            assert_amounts(usage_of(ids.caller).spent, verdict == VERDICT_REFUSED || s.keeps_hold ? 0 : 700,
                           verdict == VERDICT_REFUSED || s.keeps_hold ? 0 : 600,
                           verdict == VERDICT_REFUSED || s.keeps_hold ? 0 : 50);
            assert_int_equal(usage_of(ids.caller).runs, verdict == VERDICT_REFUSED ? 0 : 1);
        }
    }
}

static void a_refused_run_costs_nothing(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    hold(&ids, 1000, 900, 80);
    store_settlement_t s = spent(&ids, VERDICT_REFUSED, 5, 5, 5); /* nothing ran, whatever is said */
    assert_true(settle_now(&s));
    assert_amounts(usage_of(ids.caller).held, 0, 0, 0);
    assert_amounts(usage_of(ids.caller).spent, 0, 0, 0);
    assert_int_equal(usage_of(ids.caller).runs, 0);
    assert_int_equal(usage_all(NULL, NULL)->count, 1); /* it was here */
}

static void time_without_a_price_is_shown(void **state)
{
    (void)state;
    ids_t a = ids_fresh(), b = ids_next_request(a);
    hold(&a, 1000, 1000, 0);
    store_settlement_t s = spent(&a, VERDICT_ANSWERED, 700, 600, 0);
    s.is_cost_known = false;
    assert_true(settle_now(&s));
    hold(&b, 1000, 1000, 40);
    settle_spent(&b, 500, 500, 20);
    assert_int_equal(usage_of(a.caller).unpriced_ms, 600);
    assert_int_equal(usage_of(NULL).unpriced_ms, 600);
    assert_false(get_run(a.caller, a.run_id)->runs[0].cost_known);
    assert_true(get_run(a.caller, b.run_id)->runs[0].cost_known);
}

/* ---- midnight ---- */

static void a_run_over_midnight_is_charged_to_both_days(void **state)
{
    (void)state;
    for (int is_held = 0; is_held != 2; ++is_held) {
        for (int64_t before = 0; before <= 4000; before += 1000) {
            clock_clean(state);
            clock_set(MIDNIGHT - before);
            ids_t ids = ids_fresh();
            store_admission_t a = is_held ? held(&ids, 9000, 9000, 900) : admission_of(&ids);
            assert_int_equal(admit_now(&a).outcome, ADMIT_OK);
            clock_add(4000);
            settle_spent(&ids, 4000, 4000, 401);
            uint64_t b = (uint64_t)before, cost = 401 * b / 4000;
            store_usage_t old = on_day(&ids, "20261130"), new = on_day(&ids, "20261201");
            if (before == 4000) { /* the last millisecond of it is yesterday's, now is today */
                assert_amounts(old.spent, 4000, 4000, 401);
                assert_int_equal(old.runs, 1);
            } else {
                assert_amounts(old.spent, b, b, cost);
                assert_amounts(new.spent, 4000 - b, 4000 - b, 401 - cost);
                assert_int_equal(old.runs, 0);
                assert_int_equal(new.runs, 1);
            }
            store_amounts_t total = total_on("20261130");
            assert_amounts(total, old.spent.seconds_ms, old.spent.paid_ms, old.spent.cost_micro);
            total = total_on("20261201");
            assert_amounts(total, new.spent.seconds_ms, new.spent.paid_ms, new.spent.cost_micro);
        }
    }
}

static void a_hold_counts_in_the_new_day_too(void **state)
{
    (void)state;
    ids_t a = ids_fresh(), b = ids_next_request(a), c = ids_next_request(a);
    hold(&c, 300, 0, 0);
    settle_spent(&c, 300, 0, 0);
    clock_set(MIDNIGHT - 1000);
    hold(&a, 900, 0, 0);
    clock_set(MIDNIGHT);
    store_admission_t ask = held(&b, 101, 0, 0);
    ask.caps.per_day.seconds_ms = 1000;
    store_admitted_t said = admit_now(&ask);
    assert_int_equal(said.outcome, ADMIT_CAPPED);
    assert_int_equal(said.cap_used, 900); /* and nothing of yesterday's 300 */
    assert_int_equal(said.retry_after_ms, DAY);
    ask.hold.seconds_ms = 100;
    assert_int_equal(admit_now(&ask).outcome, ADMIT_OK);
}

static void a_settlement_that_comes_late_is_charged_when_the_run_ended(void **state)
{
    (void)state;
    clock_set(MIDNIGHT + 6 * HOUR);
    ids_t ids = ids_fresh();
    store_settlement_t s = spent(&ids, VERDICT_ANSWERED, 1000, 0, 0);
    s.ended_unix_ms = clock_wall_ms() - 7 * HOUR; /* out of a spool, by the clock that wrote it */
    assert_true(settle_now(&s));
    assert_amounts(on_day(&ids, "20261130").spent, 1000, 0, 0);
    assert_amounts(on_day(&ids, "20261201").spent, 0, 0, 0);
    ids_t old = ids_fresh();
    s = spent(&old, VERDICT_ANSWERED, 1000, 0, 0);
    s.ended_unix_ms = 0; /* a clock that was never set: the oldest day there is */
    assert_true(settle_now(&s));
    assert_amounts(on_day(&old, "20261023").spent, 1000, 0, 0);
}

/* ---- expiry ---- */

static void a_hold_past_its_expiry_is_charged_whole(void **state)
{
    (void)state;
    ids_t dead = ids_fresh(), next = ids_fresh();
    hold(&dead, 1000, 900, 80);
    clock_add(10 * 60 * 1000 - 1);
    assert_amounts(usage_of(dead.caller).held, 1000, 900, 80);
    clock_add(1);
    hold(&next, 1, 1, 1); /* whoever comes next */
    assert_amounts(usage_of(dead.caller).held, 0, 0, 0);
    assert_amounts(usage_of(dead.caller).spent, 1000, 900, 80);
    assert_amounts(usage_of(NULL).spent, 1000, 900, 80);
    assert_amounts(usage_of(NULL).held, 1, 1, 1);
    /* the record comes after all: what really was takes its place, once */
    settle_spent(&dead, 300, 200, 20);
    settle_spent(&dead, 300, 200, 20);
    assert_amounts(usage_of(dead.caller).spent, 300, 200, 20);
    assert_amounts(usage_of(NULL).spent, 300, 200, 20);
    assert_int_equal(usage_of(dead.caller).runs, 1);
    assert_int_equal(direct_int("HLEN " ROOT "held"), 1);
}

static void a_kept_hold_stays_until_the_ledger_or_its_expiry(void **state)
{
    (void)state;
    for (int by_ledger = 0; by_ledger != 2; ++by_ledger) {
        clock_clean(state);
        ids_t ids = ids_fresh();
        hold(&ids, 100 * 1000, 100 * 1000, 800);
        store_settlement_t s = spent(&ids, VERDICT_UNKNOWN, 5, 5, 5);
        s.keeps_hold = true;
        assert_true(settle_now(&s));
        assert_amounts(usage_of(ids.caller).held, 100 * 1000, 100 * 1000, 800);
        assert_amounts(usage_of(ids.caller).spent, 0, 0, 0);
        assert_int_equal(usage_of(ids.caller).runs, 1);
        if (by_ledger) {
            clock_add(90 * 1000);
            assert_int_equal(removed(&ids, 90 * 1000, 0, 1, 36000), 0);
            assert_amounts(usage_of(ids.caller).spent, 90 * 1000, 90 * 1000, 900);
        } else {
            clock_add(10 * 60 * 1000);
            assert_amounts(usage_of(ids.caller).spent, 100 * 1000, 100 * 1000, 800);
        }
        assert_amounts(usage_of(ids.caller).held, 0, 0, 0);
        assert_amounts(usage_of(NULL).held, 0, 0, 0);
        assert_true(settle_now(&s)); /* again */
        assert_int_equal(usage_of(ids.caller).spent.seconds_ms, by_ledger ? 90 * 1000 : 100 * 1000);
    }
}

static void what_is_remembered_is_forgotten_after_eight_days(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    hold(&ids, 1000, 0, 0);
    clock_add(10 * 60 * 1000);
    usage_of(NULL);
    assert_int_equal(direct_int("HLEN " ROOT "held"), 1);
    clock_add(8 * (int64_t)DAY - 1);
    usage_of(NULL);
    assert_int_equal(direct_int("HLEN " ROOT "held"), 1);
    clock_add(1);
    usage_of(NULL);
    assert_int_equal(direct_int("EXISTS " ROOT "held " ROOT "held:ends " ROOT "holds"), 0);
}

/* ---- the ledger ---- */

static void late_seconds_are_added(void **state)
{
    (void)state;
    ids_t ids;
    /* its result said 2000; the delete took 3000 more. Before or after the settlement makes no difference. */
    for (int first = 0; first != 2; ++first) {
        clock_clean(state);
        ids = ids_fresh();
        hold(&ids, 9000, 9000, 100);
        clock_add(5000);
        if (first)
            assert_int_equal(removed(&ids, 5000, 2000, 1, 3600000), 0);
        settle_spent(&ids, 2000, 2000, 2000);
        if (!first)
            assert_int_equal(removed(&ids, 5000, 2000, 1, 3600000), 0);
        assert_amounts(usage_of(ids.caller).spent, 5000, 5000, 5000);
        assert_amounts(usage_of(NULL).spent, 5000, 5000, 5000);
        assert_amounts(usage_of(ids.caller).held, 0, 0, 0);
        if (!first) {
            const seen_t *seen = get_run(ids.caller, ids.run_id);
            assert_amounts(seen->runs[0].spent, 5000, 5000, 5000);
            assert_true(seen->runs[0].cost_known);
        }
    }
    assert_int_equal(removed(&ids, 2000, 2000, 1, 3600000), 0); /* in time: nothing more */
    assert_amounts(usage_of(ids.caller).spent, 5000, 5000, 5000);
}

static void late_seconds_over_midnight_are_split(void **state)
{
    (void)state;
    clock_set(MIDNIGHT - 1000);
    ids_t ids = ids_fresh();
    hold(&ids, 9000, 9000, 0);
    settle_spent(&ids, 500, 500, 0);
    clock_set(MIDNIGHT + 2000);
    assert_int_equal(removed(&ids, 3500, 500, 1, 0), 0);
    assert_amounts(on_day(&ids, "20261130").spent, 1500, 1500, 0);
    assert_amounts(usage_of(ids.caller).spent, 2000, 2000, 0);
    assert_int_equal(usage_of(ids.caller).unpriced_ms, 2000);
    assert_false(get_run(ids.caller, ids.run_id)->runs[0].cost_known);
}

static void a_run_that_nobody_settled_is_charged_by_the_ledger_once(void **state)
{
    (void)state;
    for (int is_held = 0; is_held != 2; ++is_held) {
        clock_clean(state);
        ids_t ids = ids_fresh();
        store_admission_t a = is_held ? held(&ids, 9000, 9000, 100) : admission_of(&ids);
        assert_int_equal(admit_now(&a).outcome, ADMIT_OK);
        clock_add(4000);
        assert_int_equal(removed(&ids, 4000, 0, 1, 3600000), 0);
        assert_amounts(usage_of(ids.caller).spent, 4000, 4000, 4000);
        assert_amounts(usage_of(ids.caller).held, 0, 0, 0);
        settle_spent(&ids, 3000, 3000, 3000); /* out of a spool */
        assert_amounts(usage_of(ids.caller).spent, 4000, 4000, 4000);
        assert_int_equal(usage_of(ids.caller).runs, 1);
    }
}

static void a_run_charged_whole_gets_the_ledgers_time_instead(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    hold(&ids, 9000, 9000, 100);
    clock_add(10 * 60 * 1000);
    assert_amounts(usage_of(ids.caller).spent, 9000, 9000, 100);
    assert_int_equal(removed(&ids, 600 * 1000, 0, 1, 3600), 0);
    assert_amounts(usage_of(ids.caller).spent, 600 * 1000, 600 * 1000, 600);
    assert_amounts(usage_of(NULL).spent, 600 * 1000, 600 * 1000, 600);
}

static void a_settled_run_without_a_report_is_charged_for_the_rest(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    assert_int_equal(admit(&ids).outcome, ADMIT_OK);
    clock_add(1000);
    store_settlement_t s = spent(&ids, VERDICT_UNKNOWN, 1000, 0, 0);
    assert_true(settle_now(&s));
    clock_add(3000);
    assert_int_equal(removed(&ids, 4000, 0, 0, 0), 0);
    assert_amounts(usage_of(ids.caller).spent, 4000, 0, 0);
    assert_int_equal(removed(&ids, 3999, 0, 0, 0), 0);
    assert_amounts(usage_of(ids.caller).spent, 4000, 0, 0);
}

static void a_second_sandbox_of_a_run_is_charged_too(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    hold(&ids, 9000, 9000, 100);
    clock_add(4000);
    assert_int_equal(removed(&ids, 4000, 0, 1, 0), 0);
    assert_int_equal(removed(&ids, 1000, 0, 1, 0), 0);
    assert_amounts(usage_of(ids.caller).spent, 5000, 5000, 0);
}

static void a_sandbox_of_many_days_is_charged_to_each_that_is_kept(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    clock_set(MIDNIGHT);
    assert_int_equal(removed(&ids, 100 * (int64_t)DAY, 0, 0, 0), 0);
    redisReply *keys = direct("KEYS %sday:*", ids.prefix);
    assert_int_equal(keys->elements, 41); /* the oldest has all that lies before it */
    freeReplyObject(keys);
    redisReply *one = direct("HGET %sday:20261130 seconds_ms", ids.prefix);
    assert_string_equal(one->str, "86400000");
    freeReplyObject(one);
    one = direct("EVAL %s 0 %s",
                 "local n = 0 for _, k in ipairs(redis.call('KEYS', ARGV[1] .. 'day:*')) do "
                 "n = n + redis.call('HGET', k, 'seconds_ms') end return n",
                 ids.prefix);
    assert_true(one->integer == 100 * (int64_t)DAY);
    freeReplyObject(one);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup(name, clock_clean)
    const struct CMUnitTest tests[] = {
        T(the_worst_case_is_held_and_the_real_amount_charged),
        T(what_is_spent_and_held_is_held_against_the_cap),
        T(settling_again_changes_nothing),
        T(a_refused_run_costs_nothing),
        T(time_without_a_price_is_shown),
        T(a_run_over_midnight_is_charged_to_both_days),
        T(a_hold_counts_in_the_new_day_too),
        T(a_settlement_that_comes_late_is_charged_when_the_run_ended),
        T(a_hold_past_its_expiry_is_charged_whole),
        T(a_kept_hold_stays_until_the_ledger_or_its_expiry),
        T(what_is_remembered_is_forgotten_after_eight_days),
        T(late_seconds_are_added),
        T(late_seconds_over_midnight_are_split),
        T(a_run_that_nobody_settled_is_charged_by_the_ledger_once),
        T(a_run_charged_whole_gets_the_ledgers_time_instead),
        T(a_settled_run_without_a_report_is_charged_for_the_rest),
        T(a_second_sandbox_of_a_run_is_charged_too),
        T(a_sandbox_of_many_days_is_charged_to_each_that_is_kept),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
