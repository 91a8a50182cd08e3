/*
 * One connection to Redis that is always being brought up: Sentinels, lookup, connect, TLS, AUTH, SELECT, PING, and
 * again after every loss, with jittered back-off. A server that is a replica, or that has not the home key's slot, does
 * not come up; what it names instead is tried. What runs over it (commands, a subscription) belongs to its owner.
 */
#ifndef CORE_REDIS_LINK_H
#define CORE_REDIS_LINK_H

#include <stdbool.h>
#include <stdint.h>
#include <hiredis/async.h>

#include "core/redis.h"
#include "core/redis_reply.h"
#include "core/resolve.h"
#include "core/redis_sentinel.h"
#include "core/tls_stream.h"
#include "core/watch.h"

typedef enum {
    LINK_PAUSED,     /* until the next attempt */
    LINK_LOCATING,   /* Sentinels are asked for the master */
    LINK_RESOLVING,  /* the host name is being looked up */
    LINK_CONNECTING, /* the socket is */
    LINK_SECURING,   /* TLS is agreed on */
    LINK_GREETING,   /* AUTH, SELECT, ROLE and PING are on their way */
    LINK_UP,
    LINK_DEAD, /* destroyed; memory goes when the last call on the stack returns */
} redis_link_state_t;

typedef struct redis_link redis_link_t;

typedef struct {
    void (*on_up)(void *owner);
    /* After a loss (was_up) or a failed attempt. All of the link's hiredis callbacks have run or will run with a NULL
     * reply. */
    void (*on_down)(void *owner, bool was_up, const char *reason);
    void (*on_beat)(void *owner); /* every REDIS_BEAT_MS while up */
    void (*on_free)(void *owner); /* last of all, once after redis_link_destroy: frees what the link is a part of */
} redis_link_callbacks_t;

enum { LINK_REASON_MAX = 160 };

struct redis_link {
    unsigned magic;
    redis_link_state_t state;
    loop_t *loop;
    redis_address_t address;
    const redis_link_callbacks_t *callbacks;
    void *owner;
    redisAsyncContext *ac; /* NULL while there is no socket; only while LINK_UP may the owner use it */
    uint64_t heard_at;     /* monotonic ms of the last bytes from the server */
    /* private */
    watch_t *_watch;
    unsigned _events;
    unsigned _holds;
    bool _is_writing;
    loop_timer_t _timer; /* the state's own: end of the pause, of the attempt, or the next beat */
    loop_task_t _flush;
    redis_node_t _node; /* what a Sentinel or another node named; host NULL = the configured address */
    unsigned _hops;     /* nodes that named another one, in a row */
    bool _is_hopping;   /* the end under way is for the sake of the node that was named */
    redis_sentinel_t *_locating;
    unsigned _sentinel;         /* the one to ask first */
    redis_reply_guard_t _guard; /* of `ac` */
    tls_stream_t *_tls;
    resolve_t *_resolve;
    char *_resolve_host; /* whom it looks up */
    unsigned _turn;      /* which of the host's addresses is tried */
    uint32_t _pause_ms;
    uint64_t _began_at, _up_at;
    char _reason[LINK_REASON_MAX];
};

void redis_link_init(redis_link_t *link, loop_t *loop, const redis_address_t *address,
                     const redis_link_callbacks_t *callbacks, void *owner);
/* Pending hiredis callbacks run with a NULL reply, now or when the hiredis call on the stack returns. */
void redis_link_destroy(redis_link_t *link);
/* Drops the connection and begins anew. `reason` is copied. */
void redis_link_fail(redis_link_t *link, const char *reason);
/* The same for the text of a MOVED answer: the next attempt is made at once, to the node it names, unless
 * REDIS_HOPS_MAX of them did so in a row. */
void redis_link_follow(redis_link_t *link, const char *moved);
bool redis_link_is_up(const redis_link_t *link);
/* Around everything that calls back into the owner's user: between the two the memory stays. */
void redis_link_hold(redis_link_t *link);
void redis_link_release(redis_link_t *link);

/* --- between the link's own files --- */

/* hiredis' readiness events wanted from now on. */
void redis_link_watch(redis_link_t *link, unsigned events);
/* The name the connection is made to; NULL on a Unix socket. */
const char *redis_link_host(const redis_link_t *link);
/* On a connected socket: begins TLS or goes on with it, then greets. */
void redis_link_secure(redis_link_t *link);
void redis_link_tls_event(redis_link_t *link, unsigned events);
void redis_link_greet(redis_link_t *link);
/* Whether it is what ROLE answers of a server of this role: master, slave or sentinel. */
bool redis_link_is_role(const redisReply *reply, const char *role);
/* After bytes were read: drops the connection when an answer has grown past all limits. */
void redis_link_heed_length(redis_link_t *link);
void redis_link_come_up(redis_link_t *link);

#endif
