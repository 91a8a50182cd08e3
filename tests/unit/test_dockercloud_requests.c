/* What is asked of the service, to the byte; the settings it follows from; and what a command's end means. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cloud/cloud_frames.h"
#include "backends/dockercloud/bearer.h"
#include "backends/dockercloud/commands.h"
#include "backends/dockercloud/requests.h"
#include "config/dockercloud.h"
#include "core/protojson.h"
#include "options_fixture.h"

#define NAME "gw-0123456789abcdef01234567-000102030405060708090a0b0c0d0e0f"

static void is_body(buffer_t *out, bool fits, const char *text)
{
    assert_true(fits);
    assert_string_equal((const char *)out->base, text);
    buffer_dispose(out);
}

static void creates(void **state)
{
    dc_settings_t settings = {.api = DC_REST, .image = "r.example/i@sha256:aa", .size = {"small", 2, 4096}};
    buffer_t out;
    (void)state;
    buffer_init(&out, DC_BODY_MAX);
    is_body(&out, dc_ask_create(&out, &settings, NAME, 149001),
            "{\"displayName\":\"" NAME
            "\",\"imageRef\":\"r.example/i@sha256:aa\",\"platform\":{\"os\":\"linux\",\"architecture\":\"amd64\"},"
            "\"resources\":{\"cpus\":2,\"memoryMib\":4096},\"startupExecution\":{\"rawImage\":{\"start\":{\"argv\":["
            "\"tail\",\"-f\",\"/dev/null\"]}}},"
            "\"features\":{\"timeouts\":{\"timeout\":\"150s\",\"onTimeout\":\"delete\",\"autoResume\":false}}}");
    settings.api = DC_CONNECT;
    is_body(&out, dc_ask_create(&out, &settings, NAME, 150000),
            "{\"name\":\"" NAME "\",\"requestId\":\"" NAME
            "\",\"cloud\":{\"imageRef\":\"r.example/i@sha256:aa\",\"startCmd\":[\"tail\",\"-f\",\"/dev/null\"],"
            "\"timeout\":\"150s\",\"onTimeout\":\"ON_TIMEOUT_DELETE\",\"autoResume\":false,\"platform\":{\"os\":"
            "\"linux\",\"architecture\":\"amd64\"}},"
            "\"resources\":{\"cpus\":2,\"memoryMib\":\"4096\"}}");
    settings.image[0] = '\0';
    strcpy(settings.store_image, "tmpl_1");
    is_body(&out, dc_ask_create(&out, &settings, NAME, 150000),
            "{\"name\":\"" NAME "\",\"requestId\":\"" NAME
            "\",\"image\":\"tmpl_1\",\"cloud\":{\"timeout\":\"150s\",\"onTimeout\":\"ON_TIMEOUT_DELETE\","
            "\"autoResume\":false,\"platform\":{\"os\":\"linux\",\"architecture\":\"amd64\"}}}");
    buffer_init(&out, 64);
    assert_false(dc_ask_create(&out, &settings, NAME, 150000));
    buffer_dispose(&out);
}

static void the_others(void **state)
{
    static const char *const argv[] = {"sh", "-c", "a \"b\"\n", NULL};
    buffer_t out;
    (void)state;
    buffer_init(&out, DC_BODY_MAX);
    is_body(&out, dc_ask_exchange(&out, "me", "dckr\"x"), "{\"identifier\":\"me\",\"secret\":\"dckr\\\"x\"}");
    is_body(&out, dc_ask_exec(&out, argv, NULL), "{\"cmd\":[\"sh\",\"-c\",\"a \\\"b\\\"\\n\"]}");
    is_body(&out, dc_ask_exec(&out, argv + 2, "/tmp"), "{\"cmd\":[\"a \\\"b\\\"\\n\"],\"workingDir\":\"/tmp\"}");
    is_body(&out, dc_ask_credential(&out),
            "{\"permissions\":[\"sandboxesExec\",\"sandboxesFilesWrite\",\"sandboxesFilesRead\"],\"ttl\":\"300s\"}");
    is_body(&out, dc_ask_get(&out, "sbx_1", NAME), "{\"sandbox\":{\"id\":\"sbx_1\"}}");
    is_body(&out, dc_ask_get(&out, "", NAME), "{\"sandbox\":{\"name\":\"" NAME "\"}}");
    is_body(&out, dc_ask_delete(&out, "sbx_1", NAME, 0),
            "{\"sandbox\":{\"id\":\"sbx_1\"},\"force\":true,\"requestId\":\"delete-" NAME "\"}");
    is_body(&out, dc_ask_delete(&out, "", NAME, 3),
            "{\"sandbox\":{\"name\":\"" NAME "\"},\"force\":true,\"requestId\":\"reap-3-" NAME "\"}");
    is_body(&out, dc_ask_policy(&out, "sbx_1"), "{\"target\":{\"sandbox\":{\"id\":\"sbx_1\"}}}");
    is_body(&out, dc_ask_operation(&out, "op", 10000), "{\"id\":\"op\",\"timeout\":\"10.000s\"}");
    is_body(&out, dc_ask_operation(&out, "op", 0), "{\"id\":\"op\"}");
    is_body(&out, dc_ask_page(&out, ""), "{\"pageSize\":100}");
    is_body(&out, dc_ask_page(&out, "n"), "{\"pageSize\":100,\"pageToken\":\"n\"}");
    is_body(&out, dc_page_query(&out, "a b&c"), "?pageSize=100&pageToken=a%20b%26c");
    is_body(&out, dc_url(&out, "https://a/p", "/v1/sandboxes/", "x/../y?"), "https://a/p/v1/sandboxes/x%2F..%2Fy%3F");
}

/* --- frames --- */

typedef struct {
    char text[1024];
    size_t count, bytes;
} frames_t;

static bool on_frame(void *data, const uint8_t *payload, size_t len, bool is_end)
{
    frames_t *frames = data;
    assert_false(is_end);
    ++frames->count;
    if (len < 128)
        snprintf(frames->text + strlen(frames->text), sizeof(frames->text) - strlen(frames->text), "%.*s", (int)len,
                 (const char *)payload);
    else
        frames->bytes += (len - strlen("{\"data\":\"\"}")) / 4 * 3;
    return true;
}

static void uploads(void **state)
{
    size_t large = 2 * DC_UPLOAD_PIECE + 3;
    char *content = calloc(1, large);
    const cloud_file_t files[] = {{.path = "/a", .content = "hi", .len = 2, .mode = 0644},
                                  {.path = "/empty", .len = 0, .mode = 0755},
                                  {.path = "/large", .content = content, .len = large, .mode = 0644}};
    frames_t seen = {.count = 0};
    cloud_frames_t frames;
    buffer_t out;
    (void)state;
    buffer_init(&out, DC_UPLOAD_MAX);
    assert_true(dc_upload_frames(&out, files, 3));
    cloud_frames_init(&frames, CLOUD_FRAME_MAX, CLOUD_FRAMES_TOTAL_MAX, on_frame, &seen);
    assert_int_equal(cloud_frames_take(&frames, out.base, out.len), CLOUD_FRAMES_MORE); /* no frame for the end */
    assert_string_equal(
        seen.text,
        "{\"header\":{\"path\":\"/a\",\"mode\":420}}{\"data\":\"aGk=\"}{\"header\":{\"path\":\"/empty\",\"mode\":493}}"
        "{\"header\":{\"path\":\"/large\",\"mode\":420}}{\"data\":\"AAAA\"}");
    assert_int_equal(seen.count, 7);
    cloud_frames_dispose(&frames);
    buffer_dispose(&out);
    free(content);
    /* only those that are asked for */
    static const char *const paths[] = {"/a", NULL, "/b"};
    buffer_init(&out, DC_BODY_MAX);
    assert_true(dc_download_frame(&out, paths, 3));
    assert_memory_equal(out.base, "\0\0\0\0\x15{\"paths\":[\"/a\",\"/b\"]}", out.len);
    buffer_dispose(&out);
}

/* --- a command's end --- */

static void ends(void **state)
{
    static const struct {
        int exit_code;
        uint32_t limit_ms;
        uint64_t took_ms;
        bool is_timed_out;
        int told;
    } table[] = {
        {0, 1000, 5, false, 0},       {3, 1000, 5000, false, 3},     {137, 1000, 999, false, 137},
        {137, 1000, 1000, true, 124}, {124, 1000, 1200, true, 124},  {124, 1000, 10, false, 124},
        {137, 1900, 1000, true, 124}, {137, 1900, 999, false, 137},  {137, 400, 400, true, 124},
        {137, 400, 399, false, 137},  {143, 1000, 2000, false, 143}, {-1, 1000, 1, false, -1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); ++i) {
        cloud_limits_t limits = {.stream_max = 4, .output_left = 6};
        guest_step_t step = {.exit_code = 7};
        dc_exec_t exec = {.exit_code = table[i].exit_code};
        buffer_init(&step.out, 4);
        buffer_init(&step.err, 4);
        buffer_init(&exec.out, 16);
        buffer_init(&exec.err, 16);
        buffer_append_str(&exec.out, "1234");
        buffer_append_str(&exec.err, "123");
        dc_step_read(&exec, false, table[i].limit_ms, table[i].took_ms, &limits, &step);
        assert_true(step.has_ended);
        if (step.is_timed_out != table[i].is_timed_out || step.exit_code != table[i].told)
            fail_msg("row %zu: %d %d", i, step.is_timed_out, step.exit_code);
        assert_int_equal(step.out.len, 4);
        assert_int_equal(step.err.len, 2); /* of what all may have */
        assert_false(step.is_out_truncated);
        assert_true(step.is_err_truncated);
        buffer_dispose(&step.out);
        buffer_dispose(&step.err);
        dc_exec_dispose(&exec);
    }
}

static void floods(void **state)
{
    (void)state;
    for (int is_flood = 0; is_flood <= 1; ++is_flood) {
        cloud_limits_t limits = {.stream_max = 4, .output_left = 6};
        guest_step_t step = {.exit_code = 7};
        dc_exec_t exec = {.exit_code = 0, .is_incomplete = is_flood == 0};
        dc_step_read(&exec, is_flood != 0, 1000, 5, &limits, &step);
        assert_true(step.has_ended && step.is_out_truncated && step.is_err_truncated && !step.is_timed_out);
        assert_int_equal(step.exit_code, CLOUD_EXIT_FLOOD);
    }
}

static void limits_in_the_guest(void **state)
{
    (void)state;
    assert_int_equal(dc_guest_limit_ms(30000, 0), 30000);
    assert_int_equal(dc_guest_limit_ms(30000, 12), 29988);
    assert_int_equal(dc_guest_limit_ms(30000, 60000), 29000);
    assert_int_equal(dc_guest_limit_ms(400, 1000), 300);
    assert_int_equal(dc_guest_limit_ms(0, 0), 100);
    assert_int_equal(dc_guest_limit_ms(100, 90), 100);
}

/* --- bearers --- */

static char *jwt(int64_t exp)
{
    char payload[64];
    buffer_t out;
    buffer_init(&out, 1024);
    snprintf(payload, sizeof(payload), "{\"exp\":%lld}", (long long)exp);
    buffer_append_str(&out, "e30.");
    base64_encode(&out, payload, strlen(payload), false);
    buffer_append_str(&out, ".x");
    return (char *)out.base;
}

static void lives_of_bearers(void **state)
{
    static const struct {
        int64_t exp, wall_ms;
        uint64_t life_ms;
    } table[] = {
        {1000900, INT64_C(1000000000), 900000},
        {1000030, INT64_C(1000000000), 30000},
        /* a clock that is wrong stretches nothing */
        {2000000, INT64_C(1000000000), BEARER_LIFE_MAX_MS},
        {1000000, INT64_C(1000000000), 0},
        {900000, INT64_C(1000000000), 0},
        {-5, INT64_C(1000000000), BEARER_LIFE_UNTOLD_MS},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); ++i) {
        char *token = jwt(table[i].exp);
        assert_int_equal(dc_bearer_life_ms(token, table[i].wall_ms), table[i].life_ms);
        free(token);
    }
    assert_int_equal(dc_bearer_life_ms("opaque", 0), BEARER_LIFE_UNTOLD_MS);
}

/* --- settings --- */

#define DIGEST "@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static void set_usual(void)
{
    fresh(NULL);
    setenv("SANDBOX_PROVIDER", "dockercloud", 1);
    setenv("DOCKER_SBX_TOKEN", "dckr_pat_0123456789", 1);
    setenv("DOCKER_SBX_USERNAME", "somebody", 1);
    setenv("SANDBOX_DOCKERCLOUD_API_URL", "https://api.example.com/sbx/", 1);
    setenv("SANDBOX_DOCKERCLOUD_IMAGE", "r.example/team/node" DIGEST, 1);
}

static void settings_that_start(void **state)
{
    dc_settings_t settings;
    (void)state;
    set_usual();
    expect_fine();
    dc_settings_read(&settings);
    assert_int_equal(settings.api, DC_CONNECT);
    assert_string_equal(settings.api_url, "https://api.example.com/sbx");
    assert_string_equal(settings.auth_url, "https://hub.docker.com/v2/auth/token");
    assert_string_equal(settings.image, "r.example/team/node" DIGEST);
    assert_string_equal(settings.digest, &DIGEST[1]);
    assert_string_equal(settings.size.name, "micro");
    setenv("SANDBOX_CPUS", "2", 1);
    expect_fine();
    dc_settings_read(&settings);
    assert_int_equal(settings.size.memory_mib, 4096);
    unsetenv("SANDBOX_CPUS");
    setenv("SANDBOX_MEMORY_MB", "32768", 1);
    expect_fine();
    dc_settings_read(&settings);
    assert_int_equal(settings.size.cpus, 16);
    set_usual();
    setenv("SANDBOX_DOCKERCLOUD_API", "rest", 1);
    unsetenv("SANDBOX_DOCKERCLOUD_API_URL");
    setenv("SANDBOX_CLOUD_TIMEOUT_MAX", "270s", 1);
    expect_fine();
    dc_settings_read(&settings);
    assert_int_equal(settings.api, DC_REST);
    assert_string_equal(settings.api_url, "https://connect.docker.com/sandboxes");
    set_usual();
    unsetenv("SANDBOX_DOCKERCLOUD_IMAGE");
    setenv("SANDBOX_DOCKERCLOUD_STORE_IMAGE", "tmpl_01" DIGEST, 1);
    expect_fine();
    dc_settings_read(&settings);
    assert_string_equal(settings.image, "");
    assert_string_equal(settings.store_image, "tmpl_01");
    assert_string_equal(settings.digest, &DIGEST[1]);
}

static void settings_that_do_not_start(void **state)
{
    static const struct {
        const char *name, *value, *says; /* value NULL = unset */
    } table[] = {
        {"DOCKER_SBX_TOKEN", NULL, "DOCKER_SBX_TOKEN is not set"},
        {"DOCKER_SBX_USERNAME", NULL, "DOCKER_SBX_USERNAME is not set"},
        {"SANDBOX_DOCKERCLOUD_API", "grpc", "SANDBOX_DOCKERCLOUD_API is \"grpc\""},
        {"SANDBOX_DOCKERCLOUD_API_URL", NULL, "SANDBOX_DOCKERCLOUD_API_URL is not set"},
        {"SANDBOX_DOCKERCLOUD_API_URL", "http://api.example.com", "SANDBOX_DOCKERCLOUD_API_URL is"},
        {"SANDBOX_DOCKERCLOUD_AUTH_URL", "https://u:p@a.example", "SANDBOX_DOCKERCLOUD_AUTH_URL is"},
        {"SANDBOX_DOCKERCLOUD_IMAGE", NULL, "neither of SANDBOX_DOCKERCLOUD_IMAGE"},
        {"SANDBOX_DOCKERCLOUD_IMAGE", "node image", "SANDBOX_DOCKERCLOUD_IMAGE is"},
        {"SANDBOX_DOCKERCLOUD_IMAGE", "node@sha256:abc", "SANDBOX_DOCKERCLOUD_IMAGE is"},
        {"SANDBOX_DOCKERCLOUD_STORE_IMAGE", "tmpl_01" DIGEST, "both of SANDBOX_DOCKERCLOUD_IMAGE"},
        {"SANDBOX_DOCKERCLOUD_STORE_IMAGE", "tmpl_01", "SANDBOX_DOCKERCLOUD_STORE_IMAGE is"},
        {"SANDBOX_DOCKERCLOUD_STORE_IMAGE", "a/b" DIGEST, "SANDBOX_DOCKERCLOUD_STORE_IMAGE is"},
        {"SANDBOX_DOCKERCLOUD_ENDPOINT_SUFFIX", "example.com", "SANDBOX_DOCKERCLOUD_ENDPOINT_SUFFIX is"},
        {"SANDBOX_DOCKERCLOUD_ENDPOINT_SUFFIX", "..com", "SANDBOX_DOCKERCLOUD_ENDPOINT_SUFFIX is"},
        {"SANDBOX_CPUS", "3", "name no size"},
        {"SANDBOX_CPUS", "1.5", "name no size"},
        {"SANDBOX_MEMORY_MB", "2047", "name no size"},
        {"SANDBOX_PIDS", "64", "SANDBOX_PIDS is set"},
        {"SANDBOX_DISK_MB", "64", "SANDBOX_DISK_MB is set"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); ++i) {
        set_usual();
        if (table[i].value != NULL)
            setenv(table[i].name, table[i].value, 1);
        else
            unsetenv(table[i].name);
        expect_problem(table[i].says);
    }
    set_usual();
    setenv("SANDBOX_DOCKERCLOUD_API", "rest", 1);
    setenv("SANDBOX_CLOUD_TIMEOUT_MAX", "271s", 1);
    expect_problem("a run ends after 270s");
    set_usual();
    setenv("SANDBOX_DOCKERCLOUD_API", "rest", 1);
    unsetenv("SANDBOX_DOCKERCLOUD_IMAGE");
    setenv("SANDBOX_DOCKERCLOUD_STORE_IMAGE", "tmpl_01" DIGEST, 1);
    expect_problem("only connect starts an image of the store");
    set_usual();
    setenv("SANDBOX_DOCKERCLOUD_IMAGE", "node:22", 1);
    expect_fine();
    setenv("SANDBOX_REQUIRE_PINNED_IMAGES", "1", 1);
    expect_problem("SANDBOX_DOCKERCLOUD_IMAGE names no digest");
}

static void the_hardened_mode(void **state)
{
    (void)state;
    set_usual();
    setenv("PLIMSOLL_HARDENED", "1", 1);
    expect_problem("hardened: SANDBOX_DOCKERCLOUD_API must be set");
    expect_problem("hardened: SANDBOX_CPUS must be set above zero");
    setenv("SANDBOX_DOCKERCLOUD_API", "rest", 1);
    expect_problem("hardened: SANDBOX_DOCKERCLOUD_API must be set, to connect");
    setenv("SANDBOX_DOCKERCLOUD_IMAGE", "node:22", 1);
    expect_problem("hardened: SANDBOX_DOCKERCLOUD_IMAGE must name its digest");
    /* there is no setting for a disk that the service would keep */
    problems_t problems = load();
    assert_false(says(&problems, "SANDBOX_DISK_MB"));
    problems_dispose(&problems);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(creates),
        cmocka_unit_test(the_others),
        cmocka_unit_test(uploads),
        cmocka_unit_test(ends),
        cmocka_unit_test(floods),
        cmocka_unit_test(limits_in_the_guest),
        cmocka_unit_test(lives_of_bearers),
        cmocka_unit_test(settings_that_start),
        cmocka_unit_test(settings_that_do_not_start),
        cmocka_unit_test(the_hardened_mode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
