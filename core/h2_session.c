/* What is spoken over an HTTP/2 connection: nghttp2's session and its callbacks. */
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/h2_internal.h"
#include "core/mem.h"

enum { HEADERS_MAX = 32 };

/* --- streams --- */

static h2_stream_t *stream_of(h2_conn_t *conn, int32_t id)
{
    return nghttp2_session_get_stream_user_data(conn->session, id);
}

static void unlink_stream(h2_conn_t *conn, h2_stream_t *stream)
{
    for (h2_stream_t **at = &conn->streams; *at != NULL; at = &(*at)->next) {
        if (*at == stream) {
            *at = stream->next;
            break;
        }
    }
    --conn->stream_count;
    if (conn->stream_count == 0)
        conn->idle_ms = clock_mono_ms();
    conn->is_room_changed = true;
    loop_defer(conn->loop, &conn->sweep);
}

static void tell_end(h2_stream_t *stream, h2_end_t end, uint32_t code)
{
    const h2_stream_ops_t *ops = stream->ops;
    if (ops == NULL)
        return;
    ops->on_end(stream->data, end, code, NULL);
    stream->ops = NULL;
}

static ssize_t on_body(nghttp2_session *session, int32_t id, uint8_t *out, size_t max, uint32_t *flags,
                       nghttp2_data_source *source, void *user_data)
{
    h2_stream_t *stream = source->ptr;
    size_t left = stream->out.len - stream->out_at, n = left < max ? left : max;
    (void)session;
    (void)id;
    (void)user_data;
    if (n == 0 && !stream->is_finished)
        return NGHTTP2_ERR_DEFERRED;
    if (n > 0) {
        memcpy(out, stream->out.base + stream->out_at, n);
        stream->out_at += n;
        stream->has_sent = true;
    }
    if (stream->out_at == stream->out.len) {
        buffer_dispose(&stream->out);
        stream->out_at = 0;
        if (stream->is_finished)
            *flags |= NGHTTP2_DATA_FLAG_EOF;
    }
    return (ssize_t)n;
}

h2_stream_t *h2_stream_start(h2_conn_t *conn, const h2_header_t *headers, size_t count, const h2_stream_ops_t *ops,
                             void *data)
{
    nghttp2_nv nv[HEADERS_MAX];
    if (h2_conn_room(conn) == 0 || count > HEADERS_MAX)
        mem_fatal("an HTTP/2 stream without room");
    for (size_t i = 0; i < count; ++i)
        nv[i] = (nghttp2_nv){.name = (uint8_t *)headers[i].name,
                             .value = (uint8_t *)headers[i].value,
                             .namelen = strlen(headers[i].name),
                             .valuelen = strlen(headers[i].value)};
    h2_stream_t *stream = mem_alloc(sizeof(*stream));
    stream->magic = H2_STREAM_MAGIC;
    stream->conn = conn;
    stream->ops = ops;
    stream->data = data;
    buffer_init(&stream->out, SIZE_MAX / 2);
    nghttp2_data_provider provider = {.source.ptr = stream, .read_callback = on_body};
    stream->id = nghttp2_submit_request(conn->session, NULL, nv, count, &provider, stream);
    if (stream->id < 0) /* out of stream numbers after 2^30 of them, or out of memory */
        mem_fatal("an HTTP/2 request cannot be made");
    stream->next = conn->streams;
    conn->streams = stream;
    ++conn->stream_count;
    if ((uint32_t)stream->id > INT32_MAX - 4 * H2_STREAMS_MAX)
        conn->is_going_away = true; /* its numbers are used up: others take over */
    h2_want_flush(conn);
    return stream;
}

/* --- what the peer says --- */

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    h2_stream_t *stream = stream_of(user_data, frame->hd.stream_id);
    (void)session;
    if (stream != NULL)
        stream->is_block_begun = false;
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
                     const uint8_t *value, size_t value_len, uint8_t flags, void *user_data)
{
    h2_stream_t *stream = stream_of(user_data, frame->hd.stream_id);
    (void)session;
    (void)flags;
    if (stream == NULL || stream->ops == NULL || frame->hd.type != NGHTTP2_HEADERS)
        return 0;
    stream->ops->on_header(stream->data, name, name_len, value, value_len, !stream->is_block_begun);
    stream->is_block_begun = true;
    return 0;
}

/* The connection's window is given back at once, so no stream holds up another; the stream's is its owner's. */
static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes, size_t len,
                   void *user_data)
{
    h2_stream_t *stream = stream_of(user_data, id);
    size_t taken = len;
    (void)flags;
    nghttp2_session_consume_connection(session, len);
    if (stream != NULL && stream->ops != NULL)
        taken = stream->ops->on_data(stream->data, bytes, len);
    if (taken > 0)
        nghttp2_session_consume_stream(session, id, taken);
    return 0;
}

/* All is said: what of ours was not, nobody wants. */
static void on_end_stream(h2_conn_t *conn, int32_t id)
{
    h2_stream_t *stream = stream_of(conn, id);
    if (stream == NULL)
        return;
    tell_end(stream, H2_ENDED, 0);
    if (nghttp2_session_get_stream_local_close(conn->session, id) == 0)
        nghttp2_submit_rst_stream(conn->session, NGHTTP2_FLAG_NONE, id, NGHTTP2_NO_ERROR);
}

static void on_settings(h2_conn_t *conn, const nghttp2_frame *frame)
{
    if ((frame->hd.flags & NGHTTP2_FLAG_ACK) != 0)
        return;
    if (conn->state == H2_GREETING)
        conn->was_up = true;
    conn->is_room_changed = true;
    loop_defer(conn->loop, &conn->sweep);
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    h2_conn_t *conn = user_data;
    (void)session;
    switch (frame->hd.type) {
    case NGHTTP2_SETTINGS:
        on_settings(conn, frame);
        break;
    case NGHTTP2_GOAWAY:
        conn->is_going_away = true;
        conn->is_room_changed = true;
        loop_defer(conn->loop, &conn->sweep);
        break;
    case NGHTTP2_DATA:
    case NGHTTP2_HEADERS:
        if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0)
            on_end_stream(conn, frame->hd.stream_id);
        break;
    default:
        break;
    }
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *user_data)
{
    h2_conn_t *conn = user_data;
    h2_stream_t *stream = stream_of(conn, id);
    (void)session;
    if (stream == NULL)
        return 0;
    tell_end(stream, code == NGHTTP2_REFUSED_STREAM ? H2_REFUSED : H2_RESET, code);
    unlink_stream(conn, stream);
    nghttp2_session_set_stream_user_data(conn->session, id, NULL);
    stream->magic = 0;
    buffer_dispose(&stream->out);
    free(stream);
    return 0;
}

/* --- the session --- */

void h2_session_begin(h2_conn_t *conn)
{
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    const nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
                                               {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, H2_STREAM_WINDOW},
                                               {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, H2_HEADER_LIST_MAX}};

    if (nghttp2_session_callbacks_new(&callbacks) != 0 || nghttp2_option_new(&option) != 0)
        mem_fatal("out of memory");
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_option_set_no_auto_window_update(option, 1);
    if (nghttp2_session_client_new2(&conn->session, callbacks, conn, option) != 0)
        mem_fatal("out of memory");
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    if (nghttp2_submit_settings(conn->session, NGHTTP2_FLAG_NONE, settings, sizeof(settings) / sizeof(settings[0])) !=
            0 ||
        nghttp2_session_set_local_window_size(conn->session, NGHTTP2_FLAG_NONE, 0, H2_CONNECTION_WINDOW) != 0)
        mem_fatal("out of memory");
}

static bool is_over(const h2_conn_t *conn)
{
    return nghttp2_session_want_read(conn->session) == 0 && nghttp2_session_want_write(conn->session) == 0;
}

void h2_session_take(h2_conn_t *conn, const uint8_t *bytes, size_t len)
{
    conn->heard_ms = clock_mono_ms();
    conn->pinged_ms = 0;
    conn->is_in_session = true;
    ssize_t n = nghttp2_session_mem_recv(conn->session, bytes, len);
    conn->is_in_session = false;
    if (n < 0)
        h2_fail(conn, nghttp2_strerror((int)n));
    else if (is_over(conn))
        h2_fail(conn, "the connection ended");
    else
        h2_want_flush(conn);
}

size_t h2_session_give(h2_conn_t *conn, const uint8_t **bytes)
{
    conn->is_in_session = true;
    ssize_t n = nghttp2_session_mem_send(conn->session, bytes);
    conn->is_in_session = false;
    if (n < 0)
        h2_fail(conn, nghttp2_strerror((int)n));
    else if (n == 0 && is_over(conn))
        h2_fail(conn, "the connection ended");
    return n > 0 ? (size_t)n : 0;
}

void h2_session_ping(h2_conn_t *conn)
{
    nghttp2_submit_ping(conn->session, NGHTTP2_FLAG_NONE, NULL);
    h2_want_flush(conn);
}

void h2_session_leave(h2_conn_t *conn)
{
    nghttp2_session_terminate_session(conn->session, NGHTTP2_NO_ERROR);
}

void h2_session_end(h2_conn_t *conn)
{
    nghttp2_session_del(conn->session);
    conn->session = NULL;
}
