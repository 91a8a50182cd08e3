/* Inside the HTTP client: what its files share. Nobody else includes this. */
#ifndef CORE_HTTP_CALL_H
#define CORE_HTTP_CALL_H

#include <curl/curl.h>

#include "core/http_client.h"
#include "core/http_head.h"
#include "core/loop.h"

enum {
    HTTP_CLIENT_MAGIC = 0x68636c69,
    HTTP_CALL_MAGIC = 0x6863616c,
    HTTP_DEAD_MAGIC = 0x64656164,
};

struct http_client {
    uint32_t magic;
    loop_t *loop;
    CURLM *multi;
    loop_timer_t timer; /* libcurl's one timer */
    http_client_options_t options;
    http_call_t *calls; /* every call whose callback has not been called */
    size_t call_count;
    bool in_curl; /* libcurl is on the stack: it must not be entered again */
    bool is_dying;
};

struct http_call {
    uint32_t magic;
    http_client_t *client;
    http_call_t *prev, *next;
    CURL *easy; /* NULL when the request was refused here */
    struct curl_slist *headers;
    uint8_t *body; /* the request's */
    size_t body_len;
    http_cb cb;
    void *data;
    bool (*on_head)(void *data, const http_response_t *response);
    bool (*on_data)(void *data, const uint8_t *bytes, size_t len);
    void *stream_data;
    const void *tls;     /* the OpenSSL connection, to compare only; NULL for plain HTTP */
    bool has_tls_end;    /* the peer ended that connection on purpose */
    bool is_head_method; /* a HEAD answer's Content-Length announces nothing */
    size_t response_max;
    size_t received; /* body bytes */
    loop_timer_t deadline;
    loop_task_t finish;
    bool is_judged; /* the outcome is known; the first verdict stands */
    bool is_resend; /* libcurl tried to send it a second time and was stopped */
    http_head_t head;
    http_response_t response;
};

/* Sets everything of `request` and `options` on call->easy, call->headers and call->body. NULL, or why the request is
 * refused. */
const char *http_request_apply(http_call_t *call, const http_request_t *request, const http_client_options_t *options);
/* Frees what http_request_apply made. Copies are wiped: headers and bodies carry credentials. */
void http_request_forget(http_call_t *call);

/* libcurl 7.88 takes a TLS connection that was just cut for one that was closed (lib/vtls/openssl.c, ossl_recv), so a
 * body that lasts until the end of the connection would be complete wherever somebody cut it. This notes the
 * close_notify alerts (RFC 8446 section 6.1) of the client's connections. For CURLOPT_SSL_CTX_FUNCTION, with the client
 * as data. */
CURLcode http_tls_watch(CURL *easy, void *tls_context, void *client);
/* Inside a callback of the transfer: remembers which TLS connection it runs on. */
void http_tls_note(http_call_t *call);

/* Records the outcome once and has the callback called at the end of the tick. */
void http_call_judge(http_call_t *call, http_outcome_t outcome, const char *reason);
/* libcurl says the transfer is over. */
void http_call_ended(http_call_t *call, CURLcode code);
/* Takes the judged call out of libcurl, calls back, frees it. Never inside libcurl. */
void http_call_finish(http_call_t *call);

#endif
