/*
 * A hijacked stream of arbitrary bytes: the first byte says how it is cut, which must change nothing. What comes out is
 * always a part of what went in.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backends/docker/demux.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct {
    uint64_t sums[2];
    size_t lens[2];
    size_t taken;
    const char *problem;
    bool is_between;
} outcome_t;

static void take(outcome_t *out, int stream, const uint8_t *bytes, size_t len)
{
    if (stream != DEMUX_STDOUT && stream != DEMUX_STDERR)
        abort();
    for (size_t i = 0; i < len; ++i)
        out->sums[stream - 1] = out->sums[stream - 1] * 131 + bytes[i];
    out->lens[stream - 1] += len;
}

static outcome_t run(const uint8_t *data, size_t size, size_t piece_max)
{
    outcome_t out = {0};
    demux_t demux;
    demux_init(&demux);
    while (size > 0 && demux.problem == NULL) {
        size_t n = piece_max < size ? piece_max : size, used = 0;
        /* An exact copy, so that a read past the piece is seen. */
        uint8_t *copy = malloc(n);
        memcpy(copy, data, n);
        while (used < n) {
            const uint8_t *piece;
            size_t len;
            int stream;
            size_t taken = demux_next(&demux, copy + used, n - used, &stream, &piece, &len);
            if (demux.problem != NULL) {
                if (len != 0)
                    abort();
                break;
            }
            if (taken == 0 || taken > n - used || len > taken)
                abort();
            if (len != 0 && (piece < copy + used || piece + len > copy + used + taken))
                abort();
            if (len != 0)
                take(&out, stream, piece, len);
            used += taken;
        }
        free(copy);
        out.taken += used;
        data += n;
        size -= n;
    }
    out.problem = demux.problem;
    out.is_between = demux_is_between_frames(&demux);
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    outcome_t a = run(data + 1, size - 1, data[0] + 1u), b = run(data + 1, size - 1, SIZE_MAX);
    if (memcmp(a.sums, b.sums, sizeof(a.sums)) != 0 || memcmp(a.lens, b.lens, sizeof(a.lens)) != 0 ||
        a.problem != b.problem || a.is_between != b.is_between)
        abort();
    if (a.problem == NULL && (a.taken != size - 1 || b.taken != size - 1))
        abort();
    if (a.lens[0] + a.lens[1] > size - 1)
        abort();
    return 0;
}
