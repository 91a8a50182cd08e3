#include "gateway/front_confine.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

#include <seccomp.h>

#include "backends/confine.h"

static bool install(scmp_filter_ctx filter)
{
    static const int fatal[] = {SCMP_SYS(execve),  SCMP_SYS(execveat), SCMP_SYS(fork), SCMP_SYS(vfork),
                                SCMP_SYS(unshare), SCMP_SYS(kill),     SCMP_SYS(tkill)};
    for (size_t i = 0; i < sizeof(fatal) / sizeof(fatal[0]); i++) {
        int error = seccomp_rule_add(filter, SCMP_ACT_KILL_PROCESS, fatal[i], 0);
        if (error != 0 && error != -EDOM && error != -EINVAL) /* a call this machine does not have */
            return false;
    }
    /* threads yes, processes no; clone3 hides its flags, and the C library goes back to clone */
    return seccomp_rule_add(filter, SCMP_ACT_KILL_PROCESS, SCMP_SYS(clone), 1,
                            SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0)) == 0 &&
           seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0) == 0 && seccomp_load(filter) == 0;
}

const char *front_confine(void)
{
    if (!backend_confine_has_filter())
        return NULL;
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    bool fine = filter != NULL && install(filter);
    if (filter != NULL)
        seccomp_release(filter);
    return fine ? NULL : "the system call filter was not accepted";
}
