/* The hijacked stream of a container, against a scripted Engine. */
#include "fake_engine.h"

#include <dirent.h>

#include "backends/docker/attach.h"
#include "core/buffer.h"

#define HEAD_101                                                                                                       \
    "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\n"              \
    "Upgrade: tcp\r\n\r\n"
#define HEAD_142                                                                                                       \
    "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.multiplexed-stream\r\nConnection: Upgrade\r\n"      \
    "Upgrade: tcp\r\n\r\n"
#define HEAD_200 "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\n"
#define FRAMES "\1\0\0\0\0\0\0\5hello\2\0\0\0\0\0\0\3err\1\0\0\0\0\0\0\1!"
enum { FRAMES_LEN = sizeof(FRAMES) - 1 };

typedef struct {
    void (*answer)(conn_t *conn); /* to the attach */
    const char *bytes;            /* its own */
    size_t len;
    buffer_t taken; /* what the client wrote; read after the server has stopped or `is_taken` */
    size_t wanted;
    atomic_bool is_taken, may_go_on;
} plan_t;

static void play(conn_t *conn)
{
    plan_t *plan = conn->server->arg;
    if (!read_request(conn))
        return;
    const char *row = find_row(negotiable, target_of(conn));
    if (row != NULL)
        say(conn, row);
    else
        plan->answer(conn);
}

static void say_bytes_of_plan(conn_t *conn)
{
    const plan_t *plan = conn->server->arg;
    say_bytes(conn, plan->bytes, plan->len);
}

static void say_and_hold(conn_t *conn)
{
    say_bytes_of_plan(conn);
    hold(conn);
}

static void dribble(conn_t *conn)
{
    const plan_t *plan = conn->server->arg;
    for (size_t i = 0; i < plan->len; ++i) {
        if (!say_bytes(conn, plan->bytes + i, 1))
            return;
        if (i % 16 == 0 && !doze(conn, 1))
            return;
    }
}

/* ---- the client's side ---- */

typedef struct {
    attach_t *attach;
    uint32_t deadline_ms;
    const char *id;
    char failure[ENGINE_TEXT_MAX];
    bool is_open, has_ended; /* the coroutine's open, and its end */
    co_t *co;
    buffer_t out, err;
    unsigned sents, ends, events;
    size_t sum; /* of all bytes of both streams */
    const char *why;
    bool close_in_bytes, close_in_sent, close_in_end;
    bool drops; /* counts bytes only */
} client_t;

static void close_it(client_t *c)
{
    attach_close(c->attach);
    c->attach = NULL;
}

static void on_bytes(void *data, int stream, const uint8_t *bytes, size_t len)
{
    client_t *c = data;
    assert_true(c->is_open); /* never before attach_open has returned */
    assert_int_equal(c->ends, 0);
    assert_true(len > 0 && (stream == 1 || stream == 2));
    ++c->events;
    c->sum += len;
    if (!c->drops)
        assert_true(buffer_append(stream == 1 ? &c->out : &c->err, bytes, len));
    if (c->close_in_bytes)
        close_it(c);
}

static void on_end(void *data, const char *why)
{
    client_t *c = data;
    assert_true(c->is_open);
    ++c->events;
    ++c->ends;
    c->why = why;
    if (c->close_in_end)
        close_it(c);
}

static void on_sent(void *data)
{
    client_t *c = data;
    assert_true(c->is_open);
    assert_int_equal(attach_unsent(c->attach), 0);
    ++c->events;
    ++c->sents;
    if (c->close_in_sent)
        close_it(c);
}

static const attach_events_t events = {.on_bytes = on_bytes, .on_end = on_end, .on_sent = on_sent};

static void open_in_co(void *arg)
{
    client_t *c = arg;
    c->attach = attach_open(engine, loop, c->id != NULL ? c->id : ID, &events, c,
                            c->deadline_ms != 0 ? c->deadline_ms : 20000, c->failure);
    c->is_open = c->attach != NULL;
    assert_int_equal(c->is_open, c->failure[0] == '\0');
}

static void on_open_end(void *arg)
{
    client_t *c = arg;
    c->has_ended = true;
    c->co = NULL;
}

static void client_begin(client_t *c)
{
    buffer_init(&c->out, 1 << 20);
    buffer_init(&c->err, 1 << 20);
    c->co = co_start(loop, open_in_co, c, on_open_end);
}

static void client_open(client_t *c)
{
    client_begin(c);
    wait_for(c->has_ended);
}

static void client_forget(client_t *c)
{
    if (c->attach != NULL)
        close_it(c);
    buffer_dispose(&c->out);
    buffer_dispose(&c->err);
}

static void assert_text(const buffer_t *b, const char *text)
{
    assert_int_equal(b->len, strlen(text));
    if (b->len != 0)
        assert_memory_equal(b->base, text, b->len);
}

static void serve_plan(plan_t *plan)
{
    buffer_init(&plan->taken, 16 << 20);
    serve(play, plan);
    negotiate();
}

static void stop_serving(plan_t *plan)
{
    server_stop(server);
    server = NULL;
    unlink(socket_path);
    buffer_dispose(&plan->taken);
}

/* ---- opening ---- */

static void both_statuses_and_both_content_types_open(void **state)
{
    static const char *const texts[] = {HEAD_101 FRAMES, HEAD_142 FRAMES, HEAD_200 FRAMES};
    static const char *const heads[] = {HEAD_101, HEAD_142, HEAD_200};
    (void)state;
    for (size_t i = 0; i < 3; ++i)
        for (int slow = 0; slow < 2; ++slow) {
            plan_t plan = {.answer = slow ? dribble : say_bytes_of_plan, .bytes = texts[i]};
            plan.len = strlen(heads[i]) + FRAMES_LEN;
            serve_plan(&plan);
            client_t c = {0};
            client_open(&c);
            assert_true(c.is_open);
            wait_for(c.ends == 1);
            assert_text(&c.out, "hello!");
            assert_text(&c.err, "err");
            assert_string_equal(c.why, "the stream ended");
            assert_false(attach_write(c.attach, "x", 1));
            client_forget(&c);
            assert_string_equal(server->last_request,
                                "POST /v1.41/containers/" ID "/attach?stream=1&stdin=1&stdout=1&stderr=1 HTTP/1.1\r\n"
                                "Host: d\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n");
            stop_serving(&plan);
        }
}

static void an_end_at_any_byte_is_told_once(void **state)
{
    static const char text[] = HEAD_101 FRAMES;
    plan_t plan = {.answer = say_bytes_of_plan, .bytes = text};
    size_t head = strlen(HEAD_101);
    (void)state;
    for (size_t len = 0; len < sizeof(text); ++len) {
        if (server == NULL || atomic_load(&server->connections) > SERVER_CONNECTIONS_MAX - 3) {
            if (server != NULL)
                stop_serving(&plan);
            serve_plan(&plan);
        }
        plan.len = len;
        client_t c = {0};
        client_open(&c);
        assert_int_equal(c.is_open, len >= head);
        if (c.is_open) {
            wait_for(c.ends == 1);
            size_t in = len - head;
            bool is_clean = in == 0 || in == 13 || in == 24 || in == 33;
            assert_string_equal(c.why, is_clean ? "the stream ended" : "the stream ended in a frame");
            size_t payload = (in > 8 ? in < 13 ? in - 8 : 5 : 0) + (in > 21 ? in < 24 ? in - 21 : 3 : 0) + (in == 33);
            assert_int_equal(c.sum, payload);
        } else {
            assert_non_null(strstr(c.failure, len == 0 ? "without an answer" : "inside of its answer"));
            assert_int_equal(c.events, 0);
        }
        client_forget(&c);
        for (int i = 0; i < 2; ++i)
            loop_run_once(loop, 0);
        assert_true(c.ends <= 1);
    }
    stop_serving(&plan);
}

static void refusals_carry_the_engine_s_words(void **state)
{
    static const char *const cases[][2] = {
        {"HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\n\r\n{\"message\":\"No such container: x\"}",
         "status 404: No such container: x"},
        {"HTTP/1.1 409 Conflict\r\n\r\n{\"message\":\"is paused\\u001b[2J\\u00e9\"}", "status 409: is paused?[2J??"},
        {"HTTP/1.1 500 Internal Server Error\r\n\r\n<html>\n</html>", "status 500: <html>"},
        {"HTTP/1.1 404 Not Found\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\nNo such container: "
         "\x1b\xff\r\n",
         "status 404: No such container: ??"},
        {"HTTP/1.1 404 Not Found\r\n\r\n\r\nx", "status 404"},
        {"HTTP/1.1 400 Bad Request\r\n\r\n", "status 400"},
        {"HTTP/1.1 404 Not Found\r\n\r\n[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
         "status 404: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["},
        {"HTTP/1.1 101 UPGRADED\r\n\r\n", "an upgrade to something else"},
        {"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>", "a content type that is no stream's"},
        {"garbage\r\n\r\n", "not an HTTP answer"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        plan_t plan = {.answer = say_and_hold, .bytes = cases[i][0], .len = strlen(cases[i][0])};
        serve_plan(&plan);
        client_t c = {0};
        client_open(&c);
        assert_false(c.is_open);
        if (strstr(c.failure, cases[i][1]) != c.failure)
            print_error("case %zu: %s\n", i, c.failure);
        assert_string_equal(c.failure, cases[i][1]);
        client_forget(&c);
        stop_serving(&plan);
    }
}

static void flood_head(conn_t *conn)
{
    say(conn, "HTTP/1.1 101 UPGRADED\r\n");
    while (say(conn, "A: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n"))
        ;
}

static void a_head_without_an_end_is_cut(void **state)
{
    plan_t plan = {.answer = flood_head};
    client_t c = {0};
    (void)state;
    serve_plan(&plan);
    client_open(&c);
    assert_false(c.is_open);
    assert_string_equal(c.failure, "the head is too large");
    client_forget(&c);
}

/* Whatever the head's size, the stream's first byte is the one behind it. */
static void heads_up_to_the_limit_open(void **state)
{
    (void)state;
    for (int past = -1; past <= 1; ++past) {
        size_t len = (size_t)(ATTACH_HEAD_MAX + past);
        char text[ATTACH_HEAD_MAX + 1 + FRAMES_LEN];
        int n =
            snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.raw-stream\r\nA: ");
        memset(text + n, 'a', len - (size_t)n);
        memcpy(text + len - 4, "\r\n\r\n", 4);
        memcpy(text + len, FRAMES, FRAMES_LEN);
        plan_t plan = {.answer = say_bytes_of_plan, .bytes = text, .len = len + FRAMES_LEN};
        serve_plan(&plan);
        client_t c = {0};
        client_open(&c);
        assert_int_equal(c.is_open, past <= 0);
        if (c.is_open) {
            wait_for(c.ends == 1);
            assert_text(&c.out, "hello!");
        } else {
            assert_string_equal(c.failure, "the head is too large");
        }
        client_forget(&c);
        stop_serving(&plan);
    }
}

static void drip_for_ever(conn_t *conn)
{
    say(conn, "HTTP/1.1 101 UPGRADED\r\nA: ");
    while (say(conn, "a") && doze(conn, 20))
        ;
}

static void slow_heads_end_at_the_deadline(void **state)
{
    plan_t plan = {.answer = hold};
    (void)state;
    serve_plan(&plan);
    for (int i = 0; i < 2; ++i) {
        client_t c = {.deadline_ms = 150};
        uint64_t begun = clock_mono_ms();
        plan.answer = i == 0 ? hold : drip_for_ever;
        client_open(&c);
        assert_false(c.is_open);
        assert_string_equal(c.failure, "the deadline passed");
        assert_in_range(clock_mono_ms() - begun, 140, 5000);
        client_forget(&c);
    }
}

static void an_engine_that_is_away_does_not_open(void **state)
{
    plan_t plan = {.answer = hold};
    (void)state;
    client_t c = {0};
    client_open(&c);
    assert_string_equal(c.failure, "the API's version is not negotiated");
    client_forget(&c);
    serve_plan(&plan);
    stop_serving(&plan);
    c = (client_t){0};
    client_open(&c);
    assert_false(c.is_open);
    client_forget(&c);
    c = (client_t){.id = "a/../b"};
    client_open(&c);
    assert_string_equal(c.failure, "not a container's ID");
    client_forget(&c);
}

/* A full backlog of a Unix socket refuses at once with EAGAIN, which is no answer. */
static void a_full_backlog_is_waited_for(void **state)
{
    plan_t plan = {.answer = hold};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fillers[3];
    (void)state;
    serve_plan(&plan);
    stop_serving(&plan);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", socket_path);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(listener, 0), 0);
    bool is_full = false;
    for (int i = 0; i < 3; ++i) {
        fillers[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (connect(fillers[i], (struct sockaddr *)&address, sizeof(address)) != 0)
            is_full = errno == EAGAIN;
    }
    assert_true(is_full);
    client_t c = {.deadline_ms = 100};
    client_open(&c);
    assert_string_equal(c.failure, "the Engine accepts no connection");
    client_forget(&c);
    c = (client_t){0};
    client_begin(&c);
    loop_run_once(loop, 20);
    assert_false(c.has_ended);
    close(accept(listener, NULL, NULL)); /* makes room */
    for (int i = 0; i < 10; ++i)
        loop_run_once(loop, 5);
    assert_false(c.has_ended);
    close(listener);
    wait_for(c.has_ended);
    assert_false(c.is_open);
    client_forget(&c);
    for (int i = 0; i < 3; ++i)
        close(fillers[i]);
}

static void a_canceled_opening_ends_at_once(void **state)
{
    plan_t plan = {.answer = hold};
    client_t c = {0};
    (void)state;
    serve_plan(&plan);
    client_begin(&c);
    wait_for(atomic_load(&server->requests) == 3);
    co_cancel(c.co);
    wait_for(c.has_ended);
    assert_string_equal(c.failure, "canceled");
    assert_int_equal(c.events, 0);
    client_forget(&c);
}

/* ---- reading ---- */

static void a_stream_that_makes_no_sense_ends(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
        const char *why;
    } cases[] = {
        {HEAD_101 "\1\0\0\0\0\0\0\1a\3\0\0\0\0\0\0\1b", strlen(HEAD_101) + 18, "neither stdout nor stderr"},
        {HEAD_101 "\1\0\0\0\0\0\0\1a\0\0\0\0\0\0\0\1b", strlen(HEAD_101) + 18, "neither stdout nor stderr"},
        {HEAD_101 "\1\0\0\0\0\0\0\1a\1\1\0\0\0\0\0\1b", strlen(HEAD_101) + 18, "padding"},
        {HEAD_101 "\1\0\0\0\0\0\0\1aplain text", strlen(HEAD_101) + 19, "neither stdout nor stderr"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i)
        for (int slow = 0; slow < 2; ++slow) {
            plan_t plan = {.answer = slow ? dribble : say_and_hold, .bytes = cases[i].bytes, .len = cases[i].len};
            serve_plan(&plan);
            client_t c = {0};
            client_open(&c);
            assert_true(c.is_open);
            wait_for(c.ends == 1);
            assert_non_null(strstr(c.why, cases[i].why));
            assert_text(&c.out, "a");
            assert_false(attach_write(c.attach, "x", 1));
            client_forget(&c);
            stop_serving(&plan);
        }
}

enum { FLOOD_FRAMES = 2000, FLOOD_PAYLOAD = 32768 };

static void flood(conn_t *conn)
{
    static char frame[8 + FLOOD_PAYLOAD] = "\1\0\0\0\0\0\x80\0";
    say(conn, HEAD_101);
    for (int i = 0; i < FLOOD_FRAMES; ++i)
        if (!say_bytes(conn, frame, sizeof(frame)))
            return;
}

static void a_flood_is_read_to_its_end(void **state)
{
    plan_t plan = {.answer = flood};
    client_t c = {.drops = true};
    (void)state;
    serve_plan(&plan);
    client_open(&c);
    wait_for(c.ends == 1);
    assert_int_equal(c.sum, (size_t)FLOOD_FRAMES * FLOOD_PAYLOAD);
    client_forget(&c);
}

/* ---- writing ---- */

/* Says the head, waits to be told, takes `wanted` bytes, says a frame, and waits for the client's end. */
static void take(conn_t *conn)
{
    plan_t *plan = conn->server->arg;
    char bytes[65536];
    say(conn, HEAD_101);
    while (!atomic_load(&plan->may_go_on) && doze(conn, 2))
        ;
    while (plan->taken.len < plan->wanted) {
        ssize_t n = conn_read(conn, bytes, sizeof(bytes));
        if (n <= 0 || !buffer_append(&plan->taken, bytes, (size_t)n))
            return;
    }
    atomic_store(&plan->is_taken, true);
    say_bytes(conn, "\1\0\0\0\0\0\0\1k", 9);
    hold(conn);
}

static void writes_arrive_in_order_and_are_told_of(void **state)
{
    plan_t plan = {.answer = take, .wanted = 3 * 700000 + 11};
    client_t c = {0};
    size_t len = 700000;
    char *bytes = malloc(len);
    (void)state;
    serve_plan(&plan);
    client_open(&c);
    assert_true(attach_write(c.attach, "hello", 5));
    assert_int_equal(attach_unsent(c.attach), 0);
    assert_int_equal(c.sents, 0); /* never inside of the write */
    wait_for(c.sents == 1);
    assert_true(attach_write(c.attach, "", 0));
    for (int i = 0; i < 3; ++i) {
        memset(bytes, 'a' + i, len);
        assert_true(attach_write(c.attach, bytes, len));
        memset(bytes, 'x', len); /* queued bytes were copied */
    }
    assert_true(attach_unsent(c.attach) > 0);
    assert_true(attach_write(c.attach, "world!", 6));
    assert_int_equal(c.sents, 1);
    atomic_store(&plan.may_go_on, true);
    wait_for(c.out.len == 1);
    wait_for(c.sents == 2);
    assert_int_equal(attach_unsent(c.attach), 0);
    assert_true(atomic_load(&plan.is_taken));
    assert_memory_equal(plan.taken.base, "hello", 5);
    for (int i = 0; i < 3; ++i)
        for (size_t k = 0; k < len; ++k)
            if (plan.taken.base[5 + (size_t)i * len + k] != 'a' + i)
                fail();
    assert_memory_equal(plan.taken.base + plan.taken.len - 6, "world!", 6);
    client_forget(&c);
    free(bytes);
    stop_serving(&plan);
}

static void the_queue_is_bounded(void **state)
{
    plan_t plan = {.answer = take, .wanted = SIZE_MAX};
    client_t c = {0};
    char *bytes = calloc(1, ATTACH_UNSENT_MAX + 1);
    (void)state;
    serve_plan(&plan);
    client_open(&c);
    assert_false(attach_write(c.attach, bytes, ATTACH_UNSENT_MAX + 1)); /* whatever the socket would have taken of it */
    assert_int_equal(attach_unsent(c.attach), 0);
    assert_true(attach_write(c.attach, bytes, ATTACH_UNSENT_MAX));
    size_t room = ATTACH_UNSENT_MAX - attach_unsent(c.attach);
    assert_in_range(room, 1, ATTACH_UNSENT_MAX - 1);
    assert_false(attach_write(c.attach, bytes, room + 1));
    assert_true(attach_write(c.attach, bytes, room - 1));
    assert_int_equal(attach_unsent(c.attach), ATTACH_UNSENT_MAX - 1);
    assert_true(attach_write(c.attach, bytes, 1));
    assert_false(attach_write(c.attach, bytes, 1));
    assert_int_equal(attach_unsent(c.attach), ATTACH_UNSENT_MAX);
    client_forget(&c);
    free(bytes);
    atomic_store(&plan.may_go_on, true);
    stop_serving(&plan);
}

/* Half of the limit is written and stays in the buffer: what follows has its room all the same. */
static void a_queue_that_moves_keeps_its_room(void **state)
{
    size_t total = 5u * ATTACH_UNSENT_MAX / 2;
    plan_t plan = {.answer = take, .wanted = total, .may_go_on = true};
    client_t c = {0};
    size_t sent = 0, chunk = 300001;
    uint8_t *bytes = malloc(chunk);
    (void)state;
    serve_plan(&plan);
    client_open(&c);
    while (sent < total) {
        size_t n = chunk < total - sent ? chunk : total - sent;
        for (size_t i = 0; i < n; ++i)
            bytes[i] = (uint8_t)((sent + i) * 2654435761u >> 13);
        if (attach_write(c.attach, bytes, n))
            sent += n;
        else
            loop_run_once(loop, 1);
    }
    wait_for(c.out.len == 1 && c.sents >= 1);
    assert_int_equal(plan.taken.len, total);
    for (size_t i = 0; i < total; ++i)
        if (plan.taken.base[i] != (uint8_t)(i * 2654435761u >> 13))
            fail();
    client_forget(&c);
    free(bytes);
    stop_serving(&plan);
}

/* Takes nothing, says something, and is gone: what it said is still read. */
static void say_and_go(conn_t *conn)
{
    plan_t *plan = conn->server->arg;
    say(conn, HEAD_101);
    while (!atomic_load(&plan->may_go_on) && doze(conn, 2))
        ;
    say_bytes(conn, FRAMES, FRAMES_LEN);
}

static void what_was_said_before_the_end_is_read_though_writes_fail(void **state)
{
    plan_t plan = {.answer = say_and_go};
    client_t c = {0};
    char *bytes = calloc(1, 1000000);
    (void)state;
    serve_plan(&plan);
    client_open(&c);
    assert_true(attach_write(c.attach, bytes, 1000000));
    atomic_store(&plan.may_go_on, true);
    wait_for(atomic_load(&server->open) == 0);
    wait_for(c.ends == 1);
    assert_text(&c.out, "hello!");
    assert_int_equal(c.sents, 0);
    assert_int_equal(attach_unsent(c.attach), 0);
    assert_false(attach_write(c.attach, "x", 1));
    client_forget(&c);
    free(bytes);
}

static void stop_taking(conn_t *conn)
{
    plan_t *plan = conn->server->arg;
    say(conn, HEAD_101);
    shutdown(conn->fd, SHUT_RD);
    atomic_store(&plan->is_taken, true);
    while (doze(conn, 50) && !atomic_load(&plan->may_go_on))
        ;
}

static void an_engine_that_takes_no_more_and_says_nothing_is_left(void **state)
{
    plan_t plan = {.answer = stop_taking};
    client_t c = {0};
    (void)state;
    serve_plan(&plan);
    client_open(&c);
    wait_for(atomic_load(&plan.is_taken));
    assert_false(attach_write(c.attach, "x", 1));
    assert_false(attach_write(c.attach, "x", 1));
    wait_for(c.ends == 1);
    assert_string_equal(c.why, "the Engine takes no more bytes");
    client_forget(&c);
    atomic_store(&plan.may_go_on, true);
}

/* ---- closing ---- */

static void nothing_follows_a_close_in_any_callback(void **state)
{
    (void)state;
    for (int at = 0; at < 4; ++at) {
        /* the server waits for a byte more than comes: it says nothing that could come before on_sent */
        plan_t plan = {.answer = at < 3 ? say_bytes_of_plan : take, .bytes = HEAD_101 FRAMES, .wanted = 6};
        plan.len = strlen(HEAD_101) + FRAMES_LEN;
        atomic_store(&plan.may_go_on, true);
        serve_plan(&plan);
        client_t c = {.close_in_bytes = at == 0, .close_in_end = at == 1, .close_in_sent = at == 3};
        client_open(&c);
        assert_true(c.is_open);
        if (at == 2)
            close_it(&c); /* with early bytes not yet delivered */
        if (at == 3)
            assert_true(attach_write(c.attach, "hello", 5));
        wait_for(c.attach == NULL);
        unsigned before = c.events;
        wait_for(at == 3 || atomic_load(&server->open) == 0);
        for (int i = 0; i < 10; ++i)
            loop_run_once(loop, 2);
        assert_int_equal(c.events, before);
        assert_int_equal(before, at == 0 ? 1 : at == 1 ? 4 : at == 2 ? 0 : 1);
        client_forget(&c);
        stop_serving(&plan);
    }
}

static unsigned count_descriptors(void)
{
    unsigned count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir) != NULL)
        ++count;
    closedir(dir);
    return count;
}

static void no_descriptor_is_kept(void **state)
{
    plan_t plan = {.answer = say_bytes_of_plan, .bytes = HEAD_101 FRAMES, .len = strlen(HEAD_101) + FRAMES_LEN};
    unsigned before = 0;
    (void)state;
    serve_plan(&plan);
    for (int i = 0; i < 30; ++i) {
        client_t c = {0};
        plan.len = i % 3 == 0 ? 20 : strlen(HEAD_101) + FRAMES_LEN;
        client_open(&c);
        if (i % 3 == 1)
            wait_for(c.ends == 1);
        client_forget(&c);
        wait_for(atomic_load(&server->open) == 0);
        for (int k = 0; k < 3; ++k)
            loop_run_once(loop, 0);
        if (i == 2)
            before = count_descriptors();
    }
    assert_int_equal(count_descriptors(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(both_statuses_and_both_content_types_open),
        CASE(an_end_at_any_byte_is_told_once),
        CASE(refusals_carry_the_engine_s_words),
        CASE(a_head_without_an_end_is_cut),
        CASE(heads_up_to_the_limit_open),
        CASE(slow_heads_end_at_the_deadline),
        CASE(an_engine_that_is_away_does_not_open),
        CASE(a_full_backlog_is_waited_for),
        CASE(a_canceled_opening_ends_at_once),
        CASE(a_stream_that_makes_no_sense_ends),
        CASE(a_flood_is_read_to_its_end),
        CASE(writes_arrive_in_order_and_are_told_of),
        CASE(the_queue_is_bounded),
        CASE(a_queue_that_moves_keeps_its_room),
        CASE(what_was_said_before_the_end_is_read_though_writes_fail),
        CASE(an_engine_that_takes_no_more_and_says_nothing_is_left),
        CASE(nothing_follows_a_close_in_any_callback),
        CASE(no_descriptor_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
