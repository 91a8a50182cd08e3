/*
 * Protobuf bytes themselves (protobuf.dev/programming-guides/encoding): a walk over a message's fields, and
 * google.protobuf.Struct, which is written here and compared without being decoded into anything.
 */
#ifndef BACKENDS_OPENSHELL_WIRE_H
#define BACKENDS_OPENSHELL_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "core/buffer.h"

enum {
    WIRE_STRUCT_DEPTH_MAX = 8,   /* structs and lists in each other */
    WIRE_STRUCT_FIELDS_MAX = 64, /* entries of one struct that are compared; ours have at most 4 */
};

typedef enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 } wire_type_t;

typedef struct {
    const uint8_t *at;
    size_t left; /* not 0 when a walk has ended: what is left is no field */
} wire_t;

typedef struct {
    uint32_t number;
    wire_type_t type;
    uint64_t value;       /* WIRE_VARINT */
    const uint8_t *bytes; /* of the other types: their bytes */
    size_t len;
} wire_field_t;

/* The next field; false at the end, or at something that is none (groups included). */
bool wire_next(wire_t *wire, wire_field_t *field);

/* Appends the message's encoding. False when it does not fit. */
bool wire_pack(const ProtobufCMessage *message, buffer_t *out);

/* --- google.protobuf.Struct --- */

/* Appends one entry of a struct's `fields`: a key and its value. False when it does not fit. */
bool wire_struct_text(buffer_t *out, const char *key, const char *value);
bool wire_struct_number(buffer_t *out, const char *key, double value);
/* `value` is an encoded struct. */
bool wire_struct_struct(buffer_t *out, const char *key, const buffer_t *value);
/* `values` is an encoded ListValue. */
bool wire_struct_list(buffer_t *out, const char *key, const buffer_t *values);
/* Appends one value of a ListValue. */
bool wire_list_text(buffer_t *out, const char *value);
bool wire_list_struct(buffer_t *out, const buffer_t *value);

/* Whether two encoded structs say the same, whatever the order of their entries. False as well for what is none, is
 * deeper or longer than the limits above, names a key twice or holds a field that Struct does not have. */
bool wire_struct_equal(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len);

#endif
