#include "backends/wasm/proof.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "backends/wasm/execute.h"
#include "core/clock.h"

enum {
    PROOF_RUN_MS = 2000, /* for a snippet that takes one */
    PROOF_BUSY_MS = 50,  /* what the endless one gets */
    /* Above it one array buffer of the cap's size cannot be asked for: its length is a signed 32-bit number. */
    PROOF_BUFFER_PAGES_MAX = 32767,
};

static const struct {
    wasm_probe_t what;
    const char *name;
} PROBES[] = {
    {WASM_PROBE_OPEN, "open"},
    {WASM_PROBE_SOCKET, "socket"},
    {WASM_PROBE_FORK, "fork"},
    {WASM_PROBE_EXEC, "execve"},
    {WASM_PROBE_KILL, "kill"},
    {WASM_PROBE_PTRACE, "ptrace"},
    {WASM_PROBE_MMAP, "mmap"},
    {WASM_PROBE_EXECUTABLE_PAGE, "making memory executable"},
    {WASM_PROBE_OTHER_FD, "writing to another descriptor"},
};

static uint64_t deadline(uint32_t ms)
{
    return clock_mono_us() + (uint64_t)ms * 1000;
}

static bool is_text(const buffer_t *bytes, const char *text)
{
    return bytes->len == strlen(text) && memcmp(bytes->base, text, bytes->len) == 0;
}

/* Takes the result. One without a verdict says nothing of the wall. */
static wasm_proof_t conclude(wasm_result_t *result, bool holds, const char *broken, char failure[BACKEND_TEXT_MAX])
{
    wasm_proof_t outcome = WASM_PROOF_HOLDS;
    if (result->verdict != WASM_RAN) {
        outcome = WASM_PROOF_UNTRIED;
        snprintf(failure, BACKEND_TEXT_MAX, "could not be tried: %s", result->reason);
    } else if (!holds) {
        outcome = WASM_PROOF_BROKEN;
        snprintf(failure, BACKEND_TEXT_MAX, "%s (exit code %d, status %#x)", broken, (int)result->exit_code,
                 (unsigned)result->status);
    }
    wasm_result_dispose(result);
    return outcome;
}

static void run(wasm_workers_t *workers, const char *code, uint32_t ms, wasm_result_t *out)
{
    wasm_execute(workers, code, strlen(code), deadline(ms), NULL, out);
}

static wasm_proof_t does_run(wasm_workers_t *workers, char failure[BACKEND_TEXT_MAX])
{
    wasm_result_t result;
    run(workers, "console.log(\"wasm\", 6*7)", PROOF_RUN_MS, &result);
    bool holds = result.exit_code == 0 && is_text(&result.out, "wasm 42\n") && result.err.len == 0;
    return conclude(&result, holds, "the first snippet did not print wasm 42", failure);
}

static wasm_proof_t is_killed(wasm_workers_t *workers, size_t probe, char failure[BACKEND_TEXT_MAX])
{
    char broken[BACKEND_TEXT_MAX];
    wasm_result_t result;
    wasm_probe(workers, PROBES[probe].what, deadline(PROOF_RUN_MS), &result);
    bool holds = !result.has_survived && WIFSIGNALED(result.status) && WTERMSIG(result.status) == SIGSYS;
    snprintf(broken, sizeof(broken), "a worker was not ended for %s", PROBES[probe].name);
    return conclude(&result, holds, broken, failure);
}

/* The cap as the engine's memory has it, and as a script meets it. */
static wasm_proof_t is_memory_capped(wasm_workers_t *workers, uint32_t pages, char failure[BACKEND_TEXT_MAX])
{
    static const char broken[] = "memory beyond the cap was given";
    char code[128];
    wasm_result_t result;

    wasm_probe(workers, WASM_PROBE_GROW, deadline(PROOF_RUN_MS), &result);
    bool holds = !result.has_survived && result.exit_code == 0 && result.status == 0;
    wasm_proof_t outcome = conclude(&result, holds, broken, failure);
    /* Filling gigabytes every minute would prove no more than the probe has. */
    if (outcome != WASM_PROOF_HOLDS || pages > PROOF_BUFFER_PAGES_MAX)
        return outcome;
    snprintf(code, sizeof(code), "console.log(new ArrayBuffer(%llu).byteLength)", (unsigned long long)pages * 65536);
    run(workers, code, PROOF_RUN_MS, &result);
    holds = result.exit_code == WASM_EXIT_EXCEPTION && result.out.len == 0;
    return conclude(&result, holds, broken, failure);
}

static wasm_proof_t is_time_capped(wasm_workers_t *workers, char failure[BACKEND_TEXT_MAX])
{
    wasm_result_t result;
    uint64_t started_us = clock_mono_us();
    run(workers, "for (;;);", PROOF_BUSY_MS, &result);
    /* How much later than the deadline depends on the machine's load too, and is for the tests. */
    bool holds = result.is_timed_out && clock_mono_us() - started_us >= PROOF_BUSY_MS * 1000;
    return conclude(&result, holds, "an endless loop was not stopped at its deadline", failure);
}

wasm_proof_t wasm_prove(wasm_workers_t *workers, uint32_t pages, char failure[BACKEND_TEXT_MAX])
{
    wasm_proof_t outcome = does_run(workers, failure);
    for (size_t i = 0; outcome == WASM_PROOF_HOLDS && i < sizeof(PROBES) / sizeof(PROBES[0]); ++i)
        outcome = is_killed(workers, i, failure);
    if (outcome == WASM_PROOF_HOLDS)
        outcome = is_memory_capped(workers, pages, failure);
    return outcome == WASM_PROOF_HOLDS ? is_time_capped(workers, failure) : outcome;
}
