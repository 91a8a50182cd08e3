/* The role's parser of a worker's stream against whatever a worker in its guest's hands could send. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backends/wasm/stream.h"

/* A frame written by hand from the table of spec section 6.6, not by the code under test. */
static size_t frame(uint8_t *to, uint8_t type, uint32_t len, const void *body)
{
    to[0] = type;
    to[1] = len & 0xff;
    to[2] = len >> 8 & 0xff;
    to[3] = len >> 16 & 0xff;
    to[4] = len >> 24;
    if (body != NULL)
        memcpy(to + 5, body, len);
    return 5 + (body != NULL ? len : 0);
}

static size_t end_frame(uint8_t *to, int32_t code)
{
    uint8_t body[4] = {(uint8_t)code, (uint8_t)(code >> 8), (uint8_t)(code >> 16), (uint8_t)((uint32_t)code >> 24)};
    return frame(to, 5, 4, body);
}

static wasm_stream_t stream;

static int set_up(void **state)
{
    (void)state;
    wasm_stream_init(&stream, false);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    wasm_stream_dispose(&stream);
    return 0;
}

static void test_whole_run(void **state)
{
    uint8_t bytes[64];
    size_t n = frame(bytes, 1, 8, "wasm 42\n");
    (void)state;
    n += frame(bytes + n, 2, 4, "oops");
    n += end_frame(bytes + n, 1);
    assert_int_equal(wasm_stream_feed(&stream, bytes, n), WASM_STREAM_END);
    assert_int_equal(stream.exit_code, 1);
    assert_int_equal(stream.out.bytes.len, 8);
    assert_memory_equal(stream.out.bytes.base, "wasm 42\n", 8);
    assert_int_equal(stream.err.bytes.len, 4);
    assert_memory_equal(stream.err.bytes.base, "oops", 4);
    assert_false(stream.out.is_truncated || stream.err.is_truncated);
}

/* U11, U12: bytes are bytes, cut anywhere. */
static void test_one_byte_at_a_time(void **state)
{
    static const uint8_t odd[4] = {0xff, 0xfe, 0x00, 0x80};
    uint8_t bytes[64];
    size_t n = frame(bytes, 1, 4, odd);
    (void)state;
    n += frame(bytes + n, 2, 1, "\0");
    n += frame(bytes + n, 1, 2, "\xe2\x98");
    n += frame(bytes + n, 1, 1, "\x95");
    n += end_frame(bytes + n, 0);
    for (size_t i = 0; i < n; ++i)
        assert_int_equal(wasm_stream_feed(&stream, bytes + i, 1), i + 1 < n ? WASM_STREAM_MORE : WASM_STREAM_END);
    assert_int_equal(stream.out.bytes.len, 7);
    assert_memory_equal(stream.out.bytes.base, "\xff\xfe\x00\x80\xe2\x98\x95", 7);
    assert_int_equal(stream.err.bytes.len, 1);
    assert_int_equal(stream.err.bytes.base[0], 0);
}

/* What came of a frame counts although the rest never will (U09). */
static void test_partial_frame_is_kept(void **state)
{
    uint8_t bytes[16];
    (void)state;
    frame(bytes, 1, 100, NULL);
    memcpy(bytes + 5, "abc", 3);
    assert_int_equal(wasm_stream_feed(&stream, bytes, 8), WASM_STREAM_MORE);
    assert_int_equal(stream.out.bytes.len, 3);
    assert_memory_equal(stream.out.bytes.base, "abc", 3);
}

static void expect_bad(const uint8_t *bytes, size_t len, const char *reason)
{
    assert_int_equal(wasm_stream_feed(&stream, bytes, len), WASM_STREAM_BAD);
    assert_string_equal(stream.reason, reason);
    /* And stays so, whatever follows. */
    uint8_t end[9];
    end_frame(end, 0);
    assert_int_equal(wasm_stream_feed(&stream, end, sizeof(end)), WASM_STREAM_BAD);
    tear_down(NULL);
    set_up(NULL);
}

static void test_lengths_out_of_bounds(void **state)
{
    static const uint32_t bad_output[] = {0, 65537, 65536 + 65536, 0x7fffffff, 0x80000000, 0xffffffff};
    static const uint32_t bad_call[] = {0, 1024 * 1024 + 65536 + 1, 0xffffffff};
    static const uint32_t bad_end[] = {0, 3, 5, 0xffffffff};
    uint8_t bytes[5];
    (void)state;
    for (size_t i = 0; i < sizeof(bad_output) / sizeof(bad_output[0]); ++i) {
        frame(bytes, 1, bad_output[i], NULL);
        expect_bad(bytes, 5, "output frame out of bounds");
        frame(bytes, 2, bad_output[i], NULL);
        expect_bad(bytes, 5, "output frame out of bounds");
    }
    for (size_t i = 0; i < sizeof(bad_call) / sizeof(bad_call[0]); ++i) {
        frame(bytes, 3, bad_call[i], NULL);
        expect_bad(bytes, 5, "host call out of bounds");
    }
    for (size_t i = 0; i < sizeof(bad_end) / sizeof(bad_end[0]); ++i) {
        frame(bytes, 5, bad_end[i], NULL);
        expect_bad(bytes, 5, "end frame out of bounds");
    }
}

static void test_unknown_types(void **state)
{
    uint8_t bytes[5];
    (void)state;
    for (int type = 0; type < 256; ++type) {
        if (type == 1 || type == 2 || type == 3 || type == 5)
            continue;
        frame(bytes, (uint8_t)type, 1, NULL); /* 17, a probe's word, too: this is no probe */
        expect_bad(bytes, 5, "frame of an unknown type");
    }
}

static void test_exit_codes(void **state)
{
    static const int32_t own[] = {0, 1, 124, 134};
    static const int32_t others[] = {-1, 2, 123, 125, 133, 135, 137, 255, 256, INT32_MAX, INT32_MIN};
    uint8_t bytes[9];
    (void)state;
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); ++i) {
        end_frame(bytes, own[i]);
        assert_int_equal(wasm_stream_feed(&stream, bytes, 9), WASM_STREAM_END);
        assert_int_equal(stream.exit_code, own[i]);
        tear_down(NULL);
        set_up(NULL);
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); ++i) {
        end_frame(bytes, others[i]);
        expect_bad(bytes, 9, "exit code no worker has");
    }
}

/* Sends `total` bytes of one stream in frames of at most 64 KiB. */
static wasm_stream_state_t feed_output(uint8_t type, size_t total)
{
    static uint8_t bytes[5 + 65536];
    wasm_stream_state_t got = WASM_STREAM_MORE;
    memset(bytes + 5, 'x', 65536);
    while (total > 0) {
        uint32_t n = total < 65536 ? (uint32_t)total : 65536;
        frame(bytes, type, n, NULL);
        got = wasm_stream_feed(&stream, bytes, 5 + n);
        total -= n;
    }
    return got;
}

/* U13: limit - 1, limit, limit + 1. One more than that no worker sends. */
static void test_output_limit(void **state)
{
    static const struct {
        size_t sent, kept;
        bool is_cut;
        wasm_stream_state_t state;
    } cases[] = {{65535, 65535, false, WASM_STREAM_MORE},
                 {65536, 65536, false, WASM_STREAM_MORE},
                 {65537, 65536, true, WASM_STREAM_MORE},
                 {65538, 65536, false, WASM_STREAM_BAD},
                 {1000000, 65536, false, WASM_STREAM_BAD}};
    (void)state;
    for (uint8_t type = 1; type <= 2; ++type) {
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
            wasm_output_t *output = type == 1 ? &stream.out : &stream.err,
                          *other = type == 1 ? &stream.err : &stream.out;
            assert_int_equal(feed_output(type, cases[i].sent), cases[i].state);
            assert_int_equal(output->bytes.len, cases[i].kept);
            if (cases[i].state == WASM_STREAM_MORE)
                assert_int_equal(output->is_truncated, cases[i].is_cut);
            assert_int_equal(other->bytes.len, 0);
            assert_false(other->is_truncated);
            tear_down(NULL);
            set_up(NULL);
        }
    }
}

/* Both streams at their limits at once; a frame that is legal by itself and not after the others. */
static void test_limits_are_per_stream(void **state)
{
    (void)state;
    assert_int_equal(feed_output(1, 65537), WASM_STREAM_MORE);
    assert_int_equal(feed_output(2, 65537), WASM_STREAM_MORE);
    assert_true(stream.out.is_truncated && stream.err.is_truncated);
    assert_int_equal(feed_output(2, 1), WASM_STREAM_BAD);
    assert_string_equal(stream.reason, "more output than a worker sends");
}

static void test_host_call_limits(void **state)
{
    enum { LIMIT = 1024 * 1024 + 64 * 1024 };
    uint8_t *bytes = malloc(5 + LIMIT + 1);
    (void)state;
    memset(bytes, 'e', 5 + LIMIT + 1);
    for (uint32_t n = LIMIT - 1; n <= LIMIT; ++n) {
        frame(bytes, 3, n, NULL);
        assert_int_equal(wasm_stream_feed(&stream, bytes, 5 + n), WASM_STREAM_CALL);
        assert_int_equal(stream.call.len, n);
        wasm_stream_replied(&stream);
        assert_int_equal(stream.state, WASM_STREAM_MORE);
    }
    frame(bytes, 3, LIMIT + 1, NULL);
    expect_bad(bytes, 5 + LIMIT + 1, "host call out of bounds");
    free(bytes);
}

/* A worker stands still between its call and the answer. */
static void test_nothing_comes_while_a_call_waits(void **state)
{
    uint8_t bytes[64];
    size_t n = frame(bytes, 3, 2, "{}");
    (void)state;
    size_t both = n + end_frame(bytes + n, 0);
    assert_int_equal(wasm_stream_feed(&stream, bytes, n), WASM_STREAM_CALL);
    assert_memory_equal(stream.call.base, "{}", 2);
    expect_bad(bytes + n, 1, "bytes while a host call waits");
    expect_bad(bytes, both, "bytes while a host call waits");
    assert_int_equal(wasm_stream_feed(&stream, bytes, n), WASM_STREAM_CALL);
    wasm_stream_replied(&stream);
    assert_int_equal(wasm_stream_feed(&stream, bytes + n, both - n), WASM_STREAM_END);
}

/* A verdict is never rewritten. */
static void test_end_is_the_end(void **state)
{
    uint8_t bytes[64];
    size_t n = end_frame(bytes, 0);
    (void)state;
    n += frame(bytes + n, 1, 4, "late");
    n += end_frame(bytes + n, 134);
    assert_int_equal(wasm_stream_feed(&stream, bytes, n), WASM_STREAM_END);
    assert_int_equal(wasm_stream_feed(&stream, bytes, n), WASM_STREAM_END);
    assert_int_equal(stream.exit_code, 0);
    assert_int_equal(stream.out.bytes.len, 0);
}

static void test_probe_frames_only_of_probes(void **state)
{
    uint8_t bytes[6];
    (void)state;
    frame(bytes, 17, 1, "\x02");
    expect_bad(bytes, 6, "frame of an unknown type");
    wasm_stream_dispose(&stream);
    wasm_stream_init(&stream, true);
    assert_int_equal(wasm_stream_feed(&stream, bytes, 6), WASM_STREAM_SURVIVED);
    wasm_stream_dispose(&stream);
    wasm_stream_init(&stream, true);
    frame(bytes, 17, 2, NULL);
    expect_bad(bytes, 5, "frame of an unknown type");
}

static void test_frames_to_the_worker(void **state)
{
    static const uint8_t start[] = {0, 0x0d, 0, 0, 0, 0x88, 0x13, 0, 0, 5, 0, 0, 0};
    static const uint8_t reply[] = {4, 0x0a, 0, 0, 0, 0x93, 1, 0, 0, 2, 0, 0, 0};
    uint8_t head[13];
    (void)state;
    wasm_start_head(head, 5000, 5);
    assert_memory_equal(head, start, 13);
    wasm_reply_head(head, 403, 2);
    assert_memory_equal(head, reply, 13);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_whole_run, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_one_byte_at_a_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_partial_frame_is_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_lengths_out_of_bounds, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_unknown_types, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_exit_codes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_output_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_limits_are_per_stream, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_host_call_limits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nothing_comes_while_a_call_waits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_end_is_the_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_probe_frames_only_of_probes, set_up, tear_down),
        cmocka_unit_test(test_frames_to_the_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
