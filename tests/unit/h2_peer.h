/*
 * The server's end of an HTTP/2 connection, frame by frame, as a test's script says it (on scripted_server.h): what the
 * client sends is read as frames, what is answered is written as bytes. Only header blocks are packed by nghttp2.
 * Included by tests only, hence static.
 */
#ifndef TESTS_H2_PEER_H
#define TESTS_H2_PEER_H

#include "scripted_server.h"

#include <nghttp2/nghttp2.h>

enum { F_DATA, F_HEADERS, F_PRIORITY, F_RST, F_SETTINGS, F_PUSH, F_PING, F_GOAWAY, F_WINDOW };
enum { END_STREAM = 1, ACK = 1, END_HEADERS = 4, PADDED = 8 };

typedef struct {
    uint8_t type, flags;
    uint32_t stream, len;
    uint8_t payload[16384];
} h2_frame_t;

typedef struct {
    conn_t *conn;
    nghttp2_hd_deflater *deflater;
    nghttp2_hd_inflater *inflater;
    char head[2048]; /* of the last HEADERS read: "name: value\n" each */
    h2_frame_t frame;
    size_t window[64];   /* given back, by stream number; [0] the connection's */
    uint8_t body[65536]; /* of the last request read */
    size_t body_len;
    bool has_fin;
} peer_t;

static bool peer_bytes(peer_t *p, void *into, size_t len)
{
    uint8_t *at = into;
    while (len > 0) {
        ssize_t n = conn_read(p->conn, at, len);
        if (n <= 0)
            return false;
        at += n;
        len -= (size_t)n;
    }
    return true;
}

static bool peer_write(peer_t *p, uint8_t type, uint8_t flags, uint32_t stream, const void *payload, uint32_t len)
{
    uint8_t head[9] = {(uint8_t)(len >> 16),    (uint8_t)(len >> 8),     (uint8_t)len,           type,           flags,
                       (uint8_t)(stream >> 24), (uint8_t)(stream >> 16), (uint8_t)(stream >> 8), (uint8_t)stream};
    return say_bytes(p->conn, head, sizeof(head)) && (len == 0 || say_bytes(p->conn, payload, len));
}

static void put32(uint8_t out[4], uint32_t v)
{
    out[0] = (uint8_t)(v >> 24);
    out[1] = (uint8_t)(v >> 16);
    out[2] = (uint8_t)(v >> 8);
    out[3] = (uint8_t)v;
}

static void peer_inflate(peer_t *p)
{
    const uint8_t *at = p->frame.payload;
    size_t left = p->frame.len, n = 0;
    for (;;) {
        nghttp2_nv nv;
        int flags = 0;
        ssize_t used = nghttp2_hd_inflate_hd2(p->inflater, &nv, &flags, at, left, 1);
        if (used < 0)
            abort();
        at += used;
        left -= (size_t)used;
        if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0)
            n += (size_t)snprintf(p->head + n, sizeof(p->head) - n, "%s: %s\n", nv.name, nv.value);
        if ((flags & NGHTTP2_HD_INFLATE_FINAL) != 0) {
            nghttp2_hd_inflate_end_headers(p->inflater);
            return;
        }
        if ((flags & NGHTTP2_HD_INFLATE_EMIT) == 0 && left == 0)
            return;
    }
}

/* The next frame that is no SETTINGS; WINDOW_UPDATEs are counted and passed over too. */
static __attribute__((unused)) bool peer_next(peer_t *p)
{
    for (;;) {
        uint8_t head[9];
        if (!peer_bytes(p, head, sizeof(head)))
            return false;
        p->frame.len = (uint32_t)head[0] << 16 | (uint32_t)head[1] << 8 | head[2];
        p->frame.type = head[3];
        p->frame.flags = head[4];
        p->frame.stream = ((uint32_t)head[5] & 0x7f) << 24 | (uint32_t)head[6] << 16 | (uint32_t)head[7] << 8 | head[8];
        if (p->frame.len > sizeof(p->frame.payload) || !peer_bytes(p, p->frame.payload, p->frame.len))
            return false;
        if (p->frame.type == F_SETTINGS) {
            if ((p->frame.flags & ACK) == 0)
                peer_write(p, F_SETTINGS, ACK, 0, NULL, 0);
            continue;
        }
        if (p->frame.type == F_WINDOW) {
            const uint8_t *v = p->frame.payload;
            if (p->frame.stream < 64)
                p->window[p->frame.stream] += (uint32_t)v[0] << 24 | (uint32_t)v[1] << 16 | (uint32_t)v[2] << 8 | v[3];
            continue;
        }
        if (p->frame.type == F_HEADERS)
            peer_inflate(p);
        return true;
    }
}

/* Reads until a frame of that type. */
static __attribute__((unused)) bool peer_await(peer_t *p, uint8_t type)
{
    while (peer_next(p))
        if (p->frame.type == type)
            return true;
    return false;
}

/* A whole request: its stream number, or 0. */
static __attribute__((unused)) uint32_t peer_request(peer_t *p)
{
    p->body_len = 0;
    if (!peer_await(p, F_HEADERS))
        return 0;
    uint32_t stream = p->frame.stream;
    while ((p->frame.flags & END_STREAM) == 0) {
        if (!peer_next(p))
            return 0;
        if (p->frame.type != F_DATA || p->body_len + p->frame.len > sizeof(p->body))
            continue;
        memcpy(p->body + p->body_len, p->frame.payload, p->frame.len);
        p->body_len += p->frame.len;
    }
    return stream;
}

/* The preface is read and SETTINGS sent: pairs of number and value, at most 8. */
static __attribute__((unused)) bool peer_open_with(peer_t *p, conn_t *conn, const uint32_t *settings, size_t pairs)
{
    char preface[24];
    uint8_t payload[48];
    memset(p, 0, sizeof(*p));
    p->conn = conn;
    nghttp2_hd_deflate_new(&p->deflater, 4096);
    nghttp2_hd_inflate_new(&p->inflater);
    for (size_t i = 0; i < pairs; i++) {
        payload[i * 6] = 0;
        payload[i * 6 + 1] = (uint8_t)settings[i * 2];
        put32(payload + i * 6 + 2, settings[i * 2 + 1]);
    }
    return peer_bytes(p, preface, sizeof(preface)) && memcmp(preface, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24) == 0 &&
           peer_write(p, F_SETTINGS, 0, 0, payload, (uint32_t)pairs * 6);
}

static __attribute__((unused)) bool peer_open(peer_t *p, conn_t *conn)
{
    return peer_open_with(p, conn, NULL, 0);
}

static __attribute__((unused)) void peer_close(peer_t *p)
{
    nghttp2_hd_deflate_del(p->deflater);
    nghttp2_hd_inflate_del(p->inflater);
}

/* "name\0value\0..." up to an empty name. */
static __attribute__((unused)) bool peer_head(peer_t *p, uint32_t stream, uint8_t flags, const char *pairs)
{
    nghttp2_nv nv[16];
    size_t count = 0;
    uint8_t block[4096];
    for (const char *at = pairs; *at != '\0' && count < 16; ++count) {
        const char *value = at + strlen(at) + 1;
        nv[count] = (nghttp2_nv){(uint8_t *)at, (uint8_t *)value, strlen(at), strlen(value), NGHTTP2_NV_FLAG_NONE};
        at = value + strlen(value) + 1;
    }
    ssize_t len = nghttp2_hd_deflate_hd(p->deflater, block, sizeof(block), nv, count);
    return len >= 0 && peer_write(p, F_HEADERS, END_HEADERS | flags, stream, block, (uint32_t)len);
}

#define HEAD_OK                                                                                                        \
    ":status\0"                                                                                                        \
    "200\0"                                                                                                            \
    "content-type\0"                                                                                                   \
    "application/grpc+proto\0"
#define TRAILERS_OK                                                                                                    \
    "grpc-status\0"                                                                                                    \
    "0\0"

static __attribute__((unused)) bool peer_data(peer_t *p, uint32_t stream, uint8_t flags, const void *bytes, size_t len)
{
    return peer_write(p, F_DATA, flags, stream, bytes, (uint32_t)len);
}

/* One whole message in one frame. */
static __attribute__((unused)) bool peer_message(peer_t *p, uint32_t stream, const char *text)
{
    uint8_t bytes[1024] = {0};
    size_t len = strlen(text);
    put32(bytes + 1, (uint32_t)len);
    memcpy(bytes + 5, text, len);
    return peer_data(p, stream, 0, bytes, len + 5);
}

static __attribute__((unused)) bool peer_rst(peer_t *p, uint32_t stream, uint32_t code)
{
    uint8_t payload[4];
    put32(payload, code);
    return peer_write(p, F_RST, 0, stream, payload, 4);
}

static __attribute__((unused)) bool peer_goaway(peer_t *p, uint32_t last)
{
    uint8_t payload[8] = {0};
    put32(payload, last);
    return peer_write(p, F_GOAWAY, 0, 0, payload, 8);
}

static __attribute__((unused)) uint32_t frame_number(const peer_t *p)
{
    const uint8_t *v = p->frame.payload;
    return (uint32_t)v[0] << 24 | (uint32_t)v[1] << 16 | (uint32_t)v[2] << 8 | v[3];
}

#endif
