/* The arguments of `plimsoll clients` (spec section 1.6): long options with one dash or two. */
#ifndef CLI_CLIENTS_OPTIONS_H
#define CLI_CLIENTS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/callers.h"

typedef enum {
    CLIENTS_CREATE,
    CLIENTS_IMPORT,
    CLIENTS_LIST,
    CLIENTS_LIMIT,
    CLIENTS_ROTATE,
    CLIENTS_REVOKE,
    CLIENTS_HELP,
} clients_command_t;

typedef struct {
    clients_command_t command;
    const char *file, *id;
    const char *scopes[CALLER_SCOPES_MAX];
    size_t scope_count;
    bool token_stdout, token_stdin, json;
    bool has_allowance;
    uint64_t paid_seconds_per_day;
    int64_t overlap_ms;
} clients_options_t;

enum { CLIENTS_ERROR_MAX = 256 };

/* argv[0] is the program, argv[1] the command. Strings point into argv. false with one line in `error`. */
bool clients_options_parse(int argc, char **argv, clients_options_t *options, char error[CLIENTS_ERROR_MAX]);

extern const char CLIENTS_HELP_TEXT[];

#endif
