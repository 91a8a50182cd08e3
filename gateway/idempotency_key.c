#include "gateway/idempotency_key.h"

#include <string.h>

#include "core/hex.h"

static const char TOO_LONG[] = "it has more than 255 characters";
static const char NOT_PRINTABLE[] = "it has a character that is not printable ASCII";
static const char EMPTY[] = "it is empty";

static bool is_printable(char c)
{
    return c >= 0x20 && c <= 0x7e; /* RFC 8941 section 3.3.3 */
}

static bool keep(idempotency_key_t *out, char c, const char **why)
{
    if (!is_printable(c))
        *why = NOT_PRINTABLE;
    else if (out->len == IDEMPOTENCY_KEY_MAX)
        *why = TOO_LONG;
    else {
        out->text[out->len++] = c;
        return true;
    }
    return false;
}

static bool is_complete(idempotency_key_t *out, const char **why)
{
    out->text[out->len] = '\0';
    if (out->len == 0)
        *why = EMPTY;
    return out->len != 0;
}

bool idempotency_key_parse(const char *value, size_t len, idempotency_key_t *out, const char **why)
{
    size_t at = 1;
    out->len = 0;
    if (len < 2 || value[0] != '"') {
        *why = "it is not in quotation marks";
        return false;
    }
    while (at < len && value[at] != '"') {
        if (value[at] == '\\' && (++at == len || (value[at] != '"' && value[at] != '\\'))) {
            *why = "a backslash stands only before a quotation mark or a backslash";
            return false;
        }
        if (!keep(out, value[at++], why))
            return false;
    }
    if (at == len) {
        *why = "its closing quotation mark is missing";
        return false;
    }
    if (at + 1 != len) {
        *why = "something follows its closing quotation mark";
        return false;
    }
    return is_complete(out, why);
}

/* The segment's bytes; -1 when it is malformed or longer than `max`. */
static int percent_decode(const char *segment, size_t len, char *out, size_t max, const char **why)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        char c = segment[i];
        if (c == '/') {
            *why = "it has a slash that is not percent-encoded";
            return -1;
        }
        if (c == '%') {
            int high = i + 2 < len ? hex_digit(segment[i + 1]) : -1, low = i + 2 < len ? hex_digit(segment[i + 2]) : -1;
            if (high < 0 || low < 0) {
                *why = "its percent-encoding is malformed";
                return -1;
            }
            c = (char)(high << 4 | low);
            i += 2;
        }
        if (n == max) {
            *why = TOO_LONG;
            return -1;
        }
        out[n++] = c;
    }
    return (int)n;
}

static bool is_request_id(const char *text, size_t len)
{
    size_t n = 0;
    while (n < len && ((text[n] >= '0' && text[n] <= '9') || (text[n] >= 'a' && text[n] <= 'f')))
        n++;
    return len == REQUEST_ID_LEN && n == len;
}

path_key_t idempotency_key_of_path(const char *segment, size_t len, idempotency_key_t *out, const char **why)
{
    char field[2 * IDEMPOTENCY_KEY_MAX + 2]; /* every character escaped, and the two quotation marks */
    int n = percent_decode(segment, len, field, sizeof(field), why);
    out->len = 0;
    if (n < 0)
        return PATH_KEY_WRONG;
    if (n > 0 && field[0] == '"')
        return idempotency_key_parse(field, (size_t)n, out, why) ? PATH_KEY_IDEMPOTENCY : PATH_KEY_WRONG;
    for (int i = 0; i < n; i++)
        if (!keep(out, field[i], why))
            return PATH_KEY_WRONG;
    if (!is_complete(out, why))
        return PATH_KEY_WRONG;
    return is_request_id(out->text, out->len) ? PATH_KEY_REQUEST_ID : PATH_KEY_IDEMPOTENCY;
}
