/* What a stand-in says of a project. Its acts come before the one that ends the run:
 *   - outcome N [DETAIL]: the outcome's number; %XX in the detail is a byte
 *   - steps EXIT...: one step for each exit code, of the request's commands ("steps" alone: none began)
 *   - output BYTES: stdout of each step
 *   - copy: each step's stdout is its command, and each artifact asked for is the file of that path
 *   - artifacts N BYTES: so many of those asked for, of so many bytes each */
#ifndef STANDIN_PROJECT_H
#define STANDIN_PROJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "records/plimsoll.pb-c.h"

enum { STANDIN_DETAIL_MAX = 256, STANDIN_STEPS_MAX = 20 };

typedef struct {
    int outcome; /* 0: completed, or timed out */
    char detail[STANDIN_DETAIL_MAX];
    bool has_steps, is_copy;
    size_t step_count;
    int32_t exits[STANDIN_STEPS_MAX];
    size_t output, artifact_count, artifact_bytes;
} standin_plan_t;

/* True when `verb` was one of the above. */
bool standin_plan_take(standin_plan_t *plan, const char *verb, size_t len, const char *rest);
/* Takes `out`, the stdout of the last step unless the plan says otherwise. */
Plimsoll__V1__ProjectResult *standin_plan_result(const standin_plan_t *plan, const Plimsoll__V1__ProjectRun *run,
                                                 int32_t exit_code, bool is_timed_out, uint8_t *out, size_t len);

#endif
