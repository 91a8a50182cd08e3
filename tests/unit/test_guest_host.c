/* The gateway's end of a runner: what it sends, in which order it takes frames, and how much of anything it takes. */
#include <malloc.h>

#include "tests/unit/guest_fixture.h"

static void test_frames_out_of_order(void **state)
{
    (void)state;
    /* in each state, those that do not belong there */
    static const char *const WRONG[] = {"AOETFfXJZ", "RAOETFfXJ", "ROETFfXH", "RAZ"};
    for (int s = 0; s < 4; s++)
        for (const char *type = WRONG[s]; *type != '\0'; type++) {
            tear_down(NULL);
            set_up(NULL);
            guest_job_t job = project();
            if (s == 0)
                greet(GUEST_PREBOOT_NONE);
            if (s == 1 || s == 2)
                ready();
            if (s == 2)
                give(&job);
            if (s == 3)
                accepted();
            frame(*type, *type == 'R' ? "\0\1\0\0\1" : "\0x", *type == 'R' ? 5 : 2);
            assert_broken();
        }
}

static void test_a_frame_with_flags(void **state)
{
    uint8_t bytes[64];
    (void)state;
    greet(GUEST_PREBOOT_NONE);
    guest_take(guest, bytes, test_frame_raw(&runner, bytes, 'R', 1, 0, 5, "\0\1\0\0\1", 5));
    assert_broken();
}

static void test_a_greeting_that_is_not_right(void **state)
{
    static const struct {
        guest_preboot_t preboot;
        const char *payload;
        size_t len;
        guest_state_t expected;
    } CASES[] = {
        {GUEST_PREBOOT_NONE, "\0\1\0\0\1", 5, GUEST_READY},
        {GUEST_PREBOOT_JAVASCRIPT, "\0\1\1\0\2", 5, GUEST_READY},
        {GUEST_PREBOOT_JAVASCRIPT, "\0\1\0\0\1", 5, GUEST_BROKEN},
        {GUEST_PREBOOT_JAVASCRIPT, "\0\1\2\0\1", 5, GUEST_BROKEN},
        {GUEST_PREBOOT_NONE, "\0\2\0\0\1", 5, GUEST_BROKEN},
        {GUEST_PREBOOT_NONE, "\0\2", 2, GUEST_BROKEN},
        {GUEST_PREBOOT_NONE, "\0\1\0\0", 4, GUEST_BROKEN},
        {GUEST_PREBOOT_NONE, "", 0, GUEST_BROKEN},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(*CASES); i++) {
        tear_down(NULL);
        set_up(NULL);
        greet(CASES[i].preboot);
        frame('R', CASES[i].payload, CASES[i].len);
        assert_int_equal(guest_state(guest), CASES[i].expected);
    }
}

static void test_another_job_accepted(void **state)
{
    guest_job_t job = project();
    (void)state;
    ready();
    give(&job);
    job_digest[31] ^= 1;
    frame('A', job_digest, 32);
    assert_broken();
}

static void test_the_greeting_is_made_once(void **state)
{
    guest_hello_t hello = {.run_id = "r", .env = ENV, .env_count = 1};
    buffer_t small;
    (void)state;
    buffer_init(&small, 50);
    assert_false(guest_make_hello(guest, &hello, &small));
    assert_int_equal(small.len, 0);
    buffer_dispose(&small);
    assert_true(guest_make_hello(guest, &hello, &sent));
    /* head, length, version, preboot, key, most, id, count, one variable of 9: and no tag */
    assert_int_equal(sent.len, 14 + 4 + 2 + 1 + 32 + 4 + 2 + 2 + 11);
    assert_false(guest_make_hello(guest, &hello, &sent));
    assert_int_equal(sent.len, 72);
}

static void test_two_guests_have_two_keys(void **state)
{
    (void)state;
    greet(GUEST_PREBOOT_NONE);
    uint8_t key[32];
    memcpy(key, sent.base + 21, 32);
    guest_destroy(guest);
    guest = guest_create();
    buffer_clear(&sent);
    greet(GUEST_PREBOOT_NONE);
    assert_memory_not_equal(sent.base + 21, key, 32);
}

static void test_a_job_that_is_refused_leaves_no_byte(void **state)
{
    (void)state;
    guest_job_t job = project();
    assert_non_null(guest_make_job(guest, &job, &sent)); /* nobody is there yet */
    ready();
    size_t before = sent.len;
    job.timeout_ms = 0;
    assert_non_null(guest_make_job(guest, &job, &sent));
    job = project();
    job.step_count = GUEST_STEPS_MAX + 1;
    assert_non_null(guest_make_job(guest, &job, &sent));
    job = project();
    job.artifact_count = GUEST_ARTIFACTS_MAX + 1;
    assert_non_null(guest_make_job(guest, &job, &sent));
    job = project();
    job.file_count = GUEST_FILES_MAX + 1;
    assert_non_null(guest_make_job(guest, &job, &sent));
    job = project();
    job.kind = (guest_job_kind_t)3;
    assert_non_null(guest_make_job(guest, &job, &sent));
    job = project();
    buffer_t small;
    buffer_init(&small, 94); /* message 61, its length 4, one frame 30 */
    assert_non_null(guest_make_job(guest, &job, &small));
    assert_int_equal(small.len, 0);
    buffer_dispose(&small);
    assert_int_equal(sent.len, before);
    assert_int_equal(guest_state(guest), GUEST_READY);
    give(&job);
    assert_int_equal(sent.len - before, 95);
    assert_non_null(guest_make_job(guest, &job, &sent)); /* once */
}

/* A job larger than a frame, and every size around the frames' limits. */
static void test_a_job_of_many_frames(void **state)
{
    static uint8_t code[262144];
    static const size_t SIZES[] = {0, 4015, 4016, 4017, 4018, 4019, 4020, 4021, 4022, 4023, 4024, 8064, 8070, 262144};
    (void)state;
    memset(code, 'c', sizeof(code));
    for (size_t i = 0; i < sizeof(SIZES) / sizeof(*SIZES); i++) {
        tear_down(NULL);
        set_up(NULL);
        ready();
        guest_job_t job = {.kind = GUEST_SNIPPET, .timeout_ms = 1, .code = code, .code_len = SIZES[i]};
        size_t before = sent.len, message = 4 + 1 + 16 + 4 + SIZES[i] + 6;
        give(&job);
        assert_int_equal(sent.len - before, message + (message + 4047) / 4048 * 30);
        assert_int_equal(sent.base[before + 4], 'J');
        frame('A', job_digest, 32);
        assert_int_equal(guest_state(guest), GUEST_ACCEPTED);
    }
}

static void test_bytes_that_are_no_frames_are_counted(void **state)
{
    uint8_t forged[64];
    (void)state;
    accepted();
    guest_take(guest, "garbage", 7);
    size_t n = test_frame_raw(&runner, forged, 'X', 0, runner.seq, 5, "abcde", 5);
    forged[n - 1] ^= 1;
    guest_take(guest, forged, n);
    step_end((end_t){.step = 0});
    final(0, 0, 1, 0, "");
    assert_int_equal(guest_state(guest), GUEST_FINISHED);
    assert_int_equal(guest_unframed_bytes(guest), 7 + n);
}

static void test_frames_sent_again_do_nothing(void **state)
{
    uint8_t bytes[64];
    (void)state;
    accepted();
    size_t n = test_frame(&runner, bytes, 'O', "\0x", 2);
    for (int i = 0; i < 5; i++)
        guest_take(guest, bytes, n);
    assert_int_equal(guest_result(guest)->steps[0].out.len, 1);
    assert_int_equal(guest_unframed_bytes(guest), 4 * n);
}

static void test_a_stream_has_a_limit_in_all(void **state)
{
    static uint8_t junk[1024 * 1024];
    (void)state;
    accepted();
    size_t taken = runner.seq * 30 + runner.payload_len;
    for (int i = 0; i < 15; i++)
        guest_take(guest, junk, sizeof(junk));
    guest_take(guest, junk, sizeof(junk) - taken - 69);
    step_end((end_t){.step = 0}); /* 69 bytes: the last that are looked at */
    assert_int_equal(guest_state(guest), GUEST_ACCEPTED);
    assert_true(guest_result(guest)->steps[0].has_ended);
    guest_take(guest, junk, 1);
    assert_broken();
}

/* A guest that can write to the runner's stderr (gVisor) sent without end what was counted nowhere. */
static void test_another_stream_counts_towards_the_limit(void **state)
{
    uint8_t junk[1] = {0};
    (void)state;
    for (int over = -1; over <= 1; over++) {
        guest_destroy(guest);
        buffer_clear(&sent);
        guest = guest_create();
        accepted();
        size_t taken = runner.seq * 30 + runner.payload_len;
        guest_skip(guest, 16 * 1024 * 1024 - taken - 1 + (size_t)(over + 1));
        if (over > 0) {
            assert_broken();
            continue;
        }
        assert_int_equal(guest_state(guest), GUEST_ACCEPTED);
        if (over < 0) {
            guest_take(guest, junk, 1); /* the last there can be */
            assert_int_equal(guest_state(guest), GUEST_ACCEPTED);
        }
        guest_take(guest, junk, 1);
        assert_broken();
        guest_skip(guest, SIZE_MAX);
        assert_broken();
    }
}

static void test_a_frame_across_the_limit_is_not_taken(void **state)
{
    static uint8_t junk[1024 * 1024];
    (void)state;
    accepted();
    size_t taken = runner.seq * 30 + runner.payload_len;
    for (int i = 0; i < 15; i++)
        guest_take(guest, junk, sizeof(junk));
    guest_take(guest, junk, sizeof(junk) - taken - 68);
    step_end((end_t){.step = 0});
    assert_broken();
    assert_int_equal(guest_result(guest)->step_count, 0);
}

static void test_forged_frames_without_end(void **state)
{
    static uint8_t forged[4078];
    (void)state;
    accepted();
    /* beginnings of frames, each of which could be the largest one */
    for (size_t at = 0; at + 14 <= sizeof(forged); at += 14) {
        memcpy(forged + at, "\xf5SB1O\0", 6);
        test_put32(forged + at + 6, runner.seq);
        test_put32(forged + at + 10, 4000);
    }
    int times = 0;
    while (guest_state(guest) == GUEST_ACCEPTED && times < 5000) {
        guest_take(guest, forged, sizeof(forged));
        times++;
    }
    assert_broken();
    assert_string_equal(guest_problem(guest), "too many forged frames");
    assert_in_range(times, 2, 100);
}

static void test_a_waiting_guest_is_small(void **state)
{
    enum { GUESTS = 64 };
    guest_t *many[GUESTS];
    (void)state;
    size_t bytes = 0;
    for (int i = 0; i < GUESTS; i++) {
        guest_destroy(guest);
        buffer_clear(&sent);
        guest = guest_create();
        ready();
        many[i] = guest;
        guest = NULL;
        bytes += malloc_usable_size(many[i]);
    }
    /* the result has no parts yet, and a reader that holds nothing has no buffer (test_guest_frame) */
    for (int i = 0; i < GUESTS; i++) {
        assert_null(guest_result(many[i])->steps);
        assert_null(guest_result(many[i])->artifacts);
        guest_destroy(many[i]);
    }
    assert_true(bytes / GUESTS <= 8192);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    random_init();
    const struct CMUnitTest tests[] = {
        TEST(test_frames_out_of_order),
        TEST(test_a_frame_with_flags),
        TEST(test_a_greeting_that_is_not_right),
        TEST(test_another_job_accepted),
        TEST(test_the_greeting_is_made_once),
        TEST(test_two_guests_have_two_keys),
        TEST(test_a_job_that_is_refused_leaves_no_byte),
        TEST(test_a_job_of_many_frames),
        TEST(test_bytes_that_are_no_frames_are_counted),
        TEST(test_frames_sent_again_do_nothing),
        TEST(test_a_stream_has_a_limit_in_all),
        TEST(test_another_stream_counts_towards_the_limit),
        TEST(test_a_frame_across_the_limit_is_not_taken),
        TEST(test_forged_frames_without_end),
        TEST(test_a_waiting_guest_is_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
