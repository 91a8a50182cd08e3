#include "gateway/http2_stream.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "gateway/http2.h"

enum { STREAM_MAGIC = 0x68327374 };

static void stream_check(const http2_stream_t *s)
{
    if (s == NULL || s->magic != STREAM_MAGIC)
        mem_fatal("not a stream");
}

/* --- libh2o's view --- */

static socklen_t no_name(h2o_conn_t *conn, struct sockaddr *sa)
{
    (void)conn;
    (void)sa;
    return 0;
}

static h2o_socket_t *no_socket(h2o_conn_t *conn)
{
    (void)conn;
    return NULL; /* the request may outlive it; gate_of asks http2_stream_gate instead */
}

/* Everything is answered in one piece. */
static void on_send(h2o_ostream_t *out, h2o_req_t *req, h2o_iovec_t *bufs, size_t count, h2o_send_state_t state)
{
    http2_stream_t *s = H2O_STRUCT_FROM_MEMBER(http2_stream_t, out, out);
    (void)req;
    stream_check(s);
    if (state != H2O_SEND_STATE_FINAL || count > 1)
        mem_fatal("an answer in pieces");
    if (s->gone) {
        /* not in the handler's own call chain */
        loop_defer(s->gate.lane->loop, &s->bury);
        return;
    }
    s->answer = count != 0 ? bufs[0] : h2o_iovec_init(NULL, 0);
    http2_answer(s->conn, s);
}

gate_t *http2_stream_gate(h2o_req_t *req)
{
    http2_stream_t *s = H2O_STRUCT_FROM_MEMBER(http2_stream_t, req, req);
    stream_check(s);
    return &s->gate;
}

/* --- its life --- */

static bool was_dispatched(const http2_stream_t *s)
{
    return s->gate.state == GATE_HANDLING || s->gate.state == GATE_ANSWERING;
}

static void stream_free(http2_stream_t *s)
{
    http2_t *conn = s->conn;
    if (conn != NULL) {
        if (s->next != NULL)
            s->next->prev = s->prev;
        if (s->prev != NULL)
            s->prev->next = s->next;
        else
            conn->streams = s->next;
    }
    if (was_dispatched(s))
        h2o_dispose_request(&s->req);
    gate_request_done(&s->gate);
    loop_task_cancel(s->gate.lane->loop, &s->bury);
    http2_head_dispose(&s->head);
    buffer_dispose(&s->body);
    s->magic = 0;
    free(s);
}

static void on_bury(loop_task_t *task)
{
    http2_stream_t *s = task->data;
    stream_check(s);
    if (s->conn != NULL)
        s->conn->winding--;
    stream_free(s);
}

http2_stream_t *http2_stream_create(http2_t *conn, int32_t id)
{
    http2_stream_t *s = mem_alloc(sizeof(*s)), **at = &conn->streams;
    s->magic = STREAM_MAGIC;
    s->id = id;
    s->conn = conn;
    gate_open_stream(&s->gate, conn->gate, s);
    http2_head_init(&s->head);
    buffer_init(&s->body, BODY_MAX);
    loop_task_init(&s->bury, on_bury, s);
    while (*at != NULL) {
        s->prev = *at;
        at = &(*at)->next;
    }
    *at = s;
    conn->open++;
    return s;
}

void http2_stream_gone(http2_stream_t *s)
{
    stream_check(s);
    s->gone = true;
    s->conn->open--;
    if (s->gate.state != GATE_HANDLING) {
        /* it never started, or its handler has answered and forgotten it */
        stream_free(s);
        return;
    }
    loop_timer_stop(&s->gate.timer);
    s->conn->winding++;
    gate_hang_up(&s->gate);
}

void http2_stream_stop(http2_stream_t *s, metric_t reason)
{
    stream_check(s);
    if (s->gone)
        return;
    if (s->gate.state == GATE_HEAD)
        /* the rest of its head would have to be waited for before anything else can be read */
        http2_end(s->conn, reason, NGHTTP2_NO_ERROR);
    else
        http2_reset(s->conn, s, s->is_out ? NGHTTP2_NO_ERROR : NGHTTP2_CANCEL);
}

void http2_stream_out(http2_stream_t *s, bool ended)
{
    stream_check(s);
    s->is_out = true;
    if (!ended)
        /* answered before the body was read. A reset right behind the answer would cost some clients the answer, so the
         * rest of the body is discarded for a while, as it is in HTTP/1.1 */
        loop_timer_start(s->gate.lane->loop, &s->gate.timer, LINGER_MS);
}

/* --- the request, as it comes --- */

void http2_stream_field(http2_stream_t *s, const uint8_t *name, size_t name_len, const uint8_t *value, size_t value_len)
{
    stream_check(s);
    http2_head_add(&s->head, name, name_len, value, value_len);
}

static void make_ready(http2_stream_t *s)
{
    loop_timer_stop(&s->gate.timer);
    s->ready = true;
    http2_turn(s->conn);
}

/* What was read of the body serves nobody any more. */
static void refuse(http2_stream_t *s)
{
    intake_release(s->gate.lane, &s->gate.intake);
    buffer_dispose(&s->body);
    make_ready(s);
}

static void decide(http2_stream_t *s, const head_t *head, bool ended)
{
    gate_t *gate = &s->gate;
    struct sockaddr_storage peer;
    refusal_t refusal;
    gate_peer(s->conn->gate, &peer);
    if (!intake_decide(gate->lane, head, (void *)&peer, gate->metrics, &gate->intake, &refusal)) {
        *gate_refuse(gate) = refusal;
        refuse(s);
        return;
    }
    if (ended || !route_is_procedure(gate->intake.route.kind)) {
        /* a body nobody asked for is not read */
        make_ready(s);
        return;
    }
    if (head->has_length)
        buffer_reserve(&s->body, (size_t)head->length);
    gate_await_body(gate);
    if (head->expects_continue)
        http2_continue(s->conn, s);
}

void http2_stream_head_done(http2_stream_t *s, bool ended)
{
    struct sockaddr_storage peer;
    head_t head;
    const char *why;
    stream_check(s);
    gate_t *gate = &s->gate;
    head_result_t result = http2_head_parse(&s->head, &head, &why);
    if (result == HEAD_OK) {
        /* a body of no declared length is held as a chunked one is */
        head.chunked = !ended && !head.has_length;
        decide(s, &head, ended);
    } else {
        gate_peer(s->conn->gate, &peer);
        intake_identify(gate->lane, &head, (void *)&peer, &gate->intake);
        refusal_set_http(gate_refuse(gate), result == HEAD_TOO_LARGE ? 431 : 400, CODE_INVALID_ARGUMENT,
                         "the request's head is malformed: %s", why);
        refuse(s);
    }
    http2_head_dispose(&s->head);
}

void http2_stream_data(http2_stream_t *s, const uint8_t *data, size_t len)
{
    stream_check(s);
    if (s->gate.state != GATE_BODY || s->ready) {
        /* of a request that is refused, or that has no use for it */
        if (s->is_out && (s->discarded += len) > LINGER_BYTES && s->discarded - len <= LINGER_BYTES)
            http2_reset(s->conn, s, NGHTTP2_NO_ERROR);
        return;
    }
    if (!gate_hold_body(&s->gate, s->body.len + len)) {
        refuse(s);
        return;
    }
    buffer_append(&s->body, data, len);
}

void http2_stream_body_done(http2_stream_t *s)
{
    stream_check(s);
    if (s->gate.state == GATE_BODY && !s->ready)
        make_ready(s);
}

void http2_stream_dispatch(http2_stream_t *s)
{
    static const h2o_conn_callbacks_t callbacks = {
        .get_sockname = no_name, .get_peername = no_name, .get_socket = no_socket};
    stream_check(s);
    lane_t *lane = s->gate.lane;
    s->ready = false;
    gate_handle(&s->gate);
    s->peer.ctx = &lane->h2o;
    s->peer.hosts = lane->accept.hosts;
    s->peer.connected_at = *h2o_get_timestamp(&lane->h2o, NULL, NULL);
    s->peer.callbacks = &callbacks;
    h2o_init_request(&s->req, &s->peer, NULL);
    s->out.do_send = on_send;
    s->req._ostr_top = &s->out;
    s->req.version = 0x200;
    /* anything libh2o wants to know; what was asked for is in the intake */
    s->req.input.method = h2o_iovec_init(H2O_STRLIT("P"));
    s->req.input.path = h2o_iovec_init(H2O_STRLIT("/"));
    s->req.input.scheme = &H2O_URL_SCHEME_HTTP;
    if (s->body.len != 0)
        s->req.entity = h2o_iovec_init((char *)s->body.base, s->body.len);
    h2o_process_request(&s->req);
}
