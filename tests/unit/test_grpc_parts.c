/* gRPC without a connection: messages in a stream, the verdict on a call's end, endpoints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "core/grpc.h"
#include "core/grpc_end.h"
#include "core/grpc_frame.h"

/* --- messages --- */

static const uint8_t STREAM[] = {0, 0, 0, 0, 2, 'h', 'i', 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 'x', 0, 0};

static void take_all(grpc_frames_t *frames, char *out)
{
    const uint8_t *message;
    size_t len;
    while (grpc_frames_next(frames, &message, &len)) {
        strncat(out, (const char *)message, len);
        strcat(out, "|");
    }
}

static void any_split(void **state)
{
    (void)state;
    for (size_t cut = 0; cut <= sizeof(STREAM); ++cut) {
        for (size_t again = cut; again <= sizeof(STREAM); ++again) {
            grpc_frames_t frames;
            char out[64] = "";
            grpc_frames_init(&frames, 16, 64);
            assert_true(grpc_frames_add(&frames, STREAM, cut));
            take_all(&frames, out);
            assert_true(grpc_frames_add(&frames, STREAM + cut, again - cut));
            assert_true(grpc_frames_add(&frames, STREAM + again, sizeof(STREAM) - again));
            take_all(&frames, out);
            assert_string_equal(out, "hi||x|");
            assert_int_equal(frames.count, 3);
            assert_int_equal(grpc_frames_left_over(&frames), 2);
            assert_int_equal(grpc_frames_ready(&frames), 0);
            grpc_frames_dispose(&frames);
        }
    }
}

static void limits(void **state)
{
    (void)state;
    for (uint32_t len = 15; len <= 17; ++len) {
        uint8_t bytes[GRPC_PREFIX + 17] = {0};
        grpc_frames_t frames;
        grpc_frames_init(&frames, 16, 64);
        grpc_frame_prefix(bytes, len);
        assert_int_equal(grpc_frames_add(&frames, bytes, GRPC_PREFIX + len), len <= 16);
        assert_int_equal(frames.problem, len <= 16 ? GRPC_FRAMES_FINE : GRPC_FRAMES_TOO_LARGE);
        assert_int_equal(frames.count, len <= 16);
        grpc_frames_dispose(&frames);
    }
    /* more at once than may be held */
    uint8_t many[66] = {0};
    grpc_frames_t frames;
    grpc_frames_init(&frames, 16, 64);
    assert_false(grpc_frames_add(&frames, many, sizeof(many)));
    assert_int_equal(frames.problem, GRPC_FRAMES_TOO_LARGE);
    grpc_frames_dispose(&frames);
}

static void compressed(void **state)
{
    (void)state;
    uint8_t bytes[] = {0, 0, 0, 0, 1, 'a', 1, 0, 0, 0, 0};
    const uint8_t *message;
    size_t len;
    grpc_frames_t frames;
    grpc_frames_init(&frames, 16, 64);
    assert_false(grpc_frames_add(&frames, bytes, sizeof(bytes)));
    assert_int_equal(frames.problem, GRPC_FRAMES_COMPRESSED);
    assert_false(grpc_frames_add(&frames, bytes, 5));
    assert_true(grpc_frames_next(&frames, &message, &len));
    assert_int_equal(len, 1);
    assert_false(grpc_frames_next(&frames, &message, &len));
    grpc_frames_dispose(&frames);
}

/* --- the end --- */

/* "name: value" of a head and of trailers; NULL ends. */
static grpc_end_t judge(const char *const *head, const char *const *trailers, grpc_seen_t seen)
{
    grpc_head_t h = {0};
    grpc_end_t end = {0};
    const char *const *blocks[] = {head, trailers};
    for (int b = 0; b < 2; ++b) {
        for (size_t i = 0; blocks[b] != NULL && blocks[b][i] != NULL; ++i) {
            const char *colon = strchr(blocks[b][i] + 1, ':');
            grpc_head_add(&h, (const uint8_t *)blocks[b][i], (size_t)(colon - blocks[b][i]), (const uint8_t *)colon + 2,
                          strlen(colon + 2), i == 0);
        }
        if (b == 0 && seen.messages > 0)
            grpc_head_body(&h);
    }
    seen.head = &h;
    grpc_judge(&seen, &end);
    return end;
}

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})
#define GOOD LIST(":status: 200", "content-type: application/grpc")
#define ONE                                                                                                            \
    {                                                                                                                  \
        .is_unary = true, .messages = 1, .has_sent = true                                                              \
    }

static void expect(grpc_end_t end, grpc_code_t code, grpc_origin_t origin)
{
    assert_string_equal(grpc_code_name(end.code), grpc_code_name(code));
    assert_int_equal(end.origin, origin);
}

static void answers(void **state)
{
    (void)state;
    const grpc_seen_t one = ONE, none = {.is_unary = true, .has_sent = true};
    grpc_seen_t two = ONE, over = ONE, stream = {.messages = 2, .has_sent = true};
    two.messages = 2;
    over.left_over = 1;
    expect(judge(GOOD, LIST("grpc-status: 0"), one), GRPC_OK, GRPC_BY_SERVER);
    expect(judge(GOOD, LIST("grpc-status: 0"), stream), GRPC_OK, GRPC_BY_SERVER);
    expect(judge(GOOD, LIST("grpc-status: 0"), none), GRPC_INTERNAL, GRPC_BY_STREAM);
    expect(judge(GOOD, LIST("grpc-status: 0"), two), GRPC_INTERNAL, GRPC_BY_STREAM);
    expect(judge(GOOD, LIST("grpc-status: 0"), over), GRPC_INTERNAL, GRPC_BY_STREAM);
    for (int code = 1; code <= 16; ++code) {
        char status[32];
        snprintf(status, sizeof(status), "grpc-status: %d", code);
        expect(judge(GOOD, LIST(status), none), (grpc_code_t)code, GRPC_BY_SERVER);
        expect(judge(LIST(":status: 200", "content-type: application/grpc", status), NULL, none), (grpc_code_t)code,
               GRPC_BY_SERVER);
    }
    static const char *const bad[] = {"grpc-status: 17", "grpc-status: banana", "grpc-status: ", "grpc-status: -1",
                                      "grpc-status: 00000000000"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i)
        expect(judge(GOOD, LIST(bad[i]), one), GRPC_UNKNOWN, GRPC_BY_STREAM);
    expect(judge(GOOD, LIST("grpc-status: 0", "grpc-status: 0"), one), GRPC_UNKNOWN, GRPC_BY_STREAM);
    expect(judge(GOOD, NULL, one), GRPC_UNKNOWN, GRPC_BY_STREAM);
    /* a status before the body is not the answer's */
    expect(judge(LIST(":status: 200", "content-type: application/grpc", "grpc-status: 0"), NULL, one), GRPC_UNKNOWN,
           GRPC_BY_STREAM);
    expect(judge(LIST(":status: 200", "content-type: text/html"), LIST("grpc-status: 0"), one), GRPC_UNKNOWN,
           GRPC_BY_STREAM);
    expect(judge(LIST(":status: 200", "content-type: application/grpcx"), LIST("grpc-status: 0"), one), GRPC_UNKNOWN,
           GRPC_BY_STREAM);
    expect(judge(LIST(":status: 200", "content-type: application/grpc;x"), LIST("grpc-status: 0"), one), GRPC_OK,
           GRPC_BY_SERVER);
    /* an interim head counts for nothing */
    expect(judge(LIST(":status: 103"), LIST(":status: 200", "content-type: application/grpc", "grpc-status: 5"), none),
           GRPC_NOT_FOUND, GRPC_BY_SERVER);
}

static void http_statuses(void **state)
{
    (void)state;
    static const struct {
        const char *status;
        grpc_code_t code;
    } rows[] = {{":status: 400", GRPC_INTERNAL},          {":status: 401", GRPC_UNAUTHENTICATED},
                {":status: 403", GRPC_PERMISSION_DENIED}, {":status: 404", GRPC_UNIMPLEMENTED},
                {":status: 429", GRPC_UNAVAILABLE},       {":status: 502", GRPC_UNAVAILABLE},
                {":status: 503", GRPC_UNAVAILABLE},       {":status: 504", GRPC_UNAVAILABLE},
                {":status: 418", GRPC_UNKNOWN},           {":status: 500", GRPC_UNKNOWN}};
    const grpc_seen_t none = {.is_unary = true, .has_sent = true};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i)
        expect(judge(LIST(rows[i].status, "content-type: text/html"), NULL, none), rows[i].code, GRPC_BY_STREAM);
    expect(judge(LIST(":status: 502", "grpc-status: 8"), NULL, none), GRPC_RESOURCE_EXHAUSTED, GRPC_BY_SERVER);
    expect(judge(LIST(":status: 502", "content-type: application/grpc", "grpc-status: 0"), NULL, none), GRPC_UNKNOWN,
           GRPC_BY_STREAM);
}

static void resets(void **state)
{
    (void)state;
    static const struct {
        uint32_t reset;
        grpc_code_t code;
    } rows[] = {
        {0, GRPC_INTERNAL}, {1, GRPC_INTERNAL}, {2, GRPC_INTERNAL}, {8, GRPC_CANCELLED}, {11, GRPC_RESOURCE_EXHAUSTED},
        {99, GRPC_INTERNAL}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        grpc_seen_t seen = {.is_unary = true, .has_sent = true, .end = H2_RESET, .reset_code = rows[i].reset};
        grpc_end_t end = judge(NULL, NULL, seen);
        expect(end, rows[i].code, GRPC_BY_STREAM);
        assert_true(end.may_have_run);
    }
    grpc_end_t refused = judge(NULL, NULL, (grpc_seen_t){.has_sent = true, .end = H2_REFUSED, .reset_code = 7});
    expect(refused, GRPC_UNAVAILABLE, GRPC_BY_STREAM);
    assert_false(refused.may_have_run);
    grpc_end_t lost = judge(NULL, NULL, (grpc_seen_t){.has_sent = true, .end = H2_LOST, .reason = "gone"});
    expect(lost, GRPC_UNAVAILABLE, GRPC_BY_STREAM);
    assert_true(lost.may_have_run);
    assert_string_equal(lost.message, "gone");
    assert_false(judge(NULL, NULL, (grpc_seen_t){.has_sent = false, .end = H2_LOST}).may_have_run);
    expect(judge(GOOD, NULL, (grpc_seen_t){.problem = GRPC_FRAMES_COMPRESSED, .end = H2_RESET}), GRPC_INTERNAL,
           GRPC_BY_STREAM);
    expect(judge(GOOD, NULL, (grpc_seen_t){.problem = GRPC_FRAMES_TOO_LARGE, .end = H2_RESET}), GRPC_RESOURCE_EXHAUSTED,
           GRPC_BY_STREAM);
}

static void messages(void **state)
{
    (void)state;
    const grpc_seen_t none = {.is_unary = true};
    assert_string_equal(judge(GOOD, LIST("grpc-status: 5", "grpc-message: not%20here%0a%zz%4"), none).message,
                        "not here?%zz%4");
    char text[1024] = "grpc-message: ";
    memset(text + 14, 'a', 900);
    assert_int_equal(strlen(judge(GOOD, LIST("grpc-status: 5", text), none).message), GRPC_TEXT_MAX - 1);
}

/* --- endpoints --- */

static void targets(void **state)
{
    (void)state;
    static const struct {
        const char *url, *host;
        uint16_t port;
        const char *authority;
        bool is_plain, is_loopback;
    } good[] = {
        {"https://gateway.example:17670", "gateway.example", 17670, "gateway.example:17670", false, false},
        {"https://gateway.example/", "gateway.example", 443, "gateway.example:443", false, false},
        {"http://127.0.0.1:9", "127.0.0.1", 9, "127.0.0.1:9", true, true},
        {"http://127.9.9.9", "127.9.9.9", 80, "127.9.9.9:80", true, true},
        {"https://[::1]:65535", "::1", 65535, "[::1]:65535", false, true},
        {"https://[2001:db8::1]", "2001:db8::1", 443, "[2001:db8::1]:443", false, false},
    };
    static const char *const bad[] = {
        "gateway:1",       "ftp://x",          "https://",     "https://:1",  "https://a:",  "https://a:0",
        "https://a:65536", "https://a:123456", "https://a:1x", "https://a/b", "https://a?b", "https://a#b",
        "https://u@a",     "https://[::1",     "https://[zz]", "https://a b", "https://a//", "HTTPS://a"};
    grpc_target_t target;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); ++i) {
        assert_null(grpc_target_parse(good[i].url, &target));
        assert_string_equal(target.host, good[i].host);
        assert_int_equal(target.port, good[i].port);
        assert_string_equal(target.authority, good[i].authority);
        assert_int_equal(target.is_plain, good[i].is_plain);
        assert_int_equal(target.is_loopback, good[i].is_loopback);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i)
        assert_non_null(grpc_target_parse(bad[i], &target));
    for (size_t len = GRPC_HOST_MAX - 1; len <= GRPC_HOST_MAX + 1; ++len) {
        char url[GRPC_HOST_MAX + 32] = "https://";
        memset(url + 8, 'a', len);
        assert_int_equal(grpc_target_parse(url, &target) == NULL, len <= GRPC_HOST_MAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_split), cmocka_unit_test(limits),        cmocka_unit_test(compressed),
        cmocka_unit_test(answers),   cmocka_unit_test(http_statuses), cmocka_unit_test(resets),
        cmocka_unit_test(messages),  cmocka_unit_test(targets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
