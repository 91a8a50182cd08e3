/* One run as GET /v1/runs/ID gives it, held against itself: what a reader can check of a stored record without the
 * request. */
#ifndef CLI_STORED_RUN_H
#define CLI_STORED_RUN_H

#include <jansson.h>

/* NULL when the run's record holds (its digest is that of its fields, and the run's own columns say the same) or there
 * is none to check; else what does not. Static text. */
const char *stored_run_check(const json_t *run);

#endif
