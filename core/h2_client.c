#include "core/h2_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/h2_internal.h"
#include "core/mem.h"

void h2_check(const h2_conn_t *conn)
{
    if (conn == NULL || conn->magic != H2_CONN_MAGIC)
        mem_fatal("not an HTTP/2 connection");
}

static void check_stream(const h2_stream_t *stream)
{
    if (stream == NULL || stream->magic != H2_STREAM_MAGIC || stream->ops == NULL)
        mem_fatal("not a live HTTP/2 stream");
}

/* --- the connection --- */

void h2_fail(h2_conn_t *conn, const char *reason)
{
    if (conn->state == H2_DOWN)
        return;
    conn->was_up = conn->state == H2_UP;
    conn->state = H2_DOWN;
    snprintf(conn->reason, sizeof(conn->reason), "%s", reason);
    loop_defer(conn->loop, &conn->sweep);
}

void h2_want_flush(h2_conn_t *conn)
{
    if (conn->state == H2_GREETING || conn->state == H2_UP)
        loop_defer(conn->loop, &conn->flush);
}

static void on_flush(loop_task_t *task)
{
    h2_conn_t *conn = task->data;
    h2_check(conn);
    if (conn->state == H2_GREETING || conn->state == H2_UP)
        h2_flush(conn);
}

static void free_stream(h2_stream_t *stream)
{
    stream->magic = 0;
    buffer_dispose(&stream->out);
    free(stream);
}

static void end_streams(h2_conn_t *conn)
{
    while (conn->streams != NULL) {
        h2_stream_t *stream = conn->streams;
        conn->streams = stream->next;
        if (stream->ops != NULL)
            stream->ops->on_end(stream->data, H2_LOST, 0, conn->reason);
        free_stream(stream);
    }
    conn->stream_count = 0;
}

static void close_all(h2_conn_t *conn)
{
    loop_timer_stop(&conn->timer);
    loop_task_cancel(conn->loop, &conn->flush);
    h2_socket_close(conn);
    end_streams(conn);
    h2_session_end(conn);
}

/* What callbacks inside nghttp2 came upon is told here. */
static void on_sweep(loop_task_t *task)
{
    h2_conn_t *conn = task->data;
    h2_check(conn);
    if (conn->state == H2_DOWN) {
        close_all(conn);
        conn->settings.on_down(conn->settings.data, conn->was_up, conn->reason);
        return; /* may be gone */
    }
    if (conn->state == H2_GREETING && conn->was_up) {
        conn->state = H2_UP;
        conn->idle_ms = clock_mono_ms();
        loop_timer_start(conn->loop, &conn->timer, H2_BEAT_MS);
        conn->settings.on_up(conn->settings.data);
        return;
    }
    if (conn->is_going_away && conn->stream_count == 0) {
        h2_fail(conn, "the peer closed the connection");
        return;
    }
    if (conn->is_room_changed) {
        conn->is_room_changed = false;
        conn->settings.on_room(conn->settings.data);
    }
}

h2_conn_t *h2_conn_make(loop_t *loop, const h2_conn_settings_t *settings)
{
    h2_conn_t *conn = mem_alloc(sizeof(*conn));
    conn->magic = H2_CONN_MAGIC;
    conn->loop = loop;
    conn->settings = *settings;
    conn->fd = -1;
    snprintf(conn->host, sizeof(conn->host), "%s", settings->host);
    tls_stream_ref(settings->tls);
    buffer_init(&conn->out, H2_OUT_MAX + 16 * 1024);
    loop_timer_init(&conn->timer, h2_on_timer, conn);
    loop_task_init(&conn->flush, on_flush, conn);
    loop_task_init(&conn->sweep, on_sweep, conn);
    conn->began_ms = clock_mono_ms();
    return conn;
}

h2_conn_t *h2_conn_create(loop_t *loop, const h2_conn_settings_t *settings)
{
    h2_conn_t *conn = h2_conn_make(loop, settings);
    h2_connect(conn);
    return conn;
}

void h2_conn_destroy(h2_conn_t *conn)
{
    if (conn == NULL)
        return;
    h2_check(conn);
    if (conn->is_in_session)
        mem_fatal("an HTTP/2 connection ended inside its own callback");
    if (conn->state != H2_DOWN)
        snprintf(conn->reason, sizeof(conn->reason), "the connection is given up");
    close_all(conn);
    loop_task_cancel(conn->loop, &conn->sweep);
    tls_stream_unref(conn->settings.tls);
    buffer_dispose(&conn->out);
    conn->magic = 0;
    free(conn);
}

size_t h2_conn_room(const h2_conn_t *conn)
{
    h2_check(conn);
    if (conn->state != H2_UP || conn->is_going_away)
        return 0;
    size_t most = nghttp2_session_get_remote_settings(conn->session, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
    if (most > H2_STREAMS_MAX)
        most = H2_STREAMS_MAX;
    return conn->stream_count < most ? most - conn->stream_count : 0;
}

bool h2_conn_is_closing(const h2_conn_t *conn)
{
    h2_check(conn);
    return conn->state == H2_DOWN || conn->is_going_away;
}

/* --- streams --- */

void h2_stream_write(h2_stream_t *stream, const void *bytes, size_t len)
{
    check_stream(stream);
    if (len == 0)
        return;
    if (stream->is_finished || !buffer_append(&stream->out, bytes, len))
        mem_fatal("a write to a stream that was finished");
    nghttp2_session_resume_data(stream->conn->session, stream->id);
    h2_want_flush(stream->conn);
}

void h2_stream_finish(h2_stream_t *stream)
{
    check_stream(stream);
    stream->is_finished = true;
    nghttp2_session_resume_data(stream->conn->session, stream->id);
    h2_want_flush(stream->conn);
}

size_t h2_stream_pending(const h2_stream_t *stream)
{
    return stream->out.len - stream->out_at;
}

bool h2_stream_has_sent(const h2_stream_t *stream)
{
    return stream->has_sent;
}

void h2_stream_consumed(h2_stream_t *stream, size_t len)
{
    check_stream(stream);
    if (len == 0)
        return;
    nghttp2_session_consume_stream(stream->conn->session, stream->id, len);
    h2_want_flush(stream->conn);
}

void h2_stream_reset(h2_stream_t *stream, uint32_t code)
{
    check_stream(stream);
    stream->ops = NULL;
    nghttp2_submit_rst_stream(stream->conn->session, NGHTTP2_FLAG_NONE, stream->id, code);
    h2_want_flush(stream->conn);
}
