/* What main and the commands share: how a command is called, and how it complains about its own arguments. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

/* argv[0] is "plimsoll NAME", as getopt's messages begin with it. Returns the exit status. */
int command_run(int argc, char **argv);
int command_describe(int argc, char **argv);
int command_backends(int argc, char **argv);
int command_runs(int argc, char **argv);
int command_usage(int argc, char **argv);
int command_clients(int argc, char **argv);
int command_digest(int argc, char **argv);
int command_attest(int argc, char **argv);
int command_log(int argc, char **argv);
int command_ledger(int argc, char **argv);
int command_spool(int argc, char **argv);
int command_demo(int argc, char **argv);

/* One line on stderr, the way to the help, and CLI_USAGE to return. */
int usage_error(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* For a complaint getopt has printed already. */
int usage_hint(const char *command);
/* Prints help on stdout; CLI_OK, or CLI_FAILED when it could not be written. */
int print_help(const char *text);

#endif
