#include "config/quote.h"

#include <string.h>

#include "config/text.h"
#include "core/protojson.h"

const char *quote(char out[QUOTE_BYTES], const char *text, size_t len)
{
    bool utf8 = utf8_is_valid(text, len);
    char *to = out;
    size_t at = 0;

    *to++ = '"';
    while (at < len) {
        uint32_t c = (unsigned char)text[at];
        size_t width = 1;
        if (c >= 0x80)
            width = utf8 ? text_next(text + at, &c) : 1;
        if (at + width > OPTION_QUOTED_MAX)
            break;
        if (text_is_control(c) || (c >= 0x80 && !utf8))
            *to++ = '?';
        else {
            memcpy(to, text + at, width);
            to += width;
        }
        at += width;
    }
    *to++ = '"';
    if (at < len) {
        memcpy(to, "...", 3);
        to += 3;
    }
    *to = '\0';
    return out;
}
