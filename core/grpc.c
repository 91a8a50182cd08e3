#include "core/grpc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/co.h"
#include "core/mem.h"
#include "core/random.h"
#include "core/tls_stream.h"

enum {
    CHANNEL_MAGIC = 0x67726368,
    CALL_MAGIC = 0x67726361,
    RESET_CANCEL = 8, /* RFC 9113 section 7 */
};

typedef struct link {
    grpc_channel_t *channel;
    h2_conn_t *conn;
    bool is_up;
    bool has_carried; /* a stream, ever */
    bool is_barren;   /* up, it had no room for any, and that was counted */
    struct link *next;
} link_t;

struct grpc_call {
    unsigned magic;
    grpc_channel_t *channel;
    char path[GRPC_PATH_MAX + 1];
    bool is_unary;
    h2_stream_t *stream; /* NULL: it waits for one, or has ended */
    buffer_t early;      /* what was sent before there was a stream */
    bool is_waiting, is_finished, has_sent, has_ended;
    grpc_head_t head;
    grpc_frames_t frames;
    size_t owed; /* window not given back */
    grpc_end_t end;
    co_t *waiter;
    unsigned barren;   /* connections made while it waited that carried nothing */
    grpc_call_t *next; /* that waits */
};

struct grpc_channel {
    unsigned magic;
    loop_t *loop;
    grpc_target_t target;
    struct ssl_ctx_st *tls;
    uint32_t connect_ms;
    link_t *links;
    size_t link_count, call_count;
    grpc_call_t *first, **last; /* calls that wait for a stream */
    unsigned barren;            /* connections in a row that carried nothing */
    loop_timer_t pause;         /* running: no connection is made */
};

static grpc_channel_t *check_channel(grpc_channel_t *channel)
{
    if (channel == NULL || channel->magic != CHANNEL_MAGIC)
        mem_fatal("not a gRPC channel");
    return channel;
}

static grpc_call_t *check_call(const grpc_call_t *call)
{
    if (call == NULL || call->magic != CALL_MAGIC)
        mem_fatal("not a gRPC call");
    return (grpc_call_t *)call;
}

/* --- what comes --- */

static void wake(grpc_call_t *call)
{
    if (call->waiter != NULL)
        co_wake(call->waiter);
}

static void ended(grpc_call_t *call)
{
    call->stream = NULL;
    call->has_ended = true;
    wake(call);
}

static void judge(grpc_call_t *call, h2_end_t end, uint32_t code, const char *reason)
{
    grpc_seen_t seen = {.head = &call->head,
                        .end = end,
                        .reset_code = code,
                        .reason = reason,
                        .is_unary = call->is_unary,
                        .messages = call->frames.count,
                        .left_over = grpc_frames_left_over(&call->frames),
                        .problem = call->frames.problem,
                        .has_sent = call->has_sent};
    grpc_judge(&seen, &call->end);
    ended(call);
}

static void on_header(void *data, const uint8_t *name, size_t name_len, const uint8_t *value, size_t value_len,
                      bool is_first)
{
    grpc_head_add(&check_call(data)->head, name, name_len, value, value_len, is_first);
}

static size_t on_data(void *data, const uint8_t *bytes, size_t len)
{
    grpc_call_t *call = check_call(data);
    grpc_head_body(&call->head);
    /* a body that is not gRPC's is dropped: the end says what it was */
    if (!call->head.is_grpc || call->head.http_status != 200)
        return len;
    if (!grpc_frames_add(&call->frames, bytes, len)) {
        call->has_sent = h2_stream_has_sent(call->stream);
        h2_stream_reset(call->stream, RESET_CANCEL);
        judge(call, H2_RESET, RESET_CANCEL, NULL);
        return len;
    }
    if (grpc_frames_ready(&call->frames) > 0)
        wake(call);
    if (grpc_frames_ready(&call->frames) <= GRPC_AHEAD_MAX)
        return len;
    call->owed += len;
    return 0;
}

static void on_end(void *data, h2_end_t end, uint32_t code, const char *reason)
{
    grpc_call_t *call = check_call(data);
    call->has_sent = h2_stream_has_sent(call->stream);
    judge(call, end, code, reason);
}

static const h2_stream_ops_t STREAM_OPS = {.on_header = on_header, .on_data = on_data, .on_end = on_end};

/* --- connections --- */

static void on_up(void *data);
static void on_down(void *data, bool was_up, const char *reason);
static void on_room(void *data);

static void connect_one(grpc_channel_t *channel)
{
    link_t *link = mem_alloc(sizeof(*link));
    h2_conn_settings_t settings = {.host = channel->target.host,
                                   .port = channel->target.port,
                                   .tls = channel->tls,
                                   .connect_ms = channel->connect_ms,
                                   .on_up = on_up,
                                   .on_down = on_down,
                                   .on_room = on_room,
                                   .data = link};
    link->channel = channel;
    link->next = channel->links;
    channel->links = link;
    ++channel->link_count;
    link->conn = h2_conn_create(channel->loop, &settings);
}

static void start_stream(grpc_call_t *call, link_t *link)
{
    const grpc_target_t *target = &call->channel->target;
    const h2_header_t headers[] = {{":method", "POST"},
                                   {":scheme", target->is_plain ? "http" : "https"},
                                   {":path", call->path},
                                   {":authority", target->authority},
                                   {"te", "trailers"},
                                   {"content-type", "application/grpc"},
                                   {"user-agent", "plimsoll-gateway"},
                                   {"x-request-id", call->end.request_id}};
    call->is_waiting = false;
    link->has_carried = true;
    link->is_barren = false;
    call->channel->barren = 0;
    call->stream = h2_stream_start(link->conn, headers, sizeof(headers) / sizeof(headers[0]), &STREAM_OPS, call);
    h2_stream_write(call->stream, call->early.base, call->early.len);
    buffer_dispose(&call->early);
    if (call->is_finished)
        h2_stream_finish(call->stream);
}

static link_t *with_room(const grpc_channel_t *channel)
{
    for (link_t *link = channel->links; link != NULL; link = link->next) {
        if (link->is_up && h2_conn_room(link->conn) > 0)
            return link;
    }
    return NULL;
}

static bool is_connecting(const grpc_channel_t *channel)
{
    for (const link_t *link = channel->links; link != NULL; link = link->next) {
        if (!link->is_up)
            return true;
    }
    return false;
}

static grpc_call_t *take_first(grpc_channel_t *channel)
{
    grpc_call_t *call = channel->first;
    channel->first = call->next;
    if (channel->first == NULL)
        channel->last = &channel->first;
    call->next = NULL;
    return call;
}

static void leave_queue(grpc_call_t *call)
{
    grpc_channel_t *channel = call->channel;
    for (grpc_call_t **at = &channel->first; *at != NULL; at = &(*at)->next) {
        if (*at != call)
            continue;
        *at = call->next;
        if (channel->last == &call->next)
            channel->last = at;
        return;
    }
}

static void pump(grpc_channel_t *channel)
{
    link_t *link;
    while (channel->first != NULL && (link = with_room(channel)) != NULL)
        start_stream(take_first(channel), link);
    if (channel->first != NULL && !is_connecting(channel) && !loop_timer_is_running(&channel->pause) &&
        channel->link_count < GRPC_CONNECTIONS_MAX)
        connect_one(channel);
}

static void on_room(void *data)
{
    link_t *link = data;
    pump(check_channel(link->channel));
}

static void drop_link(link_t *link)
{
    grpc_channel_t *channel = link->channel;
    for (link_t **at = &channel->links; *at != NULL; at = &(*at)->next) {
        if (*at == link) {
            *at = link->next;
            break;
        }
    }
    --channel->link_count;
    h2_conn_destroy(link->conn);
    free(link);
}

/* No connection is to be had: nothing of the call has left. */
static void fail_call(grpc_call_t *call, const char *reason)
{
    call->is_waiting = false;
    call->end.code = GRPC_UNAVAILABLE;
    call->end.origin = GRPC_BY_CONNECT;
    snprintf(call->end.message, sizeof(call->end.message), "%s", reason);
    ended(call);
}

static void fail_waiting(grpc_channel_t *channel, const char *reason)
{
    while (channel->first != NULL)
        fail_call(take_first(channel), reason);
}

/* --- connections that carry nothing: made again after a pause, and not for ever --- */

static void start_pause(grpc_channel_t *channel)
{
    uint32_t most_ms = GRPC_PAUSE_MIN_MS;
    for (unsigned i = 0; i < channel->barren && most_ms < GRPC_PAUSE_MAX_MS; ++i)
        most_ms *= 2;
    if (most_ms > GRPC_PAUSE_MAX_MS)
        most_ms = GRPC_PAUSE_MAX_MS;
    loop_timer_start(channel->loop, &channel->pause, most_ms / 2 + random_below(most_ms / 2 + 1));
}

static void count_barren(grpc_channel_t *channel, const char *reason)
{
    if (channel->first == NULL)
        return;
    ++channel->barren;
    for (grpc_call_t **at = &channel->first; *at != NULL;) {
        grpc_call_t *call = *at;
        if (++call->barren < GRPC_BARREN_MAX) {
            at = &call->next;
            continue;
        }
        leave_queue(call);
        call->next = NULL;
        fail_call(call, reason);
    }
    start_pause(channel);
}

static void on_pause(loop_timer_t *timer)
{
    grpc_channel_t *channel = check_channel(timer->data);
    /* in the pause it might have got room; it keeps no place from one that has */
    for (link_t *link = channel->links, *next; link != NULL; link = next) {
        next = link->next;
        if (link->is_barren && h2_conn_room(link->conn) == 0)
            drop_link(link);
    }
    pump(channel);
}

static void on_up(void *data)
{
    link_t *link = data;
    grpc_channel_t *channel = check_channel(link->channel);
    link->is_up = true;
    if (h2_conn_room(link->conn) == 0) {
        link->is_barren = true;
        count_barren(channel, "the server takes no calls on its connections");
    }
    pump(channel);
}

static void on_down(void *data, bool was_up, const char *reason)
{
    link_t *link = data;
    grpc_channel_t *channel = check_channel(link->channel);
    if (!was_up)
        fail_waiting(channel, reason);
    else if (!link->has_carried && !link->is_barren)
        count_barren(channel, reason);
    drop_link(link);
    pump(channel);
}

grpc_channel_t *grpc_channel_create(loop_t *loop, const grpc_target_t *target, struct ssl_ctx_st *tls,
                                    uint32_t connect_ms)
{
    grpc_channel_t *channel = mem_alloc(sizeof(*channel));
    if ((tls == NULL) != target->is_plain)
        mem_fatal("a gRPC channel without its TLS");
    channel->magic = CHANNEL_MAGIC;
    channel->loop = loop;
    channel->target = *target;
    channel->tls = tls;
    tls_stream_ref(tls);
    channel->connect_ms = connect_ms;
    channel->last = &channel->first;
    loop_timer_init(&channel->pause, on_pause, channel);
    return channel;
}

void grpc_channel_destroy(grpc_channel_t *channel)
{
    if (channel == NULL)
        return;
    if (check_channel(channel)->call_count != 0)
        mem_fatal("a gRPC channel with calls has ended");
    loop_timer_stop(&channel->pause);
    while (channel->links != NULL)
        drop_link(channel->links);
    tls_stream_unref(channel->tls);
    channel->magic = 0;
    free(channel);
}

size_t grpc_channel_connections(const grpc_channel_t *channel)
{
    return channel->link_count;
}

/* --- a call --- */

grpc_call_t *grpc_call_open(grpc_channel_t *channel, const char *path, bool is_unary)
{
    grpc_call_t *call = mem_alloc(sizeof(*call));
    check_channel(channel);
    call->magic = CALL_MAGIC;
    call->channel = channel;
    call->is_unary = is_unary;
    if (strlen(path) > GRPC_PATH_MAX)
        mem_fatal("a gRPC method's path is too long");
    snprintf(call->path, sizeof(call->path), "%s", path);
    random_hex(call->end.request_id, (GRPC_REQUEST_ID_MAX - 1) / 2);
    buffer_init(&call->early, GRPC_SEND_MAX);
    grpc_frames_init(&call->frames, GRPC_MESSAGE_MAX,
                     (size_t)GRPC_MESSAGE_MAX + GRPC_PREFIX + GRPC_AHEAD_MAX + H2_STREAM_WINDOW);
    ++channel->call_count;
    call->is_waiting = true;
    *channel->last = call;
    channel->last = &call->next;
    pump(channel);
    return call;
}

bool grpc_call_send(grpc_call_t *call, const void *message, size_t len)
{
    uint8_t prefix[GRPC_PREFIX];
    check_call(call);
    size_t pending = call->stream != NULL ? h2_stream_pending(call->stream) : call->early.len;
    if (call->has_ended || call->is_finished || len > GRPC_SEND_MAX - GRPC_PREFIX ||
        pending > GRPC_SEND_MAX - GRPC_PREFIX - len)
        return false;
    grpc_frame_prefix(prefix, (uint32_t)len);
    if (call->stream != NULL) {
        h2_stream_write(call->stream, prefix, sizeof(prefix));
        h2_stream_write(call->stream, message, len);
        return true;
    }
    return buffer_append(&call->early, prefix, sizeof(prefix)) && buffer_append(&call->early, message, len);
}

void grpc_call_finish(grpc_call_t *call)
{
    check_call(call)->is_finished = true;
    if (call->stream != NULL)
        h2_stream_finish(call->stream);
}

bool grpc_call_may_have_run(const grpc_call_t *call)
{
    check_call(call);
    if (call->has_ended)
        return call->end.may_have_run;
    return call->stream != NULL && h2_stream_has_sent(call->stream);
}

static bool take(grpc_call_t *call, const uint8_t **message, size_t *len)
{
    if (!grpc_frames_next(&call->frames, message, len))
        return false;
    if (call->owed > 0 && grpc_frames_ready(&call->frames) <= GRPC_AHEAD_MAX) {
        if (call->stream != NULL)
            h2_stream_consumed(call->stream, call->owed);
        call->owed = 0;
    }
    return true;
}

grpc_next_t grpc_call_next(grpc_call_t *call, uint64_t until_us, const uint8_t **message, size_t *len)
{
    check_call(call);
    for (;;) {
        if (take(call, message, len))
            return GRPC_MESSAGE;
        if (call->has_ended)
            return GRPC_ENDED;
        uint64_t now_us = clock_mono_us();
        if (now_us >= until_us)
            return GRPC_LATE;
        call->waiter = co_self();
        co_wake_t woken = co_wait((until_us - now_us + 999) / 1000);
        call->waiter = NULL;
        if (woken == CO_CANCELED)
            return GRPC_CANCELED;
    }
}

const grpc_end_t *grpc_call_end(const grpc_call_t *call)
{
    check_call(call);
    if (!call->has_ended)
        mem_fatal("the end of a gRPC call that has none");
    return &call->end;
}

void grpc_call_close(grpc_call_t *call)
{
    if (call == NULL)
        return;
    check_call(call);
    if (call->is_waiting)
        leave_queue(call);
    if (call->stream != NULL)
        h2_stream_reset(call->stream, RESET_CANCEL);
    --call->channel->call_count;
    buffer_dispose(&call->early);
    grpc_frames_dispose(&call->frames);
    call->magic = 0;
    free(call);
}

/* --- one request, one answer --- */

static void give_up(const grpc_call_t *call, grpc_origin_t origin, grpc_end_t *end)
{
    *end = call->end;
    end->code = origin == GRPC_BY_CANCEL ? GRPC_CANCELLED : GRPC_DEADLINE_EXCEEDED;
    end->origin = origin;
    end->may_have_run = grpc_call_may_have_run(call);
    snprintf(end->message, sizeof(end->message), "%s",
             origin == GRPC_BY_CANCEL ? "canceled" : "no answer in the time it had");
}

bool grpc_unary(grpc_channel_t *channel, const char *path, const void *request, size_t len, uint64_t until_us,
                buffer_t *answer, grpc_end_t *end)
{
    grpc_call_t *call = grpc_call_open(channel, path, true);
    const uint8_t *message;
    size_t message_len, before = answer->len;
    bool is_whole = true;
    grpc_next_t next;

    if (!grpc_call_send(call, request, len))
        mem_fatal("a gRPC request that is too long");
    grpc_call_finish(call);
    while ((next = grpc_call_next(call, until_us, &message, &message_len)) == GRPC_MESSAGE)
        is_whole = is_whole && buffer_append(answer, message, message_len);
    if (next == GRPC_ENDED)
        *end = *grpc_call_end(call);
    else
        give_up(call, next == GRPC_LATE ? GRPC_BY_DEADLINE : GRPC_BY_CANCEL, end);
    grpc_call_close(call);
    if (end->code == GRPC_OK && !is_whole) {
        end->code = GRPC_RESOURCE_EXHAUSTED;
        end->origin = GRPC_BY_STREAM;
        snprintf(end->message, sizeof(end->message), "the answer is larger than is taken");
    }
    if (end->code != GRPC_OK && before < answer->len) {
        answer->len = before;
        answer->base[before] = '\0';
    }
    return end->code == GRPC_OK;
}
