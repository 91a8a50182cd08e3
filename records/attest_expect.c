#include "records/attest_expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "records/attest_statement.h"

enum {
    ERROR_MAX = 128,
    LABEL_MAX = 64, /* bytes of a label or trace ID that are told */
    DIGEST_TOLD = 16,
};

typedef struct {
    char sha256[SHA256_HEX + 1];
    char *label; /* NULL = none */
} item_t;

typedef struct {
    item_t *items;
    size_t count, cap;
} list_t;

struct attest_expect {
    list_t wanted, seen;
    char error[ERROR_MAX];
};

attest_expect_t *attest_expect_create(void)
{
    return mem_alloc(sizeof(attest_expect_t));
}

static void list_dispose(list_t *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i].label);
    free(list->items);
}

void attest_expect_destroy(attest_expect_t *expect)
{
    if (expect == NULL)
        return;
    list_dispose(&expect->wanted);
    list_dispose(&expect->seen);
    free(expect);
}

static void add(list_t *list, const char *sha256, const char *label, size_t label_len)
{
    if (list->count == list->cap) {
        list->cap = list->cap == 0 ? 64 : 2 * list->cap;
        list->items = mem_realloc(list->items, list->cap * sizeof(*list->items));
    }
    item_t *item = &list->items[list->count++];
    memcpy(item->sha256, sha256, sizeof(item->sha256));
    if (label_len > LABEL_MAX)
        label_len = LABEL_MAX;
    item->label = label_len != 0 ? mem_strndup(label, label_len) : NULL;
}

void attest_expect_seen(attest_expect_t *expect, const char request_sha256[SHA256_HEX + 1], const char *trace_id)
{
    add(&expect->seen, request_sha256, trace_id, trace_id != NULL ? strlen(trace_id) : 0);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

static const char *skip(const char *at, const char *end, bool spaces)
{
    while (at < end && is_space(*at) == spaces)
        at++;
    return at;
}

const char *attest_expect_list(attest_expect_t *expect, const char *text, size_t len)
{
    const char *end = text + len;
    size_t number = 0;
    for (const char *at = text; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *line_end = newline != NULL ? newline : end;
        const char *word = skip(at, line_end, true), *word_end = skip(word, line_end, false);
        const char *label = skip(word_end, line_end, true), *label_end = line_end;
        while (label_end > label && is_space(label_end[-1]))
            label_end--;
        char sha256[SHA256_HEX + 1] = "";
        number++;
        at = newline != NULL ? newline + 1 : end;
        if (word == line_end)
            continue;
        if ((size_t)(word_end - word) == SHA256_HEX)
            memcpy(sha256, word, SHA256_HEX);
        if (!attest_is_digest(sha256)) {
            snprintf(expect->error, sizeof(expect->error),
                     "line %zu of the list does not begin with 64 lowercase hex digits", number);
            return expect->error;
        }
        add(&expect->wanted, sha256, label, (size_t)(label_end - label));
    }
    return NULL;
}

static int by_digest(const void *a, const void *b)
{
    return strcmp(((const item_t *)a)->sha256, ((const item_t *)b)->sha256);
}

typedef struct {
    buffer_t *out;
    size_t told, left_off;
} telling_t;

static void tell(telling_t *telling, const char *what, const item_t *item)
{
    if (telling->told == ATTEST_EXPECT_NAMED) {
        telling->left_off++;
        return;
    }
    buffer_printf(telling->out, "%s%s %.*s", telling->told++ == 0 ? "" : ", ", what, DIGEST_TOLD, item->sha256);
    if (item->label != NULL)
        buffer_printf(telling->out, " (%s)", item->label);
}

bool attest_expect_holds(attest_expect_t *expect, buffer_t *out)
{
    list_t *wanted = &expect->wanted, *seen = &expect->seen;
    telling_t telling = {.out = out};
    if (wanted->count != 0)
        qsort(wanted->items, wanted->count, sizeof(item_t), by_digest);
    if (seen->count != 0)
        qsort(seen->items, seen->count, sizeof(item_t), by_digest);
    size_t w = 0, s = 0;
    while (w < wanted->count || s < seen->count) {
        int order = w == wanted->count ? 1
                    : s == seen->count ? -1
                                       : strcmp(wanted->items[w].sha256, seen->items[s].sha256);
        if (order < 0)
            tell(&telling, "missing", &wanted->items[w]);
        else if (order > 0)
            tell(&telling, "unexpected", &seen->items[s]);
        w += order <= 0;
        s += order >= 0;
    }
    if (telling.left_off != 0)
        buffer_printf(out, " and %zu more", telling.left_off);
    return telling.told == 0;
}
