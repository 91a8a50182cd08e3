#include "cli/call.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/mem.h"
#include "core/protojson.h"
#include "core/random.h"

enum { CALL_BODY_MAX = 8 * 1024 * 1024 }; /* spec section 1.6: the gateway takes no more */

bool call_answer_is_usable(const exchange_t *exchange, const char *request_id, failure_t *failure)
{
    bool is_whole = exchange->outcome == EXCHANGE_DONE;
    if (exchange->outcome == EXCHANGE_TOO_LARGE && exchange->status == 200) {
        failure_does_not_hold(failure, exchange->reason);
        return false;
    }
    if (!is_whole || exchange->status != 200) {
        failure_decode(failure, exchange, request_id);
        return false;
    }
    if (!exchange_is_bound(exchange, request_id)) {
        failure_does_not_hold(failure, "the answer does not carry the request's Plimsoll-Request-Id exactly once");
        return false;
    }
    if (!exchange_is_json(exchange)) {
        failure_does_not_hold(failure, "the answer is not application/json");
        return false;
    }
    return true;
}

ProtobufCMessage *call_unary(const connection_t *connection, const char *procedure, const char *request_id,
                             const ProtobufCMessage *request, const ProtobufCMessageDescriptor *answer_type,
                             exchange_t *exchange, failure_t *failure)
{
    ProtobufCMessage *answer = NULL;
    char path[96], error[PROTOJSON_ERROR_MAX] = "", why[PROTOJSON_ERROR_MAX + 64];
    buffer_t body;
    buffer_init(&body, CALL_BODY_MAX);
    snprintf(path, sizeof(path), "/plimsoll.v1.SandboxService/%s", procedure);
    char *url = connection_url(connection, path);
    *exchange = (exchange_t){0};
    if (!protojson_print(request, &body)) {
        failure_local(failure, "the request is larger than 8 MiB");
        goto done;
    }
    exchange_request_t asked = {.url = url,
                                .token = connection->token,
                                .ca_file = connection->ca_file,
                                .request_id = request_id,
                                .body = body.base,
                                .body_len = body.len};
    exchange_perform(&asked, exchange);
    if (!call_answer_is_usable(exchange, request_id, failure))
        goto done;
    answer = protojson_parse(answer_type, exchange->body.base, exchange->body.len, error);
    if (answer == NULL) {
        snprintf(why, sizeof(why), "the answer is malformed: %s", error);
        failure_does_not_hold(failure, why);
    }
done:
    free(url);
    buffer_dispose(&body);
    return answer;
}

json_t *call_get(const connection_t *connection, const char *path, failure_t *failure)
{
    char request_id[REQUEST_ID_HEX + 1];
    random_hex(request_id, REQUEST_ID_HEX / 2);
    char *url = connection_url(connection, path);
    exchange_t exchange;
    exchange_request_t asked = {.url = url,
                                .token = connection->token,
                                .ca_file = connection->ca_file,
                                .request_id = request_id,
                                .whole_ms = CALL_GET_MS};
    exchange_perform(&asked, &exchange);
    json_t *page = NULL;
    if (call_answer_is_usable(&exchange, request_id, failure)) {
        if (exchange.body.len > 0)
            page = json_loadb((const char *)exchange.body.base, exchange.body.len,
                              JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
        if (!json_is_object(page)) {
            json_decref(page);
            page = NULL;
            failure_does_not_hold(failure, "the answer is not a JSON object");
        }
    }
    exchange_dispose(&exchange);
    free(url);
    return page;
}
