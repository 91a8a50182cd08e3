#include "backends/e2b/start.h"

#include <stdio.h>
#include <string.h>

#include "backends/e2b/answer.h"

void e2b_start_init(e2b_start_t *start, guest_step_t *step, cloud_limits_t *limits, size_t *transfer)
{
    memset(start, 0, sizeof(*start));
    start->step = step;
    start->limits = limits;
    start->transfer = transfer;
    buffer_init(&step->out, limits->stream_max);
    buffer_init(&step->err, limits->stream_max);
}

static bool is_over(const e2b_start_t *start)
{
    return start->state == START_FLOODED || start->state == START_BROKEN;
}

void e2b_start_break(e2b_start_t *start, const char *problem)
{
    if (is_over(start))
        return;
    start->state = START_BROKEN;
    start->problem = problem;
}

void e2b_start_oversize(e2b_start_t *start)
{
    if (!is_over(start))
        start->state = START_FLOODED;
}

bool e2b_start_count(e2b_start_t *start, size_t bytes)
{
    if (bytes > *start->transfer) {
        *start->transfer = 0;
        e2b_start_oversize(start);
    } else {
        *start->transfer -= bytes;
    }
    return !is_over(start);
}

static const char *take(e2b_start_t *start, const e2b_event_t *event)
{
    switch (event->kind) {
    case EVENT_START:
        if (start->has_begun)
            return "the process began twice";
        start->has_begun = true;
        return NULL;
    case EVENT_STDOUT:
    case EVENT_STDERR:
        if (!start->has_begun)
            return "output came before the process began";
        if (start->has_end)
            return "output came after the process had ended";
        cloud_output_add(start->step, start->limits, event->kind == EVENT_STDERR, event->bytes, event->len);
        return NULL;
    case EVENT_END:
        if (!start->has_begun)
            return "the process ended before it began";
        if (start->has_end)
            return "the process ended twice";
        start->has_end = true;
        start->exit_code = event->exit_code;
        start->signal = event->signal;
        return NULL;
    case EVENT_KEEPALIVE:
    case EVENT_OTHER:
        break;
    }
    return NULL;
}

bool e2b_start_message(e2b_start_t *start, const void *payload, size_t len)
{
    e2b_event_t event;
    if (is_over(start))
        return false;
    if (start->state == START_ENDED) {
        e2b_start_break(start, "the stream went on after its end");
        return false;
    }
    const char *problem = e2b_event_read(payload, len, &event);
    if (problem == NULL)
        problem = take(start, &event);
    e2b_event_dispose(&event);
    if (problem != NULL)
        e2b_start_break(start, problem);
    return problem == NULL;
}

bool e2b_start_eos(e2b_start_t *start, const void *payload, size_t len)
{
    if (is_over(start))
        return false;
    if (start->state == START_ENDED) {
        e2b_start_break(start, "the stream ended twice");
        return false;
    }
    const char *problem = e2b_eos_read(payload, len, start->secrets, &start->eos);
    if (problem != NULL) {
        e2b_start_break(start, problem);
        return false;
    }
    start->state = START_ENDED;
    return true;
}

/* --- how long to listen --- */

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

bool e2b_start_is_over(const e2b_start_times_t *times, uint64_t now_us, e2b_start_close_t *closed, uint64_t *next_us)
{
    uint64_t late_us = times->deadline_us + UINT64_C(1000) * E2B_LATE_MS;
    uint64_t silent_us = times->heard_us + UINT64_C(1000) * E2B_SILENCE_MS;
    uint64_t closing_us = times->ended_us != 0 ? times->ended_us + UINT64_C(1000) * E2B_CLOSING_MS : UINT64_MAX;
    *next_us = earlier(earlier(late_us, silent_us), closing_us);
    if (now_us < *next_us)
        return false;
    *closed = now_us >= closing_us ? START_STOPPED : now_us >= late_us ? START_LATE : START_SILENT;
    return true;
}

/* --- the verdict --- */

static void say(e2b_verdict_t *out, e2b_verdict_end_t end, const char *message, const char *detail)
{
    out->end = end;
    snprintf(out->message, sizeof(out->message), "%s", message);
    snprintf(out->detail, sizeof(out->detail), "%s", detail);
}

static void end_step(e2b_start_t *start, int exit_code, int signal, bool is_timed_out)
{
    guest_step_t *step = start->step;
    step->has_ended = true;
    step->exit_code = exit_code;
    step->signal = signal;
    step->is_timed_out = is_timed_out;
}

static bool is_clean(const e2b_start_t *start)
{
    return start->state == START_ENDED && start->has_end && !start->eos.is_error;
}

/* At the deadline the daemon kills the process, and says so in one of two ways, whichever came first. A deadline that
 * only its clock has reached is a failure of its own. */
static bool is_deadline(const e2b_start_t *start, e2b_start_close_t closed, uint64_t left_us)
{
    if (closed == START_LATE)
        return !is_clean(start) || start->signal == 9;
    if (start->state == START_ENDED && start->eos.is_error && strcmp(start->eos.code, "deadline_exceeded") == 0)
        return left_us <= UINT64_C(1000) * E2B_NEAR_MS;
    return left_us == 0 && closed != START_CANCELED && (!is_clean(start) || start->signal == 9);
}

/* A stream of the daemon's is answered 200 whatever becomes of it: anything else is somebody before its handler. */
static void judge_status(const e2b_start_t *start, int status, const void *body, size_t body_len, e2b_verdict_t *out)
{
    e2b_error_t error;
    char text[E2B_TEXT_MAX];
    e2b_error_read(body, body_len, start->secrets, &error);
    if (status == 401 || status == 403)
        say(out, VERDICT_DENIED, "the sandbox's daemon did not accept the gateway", error.message);
    else if (status == 502 && error.is_shaped && strstr(error.message, "not found") != NULL)
        say(out, VERDICT_LOST, "the backend lost the sandbox", error.message);
    else {
        snprintf(text, sizeof(text), "the backend answered %d", status);
        say(out, VERDICT_LOST, text, error.message);
    }
}

static void judge_eos(const e2b_start_t *start, e2b_verdict_t *out)
{
    const char *code = start->eos.code;
    if (strcmp(code, "deadline_exceeded") == 0)
        say(out, VERDICT_LOST, "the sandbox's daemon gave up the command before its time", start->eos.message);
    else if (strcmp(code, "unavailable") == 0 || strcmp(code, "not_found") == 0 || strcmp(code, "canceled") == 0)
        say(out, VERDICT_LOST, "the backend lost the sandbox", start->eos.message);
    else if (strcmp(code, "unauthenticated") == 0 || strcmp(code, "permission_denied") == 0)
        say(out, VERDICT_DENIED, "the sandbox's daemon did not accept the gateway", start->eos.message);
    else
        say(out, VERDICT_PROTOCOL, "the sandbox's daemon did not run the command", start->eos.message);
}

static void judge_close(const e2b_start_t *start, e2b_start_close_t closed, e2b_verdict_t *out)
{
    char hint[E2B_TEXT_MAX] = "";
    if (start->has_end)
        snprintf(hint, sizeof(hint), "an exit code of %d was told, and the stream did not end properly",
                 start->exit_code);
    switch (closed) {
    case START_UNSENT:
        say(out, VERDICT_UNSENT, "the command could not be sent to the sandbox", hint);
        return;
    case START_SILENT:
        say(out, VERDICT_LOST, "nothing was heard of the sandbox any more", hint);
        return;
    case START_CLOSED:
        say(out, VERDICT_LOST, "the command's stream ended without a verdict", hint);
        return;
    default:
        say(out, VERDICT_LOST, "the connection to the sandbox was lost before a verdict", hint);
        return;
    }
}

void e2b_start_judge(e2b_start_t *start, e2b_start_close_t closed, uint64_t left_us, int status, const void *body,
                     size_t body_len, e2b_verdict_t *out)
{
    memset(out, 0, sizeof(*out));
    if (closed == START_CANCELED && !is_clean(start)) {
        say(out, VERDICT_CANCELED, "the run was stopped", "");
    } else if (is_deadline(start, closed, left_us)) {
        say(out, VERDICT_TIMED_OUT, "", "");
        end_step(start, E2B_EXIT_TIMED_OUT, 0, true);
    } else if (start->state == START_FLOODED) {
        say(out, VERDICT_FLOODED, "", "");
        cloud_output_flood(start->step);
    } else if (start->state == START_BROKEN) {
        say(out, VERDICT_PROTOCOL, "the sandbox's stream makes no sense", start->problem);
    } else if (is_clean(start)) {
        say(out, VERDICT_EXIT, "", "");
        end_step(start, start->exit_code, start->signal, false);
    } else if (status != 0 && status != 200) {
        judge_status(start, status, body, body_len, out);
    } else if (start->state == START_ENDED && start->eos.is_error) {
        judge_eos(start, out);
    } else {
        judge_close(start, closed, out);
    }
}
