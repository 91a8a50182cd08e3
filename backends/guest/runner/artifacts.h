/*
 * Artifacts leave the sandbox only when the kernel says that the opened file is a regular one below the work directory
 * (spec backend-docker 2.2). Nothing may be left in the sandbox that could move things meanwhile.
 */
#ifndef BACKENDS_GUEST_RUNNER_ARTIFACTS_H
#define BACKENDS_GUEST_RUNNER_ARTIFACTS_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/guest/job.h"
#include "backends/guest/runner/link.h"

typedef struct {
    uint16_t count;
    bool is_truncated;
} artifacts_t;

/* Sends what there is of the job's artifacts, in its order; the first one that does not fit what the job allows ends
 * it. `work` is a descriptor of `work_path`, which is absolute. */
artifacts_t artifacts_send(int work, const char *work_path, const job_t *job, link_t *link);

#endif
