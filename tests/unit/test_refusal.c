/* What an RPC error looks like, from the specification's tables (spec 1.5, 1.7, 2.4, 4.1) and the Connect protocol. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "gateway/refusal.h"

#define LEN(array) (sizeof(array) / sizeof((array)[0]))

/* The body, read by a JSON parser that is not ours: duplicate members and bad UTF-8 are errors. Freed with
 * json_decref. */
static json_t *body_of(const refusal_t *r)
{
    json_error_t error;
    buffer_t body;
    buffer_init(&body, 8192);
    refusal_body(r, &body);
    json_t *json = json_loadb((const char *)body.base, body.len, JSON_REJECT_DUPLICATES, &error);
    if (json == NULL)
        fail_msg("%s: %.*s", error.text, (int)body.len, (const char *)body.base);
    buffer_dispose(&body);
    return json;
}

static const char *text_at(const json_t *json, const char *key)
{
    const char *text = json_string_value(json_object_get(json, key));
    assert_non_null(text);
    return text;
}

static const struct {
    const char *name;
    int status;
} TABLE[] = {
    {"canceled", 499},
    {"unknown", 500},
    {"invalid_argument", 400},
    {"deadline_exceeded", 504},
    {"not_found", 404},
    {"already_exists", 409},
    {"permission_denied", 403},
    {"resource_exhausted", 429},
    {"failed_precondition", 400},
    {"aborted", 409},
    {"out_of_range", 400},
    {"unimplemented", 501},
    {"internal", 500},
    {"unavailable", 503},
    {"data_loss", 500},
    {"unauthenticated", 401},
};

static void codes(void **state)
{
    (void)state;
    assert_int_equal(CODE_COUNT, LEN(TABLE));
    for (size_t i = 0; i < LEN(TABLE); i++) {
        code_t code = code_parse(TABLE[i].name);
        assert_true(code < CODE_COUNT);
        assert_string_equal(code_name(code), TABLE[i].name);
        assert_int_equal(code_status(code), TABLE[i].status);
    }
    static const char *const unknown[] = {"", "ok", "Canceled", "cancelled", "canceled ", "not-found"};
    for (size_t i = 0; i < LEN(unknown); i++)
        assert_int_equal(code_parse(unknown[i]), CODE_COUNT);
}

static const struct {
    mark_t mark;
    const char *name, *value;
} MARKS[] = {
    {MARK_REQUEST, "request", "CAE"},         {MARK_PERMISSION, "permission", "CAI"},
    {MARK_PROTOCOL, "protocol", "CAM"},       {MARK_UNSUPPORTED, "unsupported", "CAQ"},
    {MARK_ISOLATION, "isolation", "CAU"},     {MARK_CAPACITY, "capacity", "CAY"},
    {MARK_ENVIRONMENT, "environment", "CAc"},
};

static void has_detail(const json_t *json, size_t at, const char *type, const char *value)
{
    const json_t *details = json_object_get(json, "details");
    assert_true(json_is_array(details));
    const json_t *detail = json_array_get(details, at);
    assert_non_null(detail);
    assert_int_equal(json_object_size(detail), 2);
    assert_string_equal(text_at(detail, "type"), type);
    assert_string_equal(text_at(detail, "value"), value);
}

/* In the handler: the detail marks, and no header (1.5). */
static void a_refusal_in_the_handler(void **state)
{
    (void)state;
    for (size_t i = 0; i < LEN(MARKS); i++) {
        refusal_t r;
        refusal_set(&r, CODE_FAILED_PRECONDITION, MARKS[i].mark, "no %s of %d", "tier", 3);
        assert_string_equal(mark_name(MARKS[i].mark), MARKS[i].name);
        assert_int_equal(r.status, 400);
        assert_null(refusal_header(&r));
        json_t *json = body_of(&r);
        assert_int_equal(json_object_size(json), 3);
        assert_string_equal(text_at(json, "code"), "failed_precondition");
        assert_string_equal(text_at(json, "message"), "no tier of 3");
        assert_int_equal(json_array_size(json_object_get(json, "details")), 1);
        has_detail(json, 0, "plimsoll.v1.NotDispatched", MARKS[i].value);
        json_decref(json);
    }
    assert_null(mark_name(MARK_NONE));
}

/* Before the handler, steps 3 to 5 of 4.2: the detail with the exact reason, and the header that says "request". */
static void a_refusal_before_the_handler_with_a_detail(void **state)
{
    (void)state;
    for (size_t i = 0; i < LEN(MARKS); i++) {
        refusal_t r;
        refusal_set_early(&r, CODE_RESOURCE_EXHAUSTED, MARKS[i].mark, "full");
        assert_int_equal(r.status, 429);
        assert_string_equal(refusal_header(&r), "request");
        assert_false(r.challenge);
        json_t *json = body_of(&r);
        has_detail(json, 0, "plimsoll.v1.NotDispatched", MARKS[i].value);
        json_decref(json);
    }
    refusal_t r;
    refusal_set_early(&r, CODE_UNAUTHENTICATED, MARK_PERMISSION, "who?");
    assert_true(r.challenge); /* RFC 9110 15.5.2: a 401 carries a challenge */
    assert_int_equal(r.status, 401);
}

/* Before the handler, the rest: the header alone, "unsupported" for a 404 (1.5). */
static void a_refusal_before_the_handler_without_a_detail(void **state)
{
    static const struct {
        int status;
        code_t code;
        int shown;
        const char *header;
    } rows[] = {
        {0, CODE_INVALID_ARGUMENT, 400, "request"},    {0, CODE_UNIMPLEMENTED, 501, "request"},
        {404, CODE_UNIMPLEMENTED, 404, "unsupported"}, {405, CODE_UNIMPLEMENTED, 405, "request"},
        {415, CODE_INVALID_ARGUMENT, 415, "request"},  {431, CODE_INVALID_ARGUMENT, 431, "request"},
        {0, CODE_RESOURCE_EXHAUSTED, 429, "request"},  {0, CODE_NOT_FOUND, 404, "unsupported"},
    };
    (void)state;
    for (size_t i = 0; i < LEN(rows); i++) {
        refusal_t r;
        refusal_set_http(&r, rows[i].status, rows[i].code, "no");
        assert_int_equal(r.status, rows[i].shown);
        assert_string_equal(refusal_header(&r), rows[i].header);
        json_t *json = body_of(&r);
        assert_int_equal(json_object_size(json), 2);
        json_decref(json);
    }
}

/* After the dispatch nothing is marked: absence says that it may have run (4.1). */
static void a_failure_has_no_mark(void **state)
{
    refusal_t r;
    (void)state;
    memset(&r, 0xff, sizeof(r));
    failure_set(&r, CODE_UNAVAILABLE, "the backend was lost");
    assert_int_equal(r.mark, MARK_NONE);
    assert_null(refusal_header(&r));
    assert_int_equal(refusal_retry_seconds(&r), 0);
    json_t *json = body_of(&r);
    assert_int_equal(json_object_size(json), 2);
    assert_string_equal(text_at(json, "code"), "unavailable");
    json_decref(json);
}

/* 1.7: an internal failure's own text does not reach the caller; an identifier of 16 hex digits does, a new one each
 * time. */
static void an_internal_failure_tells_a_number_alone(void **state)
{
    refusal_t a, b;
    (void)state;
    failure_set_internal(&a, "password hunter2 of redis");
    failure_set_internal(&b, "password hunter2 of redis");
    assert_int_equal(a.code, CODE_INTERNAL);
    assert_int_equal(a.status, 500);
    assert_null(refusal_header(&a));
    assert_null(strstr(a.message, "hunter2"));
    assert_string_not_equal(a.message, b.message);
    size_t longest = 0;
    for (const char *at = a.message; *at != '\0';) {
        size_t digits = strspn(at, "0123456789abcdef");
        longest = digits > longest ? digits : longest;
        at += digits != 0 ? digits : 1;
    }
    assert_int_equal(longest, 16);
    json_t *json = body_of(&a);
    assert_int_equal(json_object_size(json), 2);
    json_decref(json);
}

/* Texts hold what a request held: quotes, control bytes, anything. */
static void messages_are_json_whatever_they_hold(void **state)
{
    static const char *const rows[] = {"a \"b\" \\c\\", "\x01\x1f\x7f\b\f\n\r\t", "</script>",
                                       "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "{}[],:"};
    (void)state;
    for (size_t i = 0; i < LEN(rows); i++) {
        refusal_t r;
        refusal_set(&r, CODE_INVALID_ARGUMENT, MARK_REQUEST, "%s", rows[i]);
        json_t *json = body_of(&r);
        assert_string_equal(text_at(json, "message"), rows[i]);
        json_decref(json);
    }
    static const char *const broken[] = {"\xff", "a\xc3", "\xe2\x82", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xc0\x80"};
    for (size_t i = 0; i < LEN(broken); i++) {
        refusal_t r;
        refusal_set(&r, CODE_INVALID_ARGUMENT, MARK_REQUEST, "x%sy", broken[i]);
        json_t *json = body_of(&r);
        const char *text = text_at(json, "message");
        assert_int_equal(text[0], 'x');
        assert_int_equal(text[strlen(text) - 1], 'y');
        json_decref(json);
    }
}

/* A cut never makes the body something else than JSON, not even within a character. */
static void long_messages_are_cut(void **state)
{
    char text[REFUSAL_MESSAGE_MAX + 32];
    (void)state;
    for (size_t len = REFUSAL_MESSAGE_MAX - 5; len < REFUSAL_MESSAGE_MAX + 8; len++) {
        refusal_t r;
        memset(text, 'a', len);
        text[len] = '\0';
        for (size_t at = len - 4; at < len; at += 2)
            memcpy(text + at, "\xc3\xa9", 2);
        refusal_set(&r, CODE_INVALID_ARGUMENT, MARK_REQUEST, "%s", text);
        assert_true(strlen(r.message) < REFUSAL_MESSAGE_MAX);
        json_t *json = body_of(&r);
        has_detail(json, 0, "plimsoll.v1.NotDispatched", "CAE");
        json_decref(json);
    }
    refusal_t r;
    memset(text, 1, REFUSAL_MESSAGE_MAX);
    text[REFUSAL_MESSAGE_MAX] = '\0';
    refusal_set(&r, CODE_INVALID_ARGUMENT, MARK_REQUEST, "%s", text);
    json_t *json = body_of(&r);
    assert_int_equal(strlen(text_at(json, "message")), REFUSAL_MESSAGE_MAX - 1);
    json_decref(json);
}

/* SessionEnded: 1 reason, 2 detail (2.4); beside a mark, or alone. */
static void the_end_of_a_session(void **state)
{
    refusal_t r;
    (void)state;
    refusal_set(&r, CODE_NOT_FOUND, MARK_REQUEST, "no such session");
    r.session_end = 9; /* NOT_FOUND */
    json_t *json = body_of(&r);
    assert_int_equal(json_array_size(json_object_get(json, "details")), 2);
    has_detail(json, 0, "plimsoll.v1.NotDispatched", "CAE");
    has_detail(json, 1, "plimsoll.v1.SessionEnded", "CAk"); /* 08 09 */
    json_decref(json);
    failure_set(&r, CODE_ABORTED, "ended");
    r.session_end = 7;
    r.session_text = "abc";
    json = body_of(&r);
    assert_int_equal(json_array_size(json_object_get(json, "details")), 1);
    has_detail(json, 0, "plimsoll.v1.SessionEnded", "CAcSA2FiYw"); /* 08 07 12 03 61 62 63 */
    json_decref(json);
}

/* A text too long for a detail costs that detail alone. */
static void a_detail_that_is_too_long_is_left_out(void **state)
{
    char text[1024];
    refusal_t r;
    (void)state;
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    failure_set(&r, CODE_ABORTED, "ended");
    r.session_end = 7;
    r.session_text = text;
    json_t *json = body_of(&r);
    assert_int_equal(json_object_size(json), 2);
    json_decref(json);
    refusal_set(&r, CODE_NOT_FOUND, MARK_REQUEST, "no such session");
    r.session_end = 7;
    r.session_text = text;
    json = body_of(&r);
    assert_int_equal(json_array_size(json_object_get(json, "details")), 1);
    json_decref(json);
}

/* Whole seconds, rounded up: whoever waits so long is not refused again for having come too early. */
static void seconds_to_wait(void **state)
{
    static const struct {
        uint32_t ms, seconds;
    } rows[] = {
        {0, 0}, {1, 1}, {999, 1}, {1000, 1}, {1001, 2}, {60000, 60}, {UINT32_MAX - 1, 4294968}, {UINT32_MAX, 4294968}};
    (void)state;
    for (size_t i = 0; i < LEN(rows); i++) {
        refusal_t r;
        refusal_set(&r, CODE_RESOURCE_EXHAUSTED, MARK_CAPACITY, "wait");
        r.retry_after_ms = rows[i].ms;
        assert_int_equal(refusal_retry_seconds(&r), rows[i].seconds);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes),
        cmocka_unit_test(a_refusal_in_the_handler),
        cmocka_unit_test(a_refusal_before_the_handler_with_a_detail),
        cmocka_unit_test(a_refusal_before_the_handler_without_a_detail),
        cmocka_unit_test(a_failure_has_no_mark),
        cmocka_unit_test(an_internal_failure_tells_a_number_alone),
        cmocka_unit_test(messages_are_json_whatever_they_hold),
        cmocka_unit_test(long_messages_are_cut),
        cmocka_unit_test(the_end_of_a_session),
        cmocka_unit_test(a_detail_that_is_too_long_is_left_out),
        cmocka_unit_test(seconds_to_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
