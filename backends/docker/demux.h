/*
 * The frames of a hijacked stream (spec backend-docker 1.4): byte 0 the stream, bytes 1 to 3 zero, bytes 4 to 7 the
 * payload's length, big endian, then the payload. Payloads pass through as they come, so nothing is kept but a header
 * cut in two, and no length has to be believed. Pure: no descriptor, no clock.
 */
#ifndef BACKENDS_DOCKER_DEMUX_H
#define BACKENDS_DOCKER_DEMUX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DEMUX_HEADER = 8, DEMUX_STDOUT = 1, DEMUX_STDERR = 2 };

typedef struct {
    const char *problem; /* static text; NULL while the stream makes sense */
    uint8_t _header[DEMUX_HEADER];
    size_t _header_len;
    uint32_t _left; /* of the payload */
} demux_t;

void demux_init(demux_t *demux);
/*
 * Takes the next bytes: at most one piece of one payload is given back, of `stream` (DEMUX_STDOUT or DEMUX_STDERR), as
 * a part of `bytes`; `*piece_len` is 0 when there is none yet. Returns the bytes taken, at least 1 unless `len` is 0 or
 * there is a problem: call again with the rest.
 */
size_t demux_next(demux_t *demux, const uint8_t *bytes, size_t len, int *stream, const uint8_t **piece,
                  size_t *piece_len);
/* Whether the stream may end here: not inside of a header or a payload. */
bool demux_is_between_frames(const demux_t *demux);

#endif
