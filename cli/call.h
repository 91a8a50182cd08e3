/*
 * One call to the gateway, of either kind: a Connect unary procedure (spec sections 1.2 to 1.7) or a GET of the
 * gateway's own /v1 pages. Each carries a fresh or given request ID and believes only an answer that echoes it.
 */
#ifndef CLI_CALL_H
#define CLI_CALL_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>

#include "cli/connection.h"
#include "cli/exchange.h"
#include "cli/failure.h"

/* POSTs `request` to plimsoll.v1.SandboxService/<procedure>. The answer as a message of `answer_type`
 * (protobuf_c_message_free_unpacked), or NULL with `failure` filled. `exchange` is filled either way: exchange_dispose
 * it. */
ProtobufCMessage *call_unary(const connection_t *connection, const char *procedure, const char *request_id,
                             const ProtobufCMessage *request, const ProtobufCMessageDescriptor *answer_type,
                             exchange_t *exchange, failure_t *failure);

/* GETs a /v1 page, whole answer within CALL_GET_MS: a JSON object (json_decref), or NULL with `failure` filled. */
enum { CALL_GET_MS = 30 * 1000 };
json_t *call_get(const connection_t *connection, const char *path, failure_t *failure);

/* Whether a complete 200 answer may be looked into; false with `failure` filled otherwise. Pure. */
bool call_answer_is_usable(const exchange_t *exchange, const char *request_id, failure_t *failure);

#endif
