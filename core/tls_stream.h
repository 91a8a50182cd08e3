/*
 * TLS as a client over a socket that is connected and does not block, for protocols whose library moves no bytes itself
 * (hiredis without TLS, nghttp2). At least TLS 1.2; the peer's certificate must be valid and of the host's name
 * (RFC 6125) or address.
 */
#ifndef CORE_TLS_STREAM_H
#define CORE_TLS_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct ssl_ctx_st;

/* PEM files; `ca_file` NULL = the system's authorities. A reference, or NULL and a static text. */
struct ssl_ctx_st *tls_stream_load(const char *ca_file, const char *cert_file, const char *key_file, const char **err);
/* NULL is harmless. */
/* What is offered to the peer, and must be taken by it (RFC 7301): "h2". A literal; before the first connection. */
void tls_stream_offer(struct ssl_ctx_st *context, const char *protocol);
void tls_stream_ref(struct ssl_ctx_st *context);
void tls_stream_unref(struct ssl_ctx_st *context);

typedef struct tls_stream tls_stream_t;

/* The descriptor stays the caller's. `host` is what the certificate must name: a host name or a literal address. */
tls_stream_t *tls_stream_create(struct ssl_ctx_st *context, int fd, const char *host);
void tls_stream_destroy(tls_stream_t *tls);

typedef enum { TLS_STREAM_DONE, TLS_STREAM_LATER, TLS_STREAM_FAILED } tls_stream_result_t;
tls_stream_result_t tls_stream_handshake(tls_stream_t *tls);
/* After the handshake: whether the peer took the protocol that was offered. */
bool tls_stream_speaks(const tls_stream_t *tls, const char *protocol);
/* Bytes moved; 0 = none now; negative = it failed, the end of the stream included. */
ssize_t tls_stream_read(tls_stream_t *tls, void *out, size_t max);
ssize_t tls_stream_write(tls_stream_t *tls, const void *bytes, size_t len);
/* Whether the last call waits for room to write, whatever it was. */
bool tls_stream_wants_write(const tls_stream_t *tls);
/* Bytes already taken from the socket and not yet read: no readiness will tell of them. */
bool tls_stream_has_more(const tls_stream_t *tls);
/* Why it failed: valid until destroyed, free of secrets. */
const char *tls_stream_error(const tls_stream_t *tls);

#endif
