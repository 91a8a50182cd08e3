/*
 * An Engine that answers by a test's table, on a Unix socket, and the calls of engine.h from a coroutine. Included by
 * tests only, hence static.
 */
#ifndef TESTS_FAKE_ENGINE_H
#define TESTS_FAKE_ENGINE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* accept4, strcasestr */
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "backends/docker/engine.h"
#include "core/clock.h"
#include "core/co.h"
#include "core/loop.h"

#include "scripted_server.h"

#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define OTHER_ID "f123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define JSON_HEAD(status) "HTTP/1.1 " status "\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
#define PING_OF(version)                                                                                               \
    "HTTP/1.1 200 OK\r\nApi-Version: " version "\r\nOstype: linux\r\nContent-Type: text/plain\r\nContent-Length: 2"    \
    "\r\n\r\nOK"
#define VERSION_OF(api, min, os)                                                                                       \
    JSON_HEAD("200 OK") "{\"ApiVersion\":\"" api "\",\"MinAPIVersion\":\"" min "\",\"Os\":\"" os "\",\"New\":[1]}"

/* What is answered to the request whose target begins with `target`; the answer ends the connection. */
typedef struct {
    const char *target;
    const char *answer;
} row_t;

static loop_t *loop;
static engine_t *engine;
static server_t *server;
static char socket_dir[32], socket_path[64];

static __attribute__((unused)) const row_t negotiable[] = {
    {"/_ping", PING_OF("1.41")}, {"/version", VERSION_OF("1.41", "1.12", "linux")}, {NULL, NULL}};

/* The target of the request just read. */
static __attribute__((unused)) const char *target_of(const conn_t *conn)
{
    const char *space = strchr(conn->request, ' ');
    return space != NULL ? space + 1 : "";
}

static __attribute__((unused)) const char *find_row(const row_t *rows, const char *target)
{
    for (; rows->target != NULL; ++rows)
        if (strncmp(target, rows->target, strlen(rows->target)) == 0)
            return rows->answer;
    return NULL;
}

/* `conn->server->arg` is the table; whatever is not in it is negotiable's, or nothing. */
static __attribute__((unused)) void answer_by_table(conn_t *conn)
{
    if (!read_request(conn))
        return;
    const char *answer = find_row(conn->server->arg, target_of(conn));
    if (answer == NULL)
        answer = find_row(negotiable, target_of(conn));
    if (answer != NULL)
        say(conn, answer);
}

static __attribute__((unused)) void serve(void (*script)(conn_t *conn), const void *arg)
{
    server = server_start(script, (void *)arg, socket_path, NULL);
}

static __attribute__((unused)) int setup(void **state)
{
    (void)state;
    snprintf(socket_dir, sizeof(socket_dir), "/tmp/fake-engine-XXXXXX");
    assert_non_null(mkdtemp(socket_dir));
    snprintf(socket_path, sizeof(socket_path), "%s/engine.sock", socket_dir);
    loop = loop_create();
    engine = engine_create(loop, socket_path);
    server = NULL;
    return 0;
}

static __attribute__((unused)) int teardown(void **state)
{
    (void)state;
    if (engine != NULL)
        engine_destroy(engine);
    if (server != NULL)
        server_stop(server);
    for (int i = 0; i < 3; ++i)
        loop_run_once(loop, 0);
    loop_destroy(loop);
    unlink(socket_path);
    rmdir(socket_dir);
    return 0;
}

#define wait_for(condition)                                                                                            \
    do {                                                                                                               \
        uint64_t give_up_ = clock_mono_ms() + 30000;                                                                   \
        while (!(condition)) {                                                                                         \
            assert_true(clock_mono_ms() < give_up_);                                                                   \
            loop_run_once(loop, 10);                                                                                   \
        }                                                                                                              \
    } while (0)

/* ---- calls ---- */

typedef enum {
    OP_NEGOTIATE,
    OP_INFO,
    OP_IMAGE,
    OP_CREATE,
    OP_START,
    OP_INSPECT,
    OP_KILL,
    OP_UNPAUSE,
    OP_WAIT,
    OP_REMOVE,
    OP_LIST,
} op_t;

typedef struct {
    op_t op;
    const char *name; /* of the image or the container */
    const json_t *body;
    const char *const *labels;
    size_t label_count;
    uint32_t deadline_ms; /* 0 = 20 s */
    bool is_negotiated;
    char failure[ENGINE_TEXT_MAX];
    char id[ENGINE_ID_BYTES + 1];
    engine_answer_t answer;
    bool has_ended;
    co_t *co;
} call_t;

static __attribute__((unused)) void make_call(void *arg)
{
    call_t *c = arg;
    uint32_t ms = c->deadline_ms != 0 ? c->deadline_ms : 20000;
    switch (c->op) {
    case OP_NEGOTIATE:
        c->is_negotiated = engine_negotiate(engine, ms, c->failure);
        break;
    case OP_INFO:
        engine_info(engine, ms, &c->answer);
        break;
    case OP_IMAGE:
        engine_image_inspect(engine, c->name, ms, &c->answer);
        break;
    case OP_CREATE:
        engine_container_create(engine, c->name, c->body, ms, c->id, &c->answer);
        break;
    case OP_START:
        engine_container_start(engine, c->name, ms, &c->answer);
        break;
    case OP_INSPECT:
        engine_container_inspect(engine, c->name, ms, &c->answer);
        break;
    case OP_KILL:
        engine_container_kill(engine, c->name, ms, &c->answer);
        break;
    case OP_UNPAUSE:
        engine_container_unpause(engine, c->name, ms, &c->answer);
        break;
    case OP_WAIT:
        engine_container_wait(engine, c->name, ms, &c->answer);
        break;
    case OP_REMOVE:
        engine_container_remove(engine, c->name, ms, &c->answer);
        break;
    case OP_LIST:
        engine_container_list(engine, c->labels, c->label_count, ms, &c->answer);
        break;
    }
}

static __attribute__((unused)) void on_call_end(void *arg)
{
    call_t *c = arg;
    c->has_ended = true;
    c->co = NULL;
}

static __attribute__((unused)) void begin(call_t *c)
{
    c->co = co_start(loop, make_call, c, on_call_end);
}

static __attribute__((unused)) void make(call_t *c)
{
    begin(c);
    wait_for(c->has_ended);
    for (const char *p = c->answer.text; *p != '\0'; ++p)
        assert_in_range(*p, 0x20, 0x7e);
    assert_true(c->answer.json == NULL || c->answer.outcome == ENGINE_OK);
}

static __attribute__((unused)) void negotiate(void)
{
    call_t c = {.op = OP_NEGOTIATE};
    make(&c);
    if (!c.is_negotiated)
        print_error("%s\n", c.failure);
    assert_true(c.is_negotiated);
}

/* A call with a name; the answer is the caller's. */
static __attribute__((unused)) call_t call(op_t op, const char *name)
{
    json_t *body = json_pack("{s:s}", "Image", "sha256:" ID);
    call_t c = {.op = op, .name = name, .body = body};
    make(&c);
    json_decref(body);
    c.body = NULL;
    return c;
}

static __attribute__((unused)) void assert_answer(const call_t *c, engine_outcome_t outcome, const char *text)
{
    if (c->answer.outcome != outcome || strstr(c->answer.text, text) == NULL)
        print_error("op %d: %s, status %d: %s\n", c->op, engine_outcome_name(c->answer.outcome), c->answer.status,
                    c->answer.text);
    assert_int_equal(c->answer.outcome, outcome);
    assert_non_null(strstr(c->answer.text, text));
}

/* Makes the call, checks how it ended, drops the answer. */
static __attribute__((unused)) void expect(op_t op, const char *name, engine_outcome_t outcome, const char *text)
{
    call_t c = call(op, name);
    assert_answer(&c, outcome, text);
    engine_answer_dispose(&c.answer);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

#endif
