/* The store itself: the connection, the subscription and their states. */
#include "records/store_internal.h"

#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/mem.h"

static store_t *checked(void *data)
{
    store_t *store = data;
    if (store->magic != STORE_MAGIC)
        mem_fatal("store: not a store");
    return store;
}

static void tell_state(store_t *store, bool up, const char *reason)
{
    if (store->callbacks.on_state != NULL)
        store->callbacks.on_state(store->callbacks.data, up, reason);
}

/* --- a Redis that answers and takes nothing --- */

static void on_tried(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    store_t *store = checked(data);
    (void)reply, (void)err;
    if (store->closing || !store->refusing)
        return;
    if (status != REDIS_REPLY) {
        loop_timer_start(store->loop, &store->refusing_timer, STORE_REFUSING_MS);
        return;
    }
    store->refusing = false;
    if (store_is_up(store))
        tell_state(store, true, "writes are taken again");
    store_retry_step(store);
}

static void on_refusing_timer(loop_timer_t *timer)
{
    store_t *store = checked(timer->data);
    char key[STORE_CLAIM_KEY_MAX];
    size_t len = store_key(key, &store->root, "stamp", "");
    /* Of length nothing it changes nothing, and is refused wherever a write is. */
    redis_command(store_redis_for(store, "0"), STORE_DEADLINE_MS, on_tried, store, 4,
                  (const char *[]){"SETRANGE", key, "0", ""}, (const size_t[]){8, len, 1, 0});
}

void store_refused(store_t *store, const char *why)
{
    if (store->closing || store->refusing || store_error_of(why) != STORE_ERROR_SERVER)
        return;
    bool was_up = store_is_up(store);
    store->refusing = true;
    loop_timer_start(store->loop, &store->refusing_timer, STORE_REFUSING_MS);
    if (was_up)
        tell_state(store, false, why);
}

/* --- connections --- */

/* The store is up while one of its connections is and Redis takes writes. */
static void on_link_state(void *data, bool up, const char *reason)
{
    store_link_t *link = data;
    store_t *store = checked(link->store);
    bool changed = link->up != up, was_up = store_is_up(store);
    if (store->closing)
        return;
    if (changed) {
        link->up = up;
        store->links_up = up ? store->links_up + 1 : store->links_up - 1;
    }
    if (was_up != store_is_up(store))
        tell_state(store, up, reason);
    else if (!was_up && link == &store->links[0])
        tell_state(store, false, reason); /* still not, and why; the first speaks for all */
    if (up) {
        store->silent = false; /* a new connection is one that was answered on */
        store_retry_step(store);
    }
}

redis_t *store_redis_for(store_t *store, const char *id)
{
    unsigned first = (unsigned char)id[0] % STORE_LINKS;
    for (unsigned i = 0; i != STORE_LINKS; ++i) {
        redis_t *redis = store->links[(first + i) % STORE_LINKS].redis;
        if (redis_is_up(redis))
            return redis;
    }
    return store->links[first].redis;
}

static void on_published(void *data, const char *payload, size_t len)
{
    store_t *store = checked(data);
    char key[STORE_CLAIM_KEY_MAX];
    /* Anybody with the password can publish: only what can be a claim's key goes further. */
    if (len >= sizeof(key) || memchr(payload, '\0', len) != NULL) {
        log_event(LOG_WARN, "store_published_odd", log_uint("bytes", len));
        return;
    }
    memcpy(key, payload, len);
    key[len] = '\0';
    store->callbacks.on_settled(store->callbacks.data, key);
}

store_t *store_create(loop_t *loop, const redis_address_t *address, const store_settings_t *settings,
                      const store_callbacks_t *callbacks)
{
    store_t *store = mem_alloc(sizeof(*store));
    store->magic = STORE_MAGIC;
    store->loop = loop;
    store->callbacks = *callbacks;
    char channel[STORE_CLAIM_KEY_MAX];
    store_key_prefix(settings->installation, channel);
    store->root.len = strlen(channel);
    memcpy(store->root.text, channel, store->root.len + 1);
    store_key(channel, &store->root, "settled", "");
    redis_script_init(&store->admit, "admit", STORE_LUA_ADMIT);
    redis_script_init(&store->settle, "settle", STORE_LUA_SETTLE);
    redis_script_init(&store->runs, "runs", STORE_LUA_RUNS);
    redis_script_init(&store->receipts, "receipts", STORE_LUA_RECEIPTS);
    redis_script_init(&store->receipt, "receipt", STORE_LUA_RECEIPT);
    redis_script_init(&store->usage, "usage", STORE_LUA_USAGE);
    redis_script_init(&store->usage_all, "usage_all", STORE_LUA_USAGE_ALL);
    store->run_ttl_ms = UINT64_C(1000) * (settings->run_ttl_s != 0 ? settings->run_ttl_s : STORE_RUN_TTL_S);
    store->answer_ttl_ms = UINT64_C(1000) * (settings->answer_ttl_s != 0 ? settings->answer_ttl_s : STORE_ANSWER_TTL_S);
    if (store->answer_ttl_ms > store->run_ttl_ms)
        store->answer_ttl_ms = store->run_ttl_ms;
    bool has_max = settings->answer_max != 0 && settings->answer_max < STORE_ANSWER_MAX;
    store->answer_max = has_max ? settings->answer_max : STORE_ANSWER_MAX;
    loop_timer_init(&store->refusing_timer, on_refusing_timer, store);
    store_retry_init(store);
    store_sweep_init(store);
    store_renew_init(store);
    for (size_t i = 0; i != STORE_LINKS; ++i) {
        store->links[i].store = store;
        store->links[i].redis = redis_create(loop, address, on_link_state, &store->links[i]);
    }
    if (callbacks->on_settled != NULL)
        store->subscription = redis_subscribe(loop, address, channel, on_published, NULL, store);
    return store;
}

void store_destroy(store_t *store)
{
    if (store == NULL)
        return;
    checked(store);
    store->closing = true;
    if (store->subscription != NULL)
        redis_unsubscribe(store->subscription);
    loop_timer_stop(&store->refusing_timer);
    for (size_t i = 0; i != STORE_LINKS; ++i)
        redis_destroy(store->links[i].redis);
    store_sweep_dispose(store);
    store_renew_dispose(store);
    store_spool_dispose(store);
    store_retry_dispose(store);
    store->magic = 0;
    free(store);
}

bool store_is_up(const store_t *store)
{
    return store->links_up != 0 && !store->refusing;
}

size_t store_backlog(const store_t *store)
{
    return store->settling - store->spool.ahead;
}

uint64_t store_dropped(const store_t *store)
{
    return store->retry.dropped;
}

const char *store_cap_name(store_cap_t cap)
{
    static const char *const names[CAP_COUNT] = {"none", "slots", "rate", "runs", "seconds", "paid", "cost"};
    if ((unsigned)cap >= CAP_COUNT)
        mem_fatal("store_cap_name: no such cap");
    return names[cap];
}

const char *verdict_name(verdict_t verdict)
{
    switch (verdict) {
    case VERDICT_ANSWERED:
        return "answered";
    case VERDICT_REFUSED:
        return "refused";
    case VERDICT_UNKNOWN:
        return "unknown";
    }
    mem_fatal("verdict_name: no such verdict");
}
