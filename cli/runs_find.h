/* `plimsoll runs find KEY`: GET /v1/runs/by-key/KEY. */
#ifndef CLI_RUNS_FIND_H
#define CLI_RUNS_FIND_H

#include "cli/connection.h"
#include "cli/runs_options.h"

enum { RUNS_KEY_MAX = 512 /* characters: 255, each with a backslash, and two quotation marks */ };

/* Returns the exit status. */
int runs_find(const runs_options_t *options, const connection_t *connection, const char *key);

/* The page's path, the key percent-encoded: everything but RFC 3986's unreserved characters. NULL when the key is empty
 * or longer than RUNS_KEY_MAX; malloc'ed. */
char *runs_find_path(const char *key, const char *wait_s);

#endif
