#include "gateway/user.h"

#include <pwd.h>
#include <stddef.h>
#include <stdlib.h>

bool user_lookup(const char *name, int *uid, int *gid)
{
    char buffer[4096], *end;
    struct passwd entry, *found = NULL;
    if (getpwnam_r(name, &entry, buffer, sizeof(buffer), &found) == 0 && found != NULL) {
        *uid = (int)found->pw_uid;
        *gid = (int)found->pw_gid;
        return true;
    }
    long number = strtol(name, &end, 10);
    if (end == name || *end != '\0' || number < 1 || number > 0x7ffffffe)
        return false;
    *uid = *gid = (int)number;
    return true;
}
