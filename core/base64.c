/* RFC 4648 sections 4 and 5. */
#include "core/protojson.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

static const char ALPHABET[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

enum { INVALID = 0xff };
#define SIX_BITS(c)                                                                                                    \
    (uint8_t)((c) >= 'A' && (c) <= 'Z'   ? (c) - 'A'                                                                   \
              : (c) >= 'a' && (c) <= 'z' ? (c) - 'a' + 26                                                              \
              : (c) >= '0' && (c) <= '9' ? (c) - '0' + 52                                                              \
              : (c) == '+' || (c) == '-' ? 62                                                                          \
              : (c) == '/' || (c) == '_' ? 63                                                                          \
                                         : INVALID)
#define ROW(c)                                                                                                         \
    SIX_BITS(c), SIX_BITS((c) + 1), SIX_BITS((c) + 2), SIX_BITS((c) + 3), SIX_BITS((c) + 4), SIX_BITS((c) + 5),        \
        SIX_BITS((c) + 6), SIX_BITS((c) + 7)
/* Both alphabets in one table; which of them a text uses is checked apart. */
static const uint8_t VALUES[256] = {
    ROW(0),   ROW(8),   ROW(16),  ROW(24),  ROW(32),  ROW(40),  ROW(48),  ROW(56),  ROW(64),  ROW(72),  ROW(80),
    ROW(88),  ROW(96),  ROW(104), ROW(112), ROW(120), ROW(128), ROW(136), ROW(144), ROW(152), ROW(160), ROW(168),
    ROW(176), ROW(184), ROW(192), ROW(200), ROW(208), ROW(216), ROW(224), ROW(232), ROW(240), ROW(248),
};

bool base64_encode(buffer_t *out, const void *data, size_t len, bool padded)
{
    const uint8_t *in = data;
    if (len > SIZE_MAX / 4 * 3 - 3)
        return false;
    size_t rest = len % 3;
    size_t size = len / 3 * 4 + (rest == 0 ? 0 : padded ? 4 : rest + 1);
    if (size == 0)
        return true;
    uint8_t *o = buffer_reserve(out, size);
    if (o == NULL)
        return false;
    for (size_t i = 0; i + 3 <= len; i += 3) {
        uint32_t v = (uint32_t)in[i] << 16 | (uint32_t)in[i + 1] << 8 | in[i + 2];
        *o++ = (uint8_t)ALPHABET[v >> 18];
        *o++ = (uint8_t)ALPHABET[v >> 12 & 63];
        *o++ = (uint8_t)ALPHABET[v >> 6 & 63];
        *o++ = (uint8_t)ALPHABET[v & 63];
    }
    if (rest != 0) {
        uint32_t v = (uint32_t)in[len - rest] << 16 | (rest == 2 ? (uint32_t)in[len - 1] << 8 : 0);
        *o++ = (uint8_t)ALPHABET[v >> 18];
        *o++ = (uint8_t)ALPHABET[v >> 12 & 63];
        if (rest == 2)
            *o++ = (uint8_t)ALPHABET[v >> 6 & 63];
        if (padded)
            memcpy(o, "==", 3 - rest);
    }
    buffer_commit(out, size);
    return true;
}

static bool mixes_alphabets(const char *text, size_t len)
{
    bool standard = memchr(text, '+', len) != NULL || memchr(text, '/', len) != NULL;
    bool url = memchr(text, '-', len) != NULL || memchr(text, '_', len) != NULL;
    return standard && url;
}

uint8_t *base64_decode(const char *text, size_t len, size_t *out_len)
{
    size_t core = len;
    while (core > 0 && len - core < 2 && text[core - 1] == '=')
        core--;
    /* Padding, where there is any, is complete; one digit alone carries no byte. */
    if ((core != len && len % 4 != 0) || core % 4 == 1 || mixes_alphabets(text, core))
        return NULL;
    size_t size = core / 4 * 3 + (core % 4 == 0 ? 0 : core % 4 - 1);
    uint8_t *out = mem_realloc(NULL, size + 1), *o = out;
    uint32_t bad = 0; /* any digit's high bit */
    size_t i = 0;
    for (; i + 4 <= core; i += 4) {
        uint32_t a = VALUES[(uint8_t)text[i]], b = VALUES[(uint8_t)text[i + 1]], c = VALUES[(uint8_t)text[i + 2]],
                 d = VALUES[(uint8_t)text[i + 3]];
        bad |= a | b | c | d;
        uint32_t v = a << 18 | b << 12 | c << 6 | d;
        *o++ = (uint8_t)(v >> 16);
        *o++ = (uint8_t)(v >> 8);
        *o++ = (uint8_t)v;
    }
    if (i < core) {
        uint32_t a = VALUES[(uint8_t)text[i]], b = VALUES[(uint8_t)text[i + 1]],
                 c = i + 2 < core ? VALUES[(uint8_t)text[i + 2]] : 0;
        bad |= a | b | c;
        uint32_t v = a << 18 | b << 12 | c << 6;
        *o++ = (uint8_t)(v >> 16);
        if (i + 2 < core)
            *o++ = (uint8_t)(v >> 8);
    }
    if ((bad & 0x80) != 0) {
        free(out);
        return NULL;
    }
    *out_len = size;
    return out;
}
