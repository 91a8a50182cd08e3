/* A connection among the nodes of a Cluster, played by threads that answer by a script: which node it goes to, how
 * often, and what was sent where. */
#include "tests/unit/redis_node.h"

#include "core/clock.h"
#include "core/redis.h"
#include "tests/unit/redis_seen.h"

enum { PATIENCE_MS = 20000, DEADLINE = 30000 };

static loop_t *loop;

#define run_until(condition)                                                                                           \
    do {                                                                                                               \
        uint64_t began_ = clock_mono_ms();                                                                             \
        while (!(condition) && clock_mono_ms() - began_ < PATIENCE_MS)                                                 \
            loop_run_once(loop, 20);                                                                                   \
        assert_true(condition);                                                                                        \
    } while (0)

static void moves_to(char *where, node_t *n, const char *kind, const node_t *target)
{
    char text[64];
    snprintf(text, sizeof(text), "-%s 3999 127.0.0.1:%d", kind, target->port);
    say(where, n, text);
}

/* --- the connection --- */

static node_t a, b;

static void address_of(const node_t *n, bool has_home, redis_address_t *out)
{
    char url[64];
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d", n->port);
    assert_null(redis_address_parse(url, out));
    if (has_home)
        redis_address_home(out, "plimsoll:2:{default}:stamp");
}

static void open_at(seen_t *s, const node_t *n, bool has_home)
{
    redis_address_t address;
    address_of(n, has_home, &address);
    *s = (seen_t){0};
    s->r = redis_create(loop, &address, on_state, s);
    redis_address_dispose(&address);
}

typedef struct {
    int calls;
    redis_status_t status;
    char text[128];
} answer_t;

static void on_answer(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    answer_t *to = data;
    (void)reply;
    to->calls++;
    to->status = status;
    snprintf(to->text, sizeof(to->text), "%s", err != NULL ? err : "");
}

static answer_t set(redis_t *r)
{
    answer_t to = {0};
    redis_command(r, DEADLINE, on_answer, &to, 3, (const char *[]){"SET", "k", "v"}, NULL);
    run_until(to.calls == 1);
    return to;
}

static int set_up(void **state)
{
    (void)state;
    loop = loop_create();
    node_start(&a);
    node_start(&b);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    loop_run_once(loop, 0);
    node_stop(&a);
    node_stop(&b);
    loop_destroy(loop);
    return 0;
}

static void the_node_that_has_the_slot_is_found_before_it_is_up(void **state)
{
    (void)state;
    seen_t s;
    moves_to(a.home, &a, "MOVED", &b);
    open_at(&s, &a, true);
    run_until(s.ups == 1);
    assert_int_equal(s.downs, 0); /* nothing went wrong on the way */
    assert_int_equal(set(s.r).status, REDIS_REPLY);
    assert_int_equal(atomic_load(&a.connections), 1);
    assert_int_equal(atomic_load(&b.connections), 1);
    assert_int_equal(atomic_load(&a.sets), 0);
    assert_int_equal(atomic_load(&b.sets), 1);
    redis_destroy(s.r);
}

static void a_command_that_was_moved_is_refused_and_never_sent_again(void **state)
{
    (void)state;
    seen_t s;
    moves_to(a.set, &a, "MOVED", &b);
    open_at(&s, &a, false);
    run_until(s.ups == 1);
    answer_t first = set(s.r);
    assert_int_equal(first.status, REDIS_REFUSED);
    assert_memory_equal(first.text, "MOVED ", 6);
    assert_int_equal(s.downs, 1);
    run_until(s.ups == 2);
    assert_int_equal(atomic_load(&b.connections), 1);
    assert_int_equal(atomic_load(&b.sets), 0);
    assert_int_equal(set(s.r).status, REDIS_REPLY);
    assert_int_equal(atomic_load(&b.sets), 1);
    assert_int_equal(atomic_load(&a.sets), 1);
    redis_destroy(s.r);
}

static void an_idle_connection_notices_that_the_slot_moved(void **state)
{
    (void)state;
    seen_t s;
    open_at(&s, &a, true);
    run_until(s.ups == 1);
    moves_to(a.home, &a, "MOVED", &b);
    run_until(s.ups == 2); /* nobody asked anything */
    assert_int_equal(set(s.r).status, REDIS_REPLY);
    assert_int_equal(atomic_load(&a.sets), 0);
    assert_int_equal(atomic_load(&b.sets), 1);
    redis_destroy(s.r);
}

static void a_host_left_out_is_the_host_that_answered(void **state)
{
    (void)state;
    seen_t s;
    char text[64];
    snprintf(text, sizeof(text), "-MOVED 1 :%d", b.port);
    say(a.home, &a, text);
    open_at(&s, &a, true);
    run_until(s.ups == 1);
    assert_int_equal(atomic_load(&b.connections), 1);
    redis_destroy(s.r);
}

static void nodes_that_name_each_other_are_given_up_after_some_hops(void **state)
{
    (void)state;
    seen_t s;
    moves_to(a.home, &a, "MOVED", &b);
    moves_to(b.home, &b, "MOVED", &a);
    open_at(&s, &a, true);
    run_until(strcmp(s.reason, "the nodes of the Cluster name each other") == 0);
    assert_int_equal(s.ups, 0);
    /* the first attempt and REDIS_HOPS_MAX more */
    assert_int_equal(atomic_load(&a.connections) + atomic_load(&b.connections), 1 + REDIS_HOPS_MAX);
    say(b.home, &b, ":0");
    run_until(s.ups == 1);
    assert_int_equal(set(s.r).status, REDIS_REPLY);
    redis_destroy(s.r);
}

static void a_node_that_is_not_there_leads_back_to_the_configured_one(void **state)
{
    (void)state;
    seen_t s;
    atomic_store(&b.refuses, true);
    moves_to(a.home, &a, "MOVED", &b);
    open_at(&s, &a, true);
    run_until(atomic_load(&a.connections) >= 3); /* asked again, each time */
    assert_int_equal(s.ups, 0);
    say(a.home, &a, ":0");
    run_until(s.ups == 1);
    assert_int_equal(set(s.r).status, REDIS_REPLY);
    assert_int_equal(atomic_load(&a.sets), 1);
    redis_destroy(s.r);
}

static void a_moved_answer_that_names_no_node_ends_the_attempt(void **state)
{
    (void)state;
    seen_t s;
    say(a.home, &a, "-MOVED 3999 ?:6379");
    open_at(&s, &a, true);
    run_until(strcmp(s.reason, "a MOVED answer without a node") == 0);
    say(a.home, &a, ":1");
    run_until(s.ups == 1);
    redis_destroy(s.r);
}

static void an_ask_is_refused_and_the_connection_stays(void **state)
{
    (void)state;
    static const char *const OTHERS[] = {"-TRYAGAIN Multiple keys request during rehashing of slot",
                                         "-CLUSTERDOWN The cluster is down"};
    seen_t s;
    moves_to(a.set, &a, "ASK", &b);
    open_at(&s, &a, true);
    run_until(s.ups == 1);
    assert_int_equal(set(s.r).status, REDIS_REFUSED);
    for (size_t i = 0; i < 2; i++) {
        say(a.set, &a, OTHERS[i]);
        assert_int_equal(set(s.r).status, REDIS_REFUSED);
    }
    say(a.set, &a, "+OK");
    assert_int_equal(set(s.r).status, REDIS_REPLY);
    assert_int_equal(atomic_load(&a.connections), 1);
    assert_int_equal(atomic_load(&b.connections), 0);
    assert_int_equal(s.downs, 0);
    redis_destroy(s.r);
}

static void a_cluster_that_is_down_is_not_up(void **state)
{
    (void)state;
    seen_t s;
    say(a.home, &a, "-CLUSTERDOWN Hash slot not served");
    open_at(&s, &a, true);
    run_until(s.downs == 1);
    assert_memory_equal(s.reason, "CLUSTERDOWN", 11);
    assert_false(redis_is_up(s.r));
    say(a.home, &a, ":0");
    run_until(s.ups == 1);
    redis_destroy(s.r);
}

static void on_message(void *data, const char *payload, size_t len)
{
    (void)data;
    (void)payload;
    (void)len;
}

static void a_subscription_goes_where_the_slot_is(void **state)
{
    (void)state;
    seen_t s = {0};
    redis_address_t address;
    moves_to(a.home, &a, "MOVED", &b);
    address_of(&a, true, &address);
    redis_subscription_t *subscription = redis_subscribe(loop, &address, "c", on_message, on_state, &s);
    redis_address_dispose(&address);
    run_until(s.ups == 1);
    assert_int_equal(atomic_load(&b.connections), 1);
    redis_unsubscribe(subscription);
}

static void a_connection_may_end_on_its_way(void **state)
{
    (void)state;
    seen_t s;
    moves_to(a.home, &a, "MOVED", &b);
    moves_to(b.home, &b, "MOVED", &a);
    for (int ticks = 0; ticks < 12; ticks++) {
        open_at(&s, &a, true);
        for (int i = 0; i < ticks; i++)
            loop_run_once(loop, 5);
        redis_destroy(s.r);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_node_that_has_the_slot_is_found_before_it_is_up),
        TEST(a_command_that_was_moved_is_refused_and_never_sent_again),
        TEST(an_idle_connection_notices_that_the_slot_moved),
        TEST(a_host_left_out_is_the_host_that_answered),
        TEST(nodes_that_name_each_other_are_given_up_after_some_hops),
        TEST(a_node_that_is_not_there_leads_back_to_the_configured_one),
        TEST(a_moved_answer_that_names_no_node_ends_the_attempt),
        TEST(an_ask_is_refused_and_the_connection_stays),
        TEST(a_cluster_that_is_down_is_not_up),
        TEST(a_subscription_goes_where_the_slot_is),
        TEST(a_connection_may_end_on_its_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
