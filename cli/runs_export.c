#include "cli/runs_export.h"

#include <stdio.h>
#include <string.h>

#include "cli/exit_codes.h"
#include "cli/page.h"
#include "cli/stored_run.h"
#include "cli/terminal.h"
#include "core/mem.h"

#define EXPORT_PAGE "100" /* the most the store reads at once */

typedef struct {
    const runs_options_t *options;
    const connection_t *connection;
    char cursor[RUNS_CURSOR_MAX + 1]; /* of the page being written; "" = the first */
    uint64_t written;
    bool does_not_hold; /* a record was written that does not */
} export_t;

static bool write_line(const json_t *run)
{
    return json_dumpf(run, stdout, JSON_COMPACT) == 0 && putchar('\n') != EOF;
}

/* The run with its record, which is looked into. NULL: told. */
static json_t *whole_run(export_t *e, const json_t *listed)
{
    char path[64];
    snprintf(path, sizeof(path), "/v1/runs/%.32s", cell_text(listed, "run_id"));
    json_t *run = page_get(e->connection, path);
    const char *broken = run != NULL ? stored_run_check(run) : NULL;
    if (broken != NULL) {
        fprintf(stderr, "plimsoll: error: the record of ");
        terminal_print(stderr, cell_text(listed, "run_id"));
        fprintf(stderr, " does not hold: %s\n", broken);
        e->does_not_hold = true;
    }
    return run;
}

static bool write_run(export_t *e, const json_t *listed)
{
    if (!e->options->records || e->options->receipts)
        return write_line(listed);
    json_t *run = whole_run(e, listed);
    bool told = run != NULL && write_line(run);
    json_decref(run);
    return told;
}

static bool write_page(export_t *e, const json_t *page)
{
    size_t i;
    json_t *run;
    json_array_foreach(json_object_get(page, "runs"), i, run)
    {
        if (!write_run(e, run))
            return false;
        e->written++;
    }
    return fflush(stdout) == 0;
}

/* On stderr, so that standard output is the runs alone. */
static void tell(const export_t *e, const char *what)
{
    fprintf(stderr, "plimsoll: %llu runs%s", (unsigned long long)e->written, what);
    if (e->cursor[0] != '\0') {
        fputs("; --cursor ", stderr);
        terminal_print(stderr, e->cursor);
        fputs(" goes on from here", stderr);
    }
    fputc('\n', stderr);
}

static const char *next_cursor(const json_t *page)
{
    const char *next = cell_text(page, "next_cursor");
    size_t len = strlen(next);
    /* what a gateway gives becomes a part of the next URL */
    return len <= RUNS_CURSOR_MAX &&
                   strspn(next, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._-") == len
               ? next
               : "";
}

int runs_export(const runs_options_t *options, const connection_t *connection)
{
    export_t e = {.options = options, .connection = connection};
    const char *limit = options->limit != NULL ? options->limit : EXPORT_PAGE;
    char path[RUNS_PATH_MAX];
    if (options->cursor != NULL)
        snprintf(e.cursor, sizeof(e.cursor), "%s", options->cursor);
    do {
        runs_options_path(options, limit, e.cursor[0] != '\0' ? e.cursor : NULL, path);
        json_t *page = page_get(connection, path);
        if (page == NULL || !write_page(&e, page)) {
            json_decref(page);
            tell(&e, ", not all");
            return CLI_FAILED;
        }
        bool stands_still = strcmp(next_cursor(page), e.cursor) == 0 && e.cursor[0] != '\0';
        snprintf(e.cursor, sizeof(e.cursor), "%s", next_cursor(page));
        json_decref(page);
        if (stands_still) {
            fputs("plimsoll: error: the gateway gives the same page again and again\n", stderr);
            return CLI_FAILED;
        }
        tell(&e, "");
    } while (e.cursor[0] != '\0');
    return e.does_not_hold ? CLI_DOES_NOT_HOLD : CLI_OK;
}
