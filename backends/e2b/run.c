/*
 * One Start: the request, its stream, and when to stop listening (2.4 to 2.6, 3.2). Leaving the stream stops nothing in
 * the sandbox, and a deadline of the daemon's reaches the direct child alone; the whole tree ends with the machine,
 * which is deleted after the run whatever came.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cloud/cloud_frames.h"
#include "backends/e2b/e2b_internal.h"
#include "backends/e2b/start.h"
#include "core/clock.h"
#include "core/co.h"
#include "core/mem.h"

typedef struct {
    co_t *waiter;
    e2b_start_t start;
    cloud_frames_t frames;
    buffer_t error_body; /* of an answer that is not 200 */
    int status;
    e2b_start_times_t times;
    bool is_sent;
    bool is_done; /* the exchange is over */
    http_outcome_t outcome;
} stream_t;

static bool on_payload(void *data, const uint8_t *payload, size_t len, bool is_end)
{
    stream_t *stream = data;
    if (!is_end)
        return e2b_start_message(&stream->start, payload, len);
    stream->times.ended_us = clock_mono_us();
    co_wake(stream->waiter);
    return e2b_start_eos(&stream->start, payload, len);
}

static bool on_head(void *data, const http_response_t *response)
{
    stream_t *stream = data;
    stream->status = response->status;
    stream->times.heard_us = clock_mono_us();
    return true;
}

static bool take_frames(stream_t *stream, const uint8_t *bytes, size_t len)
{
    if (!e2b_start_count(&stream->start, len))
        return false;
    switch (cloud_frames_take(&stream->frames, bytes, len)) {
    case CLOUD_FRAMES_MORE:
    case CLOUD_FRAMES_ENDED:
        return true;
    case CLOUD_FRAMES_FLOOD:
        e2b_start_oversize(&stream->start);
        return false;
    case CLOUD_FRAMES_BROKEN:
        e2b_start_break(&stream->start, "the stream's frames make no sense");
        return false;
    case CLOUD_FRAMES_STOPPED:
        break;
    }
    return false;
}

static bool on_data(void *data, const uint8_t *bytes, size_t len)
{
    stream_t *stream = data;
    stream->times.heard_us = clock_mono_us();
    if (stream->status == 200)
        return take_frames(stream, bytes, len);
    size_t room = E2B_ERROR_MAX - stream->error_body.len;
    buffer_append(&stream->error_body, bytes, len < room ? len : room);
    return true;
}

static void on_done(void *data, const http_response_t *response)
{
    stream_t *stream = data;
    stream->is_done = true;
    stream->is_sent = response->sent;
    stream->outcome = response->outcome;
    co_wake(stream->waiter);
}

static e2b_start_close_t close_of(const stream_t *stream)
{
    switch (stream->outcome) {
    case HTTP_DONE:
        return START_CLOSED;
    case HTTP_NOT_SENT:
        return START_UNSENT;
    case HTTP_TIMED_OUT:
        return stream->is_sent ? START_LATE : START_UNSENT;
    case HTTP_CANCELED:
        return START_STOPPED;
    case HTTP_LOST:
    case HTTP_TOO_LARGE:
        break;
    }
    return START_CUT;
}

static e2b_start_close_t listen(stream_t *stream, http_call_t *call)
{
    e2b_start_close_t closed = START_CLOSED;
    uint64_t next_us;
    bool is_ours = false; /* the end, not the exchange's */
    while (!stream->is_done && !is_ours) {
        if (e2b_start_is_over(&stream->times, clock_mono_us(), &closed, &next_us)) {
            is_ours = true;
        } else if (co_wait(cloud_left_ms(next_us)) == CO_CANCELED) {
            is_ours = !stream->is_done;
            closed = START_CANCELED;
        }
    }
    if (!is_ours)
        return close_of(stream);
    http_call_cancel(call);
    co_shield_begin();
    while (!stream->is_done)
        co_wait(UINT64_MAX);
    co_shield_end();
    return closed;
}

static void add_headers(e2b_headers_t *headers, const cloud_box_t *box, uint64_t left_us)
{
    e2b_headers_begin(headers, box);
    e2b_headers_add(headers, "Authorization: Basic dXNlcjo="); /* "user:" names the guest's user, and is no secret */
    e2b_headers_add(headers, "Content-Type: application/connect+json");
    e2b_headers_add(headers, "Connect-Protocol-Version: 1");
    e2b_headers_add(headers, "Connect-Timeout-Ms: %u", e2b_timeout_ms(left_us));
    e2b_headers_add(headers, "Keepalive-Ping-Interval: %d", E2B_KEEPALIVE_S);
}

static uint64_t left_us(uint64_t deadline_us)
{
    uint64_t now_us = clock_mono_us();
    return deadline_us > now_us ? deadline_us - now_us : 0;
}

/* One exchange, to its end. */
static e2b_start_close_t exchange(e2b_t *e2b, const cloud_box_t *box, const buffer_t *body, const char *url,
                                  uint64_t deadline_us, stream_t *stream)
{
    e2b_headers_t *headers = mem_alloc(sizeof(*headers));
    uint64_t left = left_us(deadline_us);
    add_headers(headers, box, left);
    http_request_t request = {.method = "POST",
                              .url = url,
                              .headers = headers->lines,
                              .header_count = headers->count,
                              .body = body->base,
                              .body_len = body->len,
                              .deadline_ms = e2b_timeout_ms(left) + E2B_START_HEADROOM_MS,
                              .response_max = E2B_TRANSFER_MAX + E2B_ERROR_MAX,
                              .reuse_seconds = CLOUD_REUSE_S,
                              .on_head = on_head,
                              .on_data = on_data,
                              .stream_data = stream};
    stream->times.deadline_us = deadline_us;
    stream->times.heard_us = clock_mono_us();
    http_call_t *call = http_call_start(cloud_http_client(e2b->http), &request, on_done, stream);
    e2b_headers_wipe(headers);
    free(headers);
    return listen(stream, call);
}

/* --- from the verdict to what the run's skeleton wants to know --- */

static bool tell(const e2b_t *e2b, const e2b_verdict_t *verdict, cloud_trouble_t *trouble)
{
    static const cloud_fault_t faults[] = {
        [VERDICT_EXIT] = CLOUD_FINE,       [VERDICT_TIMED_OUT] = CLOUD_FINE,   [VERDICT_FLOODED] = CLOUD_FINE,
        [VERDICT_UNSENT] = CLOUD_NOTHING,  [VERDICT_LOST] = CLOUD_LOST,        [VERDICT_PROTOCOL] = CLOUD_PROTOCOL,
        [VERDICT_DENIED] = CLOUD_PROTOCOL, [VERDICT_CANCELED] = CLOUD_CANCELED};
    char detail[CLOUD_TEXT_LOG_MAX + 1];
    cloud_fault_t fault = faults[verdict->end];
    if (fault == CLOUD_FINE)
        return true;
    cloud_text_scrub(&e2b->secrets, verdict->detail, strlen(verdict->detail), CLOUD_TEXT_LOG_MAX, detail);
    return cloud_trouble(trouble, fault, verdict->message, detail);
}

static void begin(stream_t *stream, guest_step_t *step, cloud_limits_t *limits, size_t *transfer,
                  const cloud_secrets_t *secrets)
{
    memset(stream, 0, sizeof(*stream));
    stream->waiter = co_self();
    e2b_start_init(&stream->start, step, limits, transfer);
    stream->start.secrets = secrets;
    cloud_frames_init(&stream->frames, E2B_FRAME_MAX, E2B_TRANSFER_MAX, on_payload, stream);
    buffer_init(&stream->error_body, E2B_ERROR_MAX);
}

static void end(stream_t *stream)
{
    cloud_frames_dispose(&stream->frames);
    buffer_dispose(&stream->error_body);
}

bool e2b_start(e2b_t *e2b, cloud_box_t *box, const e2b_command_t *command, uint64_t deadline_us, cloud_limits_t *limits,
               guest_step_t *out, cloud_trouble_t *trouble)
{
    e2b_box_t *own = box->own;
    stream_t *stream = mem_alloc(sizeof(*stream));
    cloud_secrets_t secrets = e2b_box_secrets(e2b, box);
    e2b_verdict_t verdict = {.end = VERDICT_UNSENT};
    buffer_t payload, body, url;

    buffer_init(&payload, E2B_REQUEST_MAX);
    buffer_init(&body, E2B_REQUEST_MAX + CLOUD_FRAME_HEAD);
    buffer_init(&url, BASE_URL_MAX + E2B_LABEL_ID_MAX);
    if (!e2b_start_body(command, &payload) || !cloud_frame_append(&body, 0, payload.base, payload.len) ||
        !e2b_guest_url(e2b, box, "/process.Process/Start", &url)) {
        snprintf(verdict.message, sizeof(verdict.message), "the command cannot be sent to this backend");
    } else {
        /* Nothing of an unsent one has left: it may go once more. */
        for (int tries = 1; tries <= 2 && verdict.end == VERDICT_UNSENT; ++tries) {
            begin(stream, out, limits, &own->transfer_left, &secrets);
            e2b_start_close_t closed = exchange(e2b, box, &body, (const char *)url.base, deadline_us, stream);
            e2b_start_judge(&stream->start, closed, left_us(deadline_us), stream->status, stream->error_body.base,
                            stream->error_body.len, &verdict);
            end(stream);
        }
    }
    bool is_known = tell(e2b, &verdict, trouble);
    trouble->status = stream->status;
    trouble->is_sent = stream->is_sent;
    buffer_dispose(&payload);
    buffer_dispose(&body);
    buffer_dispose(&url);
    free(stream);
    return is_known;
}

bool e2b_step(void *self, cloud_box_t *box, const cloud_command_t *command, cloud_limits_t *limits, guest_step_t *out,
              cloud_trouble_t *trouble)
{
    e2b_command_t start = {.argv = command->argv, .argc = command->argc, .cwd = command->cwd};
    return e2b_start(e2b_check(self), box, &start, box->deadline_us, limits, out, trouble);
}
