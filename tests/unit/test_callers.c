/* The callers file (spec section 1.2): what is read, what is refused and how that is said, lookup, references, and the
 * way back to text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <openssl/sha.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "config/callers.h"
#include "config/rfc3339.h"
#include "config/token.h"
#include "core/buffer.h"

/* SHA-256 of "abc" (FIPS 180-4's example) and of the empty text. */
#define HASH_A "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define HASH_B "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define ENTRY(id, hash) "{\"id\":\"" id "\",\"token_sha256\":\"" hash "\"}"
#define FILE_OF(entries) "{\"clients\":[" entries "]}"

static callers_t *parse(const char *json, problems_t *problems)
{
    return callers_parse(json, strlen(json), false, problems);
}

static callers_t *parse_fine_at(const char *json, int line)
{
    problems_t problems = {NULL, 0};
    callers_t *callers = parse(json, &problems);

    for (size_t i = 0; i < problems.count; i++)
        print_message("  problem: %s\n", problems.texts[i]);
    _assert_true(callers != NULL && problems.count == 0, "parsed", __FILE__, line);
    return callers;
}
#define parse_fine(json) parse_fine_at(json, __LINE__)

/* The text, or for "*: what" a text that ends so and says where in the JSON it is; the column is the JSON library's
 * affair. */
static bool is_text(const char *problem, const char *wanted)
{
    static const char place[] = "the callers file, line 1, column ";

    if (wanted[0] != '*')
        return strcmp(problem, wanted) == 0;
    return strncmp(problem, place, strlen(place)) == 0 && strlen(problem) >= strlen(wanted) &&
           strcmp(problem + strlen(problem) - strlen(wanted + 1), wanted + 1) == 0;
}

/* Refused, with these problems and no others; none of them shows any part of a hash. */
static void refused_at(const char *json, const char *const *wanted, size_t count, int line)
{
    problems_t problems = {NULL, 0};
    callers_t *callers = parse(json, &problems);
    bool same = problems.count == count;

    _assert_true(callers == NULL, "refused", __FILE__, line);
    for (size_t i = 0; i < problems.count; i++) {
        same = same && is_text(problems.texts[i], wanted[i]);
        _assert_true(strstr(problems.texts[i], "ba7816bf") == NULL, "no hash", __FILE__, line);
        _assert_true(strstr(problems.texts[i], "e3b0c442") == NULL, "no hash", __FILE__, line);
    }
    if (!same) {
        for (size_t i = 0; i < count; i++)
            print_message("  wanted:  %s\n", wanted[i]);
        for (size_t i = 0; i < problems.count; i++)
            print_message("  problem: %s\n", problems.texts[i]);
        _assert_true(0, "the same problems", __FILE__, line);
    }
    problems_dispose(&problems);
}
#define refused(json, ...)                                                                                             \
    refused_at(json, (const char *const[]){__VA_ARGS__}, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *),       \
               __LINE__)

static void sha256(const char *text, uint8_t out[32])
{
    SHA256((const unsigned char *)text, strlen(text), out);
}

static void an_entry_is_read(void **state)
{
    callers_t *callers =
        parse_fine("{\"clients\":[{\"id\":\" team-a\\u00a0\",\"token_sha256\":\" "
                   "BA7816BF8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\\n\",\"scopes\":[\"code:run\","
                   "\"other\"],\"paid_seconds_per_day\":3600}," ENTRY("b\xc3\xa9", HASH_B) "]}");
    const caller_t *a, *b;
    uint8_t hash[32];

    (void)state;
    assert_int_equal(callers_count(callers), 2);
    assert_null(callers_at(callers, 2));
    a = callers_at(callers, 0);
    b = callers_at(callers, 1);
    assert_string_equal(a->id, "team-a");
    assert_int_equal(a->token_count, 1);
    assert_int_equal(a->scope_count, 2);
    assert_string_equal(a->scopes[0], "code:run");
    assert_string_equal(a->scopes[1], "other");
    assert_int_equal(a->paid_seconds_per_day, 3600);
    assert_true(a->runs);
    assert_string_equal(b->id, "b\xc3\xa9");
    assert_int_equal(b->scope_count, 0);
    assert_int_equal(b->paid_seconds_per_day, 0);
    assert_false(b->runs);
    sha256("abc", hash);
    assert_ptr_equal(callers_find(callers, hash, 0), a);
    sha256("", hash);
    assert_ptr_equal(callers_find(callers, hash, 0), b);
    sha256("another", hash);
    assert_null(callers_find(callers, hash, 0));
    callers_unref(callers);
}

static void who_may_run(void **state)
{
    static const struct {
        const char *scopes;
        bool runs;
    } cases[] = {{"[\"code:run\"]", true}, {"[\"*\"]", true},         {"[]", false},
                 {"[\"code:*\"]", false},  {"[\"CODE:RUN\"]", false}, {"[\"x\",\"code:run\"]", true}};
    char json[256];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(json, sizeof(json), "{\"clients\":[{\"id\":\"a\",\"token_sha256\":\"" HASH_A "\",\"scopes\":%s}]}",
                 cases[i].scopes);
        callers_t *callers = parse_fine(json);
        assert_int_equal(callers_at(callers, 0)->runs, cases[i].runs);
        callers_unref(callers);
    }
}

static void what_is_not_the_files_json_is_refused(void **state)
{
    (void)state;
    refused("", "*: not JSON");
    refused("{\"clients\":[]", "*: not JSON");
    refused(FILE_OF(ENTRY("a", HASH_A)) "x", "*: something follows the object");
    refused(FILE_OF(ENTRY("a", HASH_A)) "{}", "*: something follows the object");
    refused("{\"clients\":[],\"clients\":[]}", "*: a member is there twice");
    refused(FILE_OF("{\"id\":\"a\",\"token_sha256\":\"" HASH_A "\",\"id\":\"b\"}"), "*: a member is there twice");
    refused(FILE_OF("{\"id\":\"a\\u0000b\",\"token_sha256\":\"" HASH_A "\"}"), "*: a text has a NUL character");
    refused(FILE_OF("{\"id\":\"a\xff\"}"), "*: not UTF-8");
    refused(FILE_OF("{\"id\":\"\\ud800\"}"), "*: not JSON");
    refused("[]", "the callers file must be an object whose member \"clients\" is an array");
    refused("{}", "the callers file must be an object whose member \"clients\" is an array");
    refused("{\"clients\":null}", "the callers file must be an object whose member \"clients\" is an array");
    refused("{\"clients\":[]}", "the callers file has no callers");
    refused("{\"clients\":[" ENTRY("a", HASH_A) "],\"version\":1}", "the callers file: unknown member \"version\"");
    refused("{\"clients\":[3]}", "clients[0]: must be an object");
}

static void the_tool_may_read_an_empty_file(void **state)
{
    problems_t problems = {NULL, 0};
    callers_t *callers = callers_parse("{\"clients\":[]}", 14, true, &problems);
    uint8_t hash[32] = {0};

    (void)state;
    assert_non_null(callers);
    assert_int_equal(callers_count(callers), 0);
    assert_null(callers_find(callers, hash, 0));
    callers_unref(callers);
}

static void every_wrong_entry_is_told_by_place_and_id(void **state)
{
    (void)state;
    refused(FILE_OF("{\"id\":\"a\",\"token_sha256\":\"short\",\"extra\":1},"
                    "{\"token_sha256\":\"" HASH_A "\",\"scopes\":[\"\",\"a b\",\"x\",\"x\",7]},"
                    "{\"id\":\"*\"},"
                    "{\"id\":\"c\",\"token_sha256\":\"" HASH_B "\",\"paid_seconds_per_day\":-1},"
                    "{\"id\":7,\"token_sha256\":7,\"scopes\":\"code:run\",\"paid_seconds_per_day\":1.5}"),
            "clients[0] (\"a\"): unknown member \"extra\"",
            "clients[0] (\"a\"): \"token_sha256\" must be a string of 64 hex digits", "clients[1]: \"id\" is missing",
            "clients[1]: a scope is empty", "clients[1]: a scope has white space or a control character",
            "clients[1]: a scope is there twice", "clients[1]: each of \"scopes\" must be a string",
            "clients[2]: \"id\" must not be \"*\"", "clients[2]: \"token_sha256\" is missing",
            "clients[3] (\"c\"): \"paid_seconds_per_day\" must be a whole number from 0 to 1000000000000",
            "clients[4]: \"id\" must be a string", "clients[4]: \"token_sha256\" must be a string of 64 hex digits",
            "clients[4]: \"scopes\" must be an array of at most 64",
            "clients[4]: \"paid_seconds_per_day\" must be a whole number from 0 to 1000000000000");
}

static void nulls_are_not_absence(void **state)
{
    (void)state;
    refused(FILE_OF("{\"id\":null,\"token_sha256\":null,\"scopes\":null,\"paid_seconds_per_day\":null}"),
            "clients[0]: \"id\" must be a string", "clients[0]: \"token_sha256\" must be a string of 64 hex digits",
            "clients[0]: \"scopes\" must be an array of at most 64",
            "clients[0]: \"paid_seconds_per_day\" must be a whole number from 0 to 1000000000000");
}

static void ids_without_control_characters(void **state)
{
    (void)state;
    refused(FILE_OF(ENTRY("", HASH_A)), "clients[0]: \"id\" is empty");
    refused(FILE_OF(ENTRY(" \\t\\u3000", HASH_A)), "clients[0]: \"id\" is empty");
    refused(FILE_OF(ENTRY("a\\nb", HASH_A)), "clients[0]: \"id\" has a control character");
    refused(FILE_OF(ENTRY("a\\u007fb", HASH_A)), "clients[0]: \"id\" has a control character");
    refused(FILE_OF(ENTRY("a\\u009fb", HASH_A)), "clients[0]: \"id\" has a control character");
    callers_unref(parse_fine(FILE_OF(ENTRY("a\\u00a1 b*", HASH_A))));
}

static void ids_and_hashes_are_unique(void **state)
{
    (void)state;
    refused(FILE_OF(ENTRY("a", HASH_A) "," ENTRY("b", HASH_A)),
            "clients[1] (\"b\"): has the \"token_sha256\" of clients[0] (\"a\")");
    refused(FILE_OF(ENTRY("a", HASH_A) "," ENTRY(" a", HASH_B)), "clients[1] (\"a\"): has the \"id\" of clients[0]");
    refused(FILE_OF("{\"id\":\"a\",\"tokens\":[{\"token_sha256\":\"" HASH_A "\"},{\"token_sha256\":\"" HASH_A "\"}]}"),
            "clients[0] (\"a\"): has the same \"token_sha256\" twice");
    refused(
        FILE_OF(ENTRY(
            "a",
            HASH_A) ",{\"id\":\"b\",\"tokens\":[{\"token_sha256\":\"" HASH_B
                    "\"},{\"token_sha256\":\"BA7816BF8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"}]}"),
        "clients[1] (\"b\"): has the \"token_sha256\" of clients[0] (\"a\")");
    callers_unref(parse_fine(FILE_OF(ENTRY("a", HASH_A) "," ENTRY("A", HASH_B))));
}

static void an_id_in_a_text_is_harmless(void **state)
{
    (void)state;
    refused(
        FILE_OF("{\"id\":\"0123456789012345678901234567890123456789012345678901234567890123456789\",\"x\\u001b[2J\":1,"
                "\"token_sha256\":\"" HASH_A "\"}"),
        "clients[0] (\"0123456789012345678901234567890123456789012345678901234567890123\"...): unknown member "
        "\"x?[2J\"");
}

static void two_tokens_with_windows(void **state)
{
    /* 2026-11-29T20:00:00Z and an hour later, by `date -ud ... +%s` */
    const int64_t start = INT64_C(1796155200000), end = INT64_C(1796158800000);
    callers_t *callers = parse_fine(FILE_OF(
        "{\"id\":\"a\",\"tokens\":[{\"token_sha256\":\"" HASH_A "\",\"not_after\":\"2026-12-01T21:00:00Z\"},"
        "{\"token_sha256\":\"" HASH_B "\",\"not_before\":\"2026-12-01T20:00:00Z\"}],\"scopes\":[\"code:run\"]}"));
    uint8_t a[32], b[32];

    (void)state;
    sha256("abc", a);
    sha256("", b);
    assert_int_equal(callers_at(callers, 0)->tokens[0].not_after_ms, end);
    assert_int_equal(callers_at(callers, 0)->tokens[0].not_before_ms, INT64_MIN);
    assert_int_equal(callers_at(callers, 0)->tokens[1].not_before_ms, start);
    assert_int_equal(callers_at(callers, 0)->tokens[1].not_after_ms, INT64_MAX);
    assert_non_null(callers_find(callers, a, INT64_MIN));
    assert_non_null(callers_find(callers, a, end - 1));
    assert_null(callers_find(callers, a, end));
    assert_null(callers_find(callers, b, start - 1));
    assert_non_null(callers_find(callers, b, start));
    assert_non_null(callers_find(callers, b, INT64_MAX - 1));
    callers_unref(callers);
}

static void wrong_windows_are_told(void **state)
{
    (void)state;
    refused(FILE_OF("{\"id\":\"a\",\"tokens\":[]}"), "clients[0] (\"a\"): \"tokens\" must be an array of one or two");
    refused(FILE_OF("{\"id\":\"a\",\"tokens\":{}}"), "clients[0] (\"a\"): \"tokens\" must be an array of one or two");
    refused(FILE_OF("{\"id\":\"a\",\"tokens\":[1]}"), "clients[0] (\"a\"): each of \"tokens\" must be an object");
    refused(FILE_OF("{\"id\":\"a\",\"tokens\":[{}]}"), "clients[0] (\"a\"): one of \"tokens\" has no \"token_sha256\"");
    refused(FILE_OF("{\"id\":\"a\",\"tokens\":[{},{},{}]}"),
            "clients[0] (\"a\"): \"tokens\" must be an array of one or two");
    refused(FILE_OF("{\"id\":\"a\",\"token_sha256\":\"" HASH_A "\",\"tokens\":[{\"token_sha256\":\"" HASH_B "\"}]}"),
            "clients[0] (\"a\"): \"token_sha256\" and \"tokens\" exclude each other");
    refused(FILE_OF("{\"id\":\"a\",\"tokens\":[{\"token_sha256\":\"" HASH_A
                    "\",\"not_before\":\"2026-12-01T20:00:00Z\",\"not_after\":\"2026-12-01T20:00:00Z\"}]}"),
            "clients[0] (\"a\"): \"not_before\" must be earlier than \"not_after\"");
    refused(FILE_OF("{\"id\":\"a\",\"tokens\":[{\"token_sha256\":\"" HASH_A "\",\"not_before\":1,\"note\":\"\"}]}"),
            "clients[0] (\"a\"): \"not_before\" must be a UTC time such as \"2026-11-29T20:00:00Z\"",
            "clients[0] (\"a\"): unknown member \"note\"");
    callers_unref(parse_fine(
        FILE_OF("{\"id\":\"a\",\"tokens\":[{\"token_sha256\":\"" HASH_A
                "\",\"not_before\":\"2026-12-01T20:00:00Z\",\"not_after\":\"2026-12-01T20:00:00.001Z\"}]}")));
}

/* One file with an ID of `id_len` bytes and `scope_count` scopes, the first of `scope_len` bytes. */
static bool fits(size_t id_len, size_t scope_count, size_t scope_len, const char *paid)
{
    problems_t problems = {NULL, 0};
    callers_t *callers;
    buffer_t json;
    bool ok;

    buffer_init(&json, 1 << 20);
    buffer_append_str(&json, "{\"clients\":[{\"id\":\"");
    for (size_t i = 0; i < id_len; i++)
        buffer_append_str(&json, "i");
    buffer_append_str(&json, "\",\"token_sha256\":\"" HASH_A "\",\"scopes\":[");
    for (size_t i = 0; i < scope_count; i++) {
        buffer_printf(&json, "%s\"%zu", i == 0 ? "" : ",", i);
        for (size_t c = 1; i == 0 && c < scope_len; c++)
            buffer_append_str(&json, "s");
        buffer_append_str(&json, "\"");
    }
    buffer_printf(&json, "],\"paid_seconds_per_day\":%s}]}", paid);
    callers = callers_parse((char *)json.base, json.len, false, &problems);
    ok = callers != NULL;
    assert_int_equal(problems.count, ok ? 0 : 1);
    callers_unref(callers);
    problems_dispose(&problems);
    buffer_dispose(&json);
    return ok;
}

static void limits_of_an_entry(void **state)
{
    (void)state;
    assert_true(fits(CALLER_ID_MAX - 1, 1, 1, "0"));
    assert_true(fits(CALLER_ID_MAX, 1, 1, "0"));
    assert_false(fits(CALLER_ID_MAX + 1, 1, 1, "0"));
    assert_true(fits(1, CALLER_SCOPES_MAX - 1, 1, "0"));
    assert_true(fits(1, CALLER_SCOPES_MAX, 1, "0"));
    assert_false(fits(1, CALLER_SCOPES_MAX + 1, 1, "0"));
    assert_true(fits(1, 1, CALLER_SCOPE_MAX - 1, "0"));
    assert_true(fits(1, 1, CALLER_SCOPE_MAX, "0"));
    assert_false(fits(1, 1, CALLER_SCOPE_MAX + 1, "0"));
    assert_true(fits(1, 1, 1, "999999999999"));
    assert_true(fits(1, 1, 1, "1000000000000"));
    assert_false(fits(1, 1, 1, "1000000000001"));
    assert_false(fits(1, 1, 1, "-1"));
    assert_false(fits(1, 1, 1, "99999999999999999999"));
}

static char *file_of_many(size_t count, size_t *len)
{
    buffer_t json;

    buffer_init(&json, CALLERS_FILE_MAX);
    buffer_append_str(&json, "{\"clients\":[");
    for (size_t i = 0; i < count; i++)
        assert_true(buffer_printf(&json, "%s{\"id\":\"%zu\",\"token_sha256\":\"%064zx\"}", i == 0 ? "" : ",", i, i));
    buffer_append_str(&json, "]}");
    *len = json.len;
    return (char *)json.base;
}

static void limit_of_callers(void **state)
{
    problems_t problems = {NULL, 0};

    (void)state;
    for (size_t count = CALLERS_MAX - 1; count <= CALLERS_MAX + 1; count++) {
        size_t len;
        char *json = file_of_many(count, &len);
        callers_t *callers = callers_parse(json, len, false, &problems);
        uint8_t hash[32] = {0};
        free(json);
        if (count > CALLERS_MAX) {
            assert_null(callers);
            assert_string_equal(problems.texts[0], "the callers file has 100001 callers; the most is 100000");
            continue;
        }
        assert_int_equal(callers_count(callers), count);
        /* the hashes differ in their last bytes alone, which no index may mind */
        for (size_t i = 0; i < count; i += 9973) {
            hash[29] = (uint8_t)(i >> 16);
            hash[30] = (uint8_t)(i >> 8);
            hash[31] = (uint8_t)i;
            assert_ptr_equal(callers_find(callers, hash, 0), callers_at(callers, i));
        }
        callers_unref(callers);
    }
    problems_dispose(&problems);
}

static void limit_of_the_file(void **state)
{
    static const char head[] = FILE_OF(ENTRY("a", HASH_A));
    char path[] = "/tmp/test_callers_XXXXXX", *text = malloc(CALLERS_FILE_MAX + 2);
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    memset(text, ' ', CALLERS_FILE_MAX + 2);
    memcpy(text, head, strlen(head));
    for (size_t size = CALLERS_FILE_MAX - 1; size <= CALLERS_FILE_MAX + 1; size++) {
        problems_t problems = {NULL, 0};
        size_t len = 0;
        char *read;
        callers_t *callers = callers_parse(text, size, false, &problems);
        assert_int_equal(callers != NULL, size <= CALLERS_FILE_MAX);
        callers_unref(callers);
        assert_int_equal(pwrite(fd, text, size, 0), (ssize_t)size);
        read = callers_read_file(path, &len, &problems);
        assert_int_equal(read != NULL, size <= CALLERS_FILE_MAX);
        if (read != NULL) {
            assert_int_equal(len, size);
            assert_int_equal(memcmp(read, text, size), 0);
            assert_int_equal(read[len], '\0');
        }
        assert_int_equal(problems.count, size <= CALLERS_FILE_MAX ? 0 : 2);
        free(read);
        problems_dispose(&problems);
    }
    close(fd);
    unlink(path);
    free(text);
}

static void a_file_that_cannot_be_read_is_told(void **state)
{
    char dir[] = "/tmp/test_callers_XXXXXX", path[64], wanted[128];
    problems_t problems = {NULL, 0};
    size_t len;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/none", dir);
    assert_null(callers_read_file(path, &len, &problems));
    snprintf(wanted, sizeof(wanted), "the callers file \"%s\" cannot be read: No such file or directory", path);
    assert_string_equal(problems.texts[0], wanted);
    assert_null(callers_read_file(dir, &len, &problems));
    assert_non_null(strstr(problems.texts[1], "is not a regular file"));
    snprintf(path, sizeof(path), "%s/fifo", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_null(callers_read_file(path, &len, &problems)); /* and does not wait for a writer */
    assert_int_equal(problems.count, 3);
    problems_dispose(&problems);
    unlink(path);
    rmdir(dir);
}

static void depth_is_bounded(void **state)
{
    problems_t problems = {NULL, 0};
    char *text = malloc(200000);

    (void)state;
    memset(text, '[', 200000);
    assert_null(callers_parse(text, 200000, false, &problems));
    assert_int_equal(problems.count, 1);
    assert_non_null(strstr(problems.texts[0], "nested too deeply"));
    problems_dispose(&problems);
    free(text);
}

static void problems_of_a_large_file_are_bounded(void **state)
{
    problems_t problems = {NULL, 0};
    buffer_t json;

    (void)state;
    buffer_init(&json, 1 << 20);
    buffer_append_str(&json, "{\"clients\":[0");
    for (int i = 0; i < 5000; i++)
        buffer_append_str(&json, ",0");
    buffer_append_str(&json, "]}");
    assert_null(callers_parse((char *)json.base, json.len, false, &problems));
    assert_int_equal(problems.count, PROBLEMS_MAX + 1);
    problems_dispose(&problems);
    buffer_dispose(&json);
}

static void what_is_written_is_read_again(void **state)
{
    static const char text[] = "{\n"
                               "  \"clients\": [\n"
                               "    {\n"
                               "      \"id\": \"a\",\n"
                               "      \"token_sha256\": \"" HASH_A "\",\n"
                               "      \"scopes\": [\n"
                               "        \"code:run\",\n"
                               "        \"x/\xc3\xa9\"\n"
                               "      ],\n"
                               "      \"paid_seconds_per_day\": 5\n"
                               "    },\n"
                               "    {\n"
                               "      \"id\": \"\\\"b\\\\\",\n"
                               "      \"tokens\": [\n"
                               "        {\n"
                               "          \"token_sha256\": \"" HASH_B "\",\n"
                               "          \"not_before\": \"1969-12-31T23:59:59.999Z\",\n"
                               "          \"not_after\": \"2024-02-29T00:00:00Z\"\n"
                               "        }\n"
                               "      ],\n"
                               "      \"scopes\": []\n"
                               "    }\n"
                               "  ]\n"
                               "}\n";
    callers_t *callers = parse_fine(text);
    char *again = callers_format(callers);

    (void)state;
    assert_string_equal(again, text);
    assert_int_equal(callers_at(callers, 1)->tokens[0].not_before_ms, -1);
    free(again);
    callers_unref(callers);
}

static void *hold_and_drop(void *arg)
{
    callers_t *callers = arg;
    uint8_t hash[32];

    sha256("abc", hash);
    for (int i = 0; i < 20000; i++) {
        callers_t *mine = callers_ref(callers);
        if (callers_find(mine, hash, 0) == NULL)
            abort();
        callers_unref(mine);
    }
    callers_unref(callers);
    return NULL;
}

static void references_are_counted_across_threads(void **state)
{
    callers_t *callers = parse_fine(FILE_OF(ENTRY("a", HASH_A)));
    pthread_t threads[4];

    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hold_and_drop, callers_ref(callers)), 0);
    callers_unref(callers); /* the threads' own references keep it alive, and the last one frees it */
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    callers_unref(NULL);
}

static void times(void **state)
{
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {{"1970-01-01T00:00:00Z", 0},
                {"1970-01-01T00:00:00.1Z", 100},
                {"1970-01-01T00:00:00.123456789Z", 123},
                {"2000-02-29T12:34:56Z", INT64_C(951827696000)},
                {"2100-03-01T00:00:00Z", INT64_C(4107542400000)},
                {"1900-03-01T00:00:00Z", INT64_C(-2203891200000)},
                {"0000-01-01T00:00:00Z", INT64_C(-62167219200000)},
                {"0001-01-01T00:00:00Z", INT64_C(-62135596800000)},
                {"9999-12-31T23:59:59.999Z", INT64_C(253402300799999)}};
    static const char *const bad[] = {"",
                                      "2026-11-29",
                                      "2026-11-29T20:00:00",
                                      "2026-11-29T20:00:00z",
                                      "2026-11-29t20:00:00Z",
                                      "2026-11-29 20:00:00Z",
                                      "2026-11-29T20:00:00+00:00",
                                      "2026-11-29T20:00Z",
                                      "2026-11-29T20:00:00.Z",
                                      "2026-11-29T20:00:00.1234567890Z",
                                      "2026-11-29T20:00:00,1Z",
                                      "2026-02-29T00:00:00Z",
                                      "2100-02-29T00:00:00Z",
                                      "2026-04-31T00:00:00Z",
                                      "2026-00-10T00:00:00Z",
                                      "2026-13-10T00:00:00Z",
                                      "2026-01-00T00:00:00Z",
                                      "2026-01-32T00:00:00Z",
                                      "2026-01-01T24:00:00Z",
                                      "2026-01-01T00:60:00Z",
                                      "2026-12-31T23:59:60Z",
                                      "+026-01-01T00:00:00Z",
                                      "2026-1-01T00:00:00ZZ",
                                      " 2026-01-01T00:00:00Z"};
    char text[RFC3339_MAX], wanted[RFC3339_MAX];
    int64_t ms;

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(rfc3339_parse(good[i].text, strlen(good[i].text), &ms));
        assert_int_equal(ms, good[i].ms);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (rfc3339_parse(bad[i], strlen(bad[i]), &ms))
            fail_msg("accepted: %s", bad[i]);
    /* against the C library, over both ends of every year */
    for (int64_t second = INT64_C(-62167219200); second < INT64_C(253402300800); second += 15778463) {
        time_t t = (time_t)second;
        struct tm tm;
        gmtime_r(&t, &tm);
        snprintf(wanted, sizeof(wanted), "%04u-%02u-%02uT%02u:%02u:%02uZ", (unsigned)(tm.tm_year + 1900) % 10000,
                 (unsigned)(tm.tm_mon + 1) % 100, (unsigned)tm.tm_mday % 100, (unsigned)tm.tm_hour % 100,
                 (unsigned)tm.tm_min % 100, (unsigned)tm.tm_sec % 100);
        rfc3339_format(second * 1000, text);
        assert_string_equal(text, wanted);
        assert_true(rfc3339_parse(text, strlen(text), &ms));
        assert_int_equal(ms, second * 1000);
    }
}

static void tokens(void **state)
{
    char text[TOKEN_MAX + 1];
    uint8_t hash[32], wanted[32];

    (void)state;
    memset(text, '~', sizeof(text));
    assert_non_null(token_check(text, TOKEN_MIN - 1));
    assert_null(token_check(text, TOKEN_MIN));
    assert_null(token_check(text, TOKEN_MAX));
    assert_non_null(token_check(text, TOKEN_MAX + 1));
    for (int c = 0; c < 256; c++) {
        text[7] = (char)c;
        assert_int_equal(token_check(text, TOKEN_MIN) == NULL, c >= 0x21 && c <= 0x7e);
    }
    assert_int_equal(token_strip_newline("ab\n", 3), 2);
    assert_int_equal(token_strip_newline("ab\r\n", 4), 2);
    assert_int_equal(token_strip_newline("ab\n\n", 4), 3);
    assert_int_equal(token_strip_newline("ab\r", 3), 3);
    assert_int_equal(token_strip_newline("\n", 1), 0);
    assert_int_equal(token_strip_newline("", 0), 0);
    token_sha256("abc", 3, hash);
    sha256("abc", wanted);
    assert_memory_equal(hash, wanted, 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_entry_is_read),
        cmocka_unit_test(who_may_run),
        cmocka_unit_test(what_is_not_the_files_json_is_refused),
        cmocka_unit_test(the_tool_may_read_an_empty_file),
        cmocka_unit_test(every_wrong_entry_is_told_by_place_and_id),
        cmocka_unit_test(nulls_are_not_absence),
        cmocka_unit_test(ids_without_control_characters),
        cmocka_unit_test(ids_and_hashes_are_unique),
        cmocka_unit_test(an_id_in_a_text_is_harmless),
        cmocka_unit_test(two_tokens_with_windows),
        cmocka_unit_test(wrong_windows_are_told),
        cmocka_unit_test(limits_of_an_entry),
        cmocka_unit_test(limit_of_callers),
        cmocka_unit_test(limit_of_the_file),
        cmocka_unit_test(a_file_that_cannot_be_read_is_told),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(problems_of_a_large_file_are_bounded),
        cmocka_unit_test(what_is_written_is_read_again),
        cmocka_unit_test(references_are_counted_across_threads),
        cmocka_unit_test(times),
        cmocka_unit_test(tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
