/*
 * The callers file (spec section 1.2): JSON {"clients":[{"id","token_sha256","scopes","paid_seconds_per_day"}]}. Ours
 * adds rotation with overlap: instead of "token_sha256" an entry may carry "tokens", one or two of
 * {"token_sha256","not_before","not_after"} (RFC 3339 UTC, both optional). Immutable once parsed; reference-counted
 * across threads.
 */
#ifndef CONFIG_CALLERS_H
#define CONFIG_CALLERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/options.h"

enum {
    CALLERS_FILE_MAX = 16 * 1024 * 1024, /* bytes */
    CALLERS_MAX = 100000,
    CALLER_ID_MAX = 256, /* bytes */
    CALLER_SCOPES_MAX = 64,
    CALLER_SCOPE_MAX = 256, /* bytes */
    CALLER_TOKENS_MAX = 2,
    TOKEN_MIN = 32, /* characters */
    TOKEN_MAX = 4096,
};

/* Seconds a day; far above what all of a day's runs could use (86,400 x 1,024), and safe to add up. Same as the
 * daemon's own cap. */
#define CALLER_PAID_MAX INT64_C(1000000000000)

typedef struct {
    uint8_t sha256[32];
    int64_t not_before_ms; /* wall; INT64_MIN = always */
    int64_t not_after_ms;  /* wall; INT64_MAX = for ever; the token is valid while now < not_after */
} caller_token_t;

typedef struct {
    char *id;
    caller_token_t tokens[CALLER_TOKENS_MAX];
    size_t token_count;
    char **scopes;
    size_t scope_count;
    uint64_t paid_seconds_per_day; /* 0 = no allowance of its own */
    bool runs;                     /* has code:run or * */
} caller_t;

typedef struct callers callers_t;

/* All problems are reported; NULL when there was any. `allow_empty` for the command line tool. */
callers_t *callers_parse(const char *json, size_t len, bool allow_empty, problems_t *problems);
/* Reads at most CALLERS_FILE_MAX; the text (malloc'ed, NUL-terminated) or NULL with a problem. */
char *callers_read_file(const char *path, size_t *len, problems_t *problems);
callers_t *callers_ref(callers_t *callers);
void callers_unref(callers_t *callers);
size_t callers_count(const callers_t *callers);
const caller_t *callers_at(const callers_t *callers, size_t i);
/* By the SHA-256 of the token as sent; only tokens valid at `wall_ms`. Lookup is by hash, so its timing tells nothing
 * of a token. */
const caller_t *callers_find(const callers_t *callers, const uint8_t sha256[32], int64_t wall_ms);

/* For the tool: builds, edits and writes. The JSON text is two-space indented with a final newline; malloc'ed. */
char *callers_format(const callers_t *callers);

#endif
