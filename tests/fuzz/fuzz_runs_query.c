/* The queries of the pages from hostile bytes: never a crash, and what is accepted is within its bounds. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/runs_query.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *query = malloc(size + 1);
    runs_query_t q;
    uint32_t wait_s = 0;
    check(query != NULL);
    memcpy(query, data, size);
    query[size] = '\0';
    if (runs_query_parse(query, &q) == NULL) {
        check(q.limit >= 1 && q.limit <= RUNS_PAGE_MAX);
        check(q.since_unix_ms >= 0 && q.until_unix_ms >= 0);
        check(q.until_unix_ms == 0 || q.until_unix_ms > q.since_unix_ms);
        check(strlen(q.cursor) <= RUNS_CURSOR_MAX && strpbrk(q.cursor, "&=%/ ") == NULL);
        const store_runs_query_t s = runs_query_for_store(&q);
        check((s.backend == NULL) == (q.backend[0] == '\0'));
    }
    if (key_query_parse(query, &wait_s) == NULL)
        check(wait_s <= KEY_WAIT_MAX_S);
    free(query);
    return 0;
}
