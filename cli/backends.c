/* `plimsoll backends`: GET /v1/backends. */
#include <stdio.h>
#include <string.h>

#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/page.h"
#include "cli/run_print.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "core/buffer.h"

static const char HELP[] =
    "Usage: plimsoll backends [OPTION]...\n"
    "\n"
    "Lists the gateway's backends: their state, how strong a wall each has shown and how old that evidence is,\n"
    "what they can run and within which limits.\n"
    "\n"
    "  --json             the gateway's answer as it is\n"
    "  -h, --help         this text\n"
    "\n" CONNECTION_HELP;

static const struct option OPTIONS_TABLE[] = {
    CONNECTION_LONG_OPTIONS,
    {"json", no_argument, NULL, PAGE_OPT_JSON},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* "javascript, project" */
static void list_kinds(const json_t *kinds, buffer_t *out)
{
    const char *name;
    json_t *kind;
    json_object_foreach((json_t *)kinds, name, kind)
    {
        if (!buffer_printf(out, "%s%s", out->len == 0 ? "" : ", ", name))
            return;
    }
}

/* The longest run of any kind. */
static int64_t longest_timeout(const json_t *kinds)
{
    int64_t longest = 0;
    const char *name;
    json_t *kind;
    json_object_foreach((json_t *)kinds, name, kind)
    {
        json_int_t ms = json_integer_value(json_object_get(kind, "max_timeout_ms"));
        longest = ms > longest ? ms : longest;
    }
    return longest;
}

static void add_backend(table_t *table, const json_t *backend)
{
    char age[CELL_MAX] = "", timeout[CELL_MAX] = "", memory[CELL_MAX], concurrent[CELL_MAX];
    const json_t *kinds = json_object_get(backend, "kinds"), *limits = json_object_get(backend, "limits");
    const json_t *evidence = json_object_get(backend, "evidence_age_ms");
    buffer_t names;
    buffer_init(&names, 256);
    list_kinds(kinds, &names);
    if (json_is_integer(evidence))
        cell_span(json_integer_value(evidence), age);
    if (longest_timeout(kinds) > 0)
        cell_span(longest_timeout(kinds), timeout);
    const char *cells[] = {cell_text(backend, "name"),
                           cell_text(backend, "state"),
                           cell_text(backend, "isolation"),
                           cell_text(backend, "evidence"),
                           age,
                           cell_bool(backend, "billed"),
                           (const char *)names.base,
                           timeout,
                           cell_int(limits, "memory_mb", memory),
                           cell_int(limits, "concurrent", concurrent)};
    table_add(table, cells);
    buffer_dispose(&names);
}

static void show(const json_t *page)
{
    static const char *const HEADINGS[] = {"BACKEND", "STATE", "ISOLATION", "EVIDENCE",   "EVIDENCE AGE",
                                           "BILLED",  "KINDS", "MAX RUN",   "MEMORY MIB", "CONCURRENT RUNS"};
    table_t *table = table_create(HEADINGS, sizeof(HEADINGS) / sizeof(HEADINGS[0]));
    size_t i;
    json_t *backend;
    json_array_foreach(json_object_get(page, "backends"), i, backend)
    {
        add_backend(table, backend);
    }
    table_print(table, stdout);
    table_destroy(table);
    const char *note = cell_text(page, "note");
    fputc('\n', stdout);
    terminal_print(stdout, note[0] != '\0' ? note : "A tier is evidence, not attestation.");
    fputc('\n', stdout);
}

int command_backends(int argc, char **argv)
{
    page_options_t options;
    if (!page_options_parse(argc, argv, OPTIONS_TABLE, &options))
        return CLI_USAGE;
    if (options.help)
        return print_help(HELP);
    if (optind != argc)
        return usage_error(argv[0], "it takes no arguments");
    connection_t connection;
    if (!page_connect(&options, &connection))
        return CLI_FAILED;
    int status = CLI_FAILED;
    json_t *page = page_get(&connection, "/v1/backends");
    if (page != NULL && options.json) {
        status = json_print(page) ? CLI_OK : CLI_FAILED;
    } else if (page != NULL) {
        show(page);
        status = fflush(stdout) == 0 ? CLI_OK : CLI_FAILED;
    }
    json_decref(page);
    connection_dispose(&connection);
    return status;
}
