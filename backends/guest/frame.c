#include "backends/guest/frame.h"

#include <stdlib.h>
#include <string.h>

static const uint8_t MAGIC[FRAME_MAGIC] = {0xf5, 'S', 'B', '1'};

void frame_put16(uint8_t *to, uint16_t value)
{
    to[0] = (uint8_t)(value >> 8);
    to[1] = (uint8_t)value;
}

void frame_put32(uint8_t *to, uint32_t value)
{
    frame_put16(to, (uint16_t)(value >> 16));
    frame_put16(to + 2, (uint16_t)value);
}

void frame_put64(uint8_t *to, uint64_t value)
{
    frame_put32(to, (uint32_t)(value >> 32));
    frame_put32(to + 4, (uint32_t)value);
}

uint16_t frame_get16(const uint8_t *from)
{
    return (uint16_t)(from[0] << 8 | from[1]);
}

uint32_t frame_get32(const uint8_t *from)
{
    return (uint32_t)frame_get16(from) << 16 | frame_get16(from + 2);
}

uint64_t frame_get64(const uint8_t *from)
{
    return (uint64_t)frame_get32(from) << 32 | frame_get32(from + 4);
}

/* A state that has taken the direction's key, to be copied for each frame. */
static void key_direction(crypto_auth_hmacsha256_state *keyed, const uint8_t key[FRAME_KEY],
                          frame_direction_t direction)
{
    const char *name = direction == FRAME_TO_RUNNER ? "h2r" : "r2h";
    uint8_t derived[crypto_auth_hmacsha256_BYTES];
    crypto_auth_hmacsha256_init(keyed, key, FRAME_KEY);
    crypto_auth_hmacsha256_update(keyed, (const uint8_t *)name, 3);
    crypto_auth_hmacsha256_final(keyed, derived);
    crypto_auth_hmacsha256_init(keyed, derived, sizeof(derived));
    sodium_memzero(derived, sizeof(derived));
}

static void make_tag(const crypto_auth_hmacsha256_state *keyed, const uint8_t *bytes, size_t len,
                     uint8_t tag[crypto_auth_hmacsha256_BYTES])
{
    crypto_auth_hmacsha256_state state = *keyed;
    crypto_auth_hmacsha256_update(&state, bytes, len);
    crypto_auth_hmacsha256_final(&state, tag);
    sodium_memzero(&state, sizeof(state));
}

static size_t put_untagged(uint8_t type, uint32_t seq, const void *payload, size_t len, uint8_t out[FRAME_MAX])
{
    if (len > FRAME_PAYLOAD_MAX)
        abort();
    memcpy(out, MAGIC, sizeof(MAGIC));
    out[4] = type;
    out[5] = 0;
    frame_put32(out + 6, seq);
    frame_put32(out + 10, (uint32_t)len);
    if (len != 0)
        memmove(out + FRAME_HEAD, payload, len);
    return FRAME_HEAD + len;
}

void frame_writer_init(frame_writer_t *writer, const uint8_t key[FRAME_KEY], frame_direction_t direction,
                       uint32_t first_seq)
{
    key_direction(&writer->keyed, key, direction);
    writer->seq = first_seq;
}

size_t frame_write(frame_writer_t *writer, uint8_t type, const void *payload, size_t len, uint8_t out[FRAME_MAX])
{
    uint8_t tag[crypto_auth_hmacsha256_BYTES];
    size_t n = put_untagged(type, writer->seq++, payload, len, out);
    make_tag(&writer->keyed, out, n, tag);
    memcpy(out + n, tag, FRAME_TAG);
    return n + FRAME_TAG;
}

size_t frame_write_hello(const void *payload, size_t len, uint8_t out[FRAME_MAX])
{
    return put_untagged(FRAME_HELLO, 0, payload, len, out);
}

/* The payload's length, or -1 when these are not the first bytes of a frame with that number. */
static int head_len(const uint8_t head[FRAME_HEAD], uint32_t seq)
{
    uint32_t len = frame_get32(head + 10);
    if (memcmp(head, MAGIC, sizeof(MAGIC)) != 0 || frame_get32(head + 6) != seq || len > FRAME_PAYLOAD_MAX)
        return -1;
    return (int)len;
}

int frame_hello_len(const uint8_t head[FRAME_HEAD])
{
    return head[4] == FRAME_HELLO ? head_len(head, 0) : -1;
}

void frame_reader_init(frame_reader_t *reader, const uint8_t key[FRAME_KEY], frame_direction_t direction,
                       uint32_t first_seq)
{
    *reader = (frame_reader_t){.seq = first_seq};
    key_direction(&reader->keyed, key, direction);
}

void frame_reader_dispose(frame_reader_t *reader)
{
    free(reader->_bytes);
    sodium_memzero(reader, sizeof(*reader));
}

bool frame_reader_is_spent(const frame_reader_t *reader)
{
    return reader->vain >= FRAME_VAIN_MAX;
}

static void drop(frame_reader_t *reader, size_t len)
{
    if (len == 0)
        return;
    reader->_len -= len;
    memmove(reader->_bytes, reader->_bytes + len, reader->_len);
    reader->_checked = reader->_checked > len ? reader->_checked - len : 0;
}

static bool is_tag_right(frame_reader_t *reader, const uint8_t *bytes, size_t untagged)
{
    uint8_t tag[crypto_auth_hmacsha256_BYTES];
    if (frame_reader_is_spent(reader))
        return false;
    make_tag(&reader->keyed, bytes, untagged, tag);
    bool is_right = sodium_memcmp(tag, bytes + untagged, FRAME_TAG) == 0;
    if (!is_right)
        reader->vain += untagged;
    return is_right;
}

/*
 * Looks through what is kept. Every place where a frame may begin is tried, also behind a beginning whose end has not
 * come: forged beginnings must not hold up the true frame after them. true with *at and *size of the frame; else *at
 * is the first place that may still become one.
 */
static bool find(frame_reader_t *reader, size_t *at, size_t *size)
{
    const uint8_t *bytes = reader->_bytes;
    size_t open = reader->_len;
    for (size_t i = 0; i < reader->_len; i++) {
        const uint8_t *next = memchr(bytes + i, MAGIC[0], reader->_len - i);
        if (next == NULL)
            break;
        i = (size_t)(next - bytes);
        size_t left = reader->_len - i;
        bool is_open;
        if (left < FRAME_HEAD) {
            is_open = memcmp(next, MAGIC, left < sizeof(MAGIC) ? left : sizeof(MAGIC)) == 0;
        } else {
            int len = head_len(next, reader->seq);
            if (len < 0)
                continue;
            size_t whole = FRAME_HEAD + (size_t)len + FRAME_TAG;
            is_open = left < whole;
            /* what was whole the last time was tried then */
            if (!is_open && i + whole > reader->_checked && is_tag_right(reader, next, whole - FRAME_TAG)) {
                *at = i;
                *size = whole;
                return true;
            }
        }
        if (is_open && open == reader->_len)
            open = i;
    }
    *at = open;
    return false;
}

bool frame_reader_next(frame_reader_t *reader, const uint8_t **bytes, size_t *len, frame_t *frame)
{
    if (reader->_taken != 0) {
        drop(reader, reader->_taken);
        reader->_taken = 0;
        reader->_checked = 0; /* under another number */
    }
    for (;;) {
        if (reader->_len > reader->_checked) {
            size_t at, size;
            bool is_found = find(reader, &at, &size);
            reader->unframed += at;
            if (is_found) {
                const uint8_t *head = reader->_bytes + at;
                *frame = (frame_t){.type = head[4],
                                   .flags = head[5],
                                   .payload = head + FRAME_HEAD,
                                   .len = size - FRAME_HEAD - FRAME_TAG};
                reader->_taken = at + size;
                reader->seq++;
                return true;
            }
            drop(reader, at);
            reader->_checked = reader->_len;
        }
        if (*len == 0)
            break;
        /* never full here: the beginning kept first would be whole, and so tried */
        size_t room = FRAME_MAX - reader->_len, n = *len < room ? *len : room;
        if (reader->_bytes == NULL && (reader->_bytes = malloc(FRAME_MAX)) == NULL)
            abort();
        memcpy(reader->_bytes + reader->_len, *bytes, n);
        reader->_len += n;
        *bytes += n;
        *len -= n;
    }
    if (reader->_len == 0) {
        free(reader->_bytes);
        reader->_bytes = NULL;
    }
    return false;
}
