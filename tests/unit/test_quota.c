/* What a refusal for a cap says: the policy, whose, how much, until when; and of the gateway's caps nothing of others.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "gateway/bill.h"
#include "gateway/quota.h"

static const store_caps_t OWN = {.slots = 4,
                                 .rate_per_min = 30,
                                 .burst = 10,
                                 .runs_per_window = 100,
                                 .per_day = {.seconds_ms = 60000, .paid_ms = 43000, .cost_micro = 2500000}};
static const store_caps_t TOTAL = {.slots = 40,
                                   .rate_per_min = 300,
                                   .burst = 7,
                                   .runs_per_window = 1000,
                                   .per_day = {.seconds_ms = 600000, .paid_ms = 430000, .cost_micro = 25000000}};
static const store_amounts_t HOLD = {.seconds_ms = 30000, .paid_ms = 43001, .cost_micro = 1};

static refusal_t refusal_of(const store_admitted_t *a)
{
    const quota_terms_t terms = {
        .caps = &OWN, .total_caps = &TOTAL, .window_s = 3600, .hold = &HOLD, .currency = "USD"};
    refusal_t r;
    quota_refuse(a, &terms, &r);
    assert_int_equal(r.code, CODE_RESOURCE_EXHAUSTED);
    assert_int_equal(r.mark, MARK_CAPACITY);
    assert_true(r.detail);
    assert_true(refusal_retry_seconds(&r) >= 1);
    return r;
}

static void a_callers_caps_are_told_with_numbers(void **state)
{
    static const struct {
        store_admitted_t admitted;
        const char *policy;
        uint64_t limit;
        uint32_t window;
        const char *says[4];
    } CASES[] = {
        {{.cap = CAP_SLOTS}, "slots", 4, 0, {"(4)"}},
        {{.cap = CAP_RATE, .retry_after_ms = 1}, "runs", 10, 20, {"rate of 30 runs a minute"}},
        {{.cap = CAP_RUNS, .retry_after_ms = 1001}, "window", 100, 3600, {"100 runs of each 3600 seconds", "in 2 s"}},
        {{.cap = CAP_SECONDS, .cap_limit = 60000, .cap_used = 30001, .retry_after_ms = 5000},
         "seconds",
         60,
         86400,
         {"of 60 seconds", "30.001 are used", "may need 30", "ends in 5 s"}},
        {{.cap = CAP_PAID, .cap_limit = 43000, .cap_used = 0, .retry_after_ms = 5000},
         "paid-seconds",
         43,
         86400,
         {"of 43 seconds", "may need 43.001", "no day has enough"}},
        {{.cap = CAP_COST, .cap_limit = 2500000, .cap_used = 2500000, .retry_after_ms = 86400000},
         "cost",
         2500000,
         86400,
         {"of 2.5 USD", "2.5 are used", "may need 0.000001", "ends in 86400 s"}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        refusal_t r = refusal_of(&CASES[i].admitted);
        assert_string_equal(r.quota, CASES[i].policy);
        assert_int_equal(r.quota_limit, CASES[i].limit);
        assert_int_equal(r.quota_window_s, CASES[i].window);
        assert_non_null(strstr(r.message, "this caller"));
        for (int k = 0; k < 4 && CASES[i].says[k] != NULL; k++)
            if (strstr(r.message, CASES[i].says[k]) == NULL)
                fail_msg("\"%s\" does not say \"%s\"", r.message, CASES[i].says[k]);
    }
}

static void the_gateways_caps_are_told_without_numbers_of_others(void **state)
{
    static const char *const POLICIES[CAP_COUNT] = {"",
                                                    "gateway-slots",
                                                    "gateway-runs",
                                                    "gateway-window",
                                                    "gateway-seconds",
                                                    "gateway-paid-seconds",
                                                    "gateway-cost"};
    (void)state;
    for (int cap = CAP_SLOTS; cap < CAP_COUNT; cap++) {
        /* 7777 and 8888 stand for what others used */
        const store_admitted_t a = {.cap = (store_cap_t)cap,
                                    .is_total = true,
                                    .cap_limit = 8888,
                                    .cap_used = 7777,
                                    .retry_after_ms = cap == CAP_SLOTS ? 0 : 3000};
        char seen[QUOTA_SEEN_MAX];
        refusal_t r = refusal_of(&a);
        assert_string_equal(r.quota, POLICIES[cap]);
        assert_null(strstr(r.message, "7777"));
        assert_null(strstr(r.message, "8888"));
        if (cap != CAP_SLOTS)
            assert_non_null(strstr(r.message, "resets in 3 s"));
        quota_seen(&a, seen);
        assert_null(strstr(seen, "7777"));
        assert_non_null(strstr(seen, "scope=gateway"));
    }
}

static void a_receipt_says_what_was_seen(void **state)
{
    const store_admitted_t a = {.cap = CAP_RATE, .cap_limit = 30, .retry_after_ms = 1200};
    const store_admitted_t slots = {.cap = CAP_SLOTS, .cap_limit = 4, .cap_used = 4, .retry_after_ms = 1000};
    const store_admitted_t most = {
        .cap = CAP_SECONDS, .cap_limit = UINT64_MAX, .cap_used = UINT64_MAX, .retry_after_ms = UINT32_MAX};
    char seen[QUOTA_SEEN_MAX];
    (void)state;
    quota_seen(&a, seen);
    assert_string_equal(seen, "cap=rate;scope=caller;limit=30;retry_after_ms=1200");
    quota_seen(&slots, seen);
    assert_string_equal(seen, "cap=slots;scope=caller;limit=4;used=4;retry_after_ms=1000");
    quota_seen(&most, seen);
    assert_non_null(strstr(seen, "retry_after_ms=4294967295"));
}

static void the_window_of_a_rate_holds_its_burst(void **state)
{
    store_caps_t caps = {.rate_per_min = 60};
    (void)state;
    assert_int_equal(quota_rate_window_s(&caps, 60), 60);
    assert_int_equal(quota_rate_window_s(&caps, 1), 1);
    caps.rate_per_min = 7;
    assert_int_equal(quota_rate_window_s(&caps, 1), 9); /* 8.57 */
    caps.rate_per_min = 1;
    assert_int_equal(quota_rate_window_s(&caps, 10000000), 600000000);
    caps.rate_per_min = 0;
    assert_int_equal(quota_rate_window_s(&caps, 5), 60);
}

static void the_longest_text_is_not_cut(void **state)
{
    const store_admitted_t a = {.cap = CAP_COST, .cap_limit = 1, .cap_used = UINT64_MAX, .retry_after_ms = UINT32_MAX};
    const store_amounts_t hold = {.cost_micro = UINT64_MAX};
    const quota_terms_t terms = {.caps = &OWN, .total_caps = &TOTAL, .hold = &hold, .currency = "USD"};
    refusal_t r;
    (void)state;
    quota_refuse(&a, &terms, &r);
    assert_true(strlen(r.message) < REFUSAL_MESSAGE_MAX - 1);
    assert_non_null(strstr(r.message, "no day has enough"));
}

static void a_bill_is_told_exactly(void **state)
{
    char seconds[BILL_SECONDS_MAX], cost[BILL_COST_MAX];
    bill_t bill = {.amounts = {.paid_ms = 12345, .cost_micro = 924}, .is_billed = true, .is_cost_known = true};
    (void)state;
    assert_string_equal(bill_seconds(&bill, seconds), "12.345");
    assert_string_equal(bill_cost(&bill, "USD", cost), "0.000924 USD");
    assert_string_equal(bill_cost(&bill, "", cost), "0.000924");
    bill.is_cost_known = false;
    assert_string_equal(bill_cost(&bill, "USD", cost), "unknown");
    bill = (bill_t){.is_cost_known = true};
    assert_string_equal(bill_seconds(&bill, seconds), "0");
    assert_string_equal(bill_cost(&bill, "USD", cost), "0");
    bill = (bill_t){
        .amounts = {.paid_ms = UINT64_MAX, .cost_micro = UINT64_MAX}, .is_billed = true, .is_cost_known = true};
    assert_string_equal(bill_seconds(&bill, seconds), "18446744073709551.615");
    assert_string_equal(bill_cost(&bill, "USD", cost), "18446744073709.551615 USD");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_callers_caps_are_told_with_numbers),
        cmocka_unit_test(the_gateways_caps_are_told_without_numbers_of_others),
        cmocka_unit_test(a_receipt_says_what_was_seen),
        cmocka_unit_test(the_window_of_a_rate_holds_its_burst),
        cmocka_unit_test(the_longest_text_is_not_cut),
        cmocka_unit_test(a_bill_is_told_exactly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
