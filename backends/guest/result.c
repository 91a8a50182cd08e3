#include "backends/guest/result.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/utf8.h"

#define OUTCOME(name) PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_##name

enum { DETAIL_MAX = 256 };

static void move_bytes(ProtobufCBinaryData *to, buffer_t *from)
{
    to->data = from->base;
    to->len = from->len;
    buffer_init(from, 0);
}

/* Text a guest had a part in; repaired before anything is computed of it (spec protocol 5). */
static char *text_of(const char *text)
{
    char *repaired = utf8_repair(text);
    return repaired != NULL ? repaired : mem_strdup(text);
}

static Plimsoll__V1__RunResponse *response_create(void)
{
    Plimsoll__V1__RunResponse *response = mem_alloc(sizeof(*response));
    plimsoll__v1__run_response__init(response);
    return response;
}

/* --- snippets --- */

static bool has_verdict(const guest_result_t *result, const result_view_t *view)
{
    switch (view->end) {
    case RESULT_WHOLE:
        return result->outcome == GUEST_TIMED_OUT ||
               (result->outcome == GUEST_COMPLETED && result->step_count == 1 && result->steps[0].has_ended);
    case RESULT_LATE:
    case RESULT_CANCELED:
        return true;
    case RESULT_LOST:
        break;
    }
    return false;
}

Plimsoll__V1__RunResponse *result_javascript(guest_result_t *result, const result_view_t *view)
{
    if (!has_verdict(result, view))
        return NULL;
    Plimsoll__V1__RunResponse *response = response_create();
    Plimsoll__V1__JavaScriptResult *js = mem_alloc(sizeof(*js));
    plimsoll__v1__java_script_result__init(js);
    response->result_case = PLIMSOLL__V1__RUN_RESPONSE__RESULT_JAVASCRIPT;
    response->javascript = js;

    guest_step_t *step = result->step_count > 0 ? &result->steps[0] : NULL;
    if (step != NULL) {
        move_bytes(&js->stdout, &step->out);
        move_bytes(&js->stderr, &step->err);
        js->stdout_truncated = step->is_out_truncated;
        js->stderr_truncated = step->is_err_truncated;
    }
    if (step != NULL && step->has_ended) {
        js->exit_code = step->exit_code;
        js->timed_out = step->is_timed_out;
    } else if (view->end == RESULT_CANCELED) {
        js->exit_code = RESULT_EXIT_CANCELED;
    } else {
        js->exit_code = RESULT_EXIT_DEADLINE;
        js->timed_out = true;
    }
    return response;
}

/* --- projects --- */

/* The first `chars` characters of valid UTF-8. */
static char *cut(const char *text, size_t chars)
{
    const char *end = text;
    while (*end != '\0' && ((*end & 0xc0) == 0x80 || chars-- > 0))
        ++end;
    char *part = mem_strndup(text, (size_t)(end - text)), *repaired = utf8_repair(part);
    if (repaired == NULL)
        return part;
    free(part);
    return repaired;
}

static Plimsoll__V1__StepResult *step_result(const char *line, guest_step_t *step, const result_view_t *view,
                                             uint64_t *left_us)
{
    Plimsoll__V1__StepResult *out = mem_alloc(sizeof(*out));
    plimsoll__v1__step_result__init(out);
    out->command = cut(line, RESULT_COMMAND_CHARS);
    move_bytes(&out->stdout, &step->out);
    move_bytes(&out->stderr, &step->err);
    out->stdout_truncated = step->is_out_truncated;
    out->stderr_truncated = step->is_err_truncated;
    if (step->has_ended) {
        out->exit_code = step->exit_code;
        out->timed_out = step->is_timed_out;
        out->duration_ms = (int64_t)(step->duration_us / 1000);
        *left_us -= step->duration_us < *left_us ? step->duration_us : *left_us;
        return out;
    }
    /* Begun, and its end was never told. */
    out->timed_out = view->end == RESULT_LATE;
    out->exit_code = view->end == RESULT_LATE       ? RESULT_EXIT_DEADLINE
                     : view->end == RESULT_CANCELED ? RESULT_EXIT_CANCELED
                                                    : RESULT_EXIT_UNKNOWN;
    out->duration_ms = (int64_t)(*left_us / 1000);
    return out;
}

static void set_steps(Plimsoll__V1__ProjectResult *out, const Plimsoll__V1__ProjectRun *request, guest_result_t *result,
                      const result_view_t *view)
{
    size_t count = result->step_count < request->n_steps ? result->step_count : request->n_steps;
    uint64_t left_us = view->given_us;

    out->steps = mem_alloc_array(count + 1, sizeof(Plimsoll__V1__StepResult *));
    for (size_t i = 0; i < count; ++i)
        out->steps[out->n_steps++] = step_result(request->steps[i], &result->steps[i], view, &left_us);
}

/* Those of a result that is whole: of one cut short, the last may be a part, and nobody said which were skipped. */
static void set_artifacts(Plimsoll__V1__ProjectResult *out, guest_result_t *result)
{
    out->artifacts = mem_alloc_array(result->artifact_count + 1, sizeof(Plimsoll__V1__Artifact *));
    for (size_t i = 0; i < result->artifact_count; ++i) {
        Plimsoll__V1__Artifact *artifact = mem_alloc(sizeof(*artifact));
        plimsoll__v1__artifact__init(artifact);
        artifact->path = text_of(result->artifacts[i].path);
        artifact->content.data = result->artifacts[i].content;
        artifact->content.len = result->artifacts[i].len;
        result->artifacts[i].content = NULL;
        result->artifacts[i].len = 0;
        out->artifacts[out->n_artifacts++] = artifact;
    }
    out->artifacts_truncated = result->is_artifacts_truncated;
}

/* The runner's own verdict: it knows whether a step had begun. */
static void timed_out_text(const guest_result_t *result, char text[DETAIL_MAX])
{
    if (result->step_count == 0)
        snprintf(text, DETAIL_MAX, "the run's time was over before its first step");
    else if (result->steps[result->step_count - 1].is_timed_out)
        snprintf(text, DETAIL_MAX, "step %zu used up the run's time", result->step_count);
    else
        snprintf(text, DETAIL_MAX, "the run's time was over before step %zu", result->step_count + 1);
}

/* Nobody gave a verdict. A step that has shown nothing yet may have begun all the same: with output, or its end, it
 * would be known. */
static void late_text(const guest_result_t *result, char text[DETAIL_MAX])
{
    size_t count = result->step_count;
    if (count > 0 && !result->steps[count - 1].has_ended)
        snprintf(text, DETAIL_MAX, "step %zu used up the run's time", count);
    else if (count > 0)
        snprintf(text, DETAIL_MAX, "the run's time was over, and nothing was heard of it after step %zu", count);
    else
        snprintf(text, DETAIL_MAX, "the run's time was over, and nothing was heard of its first step");
}

static void set_whole(Plimsoll__V1__ProjectResult *out, const guest_result_t *result, char text[DETAIL_MAX])
{
    switch (result->outcome) {
    case GUEST_COMPLETED:
        out->outcome = OUTCOME(COMPLETED);
        return;
    case GUEST_SETUP_FAILED:
        out->outcome = OUTCOME(SETUP_FAILED);
        snprintf(text, DETAIL_MAX, "%s", result->detail[0] != '\0' ? result->detail : "the files could not be written");
        return;
    case GUEST_TIMED_OUT:
        out->outcome = OUTCOME(TIMED_OUT);
        timed_out_text(result, text);
        return;
    case GUEST_RUNNER_FAILED:
        break;
    }
    out->outcome = OUTCOME(RUNNER_FAILED);
    snprintf(text, DETAIL_MAX, "the runner failed%s%.200s", result->detail[0] != '\0' ? ": " : "", result->detail);
}

static void set_outcome(Plimsoll__V1__ProjectResult *out, const guest_result_t *result, const result_view_t *view)
{
    char text[DETAIL_MAX] = "";
    switch (view->end) {
    case RESULT_WHOLE:
        set_whole(out, result, text);
        break;
    case RESULT_LATE:
        out->outcome = OUTCOME(TIMED_OUT);
        late_text(result, text);
        break;
    case RESULT_LOST:
        out->outcome = OUTCOME(PROTOCOL_ERROR);
        snprintf(text, DETAIL_MAX, "%s", view->detail);
        break;
    case RESULT_CANCELED:
        out->outcome = OUTCOME(PROTOCOL_ERROR);
        snprintf(text, DETAIL_MAX, "the run was stopped");
        break;
    }
    if (text[0] != '\0')
        out->outcome_detail = text_of(text);
}

Plimsoll__V1__RunResponse *result_project(const Plimsoll__V1__ProjectRun *request, guest_result_t *result,
                                          const result_view_t *view)
{
    Plimsoll__V1__RunResponse *response = response_create();
    Plimsoll__V1__ProjectResult *project = mem_alloc(sizeof(*project));
    plimsoll__v1__project_result__init(project);
    response->result_case = PLIMSOLL__V1__RUN_RESPONSE__RESULT_PROJECT;
    response->project = project;
    set_steps(project, request, result, view);
    if (view->end == RESULT_WHOLE)
        set_artifacts(project, result);
    set_outcome(project, result, view);
    return response;
}
