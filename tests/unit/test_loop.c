#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <unistd.h>
#include <fcntl.h>

#include <sys/socket.h>

#include <h2o/memory.h>
#include <h2o/socket.h>

#include "core/clock.h"
#include "core/loop.h"
#include "core/watch.h"

static int order[8], fired;

static void note(loop_timer_t *timer)
{
    order[fired++] = *(int *)timer->data;
}

static void timers_fire_in_order_of_time_and_not_of_start(void **state)
{
    (void)state;
    loop_t *loop = loop_create();
    int ids[4] = {0, 1, 2, 3};
    loop_timer_t t[4];
    for (int i = 0; i < 4; i++)
        loop_timer_init(&t[i], note, &ids[i]);
    fired = 0;
    loop_timer_start(loop, &t[0], 30);
    loop_timer_start(loop, &t[1], 10);
    loop_timer_start(loop, &t[2], 20);
    loop_timer_start(loop, &t[3], 5);
    loop_timer_stop(&t[3]);
    uint64_t began = clock_mono_ms();
    while (fired < 3)
        loop_run_once(loop, 1000);
    assert_true(clock_mono_ms() - began >= 30);
    assert_int_equal(order[0], 1);
    assert_int_equal(order[1], 2);
    assert_int_equal(order[2], 0);
    assert_false(loop_timer_is_running(&t[3]));
    loop_destroy(loop);
}

static void many_timers_keep_the_heap(void **state)
{
    (void)state;
    enum { N = 500 };
    static loop_timer_t t[N];
    static int id;
    loop_t *loop = loop_create();
    fired = 0;
    for (int i = 0; i < N; i++) {
        loop_timer_init(&t[i], note, &id);
        loop_timer_start(loop, &t[i], (uint64_t)(i * 7919 % N) + 100000);
    }
    /* stopping from the middle must keep every other timer findable */
    for (int i = 0; i < N; i += 3)
        loop_timer_stop(&t[i]);
    for (int i = 0; i < N; i++)
        assert_int_equal(loop_timer_is_running(&t[i]), i % 3 != 0);
    for (int i = 0; i < N; i++)
        loop_timer_stop(&t[i]);
    loop_destroy(loop);
}

static void count_task(loop_task_t *task)
{
    (*(int *)task->data)++;
}

static void deferred_tasks_run_once_and_can_be_taken_back(void **state)
{
    (void)state;
    loop_t *loop = loop_create();
    int a = 0, b = 0;
    loop_task_t ta, tb;
    loop_task_init(&ta, count_task, &a);
    loop_task_init(&tb, count_task, &b);
    loop_defer(loop, &ta);
    loop_defer(loop, &ta);
    loop_defer(loop, &tb);
    loop_task_cancel(loop, &tb);
    loop_run_once(loop, 0);
    assert_int_equal(a, 1);
    assert_int_equal(b, 0);
    loop_destroy(loop);
}

static void add(void *arg)
{
    (*(int *)arg)++;
}

static loop_t *spinning;

static void defer_again(loop_task_t *task)
{
    (*(int *)task->data)++;
    loop_defer(spinning, task);
}

static void a_task_that_defers_itself_waits_for_the_next_tick(void **state)
{
    (void)state;
    int runs = 0;
    loop_task_t task;
    spinning = loop_create();
    loop_task_init(&task, defer_again, &runs);
    loop_defer(spinning, &task);
    loop_run_once(spinning, 0);
    assert_int_equal(runs, 1);
    loop_run_once(spinning, 1000);
    assert_int_equal(runs, 2);
    loop_task_cancel(spinning, &task);
    loop_destroy(spinning);
}

/* What a connection does whose answer a task writes: the task's write, its end, and the task that takes it up again. */
static struct {
    loop_t *loop;
    h2o_socket_t *sock;
    loop_task_t write, after, spin;
    int ended, taken_up, spins;
} writing;

static void on_written(h2o_socket_t *sock, const char *err)
{
    (void)sock;
    assert_null(err);
    writing.ended++;
    loop_defer(writing.loop, &writing.after);
}

static void write_it(loop_task_t *task)
{
    h2o_iovec_t bytes = {(char *)"x", 1};
    (void)task;
    h2o_socket_write(writing.sock, &bytes, 1, on_written);
}

static void take_it_up(loop_task_t *task)
{
    (void)task;
    writing.taken_up++;
}

static void spin(loop_task_t *task)
{
    writing.spins++;
    loop_defer(writing.loop, task);
}

static void a_connection_answered_by_a_task_is_taken_up_before_its_socket_is_looked_at(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    writing.loop = loop_create();
    writing.sock = h2o_evloop_socket_create(loop_h2o(writing.loop), fds[0], 0);
    loop_task_init(&writing.write, write_it, NULL);
    loop_task_init(&writing.after, take_it_up, NULL);
    loop_task_init(&writing.spin, spin, NULL);
    loop_defer(writing.loop, &writing.spin);
    loop_defer(writing.loop, &writing.write);
    loop_run_once(writing.loop, 0);
    assert_int_equal(writing.ended, 1);
    assert_int_equal(writing.taken_up, 1); /* in the same tick */
    assert_int_equal(writing.spins, 1);    /* and who waits for the next tick still does */
    loop_run_once(writing.loop, 0);
    assert_int_equal(writing.spins, 2);
    loop_task_cancel(writing.loop, &writing.spin);
    h2o_socket_close(writing.sock);
    loop_run_once(writing.loop, 0);
    loop_destroy(writing.loop);
    close(fds[1]);
}

static loop_t *posted_to;
static int posted;

static void *post_many(void *arg)
{
    (void)arg;
    for (int i = 0; i < 1000; i++)
        loop_post(posted_to, add, &posted);
    return NULL;
}

static void posts_from_threads_all_arrive(void **state)
{
    (void)state;
    pthread_t threads[3];
    posted_to = loop_create();
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, post_many, NULL);
    while (posted < 3000)
        loop_run_once(posted_to, 1000);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(posted, 3000);
    loop_destroy(posted_to);
}

typedef struct {
    unsigned seen;
    int calls;
    watch_t *watch;
} seen_t;

static void on_ready(void *data, unsigned events)
{
    seen_t *s = data;
    s->seen |= events;
    s->calls++;
    if (s->calls == 3)
        watch_set(s->watch, 0);
}

static void a_watch_is_level_triggered_and_survives_the_owner_closing(void **state)
{
    (void)state;
    int fds[2];
    loop_t *loop = loop_create();
    assert_int_equal(pipe2(fds, O_NONBLOCK | O_CLOEXEC), 0);
    seen_t s = {0};
    s.watch = watch_create(loop, fds[0], on_ready, &s);
    watch_set(s.watch, WATCH_READ);
    assert_int_equal(write(fds[1], "x", 1), 1);
    close(fds[0]); /* the duplicate stays */
    for (int i = 0; i < 50 && s.calls < 3; i++)
        loop_run_once(loop, 100);
    assert_int_equal(s.calls, 3);
    loop_run_once(loop, 0);
    assert_int_equal(s.calls, 3); /* paused */
    watch_destroy(s.watch);
    close(fds[1]);
    loop_destroy(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timers_fire_in_order_of_time_and_not_of_start),
        cmocka_unit_test(many_timers_keep_the_heap),
        cmocka_unit_test(deferred_tasks_run_once_and_can_be_taken_back),
        cmocka_unit_test(a_task_that_defers_itself_waits_for_the_next_tick),
        cmocka_unit_test(a_connection_answered_by_a_task_is_taken_up_before_its_socket_is_looked_at),
        cmocka_unit_test(posts_from_threads_all_arrive),
        cmocka_unit_test(a_watch_is_level_triggered_and_survives_the_owner_closing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
