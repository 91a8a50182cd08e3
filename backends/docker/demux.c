#include "backends/docker/demux.h"

#include <string.h>

void demux_init(demux_t *demux)
{
    memset(demux, 0, sizeof(*demux));
}

/* An Engine sends nothing under stdin's number 0, and under 3 its own errors, which end the stream too. */
static bool is_output(uint8_t stream)
{
    return stream == DEMUX_STDOUT || stream == DEMUX_STDERR;
}

static const char *header_problem(const uint8_t header[DEMUX_HEADER])
{
    if (!is_output(header[0]))
        return "a frame of a stream that is neither stdout nor stderr";
    if (header[1] != 0 || header[2] != 0 || header[3] != 0)
        return "a frame header with padding that is not zero";
    return NULL;
}

static uint32_t payload_len(const uint8_t header[DEMUX_HEADER])
{
    return (uint32_t)header[4] << 24 | (uint32_t)header[5] << 16 | (uint32_t)header[6] << 8 | header[7];
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t demux_next(demux_t *demux, const uint8_t *bytes, size_t len, int *stream, const uint8_t **piece,
                  size_t *piece_len)
{
    size_t taken = 0;
    *piece = NULL;
    *piece_len = 0;
    *stream = 0;
    if (demux->problem != NULL || len == 0)
        return 0;
    if (demux->_left == 0) {
        taken = smaller(DEMUX_HEADER - demux->_header_len, len);
        memcpy(demux->_header + demux->_header_len, bytes, taken);
        demux->_header_len += taken;
        if (demux->_header_len < DEMUX_HEADER)
            return taken;
        if ((demux->problem = header_problem(demux->_header)) != NULL)
            return 0;
        demux->_left = payload_len(demux->_header);
        demux->_header_len = 0;
    }
    size_t n = smaller(demux->_left, len - taken);
    if (n == 0)
        return taken;
    *stream = demux->_header[0];
    *piece = bytes + taken;
    *piece_len = n;
    demux->_left -= (uint32_t)n;
    return taken + n;
}

bool demux_is_between_frames(const demux_t *demux)
{
    return demux->problem == NULL && demux->_left == 0 && demux->_header_len == 0;
}
