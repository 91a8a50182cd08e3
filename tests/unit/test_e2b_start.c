/* The stream of Start: events, signals, bounds and verdicts (2.4, 2.5, 3.2 of the interface's specification). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backends/e2b/start.h"

enum { STREAM_MAX = 8 };

static e2b_start_t start;
static guest_step_t step;
static cloud_limits_t limits;
static size_t transfer;
static e2b_verdict_t verdict;

static void begin(uint32_t kept_max, size_t transfer_max)
{
    limits = (cloud_limits_t){.stream_max = STREAM_MAX, .output_left = kept_max};
    transfer = transfer_max;
    memset(&step, 0, sizeof(step));
    e2b_start_init(&start, &step, &limits, &transfer);
}

static int end(void **state)
{
    (void)state;
    buffer_dispose(&step.out);
    buffer_dispose(&step.err);
    return 0;
}

static bool say(const char *event)
{
    return e2b_start_message(&start, event, strlen(event));
}

static bool eos(const char *text)
{
    return e2b_start_eos(&start, text, strlen(text));
}

static e2b_verdict_end_t judge(e2b_start_close_t closed, bool is_past, int status, const char *body)
{
    e2b_start_judge(&start, closed, is_past ? 0 : 1000000, status, body, strlen(body), &verdict);
    return verdict.end;
}

#define BEGUN "{\"event\":{\"start\":{\"pid\":42}}}"
#define HI "{\"event\":{\"data\":{\"stdout\":\"aGk=\"}}}"
#define EXIT0 "{\"event\":{\"end\":{\"exited\":true,\"status\":\"exit status 0\"}}}"
#define EXIT3                                                                                                          \
    "{\"event\":{\"end\":{\"exitCode\":3,\"exited\":true,\"status\":\"exit status 3\",\"error\":\"exit status 3\"}}}"
#define KILLED "{\"event\":{\"end\":{\"exitCode\":-1,\"status\":\"signal: killed\",\"error\":\"signal: killed\"}}}"

/* --- events --- */

static void test_events(void **state)
{
    (void)state;
    e2b_event_t event;
    static const struct {
        const char *text;
        e2b_event_kind_t kind;
        int exit_code, signal;
    } right[] = {
        {BEGUN, EVENT_START, 0, 0},
        {"{ \"event\" :  {\"start\": {\"pid\" :\"42\"} } }", EVENT_START, 0, 0}, /* a number as a string, white space */
        {"{\"event\":{\"keepalive\":{}}}", EVENT_KEEPALIVE, 0, 0},
        {EXIT0, EVENT_END, 0, 0}, /* the exit code 0 is absent */
        {"{\"event\":{\"end\":{\"exitCode\":0,\"exited\":true}}}", EVENT_END, 0, 0},
        {"{\"event\":{\"end\":{\"exitCode\":\"7\",\"exited\":true}}}", EVENT_END, 7, 0},
        {EXIT3, EVENT_END, 3, 0},
        {KILLED, EVENT_END, 137, 9},
        {"{\"event\":{\"data\":{}}}", EVENT_OTHER, 0, 0},
        {"{\"event\":{\"news\":{}}}", EVENT_OTHER, 0, 0},
        {"{\"event\":{}}", EVENT_OTHER, 0, 0},
    };
    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); ++i) {
        assert_null(e2b_event_read(right[i].text, strlen(right[i].text), &event));
        assert_int_equal(event.kind, right[i].kind);
        assert_int_equal(event.exit_code, right[i].exit_code);
        assert_int_equal(event.signal, right[i].signal);
        e2b_event_dispose(&event);
    }
    static const char *const wrong[] = {
        "",
        "[]",
        "{}",
        "{\"event\":7}",
        "{\"event\":{\"start\":{}}}",
        "{\"event\":{\"start\":{\"pid\":0}}}",
        "{\"event\":{\"start\":{\"pid\":42},\"keepalive\":{}}}",
        "{\"event\":{\"start\":7}}",
        "{\"event\":{\"data\":{\"stdout\":\"*\"}}}",
        "{\"event\":{\"data\":{\"stdout\":7}}}",
        "{\"event\":{\"data\":{\"stdout\":\"YQ==\",\"stderr\":\"YQ==\"}}}",
        "{\"event\":{\"data\":{\"pty\":\"YQ==\"}}}",
        "{\"event\":{\"end\":{\"exitCode\":256,\"exited\":true}}}",
        "{\"event\":{\"end\":{\"exitCode\":-1,\"exited\":true}}}",
        "{\"event\":{\"end\":{\"exitCode\":1.5,\"exited\":true}}}",
        "{\"event\":{\"end\":{\"exited\":\"yes\"}}}",
        "{\"event\":{\"end\":{}}}", /* no result at all is never exit 0 */
        "{\"event\":{\"end\":{\"exitCode\":0,\"exited\":true,\"exitCode\":1}}}",
        "{\"event\":{\"keepalive\":{}}}x",
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
        assert_non_null(e2b_event_read(wrong[i], strlen(wrong[i]), &event));
        e2b_event_dispose(&event);
    }
}

/* The bytes as they are, in either alphabet of base64, padded or not. */
static void test_output_is_bytes(void **state)
{
    (void)state;
    e2b_event_t event;
    static const char *const texts[] = {"//4AgA==", "__4AgA==", "//4AgA"};
    for (size_t i = 0; i < 3; ++i) {
        char text[64];
        snprintf(text, sizeof(text), "{\"event\":{\"data\":{\"stderr\":\"%s\"}}}", texts[i]);
        assert_null(e2b_event_read(text, strlen(text), &event));
        assert_int_equal(event.kind, EVENT_STDERR);
        assert_int_equal(event.len, 4);
        assert_memory_equal(event.bytes, "\xff\xfe\x00\x80", 4);
        e2b_event_dispose(&event);
    }
}

static void test_signals_by_their_names(void **state)
{
    (void)state;
    static const struct {
        const char *status;
        int number;
    } rows[] = {
        {"signal: hangup", 1},
        {"signal: interrupt", 2},
        {"signal: quit (core dumped)", 3},
        {"signal: illegal instruction", 4},
        {"signal: trace/breakpoint trap", 5},
        {"signal: aborted", 6},
        {"signal: bus error", 7},
        {"signal: floating point exception", 8},
        {"signal: killed", 9},
        {"signal: user defined signal 1", 10},
        {"signal: segmentation fault (core dumped)", 11},
        {"signal: user defined signal 2", 12},
        {"signal: broken pipe", 13},
        {"signal: alarm clock", 14},
        {"signal: terminated", 15},
        {"signal: CPU time limit exceeded", 24},
        {"signal: file size limit exceeded", 25},
        {"signal: signal 34", 34},
        {"signal: signal 64", 64},
        {"signal: signal 65", 127},
        {"signal: signal 0", 127},
        {"signal: signal ", 127},
        {"signal: signal 1x", 127},
        {"signal: ", 127},
        {"killed", 127},
        {"", 127},
        {"signal: signal 999999999999", 127},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i)
        assert_int_equal(e2b_signal_of(rows[i].status), rows[i].number);
}

/* --- verdicts --- */

static void test_a_command_that_ends(void **state)
{
    (void)state;
    begin(100, 1000);
    assert_true(say(BEGUN) && say(HI) && say("{\"event\":{\"keepalive\":{}}}") && say(EXIT3) && eos("{}"));
    assert_int_equal(judge(START_CLOSED, false, 200, ""), VERDICT_EXIT);
    assert_true(step.has_ended && step.exit_code == 3 && !step.is_timed_out);
    assert_int_equal(step.out.len, 2);
    assert_memory_equal(step.out.base, "hi", 2);
}

/* The verdict is whole with the end frame: what becomes of the connection after it does not matter. */
static void test_a_connection_that_dies_after_the_end(void **state)
{
    (void)state;
    static const e2b_start_close_t closed[] = {START_CLOSED, START_CUT, START_STOPPED, START_SILENT, START_LATE};
    for (size_t i = 0; i < sizeof(closed) / sizeof(closed[0]); ++i) {
        begin(100, 1000);
        assert_true(say(BEGUN) && say(EXIT0) && eos("{\"metadata\":{\"a\":[\"b\"]}}"));
        assert_int_equal(judge(closed[i], false, 200, ""), VERDICT_EXIT);
        assert_int_equal(step.exit_code, 0);
    }
}

static void test_no_verdict_is_never_exit_0(void **state)
{
    (void)state;
    begin(100, 1000);
    assert_true(say(BEGUN) && say(HI));
    assert_int_equal(judge(START_CLOSED, false, 200, ""), VERDICT_LOST); /* no end at all */
    assert_false(step.has_ended);
    assert_int_equal(step.out.len, 2); /* what came is kept */
    buffer_dispose(&step.out);
    begin(100, 1000);
    assert_true(say(BEGUN) && eos("{}"));
    assert_int_equal(judge(START_CLOSED, false, 200, ""), VERDICT_LOST); /* an end frame without an end event */
    begin(100, 1000);
    assert_true(say(BEGUN) && say(EXIT0));
    assert_int_equal(judge(START_CLOSED, false, 200, ""), VERDICT_LOST); /* an end event without an end frame */
    assert_false(step.has_ended);
    assert_non_null(strstr(verdict.detail, "exit code of 0"));
    assert_int_equal(judge(START_CUT, false, 200, ""), VERDICT_LOST);
    begin(100, 1000);
    assert_int_equal(judge(START_CLOSED, false, 200, ""), VERDICT_LOST); /* an empty stream */
    assert_int_equal(judge(START_SILENT, false, 200, ""), VERDICT_LOST);
    assert_int_equal(judge(START_UNSENT, false, 0, ""), VERDICT_UNSENT);
}

static void test_the_order_of_a_stream(void **state)
{
    (void)state;
    static const char *const streams[][4] = {
        {HI}, {EXIT0}, {BEGUN, BEGUN}, {BEGUN, EXIT0, EXIT3}, {BEGUN, EXIT0, HI}, {BEGUN, "{"},
    };
    for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); ++i) {
        bool is_open = true;
        begin(100, 1000);
        for (size_t j = 0; j < 4 && streams[i][j] != NULL; ++j)
            is_open = say(streams[i][j]);
        assert_false(is_open);
        assert_false(eos("{}"));
        assert_int_equal(judge(START_STOPPED, false, 200, ""), VERDICT_PROTOCOL);
        assert_false(step.has_ended);
        buffer_dispose(&step.out);
    }
    begin(100, 1000);
    assert_true(say(BEGUN) && say(EXIT0) && eos("{}"));
    assert_false(say(HI));
    assert_int_equal(judge(START_STOPPED, false, 200, ""), VERDICT_PROTOCOL);
    begin(100, 1000);
    assert_true(say(BEGUN) && say(EXIT0) && eos("{}"));
    assert_false(eos("{}"));
    assert_int_equal(judge(START_STOPPED, false, 200, ""), VERDICT_PROTOCOL);
    begin(100, 1000);
    assert_false(eos("[]"));
    assert_int_equal(judge(START_STOPPED, false, 200, ""), VERDICT_PROTOCOL);
}

static void test_errors_in_the_end_frame(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        e2b_verdict_end_t end;
    } rows[] = {
        {"{\"error\":{\"code\":\"deadline_exceeded\",\"message\":\"context deadline exceeded\"}}",
         VERDICT_LOST}, /* too soon */
        {"{\"error\":{\"code\":\"unavailable\",\"message\":\"the connection to sandbox x ended\"}}", VERDICT_LOST},
        {"{\"error\":{\"code\":\"invalid_argument\",\"message\":\"cwd '/x' does not exist\"}}", VERDICT_PROTOCOL},
        {"{\"error\":{\"code\":\"unauthenticated\",\"message\":\"invalid username: 'x'\"}}", VERDICT_DENIED},
        {"{\"error\":{\"code\":\"internal\"}}", VERDICT_PROTOCOL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        begin(100, 1000);
        assert_true(say(BEGUN) && eos(rows[i].text));
        assert_int_equal(judge(START_CLOSED, false, 200, ""), rows[i].end);
        assert_int_equal(step.is_timed_out, rows[i].end == VERDICT_TIMED_OUT);
    }
    /* an exit that was told before an error is a hint at most */
    begin(100, 1000);
    assert_true(say(BEGUN) && say(EXIT0) && eos(rows[1].text));
    assert_int_equal(judge(START_CLOSED, false, 200, ""), VERDICT_LOST);
}

/* Both ways in which the daemon's own deadline shows, and ours. */
static void test_deadlines(void **state)
{
    (void)state;
    static const char over[] = "{\"error\":{\"code\":\"deadline_exceeded\",\"message\":\"context deadline exceeded\"}}";
    for (int early = -1; early <= 1; ++early) { /* its word counts from 250 ms before our own clock says so */
        begin(100, 1000);
        assert_true(say(BEGUN) && eos(over));
        e2b_start_judge(&start, START_CLOSED, (uint64_t)(250000 + early), 200, NULL, 0, &verdict);
        assert_int_equal(verdict.end, early > 0 ? VERDICT_LOST : VERDICT_TIMED_OUT);
        assert_int_equal(step.is_timed_out, early <= 0);
    }
    begin(100, 1000);
    assert_true(say(BEGUN) && say(HI));
    assert_int_equal(judge(START_LATE, true, 200, ""), VERDICT_TIMED_OUT);
    assert_true(step.is_timed_out && step.exit_code == 124 && step.out.len == 2);
    buffer_dispose(&step.out);
    begin(100, 1000);
    assert_true(say(BEGUN) && say(KILLED) && eos("{}"));
    assert_int_equal(judge(START_CLOSED, true, 200, ""), VERDICT_TIMED_OUT);
    /* before it, a signal is the program's own */
    begin(100, 1000);
    assert_true(say(BEGUN) && say(KILLED) && eos("{}"));
    assert_int_equal(judge(START_CLOSED, false, 200, ""), VERDICT_EXIT);
    assert_true(step.exit_code == 137 && step.signal == 9);
    /* an exit of its own that was known stands */
    begin(100, 1000);
    assert_true(say(BEGUN) && say(EXIT3) && eos("{}"));
    assert_int_equal(judge(START_CLOSED, true, 200, ""), VERDICT_EXIT);
    assert_int_equal(step.exit_code, 3);
    /* a stream that was lost once the time was over: the time was over */
    begin(100, 1000);
    assert_true(say(BEGUN));
    assert_int_equal(judge(START_CUT, true, 200, ""), VERDICT_TIMED_OUT);
}

static void test_a_run_that_was_stopped(void **state)
{
    (void)state;
    begin(100, 1000);
    assert_true(say(BEGUN));
    assert_int_equal(judge(START_CANCELED, true, 200, ""), VERDICT_CANCELED);
    begin(100, 1000);
    assert_true(say(BEGUN) && say(EXIT3) && eos("{}"));
    assert_int_equal(judge(START_CANCELED, false, 200, ""), VERDICT_EXIT);
}

static void test_answers_before_the_handler(void **state)
{
    (void)state;
    begin(100, 1000);
    assert_int_equal(judge(START_CLOSED, false, 401, "{\"code\":401,\"message\":\"unauthorized access\"}"),
                     VERDICT_DENIED);
    assert_int_equal(
        judge(START_CLOSED, false, 502, "{\"sandboxId\":\"x\",\"message\":\"The sandbox was not found\",\"code\":502}"),
        VERDICT_LOST);
    assert_string_equal(verdict.message, "the backend lost the sandbox");
    assert_int_equal(judge(START_CLOSED, false, 502, "<html><h1>Bad gateway</h1></html>"), VERDICT_LOST);
    assert_string_equal(verdict.message, "the backend answered 502");
    assert_string_equal(verdict.detail, ""); /* the page goes nowhere */
    assert_int_equal(judge(START_CLOSED, false, 302, ""), VERDICT_LOST);
}

/* --- bounds --- */

/* A stream's limit, and that of the whole run: limit - 1, limit, limit + 1. */
static void test_output_is_kept_to_its_limit(void **state)
{
    (void)state;
    static const char *const chunks[] = {"MTIzNDU2Nw==", "MTIzNDU2Nzg=", "MTIzNDU2Nzg5"}; /* 7, 8 and 9 bytes */
    char text[64];
    for (size_t i = 0; i < 3; ++i) {
        begin(100, 1000);
        snprintf(text, sizeof(text), "{\"event\":{\"data\":{\"stderr\":\"%s\"}}}", chunks[i]);
        assert_true(say(BEGUN) && say(text));
        assert_int_equal(step.err.len, i == 0 ? 7 : STREAM_MAX);
        assert_int_equal(step.is_err_truncated, i == 2);
        assert_false(step.is_out_truncated);
        buffer_dispose(&step.err);
        begin(STREAM_MAX, 1000);
        snprintf(text, sizeof(text), "{\"event\":{\"data\":{\"stdout\":\"%s\"}}}", chunks[i]);
        assert_true(say(BEGUN) && say(text));
        assert_true(say("{\"event\":{\"data\":{\"stderr\":\"YQ==\"}}}"));
        assert_int_equal(step.err.len, i == 0); /* the run's limit left room for it in the first case alone */
        assert_int_equal(step.is_err_truncated, i != 0);
        assert_int_equal(limits.output_left, 0);
        buffer_dispose(&step.out);
        buffer_dispose(&step.err);
    }
}

static void test_floods(void **state)
{
    (void)state;
    for (int over = -1; over <= 1; ++over) {
        begin(100, 1000);
        assert_int_equal(e2b_start_count(&start, 1000 + (size_t)over), over <= 0);
        assert_int_equal(transfer, over < 0 ? 1 : 0);
        assert_int_equal(start.state, over > 0 ? START_FLOODED : START_OPEN);
    }
    assert_false(say(BEGUN));
    assert_int_equal(judge(START_STOPPED, false, 200, ""), VERDICT_FLOODED);
    assert_true(step.has_ended && step.exit_code == 153 && step.is_out_truncated && step.is_err_truncated);
    begin(100, 1000);
    e2b_start_oversize(&start);
    assert_int_equal(judge(START_STOPPED, false, 200, ""), VERDICT_FLOODED);
    assert_int_equal(judge(START_STOPPED, true, 200, ""), VERDICT_TIMED_OUT); /* in this order (3.2, step 7) */
}

/* --- how long to listen --- */

static void test_how_long_a_stream_is_listened_to(void **state)
{
    (void)state;
    static const uint64_t second = 1000000;
    e2b_start_times_t times = {.deadline_us = 300 * second, .heard_us = 10 * second};
    e2b_start_close_t closed;
    uint64_t next_us;
    /* 45 s without a byte: keepalives come every 15 s */
    assert_false(e2b_start_is_over(&times, 55 * second - 1, &closed, &next_us));
    assert_int_equal(next_us, 55 * second);
    assert_true(e2b_start_is_over(&times, 55 * second, &closed, &next_us));
    assert_int_equal(closed, START_SILENT);
    times.heard_us = 40 * second;
    assert_false(e2b_start_is_over(&times, 55 * second, &closed, &next_us));
    /* the run's own deadline, and a moment for the daemon's word on it */
    times.heard_us = 299 * second;
    assert_false(e2b_start_is_over(&times, 300 * second + 149999, &closed, &next_us));
    assert_true(e2b_start_is_over(&times, 300 * second + 150000, &closed, &next_us));
    assert_int_equal(closed, START_LATE);
    /* after the end frame the body has a moment to end, and need not */
    times = (e2b_start_times_t){.deadline_us = 300 * second, .heard_us = 20 * second, .ended_us = 20 * second};
    assert_false(e2b_start_is_over(&times, 20 * second + 99999, &closed, &next_us));
    assert_true(e2b_start_is_over(&times, 20 * second + 100000, &closed, &next_us));
    assert_int_equal(closed, START_STOPPED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_events, end),
        cmocka_unit_test_teardown(test_output_is_bytes, end),
        cmocka_unit_test_teardown(test_signals_by_their_names, end),
        cmocka_unit_test_teardown(test_a_command_that_ends, end),
        cmocka_unit_test_teardown(test_a_connection_that_dies_after_the_end, end),
        cmocka_unit_test_teardown(test_no_verdict_is_never_exit_0, end),
        cmocka_unit_test_teardown(test_the_order_of_a_stream, end),
        cmocka_unit_test_teardown(test_errors_in_the_end_frame, end),
        cmocka_unit_test_teardown(test_deadlines, end),
        cmocka_unit_test_teardown(test_a_run_that_was_stopped, end),
        cmocka_unit_test_teardown(test_answers_before_the_handler, end),
        cmocka_unit_test_teardown(test_output_is_kept_to_its_limit, end),
        cmocka_unit_test_teardown(test_floods, end),
        cmocka_unit_test(test_how_long_a_stream_is_listened_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
