/* The preflight over an Engine that answers by a table: what is ready, and what to do about what is not. */
#include "tests/unit/fake_engine.h"

#include "backends/docker/preflight.h"
#include "core/log.h"
#include "core/random.h"

typedef struct {
    preflight_want_t want;
    preflight_t found;
    bool is_ready, is_untried, has_ended;
    char failure[BACKEND_TEXT_MAX];
} flight_t;

static void try_preflight(void *arg)
{
    flight_t *flight = arg;
    flight->is_ready = docker_preflight(&flight->want, &flight->found, &flight->is_untried, flight->failure);
}

static void on_flown(void *arg)
{
    flight_t *flight = arg;
    flight->has_ended = true;
}

static void fly(flight_t *flight)
{
    memset(flight, 0, sizeof(*flight));
    flight->want =
        (preflight_want_t){.engine = engine,
                           .runtime = "runc",
                           .references = {"plimsoll/snippet:latest", "plimsoll/project:latest"},
                           .promise = {.uid = 60999, .memory_bytes = 1 << 28, .pids = 256, .work_bytes = 1 << 27}};
    co_start(loop, try_preflight, flight, on_flown);
    wait_for(flight->has_ended);
    assert_null(strchr(flight->failure, '\n'));
}

#define INFO_OK                                                                                                        \
    JSON_HEAD("200 OK")                                                                                                \
    "{\"ID\":\"E\",\"OSType\":\"linux\",\"Architecture\":\"x86_64\",\"MemoryLimit\":true,\"SwapLimit\":true,"          \
    "\"PidsLimit\":true,\"CpuCfsQuota\":true,\"CgroupVersion\":\"2\",\"ServerVersion\":\"28.1\","                      \
    "\"Runtimes\":{\"runc\":{\"path\":\"runc\"}},\"SecurityOptions\":[\"name=seccomp\"]}"
#define IMAGE_OK(digit, label)                                                                                         \
    JSON_HEAD("200 OK")                                                                                                \
    "{\"Id\":\"sha256:" digit "123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\",\"Os\":\"linux\","    \
    "\"Architecture\":\"amd64\",\"Config\":{\"Env\":[\"LANG=C\"],\"Labels\":{\"sbx.runner.protocol\":\"" label "\"}}}"
#define SNIPPET_TARGET "/v1.41/images/plimsoll/snippet"
#define PROJECT_TARGET "/v1.41/images/plimsoll/project"

static void test_an_engine_with_its_images_is_ready(void **state)
{
    static const row_t rows[] = {{"/v1.41/info", INFO_OK},
                                 {SNIPPET_TARGET, IMAGE_OK("0", "1")},
                                 {PROJECT_TARGET, IMAGE_OK("1", "1")},
                                 {"/v1.41/images/plimsoll%2Fsnippet", IMAGE_OK("0", "1")},
                                 {"/v1.41/images/plimsoll%2Fproject", IMAGE_OK("1", "1")},
                                 {NULL, NULL}};
    flight_t *flight = calloc(1, sizeof(*flight));
    (void)state;
    serve(answer_by_table, rows);
    fly(flight);
    if (!flight->is_ready)
        fail_msg("%s", flight->failure);
    assert_int_equal(flight->found.cgroup_version, 2);
    assert_int_equal(strncmp(flight->found.images[DOCKER_PROJECT].id, "sha256:1123", 11), 0);
    assert_string_equal(flight->found.images[DOCKER_PROJECT].env[0], "LANG=C");
    free(flight);
}

static void test_what_is_missing_is_told_with_what_to_do(void **state)
{
    static const struct {
        row_t rows[8];
        bool is_untried;
        const char *words;
    } cases[] = {
        {{{"/v1.41/info", INFO_OK}, {"/v1.41/images/", JSON_HEAD("404 Not Found") "{\"message\":\"No such image\"}"}},
         false,
         "image plimsoll/snippet:latest is not in the Engine: `make images`"},
        {{{"/v1.41/info", INFO_OK}, {"/v1.41/images/", IMAGE_OK("0", "0")}},
         false,
         "protocol 0, this gateway speaks 1"},
        {{{"/v1.41/info", INFO_OK},
          {"/v1.41/images/", JSON_HEAD("500 Internal Server Error") "{\"message\":\"disk\"}"}},
         false,
         "could not be inspected: failed disk"},
        {{{"/v1.41/info", JSON_HEAD("500 Internal Server Error") "{\"message\":\"x\"}"}},
         false,
         "does not tell about itself"},
        {{{"/v1.41/info", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"}}, true, "does not tell about itself"},
    };
    flight_t *flight = calloc(1, sizeof(*flight));
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        serve(answer_by_table, cases[i].rows);
        fly(flight);
        server_stop(server);
        server = NULL;
        if (flight->is_ready || flight->is_untried != cases[i].is_untried ||
            strstr(flight->failure, cases[i].words) == NULL)
            fail_msg("case %zu: untried %d: %s", i, flight->is_untried, flight->failure);
        unlink(socket_path);
    }
    /* Nobody at the socket, and no socket. */
    fly(flight);
    assert_false(flight->is_ready);
    assert_non_null(strstr(flight->failure, "there is no Docker Engine at "));
    assert_non_null(strstr(flight->failure, "SANDBOX_DOCKER_SOCKET"));
    free(flight);
}

static int fresh(void **state)
{
    log_init("test", LOG_FORMAT_JSON, LOG_ERROR);
    return setup(state);
}

#define FRESH(test) cmocka_unit_test_setup_teardown(test, fresh, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FRESH(test_an_engine_with_its_images_is_ready),
        FRESH(test_what_is_missing_is_told_with_what_to_do),
    };
    random_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
