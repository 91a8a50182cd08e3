/*
 * Messages in a gRPC stream (gRPC over HTTP/2, "Length-Prefixed-Message"): a flag, 4 bytes of length in network order,
 * the message. Incremental, at any split; knows nothing of DATA frames.
 */
#ifndef CORE_GRPC_FRAME_H
#define CORE_GRPC_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/buffer.h"

enum { GRPC_PREFIX = 5 };

typedef enum {
    GRPC_FRAMES_FINE,
    GRPC_FRAMES_COMPRESSED, /* a flag that is not 0: compression was not offered */
    GRPC_FRAMES_TOO_LARGE,  /* a message above the limit, or more at once than the buffer may hold */
} grpc_frames_problem_t;

typedef struct {
    buffer_t _bytes;
    size_t _at;      /* taken */
    size_t _scanned; /* the first message that is not whole */
    size_t message_max;
    uint64_t count; /* whole messages so far, those taken included */
    grpc_frames_problem_t problem;
} grpc_frames_t;

/* `held_max`: bytes held at once, at least a message of `message_max` and its prefix. */
void grpc_frames_init(grpc_frames_t *frames, size_t message_max, size_t held_max);
void grpc_frames_dispose(grpc_frames_t *frames);
/* False when the stream is broken (`problem`); whole messages before the break can still be taken. */
bool grpc_frames_add(grpc_frames_t *frames, const uint8_t *bytes, size_t len);
/* The next whole message, valid until the next call of any of these; false when there is none. */
bool grpc_frames_next(grpc_frames_t *frames, const uint8_t **message, size_t *len);
/* Bytes of whole messages not taken, prefixes included. */
size_t grpc_frames_ready(const grpc_frames_t *frames);
/* Bytes after the last whole message. */
size_t grpc_frames_left_over(const grpc_frames_t *frames);

/* The prefix of a message to be sent. */
void grpc_frame_prefix(uint8_t out[GRPC_PREFIX], uint32_t len);

#endif
