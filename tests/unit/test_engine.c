/* The Engine's calls against an Engine that answers by a table: every status the API has, and every shape. */
#include "fake_engine.h"

#define NAME "plimsoll-0011223344556677"
#define DETAILS "\"State\":{\"Running\":true},\"Config\":{},\"HostConfig\":{\"Later\":1}"

/* ---- the version ---- */

typedef struct {
    const char *pinged, *api, *min, *os;
    const char *settled; /* "" = refused */
    const char *failure;
} version_case_t;

static void the_version_is_the_highest_that_both_speak(void **state)
{
    static const version_case_t cases[] = {
        {"1.41", "1.41", "1.12", "linux", "1.41", ""},
        {"1.43", "1.43", "1.12", "linux", "1.43", ""},
        {"1.52", "1.52", "1.44", "linux", "1.52", ""},
        {"1.53", "1.53", "1.44", "linux", "1.52", ""},
        {"1.60", "1.60", "1.52", "linux", "1.52", ""},
        {"2.1", "2.1", "1.50", "linux", "1.52", ""},
        {"1.40", "1.40", "1.12", "linux", "", "too old"},
        {"0.99", "0.99", "0.12", "linux", "", "too old"},
        {"1.60", "1.60", "1.53", "linux", "", "too new"},
        {"2.1", "2.1", "2.0", "linux", "", "too new"},
        {"1.41", "1.41", "1.12", "windows", "", "no Linux containers: windows"},
        {"1.41", "1.41", "1.12", "", "", "no Linux containers"},
        {"1.41", "1.42", "1.12", "linux", "", "changed while"},
        {"", "1.41", "1.12", "linux", "", "changed while"},
        {"1.4x", "1.4x", "1.12", "linux", "", "no API version"},
        {"1.4141", "1.4141", "1.12", "linux", "", "no API version"},
        {"1.", "1.", "1.12", "linux", "", "no API version"},
        {".41", ".41", "1.12", "linux", "", "no API version"},
        {"1", "1", "1.12", "linux", "", "no API version"},
        {"1.41.1", "1.41.1", "1.12", "linux", "", "no API version"},
        {"-1.41", "-1.41", "1.12", "linux", "", "no API version"},
        {"1.41", "1.41", "", "linux", "", "no lowest API version"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        char ping[256], version[256];
        row_t rows[] = {{"/_ping", ping}, {"/version", version}, {NULL, NULL}};
        const version_case_t *it = &cases[i];
        snprintf(ping, sizeof(ping), "HTTP/1.1 200 OK\r\nApi-Version: %s\r\nContent-Length: 2\r\n\r\nOK", it->pinged);
        snprintf(version, sizeof(version),
                 JSON_HEAD("200 OK") "{\"ApiVersion\":\"%s\",\"MinAPIVersion\":\"%s\",\"Os\":\"%s\"}", it->api, it->min,
                 it->os);
        serve(answer_by_table, rows);
        engine_destroy(engine);
        engine = engine_create(loop, socket_path);
        call_t c = {.op = OP_NEGOTIATE};
        make(&c);
        if (strcmp(engine_api_version(engine), it->settled) != 0 || strstr(c.failure, it->failure) == NULL)
            print_error("case %zu: \"%s\" %s\n", i, engine_api_version(engine), c.failure);
        assert_int_equal(c.is_negotiated, it->settled[0] != '\0');
        assert_string_equal(engine_api_version(engine), it->settled);
        assert_non_null(strstr(c.failure, it->failure));
        assert_int_equal(c.failure[0] == '\0', c.is_negotiated);
        server_stop(server);
        server = NULL;
        unlink(socket_path);
    }
}

static void an_engine_that_is_none_is_not_negotiated_with(void **state)
{
    static const row_t cases[][3] = {
        {{"/_ping", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK"}, {NULL, NULL}},
        {{"/_ping", "HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\n<htm>"}, {NULL, NULL}},
        {{"/_ping", "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"}, {NULL, NULL}},
        {{"/_ping", "SSH-2.0-OpenSSH\r\n"}, {NULL, NULL}},
        {{"/version", JSON_HEAD("200 OK") "[]"}, {NULL, NULL}},
        {{"/version", JSON_HEAD("200 OK") "{\"ApiVersion\":141,\"MinAPIVersion\":\"1.12\",\"Os\":\"linux\"}"},
         {NULL, NULL}},
        {{"/version", JSON_HEAD("200 OK") "{\"ApiVersion\":\"1.41\",\"ApiVersion\":\"1.41\",\"MinAPIVersion\":"
                                          "\"1.12\",\"Os\":\"linux\"}"},
         {NULL, NULL}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        serve(answer_by_table, cases[i]);
        call_t c = {.op = OP_NEGOTIATE};
        make(&c);
        assert_false(c.is_negotiated);
        assert_string_not_equal(c.failure, "");
        server_stop(server);
        server = NULL;
        unlink(socket_path);
    }
}

/* An Engine can be replaced by one that is no good; what the last one holds is still to be removed. */
static void a_failed_negotiation_changes_nothing(void **state)
{
    static const row_t none[] = {{NULL, NULL}};
    (void)state;
    serve(answer_by_table, none);
    negotiate();
    server_stop(server);
    server = NULL;
    call_t c = {.op = OP_NEGOTIATE};
    make(&c);
    assert_false(c.is_negotiated);
    assert_string_equal(engine_api_version(engine), "1.41");
}

static void nothing_is_sent_before_the_negotiation(void **state)
{
    static const row_t none[] = {{NULL, NULL}};
    (void)state;
    serve(answer_by_table, none);
    expect(OP_INFO, NULL, ENGINE_UNSENT, "not negotiated");
    expect(OP_CREATE, NAME, ENGINE_UNSENT, "not negotiated");
    assert_int_equal(atomic_load(&server->connections), 0);
}

/* ---- statuses ---- */

typedef struct {
    const char *status; /* with its reason */
    const char *body;
    engine_outcome_t outcome;
    const char *text;
} status_case_t;

static void try_statuses(op_t op, const char *name, const status_case_t *cases, size_t count)
{
    char answer[1024];
    row_t rows[] = {{"/v1.41/", answer}, {NULL, NULL}};
    serve(answer_by_table, rows);
    negotiate();
    for (size_t i = 0; i < count; ++i) {
        snprintf(answer, sizeof(answer),
                 strncmp(cases[i].status, "204", 3) == 0 || strncmp(cases[i].status, "304", 3) == 0
                     ? "HTTP/1.1 %s\r\nServer: Docker\r\n\r\n%s"
                     : "HTTP/1.1 %s\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n%s",
                 cases[i].status, cases[i].body);
        call_t c = call(op, name);
        if (c.answer.outcome != cases[i].outcome)
            print_error("case %zu, %s\n", i, cases[i].status);
        assert_answer(&c, cases[i].outcome, cases[i].text);
        assert_int_equal(c.answer.status, atoi(cases[i].status));
        engine_answer_dispose(&c.answer);
    }
}
#define TRY(op, name, cases) try_statuses(op, name, cases, sizeof(cases) / sizeof(cases[0]))

#define ERRORS                                                                                                         \
    {"404 Not Found", "{\"message\":\"No such container: x\"}", ENGINE_ABSENT, "No such container: x"},                \
        {"409 Conflict", "{\"message\":\"busy\",\"more\":1}", ENGINE_CONFLICT, "busy"},                                \
        {"400 Bad Request", "{\"message\":\"bad\"}", ENGINE_REFUSED, "bad"},                                           \
        {"403 Forbidden", "{\"message\":\"no\"}", ENGINE_REFUSED, "no"},                                               \
        {"500 Internal Server Error", "{\"message\":\"no space left on device\"}", ENGINE_FAILED, "no space left"},    \
        {"503 Service Unavailable", "{\"message\":\"later\"}", ENGINE_FAILED, "later"},                                \
        {"404 Not Found", "<html>404</html>", ENGINE_FAILED, "status 404 without"},                                    \
        {"404 Not Found", "", ENGINE_FAILED, "status 404 without"},                                                    \
        {"404 Not Found", "{\"message\":null}", ENGINE_FAILED, "status 404 without"},                                  \
        {"404 Not Found", "[\"message\"]", ENGINE_FAILED, "status 404 without"},                                       \
        {"404 Not Found", "{\"message\":\"a\",\"message\":\"b\"}", ENGINE_FAILED, "status 404 without"},               \
        {"409 Conflict", "<h1>", ENGINE_FAILED, "status 409 without"},                                                 \
        {"500 Internal Server Error", "<h1>", ENGINE_FAILED, "status 500 without"},                                    \
        {"400 Bad Request", "{\"message\":\"a\\u0007\\u001b[2J\\u00e9\\u007fb\"}", ENGINE_REFUSED, "a??[2J???b"},      \
        {"301 Moved Permanently", "{}", ENGINE_FAILED, "status 301 where"},                                            \
    {                                                                                                                  \
        "206 Partial Content", "{}", ENGINE_FAILED, "status 206 where"                                                 \
    }

static void statuses_of_create(void **state)
{
    static const status_case_t cases[] = {
        {"201 Created", "{\"Id\":\"" ID "\",\"Warnings\":[]}", ENGINE_OK, ""},
        {"201 Created", "{\"Id\":\"" ID "\",\"Warnings\":null,\"Unheard\":{\"of\":[1,2.5,null]}}", ENGINE_OK, ""},
        {"400 Bad Request", "{\"message\":\"Unknown runtime specified X\"}", ENGINE_REFUSED, "Unknown runtime"},
        {"404 Not Found", "{\"message\":\"No such image: x\"}", ENGINE_ABSENT, "No such image"},
        {"409 Conflict", "{\"message\":\"Conflict. The container name is in use\"}", ENGINE_CONFLICT, "in use"},
        ERRORS,
        {"200 OK", "{\"Id\":\"" ID "\"}", ENGINE_FAILED, "status 200 where 201"},
        {"304 Not Modified", "", ENGINE_FAILED, "status 304 where 201"},
        {"204 No Content", "", ENGINE_FAILED, "status 204 where 201"},
        {"201 Created", "{}", ENGINE_FAILED, "64 hex digits"},
        {"201 Created", "{\"Id\":null}", ENGINE_FAILED, "64 hex digits"},
        {"201 Created", "{\"Id\":5}", ENGINE_FAILED, "64 hex digits"},
        {"201 Created", "{\"Id\":\"\"}", ENGINE_FAILED, "64 hex digits"},
        {"201 Created", "{\"Id\":\"../../info\"}", ENGINE_FAILED, "64 hex digits"},
        {"201 Created", "{\"Id\":\"" ID "0\"}", ENGINE_FAILED, "64 hex digits"},
        {"201 Created", "{\"Id\":\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde\"}", ENGINE_FAILED,
         "64 hex digits"},
        {"201 Created", "{\"Id\":\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdeF\"}", ENGINE_FAILED,
         "64 hex digits"},
        {"201 Created", "{\"Id\":\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde\\n\"}",
         ENGINE_FAILED, "64 hex digits"},
        {"201 Created", "{\"Id\":\"" ID "\\u0000\"}", ENGINE_FAILED, "not JSON"},
        {"201 Created", "{\"Id\":\"" ID "\",\"Id\":\"" ID "\"}", ENGINE_FAILED, "not JSON"},
        {"201 Created", "[\"" ID "\"]", ENGINE_FAILED, "64 hex digits"},
        {"201 Created", "\"" ID "\"", ENGINE_FAILED, "not JSON"},
        {"201 Created", "{\"Id\":\"" ID "\"", ENGINE_FAILED, "not JSON"},
        {"201 Created", "{\"Id\":\"" ID "\"}{}", ENGINE_FAILED, "not JSON"},
        {"201 Created", "{\"Id\":\"\xff\xfe\"}", ENGINE_FAILED, "not JSON"},
        {"201 Created", "<!DOCTYPE html><html>", ENGINE_FAILED, "not JSON"},
        {"201 Created", "", ENGINE_FAILED, "no body"},
    };
    (void)state;
    TRY(OP_CREATE, NAME, cases);
}

static void the_id_of_a_create_is_given_only_with_its_success(void **state)
{
    static const row_t good[] = {{"/v1.41/containers/create?name=" NAME " ",
                                  JSON_HEAD("201 Created") "{\"Id\":\"" ID "\",\"Warnings\":[\"slow\"]}"},
                                 {NULL, NULL}};
    (void)state;
    serve(answer_by_table, good);
    negotiate();
    call_t c = call(OP_CREATE, NAME);
    assert_answer(&c, ENGINE_OK, "");
    assert_string_equal(c.id, ID);
    assert_string_equal(json_string_value(json_array_get(json_object_get(c.answer.json, "Warnings"), 0)), "slow");
    engine_answer_dispose(&c.answer);
    assert_null(c.answer.json);
    engine_answer_dispose(&c.answer);
    assert_memory_equal(server->last_request, "POST /v1.41/containers/create?name=" NAME " HTTP/1.1\r\n", 30);
    assert_non_null(strstr(server->last_request, "\r\nContent-Type: application/json\r\n"));
    assert_null(strcasestr(server->last_request, "\r\nExpect:"));
    assert_non_null(strstr(server->last_request, "\r\n\r\n{\"Image\":\"sha256:" ID "\"}"));
    c = call(OP_CREATE, "other");
    assert_string_equal(c.id, "");
    engine_answer_dispose(&c.answer);
}

static void statuses_of_start(void **state)
{
    static const status_case_t cases[] = {
        {"204 No Content", "", ENGINE_OK, ""},
        {"304 Not Modified", "", ENGINE_UNCHANGED, ""},
        {"400 Bad Request", "{\"message\":\"exec: \\\"/nope\\\": no such file\"}", ENGINE_REFUSED, "no such file"},
        ERRORS,
        {"200 OK", "{}", ENGINE_FAILED, "status 200 where 204"},
    };
    (void)state;
    TRY(OP_START, ID, cases);
    assert_memory_equal(server->last_request, "POST /v1.41/containers/" ID "/start HTTP/1.1\r\n", 102);
}

static void statuses_of_kill(void **state)
{
    static const status_case_t cases[] = {
        {"204 No Content", "", ENGINE_OK, ""},
        {"409 Conflict", "{\"message\":\"is not running\"}", ENGINE_CONFLICT, "is not running"},
        ERRORS,
        {"304 Not Modified", "", ENGINE_FAILED, "status 304 where 204"},
    };
    (void)state;
    TRY(OP_KILL, ID, cases);
    assert_non_null(strstr(server->last_request, "POST /v1.41/containers/" ID "/kill?signal=KILL HTTP/1.1\r\n"));
}

static void statuses_of_unpause(void **state)
{
    static const status_case_t cases[] = {{"204 No Content", "", ENGINE_OK, ""}, ERRORS};
    (void)state;
    TRY(OP_UNPAUSE, ID, cases);
    assert_non_null(strstr(server->last_request, "POST /v1.41/containers/" ID "/unpause HTTP/1.1\r\n"));
}

static void statuses_of_wait(void **state)
{
    static const status_case_t cases[] = {{"200 OK", "{\"StatusCode\":0}", ENGINE_OK, ""},
                                          ERRORS,
                                          {"204 No Content", "", ENGINE_FAILED, "status 204 where 200"}};
    (void)state;
    TRY(OP_WAIT, ID, cases);
    assert_non_null(
        strstr(server->last_request, "POST /v1.41/containers/" ID "/wait?condition=not-running HTTP/1.1\r\n"));
}

static void statuses_of_remove(void **state)
{
    static const status_case_t cases[] = {
        {"204 No Content", "", ENGINE_OK, ""},
        {"409 Conflict", "{\"message\":\"removal of container x is already in progress\"}", ENGINE_CONFLICT,
         "already in progress"},
        {"500 Internal Server Error", "{\"message\":\"is zombie and can not be killed\"}", ENGINE_FAILED, "zombie"},
        ERRORS,
    };
    (void)state;
    TRY(OP_REMOVE, ID, cases);
    assert_non_null(strstr(server->last_request, "DELETE /v1.41/containers/" ID "?force=1&v=1 HTTP/1.1\r\n"));
}

static void statuses_of_a_container_s_inspect(void **state)
{
    static const status_case_t cases[] = {
        {"200 OK", "{\"Id\":\"" ID "\",\"Name\":\"/x\"," DETAILS "}", ENGINE_OK, ""},
        ERRORS,
        {"200 OK", "{\"Id\":\"" OTHER_ID "\",\"Name\":\"/" ID "\"," DETAILS "}", ENGINE_FAILED, "another container"},
        {"200 OK", "{\"Name\":\"/" ID "\"," DETAILS "}", ENGINE_FAILED, "another container"},
        {"200 OK", "{}", ENGINE_FAILED, "another container"},
        {"200 OK", "[]", ENGINE_FAILED, "another container"},
        {"200 OK", "[{\"Id\":\"" ID "\"}]", ENGINE_FAILED, "another container"},
        {"200 OK", "{\"Id\":\"" ID "\",\"Config\":{},\"HostConfig\":{}}", ENGINE_FAILED, "are missing"},
        {"200 OK", "{\"Id\":\"" ID "\",\"State\":[],\"Config\":{},\"HostConfig\":{}}", ENGINE_FAILED, "are missing"},
        {"200 OK", "{\"Id\":\"" ID "\",\"State\":{},\"Config\":null,\"HostConfig\":{}}", ENGINE_FAILED, "are missing"},
        {"200 OK", "{\"Id\":\"" ID "\",\"State\":{},\"Config\":{},\"HostConfig\":\"\"}", ENGINE_FAILED, "are missing"},
        {"200 OK", "null", ENGINE_FAILED, "not JSON"},
    };
    (void)state;
    TRY(OP_INSPECT, ID, cases);
    assert_non_null(strstr(server->last_request, "GET /v1.41/containers/" ID "/json HTTP/1.1\r\n"));
}

static void a_container_is_inspected_by_its_name(void **state)
{
    static const status_case_t cases[] = {
        {"200 OK", "{\"Id\":\"" ID "\",\"Name\":\"/" NAME "\"," DETAILS "}", ENGINE_OK, ""},
        {"200 OK", "{\"Id\":\"" ID "\",\"Name\":\"" NAME "\"," DETAILS "}", ENGINE_FAILED, "another container"},
        {"200 OK", "{\"Id\":\"" ID "\",\"Name\":\"/" NAME "8\"," DETAILS "}", ENGINE_FAILED, "another container"},
        {"200 OK", "{\"Id\":\"" NAME "\",\"Name\":\"/" NAME "\"," DETAILS "}", ENGINE_FAILED, "another container"},
    };
    (void)state;
    TRY(OP_INSPECT, NAME, cases);
}

static void statuses_of_an_image_s_inspect(void **state)
{
    static const status_case_t cases[] = {
        {"200 OK", "{\"Id\":\"sha256:" ID "\",\"Config\":null}", ENGINE_OK, ""},
        {"404 Not Found", "{\"message\":\"No such image: x\"}", ENGINE_ABSENT, "No such image"},
        ERRORS,
        {"200 OK", "{\"Id\":\"" ID "\"}", ENGINE_FAILED, "content ID"},
        {"200 OK", "{\"Id\":\"sha256:" ID "0\"}", ENGINE_FAILED, "content ID"},
        {"200 OK", "{\"Id\":\"sha256:\"}", ENGINE_FAILED, "content ID"},
        {"200 OK", "{\"Id\":\"sha512:" ID "\"}", ENGINE_FAILED, "content ID"},
        {"200 OK", "{}", ENGINE_FAILED, "content ID"},
        {"200 OK", "[]", ENGINE_FAILED, "content ID"},
    };
    (void)state;
    TRY(OP_IMAGE, "plimsoll/snippet:latest", cases);
}

static void statuses_of_info(void **state)
{
    static const status_case_t cases[] = {
        {"200 OK", "{\"Runtimes\":{}}", ENGINE_OK, ""}, ERRORS, {"200 OK", "[]", ENGINE_FAILED, "not an object"}};
    (void)state;
    TRY(OP_INFO, NULL, cases);
}

static void statuses_of_list(void **state)
{
    static const status_case_t cases[] = {
        {"200 OK", "[]", ENGINE_OK, ""},
        {"200 OK", "[{\"Id\":\"" ID "\",\"Labels\":{\"a\":\"b\"}},{\"Id\":\"" OTHER_ID "\",\"Labels\":null}]",
         ENGINE_OK, ""},
        ERRORS,
        {"200 OK", "{}", ENGINE_FAILED, "not a list"},
        {"200 OK", "[null]", ENGINE_FAILED, "not a list"},
        {"200 OK", "[{\"Id\":\"" ID "\",\"Labels\":{}},{\"Id\":\"x\",\"Labels\":{}}]", ENGINE_FAILED, "not a list"},
        {"200 OK", "[{\"Id\":\"" ID "\"}]", ENGINE_FAILED, "not a list"},
        {"200 OK", "[{\"Id\":\"" ID "\",\"Labels\":[\"a\"]}]", ENGINE_FAILED, "not a list"},
    };
    (void)state;
    TRY(OP_LIST, NULL, cases);
}

/* ---- what goes into a path ---- */

static void references_are_escaped_or_refused(void **state)
{
    static const row_t image[] = {{"/v1.41/images/", JSON_HEAD("200 OK") "{\"Id\":\"sha256:" ID "\"}"}, {NULL, NULL}};
    static const char *const good[][2] = {
        {"snippet", "snippet"},
        {"plimsoll/snippet:latest", "plimsoll%2Fsnippet%3Alatest"},
        {"sha256:" ID, "sha256%3A" ID},
        {"r.example:5000/a/b@sha256:" ID, "r.example%3A5000%2Fa%2Fb%40sha256%3A" ID},
        {"a?b#c%2e%2e&d=e+f", "a%3Fb%23c%252e%252e%26d%3De%2Bf"},
        {"a..b/...", "a..b%2F..."},
    };
    static const char *const refused[] = {"",     ".",  "..",  "a/..", "../a", "a/../b", "a/./b",   "/a",
                                          "a//b", "a/", "a b", "a\nb", "a\tb", "\x7f",   "\xc3\xa9"};
    (void)state;
    serve(answer_by_table, image);
    negotiate();
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); ++i) {
        char line[512];
        expect(OP_IMAGE, good[i][0], ENGINE_OK, "");
        snprintf(line, sizeof(line), "GET /v1.41/images/%s/json HTTP/1.1\r\n", good[i][1]);
        assert_memory_equal(server->last_request, line, strlen(line));
    }
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); ++i)
        expect(OP_IMAGE, refused[i], ENGINE_UNSENT, "not an image's reference");
    char at_limit[514];
    memset(at_limit, 'a', sizeof(at_limit));
    at_limit[513] = '\0';
    expect(OP_IMAGE, at_limit, ENGINE_UNSENT, "not an image's reference");
    at_limit[512] = '\0';
    expect(OP_IMAGE, at_limit, ENGINE_OK, "");
    memset(at_limit, '@', 511);
    expect(OP_IMAGE, at_limit, ENGINE_OK, "");
    at_limit[511] = '\0';
    expect(OP_IMAGE, at_limit, ENGINE_OK, "");
}

static void names_that_are_none_are_not_sent(void **state)
{
    static const op_t ops[] = {OP_CREATE, OP_START, OP_INSPECT, OP_KILL, OP_UNPAUSE, OP_WAIT, OP_REMOVE};
    static const char *const refused[] = {"",    ".",    "..",  "-a",        "_a",      "a/b",
                                          "a?b", "a%2e", "a b", "a\r\nX: y", "\xc3\xa9"};
    static const row_t none[] = {{"/v1.41/containers/", JSON_HEAD("404 Not Found") "{\"message\":\"none\"}"},
                                 {NULL, NULL}};
    char at_limit[ENGINE_NAME_MAX + 2];
    (void)state;
    serve(answer_by_table, none);
    negotiate();
    unsigned before = atomic_load(&server->connections);
    memset(at_limit, 'a', sizeof(at_limit));
    at_limit[ENGINE_NAME_MAX + 1] = '\0';
    for (size_t op = 0; op < sizeof(ops) / sizeof(ops[0]); ++op) {
        for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); ++i)
            expect(ops[op], refused[i], ENGINE_UNSENT, "not a container's name");
        expect(ops[op], at_limit, ENGINE_UNSENT, "not a container's name");
    }
    assert_int_equal(atomic_load(&server->connections), before);
    at_limit[ENGINE_NAME_MAX] = '\0';
    expect(OP_INSPECT, at_limit, ENGINE_ABSENT, "none");
    at_limit[ENGINE_NAME_MAX - 1] = '\0';
    expect(OP_INSPECT, at_limit, ENGINE_ABSENT, "none");
}

static void labels_are_escaped_in_the_filter(void **state)
{
    static const row_t list[] = {{"/v1.41/containers/json?", JSON_HEAD("200 OK") "[]"}, {NULL, NULL}};
    const char *labels[] = {"sbx.gateway=1", "a=\"&#/%\xc3\xa9"}, *bad[] = {"\xff"};
    (void)state;
    serve(answer_by_table, list);
    negotiate();
    call_t c = {.op = OP_LIST, .labels = labels, .label_count = 2};
    make(&c);
    assert_answer(&c, ENGINE_OK, "");
    engine_answer_dispose(&c.answer);
    static const char line[] =
        "GET /v1.41/containers/json?all=1&filters=%7B%22label%22%3A%5B%22sbx.gateway%3D1%22%2C%22"
        "a%3D%5C%22%26%23%2F%25%C3%A9%22%5D%7D HTTP/1.1\r\n";
    assert_memory_equal(server->last_request, line, strlen(line));
    c = (call_t){.op = OP_LIST, .labels = bad, .label_count = 1};
    make(&c);
    assert_answer(&c, ENGINE_UNSENT, "not labels");
    char *large = calloc(1, 9000);
    memset(large, 'a', 8999);
    const char *too_large[] = {large};
    c = (call_t){.op = OP_LIST, .labels = too_large, .label_count = 1};
    make(&c);
    assert_answer(&c, ENGINE_UNSENT, "not labels");
    free(large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(the_version_is_the_highest_that_both_speak),
        CASE(an_engine_that_is_none_is_not_negotiated_with),
        CASE(a_failed_negotiation_changes_nothing),
        CASE(nothing_is_sent_before_the_negotiation),
        CASE(statuses_of_create),
        CASE(the_id_of_a_create_is_given_only_with_its_success),
        CASE(statuses_of_start),
        CASE(statuses_of_kill),
        CASE(statuses_of_unpause),
        CASE(statuses_of_wait),
        CASE(statuses_of_remove),
        CASE(statuses_of_a_container_s_inspect),
        CASE(a_container_is_inspected_by_its_name),
        CASE(statuses_of_an_image_s_inspect),
        CASE(statuses_of_info),
        CASE(statuses_of_list),
        CASE(references_are_escaped_or_refused),
        CASE(names_that_are_none_are_not_sent),
        CASE(labels_are_escaped_in_the_filter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
