#include "core/co.h"

#include <stdlib.h>
#include <ucontext.h>

#include "core/co_stack.h"
#include "core/mem.h"

#if defined(__SANITIZE_ADDRESS__)
#define CO_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CO_ASAN 1
#endif
#endif

#ifdef CO_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

enum {
    CO_MAGIC = 0x636f726f,
    CO_DEAD_MAGIC = 0x64656164,
};

struct co {
    uint32_t magic;
    unsigned shields; /* depth of co_shield_begin */
    loop_t *loop;
    void (*fn)(void *arg);
    void *arg;
    void (*on_end)(void *arg);
    co_stack_t stack;
    ucontext_t own;     /* where it stopped */
    ucontext_t resumer; /* where it goes back to when it waits or ends */
    co_t *resumer_co;   /* the coroutine that called co_start, NULL when the loop resumed us */
    loop_task_t task;   /* brings it back on the loop's stack: resume, or the end */
    loop_timer_t timer; /* the time limit of the present wait */
    bool is_waiting;
    bool is_sleeping; /* the wait takes no wake */
    bool is_woken;    /* a wake nobody consumed yet */
    bool is_timed_out;
    bool is_canceled;
    bool has_ended;
#ifdef CO_ASAN
    void *fake_stack;
    const void *resumer_bottom;
    size_t resumer_size;
#endif
};

/* Coroutines never change threads, so the compiler may keep this variable's address across a switch. */
static __thread co_t *current;

static void check(const co_t *co)
{
    if (co == NULL || co->magic != CO_MAGIC)
        mem_fatal("not a live coroutine");
}

static bool sees_cancel(const co_t *co)
{
    return co->is_canceled && co->shields == 0;
}

/*
 * The two switches. swapcontext makes a sigprocmask system call each way, some hundreds of nanoseconds; a run switches
 * some dozens of times in its life and each of its waits is a network round trip, so hand-written assembly would buy
 * nothing. AddressSanitizer has to be told which stack is live before and after each switch.
 */
static void switch_in(co_t *co)
{
    co->resumer_co = current;
    current = co;
#ifdef CO_ASAN
    void *fake_stack = NULL;
    __sanitizer_start_switch_fiber(&fake_stack, co->stack.base, co->stack.size);
#endif
    if (swapcontext(&co->resumer, &co->own) != 0)
        mem_fatal("swapcontext failed");
#ifdef CO_ASAN
    __sanitizer_finish_switch_fiber(fake_stack, NULL, NULL);
#endif
    current = co->resumer_co;
    co->resumer_co = NULL;
}

static void switch_out(co_t *co)
{
#ifdef CO_ASAN
    /* A NULL place to save means this fiber's fake stack is not needed again. */
    __sanitizer_start_switch_fiber(co->has_ended ? NULL : &co->fake_stack, co->resumer_bottom, co->resumer_size);
#endif
    if (swapcontext(&co->own, &co->resumer) != 0)
        mem_fatal("swapcontext failed");
#ifdef CO_ASAN
    __sanitizer_finish_switch_fiber(co->fake_stack, &co->resumer_bottom, &co->resumer_size);
#endif
}

/* The coroutine is no more; whoever started it may learn so. */
static void end(co_t *co)
{
    void (*on_end)(void *) = co->on_end;
    void *arg = co->arg;
    co->magic = CO_DEAD_MAGIC;
    free(co);
    if (on_end != NULL)
        on_end(arg);
}

static void on_ended(loop_task_t *task)
{
    co_t *co = task->data;
    check(co);
    end(co);
}

/* Runs the coroutine until it waits or ends. True when it ended; its stack is given back. */
static bool run(co_t *co)
{
    switch_in(co);
    if (co->has_ended)
        co_stack_release(&co->stack);
    return co->has_ended;
}

static void on_resume(loop_task_t *task)
{
    co_t *co = task->data;
    check(co);
    if (current != NULL)
        mem_fatal("the loop was run inside a coroutine");
    /* At once: its end is what somebody waits for, ahead of all it left to be done afterwards. */
    if (run(co))
        end(co);
}

static void on_time_limit(loop_timer_t *timer)
{
    co_t *co = timer->data;
    check(co);
    co->is_timed_out = true;
    loop_defer(co->loop, &co->task);
}

static void entry(void)
{
    co_t *co = current;
#ifdef CO_ASAN
    __sanitizer_finish_switch_fiber(NULL, &co->resumer_bottom, &co->resumer_size);
#endif
    co->fn(co->arg);
    if (co->shields != 0)
        mem_fatal("a coroutine ended inside a shield");
    co->has_ended = true;
    switch_out(co);
    mem_fatal("an ended coroutine was resumed");
}

co_t *co_start(loop_t *loop, void (*fn)(void *arg), void *arg, void (*on_end)(void *arg))
{
    co_t *co = mem_alloc(sizeof(*co));
    co->magic = CO_MAGIC;
    co->loop = loop;
    co->fn = fn;
    co->arg = arg;
    co->on_end = on_end;
    loop_task_init(&co->task, on_resume, co);
    loop_timer_init(&co->timer, on_time_limit, co);
    co_stack_take(&co->stack);
    if (getcontext(&co->own) != 0)
        mem_fatal("getcontext failed");
    co->own.uc_stack.ss_sp = co->stack.base;
    co->own.uc_stack.ss_size = co->stack.size;
    co->own.uc_link = NULL;
    makecontext(&co->own, entry, 0);
#ifdef CO_ASAN
    /* ASan's swapcontext wipes the shadow of the stack named here, and with it the redzones of every waiting frame. The
     * C library does not look at it again. */
    co->own.uc_stack.ss_size = 0;
#endif
    if (run(co)) {
        /* announced from the loop, so that the handle is alive even when fn never waited */
        loop_task_init(&co->task, on_ended, co);
        loop_defer(loop, &co->task);
    }
    return co;
}

co_t *co_self(void)
{
    return current;
}

loop_t *co_loop(co_t *co)
{
    check(co);
    return co->loop;
}

static co_wake_t wait_for(uint64_t timeout_ms, bool sleeping)
{
    co_t *co = current;
    if (co == NULL)
        mem_fatal("a wait outside of a coroutine");
    check(co);
    if (sees_cancel(co))
        return CO_CANCELED;
    if (!sleeping && co->is_woken) {
        co->is_woken = false;
        return CO_WOKEN;
    }
    co->is_timed_out = false;
    co->is_sleeping = sleeping;
    co->is_waiting = true;
    if (timeout_ms != UINT64_MAX)
        loop_timer_start(co->loop, &co->timer, timeout_ms);
    switch_out(co);
    co->is_waiting = false;
    loop_timer_stop(&co->timer);
    if (sees_cancel(co))
        return CO_CANCELED;
    /* A wake is a fact and a time limit only a fear: when both came in one tick, the fact is told. */
    if (!sleeping && co->is_woken) {
        co->is_woken = false;
        return CO_WOKEN;
    }
    if (!co->is_timed_out)
        mem_fatal("a coroutine was resumed for no reason");
    return CO_TIMED_OUT;
}

co_wake_t co_wait(uint64_t timeout_ms)
{
    return wait_for(timeout_ms, false);
}

co_wake_t co_sleep(uint64_t ms)
{
    return wait_for(ms, true);
}

/* Always through the loop, never on the caller's stack: whoever wakes may be in the middle of its own object. */
void co_wake(co_t *co)
{
    check(co);
    co->is_woken = true;
    if (co->is_waiting && !co->is_sleeping)
        loop_defer(co->loop, &co->task);
}

void co_cancel(co_t *co)
{
    check(co);
    co->is_canceled = true;
    if (co->is_waiting && co->shields == 0)
        loop_defer(co->loop, &co->task);
}

bool co_is_canceled(const co_t *co)
{
    check(co);
    return co->is_canceled;
}

void co_shield_begin(void)
{
    if (current == NULL)
        mem_fatal("a shield outside of a coroutine");
    ++current->shields;
}

void co_shield_end(void)
{
    if (current == NULL || current->shields == 0)
        mem_fatal("a shield ended that was not begun");
    --current->shields;
}
