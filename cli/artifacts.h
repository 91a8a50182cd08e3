/* Artifacts of a run as files below one directory: never outside it, through no symbolic link, whatever the answer
 * says. */
#ifndef CLI_ARTIFACTS_H
#define CLI_ARTIFACTS_H

#include <stdbool.h>
#include <stddef.h>

#include "records/plimsoll.pb-c.h"

enum { ARTIFACTS_ERROR_MAX = 1536 };

/* Whether they are some of those asked for, each at most once, in that order (spec protocol 5). NULL, or what is not
 * so. */
const char *artifacts_check(const Plimsoll__V1__ProjectResult *result, char *const *asked, size_t asked_count);
/* Writes all of them below `dir`, which is made if it is not there, as are directories in it. A file in the way is
 * replaced in one step; anything else in the way is left alone. false with the reason, naming the artifact; those
 * before it are written. */
bool artifacts_write(const Plimsoll__V1__ProjectResult *result, const char *dir, char why[ARTIFACTS_ERROR_MAX]);

#endif
