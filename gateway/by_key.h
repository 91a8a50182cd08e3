/*
 * GET /v1/runs/by-key/KEY?wait=SECONDS: what became of the run that a Plimsoll-Request-Id or an Idempotency-Key names.
 * 404 when the key is free, 202 while its run is under way, 200 with its outcome. A wait ends at once when the run
 * settles, wherever it ran; it takes nothing from the run, and a caller who hangs up leaves nothing behind.
 */
#ifndef GATEWAY_BY_KEY_H
#define GATEWAY_BY_KEY_H

#include "gateway/gate.h"

void by_key_answer(h2o_req_t *req, gate_t *gate);
/* A claim was settled somewhere: whoever waits for it on this lane looks. */
void by_key_on_settled(lane_t *lane, const char *claim_key);
/* Subscription trouble: everybody looks. */
void by_key_look_all(lane_t *lane);

#endif
