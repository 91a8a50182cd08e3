/* Which machine this is, for what only a process of the same machine can tell. */
#ifndef BACKENDS_HOST_ID_H
#define BACKENDS_HOST_ID_H

#include <stddef.h>

/* "<boot id>.<inode of the network namespace>": where another process's abstract socket can be believed. Empty when it
 * cannot be told: nobody's is believed, and nobody believes ours. */
void host_id(char *out, size_t size);

#endif
