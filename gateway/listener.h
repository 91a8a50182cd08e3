/* Binding a listening address of the configuration. */
#ifndef GATEWAY_LISTENER_H
#define GATEWAY_LISTENER_H

#include "config/options.h"

/* The listening descriptor, or -1 with a problem naming `setting`. An empty host listens on every address, v6 and v4.
 */
int listener_bind(const char *setting, const char *address, problems_t *problems);

#endif
