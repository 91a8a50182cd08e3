#include "gateway/local_quota.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/sha256.h"

enum { MINUTE_US = 60 * 1000 * 1000, SLOT_RETRY_MS = 1000 };

/* `at_us` is the generic cell rate algorithm's theoretical arrival time. */
typedef struct {
    uint8_t caller[SHA256_BYTES];
    uint32_t slots;
    uint64_t at_us;
    bool used;
} entry_t;

struct local_quota {
    pthread_mutex_t lock;
    entry_t entries[LOCAL_QUOTA_CALLERS];
};

local_quota_t *local_quota_create(void)
{
    local_quota_t *quota = mem_alloc(sizeof(*quota));
    pthread_mutex_init(&quota->lock, NULL);
    return quota;
}

void local_quota_destroy(local_quota_t *quota)
{
    pthread_mutex_destroy(&quota->lock);
    free(quota);
}

static bool is_idle(const entry_t *e, uint64_t now_us)
{
    return !e->used || (e->slots == 0 && e->at_us <= now_us);
}

/* The caller's entry, or a free one made its own; NULL: neither. A few thousand compares while Redis is away cost less
 * than a table whose places depend on each other. */
static entry_t *find(local_quota_t *quota, const char *caller, uint64_t now_us)
{
    uint8_t digest[SHA256_BYTES];
    entry_t *free_one = NULL;
    sha256_t *s = sha256_begin();
    sha256_add(s, caller, strlen(caller));
    sha256_end(s, digest);
    for (size_t i = 0; i != LOCAL_QUOTA_CALLERS; ++i) {
        entry_t *e = &quota->entries[i];
        if (e->used && memcmp(e->caller, digest, sizeof(digest)) == 0)
            return e;
        if (free_one == NULL && is_idle(e, now_us))
            free_one = e;
    }
    if (free_one != NULL) {
        *free_one = (entry_t){.used = true};
        memcpy(free_one->caller, digest, sizeof(digest));
    }
    return free_one;
}

static uint64_t interval_us(const store_caps_t *caps)
{
    return caps->rate_per_min != 0 ? ((uint64_t)MINUTE_US + caps->rate_per_min - 1) / caps->rate_per_min : 0;
}

/* Takes of one entry, or says what stands against it. */
static local_quota_result_t take(entry_t *e, const store_caps_t *caps, uint64_t now_us, store_admitted_t *out)
{
    uint64_t step = interval_us(caps), burst = caps->burst != 0 ? caps->burst : 1;
    uint64_t at = e->at_us > now_us ? e->at_us : now_us;
    if (caps->slots != 0 && e->slots >= caps->slots) {
        out->cap = CAP_SLOTS;
        out->cap_limit = caps->slots;
        out->cap_used = e->slots;
        out->retry_after_ms = SLOT_RETRY_MS;
        return LOCAL_QUOTA_CAPPED;
    }
    if (step != 0 && at + step > now_us + burst * step) {
        uint64_t wait = at + step - now_us - burst * step;
        out->cap = CAP_RATE;
        out->cap_limit = out->cap_used = burst;
        out->retry_after_ms = (uint32_t)((wait + 999) / 1000);
        out->rate_limit = (uint32_t)burst;
        return LOCAL_QUOTA_CAPPED;
    }
    ++e->slots;
    if (step != 0)
        e->at_us = at + step;
    return LOCAL_QUOTA_TAKEN;
}

local_quota_result_t local_quota_take(local_quota_t *quota, const char *caller, const store_caps_t *caps,
                                      uint64_t now_us, store_admitted_t *out)
{
    *out = (store_admitted_t){.outcome = ADMIT_CAPPED};
    pthread_mutex_lock(&quota->lock);
    entry_t *e = find(quota, caller, now_us);
    local_quota_result_t result = e != NULL ? take(e, caps, now_us, out) : LOCAL_QUOTA_FULL;
    pthread_mutex_unlock(&quota->lock);
    return result;
}

void local_quota_give(local_quota_t *quota, const char *caller, const store_caps_t *caps, bool give_back_rate)
{
    pthread_mutex_lock(&quota->lock);
    entry_t *e = find(quota, caller, UINT64_MAX);
    if (e == NULL || e->slots == 0)
        mem_fatal("a local slot was given back twice");
    --e->slots;
    uint64_t step = interval_us(caps);
    if (give_back_rate && e->at_us >= step)
        e->at_us -= step;
    pthread_mutex_unlock(&quota->lock);
}
