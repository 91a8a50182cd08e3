#include "backends/wasm/stream.h"

#include <string.h>

static uint32_t get32(const uint8_t *from)
{
    return (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

static void put32(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; ++i)
        to[i] = (uint8_t)(value >> (8 * i));
}

void wasm_stream_init(wasm_stream_t *stream, bool is_probe)
{
    memset(stream, 0, sizeof(*stream));
    stream->is_probe = is_probe;
    buffer_init(&stream->out.bytes, WASM_STREAM_KEEP);
    buffer_init(&stream->err.bytes, WASM_STREAM_KEEP);
    buffer_init(&stream->call, WASM_CALL_MAX);
}

void wasm_stream_dispose(wasm_stream_t *stream)
{
    buffer_dispose(&stream->out.bytes);
    buffer_dispose(&stream->err.bytes);
    buffer_dispose(&stream->call);
}

static wasm_stream_state_t bad(wasm_stream_t *stream, const char *reason)
{
    stream->reason = reason;
    return stream->state = WASM_STREAM_BAD;
}

static bool is_own_exit_code(int32_t code)
{
    return code == WASM_EXIT_OK || code == WASM_EXIT_EXCEPTION || code == WASM_EXIT_DEADLINE || code == WASM_EXIT_TRAP;
}

static wasm_output_t *output_of(wasm_stream_t *stream)
{
    return stream->_head[0] == WASM_FRAME_STDOUT ? &stream->out : &stream->err;
}

/* Bounds of the frame that begins, by its type alone. */
static wasm_stream_state_t frame_begin(wasm_stream_t *stream)
{
    uint32_t len = get32(stream->_head + 1);
    stream->_body_len = 0;
    switch (stream->_head[0]) {
    case WASM_FRAME_STDOUT:
    case WASM_FRAME_STDERR:
        if (len == 0 || len > WASM_STREAM_FRAME_MAX)
            return bad(stream, "output frame out of bounds");
        if (len > WASM_STREAM_SEND_MAX - output_of(stream)->received)
            return bad(stream, "more output than a worker sends");
        break;
    case WASM_FRAME_CALL:
        if (len == 0 || len > WASM_CALL_MAX)
            return bad(stream, "host call out of bounds");
        buffer_clear(&stream->call);
        break;
    case WASM_FRAME_END:
        if (len != 4)
            return bad(stream, "end frame out of bounds");
        break;
    case WASM_FRAME_SURVIVED:
        if (!stream->is_probe || len != 1)
            return bad(stream, "frame of an unknown type");
        break;
    default:
        return bad(stream, "frame of an unknown type");
    }
    stream->_left = len;
    return WASM_STREAM_MORE;
}

static void output_append(wasm_output_t *output, const uint8_t *bytes, size_t len)
{
    size_t room = WASM_STREAM_KEEP - output->bytes.len;
    output->received += len;
    if (len > room) {
        output->is_truncated = true;
        len = room;
    }
    buffer_append(&output->bytes, bytes, len);
}

static wasm_stream_state_t frame_end(wasm_stream_t *stream)
{
    stream->_head_len = 0;
    switch (stream->_head[0]) {
    case WASM_FRAME_CALL:
        return stream->state = WASM_STREAM_CALL;
    case WASM_FRAME_SURVIVED:
        return stream->state = WASM_STREAM_SURVIVED;
    case WASM_FRAME_END:
        stream->exit_code = (int32_t)get32(stream->_body);
        if (!is_own_exit_code(stream->exit_code))
            return bad(stream, "exit code no worker has");
        return stream->state = WASM_STREAM_END;
    default:
        return WASM_STREAM_MORE;
    }
}

static void body_append(wasm_stream_t *stream, const uint8_t *bytes, size_t len)
{
    switch (stream->_head[0]) {
    case WASM_FRAME_STDOUT:
    case WASM_FRAME_STDERR:
        output_append(output_of(stream), bytes, len);
        break;
    case WASM_FRAME_CALL:
        buffer_append(&stream->call, bytes, len);
        break;
    default: /* at most four bytes, by frame_begin */
        memcpy(stream->_body + stream->_body_len, bytes, len);
        stream->_body_len += len;
        break;
    }
}

wasm_stream_state_t wasm_stream_feed(wasm_stream_t *stream, const uint8_t *bytes, size_t len)
{
    if (stream->state == WASM_STREAM_CALL && len > 0)
        return bad(stream, "bytes while a host call waits"); /* the worker stands still until it is answered */
    while (len > 0 && stream->state == WASM_STREAM_MORE) {
        size_t n;
        if (stream->_head_len < WASM_FRAME_HEADER) {
            n = WASM_FRAME_HEADER - stream->_head_len;
            if (n > len)
                n = len;
            memcpy(stream->_head + stream->_head_len, bytes, n);
            stream->_head_len += n;
            if (stream->_head_len == WASM_FRAME_HEADER)
                frame_begin(stream);
        } else {
            n = stream->_left < len ? stream->_left : len;
            body_append(stream, bytes, n);
            stream->_left -= (uint32_t)n;
            if (stream->_left == 0)
                frame_end(stream);
        }
        bytes += n;
        len -= n;
    }
    if (stream->state == WASM_STREAM_CALL && len > 0)
        return bad(stream, "bytes while a host call waits");
    return stream->state;
}

void wasm_stream_replied(wasm_stream_t *stream)
{
    if (stream->state == WASM_STREAM_CALL)
        stream->state = WASM_STREAM_MORE;
}

void wasm_start_head(uint8_t out[WASM_START_HEAD], uint32_t timeout_ms, uint32_t code_len)
{
    out[0] = WASM_FRAME_START;
    put32(out + 1, 8 + code_len);
    put32(out + 5, timeout_ms);
    put32(out + 9, code_len);
}

void wasm_reply_head(uint8_t out[WASM_REPLY_HEAD], uint32_t status, uint32_t body_len)
{
    out[0] = WASM_FRAME_REPLY;
    put32(out + 1, 8 + body_len);
    put32(out + 5, status);
    put32(out + 9, body_len);
}
