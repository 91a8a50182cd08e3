/*
 * Redis over hiredis' asynchronous API, on a core loop. Every command has a deadline of its own. A NULL reply from
 * hiredis means the connection died with the command in flight: the outcome is *unknown*, never "no". Commands are
 * never resent by this layer, with one exception: EVALSHA answered NOSCRIPT certainly ran nothing, so it is followed by
 * EVAL.
 */
#ifndef CORE_REDIS_H
#define CORE_REDIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <hiredis/hiredis.h>

#include "core/loop.h"

enum {
    /* One command more is REDIS_NOT_SENT. Overdue commands count until their late answer or the connection's end. */
    REDIS_PENDING_MAX = 16384,           /* commands in flight on one connection */
    REDIS_OUTPUT_MAX = 32 * 1024 * 1024, /* bytes of commands in flight on one connection */
    REDIS_CONNECT_MS = 1000,             /* time for lookup + connect + TLS + AUTH + SELECT + PING */
    REDIS_SENTINEL_MS = 400,             /* time one Sentinel gets, its lookup and TLS included */
    REDIS_SENTINELS_MAX = 8,             /* so nobody is asked for longer than 8 x 400 ms */
    REDIS_HOPS_MAX = 5, /* nodes of a Cluster that may name another one in a row before the configured one is asked */
    /* The first pause before a reconnect; it doubles, with jitter, up to the maximum. A connection that lasted that
     * long starts over with the first. */
    REDIS_RECONNECT_MIN_MS = 50,
    REDIS_RECONNECT_MAX_MS = 1000,
    REDIS_BEAT_MS = 250, /* how often an open connection is looked at */
    REDIS_IDLE_MS =
        1000, /* silence with nothing in flight after which a question finds out whether the server is there */
    REDIS_SILENT_MS = 1000, /* silence while an answer is overdue after which the connection is dropped: "no answer" */
    REDIS_URL_MAX = 4096,   /* bytes of PLIMSOLL_REDIS_URL */
    REDIS_CREDENTIAL_MAX = 1024, /* bytes of a decoded user or password */
    REDIS_DATABASE_MAX = 65535,
    REDIS_PORT = 6379, /* when the URL has none */
    REDIS_SENTINEL_PORT = 26379,
    REDIS_MASTER_NAME_MAX = 64, /* bytes of the name a Sentinel knows its master by */
    REDIS_HOST_MAX = 253,       /* RFC 1035 section 2.3.4, written out with dots */
};

typedef enum {
    REDIS_REPLY,    /* the server answered; `reply` is valid during the callback (never of type ERROR) */
    REDIS_REFUSED,  /* the server answered an error (`err` is its text); nothing is known to have been written */
    REDIS_UNKNOWN,  /* sent, and no answer came before the deadline or the connection died */
    REDIS_NOT_SENT, /* certainly not sent: not connected, or too much in flight */
} redis_status_t;

typedef void (*redis_cb)(void *data, redis_status_t status, const redisReply *reply, const char *err);

struct ssl_ctx_st; /* OpenSSL's SSL_CTX */

typedef struct {
    char *host;
    int port;
} redis_node_t;

/* Where and how: parsed once from PLIMSOLL_REDIS_URL. Strings are owned by the struct. */
typedef struct {
    char *host; /* NULL for a Unix socket, and where Sentinels say it */
    int port;
    char *path; /* Unix socket path, else NULL */
    char *user; /* NULL = default user */
    char *password;
    int database;
    char *home; /* a key that tells which node of a Cluster to use; NULL = none. Not of the URL: redis_address_home */
    bool is_tls;
    struct ssl_ctx_st *tls; /* a reference; not of the URL: redis_address_secure */
    /* Sentinel */
    char *master; /* the name its master has; NULL = no Sentinel */
    redis_node_t sentinels[REDIS_SENTINELS_MAX];
    size_t sentinel_count;
    char *sentinel_user, *sentinel_password;
    bool is_sentinel; /* the server is one: nothing but SENTINEL is asked of it */
} redis_address_t;

/*
 * redis://[user[:password]@]host[:port][/db]; rediss:// is the same over TLS.
 * redis+unix:///path/to.sock[?db=N][&user=U][&password=P] (also unix://).
 * redis+sentinel://[user[:password]@]host[:port][,host[:port]...]/MASTER[?db=N][&sentinel_user=U][&sentinel_password=P]
 * with the hosts of Sentinels and the credentials of the servers they watch; rediss+sentinel:// is TLS to both.
 * Percent-decoding in user, password and path. Returns NULL on success, else what is wrong (static text, never
 * containing the password), and then `out` is empty.
 */
const char *redis_address_parse(const char *url, redis_address_t *out);
void redis_address_copy(redis_address_t *out, const redis_address_t *from);
void redis_address_dispose(redis_address_t *a);
/* Reads what TLS needs, once: PEM files of the authorities trusted (NULL = the system's) and of our own certificate and
 * its key (both or neither). Without a call a TLS address trusts the system's authorities. NULL on success, else what
 * is wrong (static text). */
const char *redis_address_secure(redis_address_t *a, const char *ca_file, const char *cert_file, const char *key_file);
/* Copied. On a Cluster the connection is made to the node that has the slot of this key before it counts as up. */
void redis_address_home(redis_address_t *a, const char *key);
/* A host name or a literal address, by its characters and length. */
bool redis_is_host(const char *host, size_t len);

typedef struct redis redis_t;

typedef struct {
    const char *name; /* for logs */
    const char *body; /* Lua */
    char sha1[41];    /* filled by redis_script_init */
} redis_script_t;

void redis_script_init(redis_script_t *script, const char *name, const char *body);

/* Connects in the background and reconnects for ever until redis_destroy. `address` is copied. `on_state` (may be NULL)
 * is called with up=true after each successful connect+AUTH+SELECT and up=false after each loss, with the reason; an
 * attempt that fails is told as up=false too, once for each new reason. The reason is valid during the callback and
 * free of secrets. A process that has SIGPIPE at its default gets it ignored: hiredis writes with write(2). */
redis_t *redis_create(loop_t *loop, const redis_address_t *address,
                      void (*on_state)(void *data, bool up, const char *reason), void *data);
/* Pending callbacks get REDIS_UNKNOWN (REDIS_NOT_SENT where that is certain) before this returns. Safe inside a
 * callback. */
void redis_destroy(redis_t *r);
/* Connected, and not silent: a server that stops answering turns this false within REDIS_IDLE_MS + REDIS_SILENT_MS
 * and two beats, sooner when commands wait. */
bool redis_is_up(const redis_t *r);
/* Exactly one callback for each call, never before the call returned. Not for commands that change how answers come
 * (SUBSCRIBE, MONITOR, CLIENT REPLY). `argvlen` NULL = NUL-terminated arguments. A late answer after the deadline is
 * dropped. Answers of type error whose text starts READONLY, LOADING or MASTERDOWN also drop the connection, so it is
 * resolved anew (and Sentinels are asked again); after MOVED it is made to the node named. An ASK is an error like any
 * other: while a slot is being moved, following it would find claims free that are still at the other node. */
void redis_command(redis_t *r, uint32_t deadline_ms, redis_cb cb, void *data, int argc, const char **argv,
                   const size_t *argvlen);
/* argv holds the keys first, then the arguments. `script` must live until the callback. */
void redis_eval(redis_t *r, const redis_script_t *script, uint32_t deadline_ms, redis_cb cb, void *data, int nkeys,
                int argc, const char **argv, const size_t *argvlen);

/* A connection of its own kind: SUBSCRIBE to one channel, again after every reconnect. on_state(up) tells when the
 * subscription is live: what was published before is not delivered. */
typedef struct redis_subscription redis_subscription_t;
redis_subscription_t *redis_subscribe(loop_t *loop, const redis_address_t *address, const char *channel,
                                      void (*on_message)(void *data, const char *payload, size_t len),
                                      void (*on_state)(void *data, bool up, const char *reason), void *data);
void redis_unsubscribe(redis_subscription_t *s);

#endif
