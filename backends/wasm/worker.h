/*
 * Workers: one process a run, asked of the template, used once. A few wait ready: forked, with an engine of their own,
 * and not yet spoken to, so that a run does not wait for its fork. They are refilled when a run has ended, never while
 * one waits.
 */
#ifndef BACKENDS_WASM_WORKER_H
#define BACKENDS_WASM_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/wasm/process.h"
#include "backends/wasm/stream.h"
#include "core/co.h"
#include "core/loop.h"

enum {
    WASM_IDLE_MAX = 8,      /* ready workers; about 0.3 MiB each */
    WASM_PROOF_WORKERS = 4, /* places beside the runs', so a proof never waits for one */
    WASM_FORK_MS = 2000,    /* a fork that takes longer means the template hangs */
};

typedef struct wasm_workers wasm_workers_t;

typedef struct wasm_worker {
    unsigned magic;
    wasm_workers_t *workers;
    wasm_stream_t stream;
    bool is_forked;   /* and can be killed */
    bool is_lost;     /* it never came to be, or its template died */
    bool is_eof;      /* nothing more will come */
    bool has_exited;  /* `status` is set */
    bool is_released; /* nobody's any more; here until it has exited */
    int pid;
    int status; /* as waitpid has it */
    co_t *waiter;
    uint32_t _serial;
    int _fd, _pidfd;
    struct watch *_watch;
    bool _is_idle;
    uint64_t _asked_ms;
    struct wasm_worker *_next, **_place;
} wasm_worker_t;

/* `on_up` is called whenever a template has come up. `capacity`: runs at once. Takes `exe_fd`. */
wasm_workers_t *wasm_workers_create(loop_t *loop, int exe_fd, uint32_t pages, uint32_t capacity,
                                    void (*on_up)(void *data), void *data);
void wasm_workers_start(wasm_workers_t *workers);
/* No worker may be held. */
void wasm_workers_destroy(wasm_workers_t *workers);
wasm_process_t *wasm_workers_process(wasm_workers_t *workers);
/* Ready workers, and all that exist; for tests. */
size_t wasm_workers_idle(const wasm_workers_t *workers);
size_t wasm_workers_count(const wasm_workers_t *workers);
/* Workers the template must have places for. */
uint32_t wasm_workers_places(uint32_t capacity);

/* In a coroutine. A worker that can be killed, or NULL with the reason when there is none by `until_us` (monotonic) or
 * the caller was canceled. The coroutine is woken for everything that happens to it, until it is released. */
wasm_worker_t *wasm_worker_take(wasm_workers_t *workers, bool is_probe, uint64_t until_us, const char **reason);
typedef enum { WASM_SENT, WASM_SEND_LATE, WASM_SEND_CANCELED, WASM_SEND_BROKEN } wasm_send_t;
/* In a coroutine: writes all of both parts, or says why not. Any outcome but WASM_SENT means not all bytes were handed
 * over. */
wasm_send_t wasm_worker_send(wasm_worker_t *worker, const void *head, size_t head_len, const void *body,
                             size_t body_len, uint64_t until_us);
void wasm_worker_kill(wasm_worker_t *worker);
/* Kills it, forgets it. */
void wasm_worker_release(wasm_worker_t *worker);
/* The wait of the functions above: until `until_us`, rounded up to the loop's milliseconds. */
co_wake_t wasm_wait_until(uint64_t until_us);

#endif
