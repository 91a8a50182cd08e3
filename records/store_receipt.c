/* Receipts of runs that were refused before any claim was taken. */
#include "records/store_internal.h"

void store_receipt(store_t *store, const store_settlement_t *refusal)
{
    (void)refusal;
    ++store->receipts_dropped;
}

uint64_t store_receipts_dropped(const store_t *store)
{
    return store->receipts_dropped;
}
