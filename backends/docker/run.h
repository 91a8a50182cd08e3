/* One run on a Docker wall: a sandbox claimed, read back, given its job, and its result taken (spec
 * backend-docker 2.4). */
#ifndef BACKENDS_DOCKER_RUN_H
#define BACKENDS_DOCKER_RUN_H

#include "backends/backend.h"

typedef struct docker docker_t;

enum {
    DOCKER_SNIPPET_DEFAULT_MS = 5 * 1000, /* budgets of spec 1.2 */
    DOCKER_SNIPPET_MAX_MS = 30 * 1000,
    DOCKER_PROJECT_DEFAULT_MS = 30 * 1000,
    DOCKER_PROJECT_MAX_MS = 120 * 1000,
    DOCKER_SNIPPET_STREAM_MAX = 64 * 1024, /* bytes of each stream that are kept */
    DOCKER_STEP_STREAM_MAX = 1024 * 1024,
    DOCKER_OUTPUT_MAX = 3 * 1024 * 1024,    /* of all steps */
    DOCKER_ARTIFACTS_MAX = 8 * 1024 * 1024, /* of all artifacts */
    /* The runner keeps the deadline, and its verdict is worth waiting for this long. With what a kill in flight adds, a
     * run of 2,000 ms answers before 2,400 (U05). */
    DOCKER_MARGIN_MS = 250,
    /* Parts of three of its time that a run waits for a sandbox: one that comes later than that would find too little
     * left, and a refusal that ran nothing is worth more than half a run. */
    DOCKER_WAIT_THIRDS = 2,
    DOCKER_CLAIMS_MAX = 3, /* sandboxes tried for one run, when the read-back finds the first ones changed */
    DOCKER_CHECK_MS =
        2000, /* for the read-back, which takes a millisecond or two: an Engine that hangs is told early */
    DOCKER_RETRY_MS = 1000,
};

/* In a coroutine, as backend_ops_t.run. */
void docker_run(docker_t *docker, backend_run_t *run);

#endif
