/* What the gateway's end makes of a job's frames: steps, artifacts and the end, held to the job's own limits. */
#include "tests/unit/guest_fixture.h"

static void test_a_whole_run(void **state)
{
    (void)state;
    accepted();
    frame('O', "\0hello ", 7);
    frame('E', "\0\xff\xfe", 3);
    frame('O', "\0world", 6);
    /* before its end: the output so far */
    guest_result_t *result = guest_result(guest);
    assert_int_equal(result->step_count, 1);
    assert_int_equal(result->steps[0].out.len, 11);
    assert_false(result->steps[0].has_ended);
    step_end((end_t){.step = 0, .out = 11, .err = 2});
    step_end((end_t){.step = 1, .flags = 2, .code = 7, .out = 0, .out_total = 5});
    artifact(0, 3);
    frame('f', "ab", 2);
    frame('f', "c", 1);
    artifact(2, 0);
    final(0, 1, 2, 2, "");
    assert_int_equal(guest_state(guest), GUEST_FINISHED);
    assert_null(guest_problem(guest));
    assert_int_equal(result->outcome, GUEST_COMPLETED);
    assert_int_equal(result->step_count, 2);
    assert_memory_equal(result->steps[0].out.base, "hello world", 11);
    assert_memory_equal(result->steps[0].err.base, "\xff\xfe", 2);
    assert_true(result->steps[0].has_ended && !result->steps[0].is_out_truncated);
    assert_int_equal(result->steps[0].duration_us, 1234);
    assert_true(result->steps[1].is_out_truncated && result->steps[1].exit_code == 7);
    assert_int_equal(result->artifact_count, 2);
    assert_string_equal(result->artifacts[0].path, "a");
    assert_int_equal(result->artifacts[0].len, 3);
    assert_memory_equal(result->artifacts[0].content, "abc", 3);
    assert_string_equal(result->artifacts[1].path, "d");
    assert_int_equal(result->artifacts[1].len, 0);
    assert_true(result->is_artifacts_truncated);
    /* what comes after it changes nothing */
    frame('O', "\0x", 2);
    guest_take(guest, "garbage", 7);
    assert_int_equal(guest_state(guest), GUEST_FINISHED);
    assert_int_equal(result->steps[0].out.len, 11);
}

static void test_how_a_step_may_end(void **state)
{
    (void)state;
    accepted();
    step_end((end_t){.step = 0, .code = -1, .signal = 9});
    step_end((end_t){.step = 1, .code = 255});
    step_end((end_t){.step = 2, .code = 124, .flags = 1});
    final(2, 0, 3, 0, "step 3");
    assert_int_equal(guest_state(guest), GUEST_FINISHED);
    const guest_result_t *result = guest_result(guest);
    assert_int_equal(result->outcome, GUEST_TIMED_OUT);
    assert_string_equal(result->detail, "step 3");
    assert_true(result->steps[0].exit_code == -1 && result->steps[0].signal == 9);
    assert_true(result->steps[2].exit_code == 124 && result->steps[2].is_timed_out);
}

static void test_ends_of_steps_that_make_no_sense(void **state)
{
    static const end_t BAD[] = {
        {.step = 1},
        {.step = 3},
        {.code = 256},
        {.code = -1},
        {.code = 3, .signal = 9},
        {.code = -1, .signal = 65},
        {.code = 0, .flags = 1},
        {.code = 124, .flags = 1, .signal = 9},
        {.flags = 8},
        {.out = 1},
        {.err = 1},
        {.flags = 2},
        {.flags = 4},
        {.out_total = 5},
        {.err_total = 5, .flags = 2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(BAD) / sizeof(*BAD); i++) {
        tear_down(NULL);
        set_up(NULL);
        accepted();
        step_end(BAD[i]);
        assert_broken();
    }
}

static void test_the_output_has_limits(void **state)
{
    static const uint8_t out[102] = {0};
    (void)state;
    for (size_t len = 99; len <= 101; len++) {
        tear_down(NULL);
        set_up(NULL);
        accepted();
        frame('O', out, 1 + len);
        assert_int_equal(guest_state(guest), len <= 100 ? GUEST_ACCEPTED : GUEST_BROKEN);
        /* what the limit allows is there in any case */
        assert_int_equal(guest_result(guest)->steps[0].out.len, len <= 100 ? len : 100);
    }
    for (size_t len = 49; len <= 51; len++) {
        tear_down(NULL);
        set_up(NULL);
        accepted();
        frame('O', out, 101);
        frame('E', out, 1 + len);
        assert_int_equal(guest_state(guest), len <= 50 ? GUEST_ACCEPTED : GUEST_BROKEN);
        assert_int_equal(guest_result(guest)->steps[0].err.len, len <= 50 ? len : 50);
    }
}

static void test_output_of_no_step(void **state)
{
    (void)state;
    static const char *const BAD[] = {"\1x", "\3x", "\xffx"};
    for (size_t i = 0; i < 3; i++) {
        tear_down(NULL);
        set_up(NULL);
        accepted();
        frame('O', BAD[i], 2);
        assert_broken();
    }
    for (size_t len = 0; len < 2; len++) {
        tear_down(NULL);
        set_up(NULL);
        accepted();
        frame('E', "\0", len);
        assert_broken();
    }
    tear_down(NULL);
    set_up(NULL);
    accepted();
    step_end((end_t){.step = 0});
    frame('O', "\0x", 2); /* it has ended */
    assert_broken();
    assert_int_equal(guest_result(guest)->step_count, 1);
}

static void test_artifacts_have_a_limit(void **state)
{
    (void)state;
    for (uint32_t len = 4999; len <= 5001; len++) {
        tear_down(NULL);
        set_up(NULL);
        accepted();
        artifact(0, len);
        assert_int_equal(guest_state(guest), len <= 5000 ? GUEST_ACCEPTED : GUEST_BROKEN);
    }
    tear_down(NULL);
    set_up(NULL);
    accepted();
    artifact(0, 0);
    artifact(1, 5001);
    assert_broken();
}

static void test_artifacts_out_of_order(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        tear_down(NULL);
        set_up(NULL);
        accepted();
        if (i == 0)
            artifact(3, 1);
        if (i == 1)
            frame('f', "x", 1);
        if (i == 2)
            artifact(1, 0), artifact(1, 0);
        if (i == 3)
            artifact(1, 0), artifact(0, 0);
        if (i == 4)
            artifact(0, 2), artifact(1, 0);
        if (i == 5)
            artifact(0, 2), frame('f', "abc", 3);
        if (i == 6)
            artifact(0, 1), frame('f', "", 0);
        if (i == 7)
            frame('O', "\0x", 2), artifact(0, 0);
        assert_broken();
    }
    tear_down(NULL);
    set_up(NULL);
    accepted();
    artifact(0, 0);
    step_end((end_t){.step = 0}); /* steps come before */
    assert_broken();
}

static void test_an_artifact_withdrawn(void **state)
{
    (void)state;
    accepted();
    artifact(0, 1000);
    frame('f', "abc", 3);
    artifact(0, UINT32_MAX);
    artifact(1, 5000); /* its room is there again */
    for (int i = 0; i < 5; i++) {
        static uint8_t thousand[1000];
        frame('f', thousand, 1000);
    }
    final(0, 0, 0, 1, "");
    assert_int_equal(guest_state(guest), GUEST_FINISHED);
    assert_int_equal(guest_result(guest)->artifact_count, 1);
    assert_string_equal(guest_result(guest)->artifacts[0].path, "b/c");
    for (int i = 0; i < 4; i++) {
        tear_down(NULL);
        set_up(NULL);
        accepted();
        if (i == 1)
            artifact(0, 0), artifact(1, UINT32_MAX);
        else if (i == 2)
            artifact(0, 0), artifact(1, 0), artifact(0, UINT32_MAX);
        else if (i == 3)
            artifact(0, 0), artifact(1, 0), artifact(1, UINT32_MAX);
        artifact(i == 3 ? 1 : 0, UINT32_MAX);
        assert_broken();
    }
}

static void test_an_end_that_is_wrong(void **state)
{
    (void)state;
    for (int i = 0; i < 9; i++) {
        tear_down(NULL);
        set_up(NULL);
        accepted();
        step_end((end_t){.step = 0});
        if (i == 0)
            final(0, 0, 0, 0, "");
        if (i == 1)
            final(0, 0, 2, 0, "");
        if (i == 2)
            final(0, 0, 1, 1, "");
        if (i == 3)
            final(4, 0, 1, 0, "");
        if (i == 4)
            final(0, 2, 1, 0, "");
        if (i == 5)
            runner.payloads[0] ^= 1, final(0, 0, 1, 0, "");
        if (i == 6)
            frame('O', "\1x", 2), final(0, 0, 2, 0, "");
        if (i == 7)
            artifact(0, 1), final(0, 0, 1, 1, "");
        if (i == 8)
            frame('X', "", 0);
        assert_broken();
        assert_int_equal(guest_result(guest)->outcome, GUEST_RUNNER_FAILED);
    }
}

static void test_the_runners_words_are_text(void **state)
{
    (void)state;
    accepted();
    final(1, 0, 0, 0, "a\xff\n\xc3\xa9");
    assert_int_equal(guest_state(guest), GUEST_FINISHED);
    assert_string_equal(guest_result(guest)->detail, "a?"
                                                     "???");
    tear_down(NULL);
    set_up(NULL);
    accepted();
    final(1, 0, 0, 0, "file \xc3\xa9\x7f");
    assert_string_equal(guest_result(guest)->detail, "file \xc3\xa9?");
}

static void test_parts_may_be_moved_out(void **state)
{
    (void)state;
    accepted();
    frame('O', "\0hello", 6);
    step_end((end_t){.step = 0, .out = 5});
    artifact(0, 1);
    frame('f', "x", 1);
    final(0, 0, 1, 1, "");
    guest_result_t *result = guest_result(guest);
    buffer_t out = result->steps[0].out;
    buffer_init(&result->steps[0].out, 0);
    uint8_t *content = result->artifacts[0].content;
    result->artifacts[0].content = NULL;
    guest_destroy(guest);
    guest = NULL;
    assert_memory_equal(out.base, "hello", 5);
    assert_int_equal(content[0], 'x');
    buffer_dispose(&out);
    free(content);
}

static void test_random_streams(void **state)
{
    (void)state;
    srand(3);
    for (int round = 0; round < 300; round++) {
        tear_down(NULL);
        set_up(NULL);
        accepted();
        for (int i = 0; i < 60; i++) {
            uint8_t payload[64];
            for (size_t j = 0; j < sizeof(payload); j++)
                payload[j] = (uint8_t)(rand() % 3);
            frame("OETFfXRA"[rand() % 6], payload, (size_t)(rand() % 60));
            guest_take(guest, payload, (size_t)(rand() % 20));
            const guest_result_t *result = guest_result(guest);
            assert_true(result->step_count <= 3 && result->artifact_count <= 3);
            size_t total = 0;
            for (size_t s = 0; s < result->step_count; s++)
                total += result->steps[s].out.len + result->steps[s].err.len;
            assert_true(total <= 150);
        }
        assert_int_not_equal(guest_state(guest), GUEST_FINISHED);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    random_init();
    const struct CMUnitTest tests[] = {
        TEST(test_a_whole_run),
        TEST(test_how_a_step_may_end),
        TEST(test_ends_of_steps_that_make_no_sense),
        TEST(test_the_output_has_limits),
        TEST(test_output_of_no_step),
        TEST(test_artifacts_have_a_limit),
        TEST(test_artifacts_out_of_order),
        TEST(test_an_artifact_withdrawn),
        TEST(test_an_end_that_is_wrong),
        TEST(test_the_runners_words_are_text),
        TEST(test_parts_may_be_moved_out),
        TEST(test_random_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
