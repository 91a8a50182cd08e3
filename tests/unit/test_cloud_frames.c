/* Connect's envelopes, however the bytes are split. The bytes of the examples are those of spec backend-e2b 2.4. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backends/cloud/cloud_frames.h"

static struct {
    char payloads[16][256];
    size_t count, ends;
    size_t bytes;
    unsigned stop_at; /* the payload at which the receiver has enough; 0 = never */
} seen;

static bool on_payload(void *data, const uint8_t *payload, size_t len, bool is_end)
{
    assert_ptr_equal(data, &seen);
    if (seen.count < 16 && len < sizeof(seen.payloads[0])) {
        memcpy(seen.payloads[seen.count], payload, len);
        seen.payloads[seen.count][len] = '\0';
    }
    ++seen.count;
    seen.ends += is_end;
    seen.bytes += len;
    return seen.count != seen.stop_at;
}

static cloud_frames_state_t take(const void *bytes, size_t len, size_t piece, size_t frame_max, size_t total_max)
{
    cloud_frames_t frames;
    const uint8_t *at = bytes;
    unsigned stop_at = seen.stop_at;
    memset(&seen, 0, sizeof(seen));
    seen.stop_at = stop_at;
    cloud_frames_init(&frames, frame_max, total_max, on_payload, &seen);
    while (len > 0) {
        size_t n = piece < len ? piece : len;
        /* an exact copy, so that a read past it is seen */
        uint8_t *copy = malloc(n);
        memcpy(copy, at, n);
        cloud_frames_take(&frames, copy, n);
        free(copy);
        at += n;
        len -= n;
    }
    cloud_frames_state_t state = cloud_frames_state(&frames);
    cloud_frames_dispose(&frames);
    return state;
}

#define WHOLE(text, piece) take(text, sizeof(text) - 1, piece, CLOUD_FRAME_MAX, CLOUD_FRAMES_TOTAL_MAX)

static const char STREAM[] = "\0\0\0\0\x1e{\"event\":{\"start\":{\"pid\":42}}}"
                             "\0\0\0\0\x1a{\"event\":{\"keepalive\":{}}}"
                             "\0\0\0\0\0"
                             "\x02\0\0\0\x02{}";

static void a_stream_is_the_same_however_it_is_split(void **state)
{
    (void)state;
    for (size_t piece = 1; piece <= sizeof(STREAM); ++piece) {
        assert_int_equal(WHOLE(STREAM, piece), CLOUD_FRAMES_ENDED);
        assert_int_equal(seen.count, 4);
        assert_int_equal(seen.ends, 1);
        assert_string_equal(seen.payloads[0], "{\"event\":{\"start\":{\"pid\":42}}}");
        assert_string_equal(seen.payloads[1], "{\"event\":{\"keepalive\":{}}}");
        assert_string_equal(seen.payloads[2], "");
        assert_string_equal(seen.payloads[3], "{}");
    }
}

static void a_stream_that_was_cut_is_not_over(void **state)
{
    (void)state;
    for (size_t len = 0; len + 1 < sizeof(STREAM); ++len) {
        assert_int_equal(take(STREAM, len, 3, CLOUD_FRAME_MAX, CLOUD_FRAMES_TOTAL_MAX), CLOUD_FRAMES_MORE);
        assert_int_equal(seen.ends, 0);
    }
}

static void what_is_no_envelope_is_said_to_be_none(void **state)
{
    (void)state;
    for (size_t piece = 1; piece <= 12; ++piece) {
        assert_int_equal(WHOLE("\x01\0\0\0\x02{}", piece), CLOUD_FRAMES_BROKEN); /* compressed */
        assert_int_equal(WHOLE("\x04\0\0\0\x02{}", piece), CLOUD_FRAMES_BROKEN);
        assert_int_equal(WHOLE("\x80\0\0\0\x02{}", piece), CLOUD_FRAMES_BROKEN);
        assert_int_equal(seen.count, 0);
        assert_int_equal(WHOLE("\x02\0\0\0\x02{}x", piece), CLOUD_FRAMES_BROKEN); /* after the end */
        assert_int_equal(WHOLE("\x02\0\0\0\x02{}\x02\0\0\0\x02{}", piece), CLOUD_FRAMES_BROKEN);
        assert_int_equal(seen.ends, 1);
        assert_int_equal(WHOLE("<html>502</html>", piece), CLOUD_FRAMES_BROKEN);
    }
}

/* A length is judged before anything is kept for it. */
static void limits_are_exact(void **state)
{
    uint8_t *bytes = calloc(1, 2048);
    (void)state;
    for (int over = -1; over <= 1; ++over) {
        size_t len = (size_t)(1024 + over);
        bytes[3] = (uint8_t)(len >> 8);
        bytes[4] = (uint8_t)len;
        assert_int_equal(take(bytes, 5 + len, 7, 1024, 4096), over <= 0 ? CLOUD_FRAMES_MORE : CLOUD_FRAMES_FLOOD);
        assert_int_equal(seen.bytes, over <= 0 ? len : 0);
        /* the total, heads included */
        bytes[3] = 0;
        bytes[4] = 10;
        memset(bytes + 5, 0, 10);
        assert_int_equal(take(bytes, 15, 4, 1024, (size_t)(15 + over)),
                         over >= 0 ? CLOUD_FRAMES_MORE : CLOUD_FRAMES_FLOOD);
    }
    assert_int_equal(take("\0\xff\xff\xff\xff", 5, 5, CLOUD_FRAME_MAX, CLOUD_FRAMES_TOTAL_MAX), CLOUD_FRAMES_FLOOD);
    assert_int_equal(take("\x02\xff\xff\xff\xff", 5, 5, CLOUD_FRAME_MAX, CLOUD_FRAMES_TOTAL_MAX), CLOUD_FRAMES_BROKEN);
    assert_int_equal(take("\x02\0\x01\0\x01", 5, 5, CLOUD_FRAME_MAX, CLOUD_FRAMES_TOTAL_MAX), CLOUD_FRAMES_BROKEN);
    /* nobody can ask for more than the most there is */
    assert_int_equal(take("\0\0\x80\0\x01", 5, 5, SIZE_MAX, SIZE_MAX), CLOUD_FRAMES_FLOOD);
    free(bytes);
}

static void who_has_enough_is_given_no_more(void **state)
{
    (void)state;
    for (size_t piece = 1; piece <= sizeof(STREAM); ++piece) {
        seen.stop_at = 2;
        assert_int_equal(WHOLE(STREAM, piece), CLOUD_FRAMES_STOPPED);
        assert_int_equal(seen.count, 2);
    }
    seen.stop_at = 0;
}

static void an_envelope_is_written_as_it_is_read(void **state)
{
    buffer_t out;
    static const char request[] =
        "{\"process\":{\"cmd\":\"/bin/bash\",\"args\":[\"-l\",\"-c\",\"echo hi\"]},\"stdin\":false}";
    (void)state;
    buffer_init(&out, 79);
    assert_true(cloud_frame_append(&out, 0, request, 74));
    assert_memory_equal(out.base, "\0\0\0\0\x4a", 5);
    assert_memory_equal(out.base + 5, request, 74);
    assert_false(cloud_frame_append(&out, CLOUD_FRAME_END, "", 0));
    assert_int_equal(out.len, 79);
    buffer_dispose(&out);
    buffer_init(&out, SIZE_MAX / 2);
    assert_false(cloud_frame_append(&out, 0, NULL, CLOUD_FRAME_MAX + 1));
    buffer_dispose(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_is_the_same_however_it_is_split),
        cmocka_unit_test(a_stream_that_was_cut_is_not_over),
        cmocka_unit_test(what_is_no_envelope_is_said_to_be_none),
        cmocka_unit_test(limits_are_exact),
        cmocka_unit_test(who_has_enough_is_given_no_more),
        cmocka_unit_test(an_envelope_is_written_as_it_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
