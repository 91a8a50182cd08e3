/* `plimsoll describe`: the Describe procedure. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/call.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/page.h"
#include "cli/run_print.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "core/random.h"
#include "records/plimsoll.pb-c.h"

static const char HELP[] =
    "Usage: plimsoll describe [OPTION]...\n"
    "\n"
    "Says what stands behind the gateway for this caller: the wall, what it can run, the limits of a run.\n"
    "\n"
    "  --backend NAME     of this backend alone (see `plimsoll backends`)\n"
    "  --json             the answer in its protocol form\n"
    "  -h, --help         this text\n"
    "\n" CONNECTION_HELP;

static const struct option OPTIONS_TABLE[] = {
    CONNECTION_LONG_OPTIONS,
    {"backend", required_argument, NULL, PAGE_OPT_BACKEND},
    {"json", no_argument, NULL, PAGE_OPT_JSON},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static void add_kind(table_t *table, const char *name, bool supported, const Plimsoll__V1__PayloadEnvironment *env)
{
    char timeout[CELL_MAX] = "";
    buffer_t languages;
    buffer_init(&languages, 256);
    for (size_t i = 0; env != NULL && i < env->n_languages; i++)
        buffer_printf(&languages, "%s%s", i == 0 ? "" : ", ", env->languages[i]);
    if (env != NULL && env->max_timeout_ms > 0)
        cell_span(env->max_timeout_ms, timeout);
    const char *cells[] = {name,
                           supported ? "yes" : "no",
                           timeout,
                           (const char *)languages.base,
                           env == NULL ? "" : env->identity,
                           env == NULL ? "" : env->software_identity};
    table_add(table, cells);
    buffer_dispose(&languages);
}

/* A snippet has no flag of its own: a stated timeout or identity shows it. */
static bool runs_javascript(const Plimsoll__V1__DescribeResponse *d)
{
    const Plimsoll__V1__PayloadEnvironment *env = d->javascript_environment;
    return env != NULL && (env->max_timeout_ms > 0 || env->identity[0] != '\0');
}

static void line(const char *name, const char *value)
{
    printf("%-12s", name);
    terminal_print(stdout, value[0] == '\0' ? "-" : value);
    putchar('\n');
}

static void show(const Plimsoll__V1__DescribeResponse *d)
{
    static const char *const HEADINGS[] = {"KIND", "RUNS HERE", "MAX RUN", "LANGUAGES", "ENVIRONMENT", "SOFTWARE"};
    line("provider", d->sandbox);
    printf("%-12s", "isolation");
    terminal_print(stdout, d->isolation);
    puts(" (evidence, not attestation)");
    printf("%-12s%" PRIu32 "\n", "protocol", d->protocol);
    line("policy", d->policy);
    const Plimsoll__V1__RunResources *r = d->resources;
    if (r != NULL && r->memory_mb > 0)
        printf("%-12s%" PRIu32 " MiB a run\n", "memory", r->memory_mb);
    if (r != NULL && r->cpus > 0)
        printf("%-12s%g a run\n", "processors", r->cpus);
    if (r != NULL && r->pids > 0)
        printf("%-12s%" PRIu32 " a run\n", "processes", r->pids);
    if (r != NULL && r->disk_mb > 0)
        printf("%-12s%" PRIu32 " MiB a run\n", "disk", r->disk_mb);
    putchar('\n');
    table_t *table = table_create(HEADINGS, sizeof(HEADINGS) / sizeof(HEADINGS[0]));
    add_kind(table, "javascript", runs_javascript(d), d->javascript_environment);
    add_kind(table, "project", d->supports_project, d->project_environment);
    add_kind(table, "module", d->supports_module, d->module_environment);
    add_kind(table, "session", d->supports_sessions, d->session_environment);
    table_print(table, stdout);
    table_destroy(table);
}

int command_describe(int argc, char **argv)
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
    char request_id[REQUEST_ID_HEX + 1];
    random_hex(request_id, REQUEST_ID_HEX / 2);
    Plimsoll__V1__DescribeRequest request;
    plimsoll__v1__describe_request__init(&request);
    exchange_t exchange;
    failure_t failure;
    ProtobufCMessage *answer = call_unary(&connection, "Describe", request_id, &request.base,
                                          &plimsoll__v1__describe_response__descriptor, &exchange, &failure);
    exchange_dispose(&exchange);
    if (answer == NULL) {
        failure_print(&failure, NULL, false);
        goto done;
    }
    if (options.json) {
        json_t *value = json_of_message(answer);
        status = json_print(value) ? CLI_OK : CLI_FAILED;
        json_decref(value);
    } else {
        show((const Plimsoll__V1__DescribeResponse *)answer);
        status = fflush(stdout) == 0 ? CLI_OK : CLI_FAILED;
    }
    protobuf_c_message_free_unpacked(answer, NULL);
done:
    connection_dispose(&connection);
    return status;
}
