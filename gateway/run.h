/*
 * One run, from a decoded request to its answer, in call order:
 *     run_start -> validate -> grant -> placement -> flight -> claim+admission -> dispatch -> result -> settle ->
 * answer Each stage that can refuse does so before the dispatch; from there on an error carries no mark.
 */
#ifndef GATEWAY_RUN_H
#define GATEWAY_RUN_H

#include "gateway/bill.h"
#include "gateway/flight.h"
#include "gateway/gate.h"
#include "gateway/placement.h"
#include "gateway/quota.h"
#include "records/digest.h"

typedef enum {
    RUN_CLAIMING,   /* the admission script is on its way */
    RUN_FOLLOWING,  /* waits for the same request in this process */
    RUN_JOINED,     /* waits for the same request in another copy */
    RUN_DISPATCHED, /* a backend has it */
    RUN_SETTLING,   /* the settling script is on its way */
    RUN_OVER,
} run_state_t;

typedef enum { STOP_CAUSE_NONE, STOP_CAUSE_HANG_UP, STOP_CAUSE_DEADLINE, STOP_CAUSE_WATCHDOG } stop_cause_t;

typedef struct run {
    unsigned magic;
    run_state_t state;
    lane_t *lane;
    gate_t *gate;
    h2o_req_t *req;
    Plimsoll__V1__RunRequest *request; /* freed when the backend has it */
    run_terms_t terms;
    char request_sha256[SHA256_HEX + 1];
    char run_id[33];
    char rule_id[SOFTWARE_RULE_ID_MAX];
    char trace_id[65];
    const char *kind;
    uint32_t protocol, code_bytes;
    uint32_t files, steps, total_bytes; /* of a project */
    int32_t asked_timeout_ms;
    Plimsoll__V1__SoftwareRule *rule; /* kept for the check of the answer; NULL = none */
    bool has_place;
    bool served_alone;      /* without Redis (run_serve.h) */
    bool leaves_receipt;    /* it is valid, and was refused before anything of it was recorded */
    bool only_claims;       /* may not run now: an outcome its ID has already comes before `refusal` */
    flight_t *flight;       /* when this run leads one */
    flight_member_t member; /* when it follows one */
    placement_t placement;
    size_t next; /* in placement */
    size_t at;   /* the backend that has it */
    tier_t tier; /* that backend's at the dispatch */
    uint64_t call;
    char passed_over[256];
    refusal_t refusal;     /* the last refusal of a backend, or what stands against a run that is only_claims */
    loop_timer_t deadline; /* the caller's own */
    loop_timer_t watchdog; /* the backend's answer is overdue, or a cancel is */
    stop_cause_t stop;
    stop_cause_t outlived; /* its own caller gave up for this, yet others wait for the run or may ask for it */
    bool replayed;         /* answered by another run's result */
    outcome_t *outcome;
    store_admitted_t admitted; /* numbers only; its pointers are not kept */
    store_caps_t caps;         /* the caller's, as they were at the admission */
    bill_t hold, spent;
    char limits_seen[QUOTA_SEEN_MAX]; /* of a refusal, for its receipt */
    uint32_t life_ms;                 /* from claim_us on: it may take no longer, whatever walls it goes to */
    store_lease_t lease;              /* of its claim and slot, from the admission to the settlement */
    uint64_t lost_us;                 /* of one that joined: the run it waits for is over by then, at the latest */
    uint64_t claim_us, dispatched_us, done_us, settle_began_us;
    uint32_t claim_took_us, execute_us, queue_us, settle_took_us;
    struct run *next_joined, *prev_joined;
} run_t;

/* Takes the request of ROUTE_RUN; answers it sooner or later. */
void run_start(h2o_req_t *req, gate_t *gate, const char *body, size_t len);
/* A claim was settled somewhere: joined runs of this lane look whether it is theirs. */
void run_on_settled(lane_t *lane, const char *claim_key);
/* Subscription trouble: every joined run looks for itself. */
void run_look_all(lane_t *lane);

#endif
