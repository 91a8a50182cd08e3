/* Where protobuf-c keeps things in a message's C structure, for the code that walks descriptors. */
#ifndef CORE_PROTO_LAYOUT_H
#define CORE_PROTO_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <protobuf-c/protobuf-c.h>

enum { PROTO_ALLOCATION_COST = 16 }; /* what the allocator keeps beside each piece, for estimates of memory */

/* Bytes of one value of the type: a singular field, or an element of a list. */
size_t proto_value_size(ProtobufCType type);
bool proto_is_in_oneof(const ProtobufCFieldDescriptor *field);

#endif
