/* The number guests run as (spec backend-docker 1.2): nobody's on this machine, so a file of a guest's, or a process
 * seen from outside, is never taken for somebody's. The one after it is kept free for checks. */
#include <grp.h>
#include <pwd.h>
#include <stdio.h>

#include "backends/docker/preflight.h"
#include "config/docker.h"

/* The account files themselves: a name service could know every number there is. False when the file cannot be read,
 * and when it has the number. */
static bool is_free_user(const char *path, uint32_t uid, char failure[BACKEND_TEXT_MAX])
{
    FILE *file = fopen(path, "re");
    const struct passwd *entry;
    bool is_free = file != NULL;
    if (file == NULL)
        snprintf(failure, BACKEND_TEXT_MAX, "%.128s cannot be read, so SANDBOX_GUEST_UID could be somebody's", path);
    while (is_free && (entry = fgetpwent(file)) != NULL) {
        if (entry->pw_uid == uid || entry->pw_gid == uid) {
            snprintf(failure, BACKEND_TEXT_MAX,
                     "the number %u for guests belongs to the user %.64s of this machine: set SANDBOX_GUEST_UID to one "
                     "that is free, as must be the one after it",
                     (unsigned)uid, entry->pw_name);
            is_free = false;
        }
    }
    if (file != NULL)
        fclose(file);
    return is_free;
}

static bool is_free_group(const char *path, uint32_t gid, char failure[BACKEND_TEXT_MAX])
{
    FILE *file = fopen(path, "re");
    const struct group *entry;
    bool is_free = file != NULL;
    if (file == NULL)
        snprintf(failure, BACKEND_TEXT_MAX, "%.128s cannot be read, so SANDBOX_GUEST_UID could be somebody's", path);
    while (is_free && (entry = fgetgrent(file)) != NULL) {
        if (entry->gr_gid == gid) {
            snprintf(
                failure, BACKEND_TEXT_MAX,
                "the number %u for guests belongs to the group %.64s of this machine: set SANDBOX_GUEST_UID to one "
                "that is free, as must be the one after it",
                (unsigned)gid, entry->gr_name);
            is_free = false;
        }
    }
    if (file != NULL)
        fclose(file);
    return is_free;
}

static bool is_outside_bands(uint32_t uid, char failure[BACKEND_TEXT_MAX])
{
    for (size_t i = 0; i < GUEST_UID_BANDS; ++i) {
        if (uid >= GUEST_UID_TAKEN[i].first && uid <= GUEST_UID_TAKEN[i].last) {
            snprintf(failure, BACKEND_TEXT_MAX,
                     "the number %u for guests lies in %lld to %lld, which systemd gives to users it makes up: set "
                     "SANDBOX_GUEST_UID to another",
                     (unsigned)uid, (long long)GUEST_UID_TAKEN[i].first, (long long)GUEST_UID_TAKEN[i].last);
            return false;
        }
    }
    return true;
}

bool preflight_vet_uid(uint32_t uid, const char *passwd_path, const char *group_path, char failure[BACKEND_TEXT_MAX])
{
    if (passwd_path == NULL)
        passwd_path = "/etc/passwd";
    if (group_path == NULL)
        group_path = "/etc/group";
    /* 65535 and the largest number mean "none" to some calls. */
    if (uid == 0 || uid >= UINT32_MAX - 1) {
        snprintf(failure, BACKEND_TEXT_MAX, "the number %u cannot be a guest's: set SANDBOX_GUEST_UID to another",
                 (unsigned)uid);
        return false;
    }
    for (uint32_t number = uid; number <= uid + 1; ++number) {
        if (!is_outside_bands(number, failure) || !is_free_user(passwd_path, number, failure) ||
            !is_free_group(group_path, number, failure))
            return false;
    }
    return true;
}
