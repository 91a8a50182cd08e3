/* The pool of prepared sandboxes and what becomes of each (spec backend-docker 4.4), over an Engine of the test's. */
#include "tests/unit/docker_fixture.h"

enum { SIZE = 4, LONG_MS = 3600 * 1000 };

static docker_t *docker;
static pool_t *pool;

static void pool_up(uint32_t size, uint64_t idle_ms)
{
    container_spec_t spec = fake_spec();
    docker = fake_wall(size, idle_ms);
    pool = docker->pools[DOCKER_SNIPPET];
    fake_pool_set(docker, &spec);
}

static bool is_full(void *data)
{
    return pool_idle(pool) == *(const size_t *)data && pool_starting(pool) == 0;
}

static void fill(size_t count)
{
    spin_until(is_full, &count);
}

typedef struct {
    const char *caller;
    uint32_t ms;
    bool is_hit;
    member_t *member;
    char failure[ENGINE_TEXT_MAX];
    unsigned order; /* in which it was served */
} claim_t;

static unsigned served;

static void claim_main(void *data)
{
    claim_t *claim = data;
    claim->member =
        pool_claim(pool, claim->caller, clock_mono_us() + (uint64_t)claim->ms * 1000, &claim->is_hit, claim->failure);
    claim->order = ++served;
}

static bool nothing_exists(void *data)
{
    (void)data;
    return fake_existing() == 0;
}

static fake_t *fake_of(const member_t *member)
{
    return fake_find(member_id(member));
}

/* --- filling --- */

static void it_fills_to_its_size_one_at_a_time(void **state)
{
    (void)state;
    pool_up(SIZE, LONG_MS);
    fill(SIZE);
    spin(30);
    assert_int_equal(pool_idle(pool), SIZE);
    assert_int_equal(fake_existing(), SIZE);
    assert_int_equal(fake_engine.starting_max, 1); /* two processors */
    fake_wall_destroy(docker);
    assert_int_equal(fake_existing(), 0);
}

static void it_does_not_fill_while_guests_take_all_processors(void **state)
{
    (void)state;
    docker = NULL;
    pool_up(0, LONG_MS);
    fake_wall_destroy(docker);
    container_spec_t spec = fake_spec();
    docker = fake_wall(SIZE, LONG_MS);
    pool = docker->pools[DOCKER_SNIPPET];
    docker->running = 2;
    fake_pool_set(docker, &spec);
    spin(60);
    assert_int_equal(fake_existing(), 0);
    docker->running = 1;
    pool_poke(pool);
    fill(SIZE);
    docker->running = 0;
    fake_wall_destroy(docker);
}

static void a_failing_engine_is_not_asked_without_pause(void **state)
{
    (void)state;
    fake_engine.create = ENGINE_FAILED;
    fake_engine.creates_anyway = true;
    uint64_t began_ms = clock_mono_ms();
    pool_up(SIZE, LONG_MS);
    spin(300);
    if (clock_mono_ms() - began_ms < POOL_PAUSE_MIN_MS)
        assert_int_equal(fake_count, 1);
    fake_engine.create = ENGINE_OK;
    fill(SIZE);
    fake_wall_destroy(docker);
    assert_int_equal(fake_existing(), 0); /* the one whose ID was never told, too: it was found by its name */
}

/* --- claims --- */

static void a_claim_takes_the_newest_and_the_pool_fills_again(void **state)
{
    claim_t claim = {.caller = "a", .ms = 1000};
    (void)state;
    pool_up(2, LONG_MS);
    fill(2);
    const char *newest = fakes[1]->id;
    in_coroutine(claim_main, &claim);
    assert_true(claim.is_hit);
    assert_string_equal(member_id(claim.member), newest);
    fill(2);
    assert_int_equal(fake_existing(), 3);
    member_release(claim.member);
    fake_wall_destroy(docker);
}

static void a_miss_waits_for_its_own_start(void **state)
{
    claim_t claim = {.caller = "a", .ms = 5000};
    (void)state;
    pool_up(0, LONG_MS);
    in_coroutine(claim_main, &claim);
    assert_non_null(claim.member);
    assert_false(claim.is_hit);
    member_release(claim.member);
    spin_until(nothing_exists, NULL);
    assert_int_equal(fake_count, 1); /* a pool of no size starts nothing ahead */
    fake_wall_destroy(docker);
}

static void callers_in_a_burst_are_served_in_turn(void **state)
{
    enum { N = 9 };
    static const char *const callers[N] = {"a", "a", "a", "a", "a", "a", "b", "b", "c"};
    static const unsigned turns[N] = {1, 4, 6, 7, 8, 9, 2, 5, 3};
    claim_t claims[N];
    task_t tasks[N];
    (void)state;
    served = 0;
    fake_engine.ready_ms = 20;
    pool_up(0, LONG_MS);
    for (size_t i = 0; i < N; ++i) {
        claims[i] = (claim_t){.caller = callers[i], .ms = 10000};
        task_start(&tasks[i], claim_main, &claims[i]);
    }
    for (size_t i = 0; i < N; ++i)
        spin_until(task_has_ended, &tasks[i]);
    for (size_t i = 0; i < N; ++i) {
        assert_non_null(claims[i].member);
        assert_int_equal(claims[i].order, turns[i]);
        member_release(claims[i].member);
    }
    assert_int_equal(fake_engine.starting_max, POOL_STARTS_MIN);
    assert_int_equal(fake_count, N);
    fake_wall_destroy(docker);
}

static void a_start_that_fails_fails_one_run(void **state)
{
    claim_t claim = {.caller = "a", .ms = 5000};
    (void)state;
    pool_up(0, LONG_MS);
    fake_engine.start = ENGINE_FAILED;
    in_coroutine(claim_main, &claim);
    assert_null(claim.member);
    assert_non_null(strstr(claim.failure, "start:"));
    fake_engine.start = ENGINE_OK;
    in_coroutine(claim_main, &claim); /* no pause for those who wait */
    assert_non_null(claim.member);
    member_release(claim.member);
    fake_wall_destroy(docker);
    assert_int_equal(fake_existing(), 0);
}

static void a_wait_ends_with_the_run_s_time(void **state)
{
    claim_t claim = {.caller = "a", .ms = 30};
    (void)state;
    fake_engine.ready_ms = 1500;
    pool_up(1, LONG_MS);
    uint64_t began_ms = clock_mono_ms();
    in_coroutine(claim_main, &claim);
    assert_null(claim.member);
    assert_in_range(clock_mono_ms() - began_ms, 30, 1400);
    fill(1); /* what was started for it is kept */
    fake_wall_destroy(docker);
}

static void a_canceled_wait_takes_nothing_with_it(void **state)
{
    claim_t claim = {.caller = "a", .ms = 10000};
    task_t task;
    (void)state;
    fake_engine.ready_ms = 30;
    pool_up(1, LONG_MS);
    co_t *co = task_start(&task, claim_main, &claim);
    spin(5);
    co_cancel(co);
    spin_until(task_has_ended, &task);
    assert_null(claim.member);
    fill(1);
    fake_wall_destroy(docker);
}

static void nothing_is_claimed_before_there_is_a_proof(void **state)
{
    claim_t claim = {.caller = "a", .ms = 100};
    (void)state;
    docker = fake_wall(SIZE, LONG_MS);
    pool = docker->pools[DOCKER_SNIPPET];
    in_coroutine(claim_main, &claim);
    assert_null(claim.member);
    assert_int_equal(fake_count, 0);
    fake_wall_destroy(docker);
}

/* --- what ends a member --- */

static void an_idle_member_that_ends_is_replaced(void **state)
{
    (void)state;
    pool_up(2, LONG_MS);
    fill(2);
    fake_t *gone = fakes[0];
    fake_ends(gone);
    assert_int_equal(pool_idle(pool), 1);
    fill(2);
    spin(50);
    assert_false(gone->exists);
    assert_int_equal(reproofs, 0); /* one may end by itself */
    fake_wall_destroy(docker);
}

static void a_byte_from_an_idle_member_ends_it(void **state)
{
    (void)state;
    pool_up(2, LONG_MS);
    fill(2);
    fake_t *talker = fakes[1];
    fake_says(talker, "x", 1);
    assert_int_equal(pool_idle(pool), 1);
    fill(2);
    spin(50);
    assert_false(talker->exists);
    fake_wall_destroy(docker);
}

static void all_cut_at_once_is_the_engine_s_restart(void **state)
{
    (void)state;
    pool_up(2, LONG_MS);
    fill(2);
    fake_t *first = fakes[0], *second = fakes[1];
    fake_ends(first);
    fake_ends(second);
    assert_int_equal(reproofs, 1);
    fill(2);
    spin(50);
    assert_false(first->exists || second->exists);
    fake_wall_destroy(docker);
}

static void members_age(void **state)
{
    (void)state;
    pool_up(1, 100);
    fill(1);
    fake_t *old = fakes[0];
    spin(60);
    assert_true(old->exists);
    spin(120);
    assert_false(old->exists);
    fill(1);
    fake_wall_destroy(docker);
}

static void another_spec_takes_the_place_of_all(void **state)
{
    container_spec_t spec = fake_spec();
    (void)state;
    pool_up(2, LONG_MS);
    fill(2);
    fake_pool_set(docker, &spec); /* the same again: they stay */
    spin(50);
    assert_int_equal(fake_count, 2);
    snprintf(spec.image, sizeof(spec.image), "sha256:2");
    fake_pool_set(docker, &spec);
    fill(2);
    spin(50);
    assert_false(fakes[0]->exists || fakes[1]->exists);
    assert_string_equal(json_string_value(json_object_get(fakes[2]->body, "Image")), "sha256:2");
    fake_wall_destroy(docker);
}

static void a_start_for_the_spec_before_is_not_given_out(void **state)
{
    container_spec_t spec = fake_spec();
    claim_t claim = {.caller = "a", .ms = 5000};
    task_t task;
    (void)state;
    fake_engine.ready_ms = 40;
    pool_up(0, LONG_MS);
    task_start(&task, claim_main, &claim);
    spin(15);
    spec.pids = 300;
    fake_pool_set(docker, &spec);
    spin_until(task_has_ended, &task);
    assert_non_null(claim.member);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(fake_of(claim.member)->body, "HostConfig"), "PidsLimit")),
        300);
    member_release(claim.member);
    fake_wall_destroy(docker);
    assert_int_equal(fake_existing(), 0);
}

static void without_a_proof_all_of_it_goes(void **state)
{
    (void)state;
    pool_up(SIZE, LONG_MS);
    fill(SIZE);
    pool_set(pool, NULL);
    assert_int_equal(pool_idle(pool), 0);
    spin_until(nothing_exists, NULL);
    spin(50);
    assert_int_equal(fake_count, SIZE);
    fake_wall_destroy(docker);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_set_up, fixture_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(it_fills_to_its_size_one_at_a_time),
        TEST(it_does_not_fill_while_guests_take_all_processors),
        TEST(a_failing_engine_is_not_asked_without_pause),
        TEST(a_claim_takes_the_newest_and_the_pool_fills_again),
        TEST(a_miss_waits_for_its_own_start),
        TEST(callers_in_a_burst_are_served_in_turn),
        TEST(a_start_that_fails_fails_one_run),
        TEST(a_wait_ends_with_the_run_s_time),
        TEST(a_canceled_wait_takes_nothing_with_it),
        TEST(nothing_is_claimed_before_there_is_a_proof),
        TEST(an_idle_member_that_ends_is_replaced),
        TEST(a_byte_from_an_idle_member_ends_it),
        TEST(all_cut_at_once_is_the_engine_s_restart),
        TEST(members_age),
        TEST(another_spec_takes_the_place_of_all),
        TEST(a_start_for_the_spec_before_is_not_given_out),
        TEST(without_a_proof_all_of_it_goes),
    };
    random_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
