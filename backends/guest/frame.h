/*
 * Frames between the gateway and the runner in a guest (spec backend-docker 2.4). The stream they travel in may carry
 * bytes of anybody's: only a frame with the right number and the right tag counts, and the reader finds the next one
 * behind whatever was put between them. libsodium and libc only: the same code is in the static runner.
 *
 *   magic 4 (F5 'S' 'B' '1') | type 1 | flags 1 | seq 4 | len 4 | payload | tag 16
 *
 * Integers are big endian. `tag` is the first 16 bytes of HMAC-SHA256 over all before it, under a key of the direction;
 * HELLO alone has none, because it brings the key. `flags` is 0 in this version.
 */
#ifndef BACKENDS_GUEST_FRAME_H
#define BACKENDS_GUEST_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sodium.h>

enum {
    FRAME_MAGIC = 4,
    FRAME_HEAD = 14,
    FRAME_TAG = 16,
    FRAME_PAYLOAD_MAX = 4048,
    FRAME_MAX = FRAME_HEAD + FRAME_PAYLOAD_MAX + FRAME_TAG, /* 4 078: one atomic write to a pipe (PIPE_BUF 4 096) */
    FRAME_KEY = 32,
    /* Bytes hashed for frames that turned out to be none. Past it the stream is given up: looking at 14 forged bytes
     * can cost hashing 4 078, so a flood of them would be paid in the reader's time (16 MiB: some 80 ms). */
    FRAME_VAIN_MAX = 16 * 1024 * 1024,
};

/* The types of spec 2.4. */
enum {
    FRAME_HELLO = 'H',
    FRAME_HELLO_MORE = 'h',
    FRAME_JOB = 'J',
    FRAME_JOB_MORE = 'j',
    FRAME_READY = 'R',
    FRAME_ACCEPTED = 'A',
    FRAME_OUT = 'O',
    FRAME_ERR = 'E',
    FRAME_STEP_END = 'T',
    FRAME_ARTIFACT = 'F',
    FRAME_ARTIFACT_MORE = 'f',
    FRAME_FINAL = 'X',
};

typedef enum { FRAME_TO_RUNNER, FRAME_TO_GATEWAY } frame_direction_t;

typedef struct {
    uint8_t type, flags;
    const uint8_t *payload; /* in the reader; valid until its next call */
    size_t len;
} frame_t;

/* One direction's sending end. */
typedef struct {
    crypto_auth_hmacsha256_state keyed;
    uint32_t seq;
} frame_writer_t;

/* `first_seq` is 1 towards the runner, where HELLO was number 0, else 0. */
void frame_writer_init(frame_writer_t *writer, const uint8_t key[FRAME_KEY], frame_direction_t direction,
                       uint32_t first_seq);
/* The frame's bytes and how many; len <= FRAME_PAYLOAD_MAX. `payload` may be where it belongs in `out`. */
size_t frame_write(frame_writer_t *writer, uint8_t type, const void *payload, size_t len, uint8_t out[FRAME_MAX]);
/* HELLO: number 0, without a tag. */
size_t frame_write_hello(const void *payload, size_t len, uint8_t out[FRAME_MAX]);
/* The payload's length of the head of a HELLO frame, or -1 when it is none. */
int frame_hello_len(const uint8_t head[FRAME_HEAD]);

/* One direction's receiving end. */
typedef struct {
    crypto_auth_hmacsha256_state keyed;
    uint32_t seq;          /* of the next frame */
    uint64_t unframed;     /* bytes skipped so far */
    uint64_t vain;         /* bytes hashed for nothing */
    uint8_t *_bytes;       /* FRAME_MAX, or NULL while nothing is kept */
    size_t _len, _checked; /* bytes kept; how many there were when they were looked through */
    size_t _taken;         /* bytes up to the end of the frame given out last */
} frame_reader_t;

void frame_reader_init(frame_reader_t *reader, const uint8_t key[FRAME_KEY], frame_direction_t direction,
                       uint32_t first_seq);
void frame_reader_dispose(frame_reader_t *reader);
/* Takes bytes off *bytes and *len up to the end of the next frame. true with a frame; false when all were taken. A
 * beginning that may become a frame is kept, at most FRAME_MAX bytes. Aborts when out of memory. */
bool frame_reader_next(frame_reader_t *reader, const uint8_t **bytes, size_t *len, frame_t *frame);
/* FRAME_VAIN_MAX is used up: nothing verifies from here on. */
bool frame_reader_is_spent(const frame_reader_t *reader);

/* Big endian. */
void frame_put16(uint8_t *to, uint16_t value);
void frame_put32(uint8_t *to, uint32_t value);
void frame_put64(uint8_t *to, uint64_t value);
uint16_t frame_get16(const uint8_t *from);
uint32_t frame_get32(const uint8_t *from);
uint64_t frame_get64(const uint8_t *from);

#endif
