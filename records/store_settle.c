/* Settling: one script gives the slot back, ends the claim and writes the record, all or nothing, and may be repeated.
 */
#include "records/store_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"

enum {
    SETTLING_MAGIC = 0x73746c67,
    CLAIM_VALUE_MAX = STORE_CLAIM_HEAD + STORE_CODE_MAX,
};

/* Where the script has its keys; the claim and the answer of an unkeyed run are left out. */
enum { KEY_SLOTS, KEY_RUN, KEY_RUNS, KEY_CLAIM, KEY_ANSWER, KEYS };

static store_settling_t *settling_checked(void *data)
{
    store_settling_t *s = data;
    if (s->magic != SETTLING_MAGIC)
        mem_fatal("store: not a settlement");
    return s;
}

/* Copies everything; the answer, if there is one, becomes the last argument. */
static store_settling_t *settling_create(store_t *store, const store_argv_t *args, const uint8_t *answer,
                                         size_t answer_len)
{
    store_settling_t *s = mem_alloc(sizeof(*s));
    s->magic = SETTLING_MAGIC;
    s->store = store;
    s->nkeys = args->nkeys;
    s->argc = args->argc;
    s->answer_len = answer_len;
    size_t total = answer_len, at = 0;
    for (int i = 0; i != args->argc; ++i)
        total += args->len[i];
    s->block = mem_alloc(total != 0 ? total : 1);
    s->size = sizeof(*s) + total;
    for (int i = 0; i != args->argc; ++i) {
        s->at[i] = at;
        s->len[i] = args->len[i];
        memcpy(s->block + at, args->base[i], args->len[i]);
        at += args->len[i];
    }
    if (answer_len != 0) {
        s->at[s->argc] = at;
        s->len[s->argc++] = answer_len;
        memcpy(s->block + at, answer, answer_len);
    }
    ++store->settling;
    return s;
}

void store_settling_free(store_settling_t *s)
{
    --s->store->settling;
    store_spooled_dispose(s);
    s->magic = 0;
    free(s->block);
    free(s);
}

void store_settling_drop_answer(store_settling_t *s)
{
    if (s->answer_len == 0)
        return;
    --s->argc;
    s->size -= s->answer_len;
    s->answer_len = 0;
    s->block = mem_realloc(s->block, s->at[s->argc]);
}

const char *store_settling_answer(const store_settling_t *s)
{
    return s->answer_len != 0 ? s->block + s->at[s->argc - 1] : s->block;
}

/* `key` is one of the settlement's, and the name follows what it has in common with the others of its scope. */
static void log_bad_key(const store_settling_t *s, int key, size_t less, const char *name)
{
    char text[STORE_CLAIM_KEY_MAX];
    snprintf(text, sizeof(text), "%.*s%s", (int)(s->len[key] - less), s->block + s->at[key], name);
    store_log_corrupt(text);
}

static void log_bad_keys(const store_settling_t *s, long long bad)
{
    size_t slots = strlen("slots"), root = s->len[KEY_SLOTS] - s->store->root.len;
    if ((bad & STORE_BAD_CLAIM) != 0 && KEY_CLAIM < s->nkeys)
        log_bad_key(s, KEY_CLAIM, 0, "");
    if ((bad & STORE_BAD_SLOTS) != 0)
        log_bad_key(s, KEY_SLOTS, 0, "");
    if ((bad & STORE_BAD_RATE) != 0)
        log_bad_key(s, KEY_SLOTS, slots, "rate");
    if ((bad & STORE_BAD_RUNS) != 0)
        log_bad_key(s, KEY_RUNS, 0, "");
    if ((bad & STORE_BAD_RUN) != 0)
        log_bad_key(s, KEY_RUN, 0, "");
    if ((bad & STORE_BAD_LOG) != 0)
        log_bad_key(s, KEY_SLOTS, root, "log");
    if ((bad & STORE_BAD_TOTAL_RATE) != 0)
        log_bad_key(s, KEY_SLOTS, root, "rate");
    if ((bad & STORE_BAD_BILL) != 0) {
        log_bad_key(s, KEY_SLOTS, slots, "{day:*,holds}"); /* one of these */
        log_bad_key(s, KEY_SLOTS, root, "{day:*,holds,held}");
    }
}

static bool is_settle_reply(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_INTEGER && reply->integer >= 0 && reply->integer <= STORE_BAD_ALL;
}

static void on_reply(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    store_settling_t *s = settling_checked(data);
    store_t *store = s->store;
    store_settled_cb cb = s->cb;
    void *cb_data = s->data;
    bool listed = s->listed, answered = status == REDIS_REPLY || status == REDIS_REFUSED;
    bool taken = status == REDIS_REPLY && is_settle_reply(reply);
    s->in_flight = false;
    if (answered)
        store->silent = false;
    else if (status == REDIS_UNKNOWN)
        store->silent = true;
    if (answered && !taken)
        log_event(LOG_WARN, "store_settle_failed",
                  log_str("reason", status == REDIS_REFUSED ? err : "malformed reply"));
    if (taken)
        log_bad_keys(s, reply->integer);
    if (!taken && !listed) {
        store_spool_keep(s); /* with its callback */
        return;
    }
    if (status == REDIS_REFUSED && listed)
        store_spool_refused(s, err);
    s->cb = NULL;
    if (taken && listed)
        store_retry_taken(store, s);
    else if (taken)
        store_settling_free(s);
    else
        store_retry_failed(store, s, answered);
    if (cb != NULL)
        cb(cb_data, taken);
}

void store_settling_send(store_settling_t *s, redis_t *redis, uint32_t deadline_ms)
{
    const char *argv[STORE_ARGS_MAX];
    for (int i = 0; i != s->argc; ++i)
        argv[i] = s->block + s->at[i];
    /* By the clock that wrote the end, so no difference between clocks is in it: days are those of Redis' clock. */
    int64_t age = clock_wall_ms() - s->ended_unix_ms, most = INT64_C(86400000) * (STORE_DAYS_KEPT - 1);
    argv[s->age_at] = s->age;
    s->len[s->age_at] = (size_t)sprintf(s->age, "%" PRId64, age < 0 ? 0 : age > most ? most : age);
    s->in_flight = true;
    redis_eval(redis, &s->store->settle, deadline_ms, on_reply, s, s->nkeys, s->argc, argv, s->len);
}

/* The new value of the claim. Returns its length. */
static size_t claim_value(const store_settlement_t *settlement, char state, uint8_t out[CLAIM_VALUE_MAX])
{
    const char *code = settlement->unknown_code != NULL ? settlement->unknown_code : "";
    size_t code_len = state == 'U' ? strnlen(code, STORE_CODE_MAX + 1) : 0;
    if (state == 'U' && !store_is_word(code, code_len, STORE_CODE_MAX)) {
        code = "unknown";
        code_len = strlen(code);
    }
    out[0] = (uint8_t)state;
    /* A run whose digest nobody knows still uses its id up: no request has this digest. */
    memset(out + 1, 0, STORE_SHA / 2);
    if (store_is_hex(settlement->request_sha256, STORE_SHA))
        store_raw_of(settlement->request_sha256, STORE_SHA / 2, out + 1);
    store_raw_of(settlement->run_id, STORE_ID / 2, out + 1 + STORE_SHA / 2);
    memcpy(out + STORE_CLAIM_HEAD, code, code_len);
    return STORE_CLAIM_HEAD + code_len;
}

static bool is_kept(const store_t *store, const store_settlement_t *settlement)
{
    return settlement->verdict == VERDICT_ANSWERED && settlement->request_id != NULL && settlement->answer != NULL &&
           settlement->answer_len <= store->answer_max;
}

/* `state` is what becomes of the claim: A, U, W, or R for "it goes". */
static store_settling_t *settling_build(store_t *store, const store_settlement_t *settlement, char state)
{
    store_prefix_t prefix = store_prefix(store, settlement->caller);
    char keys[KEYS][STORE_CLAIM_KEY_MAX], numbers[6][STORE_NUMBER_MAX];
    uint8_t value[CLAIM_VALUE_MAX], leaf[STORE_SHA / 2];
    store_argv_t args = {.argc = 0};
    store_argv_add(&args, keys[KEY_SLOTS], store_key(keys[KEY_SLOTS], &prefix, "slots", ""));
    store_argv_add(&args, keys[KEY_RUN], store_key(keys[KEY_RUN], &prefix, "run:", settlement->run_id));
    store_argv_add(&args, keys[KEY_RUNS], store_key(keys[KEY_RUNS], &prefix, "runs", ""));
    if (settlement->request_id != NULL) {
        store_argv_add(&args, keys[KEY_CLAIM], store_key(keys[KEY_CLAIM], &prefix, "claim:", settlement->request_id));
        store_argv_add(&args, keys[KEY_ANSWER], store_key(keys[KEY_ANSWER], &prefix, "answer:", settlement->run_id));
    }
    args.nkeys = args.argc;
    size_t value_len = claim_value(settlement, state, value), run_len;
    uint8_t *run;
    store_run_pack(settlement, &run, &run_len);
    bool has_leaf = settlement->verdict != VERDICT_REFUSED;
    if (has_leaf)
        store_leaf(settlement, leaf);
    store_argv_add(&args, (const char *)value, value_len);
    store_argv_add(&args, (const char *)run + STORE_RUN_HEAD, run_len - STORE_RUN_HEAD);
    store_argv_add(&args, (const char *)leaf, has_leaf ? sizeof(leaf) : 0);
    store_argv_add_number(&args, numbers[0], store_amount(settlement->spent.seconds_ms));
    store_argv_add_number(&args, numbers[1], store_amount(settlement->spent.paid_ms));
    store_argv_add_number(&args, numbers[2], store_amount(settlement->spent.cost_micro));
    int age_at = args.argc;
    store_argv_add(&args, "", 0);
    char flags[4];
    store_argv_add(&args, flags,
                   (size_t)sprintf(flags, "%s%s%s", settlement->give_back_rate ? "r" : "",
                                   settlement->keeps_hold ? "k" : "", settlement->is_cost_known ? "" : "u"));
    store_argv_add(&args, store->root.text, store->root.len);
    store_argv_add_number(&args, numbers[3], store->run_ttl_ms);
    store_argv_add_number(&args, numbers[4], store->answer_ttl_ms);
    store_argv_add(&args, settlement->caller, strlen(settlement->caller));
    store_settling_t *s =
        settling_create(store, &args, settlement->answer, is_kept(store, settlement) ? settlement->answer_len : 0);
    s->age_at = age_at;
    s->ended_unix_ms = settlement->ended_unix_ms;
    s->link_id[0] = settlement->run_id[0];
    free(run);
    return s;
}

store_settling_t *store_settling_of(store_t *store, const store_settlement_t *settlement)
{
    static const char states[] = {[VERDICT_ANSWERED] = 'A', [VERDICT_REFUSED] = 'R', [VERDICT_UNKNOWN] = 'U'};
    return settling_build(store, settlement, states[settlement->verdict]);
}

static void on_malformed(loop_task_t *task)
{
    store_settling_t *s = settling_checked(task->data);
    store_settled_cb cb = s->cb;
    void *data = s->data;
    store_settling_free(s);
    cb(data, false);
}

static bool is_settlement(const store_settlement_t *settlement)
{
    return store_is_hex(settlement->run_id, STORE_ID) &&
           (settlement->request_id == NULL || store_is_hex(settlement->request_id, STORE_ID));
}

void store_settle(store_t *store, const store_settlement_t *settlement, store_settled_cb cb, void *data)
{
    if (!is_settlement(settlement)) {
        log_event(LOG_ERROR, "store_settlement_malformed", log_str("run_id", settlement->run_id));
        store_settling_t *s = settling_create(store, &(store_argv_t){.argc = 0}, NULL, 0);
        s->cb = cb;
        s->data = data;
        loop_task_init(&s->task, on_malformed, s);
        loop_defer(store->loop, &s->task);
        return;
    }
    store_settling_t *s = store_settling_of(store, settlement);
    s->cb = cb;
    s->data = data;
    if (store_spool_takes_over(s, settlement))
        return;
    store_settling_send(s, store_redis_for(store, s->link_id), STORE_DEADLINE_MS);
}

void store_withdraw(store_t *store, const store_settlement_t *refusal)
{
    store_settling_t *s = settling_build(store, refusal, 'W');
    s->withdraws = true;
    if (!store_retry_add(store, s))
        store_settling_free(s);
}
