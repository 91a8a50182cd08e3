/* `plimsoll runs list`, `show` and `export`: GET /v1/runs and /v1/runs/ID. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/page.h"
#include "cli/run_print.h"
#include "cli/runs_export.h"
#include "cli/runs_find.h"
#include "cli/runs_options.h"
#include "cli/stored_run.h"
#include "cli/table.h"
#include "cli/terminal.h"

static const char HELP[] =
    "Usage: plimsoll runs list [FILTER]... [--limit N] [--cursor C] [OPTION]...\n"
    "       plimsoll runs show RUN [OPTION]...\n"
    "       plimsoll runs find KEY [--wait SECONDS] [OPTION]...\n"
    "       plimsoll runs export [FILTER]... [--records] [--cursor C] [OPTION]...\n"
    "\n"
    "The caller's own runs, newest first, as the gateway recorded them. `show` prints one with its record and checks\n"
    "the record's digest. `export` writes all pages, a JSON object a line, and says on stderr how far it is and with\n"
    "which cursor it would go on. `find` says what became of the run with a request ID or an Idempotency-Key (32\n"
    "lowercase hex digits are a request ID, unless in quotation marks), and waits for it when asked to: exit status 0\n"
    "when it is answered, 75 while it is under way, 70 when it may have run, 1 when there is none. Verdicts: answered\n"
    "(it ran), refused (nothing ran), unknown (it may have run).\n"
    "\n"
    "  --verdict V        answered, refused or unknown\n"
    "  --backend B        runs on this backend\n"
    "  --kind K           javascript, project or module\n"
    "  --since T          started at T or later: 2026-11-30T00:00:00Z, or milliseconds since 1970\n"
    "  --until T          started before T\n"
    "  --receipts         instead of runs, the receipts of those refused before anything was claimed\n"
    "  --limit N          at most so many, 1 to 500; of an export, at a time\n"
    "  --cursor C         go on from where an earlier list ended\n"
    "  --wait SECONDS     of find: 0 to 60\n"
    "  --records          of an export: each run with its record, checked\n"
    "  --json             the gateway's answer as it is\n"
    "  -h, --help         this text\n"
    "\n" CONNECTION_HELP;

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

static void show_receipts(const json_t *page)
{
    static const char *const HEADINGS[] = {"TIME", "REASON", "LIMITS", "KIND", "REQUEST"};
    table_t *table = table_create(HEADINGS, sizeof(HEADINGS) / sizeof(HEADINGS[0]));
    size_t i;
    json_t *run;
    json_array_foreach(json_object_get(page, "runs"), i, run)
    {
        char started[CELL_MAX];
        const char *cells[] = {cell_time(run, "started_unix_ms", started), cell_text(run, "reason"),
                               cell_text(run, "limits"), cell_text(run, "kind"), cell_text(run, "request_id")};
        table_add(table, cells);
    }
    table_print(table, stdout);
    table_destroy(table);
}

static void show_runs(const json_t *page)
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
}

static void show_list(const json_t *page, bool receipts)
{
    if (receipts)
        show_receipts(page);
    else
        show_runs(page);
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

/* "12.345 s, 0.000924 USD"; only of what a provider bills. */
static const char *cell_bill(const json_t *run, char *out, size_t size)
{
    json_int_t paid = json_integer_value(json_object_get(run, "paid_ms"));
    const char *currency = cell_text(run, "currency");
    out[0] = '\0';
    if (paid > 0)
        snprintf(out, size, "%" JSON_INTEGER_FORMAT ".%03d s, %.32s%s%.8s", paid / 1000, (int)(paid % 1000),
                 cell_text(run, "cost"), currency[0] != '\0' ? " " : "", currency);
    return out;
}

static void show_run(const json_t *run, const char *broken)
{
    static const char *const TEXTS[] = {"run_id",     "request_id",     "idempotency_key", "verdict",      "backend",
                                        "isolation",  "kind",           "trace_id",        "reason",       "limits",
                                        "unanswered", "request_sha256", "result_sha256",   "record_sha256"};
    char bill[96];
    char out[CELL_MAX];
    for (size_t i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++)
        line(TEXTS[i], cell_text(run, TEXTS[i]));
    line("started", cell_time(run, "started_unix_ms", out));
    line("took", cell_took(run, out));
    line("billed", cell_bill(run, bill, sizeof(bill)));
    line("log index", cell_int(run, "log_index", out));
    line("end", strcmp(cell_text(run, "verdict"), "answered") == 0 ? cell_end(run, out) : "");
    const json_t *record = json_object_get(run, "record");
    if (!json_is_object(record))
        return;
    line("environment", cell_text(record, "environment"));
    line("software", cell_text(record, "softwareIdentity"));
    line("policy", cell_text(record, "policy"));
    line("record check", broken == NULL ? "holds (a tier is evidence, not attestation)" : broken);
}

static int list(const runs_options_t *options, const connection_t *connection)
{
    char path[RUNS_PATH_MAX];
    runs_options_path(options, options->limit, options->cursor, path);
    json_t *page = page_get(connection, path);
    if (page == NULL)
        return CLI_FAILED;
    bool told = true;
    if (options->json)
        told = json_print(page);
    else
        show_list(page, options->receipts);
    json_decref(page);
    return told && fflush(stdout) == 0 ? CLI_OK : CLI_FAILED;
}

static int show(const runs_options_t *options, const connection_t *connection, const char *run_id)
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

typedef enum { RUNS_LIST, RUNS_SHOW, RUNS_EXPORT, RUNS_FIND, RUNS_NOTHING } what_t;

static what_t what_is_asked(int argc, char **argv)
{
    static const char *const words[] = {"list", "show", "export", "find"};
    for (int i = 0; optind < argc && i < RUNS_NOTHING; i++)
        if (strcmp(argv[optind], words[i]) == 0)
            return (what_t)i;
    return RUNS_NOTHING;
}

/* CLI_OK, or the usage error told. */
static int check_arguments(int argc, char **argv, const runs_options_t *options, what_t what)
{
    const char *wrong = runs_options_check(options);
    if (what == RUNS_NOTHING)
        return usage_error(argv[0], "list, show, find or export?");
    if (what == RUNS_FIND && argc - optind != 2)
        return usage_error(argv[0], "find takes one KEY");
    if (what == RUNS_FIND && (argv[optind + 1][0] == '\0' || strlen(argv[optind + 1]) > RUNS_KEY_MAX))
        return usage_error(argv[0], "a KEY has 1 to 255 characters");
    if (what != RUNS_FIND && options->wait != NULL)
        return usage_error(argv[0], "--wait is of find");
    if ((what == RUNS_LIST || what == RUNS_EXPORT) && argc - optind != 1)
        return usage_error(argv[0], "%s takes no arguments", argv[optind]);
    if (what == RUNS_SHOW && argc - optind != 2)
        return usage_error(argv[0], "show takes one RUN");
    if (what == RUNS_SHOW && !request_id_is_valid(argv[optind + 1]))
        return usage_error(argv[0], "a RUN is 32 lowercase hex digits, as `plimsoll runs list` shows them");
    if (what != RUNS_EXPORT && options->records)
        return usage_error(argv[0], "--records is of export; `plimsoll runs show` has a run's record");
    if (wrong != NULL)
        return usage_error(argv[0], "%s", wrong);
    return CLI_OK;
}

int command_runs(int argc, char **argv)
{
    runs_options_t options;
    if (!runs_options_parse(argc, argv, &options))
        return CLI_USAGE;
    if (options.help)
        return print_help(HELP);
    what_t what = what_is_asked(argc, argv);
    int status = check_arguments(argc, argv, &options, what);
    if (status != CLI_OK)
        return status;
    const page_options_t page = {.connection = options.connection};
    connection_t connection;
    if (!page_connect(&page, &connection))
        return CLI_FAILED;
    status = what == RUNS_LIST   ? list(&options, &connection)
             : what == RUNS_SHOW ? show(&options, &connection, argv[optind + 1])
             : what == RUNS_FIND ? runs_find(&options, &connection, argv[optind + 1])
                                 : runs_export(&options, &connection);
    connection_dispose(&connection);
    return status;
}
