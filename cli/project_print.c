#include "cli/project_print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/exit_codes.h"
#include "cli/input.h"
#include "cli/run_print.h"
#include "cli/terminal.h"
#include "core/sha256.h"
#include "records/project_outcome.h"

#define OUTCOME(name) PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_##name

static const char *cut_text(bool out, bool err)
{
    return out && err ? ", stdout and stderr cut" : out ? ", stdout cut" : err ? ", stderr cut" : "";
}

static void print_step(const project_told_t *told, size_t i)
{
    const Plimsoll__V1__StepResult *step = told->result->steps[i];
    fprintf(stderr, "plimsoll: step %zu of %zu, exit %" PRId32 "%s, %" PRId64 " ms%s: ", i + 1, told->step_count,
            step->exit_code, step->timed_out ? " (timed out)" : "", step->duration_ms,
            cut_text(step->stdout_truncated, step->stderr_truncated));
    terminal_print(stderr, step->command);
    fputc('\n', stderr);
}

static void print_rest(const project_told_t *told)
{
    const Plimsoll__V1__ProjectResult *r = told->result;
    if (r->n_steps < told->step_count)
        fprintf(stderr, "plimsoll: %zu of %zu steps did not run\n", told->step_count - r->n_steps, told->step_count);
    if (r->outcome == OUTCOME(COMPLETED))
        return;
    fprintf(stderr, "plimsoll: the run ended as %s", project_outcome_name(r->outcome));
    if (r->outcome_detail[0] != '\0')
        fputs(": ", stderr);
    terminal_print(stderr, r->outcome_detail);
    fputc('\n', stderr);
}

bool project_print_steps(const project_told_t *told)
{
    for (size_t i = 0; i < told->result->n_steps; i++) {
        const Plimsoll__V1__StepResult *step = told->result->steps[i];
        print_step(told, i);
        if (!output_write(STDOUT_FILENO, step->stdout.data, step->stdout.len) ||
            !output_write(STDERR_FILENO, step->stderr.data, step->stderr.len))
            return false;
        if (step->stderr.len != 0 && step->stderr.data[step->stderr.len - 1] != '\n')
            fputc('\n', stderr); /* the next line of ours begins one */
    }
    print_rest(told);
    return true;
}

static const Plimsoll__V1__Artifact *find(const Plimsoll__V1__ProjectResult *result, const char *path)
{
    for (size_t i = 0; i < result->n_artifacts; i++)
        if (strcmp(result->artifacts[i]->path, path) == 0)
            return result->artifacts[i];
    return NULL;
}

void project_print_artifacts(const project_told_t *told)
{
    for (size_t i = 0; i < told->asked_count; i++) {
        const Plimsoll__V1__Artifact *artifact = find(told->result, told->asked[i]);
        fputs("plimsoll: artifact ", stderr);
        terminal_print(stderr, told->asked[i]);
        if (artifact == NULL)
            fprintf(stderr, " %s\n",
                    told->result->artifacts_truncated ? "is not there, or was left out for want of room"
                                                      : "is not there");
        else if (told->out == NULL)
            fprintf(stderr, ", %zu bytes, not written (no --out)\n", artifact->content.len);
        else {
            fprintf(stderr, ", %zu bytes, written below ", artifact->content.len);
            terminal_print(stderr, told->out);
            fputc('\n', stderr);
        }
    }
}

static json_t *step_json(const Plimsoll__V1__StepResult *step)
{
    json_t *object = json_object();
    json_object_set_new(object, "command", json_string(step->command));
    json_object_set_new(object, "exit_code", json_integer(step->exit_code));
    json_object_set_new(object, "timed_out", json_boolean(step->timed_out));
    json_object_set_new(object, "duration_ms", json_integer(step->duration_ms));
    json_set_bytes(object, "stdout", &step->stdout);
    json_object_set_new(object, "stdout_truncated", json_boolean(step->stdout_truncated));
    json_set_bytes(object, "stderr", &step->stderr);
    json_object_set_new(object, "stderr_truncated", json_boolean(step->stderr_truncated));
    return object;
}

static json_t *artifact_json(const Plimsoll__V1__Artifact *artifact, const char *out)
{
    char digest[SHA256_HEX + 1];
    json_t *object = json_object();
    sha256_hex(artifact->content.len != 0 ? (const void *)artifact->content.data : "", artifact->content.len, digest);
    json_object_set_new(object, "path", json_string(artifact->path));
    json_object_set_new(object, "bytes", json_integer((json_int_t)artifact->content.len));
    json_object_set_new(object, "sha256", json_string(digest));
    json_object_set_new(object, "written", json_boolean(out != NULL));
    if (out == NULL)
        json_set_bytes(object, "content", &artifact->content);
    return object;
}

void project_set_json(json_t *object, const project_told_t *told)
{
    const Plimsoll__V1__ProjectResult *r = told->result;
    json_t *steps = json_array(), *artifacts = json_array(), *missing = json_array();
    for (size_t i = 0; i < r->n_steps; i++)
        json_array_append_new(steps, step_json(r->steps[i]));
    for (size_t i = 0; i < r->n_artifacts; i++)
        json_array_append_new(artifacts, artifact_json(r->artifacts[i], told->out));
    for (size_t i = 0; i < told->asked_count; i++)
        if (find(r, told->asked[i]) == NULL)
            json_array_append_new(missing, json_string(told->asked[i]));
    json_object_set_new(object, "exit_code", json_integer(project_exit_code(r)));
    json_object_set_new(object, "timed_out", json_boolean(r->outcome == OUTCOME(TIMED_OUT)));
    json_object_set_new(object, "outcome", json_string(project_outcome_name(r->outcome)));
    json_object_set_new(object, "outcome_detail", json_string(r->outcome_detail));
    json_object_set_new(object, "steps", steps);
    json_object_set_new(object, "artifacts", artifacts);
    json_object_set_new(object, "artifacts_missing", missing);
    json_object_set_new(object, "artifacts_truncated", json_boolean(r->artifacts_truncated));
}

int project_exit_status(const Plimsoll__V1__ProjectResult *result)
{
    if (result->outcome != OUTCOME(COMPLETED) && result->outcome != OUTCOME(TIMED_OUT))
        return CLI_MAY_HAVE_RUN; /* no verdict of the project's own */
    return exit_code_of_run(project_exit_code(result), result->outcome == OUTCOME(TIMED_OUT));
}
