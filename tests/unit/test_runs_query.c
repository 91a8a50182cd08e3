/* The queries of the pages: each name once, each value within its limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "gateway/runs_query.h"

static runs_query_t parsed(const char *query)
{
    runs_query_t q;
    const char *wrong = runs_query_parse(query, &q);
    if (wrong != NULL)
        fail_msg("%s: %s", query, wrong);
    return q;
}

static void expect_wrong(const char *query, const char *says)
{
    runs_query_t q;
    const char *wrong = runs_query_parse(query, &q);
    if (wrong == NULL)
        fail_msg("taken: %s", query);
    else if (strstr(wrong, says) == NULL)
        fail_msg("%s: said \"%s\", not \"%s\"", query, wrong, says);
}

static void nothing_asks_for_the_newest(void **state)
{
    runs_query_t q = parsed("");
    const store_runs_query_t s = runs_query_for_store(&q);
    (void)state;
    assert_int_equal(s.limit, RUNS_PAGE_DEFAULT);
    assert_null(s.cursor);
    assert_null(s.verdict);
    assert_null(s.backend);
    assert_null(s.kind);
    assert_false(s.receipts);
    assert_true(s.since_unix_ms == 0 && s.until_unix_ms == 0);
}

static void everything_can_be_asked_for_at_once(void **state)
{
    runs_query_t q = parsed("limit=7&cursor=abc-1&verdict=unknown&backend=wasm&kind=project&since=1000&until="
                            "2026-11-30T00:00:00Z&receipts=0");
    const store_runs_query_t s = runs_query_for_store(&q);
    (void)state;
    assert_int_equal(s.limit, 7);
    assert_string_equal(s.cursor, "abc-1");
    assert_string_equal(s.verdict, "unknown");
    assert_string_equal(s.backend, "wasm");
    assert_string_equal(s.kind, "project");
    assert_true(s.since_unix_ms == 1000);
    assert_true(s.until_unix_ms == INT64_C(1795996800000)); /* date -d 2026-11-30T00:00:00Z +%s */
    assert_false(s.receipts);
    q = parsed("receipts=1&verdict=refused");
    assert_true(runs_query_for_store(&q).receipts);
}

static void a_limit_is_1_to_500(void **state)
{
    (void)state;
    expect_wrong("limit=0", "limit");
    assert_int_equal(parsed("limit=1").limit, 1);
    assert_int_equal(parsed("limit=2").limit, 2);
    assert_int_equal(parsed("limit=499").limit, 499);
    assert_int_equal(parsed("limit=500").limit, 500);
    expect_wrong("limit=501", "limit");
    expect_wrong("limit=99999999999999999999", "limit");
    expect_wrong("limit=05", "limit");
    expect_wrong("limit=", "limit");
    expect_wrong("limit=1x", "limit");
    expect_wrong("limit=-1", "limit");
}

static void a_cursor_has_up_to_128_characters(void **state)
{
    char query[200] = "cursor=";
    (void)state;
    for (size_t n = RUNS_CURSOR_MAX - 1; n <= RUNS_CURSOR_MAX + 1; n++) {
        runs_query_t q;
        memset(query + 7, 'c', n);
        query[7 + n] = '\0';
        assert_int_equal(runs_query_parse(query, &q) == NULL, n <= RUNS_CURSOR_MAX);
    }
    expect_wrong("cursor=a%20", "cursor");
    expect_wrong("cursor=a/b", "cursor");
}

static void words_are_known_ones(void **state)
{
    (void)state;
    expect_wrong("verdict=good", "verdict");
    expect_wrong("kind=cell", "kind");
    expect_wrong("backend=a b", "backend");
    expect_wrong("backend=", "backend");
    expect_wrong("receipts=2", "receipts");
    expect_wrong("receipts=1&verdict=answered", "receipts");
    char query[64] = "backend=";
    for (size_t n = RUNS_WORD_MAX - 1; n <= RUNS_WORD_MAX + 1; n++) {
        runs_query_t q;
        memset(query + 8, 'b', n);
        query[8 + n] = '\0';
        assert_int_equal(runs_query_parse(query, &q) == NULL, n <= RUNS_WORD_MAX);
    }
}

static void times_are_milliseconds_or_rfc_3339(void **state)
{
    (void)state;
    assert_true(parsed("since=253402300799999").since_unix_ms == INT64_C(253402300799999));
    expect_wrong("since=253402300800000", "since");
    expect_wrong("since=2026-11-30", "since");
    expect_wrong("since=2026-11-31T00:00:00Z", "since");
    expect_wrong("since=1969-12-31T23:59:59Z", "since");
    expect_wrong("until=2026-11-30T00:00:00+01:00", "until");
    expect_wrong("since=5&until=5", "later");
    parsed("since=5&until=6");
}

static void each_name_stands_once(void **state)
{
    (void)state;
    expect_wrong("limit=1&limit=1", "more than once");
    expect_wrong("color=red", "may hold");
    expect_wrong("limit", "limit");
    expect_wrong("=1", "may hold");
    expect_wrong("limit=1&&kind=module", "may hold");
    parsed("limit=1&");
}

static void a_wait_is_0_to_60_seconds(void **state)
{
    uint32_t wait_s = 9;
    (void)state;
    assert_null(key_query_parse("", &wait_s));
    assert_int_equal(wait_s, 0);
    assert_null(key_query_parse("wait=0", &wait_s));
    assert_int_equal(wait_s, 0);
    assert_null(key_query_parse("wait=1", &wait_s));
    assert_null(key_query_parse("wait=59", &wait_s));
    assert_null(key_query_parse("wait=60", &wait_s));
    assert_int_equal(wait_s, 60);
    assert_non_null(key_query_parse("wait=61", &wait_s));
    assert_non_null(key_query_parse("wait=060", &wait_s));
    assert_non_null(key_query_parse("wait=", &wait_s));
    assert_non_null(key_query_parse("wait=1&wait=1", &wait_s));
    assert_non_null(key_query_parse("limit=1", &wait_s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_asks_for_the_newest), cmocka_unit_test(everything_can_be_asked_for_at_once),
        cmocka_unit_test(a_limit_is_1_to_500),         cmocka_unit_test(a_cursor_has_up_to_128_characters),
        cmocka_unit_test(words_are_known_ones),        cmocka_unit_test(times_are_milliseconds_or_rfc_3339),
        cmocka_unit_test(each_name_stands_once),       cmocka_unit_test(a_wait_is_0_to_60_seconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
