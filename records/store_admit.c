/* Admission: one script looks at the claim, the slots and the rate, and takes all of them or none. Looking at a claim
 * is the same script in a mode that takes nothing. */
#include "records/store_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"

enum { ADMITTING_MAGIC = 0x7374616d };

typedef struct {
    uint32_t magic;
    store_t *store;
    store_admitted_cb cb;
    void *data;
    loop_task_t task; /* an answer without Redis */
    bool takes;       /* false: looks only */
    uint32_t burst;   /* as used; 0 = no rate limit */
    char *caller;
    char request_id[STORE_ID + 1]; /* "" = unkeyed */
    char request_sha256[STORE_SHA + 1];
    char run_id[STORE_ID + 1];
} admitting_t;

_Static_assert(ADMIT_OK == 0 && ADMIT_JOIN == 1 && ADMIT_ANSWERED == 2 && ADMIT_ANSWER_GONE == 3 &&
                   ADMIT_OUTCOME_UNKNOWN == 4 && ADMIT_CONFLICT == 5 && ADMIT_NO_PLACE == 6 && ADMIT_CAPPED == 7,
               "the script answers these numbers");

static admitting_t *admitting_checked(void *data)
{
    admitting_t *a = data;
    if (a->magic != ADMITTING_MAGIC)
        mem_fatal("store: not an admission");
    return a;
}

static void finish(admitting_t *a, const store_admitted_t *admitted)
{
    store_admitted_cb cb = a->cb;
    void *data = a->data;
    a->magic = 0;
    free(a->caller);
    free(a);
    cb(data, admitted);
}

static void on_unsent(loop_task_t *task)
{
    finish(admitting_checked(task->data), &(store_admitted_t){.outcome = ADMIT_NO_STORE});
}

static void finish_later(admitting_t *a)
{
    loop_task_init(&a->task, on_unsent, a);
    loop_defer(a->store->loop, &a->task);
}

/* Nobody knows whether Redis wrote the claim, the slot and the rate: the run is refused, so all of it is taken back. */
static void finish_unknown(admitting_t *a)
{
    if (!a->takes) {
        finish(a, &(store_admitted_t){.outcome = ADMIT_NO_STORE});
        return;
    }
    if (!a->store->closing) {
        int64_t now = clock_wall_ms();
        store_withdraw(a->store, &(store_settlement_t){
                                     .caller = a->caller,
                                     .request_id = a->request_id[0] != '\0' ? a->request_id : NULL,
                                     .run_id = a->run_id,
                                     .verdict = VERDICT_REFUSED,
                                     .give_back_rate = true,
                                     .request_sha256 = a->request_sha256,
                                     .started_unix_ms = now,
                                     .ended_unix_ms = now,
                                     .reason = "capacity",
                                 });
    }
    finish(a, &(store_admitted_t){.outcome = ADMIT_STORE_UNKNOWN});
}

static bool is_text(const redisReply *r)
{
    return r->type == REDIS_REPLY_STRING;
}

/* us of Redis time as whole ms, rounded up: waiting that long is always enough. */
static uint32_t ceil_ms(long long us)
{
    long long ms = us / 1000 + (us % 1000 != 0);
    return ms > UINT32_MAX ? UINT32_MAX : (uint32_t)ms;
}

/* "record digest '.' backend ':' answer" */
static bool read_answered(const char *base, size_t len, store_admitted_t *out)
{
    const char *dot = memchr(base, '.', len < STORE_SHA + 1 ? len : STORE_SHA + 1);
    if (dot == NULL || (dot != base && !store_is_hexn(base, (size_t)(dot - base), STORE_SHA)))
        return false;
    const char *backend = dot + 1, *end = base + len;
    size_t most = (size_t)(end - backend) < STORE_BACKEND_MAX + 1 ? (size_t)(end - backend) : STORE_BACKEND_MAX + 1;
    const char *colon = memchr(backend, ':', most);
    if (colon == NULL || (colon != backend && !store_is_word(backend, (size_t)(colon - backend), STORE_BACKEND_MAX)))
        return false;
    memcpy(out->record_sha256, base, (size_t)(dot - base));
    memcpy(out->backend, backend, (size_t)(colon - backend));
    if (out->outcome == ADMIT_ANSWER_GONE)
        return colon + 1 == end;
    out->answer = (const uint8_t *)colon + 1;
    out->answer_len = (size_t)(end - colon - 1);
    return true;
}

static bool read_rest(const redisReply *rest, store_admitted_t *out)
{
    if (out->outcome != ADMIT_OUTCOME_UNKNOWN)
        return read_answered(rest->str, rest->len, out);
    if (!store_is_word(rest->str, rest->len, STORE_CODE_MAX))
        return false;
    memcpy(out->unknown_code, rest->str, rest->len);
    return true;
}

/* It was written and cannot be read: whether the run happened is not known. */
static void read_corrupt_claim(const admitting_t *a, store_admitted_t *out)
{
    char key[STORE_CLAIM_KEY_MAX];
    store_claim_key(a->store, a->caller, a->request_id, key);
    store_log_corrupt(key);
    out->outcome = ADMIT_OUTCOME_UNKNOWN;
    out->answer = NULL;
    out->answer_len = 0;
    out->backend[0] = out->record_sha256[0] = '\0';
    strcpy(out->unknown_code, "unavailable");
}

static void read_corrupt_count(const admitting_t *a, const char *name, store_admitted_t *out)
{
    char key[STORE_CLAIM_KEY_MAX];
    store_prefix_t prefix = store_prefix(a->store, a->caller);
    store_key(key, &prefix, name, "");
    store_log_corrupt(key);
    out->outcome = ADMIT_NO_STORE;
}

static bool has_numbers(const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 5)
        return false;
    for (size_t i = 0; i != 5; ++i) {
        if (reply->element[i]->type != REDIS_REPLY_INTEGER || reply->element[i]->integer < 0)
            return false;
    }
    return reply->element[1]->integer <= UINT32_MAX && reply->element[4]->integer <= UINT32_MAX;
}

static size_t texts_expected(long long status)
{
    switch (status) {
    case ADMIT_JOIN:
        return 1;
    case ADMIT_ANSWERED:
    case ADMIT_ANSWER_GONE:
    case ADMIT_OUTCOME_UNKNOWN:
        return 2;
    default:
        return 0;
    }
}

/* false: not an answer of this script. */
static bool read_reply(const admitting_t *a, const redisReply *reply, store_admitted_t *out)
{
    if (!has_numbers(reply))
        return false;
    long long status = reply->element[0]->integer;
    size_t texts = texts_expected(status);
    if (reply->elements != 5 + texts || (texts > 0 && !is_text(reply->element[5])) ||
        (texts > 1 && !is_text(reply->element[6])))
        return false;
    out->rate_limit = a->burst;
    out->rate_remaining = (uint32_t)reply->element[1]->integer;
    out->rate_reset_ms = ceil_ms(reply->element[2]->integer);
    out->slots_in_use = (uint32_t)reply->element[4]->integer;
    if (texts > 0) {
        const redisReply *run = reply->element[5];
        if (!store_is_hexn(run->str, run->len, STORE_ID))
            return false;
        memcpy(out->run_id, run->str, STORE_ID);
    }
    switch (status) {
    case ADMIT_OK:
    case ADMIT_JOIN:
    case ADMIT_CONFLICT:
    case ADMIT_NO_PLACE:
        out->outcome = (admit_outcome_t)status;
        return true;
    case ADMIT_ANSWERED:
    case ADMIT_ANSWER_GONE:
    case ADMIT_OUTCOME_UNKNOWN:
        out->outcome = (admit_outcome_t)status;
        if (!read_rest(reply->element[6], out))
            read_corrupt_claim(a, out);
        return true;
    case ADMIT_CAPPED:
        out->outcome = ADMIT_CAPPED;
        out->cap = CAP_SLOTS;
        out->retry_after_ms = STORE_SLOT_RETRY_MS;
        return true;
    case STORE_STATUS_NO_RATE:
        out->outcome = ADMIT_CAPPED;
        out->cap = CAP_RATE;
        out->retry_after_ms = ceil_ms(reply->element[3]->integer);
        return true;
    case STORE_STATUS_WITHDRAWN:
        out->outcome = ADMIT_NO_STORE;
        return true;
    case STORE_STATUS_CLAIM_CORRUPT:
        read_corrupt_claim(a, out);
        return true;
    case STORE_STATUS_SLOTS_CORRUPT:
        read_corrupt_count(a, "slots", out);
        return true;
    case STORE_STATUS_RATE_CORRUPT:
        read_corrupt_count(a, "rate", out);
        return true;
    default:
        return false;
    }
}

static void on_reply(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    admitting_t *a = admitting_checked(data);
    store_admitted_t admitted = {.outcome = ADMIT_NO_STORE};
    if (status == REDIS_REPLY || status == REDIS_REFUSED)
        a->store->silent = false;
    switch (status) {
    case REDIS_REPLY:
        if (read_reply(a, reply, &admitted)) {
            finish(a, &admitted);
        } else {
            log_event(LOG_ERROR, "store_reply_malformed", log_str("script", "admit"));
            finish_unknown(a);
        }
        return;
    case REDIS_REFUSED:
        log_event(LOG_WARN, "store_admit_failed", log_str("reason", err));
        finish(a, &admitted);
        return;
    case REDIS_UNKNOWN:
        if (a->takes)
            a->store->silent = true;
        finish_unknown(a);
        return;
    case REDIS_NOT_SENT:
        finish(a, &admitted);
        return;
    }
    mem_fatal("store: no such status");
}

typedef struct {
    int64_t interval_us; /* between two runs at the rate; 0 = no limit */
    uint32_t burst;
} pace_t;

/* Rounded up, so the rate is never above the limit; cut so that the script's numbers stay exact. */
static pace_t pace_of(uint32_t rate_per_min, uint32_t burst)
{
    if (rate_per_min == 0)
        return (pace_t){0, 0};
    int64_t interval = (INT64_C(60000000) + rate_per_min - 1) / rate_per_min,
            most = STORE_RATE_WINDOW_MAX_US / interval;
    if (burst == 0)
        burst = 1;
    return (pace_t){interval, burst < most ? burst : (uint32_t)most};
}

static void admitting_send(admitting_t *a, char mode, uint32_t lease_ms, uint32_t slots, pace_t pace)
{
    store_prefix_t prefix = store_prefix(a->store, a->caller);
    char keys[3][STORE_CLAIM_KEY_MAX], lease[16], claim_ttl[24], cap[16], interval[24], window[24], window_ms[24];
    store_argv_t args = {.argc = 0};
    store_argv_add(&args, keys[0], store_key(keys[0], &prefix, "slots", ""));
    store_argv_add(&args, keys[1], store_key(keys[1], &prefix, "rate", ""));
    if (a->request_id[0] != '\0')
        store_argv_add(&args, keys[2], store_key(keys[2], &prefix, "claim:", a->request_id));
    args.nkeys = args.argc;
    if (lease_ms > STORE_LEASE_MAX_MS)
        lease_ms = STORE_LEASE_MAX_MS;
    int64_t window_us = pace.interval_us * pace.burst;
    store_argv_add(&args, &mode, 1);
    store_argv_add(&args, a->request_sha256, STORE_SHA);
    store_argv_add(&args, a->run_id, STORE_ID);
    store_argv_add(&args, lease, (size_t)sprintf(lease, "%" PRIu32, lease_ms));
    store_argv_add(&args, claim_ttl,
                   (size_t)sprintf(claim_ttl, "%" PRId64, INT64_C(1000) * STORE_CLAIM_TTL_S + lease_ms));
    store_argv_add(&args, cap, (size_t)sprintf(cap, "%" PRIu32, slots));
    store_argv_add(&args, interval, (size_t)sprintf(interval, "%" PRId64, pace.interval_us));
    store_argv_add(&args, window, (size_t)sprintf(window, "%" PRId64, window_us));
    store_argv_add(&args, window_ms, (size_t)sprintf(window_ms, "%" PRId64, (window_us + 999) / 1000));
    redis_eval(store_redis_for(a->store, a->takes ? a->run_id : a->request_id), &a->store->admit, STORE_DEADLINE_MS,
               on_reply, a, args.nkeys, args.argc, args.base, args.len);
}

/* NULL for an id or digest that is none: refused without asking, as it could name another's key. */
static admitting_t *admitting_create(store_t *store, const char *caller, const char *request_id,
                                     const char *request_sha256, const char *run_id, store_admitted_cb cb, void *data)
{
    admitting_t *a = mem_alloc(sizeof(*a));
    a->magic = ADMITTING_MAGIC;
    a->store = store;
    a->cb = cb;
    a->data = data;
    a->caller = mem_strdup(caller);
    bool ok = (request_id == NULL || store_is_hex(request_id, STORE_ID)) && store_is_hex(request_sha256, STORE_SHA) &&
              store_is_hex(run_id, STORE_ID);
    if (!ok) {
        log_event(LOG_ERROR, "store_admission_malformed", log_str("request_id", request_id), log_str("run_id", run_id));
        finish_later(a);
        return NULL;
    }
    if (request_id != NULL)
        strcpy(a->request_id, request_id);
    strcpy(a->request_sha256, request_sha256);
    strcpy(a->run_id, run_id);
    return a;
}

void store_admit(store_t *store, const store_admission_t *admission, store_admitted_cb cb, void *data)
{
    admitting_t *a = admitting_create(store, admission->caller, admission->request_id, admission->request_sha256,
                                      admission->run_id, cb, data);
    if (a == NULL)
        return;
    if (store->silent && store->retry.count != 0) {
        finish_later(a);
        return;
    }
    pace_t pace = pace_of(admission->caps.rate_per_min, admission->caps.burst);
    a->takes = true;
    a->burst = pace.burst;
    admitting_send(a, admission->has_place ? 'p' : 'n', admission->lease_ms, admission->caps.slots, pace);
}

void store_claim_look(store_t *store, const char *caller, const char *request_id, const char *request_sha256,
                      store_admitted_cb cb, void *data)
{
    static const char no_run[] = "00000000000000000000000000000000";
    admitting_t *a = admitting_create(store, caller, request_id, request_sha256, no_run, cb, data);
    if (a != NULL)
        admitting_send(a, 'l', 0, 0, (pace_t){0, 0});
}

void store_claim_find(store_t *store, const char *caller, const char *request_id, store_admitted_cb cb, void *data)
{
    static const char no_run[] = "00000000000000000000000000000000",
                      any[] = "0000000000000000000000000000000000000000000000000000000000000000";
    admitting_t *a = admitting_create(store, caller, request_id, any, no_run, cb, data);
    if (a != NULL)
        admitting_send(a, 'f', 0, 0, (pace_t){0, 0});
}
