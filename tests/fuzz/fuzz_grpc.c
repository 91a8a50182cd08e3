/*
 * What a gRPC server may send: any bytes into a connection with calls on it, in pieces of any size. Checks that every
 * stream ends once, that messages never pass their bounds, and that no end without a right grpc-status is OK.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/grpc_end.h"
#include "core/h2_internal.h"
#include "core/loop.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CALLS = 3, MESSAGE_MAX = 4096, HELD_MAX = 64 * 1024 };

typedef struct {
    grpc_head_t head;
    grpc_frames_t frames;
    size_t taken;
    int ends;
} fuzz_call_t;

static void on_header(void *data, const uint8_t *name, size_t name_len, const uint8_t *value, size_t value_len,
                      bool is_first)
{
    grpc_head_add(&((fuzz_call_t *)data)->head, name, name_len, value, value_len, is_first);
}

static size_t on_data(void *data, const uint8_t *bytes, size_t len)
{
    fuzz_call_t *call = data;
    const uint8_t *message;
    size_t message_len;
    grpc_head_body(&call->head);
    grpc_frames_add(&call->frames, bytes, len);
    while (grpc_frames_next(&call->frames, &message, &message_len)) {
        if (message_len > MESSAGE_MAX)
            abort();
        for (size_t i = 0; i < message_len; ++i)
            call->taken += message[i];
    }
    if (grpc_frames_ready(&call->frames) != 0 || grpc_frames_left_over(&call->frames) > HELD_MAX)
        abort();
    return len;
}

static void on_end(void *data, h2_end_t end, uint32_t code, const char *reason)
{
    fuzz_call_t *call = data;
    grpc_end_t verdict = {0};
    grpc_seen_t seen = {.head = &call->head,
                        .end = end,
                        .reset_code = code,
                        .reason = reason,
                        .is_unary = true,
                        .messages = call->frames.count,
                        .left_over = grpc_frames_left_over(&call->frames),
                        .problem = call->frames.problem,
                        .has_sent = true};
    if (++call->ends != 1)
        abort();
    grpc_judge(&seen, &verdict);
    if (verdict.code == GRPC_OK && (end != H2_ENDED || call->head.status != GRPC_OK || call->frames.count != 1))
        abort();
    if (strlen(verdict.message) >= GRPC_TEXT_MAX)
        abort();
}

static const h2_stream_ops_t OPS = {.on_header = on_header, .on_data = on_data, .on_end = on_end};

static void ignore(void *data)
{
    (void)data;
}

static void ignore_down(void *data, bool was_up, const char *reason)
{
    (void)data;
    (void)was_up;
    (void)reason;
}

static void drain(h2_conn_t *conn)
{
    const uint8_t *bytes;
    while (conn->state != H2_DOWN && h2_session_give(conn, &bytes) > 0)
        ;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static loop_t *loop;
    static const uint8_t settings[] = {0, 0, 0, 4, 0, 0, 0, 0, 0};
    static const h2_header_t headers[] = {
        {":method", "POST"}, {":scheme", "http"}, {":path", "/a.B/C"}, {":authority", "a"}, {"te", "trailers"}};
    h2_conn_settings_t to = {.host = "127.0.0.1", .on_up = ignore, .on_down = ignore_down, .on_room = ignore};
    fuzz_call_t calls[CALLS];
    if (size < 1)
        return 0;
    if (loop == NULL)
        loop = loop_create();
    /* no socket: what would come from it is given, what would go to it is dropped */
    h2_conn_t *conn = h2_conn_make(loop, &to);
    conn->state = H2_GREETING;
    h2_session_begin(conn);
    h2_session_take(conn, settings, sizeof(settings));
    conn->state = H2_UP;
    drain(conn);
    memset(calls, 0, sizeof(calls));
    for (int i = 0; i < CALLS; ++i) {
        grpc_frames_init(&calls[i].frames, MESSAGE_MAX, HELD_MAX);
        h2_stream_t *stream = h2_stream_start(conn, headers, sizeof(headers) / sizeof(headers[0]), &OPS, &calls[i]);
        h2_stream_write(stream, "\0\0\0\0\0", 5);
        if (i > 0)
            h2_stream_finish(stream);
    }
    drain(conn);
    size_t step = (size_t)data[0] + 1;
    for (size_t at = 1; at < size && conn->state != H2_DOWN; at += step) {
        h2_session_take(conn, data + at, size - at < step ? size - at : step);
        drain(conn);
    }
    loop_task_cancel(loop, &conn->flush);
    h2_conn_destroy(conn);
    for (int i = 0; i < CALLS; ++i) {
        if (calls[i].ends != 1)
            abort();
        grpc_frames_dispose(&calls[i].frames);
    }
    return 0;
}
