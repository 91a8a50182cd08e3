/* What a dead copy left is settled as unknown once its lease has run out, once, whoever looks. */
#include "store_fixture.h"

#include "records/store_bill_lua.h"
#include "records/store_internal.h"

#define ROOT "plimsoll:2:{test}:"

enum { LEASE_MS = 30 };

static store_admitted_t admit_short(const ids_t *ids, bool keyed, uint32_t lease_ms)
{
    store_admission_t admission = admission_of(ids);
    admission.lease_ms = lease_ms;
    if (!keyed)
        admission.request_id = NULL;
    return admit_now(&admission);
}

/* As the timer would, had the store been up for long enough. */
static void sweep_now(store_t *store)
{
    direct_do("DEL " ROOT "sweep");
    store->sweep.up_ms = STORE_SWEEP_UP_MS;
    loop_timer_start(fx.loop, &store->sweep.timer, 0);
}

static bool nothing_lives(void)
{
    return direct_int("HLEN " ROOT "live") == 0 && store_backlog(fx.store) == 0;
}

static long long leaves(void)
{
    return direct_int("LLEN " ROOT "log");
}

static int clean(void **state)
{
    (void)state;
    direct_do("FLUSHALL");
    return 0;
}

static void expect_swept(const ids_t *ids)
{
    const seen_t *seen = get_run(ids->caller, ids->run_id);
    assert_int_equal(seen->found, STORE_FOUND);
    assert_string_equal(seen->runs[0].verdict, "unknown");
    assert_string_equal(seen->runs[0].unknown_code, "unavailable");
    assert_string_equal(seen->runs[0].request_sha256, ids->digest);
    assert_string_equal(seen->runs[0].caller, ids->caller);
    assert_int_equal(seen->runs[0].ended - seen->runs[0].started, LEASE_MS);
    assert_int_equal(direct_int("ZCARD %sslots", ids->prefix), 0);
}

static void test_runs_of_a_dead_copy_get_their_record(void **state)
{
    ids_t keyed = ids_fresh(), unkeyed = ids_fresh();
    (void)state;
    assert_int_equal(admit_short(&keyed, true, LEASE_MS).outcome, ADMIT_OK);
    assert_int_equal(admit_short(&unkeyed, false, LEASE_MS).outcome, ADMIT_OK);
    assert_int_equal(look(&keyed).outcome, ADMIT_JOIN); /* somebody waits */
    assert_int_equal(direct_int("HLEN " ROOT "live"), 2);
    turn_for(2 * LEASE_MS);
    unsigned told = fx.settled_seen;
    sweep_now(fx.store);
    turn_until(nothing_lives);
    expect_swept(&keyed);
    expect_swept(&unkeyed);
    assert_string_equal(get_run(keyed.caller, keyed.run_id)->runs[0].request_id, keyed.request_id);
    assert_string_equal(get_run(unkeyed.caller, unkeyed.run_id)->runs[0].request_id, "");
    assert_int_equal(leaves(), 2);
    store_admitted_t again = admit(&keyed);
    assert_int_equal(again.outcome, ADMIT_OUTCOME_UNKNOWN);
    assert_string_equal(again.unknown_code, "unavailable");
    turn_for(20);
    assert_int_equal(fx.settled_seen, told + 1);
}

static void test_what_lives_or_was_settled_is_left_alone(void **state)
{
    ids_t live = ids_fresh(), answered = ids_fresh(), refused = ids_fresh();
    (void)state;
    assert_int_equal(admit_short(&live, true, 60000).outcome, ADMIT_OK);
    assert_int_equal(admit_short(&answered, true, LEASE_MS).outcome, ADMIT_OK);
    assert_int_equal(admit_short(&refused, true, LEASE_MS).outcome, ADMIT_OK);
    assert_true(settle(&answered, VERDICT_ANSWERED));
    assert_true(settle(&refused, VERDICT_REFUSED));
    assert_int_equal(direct_int("HLEN " ROOT "live"), 1);
    turn_for(2 * LEASE_MS);
    sweep_now(fx.store);
    turn_for(100);
    assert_int_equal(direct_int("HLEN " ROOT "live"), 1);
    assert_int_equal(look(&live).outcome, ADMIT_JOIN);
    assert_string_equal(get_run(answered.caller, answered.run_id)->runs[0].verdict, "answered");
    assert_string_equal(get_run(refused.caller, refused.run_id)->runs[0].verdict, "refused");
    assert_int_equal(leaves(), 1);
}

static void test_who_settles_first_makes_the_record(void **state)
{
    ids_t ids = ids_fresh();
    (void)state;
    assert_int_equal(admit_short(&ids, true, LEASE_MS).outcome, ADMIT_OK);
    turn_for(2 * LEASE_MS);
    sweep_now(fx.store);
    turn_until(nothing_lives);
    assert_true(settle(&ids, VERDICT_ANSWERED)); /* a spool that came too late */
    assert_string_equal(get_run(ids.caller, ids.run_id)->runs[0].verdict, "unknown");
    assert_int_equal(leaves(), 1);
    assert_int_equal(list_runs(ids.caller, 10, NULL)->count, 1);
}

static void test_a_clock_that_was_set_back_kept_slots_for_as_long(void **state)
{
    ids_t ids = ids_fresh();
    (void)state;
    assert_int_equal(admit_short(&ids, true, LEASE_MS).outcome, ADMIT_OK);
    /* as a clock an hour ahead would have written it */
    direct_do("EVAL %s 0 %s %s",
              "local v = redis.call('HGET', '" ROOT
              "live', ARGV[1]) local e, b, r = string.match(v, '^(%d+) (%d+) (.+)$') "
              "redis.call('HSET', '" ROOT "live', ARGV[1], string.format('%d %d ', e + 3600000, b + 3600000) .. r) "
              "redis.call('ZADD', ARGV[2] .. 'slots', e + 3600000, ARGV[1]) return 1",
              ids.run_id, ids.prefix);
    sweep_now(fx.store);
    turn_for(2 * LEASE_MS);
    assert_int_equal(direct_int("HLEN " ROOT "live"), 1);
    sweep_now(fx.store);
    turn_until(nothing_lives);
    expect_swept(&ids);
    assert_int_equal(look(&ids).outcome, ADMIT_OUTCOME_UNKNOWN);
}

static bool is_busy;

static void settle_one_more(void *data, bool stored)
{
    (void)data;
    (void)stored;
    if (!is_busy)
        return;
    ids_t ids = ids_fresh();
    store_settlement_t s = settlement_of(&ids, VERDICT_ANSWERED);
    store_settle(fx.store, &s, settle_one_more, NULL);
}

static long long swept_of(const ids_t *ids)
{
    return direct_int("HEXISTS " ROOT "live %s", ids->run_id) == 0;
}

static void test_a_copy_that_is_never_idle_never_looked(void **state)
{
    ids_t ids = ids_fresh();
    uint64_t until = clock_mono_ms() + WAIT_MS;
    (void)state;
    assert_int_equal(admit_short(&ids, true, LEASE_MS).outcome, ADMIT_OK);
    turn_for(2 * LEASE_MS);
    is_busy = true;
    settle_one_more(NULL, true);
    sweep_now(fx.store);
    while (!swept_of(&ids)) {
        assert_true(store_backlog(fx.store) != 0);
        assert_true(clock_mono_ms() < until);
        turn_for(5);
    }
    is_busy = false;
    turn_until(store_idle);
    expect_swept(&ids);
}

typedef struct {
    unsigned calls;
    store_amounts_t spent;
    bool is_cost_known;
} charged_t;

static void note_charged(void *data, store_lookup_t found, const store_run_t *runs, size_t count, const char *next)
{
    charged_t *out = data;
    (void)next;
    assert_int_equal(found, STORE_FOUND);
    assert_int_equal(count, 1);
    *out = (charged_t){out->calls + 1, runs[0].spent, runs[0].is_cost_known};
}

/* As the ledger's script does it. */
static void removed(const ids_t *ids, const char *total_ms, const char *reported_ms)
{
    static const char script[] =
        "local P = '" ROOT "'\n" STORE_BILL_LUA
        "return bill_removed(ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), 1, 3600000)";
    char tag[STORE_ID + 1];
    snprintf(tag, sizeof(tag), "%s", ids->prefix + strlen(ROOT));
    assert_int_equal(direct_int("EVAL %s 0 %s %s %s %s", script, ids->run_id, tag, total_ms, reported_ms), 0);
}

static void admit_paid(const ids_t *ids)
{
    store_admission_t admission = admission_of(ids);
    admission.lease_ms = LEASE_MS;
    admission.hold = (store_amounts_t){.seconds_ms = 9000, .paid_ms = 9000, .cost_micro = 9000};
    admission.hold_ms = 60000;
    assert_int_equal(admit_now(&admission).outcome, ADMIT_OK);
}

/* In the run's record and in the days, at a price of one a ms. */
static void expect_charged(const ids_t *ids, uint64_t ms)
{
    charged_t charged = {.calls = 0};
    store_run_get(fx.store, ids->caller, ids->run_id, note_charged, &charged);
    await_calls(&charged.calls);
    assert_int_equal(charged.spent.seconds_ms, ms);
    assert_int_equal(charged.spent.paid_ms, ms);
    assert_int_equal(charged.spent.cost_micro, ms);
    assert_true(charged.is_cost_known);
    redisReply *days = direct("KEYS " ROOT "day:*");
    unsigned long long spent = 0;
    for (size_t i = 0; i < days->elements; i++) {
        redisReply *one = direct("HGET %s seconds_ms", days->element[i]->str);
        spent += one->str != NULL ? strtoull(one->str, NULL, 10) : 0;
        freeReplyObject(one);
    }
    freeReplyObject(days);
    assert_int_equal(spent, ms);
}

/* The ledger found the sandbox of a dead copy and removed it before the run's lease ended. */
static void test_what_the_ledger_charged_is_in_the_record(void **state)
{
    ids_t ids = ids_fresh();
    (void)state;
    admit_paid(&ids);
    /* two sandboxes: a second was asked for when the first did not come */
    removed(&ids, "1200", "0");
    removed(&ids, "34", "0");
    turn_for(2 * LEASE_MS);
    sweep_now(fx.store);
    turn_until(nothing_lives);
    expect_swept(&ids);
    expect_charged(&ids, 1234);
}

/* The sandbox was gone, and later than the role had told the front, before the front's settlement came to Redis. */
static void test_late_seconds_before_the_settlement_are_in_the_record(void **state)
{
    ids_t ids = ids_fresh();
    (void)state;
    admit_paid(&ids);
    removed(&ids, "1500", "1000");
    removed(&ids, "1040", "1000");
    store_settlement_t s = settlement_of(&ids, VERDICT_ANSWERED);
    s.spent = (store_amounts_t){.seconds_ms = 1000, .paid_ms = 1000, .cost_micro = 1000};
    s.is_cost_known = true;
    assert_true(settle_now(&s));
    expect_charged(&ids, 1540);
    assert_true(settle_now(&s));
    expect_charged(&ids, 1540);
    removed(&ids, "1060", "1000");
    expect_charged(&ids, 1600);
    assert_int_equal(direct_int("HLEN " ROOT "held"), 0);
    assert_int_equal(direct_int("ZCARD " ROOT "held:ends"), 0);
}

/* The role told a front that was dead by then, and the ledger removed the sandbox: before or after the sweep, the whole
 * life is charged once and the hold is gone. */
static void test_a_kept_hold_and_a_report_are_not_charged_both(void **state)
{
    (void)state;
    for (int before = 0; before != 2; before++) {
        ids_t ids = ids_fresh();
        direct_do("FLUSHALL");
        admit_paid(&ids);
        if (before)
            removed(&ids, "1500", "1000");
        turn_for(2 * LEASE_MS);
        sweep_now(fx.store);
        turn_until(nothing_lives);
        if (!before)
            removed(&ids, "1500", "1000");
        expect_swept(&ids);
        expect_charged(&ids, 1500);
        assert_int_equal(direct_int("EXISTS " ROOT "holds %sholds", ids.prefix), 0);
        assert_int_equal(direct_int("HEXISTS " ROOT "held %s+", ids.run_id), 0);
    }
}

static void test_a_kept_hold_shows_nothing_until_it_is_charged(void **state)
{
    ids_t ids = ids_fresh();
    charged_t charged = {.calls = 0};
    (void)state;
    admit_paid(&ids);
    store_settlement_t s = settlement_of(&ids, VERDICT_UNKNOWN);
    s.spent = (store_amounts_t){.seconds_ms = 3, .paid_ms = 3, .cost_micro = 3};
    s.is_cost_known = s.keeps_hold = true;
    assert_true(settle_now(&s));
    store_run_get(fx.store, ids.caller, ids.run_id, note_charged, &charged);
    await_calls(&charged.calls);
    assert_int_equal(charged.spent.paid_ms, 0);
    assert_false(charged.is_cost_known);
    removed(&ids, "700", "0");
    expect_charged(&ids, 700);
}

/* Nothing ever came of a kept hold: it is charged whole at its end, before or after the sweep, and the record says so.
 */
static void test_a_hold_that_expires_is_in_the_record(void **state)
{
    (void)state;
    for (int before = 0; before != 2; before++) {
        ids_t ids = ids_fresh(), next = ids_fresh();
        direct_do("FLUSHALL");
        store_admission_t admission = admission_of(&ids);
        admission.lease_ms = admission.hold_ms = LEASE_MS;
        admission.hold = (store_amounts_t){.seconds_ms = 900, .paid_ms = 900, .cost_micro = 900};
        assert_int_equal(admit_now(&admission).outcome, ADMIT_OK);
        turn_for(2 * LEASE_MS);
        if (!before) {
            sweep_now(fx.store);
            turn_until(nothing_lives);
        }
        /* another's admission charges what has expired */
        admission = admission_of(&next);
        admission.total_caps.per_day.seconds_ms = 1000000;
        assert_int_equal(admit_now(&admission).outcome, ADMIT_OK);
        assert_true(settle(&next, VERDICT_REFUSED));
        if (before) {
            sweep_now(fx.store);
            turn_until(nothing_lives);
        }
        expect_charged(&ids, 900);
    }
}

static store_t *other;

static bool other_is_up(void)
{
    return store_is_up(other);
}

static void test_two_copies_sweep_one_run_once(void **state)
{
    ids_t ids = ids_fresh();
    (void)state;
    other = store_create(fx.loop, &fx.address, &(store_settings_t){.installation = "test"}, &(store_callbacks_t){0});
    turn_until(other_is_up);
    assert_int_equal(admit_short(&ids, false, LEASE_MS).outcome, ADMIT_OK);
    turn_for(2 * LEASE_MS);
    sweep_now(fx.store);
    turn_for(1);
    sweep_now(other); /* before the first has settled it, as a sweep that took longer than its turn */
    turn_until(nothing_lives);
    turn_for(50);
    expect_swept(&ids);
    assert_int_equal(leaves(), 1);
    assert_int_equal(list_runs(ids.caller, 10, NULL)->count, 1);
    store_destroy(other);
}

static void test_spools_come_first(void **state)
{
    ids_t ids = ids_fresh();
    (void)state;
    assert_int_equal(admit_short(&ids, true, LEASE_MS).outcome, ADMIT_OK);
    turn_for(2 * LEASE_MS);
    /* just up: not yet */
    fx.store->sweep.up_ms = 0;
    loop_timer_start(fx.loop, &fx.store->sweep.timer, 0);
    turn_for(50);
    assert_int_equal(direct_int("HLEN " ROOT "live"), 1);
    fx.store->sweep.up_ms = STORE_SWEEP_UP_MS - 2 * STORE_SWEEP_MS;
    loop_timer_start(fx.loop, &fx.store->sweep.timer, 0);
    turn_for(50);
    assert_int_equal(direct_int("HLEN " ROOT "live"), 1);
    fx.store->sweep.up_ms = STORE_SWEEP_UP_MS - STORE_SWEEP_MS;
    loop_timer_start(fx.loop, &fx.store->sweep.timer, 0);
    turn_until(nothing_lives);
}

static void test_what_is_not_ours_is_set_aside(void **state)
{
    static const char *const odd[] = {
        "", "x", "1 2", "1 2 ", "-1 2 - ", "1 2 -", "1 2 - short", "9999999999999999 1 - x", "1 2 zz"};
    ids_t ids = ids_fresh();
    (void)state;
    assert_int_equal(admit_short(&ids, false, LEASE_MS).outcome, ADMIT_OK);
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
        direct_do("HSET " ROOT "live %032x %s", (unsigned)i, odd[i]);
    direct_do("HSET " ROOT "live short %s", "1 2 - and more");
    turn_for(2 * LEASE_MS);
    sweep_now(fx.store);
    turn_for(100);
    expect_swept(&ids);
    assert_int_equal(leaves(), 1);
    assert_int_equal(direct_int("HLEN " ROOT "live"), 0);
    assert_int_equal(direct_int("HLEN " ROOT "live:aside"), sizeof(odd) / sizeof(odd[0]) + 1);
    /* a key of another type costs a run its place in the list, not the run */
    direct_do("DEL " ROOT "live");
    direct_do("SET " ROOT "live x");
    ids = ids_fresh();
    assert_int_equal(admit(&ids).outcome, ADMIT_OK);
    assert_true(settle(&ids, VERDICT_ANSWERED));
    sweep_now(fx.store);
    turn_for(50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_runs_of_a_dead_copy_get_their_record, clean),
        cmocka_unit_test_setup(test_what_lives_or_was_settled_is_left_alone, clean),
        cmocka_unit_test_setup(test_a_clock_that_was_set_back_kept_slots_for_as_long, clean),
        cmocka_unit_test_setup(test_a_copy_that_is_never_idle_never_looked, clean),
        cmocka_unit_test_setup(test_who_settles_first_makes_the_record, clean),
        cmocka_unit_test_setup(test_what_the_ledger_charged_is_in_the_record, clean),
        cmocka_unit_test_setup(test_late_seconds_before_the_settlement_are_in_the_record, clean),
        cmocka_unit_test_setup(test_a_kept_hold_and_a_report_are_not_charged_both, clean),
        cmocka_unit_test_setup(test_a_kept_hold_shows_nothing_until_it_is_charged, clean),
        cmocka_unit_test_setup(test_a_hold_that_expires_is_in_the_record, clean),
        cmocka_unit_test_setup(test_two_copies_sweep_one_run_once, clean),
        cmocka_unit_test_setup(test_spools_come_first, clean),
        cmocka_unit_test_setup(test_what_is_not_ours_is_set_aside, clean),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
