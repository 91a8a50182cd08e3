#include "gateway/run_serve.h"

#include <stdio.h>

#include "core/clock.h"
#include "core/random.h"
#include "gateway/billing.h"
#include "gateway/local_quota.h"
#include "gateway/metrics.h"
#include "gateway/quota.h"
#include "gateway/run_internal.h"

static void keep_unbilled(run_t *run)
{
    placement_t *p = &run->placement;
    size_t kept = 0;
    for (size_t i = 0; i < p->count; i++) {
        if (billing_is_billed(run->lane, p->backend[i]))
            continue;
        p->backend[kept] = p->backend[i];
        p->timeout_ms[kept++] = p->timeout_ms[i];
    }
    p->count = kept;
}

static bool may_go_ahead(const run_t *run)
{
    return run->lane->front->serves_without_redis && run_claim_id(run) == NULL && run->has_place &&
           run->stop == STOP_CAUSE_NONE;
}

static void refuse_for_share(run_t *run, const store_admitted_t *capped)
{
    refusal_t r;
    front_t *front = run->lane->front;
    const quota_terms_t terms = {.caps = &run->caps,
                                 .total_caps = &front->total_caps,
                                 .window_s = front->window_s,
                                 .hold = &run->hold.amounts,
                                 .currency = ""};
    quota_refuse(capped, &terms, &r);
    quota_seen(capped, run->limits_seen);
    run_refuse(run, &r);
}

bool run_serve(run_t *run)
{
    store_admitted_t capped;
    if (!may_go_ahead(run))
        return false;
    keep_unbilled(run);
    if (run->placement.count == 0)
        return false;
    switch (local_quota_take(run->lane->front->local_quota, run_caller_id(run), &run->caps, clock_mono_us(), &capped)) {
    case LOCAL_QUOTA_FULL:
        return false;
    case LOCAL_QUOTA_CAPPED:
        refuse_for_share(run, &capped);
        return true;
    case LOCAL_QUOTA_TAKEN:
        break;
    }
    /* The admission under the first ID may still reach Redis and is taken back there: this is another run. */
    random_hex(run->run_id, 16);
    run->served_alone = true;
    metric_inc(METRIC_SERVED_ALONE);
    run_dispatch(run);
    return true;
}

void run_serve_end(run_t *run)
{
    if (!run->served_alone)
        return;
    const outcome_t *o = run->outcome;
    local_quota_give(run->lane->front->local_quota, run_caller_id(run), &run->caps,
                     !o->answered && o->refusal.mark != MARK_NONE);
}
