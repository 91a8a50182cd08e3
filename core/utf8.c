#include "core/protojson.h"

#include <string.h>

static bool is_continuation(uint8_t c)
{
    return (c & 0xc0) == 0x80;
}

/* Bytes of the sequence at p, or 0 when it is none. RFC 3629 section 4 by the second byte's range, which is where
 * overlong forms, surrogates and values past U+10FFFF differ from the rest. */
static size_t sequence_len(const uint8_t *p, const uint8_t *end)
{
    uint8_t c = p[0];
    size_t left = (size_t)(end - p);
    if (c < 0x80)
        return 1;
    if (c < 0xc2)
        return 0;
    if (c < 0xe0)
        return left >= 2 && is_continuation(p[1]) ? 2 : 0;
    if (c < 0xf0) {
        if (left < 3 || !is_continuation(p[1]) || !is_continuation(p[2]))
            return 0;
        if ((c == 0xe0 && p[1] < 0xa0) || (c == 0xed && p[1] > 0x9f))
            return 0;
        return 3;
    }
    if (c < 0xf5) {
        if (left < 4 || !is_continuation(p[1]) || !is_continuation(p[2]) || !is_continuation(p[3]))
            return 0;
        if ((c == 0xf0 && p[1] < 0x90) || (c == 0xf4 && p[1] > 0x8f))
            return 0;
        return 4;
    }
    return 0;
}

bool utf8_is_valid(const void *data, size_t len)
{
    const uint8_t *p = data, *end = p + len;
    while (p != end) {
        /* Eight at a time while nothing but ASCII comes: most code is. */
        uint64_t word;
        while ((size_t)(end - p) >= sizeof(word) && (memcpy(&word, p, sizeof(word)), word & 0x8080808080808080u) == 0)
            p += sizeof(word);
        if (p == end)
            break;
        size_t n = sequence_len(p, end);
        if (n == 0)
            return false;
        p += n;
    }
    return true;
}
