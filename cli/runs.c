/* `plimsoll runs list` and `plimsoll runs show`: GET /v1/runs and /v1/runs/ID. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/page.h"
#include "cli/run_print.h"
#include "cli/stored_run.h"
#include "cli/table.h"
#include "cli/terminal.h"

static const char HELP[] =
    "Usage: plimsoll runs list [--limit N] [--cursor C] [OPTION]...\n"
    "       plimsoll runs show RUN [OPTION]...\n"
    "\n"
    "The caller's own runs, newest first, as the gateway recorded them. `show` prints one with its record and checks\n"
    "the record's digest. Verdicts: answered (it ran), refused (nothing ran), unknown (it may have run).\n"
    "\n"
    "  --limit N          at most so many, 1 to 500\n"
    "  --cursor C         go on from where an earlier list ended\n"
    "  --json             the gateway's answer as it is\n"
    "  -h, --help         this text\n"
    "\n" CONNECTION_HELP;

enum {
    RUNS_LIMIT_MAX = 500, /* the gateway gives no more at once */
    CURSOR_MAX = 128,     /* characters */
};

static const struct option OPTIONS_TABLE[] = {
    CONNECTION_LONG_OPTIONS,
    {"limit", required_argument, NULL, PAGE_OPT_LIMIT},
    {"cursor", required_argument, NULL, PAGE_OPT_CURSOR},
    {"json", no_argument, NULL, PAGE_OPT_JSON},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* Characters that stand in a URL as they are, so nothing given here can become another path or parameter. */
static bool is_cursor(const char *text)
{
    size_t len = strlen(text);
    return len >= 1 && len <= CURSOR_MAX &&
           strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == len;
}

static bool limit_is_valid(const char *text)
{
    size_t len = strlen(text);
    return len >= 1 && len <= 4 && strspn(text, "0123456789") == len && atoi(text) >= 1 && atoi(text) <= RUNS_LIMIT_MAX;
}

/* The exit code of an answered run, or why there is none. */
static const char *cell_end(const json_t *run, char out[CELL_MAX])
{
    if (json_is_true(json_object_get(run, "timed_out")))
        return "timed out";
    if (json_is_true(json_object_get(run, "canceled")))
        return "canceled";
    const char *outcome = cell_text(run, "outcome");
    if (outcome[0] != '\0' && strcmp(outcome, "completed") != 0)
        return outcome;
    if (strcmp(cell_text(run, "verdict"), "answered") == 0)
        return cell_int(run, "exit_code", out);
    const char *reason = cell_text(run, "reason");
    return reason[0] != '\0' ? reason : cell_text(run, "unanswered");
}

static const char *cell_took(const json_t *run, char out[CELL_MAX])
{
    const json_t *started = json_object_get(run, "started_unix_ms"), *ended = json_object_get(run, "ended_unix_ms");
    out[0] = '\0';
    if (json_integer_value(started) <= 0 || json_integer_value(ended) < json_integer_value(started))
        return out;
    return cell_span(json_integer_value(ended) - json_integer_value(started), out);
}

static void show_list(const json_t *page)
{
    static const char *const HEADINGS[] = {"RUN",  "STARTED", "VERDICT",   "END",     "TOOK",
                                           "KIND", "BACKEND", "ISOLATION", "REQUEST", "RECORD"};
    table_t *table = table_create(HEADINGS, sizeof(HEADINGS) / sizeof(HEADINGS[0]));
    size_t i;
    json_t *run;
    json_array_foreach(json_object_get(page, "runs"), i, run)
    {
        char started[CELL_MAX], end[CELL_MAX], took[CELL_MAX], record[13];
        snprintf(record, sizeof(record), "%s", cell_text(run, "record_sha256"));
        const char *cells[] = {cell_text(run, "run_id"),     cell_time(run, "started_unix_ms", started),
                               cell_text(run, "verdict"),    cell_end(run, end),
                               cell_took(run, took),         cell_text(run, "kind"),
                               cell_text(run, "backend"),    cell_text(run, "isolation"),
                               cell_text(run, "request_id"), record};
        table_add(table, cells);
    }
    table_print(table, stdout);
    table_destroy(table);
    const char *next = cell_text(page, "next_cursor");
    if (next[0] == '\0')
        return;
    fflush(stdout);
    fputs("plimsoll: there are more: --cursor ", stderr);
    terminal_print(stderr, next);
    fputc('\n', stderr);
}

static void line(const char *name, const char *value)
{
    if (value == NULL || value[0] == '\0')
        return;
    printf("%-16s", name);
    terminal_print(stdout, value);
    putchar('\n');
}

static void show_run(const json_t *run, const char *broken)
{
    static const char *const TEXTS[] = {"run_id",     "request_id",     "verdict",       "backend",
                                        "isolation",  "kind",           "trace_id",      "reason",
                                        "unanswered", "request_sha256", "result_sha256", "record_sha256"};
    char out[CELL_MAX];
    for (size_t i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++)
        line(TEXTS[i], cell_text(run, TEXTS[i]));
    line("started", cell_time(run, "started_unix_ms", out));
    line("took", cell_took(run, out));
    line("end", strcmp(cell_text(run, "verdict"), "answered") == 0 ? cell_end(run, out) : "");
    const json_t *record = json_object_get(run, "record");
    if (!json_is_object(record))
        return;
    line("environment", cell_text(record, "environment"));
    line("software", cell_text(record, "softwareIdentity"));
    line("policy", cell_text(record, "policy"));
    line("record check", broken == NULL ? "holds (a tier is evidence, not attestation)" : broken);
}

static int list(const page_options_t *options, const connection_t *connection)
{
    char path[64 + CURSOR_MAX];
    snprintf(path, sizeof(path), "/v1/runs%s%s%s%s", options->limit != NULL ? "?limit=" : "",
             options->limit != NULL ? options->limit : "",
             options->cursor == NULL  ? ""
             : options->limit != NULL ? "&cursor="
                                      : "?cursor=",
             options->cursor != NULL ? options->cursor : "");
    json_t *page = page_get(connection, path);
    if (page == NULL)
        return CLI_FAILED;
    bool told = true;
    if (options->json)
        told = json_print(page);
    else
        show_list(page);
    json_decref(page);
    return told && fflush(stdout) == 0 ? CLI_OK : CLI_FAILED;
}

static int show(const page_options_t *options, const connection_t *connection, const char *run_id)
{
    char path[32 + RUN_ID_HEX];
    snprintf(path, sizeof(path), "/v1/runs/%s", run_id);
    json_t *run = page_get(connection, path);
    if (run == NULL)
        return CLI_FAILED;
    const char *broken = stored_run_check(run);
    bool told = true;
    if (options->json)
        told = json_print(run);
    else
        show_run(run, broken);
    json_decref(run);
    if (broken != NULL) {
        fflush(stdout);
        fprintf(stderr, "plimsoll: error: the stored record does not hold: %s\n", broken);
        return CLI_DOES_NOT_HOLD;
    }
    return told && fflush(stdout) == 0 ? CLI_OK : CLI_FAILED;
}

/* CLI_OK, or the usage error told. */
static int check_arguments(int argc, char **argv, const page_options_t *options, bool listing)
{
    if (optind >= argc || (!listing && strcmp(argv[optind], "show") != 0))
        return usage_error(argv[0], "list or show?");
    if (listing && argc - optind != 1)
        return usage_error(argv[0], "list takes no arguments");
    if (!listing && argc - optind != 2)
        return usage_error(argv[0], "show takes one RUN");
    if (!listing && !request_id_is_valid(argv[optind + 1]))
        return usage_error(argv[0], "a RUN is 32 lowercase hex digits, as `plimsoll runs list` shows them");
    if (options->limit != NULL && !limit_is_valid(options->limit))
        return usage_error(argv[0], "--limit is 1 to %d", RUNS_LIMIT_MAX);
    if (options->cursor != NULL && !is_cursor(options->cursor))
        return usage_error(argv[0], "--cursor is what an earlier list ended with");
    return CLI_OK;
}

int command_runs(int argc, char **argv)
{
    page_options_t options;
    if (!page_options_parse(argc, argv, OPTIONS_TABLE, &options))
        return CLI_USAGE;
    if (options.help)
        return print_help(HELP);
    bool listing = optind < argc && strcmp(argv[optind], "list") == 0;
    int status = check_arguments(argc, argv, &options, listing);
    if (status != CLI_OK)
        return status;
    connection_t connection;
    if (!page_connect(&options, &connection))
        return CLI_FAILED;
    status = listing ? list(&options, &connection) : show(&options, &connection, argv[optind + 1]);
    connection_dispose(&connection);
    return status;
}
