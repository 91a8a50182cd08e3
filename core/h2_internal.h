/* What the files of the HTTP/2 client share: its socket, and what is spoken over it. */
#ifndef CORE_H2_INTERNAL_H
#define CORE_H2_INTERNAL_H

#include <nghttp2/nghttp2.h>

#include "core/buffer.h"
#include "core/h2_client.h"
#include "core/resolve.h"
#include "core/tls_stream.h"
#include "core/watch.h"

enum { H2_CONN_MAGIC = 0x68326363, H2_STREAM_MAGIC = 0x68327374 };

typedef enum { H2_RESOLVING, H2_CONNECTING, H2_SECURING, H2_GREETING, H2_UP, H2_DOWN } h2_state_t;

struct h2_stream {
    unsigned magic;
    h2_conn_t *conn;
    int32_t id;
    const h2_stream_ops_t *ops; /* NULL: its owner has gone */
    void *data;
    buffer_t out;
    size_t out_at; /* bytes of `out` that were taken */
    bool is_finished, has_sent, has_fin_left;
    bool is_block_begun; /* a header of the present block was told */
    h2_stream_t *next;
};

struct h2_conn {
    unsigned magic;
    loop_t *loop;
    h2_conn_settings_t settings;
    char host[H2_HOST_MAX + 1];
    h2_state_t state;
    resolve_t *resolving;
    resolve_result_t addresses;
    size_t tried;
    uint64_t began_ms, heard_ms, pinged_ms /* 0 = no PING waits */, idle_ms;
    int fd;
    watch_t *watch;
    unsigned events;
    tls_stream_t *tls;
    nghttp2_session *session;
    buffer_t out;
    size_t out_at;
    loop_timer_t timer; /* of an attempt to connect; then the beat */
    loop_task_t flush, sweep;
    bool is_in_session; /* nghttp2 is on the stack */
    bool is_going_away, was_up, is_room_changed;
    char reason[H2_REASON_MAX];
    h2_stream_t *streams;
    size_t stream_count; /* whose owner is there or whose end is not on the wire yet */
};

/* h2_conn_create without the connecting. */
h2_conn_t *h2_conn_make(loop_t *loop, const h2_conn_settings_t *settings);
void h2_check(const h2_conn_t *conn);
/* The connection is of no use any more; told at the end of the tick. The first reason stays. */
void h2_fail(h2_conn_t *conn, const char *reason);
/* Bytes are to be written: at the end of the tick. */
void h2_want_flush(h2_conn_t *conn);

/* h2_socket.c */
void h2_connect(h2_conn_t *conn);
void h2_socket_close(h2_conn_t *conn);
void h2_on_timer(loop_timer_t *timer);
/* Writes what nghttp2 has to say, as far as the socket takes it. */
void h2_flush(h2_conn_t *conn);

/* h2_session.c */
void h2_session_begin(h2_conn_t *conn);
/* Bytes of the peer. */
void h2_session_take(h2_conn_t *conn, const uint8_t *bytes, size_t len);
/* The next bytes for the peer; 0 when there are none now. */
size_t h2_session_give(h2_conn_t *conn, const uint8_t **bytes);
void h2_session_end(h2_conn_t *conn);
void h2_session_ping(h2_conn_t *conn);
/* GOAWAY, when the connection is closed for want of use. */
void h2_session_leave(h2_conn_t *conn);

#endif
