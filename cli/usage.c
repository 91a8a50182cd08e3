/* `plimsoll usage`: GET /v1/usage; with --all, the operator's view of every caller. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/page.h"
#include "cli/run_print.h"
#include "cli/table.h"
#include "cli/usage_all.h"

static const char HELP[] =
    "Usage: plimsoll usage [OPTION]...\n"
    "       plimsoll usage --all [--day YYYYMMDD] [--json]\n"
    "\n"
    "What this caller has used of what it may, by the gateway's count over all its copies: runs at once, the rate, "
    "runs\n"
    "of the window, and of this UTC day sandbox time, paid time and cost. Held is what runs in flight may still come "
    "to.\n"
    "A cost without a price is unknown, never zero.\n"
    "\n"
    "  --all              every caller's day, and all of them together: asks the Redis of PLIMSOLL_REDIS_URL, or the\n"
    "                     private one in PLIMSOLL_STATE_DIR, so it is for whoever may read that\n"
    "  --day YYYYMMDD     of --all: another of the last 40 days\n"
    "  --json             as JSON\n"
    "  -h, --help         this text\n"
    "\n" CONNECTION_HELP;

enum { USAGE_OPT_JSON = CONNECTION_OPT_END, USAGE_OPT_ALL, USAGE_OPT_DAY };

static const struct option OPTIONS_TABLE[] = {
    CONNECTION_LONG_OPTIONS,
    {"all", no_argument, NULL, USAGE_OPT_ALL},
    {"day", required_argument, NULL, USAGE_OPT_DAY},
    {"json", no_argument, NULL, USAGE_OPT_JSON},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

typedef struct {
    page_options_t page;
    bool all;
    const char *day;
} usage_options_t;

static bool parse(int argc, char **argv, usage_options_t *options)
{
    int opt;
    *options = (usage_options_t){.all = false};
    optind = 0;
    while ((opt = getopt_long(argc, argv, "h", OPTIONS_TABLE, NULL)) != -1) {
        if (connection_option(&options->page.connection, opt, optarg))
            continue;
        if (opt == USAGE_OPT_JSON)
            options->page.json = true;
        else if (opt == USAGE_OPT_ALL)
            options->all = true;
        else if (opt == USAGE_OPT_DAY)
            options->day = optarg;
        else if (opt == 'h')
            options->page.help = true;
        else {
            usage_hint(argv[0]);
            return false;
        }
    }
    return true;
}

/* YYYYMMDD of the calendar: timegm moves what is none, such as 20260230, to another day. */
static bool is_day(const char *text)
{
    char again[9];
    if (strlen(text) != 8 || strspn(text, "0123456789") != 8)
        return false;
    int n = atoi(text);
    struct tm tm = {.tm_year = n / 10000 - 1900, .tm_mon = n / 100 % 100 - 1, .tm_mday = n % 100};
    time_t day = timegm(&tm);
    return gmtime_r(&day, &tm) != NULL && strftime(again, sizeof(again), "%Y%m%d", &tm) == 8 &&
           strcmp(again, text) == 0;
}

/* --- the caller's own --- */

static const char *cell_seconds(const json_t *object, const char *member, char out[CELL_MAX])
{
    const json_t *value = json_object_get(object, member);
    json_int_t ms = json_integer_value(value);
    out[0] = '\0';
    if (json_is_integer(value) && ms >= 0)
        snprintf(out, CELL_MAX, "%" JSON_INTEGER_FORMAT ".%03d s", ms / 1000, (int)(ms % 1000));
    return out;
}

static const char *cell_reset(const json_t *object, const char *member, char out[CELL_MAX])
{
    const json_t *value = json_object_get(object, member);
    out[0] = '\0';
    if (json_is_integer(value) && json_integer_value(value) >= 0)
        cell_span(json_integer_value(value), out);
    return out;
}

static const char *cell_limit(const char *text)
{
    return text[0] != '\0' ? text : "none";
}

static void add_count(table_t *table, const char *what, const json_t *object, const char *used, const char *resets)
{
    char now[CELL_MAX], limit[CELL_MAX], reset[CELL_MAX];
    const char *cells[] = {what, cell_int(object, used, now), NULL, cell_limit(cell_int(object, "limit", limit)),
                           cell_reset(object, resets, reset)};
    table_add(table, cells);
}

static void add_rate(table_t *table, const json_t *rate)
{
    char left[CELL_MAX], limit[CELL_MAX], reset[CELL_MAX], used[CELL_MAX] = "";
    if (json_is_object(rate))
        snprintf(used, sizeof(used), "%.20s left", cell_int(rate, "remaining", left));
    const char *cells[] = {"starts, as a burst", used, NULL, cell_limit(cell_int(rate, "burst", limit)),
                           cell_reset(rate, "full_in_ms", reset)};
    table_add(table, cells);
}

static void add_time(table_t *table, const char *what, const json_t *object)
{
    char spent[CELL_MAX], held[CELL_MAX], limit[CELL_MAX], reset[CELL_MAX];
    const char *cells[] = {what, cell_seconds(object, "spent", spent), cell_seconds(object, "held", held),
                           cell_limit(cell_seconds(object, "limit", limit)), cell_reset(object, "resets_in_ms", reset)};
    table_add(table, cells);
}

static const char *money(const json_t *cost, const char *member, char out[CELL_MAX])
{
    const char *text = cell_text(cost, member), *currency = cell_text(cost, "currency");
    bool is_number = text[0] != '\0' && strcmp(text, "unknown") != 0;
    snprintf(out, CELL_MAX, "%.24s%s%.8s", text, is_number && currency[0] != '\0' ? " " : "",
             is_number ? currency : "");
    return out;
}

static void add_cost(table_t *table, const json_t *cost)
{
    char spent[CELL_MAX], held[CELL_MAX], limit[CELL_MAX], reset[CELL_MAX];
    const char *cells[] = {"cost of the day", money(cost, "spent", spent), money(cost, "held", held),
                           cell_limit(money(cost, "limit", limit)), cell_reset(cost, "resets_in_ms", reset)};
    table_add(table, cells);
}

static void show(const json_t *page)
{
    static const char *const HEADINGS[] = {"COUNT", "USED", "HELD", "LIMIT", "RESETS IN"};
    table_t *table = table_create(HEADINGS, sizeof(HEADINGS) / sizeof(HEADINGS[0]));
    char runs[CELL_MAX];
    const char *today[] = {"runs of the day", cell_int(page, "runs", runs), NULL, NULL, NULL};
    add_count(table, "runs at once", json_object_get(page, "slots"), "used", "");
    add_rate(table, json_object_get(page, "rate"));
    add_count(table, "runs of the window", json_object_get(page, "window"), "runs", "resets_in_ms");
    table_add(table, today);
    add_time(table, "sandbox time of the day", json_object_get(page, "sandbox_ms"));
    add_time(table, "paid time of the day", json_object_get(page, "paid_ms"));
    add_cost(table, json_object_get(page, "cost"));
    table_print(table, stdout);
    table_destroy(table);
}

static int usage_own(const page_options_t *options)
{
    connection_t connection;
    if (!page_connect(options, &connection))
        return CLI_FAILED;
    json_t *page = page_get(&connection, "/v1/usage");
    connection_dispose(&connection);
    if (page == NULL)
        return CLI_FAILED;
    bool told = true;
    if (options->json)
        told = json_print(page);
    else
        show(page);
    json_decref(page);
    return told && fflush(stdout) == 0 ? CLI_OK : CLI_FAILED;
}

int command_usage(int argc, char **argv)
{
    usage_options_t options;
    if (!parse(argc, argv, &options))
        return CLI_USAGE;
    if (options.page.help)
        return print_help(HELP);
    if (optind != argc)
        return usage_error(argv[0], "it takes no arguments");
    if (options.day != NULL && (!options.all || !is_day(options.day)))
        return usage_error(argv[0], "--day is of --all, and is a UTC day such as 20261130");
    return options.all ? usage_all(options.day, options.page.json) : usage_own(&options.page);
}
