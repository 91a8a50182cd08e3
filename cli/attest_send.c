#include "cli/attest_send.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/call.h"
#include "core/protojson.h"
#include "core/random.h"

enum { BODY_MAX = 8 * 1024 * 1024 }; /* protocol section 1.6: the gateway takes no more */

static void tell(const failure_t *failure, const char *request_id, buffer_t *why)
{
    buffer_t next;
    buffer_init(&next, 1024);
    failure_next(failure, request_id, &next);
    buffer_printf(why, "%s: %s; ", failure->code, failure->message);
    if (failure->mark != NULL)
        buffer_printf(why, "not dispatched (%s): ", failure->mark);
    buffer_append(why, next.base, next.len);
    buffer_dispose(&next);
}

ProtobufCMessage *attest_send(const connection_t *connection, uint32_t whole_ms, const char *procedure,
                              const ProtobufCMessage *request, const ProtobufCMessageDescriptor *type, buffer_t *why)
{
    ProtobufCMessage *answer = NULL;
    failure_t failure = {0};
    exchange_t exchange = {0};
    char path[96], request_id[REQUEST_ID_HEX + 1], error[PROTOJSON_ERROR_MAX] = "", malformed[PROTOJSON_ERROR_MAX + 64];
    buffer_t body;
    buffer_init(&body, BODY_MAX);
    random_hex(request_id, REQUEST_ID_HEX / 2);
    snprintf(path, sizeof(path), "/plimsoll.v1.SandboxService/%s", procedure);
    char *url = connection_url(connection, path);
    if (!protojson_print(request, &body)) {
        failure_local(&failure, "the request is larger than 8 MiB");
        tell(&failure, request_id, why);
        goto done;
    }
    exchange_request_t asked = {.url = url,
                                .token = connection->token,
                                .ca_file = connection->ca_file,
                                .request_id = request_id,
                                .body = body.base,
                                .body_len = body.len,
                                .whole_ms = whole_ms};
    exchange_perform(&asked, &exchange);
    if (call_answer_is_usable(&exchange, request_id, &failure)) {
        answer = protojson_parse(type, exchange.body.base, exchange.body.len, error);
        if (answer == NULL) {
            snprintf(malformed, sizeof(malformed), "the answer is malformed: %s", error);
            failure_does_not_hold(&failure, malformed);
        }
    }
    if (answer == NULL)
        tell(&failure, request_id, why);
done:
    exchange_dispose(&exchange);
    free(url);
    buffer_dispose(&body);
    return answer;
}
