#include "cli/run_call.h"

#include <stdio.h>
#include <string.h>

#include "core/protojson.h"
#include "records/digest.h"
#include "records/tier.h"

bool trace_id_is_valid(const char *text)
{
    size_t len = strlen(text);
    return len >= 1 && len <= RUN_TRACE_ID_MAX &&
           strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-") == len;
}

const char *run_ask_check(const run_ask_t *ask)
{
    tier_t floor;
    if (!tier_parse_floor(ask->floor, &floor))
        return "the floor is none of process, container, kernel, vm";
    if (ask->project != NULL)
        return NULL;
    if (ask->code_len == 0)
        return "the code is empty";
    if (ask->code_len > RUN_CODE_MAX)
        return "the code is larger than 256 KiB";
    if (memchr(ask->code, '\0', ask->code_len) != NULL)
        return "the code contains a NUL byte";
    return utf8_is_valid(ask->code, ask->code_len) ? NULL : "the code is not valid UTF-8";
}

static void fill_request(Plimsoll__V1__RunRequest *request, Plimsoll__V1__JavaScriptRun *snippet, const run_ask_t *ask)
{
    plimsoll__v1__run_request__init(request);
    plimsoll__v1__java_script_run__init(snippet);
    /* The generated structures are not const-correct; nothing writes through these. */
    request->protocol = RUN_PROTOCOL;
    request->minimum_isolation = (char *)ask->floor;
    request->trace_id = (char *)ask->trace_id;
    request->timeout_ms = ask->timeout_ms;
    if (ask->project != NULL) {
        request->payload_case = PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_PROJECT;
        request->project = (Plimsoll__V1__ProjectRun *)ask->project;
        return;
    }
    snippet->code = (char *)ask->code;
    request->payload_case = PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_JAVASCRIPT;
    request->javascript = snippet;
}

static void copy_header(char out[EXCHANGE_VALUE_MAX + 1], const exchange_t *exchange, header_name_t name)
{
    const char *value = exchange_header(exchange, name);
    snprintf(out, EXCHANGE_VALUE_MAX + 1, "%s", value == NULL ? "" : value);
}

/* It ends up in a command a person may paste, so nothing but an ID passes. */
static void copy_run_id(run_answer_t *answer, const exchange_t *exchange)
{
    const char *value = exchange_header(exchange, HEADER_RUN_ID);
    if (value == NULL || !request_id_is_valid(value))
        return;
    memcpy(answer->run_id, value, sizeof(answer->run_id));
    if (exchange_is_bound(exchange, answer->request_id))
        memcpy(answer->failure.run_id, value, sizeof(answer->failure.run_id));
}

void run_call(const connection_t *connection, const run_ask_t *ask, const char *request_id, run_answer_t *answer)
{
    memset(answer, 0, sizeof(*answer));
    snprintf(answer->request_id, sizeof(answer->request_id), "%s", request_id);
    const char *why = run_ask_check(ask);
    if (why != NULL) {
        failure_local(&answer->failure, why);
        return;
    }
    Plimsoll__V1__RunRequest request;
    Plimsoll__V1__JavaScriptRun snippet;
    fill_request(&request, &snippet, ask);
    exchange_t exchange;
    Plimsoll__V1__RunResponse *response =
        (Plimsoll__V1__RunResponse *)call_unary(connection, "Run", request_id, &request.base,
                                                &plimsoll__v1__run_response__descriptor, &exchange, &answer->failure);
    /* The kind and the floor are part of it. */
    if (response != NULL)
        why = record_check(&request, response);
    if (why != NULL) {
        failure_does_not_hold(&answer->failure, why);
        plimsoll__v1__run_response__free_unpacked(response, NULL);
        response = NULL;
    }
    const char *replayed = exchange_header(&exchange, HEADER_REPLAYED);
    answer->replayed = replayed != NULL && strcmp(replayed, "1") == 0;
    copy_run_id(answer, &exchange);
    copy_header(answer->backend, &exchange, HEADER_BACKEND);
    copy_header(answer->passed_over, &exchange, HEADER_PASSED_OVER);
    answer->response = response;
    exchange_dispose(&exchange);
}

void run_answer_dispose(run_answer_t *answer)
{
    if (answer->response != NULL)
        plimsoll__v1__run_response__free_unpacked(answer->response, NULL);
    answer->response = NULL;
}
