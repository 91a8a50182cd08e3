/* What came of a job, as the protocol answers it (spec protocol sections 2.2 and 5). */
#ifndef BACKENDS_GUEST_RESULT_H
#define BACKENDS_GUEST_RESULT_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/guest/host.h"
#include "records/plimsoll.pb-c.h"

enum {
    RESULT_EXIT_DEADLINE = 124,
    RESULT_EXIT_CANCELED = 137,   /* 128 + SIGKILL: stopped because the caller went away */
    RESULT_EXIT_UNKNOWN = -1,     /* a step whose end nobody reported */
    RESULT_COMMAND_CHARS = 16384, /* kept of a step's line */
};

typedef enum {
    RESULT_WHOLE,    /* FINAL: the runner's word */
    RESULT_LATE,     /* the run's time was over before FINAL came */
    RESULT_LOST,     /* no FINAL, and none will come */
    RESULT_CANCELED, /* stopped for the caller */
} result_end_t;

typedef struct {
    result_end_t end;
    const char *detail; /* RESULT_LOST: why, in our own words */
    uint64_t given_us;  /* since the job was given */
} result_view_t;

/* Both take the output out of `result`. */

/* NULL when there is no verdict to give: nothing proves how the code ended (RESULT_LOST, or a runner that failed). */
Plimsoll__V1__RunResponse *result_javascript(guest_result_t *result, const result_view_t *view);
Plimsoll__V1__RunResponse *result_project(const Plimsoll__V1__ProjectRun *request, guest_result_t *result,
                                          const result_view_t *view);

#endif
