/* What a backend role gives up once what it needs is open: root, new privileges, core dumps, and the kernel's calls
 * nobody here makes. */
#ifndef BACKENDS_CONFINE_H
#define BACKENDS_CONFINE_H

#include <stdbool.h>

#include "backends/backend.h"

/* `uid` and `gid` are taken when the process is root (with no other groups); a process that is not root stays who it
 * is. NULL, or what could not be done: then the role must not serve. Children inherit all of it. Not applied where it
 * cannot be: the system call filter under a sanitizer, which traces its own process. */
const char *backend_confine(int uid, int gid);
/* The same, but for what the wall asks to keep of root (`keep` may be NULL: nothing): exactly one supplementary group,
 * and exactly one capability, in no set a program started by the role could get it from. What this process never had is
 * not kept. */
const char *backend_confine_keeping(int uid, int gid, const backend_privileges_t *keep);
/* Whether the system call filter is part of this build. */
bool backend_confine_has_filter(void);

#endif
