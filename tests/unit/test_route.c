/* Which thing a path names: exact paths, nothing decoded, nothing normalized (spec 1.2). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/route.h"

#define LEN(array) (sizeof(array) / sizeof((array)[0]))
#define SERVICE "/plimsoll.v1.SandboxService/"

static route_t parse(const char *path, const char *prefix)
{
    /* exactly the bytes, without an end */
    size_t len = strlen(path), prefix_len = strlen(prefix);
    char *p = malloc(len + 1), *q = malloc(prefix_len + 1);
    route_t out;
    assert_non_null(p);
    assert_non_null(q);
    p = realloc(memcpy(p, path, len), len != 0 ? len : 1);
    q = realloc(memcpy(q, prefix, prefix_len), prefix_len != 0 ? prefix_len : 1);
    memset(&out, 0x5a, sizeof(out));
    route_parse(p, len, q, prefix_len, &out);
    free(p);
    free(q);
    return out;
}

static void is_kind(const char *path, const char *prefix, route_kind_t kind)
{
    route_t r = parse(path, prefix);
    if (r.kind != kind)
        fail_msg("%s under '%s' is %d, not %d", path, prefix, r.kind, kind);
}

static const struct {
    const char *path;
    route_kind_t kind;
} PATHS[] = {
    {"/healthz", ROUTE_HEALTHZ},
    {"/readyz", ROUTE_READYZ},
    {"/metrics", ROUTE_METRICS},
    {SERVICE "Describe", ROUTE_DESCRIBE},
    {SERVICE "Run", ROUTE_RUN},
    {SERVICE "OpenSession", ROUTE_OPEN_SESSION},
    {SERVICE "SessionRun", ROUTE_SESSION_RUN},
    {SERVICE "CloseSession", ROUTE_CLOSE_SESSION},
    {"/v1/backends", ROUTE_BACKENDS},
    {"/v1/log/head", ROUTE_LOG_HEAD},
    {"/v1/log/inclusion", ROUTE_LOG_INCLUSION},
    {"/v1/log/consistency", ROUTE_LOG_CONSISTENCY},
    {"/v1/runs", ROUTE_RUNS},
    {"/v1/runs/0123456789abcdef", ROUTE_RUN_RECORD},
    {"/v1/runs/by-key/0123456789abcdef0123456789abcdef", ROUTE_RUN_BY_KEY},
    {"/v1/runs/by-key/%22a%2Fb%22", ROUTE_RUN_BY_KEY},
    {"/v1/runs/by-key/", ROUTE_RUN_BY_KEY},
    {"/v1/runs/by-key", ROUTE_RUN_RECORD}, /* no run ID; the page says so */
    {"/v1/usage", ROUTE_USAGE},
    {"/v1/usage/", ROUTE_NONE},
    {SERVICE "run", ROUTE_UNKNOWN_PROCEDURE},
    {SERVICE, ROUTE_UNKNOWN_PROCEDURE},
    {SERVICE "Run/", ROUTE_UNKNOWN_PROCEDURE},
    {SERVICE "Runs", ROUTE_UNKNOWN_PROCEDURE},
    {SERVICE "Ru", ROUTE_UNKNOWN_PROCEDURE},
    {SERVICE "../healthz", ROUTE_UNKNOWN_PROCEDURE},
};

static const char *const NOTHING[] = {
    "/",
    "*",
    "//healthz",
    "/healthz/",
    "/healthzz",
    "/health",
    "/HEALTHZ",
    "/healthz%00",
    "/./healthz",
    "/x/../healthz",
    "/%68ealthz",
    "/plimsoll.v1.SandboxService",
    "/plimsoll.v1.sandboxservice/Run",
    "/plimsoll.v1.SandboxService%2fRun",
    "//plimsoll.v1.SandboxService/Run",
    "/Run",
    "/v1",
    "/v1/",
    "/v1/backends/",
    "/v1/runs/",
    "/v1/runs/a/b",
    "/v1/runs/a%20b",
    "/v1/runs/a b",
    "/v1/log",
    "/v1/log/",
    "/v1/log/heads",
    "/v1/log/head/",
    "/backends/wasm/v1/log/head",
    "/v1/run",
    "/v2/runs",
    "/v1//runs",
    "/backends",
    "/backends/",
    "/backends//v1/runs",
    "/backends/wasm",
    "/backends/wasm/",
    "/backends/wasm/healthz",
    "/backends/wasm/v1/runs",
    "/backends/wasm/v1/backends",
    "/backends/w%61sm" SERVICE "Run",
    "/backends/wa/sm" SERVICE "Run",
    "/backends/wasm/backends/wasm" SERVICE "Run",
};

static void paths(void **state)
{
    (void)state;
    for (size_t i = 0; i < LEN(PATHS); i++) {
        is_kind(PATHS[i].path, "", PATHS[i].kind);
        assert_false(parse(PATHS[i].path, "").pinned);
        assert_string_equal(parse(PATHS[i].path, "").backend, "");
    }
    for (size_t i = 0; i < LEN(NOTHING); i++)
        is_kind(NOTHING[i], "", ROUTE_NONE);
    is_kind("", "", ROUTE_NONE);
}

static void the_id_of_a_run(void **state)
{
    (void)state;
    assert_string_equal(parse("/v1/runs/0123456789abcdef", "").argument, "0123456789abcdef");
    assert_string_equal(parse("/v1/runs/A.b_c-9", "").argument, "A.b_c-9");
    assert_string_equal(parse("/v1/runs", "").argument, "");
}

static void under_a_prefix(void **state)
{
    char path[256];
    (void)state;
    for (size_t i = 0; i < LEN(PATHS); i++) {
        route_kind_t kind = PATHS[i].kind;
        snprintf(path, sizeof(path), "/sand/box%s", PATHS[i].path);
        is_kind(path, "/sand/box", kind);
        /* without it: the health paths alone, which a probe asks past the proxy */
        bool is_health = kind == ROUTE_HEALTHZ || kind == ROUTE_READYZ || kind == ROUTE_METRICS;
        is_kind(PATHS[i].path, "/sand/box", is_health ? kind : ROUTE_NONE);
        /* the prefix is a path, not a piece of text */
        snprintf(path, sizeof(path), "/sand/box/%s", PATHS[i].path);
        is_kind(path, "/sand/box", ROUTE_NONE);
        snprintf(path, sizeof(path), "/sand/boxes%s", PATHS[i].path);
        is_kind(path, "/sand/box", ROUTE_NONE);
        snprintf(path, sizeof(path), "/sand/box/sand/box%s", PATHS[i].path);
        is_kind(path, "/sand/box", ROUTE_NONE);
        snprintf(path, sizeof(path), "/Sand/box%s", PATHS[i].path);
        is_kind(path, "/sand/box", ROUTE_NONE);
        snprintf(path, sizeof(path), "/sand%%2fbox%s", PATHS[i].path);
        is_kind(path, "/sand/box", ROUTE_NONE);
    }
    is_kind("/sand/box", "/sand/box", ROUTE_NONE);
    is_kind("/sand/box/", "/sand/box", ROUTE_NONE);
    is_kind("/sand", "/sand/box", ROUTE_NONE);
    is_kind("", "/sand/box", ROUTE_NONE);
}

static void pinned_to_a_backend(void **state)
{
    static const char *const names[] = {"wasm", "a", "A.b_c-9"};
    (void)state;
    for (size_t i = 0; i < LEN(names); i++) {
        char path[256];
        snprintf(path, sizeof(path), "/backends/%s" SERVICE "Run", names[i]);
        route_t r = parse(path, "");
        assert_int_equal(r.kind, ROUTE_RUN);
        assert_true(r.pinned);
        assert_string_equal(r.backend, names[i]);
        snprintf(path, sizeof(path), "/p/backends/%s" SERVICE "Describe", names[i]);
        r = parse(path, "/p");
        assert_int_equal(r.kind, ROUTE_DESCRIBE);
        assert_string_equal(r.backend, names[i]);
        snprintf(path, sizeof(path), "/backends/%s/p" SERVICE "Describe", names[i]);
        is_kind(path, "/p", ROUTE_NONE);
    }
    assert_int_equal(parse("/backends/wasm" SERVICE "Nothing", "").kind, ROUTE_UNKNOWN_PROCEDURE);
}

static void names_at_their_limit(void **state)
{
    (void)state;
    for (size_t len = ROUTE_NAME_MAX - 2; len <= ROUTE_NAME_MAX; len++) {
        char name[ROUTE_NAME_MAX + 1], path[256];
        memset(name, 'n', len);
        name[len] = '\0';
        snprintf(path, sizeof(path), "/backends/%s" SERVICE "Run", name);
        is_kind(path, "", len < ROUTE_NAME_MAX ? ROUTE_RUN : ROUTE_NONE);
        snprintf(path, sizeof(path), "/v1/runs/%s", name);
        is_kind(path, "", len < ROUTE_NAME_MAX ? ROUTE_RUN_RECORD : ROUTE_NONE);
    }
}

/* Spec 1.8: health and metrics are the only things a stranger may ask for. */
static void who_must_be_known(void **state)
{
    static const route_kind_t open[] = {ROUTE_HEALTHZ, ROUTE_READYZ, ROUTE_METRICS};
    static const route_kind_t closed[] = {
        ROUTE_DESCRIBE, ROUTE_RUN,  ROUTE_OPEN_SESSION, ROUTE_SESSION_RUN, ROUTE_CLOSE_SESSION, ROUTE_UNKNOWN_PROCEDURE,
        ROUTE_BACKENDS, ROUTE_RUNS, ROUTE_RUN_RECORD,   ROUTE_LOG_HEAD,    ROUTE_LOG_INCLUSION, ROUTE_LOG_CONSISTENCY};
    (void)state;
    for (size_t i = 0; i < LEN(open); i++) {
        assert_false(route_needs_caller(open[i]));
        assert_false(route_is_procedure(open[i]));
    }
    for (size_t i = 0; i < LEN(closed); i++) {
        assert_true(route_needs_caller(closed[i]));
        assert_int_equal(route_is_procedure(closed[i]), i < 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths),
        cmocka_unit_test(the_id_of_a_run),
        cmocka_unit_test(under_a_prefix),
        cmocka_unit_test(pinned_to_a_backend),
        cmocka_unit_test(names_at_their_limit),
        cmocka_unit_test(who_must_be_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
