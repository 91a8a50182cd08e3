/* Private to the smoke test: what a report says of the file system (S5 to S9). */
#ifndef BACKENDS_DOCKER_SMOKE_PLACES_H
#define BACKENDS_DOCKER_SMOKE_PLACES_H

#include "backends/docker/smoke_report.h"

bool smoke_places_judge(const json_t *report, const smoke_expect_t *expect, char why[BACKEND_TEXT_MAX]);
/* The bytes of "size=" in a tmpfs' options: runc has "size=16384k", runsc the text as it was given, "size=16m". False
 * without one, or with one that is no plain number. */
bool smoke_places_size(const char *options, uint64_t *out);

#endif
