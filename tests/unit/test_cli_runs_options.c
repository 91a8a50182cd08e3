/* The options of `plimsoll runs`: what becomes a part of the URL, and what does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_path_holds_what_was_asked_for),
        cmocka_unit_test(the_longest_path_is_not_cut),
        cmocka_unit_test(values_are_within_their_limits),
        cmocka_unit_test(nothing_given_becomes_another_path_or_parameter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
