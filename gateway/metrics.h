/* Counters and gauges, declared once in metrics.def. Any thread may touch them. */
#ifndef GATEWAY_METRICS_H
#define GATEWAY_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include "core/buffer.h"

typedef enum {
#define COUNTER(id, family, labels, help) METRIC_##id,
#define GAUGE(id, family, labels, help) METRIC_##id,
#include "gateway/metrics.def"
#undef COUNTER
#undef GAUGE
    METRIC_COUNT
} metric_t;

void metric_add(metric_t metric, int64_t n);
#define metric_inc(metric) metric_add((metric), 1)
void metric_set(metric_t metric, int64_t value);
int64_t metric_get(metric_t metric);
/* What the walls count (backends/meters.def), shown beside these. `names` are literals or outlive the process's
 * metrics; once, before any thread is started. */
void metrics_walls(const char *const *names, size_t count);
/* The latest of a wall: METER_COUNT values, or NULL when its role is gone and nothing is known. Unknown names are left
 * out. */
void metrics_wall_set(const char *name, const int64_t *wall_values);
/* Prometheus text format 0.0.4 (spec 5.1). */
void metrics_print(buffer_t *out);

#endif
