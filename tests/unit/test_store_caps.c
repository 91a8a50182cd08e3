/* Every cap of a caller and of the whole gateway at limit - 1, limit and limit + 1; windows; what a refusal leaves. */
#include "tests/unit/store_clock.h"

enum { SCOPES = 2, WINDOW_S = 60 };

/* A caller's run with nothing but a lease and a hold. */
static store_admission_t plain(const ids_t *ids)
{
    store_admission_t a = admission_of(ids);
    a.window_s = WINDOW_S;
    a.hold = (store_amounts_t){.seconds_ms = 10, .paid_ms = 10, .cost_micro = 10};
    a.hold_ms = 60000;
    return a;
}

static void set_cap(store_caps_t *caps, store_cap_t cap, uint32_t limit)
{
    switch (cap) {
    case CAP_SLOTS:
        caps->slots = limit;
        break;
    case CAP_RATE:
        caps->rate_per_min = 1;
        caps->burst = limit;
        break;
    case CAP_RUNS:
        caps->runs_per_window = limit;
        break;
    case CAP_SECONDS:
        caps->per_day.seconds_ms = 10 * limit;
        break;
    case CAP_PAID:
        caps->per_day.paid_ms = 10 * limit;
        break;
    case CAP_COST:
        caps->per_day.cost_micro = 10 * limit;
        break;
    default:
        fail();
    }
}

static store_settlement_t settlement_now(const ids_t *ids, verdict_t verdict)
{
    store_settlement_t s = settlement_of(ids, verdict);
    s.ended_unix_ms = INT64_MAX; /* of age 0 */
    s.is_cost_known = true;
    return s;
}

static void each_cap_is_exact_in_each_scope(void **state)
{
    enum { LIMIT = 4 };
    for (int is_total = 0; is_total != SCOPES; ++is_total) {
        for (int cap = CAP_SLOTS; cap != CAP_COUNT; ++cap) {
            clock_clean(state);
            ids_t first = ids_fresh(), ids[LIMIT + 1];
            for (int i = 0; i <= LIMIT; ++i) {
                ids[i] = is_total ? ids_fresh() : ids_next_request(first);
                store_admission_t a = plain(&ids[i]);
                set_cap(is_total ? &a.total_caps : &a.caps, (store_cap_t)cap, LIMIT);
                if (i < LIMIT) {
                    store_admitted_t said = admit_now(&a);
                    assert_int_equal(said.outcome, ADMIT_OK);
                    assert_int_equal(said.slots_in_use, is_total ? 1 : i + 1);
                    continue;
                }
                for (int keyed = 0; keyed != 2; ++keyed) {
                    store_admitted_t said = {.outcome = ADMIT_OK};
                    if (!keyed)
                        a.request_id = NULL;
                    else
                        a.request_id = ids[i].request_id;
                    assert_writes_nothing(said = admit_now(&a));
                    assert_int_equal(said.outcome, ADMIT_CAPPED);
                    assert_int_equal(said.cap, cap);
                    assert_int_equal(said.is_total, is_total);
                    assert_int_equal(said.cap_limit, cap >= CAP_SECONDS ? 10 * LIMIT : LIMIT);
                    if (cap != CAP_RATE)
                        assert_int_equal(said.cap_used, cap >= CAP_SECONDS ? 10 * LIMIT : LIMIT);
                    uint32_t wait = cap == CAP_SLOTS  ? STORE_SLOT_RETRY_MS
                                    : cap == CAP_RATE ? 60000
                                    : cap == CAP_RUNS ? WINDOW_S * 1000
                                                      : 12 * 3600 * 1000;
                    assert_int_equal(said.retry_after_ms, wait);
                }
            }
            /* a run that was refused after all makes room, and exactly one of them */
            store_settlement_t s = settlement_now(&ids[1], VERDICT_REFUSED);
            assert_true(settle_now(&s));
            assert_true(settle_now(&s));
            store_admission_t a = plain(&ids[LIMIT]);
            set_cap(is_total ? &a.total_caps : &a.caps, (store_cap_t)cap, LIMIT);
            assert_int_equal(admit_now(&a).outcome, ADMIT_OK);
            ids_t more = is_total ? ids_fresh() : ids_next_request(first);
            a = plain(&more);
            set_cap(is_total ? &a.total_caps : &a.caps, (store_cap_t)cap, LIMIT);
            assert_int_equal(admit_now(&a).outcome, ADMIT_CAPPED);
            /* the other callers' is another number, the gateway's is not */
            ids_t other = ids_fresh();
            a = plain(&other);
            set_cap(is_total ? &a.total_caps : &a.caps, (store_cap_t)cap, LIMIT);
            assert_int_equal(admit_now(&a).outcome, is_total ? ADMIT_CAPPED : ADMIT_OK);
        }
    }
}

static void what_one_cap_refuses_costs_no_other(void **state)
{
    (void)state;
    ids_t a = ids_fresh(), b = ids_next_request(a);
    store_admission_t first = plain(&a), second = plain(&b);
    for (int cap = CAP_SLOTS; cap != CAP_COUNT; ++cap) {
        set_cap(&first.caps, (store_cap_t)cap, 2);
        set_cap(&first.total_caps, (store_cap_t)cap, 2);
    }
    second.caps = first.caps;
    second.total_caps = first.total_caps;
    second.total_caps.per_day.cost_micro = 19; /* the last that is looked at */
    assert_int_equal(admit_now(&first).outcome, ADMIT_OK);
    store_admitted_t said = {.outcome = ADMIT_OK};
    assert_writes_nothing(said = admit_now(&second));
    assert_int_equal(said.outcome, ADMIT_CAPPED);
    assert_int_equal(said.cap, CAP_COST);
    assert_true(said.is_total);
    assert_int_equal(said.rate_remaining, 1);
    second.total_caps.per_day.cost_micro = 20;
    said = admit_now(&second);
    assert_int_equal(said.outcome, ADMIT_OK);
    assert_int_equal(said.rate_remaining, 0);
}

static void replays_joins_and_conflicts_cost_nothing(void **state)
{
    (void)state;
    ids_t ids = ids_fresh(), again = ids_next_run(ids), other = ids_next_run(ids);
    random_hex(other.digest, 32);
    store_admission_t a = plain(&ids);
    for (int cap = CAP_SLOTS; cap != CAP_COUNT; ++cap)
        set_cap(&a.total_caps, (store_cap_t)cap, 1);
    assert_int_equal(admit_now(&a).outcome, ADMIT_OK);
    store_admission_t next = a;
    next.run_id = again.run_id;
    assert_int_equal(admit_now(&next).outcome, ADMIT_JOIN);
    assert_writes_nothing(assert_int_equal(admit_now(&next).outcome, ADMIT_JOIN));
    next.request_sha256 = other.digest;
    assert_writes_nothing(assert_int_equal(admit_now(&next).outcome, ADMIT_CONFLICT));
    store_settlement_t s = settlement_now(&ids, VERDICT_ANSWERED);
    assert_true(settle_now(&s));
    next.request_sha256 = ids.digest;
    assert_writes_nothing(assert_int_equal(admit_now(&next).outcome, ADMIT_ANSWERED));
}

/* ---- windows ---- */

static store_admitted_t admit_window(ids_t ids, uint32_t own, uint32_t total)
{
    store_admission_t a = plain(&ids);
    a.hold = (store_amounts_t){.seconds_ms = 0};
    a.caps.runs_per_window = own;
    a.total_caps.runs_per_window = total;
    return admit_now(&a);
}

static void a_window_ends_on_its_millisecond(void **state)
{
    (void)state;
    ids_t first = ids_fresh();
    clock_set(CLOCK_NOON + 59 * 1000);
    assert_int_equal(admit_window(first, 1, 0).outcome, ADMIT_OK);
    clock_set(CLOCK_NOON + 59 * 1000 + 999);
    store_admitted_t said = admit_window(ids_next_request(first), 1, 0);
    assert_int_equal(said.outcome, ADMIT_CAPPED);
    assert_int_equal(said.retry_after_ms, 1);
    clock_set(CLOCK_NOON + 60 * 1000);
    assert_int_equal(admit_window(ids_next_request(first), 1, 0).outcome, ADMIT_OK);
    said = admit_window(ids_next_request(first), 1, 0);
    assert_int_equal(said.outcome, ADMIT_CAPPED);
    assert_int_equal(said.retry_after_ms, 60 * 1000);
}

static void what_was_taken_in_a_window_goes_back_to_that_one_alone(void **state)
{
    (void)state;
    ids_t a = ids_fresh(), b = ids_next_request(a), c = ids_next_request(a);
    assert_int_equal(admit_window(a, 2, 2).outcome, ADMIT_OK);
    clock_add(60 * 1000);
    assert_int_equal(admit_window(b, 2, 2).outcome, ADMIT_OK);
    assert_int_equal(admit_window(c, 2, 2).outcome, ADMIT_OK);
    store_settlement_t s = settlement_now(&a, VERDICT_REFUSED);
    assert_true(settle_now(&s)); /* of the window before */
    assert_int_equal(admit_window(ids_next_request(a), 2, 2).outcome, ADMIT_CAPPED);
    s = settlement_now(&b, VERDICT_REFUSED);
    assert_true(settle_now(&s));
    assert_int_equal(admit_window(ids_next_request(a), 2, 2).outcome, ADMIT_OK);
    assert_int_equal(admit_window(ids_next_request(a), 2, 2).outcome, ADMIT_CAPPED);
    s = settlement_now(&c, VERDICT_ANSWERED);
    assert_true(settle_now(&s)); /* an answered one was used */
    assert_int_equal(admit_window(ids_next_request(a), 2, 2).outcome, ADMIT_CAPPED);
}

static void a_run_counts_where_a_cap_was_and_goes_back_there(void **state)
{
    (void)state;
    ids_t own = ids_fresh(), total = ids_fresh();
    assert_int_equal(admit_window(own, 3, 0).outcome, ADMIT_OK);
    assert_int_equal(admit_window(total, 0, 3).outcome, ADMIT_OK);
    const usage_seen_t *seen = usage_seen(NULL, &(store_caps_t){.slots = 0}, WINDOW_S);
    assert_int_equal(seen->first.window_runs, 1);
    assert_int_equal(seen->first.window_reset_ms, 60000);
    seen = usage_seen(own.caller, &(store_caps_t){.slots = 0}, WINDOW_S);
    assert_int_equal(seen->first.window_runs, 1);
    store_settlement_t s = settlement_now(&own, VERDICT_REFUSED);
    assert_true(settle_now(&s));
    assert_int_equal(usage_seen(NULL, &(store_caps_t){.slots = 0}, WINDOW_S)->first.window_runs, 1);
    assert_int_equal(usage_seen(own.caller, &(store_caps_t){.slots = 0}, WINDOW_S)->first.window_runs, 0);
    s = settlement_now(&total, VERDICT_REFUSED);
    assert_true(settle_now(&s));
    assert_int_equal(usage_seen(NULL, &(store_caps_t){.slots = 0}, WINDOW_S)->first.window_runs, 0);
}

static void another_length_of_window_counts_anew(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    assert_int_equal(admit_window(ids, 1, 0).outcome, ADMIT_OK);
    assert_int_equal(admit_window(ids_next_request(ids), 1, 0).outcome, ADMIT_CAPPED);
    ids_t next = ids_next_request(ids);
    store_admission_t a = plain(&next);
    a.window_s = 61;
    a.caps.runs_per_window = 1;
    assert_int_equal(admit_now(&a).outcome, ADMIT_OK);
    a.window_s = 0; /* no window, no cap on it */
    next = ids_next_request(ids);
    assert_int_equal(admit_now(&a).outcome, ADMIT_OK);
}

/* ---- the gateway's rate and slots ---- */

static void the_gateways_rate_is_one_for_all_callers(void **state)
{
    (void)state;
    for (int i = 0; i != 3; ++i) {
        ids_t ids = ids_fresh();
        store_admission_t a = plain(&ids);
        a.caps.rate_per_min = 60;
        a.caps.burst = 60;
        a.total_caps.rate_per_min = 60;
        a.total_caps.burst = 2;
        store_admitted_t said = admit_now(&a);
        assert_int_equal(said.outcome, i < 2 ? ADMIT_OK : ADMIT_CAPPED);
        if (i == 2) {
            assert_true(said.is_total);
            assert_int_equal(said.cap, CAP_RATE);
            assert_int_equal(said.cap_limit, 2);
            assert_int_equal(said.rate_remaining, 60);
            assert_int_equal(said.retry_after_ms, 1000);
            clock_add(999);
            assert_int_equal(admit_now(&a).outcome, ADMIT_CAPPED);
            clock_add(1);
            assert_int_equal(admit_now(&a).outcome, ADMIT_OK);
            assert_int_equal(admit_now(&a).outcome, ADMIT_JOIN);
            store_settlement_t s = settlement_now(&ids, VERDICT_REFUSED);
            assert_true(settle_now(&s));
            a.run_id = ids.digest; /* not one */
            assert_int_equal(admit_now(&a).outcome, ADMIT_NO_STORE);
            ids_t again = ids_next_run(ids);
            a.run_id = again.run_id;
            assert_int_equal(admit_now(&a).outcome, ADMIT_OK);
        }
    }
}

static void the_gateways_slots_free_themselves_by_lease(void **state)
{
    (void)state;
    ids_t dead = ids_fresh(), alive = ids_fresh(), next = ids_fresh();
    store_admission_t a = plain(&dead);
    a.total_caps.slots = 2;
    a.lease_ms = 1000;
    assert_int_equal(admit_now(&a).outcome, ADMIT_OK);
    a = plain(&alive);
    a.total_caps.slots = 2;
    assert_int_equal(admit_now(&a).outcome, ADMIT_OK);
    a = plain(&next);
    a.total_caps.slots = 2;
    clock_add(999);
    assert_int_equal(admit_now(&a).outcome, ADMIT_CAPPED);
    assert_int_equal(usage_of(NULL).slots_in_use, 2);
    clock_add(1);
    assert_int_equal(usage_of(NULL).slots_in_use, 1);
    assert_int_equal(admit_now(&a).outcome, ADMIT_OK);
    assert_int_equal(direct_int("ZCARD " ROOT "slots"), 2);
    /* the dead one is settled by somebody after all: nothing of the others' goes */
    store_settlement_t s = settlement_now(&dead, VERDICT_UNKNOWN);
    assert_true(settle_now(&s));
    assert_int_equal(direct_int("ZCARD " ROOT "slots"), 2);
    s = settlement_now(&next, VERDICT_ANSWERED);
    assert_true(settle_now(&s));
    assert_int_equal(direct_int("ZCARD " ROOT "slots"), 1);
}

/* ---- two stores ---- */

static void two_stores_share_every_limit(void **state)
{
    (void)state;
    enum { AT_ONCE = 60, LIMIT = 7 };
    static admitted_t out[AT_ONCE];
    static ids_t ids[AT_ONCE];
    store_t *second = store_create(fx.loop, &fx.address, &(store_settings_t){.installation = "test"},
                                   &(store_callbacks_t){.on_settled = NULL});
    clock_on(second);
    uint64_t until = clock_mono_ms() + WAIT_MS;
    while (!store_is_up(second) && clock_mono_ms() < until)
        loop_run_once(fx.loop, 5);
    for (int cap = CAP_SLOTS; cap != CAP_COUNT; ++cap) {
        clock_clean(state);
        memset(out, 0, sizeof(out));
        for (int i = 0; i != AT_ONCE; ++i) {
            ids[i] = ids_fresh();
            store_admission_t a = plain(&ids[i]);
            set_cap(&a.total_caps, (store_cap_t)cap, LIMIT);
            store_admit(i % 2 ? second : fx.store, &a, note_admitted, &out[i]);
        }
        int taken = 0;
        for (int i = 0; i != AT_ONCE; ++i) {
            await_calls(&out[i].calls);
            assert_true(out[i].said.outcome == ADMIT_OK || out[i].said.outcome == ADMIT_CAPPED);
            taken += out[i].said.outcome == ADMIT_OK;
        }
        assert_int_equal(taken, LIMIT);
    }
    store_destroy(second);
}

static void another_installation_counts_for_itself(void **state)
{
    (void)state;
    store_t *real = fx.store;
    ids_t ids = ids_fresh(), next = ids_next_request(ids);
    store_admission_t a = plain(&ids);
    a.total_caps.slots = 1;
    assert_int_equal(admit_now(&a).outcome, ADMIT_OK);
    fx.store = store_create(fx.loop, &fx.address, &(store_settings_t){.installation = "other"},
                            &(store_callbacks_t){.on_settled = NULL});
    clock_on(fx.store);
    turn_until(store_up);
    assert_int_equal(admit_now(&a).outcome, ADMIT_OK); /* the same request too */
    a = plain(&next);
    a.total_caps.slots = 1;
    assert_int_equal(admit_now(&a).outcome, ADMIT_CAPPED);
    store_destroy(fx.store);
    fx.store = real;
}

/* ---- what is no cap costs no key ---- */

static void a_run_without_caps_writes_what_it_needs(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    store_admission_t a = admission_of(&ids);
    a.hold.seconds_ms = 1000; /* nobody asked for */
    a.hold_ms = 60000;
    assert_int_equal(admit_now(&a).outcome, ADMIT_OK);
    assert_int_equal(direct_int("EXISTS " ROOT "held " ROOT "slots " ROOT "rate " ROOT "window " ROOT "holds"), 0);
    assert_int_equal(direct_int("EXISTS %srate %swindow %sholds", ids.prefix, ids.prefix, ids.prefix), 0);
    store_settlement_t s = settlement_now(&ids, VERDICT_ANSWERED);
    s.spent.seconds_ms = 800;
    assert_true(settle_now(&s));
    store_usage_t usage = usage_of(ids.caller);
    assert_amounts(usage.spent, 800, 0, 0);
    assert_amounts(usage.held, 0, 0, 0);
    assert_int_equal(usage.runs, 1);
    usage = usage_of(NULL);
    assert_amounts(usage.spent, 800, 0, 0);
    assert_int_equal(usage.runs, 1);
}

/* An unkeyed admission that comes after it was taken back would hold its slots and its hold until they expire. */
static void an_unkeyed_admission_that_was_taken_back_does_nothing(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    store_withdraw(fx.store, &(store_settlement_t){.caller = ids.caller,
                                                   .run_id = ids.run_id,
                                                   .verdict = VERDICT_REFUSED,
                                                   .give_back_rate = true,
                                                   .request_sha256 = ids.digest});
    turn_until(store_idle);
    store_admission_t a = plain(&ids);
    a.request_id = NULL;
    a.total_caps.slots = 1;
    assert_writes_nothing(assert_int_equal(admit_now(&a).outcome, ADMIT_NO_STORE));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup(name, clock_clean)
    const struct CMUnitTest tests[] = {
        T(each_cap_is_exact_in_each_scope),
        T(what_one_cap_refuses_costs_no_other),
        T(replays_joins_and_conflicts_cost_nothing),
        T(a_window_ends_on_its_millisecond),
        T(what_was_taken_in_a_window_goes_back_to_that_one_alone),
        T(a_run_counts_where_a_cap_was_and_goes_back_there),
        T(another_length_of_window_counts_anew),
        T(the_gateways_rate_is_one_for_all_callers),
        T(the_gateways_slots_free_themselves_by_lease),
        T(two_stores_share_every_limit),
        T(another_installation_counts_for_itself),
        T(a_run_without_caps_writes_what_it_needs),
        T(an_unkeyed_admission_that_was_taken_back_does_nothing),
    };
    return cmocka_run_group_tests(tests, clock_setup, clock_teardown);
}
