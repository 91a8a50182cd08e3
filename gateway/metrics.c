#include "gateway/metrics.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "backends/meters.h"
#include "gateway/limits.h"

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

static const struct {
    const char *family, *labels, *help, *type;
} METERS[METER_COUNT] = {
#define COUNTER "counter"
#define GAUGE "gauge"
#define METER(id, kind, family, labels, help) {family, labels, help, kind},
#include "backends/meters.def"
#undef METER
#undef COUNTER
#undef GAUGE
};

static struct {
    const char *name;
    _Atomic int known;
    _Atomic int64_t values[METER_COUNT];
} walls[WALLS_MAX];
static size_t wall_count;

void metrics_walls(const char *const *names, size_t count)
{
    for (wall_count = 0; wall_count < count && wall_count < WALLS_MAX; wall_count++)
        walls[wall_count].name = names[wall_count];
}

void metrics_wall_set(const char *name, const int64_t *wall_values)
{
    for (size_t w = 0; w < wall_count; w++) {
        if (strcmp(walls[w].name, name) != 0)
            continue;
        for (int i = 0; wall_values != NULL && i < METER_COUNT; i++)
            atomic_store_explicit(&walls[w].values[i], wall_values[i], memory_order_relaxed);
        atomic_store(&walls[w].known, wall_values != NULL);
    }
}

static void walls_print(buffer_t *out)
{
    const char *family = "";
    for (int i = 0; i < METER_COUNT; i++) {
        if (strcmp(METERS[i].family, family) != 0) {
            family = METERS[i].family;
            buffer_printf(out, "# HELP %s %s\n# TYPE %s %s\n", family, METERS[i].help, family, METERS[i].type);
        }
        for (size_t w = 0; w < wall_count; w++)
            if (atomic_load(&walls[w].known))
                buffer_printf(out, "%s{backend=\"%s\"%s%s} %" PRId64 "\n", family, walls[w].name,
                              METERS[i].labels[0] != '\0' ? "," : "", METERS[i].labels,
                              atomic_load_explicit(&walls[w].values[i], memory_order_relaxed));
    }
}

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
    walls_print(out);
}
