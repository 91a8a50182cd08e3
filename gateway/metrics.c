#include "gateway/metrics.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

static const struct {
    const char *family, *labels, *help, *type;
} METRICS[METRIC_COUNT] = {
#define COUNTER(id, family, labels, help) {family, labels, help, "counter"},
#define GAUGE(id, family, labels, help) {family, labels, help, "gauge"},
#include "gateway/metrics.def"
#undef COUNTER
#undef GAUGE
};

static _Atomic int64_t values[METRIC_COUNT];

void metric_add(metric_t metric, int64_t n)
{
    atomic_fetch_add_explicit(&values[metric], n, memory_order_relaxed);
}

void metric_set(metric_t metric, int64_t value)
{
    atomic_store_explicit(&values[metric], value, memory_order_relaxed);
}

int64_t metric_get(metric_t metric)
{
    return atomic_load_explicit(&values[metric], memory_order_relaxed);
}

void metrics_print(buffer_t *out)
{
    const char *family = "";
    for (int i = 0; i < METRIC_COUNT; i++) {
        if (strcmp(METRICS[i].family, family) != 0) {
            family = METRICS[i].family;
            buffer_printf(out, "# HELP %s %s\n# TYPE %s %s\n", family, METRICS[i].help, family, METRICS[i].type);
        }
        if (METRICS[i].labels[0] != '\0')
            buffer_printf(out, "%s{%s} %" PRId64 "\n", family, METRICS[i].labels, metric_get((metric_t)i));
        else
            buffer_printf(out, "%s %" PRId64 "\n", family, metric_get((metric_t)i));
    }
}
