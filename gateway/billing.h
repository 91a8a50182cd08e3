/* What a run is charged: the worst case that is held before anything starts, and what it came to. Times are sandbox
 * time; docs/billing.md has the arithmetic. */
#ifndef GATEWAY_BILLING_H
#define GATEWAY_BILLING_H

#include "gateway/bill.h"
#include "gateway/placement.h"

/* The worst case over all backends of the placement: the longest timeout, and for a billed one the time its teardown
 * may take. While a cost is capped, a billed backend whose price is unknown is taken off the placement: nobody could
 * say whether the cap holds. false: that left none, and *refusal says so. */
bool billing_hold(const lane_t *lane, placement_t *placement, bill_t *hold, refusal_t *refusal);
/* What a run on backend `i` came to. `took_ms` is the time it was there; `billable_ms` what its provider bills, of a
 * billed one. */
bill_t billing_spent(const lane_t *lane, size_t i, uint64_t took_ms, uint64_t billable_ms);
/* What a ledger prices the late time of a sandbox on backend `i` with: micros an hour, at least 1 when there is a
 * price; 0 = not known, or not billed. */
uint64_t billing_price_micro_hour(const lane_t *lane, size_t i);
bool billing_is_billed(const lane_t *lane, size_t i);

#endif
