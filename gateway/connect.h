/* Connect unary bodies (spec 1.3, 1.10): gzip, proto-JSON and binary protobuf in, either of them out. */
#ifndef GATEWAY_CONNECT_H
#define GATEWAY_CONNECT_H

#include <protobuf-c/protobuf-c.h>

#include "core/buffer.h"
#include "gateway/intake.h"
#include "gateway/refusal.h"

/* The message (freed with protobuf_c_message_free_unpacked(m, NULL)), or NULL with *refusal. `body` may be NULL when
 * len is 0. */
ProtobufCMessage *connect_decode(lane_t *lane, intake_t *in, const ProtobufCMessageDescriptor *descriptor,
                                 const char *body, size_t len, refusal_t *refusal);
/* Appends the message in the codec; false when it would not fit the buffer. */
bool connect_encode(codec_t codec, const ProtobufCMessage *message, buffer_t *out);
const char *connect_media_type(codec_t codec);
#endif
