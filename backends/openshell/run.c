/*
 * A run's code in its sandbox (spec backend-openshell 4.2 and 4.3): a snippet goes to an interpreter's stdin and the
 * exec's own exit event is its verdict; a project goes to our runner, whose framed and authenticated report is.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/openshell/openshell_internal.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"

enum {
    HELLO_MAX = 64 * 1024,
    JOB_MAX = 8 * 1024 * 1024, /* frames of a job of JOB_BYTES_MAX */
    SAID_MAX = 120,            /* kept of what the runner says outside of its frames */
};

static const char *const NODE[] = {"node", "-", NULL};
static const char *const RUNNER[] = {OPENSHELL_RUNNER, "--mode=exec",      ("--work=" OPENSHELL_WORK),
                                     "--preboot=none", "--patience=60000", NULL};
static const char *const GUEST_ENV[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                                        "LANG=C.UTF-8", ("HOME=" OPENSHELL_WORK)};

/* An exec of which certainly nothing has left may be begun again: a refused stream, a connection that went away. */
static bool begins_again(const exec_t *exec, int *starts, uint64_t until_us)
{
    return !exec_may_have_run(exec) && ++*starts < OPENSHELL_EXEC_STARTS_MAX && clock_mono_us() < until_us &&
           cloud_sleep_ms(OPENSHELL_PAUSE_MIN_MS, until_us);
}

static bool stopped(cloud_trouble_t *trouble)
{
    return cloud_trouble(trouble, CLOUD_CANCELED, "the run was stopped", NULL);
}

/* --- a snippet --- */

typedef struct {
    guest_step_t *step;
    cloud_limits_t limits;
} output_t;

/* After the exit event the verdict stands; what still comes is kept, for a while. */
static void take_tail(exec_t *exec, output_t *output, const char *run_id)
{
    const uint8_t *bytes;
    size_t len, late = 0;
    int32_t code;
    uint64_t until_us = clock_mono_us() + OPENSHELL_TAIL_MS * UINT64_C(1000);
    for (;;) {
        exec_event_t event = exec_next(exec, until_us, &bytes, &len, &code);
        if (event != EXEC_OUT && event != EXEC_ERR && event != EXEC_EXIT)
            break;
        if (event == EXEC_EXIT)
            continue;
        late += len;
        if (output != NULL)
            cloud_output_add(output->step, &output->limits, event == EXEC_ERR, bytes, len);
    }
    if (late > 0)
        log_event(LOG_WARN, "output after the exit", log_str("backend", "openshell"), log_str("run_id", run_id),
                  log_uint("bytes", late));
}

/* Until there is a verdict, or none will come. */
static bool follow(exec_t *exec, output_t *output, uint64_t until_us, const char *run_id, cloud_trouble_t *trouble)
{
    const uint8_t *bytes;
    size_t len;
    int32_t code;
    for (;;) {
        exec_event_t event = exec_next(exec, until_us, &bytes, &len, &code);
        switch (event) {
        case EXEC_OUT:
        case EXEC_ERR:
            cloud_output_add(output->step, &output->limits, event == EXEC_ERR, bytes, len);
            break;
        case EXEC_EXIT:
            output->step->has_ended = true;
            output->step->exit_code = code;
            take_tail(exec, output, run_id);
            return true;
        case EXEC_ENDED:
            return exec_trouble(exec, trouble);
        case EXEC_LATE:
            return cloud_trouble(trouble, CLOUD_LATE, "the run's time is over", NULL);
        case EXEC_CANCELED:
            return stopped(trouble);
        }
    }
}

static bool run_snippet(openshell_t *openshell, const cloud_box_t *box, const char *code, size_t len,
                        const cloud_plan_t *plan, guest_result_t *result, cloud_trouble_t *trouble)
{
    const command_t command = {.argv = NODE, .workdir = OPENSHELL_DIRECTORY};
    const char *run_id = box->run != NULL ? box->run->run_id : "";
    output_t output = {.step = &result->steps[result->step_count++],
                       .limits = {.stream_max = plan->stream_max, .output_left = plan->output_max}};
    char name[OPENSHELL_NAME + 1];
    int starts = 0;
    bool is_over, is_again;

    openshell_name(box->stamp, name);
    *output.step = (guest_step_t){.exit_code = -1};
    buffer_init(&output.step->out, plan->stream_max);
    buffer_init(&output.step->err, plan->stream_max);
    do {
        exec_t *exec = exec_open(openshell, name, &command, box->deadline_us);
        trouble->fault = CLOUD_FINE;
        exec_write(exec, code, len);
        exec_finish(exec);
        is_over = follow(exec, &output, box->deadline_us, run_id, trouble);
        is_again = !is_over && trouble->fault == CLOUD_NOTHING && begins_again(exec, &starts, box->deadline_us);
        exec_close(exec); /* at the deadline this is what ends it */
    } while (is_again);
    output.step->duration_us = clock_mono_us() - box->began_us;
    return is_over;
}

/* --- a project --- */

/* What one exec of the runner has come to. */
typedef struct {
    guest_t *guest;
    const guest_job_t *job;
    uint64_t timeout_us; /* monotonic: the job's own end */
    bool is_given, has_exited;
    int32_t exit_code;
    char said[SAID_MAX + 1]; /* on stderr: why it could not begin, or a guest's words */
} session_t;

static bool give(exec_t *exec, session_t *session, cloud_trouble_t *trouble)
{
    guest_job_t job = *session->job;
    buffer_t frames;
    uint64_t now_us = clock_mono_us();
    if (now_us >= session->timeout_us)
        return cloud_trouble(trouble, CLOUD_LATE, "the run's time is over", NULL);
    job.timeout_ms = (uint32_t)((session->timeout_us - now_us + 999) / 1000);
    buffer_init(&frames, JOB_MAX);
    const char *why = guest_make_job(session->guest, &job, &frames);
    bool is_given = why == NULL && exec_write(exec, frames.base, frames.len);
    if (is_given)
        exec_finish(exec);
    buffer_dispose(&frames);
    session->is_given = true;
    if (why != NULL)
        return cloud_trouble(trouble, CLOUD_PROTOCOL, "the project is larger than a project may be", why);
    return is_given ? true : cloud_trouble(trouble, CLOUD_LOST, "the job was not handed over", NULL);
}

static bool take(exec_t *exec, session_t *session, const uint8_t *bytes, size_t len, cloud_trouble_t *trouble)
{
    guest_take(session->guest, bytes, len);
    if (guest_state(session->guest) == GUEST_BROKEN)
        return cloud_trouble(trouble, CLOUD_PROTOCOL, "the sandbox broke the protocol", guest_problem(session->guest));
    if (guest_state(session->guest) == GUEST_READY && !session->is_given)
        return give(exec, session, trouble);
    return true;
}

static void take_said(session_t *session, const uint8_t *bytes, size_t len)
{
    size_t have = strlen(session->said);
    guest_skip(session->guest, len);
    for (size_t i = 0; i < len && have < SAID_MAX; ++i)
        session->said[have++] = bytes[i] >= 0x20 && bytes[i] < 0x7f ? (char)bytes[i] : ' ';
    session->said[have] = '\0';
}

/* The exec ended; no report is whole. */
static bool without_report(const exec_t *exec, const session_t *session, cloud_trouble_t *trouble)
{
    char text[CLOUD_TEXT_CALLER_MAX];
    if (!session->has_exited)
        return exec_trouble(exec, trouble);
    snprintf(text, sizeof(text), "the sandbox's runner ended without a result (exit code %d)", (int)session->exit_code);
    return cloud_trouble(trouble, CLOUD_LOST, text, session->said);
}

static bool is_confirmed(const guest_t *guest)
{
    return guest_state(guest) == GUEST_ACCEPTED || guest_state(guest) == GUEST_FINISHED;
}

/* Nobody has confirmed the job: it may run or not. */
static bool too_late(const session_t *session, cloud_trouble_t *trouble)
{
    if (session->is_given && !is_confirmed(session->guest))
        return cloud_trouble(trouble, CLOUD_LOST, "the sandbox did not confirm its job", NULL);
    return cloud_trouble(trouble, CLOUD_LATE, "the run's time is over", NULL);
}

static bool converse(exec_t *exec, session_t *session, uint64_t until_us, cloud_trouble_t *trouble)
{
    const uint8_t *bytes;
    size_t len;
    for (;;) {
        switch (exec_next(exec, until_us, &bytes, &len, &session->exit_code)) {
        case EXEC_OUT:
            if (!take(exec, session, bytes, len, trouble))
                return false;
            break;
        case EXEC_ERR:
            take_said(session, bytes, len);
            break;
        case EXEC_EXIT:
            /* a report on its way behind its program's end still counts, for a while */
            session->has_exited = true;
            until_us = clock_mono_us() + OPENSHELL_TAIL_MS * UINT64_C(1000);
            break;
        case EXEC_ENDED:
            return without_report(exec, session, trouble);
        case EXEC_LATE:
            return session->has_exited ? without_report(exec, session, trouble) : too_late(session, trouble);
        case EXEC_CANCELED:
            return stopped(trouble);
        }
        if (guest_state(session->guest) == GUEST_FINISHED)
            return true;
    }
}

bool openshell_run_job(openshell_t *openshell, const char *name, const char *run_id, const guest_job_t *job,
                       uint64_t until_us, guest_t *guest, cloud_trouble_t *trouble)
{
    const command_t command = {.argv = RUNNER, .workdir = OPENSHELL_DIRECTORY};
    const guest_hello_t hello = {.preboot = GUEST_PREBOOT_NONE,
                                 .run_id = run_id,
                                 .env = GUEST_ENV,
                                 .env_count = sizeof(GUEST_ENV) / sizeof(GUEST_ENV[0])};
    session_t session = {.guest = guest, .job = job, .timeout_us = until_us};
    uint64_t end_us = until_us + OPENSHELL_GRACE_MS * UINT64_C(1000);
    buffer_t greeting;
    int starts = 0;
    bool is_over, is_again;

    buffer_init(&greeting, HELLO_MAX);
    if (!guest_make_hello(guest, &hello, &greeting))
        mem_fatal("a greeting that is too long");
    do {
        exec_t *exec = exec_open(openshell, name, &command, end_us);
        trouble->fault = CLOUD_FINE;
        exec_write(exec, greeting.base, greeting.len);
        is_over = converse(exec, &session, end_us, trouble);
        if (is_over && !session.has_exited)
            take_tail(exec, NULL, run_id);
        is_again = !is_over && trouble->fault == CLOUD_NOTHING && begins_again(exec, &starts, until_us);
        exec_close(exec);
    } while (is_again);
    /* it holds the key of the frames */
    explicit_bzero(greeting.base, greeting.len);
    buffer_dispose(&greeting);
    return is_over;
}

static void plan_job(const Plimsoll__V1__ProjectRun *project, const cloud_plan_t *plan, guest_file_t *files,
                     guest_job_t *job)
{
    for (size_t i = 0; i < project->n_files; ++i)
        files[i] = (guest_file_t){.path = project->files[i]->path,
                                  .content = project->files[i]->content.data,
                                  .len = project->files[i]->content.len};
    *job = (guest_job_t){.kind = GUEST_PROJECT,
                         .stream_max = plan->stream_max,
                         .output_max = plan->output_max,
                         .artifacts_max = plan->artifacts_max,
                         .files = files,
                         .file_count = project->n_files,
                         .steps = (const char *const *)project->steps,
                         .step_count = project->n_steps,
                         .artifacts = (const char *const *)project->artifacts,
                         .artifact_count = project->n_artifacts};
}

/* What came goes to the answer's result, which has room for the plan's steps and artifacts. */
static void move_result(guest_result_t *from, const cloud_plan_t *plan, guest_result_t *to)
{
    for (size_t i = 0; i < from->step_count && to->step_count < plan->step_count; ++i) {
        guest_step_t *step = &to->steps[to->step_count++];
        *step = from->steps[i];
        buffer_init(&from->steps[i].out, 0);
        buffer_init(&from->steps[i].err, 0);
    }
    for (size_t i = 0; i < from->artifact_count && to->artifact_count < plan->artifact_count; ++i) {
        to->artifacts[to->artifact_count++] = from->artifacts[i];
        from->artifacts[i] = (guest_artifact_t){.path = NULL};
    }
    to->is_artifacts_truncated = from->is_artifacts_truncated;
    to->outcome = from->outcome;
    snprintf(to->detail, sizeof(to->detail), "%s", from->detail);
}

static bool run_project(openshell_t *openshell, const cloud_box_t *box, const cloud_plan_t *plan,
                        guest_result_t *result, cloud_trouble_t *trouble)
{
    const Plimsoll__V1__ProjectRun *project = box->run->request->project;
    guest_file_t *files;
    guest_job_t job;
    char name[OPENSHELL_NAME + 1];
    if (project->n_files > GUEST_FILES_MAX || project->n_steps > GUEST_STEPS_MAX ||
        project->n_artifacts > GUEST_ARTIFACTS_MAX)
        return cloud_trouble(trouble, CLOUD_PROTOCOL, "the project is larger than a project may be", NULL);
    files = mem_alloc_array(project->n_files + 1, sizeof(*files));
    plan_job(project, plan, files, &job);
    openshell_name(box->stamp, name);
    guest_t *guest = guest_create();
    bool is_over = openshell_run_job(openshell, name, box->run->run_id, &job, box->deadline_us, guest, trouble);
    move_result(guest_result(guest), plan, result);
    guest_destroy(guest);
    free(files);
    return is_over;
}

/* --- either --- */

bool openshell_execute(void *self, cloud_box_t *box, const cloud_plan_t *plan, guest_result_t *result,
                       cloud_trouble_t *trouble)
{
    openshell_t *openshell = openshell_check(self);
    const backend_run_t *run = box->run;
    if (run == NULL) /* the trial's own */
        return run_snippet(openshell, box, plan->files[0].content, plan->files[0].len, plan, result, trouble);
    if (run->request->payload_case == PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_PROJECT)
        return run_project(openshell, box, plan, result, trouble);
    const char *code = run->request->javascript->code;
    return run_snippet(openshell, box, code, strlen(code), plan, result, trouble);
}
