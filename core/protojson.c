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
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json_number.h"
#include "core/mem.h"
#include "core/proto_layout.h"

enum {
    FIELDS_MAX = 64,      /* fields of one message: a bit each in the set of those seen */
    ELEMENTS_FIRST = 4,   /* capacity of a list at its first element; doubled from there */
    PATH_MAX_BYTES = 160, /* of an error text's path; leaves room for the reason in PROTOJSON_ERROR_MAX */
};

typedef struct {
    const ProtobufCFieldDescriptor *field;
    size_t index; /* of the element, when the field is a list */
    bool in_list;
} step_t;

typedef struct {
    const char *start, *p, *end;
    size_t memory; /* bytes that may still be allocated */
    int depth;
    step_t path[PROTOJSON_DEPTH_MAX];
    int path_len;
    char *error;
} reader_t;

/* A string's content: the input itself when it has no escapes. */
typedef struct {
    const char *base;
    size_t len;
    char *owned; /* to free; NULL when in the input */
} slice_t;

static size_t path_write(const reader_t *r, char *out, size_t size)
{
    size_t len = 0;
    out[0] = '\0';
    for (int i = 0; i < r->path_len && len < size; i++) {
        const step_t *s = &r->path[i];
        int n = s->in_list ? snprintf(out + len, size - len, "%s%s[%zu]", i == 0 ? "" : ".", s->field->name, s->index)
                           : snprintf(out + len, size - len, "%s%s", i == 0 ? "" : ".", s->field->name);
        len += (size_t)n;
    }
    return len;
}

/* The first failure is the one told. */
__attribute__((format(printf, 2, 3))) static bool fail(reader_t *r, const char *fmt, ...)
{
    char path[PATH_MAX_BYTES], why[PROTOJSON_ERROR_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof(why), fmt, args);
    va_end(args);
    if (path_write(r, path, sizeof(path)) != 0)
        snprintf(r->error, PROTOJSON_ERROR_MAX, "%s: %.90s", path, why);
    else
        snprintf(r->error, PROTOJSON_ERROR_MAX, "%s", why);
    return false;
}

static bool fail_here(reader_t *r, const char *what)
{
    return fail(r, "%s at byte %zu", what, (size_t)(r->p - r->start));
}

static bool charge(reader_t *r, size_t size)
{
    if (size > r->memory || r->memory - size < PROTO_ALLOCATION_COST)
        return fail(r, "the message needs more memory than its size allows");
    r->memory -= size + PROTO_ALLOCATION_COST;
    return true;
}

static void skip_space(reader_t *r)
{
    while (r->p != r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\r' || *r->p == '\t'))
        r->p++;
}

/* The next byte after white space, or NUL at the end (no JSON token starts with NUL). */
static char peek(reader_t *r)
{
    skip_space(r);
    return r->p != r->end ? *r->p : '\0';
}

static bool take(reader_t *r, char c)
{
    if (peek(r) != c || r->p == r->end)
        return false;
    r->p++;
    return true;
}

static bool expect(reader_t *r, char c, const char *what)
{
    return take(r, c) || fail_here(r, what);
}

static bool take_word(reader_t *r, const char *word)
{
    size_t len = strlen(word);
    skip_space(r);
    if ((size_t)(r->end - r->p) < len || memcmp(r->p, word, len) != 0)
        return false;
    r->p += len;
    return true;
}

/* ---- strings ---- */

/* Whether any of eight bytes is one a plain run ends at: '"', '\' or a control character. The carries of a subtraction
 * can only reach past a byte that is itself one, so the answer is exact though the place is not. */
static bool word_ends_run(uint64_t w)
{
    const uint64_t ones = 0x0101010101010101u, highs = 0x8080808080808080u;
    uint64_t quote = w ^ (ones * '"'), backslash = w ^ (ones * '\\');
    return ((((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) | ((w - ones * 0x20) & ~w)) & highs) != 0;
}

/* The end of the run of plain bytes at p; sets *high when any byte is not ASCII. */
static const char *plain_run(const char *p, const char *end, bool *high)
{
    uint64_t w, seen = 0;
    while ((size_t)(end - p) >= sizeof(w)) {
        memcpy(&w, p, sizeof(w));
        if (word_ends_run(w))
            break;
        seen |= w;
        p += sizeof(w);
    }
    while (p != end && *p != '"' && *p != '\\' && (uint8_t)*p >= 0x20)
        seen |= (uint8_t)*p++;
    if ((seen & 0x8080808080808080u) != 0)
        *high = true;
    return p;
}

/* After the opening quote: the raw content's end is *end_out and r->p is past the closing quote. Checks everything but
 * escapes. */
static bool string_measure(reader_t *r, const char **end_out, bool *escaped)
{
    const char *begin = r->p, *p = begin;
    bool high = false;
    *escaped = false;
    for (;;) {
        p = plain_run(p, r->end, &high);
        if (p == r->end) {
            r->p = p;
            return fail_here(r, "a string without its end");
        }
        if (*p == '"')
            break;
        if (*p != '\\') {
            r->p = p;
            return fail_here(r, "a control character in a string");
        }
        *escaped = true;
        if (r->end - p < 2) {
            r->p = p;
            return fail_here(r, "a string without its end");
        }
        p++;
        if ((uint8_t)*p >= 0x80)
            high = true;
        p++;
    }
    if (high && !utf8_is_valid(begin, (size_t)(p - begin)))
        return fail(r, "invalid UTF-8 in a string");
    *end_out = p;
    r->p = p + 1;
    return true;
}

/* Four hex digits; -1 when they are not. */
static int32_t hex4(const char *p, const char *end)
{
    if (end - p < 4)
        return -1;
    int32_t value = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

static char *utf8_put(char *o, uint32_t c)
{
    if (c < 0x80) {
        *o++ = (char)c;
    } else if (c < 0x800) {
        *o++ = (char)(0xc0 | c >> 6);
        *o++ = (char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        *o++ = (char)(0xe0 | c >> 12);
        *o++ = (char)(0x80 | (c >> 6 & 63));
        *o++ = (char)(0x80 | (c & 63));
    } else {
        *o++ = (char)(0xf0 | c >> 18);
        *o++ = (char)(0x80 | (c >> 12 & 63));
        *o++ = (char)(0x80 | (c >> 6 & 63));
        *o++ = (char)(0x80 | (c & 63));
    }
    return o;
}

/* *p is after "\u". */
static bool unescape_unit(reader_t *r, const char **p, const char *end, char **o)
{
    int32_t unit = hex4(*p, end);
    if (unit < 0)
        return fail(r, "a \\u escape without four hex digits");
    *p += 4;
    uint32_t c = (uint32_t)unit;
    if (c >= 0xdc00 && c <= 0xdfff)
        return fail(r, "a lone surrogate in a string");
    if (c >= 0xd800 && c <= 0xdbff) {
        int32_t low = end - *p >= 6 && (*p)[0] == '\\' && (*p)[1] == 'u' ? hex4(*p + 2, end) : -1;
        if (low < 0xdc00 || low > 0xdfff)
            return fail(r, "a lone surrogate in a string");
        *p += 6;
        c = 0x10000 + ((c - 0xd800) << 10) + ((uint32_t)low - 0xdc00);
    }
    *o = utf8_put(*o, c);
    return true;
}

/* Decodes the raw content into `o`, which has room for as many bytes (no escape is shorter than what it stands for). */
static bool unescape(reader_t *r, const char *p, const char *end, char *o, size_t *len)
{
    static const char NAMES[] = "\"\\/bfnrt", VALUES[] = "\"\\/\b\f\n\r\t";
    char *begin = o;
    while (p != end) {
        const char *next = memchr(p, '\\', (size_t)(end - p));
        size_t run = (size_t)((next != NULL ? next : end) - p);
        memcpy(o, p, run);
        o += run;
        p += run;
        if (next == NULL)
            break;
        char name = p[1];
        p += 2;
        const char *at = name != '\0' ? strchr(NAMES, name) : NULL;
        if (at != NULL)
            *o++ = VALUES[at - NAMES];
        else if (name != 'u')
            return fail(r, "an unknown escape in a string");
        else if (!unescape_unit(r, &p, end, &o))
            return false;
    }
    *len = (size_t)(o - begin);
    return true;
}

/* A string whose content is looked at, not kept. Free `owned`. */
static bool read_slice(reader_t *r, slice_t *out)
{
    *out = (slice_t){0};
    if (!expect(r, '"', "expected a string"))
        return false;
    const char *begin = r->p, *end;
    bool escaped;
    if (!string_measure(r, &end, &escaped))
        return false;
    out->base = begin;
    out->len = (size_t)(end - begin);
    if (!escaped)
        return true;
    out->owned = mem_realloc(NULL, out->len + 1);
    if (!unescape(r, begin, end, out->owned, &out->len)) {
        free(out->owned);
        out->owned = NULL;
        return false;
    }
    out->base = out->owned;
    return true;
}

/* A string that is kept: malloc'ed with its NUL. */
static char *read_text(reader_t *r)
{
    if (peek(r) != '"') {
        fail_here(r, "expected a string");
        return NULL;
    }
    r->p++;
    const char *begin = r->p, *end;
    bool escaped;
    if (!string_measure(r, &end, &escaped))
        return NULL;
    size_t len = (size_t)(end - begin);
    if (!charge(r, len + 1))
        return NULL;
    char *text = mem_realloc(NULL, len + 1);
    if (!escaped) {
        memcpy(text, begin, len);
    } else {
        if (!unescape(r, begin, end, text, &len))
            goto Fail;
        /* What comes after it would be lost in a C string, and with it from what runs and what is digested. */
        if (memchr(text, '\0', len) != NULL) {
            fail(r, "a string with a NUL character");
            goto Fail;
        }
    }
    text[len] = '\0';
    return text;
Fail:
    free(text);
    return NULL;
}

/* ---- members nobody asked for ---- */

static bool enter(reader_t *r)
{
    return ++r->depth <= PROTOJSON_DEPTH_MAX || fail(r, "nested deeper than %d", PROTOJSON_DEPTH_MAX);
}

static bool skip_number(reader_t *r)
{
    size_t n = json_number_scan(r->p, (size_t)(r->end - r->p));
    r->p += n;
    return n != 0 || fail_here(r, "expected a value");
}

static bool skip_string(reader_t *r)
{
    slice_t s;
    if (!read_slice(r, &s))
        return false;
    free(s.owned);
    return true;
}

static bool skip_value(reader_t *r);

static bool skip_object(reader_t *r)
{
    r->p++;
    if (!enter(r))
        return false;
    if (!take(r, '}')) {
        do {
            if (!skip_string(r) || !expect(r, ':', "expected ':'") || !skip_value(r))
                return false;
        } while (take(r, ','));
        if (!expect(r, '}', "expected ',' or '}'"))
            return false;
    }
    r->depth--;
    return true;
}

static bool skip_array(reader_t *r)
{
    r->p++;
    if (!enter(r))
        return false;
    if (!take(r, ']')) {
        do {
            if (!skip_value(r))
                return false;
        } while (take(r, ','));
        if (!expect(r, ']', "expected ',' or ']'"))
            return false;
    }
    r->depth--;
    return true;
}

static bool skip_value(reader_t *r)
{
    switch (peek(r)) {
    case '{':
        return skip_object(r);
    case '[':
        return skip_array(r);
    case '"':
        return skip_string(r);
    case 't':
        return take_word(r, "true") || fail_here(r, "expected a value");
    case 'f':
        return take_word(r, "false") || fail_here(r, "expected a value");
    case 'n':
        return take_word(r, "null") || fail_here(r, "expected a value");
    default:
        return skip_number(r);
    }
}

/* ---- scalars ---- */

static bool slice_is(const slice_t *s, const char *text)
{
    return s->len == strlen(text) && memcmp(s->base, text, s->len) == 0;
}

/* A number, or a string that is one (free `owned`). */
static bool read_number(reader_t *r, slice_t *out)
{
    if (peek(r) == '"')
        return read_slice(r, out);
    *out = (slice_t){.base = r->p, .len = json_number_scan(r->p, (size_t)(r->end - r->p))};
    r->p += out->len;
    return out->len != 0 || fail_here(r, "expected a number");
}

static bool is_number(const slice_t *s)
{
    return s->len != 0 && json_number_scan(s->base, s->len) == s->len;
}

static bool number_told(reader_t *r, number_result_t result)
{
    switch (result) {
    case NUMBER_OK:
        return true;
    case NUMBER_FRACTION:
        return fail(r, "not an integer");
    case NUMBER_RANGE:
        break;
    }
    return fail(r, "a number out of range");
}

static bool read_signed(reader_t *r, int64_t min, int64_t max, int64_t *out)
{
    slice_t s;
    if (!read_number(r, &s))
        return false;
    bool ok = is_number(&s) ? number_told(r, json_number_i64(s.base, s.len, min, max, out)) : fail(r, "not a number");
    free(s.owned);
    return ok;
}

static bool read_unsigned(reader_t *r, uint64_t max, uint64_t *out)
{
    slice_t s;
    if (!read_number(r, &s))
        return false;
    bool ok = is_number(&s) ? number_told(r, json_number_u64(s.base, s.len, max, out)) : fail(r, "not a number");
    free(s.owned);
    return ok;
}

static bool double_of(reader_t *r, const slice_t *s, double *out)
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
        return fail(r, "not a number");
    return true;
}

static bool read_double(reader_t *r, double *out)
{
    slice_t s;
    if (!read_number(r, &s))
        return false;
    bool ok = double_of(r, &s, out);
    free(s.owned);
    return ok;
}

static bool read_float(reader_t *r, float *out)
{
    double wide;
    if (!read_double(r, &wide))
        return false;
    *out = (float)wide;
    return !(isinf(*out) && isfinite(wide)) || number_told(r, NUMBER_RANGE);
}

static bool read_enum(reader_t *r, const ProtobufCEnumDescriptor *names, int *out)
{
    if (peek(r) != '"') {
        int64_t number;
        if (!read_signed(r, INT32_MIN, INT32_MAX, &number))
            return false;
        *out = (int)number; /* proto3 enums are open: a number without a name is kept */
        return true;
    }
    slice_t s;
    if (!read_slice(r, &s))
        return false;
    bool found = false;
    for (unsigned i = 0; i < names->n_values && !found; i++) {
        if (slice_is(&s, names->values[i].name)) {
            *out = names->values[i].value;
            found = true;
        }
    }
    free(s.owned);
    return found || fail(r, "not a name of %s", names->short_name);
}

static bool read_bytes(reader_t *r, ProtobufCBinaryData *out)
{
    slice_t s;
    if (!read_slice(r, &s))
        return false;
    bool ok = true;
    if (s.len != 0) {
        size_t len = 0;
        uint8_t *data = NULL;
        if (!charge(r, s.len))
            ok = false;
        else if ((data = base64_decode(s.base, s.len, &len)) == NULL)
            ok = fail(r, "not base64");
        else
            *out = (ProtobufCBinaryData){.len = len, .data = data};
    }
    free(s.owned);
    return ok;
}

static bool read_bool(reader_t *r, protobuf_c_boolean *out)
{
    skip_space(r);
    if (take_word(r, "true"))
        *out = 1;
    else if (take_word(r, "false"))
        *out = 0;
    else
        return fail_here(r, "expected true or false");
    return true;
}

/* ---- messages ---- */

static bool read_message(reader_t *r, const ProtobufCMessageDescriptor *descriptor, ProtobufCMessage *message);

/* An element or a singular field's value into `at`, zeroed or the field's default before. Also on failure what is there
 * can be freed. */
static bool read_value(reader_t *r, const ProtobufCFieldDescriptor *field, void *at)
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
        char *text = read_text(r);
        if (text != NULL)
            *(char **)at = text;
        return text != NULL;
    }
    case PROTOBUF_C_TYPE_MESSAGE: {
        const ProtobufCMessageDescriptor *of = field->descriptor;
        if (!charge(r, of->sizeof_message))
            return false;
        ProtobufCMessage *message = mem_realloc(NULL, of->sizeof_message);
        protobuf_c_message_init(of, message);
        *(ProtobufCMessage **)at = message;
        return read_message(r, of, message);
    }
    }
    return fail(r, "a type this form has no reading for");
}

static bool read_list(reader_t *r, const ProtobufCFieldDescriptor *field, uint8_t *message)
{
    if (!expect(r, '[', "expected a list") || !enter(r))
        return false;
    if (take(r, ']')) {
        r->depth--;
        return true;
    }
    size_t *count = (size_t *)(message + field->quantifier_offset);
    void **elements = (void **)(message + field->offset);
    size_t size = proto_value_size(field->type), capacity = 0;
    step_t *step = &r->path[r->path_len - 1];
    step->in_list = true;
    do {
        step->index = *count;
        if (*count == capacity) {
            /* Bounded by the charge long before a product could overflow: each element took a byte of the input at
             * least. */
            size_t more = capacity == 0 ? ELEMENTS_FIRST : capacity;
            if (!charge(r, more * size))
                return false;
            capacity += more;
            *elements = mem_realloc(*elements, capacity * size);
        }
        uint8_t *at = (uint8_t *)*elements + *count * size;
        memset(at, 0, size);
        ++*count;
        if (!read_value(r, field, at))
            return false;
    } while (take(r, ','));
    step->in_list = false;
    r->depth--;
    return expect(r, ']', "expected ',' or ']'");
}

/* Whether the key is the field's name or its lowerCamelCase form. */
static bool key_names(const slice_t *key, const char *name)
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
static unsigned field_of(const ProtobufCMessageDescriptor *descriptor, const slice_t *key)
{
    unsigned i = 0;
    while (i < descriptor->n_fields && !key_names(key, descriptor->fields[i].name))
        i++;
    return i;
}

/* An empty text stays the default the message was made with, which nobody frees. */
static bool is_empty_text(reader_t *r, const ProtobufCFieldDescriptor *field)
{
    return field->type == PROTOBUF_C_TYPE_STRING && field->label == PROTOBUF_C_LABEL_NONE &&
           !proto_is_in_oneof(field) && take_word(r, "\"\"");
}

static bool read_singular(reader_t *r, const ProtobufCFieldDescriptor *field, uint8_t *message)
{
    if (proto_is_in_oneof(field)) {
        uint32_t *which = (uint32_t *)(message + field->quantifier_offset);
        if (*which != 0)
            return fail(r, "a second member of one choice");
        *which = field->id;
    } else if (field->label == PROTOBUF_C_LABEL_OPTIONAL && field->type != PROTOBUF_C_TYPE_STRING &&
               field->type != PROTOBUF_C_TYPE_MESSAGE) {
        *(protobuf_c_boolean *)(message + field->quantifier_offset) = 1;
    }
    return is_empty_text(r, field) || read_value(r, field, message + field->offset);
}

static bool read_member(reader_t *r, const ProtobufCMessageDescriptor *descriptor, ProtobufCMessage *message,
                        uint64_t *seen)
{
    slice_t key;
    if (!read_slice(r, &key))
        return false;
    unsigned i = field_of(descriptor, &key);
    free(key.owned);
    if (!expect(r, ':', "expected ':'"))
        return false;
    if (i == descriptor->n_fields)
        return skip_value(r);
    const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
    r->path[r->path_len++] = (step_t){.field = field};
    if ((*seen >> i & 1) != 0)
        return fail(r, "a second member of that name");
    *seen |= (uint64_t)1 << i;
    if (peek(r) == 'n') {
        if (!take_word(r, "null"))
            return fail_here(r, "expected a value");
    } else if (field->label == PROTOBUF_C_LABEL_REPEATED ? !read_list(r, field, (uint8_t *)message)
                                                         : !read_singular(r, field, (uint8_t *)message)) {
        return false;
    }
    r->path_len--;
    return true;
}

static bool read_message(reader_t *r, const ProtobufCMessageDescriptor *descriptor, ProtobufCMessage *message)
{
    if (descriptor->n_fields > FIELDS_MAX)
        mem_fatal("a message with more fields than the JSON reader counts");
    if (!expect(r, '{', "expected an object") || !enter(r))
        return false;
    uint64_t seen = 0;
    if (!take(r, '}')) {
        do {
            if (!read_member(r, descriptor, message, &seen))
                return false;
        } while (take(r, ','));
        if (!expect(r, '}', "expected ',' or '}'"))
            return false;
    }
    r->depth--;
    return true;
}

ProtobufCMessage *protojson_parse(const ProtobufCMessageDescriptor *descriptor, const void *json, size_t len,
                                  char error[PROTOJSON_ERROR_MAX])
{
    reader_t r = {.start = json, .p = json, .end = (const char *)json + len, .error = error};
    r.memory = PROTOJSON_MEMORY_BASE + (len < SIZE_MAX / 16 ? len * PROTOJSON_MEMORY_FACTOR : 0);
    error[0] = '\0';
    skip_space(&r);
    if (r.p == r.end) {
        fail(&r, "the body is empty");
        return NULL;
    }
    ProtobufCMessage *message = mem_alloc(descriptor->sizeof_message);
    protobuf_c_message_init(descriptor, message);
    if (!read_message(&r, descriptor, message))
        goto Fail;
    skip_space(&r);
    if (r.p != r.end) {
        fail_here(&r, "something after the message");
        goto Fail;
    }
    return message;
Fail:
    protobuf_c_message_free_unpacked(message, NULL);
    return NULL;
}
