/* What one run is charged, and how that is told. */
#ifndef GATEWAY_BILL_H
#define GATEWAY_BILL_H

#include <stdbool.h>

#include "records/store.h"

typedef struct {
    store_amounts_t amounts;
    bool is_billed;     /* by a provider; else it costs nothing */
    bool is_cost_known; /* false: no price, or one that is out of date; amounts.cost_micro is 0 then and says nothing */
} bill_t;

enum { BILL_SECONDS_MAX = 32, BILL_COST_MAX = 48 };
/* "12.345": billed seconds; "0" of a backend that is not billed. */
const char *bill_seconds(const bill_t *bill, char out[BILL_SECONDS_MAX]);
/* "0.000924 USD", "unknown", or "0" of a backend that is not billed. `currency` may be "". */
const char *bill_cost(const bill_t *bill, const char *currency, char out[BILL_COST_MAX]);

#endif
