/* The life of a worker: forked, prepared, confined, one run, gone. */
#ifndef TEMPLATE_WORKER_H
#define TEMPLATE_WORKER_H

#include <stdbool.h>

/* In the child of a fork. `fd` is the stream to the role. Never returns. */
void worker_main(int fd, int template_pid, bool is_probe) __attribute__((noreturn));

#endif
