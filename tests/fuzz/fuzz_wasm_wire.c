/*
 * A worker's stream of arbitrary bytes into the role's parser: the first byte says how it is cut and whether it is a
 * probe's. Whatever comes, the limits hold; and how it was cut changes nothing.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backends/wasm/stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const wasm_stream_t *s)
{
    const wasm_output_t *outputs[] = {&s->out, &s->err};
    for (size_t i = 0; i < 2; i++) {
        const wasm_output_t *o = outputs[i];
        if (o->bytes.len > WASM_STREAM_KEEP || o->received > WASM_STREAM_SEND_MAX || o->bytes.len > o->received)
            abort();
        if (o->is_truncated != (o->received > o->bytes.len))
            abort();
    }
    if (s->call.len > WASM_CALL_MAX || (s->state == WASM_STREAM_CALL && s->call.len == 0))
        abort();
    if ((s->state == WASM_STREAM_BAD) != (s->reason != NULL))
        abort();
    if (s->state == WASM_STREAM_SURVIVED && !s->is_probe)
        abort();
}

/* The end's exit codes are the four a worker has. */
static void check_end(const wasm_stream_t *s)
{
    if (s->state == WASM_STREAM_END && s->exit_code != 0 && s->exit_code != 1 && s->exit_code != 124 &&
        s->exit_code != 134)
        abort();
}

static uint64_t run(const uint8_t *data, size_t size, size_t piece, bool is_probe)
{
    wasm_stream_t s;
    wasm_stream_init(&s, is_probe);
    while (size > 0) {
        size_t n = piece < size ? piece : size;
        /* An exact copy, so that a read past the piece is seen. */
        uint8_t *copy = malloc(n);
        memcpy(copy, data, n);
        wasm_stream_state_t state = wasm_stream_feed(&s, copy, n);
        free(copy);
        if (state != s.state)
            abort();
        check(&s);
        check_end(&s);
        data += n;
        size -= n;
        /* Bytes after a call are bad or not by how they were cut: run_on goes there. */
        if (state == WASM_STREAM_CALL)
            break;
    }
    uint64_t sum = (uint64_t)s.out.received * 31 + s.err.received * 17 + (uint64_t)s.out.bytes.len;
    for (size_t i = 0; i < s.out.bytes.len; i++)
        sum = sum * 131 + s.out.bytes.base[i];
    if (s.state == WASM_STREAM_END)
        sum ^= (uint64_t)(uint32_t)s.exit_code << 32;
    wasm_stream_dispose(&s);
    return sum;
}

/* Goes on after calls, as a run does. */
static void run_on(const uint8_t *data, size_t size, size_t piece)
{
    wasm_stream_t s;
    wasm_stream_init(&s, false);
    while (size > 0) {
        size_t n = piece < size ? piece : size;
        if (wasm_stream_feed(&s, data, n) == WASM_STREAM_CALL)
            wasm_stream_replied(&s);
        check(&s);
        check_end(&s);
        data += n;
        size -= n;
    }
    wasm_stream_dispose(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    size_t piece = (data[0] & 0x7f) + 1u;
    bool is_probe = (data[0] & 0x80) != 0;
    data++;
    size--;
    uint64_t in_pieces = run(data, size, piece, is_probe), at_once = run(data, size, SIZE_MAX, is_probe);
    if (in_pieces != at_once)
        abort();
    run_on(data, size, piece);
    run_on(data, size, 1);
    return 0;
}
