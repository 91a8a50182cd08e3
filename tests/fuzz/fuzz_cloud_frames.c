/*
 * Connect's envelopes of arbitrary bytes: the first byte says how they are cut, which must change nothing. The second
 * says how much one payload and the stream may have, which is never passed.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cloud/cloud_frames.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct {
    uint64_t sum;
    size_t bytes, payloads, ends;
    size_t frame_max;
    cloud_frames_state_t state;
} outcome_t;

static bool on_payload(void *data, const uint8_t *payload, size_t len, bool is_end)
{
    outcome_t *out = data;
    if (len > out->frame_max || out->ends != 0)
        abort();
    for (size_t i = 0; i < len; ++i)
        out->sum = out->sum * 131 + payload[i] + 1;
    out->bytes += len;
    ++out->payloads;
    out->ends += is_end;
    return out->payloads != 7;
}

static outcome_t run(const uint8_t *data, size_t size, size_t piece_max, size_t frame_max, size_t total_max)
{
    outcome_t out = {.frame_max = frame_max};
    cloud_frames_t frames;
    cloud_frames_init(&frames, frame_max, total_max, on_payload, &out);
    while (size > 0) {
        size_t n = piece_max < size ? piece_max : size;
        /* An exact copy, so that a read past the piece is seen. */
        uint8_t *copy = malloc(n);
        memcpy(copy, data, n);
        cloud_frames_take(&frames, copy, n);
        free(copy);
        data += n;
        size -= n;
        if (frames.total > total_max || frames.payload.len > frame_max)
            abort();
    }
    out.state = cloud_frames_state(&frames);
    cloud_frames_dispose(&frames);
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    size_t frame_max = data[1] & 15u ? (data[1] & 15u) * 8u : 4096, total_max = data[1] & 0xf0u ? data[1] : 1u << 20;
    outcome_t a = run(data + 2, size - 2, data[0] + 1u, frame_max, total_max);
    outcome_t b = run(data + 2, size - 2, SIZE_MAX, frame_max, total_max);
    if (a.state != b.state || a.sum != b.sum || a.bytes != b.bytes || a.payloads != b.payloads || a.ends != b.ends)
        abort();
    if (a.state == CLOUD_FRAMES_ENDED && a.ends != 1)
        abort();
    if (a.bytes + a.payloads * CLOUD_FRAME_HEAD > size - 2)
        abort();
    return 0;
}
