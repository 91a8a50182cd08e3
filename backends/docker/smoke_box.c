#include "backends/docker/smoke_box.h"

#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/co.h"

bool smoke_failed(const smoke_test_t *test, docker_kind_t kind, const char *why)
{
    char said[BACKEND_TEXT_MAX]; /* `why` may be in the failure itself */
    snprintf(said, sizeof(said), "%s", why);
    snprintf(test->failure, BACKEND_TEXT_MAX, "the smoke test of the %s image under %.32s failed: %s",
             kind == DOCKER_SNIPPET ? "snippet" : "project", test->want->want->runtime, said);
    /* Whatever a canceled test met, it was the cancel. */
    *test->is_untried = *test->is_untried || co_is_canceled(co_self());
    return false;
}

bool smoke_box_open(smoke_box_t *box, const smoke_test_t *test, docker_kind_t kind, const char *bind)
{
    const smoke_launcher_t *launcher = &test->want->launcher;
    char reason[ENGINE_TEXT_MAX] = "", why[BACKEND_TEXT_MAX];
    *box = (smoke_box_t){.test = test, .kind = kind};
    box->sandbox = launcher->launch(launcher->wall, kind, &test->want->preflight->images[kind], bind, reason);
    if (box->sandbox != NULL)
        return true;
    snprintf(why, sizeof(why), "a sandbox did not start: %.160s", reason);
    return smoke_failed(test, kind, why);
}

bool smoke_box_execute(smoke_box_t *box, const guest_job_t *job)
{
    const smoke_launcher_t *launcher = &box->test->want->launcher;
    char reason[ENGINE_TEXT_MAX] = "", why[BACKEND_TEXT_MAX];
    uint64_t deadline_us = clock_mono_us() + (uint64_t)(job->timeout_ms + SMOKE_ANSWER_MS) * 1000;
    if (!launcher->execute(box->sandbox, job, deadline_us, reason)) {
        snprintf(why, sizeof(why), "a job could not be given: %.160s", reason);
        return smoke_failed(box->test, box->kind, why);
    }
    guest_t *guest = launcher->guest(box->sandbox);
    if (guest_state(guest) == GUEST_FINISHED)
        return true;
    /* A sandbox that broke says something of the wall; one that was late may be on a busy machine. */
    const char *problem = guest_problem(guest);
    if (problem == NULL && clock_mono_us() >= deadline_us)
        *box->test->is_untried = true;
    snprintf(why, sizeof(why), "a job ended without a result: %.160s",
             problem != NULL ? problem : "the time was over, or the sandbox went");
    return smoke_failed(box->test, box->kind, why);
}

const guest_result_t *smoke_box_result(const smoke_box_t *box)
{
    return guest_result(box->test->want->launcher.guest(box->sandbox));
}

bool smoke_box_close(smoke_box_t *box, bool is_well)
{
    bool is_gone = box->sandbox == NULL || box->test->want->launcher.dispose(box->sandbox);
    box->sandbox = NULL;
    if (!is_well || is_gone)
        return is_well;
    return smoke_failed(box->test, box->kind, "S16: the container was not gone in time");
}
