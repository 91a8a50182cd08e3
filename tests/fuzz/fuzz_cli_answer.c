/*
 * Whatever a gateway may send the command: a status, header lines and a body, decoded as an error, as a run's answer
 * and as a stored run. Input: two bytes of status, header lines up to an empty one, the body.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cli/call.h"
#include "cli/failure.h"
#include "cli/stored_run.h"
#include "core/protojson.h"
#include "records/digest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ID "0123456789abcdef0123456789abcdef"

static size_t take_head(exchange_t *exchange, const char *text, size_t len)
{
    size_t at = 0;
    while (at < len) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t line = end == NULL ? len - at : (size_t)(end - text) - at;
        exchange_take_header(exchange, text + at, line);
        at += line + (end != NULL);
        if (line == 0)
            break;
    }
    return at;
}

static void check_failure(const failure_t *failure)
{
    bool refused = failure->kind == FAILURE_REFUSED;
    /* A mark and only a mark says that nothing ran, and nothing passes as a success. */
    if (refused != (failure->mark != NULL) || failure->kind == FAILURE_NONE || failure_exit_code(failure) == 0)
        abort();
    for (const char *c = failure->message; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            abort();
    json_decref(failure_json(failure, ID));
}

static void look_into(const exchange_t *exchange)
{
    char error[PROTOJSON_ERROR_MAX];
    const void *body = exchange->body.len == 0 ? "" : (const void *)exchange->body.base;
    ProtobufCMessage *answer =
        protojson_parse(&plimsoll__v1__run_response__descriptor, body, exchange->body.len, error);
    if (answer != NULL) {
        Plimsoll__V1__RunRequest request;
        plimsoll__v1__run_request__init(&request);
        request.protocol = 4;
        record_check(&request, (const Plimsoll__V1__RunResponse *)answer);
        protobuf_c_message_free_unpacked(answer, NULL);
    }
    json_t *run = json_loadb(body, exchange->body.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    if (run != NULL)
        stored_run_check(run);
    json_decref(run);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    exchange_t exchange = {.outcome = EXCHANGE_DONE, .status = (data[0] << 8 | data[1]) % 1000};
    buffer_init(&exchange.body, EXCHANGE_ANSWER_MAX);
    size_t head = take_head(&exchange, (const char *)data + 2, size - 2);
    buffer_append(&exchange.body, data + 2 + head, size - 2 - head);
    failure_t failure;
    if (!call_answer_is_usable(&exchange, ID, &failure))
        check_failure(&failure);
    look_into(&exchange);
    exchange_dispose(&exchange);
    return 0;
}
