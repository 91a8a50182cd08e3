#include "core/protojson.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json_number.h"
#include "core/mem.h"
#include "core/proto_layout.h"
#include "core/proto_text.h"

/* ---- strings ---- */

static bool is_plain(uint8_t c)
{
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

static bool print_escaped(buffer_t *out, uint8_t c)
{
    static const char NAMES[] = "btnvfr"; /* from 0x08; 0x0b has no name in JSON */
    char text[8];
    size_t len;
    if (c == '"' || c == '\\') {
        text[0] = '\\';
        text[1] = (char)c;
        len = 2;
    } else if (c >= 0x08 && c <= 0x0d && c != 0x0b) {
        text[0] = '\\';
        text[1] = NAMES[c - 0x08];
        len = 2;
    } else {
        len = (size_t)snprintf(text, sizeof(text), "\\u%04x", c);
    }
    return buffer_append(out, text, len);
}

static bool print_string_body(buffer_t *out, const char *s, size_t len)
{
    bool valid = utf8_is_valid(s, len);
    for (size_t i = 0; i < len;) {
        size_t run = i;
        while (run < len && (is_plain((uint8_t)s[run]) || (valid && (uint8_t)s[run] >= 0x80)))
            run++;
        if (run > i && !buffer_append(out, s + i, run - i))
            return false;
        i = run;
        if (i == len)
            break;
        if ((uint8_t)s[i] < 0x80) {
            if (!print_escaped(out, (uint8_t)s[i++]))
                return false;
            continue;
        }
        size_t skip = 0, n = utf8_sequence(s + i, len - i, &skip);
        if (!(n != 0 ? buffer_append(out, s + i, n) : buffer_append_str(out, "\xef\xbf\xbd")))
            return false;
        i += n != 0 ? n : skip;
    }
    return true;
}

/* Leaves the buffer as it was when the whole did not fit. */
static bool undo(buffer_t *out, size_t len)
{
    out->len = len;
    if (out->base != NULL)
        out->base[len] = '\0';
    return false;
}

bool protojson_print_string(buffer_t *out, const char *s, size_t len)
{
    size_t before = out->len;
    if (!buffer_append(out, "\"", 1) || !print_string_body(out, s, len) || !buffer_append(out, "\"", 1))
        return undo(out, before);
    return true;
}

/* ---- values ---- */

static bool print_double(buffer_t *out, double value)
{
    if (isnan(value))
        return buffer_append_str(out, "\"NaN\"");
    if (isinf(value))
        return buffer_append_str(out, value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
    char text[JSON_DOUBLE_MAX];
    return buffer_append(out, text, json_number_format(value, text));
}

/* A float has at most nine digits; the shortest of them that reads back as the same float. */
static bool print_float(buffer_t *out, float value)
{
    if (isnan(value) || isinf(value))
        return print_double(out, value);
    char text[JSON_DOUBLE_MAX];
    int n = 0;
    for (int precision = 1; precision <= 9; precision++) {
        n = snprintf(text, sizeof(text), "%.*g", precision, (double)value);
        float back = strtof(text, NULL);
        if (memcmp(&back, &value, sizeof(back)) == 0)
            break;
    }
    return buffer_append(out, text, (size_t)n);
}

static bool print_enum(buffer_t *out, const ProtobufCEnumDescriptor *names, int value)
{
    const ProtobufCEnumValue *named = protobuf_c_enum_descriptor_get_value(names, value);
    return named != NULL ? buffer_printf(out, "\"%s\"", named->name) : buffer_printf(out, "%d", value);
}

static bool print_bytes(buffer_t *out, const ProtobufCBinaryData *data)
{
    return buffer_append(out, "\"", 1) && base64_encode(out, data->data, data->len, true) &&
           buffer_append(out, "\"", 1);
}

static bool print_message(buffer_t *out, const ProtobufCMessage *message);

static bool print_value(buffer_t *out, const ProtobufCFieldDescriptor *field, const void *at)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        return buffer_printf(out, "%" PRId32, *(const int32_t *)at);
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        return buffer_printf(out, "%" PRIu32, *(const uint32_t *)at);
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return buffer_printf(out, "\"%" PRId64 "\"", *(const int64_t *)at);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return buffer_printf(out, "\"%" PRIu64 "\"", *(const uint64_t *)at);
    case PROTOBUF_C_TYPE_FLOAT:
        return print_float(out, *(const float *)at);
    case PROTOBUF_C_TYPE_DOUBLE:
        return print_double(out, *(const double *)at);
    case PROTOBUF_C_TYPE_BOOL:
        return buffer_append_str(out, *(const protobuf_c_boolean *)at ? "true" : "false");
    case PROTOBUF_C_TYPE_ENUM:
        return print_enum(out, field->descriptor, *(const int *)at);
    case PROTOBUF_C_TYPE_BYTES:
        return print_bytes(out, at);
    case PROTOBUF_C_TYPE_STRING: {
        const char *text = *(const char *const *)at;
        return text != NULL ? protojson_print_string(out, text, strlen(text)) : buffer_append_str(out, "\"\"");
    }
    case PROTOBUF_C_TYPE_MESSAGE:
        return print_message(out, *(const ProtobufCMessage *const *)at);
    }
    mem_fatal("a protobuf type without a JSON form");
}

/* A text kept as bytes. */
static bool print_text_bytes(buffer_t *out, const ProtobufCBinaryData *text)
{
    return protojson_print_string(out, text->len != 0 ? (const char *)text->data : "", text->len);
}

static bool print_list(buffer_t *out, const ProtobufCFieldDescriptor *field, const uint8_t *message)
{
    size_t count = *(const size_t *)(message + field->quantifier_offset), size = proto_value_size(field->type);
    const uint8_t *elements = *(const uint8_t *const *)(message + field->offset);
    if (!buffer_append(out, "[", 1))
        return false;
    for (size_t i = 0; i < count; i++) {
        if ((i != 0 && !buffer_append(out, ",", 1)) || !print_value(out, field, elements + i * size))
            return false;
    }
    return buffer_append(out, "]", 1);
}

/* ---- messages ---- */

/* Zero of a singular field without presence. A double's zero is only the positive one. */
static bool is_zero(const ProtobufCFieldDescriptor *field, const void *at)
{
    static const uint8_t ZERO[8];
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING: {
        const char *text = *(const char *const *)at;
        return text == NULL || *text == '\0';
    }
    case PROTOBUF_C_TYPE_BYTES:
        return ((const ProtobufCBinaryData *)at)->len == 0;
    case PROTOBUF_C_TYPE_MESSAGE:
        return *(const void *const *)at == NULL;
    default:
        return memcmp(at, ZERO, proto_value_size(field->type)) == 0;
    }
}

static bool is_present(const ProtobufCFieldDescriptor *field, const uint8_t *message)
{
    const void *at = message + field->offset;
    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        return *(const size_t *)(message + field->quantifier_offset) != 0;
    if (proto_is_in_oneof(field)) {
        bool chosen = *(const uint32_t *)(message + field->quantifier_offset) == field->id;
        return chosen && !(field->type == PROTOBUF_C_TYPE_MESSAGE && is_zero(field, at));
    }
    if (field->label == PROTOBUF_C_LABEL_NONE || field->type == PROTOBUF_C_TYPE_STRING ||
        field->type == PROTOBUF_C_TYPE_MESSAGE)
        return !is_zero(field, at);
    return field->label == PROTOBUF_C_LABEL_REQUIRED ||
           *(const protobuf_c_boolean *)(message + field->quantifier_offset);
}

/* lowerCamelCase of a proto field name, quoted, with the colon. */
static bool print_name(buffer_t *out, const char *name)
{
    size_t len = strlen(name);
    uint8_t *o = buffer_reserve(out, len + 3), *begin = o;
    if (o == NULL)
        return false;
    *o++ = '"';
    for (; *name != '\0'; name++) {
        bool upper = *name == '_' && name[1] != '\0';
        name += upper;
        *o++ = (uint8_t)(upper && *name >= 'a' && *name <= 'z' ? *name - 'a' + 'A' : *name);
    }
    *o++ = '"';
    *o++ = ':';
    buffer_commit(out, (size_t)(o - begin));
    return true;
}

static bool print_message(buffer_t *out, const ProtobufCMessage *message)
{
    if (message == NULL)
        return buffer_append_str(out, "{}");
    const ProtobufCMessageDescriptor *descriptor = message->descriptor;
    const uint8_t *base = (const uint8_t *)message;
    if (!buffer_append(out, "{", 1))
        return false;
    bool first = true;
    for (unsigned i = 0; i < descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
        if (!is_present(field, base))
            continue;
        if ((!first && !buffer_append(out, ",", 1)) || !print_name(out, field->name))
            return false;
        first = false;
        bool printed = field->label == PROTOBUF_C_LABEL_REPEATED ? print_list(out, field, base)
                       : proto_is_text(descriptor, field)
                           ? print_text_bytes(out, (const ProtobufCBinaryData *)(base + field->offset))
                           : print_value(out, field, base + field->offset);
        if (!printed)
            return false;
    }
    return buffer_append(out, "}", 1);
}

bool protojson_print(const ProtobufCMessage *message, buffer_t *out)
{
    size_t before = out->len;
    return print_message(out, message) || undo(out, before);
}
