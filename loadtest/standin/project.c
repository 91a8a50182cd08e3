#include "loadtest/standin/project.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

static void take_detail(standin_plan_t *plan, const char *text)
{
    size_t n = 0;
    for (; *text != '\0' && n < sizeof(plan->detail) - 1; text++) {
        unsigned byte = (unsigned char)*text;
        if (*text == '%' && sscanf(text + 1, "%2x", &byte) == 1)
            text += 2;
        plan->detail[n++] = (char)byte;
    }
    plan->detail[n] = '\0';
}

static void take_outcome(standin_plan_t *plan, const char *rest)
{
    char *end;
    plan->outcome = (int)strtol(rest, &end, 10);
    take_detail(plan, *end == ' ' ? end + 1 : end);
}

static void take_steps(standin_plan_t *plan, const char *rest)
{
    char *end;
    plan->has_steps = true;
    for (plan->step_count = 0; plan->step_count < STANDIN_STEPS_MAX; rest = end) {
        long exit_code = strtol(rest, &end, 10);
        if (end == rest)
            break;
        plan->exits[plan->step_count++] = (int32_t)exit_code;
    }
}

bool standin_plan_take(standin_plan_t *plan, const char *verb, size_t len, const char *rest)
{
    if (len == 7 && strncmp(verb, "outcome", len) == 0)
        take_outcome(plan, rest);
    else if (len == 5 && strncmp(verb, "steps", len) == 0)
        take_steps(plan, rest);
    else if (len == 6 && strncmp(verb, "output", len) == 0)
        plan->output = strtoul(rest, NULL, 10);
    else if (len == 4 && strncmp(verb, "copy", len) == 0)
        plan->is_copy = true;
    else if (len == 9 && strncmp(verb, "artifacts", len) == 0)
        sscanf(rest, "%zu %zu", &plan->artifact_count, &plan->artifact_bytes);
    else
        return false;
    return true;
}

static ProtobufCBinaryData bytes_of(const void *data, size_t len)
{
    ProtobufCBinaryData bytes = {.len = len};
    if (len == 0)
        return bytes;
    bytes.data = mem_alloc(len);
    if (data != NULL)
        memcpy(bytes.data, data, len);
    for (size_t i = 0; data == NULL && i < len; i++)
        bytes.data[i] = (uint8_t)i;
    return bytes;
}

static void add_step(Plimsoll__V1__ProjectResult *r, const char *command, int32_t exit_code, ProtobufCBinaryData out)
{
    Plimsoll__V1__StepResult *step = mem_alloc(sizeof(*step));
    plimsoll__v1__step_result__init(step);
    if (command[0] != '\0')
        step->command = mem_strdup(command);
    step->exit_code = exit_code;
    step->stdout = out;
    step->duration_ms = 1;
    r->steps = mem_realloc(r->steps, (r->n_steps + 1) * sizeof(r->steps[0]));
    r->steps[r->n_steps++] = step;
}

static void add_artifact(Plimsoll__V1__ProjectResult *r, const char *path, ProtobufCBinaryData content)
{
    Plimsoll__V1__Artifact *artifact = mem_alloc(sizeof(*artifact));
    plimsoll__v1__artifact__init(artifact);
    artifact->path = mem_strdup(path);
    artifact->content = content;
    r->artifacts = mem_realloc(r->artifacts, (r->n_artifacts + 1) * sizeof(r->artifacts[0]));
    r->artifacts[r->n_artifacts++] = artifact;
}

static void add_steps(const standin_plan_t *plan, const Plimsoll__V1__ProjectRun *run, Plimsoll__V1__ProjectResult *r)
{
    size_t count = plan->has_steps ? plan->step_count : run->n_steps;
    for (size_t i = 0; i < count; i++) {
        const char *command = i < run->n_steps ? run->steps[i] : "";
        add_step(r, command, plan->has_steps ? plan->exits[i] : 0,
                 plan->is_copy ? bytes_of(command, strlen(command)) : bytes_of(NULL, plan->output));
    }
}

static void add_artifacts(const standin_plan_t *plan, const Plimsoll__V1__ProjectRun *run,
                          Plimsoll__V1__ProjectResult *r)
{
    for (size_t i = 0; i < run->n_artifacts && i < plan->artifact_count; i++)
        add_artifact(r, run->artifacts[i], bytes_of(NULL, plan->artifact_bytes));
    for (size_t i = 0; plan->is_copy && i < run->n_artifacts; i++)
        for (size_t k = 0; k < run->n_files; k++)
            if (strcmp(run->artifacts[i], run->files[k]->path) == 0)
                add_artifact(r, run->artifacts[i], bytes_of(run->files[k]->content.data, run->files[k]->content.len));
}

Plimsoll__V1__ProjectResult *standin_plan_result(const standin_plan_t *plan, const Plimsoll__V1__ProjectRun *run,
                                                 int32_t exit_code, bool is_timed_out, uint8_t *out, size_t len)
{
    Plimsoll__V1__ProjectResult *r = mem_alloc(sizeof(*r));
    plimsoll__v1__project_result__init(r);
    if (run != NULL && (plan->has_steps || plan->is_copy || plan->output != 0)) {
        add_steps(plan, run, r);
        free(out);
    } else {
        add_step(r, "", exit_code, (ProtobufCBinaryData){.len = len, .data = out});
        r->steps[0]->timed_out = is_timed_out;
    }
    if (run != NULL)
        add_artifacts(plan, run, r);
    r->outcome = plan->outcome != 0 ? (Plimsoll__V1__ProjectOutcome)plan->outcome
                 : is_timed_out     ? PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_TIMED_OUT
                                    : PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_COMPLETED;
    if (plan->detail[0] != '\0')
        r->outcome_detail = mem_strdup(plan->detail);
    return r;
}
