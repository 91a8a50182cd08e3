/*
 * Files in the work directory, reached one component at a time from its descriptor and never through a link: what a
 * name means is the kernel's word (spec backend-docker 2.2).
 */
#ifndef BACKENDS_GUEST_RUNNER_FILES_H
#define BACKENDS_GUEST_RUNNER_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/guest/job.h"
#include "backends/guest/runner/link.h"

/* The work directory's descriptor, or -1 with errno. */
int files_open_work(const char *path);
/* Makes every file of the job, none of which may be there. true, or false with the caller's words in `detail` (UTF-8).
 */
bool files_write(int work, const job_t *job, char detail[JOB_DETAIL_MAX + 1]);

typedef struct {
    uint16_t count;
    bool is_truncated;
} files_sent_t;
/* Sends the artifacts that are regular files below the work directory, in the job's order; the first one that does not
 * fit what the job allows ends it. Nothing may be left in the sandbox that could change them. */
files_sent_t files_send_artifacts(int work, const job_t *job, link_t *link);

#endif
