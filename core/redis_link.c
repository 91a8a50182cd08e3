#include "core/redis_link.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/mem.h"
#include "core/random.h"
#include "core/redis_moved.h"

enum {
    LINK_MAGIC = 0x7265646c,
};

static void link_check(const redis_link_t *link)
{
    if (link == NULL || link->magic != LINK_MAGIC)
        mem_fatal("not a redis link");
}

void redis_link_hold(redis_link_t *link)
{
    link->_holds++;
}

void redis_link_release(redis_link_t *link)
{
    if (--link->_holds != 0 || link->state != LINK_DEAD)
        return;
    link->magic = 0;
    redis_address_dispose(&link->address);
    link->callbacks->on_free(link->owner);
}

bool redis_link_is_up(const redis_link_t *link)
{
    return link->state == LINK_UP && link->ac != NULL;
}

/* --- hiredis' hooks --- */

void redis_link_watch(redis_link_t *link, unsigned events)
{
    if (link->_watch != NULL && events != link->_events)
        watch_set(link->_watch, events);
    link->_events = events;
}

static void add_read(void *data)
{
    redis_link_t *link = data;
    redis_link_watch(link, link->_events | WATCH_READ);
}

static void del_read(void *data)
{
    redis_link_t *link = data;
    redis_link_watch(link, link->_events & ~(unsigned)WATCH_READ);
}

/* Commands are written once at the end of the tick. While the socket is connecting, or has no room, only its readiness
 * may lead to a write: hiredis takes any call before that for the connect's end. */
static void add_write(void *data)
{
    redis_link_t *link = data;
    if (link->_is_writing || link->state == LINK_CONNECTING)
        redis_link_watch(link, link->_events | WATCH_WRITE);
    else if ((link->_events & WATCH_WRITE) == 0)
        loop_defer(link->loop, &link->_flush);
}

static void del_write(void *data)
{
    redis_link_t *link = data;
    redis_link_watch(link, link->_events & ~(unsigned)WATCH_WRITE);
}

static void forget_socket(redis_link_t *link)
{
    tls_stream_destroy(link->_tls);
    link->_tls = NULL;
    if (link->_watch != NULL)
        watch_destroy(link->_watch);
    link->_watch = NULL;
    link->_events = 0;
    link->ac = NULL;
    loop_task_cancel(link->loop, &link->_flush);
}

/* hiredis is about to free the context: the connection broke. */
static void on_cleanup(void *data)
{
    redis_link_t *link = data;
    const redisContext *c = &link->ac->c;
    snprintf(link->_reason, sizeof(link->_reason), "%s",
             link->_guard.problem != NULL ? link->_guard.problem
             : c->errstr[0] != '\0'       ? c->errstr
                                          : "connection lost");
    forget_socket(link);
}

/* Takes the context from the link; hiredis frees it now, or when its call on the stack returns. */
static void detach(redis_link_t *link)
{
    redisAsyncContext *ac = link->ac;
    if (ac == NULL)
        return;
    ac->data = NULL;
    memset(&ac->ev, 0, sizeof(ac->ev));
    ac->onConnect = NULL;
    ac->onDisconnect = NULL;
    forget_socket(link);
    redisAsyncFree(ac);
}

/* --- states --- */

static void forget_node(redis_link_t *link)
{
    free(link->_node.host);
    link->_node = (redis_node_t){0};
    link->_hops = 0;
}

static void stop_locating(redis_link_t *link)
{
    if (link->_locating != NULL)
        redis_sentinel_cancel(link->_locating);
    link->_locating = NULL;
}

/* Where the connection is made to: the host's name, which is what its certificate must name. */
const char *redis_link_host(const redis_link_t *link)
{
    return link->_node.host != NULL ? link->_node.host : link->address.host;
}

static int port_of(const redis_link_t *link)
{
    return link->_node.host != NULL ? link->_node.port : link->address.port;
}

static uint32_t jittered(uint32_t ms)
{
    return ms / 2 + random_below(ms / 2 + 1);
}

/* The pause counts from the attempt's beginning: one that waited in vain for an answer has paused already. */
static uint64_t pause_left(const redis_link_t *link)
{
    uint64_t pause = jittered(link->_pause_ms), spent = clock_mono_ms() - link->_began_at;
    uint64_t least = jittered(REDIS_RECONNECT_MIN_MS);
    return link->_began_at == 0 || spent + least >= pause ? least : pause - spent;
}

static void pause_then_retry(redis_link_t *link)
{
    bool was_up = link->state == LINK_UP;
    /* a Sentinel that named a server of no use may be behind the others */
    if (link->address.master != NULL && link->_node.host != NULL && !was_up)
        link->_sentinel++;
    forget_node(link);
    if (was_up && clock_mono_ms() - link->_up_at >= REDIS_RECONNECT_MAX_MS)
        link->_pause_ms = REDIS_RECONNECT_MIN_MS;
    link->state = LINK_PAUSED;
    loop_timer_start(link->loop, &link->_timer, pause_left(link));
    if (link->_is_hopping && !was_up)
        return; /* a node that names another one is no failure, and nothing to tell of */
    link->_pause_ms = link->_pause_ms > REDIS_RECONNECT_MAX_MS / 2 ? REDIS_RECONNECT_MAX_MS : link->_pause_ms * 2;
    link->callbacks->on_down(link->owner, was_up, link->_reason);
}

void redis_link_fail(redis_link_t *link, const char *reason)
{
    link_check(link);
    if (link->state == LINK_DEAD || link->state == LINK_PAUSED)
        return;
    redis_link_hold(link);
    if (reason != link->_reason)
        snprintf(link->_reason, sizeof(link->_reason), "%s", reason);
    detach(link);
    stop_locating(link);
    if (link->state != LINK_DEAD)
        pause_then_retry(link);
    redis_link_release(link);
}

void redis_link_follow(redis_link_t *link, const char *text)
{
    redis_moved_t moved;
    link_check(link);
    const char *here = redis_link_host(link);
    unsigned hops = link->_hops + 1;
    bool is_known = redis_moved_parse(text, &moved) && !moved.is_ask && (moved.host[0] != '\0' || here != NULL);
    if (!is_known || hops > REDIS_HOPS_MAX) {
        redis_link_fail(link, is_known ? "the nodes of the Cluster name each other" : "a MOVED answer without a node");
        return;
    }
    redis_node_t node = {mem_strdup(moved.host[0] != '\0' ? moved.host : here), moved.port};
    redis_link_hold(link);
    link->_is_hopping = true;
    redis_link_fail(link, text);
    link->_is_hopping = false;
    if (link->state == LINK_PAUSED && link->_node.host == NULL) {
        link->_node = node;
        link->_hops = hops;
        loop_timer_start(link->loop, &link->_timer, 0);
    } else {
        free(node.host);
    }
    redis_link_release(link);
}

static bool has_lost_its_socket(const redis_link_t *link)
{
    return link->ac == NULL && (link->state == LINK_CONNECTING || link->state == LINK_SECURING ||
                                link->state == LINK_GREETING || link->state == LINK_UP);
}

/* After every call into hiredis: if it lost the connection, the link learns it here, with hiredis off the stack. */
static void after_hiredis(redis_link_t *link)
{
    if (has_lost_its_socket(link))
        redis_link_fail(link, link->_reason);
}

void redis_link_come_up(redis_link_t *link)
{
    link->state = LINK_UP;
    link->_up_at = clock_mono_ms();
    loop_timer_start(link->loop, &link->_timer, REDIS_BEAT_MS);
    link->callbacks->on_up(link->owner);
}

/* On failure hiredis frees the context itself, by way of on_cleanup. */
static void on_connect(const redisAsyncContext *ac, int status)
{
    redis_link_t *link = ac->data;
    if (status != REDIS_OK)
        return;
    if (link->address.is_tls) {
        /* hiredis goes on with this socket until its call returns; then the handshake begins */
        link->state = LINK_SECURING;
        return;
    }
    link->state = LINK_GREETING;
    redis_link_greet(link);
}

/* --- an attempt --- */

void redis_link_heed_length(redis_link_t *link)
{
    if (link->ac != NULL && redis_reply_is_too_long(&link->_guard))
        redis_link_fail(link, link->_guard.problem);
}

static void plain_event(redis_link_t *link, unsigned events)
{
    if ((events & WATCH_WRITE) != 0 && link->ac != NULL) {
        link->_is_writing = true;
        redisAsyncHandleWrite(link->ac);
        link->_is_writing = false;
    }
    if ((events & WATCH_READ) != 0 && link->ac != NULL && link->state != LINK_SECURING) {
        link->heard_at = clock_mono_ms();
        redisAsyncHandleRead(link->ac);
        redis_link_heed_length(link);
    }
    if (link->state == LINK_SECURING && link->ac != NULL)
        redis_link_secure(link);
}

static void on_event(void *data, unsigned events)
{
    redis_link_t *link = data;
    link_check(link);
    redis_link_hold(link);
    if (link->_tls != NULL)
        redis_link_tls_event(link, events);
    else
        plain_event(link, events);
    after_hiredis(link);
    redis_link_release(link);
}

static void on_flush(loop_task_t *task)
{
    redis_link_t *link = task->data;
    link_check(link);
    if (link->ac == NULL || sdslen(link->ac->c.obuf) == 0)
        return;
    on_event(link, WATCH_WRITE);
}

static void connect_to(redis_link_t *link, const char *host)
{
    link->state = LINK_CONNECTING;
    redisAsyncContext *ac =
        host != NULL ? redisAsyncConnect(host, port_of(link)) : redisAsyncConnectUnix(link->address.path);
    if (ac == NULL)
        mem_fatal("out of memory");
    link->ac = ac;
    redis_reply_guard(&link->_guard, ac);
    if (ac->err != 0) {
        redis_link_fail(link, ac->errstr);
        return;
    }
    fcntl(ac->c.fd, F_SETFD, FD_CLOEXEC);
    if ((link->_watch = watch_create(link->loop, ac->c.fd, on_event, link)) == NULL) {
        redis_link_fail(link, "out of descriptors");
        return;
    }
    ac->data = link;
    ac->ev.data = link;
    ac->ev.addRead = add_read;
    ac->ev.delRead = del_read;
    ac->ev.addWrite = add_write;
    ac->ev.delWrite = del_write;
    ac->ev.cleanup = on_cleanup;
    redisAsyncSetConnectCallback(ac, on_connect);
}

static void on_resolved(void *data, const resolve_result_t *result)
{
    redis_link_t *link = data;
    link_check(link);
    link->_resolve = NULL;
    if (link->state != LINK_RESOLVING)
        return; /* too late for its attempt; the next looks up anew */
    redis_link_hold(link);
    if (result->count == 0)
        redis_link_fail(link, result->reason);
    else
        connect_to(link, result->texts[link->_turn++ % result->count]);
    redis_link_release(link);
}

static bool is_literal(const char *host)
{
    uint8_t binary[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, host, binary) == 1 || inet_pton(AF_INET6, host, binary) == 1;
}

static void forget_lookup(redis_link_t *link)
{
    if (link->_resolve != NULL)
        resolve_cancel(link->_resolve);
    link->_resolve = NULL;
    free(link->_resolve_host);
    link->_resolve_host = NULL;
}

static void look_up(redis_link_t *link, const char *host)
{
    link->state = LINK_RESOLVING;
    /* a lookup outlives the attempt that began it, so a dead name server costs one thread and not one an attempt */
    if (link->_resolve != NULL && strcmp(link->_resolve_host, host) == 0)
        return;
    forget_lookup(link);
    link->_resolve_host = mem_strdup(host);
    link->_resolve = resolve_start(link->loop, host, on_resolved, link);
    if (link->_resolve == NULL)
        redis_link_fail(link, "no thread for the lookup");
}

static void go(redis_link_t *link)
{
    const char *host = redis_link_host(link);
    loop_timer_start(link->loop, &link->_timer, REDIS_CONNECT_MS);
    if (host == NULL || is_literal(host))
        connect_to(link, host);
    else
        look_up(link, host);
}

static void on_located(void *data, const char *host, int port, unsigned which, const char *reason)
{
    redis_link_t *link = data;
    link_check(link);
    link->_locating = NULL;
    link->_sentinel = which;
    redis_link_hold(link);
    if (host == NULL) {
        redis_link_fail(link, reason);
    } else {
        link->_node = (redis_node_t){mem_strdup(host), port};
        go(link);
    }
    redis_link_release(link);
}

static void attempt(redis_link_t *link)
{
    const redis_address_t *a = &link->address;
    link->_began_at = clock_mono_ms();
    if (a->master == NULL || link->_node.host != NULL) {
        go(link);
        return;
    }
    link->state = LINK_LOCATING;
    /* each of them has its own bound; this is for all, and never what ends it */
    loop_timer_start(link->loop, &link->_timer, REDIS_CONNECT_MS + a->sentinel_count * REDIS_SENTINEL_MS);
    link->_locating = redis_sentinel_ask(link->loop, a, link->_sentinel, on_located, link);
}

static void on_timer(loop_timer_t *timer)
{
    redis_link_t *link = timer->data;
    link_check(link);
    redis_link_hold(link);
    switch (link->state) {
    case LINK_PAUSED:
        attempt(link);
        break;
    case LINK_LOCATING:
        redis_link_fail(link, "the Sentinels took too long");
        break;
    case LINK_RESOLVING:
        redis_link_fail(link, "lookup timed out");
        break;
    case LINK_CONNECTING:
        redis_link_fail(link, "connect timed out");
        break;
    case LINK_SECURING:
        redis_link_fail(link, "TLS timed out");
        break;
    case LINK_GREETING:
        redis_link_fail(link, "no answer");
        break;
    case LINK_UP:
        loop_timer_start(link->loop, &link->_timer, REDIS_BEAT_MS);
        if (clock_mono_ms() - link->_up_at >= REDIS_RECONNECT_MAX_MS)
            link->_hops = 0;
        link->callbacks->on_beat(link->owner);
        break;
    case LINK_DEAD:
        mem_fatal("a dead redis link has a timer");
    }
    redis_link_release(link);
}

/* --- life --- */

/* hiredis writes with write(2), so a server's death would be ours. A handler somebody installed is left alone. */
static void ignore_sigpipe(void)
{
    struct sigaction now;
    if (sigaction(SIGPIPE, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
        signal(SIGPIPE, SIG_IGN);
}

void redis_link_init(redis_link_t *link, loop_t *loop, const redis_address_t *address,
                     const redis_link_callbacks_t *callbacks, void *owner)
{
    ignore_sigpipe();
    *link = (redis_link_t){
        .magic = LINK_MAGIC,
        .state = LINK_PAUSED,
        .loop = loop,
        .callbacks = callbacks,
        .owner = owner,
        ._pause_ms = REDIS_RECONNECT_MIN_MS,
    };
    redis_address_copy(&link->address, address);
    if (link->address.is_tls && link->address.tls == NULL) {
        const char *err = redis_address_secure(&link->address, NULL, NULL, NULL);
        if (err != NULL)
            mem_fatal(err);
    }
    loop_timer_init(&link->_timer, on_timer, link);
    loop_task_init(&link->_flush, on_flush, link);
    loop_timer_start(loop, &link->_timer, 0); /* the first attempt, on the loop's own stack */
}

void redis_link_destroy(redis_link_t *link)
{
    link_check(link);
    if (link->state == LINK_DEAD)
        mem_fatal("redis connection destroyed twice");
    redis_link_hold(link);
    link->state = LINK_DEAD;
    loop_timer_stop(&link->_timer);
    forget_lookup(link);
    stop_locating(link);
    detach(link);
    forget_node(link);
    redis_link_release(link);
}
