/* Multipart bodies, however they are split; and the artifacts that come in them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/dockercloud/download.h"
#include "backends/dockercloud/multipart.h"
#include "core/random.h"

typedef struct {
    char text[4096]; /* what happened, in words */
    multipart_state_t state;
} seen_t;

static void say(seen_t *seen, const char *format, ...)
{
    size_t len = strlen(seen->text);
    va_list args;
    va_start(args, format);
    vsnprintf(seen->text + len, sizeof(seen->text) - len, format, args);
    va_end(args);
}

static bool on_json(void *data, part_kind_t kind, const uint8_t *body, size_t len)
{
    say(data, "[%d %.*s]", kind, (int)len, (const char *)body);
    return true;
}

static bool on_content(void *data, const uint8_t *bytes, size_t len, bool is_end)
{
    if (is_end)
        say(data, "$");
    for (size_t i = 0; i < len; ++i)
        say(data, "%c", bytes[i] == '\r' ? 'R' : bytes[i] == '\n' ? 'N' : bytes[i] == 0 ? '0' : bytes[i]);
    return true;
}

static const multipart_events_t EVENTS = {.on_json = on_json, .on_content = on_content};

/* In pieces, each an exact copy so that a read past it is seen. */
static void feed(seen_t *seen, const char *type, const char *body, size_t len, size_t piece)
{
    multipart_t m;
    *seen = (seen_t){.text = ""};
    multipart_init(&m, type, &EVENTS, seen);
    for (size_t at = 0; at < len && m.state == MULTIPART_MORE; at += piece) {
        size_t n = len - at < piece ? len - at : piece;
        uint8_t *copy = malloc(n);
        memcpy(copy, body + at, n);
        multipart_take(&m, copy, n);
        free(copy);
    }
    seen->state = m.state;
    assert_int_equal(m.state == MULTIPART_BROKEN, m.problem != NULL);
    multipart_dispose(&m);
}

#define TYPE "multipart/mixed; boundary=B"
#define META "--B\r\nContent-Disposition: attachment; name=metadata\r\nContent-Type: application/json\r\n\r\n"
#define CONTENT "--B\r\nContent-Disposition: attachment; name=\"content\"\r\n\r\n"

static void whole_bodies(void **state)
{
    static const struct {
        const char *body, *seen;
        size_t len;
    } table[] = {
#define ROW(body, seen) {body, seen, sizeof(body) - 1}
        ROW("--B--", ""),
        ROW("--B--\r\n", ""),
        ROW("\r\n--B--\r\n", ""),
        ROW("preamble\r\n--B--", ""),
        ROW(META "{}\r\n--B--", "[0 {}]"),
        ROW(META "{}\r\n" CONTENT "abc\r\n--B--", "[0 {}]abc$"),
        ROW(CONTENT "\r\n--B--", "$"),
        ROW(CONTENT "\0\0\r\n--B--", "00$"),
        /* what only looks like a delimiter */
        ROW(CONTENT "a\r\n--C\r\n-\r\nb\r\r\n\n--B\r\n--B--", "aRN--CRN-RNbRRNN--B$"),
        ROW(CONTENT "\r\r\n--B--", "R$"),
        ROW(CONTENT "\r\n\r\n--B--", "RN$"),
        ROW(CONTENT "--B--\r\n--B--", "--B--$"),
        ROW("--B \t\r\nContent-Disposition: form-data; other=\"x;y\"; NAME=content\r\n\r\nz\r\n--B--", "z$"),
        ROW("--B\r\ncontent-disposition: attachment; name=error\r\n\r\n{\"path\":\"/a\"}\r\n--B--",
            "[2 {\"path\":\"/a\"}]"),
        ROW("--B\r\nX: y\r\nContent-Disposition: attachment; name=stream-error\r\n\r\n{}\r\n--B--\r\nepilogue",
            "[3 {}]"),
    };
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); ++i)
        for (size_t piece = 1; piece <= table[i].len; ++piece) {
            seen_t seen;
            feed(&seen, TYPE, table[i].body, table[i].len, piece);
            if (seen.state != MULTIPART_CLOSED || strcmp(seen.text, table[i].seen) != 0)
                fail_msg("row %zu in pieces of %zu: state %d, %s", i, piece, seen.state, seen.text);
        }
}

static void every_cut_body_goes_on(void **state)
{
    static const char body[] = META "{}\r\n" CONTENT "abc\r\n--B--";
    (void)state;
    for (size_t len = 0; len < sizeof(body) - 1; ++len) {
        seen_t seen;
        feed(&seen, TYPE, body, len, 7);
        assert_int_equal(seen.state, MULTIPART_MORE);
    }
}

static void broken_bodies(void **state)
{
    static const char *const table[] = {
        "--B\r\nContent-Disposition: attachment; name=surprise\r\n\r\nx\r\n--B--",
        "--B\r\nContent-Disposition: attachment\r\n\r\nx\r\n--B--",
        "--B\r\nContent-Disposition: attachment; name=\"content\r\n\r\nx\r\n--B--",
        "--B\r\n\r\nx\r\n--B--",
        "--B\r\nContent-Type: x\r\n\r\n",
        "--B\r\nno colon\r\n\r\n",
        "--B\r\n folded: x\r\n\r\n",
        "--B\r\nContent-Disposition: attachment; name=content\n\nx",
        "--B\r\nContent-Disposition: attachment; name=content\r\nContent-Disposition: attachment; name=error\r\n\r\n",
        "--Bx\r\n",
        "--B-x",
        "--B- \r\n",
        "--B\rx",
        "--B \r \n",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); ++i)
        for (size_t piece = 1; piece < 9; ++piece) {
            seen_t seen;
            feed(&seen, TYPE, table[i], strlen(table[i]), piece);
            if (seen.state != MULTIPART_BROKEN)
                fail_msg("row %zu: state %d, %s", i, seen.state, seen.text);
        }
}

static void types(void **state)
{
    static const struct {
        const char *type;
        bool is_one;
    } table[] = {
        {"multipart/mixed; boundary=B", true},
        {"Multipart/Mixed;charset=x; Boundary=\"B\"", true},
        {"multipart/mixed;boundary=B;x=y", true},
        {NULL, false},
        {"", false},
        {"multipart/mixed", false},
        {"multipart/mixed; boundary=", false},
        {"multipart/mixed; boundary=\"\"", false},
        {"multipart/mixed; boundary=\"B", false},
        {"multipart/mixed; boundary=\"a\\\"b\"", false},
        {"multipart/mixed; boundary=a\tb", true},
        {"multipart/mixed; boundary=\"a\x7f\"", false},
        {"multipart/mixed; boundary=\"a \"", false},
        {"multipart/form-data; boundary=B", false},
        {"multipart/mixedx; boundary=B", false},
        {"multipart/mixed; x; boundary=B", false},
        {"multipart/mixed; boundary=0123456789012345678901234567890123456789012345678901234567890123456789", true},
        {"multipart/mixed; boundary=01234567890123456789012345678901234567890123456789012345678901234567890", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); ++i) {
        multipart_t m;
        multipart_init(&m, table[i].type, &EVENTS, NULL);
        if ((m.state == MULTIPART_MORE) != table[i].is_one)
            fail_msg("%s", table[i].type != NULL ? table[i].type : "none");
        multipart_dispose(&m);
    }
}

/* The head's, the JSON's and the preamble's limits, each at one less, at it and at one more. */
static void limits(void **state)
{
    static const struct {
        const char *before, *after;
        size_t limit;
    } table[] = {
        {"--B\r\nContent-Disposition: attachment; name=content\r\nX: ", "\r\n\r\n\r\n--B--",
         MULTIPART_HEAD_MAX - sizeof("Content-Disposition: attachment; name=content\r\nX: \r\n\r\n") + 1},
        {META, "\r\n--B--", MULTIPART_JSON_MAX},
        {"", "\r\n--B--", MULTIPART_PREAMBLE_MAX},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); ++i)
        for (int more = -1; more <= 1; ++more) {
            size_t fill = table[i].limit + (size_t)more - (i == 2 ? 2 : 0), head = strlen(table[i].before);
            size_t len = head + fill + strlen(table[i].after);
            char *body = malloc(len + 1);
            memcpy(body, table[i].before, head);
            memset(body + head, 'x', fill);
            strcpy(body + head + fill, table[i].after);
            multipart_t m;
            seen_t *seen = calloc(1, sizeof(*seen));
            multipart_init(&m, TYPE, &EVENTS, seen);
            multipart_take(&m, body, len);
            if ((m.state == MULTIPART_CLOSED) != (more <= 0))
                fail_msg("row %zu, %d: %d %s", i, more, m.state, m.problem != NULL ? m.problem : "");
            multipart_dispose(&m);
            free(seen);
            free(body);
        }
}

static void forms(void **state)
{
    buffer_t out;
    char boundary[MULTIPART_BOUNDARY_MAX + 1];
    (void)state;
    buffer_init(&out, 4096);
    assert_true(multipart_add_file(&out, "BB", "/tmp/a \"b\"", 0644, "x\r\ny", 4));
    assert_true(multipart_add_file(&out, "BB", "/e", 0755, NULL, 0));
    assert_true(multipart_close(&out, "BB"));
    static const char expected[] =
        "--BB\r\nContent-Disposition: form-data; name=\"metadata\"\r\nContent-Type: application/json\r\n\r\n"
        "{\"path\":\"/tmp/a \\\"b\\\"\",\"mode\":420}\r\n"
        "--BB\r\nContent-Disposition: form-data; name=\"content\"\r\nContent-Type: "
        "application/octet-stream\r\n\r\nx\r\ny\r\n"
        "--BB\r\nContent-Disposition: form-data; name=\"metadata\"\r\nContent-Type: application/json\r\n\r\n"
        "{\"path\":\"/e\",\"mode\":493}\r\n"
        "--BB\r\nContent-Disposition: form-data; name=\"content\"\r\nContent-Type: application/octet-stream\r\n\r\n\r\n"
        "--BB--\r\n";
    assert_int_equal(out.len, sizeof(expected) - 1);
    assert_memory_equal(out.base, expected, out.len);
    buffer_dispose(&out);
    buffer_init(&out, 64);
    assert_false(multipart_add_file(&out, "BB", "/tmp/a", 0644, "x", 1));
    buffer_dispose(&out);
    multipart_boundary(boundary);
    assert_int_equal(strlen(boundary), 32);
}

/* --- artifacts --- */

typedef struct {
    cloud_plan_t plan;
    guest_result_t result;
    download_t download;
} artifacts_t;

static void set_up(artifacts_t *a, uint32_t budget)
{
    static const char *asked[] = {"a", "b", "c"}, *paths[] = {"/p/a", "/p/b", "/p/c"};
    *a = (artifacts_t){
        .plan = {.artifacts = asked, .artifact_paths = paths, .artifact_count = 3, .artifacts_max = budget}};
    a->result.artifacts = calloc(4, sizeof(*a->result.artifacts));
    download_init(&a->download, &a->plan, &a->result);
}

static void tear_down(artifacts_t *a)
{
    download_dispose(&a->download);
    for (size_t i = 0; i < a->result.artifact_count; ++i) {
        free(a->result.artifacts[i].path);
        free(a->result.artifacts[i].content);
    }
    free(a->result.artifacts);
}

static void ask_all(download_t *d)
{
    download_begin(d);
    for (int at = download_next(d, 0); at >= 0; at = download_next(d, (size_t)at + 1))
        download_ask(d, (size_t)at);
}

static void artifacts_that_fit(void **state)
{
    artifacts_t a;
    (void)state;
    set_up(&a, 10);
    ask_all(&a.download);
    assert_true(download_file(&a.download, "/p/a"));
    assert_true(download_bytes(&a.download, "12345", 5));
    assert_true(download_file(&a.download, "/p/b"));
    assert_true(download_bytes(&a.download, "123", 3) && download_bytes(&a.download, "456", 3));
    assert_true(download_bytes(&a.download, "more of it", 10));
    assert_true(download_file(&a.download, "/p/c"));
    assert_true(download_bytes(&a.download, "54321", 5));
    assert_int_equal(a.result.artifact_count, 0); /* nothing counts before the end */
    download_end(&a.download);
    assert_int_equal(a.result.artifact_count, 0);
    assert_true(download_is_done(&a.download));
    download_finish(&a.download, &a.result);
    /* the first that does not fit ends it */
    assert_int_equal(a.result.artifact_count, 1);
    assert_string_equal(a.result.artifacts[0].path, "a");
    assert_memory_equal(a.result.artifacts[0].content, "12345", 5);
    assert_true(a.result.is_artifacts_truncated);
    tear_down(&a);
    /* one that fits exactly leaves room for none, but for an empty one */
    set_up(&a, 10);
    ask_all(&a.download);
    assert_true(download_file(&a.download, "/p/a") && download_bytes(&a.download, "1234567890", 10));
    assert_true(download_file(&a.download, "/p/b"));
    assert_true(download_file(&a.download, "/p/c") && download_bytes(&a.download, "x", 1));
    download_end(&a.download);
    download_finish(&a.download, &a.result);
    assert_int_equal(a.result.artifact_count, 2);
    assert_int_equal(a.result.artifacts[0].len, 10);
    assert_true(a.result.is_artifacts_truncated);
    tear_down(&a);
}

static void absent_ones_set_no_flag(void **state)
{
    artifacts_t a;
    (void)state;
    set_up(&a, 10);
    ask_all(&a.download);
    assert_true(download_absent(&a.download, "/p/a"));
    assert_true(download_file(&a.download, "/p/b")); /* empty, and there */
    assert_true(download_absent(&a.download, NULL));
    download_end(&a.download);
    download_finish(&a.download, &a.result);
    assert_int_equal(a.result.artifact_count, 1);
    assert_int_equal(a.result.artifacts[0].len, 0);
    assert_false(a.result.is_artifacts_truncated);
    tear_down(&a);
}

static void silence_is_no_absence(void **state)
{
    artifacts_t a;
    (void)state;
    /* not a word on any of them */
    set_up(&a, 10);
    ask_all(&a.download);
    download_end(&a.download);
    assert_true(download_is_done(&a.download));
    download_finish(&a.download, &a.result);
    assert_int_equal(a.result.artifact_count, 0);
    assert_true(a.result.is_artifacts_truncated);
    tear_down(&a);
    /* on one of three: an absent one without its name is one of the other two, and there is one more */
    set_up(&a, 10);
    ask_all(&a.download);
    assert_true(download_file(&a.download, "/p/a") && download_bytes(&a.download, "1", 1));
    assert_true(download_absent(&a.download, NULL));
    download_end(&a.download);
    download_finish(&a.download, &a.result);
    assert_int_equal(a.result.artifact_count, 1);
    assert_true(a.result.is_artifacts_truncated);
    tear_down(&a);
}

static void what_was_not_asked_for(void **state)
{
    artifacts_t a;
    (void)state;
    set_up(&a, 10);
    ask_all(&a.download);
    assert_false(download_bytes(&a.download, "x", 1));
    download_begin(&a.download);
    download_ask(&a.download, 0);
    assert_false(download_file(&a.download, "/p/b"));
    assert_false(download_file(&a.download, "/etc/passwd"));
    assert_non_null(a.download.problem);
    ask_all(&a.download);
    assert_null(a.download.problem);
    assert_true(download_file(&a.download, "/p/a"));
    assert_false(download_file(&a.download, "/p/a"));
    assert_non_null(a.download.problem);
    assert_int_equal(a.result.artifact_count, 0);
    tear_down(&a);
}

static void an_endless_answer_costs_one_file_and_those_behind_it(void **state)
{
    artifacts_t a;
    (void)state;
    set_up(&a, 10);
    ask_all(&a.download);
    assert_true(download_file(&a.download, "/p/a") && download_bytes(&a.download, "1", 1));
    assert_true(download_file(&a.download, "/p/b") && download_bytes(&a.download, "more than fits", 14));
    assert_true(download_cut(&a.download));
    assert_int_equal(download_next(&a.download, 0), 0);
    assert_int_equal(download_next(&a.download, 1), -1);
    ask_all(&a.download);
    assert_true(download_file(&a.download, "/p/a") && download_bytes(&a.download, "1234567890", 10));
    assert_false(download_file(&a.download, "/p/b"));
    ask_all(&a.download);
    assert_true(download_file(&a.download, "/p/a") && download_bytes(&a.download, "1234567890", 10));
    download_end(&a.download);
    assert_true(download_is_done(&a.download));
    download_finish(&a.download, &a.result);
    assert_int_equal(a.result.artifact_count, 1);
    assert_int_equal(a.result.artifacts[0].len, 10);
    assert_true(a.result.is_artifacts_truncated);
    tear_down(&a);
    set_up(&a, 10);
    ask_all(&a.download);
    assert_false(download_cut(&a.download)); /* endless without a file: asking again would not help */
    tear_down(&a);
}

static void answers_add_up(void **state)
{
    artifacts_t a;
    (void)state;
    set_up(&a, 10);
    download_begin(&a.download);
    download_ask(&a.download, 0);
    assert_true(download_file(&a.download, "/p/a") && download_bytes(&a.download, "123456", 6));
    download_end(&a.download);
    assert_int_equal(download_bytes_max(&a.download), 4);
    assert_int_equal(download_next(&a.download, 0), 1);
    ask_all(&a.download);
    assert_false(download_file(&a.download, "/p/a")); /* it is there already */
    ask_all(&a.download);
    assert_true(download_file(&a.download, "/p/b") && download_bytes(&a.download, "1234", 4));
    assert_true(download_absent(&a.download, "/p/c"));
    download_end(&a.download);
    download_finish(&a.download, &a.result);
    assert_int_equal(a.result.artifact_count, 2);
    assert_memory_equal(a.result.artifacts[0].content, "123456", 6);
    assert_memory_equal(a.result.artifacts[1].content, "1234", 4);
    assert_false(a.result.is_artifacts_truncated);
    tear_down(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_bodies),
        cmocka_unit_test(every_cut_body_goes_on),
        cmocka_unit_test(broken_bodies),
        cmocka_unit_test(types),
        cmocka_unit_test(limits),
        cmocka_unit_test(forms),
        cmocka_unit_test(artifacts_that_fit),
        cmocka_unit_test(absent_ones_set_no_flag),
        cmocka_unit_test(silence_is_no_absence),
        cmocka_unit_test(what_was_not_asked_for),
        cmocka_unit_test(an_endless_answer_costs_one_file_and_those_behind_it),
        cmocka_unit_test(answers_add_up),
    };
    random_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
