#include "gateway/linger.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/mem.h"
#include "core/watch.h"
#include "gateway/limits.h"

typedef struct {
    lane_t *lane;
    int fd;
    size_t left;
    watch_t *watch;
    loop_timer_t timer;
} linger_t;

static void linger_end(linger_t *l)
{
    loop_timer_stop(&l->timer);
    if (l->watch != NULL)
        watch_destroy(l->watch);
    close(l->fd);
    l->lane->lingering--;
    free(l);
}

static void linger_on_timer(loop_timer_t *timer)
{
    linger_end(timer->data);
}

static void linger_on_read(void *data, unsigned events)
{
    linger_t *l = data;
    char waste[16384];
    (void)events;
    ssize_t n = read(l->fd, waste, sizeof(waste));
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || (size_t)n >= l->left) {
        linger_end(l);
        return;
    }
    l->left -= (size_t)n;
}

void linger(lane_t *lane, int fd)
{
    shutdown(fd, SHUT_WR);
    if (lane->lingering >= LINGERING_MAX) {
        close(fd);
        return;
    }
    linger_t *l = mem_alloc(sizeof(*l));
    *l = (linger_t){.lane = lane, .fd = fd, .left = LINGER_BYTES};
    lane->lingering++;
    loop_timer_init(&l->timer, linger_on_timer, l);
    l->watch = watch_create(lane->loop, fd, linger_on_read, l);
    if (l->watch == NULL) {
        linger_end(l);
        return;
    }
    watch_set(l->watch, WATCH_READ);
    loop_timer_start(lane->loop, &l->timer, LINGER_MS);
}
