#include "core/utf8.h"

#include <stdint.h>
#include <string.h>

#include "core/mem.h"

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

size_t utf8_sequence(const char *p, size_t left, size_t *skip)
{
    for (size_t n = 1; n <= 4 && n <= left; n++) {
        if (utf8_is_valid(p, n))
            return n;
    }
    /* A prefix is a start of a valid sequence when some continuation completes it; 0x80, 0x90, 0xa0 and 0xbf meet every
     * range. */
    static const char FILL[4][3] = {"\x80\x80", "\x90\x80", "\xa0\x80", "\xbf\xbf"};
    *skip = 1;
    for (size_t n = 2; n <= 3 && n <= left; n++) {
        bool starts = false;
        for (size_t total = n + 1; total <= 4 && !starts; total++) {
            for (int f = 0; f < 4 && !starts; f++) {
                char whole[4];
                memcpy(whole, p, n);
                memcpy(whole + n, FILL[f], total - n);
                starts = utf8_is_valid(whole, total);
            }
        }
        if (!starts)
            break;
        *skip = n;
    }
    return 0;
}

char *utf8_repair(const char *text)
{
    static const char REPLACEMENT[] = "\xef\xbf\xbd";
    size_t len = strlen(text);
    if (utf8_is_valid(text, len))
        return NULL;
    char *out = mem_alloc_array(len + 1, sizeof(REPLACEMENT) - 1), *o = out;
    for (size_t i = 0; i < len;) {
        size_t skip = 0, n = utf8_sequence(text + i, len - i, &skip);
        memcpy(o, n != 0 ? text + i : REPLACEMENT, n != 0 ? n : sizeof(REPLACEMENT) - 1);
        o += n != 0 ? n : sizeof(REPLACEMENT) - 1;
        i += n != 0 ? n : skip;
    }
    *o = '\0';
    return out;
}
