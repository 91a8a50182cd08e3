/* The options of `plimsoll runs`, and the path of a page they ask for. */
#ifndef CLI_RUNS_OPTIONS_H
#define CLI_RUNS_OPTIONS_H

#include <stdbool.h>

#include "cli/connection.h"

enum {
    RUNS_LIMIT_MAX = 500,  /* the gateway gives no more at once */
    RUNS_CURSOR_MAX = 128, /* characters */
    RUNS_VALUE_MAX = 32,   /* characters of a filter's value */
    RUNS_PATH_MAX = 512,
    RUNS_WAIT_MAX = 60, /* seconds; the gateway waits no longer */
};

/* Names in the query of GET /v1/runs, in the order they are written. */
typedef enum {
    RUNS_FILTER_VERDICT,
    RUNS_FILTER_BACKEND,
    RUNS_FILTER_KIND,
    RUNS_FILTER_SINCE,
    RUNS_FILTER_UNTIL,
    RUNS_FILTER_COUNT
} runs_filter_t;

typedef struct {
    connection_options_t connection;
    const char *limit, *cursor, *wait;      /* NULL = not given */
    const char *filters[RUNS_FILTER_COUNT]; /* likewise */
    bool receipts, records, json, help;
} runs_options_t;

/* false: a usage error, told. The first other argument is at argv[optind] afterwards. */
bool runs_options_parse(int argc, char **argv, runs_options_t *options);
/* NULL, or what is wrong with a value (static text). */
const char *runs_options_check(const runs_options_t *options);
/* "/v1/runs?limit=…" of options that passed the check; `limit` and `cursor` as text, NULL = none. */
void runs_options_path(const runs_options_t *options, const char *limit, const char *cursor, char out[RUNS_PATH_MAX]);

#endif
