/* Hexadecimal digits: every character there is, against strchr over the digits written out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/hex.h"

static int expected(const char *digits, int c)
{
    const char *at = c != '\0' ? strchr(digits, c) : NULL;
    return at != NULL ? (int)(at - digits) : -1;
}

static void every_character(void **state)
{
    (void)state;
    for (int c = -128; c < 128; c++) {
        int lower = expected("0123456789abcdef", c), upper = expected("0123456789ABCDEF", c);
        assert_int_equal(hex_digit_lower((char)c), lower);
        assert_int_equal(hex_digit((char)c), lower >= 0 ? lower : upper);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_character)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
