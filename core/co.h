/*
 * Stackful coroutines on ucontext, so a backend's run reads top to bottom. A coroutine runs on the thread of its loop;
 * it gives up control only in co_wait and co_sleep. Stacks have a guard page below and are recycled per thread.
 */
#ifndef CORE_CO_H
#define CORE_CO_H

#include <stdbool.h>
#include <stdint.h>

#include "core/loop.h"

enum {
    CO_STACK_BYTES = 128 * 1024, /* usable stack; sanitizer builds multiply it by 4 */
};

typedef struct co co_t;

typedef enum { CO_WOKEN, CO_TIMED_OUT, CO_CANCELED } co_wake_t;

/* Starts fn(arg) at once, on this call, and returns when it first waits or ends. The handle dies with the coroutine:
 * `on_end` (may be NULL) is called on the loop's own stack after it ended, and the handle must not be used from then
 * on. `on_end` is never called inside co_start, so the returned handle is alive until the end of this tick. */
co_t *co_start(loop_t *loop, void (*fn)(void *arg), void *arg, void (*on_end)(void *arg));
/* The running coroutine, or NULL outside of one. */
co_t *co_self(void);
loop_t *co_loop(co_t *co);
/* Inside a coroutine: waits for co_wake, the time limit in ms (UINT64_MAX = none is given by the caller on purpose), or
 * cancel. Waits belong in a loop that checks what is waited for: a wake may have been meant for another wait of the
 * same coroutine, and a function called in between may have taken one. A wake that came before the wait is not lost:
 * the wait returns at once. A canceled coroutine's every wait returns CO_CANCELED until co_shield_begin. */
co_wake_t co_wait(uint64_t timeout_ms);
/* CO_TIMED_OUT after the time, CO_CANCELED when canceled first. A wake does not end it and is kept for the next
 * co_wait. */
co_wake_t co_sleep(uint64_t ms);
/* From the loop's thread, inside or outside a coroutine; resumes at the end of the tick, never on the caller's stack.
 * Waking twice before the wait is one wake. */
void co_wake(co_t *co);
/* Ends the present and all later waits with CO_CANCELED. Harmless twice. */
void co_cancel(co_t *co);
bool co_is_canceled(const co_t *co);
/* Clean-up must be able to wait: between begin and end, waits ignore the cancel. May nest. */
void co_shield_begin(void);
void co_shield_end(void);

#endif
