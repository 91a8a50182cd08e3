/* A provider's JSON: strict, bounded before anything is allocated for it, absent told from zero. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backends/cloud/cloud_json.h"

static json_t *read(const char *text)
{
    const char *why = NULL;
    json_t *json = cloud_json_read(text, strlen(text), &why);
    assert_true((json == NULL) == (why != NULL));
    return json;
}

static void assert_refused(const char *text, const char *expected)
{
    const char *why = NULL;
    assert_null(cloud_json_read(text, strlen(text), &why));
    assert_string_equal(why, expected);
}

static void only_an_object_is_one(void **state)
{
    const char *why;
    (void)state;
    json_decref(read("{}"));
    json_decref(read(" {\"a\":{\"b\":[1,2]}} "));
    assert_refused("", "it has no body");
    assert_refused("[]", "it is not a JSON object");
    assert_refused("\"x\"", "it is not JSON");
    assert_refused("<html>502 Bad Gateway</html>", "it is not JSON");
    assert_refused("{\"a\":1", "it is not JSON");
    assert_refused("{\"a\":1}{}", "it is not JSON");
    assert_refused("{\"a\":1,\"a\":2}", "it is not JSON");            /* whose word counts? */
    assert_refused("{\"a\":\"x\\u0000y\"}", "it is not JSON");        /* C would read "x" */
    assert_refused("{\"a\":\"\xff\"}", "it is not JSON");             /* no UTF-8 */
    assert_refused("{\"a\":99999999999999999999}", "it is not JSON"); /* no 64 bits */
    json_t *list = cloud_json_read_list("[{}]", 4, &why);
    assert_int_equal(json_array_size(list), 1);
    json_decref(list);
    assert_null(cloud_json_read_list("{}", 2, &why));
}

static char *nested(size_t depth)
{
    char *text = calloc(1, depth * 6 + 2);
    for (size_t i = 0; i < depth; ++i)
        strcat(text, i + 1 < depth ? "{\"a\":" : "{");
    for (size_t i = 0; i < depth; ++i)
        strcat(text, "}");
    return text;
}

static void depth_and_values_are_bounded(void **state)
{
    (void)state;
    for (int over = -1; over <= 1; ++over) {
        char *text = nested((size_t)(CLOUD_JSON_DEPTH_MAX + over));
        json_t *json = read(text);
        assert_int_equal(json != NULL, over <= 0);
        json_decref(json);
        free(text);
        /* the object, the list, and an element and a comma each: 1 + 1 + 1 + commas */
        size_t elements = (size_t)(CLOUD_JSON_VALUES_MAX + over) - 2;
        text = malloc(elements * 2 + 16);
        strcpy(text, "{\"a\":[");
        char *at = text + strlen(text);
        for (size_t i = 0; i < elements; ++i) {
            *at++ = '1';
            *at++ = i + 1 < elements ? ',' : ']';
        }
        strcpy(at, "}");
        json = read(text);
        assert_int_equal(json != NULL, over <= 0);
        json_decref(json);
        free(text);
    }
    /* brackets in strings are none */
    json_t *json = read("{\"a\":\"{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{\\\"[[\"}");
    assert_non_null(json);
    json_decref(json);
}

static void numbers_come_as_numbers_or_as_texts(void **state)
{
    static const struct {
        const char *text;
        bool is_u64, is_i64;
        uint64_t u64;
        int64_t i64;
    } cases[] = {
        {"{\"n\":0}", true, true, 0, 0},
        {"{\"n\":\"0\"}", true, true, 0, 0},
        {"{\"n\":512}", true, true, 512, 512},
        {"{\"n\":\"512\"}", true, true, 512, 512},
        {"{\"n\":\"18446744073709551615\"}", true, false, UINT64_MAX, 0},
        {"{\"n\":\"18446744073709551616\"}", false, false, 0, 0},
        {"{\"n\":\"9223372036854775807\"}", true, true, INT64_MAX, INT64_MAX},
        {"{\"n\":\"-9223372036854775808\"}", false, true, 0, INT64_MIN},
        {"{\"n\":\"-9223372036854775809\"}", false, false, 0, 0},
        {"{\"n\":-1}", false, true, 0, -1},
        {"{\"n\":\"-1\"}", false, true, 0, -1},
        {"{\"n\":\"-0\"}", false, false, 0, 0},
        {"{\"n\":\"01\"}", false, false, 0, 0},
        {"{\"n\":\"+1\"}", false, false, 0, 0},
        {"{\"n\":\" 1\"}", false, false, 0, 0},
        {"{\"n\":\"1.0\"}", false, false, 0, 0},
        {"{\"n\":1.5}", false, false, 0, 0},
        {"{\"n\":\"\"}", false, false, 0, 0},
        {"{\"n\":null}", false, false, 0, 0},
        {"{\"n\":true}", false, false, 0, 0},
        {"{}", false, false, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        json_t *json = read(cases[i].text);
        uint64_t u64 = 0;
        int64_t i64 = 0;
        assert_int_equal(cloud_json_u64(json_object_get(json, "n"), &u64), cases[i].is_u64);
        assert_int_equal(cloud_json_i64(json_object_get(json, "n"), &i64), cases[i].is_i64);
        assert_true(!cases[i].is_u64 || u64 == cases[i].u64);
        assert_true(!cases[i].is_i64 || i64 == cases[i].i64);
        json_decref(json);
    }
}

static void paths_and_texts(void **state)
{
    json_t *json = read("{\"a\":{\"b\":{\"c\":\"deep\"}},\"t\":\"x\",\"n\":1}");
    (void)state;
    assert_string_equal(json_string_value(cloud_json_at(json, "a.b.c")), "deep");
    assert_null(cloud_json_at(json, "a.x.c"));
    assert_null(cloud_json_at(json, "t.c"));
    assert_null(cloud_json_at(NULL, "a"));
    assert_string_equal(cloud_json_text(json, "t"), "x");
    assert_null(cloud_json_text(json, "n"));
    assert_null(cloud_json_text(json, "none"));
    assert_null(cloud_json_text(NULL, "t"));
    json_decref(json);
}

static void bytes_are_decoded_up_to_a_limit(void **state)
{
    static const struct {
        const char *text;
        bool fits;
        const char *bytes;
    } cases[] = {
        {"{\"b\":\"aGk=\"}", true, "hi"},
        {"{\"b\":\"aGk\"}", true, "hi"},
        {"{\"b\":\"-_-_\"}", true, "\xfb\xff\xbf"},
        {"{\"b\":\"\"}", true, ""},
        {"{\"b\":null}", true, ""},
        {"{}", true, ""},
        {"{\"b\":\"YWJj\"}", true, "abc"},
        {"{\"b\":\"YWJjZA==\"}", false, ""},
        {"{\"b\":\"a\"}", false, ""},
        {"{\"b\":\"a*k=\"}", false, ""},
        {"{\"b\":1}", false, ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        buffer_t out;
        json_t *json = read(cases[i].text);
        buffer_init(&out, 100);
        assert_int_equal(cloud_json_bytes(json_object_get(json, "b"), 3, &out), cases[i].fits);
        assert_int_equal(out.len, strlen(cases[i].bytes));
        assert_memory_equal(out.base != NULL ? (char *)out.base : "", cases[i].bytes, out.len);
        buffer_dispose(&out);
        json_decref(json);
    }
}

static void what_is_written_fits_or_leaves_no_trace(void **state)
{
    json_t *json = read("{\"a\":[1,\"x\"]}");
    (void)state;
    for (size_t limit = 0; limit <= 20; ++limit) {
        buffer_t out;
        buffer_init(&out, limit);
        bool fits = cloud_json_write(&out, json);
        assert_int_equal(fits, limit >= strlen("{\"a\":[1,\"x\"]}"));
        assert_int_equal(out.len, fits ? strlen("{\"a\":[1,\"x\"]}") : 0);
        buffer_dispose(&out);
        buffer_init(&out, limit);
        fits = cloud_json_quote(&out, "a\"\n");
        assert_int_equal(fits, limit >= strlen("\"a\\\"\\n\""));
        assert_int_equal(out.len, fits ? strlen("\"a\\\"\\n\"") : 0);
        buffer_dispose(&out);
    }
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_an_object_is_one),
        cmocka_unit_test(depth_and_values_are_bounded),
        cmocka_unit_test(numbers_come_as_numbers_or_as_texts),
        cmocka_unit_test(paths_and_texts),
        cmocka_unit_test(bytes_are_decoded_up_to_a_limit),
        cmocka_unit_test(what_is_written_fits_or_leaves_no_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
