/* Heads of HTTP/2 requests as the text the strict check reads: RFC 9113 sections 8.2 and 8.3 say what a head may hold,
 * and no field may become anything but itself on the way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/http2_head.h"
#include "gateway/limits.h"

#define ID "0123456789abcdef0123456789abcdef"
#define GOOD                                                                                                           \
    {":method", "GET"}, {":scheme", "http"}, {":authority", "gw"},                                                     \
    {                                                                                                                  \
        ":path", "/a?b=c"                                                                                              \
    }

typedef struct {
    const char *name, *value;
} pair_t;

static void add(http2_head_t *h, const char *name, size_t name_len, const char *value, size_t value_len)
{
    /* copies of exactly the bytes, so the sanitizer sees a read past them */
    uint8_t *n = malloc(name_len != 0 ? name_len : 1), *v = malloc(value_len != 0 ? value_len : 1);
    assert_non_null(n);
    assert_non_null(v);
    memcpy(n, name, name_len);
    memcpy(v, value, value_len);
    http2_head_add(h, n, name_len, v, value_len);
    free(n);
    free(v);
}

static head_result_t parse(http2_head_t *h, const pair_t *pairs, size_t count, head_t *head, const char **why)
{
    http2_head_init(h);
    for (size_t i = 0; i < count; i++)
        add(h, pairs[i].name, strlen(pairs[i].name), pairs[i].value, strlen(pairs[i].value));
    return http2_head_parse(h, head, why);
}

#define PARSE(h, head, why, ...)                                                                                       \
    parse((h), (const pair_t[]){__VA_ARGS__}, sizeof((const pair_t[]){__VA_ARGS__}) / sizeof(pair_t), (head), (why))

static void is_text(const head_field_t *field, const char *text)
{
    assert_non_null(field->base);
    assert_int_equal(field->len, strlen(text));
    assert_memory_equal(field->base, text, field->len);
}

static void a_request_means_the_same(void **state)
{
    (void)state;
    http2_head_t h;
    head_t head;
    const char *why;
    assert_int_equal(PARSE(&h, &head, &why, {":path", "/a/b?c=d&e"}, {":method", "POST"}, {":authority", "gw:80"},
                           {":scheme", "https"}, {"content-type", "application/json"}, {"content-length", "12"},
                           {"authorization", "Bearer x"}, {"plimsoll-request-id", ID}, {"te", "trailers"},
                           {"cookie", "a=b"}, {"cookie", "c=d"}, {"x-forwarded-for", "192.0.2.1"},
                           {"x-forwarded-for", "192.0.2.2"}, {"expect", "100-continue"}),
                     HEAD_OK);
    is_text(&head.method, "POST");
    is_text(&head.path, "/a/b");
    is_text(&head.query, "c=d&e");
    is_text(&head.content_type, "application/json");
    is_text(&head.authorization, "Bearer x");
    is_text(&head.request_id, ID);
    assert_int_equal(head.forwarded_lines, 2);
    is_text(&head.forwarded_for[1], "192.0.2.2");
    assert_true(head.has_length && head.length == 12 && !head.chunked);
    assert_true(head.expects_continue && head.persistent);
    http2_head_dispose(&h);
}

static void the_host_may_be_in_either_place(void **state)
{
    (void)state;
    static const struct {
        const char *authority, *host;
        head_result_t result;
    } cases[] = {
        {"gw", NULL, HEAD_OK},       {NULL, "gw", HEAD_OK},    {"gw", "gw", HEAD_OK},   {"gw", "gx", HEAD_BAD},
        {"gw", "gw:80", HEAD_BAD},   {NULL, NULL, HEAD_BAD},   {"gw", "", HEAD_BAD},    {"g w", NULL, HEAD_BAD},
        {"u@gw", NULL, HEAD_BAD},    {"gw/x", NULL, HEAD_BAD}, {NULL, "g w", HEAD_BAD}, {"", NULL, HEAD_BAD},
        {"[::1]:80", NULL, HEAD_OK},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        http2_head_t h;
        head_t head;
        const char *why;
        http2_head_init(&h);
        add(&h, ":method", 7, "GET", 3);
        add(&h, ":scheme", 7, "http", 4);
        add(&h, ":path", 5, "/", 1);
        if (cases[i].authority != NULL)
            add(&h, ":authority", 10, cases[i].authority, strlen(cases[i].authority));
        if (cases[i].host != NULL)
            add(&h, "host", 4, cases[i].host, strlen(cases[i].host));
        assert_int_equal(http2_head_parse(&h, &head, &why), cases[i].result);
        assert_true((why != NULL) == (cases[i].result != HEAD_OK));
        http2_head_dispose(&h);
    }
}

static void what_is_malformed_is_refused_and_its_id_known(void **state)
{
    (void)state;
    static const pair_t cases[][6] = {
        {{":scheme", "http"}, {":authority", "gw"}, {":path", "/"}},
        {{":method", "GET"}, {":authority", "gw"}, {":path", "/"}},
        {{":method", "GET"}, {":scheme", "http"}, {":authority", "gw"}},
        {{":method", "GET"}, {":scheme", "http"}, {":authority", "gw"}, {":path", ""}},
        {{":method", "GET"}, {":scheme", "http"}, {":authority", "gw"}, {":path", "a"}},
        {{":method", "GET"}, {":scheme", "http"}, {":authority", "gw"}, {":path", "http://gw/"}},
        {{":method", "GET"}, {":scheme", "http"}, {":authority", "gw"}, {":path", "*x"}},
        {{":method", "GET"}, {":scheme", "http"}, {":authority", "gw"}, {":path", "/ HTTP/1.1"}},
        {{":method", "GET"}, {":scheme", "http"}, {":authority", "gw"}, {":path", "/\r\nx: y"}},
        {{":method", "GET"}, {":scheme", "http"}, {":authority", "gw"}, {":path", "/\x80"}},
        {{":method", "GET"}, {":scheme", "http"}, {":authority", "gw"}, {":path", "/#x"}},
        {{":method", "GET /x"}, {":scheme", "http"}, {":authority", "gw"}, {":path", "/"}},
        {{":method", "G(T"}, {":scheme", "http"}, {":authority", "gw"}, {":path", "/"}},
        {{":method", "CONNECT"}, {":authority", "gw:80"}},
        {{":method", "GET"}, {":scheme", "ftp"}, {":authority", "gw"}, {":path", "/"}},
        {{":method", "GET"}, {":scheme", "HTTP"}, {":authority", "gw"}, {":path", "/"}},
        {GOOD, {":path", "/b"}},
        {GOOD, {":method", "PUT"}},
        {GOOD, {":status", "200"}},
        {GOOD, {":protocol", "websocket"}},
        {GOOD, {":", "x"}},
        {{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {"host", "gw"}, {":authority", "gw"}},
        {{":method", "GET"}, {":scheme", "http"}, {":authority", "gw"}, {"x-a", "1"}, {":path", "/"}},
        {GOOD, {"X-Upper", "1"}},
        {GOOD, {"x y", "1"}},
        {GOOD, {"x:y", "1"}},
        {GOOD, {"", "1"}},
        {GOOD, {"x\r\ny", "1"}},
        {GOOD, {"x-y", "1\r\nauthorization: Bearer z"}},
        {GOOD, {"x-y", "1\n2"}},
        {GOOD, {"x-y", "1\r2"}},
        {GOOD, {"x-y", "1\x01"}},
        {GOOD, {"connection", "close"}},
        {GOOD, {"keep-alive", "1"}},
        {GOOD, {"proxy-connection", "close"}},
        {GOOD, {"transfer-encoding", "chunked"}},
        {GOOD, {"upgrade", "h2c"}},
        {GOOD, {"content-length", "1x"}},
        {GOOD, {"expect", "more"}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        http2_head_t h;
        head_t head;
        const char *why;
        http2_head_init(&h);
        for (size_t k = 0; k < 6 && cases[i][k].name != NULL; k++)
            add(&h, cases[i][k].name, strlen(cases[i][k].name), cases[i][k].value, strlen(cases[i][k].value));
        add(&h, "plimsoll-request-id", 19, ID, 32);
        if (http2_head_parse(&h, &head, &why) != HEAD_BAD)
            fail_msg("case %zu is taken", i);
        assert_non_null(why);
        assert_true(head_request_id_is_valid(&head.request_id));
        assert_null(head.authorization.base);
        http2_head_dispose(&h);
    }
}

static void a_nul_is_refused(void **state)
{
    (void)state;
    http2_head_t h;
    head_t head;
    const char *why;
    for (int where = 0; where < 3; where++) {
        const pair_t good[] = {GOOD};
        http2_head_init(&h);
        for (size_t k = 0; k < 4; k++)
            if (where != 2 || k != 3)
                add(&h, good[k].name, strlen(good[k].name), good[k].value, strlen(good[k].value));
        if (where == 0)
            add(&h, "x\0y", 3, "1", 1);
        else if (where == 1)
            add(&h, "x-y", 3, "1\0002", 3);
        else
            add(&h, ":path", 5, "/\0", 2);
        assert_int_equal(http2_head_parse(&h, &head, &why), HEAD_BAD);
        http2_head_dispose(&h);
    }
}

static void a_malformed_head_is_known_as_one(void **state)
{
    (void)state;
    http2_head_t h;
    head_t head;
    const char *why;
    /* its refusal has no body either */
    assert_int_equal(
        PARSE(&h, &head, &why, {":method", "HEAD"}, {":scheme", "ftp"}, {":authority", "gw"}, {":path", "/"}),
        HEAD_BAD);
    is_text(&head.method, "HEAD");
    http2_head_dispose(&h);
}

/* The text "GET / HTTP/1.1", "host:gw", "x:v...", each with its end, and the empty line. */
static head_result_t parse_of_size(size_t size)
{
    http2_head_t h;
    head_t head;
    const char *why;
    size_t len = size - strlen("GET / HTTP/1.1\r\nhost:gw\r\nx:\r\n\r\n");
    char *value = malloc(len);
    assert_non_null(value);
    memset(value, 'v', len);
    http2_head_init(&h);
    add(&h, ":method", 7, "GET", 3);
    add(&h, ":scheme", 7, "http", 4);
    add(&h, ":authority", 10, "gw", 2);
    add(&h, ":path", 5, "/", 1);
    add(&h, "x", 1, value, len);
    head_result_t result = http2_head_parse(&h, &head, &why);
    http2_head_dispose(&h);
    free(value);
    return result;
}

static void the_size_is_that_of_the_text(void **state)
{
    (void)state;
    /* names of pseudo-headers count for the memory that is held, so a head of one field ends a little earlier */
    assert_int_equal(parse_of_size(HEAD_MAX - 64), HEAD_OK);
    assert_int_equal(parse_of_size(HEAD_MAX + 1), HEAD_TOO_LARGE);
    assert_int_equal(parse_of_size(4 * HEAD_MAX), HEAD_TOO_LARGE);
}

static void memory_is_bounded_by_what_a_head_may_have(void **state)
{
    (void)state;
    http2_head_t h;
    head_t head;
    const char *why;
    char value[4096];
    memset(value, 'v', sizeof(value));
    http2_head_init(&h);
    for (int i = 0; i < 100000; i++)
        add(&h, "x-big", 5, value, sizeof(value));
    assert_true(h.fields.len <= HEAD_MAX);
    assert_int_equal(http2_head_parse(&h, &head, &why), HEAD_TOO_LARGE);
    http2_head_dispose(&h);
    /* as many as fit of the shortest there are */
    http2_head_init(&h);
    for (int i = 0; i < 2 * HEAD_MAX; i++)
        add(&h, "x", 1, "", 0);
    assert_true(h.fields.len <= 4 * HEAD_MAX);
    assert_int_equal(http2_head_parse(&h, &head, &why), HEAD_TOO_LARGE);
    http2_head_dispose(&h);
    for (int pseudo = 0; pseudo < 2; pseudo++) {
        const pair_t good[] = {GOOD};
        http2_head_init(&h);
        for (size_t k = 0; pseudo != 0 && k < 4; k++)
            add(&h, good[k].name, strlen(good[k].name), good[k].value, strlen(good[k].value));
        while (h.total < HEAD_MAX)
            add(&h, "x", 1, "", 0);
        assert_int_equal(http2_head_parse(&h, &head, &why), HEAD_TOO_LARGE);
        http2_head_dispose(&h);
    }
}

static void the_number_of_fields_is_limited(void **state)
{
    (void)state;
    for (int more = -1; more <= 1; more++) {
        http2_head_t h;
        head_t head;
        const char *why;
        const pair_t good[] = {GOOD};
        http2_head_init(&h);
        for (size_t k = 0; k < 4; k++)
            add(&h, good[k].name, strlen(good[k].name), good[k].value, strlen(good[k].value));
        for (int i = 0; i < HEAD_FIELDS_MAX - 1 + more; i++) /* Host is one */
            add(&h, "x-a", 3, "1", 1);
        assert_int_equal(http2_head_parse(&h, &head, &why), more <= 0 ? HEAD_OK : HEAD_BAD);
        http2_head_dispose(&h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_means_the_same),
        cmocka_unit_test(the_host_may_be_in_either_place),
        cmocka_unit_test(what_is_malformed_is_refused_and_its_id_known),
        cmocka_unit_test(a_nul_is_refused),
        cmocka_unit_test(a_malformed_head_is_known_as_one),
        cmocka_unit_test(the_size_is_that_of_the_text),
        cmocka_unit_test(memory_is_bounded_by_what_a_head_may_have),
        cmocka_unit_test(the_number_of_fields_is_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
