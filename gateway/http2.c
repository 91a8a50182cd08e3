#include "gateway/http2.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "gateway/http2_stream.h"
#include "gateway/limits.h"

enum { HTTP2_MAGIC = 0x68327368 };

static void http2_check(const http2_t *h)
{
    if (h == NULL || h->magic != HTTP2_MAGIC)
        mem_fatal("not an HTTP/2 connection");
}

preface_t http2_look(const char *bytes, size_t len)
{
    const size_t whole = sizeof(NGHTTP2_CLIENT_MAGIC) - 1;
    if (memcmp(bytes, NGHTTP2_CLIENT_MAGIC, len < whole ? len : whole) != 0)
        return PREFACE_NONE;
    return len < whole ? PREFACE_PART : PREFACE_WHOLE;
}

/* --- the end --- */

/* Nobody will take the answers that are still to be made. What is being answered goes on until the connection closes:
 * nghttp2 has its bytes. */
static void abandon(http2_t *h)
{
    for (http2_stream_t *s = h->streams; s != NULL; s = s->next) {
        if (s->gone || s->gate.state != GATE_HANDLING)
            continue;
        nghttp2_session_set_stream_user_data(h->session, s->id, NULL);
        http2_stream_gone(s);
    }
}

/* Frees `h`, now or (TLS) when the last record is out. */
static void close_now(http2_t *h, bool told)
{
    gate_t *gate = h->gate;
    h->closed = true;
    abandon(h);
    loop_task_cancel(gate->lane->loop, &h->turn);
    loop_timer_stop(&h->write_timer);
    if (told)
        /* what the peer still sends must not cost it what we said last */
        gate->linger_fd = fcntl(h2o_socket_get_fd(gate->sock), F_DUPFD_CLOEXEC, 0);
    loop_timer_start(gate->lane->loop, &gate->timer, HTTP2_LAST_WORD_MS);
    h2o_socket_read_stop(gate->sock);
    h2o_socket_close(gate->sock);
}

void http2_end(http2_t *h, metric_t reason, uint32_t code)
{
    if (h->ending || h->closed)
        return;
    h->ending = true;
    if (h->gate->close_reason == METRIC_CLOSE_PEER)
        h->gate->close_reason = reason;
    if (nghttp2_session_terminate_session(h->session, code) != 0)
        mem_fatal("no GOAWAY");
    abandon(h);
    loop_timer_start(h->gate->lane->loop, &h->gate->timer, HTTP2_LAST_WORD_MS);
    http2_turn(h);
}

void http2_on_timer(http2_t *h)
{
    http2_check(h);
    if (h->closed)
        shutdown(h2o_socket_get_fd(h->gate->sock), SHUT_RDWR); /* TLS' own last record does not get out */
    else if (h->ending)
        close_now(h, false);
    else
        http2_end(h, h->served ? METRIC_CLOSE_IDLE_TIMEOUT : METRIC_CLOSE_HEADER_TIMEOUT, NGHTTP2_NO_ERROR);
}

static void on_write_timer(loop_timer_t *timer)
{
    http2_t *h = timer->data;
    http2_check(h);
    if (h->gate->close_reason == METRIC_CLOSE_PEER)
        h->gate->close_reason = METRIC_CLOSE_WRITE_TIMEOUT;
    close_now(h, false);
}

void http2_drain(http2_t *h)
{
    http2_check(h);
    if (h->ending || h->closed)
        return;
    if (!h->noticed) {
        h->noticed = true;
        h->noticed_ms = clock_mono_ms();
        nghttp2_submit_shutdown_notice(h->session);
        http2_turn(h);
        return;
    }
    if (clock_mono_ms() - h->noticed_ms < HTTP2_NOTICE_MS)
        return;
    if (h->open == 0) {
        http2_end(h, METRIC_CLOSE_DRAIN, NGHTTP2_NO_ERROR);
    } else if (!h->draining) {
        h->draining = true;
        nghttp2_submit_goaway(h->session, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(h->session),
                              NGHTTP2_NO_ERROR, NULL, 0);
        http2_turn(h);
    }
}

/* --- resets --- */

/* A finished request makes up for one reset, so a peer that gives up now and then is never over the limit, and one that
 * does nothing else soon is. */
static void count_reset(http2_t *h, metric_t metric)
{
    char address[PROXY_ADDRESS_MAX];
    struct sockaddr_storage peer;
    metric_inc(metric);
    if (h->ending)
        return;
    if (h->resets_left != 0) {
        h->resets_left--;
        return;
    }
    gate_peer(h->gate, &peer);
    proxies_client(h->gate->lane->front->proxies, (void *)&peer, NULL, 0, address);
    log_event(LOG_WARN, "connection closed for its resets", log_str("client", address));
    http2_end(h, METRIC_CLOSE_HTTP2_RESETS, NGHTTP2_ENHANCE_YOUR_CALM);
}

/* Clients open as many streams as they like until they have read our SETTINGS, some a few more behind the
 * acknowledgement. Refusing those, unread, costs little, and they ask again: what a client may assume is not counted.
 */
static void count_refused(http2_t *h)
{
    metric_inc(METRIC_HTTP2_REFUSED);
    if (h->refused < HTTP2_EARLY_MAX)
        h->refused++;
    else
        count_reset(h, METRIC_HTTP2_RESET_GATEWAY);
}

static void count_finished(http2_t *h)
{
    if (h->resets_left < HTTP2_RESETS_MAX)
        h->resets_left++;
}

/* --- what nghttp2 tells --- */

static http2_stream_t *stream_of(nghttp2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session, id);
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    http2_t *h = user_data;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    if (h->ending)
        return 0;
    if (h->open >= HTTP2_STREAMS_MAX || h->winding >= HTTP2_WINDING_MAX) {
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_REFUSED_STREAM);
        return 0;
    }
    h->served = true;
    loop_timer_stop(&h->gate->timer);
    nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, http2_stream_create(h, frame->hd.stream_id));
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
                     const uint8_t *value, size_t value_len, uint8_t flags, void *user_data)
{
    http2_stream_t *s = stream_of(session, frame->hd.stream_id);
    (void)flags;
    (void)user_data;
    /* trailers are nobody's header fields */
    if (s != NULL && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        http2_stream_field(s, name, name_len, value, value_len);
    return 0;
}

/* Without this, nghttp2 leaves a malformed field out and goes on. */
static int on_invalid_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
                             const uint8_t *value, size_t value_len, uint8_t flags, void *user_data)
{
    (void)session;
    (void)frame;
    (void)name;
    (void)name_len;
    (void)value;
    (void)value_len;
    (void)flags;
    (void)user_data;
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    http2_t *h = user_data;
    http2_stream_t *s = stream_of(session, frame->hd.stream_id);
    bool ended = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (frame->hd.type == NGHTTP2_RST_STREAM) {
        count_reset(h, METRIC_HTTP2_RESET_PEER);
        return 0;
    }
    if (s == NULL)
        return 0;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        http2_stream_head_done(s, ended);
    else if ((frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS) && ended)
        http2_stream_body_done(s);
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data, size_t len,
                   void *user_data)
{
    http2_stream_t *s = stream_of(session, id);
    (void)flags;
    (void)user_data;
    if (s != NULL)
        http2_stream_data(s, data, len);
    return 0;
}

static int on_frame_out(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    http2_t *h = user_data;
    http2_stream_t *s;
    if (frame->hd.type == NGHTTP2_RST_STREAM) {
        if (frame->rst_stream.error_code == NGHTTP2_REFUSED_STREAM)
            count_refused(h);
        else if (frame->rst_stream.error_code != NGHTTP2_NO_ERROR)
            count_reset(h, METRIC_HTTP2_RESET_GATEWAY);
    } else if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR) {
        if (h->gate->close_reason == METRIC_CLOSE_PEER)
            h->gate->close_reason = METRIC_CLOSE_HTTP2_ERROR;
    } else if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
               (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0 &&
               (s = stream_of(session, frame->hd.stream_id)) != NULL) {
        http2_stream_out(s, nghttp2_session_get_stream_remote_close(session, s->id) != 0);
    }
    return 0;
}

static int on_stream_closed(nghttp2_session *session, int32_t id, uint32_t code, void *user_data)
{
    http2_t *h = user_data;
    http2_stream_t *s = stream_of(session, id);
    (void)code;
    if (s == NULL)
        return 0;
    if (s->is_out)
        count_finished(h);
    http2_stream_gone(s);
    if (h->open == 0 && !h->ending)
        loop_timer_start(h->gate->lane->loop, &h->gate->timer, h->gate->lane->front->idle_ms);
    return 0;
}

/* --- reading and writing --- */

static void on_read(h2o_socket_t *sock, const char *err);
static void on_written(h2o_socket_t *sock, const char *err);

/* nghttp2 ends the connection of a peer that opens more streams than its SETTINGS allow. Clients do: before they have
 * read them, and some right behind the acknowledgement. So nghttp2 is told the number nobody may pass, and the wire the
 * one that is kept to; what is between the two, on_begin_headers refuses stream by stream. */
static void announce_limit(uint8_t *frame, size_t len)
{
    enum { FRAME_HEAD = 9, ENTRY = 6 };
    if (len < FRAME_HEAD || frame[3] != NGHTTP2_SETTINGS || (frame[4] & NGHTTP2_FLAG_ACK) != 0)
        return;
    for (uint8_t *entry = frame + FRAME_HEAD; entry + ENTRY <= frame + len; entry += ENTRY)
        if (entry[0] == 0 && entry[1] == NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS)
            memcpy(entry + 2, (const uint8_t[]){0, 0, 0, HTTP2_STREAMS_MAX}, 4);
}

/* May close the connection. */
static void pump(http2_t *h)
{
    const uint8_t *frames;
    ssize_t len = 0;
    if (h->writing)
        return;
    buffer_clear(&h->out);
    while (h->out.len < HTTP2_WRITE_STEP && (len = nghttp2_session_mem_send(h->session, &frames)) > 0) {
        if (!buffer_append(&h->out, frames, (size_t)len))
            mem_fatal("a frame is larger than the buffer for it");
        announce_limit(h->out.base + h->out.len - len, (size_t)len);
    }
    if (len < 0)
        mem_fatal("nghttp2 could not write");
    if (h->out.len != 0) {
        h2o_iovec_t out = h2o_iovec_init((char *)h->out.base, h->out.len);
        h->writing = true;
        loop_timer_start(h->gate->lane->loop, &h->write_timer, h->gate->lane->front->write_ms);
        h2o_socket_write(h->gate->sock, &out, 1, on_written);
    } else if (!nghttp2_session_want_read(h->session) && !nghttp2_session_want_write(h->session)) {
        close_now(h, true);
    } else {
        buffer_dispose(&h->out); /* nothing to say: a quiet connection holds no room for it */
    }
}

static void on_written(h2o_socket_t *sock, const char *err)
{
    gate_t *gate = sock->on_close.data;
    gate_check(gate);
    http2_t *h = gate->http2;
    http2_check(h);
    h->writing = false;
    loop_timer_stop(&h->write_timer);
    if (err != NULL)
        close_now(h, false);
    else if (h->clogged)
        http2_turn(h);
    else
        pump(h);
}

/* Takes what was read, as long as the frames to be sent for it do not pile up: a peer that asks and does not read the
 * answers is not read any more. */
static void take_input(http2_t *h)
{
    h2o_socket_t *sock = h->gate->sock;
    size_t at = 0, size = sock->input->size;
    while (at < size && nghttp2_session_get_outbound_queue_size(h->session) <= HTTP2_QUEUE_MAX) {
        size_t step = size - at < HTTP2_READ_STEP ? size - at : HTTP2_READ_STEP;
        ssize_t taken = nghttp2_session_mem_recv(h->session, (const uint8_t *)sock->input->bytes + at, step);
        at += step;
        if (taken < 0) {
            http2_end(h, METRIC_CLOSE_HTTP2_ERROR,
                      taken == NGHTTP2_ERR_FLOODED ? NGHTTP2_ENHANCE_YOUR_CALM : NGHTTP2_PROTOCOL_ERROR);
            at = size;
        }
    }
    if (at != 0) {
        h2o_buffer_consume(&sock->input, at);
        http2_turn(h);
    }
    if (h->clogged != (at < size)) {
        h->clogged = at < size;
        if (h->clogged)
            h2o_socket_read_stop(sock);
        else
            h2o_socket_read_start(sock, on_read);
    }
}

static void on_turn(loop_task_t *task)
{
    http2_t *h = task->data;
    http2_check(h);
    if (h->clogged)
        take_input(h);
    for (http2_stream_t *s = h->streams; s != NULL && !h->ending; s = s->next)
        if (s->ready)
            http2_stream_dispatch(s);
    pump(h);
}

void http2_turn(http2_t *h)
{
    if (!h->closed)
        loop_defer(h->gate->lane->loop, &h->turn);
}

static void on_read(h2o_socket_t *sock, const char *err)
{
    gate_t *gate = sock->on_close.data;
    gate_check(gate);
    http2_t *h = gate->http2;
    http2_check(h);
    if (err != NULL)
        close_now(h, false); /* closed or half-closed: nobody who half-closes is waited for */
    else
        take_input(h);
}

/* --- answers --- */

void http2_reset(http2_t *h, const http2_stream_t *s, uint32_t code)
{
    nghttp2_submit_rst_stream(h->session, NGHTTP2_FLAG_NONE, s->id, code);
    http2_turn(h);
}

static nghttp2_nv field(const char *name, size_t name_len, const char *value, size_t value_len)
{
    /* copied, and the name made lower case, by nghttp2 */
    return (nghttp2_nv){(uint8_t *)name, (uint8_t *)value, name_len, value_len, NGHTTP2_NV_FLAG_NONE};
}

void http2_continue(http2_t *h, const http2_stream_t *s)
{
    const nghttp2_nv status = field(H2O_STRLIT(":status"), H2O_STRLIT("100"));
    nghttp2_submit_headers(h->session, NGHTTP2_FLAG_NONE, s->id, NULL, &status, 1, NULL);
    http2_turn(h);
}

static ssize_t on_answer_bytes(nghttp2_session *session, int32_t id, uint8_t *buf, size_t len, uint32_t *flags,
                               nghttp2_data_source *source, void *user_data)
{
    http2_stream_t *s = source->ptr;
    (void)session;
    (void)id;
    (void)user_data;
    size_t n = s->answer.len < len ? s->answer.len : len;
    memcpy(buf, s->answer.base, n);
    s->answer.base += n;
    s->answer.len -= n;
    if (s->answer.len == 0)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

void http2_answer(http2_t *h, http2_stream_t *s)
{
    enum { OURS = 3 }; /* :status, date, content-length */
    const h2o_res_t *res = &s->req.res;
    const nghttp2_data_provider bytes = {.source.ptr = s, .read_callback = on_answer_bytes};
    h2o_timestamp_t now;
    char status[4], length[24];
    size_t count = OURS;
    nghttp2_nv *fields = mem_alloc_array(OURS + res->headers.size, sizeof(*fields));
    h2o_get_timestamp(s->peer.ctx, &s->req.pool, &now);
    int status_len = snprintf(status, sizeof(status), "%d", res->status);
    int length_len = snprintf(length, sizeof(length), "%zu", res->content_length);
    fields[0] = field(H2O_STRLIT(":status"), status, (size_t)status_len);
    fields[1] = field(H2O_STRLIT("date"), now.str->rfc1123, strlen(now.str->rfc1123));
    fields[2] = field(H2O_STRLIT("content-length"), length, (size_t)length_len);
    for (size_t i = 0; i < res->headers.size; i++) {
        const h2o_header_t *f = &res->headers.entries[i];
        fields[count++] = field(f->name->base, f->name->len, f->value.base, f->value.len);
    }
    if (nghttp2_submit_response(h->session, s->id, fields, count, s->answer.len != 0 ? &bytes : NULL) != 0)
        mem_fatal("nghttp2 did not take an answer");
    free(fields);
    http2_turn(h);
}

/* --- the beginning --- */

static nghttp2_session *new_session(http2_t *h)
{
    static const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, HTTP2_STREAMS_CUT}, /* see announce_limit */
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, HTTP2_STREAM_WINDOW},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HEAD_MAX},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    nghttp2_session *session;
    if (nghttp2_session_callbacks_new(&callbacks) != 0 || nghttp2_option_new(&option) != 0)
        mem_fatal("out of memory");
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback(callbacks, on_invalid_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_out);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_closed);
    nghttp2_option_set_no_closed_streams(option, 1); /* no memory of streams that are over */
    if (nghttp2_session_server_new2(&session, callbacks, h, option) != 0 ||
        nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings, sizeof(settings) / sizeof(settings[0])) != 0 ||
        nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0, HTTP2_WINDOW) != 0)
        mem_fatal("no HTTP/2 session");
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    return session;
}

http2_t *http2_create(gate_t *gate)
{
    enum { FRAME_MAX = 16 * 1024 + 9, OUT_MAX = HTTP2_WRITE_STEP + 4 * FRAME_MAX }; /* a head may take a few frames */
    http2_t *h = mem_alloc(sizeof(*h));
    h->magic = HTTP2_MAGIC;
    h->gate = gate;
    gate->http2 = h;
    h->resets_left = HTTP2_RESETS_MAX;
    buffer_init(&h->out, OUT_MAX);
    loop_task_init(&h->turn, on_turn, h);
    loop_timer_init(&h->write_timer, on_write_timer, h);
    h->session = new_session(h);
    metric_inc(METRIC_HTTP2_CONNECTIONS);
    h2o_socket_read_start(gate->sock, on_read);
    http2_turn(h);
    take_input(h);
    return h;
}

void http2_destroy(http2_t *h)
{
    http2_check(h);
    loop_task_cancel(h->gate->lane->loop, &h->turn);
    loop_timer_stop(&h->write_timer);
    nghttp2_session_del(h->session);
    for (http2_stream_t *s = h->streams, *next; s != NULL; s = next) {
        next = s->next;
        if (!s->gone)
            http2_stream_gone(s);
    }
    /* what is left winds up by itself */
    for (http2_stream_t *s = h->streams; s != NULL; s = s->next)
        s->conn = NULL;
    buffer_dispose(&h->out);
    h->magic = 0;
    free(h);
}
