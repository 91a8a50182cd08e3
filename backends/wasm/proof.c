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
    {WASM_PROBE_EXECUTABLE_PAGE, "mprotect to executable"},
    {WASM_PROBE_OTHER_FD, "write to another descriptor"},
    {WASM_PROBE_GROW, "memory growth beyond the cap"},
};

static uint64_t deadline(uint32_t ms)
{
    return clock_mono_us() + (uint64_t)ms * 1000;
}

static bool is_text(const buffer_t *bytes, const char *text)
{
    return bytes->len == strlen(text) && memcmp(bytes->base, text, bytes->len) == 0;
}

static bool fail(char failure[BACKEND_TEXT_MAX], const char *what, const wasm_result_t *result)
{
    snprintf(failure, BACKEND_TEXT_MAX, "%s: verdict %d (%s), exit code %d, status %#x", what, (int)result->verdict,
             result->reason != NULL ? result->reason : "ran", (int)result->exit_code, (unsigned)result->status);
    return false;
}

static void run(wasm_workers_t *workers, const char *code, uint32_t ms, wasm_result_t *out)
{
    wasm_execute(workers, code, strlen(code), deadline(ms), NULL, out);
}

static bool does_run(wasm_workers_t *workers, char failure[BACKEND_TEXT_MAX])
{
    wasm_result_t result;
    run(workers, "console.log(\"wasm\", 6*7)", PROOF_RUN_MS, &result);
    bool ok =
        result.verdict == WASM_RAN && result.exit_code == 0 && is_text(&result.out, "wasm 42\n") && result.err.len == 0;
    if (!ok)
        fail(failure, "the first snippet did not print wasm 42", &result);
    wasm_result_dispose(&result);
    return ok;
}

static bool is_killed(wasm_workers_t *workers, size_t probe, char failure[BACKEND_TEXT_MAX])
{
    wasm_result_t result;
    wasm_probe(workers, PROBES[probe].what, deadline(PROOF_RUN_MS), &result);
    bool ok = result.verdict == WASM_RAN && !result.has_survived && WIFSIGNALED(result.status) &&
              WTERMSIG(result.status) == SIGSYS;
    if (PROBES[probe].what == WASM_PROBE_GROW) /* refused, not killed */
        ok = result.verdict == WASM_RAN && !result.has_survived && result.exit_code == 0 && result.status == 0;
    if (!ok) {
        char what[BACKEND_TEXT_MAX];
        snprintf(what, sizeof(what), "a worker was not stopped at %s", PROBES[probe].name);
        fail(failure, what, &result);
    }
    wasm_result_dispose(&result);
    return ok;
}

static bool is_memory_capped(wasm_workers_t *workers, uint32_t pages, char failure[BACKEND_TEXT_MAX])
{
    char code[128];
    wasm_result_t result;
    if (pages > PROOF_BUFFER_PAGES_MAX)
        return true; /* WASM_PROBE_GROW has tried the cap itself; filling gigabytes every minute would prove no more */
    snprintf(code, sizeof(code), "console.log(new ArrayBuffer(%llu).byteLength)", (unsigned long long)pages * 65536);
    run(workers, code, PROOF_RUN_MS, &result);
    bool ok = result.verdict == WASM_RAN && result.exit_code == WASM_EXIT_EXCEPTION && result.out.len == 0;
    if (!ok)
        fail(failure, "memory beyond the cap was given", &result);
    wasm_result_dispose(&result);
    return ok;
}

static bool is_time_capped(wasm_workers_t *workers, char failure[BACKEND_TEXT_MAX])
{
    wasm_result_t result;
    uint64_t started_us = clock_mono_us();
    run(workers, "for (;;);", PROOF_BUSY_MS, &result);
    uint64_t took_us = clock_mono_us() - started_us;
    bool ok = result.verdict == WASM_RAN && result.is_timed_out && took_us >= PROOF_BUSY_MS * 1000 &&
              took_us <= (PROOF_BUSY_MS + WASM_KILL_AFTER_MS + WASM_LAST_WORDS_MS) * 1000;
    if (!ok)
        fail(failure, "an endless loop was not stopped at its deadline", &result);
    wasm_result_dispose(&result);
    return ok;
}

bool wasm_prove(wasm_workers_t *workers, uint32_t pages, char failure[BACKEND_TEXT_MAX])
{
    if (!does_run(workers, failure))
        return false;
    for (size_t i = 0; i < sizeof(PROBES) / sizeof(PROBES[0]); ++i) {
        if (!is_killed(workers, i, failure))
            return false;
    }
    return is_memory_capped(workers, pages, failure) && is_time_capped(workers, failure);
}
