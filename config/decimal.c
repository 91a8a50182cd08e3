#include "config/decimal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool add_digit(uint64_t *value, unsigned digit, uint64_t max)
{
    if (*value > (max - digit) / 10 || digit > max)
        return false;
    *value = *value * 10 + digit;
    return true;
}

bool decimal_parse(const char *text, size_t len, unsigned places, uint64_t max, uint64_t *out)
{
    size_t at = 0;
    unsigned taken = 0;
    uint64_t value = 0;

    while (at < len && is_digit(text[at]))
        if (!add_digit(&value, (unsigned)(text[at++] - '0'), max))
            return false;
    if (at == 0 || (at > 1 && text[0] == '0'))
        return false;
    if (at < len) {
        if (text[at++] != '.' || at == len || len - at > places)
            return false;
        for (; at < len; at++, taken++)
            if (!is_digit(text[at]) || !add_digit(&value, (unsigned)(text[at] - '0'), max))
                return false;
    }
    for (; taken < places; taken++)
        if (!add_digit(&value, 0, max))
            return false;
    *out = value;
    return true;
}

const char *decimal_print(uint64_t value, unsigned places, char out[DECIMAL_TEXT_MAX])
{
    uint64_t scale = 1;

    for (unsigned i = 0; i < places; i++)
        scale *= 10;
    int len = snprintf(out, DECIMAL_TEXT_MAX, "%" PRIu64, value / scale);
    if (value % scale == 0)
        return out;
    len += snprintf(out + len, DECIMAL_TEXT_MAX - (size_t)len, ".%0*" PRIu64, (int)places, value % scale);
    while (out[len - 1] == '0')
        out[--len] = '\0';
    return out;
}
