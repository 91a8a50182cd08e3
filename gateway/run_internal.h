/*
 * One run's files among themselves, in call order: run.c (start, and the ends its caller brings about), run_claim.c
 * (flight, claim, admission, waiting for a run elsewhere), run_dispatch.c (backends and their answers), run_settle.c
 * (record, answer).
 */
#ifndef GATEWAY_RUN_INTERNAL_H
#define GATEWAY_RUN_INTERNAL_H

#include "gateway/run.h"

void run_check(const run_t *run);
/* The only place a run's state changes; an illegal move is a broken invariant. */
void run_move(run_t *run, run_state_t to);
const char *run_caller_id(const run_t *run);
/* What the run is claimed under; NULL: it has no key. */
const char *run_claim_id(const run_t *run);
/* How the caller named it, for texts: "Idempotency-Key" or "Plimsoll-Request-Id". */
const char *run_key_name(const run_t *run);

/* The caller went away, or its own deadline passed. */
void run_stop(run_t *run, stop_cause_t cause);
/* The caller has given up and others wait for this very run: it goes on until the last of them leaves. One with an
 * Idempotency-Key goes on to its end. */
void run_outlive(run_t *run, stop_cause_t cause);

/* Leads a flight into the claim, follows one, or is refused. */
void run_enter_flight(run_t *run);
/* Takes a joined run off its lane's list. */
void run_leave_joined(run_t *run);

/* Hands the run to the next backend of its placement, or refuses it when none is left. */
void run_dispatch(run_t *run);
/* The backend's answer is overdue, or a cancel is. */
void run_on_watchdog(loop_timer_t *timer);

/* Makes the refusal the run's outcome. */
void run_remember_refusal(run_t *run, const refusal_t *refusal);
/* That, and the end: nothing was dispatched, and nothing is recorded but a receipt. */
void run_refuse(run_t *run, const refusal_t *refusal);
void run_give_place_back(run_t *run);
/* Records the run's outcome, then finishes it. */
void run_settle(run_t *run, verdict_t verdict, bool give_back_rate);
/* Answers with the run's outcome, this request and all that follow it, and frees the run. */
void run_finish(run_t *run);

#endif
