/*
 * Frames of the guests' runner made for tests: the layout of spec backend-docker 2.4 written a second time, with
 * OpenSSL's HMAC instead of the code under test.
 */
#ifndef TESTS_UNIT_GUEST_FRAMES_H
#define TESTS_UNIT_GUEST_FRAMES_H

#include <stdint.h>
#include <string.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

typedef struct {
    uint8_t key[32]; /* of the direction */
    uint32_t seq;
    uint8_t payloads[256 * 1024]; /* all so far, for the digest of FINAL */
    size_t payload_len;
} test_runner_t;

static inline void test_put32(uint8_t *to, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(v >> (24 - 8 * i));
}

static inline void test_put64(uint8_t *to, uint64_t v)
{
    test_put32(to, (uint32_t)(v >> 32));
    test_put32(to + 4, (uint32_t)v);
}

static inline void test_runner_init(test_runner_t *r, const uint8_t key[32], const char *direction)
{
    unsigned n = sizeof(r->key);
    memset(r, 0, sizeof(*r));
    HMAC(EVP_sha256(), key, 32, (const uint8_t *)direction, strlen(direction), r->key, &n);
}

/* A frame with any number and length field; out needs len + 30 bytes. */
static inline size_t test_frame_raw(const test_runner_t *r, uint8_t *out, char type, uint8_t flags, uint32_t seq,
                                    uint32_t len_field, const void *payload, size_t len)
{
    uint8_t tag[32];
    unsigned n = sizeof(tag);
    memcpy(out, "\xf5SB1", 4);
    out[4] = (uint8_t)type;
    out[5] = flags;
    test_put32(out + 6, seq);
    test_put32(out + 10, len_field);
    if (len != 0)
        memcpy(out + 14, payload, len);
    HMAC(EVP_sha256(), r->key, sizeof(r->key), out, 14 + len, tag, &n);
    memcpy(out + 14 + len, tag, 16);
    return 14 + len + 16;
}

/* The next right frame. */
static inline size_t test_frame(test_runner_t *r, uint8_t *out, char type, const void *payload, size_t len)
{
    size_t n = test_frame_raw(r, out, type, 0, r->seq++, (uint32_t)len, payload, len);
    if (len != 0 && r->payload_len + len <= sizeof(r->payloads)) {
        memcpy(r->payloads + r->payload_len, payload, len);
        r->payload_len += len;
    }
    return n;
}

#endif
