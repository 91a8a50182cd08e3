#include "backends/guest/runner/link.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "backends/guest/runner/process.h"

void link_wait_at_most(link_t *link, uint32_t ms)
{
    link->_until_us = process_now_us() + (uint64_t)ms * 1000;
}

/* Until there is something to read, or the time is over. */
static bool wait_for_bytes(const link_t *link)
{
    for (;;) {
        uint64_t now_us = process_now_us(), left_ms = now_us < link->_until_us ? (link->_until_us - now_us) / 1000 : 0;
        int n = poll(&(struct pollfd){.fd = LINK_IN, .events = POLLIN}, 1, (int)left_ms);
        if (n > 0)
            return true;
        if (n == 0 && left_ms == 0)
            return false;
        if (n < 0 && errno != EINTR)
            return false;
    }
}

/* Up to `len` bytes; 0 at the end of the stream. The descriptor may be non-blocking: it can be one with LINK_OUT's. */
static size_t read_some(const link_t *link, uint8_t *to, size_t len)
{
    while (wait_for_bytes(link)) {
        ssize_t n = read(LINK_IN, to, len);
        if (n >= 0)
            return (size_t)n;
        if (errno != EAGAIN && errno != EINTR)
            return 0;
    }
    return 0;
}

static bool read_whole(const link_t *link, uint8_t *to, size_t len)
{
    while (len != 0) {
        size_t n = read_some(link, to, len);
        if (n == 0)
            return false;
        to += n;
        len -= n;
    }
    return true;
}

bool link_read(link_t *link, frame_t *frame)
{
    while (!frame_reader_next(&link->reader, &link->_next, &link->_left, frame)) {
        link->_next = link->_in;
        link->_left = read_some(link, link->_in, sizeof(link->_in));
        if (link->_left == 0)
            return false;
    }
    return true;
}

const char *link_greet(link_t *link, job_hello_t *hello, job_message_t *message)
{
    uint8_t head[FRAME_HEAD], payload[FRAME_PAYLOAD_MAX];
    const char *err = "";
    frame_t frame;
    if (!read_whole(link, head, sizeof(head)))
        goto end;
    int len = frame_hello_len(head);
    if (len < JOB_HELLO_KEY + FRAME_KEY) {
        err = "no greeting";
        goto end;
    }
    if (!read_whole(link, payload, (size_t)len))
        goto end;
    frame_reader_init(&link->reader, payload + JOB_HELLO_KEY, FRAME_TO_RUNNER, 1);
    frame_writer_init(&link->writer, payload + JOB_HELLO_KEY, FRAME_TO_GATEWAY, 0);
    crypto_hash_sha256_init(&link->digest);
    err = job_message_add(message, true, payload, (size_t)len, JOB_HELLO_MAX);
    while (err == NULL && !job_message_is_whole(message)) {
        if (!link_read(link, &frame))
            err = "";
        else if (frame.type != FRAME_HELLO_MORE)
            err = "a greeting cut short";
        else
            err = job_message_add(message, false, frame.payload, frame.len, JOB_HELLO_MAX);
    }
    if (err == NULL)
        err = job_hello_decode(message->bytes, message->len, hello);
end:
    sodium_memzero(payload, sizeof(payload));
    return err;
}

bool link_is_clear(const link_t *link)
{
    return link->_len == 0;
}

static void give_up(void)
{
    _exit(LINK_EXIT);
}

void link_push(link_t *link)
{
    while (link->_len != 0) {
        ssize_t n = write(LINK_OUT, link->_pending + link->_at, link->_len);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0 && errno != EINTR)
            give_up();
        if (n > 0) {
            link->_at += (size_t)n;
            link->_len -= (size_t)n;
        }
    }
}

void link_put(link_t *link, uint8_t type, const void *payload, size_t len)
{
    crypto_hash_sha256_update(&link->digest, payload, len);
    link->_len = frame_write(&link->writer, type, payload, len, link->_pending);
    link->_at = 0;
    link->sent++;
    link_push(link);
}

void link_flush(link_t *link)
{
    for (;;) {
        link_push(link);
        if (link->_len == 0)
            return;
        struct pollfd p = {.fd = LINK_OUT, .events = POLLOUT};
        int n = poll(&p, 1, LINK_STALL_MS);
        if (n == 0 || (n < 0 && errno != EINTR))
            give_up();
    }
}

void link_send(link_t *link, uint8_t type, const void *payload, size_t len)
{
    link_flush(link);
    link_put(link, type, payload, len);
}

void link_digest(const link_t *link, uint8_t digest[JOB_DIGEST])
{
    crypto_hash_sha256_state copy = link->digest;
    crypto_hash_sha256_final(&copy, digest);
}

void link_erase(link_t *link)
{
    frame_reader_dispose(&link->reader);
    sodium_memzero(link, sizeof(*link));
}
