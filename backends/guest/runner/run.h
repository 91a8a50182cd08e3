/* What one job is: the steps of a snippet, a project or a probe, and how it ended (spec backend-docker 2.2, protocol
 * 5).
 */
#ifndef BACKENDS_GUEST_RUNNER_RUN_H
#define BACKENDS_GUEST_RUNNER_RUN_H

#include "backends/guest/job.h"
#include "backends/guest/runner/link.h"
#include "backends/guest/runner/process.h"

typedef struct {
    link_t link;
    process_world_t world;
    process_t interpreter; /* started ahead; pid 0 = none */
    job_t job;
} runner_t;

/* Starts the interpreter that reads a snippet from its stdin. 0, or errno. */
int run_start_interpreter(runner_t *runner);
/* Runs the accepted job and sends all of its frames, FINAL included. */
void run_job(runner_t *runner);
/* FINAL alone, for a job that cannot be run. `why` is at most JOB_DETAIL_MAX bytes. */
void run_refuse(runner_t *runner, const char *why);

#endif
