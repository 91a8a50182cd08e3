/* One snippet in one worker, from its creation to its end: what the run, the proof and the tests all go through. */
#ifndef BACKENDS_WASM_EXECUTE_H
#define BACKENDS_WASM_EXECUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/backend.h"
#include "backends/wasm/worker.h"
#include "core/buffer.h"

enum {
    WASM_KILL_AFTER_MS = 100, /* past the deadline: the second layer, for a worker that ignores its own */
    WASM_LAST_WORDS_MS =
        200, /* then, for the end of its stream and its exit status; so an answer is due 300 ms past the deadline */
    WASM_CALLS_MAX = 256,     /* host calls of one run that are looked at; more get 429 */
    WASM_EXIT_CANCELED = 137, /* 128 + SIGKILL: stopped because the caller went away */
};

typedef enum {
    WASM_RAN,
    WASM_NOT_RUN, /* certainly not a byte of the code was evaluated */
    WASM_UNKNOWN, /* it may have run; there is no verdict */
} wasm_verdict_t;

typedef struct {
    wasm_verdict_t verdict;
    const char *reason; /* literal; WASM_NOT_RUN and WASM_UNKNOWN */
    bool is_canceled;
    int32_t exit_code;
    bool is_timed_out;
    bool has_survived; /* of a probe: what had to end it did not */
    int status;        /* the worker's, as waitpid has it, when it ended without a word; else 0 */
    buffer_t out, err; /* dispose with wasm_result_dispose */
    bool is_out_truncated, is_err_truncated;
} wasm_result_t;

/* In a coroutine. `run` is told of the steps; NULL for a proof. Times are monotonic microseconds. */
void wasm_execute(wasm_workers_t *workers, const char *code, size_t len, uint64_t deadline_us, backend_run_t *run,
                  wasm_result_t *out);
/* Lets a confined worker try what its walls forbid. */
void wasm_probe(wasm_workers_t *workers, wasm_probe_t what, uint64_t deadline_us, wasm_result_t *out);
void wasm_result_dispose(wasm_result_t *result);

#endif
