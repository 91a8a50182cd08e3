/*
 * The role's end of a worker's stream (spec wasm section 6.6): what it may send, checked byte by byte. A worker may be
 * in the hands of its guest, so no length is believed before its bound is checked, nothing is allocated that the run's
 * own limits do not allow, and whatever a worker of ours would never send ends the stream as bad. Pure: no descriptor,
 * no clock.
 */
#ifndef BACKENDS_WASM_STREAM_H
#define BACKENDS_WASM_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/wasm/wire.h"
#include "core/buffer.h"

typedef enum {
    WASM_STREAM_MORE,     /* wants bytes */
    WASM_STREAM_CALL,     /* `call` holds an envelope; take it and go on with wasm_stream_replied */
    WASM_STREAM_END,      /* exit_code is set; later bytes mean nothing */
    WASM_STREAM_SURVIVED, /* a probe came back */
    WASM_STREAM_BAD,      /* reason is set */
} wasm_stream_state_t;

typedef struct {
    buffer_t bytes;    /* at most WASM_STREAM_KEEP */
    size_t received;   /* all that came, at most WASM_STREAM_SEND_MAX */
    bool is_truncated; /* there was more than is kept */
} wasm_output_t;

typedef struct {
    wasm_stream_state_t state;
    bool is_probe;
    wasm_output_t out, err;
    buffer_t call;
    int32_t exit_code;
    const char *reason; /* literal */
    uint8_t _head[WASM_FRAME_HEADER], _body[4];
    size_t _head_len, _body_len;
    uint32_t _left; /* of the frame's body */
} wasm_stream_t;

void wasm_stream_init(wasm_stream_t *stream, bool is_probe);
void wasm_stream_dispose(wasm_stream_t *stream);
/* Takes bytes as they come, frames cut anywhere. Bytes of an output frame count as soon as they are here: what a worker
 * sent before it was killed is kept. */
wasm_stream_state_t wasm_stream_feed(wasm_stream_t *stream, const uint8_t *bytes, size_t len);
/* After WASM_STREAM_CALL. */
void wasm_stream_replied(wasm_stream_t *stream);

/* The frames that go the other way. */
enum { WASM_START_HEAD = WASM_FRAME_HEADER + 8, WASM_REPLY_HEAD = WASM_FRAME_HEADER + 8 };
void wasm_start_head(uint8_t out[WASM_START_HEAD], uint32_t timeout_ms, uint32_t code_len);
void wasm_reply_head(uint8_t out[WASM_REPLY_HEAD], uint32_t status, uint32_t body_len);

#endif
