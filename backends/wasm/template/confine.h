/*
 * The walls around the template and around each worker (spec section 6.2): small allow lists over the kernel's calls,
 * everything else ends the process.
 */
#ifndef TEMPLATE_CONFINE_H
#define TEMPLATE_CONFINE_H

#include <stdbool.h>
#include <stdint.h>

/* Added to the niceness of template and workers: guests' code makes way for the gateway's own processes, which have
 * little to do and are waited for. One part in ten against them, not none, so a busy machine does not starve a run. The
 * short slices of the gateway's processes, which are inherited, end here. */
enum { WASM_NICE = 10 };
enum { WORKER_FD = 3 }; /* a worker's one descriptor: the stream to the role */

/* Before anything else in the template: no capability, no new privileges, no core, not traceable, gone with the role; a
 * user and network namespace of its own where the kernel permits. The namespace is made once and shared by all workers:
 * it holds no interface, so there is nothing in it to share, and a fresh one for each run would cost more than the run.
 */
bool confine_template_early(bool *has_namespaces);
/* Once the engine stands: the template may fork, pass descriptors, reap and no more. False when the kernel refuses. */
bool confine_template(void);
/* In a worker, first thing: dies with the template, keeps only `fd`, which becomes WORKER_FD, and may create nothing.
 */
bool confine_worker_early(int fd, int template_pid);
/* In a worker, with the run's time known and before the guest's code is read: CPU time, the alarm and the filter. */
bool confine_worker(uint32_t timeout_ms);

#endif
