/* The `plimsoll` command: finds the subcommand and hands over. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli/command.h"
#include "cli/exchange.h"
#include "cli/exit_codes.h"
#include "config/version.h"
#include "core/random.h"

#include "config/version.h"

typedef struct {
    const char *name, *title; /* title: argv[0] of the command */
    int (*run)(int argc, char **argv);
} command_t;

static const command_t COMMANDS[] = {
    {"run", "plimsoll run", command_run},
    {"describe", "plimsoll describe", command_describe},
    {"backends", "plimsoll backends", command_backends},
    {"runs", "plimsoll runs", command_runs},
    {"usage", "plimsoll usage", command_usage},
    {"clients", "plimsoll clients", command_clients},
    {"digest", "plimsoll digest", command_digest},
    {"attest", "plimsoll attest", command_attest},
    {"log", "plimsoll log", command_log},
    {"ledger", "plimsoll ledger", command_ledger},
    {"spool", "plimsoll spool", command_spool},
    {"demo", "plimsoll demo", command_demo},
};

static const char HELP[] =
    "Usage: plimsoll COMMAND [OPTION]...\n"
    "\n"
    "Runs untrusted code through a plimsoll gateway, and says with every result how strong the wall was.\n"
    "\n"
    "  run FILE           run a JavaScript file; its output and exit code become this command's\n"
    "  run --project DIR  run commands in a directory of files, and bring files back\n"
    "  describe           what stands behind the gateway\n"
    "  backends           the gateway's backends and their state\n"
    "  runs list          the caller's runs, newest first\n"
    "  runs show RUN      one run with its record, checked\n"
    "  runs find KEY      what became of the run with a request ID or Idempotency-Key\n"
    "  runs export        all of them, a JSON object a line\n"
    "  usage              the caller's counts, budgets and caps; --all: every caller's, from the records' Redis\n"
    "  clients ...        edit a gateway's callers file (offline)\n"
    "  digest ...         digest a request, result or record; check test vectors (offline)\n"
    "  attest ...         signed evidence of runs: make a key, run and record, verify, replay\n"
    "  log ...            the gateway's log of records: heads, proofs, and whether it was rewritten\n"
    "  ledger ...         list, and reap, the sandboxes not known to be gone (the operator, over Redis)\n"
    "  spool ...          list the records that wait for Redis on a gateway's disk (the operator)\n"
    "  demo               start a gateway of its own and show what it does\n"
    "  help [COMMAND]     this text, or the command's; the same as COMMAND --help\n"
    "  --version          the version\n"
    "\n"
    "Environment:\n"
    "  PLIMSOLL_URL           the gateway's base URL (default http://127.0.0.1:8746)\n"
    "  PLIMSOLL_CALLER_TOKEN  the caller's bearer token; or --token-file FILE. Never an argument, which others could "
    "read\n"
    "\n"
    "Three outcomes matter: it ran (answered), nothing ran (refused), it may have run (unknown). Only the second is\n"
    "safe to repeat blindly; for the third, repeat with the same --request-id or look the run up first.\n"
    "\n" EXIT_CODES_HELP;

static const command_t *find_command(const char *name)
{
    for (size_t i = 0; i < sizeof(COMMANDS) / sizeof(COMMANDS[0]); i++)
        if (strcmp(COMMANDS[i].name, name) == 0)
            return &COMMANDS[i];
    return NULL;
}

static int run_command(const command_t *command, int argc, char **argv)
{
    /* A closed pipe is reported where it matters, not died of. */
    signal(SIGPIPE, SIG_IGN);
    random_init();
    exchange_init();
    argv[0] = (char *)command->title;
    return command->run(argc, argv);
}

static int help(int argc, char **argv)
{
    if (argc < 3)
        return print_help(HELP);
    const command_t *command = find_command(argv[2]);
    if (command == NULL)
        return usage_error("plimsoll", "there is no command %.64s", argv[2]);
    char *asked[] = {argv[2], (char *)"--help", NULL};
    return run_command(command, 2, asked);
}

int main(int argc, char **argv)
{
    const char *word = argc < 2 ? "" : argv[1];
    if (argc < 2) {
        fputs(HELP, stderr);
        return CLI_USAGE;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0)
        return help(argc, argv);
    if (strcmp(word, "--version") == 0)
        return print_help("plimsoll " PLIMSOLL_VERSION "\n");
    const command_t *command = find_command(word);
    if (command == NULL)
        return usage_error("plimsoll", "there is no %s %.64s", word[0] == '-' ? "option" : "command", word);
    return run_command(command, argc - 1, argv + 1);
}
