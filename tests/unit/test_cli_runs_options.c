/* The options of `plimsoll runs`: what becomes a part of the URL, and what does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/runs_find.h"
#include "cli/runs_options.h"

static const char *checked(runs_options_t options)
{
    return runs_options_check(&options);
}

static void the_path_holds_what_was_asked_for(void **state)
{
    char path[RUNS_PATH_MAX];
    runs_options_t options = {.receipts = true};
    (void)state;
    runs_options_path(&(runs_options_t){.limit = NULL}, NULL, NULL, path);
    assert_string_equal(path, "/v1/runs");
    runs_options_path(&(runs_options_t){.limit = NULL}, "5", NULL, path);
    assert_string_equal(path, "/v1/runs?limit=5");
    runs_options_path(&(runs_options_t){.limit = NULL}, NULL, "abc", path);
    assert_string_equal(path, "/v1/runs?cursor=abc");
    options.filters[RUNS_FILTER_KIND] = "project";
    options.filters[RUNS_FILTER_SINCE] = "2026-11-30T00:00:00Z";
    runs_options_path(&options, "100", "abc", path);
    assert_string_equal(path, "/v1/runs?kind=project&since=2026-11-30T00:00:00Z&receipts=1&limit=100&cursor=abc");
}

static void the_longest_path_is_not_cut(void **state)
{
    char path[RUNS_PATH_MAX], cursor[RUNS_CURSOR_MAX + 1], value[RUNS_VALUE_MAX + 1];
    runs_options_t options = {.receipts = true};
    (void)state;
    memset(cursor, 'c', RUNS_CURSOR_MAX);
    memset(value, 'v', RUNS_VALUE_MAX);
    cursor[RUNS_CURSOR_MAX] = value[RUNS_VALUE_MAX] = '\0';
    for (int i = 0; i < RUNS_FILTER_COUNT; i++)
        options.filters[i] = value;
    runs_options_path(&options, "500", cursor, path);
    assert_true(strlen(path) < RUNS_PATH_MAX - 1);
    assert_string_equal(path + strlen(path) - RUNS_CURSOR_MAX, cursor);
}

static void values_are_within_their_limits(void **state)
{
    char text[RUNS_CURSOR_MAX + 2];
    (void)state;
    assert_non_null(checked((runs_options_t){.limit = "0"}));
    assert_null(checked((runs_options_t){.limit = "1"}));
    assert_null(checked((runs_options_t){.limit = "499"}));
    assert_null(checked((runs_options_t){.limit = "500"}));
    assert_non_null(checked((runs_options_t){.limit = "501"}));
    assert_non_null(checked((runs_options_t){.limit = "99999"}));
    assert_non_null(checked((runs_options_t){.limit = "5x"}));
    for (size_t n = RUNS_CURSOR_MAX - 1; n <= RUNS_CURSOR_MAX + 1; n++) {
        memset(text, 'c', n);
        text[n] = '\0';
        assert_int_equal(checked((runs_options_t){.cursor = text}) == NULL, n <= RUNS_CURSOR_MAX);
    }
    for (size_t n = RUNS_VALUE_MAX - 1; n <= RUNS_VALUE_MAX + 1; n++) {
        memset(text, 'b', n);
        text[n] = '\0';
        assert_int_equal(checked((runs_options_t){.filters = {[RUNS_FILTER_BACKEND] = text}}) == NULL,
                         n <= RUNS_VALUE_MAX);
    }
}

static void nothing_given_becomes_another_path_or_parameter(void **state)
{
    static const char *const WRONG[] = {"", "a&b=c", "a/b", "a?b", "a#b", "a b", "a%20b", "\xc3\xa9", "a\nb", "a=b"};
    (void)state;
    for (size_t i = 0; i < sizeof(WRONG) / sizeof(WRONG[0]); i++) {
        assert_non_null(checked((runs_options_t){.cursor = WRONG[i]}));
        for (int f = 0; f < RUNS_FILTER_COUNT; f++) {
            runs_options_t options = {.limit = NULL};
            options.filters[f] = WRONG[i];
            assert_non_null(runs_options_check(&options));
        }
    }
}

static void expect_path(const char *key, const char *wait_s, const char *wanted)
{
    char *path = runs_find_path(key, wait_s);
    assert_non_null(path);
    assert_string_equal(path, wanted);
    free(path);
}

static void a_key_is_percent_encoded(void **state)
{
    char key[RUNS_KEY_MAX + 2];
    (void)state;
    expect_path("abc-._~1", NULL, "/v1/runs/by-key/abc-._~1");
    expect_path("a/b?c=d&e", "5", "/v1/runs/by-key/a%2Fb%3Fc%3Dd%26e?wait=5");
    expect_path("\"job 1\"", "60", "/v1/runs/by-key/%22job%201%22?wait=60");
    expect_path("\xc3\xa9\n", NULL, "/v1/runs/by-key/%C3%A9%0A");
    assert_null(runs_find_path("", NULL));
    for (size_t n = RUNS_KEY_MAX - 1; n <= RUNS_KEY_MAX + 1; n++) {
        memset(key, '"', n);
        key[n] = '\0';
        char *path = runs_find_path(key, "60");
        assert_int_equal(path != NULL, n <= RUNS_KEY_MAX);
        if (path != NULL)
            assert_int_equal(strlen(path), strlen("/v1/runs/by-key/") + 3 * n + strlen("?wait=60"));
        free(path);
    }
}

static void a_wait_is_0_to_60_seconds(void **state)
{
    (void)state;
    assert_null(checked((runs_options_t){.wait = "0"}));
    assert_null(checked((runs_options_t){.wait = "59"}));
    assert_null(checked((runs_options_t){.wait = "60"}));
    assert_non_null(checked((runs_options_t){.wait = "61"}));
    assert_non_null(checked((runs_options_t){.wait = "05"}));
    assert_non_null(checked((runs_options_t){.wait = ""}));
    assert_non_null(checked((runs_options_t){.wait = "1s"}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_path_holds_what_was_asked_for),
        cmocka_unit_test(the_longest_path_is_not_cut),
        cmocka_unit_test(values_are_within_their_limits),
        cmocka_unit_test(a_key_is_percent_encoded),
        cmocka_unit_test(a_wait_is_0_to_60_seconds),
        cmocka_unit_test(nothing_given_becomes_another_path_or_parameter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
