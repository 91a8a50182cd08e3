/* The startup proof: what must work works, what must fail was tried and failed. Serves only if all of it did. */
#ifndef BACKENDS_WASM_PROOF_H
#define BACKENDS_WASM_PROOF_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/backend.h"
#include "backends/wasm/worker.h"

/* In a coroutine. `pages`: the cap on a run's memory. */
bool wasm_prove(wasm_workers_t *workers, uint32_t pages, char failure[BACKEND_TEXT_MAX]);

#endif
