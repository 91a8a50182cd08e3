#include "cli/runs_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"

#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

enum {
    RUNS_OPT_JSON = CONNECTION_OPT_END,
    RUNS_OPT_LIMIT,
    RUNS_OPT_CURSOR,
    RUNS_OPT_WAIT,
    RUNS_OPT_RECEIPTS,
    RUNS_OPT_RECORDS,
    RUNS_OPT_FILTER, /* + runs_filter_t */
};

static const char *const FILTER_NAMES[RUNS_FILTER_COUNT] = {"verdict", "backend", "kind", "since", "until"};

static const struct option OPTIONS_TABLE[] = {
    CONNECTION_LONG_OPTIONS,
    {"limit", required_argument, NULL, RUNS_OPT_LIMIT},
    {"cursor", required_argument, NULL, RUNS_OPT_CURSOR},
    {"verdict", required_argument, NULL, RUNS_OPT_FILTER + RUNS_FILTER_VERDICT},
    {"backend", required_argument, NULL, RUNS_OPT_FILTER + RUNS_FILTER_BACKEND},
    {"kind", required_argument, NULL, RUNS_OPT_FILTER + RUNS_FILTER_KIND},
    {"since", required_argument, NULL, RUNS_OPT_FILTER + RUNS_FILTER_SINCE},
    {"until", required_argument, NULL, RUNS_OPT_FILTER + RUNS_FILTER_UNTIL},
    {"wait", required_argument, NULL, RUNS_OPT_WAIT},
    {"receipts", no_argument, NULL, RUNS_OPT_RECEIPTS},
    {"records", no_argument, NULL, RUNS_OPT_RECORDS},
    {"json", no_argument, NULL, RUNS_OPT_JSON},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static bool take(runs_options_t *options, int opt)
{
    if (opt >= RUNS_OPT_FILTER && opt < RUNS_OPT_FILTER + RUNS_FILTER_COUNT) {
        options->filters[opt - RUNS_OPT_FILTER] = optarg;
        return true;
    }
    switch (opt) {
    case RUNS_OPT_JSON:
        return options->json = true;
    case RUNS_OPT_LIMIT:
        options->limit = optarg;
        return true;
    case RUNS_OPT_CURSOR:
        options->cursor = optarg;
        return true;
    case RUNS_OPT_WAIT:
        options->wait = optarg;
        return true;
    case RUNS_OPT_RECEIPTS:
        return options->receipts = true;
    case RUNS_OPT_RECORDS:
        return options->records = true;
    case 'h':
        return options->help = true;
    default:
        return false;
    }
}

bool runs_options_parse(int argc, char **argv, runs_options_t *options)
{
    int opt;
    *options = (runs_options_t){.limit = NULL};
    optind = 0;
    while ((opt = getopt_long(argc, argv, "h", OPTIONS_TABLE, NULL)) != -1)
        if (!connection_option(&options->connection, opt, optarg) && !take(options, opt)) {
            usage_hint(argv[0]);
            return false;
        }
    return true;
}

/* Characters that stand in a URL as they are, so nothing given here can become another path or parameter. */
static bool is_made_of(const char *text, size_t max, const char *characters)
{
    size_t len = strlen(text);
    return len >= 1 && len <= max && strspn(text, characters) == len;
}

/* As the gateway takes it: no superfluous zero. */
static bool wait_is_valid(const char *text)
{
    return is_made_of(text, 2, DIGITS) && atoi(text) <= RUNS_WAIT_MAX && (text[0] != '0' || text[1] == '\0');
}

static bool limit_is_valid(const char *text)
{
    return is_made_of(text, 4, DIGITS) && atoi(text) >= 1 && atoi(text) <= RUNS_LIMIT_MAX;
}

const char *runs_options_check(const runs_options_t *options)
{
    if (options->limit != NULL && !limit_is_valid(options->limit))
        return "--limit is 1 to 500";
    if (options->wait != NULL && !wait_is_valid(options->wait))
        return "--wait is 0 to 60 seconds";
    if (options->cursor != NULL && !is_made_of(options->cursor, RUNS_CURSOR_MAX, LOWER UPPER DIGITS "._-"))
        return "--cursor is what an earlier list ended with";
    for (int i = 0; i < RUNS_FILTER_COUNT; i++)
        if (options->filters[i] != NULL && !is_made_of(options->filters[i], RUNS_VALUE_MAX, LOWER UPPER DIGITS "._-:"))
            return "--verdict, --backend and --kind take a word, --since and --until a time such as "
                   "2026-11-30T00:00:00Z or milliseconds since 1970";
    return NULL;
}

void runs_options_path(const runs_options_t *options, const char *limit, const char *cursor, char out[RUNS_PATH_MAX])
{
    /* 8 + 5 x (9 + 32) + 10 + 8 + 136 characters at most */
    size_t len = (size_t)snprintf(out, RUNS_PATH_MAX, "/v1/runs");
    char before = '?';
    for (int i = 0; i < RUNS_FILTER_COUNT; i++)
        if (options->filters[i] != NULL) {
            len += (size_t)snprintf(out + len, RUNS_PATH_MAX - len, "%c%s=%s", before, FILTER_NAMES[i],
                                    options->filters[i]);
            before = '&';
        }
    if (options->receipts) {
        len += (size_t)snprintf(out + len, RUNS_PATH_MAX - len, "%creceipts=1", before);
        before = '&';
    }
    if (limit != NULL) {
        len += (size_t)snprintf(out + len, RUNS_PATH_MAX - len, "%climit=%s", before, limit);
        before = '&';
    }
    if (cursor != NULL)
        snprintf(out + len, RUNS_PATH_MAX - len, "%ccursor=%s", before, cursor);
}
