/* For the wasm tests: a loop, and test bodies that run inside a coroutine on it. */
#ifndef TESTS_WASM_HARNESS_H
#define TESTS_WASM_HARNESS_H

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "backends/wasm/execute.h"
#include "core/clock.h"
#include "core/co.h"
#include "core/loop.h"
#include "core/random.h"

static loop_t *harness_loop;
static bool harness_ended;

static void harness_on_end(void *arg)
{
    (void)arg;
    harness_ended = true;
}

/* Runs fn(arg) in a coroutine until it has ended. Assertions belong after it: cmocka leaves a failed test by a jump. */
static inline void in_coroutine(void (*fn)(void *arg), void *arg)
{
    harness_ended = false;
    co_start(harness_loop, fn, arg, harness_on_end);
    while (!harness_ended)
        loop_run_once(harness_loop, 1000);
}

static inline void spin_until(bool (*is_so)(void *arg), void *arg)
{
    uint64_t until_ms = clock_mono_ms() + 10000;
    while (!is_so(arg)) {
        assert_true(clock_mono_ms() < until_ms);
        loop_run_once(harness_loop, 5);
    }
}

static inline void harness_on_up(void *data)
{
    ++*(unsigned *)data;
}

typedef struct {
    wasm_workers_t *workers;
    const char *code;
    size_t len;
    uint32_t timeout_ms;
    backend_run_t *run;
    wasm_result_t result;
    uint64_t took_us;
} exchange_t;

static inline void exchange_main(void *arg)
{
    exchange_t *x = arg;
    uint64_t started_us = clock_mono_us();
    wasm_execute(x->workers, x->code, x->len, started_us + (uint64_t)x->timeout_ms * 1000, x->run, &x->result);
    x->took_us = clock_mono_us() - started_us;
}

static inline exchange_t exchange(wasm_workers_t *workers, const char *code, uint32_t timeout_ms)
{
    exchange_t x = {.workers = workers, .code = code, .len = strlen(code), .timeout_ms = timeout_ms};
    in_coroutine(exchange_main, &x);
    return x;
}

static inline void exchange_dispose(exchange_t *x)
{
    wasm_result_dispose(&x->result);
}

#define assert_bytes(buffer, text, length)                                                                             \
    do {                                                                                                               \
        assert_int_equal((buffer).len, (length));                                                                      \
        if ((length) > 0)                                                                                              \
            assert_memory_equal((buffer).base, (text), (length));                                                      \
    } while (0)
#define assert_text(buffer, text) assert_bytes(buffer, text, strlen(text))

static inline bool has_text(const buffer_t *bytes, const char *text)
{
    return bytes->len > 0 && memmem(bytes->base, bytes->len, text, strlen(text)) != NULL;
}

static inline bool is_up(void *arg)
{
    return wasm_process_is_up(wasm_workers_process(arg));
}

/* The template lies one folder above the tests. */
static inline void link_template(void)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 32);
    if (n <= 0)
        abort();
    path[n] = '\0';
    strcpy(strrchr(path, '/') + 1, "plimsoll-wasm");
    if (symlink("../plimsoll-wasm", path) != 0 && access(path, X_OK) != 0)
        abort();
}

#endif
