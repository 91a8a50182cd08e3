#include "backends/guest/runner/run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/guest/runner/artifacts.h"
#include "backends/guest/runner/files.h"
#include "backends/guest/runner/probe.h"
#include "backends/guest/runner/step.h"

/* How the job stands; `detail` belongs to every outcome but JOB_COMPLETED. */
typedef struct {
    job_outcome_t outcome;
    uint16_t steps;
    artifacts_t artifacts;
    char detail[JOB_DETAIL_MAX + 1];
} standing_t;

int run_start_interpreter(runner_t *runner)
{
    char *const argv[] = {"node", "-", NULL};
    return process_start(&runner->world, &runner->interpreter, argv, true);
}

static void send_final(runner_t *runner, const standing_t *standing)
{
    uint8_t payload[FRAME_PAYLOAD_MAX];
    job_final_t final = {.outcome = standing->outcome,
                         .is_artifacts_truncated = standing->artifacts.is_truncated,
                         .steps = standing->steps,
                         .artifacts = standing->artifacts.count,
                         .detail = {(const uint8_t *)standing->detail, strlen(standing->detail)}};
    link_digest(&runner->link, final.digest);
    link_send(&runner->link, FRAME_FINAL, payload, job_final_encode(&final, payload));
    link_flush(&runner->link);
}

void run_refuse(runner_t *runner, const char *why)
{
    standing_t standing = {.outcome = JOB_RUNNER_FAILED};
    snprintf(standing.detail, sizeof(standing.detail), "%s", why);
    send_final(runner, &standing);
}

static void fail_setup(standing_t *standing, const char *what, int err)
{
    standing->outcome = JOB_SETUP_FAILED;
    snprintf(standing->detail, sizeof(standing->detail), "%s: %s", what, strerror(err));
}

/* The step to its end. true: the next one may follow. */
static bool run_step(step_limits_t *limits, standing_t *standing, process_t *process, job_bytes_t input)
{
    unsigned number = standing->steps++;
    step_end_t end = step_run(limits, (uint8_t)number, process, input.bytes, input.len);
    if (!end.is_all_ended) {
        standing->outcome = JOB_RUNNER_FAILED;
        snprintf(standing->detail, sizeof(standing->detail), "processes of step %u would not end", number + 1);
    } else if (end.verdict == STEP_TIMED_OUT) {
        standing->outcome = JOB_TIMED_OUT;
        snprintf(standing->detail, sizeof(standing->detail), "step %u used up the time", number + 1);
    }
    return standing->outcome == JOB_COMPLETED && end.exit_code == 0;
}

static void run_snippet(runner_t *runner, step_limits_t *limits, standing_t *standing)
{
    process_t *interpreter = &runner->interpreter;
    if (interpreter->pid != 0 && process_reap(&runner->world, interpreter)) {
        /* it died before it had anything to do */
        process_close(interpreter);
        interpreter->pid = 0;
    }
    int err = interpreter->pid == 0 ? run_start_interpreter(runner) : 0;
    if (err != 0)
        fail_setup(standing, "the interpreter could not be started", err);
    else
        run_step(limits, standing, interpreter, runner->job.code);
}

static void run_project(runner_t *runner, step_limits_t *limits, standing_t *standing)
{
    const job_t *job = &runner->job;
    int work = files_open_work(runner->world.directory);
    if (work < 0) {
        fail_setup(standing, "the work directory", errno);
        return;
    }
    bool goes_on = files_write(work, job, standing->detail);
    if (!goes_on)
        standing->outcome = JOB_SETUP_FAILED;
    for (size_t i = 0; i < job->step_count && goes_on; i++) {
        char line[JOB_STEP_MAX + 1];
        char *const argv[] = {"/bin/sh", "-c", line, NULL};
        process_t process;
        memcpy(line, job->steps[i].bytes, job->steps[i].len);
        line[job->steps[i].len] = '\0';
        if (step_is_time_up(limits->timer)) {
            standing->outcome = JOB_TIMED_OUT;
            snprintf(standing->detail, sizeof(standing->detail), "the time was used up before step %zu", i + 1);
            break;
        }
        int err = process_start(&runner->world, &process, argv, false);
        if (err != 0) {
            fail_setup(standing, "the shell could not be started", err);
            break;
        }
        goes_on = run_step(limits, standing, &process, (job_bytes_t){0});
    }
    /* after a failed step too; not when something is left that could still change them */
    if (standing->outcome == JOB_COMPLETED || standing->outcome == JOB_TIMED_OUT)
        standing->artifacts = artifacts_send(work, runner->world.directory, job, &runner->link);
    close(work);
}

static void forget_secrets(void *data)
{
    runner_t *runner = data;
    link_erase(&runner->link);
}

static int call_probe(void *data)
{
    runner_t *runner = data;
    return probe_main(runner->job.code.bytes, runner->job.code.len);
}

static void run_probe(runner_t *runner, step_limits_t *limits, standing_t *standing)
{
    process_t process;
    int err = process_fork(&runner->world, &process, forget_secrets, call_probe, runner);
    if (err != 0)
        fail_setup(standing, "the probe could not be started", err);
    else
        run_step(limits, standing, &process, (job_bytes_t){0});
}

/* The interpreter of a sandbox whose job is no snippet. */
static bool end_interpreter(runner_t *runner)
{
    if (runner->interpreter.pid == 0)
        return true;
    process_close(&runner->interpreter);
    return process_kill_all(&runner->world, &runner->interpreter);
}

void run_job(runner_t *runner)
{
    const job_t *job = &runner->job;
    standing_t standing = {.outcome = JOB_COMPLETED};
    step_limits_t limits = {.link = &runner->link,
                            .world = &runner->world,
                            .timer = step_timer(job->timeout_ms),
                            .stream_max = job->stream_max,
                            .output_left = job->output_max};
    if (limits.timer < 0) {
        run_refuse(runner, "no timer");
        return;
    }
    if (job->kind == JOB_SNIPPET) {
        run_snippet(runner, &limits, &standing);
    } else if (!end_interpreter(runner)) {
        run_refuse(runner, "the interpreter would not end");
        return;
    } else if (job->kind == JOB_PROJECT) {
        run_project(runner, &limits, &standing);
    } else {
        run_probe(runner, &limits, &standing);
    }
    send_final(runner, &standing);
}
