#include "cli/page.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "cli/call.h"
#include "cli/command.h"

bool page_options_parse(int argc, char **argv, const struct option *table, page_options_t *options)
{
    *options = (page_options_t){0};
    int opt;
    optind = 0;
    while ((opt = getopt_long(argc, argv, "h", table, NULL)) != -1) {
        if (connection_option(&options->connection, opt, optarg))
            continue;
        switch (opt) {
        case PAGE_OPT_JSON:
            options->json = true;
            break;
        case PAGE_OPT_BACKEND:
            options->connection.backend = optarg;
            break;
        case PAGE_OPT_LIMIT:
            options->limit = optarg;
            break;
        case PAGE_OPT_CURSOR:
            options->cursor = optarg;
            break;
        case 'h':
            options->help = true;
            break;
        default:
            usage_hint(argv[0]);
            return false;
        }
    }
    return true;
}

bool page_connect(const page_options_t *options, connection_t *connection)
{
    char error[CONNECTION_ERROR_MAX];
    if (connection_open(&options->connection, connection, error))
        return true;
    fprintf(stderr, "plimsoll: error: %s\n", error);
    return false;
}

json_t *page_get(const connection_t *connection, const char *path)
{
    failure_t failure;
    json_t *page = call_get(connection, path, &failure);
    if (page == NULL)
        failure_print(&failure, NULL, false);
    return page;
}

const char *cell_text(const json_t *object, const char *member)
{
    const char *text = json_string_value(json_object_get(object, member));
    return text == NULL ? "" : text;
}

const char *cell_int(const json_t *object, const char *member, char out[CELL_MAX])
{
    const json_t *value = json_object_get(object, member);
    out[0] = '\0';
    if (json_is_integer(value))
        snprintf(out, CELL_MAX, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        snprintf(out, CELL_MAX, "%g", json_real_value(value));
    return out;
}

const char *cell_bool(const json_t *object, const char *member)
{
    const json_t *value = json_object_get(object, member);
    return !json_is_boolean(value) ? "" : json_is_true(value) ? "yes" : "no";
}

const char *cell_time(const json_t *object, const char *member, char out[CELL_MAX])
{
    json_int_t ms = json_integer_value(json_object_get(object, member));
    out[0] = '\0';
    time_t seconds = (time_t)(ms / 1000);
    struct tm utc;
    if (ms > 0 && gmtime_r(&seconds, &utc) != NULL && strftime(out, CELL_MAX, "%Y-%m-%d %H:%M:%SZ", &utc) == 0)
        out[0] = '\0';
    return out;
}

const char *cell_span(int64_t ms, char out[CELL_MAX])
{
    if (ms < 1000)
        snprintf(out, CELL_MAX, "%" PRId64 " ms", ms);
    else if (ms < 120000)
        snprintf(out, CELL_MAX, "%.4g s", (double)ms / 1000);
    else
        snprintf(out, CELL_MAX, "%.4g min", (double)ms / 60000);
    return out;
}
