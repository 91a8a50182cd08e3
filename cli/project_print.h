/* How a project's run is told: each step with its exit code and time, the output verbatim; or as members of the one
 * JSON object. */
#ifndef CLI_PROJECT_PRINT_H
#define CLI_PROJECT_PRINT_H

#include <stdbool.h>
#include <stddef.h>
#include <jansson.h>

#include "records/plimsoll.pb-c.h"

typedef struct {
    const Plimsoll__V1__ProjectResult *result;
    char *const *asked; /* artifacts of the request */
    size_t asked_count, step_count;
    const char *out; /* where they were written; NULL = nowhere */
} project_told_t;

/* A line on stderr for each step, then its bytes on stdout and stderr; then what became of the rest. false when the
 * output could not be written (errno). */
bool project_print_steps(const project_told_t *told);
/* A line on stderr for each artifact. */
void project_print_artifacts(const project_told_t *told);
/* outcome, steps, artifacts (with their content when they were not written). */
void project_set_json(json_t *object, const project_told_t *told);
/* The command's exit status for it. */
int project_exit_status(const Plimsoll__V1__ProjectResult *result);

#endif
