/* The client: libcurl's multi handle on a loop. Sockets become watches, libcurl's timer a loop timer. */
#include "core/http_client.h"

#include <pthread.h>
#include <stdlib.h>

#include "core/http_call.h"
#include "core/mem.h"
#include "core/watch.h"

typedef struct {
    http_client_t *client;
    curl_socket_t fd;
    watch_t *watch;
} multi_socket_t;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void start_curl(void)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        mem_fatal("libcurl does not start");
    const curl_version_info_data *info = curl_version_info(CURLVERSION_NOW);
    if ((info->features & CURL_VERSION_ASYNCHDNS) == 0 || (info->features & CURL_VERSION_SSL) == 0)
        mem_fatal("this libcurl would block the loop in name lookups, or has no TLS");
}

static void check(const http_client_t *client)
{
    if (client == NULL || client->magic != HTTP_CLIENT_MAGIC)
        mem_fatal("not a live HTTP client");
}

/* Lets libcurl work, then collects the transfers that ended. Their callbacks run at the end of the tick, where a
 * callback may do anything, destroying this client included. */
static void drive(http_client_t *client, curl_socket_t fd, int events)
{
    int running, left;
    check(client);
    client->in_curl = true;
    CURLMcode code = curl_multi_socket_action(client->multi, fd, events, &running);
    client->in_curl = false;
    /* BAD_SOCKET: closed by an earlier event of the same tick. */
    if (code != CURLM_OK && code != CURLM_BAD_SOCKET)
        mem_fatal("libcurl broke");
    for (CURLMsg *msg; (msg = curl_multi_info_read(client->multi, &left)) != NULL;) {
        http_call_t *call = NULL;
        if (msg->msg != CURLMSG_DONE)
            continue;
        if (curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **)&call) != CURLE_OK || call == NULL)
            mem_fatal("a transfer of nobody");
        http_call_ended(call, msg->data.result);
    }
}

static void on_ready(void *data, unsigned events)
{
    multi_socket_t *socket = data;
    int flags =
        ((events & WATCH_READ) != 0 ? CURL_CSELECT_IN : 0) | ((events & WATCH_WRITE) != 0 ? CURL_CSELECT_OUT : 0);
    drive(socket->client, socket->fd, flags);
}

static void on_timer(loop_timer_t *timer)
{
    drive(timer->data, CURL_SOCKET_TIMEOUT, 0);
}

/* Without a watch the call would only end at its deadline. */
static void fail_for_want_of_descriptors(CURL *easy)
{
    http_call_t *call = NULL;
    if (curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&call) != CURLE_OK || call == NULL)
        return;
    http_call_judge(call, call->response.sent ? HTTP_LOST : HTTP_NOT_SENT, "no descriptor left");
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *data, void *assigned)
{
    http_client_t *client = data;
    multi_socket_t *socket = assigned;
    check(client);
    if (what == CURL_POLL_REMOVE) {
        if (socket != NULL) {
            watch_destroy(socket->watch);
            free(socket);
        }
        return 0;
    }
    if (socket == NULL) {
        socket = mem_alloc(sizeof(*socket));
        socket->client = client;
        socket->fd = fd;
        if ((socket->watch = watch_create(client->loop, fd, on_ready, socket)) == NULL) {
            free(socket);
            fail_for_want_of_descriptors(easy);
            return 0; /* any error here would end every call of the client */
        }
        (void)curl_multi_assign(client->multi, fd, socket);
    }
    watch_set(socket->watch, (what & CURL_POLL_IN ? WATCH_READ : 0) | (what & CURL_POLL_OUT ? WATCH_WRITE : 0));
    return 0;
}

static int on_timeout_change(CURLM *multi, long timeout_ms, void *data)
{
    http_client_t *client = data;
    (void)multi;
    check(client);
    if (timeout_ms < 0)
        loop_timer_stop(&client->timer);
    else
        loop_timer_start(client->loop, &client->timer, (uint64_t)timeout_ms);
    return 0;
}

static char *copy(const char *s)
{
    return s != NULL ? mem_strdup(s) : NULL;
}

http_client_t *http_client_create(loop_t *loop, const http_client_options_t *options)
{
    (void)pthread_once(&once, start_curl);
    http_client_t *client = mem_alloc(sizeof(*client));
    client->magic = HTTP_CLIENT_MAGIC;
    client->loop = loop;
    client->options = *options;
    client->options.ca_file = copy(options->ca_file);
    client->options.cert_file = copy(options->cert_file);
    client->options.key_file = copy(options->key_file);
    if (client->options.header_max > HTTP_HEAD_MAX)
        client->options.header_max = HTTP_HEAD_MAX;
    long kept = options->connections_kept != 0 ? (long)options->connections_kept : (long)HTTP_IDLE_CONNECTIONS_MAX;
    loop_timer_init(&client->timer, on_timer, client);
    if ((client->multi = curl_multi_init()) == NULL)
        mem_fatal("out of memory");
    CURLMcode code = CURLM_OK;
    code |= curl_multi_setopt(client->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    code |= curl_multi_setopt(client->multi, CURLMOPT_SOCKETDATA, client);
    code |= curl_multi_setopt(client->multi, CURLMOPT_TIMERFUNCTION, on_timeout_change);
    code |= curl_multi_setopt(client->multi, CURLMOPT_TIMERDATA, client);
    code |= curl_multi_setopt(client->multi, CURLMOPT_MAXCONNECTS, kept);
    code |= curl_multi_setopt(client->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    if (code != CURLM_OK)
        mem_fatal("libcurl lacks a multi option this client is built on");
    return client;
}

void http_client_destroy(http_client_t *client)
{
    check(client);
    if (client->in_curl)
        mem_fatal("an HTTP client was destroyed inside on_head or on_data");
    if (client->is_dying)
        mem_fatal("an HTTP client was destroyed twice");
    client->is_dying = true;
    while (client->calls != NULL) {
        http_call_judge(client->calls, HTTP_CANCELED, "the client was closed");
        http_call_finish(client->calls);
    }
    client->in_curl = true;
    (void)curl_multi_cleanup(client->multi);
    loop_timer_stop(&client->timer);
    client->magic = HTTP_DEAD_MAGIC;
    free((char *)client->options.ca_file);
    free((char *)client->options.cert_file);
    free((char *)client->options.key_file);
    free(client);
}
