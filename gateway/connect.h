/* Connect unary bodies (spec 1.3, 1.10): gzip, proto-JSON and binary protobuf in, either of them out. */
#ifndef GATEWAY_CONNECT_H
#define GATEWAY_CONNECT_H

#include <protobuf-c/protobuf-c.h>

#include "core/buffer.h"
#include "gateway/intake.h"
#include "gateway/refusal.h"

enum {
    DECODED_MEMORY_MAX = 64 * 1024 * 1024, /* what one message may take in memory: 8 MiB of wire can name far more small objects */
};

/* The message (freed with protobuf_c_message_free_unpacked(m, NULL)), or NULL with *refusal. `body` may be NULL when len is 0. */
ProtobufCMessage *connect_decode(lane_t *lane, intake_t *in, const ProtobufCMessageDescriptor *descriptor, const char *body,
                                 size_t len, refusal_t *refusal);
/* Appends the message in the codec; false when it would not fit the buffer. */
bool connect_encode(codec_t codec, const ProtobufCMessage *message, buffer_t *out);
const char *connect_media_type(codec_t codec);
/* What protobuf-c does not look at in a binary message: strings are valid UTF-8 without NUL. NULL, or what is wrong. Pure. */
const char *connect_wire_check(const ProtobufCMessageDescriptor *descriptor, const void *bytes, size_t len);

#endif
