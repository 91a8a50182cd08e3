/* The command's arguments: base URLs (spec section 8.6), `run`, and `clients` with one dash or two (spec section 1.6).
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/clients_options.h"
#include "cli/connection.h"
#include "cli/run_call.h"
#include "cli/run_options.h"

static void test_base_urls(void **state)
{
    (void)state;
    static const struct {
        const char *url, *backend;
        bool insecure;
        const char *base; /* NULL = refused */
    } CASES[] = {
        {"http://127.0.0.1:8746", NULL, false, "http://127.0.0.1:8746"},
        {"http://127.0.0.1:8746///", NULL, false, "http://127.0.0.1:8746"},
        {"http://127.9.9.9", NULL, false, "http://127.9.9.9"},
        {"http://localhost:1", "wasm", false, "http://localhost:1/backends/wasm"},
        {"http://[::1]:8746/", NULL, false, "http://[::1]:8746"},
        {"https://gateway.example.com/sandbox/", "e2b", false, "https://gateway.example.com/sandbox/backends/e2b"},
        {"http://gateway.example.com", NULL, true, "http://gateway.example.com"},
        {"http://gateway.example.com", NULL, false, NULL},
        {"http://[::2]:8746", NULL, false, NULL},
        {"http://128.0.0.1", NULL, false, NULL},
        {"http://127.0.0.1.example.com", NULL, false, NULL},
        {"http://localhost.example.com", NULL, false, NULL},
        {"http://0.0.0.0", NULL, false, NULL},
        {"http://user@127.0.0.1", NULL, false, NULL},
        {"http://user:pw@127.0.0.1", NULL, false, NULL},
        {"http://127.0.0.1@example.com", NULL, false, NULL},
        {"http://127.0.0.1/?a=b", NULL, false, NULL},
        {"http://127.0.0.1/#a", NULL, false, NULL},
        {"ftp://127.0.0.1", NULL, true, NULL},
        {"127.0.0.1:8746", NULL, true, NULL},
        {"/path", NULL, true, NULL},
        {"http://", NULL, true, NULL},
        {"", NULL, true, NULL},
        {"http://127.0.0.1\r\nX: y", NULL, false, NULL},
        {"http://127.0.0.1", "", false, NULL},
        {"http://127.0.0.1", "../x", false, NULL},
        {"http://127.0.0.1", "WASM", false, NULL},
        {"http://127.0.0.1", "abcdefghijklmnopqrstuvwxyz-_1234", false,
         "http://127.0.0.1/backends/abcdefghijklmnopqrstuvwxyz-_1234"},         /* 32 characters */
        {"http://127.0.0.1", "abcdefghijklmnopqrstuvwxyz-_12345", false, NULL}, /* 33 */
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        char error[CONNECTION_ERROR_MAX] = "";
        char *base = base_url_check(CASES[i].url, CASES[i].backend, CASES[i].insecure, error);
        if (CASES[i].base == NULL) {
            assert_null(base);
            assert_string_not_equal(error, "");
        } else {
            assert_non_null(base);
            /* libcurl writes a bare host with its slash, which is stripped. */
            assert_string_equal(base, CASES[i].base);
        }
        free(base);
    }
}

static void test_url_length(void **state)
{
    (void)state;
    for (int extra = -1; extra <= 1; extra++) {
        char url[CONNECTION_URL_MAX + 2] = "http://127.0.0.1/", error[CONNECTION_ERROR_MAX];
        size_t len = (size_t)(CONNECTION_URL_MAX + extra);
        memset(url + strlen(url), 'p', len - strlen(url));
        url[len] = '\0';
        char *base = base_url_check(url, NULL, false, error);
        assert_int_equal(base != NULL, extra <= 0);
        free(base);
    }
}

/* getopt permutes argv: each parse gets its own copy. */
enum { ARGS_MAX = 16 };
static int copy_args(char **out, const char *const *args)
{
    int argc = 0;
    for (; args[argc] != NULL; argc++)
        out[argc] = (char *)args[argc];
    out[argc] = NULL;
    return argc;
}

static bool parse_run(run_options_t *options, const char *const *args)
{
    char *argv[ARGS_MAX];
    int argc = copy_args(argv, args);
    /* Complaints go to stderr, where cmocka's own belong. */
    fflush(stderr);
    int saved = dup(STDERR_FILENO), null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    assert_true(saved >= 0 && null_fd >= 0 && dup2(null_fd, STDERR_FILENO) >= 0);
    bool ok = run_options_parse(argc, argv, options);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(null_fd);
    return ok;
}

static void test_run_options(void **state)
{
    (void)state;
    run_options_t o;
    const char *const plain[] = {"plimsoll run", "a.js", NULL};
    assert_true(parse_run(&o, plain));
    assert_string_equal(o.file, "a.js");
    assert_string_equal(o.floor, "");
    assert_null(o.request_id);
    assert_int_equal(o.timeout_ms, 0);
    const char *const all[] = {"plimsoll run", "-v",   "--floor=kernel",  "-",     "--timeout", "1m30s", "--json",
                               "--backend",    "wasm", "--insecure-http", "--url", "http://x",  NULL};
    assert_true(parse_run(&o, all));
    assert_true(o.verbose && o.json && o.connection.insecure_http);
    assert_string_equal(o.floor, "kernel");
    assert_int_equal(o.timeout_ms, 90000);
    assert_string_equal(o.connection.backend, "wasm");
    assert_string_equal(o.connection.url, "http://x");
    const char *const dashed[] = {"plimsoll run", "--", "--json", NULL};
    assert_true(parse_run(&o, dashed));
    assert_string_equal(o.file, "--json");
}

static void test_run_timeout_limits(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int32_t ms; /* 0 = refused */
    } CASES[] = {{"0ms", 0},      {"1ms", 1}, {"299999ms", 299999}, {"300000ms", 300000}, {"5m", 300000},
                 {"300001ms", 0}, {"10", 0},  {"-1s", 0},           {"1e3ms", 0},         {"99999999999999999999h", 0}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        run_options_t o;
        const char *const args[] = {"plimsoll run", "--timeout", CASES[i].text, "-", NULL};
        assert_int_equal(parse_run(&o, args), CASES[i].ms != 0);
        assert_int_equal(o.timeout_ms, CASES[i].ms);
    }
}

static void test_token_is_no_argument(void **state)
{
    (void)state;
    run_options_t o;
    const char *const args[] = {"plimsoll run", "--token", "0123456789abcdef0123456789abcdef", "-", NULL};
    /* getopt takes an unambiguous beginning for the whole: --token is --token-file here, and then names a file. */
    assert_true(parse_run(&o, args));
    assert_string_equal(o.connection.token_file, "0123456789abcdef0123456789abcdef");
}

static void test_code_limits(void **state)
{
    (void)state;
    char *code = malloc(RUN_CODE_MAX + 2);
    assert_non_null(code);
    memset(code, 'x', RUN_CODE_MAX + 2);
    for (int extra = -1; extra <= 1; extra++) {
        run_ask_t ask = {.code = code, .code_len = (size_t)(RUN_CODE_MAX + extra), .floor = "", .trace_id = ""};
        assert_int_equal(run_ask_check(&ask) == NULL, extra <= 0);
    }
    run_ask_t empty = {.code = "", .floor = ""}, nul = {.code = "a\0b", .code_len = 3, .floor = ""},
              latin = {.code = "\xe9", .code_len = 1, .floor = ""},
              floor = {.code = "1", .code_len = 1, .floor = "none"};
    assert_non_null(run_ask_check(&empty));
    assert_non_null(run_ask_check(&nul));
    assert_non_null(run_ask_check(&latin));
    assert_non_null(run_ask_check(&floor));
    free(code);
}

static void test_trace_ids(void **state)
{
    (void)state;
    static const char longest[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    assert_true(trace_id_is_valid("A.b_c:d-9"));
    assert_true(trace_id_is_valid(longest));
    assert_false(trace_id_is_valid("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0"));
    assert_false(trace_id_is_valid(""));
    assert_false(trace_id_is_valid("a b"));
    assert_false(trace_id_is_valid("a\n"));
}

static bool parse_clients(clients_options_t *options, const char *const *args)
{
    char *argv[ARGS_MAX], error[CLIENTS_ERROR_MAX] = "";
    int argc = copy_args(argv, args);
    bool ok = clients_options_parse(argc, argv, options, error);
    assert_int_equal(ok, error[0] == '\0');
    return ok;
}

static void test_clients_dashes(void **state)
{
    (void)state;
    const char *const one[] = {"plimsoll clients", "create",        "-file", "f", "-id", "a", "-scope", "x",
                               "-scope=y",         "-token-stdout", NULL};
    const char *const two[] = {"plimsoll clients", "create",         "--file", "f", "--id", "a", "--scope", "x",
                               "--scope=y",        "--token-stdout", NULL};
    const char *const *const CASES[] = {one, two};
    for (size_t i = 0; i < 2; i++) {
        clients_options_t o;
        assert_true(parse_clients(&o, CASES[i]));
        assert_int_equal(o.command, CLIENTS_CREATE);
        assert_string_equal(o.file, "f");
        assert_string_equal(o.id, "a");
        assert_int_equal(o.scope_count, 2);
        assert_string_equal(o.scopes[1], "y");
        assert_true(o.token_stdout);
        assert_false(o.has_allowance);
    }
}

static void test_clients_allowance(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool ok;
        uint64_t value;
    } CASES[] = {{"0", true, 0},
                 {"9223372036854775806", true, INT64_MAX - UINT64_C(1)},
                 {"9223372036854775807", true, INT64_MAX},
                 {"9223372036854775808", false, 0},
                 {"18446744073709551616", false, 0},
                 {"-1", false, 0},
                 {"+1", false, 0},
                 {" 1", false, 0},
                 {"1s", false, 0},
                 {"", false, 0}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        clients_options_t o;
        const char *const args[] = {"plimsoll clients",      "limit",       "-file", "f", "-id", "a",
                                    "-paid-seconds-per-day", CASES[i].text, NULL};
        assert_int_equal(parse_clients(&o, args), CASES[i].ok);
        if (CASES[i].ok)
            assert_true(o.has_allowance && o.paid_seconds_per_day == CASES[i].value);
    }
}

static void test_clients_overlap(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms; /* 0 = refused */
    } CASES[] = {{"1ms", 1}, {"24h", 86400000}, {"720h", 2592000000}, {"2592000001ms", 0}, {"0s", 0}, {"soon", 0}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        clients_options_t o;
        const char *const args[] = {"plimsoll clients", "rotate",   "-file",       "f", "-id", "a",
                                    "-token-stdout",    "-overlap", CASES[i].text, NULL};
        assert_int_equal(parse_clients(&o, args), CASES[i].ms != 0);
        if (CASES[i].ms != 0)
            assert_int_equal(o.overlap_ms, CASES[i].ms);
    }
}

static void test_clients_scope_count(void **state)
{
    (void)state;
    for (size_t count = CALLER_SCOPES_MAX - 1; count <= CALLER_SCOPES_MAX + 1; count++) {
        char *argv[CALLER_SCOPES_MAX + 16] = {"plimsoll clients", "import", "-file", "f", "-id", "a"};
        int argc = 6;
        for (size_t i = 0; i < count; i++)
            argv[argc++] = "-scope=s";
        clients_options_t o;
        char error[CLIENTS_ERROR_MAX];
        assert_int_equal(clients_options_parse(argc, argv, &o, error), count <= CALLER_SCOPES_MAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_base_urls),
        cmocka_unit_test(test_url_length),
        cmocka_unit_test(test_run_options),
        cmocka_unit_test(test_run_timeout_limits),
        cmocka_unit_test(test_token_is_no_argument),
        cmocka_unit_test(test_code_limits),
        cmocka_unit_test(test_trace_ids),
        cmocka_unit_test(test_clients_dashes),
        cmocka_unit_test(test_clients_allowance),
        cmocka_unit_test(test_clients_overlap),
        cmocka_unit_test(test_clients_scope_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
