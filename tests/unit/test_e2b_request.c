/* What goes to E2B, to the byte where the interface's specification has the bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "backends/e2b/e2b_internal.h"
#include "backends/e2b/request.h"
#include "backends/e2b/upload.h"
#include "core/random.h"

#define STAMP "0123456789abcdef0123456789abcdef"
#define INSTALLATION "00112233445566778899aabbccddeeff"

static buffer_t out;

static int begin(void **state)
{
    (void)state;
    random_init();
    buffer_init(&out, 64 * 1024);
    return 0;
}

static int end(void **state)
{
    (void)state;
    buffer_dispose(&out);
    return 0;
}

static void test_a_create(void **state)
{
    (void)state;
    e2b_create_request_t request = {.flavour = E2B_FLAVOUR_V2,
                                    .template = "team/node:3",
                                    .life_s = 70,
                                    .installation = INSTALLATION,
                                    .stamp = STAMP,
                                    .kind = "run"};
    assert_true(e2b_create_body(&request, &out));
    json_t *json = json_loadb((const char *)out.base, out.len, JSON_REJECT_DUPLICATES, NULL);
    json_t *right =
        json_loads("{\"templateID\":\"team/node:3\",\"timeout\":70,\"autoPause\":false,"
                   "\"allow_internet_access\":false,\"network\":{\"denyOut\":[\"0.0.0.0/0\"],"
                   "\"allowPublicTraffic\":false},\"metadata\":{\"gw\":\"plimsoll\",\"gw_instance\":\"" INSTALLATION
                   "\",\"gw_lease\":\"" STAMP "\",\"gw_kind\":\"run\"}}",
                   0, NULL);
    assert_true(json_equal(json, right));
    json_decref(json);
    assert_string_equal(e2b_create_path(request.flavour), "/v2/sandboxes");
    /* the older form says that it wants a secured daemon */
    request.flavour = E2B_FLAVOUR_V1;
    buffer_clear(&out);
    assert_true(e2b_create_body(&request, &out));
    json = json_loadb((const char *)out.base, out.len, JSON_REJECT_DUPLICATES, NULL);
    json_object_set_new(right, "secure", json_true());
    assert_true(json_equal(json, right));
    assert_string_equal(e2b_create_path(request.flavour), "/sandboxes");
    json_decref(json);
    json_decref(right);
    request.stamp = "A";
    assert_false(e2b_create_body(&request, &out));
    request.stamp = STAMP;
    request.life_s = 0; /* the service refuses it */
    assert_false(e2b_create_body(&request, &out));
}

/* The service undoes the escapes of `metadata` three times: nothing in it changes by that. */
static void test_a_listing(void **state)
{
    (void)state;
    assert_true(e2b_list_path(INSTALLATION, NULL, NULL, &out));
    assert_string_equal((char *)out.base,
                        "/v2/sandboxes?state=running,paused&limit=100&metadata=gw_instance%3D" INSTALLATION);
    buffer_clear(&out);
    assert_true(e2b_list_path(INSTALLATION, STAMP, "a b&c/%=", &out));
    assert_string_equal((char *)out.base,
                        "/v2/sandboxes?state=running,paused&limit=100&metadata=gw_instance%3D" INSTALLATION
                        "%26gw_lease%3D" STAMP "&nextToken=a%20b%26c%2F%25%3D");
    assert_false(e2b_list_path("a&b", NULL, NULL, &out) || e2b_list_path(INSTALLATION, "a=b", NULL, &out));
}

static void test_a_start(void **state)
{
    (void)state;
    static const char *const argv[] = {"node", "/home/user/project/main.cjs"};
    e2b_command_t command = {.argv = argv, .argc = 2, .cwd = "/home/user/project"};
    static const char right[] = "{\"process\":{\"cmd\":\"node\",\"args\":[\"/home/user/project/main.cjs\"],"
                                "\"cwd\":\"/home/user/project\"},\"stdin\":false}";
    assert_true(e2b_start_body(&command, &out));
    assert_string_equal((char *)out.base, right);
    assert_int_equal(out.len, 106); /* spec: its envelope is 00 00 00 00 6A + 106 bytes */
    static const char *const bad[] = {"node", "\xff"};
    command.argv = bad;
    assert_false(e2b_start_body(&command, &out));
}

static void test_times(void **state)
{
    (void)state;
    assert_int_equal(e2b_timeout_ms(0), 1); /* 0 would be "no limit" */
    assert_int_equal(e2b_timeout_ms(1), 1);
    assert_int_equal(e2b_timeout_ms(1000), 1);
    assert_int_equal(e2b_timeout_ms(1001), 2);
    assert_int_equal(e2b_timeout_ms(30000000), 30000);
    assert_int_equal(e2b_timeout_ms(UINT64_MAX), UINT32_MAX); /* ten digits */
    assert_int_equal(e2b_life_s(15000, 30000, 15000), 70);
    assert_int_equal(e2b_life_s(15000, 30001, 15000), 71);
}

static void test_paths(void **state)
{
    (void)state;
    assert_true(e2b_path_body("/home/user/project/\xc3\xa4 b", &out));
    assert_string_equal((char *)out.base, "{\"path\":\"/home/user/project/\xc3\xa4 b\"}");
    buffer_clear(&out);
    assert_true(e2b_file_path("/home/user/project/\xc3\xa4 b&c", &out));
    assert_string_equal((char *)out.base, "/files?path=%2Fhome%2Fuser%2Fproject%2F%C3%A4%20b%26c&username=user");
}

/* One host for all, or one for each: the ID is a part of its name. */
static void test_where_a_daemon_is(void **state)
{
    (void)state;
    e2b_t e2b = {.domain = "e2b.app", .sandboxes = "https://sandbox.e2b.app"};
    cloud_box_t box = {.id = "iabc"};
    assert_true(e2b_guest_url(&e2b, &box, "/health", &out));
    assert_string_equal((char *)out.base, "https://sandbox.e2b.app/health");
    buffer_clear(&out);
    e2b.sandboxes[0] = '\0';
    assert_true(e2b_guest_url(&e2b, &box, "/process.Process/Start", &out));
    assert_string_equal((char *)out.base, "https://49983-iabc.e2b.app/process.Process/Start");
}

/* The routing pair is on every call, and the token on a line of its own that is wiped. */
static void test_headers(void **state)
{
    (void)state;
    static e2b_headers_t headers;
    char token[] = "tok";
    e2b_box_t own = {.token = token};
    cloud_box_t box = {.id = "iabc", .own = &own};
    e2b_headers_begin(&headers, &box);
    e2b_headers_add(&headers, "Connect-Timeout-Ms: %u", 5u);
    assert_int_equal(headers.count, 5);
    assert_string_equal(headers.lines[0], "E2b-Sandbox-Id: iabc");
    assert_string_equal(headers.lines[1], "E2b-Sandbox-Port: 49983");
    assert_string_equal(headers.lines[3], "X-Access-Token: tok");
    assert_string_equal(headers.lines[4], "Connect-Timeout-Ms: 5");
    e2b_headers_wipe(&headers);
    assert_null(headers.token.line);
}

static void test_an_upload(void **state)
{
    (void)state;
    assert_true(e2b_upload_add(&out, "B", "/tmp/a", "x\0y", 3) && e2b_upload_add(&out, "B", "/tmp/b", "", 0) &&
                e2b_upload_end(&out, "B"));
    static const char right[] =
        "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/tmp/a\"\r\nContent-Type: "
        "application/octet-stream\r\n\r\nx\0y\r\n"
        "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/tmp/b\"\r\nContent-Type: "
        "application/octet-stream\r\n\r\n\r\n--B--\r\n";
    assert_int_equal(out.len, sizeof(right) - 1);
    assert_memory_equal(out.base, right, out.len);
    char one[E2B_BOUNDARY + 1], other[E2B_BOUNDARY + 1];
    e2b_boundary(one);
    e2b_boundary(other);
    assert_int_equal(strlen(one), E2B_BOUNDARY);
    assert_string_not_equal(one, other);
}

static void test_names_of_parts(void **state)
{
    (void)state;
    static const char *const wrong[] = {"a", "", "/a\"b", "/a\\b", "/a\rb", "/a\nb", "/a\x7f", "/a\xff", "/a\x01"};
    char path[E2B_PATH_MAX + 2];
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
        assert_false(e2b_is_part_name(wrong[i]));
        assert_false(e2b_upload_add(&out, "B", wrong[i], "", 0));
    }
    for (int over = -1; over <= 1; ++over) {
        memset(path, 'a', sizeof(path));
        path[0] = '/';
        path[E2B_PATH_MAX + over] = '\0';
        assert_int_equal(e2b_is_part_name(path), over <= 0);
    }
    assert_true(e2b_is_part_name("/home/user/project/\xc3\xa4 %22"));
}

static void test_hashes_of_what_arrived(void **state)
{
    (void)state;
    static const char *const paths[] = {"/p/a", "/p/b"};
    static char hashes[2][SHA256_HEX + 1];
    char text[512], why[E2B_TEXT_MAX];
    sha256_hex("", 0, hashes[0]);
    sha256_hex("abc", 3, hashes[1]); /* FIPS 180-4's example */
    assert_string_equal(hashes[1], "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    snprintf(text, sizeof(text), "%s  /p/a\n%s *%s\n", hashes[0], hashes[1], paths[1]);
    assert_true(e2b_hashes_match(text, strlen(text), paths, hashes, 2, why));
    assert_false(e2b_hashes_match(text, strlen(text) - 1, paths, hashes, 2, why));
    assert_non_null(strstr(why, "/p/b"));
    assert_false(e2b_hashes_match(text, strlen(text), paths, hashes, 1, why)); /* more than was asked */
    snprintf(text, sizeof(text), "%s  /p/a\n%s  %s\n", hashes[1], hashes[1], paths[1]);
    assert_false(e2b_hashes_match(text, strlen(text), paths, hashes, 2, why)); /* another content */
    assert_non_null(strstr(why, "/p/a"));
    snprintf(text, sizeof(text), "%s  /p/b\n%s  /p/a\n", hashes[0], hashes[1]);
    assert_false(e2b_hashes_match(text, strlen(text), paths, hashes, 2, why));
    assert_false(e2b_hashes_match("", 0, paths, hashes, 2, why));
    assert_true(e2b_hashes_match("", 0, paths, hashes, 0, why));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_create, begin, end),
        cmocka_unit_test_setup_teardown(test_a_listing, begin, end),
        cmocka_unit_test_setup_teardown(test_a_start, begin, end),
        cmocka_unit_test_setup_teardown(test_times, begin, end),
        cmocka_unit_test_setup_teardown(test_paths, begin, end),
        cmocka_unit_test_setup_teardown(test_where_a_daemon_is, begin, end),
        cmocka_unit_test_setup_teardown(test_headers, begin, end),
        cmocka_unit_test_setup_teardown(test_an_upload, begin, end),
        cmocka_unit_test_setup_teardown(test_names_of_parts, begin, end),
        cmocka_unit_test_setup_teardown(test_hashes_of_what_arrived, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
