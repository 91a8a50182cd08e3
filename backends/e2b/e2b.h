/* The wall that runs snippets and projects in microVMs of E2B (docs/e2b.md). */
#ifndef BACKENDS_E2B_E2B_H
#define BACKENDS_E2B_E2B_H

#include "backends/backend.h"

extern const backend_ops_t E2B_BACKEND;

#endif
