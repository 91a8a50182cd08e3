/* The gRPC client against a server that speaks HTTP/2 frame by frame. */
#include "grpc_fixture.h"

#include <fcntl.h>

static bool answer(peer_t *p, uint32_t stream, const char *text)
{
    return peer_head(p, stream, 0, HEAD_OK) && peer_message(p, stream, text) &&
           peer_head(p, stream, END_STREAM, TRAILERS_OK);
}

/* --- unary calls --- */

static char seen_head[2048];
static uint8_t seen_body[64];
static size_t seen_len;

static void answers_all(conn_t *conn)
{
    peer_t p;
    uint32_t stream;
    if (peer_open(&p, conn)) {
        while ((stream = peer_request(&p)) != 0) {
            memcpy(seen_head, p.head, sizeof(seen_head));
            seen_len = p.body_len < sizeof(seen_body) ? p.body_len : sizeof(seen_body);
            memcpy(seen_body, p.body, seen_len);
            answer(&p, stream, "yes");
        }
    }
    peer_close(&p);
}

static void a_unary_call(void **state)
{
    (void)state;
    server_t *s = serve(answers_all);
    unary_t u;
    for (int i = 0; i < 3; ++i) {
        unary(&u, 3000);
        assert_true(u.is_ok);
        assert_int_equal(u.answer.len, 3);
        assert_memory_equal(u.answer.base, "yes", 3);
        assert_int_equal(strlen(u.end.request_id), 16);
        buffer_dispose(&u.answer);
    }
    assert_int_equal(atomic_load(&s->connections), 1);
    server_stop(s);
    /* pseudo headers first, and what gRPC demands */
    assert_int_equal(
        strncmp(seen_head, ":method: POST\n:scheme: http\n:path: /test.Service/Method\n:authority: 127.0.0.1:",
                strlen(":method: POST\n:scheme: http\n:path: /test.Service/Method\n:authority: 127.0.0.1:")),
        0);
    assert_non_null(strstr(seen_head, "\nte: trailers\ncontent-type: application/grpc\n"));
    assert_non_null(strstr(seen_head, "\nx-request-id: "));
    assert_null(strstr(seen_head, "content-length"));
    assert_null(strstr(seen_head, "grpc-encoding"));
    assert_int_equal(seen_len, 8);
    assert_memory_equal(seen_body, "\0\0\0\0\3ask", 8);
}

static void only_trailers(conn_t *conn)
{
    peer_t p;
    uint32_t stream;
    if (peer_open(&p, conn)) {
        while (peer_await(&p, F_HEADERS)) {
            stream = p.frame.stream;
            /* an answer before the request is whole, and the connection stays */
            peer_head(&p, stream, END_STREAM,
                      HEAD_OK "grpc-status\0"
                              "7\0"
                              "grpc-message\0"
                              "not%20yours\0");
        }
    }
    peer_close(&p);
}

static void a_refusal_by_trailers_alone_ends_the_call_at_once(void **state)
{
    (void)state;
    server_t *s = serve(only_trailers);
    unary_t u;
    uint64_t began = clock_mono_ms();
    unary(&u, 5000);
    assert_false(u.is_ok);
    assert_int_equal(u.end.code, GRPC_PERMISSION_DENIED);
    assert_int_equal(u.end.origin, GRPC_BY_SERVER);
    assert_string_equal(u.end.message, "not yours");
    assert_true(clock_mono_ms() - began < 1000);
    unary(&u, 5000);
    assert_int_equal(u.end.code, GRPC_PERMISSION_DENIED);
    assert_int_equal(atomic_load(&s->connections), 1);
    server_stop(s);
}

/* --- how calls end otherwise --- */

enum {
    ACT_REFUSE,
    ACT_GOAWAY_BELOW,
    ACT_GOAWAY_AT,
    ACT_CLOSE,
    ACT_RESET,
    ACT_RST_INTERNAL,
    ACT_NO_TRAILERS,
    ACT_HTML,
    ACT_INSIDE,
    ACT_COMPRESSED,
    ACT_TWO,
    ACT_GARBAGE
};
static int act;

static void acts(conn_t *conn)
{
    peer_t p;
    uint32_t stream;
    if (!peer_open(&p, conn) || (stream = peer_request(&p)) == 0)
        goto End;
    switch (act) {
    case ACT_REFUSE:
        peer_rst(&p, stream, 7);
        break;
    case ACT_GOAWAY_BELOW:
        peer_goaway(&p, stream - 1);
        break;
    case ACT_GOAWAY_AT:
        peer_goaway(&p, stream);
        answer(&p, stream, "late");
        break;
    case ACT_CLOSE:
        goto End;
    case ACT_RESET:
        reset(conn);
        goto End;
    case ACT_RST_INTERNAL:
        peer_head(&p, stream, 0, HEAD_OK);
        peer_rst(&p, stream, 2);
        break;
    case ACT_NO_TRAILERS:
        peer_head(&p, stream, 0, HEAD_OK);
        peer_data(&p, stream, END_STREAM, "\0\0\0\0\3yes", 8);
        break;
    case ACT_HTML:
        peer_head(&p, stream, 0,
                  ":status\0"
                  "502\0"
                  "content-type\0"
                  "text/html\0");
        peer_data(&p, stream, END_STREAM, "<html>sorry</html>", 18);
        break;
    case ACT_INSIDE:
        peer_head(&p, stream, 0, HEAD_OK);
        peer_data(&p, stream, 0, "\0\0\0\0\3y", 6);
        goto End;
    case ACT_COMPRESSED:
        peer_head(&p, stream, 0, HEAD_OK);
        peer_data(&p, stream, 0, "\1\0\0\0\3yes", 8);
        break;
    case ACT_TWO:
        peer_head(&p, stream, 0, HEAD_OK);
        peer_message(&p, stream, "a");
        peer_message(&p, stream, "b");
        peer_head(&p, stream, END_STREAM, TRAILERS_OK);
        break;
    case ACT_GARBAGE:
        say(conn, "HTTP/1.1 400 Bad Request\r\n\r\n and so on, long enough to be a frame's head");
        break;
    }
    while (peer_next(&p))
        ;
End:
    peer_close(&p);
}

static void ends(void **state)
{
    (void)state;
    static const struct {
        int act;
        grpc_code_t code;
        bool may_have_run;
    } rows[] = {
        {ACT_REFUSE, GRPC_UNAVAILABLE, false}, {ACT_GOAWAY_BELOW, GRPC_UNAVAILABLE, false},
        {ACT_GOAWAY_AT, GRPC_OK, true},        {ACT_CLOSE, GRPC_UNAVAILABLE, true},
        {ACT_RESET, GRPC_UNAVAILABLE, true},   {ACT_RST_INTERNAL, GRPC_INTERNAL, true},
        {ACT_NO_TRAILERS, GRPC_UNKNOWN, true}, {ACT_HTML, GRPC_UNAVAILABLE, true},
        {ACT_INSIDE, GRPC_UNAVAILABLE, true},  {ACT_COMPRESSED, GRPC_INTERNAL, true},
        {ACT_TWO, GRPC_INTERNAL, true},        {ACT_GARBAGE, GRPC_UNAVAILABLE, true},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        unary_t u;
        act = rows[i].act;
        server_t *s = serve(acts);
        unary(&u, 3000);
        if (u.end.code != rows[i].code || (u.end.code != GRPC_OK && u.end.may_have_run != rows[i].may_have_run))
            fail_msg("act %d: %s, may have run %d: %s", act, grpc_code_name(u.end.code), u.end.may_have_run,
                     u.end.message);
        assert_int_equal(u.answer.len, u.is_ok ? 4 : 0);
        buffer_dispose(&u.answer);
        grpc_channel_destroy(channel);
        channel = NULL;
        server_stop(s);
    }
}

static void nobody_there(void **state)
{
    (void)state;
    server_t *s = serve(answers_all);
    unary_t u;
    server_stop(s);
    unary(&u, 3000);
    assert_int_equal(u.end.code, GRPC_UNAVAILABLE);
    assert_int_equal(u.end.origin, GRPC_BY_CONNECT);
    assert_false(u.end.may_have_run);
    assert_string_equal(u.end.message, "cannot connect: Connection refused");
}

static void says_nothing(conn_t *conn)
{
    hold(conn);
}

/* Connected, and no HTTP/2 comes: the call was never sent. */
static void silence_before_the_first_settings(void **state)
{
    (void)state;
    server_t *s = serve(says_nothing);
    unary_t u;
    unary(&u, 200);
    assert_int_equal(u.end.code, GRPC_DEADLINE_EXCEEDED);
    assert_int_equal(u.end.origin, GRPC_BY_DEADLINE);
    assert_false(u.end.may_have_run);
    unary(&u, 10000);
    assert_int_equal(u.end.origin, GRPC_BY_CONNECT);
    server_stop(s);
}

/* A second call after the server has closed the idle connection: a new one, and the call is sent once. */
static void answers_one_and_closes(conn_t *conn)
{
    peer_t p;
    uint32_t stream;
    if (peer_open(&p, conn) && (stream = peer_request(&p)) != 0)
        answer(&p, stream, "yes");
    peer_close(&p);
}

static void reconnects(void **state)
{
    (void)state;
    server_t *s = serve(answers_one_and_closes);
    for (unsigned i = 1; i <= 3; ++i) {
        unary_t u;
        unary(&u, 3000);
        assert_true(u.is_ok);
        buffer_dispose(&u.answer);
        wait_for(grpc_channel_connections(channel) == 0);
        assert_int_equal(atomic_load(&s->connections), i);
    }
    server_stop(s);
}

/* --- deadlines and cancels --- */

static atomic_uint reset_code;

static void waits_for_reset(conn_t *conn)
{
    peer_t p;
    atomic_store(&reset_code, 99);
    if (peer_open(&p, conn)) {
        while (peer_next(&p))
            if (p.frame.type == F_RST)
                atomic_store(&reset_code, frame_number(&p));
    }
    peer_close(&p);
}

static void a_deadline_resets_the_stream(void **state)
{
    (void)state;
    server_t *s = serve(waits_for_reset);
    unary_t u;
    uint64_t began = clock_mono_ms();
    unary(&u, 300);
    assert_int_equal(u.end.code, GRPC_DEADLINE_EXCEEDED);
    assert_int_equal(u.end.origin, GRPC_BY_DEADLINE);
    assert_true(u.end.may_have_run);
    assert_in_range(clock_mono_ms() - began, 300, 600);
    wait_for(atomic_load(&reset_code) == 8);
    assert_int_equal(grpc_channel_connections(channel), 1);
    server_stop(s);
}

static void a_cancel_resets_the_stream(void **state)
{
    (void)state;
    server_t *s = serve(waits_for_reset);
    unary_t u;
    unary_start(&u, 5000);
    wait_for(atomic_load(&s->connections) == 1 && grpc_channel_connections(channel) == 1);
    for (int i = 0; i < 10; ++i)
        loop_run_once(loop, 10);
    co_cancel(u.co);
    wait_for(u.has_ended);
    assert_int_equal(u.end.code, GRPC_CANCELLED);
    assert_int_equal(u.end.origin, GRPC_BY_CANCEL);
    wait_for(atomic_load(&reset_code) == 8);
    server_stop(s);
}

/* --- both directions --- */

static void echoes(conn_t *conn)
{
    peer_t p;
    if (peer_open(&p, conn) && peer_await(&p, F_HEADERS)) {
        uint32_t stream = p.frame.stream;
        peer_head(&p, stream, 0, HEAD_OK);
        while ((p.frame.flags & END_STREAM) == 0 && peer_next(&p))
            if (p.frame.type == F_DATA && p.frame.len > 0)
                peer_data(&p, stream, 0, p.frame.payload, p.frame.len);
        peer_head(&p, stream, END_STREAM, TRAILERS_OK);
        hold(conn);
    }
    peer_close(&p);
}

static void expect_message(grpc_call_t *call, const char *text)
{
    const uint8_t *message;
    size_t len;
    assert_int_equal(grpc_call_next(call, in_ms(3000), &message, &len), GRPC_MESSAGE);
    assert_int_equal(len, strlen(text));
    assert_memory_equal(message, text, len);
}

static void ping_pong_body(void *arg)
{
    const uint8_t *message;
    size_t len;
    (void)arg;
    grpc_call_t *call = grpc_call_open(channel, "/test.Service/Both", false);
    assert_false(grpc_call_may_have_run(call));
    for (int i = 0; i < 3; ++i) {
        char text[16];
        snprintf(text, sizeof(text), "turn %d", i);
        assert_true(grpc_call_send(call, text, strlen(text)));
        expect_message(call, text);
        assert_true(grpc_call_may_have_run(call));
    }
    assert_int_equal(grpc_call_next(call, in_ms(50), &message, &len), GRPC_LATE);
    grpc_call_finish(call);
    assert_false(grpc_call_send(call, "x", 1));
    assert_int_equal(grpc_call_next(call, in_ms(3000), &message, &len), GRPC_ENDED);
    assert_int_equal(grpc_call_end(call)->code, GRPC_OK);
    grpc_call_close(call);
}

static void ping_pong(void **state)
{
    (void)state;
    server_t *s = serve(echoes);
    in_coroutine(ping_pong_body);
    server_stop(s);
}

/* Nothing of the request is read, and the answer is whole: 16 MiB stay behind. */
static void never_reads(conn_t *conn)
{
    peer_t p;
    if (peer_open(&p, conn) && peer_await(&p, F_HEADERS)) {
        uint32_t stream = p.frame.stream;
        peer_head(&p, stream, 0, HEAD_OK);
        peer_message(&p, stream, "seven");
        peer_head(&p, stream, END_STREAM, TRAILERS_OK);
        atomic_store(&reset_code, 99);
        while (peer_next(&p))
            if (p.frame.type == F_RST)
                atomic_store(&reset_code, frame_number(&p));
    }
    peer_close(&p);
}

static void never_reads_body(void *arg)
{
    const uint8_t *message;
    size_t len;
    (void)arg;
    char *chunk = calloc(1, 65536);
    grpc_call_t *call = grpc_call_open(channel, "/test.Service/Both", false);
    for (int i = 0; i < 256; ++i)
        assert_true(grpc_call_send(call, chunk, 65536));
    free(chunk);
    grpc_call_finish(call);
    expect_message(call, "seven");
    assert_int_equal(grpc_call_next(call, in_ms(3000), &message, &len), GRPC_ENDED);
    assert_int_equal(grpc_call_end(call)->code, GRPC_OK);
    grpc_call_close(call);
}

static void an_answer_ends_a_call_whose_request_nobody_reads(void **state)
{
    (void)state;
    server_t *s = serve(never_reads);
    uint64_t began = clock_mono_ms();
    in_coroutine(never_reads_body);
    assert_true(clock_mono_ms() - began < 3000);
    wait_for(atomic_load(&reset_code) == 0);
    server_stop(s);
}

static void send_bound_body(void *arg)
{
    (void)arg;
    char *much = calloc(1, GRPC_SEND_MAX);
    for (size_t over = 0; over < 3; ++over) {
        grpc_call_t *call = grpc_call_open(channel, "/test.Service/Both", false);
        assert_int_equal(grpc_call_send(call, much, GRPC_SEND_MAX - GRPC_PREFIX - 1 + over), over < 2);
        grpc_call_close(call);
    }
    free(much);
}

static void what_waits_to_be_sent_has_a_bound(void **state)
{
    (void)state;
    server_t *s = serve(says_nothing);
    in_coroutine(send_bound_body);
    server_stop(s);
}

/* --- windows --- */

/* A message as large as is taken, in padded frames, and one that is larger by a byte. */
static uint32_t large_len;

static void sends_large(conn_t *conn)
{
    peer_t p;
    uint32_t stream;
    uint8_t bytes[16000];
    if (!peer_open(&p, conn) || (stream = peer_request(&p)) == 0)
        goto End;
    peer_head(&p, stream, 0, HEAD_OK);
    size_t left = large_len + 5, at = 0;
    int allowed = 1024 * 1024;
    while (left > 0) {
        while (allowed - (int)p.window[stream] > 0 && false)
            ;
        size_t n = left < 8000 ? left : 8000;
        memset(bytes, 'm', sizeof(bytes));
        bytes[0] = 100; /* padding */
        if (at == 0) {
            bytes[1] = 0;
            put32(bytes + 2, large_len);
        }
        memset(bytes + 1 + n, 0, 100);
        /* the window: all that was given counts the padding too */
        while ((size_t)(1024 * 1024) + p.window[stream] < at + n + 101 + 16384) {
            uint8_t head[9];
            if (!peer_bytes(&p, head, 9))
                goto End;
            uint32_t len = (uint32_t)head[0] << 16 | (uint32_t)head[1] << 8 | head[2];
            if (len > sizeof(p.frame.payload) || !peer_bytes(&p, p.frame.payload, len))
                goto End;
            if (head[3] == F_WINDOW && head[8] == stream)
                p.window[stream] += frame_number(&p);
            if (head[3] == F_RST)
                goto Rest;
        }
        if (!peer_data(&p, stream, PADDED, bytes, n + 101))
            goto End;
        at += n + 101;
        left -= n;
    }
    peer_head(&p, stream, END_STREAM, TRAILERS_OK);
Rest:
    while (peer_next(&p))
        ;
End:
    peer_close(&p);
}

static void the_largest_message(void **state)
{
    (void)state;
    for (uint32_t over = 0; over < 2; ++over) {
        unary_t u;
        large_len = GRPC_MESSAGE_MAX + over;
        server_t *s = serve(sends_large);
        unary(&u, 10000);
        assert_int_equal(u.end.code, over ? GRPC_RESOURCE_EXHAUSTED : GRPC_OK);
        assert_int_equal(u.answer.len, over ? 0 : large_len);
        buffer_dispose(&u.answer);
        grpc_channel_destroy(channel);
        channel = NULL;
        server_stop(s);
    }
}

/* Messages nobody takes hold the stream's window, and no more than it; then all of them come. */
enum { FLOOD = 3000 };
static atomic_uint flooded;

static void floods(conn_t *conn)
{
    peer_t p;
    uint32_t stream;
    uint8_t bytes[1024 + 5] = {0, 0, 0, 4, 0};
    atomic_store(&flooded, 0);
    if (!peer_open(&p, conn) || (stream = peer_request(&p)) == 0)
        goto End;
    peer_head(&p, stream, 0, HEAD_OK);
    for (int i = 0; i < FLOOD; ++i) {
        while ((size_t)(1024 * 1024) + p.window[stream] < (size_t)(i + 1) * sizeof(bytes)) {
            uint8_t head[9];
            if (!peer_bytes(&p, head, 9))
                goto End;
            uint32_t len = (uint32_t)head[0] << 16 | (uint32_t)head[1] << 8 | head[2];
            if (len > sizeof(p.frame.payload) || !peer_bytes(&p, p.frame.payload, len))
                goto End;
            if (head[3] == F_WINDOW && head[8] == stream)
                p.window[stream] += frame_number(&p);
        }
        if (!peer_data(&p, stream, 0, bytes, sizeof(bytes)))
            goto End;
        atomic_fetch_add(&flooded, 1);
    }
    peer_head(&p, stream, END_STREAM, TRAILERS_OK);
    hold(conn);
End:
    peer_close(&p);
}

static void flood_body(void *arg)
{
    const uint8_t *message;
    size_t len;
    (void)arg;
    unsigned before = 0;
    grpc_call_t *call = grpc_call_open(channel, "/test.Service/Flood", false);
    assert_true(grpc_call_send(call, "go", 2));
    grpc_call_finish(call);
    do {
        before = atomic_load(&flooded);
        co_sleep(300);
    } while (before == 0 || before != atomic_load(&flooded));
    assert_in_range(before * 1029, 1024 * 1024 - 1029, 1024 * 1024 + GRPC_AHEAD_MAX + 64 * 1024);
    for (int i = 0; i < FLOOD; ++i)
        assert_int_equal(grpc_call_next(call, in_ms(5000), &message, &len), GRPC_MESSAGE);
    assert_int_equal(grpc_call_next(call, in_ms(5000), &message, &len), GRPC_ENDED);
    assert_int_equal(grpc_call_end(call)->code, GRPC_OK);
    grpc_call_close(call);
}

static void unread_messages_hold_the_window(void **state)
{
    (void)state;
    server_t *s = serve(floods);
    in_coroutine(flood_body);
    server_stop(s);
}

/* --- the connection itself --- */

static atomic_bool has_acked;

static void pings(conn_t *conn)
{
    peer_t p;
    uint32_t stream;
    if (peer_open(&p, conn) && (stream = peer_request(&p)) != 0) {
        peer_write(&p, F_PING, 0, 0, "12345678", 8);
        while (peer_next(&p)) {
            if (p.frame.type == F_PING && (p.frame.flags & ACK) != 0 && memcmp(p.frame.payload, "12345678", 8) == 0) {
                atomic_store(&has_acked, true);
                answer(&p, stream, "yes");
            }
        }
    }
    peer_close(&p);
}

static void a_ping_is_answered(void **state)
{
    (void)state;
    server_t *s = serve(pings);
    unary_t u;
    unary(&u, 3000);
    assert_true(u.is_ok && atomic_load(&has_acked));
    buffer_dispose(&u.answer);
    server_stop(s);
}

/* The peer allows 2 streams: five calls take three connections, and none waits for another. */
static void allows_two(conn_t *conn)
{
    peer_t p;
    const uint32_t settings[] = {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 2};
    if (peer_open_with(&p, conn, settings, 1)) {
        while (peer_await(&p, F_HEADERS))
            ;
    }
    peer_close(&p);
}

static void no_more_streams_than_the_peer_allows(void **state)
{
    (void)state;
    server_t *s = serve(allows_two);
    unary_t u[5];
    for (int i = 0; i < 5; ++i)
        unary_start(&u[i], 600);
    for (int i = 0; i < 5; ++i) {
        wait_for(u[i].has_ended);
        assert_int_equal(u[i].end.code, GRPC_DEADLINE_EXCEEDED);
        assert_true(u[i].end.may_have_run);
    }
    assert_int_equal(atomic_load(&s->connections), 3);
    server_stop(s);
}

/* After a GOAWAY the calls that were begun end in peace, and a new one takes a new connection. */
static atomic_int turn;

static void goes_away_in_time(conn_t *conn)
{
    peer_t p;
    uint32_t stream;
    if (peer_open(&p, conn) && (stream = peer_request(&p)) != 0) {
        if (conn->index == 0) {
            peer_goaway(&p, stream);
            atomic_store(&turn, 1);
            while (atomic_load(&turn) == 1 && doze(conn, 5))
                ;
        }
        answer(&p, stream, conn->index == 0 ? "old" : "new");
        hold(conn);
    }
    peer_close(&p);
}

static void goaway_in_a_call(void **state)
{
    (void)state;
    atomic_store(&turn, 0);
    server_t *s = serve(goes_away_in_time);
    unary_t old, new;
    unary_start(&old, 5000);
    wait_for(atomic_load(&turn) == 1);
    for (int i = 0; i < 5; ++i)
        loop_run_once(loop, 10);
    unary(&new, 3000);
    assert_true(new.is_ok);
    assert_memory_equal(new.answer.base, "new", 3);
    assert_false(old.has_ended);
    atomic_store(&turn, 2);
    wait_for(old.has_ended);
    assert_true(old.is_ok);
    assert_memory_equal(old.answer.base, "old", 3);
    buffer_dispose(&old.answer);
    buffer_dispose(&new.answer);
    wait_for(grpc_channel_connections(channel) == 1);
    server_stop(s);
}

/* A channel that ends while a connection is being made, or is open. */
static void a_channel_ends_in_any_state(void **state)
{
    (void)state;
    server_t *s = serve(says_nothing);
    unary_t u;
    unary(&u, 50);
    assert_int_equal(grpc_channel_connections(channel), 1);
    server_stop(s);
}

/* A server in drain takes a connection and says at once that it goes away; one at its limit allows no streams. What
 * waits ends, certainly not sent, after a few connections with pauses between them. */
static void goes_away_at_once(conn_t *conn)
{
    peer_t p;
    /* in one write, as they come from a proxy */
    static const uint8_t both[] = {0, 0, 0, F_SETTINGS, 0, 0, 0, 0, 0, 0, 0, 8, F_GOAWAY,
                                   0, 0, 0, 0,          0, 0, 0, 0, 0, 0, 0, 0, 0};
    char preface[24];
    memset(&p, 0, sizeof(p));
    p.conn = conn;
    if (peer_bytes(&p, preface, sizeof(preface)) && say_bytes(conn, both, sizeof(both)))
        hold(conn);
}

static void allows_none(conn_t *conn)
{
    peer_t p;
    const uint32_t settings[] = {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 0};
    if (peer_open_with(&p, conn, settings, 1)) {
        while (peer_next(&p))
            ;
    }
    peer_close(&p);
}

static void a_server_that_takes_no_streams_is_not_connected_to_for_ever(void **state)
{
    (void)state;
    static void (*const scripts[])(conn_t *) = {goes_away_at_once, allows_none};
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); ++i) {
        server_t *s = serve(scripts[i]);
        unary_t u[4];
        uint64_t began = clock_mono_ms();
        for (size_t n = 0; n < 3; ++n)
            unary_start(&u[n], 10000);
        for (size_t n = 0; n < 3; ++n) {
            wait_for(u[n].has_ended);
            assert_int_equal(u[n].end.code, GRPC_UNAVAILABLE);
            assert_int_equal(u[n].end.origin, GRPC_BY_CONNECT);
            assert_false(u[n].end.may_have_run);
        }
        assert_int_equal(atomic_load(&s->connections), GRPC_BARREN_MAX);
        assert_in_range(clock_mono_ms() - began, GRPC_PAUSE_MIN_MS * 3 / 2, 3000);
        /* the next one has as many, after the pause of the one before */
        unary(&u[3], 10000);
        assert_int_equal(u[3].end.origin, GRPC_BY_CONNECT);
        assert_int_equal(atomic_load(&s->connections), 2 * GRPC_BARREN_MAX);
        wait_for(grpc_channel_connections(channel) == 0);
        grpc_channel_destroy(channel);
        channel = NULL;
        server_stop(s);
    }
}

/* A drain that is over: the call that waits is served on a later connection. */
static void goes_away_twice(conn_t *conn)
{
    if (conn->index < GRPC_BARREN_MAX - 1)
        goes_away_at_once(conn);
    else
        answers_all(conn);
}

static void a_call_outlives_connections_that_take_none(void **state)
{
    (void)state;
    server_t *s = serve(goes_away_twice);
    unary_t u;
    unary(&u, 10000);
    assert_true(u.is_ok);
    assert_int_equal(atomic_load(&s->connections), GRPC_BARREN_MAX);
    buffer_dispose(&u.answer);
    server_stop(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_unary_call, setup, teardown),
        cmocka_unit_test_setup_teardown(a_refusal_by_trailers_alone_ends_the_call_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(ends, setup, teardown),
        cmocka_unit_test_setup_teardown(nobody_there, setup, teardown),
        cmocka_unit_test_setup_teardown(silence_before_the_first_settings, setup, teardown),
        cmocka_unit_test_setup_teardown(reconnects, setup, teardown),
        cmocka_unit_test_setup_teardown(a_deadline_resets_the_stream, setup, teardown),
        cmocka_unit_test_setup_teardown(a_cancel_resets_the_stream, setup, teardown),
        cmocka_unit_test_setup_teardown(ping_pong, setup, teardown),
        cmocka_unit_test_setup_teardown(an_answer_ends_a_call_whose_request_nobody_reads, setup, teardown),
        cmocka_unit_test_setup_teardown(what_waits_to_be_sent_has_a_bound, setup, teardown),
        cmocka_unit_test_setup_teardown(the_largest_message, setup, teardown),
        cmocka_unit_test_setup_teardown(unread_messages_hold_the_window, setup, teardown),
        cmocka_unit_test_setup_teardown(a_ping_is_answered, setup, teardown),
        cmocka_unit_test_setup_teardown(no_more_streams_than_the_peer_allows, setup, teardown),
        cmocka_unit_test_setup_teardown(goaway_in_a_call, setup, teardown),
        cmocka_unit_test_setup_teardown(a_server_that_takes_no_streams_is_not_connected_to_for_ever, setup, teardown),
        cmocka_unit_test_setup_teardown(a_call_outlives_connections_that_take_none, setup, teardown),
        cmocka_unit_test_setup_teardown(a_channel_ends_in_any_state, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
