/*
 * The proto3 JSON form of any message, driven by protobuf-c descriptors: knows no message by name. Reading follows
 * spec section 1.10: lowerCamelCase and snake_case names, 64-bit integers as strings or numbers, 32-bit as numbers or
 * strings, base64 standard or URL-safe, padded or not, enums by name or number, "NaN"/"Infinity"/"-Infinity", negative
 * zero kept (-0 and -0.0), null = absent, unknown members ignored. Duplicate members, two members of one oneof, both
 * spellings of one field, invalid UTF-8, lone surrogates, a NUL in a text field (it would be lost in a C string; the
 * texts of core/proto_text.h may hold it), nesting past PROTOJSON_DEPTH_MAX, trailing bytes and an empty body are
 * malformed. Members with unknown names are checked for their syntax only.
 */
#ifndef CORE_PROTOJSON_H
#define CORE_PROTOJSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <protobuf-c/protobuf-c.h>

#include "core/buffer.h"
#include "core/utf8.h"

enum {
    PROTOJSON_DEPTH_MAX = 64, /* nesting of objects and arrays, unknown members included */
    PROTOJSON_ERROR_MAX = 256,
    /* What one message may take in memory: an empty object of 3 bytes becomes a structure of some 64, so an unbounded
     * reading of a body of 8 MiB could take 170 MiB. No valid request comes near: 100 000 rows of one value take 14
     * MiB. */
    PROTOJSON_MEMORY_BASE = 16 * 1024 * 1024,
    PROTOJSON_MEMORY_FACTOR =
        8, /* times the body's bytes, added to the base: a list of one-digit doubles takes 8 (2 bytes: 16) */
};

/* The message (free with protobuf_c_message_free_unpacked(m, NULL)), or NULL with a text naming the field in `error`.
 * The text never repeats more than 64 bytes of input. */
ProtobufCMessage *protojson_parse(const ProtobufCMessageDescriptor *descriptor, const void *json, size_t len,
                                  char error[PROTOJSON_ERROR_MAX]);
/* Appends the JSON form: lowerCamelCase, zero values and empty lists omitted, set messages always present, doubles in
 * the shortest form that round-trips, -0 kept. Strings must be valid UTF-8. false when the buffer's limit was hit. */
bool protojson_print(const ProtobufCMessage *message, buffer_t *out);
/* Appends `len` bytes as a quoted JSON string. Invalid UTF-8 becomes U+FFFD. */
bool protojson_print_string(buffer_t *out, const char *s, size_t len);

/* Standard base64. encode appends with or without padding; decode takes either alphabet, padded or not; NULL =
 * malformed, else malloc'ed bytes (at least one byte allocated) with *out_len set. */
bool base64_encode(buffer_t *out, const void *data, size_t len, bool padded);
uint8_t *base64_decode(const char *text, size_t len, size_t *out_len);

#endif
