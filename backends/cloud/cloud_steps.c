/* The commands of a plan, one after the other, and what is kept of what they print. */
#include <stdlib.h>
#include <string.h>

#include "backends/cloud/cloud_internal.h"
#include "backends/guest/result.h"
#include "core/clock.h"
#include "core/fault.h"
#include "core/mem.h"

enum { TIMER_SLACK_US = 2000 };

/* --- output and artifacts, for providers --- */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

void cloud_output_add(guest_step_t *step, cloud_limits_t *limits, bool is_err, const void *bytes, size_t len)
{
    buffer_t *stream = is_err ? &step->err : &step->out;
    size_t room = stream->len < limits->stream_max ? limits->stream_max - stream->len : 0;
    size_t fits = least(least(room, limits->output_left), len);
    if (fits > 0 && !buffer_append(stream, bytes, fits))
        mem_fatal("a step's stream is smaller than its limit");
    limits->output_left -= (uint32_t)fits;
    if (fits < len)
        *(is_err ? &step->is_err_truncated : &step->is_out_truncated) = true;
}

void cloud_output_flood(guest_step_t *step)
{
    step->is_out_truncated = step->is_err_truncated = true;
    step->has_ended = true;
    step->is_timed_out = false;
    step->exit_code = CLOUD_EXIT_FLOOD;
    step->signal = 0;
}

size_t cloud_artifacts_left(const guest_result_t *result, const cloud_plan_t *plan)
{
    size_t used = 0;
    for (size_t i = 0; i < result->artifact_count; ++i)
        used += result->artifacts[i].len;
    return used < plan->artifacts_max ? plan->artifacts_max - used : 0;
}

bool cloud_artifact_add(guest_result_t *result, const cloud_plan_t *plan, size_t index, buffer_t *content)
{
    if (index >= plan->artifact_count || result->artifact_count == plan->artifact_count)
        mem_fatal("an artifact that nobody asked for");
    if (content->len > cloud_artifacts_left(result, plan)) {
        result->is_artifacts_truncated = true;
        buffer_dispose(content);
        return false;
    }
    guest_artifact_t *artifact = &result->artifacts[result->artifact_count++];
    artifact->path = mem_strdup(plan->artifacts[index]);
    artifact->content = content->base;
    artifact->len = content->len;
    buffer_init(content, content->limit);
    return true;
}

/* --- results --- */

void cloud_result_init(guest_result_t *result, const cloud_plan_t *plan)
{
    *result = (guest_result_t){.outcome = GUEST_COMPLETED};
    result->steps = mem_alloc_array(plan->step_count + 1, sizeof(*result->steps));
    result->artifacts = mem_alloc_array(plan->artifact_count + 1, sizeof(*result->artifacts));
}

void cloud_result_dispose(guest_result_t *result)
{
    for (size_t i = 0; i < result->step_count; ++i) {
        buffer_dispose(&result->steps[i].out);
        buffer_dispose(&result->steps[i].err);
    }
    for (size_t i = 0; i < result->artifact_count; ++i) {
        free(result->artifacts[i].path);
        free(result->artifacts[i].content);
    }
    free(result->steps);
    free(result->artifacts);
    *result = (guest_result_t){.outcome = GUEST_COMPLETED};
}

/* --- steps --- */

static guest_step_t *next_step(const cloud_plan_t *plan, guest_result_t *result)
{
    guest_step_t *step = &result->steps[result->step_count++];
    *step = (guest_step_t){.exit_code = RESULT_EXIT_UNKNOWN};
    buffer_init(&step->out, plan->stream_max);
    buffer_init(&step->err, plan->stream_max);
    return step;
}

static void end_for_its_time(guest_step_t *step)
{
    step->has_ended = true;
    step->is_timed_out = true;
    step->exit_code = RESULT_EXIT_DEADLINE;
    step->signal = 0;
}

/* Past the deadline whatever goes wrong with the stream is the run's end for its time; an answer that makes no sense,
 * or another wall than was asked for, stays what it is. Before it nothing is: a provider that is silent for longer than
 * it may be is no timeout of the code's. */
static bool is_late(const cloud_box_t *box, cloud_trouble_t *trouble)
{
    if (clock_mono_us() + TIMER_SLACK_US < box->deadline_us) {
        if (trouble->fault == CLOUD_LATE)
            trouble->fault = CLOUD_LOST;
        return false;
    }
    return trouble->fault != CLOUD_PROTOCOL && trouble->fault != CLOUD_DIFFERS && trouble->fault != CLOUD_CANCELED;
}

/* Timers count whole milliseconds and may be one early; a run has all of its time. */
static void await_deadline(const cloud_box_t *box)
{
    while (clock_mono_us() < box->deadline_us && co_sleep(1) != CO_CANCELED)
        ;
}

/* True when the next one may begin. */
static bool run_step(cloud_box_t *box, const cloud_command_t *command, cloud_limits_t *limits, guest_step_t *step,
                     guest_result_t *result, cloud_trouble_t *trouble)
{
    const cloud_ops_t *ops = box->cloud->settings.ops;
    uint64_t began_us = clock_mono_us();
    *trouble = (cloud_trouble_t){.fault = CLOUD_FINE};
    bool has_ended = ops->step(box->cloud->settings.self, box, command, limits, step, trouble);
    step->duration_us = clock_mono_us() - began_us;
    if (!has_ended && !is_late(box, trouble))
        return trouble->fault == CLOUD_FINE ? cloud_trouble(trouble, CLOUD_LOST, "a step gave no verdict", NULL)
                                            : false;
    if (!has_ended) {
        *trouble = (cloud_trouble_t){.fault = CLOUD_FINE};
        await_deadline(box);
        end_for_its_time(step);
    } else if (!step->has_ended) {
        return cloud_trouble(trouble, CLOUD_PROTOCOL, "a step ended without a verdict", NULL);
    } else {
        trouble->fault = CLOUD_FINE;
        if (step->is_timed_out)
            end_for_its_time(step);
    }
    if (step->is_timed_out)
        result->outcome = GUEST_TIMED_OUT;
    return !step->is_timed_out && step->exit_code == 0;
}

static void run_steps(cloud_box_t *box, const cloud_plan_t *plan, guest_result_t *result, cloud_trouble_t *trouble)
{
    cloud_limits_t limits = {.stream_max = plan->stream_max, .output_left = plan->output_max};
    for (size_t i = 0; i < plan->step_count; ++i) {
        if (i > 0 && clock_mono_us() >= box->deadline_us) {
            result->outcome = GUEST_TIMED_OUT;
            return;
        }
        if (!run_step(box, &plan->steps[i], &limits, next_step(plan, result), result, trouble))
            return;
    }
}

void cloud_execute(cloud_box_t *box, const cloud_plan_t *plan, guest_result_t *result, cloud_executed_t *out)
{
    const cloud_ops_t *ops = box->cloud->settings.ops;
    *out = (cloud_executed_t){.trouble = {.fault = CLOUD_FINE}};
    box->began_us = clock_mono_us();
    box->deadline_us = box->began_us + box->timeout_ms * UINT64_C(1000);
    fault_point("cloud.started");
    if (ops->execute == NULL)
        run_steps(box, plan, result, &out->trouble);
    else if (!ops->execute(box->cloud->settings.self, box, plan, result, &out->trouble) &&
             out->trouble.fault == CLOUD_FINE)
        cloud_trouble(&out->trouble, CLOUD_PROTOCOL, "the guest's runner gave no result", NULL);
    out->is_canceled = out->trouble.fault == CLOUD_CANCELED;
    fault_point("cloud.ended");
}
