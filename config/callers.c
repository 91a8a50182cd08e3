#include "config/callers.h"

#include <sodium.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "config/callers_set.h"
#include "core/mem.h"
#include "core/random.h"

enum { CALLERS_MAGIC = 0x43414c4c };

struct callers {
    uint32_t _magic;
    atomic_size_t _refs;
    caller_t *_list;
    size_t _count, _capacity;
    /* Open addressing by a keyed hash of the token's hash, so no choice of tokens or of file makes a search long. A
     * slot is 1 + caller * CALLER_TOKENS_MAX + token; 0 is free, and at least half of them are, so every search ends.
     */
    uint32_t *_slots;
    size_t _mask;
    uint8_t _key[crypto_shorthash_KEYBYTES];
};

static void check_magic(const callers_t *callers)
{
    if (callers->_magic != CALLERS_MAGIC)
        mem_fatal("not a set of callers");
}

callers_t *callers_begin(void)
{
    callers_t *callers = mem_alloc(sizeof(*callers));

    callers->_magic = CALLERS_MAGIC;
    atomic_init(&callers->_refs, 1);
    random_init();
    random_bytes(callers->_key, sizeof(callers->_key));
    return callers;
}

callers_t *callers_ref(callers_t *callers)
{
    check_magic(callers);
    atomic_fetch_add_explicit(&callers->_refs, 1, memory_order_relaxed);
    return callers;
}

static void caller_dispose(caller_t *caller)
{
    for (size_t i = 0; i < caller->scope_count; i++)
        free(caller->scopes[i]);
    free(caller->scopes);
    free(caller->id);
}

void callers_unref(callers_t *callers)
{
    if (callers == NULL)
        return;
    check_magic(callers);
    /* release what this thread read, and acquire what the others did before the last one frees */
    if (atomic_fetch_sub_explicit(&callers->_refs, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < callers->_count; i++)
        caller_dispose(&callers->_list[i]);
    free(callers->_list);
    free(callers->_slots);
    callers->_magic = 0;
    free(callers);
}

size_t callers_count(const callers_t *callers)
{
    check_magic(callers);
    return callers->_count;
}

const caller_t *callers_at(const callers_t *callers, size_t i)
{
    check_magic(callers);
    return i < callers->_count ? &callers->_list[i] : NULL;
}

caller_t *callers_append(callers_t *callers)
{
    if (callers->_count == callers->_capacity) {
        callers->_capacity = callers->_capacity != 0 ? callers->_capacity * 2 : 16;
        callers->_list = mem_realloc(callers->_list, callers->_capacity * sizeof(callers->_list[0]));
    }
    callers->_list[callers->_count] = (caller_t){.id = NULL};
    return &callers->_list[callers->_count++];
}

caller_t *callers_append_copy(callers_t *callers, const caller_t *from)
{
    caller_t *to = callers_append(callers);

    to->id = mem_strdup(from->id);
    memcpy(to->tokens, from->tokens, sizeof(to->tokens));
    to->token_count = from->token_count;
    for (size_t i = 0; i < from->scope_count; i++)
        caller_add_scope(to, from->scopes[i], strlen(from->scopes[i]));
    to->paid_seconds_per_day = from->paid_seconds_per_day;
    to->runs = from->runs;
    return to;
}

static size_t slot_of(const callers_t *callers, const uint8_t sha256[32])
{
    uint64_t hash;

    crypto_shorthash((unsigned char *)&hash, sha256, 32, callers->_key);
    return (size_t)hash & callers->_mask;
}

/* The slot that holds the hash, or the free one where it would go. */
static uint32_t *slot_find(const callers_t *callers, const uint8_t sha256[32])
{
    size_t at = slot_of(callers, sha256);

    for (;; at = (at + 1) & callers->_mask) {
        uint32_t *slot = &callers->_slots[at];
        const caller_t *caller;
        if (*slot == 0)
            return slot;
        caller = &callers->_list[(*slot - 1) / CALLER_TOKENS_MAX];
        if (sodium_memcmp(caller->tokens[(*slot - 1) % CALLER_TOKENS_MAX].sha256, sha256, 32) == 0)
            return slot;
    }
}

static void problem_of_shared_token(const callers_t *callers, size_t first, size_t second, problems_t *problems)
{
    char a[CALLER_WHERE_MAX], b[CALLER_WHERE_MAX];

    caller_where(a, first, callers->_list[first].id);
    if (first == second)
        problems_add(problems, "%s: has the same \"token_sha256\" twice", a);
    else
        problems_add(problems, "%s: has the \"token_sha256\" of %s", caller_where(b, second, callers->_list[second].id),
                     a);
}

static void index_tokens(callers_t *callers, problems_t *problems)
{
    size_t size = 2;

    while (size < callers->_count * CALLER_TOKENS_MAX * 2)
        size *= 2;
    callers->_slots = mem_alloc_array(size, sizeof(callers->_slots[0]));
    callers->_mask = size - 1;
    for (size_t i = 0; i < callers->_count; i++)
        for (size_t t = 0; t < callers->_list[i].token_count; t++) {
            uint32_t *slot = slot_find(callers, callers->_list[i].tokens[t].sha256);
            if (*slot != 0)
                problem_of_shared_token(callers, (*slot - 1) / CALLER_TOKENS_MAX, i, problems);
            else
                *slot = (uint32_t)(1 + i * CALLER_TOKENS_MAX + t);
        }
}

static int by_id(const void *a, const void *b)
{
    const caller_t *x = *(const caller_t *const *)a, *y = *(const caller_t *const *)b;
    int order = strcmp(x->id, y->id);

    return order != 0 ? order : (x > y) - (x < y);
}

static void check_ids(const callers_t *callers, problems_t *problems)
{
    const caller_t **sorted = mem_alloc_array(callers->_count + 1, sizeof(sorted[0]));
    char where[CALLER_WHERE_MAX];
    size_t count = 0;

    for (size_t i = 0; i < callers->_count; i++)
        if (callers->_list[i].id != NULL)
            sorted[count++] = &callers->_list[i];
    qsort(sorted, count, sizeof(sorted[0]), by_id);
    for (size_t i = 1; i < count; i++)
        if (strcmp(sorted[i - 1]->id, sorted[i]->id) == 0)
            problems_add(problems, "%s: has the \"id\" of clients[%zu]",
                         caller_where(where, (size_t)(sorted[i] - callers->_list), sorted[i]->id),
                         (size_t)(sorted[i - 1] - callers->_list));
    free(sorted);
}

void callers_seal(callers_t *callers, problems_t *problems)
{
    if (callers->_count > CALLERS_MAX)
        problems_add(problems, "there are %zu callers; the most is %d", callers->_count, CALLERS_MAX);
    check_ids(callers, problems);
    index_tokens(callers, problems);
}

static bool is_valid_at(const caller_token_t *token, int64_t wall_ms)
{
    return wall_ms >= token->not_before_ms && wall_ms < token->not_after_ms;
}

const caller_t *callers_find(const callers_t *callers, const uint8_t sha256[32], int64_t wall_ms)
{
    const caller_t *caller;
    uint32_t slot;

    check_magic(callers);
    slot = *slot_find(callers, sha256);
    if (slot == 0)
        return NULL;
    caller = &callers->_list[(slot - 1) / CALLER_TOKENS_MAX];
    return is_valid_at(&caller->tokens[(slot - 1) % CALLER_TOKENS_MAX], wall_ms) ? caller : NULL;
}

_Static_assert(crypto_shorthash_BYTES == sizeof(uint64_t), "slot_of takes the whole hash");
