#include "gateway/runs_query.h"

#include <string.h>

#include "config/rfc3339.h"

/* One name=value of a query. */
typedef struct {
    const char *name, *value;
    size_t name_len, value_len;
} pair_t;

static bool next_pair(const char **query, pair_t *out)
{
    size_t len = strcspn(*query, "&");
    const char *equals = memchr(*query, '=', len);
    if (**query == '\0')
        return false;
    out->name = *query;
    out->name_len = equals != NULL ? (size_t)(equals - *query) : len;
    out->value = equals != NULL ? equals + 1 : *query + len;
    out->value_len = len - out->name_len - (equals != NULL);
    *query += len;
    if (**query == '&')
        (*query)++;
    return true;
}

static bool is_named(const pair_t *pair, const char *name)
{
    return pair->name_len == strlen(name) && memcmp(pair->name, name, pair->name_len) == 0;
}

/* Whole decimal numbers up to `max`, without a superfluous zero before them. */
static bool take_number(const pair_t *pair, uint64_t max, uint64_t *out)
{
    uint64_t value = 0;
    if (pair->value_len == 0 || (pair->value_len > 1 && pair->value[0] == '0'))
        return false;
    for (size_t i = 0; i < pair->value_len; i++) {
        unsigned digit = (unsigned char)pair->value[i] - '0';
        if (digit > 9 || value > (max - digit) / 10 || digit > max)
            return false;
        value = value * 10 + digit;
    }
    *out = value;
    return true;
}

static bool take_word(const pair_t *pair, const char *allowed, char *out, size_t max)
{
    if (pair->value_len == 0 || pair->value_len > max)
        return false;
    for (size_t i = 0; i < pair->value_len; i++)
        if (pair->value[i] == '\0' || strchr(allowed, pair->value[i]) == NULL)
            return false;
    memcpy(out, pair->value, pair->value_len);
    out[pair->value_len] = '\0';
    return true;
}

/* Unix milliseconds, or a time such as 2026-11-30T00:00:00Z, whose characters stand in a query as they are. */
static bool take_time(const pair_t *pair, int64_t *out)
{
    const int64_t latest = INT64_C(253402300799999); /* the end of the year 9999 */
    uint64_t ms;
    if (take_number(pair, (uint64_t)latest, &ms)) {
        *out = (int64_t)ms;
        return true;
    }
    return rfc3339_parse(pair->value, pair->value_len, out) && *out >= 0;
}

static bool is_one_of(const char *word, const char *const *words)
{
    for (; *words != NULL; words++)
        if (strcmp(word, *words) == 0)
            return true;
    return false;
}

static const char *take_runs_pair(const pair_t *pair, runs_query_t *out, unsigned *seen)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    static const char *const verdicts[] = {"answered", "refused", "unknown", NULL};
    static const char *const kinds[] = {"javascript", "project", "module", NULL};
    static const char *const names[] = {"limit", "cursor", "verdict", "backend", "kind", "since", "until", "receipts"};
    uint64_t number;
    unsigned at = 0;
    while (at < sizeof(names) / sizeof(names[0]) && !is_named(pair, names[at]))
        at++;
    if (at == sizeof(names) / sizeof(names[0]))
        return "the query may hold limit, cursor, verdict, backend, kind, since, until and receipts";
    if ((*seen & 1u << at) != 0)
        return "a name stands in the query more than once";
    *seen |= 1u << at;
    switch (at) {
    case 0:
        if (!take_number(pair, RUNS_PAGE_MAX, &number) || number == 0)
            return "limit must be a number from 1 to 500";
        out->limit = (uint32_t)number;
        return NULL;
    case 1:
        return take_word(pair, letters, out->cursor, RUNS_CURSOR_MAX) ? NULL : "cursor is not one this gateway gave";
    case 2:
        return take_word(pair, letters, out->verdict, RUNS_WORD_MAX) && is_one_of(out->verdict, verdicts)
                   ? NULL
                   : "verdict must be answered, refused or unknown";
    case 3:
        return take_word(pair, letters, out->backend, RUNS_WORD_MAX) ? NULL : "backend must be a backend's name";
    case 4:
        return take_word(pair, letters, out->kind, RUNS_WORD_MAX) && is_one_of(out->kind, kinds)
                   ? NULL
                   : "kind must be javascript, project or module";
    case 5:
        return take_time(pair, &out->since_unix_ms)
                   ? NULL
                   : "since must be milliseconds since 1970 or a time such as 2026-11-30T00:00:00Z";
    case 6:
        return take_time(pair, &out->until_unix_ms)
                   ? NULL
                   : "until must be milliseconds since 1970 or a time such as 2026-11-30T00:00:00Z";
    default:
        if (!take_number(pair, 1, &number))
            return "receipts must be 1 or 0";
        out->receipts = number == 1;
        return NULL;
    }
}

const char *runs_query_parse(const char *query, runs_query_t *out)
{
    unsigned seen = 0;
    pair_t pair;
    const char *wrong = NULL;
    *out = (runs_query_t){.limit = RUNS_PAGE_DEFAULT};
    while (wrong == NULL && next_pair(&query, &pair))
        wrong = take_runs_pair(&pair, out, &seen);
    if (wrong == NULL && out->receipts && out->verdict[0] != '\0' && strcmp(out->verdict, "refused") != 0)
        return "receipts are of refused runs alone";
    if (wrong == NULL && out->until_unix_ms != 0 && out->until_unix_ms <= out->since_unix_ms)
        return "until must be later than since";
    return wrong;
}

store_runs_query_t runs_query_for_store(const runs_query_t *q)
{
    return (store_runs_query_t){
        .limit = q->limit,
        .cursor = q->cursor[0] != '\0' ? q->cursor : NULL,
        .receipts = q->receipts,
        .verdict = q->verdict[0] != '\0' ? q->verdict : NULL,
        .backend = q->backend[0] != '\0' ? q->backend : NULL,
        .kind = q->kind[0] != '\0' ? q->kind : NULL,
        .since_unix_ms = q->since_unix_ms,
        .until_unix_ms = q->until_unix_ms,
    };
}

const char *key_query_parse(const char *query, uint32_t *wait_s)
{
    static const char wrong[] = "the query may hold wait, once: whole seconds from 0 to 60";
    uint64_t number = 0;
    pair_t pair;
    bool seen = false;
    while (next_pair(&query, &pair)) {
        if (seen || !is_named(&pair, "wait") || !take_number(&pair, KEY_WAIT_MAX_S, &number))
            return wrong;
        seen = true;
    }
    *wait_s = (uint32_t)number;
    return NULL;
}
