/* The outcome of a project in one word, for log lines, lists and tables: "completed", "setup_failed", "timed_out",
 * "protocol_error", "runner_failed"; "" for none and for a number without a name. */
#ifndef RECORDS_PROJECT_OUTCOME_H
#define RECORDS_PROJECT_OUTCOME_H

#include <stdint.h>

#include "records/plimsoll.pb-c.h"

enum { PROJECT_OUTCOME_LAST = PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_RUNNER_FAILED };

enum { PROJECT_EXIT_TIMED_OUT = 124, PROJECT_EXIT_NONE = -1 };

const char *project_outcome_name(int64_t outcome);
/* The one exit code of a project: its last step's; PROJECT_EXIT_TIMED_OUT when its time was up; PROJECT_EXIT_NONE when
 * it did not come to its end, whatever its steps said. */
int32_t project_exit_code(const Plimsoll__V1__ProjectResult *result);

#endif
