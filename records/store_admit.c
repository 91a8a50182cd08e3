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

uint32_t store_ceil_ms(long long us)
{
    long long ms = us / 1000 + (us % 1000 != 0);
    return ms < 0 ? 0 : ms > UINT32_MAX ? UINT32_MAX : (uint32_t)ms;
}

static void log_corrupt_run_key(const admitting_t *a, const char *name, const char *run_id)
{
    char key[STORE_CLAIM_KEY_MAX];
    store_prefix_t prefix = store_prefix(a->store, a->caller);
    store_key(key, &prefix, name, run_id);
    store_log_corrupt(key);
}

/* The answer and the record of an answered run; each may have ended, or be of a form that is not ours. */
static void read_answered(const admitting_t *a, const redisReply *answer, const redisReply *value,
                          store_admitted_t *out)
{
    store_run_text_t *text = mem_alloc(sizeof(*text));
    if (is_text(value) && store_run_unpack(out->run_id, (const uint8_t *)value->str, value->len, text) == NULL) {
        if (store_is_hex(text->run.record_sha256, STORE_SHA))
            strcpy(out->record_sha256, text->run.record_sha256);
        snprintf(out->backend, sizeof(out->backend), "%s", text->run.backend);
        out->spent = text->run.spent;
        out->has_spent = true;
        out->is_cost_known = text->run.is_cost_known;
    } else if (value->type != REDIS_REPLY_NIL) {
        log_corrupt_run_key(a, "run:", out->run_id);
    }
    free(text);
    out->outcome = is_text(answer) ? ADMIT_ANSWERED : ADMIT_ANSWER_GONE;
    if (is_text(answer)) {
        out->answer = (const uint8_t *)answer->str;
        out->answer_len = answer->len;
    } else if (answer->type != REDIS_REPLY_NIL) {
        log_corrupt_run_key(a, "answer:", out->run_id);
    }
}

/* It was written and cannot be read: whether the run happened is not known. */
static void read_corrupt_claim(const admitting_t *a, store_admitted_t *out)
{
    char key[STORE_CLAIM_KEY_MAX];
    store_claim_key(a->store, a->caller, a->request_id, key);
    store_log_corrupt(key);
    out->outcome = ADMIT_OUTCOME_UNKNOWN;
    strcpy(out->unknown_code, "unavailable");
}

static void read_unknown(const admitting_t *a, const redisReply *code, store_admitted_t *out)
{
    if (!store_is_word(code->str, code->len, STORE_CODE_MAX)) {
        read_corrupt_claim(a, out);
        return;
    }
    out->outcome = ADMIT_OUTCOME_UNKNOWN;
    memcpy(out->unknown_code, code->str, code->len);
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

/* What follows the numbers: t a text, v a text or nil or 0, i a number. */
static const char *rest_expected(long long status)
{
    switch (status) {
    case ADMIT_JOIN:
    case STORE_STATUS_KEY_CORRUPT:
        return "t";
    case ADMIT_ANSWERED:
        return "tvv";
    case ADMIT_OUTCOME_UNKNOWN:
        return "tt";
    case ADMIT_CAPPED:
        return "iiii";
    default:
        return "";
    }
}

static bool has_rest(const redisReply *reply, const char *rest)
{
    if (reply->elements != 5 + strlen(rest))
        return false;
    for (size_t i = 0; rest[i] != '\0'; ++i) {
        const redisReply *r = reply->element[5 + i];
        bool is_number = r->type == REDIS_REPLY_INTEGER && r->integer >= 0;
        if (rest[i] == 't'   ? !is_text(r)
            : rest[i] == 'i' ? !is_number
                             : !is_text(r) && !is_number && r->type != REDIS_REPLY_NIL)
            return false;
    }
    return true;
}

static bool read_run_id(const redisReply *r, store_admitted_t *out)
{
    if (r->len != STORE_ID / 2)
        return false;
    store_hex_of((const uint8_t *)r->str, STORE_ID / 2, out->run_id);
    return true;
}

static bool read_capped(const redisReply *reply, store_admitted_t *out)
{
    long long cap = reply->element[5]->integer;
    if (cap <= CAP_NONE || cap >= CAP_COUNT)
        return false;
    out->outcome = ADMIT_CAPPED;
    out->cap = (store_cap_t)cap;
    out->is_total = reply->element[6]->integer != 0;
    out->cap_limit = (uint64_t)reply->element[7]->integer;
    out->cap_used = (uint64_t)reply->element[8]->integer;
    out->retry_after_ms = cap == CAP_SLOTS ? STORE_SLOT_RETRY_MS : store_ceil_ms(reply->element[3]->integer);
    return true;
}

/* false: not an answer of this script. */
static bool read_reply(const admitting_t *a, const redisReply *reply, store_admitted_t *out)
{
    if (!has_numbers(reply))
        return false;
    long long status = reply->element[0]->integer;
    if (!has_rest(reply, rest_expected(status)))
        return false;
    out->rate_limit = a->burst;
    out->rate_remaining = (uint32_t)reply->element[1]->integer;
    out->rate_reset_ms = store_ceil_ms(reply->element[2]->integer);
    out->slots_in_use = (uint32_t)reply->element[4]->integer;
    switch (status) {
    case ADMIT_OK:
    case ADMIT_CONFLICT:
    case ADMIT_NO_PLACE:
        out->outcome = (admit_outcome_t)status;
        return true;
    case ADMIT_JOIN:
        out->outcome = ADMIT_JOIN;
        return read_run_id(reply->element[5], out);
    case ADMIT_ANSWERED:
        if (!read_run_id(reply->element[5], out))
            return false;
        read_answered(a, reply->element[6], reply->element[7], out);
        return true;
    case ADMIT_OUTCOME_UNKNOWN:
        if (!read_run_id(reply->element[5], out))
            return false;
        read_unknown(a, reply->element[6], out);
        return true;
    case ADMIT_CAPPED:
        return read_capped(reply, out);
    case STORE_STATUS_WITHDRAWN:
        out->outcome = ADMIT_NO_STORE;
        return true;
    case STORE_STATUS_CLAIM_CORRUPT:
        read_corrupt_claim(a, out);
        return true;
    case STORE_STATUS_KEY_CORRUPT:
        log_event(LOG_ERROR, "store_key_corrupt", log_strn("key", reply->element[5]->str, reply->element[5]->len));
        out->outcome = ADMIT_NO_STORE;
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
        if (a->takes)
            store_refused(a->store, err);
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

/* Rounded up, so the rate is never above the limit; cut so that the script's numbers stay exact. */
store_pace_t store_pace(uint32_t rate_per_min, uint32_t burst)
{
    if (rate_per_min == 0)
        return (store_pace_t){0, 0};
    int64_t interval = (INT64_C(60000000) + rate_per_min - 1) / rate_per_min,
            most = STORE_RATE_WINDOW_MAX_US / interval;
    if (burst == 0)
        burst = 1;
    return (store_pace_t){interval, burst < most ? burst : (uint32_t)most};
}

static bool has_day_caps(const store_caps_t *caps)
{
    return caps->per_day.seconds_ms != 0 || caps->per_day.paid_ms != 0 || caps->per_day.cost_micro != 0;
}

/* More than the caller's own slots and rate: a run without pays nothing for it. */
static bool heeds_more(const store_admission_t *admission)
{
    const store_caps_t *own = &admission->caps, *total = &admission->total_caps;
    bool windows = admission->window_s != 0 && (own->runs_per_window != 0 || total->runs_per_window != 0);
    return total->slots != 0 || total->rate_per_min != 0 || windows || has_day_caps(own) || has_day_caps(total) ||
           admission->hold.paid_ms != 0 || admission->hold.cost_micro != 0;
}

typedef struct {
    store_argv_t args;
    char keys[3][STORE_CLAIM_KEY_MAX], numbers[STORE_ARGS_MAX][STORE_NUMBER_MAX];
    uint8_t ids[STORE_SHA / 2 + STORE_ID / 2];
    char tag[STORE_ID + 1];
    char mode[1 + STORE_STRING_MAX]; /* and the caller */
} admit_args_t;

static void add_number(admit_args_t *m, uint64_t number)
{
    store_argv_add_number(&m->args, m->numbers[m->args.argc], number);
}

static void add_pace(admit_args_t *m, store_pace_t pace)
{
    uint64_t window_us = (uint64_t)pace.interval_us * pace.burst;
    add_number(m, (uint64_t)pace.interval_us);
    add_number(m, window_us);
    add_number(m, (window_us + 999) / 1000);
}

static void add_amounts(admit_args_t *m, const store_amounts_t *amounts)
{
    add_number(m, store_amount(amounts->seconds_ms));
    add_number(m, store_amount(amounts->paid_ms));
    add_number(m, store_amount(amounts->cost_micro));
}

static void add_more(const admitting_t *a, admit_args_t *m, const store_admission_t *admission, uint32_t life_ms,
                     const store_prefix_t *prefix)
{
    store_argv_add(&m->args, a->store->root.text, a->store->root.len);
    add_number(m, admission->total_caps.slots);
    add_pace(m, store_pace(admission->total_caps.rate_per_min, admission->total_caps.burst));
    add_number(m, admission->window_s);
    add_number(m, admission->caps.runs_per_window);
    add_number(m, admission->total_caps.runs_per_window);
    add_amounts(m, &admission->caps.per_day);
    add_amounts(m, &admission->total_caps.per_day);
    add_amounts(m, &admission->hold);
    add_number(m, admission->hold_ms > life_ms ? admission->hold_ms : life_ms);
    memcpy(m->tag, prefix->text + a->store->root.len, STORE_ID);
    store_argv_add(&m->args, m->tag, STORE_ID);
    store_argv_add(&m->args, a->caller, strlen(a->caller));
}

/* `admission` NULL: only looks. */
static void admitting_send(admitting_t *a, char mode, const store_admission_t *admission)
{
    static const store_admission_t looks = {.lease_ms = 0};
    const store_admission_t *of = admission != NULL ? admission : &looks;
    store_t *store = a->store;
    store_prefix_t prefix = store_prefix(store, a->caller);
    bool keyed = a->request_id[0] != '\0';
    uint32_t lease_ms = of->lease_ms < STORE_LEASE_MAX_MS ? of->lease_ms : STORE_LEASE_MAX_MS;
    uint32_t longest_ms = of->life_ms > lease_ms ? of->life_ms : lease_ms;
    uint32_t life_ms = longest_ms < STORE_LEASE_MAX_MS ? longest_ms : STORE_LEASE_MAX_MS;
    store_pace_t pace = store_pace(of->caps.rate_per_min, of->caps.burst);
    admit_args_t m = {.args = {.argc = 0}};
    store_argv_add(&m.args, m.keys[0], store_key(m.keys[0], &prefix, "slots", ""));
    store_argv_add(&m.args, m.keys[1], store_key(m.keys[1], &prefix, "rate", ""));
    store_argv_add(&m.args, m.keys[2],
                   store_key(m.keys[2], &prefix, keyed ? "claim:" : "run:", keyed ? a->request_id : a->run_id));
    m.args.nkeys = m.args.argc;
    m.mode[0] = mode;
    size_t caller_len = strnlen(a->caller, sizeof(m.mode) - 1);
    memcpy(m.mode + 1, a->caller, caller_len);
    store_argv_add(&m.args, m.mode, 1 + caller_len);
    store_raw_of(a->request_sha256, STORE_SHA / 2, m.ids);
    store_raw_of(a->run_id, STORE_ID / 2, m.ids + STORE_SHA / 2);
    store_argv_add(&m.args, (const char *)m.ids, sizeof(m.ids));
    store_argv_add(&m.args, a->run_id, STORE_ID);
    add_number(&m, lease_ms);
    add_number(&m, store->run_ttl_ms + life_ms);
    add_number(&m, of->caps.slots);
    add_pace(&m, pace);
    if (heeds_more(of))
        add_more(a, &m, of, life_ms, &prefix);
    a->burst = pace.burst;
    redis_eval(store_redis_for(store, a->takes ? a->run_id : a->request_id), &store->admit, STORE_DEADLINE_MS, on_reply,
               a, m.args.nkeys, m.args.argc, m.args.base, m.args.len);
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
    a->takes = true;
    if (admission->request_id != NULL)
        admitting_send(a, admission->has_place ? 'p' : 'n', admission);
    else
        admitting_send(a, admission->has_place ? 'u' : 'v', admission);
}

static const char NO_RUN[] = "00000000000000000000000000000000";

void store_claim_look(store_t *store, const char *caller, const char *request_id, const char *request_sha256,
                      store_admitted_cb cb, void *data)
{
    admitting_t *a = admitting_create(store, caller, request_id, request_sha256, NO_RUN, cb, data);
    if (a != NULL)
        admitting_send(a, 'l', NULL);
}

void store_claim_find(store_t *store, const char *caller, const char *request_id, store_admitted_cb cb, void *data)
{
    static const char any[] = "0000000000000000000000000000000000000000000000000000000000000000";
    admitting_t *a = admitting_create(store, caller, request_id, any, NO_RUN, cb, data);
    if (a != NULL)
        admitting_send(a, 'f', NULL);
}
