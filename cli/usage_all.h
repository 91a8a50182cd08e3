/* `plimsoll usage --all`: every caller's day, read from the records' Redis itself. */
#ifndef CLI_USAGE_ALL_H
#define CLI_USAGE_ALL_H

#include <stdbool.h>

/* `day` is YYYYMMDD (UTC), NULL = today. Returns the exit status. */
int usage_all(const char *day, bool json);

#endif
