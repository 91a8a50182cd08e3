#include "backends/wasm/wasm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/wasm/execute.h"
#include "backends/wasm/proof.h"
#include "backends/wasm/worker.h"
#include "config/options.h"
#include "core/clock.h"
#include "core/co.h"
#include "core/mem.h"

enum {
    WASM_MAGIC = 0x7761736d,
    READY_MS = WASM_START_MS + 1000, /* a proof waits this long for the template */
    READY_LOOK_MS = 10,
};

typedef struct {
    unsigned magic;
    const backend_host_t *host;
    uint32_t pages;
    char problem[BACKEND_TEXT_MAX]; /* of the configuration; empty when there is none */
    bool was_proven;
    wasm_workers_t *workers;
} wasm_t;

static wasm_t *wasm_check(void *self)
{
    wasm_t *wasm = self;
    if (wasm->magic != WASM_MAGIC)
        mem_fatal("not the wasm wall");
    return wasm;
}

/* What this wall cannot enforce is refused, never ignored (spec section 2). */
static void find_problem(wasm_t *wasm)
{
    static const struct {
        option_id_t option;
        const char *what;
    } beyond[] = {{OPT_SANDBOX_CPUS, "SANDBOX_CPUS"},
                  {OPT_SANDBOX_PIDS, "SANDBOX_PIDS"},
                  {OPT_SANDBOX_DISK_MB, "SANDBOX_DISK_MB"}};
    for (size_t i = 0; i < sizeof(beyond) / sizeof(beyond[0]); ++i) {
        if (option_is_set(beyond[i].option)) {
            snprintf(wasm->problem, sizeof(wasm->problem), "%s is set, and the wasm backend cannot enforce it",
                     beyond[i].what);
            return;
        }
    }
    if (wasm->pages < WASM_PAGES_MIN)
        snprintf(wasm->problem, sizeof(wasm->problem),
                 "SANDBOX_MEMORY_MB is below %d, which the wasm backend's engine needs",
                 WASM_PAGES_MIN / WASM_PAGES_PER_MB);
}

static uint32_t pages_of(int64_t megabytes)
{
    if (megabytes <= 0)
        return WASM_PAGES_DEFAULT;
    if (megabytes > WASM_PAGES_MAX / WASM_PAGES_PER_MB)
        return WASM_PAGES_MAX;
    return (uint32_t)megabytes * WASM_PAGES_PER_MB;
}

static void on_up(void *data)
{
    wasm_t *wasm = wasm_check(data);
    /* What was proven was the template before this one. The first one is waited for by the first proof. */
    if (wasm->was_proven)
        wasm->host->reprove(wasm->host->data);
}

static void *wasm_setup(const backend_host_t *host)
{
    wasm_t *wasm = mem_alloc(sizeof(*wasm));
    wasm->magic = WASM_MAGIC;
    wasm->host = host;
    wasm->pages = pages_of(option_int(OPT_SANDBOX_MEMORY_MB));
    find_problem(wasm);
    int exe_fd = wasm_process_open();
    if (exe_fd < 0 && wasm->problem[0] == '\0')
        snprintf(wasm->problem, sizeof(wasm->problem), "plimsoll-wasm, expected beside the executable: %s",
                 strerror(errno));
    wasm->workers = wasm_workers_create(host->loop, exe_fd, wasm->pages, host->capacity, on_up, wasm);
    return wasm;
}

static const char *wasm_problem(void *self)
{
    wasm_t *wasm = wasm_check(self);
    return wasm->problem[0] != '\0' ? wasm->problem : NULL;
}

static void wasm_describe(void *self, backend_facts_t *facts)
{
    wasm_t *wasm = wasm_check(self);
    const char *engine = wasm_process_engine(wasm_workers_process(wasm->workers));
    memset(facts, 0, sizeof(*facts));
    facts->tier = TIER_UNKNOWN;
    facts->javascript.supported = true;
    facts->javascript.max_timeout_ms = WASM_TIMEOUT_MAX_MS;
    facts->javascript.default_timeout_ms = WASM_TIMEOUT_DEFAULT_MS;
    facts->javascript.languages[0] = "javascript";
    if (engine[0] != '\0')
        snprintf(facts->javascript.environment, sizeof(facts->javascript.environment), "quickjs-wasm:sha256:%s",
                 engine);
    facts->memory_mb = wasm->pages / WASM_PAGES_PER_MB;
}

static bool is_ready(wasm_t *wasm)
{
    wasm_process_t *process = wasm_workers_process(wasm->workers);
    uint64_t until_ms = clock_mono_ms() + READY_MS;
    wasm_workers_start(wasm->workers);
    while (!wasm_process_is_up(process) && clock_mono_ms() < until_ms) {
        if (co_sleep(READY_LOOK_MS) == CO_CANCELED)
            return false;
    }
    return wasm_process_is_up(process);
}

static bool wasm_prove_wall(void *self, backend_facts_t *facts, char failure[BACKEND_TEXT_MAX])
{
    wasm_t *wasm = wasm_check(self);
    if (wasm->problem[0] != '\0') {
        snprintf(failure, BACKEND_TEXT_MAX, "%s", wasm->problem);
        return false;
    }
    if (!is_ready(wasm)) {
        snprintf(failure, BACKEND_TEXT_MAX, "the template process did not come up");
        facts->is_untried = true;
        return false;
    }
    wasm_proof_t outcome = wasm_prove(wasm->workers, wasm->pages, failure);
    facts->is_untried = outcome == WASM_PROOF_UNTRIED;
    if (outcome != WASM_PROOF_HOLDS)
        return false;
    wasm->was_proven = true;
    wasm_describe(wasm, facts);
    facts->tier = TIER_PROCESS;
    return true;
}

static void move_bytes(ProtobufCBinaryData *to, buffer_t *from)
{
    to->data = from->base;
    to->len = from->len;
    buffer_init(from, 0);
}

static Plimsoll__V1__RunResponse *make_response(wasm_result_t *result)
{
    Plimsoll__V1__RunResponse *response = mem_alloc(sizeof(*response));
    Plimsoll__V1__JavaScriptResult *js = mem_alloc(sizeof(*js));
    plimsoll__v1__run_response__init(response);
    plimsoll__v1__java_script_result__init(js);
    js->exit_code = result->exit_code;
    js->timed_out = result->is_timed_out;
    js->stdout_truncated = result->is_out_truncated;
    js->stderr_truncated = result->is_err_truncated;
    move_bytes(&js->stdout, &result->out);
    move_bytes(&js->stderr, &result->err);
    response->result_case = PLIMSOLL__V1__RUN_RESPONSE__RESULT_JAVASCRIPT;
    response->javascript = js;
    return response;
}

static void wasm_run(void *self, backend_run_t *run)
{
    wasm_t *wasm = wasm_check(self);
    const Plimsoll__V1__JavaScriptRun *js =
        run->request->payload_case == PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_JAVASCRIPT ? run->request->javascript : NULL;
    wasm_result_t result;
    size_t len;

    if (wasm->problem[0] != '\0') {
        backend_run_refuse(run, PLIMSOLL__BACKEND__REFUSAL__REFUSAL_UNSUPPORTED,
                           "the wasm backend is configured to enforce what it cannot", wasm->problem);
        return;
    }
    if (js == NULL) {
        backend_run_refuse(run, PLIMSOLL__BACKEND__REFUSAL__REFUSAL_UNSUPPORTED,
                           "the wasm backend runs JavaScript snippets only", NULL);
        return;
    }
    if (js->grant_profile[0] != '\0') {
        backend_run_refuse(run, PLIMSOLL__BACKEND__REFUSAL__REFUSAL_PERMISSION, "the grant cannot be issued", NULL);
        return;
    }
    len = strlen(js->code);
    if (len == 0 || len > WASM_CODE_MAX) {
        backend_run_refuse(run, PLIMSOLL__BACKEND__REFUSAL__REFUSAL_REQUEST, "code must be 1 to 262144 bytes", NULL);
        return;
    }
    wasm_execute(wasm->workers, js->code, len, run->deadline_us, run, &result);
    switch (result.verdict) {
    case WASM_RAN:
        backend_run_done(run, WASM_BACKEND.name, make_response(&result), result.is_canceled);
        break;
    case WASM_NOT_RUN:
        run->retry_after_ms = 1000;
        backend_run_refuse(run, PLIMSOLL__BACKEND__REFUSAL__REFUSAL_CAPACITY, "no sandbox could be started",
                           result.reason);
        break;
    case WASM_UNKNOWN:
        backend_run_fail(run, "internal", "the sandbox ended without a result", result.reason);
        break;
    }
    wasm_result_dispose(&result);
}

static void wasm_stop(void *self)
{
    wasm_t *wasm = wasm_check(self);
    wasm_workers_destroy(wasm->workers);
    wasm->magic = 0;
    free(wasm);
}

const backend_ops_t WASM_BACKEND = {
    .name = "wasm",
    .setup = wasm_setup,
    .check = wasm_problem,
    .describe = wasm_describe,
    .prove = wasm_prove_wall,
    .run = wasm_run,
    .stop = wasm_stop,
};
