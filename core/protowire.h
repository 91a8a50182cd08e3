/*
 * Binary protobuf from a stranger. protobuf-c's own reader cuts a text at its first NUL, takes any bytes as text, keeps
 * unknown fields, and lets an empty message of two bytes become some hundred; this looks over the bytes first, refuses
 * what would be lost or would grow past its bound, and only then has protobuf-c read them. Spec section 1.10, binary
 * form.
 */
#ifndef CORE_PROTOWIRE_H
#define CORE_PROTOWIRE_H

#include <stddef.h>
#include <protobuf-c/protobuf-c.h>

enum {
    PROTOWIRE_ERROR_MAX = 256,
    PROTOWIRE_DEPTH_MAX = 64, /* messages in messages */
    /* As for the JSON form: no valid request comes near (100 000 rows of one value take 15 MiB here). */
    PROTOWIRE_MEMORY_BASE = 16 * 1024 * 1024,
    PROTOWIRE_MEMORY_FACTOR = 8, /* times the body's bytes, added to the base */
};

/* The message (free with protobuf_c_message_free_unpacked(m, NULL)), or NULL with a text naming the field in `error`;
 * the text repeats no input. No bytes are a valid empty message. */
ProtobufCMessage *protowire_parse(const ProtobufCMessageDescriptor *descriptor, const void *data, size_t len,
                                  char error[PROTOWIRE_ERROR_MAX]);

#endif
