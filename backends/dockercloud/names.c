#include "backends/dockercloud/names.h"

#include <stdio.h>
#include <string.h>

enum { PREFIX = sizeof(DC_NAME_PREFIX) - 1 };

void dc_name_make(char out[DC_NAME + 1], const char *installation, const char *stamp)
{
    snprintf(out, DC_NAME + 1, DC_NAME_PREFIX "%.*s-%.*s", DC_OWNER, installation, LEDGER_STAMP, stamp);
}

bool dc_name_read(const char *name, const char *installation, char stamp[LEDGER_STAMP + 1])
{
    if (strlen(name) != DC_NAME || strncmp(name, DC_NAME_PREFIX, PREFIX) != 0 ||
        strncmp(name + PREFIX, installation, DC_OWNER) != 0 || name[PREFIX + DC_OWNER] != '-' ||
        !ledger_is_stamp(name + PREFIX + DC_OWNER + 1))
        return false;
    memcpy(stamp, name + PREFIX + DC_OWNER + 1, LEDGER_STAMP + 1);
    return true;
}
