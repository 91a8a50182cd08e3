/*
 * A server on the loopback that does what a test's script says, byte by byte. Each connection has a thread of its own;
 * every read and wait in it is bounded, so a test that fails cannot hang. Included by tests only, hence static.
 */
#ifndef TESTS_SCRIPTED_SERVER_H
#define TESTS_SCRIPTED_SERVER_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* accept4, strcasestr */
#endif

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

enum {
    SERVER_CONNECTIONS_MAX = 80,
    SERVER_REQUEST_MAX = 256 * 1024,
    SERVER_WAIT_MS = 10000, /* no script waits longer for its peer */
};

typedef struct server server_t;

typedef struct {
    server_t *server;
    int fd;
    unsigned index; /* of the connection, from 0 */
    SSL *ssl;
    pthread_t thread;
    char request[SERVER_REQUEST_MAX + 1]; /* the last one read */
    size_t request_len, head_len;
} conn_t;

struct server {
    int listener;
    int stop_fd;
    char url[128]; /* without a path */
    void (*script)(conn_t *conn);
    void *arg; /* the script's own */
    SSL_CTX *tls;
    pthread_t thread;
    atomic_uint connections;
    atomic_uint open;     /* of these, not ended yet */
    atomic_uint requests; /* complete requests read */
    atomic_bool is_stopping;
    pthread_mutex_t lock;
    char last_request[SERVER_REQUEST_MAX + 1];
    size_t last_request_len;
    conn_t *conns[SERVER_CONNECTIONS_MAX];
};

static bool conn_is_ready(conn_t *conn, short events, int wait_ms)
{
    struct pollfd fds[2] = {{.fd = conn->fd, .events = events}, {.fd = conn->server->stop_fd, .events = POLLIN}};
    int n;
    do
        n = poll(fds, 2, wait_ms);
    while (n < 0 && errno == EINTR);
    return n > 0 && fds[0].revents != 0 && !atomic_load(&conn->server->is_stopping);
}

/* Bytes read, 0 at the end, -1 for an error or a wait that took too long. */
static ssize_t conn_read(conn_t *conn, void *into, size_t len)
{
    if (conn->ssl != NULL) {
        if (SSL_pending(conn->ssl) == 0 && !conn_is_ready(conn, POLLIN, SERVER_WAIT_MS))
            return -1;
        int n = SSL_read(conn->ssl, into, (int)len);
        return n > 0 ? n : SSL_get_error(conn->ssl, n) == SSL_ERROR_ZERO_RETURN ? 0 : -1;
    }
    if (!conn_is_ready(conn, POLLIN, SERVER_WAIT_MS))
        return -1;
    return recv(conn->fd, into, len, 0);
}

static __attribute__((unused)) bool say_bytes(conn_t *conn, const void *bytes, size_t len)
{
    const char *at = bytes;
    while (len > 0) {
        if (!conn_is_ready(conn, POLLOUT, SERVER_WAIT_MS))
            return false;
        ssize_t n = conn->ssl != NULL ? SSL_write(conn->ssl, at, (int)len) : send(conn->fd, at, len, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        at += n;
        len -= (size_t)n;
    }
    return true;
}

static __attribute__((unused)) bool say(conn_t *conn, const char *text)
{
    return say_bytes(conn, text, strlen(text));
}

/* Sleeps unless the server is being stopped. */
static __attribute__((unused)) bool doze(conn_t *conn, int ms)
{
    struct pollfd fd = {.fd = conn->server->stop_fd, .events = POLLIN};
    (void)poll(&fd, 1, ms);
    return !atomic_load(&conn->server->is_stopping);
}

/* Waits until the peer closes. */
static __attribute__((unused)) void hold(conn_t *conn)
{
    char sink[4096];
    while (conn_read(conn, sink, sizeof(sink)) > 0)
        ;
}

/* The end of this connection is a reset, not a close. */
static __attribute__((unused)) void reset(conn_t *conn)
{
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    (void)setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
}

/* One request with its Content-Length body. What follows it on the wire is left for the next call only when it comes in
 * a later segment, which holds for every client that waits for its answer. */
static __attribute__((unused)) bool read_request(conn_t *conn)
{
    conn->request_len = conn->head_len = 0;
    size_t want = 0;
    for (;;) {
        if (conn->head_len == 0) {
            conn->request[conn->request_len] = '\0';
            char *end = strstr(conn->request, "\r\n\r\n");
            if (end != NULL) {
                conn->head_len = (size_t)(end - conn->request) + 4;
                const char *length = strcasestr(conn->request, "\r\ncontent-length:");
                want = conn->head_len + (length != NULL && length < end ? strtoul(length + 17, NULL, 10) : 0);
            }
        }
        if (conn->head_len != 0 && conn->request_len >= want)
            break;
        if (conn->request_len == SERVER_REQUEST_MAX)
            return false;
        ssize_t n = conn_read(conn, conn->request + conn->request_len, SERVER_REQUEST_MAX - conn->request_len);
        if (n <= 0)
            return false;
        conn->request_len += (size_t)n;
    }
    pthread_mutex_lock(&conn->server->lock);
    memcpy(conn->server->last_request, conn->request, conn->request_len);
    conn->server->last_request[conn->request_len] = '\0';
    conn->server->last_request_len = conn->request_len;
    pthread_mutex_unlock(&conn->server->lock);
    atomic_fetch_add(&conn->server->requests, 1);
    return true;
}

static void *conn_main(void *arg)
{
    conn_t *conn = arg;
    if (conn->server->tls != NULL) {
        conn->ssl = SSL_new(conn->server->tls);
        SSL_set_fd(conn->ssl, conn->fd);
        if (SSL_accept(conn->ssl) == 1)
            conn->server->script(conn);
        SSL_free(conn->ssl);
        ERR_clear_error();
    } else {
        conn->server->script(conn);
    }
    close(conn->fd);
    conn->fd = -1;
    atomic_fetch_sub(&conn->server->open, 1);
    return NULL;
}

static void *server_main(void *arg)
{
    server_t *s = arg;
    /* OpenSSL writes without MSG_NOSIGNAL. Only here and in the threads started here: the client's own writes are under
     * test. */
    sigset_t pipe_only;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    (void)pthread_sigmask(SIG_BLOCK, &pipe_only, NULL);
    for (;;) {
        struct pollfd fds[2] = {{.fd = s->listener, .events = POLLIN}, {.fd = s->stop_fd, .events = POLLIN}};
        if (poll(fds, 2, -1) < 0)
            continue;
        if (atomic_load(&s->is_stopping))
            return NULL;
        int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
        unsigned index = atomic_load(&s->connections);
        if (fd < 0)
            continue;
        if (index == SERVER_CONNECTIONS_MAX) {
            close(fd);
            continue;
        }
        struct timeval limit = {.tv_sec = SERVER_WAIT_MS / 1000};
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
        conn_t *conn = calloc(1, sizeof(*conn));
        conn->server = s;
        conn->fd = fd;
        conn->index = index;
        s->conns[index] = conn;
        atomic_fetch_add(&s->open, 1);
        atomic_fetch_add(&s->connections, 1);
        if (pthread_create(&conn->thread, NULL, conn_main, conn) != 0)
            abort();
    }
}

/* `unix_path` NULL = 127.0.0.1 on a port of the kernel's choice. `tls` may be NULL and is not taken. */
static __attribute__((unused)) server_t *server_start(void (*script)(conn_t *conn), void *arg, const char *unix_path,
                                                      SSL_CTX *tls)
{
    server_t *s = calloc(1, sizeof(*s));
    s->script = script;
    s->arg = arg;
    s->tls = tls;
    pthread_mutex_init(&s->lock, NULL);
    s->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (unix_path != NULL) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        snprintf(address.sun_path, sizeof(address.sun_path), "%s", unix_path);
        s->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (bind(s->listener, (struct sockaddr *)&address, sizeof(address)) != 0)
            abort();
        snprintf(s->url, sizeof(s->url), "http://socket.invalid");
    } else {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof(address);
        s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (bind(s->listener, (struct sockaddr *)&address, len) != 0 ||
            getsockname(s->listener, (struct sockaddr *)&address, &len) != 0)
            abort();
        snprintf(s->url, sizeof(s->url), "%s://127.0.0.1:%d", tls != NULL ? "https" : "http", ntohs(address.sin_port));
    }
    if (listen(s->listener, SERVER_CONNECTIONS_MAX) != 0 || pthread_create(&s->thread, NULL, server_main, s) != 0)
        abort();
    return s;
}

static __attribute__((unused)) void server_stop(server_t *s)
{
    uint64_t one = 1;
    atomic_store(&s->is_stopping, true);
    if (write(s->stop_fd, &one, sizeof(one)) != sizeof(one))
        abort();
    pthread_join(s->thread, NULL);
    for (unsigned i = 0; i < SERVER_CONNECTIONS_MAX; ++i) {
        if (s->conns[i] == NULL)
            continue;
        pthread_join(s->conns[i]->thread, NULL);
        free(s->conns[i]);
    }
    close(s->listener);
    close(s->stop_fd);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

#endif
