/* Errors as the command reads them: which answers prove that nothing ran (spec sections 1.7, 4.1, 8.5), and what it
 * then says. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "cli/exit_codes.h"
#include "cli/failure.h"

#define ID "0123456789abcdef0123456789abcdef"

/* An answer with the given status, body and header lines (NULL-terminated), decoded for ID. */
static failure_t decode(int status, const char *body, const char *const *lines)
{
    exchange_t exchange = {.outcome = EXCHANGE_DONE, .status = status};
    buffer_init(&exchange.body, EXCHANGE_ANSWER_MAX);
    buffer_append_str(&exchange.body, body);
    for (size_t i = 0; lines[i] != NULL; i++)
        exchange_take_header(&exchange, lines[i], strlen(lines[i]));
    failure_t failure;
    failure_decode(&failure, &exchange, ID);
    exchange_dispose(&exchange);
    return failure;
}

static const char ECHO[] = "Plimsoll-Request-Id: " ID;
static const char *const BOUND[] = {ECHO, NULL};

static failure_t decode_detail(const char *value)
{
    char body[512];
    snprintf(body, sizeof(body),
             "{\"code\":\"failed_precondition\",\"message\":\"m\",\"details\":[{\"type\":\"plimsoll.v1.NotDispatched\","
             "\"value\":\"%s\"}]}",
             value);
    return decode(400, body, BOUND);
}

static void assert_marked(const failure_t *failure, const char *mark)
{
    assert_int_equal(failure->kind, FAILURE_REFUSED);
    assert_string_equal(failure->mark, mark);
}

static void assert_unmarked(const failure_t *failure)
{
    assert_int_equal(failure->kind, FAILURE_MAY_HAVE_RUN);
    assert_null(failure->mark);
    assert_int_equal(failure_exit_code(failure), CLI_MAY_HAVE_RUN);
}

/* Values from the table of spec section 4.1, without and with padding. */
static void test_details(void **state)
{
    (void)state;
    static const struct {
        const char *value, *mark;
        int exit_code;
    } CASES[] = {
        {"CAE", "request", CLI_REFUSED},      {"CAI=", "permission", CLI_REFUSED}, {"CAM", "protocol", CLI_REFUSED},
        {"CAQ", "unsupported", CLI_REFUSED},  {"CAU=", "isolation", CLI_REFUSED},  {"CAY", "capacity", CLI_TRY_LATER},
        {"CAc", "environment", CLI_REFUSED},  {"CGM", "unknown", CLI_REFUSED}, /* 99 */
        {"CAUQAQ", "isolation", CLI_REFUSED},                                  /* an unknown field after it */
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        failure_t failure = decode_detail(CASES[i].value);
        assert_marked(&failure, CASES[i].mark);
        assert_int_equal(failure_exit_code(&failure), CASES[i].exit_code);
        assert_string_equal(failure.code, "failed_precondition");
        assert_string_equal(failure.message, "m");
    }
}

static void test_undecodable_details_state_nothing(void **state)
{
    (void)state;
    const char *const values[] = {"C", "!!!!", "CA", "CA@U", "//8"};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        failure_t failure = decode_detail(values[i]);
        assert_unmarked(&failure);
    }
    /* Nor may the header speak for them. */
    const char *const lines[] = {ECHO, "Plimsoll-Not-Dispatched: request", NULL};
    failure_t failure = decode(
        400, "{\"code\":\"internal\",\"details\":[{\"type\":\"plimsoll.v1.NotDispatched\",\"value\":\"!\"}]}", lines);
    assert_unmarked(&failure);
}

static void test_types(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        bool marks;
    } CASES[] = {{"plimsoll.v1.NotDispatched", true},   {"type.example.com/plimsoll.v1.NotDispatched", true},
                 {"/plimsoll.v1.NotDispatched", true},  {"xplimsoll.v1.NotDispatched", false},
                 {"plimsoll.v1.NotDispatched2", false}, {"plimsoll.v1.SessionEnded", false}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        char body[256];
        snprintf(body, sizeof(body), "{\"code\":\"internal\",\"details\":[{\"type\":\"%s\",\"value\":\"CAU\"}]}",
                 CASES[i].type);
        failure_t failure = decode(500, body, BOUND);
        assert_int_equal(failure.mark != NULL, CASES[i].marks);
    }
}

static void test_first_detail_counts(void **state)
{
    (void)state;
    failure_t failure =
        decode(400,
               "{\"code\":\"internal\",\"details\":[{\"type\":\"plimsoll.v1.NotDispatched\",\"value\":\"CAU\"},"
               "{\"type\":\"plimsoll.v1.NotDispatched\",\"value\":\"CAY\"}]}",
               BOUND);
    assert_marked(&failure, "isolation");
}

/* A call stated to have happened cannot also be one that did not. */
static void test_unanswered_call_is_never_marked(void **state)
{
    (void)state;
    failure_t failure =
        decode(500,
               "{\"code\":\"internal\",\"details\":[{\"type\":\"plimsoll.v1.NotDispatched\",\"value\":\"CAU\"},"
               "{\"type\":\"plimsoll.v1.UnansweredCall\",\"value\":\"\"}]}",
               BOUND);
    assert_unmarked(&failure);
}

static void test_header_marks(void **state)
{
    (void)state;
    const char *const lines[] = {ECHO, "Plimsoll-Not-Dispatched: unsupported", NULL};
    failure_t failure = decode(404, "", lines);
    assert_marked(&failure, "unsupported");
    assert_string_equal(failure.code, "unimplemented");
    const char *const other[] = {ECHO, "Plimsoll-Not-Dispatched: Unsupported", NULL};
    failure = decode(404, "", other);
    assert_unmarked(&failure);
    const char *const twice[] = {ECHO, "Plimsoll-Not-Dispatched: request", "Plimsoll-Not-Dispatched: request", NULL};
    failure = decode(400, "{}", twice);
    assert_unmarked(&failure);
}

static void test_marks_of_unbound_answers_do_not_count(void **state)
{
    (void)state;
    const char *const none[] = {"Plimsoll-Not-Dispatched: request", NULL};
    const char *const twice[] = {ECHO, ECHO, "Plimsoll-Not-Dispatched: request", NULL};
    const char *const other[] = {"Plimsoll-Request-Id: ffffffffffffffffffffffffffffffff",
                                 "Plimsoll-Not-Dispatched: request", NULL};
    const char *const *const CASES[] = {none, twice, other};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        failure_t failure = decode(400,
                                   "{\"code\":\"aborted\",\"message\":\"m\",\"details\":[{\"type\":\"plimsoll.v1."
                                   "NotDispatched\",\"value\":\"CAU\"}]}",
                                   CASES[i]);
        assert_unmarked(&failure);
        assert_string_equal(failure.code, "aborted");
        assert_string_equal(failure.message, "m");
    }
}

/* Spec section 1.7, last table. */
static void test_codes_from_statuses(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *code;
    } CASES[] = {{400, "internal"},      {401, "unauthenticated"}, {403, "permission_denied"},
                 {404, "unimplemented"}, {429, "unavailable"},     {502, "unavailable"},
                 {503, "unavailable"},   {504, "unavailable"},     {500, "unknown"},
                 {418, "unknown"},       {204, "unknown"}};
    const char *const bodies[] = {"",
                                  "<html>502</html>",
                                  "{\"code\":\"no_such_code\"}",
                                  "{\"code\":7}",
                                  "[]",
                                  "{\"code\":\"internal\",\"code\":\"aborted\"}"};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++)
        for (size_t j = 0; j < sizeof(bodies) / sizeof(bodies[0]); j++) {
            failure_t failure = decode(CASES[i].status, bodies[j], BOUND);
            assert_unmarked(&failure);
            assert_string_equal(failure.code, CASES[i].code);
            assert_null(strstr(failure.message, "html"));
        }
}

static void test_redirects_are_never_marked(void **state)
{
    (void)state;
    const char *const lines[] = {ECHO, "Plimsoll-Not-Dispatched: request", "Location: https://example.com/", NULL};
    for (int status = 300; status < 400; status++) {
        failure_t failure = decode(status, "", lines);
        assert_unmarked(&failure);
    }
}

static void test_exchanges_without_an_answer(void **state)
{
    (void)state;
    static const struct {
        exchange_outcome_t outcome;
        failure_kind_t kind;
        const char *code;
    } CASES[] = {{EXCHANGE_NOT_SENT, FAILURE_REFUSED, "unavailable"},
                 {EXCHANGE_LOST, FAILURE_MAY_HAVE_RUN, "unavailable"},
                 {EXCHANGE_TIMED_OUT, FAILURE_MAY_HAVE_RUN, "deadline_exceeded"},
                 {EXCHANGE_TOO_LARGE, FAILURE_MAY_HAVE_RUN, "resource_exhausted"}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        exchange_t exchange = {.outcome = CASES[i].outcome, .reason = "why"};
        /* What was in the head of an answer that never ended proves nothing. */
        exchange_take_header(&exchange, ECHO, strlen(ECHO));
        exchange_take_header(&exchange, "Plimsoll-Not-Dispatched: request", 32);
        failure_t failure;
        failure_decode(&failure, &exchange, ID);
        assert_int_equal(failure.kind, CASES[i].kind);
        assert_string_equal(failure.code, CASES[i].code);
        if (failure.kind == FAILURE_REFUSED)
            assert_marked(&failure, "environment");
        else
            assert_null(failure.mark);
    }
}

static void test_retry_after(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        int seconds;
    } CASES[] = {{"3", 3},       {"0", 0},   {"86399", 86399}, {"86400", 86400}, {"86401", -1},
                 {"100000", -1}, {"-1", -1}, {"1.5", -1},      {"", -1},         {"Wed, 21 Oct 2026 07:28:00 GMT", -1}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        char line[64];
        snprintf(line, sizeof(line), "Retry-After: %s", CASES[i].value);
        const char *const lines[] = {ECHO, line, NULL};
        failure_t failure = decode(429, "{\"code\":\"resource_exhausted\"}", lines);
        assert_int_equal(failure.retry_after_s, CASES[i].seconds);
    }
}

static void test_message_is_cut_and_cleaned(void **state)
{
    (void)state;
    char body[FAILURE_MESSAGE_MAX + 64];
    for (int extra = -1; extra <= 1; extra++) {
        size_t at = (size_t)snprintf(body, sizeof(body), "{\"message\":\""),
               len = (size_t)(FAILURE_MESSAGE_MAX + extra);
        memset(body + at, 'm', len);
        memcpy(body + at + len, "\"}", 3);
        failure_t failure = decode(500, body, BOUND);
        assert_int_equal(strlen(failure.message), extra <= 0 ? len : FAILURE_MESSAGE_MAX);
    }
    failure_t failure = decode(500, "{\"message\":\"a\\u001b[2Jb\\u0000c\\u009bd\\u00e9\"}", BOUND);
    assert_string_equal(failure.message, "a?[2Jb?c?d\xc3\xa9");
}

static void test_next_says_what_to_do(void **state)
{
    (void)state;
    static const struct {
        const char *value, *said;
    } CASES[] = {{"CAE", "change the request"},
                 {"CAI", "token"},
                 {"CAM", "protocol"},
                 {"CAQ", "another backend"},
                 {"CAU", "--floor"},
                 {"CAY", "safe to send again later"},
                 {"CAc", "backend"}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        buffer_t next;
        buffer_init(&next, 1024);
        failure_t failure = decode_detail(CASES[i].value);
        failure_next(&failure, ID, &next);
        assert_int_equal(strncmp((const char *)next.base, "nothing ran; ", 13), 0);
        assert_non_null(strstr((const char *)next.base, CASES[i].said));
        buffer_dispose(&next);
    }
    buffer_t next;
    buffer_init(&next, 1024);
    failure_t failure = decode(500, "", BOUND);
    failure_next(&failure, ID, &next);
    assert_int_equal(strncmp((const char *)next.base, "it may have run: ", 17), 0);
    assert_non_null(strstr((const char *)next.base, ID));
    buffer_dispose(&next);
}

static void test_exit_codes(void **state)
{
    (void)state;
    failure_t failure;
    failure_local(&failure, "no");
    assert_marked(&failure, "request");
    assert_int_equal(failure_exit_code(&failure), CLI_REFUSED);
    failure_does_not_hold(&failure, "why");
    assert_int_equal(failure_exit_code(&failure), CLI_DOES_NOT_HOLD);
    assert_null(failure.mark);
    assert_int_equal(exit_code_of_run(0, false), 0);
    assert_int_equal(exit_code_of_run(255, false), 255);
    assert_int_equal(exit_code_of_run(256, false), 255);
    assert_int_equal(exit_code_of_run(-1, false), 255);
    assert_int_equal(exit_code_of_run(INT32_MIN, false), 255);
    assert_int_equal(exit_code_of_run(7, true), 124);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_details),
        cmocka_unit_test(test_undecodable_details_state_nothing),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_first_detail_counts),
        cmocka_unit_test(test_unanswered_call_is_never_marked),
        cmocka_unit_test(test_header_marks),
        cmocka_unit_test(test_marks_of_unbound_answers_do_not_count),
        cmocka_unit_test(test_codes_from_statuses),
        cmocka_unit_test(test_redirects_are_never_marked),
        cmocka_unit_test(test_exchanges_without_an_answer),
        cmocka_unit_test(test_retry_after),
        cmocka_unit_test(test_message_is_cut_and_cleaned),
        cmocka_unit_test(test_next_says_what_to_do),
        cmocka_unit_test(test_exit_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
