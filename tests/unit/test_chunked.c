/* Chunked bodies, from the grammar of RFC 9112 section 7.1. Every row is fed whole, byte by byte and in every two
 * pieces, and must come to the same end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/chunked.h"
#include "gateway/limits.h"

#define LEN(array) (sizeof(array) / sizeof((array)[0]))
#define NO_LIMIT (UINT64_C(1) << 40)

typedef struct {
    chunked_result_t result;
    char *body; /* decoded, and then what follows the body */
    size_t len, extra, taken;
} fed_t;

/* Feeds `bytes` cut at each multiple of `step`, and at `cut` besides; stops at an end as the gate does, but for what
 * comes in the same piece. */
static fed_t feed(const char *bytes, size_t len, size_t step, size_t cut, uint64_t limit)
{
    fed_t f = {.result = CHUNKED_MORE};
    chunked_t c = {0};
    char *buffer = malloc(len + 1);
    assert_non_null(buffer);
    while (f.taken < len && f.result == CHUNKED_MORE) {
        size_t piece = step < len - f.taken ? step : len - f.taken;
        if (f.taken < cut && cut < f.taken + piece)
            piece = cut - f.taken;
        memcpy(buffer + f.len, bytes + f.taken, piece);
        size_t before = f.len;
        f.result = chunked_feed(&c, buffer, &f.len, piece, limit, &f.extra);
        f.taken += piece;
        assert_true(f.len >= before && f.len + f.extra <= before + piece);
        assert_true(f.result == CHUNKED_DONE || f.extra == 0);
    }
    f.body = buffer;
    return f;
}

static void check(const char *bytes, size_t len, chunked_result_t wanted, const char *body, size_t body_len)
{
    for (size_t cut = 0; cut <= len + 1; cut++) {
        /* cut == len + 1: byte by byte */
        fed_t f = cut > len ? feed(bytes, len, 1, 0, NO_LIMIT) : feed(bytes, len, len + 1, cut, NO_LIMIT);
        if (f.result != wanted)
            fail_msg("cut at %zu of %.60s: result %d", cut, bytes, f.result);
        if (wanted == CHUNKED_DONE) {
            assert_int_equal(f.len, body_len);
            assert_memory_equal(f.body, body, body_len);
        }
        free(f.body);
    }
}

static void bodies_that_are_taken(void **state)
{
    static const struct {
        const char *raw, *body;
    } rows[] = {
        {"0\r\n\r\n", ""},
        {"000\r\n\r\n", ""},
        {"1\r\na\r\n0\r\n\r\n", "a"},
        {"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", "hello world"},
        {"a\r\n0123456789\r\n0\r\n\r\n", "0123456789"},
        {"A\r\n0123456789\r\n0\r\n\r\n", "0123456789"},
        {"0000000000000a\r\n0123456789\r\n0\r\n\r\n", "0123456789"},
        {"00000000000000a\r\n0123456789\r\n0\r\n\r\n", "0123456789"},
        {"1F\r\n0123456789abcdef0123456789abcde\r\n0\r\n\r\n", "0123456789abcdef0123456789abcde"},
        /* data is data: line ends and what looks like chunks within it */
        {"4\r\n\r\n\r\n\r\n0\r\n\r\n", "\r\n\r\n"},
        {"5\r\n0\r\n\r\n\r\n0\r\n\r\n", "0\r\n\r\n"},
        /* extensions are to be ignored when not known (7.1.1) */
        {"1;a\r\nx\r\n0;b\r\n\r\n", "x"},
        {"1;a=b\r\nx\r\n0\r\n\r\n", "x"},
        {"1;a=\"b;c d\"\r\nx\r\n0\r\n\r\n", "x"},
        {"1;a=b;c=d\r\nx\r\n0\r\n\r\n", "x"},
        {"1; a = b\tc\r\nx\r\n0\r\n\r\n", "x"},
        {"1;0\r\nx\r\n0\r\n\r\n", "x"},
        /* trailers may be discarded (7.1.2) */
        {"1\r\nx\r\n0\r\nA: b\r\n\r\n", "x"},
        {"0\r\nA: b\r\nContent-Length: 5\r\n\r\n", ""},
        {"0\r\nA: b\tc\r\n\r\n", ""},
    };
    (void)state;
    for (size_t i = 0; i < LEN(rows); i++)
        check(rows[i].raw, strlen(rows[i].raw), CHUNKED_DONE, rows[i].body, strlen(rows[i].body));
    check("3\r\na\0b\r\n0\r\n\r\n", 13, CHUNKED_DONE, "a\0b", 3);
}

static void bodies_that_are_refused(void **state)
{
    static const struct {
        const char *raw;
        size_t len;
    } rows[] = {
#define ROW(text) {text, sizeof(text) - 1}
        /* chunk-size = 1*HEXDIG */
        ROW("\r\n"),
        ROW("g\r\n"),
        ROW("-1\r\n"),
        ROW("+1\r\n"),
        ROW("0x1\r\nx\r\n0\r\n\r\n"),
        ROW(" 1\r\nx\r\n0\r\n\r\n"),
        ROW("\t1\r\n"),
        ROW("1 \r\nx\r\n0\r\n\r\n"),
        ROW("1 ;a\r\nx\r\n0\r\n\r\n"), /* the grammar's bad white space: read in two ways by others, so refused */
        ROW("1,1\r\nx\r\n0\r\n\r\n"),
        ROW(";a\r\n"),
        ROW("1_0\r\n"),
        ROW("\0"
            "1\r\n"),
        ROW("1\0\r\n"),
        /* a size that could not be held, and zeros that would wrap around */
        ROW("ffffffffffffffff\r\n"),
        ROW("10000000000000001\r\n"),
        ROW("0000000000000001\r\nx\r\n0\r\n\r\n"),
        /* lines end with CRLF */
        ROW("1\nx\r\n0\r\n\r\n"),
        ROW("1\rx\r\n0\r\n\r\n"),
        ROW("1\r\rx"),
        ROW("1\r\nx\n0\r\n\r\n"),
        ROW("1\r\nx\r0\r\n\r\n"),
        ROW("1;a\nx\r\n0\r\n\r\n"),
        ROW("1;a\rx\r\n"),
        ROW("0\n\n"),
        ROW("0\r\n\n"),
        ROW("0\r\n\rx"),
        ROW("0\r\nA: b\n\r\n"),
        ROW("0\r\nA: b\rc\r\n\r\n"),
        /* data as long as it says */
        ROW("1\r\nxy\r\n0\r\n\r\n"),
        ROW("2\r\nx\r\n0\r\n\r\n"),
        /* control bytes where no data is */
        ROW("1;\0\r\nx\r\n0\r\n\r\n"),
        ROW("1;\x01\r\nx\r\n0\r\n\r\n"),
        ROW("0\r\nA:\0b\r\n\r\n"),
        ROW("0\r\n\x1f\r\n\r\n"),
#undef ROW
    };
    (void)state;
    for (size_t i = 0; i < LEN(rows); i++)
        check(rows[i].raw, rows[i].len, CHUNKED_BAD, NULL, 0);
}

static void bodies_that_go_on(void **state)
{
    static const char *const rows[] = {"",         "1",           "1\r",           "1\r\n", "1\r\nx",
                                       "1\r\nx\r", "1\r\nx\r\n",  "1\r\nx\r\n0",   "0\r\n", "0\r\n\r",
                                       "0\r\nA",   "0\r\nA: b\r", "0\r\nA: b\r\n", "1;a",   "fffffff\r\nabc"};
    (void)state;
    for (size_t i = 0; i < LEN(rows); i++)
        check(rows[i], strlen(rows[i]), CHUNKED_MORE, NULL, 0);
}

/* The bytes of a request on the heels stand behind the body, and nothing of them is in it. */
static void what_follows_the_end_is_told(void **state)
{
    static const char raw[] = "3\r\nabc\r\n0\r\nT: u\r\n\r\nGET / HTTP/1.1\r\n";
    static const char next[] = "GET / HTTP/1.1\r\n";
    (void)state;
    fed_t f = feed(raw, sizeof(raw) - 1, sizeof(raw), 0, NO_LIMIT);
    assert_int_equal(f.result, CHUNKED_DONE);
    assert_int_equal(f.len, 3);
    assert_int_equal(f.extra, sizeof(next) - 1);
    assert_memory_equal(f.body, "abc", 3);
    assert_memory_equal(f.body + 3, next, sizeof(next) - 1);
    free(f.body);
}

static void nothing_comes_after_the_end(void **state)
{
    char bytes[] = "0\r\n\r\n0";
    chunked_t c = {0};
    size_t decoded = 0, extra;
    (void)state;
    assert_int_equal(chunked_feed(&c, bytes, &decoded, 5, NO_LIMIT, &extra), CHUNKED_DONE);
    assert_int_equal(chunked_feed(&c, bytes, &decoded, 1, NO_LIMIT, &extra), CHUNKED_BAD);
}

/* --- limits --- */

static void the_raw_bytes_at_their_limit(void **state)
{
    static const char raw[] = "5;x=y\r\nhello\r\n0\r\nA: b\r\n\r\n";
    size_t len = sizeof(raw) - 1;
    (void)state;
    for (size_t step = 1; step <= len; step++) {
        for (uint64_t limit = 0; limit <= len + 1; limit++) {
            fed_t f = feed(raw, len, step, 0, limit);
            assert_int_equal(f.result, limit < len ? CHUNKED_TOO_LARGE : CHUNKED_DONE);
            free(f.body);
        }
    }
}

/* The size line alone promises more than the limit: refused with the first byte that goes past it, not after it. */
static void a_large_promise_takes_no_room(void **state)
{
    static const char raw[] = "fffffffffffffff\r\nabcdefgh";
    (void)state;
    fed_t f = feed(raw, sizeof(raw) - 1, 1, 0, 20);
    assert_int_equal(f.result, CHUNKED_TOO_LARGE);
    assert_int_equal(f.taken, 21);
    assert_int_equal(f.len, 3);
    free(f.body);
}

/* A size line, an extension or a trailer of `len` bytes before its CRLF. */
static chunked_result_t of_line(bool trailer, size_t len)
{
    char raw[CHUNK_LINE_MAX + 64];
    size_t at = 0;
    if (trailer)
        at += (size_t)snprintf(raw, sizeof(raw), "0\r\n");
    memcpy(raw + at, trailer ? "A:" : "0;", 2);
    memset(raw + at + 2, 'a', len - 2);
    at += len;
    memcpy(raw + at, "\r\n\r\n", 4);
    fed_t f = feed(raw, at + 4, sizeof(raw), 0, NO_LIMIT);
    free(f.body);
    return f.result;
}

/* CHUNK_LINE_MAX counts the line's CR too. */
static void lines_at_their_limit(void **state)
{
    (void)state;
    for (int trailer = 0; trailer <= 1; trailer++) {
        assert_int_equal(of_line(trailer, CHUNK_LINE_MAX - 2), CHUNKED_DONE);
        assert_int_equal(of_line(trailer, CHUNK_LINE_MAX - 1), CHUNKED_DONE);
        assert_int_equal(of_line(trailer, CHUNK_LINE_MAX), CHUNKED_BAD);
    }
}

static void trailers_at_their_limit(void **state)
{
    (void)state;
    for (unsigned trailers = CHUNK_TRAILERS_MAX - 1; trailers <= CHUNK_TRAILERS_MAX + 1; trailers++) {
        char raw[256];
        size_t len = (size_t)snprintf(raw, sizeof(raw), "0\r\n");
        for (unsigned i = 0; i < trailers; i++)
            len += (size_t)snprintf(raw + len, sizeof(raw) - len, "A: b\r\n");
        len += (size_t)snprintf(raw + len, sizeof(raw) - len, "\r\n");
        check(raw, len, trailers <= CHUNK_TRAILERS_MAX ? CHUNKED_DONE : CHUNKED_BAD, "", 0);
    }
}

/* 10,000 chunks of one byte: the line limit is of one line, not of all of them. */
static void many_small_chunks(void **state)
{
    enum { CHUNKS = 10000, EACH = 6 };
    char *raw = malloc(CHUNKS * EACH + 5);
    (void)state;
    assert_non_null(raw);
    for (size_t i = 0; i < CHUNKS; i++)
        memcpy(raw + i * EACH, "1\r\nx\r\n", EACH);
    memcpy(raw + CHUNKS * EACH, "0\r\n\r\n", 5);
    fed_t f = feed(raw, CHUNKS * EACH + 5, 777, 0, NO_LIMIT);
    assert_int_equal(f.result, CHUNKED_DONE);
    assert_int_equal(f.len, CHUNKS);
    for (size_t i = 0; i < CHUNKS; i++)
        assert_int_equal(f.body[i], 'x');
    free(f.body);
    free(raw);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_that_are_taken),
        cmocka_unit_test(bodies_that_are_refused),
        cmocka_unit_test(bodies_that_go_on),
        cmocka_unit_test(what_follows_the_end_is_told),
        cmocka_unit_test(nothing_comes_after_the_end),
        cmocka_unit_test(the_raw_bytes_at_their_limit),
        cmocka_unit_test(a_large_promise_takes_no_room),
        cmocka_unit_test(lines_at_their_limit),
        cmocka_unit_test(trailers_at_their_limit),
        cmocka_unit_test(many_small_chunks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
