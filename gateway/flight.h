/*
 * Requests with one ID, in this process: the first leads, the same ones that come while it is under way follow it and
 * get its outcome, a different one under the same ID is a conflict. Across processes the claim in Redis does the same;
 * this table spares it the crowd. Thread-safe; outcomes are handed to each follower on its own loop.
 */
#ifndef GATEWAY_FLIGHT_H
#define GATEWAY_FLIGHT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/loop.h"
#include "gateway/bill.h"
#include "gateway/refusal.h"

/* How a run ended, shared by all who wait for it. Immutable once made. */
typedef struct {
    _Atomic uint32_t refs;
    bool answered;     /* response is valid, else refusal */
    bool stored;       /* the answer came from the record store, not from a run made now */
    uint8_t *response; /* packed plimsoll.v1.RunResponse with its record */
    size_t response_len;
    char run_id[33]; /* "" when nothing was admitted */
    char backend[33];
    bool has_bill; /* a run made now; a stored answer's bill is in its record */
    bill_t bill;
    refusal_t refusal;
} outcome_t;

/* One reference; `response` is taken over (may be NULL). */
outcome_t *outcome_create(void);
void outcome_unref(outcome_t *outcome);

typedef struct flights flights_t;
typedef struct flight flight_t;

/* A follower's place; embedded in the waiting request, which must live until it left or on_outcome came. */
typedef struct flight_member {
    loop_t *loop;
    void (*on_outcome)(struct flight_member *member, outcome_t *outcome); /* takes the reference */
    void *data;
    flight_t *_flight;
    struct flight_member *_next, *_prev;
    outcome_t *_outcome;
} flight_member_t;

typedef enum { FLIGHT_LEADS, FLIGHT_FOLLOWS, FLIGHT_CONFLICTS } flight_place_t;

flights_t *flights_create(void);
void flights_destroy(flights_t *flights);
/* `*out` is set for the leader. */
flight_place_t flights_enter(flights_t *flights, const char *key, const char *request_sha256, flight_member_t *member,
                             flight_t **out);
/* A follower gives up. false: its outcome is already on the way and will come. */
bool flights_leave(flights_t *flights, flight_member_t *member);
bool flights_has_followers(flights_t *flights, const flight_t *flight);
/* How far the run of a key is, as this process knows: not here at all, claimed or about to be, or with a backend. */
typedef enum { FLIGHT_ELSEWHERE, FLIGHT_RESERVED, FLIGHT_DISPATCHED } flight_stage_t;
flight_stage_t flights_stage(flights_t *flights, const char *key);
/* The leader's run went to a backend. */
void flights_dispatched(flights_t *flights, flight_t *flight);
/* The leader ends: every follower gets a reference, and the ID is free in this table. */
void flights_land(flights_t *flights, flight_t *flight, outcome_t *outcome);

#endif
