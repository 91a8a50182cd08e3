/* What the commands that only look share: their options, their failures, and cells of a table out of JSON. */
#ifndef CLI_PAGE_H
#define CLI_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <jansson.h>

#include "cli/connection.h"
#include "cli/failure.h"

/* Values of getopt_long beside those of connection.h. */
enum { PAGE_OPT_JSON = CONNECTION_OPT_END, PAGE_OPT_BACKEND, PAGE_OPT_LIMIT, PAGE_OPT_CURSOR };

typedef struct {
    connection_options_t connection;
    const char *limit, *cursor; /* NULL = not given */
    bool json, help;
} page_options_t;

/* Takes the options of `table`; the first other argument is at argv[optind] afterwards. false: a usage error, told. */
bool page_options_parse(int argc, char **argv, const struct option *table, page_options_t *options);
/* Opens the connection; false with the reason told on stderr. */
bool page_connect(const page_options_t *options, connection_t *connection);
/* GETs a page; NULL with the failure told on stderr. */
json_t *page_get(const connection_t *connection, const char *path);

/* Cells: text of a member, "" when absent. `out` holds numbers, times and yes/no. */
enum { CELL_MAX = 48 };
const char *cell_text(const json_t *object, const char *member);
const char *cell_int(const json_t *object, const char *member, char out[CELL_MAX]);
const char *cell_bool(const json_t *object, const char *member);
/* Milliseconds since 1970 as 2026-01-31 12:00:00Z; "" for 0 and nonsense. */
const char *cell_time(const json_t *object, const char *member, char out[CELL_MAX]);
/* A count of milliseconds as "250 ms", "12.5 s" or "5 min". */
const char *cell_span(int64_t ms, char out[CELL_MAX]);

#endif
