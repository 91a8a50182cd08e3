#include "backends/wasm/execute.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "core/clock.h"
#include "core/log.h"

static bool step(backend_run_t *run, backend_step_t which)
{
    return run != NULL && backend_step(run, which);
}

static void no_verdict(wasm_result_t *out, wasm_verdict_t verdict, const char *reason)
{
    out->verdict = verdict;
    out->reason = reason;
}

static bool has_spoken(const wasm_worker_t *worker)
{
    wasm_stream_state_t state = worker->stream.state;
    return state == WASM_STREAM_END || state == WASM_STREAM_BAD || state == WASM_STREAM_SURVIVED;
}

/* No run has a grant yet: every host call is refused, and none reaches anything. */
static bool answer_host_call(wasm_worker_t *worker, uint32_t calls, uint64_t until_us)
{
    static const char refusal[] = "no host api is granted to this run", too_many[] = "too many host calls in this run";
    bool is_over = calls > WASM_CALLS_MAX;
    const char *body = is_over ? too_many : refusal;
    uint8_t head[WASM_REPLY_HEAD];
    wasm_reply_head(head, is_over ? 429 : 403, (uint32_t)strlen(body));
    wasm_stream_replied(&worker->stream);
    return wasm_worker_send(worker, head, sizeof(head), body, strlen(body), until_us) == WASM_SENT;
}

/* Until the worker has said its end, has gone, or was killed for the deadline or for the caller. */
static void await(wasm_worker_t *worker, uint64_t deadline_us, bool *is_late, bool *is_canceled)
{
    uint64_t kill_us = deadline_us + WASM_KILL_AFTER_MS * 1000;
    for (uint32_t calls = 0; !has_spoken(worker) && !worker->is_eof && !worker->is_lost;) {
        if (worker->stream.state == WASM_STREAM_CALL && answer_host_call(worker, ++calls, kill_us))
            continue;
        switch (wasm_wait_until(kill_us)) {
        case CO_WOKEN:
            continue;
        case CO_CANCELED:
            *is_canceled = true;
            break;
        case CO_TIMED_OUT:
            *is_late = true;
            break;
        }
        wasm_worker_kill(worker);
        return;
    }
}

/* What it sent before it died is still in the socket, and the template's report is on its way. */
static void take_last_words(wasm_worker_t *worker)
{
    uint64_t until_us = clock_mono_us() + WASM_LAST_WORDS_MS * 1000;
    co_shield_begin();
    while (!has_spoken(worker) && !worker->is_lost && !(worker->is_eof && worker->has_exited)) {
        if (wasm_wait_until(until_us) == CO_TIMED_OUT)
            break;
    }
    co_shield_end();
}

static void set_abort_text(wasm_result_t *out, int signal_number)
{
    const char *name = sigabbrev_np(signal_number);
    if (out->err.len == 0)
        buffer_printf(&out->err, "guest aborted: wasm error: the worker was ended by SIG%s%s\n",
                      name != NULL ? name : "?", signal_number == SIGSYS ? ", a forbidden system call" : "");
}

static void timed_out(wasm_result_t *out)
{
    out->exit_code = WASM_EXIT_DEADLINE;
    out->is_timed_out = true;
}

/* A worker that ended without a word. */
static void judge_silence(wasm_worker_t *worker, bool is_past_deadline, wasm_result_t *out)
{
    if (!worker->has_exited) {
        no_verdict(out, WASM_UNKNOWN, worker->is_lost ? "the template died" : "the worker fell silent");
        return;
    }
    out->status = worker->status;
    if (WIFSIGNALED(worker->status) && WTERMSIG(worker->status) == SIGXCPU) {
        timed_out(out); /* the third layer: more processor time than the run had wall time */
    } else if (WIFSIGNALED(worker->status)) {
        out->exit_code = WASM_EXIT_TRAP;
        set_abort_text(out, WTERMSIG(worker->status));
    } else if (WIFEXITED(worker->status) && WEXITSTATUS(worker->status) == WASM_STATUS_DEADLINE && is_past_deadline) {
        timed_out(out);
    } else {
        no_verdict(out, WASM_UNKNOWN, "the worker ended without a verdict");
    }
}

static void judge(wasm_worker_t *worker, uint64_t deadline_us, bool is_late, bool is_canceled, wasm_result_t *out)
{
    bool is_past_deadline = clock_mono_us() >= deadline_us;
    switch (worker->stream.state) {
    case WASM_STREAM_END:
        out->exit_code = worker->stream.exit_code;
        out->is_timed_out = out->exit_code == WASM_EXIT_DEADLINE;
        if (out->is_timed_out && !is_past_deadline)
            no_verdict(out, WASM_UNKNOWN, "a deadline claimed before its time");
        return;
    case WASM_STREAM_BAD:
        no_verdict(out, WASM_UNKNOWN, worker->stream.reason);
        return;
    case WASM_STREAM_SURVIVED:
        out->has_survived = true;
        return;
    case WASM_STREAM_MORE:
    case WASM_STREAM_CALL:
        break;
    }
    if (is_canceled) {
        out->is_canceled = true;
        out->exit_code = WASM_EXIT_CANCELED;
    } else if (is_late) {
        timed_out(out);
    } else {
        judge_silence(worker, is_past_deadline, out);
    }
}

/* The output moves from the worker to the result. */
static void take_output(wasm_worker_t *worker, wasm_result_t *out)
{
    out->out = worker->stream.out.bytes;
    out->err = worker->stream.err.bytes;
    out->is_out_truncated = worker->stream.out.is_truncated;
    out->is_err_truncated = worker->stream.err.is_truncated;
    buffer_init(&worker->stream.out.bytes, 0);
    buffer_init(&worker->stream.err.bytes, 0);
}

static void finish(wasm_worker_t *worker, uint64_t deadline_us, backend_run_t *run, wasm_result_t *out)
{
    bool is_late = false, is_canceled = false;
    await(worker, deadline_us, &is_late, &is_canceled);
    bool is_failed = step(run, STEP_COLLECT);
    take_last_words(worker);
    take_output(worker, out);
    judge(worker, deadline_us, is_late, is_canceled, out);
    if (is_failed)
        no_verdict(out, WASM_UNKNOWN, "fault point");
    if (out->verdict == WASM_UNKNOWN)
        log_event(LOG_WARN, "wasm run without a verdict", log_str("reason", out->reason), log_int("pid", worker->pid),
                  log_int("status", worker->has_exited ? worker->status : -1));
}

static void result_init(wasm_result_t *out)
{
    memset(out, 0, sizeof(*out));
    buffer_init(&out->out, WASM_STREAM_KEEP);
    buffer_init(&out->err, WASM_STREAM_KEEP);
}

void wasm_result_dispose(wasm_result_t *result)
{
    buffer_dispose(&result->out);
    buffer_dispose(&result->err);
}

static uint32_t milliseconds_left(uint64_t deadline_us)
{
    uint64_t now_us = clock_mono_us();
    uint64_t left_ms = deadline_us > now_us ? (deadline_us - now_us + 999) / 1000 : 0;
    return left_ms < WASM_TIMEOUT_MAX_MS ? (uint32_t)left_ms : WASM_TIMEOUT_MAX_MS;
}

void wasm_execute(wasm_workers_t *workers, const char *code, size_t len, uint64_t deadline_us, backend_run_t *run,
                  wasm_result_t *out)
{
    uint8_t head[WASM_START_HEAD];
    const char *reason = "fault point";

    result_init(out);
    wasm_worker_t *worker = step(run, STEP_CREATE) ? NULL : wasm_worker_take(workers, false, deadline_us, &reason);
    if (worker == NULL) {
        no_verdict(out, WASM_NOT_RUN, reason);
        return;
    }
    bool is_failed = step(run, STEP_STAGE);
    uint32_t left_ms = milliseconds_left(deadline_us);
    wasm_start_head(head, left_ms, (uint32_t)len);
    /* A worker reads all of the code before it evaluates any. */
    if (is_failed || left_ms == 0 || wasm_worker_send(worker, head, sizeof(head), code, len, deadline_us) != WASM_SENT)
        no_verdict(out, WASM_NOT_RUN, "the code was not handed over");
    else if (step(run, STEP_EXECUTE))
        no_verdict(out, WASM_UNKNOWN, "fault point");
    else
        finish(worker, deadline_us, run, out);
    step(run, STEP_DELETE);
    wasm_worker_release(worker);
}

void wasm_probe(wasm_workers_t *workers, wasm_probe_t what, uint64_t deadline_us, wasm_result_t *out)
{
    const uint8_t frame[WASM_FRAME_HEADER + 1] = {WASM_FRAME_PROBE, 1, 0, 0, 0, (uint8_t)what};
    const char *reason = "";

    result_init(out);
    wasm_worker_t *worker = wasm_worker_take(workers, true, deadline_us, &reason);
    if (worker == NULL) {
        no_verdict(out, WASM_NOT_RUN, reason);
        return;
    }
    if (wasm_worker_send(worker, frame, sizeof(frame), NULL, 0, deadline_us) == WASM_SENT)
        finish(worker, deadline_us, NULL, out);
    else
        no_verdict(out, WASM_NOT_RUN, "the probe was not handed over");
    wasm_worker_release(worker);
}
