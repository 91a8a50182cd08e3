/*
 * HTTP/2 of one connection, for trusted networks (PLIMSOLL_HTTP2; RFC 9113). nghttp2 reads and writes the frames; each
 * stream is a request with a gate of its own (gateway/http2_stream.h), so what is decided on a request's head, the
 * budgets, the run and the answer are those of HTTP/1.1.
 *
 * Nothing is dispatched while frames are read: a request that is complete waits for the end of the tick (`turn`), and
 * one that was reset by then never starts. Resets are counted: a peer that resets HTTP2_RESETS_MAX requests more than
 * it lets finish loses the connection.
 */
#ifndef GATEWAY_HTTP2_H
#define GATEWAY_HTTP2_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <nghttp2/nghttp2.h>

#include "core/buffer.h"
#include "core/loop.h"
#include "gateway/gate.h"
#include "gateway/metrics.h"

struct http2_stream;

typedef struct http2 {
    unsigned magic;
    gate_t *gate; /* the connection's */
    nghttp2_session *session;
    struct http2_stream *streams; /* oldest first; among them those whose peer is gone while their run winds up */
    unsigned open, winding;
    unsigned resets_left, refused;
    bool served;   /* a request came */
    bool writing;  /* libh2o has `out` */
    bool clogged;  /* not read on: what was read already asked for more frames than the peer takes */
    bool ending;   /* the last GOAWAY is on its way */
    bool closed;   /* libh2o was told to close; nothing of it is touched any more */
    bool noticed;  /* the peer knows that this copy drains */
    bool draining; /* and that no request after the last one will be served */
    uint64_t noticed_ms;
    buffer_t out;
    loop_task_t turn;
    loop_timer_t write_timer;
} http2_t;

typedef enum { PREFACE_NONE, PREFACE_PART, PREFACE_WHOLE } preface_t;

/* Whether a connection's first bytes are HTTP/2's preface; PREFACE_PART: more have to come. */
preface_t http2_look(const char *bytes, size_t len);
/* Takes over the socket of a connection, with what was read of it already. */
http2_t *http2_create(gate_t *gate);
/* The socket is closed. */
void http2_destroy(http2_t *h);
/* The connection's gate's timer. */
void http2_on_timer(http2_t *h);
/* Asked again and again while the lane drains: says GOAWAY, and ends the connection once nothing is under way. */
void http2_drain(http2_t *h);

/* --- for the streams --- */

/* Work for the end of the tick. */
void http2_turn(http2_t *h);
/* Ends the connection once the GOAWAY is out. Runs under way are stopped. Harmless when it is ending already. */
void http2_end(http2_t *h, metric_t reason, uint32_t code);
void http2_reset(http2_t *h, const struct http2_stream *s, uint32_t code);
void http2_continue(http2_t *h, const struct http2_stream *s);
/* Sends the stream's answer: the response of its libh2o request, and its bytes in s->answer. */
void http2_answer(http2_t *h, struct http2_stream *s);

#endif
