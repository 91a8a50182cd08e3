/* `plimsoll runs export`: every run of every page, a JSON object a line. */
#ifndef CLI_RUNS_EXPORT_H
#define CLI_RUNS_EXPORT_H

#include "cli/connection.h"
#include "cli/runs_options.h"

/* Returns the exit status. An export that ends early says on stderr with which cursor it goes on. */
int runs_export(const runs_options_t *options, const connection_t *connection);

#endif
