/* The head parser alone: what it accepts, what it stores, where it stops. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "core/http_head.h"

/* Feeds lines until one is not HTTP_HEAD_MORE. */
static http_head_result_t feed(http_head_t *head, size_t max, const char *const *lines)
{
    http_head_result_t result = HTTP_HEAD_MORE;
    http_head_init(head, max);
    for (; *lines != NULL && result == HTTP_HEAD_MORE; ++lines) {
        /* A copy of the exact size, so that a read past it is seen. */
        size_t len = strlen(*lines);
        char *copy = malloc(len);
        assert_non_null(copy);
        memcpy(copy, *lines, len);
        result = http_head_line(head, copy, len);
        free(copy);
    }
    return result;
}

static const char *find(const http_head_t *head, const char *name)
{
    return http_head_find((const char *)head->fields.base, head->fields.len, name);
}

static void fields_are_stored(void **state)
{
    (void)state;
    http_head_t head;
    const char *lines[] = {"HTTP/1.1 200 OK\r\n",
                           "Content-Type: text/plain \r\n",
                           "X-Empty:\r\n",
                           "x-two: 1\r\n",
                           "X-Two: 1\r\n",
                           "X-Bare:v\n",
                           "X-Tab:\ta\tb\t\r\n",
                           "\r\n",
                           NULL};
    assert_int_equal(feed(&head, 1000, lines), HTTP_HEAD_END);
    assert_int_equal(head.status, 200);
    assert_true(head.has_ended);
    assert_string_equal(find(&head, "content-TYPE"), "text/plain");
    assert_string_equal(find(&head, "x-empty"), "");
    assert_string_equal(find(&head, "x-bare"), "v");
    assert_string_equal(find(&head, "x-tab"), "a\tb");
    assert_null(find(&head, "x-two")); /* repeated, though equal */
    assert_null(find(&head, "x-none"));
    assert_null(find(&head, ""));
    http_head_dispose(&head);
}

static void interim_heads_leave_nothing(void **state)
{
    (void)state;
    http_head_t head;
    const char *lines[] = {"HTTP/1.1 100 Continue\r\n",
                           "X-Early: 1\r\n",
                           "Content-Length: 9\r\n",
                           "\r\n",
                           "HTTP/1.1 103 Early Hints\r\n",
                           "\r\n",
                           "HTTP/1.1 404 No\r\n",
                           "X-Late: 2\r\n",
                           "Content-Length: 3\r\n",
                           "\r\n",
                           NULL};
    assert_int_equal(feed(&head, 1000, lines), HTTP_HEAD_END);
    assert_int_equal(head.status, 404);
    assert_null(find(&head, "x-early"));
    assert_string_equal(find(&head, "x-late"), "2");
    assert_true(head.has_content_length && head.content_length == 3);
    http_head_dispose(&head);
}

static void trailers_are_counted_only(void **state)
{
    (void)state;
    http_head_t head;
    const char *lines[] = {"HTTP/1.1 200 OK\r\n", "\r\n", NULL};
    assert_int_equal(feed(&head, 40, lines), HTTP_HEAD_END); /* 19 bytes so far */
    assert_int_equal(http_head_line(&head, "X-Trailer: 90123456\r\n", 21), HTTP_HEAD_MORE);
    assert_null(find(&head, "x-trailer"));
    assert_int_equal(http_head_line(&head, "\n", 1), HTTP_HEAD_TOO_LARGE);
    http_head_dispose(&head);
}

static void switching_protocols_is_final(void **state)
{
    (void)state;
    http_head_t head;
    const char *lines[] = {"HTTP/1.1 101 Switching Protocols\r\n", "\r\n", NULL};
    assert_int_equal(feed(&head, 1000, lines), HTTP_HEAD_END);
    http_head_dispose(&head);
}

static void limit_is_exact(void **state)
{
    (void)state;
    const char *lines[] = {"HTTP/1.1 200 OK\r\n", "A:b\r\n", "\r\n", NULL};
    const size_t total = 17 + 5 + 2;
    for (size_t max = 0; max <= total + 1; ++max) {
        http_head_t head;
        assert_int_equal(feed(&head, max, lines), max < total ? HTTP_HEAD_TOO_LARGE : HTTP_HEAD_END);
        http_head_dispose(&head);
    }
}

/* The shortest line there is fills the storage exactly as fast as it uses up the limit. */
static void storage_never_outgrows_the_limit(void **state)
{
    (void)state;
    http_head_t head;
    http_head_init(&head, 15 + 3 * 1000);
    assert_int_equal(http_head_line(&head, "HTTP/1.1 200 O\n", 15), HTTP_HEAD_MORE);
    for (int i = 0; i < 1000; ++i)
        assert_int_equal(http_head_line(&head, "a:\n", 3), HTTP_HEAD_MORE);
    assert_int_equal(http_head_line(&head, "a:\n", 3), HTTP_HEAD_TOO_LARGE);
    assert_int_equal(head.fields.len, 3000);
    http_head_dispose(&head);
}

static void malformed_lines(void **state)
{
    (void)state;
    static const char *const first[] = {"HTTP/1.1\r\n",
                                        "HTTP/1.1 20\r\n",
                                        "HTTP/1.1 2000 X\r\n",
                                        "HTTP/ 200 OK\r\n",
                                        "HTTP/2 200\r\n",
                                        "HTTP/1.2 200 OK\r\n",
                                        "HTTP/1.1",
                                        "HTTP/1.",
                                        "HTTP/1.1 099 X\r\n",
                                        "ICY 200 OK\r\n",
                                        "\r\n",
                                        "",
                                        "HTTP/1.1\t200\r\n",
                                        "HTTP/1.1 2x0 X\r\n"};
    for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); ++i) {
        http_head_t head;
        const char *lines[] = {first[i], NULL};
        assert_int_equal(feed(&head, 1000, lines), HTTP_HEAD_MALFORMED);
        http_head_dispose(&head);
    }
    static const char *const field[] = {"no colon\r\n", ": x\r\n",         " folded: x\r\n", "\tfolded\r\n",
                                        "A : x\r\n",    "A\x01: x\r\n",    "A: \x01\r\n",    "A: \x7f\r\n",
                                        "A: b\rc\r\n",  "\xc3\xa4: x\r\n", "(a): x\r\n",     "HTTP/1.1 200 OK\r\n"};
    for (size_t i = 0; i < sizeof(field) / sizeof(field[0]); ++i) {
        http_head_t head;
        const char *lines[] = {"HTTP/1.1 200 OK\r\n", field[i], NULL};
        assert_int_equal(feed(&head, 1000, lines), HTTP_HEAD_MALFORMED);
        http_head_dispose(&head);
    }
    http_head_t head;
    const char *lines[] = {"HTTP/1.1 200 OK\r\n", NULL};
    assert_int_equal(feed(&head, 1000, lines), HTTP_HEAD_MORE);
    assert_int_equal(http_head_line(&head, "A: b\0c\r\n", 8), HTTP_HEAD_MALFORMED);
    http_head_dispose(&head);
}

static void content_length(void **state)
{
    (void)state;
    static const struct {
        const char *one, *two;
        bool is_fine;
        uint64_t value;
    } cases[] = {
        {"Content-Length: 0\r\n", NULL, true, 0},
        {"content-length:  42 \r\n", NULL, true, 42},
        {"Content-Length: 007\r\n", NULL, true, 7},
        {"Content-Length: 18446744073709551614\r\n", NULL, true, UINT64_MAX - 1},
        {"Content-Length: 18446744073709551615\r\n", NULL, true, UINT64_MAX},
        {"Content-Length: 18446744073709551616\r\n", NULL, true, UINT64_MAX},
        {"Content-Length: 184467440737095516150000000000000000000001\r\n", NULL, true, UINT64_MAX},
        {"Content-Length: 5\r\n", "Content-Length: 5\r\n", true, 5},
        {"Content-Length: 5\r\n", "Content-Length: 6\r\n", false, 0},
        {"Content-Length: 5\r\n", "content-length: 0\r\n", false, 0},
        {"Content-Length:\r\n", NULL, false, 0},
        {"Content-Length: -1\r\n", NULL, false, 0},
        {"Content-Length: +1\r\n", NULL, false, 0},
        {"Content-Length: 1x\r\n", NULL, false, 0},
        {"Content-Length: 0x10\r\n", NULL, false, 0},
        {"Content-Length: 5, 5\r\n", NULL, false, 0},
        {"Content-Length: 1 2\r\n", NULL, false, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        http_head_t head;
        const char *lines[] = {"HTTP/1.1 200 OK\r\n", cases[i].one, cases[i].two != NULL ? cases[i].two : "X: y\r\n",
                               "\r\n", NULL};
        assert_int_equal(feed(&head, 1000, lines), cases[i].is_fine ? HTTP_HEAD_END : HTTP_HEAD_MALFORMED);
        if (cases[i].is_fine)
            assert_true(head.has_content_length && head.content_length == cases[i].value);
        http_head_dispose(&head);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_are_stored),
        cmocka_unit_test(interim_heads_leave_nothing),
        cmocka_unit_test(trailers_are_counted_only),
        cmocka_unit_test(switching_protocols_is_final),
        cmocka_unit_test(limit_is_exact),
        cmocka_unit_test(storage_never_outgrows_the_limit),
        cmocka_unit_test(malformed_lines),
        cmocka_unit_test(content_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
