#include "core/resolve.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/mem.h"
#include "core/watch.h"

enum { THREAD_STACK_BYTES = 256 * 1024 }; /* getaddrinfo and its NSS modules use well below half of it */

/* Shared by the loop and the thread: whoever lets go last frees it, so a loop may end while a lookup hangs. */
typedef struct {
    atomic_int owners;
    int eventfd;
    char *host;
    resolve_result_t result; /* the thread's until it has written to the eventfd */
} lookup_t;

struct resolve {
    lookup_t *lookup;
    watch_t *watch;
    void (*cb)(void *data, const resolve_result_t *result);
    void *data;
};

static void let_go(lookup_t *lookup)
{
    if (atomic_fetch_sub(&lookup->owners, 1) != 1)
        return;
    close(lookup->eventfd);
    free(lookup->host);
    free(lookup);
}

static void look_up(lookup_t *lookup)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG}, *list;
    resolve_result_t *result = &lookup->result;
    result->reason = "host name not found";
    if (getaddrinfo(lookup->host, NULL, &hints, &list) != 0)
        return;
    for (struct addrinfo *a = list; a != NULL && result->count < RESOLVE_ADDRESSES_MAX; a = a->ai_next)
        if (getnameinfo(a->ai_addr, a->ai_addrlen, result->texts[result->count], INET6_ADDRSTRLEN, NULL, 0,
                        NI_NUMERICHOST) == 0)
            result->count++;
    freeaddrinfo(list);
}

static void *thread_main(void *arg)
{
    lookup_t *lookup = arg;
    uint64_t one = 1;
    look_up(lookup);
    if (write(lookup->eventfd, &one, sizeof(one)) < 0)
        mem_fatal("eventfd broke");
    let_go(lookup);
    return NULL;
}

static bool start_thread(lookup_t *lookup)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, old;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, THREAD_STACK_BYTES);
    /* the role's signals are its loop's */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    bool started = pthread_create(&thread, &attributes, thread_main, lookup) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}

static void on_found(void *data, unsigned events)
{
    resolve_t *r = data;
    uint64_t count;
    (void)events;
    /* the read orders the thread's writes before ours; nothing there yet = not ready */
    if (read(r->lookup->eventfd, &count, sizeof(count)) != sizeof(count))
        return;
    watch_destroy(r->watch);
    r->cb(r->data, &r->lookup->result);
    let_go(r->lookup);
    free(r);
}

resolve_t *resolve_start(loop_t *loop, const char *host, void (*cb)(void *, const resolve_result_t *), void *data)
{
    resolve_t *r = mem_alloc(sizeof(*r));
    r->cb = cb;
    r->data = data;
    r->lookup = mem_alloc(sizeof(*r->lookup));
    r->lookup->host = mem_strdup(host);
    atomic_init(&r->lookup->owners, 1);
    if ((r->lookup->eventfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
        goto Failed;
    if ((r->watch = watch_create(loop, r->lookup->eventfd, on_found, r)) == NULL)
        goto Failed;
    watch_set(r->watch, WATCH_READ);
    atomic_store(&r->lookup->owners, 2);
    if (!start_thread(r->lookup)) {
        atomic_store(&r->lookup->owners, 1);
        goto Failed;
    }
    return r;

Failed:
    if (r->watch != NULL)
        watch_destroy(r->watch);
    let_go(r->lookup);
    free(r);
    return NULL;
}

void resolve_cancel(resolve_t *r)
{
    watch_destroy(r->watch);
    let_go(r->lookup);
    free(r);
}
