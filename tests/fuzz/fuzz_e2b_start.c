/* The stream of a command in a sandbox, from hostile bytes in pieces of any size: never a crash, never more kept than
 * allowed, and never an exit without an end event and a clean end frame. The first byte says how the pieces are cut and
 * how the exchange ends. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cloud/cloud_frames.h"
#include "backends/e2b/start.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STREAM_MAX = 64, KEPT_MAX = 96, TRANSFER_MAX = 4096 };

static void check(int holds)
{
    if (!holds)
        abort();
}

static bool on_payload(void *data, const uint8_t *payload, size_t len, bool is_end)
{
    e2b_start_t *start = data;
    return is_end ? e2b_start_eos(start, payload, len) : e2b_start_message(start, payload, len);
}

static void feed(e2b_start_t *start, cloud_frames_t *frames, const uint8_t *data, size_t size, size_t piece)
{
    while (size > 0) {
        size_t len = piece < size ? piece : size;
        if (!e2b_start_count(start, len))
            return;
        cloud_frames_state_t state = cloud_frames_take(frames, data, len);
        if (state == CLOUD_FRAMES_FLOOD)
            e2b_start_oversize(start);
        else if (state == CLOUD_FRAMES_BROKEN)
            e2b_start_break(start, "broken");
        if (state != CLOUD_FRAMES_MORE && state != CLOUD_FRAMES_ENDED)
            return;
        data += len;
        size -= len;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    e2b_start_t start;
    cloud_frames_t frames;
    e2b_verdict_t verdict;
    guest_step_t step = {.exit_code = 0};
    cloud_limits_t limits = {.stream_max = STREAM_MAX, .output_left = KEPT_MAX};
    size_t transfer = TRANSFER_MAX;

    if (size == 0)
        return 0;
    e2b_start_init(&start, &step, &limits, &transfer);
    cloud_frames_init(&frames, 1024, TRANSFER_MAX, on_payload, &start);
    e2b_start_close_t closed = (e2b_start_close_t)(data[0] % (START_STOPPED + 1));
    bool is_past = (data[0] & 0x80) != 0;
    feed(&start, &frames, data + 1, size - 1, (size_t)(data[0] / 8 % 8) * 7 + 1);
    e2b_start_judge(&start, closed, is_past ? 0 : 1000000, 200, NULL, 0, &verdict);
    check(step.out.len <= STREAM_MAX && step.err.len <= STREAM_MAX &&
          step.out.len + step.err.len + limits.output_left == KEPT_MAX);
    check(step.has_ended ==
          (verdict.end == VERDICT_EXIT || verdict.end == VERDICT_TIMED_OUT || verdict.end == VERDICT_FLOODED));
    if (verdict.end == VERDICT_EXIT)
        check(start.has_begun && start.has_end && start.state == START_ENDED && !start.eos.is_error);
    if (step.has_ended && verdict.end != VERDICT_EXIT)
        check(step.exit_code == (verdict.end == VERDICT_TIMED_OUT ? 124 : 153));
    cloud_frames_dispose(&frames);
    buffer_dispose(&step.out);
    buffer_dispose(&step.err);
    return 0;
}
