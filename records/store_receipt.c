/* Receipts of runs that were refused before any claim was taken: a list of the newest for each caller. */
#include "records/store_internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"

/* Shared by the process' stores: whole seconds in the upper half, receipts of that second in the lower. */
static _Atomic uint64_t spent;

static bool may_send(void)
{
    uint64_t second = clock_mono_ms() / 1000 & UINT32_MAX, seen = atomic_load_explicit(&spent, memory_order_relaxed),
             next;
    do {
        uint32_t count = seen >> 32 == second ? (uint32_t)seen : 0;
        if (count >= STORE_RECEIPTS_PER_S)
            return false;
        next = second << 32 | (count + 1);
    } while (!atomic_compare_exchange_weak_explicit(&spent, &seen, next, memory_order_relaxed, memory_order_relaxed));
    return true;
}

static void on_reply(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    store_t *store = data;
    bool is_corrupt = status == REDIS_REPLY && reply->type == REDIS_REPLY_STRING;
    if ((status == REDIS_REPLY && !is_corrupt) || store->closing)
        return;
    ++store->receipts_dropped;
    if (is_corrupt)
        log_event(LOG_ERROR, "store_key_corrupt", log_strn("key", reply->str, reply->len));
    if (status == REDIS_REFUSED)
        log_event(LOG_WARN, "store_receipt_failed", log_str("reason", err));
}

void store_receipt(store_t *store, const store_settlement_t *refusal)
{
    if (refusal->verdict != VERDICT_REFUSED || !store_is_hex(refusal->run_id, STORE_ID) || store->silent ||
        !may_send()) {
        ++store->receipts_dropped;
        return;
    }
    store_prefix_t prefix = store_prefix(store, refusal->caller);
    char key[STORE_CLAIM_KEY_MAX], ttl[STORE_NUMBER_MAX];
    uint8_t *run;
    size_t len;
    store_run_pack(refusal, &run, &len);
    uint8_t *value = mem_alloc(STORE_ID / 2 + len);
    store_raw_of(refusal->run_id, STORE_ID / 2, value);
    memcpy(value + STORE_ID / 2, run, len);
    store_argv_t args = {.argc = 0};
    store_argv_add(&args, key, store_key(key, &prefix, "receipts", ""));
    args.nkeys = args.argc;
    store_argv_add(&args, (const char *)value, STORE_ID / 2 + len);
    store_argv_add_number(&args, ttl, store->run_ttl_ms);
    redis_eval(store_redis_for(store, prefix.text + store->root.len), &store->receipt, STORE_DEADLINE_MS, on_reply,
               store, args.nkeys, args.argc, args.base, args.len);
    free(value);
    free(run);
}

uint64_t store_receipts_dropped(const store_t *store)
{
    return store->receipts_dropped;
}
