/* The JSON form of spec 1.10, reading and writing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json_number.h"
#include "core/protojson.h"
#include "records/plimsoll.pb-c.h"

static char error[PROTOJSON_ERROR_MAX];

static void *read_(const ProtobufCMessageDescriptor *of, const char *json, size_t len)
{
    /* A copy of exactly these bytes, so that reading past them is seen. */
    char *copy = malloc(len + 1);
    memcpy(copy, json, len);
    char *exact = realloc(copy, len != 0 ? len : 1);
    void *m = protojson_parse(of, exact, len, error);
    free(exact);
    return m;
}

static Plimsoll__V1__RunRequest *request(const char *json)
{
    Plimsoll__V1__RunRequest *m = read_(&plimsoll__v1__run_request__descriptor, json, strlen(json));
    if (m == NULL)
        print_error("%s: %s\n", json, error);
    assert_non_null(m);
    return m;
}

static void drop(void *m)
{
    protobuf_c_message_free_unpacked(m, NULL);
}

/* Refused, with a text that names this. */
static void malformed_(int line, const ProtobufCMessageDescriptor *of, const char *json, size_t len, const char *naming)
{
    void *m = read_(of, json, len);
    if (m != NULL || strstr(error, naming) == NULL) {
        print_error("line %d: %s: %s\n", line, json, m != NULL ? "accepted" : error);
        drop(m);
        fail();
    }
    assert_true(strlen(error) < PROTOJSON_ERROR_MAX);
}
#define malformed(json, naming) malformed_(__LINE__, &plimsoll__v1__run_request__descriptor, json, strlen(json), naming)
#define malformed_of(message, json, naming)                                                                            \
    malformed_(__LINE__, &plimsoll__v1__##message##__descriptor, json, strlen(json), naming)

static void prints(const ProtobufCMessage *m, const char *json)
{
    buffer_t out;
    buffer_init(&out, 1 << 20);
    assert_true(protojson_print(m, &out));
    assert_string_equal((char *)out.base, json);
    buffer_dispose(&out);
}

/* Read and printed again, this comes out. */
static void becomes(const ProtobufCMessageDescriptor *of, const char *json, const char *out)
{
    ProtobufCMessage *m = read_(of, json, strlen(json));
    if (m == NULL)
        print_error("%s: %s\n", json, error);
    assert_non_null(m);
    prints(m, out);
    drop(m);
}

static void test_names_in_both_spellings(void **state)
{
    (void)state;
    Plimsoll__V1__RunRequest *m = request(" {\"protocol\" :3,\n\"minimum_isolation\":\"vm\",\t\"timeoutMs\":7}\r\n");
    assert_int_equal(m->protocol, 3);
    assert_string_equal(m->minimum_isolation, "vm");
    assert_int_equal(m->timeout_ms, 7);
    drop(m);
    m = request("{\"minimumIsolation\":\"vm\",\"timeout_ms\":7,\"\\u0070rotocol\":4}");
    assert_string_equal(m->minimum_isolation, "vm");
    assert_int_equal(m->timeout_ms, 7);
    assert_int_equal(m->protocol, 4);
    drop(m);
    becomes(&plimsoll__v1__run_record__descriptor,
            "{\"requestSha256\":\"a\",\"result_sha256\":\"b\",\"startedUnixMs\":\"5\"}",
            "{\"requestSha256\":\"a\",\"resultSha256\":\"b\",\"startedUnixMs\":\"5\"}");
}

static void test_other_spellings_are_other_members(void **state)
{
    (void)state;
    Plimsoll__V1__RunRequest *m =
        request("{\"Protocol\":1,\"timeoutms\":1,\"timeout_Ms\":1,\"timeoutMs_\":1,\"timeout__ms\":1,"
                "\"timeoutM\":1,\"\":1,\"minimumisolation\":\"x\",\"timeoutMs\\u0000\":1}");
    assert_int_equal(m->protocol, 0);
    assert_int_equal(m->timeout_ms, 0);
    assert_string_equal(m->minimum_isolation, "");
    drop(m);
}

static void test_null_is_absent(void **state)
{
    (void)state;
    Plimsoll__V1__RunRequest *m = request("{\"protocol\":null,\"minimumIsolation\":null,\"softwareRule\":null,"
                                          "\"javascript\":null,\"project\":{\"steps\":null}}");
    assert_int_equal(m->protocol, 0);
    assert_string_equal(m->minimum_isolation, "");
    assert_null(m->software_rule);
    assert_int_equal(m->payload_case, PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_PROJECT);
    assert_int_equal(m->project->n_steps, 0);
    drop(m);
    malformed("{\"project\":{\"steps\":[null]}}", "project.steps[0]");
    malformed("{\"protocol\":nul}", "protocol");
}

static void test_unknown_members_are_checked_and_ignored(void **state)
{
    (void)state;
    Plimsoll__V1__RunRequest *m =
        request("{\"a\":{\"b\":[1,-2.5e+10,\"\\u0000\\ud83d\\ude42\",true,false,null,{},[]]},\"protocol\":3}");
    assert_int_equal(m->protocol, 3);
    drop(m);
    static const char *const BAD[] = {
        "{\"a\":[1,]}",
        "{\"a\":{\"b\"}}",
        "{\"a\":{,}}",
        "{\"a\":01}",
        "{\"a\":1.}",
        "{\"a\":.5}",
        "{\"a\":+1}",
        "{\"a\":1e}",
        "{\"a\":-}",
        "{\"a\":tru}",
        "{\"a\":NaN}",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\\u12\"}",
        "{\"a\":\"\xff\"}",
        "{\"a\":\"\t\"}",
        "{\"a\":'b'}",
        "{\"a\" 1}",
        "{\"a\":1 \"b\":2}",
        "{\"a\":1,}",
        "{\"a\":",
        "{\"a\"",
        "{\"a",
        "{\"a\":[1 2]}",
        "{\"a\":{\"b\":1,}}",
        "{a:1}",
        "{\"a\":1}}",
        "{\"a\":\"\\\"}",
        "{\"a\":\"\\ud800\"}",
        "{\"\\udc00\":1}",
        "{\"a\":/**/1}",
        "{\"a\":0x1}",
        "{\"a\":Infinity}",
    };
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++)
        malformed(BAD[i], "");
}

static void test_duplicates(void **state)
{
    (void)state;
    malformed("{\"protocol\":3,\"protocol\":3}", "protocol");
    malformed("{\"timeoutMs\":1,\"timeout_ms\":1}", "timeout_ms");
    malformed("{\"protocol\":null,\"protocol\":3}", "protocol");
    malformed("{\"javascript\":{},\"project\":{}}", "project");
    malformed("{\"javascript\":{},\"javascript\":{}}", "javascript");
    malformed("{\"javascript\":{\"code\":\"\",\"code\":\"\"}}", "javascript.code");
}

static void test_whole_body(void **state)
{
    (void)state;
    static const char *const BAD[] = {"",     " ", "\n",  "[]",    "\"a\"",          "1",
                                      "null", "{", "{}x", "{} {}", "\xef\xbb\xbf{}", "}"};
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++)
        malformed(BAD[i], "");
    drop(request("{}"));
    drop(request(" { } "));
    malformed_(__LINE__, &plimsoll__v1__run_request__descriptor, "{}\0", 3, "after the message");
    malformed_(__LINE__, &plimsoll__v1__run_request__descriptor, "\0{}", 3, "");
    malformed_(__LINE__, &plimsoll__v1__run_request__descriptor, "{\"a\":\0}", 7, "");
}

static void test_32_bit_integers(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        int32_t value;
    } GOOD[] = {
        {"0", 0},
        {"-0", 0},
        {"1", 1},
        {"\"1\"", 1},
        {"1.0", 1},
        {"1e3", 1000},
        {"1.5e1", 15},
        {"1500e-2", 15},
        {"-1E+2", -100},
        {"0.0000e5", 0},
        {"\"1e3\"", 1000},
        {"2147483647", INT32_MAX},
        {"-2147483648", INT32_MIN},
        {"0e999999999999", 0},
        {"\"\\u0031\"", 1},
    };
    static const char *const BAD[] = {"1.5",    "2147483648", "-2147483649", "1e10",           "\"\"",   "\" 1\"",
                                      "\"1 \"", "\"x\"",      "\"0x1\"",     "true",           "{}",     "[]",
                                      "[1]",    "1e-1",       "\"NaN\"",     "1e999999999999", "\"+1\"", "\"01\""};
    char json[64];
    for (size_t i = 0; i < sizeof(GOOD) / sizeof(GOOD[0]); i++) {
        snprintf(json, sizeof(json), "{\"timeoutMs\":%s}", GOOD[i].json);
        Plimsoll__V1__RunRequest *m = request(json);
        assert_int_equal(m->timeout_ms, GOOD[i].value);
        drop(m);
    }
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        snprintf(json, sizeof(json), "{\"timeoutMs\":%s}", BAD[i]);
        malformed(json, "timeout_ms");
    }
    malformed("{\"protocol\":4294967296}", "protocol");
    malformed("{\"protocol\":-1}", "protocol");
    Plimsoll__V1__RunRequest *m = request("{\"protocol\":4294967295}");
    assert_int_equal(m->protocol, UINT32_MAX);
    drop(m);
}

static void test_64_bit_integers_are_exact(void **state)
{
    (void)state;
    static const char *const RECORD[] = {
        "{\"startedUnixMs\":\"-9223372036854775808\",\"endedUnixMs\":\"9223372036854775807\",\"sequence\":"
        "\"18446744073709551615\"}",
        "{\"startedUnixMs\":-9223372036854775808,\"endedUnixMs\":9223372036854775807,\"sequence\":"
        "18446744073709551615}",
        "{\"startedUnixMs\":-922337203685477580.8e1,\"endedUnixMs\":92233720368547758070e-1,\"sequence\":1."
        "8446744073709551615e19}",
    };
    for (size_t i = 0; i < 3; i++)
        becomes(&plimsoll__v1__run_record__descriptor, RECORD[i], RECORD[0]);
    malformed_of(run_record, "{\"startedUnixMs\":9223372036854775808}", "started_unix_ms");
    malformed_of(run_record, "{\"startedUnixMs\":\"-9223372036854775809\"}", "started_unix_ms");
    malformed_of(run_record, "{\"sequence\":18446744073709551616}", "sequence");
    malformed_of(run_record, "{\"sequence\":-1}", "sequence");
    malformed_of(run_record, "{\"sequence\":1e20}", "sequence");
    malformed_of(run_record, "{\"sequence\":0.5}", "sequence");
}

/* A number may be as long as a body; its zeros must not overflow anything. */
static void test_long_numbers(void **state)
{
    (void)state;
    enum { ZEROS = 100000 };
    char *json = malloc(ZEROS + 64), *p = json;
    p += sprintf(p, "{\"timeoutMs\":0.");
    memset(p, '0', ZEROS);
    p += ZEROS;
    sprintf(p, "12e%d}", ZEROS + 2);
    Plimsoll__V1__RunRequest *m = request(json);
    assert_int_equal(m->timeout_ms, 12);
    drop(m);
    p = json + sprintf(json, "{\"timeoutMs\":12");
    memset(p, '0', ZEROS);
    sprintf(p + ZEROS, "e-%d}", ZEROS);
    m = request(json);
    assert_int_equal(m->timeout_ms, 12);
    drop(m);
    p = json + sprintf(json, "{\"module\":{\"step\":12");
    memset(p, '0', ZEROS);
    sprintf(p + ZEROS, "e-%d}}", ZEROS);
    m = request(json);
    assert_true(m->module->step == 12);
    drop(m);
    free(json);
}

static uint64_t bits_of(double d)
{
    uint64_t bits;
    memcpy(&bits, &d, 8);
    return bits;
}

/* Bits as Python's struct.pack('>d', float(text)) gives them. */
static void test_doubles(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        uint64_t bits;
    } GOOD[] = {
        {"0", 0},
        {"-0", 0x8000000000000000},
        {"-0.0", 0x8000000000000000},
        {"\"-0\"", 0x8000000000000000},
        {"-0e5", 0x8000000000000000},
        {"1", 0x3ff0000000000000},
        {"0.1", 0x3fb999999999999a},
        {"1e-07", 0x3e7ad7f29abcaf48},
        {"1e22", 0x4480f0cf064dd592},
        {"1e23", 0x44b52d02c7e14af6},
        {"123456789012345678", 0x437b69b4ba630f35},
        {"9007199254740993", 0x4340000000000000}, /* 2^53 + 1: half to even */
        {"9007199254740993.0000000000000000000000001", 0x4340000000000001},
        {"2.2250738585072011e-308", 0x000fffffffffffff},
        {"5e-324", 1},
        {"2e-324", 0},
        {"1e-400", 0},
        {"-1e-400", 0x8000000000000000},
        {"1.7976931348623157e308", 0x7fefffffffffffff},
        {"\"NaN\"", 0x7ff8000000000000},
        {"\"Infinity\"", 0x7ff0000000000000},
        {"\"-Infinity\"", 0xfff0000000000000},
        {"\"1.5\"", 0x3ff8000000000000},
    };
    static const char *const BAD[] = {"1e309",    "-1e309",    "\"nan\"", "\"inf\"", "\"+Infinity\"", "\"\"",   "NaN",
                                      "Infinity", "\"0x1p3\"", "true",    "\" 1\"",  "\"1e309\"",     "1.8e308"};
    char json[128];
    for (size_t i = 0; i < sizeof(GOOD) / sizeof(GOOD[0]); i++) {
        snprintf(json, sizeof(json), "{\"module\":{\"step\":%s}}", GOOD[i].json);
        Plimsoll__V1__RunRequest *m = request(json);
        if (bits_of(m->module->step) != GOOD[i].bits)
            print_error("%s: %016llx\n", GOOD[i].json, (unsigned long long)bits_of(m->module->step));
        assert_true(bits_of(m->module->step) == GOOD[i].bits);
        drop(m);
    }
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        snprintf(json, sizeof(json), "{\"module\":{\"step\":%s}}", BAD[i]);
        malformed(json, "module.step");
    }
    malformed("{\"module\":{\"rows\":[{},{\"values\":[1,2,1e999]}]}}", "module.rows[1].values[2]");
}

static void test_doubles_print_shortest(void **state)
{
    (void)state;
    static const struct {
        uint64_t bits;
        const char *text;
    } CASES[] = {
        {0x3ff0000000000000, "1"},
        {0x8000000000000000, "-0"},
        {0x3fb999999999999a, "0.1"},
        {1, "5e-324"},
        {0x3fd5555555555555, "0.3333333333333333"},
        {0x7fefffffffffffff, "1.7976931348623157e+308"},
        {0x4340000000000000, "9007199254740992"},
        {0x3e7ad7f29abcaf48, "1e-07"},
        {0xc059000000000000, "-100"},
        {0x430c6bf526340000, "1e+15"},
        {0x4202a05f20000000, "10000000000"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        double d;
        char text[JSON_DOUBLE_MAX];
        memcpy(&d, &CASES[i].bits, 8);
        assert_int_equal(json_number_format(d, text), strlen(CASES[i].text));
        assert_string_equal(text, CASES[i].text);
    }
    becomes(&plimsoll__v1__module_row__descriptor, "{\"values\":[\"NaN\",\"Infinity\",\"-Infinity\",-0.0,0]}",
            "{\"values\":[\"NaN\",\"Infinity\",\"-Infinity\",-0,0]}");
    /* A negative zero is not the zero that is left out. */
    becomes(&plimsoll__v1__module_run__descriptor, "{\"step\":-0,\"endTime\":0}", "{\"step\":-0}");
}

static void test_every_printed_double_reads_back(void **state)
{
    (void)state;
    uint64_t x = 0x9e3779b97f4a7c15u;
    for (int i = 0; i < 200000; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        uint64_t bits = i % 3 == 0 ? x & 0x800fffffffffffffu : x; /* subnormals too */
        double d, back;
        char text[JSON_DOUBLE_MAX];
        memcpy(&d, &bits, 8);
        if ((bits >> 52 & 0x7ff) == 0x7ff)
            continue;
        size_t len = json_number_format(d, text);
        assert_int_equal(json_number_scan(text, len), len);
        assert_int_equal(json_number_double(text, len, &back), NUMBER_OK);
        assert_true(bits_of(back) == bits);
    }
}

static void test_strings(void **state)
{
    (void)state;
    static const struct {
        const char *json, *text;
    } GOOD[] = {
        {"", ""},
        {"abcdefgh", "abcdefgh"},
        {"\\\"\\\\\\/\\b\\f\\n\\r\\t", "\"\\/\b\f\n\r\t"},
        {"\\u0041\\u00e9\\u20ac\\ud83d\\ude42", "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82"},
        {"\\uD83D\\uDE42x", "\xf0\x9f\x99\x82x"},
        {"\x7f\xc2\x80\xef\xbf\xbf\xf4\x8f\xbf\xbf", "\x7f\xc2\x80\xef\xbf\xbf\xf4\x8f\xbf\xbf"},
        {"0123456701234567\\n0123456701234567\xc3\xa9", "0123456701234567\n0123456701234567\xc3\xa9"},
        {"\\udbff\\udfff", "\xf4\x8f\xbf\xbf"},
    };
    static const char *const BAD[] = {
        "\\u0000",        "a\\u0000b",    "\\ud800",        "\\ud800x",
        "\\ud800\\u0041", "\\udc00",      "\\ud800\\ud800", "\\ude42\\ud83d",
        "\\u12g4",        "\\u",          "\\u123",         "\\a",
        "\\U0041",        "\n",           "\x1f",           "\x01",
        "\x80",           "\xc0\x80",     "\xed\xa0\x80",   "\xf4\x90\x80\x80",
        "\xe2\x82",       "\xf0\x9f\x99", "\\\xc3\xa9",     "0123456\n",
        "01234567\xff",   "\\ud83d\\n",   "\\ud83d\\ude4",
    };
    char json[128];
    for (size_t i = 0; i < sizeof(GOOD) / sizeof(GOOD[0]); i++) {
        snprintf(json, sizeof(json), "{\"minimumIsolation\":\"%s\"}", GOOD[i].json);
        Plimsoll__V1__RunRequest *m = request(json);
        assert_string_equal(m->minimum_isolation, GOOD[i].text);
        drop(m);
        snprintf(json, sizeof(json), "{\"project\":{\"steps\":[\"%s\"]}}", GOOD[i].json);
        m = request(json);
        assert_string_equal(m->project->steps[0], GOOD[i].text);
        drop(m);
    }
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        snprintf(json, sizeof(json), "{\"minimumIsolation\":\"%s\"}", BAD[i]);
        malformed(json, "minimum_isolation");
        if (strstr(BAD[i], "\\u0000") == NULL) {
            snprintf(json, sizeof(json), "{\"project\":{\"files\":[{\"content\":\"%s\"}]}}", BAD[i]);
            malformed(json, "project.files[0].content");
        }
    }
    malformed("{\"minimumIsolation\":1}", "minimum_isolation");
    malformed("{\"minimumIsolation\":[\"vm\"]}", "minimum_isolation");
    malformed("{\"minimumIsolation\":true}", "minimum_isolation");
}

/* Every byte at every place of the eight that are looked at together. */
/* Bytes in our schema, a string in everybody's: the only text that may hold U+0000. */
static void test_text_with_nul(void **state)
{
    static const char NUL[] = "{\"files\":[{\"path\":\"p\",\"content\":\"a\\u0000b\\u00e9\\u0000\"}]}",
                      PRINTED[] = "{\"files\":[{\"path\":\"p\",\"content\":\"a\\u0000b\xc3\xa9\\u0000\"}]}";
    (void)state;
    becomes(&plimsoll__v1__project_run__descriptor, NUL, PRINTED);
    becomes(&plimsoll__v1__cell_run__descriptor, NUL, PRINTED);
    becomes(&plimsoll__v1__project_run__descriptor, "{\"files\":[{\"content\":\"\"},{\"content\":null},{}]}",
            "{\"files\":[{},{},{}]}");
    becomes(&plimsoll__v1__project_run__descriptor, "{\"files\":[{\"content\":\"YWI=\"}]}",
            "{\"files\":[{\"content\":\"YWI=\"}]}"); /* no base64 */
    Plimsoll__V1__RunRequest *m = request("{\"project\":{\"files\":[{\"content\":\"\\u0000\"}]}}");
    assert_int_equal(m->project->files[0]->content.len, 1);
    assert_int_equal(m->project->files[0]->content.data[0], 0);
    drop(m);
    malformed("{\"project\":{\"files\":[{\"path\":\"a\\u0000\"}]}}", "project.files[0].path");
    malformed("{\"project\":{\"files\":[{\"content\":1}]}}", "project.files[0].content");
    malformed("{\"project\":{\"files\":[{\"content\":\"a\",\"content\":\"b\"}]}}", "project.files[0].content");
}

static void test_string_ends_are_found_in_every_word(void **state)
{
    (void)state;
    for (int at = 0; at < 24; at++) {
        for (int c = 1; c < 256; c++) {
            char json[96] = "{\"minimumIsolation\":\"", *body = json + strlen(json);
            memset(body, 'a', 24);
            body[at] = (char)c;
            strcpy(body + 24, "\"}");
            void *m = read_(&plimsoll__v1__run_request__descriptor, json, strlen(json));
            assert_int_equal(m != NULL, c >= 0x20 && c < 0x80 && c != '"' && c != '\\');
            drop(m);
        }
    }
}

static void test_strings_print(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t len;
        const char *json;
    } CASES[] = {
        {"", 0, "\"\""},
        {"a\"\\\b\t\n\v\f\r\x01\x1f/\x7f", 13, "\"a\\\"\\\\\\b\\t\\n\\u000b\\f\\r\\u0001\\u001f/\x7f\""},
        {"a\0b", 3, "\"a\\u0000b\""},
        {"h\xc3\xa9 \xf0\x9f\x99\x82", 8, "\"h\xc3\xa9 \xf0\x9f\x99\x82\""},
        {"a\xff"
         "b",
         3,
         "\"a\xef\xbf\xbd"
         "b\""},
        /* Unicode 3.9, table 3-8: maximal subparts */
        {"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", 9,
         "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\x41\""},
        {"\xed\xa0\x80\x41", 4, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\x41\""},
        {"\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", 9,
         "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\x41\xef\xbf\xbd\xef\xbf\xbd\x42\""},
        {"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", 9, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\x41\""},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        buffer_t out;
        buffer_init(&out, 256);
        assert_true(protojson_print_string(&out, CASES[i].bytes, CASES[i].len));
        assert_string_equal((char *)out.base, CASES[i].json);
        buffer_dispose(&out);
    }
}

static void test_print_stops_at_the_limit(void **state)
{
    (void)state;
    static const char JSON[] = "{\"protocol\":3,\"project\":{\"files\":[{\"path\":\"a\\n\"}],\"steps\":[\"x\",\"y\"]}}";
    Plimsoll__V1__RunRequest *m = request(JSON);
    for (size_t limit = 0; limit <= strlen(JSON) + 2; limit++) {
        buffer_t out;
        buffer_init(&out, limit);
        bool had = buffer_append(&out, "[", 1);
        bool fit = protojson_print(&m->base, &out);
        assert_int_equal(fit, limit >= strlen(JSON) + 1);
        assert_int_equal(out.len, (fit ? strlen(JSON) : 0) + had);
        buffer_dispose(&out);
    }
    drop(m);
}

static void test_enums(void **state)
{
    (void)state;
    becomes(&plimsoll__v1__project_result__descriptor, "{\"outcome\":\"PROJECT_OUTCOME_TIMED_OUT\"}",
            "{\"outcome\":\"PROJECT_OUTCOME_TIMED_OUT\"}");
    becomes(&plimsoll__v1__project_result__descriptor, "{\"outcome\":5}",
            "{\"outcome\":\"PROJECT_OUTCOME_RUNNER_FAILED\"}");
    becomes(&plimsoll__v1__project_result__descriptor, "{\"outcome\":77}", "{\"outcome\":77}");
    becomes(&plimsoll__v1__project_result__descriptor, "{\"outcome\":-1}", "{\"outcome\":-1}");
    becomes(&plimsoll__v1__project_result__descriptor, "{\"outcome\":0}", "{}");
    malformed_of(project_result, "{\"outcome\":\"TIMED_OUT\"}", "outcome");
    malformed_of(project_result, "{\"outcome\":\"1\"}", "outcome");
    malformed_of(project_result, "{\"outcome\":2147483648}", "outcome");
    malformed_of(project_result, "{\"outcome\":true}", "outcome");
}

static void test_bools(void **state)
{
    (void)state;
    becomes(&plimsoll__v1__cell_result__descriptor, "{\"timedOut\":true,\"interpreterEnded\":false}",
            "{\"timedOut\":true}");
    malformed_of(cell_result, "{\"timedOut\":1}", "timed_out");
    malformed_of(cell_result, "{\"timedOut\":\"true\"}", "timed_out");
    malformed_of(cell_result, "{\"timedOut\":tru}", "timed_out");
}

/* RFC 4648 section 10 and this form's liberties. */
static void test_base64(void **state)
{
    (void)state;
    static const struct {
        const char *text, *bytes;
        size_t len;
    } GOOD[] = {
        {"", "", 0},
        {"Zg==", "f", 1},
        {"Zg", "f", 1},
        {"Zm8=", "fo", 2},
        {"Zm8", "fo", 2},
        {"Zm9v", "foo", 3},
        {"Zm9vYg==", "foob", 4},
        {"Zm9vYmE=", "fooba", 5},
        {"Zm9vYmFy", "foobar", 6},
        {"-_-_", "\xfb\xff\xbf", 3},
        {"+/+/", "\xfb\xff\xbf", 3},
        {"_w", "\xff", 1},
        {"/w==", "\xff", 1},
    };
    static const char *const BAD[] = {"Z",        "Zg=",  "Zg===",    "=",     "==",   "====",
                                      "Zm9vYg=",  "Z g=", "Zg==Zg==", "Zm9v=", "+_==", "Zm9v\n",
                                      "\xc3\xa9", "Zm9*", "Zm=v",     "Zm9vY", "A=A="};
    for (size_t i = 0; i < sizeof(GOOD) / sizeof(GOOD[0]); i++) {
        size_t len = 99;
        uint8_t *bytes = base64_decode(GOOD[i].text, strlen(GOOD[i].text), &len);
        assert_non_null(bytes);
        assert_int_equal(len, GOOD[i].len);
        assert_memory_equal(bytes, GOOD[i].bytes, len);
        free(bytes);
    }
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        size_t len;
        uint8_t *bytes = base64_decode(BAD[i], strlen(BAD[i]), &len);
        if (bytes != NULL)
            print_error("accepted: %s\n", BAD[i]);
        assert_null(bytes);
        char json[64];
        if (strchr(BAD[i], '\n') == NULL) {
            snprintf(json, sizeof(json), "{\"stdout\":\"%s\"}", BAD[i]);
            malformed_of(cell_result, json, "stdout");
        }
    }
    for (size_t i = 0; i < 9; i++) {
        buffer_t out;
        buffer_init(&out, 64);
        assert_true(base64_encode(&out, GOOD[i].bytes, GOOD[i].len, i != 2 && i != 4));
        assert_string_equal(out.base != NULL ? (char *)out.base : "", GOOD[i].text);
        buffer_dispose(&out);
    }
    becomes(&plimsoll__v1__cell_result__descriptor, "{\"stdout\":\"_-8\",\"stderr\":\"\"}", "{\"stdout\":\"/+8=\"}");
}

static void test_base64_of_every_length(void **state)
{
    (void)state;
    uint8_t bytes[300];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 7 + 3);
    for (size_t n = 0; n <= sizeof(bytes); n++) {
        buffer_t out;
        size_t len = 0;
        buffer_init(&out, 1024);
        assert_true(base64_encode(&out, bytes, n, n % 2 == 0));
        uint8_t *back = base64_decode(out.base != NULL ? (char *)out.base : "", out.len, &len);
        assert_int_equal(len, n);
        assert_memory_equal(back, bytes, n);
        free(back);
        buffer_dispose(&out);
    }
}

static void test_set_messages_are_printed(void **state)
{
    (void)state;
    becomes(&plimsoll__v1__run_response__descriptor, "{\"javascript\":{}}", "{\"javascript\":{}}");
    becomes(&plimsoll__v1__run_response__descriptor, "{\"record\":{},\"sandbox\":\"\"}", "{\"record\":{}}");
    becomes(&plimsoll__v1__run_request__descriptor,
            "{\"project\":{\"files\":[{},{}],\"steps\":[\"\"],\"artifacts\":[]}}",
            "{\"project\":{\"files\":[{},{}],\"steps\":[\"\"]}}");
    becomes(
        &plimsoll__v1__describe_response__descriptor,
        "{\"javascriptEnvironment\":{},\"resources\":{\"cpus\":0.5,\"memoryMb\":\"512\"},\"supportsSessions\":false}",
        "{\"javascriptEnvironment\":{},\"resources\":{\"memoryMb\":512,\"cpus\":0.5}}");
}

/* `depth` objects and arrays in each other, the body's own counted. */
static bool reads_at_depth(int depth, char open, char close)
{
    char json[512] = "{\"a\":", *p = json + 5;
    for (int i = 1; i < depth; i++) {
        *p++ = open;
        if (open == '{')
            p = stpcpy(p, "\"a\":");
    }
    *p++ = '1';
    for (int i = 1; i < depth; i++)
        *p++ = close;
    *p++ = '}';
    *p = '\0';
    void *m = read_(&plimsoll__v1__run_request__descriptor, json, strlen(json));
    drop(m);
    return m != NULL;
}

static void test_depth(void **state)
{
    (void)state;
    for (int depth = PROTOJSON_DEPTH_MAX - 1; depth <= PROTOJSON_DEPTH_MAX + 1; depth++) {
        assert_int_equal(reads_at_depth(depth, '[', ']'), depth <= PROTOJSON_DEPTH_MAX);
        assert_int_equal(reads_at_depth(depth, '{', '}'), depth <= PROTOJSON_DEPTH_MAX);
    }
    /* Siblings do not add up. */
    Plimsoll__V1__RunRequest *m =
        request("{\"a\":[[],[],{},{}],\"b\":{\"c\":{}},\"module\":{\"rows\":[{\"values\":[]},{}]}}");
    assert_int_equal(m->module->n_rows, 2);
    drop(m);
    char *bomb = malloc(1 << 20);
    memset(bomb, '[', 1 << 20);
    memcpy(bomb, "{\"a\":", 5);
    malformed_(__LINE__, &plimsoll__v1__run_request__descriptor, bomb, 1 << 20, "nested deeper than 64");
    free(bomb);
}

/* A module of n empty rows. */
static bool reads_rows(size_t n)
{
    static const char HEAD[] = "{\"module\":{\"rows\":[{}", TAIL[] = "]}}";
    char *json = malloc(sizeof(HEAD) + 3 * n + sizeof(TAIL)), *p = stpcpy(json, HEAD);
    for (size_t i = 1; i < n; i++) {
        memcpy(p, ",{}", 3);
        p += 3;
    }
    p = stpcpy(p, TAIL);
    void *m = protojson_parse(&plimsoll__v1__run_request__descriptor, json, (size_t)(p - json), error);
    free(json);
    drop(m);
    return m != NULL;
}

/* Whether n empty rows are within PROTOJSON_MEMORY_BASE and _FACTOR: each piece and 16 bytes more for it. */
static bool rows_fit(size_t n)
{
    size_t body = strlen("{\"module\":{\"rows\":[") + 3 * n - 1 + strlen("]}}");
    size_t need = sizeof(Plimsoll__V1__ModuleRun) + 16 + n * (sizeof(Plimsoll__V1__ModuleRow) + 16);
    for (size_t capacity = 0; capacity < n;) {
        size_t more = capacity == 0 ? 4 : capacity;
        need += more * sizeof(void *) + 16;
        capacity += more;
    }
    return need <= PROTOJSON_MEMORY_BASE + PROTOJSON_MEMORY_FACTOR * body;
}

static void test_memory_limit(void **state)
{
    (void)state;
    size_t n = 1;
    while (rows_fit(n + 1))
        n++;
    assert_true(n > 100000);
    assert_true(reads_rows(n - 1));
    assert_true(reads_rows(n));
    assert_false(reads_rows(n + 1));
}

static void test_memory_is_bounded_by_the_body(void **state)
{
    (void)state;
    enum { MANY = 2000000 };
    char *json = malloc((size_t)MANY * 3 + 64), *p = json;
    p += sprintf(p, "{\"module\":{\"rows\":[{}");
    for (int i = 1; i < MANY; i++) {
        memcpy(p, ",{}", 3);
        p += 3;
    }
    strcpy(p, "]}}");
    malformed(json, "more memory");
    free(json);
    /* 100 000 rows, the most a module may have, of one value each */
    json = malloc(100000 * 16 + 64);
    p = json + sprintf(json, "{\"module\":{\"rows\":[{\"values\":[1]}");
    for (int i = 1; i < 100000; i++)
        p = stpcpy(p, ",{\"values\":[1]}");
    strcpy(p, "]}}");
    Plimsoll__V1__RunRequest *m = request(json);
    assert_int_equal(m->module->n_rows, 100000);
    drop(m);
    free(json);
}

/* Every prefix of a body with everything in it is malformed, and costs nothing but time. */
static void test_cut_bodies(void **state)
{
    (void)state;
    static const char JSON[] = "{\"protocol\":\"3\",\"softwareRule\":{\"mode\":\"exact\",\"identities\":[\"a\\u00e9\","
                               "\"b\"]},\"x\":[{\"y\":-1.5e3}],"
                               "\"project\":{\"files\":[{\"path\":\"p\",\"content\":\"\\ud83d\\ude42\"},{}],\"steps\":["
                               "\"\",\"s\"],\"artifacts\":[]}}";
    for (size_t len = 0; len < strlen(JSON); len++)
        malformed_(__LINE__, &plimsoll__v1__run_request__descriptor, JSON, len, "");
    drop(request(JSON));
    static const char RESPONSE[] =
        "{\"javascript\":{\"stdout\":\"aGk\\u003d\",\"advice\":[{\"extraCalls\":\"1\"}]},\"record\":{\"sequence\":1}}";
    for (size_t len = 0; len < strlen(RESPONSE); len++)
        malformed_(__LINE__, &plimsoll__v1__run_response__descriptor, RESPONSE, len, "");
    drop(read_(&plimsoll__v1__run_response__descriptor, RESPONSE, strlen(RESPONSE)));
}

static void test_errors_do_not_repeat_the_body(void **state)
{
    (void)state;
    malformed("{\"minimumIsolation\":\"SECRETSECRET\\x\"}", "minimum_isolation");
    assert_null(strstr(error, "SECRET"));
    malformed("{\"SECRETSECRET\":SECRET}", "");
    assert_null(strstr(error, "SECRET"));
    malformed("{\"timeoutMs\":\"SECRET\"}", "timeout_ms");
    assert_null(strstr(error, "SECRET"));
}

static void test_utf8(void **state)
{
    (void)state;
    /* The edges of RFC 3629 section 4. */
    static const char *const GOOD[] = {
        "\x7f",         "\xc2\x80",         "\xdf\xbf",         "\xe0\xa0\x80",     "\xed\x9f\xbf",   "\xee\x80\x80",
        "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "01234567\xc2\x80", "0123456\xc2\x80"};
    static const char *const BAD[] = {"\x80",
                                      "\xbf",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xc2",
                                      "\xc2\x7f",
                                      "\xc2\xc0",
                                      "\xe0\x9f\xbf",
                                      "\xed\xa0\x80",
                                      "\xed\xbf\xbf",
                                      "\xef\xbf",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xf8\x88\x80\x80\x80",
                                      "\xff",
                                      "01234567\x80",
                                      "0123456\xc2"};
    for (size_t i = 0; i < sizeof(GOOD) / sizeof(GOOD[0]); i++)
        assert_true(utf8_is_valid(GOOD[i], strlen(GOOD[i])));
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++)
        assert_false(utf8_is_valid(BAD[i], strlen(BAD[i])));
    assert_true(utf8_is_valid("a\0b", 3));
    assert_true(utf8_is_valid("", 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_in_both_spellings),
        cmocka_unit_test(test_other_spellings_are_other_members),
        cmocka_unit_test(test_null_is_absent),
        cmocka_unit_test(test_unknown_members_are_checked_and_ignored),
        cmocka_unit_test(test_duplicates),
        cmocka_unit_test(test_whole_body),
        cmocka_unit_test(test_32_bit_integers),
        cmocka_unit_test(test_64_bit_integers_are_exact),
        cmocka_unit_test(test_long_numbers),
        cmocka_unit_test(test_doubles),
        cmocka_unit_test(test_doubles_print_shortest),
        cmocka_unit_test(test_every_printed_double_reads_back),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_text_with_nul),
        cmocka_unit_test(test_string_ends_are_found_in_every_word),
        cmocka_unit_test(test_strings_print),
        cmocka_unit_test(test_print_stops_at_the_limit),
        cmocka_unit_test(test_enums),
        cmocka_unit_test(test_bools),
        cmocka_unit_test(test_base64),
        cmocka_unit_test(test_base64_of_every_length),
        cmocka_unit_test(test_set_messages_are_printed),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_memory_limit),
        cmocka_unit_test(test_memory_is_bounded_by_the_body),
        cmocka_unit_test(test_cut_bodies),
        cmocka_unit_test(test_errors_do_not_repeat_the_body),
        cmocka_unit_test(test_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
