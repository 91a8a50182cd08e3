/* Which addresses a credential may go to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "config/base_url.h"

static void good_ones(void **state)
{
    static const char *const good[] = {
        "https://api.example.com",
        "https://api.example.com/",
        "HTTPS://API.example.com/a/b//",
        "https://a:1",
        "https://a:65535/v1",
        "https://[2001:db8::1]:8443/x",
        "http://127.0.0.1:8080",
        "http://127.9.9.9",
        "http://localhost:1/sbx",
        "http://LOCALHOST",
        "http://[::1]:9/rest",
        "https://sbx_1.a.example",
        "https://10.0.0.7/~u/a.b-c_d",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); ++i)
        assert_null(base_url_problem(good[i]));
}

static void bad_ones(void **state)
{
    static const char *const bad[] = {
        "",
        "api.example.com",
        "//api.example.com",
        "ftp://a",
        "https://",
        "https:///x",
        "https://user@a",
        "https://user:word@a/",
        "https://a?x=1",
        "https://a/#f",
        "https://a:0",
        "https://a:65536",
        "https://a:",
        "https://a:12x",
        "https://a:123456",
        "https://a b",
        "https://a/b c",
        "https://a\\b",
        "https://a/\r\nX: 1",
        "https://a/%2e",
        "https://a/../b",
        "https://a/.",
        "https://\xc3\xa9.example",
        "https://-a",
        "https://[::1",
        "https://[::1]x",
        "https://[zz]",
        "http://api.example.com",
        "http://127.0.0.1.example.com",
        "http://128.0.0.1",
        "http://0.0.0.0",
        "http://localhost.example.com",
        "http://[2001:db8::1]",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i)
        assert_non_null(base_url_problem(bad[i]));
}

static void length_has_a_limit(void **state)
{
    char *text = malloc(BASE_URL_MAX + 2);
    (void)state;
    memset(text, 'a', BASE_URL_MAX + 1);
    memcpy(text, "https://h/", 10);
    text[BASE_URL_MAX] = '\0';
    assert_null(base_url_problem(text));
    text[BASE_URL_MAX] = 'a';
    text[BASE_URL_MAX + 1] = '\0';
    assert_non_null(base_url_problem(text));
    free(text);
}

static void parts(void **state)
{
    char host[BASE_URL_HOST_MAX + 1];
    (void)state;
    assert_int_equal(base_url_len("https://a/b///"), strlen("https://a/b"));
    assert_int_equal(base_url_len("https://a"), strlen("https://a"));
    base_url_host("https://API.Example.com:443/x", host);
    assert_string_equal(host, "api.example.com");
    base_url_host("http://[::1]:80", host);
    assert_string_equal(host, "::1");
    assert_true(base_url_is_loopback("https://127.0.0.1"));
    assert_false(base_url_is_loopback("https://a.example"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_ones),
        cmocka_unit_test(bad_ones),
        cmocka_unit_test(length_has_a_limit),
        cmocka_unit_test(parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
