#include "config/text.h"

size_t text_next(const char *s, uint32_t *c)
{
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0x80) {
        *c = u[0];
        return 1;
    }
    if (u[0] < 0xe0) {
        *c = (uint32_t)(u[0] & 0x1f) << 6 | (u[1] & 0x3f);
        return 2;
    }
    if (u[0] < 0xf0) {
        *c = (uint32_t)(u[0] & 0x0f) << 12 | (uint32_t)(u[1] & 0x3f) << 6 | (u[2] & 0x3f);
        return 3;
    }
    *c = (uint32_t)(u[0] & 0x07) << 18 | (uint32_t)(u[1] & 0x3f) << 12 | (uint32_t)(u[2] & 0x3f) << 6 | (u[3] & 0x3f);
    return 4;
}

bool text_is_control(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0);
}

bool text_is_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

void text_trim(const char **s, size_t *len)
{
    const char *begin = *s, *end = *s + *len, *last = *s;
    bool started = false;

    for (const char *at = *s; at < end;) {
        uint32_t c;
        size_t width = text_next(at, &c);
        if (!text_is_space(c)) {
            if (!started)
                begin = at;
            started = true;
            last = at + width;
        }
        at += width;
    }
    *s = begin;
    *len = started ? (size_t)(last - begin) : 0;
}
