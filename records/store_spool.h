/*
 * The store's way over the spool. What Redis does not take goes there before whoever settles is answered, and from
 * there to Redis, in order, until it is taken. While something of a caller is in the spool, all of that caller goes
 * that way, so that it stays in order.
 */
#ifndef RECORDS_STORE_SPOOL_H
#define RECORDS_STORE_SPOOL_H

#include "records/spool.h"
#include "records/store.h"

enum {
    STORE_SPOOL_DETOUR_MS =
        100, /* while Redis answers, a settlement waits this long for its caller's to leave the spool */
    STORE_SPOOL_FLUSH_MS = 3000,
    STORE_SPOOL_WAIT_MS = 1000, /* whoever settles is answered then, although the disk has not taken the record yet */
};

/* From here on the store keeps what Redis does not take in `spool`, which outlives it. `replays`: this store sends what
 * is in it; exactly one of a process does. */
void store_use_spool(store_t *store, spool_t *spool, bool replays);

/* Whether the process may end: every settlement is in Redis or on the disk. While Redis takes what is in the spool,
 * that is waited for too, STORE_SPOOL_FLUSH_MS from the first time this is asked: a gateway that stays away leaves
 * little behind. Admissions to take back are waited for only while Redis is there: their leases end without that. */
bool store_may_end(store_t *store);

#endif
