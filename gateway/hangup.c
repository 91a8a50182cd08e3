/*
 * Peers that hang up. libh2o does not read while it has a request handled, so a second epoll set asks for the hang-up
 * alone.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/log.h"
#include "core/mem.h"
#include "core/watch.h"
#include "gateway/gate.h"

struct hangup {
    int epfd;
    watch_t *watch;
};

static void on_hangup_ready(void *data, unsigned events)
{
    struct hangup *h = data;
    struct epoll_event ready[64];
    (void)events;
    int n = epoll_wait(h->epfd, ready, sizeof(ready) / sizeof(ready[0]), 0);
    for (int i = 0; i < n; i++) {
        gate_t *gate = ready[i].data.ptr;
        gate_check(gate);
        if (!gate->hung_up && gate->on_hang_up != NULL)
            gate->keep = false;
        gate_hang_up(gate);
    }
}

void gate_hang_up(gate_t *gate)
{
    if (gate->hung_up || gate->on_hang_up == NULL)
        return;
    gate->hung_up = true;
    gate->on_hang_up(gate, gate->on_hang_up_data);
}

struct hangup *hangup_create(lane_t *lane)
{
    struct hangup *h = mem_alloc(sizeof(*h));
    h->epfd = epoll_create1(EPOLL_CLOEXEC);
    if (h->epfd < 0 || (h->watch = watch_create(lane->loop, h->epfd, on_hangup_ready, h)) == NULL)
        mem_fatal("no descriptor for the hang-up watch");
    watch_set(h->watch, WATCH_READ);
    return h;
}

void hangup_destroy(struct hangup *h)
{
    watch_destroy(h->watch);
    close(h->epfd);
    free(h);
}

void gate_watch(gate_t *gate, void (*on_hang_up)(gate_t *gate, void *data), void *data)
{
    gate_check(gate);
    gate->on_hang_up = on_hang_up;
    gate->on_hang_up_data = data;
    gate->hung_up = false;
    if (gate->stream != NULL)
        return; /* the connection is read all the time and tells */
    struct epoll_event ev = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.ptr = gate};
    if (epoll_ctl(gate->lane->hangup->epfd, EPOLL_CTL_ADD, h2o_socket_get_fd(gate->sock), &ev) == 0)
        gate->watched = true;
    else
        log_event(LOG_ERROR, "a connection cannot be watched", log_str("error", strerror(errno)));
}

void gate_unwatch(gate_t *gate)
{
    gate->on_hang_up = NULL;
    if (!gate->watched)
        return;
    gate->watched = false;
    /* after libh2o closed the descriptor the kernel has dropped it from the set already */
    int fd = h2o_socket_get_fd(gate->sock);
    if (fd >= 0)
        epoll_ctl(gate->lane->hangup->epfd, EPOLL_CTL_DEL, fd, NULL);
}
