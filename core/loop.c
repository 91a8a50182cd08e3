#include "core/loop.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <h2o/socket.h>
#include <h2o/timeout.h>

#include "core/clock.h"
#include "core/mem.h"
#include "core/watch.h"

enum {
    LOOP_MAGIC = 0x6c6f6f70,
    WAIT_MAX_MS = 60 * 1000, /* a tick never waits longer, so nothing depends on an event that got lost */
    TIMERS_FIRST = 16,
    SWEEPS_MAX = 64, /* an answer takes two: its task's write, and the task of who goes on after it */
};

typedef struct post {
    void (*fn)(void *);
    void *arg;
    struct post *next;
} post_t;

struct loop {
    unsigned magic;
    h2o_evloop_t *h2o;
    loop_timer_t **heap; /* binary heap by _at */
    size_t timers, capacity;
    loop_task_t tasks; /* ring; the anchor */
    bool stopped;
    struct {
        pthread_mutex_t lock;
        post_t *head, **tail;
        int eventfd;
        watch_t *watch;
    } posts;
};

static void loop_check(const loop_t *loop)
{
    if (loop == NULL || loop->magic != LOOP_MAGIC)
        mem_fatal("not a loop");
}

static void run_posts(void *data, unsigned events)
{
    loop_t *loop = data;
    uint64_t count;
    (void)events;
    if (read(loop->posts.eventfd, &count, sizeof(count)) < 0 && errno != EAGAIN)
        mem_fatal("eventfd broke");
    pthread_mutex_lock(&loop->posts.lock);
    post_t *post = loop->posts.head;
    loop->posts.head = NULL;
    loop->posts.tail = &loop->posts.head;
    pthread_mutex_unlock(&loop->posts.lock);
    while (post != NULL) {
        post_t *next = post->next;
        post->fn(post->arg);
        free(post);
        post = next;
    }
}

loop_t *loop_create(void)
{
    loop_t *loop = mem_alloc(sizeof(*loop));
    loop->magic = LOOP_MAGIC;
    loop->h2o = h2o_evloop_create();
    loop->tasks._next = loop->tasks._prev = &loop->tasks;
    pthread_mutex_init(&loop->posts.lock, NULL);
    loop->posts.tail = &loop->posts.head;
    if ((loop->posts.eventfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
        mem_fatal("no eventfd");
    if ((loop->posts.watch = watch_create(loop, loop->posts.eventfd, run_posts, loop)) == NULL)
        mem_fatal("no descriptor for a loop");
    watch_set(loop->posts.watch, WATCH_READ);
    return loop;
}

void loop_destroy(loop_t *loop)
{
    loop_check(loop);
    watch_destroy(loop->posts.watch);
    close(loop->posts.eventfd);
    /* what other threads posted last still owns memory */
    while (loop->posts.head != NULL) {
        post_t *next = loop->posts.head->next;
        loop->posts.head->fn(loop->posts.head->arg);
        free(loop->posts.head);
        loop->posts.head = next;
    }
    pthread_mutex_destroy(&loop->posts.lock);
    /* one tick lets the evloop free the sockets closed last */
    h2o_evloop_run(loop->h2o, 0);
    h2o_evloop_destroy(loop->h2o);
    loop->magic = 0;
    free(loop->heap);
    free(loop);
}

h2o_evloop_t *loop_h2o(loop_t *loop)
{
    loop_check(loop);
    return loop->h2o;
}

/* --- timers: a binary heap whose members know their place --- */

static void heap_put(loop_t *loop, size_t i, loop_timer_t *timer)
{
    loop->heap[i] = timer;
    timer->_index = i + 1;
}

static void heap_up(loop_t *loop, size_t i)
{
    loop_timer_t *timer = loop->heap[i];
    while (i > 0 && timer->_at < loop->heap[(i - 1) / 2]->_at) {
        heap_put(loop, i, loop->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    heap_put(loop, i, timer);
}

static void heap_down(loop_t *loop, size_t i)
{
    loop_timer_t *timer = loop->heap[i];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= loop->timers)
            break;
        if (child + 1 < loop->timers && loop->heap[child + 1]->_at < loop->heap[child]->_at)
            child++;
        if (timer->_at <= loop->heap[child]->_at)
            break;
        heap_put(loop, i, loop->heap[child]);
        i = child;
    }
    heap_put(loop, i, timer);
}

void loop_timer_init(loop_timer_t *timer, void (*cb)(loop_timer_t *), void *data)
{
    *timer = (loop_timer_t){.cb = cb, .data = data};
}

void loop_timer_start(loop_t *loop, loop_timer_t *timer, uint64_t delay_ms)
{
    loop_check(loop);
    uint64_t now = clock_mono_ms();
    loop_timer_stop(timer);
    timer->_loop = loop;
    timer->_at = delay_ms > UINT64_MAX - now ? UINT64_MAX : now + delay_ms;
    if (loop->timers == loop->capacity) {
        loop->capacity = loop->capacity != 0 ? loop->capacity * 2 : TIMERS_FIRST;
        loop->heap = mem_realloc(loop->heap, loop->capacity * sizeof(*loop->heap));
    }
    heap_put(loop, loop->timers, timer);
    loop->timers++;
    heap_up(loop, loop->timers - 1);
}

void loop_timer_stop(loop_timer_t *timer)
{
    if (timer->_index == 0)
        return;
    loop_t *loop = timer->_loop;
    size_t i = timer->_index - 1;
    if (i >= loop->timers || loop->heap[i] != timer)
        mem_fatal("a timer is not where it says");
    timer->_index = 0;
    loop_timer_t *last = loop->heap[--loop->timers];
    if (last != timer) {
        heap_put(loop, i, last);
        heap_up(loop, i);
        heap_down(loop, last->_index - 1);
    }
}

int loop_timer_is_running(const loop_timer_t *timer)
{
    return timer->_index != 0;
}

uint64_t loop_timer_left(const loop_timer_t *timer)
{
    uint64_t now = clock_mono_ms();
    return timer->_index == 0 || timer->_at <= now ? 0 : timer->_at - now;
}

static void run_timers(loop_t *loop)
{
    uint64_t now = clock_mono_ms();
    while (loop->timers != 0 && loop->heap[0]->_at <= now) {
        loop_timer_t *timer = loop->heap[0];
        loop_timer_stop(timer);
        timer->cb(timer);
    }
}

/* --- tasks --- */

void loop_task_init(loop_task_t *task, void (*cb)(loop_task_t *), void *data)
{
    *task = (loop_task_t){.cb = cb, .data = data};
}

void loop_defer(loop_t *loop, loop_task_t *task)
{
    loop_check(loop);
    if (task->_next != NULL)
        return;
    task->_prev = loop->tasks._prev;
    task->_next = &loop->tasks;
    task->_prev->_next = task;
    loop->tasks._prev = task;
}

void loop_task_cancel(loop_t *loop, loop_task_t *task)
{
    loop_check(loop);
    if (task->_next == NULL)
        return;
    task->_prev->_next = task->_next;
    task->_next->_prev = task->_prev;
    task->_next = task->_prev = NULL;
}

/* Only what stands behind `from` now: a task that defers itself again waits for the next tick, or a retry without a
 * pause would never let the loop go on. False: nothing did. */
static bool run_tasks_behind(loop_t *loop, loop_task_t *from)
{
    loop_task_t batch;
    if (from->_next == &loop->tasks)
        return false;
    batch._next = from->_next;
    batch._prev = loop->tasks._prev;
    batch._next->_prev = batch._prev->_next = &batch;
    from->_next = &loop->tasks;
    loop->tasks._prev = from;
    while (batch._next != &batch) {
        loop_task_t *task = batch._next;
        loop_task_cancel(loop, task);
        task->cb(task);
    }
    return true;
}

/* The callbacks of writes that completed at once, and the tasks those callbacks queue: a connection whose answer was
 * written by a task is taken up again before the loop looks at its socket, or libh2o would read the next request by
 * itself. Tasks that were waiting for the next tick already go on waiting. */
static bool finish_writes(loop_t *loop)
{
    loop_task_t mark = {0};
    loop_defer(loop, &mark);
    h2o_timeout__do_post_callback(loop->h2o);
    bool ran = run_tasks_behind(loop, &mark);
    loop_task_cancel(loop, &mark);
    return ran;
}

/* --- running --- */

static int32_t wait_time(const loop_t *loop, uint32_t max_wait_ms)
{
    uint64_t wait = max_wait_ms < WAIT_MAX_MS ? max_wait_ms : WAIT_MAX_MS;
    if (loop->tasks._next != &loop->tasks)
        return 0;
    if (loop->timers != 0) {
        uint64_t now = clock_mono_ms(), at = loop->heap[0]->_at;
        if (at <= now)
            return 0;
        if (at - now < wait)
            wait = at - now;
    }
    return (int32_t)wait;
}

void loop_run_once(loop_t *loop, uint32_t max_wait_ms)
{
    loop_check(loop);
    if (h2o_evloop_run(loop->h2o, wait_time(loop, max_wait_ms)) != 0 && errno != EINTR)
        mem_fatal("the event loop broke");
    /* A write made outside of libh2o's own callbacks may complete at once; its callback must run before libh2o looks at
     * its sockets again, or one it polls for writing is left polled without a callback, which it asserts never to be.
     */
    run_timers(loop);
    h2o_timeout__do_post_callback(loop->h2o);
    run_tasks_behind(loop, &loop->tasks);
    for (int sweeps = 0; sweeps < SWEEPS_MAX && finish_writes(loop); sweeps++)
        ;
}

void loop_run(loop_t *loop)
{
    loop_check(loop);
    loop->stopped = false;
    while (!loop->stopped)
        loop_run_once(loop, WAIT_MAX_MS);
}

void loop_stop(loop_t *loop)
{
    loop_check(loop);
    loop->stopped = true;
}

void loop_post(loop_t *loop, void (*fn)(void *), void *arg)
{
    loop_check(loop);
    post_t *post = mem_alloc(sizeof(*post));
    post->fn = fn;
    post->arg = arg;
    pthread_mutex_lock(&loop->posts.lock);
    *loop->posts.tail = post;
    loop->posts.tail = &post->next;
    pthread_mutex_unlock(&loop->posts.lock);
    uint64_t one = 1;
    if (write(loop->posts.eventfd, &one, sizeof(one)) < 0 && errno != EAGAIN)
        mem_fatal("eventfd broke");
}
