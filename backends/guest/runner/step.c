#include "backends/guest/runner/step.h"

#include <errno.h>
#include <poll.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct {
    int *fd;
    uint8_t type;
    bool is_cut;
    uint32_t kept;  /* bytes forwarded or to be */
    uint64_t total; /* bytes read */
    uint64_t since_us;
    size_t len;
    uint8_t frame[1 + JOB_CHUNK_MAX]; /* the step's number and `len` bytes that wait */
} stream_t;

typedef struct {
    step_limits_t *limits;
    process_t *process;
    const uint8_t *input;
    size_t input_left;
    stream_t out, err;
} step_t;

int step_timer(uint32_t timeout_ms)
{
    struct itimerspec when = {.it_value = {timeout_ms / 1000, (long)(timeout_ms % 1000) * 1000000}};
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (fd >= 0 && timerfd_settime(fd, 0, &when, NULL) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

bool step_is_time_up(int timer)
{
    return poll(&(struct pollfd){.fd = timer, .events = POLLIN}, 1, 0) > 0;
}

static bool is_waiting_full(const stream_t *s)
{
    return s->len == JOB_CHUNK_MAX;
}

static void stream_flush(step_t *step, stream_t *s)
{
    if (s->len == 0)
        return;
    link_put(step->limits->link, s->type, s->frame, 1 + s->len);
    s->len = 0;
}

/* Bytes that may still be kept of this stream. */
static size_t stream_room(const step_t *step, const stream_t *s)
{
    uint32_t room = step->limits->stream_max - s->kept;
    return room < step->limits->output_left ? room : step->limits->output_left;
}

/* One read, of a stream that is not full. false when there is nothing more for now; the descriptor is closed at its
 * end.
 */
static bool stream_read(step_t *step, stream_t *s)
{
    static uint8_t dropped[64 * 1024];
    size_t room = stream_room(step, s), space = JOB_CHUNK_MAX - s->len;
    bool is_kept = room != 0;
    size_t want = !is_kept ? sizeof(dropped) : room < space ? room : space;
    ssize_t n = read(*s->fd, is_kept ? s->frame + 1 + s->len : dropped, want);
    if (n < 0 && errno == EINTR)
        return true;
    if (n < 0 && errno == EAGAIN)
        return false;
    if (n <= 0) {
        close(*s->fd);
        *s->fd = -1;
        return false;
    }
    s->total += (uint64_t)n;
    if (!is_kept) {
        s->is_cut = true;
        return true;
    }
    if (s->len == 0)
        s->since_us = process_now_us();
    s->len += (size_t)n;
    s->kept += (uint32_t)n;
    step->limits->output_left -= (uint32_t)n;
    return true;
}

static uint64_t patience_us(const link_t *link)
{
    return link->sent < STEP_FRAMES_AT_ONCE ? 0 : link->sent < STEP_FRAMES_SOON ? STEP_SOON_US : STEP_LATER_US;
}

/* Forwards what is due, as far as nothing pends. Milliseconds until more is due, or -1. */
static int forward(step_t *step)
{
    stream_t *streams[] = {&step->out, &step->err};
    link_t *link = step->limits->link;
    uint64_t patience = patience_us(link);
    int wait_ms = -1;
    for (int i = 0; i < 2; i++) {
        stream_t *s = streams[i];
        if (s->len == 0 || !link_is_clear(link))
            continue;
        uint64_t waited = patience == 0 ? 0 : process_now_us() - s->since_us;
        if (is_waiting_full(s) || waited >= patience) {
            stream_flush(step, s);
        } else {
            int ms = (int)((patience - waited) / 1000) + 1;
            wait_ms = wait_ms < 0 || ms < wait_ms ? ms : wait_ms;
        }
    }
    return wait_ms;
}

static void feed(step_t *step)
{
    while (step->input_left != 0) {
        ssize_t n = write(step->process->in, step->input, step->input_left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0)
            break; /* it does not want it */
        step->input += n;
        step->input_left -= (size_t)n;
    }
    step->input_left = 0;
    close(step->process->in);
    step->process->in = -1;
}

/* A full stream is not read until its frame is out: the guest waits, the clock does not. */
static short wanted(const stream_t *s)
{
    return is_waiting_full(s) ? 0 : POLLIN;
}

/* Until the main process has ended or the time is up: true in the first case. */
static bool watch(step_t *step)
{
    step_limits_t *limits = step->limits;
    enum { SIGNALS, TIMER, OUT, ERR, IN, LINK, COUNT };
    for (;;) {
        int wait_ms = forward(step);
        struct pollfd p[COUNT] = {
            [SIGNALS] = {.fd = limits->world->signals, .events = POLLIN},
            [TIMER] = {.fd = limits->timer, .events = POLLIN},
            [OUT] = {.fd = wanted(&step->out) != 0 ? *step->out.fd : -1, .events = POLLIN},
            [ERR] = {.fd = wanted(&step->err) != 0 ? *step->err.fd : -1, .events = POLLIN},
            [IN] = {.fd = step->process->in, .events = POLLOUT},
            [LINK] = {.fd = link_is_clear(limits->link) ? -1 : LINK_OUT, .events = POLLOUT},
        };
        if (poll(p, COUNT, wait_ms) < 0)
            continue;
        /* the verdict first: one that is there is not rewritten by the deadline */
        if (p[SIGNALS].revents != 0 && process_reap(limits->world, step->process))
            return true;
        if (p[TIMER].revents != 0)
            return false;
        if (p[OUT].revents != 0)
            stream_read(step, &step->out);
        if (p[ERR].revents != 0)
            stream_read(step, &step->err);
        if (p[IN].revents != 0)
            feed(step);
        if (p[LINK].revents != 0)
            link_push(limits->link);
    }
}

/* What is in the pipe now that nobody is left to write to it. */
static void drain(step_t *step, stream_t *s, bool is_all_ended)
{
    /* with processes left that would not end, it could go on for ever; a slow reader may take its time */
    uint64_t until = is_all_ended ? UINT64_MAX : process_now_us() + PROCESS_KILL_MS * 1000;
    do {
        /* it may come here full, and a read without room would look like the stream's end */
        if (is_waiting_full(s)) {
            link_flush(step->limits->link);
            stream_flush(step, s);
        }
    } while (*s->fd >= 0 && stream_read(step, s) && process_now_us() < until);
    if (s->len != 0) {
        link_flush(step->limits->link);
        stream_flush(step, s);
    }
}

static void report(step_t *step, uint8_t number, const step_end_t *end, uint64_t duration_us)
{
    uint8_t payload[FRAME_PAYLOAD_MAX];
    int status = step->process->status;
    bool is_timed_out = end->verdict == STEP_TIMED_OUT;
    job_step_end_t message = {
        .step = number,
        .is_timed_out = is_timed_out,
        .is_out_truncated = step->out.is_cut,
        .is_err_truncated = step->err.is_cut,
        .exit_code = end->exit_code,
        .signal = !is_timed_out && WIFSIGNALED(status) ? (uint8_t)WTERMSIG(status) : 0,
        .out_kept = step->out.kept,
        .err_kept = step->err.kept,
        .out_total = step->out.total,
        .err_total = step->err.total,
        .duration_us = duration_us,
    };
    link_send(step->limits->link, FRAME_STEP_END, payload, job_step_end_encode(&message, payload));
}

step_end_t step_run(step_limits_t *limits, uint8_t number, process_t *process, const void *input, size_t input_len)
{
    static step_t step;
    uint64_t begun = process_now_us();
    step = (step_t){.limits = limits, .process = process, .input = input, .input_left = input_len};
    step.out = (stream_t){.fd = &process->out, .type = FRAME_OUT, .frame = {number}};
    step.err = (stream_t){.fd = &process->err, .type = FRAME_ERR, .frame = {number}};
    if (process->in >= 0)
        feed(&step);
    step_end_t end = {.verdict = watch(&step) ? STEP_ENDED : STEP_TIMED_OUT};
    uint64_t duration = process_now_us() - begun;
    end.is_all_ended = process_kill_all(limits->world, process);
    drain(&step, &step.out, end.is_all_ended);
    drain(&step, &step.err, end.is_all_ended);
    process_close(process);
    if (end.verdict == STEP_TIMED_OUT)
        end.exit_code = 124;
    else
        end.exit_code = WIFEXITED(process->status) ? WEXITSTATUS(process->status) : -1;
    report(&step, number, &end, duration);
    return end;
}
