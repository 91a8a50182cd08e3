#include "core/ipc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/mem.h"
#include "core/watch.h"

enum {
    IPC_MAGIC = 0x69706321,
    LENGTH_BYTES = 4,
    LENGTH_MIN = IPC_HEADER_BYTES - LENGTH_BYTES, /* a frame without a body */
    READ_AHEAD = 64 * 1024,                       /* one recv when no frame is begun; borrowed for the call only */
    READ_TURN = 256 * 1024,                       /* bytes read for one peer before the others get their turn */
    TRUSTED_BODY = 1024 * 1024,                   /* allocated on the header's word; more only as the bytes come */
    CHUNK_BYTES = 8 * 1024,                       /* small frames queued in one tick share an allocation */
    WRITE_VECTORS = 64,
};

/* Queued output. Frames are appended while they fit, so a chunk is one or more whole frames. */
typedef struct chunk {
    struct chunk *next;
    size_t len, cap;
    uint8_t bytes[];
} chunk_t;

struct ipc {
    unsigned magic;
    unsigned holds; /* frames of this file on the stack; the last one out frees a dead connection */
    bool dead;      /* ipc_destroy was called */
    bool closed;    /* on_close was called, or is being called */
    bool broken;    /* writing failed: what the peer sent before is still delivered, then on_close follows */
    bool paused;
    bool full;   /* a send was refused: on_drain is owed */
    bool corked; /* a frame was written directly in this tick: the rest of the tick's frames wait for its end */
    int fd;
    loop_t *loop;
    watch_t *watch;
    unsigned events;
    const ipc_callbacks_t *callbacks;
    void *data;
    /* Input: a frame that has begun, or whole frames kept back by a pause. NULL while the connection is idle. */
    uint8_t *in;
    size_t in_off, in_len, in_cap;
    /* Output. `out_off` counts into the first chunk. */
    chunk_t *out, *out_last;
    size_t out_off, queued;
    size_t frame_max, queue_max, queue_low;
    size_t last_words; /* bytes read since it broke */
    loop_task_t flush_task;
    loop_task_t input_task; /* resumed, or broken */
};

static void ipc_check(const ipc_t *ipc)
{
    if (ipc == NULL || ipc->magic != IPC_MAGIC)
        mem_fatal("not an ipc connection");
}

static void put16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static void put32(uint8_t *p, uint32_t v)
{
    put16(p, (uint16_t)v);
    put16(p + 2, (uint16_t)(v >> 16));
}

static uint32_t get32(const uint8_t *p)
{
    return get16(p) | (uint32_t)get16(p + 2) << 16;
}

static void put64(uint8_t *p, uint64_t v)
{
    put32(p, (uint32_t)v);
    put32(p + 4, (uint32_t)(v >> 32));
}

static uint64_t get64(const uint8_t *p)
{
    return get32(p) | (uint64_t)get32(p + 4) << 32;
}

static int64_t frame_parse(const uint8_t *data, size_t len, size_t frame_max, ipc_frame_t *out, const char **reason)
{
    if (len < LENGTH_BYTES)
        return 0;
    size_t length = get32(data);
    if (length > frame_max) {
        *reason = "frame too large";
        return -1;
    }
    if (length < LENGTH_MIN) {
        *reason = "frame too short";
        return -1;
    }
    if (len < IPC_HEADER_BYTES)
        return 0;
    *out = (ipc_frame_t){
        .type = get16(data + 4), .call = get64(data + 8), .body = data + IPC_HEADER_BYTES, .len = length - LENGTH_MIN};
    if (get16(data + 6) != 0 || (out->type == IPC_CANCEL && out->len != 0)) {
        *reason = "bad frame header";
        return -1;
    }
    size_t total = LENGTH_BYTES + length;
    return len < total ? 0 : (int64_t)total;
}

int64_t ipc_frame_parse(const uint8_t *data, size_t len, ipc_frame_t *out, const char **reason)
{
    return frame_parse(data, len, IPC_FRAME_MAX, out, reason);
}

/* --- life --- */

static void ipc_hold(ipc_t *ipc)
{
    ipc->holds++;
}

static void ipc_release(ipc_t *ipc)
{
    if (--ipc->holds != 0 || !ipc->dead)
        return;
    ipc->magic = 0;
    free(ipc->in);
    free(ipc);
}

static void drop_output(ipc_t *ipc)
{
    while (ipc->out != NULL) {
        chunk_t *next = ipc->out->next;
        free(ipc->out);
        ipc->out = next;
    }
    ipc->out_last = NULL;
    ipc->out_off = ipc->queued = 0;
}

static void stop_watching(ipc_t *ipc)
{
    if (ipc->watch != NULL)
        watch_destroy(ipc->watch);
    ipc->watch = NULL;
    loop_task_cancel(ipc->loop, &ipc->flush_task);
    loop_task_cancel(ipc->loop, &ipc->input_task);
}

static void close_with(ipc_t *ipc, const char *reason)
{
    if (ipc->closed || ipc->dead)
        return;
    ipc->closed = true;
    stop_watching(ipc);
    drop_output(ipc);
    ipc->callbacks->on_close(ipc->data, ipc, reason);
}

static bool is_done(const ipc_t *ipc)
{
    return ipc->closed || ipc->dead;
}

static void watch_what_is_needed(ipc_t *ipc)
{
    unsigned events = 0;
    if (is_done(ipc))
        return;
    if (!ipc->paused)
        events |= WATCH_READ;
    if (ipc->out != NULL && !ipc->broken)
        events |= WATCH_WRITE;
    if (events != ipc->events)
        watch_set(ipc->watch, events);
    ipc->events = events;
}

/* A broken peer's last words are read first; the socket's end says the rest. */
static void break_output(ipc_t *ipc)
{
    ipc->broken = true;
    drop_output(ipc);
    loop_defer(ipc->loop, &ipc->input_task);
}

static const char *reason_of(int error)
{
    return error == EPIPE || error == ECONNRESET ? "closed by peer" : "i/o error";
}

/* --- input --- */

static void deliver(ipc_t *ipc, const ipc_frame_t *frame)
{
    if (frame->type != IPC_CANCEL)
        ipc->callbacks->on_message(ipc->data, ipc, frame->type, frame->call, frame->body, frame->len);
    else if (ipc->callbacks->on_cancel != NULL)
        ipc->callbacks->on_cancel(ipc->data, ipc, frame->call);
}

/* Delivers the whole frames at the front of `data` until one is missing bytes or a callback pauses or ends the
 * connection. Returns how many bytes were used. */
static size_t deliver_frames(ipc_t *ipc, const uint8_t *data, size_t len)
{
    size_t used = 0;
    while (!ipc->paused && !is_done(ipc)) {
        ipc_frame_t frame;
        const char *reason;
        int64_t n = frame_parse(data + used, len - used, ipc->frame_max, &frame, &reason);
        if (n < 0)
            close_with(ipc, reason);
        if (n <= 0)
            break;
        used += (size_t)n;
        deliver(ipc, &frame);
    }
    return used;
}

static void forget_input(ipc_t *ipc)
{
    free(ipc->in);
    ipc->in = NULL;
    ipc->in_off = ipc->in_len = ipc->in_cap = 0;
}

static void deliver_kept(ipc_t *ipc)
{
    ipc->in_off += deliver_frames(ipc, ipc->in + ipc->in_off, ipc->in_len - ipc->in_off);
    if (ipc->in_off == ipc->in_len)
        forget_input(ipc);
}

/* How many bytes the frame at the front of the kept input still lacks: of its header, then of its body. */
static size_t bytes_missing(const ipc_t *ipc)
{
    size_t have = ipc->in_len - ipc->in_off;
    if (have < IPC_HEADER_BYTES)
        return IPC_HEADER_BYTES - have;
    return LENGTH_BYTES + (size_t)get32(ipc->in + ipc->in_off) - have; /* the length has passed frame_parse */
}

/* Room behind the kept input for a part of what is missing. The header's word is believed up to TRUSTED_BODY; beyond
 * that the room doubles with what has come, so a lying header costs its sender as many bytes as us. */
static size_t make_room(ipc_t *ipc, size_t missing)
{
    if (ipc->in_off != 0) {
        memmove(ipc->in, ipc->in + ipc->in_off, ipc->in_len - ipc->in_off);
        ipc->in_len -= ipc->in_off;
        ipc->in_off = 0;
    }
    if (ipc->in_len == ipc->in_cap) {
        size_t grow = ipc->in_len > TRUSTED_BODY ? ipc->in_len : TRUSTED_BODY;
        ipc->in_cap = ipc->in_len + (missing < grow ? missing : grow);
        ipc->in = mem_realloc(ipc->in, ipc->in_cap);
    }
    size_t room = ipc->in_cap - ipc->in_len;
    return room < missing ? room : missing;
}

static void keep_input(ipc_t *ipc, const uint8_t *data, size_t len)
{
    if (len == 0)
        return;
    ipc->in = mem_realloc(NULL, len);
    ipc->in_cap = ipc->in_len = len;
    memcpy(ipc->in, data, len);
}

/* One recv. false = nothing more for now, or the connection ended. */
static bool receive(ipc_t *ipc, uint8_t *to, size_t len, size_t *got)
{
    ssize_t n;
    do
        n = recv(ipc->fd, to, len, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        *got = (size_t)n;
        return true;
    }
    if (n == 0)
        close_with(ipc, "closed by peer");
    else if (errno != EAGAIN && errno != EWOULDBLOCK)
        close_with(ipc, reason_of(errno));
    return false;
}

/* While a frame is begun only its own bytes are read, straight into place; between frames a borrowed buffer takes what
 * is there, so idle connections own no memory and many small frames cost one recv. */
static bool read_begun(ipc_t *ipc, size_t *got)
{
    size_t room = make_room(ipc, bytes_missing(ipc));
    if (!receive(ipc, ipc->in + ipc->in_len, room, got))
        return false;
    ipc->in_len += *got;
    deliver_kept(ipc);
    return true;
}

static bool read_fresh(ipc_t *ipc, size_t *got)
{
    uint8_t *borrowed = mem_realloc(NULL, READ_AHEAD);
    bool more = receive(ipc, borrowed, READ_AHEAD, got);
    if (more) {
        size_t used = deliver_frames(ipc, borrowed, *got);
        if (!is_done(ipc))
            keep_input(ipc, borrowed + used, *got - used);
        more = *got == READ_AHEAD;
    }
    free(borrowed);
    return more;
}

/* One peer's turn. What a broken peer had sent is read until nothing is left, and no longer than a full queue would
 * take. */
static void read_input(ipc_t *ipc)
{
    size_t turn = 0, got = 0;
    if (ipc->in != NULL)
        deliver_kept(ipc);
    while (!ipc->paused && !is_done(ipc) && turn < READ_TURN) {
        if (!(ipc->in != NULL ? read_begun(ipc, &got) : read_fresh(ipc, &got)))
            break;
        turn += got;
    }
    if (!ipc->broken || ipc->paused)
        return;
    ipc->last_words += turn;
    if (turn == 0 || ipc->last_words > IPC_QUEUE_MAX)
        close_with(ipc, "closed by peer");
    else if (!is_done(ipc))
        loop_defer(ipc->loop, &ipc->input_task);
}

static void on_input_task(loop_task_t *task)
{
    ipc_t *ipc = task->data;
    ipc_check(ipc);
    if (ipc->paused)
        return; /* a broken connection ends when it is resumed, after what the peer had sent */
    ipc_hold(ipc);
    read_input(ipc);
    watch_what_is_needed(ipc);
    ipc_release(ipc);
}

/* --- output --- */

/* Hands the queue to the kernel; false when the peer is gone. */
static bool write_queue(ipc_t *ipc)
{
    while (ipc->out != NULL) {
        struct iovec vectors[WRITE_VECTORS];
        struct msghdr message = {.msg_iov = vectors};
        size_t offset = ipc->out_off, want = 0;
        for (chunk_t *c = ipc->out; c != NULL && message.msg_iovlen < WRITE_VECTORS; c = c->next, offset = 0) {
            vectors[message.msg_iovlen++] = (struct iovec){.iov_base = c->bytes + offset, .iov_len = c->len - offset};
            want += c->len - offset;
        }
        ssize_t n = sendmsg(ipc->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return true;
        if (n < 0)
            return false;
        ipc->queued -= (size_t)n;
        ipc->out_off += (size_t)n;
        while (ipc->out != NULL && ipc->out_off >= ipc->out->len) {
            chunk_t *sent = ipc->out;
            ipc->out_off -= sent->len;
            ipc->out = sent->next;
            free(sent);
        }
        if (ipc->out == NULL)
            ipc->out_last = NULL;
        if ((size_t)n < want)
            return true;
    }
    return true;
}

static void flush(ipc_t *ipc)
{
    if (is_done(ipc) || ipc->broken)
        return;
    if (!write_queue(ipc))
        break_output(ipc);
    else if (ipc->full && ipc->queued < ipc->queue_low) {
        ipc->full = false;
        if (ipc->callbacks->on_drain != NULL)
            ipc->callbacks->on_drain(ipc->data, ipc);
    }
}

static void on_flush_task(loop_task_t *task)
{
    ipc_t *ipc = task->data;
    ipc_check(ipc);
    ipc_hold(ipc);
    ipc->corked = false;
    if ((ipc->events & WATCH_WRITE) == 0)
        flush(ipc);
    watch_what_is_needed(ipc);
    ipc_release(ipc);
}

static uint8_t *queue_room(ipc_t *ipc, size_t len, bool is_alone)
{
    chunk_t *last = ipc->out_last;
    if (last == NULL || last->cap - last->len < len) {
        size_t cap = is_alone || len > CHUNK_BYTES ? len : CHUNK_BYTES;
        chunk_t *c = mem_realloc(NULL, sizeof(*c) + cap);
        c->next = NULL;
        c->len = 0;
        c->cap = cap;
        if (last == NULL)
            ipc->out = c;
        else
            last->next = c;
        ipc->out_last = last = c;
    }
    uint8_t *at = last->bytes + last->len;
    last->len += len;
    ipc->queued += len;
    return at;
}

static ipc_result_t send_frame(ipc_t *ipc, uint16_t type, uint64_t call, const ProtobufCMessage *message,
                               size_t reserve)
{
    ipc_check(ipc);
    if (is_done(ipc) || ipc->broken)
        return IPC_CLOSED;
    size_t body = message != NULL ? protobuf_c_message_get_packed_size(message) : 0;
    if (ipc->frame_max < LENGTH_MIN || body > ipc->frame_max - LENGTH_MIN)
        return IPC_TOO_LARGE;
    size_t total = IPC_HEADER_BYTES + body, limit = ipc->queue_max + reserve;
    if (ipc->queued > limit || total > limit - ipc->queued) {
        ipc->full = true;
        return IPC_FULL;
    }
    /* The first frame of a tick is written at once, for its latency; those that follow in the same tick go out
     * together. */
    bool is_first = ipc->out == NULL && !ipc->corked;
    uint8_t *at = queue_room(ipc, total, is_first);
    put32(at, (uint32_t)(LENGTH_MIN + body));
    put16(at + 4, type);
    put16(at + 6, 0);
    put64(at + 8, call);
    if (body != 0)
        protobuf_c_message_pack(message, at + IPC_HEADER_BYTES);
    ipc->corked = true;
    loop_defer(ipc->loop, &ipc->flush_task);
    if (is_first && !write_queue(ipc)) {
        break_output(ipc);
        return IPC_CLOSED;
    }
    return IPC_SENT;
}

ipc_result_t ipc_send(ipc_t *ipc, uint16_t type, uint64_t call, const ProtobufCMessage *message)
{
    return send_frame(ipc, type, call, message, 0);
}

ipc_result_t ipc_cancel(ipc_t *ipc, uint64_t call)
{
    return send_frame(ipc, IPC_CANCEL, call, NULL, IPC_CANCEL_RESERVE);
}

/* --- the connection --- */

static void on_event(void *data, unsigned events)
{
    ipc_t *ipc = data;
    ipc_check(ipc);
    ipc_hold(ipc);
    if ((events & WATCH_WRITE) != 0)
        flush(ipc);
    if ((events & WATCH_READ) != 0 && !ipc->paused && !is_done(ipc))
        read_input(ipc);
    watch_what_is_needed(ipc);
    ipc_release(ipc);
}

ipc_t *ipc_create(loop_t *loop, int fd, const ipc_callbacks_t *callbacks, void *data)
{
    ipc_t *ipc = mem_alloc(sizeof(*ipc));
    ipc->magic = IPC_MAGIC;
    ipc->fd = fd;
    ipc->loop = loop;
    ipc->callbacks = callbacks;
    ipc->data = data;
    ipc_set_limits(ipc, IPC_FRAME_MAX, IPC_QUEUE_MAX, IPC_QUEUE_LOW);
    loop_task_init(&ipc->flush_task, on_flush_task, ipc);
    loop_task_init(&ipc->input_task, on_input_task, ipc);
    if ((ipc->watch = watch_create(loop, fd, on_event, ipc)) == NULL) {
        int error = errno;
        close(fd);
        free(ipc);
        errno = error;
        return NULL;
    }
    watch_what_is_needed(ipc);
    return ipc;
}

void ipc_destroy(ipc_t *ipc)
{
    ipc_check(ipc);
    if (ipc->dead)
        mem_fatal("ipc destroyed twice");
    ipc_hold(ipc);
    ipc->dead = true;
    stop_watching(ipc);
    drop_output(ipc);
    close(ipc->fd);
    ipc_release(ipc);
}

void ipc_pause(ipc_t *ipc)
{
    ipc_check(ipc);
    ipc->paused = true;
    watch_what_is_needed(ipc);
}

void ipc_resume(ipc_t *ipc)
{
    ipc_check(ipc);
    if (!ipc->paused)
        return;
    ipc->paused = false;
    if (!is_done(ipc) && (ipc->in != NULL || ipc->broken))
        loop_defer(ipc->loop, &ipc->input_task);
    watch_what_is_needed(ipc);
}

size_t ipc_queued(const ipc_t *ipc)
{
    ipc_check(ipc);
    return ipc->queued;
}

void ipc_set_limits(ipc_t *ipc, size_t frame_max, size_t queue_max, size_t queue_low)
{
    ipc_check(ipc);
    ipc->frame_max = frame_max;
    ipc->queue_max = queue_max;
    ipc->queue_low = queue_low;
}
