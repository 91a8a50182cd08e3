#include "records/ledger_entry.h"

#include <stdio.h>
#include <string.h>

enum { VERSION = 1, NUMBER_DIGITS_MAX = 15, SECRET_WORD_MIN = 20 };

static const char *const STATES[] = {"asked", "named", "condemned"};

const char *ledger_state_name(ledger_state_t state)
{
    return STATES[state];
}

/* --- words --- */

static bool is_plain(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("._~:/-", c) != NULL);
}

size_t ledger_word(const char *text, char *out)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t n = 0;
    if (text == NULL || text[0] == '\0')
        out[n++] = '-';
    for (const unsigned char *p = (const unsigned char *)text; p != NULL && *p != '\0'; ++p) {
        if (is_plain(*p) && strcmp(text, "-") != 0) {
            out[n++] = (char)*p;
            continue;
        }
        out[n++] = '%';
        out[n++] = digits[*p >> 4];
        out[n++] = digits[*p & 15];
    }
    out[n] = '\0';
    return n;
}

typedef struct {
    const char *base;
    size_t len;
} word_t;

static int hex_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The text of a word; false when it is none of ours or longer than `max`. One form a text: what needs no encoding has
 * none. */
static bool word_text(word_t word, char *out, size_t max)
{
    size_t n = 0;
    if (word.len == 1 && word.base[0] == '-') {
        out[0] = '\0';
        return true;
    }
    for (size_t i = 0; i < word.len; ++i) {
        unsigned char c = (unsigned char)word.base[i];
        if (c == '%') {
            if (word.len - i < 3 || hex_value(word.base[i + 1]) < 0 || hex_value(word.base[i + 2]) < 0)
                return false;
            c = (unsigned char)(hex_value(word.base[i + 1]) << 4 | hex_value(word.base[i + 2]));
            i += 2;
            if (c == '\0' || (is_plain(c) && !(c == '-' && word.len == 3)))
                return false;
        } else if (!is_plain(c)) {
            return false;
        }
        if (n == max)
            return false;
        out[n++] = (char)c;
    }
    out[n] = '\0';
    return n > 0;
}

static bool word_hex(word_t word, char *out, size_t digits, bool may_be_none)
{
    if (may_be_none && word.len == 1 && word.base[0] == '-') {
        out[0] = '\0';
        return true;
    }
    if (word.len != digits)
        return false;
    for (size_t i = 0; i < digits; ++i) {
        char c = word.base[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
    }
    memcpy(out, word.base, digits);
    out[digits] = '\0';
    return true;
}

static bool word_number(word_t word, int64_t max, int64_t *out)
{
    if (word.len == 0 || word.len > NUMBER_DIGITS_MAX || (word.len > 1 && word.base[0] == '0'))
        return false;
    *out = 0;
    for (size_t i = 0; i < word.len; ++i) {
        if (word.base[i] < '0' || word.base[i] > '9')
            return false;
        *out = *out * 10 + (word.base[i] - '0');
    }
    return *out <= max;
}

static bool word_state(word_t word, ledger_state_t *out)
{
    for (int state = LEDGER_ASKED; state <= LEDGER_CONDEMNED; ++state) {
        if (strlen(STATES[state]) == word.len && memcmp(STATES[state], word.base, word.len) == 0) {
            *out = (ledger_state_t)state;
            return true;
        }
    }
    return false;
}

/* --- a line --- */

static bool split(const char *base, size_t len, word_t words[LEDGER_WORDS])
{
    size_t count = 0, begin = 0;
    for (size_t i = 0; i <= len; ++i) {
        if (i < len && base[i] != ' ')
            continue;
        if (count == LEDGER_WORDS || i == begin)
            return false;
        words[count++] = (word_t){base + begin, i - begin};
        begin = i + 1;
    }
    return count == LEDGER_WORDS;
}

/* A state says which of the other words there are. */
static bool is_consistent(const ledger_entry_t *e)
{
    bool is_condemned = e->state == LEDGER_CONDEMNED;
    if (e->deadline_ms < e->created_ms || (e->tag[0] != '\0') != (e->caller[0] != '\0') ||
        is_condemned != (e->condemned_ms != 0))
        return false;
    return is_condemned || (e->state == LEDGER_NAMED) == (e->id[0] != '\0');
}

bool ledger_entry_parse(const char *base, size_t len, ledger_entry_t *out)
{
    word_t w[LEDGER_WORDS];
    int64_t version, billed, tries, price, reported;

    if (len >= LEDGER_VALUE_MAX || !split(base, len, w))
        return false;
    if (!word_number(w[0], VERSION, &version) || version != VERSION || !word_state(w[1], &out->state) ||
        !word_hex(w[2], out->instance, LEDGER_INSTANCE, false) || !word_text(w[3], out->host, LEDGER_HOST_MAX) ||
        !word_text(w[4], out->place, LEDGER_PLACE_MAX) || !word_number(w[5], LEDGER_TIME_MAX, &out->created_ms) ||
        !word_number(w[6], LEDGER_TIME_MAX, &out->deadline_ms) || !word_number(w[7], 1, &billed) ||
        !word_hex(w[8], out->run, LEDGER_RUN, true) || !word_hex(w[9], out->tag, LEDGER_TAG, true) ||
        !word_text(w[10], out->caller, LEDGER_CALLER_MAX) || !word_text(w[11], out->id, LEDGER_PROVIDER_ID_MAX) ||
        !word_number(w[12], LEDGER_TRIES_MAX, &tries) || !word_number(w[13], LEDGER_TIME_MAX, &out->condemned_ms) ||
        !word_number(w[14], LEDGER_PRICE_MAX, &price) || !word_number(w[15], LEDGER_TIME_MAX, &reported) ||
        !word_text(w[16], out->error, LEDGER_ERROR_MAX))
        return false;
    out->price_micro = (uint64_t)price;
    out->reported_ms = (uint64_t)reported;
    out->is_billed = billed == 1;
    out->tries = (uint32_t)tries;
    return is_consistent(out);
}

size_t ledger_entry_format(const ledger_entry_t *e, char out[LEDGER_VALUE_MAX])
{
    char host[3 * LEDGER_HOST_MAX + 2], place[3 * LEDGER_PLACE_MAX + 2], caller[3 * LEDGER_CALLER_MAX + 2],
        id[3 * LEDGER_PROVIDER_ID_MAX + 2], error[3 * LEDGER_ERROR_MAX + 2];
    ledger_word(e->host, host);
    ledger_word(e->place, place);
    ledger_word(e->caller, caller);
    ledger_word(e->id, id);
    ledger_word(e->error, error);
    return (size_t)snprintf(
        out, LEDGER_VALUE_MAX, "%d %s %s %s %s %lld %lld %d %s %s %s %s %u %lld %llu %llu %s", VERSION,
        STATES[e->state], e->instance, host, place, (long long)e->created_ms, (long long)e->deadline_ms, e->is_billed,
        e->run[0] != '\0' ? e->run : "-", e->tag[0] != '\0' ? e->tag : "-", caller, id, (unsigned)e->tries,
        (long long)e->condemned_ms, (unsigned long long)e->price_micro, (unsigned long long)e->reported_ms, error);
}

static bool is_hex(const char *text, size_t digits)
{
    return text != NULL && strnlen(text, digits + 1) == digits && strspn(text, "0123456789abcdef") == digits;
}

bool ledger_is_stamp(const char *text)
{
    return is_hex(text, LEDGER_STAMP);
}

bool ledger_is_instance(const char *text)
{
    return is_hex(text, LEDGER_INSTANCE);
}

/* --- what a provider said --- */

static bool is_secretive(const char *word, size_t len)
{
    bool has_digit = false, has_letter = false;
    for (size_t i = 0; i < len; ++i) {
        has_digit = has_digit || (word[i] >= '0' && word[i] <= '9');
        has_letter = has_letter || (word[i] >= 'A' && word[i] <= 'Z') || (word[i] >= 'a' && word[i] <= 'z');
    }
    return len >= SECRET_WORD_MIN && has_digit && has_letter;
}

void ledger_scrub(const char *text, char out[LEDGER_ERROR_MAX + 1])
{
    static const char word_bytes[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+/=.-";
    static const char hidden[] = "[...]";
    size_t n = 0;
    while (*text != '\0' && n < LEDGER_ERROR_MAX) {
        size_t len = strspn(text, word_bytes);
        if (is_secretive(text, len)) {
            size_t left = LEDGER_ERROR_MAX - n;
            size_t take = sizeof(hidden) - 1 < left ? sizeof(hidden) - 1 : left;
            memcpy(out + n, hidden, take);
            n += take;
            text += len;
            continue;
        }
        len = len > 0 ? len : 1;
        for (; len > 0 && n < LEDGER_ERROR_MAX; --len, ++text)
            out[n++] = *text >= ' ' && *text <= '~' ? *text : '?';
    }
    out[n] = '\0';
}
