/* A guest of the gateway's end and the runner it speaks with, for tests of what it makes of the runner's frames. */
#ifndef TESTS_UNIT_GUEST_FIXTURE_H
#define TESTS_UNIT_GUEST_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <openssl/sha.h>

#include "backends/guest/host.h"
#include "core/random.h"
#include "tests/unit/guest_frames.h"

static guest_t *guest;
static buffer_t sent;        /* what the gateway's end made */
static test_runner_t runner; /* the other end */
static uint8_t job_digest[32];

static const char *const ENV[] = {"PATH=/bin"};
static const char *const STEPS[] = {"one", "two", "three"};
static const char *const PATHS[] = {"a", "b/c", "d"};

/* The key is in the greeting: frame head 14, message length 4, version 2, preboot 1. */
static inline void greet(guest_preboot_t preboot)
{
    guest_hello_t hello = {.preboot = preboot, .run_id = "r", .env = ENV, .env_count = 1};
    assert_true(guest_make_hello(guest, &hello, &sent));
    test_runner_init(&runner, sent.base + 21, "r2h");
}

static inline int set_up(void **state)
{
    (void)state;
    guest = guest_create();
    buffer_init(&sent, 8 * 1024 * 1024);
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    guest_destroy(guest);
    buffer_dispose(&sent);
    return 0;
}

static inline void frame(char type, const void *payload, size_t len)
{
    uint8_t *bytes = malloc(len + 30);
    guest_take(guest, bytes, test_frame(&runner, bytes, type, payload, len));
    free(bytes);
}

static inline void ready(void)
{
    greet(GUEST_PREBOOT_NONE);
    frame('R', "\0\1\0\0\1", 5);
    assert_int_equal(guest_state(guest), GUEST_READY);
}

static inline guest_job_t project(void)
{
    return (guest_job_t){.kind = GUEST_PROJECT,
                         .timeout_ms = 1000,
                         .stream_max = 100,
                         .output_max = 150,
                         .artifacts_max = 5000,
                         .steps = STEPS,
                         .step_count = 3,
                         .artifacts = PATHS,
                         .artifact_count = 3};
}

/* The job's digest from the frames themselves. */
static inline void read_job(size_t at)
{
    static uint8_t message[8 * 1024 * 1024];
    size_t len = 0;
    while (at < sent.len) {
        const uint8_t *head = sent.base + at;
        size_t n = (size_t)head[12] << 8 | head[13];
        memcpy(message + len, head + 14, n);
        len += n;
        at += 14 + n + 16;
    }
    assert_int_equal(at, sent.len);
    assert_int_equal((size_t)message[0] << 24 | (size_t)message[1] << 16 | (size_t)message[2] << 8 | message[3],
                     len - 4);
    SHA256(message + 4, len - 4, job_digest);
}

static inline void give(const guest_job_t *job)
{
    size_t at = sent.len;
    assert_null(guest_make_job(guest, job, &sent));
    assert_int_equal(guest_state(guest), GUEST_GIVEN);
    read_job(at);
}

static inline void accepted(void)
{
    guest_job_t job = project();
    ready();
    give(&job);
    frame('A', job_digest, 32);
    assert_int_equal(guest_state(guest), GUEST_ACCEPTED);
}

/* A step's end as spec 2.4 has it; what is not said is zero. */
typedef struct {
    int step, flags, code, signal;
    unsigned out, err;
    uint64_t out_total, err_total;
} end_t;

static inline void step_end(end_t e)
{
    uint8_t p[39] = {(uint8_t)e.step, (uint8_t)e.flags};
    test_put32(p + 2, (uint32_t)e.code);
    p[6] = (uint8_t)e.signal;
    test_put32(p + 7, e.out);
    test_put32(p + 11, e.err);
    test_put64(p + 15, e.out_total != 0 ? e.out_total : e.out);
    test_put64(p + 23, e.err_total != 0 ? e.err_total : e.err);
    test_put64(p + 31, 1234);
    frame('T', p, sizeof(p));
}

static inline void final(int outcome, int flags, int steps, int artifacts, const char *detail)
{
    uint8_t p[38 + 255] = {(uint8_t)outcome, (uint8_t)flags, 0, (uint8_t)steps, 0, (uint8_t)artifacts};
    SHA256(runner.payloads, runner.payload_len, p + 6);
    memcpy(p + 38, detail, strlen(detail));
    frame('X', p, 38 + strlen(detail));
}

static inline void artifact(int number, uint32_t len)
{
    uint8_t p[6] = {0, (uint8_t)number};
    test_put32(p + 2, len);
    frame('F', p, sizeof(p));
}

static inline void assert_broken(void)
{
    assert_int_equal(guest_state(guest), GUEST_BROKEN);
    assert_non_null(guest_problem(guest));
}

#endif
