/* What the tests of the settings share: an environment with nothing in it, a load, and what the load said. */
#ifndef TESTS_OPTIONS_FIXTURE_H
#define TESTS_OPTIONS_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/options.h"

static const char TOKEN[] = "0123456789abcdef0123456789abcdef"; /* 32 characters, the fewest */

static char unknown[16][64];
static size_t unknown_count;

static inline void note_unknown(const char *name)
{
    assert_true(unknown_count < 16);
    snprintf(unknown[unknown_count++], sizeof(unknown[0]), "%s", name);
}

/* Only PATH and a token, so that nothing but what a test sets is a problem. */
static inline int fresh(void **state)
{
    (void)state;
    clearenv();
    setenv("PATH", "/usr/bin:/bin", 1);
    setenv("PLIMSOLL_TOKEN", TOKEN, 1);
    unknown_count = 0;
    return 0;
}

static inline problems_t load(void)
{
    problems_t problems = {NULL, 0};
    options_load(&problems, note_unknown);
    return problems;
}

static inline bool says(const problems_t *problems, const char *text)
{
    for (size_t i = 0; i < problems->count; i++)
        if (strstr(problems->texts[i], text) != NULL)
            return true;
    return false;
}

static inline void show(const problems_t *problems)
{
    for (size_t i = 0; i < problems->count; i++)
        print_message("  problem: %s\n", problems->texts[i]);
}

static inline void expect_fine_at(int line)
{
    problems_t problems = load();
    if (problems.count > 0) {
        show(&problems);
        _assert_int_equal(problems.count, 0, __FILE__, line);
    }
    problems_dispose(&problems);
}
#define expect_fine() expect_fine_at(__LINE__)

static inline void expect_problem_at(const char *text, int line)
{
    problems_t problems = load();
    if (!says(&problems, text)) {
        print_message("not said: %s\n", text);
        show(&problems);
        _assert_true(0, "problem", __FILE__, line);
    }
    problems_dispose(&problems);
}
#define expect_problem(text) expect_problem_at(text, __LINE__)

/* The one problem there is. */
static inline void expect_only_problem_at(const char *text, int line)
{
    problems_t problems = load();
    if (problems.count != 1 || strcmp(problems.texts[0], text) != 0) {
        print_message("wanted:    %s\n", text);
        show(&problems);
        _assert_true(0, "problem", __FILE__, line);
    }
    problems_dispose(&problems);
}
#define expect_only_problem(text) expect_only_problem_at(text, __LINE__)

#endif
