#include "cli/clients_options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/callers_edit.h"
#include "config/option_text.h"

const char CLIENTS_HELP_TEXT[] =
    "Usage: plimsoll clients COMMAND -file PATH [OPTION]...\n"
    "\n"
    "Edits a gateway's callers file, offline: who may call, with which scopes. Tokens are kept as hashes only. "
    "Options\n"
    "take one dash or two. stdout carries the generated token or the list and nothing else.\n"
    "\n"
    "  create -id ID -token-stdout [-scope S]... [-paid-seconds-per-day N]\n"
    "                     a new caller; the generated token goes to stdout, once. Makes the file (mode 0600) if "
    "absent\n"
    "  import -id ID [-scope S]... [-paid-seconds-per-day N]\n"
    "                     a new caller whose token is read from stdin: 32 to 4096 visible ASCII characters\n"
    "  list [-json]       IDs, scopes, allowances and token windows, never hashes\n"
    "  limit -id ID -paid-seconds-per-day N\n"
    "                     sets the caller's allowance of billed seconds; 0 removes it\n"
    "  rotate -id ID (-token-stdout | -token-stdin) [-overlap TIME]\n"
    "                     a new token; with -overlap the old one stays valid for that long (such as 24h, at most\n"
    "                     30 days), without it ends at once\n"
    "  revoke -id ID      removes the caller\n"
    "\n"
    "  -file PATH         the callers file: a regular file, not a link. Locked by the directory PATH.lock meanwhile\n"
    "  -scope S           may be given several times; default code:run\n"
    "\n"
    "A running gateway keeps the set it has read until it reads the file again.\n"
    "Any failure is one line on stderr and exit status 1.\n";

enum {
    OPT_FILE = 1 << 0,
    OPT_ID = 1 << 1,
    OPT_SCOPE = 1 << 2,
    OPT_TOKEN_STDOUT = 1 << 3,
    OPT_TOKEN_STDIN = 1 << 4,
    OPT_ALLOWANCE = 1 << 5,
    OPT_JSON = 1 << 6,
    OPT_OVERLAP = 1 << 7,
    OPT_HELP = 1 << 8,
};

static const struct option LONG_OPTIONS[] = {
    {"file", required_argument, NULL, OPT_FILE},
    {"id", required_argument, NULL, OPT_ID},
    {"scope", required_argument, NULL, OPT_SCOPE},
    {"token-stdout", no_argument, NULL, OPT_TOKEN_STDOUT},
    {"token-stdin", no_argument, NULL, OPT_TOKEN_STDIN},
    {"paid-seconds-per-day", required_argument, NULL, OPT_ALLOWANCE},
    {"json", no_argument, NULL, OPT_JSON},
    {"overlap", required_argument, NULL, OPT_OVERLAP},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

/* Which options a command takes, and which it must have. */
static const struct {
    const char *name;
    clients_command_t command;
    unsigned takes, needs;
} COMMANDS[] = {
    {"create", CLIENTS_CREATE, OPT_FILE | OPT_ID | OPT_SCOPE | OPT_TOKEN_STDOUT | OPT_ALLOWANCE,
     OPT_FILE | OPT_ID | OPT_TOKEN_STDOUT},
    {"import", CLIENTS_IMPORT, OPT_FILE | OPT_ID | OPT_SCOPE | OPT_ALLOWANCE, OPT_FILE | OPT_ID},
    {"list", CLIENTS_LIST, OPT_FILE | OPT_JSON, OPT_FILE},
    {"limit", CLIENTS_LIMIT, OPT_FILE | OPT_ID | OPT_ALLOWANCE, OPT_FILE | OPT_ID | OPT_ALLOWANCE},
    {"rotate", CLIENTS_ROTATE, OPT_FILE | OPT_ID | OPT_TOKEN_STDOUT | OPT_TOKEN_STDIN | OPT_OVERLAP, OPT_FILE | OPT_ID},
    {"revoke", CLIENTS_REVOKE, OPT_FILE | OPT_ID, OPT_FILE | OPT_ID},
};

static const char *name_of(unsigned opt)
{
    for (size_t i = 0; LONG_OPTIONS[i].name != NULL; i++)
        if ((unsigned)LONG_OPTIONS[i].val == opt)
            return LONG_OPTIONS[i].name;
    return "?";
}

static bool take_allowance(clients_options_t *options, const char *text)
{
    size_t len = strlen(text);
    if (len == 0 || strspn(text, "0123456789") != len)
        return false;
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    if (errno != 0 || value > INT64_MAX)
        return false;
    options->has_allowance = true;
    options->paid_seconds_per_day = value;
    return true;
}

/* NULL, or what is wrong with the value. */
static const char *take_option(clients_options_t *options, int opt, const char *value)
{
    switch (opt) {
    case OPT_FILE:
        options->file = value;
        return value[0] != '\0' ? NULL : "-file needs a path";
    case OPT_ID:
        options->id = value;
        return NULL;
    case OPT_SCOPE:
        if (options->scope_count == CALLER_SCOPES_MAX)
            return "too many -scope";
        options->scopes[options->scope_count++] = value;
        return NULL;
    case OPT_TOKEN_STDOUT:
        options->token_stdout = true;
        return NULL;
    case OPT_TOKEN_STDIN:
        options->token_stdin = true;
        return NULL;
    case OPT_ALLOWANCE:
        return take_allowance(options, value) ? NULL : "-paid-seconds-per-day is a whole number, not negative";
    case OPT_JSON:
        options->json = true;
        return NULL;
    case OPT_OVERLAP:
        if (!duration_parse(value, &options->overlap_ms) || options->overlap_ms < 1 ||
            options->overlap_ms > CALLERS_OVERLAP_MAX_MS)
            return "-overlap is a time such as 30m or 24h, at most 720h";
        return NULL;
    default:
        options->command = CLIENTS_HELP;
        return NULL;
    }
}

/* NULL, or which option is missing or out of place. */
static bool check_options(const clients_options_t *options, size_t command, unsigned given,
                          char error[CLIENTS_ERROR_MAX])
{
    unsigned missing = COMMANDS[command].needs & ~given, foreign = given & ~COMMANDS[command].takes;
    const char *name = COMMANDS[command].name;
    /* The lowest bit: one complaint is enough. */
    if (foreign != 0)
        snprintf(error, CLIENTS_ERROR_MAX, "%s takes no -%s", name, name_of(foreign & -foreign));
    else if (missing != 0)
        snprintf(error, CLIENTS_ERROR_MAX, "%s needs -%s", name, name_of(missing & -missing));
    else if (options->command == CLIENTS_ROTATE && options->token_stdout == options->token_stdin)
        snprintf(error, CLIENTS_ERROR_MAX, "rotate needs one of -token-stdout and -token-stdin");
    else
        return true;
    return false;
}

static bool is_help(const char *word)
{
    return strcmp(word, "help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "-help") == 0 ||
           strcmp(word, "--help") == 0;
}

bool clients_options_parse(int argc, char **argv, clients_options_t *options, char error[CLIENTS_ERROR_MAX])
{
    *options = (clients_options_t){.command = CLIENTS_HELP};
    if (argc < 2 || is_help(argv[1]))
        return true;
    size_t command = 0, count = sizeof(COMMANDS) / sizeof(COMMANDS[0]);
    while (command < count && strcmp(COMMANDS[command].name, argv[1]) != 0)
        command++;
    if (command == count) {
        snprintf(error, CLIENTS_ERROR_MAX, "there is no command %.64s", argv[1]);
        return false;
    }
    options->command = COMMANDS[command].command;
    unsigned given = 0;
    int opt;
    optind = 0;
    opterr = 0; /* our line is the only one */
    while ((opt = getopt_long_only(argc - 1, argv + 1, ":h", LONG_OPTIONS, NULL)) != -1) {
        if (opt == '?' || opt == ':') {
            snprintf(error, CLIENTS_ERROR_MAX, opt == '?' ? "%.64s is not an option" : "%.64s needs a value",
                     argv[optind]);
            return false;
        }
        const char *problem = take_option(options, opt, optarg);
        if (problem != NULL) {
            snprintf(error, CLIENTS_ERROR_MAX, "%s", problem);
            return false;
        }
        if (options->command == CLIENTS_HELP)
            return true;
        given |= (unsigned)opt;
    }
    if (optind < argc - 1) {
        snprintf(error, CLIENTS_ERROR_MAX, "%s takes no arguments besides its options", COMMANDS[command].name);
        return false;
    }
    return check_options(options, command, given, error);
}
