/*
 * Connect's envelopes: a byte of flags, four of length (big endian), the payload; the last one carries the flag for the
 * end of the stream (https://connectrpc.com/docs/protocol, "Streaming RPCs"). Taken apart as the bytes come, however
 * they are split; a length is judged before anything is allocated for it.
 */
#ifndef BACKENDS_CLOUD_CLOUD_FRAMES_H
#define BACKENDS_CLOUD_CLOUD_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/buffer.h"

enum {
    CLOUD_FRAME_HEAD = 5,
    CLOUD_FRAME_COMPRESSED = 0x01, /* never negotiated, so never right */
    CLOUD_FRAME_END = 0x02,
    CLOUD_FRAME_MAX = 8 * 1024 * 1024,         /* bytes of one payload */
    CLOUD_FRAMES_TOTAL_MAX = 32 * 1024 * 1024, /* bytes of a stream, heads included */
    CLOUD_FRAME_END_MAX = 64 * 1024,           /* bytes of the last payload: an error and its details */
};

typedef enum {
    CLOUD_FRAMES_MORE,    /* goes on */
    CLOUD_FRAMES_ENDED,   /* the last envelope is whole */
    CLOUD_FRAMES_FLOOD,   /* a payload or the stream is past its limit */
    CLOUD_FRAMES_BROKEN,  /* compressed, unknown flags, or bytes after the end */
    CLOUD_FRAMES_STOPPED, /* by on_payload */
} cloud_frames_state_t;

typedef struct {
    /* Each payload; `is_end` the last one's. False stops. The bytes are only there during the call. */
    bool (*on_payload)(void *data, const uint8_t *payload, size_t len, bool is_end);
    void *data;
    size_t frame_max, total_max; /* at most the two above */
    cloud_frames_state_t state;
    size_t total; /* bytes taken */
    uint8_t head[CLOUD_FRAME_HEAD];
    size_t head_len;
    buffer_t payload;
    size_t payload_len; /* as announced; of use when the head is whole */
} cloud_frames_t;

void cloud_frames_init(cloud_frames_t *frames, size_t frame_max, size_t total_max,
                       bool (*on_payload)(void *data, const uint8_t *payload, size_t len, bool is_end), void *data);
void cloud_frames_dispose(cloud_frames_t *frames);
/* Bytes as they come. Every state but MORE is final, except that bytes after the end make it BROKEN. */
cloud_frames_state_t cloud_frames_take(cloud_frames_t *frames, const void *bytes, size_t len);
/* The body is over: ENDED, or what it was instead; MORE means that it was cut. */
cloud_frames_state_t cloud_frames_state(const cloud_frames_t *frames);

/* Appends one envelope. False when the buffer is full or the payload larger than CLOUD_FRAME_MAX. */
bool cloud_frame_append(buffer_t *out, uint8_t flags, const void *payload, size_t len);

#endif
