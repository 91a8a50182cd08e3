/*
 * What a sandbox is called: "gw-", the first DC_OWNER digits of the installation's identity, "-", its stamp. The
 * service takes 64 bytes of [A-Za-z0-9_-] (spec 2.2), which both identities whole would pass; 96 bits are told apart
 * all the same. The dash after the prefix belongs to it, so no other installation's name begins with ours.
 */
#ifndef BACKENDS_DOCKERCLOUD_NAMES_H
#define BACKENDS_DOCKERCLOUD_NAMES_H

#include <stdbool.h>

#include "records/ledger_entry.h"

#define DC_NAME_PREFIX "gw-"
enum {
    DC_OWNER = 24,
    DC_NAME_MAX = 64, /* the service's own limit */
    DC_NAME = sizeof(DC_NAME_PREFIX) - 1 + DC_OWNER + 1 + LEDGER_STAMP,
};
_Static_assert(DC_NAME <= DC_NAME_MAX, "a sandbox's name must be one that the service takes");

/* `installation` and `stamp` are stamps. */
void dc_name_make(char out[DC_NAME + 1], const char *installation, const char *stamp);
/* Whether `name` is one of the installation's; then its stamp too. */
bool dc_name_read(const char *name, const char *installation, char stamp[LEDGER_STAMP + 1]);

#endif
