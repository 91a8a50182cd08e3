#include "backends/docker/attach.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "backends/docker/attach_head.h"
#include "backends/docker/demux.h"
#include "backends/docker/engine_json.h"
#include "backends/docker/engine_text.h"
#include "core/buffer.h"
#include "core/clock.h"
#include "core/co.h"
#include "core/mem.h"
#include "core/watch.h"

enum {
    ATTACH_MAGIC = 0x61747463,
    READ_BYTES = 64 * 1024, /* of one read, on the loop's stack; an Engine's frames have up to 32 KiB */
    CONNECT_RETRY_MS = 10,  /* a full backlog of a Unix socket is told at once and not waited for */
    /* An Engine that takes no more bytes has closed, or will at once: what it sent before is still read. */
    BROKEN_WRITE_MS = 1000,
    REQUEST_MAX = 512, /* bytes of the request's head: 300 and a name of ENGINE_NAME_MAX */
};

struct attach {
    unsigned magic;
    loop_t *loop;
    int fd;
    watch_t *watch;
    attach_events_t events;
    void *data;
    co_t *opener; /* while it waits for the answer; NULL once the stream is open */
    demux_t demux;
    buffer_t head;   /* the answer, then the stream's bytes that came with it; freed when these are delivered */
    size_t early_at; /* where these begin */
    buffer_t unsent;
    size_t unsent_at; /* bytes of it already written */
    loop_task_t task; /* delivers the early bytes, the notice that all is written, and the end */
    loop_timer_t broken_timer;
    const char *end; /* why it has ended; told by the task */
    bool is_started; /* the early bytes were delivered: the socket is read now */
    bool is_write_broken, owes_sent;
    bool is_closed; /* attach_close came inside a callback: freed when that returns */
    unsigned callbacks;
};

/* ---- the end ---- */

static void wipe_unsent(attach_t *attach)
{
    /* The runner's key passes through here. */
    if (attach->unsent.base != NULL)
        explicit_bzero(attach->unsent.base, attach->unsent.cap);
    buffer_dispose(&attach->unsent);
    attach->unsent_at = 0;
}

static void release_descriptor(attach_t *attach)
{
    if (attach->watch != NULL)
        watch_destroy(attach->watch);
    attach->watch = NULL;
    if (attach->fd >= 0)
        close(attach->fd);
    attach->fd = -1;
}

static void destroy(attach_t *attach)
{
    loop_task_cancel(attach->loop, &attach->task);
    loop_timer_stop(&attach->broken_timer);
    release_descriptor(attach);
    wipe_unsent(attach);
    buffer_dispose(&attach->head);
    attach->magic = 0;
    free(attach);
}

/* Around every callback; the second is false when the attachment is gone. */
static void callback_begin(attach_t *attach)
{
    ++attach->callbacks;
}

static bool callback_end(attach_t *attach)
{
    --attach->callbacks;
    if (!attach->is_closed)
        return true;
    if (attach->callbacks == 0)
        destroy(attach);
    return false;
}

static void end_stream(attach_t *attach, const char *why)
{
    if (attach->end != NULL)
        return;
    attach->end = why;
    loop_timer_stop(&attach->broken_timer);
    release_descriptor(attach);
    wipe_unsent(attach);
    loop_defer(attach->loop, &attach->task);
}

static void on_broken_timer(loop_timer_t *timer)
{
    attach_t *attach = timer->data;
    if (attach->magic != ATTACH_MAGIC)
        mem_fatal("not an attachment");
    end_stream(attach, "the Engine takes no more bytes");
}

/* ---- reading ---- */

/* False when the attachment is gone or has ended. */
static bool deliver(attach_t *attach, const uint8_t *bytes, size_t len)
{
    while (len > 0) {
        const uint8_t *piece;
        size_t piece_len;
        int stream;
        size_t taken = demux_next(&attach->demux, bytes, len, &stream, &piece, &piece_len);
        if (attach->demux.problem != NULL) {
            end_stream(attach, attach->demux.problem);
            return false;
        }
        bytes += taken;
        len -= taken;
        if (piece_len == 0)
            continue;
        callback_begin(attach);
        attach->events.on_bytes(attach->data, stream, piece, piece_len);
        if (!callback_end(attach))
            return false;
        if (attach->end != NULL)
            return false;
    }
    return true;
}

static void read_some(attach_t *attach)
{
    uint8_t bytes[READ_BYTES];
    ssize_t n = recv(attach->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0)
        end_stream(attach, "the stream broke");
    else if (n == 0)
        end_stream(attach,
                   demux_is_between_frames(&attach->demux) ? "the stream ended" : "the stream ended in a frame");
    else
        (void)deliver(attach, bytes, (size_t)n);
}

/* ---- writing ---- */

static unsigned wanted(const attach_t *attach)
{
    return (attach->is_started ? WATCH_READ : 0) | (attach->unsent.len != 0 ? WATCH_WRITE : 0);
}

static void break_writing(attach_t *attach)
{
    attach->is_write_broken = true;
    attach->owes_sent = false;
    wipe_unsent(attach);
    loop_timer_start(attach->loop, &attach->broken_timer, BROKEN_WRITE_MS);
}

/* Bytes the socket took; SIZE_MAX when it takes none any more. */
static size_t send_some(attach_t *attach, const uint8_t *bytes, size_t len)
{
    size_t sent = 0;
    while (sent < len) {
        ssize_t n = send(attach->fd, bytes + sent, len - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0)
            sent += (size_t)n;
        else if (n < 0 && errno == EINTR)
            continue;
        else if (n < 0 && errno != EAGAIN)
            return SIZE_MAX;
        else
            break;
    }
    return sent;
}

static void write_some(attach_t *attach)
{
    size_t sent = send_some(attach, attach->unsent.base + attach->unsent_at, attach_unsent(attach));
    if (sent == SIZE_MAX) {
        break_writing(attach);
    } else {
        attach->unsent_at += sent;
        if (attach_unsent(attach) == 0) {
            wipe_unsent(attach);
            attach->owes_sent = attach->events.on_sent != NULL;
            loop_defer(attach->loop, &attach->task);
        }
    }
    watch_set(attach->watch, wanted(attach));
}

/* The written bytes make room before the queue grows by more; they are moved once per half of the limit at most. */
static void compact_unsent(attach_t *attach)
{
    if (attach->unsent_at < ATTACH_UNSENT_MAX / 2)
        return;
    buffer_consume(&attach->unsent, attach->unsent_at);
    attach->unsent_at = 0;
}

bool attach_write(attach_t *attach, const void *bytes, size_t len)
{
    if (attach->magic != ATTACH_MAGIC)
        mem_fatal("not an attachment");
    if (attach->end != NULL || attach->is_write_broken || attach->is_closed)
        return false;
    if (len > ATTACH_UNSENT_MAX - attach_unsent(attach))
        return false;
    if (len == 0)
        return true;
    attach->owes_sent = false;
    size_t sent = 0;
    if (attach_unsent(attach) == 0 && (sent = send_some(attach, bytes, len)) == SIZE_MAX) {
        break_writing(attach);
        return false;
    }
    if (sent == len) {
        attach->owes_sent = attach->events.on_sent != NULL;
        if (attach->owes_sent)
            loop_defer(attach->loop, &attach->task);
        return true;
    }
    compact_unsent(attach);
    if (!buffer_append(&attach->unsent, (const uint8_t *)bytes + sent, len - sent))
        mem_fatal("a queue within its limit does not fit its buffer");
    watch_set(attach->watch, wanted(attach));
    return true;
}

size_t attach_unsent(const attach_t *attach)
{
    return attach->unsent.len - attach->unsent_at;
}

/* ---- the loop ---- */

static void on_ready(void *data, unsigned events)
{
    attach_t *attach = data;
    if (attach->magic != ATTACH_MAGIC)
        mem_fatal("not an attachment");
    if (attach->opener != NULL)
        co_wake(attach->opener);
    else if ((events & WATCH_WRITE) != 0 && attach->unsent.len != 0)
        write_some(attach);
    else if ((events & WATCH_READ) != 0 && attach->is_started)
        read_some(attach);
}

/* False when the attachment is gone or has ended. */
static bool deliver_early(attach_t *attach)
{
    buffer_t head = attach->head;
    size_t at = attach->early_at;
    buffer_init(&attach->head, ATTACH_HEAD_MAX);
    attach->is_started = true;
    bool goes_on = deliver(attach, head.base + at, head.len - at);
    buffer_dispose(&head);
    if (goes_on)
        watch_set(attach->watch, wanted(attach));
    return goes_on;
}

static void on_task(loop_task_t *task)
{
    attach_t *attach = task->data;
    if (attach->magic != ATTACH_MAGIC)
        mem_fatal("not an attachment");
    /* An end found in the early bytes is told by the task it queued. */
    if (!attach->is_started && attach->end == NULL && !deliver_early(attach))
        return;
    if (attach->owes_sent && attach->end == NULL) {
        attach->owes_sent = false;
        callback_begin(attach);
        attach->events.on_sent(attach->data);
        if (!callback_end(attach))
            return;
    }
    if (attach->end == NULL)
        return;
    loop_task_cancel(attach->loop, &attach->task);
    callback_begin(attach);
    attach->events.on_end(attach->data, attach->end);
    (void)callback_end(attach);
}

static void drop_bytes(void *data, int stream, const uint8_t *bytes, size_t len)
{
    (void)data, (void)stream, (void)bytes, (void)len;
}

static void drop_end(void *data, const char *why)
{
    (void)data, (void)why;
}

void attach_mute(attach_t *attach)
{
    if (attach->magic != ATTACH_MAGIC || attach->is_closed)
        mem_fatal("not an attachment");
    attach->events = (attach_events_t){.on_bytes = drop_bytes, .on_end = drop_end};
    attach->owes_sent = false;
}

void attach_close(attach_t *attach)
{
    if (attach->magic != ATTACH_MAGIC || attach->is_closed)
        mem_fatal("not an attachment");
    if (attach->callbacks == 0) {
        destroy(attach);
        return;
    }
    attach->is_closed = true;
    loop_task_cancel(attach->loop, &attach->task);
    loop_timer_stop(&attach->broken_timer);
    release_descriptor(attach);
}

/* ---- opening, in the coroutine ---- */

typedef struct {
    attach_t *attach;
    uint64_t end; /* monotonic ms */
    char *failure;
} opening_t;

static bool fail(const opening_t *opening, const char *why)
{
    engine_text_set(opening->failure, ENGINE_TEXT_MAX, why);
    return false;
}

static bool wait_ready(const opening_t *opening, unsigned events)
{
    uint64_t now = clock_mono_ms();
    if (now >= opening->end)
        return fail(opening, "the deadline passed");
    watch_set(opening->attach->watch, events);
    co_wake_t wake = co_wait(opening->end - now);
    watch_set(opening->attach->watch, 0);
    return wake != CO_CANCELED || fail(opening, "canceled");
}

static bool connect_socket(const opening_t *opening, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    attach_t *attach = opening->attach;

    /* The engine's own limit leaves room for the NUL. */
    memcpy(address.sun_path, path, strlen(path));
    attach->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (attach->fd < 0)
        return fail(opening, strerror(errno));
    while (connect(attach->fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return fail(opening, strerror(errno));
        if (clock_mono_ms() >= opening->end)
            return fail(opening, "the Engine accepts no connection");
        if (co_sleep(CONNECT_RETRY_MS) == CO_CANCELED)
            return fail(opening, "canceled");
    }
    attach->watch = watch_create(attach->loop, attach->fd, on_ready, attach);
    return attach->watch != NULL || fail(opening, "no descriptor left");
}

static bool send_request(const opening_t *opening, const char *version, const char *id)
{
    char request[REQUEST_MAX];
    attach_t *attach = opening->attach;
    int len = snprintf(request, sizeof(request),
                       "POST /v%s/containers/%s/attach?stream=1&stdin=1&stdout=1&stderr=1 HTTP/1.1\r\n"
                       "Host: d\r\n"
                       "Connection: Upgrade\r\n"
                       "Upgrade: tcp\r\n"
                       "Content-Length: 0\r\n"
                       "\r\n",
                       version, id);
    if (len < 0 || (size_t)len >= sizeof(request))
        mem_fatal("an attach request does not fit its buffer");
    for (size_t sent = 0;;) {
        size_t n = send_some(attach, (const uint8_t *)request + sent, (size_t)len - sent);
        if (n == SIZE_MAX)
            return fail(opening, "the Engine closed the connection");
        if ((sent += n) == (size_t)len)
            return true;
        if (!wait_ready(opening, WATCH_WRITE))
            return false;
    }
}

/* What the Engine said, as far as it came with the head: for the log, so nothing more is waited for. Here its errors
 * are plain text as often as JSON. */
static bool fail_refused(const opening_t *opening, const attach_head_t *head)
{
    char text[ENGINE_TEXT_MAX];
    const char *why, *body = (const char *)opening->attach->head.base + head->head_len;
    json_t *json = engine_json_read(body, opening->attach->head.len - head->head_len, &why);
    const char *message = engine_json_text(json, "message");
    size_t line_len = strcspn(body, "\r\n");
    if (message != NULL)
        snprintf(text, sizeof(text), "status %d: %s", head->status, message);
    else if (line_len != 0)
        snprintf(text, sizeof(text), "status %d: %.*s", head->status, (int)line_len, body);
    else
        snprintf(text, sizeof(text), "status %d", head->status);
    json_decref(json);
    return fail(opening, text);
}

static bool read_answer(const opening_t *opening)
{
    attach_t *attach = opening->attach;
    for (;;) {
        size_t room = ATTACH_HEAD_MAX - attach->head.len;
        uint8_t *at = buffer_reserve(&attach->head, room);
        ssize_t n = recv(attach->fd, at, room, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0 || (n < 0 && errno != EAGAIN))
            return fail(opening, attach->head.len == 0 ? "the Engine closed the connection without an answer"
                                                       : "the Engine closed the connection inside of its answer");
        if (n < 0) {
            if (!wait_ready(opening, WATCH_READ))
                return false;
            continue;
        }
        buffer_commit(&attach->head, (size_t)n);
        attach_head_t head;
        switch (attach_head_read(attach->head.base, attach->head.len, &head)) {
        case ATTACH_HEAD_MORE:
            break;
        case ATTACH_HEAD_UPGRADED:
            attach->early_at = head.head_len;
            return true;
        case ATTACH_HEAD_REFUSED:
            return fail_refused(opening, &head);
        case ATTACH_HEAD_BAD:
            return fail(opening, head.why);
        }
    }
}

attach_t *attach_open(engine_t *engine, loop_t *loop, const char *id, const attach_events_t *events, void *data,
                      uint32_t deadline_ms, char failure[ENGINE_TEXT_MAX])
{
    attach_t *attach = mem_alloc(sizeof(*attach));
    opening_t opening = {.attach = attach, .end = clock_mono_ms() + deadline_ms, .failure = failure};
    const char *version = engine_api_version(engine);

    attach->magic = ATTACH_MAGIC;
    attach->loop = loop;
    attach->fd = -1;
    attach->events = *events;
    attach->data = data;
    demux_init(&attach->demux);
    buffer_init(&attach->head, ATTACH_HEAD_MAX);
    /* What was written already stays in the buffer until it is half of the limit. */
    buffer_init(&attach->unsent, ATTACH_UNSENT_MAX + ATTACH_UNSENT_MAX / 2);
    loop_task_init(&attach->task, on_task, attach);
    loop_timer_init(&attach->broken_timer, on_broken_timer, attach);
    failure[0] = '\0';
    if ((attach->opener = co_self()) == NULL)
        mem_fatal("attach_open outside of a coroutine");

    bool is_open = (version[0] != '\0' || fail(&opening, "the API's version is not negotiated")) &&
                   (engine_is_name(id) || fail(&opening, "not a container's ID")) &&
                   connect_socket(&opening, engine_socket(engine)) && send_request(&opening, version, id) &&
                   read_answer(&opening);
    if (!is_open) {
        destroy(attach);
        return NULL;
    }
    attach->opener = NULL;
    loop_defer(loop, &attach->task);
    return attach;
}
