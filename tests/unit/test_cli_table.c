/* Text of strangers in tables and lines: aligned, and unable to move a cursor. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/table.h"
#include "cli/terminal.h"

static void test_copy(void **state)
{
    (void)state;
    static const struct {
        const char *in;
        size_t len;
        const char *out;
    } CASES[] = {
        {"plain", 5, "plain"},
        {"a\x1b[31mb", 7, "a?[31mb"},
        {"a\tb\nc\rd\x7f", 8, "a?b?c?d?"},
        {"a\0b", 3, "a?b"},
        {"\xc3\xa9\xe2\x98\x95\xf0\x9f\x99\x82", 9, "\xc3\xa9\xe2\x98\x95\xf0\x9f\x99\x82"},
        {"\xc2\x9b", 2, "?"},       /* C1 in UTF-8 */
        {"\xe9t\xc3", 3, "?t?"},    /* Latin-1, and a sequence that is cut */
        {"\xed\xa0\x80", 3, "???"}, /* a surrogate */
        {"\xf8\x88\x80\x80\x80", 5, "?????"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        char out[32];
        terminal_copy(out, sizeof(out), CASES[i].in, CASES[i].len);
        assert_string_equal(out, CASES[i].out);
    }
}

static void test_copy_never_cuts_a_character(void **state)
{
    (void)state;
    char out[8];
    for (size_t size = 1; size <= sizeof(out); size++) {
        memset(out, 'x', sizeof(out));
        terminal_copy(out, size,
                      "a\xe2\x98\x95"
                      "b",
                      5);
        const char *whole[] = {"",
                               "a",
                               "a",
                               "a",
                               "a\xe2\x98\x95",
                               "a\xe2\x98\x95"
                               "b",
                               "a\xe2\x98\x95"
                               "b",
                               "a\xe2\x98\x95"
                               "b"};
        assert_string_equal(out, whole[size - 1]);
    }
}

static void test_table(void **state)
{
    (void)state;
    static const char *const HEADINGS[] = {"A", "LONGER", "C"};
    table_t *table = table_create(HEADINGS, 3);
    for (int i = 0; i < 40; i++) {
        const char *const cells[] = {"\xc3\xa9\xc3\xa9\xc3\xa9", NULL, "x\x1by"};
        table_add(table, cells);
    }
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    assert_non_null(out);
    table_print(table, out);
    fclose(out);
    table_destroy(table);
    static const char expected[] = "A    LONGER  C\n\xc3\xa9\xc3\xa9\xc3\xa9  -       x?y\n";
    assert_int_equal(strncmp(text, expected, sizeof(expected) - 1), 0);
    assert_int_equal(len, 15 + 40 * (strlen(expected) - 15));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_copy_never_cuts_a_character),
        cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
