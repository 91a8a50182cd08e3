/* Private to the smoke test: a host socket like the broker's, for as long as one sandbox (S12). */
#ifndef BACKENDS_DOCKER_SMOKE_SOCKET_H
#define BACKENDS_DOCKER_SMOKE_SOCKET_H

#include <stdbool.h>

#include "core/loop.h"

typedef struct smoke_socket smoke_socket_t;

enum { SMOKE_SOCKET_YOUNG_S = 3 };

/* Listens at a new name in `dir` and answers "ping" with "pong". NULL when it cannot. Removes those that a killed
 * process left there, when they are older than SMOKE_SOCKET_YOUNG_S. */
smoke_socket_t *smoke_socket_open(loop_t *loop, const char *dir);
/* The HostConfig.Binds entry. */
const char *smoke_socket_bind(const smoke_socket_t *host_socket);
/* Removes the name. */
void smoke_socket_close(smoke_socket_t *host_socket);

#endif
