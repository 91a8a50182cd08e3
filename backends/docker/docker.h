/* The walls on this machine's Docker Engine: containers (`docker`), and the same under gVisor (`gvisor`). */
#ifndef BACKENDS_DOCKER_DOCKER_H
#define BACKENDS_DOCKER_DOCKER_H

#include "backends/backend.h"

extern const backend_ops_t DOCKER_BACKEND, GVISOR_BACKEND;

#endif
