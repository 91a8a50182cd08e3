/*
 * One event loop a thread, over libh2o's evloop. h2o's own timeouts follow the wall clock and come in fixed durations;
 * the timers here follow the monotonic clock and take any delay. Nothing here may be called from another thread except
 * loop_post.
 */
#ifndef CORE_LOOP_H
#define CORE_LOOP_H

#include <stddef.h>
#include <stdint.h>

struct st_h2o_evloop_t;
typedef struct loop loop_t;

typedef struct loop_timer {
    void (*cb)(struct loop_timer *timer);
    void *data;
    uint64_t _at;  /* monotonic ms */
    size_t _index; /* place in the heap plus one; 0 = not running */
    loop_t *_loop;
} loop_timer_t;

/* Work for the end of the current tick: the way to free an object inside its own call chain. */
typedef struct loop_task {
    void (*cb)(struct loop_task *task);
    void *data;
    struct loop_task *_next, *_prev; /* both NULL when not queued */
} loop_task_t;

loop_t *loop_create(void);
/* All timers, tasks and watches must be gone. */
void loop_destroy(loop_t *loop);
/* For libh2o calls (sockets, contexts). */
struct st_h2o_evloop_t *loop_h2o(loop_t *loop);
/* Runs until loop_stop. */
void loop_run(loop_t *loop);
/* Runs one tick, waiting at most max_wait_ms for something to happen. */
void loop_run_once(loop_t *loop, uint32_t max_wait_ms);
void loop_stop(loop_t *loop);

void loop_timer_init(loop_timer_t *timer, void (*cb)(loop_timer_t *), void *data);
/* (Re)starts the timer to fire once in delay_ms. */
void loop_timer_start(loop_t *loop, loop_timer_t *timer, uint64_t delay_ms);
/* Harmless on a timer that is not running. */
void loop_timer_stop(loop_timer_t *timer);
int loop_timer_is_running(const loop_timer_t *timer);
/* Milliseconds until it fires (0 when due or not running). */
uint64_t loop_timer_left(const loop_timer_t *timer);

void loop_task_init(loop_task_t *task, void (*cb)(loop_task_t *), void *data);
/* Queues the task for the end of this tick; a queued task stays where it is. */
void loop_defer(loop_t *loop, loop_task_t *task);
/* Harmless when not queued. */
void loop_task_cancel(loop_t *loop, loop_task_t *task);

/* From any thread: runs fn(arg) on the loop's thread. The queue is unbounded; callers bound themselves. */
void loop_post(loop_t *loop, void (*fn)(void *arg), void *arg);

#endif
