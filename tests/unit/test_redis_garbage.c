/* A server, or something between it and us, that answers what no Redis does: the connection goes, the process stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/clock.h"
#include "core/loop.h"
#include "core/mem.h"
#include "core/random.h"
#include "core/redis.h"
#include "core/redis_reply.h"
#include "scripted_server.h"

enum { LIMIT_MS = 10000 };

#define GREETING "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n+PONG\r\n"
#define SUBSCRIBED "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n"

typedef struct {
    const char *first;   /* said when the connection is greeted */
    const char *then;    /* and after that, without having been asked */
    const char *endless; /* and this again and again, up to `endless_bytes` */
    size_t endless_bytes;
    atomic_size_t said;
} talk_t;

static void garble(conn_t *conn)
{
    talk_t *talk = conn->server->arg;
    char sink[4096];
    if (conn_read(conn, sink, sizeof(sink)) <= 0 || !say(conn, GREETING))
        return;
    if (talk->first != NULL && (conn_read(conn, sink, sizeof(sink)) <= 0 || !say(conn, talk->first)))
        return;
    doze(conn, 20);
    if (!say(conn, talk->then))
        return;
    while (talk->endless != NULL && atomic_load(&talk->said) < talk->endless_bytes) {
        if (!say(conn, talk->endless))
            return;
        atomic_fetch_add(&talk->said, strlen(talk->endless));
    }
    hold(conn);
}

typedef struct {
    unsigned ups, downs, answers, refusals, messages;
    redis_status_t status;
    char reason[256];
    size_t last_len;
} seen_t;
static seen_t seen;

static void on_state(void *data, bool up, const char *reason)
{
    (void)data;
    seen.ups += up;
    if (!up && seen.downs++ == 0)
        snprintf(seen.reason, sizeof(seen.reason), "%s", reason);
}

static void on_message(void *data, const char *payload, size_t len)
{
    (void)data;
    (void)payload;
    ++seen.messages;
    seen.last_len = len;
}

static void on_answer(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    (void)data;
    (void)err;
    ++seen.answers;
    seen.status = status;
    seen.last_len = reply != NULL ? reply->len : 0;
}

static loop_t *loop;

static void turn_until_down(void)
{
    uint64_t until = clock_mono_ms() + LIMIT_MS;
    while (seen.downs == 0) {
        loop_run_once(loop, 5);
        assert_true(clock_mono_ms() < until);
    }
}

static redis_address_t address_of(const server_t *server, char host[32])
{
    redis_address_t address = {.host = host};
    assert_int_equal(sscanf(server->url, "http://%31[^:]:%d", host, &address.port), 2);
    return address;
}

/* The reason why the connection was dropped. */
static void expect_drop(talk_t *talk, bool is_subscription, const char *reason)
{
    char host[32];
    memset(&seen, 0, sizeof(seen));
    loop = loop_create();
    server_t *server = server_start(garble, talk, NULL, NULL);
    redis_address_t address = address_of(server, host);
    if (is_subscription) {
        redis_subscription_t *s = redis_subscribe(loop, &address, "news", on_message, on_state, NULL);
        turn_until_down();
        redis_unsubscribe(s);
    } else {
        redis_t *r = redis_create(loop, &address, on_state, NULL);
        while (seen.ups == 0)
            loop_run_once(loop, 5);
        if (talk->first != NULL)
            redis_command(r, LIMIT_MS, on_answer, NULL, 1, (const char *[]){"GET"}, NULL);
        turn_until_down();
        redis_destroy(r);
    }
    server_stop(server);
    loop_destroy(loop);
    assert_string_equal(seen.reason, reason);
}

#define UNASKED "an answer nobody asked for"
#define NO_NEWS "a message that is none of a subscription's"
#define TOO_LONG "an answer past all limits"

static void test_an_answer_nobody_asked_for_ended_the_process(void **state)
{
    (void)state;
    static const char *const answers[] = {"+OK\r\n", ":1\r\n",  "$2\r\nhi\r\n",      "$-1\r\n",
                                          "*0\r\n",  "*-1\r\n", "*2\r\n:1\r\n:2\r\n"};
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); ++i) {
        expect_drop(&(talk_t){.then = answers[i]}, false, UNASKED);
        expect_drop(&(talk_t){.first = "$1\r\na\r\n", .then = answers[i]}, false, UNASKED);
        assert_int_equal(seen.answers, 1);
        assert_int_equal(seen.status, REDIS_REPLY);
    }
    expect_drop(&(talk_t){.then = "-ERR go away\r\n"}, false, "ERR go away");
}

static void test_a_message_of_another_form_ended_the_process(void **state)
{
    (void)state;
    static const char *const messages[] = {"*3\r\n:1\r\n:2\r\n:3\r\n",
                                           "*1\r\n$7\r\nmessage\r\n",
                                           "*0\r\n",
                                           "*-1\r\n",
                                           "+OK\r\n",
                                           "$-1\r\n",
                                           "*3\r\n$7\r\nmessage\r\n:4\r\n$1\r\na\r\n",
                                           "*3\r\n$11\r\nunsubscribe\r\n$4\r\nnews\r\n$1\r\na\r\n",
                                           "*3\r\n$12\r\npunsubscribe\r\n$4\r\nnews\r\n$1\r\na\r\n",
                                           "*3\r\n$0\r\n\r\n$4\r\nnews\r\n$1\r\na\r\n",
                                           "*3\r\n*1\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$1\r\na\r\n",
                                           "*4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$4\r\nnews\r\n$1\r\na\r\n"};
    for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); ++i) {
        expect_drop(&(talk_t){.first = SUBSCRIBED, .then = messages[i]}, true, NO_NEWS);
        assert_int_equal(seen.messages, 0);
    }
    expect_drop(&(talk_t){.first = SUBSCRIBED, .then = "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$5\r\nhello\r\n*0\r\n"},
                true, NO_NEWS);
    assert_int_equal(seen.messages, 1);
    assert_int_equal(seen.last_len, 5);
}

static void test_an_answer_could_be_of_any_size(void **state)
{
    (void)state;
    char letters[64 * 1024 + 1], thousand[8 + 4 * 1000] = "*1000\r\n";
    for (size_t i = 0; i < 1000; ++i)
        memcpy(thousand + 7 + 4 * i, ":1\r\n", 5);
    memset(letters, 'a', sizeof(letters) - 1);
    letters[sizeof(letters) - 1] = '\0';
    talk_t bulk = {.first = "$2000000000\r\n", .then = "", .endless = letters, .endless_bytes = 256 * 1024 * 1024};
    expect_drop(&bulk, false, TOO_LONG);
    assert_int_equal(seen.status, REDIS_UNKNOWN);
    assert_true(atomic_load(&bulk.said) < 64 * 1024 * 1024);
    expect_drop(&(talk_t){.first = "*2000000000\r\n", .then = ""}, false, TOO_LONG);
    /* many small ones */
    talk_t many = {.first = "*60000\r\n", .then = "", .endless = thousand, .endless_bytes = 64 * 1024 * 1024};
    expect_drop(&many, false, TOO_LONG);
    assert_true(atomic_load(&many.said) < 8 * 1024 * 1024);
    /* a line without an end */
    talk_t line = {.first = "+", .then = "", .endless = letters, .endless_bytes = 256 * 1024 * 1024};
    expect_drop(&line, false, TOO_LONG);
    assert_true(atomic_load(&line.said) < 8 * 1024 * 1024);
    talk_t length = {.first = "$", .then = "", .endless = letters, .endless_bytes = 256 * 1024 * 1024};
    expect_drop(&length, false, TOO_LONG);
}

typedef struct {
    size_t bulk, array;
} sizes_t;

static void answer_sized(conn_t *conn)
{
    const sizes_t *sizes = conn->server->arg;
    char sink[4096], head[32];
    if (conn_read(conn, sink, sizeof(sink)) <= 0 || !say(conn, GREETING) || conn_read(conn, sink, sizeof(sink)) <= 0)
        return;
    size_t len = sizes->bulk + 2 + 5 * sizes->array;
    char *body = calloc(1, len + 1), *at = body;
    if (sizes->array != 0) {
        snprintf(head, sizeof(head), "*%zu\r\n", sizes->array);
        for (size_t i = 0; i < sizes->array; ++i, at += 5)
            memcpy(at, "$-1\r\n", 5);
    } else {
        snprintf(head, sizeof(head), "$%zu\r\n", sizes->bulk);
        memset(at, 'a', sizes->bulk);
        at += sizes->bulk;
        memcpy(at, "\r\n", 2);
        at += 2;
    }
    if (say(conn, head) && say_bytes(conn, body, (size_t)(at - body)))
        hold(conn);
    free(body);
}

static redis_status_t status_of(sizes_t sizes)
{
    char host[32];
    memset(&seen, 0, sizeof(seen));
    loop = loop_create();
    server_t *server = server_start(answer_sized, &sizes, NULL, NULL);
    redis_address_t address = address_of(server, host);
    redis_t *r = redis_create(loop, &address, on_state, NULL);
    while (seen.ups == 0)
        loop_run_once(loop, 5);
    redis_command(r, LIMIT_MS, on_answer, NULL, 1, (const char *[]){"GET"}, NULL);
    while (seen.answers == 0)
        loop_run_once(loop, 5);
    redis_status_t status = seen.status;
    redis_destroy(r);
    server_stop(server);
    loop_destroy(loop);
    return status;
}

static void test_an_answer_at_its_limits(void **state)
{
    (void)state;
    enum { OWN = 64 }; /* what an object costs beside its text */
    assert_int_equal(status_of((sizes_t){.bulk = REDIS_REPLY_MAX - OWN - 1}), REDIS_REPLY);
    assert_int_equal(status_of((sizes_t){.bulk = REDIS_REPLY_MAX - OWN}), REDIS_REPLY);
    assert_int_equal(status_of((sizes_t){.bulk = REDIS_REPLY_MAX - OWN + 1}), REDIS_UNKNOWN);
    assert_int_equal(status_of((sizes_t){.array = REDIS_REPLY_ELEMENTS_MAX - 1}), REDIS_REPLY);
    assert_int_equal(status_of((sizes_t){.array = REDIS_REPLY_ELEMENTS_MAX}), REDIS_REPLY);
    assert_int_equal(status_of((sizes_t){.array = REDIS_REPLY_ELEMENTS_MAX + 1}), REDIS_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_answer_nobody_asked_for_ended_the_process),
        cmocka_unit_test(test_a_message_of_another_form_ended_the_process),
        cmocka_unit_test(test_an_answer_could_be_of_any_size),
        cmocka_unit_test(test_an_answer_at_its_limits),
    };
    random_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
