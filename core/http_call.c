/* The life of one call: started, sent, answered, judged once, called back once. */
#include "core/http_call.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/co.h"
#include "core/mem.h"

static void check(const http_call_t *call)
{
    if (call == NULL || call->magic != HTTP_CALL_MAGIC)
        mem_fatal("not a live HTTP call");
}

/* Out of libcurl, which closes the connection unless the exchange was complete. Inside libcurl this waits for the end
 * of the tick; until then its callbacks refuse everything for a judged call. */
static void detach(http_call_t *call)
{
    http_client_t *client = call->client;
    if (call->easy == NULL || client->in_curl)
        return;
    client->in_curl = true;
    (void)curl_multi_remove_handle(client->multi, call->easy);
    client->in_curl = false;
    curl_easy_cleanup(call->easy);
    call->easy = NULL;
    http_request_forget(call);
}

void http_call_judge(http_call_t *call, http_outcome_t outcome, const char *reason)
{
    if (call->is_judged)
        return;
    call->is_judged = true;
    call->response.outcome = outcome;
    call->response.reason = reason;
    loop_timer_stop(&call->deadline);
    detach(call);
    loop_defer(call->client->loop, &call->finish);
}

/* RFC 9112 section 6.3. */
static bool may_have_body(const http_call_t *call)
{
    return !call->is_head_method && call->head.status != 204 && call->head.status != 304;
}

static bool lasts_until_close(const http_call_t *call)
{
    const char *coding = http_response_header(&call->response, "transfer-encoding");
    return may_have_body(call) && !call->head.has_content_length &&
           (coding == NULL || strcasecmp(coding, "chunked") != 0);
}

void http_call_ended(http_call_t *call, CURLcode code)
{
    check(call);
    if (code == CURLE_OK && !call->head.has_ended) /* libcurl calls it complete when the peer closes inside the head */
        http_call_judge(call, HTTP_LOST, "the answer's head was cut off");
    else if (code == CURLE_OK && lasts_until_close(call) && call->tls != NULL && !call->has_tls_end)
        http_call_judge(call, HTTP_LOST, "the connection was cut");
    else if (code == CURLE_OK)
        http_call_judge(call, HTTP_DONE, NULL);
    else if (call->is_resend)
        http_call_judge(call, HTTP_LOST, "the reused connection died before an answer");
    else if (!call->response.sent)
        http_call_judge(call, HTTP_NOT_SENT, curl_easy_strerror(code));
    else if (code == CURLE_OUT_OF_MEMORY && !call->head.has_ended) /* its code for a line past its 100 KiB */
        http_call_judge(call, HTTP_TOO_LARGE, "a line of the answer's head is too long");
    else
        http_call_judge(call, HTTP_LOST, curl_easy_strerror(code));
}

/* ---- called by libcurl ---- */

/* After the connection and its TLS stand and before a byte of the request leaves; once more when libcurl wants to send
 * again. */
static int on_before_request(void *data, char *remote_ip, char *local_ip, int remote_port, int local_port)
{
    http_call_t *call = data;
    (void)remote_ip;
    (void)local_ip;
    (void)remote_port;
    (void)local_port;
    check(call);
    if (call->is_judged)
        return CURL_PREREQFUNC_ABORT; /* canceled earlier in this tick: nothing needs to leave any more */
    if (call->response.sent) {
        call->is_resend = true;
        return CURL_PREREQFUNC_ABORT;
    }
    call->response.sent = true;
    return CURL_PREREQFUNC_OK;
}

static bool accept_head(http_call_t *call)
{
    call->response.status = call->head.status;
    call->response._head = (const char *)call->head.fields.base;
    call->response._head_len = call->head.fields.len;
    http_tls_note(call);
    if (may_have_body(call) && call->head.has_content_length && call->head.content_length > call->response_max) {
        http_call_judge(call, HTTP_TOO_LARGE, "the answer announces a body past its limit");
        return false;
    }
    if (call->on_head != NULL && !call->on_head(call->stream_data, &call->response)) {
        http_call_judge(call, HTTP_CANCELED, "stopped by on_head");
        return false;
    }
    return !call->is_judged;
}

static size_t on_header_line(char *bytes, size_t size, size_t count, void *data)
{
    http_call_t *call = data;
    size_t len = size * count;
    check(call);
    if (call->is_judged)
        return 0;
    switch (http_head_line(&call->head, bytes, len)) {
    case HTTP_HEAD_MORE:
        return len;
    case HTTP_HEAD_END:
        return accept_head(call) ? len : 0;
    case HTTP_HEAD_TOO_LARGE:
        http_call_judge(call, HTTP_TOO_LARGE, "the answer's head is too large");
        return 0;
    case HTTP_HEAD_MALFORMED:
        break;
    }
    http_call_judge(call, HTTP_LOST, "the answer's head is malformed");
    return 0;
}

static size_t on_body_bytes(char *bytes, size_t size, size_t count, void *data)
{
    http_call_t *call = data;
    size_t len = size * count, room = call->response_max - call->received;
    size_t fits = len < room ? len : room;
    check(call);
    if (call->is_judged)
        return CURL_WRITEFUNC_ERROR;
    call->received += fits;
    if (call->on_data == NULL) {
        if (fits == len && !buffer_append(&call->response.body, bytes, len))
            mem_fatal("a body's buffer is smaller than its limit");
    } else if (fits != 0 && !call->on_data(call->stream_data, (const uint8_t *)bytes, fits)) {
        http_call_judge(call, HTTP_CANCELED, "stopped by on_data");
    }
    if (fits < len)
        http_call_judge(call, HTTP_TOO_LARGE, "the answer's body is too large");
    return call->is_judged ? CURL_WRITEFUNC_ERROR : len;
}

/* ---- called by the loop ---- */

static void on_deadline(loop_timer_t *timer)
{
    http_call_t *call = timer->data;
    check(call);
    http_call_judge(call, HTTP_TIMED_OUT, "the deadline passed");
}

static void on_finish(loop_task_t *task)
{
    http_call_t *call = task->data;
    check(call);
    http_call_finish(call);
}

/* ---- start and end ---- */

static void link_call(http_client_t *client, http_call_t *call)
{
    call->next = client->calls;
    if (call->next != NULL)
        call->next->prev = call;
    client->calls = call;
    ++client->call_count;
}

static void unlink_call(http_call_t *call)
{
    if (call->prev != NULL)
        call->prev->next = call->next;
    else
        call->client->calls = call->next;
    if (call->next != NULL)
        call->next->prev = call->prev;
    --call->client->call_count;
}

void http_call_finish(http_call_t *call)
{
    if (call->client->in_curl)
        mem_fatal("an HTTP call ended inside libcurl");
    loop_task_cancel(call->client->loop, &call->finish);
    unlink_call(call);
    detach(call);
    http_request_forget(call);
    if (call->response.outcome != HTTP_DONE)
        buffer_dispose(&call->response.body);
    call->cb(call->data, &call->response);
    buffer_dispose(&call->response.body);
    http_head_dispose(&call->head);
    call->magic = HTTP_DEAD_MAGIC;
    free(call);
}

static const char *begin(http_call_t *call, const http_request_t *request)
{
    http_client_t *client = call->client;
    if (client->call_count > HTTP_CALLS_MAX)
        return "too many calls in flight";
    if ((call->easy = curl_easy_init()) == NULL)
        mem_fatal("out of memory");
    const char *reason = http_request_apply(call, request, &client->options);
    if (reason != NULL)
        return reason;
    CURLcode code = CURLE_OK;
    code |= curl_easy_setopt(call->easy, CURLOPT_PRIVATE, call);
    code |= curl_easy_setopt(call->easy, CURLOPT_PREREQFUNCTION, on_before_request);
    code |= curl_easy_setopt(call->easy, CURLOPT_PREREQDATA, call);
    code |= curl_easy_setopt(call->easy, CURLOPT_HEADERFUNCTION, on_header_line);
    code |= curl_easy_setopt(call->easy, CURLOPT_HEADERDATA, call);
    code |= curl_easy_setopt(call->easy, CURLOPT_WRITEFUNCTION, on_body_bytes);
    code |= curl_easy_setopt(call->easy, CURLOPT_WRITEDATA, call);
    if (code != CURLE_OK)
        mem_fatal("libcurl lacks a callback this client is built on");
    client->in_curl = true;
    CURLMcode added = curl_multi_add_handle(client->multi, call->easy);
    client->in_curl = false;
    if (added != CURLM_OK)
        mem_fatal("libcurl refused a call");
    return NULL;
}

http_call_t *http_call_start(http_client_t *client, const http_request_t *request, http_cb cb, void *data)
{
    if (client == NULL || client->magic != HTTP_CLIENT_MAGIC || client->is_dying)
        mem_fatal("a call on a dead HTTP client");
    if (client->in_curl)
        mem_fatal("an HTTP call was started inside on_head or on_data");
    http_call_t *call = mem_alloc(sizeof(*call));
    call->magic = HTTP_CALL_MAGIC;
    call->client = client;
    call->cb = cb;
    call->data = data;
    call->on_head = request->on_head;
    call->on_data = request->on_data;
    call->stream_data = request->stream_data != NULL ? request->stream_data : data;
    call->response_max = request->response_max;
    buffer_init(&call->response.body, request->response_max);
    http_head_init(&call->head, client->options.header_max);
    loop_timer_init(&call->deadline, on_deadline, call);
    loop_task_init(&call->finish, on_finish, call);
    link_call(client, call);
    const char *reason = begin(call, request);
    if (reason != NULL)
        http_call_judge(call, HTTP_NOT_SENT, reason);
    else
        loop_timer_start(client->loop, &call->deadline, request->deadline_ms);
    return call;
}

void http_call_cancel(http_call_t *call)
{
    check(call);
    http_call_judge(call, HTTP_CANCELED, "canceled");
}

const char *http_response_header(const http_response_t *response, const char *name)
{
    return response->_head_len == 0 ? NULL : http_head_find(response->_head, response->_head_len, name);
}

/* ---- from a coroutine ---- */

typedef struct {
    co_t *co;
    http_response_t *out;
    bool has_ended;
} co_call_t;

/* Takes the body out of the call. The headers go behind it in the same allocation, so that one dispose frees both. */
static void on_co_end(void *data, const http_response_t *response)
{
    co_call_t *waiting = data;
    http_call_t *call = (http_call_t *)((char *)response - offsetof(http_call_t, response));
    check(call);
    http_response_t *out = waiting->out;
    *out = *response;
    buffer_init(&call->response.body, 0);
    if (out->outcome != HTTP_DONE || out->_head_len == 0) {
        out->_head = NULL;
        out->_head_len = 0;
    } else {
        size_t head_at = out->body.len + 1;
        out->body.base = mem_realloc(out->body.base, head_at + out->_head_len);
        out->body.base[out->body.len] = '\0';
        out->body.cap = out->body.len;
        memcpy(out->body.base + head_at, response->_head, out->_head_len);
        out->_head = (const char *)out->body.base + head_at;
    }
    waiting->has_ended = true;
    co_wake(waiting->co);
}

void http_call_co(http_client_t *client, const http_request_t *request, http_response_t *out)
{
    co_call_t waiting = {.co = co_self(), .out = out};
    if (waiting.co == NULL)
        mem_fatal("http_call_co outside of a coroutine");
    http_call_t *call = http_call_start(client, request, on_co_end, &waiting);
    call->stream_data = request->stream_data;
    /* The call's own deadline bounds these waits. */
    while (!waiting.has_ended) {
        if (co_wait(UINT64_MAX) != CO_CANCELED || waiting.has_ended)
            continue;
        http_call_cancel(call);
        co_shield_begin();
        while (!waiting.has_ended)
            (void)co_wait(UINT64_MAX);
        co_shield_end();
    }
}
