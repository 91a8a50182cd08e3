/*
 * Texts as a run's value has them. A head byte and what belongs to it:
 *
 *   00-7f  that many bytes; the end of the text
 *   80-bf  1 to 64 bytes that stand for twice as many lowercase hex digits; the end
 *   c0-df  the word of this number; the end
 *   e0-fd  the word of this number, and another head follows
 *   fe     a byte n, and 128 + n bytes; the end
 */
#include "records/store_internal.h"

#include <string.h>

enum {
    SHORT_MAX = 0x7f,
    HEX = 0x80,
    HEX_MAX = 64,
    WORD = 0xc0,
    WORD_MORE = 0xe0,
    LONG = 0xfe,
    LONG_MIN = 128,
};

/* Numbers stay for ever: values that have them lie in Redis. At most 30, those that begin longer texts first. */
static const char *const WORDS[] = {
    "docker-image:sha256:",
    "sha256:",
    "approved:sha256:",
    "exact:",
    "docker",
    "container",
    "javascript",
    "kernel",
    "vm",
    "process",
    "project",
    "module",
    "cell",
    "gvisor",
    "wasm",
    "e2b",
    "dockercloud",
    "openshell",
    "capacity",
    "request",
    "unavailable",
    "deadline_exceeded",
    "canceled",
    "internal",
};
enum { WORDS_COUNT = sizeof(WORDS) / sizeof(WORDS[0]), PREFIXES = 4 };
_Static_assert(WORDS_COUNT <= LONG - WORD_MORE, "heads");

uint8_t *store_text_put(uint8_t *at, const char *text)
{
    size_t len = text != NULL ? strnlen(text, STORE_STRING_MAX) : 0;
    for (size_t i = 0; i != WORDS_COUNT; ++i) {
        size_t word = strlen(WORDS[i]);
        if (word == len && memcmp(WORDS[i], text, len) == 0) {
            *at++ = (uint8_t)(WORD + i);
            return at;
        }
        if (i < PREFIXES && len > word && memcmp(WORDS[i], text, word) == 0) {
            *at++ = (uint8_t)(WORD_MORE + i);
            text += word;
            len -= word;
            break;
        }
    }
    if (len != 0 && len % 2 == 0 && len / 2 <= HEX_MAX && store_is_hexn(text, len, len)) {
        *at++ = (uint8_t)(HEX + len / 2 - 1);
        store_raw_of(text, len / 2, at);
        return at + len / 2;
    }
    if (len <= SHORT_MAX) {
        *at++ = (uint8_t)len;
    } else {
        *at++ = LONG;
        *at++ = (uint8_t)(len - LONG_MIN);
    }
    if (len != 0)
        memcpy(at, text, len);
    return at + len;
}

const uint8_t *store_text_get(const uint8_t *at, const uint8_t *end, char out[STORE_STRING_MAX + 1])
{
    size_t have = 0;
    while (at != end) {
        uint8_t head = *at++;
        size_t left = (size_t)(end - at), room = STORE_STRING_MAX - have, len;
        if (head >= HEX && head < WORD) {
            len = (size_t)head - HEX + 1;
            if (len > left || 2 * len > room)
                return NULL;
            store_hex_of(at, len, out + have);
            return at + len;
        }
        if (head >= WORD && head < LONG) {
            size_t word = (size_t)head - (head < WORD_MORE ? WORD : WORD_MORE);
            if (word >= WORDS_COUNT || strlen(WORDS[word]) > room)
                return NULL;
            strcpy(out + have, WORDS[word]);
            have += strlen(WORDS[word]);
            if (head < WORD_MORE)
                return at;
            continue;
        }
        len = head;
        if (head >= LONG) {
            if (head != LONG || left == 0)
                return NULL;
            len = LONG_MIN + (size_t)*at++;
            --left;
        }
        if (len > left || len > room || memchr(at, '\0', len) != NULL)
            return NULL;
        memcpy(out + have, at, len);
        out[have + len] = '\0';
        return at + len;
    }
    return NULL;
}
