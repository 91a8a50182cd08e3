/* The master that Sentinels name, with Sentinels and servers played by threads: who is asked, for how long, what is
 * believed. */
#include "tests/unit/redis_node.h"

#include "core/clock.h"
#include "core/redis.h"
#include "core/redis_sentinel.h"
#include "tests/unit/redis_seen.h"

enum { PATIENCE_MS = 20000, SENTINELS = 3 };

static loop_t *loop;
static node_t sentinels[SENTINELS], server, other;

#define run_until(condition)                                                                                           \
    do {                                                                                                               \
        uint64_t began_ = clock_mono_ms();                                                                             \
        while (!(condition) && clock_mono_ms() - began_ < PATIENCE_MS)                                                 \
            loop_run_once(loop, 20);                                                                                   \
        assert_true(condition);                                                                                        \
    } while (0)

static int set_up(void **state)
{
    (void)state;
    loop = loop_create();
    for (int i = 0; i < SENTINELS; i++)
        node_start(&sentinels[i]);
    node_start(&server);
    node_start(&other);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    loop_run_once(loop, 0);
    for (int i = 0; i < SENTINELS; i++)
        node_stop(&sentinels[i]);
    node_stop(&server);
    node_stop(&other);
    loop_destroy(loop);
    return 0;
}

static void names(node_t *sentinel, const node_t *master)
{
    char text[128], port[8];
    int len = snprintf(port, sizeof(port), "%d", master->port);
    snprintf(text, sizeof(text), "*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%s", len, port);
    say(sentinel->named, sentinel, text);
}

static void address_of(int count, redis_address_t *out)
{
    char url[256];
    int len = snprintf(url, sizeof(url), "redis+sentinel://127.0.0.1:%d", sentinels[0].port);
    for (int i = 1; i < count; i++)
        len += snprintf(url + len, sizeof(url) - (size_t)len, ",127.0.0.1:%d", sentinels[i].port);
    snprintf(url + len, sizeof(url) - (size_t)len, "/records");
    assert_null(redis_address_parse(url, out));
}

/* --- asking --- */

typedef struct {
    int calls, port;
    bool found;
    unsigned which;
    char host[64], reason[256];
} found_t;

static void on_found(void *data, const char *host, int port, unsigned which, const char *reason)
{
    found_t *f = data;
    f->calls++;
    f->found = host != NULL;
    f->port = port;
    f->which = which;
    snprintf(f->host, sizeof(f->host), "%s", host != NULL ? host : "");
    snprintf(f->reason, sizeof(f->reason), "%s", reason);
}

static found_t ask(int count, unsigned first)
{
    found_t f = {0};
    redis_address_t address;
    address_of(count, &address);
    redis_sentinel_ask(loop, &address, first, on_found, &f);
    redis_address_dispose(&address);
    assert_int_equal(f.calls, 0); /* never before the call returned */
    run_until(f.calls == 1);
    return f;
}

static void the_first_that_answers_is_believed(void **state)
{
    (void)state;
    for (int i = 0; i < SENTINELS; i++)
        names(&sentinels[i], &server);
    found_t f = ask(SENTINELS, 1);
    assert_true(f.found);
    assert_string_equal(f.host, "127.0.0.1");
    assert_int_equal(f.port, server.port);
    assert_int_equal(f.which, 1);
    f = ask(SENTINELS, 7); /* cut to those there are */
    assert_int_equal(f.which, 1);
    assert_int_equal(atomic_load(&sentinels[0].connections) + atomic_load(&sentinels[2].connections), 0);
}

static void those_that_are_of_no_use_are_passed_over_in_turn(void **state)
{
    (void)state;
    atomic_store(&sentinels[0].refuses, true);
    say(sentinels[1].named, &sentinels[1], "*-1");
    names(&sentinels[2], &server);
    found_t f = ask(SENTINELS, 0);
    assert_true(f.found);
    assert_int_equal(f.which, 2);
    say(sentinels[2].named, &sentinels[2], "-NOPERM this user has no permissions");
    f = ask(SENTINELS, 0);
    assert_false(f.found);
    assert_non_null(strstr(f.reason, "NOPERM"));
    assert_int_equal(atomic_load(&sentinels[1].asked), 2); /* each once a question */
}

static void one_that_is_silent_takes_its_time_and_no_more(void **state)
{
    (void)state;
    uint64_t began = clock_mono_ms();
    found_t f = ask(SENTINELS, 0); /* "": nobody answers SENTINEL */
    uint64_t took = clock_mono_ms() - began;
    assert_false(f.found);
    assert_non_null(strstr(f.reason, "no answer"));
    assert_in_range(took, SENTINELS * REDIS_SENTINEL_MS - 10, SENTINELS * REDIS_SENTINEL_MS + 5000);
}

static void answers_that_are_no_address_are_not_believed(void **state)
{
    (void)state;
    static const char *const CASES[] = {
        "+OK",
        ":1",
        "$9\r\n127.0.0.1",
        "*0",
        "*1\r\n$9\r\n127.0.0.1",
        "*3\r\n$9\r\n127.0.0.1\r\n$4\r\n6379\r\n$1\r\n1",
        "*2\r\n$9\r\n127.0.0.1\r\n:6379",
        "*2\r\n$-1\r\n$4\r\n6379",
        "*2\r\n$9\r\n127.0.0.1\r\n$1\r\n0",
        "*2\r\n$9\r\n127.0.0.1\r\n$5\r\n65536",
        "*2\r\n$9\r\n127.0.0.1\r\n$6\r\n006379",
        "*2\r\n$9\r\n127.0.0.1\r\n$2\r\n-1",
        "*2\r\n$9\r\n127.0.0.1\r\n$0\r\n",
        "*2\r\n$9\r\n127.0.0.1\r\n$5\r\n6379 ",
        "*2\r\n$0\r\n\r\n$4\r\n6379",
        "*2\r\n$9\r\n127.0 0.1\r\n$4\r\n6379",
        "*2\r\n$9\r\n127.0@0.1\r\n$4\r\n6379",
        "*2\r\n*0\r\n*0",
        "?noise",
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        say(sentinels[0].named, &sentinels[0], CASES[i]);
        found_t f = ask(1, 0);
        if (f.found)
            fail_msg("believed: %s", CASES[i]);
        assert_memory_equal(f.reason, "no Sentinel named the master: 127.0.0.1:", 40);
    }
}

static void a_question_may_be_taken_back_at_any_time(void **state)
{
    (void)state;
    atomic_store(&sentinels[0].refuses, true);
    names(&sentinels[1], &server);
    for (int ticks = 0; ticks < 12; ticks++) {
        found_t f = {0};
        redis_address_t address;
        address_of(2, &address);
        redis_sentinel_t *question = redis_sentinel_ask(loop, &address, 0, on_found, &f);
        redis_address_dispose(&address);
        for (int i = 0; i < ticks && f.calls == 0; i++)
            loop_run_once(loop, 2);
        if (f.calls == 0)
            redis_sentinel_cancel(question);
        loop_run_once(loop, 0);
    }
}

/* --- a connection by way of them --- */

static void open_by(seen_t *s, int count)
{
    redis_address_t address;
    address_of(count, &address);
    *s = (seen_t){0};
    s->r = redis_create(loop, &address, on_state, s);
    redis_address_dispose(&address);
}

static void what_is_named_must_say_that_it_is_a_master(void **state)
{
    (void)state;
    static const char *const ROLES[] = {
        "*5\r\n$5\r\nslave\r\n$1\r\nh\r\n:1\r\n$9\r\nconnected\r\n:0",
        "*2\r\n$8\r\nsentinel\r\n*0",
        "-NOPERM this user has no permissions to run the 'role' command",
        "+master",
        "*0",
    };
    seen_t s;
    names(&sentinels[0], &server);
    for (size_t i = 0; i < sizeof(ROLES) / sizeof(ROLES[0]); i++) {
        say(server.role, &server, ROLES[i]);
        open_by(&s, 1);
        run_until(s.downs == 1);
        assert_int_equal(s.ups, 0);
        say(server.role, &server, NODE_MASTER);
        run_until(s.ups == 1);
        redis_destroy(s.r);
        loop_run_once(loop, 0);
    }
}

static void a_sentinel_behind_the_others_is_not_asked_first_again(void **state)
{
    (void)state;
    seen_t s;
    say(other.role, &other, "*5\r\n$5\r\nslave\r\n$1\r\nh\r\n:1\r\n$9\r\nconnected\r\n:0");
    names(&sentinels[0], &other); /* the old master */
    names(&sentinels[1], &server);
    open_by(&s, 2);
    run_until(s.ups == 1);
    assert_int_equal(atomic_load(&other.connections), 1);
    assert_int_equal(atomic_load(&sentinels[0].asked), 1);
    redis_destroy(s.r);
}

static void on_answer(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    (void)reply;
    (void)err;
    *(int *)data = (int)status;
}

static void a_master_that_became_read_only_is_looked_for_anew(void **state)
{
    (void)state;
    seen_t s;
    int status = -1;
    names(&sentinels[0], &server);
    say(server.set, &server, "-READONLY You can't write against a read only replica.");
    open_by(&s, 1);
    run_until(s.ups == 1);
    names(&sentinels[0], &other);
    redis_command(s.r, 30000, on_answer, &status, 3, (const char *[]){"SET", "k", "v"}, NULL);
    run_until(status == REDIS_REFUSED);
    run_until(s.ups == 2);
    assert_int_equal(atomic_load(&other.connections), 1);
    assert_int_equal(atomic_load(&other.sets), 0); /* what was refused is not sent again */
    redis_destroy(s.r);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_first_that_answers_is_believed),
        TEST(those_that_are_of_no_use_are_passed_over_in_turn),
        TEST(one_that_is_silent_takes_its_time_and_no_more),
        TEST(answers_that_are_no_address_are_not_believed),
        TEST(a_question_may_be_taken_back_at_any_time),
        TEST(what_is_named_must_say_that_it_is_a_master),
        TEST(a_sentinel_behind_the_others_is_not_asked_first_again),
        TEST(a_master_that_became_read_only_is_looked_for_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
