/* What a caller may do while Redis cannot count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "gateway/local_quota.h"

static local_quota_t *quota;
static store_admitted_t said;

static int setup(void **state)
{
    (void)state;
    quota = local_quota_create();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    local_quota_destroy(quota);
    return 0;
}

enum { MINUTE_US = 60 * 1000 * 1000 };

static local_quota_result_t take(const char *caller, store_caps_t caps, uint64_t now_us)
{
    return local_quota_take(quota, caller, &caps, now_us, &said);
}

static void test_slots_at_the_cap_and_one_more(void **state)
{
    (void)state;
    store_caps_t caps = {.slots = 2};
    assert_int_equal(take("a", caps, 1), LOCAL_QUOTA_TAKEN);
    assert_int_equal(take("a", caps, 1), LOCAL_QUOTA_TAKEN);
    assert_int_equal(take("a", caps, 1), LOCAL_QUOTA_CAPPED);
    assert_true(said.outcome == ADMIT_CAPPED && said.cap == CAP_SLOTS && !said.is_total);
    assert_true(said.cap_limit == 2 && said.cap_used == 2 && said.retry_after_ms == 1000);
    assert_int_equal(take("b", caps, 1), LOCAL_QUOTA_TAKEN); /* a caller's own */
    local_quota_give(quota, "a", &caps, false);
    assert_int_equal(take("a", caps, 1), LOCAL_QUOTA_TAKEN);
}

static void test_no_caps_are_no_caps(void **state)
{
    (void)state;
    store_caps_t caps = {.slots = 0};
    for (int i = 0; i != 5000; i++)
        assert_int_equal(take("a", caps, 1), LOCAL_QUOTA_TAKEN);
}

static void test_the_rate_at_its_burst_and_exactly_when_it_says(void **state)
{
    (void)state;
    store_caps_t caps = {.rate_per_min = 60, .burst = 3};
    uint64_t now = 1000 * (uint64_t)MINUTE_US;
    for (int i = 0; i != 3; i++)
        assert_int_equal(take("a", caps, now), LOCAL_QUOTA_TAKEN);
    assert_int_equal(take("a", caps, now), LOCAL_QUOTA_CAPPED);
    assert_true(said.cap == CAP_RATE && said.rate_limit == 3 && said.retry_after_ms == 1000);
    assert_int_equal(take("a", caps, now + 400000), LOCAL_QUOTA_CAPPED);
    assert_int_equal(said.retry_after_ms, 600);
    assert_int_equal(take("a", caps, now + 999999), LOCAL_QUOTA_CAPPED);
    assert_int_equal(said.retry_after_ms, 1);
    assert_int_equal(take("a", caps, now + 1000000), LOCAL_QUOTA_TAKEN);
    assert_int_equal(take("a", caps, now + 1000000), LOCAL_QUOTA_CAPPED);
    /* never more than the burst, however long the pause */
    for (int i = 0; i != 3; i++)
        assert_int_equal(take("a", caps, now + 100 * (uint64_t)MINUTE_US), LOCAL_QUOTA_TAKEN);
    assert_int_equal(take("a", caps, now + 100 * (uint64_t)MINUTE_US), LOCAL_QUOTA_CAPPED);
}

static void test_a_refusal_costs_nothing(void **state)
{
    (void)state;
    store_caps_t caps = {.rate_per_min = 1, .burst = 1, .slots = 1};
    uint64_t now = MINUTE_US;
    assert_int_equal(take("a", caps, now), LOCAL_QUOTA_TAKEN);
    local_quota_give(quota, "a", &caps, true);
    assert_int_equal(take("a", caps, now), LOCAL_QUOTA_TAKEN);
    local_quota_give(quota, "a", &caps, false);
    assert_int_equal(take("a", caps, now), LOCAL_QUOTA_CAPPED);
    assert_int_equal(said.cap, CAP_RATE);
    /* refused for the rate, it took no slot */
    assert_int_equal(take("a", caps, now + MINUTE_US), LOCAL_QUOTA_TAKEN);
}

static void test_the_table_at_its_bound_and_one_more(void **state)
{
    (void)state;
    store_caps_t caps = {.rate_per_min = 60, .burst = 1};
    char name[32];
    for (int i = 0; i != LOCAL_QUOTA_CALLERS; i++) {
        snprintf(name, sizeof(name), "caller %d", i);
        assert_int_equal(take(name, caps, 1), LOCAL_QUOTA_TAKEN);
    }
    assert_int_equal(take("one more", caps, 1), LOCAL_QUOTA_FULL);
    assert_int_equal(take("caller 0", caps, 1), LOCAL_QUOTA_CAPPED); /* known ones are still counted */
    local_quota_give(quota, "caller 7", &caps, false);
    assert_int_equal(take("one more", caps, 1), LOCAL_QUOTA_FULL); /* it has spent its rate, which is not forgotten */
    assert_int_equal(take("one more", caps, 1 + 1000000), LOCAL_QUOTA_TAKEN);
    assert_int_equal(take("and another", caps, 1 + 1000000), LOCAL_QUOTA_FULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_slots_at_the_cap_and_one_more, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_caps_are_no_caps, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_rate_at_its_burst_and_exactly_when_it_says, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_refusal_costs_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_table_at_its_bound_and_one_more, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
