#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "records/tier.h"

static void test_names(void **state)
{
    (void)state;
    for (int t = TIER_UNKNOWN; t <= TIER_VM; t++)
        assert_int_equal(tier_parse(tier_name((tier_t)t)), t);
    assert_string_equal(tier_name((tier_t)99), "unknown");
    assert_string_equal(tier_name((tier_t)-1), "unknown");
    assert_int_equal(tier_parse(""), TIER_UNKNOWN);
    assert_int_equal(tier_parse("VM"), TIER_UNKNOWN);
    assert_int_equal(tier_parse("vm2"), TIER_UNKNOWN);
}

static void test_floors(void **state)
{
    (void)state;
    tier_t floor;
    assert_true(tier_parse_floor("", &floor));
    assert_int_equal(floor, TIER_UNKNOWN);
    assert_true(tier_parse_floor("kernel", &floor));
    assert_int_equal(floor, TIER_KERNEL);
    assert_false(tier_parse_floor("none", &floor));
    assert_false(tier_parse_floor("unknown", &floor));
    assert_false(tier_parse_floor("vm ", &floor));
}

/* Spec section 5: none < process < container < kernel < vm; unknown meets nothing. */
static void test_meets(void **state)
{
    (void)state;
    for (int t = TIER_NONE; t <= TIER_VM; t++) {
        for (int f = TIER_PROCESS; f <= TIER_VM; f++)
            assert_int_equal(tier_meets((tier_t)t, (tier_t)f), t >= f);
        assert_true(tier_meets((tier_t)t, TIER_UNKNOWN));
        assert_int_equal(tier_meets(TIER_UNKNOWN, (tier_t)t), 0);
    }
    assert_true(tier_meets(TIER_UNKNOWN, TIER_UNKNOWN));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_floors),
        cmocka_unit_test(test_meets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
