#include "gateway/front_spool.h"

#include <inttypes.h>
#include <stdio.h>

#include "config/options.h"
#include "gateway/metrics.h"
#include "records/store_spool.h"

enum { PATH_BYTES = 4200, FULL_RETRY_MS = 5000 };

void front_spool_open(front_t *front)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/spool", option_str(OPT_PLIMSOLL_STATE_DIR));
    front->spool = spool_open(path, (uint64_t)option_int(OPT_PLIMSOLL_SPOOL_MB) * 1024 * 1024,
                              (uint64_t)front->max_concurrent * SPOOL_RECORD_MAX);
    front_spool_measure(front);
}

void front_spool_close(front_t *front)
{
    spool_close(front->spool);
    front->spool = NULL;
}

void front_spool_use(lane_t *lane)
{
    store_use_spool(lane->store, lane->front->spool, lane->index == 0);
}

bool front_spool_has_room(const front_t *front, refusal_t *refusal)
{
    spool_stats_t stats;
    if (spool_has_room(front->spool, atomic_load_explicit(&front->running, memory_order_relaxed)))
        return true;
    metric_inc(METRIC_SHED_SPOOL);
    spool_stats(front->spool, &stats);
    if (stats.usable)
        refusal_set(
            refusal, CODE_UNAVAILABLE, MARK_CAPACITY,
            "Redis does not take records, and what is kept for it meanwhile has reached PLIMSOLL_SPOOL_MB (%" PRIu64
            "); nothing runs without room for its record",
            stats.limit / (1024 * 1024));
    else
        refusal_set(refusal, CODE_UNAVAILABLE, MARK_CAPACITY,
                    "the gateway's disk does not take records, and nothing runs without room for its record");
    refusal->retry_after_ms = FULL_RETRY_MS;
    return false;
}

void front_spool_measure(const front_t *front)
{
    spool_stats_t s;
    spool_stats(front->spool, &s);
    metric_set(METRIC_SPOOL_BYTES, (int64_t)s.bytes);
    metric_set(METRIC_SPOOL_LIMIT, (int64_t)s.limit);
    metric_set(METRIC_SPOOL_RECORDS, (int64_t)s.records);
    metric_set(METRIC_SPOOL_STUCK, (int64_t)s.stuck);
    metric_set(METRIC_SPOOL_OLDEST, (int64_t)(s.oldest_ms / 1000));
    metric_set(METRIC_SPOOL_USABLE, s.usable);
    metric_set(METRIC_SPOOL_APPENDED, (int64_t)s.appended_total);
    metric_set(METRIC_SPOOL_REPLAYED, (int64_t)s.replayed_total);
    metric_set(METRIC_SPOOL_SET_ASIDE, (int64_t)s.set_aside_total);
    metric_set(METRIC_SPOOL_TORN, (int64_t)s.torn_total);
    metric_set(METRIC_SPOOL_LATE, (int64_t)s.late_total);
    metric_set(METRIC_SPOOL_FAILED, (int64_t)s.failures_total);
}
