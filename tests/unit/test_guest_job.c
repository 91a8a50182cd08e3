/* What the frames between gateway and runner say: each limit at one below, at and one above, and every way to cut a
 * message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backends/guest/job.h"
#include "core/buffer.h"

static job_t job, read_back;
static job_hello_t hello, hello_back;
static uint8_t *large; /* JOB_FILES_BYTES_MAX + 1 bytes of 'x' */

static int set_up(void **state)
{
    (void)state;
    large = malloc(JOB_FILES_BYTES_MAX + 1);
    memset(large, 'x', JOB_FILES_BYTES_MAX + 1);
    job = (job_t){.kind = JOB_PROJECT, .timeout_ms = 1, .step_count = 1, .steps = {{(const uint8_t *)"true", 4}}};
    hello = (job_hello_t){0};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(large);
    return 0;
}

static job_bytes_t bytes(const char *s)
{
    return (job_bytes_t){(const uint8_t *)s, strlen(s)};
}

static void put(void *data, const void *from, size_t len)
{
    assert_true(buffer_append(data, from, len));
}

/* An exact copy of the message, so that a read past its end is seen. */
static uint8_t *encoded(size_t *len)
{
    buffer_t b;
    buffer_init(&b, JOB_BYTES_MAX);
    job_encode(&job, (job_sink_t){put, &b});
    assert_int_equal(b.len, job_size(&job));
    uint8_t *copy = malloc(b.len);
    memcpy(copy, b.base, b.len);
    *len = b.len;
    buffer_dispose(&b);
    return copy;
}

static uint8_t *encoded_hello(size_t *len)
{
    buffer_t b;
    buffer_init(&b, JOB_HELLO_MAX);
    job_hello_encode(&hello, (job_sink_t){put, &b});
    assert_int_equal(b.len, job_hello_size(&hello));
    uint8_t *copy = malloc(b.len);
    memcpy(copy, b.base, b.len);
    *len = b.len;
    buffer_dispose(&b);
    return copy;
}

static void assert_same(job_bytes_t a, job_bytes_t b)
{
    assert_int_equal(a.len, b.len);
    if (a.len != 0)
        assert_memory_equal(a.bytes, b.bytes, a.len);
}

static void test_a_job_there_and_back(void **state)
{
    size_t len;
    (void)state;
    job = (job_t){.kind = JOB_PROJECT,
                  .timeout_ms = 30000,
                  .stream_max = 1,
                  .output_max = 2,
                  .artifacts_max = 3,
                  .files = {{bytes("a/b"), {(const uint8_t *)"\0\xff", 2}}, {bytes("c"), {NULL, 0}}},
                  .file_count = 2,
                  .steps = {bytes("true"), bytes("")},
                  .step_count = 2,
                  .artifacts = {bytes("out")},
                  .artifact_count = 1};
    uint8_t *message = encoded(&len);
    /* the first bytes by hand, from job.h: kind 1, timeout 0x7530, limits */
    assert_memory_equal(message, "\1\0\0\x75\x30\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0\0\0\2\0\3a/b\0\0\0\2\0\xff", 35);
    assert_null(job_decode(message, len, &read_back));
    assert_int_equal(read_back.kind, JOB_PROJECT);
    assert_int_equal(read_back.timeout_ms, 30000);
    assert_int_equal(read_back.stream_max, 1);
    assert_int_equal(read_back.output_max, 2);
    assert_int_equal(read_back.artifacts_max, 3);
    assert_int_equal(read_back.file_count, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_same(read_back.files[i].path, job.files[i].path);
        assert_same(read_back.files[i].content, job.files[i].content);
        assert_same(read_back.steps[i], job.steps[i]);
    }
    assert_same(read_back.artifacts[0], job.artifacts[0]);
    for (size_t cut = 0; cut < len; cut++) {
        uint8_t *part = malloc(cut + 1);
        memcpy(part, message, cut);
        assert_non_null(job_decode(part, cut, &read_back));
        free(part);
    }
    message = realloc(message, len + 1);
    message[len] = 0;
    assert_non_null(job_decode(message, len + 1, &read_back));
    free(message);
}

static void test_a_greeting_there_and_back(void **state)
{
    size_t len;
    (void)state;
    hello = (job_hello_t){.preboot = JOB_PREBOOT_NODE,
                          .job_max = 77,
                          .run_id = bytes("run"),
                          .env = {bytes("A=1"), bytes("B=")},
                          .env_count = 2};
    memset(hello.key, 7, sizeof(hello.key));
    uint8_t *message = encoded_hello(&len);
    assert_memory_equal(message, "\0\1\1\7\7", 5);
    /* behind the message's length, the key is where the runner looks for it */
    assert_memory_equal(message + JOB_HELLO_KEY - 4, hello.key, sizeof(hello.key));
    assert_null(job_hello_decode(message, len, &hello_back));
    assert_int_equal(hello_back.preboot, JOB_PREBOOT_NODE);
    assert_int_equal(hello_back.job_max, 77);
    assert_memory_equal(hello_back.key, hello.key, sizeof(hello.key));
    assert_same(hello_back.run_id, hello.run_id);
    assert_int_equal(hello_back.env_count, 2);
    assert_same(hello_back.env[1], hello.env[1]);
    for (size_t cut = 0; cut < len; cut++)
        assert_non_null(job_hello_decode(message, cut, &hello_back));
    message[1] = 2;
    assert_string_equal(job_hello_decode(message, len, &hello_back), "another protocol version");
    free(message);
}

/* NULL or not, the decoder says what the check said. */
static bool is_allowed(void)
{
    size_t len;
    bool is_ok = job_check(&job) == NULL;
    uint8_t *message = encoded(&len);
    assert_int_equal(job_decode(message, len, &read_back) == NULL, is_ok);
    free(message);
    return is_ok;
}

static void test_limits_of_numbers(void **state)
{
    (void)state;
    job.timeout_ms = 0;
    assert_false(is_allowed());
    job.timeout_ms = 15 * 60 * 1000;
    job.stream_max = 1048576;
    job.output_max = 3145728;
    job.artifacts_max = 8388608;
    assert_true(is_allowed());
    job.timeout_ms++;
    assert_false(is_allowed());
    job.timeout_ms--;
    job.stream_max++;
    assert_false(is_allowed());
    job.stream_max--;
    job.output_max++;
    assert_false(is_allowed());
    job.output_max--;
    job.artifacts_max++;
    assert_false(is_allowed());
    job.artifacts_max--;
    assert_true(is_allowed());
}

static void test_limits_of_steps(void **state)
{
    (void)state;
    job.step_count = 0;
    assert_false(is_allowed());
    for (size_t i = 0; i < JOB_STEPS_MAX; i++)
        job.steps[i] = bytes("true");
    job.step_count = 20;
    assert_true(is_allowed());
    job.steps[3] = (job_bytes_t){large, 16384};
    assert_true(is_allowed());
    job.steps[3].len++;
    assert_false(is_allowed());
    job.steps[3] = (job_bytes_t){(const uint8_t *)"a\0b", 3};
    assert_false(is_allowed());
}

static void test_limits_of_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < JOB_FILES_MAX; i++)
        job.files[i] = (job_file_t){bytes("f"), {large, 1}};
    job.file_count = 200;
    job.files[0].content.len = 4194304 - 199;
    assert_true(is_allowed());
    job.files[0].content.len++;
    assert_false(is_allowed());
    job.files[0].content.len = 1;
    job.files[7].path = (job_bytes_t){large, 1024};
    assert_true(is_allowed());
    job.files[7].path.len++;
    assert_false(is_allowed());
    job.files[7].path.len = 0;
    assert_false(is_allowed());
}

static void test_limits_of_artifacts(void **state)
{
    (void)state;
    for (size_t i = 0; i < JOB_ARTIFACTS_MAX; i++)
        job.artifacts[i] = bytes("a");
    job.artifact_count = 100;
    job.artifacts[99] = (job_bytes_t){large, 1024};
    assert_true(is_allowed());
    job.artifacts[99].len++;
    assert_false(is_allowed());
    job.artifacts[99].len = 0;
    assert_false(is_allowed());
}

static void test_limits_of_code(void **state)
{
    (void)state;
    job = (job_t){.kind = JOB_SNIPPET, .timeout_ms = 1, .code = {large, 262143}};
    assert_true(is_allowed());
    job.code.len = 262144;
    assert_true(is_allowed());
    job.code.len = 262145;
    assert_false(is_allowed());
}

static void test_each_kind_has_its_own_parts(void **state)
{
    (void)state;
    job.code = bytes("x");
    assert_false(is_allowed());
    for (int kind = JOB_SNIPPET; kind <= JOB_PROBE; kind += 2) {
        job = (job_t){.kind = (job_kind_t)kind, .timeout_ms = 1, .code = bytes("x")};
        assert_true(is_allowed());
        job.steps[0] = bytes("true");
        job.step_count = 1;
        assert_false(is_allowed());
        job.step_count = 0;
        job.artifacts[0] = bytes("a");
        job.artifact_count = 1;
        assert_false(is_allowed());
        job.artifact_count = 0;
        job.files[0].path = bytes("a");
        job.file_count = 1;
        assert_false(is_allowed());
    }
    job = (job_t){.kind = (job_kind_t)3, .timeout_ms = 1};
    assert_false(is_allowed());
}

/* Counts above the arrays' sizes, written by hand. */
static void test_counts_past_the_limits(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        uint8_t max;
    } COUNTS[] = {{21, 200}, {23, 20}, {25, 100}};
    for (size_t i = 0; i < 3; i++) {
        uint8_t message[27 + 65536] = {1, 0, 0, 0, 1};
        message[COUNTS[i].at + 1] = (uint8_t)(COUNTS[i].max + 1);
        assert_non_null(job_decode(message, sizeof(message), &read_back));
        message[COUNTS[i].at] = 0xff;
        assert_non_null(job_decode(message, sizeof(message), &read_back));
    }
}

static void test_the_largest_job_fits_its_limit(void **state)
{
    size_t len;
    (void)state;
    for (size_t i = 0; i < JOB_FILES_MAX; i++)
        job.files[i] = (job_file_t){{large, JOB_PATH_MAX}, {NULL, 0}};
    job.files[0].content = (job_bytes_t){large, JOB_FILES_BYTES_MAX};
    job.file_count = JOB_FILES_MAX;
    for (size_t i = 0; i < JOB_STEPS_MAX; i++)
        job.steps[i] = (job_bytes_t){large, JOB_STEP_MAX};
    job.step_count = JOB_STEPS_MAX;
    for (size_t i = 0; i < JOB_ARTIFACTS_MAX; i++)
        job.artifacts[i] = (job_bytes_t){large, JOB_PATH_MAX};
    job.artifact_count = JOB_ARTIFACTS_MAX;
    assert_true(is_allowed());
    free(encoded(&len));
    /* a project has no code */
    assert_in_range(len, JOB_BYTES_MAX - JOB_CODE_MAX - 64, JOB_BYTES_MAX - JOB_CODE_MAX);
}

static bool is_hello_allowed(void)
{
    size_t len;
    bool is_ok = job_hello_check(&hello) == NULL;
    uint8_t *message = encoded_hello(&len);
    assert_int_equal(job_hello_decode(message, len, &hello_back) == NULL, is_ok);
    free(message);
    return is_ok;
}

static void test_limits_of_the_greeting(void **state)
{
    (void)state;
    large[1] = '=';
    hello.run_id = (job_bytes_t){large, 64};
    assert_true(is_hello_allowed());
    hello.run_id.len++;
    assert_false(is_hello_allowed());
    hello.run_id.len = 0;
    for (size_t i = 0; i < JOB_ENV_MAX; i++)
        hello.env[i] = bytes("A=");
    hello.env_count = 128;
    assert_true(is_hello_allowed());
    hello.env_count = 1;
    hello.env[0] = (job_bytes_t){large, 32767};
    assert_true(is_hello_allowed());
    hello.env[0].len++;
    assert_non_null(job_hello_check(&hello));
    hello.env_count = 2;
    hello.env[0].len = 32764;
    assert_true(is_hello_allowed());
    hello.env[1] = bytes("A=1");
    assert_non_null(job_hello_check(&hello));
    static const char *const BAD[] = {"A", "", "=x"};
    for (size_t i = 0; i < 3; i++) {
        hello.env_count = 1;
        hello.env[0] = bytes(BAD[i]);
        assert_false(is_hello_allowed());
    }
    hello.env[0] = (job_bytes_t){(const uint8_t *)"A=\0", 3};
    assert_false(is_hello_allowed());
}

static void test_paths(void **state)
{
    static const char *const GOOD[] = {"a", "a/b", "...", "..a", "a..", ".a", "a/.b/c", "\xc3\xa9", "a b", "\\"};
    static const char *const BAD[] = {"",    "/",    "/a",  "a/",   "a//b",  ".",      "..",
                                      "./a", "../a", "a/.", "a/..", "a/./b", "a/../b", "//"};
    (void)state;
    for (size_t i = 0; i < sizeof(GOOD) / sizeof(*GOOD); i++)
        assert_true(job_is_path_valid(bytes(GOOD[i])));
    for (size_t i = 0; i < sizeof(BAD) / sizeof(*BAD); i++)
        assert_false(job_is_path_valid(bytes(BAD[i])));
    assert_false(job_is_path_valid((job_bytes_t){(const uint8_t *)"a\0b", 3}));
    assert_true(job_is_path_valid((job_bytes_t){large, 1023}));
    assert_true(job_is_path_valid((job_bytes_t){large, 1024}));
    assert_false(job_is_path_valid((job_bytes_t){large, 1025}));
}

static void test_small_messages(void **state)
{
    uint8_t out[FRAME_PAYLOAD_MAX];
    job_ready_t ready = {1, JOB_STARTED, 2}, ready_back;
    job_step_end_t end = {3, true, false, true, -1, 9, 1, 2, 1ull << 40, 4, 5}, end_back;
    job_artifact_t artifact = {99, 0x01020304}, artifact_back;
    job_final_t final = {.outcome = JOB_TIMED_OUT, .is_artifacts_truncated = true, .steps = 20, .artifacts = 100},
                final_back;
    (void)state;
    size_t n = job_ready_encode(&ready, out);
    assert_int_equal(n, 5);
    assert_memory_equal(out, "\0\1\1\0\2", 5);
    assert_true(job_ready_decode(out, n, &ready_back) && ready_back.started == JOB_STARTED &&
                ready_back.processes == 2);
    assert_false(job_ready_decode(out, n - 1, &ready_back) || job_ready_decode(out, n + 1, &ready_back));
    out[2] = 3;
    assert_false(job_ready_decode(out, n, &ready_back));

    n = job_step_end_encode(&end, out);
    assert_int_equal(n, 39);
    assert_memory_equal(out, "\3\5\xff\xff\xff\xff\x09\0\0\0\1\0\0\0\2\0\0\1\0\0\0\0\0", 23);
    assert_true(job_step_end_decode(out, n, &end_back));
    assert_true(end_back.step == 3 && end_back.is_timed_out && !end_back.is_out_truncated && end_back.is_err_truncated);
    assert_true(end_back.exit_code == -1 && end_back.signal == 9 && end_back.out_kept == 1 && end_back.err_kept == 2);
    assert_true(end_back.out_total == 1ull << 40 && end_back.err_total == 4 && end_back.duration_us == 5);
    assert_false(job_step_end_decode(out, n - 1, &end_back) || job_step_end_decode(out, n + 1, &end_back));
    out[1] = 8;
    assert_false(job_step_end_decode(out, n, &end_back));

    n = job_artifact_encode(&artifact, out);
    assert_memory_equal(out, "\0\x63\1\2\3\4", 6);
    assert_true(job_artifact_decode(out, n, &artifact_back) && artifact_back.number == 99 &&
                artifact_back.len == 0x01020304);
    assert_false(job_artifact_decode(out, n - 1, &artifact_back) || job_artifact_decode(out, n + 1, &artifact_back));

    final.detail = (job_bytes_t){large, JOB_DETAIL_MAX + 1};
    memset(final.digest, 8, sizeof(final.digest));
    n = job_final_encode(&final, out);
    assert_int_equal(n, 6 + 32 + 255);
    assert_memory_equal(out, "\2\1\0\x14\0\x64\x08\x08", 8);
    assert_true(job_final_decode(out, n, &final_back) && final_back.steps == 20 && final_back.artifacts == 100);
    assert_true(final_back.detail.len == 255 && final_back.outcome == JOB_TIMED_OUT &&
                final_back.is_artifacts_truncated);
    assert_false(job_final_decode(out, n + 1, &final_back));
    assert_true(job_final_decode(out, 38, &final_back) && final_back.detail.len == 0);
    assert_false(job_final_decode(out, 37, &final_back));
    out[0] = 4;
    assert_false(job_final_decode(out, n, &final_back));
    out[0] = 0;
    out[1] = 2;
    assert_false(job_final_decode(out, n, &final_back));
}

static void test_a_message_of_several_frames(void **state)
{
    job_message_t m = {0};
    (void)state;
    assert_false(job_message_is_whole(&m));
    assert_non_null(job_message_add(&m, false, (const uint8_t *)"abc", 3, 100));
    assert_non_null(job_message_add(&m, true, (const uint8_t *)"\0\0\0", 3, 100));
    assert_non_null(job_message_add(&m, true, (const uint8_t *)"\0\0\0\x65", 4, 100)); /* 101 */
    assert_null(job_message_add(&m, true, (const uint8_t *)"\0\0\0\x06xy", 6, 6));
    assert_false(job_message_is_whole(&m));
    assert_non_null(job_message_add(&m, true, (const uint8_t *)"\0\0\0\x06xy", 6, 6));
    assert_null(job_message_add(&m, false, (const uint8_t *)"", 0, 6));
    assert_null(job_message_add(&m, false, (const uint8_t *)"abc", 3, 6));
    assert_non_null(job_message_add(&m, false, (const uint8_t *)"de", 2, 6));
    assert_null(job_message_add(&m, false, (const uint8_t *)"d", 1, 6));
    assert_true(job_message_is_whole(&m));
    assert_memory_equal(m.bytes, "xyabcd", 6);
    assert_non_null(job_message_add(&m, false, (const uint8_t *)"e", 1, 6));
    job_message_dispose(&m);
    assert_null(job_message_add(&m, true, (const uint8_t *)"\0\0\0\0", 4, 6));
    assert_true(job_message_is_whole(&m));
    job_message_dispose(&m);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_job_there_and_back),   TEST(test_a_greeting_there_and_back),
        TEST(test_limits_of_numbers),      TEST(test_limits_of_steps),
        TEST(test_limits_of_files),        TEST(test_limits_of_artifacts),
        TEST(test_limits_of_code),         TEST(test_each_kind_has_its_own_parts),
        TEST(test_counts_past_the_limits), TEST(test_the_largest_job_fits_its_limit),
        TEST(test_limits_of_the_greeting), TEST(test_paths),
        TEST(test_small_messages),         TEST(test_a_message_of_several_frames),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
