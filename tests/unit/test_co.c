/* Coroutines: order of control, wakes, time limits, cancel, shields, stacks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/co.h"
#include "core/co_stack.h"
#include "core/loop.h"

#define NO_LIMIT UINT64_MAX

static loop_t *loop;

static int setup(void **state)
{
    (void)state;
    loop = loop_create();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    loop_destroy(loop);
    return 0;
}

/* What happened, in order, one letter each. */
typedef struct {
    char steps[256];
    size_t len;
    co_t *co;
    co_wake_t result[8];
    size_t results;
    bool ended;
} trace_t;

static void step(trace_t *t, char c)
{
    assert_true(t->len + 1 < sizeof(t->steps));
    t->steps[t->len++] = c;
    t->steps[t->len] = 0;
}

static void note(trace_t *t, co_wake_t result)
{
    assert_true(t->results < 8);
    t->result[t->results++] = result;
}

static void on_trace_end(void *arg)
{
    trace_t *t = arg;
    assert_null(co_self());
    assert_false(t->ended);
    t->ended = true;
    t->co = NULL;
    step(t, 'E');
}

static void run_until(const bool *flag)
{
    uint64_t give_up = clock_mono_ms() + 10000;
    while (!*flag) {
        assert_true(clock_mono_ms() < give_up);
        loop_run_once(loop, 50);
    }
}

static void spin(unsigned ticks)
{
    for (unsigned i = 0; i < ticks; ++i)
        loop_run_once(loop, 0);
}

/* ---- control ---- */

static void waits_once(void *arg)
{
    trace_t *t = arg;
    assert_non_null(co_self());
    assert_ptr_equal(co_loop(co_self()), loop);
    step(t, 'a');
    note(t, co_wait(NO_LIMIT));
    step(t, 'b');
}

static void runs_at_once_and_returns_at_the_first_wait(void **state)
{
    (void)state;
    trace_t t = {0};
    t.co = co_start(loop, waits_once, &t, on_trace_end);
    assert_null(co_self());
    assert_string_equal(t.steps, "a");
    spin(3);
    assert_string_equal(t.steps, "a");
    co_wake(t.co);
    assert_string_equal(t.steps, "a"); /* never inside the waker's stack */
    run_until(&t.ended);
    assert_string_equal(t.steps, "abE");
    assert_int_equal(t.result[0], CO_WOKEN);
}

static void never_waits(void *arg)
{
    step(arg, 'a');
}

static void handle_outlives_a_coroutine_that_never_waits(void **state)
{
    (void)state;
    trace_t t = {0};
    t.co = co_start(loop, never_waits, &t, on_trace_end);
    assert_string_equal(t.steps, "a");
    co_wake(t.co); /* still a live handle: the end was not announced */
    co_cancel(t.co);
    assert_true(co_is_canceled(t.co));
    run_until(&t.ended);
    assert_string_equal(t.steps, "aE");
}

static void end_without_callback(void **state)
{
    (void)state;
    trace_t t = {0};
    co_start(loop, never_waits, &t, NULL);
    spin(2);
    assert_string_equal(t.steps, "a");
}

typedef struct {
    trace_t *trace;
    trace_t inner;
    co_t *self;
} nest_t;

static void inner_fn(void *arg)
{
    nest_t *n = arg;
    assert_ptr_not_equal(co_self(), n->self);
    step(n->trace, '2');
    note(n->trace, co_wait(NO_LIMIT));
    step(n->trace, '5');
    co_wake(n->self);
    step(n->trace, '6');
}

static void outer_fn(void *arg)
{
    nest_t *n = arg;
    n->self = co_self();
    step(n->trace, '1');
    n->inner.co = co_start(loop, inner_fn, n, NULL);
    assert_ptr_equal(co_self(), n->self);
    step(n->trace, '3');
    co_wake(n->inner.co);
    step(n->trace, '4');
    note(n->trace, co_wait(NO_LIMIT));
    step(n->trace, '7');
}

static void on_nest_end(void *arg)
{
    on_trace_end(((nest_t *)arg)->trace);
}

static void a_coroutine_starts_another(void **state)
{
    (void)state;
    trace_t t = {0};
    nest_t n = {.trace = &t};
    t.co = co_start(loop, outer_fn, &n, on_nest_end);
    assert_string_equal(t.steps, "1234");
    run_until(&t.ended);
    assert_string_equal(t.steps, "1234567E");
}

/* ---- wakes ---- */

static void wakes_itself(void *arg)
{
    trace_t *t = arg;
    co_wake(co_self());
    co_wake(co_self());
    step(t, 'a');
    note(t, co_wait(NO_LIMIT)); /* the two wakes are one */
    step(t, 'b');
    note(t, co_wait(20));
    step(t, 'c');
}

static void wake_before_wait_is_kept_once(void **state)
{
    (void)state;
    trace_t t = {0};
    t.co = co_start(loop, wakes_itself, &t, on_trace_end);
    assert_string_equal(t.steps, "ab");
    run_until(&t.ended);
    assert_int_equal(t.result[0], CO_WOKEN);
    assert_int_equal(t.result[1], CO_TIMED_OUT);
}

static void waits_twice(void *arg)
{
    trace_t *t = arg;
    note(t, co_wait(NO_LIMIT));
    step(t, 'a');
    note(t, co_wait(30));
    step(t, 'b');
}

static void two_wakes_in_a_tick_are_one(void **state)
{
    (void)state;
    trace_t t = {0};
    t.co = co_start(loop, waits_twice, &t, on_trace_end);
    co_wake(t.co);
    co_wake(t.co);
    run_until(&t.ended);
    assert_int_equal(t.result[0], CO_WOKEN);
    assert_int_equal(t.result[1], CO_TIMED_OUT);
}

static void sleeps_then_waits(void *arg)
{
    trace_t *t = arg;
    uint64_t before = clock_mono_ms();
    note(t, co_sleep(60));
    assert_true(clock_mono_ms() - before >= 60);
    step(t, 's');
    note(t, co_wait(NO_LIMIT));
}

static void a_wake_does_not_end_a_sleep_and_is_kept(void **state)
{
    (void)state;
    trace_t t = {0};
    t.co = co_start(loop, sleeps_then_waits, &t, on_trace_end);
    co_wake(t.co);
    spin(5);
    assert_string_equal(t.steps, "");
    run_until(&t.ended);
    assert_int_equal(t.result[0], CO_TIMED_OUT);
    assert_int_equal(t.result[1], CO_WOKEN);
}

/* ---- time limits ---- */

static void waits_40(void *arg)
{
    trace_t *t = arg;
    uint64_t before = clock_mono_ms();
    note(t, co_wait(40));
    uint64_t took = clock_mono_ms() - before;
    assert_true(took >= 40 && took < 5000);
}

static void a_wait_times_out(void **state)
{
    (void)state;
    trace_t t = {0};
    t.co = co_start(loop, waits_40, &t, on_trace_end);
    run_until(&t.ended);
    assert_int_equal(t.result[0], CO_TIMED_OUT);
}

static void waits_nothing(void *arg)
{
    trace_t *t = arg;
    note(t, co_wait(0));
    note(t, co_sleep(0));
}

static void zero_is_a_time_limit(void **state)
{
    (void)state;
    trace_t t = {0};
    t.co = co_start(loop, waits_nothing, &t, on_trace_end);
    run_until(&t.ended);
    assert_int_equal(t.result[0], CO_TIMED_OUT);
    assert_int_equal(t.result[1], CO_TIMED_OUT);
}

static void wake_beats_the_limit(void *arg)
{
    trace_t *t = arg;
    note(t, co_wait(1));
}

static void a_wake_and_the_limit_in_one_tick_is_a_wake(void **state)
{
    (void)state;
    trace_t t = {0};
    t.co = co_start(loop, wake_beats_the_limit, &t, on_trace_end);
    usleep(5000); /* the timer is due now, and fires in the tick that carries the wake */
    co_wake(t.co);
    run_until(&t.ended);
    assert_int_equal(t.results, 1);
    assert_int_equal(t.result[0], CO_WOKEN);
}

/* ---- cancel and shield ---- */

static void waits_three_times(void *arg)
{
    trace_t *t = arg;
    note(t, co_wait(NO_LIMIT));
    assert_true(co_is_canceled(co_self()));
    note(t, co_wait(NO_LIMIT));
    note(t, co_sleep(60000));
}

static void cancel_ends_this_wait_and_all_later_ones(void **state)
{
    (void)state;
    trace_t t = {0};
    t.co = co_start(loop, waits_three_times, &t, on_trace_end);
    assert_false(co_is_canceled(t.co));
    co_cancel(t.co);
    co_cancel(t.co);
    assert_int_equal(t.results, 0);
    run_until(&t.ended);
    for (int i = 0; i < 3; ++i)
        assert_int_equal(t.result[i], CO_CANCELED);
}

static void sleeps_long(void *arg)
{
    trace_t *t = arg;
    note(t, co_sleep(60000));
}

static void cancel_ends_a_sleep(void **state)
{
    (void)state;
    trace_t t = {0};
    t.co = co_start(loop, sleeps_long, &t, on_trace_end);
    co_cancel(t.co);
    run_until(&t.ended);
    assert_int_equal(t.result[0], CO_CANCELED);
}

static void cleans_up(void *arg)
{
    trace_t *t = arg;
    note(t, co_wait(NO_LIMIT)); /* canceled */
    co_shield_begin();
    note(t, co_sleep(20)); /* time passes in spite of the cancel */
    co_shield_begin();
    note(t, co_wait(NO_LIMIT)); /* and a wake arrives */
    co_shield_end();
    note(t, co_wait(10)); /* still shielded by the outer one */
    co_shield_end();
    note(t, co_wait(NO_LIMIT)); /* canceled again */
}

static void wake_it(loop_timer_t *timer)
{
    trace_t *t = timer->data;
    co_cancel(t->co); /* a second cancel must not pierce the shield */
    co_wake(t->co);
}

static void shielded_clean_up_waits_in_spite_of_the_cancel(void **state)
{
    (void)state;
    trace_t t = {0};
    loop_timer_t timer;
    loop_timer_init(&timer, wake_it, &t);
    t.co = co_start(loop, cleans_up, &t, on_trace_end);
    co_cancel(t.co);
    loop_timer_start(loop, &timer, 50);
    run_until(&t.ended);
    static const co_wake_t want[] = {CO_CANCELED, CO_TIMED_OUT, CO_WOKEN, CO_TIMED_OUT, CO_CANCELED};
    assert_int_equal(t.results, 5);
    for (int i = 0; i < 5; ++i)
        assert_int_equal(t.result[i], want[i]);
}

static void shielded_from_the_start(void *arg)
{
    trace_t *t = arg;
    co_shield_begin();
    note(t, co_wait(40));
    co_shield_end();
    note(t, co_wait(NO_LIMIT));
}

static void cancel_during_a_shielded_wait_waits_for_the_shield_to_end(void **state)
{
    (void)state;
    trace_t t = {0};
    t.co = co_start(loop, shielded_from_the_start, &t, on_trace_end);
    co_cancel(t.co);
    spin(3);
    assert_int_equal(t.results, 0);
    run_until(&t.ended);
    assert_int_equal(t.result[0], CO_TIMED_OUT);
    assert_int_equal(t.result[1], CO_CANCELED);
}

static void a_wake_survives_the_cancel(void **state)
{
    (void)state;
    trace_t t = {0};
    t.co = co_start(loop, cleans_up, &t, on_trace_end);
    co_wake(t.co);
    co_cancel(t.co);
    run_until(&t.ended);
    /* The wake waits for the first wait that may see it: the one after the sleep. */
    assert_int_equal(t.result[0], CO_CANCELED);
    assert_int_equal(t.result[1], CO_TIMED_OUT);
    assert_int_equal(t.result[2], CO_WOKEN);
}

/* ---- many ---- */

enum { MANY = 5000, ROUNDS = 5 };

typedef struct many {
    co_t *co;
    unsigned index;
    uint64_t sum;
} many_t;

static unsigned many_ended, many_waiting;

/* A frame of some size whose content must survive the others. */
static uint64_t __attribute__((noinline)) deep(many_t *m, unsigned depth)
{
    volatile unsigned char local[256];
    for (size_t i = 0; i < sizeof(local); ++i)
        local[i] = (unsigned char)(m->index + depth + i);
    uint64_t sum = 0;
    if (depth > 0) {
        sum = deep(m, depth - 1);
    } else {
        ++many_waiting;
        assert_int_equal(co_wait(NO_LIMIT), CO_WOKEN);
        --many_waiting;
    }
    for (size_t i = 0; i < sizeof(local); ++i) {
        assert_int_equal(local[i], (unsigned char)(m->index + depth + i));
        sum += local[i];
    }
    return sum;
}

static void many_fn(void *arg)
{
    many_t *m = arg;
    for (unsigned i = 0; i < ROUNDS; ++i)
        m->sum += deep(m, 4 + m->index % 8);
}

static void on_many_end(void *arg)
{
    (void)arg;
    ++many_ended;
}

static void thousands_at_once(void **state)
{
    (void)state;
    many_t *all = calloc(MANY, sizeof(*all));
    assert_non_null(all);
    many_ended = many_waiting = 0;
    for (unsigned i = 0; i < MANY; ++i) {
        all[i].index = i;
        all[i].co = co_start(loop, many_fn, &all[i], on_many_end);
    }
    for (unsigned round = 0; round < ROUNDS; ++round) {
        assert_int_equal(many_waiting, MANY);
        for (unsigned i = 0; i < MANY; ++i)
            co_wake(all[(i * 7919) % MANY].co);
        spin(3);
    }
    assert_int_equal(many_ended, MANY);
    assert_int_equal(many_waiting, 0);
    assert_true(co_stack_cached() <= CO_STACK_CACHE_MAX);
    for (unsigned i = 0; i < MANY; ++i) {
        uint64_t want = 0;
        for (unsigned depth = 0; depth <= 4 + i % 8; ++depth)
            for (unsigned k = 0; k < 256; ++k)
                want += (unsigned char)(i + depth + k);
        assert_true(all[i].sum == want * ROUNDS);
    }
    free(all);
}

/* ---- stacks ---- */

static void see_stack(void *arg)
{
    char here;
    *(uintptr_t *)arg = (uintptr_t)__builtin_frame_address(0);
    (void)here;
}

static void a_stack_is_used_again(void **state)
{
    (void)state;
    uintptr_t first = 0, second = 0;
    co_start(loop, see_stack, &first, NULL);
    co_start(loop, see_stack, &second, NULL);
    assert_true(first != 0 && first == second);
    spin(2);
}

static void cache_is_bounded(void **state)
{
    (void)state;
    /* Limit - 1, limit, limit + 1 stacks given back. */
    for (size_t n = CO_STACK_CACHE_MAX - 1; n <= CO_STACK_CACHE_MAX + 1; ++n) {
        co_stack_t stacks[CO_STACK_CACHE_MAX + 1];
        for (size_t i = 0; i < CO_STACK_CACHE_MAX + 1; ++i)
            co_stack_take(&stacks[i]);
        assert_int_equal(co_stack_cached(), 0);
        for (size_t i = 0; i < n; ++i)
            co_stack_release(&stacks[i]);
        assert_int_equal(co_stack_cached(), n < CO_STACK_CACHE_MAX ? n : CO_STACK_CACHE_MAX);
        for (size_t i = n; i < CO_STACK_CACHE_MAX + 1; ++i)
            co_stack_release(&stacks[i]);
    }
}

static void *thread_main(void *arg)
{
    loop_t *own = loop_create();
    uintptr_t seen = 0;
    (void)arg;
    co_start(own, see_stack, &seen, NULL);
    loop_run_once(own, 0);
    loop_run_once(own, 0);
    loop_destroy(own);
    return (void *)co_stack_cached();
}

static void each_thread_has_its_own(void **state)
{
    (void)state;
    size_t before = co_stack_cached();
    pthread_t thread;
    void *result = NULL;
    assert_int_equal(pthread_create(&thread, NULL, thread_main, NULL), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_int_equal((uintptr_t)result, 1);
    assert_int_equal(co_stack_cached(), before);
}

/* Runs fn in a child and returns how it ended. */
static int status_of(void (*fn)(void))
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        /* The signal itself is wanted, not a sanitizer's report of it. */
        signal(SIGSEGV, SIG_DFL);
        signal(SIGABRT, SIG_DFL);
        if (freopen("/dev/null", "w", stderr) == NULL)
            _exit(97);
        fn();
        _exit(98);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void touch_below(void)
{
    co_stack_t stack;
    co_stack_take(&stack);
    ((volatile char *)stack.base)[0] = 1; /* the lowest byte is usable */
    ((volatile char *)stack.base)[stack.size - 1] = 1;
    _exit(0);
}

static void touch_guard(void)
{
    co_stack_t stack;
    co_stack_take(&stack);
    ((volatile char *)stack.base)[-1] = 1;
}

static void touch_guard_end(void)
{
    co_stack_t stack;
    co_stack_take(&stack);
    ((volatile char *)stack.base)[-CO_STACK_GUARD_BYTES] = 1;
}

static int __attribute__((noinline)) dive(volatile char *above)
{
    volatile char local[1024];
    local[0] = above[0];
    return local[0] == 0 ? 0 : dive(local) + local[0];
}

static void overflow_fn(void *arg)
{
    (void)arg;
    volatile char first[1] = {1};
    (void)dive(first);
}

static void overflow(void)
{
    co_start(loop, overflow_fn, NULL, NULL);
}

static void the_guard_page_faults(void **state)
{
    (void)state;
    int status = status_of(touch_below);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    status = status_of(touch_guard);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    status = status_of(touch_guard_end);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    status = status_of(overflow);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

/* ---- misuse ends the process ---- */

static void wait_outside(void)
{
    (void)co_wait(1);
}

static void shield_end_only_fn(void *arg)
{
    (void)arg;
    co_shield_end();
}

static void shield_end_only(void)
{
    co_start(loop, shield_end_only_fn, NULL, NULL);
}

static void ends_in_shield_fn(void *arg)
{
    (void)arg;
    co_shield_begin();
}

static void ends_in_shield(void)
{
    co_start(loop, ends_in_shield_fn, NULL, NULL);
}

static void not_a_coroutine(void)
{
    static uint64_t zero[64];
    co_wake((co_t *)zero);
}

static bool ended_by_abort(void (*fn)(void))
{
    int status = status_of(fn);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void misuse_aborts(void **state)
{
    (void)state;
    assert_true(ended_by_abort(wait_outside));
    assert_true(ended_by_abort(shield_end_only));
    assert_true(ended_by_abort(ends_in_shield));
    assert_true(ended_by_abort(not_a_coroutine));
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(runs_at_once_and_returns_at_the_first_wait),
        CASE(handle_outlives_a_coroutine_that_never_waits),
        CASE(end_without_callback),
        CASE(a_coroutine_starts_another),
        CASE(wake_before_wait_is_kept_once),
        CASE(two_wakes_in_a_tick_are_one),
        CASE(a_wake_does_not_end_a_sleep_and_is_kept),
        CASE(a_wait_times_out),
        CASE(zero_is_a_time_limit),
        CASE(a_wake_and_the_limit_in_one_tick_is_a_wake),
        CASE(cancel_ends_this_wait_and_all_later_ones),
        CASE(cancel_ends_a_sleep),
        CASE(shielded_clean_up_waits_in_spite_of_the_cancel),
        CASE(cancel_during_a_shielded_wait_waits_for_the_shield_to_end),
        CASE(a_wake_survives_the_cancel),
        CASE(thousands_at_once),
        CASE(a_stack_is_used_again),
        CASE(cache_is_bounded),
        CASE(each_thread_has_its_own),
        CASE(the_guard_page_faults),
        CASE(misuse_aborts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
