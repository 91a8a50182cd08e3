/* How the kernel's fair scheduler shares a busy processor between the gateway's processes and guests' code. */
#ifndef CORE_SLICE_H
#define CORE_SLICE_H

#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SLICE_DEFAULT_US = 0, /* the kernel's own choice */
    SLICE_SHORT_US = 100, /* the shortest the kernel grants; what the gateway does for one event takes less */
    SLICE_NICENESS_MAX = 19
};

/*
 * Time slices of `us` microseconds for this process and what it becomes or forks, and `niceness` added to its own. With
 * short ones a process is soon given the processor when it wakes, and gives it up as soon (Linux 6.12 and newer; older
 * kernels ignore it); it gets no more than its share. Needs no privilege; a failure changes nothing, and an operator's
 * choice of another policy stays. System calls alone, so it may stand between fork and exec, and in the wasm template.
 */
static inline void slice_set(unsigned us, int niceness)
{
    /* struct sched_attr of linux/sched/types.h, which cannot be included beside sched.h, in its first version */
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
    } attr = {.size = sizeof(attr), .runtime_ns = (uint64_t)us * 1000};

    if (syscall(SYS_sched_getscheduler, 0) != 0) /* SCHED_OTHER */
        return;
    attr.nice = 20 - (int)syscall(SYS_getpriority, 0, 0) + niceness; /* the raw call answers 1 to 40 */
    if (attr.nice > SLICE_NICENESS_MAX)
        attr.nice = SLICE_NICENESS_MAX;
    syscall(SYS_sched_setattr, 0, &attr, 0);
}

#endif
