#include "core/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>

#include <h2o/socket.h>

#include "core/mem.h"

enum { WATCH_MAGIC = 0x77617463 };

struct watch {
    unsigned magic;
    loop_t *loop;
    h2o_socket_t *sock;
    watch_cb cb;
    void *data;
    unsigned wanted;
    bool write_armed; /* h2o holds our write callback: it cannot be taken back, only ignored */
    bool dead;
};

static void on_write(h2o_socket_t *sock, const char *err);

static void on_read(h2o_socket_t *sock, const char *err)
{
    watch_t *w = sock->data;
    (void)err;
    if (w->magic != WATCH_MAGIC)
        mem_fatal("not a watch");
    if ((w->wanted & WATCH_READ) != 0)
        w->cb(w->data, WATCH_READ);
}

static void arm_write(watch_t *w)
{
    if (!w->write_armed) {
        w->write_armed = true;
        h2o_socket_notify_write(w->sock, on_write);
    }
}

/* h2o's write notice is one shot; a level-triggered watch arms it again as long as it is wanted. */
static void on_write(h2o_socket_t *sock, const char *err)
{
    watch_t *w = sock->data;
    (void)err;
    if (w->magic != WATCH_MAGIC)
        mem_fatal("not a watch");
    w->write_armed = false;
    if ((w->wanted & WATCH_WRITE) == 0)
        return;
    arm_write(w);
    w->cb(w->data, WATCH_WRITE);
}

watch_t *watch_create(loop_t *loop, int fd, watch_cb cb, void *data)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0)
        return NULL;
    /* The duplicate shares its file status flags with the original, and h2o makes it non-blocking: so must the original
     * be. */
    watch_t *w = mem_alloc(sizeof(*w));
    w->magic = WATCH_MAGIC;
    w->loop = loop;
    w->cb = cb;
    w->data = data;
    w->sock = h2o_evloop_socket_create(loop_h2o(loop), copy, 0);
    h2o_socket_dont_read(w->sock, 1);
    w->sock->data = w;
    return w;
}

void watch_set(watch_t *w, unsigned events)
{
    if (w->magic != WATCH_MAGIC)
        mem_fatal("not a watch");
    if ((events & WATCH_READ) != 0 && (w->wanted & WATCH_READ) == 0)
        h2o_socket_read_start(w->sock, on_read);
    else if ((events & WATCH_READ) == 0 && (w->wanted & WATCH_READ) != 0)
        h2o_socket_read_stop(w->sock);
    w->wanted = events;
    if ((events & WATCH_WRITE) != 0)
        arm_write(w);
}

void watch_destroy(watch_t *w)
{
    if (w->magic != WATCH_MAGIC)
        mem_fatal("not a watch");
    w->magic = 0;
    h2o_socket_close(w->sock);
    free(w);
}
