/* What E2B answers, right and wrong: forms of the interface's specification (1.1, 1.5 to 1.10, 2.7, 2.8). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backends/e2b/answer.h"

#define STAMP "0123456789abcdef0123456789abcdef"
#define OTHER "ffffffffffffffffffffffffffffffff"
#define INSTALLATION "00112233445566778899aabbccddeeff"
#define ID "iabcdefghij0123456789"

static char why[E2B_TEXT_MAX];

/* --- created --- */

static e2b_created_end_t created(const char *text, e2b_created_t *out)
{
    static const char *const more[] = {"e2b.example", NULL};
    e2b_created_rules_t rules = {.domain = "e2b.app", .more_domains = more};
    return e2b_created_read(text, strlen(text), &rules, out, why);
}

static void test_a_created_sandbox(void **state)
{
    (void)state;
    e2b_created_t out;
    assert_int_equal(created("{\"sandboxID\":\"" ID "\",\"envdAccessToken\":\"tok\",\"trafficAccessToken\":\"tra\","
                             "\"envdVersion\":\"0.6.13\",\"domain\":null,\"templateID\":\"base\",\"clientID\":\"x\"}",
                             &out),
                     E2B_CREATED_USABLE);
    assert_string_equal(out.id, ID);
    assert_string_equal(out.token, "tok");
    assert_int_equal(out.version.minor, 6);
    assert_int_equal(out.version.patch, 13);
    assert_string_equal(why, "");
}

static void test_a_created_sandbox_that_must_go(void **state)
{
    (void)state;
    static const char *const flawed[] = {
        "{\"sandboxID\":\"" ID "\",\"trafficAccessToken\":\"tra\",\"envdVersion\":\"0.6.13\"}",
        "{\"sandboxID\":\"" ID "\",\"envdAccessToken\":\"tok\",\"envdVersion\":\"0.6.13\"}",
        "{\"sandboxID\":\"" ID "\",\"envdAccessToken\":\"tok\",\"trafficAccessToken\":null,\"envdVersion\":\"0.6.13\"}",
        "{\"sandboxID\":\"" ID "\",\"envdAccessToken\":\"\",\"trafficAccessToken\":\"t\",\"envdVersion\":\"0.6.13\"}",
        "{\"sandboxID\":\"" ID "\",\"envdAccessToken\":\"a\\r\\nX: y\",\"trafficAccessToken\":\"t\",\"envdVersion\":"
        "\"0.6.13\"}",
        "{\"sandboxID\":\"" ID "\",\"envdAccessToken\":7,\"trafficAccessToken\":\"t\",\"envdVersion\":\"0.6.13\"}",
        "{\"sandboxID\":\"" ID "\",\"envdAccessToken\":\"a\",\"trafficAccessToken\":\"t\"}",
        "{\"sandboxID\":\"" ID "\",\"envdAccessToken\":\"a\",\"trafficAccessToken\":\"t\",\"envdVersion\":\"new\"}",
        "{\"sandboxID\":\"" ID "\",\"envdAccessToken\":\"a\",\"trafficAccessToken\":\"t\",\"envdVersion\":\"0.6.13\","
        "\"domain\":\"evil.example\"}",
        "{\"sandboxID\":\"" ID "\",\"envdAccessToken\":\"a\",\"trafficAccessToken\":\"t\",\"envdVersion\":\"0.6.13\","
        "\"domain\":5}",
    };
    e2b_created_t out;
    for (size_t i = 0; i < sizeof(flawed) / sizeof(flawed[0]); ++i) {
        assert_int_equal(created(flawed[i], &out), E2B_CREATED_FLAWED);
        assert_string_equal(out.id, ID);
        assert_string_not_equal(why, "");
    }
}

static void test_a_domain_that_an_operator_listed(void **state)
{
    (void)state;
    e2b_created_t out;
    assert_int_equal(created("{\"sandboxID\":\"" ID "\",\"envdAccessToken\":\"a\",\"trafficAccessToken\":\"t\","
                             "\"envdVersion\":\"0.6.13\",\"domain\":\"e2b.example\"}",
                             &out),
                     E2B_CREATED_USABLE);
}

static void test_an_answer_that_names_no_sandbox(void **state)
{
    (void)state;
    static const char *const unreadable[] = {
        "",
        "{",
        "[]",
        "null",
        "\"" ID "\"",
        "{}",
        "{\"sandboxID\":null}",
        "{\"sandboxID\":7}",
        "{\"sandboxID\":\"\"}",
        "{\"sandboxID\":\"a/b\"}",
        "{\"sandboxID\":\"..\"}",
        "{\"sandboxID\":\"a b\"}",
        "{\"sandboxID\":\"" ID "\",\"sandboxID\":\"" ID "\"}", /* which of them? */
        "{\"sandboxID\":\"" ID "\"} x",
        "<html>502</html>",
    };
    e2b_created_t out;
    for (size_t i = 0; i < sizeof(unreadable) / sizeof(unreadable[0]); ++i) {
        assert_int_equal(created(unreadable[i], &out), E2B_CREATED_UNREADABLE);
        assert_string_equal(out.id, "");
        assert_string_not_equal(why, "");
    }
}

/* Tokens of 4,096 bytes and IDs of 128 are taken, one more is not. */
static void test_the_limits_of_a_created_sandbox(void **state)
{
    (void)state;
    static char text[3 * E2B_TOKEN_MAX], token[E2B_TOKEN_MAX + 2], id[E2B_ID_MAX + 2];
    e2b_created_t out;
    memset(token, 't', E2B_TOKEN_MAX + 1);
    memset(id, 'i', E2B_ID_MAX + 1);
    for (int over = -1; over <= 1; ++over) {
        snprintf(
            text, sizeof(text),
            "{\"sandboxID\":\"a\",\"envdAccessToken\":\"%.*s\",\"trafficAccessToken\":\"t\",\"envdVersion\":\"1.0.0\"}",
            E2B_TOKEN_MAX + over, token);
        assert_int_equal(created(text, &out), over > 0 ? E2B_CREATED_FLAWED : E2B_CREATED_USABLE);
        snprintf(
            text, sizeof(text),
            "{\"sandboxID\":\"%.*s\",\"envdAccessToken\":\"t\",\"trafficAccessToken\":\"t\",\"envdVersion\":\"1.0.0\"}",
            E2B_ID_MAX + over, id);
        assert_int_equal(created(text, &out), over > 0 ? E2B_CREATED_UNREADABLE : E2B_CREATED_USABLE);
    }
    id[E2B_LABEL_ID_MAX + 1] = '\0';
    assert_false(e2b_is_label_id(id));
    id[E2B_LABEL_ID_MAX] = '\0';
    assert_true(e2b_is_label_id(id));
    assert_false(e2b_is_label_id("i-"));
}

static void test_versions(void **state)
{
    (void)state;
    e2b_version_t version;
    assert_true(e2b_version_read("0.5.2", &version));
    assert_true(e2b_version_reaches(&version, 0, 5, 2) && !e2b_version_reaches(&version, 0, 5, 3));
    assert_true(e2b_version_read("0.10.0-rc1", &version)); /* numbers, not letters: 10 is past 5 */
    assert_true(e2b_version_reaches(&version, 0, 5, 13));
    assert_true(e2b_version_read("1.0.0", &version) && e2b_version_reaches(&version, 0, 99, 0));
    assert_false(e2b_version_read("0.5", &version) || e2b_version_read("v0.5.2", &version) ||
                 e2b_version_read("0.5.2x", &version) || e2b_version_read("0.5.99999999999999999999", &version) ||
                 e2b_version_read("", &version) || e2b_version_read("-1.0.0", &version));
}

/* --- detail --- */

#define STAMPS                                                                                                         \
    "{\"gw\":\"plimsoll\",\"gw_instance\":\"" INSTALLATION "\",\"gw_lease\":\"" STAMP "\",\"gw_kind\":\"run\"}"
#define NETWORK "{\"denyOut\":[\"0.0.0.0/0\"],\"allowPublicTraffic\":false}"
#define DETAIL(id, state, metadata, sizes, network, more)                                                              \
    "{\"sandboxID\":\"" id "\",\"state\":\"" state "\",\"metadata\":" metadata "," sizes ",\"network\":" network more  \
    "}"
#define SIZES "\"cpuCount\":2,\"memoryMB\":512,\"diskSizeMB\":1024"

static const e2b_expected_t EXPECTED = {
    .id = ID, .installation = INSTALLATION, .stamp = STAMP, .cpus_max = 2, .memory_max_mb = 512, .disk_max_mb = 1024};

static e2b_detail_end_t detail(const char *text, e2b_size_t *size)
{
    return e2b_detail_read(text, strlen(text), &EXPECTED, size, why);
}

static void test_a_record_that_is_right(void **state)
{
    (void)state;
    static const char *const right[] = {
        DETAIL(ID, "running", STAMPS, SIZES, NETWORK, ""),
        DETAIL(ID, "running", STAMPS, SIZES, NETWORK, ",\"lifecycle\":{\"autoResume\":false,\"onTimeout\":\"kill\"}"),
        DETAIL(ID, "running", STAMPS, SIZES, NETWORK, ",\"lifecycle\":null,\"allowInternetAccess\":false"),
        DETAIL(ID, "running", STAMPS, "\"cpuCount\":1,\"memoryMB\":1,\"diskSizeMB\":0",
               "{\"denyOut\":[\"10.0.0.0/8\",\"0.0.0.0/0\"],\"allowOut\":[],\"rules\":{},\"egressProxy\":null,"
               "\"allowPublicTraffic\":false}",
               ""),
    };
    e2b_size_t size;
    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); ++i) {
        assert_int_equal(detail(right[i], &size), E2B_DETAIL_RIGHT);
        assert_string_equal(why, "");
    }
    assert_int_equal(detail(right[0], &size), E2B_DETAIL_RIGHT);
    assert_true(size.cpus == 2 && size.memory_mb == 512 && size.disk_mb == 1024);
}

static void test_a_record_that_differs(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        DETAIL("iother", "running", STAMPS, SIZES, NETWORK, ""),
        DETAIL(ID, "paused", STAMPS, SIZES, NETWORK, ""),
        DETAIL(ID, "running", "{}", SIZES, NETWORK, ""),
        DETAIL(ID, "running", "null", SIZES, NETWORK, ""),
        DETAIL(ID, "running", "{\"gw\":\"plimsoll\",\"gw_instance\":\"" INSTALLATION "\",\"gw_lease\":\"" OTHER "\"}",
               SIZES, NETWORK, ""),
        DETAIL(ID, "running", "{\"gw\":\"plimsoll\",\"gw_instance\":\"" OTHER "\",\"gw_lease\":\"" STAMP "\"}", SIZES,
               NETWORK, ""),
        DETAIL(ID, "running", STAMPS, "\"cpuCount\":3,\"memoryMB\":512,\"diskSizeMB\":0", NETWORK, ""),
        DETAIL(ID, "running", STAMPS, "\"cpuCount\":2,\"memoryMB\":513,\"diskSizeMB\":0", NETWORK, ""),
        DETAIL(ID, "running", STAMPS, "\"cpuCount\":2,\"memoryMB\":512,\"diskSizeMB\":1025", NETWORK, ""),
        DETAIL(ID, "running", STAMPS, "\"cpuCount\":0,\"memoryMB\":512,\"diskSizeMB\":0", NETWORK, ""),
        DETAIL(ID, "running", STAMPS, "\"cpuCount\":2,\"memoryMB\":-1,\"diskSizeMB\":0", NETWORK, ""),
        DETAIL(ID, "running", STAMPS, "\"cpuCount\":2,\"memoryMB\":512", NETWORK, ""), /* an absent disk fails */
        DETAIL(ID, "running", STAMPS, "\"cpuCount\":1.5,\"memoryMB\":512,\"diskSizeMB\":0", NETWORK, ""),
        DETAIL(ID, "running", STAMPS, SIZES, "null", ""),
        DETAIL(ID, "running", STAMPS, SIZES, "{}", ""),
        DETAIL(ID, "running", STAMPS, SIZES, "{\"denyOut\":[\"10.0.0.0/8\"],\"allowPublicTraffic\":false}", ""),
        DETAIL(ID, "running", STAMPS, SIZES, "{\"denyOut\":[\"0.0.0.0/0\"],\"allowPublicTraffic\":true}", ""),
        DETAIL(ID, "running", STAMPS, SIZES, "{\"denyOut\":[\"0.0.0.0/0\"]}", ""), /* its default is open */
        DETAIL(ID, "running", STAMPS, SIZES,
               "{\"denyOut\":[\"0.0.0.0/0\"],\"allowOut\":[\"example.com\"],\"allowPublicTraffic\":false}", ""),
        DETAIL(ID, "running", STAMPS, SIZES,
               "{\"denyOut\":[\"0.0.0.0/0\"],\"rules\":{\"a.example\":[{}]},\"allowPublicTraffic\":false}", ""),
        DETAIL(ID, "running", STAMPS, SIZES,
               "{\"denyOut\":[\"0.0.0.0/0\"],\"egressProxy\":{\"address\":\"x\"},\"allowPublicTraffic\":false}", ""),
        DETAIL(ID, "running", STAMPS, SIZES, NETWORK, ",\"allowInternetAccess\":true"),
        DETAIL(ID, "running", STAMPS, SIZES, NETWORK, ",\"lifecycle\":{\"onTimeout\":\"pause\"}"),
        DETAIL(ID, "running", STAMPS, SIZES, NETWORK, ",\"lifecycle\":{\"autoResume\":true,\"onTimeout\":\"kill\"}"),
    };
    e2b_size_t size;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
        assert_int_equal(detail(wrong[i], &size), E2B_DETAIL_DIFFERS);
        assert_string_not_equal(why, "");
    }
    assert_int_equal(detail("[]", &size), E2B_DETAIL_UNREADABLE);
    assert_int_equal(detail("{\"state\":", &size), E2B_DETAIL_UNREADABLE);
    assert_int_equal(detail("", &size), E2B_DETAIL_UNREADABLE);
}

static void test_whose_record_it_is(void **state)
{
    (void)state;
    static const char ours[] = "{\"sandboxID\":\"" ID "\",\"metadata\":" STAMPS "}";
    static const char foreign[] =
        "{\"sandboxID\":\"" ID "\",\"metadata\":{\"gw\":\"other\",\"gw_instance\":\"" INSTALLATION
        "\",\"gw_lease\":\"" STAMP "\"}}";
    assert_true(e2b_detail_is_ours(ours, strlen(ours), &EXPECTED, why));
    assert_false(e2b_detail_is_ours(foreign, strlen(foreign), &EXPECTED, why));
    assert_false(e2b_detail_is_ours("{}", 2, &EXPECTED, why));
    assert_false(e2b_detail_is_ours("", 0, &EXPECTED, why));
}

/* --- listing --- */

static char listed[256];

static void on_listed(void *data, const char *id, const char *stamp)
{
    (void)data;
    size_t len = strlen(listed);
    snprintf(listed + len, sizeof(listed) - len, "%s=%.4s;", id, stamp);
}

static bool page(const char *text, const char *stamp)
{
    listed[0] = '\0';
    return e2b_page_read(text, strlen(text), INSTALLATION, stamp, on_listed, NULL, why);
}

static void test_a_page_tells_of_ours_alone(void **state)
{
    (void)state;
    static const char text[] =
        "[{\"sandboxID\":\"a\",\"metadata\":" STAMPS "},{\"sandboxID\":\"b\"},{\"sandboxID\":\"c\",\"metadata\":null},"
        "{\"sandboxID\":\"d\",\"metadata\":{\"gw\":\"plimsoll\",\"gw_instance\":\"" OTHER "\",\"gw_lease\":\"" STAMP
        "\"}},"
        "{\"sandboxID\":\"e\",\"metadata\":{\"gw\":\"plimsoll\",\"gw_instance\":\"" INSTALLATION
        "\",\"gw_lease\":\"not a stamp\"}},"
        "{\"sandboxID\":\"f\",\"metadata\":{\"gw\":\"plimsoll\",\"gw_instance\":\"" INSTALLATION
        "\",\"gw_lease\":\"" OTHER "\"}}]";
    assert_true(page(text, NULL));
    assert_string_equal(listed, "a=0123;f=ffff;");
    assert_true(page(text, OTHER));
    assert_string_equal(listed, "f=ffff;");
    assert_true(page("[]", NULL));
    assert_string_equal(listed, "");
}

/* A page that is wrong somewhere says nothing: what it left out is not known. */
static void test_a_page_that_is_none(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",
        "{}",
        "null",
        "[{\"sandboxID\":\"a\",\"metadata\":" STAMPS "},7]",
        "[{\"sandboxID\":\"../a\"}]",
        "[{\"metadata\":" STAMPS "}]",
        "[{\"sandboxID\":\"a\",\"metadata\":[]}]",
        "[{\"sandboxID\":\"a\"}",
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
        assert_false(page(wrong[i], NULL));
        assert_string_equal(listed, "");
        assert_string_not_equal(why, "");
    }
}

/* --- errors and the end of a create --- */

static e2b_create_end_t judge(int status, const char *body, uint32_t retry_after_ms)
{
    return e2b_create_judge(status, body, strlen(body), retry_after_ms);
}

static void test_what_a_create_came_to(void **state)
{
    (void)state;
    assert_int_equal(judge(201, "{}", 0), E2B_CREATE_ANSWERED);
    assert_int_equal(judge(400, "{\"code\":400,\"message\":\"Timeout must be greater than 0\"}", 0), E2B_CREATE_DENIED);
    assert_int_equal(judge(401, "", 0), E2B_CREATE_DENIED);
    assert_int_equal(judge(404, "<html>", 0), E2B_CREATE_DENIED);
    /* certainly nothing, or perhaps one */
    static const int unknown[] = {200, 202, 204, 301, 302, 307, 408, 499, 500, 502, 503, 504, 100};
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); ++i)
        assert_int_equal(judge(unknown[i], "{\"code\":503,\"message\":\"Failed to place sandbox\"}", 1000),
                         E2B_CREATE_UNKNOWN);
}

static void test_the_three_shapes_of_too_many(void **state)
{
    (void)state;
    static const char full[] = "{\"code\":429,\"message\":\"you have reached the maximum number of concurrent E2B "
                               "sandboxes (20). If you need\"}";
    assert_int_equal(judge(429, full, 0), E2B_CREATE_FULL);
    assert_int_equal(judge(429, full, 7000), E2B_CREATE_FULL);
    assert_int_equal(judge(429, "{\"code\":429,\"message\":\"Rate limit exceeded\"}", 1000), E2B_CREATE_THROTTLED);
    assert_int_equal(judge(429, "Rate limit exceeded", 1000), E2B_CREATE_THROTTLED);
    /* the edge's own: what became of the request behind it is not known */
    assert_int_equal(judge(429, "{\"code\":429,\"message\":\"Rate limit exceeded\"}", 0), E2B_CREATE_UNKNOWN);
    assert_int_equal(judge(429, "", 1000), E2B_CREATE_UNKNOWN);
    assert_int_equal(judge(429, "<html>slow down</html>", 1000), E2B_CREATE_UNKNOWN);
}

static void test_errors_of_every_form(void **state)
{
    (void)state;
    e2b_error_t error;
    static const char api[] = "{\"code\":503,\"message\":\"no room\",\"error_code\":\"sandbox_capacity_unavailable\"}";
    static const char connect[] = "{\"code\":\"unauthenticated\",\"message\":\"invalid username: 'x'\"}";
    e2b_error_read(api, strlen(api), NULL, &error);
    assert_true(error.is_shaped);
    assert_string_equal(error.message, "no room");
    assert_string_equal(error.code, "sandbox_capacity_unavailable");
    e2b_error_read(connect, strlen(connect), NULL, &error);
    assert_true(error.is_shaped);
    assert_string_equal(error.code, "unauthenticated");
    static const char *const others[] = {"",
                                         "<html>502</html>",
                                         "upstream request timeout",
                                         "[]",
                                         "{\"code\":1}",
                                         "{\"message\":\"x\"}",
                                         "{\"code\":1,\"message\":[]}"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); ++i) {
        e2b_error_read(others[i], strlen(others[i]), NULL, &error);
        assert_false(error.is_shaped);
        assert_string_equal(error.message, "");
    }
}

/* A sandbox's token may be any visible ASCII: it is known by its bytes, and taken out before the text is cut. */
static void test_our_secrets_are_taken_out_of_what_is_said(void **state)
{
    (void)state;
    static const char token[] = "not-hexadecimal~and,long";
    cloud_secrets_t secrets = {.count = 0};
    char text[1024];
    e2b_error_t error;
    cloud_secrets_add(&secrets, token);
    for (size_t before = 200; before < 260; ++before) {
        snprintf(text, sizeof(text), "{\"code\":401,\"message\":\"%*s%s\"}", (int)before, "x ", token);
        e2b_error_read(text, strlen(text), &secrets, &error);
        assert_true(error.is_shaped);
        assert_null(strstr(error.message, "not-hex"));
    }
}

/* --- files --- */

static const char *const PATHS[] = {"/home/user/project/a", "/home/user/project/b"};

static bool written(const char *text)
{
    return e2b_written_read(text, strlen(text), PATHS, 2, why);
}

static void test_what_an_upload_wrote(void **state)
{
    (void)state;
    assert_true(written("[{\"name\":\"a\",\"path\":\"/home/user/project/a\",\"type\":\"file\"},"
                        "{\"name\":\"b\",\"path\":\"/home/user/project/b\",\"type\":\"file\",\"metadata\":{}}]"));
    assert_false(written("[{\"path\":\"/home/user/project/a\",\"type\":\"file\"}]"));
    assert_string_equal(why, "not written: /home/user/project/b");
    assert_false(written("[{\"path\":\"/home/user/project/b\",\"type\":\"file\"},"
                         "{\"path\":\"/home/user/project/a\",\"type\":\"file\"}]"));
    assert_false(written("[{\"path\":\"/home/user/project/a\",\"type\":\"file\"},"
                         "{\"path\":\"/home/user/project/b\",\"type\":\"dir\"}]"));
    assert_false(written("[{\"path\":\"/home/user/project/a\",\"type\":\"file\"},"
                         "{\"path\":\"/home/user/project/b\",\"type\":\"file\"},"
                         "{\"path\":\"/etc/passwd\",\"type\":\"file\"}]"));
    assert_false(written("{}") || written("") || written("null"));
}

static e2b_stat_end_t stat_of(const char *text, uint64_t *size)
{
    return e2b_stat_read(text, strlen(text), size);
}

static void test_regular_files_and_others(void **state)
{
    (void)state;
    uint64_t size;
    assert_int_equal(stat_of("{\"entry\":{\"name\":\"a\",\"type\":\"FILE_TYPE_FILE\",\"path\":\"/a\",\"size\":\"12\","
                             "\"mode\":420,\"permissions\":\"-rw-r--r--\"}}",
                             &size),
                     E2B_STAT_FILE);
    assert_int_equal(size, 12);
    /* an empty file's size is left out */
    assert_int_equal(stat_of("{\"entry\":{\"type\":\"FILE_TYPE_FILE\",\"permissions\":\"-rw-r--r--\"}}", &size),
                     E2B_STAT_FILE);
    assert_int_equal(size, 0);
    static const char *const others[] = {
        "{\"entry\":{\"type\":\"FILE_TYPE_DIRECTORY\",\"permissions\":\"drwxr-xr-x\"}}",
        "{\"entry\":{\"type\":\"FILE_TYPE_FILE\",\"permissions\":\"Lrwxrwxrwx\",\"symlinkTarget\":\"/etc/passwd\"}}",
        "{\"entry\":{\"type\":\"FILE_TYPE_FILE\",\"permissions\":\"-rw-r--r--\",\"symlinkTarget\":\"/x\"}}",
        "{\"entry\":{\"permissions\":\"prw-r--r--\"}}", /* a FIFO has no type */
        "{\"entry\":{}}",
        "{\"entry\":{\"type\":\"FILE_TYPE_FILE\",\"permissions\":\"-rw-r--r--\",\"size\":\"-1\"}}",
        "{\"entry\":{\"type\":\"FILE_TYPE_FILE\",\"permissions\":\"-rw-r--r--\",\"size\":[]}}",
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); ++i)
        assert_int_equal(stat_of(others[i], &size), E2B_STAT_OTHER);
    assert_int_equal(stat_of("{}", &size), E2B_STAT_UNREADABLE);
    assert_int_equal(stat_of("<html>", &size), E2B_STAT_UNREADABLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_created_sandbox),
        cmocka_unit_test(test_a_created_sandbox_that_must_go),
        cmocka_unit_test(test_a_domain_that_an_operator_listed),
        cmocka_unit_test(test_an_answer_that_names_no_sandbox),
        cmocka_unit_test(test_the_limits_of_a_created_sandbox),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_a_record_that_is_right),
        cmocka_unit_test(test_a_record_that_differs),
        cmocka_unit_test(test_whose_record_it_is),
        cmocka_unit_test(test_a_page_tells_of_ours_alone),
        cmocka_unit_test(test_a_page_that_is_none),
        cmocka_unit_test(test_what_a_create_came_to),
        cmocka_unit_test(test_the_three_shapes_of_too_many),
        cmocka_unit_test(test_errors_of_every_form),
        cmocka_unit_test(test_our_secrets_are_taken_out_of_what_is_said),
        cmocka_unit_test(test_what_an_upload_wrote),
        cmocka_unit_test(test_regular_files_and_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
