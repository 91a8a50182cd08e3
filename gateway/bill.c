#include "gateway/bill.h"

#include <stdio.h>

#include "config/decimal.h"
#include "config/prices.h"

const char *bill_seconds(const bill_t *bill, char out[BILL_SECONDS_MAX])
{
    enum { MS_PLACES = 3 };
    _Static_assert((int)BILL_SECONDS_MAX >= (int)DECIMAL_TEXT_MAX, "a decimal must fit");
    return decimal_print(bill->amounts.paid_ms, MS_PLACES, out);
}

const char *bill_cost(const bill_t *bill, const char *currency, char out[BILL_COST_MAX])
{
    char number[DECIMAL_TEXT_MAX];
    if (!bill->is_cost_known)
        return "unknown";
    decimal_print(bill->amounts.cost_micro, COST_PLACES, number);
    if (bill->is_billed && currency[0] != '\0')
        snprintf(out, BILL_COST_MAX, "%s %s", number, currency);
    else
        snprintf(out, BILL_COST_MAX, "%s", number);
    return out;
}
