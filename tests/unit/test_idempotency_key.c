/* Idempotency-Key: what is a key, at its limits, in the header field and in a path. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "gateway/idempotency_key.h"

static void expect_key(const char *value, const char *key)
{
    idempotency_key_t k;
    const char *why = "";
    if (!idempotency_key_parse(value, strlen(value), &k, &why))
        fail_msg("%s: %s", value, why);
    assert_string_equal(k.text, key);
    assert_int_equal(k.len, strlen(key));
}

static void expect_none(const char *value, size_t len, const char *says)
{
    idempotency_key_t k;
    const char *why = NULL;
    if (idempotency_key_parse(value, len, &k, &why))
        fail_msg("taken: %s", value);
    assert_non_null(why);
    if (strstr(why, says) == NULL)
        fail_msg("%s: said \"%s\", not \"%s\"", value, why, says);
}

static void a_key_is_a_structured_string(void **state)
{
    (void)state;
    expect_key("\"8e03978e-40d5-43dd-bc93-6894a57f9324\"", "8e03978e-40d5-43dd-bc93-6894a57f9324");
    expect_key("\"a\"", "a");
    expect_key("\" \"", " ");
    expect_key("\"a \\\"b\\\" \\\\ c~\"", "a \"b\" \\ c~");
}

static void anything_else_is_malformed(void **state)
{
    static const struct {
        const char *value, *says;
    } CASES[] = {
        {"", "quotation marks"},    {"\"", "quotation marks"}, {"a", "quotation marks"},  {"a\"", "quotation marks"},
        {"'a'", "quotation marks"}, {"\"a", "closing"},        {"\"a\\\"", "closing"},    {"\"a\\", "backslash"},
        {"\"a\\b\"", "backslash"},  {"\"a\" ", "follows"},     {"\"a\";p=1", "follows"},  {"\"a\", \"b\"", "follows"},
        {"\"\"", "empty"},          {"\"\t\"", "printable"},   {"\"\x7f\"", "printable"}, {"\"\xc3\xa9\"", "printable"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++)
        expect_none(CASES[i].value, strlen(CASES[i].value), CASES[i].says);
    expect_none("\"a\0b\"", 5, "printable");
}

static void a_key_has_up_to_255_characters(void **state)
{
    char value[2 * IDEMPOTENCY_KEY_MAX + 8];
    (void)state;
    for (size_t n = IDEMPOTENCY_KEY_MAX - 1; n <= IDEMPOTENCY_KEY_MAX + 1; n++) {
        idempotency_key_t k;
        const char *why;
        value[0] = '"';
        memset(value + 1, 'k', n);
        value[n + 1] = '"';
        assert_int_equal(idempotency_key_parse(value, n + 2, &k, &why), n <= IDEMPOTENCY_KEY_MAX);
        for (size_t i = 0; i < n; i++)
            memcpy(value + 1 + 2 * i, "\\\\", 2);
        value[1 + 2 * n] = '"';
        assert_int_equal(idempotency_key_parse(value, 2 * n + 2, &k, &why), n <= IDEMPOTENCY_KEY_MAX);
        if (n <= IDEMPOTENCY_KEY_MAX)
            assert_int_equal(k.len, n);
    }
}

static path_key_t of_path(const char *segment, idempotency_key_t *k)
{
    const char *why = NULL;
    path_key_t kind = idempotency_key_of_path(segment, strlen(segment), k, &why);
    assert_int_equal(kind == PATH_KEY_WRONG, why != NULL);
    return kind;
}

static void a_path_names_a_request_id_or_a_key(void **state)
{
    idempotency_key_t k;
    (void)state;
    assert_int_equal(of_path("0123456789abcdef0123456789abcdef", &k), PATH_KEY_REQUEST_ID);
    assert_string_equal(k.text, "0123456789abcdef0123456789abcdef");
    assert_int_equal(of_path("%300123456789abcdef0123456789abcde", &k), PATH_KEY_REQUEST_ID);
    assert_int_equal(of_path("%22a%2Fb%22", &k), PATH_KEY_IDEMPOTENCY);
    assert_string_equal(k.text, "a/b");
    assert_int_equal(of_path("a%2fb", &k), PATH_KEY_IDEMPOTENCY);
    assert_string_equal(k.text, "a/b");
    assert_int_equal(of_path("%22a%5C%22%22", &k), PATH_KEY_IDEMPOTENCY);
    assert_string_equal(k.text, "a\"");
    /* a key that looks like a request ID is told from one by its quotation marks */
    assert_int_equal(of_path("%220123456789abcdef0123456789abcdef%22", &k), PATH_KEY_IDEMPOTENCY);
    assert_int_equal(of_path("0123456789ABCDEF0123456789ABCDEF", &k), PATH_KEY_IDEMPOTENCY);
}

static void a_malformed_path_names_nothing(void **state)
{
    static const char *const WRONG[] = {"", "a/b", "%", "%2", "%2g", "%g2", "a%00", "%22a", "%22%22", "%C3%A9", "a%0D"};
    idempotency_key_t k;
    (void)state;
    for (size_t i = 0; i < sizeof(WRONG) / sizeof(WRONG[0]); i++)
        if (of_path(WRONG[i], &k) != PATH_KEY_WRONG)
            fail_msg("taken: %s", WRONG[i]);
}

static void a_path_holds_the_longest_key(void **state)
{
    char path[6 * IDEMPOTENCY_KEY_MAX + 32];
    (void)state;
    for (size_t n = IDEMPOTENCY_KEY_MAX - 1; n <= IDEMPOTENCY_KEY_MAX + 1; n++) {
        idempotency_key_t k;
        memset(path, 'k', n);
        path[n] = '\0';
        assert_int_equal(of_path(path, &k) != PATH_KEY_WRONG, n <= IDEMPOTENCY_KEY_MAX);
        size_t len = (size_t)sprintf(path, "%%22");
        for (size_t i = 0; i < n; i++)
            len += (size_t)sprintf(path + len, "%%5C%%22");
        sprintf(path + len, "%%22");
        assert_int_equal(of_path(path, &k) != PATH_KEY_WRONG, n <= IDEMPOTENCY_KEY_MAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_is_a_structured_string),   cmocka_unit_test(anything_else_is_malformed),
        cmocka_unit_test(a_key_has_up_to_255_characters), cmocka_unit_test(a_path_names_a_request_id_or_a_key),
        cmocka_unit_test(a_malformed_path_names_nothing), cmocka_unit_test(a_path_holds_the_longest_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
