/* One call to the gateway for `attest run` and `attest replay`, with a bound of its own on the whole exchange. */
#ifndef CLI_ATTEST_SEND_H
#define CLI_ATTEST_SEND_H

#include <stdint.h>
#include <protobuf-c/protobuf-c.h>

#include "cli/connection.h"
#include "core/buffer.h"

/* POSTs to a procedure of the service under a fresh request ID. The answer as a message of `type`
 * (protobuf_c_message_free_unpacked), or NULL with one line in `why` that says whether anything ran. */
ProtobufCMessage *attest_send(const connection_t *connection, uint32_t whole_ms, const char *procedure,
                              const ProtobufCMessage *request, const ProtobufCMessageDescriptor *type, buffer_t *why);

#endif
