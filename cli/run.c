/* `plimsoll run`: one file or one project through the gateway. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/artifacts.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/input.h"
#include "cli/project.h"
#include "cli/project_print.h"
#include "cli/run_call.h"
#include "cli/run_options.h"
#include "cli/run_print.h"
#include "cli/terminal.h"
#include "core/random.h"

/* Something of this machine stopped the run before it was asked for. */
static int fail_unsent(const run_options_t *options, const char *request_id, const char *message, int status)
{
    run_answer_t answer = {0};
    snprintf(answer.request_id, sizeof(answer.request_id), "%s", request_id);
    failure_local(&answer.failure, message);
    if (options->json) {
        json_t *object = run_json(&answer);
        json_print(object);
        json_decref(object);
    } else {
        fputs("plimsoll: error: ", stderr);
        terminal_print(stderr, message);
        fputc('\n', stderr);
    }
    return status;
}

static int output_lost(void)
{
    fprintf(stderr, "plimsoll: error: it ran, but its output could not be written: %s\n", strerror(errno));
    return CLI_OUTPUT_LOST;
}

static project_told_t told_of(const run_options_t *options, const run_answer_t *answer)
{
    return (project_told_t){.result = answer->response->project,
                            .asked = options->artifacts,
                            .asked_count = options->artifact_count,
                            .step_count = options->step_count,
                            .out = options->out};
}

static int tell_as_json(const run_options_t *options, const run_answer_t *answer)
{
    json_t *object = run_json(answer);
    if (answer->response != NULL && options->project != NULL) {
        project_told_t told = told_of(options, answer);
        project_set_json(object, &told);
    }
    bool is_told = json_print(object);
    json_decref(object);
    return is_told || answer->response == NULL ? CLI_OK : output_lost();
}

static int tell_for_people(const run_options_t *options, const run_answer_t *answer)
{
    if (answer->response == NULL) {
        failure_print(&answer->failure, answer->request_id, true);
        return CLI_OK;
    }
    if (options->project == NULL)
        return run_print_output(answer) ? CLI_OK : output_lost();
    project_told_t told = told_of(options, answer);
    if (!project_print_steps(&told))
        return output_lost();
    project_print_artifacts(&told);
    return CLI_OK;
}

static int status_of(const run_answer_t *answer)
{
    if (answer->response->result_case == PLIMSOLL__V1__RUN_RESPONSE__RESULT_PROJECT)
        return project_exit_status(answer->response->project);
    return exit_code_of_run(answer->response->javascript->exit_code, answer->response->javascript->timed_out);
}

static int tell(const run_options_t *options, const run_answer_t *answer)
{
    int lost = options->json ? tell_as_json(options, answer) : tell_for_people(options, answer);
    if (answer->response == NULL)
        return failure_exit_code(&answer->failure);
    if (options->verbose)
        run_print_summary(answer);
    return lost != CLI_OK ? lost : status_of(answer);
}

/* What was brought back is on this machine before anybody is told so. */
static int keep_artifacts(const run_options_t *options, run_answer_t *answer)
{
    char why[ARTIFACTS_ERROR_MAX];
    if (answer->response == NULL || options->project == NULL)
        return CLI_OK;
    const char *wrong = artifacts_check(answer->response->project, options->artifacts, options->artifact_count);
    if (wrong != NULL) {
        failure_does_not_hold(&answer->failure, wrong);
        run_answer_dispose(answer);
        return CLI_OK;
    }
    if (options->out == NULL || artifacts_write(answer->response->project, options->out, why))
        return CLI_OK;
    fprintf(stderr, "plimsoll: error: it ran, but an artifact could not be written: %s\n", why);
    return CLI_OUTPUT_LOST;
}

static int ask(const run_options_t *options, const connection_t *connection, run_ask_t *subject, const char *request_id)
{
    run_answer_t answer;
    subject->floor = options->floor;
    subject->trace_id = options->trace_id;
    subject->timeout_ms = options->timeout_ms;
    run_call(connection, subject, request_id, &answer);
    int lost = keep_artifacts(options, &answer);
    run_options_t told = *options;
    if (lost != CLI_OK)
        told.out = NULL; /* nothing is said to be written that may not be */
    int status = tell(&told, &answer);
    run_answer_dispose(&answer);
    return lost != CLI_OK ? lost : status;
}

static int run_file(const run_options_t *options, const connection_t *connection, const char *request_id)
{
    char message[CONNECTION_ERROR_MAX];
    int status;
    buffer_t code;
    buffer_init(&code, RUN_CODE_MAX + 1); /* one byte more, so that the request's own check names the limit */
    const char *why = input_read(options->file, &code);
    if (why != NULL) {
        snprintf(message, sizeof(message), "cannot read %.200s: %s", options->file, why);
        status = fail_unsent(options, request_id, message, CLI_NO_INPUT);
    } else {
        run_ask_t subject = {.code = code.len == 0 ? "" : (const char *)code.base, .code_len = code.len};
        status = ask(options, connection, &subject, request_id);
    }
    buffer_dispose(&code);
    return status;
}

static int run_project(const run_options_t *options, const connection_t *connection, const char *request_id)
{
    char why[PROJECT_ERROR_MAX], message[PROJECT_ERROR_MAX + 320];
    project_t project;
    if (!project_read(options->project, &project, why)) {
        snprintf(message, sizeof(message), "cannot take %.255s as a project: %s", options->project, why);
        return fail_unsent(options, request_id, message, CLI_NO_INPUT);
    }
    Plimsoll__V1__ProjectRun run = PLIMSOLL__V1__PROJECT_RUN__INIT;
    /* The generated structures are not const-correct; nothing writes through these. */
    run.files = project.files;
    run.n_files = project.count;
    run.steps = (char **)options->steps;
    run.n_steps = options->step_count;
    run.artifacts = (char **)options->artifacts;
    run.n_artifacts = options->artifact_count;
    run_ask_t subject = {.project = &run};
    int status = ask(options, connection, &subject, request_id);
    project_dispose(&project);
    return status;
}

int command_run(int argc, char **argv)
{
    run_options_t options;
    if (!run_options_parse(argc, argv, &options))
        return CLI_USAGE;
    if (options.help)
        return print_help(RUN_HELP);

    char request_id[REQUEST_ID_HEX + 1], message[CONNECTION_ERROR_MAX];
    if (options.request_id != NULL)
        snprintf(request_id, sizeof(request_id), "%s", options.request_id);
    else
        random_hex(request_id, REQUEST_ID_HEX / 2);

    connection_t connection;
    if (!connection_open(&options.connection, &connection, message))
        return fail_unsent(&options, request_id, message, CLI_CONFIG);
    int status = options.project != NULL ? run_project(&options, &connection, request_id)
                                         : run_file(&options, &connection, request_id);
    connection_dispose(&connection);
    return status;
}
