#include "gateway/placement.h"

#include <string.h>

#include "gateway/link.h"
#include "gateway/metrics.h"
#include "records/digest.h"

/* How far a backend came; the later, the closer it was to taking the run. NOT_READY stands above the rest because it
 * alone passes with time. */
typedef enum { STOP_ISOLATION, STOP_ENVIRONMENT, STOP_UNSUPPORTED, STOP_NOT_READY, STOP_NOWHERE } stop_t;

const char *placement_kind_name(const Plimsoll__V1__RunRequest *request)
{
    switch (request->payload_case) {
    case PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_JAVASCRIPT:
        return "javascript";
    case PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_PROJECT:
        return "project";
    case PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_MODULE:
        return "module";
    default:
        return "cell";
    }
}

const Plimsoll__Backend__Kind *placement_kind(const Plimsoll__Backend__Announce *a,
                                              const Plimsoll__V1__RunRequest *request)
{
    switch (request->payload_case) {
    case PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_JAVASCRIPT:
        return a->javascript;
    case PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_PROJECT:
        return a->project;
    default:
        return a->module;
    }
}

tier_t placement_tier(const lane_t *lane, size_t i)
{
    tier_t tier = link_tier(lane->links[i], lane->front->evidence_max_age_ms);
    /* below the operator's own floor a wall counts for nothing */
    return tier_meets(tier, lane->front->min_isolation) ? tier : TIER_UNKNOWN;
}

static bool is_usable(const lane_t *lane, size_t i)
{
    return link_is_ready(lane->links[i]) &&
           (lane->front->min_isolation == TIER_UNKNOWN || placement_tier(lane, i) != TIER_UNKNOWN);
}

size_t placement_default(lane_t *lane)
{
    for (size_t i = 0; i < lane->front->backend_count; i++)
        if (is_usable(lane, i))
            return i;
    return 0;
}

static stop_t judge(lane_t *lane, size_t i, const Plimsoll__V1__RunRequest *request, const run_terms_t *terms)
{
    const Plimsoll__Backend__Announce *a = link_announce(lane->links[i]);
    if (a == NULL)
        return STOP_NOT_READY; /* its role is starting or was lost; it comes back by itself */
    if (!tier_meets(placement_tier(lane, i), terms->floor))
        return STOP_ISOLATION;
    const Plimsoll__Backend__Kind *kind = placement_kind(a, request);
    if (!software_rule_allows(request->software_rule, kind->software_identity))
        return STOP_ENVIRONMENT;
    if (!kind->supported)
        return STOP_UNSUPPORTED;
    return is_usable(lane, i) ? STOP_NOWHERE : STOP_NOT_READY;
}

static uint32_t effective_timeout(const Plimsoll__Backend__Kind *kind, uint32_t asked)
{
    uint32_t t = asked != 0 ? asked : kind->default_timeout_ms;
    return kind->max_timeout_ms != 0 && t > kind->max_timeout_ms ? kind->max_timeout_ms : t;
}

static void refuse(stop_t stop, const lane_t *lane, const run_terms_t *terms, const char *kind, const char *pinned,
                   refusal_t *refusal)
{
    const char *who = pinned != NULL                    ? pinned
                      : lane->front->backend_count == 1 ? lane->front->backend_names[0]
                                                        : "any backend";
    switch (stop) {
    case STOP_ISOLATION:
        refusal_set(refusal, CODE_FAILED_PRECONDITION, MARK_ISOLATION,
                    "minimum_isolation %s is not met by %s: nothing ran", tier_name(terms->floor), who);
        break;
    case STOP_ENVIRONMENT:
        refusal_set(refusal, CODE_FAILED_PRECONDITION, MARK_ENVIRONMENT,
                    "software_rule is not met by the software of %s: nothing ran", who);
        break;
    case STOP_UNSUPPORTED:
        refusal_set(refusal, CODE_UNIMPLEMENTED, MARK_UNSUPPORTED, "%s runs are not supported by %s: nothing ran", kind,
                    who);
        break;
    default:
        metric_inc(METRIC_SHED_BACKENDS);
        refusal_set(refusal, CODE_UNAVAILABLE, MARK_CAPACITY,
                    "no backend is ready for this run now; try again in a moment");
        refusal->retry_after_ms = 1000;
        break;
    }
}

bool placement_choose(lane_t *lane, const Plimsoll__V1__RunRequest *request, const run_terms_t *terms,
                      const char *pinned, placement_t *out, refusal_t *refusal)
{
    stop_t furthest = STOP_ISOLATION;
    out->count = 0;
    out->passes = false;
    /* first those that grant the whole asked time, then those that would shorten it */
    for (int shortened = 0; shortened <= 1; shortened++) {
        for (size_t i = 0; i < lane->front->backend_count; i++) {
            if (pinned != NULL && strcmp(pinned, lane->front->backend_names[i]) != 0)
                continue;
            stop_t stop = judge(lane, i, request, terms);
            if (stop != STOP_NOWHERE) {
                if (stop > furthest)
                    furthest = stop;
                out->passes |= placement_tier(lane, i) == TIER_UNKNOWN;
                continue;
            }
            uint32_t t = effective_timeout(placement_kind(link_announce(lane->links[i]), request), terms->timeout_ms);
            if ((t < terms->timeout_ms) != shortened)
                continue;
            out->backend[out->count] = (uint8_t)i;
            out->timeout_ms[out->count] = t;
            out->count++;
        }
    }
    if (out->count != 0)
        return true;
    refuse(furthest, lane, terms, placement_kind_name(request), pinned, refusal);
    return false;
}
