#include "backends/backend.h"

#include <stdio.h>
#include <string.h>

#include "backends/docker/docker.h"
#include "backends/dockercloud/dockercloud.h"
#include "backends/e2b/e2b.h"
#include "backends/openshell/openshell.h"
#include "backends/wasm/wasm.h"
#include "core/clock.h"
#include "core/fault.h"
#include "core/log.h"
#include "core/mem.h"

static const backend_ops_t *known[BACKENDS_MAX] = {
    &WASM_BACKEND,    &DOCKER_BACKEND,   &GVISOR_BACKEND,      &E2B_BACKEND, &DOCKERCLOUD_BACKEND, &OPENSHELL_BACKEND,
#ifdef PLIMSOLL_STANDIN
    &STANDIN_BACKEND, &STANDIN2_BACKEND, &STANDINPAID_BACKEND,
#endif
};

static size_t known_count(void)
{
    size_t count = 0;
    while (count < BACKENDS_MAX && known[count] != NULL)
        ++count;
    return count;
}

void backend_add(const backend_ops_t *ops)
{
    size_t count = known_count();
    if (count == BACKENDS_MAX)
        mem_fatal("more walls than BACKENDS_MAX");
    known[count] = ops;
}

const backend_ops_t *backend_find(const char *name)
{
    for (size_t i = 0; i < known_count(); ++i) {
        if (strcmp(known[i]->name, name) == 0)
            return known[i];
    }
    return NULL;
}

const char *backend_step_name(backend_step_t step)
{
    static const char *const names[STEP_COUNT] = {"", "create", "stage", "execute", "collect", "delete"};
    return names[step];
}

static void step_close(backend_run_t *run)
{
    uint64_t now_us = clock_mono_us();
    run->step_us[run->step] += now_us - run->_step_us;
    run->_step_us = now_us;
}

bool backend_step(backend_run_t *run, backend_step_t step)
{
    /* Named in full, so a search for a point finds where it is. */
    static const char *const points[STEP_COUNT] = {
        "", "backend.create", "backend.stage", "backend.execute", "backend.collect", "backend.delete"};
    step_close(run);
    run->step = step;
    if (step != STEP_DELETE)
        run->ended_in = step;
    log_event(LOG_DEBUG, "backend step", log_str("run_id", run->run_id), log_str("step", backend_step_name(step)));
    return fault_point(points[step]);
}

static void answer(backend_run_t *run, backend_outcome_t outcome)
{
    if (run->outcome != RUN_OPEN)
        mem_fatal("a run was answered twice");
    run->outcome = outcome;
}

static void set_string(char **field, const char *value)
{
    if (value[0] != '\0')
        *field = mem_strdup(value);
}

void backend_run_done(backend_run_t *run, const char *name, Plimsoll__V1__RunResponse *response, bool is_canceled)
{
    answer(run, RUN_DONE);
    step_close(run);
    set_string(&response->sandbox, name);
    set_string(&response->isolation, tier_name(run->tier));
    set_string(&response->environment, run->kind->environment);
    set_string(&response->software_identity, run->kind->software_identity);
    response->duration_ms = (int64_t)((clock_mono_us() - run->started_us) / 1000);
    run->response = response;
    run->is_canceled = is_canceled;
}

static void set_texts(backend_run_t *run, const char *message, const char *detail)
{
    snprintf(run->message, sizeof(run->message), "%s", message);
    snprintf(run->detail, sizeof(run->detail), "%s", detail != NULL ? detail : "");
}

void backend_run_refuse(backend_run_t *run, Plimsoll__Backend__Refusal reason, const char *message, const char *detail)
{
    answer(run, RUN_REFUSED);
    run->refusal = reason;
    set_texts(run, message, detail);
}

void backend_run_fail(backend_run_t *run, const char *code, const char *message, const char *detail)
{
    answer(run, RUN_FAILED);
    run->code = code;
    set_texts(run, message, detail);
}
