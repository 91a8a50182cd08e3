/*
 * The hijacked stream of one container (spec backend-docker 1.4): a Unix socket of its own, opened before the container
 * is started. Reading never pauses; writing is queued within a limit. The demultiplexer is docker_demux.h's.
 */
#ifndef BACKENDS_DOCKER_ATTACH_H
#define BACKENDS_DOCKER_ATTACH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/docker/engine.h"

enum {
    ATTACH_HEAD_MAX = 8192,
    /* a job: 4 MiB of files, steps, paths, and the frames around them */
    ATTACH_UNSENT_MAX = 6 * 1024 * 1024,
};

typedef struct attach attach_t;

typedef struct {
    /* `stream` is 1 (stdout) or 2 (stderr). May close the attachment. */
    void (*on_bytes)(void *data, int stream, const uint8_t *bytes, size_t len);
    /* Exactly once, unless attach_close came first: the stream has ended or broken; `why` is static text. */
    void (*on_end)(void *data, const char *why);
    /* May be NULL: everything queued has been written to the socket. */
    void (*on_sent)(void *data);
} attach_events_t;

/* In a coroutine: connects, asks for the upgrade and waits for 101 or 200. NULL with the reason. `events` is copied;
 * none is called before this returns. */
attach_t *attach_open(engine_t *engine, loop_t *loop, const char *id, const attach_events_t *events, void *data,
                      uint32_t deadline_ms, char failure[ENGINE_TEXT_MAX]);
/* Queues bytes for the container's stdin. False when that would pass ATTACH_UNSENT_MAX, or the stream has ended. */
bool attach_write(attach_t *attach, const void *bytes, size_t len);
/* Bytes not yet written to the socket. */
size_t attach_unsent(const attach_t *attach);
/* No event follows; what comes is read and dropped. It stays open, so that the runner waits, until attach_close. */
void attach_mute(attach_t *attach);
/* From the loop's thread, also inside its callbacks; no event follows. The container goes on. */
void attach_close(attach_t *attach);

#endif
