/* An HTTP/2 connection's socket: from the host's name to bytes that go both ways. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/h2_internal.h"

enum { READ_BYTES = 16 * 1024, CLOSE_FLUSH_BYTES = 4096 };

static void try_next(h2_conn_t *conn);

static void watch_for(h2_conn_t *conn, unsigned events)
{
    if (conn->watch != NULL && conn->events != events)
        watch_set(conn->watch, events);
    conn->events = events;
}

static void close_socket(h2_conn_t *conn)
{
    tls_stream_destroy(conn->tls);
    conn->tls = NULL;
    if (conn->watch != NULL)
        watch_destroy(conn->watch);
    conn->watch = NULL;
    conn->events = 0;
    if (conn->fd >= 0)
        close(conn->fd);
    conn->fd = -1;
}

void h2_socket_close(h2_conn_t *conn)
{
    if (conn->resolving != NULL)
        resolve_cancel(conn->resolving);
    conn->resolving = NULL;
    close_socket(conn);
}

/* --- bytes --- */

static ssize_t read_some(h2_conn_t *conn, uint8_t *bytes, size_t max)
{
    if (conn->tls != NULL)
        return tls_stream_read(conn->tls, bytes, max);
    ssize_t n = recv(conn->fd, bytes, max, 0);
    if (n > 0)
        return n;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n == 0)
        errno = 0;
    return -1;
}

static ssize_t write_some(h2_conn_t *conn, const uint8_t *bytes, size_t len)
{
    if (conn->tls != NULL)
        return tls_stream_write(conn->tls, bytes, len);
    ssize_t n = send(conn->fd, bytes, len, MSG_NOSIGNAL);
    return n >= 0 ? n : errno == EAGAIN || errno == EINTR ? 0 : -1;
}

static void fail_socket(h2_conn_t *conn)
{
    if (conn->tls != NULL)
        h2_fail(conn, tls_stream_error(conn->tls));
    else
        h2_fail(conn, errno == 0 ? "the peer closed the connection" : strerror(errno));
}

static bool is_written(const h2_conn_t *conn)
{
    return conn->out_at == conn->out.len;
}

/* Frames for the socket, as many as it may lag behind. */
static void fill(h2_conn_t *conn)
{
    const uint8_t *bytes;
    size_t n;
    if (is_written(conn)) {
        buffer_clear(&conn->out);
        conn->out_at = 0;
    }
    while (conn->out.len < H2_OUT_MAX && conn->state != H2_DOWN && (n = h2_session_give(conn, &bytes)) > 0) {
        if (!buffer_append(&conn->out, bytes, n)) {
            h2_fail(conn, "a frame that is too long");
            return;
        }
    }
}

void h2_flush(h2_conn_t *conn)
{
    for (;;) {
        fill(conn);
        if (is_written(conn) || conn->state == H2_DOWN)
            break;
        ssize_t n = write_some(conn, conn->out.base + conn->out_at, conn->out.len - conn->out_at);
        if (n < 0) {
            fail_socket(conn);
            return;
        }
        conn->out_at += (size_t)n;
        if (n == 0)
            break;
    }
    watch_for(conn, WATCH_READ | (is_written(conn) ? 0u : (unsigned)WATCH_WRITE));
}

static void take_bytes(h2_conn_t *conn)
{
    uint8_t bytes[READ_BYTES];
    for (int i = 0; i < H2_READ_ROUNDS || (conn->tls != NULL && tls_stream_has_more(conn->tls)); ++i) {
        ssize_t n = read_some(conn, bytes, sizeof(bytes));
        if (n < 0)
            fail_socket(conn);
        if (n <= 0)
            return;
        h2_session_take(conn, bytes, (size_t)n);
        if (conn->state == H2_DOWN) {
            /* what nghttp2 has to say about it (GOAWAY) may still help the other side */
            const uint8_t *last;
            size_t len = is_written(conn) ? h2_session_give(conn, &last) : 0;
            if (len > 0 && len <= CLOSE_FLUSH_BYTES)
                (void)write_some(conn, last, len);
            return;
        }
    }
}

/* --- to the peer --- */

static void greet(h2_conn_t *conn)
{
    conn->state = H2_GREETING;
    conn->heard_ms = clock_mono_ms();
    h2_session_begin(conn);
    h2_flush(conn);
}

static void secure(h2_conn_t *conn)
{
    switch (tls_stream_handshake(conn->tls)) {
    case TLS_STREAM_LATER:
        watch_for(conn, tls_stream_wants_write(conn->tls) ? WATCH_WRITE : WATCH_READ);
        break;
    case TLS_STREAM_FAILED:
        fail_socket(conn);
        break;
    case TLS_STREAM_DONE:
        if (tls_stream_speaks(conn->tls, "h2"))
            greet(conn);
        else
            h2_fail(conn, "TLS: the server does not take HTTP/2 (ALPN h2)");
        break;
    }
}

static void say_connect(h2_conn_t *conn, int err)
{
    snprintf(conn->reason, sizeof(conn->reason), "cannot connect: %s", strerror(err));
}

static void connected(h2_conn_t *conn)
{
    int err = 0, on = 1;
    socklen_t len = sizeof(err);
    if (getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0)
        err = errno;
    if (err != 0) {
        say_connect(conn, err);
        close_socket(conn);
        try_next(conn);
        return;
    }
    (void)setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (conn->settings.tls == NULL) {
        greet(conn);
        return;
    }
    conn->state = H2_SECURING;
    conn->tls = tls_stream_create(conn->settings.tls, conn->fd, conn->host);
    secure(conn);
}

static void on_event(void *data, unsigned events)
{
    h2_conn_t *conn = data;
    h2_check(conn);
    switch (conn->state) {
    case H2_CONNECTING:
        connected(conn);
        break;
    case H2_SECURING:
        secure(conn);
        break;
    case H2_GREETING:
    case H2_UP:
        if ((events & WATCH_WRITE) != 0)
            h2_flush(conn);
        if ((events & WATCH_READ) != 0 && conn->state != H2_DOWN)
            take_bytes(conn);
        break;
    case H2_RESOLVING:
    case H2_DOWN:
        break;
    }
    if (conn->state == H2_DOWN)
        watch_for(conn, 0);
}

static socklen_t address_of(const char *text, uint16_t port, struct sockaddr_storage *out)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
    memset(out, 0, sizeof(*out));
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        return sizeof(*v4);
    }
    if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        return sizeof(*v6);
    }
    return 0;
}

/* True when there will be an event. */
static bool try_address(h2_conn_t *conn, const char *text)
{
    struct sockaddr_storage address;
    socklen_t len = address_of(text, conn->settings.port, &address);
    conn->fd = len != 0 ? socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
    if (conn->fd < 0 ||
        (connect(conn->fd, (struct sockaddr *)&address, len) != 0 && errno != EINPROGRESS && errno != EINTR) ||
        (conn->watch = watch_create(conn->loop, conn->fd, on_event, conn)) == NULL) {
        say_connect(conn, errno);
        close_socket(conn);
        return false;
    }
    watch_for(conn, WATCH_WRITE);
    return true;
}

static uint64_t time_left(const h2_conn_t *conn)
{
    uint64_t spent = clock_mono_ms() - conn->began_ms;
    return spent < conn->settings.connect_ms ? conn->settings.connect_ms - spent : 0;
}

/* Every address gets its share of the time that is left. */
static void try_next(h2_conn_t *conn)
{
    conn->state = H2_CONNECTING;
    while (conn->tried < conn->addresses.count) {
        size_t left = conn->addresses.count - conn->tried;
        loop_timer_start(conn->loop, &conn->timer, time_left(conn) / left);
        if (try_address(conn, conn->addresses.texts[conn->tried++]))
            return;
    }
    char reason[H2_REASON_MAX];
    snprintf(reason, sizeof(reason), "%s", conn->reason);
    h2_fail(conn, reason);
}

static void on_resolved(void *data, const resolve_result_t *result)
{
    h2_conn_t *conn = data;
    h2_check(conn);
    conn->resolving = NULL;
    conn->addresses = *result;
    if (result->count == 0)
        h2_fail(conn, result->reason);
    else
        try_next(conn);
}

void h2_connect(h2_conn_t *conn)
{
    struct sockaddr_storage address;
    if (address_of(conn->host, conn->settings.port, &address) != 0) {
        conn->addresses.count = 1;
        snprintf(conn->addresses.texts[0], sizeof(conn->addresses.texts[0]), "%s", conn->host);
        try_next(conn);
        return;
    }
    conn->state = H2_RESOLVING;
    loop_timer_start(conn->loop, &conn->timer, conn->settings.connect_ms);
    conn->resolving = resolve_start(conn->loop, conn->host, on_resolved, conn);
    if (conn->resolving == NULL)
        h2_fail(conn, "the host's name cannot be looked up");
}

/* --- time --- */

static void beat(h2_conn_t *conn)
{
    uint64_t now_ms = clock_mono_ms();
    if (conn->pinged_ms != 0 && now_ms - conn->pinged_ms >= H2_ACK_MS) {
        h2_fail(conn, "the peer is silent");
        return;
    }
    if (conn->stream_count == 0 && now_ms - conn->idle_ms >= H2_IDLE_MS) {
        h2_session_leave(conn);
        h2_flush(conn);
        h2_fail(conn, "idle");
        return;
    }
    if (conn->stream_count > 0 && conn->pinged_ms == 0 && now_ms - conn->heard_ms >= H2_SILENT_MS) {
        conn->pinged_ms = now_ms;
        h2_session_ping(conn);
    }
    loop_timer_start(conn->loop, &conn->timer, H2_BEAT_MS);
}

void h2_on_timer(loop_timer_t *timer)
{
    h2_conn_t *conn = timer->data;
    h2_check(conn);
    switch (conn->state) {
    case H2_UP:
        beat(conn);
        break;
    case H2_CONNECTING:
        say_connect(conn, ETIMEDOUT);
        close_socket(conn);
        try_next(conn);
        break;
    case H2_RESOLVING:
    case H2_SECURING:
    case H2_GREETING:
        h2_fail(conn, "the peer did not answer in time");
        break;
    case H2_DOWN:
        break;
    }
}
