#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "backends/backend.pb-c.h"
#include "core/clock.h"
#include "core/ipc.h"
#include "core/mem.h"

enum { PATIENCE_MS = 20000 }; /* for what must happen; a sanitizer build on a busy machine is slow */

/* One end under test and what was seen of it; the other end is a bare descriptor or a second seat. */
typedef struct {
    ipc_t *ipc;
    int messages, cancels, drains, closes;
    char reason[64];
    uint16_t type;
    uint64_t call;
    uint8_t *body;
    size_t len;
    size_t bytes;
    uint64_t next_call; /* expected of the next message when `in_order` */
    bool in_order, pause_at_each, destroy_in_message, destroy_in_cancel, destroy_in_drain, destroy_in_close;
} seat_t;

static loop_t *loop;

static void destroy_seat(seat_t *s)
{
    ipc_destroy(s->ipc);
    s->ipc = NULL;
}

static void on_message(void *data, ipc_t *ipc, uint16_t type, uint64_t call, const uint8_t *body, size_t len)
{
    seat_t *s = data;
    assert_ptr_equal(ipc, s->ipc);
    s->messages++;
    s->bytes += len;
    s->type = type;
    s->call = call;
    if (s->in_order)
        assert_int_equal(call, s->next_call++);
    free(s->body);
    s->body = malloc(len + 1);
    if (len != 0)
        memcpy(s->body, body, len);
    s->len = len;
    if (s->pause_at_each)
        ipc_pause(ipc);
    if (s->destroy_in_message)
        destroy_seat(s);
}

static void on_cancel(void *data, ipc_t *ipc, uint64_t call)
{
    seat_t *s = data;
    (void)ipc;
    s->cancels++;
    s->call = call;
    if (s->destroy_in_cancel)
        destroy_seat(s);
}

static void on_drain(void *data, ipc_t *ipc)
{
    seat_t *s = data;
    s->drains++;
    (void)ipc;
    if (s->destroy_in_drain)
        destroy_seat(s);
}

static void on_close(void *data, ipc_t *ipc, const char *reason)
{
    seat_t *s = data;
    (void)ipc;
    s->closes++;
    snprintf(s->reason, sizeof(s->reason), "%s", reason);
    if (s->destroy_in_close)
        destroy_seat(s);
}

static const ipc_callbacks_t CALLBACKS = {on_message, on_cancel, on_drain, on_close};

static int seat_open(seat_t *s)
{
    int fds[2];
    *s = (seat_t){0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    s->ipc = ipc_create(loop, fds[0], &CALLBACKS, s);
    assert_non_null(s->ipc);
    return fds[1];
}

static void seat_close(seat_t *s)
{
    if (s->ipc != NULL)
        ipc_destroy(s->ipc);
    free(s->body);
}

static void seats_open(seat_t *a, seat_t *b)
{
    int fd = seat_open(a);
    *b = (seat_t){0};
    b->ipc = ipc_create(loop, fd, &CALLBACKS, b);
    assert_non_null(b->ipc);
}

#define run_until(condition)                                                                                           \
    do {                                                                                                               \
        uint64_t began_ = clock_mono_ms();                                                                             \
        while (!(condition) && clock_mono_ms() - began_ < PATIENCE_MS)                                                 \
            loop_run_once(loop, 100);                                                                                  \
        assert_true(condition);                                                                                        \
    } while (0)

static void settle(void)
{
    for (int i = 0; i < 8; i++)
        loop_run_once(loop, 0);
}

static ipc_result_t send_bytes(ipc_t *ipc, uint16_t type, uint64_t call, const void *bytes, size_t len)
{
    Plimsoll__Backend__RunDone m = PLIMSOLL__BACKEND__RUN_DONE__INIT;
    m.response.data = (uint8_t *)bytes;
    m.response.len = len;
    return ipc_send(ipc, type, call, &m.base);
}

/* The frame as the header documents it, built without the code under test. */
static size_t frame(uint8_t *out, uint32_t length, uint16_t type, uint16_t pad, uint64_t call)
{
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(length >> (8 * i));
    out[4] = (uint8_t)type;
    out[5] = (uint8_t)(type >> 8);
    out[6] = (uint8_t)pad;
    out[7] = (uint8_t)(pad >> 8);
    for (int i = 0; i < 8; i++)
        out[8 + i] = (uint8_t)(call >> (8 * i));
    return 16;
}

static void write_all(int fd, const void *bytes, size_t len)
{
    assert_int_equal(send(fd, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
}

static void the_decoder_tells_whole_incomplete_and_bad(void **state)
{
    (void)state;
    uint8_t f[64];
    ipc_frame_t got;
    const char *reason = NULL;
    frame(f, 12 + 3, 0x1234, 0, 0x1122334455667788);
    memcpy(f + 16, "abc", 3);
    for (size_t n = 0; n < 19; n++)
        assert_int_equal(ipc_frame_parse(f, n, &got, &reason), 0);
    for (size_t n = 19; n < 22; n++)
        assert_int_equal(ipc_frame_parse(f, n, &got, &reason), 19);
    assert_int_equal(got.type, 0x1234);
    assert_true(got.call == 0x1122334455667788);
    assert_int_equal(got.len, 3);
    assert_memory_equal(got.body, "abc", 3);

    frame(f, 12, 16, 1, 7);
    assert_int_equal(ipc_frame_parse(f, 16, &got, &reason), -1);
    assert_string_equal(reason, "bad frame header");
    frame(f, 12, 16, 0x100, 7);
    assert_int_equal(ipc_frame_parse(f, 16, &got, &reason), -1);
    frame(f, 13, IPC_CANCEL, 0, 7);
    assert_int_equal(ipc_frame_parse(f, 17, &got, &reason), -1);
    assert_string_equal(reason, "bad frame header");
}

static void lengths_are_judged_at_their_limits(void **state)
{
    (void)state;
    uint8_t f[16];
    ipc_frame_t got;
    const char *reason = NULL;
    frame(f, 11, 16, 0, 7);
    assert_int_equal(ipc_frame_parse(f, 4, &got, &reason), -1);
    assert_string_equal(reason, "frame too short");
    frame(f, 12, 16, 0, 7);
    assert_int_equal(ipc_frame_parse(f, 16, &got, &reason), 16);
    frame(f, 13, 16, 0, 7);
    assert_int_equal(ipc_frame_parse(f, 16, &got, &reason), 0);
    frame(f, IPC_FRAME_MAX - 1, 16, 0, 7);
    assert_int_equal(ipc_frame_parse(f, 16, &got, &reason), 0);
    frame(f, IPC_FRAME_MAX, 16, 0, 7);
    assert_int_equal(ipc_frame_parse(f, 16, &got, &reason), 0);
    frame(f, IPC_FRAME_MAX + 1, 16, 0, 7);
    assert_int_equal(ipc_frame_parse(f, 4, &got, &reason), -1);
    assert_string_equal(reason, "frame too large");
    frame(f, UINT32_MAX, 16, 0, 7);
    assert_int_equal(ipc_frame_parse(f, 4, &got, &reason), -1);
}

static void frames_arrive_byte_by_byte(void **state)
{
    (void)state;
    seat_t s;
    int fd = seat_open(&s);
    uint8_t f[3 * 24];
    size_t n = 0;
    for (uint64_t call = 1; call <= 3; call++) {
        frame(f + n, 12 + 8, 20, 0, call);
        memset(f + n + 16, (int)call, 8);
        n += 24;
    }
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(s.messages, (int)(i / 24));
        write_all(fd, f + i, 1);
        loop_run_once(loop, 100);
    }
    run_until(s.messages == 3);
    assert_int_equal(s.call, 3);
    assert_int_equal(s.len, 8);
    assert_memory_equal(s.body, "\3\3\3\3\3\3\3\3", 8);
    close(fd);
    seat_close(&s);
}

static void many_frames_in_one_read_and_a_split_one(void **state)
{
    (void)state;
    seat_t s;
    int fd = seat_open(&s);
    s.in_order = true;
    uint8_t f[17 * 50];
    for (uint64_t i = 0; i < 50; i++) {
        frame(f + 17 * i, 13, 16, 0, i);
        f[17 * i + 16] = (uint8_t)i;
    }
    for (size_t cut = 1; cut < sizeof(f); cut += 13) {
        s.messages = 0;
        s.next_call = 0;
        write_all(fd, f, cut);
        settle();
        assert_int_equal(s.messages, (int)(cut / 17));
        write_all(fd, f + cut, sizeof(f) - cut);
        run_until(s.messages == 50);
    }
    close(fd);
    seat_close(&s);
}

static void received_frames_are_bounded_at_the_limit(void **state)
{
    (void)state;
    static uint8_t f[4 + 1002];
    for (int over = -1; over <= 1; over++) {
        seat_t s;
        int fd = seat_open(&s);
        ipc_set_limits(s.ipc, 1000, 4000, 1000);
        frame(f, (uint32_t)(1000 + over), 16, 0, 1);
        write_all(fd, f, (size_t)(4 + 1000 + over));
        run_until(s.messages + s.closes == 1);
        assert_int_equal(s.messages, over <= 0);
        if (over > 0)
            assert_string_equal(s.reason, "frame too large");
        else
            assert_int_equal(s.len, 988 + over);
        close(fd);
        seat_close(&s);
    }
}

static void sent_frames_are_bounded_at_the_limit(void **state)
{
    (void)state;
    static const uint8_t bytes[1000];
    seat_t a, b;
    seats_open(&a, &b);
    /* 12 of the length are header; the message adds a tag byte and a two-byte size to its bytes */
    ipc_set_limits(a.ipc, 1000, 4000, 1000);
    assert_int_equal(send_bytes(a.ipc, 16, 1, bytes, 1000 - 12 - 3 - 1), IPC_SENT);
    assert_int_equal(send_bytes(a.ipc, 16, 2, bytes, 1000 - 12 - 3), IPC_SENT);
    assert_int_equal(send_bytes(a.ipc, 16, 3, bytes, 1000 - 12 - 3 + 1), IPC_TOO_LARGE);
    run_until(b.messages == 2);
    assert_int_equal(b.call, 2);
    assert_int_equal(b.len, 988);
    seat_close(&a);
    seat_close(&b);
}

static void bad_frames_close_with_their_reason(void **state)
{
    (void)state;
    static const struct {
        uint32_t length;
        uint16_t type, pad;
        const char *reason;
    } CASES[] = {
        {IPC_FRAME_MAX + 1, 16, 0, "frame too large"},
        {11, 16, 0, "frame too short"},
        {0, 16, 0, "frame too short"},
        {12, 16, 1, "bad frame header"},
        {20, IPC_CANCEL, 0, "bad frame header"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        seat_t s;
        uint8_t f[64] = {0};
        int fd = seat_open(&s);
        frame(f, 12, 16, 0, 1);
        frame(f + 16, CASES[i].length, CASES[i].type, CASES[i].pad, 2);
        write_all(fd, f, 32);
        run_until(s.closes == 1);
        assert_int_equal(s.messages, 1); /* the good frame before it was delivered */
        assert_string_equal(s.reason, CASES[i].reason);
        assert_int_equal(ipc_cancel(s.ipc, 1), IPC_CLOSED);
        settle();
        assert_int_equal(s.closes, 1);
        close(fd);
        seat_close(&s);
    }
}

static void a_message_and_a_cancel_cross(void **state)
{
    (void)state;
    seat_t a, b;
    seats_open(&a, &b);
    assert_int_equal(send_bytes(a.ipc, 19, UINT64_MAX, "hello", 5), IPC_SENT);
    run_until(b.messages == 1);
    assert_int_equal(b.type, 19);
    assert_true(b.call == UINT64_MAX);
    Plimsoll__Backend__RunDone *m = plimsoll__backend__run_done__unpack(NULL, b.len, b.body);
    assert_non_null(m);
    assert_int_equal(m->response.len, 5);
    assert_memory_equal(m->response.data, "hello", 5);
    plimsoll__backend__run_done__free_unpacked(m, NULL);
    assert_int_equal(ipc_cancel(b.ipc, 77), IPC_SENT);
    run_until(a.cancels == 1);
    assert_int_equal(a.call, 77);
    assert_int_equal(a.messages, 0);
    assert_int_equal(ipc_send(b.ipc, 21, 5, NULL), IPC_SENT); /* an empty body */
    run_until(a.messages == 1);
    assert_int_equal(a.len, 0);
    seat_close(&a);
    seat_close(&b);
}

static void the_first_frame_leaves_at_once_and_the_rest_together(void **state)
{
    (void)state;
    seat_t s;
    int fd = seat_open(&s);
    uint8_t got[256];
    assert_int_equal(ipc_send(s.ipc, 16, 1, NULL), IPC_SENT);
    assert_int_equal(ipc_queued(s.ipc), 0);
    assert_int_equal(recv(fd, got, sizeof(got), MSG_DONTWAIT), 16);
    assert_int_equal(ipc_send(s.ipc, 16, 2, NULL), IPC_SENT);
    assert_int_equal(ipc_send(s.ipc, 16, 3, NULL), IPC_SENT);
    assert_int_equal(ipc_queued(s.ipc), 32);
    assert_int_equal(recv(fd, got, sizeof(got), MSG_DONTWAIT), -1);
    loop_run_once(loop, 0);
    assert_int_equal(ipc_queued(s.ipc), 0);
    assert_int_equal(recv(fd, got, sizeof(got), MSG_DONTWAIT), 32);
    close(fd);
    seat_close(&s);
}

static void back_pressure_is_full_then_drain(void **state)
{
    (void)state;
    static uint8_t bytes[10000];
    seat_t a, b;
    seats_open(&a, &b);
    ipc_set_limits(a.ipc, IPC_FRAME_MAX, 1000000, 250000);
    ipc_pause(b.ipc);
    settle();
    int sent = 0;
    ipc_result_t result;
    while ((result = send_bytes(a.ipc, 16, (uint64_t)sent, bytes, sizeof(bytes))) == IPC_SENT) {
        sent++;
        loop_run_once(loop, 0);
    }
    assert_int_equal(result, IPC_FULL);
    /* a whole frame more would not have fit, and nothing of it was queued */
    assert_true(ipc_queued(a.ipc) <= 1000000 && ipc_queued(a.ipc) > 1000000 - sizeof(bytes) - 32);
    settle();
    assert_int_equal(a.drains, 0);
    /* a cancel has a reserve of its own */
    assert_int_equal(ipc_cancel(a.ipc, 1), IPC_SENT);
    b.in_order = true;
    ipc_resume(b.ipc);
    run_until(a.drains == 1);
    assert_true(ipc_queued(a.ipc) < 250000);
    run_until(b.messages == sent && b.cancels == 1);
    assert_int_equal(ipc_queued(a.ipc), 0);
    assert_int_equal(a.drains, 1); /* once, not at every write */
    seat_close(&a);
    seat_close(&b);
}

static void the_queue_is_full_exactly_past_its_limit(void **state)
{
    (void)state;
    seat_t s;
    int fd = seat_open(&s);
    /* corked by a first frame, so the rest stays queued within this tick */
    assert_int_equal(ipc_send(s.ipc, 16, 1, NULL), IPC_SENT);
    for (size_t limit = 47; limit <= 49; limit++) {
        ipc_set_limits(s.ipc, 1000, limit, 16);
        while (ipc_queued(s.ipc) < 32)
            assert_int_equal(ipc_send(s.ipc, 16, 2, NULL), IPC_SENT);
        assert_int_equal(ipc_send(s.ipc, 16, 3, NULL), limit < 48 ? IPC_FULL : IPC_SENT);
        assert_int_equal(ipc_queued(s.ipc), limit < 48 ? 32 : 48);
        loop_run_once(loop, 0);
        assert_int_equal(ipc_queued(s.ipc), 0);
        assert_int_equal(s.drains, limit < 48);
        s.drains = 0;
        ipc_set_limits(s.ipc, 1000, 1000, 16);
        assert_int_equal(ipc_send(s.ipc, 16, 1, NULL), IPC_SENT);
    }
    /* the cancels' reserve has an end too */
    ipc_set_limits(s.ipc, 1000, 0, 0);
    uint64_t cancels = 0;
    while (ipc_cancel(s.ipc, cancels) == IPC_SENT)
        cancels++;
    assert_int_equal(cancels, IPC_CANCEL_RESERVE / 16);
    close(fd);
    seat_close(&s);
}

static void a_pause_holds_frames_already_read(void **state)
{
    (void)state;
    seat_t a, b;
    seats_open(&a, &b);
    b.pause_at_each = true;
    b.in_order = true;
    for (uint64_t i = 0; i < 20; i++)
        assert_int_equal(ipc_send(a.ipc, 16, i, NULL), IPC_SENT);
    for (int i = 1; i <= 20; i++) {
        run_until(b.messages == i);
        settle();
        assert_int_equal(b.messages, i);
        ipc_resume(b.ipc);
        assert_int_equal(b.messages, i); /* never inside the call */
    }
    b.pause_at_each = false;
    assert_int_equal(ipc_send(a.ipc, 16, 20, NULL), IPC_SENT);
    run_until(b.messages == 21);
    seat_close(&a);
    seat_close(&b);
}

static void a_dying_peer_is_heard_out_first(void **state)
{
    (void)state;
    seat_t s;
    int fd = seat_open(&s);
    uint8_t f[16];
    for (uint64_t i = 0; i < 100; i++) {
        frame(f, 12, 16, 0, i);
        write_all(fd, f, 16);
    }
    frame(f, 12, 16, 0, 100);
    write_all(fd, f, 9); /* and dies in the middle of a frame */
    close(fd);
    s.in_order = true;
    run_until(s.closes == 1);
    assert_int_equal(s.messages, 100);
    assert_string_equal(s.reason, "closed by peer");
    seat_close(&s);
}

static void writing_to_a_dead_peer_still_delivers_what_it_sent(void **state)
{
    (void)state;
    seat_t s;
    int fd = seat_open(&s);
    uint8_t f[16];
    frame(f, 12, 16, 0, 9);
    write_all(fd, f, 16);
    close(fd);
    assert_int_equal(ipc_send(s.ipc, 16, 1, NULL), IPC_CLOSED); /* no SIGPIPE either */
    assert_int_equal(s.closes, 0);                              /* never inside the call */
    assert_int_equal(ipc_send(s.ipc, 16, 1, NULL), IPC_CLOSED);
    run_until(s.closes == 1);
    assert_int_equal(s.messages, 1);
    assert_string_equal(s.reason, "closed by peer");
    seat_close(&s);
}

static void a_peer_that_only_stops_reading_ends_the_connection(void **state)
{
    (void)state;
    seat_t s;
    int fd = seat_open(&s);
    shutdown(fd, SHUT_RD);
    assert_int_equal(ipc_send(s.ipc, 16, 1, NULL), IPC_CLOSED);
    run_until(s.closes == 1);
    close(fd);
    seat_close(&s);
}

static void a_paused_end_learns_of_the_death_when_it_resumes(void **state)
{
    (void)state;
    seat_t s;
    int fd = seat_open(&s);
    uint8_t f[32];
    frame(f, 12, 16, 0, 1);
    frame(f + 16, 12, 16, 0, 2);
    s.pause_at_each = true;
    write_all(fd, f, 32);
    close(fd);
    run_until(s.messages == 1);
    assert_int_equal(ipc_send(s.ipc, 16, 1, NULL), IPC_CLOSED);
    settle();
    assert_int_equal(s.closes, 0);
    ipc_resume(s.ipc);
    run_until(s.messages == 2);
    settle();
    assert_int_equal(s.closes, 0);
    ipc_resume(s.ipc);
    run_until(s.closes == 1);
    seat_close(&s);
}

static void destroying_with_queued_data_drops_it(void **state)
{
    (void)state;
    static uint8_t bytes[1000000];
    seat_t a, b;
    seats_open(&a, &b);
    ipc_pause(b.ipc);
    assert_int_equal(send_bytes(a.ipc, 16, 1, bytes, sizeof(bytes)), IPC_SENT);
    assert_int_equal(send_bytes(a.ipc, 16, 2, bytes, sizeof(bytes)), IPC_SENT);
    assert_true(ipc_queued(a.ipc) > 0);
    destroy_seat(&a);
    ipc_resume(b.ipc);
    run_until(b.closes == 1);
    assert_int_equal(b.messages, 0);
    seat_close(&a);
    seat_close(&b);
}

static void destroy_is_safe_in_every_callback(void **state)
{
    (void)state;
    static uint8_t bytes[400000];
    for (int which = 0; which < 4; which++) {
        seat_t a, b;
        seats_open(&a, &b);
        a.destroy_in_message = which == 0;
        a.destroy_in_cancel = which == 1;
        a.destroy_in_drain = which == 2;
        a.destroy_in_close = which == 3;
        if (which == 2) {
            ipc_set_limits(a.ipc, IPC_FRAME_MAX, 1000000, 500000);
            ipc_pause(b.ipc);
            while (send_bytes(a.ipc, 16, 1, bytes, sizeof(bytes)) == IPC_SENT)
                loop_run_once(loop, 0);
            ipc_resume(b.ipc);
        }
        for (int i = 0; i < 3; i++) { /* more frames follow the one that destroys */
            assert_int_equal(ipc_send(b.ipc, 16, 1, NULL), IPC_SENT);
            assert_int_equal(ipc_cancel(b.ipc, 1), IPC_SENT);
        }
        if (which == 3) {
            run_until(a.messages == 3 && a.cancels == 3);
            destroy_seat(&b);
        }
        run_until(a.ipc == NULL);
        if (which < 2) { /* nothing came after it */
            assert_int_equal(a.messages, 1);
            assert_int_equal(a.cancels, which);
        }
        settle();
        assert_int_equal(a.closes, which == 3);
        seat_close(&a);
        seat_close(&b);
    }
}

static void a_large_frame_destroyed_in_its_callback(void **state)
{
    (void)state;
    static uint8_t bytes[3000000];
    seat_t a, b;
    seats_open(&a, &b);
    b.destroy_in_message = true;
    memset(bytes, 'x', sizeof(bytes));
    assert_int_equal(send_bytes(a.ipc, 16, 1, bytes, sizeof(bytes)), IPC_SENT);
    run_until(b.ipc == NULL);
    assert_int_equal(b.len, sizeof(bytes) + 5);
    assert_memory_equal(b.body + 5, bytes, sizeof(bytes));
    seat_close(&a);
    seat_close(&b);
}

static void ten_thousand_messages_cross_both_ways(void **state)
{
    (void)state;
    enum { N = 10000 };
    static uint8_t bytes[3000];
    seat_t a, b;
    seats_open(&a, &b);
    a.in_order = b.in_order = true;
    size_t expected = 0;
    for (uint64_t i = 0; i < N; i++) {
        size_t len = (size_t)(i * 37 % sizeof(bytes));
        if (len != 0) /* an empty bytes field is left out of the message */
            expected += len + (len < 128 ? 2 : 3);
        assert_int_equal(send_bytes(a.ipc, 16, i, bytes, len), IPC_SENT);
        assert_int_equal(send_bytes(b.ipc, 16, i, bytes, len), IPC_SENT);
        if (i % 64 == 0)
            loop_run_once(loop, 0);
    }
    run_until(a.messages == N && b.messages == N);
    assert_int_equal(a.bytes, expected);
    assert_int_equal(b.bytes, expected);
    seat_close(&a);
    seat_close(&b);
}

static void a_socket_path_is_private_and_replaced(void **state)
{
    (void)state;
    char folder[] = "/tmp/ipc-test-XXXXXX", path[64], longer[200];
    struct stat st;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/s", folder);
    mode_t old = umask(0);
    int fd = ipc_listen(path);
    umask(old);
    assert_true(fd >= 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    int again = ipc_listen(path); /* the first one's file is replaced */
    assert_true(again >= 0);
    int client = ipc_connect(path);
    assert_true(client >= 0);
    int server = accept4(again, NULL, NULL, SOCK_CLOEXEC);
    assert_true(server >= 0);
    close(fd);
    close(again);

    seat_t a = {0}, b = {0};
    a.ipc = ipc_create(loop, client, &CALLBACKS, &a);
    b.ipc = ipc_create(loop, server, &CALLBACKS, &b);
    assert_int_equal(ipc_send(a.ipc, 16, 3, NULL), IPC_SENT);
    run_until(b.messages == 1);
    seat_close(&a);
    seat_close(&b);

    assert_int_equal(ipc_connect(path), -1);
    assert_int_equal(errno, ECONNREFUSED);
    unlink(path);
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    close(fd);
    assert_int_equal(ipc_listen(path), -1); /* a file that is no socket is not ours to delete */
    assert_int_equal(errno, EEXIST);
    unlink(path);
    rmdir(folder);

    /* sun_path holds 107 bytes and a NUL */
    memset(longer, 'x', sizeof(longer));
    longer[108] = '\0';
    assert_int_equal(ipc_listen(longer), -1);
    assert_int_equal(errno, ENAMETOOLONG);
    longer[107] = '\0';
    assert_int_equal(ipc_connect(longer), -1);
    assert_int_equal(errno, ENOENT);
}

static int set_up(void **state)
{
    (void)state;
    loop = loop_create();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    loop_destroy(loop);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_decoder_tells_whole_incomplete_and_bad),
        cmocka_unit_test(lengths_are_judged_at_their_limits),
        cmocka_unit_test_setup_teardown(frames_arrive_byte_by_byte, set_up, tear_down),
        cmocka_unit_test_setup_teardown(many_frames_in_one_read_and_a_split_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(received_frames_are_bounded_at_the_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sent_frames_are_bounded_at_the_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bad_frames_close_with_their_reason, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_message_and_a_cancel_cross, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_first_frame_leaves_at_once_and_the_rest_together, set_up, tear_down),
        cmocka_unit_test_setup_teardown(back_pressure_is_full_then_drain, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_queue_is_full_exactly_past_its_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_pause_holds_frames_already_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_dying_peer_is_heard_out_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(writing_to_a_dead_peer_still_delivers_what_it_sent, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_peer_that_only_stops_reading_ends_the_connection, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_paused_end_learns_of_the_death_when_it_resumes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(destroying_with_queued_data_drops_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(destroy_is_safe_in_every_callback, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_large_frame_destroyed_in_its_callback, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ten_thousand_messages_cross_both_ways, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_socket_path_is_private_and_replaced, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("ipc", tests, NULL, NULL);
}
