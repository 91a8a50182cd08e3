/*
 * The front: one lane (an event loop on a thread of its own) per core. Lanes share nothing but what is in front_t,
 * which is either fixed after the start, atomic, or behind a lock of its own.
 */
#ifndef GATEWAY_FRONT_H
#define GATEWAY_FRONT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <h2o.h>

#include "config/callers.h"
#include "config/prices.h"
#include "core/loop.h"
#include "gateway/address_count.h"
#include "gateway/decode_slots.h"
#include "gateway/flight.h"
#include "gateway/limits.h"
#include "gateway/local_quota.h"
#include "gateway/proxies.h"
#include "records/spool.h"
#include "records/store.h"
#include "records/tier.h"

typedef enum { AUTH_CALLERS, AUTH_TOKEN, AUTH_OPEN } auth_mode_t;

struct lane;
struct shared_log;
struct link;

typedef struct front {
    /* fixed after the start */
    unsigned lane_count;
    struct lane *lanes;
    int listen_fd, metrics_fd; /* metrics_fd -1: none */
    SSL_CTX *tls;              /* NULL: cleartext */
    auth_mode_t auth_mode;
    uint8_t token_sha256[32];
    const char *prefix; /* path prefix, "" or "/x" */
    size_t prefix_len;
    bool require_request_id, server_timing, http2;
    bool serves_without_redis; /* PLIMSOLL_REDIS_DOWN=serve */
    uint32_t max_concurrent;
    store_caps_t caps;       /* each caller's; its paid seconds are in the callers file */
    store_caps_t total_caps; /* all callers', over all copies */
    uint32_t window_s;       /* of runs_per_window */
    int64_t prices_max_age_ms;
    store_settings_t store_settings;
    uint32_t header_ms, read_ms, idle_ms, write_ms, evidence_max_age_ms;
    uint64_t buffer_limit;
    int64_t connections_max;
    size_t backend_count;
    const char *backend_names[WALLS_MAX];
    char *backend_paths[WALLS_MAX];
    tier_t min_isolation; /* SANDBOX_MIN_ISOLATION: a backend below it serves nothing */
    proxies_t *proxies;
    struct shared_log *log;
    redis_address_t redis;
    h2o_globalconf_t h2o;

    /* shared and changing */
    pthread_mutex_t callers_lock;
    callers_t *callers;
    prices_t *prices;          /* NULL: none; under callers_lock too */
    _Atomic uint64_t buffered; /* request bytes held */
    _Atomic uint32_t running;  /* runs that hold a global slot */
    _Atomic int64_t connections;
    _Atomic uint32_t lanes_with_store;
    _Atomic bool draining;
    _Atomic uint32_t lanes_left; /* lanes that have not finished draining */
    decode_slots_t *decode_slots;
    decode_slots_t *key_waiters; /* who waits for a run by its key */
    address_count_t *addresses;
    flights_t *flights;
    spool_t *spool;
    local_quota_t *local_quota;
} front_t;

typedef struct lane {
    front_t *front;
    unsigned index;
    pthread_t thread;
    loop_t *loop;
    h2o_context_t h2o;
    h2o_accept_ctx_t accept;
    h2o_socket_t *listener, *metrics_listener;
    bool listener_paused;
    loop_timer_t resume_timer;
    struct gate *gates; /* all of this lane's connections */
    unsigned lingering; /* connections that are over but for what the peer still sends */
    int64_t metrics_connections;
    struct hangup *hangup;
    store_t *store;
    bool store_up;
    struct link *links[WALLS_MAX];
    struct run *joined; /* runs waiting for a run that lives in another copy */
    struct key_wait *key_waits;
    struct describe_cache *describe;
    size_t runs; /* in flight on this lane, for draining */
    loop_timer_t drain_timer, backlog_timer;
    size_t backlog; /* of store_backlog: told to the gauge */
    uint64_t receipts_dropped;
    uint64_t auth_log_at, auth_log_count;
} lane_t;

/* Takes `bytes` of the global buffer budget, or says that they do not fit. */
bool front_buffer_take(front_t *front, uint64_t bytes);
/* Counts bytes that are held in any case: an answer on its way to a peer that may read it slowly. New bodies are
 * refused for as long as that leaves no room. */
void front_buffer_charge(front_t *front, uint64_t bytes);
void front_buffer_give(front_t *front, uint64_t bytes);
/* One global slot for a run. */
bool front_place_take(front_t *front);
void front_place_give(front_t *front);
/* A reference to the present callers. */
callers_t *front_callers(front_t *front);
/* A reference to the present prices; NULL without any. */
prices_t *front_prices(front_t *front);
void front_prices_replace(front_t *front, prices_t *prices);
void front_callers_replace(front_t *front, callers_t *callers);
bool front_is_ready(const lane_t *lane);
/* Called by a lane whenever a run or a connection of it ended, so a drain notices. */
void front_lane_changed(lane_t *lane);

/* The front role's process; inherited descriptors by number. Returns the exit status. */
int front_main(int control_fd, int listen_fd, int metrics_fd);

#endif
