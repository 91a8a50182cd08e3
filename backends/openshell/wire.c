#include "backends/openshell/wire.h"

#include <string.h>

enum { VARINT_BYTES_MAX = 10, FIELD_NUMBER_MAX = (1 << 29) - 1 };

/* google/protobuf/struct.proto */
enum {
    STRUCT_FIELDS = 1,
    ENTRY_KEY = 1,
    ENTRY_VALUE = 2,
    VALUE_NUMBER = 2,
    VALUE_STRING = 3,
    VALUE_STRUCT = 5,
    VALUE_LIST = 6,
    LIST_VALUES = 1,
};

/* --- fields --- */

static bool take_varint(wire_t *wire, uint64_t *value)
{
    *value = 0;
    for (size_t i = 0; i < VARINT_BYTES_MAX && i < wire->left; ++i) {
        uint8_t byte = wire->at[i];
        if (i == VARINT_BYTES_MAX - 1 && byte > 1)
            return false;
        *value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if ((byte & 0x80) == 0) {
            wire->at += i + 1;
            wire->left -= i + 1;
            return true;
        }
    }
    return false;
}

static bool take_bytes(wire_t *wire, uint64_t len, wire_field_t *field)
{
    if (len > wire->left)
        return false;
    field->bytes = wire->at;
    field->len = (size_t)len;
    wire->at += len;
    wire->left -= (size_t)len;
    return true;
}

static bool take_field(wire_t *wire, wire_field_t *field)
{
    uint64_t tag, len;
    if (!take_varint(wire, &tag) || tag >> 3 == 0 || tag >> 3 > FIELD_NUMBER_MAX)
        return false;
    field->number = (uint32_t)(tag >> 3);
    field->type = (wire_type_t)(tag & 7);
    switch (field->type) {
    case WIRE_VARINT:
        return take_varint(wire, &field->value);
    case WIRE_FIXED64:
        return take_bytes(wire, 8, field);
    case WIRE_FIXED32:
        return take_bytes(wire, 4, field);
    case WIRE_BYTES:
        return take_varint(wire, &len) && take_bytes(wire, len, field);
    }
    return false;
}

bool wire_next(wire_t *wire, wire_field_t *field)
{
    wire_t before = *wire;
    *field = (wire_field_t){0};
    if (wire->left != 0 && take_field(wire, field))
        return true;
    *wire = before;
    return false;
}

bool wire_pack(const ProtobufCMessage *message, buffer_t *out)
{
    size_t len = protobuf_c_message_get_packed_size(message);
    uint8_t *at = buffer_reserve(out, len);
    if (at == NULL)
        return false;
    protobuf_c_message_pack(message, at);
    buffer_commit(out, len);
    return true;
}

/* --- writing structs --- */

static size_t varint_len(uint64_t value)
{
    size_t len = 1;
    while ((value >>= 7) != 0)
        ++len;
    return len;
}

static bool put_varint(buffer_t *out, uint64_t value)
{
    uint8_t bytes[VARINT_BYTES_MAX];
    size_t len = 0;
    do {
        bytes[len] = (uint8_t)(value & 0x7f);
        value >>= 7;
        bytes[len] |= value != 0 ? 0x80 : 0;
        ++len;
    } while (value != 0);
    return buffer_append(out, bytes, len);
}

static bool put_head(buffer_t *out, uint32_t number, wire_type_t type)
{
    return put_varint(out, (uint64_t)number << 3 | type);
}

static bool put_bytes(buffer_t *out, uint32_t number, const void *bytes, size_t len)
{
    return put_head(out, number, WIRE_BYTES) && put_varint(out, len) && buffer_append(out, bytes, len);
}

static size_t bytes_len(uint32_t number, size_t len)
{
    return varint_len((uint64_t)number << 3) + varint_len(len) + len;
}

/* The entry's head, its key, and the head of a value of `value_len` bytes, which is to follow. */
static bool put_entry(buffer_t *out, const char *key, size_t value_len)
{
    size_t key_len = strlen(key);
    return put_head(out, STRUCT_FIELDS, WIRE_BYTES) &&
           put_varint(out, bytes_len(ENTRY_KEY, key_len) + bytes_len(ENTRY_VALUE, value_len)) &&
           put_bytes(out, ENTRY_KEY, key, key_len) && put_head(out, ENTRY_VALUE, WIRE_BYTES) &&
           put_varint(out, value_len);
}

static bool put_value(buffer_t *out, const char *key, uint32_t kind, const void *bytes, size_t len)
{
    return put_entry(out, key, bytes_len(kind, len)) && put_bytes(out, kind, bytes, len);
}

bool wire_struct_text(buffer_t *out, const char *key, const char *value)
{
    return put_value(out, key, VALUE_STRING, value, strlen(value));
}

bool wire_struct_number(buffer_t *out, const char *key, double value)
{
    uint64_t bits;
    uint8_t bytes[8];
    memcpy(&bits, &value, sizeof(bits));
    for (int i = 0; i < 8; ++i)
        bytes[i] = (uint8_t)(bits >> (8 * i));
    return put_entry(out, key, 1 + sizeof(bytes)) && put_head(out, VALUE_NUMBER, WIRE_FIXED64) &&
           buffer_append(out, bytes, sizeof(bytes));
}

bool wire_struct_struct(buffer_t *out, const char *key, const buffer_t *value)
{
    return put_value(out, key, VALUE_STRUCT, value->base, value->len);
}

bool wire_struct_list(buffer_t *out, const char *key, const buffer_t *values)
{
    return put_value(out, key, VALUE_LIST, values->base, values->len);
}

static bool put_list_value(buffer_t *out, uint32_t kind, const void *bytes, size_t len)
{
    return put_head(out, LIST_VALUES, WIRE_BYTES) && put_varint(out, bytes_len(kind, len)) &&
           put_bytes(out, kind, bytes, len);
}

bool wire_list_text(buffer_t *out, const char *value)
{
    return put_list_value(out, VALUE_STRING, value, strlen(value));
}

bool wire_list_struct(buffer_t *out, const buffer_t *value)
{
    return put_list_value(out, VALUE_STRUCT, value->base, value->len);
}

/* --- comparing them --- */

typedef struct {
    const uint8_t *key, *value;
    size_t key_len, value_len;
} entry_t;

static bool is_same_value(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len, int depth);

static bool read_entry(const wire_field_t *field, entry_t *entry)
{
    wire_t wire = {field->bytes, field->len};
    wire_field_t part;
    *entry = (entry_t){0};
    bool has_value = false;
    if (field->number != STRUCT_FIELDS || field->type != WIRE_BYTES)
        return false;
    while (wire_next(&wire, &part)) {
        if (part.type != WIRE_BYTES)
            return false;
        if (part.number == ENTRY_KEY && entry->key == NULL) {
            entry->key = part.bytes;
            entry->key_len = part.len;
        } else if (part.number == ENTRY_VALUE && !has_value) {
            entry->value = part.bytes;
            entry->value_len = part.len;
            has_value = true;
        } else {
            return false;
        }
    }
    return wire.left == 0 && has_value;
}

static bool is_key(const entry_t *a, const entry_t *b)
{
    return a->key_len == b->key_len && (a->key_len == 0 || memcmp(a->key, b->key, a->key_len) == 0);
}

/* How many there are; -1 when it is no struct. */
static int read_entries(const uint8_t *bytes, size_t len, entry_t entries[WIRE_STRUCT_FIELDS_MAX])
{
    wire_t wire = {bytes, len};
    wire_field_t field;
    int count = 0;
    while (wire_next(&wire, &field)) {
        if (count == WIRE_STRUCT_FIELDS_MAX || !read_entry(&field, &entries[count]))
            return -1;
        for (int i = 0; i < count; ++i) {
            if (is_key(&entries[i], &entries[count]))
                return -1;
        }
        ++count;
    }
    return wire.left == 0 ? count : -1;
}

static bool is_same_struct(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len, int depth)
{
    entry_t of_a[WIRE_STRUCT_FIELDS_MAX], of_b[WIRE_STRUCT_FIELDS_MAX];
    if (depth > WIRE_STRUCT_DEPTH_MAX)
        return false;
    int count = read_entries(a, a_len, of_a);
    if (count < 0 || read_entries(b, b_len, of_b) != count)
        return false;
    for (int i = 0; i < count; ++i) {
        int j = 0;
        while (j < count && !is_key(&of_a[i], &of_b[j]))
            ++j;
        if (j == count || !is_same_value(of_a[i].value, of_a[i].value_len, of_b[j].value, of_b[j].value_len, depth + 1))
            return false;
    }
    return true;
}

static bool is_same_list(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len, int depth)
{
    wire_t wire_a = {a, a_len}, wire_b = {b, b_len};
    wire_field_t of_a, of_b;
    if (depth > WIRE_STRUCT_DEPTH_MAX)
        return false;
    for (;;) {
        bool has_a = wire_next(&wire_a, &of_a), has_b = wire_next(&wire_b, &of_b);
        if (!has_a || !has_b)
            return !has_a && !has_b && wire_a.left == 0 && wire_b.left == 0;
        if (of_a.number != LIST_VALUES || of_b.number != LIST_VALUES || of_a.type != WIRE_BYTES ||
            of_b.type != WIRE_BYTES || !is_same_value(of_a.bytes, of_a.len, of_b.bytes, of_b.len, depth + 1))
            return false;
    }
}

/* A value is one field: its kind. */
static bool read_value(const uint8_t *bytes, size_t len, wire_field_t *field)
{
    wire_t wire = {bytes, len};
    return wire_next(&wire, field) && wire.left == 0;
}

static bool is_same_value(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len, int depth)
{
    wire_field_t of_a, of_b;
    if (!read_value(a, a_len, &of_a) || !read_value(b, b_len, &of_b) || of_a.number != of_b.number ||
        of_a.type != of_b.type)
        return false;
    if (of_a.type == WIRE_BYTES && of_a.number == VALUE_STRUCT)
        return is_same_struct(of_a.bytes, of_a.len, of_b.bytes, of_b.len, depth);
    if (of_a.type == WIRE_BYTES && of_a.number == VALUE_LIST)
        return is_same_list(of_a.bytes, of_a.len, of_b.bytes, of_b.len, depth);
    if (of_a.type == WIRE_VARINT)
        return of_a.value == of_b.value;
    return of_a.len == of_b.len && (of_a.len == 0 || memcmp(of_a.bytes, of_b.bytes, of_a.len) == 0);
}

bool wire_struct_equal(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len)
{
    return is_same_struct(a, a_len, b, b_len, 0);
}
