#include "backends/docker/run.h"

#include <stdio.h>
#include <string.h>

#include "backends/docker/docker_internal.h"
#include "backends/guest/result.h"
#include "backends/meters.h"
#include "core/clock.h"
#include "core/co.h"
#include "core/log.h"
#include "core/mem.h"

#define REFUSAL(name) PLIMSOLL__BACKEND__REFUSAL__REFUSAL_##name

static void refuse_capacity(backend_run_t *run, const char *message, const char *detail)
{
    run->retry_after_ms = DOCKER_RETRY_MS;
    backend_run_refuse(run, REFUSAL(CAPACITY), message, detail);
}

static uint32_t milliseconds_left(const backend_run_t *run)
{
    uint64_t now_us = clock_mono_us();
    uint64_t left_ms = run->deadline_us > now_us ? (run->deadline_us - now_us + 999) / 1000 : 0;
    return left_ms < UINT32_MAX ? (uint32_t)left_ms : UINT32_MAX;
}

/* --- create: a sandbox that is what it should be --- */

static uint64_t wait_until_us(const backend_run_t *run)
{
    return run->started_us + (run->deadline_us - run->started_us) / 3 * DOCKER_WAIT_THIRDS;
}

/* NULL when the run was refused. */
static member_t *take(docker_t *docker, docker_kind_t kind, backend_run_t *run)
{
    char text[ENGINE_TEXT_MAX];
    bool is_hit;

    for (int i = 0; i < DOCKER_CLAIMS_MAX; ++i) {
        member_t *member = pool_claim(docker->pools[kind], run->caller, wait_until_us(run), &is_hit, text);
        if (member == NULL) {
            refuse_capacity(run, "no sandbox could be started", text);
            return NULL;
        }
        uint32_t left_ms = milliseconds_left(run);
        member_check_t checked = member_check(member, left_ms < DOCKER_CHECK_MS ? left_ms : DOCKER_CHECK_MS, text);
        if (checked == MEMBER_SAME) {
            meter_inc(is_hit ? METER_CLAIMS_READY : METER_CLAIMS_COLD);
            log_event(LOG_DEBUG, "sandbox claimed", log_str("run_id", run->run_id),
                      log_str("container", member_id(member)), log_bool("ready", is_hit));
            role_ledger_serve(docker->host->ledger, docker_stamp_of(member_name(member)), run->run_id, run->caller);
            return member;
        }
        member_release(member);
        if (checked == MEMBER_UNCHECKED) {
            refuse_capacity(run, "the sandbox could not be looked at", text);
            return NULL;
        }
        meter_inc(METER_READY_CHANGED);
        log_event(LOG_WARN, "sandbox refused", log_str("backend", docker->name), log_str("run_id", run->run_id),
                  log_str("reason", text));
        docker_suspect(docker);
    }
    backend_run_refuse(run, REFUSAL(ISOLATION), "the sandboxes are not what was proven", text);
    return NULL;
}

/* --- stage: the job --- */

static void plan_javascript(const backend_run_t *run, guest_job_t *job)
{
    const char *code = run->request->javascript->code;
    job->kind = GUEST_SNIPPET;
    job->stream_max = DOCKER_SNIPPET_STREAM_MAX;
    job->output_max = 2 * DOCKER_SNIPPET_STREAM_MAX;
    job->code = code;
    job->code_len = strlen(code);
}

/* false: more than the protocol allows, which the front should have refused. */
static bool plan_project(const backend_run_t *run, guest_job_t *job, guest_file_t files[GUEST_FILES_MAX])
{
    const Plimsoll__V1__ProjectRun *project = run->request->project;
    if (project->n_files > GUEST_FILES_MAX || project->n_steps > GUEST_STEPS_MAX ||
        project->n_artifacts > GUEST_ARTIFACTS_MAX)
        return false;
    for (size_t i = 0; i < project->n_files; ++i)
        files[i] = (guest_file_t){.path = project->files[i]->path,
                                  .content = project->files[i]->content.data,
                                  .len = project->files[i]->content.len};
    job->kind = GUEST_PROJECT;
    job->stream_max = DOCKER_STEP_STREAM_MAX;
    job->output_max = DOCKER_OUTPUT_MAX;
    job->artifacts_max = DOCKER_ARTIFACTS_MAX;
    job->files = files;
    job->file_count = project->n_files;
    job->steps = (const char *const *)project->steps;
    job->step_count = project->n_steps;
    job->artifacts = (const char *const *)project->artifacts;
    job->artifact_count = project->n_artifacts;
    return true;
}

/* False when the run was refused: not all of the job reached the sandbox, so none of it is acted on. */
static bool give(member_t *member, backend_run_t *run)
{
    guest_file_t files[GUEST_FILES_MAX];
    guest_job_t job = {0};
    const char *why;

    if (run->request->payload_case == PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_JAVASCRIPT) {
        plan_javascript(run, &job);
    } else if (!plan_project(run, &job, files)) {
        backend_run_refuse(run, REFUSAL(REQUEST), "the project is larger than a project may be", NULL);
        return false;
    }
    job.timeout_ms = milliseconds_left(run);
    if (job.timeout_ms == 0) {
        refuse_capacity(run, "the run's time was over before it could begin", NULL);
        return false;
    }
    if (member_give(member, &job, run->deadline_us, &why) == MEMBER_GIVEN)
        return true;
    refuse_capacity(run, "the job was not handed over", why);
    return false;
}

/* --- execute: until there is a verdict, or none will come --- */

typedef struct {
    result_end_t end;
    char detail[ENGINE_TEXT_MAX]; /* RESULT_LOST: for the caller, in our own words */
    const char *why;              /* for the log; NULL when there is nothing to add */
} verdict_t;

static void lost(verdict_t *verdict, const char *detail, const char *why)
{
    verdict->end = RESULT_LOST;
    verdict->why = why;
    snprintf(verdict->detail, sizeof(verdict->detail), "%s", detail);
}

/* What the Engine knows of its end; never anything a guest had a say in (spec 2.4). */
static void lost_with_sandbox(member_t *member, verdict_t *verdict, const char *why)
{
    container_state_t state;
    if (guest_state(member_guest(member)) == GUEST_BROKEN) {
        lost(verdict, "the sandbox broke the protocol", why);
        return;
    }
    if (!member_end_state(member, &state)) {
        lost(verdict, "the sandbox was lost before it gave a result", why);
        return;
    }
    lost(verdict, "", why);
    snprintf(verdict->detail, sizeof(verdict->detail), "the sandbox ended without a result (exit code %lld%s)",
             (long long)state.exit_code, state.is_oom_killed ? ", out of memory" : "");
}

static bool is_accepted(member_t *member)
{
    guest_state_t state = guest_state(member_guest(member));
    return state == GUEST_ACCEPTED || state == GUEST_FINISHED;
}

/* Nobody has confirmed the job: it may run or not, and nothing it shows can be told from nothing (spec 2.4). */
static void judge(member_t *member, member_wait_t waited, const char *why, verdict_t *verdict)
{
    switch (waited) {
    case MEMBER_FINISHED:
    case MEMBER_ACCEPTED:
        verdict->end = RESULT_WHOLE;
        break;
    case MEMBER_LATE:
        verdict->end = RESULT_LATE;
        if (!is_accepted(member))
            lost(verdict, "the sandbox did not confirm its job", "no ACCEPTED in time");
        break;
    case MEMBER_CANCELED:
        verdict->end = RESULT_CANCELED;
        break;
    case MEMBER_ENDED:
        lost_with_sandbox(member, verdict, why);
        break;
    }
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* True when the run goes on; else `verdict`. */
static bool await_accepted(member_t *member, uint64_t end_us, verdict_t *verdict)
{
    const char *why;
    uint64_t until_us = earlier(end_us, clock_mono_us() + (uint64_t)MEMBER_ACCEPTED_MS * 1000);
    member_wait_t waited = member_wait(member, true, until_us, &why);
    if (waited == MEMBER_ACCEPTED)
        return true;
    judge(member, waited, why, verdict);
    return false;
}

static void await_final(member_t *member, uint64_t end_us, verdict_t *verdict)
{
    const char *why;
    member_wait_t waited = member_wait(member, false, end_us, &why);
    judge(member, waited, why, verdict);
}

/* --- collect: the answer --- */

static void answer(docker_t *docker, member_t *member, backend_run_t *run, const verdict_t *verdict, uint64_t given_us)
{
    guest_result_t *result = guest_result(member_guest(member));
    result_view_t view = {.end = verdict->end, .detail = verdict->detail, .given_us = clock_mono_us() - given_us};
    Plimsoll__V1__RunResponse *response = run->request->payload_case == PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_JAVASCRIPT
                                              ? result_javascript(result, &view)
                                              : result_project(run->request->project, result, &view);
    if (verdict->end == RESULT_LOST) {
        meter_inc(METER_RUNS_WITHOUT_VERDICT);
        log_event(LOG_WARN, "run without a verdict", log_str("backend", docker->name), log_str("run_id", run->run_id),
                  log_str("container", member_id(member)), log_str("reason", verdict->detail),
                  log_str("detail", verdict->why));
    }
    if (response != NULL)
        backend_run_done(run, docker->name, response, verdict->end == RESULT_CANCELED);
    else
        backend_run_fail(run, "internal", verdict->end == RESULT_LOST ? verdict->detail : "the sandbox's runner failed",
                         verdict->end == RESULT_LOST ? verdict->why : result->detail);
}

static void execute(docker_t *docker, member_t *member, backend_run_t *run)
{
    uint64_t end_us = run->deadline_us + (uint64_t)DOCKER_MARGIN_MS * 1000, given_us = clock_mono_us();
    verdict_t verdict = {.end = RESULT_WHOLE};

    bool goes_on = await_accepted(member, end_us, &verdict);
    if (backend_step(run, STEP_EXECUTE))
        lost(&verdict, "the run failed", "fault point");
    else if (goes_on)
        await_final(member, end_us, &verdict);
    if (backend_step(run, STEP_COLLECT))
        lost(&verdict, "the run failed", "fault point");
    answer(docker, member, run, &verdict, given_us);
}

static void count_running(docker_t *docker, int change)
{
    docker->running += (uint32_t)change;
    meter_set(METER_SANDBOXES_RUNNING, docker->running);
    for (int kind = 0; change < 0 && kind < DOCKER_KINDS; ++kind)
        pool_poke(docker->pools[kind]);
}

/* --- the run --- */

static const char *grant_of(const backend_run_t *run)
{
    return run->request->payload_case == PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_JAVASCRIPT
               ? run->request->javascript->grant_profile
               : run->request->project->grant_profile;
}

static bool kind_of(const backend_run_t *run, docker_kind_t *kind)
{
    switch (run->request->payload_case) {
    case PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_JAVASCRIPT:
        *kind = DOCKER_SNIPPET;
        return true;
    case PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_PROJECT:
        *kind = DOCKER_PROJECT;
        return true;
    default:
        return false;
    }
}

void docker_run(docker_t *docker, backend_run_t *run)
{
    docker_kind_t kind;
    turn_t turn;

    if (docker->problem[0] != '\0') {
        backend_run_refuse(run, REFUSAL(UNSUPPORTED), "the backend is not configured to run anything", docker->problem);
        return;
    }
    if (!kind_of(run, &kind)) {
        backend_run_refuse(run, REFUSAL(UNSUPPORTED), "the backend runs JavaScript snippets and projects only", NULL);
        return;
    }
    if (grant_of(run)[0] != '\0') {
        backend_run_refuse(run, REFUSAL(PERMISSION), "the grant cannot be issued", NULL);
        return;
    }
    if (backend_step(run, STEP_CREATE)) {
        refuse_capacity(run, "no sandbox could be started", "fault point");
        return;
    }
    member_t *member = take(docker, kind, run);
    if (member == NULL)
        return;
    count_running(docker, 1);
    turn_take(&docker->turns, &turn, milliseconds_left(run) / TURN_WAIT_PART);
    if (backend_step(run, STEP_STAGE))
        refuse_capacity(run, "the job was not handed over", "fault point");
    else if (give(member, run))
        execute(docker, member, run);
    turn_leave(&turn);
    backend_step(run, STEP_DELETE);
    member_release(member);
    count_running(docker, -1);
}
