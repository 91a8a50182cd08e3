#include "core/protowire.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/proto_layout.h"
#include "core/proto_text.h"
#include "core/protojson.h"

enum {
    MEMBER_COST = 40,          /* protobuf-c notes every member of a message before it reads them */
    FIELD_MAX = (1 << 29) - 1, /* largest field number */
    VARINT_MAX = 10,           /* bytes */
};

/* The way to what is being looked at. */
typedef struct step {
    const struct step *up;
    const ProtobufCFieldDescriptor *field;
    bool is_text; /* bytes that must be UTF-8 */
} step_t;

typedef struct {
    size_t memory; /* bytes that may still be allocated */
    char *error;
} scan_t;

static size_t path_write(const step_t *step, char *out, size_t size)
{
    size_t len = step->up != NULL ? path_write(step->up, out, size) : 0;
    if (step->field != NULL && len < size)
        len += (size_t)snprintf(out + len, size - len, "%s%s", len == 0 ? "" : ".", step->field->name);
    return len;
}

static bool fail(scan_t *s, const step_t *step, const char *why)
{
    char path[PROTOWIRE_ERROR_MAX / 2] = "";
    size_t len = path_write(step, path, sizeof(path));
    snprintf(s->error, PROTOWIRE_ERROR_MAX, "%s%s%s", path, len != 0 ? ": " : "", why);
    return false;
}

static bool charge(scan_t *s, const step_t *step, size_t size)
{
    if (size > s->memory)
        return fail(s, step, "the message needs more memory than its size allows");
    s->memory -= size;
    return true;
}

static bool take_varint(const uint8_t **p, const uint8_t *end, uint64_t *out)
{
    uint64_t value = 0;
    for (int i = 0; i < VARINT_MAX && *p != end; i++) {
        uint8_t c = *(*p)++;
        if (i == VARINT_MAX - 1 && c > 1)
            return false; /* past 64 bits */
        value |= (uint64_t)(c & 0x7f) << (7 * i);
        if (c < 0x80) {
            *out = value;
            return true;
        }
    }
    return false;
}

static const ProtobufCFieldDescriptor *field_of(const ProtobufCMessageDescriptor *descriptor, uint64_t number)
{
    for (unsigned i = 0; i < descriptor->n_fields; i++) {
        if (descriptor->fields[i].id == number)
            return &descriptor->fields[i];
    }
    return NULL;
}

static ProtobufCWireType wire_type_of(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED;
    case PROTOBUF_C_TYPE_DOUBLE:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return PROTOBUF_C_WIRE_TYPE_64BIT;
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32:
        return PROTOBUF_C_WIRE_TYPE_32BIT;
    default:
        return PROTOBUF_C_WIRE_TYPE_VARINT;
    }
}

/* Elements of a packed list; each costs its place. */
static bool scan_packed(scan_t *s, const step_t *at, const uint8_t *p, const uint8_t *end)
{
    size_t len = (size_t)(end - p), width, count = 0;
    switch (wire_type_of(at->field->type)) {
    case PROTOBUF_C_WIRE_TYPE_64BIT:
        width = 8;
        break;
    case PROTOBUF_C_WIRE_TYPE_32BIT:
        width = 4;
        break;
    default:
        for (uint64_t value; p != end; count++) {
            if (!take_varint(&p, end, &value))
                return fail(s, at, "a malformed number");
        }
        return charge(s, at, count * proto_value_size(at->field->type));
    }
    if (len % width != 0)
        return fail(s, at, "a list cut within a number");
    return charge(s, at, len);
}

static bool scan_message(scan_t *s, const step_t *at, const ProtobufCMessageDescriptor *descriptor, const uint8_t *p,
                         const uint8_t *end, int depth);

static bool scan_known(scan_t *s, const step_t *at, unsigned wire_type, const uint8_t *p, size_t len, int depth)
{
    const ProtobufCFieldDescriptor *field = at->field;
    bool is_list = field->label == PROTOBUF_C_LABEL_REPEATED;
    unsigned wanted = wire_type_of(field->type);
    if (is_list && wanted != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED && wire_type == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)
        return scan_packed(s, at, p, p + len);
    if (wire_type != wanted)
        return fail(s, at, "a value of another type");
    if (is_list && !charge(s, at, proto_value_size(field->type)))
        return false;
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
        if (memchr(p, '\0', len) != NULL)
            return fail(s, at, "a string with a NUL character");
        if (!utf8_is_valid(p, len))
            return fail(s, at, "invalid UTF-8 in a string");
        return charge(s, at, len + 1 + PROTO_ALLOCATION_COST);
    case PROTOBUF_C_TYPE_BYTES:
        if (at->is_text && !utf8_is_valid(p, len))
            return fail(s, at, "invalid UTF-8 in a string");
        return charge(s, at, len + PROTO_ALLOCATION_COST);
    case PROTOBUF_C_TYPE_MESSAGE:
        return scan_message(s, at, field->descriptor, p, p + len, depth + 1);
    default:
        return true;
    }
}

/* The content of a member, `len` bytes at *p, which is moved past it. */
static bool take_content(const uint8_t **p, const uint8_t *end, unsigned wire_type, const uint8_t **content,
                         size_t *len)
{
    uint64_t value;
    *content = *p;
    switch (wire_type) {
    case PROTOBUF_C_WIRE_TYPE_VARINT:
        if (!take_varint(p, end, &value))
            return false;
        *len = (size_t)(*p - *content);
        return true;
    case PROTOBUF_C_WIRE_TYPE_64BIT:
        *len = 8;
        break;
    case PROTOBUF_C_WIRE_TYPE_32BIT:
        *len = 4;
        break;
    case PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED:
        if (!take_varint(p, end, &value) || value > (uint64_t)(end - *p))
            return false;
        *content = *p;
        *len = (size_t)value;
        break;
    default: /* groups: nothing sends them, and protobuf-c has no reading for them */
        return false;
    }
    if (*len > (size_t)(end - *p))
        return false;
    *p += *len;
    return true;
}

static bool scan_message(scan_t *s, const step_t *at, const ProtobufCMessageDescriptor *descriptor, const uint8_t *p,
                         const uint8_t *end, int depth)
{
    if (depth > PROTOWIRE_DEPTH_MAX)
        return fail(s, at, "nested too deeply");
    if (!charge(s, at, descriptor->sizeof_message + PROTO_ALLOCATION_COST))
        return false;
    while (p != end) {
        uint64_t tag;
        if (!take_varint(&p, end, &tag) || tag >> 3 == 0 || tag >> 3 > FIELD_MAX)
            return fail(s, at, "a malformed field number");
        step_t member = {.up = at, .field = field_of(descriptor, tag >> 3)};
        member.is_text = member.field != NULL && proto_is_text(descriptor, member.field);
        const uint8_t *content;
        size_t len;
        if (!take_content(&p, end, tag & 7, &content, &len))
            return fail(s, &member, "a malformed or cut value");
        if (!charge(s, &member, MEMBER_COST))
            return false;
        if (member.field != NULL
                ? !scan_known(s, &member, tag & 7, content, len, depth)
                : !charge(s, &member, sizeof(ProtobufCMessageUnknownField) + len + PROTO_ALLOCATION_COST))
            return false;
    }
    return true;
}

ProtobufCMessage *protowire_parse(const ProtobufCMessageDescriptor *descriptor, const void *data, size_t len,
                                  char error[PROTOWIRE_ERROR_MAX])
{
    scan_t s = {.error = error};
    s.memory = PROTOWIRE_MEMORY_BASE + (len < SIZE_MAX / 16 ? len * PROTOWIRE_MEMORY_FACTOR : 0);
    const step_t root = {0};
    error[0] = '\0';
    if (len == 0)
        data = "";
    const uint8_t *bytes = data;
    if (!scan_message(&s, &root, descriptor, bytes, bytes + len, 1))
        return NULL;
    ProtobufCMessage *message = protobuf_c_message_unpack(descriptor, NULL, len, bytes);
    if (message == NULL)
        fail(&s, &root, "not a message of this type");
    return message;
}
