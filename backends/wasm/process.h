/*
 * The template process: started from the executable beside our own, watched, replaced with growing pauses when it dies.
 * What it reports of its workers is passed on; an end of the template is the end of all of them (the kernel kills them
 * with it).
 */
#ifndef BACKENDS_WASM_PROCESS_H
#define BACKENDS_WASM_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/loop.h"

typedef struct wasm_process wasm_process_t;

enum {
    WASM_START_MS = 5000,        /* from the start of the template to its hello */
    WASM_RESTART_MIN_MS = 20,    /* pause before the first restart; doubles */
    WASM_RESTART_MAX_MS = 5000,  /* and stops growing here */
    WASM_HEALTHY_MS = 10 * 1000, /* a template that lived this long starts the pauses anew */
    WASM_STACK_BYTES =
        64 * 1024 * 1024, /* native stack of a worker, when the hard limit allows; touched only when used */
};

typedef struct {
    void (*on_up)(void *data);
    void (*on_down)(void *data); /* all its workers are gone or going */
    /* `pidfd` is the receiver's; -1 when the kernel gave none. */
    void (*on_forked)(void *data, uint32_t serial, int pid, int pidfd);
    void (*on_unforked)(void *data, uint32_t serial, int error);
    void (*on_exited)(void *data, uint32_t serial, int status);
    void *data;
} wasm_process_events_t;

/* Takes `exe_fd`, the open executable; -1 makes a process that never starts. */
wasm_process_t *wasm_process_create(loop_t *loop, int exe_fd, uint32_t pages, uint32_t workers,
                                    const wasm_process_events_t *events);
void wasm_process_start(wasm_process_t *process);
/* Kills the template and with it all workers; waits for its end. */
void wasm_process_destroy(wasm_process_t *process);
bool wasm_process_is_up(const wasm_process_t *process);
/* SHA-256 of the engine module in hex, as the running template states it; "" when there is none. */
const char *wasm_process_engine(const wasm_process_t *process);
/* Whether it is in a network namespace of its own. */
bool wasm_process_has_namespaces(const wasm_process_t *process);
/* Asks for a worker on `worker_fd`, which stays the caller's. False: not up, or it does not keep up. */
bool wasm_process_fork(wasm_process_t *process, uint32_t serial, int worker_fd, bool is_probe);
/* It hangs: end it, start another. */
void wasm_process_replace(wasm_process_t *process, const char *why);
/* The running template, for tests; 0 when there is none. */
int wasm_process_pid(const wasm_process_t *process);

/* The executable beside the running one, opened before root is dropped; -1 with errno. */
int wasm_process_open(void);

#endif
