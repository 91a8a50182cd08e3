/* The wall `openshell`: sandboxes of an NVIDIA OpenShell gateway, over its gRPC API v0.1. Tier container. */
#ifndef BACKENDS_OPENSHELL_H
#define BACKENDS_OPENSHELL_H

#include "backends/backend.h"

extern const backend_ops_t OPENSHELL_BACKEND;

#endif
