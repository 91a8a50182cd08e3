/* One loop, one client and the result of a call, for the tests of the HTTP client. Included by tests only, hence
 * static. */
#ifndef TESTS_HTTP_FIXTURE_H
#define TESTS_HTTP_FIXTURE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* accept4, strcasestr */
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/clock.h"
#include "core/http_client.h"
#include "core/loop.h"

#include "scripted_server.h"

typedef struct {
    bool done;
    http_outcome_t outcome;
    bool sent;
    int status;
    char *body; /* NUL after it */
    size_t body_len;
    char reason[128];
    char x_one[64]; /* the answer's header X-One, "(none)" when absent or repeated */
    uint64_t took_ms;
    uint64_t started;
    http_call_t *call;
} result_t;

static loop_t *loop;
static http_client_t *client;

static __attribute__((unused)) void client_open(const http_client_options_t *options)
{
    static const http_client_options_t usual = {.connect_ms = 5000, .header_max = 16 * 1024};
    client = http_client_create(loop, options != NULL ? options : &usual);
}

static __attribute__((unused)) int setup(void **state)
{
    (void)state;
    loop = loop_create();
    client_open(NULL);
    return 0;
}

static __attribute__((unused)) int teardown(void **state)
{
    (void)state;
    if (client != NULL)
        http_client_destroy(client);
    client = NULL;
    loop_destroy(loop);
    return 0;
}

static __attribute__((unused)) void on_result(void *data, const http_response_t *response)
{
    result_t *r = data;
    assert_false(r->done);
    r->done = true;
    r->call = NULL;
    r->outcome = response->outcome;
    r->sent = response->sent;
    r->status = response->status;
    r->body_len = response->body.len;
    r->body = calloc(1, response->body.len + 1);
    if (response->body.len != 0)
        memcpy(r->body, response->body.base, response->body.len);
    snprintf(r->reason, sizeof(r->reason), "%s", response->reason != NULL ? response->reason : "");
    const char *one = http_response_header(response, "x-one");
    snprintf(r->x_one, sizeof(r->x_one), "%s", one != NULL ? one : "(none)");
    r->took_ms = clock_mono_ms() - r->started;
    assert_true((response->outcome == HTTP_DONE) == (response->reason == NULL));
}

static __attribute__((unused)) void result_free(result_t *r)
{
    free(r->body);
    memset(r, 0, sizeof(*r));
}

/* The usual request: an idempotent GET of `path` with roomy limits. The URL lives until the next call of this. */
static __attribute__((unused)) http_request_t get(server_t *s, const char *path)
{
    static char url[1024];
    snprintf(url, sizeof(url), "%s%s", s->url, path);
    return (http_request_t){
        .method = "GET", .url = url, .deadline_ms = 8000, .response_max = 1024 * 1024, .idempotent = true};
}

static __attribute__((unused)) void start(result_t *r, const http_request_t *request)
{
    memset(r, 0, sizeof(*r));
    r->started = clock_mono_ms();
    r->call = http_call_start(client, request, on_result, r);
    assert_false(r->done);
}

#define wait_for(condition)                                                                                            \
    do {                                                                                                               \
        uint64_t give_up_ = clock_mono_ms() + 12000;                                                                   \
        while (!(condition)) {                                                                                         \
            assert_true(clock_mono_ms() < give_up_);                                                                   \
            loop_run_once(loop, 10);                                                                                   \
        }                                                                                                              \
    } while (0)

static __attribute__((unused)) result_t fetch(const http_request_t *request)
{
    static result_t r;
    start(&r, request);
    wait_for(r.done);
    return r;
}

static __attribute__((unused)) void assert_outcome(const result_t *r, http_outcome_t outcome, bool sent)
{
    if (r->outcome != outcome || r->sent != sent)
        print_error("outcome %d sent %d status %d: %s\n", r->outcome, r->sent, r->status, r->reason);
    assert_int_equal(r->outcome, outcome);
    assert_int_equal(r->sent, sent);
}

/* Fetches and checks how it ended; the result is dropped. */
static __attribute__((unused)) void expect(const http_request_t *request, http_outcome_t outcome, bool sent)
{
    result_t r = fetch(request);
    assert_outcome(&r, outcome, sent);
    result_free(&r);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

#endif
