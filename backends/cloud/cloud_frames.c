#include "backends/cloud/cloud_frames.h"

#include <string.h>

#include "core/mem.h"

void cloud_frames_init(cloud_frames_t *frames, size_t frame_max, size_t total_max,
                       bool (*on_payload)(void *data, const uint8_t *payload, size_t len, bool is_end), void *data)
{
    *frames = (cloud_frames_t){
        .on_payload = on_payload,
        .data = data,
        .frame_max = frame_max < CLOUD_FRAME_MAX ? frame_max : CLOUD_FRAME_MAX,
        .total_max = total_max < CLOUD_FRAMES_TOTAL_MAX ? total_max : CLOUD_FRAMES_TOTAL_MAX,
    };
    buffer_init(&frames->payload, frames->frame_max);
}

void cloud_frames_dispose(cloud_frames_t *frames)
{
    buffer_dispose(&frames->payload);
}

cloud_frames_state_t cloud_frames_state(const cloud_frames_t *frames)
{
    return frames->state;
}

static bool is_end(const cloud_frames_t *frames)
{
    return (frames->head[0] & CLOUD_FRAME_END) != 0;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The head is whole: judged before anything is allocated for what it announces. */
static void judge_head(cloud_frames_t *frames)
{
    const uint8_t *h = frames->head;
    size_t max = is_end(frames) ? least(frames->frame_max, CLOUD_FRAME_END_MAX) : frames->frame_max;
    frames->payload_len = (size_t)h[1] << 24 | (size_t)h[2] << 16 | (size_t)h[3] << 8 | h[4];
    if ((h[0] & ~(unsigned)CLOUD_FRAME_END) != 0)
        frames->state = CLOUD_FRAMES_BROKEN;
    else if (frames->payload_len > max)
        frames->state = is_end(frames) ? CLOUD_FRAMES_BROKEN : CLOUD_FRAMES_FLOOD;
}

static void deliver(cloud_frames_t *frames, const uint8_t *payload)
{
    bool goes_on = frames->on_payload(frames->data, payload, frames->payload_len, is_end(frames));
    if (!goes_on)
        frames->state = CLOUD_FRAMES_STOPPED;
    else if (is_end(frames))
        frames->state = CLOUD_FRAMES_ENDED;
    frames->head_len = 0;
    buffer_clear(&frames->payload);
}

static size_t take_head(cloud_frames_t *frames, const uint8_t *bytes, size_t len)
{
    size_t n = least(len, CLOUD_FRAME_HEAD - frames->head_len);
    memcpy(frames->head + frames->head_len, bytes, n);
    frames->head_len += n;
    if (frames->head_len == CLOUD_FRAME_HEAD)
        judge_head(frames);
    return n;
}

/* A payload that came in one piece is not copied. */
static size_t take_payload(cloud_frames_t *frames, const uint8_t *bytes, size_t len)
{
    size_t missing = frames->payload_len - frames->payload.len, n = least(len, missing);
    if (n == missing && frames->payload.len == 0) {
        deliver(frames, bytes);
        return n;
    }
    if (n > 0 && !buffer_append(&frames->payload, bytes, n))
        mem_fatal("an envelope's buffer is smaller than its limit");
    if (n == missing)
        deliver(frames, frames->payload.base);
    return n;
}

cloud_frames_state_t cloud_frames_take(cloud_frames_t *frames, const void *bytes, size_t len)
{
    static const uint8_t none[1];
    const uint8_t *at = len > 0 ? bytes : none;
    if (len > 0 && frames->state == CLOUD_FRAMES_ENDED)
        frames->state = CLOUD_FRAMES_BROKEN;
    while (len > 0 && frames->state == CLOUD_FRAMES_MORE) {
        size_t n = least(len, frames->total_max - frames->total);
        if (n == 0) {
            frames->state = CLOUD_FRAMES_FLOOD;
            break;
        }
        n = frames->head_len < CLOUD_FRAME_HEAD ? take_head(frames, at, n) : take_payload(frames, at, n);
        frames->total += n;
        at += n;
        len -= n;
        /* an empty payload is whole with its head */
        if (frames->state == CLOUD_FRAMES_MORE && frames->head_len == CLOUD_FRAME_HEAD && frames->payload_len == 0)
            deliver(frames, none);
        if (frames->state == CLOUD_FRAMES_ENDED && len > 0)
            frames->state = CLOUD_FRAMES_BROKEN;
    }
    return frames->state;
}

bool cloud_frame_append(buffer_t *out, uint8_t flags, const void *payload, size_t len)
{
    if (len > CLOUD_FRAME_MAX)
        return false;
    uint8_t *at = buffer_reserve(out, CLOUD_FRAME_HEAD + len);
    if (at == NULL)
        return false;
    at[0] = flags;
    at[1] = (uint8_t)(len >> 24);
    at[2] = (uint8_t)(len >> 16);
    at[3] = (uint8_t)(len >> 8);
    at[4] = (uint8_t)len;
    if (len > 0)
        memcpy(at + CLOUD_FRAME_HEAD, payload, len);
    buffer_commit(out, CLOUD_FRAME_HEAD + len);
    return true;
}
