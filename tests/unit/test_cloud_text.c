/* What may stand in a log and in an answer of what a provider said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backends/cloud/cloud_text.h"
#include "core/utf8.h"

#define JWT "eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"

static const char *scrub(const cloud_secrets_t *secrets, const char *text)
{
    static char out[CLOUD_TEXT_LOG_MAX + 1];
    return cloud_text_scrub(secrets, text, strlen(text), CLOUD_TEXT_LOG_MAX, out);
}

static void what_looks_like_a_credential_is_not_repeated(void **state)
{
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"Authorization: Bearer abc.DEF-1", "Authorization: [...]"},
        {"authorization: bearer   x", "authorization: [...]"},
        {"Basic dXNlcjo=", "[...]"},
        {"token " JWT " expired", "token [...] expired"},
        {"cut eyJhbGci", "cut [...]"},
        {"pat dckr_pat_aB3-_x!", "pat [...]!"},
        {"dckr_oat_Zz9", "[...]"},
        {"key=e2b_0123456789abcdef.", "key=[...]."},
        {"key e2b_0123456789ABCDEF", "key [...]"},
        {"guard crg_00112233445566778899", "guard [...]"},
        {"id 0123456789abcdef0123456789abcdef", "id [...]"},
        {"sb-0123456789abcdef0123456789abcdef0", "sb-[...]"},
        /* and what does not, is */
        {"the sandbox e2b_template is gone", "the sandbox e2b_template is gone"},
        {"bearer", "bearer"},
        {"the bearer's", "the bearer's"},
        {"commit 0123456789abcdef0123456789abcde", "commit 0123456789abcdef0123456789abcde"},
        {"sandbox i3k9xq2 not found", "sandbox i3k9xq2 not found"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i)
        assert_string_equal(scrub(NULL, cases[i].text), cases[i].expected);
}

static void our_own_are_known_whatever_they_look_like(void **state)
{
    cloud_secrets_t secrets = {.count = 0};
    (void)state;
    cloud_secrets_add(&secrets, "correct horse");
    cloud_secrets_add(&secrets, NULL);
    cloud_secrets_add(&secrets, "short");
    assert_int_equal(secrets.count, 1);
    assert_string_equal(scrub(&secrets, "no such key: correct horse!"), "no such key: [...]!");
    assert_string_equal(scrub(&secrets, "xcorrect horsex"), "x[...]x");
    /* as base64 shows it: printf 'correct horse' | base64 */
    assert_string_equal(scrub(&secrets, "got Y29ycmVjdCBob3JzZQ=="), "got [...]==");
    /* one that was cut where the text ends still tells most of itself */
    assert_string_equal(scrub(&secrets, "key correct ho"), "key [...]");
    assert_string_equal(scrub(&secrets, "key corre"), "key corre");
    assert_string_equal(scrub(&secrets, "short and correct"), "short and [...]"); /* the start of it, at the end */
}

static void control_characters_go_and_the_rest_is_utf8(void **state)
{
    (void)state;
    assert_string_equal(scrub(NULL, "a\r\nb\tc\x1b[31md\x7f"), "a b c [31md");
    assert_string_equal(scrub(NULL, "caf\xc3\xa9 \xff\xfe!"), "caf\xc3\xa9 \xef\xbf\xbd\xef\xbf\xbd!");
    assert_string_equal(scrub(NULL, "a\xc2\x85"
                                    "b\xe2\x80\xae"
                                    "c\xe2\x81\xa6"
                                    "d"),
                        "a b c d");
    assert_string_equal(scrub(NULL, "\n\n"), "");
    char out[8];
    assert_string_equal(cloud_text_scrub(NULL, "a\0b", 3, 7, out), "a b");
    assert_string_equal(cloud_text_scrub(NULL, NULL, 0, 7, out), "");
}

static void a_text_is_cut_at_its_limit_and_never_inside_a_character(void **state)
{
    char text[CLOUD_TEXT_LOG_MAX + 8], out[CLOUD_TEXT_LOG_MAX + 1];
    (void)state;
    for (int over = -1; over <= 1; ++over) {
        memset(text, 'z', sizeof(text));
        cloud_text_scrub(NULL, text, (size_t)(CLOUD_TEXT_LOG_MAX + over), CLOUD_TEXT_LOG_MAX, out);
        assert_int_equal(strlen(out), over <= 0 ? CLOUD_TEXT_LOG_MAX + over : CLOUD_TEXT_LOG_MAX);
    }
    char small[6];
    assert_string_equal(cloud_text_scrub(NULL, "abcd\xe2\x98\x95", 7, 5, small), "abcd");
    assert_string_equal(cloud_text_scrub(NULL, "abc e2b_0123456789", 18, 5, small), "abc");
    char *large = malloc(1024 * 1024);
    memset(large, 'q', 1024 * 1024);
    cloud_text_scrub(NULL, large, 1024 * 1024, CLOUD_TEXT_LOG_MAX, out);
    assert_int_equal(strlen(out), CLOUD_TEXT_LOG_MAX);
    free(large);
}

/* Whatever comes: valid, bounded, without control characters and without the secret. */
static void nothing_gets_through_by_chance(void **state)
{
    static const char secret[] = "sesame-open-0";
    cloud_secrets_t secrets = {.count = 0};
    uint32_t seed = 7;
    (void)state;
    cloud_secrets_add(&secrets, secret);
    for (int round = 0; round < 3000; ++round) {
        char text[200], out[65];
        for (size_t i = 0; i < sizeof(text); ++i) {
            seed = seed * 1664525 + 1013904223;
            text[i] = (char)(seed >> 24);
        }
        memcpy(text + seed % 180, secret, sizeof(secret) - 1);
        cloud_text_scrub(&secrets, text, sizeof(text), 64, out);
        assert_true(strlen(out) <= 64 && utf8_is_valid(out, strlen(out)));
        assert_null(strstr(out, secret));
        for (const char *p = out; *p != '\0'; ++p)
            assert_true((unsigned char)*p >= 0x20);
    }
}

/* A wall wipes its token while a call waits: the text that comes after is scrubbed with what is left. */
static void a_secret_that_was_wiped(void **state)
{
    char token[] = "Zq9xOpaque", out[64];
    cloud_secrets_t secrets = {.count = 0};
    (void)state;
    cloud_secrets_add(&secrets, token);
    memset(token, 0, sizeof(token));
    assert_string_equal(cloud_text_scrub(&secrets, "a text", 6, sizeof(out) - 1, out), "a text");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_secret_that_was_wiped),
        cmocka_unit_test(what_looks_like_a_credential_is_not_repeated),
        cmocka_unit_test(our_own_are_known_whatever_they_look_like),
        cmocka_unit_test(control_characters_go_and_the_rest_is_utf8),
        cmocka_unit_test(a_text_is_cut_at_its_limit_and_never_inside_a_character),
        cmocka_unit_test(nothing_gets_through_by_chance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
