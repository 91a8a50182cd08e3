/* What a person reads of the settings: `plimsolld -h` and docs/configuration.md. Both come from the table alone. */
#include "config/options.h"

#include <stdio.h>
#include <string.h>

#include "config/option_text.h"

enum { HELP_COLUMNS = 96, HELP_INDENT = 6 };

static const char HELP_HEAD[] =
    "plimsolld - the plimsoll gateway: runs untrusted code behind a wall, and says with every result how\n"
    "strong that wall was (process, container, kernel or vm).\n"
    "\n"
    "Usage:\n"
    "  plimsolld            start the gateway\n"
    "  plimsolld -h         print this text (also --help, help)\n"
    "  plimsolld --version  print the version\n"
    "\n"
    "All settings come from environment variables; there is no settings file. To start one that only this\n"
    "machine can reach, with a token of its own, and to see that it is up:\n"
    "  PLIMSOLL_TOKEN=$(openssl rand -hex 32) PLIMSOLL_ADDR=127.0.0.1:8746 plimsolld\n"
    "  curl http://127.0.0.1:8746/readyz\n"
    "With a Docker Engine on this machine and the guest images in it (make images), containers and gVisor too:\n"
    "  SANDBOX_PROVIDER=docker,gvisor,wasm PLIMSOLL_TOKEN=... plimsolld\n"
    "Everything is checked before anything is served, and all that is wrong is reported together, on stderr.\n"
    "\n"
    "Exit codes:\n"
    "  0   asked to stop and stopped; or this text was printed\n"
    "  1   the start failed, or the end was not a clean one\n"
    "  2   a setting is wrong, or an argument is unknown; nothing was started\n"
    "\n"
    "Signals:\n"
    "  SIGTERM, SIGINT   accept nothing more, let runs in flight finish within PLIMSOLL_DRAIN, then stop; the\n"
    "                    second one stops at once\n"
    "  SIGHUP            read PLIMSOLL_CLIENTS_FILE again; a broken file changes nothing and is reported\n"
    "\n"
    "White space around a value is dropped, and an empty value is as good as none. Durations are whole numbers\n"
    "with a unit, such as 250ms, 5s, 30m or 1h30m. A yes is 1, true, yes or on; a no is 0, false, no or off.\n"
    "Names that start with PLIMSOLL_ or SANDBOX_ and are not listed here are reported and ignored.\n";

static const char MARKDOWN_HEAD[] =
    "# Which settings are there?\n"
    "\n"
    "<!-- Written by config/gen/configuration_md.c from config/options.def. Edit the table there. -->\n"
    "\n"
    "The daemon reads environment variables and nothing else; `plimsolld -h` prints this list. Everything is checked "
    "at\n"
    "the start, before anything is served or billed, and all problems are reported together.\n"
    "\n"
    "- White space around a value is dropped; an empty value is as good as none.\n"
    "- A duration is whole numbers with a unit: `250ms`, `5s`, `30m`, `1h30m`.\n"
    "- A yes is `1`, `true`, `yes` or `on`; a no is `0`, `false`, `no` or `off`, in any case.\n"
    "- An address is `host:port`, `[IPv6]:port`, or `:port` for every address of the machine.\n"
    "- A name that starts with `PLIMSOLL_` or `SANDBOX_` and is not listed is reported and ignored.\n"
    "- *Read by* says which process gets the variable. No process sees another's secrets: each is started with the\n"
    "  variables it reads and `PATH`, and nothing else.\n";

/* Appends `text` broken at spaces, each line after `indent` spaces. */
static void wrap(buffer_t *out, const char *text, int indent)
{
    size_t width = (size_t)(HELP_COLUMNS - indent), used = 0;

    while (*text != '\0') {
        size_t word = strcspn(text, " ");
        if (used == 0)
            buffer_printf(out, "%*s", indent, "");
        else if (used + 1 + word > width) {
            buffer_printf(out, "\n%*s", indent, "");
            used = 0;
        } else {
            buffer_append_str(out, " ");
            used++;
        }
        buffer_append(out, text, word);
        used += word;
        text += word;
        text += strspn(text, " ");
    }
    buffer_append_str(out, "\n");
}

static bool begins_group(int id)
{
    return id == 0 || strcmp(OPTIONS[id].group, OPTIONS[id - 1].group) != 0;
}

/* The range column: what the type does not tell by itself. */
static const char *range_of(option_id_t id, char out[OPTION_RANGE_MAX])
{
    const option_t *option = &OPTIONS[id];

    out[0] = '\0';
    if (option->type == OPTION_INT || option->type == OPTION_DURATION)
        return option_range(option, out);
    if (option->type == OPTION_SECRET && option->min > 1)
        return option_range(option, out);
    return out;
}

void options_print_help(buffer_t *out)
{
    char range[OPTION_RANGE_MAX];

    buffer_append_str(out, HELP_HEAD);
    for (int id = 0; id < OPTION_COUNT; id++) {
        const option_t *option = &OPTIONS[id];
        if (begins_group(id))
            buffer_printf(out, "\n%s:\n", option->group);
        range_of((option_id_t)id, range);
        buffer_printf(out, "\n  %s (%s%s%s", option->name, option_type_name(option->type), range[0] != '\0' ? ", " : "",
                      range);
        if (option->fallback != NULL)
            buffer_printf(out, "; default %s", option->fallback);
        buffer_append_str(out, ")\n");
        wrap(out, option->doc, HELP_INDENT);
    }
}

static void print_roles(buffer_t *out, unsigned roles)
{
    static const struct {
        unsigned role;
        const char *name;
    } names[] = {{ROLE_PARENT, "parent"},
                 {ROLE_FRONT, "front"},
                 {ROLE_BACKEND, "backend"},
                 {ROLE_LEDGER, "a backend that keeps a ledger"},
                 {ROLE_E2B, "the backend e2b"},
                 {ROLE_DOCKERCLOUD, "the backend dockercloud"},
                 {ROLE_OPENSHELL, "the backend openshell"},
                 {ROLE_BROKER, "broker"},
                 {ROLE_CLI, "the command"}};
    const char *before = "";

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if ((roles & names[i].role) != 0) {
            buffer_printf(out, "%s%s", before, names[i].name);
            before = ", ";
        }
}

/* Text in a table's cell: a bar would end it. */
static void print_cell(buffer_t *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '|' || *text == '<')
            buffer_append_str(out, "\\");
        buffer_append(out, text, 1);
    }
}

void options_print_markdown(buffer_t *out)
{
    char range[OPTION_RANGE_MAX];

    buffer_append_str(out, MARKDOWN_HEAD);
    for (int id = 0; id < OPTION_COUNT; id++) {
        const option_t *option = &OPTIONS[id];
        if (strcmp(option->group, OPTIONS_STANDIN_GROUP) == 0)
            continue;
        if (begins_group(id))
            buffer_printf(
                out,
                "\n## %s\n\n| Variable | Type | Default | Range | Meaning | Read by |\n|---|---|---|---|---|---|\n",
                option->group);
        buffer_printf(out, "| `%s` | %s | ", option->name, option_type_name(option->type));
        if (option->fallback != NULL)
            buffer_printf(out, "`%s`", option->fallback);
        else
            buffer_append_str(out, "unset");
        buffer_printf(out, " | %s | ", range_of((option_id_t)id, range));
        print_cell(out, option->doc);
        buffer_append_str(out, " | ");
        print_roles(out, option->roles);
        buffer_append_str(out, " |\n");
    }
}
