/*
 * Fault points, named after the run's steps; compiled away unless PLIMSOLL_FAULTS (the test build). A test arms one by
 * writing a file DIR/NAME whose text is the action: "kill" (SIGKILL to this process), "fail" (fault_point returns true
 * and the step acts as failed), "delay MS", "block" (waits until the file is gone). The point writes DIR/NAME.hit when
 * it is reached armed, so a test waits for a fact and not for a time. "once " before the action disarms the point
 * first.
 */
#ifndef CORE_FAULT_H
#define CORE_FAULT_H

#include <stdbool.h>

#ifdef PLIMSOLL_FAULTS
/* `dir` NULL or empty = no point is ever armed. Copied. */
void fault_init(const char *dir);
bool fault_point(const char *name);
#else
static inline void fault_init(const char *dir)
{
    (void)dir;
}
static inline bool fault_point(const char *name)
{
    (void)name;
    return false;
}
#endif

#endif
