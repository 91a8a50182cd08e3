/* A loop, a channel and calls in coroutines, for the tests of the gRPC client. Included by tests only, hence static. */
#ifndef TESTS_GRPC_FIXTURE_H
#define TESTS_GRPC_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/clock.h"
#include "core/co.h"
#include "core/grpc.h"
#include "core/loop.h"
#include "core/random.h"

#include "h2_peer.h"

static loop_t *loop;
static grpc_channel_t *channel;

static __attribute__((unused)) int setup(void **state)
{
    (void)state;
    random_init();
    signal(SIGPIPE, SIG_IGN);
    loop = loop_create();
    return 0;
}

static __attribute__((unused)) int teardown(void **state)
{
    (void)state;
    grpc_channel_destroy(channel);
    channel = NULL;
    loop_destroy(loop);
    return 0;
}

static __attribute__((unused)) server_t *serve(void (*script)(conn_t *))
{
    server_t *s = server_start(script, NULL, NULL, NULL);
    grpc_target_t target;
    assert_null(grpc_target_parse(s->url, &target));
    channel = grpc_channel_create(loop, &target, NULL, 1000);
    return s;
}

static __attribute__((unused)) uint64_t in_ms(uint64_t ms)
{
    return clock_mono_us() + ms * 1000;
}

typedef struct {
    uint64_t limit_ms;
    buffer_t answer;
    grpc_end_t end;
    bool is_ok, has_ended;
    co_t *co;
} unary_t;

static void unary_main(void *arg)
{
    unary_t *u = arg;
    buffer_dispose(&u->answer);
    buffer_init(&u->answer, GRPC_MESSAGE_MAX);
    u->is_ok = grpc_unary(channel, "/test.Service/Method", "ask", 3, in_ms(u->limit_ms), &u->answer, &u->end);
}

static void unary_end(void *arg)
{
    ((unary_t *)arg)->has_ended = true;
}

static __attribute__((unused)) void unary_start(unary_t *u, uint64_t limit_ms)
{
    memset(u, 0, sizeof(*u));
    u->limit_ms = limit_ms;
    u->co = co_start(loop, unary_main, u, unary_end);
}

#define wait_for(condition)                                                                                            \
    do {                                                                                                               \
        uint64_t give_up_ = clock_mono_ms() + 12000;                                                                   \
        while (!(condition)) {                                                                                         \
            loop_run_once(loop, 20);                                                                                   \
            if (clock_mono_ms() >= give_up_)                                                                           \
                fail_msg("did not happen: %s", #condition);                                                            \
        }                                                                                                              \
    } while (0)

static __attribute__((unused)) void unary(unary_t *u, uint64_t limit_ms)
{
    unary_start(u, limit_ms);
    wait_for(u->has_ended);
}

/* A coroutine of the test's own, to its end. */
static bool body_ended;
static void body_end(void *arg)
{
    (void)arg;
    body_ended = true;
}
static __attribute__((unused)) void in_coroutine(void (*body)(void *))
{
    body_ended = false;
    co_start(loop, body, NULL, body_end);
    wait_for(body_ended);
}

#endif
