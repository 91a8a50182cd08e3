/* `plimsoll ledger`: the sandboxes an installation has not known to be gone, read from the records' Redis itself. */
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/ledger_read.h"
#include "cli/page.h"
#include "cli/run_print.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "core/clock.h"

enum {
    WAIT_DEFAULT_S = 60,
    WAIT_MAX_S = 3600,
    LOOK_MS = 500, /* between looks at what is to go */
    TELL_MS = 2000,
};

static const char HELP[] =
    "Usage: plimsoll ledger [list] [--backend B] [--json]\n"
    "       plimsoll ledger reap (--stamp S | --all-expired) [--backend B] [--wait SECONDS]\n"
    "\n"
    "The installation's ledger: every sandbox that was asked for and is not confirmed gone. `list` shows it. `reap`\n"
    "condemns a sandbox, or all whose deadline has passed: a copy of the gateway that serves the backend deletes it,\n"
    "whatever it is doing, and the command waits until it is gone.\n"
    "\n"
    "  --backend B       of this backend alone\n"
    "  --stamp S         the sandbox with this stamp\n"
    "  --all-expired     those that should have been gone by now\n"
    "  --wait SECONDS    how long to wait for them to go (60)\n"
    "  --json            a JSON object a line\n"
    "  -h, --help        this text\n"
    "\n"
    "Environment:\n"
    "  PLIMSOLL_REDIS_URL     the records' Redis; when it is not set, the private one of PLIMSOLL_STATE_DIR\n"
    "  PLIMSOLL_INSTALLATION  the installation's name (default)\n"
    "\n"
    "Exit codes: 0 done, 1 failed, or something is still there; 2 usage; 78 a setting is wrong.\n";

typedef struct {
    const char *backend, *stamp;
    bool is_reap, is_all_expired, is_json, is_help;
    unsigned wait_s;
} options_t;

static bool parse_wait(const char *text, unsigned *out)
{
    size_t len = strlen(text);
    if (len == 0 || len > 4 || strspn(text, "0123456789") != len)
        return false;
    *out = (unsigned)strtoul(text, NULL, 10);
    return *out >= 1 && *out <= WAIT_MAX_S;
}

/* CLI_OK, or the status of a usage error that was told. */
static int parse(int argc, char **argv, options_t *o)
{
    enum { OPT_BACKEND = 256, OPT_STAMP, OPT_EXPIRED, OPT_WAIT, OPT_JSON };
    static const struct option table[] = {{"backend", required_argument, NULL, OPT_BACKEND},
                                          {"stamp", required_argument, NULL, OPT_STAMP},
                                          {"all-expired", no_argument, NULL, OPT_EXPIRED},
                                          {"wait", required_argument, NULL, OPT_WAIT},
                                          {"json", no_argument, NULL, OPT_JSON},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int opt;
    *o = (options_t){.wait_s = WAIT_DEFAULT_S};
    while ((opt = getopt_long(argc, argv, "h", table, NULL)) != -1) {
        switch (opt) {
        case OPT_BACKEND:
            o->backend = optarg;
            break;
        case OPT_STAMP:
            o->stamp = optarg;
            break;
        case OPT_EXPIRED:
            o->is_all_expired = true;
            break;
        case OPT_WAIT:
            if (!parse_wait(optarg, &o->wait_s))
                return usage_error(argv[0], "--wait takes 1 to %d seconds", WAIT_MAX_S);
            break;
        case OPT_JSON:
            o->is_json = true;
            break;
        case 'h':
            o->is_help = true;
            return CLI_OK;
        default:
            return usage_hint(argv[0]);
        }
    }
    const char *verb = optind < argc ? argv[optind] : "list";
    if (optind + 1 < argc || (strcmp(verb, "list") != 0 && strcmp(verb, "reap") != 0))
        return usage_error(argv[0], "it takes list or reap, not %.64s", optind + 1 < argc ? argv[optind + 1] : verb);
    o->is_reap = strcmp(verb, "reap") == 0;
    if (o->backend != NULL && !ledger_reader_knows(o->backend))
        return usage_error(argv[0], "no backend named %.64s keeps a ledger", o->backend);
    if (!o->is_reap && (o->stamp != NULL || o->is_all_expired))
        return usage_error(argv[0], "--stamp and --all-expired are for reap");
    if (o->is_reap && (o->stamp != NULL) == o->is_all_expired)
        return usage_error(argv[0], "reap takes --stamp or --all-expired");
    if (o->stamp != NULL && !ledger_is_stamp(o->stamp))
        return usage_error(argv[0], "a stamp is 32 lowercase hex digits");
    return CLI_OK;
}

/* --- list --- */

static void set_text(json_t *row, const char *name, const char *text)
{
    json_object_set_new(row, name, text[0] != '\0' ? json_string(text) : json_null());
}

static json_t *row_of(const ledger_listed_t *listed, int64_t now_ms)
{
    const ledger_entry_t *e = &listed->entry;
    json_t *row =
        json_pack("{s:s, s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:b, s:i}", "stamp", e->stamp, "backend", listed->backend,
                  "state", ledger_state_name(e->state), "instance", e->instance, "instance_alive", listed->is_alive,
                  "created_unix_ms", (json_int_t)e->created_ms, "deadline_unix_ms", (json_int_t)e->deadline_ms,
                  "age_ms", (json_int_t)(now_ms - e->created_ms), "billed", e->is_billed, "tries", (int)e->tries);
    set_text(row, "sandbox", e->id);
    set_text(row, "run_id", e->run);
    set_text(row, "caller", e->caller);
    set_text(row, "host", e->host);
    set_text(row, "place", e->place);
    set_text(row, "error", e->error);
    json_object_set_new(row, "condemned_unix_ms", e->condemned_ms != 0 ? json_integer(e->condemned_ms) : json_null());
    return row;
}

static const char *cell_cut(const char *text, char out[CELL_MAX])
{
    enum { SHOWN = 24 };
    snprintf(out, CELL_MAX, "%.*s%s", SHOWN, text, strlen(text) > SHOWN ? "..." : "");
    return out;
}

static void show(const ledger_reading_t *reading)
{
    static const char *const HEADINGS[] = {"STAMP", "BACKEND", "STATE",   "AGE",   "SANDBOX",
                                           "RUN",   "CALLER",  "HELD BY", "TRIES", "ERROR"};
    if (reading->count == 0) {
        puts(reading->corrupt > 0 ? "nothing that can be read"
                                  : "nothing: every sandbox that was asked for is known to be gone");
        return;
    }
    table_t *table = table_create(HEADINGS, sizeof(HEADINGS) / sizeof(HEADINGS[0]));
    for (size_t i = 0; i < reading->count; ++i) {
        const ledger_entry_t *e = &reading->listed[i].entry;
        char age[CELL_MAX], id[CELL_MAX], caller[CELL_MAX], holder[CELL_MAX], tries[CELL_MAX];
        snprintf(holder, sizeof(holder), "%s%s", e->instance, reading->listed[i].is_alive ? "" : " (dead)");
        snprintf(tries, sizeof(tries), "%u", (unsigned)e->tries);
        const char *cells[] = {e->stamp,
                               reading->listed[i].backend,
                               ledger_state_name(e->state),
                               cell_span(reading->now_ms > e->created_ms ? reading->now_ms - e->created_ms : 0, age),
                               cell_cut(e->id, id),
                               e->run,
                               cell_cut(e->caller, caller),
                               holder,
                               tries,
                               e->error};
        table_add(table, cells);
    }
    table_print(table, stdout);
    table_destroy(table);
}

static int complain(void)
{
    fputs("plimsoll: error: the records' Redis does not answer; PLIMSOLL_REDIS_URL or PLIMSOLL_STATE_DIR say where it "
          "is\n",
          stderr);
    return CLI_FAILED;
}

static void warn_of_corrupt(const ledger_reading_t *reading)
{
    if (reading->corrupt > 0)
        fprintf(stderr, "plimsoll: warning: %zu value%s in the ledger cannot be read and %s left as %s\n",
                reading->corrupt, reading->corrupt == 1 ? "" : "s", reading->corrupt == 1 ? "is" : "are",
                reading->corrupt == 1 ? "it is" : "they are");
}

static int list(ledger_reader_t *reader, const options_t *o)
{
    ledger_reading_t reading;
    bool told = true;
    if (!ledger_reader_read(reader, o->backend, &reading))
        return complain();
    for (size_t i = 0; o->is_json && i < reading.count && told; ++i) {
        json_t *row = row_of(&reading.listed[i], reading.now_ms);
        told = json_print(row);
        json_decref(row);
    }
    if (!o->is_json)
        show(&reading);
    warn_of_corrupt(&reading);
    ledger_reading_dispose(&reading);
    return told && fflush(stdout) == 0 ? CLI_OK : CLI_FAILED;
}

/* --- reap --- */

static bool is_wanted(const options_t *o, const ledger_reading_t *reading, const ledger_entry_t *e)
{
    return o->stamp != NULL ? strcmp(e->stamp, o->stamp) == 0 : e->deadline_ms < reading->now_ms;
}

/* How many of the wanted are there; condemns them the first time. False: Redis does not answer. */
static bool look(ledger_reader_t *reader, const options_t *o, bool condemns, size_t *left, const char **error)
{
    static char last[LEDGER_ERROR_MAX + 1];
    ledger_reading_t reading;
    bool fine = ledger_reader_read(reader, o->backend, &reading);
    *left = 0;
    *error = NULL;
    for (size_t i = 0; fine && i < reading.count; ++i) {
        const ledger_entry_t *e = &reading.listed[i].entry;
        if (!is_wanted(o, &reading, e))
            continue;
        ++*left;
        if (e->error[0] != '\0') {
            terminal_copy(last, sizeof(last), e->error, strlen(e->error));
            *error = last;
        }
        if (!condemns)
            continue;
        fine = ledger_reader_condemn(reader, reading.listed[i].backend, e->stamp);
        if (!fine)
            continue;
        printf("condemned %s (%s%s", e->stamp, reading.listed[i].backend, e->id[0] != '\0' ? ", " : "");
        terminal_print(stdout, e->id);
        puts(")");
    }
    if (fine && condemns)
        warn_of_corrupt(&reading);
    ledger_reading_dispose(&reading);
    fflush(stdout);
    return fine;
}

static int reap(ledger_reader_t *reader, const options_t *o)
{
    uint64_t until_ms = clock_mono_ms() + (uint64_t)o->wait_s * 1000, told_ms = clock_mono_ms();
    size_t left, all;
    const char *error;
    if (!look(reader, o, true, &left, &error))
        return complain();
    all = left;
    if (all == 0) {
        fputs(o->stamp != NULL ? "plimsoll: error: no such sandbox in the ledger\n" : "nothing has expired\n", stderr);
        return o->stamp != NULL ? CLI_FAILED : CLI_OK;
    }
    while (left > 0 && clock_mono_ms() < until_ms) {
        ledger_reader_wait(reader, LOOK_MS);
        if (!look(reader, o, false, &left, &error))
            return complain();
        if (left > 0 && clock_mono_ms() - told_ms >= TELL_MS) {
            told_ms = clock_mono_ms();
            fprintf(stderr, "%zu of %zu gone%s%s\n", all - left < all ? all - left : 0, all,
                    error != NULL ? "; the last answer: " : "", error != NULL ? error : "");
        }
    }
    if (left == 0) {
        printf("gone: %zu\n", all);
        return fflush(stdout) == 0 ? CLI_OK : CLI_FAILED;
    }
    fprintf(
        stderr,
        "plimsoll: error: %zu still there after %u s; a running copy of the gateway that serves the backend, on the "
        "machine of a local one, goes on deleting\n",
        left, o->wait_s);
    return CLI_FAILED;
}

int command_ledger(int argc, char **argv)
{
    options_t o;
    int status = parse(argc, argv, &o);
    if (status != CLI_OK)
        return status;
    if (o.is_help)
        return print_help(HELP);
    ledger_reader_t *reader = ledger_reader_open();
    if (reader == NULL)
        return CLI_CONFIG;
    status = o.is_reap ? reap(reader, &o) : list(reader, &o);
    ledger_reader_close(reader);
    return status;
}
