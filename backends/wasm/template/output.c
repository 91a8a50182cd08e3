#include "backends/wasm/template/output.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backends/wasm/template/confine.h"
#include "backends/wasm/wire.h"

/* One frame under construction at a time, its header included; room behind it for the end frame, so that both leave in
 * one write. */
static uint8_t pending[WASM_FRAME_HEADER + WASM_STREAM_FRAME_MAX + WASM_FRAME_HEADER + 4];
static volatile uint32_t pending_len; /* body bytes; read by the alarm, so changed only when the bytes stand */
static uint8_t pending_type = WASM_FRAME_STDOUT;
static uint64_t flushed_ns;
static size_t sent[2];           /* bytes of each stream appended so far */
static volatile bool is_writing; /* a frame is partly out: nothing else may be sent */

uint32_t wire_get32(const uint8_t *from)
{
    return (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

void wire_put32(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; ++i)
        to[i] = (uint8_t)(value >> (8 * i));
}

/* Callers hold `is_writing` from their first byte until nothing of the frame is left to send or to forget. */
static void write_all(const uint8_t *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = write(WORKER_FD, bytes, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            _exit(WASM_STATUS_BROKEN);
        bytes += n;
        len -= (size_t)n;
    }
}

static void seal_pending(void)
{
    pending[0] = pending_type;
    wire_put32(pending + 1, pending_len);
}

void output_flush(void)
{
    if (pending_len == 0)
        return;
    is_writing = true;
    seal_pending();
    write_all(pending, WASM_FRAME_HEADER + pending_len);
    pending_len = 0;
    is_writing = false;
}

void output_tick(uint64_t now_ns)
{
    if (pending_len == 0) {
        flushed_ns = now_ns;
    } else if (now_ns - flushed_ns >= OUTPUT_AGE_NS) {
        flushed_ns = now_ns;
        output_flush();
    }
}

bool output_is_full(output_stream_t stream)
{
    return sent[stream] >= WASM_STREAM_SEND_MAX;
}

bool output_is_empty(output_stream_t stream)
{
    return sent[stream] == 0;
}

void output_append(output_stream_t stream, const void *bytes, size_t len)
{
    const uint8_t *from = bytes;
    uint8_t type = stream == OUTPUT_STDOUT ? WASM_FRAME_STDOUT : WASM_FRAME_STDERR;
    size_t room = WASM_STREAM_SEND_MAX - sent[stream];
    if (len > room)
        len = room;
    sent[stream] += len;
    while (len > 0) {
        if (pending_type != type || pending_len == WASM_STREAM_FRAME_MAX) {
            output_flush();
            pending_type = type;
        }
        size_t n = WASM_STREAM_FRAME_MAX - pending_len;
        if (n > len)
            n = len;
        memcpy(pending + WASM_FRAME_HEADER + pending_len, from, n);
        pending_len += (uint32_t)n;
        from += n;
        len -= n;
    }
}

void output_frame(uint8_t type, const void *bytes, uint32_t len)
{
    uint8_t header[WASM_FRAME_HEADER];
    output_flush();
    header[0] = type;
    wire_put32(header + 1, len);
    is_writing = true;
    write_all(header, sizeof(header));
    write_all(bytes, len);
    is_writing = false;
}

void output_end(int32_t exit_code)
{
    uint8_t *at = pending;
    is_writing = true;
    if (pending_len > 0) {
        seal_pending();
        at += WASM_FRAME_HEADER + pending_len;
    }
    at[0] = WASM_FRAME_END;
    wire_put32(at + 1, 4);
    wire_put32(at + WASM_FRAME_HEADER, (uint32_t)exit_code);
    write_all(pending, (size_t)(at - pending) + WASM_FRAME_HEADER + 4);
    _exit(0);
}

void input_read(void *to, size_t len)
{
    uint8_t *at = to;
    while (len > 0) {
        ssize_t n = read(WORKER_FD, at, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            _exit(WASM_STATUS_BROKEN);
        at += n;
        len -= (size_t)n;
    }
}

void output_on_alarm(int signal_number)
{
    (void)signal_number;
    if (is_writing)
        _exit(WASM_STATUS_DEADLINE);
    output_end(WASM_EXIT_DEADLINE);
}
