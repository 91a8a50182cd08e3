/*
 * Outbound HTTP over curl_multi_socket_action on a core loop. Never redirects, never uses a proxy from the environment, never
 * resends: a request that can start or create something goes out at most once, on a connection that is either fresh or, when
 * `idempotent`, may be reused. Bodies are bounded, the deadline is ours and monotonic.
 */
#ifndef CORE_HTTP_CLIENT_H
#define CORE_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/buffer.h"
#include "core/loop.h"

typedef struct http_client http_client_t;
typedef struct http_call http_call_t;

typedef enum {
    HTTP_DONE,         /* a complete answer; status, headers and body are valid */
    HTTP_NOT_SENT,     /* certainly no byte of the request left: lookup, connect, TLS, or canceled before */
    HTTP_LOST,         /* some of the request may have left and no complete answer came */
    HTTP_TOO_LARGE,    /* the answer's head or body went past its limit */
    HTTP_TIMED_OUT,    /* the deadline passed; `sent` says whether anything may have left */
    HTTP_CANCELED,     /* by http_call_cancel; `sent` likewise */
} http_outcome_t;

typedef struct {
    const char *method; /* "GET", "POST", ... */
    const char *url;    /* absolute http or https */
    const char *unix_path; /* NULL, or the Unix socket to connect to instead of the URL's host */
    const char *const *headers; /* "Name: value" strings */
    size_t header_count;
    const void *body; /* copied */
    size_t body_len;
    uint32_t deadline_ms;    /* whole exchange, at least 1 */
    size_t response_max;     /* body bytes accepted */
    bool idempotent;         /* false: always a fresh connection, so no library can resend it */
    /* When not NULL the body is streamed here instead of collected (still counted against response_max). Returning false ends the
     * exchange as HTTP_CANCELED. */
    bool (*on_data)(void *data, const uint8_t *bytes, size_t len);
} http_request_t;

typedef struct {
    http_outcome_t outcome;
    bool sent;          /* whether any byte of the request may have left */
    int status;         /* of the answer; 0 when none */
    buffer_t body;
    const char *reason; /* static text for outcomes other than HTTP_DONE */
} http_response_t;

typedef void (*http_cb)(void *data, const http_response_t *response);

typedef struct {
    const char *ca_file;   /* NULL = system */
    const char *cert_file; /* client certificate, NULL = none */
    const char *key_file;
    uint32_t connect_ms;   /* at most this for lookup + connect + TLS */
    size_t header_max;     /* bytes of an answer's head accepted */
} http_client_options_t;

http_client_t *http_client_create(loop_t *loop, const http_client_options_t *options);
/* Calls in flight end as HTTP_CANCELED before this returns. */
void http_client_destroy(http_client_t *client);
/* Exactly one callback, never before this returned. The handle dies with the callback. */
http_call_t *http_call_start(http_client_t *client, const http_request_t *request, http_cb cb, void *data);
void http_call_cancel(http_call_t *call);
/* During the callback: the one value of a response header, NULL when absent or repeated. */
const char *http_response_header(const http_response_t *response, const char *name);
/* Inside a coroutine: starts the call and waits for its end (cancels it when the coroutine is canceled). The caller disposes
 * out->body with buffer_dispose. */
void http_call_co(http_client_t *client, const http_request_t *request, http_response_t *out);

#endif
