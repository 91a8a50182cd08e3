/*
 * TLS of one connection to Redis, over a socket that is connected and does not block. Debian's hiredis knows nothing of
 * TLS, so the link moves the bytes itself. At least TLS 1.2; the peer's certificate must be valid and of the host's
 * name (RFC 6125) or address.
 */
#ifndef CORE_REDIS_TLS_H
#define CORE_REDIS_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct ssl_ctx_st;

/* PEM files; `ca_file` NULL = the system's authorities. A reference, or NULL and a static text. */
struct ssl_ctx_st *redis_tls_load(const char *ca_file, const char *cert_file, const char *key_file, const char **err);
/* NULL is harmless. */
void redis_tls_ref(struct ssl_ctx_st *context);
void redis_tls_unref(struct ssl_ctx_st *context);

typedef struct redis_tls redis_tls_t;

/* The descriptor stays the caller's. `host` is what the certificate must name: a host name or a literal address. */
redis_tls_t *redis_tls_create(struct ssl_ctx_st *context, int fd, const char *host);
void redis_tls_destroy(redis_tls_t *tls);

typedef enum { REDIS_TLS_DONE, REDIS_TLS_LATER, REDIS_TLS_FAILED } redis_tls_result_t;
redis_tls_result_t redis_tls_handshake(redis_tls_t *tls);
/* Bytes moved; 0 = none now; negative = it failed, the end of the stream included. */
ssize_t redis_tls_read(redis_tls_t *tls, void *out, size_t max);
ssize_t redis_tls_write(redis_tls_t *tls, const void *bytes, size_t len);
/* Whether the last call waits for room to write, whatever it was. */
bool redis_tls_wants_write(const redis_tls_t *tls);
/* Bytes already taken from the socket and not yet read: no readiness will tell of them. */
bool redis_tls_has_more(const redis_tls_t *tls);
/* Why it failed: valid until destroyed, free of secrets. */
const char *redis_tls_error(const redis_tls_t *tls);

#endif
