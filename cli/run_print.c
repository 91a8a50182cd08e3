#include "cli/run_print.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/input.h"
#include "cli/terminal.h"
#include "core/protojson.h"
#include "records/project_outcome.h"

bool run_print_output(const run_answer_t *answer)
{
    const Plimsoll__V1__JavaScriptResult *result = answer->response->javascript;
    return output_write(STDOUT_FILENO, result->stdout.data, result->stdout.len) &&
           output_write(STDERR_FILENO, result->stderr.data, result->stderr.len);
}

/* ", stdout cut" and the like; a project's steps say it themselves. */
static const char *cut_of(const Plimsoll__V1__RunResponse *response)
{
    if (response->result_case != PLIMSOLL__V1__RUN_RESPONSE__RESULT_JAVASCRIPT)
        return "";
    bool out = response->javascript->stdout_truncated, err = response->javascript->stderr_truncated;
    return out && err ? ", stdout and stderr cut" : out ? ", stdout cut" : err ? ", stderr cut" : "";
}

static void print_end(const Plimsoll__V1__RunResponse *response)
{
    if (response->result_case == PLIMSOLL__V1__RUN_RESPONSE__RESULT_PROJECT)
        fprintf(stderr, "plimsoll: project %s, %zu steps ran", project_outcome_name(response->project->outcome),
                response->project->n_steps);
    else
        fprintf(stderr, "plimsoll: exit %" PRId32 "%s", response->javascript->exit_code,
                response->javascript->timed_out ? " (timed out)" : "");
}

void run_print_summary(const run_answer_t *answer)
{
    const Plimsoll__V1__RunResponse *response = answer->response;
    print_end(response);
    fprintf(stderr, " in %" PRId64 " ms by ", response->duration_ms);
    terminal_print(stderr, response->sandbox);
    fputs(" behind ", stderr);
    terminal_print(stderr, response->isolation);
    fprintf(stderr, " (evidence, not attestation)%s%s, record ", cut_of(response),
            answer->replayed ? ", replayed from the first answer" : "");
    terminal_print(stderr, response->record->record_sha256);
    fprintf(stderr, ", request %s\n", answer->request_id);
}

bool json_print(const json_t *value)
{
    return json_dumpf(value, stdout, JSON_COMPACT) == 0 && fputc('\n', stdout) != EOF && fflush(stdout) == 0;
}

json_t *json_of_message(const ProtobufCMessage *message)
{
    buffer_t text;
    buffer_init(&text, EXCHANGE_ANSWER_MAX);
    json_t *value = NULL;
    if (protojson_print(message, &text))
        value = json_loadb((const char *)text.base, text.len, JSON_ALLOW_NUL, NULL);
    buffer_dispose(&text);
    return value == NULL ? json_null() : value;
}

void json_set_bytes(json_t *object, const char *name, const ProtobufCBinaryData *bytes)
{
    char key[32];
    buffer_t encoded;
    buffer_init(&encoded, 2 * (size_t)EXCHANGE_ANSWER_MAX);
    base64_encode(&encoded, bytes->data, bytes->len, true);
    snprintf(key, sizeof(key), "%s_base64", name);
    json_object_set_new(object, key, json_stringn(encoded.len == 0 ? "" : (const char *)encoded.base, encoded.len));
    bool is_text = bytes->len == 0 || utf8_is_valid(bytes->data, bytes->len);
    const char *start = bytes->len == 0 ? "" : (const char *)bytes->data;
    json_object_set_new(object, name, is_text ? json_stringn(start, bytes->len) : json_null());
    buffer_dispose(&encoded);
}

static void set_snippet(json_t *object, const Plimsoll__V1__JavaScriptResult *result)
{
    json_object_set_new(object, "exit_code", json_integer(result->exit_code));
    json_object_set_new(object, "timed_out", json_boolean(result->timed_out));
    json_set_bytes(object, "stdout", &result->stdout);
    json_object_set_new(object, "stdout_truncated", json_boolean(result->stdout_truncated));
    json_set_bytes(object, "stderr", &result->stderr);
    json_object_set_new(object, "stderr_truncated", json_boolean(result->stderr_truncated));
}

static json_t *text_or_null(const char *text)
{
    return text == NULL || text[0] == '\0' ? json_null() : json_string(text);
}

static void set_answer(json_t *object, const run_answer_t *answer)
{
    const Plimsoll__V1__RunResponse *response = answer->response;
    if (response->result_case == PLIMSOLL__V1__RUN_RESPONSE__RESULT_JAVASCRIPT)
        set_snippet(object, response->javascript);
    json_object_set_new(object, "provider", text_or_null(response->sandbox));
    json_object_set_new(object, "isolation", text_or_null(response->isolation));
    json_object_set_new(object, "isolation_is", json_string("evidence, not attestation"));
    json_object_set_new(object, "environment", text_or_null(response->environment));
    json_object_set_new(object, "software_identity", text_or_null(response->software_identity));
    json_object_set_new(object, "instance", text_or_null(response->instance));
    json_object_set_new(object, "duration_ms", json_integer(response->duration_ms));
    json_object_set_new(object, "replayed", json_boolean(answer->replayed));
    json_object_set_new(object, "record", json_of_message(&response->record->base));
    json_object_set_new(object, "error", json_null());
}

json_t *run_json(const run_answer_t *answer)
{
    json_t *object = json_object();
    const char *verdict = "answered";
    if (answer->response == NULL)
        verdict = answer->failure.kind == FAILURE_REFUSED ? "refused" : "unknown";
    json_object_set_new(object, "verdict", json_string(verdict));
    json_object_set_new(object, "request_id", json_string(answer->request_id));
    json_object_set_new(object, "run_id", text_or_null(answer->run_id));
    json_object_set_new(object, "backend", text_or_null(answer->backend));
    json_object_set_new(object, "passed_over", text_or_null(answer->passed_over));
    if (answer->response != NULL) {
        set_answer(object, answer);
        return object;
    }
    json_object_set_new(object, "exit_code", json_null());
    json_object_set_new(object, "timed_out", json_false());
    json_object_set_new(object, "error", failure_json(&answer->failure, answer->request_id));
    return object;
}
