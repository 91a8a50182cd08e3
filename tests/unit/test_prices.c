/* Decimal numbers and the price table: exact money, and every member's limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/decimal.h"
#include "config/prices.h"

static bool parses(const char *text, unsigned places, uint64_t max, uint64_t wanted)
{
    uint64_t got = 12345;
    return decimal_parse(text, strlen(text), places, max, &got) && got == wanted;
}

static bool is_refused(const char *text, unsigned places, uint64_t max)
{
    uint64_t got;
    return !decimal_parse(text, strlen(text), places, max, &got);
}

static void decimals_are_exact(void **state)
{
    (void)state;
    assert_true(parses("0", 9, UINT64_MAX, 0));
    assert_true(parses("1", 0, UINT64_MAX, 1));
    assert_true(parses("0.000028", 9, UINT64_MAX, 28000));
    assert_true(parses("0.000000001", 9, UINT64_MAX, 1));
    assert_true(parses("12.50", 6, UINT64_MAX, 12500000));
    assert_true(parses("18446744073709551615", 0, UINT64_MAX, UINT64_MAX));
    assert_true(parses("18446744073.709551615", 9, UINT64_MAX, UINT64_MAX));
    assert_true(is_refused("18446744073709551616", 0, UINT64_MAX));
    assert_true(is_refused("18446744073.709551616", 9, UINT64_MAX));
    assert_true(is_refused("99999999999999999999999", 9, UINT64_MAX));
}

static void decimals_have_one_spelling(void **state)
{
    static const char *const WRONG[] = {"",   ".",   ".5",  "5.",  "-1",   "+1",    " 1",   "1 ",
                                        "01", "1e3", "0x1", "1,5", "1..5", "1.5.5", "00.5", "1.0000000001"};
    (void)state;
    for (size_t i = 0; i < sizeof(WRONG) / sizeof(WRONG[0]); i++)
        if (!is_refused(WRONG[i], 9, UINT64_MAX))
            fail_msg("taken: \"%s\"", WRONG[i]);
    assert_true(parses("1.000000000", 9, UINT64_MAX, 1000000000));
}

static void a_maximum_counts_to_the_last_place(void **state)
{
    (void)state;
    assert_true(parses("9.99", 2, 1000, 999));
    assert_true(parses("10", 2, 1000, 1000));
    assert_true(is_refused("10.01", 2, 1000));
    assert_true(is_refused("11", 2, 1000));
    assert_true(parses("0", 2, 0, 0));
    assert_true(is_refused("1", 0, 0));
}

static void a_decimal_is_printed_as_it_would_be_written(void **state)
{
    char out[DECIMAL_TEXT_MAX];
    (void)state;
    assert_string_equal(decimal_print(0, 6, out), "0");
    assert_string_equal(decimal_print(924, 6, out), "0.000924");
    assert_string_equal(decimal_print(1500000, 6, out), "1.5");
    assert_string_equal(decimal_print(12, 0, out), "12");
    assert_string_equal(decimal_print(UINT64_MAX, 9, out), "18446744073.709551615");
}

static prices_t *read(const char *backends, problems_t *problems)
{
    char text[4096];
    snprintf(text, sizeof(text), "{\"version\":1,\"date\":\"2026-11-01\",\"currency\":\"USD\",\"backends\":{%s}}",
             backends);
    return prices_parse(text, strlen(text), problems);
}

static price_t price_of(const char *members)
{
    char text[2048];
    problems_t problems = {0};
    snprintf(text, sizeof(text), "\"e2b\":{%s}", members);
    prices_t *prices = read(text, &problems);
    if (prices == NULL)
        fail_msg("%s", problems.texts[0]);
    price_t price = *prices_find(prices, "e2b");
    assert_null(prices_find(prices, "dockercloud"));
    prices_unref(prices);
    return price;
}

static void a_cost_is_exact_and_rounded_up_to_a_micro(void **state)
{
    (void)state;
    price_t p = price_of("\"per_second\":\"0.000028\"");
    assert_int_equal(price_cost_micro(&p, 0), 0);
    assert_int_equal(price_cost_micro(&p, 33000), 924); /* 33 x 28 */
    assert_int_equal(price_cost_micro(&p, 1), 1);       /* 0.028 of a micro */
    assert_int_equal(price_cost_micro(&p, 1000), 28);
    assert_int_equal(price_cost_micro(&p, 1001), 29); /* 28.028 */
    assert_int_equal(price_cost_micro(&p, 86400000), 2419200);
}

static void vcpus_and_memory_add_to_the_second(void **state)
{
    (void)state;
    /* 2 x 0.000014 + 512/1024 x 0.0000045 = 0.00003025 a second */
    price_t p = price_of("\"per_vcpu_second\":\"0.000014\",\"vcpus\":\"2\",\"per_gib_second\":\"0.0000045\","
                         "\"memory_mib\":\"512\"");
    assert_int_equal(p.second_nano, 30250);
    assert_int_equal(price_cost_micro(&p, 1000000), 30250);
    p = price_of("\"per_vcpu_second\":\"0.000000001\",\"vcpus\":\"0.5\"");
    assert_int_equal(p.second_nano, 1); /* half a nano, rounded up */
}

static void a_run_has_a_price_of_its_own(void **state)
{
    (void)state;
    price_t p = price_of("\"per_run\":\"0.01\",\"per_second\":\"0.001\"");
    assert_int_equal(price_cost_micro(&p, 2000), 12000);
}

static void short_times_are_billed_as_the_minimum_and_in_increments(void **state)
{
    (void)state;
    price_t p = price_of("\"per_second\":\"0.000001\",\"minimum_seconds\":\"60\",\"increment_seconds\":\"0.1\"");
    assert_int_equal(price_billable_ms(&p, 59999), 60000);
    assert_int_equal(price_billable_ms(&p, 60000), 60000);
    assert_int_equal(price_billable_ms(&p, 60001), 60100);
    assert_int_equal(price_cost_micro(&p, 1), 60);
    p = price_of("\"per_second\":\"0.000001\",\"increment_seconds\":\"86400\"");
    assert_int_equal(price_billable_ms(&p, UINT64_MAX), UINT64_MAX); /* saturates */
}

static void no_cost_is_above_what_can_be_counted(void **state)
{
    (void)state;
    price_t p = price_of("\"per_second\":\"1000\",\"per_vcpu_second\":\"1000\",\"vcpus\":\"1024\",\"per_gib_second\":"
                         "\"1000\",\"memory_mib\":\"1048576\",\"per_run\":\"1000\"");
    assert_int_equal(price_cost_micro(&p, UINT64_MAX), COST_MAX);
    assert_int_equal(p.second_nano, UINT64_C(2049) * 1000000000000);
}

static void an_hour_of_late_time_has_a_price_of_at_least_a_micro(void **state)
{
    (void)state;
    price_t p = price_of("\"per_second\":\"0.000028\"");
    assert_int_equal(price_micro_hour(&p), 100800);
    p = price_of("\"per_second\":\"0.000000001\"");
    assert_int_equal(price_micro_hour(&p), 4); /* 3.6 */
    p = price_of("\"per_second\":\"0\"");
    assert_int_equal(price_micro_hour(&p), 1);
    p = price_of("\"per_second\":\"1000\",\"per_vcpu_second\":\"1000\",\"vcpus\":\"1024\"");
    assert_int_equal(price_micro_hour(&p), PRICE_HOUR_MAX);
}

static void expect_problem(const char *text, const char *says)
{
    problems_t problems = {0};
    prices_t *prices = prices_parse(text, strlen(text), &problems);
    if (prices != NULL)
        fail_msg("taken: %s", text);
    for (size_t i = 0; i < problems.count; i++)
        if (strstr(problems.texts[i], says) != NULL) {
            problems_dispose(&problems);
            return;
        }
    fail_msg("%s: said \"%s\", not \"%s\"", text, problems.texts[0], says);
}

static void expect_row_problem(const char *row, const char *says)
{
    char text[4096];
    snprintf(text, sizeof(text), "{\"version\":1,\"date\":\"2026-11-01\",\"currency\":\"USD\",\"backends\":{%s}}", row);
    expect_problem(text, says);
}

static void what_is_not_understood_is_refused(void **state)
{
    (void)state;
    expect_problem("", "not JSON");
    expect_problem("[]", "must be a JSON object");
    expect_problem("{}", "\"date\" is missing");
    expect_problem("{\"version\":2,\"date\":\"2026-11-01\",\"currency\":\"USD\",\"backends\":{}}",
                   "\"version\" must be");
    expect_problem("{\"version\":1,\"date\":\"2026-02-29\",\"currency\":\"USD\",\"backends\":{}}", "\"date\" must be");
    expect_problem("{\"version\":1,\"date\":\"2026-11-1\",\"currency\":\"USD\",\"backends\":{}}", "\"date\" must be");
    expect_problem("{\"version\":1,\"date\":\"2026-11-01\",\"currency\":\"usd\",\"backends\":{}}",
                   "\"currency\" must be");
    expect_problem("{\"version\":1,\"date\":\"2026-11-01\",\"currency\":\"USD\",\"backends\":[]}",
                   "\"backends\" must be");
    expect_problem("{\"version\":1,\"version\":1}", "not JSON");
    expect_problem("{\"version\":1,\"date\":\"2026-11-01\",\"currency\":\"USD\",\"backends\":{},\"x\":1}",
                   "unknown member \"x\"");
    expect_row_problem("\"e2b\":{}", "has no price");
    expect_row_problem("\"e2b\":1", "must be an object");
    expect_row_problem("\"E2B\":{\"per_second\":\"1\"}", "no backend's name");
    expect_row_problem("\"e2b\":{\"per_second\":0.5}", "must be a string");
    expect_row_problem("\"e2b\":{\"per_hour\":\"1\"}", "no member");
    expect_row_problem("\"e2b\":{\"per_vcpu_second\":\"1\"}", "needs \"vcpus\"");
    expect_row_problem("\"e2b\":{\"per_gib_second\":\"1\"}", "needs \"memory_mib\"");
    expect_row_problem("\"e2b\":{\"per_second\":\"1000.000000001\"}", "from 0 to 1000");
    expect_row_problem("\"e2b\":{\"per_second\":\"1\",\"minimum_seconds\":\"86400.001\"}", "from 0 to 86400");
    expect_row_problem("\"e2b\":{\"per_second\":\"1\",\"vcpus\":\"1024.1\"}", "from 0 to 1024");
    expect_row_problem("\"e2b\":{\"per_second\":\"1\",\"memory_mib\":\"1048577\"}", "from 0 to 1048576");
}

static void the_limits_themselves_are_taken(void **state)
{
    (void)state;
    price_of("\"per_second\":\"1000\",\"minimum_seconds\":\"86400\",\"vcpus\":\"1024\",\"memory_mib\":\"1048576\"");
    price_of("\"per_second\":\"999.999999999\",\"minimum_seconds\":\"86399.999\"");
    price_of("\"per_second\":\"0\"");
}

static void as_many_backends_as_stated(void **state)
{
    (void)state;
    for (int n = PRICES_MAX - 1; n <= PRICES_MAX + 1; n++) {
        problems_t problems = {0};
        char rows[4000];
        size_t len = 0;
        for (int i = 0; i < n; i++)
            len +=
                (size_t)snprintf(rows + len, sizeof(rows) - len, "%s\"b%d\":{\"per_second\":\"1\"}", i ? "," : "", i);
        prices_t *prices = read(rows, &problems);
        assert_int_equal(prices != NULL, n <= PRICES_MAX);
        if (prices != NULL)
            assert_int_equal(prices_count(prices), n);
        prices_unref(prices);
        problems_dispose(&problems);
    }
}

static void as_many_bytes_as_stated(void **state)
{
    (void)state;
    static const char head[] = "{\"version\":1,\"date\":\"2026-11-01\",\"currency\":\"USD\",\"backends\":{}}";
    char *text = malloc(PRICES_FILE_MAX + 2);
    for (size_t n = PRICES_FILE_MAX - 1; n <= PRICES_FILE_MAX + 1; n++) {
        problems_t problems = {0};
        memset(text, ' ', n);
        memcpy(text, head, sizeof(head) - 1);
        prices_t *prices = prices_parse(text, n, &problems);
        assert_int_equal(prices != NULL, n <= PRICES_FILE_MAX);
        prices_unref(prices);
        problems_dispose(&problems);
    }
    free(text);
}

static void a_table_ages(void **state)
{
    enum { DAY = 86400000 };
    problems_t problems = {0};
    const int64_t midnight = INT64_C(1793491200000); /* 2026-11-01T00:00:00Z */
    (void)state;
    prices_t *prices = read("", &problems);
    assert_string_equal(prices_date(prices), "2026-11-01");
    assert_string_equal(prices_currency(prices), "USD");
    assert_true(prices_are_current(prices, midnight + 10 * (int64_t)DAY, 10 * (int64_t)DAY));
    assert_false(prices_are_current(prices, midnight + 10 * (int64_t)DAY + 1, 10 * (int64_t)DAY));
    assert_true(prices_are_current(prices, midnight - PRICES_AHEAD_MS, DAY));
    assert_false(prices_are_current(prices, midnight - PRICES_AHEAD_MS - 1, DAY));
    prices_unref(prices);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decimals_are_exact),
        cmocka_unit_test(decimals_have_one_spelling),
        cmocka_unit_test(a_maximum_counts_to_the_last_place),
        cmocka_unit_test(a_decimal_is_printed_as_it_would_be_written),
        cmocka_unit_test(a_cost_is_exact_and_rounded_up_to_a_micro),
        cmocka_unit_test(vcpus_and_memory_add_to_the_second),
        cmocka_unit_test(a_run_has_a_price_of_its_own),
        cmocka_unit_test(short_times_are_billed_as_the_minimum_and_in_increments),
        cmocka_unit_test(no_cost_is_above_what_can_be_counted),
        cmocka_unit_test(an_hour_of_late_time_has_a_price_of_at_least_a_micro),
        cmocka_unit_test(what_is_not_understood_is_refused),
        cmocka_unit_test(the_limits_themselves_are_taken),
        cmocka_unit_test(as_many_backends_as_stated),
        cmocka_unit_test(as_many_bytes_as_stated),
        cmocka_unit_test(a_table_ages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
