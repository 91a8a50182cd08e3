#include "cli/terminal.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "config/text.h"
#include "core/protojson.h"

/* The bytes of the character at `text`, one when it is invalid UTF-8; whether it may be shown as it is. */
static bool is_printable(const char *text, size_t len, size_t *width)
{
    uint8_t lead = (uint8_t)text[0];
    size_t want = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    bool is_whole = want <= len && utf8_is_valid(text, want);
    *width = is_whole ? want : 1;
    uint32_t c;
    if (!is_whole)
        return false;
    text_next(text, &c);
    return !text_is_control(c);
}

void terminal_copy(char *out, size_t size, const char *text, size_t len)
{
    size_t at = 0;
    for (size_t i = 0, width; i < len; i += width) {
        bool shown = is_printable(text + i, len - i, &width);
        size_t take = shown ? width : 1;
        if (at + take >= size)
            break;
        memcpy(out + at, shown ? text + i : "?", take);
        at += take;
    }
    out[at] = '\0';
}

void terminal_print(FILE *out, const char *text)
{
    size_t len = strlen(text);
    for (size_t i = 0, width; i < len; i += width) {
        if (is_printable(text + i, len - i, &width))
            fwrite(text + i, 1, width, out);
        else
            fputc('?', out);
    }
}
