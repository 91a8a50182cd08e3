/*
 * The runner's two streams: frames in on its stdin, frames out on its stdout. Writing never waits without a bound, and
 * while a guest runs it does not wait at all: one frame may be pending, and whoever makes frames looks first.
 */
#ifndef BACKENDS_GUEST_RUNNER_LINK_H
#define BACKENDS_GUEST_RUNNER_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/guest/frame.h"
#include "backends/guest/job.h"

enum {
    LINK_IN = 0,
    LINK_OUT = 1,
    LINK_STALL_MS = 10 * 1000, /* without a byte taken: the reader has gone */
    LINK_EXIT = 123,           /* the runner's exit status when it has */
    /* Nobody who lives lets a sandbox wait longer: one whose engine was killed under its start is greeted by nobody,
     * one forgotten in a pool gets no job, and neither may stay for ever (spec 8 (9)). */
    LINK_GREETING_MS = 60 * 1000,      /* thrice what a wall waits for a sandbox to be ready */
    LINK_LINGER_MS = 2 * 1000,         /* after the last frame; twice what a removal waits for runs */
    LINK_JOB_MS = 13 * 60 * 60 * 1000, /* a pool's longest idle time, 12 h, and one more */
};

typedef struct {
    frame_reader_t reader;
    frame_writer_t writer;
    crypto_hash_sha256_state digest; /* of all payloads sent */
    uint32_t sent;                   /* frames */
    const uint8_t *_next;            /* bytes read and not looked at */
    size_t _left;
    uint64_t _until_us; /* of waiting for bytes, CLOCK_MONOTONIC */
    uint8_t _pending[FRAME_MAX];
    size_t _at, _len;
    uint8_t _in[16 * 1024];
} link_t;

/* From now on, how long bytes are waited for; past it is the end of the stream. */
void link_wait_at_most(link_t *link, uint32_t ms);
/* Reads the whole greeting, before which nothing else may come. NULL, or what is wrong; an end of the stream is "". The
 * variables point into *message, which also holds the key: the caller erases both. */
const char *link_greet(link_t *link, job_hello_t *hello, job_message_t *message);
/* The next frame. false at the end of the stream. */
bool link_read(link_t *link, frame_t *frame);

/* Nothing is pending: link_put may be called. */
bool link_is_clear(const link_t *link);
/* Makes a frame and writes what goes without waiting. */
void link_put(link_t *link, uint8_t type, const void *payload, size_t len);
/* Writes more of what is pending. */
void link_push(link_t *link);
/* Waits until nothing is pending. Ends the process with LINK_EXIT when the reader has gone or takes nothing for
 * LINK_STALL_MS; every process in the sandbox ends with it. */
void link_flush(link_t *link);
/* link_flush, link_put. */
void link_send(link_t *link, uint8_t type, const void *payload, size_t len);
/* SHA-256 over the payloads so far. */
void link_digest(const link_t *link, uint8_t digest[JOB_DIGEST]);
/* Forgets the keys; of no use afterwards. */
void link_erase(link_t *link);

#endif
