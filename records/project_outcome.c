#include "records/project_outcome.h"

const char *project_outcome_name(int64_t outcome)
{
    static const char *const names[PROJECT_OUTCOME_LAST + 1] = {"",          "completed",      "setup_failed",
                                                                "timed_out", "protocol_error", "runner_failed"};
    return outcome >= 0 && outcome <= PROJECT_OUTCOME_LAST ? names[outcome] : "";
}

int32_t project_exit_code(const Plimsoll__V1__ProjectResult *result)
{
    if (result->outcome == PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_TIMED_OUT)
        return PROJECT_EXIT_TIMED_OUT;
    if (result->outcome != PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_COMPLETED)
        return PROJECT_EXIT_NONE;
    return result->n_steps != 0 ? result->steps[result->n_steps - 1]->exit_code : 0;
}
