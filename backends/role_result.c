#include "backends/role_result.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/utf8.h"

static void set(char **field, char *value)
{
    if (*field != protobuf_c_empty_string)
        free(*field);
    *field = value;
}

static void repair(char **field)
{
    char *better = utf8_repair(*field);
    if (better != NULL)
        set(field, better);
}

/* ---- size ---- */

static size_t text_size(const char *text)
{
    size_t size = 2;
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++)
        size += *c < 0x20 ? 6 : *c == '"' || *c == '\\' ? 2 : 1;
    return size;
}

static size_t bytes_size(const ProtobufCBinaryData *bytes)
{
    return (bytes->len + 2) / 3 * 4;
}

static size_t step_size(const Plimsoll__V1__StepResult *step)
{
    return PROJECT_STEP_FRAME + text_size(step->command) + bytes_size(&step->stdout) + bytes_size(&step->stderr);
}

static size_t artifact_size(const Plimsoll__V1__Artifact *artifact)
{
    return PROJECT_ARTIFACT_FRAME + text_size(artifact->path) + bytes_size(&artifact->content);
}

size_t role_result_size(const Plimsoll__V1__ProjectResult *r)
{
    size_t size = PROJECT_RESULT_FRAME + text_size(r->outcome_detail);
    for (size_t i = 0; i < r->n_steps; i++)
        size += step_size(r->steps[i]);
    for (size_t i = 0; i < r->n_artifacts; i++)
        size += artifact_size(r->artifacts[i]);
    return size;
}

/* ---- bounds ---- */

static void drop_last_artifact(Plimsoll__V1__ProjectResult *r)
{
    plimsoll__v1__artifact__free_unpacked(r->artifacts[--r->n_artifacts], NULL);
    r->artifacts_truncated = 1;
    if (r->n_artifacts == 0) {
        /* a list without elements is freed by nobody */
        free(r->artifacts);
        r->artifacts = NULL;
    }
}

static void drop_bytes(ProtobufCBinaryData *bytes, protobuf_c_boolean *is_truncated)
{
    if (bytes->len == 0)
        return;
    free(bytes->data);
    *bytes = (ProtobufCBinaryData){0};
    *is_truncated = 1;
}

static void bound(Plimsoll__V1__ProjectResult *r)
{
    size_t size = role_result_size(r);
    while (size > PROJECT_ANSWER_MAX && r->n_artifacts != 0) {
        size -= artifact_size(r->artifacts[r->n_artifacts - 1]);
        drop_last_artifact(r);
    }
    if (size <= PROJECT_ANSWER_MAX)
        return;
    for (size_t i = 0; i < r->n_steps; i++) {
        drop_bytes(&r->steps[i]->stdout, &r->steps[i]->stdout_truncated);
        drop_bytes(&r->steps[i]->stderr, &r->steps[i]->stderr_truncated);
    }
    r->outcome = r->n_steps != 0 ? PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_RUNNER_FAILED
                                 : PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_SETUP_FAILED;
    set(&r->outcome_detail, mem_strdup("the steps' output is larger than an answer of 15 MiB holds"));
}

void role_result_settle(Plimsoll__V1__RunResponse *response)
{
    if (response->result_case == PLIMSOLL__V1__RUN_RESPONSE__RESULT_MODULE)
        repair(&response->module->outcome_detail);
    if (response->result_case != PLIMSOLL__V1__RUN_RESPONSE__RESULT_PROJECT)
        return;
    Plimsoll__V1__ProjectResult *r = response->project;
    repair(&r->outcome_detail);
    for (size_t i = 0; i < r->n_steps; i++)
        repair(&r->steps[i]->command);
    for (size_t i = 0; i < r->n_artifacts; i++)
        repair(&r->artifacts[i]->path);
    bound(r);
}
