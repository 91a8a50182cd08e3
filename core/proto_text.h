/* Texts that may hold U+0000. protobuf-c keeps a proto string as a C string, which ends at its first NUL; such a field
 * is declared as bytes in our schema and named here, and both codecs treat it as the text it is: printed and read as a
 * JSON string, UTF-8 checked. On the wire the two types are the same. */
#ifndef CORE_PROTO_TEXT_H
#define CORE_PROTO_TEXT_H

#include <stdbool.h>
#include <protobuf-c/protobuf-c.h>

bool proto_is_text(const ProtobufCMessageDescriptor *descriptor, const ProtobufCFieldDescriptor *field);

#endif
