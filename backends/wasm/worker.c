#include "backends/wasm/worker.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/watch.h"

enum {
    WORKER_MAGIC = 0x776f726b,
    READ_BYTES = 64 * 1024, /* of one worker in one turn of the loop */
    PLACE_LOOK_MS = 1,
    SEND_BUFFER = 384 * 1024, /* asked for, so that the largest snippet mostly goes out in one write */
};

struct wasm_workers {
    loop_t *loop;
    wasm_process_t *process;
    void (*on_up)(void *data);
    void *data;
    wasm_worker_t *all;
    size_t count, idle, idle_target;
    uint32_t places, next_serial;
    loop_task_t refill;
    loop_timer_t fork_timer; /* runs while a fork is awaited */
    bool is_stopping;
    uint8_t buffer[READ_BYTES];
};

uint32_t wasm_workers_places(uint32_t capacity)
{
    /* Twice the runs: a worker's end is seen a little after its run's. */
    uint64_t places = (uint64_t)capacity * 2 + WASM_IDLE_MAX + WASM_PROOF_WORKERS;
    return places < WASM_WORKERS_MAX ? (uint32_t)places : WASM_WORKERS_MAX;
}

static void worker_check(const wasm_worker_t *worker)
{
    if (worker->magic != WORKER_MAGIC)
        mem_fatal("not a worker");
}

static void worker_wake(wasm_worker_t *worker)
{
    if (worker->waiter != NULL)
        co_wake(worker->waiter);
}

static void worker_close(wasm_worker_t *worker)
{
    if (worker->_watch != NULL)
        watch_destroy(worker->_watch);
    if (worker->_fd >= 0)
        close(worker->_fd);
    if (worker->_pidfd >= 0)
        close(worker->_pidfd);
    worker->_watch = NULL;
    worker->_fd = worker->_pidfd = -1;
}

static void worker_free(wasm_worker_t *worker)
{
    worker_close(worker);
    *worker->_place = worker->_next;
    if (worker->_next != NULL)
        worker->_next->_place = worker->_place;
    --worker->workers->count;
    if (worker->_is_idle)
        --worker->workers->idle;
    wasm_stream_dispose(&worker->stream);
    worker->magic = 0;
    free(worker);
}

static void worker_not_idle(wasm_worker_t *worker)
{
    if (worker->_is_idle) {
        worker->_is_idle = false;
        --worker->workers->idle;
    }
}

static void on_readable(void *data, unsigned events)
{
    wasm_worker_t *worker = data;
    worker_check(worker);
    if ((events & WATCH_WRITE) != 0)
        worker_wake(worker);
    if ((events & WATCH_READ) == 0)
        return;
    ssize_t n = recv(worker->_fd, worker->workers->buffer, READ_BYTES, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (worker->_is_idle) {
        /* Nobody has spoken to it: whatever it says or however it ended, it is not used. */
        log_event(LOG_DEBUG, "wasm worker ended before its run", log_int("pid", worker->pid));
        worker_not_idle(worker);
        wasm_worker_release(worker);
        return;
    }
    if (n <= 0)
        worker->is_eof = true;
    wasm_stream_state_t state =
        worker->is_eof ? WASM_STREAM_END : wasm_stream_feed(&worker->stream, worker->workers->buffer, (size_t)n);
    if (state == WASM_STREAM_MORE)
        return;
    if (state != WASM_STREAM_CALL) {
        /* Nothing more is wanted. A paused watch would still report the hang-up, again and again. */
        watch_destroy(worker->_watch);
        worker->_watch = NULL;
    }
    worker_wake(worker);
}

static wasm_worker_t *worker_ask(wasm_workers_t *workers, bool is_probe)
{
    int pair[2];
    wasm_worker_t *worker = NULL;
    int size = SEND_BUFFER;

    if (workers->count >= workers->places || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return NULL;
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    worker = mem_alloc(sizeof(*worker));
    worker->magic = WORKER_MAGIC;
    worker->workers = workers;
    worker->_serial = ++workers->next_serial;
    worker->_fd = pair[0];
    worker->_pidfd = -1;
    worker->_asked_ms = clock_mono_ms();
    wasm_stream_init(&worker->stream, is_probe);
    worker->_next = workers->all;
    worker->_place = &workers->all;
    if (worker->_next != NULL)
        worker->_next->_place = &worker->_next;
    workers->all = worker;
    ++workers->count;
    worker->_watch = watch_create(workers->loop, worker->_fd, on_readable, worker);
    bool asked = worker->_watch != NULL && wasm_process_fork(workers->process, worker->_serial, pair[1], is_probe);
    close(pair[1]);
    if (!asked) {
        worker_free(worker);
        return NULL;
    }
    watch_set(worker->_watch, WATCH_READ);
    if (!loop_timer_is_running(&workers->fork_timer))
        loop_timer_start(workers->loop, &workers->fork_timer, WASM_FORK_MS);
    return worker;
}

/* Whether a template forks does not depend on somebody waiting for it. */
static void on_fork_timer(loop_timer_t *timer)
{
    wasm_workers_t *workers = timer->data;
    uint64_t now_ms = clock_mono_ms(), oldest_ms = UINT64_MAX;
    for (const wasm_worker_t *worker = workers->all; worker != NULL; worker = worker->_next) {
        if (!worker->is_forked && !worker->is_lost && worker->_asked_ms < oldest_ms)
            oldest_ms = worker->_asked_ms;
    }
    if (oldest_ms == UINT64_MAX)
        return;
    if (now_ms - oldest_ms >= WASM_FORK_MS)
        wasm_process_replace(workers->process, "a fork took too long");
    else
        loop_timer_start(workers->loop, &workers->fork_timer, WASM_FORK_MS - (now_ms - oldest_ms));
}

static void on_refill(loop_task_t *task)
{
    wasm_workers_t *workers = task->data;
    while (!workers->is_stopping && workers->idle < workers->idle_target) {
        wasm_worker_t *worker = worker_ask(workers, false);
        if (worker == NULL)
            return; /* not up, or too many on their way out: the next run's end comes here again */
        worker->_is_idle = true;
        ++workers->idle;
    }
}

/* --- what the template reports --- */

static wasm_worker_t *worker_by_serial(wasm_workers_t *workers, uint32_t serial)
{
    for (wasm_worker_t *worker = workers->all; worker != NULL; worker = worker->_next) {
        if (worker->_serial == serial)
            return worker;
    }
    return NULL;
}

static void on_forked(void *data, uint32_t serial, int pid, int pidfd)
{
    wasm_worker_t *worker = worker_by_serial(data, serial);
    if (worker == NULL || worker->is_forked || pidfd < 0) {
        if (pidfd >= 0)
            close(pidfd);
        return; /* without a pidfd it is never used: who waits for it gives up in time */
    }
    worker->is_forked = true;
    worker->pid = pid;
    worker->_pidfd = pidfd;
    if (worker->is_released) {
        wasm_worker_kill(worker);
        worker_close(worker);
    }
    worker_wake(worker);
}

static void worker_lost(wasm_worker_t *worker)
{
    worker->is_lost = true;
    worker_not_idle(worker);
    if (worker->waiter == NULL || worker->is_released)
        worker_free(worker);
    else
        worker_wake(worker);
}

static void on_unforked(void *data, uint32_t serial, int error)
{
    wasm_worker_t *worker = worker_by_serial(data, serial);
    log_event(LOG_WARN, "wasm worker not forked", log_str("error", strerror(error)));
    if (worker != NULL && !worker->is_forked)
        worker_lost(worker);
}

static void on_exited(void *data, uint32_t serial, int status)
{
    wasm_worker_t *worker = worker_by_serial(data, serial);
    if (worker == NULL)
        return;
    worker->has_exited = true;
    worker->status = status;
    if (worker->is_released)
        worker_free(worker);
    else
        worker_wake(worker); /* an idle one is seen by its socket's end */
}

static void on_down(void *data)
{
    wasm_workers_t *workers = data;
    for (wasm_worker_t *worker = workers->all, *next; worker != NULL; worker = next) {
        next = worker->_next;
        worker_lost(worker);
    }
}

static void on_process_up(void *data)
{
    wasm_workers_t *workers = data;
    loop_defer(workers->loop, &workers->refill);
    workers->on_up(workers->data);
}

/* --- the set --- */

wasm_workers_t *wasm_workers_create(loop_t *loop, int exe_fd, uint32_t pages, uint32_t capacity,
                                    void (*on_up)(void *data), void *data)
{
    wasm_workers_t *workers = mem_alloc(sizeof(*workers));
    wasm_process_events_t events = {.on_up = on_process_up,
                                    .on_down = on_down,
                                    .on_forked = on_forked,
                                    .on_unforked = on_unforked,
                                    .on_exited = on_exited,
                                    .data = workers};
    workers->loop = loop;
    workers->on_up = on_up;
    workers->data = data;
    workers->idle_target = capacity < WASM_IDLE_MAX ? capacity : WASM_IDLE_MAX;
    workers->places = wasm_workers_places(capacity);
    workers->process = wasm_process_create(loop, exe_fd, pages, workers->places, &events);
    loop_task_init(&workers->refill, on_refill, workers);
    loop_timer_init(&workers->fork_timer, on_fork_timer, workers);
    return workers;
}

void wasm_workers_start(wasm_workers_t *workers)
{
    wasm_process_start(workers->process);
}

void wasm_workers_destroy(wasm_workers_t *workers)
{
    workers->is_stopping = true;
    loop_task_cancel(workers->loop, &workers->refill);
    loop_timer_stop(&workers->fork_timer);
    wasm_process_destroy(workers->process);
    while (workers->all != NULL)
        worker_free(workers->all);
    free(workers);
}

wasm_process_t *wasm_workers_process(wasm_workers_t *workers)
{
    return workers->process;
}

size_t wasm_workers_idle(const wasm_workers_t *workers)
{
    return workers->idle;
}

size_t wasm_workers_count(const wasm_workers_t *workers)
{
    return workers->count;
}

/* --- one worker --- */

co_wake_t wasm_wait_until(uint64_t until_us)
{
    uint64_t now_us = clock_mono_us();
    return co_wait(until_us > now_us ? (until_us - now_us + 999) / 1000 : 0);
}

static wasm_worker_t *worker_idle(wasm_workers_t *workers)
{
    for (wasm_worker_t *worker = workers->all; worker != NULL; worker = worker->_next) {
        if (worker->_is_idle && worker->is_forked)
            return worker;
    }
    return NULL;
}

wasm_worker_t *wasm_worker_take(wasm_workers_t *workers, bool is_probe, uint64_t until_us, const char **reason)
{
    wasm_worker_t *worker = is_probe ? NULL : worker_idle(workers);
    co_wake_t wake = CO_WOKEN;

    /* Places are held a little longer than runs: until the kernel has taken the old workers down. */
    while (worker == NULL && workers->count >= workers->places) {
        if (clock_mono_us() >= until_us || co_sleep(PLACE_LOOK_MS) == CO_CANCELED)
            break;
        worker = is_probe ? NULL : worker_idle(workers);
    }
    if (worker == NULL)
        worker = worker_ask(workers, is_probe);
    if (worker == NULL) {
        *reason = wasm_process_is_up(workers->process) ? "no place for another worker" : "the template is not up";
        return NULL;
    }
    worker_not_idle(worker);
    worker->waiter = co_self();
    while (!worker->is_forked && !worker->is_lost && wake == CO_WOKEN)
        wake = wasm_wait_until(until_us);
    if (worker->is_forked && !worker->is_lost)
        return worker;
    *reason = worker->is_lost       ? "the template could not fork"
              : wake == CO_CANCELED ? "the caller went away"
                                    : "the template did not fork in time";
    wasm_worker_release(worker);
    return NULL;
}

wasm_send_t wasm_worker_send(wasm_worker_t *worker, const void *head, size_t head_len, const void *body,
                             size_t body_len, uint64_t until_us)
{
    struct iovec parts[2] = {{.iov_base = (void *)head, .iov_len = head_len},
                             {.iov_base = (void *)body, .iov_len = body_len}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    wasm_send_t result = WASM_SENT;
    worker_check(worker);
    while (parts[0].iov_len + parts[1].iov_len > 0) {
        if (worker->_watch == NULL || worker->is_lost)
            return WASM_SEND_BROKEN;
        ssize_t n = sendmsg(worker->_fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) {
            result = WASM_SEND_BROKEN;
            break;
        }
        for (size_t i = 0; n > 0 && i < 2; ++i) {
            size_t took = (size_t)n < parts[i].iov_len ? (size_t)n : parts[i].iov_len;
            parts[i].iov_base = (uint8_t *)parts[i].iov_base + took;
            parts[i].iov_len -= took;
            n -= (ssize_t)took;
        }
        if (parts[0].iov_len + parts[1].iov_len == 0)
            break;
        watch_set(worker->_watch, WATCH_READ | WATCH_WRITE);
        co_wake_t wake = wasm_wait_until(until_us);
        if (wake != CO_WOKEN) {
            result = wake == CO_CANCELED ? WASM_SEND_CANCELED : WASM_SEND_LATE;
            break;
        }
    }
    if (worker->_watch != NULL)
        watch_set(worker->_watch, WATCH_READ);
    return result;
}

void wasm_worker_kill(wasm_worker_t *worker)
{
    worker_check(worker);
    if (worker->_pidfd >= 0 && !worker->has_exited)
        syscall(SYS_pidfd_send_signal, worker->_pidfd, SIGKILL, NULL, 0);
}

void wasm_worker_release(wasm_worker_t *worker)
{
    wasm_workers_t *workers = worker->workers;
    worker_check(worker);
    wasm_worker_kill(worker);
    worker->waiter = NULL;
    worker->is_released = true;
    if (worker->has_exited || worker->is_lost)
        worker_free(worker);
    else
        worker_close(worker); /* when its fork is still to come, on_forked kills it */
    loop_defer(workers->loop, &workers->refill);
}
