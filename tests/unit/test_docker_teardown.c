/* Removal: gone only by a look-up, never dropped from the list otherwise (spec backend-docker 1.6, 8 (16)); and what
 * the reaper takes for a leftover (1.10). */
#include "tests/unit/docker_fixture.h"

static teardown_t *teardown;
static engine_t *engine;
static bool is_busy_now;

static bool is_busy(void *data)
{
    (void)data;
    return is_busy_now;
}

static void up(void)
{
    is_busy_now = false;
    engine = engine_create(loop, "");
    teardown = teardown_create(loop, engine, is_busy, NULL);
}

static void down(void *data)
{
    (void)data;
    teardown_destroy(teardown);
    engine_destroy(engine);
}

static fake_t *container(const char *name)
{
    fake_t *fake = mem_alloc(sizeof(*fake));
    snprintf(fake->name, sizeof(fake->name), "%s", name);
    random_hex(fake->id, ENGINE_ID_BYTES / 2);
    fake->body = json_pack("{s:s, s:{}}", "Image", "sha256:1", "HostConfig");
    fake->exists = fake->is_running = true;
    fakes[fake_count++] = fake;
    return fake;
}

static bool is_empty(void *data)
{
    (void)data;
    return teardown_count(teardown) == 0;
}

static void one_is_removed_and_looked_for(void **state)
{
    (void)state;
    up();
    fake_t *fake = container("plimsoll-1");
    teardown_add(teardown, fake->name, fake->id, TEARDOWN_NOW);
    teardown_add(teardown, fake->name, fake->id, TEARDOWN_NOW); /* twice is once */
    assert_int_equal(teardown_count(teardown), 1);
    assert_true(teardown_has(teardown, "plimsoll-1"));
    spin_until(is_empty, NULL);
    assert_false(fake->exists);
    assert_int_equal(fake->removals, 1);
    assert_int_equal(teardown_done_count(teardown), 1);
    in_coroutine(down, NULL);
}

static void a_paused_one_is_let_go_on_first(void **state)
{
    (void)state;
    up();
    fake_t *fake = container("plimsoll-1");
    fake->is_paused = true;
    teardown_add(teardown, fake->name, fake->id, TEARDOWN_NOW);
    spin_until(is_empty, NULL);
    assert_int_equal(fake->unpauses, 1);
    assert_false(fake->exists);
    in_coroutine(down, NULL);
}

/* Forced upon one that is just ending, a removal leaves the runtime's shim behind. */
static void one_that_runs_is_removed_after_its_end(void **state)
{
    (void)state;
    up();
    fake_t *ending = container("plimsoll-1"), *running = container("plimsoll-2"), *over = container("plimsoll-3");
    over->is_running = false;
    teardown_add(teardown, ending->name, ending->id, TEARDOWN_IDLE);
    teardown_add(teardown, running->name, running->id, TEARDOWN_NOW);
    teardown_add(teardown, over->name, over->id, TEARDOWN_NOW);
    spin_until(is_empty, NULL);
    assert_int_equal(ending->forced + running->forced + over->forced, 0);
    assert_int_equal(ending->waits, 1);
    assert_int_equal(ending->kills, 0); /* its runner ends with its stream */
    assert_int_equal(running->waits, 1);
    assert_int_equal(running->kills, 1);
    assert_int_equal(over->waits + over->kills, 0);
    in_coroutine(down, NULL);
}

static void one_that_does_not_end_is_removed_all_the_same(void **state)
{
    (void)state;
    up();
    fake_t *fake = container("plimsoll-1");
    fake_engine.end_ms = 60000;
    uint64_t began_ms = clock_mono_ms();
    teardown_add(teardown, fake->name, fake->id, TEARDOWN_IDLE);
    spin_until(is_empty, NULL);
    assert_int_equal(fake->forced, 1);
    assert_in_range(clock_mono_ms() - began_ms, TEARDOWN_END_MS, TEARDOWN_END_MS + 1500);
    in_coroutine(down, NULL);
}

/* Runners that do not end keep a worker each for a while. */
static void what_may_still_run_does_not_wait_for_what_is_idle(void **state)
{
    char name[ENGINE_NAME_MAX];
    (void)state;
    up();
    fake_engine.end_ms = 60000;
    for (int i = 0; i < 2 * TEARDOWN_WORKERS; ++i) {
        snprintf(name, sizeof(name), "plimsoll-idle-%d", i);
        fake_t *idle = container(name);
        teardown_add(teardown, idle->name, idle->id, TEARDOWN_IDLE);
    }
    spin(50);
    fake_t *running = container("plimsoll-now");
    running->is_running = false;
    teardown_add(teardown, running->name, running->id, TEARDOWN_NOW);
    spin(300);
    assert_false(running->exists);
    spin_until(is_empty, NULL);
    in_coroutine(down, NULL);
}

static void an_answer_does_not_make_it_gone(void **state)
{
    (void)state;
    up();
    fake_t *fake = container("plimsoll-1");
    fake_engine.remove_fails = 1; /* it says 204 and does nothing */
    teardown_add(teardown, fake->name, fake->id, TEARDOWN_NOW);
    spin(300);
    assert_int_equal(teardown_count(teardown), 1);
    assert_int_equal(fake->removals, 1); /* the next after TEARDOWN_PAUSE_MS */
    spin_until(is_empty, NULL);
    assert_int_equal(fake->removals, 2);
    in_coroutine(down, NULL);
}

static void removed_by_somebody_else_is_gone(void **state)
{
    (void)state;
    up();
    teardown_add(teardown, "plimsoll-1", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                 TEARDOWN_NOW);
    spin_until(is_empty, NULL);
    in_coroutine(down, NULL);
}

static void one_under_removal_is_waited_for(void **state)
{
    (void)state;
    up();
    fake_t *fake = container("plimsoll-1");
    fake_engine.remove = ENGINE_CONFLICT;
    fake_engine.remove_fails = 1;
    teardown_add(teardown, fake->name, fake->id, TEARDOWN_NOW);
    spin(250);
    assert_int_equal(teardown_count(teardown), 1);
    fake->exists = false;
    spin_until(is_empty, NULL);
    assert_int_equal(fake->removals, 1);
    in_coroutine(down, NULL);
}

/* 3 attempts, pauses of 1 s and 2 s, then set aside, counted, and kept. */
static void what_stays_is_set_aside_and_kept(void **state)
{
    (void)state;
    up();
    fake_t *fake = container("plimsoll-1");
    fake_engine.remove = ENGINE_FAILED;
    fake_engine.remove_fails = 1000;
    uint64_t began_ms = clock_mono_ms();
    teardown_add(teardown, fake->name, fake->id, TEARDOWN_NOW);
    while (teardown_failed_count(teardown) == 0 && clock_mono_ms() - began_ms < 9000)
        loop_run_once(loop, 5);
    assert_in_range(clock_mono_ms() - began_ms, 3000, 6000);
    assert_int_equal(fake->removals, TEARDOWN_ATTEMPTS);
    assert_int_equal(teardown_failed_count(teardown), 1);
    assert_int_equal(teardown_count(teardown), 1);
    spin(300);
    assert_int_equal(fake->removals, TEARDOWN_ATTEMPTS);
    in_coroutine(down, NULL);
}

static void flush(void *data)
{
    *(bool *)data = teardown_flush(teardown, 1500);
}

static void an_engine_that_is_away_loses_nothing(void **state)
{
    bool is_flushed = true;
    (void)state;
    up();
    for (int i = 0; i < 5; ++i) {
        char name[32];
        snprintf(name, sizeof(name), "plimsoll-%d", i);
        fake_t *fake = container(name);
        teardown_add(teardown, fake->name, fake->id, TEARDOWN_IDLE);
    }
    fake_engine.inspect = ENGINE_UNSENT;
    fake_engine.remove = ENGINE_UNSENT;
    fake_engine.remove_fails = 1000;
    in_coroutine(flush, &is_flushed);
    assert_false(is_flushed);
    assert_int_equal(teardown_count(teardown), 5);
    fake_engine.inspect = fake_engine.remove = ENGINE_OK;
    fake_engine.remove_fails = 0;
    in_coroutine(flush, &is_flushed);
    assert_true(is_flushed);
    assert_int_equal(fake_existing(), 0);
    in_coroutine(down, NULL);
}

static void what_can_wait_does_so_for_runs_a_second(void **state)
{
    (void)state;
    up();
    is_busy_now = true;
    fake_t *idle = container("plimsoll-1"), *running = container("plimsoll-2");
    uint64_t began_ms = clock_mono_ms();
    teardown_add(teardown, idle->name, idle->id, TEARDOWN_IDLE);
    teardown_add(teardown, running->name, running->id, TEARDOWN_NOW);
    spin(200);
    assert_false(running->exists);
    assert_true(idle->exists);
    spin_until(is_empty, NULL);
    assert_in_range(clock_mono_ms() - began_ms, TEARDOWN_YIELD_MS, TEARDOWN_YIELD_MS + 3000);
    in_coroutine(down, NULL);
}

static void open_stream(void *data)
{
    static const attach_events_t events = {0};
    fake_t *fake = data;
    char failure[ENGINE_TEXT_MAX];
    fake->is_running = false;
    fake->attach = attach_open(engine, loop, fake->id, &events, NULL, 1000, failure);
    assert_non_null(fake->attach);
    fake->is_running = true;
}

/* With its stream the runner ends, and the Engine clears its sandbox away while runs need the machine. */
static void a_stream_is_held_until_the_removal_begins(void **state)
{
    (void)state;
    up();
    is_busy_now = true;
    fake_t *fake = container("plimsoll-1"), *other = container("plimsoll-2");
    in_coroutine(open_stream, fake);
    in_coroutine(open_stream, other);
    teardown_add(teardown, fake->name, fake->id, TEARDOWN_IDLE);
    teardown_hold(teardown, fake->name, fake->attach);
    teardown_hold(teardown, other->name, other->attach);
    assert_null(other->attach); /* nothing is to be removed that could close it */
    spin(200);
    assert_non_null(fake->attach);
    is_busy_now = false;
    spin_until(is_empty, NULL);
    assert_null(fake->attach);
    in_coroutine(down, NULL);
}

/* The answer to its creation never came: it may be there under its name, now or in a while. */
static void one_known_by_name_is_found_and_removed_by_its_id(void **state)
{
    (void)state;
    up();
    fake_t *fake = container("plimsoll-1");
    teardown_add(teardown, "plimsoll-1", "", TEARDOWN_NOW);
    spin_until(is_empty, NULL);
    assert_int_equal(fake->removals, 1);
    in_coroutine(down, NULL);
}

static void one_that_is_not_there_yet_is_not_gone(void **state)
{
    (void)state;
    up();
    teardown_add(teardown, "plimsoll-1", NULL, TEARDOWN_NOW);
    spin(300);
    assert_int_equal(teardown_count(teardown), 1);
    fake_t *fake = container("plimsoll-1"); /* the Engine was slow */
    spin_until(is_empty, NULL);
    assert_false(fake->exists);
    in_coroutine(down, NULL);
}

static void the_end_waits_for_those_under_way(void **state)
{
    (void)state;
    up();
    for (int i = 0; i < 4; ++i) {
        char name[32];
        snprintf(name, sizeof(name), "plimsoll-%d", i);
        fake_t *fake = container(name);
        teardown_add(teardown, fake->name, fake->id, TEARDOWN_NOW);
    }
    loop_run_once(loop, 5);
    in_coroutine(down, NULL);
}

/* --- the reaper's choice --- */

static const char *alive, *owned;

static bool view_is_alive(void *data, const char *instance)
{
    (void)data;
    return alive != NULL && strcmp(instance, alive) == 0;
}

static bool view_is_owned(void *data, const char *name)
{
    (void)data;
    return owned != NULL && strcmp(name, owned) == 0;
}

static const char *our_installation, *its_installation;

static bool due(const char *name, const char *gateway, const char *instance, const char *host, const char *expires)
{
    reaper_view_t view = {.instance = "me",
                          .host = "boot.1",
                          .installation = our_installation,
                          .now_s = 1000000,
                          .is_alive = view_is_alive,
                          .is_owned = view_is_owned};
    const char *its_name, *id;
    json_t *labels = json_object(), *names = json_array();
    const char *const pairs[][2] = {{"sbx.gateway", gateway},
                                    {"sbx.instance", instance},
                                    {"sbx.host", host},
                                    {"sbx.expires", expires},
                                    {"sbx.installation", its_installation}};
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); ++i) {
        if (pairs[i][1] != NULL)
            json_object_set_new(labels, pairs[i][0], json_string(pairs[i][1]));
    }
    if (name != NULL)
        json_array_append_new(names, json_string(name));
    json_t *entry = json_pack("{s:s, s:o, s:o}", "Id", "abc", "Names", names, "Labels", labels);
    bool is_due = reaper_is_due(entry, &view, &its_name, &id);
    json_decref(entry);
    return is_due;
}

static void only_what_is_dead_expired_or_lost_is_due(void **state)
{
    (void)state;
    alive = "other";
    owned = "plimsoll-mine";
    /* of a gateway of this machine: by its socket */
    assert_true(due("/plimsoll-1", "1", "dead", "boot.1", "2000000"));
    assert_false(due("/plimsoll-1", "1", "other", "boot.1", "2000000"));
    /* its socket is not believed from elsewhere */
    assert_false(due("/plimsoll-1", "1", "dead", "boot.2", "2000000"));
    assert_false(due("/plimsoll-1", "1", "dead", NULL, "2000000"));
    /* the margin of 300 s, at its edges */
    assert_false(due("/plimsoll-1", "1", "dead", "boot.2", "999701"));
    assert_false(due("/plimsoll-1", "1", "dead", "boot.2", "999700"));
    assert_true(due("/plimsoll-1", "1", "dead", "boot.2", "999699"));
    assert_true(due("/plimsoll-1", "1", "other", "boot.1", "999699"));
    /* this one's own: whatever the clock says, what it knows stays, and what it does not goes */
    assert_false(due("/plimsoll-mine", "1", "me", "boot.1", "1"));
    assert_true(due("/plimsoll-lost", "1", "me", "boot.1", "2000000"));
    /* a removal has begun and the name is gone */
    assert_true(due(NULL, "1", "dead", "boot.1", "2000000"));
    assert_false(due(NULL, "1", "me", "boot.1", "2000000"));
}

static void what_another_installation_left_is_not_due(void **state)
{
    (void)state;
    alive = owned = NULL;
    our_installation = "ours";
    its_installation = "theirs";
    assert_false(due("/plimsoll-1", "1", "dead", "boot.1", "2000000"));
    assert_false(due("/plimsoll-1", "1", "dead", "boot.2", "1"));
    assert_true(due("/plimsoll-1", "1", "me", "boot.1", "2000000")); /* this very process made it */
    its_installation = "ours";
    assert_true(due("/plimsoll-1", "1", "dead", "boot.1", "2000000"));
    /* made while the identity was not known */
    its_installation = "";
    assert_true(due("/plimsoll-1", "1", "dead", "boot.1", "2000000"));
    its_installation = NULL;
    assert_true(due("/plimsoll-1", "1", "dead", "boot.1", "2000000"));
    /* ours is not known: whose it is cannot be told */
    our_installation = "";
    its_installation = "theirs";
    assert_false(due("/plimsoll-1", "1", "dead", "boot.1", "2000000"));
    our_installation = its_installation = NULL;
}

static char told_gone[ENGINE_NAME_MAX], told_failed[ENGINE_NAME_MAX];

static void tell_gone(void *data, const char *name)
{
    (void)data;
    snprintf(told_gone, sizeof(told_gone), "%s", name);
}

static void tell_failed(void *data, const char *name, const char *why)
{
    (void)data;
    assert_non_null(why);
    snprintf(told_failed, sizeof(told_failed), "%s", name);
}

static bool is_told_failed(void *data)
{
    (void)data;
    return told_failed[0] != '\0';
}

/* The ledger keeps an entry until it hears this. */
static void whoever_keeps_a_list_is_told_of_each_end(void **state)
{
    static const teardown_events_t events = {.on_gone = tell_gone, .on_failed = tell_failed};
    (void)state;
    up();
    teardown_tell(teardown, &events);
    fake_t *fake = container("plimsoll-1");
    fake_engine.remove_fails = 1;
    teardown_add(teardown, fake->name, fake->id, TEARDOWN_NOW);
    assert_string_equal(told_gone, "");
    spin_until(is_told_failed, NULL);
    assert_string_equal(told_failed, "plimsoll-1");
    assert_string_equal(told_gone, "");
    teardown_retry(teardown);
    spin_until(is_empty, NULL);
    assert_string_equal(told_gone, "plimsoll-1");
    in_coroutine(down, NULL);
}

static void nothing_without_all_labels_and_the_name_is_due(void **state)
{
    (void)state;
    alive = owned = NULL;
    assert_true(due("/plimsoll-1", "1", "dead", "boot.1", "1"));
    assert_false(due("/web", "1", "dead", "boot.1", "1"));
    assert_false(due("plimsoll-1", "1", "dead", "boot.1", "1"));
    assert_false(due("/plimsoll-1", NULL, "dead", "boot.1", "1"));
    assert_false(due("/plimsoll-1", "2", "dead", "boot.1", "1"));
    assert_false(due("/plimsoll-1", "1", NULL, "boot.1", "1"));
    assert_false(due("/plimsoll-1", "1", "", "boot.1", "1"));
    assert_false(due("/plimsoll-1", "1", "a/b", "boot.1", "1"));
    assert_false(due("/plimsoll-1", "1", "dead", "boot.1", NULL));
    assert_false(due("/plimsoll-1", "1", "dead", "boot.1", ""));
    assert_false(due("/plimsoll-1", "1", "dead", "boot.1", "-1"));
    assert_false(due("/plimsoll-1", "1", "dead", "boot.1", "soon"));
    assert_false(due("/plimsoll-1", "1", "dead", "boot.1", "99999999999999999999999"));
    const reaper_view_t view = {.instance = "me", .host = "", .is_alive = view_is_alive, .is_owned = view_is_owned};
    const char *name, *id;
    static const char *const texts[] = {"{}", "[]", "{\"Names\":\"/plimsoll-1\",\"Id\":\"a\"}",
                                        "{\"Names\":[1],\"Id\":\"a\",\"Labels\":{}}",
                                        "{\"Names\":[\"/plimsoll-1\",\"/b\"],\"Id\":\"a\",\"Labels\":null}"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); ++i) {
        json_t *json = json_loads(texts[i], 0, NULL);
        assert_false(reaper_is_due(json, &view, &name, &id));
        json_decref(json);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_set_up, fixture_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(one_is_removed_and_looked_for),
        TEST(a_paused_one_is_let_go_on_first),
        TEST(one_that_runs_is_removed_after_its_end),
        TEST(one_that_does_not_end_is_removed_all_the_same),
        TEST(what_may_still_run_does_not_wait_for_what_is_idle),
        TEST(an_answer_does_not_make_it_gone),
        TEST(removed_by_somebody_else_is_gone),
        TEST(one_under_removal_is_waited_for),
        TEST(what_stays_is_set_aside_and_kept),
        TEST(an_engine_that_is_away_loses_nothing),
        TEST(what_can_wait_does_so_for_runs_a_second),
        TEST(a_stream_is_held_until_the_removal_begins),
        TEST(one_known_by_name_is_found_and_removed_by_its_id),
        TEST(one_that_is_not_there_yet_is_not_gone),
        TEST(the_end_waits_for_those_under_way),
        cmocka_unit_test(only_what_is_dead_expired_or_lost_is_due),
        cmocka_unit_test(what_another_installation_left_is_not_due),
        TEST(whoever_keeps_a_list_is_told_of_each_end),
        cmocka_unit_test(nothing_without_all_labels_and_the_name_is_due),
    };
    random_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
