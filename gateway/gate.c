#include "gateway/gate.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <h2o/http1.h>

#include "core/clock.h"
#include "core/mem.h"
#include "gateway/http2.h"
#include "gateway/http2_stream.h"
#include "gateway/linger.h"

enum { GATE_MAGIC = 0x67617465 };

static void on_read(h2o_socket_t *sock, const char *err);
static void advance(gate_t *gate);

void gate_check(const gate_t *gate)
{
    if (gate == NULL || gate->magic != GATE_MAGIC)
        mem_fatal("not a gate");
}

/* Illegal moves are broken invariants, not input. */
static void gate_move(gate_t *gate, gate_state_t to)
{
    static const unsigned allowed[] = {
        [GATE_HANDSHAKE] = 1u << GATE_IDLE | 1u << GATE_HTTP2,
        [GATE_IDLE] = 1u << GATE_HEAD | 1u << GATE_HTTP2,
        [GATE_HEAD] = 1u << GATE_BODY | 1u << GATE_HANDLING,
        [GATE_BODY] = 1u << GATE_HANDLING,
        [GATE_HANDLING] = 1u << GATE_ANSWERING,
        [GATE_ANSWERING] = 1u << GATE_IDLE,
        [GATE_HTTP2] = 0,
    };
    if ((allowed[gate->state] & 1u << to) == 0)
        mem_fatal("a connection made an illegal move");
    gate->state = to;
}

void gate_close(gate_t *gate, metric_t reason)
{
    gate_check(gate);
    if (gate->stream != NULL) {
        http2_stream_stop(gate->stream, reason);
        return;
    }
    if (gate->close_reason == METRIC_CLOSE_PEER)
        gate->close_reason = reason;
    /* libh2o sees the end on its next read or write and frees its part; on_close below frees ours */
    shutdown(h2o_socket_get_fd(gate->sock), SHUT_RDWR);
}

static void on_timer(loop_timer_t *timer)
{
    gate_t *gate = timer->data;
    gate_check(gate);
    switch (gate->state) {
    case GATE_HANDSHAKE:
        gate_close(gate, METRIC_CLOSE_TLS);
        break;
    case GATE_IDLE:
        gate_close(gate, gate->first ? METRIC_CLOSE_HEADER_TIMEOUT : METRIC_CLOSE_IDLE_TIMEOUT);
        break;
    case GATE_HEAD:
        gate_close(gate, METRIC_CLOSE_HEADER_TIMEOUT);
        break;
    case GATE_BODY:
        gate_close(gate, METRIC_CLOSE_READ_TIMEOUT);
        break;
    case GATE_HANDLING:
        /* longer than any run: the answer would come too late for the peer, so the run is stopped as if it had hung up
         */
        gate_hang_up(gate);
        gate_close(gate, METRIC_CLOSE_WRITE_TIMEOUT);
        break;
    case GATE_ANSWERING:
        gate_close(gate, METRIC_CLOSE_WRITE_TIMEOUT);
        break;
    case GATE_HTTP2:
        http2_on_timer(gate->http2);
        break;
    }
}

/* --- handing over --- */

/* Puts `head` right before the body in the input buffer, whose own head is at least as long. */
static void replace_head(gate_t *gate, const char *head, size_t len)
{
    if (len > gate->head_bytes)
        mem_fatal("a made head is longer than the head it replaces");
    h2o_buffer_consume(&gate->sock->input, gate->head_bytes - len);
    memcpy(gate->sock->input->bytes, head, len);
}

/* The metrics listener has times of its own (spec section 3.4). */
static uint32_t limit_of(const gate_t *gate, uint32_t callers_ms)
{
    return gate->metrics && callers_ms > METRICS_TIMEOUT_MS ? METRICS_TIMEOUT_MS : callers_ms;
}

void gate_handle(gate_t *gate)
{
    uint64_t spent = clock_mono_ms() - gate->request_began_ms;
    uint32_t write_ms = limit_of(gate, gate->lane->front->write_ms);
    gate_move(gate, GATE_HANDLING);
    loop_timer_start(gate->lane->loop, &gate->timer, spent < write_ms ? write_ms - spent : 1);
    metric_inc(METRIC_REQUESTS);
}

static void hand_over(gate_t *gate)
{
    gate_handle(gate);
    gate->sock->_cb.read = gate->inner;
    gate->inner(gate->sock, NULL);
}

static size_t put(char *out, const char *text)
{
    size_t len = strlen(text);
    memcpy(out, text, len);
    return len;
}

enum { MADE_HEAD_MAX = 64 }; /* 14 + 15 + 20 digits + 4 bytes */

/* Anything libh2o wants to know: a method, a path, a length. What was asked for is in the intake. */
static size_t make_head(char out[MADE_HEAD_MAX], size_t body_bytes)
{
    char digits[20];
    size_t len = put(out, "P / HTTP/1.1\r\n"), count = 0;
    if (body_bytes != 0) {
        len += put(out + len, "Content-Length:");
        for (; body_bytes != 0; body_bytes /= 10)
            digits[count++] = (char)('0' + body_bytes % 10);
        while (count != 0)
            out[len++] = digits[--count];
        len += put(out + len, "\r\n");
    }
    return len + put(out + len, "\r\n");
}

static void hand_over_request(gate_t *gate)
{
    char head[MADE_HEAD_MAX];
    size_t whole = gate->head_bytes + gate->body_bytes;
    if (gate->sock->input->size > whole) {
        /* a second request on the heels of the first would reach libh2o unchecked: it is left unread, and the close
         * says so */
        gate->keep = false;
        gate->close_reason = METRIC_CLOSE_PIPELINED;
        gate->sock->input->size = whole;
    }
    size_t len = make_head(head, gate->body_bytes);
    replace_head(gate, head, len);
    hand_over(gate);
}

/* The rest of the request is left unread: the connection ends after the answer, half-closed first, so that a reset for
 * the unread bytes cannot overtake the refusal (spec 1.1). */
static void hand_over_refusal(gate_t *gate, bool unread)
{
    static const char head[] = "P / HTTP/1.1\r\n\r\n";
    h2o_buffer_consume(&gate->sock->input, gate->sock->input->size);
    h2o_iovec_t room = h2o_buffer_reserve(&gate->sock->input, sizeof(head) - 1);
    memcpy(room.base, head, sizeof(head) - 1);
    gate->sock->input->size = sizeof(head) - 1;
    if (unread) {
        gate->keep = false;
        if (gate->close_reason == METRIC_CLOSE_PEER)
            gate->close_reason = METRIC_CLOSE_UNREAD_BODY;
        gate->linger_fd = fcntl(h2o_socket_get_fd(gate->sock), F_DUPFD_CLOEXEC, 0);
    }
    h2o_socket_read_stop(gate->sock);
    hand_over(gate);
}

/* --- reading --- */

static void on_continue_written(h2o_socket_t *sock, const char *err)
{
    gate_t *gate = sock->on_close.data;
    gate_check(gate);
    gate->writing_continue = false;
    if (err != NULL) {
        sock->_cb.read = gate->inner;
        gate->inner(sock, err);
        return;
    }
    advance(gate);
}

static void time_body(gate_t *gate)
{
    uint64_t spent = clock_mono_ms() - gate->request_began_ms;
    uint32_t read_ms = limit_of(gate, gate->lane->front->read_ms);
    loop_timer_start(gate->lane->loop, &gate->timer, spent < read_ms ? read_ms - spent : 1);
}

void gate_await_body(gate_t *gate)
{
    gate_move(gate, GATE_BODY);
    time_body(gate);
}

static void body_begins(gate_t *gate, const head_t *head)
{
    static h2o_iovec_t go_on = {H2O_STRLIT("HTTP/1.1 100 Continue\r\n\r\n")};
    bool some_came = gate->sock->input->size > gate->head_bytes;
    gate_move(gate, GATE_BODY);
    gate->is_chunked = head->chunked;
    gate->length = head->has_length ? head->length : 0;
    gate->body_bytes = 0;
    gate->chunked = (chunked_t){0};
    if (head->expects_continue && !some_came && (head->chunked || gate->length != 0)) {
        gate->writing_continue = true;
        h2o_socket_write(gate->sock, &go_on, 1, on_continue_written);
    }
}

static void on_head(gate_t *gate, const head_t *head)
{
    struct sockaddr_storage peer;
    refusal_t refusal;
    bool has_body = head->chunked || (head->has_length && head->length != 0);
    gate_peer(gate, &peer);
    gate->head_bytes = head->bytes;
    gate->keep = head->persistent && !atomic_load_explicit(&gate->lane->front->draining, memory_order_relaxed);
    if (!gate->keep)
        gate->close_reason = METRIC_CLOSE_NOT_PERSISTENT;
    if (!intake_decide(gate->lane, head, (void *)&peer, gate->metrics, &gate->intake, &refusal)) {
        *gate_refuse(gate) = refusal;
        /* nothing of the refused request stays held, whatever else is still to be sent of it */
        intake_release(gate->lane, &gate->intake);
        hand_over_refusal(gate, has_body || gate->sock->input->size > head->bytes);
        return;
    }
    if (has_body && !route_is_procedure(gate->intake.route.kind)) {
        /* a body nobody asked for is not read */
        gate->body_bytes = 0;
        gate->sock->input->size = head->bytes;
        gate->keep = false;
        gate->close_reason = METRIC_CLOSE_UNREAD_BODY;
        gate->linger_fd = fcntl(h2o_socket_get_fd(gate->sock), F_DUPFD_CLOEXEC, 0);
        h2o_socket_read_stop(gate->sock);
        hand_over_request(gate);
        return;
    }
    body_begins(gate, head);
}

static void on_bad_head(gate_t *gate, const head_t *head, head_result_t result, const char *why)
{
    struct sockaddr_storage peer;
    gate_peer(gate, &peer);
    intake_identify(gate->lane, head, (void *)&peer, &gate->intake);
    gate->close_reason = METRIC_CLOSE_BAD_HEAD;
    refusal_set_http(gate_refuse(gate), result == HEAD_TOO_LARGE ? 431 : 400, CODE_INVALID_ARGUMENT,
                     "the request's head is malformed: %s", why);
    hand_over_refusal(gate, true);
}

static void refuse_body(gate_t *gate, bool bad)
{
    if (bad) {
        gate->close_reason = METRIC_CLOSE_BAD_HEAD;
        refusal_set_http(gate_refuse(gate), 400, CODE_INVALID_ARGUMENT, "the chunked body is malformed");
    } else {
        gate_refuse_large_body(gate);
    }
    intake_release(gate->lane, &gate->intake);
    hand_over_refusal(gate, true);
}

/* Takes what has come of a chunked body. true: it is complete. */
static bool advance_chunked(gate_t *gate)
{
    h2o_buffer_t *input = gate->sock->input;
    char *body = input->bytes + gate->head_bytes;
    size_t extra, fresh = input->size - gate->head_bytes - gate->body_bytes;
    chunked_result_t result = chunked_feed(&gate->chunked, body, &gate->body_bytes, fresh, BODY_MAX, &extra);
    if (result == CHUNKED_BAD || result == CHUNKED_TOO_LARGE) {
        refuse_body(gate, result == CHUNKED_BAD);
        return false;
    }
    input->size = gate->head_bytes + gate->body_bytes + extra;
    if (!gate_hold_body(gate, gate->body_bytes)) {
        intake_release(gate->lane, &gate->intake);
        hand_over_refusal(gate, true);
        return false;
    }
    return result == CHUNKED_DONE;
}

static void advance_body(gate_t *gate)
{
    h2o_buffer_t *input = gate->sock->input;
    if (gate->writing_continue)
        return; /* nothing may be written while our line is on its way; on_continue_written goes on */
    if (gate->is_chunked) {
        if (!advance_chunked(gate))
            return;
    } else {
        size_t have = input->size - gate->head_bytes;
        if (have < gate->length) {
            /* the rest in one piece, rather than by doubling and copying */
            h2o_buffer_reserve(&gate->sock->input, (size_t)(gate->length - have));
            return;
        }
        gate->body_bytes = (size_t)gate->length;
    }
    h2o_socket_read_stop(gate->sock);
    hand_over_request(gate);
}

/* Most requests come in one piece: a timer is started only for what is still awaited. The one that runs until then is
 * the idle time's, or, of a connection's first request, already the head's. */
static void advance(gate_t *gate)
{
    head_t head;
    const char *why;
    bool begins = false, has_head = false;
    if (gate->state == GATE_IDLE && gate->sock->input->size != 0) {
        gate_move(gate, GATE_HEAD);
        gate->scanned = 0;
        gate->request_began_ms = clock_mono_ms();
        begins = !gate->first;
        gate->first = false;
    }
    if (gate->state == GATE_HEAD) {
        head_result_t result =
            head_parse(gate->sock->input->bytes, gate->sock->input->size, &gate->scanned, &head, &why);
        if (result == HEAD_INCOMPLETE) {
            if (begins)
                loop_timer_start(gate->lane->loop, &gate->timer, gate->lane->front->header_ms);
            return;
        }
        has_head = true;
        if (result == HEAD_OK)
            on_head(gate, &head);
        else
            on_bad_head(gate, &head, result, why);
    }
    if (gate->state == GATE_BODY)
        advance_body(gate);
    if (gate->state == GATE_BODY && has_head)
        time_body(gate);
}

static void on_read(h2o_socket_t *sock, const char *err)
{
    gate_t *gate = sock->on_close.data;
    gate_check(gate);
    if (err != NULL) {
        sock->_cb.read = gate->inner;
        gate->inner(sock, err);
        return;
    }
    if (gate->state == GATE_IDLE || gate->state == GATE_HEAD || gate->state == GATE_BODY)
        advance(gate);
}

/* --- a connection's life --- */

/* Stands before libh2o's read callback. */
static void step_in(gate_t *gate)
{
    gate->inner = gate->sock->_cb.read;
    if (gate->inner == NULL)
        mem_fatal("libh2o is not reading a connection it should");
    gate->sock->_cb.read = on_read;
}

static void on_rearm(loop_task_t *task)
{
    gate_t *gate = task->data;
    gate_check(gate);
    front_t *front = gate->lane->front;
    gate_move(gate, GATE_IDLE);
    step_in(gate);
    if (atomic_load_explicit(&front->draining, memory_order_relaxed)) {
        gate_close(gate, METRIC_CLOSE_DRAIN);
        return;
    }
    loop_timer_start(gate->lane->loop, &gate->timer, front->idle_ms);
    advance(gate);
}

void gate_request_done(gate_t *gate)
{
    gate_check(gate);
    gate_unwatch(gate);
    intake_release(gate->lane, &gate->intake);
    free(gate->refusal);
    gate->refusal = NULL;
    loop_timer_stop(&gate->timer);
    /* libh2o goes on in its own call chain; when it kept the connection, we step in again at the end of the tick */
    if (gate->keep && gate->stream == NULL)
        loop_defer(gate->lane->loop, &gate->rearm);
}

void gate_answering(gate_t *gate)
{
    gate_move(gate, GATE_ANSWERING);
    loop_timer_start(gate->lane->loop, &gate->timer, limit_of(gate, gate->lane->front->write_ms));
}

static void on_close(void *data)
{
    gate_t *gate = data;
    gate_check(gate);
    lane_t *lane = gate->lane;
    front_t *front = lane->front;
    if (gate->http2 != NULL)
        http2_destroy(gate->http2);
    metric_inc(gate->close_reason);
    metric_add(METRIC_CONNECTIONS_OPEN, -1);
    gate_unwatch(gate);
    intake_release(lane, &gate->intake);
    loop_timer_stop(&gate->timer);
    loop_task_cancel(lane->loop, &gate->rearm);
    if (gate->counted)
        address_count_give(front->addresses, &gate->address_key);
    if (gate->linger_fd >= 0)
        linger(lane, gate->linger_fd);
    if (gate->next != NULL)
        gate->next->prev = gate->prev;
    if (gate->prev != NULL)
        gate->prev->next = gate->next;
    else
        lane->gates = gate->next;
    if (gate->metrics)
        lane->metrics_connections--;
    else
        atomic_fetch_sub_explicit(&front->connections, 1, memory_order_relaxed);
    free(gate->refusal);
    gate->magic = 0;
    free(gate);
    front_lane_changed(lane);
}

static void begin(gate_t *gate)
{
    /* What the handshake brought along must not reach libh2o's parser, which starts by itself on a non-empty buffer. */
    h2o_buffer_t *early = gate->sock->input;
    h2o_buffer_init(&gate->sock->input, &h2o_socket_buffer_prototype);
    struct timeval now = *h2o_get_timestamp(&gate->lane->h2o, NULL, NULL);
    h2o_http1_accept(&gate->lane->accept, gate->sock, now);
    h2o_buffer_dispose(&gate->sock->input);
    gate->sock->input = early;
    step_in(gate);
    advance(gate);
}

static void begin_http2(gate_t *gate)
{
    gate_move(gate, GATE_HTTP2);
    gate->http2 = http2_create(gate);
}

static void on_handshake(h2o_socket_t *sock, const char *err)
{
    gate_t *gate = sock->data;
    gate_check(gate);
    if (err != NULL) {
        gate->close_reason = METRIC_CLOSE_TLS;
        h2o_socket_close(sock);
        return;
    }
    h2o_iovec_t chosen = h2o_socket_ssl_get_selected_protocol(sock);
    if (gate->lane->front->http2 && h2o_memis(chosen.base, chosen.len, H2O_STRLIT("h2"))) {
        begin_http2(gate);
        return;
    }
    gate_move(gate, GATE_IDLE);
    begin(gate);
}

/* Cleartext that may be HTTP/2 by prior knowledge: the first bytes decide who reads on. */
static void on_first_bytes(h2o_socket_t *sock, const char *err)
{
    gate_t *gate = sock->on_close.data;
    gate_check(gate);
    if (err != NULL) {
        h2o_socket_close(sock);
        return;
    }
    preface_t preface = http2_look(sock->input->bytes, sock->input->size);
    if (preface == PREFACE_WHOLE)
        begin_http2(gate);
    else if (preface == PREFACE_NONE)
        begin(gate);
}

void gate_accept(lane_t *lane, h2o_socket_t *sock, bool metrics)
{
    front_t *front = lane->front;
    struct sockaddr_storage peer;
    gate_t *gate = mem_alloc(sizeof(*gate));
    gate->magic = GATE_MAGIC;
    gate->lane = lane;
    gate->sock = sock;
    gate->metrics = metrics;
    gate->first = true;
    gate->linger_fd = -1;
    gate->close_reason = METRIC_CLOSE_PEER;
    gate->state = front->tls != NULL ? GATE_HANDSHAKE : GATE_IDLE;
    loop_timer_init(&gate->timer, on_timer, gate);
    loop_task_init(&gate->rearm, on_rearm, gate);
    if ((gate->next = lane->gates) != NULL)
        gate->next->prev = gate;
    lane->gates = gate;
    sock->on_close.cb = on_close;
    sock->on_close.data = gate;
    metric_inc(METRIC_CONNECTIONS);
    metric_add(METRIC_CONNECTIONS_OPEN, 1);
    if (metrics)
        lane->metrics_connections++;
    else
        atomic_fetch_add_explicit(&front->connections, 1, memory_order_relaxed);
    if (h2o_socket_getpeername(sock, (void *)&peer) == 0) {
        h2o_socket_close(sock);
        return;
    }
    if (!metrics && !proxies_contain(front->proxies, (void *)&peer)) {
        gate->counted = address_count_take(front->addresses, (void *)&peer, &gate->address_key);
        if (!gate->counted) {
            gate->close_reason = METRIC_CLOSE_ADDRESS_CAP;
            h2o_socket_close(sock);
            return;
        }
    }
    loop_timer_start(lane->loop, &gate->timer, front->header_ms);
    if (front->tls != NULL) {
        sock->data = gate;
        h2o_socket_ssl_handshake(sock, front->tls, NULL, on_handshake);
    } else if (front->http2) {
        h2o_socket_read_start(sock, on_first_bytes);
    } else {
        begin(gate);
    }
}

void gate_open_stream(gate_t *gate, const gate_t *connection, struct http2_stream *stream)
{
    gate->magic = GATE_MAGIC;
    gate->lane = connection->lane;
    gate->metrics = connection->metrics;
    gate->stream = stream;
    gate->linger_fd = -1;
    gate->state = GATE_HEAD;
    gate->keep = true;
    gate->request_began_ms = clock_mono_ms();
    loop_timer_init(&gate->timer, on_timer, gate);
    loop_timer_start(gate->lane->loop, &gate->timer, gate->lane->front->header_ms);
}

gate_t *gate_of(h2o_req_t *req)
{
    gate_t *gate =
        req->version >= 0x200 ? http2_stream_gate(req) : req->conn->callbacks->get_socket(req->conn)->on_close.data;
    gate_check(gate);
    return gate;
}

void gate_drain(lane_t *lane, bool metrics)
{
    for (gate_t *gate = lane->gates; gate != NULL; gate = gate->next)
        if (gate->metrics ? metrics : gate->state == GATE_IDLE || gate->state == GATE_HANDSHAKE)
            gate_close(gate, METRIC_CLOSE_DRAIN);
        else if (gate->state == GATE_HTTP2 && !gate->metrics)
            http2_drain(gate->http2);
}

bool gate_has_callers(const lane_t *lane)
{
    const gate_t *gate = lane->gates;
    while (gate != NULL && gate->metrics)
        gate = gate->next;
    return gate != NULL;
}
