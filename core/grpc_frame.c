#include "core/grpc_frame.h"

#include "core/mem.h"

static uint32_t length_at(const uint8_t *prefix)
{
    return (uint32_t)prefix[1] << 24 | (uint32_t)prefix[2] << 16 | (uint32_t)prefix[3] << 8 | prefix[4];
}

void grpc_frame_prefix(uint8_t out[GRPC_PREFIX], uint32_t len)
{
    out[0] = 0;
    out[1] = (uint8_t)(len >> 24);
    out[2] = (uint8_t)(len >> 16);
    out[3] = (uint8_t)(len >> 8);
    out[4] = (uint8_t)len;
}

void grpc_frames_init(grpc_frames_t *frames, size_t message_max, size_t held_max)
{
    if (held_max < message_max + GRPC_PREFIX)
        mem_fatal("a gRPC stream that cannot hold its messages");
    *frames = (grpc_frames_t){.message_max = message_max};
    buffer_init(&frames->_bytes, held_max);
}

void grpc_frames_dispose(grpc_frames_t *frames)
{
    buffer_dispose(&frames->_bytes);
}

/* What was taken goes when it is all there is, or the larger part. */
static void forget_taken(grpc_frames_t *frames)
{
    if (frames->_at == 0 || frames->_at < frames->_bytes.len - frames->_at)
        return;
    buffer_consume(&frames->_bytes, frames->_at);
    frames->_scanned -= frames->_at;
    frames->_at = 0;
}

static bool scan(grpc_frames_t *frames)
{
    while (frames->_bytes.len - frames->_scanned >= GRPC_PREFIX) {
        const uint8_t *prefix = frames->_bytes.base + frames->_scanned;
        size_t len = length_at(prefix);
        if (prefix[0] != 0)
            frames->problem = GRPC_FRAMES_COMPRESSED;
        else if (len > frames->message_max)
            frames->problem = GRPC_FRAMES_TOO_LARGE;
        if (frames->problem != GRPC_FRAMES_FINE)
            return false;
        if (frames->_bytes.len - frames->_scanned - GRPC_PREFIX < len)
            break;
        frames->_scanned += GRPC_PREFIX + len;
        ++frames->count;
    }
    return true;
}

bool grpc_frames_add(grpc_frames_t *frames, const uint8_t *bytes, size_t len)
{
    if (frames->problem != GRPC_FRAMES_FINE)
        return false;
    forget_taken(frames);
    if (!buffer_append(&frames->_bytes, bytes, len)) {
        frames->problem = GRPC_FRAMES_TOO_LARGE;
        return false;
    }
    return scan(frames);
}

bool grpc_frames_next(grpc_frames_t *frames, const uint8_t **message, size_t *len)
{
    if (frames->_at == frames->_scanned)
        return false;
    const uint8_t *prefix = frames->_bytes.base + frames->_at;
    *message = prefix + GRPC_PREFIX;
    *len = length_at(prefix);
    frames->_at += GRPC_PREFIX + *len;
    return true;
}

size_t grpc_frames_ready(const grpc_frames_t *frames)
{
    return frames->_scanned - frames->_at;
}

size_t grpc_frames_left_over(const grpc_frames_t *frames)
{
    return frames->_bytes.len - frames->_scanned;
}
