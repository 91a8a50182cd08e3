/*
 * What a wall counts. In the role, which is one thread: counting here, told to the fronts shortly after anything
 * changed. The front keeps the latest of every wall (gateway/metrics.h).
 */
#ifndef BACKENDS_METERS_H
#define BACKENDS_METERS_H

#include <stdint.h>

typedef enum {
#define METER(id, kind, family, labels, help) METER_##id,
#include "backends/meters.def"
#undef METER
    METER_COUNT
} meter_t;

void meter_add(meter_t meter, int64_t n);
#define meter_inc(meter) meter_add((meter), 1)
void meter_set(meter_t meter, int64_t value);
const int64_t *meters_values(void);
/* Called at each change; NULL: nobody cares. */
void meters_on_change(void (*cb)(void *data), void *data);

#endif
