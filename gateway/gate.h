/*
 * The gate stands between a connection's bytes and libh2o: it reads each request's head and body itself, strictly and
 * within time and budget, and only then hands libh2o a head of its own making with the complete body, so libh2o's
 * lenient parser never sees a stranger's framing. A refused request is handed over as an empty one and answered with
 * the refusal. The gate also owns the connection's timers, watches for a peer that hangs up during a run, and closes
 * without destroying an answer to an unread body.
 *
 * States: IDLE -> HEAD -> BODY -> HANDLING -> ANSWERING -> IDLE; gate_move is the only place that changes it.
 *
 * With PLIMSOLL_HTTP2, a connection that turns out to speak it goes to HTTP2 and is read by gateway/http2.c; each of
 * its requests then has a gate of its own, which knows no socket and lives from HEAD to ANSWERING.
 */
#ifndef GATEWAY_GATE_H
#define GATEWAY_GATE_H

#include "gateway/address_count.h"
#include "gateway/chunked.h"
#include "gateway/front.h"
#include "gateway/intake.h"
#include "gateway/metrics.h"

typedef enum {
    GATE_HANDSHAKE, /* TLS */
    GATE_IDLE,      /* nothing of a request has come */
    GATE_HEAD,
    GATE_BODY,
    GATE_HANDLING,  /* libh2o and the handler have the request */
    GATE_ANSWERING, /* the answer is being sent */
    GATE_HTTP2,     /* a connection whose streams have gates of their own */
} gate_state_t;

struct http2;
struct http2_stream;

typedef struct gate {
    unsigned magic;
    gate_state_t state;
    lane_t *lane;
    h2o_socket_t *sock;
    h2o_socket_cb inner; /* libh2o's read callback, which ours stands before */
    bool metrics;        /* of the metrics listener */
    bool counted;        /* in front->addresses */
    bool keep;           /* the connection may serve another request */
    bool writing_continue;
    bool watched; /* in the lane's hang-up set */
    bool hung_up;
    bool first;    /* no request served yet: the head's time runs from the accept */
    int linger_fd; /* duplicate that outlives libh2o's close; -1 */
    metric_t close_reason;
    address_key_t address_key;
    loop_timer_t timer;
    loop_task_t rearm;
    size_t scanned, head_bytes, body_bytes; /* body_bytes: of it, decoded so far when chunked */
    uint64_t length, request_began_ms;
    bool is_chunked;
    chunked_t chunked;
    intake_t intake;
    refusal_t *refusal; /* the request is to be answered with this */
    void (*on_hang_up)(struct gate *gate, void *data);
    void *on_hang_up_data;
    struct http2 *http2;         /* of a connection in GATE_HTTP2 */
    struct http2_stream *stream; /* whose gate this is; NULL: a connection's */
    struct gate *next, *prev;
} gate_t;

/* Takes an accepted socket. */
void gate_accept(lane_t *lane, h2o_socket_t *sock, bool metrics);
gate_t *gate_of(h2o_req_t *req);
/* Ends the process when it is none. */
void gate_check(const gate_t *gate);
/* From here to gate_unwatch, a peer that closes (or half-closes: nobody who half-closes is waited for) is told to
 * on_hang_up, once. */
void gate_watch(gate_t *gate, void (*on_hang_up)(gate_t *gate, void *data), void *data);
void gate_unwatch(gate_t *gate);
/* The answer starts going out. */
void gate_answering(gate_t *gate);
/* The request is over for libh2o: releases what it held and makes ready for the next. */
void gate_request_done(gate_t *gate);
/* Forces the connection's end, with the reason for the counter. */
void gate_close(gate_t *gate, metric_t reason);
/* Closes a lane's idle connections of callers: it is draining. `metrics`: and all of the metrics listener, whatever
 * they do. */
void gate_drain(lane_t *lane, bool metrics);
bool gate_has_callers(const lane_t *lane);

/* --- what requests have in common, whichever way they are read --- */

/* Makes the gate of a stream of `connection`, whose head may take the usual time. */
void gate_open_stream(gate_t *gate, const gate_t *connection, struct http2_stream *stream);
/* The peer's address; AF_UNSPEC when it cannot be told. */
void gate_peer(gate_t *gate, struct sockaddr_storage *out);
/* The refusal the request is to be answered with, to be filled. */
refusal_t *gate_refuse(gate_t *gate);
/* ... which says that the body is too large. */
void gate_refuse_large_body(gate_t *gate);
/* The head is read and decided on, its body is awaited. */
void gate_await_body(gate_t *gate);
/* A body of undeclared length is to grow to `bytes`: takes the budget for it. false: the gate's refusal says why not.
 */
bool gate_hold_body(gate_t *gate, size_t bytes);
/* The request goes to its handler. */
void gate_handle(gate_t *gate);
/* Tells whoever watches, once. */
void gate_hang_up(gate_t *gate);

/* The lane's set of watched connections. */
struct hangup *hangup_create(lane_t *lane);
void hangup_destroy(struct hangup *hangup);

#endif
