/* Which backends may take a request, in which order: the operator's, of those that meet floor, software rule, kind and
 * timeout. */
#ifndef GATEWAY_PLACEMENT_H
#define GATEWAY_PLACEMENT_H

#include <stddef.h>
#include <stdint.h>

#include "backends/backend.pb-c.h"
#include "gateway/front.h"
#include "gateway/refusal.h"
#include "gateway/validate.h"

typedef struct {
    size_t count;
    uint8_t backend[WALLS_MAX];     /* index in front->backend_names */
    uint32_t timeout_ms[WALLS_MAX]; /* effective there */
    bool passes; /* one was left out for what passes with time: the same request may have been taken before */
} placement_t;

/* false: none may, and *refusal (marked) says what stood against the one that came furthest. `pinned` NULL: all are
 * looked at. Backends whose ceiling holds the whole asked timeout come before those that would shorten it. */
bool placement_choose(lane_t *lane, const Plimsoll__V1__RunRequest *request, const run_terms_t *terms,
                      const char *pinned, placement_t *out, refusal_t *refusal);
/* The backend a request without a floor would get: what Describe states at the root. */
size_t placement_default(lane_t *lane);
/* The tier of backend i now; TIER_UNKNOWN without fresh evidence. */
tier_t placement_tier(const lane_t *lane, size_t i);
/* "javascript", "project", "module" or "cell". */
const char *placement_kind_name(const Plimsoll__V1__RunRequest *request);
const Plimsoll__Backend__Kind *placement_kind(const Plimsoll__Backend__Announce *a,
                                              const Plimsoll__V1__RunRequest *request);

#endif
