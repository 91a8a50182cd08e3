/*
 * Reading the proto3 JSON form in one bounded pass over the bytes, straight into the message.
 *
 * Not over jansson: a tree of its values has lost what this contract must keep or refuse (the sign of -0, the form of a
 * number past int64, whether a duplicate came by the other spelling of a name), cannot be bounded in depth below 2048
 * or in memory at all, and copies every string twice on the path of every request.
 *
 * A message under construction is always one that protobuf_c_message_free_unpacked frees: counts are stored with the
 * elements they count, and a case of a oneof with its member.
 */
#include "core/protojson.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/json_number.h"
#include "core/json_read.h"
#include "core/mem.h"
#include "core/proto_layout.h"
#include "core/proto_text.h"

enum {
    FIELDS_MAX = 64,    /* fields of one message: a bit each in the set of those seen */
    ELEMENTS_FIRST = 4, /* capacity of a list at its first element; doubled from there */
};

/* ---- scalars ---- */

static bool slice_is(const json_slice_t *s, const char *text)
{
    return s->len == strlen(text) && memcmp(s->base, text, s->len) == 0;
}

/* A number, or a string that is one (free `owned`). */
static bool read_number(json_reader_t *r, json_slice_t *out)
{
    if (json_peek(r) == '"')
        return json_read_slice(r, out);
    *out = (json_slice_t){.base = r->p, .len = json_number_scan(r->p, (size_t)(r->end - r->p))};
    r->p += out->len;
    return out->len != 0 || json_fail_here(r, "expected a number");
}

static bool is_number(const json_slice_t *s)
{
    return s->len != 0 && json_number_scan(s->base, s->len) == s->len;
}

static bool number_told(json_reader_t *r, number_result_t result)
{
    switch (result) {
    case NUMBER_OK:
        return true;
    case NUMBER_FRACTION:
        return json_fail(r, "not an integer");
    case NUMBER_RANGE:
        break;
    }
    return json_fail(r, "a number out of range");
}

static bool read_signed(json_reader_t *r, int64_t min, int64_t max, int64_t *out)
{
    json_slice_t s;
    if (!read_number(r, &s))
        return false;
    bool ok =
        is_number(&s) ? number_told(r, json_number_i64(s.base, s.len, min, max, out)) : json_fail(r, "not a number");
    free(s.owned);
    return ok;
}

static bool read_unsigned(json_reader_t *r, uint64_t max, uint64_t *out)
{
    json_slice_t s;
    if (!read_number(r, &s))
        return false;
    bool ok = is_number(&s) ? number_told(r, json_number_u64(s.base, s.len, max, out)) : json_fail(r, "not a number");
    free(s.owned);
    return ok;
}

static bool double_of(json_reader_t *r, const json_slice_t *s, double *out)
{
    /* The one NaN of this form, whatever the machine makes of its own. */
    static const uint64_t NAN_BITS = 0x7ff8000000000000u;
    if (is_number(s))
        return number_told(r, json_number_double(s->base, s->len, out));
    if (slice_is(s, "NaN"))
        memcpy(out, &NAN_BITS, sizeof(*out));
    else if (slice_is(s, "Infinity"))
        *out = INFINITY;
    else if (slice_is(s, "-Infinity"))
        *out = -INFINITY;
    else
        return json_fail(r, "not a number");
    return true;
}

static bool read_double(json_reader_t *r, double *out)
{
    json_slice_t s;
    if (!read_number(r, &s))
        return false;
    bool ok = double_of(r, &s, out);
    free(s.owned);
    return ok;
}

static bool read_float(json_reader_t *r, float *out)
{
    double wide;
    if (!read_double(r, &wide))
        return false;
    *out = (float)wide;
    return !(isinf(*out) && isfinite(wide)) || number_told(r, NUMBER_RANGE);
}

static bool read_enum(json_reader_t *r, const ProtobufCEnumDescriptor *names, int *out)
{
    if (json_peek(r) != '"') {
        int64_t number;
        if (!read_signed(r, INT32_MIN, INT32_MAX, &number))
            return false;
        *out = (int)number; /* proto3 enums are open: a number without a name is kept */
        return true;
    }
    json_slice_t s;
    if (!json_read_slice(r, &s))
        return false;
    bool found = false;
    for (unsigned i = 0; i < names->n_values && !found; i++) {
        if (slice_is(&s, names->values[i].name)) {
            *out = names->values[i].value;
            found = true;
        }
    }
    free(s.owned);
    return found || json_fail(r, "not a name of %s", names->short_name);
}

static bool read_bytes(json_reader_t *r, ProtobufCBinaryData *out)
{
    json_slice_t s;
    if (!json_read_slice(r, &s))
        return false;
    bool ok = true;
    if (s.len != 0) {
        size_t len = 0;
        uint8_t *data = NULL;
        if (!json_charge(r, s.len))
            ok = false;
        else if ((data = base64_decode(s.base, s.len, &len)) == NULL)
            ok = json_fail(r, "not base64");
        else
            *out = (ProtobufCBinaryData){.len = len, .data = data};
    }
    free(s.owned);
    return ok;
}

/* A text kept as bytes. */
static bool read_text_bytes(json_reader_t *r, ProtobufCBinaryData *out)
{
    size_t len;
    char *text = json_read_any_text(r, &len);
    if (text != NULL)
        *out = (ProtobufCBinaryData){.len = len, .data = (uint8_t *)text};
    return text != NULL;
}

static bool read_bool(json_reader_t *r, protobuf_c_boolean *out)
{
    json_skip_space(r);
    if (json_take_word(r, "true"))
        *out = 1;
    else if (json_take_word(r, "false"))
        *out = 0;
    else
        return json_fail_here(r, "expected true or false");
    return true;
}

/* ---- messages ---- */

static bool read_message(json_reader_t *r, const ProtobufCMessageDescriptor *descriptor, ProtobufCMessage *message);

/* An element or a singular field's value into `at`, zeroed or the field's default before. Also on failure what is there
 * can be freed. */
static bool read_value(json_reader_t *r, const ProtobufCFieldDescriptor *field, void *at)
{
    int64_t i = 0;
    uint64_t u = 0;
    bool ok;
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        ok = read_signed(r, INT32_MIN, INT32_MAX, &i);
        *(int32_t *)at = (int32_t)i;
        return ok;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        ok = read_signed(r, INT64_MIN, INT64_MAX, &i);
        *(int64_t *)at = i;
        return ok;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        ok = read_unsigned(r, UINT32_MAX, &u);
        *(uint32_t *)at = (uint32_t)u;
        return ok;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        ok = read_unsigned(r, UINT64_MAX, &u);
        *(uint64_t *)at = u;
        return ok;
    case PROTOBUF_C_TYPE_FLOAT:
        return read_float(r, at);
    case PROTOBUF_C_TYPE_DOUBLE:
        return read_double(r, at);
    case PROTOBUF_C_TYPE_BOOL:
        return read_bool(r, at);
    case PROTOBUF_C_TYPE_ENUM:
        return read_enum(r, field->descriptor, at);
    case PROTOBUF_C_TYPE_BYTES:
        return read_bytes(r, at);
    case PROTOBUF_C_TYPE_STRING: {
        char *text = json_read_text(r);
        if (text != NULL)
            *(char **)at = text;
        return text != NULL;
    }
    case PROTOBUF_C_TYPE_MESSAGE: {
        const ProtobufCMessageDescriptor *of = field->descriptor;
        if (!json_charge(r, of->sizeof_message))
            return false;
        ProtobufCMessage *message = mem_realloc(NULL, of->sizeof_message);
        protobuf_c_message_init(of, message);
        *(ProtobufCMessage **)at = message;
        return read_message(r, of, message);
    }
    }
    return json_fail(r, "a type this form has no reading for");
}

static bool read_list(json_reader_t *r, const ProtobufCFieldDescriptor *field, uint8_t *message)
{
    if (!json_expect(r, '[', "expected a list") || !json_enter(r))
        return false;
    if (json_take(r, ']')) {
        json_leave(r);
        return true;
    }
    size_t *count = (size_t *)(message + field->quantifier_offset);
    void **elements = (void **)(message + field->offset);
    size_t size = proto_value_size(field->type), capacity = 0;
    json_step_t *step = &r->path[r->path_len - 1];
    step->in_list = true;
    do {
        step->index = *count;
        if (*count == capacity) {
            /* Bounded by the charge long before a product could overflow: each element took a byte of the input at
             * least. */
            size_t more = capacity == 0 ? ELEMENTS_FIRST : capacity;
            if (!json_charge(r, more * size))
                return false;
            capacity += more;
            *elements = mem_realloc(*elements, capacity * size);
        }
        uint8_t *at = (uint8_t *)*elements + *count * size;
        memset(at, 0, size);
        ++*count;
        if (!read_value(r, field, at))
            return false;
    } while (json_take(r, ','));
    step->in_list = false;
    json_leave(r);
    return json_expect(r, ']', "expected ',' or ']'");
}

/* Whether the key is the field's name or its lowerCamelCase form. */
static bool key_names(const json_slice_t *key, const char *name)
{
    const char *k = key->base, *end = k + key->len;
    if (key->len == 0 || *k != *name)
        return false;
    const char *n = name;
    while (k != end && *k == *n && *n != '\0') {
        k++;
        n++;
    }
    if (k == end && *n == '\0')
        return true;
    for (k = key->base, n = name; *n != '\0'; k++, n++) {
        char c = *n;
        if (c == '_') {
            c = *++n;
            if (c >= 'a' && c <= 'z')
                c = (char)(c - 'a' + 'A');
            if (c == '\0')
                return false;
        }
        if (k == end || *k != c)
            return false;
    }
    return k == end;
}

/* n_fields when no field has that name. */
static unsigned field_of(const ProtobufCMessageDescriptor *descriptor, const json_slice_t *key)
{
    unsigned i = 0;
    while (i < descriptor->n_fields && !key_names(key, descriptor->fields[i].name))
        i++;
    return i;
}

/* An empty text stays the default the message was made with, which nobody frees. */
static bool is_empty_text(json_reader_t *r, const ProtobufCFieldDescriptor *field)
{
    return field->type == PROTOBUF_C_TYPE_STRING && field->label == PROTOBUF_C_LABEL_NONE &&
           !proto_is_in_oneof(field) && json_take_word(r, "\"\"");
}

static bool read_singular(json_reader_t *r, const ProtobufCFieldDescriptor *field, uint8_t *message)
{
    if (proto_is_in_oneof(field)) {
        uint32_t *which = (uint32_t *)(message + field->quantifier_offset);
        if (*which != 0)
            return json_fail(r, "a second member of one choice");
        *which = field->id;
    } else if (field->label == PROTOBUF_C_LABEL_OPTIONAL && field->type != PROTOBUF_C_TYPE_STRING &&
               field->type != PROTOBUF_C_TYPE_MESSAGE) {
        *(protobuf_c_boolean *)(message + field->quantifier_offset) = 1;
    }
    if (proto_is_text(((ProtobufCMessage *)message)->descriptor, field))
        return read_text_bytes(r, (ProtobufCBinaryData *)(message + field->offset));
    return is_empty_text(r, field) || read_value(r, field, message + field->offset);
}

static bool read_member(json_reader_t *r, const ProtobufCMessageDescriptor *descriptor, ProtobufCMessage *message,
                        uint64_t *seen)
{
    json_slice_t key;
    if (!json_read_slice(r, &key))
        return false;
    unsigned i = field_of(descriptor, &key);
    free(key.owned);
    if (!json_expect(r, ':', "expected ':'"))
        return false;
    if (i == descriptor->n_fields)
        return json_skip_value(r);
    const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
    r->path[r->path_len++] = (json_step_t){.field = field};
    if ((*seen >> i & 1) != 0)
        return json_fail(r, "a second member of that name");
    *seen |= (uint64_t)1 << i;
    if (json_peek(r) == 'n') {
        if (!json_take_word(r, "null"))
            return json_fail_here(r, "expected a value");
    } else if (field->label == PROTOBUF_C_LABEL_REPEATED ? !read_list(r, field, (uint8_t *)message)
                                                         : !read_singular(r, field, (uint8_t *)message)) {
        return false;
    }
    r->path_len--;
    return true;
}

static bool read_message(json_reader_t *r, const ProtobufCMessageDescriptor *descriptor, ProtobufCMessage *message)
{
    if (descriptor->n_fields > FIELDS_MAX)
        mem_fatal("a message with more fields than the JSON reader counts");
    if (!json_expect(r, '{', "expected an object") || !json_enter(r))
        return false;
    uint64_t seen = 0;
    if (!json_take(r, '}')) {
        do {
            if (!read_member(r, descriptor, message, &seen))
                return false;
        } while (json_take(r, ','));
        if (!json_expect(r, '}', "expected ',' or '}'"))
            return false;
    }
    json_leave(r);
    return true;
}

ProtobufCMessage *protojson_parse(const ProtobufCMessageDescriptor *descriptor, const void *json, size_t len,
                                  char error[PROTOJSON_ERROR_MAX])
{
    json_reader_t r = {.start = json, .p = json, .end = (const char *)json + len, .error = error};
    r.memory = PROTOJSON_MEMORY_BASE + (len < SIZE_MAX / 16 ? len * PROTOJSON_MEMORY_FACTOR : 0);
    error[0] = '\0';
    json_skip_space(&r);
    if (r.p == r.end) {
        json_fail(&r, "the body is empty");
        return NULL;
    }
    ProtobufCMessage *message = mem_alloc(descriptor->sizeof_message);
    protobuf_c_message_init(descriptor, message);
    if (!read_message(&r, descriptor, message))
        goto Fail;
    json_skip_space(&r);
    if (r.p != r.end) {
        json_fail_here(&r, "something after the message");
        goto Fail;
    }
    return message;
Fail:
    protobuf_c_message_free_unpacked(message, NULL);
    return NULL;
}
