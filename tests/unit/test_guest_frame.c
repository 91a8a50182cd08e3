/* The frames between gateway and runner: what verifies, and that nothing else in the stream does or gets in the way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backends/guest/frame.h"
#include "tests/unit/guest_frames.h"

static uint8_t key[32];
static test_runner_t runner;
static frame_reader_t reader;

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < 32; i++)
        key[i] = (uint8_t)i;
    test_runner_init(&runner, key, "r2h");
    frame_reader_init(&reader, key, FRAME_TO_GATEWAY, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    frame_reader_dispose(&reader);
    return 0;
}

/* How many frames come out of these bytes, given at once or one by one. `last` (may be NULL) is the last one's payload.
 */
static size_t count(const uint8_t *bytes, size_t len, size_t piece, uint8_t *last, size_t *last_len)
{
    size_t found = 0;
    while (len != 0) {
        size_t n = piece < len ? piece : len;
        uint8_t *copy = malloc(n); /* so that a read past the piece is seen */
        const uint8_t *at = copy;
        size_t left = n;
        frame_t frame;
        memcpy(copy, bytes, n);
        while (frame_reader_next(&reader, &at, &left, &frame)) {
            found++;
            if (last != NULL) {
                memcpy(last, frame.payload, frame.len);
                *last_len = frame.len;
            }
        }
        assert_int_equal(left, 0);
        free(copy);
        bytes += n;
        len -= n;
    }
    return found;
}

/* Computed with another language's HMAC-SHA256: key 00..1f. */
static const uint8_t READY_VECTOR[] = {0xf5, 0x53, 0x42, 0x31, 0x52, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                                       0x00, 0x05, 0x00, 0x01, 0x01, 0x00, 0x02, 0x09, 0x1b, 0x03, 0x22, 0x6b,
                                       0x23, 0xc1, 0xe2, 0x4e, 0x5e, 0xbf, 0x9c, 0xae, 0xc0, 0xd1, 0xfe};
static const uint8_t OUT_VECTOR[] = {0xf5, 0x53, 0x42, 0x31, 0x4f, 0x00, 0x00, 0x00, 0x00, 0x07, 0x00, 0x00,
                                     0x00, 0x06, 0x03, 'h',  'e',  'l',  'l',  'o',  0xae, 0xe3, 0x1e, 0xb9,
                                     0x9f, 0x70, 0x35, 0x16, 0xc3, 0x65, 0xf1, 0x70, 0xc0, 0xf8, 0x01, 0x6b};

static void test_the_bytes_of_a_frame(void **state)
{
    static const uint8_t ready[] = {0, 1, 1, 0, 2};
    frame_writer_t writer;
    uint8_t out[FRAME_MAX];
    (void)state;
    frame_writer_init(&writer, key, FRAME_TO_GATEWAY, 0);
    assert_int_equal(frame_write(&writer, 'R', ready, sizeof(ready), out), sizeof(READY_VECTOR));
    assert_memory_equal(out, READY_VECTOR, sizeof(READY_VECTOR));
    assert_int_equal(writer.seq, 1);
    frame_writer_init(&writer, key, FRAME_TO_RUNNER, 7);
    assert_int_equal(frame_write(&writer, 'O', "\3hello", 6, out), sizeof(OUT_VECTOR));
    assert_memory_equal(out, OUT_VECTOR, sizeof(OUT_VECTOR));
}

static void test_a_payload_already_in_its_place(void **state)
{
    uint8_t out[FRAME_MAX], other[FRAME_MAX];
    (void)state;
    memcpy(out + FRAME_HEAD, "abc", 3);
    frame_writer_t writer;
    frame_writer_init(&writer, key, FRAME_TO_GATEWAY, 0);
    size_t n = frame_write(&writer, 'O', out + FRAME_HEAD, 3, out);
    assert_int_equal(n, test_frame(&runner, other, 'O', "abc", 3));
    assert_memory_equal(out, other, n);
}

static void test_the_greeting_has_no_tag(void **state)
{
    uint8_t out[FRAME_MAX];
    (void)state;
    assert_int_equal(frame_write_hello("abc", 3, out), FRAME_HEAD + 3);
    assert_int_equal(frame_hello_len(out), 3);
    for (int i = 0; i < FRAME_HEAD; i++) {
        if (i == 5 || i >= 12) /* the flags are not looked at; a length up to 4 048 is one */
            continue;
        out[i] ^= 1;
        assert_int_equal(frame_hello_len(out), -1);
        out[i] ^= 1;
    }
    frame_put32(out + 10, FRAME_PAYLOAD_MAX);
    assert_int_equal(frame_hello_len(out), FRAME_PAYLOAD_MAX);
    frame_put32(out + 10, FRAME_PAYLOAD_MAX + 1);
    assert_int_equal(frame_hello_len(out), -1);
}

static void test_frames_in_any_pieces(void **state)
{
    static uint8_t stream[16 * FRAME_MAX], payload[FRAME_PAYLOAD_MAX], last[FRAME_PAYLOAD_MAX];
    static const size_t SIZES[] = {0, 1, 5, 100, FRAME_PAYLOAD_MAX - 1, FRAME_PAYLOAD_MAX, 0, 1000, FRAME_PAYLOAD_MAX};
    static const size_t PIECES[] = {1, 2, 13, 14, 15, 29, 30, 31, 4077, 4078, 4079, 100000};
    size_t n = 0, last_len = 0;
    (void)state;
    for (size_t i = 0; i < sizeof(payload); i++)
        payload[i] = (uint8_t)(i * 7);
    for (size_t i = 0; i < 9; i++)
        n += test_frame(&runner, stream + n, 'O', payload, SIZES[i]);
    for (size_t i = 0; i < sizeof(PIECES) / sizeof(*PIECES); i++) {
        tear_down(NULL);
        frame_reader_init(&reader, key, FRAME_TO_GATEWAY, 0);
        assert_int_equal(count(stream, n, PIECES[i], last, &last_len), 9);
        assert_int_equal(last_len, FRAME_PAYLOAD_MAX);
        assert_memory_equal(last, payload, FRAME_PAYLOAD_MAX);
        assert_int_equal(reader.unframed, 0);
        assert_null(reader._bytes); /* nothing kept, nothing held */
    }
}

static void test_a_payload_too_long_is_no_frame(void **state)
{
    static uint8_t stream[8192], payload[FRAME_PAYLOAD_MAX + 1];
    (void)state;
    size_t n = test_frame_raw(&runner, stream, 'O', 0, 0, FRAME_PAYLOAD_MAX + 1, payload, FRAME_PAYLOAD_MAX + 1);
    assert_int_equal(count(stream, n, SIZE_MAX, NULL, NULL), 0);
    n = test_frame_raw(&runner, stream, 'O', 0, 0, UINT32_MAX, payload, 1);
    assert_int_equal(count(stream, n, SIZE_MAX, NULL, NULL), 0);
    n = test_frame_raw(&runner, stream, 'O', 0, 0, FRAME_PAYLOAD_MAX, payload, FRAME_PAYLOAD_MAX);
    assert_int_equal(count(stream, n, SIZE_MAX, NULL, NULL), 1);
}

static void test_a_frame_cut_short_anywhere(void **state)
{
    uint8_t stream[64];
    (void)state;
    size_t n = test_frame_raw(&runner, stream, 'O', 0, 0, 5, "abcde", 5);
    for (size_t cut = 0; cut < n; cut++) {
        tear_down(NULL);
        set_up(NULL);
        assert_int_equal(count(stream, cut, SIZE_MAX, NULL, NULL), 0);
        assert_int_equal(reader.unframed, 0); /* it may still become one */
        assert_int_equal(count(stream + cut, n - cut, SIZE_MAX, NULL, NULL), 1);
    }
}

static void test_every_byte_of_a_frame_counts(void **state)
{
    uint8_t stream[64];
    (void)state;
    size_t n = test_frame_raw(&runner, stream, 'O', 0, 0, 5, "abcde", 5);
    for (size_t i = 0; i < n; i++)
        for (int bit = 0; bit < 8; bit++) {
            tear_down(NULL);
            set_up(NULL);
            stream[i] ^= (uint8_t)(1 << bit);
            assert_int_equal(count(stream, n, SIZE_MAX, NULL, NULL), 0);
            stream[i] ^= (uint8_t)(1 << bit);
        }
}

static void test_another_key_or_direction(void **state)
{
    uint8_t stream[64];
    (void)state;
    test_runner_init(&runner, key, "h2r");
    size_t n = test_frame(&runner, stream, 'O', "abcde", 5);
    assert_int_equal(count(stream, n, SIZE_MAX, NULL, NULL), 0);
    key[31] ^= 1;
    test_runner_init(&runner, key, "r2h");
    n = test_frame(&runner, stream, 'O', "abcde", 5);
    assert_int_equal(count(stream, n, SIZE_MAX, NULL, NULL), 0);
}

static void test_a_frame_sent_again_or_too_soon(void **state)
{
    uint8_t first[64], second[64], third[64];
    (void)state;
    size_t n = test_frame(&runner, first, 'O', "1", 1);
    test_frame(&runner, second, 'O', "2", 1);
    test_frame(&runner, third, 'O', "3", 1);
    assert_int_equal(count(second, n, SIZE_MAX, NULL, NULL), 0);
    assert_int_equal(count(first, n, SIZE_MAX, NULL, NULL), 1);
    assert_int_equal(count(first, n, SIZE_MAX, NULL, NULL), 0);
    assert_int_equal(count(third, n, SIZE_MAX, NULL, NULL), 0);
    assert_int_equal(count(second, n, SIZE_MAX, NULL, NULL), 1);
    assert_int_equal(count(third, n, SIZE_MAX, NULL, NULL), 1);
    assert_int_equal(reader.unframed, 3 * n);
}

static void test_garbage_between_frames(void **state)
{
    static uint8_t stream[65536];
    static const size_t PIECES[] = {1, 7, 100, SIZE_MAX};
    size_t n = 0, garbage = 0;
    (void)state;
    srand(1);
    for (int i = 0; i < 20; i++) {
        size_t len = (size_t)(rand() % 500);
        for (size_t j = 0; j < len; j++) /* many beginnings of magics among it */
            stream[n + j] = rand() % 2 ? "\xf5SB1"[rand() % 4] : (uint8_t)rand();
        n += len;
        garbage += len;
        n += test_frame(&runner, stream + n, 'O', "payload", (size_t)(rand() % 8));
    }
    for (size_t i = 0; i < 4; i++) {
        tear_down(NULL);
        frame_reader_init(&reader, key, FRAME_TO_GATEWAY, 0);
        assert_int_equal(count(stream, n, PIECES[i], NULL, NULL), 20);
        assert_int_equal(reader.unframed, garbage);
    }
}

/* The last frame of a stream must not wait for bytes that a forged head before it announces. */
static void test_a_forged_beginning_does_not_hold_up_the_frame_after_it(void **state)
{
    static uint8_t stream[65536];
    size_t n = 0;
    (void)state;
    for (int i = 0; i < 50; i++) {
        n += test_frame_raw(&runner, stream + n, 'X', 0, 0, FRAME_PAYLOAD_MAX, "", 0);
        stream[n - 1] ^= 1;
    }
    size_t forged = n;
    n += test_frame(&runner, stream + n, 'X', "true", 4);
    uint8_t last[FRAME_PAYLOAD_MAX];
    size_t last_len = 0;
    assert_int_equal(count(stream, n, 1, last, &last_len), 1);
    assert_int_equal(last_len, 4);
    assert_memory_equal(last, "true", 4);
    assert_int_equal(reader.unframed, forged);
}

static void test_random_bytes(void **state)
{
    static uint8_t noise[65536];
    (void)state;
    srand(2);
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < sizeof(noise); i++)
            noise[i] = round % 2 ? "\xf5SB1\0\0"[rand() % 6] : (uint8_t)rand();
        assert_int_equal(count(noise, sizeof(noise), (size_t)(rand() % 5000) + 1, NULL, NULL), 0);
        assert_true(reader._len < FRAME_MAX);
    }
}

/* Each forged frame of the largest size costs hashing 4 062 bytes. */
static void test_forged_frames_until_the_reader_has_had_enough(void **state)
{
    static uint8_t forged[FRAME_MAX], right[64];
    static const uint8_t zeros[FRAME_PAYLOAD_MAX];
    (void)state;
    size_t n = test_frame_raw(&runner, forged, 'O', 0, 0, FRAME_PAYLOAD_MAX, zeros, FRAME_PAYLOAD_MAX);
    forged[n - 1] ^= 1;
    size_t each = FRAME_HEAD + FRAME_PAYLOAD_MAX, times = FRAME_VAIN_MAX / each;
    for (size_t i = 0; i < times; i++) {
        assert_false(frame_reader_is_spent(&reader));
        assert_int_equal(count(forged, n, SIZE_MAX, NULL, NULL), 0);
        assert_int_equal(reader.vain, (i + 1) * each);
    }
    assert_false(frame_reader_is_spent(&reader));
    assert_int_equal(count(forged, n, SIZE_MAX, NULL, NULL), 0);
    assert_true(frame_reader_is_spent(&reader));
    n = test_frame(&runner, right, 'O', "x", 1);
    assert_int_equal(count(right, n, SIZE_MAX, NULL, NULL), 0);
}

/* Byte by byte, what was tried once is not tried again. */
static void test_a_forged_frame_is_hashed_once(void **state)
{
    uint8_t stream[256];
    (void)state;
    size_t n = test_frame_raw(&runner, stream, 'X', 0, 0, 4000, "", 0);
    n += test_frame_raw(&runner, stream + n, 'O', 0, 0, 5, "abcde", 5);
    stream[n - 1] ^= 1;
    memset(stream + n, 'x', 100);
    assert_int_equal(count(stream, n + 100, 1, NULL, NULL), 0);
    assert_int_equal(reader.vain, FRAME_HEAD + 5);
}

static void test_numbers(void **state)
{
    uint8_t bytes[8];
    (void)state;
    frame_put64(bytes, 0x0102030405060708u);
    assert_memory_equal(bytes, "\1\2\3\4\5\6\7\10", 8);
    assert_true(frame_get64(bytes) == 0x0102030405060708u);
    assert_int_equal(frame_get32(bytes), 0x01020304);
    assert_int_equal(frame_get16(bytes), 0x0102);
    frame_put32(bytes, UINT32_MAX);
    assert_int_equal(frame_get32(bytes), UINT32_MAX);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_the_bytes_of_a_frame),
        TEST(test_a_payload_already_in_its_place),
        TEST(test_the_greeting_has_no_tag),
        TEST(test_frames_in_any_pieces),
        TEST(test_a_payload_too_long_is_no_frame),
        TEST(test_a_frame_cut_short_anywhere),
        TEST(test_every_byte_of_a_frame_counts),
        TEST(test_another_key_or_direction),
        TEST(test_a_frame_sent_again_or_too_soon),
        TEST(test_garbage_between_frames),
        TEST(test_a_forged_beginning_does_not_hold_up_the_frame_after_it),
        TEST(test_random_bytes),
        TEST(test_forged_frames_until_the_reader_has_had_enough),
        TEST(test_a_forged_frame_is_hashed_once),
        TEST(test_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
