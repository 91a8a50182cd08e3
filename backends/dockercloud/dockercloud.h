/* The wall of Docker's hosted microVMs (docs/dockercloud.md). */
#ifndef BACKENDS_DOCKERCLOUD_DOCKERCLOUD_H
#define BACKENDS_DOCKERCLOUD_DOCKERCLOUD_H

#include "backends/backend.h"

extern const backend_ops_t DOCKERCLOUD_BACKEND;

#endif
