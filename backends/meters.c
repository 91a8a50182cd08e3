#include "backends/meters.h"

#include <stddef.h>

static int64_t values[METER_COUNT];
static void (*on_change)(void *data);
static void *on_change_data;

void meter_set(meter_t meter, int64_t value)
{
    if (values[meter] == value)
        return;
    values[meter] = value;
    if (on_change != NULL)
        on_change(on_change_data);
}

void meter_add(meter_t meter, int64_t n)
{
    meter_set(meter, values[meter] + n);
}

const int64_t *meters_values(void)
{
    return values;
}

void meters_on_change(void (*cb)(void *data), void *data)
{
    on_change = cb;
    on_change_data = data;
}
