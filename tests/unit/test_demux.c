/* The frames of a hijacked stream, cut anywhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "backends/docker/demux.h"

typedef struct {
    char out[64], err[64];
    size_t out_len, err_len, taken;
} seen_t;

/* Feeds in pieces, each an exact copy so that a read past it is seen. */
static void feed(demux_t *demux, seen_t *seen, const void *bytes, size_t len, size_t piece_max)
{
    const uint8_t *at = bytes;
    while (len > 0 && demux->problem == NULL) {
        size_t n = piece_max < len ? piece_max : len, used = 0;
        uint8_t *copy = malloc(n);
        memcpy(copy, at, n);
        while (used < n) {
            const uint8_t *piece;
            size_t piece_len;
            int stream;
            size_t taken = demux_next(demux, copy + used, n - used, &stream, &piece, &piece_len);
            if (demux->problem != NULL) {
                assert_int_equal(piece_len, 0);
                break;
            }
            assert_in_range(taken, 1, n - used);
            assert_in_range(piece_len, 0, taken);
            used += taken;
            if (piece_len == 0)
                continue;
            assert_true(piece >= copy && piece + piece_len <= copy + n);
            assert_true(stream == DEMUX_STDOUT || stream == DEMUX_STDERR);
            char *to = stream == DEMUX_STDOUT ? seen->out : seen->err;
            size_t *to_len = stream == DEMUX_STDOUT ? &seen->out_len : &seen->err_len;
            assert_in_range(*to_len + piece_len, 0, sizeof(seen->out));
            memcpy(to + *to_len, piece, piece_len);
            *to_len += piece_len;
        }
        seen->taken += used;
        free(copy);
        at += n;
        len -= n;
    }
}

static const char frames[] = "\1\0\0\0\0\0\0\2ab"
                             "\2\0\0\0\0\0\0\3xyz"
                             "\1\0\0\0\0\0\0\0"
                             "\1\0\0\0\0\0\0\1c";
enum { FRAMES_LEN = sizeof(frames) - 1 };

static void frames_cut_anywhere_give_the_same_streams(void **state)
{
    (void)state;
    for (size_t piece = 1; piece <= FRAMES_LEN; ++piece) {
        demux_t demux;
        seen_t seen = {0};
        demux_init(&demux);
        assert_true(demux_is_between_frames(&demux));
        feed(&demux, &seen, frames, FRAMES_LEN, piece);
        assert_null(demux.problem);
        assert_true(demux_is_between_frames(&demux));
        assert_int_equal(seen.out_len, 3);
        assert_memory_equal(seen.out, "abc", 3);
        assert_int_equal(seen.err_len, 3);
        assert_memory_equal(seen.err, "xyz", 3);
        assert_int_equal(seen.taken, FRAMES_LEN);
    }
}

static void an_end_is_clean_between_frames_only(void **state)
{
    (void)state;
    for (size_t len = 0; len <= FRAMES_LEN; ++len) {
        demux_t demux;
        seen_t seen = {0};
        demux_init(&demux);
        feed(&demux, &seen, frames, len, 3);
        bool is_between = len == 0 || len == 10 || len == 21 || len == 29 || len == 38;
        assert_int_equal(demux_is_between_frames(&demux), is_between);
    }
    assert_int_equal(FRAMES_LEN, 38);
}

static void payloads_come_before_their_frame_is_whole(void **state)
{
    demux_t demux;
    seen_t seen = {0};
    (void)state;
    demux_init(&demux);
    feed(&demux, &seen, "\2\0\0\0\xff\xff\xff\xffhello", 13,
         100); /* 4 GiB less one are announced, and nothing is kept */
    assert_null(demux.problem);
    assert_memory_equal(seen.err, "hello", 5);
    assert_int_equal(seen.err_len, 5);
    assert_false(demux_is_between_frames(&demux));
}

static void every_other_stream_number_is_a_problem(void **state)
{
    (void)state;
    for (int number = 0; number < 256; ++number) {
        uint8_t bytes[] = {(uint8_t)number, 0, 0, 0, 0, 0, 0, 1, 'x'};
        for (size_t piece = 1; piece <= sizeof(bytes); ++piece) {
            demux_t demux;
            seen_t seen = {0};
            demux_init(&demux);
            feed(&demux, &seen, bytes, sizeof(bytes), piece);
            assert_int_equal(demux.problem == NULL, number == 1 || number == 2);
        }
    }
}

static void padding_is_zero(void **state)
{
    (void)state;
    for (size_t at = 1; at <= 3; ++at)
        for (int bit = 0; bit < 8; ++bit) {
            uint8_t bytes[] = {1, 0, 0, 0, 0, 0, 0, 1, 'x'};
            demux_t demux;
            seen_t seen = {0};
            bytes[at] = (uint8_t)(1 << bit);
            demux_init(&demux);
            feed(&demux, &seen, bytes, sizeof(bytes), 9);
            assert_non_null(demux.problem);
            assert_false(demux_is_between_frames(&demux));
            assert_int_equal(seen.out_len, 0);
        }
}

static void nothing_is_taken_after_a_problem(void **state)
{
    demux_t demux;
    seen_t seen = {0};
    const uint8_t *piece;
    size_t piece_len;
    int stream;
    (void)state;
    demux_init(&demux);
    feed(&demux, &seen, "\1\0\0\0\0\0\0\1a\3\0\0\0\0\0\0\1b", 18, 18);
    assert_non_null(demux.problem);
    assert_int_equal(seen.out_len, 1);
    assert_int_equal(demux_next(&demux, (const uint8_t *)frames, FRAMES_LEN, &stream, &piece, &piece_len), 0);
    assert_int_equal(piece_len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_cut_anywhere_give_the_same_streams),
        cmocka_unit_test(an_end_is_clean_between_frames_only),
        cmocka_unit_test(payloads_come_before_their_frame_is_whole),
        cmocka_unit_test(every_other_stream_number_is_a_problem),
        cmocka_unit_test(padding_is_zero),
        cmocka_unit_test(nothing_is_taken_after_a_problem),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
