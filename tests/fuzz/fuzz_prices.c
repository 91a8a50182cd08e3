/* The price file from hostile bytes: never a crash; what is accepted has prices within their bounds, and costs that
 * grow with the time. */
#include <stdint.h>
#include <stdlib.h>

#include "config/prices.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds)
        abort();
}

static void check_price(const price_t *price)
{
    static const uint64_t times[] = {0, 1, 999, 1000, 60000, 86400000, UINT64_C(1) << 40, UINT64_MAX};
    uint64_t before = 0;
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        uint64_t cost = price_cost_micro(price, times[i]);
        check(cost >= before && cost <= COST_MAX);
        check(price_billable_ms(price, times[i]) >= times[i]);
        before = cost;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"e2b", "dockercloud", "standin", "a"};
    problems_t problems = {NULL, 0};
    prices_t *prices = prices_parse((const char *)data, size, &problems);

    check((prices == NULL) == (problems.count > 0));
    for (size_t i = 0; prices != NULL && i < sizeof(names) / sizeof(names[0]); i++)
        if (prices_find(prices, names[i]) != NULL)
            check_price(prices_find(prices, names[i]));
    prices_unref(prices);
    problems_dispose(&problems);
    return 0;
}
