/* Private to the backend role: its parts, who share one thread and one loop. */
#ifndef BACKENDS_ROLE_H
#define BACKENDS_ROLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/backend.h"
#include "core/co.h"
#include "core/ipc.h"
#include "core/loop.h"
#include "core/watch.h"

enum {
    /* Frames, as backend.proto numbers them. */
    ROLE_ANNOUNCE = 16,
    ROLE_RUN_START = 17,
    ROLE_RUN_REFUSED = 18,
    ROLE_RUN_DONE = 19,
    ROLE_RUN_FAILED = 20,
    ROLE_METERS = 21,

    ROLE_PEERS_MAX = 128,      /* connections of fronts: one a thread, and those of a front being replaced */
    ROLE_PROOF_MS = 30 * 1000, /* a proof that takes longer has failed, unless the wall's ops say otherwise */
    ROLE_UNTRIED_MAX = 3,      /* proofs at the start that could not even be tried, before the wall counts as failed */
    ROLE_RETRY_MIN_MS = 500,   /* pause after a failed proof; doubles up to PLIMSOLL_PROOF_INTERVAL */
    ROLE_ABORT_MS = 5 * 1000,  /* after PLIMSOLL_DRAIN, for canceled runs to be cleaned up */
    ROLE_FLUSH_MS = 2 * 1000,  /* at the end, for answers a front has not taken yet */
    ROLE_FLUSH_LOOK_MS = 5,
    ROLE_ACCEPT_PAUSE_MS = 100, /* when there is no descriptor for a connection */
    ROLE_METERS_MS = 250,       /* what a wall counts is told this long after it changed */
    ROLE_BUSY_RETRY_MS = 1000,  /* when to come again, as a refusal for capacity says */
};

typedef struct role role_t;

/* A connection of one of the front's threads. */
typedef struct role_peer {
    unsigned magic;
    role_t *role;
    ipc_t *ipc;   /* NULL once closed */
    bool is_full; /* its queue; answers wait for on_drain */
    bool has_stale_announce;
    struct role_peer *next;
} role_peer_t;

/* A run from its RunStart to its answer. */
typedef struct role_run {
    unsigned magic;
    role_t *role;
    role_peer_t *peer; /* NULL when the connection is gone: nobody is answered */
    uint64_t call;
    co_t *co; /* NULL once it ended */
    Plimsoll__Backend__RunStart *start;
    Plimsoll__V1__RunRequest *request;
    backend_run_t run;
    struct role_run *next;
} role_run_t;

struct role {
    unsigned magic;
    loop_t *loop;
    const backend_ops_t *ops;
    void *wall;
    backend_host_t host;
    char instance[LEDGER_INSTANCE + 1];
    role_ledger_t *ledger; /* NULL: the wall keeps none */
    int listen_fd, parent_fd, signal_fd;
    watch_t *listen, *parent, *signals;

    Plimsoll__Backend__State state;
    backend_facts_t facts;
    uint64_t proven_ms; /* monotonic; 0 = never */
    char failure[BACKEND_TEXT_MAX];
    co_t *proof;
    bool is_proof_wanted; /* once more, when the present one has ended */
    bool is_retry_wanted; /* the same, should the present one fail */
    uint32_t retry_ms;
    uint32_t untried;         /* proofs since the start that could not be tried, none having succeeded */
    loop_timer_t proof_timer; /* the next proof, or the limit of the present one */
    loop_timer_t stale_timer; /* the evidence's end */

    role_peer_t *peers;
    size_t peer_count;
    role_run_t *runs;
    size_t run_count;
    loop_timer_t meters_timer;
    loop_timer_t listen_timer; /* a pause in accepting */
    loop_timer_t drain_timer;
    bool is_aborting; /* the drain's time is over: what is left is canceled */
    co_t *stopper;
};

/* --- role_proof.c --- */

/* What the evidence supports now. */
tier_t role_tier(const role_t *role);
/* Starts a proof, or asks for one more after the present. */
void role_prove(role_t *role);
void role_proof_begin(role_t *role);
/* No further proof; the present one is canceled. */
void role_proof_end(role_t *role);

/* --- role_front.c --- */

void role_on_connection(void *data, unsigned events);
void role_on_listen_timer(loop_timer_t *timer);
/* Something that is counted has changed. */
void role_meters_changed(void *data);
void role_on_meters_timer(loop_timer_t *timer);
/* To every front. */
void role_announce(role_t *role);
/* Canceled runs still clean up, and are still answered. */
void role_cancel_all(role_t *role);
void role_close_peers(role_t *role);

/* --- role_run.c --- */

/* Answers or starts the run; takes `start`. */
void role_run_start(role_peer_t *peer, uint64_t call, Plimsoll__Backend__RunStart *start);
void role_run_cancel(role_peer_t *peer, uint64_t call);
/* The connection is gone: its runs are canceled. */
void role_run_orphan(role_peer_t *peer);
/* Answers that found the queue full. */
void role_run_answer_waiting(role_peer_t *peer);

/* --- role.c --- */

/* A run or a proof has ended: the drain may be over. */
void role_has_ended_one(role_t *role);

#endif
