#include "core/json_read.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json_number.h"
#include "core/mem.h"
#include "core/proto_layout.h"

enum { PATH_MAX_BYTES = 160 }; /* of an error text's path; leaves room for the reason in PROTOJSON_ERROR_MAX */

static size_t path_write(const json_reader_t *r, char *out, size_t size)
{
    size_t len = 0;
    out[0] = '\0';
    for (int i = 0; i < r->path_len && len < size; i++) {
        const json_step_t *s = &r->path[i];
        int n = s->in_list ? snprintf(out + len, size - len, "%s%s[%zu]", i == 0 ? "" : ".", s->field->name, s->index)
                           : snprintf(out + len, size - len, "%s%s", i == 0 ? "" : ".", s->field->name);
        len += (size_t)n;
    }
    return len;
}

bool json_fail(json_reader_t *r, const char *fmt, ...)
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

bool json_fail_here(json_reader_t *r, const char *what)
{
    return json_fail(r, "%s at byte %zu", what, (size_t)(r->p - r->start));
}

bool json_charge(json_reader_t *r, size_t size)
{
    if (size > r->memory || r->memory - size < PROTO_ALLOCATION_COST)
        return json_fail(r, "the message needs more memory than its size allows");
    r->memory -= size + PROTO_ALLOCATION_COST;
    return true;
}

void json_skip_space(json_reader_t *r)
{
    while (r->p != r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\r' || *r->p == '\t'))
        r->p++;
}

char json_peek(json_reader_t *r)
{
    json_skip_space(r);
    return r->p != r->end ? *r->p : '\0';
}

bool json_take(json_reader_t *r, char c)
{
    if (json_peek(r) != c || r->p == r->end)
        return false;
    r->p++;
    return true;
}

bool json_expect(json_reader_t *r, char c, const char *what)
{
    return json_take(r, c) || json_fail_here(r, what);
}

bool json_take_word(json_reader_t *r, const char *word)
{
    size_t len = strlen(word);
    json_skip_space(r);
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
static bool string_measure(json_reader_t *r, const char **end_out, bool *escaped)
{
    const char *begin = r->p, *p = begin;
    bool high = false;
    *escaped = false;
    for (;;) {
        p = plain_run(p, r->end, &high);
        if (p == r->end) {
            r->p = p;
            return json_fail_here(r, "a string without its end");
        }
        if (*p == '"')
            break;
        if (*p != '\\') {
            r->p = p;
            return json_fail_here(r, "a control character in a string");
        }
        *escaped = true;
        if (r->end - p < 2) {
            r->p = p;
            return json_fail_here(r, "a string without its end");
        }
        p++;
        if ((uint8_t)*p >= 0x80)
            high = true;
        p++;
    }
    if (high && !utf8_is_valid(begin, (size_t)(p - begin)))
        return json_fail(r, "invalid UTF-8 in a string");
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
static bool unescape_unit(json_reader_t *r, const char **p, const char *end, char **o)
{
    int32_t unit = hex4(*p, end);
    if (unit < 0)
        return json_fail(r, "a \\u escape without four hex digits");
    *p += 4;
    uint32_t c = (uint32_t)unit;
    if (c >= 0xdc00 && c <= 0xdfff)
        return json_fail(r, "a lone surrogate in a string");
    if (c >= 0xd800 && c <= 0xdbff) {
        int32_t low = end - *p >= 6 && (*p)[0] == '\\' && (*p)[1] == 'u' ? hex4(*p + 2, end) : -1;
        if (low < 0xdc00 || low > 0xdfff)
            return json_fail(r, "a lone surrogate in a string");
        *p += 6;
        c = 0x10000 + ((c - 0xd800) << 10) + ((uint32_t)low - 0xdc00);
    }
    *o = utf8_put(*o, c);
    return true;
}

/* Decodes the raw content into `o`, which has room for as many bytes (no escape is shorter than what it stands for). */
static bool unescape(json_reader_t *r, const char *p, const char *end, char *o, size_t *len)
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
            return json_fail(r, "an unknown escape in a string");
        else if (!unescape_unit(r, &p, end, &o))
            return false;
    }
    *len = (size_t)(o - begin);
    return true;
}

bool json_read_slice(json_reader_t *r, json_slice_t *out)
{
    *out = (json_slice_t){0};
    if (!json_expect(r, '"', "expected a string"))
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

char *json_read_any_text(json_reader_t *r, size_t *len)
{
    if (json_peek(r) != '"') {
        json_fail_here(r, "expected a string");
        return NULL;
    }
    r->p++;
    const char *begin = r->p, *end;
    bool escaped;
    if (!string_measure(r, &end, &escaped))
        return NULL;
    *len = (size_t)(end - begin);
    if (!json_charge(r, *len + 1))
        return NULL;
    char *text = mem_realloc(NULL, *len + 1);
    if (!escaped) {
        memcpy(text, begin, *len);
    } else if (!unescape(r, begin, end, text, len)) {
        free(text);
        return NULL;
    }
    text[*len] = '\0';
    return text;
}

char *json_read_text(json_reader_t *r)
{
    size_t len;
    char *text = json_read_any_text(r, &len);
    /* What comes after it would be lost in a C string, and with it from what runs and what is digested. */
    if (text != NULL && memchr(text, '\0', len) != NULL) {
        json_fail(r, "a string with a NUL character");
        free(text);
        return NULL;
    }
    return text;
}

/* ---- nesting, and values nobody asked for ---- */

bool json_enter(json_reader_t *r)
{
    return ++r->depth <= PROTOJSON_DEPTH_MAX || json_fail(r, "nested deeper than %d", PROTOJSON_DEPTH_MAX);
}

void json_leave(json_reader_t *r)
{
    r->depth--;
}

static bool skip_number(json_reader_t *r)
{
    size_t n = json_number_scan(r->p, (size_t)(r->end - r->p));
    r->p += n;
    return n != 0 || json_fail_here(r, "expected a value");
}

static bool skip_string(json_reader_t *r)
{
    json_slice_t s;
    if (!json_read_slice(r, &s))
        return false;
    free(s.owned);
    return true;
}

static bool skip_object(json_reader_t *r)
{
    r->p++;
    if (!json_enter(r))
        return false;
    if (!json_take(r, '}')) {
        do {
            if (!skip_string(r) || !json_expect(r, ':', "expected ':'") || !json_skip_value(r))
                return false;
        } while (json_take(r, ','));
        if (!json_expect(r, '}', "expected ',' or '}'"))
            return false;
    }
    json_leave(r);
    return true;
}

static bool skip_array(json_reader_t *r)
{
    r->p++;
    if (!json_enter(r))
        return false;
    if (!json_take(r, ']')) {
        do {
            if (!json_skip_value(r))
                return false;
        } while (json_take(r, ','));
        if (!json_expect(r, ']', "expected ',' or ']'"))
            return false;
    }
    json_leave(r);
    return true;
}

bool json_skip_value(json_reader_t *r)
{
    switch (json_peek(r)) {
    case '{':
        return skip_object(r);
    case '[':
        return skip_array(r);
    case '"':
        return skip_string(r);
    case 't':
        return json_take_word(r, "true") || json_fail_here(r, "expected a value");
    case 'f':
        return json_take_word(r, "false") || json_fail_here(r, "expected a value");
    case 'n':
        return json_take_word(r, "null") || json_fail_here(r, "expected a value");
    default:
        return skip_number(r);
    }
}
