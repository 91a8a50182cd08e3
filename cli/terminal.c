#include "cli/terminal.h"

#include <stdint.h>
#include <string.h>

#include "config/text.h"
#include "core/protojson.h"

/* Bytes of the valid, printable character at `text`, or 0: a control character or invalid UTF-8. */
static size_t printable_len(const char *text, size_t len)
{
    uint8_t lead = (uint8_t)text[0];
    size_t want = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (want > len || !utf8_is_valid(text, want))
        return 0;
    uint32_t c;
    text_next(text, &c);
    return text_is_control(c) ? 0 : want;
}

void terminal_copy(char *out, size_t size, const char *text, size_t len)
{
    size_t at = 0;
    for (size_t i = 0; i < len;) {
        size_t n = printable_len(text + i, len - i);
        size_t take = n == 0 ? 1 : n;
        if (at + take >= size)
            break;
        if (n == 0)
            out[at] = '?';
        else
            memcpy(out + at, text + i, n);
        at += take;
        i += take;
    }
    out[at] = '\0';
}

void terminal_print(FILE *out, const char *text)
{
    size_t len = strlen(text);
    for (size_t i = 0; i < len;) {
        size_t n = printable_len(text + i, len - i);
        if (n == 0)
            fputc('?', out);
        else
            fwrite(text + i, 1, n, out);
        i += n == 0 ? 1 : n;
    }
}
