/*
 * One request that came as an HTTP/2 stream. It is a request of libh2o's too, so handlers answer it as any other, and
 * lives as long as one of its two users needs it: the connection, until the stream closes, and the handler, until it
 * has answered. A peer that resets the stream hangs up; what the handler then answers goes nowhere.
 */
#ifndef GATEWAY_HTTP2_STREAM_H
#define GATEWAY_HTTP2_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <h2o.h>

#include "core/buffer.h"
#include "core/loop.h"
#include "gateway/gate.h"
#include "gateway/http2_head.h"

struct http2;

typedef struct http2_stream {
    unsigned magic;
    int32_t id;
    struct http2 *conn; /* NULL once the connection is closed */
    gate_t gate;        /* GATE_HEAD, GATE_BODY, GATE_HANDLING, GATE_ANSWERING */
    bool ready;         /* to be dispatched at the end of the tick */
    bool gone;          /* for the peer */
    bool is_out;        /* the answer's last frame was written */
    size_t discarded;   /* bytes of a body nobody wanted */
    http2_head_t head;
    buffer_t body;
    h2o_iovec_t answer; /* what is left of it */
    loop_task_t bury;
    struct http2_stream *next, *prev;
    h2o_conn_t peer; /* libh2o's view of where the request came from */
    h2o_ostream_t out;
    h2o_req_t req;
} http2_stream_t;

/* A stream whose head is about to come; in conn's list. */
http2_stream_t *http2_stream_create(struct http2 *conn, int32_t id);
void http2_stream_field(http2_stream_t *s, const uint8_t *name, size_t name_len, const uint8_t *value,
                        size_t value_len);
/* All fields came. `ended`: and no body will. */
void http2_stream_head_done(http2_stream_t *s, bool ended);
void http2_stream_data(http2_stream_t *s, const uint8_t *data, size_t len);
/* The answer's last frame was written. `ended`: so was the request's. */
void http2_stream_out(http2_stream_t *s, bool ended);
/* The body is complete. */
void http2_stream_body_done(http2_stream_t *s);
/* Hands a ready request to its handler. */
void http2_stream_dispatch(http2_stream_t *s);
/* The stream is closed, whoever did it: frees it, or stops its run and frees it once that has ended. */
void http2_stream_gone(http2_stream_t *s);
/* Time is up, or the gate wants it gone for another reason. */
void http2_stream_stop(http2_stream_t *s, metric_t reason);
gate_t *http2_stream_gate(h2o_req_t *req);

#endif
