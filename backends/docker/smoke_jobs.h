/* Private to the smoke test: jobs as callers give them, with answers known beforehand (S14 to S18). */
#ifndef BACKENDS_DOCKER_SMOKE_JOBS_H
#define BACKENDS_DOCKER_SMOKE_JOBS_H

#include "backends/docker/smoke_box.h"

/* Each in a sandbox of its own. */
bool smoke_jobs_snippet(const smoke_test_t *test, smoke_t *out);
bool smoke_jobs_busy(const smoke_test_t *test);
bool smoke_jobs_flood(const smoke_test_t *test);
bool smoke_jobs_project(const smoke_test_t *test, smoke_t *out);

#endif
