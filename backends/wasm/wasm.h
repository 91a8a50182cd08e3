/* JavaScript in WebAssembly: a confined process a run, forked from a template that holds the engine. Tier: process. */
#ifndef BACKENDS_WASM_WASM_H
#define BACKENDS_WASM_WASM_H

#include "backends/backend.h"

extern const backend_ops_t WASM_BACKEND;

#endif
