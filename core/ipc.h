/*
 * Messages between roles over a Unix stream socket. A frame is
 *     u32 length (little-endian, of what follows) | u16 type | u16 zero | u64 call | protobuf bytes
 * The peer is one of ours, yet nothing is trusted: a frame above the limit, a short frame, a non-zero pad or a
 * cancel with a body closes the connection with a named reason. A `call` ties the messages of one run together; type
 * IPC_CANCEL (no body) asks the other side to stop it.
 */
#ifndef CORE_IPC_H
#define CORE_IPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <protobuf-c/protobuf-c.h>

#include "core/loop.h"

enum {
    IPC_HEADER_BYTES = 16,
    IPC_FRAME_MAX = 40 * 1024 * 1024, /* largest `length`: above the 32 MiB answer limit plus what wraps it */
    IPC_QUEUE_MAX = 64 * 1024 * 1024, /* bytes queued for a slow peer; ipc_send says IPC_FULL past it */
    IPC_QUEUE_LOW = 16 * 1024 * 1024, /* on_drain is called when a full queue falls below this */
    IPC_CANCEL_RESERVE = 1024 * 1024, /* queue kept for 65,536 cancels more: back-pressure must not keep a run alive */
    IPC_CANCEL = 1,                   /* the one type known here; schemas start at 16 */
};

typedef struct ipc ipc_t;
typedef enum {
    IPC_SENT,
    IPC_FULL,     /* wait for on_drain */
    IPC_CLOSED,   /* the peer is gone; on_close has been or will be called */
    IPC_TOO_LARGE /* above IPC_FRAME_MAX: no wait will help */
} ipc_result_t;

typedef struct {
    /* `body` is valid during the callback. */
    void (*on_message)(void *data, ipc_t *ipc, uint16_t type, uint64_t call, const uint8_t *body, size_t len);
    void (*on_cancel)(void *data, ipc_t *ipc, uint64_t call); /* may be NULL */
    void (*on_drain)(void *data, ipc_t *ipc);                 /* may be NULL */
    /* Called once, on the peer's end or a bad frame; the connection is unusable and must be destroyed (in the callback
     * or later). Not called for ipc_destroy. Reasons: "closed by peer", "i/o error", "frame too large", "frame too
     * short", "bad frame header". */
    void (*on_close)(void *data, ipc_t *ipc, const char *reason);
} ipc_callbacks_t;

/* Takes the descriptor, a connected stream socket (closed on destroy). NULL when it cannot be watched (errno); then it
 * is closed. */
ipc_t *ipc_create(loop_t *loop, int fd, const ipc_callbacks_t *callbacks, void *data);
/* What is queued is dropped. Safe inside a callback. */
void ipc_destroy(ipc_t *ipc);
/* Packs and queues the message (NULL = empty body). Anything but IPC_SENT queued nothing. Calls no callback. */
ipc_result_t ipc_send(ipc_t *ipc, uint16_t type, uint64_t call, const ProtobufCMessage *message);
ipc_result_t ipc_cancel(ipc_t *ipc, uint64_t call);
/* Back-pressure towards the sender: while paused nothing is read, and its queue fills. */
void ipc_pause(ipc_t *ipc);
void ipc_resume(ipc_t *ipc);
size_t ipc_queued(const ipc_t *ipc);
/* Tighter limits than the constants above, so tests need no 64 MiB; frame_max bounds both directions. */
void ipc_set_limits(ipc_t *ipc, size_t frame_max, size_t queue_max, size_t queue_low);

/* The pure decoder, for the fuzz target: how many bytes the first frame of `data` takes (0 = incomplete), or -1 with
 * *reason. */
typedef struct {
    uint16_t type;
    uint64_t call;
    const uint8_t *body;
    size_t len;
} ipc_frame_t;
int64_t ipc_frame_parse(const uint8_t *data, size_t len, ipc_frame_t *out, const char **reason);

/* Unix sockets. Listening: mode 0600, an old socket file is replaced; returns the descriptor or -1 (errno). */
int ipc_listen(const char *path);
int ipc_connect(const char *path);

#endif
