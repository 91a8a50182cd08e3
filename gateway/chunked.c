#include "gateway/chunked.h"

#include <string.h>

#include "core/hex.h"
#include "gateway/limits.h"

enum { SIZE, EXTENSION, SIZE_LF, DATA, DATA_CR, DATA_LF, TRAILER_START, TRAILER, TRAILER_LF, END_LF, DONE };

/* One byte of anything but data. */
static chunked_result_t step(chunked_t *c, char byte)
{
    int digit;
    switch (c->state) {
    case SIZE:
        if ((digit = hex_digit(byte)) >= 0) {
            if (++c->digits > 15)
                return CHUNKED_BAD;
            c->left = c->left * 16 + (uint64_t)digit;
        } else if (c->digits == 0) {
            return CHUNKED_BAD;
        } else if (byte == '\r') {
            c->state = SIZE_LF;
        } else if (byte == ';') {
            c->state = EXTENSION;
        } else {
            return CHUNKED_BAD;
        }
        break;
    case EXTENSION:
        if (byte == '\r')
            c->state = SIZE_LF;
        else if ((unsigned char)byte < 0x20 && byte != '\t')
            return CHUNKED_BAD;
        break;
    case SIZE_LF:
        if (byte != '\n')
            return CHUNKED_BAD;
        c->state = c->left == 0 ? TRAILER_START : DATA;
        c->line = 0;
        return CHUNKED_MORE;
    case DATA_CR:
        if (byte != '\r')
            return CHUNKED_BAD;
        c->state = DATA_LF;
        break;
    case DATA_LF:
        if (byte != '\n')
            return CHUNKED_BAD;
        c->state = SIZE;
        c->left = 0;
        c->digits = 0;
        c->line = 0;
        return CHUNKED_MORE;
    case TRAILER_START:
        if (byte == '\r') {
            c->state = END_LF;
            break;
        }
        if (++c->trailers > CHUNK_TRAILERS_MAX)
            return CHUNKED_BAD;
        c->state = TRAILER;
        /* fall through */
    case TRAILER:
        if (byte == '\r')
            c->state = TRAILER_LF;
        else if ((unsigned char)byte < 0x20 && byte != '\t')
            return CHUNKED_BAD;
        break;
    case TRAILER_LF:
        if (byte != '\n')
            return CHUNKED_BAD;
        c->state = TRAILER_START;
        c->line = 0;
        return CHUNKED_MORE;
    case END_LF:
        if (byte != '\n')
            return CHUNKED_BAD;
        c->state = DONE;
        return CHUNKED_DONE;
    default:
        return CHUNKED_BAD;
    }
    return ++c->line > CHUNK_LINE_MAX ? CHUNKED_BAD : CHUNKED_MORE;
}

chunked_result_t chunked_feed(chunked_t *c, char *bytes, size_t *decoded, size_t fresh, uint64_t limit, size_t *extra)
{
    const char *in = bytes + *decoded, *end = in + fresh;
    char *out = bytes + *decoded;
    chunked_result_t result = CHUNKED_MORE;
    *extra = 0;
    while (in < end && result == CHUNKED_MORE) {
        size_t taken = 1;
        if (c->state == DATA) {
            taken = (uint64_t)(end - in) < c->left ? (size_t)(end - in) : (size_t)c->left;
            if (c->raw + taken > limit)
                return CHUNKED_TOO_LARGE;
            memmove(out, in, taken);
            out += taken;
            c->left -= taken;
            if (c->left == 0)
                c->state = DATA_CR;
        } else {
            if (c->raw + 1 > limit)
                return CHUNKED_TOO_LARGE;
            result = step(c, *in);
        }
        in += taken;
        c->raw += taken;
    }
    *decoded = (size_t)(out - bytes);
    if (result == CHUNKED_DONE) {
        *extra = (size_t)(end - in);
        memmove(out, in, *extra);
    }
    return result;
}
