/*
 * The frame decoder on arbitrary bytes, then the same bytes through a socket into a connection, cut where the first
 * byte says. What the connection delivers must be what the pure decoder finds.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/ipc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    INPUT_MAX = 64 * 1024, /* below a socket's buffer, so writing it never waits */
    TICKS_MAX = 64,
};

typedef struct {
    unsigned messages, cancels, closes;
    uint64_t sum; /* of types, calls and body bytes */
    bool destroyed;
} seen_t;

static uint64_t sum_of(const ipc_frame_t *f)
{
    uint64_t sum = (uint64_t)f->type * 31 + f->call * 17 + f->len;
    for (size_t i = 0; i < f->len; i++)
        sum = sum * 131 + f->body[i];
    return sum;
}

static void on_message(void *data, ipc_t *ipc, uint16_t type, uint64_t call, const uint8_t *body, size_t len)
{
    seen_t *seen = data;
    ipc_frame_t f = {.type = type, .call = call, .body = body, .len = len};
    seen->messages++;
    seen->sum += sum_of(&f);
    if (type == 0xdead) {
        seen->destroyed = true;
        ipc_destroy(ipc);
    } else if (type % 5 == 0) {
        ipc_pause(ipc);
    }
}

static void on_cancel(void *data, ipc_t *ipc, uint64_t call)
{
    seen_t *seen = data;
    ipc_frame_t f = {.type = IPC_CANCEL, .call = call};
    (void)ipc;
    seen->cancels++;
    seen->sum += sum_of(&f);
}

static void on_close(void *data, ipc_t *ipc, const char *reason)
{
    (void)ipc;
    if (reason == NULL)
        abort();
    ((seen_t *)data)->closes++;
}

static const ipc_callbacks_t CALLBACKS = {.on_message = on_message, .on_cancel = on_cancel, .on_close = on_close};

static seen_t expected(const uint8_t *data, size_t size)
{
    seen_t seen = {0};
    int64_t n = 0;
    while (size != 0 && !seen.destroyed) {
        ipc_frame_t f;
        const char *reason = NULL;
        n = ipc_frame_parse(data, size, &f, &reason);
        if (n > (int64_t)size || (n < 0 && reason == NULL))
            abort();
        if (n <= 0)
            break;
        if (f.type == IPC_CANCEL)
            seen.cancels++;
        else
            seen.messages++;
        seen.sum += sum_of(&f);
        seen.destroyed = f.type == 0xdead;
        data += n;
        size -= (size_t)n;
    }
    seen.closes = n < 0;
    return seen;
}

static void feed(loop_t *loop, int fd, const uint8_t *data, size_t size)
{
    if (size != 0 && send(fd, data, size, MSG_NOSIGNAL) < 0)
        return; /* closed on a bad frame */
    loop_run_once(loop, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static loop_t *loop;
    int fds[2];
    if (size < 1 || size > INPUT_MAX)
        return 0;
    if (loop == NULL)
        loop = loop_create();
    size_t cut = (size_t)data[0] % size;
    data++;
    size--;
    seen_t want = expected(data, size), seen = {0};

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
        abort();
    ipc_t *ipc = ipc_create(loop, fds[0], &CALLBACKS, &seen);
    feed(loop, fds[1], data, cut);
    feed(loop, fds[1], data + cut, size - cut);
    unsigned all = want.messages + want.cancels + want.closes;
    for (int i = 0; i < TICKS_MAX || seen.messages + seen.cancels + seen.closes < all; i++) {
        if (i > INPUT_MAX)
            abort(); /* something is never delivered */
        if (!seen.destroyed)
            ipc_resume(ipc);
        loop_run_once(loop, 0);
    }
    if (seen.messages != want.messages || seen.cancels != want.cancels || seen.sum != want.sum ||
        seen.destroyed != want.destroyed || (!seen.destroyed && seen.closes != want.closes))
        abort();
    if (!seen.destroyed)
        ipc_destroy(ipc);
    close(fds[1]);
    return 0;
}
