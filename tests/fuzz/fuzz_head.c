/*
 * What strangers write before libh2o sees it: heads (any bytes, in any pieces), chunked bodies and paths. The same
 * bytes must come to the same end however they are cut, and every field must lie within them.
 *
 * Input: one byte that chooses the parser, one that seeds the cuts, the bytes. A head that is taken goes on into the
 * chunk decoder or the route, as it does in the gate.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/chunked.h"
#include "gateway/head.h"
#include "gateway/limits.h"
#include "gateway/route.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t random_state;

static size_t next_piece(size_t left)
{
    random_state = random_state * 1664525u + 1013904223u;
    uint32_t r = random_state >> 16;
    size_t piece = (r & 7) == 0 ? 1 + r % 4096 : 1 + r % 9;
    return piece < left ? piece : left;
}

/* A copy that ends where its bytes end. */
static char *copy_of(const char *bytes, size_t len)
{
    char *copy = malloc(len != 0 ? len : 1);
    if (copy == NULL)
        abort();
    memcpy(copy, bytes, len);
    return copy;
}

static void expect(int holds)
{
    if (!holds)
        abort();
}

/* --- routes --- */

static void check_name(const char *name)
{
    size_t len = strnlen(name, ROUTE_NAME_MAX);
    expect(len < ROUTE_NAME_MAX);
    expect(strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == len);
}

static void route(const char *path, size_t len)
{
    static const char *const prefixes[] = {"", "/p", "/plimsoll.v1.SandboxService"};
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        char *bytes = copy_of(path, len);
        route_t r;
        memset(&r, 0x5a, sizeof(r));
        route_parse(bytes, len, prefixes[i], strlen(prefixes[i]), &r);
        check_name(r.backend);
        check_name(r.argument);
        expect(r.kind >= ROUTE_NONE && r.kind <= ROUTE_USAGE);
        expect((r.key != NULL) == (r.kind == ROUTE_RUN_BY_KEY));
        if (r.key != NULL)
            expect(r.key >= bytes && r.key + r.key_len == bytes + len);
        expect((r.backend[0] != '\0') == r.pinned);
        expect((r.argument[0] != '\0') <= (len > 0 && memchr(bytes, '/', len) != NULL));
        expect(!route_is_procedure(r.kind) || route_needs_caller(r.kind));
        if (r.kind == ROUTE_RUN)
            expect(len >= 4 && memcmp(bytes + len - 4, "/Run", 4) == 0);
        free(bytes);
    }
}

/* --- chunked bodies --- */

static chunked_result_t feed(const char *raw, size_t len, int in_pieces, uint64_t limit, char *buffer, size_t *decoded,
                             size_t *extra)
{
    chunked_t c = {0};
    chunked_result_t result = CHUNKED_MORE;
    size_t at = 0;
    *decoded = *extra = 0;
    while (at < len && result == CHUNKED_MORE) {
        size_t piece = in_pieces ? next_piece(len - at) : len - at, before = *decoded;
        memcpy(buffer + before, raw + at, piece);
        result = chunked_feed(&c, buffer, decoded, piece, limit, extra);
        at += piece;
        expect(*decoded >= before && *decoded + *extra <= before + piece);
        expect(c.raw <= limit);
    }
    /* what came in later pieces follows the body too */
    if (result == CHUNKED_DONE) {
        memcpy(buffer + *decoded + *extra, raw + at, len - at);
        *extra += len - at;
    }
    return result;
}

static void chunked(const char *raw, size_t len)
{
    static const uint64_t limits[] = {BODY_MAX, 40};
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        size_t whole_len, whole_extra, len2, extra2;
        char *whole = malloc(len + 1), *pieces = malloc(len + 1);
        expect(whole != NULL && pieces != NULL);
        chunked_result_t one = feed(raw, len, 0, limits[i], whole, &whole_len, &whole_extra);
        chunked_result_t many = feed(raw, len, 1, limits[i], pieces, &len2, &extra2);
        expect(one == many);
        if (one == CHUNKED_DONE) {
            expect(whole_len == len2 && whole_extra == extra2 && whole_len + whole_extra <= len);
            expect(memcmp(whole, pieces, whole_len + whole_extra) == 0);
            /* what follows the body are the last bytes, untouched */
            expect(memcmp(whole + whole_len, raw + len - whole_extra, whole_extra) == 0);
        } else if (one == CHUNKED_MORE) {
            expect(whole_len == len2 && memcmp(whole, pieces, whole_len) == 0);
        }
        free(whole);
        free(pieces);
    }
}

/* --- heads --- */

static void check_field(const head_field_t *f, const char *bytes, size_t end)
{
    if (f->base == NULL) {
        expect(f->len == 0);
        return;
    }
    if (f->len == 1 && f->base[0] == '/')
        return; /* an absolute target without a path */
    expect(f->base >= bytes && f->base + f->len <= bytes + end);
    for (size_t i = 0; i < f->len; i++)
        expect(f->base[i] != '\n' && f->base[i] != '\r' && f->base[i] != '\0');
}

/* What the rest of the gateway relies on. */
static void check_taken(const head_t *h, const char *bytes)
{
    const head_field_t *fields[] = {&h->method,
                                    &h->path,
                                    &h->query,
                                    &h->authorization,
                                    &h->request_id,
                                    &h->content_type,
                                    &h->content_encoding,
                                    &h->connect_version,
                                    &h->connect_timeout,
                                    &h->x_request_id,
                                    &h->traceparent};
    expect(h->bytes <= HEAD_MAX && h->bytes >= 4 && memcmp(bytes + h->bytes - 4, "\r\n\r\n", 4) == 0);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        check_field(fields[i], bytes, h->bytes);
    expect(h->forwarded_lines <= FORWARDED_LINES_MAX);
    for (size_t i = 0; i < h->forwarded_lines; i++)
        check_field(&h->forwarded_for[i], bytes, h->bytes);
    expect(h->method.len > 0 && h->method.len <= METHOD_MAX);
    expect(h->path.len > 0 && h->path.len <= TARGET_MAX && (h->path.base[0] == '/' || h->path.base[0] == '*'));
    expect(memchr(h->path.base, '?', h->path.len) == NULL);
    expect(!(h->chunked && h->has_length));
    expect(h->has_length || h->length == 0);
    expect(h->minor == 0 || h->minor == 1);
    expect(h->minor == 1 || !h->chunked);
    /* a head that is taken has no line end but CRLF */
    for (size_t i = 0; i < h->bytes; i++)
        expect((bytes[i] == '\n') == (i > 0 && bytes[i - 1] == '\r'));
}

static void head(const char *bytes, size_t len)
{
    size_t scanned = 0;
    head_t whole, again;
    const char *why, *why2;
    head_result_t one = head_parse(bytes, len, &scanned, &whole, &why);
    expect((one == HEAD_BAD || one == HEAD_TOO_LARGE) == (why != NULL));
    expect(len != 0 || one == HEAD_INCOMPLETE);
    if (head_request_id_is_valid(&whole.request_id))
        check_field(&whole.request_id, bytes, len);

    size_t have = 0;
    head_result_t many = HEAD_INCOMPLETE;
    scanned = 0;
    while (many == HEAD_INCOMPLETE && have < len) {
        have += next_piece(len - have);
        char *copy = copy_of(bytes, have);
        many = head_parse(copy, have, &scanned, &again, &why2);
        if (many == HEAD_OK)
            check_taken(&again, copy);
        free(copy);
    }
    /* in pieces, a fault may be seen before the end that a larger fault hides; but never is one taken that the other
     * refuses */
    expect((one == HEAD_OK) == (many == HEAD_OK));
    expect((one == HEAD_INCOMPLETE) == (many == HEAD_INCOMPLETE));
    if (one != HEAD_OK)
        return;
    check_taken(&whole, bytes);
    expect(whole.bytes == again.bytes && whole.length == again.length && whole.chunked == again.chunked &&
           whole.persistent == again.persistent && whole.path.len == again.path.len &&
           whole.forwarded_lines == again.forwarded_lines);
    route(whole.path.base, whole.path.len);
    if (whole.chunked)
        chunked(bytes + whole.bytes, len - whole.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    random_state = data[1];
    size -= 2;
    char *bytes = copy_of((const char *)data + 2, size);
    if (data[0] % 4 == 1)
        chunked(bytes, size);
    else if (data[0] % 4 == 2)
        route(bytes, size);
    else
        head(bytes, size);
    free(bytes);
    return 0;
}
