/*
 * A download's answer of arbitrary bytes: the first two say how it is cut, which must change nothing, and what the
 * boundary is. What comes out is always a part of what went in.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backends/dockercloud/multipart.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct {
    uint64_t sum;
    size_t bytes, events;
    multipart_state_t state;
    const char *problem;
} outcome_t;

static void add(outcome_t *out, const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; ++i)
        out->sum = out->sum * 131 + bytes[i];
    out->bytes += len;
}

static bool on_json(void *data, part_kind_t kind, const uint8_t *body, size_t len)
{
    outcome_t *out = data;
    if (kind == PART_CONTENT || kind >= PART_KINDS || len > MULTIPART_JSON_MAX)
        abort();
    add(out, body, len);
    out->sum = out->sum * 131 + (uint64_t)kind;
    ++out->events;
    return true;
}

static bool on_content(void *data, const uint8_t *bytes, size_t len, bool is_end)
{
    outcome_t *out = data;
    if (is_end && len != 0)
        abort();
    add(out, bytes, len);
    out->events += is_end;
    return true;
}

static const multipart_events_t EVENTS = {.on_json = on_json, .on_content = on_content};

static outcome_t run(const char *type, const uint8_t *data, size_t size, size_t piece_max)
{
    outcome_t out = {.sum = 1};
    multipart_t m;
    multipart_init(&m, type, &EVENTS, &out);
    while (size > 0 && m.state == MULTIPART_MORE) {
        size_t n = piece_max < size ? piece_max : size;
        /* An exact copy, so that a read past the piece is seen. */
        uint8_t *copy = malloc(n);
        memcpy(copy, data, n);
        multipart_take(&m, copy, n);
        free(copy);
        data += n;
        size -= n;
    }
    out.state = m.state;
    out.problem = m.problem;
    if ((m.state == MULTIPART_BROKEN) != (m.problem != NULL))
        abort();
    multipart_dispose(&m);
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char type[64] = "multipart/mixed; boundary=\"B\"";
    if (size < 2)
        return 0;
    type[27] = data[1] >= 0x20 && data[1] < 0x7f ? (char)data[1] : 'B';
    outcome_t a = run(type, data + 2, size - 2, data[0] + 1u), b = run(type, data + 2, size - 2, SIZE_MAX);
    if (a.sum != b.sum || a.bytes != b.bytes || a.events != b.events || a.state != b.state || a.problem != b.problem)
        abort();
    if (a.bytes > size)
        abort();
    return 0;
}
