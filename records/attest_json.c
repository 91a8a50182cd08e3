#include "records/attest_json.h"

#include <stdlib.h>
#include <string.h>

#include "core/hex.h"
#include "core/mem.h"
#include "core/protojson.h"

/* ---- writing ---- */

/* Bytes at `at` that are U+2028 or U+2029. */
static bool is_line_separator(const uint8_t *at, size_t left)
{
    return left >= 3 && at[0] == 0xe2 && at[1] == 0x80 && (at[2] == 0xa8 || at[2] == 0xa9);
}

/* The short escape's letter, or 0. */
static char short_escape(uint8_t c)
{
    switch (c) {
    case '"':
    case '\\':
        return (char)c;
    case '\b':
        return 'b';
    case '\f':
        return 'f';
    case '\n':
        return 'n';
    case '\r':
        return 'r';
    case '\t':
        return 't';
    default:
        return 0;
    }
}

static bool needs_code(uint8_t c)
{
    return c < 0x20 || c == '<' || c == '>' || c == '&';
}

bool attest_json_string(buffer_t *out, const char *text)
{
    const uint8_t *at = (const uint8_t *)text, *end = at + strlen(text), *plain = at;
    bool ok = buffer_append_str(out, "\"");
    while (ok && at < end) {
        bool is_separator = is_line_separator(at, (size_t)(end - at));
        char letter = short_escape(*at);
        if (!is_separator && letter == 0 && !needs_code(*at)) {
            at++;
            continue;
        }
        ok = buffer_append(out, plain, (size_t)(at - plain));
        if (is_separator)
            ok = ok && buffer_printf(out, "\\u202%c", at[2] == 0xa8 ? '8' : '9');
        else if (letter != 0)
            ok = ok && buffer_printf(out, "\\%c", letter);
        else
            ok = ok && buffer_printf(out, "\\u%04x", *at);
        at += is_separator ? 3 : 1;
        plain = at;
    }
    return ok && buffer_append(out, plain, (size_t)(at - plain)) && buffer_append_str(out, "\"");
}

bool attest_json_member(buffer_t *out, const char *name, bool is_first)
{
    return (is_first || buffer_append_str(out, ",")) && attest_json_string(out, name) && buffer_append_str(out, ":");
}

/* ---- reading ---- */

bool attest_cursor_take(attest_cursor_t *cursor, const char *bytes)
{
    size_t len = strlen(bytes);
    if (len > (size_t)(cursor->end - cursor->at) || memcmp(cursor->at, bytes, len) != 0)
        return false;
    cursor->at += len;
    return true;
}

/* The escape at `at` (past its backslash) into `out`: how many bytes it took, 0 when it is none that writing could
 * have made of a text without U+0000. */
static size_t read_escape(const char *at, size_t left, buffer_t *out)
{
    static const char LETTERS[] = "\"\\bfnrt", MEANT[] = "\"\\\b\f\n\r\t";
    if (left == 0)
        return 0;
    const char *letter = *at != '\0' ? strchr(LETTERS, *at) : NULL;
    if (letter != NULL)
        return buffer_append(out, &MEANT[letter - LETTERS], 1) ? 1 : 0;
    if (left < 5 || at[0] != 'u')
        return 0;
    unsigned code = 0;
    for (int i = 1; i <= 4; i++) {
        int digit = hex_digit_lower(at[i]);
        if (digit < 0)
            return 0;
        code = code << 4 | (unsigned)digit;
    }
    if (code == 0x2028 || code == 0x2029)
        return buffer_append(out, code == 0x2028 ? "\xe2\x80\xa8" : "\xe2\x80\xa9", 3) ? 5 : 0;
    if (code == 0 || code > 0x7f || !needs_code((uint8_t)code) || short_escape((uint8_t)code) != 0)
        return 0;
    uint8_t byte = (uint8_t)code;
    return buffer_append(out, &byte, 1) ? 5 : 0;
}

/* The bytes between the quotes, and the cursor past them; false when no string ends here. */
static bool take_quoted(attest_cursor_t *cursor, const char **start, size_t *len)
{
    if (cursor->at == cursor->end || *cursor->at != '"')
        return false;
    *start = cursor->at + 1;
    for (const char *at = *start; at < cursor->end; at++) {
        if (*at == '\\')
            at++;
        else if (*at == '"') {
            *len = (size_t)(at - *start);
            cursor->at = at + 1;
            return true;
        }
    }
    return false;
}

char *attest_cursor_string(attest_cursor_t *cursor)
{
    const char *at = NULL;
    size_t len = 0;
    char *text = NULL;
    if (!take_quoted(cursor, &at, &len))
        return NULL;
    buffer_t out;
    buffer_init(&out, len);
    for (const char *end = at + len; at < end;) {
        if (*at == '\\') {
            size_t took = read_escape(at + 1, (size_t)(end - at - 1), &out);
            if (took == 0)
                goto done;
            at += 1 + took;
            continue;
        }
        if (needs_code((uint8_t)*at) || is_line_separator((const uint8_t *)at, (size_t)(end - at)))
            goto done;
        buffer_append(&out, at++, 1);
    }
    const char *bytes = out.len == 0 ? "" : (const char *)out.base;
    if (utf8_is_valid(bytes, out.len))
        text = mem_strndup(bytes, out.len);
done:
    buffer_dispose(&out);
    return text;
}

uint8_t *attest_cursor_base64(attest_cursor_t *cursor, size_t *len)
{
    const char *text = NULL;
    size_t text_len = 0;
    if (!take_quoted(cursor, &text, &text_len) || text_len == 0)
        return NULL;
    uint8_t *bytes = base64_decode(text, text_len, len);
    if (bytes == NULL)
        return NULL;
    /* Reading is lenient about alphabet, padding and left-over bits; a bundle is not. */
    buffer_t again;
    buffer_init(&again, text_len);
    bool is_exact =
        base64_encode(&again, bytes, *len, true) && again.len == text_len && memcmp(again.base, text, text_len) == 0;
    buffer_dispose(&again);
    if (is_exact)
        return bytes;
    free(bytes);
    return NULL;
}
