/*
 * One HTTP/2 connection as a client, over nghttp2 on a core loop: TLS with ALPN "h2", or plain with prior knowledge
 * (RFC 9113 section 3.3). It carries streams for core/grpc: pushes, upgrades and priorities are none of it. The
 * connection answers PINGs as long as the loop runs, sends its own while streams wait in silence, and gives window back
 * as the streams' owner takes bytes.
 *
 * Callbacks come from nghttp2's inside: they keep books and wake coroutines, and never start streams or end the
 * connection.
 */
#ifndef CORE_H2_CLIENT_H
#define CORE_H2_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/loop.h"

struct ssl_ctx_st;

enum {
    H2_STREAM_WINDOW = 1024 * 1024,          /* bytes a peer may send ahead on a stream */
    H2_CONNECTION_WINDOW = 16 * 1024 * 1024, /* and on all of them */
    H2_STREAMS_MAX = 100,                    /* open on one connection, or less if the peer says so */
    H2_HEADER_LIST_MAX = 32 * 1024,          /* told to the peer; nghttp2 itself takes no more than 64 KiB of a block */
    H2_OUT_MAX = 64 * 1024,                  /* bytes made for the socket and not taken by it */
    H2_READ_ROUNDS = 16,                     /* reads of 16 KiB before others on the loop have their turn */
    H2_SILENT_MS = 20 * 1000,                /* with a stream open and nothing heard: a PING */
    H2_ACK_MS = 10 * 1000,                   /* and without any answer to it the connection is lost */
    H2_BEAT_MS = 5 * 1000,                   /* between two looks at these times */
    H2_IDLE_MS = 90 * 1000,                  /* without a stream: the connection is closed */
    H2_HOST_MAX = 255,
    H2_REASON_MAX = 200,
};

typedef struct h2_conn h2_conn_t;
typedef struct h2_stream h2_stream_t;

typedef enum {
    H2_ENDED,   /* the peer has said all: END_STREAM */
    H2_RESET,   /* the stream was reset, by the peer or for what it sent; with the code of RFC 9113 section 7 */
    H2_REFUSED, /* certainly not processed: REFUSED_STREAM, or above the last stream of a GOAWAY */
    H2_LOST,    /* the connection broke */
} h2_end_t;

typedef struct {
    /* A header of a head or of trailers; `is_first` for the first of a block (an interim 1xx head included). */
    void (*on_header)(void *data, const uint8_t *name, size_t name_len, const uint8_t *value, size_t value_len,
                      bool is_first);
    /* Body bytes. What of their window is given back at once; the rest follows by h2_stream_consumed. */
    size_t (*on_data)(void *data, const uint8_t *bytes, size_t len);
    /* Once; the stream's handle is dead. `reason` is for H2_LOST, else NULL. */
    void (*on_end)(void *data, h2_end_t end, uint32_t code, const char *reason);
} h2_stream_ops_t;

typedef struct {
    const char *host; /* copied; a name, or a literal address without brackets */
    uint16_t port;
    struct ssl_ctx_st *tls; /* NULL = plain; a reference is taken */
    uint32_t connect_ms;    /* lookup, connect, TLS and the peer's first SETTINGS, in all */
    /* The peer's SETTINGS have come: streams may be started. Outside of nghttp2. */
    void (*on_up)(void *data);
    /* Never up, or no longer: every stream has ended. Outside of nghttp2; may destroy the connection. */
    void (*on_down)(void *data, bool was_up, const char *reason);
    /* A stream has ended, or the peer allows another number of them. Outside of nghttp2. */
    void (*on_room)(void *data);
    void *data;
} h2_conn_settings_t;

/* Begins to connect; nothing is called before this has returned. */
h2_conn_t *h2_conn_create(loop_t *loop, const h2_conn_settings_t *settings);
/* Streams still open end as H2_LOST before it returns. Never inside a callback but on_down. */
void h2_conn_destroy(h2_conn_t *conn);
/* Streams that can be started now. 0 while it is not up, and after a GOAWAY. */
size_t h2_conn_room(const h2_conn_t *conn);
/* Whether it never will have room: it is going away, or down. */
bool h2_conn_is_closing(const h2_conn_t *conn);

typedef struct {
    const char *name, *value; /* lower case; not kept */
} h2_header_t;

/* With room: a request, pseudo headers first. `ops` outlives the stream. */
h2_stream_t *h2_stream_start(h2_conn_t *conn, const h2_header_t *headers, size_t count, const h2_stream_ops_t *ops,
                             void *data);
/* More of the body; copied, without a bound of its own: the owner bounds it. */
void h2_stream_write(h2_stream_t *stream, const void *bytes, size_t len);
/* The body ends with what was written. */
void h2_stream_finish(h2_stream_t *stream);
/* Bytes written that the peer's window has not let go. */
size_t h2_stream_pending(const h2_stream_t *stream);
/* Whether any byte of the body may have left: before that nobody can have acted on it. */
bool h2_stream_has_sent(const h2_stream_t *stream);
/* So much of what came has been taken. */
void h2_stream_consumed(h2_stream_t *stream, size_t len);
/* RST_STREAM with that code; no on_end follows and the handle is dead. */
void h2_stream_reset(h2_stream_t *stream, uint32_t code);

#endif
