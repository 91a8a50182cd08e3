/*
 * Outbound HTTP/1.1 over curl_multi_socket_action on a core loop. Never redirects, never uses a proxy from the
 * environment, never resends: a request that can start or create something goes out at most once, on a fresh connection
 * unless it says how long a reused one may have been idle. Bodies are bounded, the deadline is ours and monotonic.
 *
 * Why "never resends" needs care (libcurl 7.88, lib/transfer.c, Curl_retry_request): when a *reused* connection dies
 * before the first byte of an answer, libcurl sends the request again on a new connection, up to five times and
 * whatever the method. CURLOPT_PREREQFUNCTION, which runs before each sending, refuses every sending after the first.
 * So a request on a connection the server just closed ends as HTTP_LOST; repeating it is the caller's choice. One that
 * may not be repeated and cannot afford such an end takes a fresh connection, or one that was idle for less time than
 * any server closes it after.
 *
 * Names: Debian's libcurl resolves in a thread of its own (AsynchDNS), so a lookup never blocks the loop, and
 * CURLOPT_QUICK_EXIT keeps a cancel or deadline from waiting for that thread; the thread ends by itself when
 * getaddrinfo returns.
 */
#ifndef CORE_HTTP_CLIENT_H
#define CORE_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/buffer.h"
#include "core/loop.h"

enum {
    HTTP_CALLS_MAX = 8192,          /* in flight on one client; two descriptors each: 16384 of the role's limit */
    HTTP_IDLE_CONNECTIONS_MAX = 64, /* kept alive unless the options say otherwise */
    HTTP_IDLE_SECONDS_MAX = 30,     /* an older idle connection is not used again: peers drop them after 60 s or more */
    HTTP_HEAD_MAX = 300 * 1024,     /* libcurl's own ceiling for an answer's head; header_max is cut to it */
    HTTP_HEADERS_MAX = 64,          /* header lines of a request */
    HTTP_URL_MAX = 16 * 1024,       /* bytes of a URL */
    HTTP_HEADER_LINE_MAX = 16 * 1024, /* bytes of one header line of a request: bearer tokens may have some KiB */
    HTTP_METHOD_MAX = 16,
    HTTP_UNIX_PATH_MAX = 107, /* sizeof(sockaddr_un.sun_path) less the NUL */
};

typedef struct http_client http_client_t;
typedef struct http_call http_call_t;

typedef enum {
    HTTP_DONE,      /* a complete answer; status, headers and body are valid */
    HTTP_NOT_SENT,  /* certainly no byte of the request left: a malformed request, lookup, connect, TLS */
    HTTP_LOST,      /* some of the request may have left and no complete answer came */
    HTTP_TOO_LARGE, /* the answer's head or body went past its limit */
    HTTP_TIMED_OUT, /* the deadline passed; `sent` says whether anything may have left */
    HTTP_CANCELED,  /* by http_call_cancel, on_head or on_data; `sent` likewise */
} http_outcome_t;

typedef struct {
    http_outcome_t outcome;
    bool sent;          /* whether any byte of the request may have left */
    int status;         /* of the answer; 0 when none */
    buffer_t body;      /* empty unless HTTP_DONE */
    const char *reason; /* static text for outcomes other than HTTP_DONE */
    const char *_head;  /* "name\0value\0" pairs */
    size_t _head_len;
} http_response_t;

typedef struct {
    const char *method;    /* "GET", "POST", ... */
    const char *url;       /* absolute http or https, without user and password; visible ASCII only, sent as it is */
    const char *unix_path; /* NULL, or the Unix socket to connect to instead of the URL's host */
    /* "Name: value" strings. Content-Length, Transfer-Encoding and Expect are ours to set and refused here. */
    const char *const *headers;
    size_t header_count;
    const void *body; /* copied */
    size_t body_len;
    uint32_t deadline_ms; /* whole exchange, at least 1 */
    size_t response_max;  /* body bytes accepted */
    bool idempotent;      /* any connection that was idle for HTTP_IDLE_SECONDS_MAX at most may be used */
    /* Of one that is not idempotent: a connection may be used that was idle for this long at most. 0: a fresh one,
     * which nobody reuses. */
    uint32_t reuse_seconds;
    /* May be NULL. Called once when the final head is complete, before the first on_data; status and headers are valid.
     * Returning false ends the exchange as HTTP_CANCELED. */
    bool (*on_head)(void *data, const http_response_t *response);
    /* When not NULL the body is streamed here instead of collected (still counted against response_max: the bytes up to
     * it are delivered, then the exchange ends as HTTP_TOO_LARGE). Returning false ends the exchange as HTTP_CANCELED.
     */
    bool (*on_data)(void *data, const uint8_t *bytes, size_t len);
    /* The `data` of on_head and on_data; NULL = the one given to http_call_start (http_call_co has no other). Neither
     * may start a call or destroy the client. */
    void *stream_data;
} http_request_t;

typedef void (*http_cb)(void *data, const http_response_t *response);

/* Strings are copied. */
typedef struct {
    const char *ca_file;   /* NULL = system; else the only certificates trusted */
    const char *cert_file; /* client certificate, NULL = none */
    const char *key_file;
    uint32_t connect_ms; /* at most this for lookup + connect + TLS; 0 = only the deadline of the call */
    size_t
        connections_kept; /* idle and in use; 0 = HTTP_IDLE_CONNECTIONS_MAX. One past it is closed when its call ends */
    size_t header_max;    /* bytes of an answer's head accepted: status lines, interim answers and trailers included */
} http_client_options_t;

http_client_t *http_client_create(loop_t *loop, const http_client_options_t *options);
/* Calls in flight end as HTTP_CANCELED before this returns; their callbacks must not start calls here. */
void http_client_destroy(http_client_t *client);
/* Exactly one callback, from the loop and never before this returned. The handle dies with the callback. The request is
 * copied. */
http_call_t *http_call_start(http_client_t *client, const http_request_t *request, http_cb cb, void *data);
/* The callback follows at the end of the tick. An outcome already known is not changed. */
void http_call_cancel(http_call_t *call);
/* The one value of a response header, NULL when absent or repeated. During on_head and the callback; after http_call_co
 * ended with HTTP_DONE until the body is changed or disposed. */
const char *http_response_header(const http_response_t *response, const char *name);
/* Inside a coroutine: starts the call and waits for its end (cancels it when the coroutine is canceled). The caller
 * disposes out->body with buffer_dispose, whatever the outcome. */
void http_call_co(http_client_t *client, const http_request_t *request, http_response_t *out);

#endif
