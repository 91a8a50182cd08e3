/* The startup proof: what must work works, what must fail was tried and failed. Serves only if all of it did. */
#ifndef BACKENDS_WASM_PROOF_H
#define BACKENDS_WASM_PROOF_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/backend.h"
#include "backends/wasm/worker.h"

typedef enum {
    WASM_PROOF_HOLDS,
    WASM_PROOF_UNTRIED, /* no verdict: says nothing of the wall */
    WASM_PROOF_BROKEN,  /* what must work did not, or what must fail did not */
} wasm_proof_t;

/* In a coroutine. `pages`: the cap on a run's memory. */
wasm_proof_t wasm_prove(wasm_workers_t *workers, uint32_t pages, char failure[BACKEND_TEXT_MAX]);

#endif
