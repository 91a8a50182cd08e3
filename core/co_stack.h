/* Stacks for coroutines: mapped lazily, with an unreadable page below that turns an overflow into a crash, recycled per
 * thread. */
#ifndef CORE_CO_STACK_H
#define CORE_CO_STACK_H

#include <stddef.h>

enum {
    /* Unreadable bytes below a stack. More than one page, since a frame larger than the guard could step over it. */
    CO_STACK_GUARD_BYTES = 64 * 1024,
    /* Idle stacks a thread keeps: 64 * 128 KiB = 8 MiB at most, and that much only if every one was used to its bottom.
     */
    CO_STACK_CACHE_MAX = 64,
};

typedef struct {
    void *base; /* lowest usable byte; the guard page ends here */
    size_t size;
} co_stack_t;

/* Aborts when the kernel has no mapping left (a stack takes two of vm.max_map_count, 65530 by default). */
void co_stack_take(co_stack_t *stack);
/* By the thread that took it, while running on another stack. */
void co_stack_release(co_stack_t *stack);
/* Idle stacks kept by this thread. */
size_t co_stack_cached(void);

#endif
