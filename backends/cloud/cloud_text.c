#include "backends/cloud/cloud_text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/buffer.h"
#include "core/mem.h"
#include "core/protojson.h"
#include "core/utf8.h"

enum {
    HEX_RUN_MIN = 32,    /* a token without a name: 128 bits */
    NAMED_HEX_MIN = 8,   /* behind e2b_ and crg_ */
    SCHEME_VALUE_MIN = 1 /* behind "Bearer " whatever follows is a credential */
};

static const char REPLACEMENT[] = "\xef\xbf\xbd"; /* U+FFFD */

void cloud_secrets_add(cloud_secrets_t *secrets, const char *value)
{
    if (value == NULL || strlen(value) < CLOUD_SECRET_MIN)
        return;
    if (secrets->count == CLOUD_SECRETS_MAX)
        mem_fatal("more secrets than CLOUD_SECRETS_MAX");
    secrets->values[secrets->count++] = value;
}

/* --- what a credential looks like: each returns how many bytes at `p` are one, or 0 --- */

static bool is_alphanumeric(unsigned char c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
}

static bool is_word(unsigned char c)
{
    return is_alphanumeric(c) || c == '_' || c == '-';
}

static bool is_token68(unsigned char c)
{
    return is_word(c) || c == '.' || c == '~' || c == '+' || c == '/' || c == '=';
}

static bool is_hex(unsigned char c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
}

static size_t span(const char *p, size_t left, bool (*is_in)(unsigned char c))
{
    size_t n = 0;
    while (n < left && is_in((unsigned char)p[n]))
        ++n;
    return n;
}

static bool starts(const char *p, size_t left, const char *word)
{
    size_t len = strlen(word);
    return left >= len && strncasecmp(p, word, len) == 0;
}

/* "Bearer" and "Basic", spaces, and a token. */
static size_t scheme(const char *p, size_t left)
{
    size_t n = starts(p, left, "bearer") ? 6 : starts(p, left, "basic") ? 5 : 0;
    size_t spaces = 0;
    if (n == 0)
        return 0;
    while (n + spaces < left && (p[n + spaces] == ' ' || p[n + spaces] == '\t' || p[n + spaces] == ':'))
        ++spaces;
    size_t value = span(p + n + spaces, left - n - spaces, is_token68);
    return spaces > 0 && value >= SCHEME_VALUE_MIN ? n + spaces + value : 0;
}

/* Three parts of base64url; also one that was cut, which still tells who it is of. */
static size_t jwt(const char *p, size_t left)
{
    if (!(left >= 3 && memcmp(p, "eyJ", 3) == 0))
        return 0;
    return span(p, left, is_token68);
}

static size_t named(const char *p, size_t left)
{
    static const char *const words[] = {"dckr_pat_", "dckr_oat_"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); ++i)
        if (starts(p, left, words[i]))
            return span(p, left, is_word);
    return 0;
}

static size_t named_hex(const char *p, size_t left)
{
    static const char *const words[] = {"e2b_", "crg_"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); ++i) {
        if (!starts(p, left, words[i]))
            continue;
        size_t hex = span(p + 4, left - 4, is_hex);
        return hex >= NAMED_HEX_MIN ? 4 + hex : 0;
    }
    return 0;
}

static size_t hex_run(const char *p, size_t left)
{
    size_t n = span(p, left, is_hex);
    return n >= HEX_RUN_MIN ? n : 0;
}

static size_t looks_secret(const char *p, size_t left)
{
    size_t n;
    if ((n = scheme(p, left)) != 0 || (n = jwt(p, left)) != 0 || (n = named(p, left)) != 0 ||
        (n = named_hex(p, left)) != 0)
        return n;
    return hex_run(p, left);
}

/* --- our own --- */

typedef struct {
    char *texts[2 * CLOUD_SECRETS_MAX];
    size_t lens[2 * CLOUD_SECRETS_MAX];
    size_t count;
} known_t;

/* The value as base64 shows it wherever it begins in what was encoded would be three forms; the one that is encoded by
 * itself is what a Basic credential or a JSON answer repeats. */
static void know(known_t *known, const char *value)
{
    buffer_t coded;
    size_t len = strlen(value);
    if (len < CLOUD_SECRET_MIN)
        return; /* wiped since it was added: a wall's memory is its own */
    known->texts[known->count] = mem_strdup(value);
    known->lens[known->count++] = len;
    buffer_init(&coded, len * 2 + 8);
    if (base64_encode(&coded, value, len, false)) {
        known->texts[known->count] = mem_strndup((const char *)coded.base, coded.len);
        known->lens[known->count++] = coded.len;
        explicit_bzero(coded.base, coded.len);
    }
    buffer_dispose(&coded);
}

static void known_make(known_t *known, const cloud_secrets_t *secrets)
{
    known->count = 0;
    for (size_t i = 0; secrets != NULL && i < secrets->count; ++i)
        know(known, secrets->values[i]);
}

static void known_dispose(known_t *known)
{
    for (size_t i = 0; i < known->count; ++i) {
        explicit_bzero(known->texts[i], known->lens[i]);
        free(known->texts[i]);
    }
}

/* Where a text was cut, the start of a secret still tells most of it. */
static bool is_known_at(const char *p, size_t left, const char *text, size_t len, size_t *taken)
{
    size_t n = left < len ? left : len;
    if (n < CLOUD_SECRET_MIN || memcmp(p, text, n) != 0)
        return false;
    *taken = n;
    return true;
}

static size_t known_at(const known_t *known, const char *p, size_t left)
{
    size_t longest = 0, n;
    for (size_t i = 0; i < known->count; ++i)
        if (is_known_at(p, left, known->texts[i], known->lens[i], &n) && n > longest)
            longest = n;
    return longest;
}

/* --- writing --- */

typedef struct {
    char *out;
    size_t len, max;
    bool is_full;
} writer_t;

/* All of it or nothing more: no sequence is cut. */
static void put(writer_t *w, const char *bytes, size_t len)
{
    if (w->is_full || w->max - w->len < len) {
        w->is_full = true;
        return;
    }
    memcpy(w->out + w->len, bytes, len);
    w->len += len;
}

static void put_space(writer_t *w)
{
    if (w->len > 0 && w->out[w->len - 1] != ' ')
        put(w, " ", 1);
}

static bool is_control(const char *p, size_t len)
{
    unsigned char c = (unsigned char)p[0];
    /* C0 and DEL; C1 (C2 80 to C2 9F); the separators and marks that turn a line's direction (E2 80 8E to AE, E2 81
     * A6 to A9) */
    if (len == 1)
        return c < 0x20 || c == 0x7f;
    if (len == 2)
        return c == 0xc2 && (unsigned char)p[1] < 0xa0;
    if (len == 3 && c == 0xe2 && (unsigned char)p[1] == 0x80)
        return (unsigned char)p[2] >= 0x8e && (unsigned char)p[2] <= 0xae;
    return len == 3 && c == 0xe2 && (unsigned char)p[1] == 0x81 && (unsigned char)p[2] >= 0xa6 &&
           (unsigned char)p[2] <= 0xa9;
}

const char *cloud_text_scrub(const cloud_secrets_t *secrets, const void *text, size_t len, size_t max, char *out)
{
    writer_t w = {.out = out, .max = max};
    const char *p = text;
    size_t left = len < CLOUD_TEXT_LOOKED_AT ? len : CLOUD_TEXT_LOOKED_AT;
    known_t known;
    known_make(&known, secrets);
    bool is_word_start = true;
    while (left > 0 && !w.is_full) {
        size_t skip, n = known_at(&known, p, left);
        if (n == 0 && is_word_start)
            n = looks_secret(p, left);
        if (n > 0) {
            put(&w, "[...]", 5);
        } else if ((n = utf8_sequence(p, left, &skip)) == 0) {
            n = skip;
            put(&w, REPLACEMENT, 3);
        } else if (is_control(p, n)) {
            put_space(&w);
        } else {
            put(&w, p, n);
        }
        is_word_start = n != 1 || !is_alphanumeric((unsigned char)*p);
        p += n;
        left -= n;
    }
    known_dispose(&known);
    while (w.len > 0 && out[w.len - 1] == ' ')
        --w.len;
    out[w.len] = '\0';
    return out;
}
