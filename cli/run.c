/* `plimsoll run`: one file through the gateway. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/input.h"
#include "cli/run_call.h"
#include "cli/run_options.h"
#include "cli/run_print.h"
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
        fprintf(stderr, "plimsoll: error: %s\n", message);
    }
    return status;
}

static int output_lost(void)
{
    fprintf(stderr, "plimsoll: error: it ran, but its output could not be written: %s\n", strerror(errno));
    return CLI_OUTPUT_LOST;
}

static int tell_as_json(const run_answer_t *answer)
{
    json_t *object = run_json(answer);
    bool told = json_print(object);
    json_decref(object);
    return told || answer->response == NULL ? CLI_OK : output_lost();
}

static int tell(const run_options_t *options, const run_answer_t *answer)
{
    int lost = CLI_OK;
    if (options->json)
        lost = tell_as_json(answer);
    else if (answer->response == NULL)
        failure_print(&answer->failure, answer->request_id, true);
    else if (!run_print_output(answer))
        lost = output_lost();
    if (answer->response == NULL)
        return failure_exit_code(&answer->failure);
    if (options->verbose)
        run_print_summary(answer);
    if (lost != CLI_OK)
        return lost;
    const Plimsoll__V1__JavaScriptResult *result = answer->response->javascript;
    return exit_code_of_run(result->exit_code, result->timed_out);
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
    int status;
    buffer_t code;
    buffer_init(&code, RUN_CODE_MAX + 1); /* one byte more, so that the request's own check names the limit */
    const char *why = input_read(options.file, &code);
    if (why != NULL) {
        snprintf(message, sizeof(message), "cannot read %.200s: %s", options.file, why);
        status = fail_unsent(&options, request_id, message, CLI_NO_INPUT);
        goto done;
    }
    run_ask_t ask = {.code = code.len == 0 ? "" : (const char *)code.base,
                     .code_len = code.len,
                     .floor = options.floor,
                     .trace_id = options.trace_id,
                     .timeout_ms = options.timeout_ms};
    run_answer_t answer;
    run_call(&connection, &ask, request_id, &answer);
    status = tell(&options, &answer);
    run_answer_dispose(&answer);
done:
    buffer_dispose(&code);
    connection_dispose(&connection);
    return status;
}
