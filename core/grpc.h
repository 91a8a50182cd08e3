/*
 * Calls of a gRPC service, from coroutines of one loop: unary, and in both directions. A channel keeps connections to
 * one endpoint (core/h2_client) and opens them as calls need; nothing is ever sent a second time, whatever happened to
 * the first. Every wait is the caller's, with its own deadline; ending a call early resets its stream (CANCEL).
 */
#ifndef CORE_GRPC_H
#define CORE_GRPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/buffer.h"
#include "core/grpc_end.h"
#include "core/loop.h"

enum {
    GRPC_CONNECTIONS_MAX = 64,          /* of a channel; H2_STREAMS_MAX calls each */
    GRPC_MESSAGE_MAX = 4 * 1024 * 1024, /* of a message that is taken */
    GRPC_SEND_MAX = 32 * 1024 * 1024,   /* of what a call has sent and the peer's window has not let go */
    GRPC_AHEAD_MAX = 64 * 1024,         /* of whole messages nobody has taken: past it no window is given back */
    GRPC_BARREN_MAX = 3,    /* connections made for a waiting call that carried nothing: then it ends, not sent */
    GRPC_PAUSE_MIN_MS = 50, /* after such a connection, before another; doubles, with jitter */
    GRPC_PAUSE_MAX_MS = 1000,
    GRPC_PATH_MAX = 127,
    GRPC_HOST_MAX = H2_HOST_MAX,
};

/* Where a channel leads. */
typedef struct {
    char host[GRPC_HOST_MAX + 1]; /* without brackets */
    uint16_t port;
    char authority[GRPC_HOST_MAX + 9]; /* "host:port", with brackets around IPv6 */
    bool is_plain;                     /* http: HTTP/2 without TLS */
    bool is_loopback;                  /* a literal address of the loopback */
} grpc_target_t;
/* "https://host[:port]" or "http://...", nothing more than "/" after it. NULL, or what is wrong (static text). */
const char *grpc_target_parse(const char *url, grpc_target_t *target);

typedef struct grpc_channel grpc_channel_t;
typedef struct grpc_call grpc_call_t;

/* `tls` NULL only for a plain target; a reference is taken, and ALPN h2 must have been offered on it. `connect_ms` is
 * for a connection's beginning. Opens nothing yet. */
grpc_channel_t *grpc_channel_create(loop_t *loop, const grpc_target_t *target, struct ssl_ctx_st *tls,
                                    uint32_t connect_ms);
/* Every call has been closed. */
void grpc_channel_destroy(grpc_channel_t *channel);
/* Connections that are open or being opened. */
size_t grpc_channel_connections(const grpc_channel_t *channel);

/* A call begins; its messages wait for a connection. `path` is "/package.Service/Method". */
grpc_call_t *grpc_call_open(grpc_channel_t *channel, const char *path, bool is_unary);
/* One more message; copied. False, and nothing sent: it does not fit GRPC_SEND_MAX, or the call has ended. */
bool grpc_call_send(grpc_call_t *call, const void *message, size_t len);
/* No more messages. */
void grpc_call_finish(grpc_call_t *call);
/* Whether anybody can have acted on the call: a byte of its first message may have left. */
bool grpc_call_may_have_run(const grpc_call_t *call);

typedef enum { GRPC_MESSAGE, GRPC_ENDED, GRPC_LATE, GRPC_CANCELED } grpc_next_t;
/* In a coroutine: the next message (valid until the next call of anything on this one), or that the call has ended
 * (grpc_call_end), or that the monotonic time has come, or that the coroutine was canceled. */
grpc_next_t grpc_call_next(grpc_call_t *call, uint64_t until_us, const uint8_t **message, size_t *len);
/* After GRPC_ENDED. */
const grpc_end_t *grpc_call_end(const grpc_call_t *call);
/* The call's own end: resets a stream that has none, frees. NULL is harmless. */
void grpc_call_close(grpc_call_t *call);

/* In a coroutine: one request, one answer, by `until_us`. True when the answer was appended to `answer`. */
bool grpc_unary(grpc_channel_t *channel, const char *path, const void *request, size_t len, uint64_t until_us,
                buffer_t *answer, grpc_end_t *end);

#endif
