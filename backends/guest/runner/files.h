/*
 * A job's files in the work directory, reached one component at a time from its descriptor and never through a link
 * (spec backend-docker 2.2).
 */
#ifndef BACKENDS_GUEST_RUNNER_FILES_H
#define BACKENDS_GUEST_RUNNER_FILES_H

#include <stdbool.h>

#include "backends/guest/job.h"

/* The work directory's descriptor, or -1 with errno. */
int files_open_work(const char *path);
/* Makes every file of the job, none of which may be there. true, or false with the caller's words in `detail` (UTF-8).
 */
bool files_write(int work, const job_t *job, char detail[JOB_DETAIL_MAX + 1]);

#endif
