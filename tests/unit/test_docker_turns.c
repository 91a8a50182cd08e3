/* Whose guest begins next: two at a time here, in the order of asking, and nobody for long. */
#include "tests/unit/docker_fixture.h"

#include "backends/docker/turns.h"

enum { RUNS = 6, PLACES = 2 };

typedef struct {
    uint32_t lasts_ms;
    uint64_t began_ms;
    int order; /* among those that have begun; 0 = not yet */
    bool is_over;
    co_t *co;
} guest_run_t;

static turns_t turns;
static guest_run_t runs[RUNS];
static int begun;

static void run_main(void *data)
{
    guest_run_t *run = data;
    turn_t turn;
    turn_take(&turns, &turn, UINT32_MAX);
    run->order = ++begun;
    run->began_ms = clock_mono_ms();
    co_sleep(run->lasts_ms);
    turn_leave(&turn);
}

static void on_run_end(void *data)
{
    ((guest_run_t *)data)->is_over = true;
}

static void begin(uint32_t lasts_ms)
{
    begun = 0;
    memset(runs, 0, sizeof(runs));
    turns_init(&turns, loop, PLACES);
    for (int i = 0; i < RUNS; ++i) {
        runs[i].lasts_ms = lasts_ms;
        runs[i].co = co_start(loop, run_main, &runs[i], on_run_end);
    }
}

static bool are_over(void *data)
{
    (void)data;
    for (int i = 0; i < RUNS; ++i)
        if (!runs[i].is_over)
            return false;
    return true;
}

static void short_ones_go_two_by_two_in_order(void **state)
{
    (void)state;
    begin(20);
    assert_int_equal(begun, PLACES);
    spin_until(are_over, NULL);
    for (int i = 0; i < RUNS; ++i)
        assert_int_equal(runs[i].order, i + 1);
    assert_true(runs[PLACES].began_ms >= runs[0].began_ms + 19);
    assert_true(runs[2 * PLACES].began_ms >= runs[PLACES].began_ms + 19);
    assert_int_equal(turns.taken, 0);
    assert_null(turns.first);
}

/* What runs long gives its place up; it still runs when the last begins. */
static void long_ones_delay_nobody_by_more_than_the_hold(void **state)
{
    (void)state;
    begin(1000);
    spin_until(are_over, NULL);
    uint64_t last_ms = runs[RUNS - 1].began_ms - runs[0].began_ms;
    assert_true(last_ms >= 2 * TURN_HOLD_MS - 2);
    assert_true(last_ms < 1000);
    assert_int_equal(turns.taken, 0);
}

static void nobody_waits_longer_than_the_limit(void **state)
{
    (void)state;
    begin(1000);
    turns.places = 0; /* no place becomes free again */
    spin_until(are_over, NULL);
    for (int i = PLACES; i < RUNS; ++i) {
        assert_true(runs[i].began_ms - runs[0].began_ms >= TURN_WAIT_MS - 1);
        assert_true(runs[i].began_ms - runs[0].began_ms < TURN_WAIT_MS + 500);
    }
    assert_null(turns.first);
    assert_int_equal(turns.taken, 0);
}

static uint64_t waited_ms;

static void wait_a_little(void *data)
{
    turn_t turn;
    uint64_t asked_ms = clock_mono_ms();
    (void)data;
    turn_take(&turns, &turn, 50);
    waited_ms = clock_mono_ms() - asked_ms;
    turn_leave(&turn);
}

static void a_run_with_little_time_waits_little(void **state)
{
    (void)state;
    begin(1000);
    turns.places = 0;
    in_coroutine(wait_a_little, NULL);
    assert_in_range(waited_ms, 49, TURN_WAIT_MS - 50);
    spin_until(are_over, NULL);
}

static void one_whose_caller_leaves_is_out_of_the_line(void **state)
{
    (void)state;
    begin(30);
    co_cancel(runs[3].co);
    spin_until(are_over, NULL);
    assert_int_equal(runs[2].order < runs[4].order, true);
    assert_int_equal(begun, RUNS);
    assert_int_equal(turns.taken, 0);
    assert_null(turns.last);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(short_ones_go_two_by_two_in_order, fixture_set_up, fixture_tear_down),
        cmocka_unit_test_setup_teardown(long_ones_delay_nobody_by_more_than_the_hold, fixture_set_up,
                                        fixture_tear_down),
        cmocka_unit_test_setup_teardown(nobody_waits_longer_than_the_limit, fixture_set_up, fixture_tear_down),
        cmocka_unit_test_setup_teardown(a_run_with_little_time_waits_little, fixture_set_up, fixture_tear_down),
        cmocka_unit_test_setup_teardown(one_whose_caller_leaves_is_out_of_the_line, fixture_set_up, fixture_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
