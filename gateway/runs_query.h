/* The query of GET /v1/runs and of GET /v1/runs/by-key/KEY: name=value pairs, each name once, nothing else. Pure;
 * fuzzed.
 */
#ifndef GATEWAY_RUNS_QUERY_H
#define GATEWAY_RUNS_QUERY_H

#include <stdbool.h>
#include <stdint.h>

#include "gateway/limits.h"
#include "records/store.h"

enum { RUNS_PAGE_DEFAULT = 50, RUNS_PAGE_MAX = 500, RUNS_CURSOR_MAX = 128, RUNS_WORD_MAX = 32 };

typedef struct {
    uint32_t limit; /* 1 to RUNS_PAGE_MAX */
    char cursor[RUNS_CURSOR_MAX + 1];
    char verdict[RUNS_WORD_MAX + 1], backend[RUNS_WORD_MAX + 1], kind[RUNS_WORD_MAX + 1]; /* "" = all */
    int64_t since_unix_ms, until_unix_ms;                                                 /* 0 = all */
    bool receipts;
} runs_query_t;

/* limit=N cursor=C verdict=V backend=B kind=K since=T until=T receipts=1; a time is Unix milliseconds or RFC 3339 UTC.
 * NULL, or what is wrong (static text). */
const char *runs_query_parse(const char *query, runs_query_t *out);
/* What the store is asked; points into `query`. */
store_runs_query_t runs_query_for_store(const runs_query_t *query);

/* wait=SECONDS, 0 to KEY_WAIT_MAX_S. */
const char *key_query_parse(const char *query, uint32_t *wait_s);

#endif
