/* Counters and gauges, declared once in metrics.def. Any thread may touch them. */
#ifndef GATEWAY_METRICS_H
#define GATEWAY_METRICS_H

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
/* Prometheus text format 0.0.4 (spec 5.1). */
void metrics_print(buffer_t *out);

#endif
