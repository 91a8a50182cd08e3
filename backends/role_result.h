/* What is the same for every wall's answer, before it is digested by anybody. */
#ifndef BACKENDS_ROLE_RESULT_H
#define BACKENDS_ROLE_RESULT_H

#include <stddef.h>

#include "records/plimsoll.pb-c.h"

enum {
    /* Spec protocol 5, "whole encoded runner report". 3 MiB of output and 8 MiB of artifacts are 14.7 MiB in base64,
     * so only very long commands and paths come near. */
    PROJECT_ANSWER_MAX = 15 * 1024 * 1024,
    /* What names, marks and numbers take in the JSON form, at most. */
    PROJECT_STEP_FRAME = 256,
    PROJECT_ARTIFACT_FRAME = 32,
    PROJECT_RESULT_FRAME = 256,
};

/* Texts guest code may have had a part in become valid UTF-8 (spec protocol 5). A project whose answer would pass
 * PROJECT_ANSWER_MAX loses artifacts from the end, with the flag; if its steps alone pass it, their output, with the
 * flags, and the outcome says that the runner failed. */
void role_result_settle(Plimsoll__V1__RunResponse *response);
/* Bytes of the result in its JSON form, as counted here. */
size_t role_result_size(const Plimsoll__V1__ProjectResult *result);

#endif
