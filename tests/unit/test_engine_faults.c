/* An Engine that hangs, dies, dribbles, floods and lies: what a call says then, and that nothing is sent twice. */
#include "fake_engine.h"

#include <dirent.h>

#include "backends/docker/engine_json.h"

#define NAME "plimsoll-0011223344556677"
#define INSPECTED "{\"Id\":\"" ID "\",\"Name\":\"/x\",\"State\":{},\"Config\":{},\"HostConfig\":{}}"

/* Answers the negotiation on kept connections; hands over the first other request to `fault`. */
typedef struct {
    void (*fault)(conn_t *conn);
    const char *text; /* its own */
    size_t len;
    atomic_uint faults;
    atomic_uint kept; /* of these, on a connection that had carried another request */
} plan_t;

static void play(conn_t *conn)
{
    plan_t *plan = conn->server->arg;
    for (unsigned requests = 0; read_request(conn); ++requests) {
        if (strncmp(target_of(conn), "/_ping", 6) == 0) {
            say(conn, PING_OF("1.41"));
        } else if (strncmp(target_of(conn), "/version", 8) == 0) {
            static const char body[] = "{\"ApiVersion\":\"1.41\",\"MinAPIVersion\":\"1.12\",\"Os\":\"linux\"}";
            char answer[256];
            snprintf(answer, sizeof(answer), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
            say(conn, answer);
        } else {
            atomic_fetch_add(&plan->faults, 1);
            atomic_fetch_add(&plan->kept, requests > 0 ? 1u : 0u);
            plan->fault(conn);
            return;
        }
    }
}

/* Its threads are gone then, and with them every use of the plan. */
static void stop_serving(void)
{
    server_stop(server);
    server = NULL;
    unlink(socket_path);
}

static void close_without_a_word(conn_t *conn)
{
    (void)conn;
}

static void hang(conn_t *conn)
{
    hold(conn);
}

static const op_t acts[] = {OP_CREATE, OP_START, OP_KILL, OP_UNPAUSE, OP_WAIT, OP_REMOVE};
#define EACH_ACT(i) (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); ++i)

static void what_acts_is_sent_once_whatever_becomes_of_it(void **state)
{
    plan_t plan = {.fault = close_without_a_word};
    (void)state;
    serve(play, &plan);
    negotiate();
    for
        EACH_ACT(i)
        {
            unsigned before = atomic_load(&plan.faults);
            expect(acts[i], ID, ENGINE_UNKNOWN, "");
            assert_int_equal(atomic_load(&plan.faults), before + 1);
        }
    assert_int_equal(atomic_load(&plan.kept), 0); /* each on a connection of its own */
}

static void a_read_is_asked_once_more_and_no_more(void **state)
{
    plan_t plan = {.fault = close_without_a_word};
    (void)state;
    serve(play, &plan);
    negotiate();
    expect(OP_INSPECT, ID, ENGINE_UNKNOWN, "");
    assert_int_equal(atomic_load(&plan.faults), 2);
    assert_int_equal(atomic_load(&plan.kept), 1); /* the second try came on a fresh one */
}

/* The second try is on a fresh connection also when another kept one is at hand. */
static void a_second_try_takes_no_other_kept_connection(void **state)
{
    plan_t plan = {.fault = close_without_a_word};
    call_t four[4] = {{.op = OP_NEGOTIATE}, {.op = OP_NEGOTIATE}, {.op = OP_NEGOTIATE}, {.op = OP_NEGOTIATE}};
    (void)state;
    serve(play, &plan);
    for (int i = 0; i < 4; ++i)
        begin(&four[i]);
    wait_for(four[0].has_ended && four[1].has_ended && four[2].has_ended && four[3].has_ended);
    assert_int_equal(atomic_load(&server->open), 4);
    expect(OP_INSPECT, ID, ENGINE_UNKNOWN, "");
    assert_int_equal(atomic_load(&plan.faults), 2);
    assert_int_equal(atomic_load(&plan.kept), 1);
}

/* Closes after the answer without saying so, as a restarted Engine's predecessor did. */
static void answer_once(conn_t *conn)
{
    if (read_request(conn)) {
        const char *row = find_row(negotiable, target_of(conn));
        say(conn, row != NULL ? row : "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
    }
}

static void a_read_outlives_its_kept_connection(void **state)
{
    (void)state;
    serve(answer_once, NULL);
    for (int i = 0; i < 5; ++i) {
        negotiate();
        expect(OP_INFO, NULL, ENGINE_OK, "");
    }
}

static void an_engine_that_is_away_was_sent_nothing(void **state)
{
    plan_t plan = {.fault = hang};
    (void)state;
    serve(play, &plan);
    negotiate();
    server_stop(server);
    server = NULL;
    for
        EACH_ACT(i) /* the socket's file is still there: nobody listens */
    expect(acts[i], ID, ENGINE_UNSENT, "");
    unlink(socket_path);
    for
        EACH_ACT(i)
    expect(acts[i], ID, ENGINE_UNSENT, "");
    expect(OP_INSPECT, ID, ENGINE_UNSENT, "");
}

static void an_engine_that_hangs_is_left_at_the_deadline(void **state)
{
    plan_t plan = {.fault = hang};
    (void)state;
    serve(play, &plan);
    negotiate();
    for
        EACH_ACT(i)
        {
            call_t c = {.op = acts[i], .name = ID, .body = json_object(), .deadline_ms = 100};
            uint64_t begun = clock_mono_ms();
            make(&c);
            assert_answer(&c, ENGINE_UNKNOWN, "deadline");
            assert_int_equal(c.answer.status, 0);
            assert_string_equal(c.id, "");
            assert_in_range(clock_mono_ms() - begun, 90, 5000);
            json_decref((json_t *)c.body);
        }
    call_t c = {.op = OP_LIST, .deadline_ms = 100};
    make(&c);
    assert_answer(&c, ENGINE_UNKNOWN, "deadline");
    assert_int_equal(atomic_load(&plan.faults), sizeof(acts) / sizeof(acts[0]) + 1);
}

static void dribble(conn_t *conn)
{
    const plan_t *plan = conn->server->arg;
    for (const char *p = plan->text; *p != '\0'; ++p)
        if (!say_bytes(conn, p, 1) || !doze(conn, 20))
            return;
    hold(conn);
}

/* The deadline is of the whole exchange, so no rate keeps a call alive. */
static void slow_heads_and_bodies_end_at_the_deadline(void **state)
{
    static const char *const texts[] = {
        "HTTP/1.1 200 OK\r\nA: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "HTTP/1.1 204 No Content\r\nA: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    };
    (void)state;
    plan_t plan = {.fault = dribble};
    serve(play, &plan);
    negotiate();
    for (size_t i = 0; i < 2; ++i) {
        plan.text = texts[i];
        call_t c = {.op = i == 0 ? OP_INFO : OP_START, .name = ID, .deadline_ms = 300};
        uint64_t begun = clock_mono_ms();
        make(&c);
        assert_answer(&c, ENGINE_UNKNOWN, "deadline");
        assert_true(clock_mono_ms() - begun < 5000);
    }
}

static void say_text(conn_t *conn)
{
    const plan_t *plan = conn->server->arg;
    say_bytes(conn, plan->text, plan->len);
}

static const char created[] =
    "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 74\r\n\r\n{\"Id\":\"" ID "\"}\n";

static void an_answer_cut_at_any_byte_is_no_answer(void **state)
{
    plan_t plan = {.fault = say_text, .text = created};
    (void)state;
    size_t body = (size_t)(strstr(created, "\r\n\r\n") + 4 - created);
    assert_int_equal(strlen(created + body), 74);
    for (size_t len = 0; len <= strlen(created); ++len) {
        if (server == NULL || atomic_load(&server->connections) > SERVER_CONNECTIONS_MAX - 3) {
            if (server != NULL)
                stop_serving();
            serve(play, &plan);
            negotiate();
        }
        plan.len = len;
        call_t c = call(OP_CREATE, NAME);
        assert_answer(&c, len < strlen(created) ? ENGINE_UNKNOWN : ENGINE_OK, "");
        assert_string_equal(c.id, len < strlen(created) ? "" : ID);
        engine_answer_dispose(&c.answer);
    }
}

/* Without a length the end of the connection is the end of the body: only the JSON tells whether it is whole. */
static void a_body_without_a_length_is_believed_when_it_is_whole(void **state)
{
    static const char answer[] = JSON_HEAD("201 Created") "{\"Id\":\"" ID "\"}";
    plan_t plan = {.fault = say_text, .text = answer};
    (void)state;
    serve(play, &plan);
    negotiate();
    size_t body = (size_t)(strstr(answer, "\r\n\r\n") + 4 - answer);
    for (size_t cut = 0; cut <= 10; ++cut) {
        plan.len = strlen(answer) - cut;
        call_t c = call(OP_CREATE, NAME);
        assert_answer(&c, cut == 0 ? ENGINE_OK : ENGINE_FAILED, cut == 0 ? "" : "not JSON");
        engine_answer_dispose(&c.answer);
    }
    plan.len = body;
    expect(OP_CREATE, NAME, ENGINE_FAILED, "no body");
}

static void a_chunked_body_is_read(void **state)
{
    static const char answer[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n";
    plan_t plan = {.fault = say_text, .text = answer, .len = sizeof(answer) - 1};
    (void)state;
    serve(play, &plan);
    negotiate();
    expect(OP_INFO, NULL, ENGINE_OK, "");
    plan.len -= 5; /* the last chunk is missing */
    expect(OP_INFO, NULL, ENGINE_UNKNOWN, "");
}

static void what_is_no_http_is_no_answer(void **state)
{
    static const char *const texts[] = {"SSH-2.0-OpenSSH_9\r\n\r\n", "HTTP/1.1 2x0 OK\r\n\r\n", "\r\n\r\n",
                                        "HTTP/1.1 201 Created\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
                                        "HTTP/1.1 201 Created\r\n folded\r\n\r\n{}"};
    plan_t plan = {.fault = say_text};
    (void)state;
    serve(play, &plan);
    negotiate();
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); ++i) {
        plan.text = texts[i];
        plan.len = strlen(texts[i]);
        expect(OP_CREATE, NAME, ENGINE_UNKNOWN, "");
    }
}

/* Padding of white space, so that the answer is right in everything but its size. */
static char *padded(size_t body_len, size_t *len)
{
    char head[128];
    int head_len = snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", body_len);
    char *text = malloc((size_t)head_len + body_len);
    memcpy(text, head, (size_t)head_len);
    memset(text + head_len, ' ', body_len);
    text[head_len] = '{';
    text[(size_t)head_len + body_len - 1] = '}';
    *len = (size_t)head_len + body_len;
    return text;
}

static void bodies_past_the_limit_are_not_read(void **state)
{
    plan_t plan = {.fault = say_text};
    (void)state;
    for (int past = -1; past <= 1; ++past) {
        char *text = padded((size_t)(ENGINE_ANSWER_MAX + past), &plan.len);
        plan.text = text;
        serve(play, &plan);
        negotiate();
        call_t c = {.op = OP_INFO};
        make(&c);
        assert_answer(&c, past > 0 ? ENGINE_FAILED : ENGINE_OK, past > 0 ? "body past its limit" : "");
        engine_answer_dispose(&c.answer);
        stop_serving();
        free(text);
    }
}

static void flood(conn_t *conn)
{
    char bytes[4096];
    memset(bytes, ' ', sizeof(bytes));
    say(conn, "HTTP/1.1 200 OK\r\n\r\n");
    while (say_bytes(conn, bytes, sizeof(bytes)))
        ;
}

static void flood_head(conn_t *conn)
{
    say(conn, "HTTP/1.1 200 OK\r\n");
    while (say(conn, "X-Padding: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n"))
        ;
}

static void floods_without_an_end_are_cut(void **state)
{
    plan_t plan = {.fault = flood};
    (void)state;
    serve(play, &plan);
    negotiate();
    expect(OP_INFO, NULL, ENGINE_FAILED, "too large");
    plan.fault = flood_head;
    expect(OP_INFO, NULL, ENGINE_FAILED, "too large");
    expect(OP_START, ID, ENGINE_FAILED, "too large");
}

/* ---- JSON that would be dear to read ---- */

static json_t *read_json(const char *text, size_t len, const char **why)
{
    /* An exact copy, so that a read past its end is seen. */
    char *copy = malloc(len != 0 ? len : 1);
    memcpy(copy, text, len);
    json_t *json = engine_json_read(copy, len, why);
    free(copy);
    return json;
}

static void nesting_is_bounded(void **state)
{
    (void)state;
    for (int past = -1; past <= 1; ++past) {
        char text[2 * ENGINE_JSON_DEPTH_MAX + 2];
        size_t depth = (size_t)(ENGINE_JSON_DEPTH_MAX + past);
        const char *why;
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        json_t *json = read_json(text, 2 * depth, &why);
        assert_int_equal(json != NULL, past <= 0);
        if (past > 0)
            assert_non_null(strstr(why, "too deep"));
        json_decref(json);
    }
    /* brackets in strings do not nest; an escaped quote does not end one */
    const char *why;
    char text[400] = "[\"\\\"";
    memset(text + strlen(text), '[', 300);
    strcat(text, "\"]");
    json_t *json = read_json(text, strlen(text), &why);
    assert_non_null(json);
    json_decref(json);
}

static void the_number_of_values_is_bounded(void **state)
{
    size_t size = 2 * (ENGINE_JSON_VALUES_MAX + 8);
    char *text = malloc(size);
    (void)state;
    for (int past = -1; past <= 1; ++past) {
        /* the array, its elements, and the one counted for the text itself */
        size_t elements = (size_t)(ENGINE_JSON_VALUES_MAX - 1 + past), len = 0;
        const char *why;
        text[len++] = '[';
        for (size_t i = 0; i < elements; ++i) {
            text[len++] = '1';
            text[len++] = i + 1 < elements ? ',' : ']';
        }
        json_t *json = read_json(text, len, &why);
        assert_int_equal(json != NULL, past <= 0);
        if (past > 0)
            assert_non_null(strstr(why, "too many values"));
        json_decref(json);
    }
    free(text);
}

static void half_strings_are_not_read_past(void **state)
{
    static const char *const texts[] = {"\"", "\"\\", "[\"a\\", "{\"a", "{\"a\\\"", "[",
                                        "]",  "}}}}", ",",      "\\",   "[\"\\\""};
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); ++i) {
        const char *why;
        assert_null(read_json(texts[i], strlen(texts[i]), &why));
        assert_non_null(why);
    }
}

static void deep_json_from_an_engine_does_not_end_the_role(void **state)
{
    plan_t plan = {.fault = say_text};
    (void)state;
    size_t depth = 200000;
    char *text = malloc(depth + 64);
    int head = snprintf(text, 64, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", depth);
    memset(text + head, '[', depth);
    plan.text = text;
    plan.len = (size_t)head + depth;
    serve(play, &plan);
    negotiate();
    expect(OP_INFO, NULL, ENGINE_FAILED, "too deep");
    expect(OP_LIST, NULL, ENGINE_FAILED, "too deep");
    stop_serving();
    free(text);
}

/* ---- sequences ---- */

static void a_remove_that_failed_is_settled_by_an_inspect(void **state)
{
    char remove[256], inspect[256];
    row_t rows[] = {
        {"/v1.41/containers/" ID "?force", remove}, {"/v1.41/containers/" ID "/json", inspect}, {NULL, NULL}};
    static const char gone[] = JSON_HEAD("404 Not Found") "{\"message\":\"No such container\"}";
    (void)state;
    serve(answer_by_table, rows);
    negotiate();
    snprintf(inspect, sizeof(inspect), "%s%s", JSON_HEAD("200 OK"), INSPECTED);
    snprintf(remove, sizeof(remove), "%s%s", JSON_HEAD("500 Internal Server Error"), "{\"message\":\"zombie\"}");
    expect(OP_REMOVE, ID, ENGINE_FAILED, "zombie");
    expect(OP_INSPECT, ID, ENGINE_OK, "");
    snprintf(remove, sizeof(remove), "%s%s", JSON_HEAD("409 Conflict"),
             "{\"message\":\"removal of container is already in progress\"}");
    expect(OP_REMOVE, ID, ENGINE_CONFLICT, "already in progress");
    snprintf(inspect, sizeof(inspect), "%s", gone);
    expect(OP_INSPECT, ID, ENGINE_ABSENT, "No such container");
    snprintf(remove, sizeof(remove), "%s", gone);
    expect(OP_REMOVE, ID, ENGINE_ABSENT, "No such container");
}

static void a_call_of_a_canceled_run_ends_at_once(void **state)
{
    plan_t plan = {.fault = hang};
    (void)state;
    serve(play, &plan);
    negotiate();
    for
        EACH_ACT(i)
        {
            call_t c = {.op = acts[i], .name = ID, .body = json_object()};
            unsigned before = atomic_load(&plan.faults);
            begin(&c);
            wait_for(atomic_load(&plan.faults) == before + 1);
            co_cancel(c.co);
            wait_for(c.has_ended);
            assert_answer(&c, ENGINE_CANCELED, "");
            json_decref((json_t *)c.body);
        }
    call_t c = {.op = OP_NEGOTIATE};
    begin(&c);
    co_cancel(c.co);
    wait_for(c.has_ended);
    assert_false(c.is_negotiated);
    assert_string_equal(engine_api_version(engine), "1.41");
}

static void calls_in_flight_end_with_their_engine(void **state)
{
    plan_t plan = {.fault = hang};
    call_t inspect = {.op = OP_INSPECT, .name = ID}, start = {.op = OP_START, .name = ID};
    (void)state;
    serve(play, &plan);
    negotiate();
    begin(&inspect);
    begin(&start);
    wait_for(atomic_load(&plan.faults) == 2);
    engine_destroy(engine);
    engine = NULL;
    wait_for(inspect.has_ended && start.has_ended);
    assert_answer(&inspect, ENGINE_CANCELED, "");
    assert_answer(&start, ENGINE_CANCELED, "");
}

static unsigned count_descriptors(void)
{
    unsigned count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir) != NULL)
        ++count;
    closedir(dir);
    return count;
}

static void no_descriptor_is_kept_by_calls_that_failed(void **state)
{
    plan_t plan = {.fault = close_without_a_word};
    (void)state;
    serve(play, &plan);
    negotiate();
    expect(OP_START, ID, ENGINE_UNKNOWN, "");
    wait_for(atomic_load(&server->open) <= 1);
    unsigned before = count_descriptors();
    for (int i = 0; i < 30; ++i)
        expect(OP_START, ID, ENGINE_UNKNOWN, "");
    wait_for(atomic_load(&server->open) <= 1);
    assert_true(count_descriptors() <= before);
}

static void requests_past_their_limit_are_not_sent(void **state)
{
    plan_t plan = {.fault = say_text, .text = created, .len = sizeof(created) - 1};
    (void)state;
    serve(play, &plan);
    negotiate();
    for (int past = -1; past <= 1; ++past) {
        /* {"a":"..."}: eight bytes around the text */
        size_t len = (size_t)(1024 * 1024 + past) - 8;
        char *text = malloc(len + 1);
        memset(text, 'a', len);
        text[len] = '\0';
        /* the scripted server reads no request that large, and an answer is not what is asked about here */
        call_t c = {.op = OP_CREATE, .name = NAME, .body = json_pack("{s:s}", "a", text), .deadline_ms = 2000};
        make(&c);
        if (past > 0)
            assert_answer(&c, ENGINE_UNSENT, "too large");
        else
            assert_int_equal(c.answer.outcome, ENGINE_UNKNOWN);
        engine_answer_dispose(&c.answer);
        json_decref((json_t *)c.body);
        free(text);
    }
    call_t c = {.op = OP_CREATE, .name = NAME, .body = NULL};
    make(&c);
    assert_answer(&c, ENGINE_UNSENT, "not JSON");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(what_acts_is_sent_once_whatever_becomes_of_it),
        CASE(a_read_is_asked_once_more_and_no_more),
        CASE(a_second_try_takes_no_other_kept_connection),
        CASE(a_read_outlives_its_kept_connection),
        CASE(an_engine_that_is_away_was_sent_nothing),
        CASE(an_engine_that_hangs_is_left_at_the_deadline),
        CASE(slow_heads_and_bodies_end_at_the_deadline),
        CASE(an_answer_cut_at_any_byte_is_no_answer),
        CASE(a_body_without_a_length_is_believed_when_it_is_whole),
        CASE(a_chunked_body_is_read),
        CASE(what_is_no_http_is_no_answer),
        CASE(bodies_past_the_limit_are_not_read),
        CASE(floods_without_an_end_are_cut),
        CASE(nesting_is_bounded),
        CASE(the_number_of_values_is_bounded),
        CASE(half_strings_are_not_read_past),
        CASE(deep_json_from_an_engine_does_not_end_the_role),
        CASE(a_remove_that_failed_is_settled_by_an_inspect),
        CASE(a_call_of_a_canceled_run_ends_at_once),
        CASE(calls_in_flight_end_with_their_engine),
        CASE(no_descriptor_is_kept_by_calls_that_failed),
        CASE(requests_past_their_limit_are_not_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
