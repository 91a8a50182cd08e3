/* Settling: one script gives the slot back, ends the claim and writes the record, all or nothing, and may be repeated.
 */
#include "records/store_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/mem.h"

enum {
    SETTLING_MAGIC = 0x73746c67,
    /* head, record digest '.' backend ':' */
    CLAIM_VALUE_MAX = STORE_CLAIM_HEAD + STORE_SHA + 1 + STORE_BACKEND_MAX + 1,
};

/* Where the script has its keys; the claim of an unkeyed run and the rate that is not given back to are left out. */
enum { KEY_SLOTS, KEY_RUN, KEY_RUNS, KEY_CLAIM, KEY_RATE, KEYS };

static store_settling_t *settling_checked(void *data)
{
    store_settling_t *s = data;
    if (s->magic != SETTLING_MAGIC)
        mem_fatal("store: not a settlement");
    return s;
}

/* Copies everything; the claim's new value, argument `claim_value`, goes to the end of the block with the answer behind
 * it. */
static store_settling_t *settling_create(store_t *store, const store_argv_t *args, int claim_value,
                                         const uint8_t *answer, size_t answer_len)
{
    store_settling_t *s = mem_alloc(sizeof(*s));
    s->magic = SETTLING_MAGIC;
    s->store = store;
    s->nkeys = args->nkeys;
    s->argc = args->argc;
    s->answer_len = answer_len;
    size_t total = answer_len;
    for (int i = 0; i != args->argc; ++i)
        total += args->len[i];
    s->block = mem_alloc(total != 0 ? total : 1);
    s->size = sizeof(*s) + total;
    size_t at = 0;
    for (int i = 0; i != args->argc; ++i) {
        if (i == claim_value)
            continue;
        s->at[i] = at;
        s->len[i] = args->len[i];
        memcpy(s->block + at, args->base[i], args->len[i]);
        at += args->len[i];
    }
    s->at[claim_value] = at;
    s->len[claim_value] = args->len[claim_value] + answer_len;
    memcpy(s->block + at, args->base[claim_value], args->len[claim_value]);
    if (answer_len != 0)
        memcpy(s->block + at + args->len[claim_value], answer, answer_len);
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
    int claim_value = s->nkeys;
    s->block[s->at[claim_value]] = 'G';
    s->len[claim_value] -= s->answer_len;
    s->size -= s->answer_len;
    s->answer_len = 0;
    s->block = mem_realloc(s->block, s->at[claim_value] + s->len[claim_value]);
}

const char *store_settling_answer(const store_settling_t *s)
{
    return s->block + s->at[s->nkeys] + s->len[s->nkeys] - s->answer_len;
}

static void log_bad_keys(const store_settling_t *s, long long bad)
{
    const struct {
        int bit, key;
    } rows[] = {{STORE_BAD_CLAIM, KEY_CLAIM},
                {STORE_BAD_SLOTS, KEY_SLOTS},
                {STORE_BAD_RATE, s->nkeys - 1},
                {STORE_BAD_RUNS, KEY_RUNS}};
    for (size_t i = 0; i != sizeof(rows) / sizeof(rows[0]); ++i) {
        int key = rows[i].key;
        if ((bad & rows[i].bit) != 0 && key < s->nkeys)
            log_event(LOG_ERROR, "store_key_corrupt", log_strn("key", s->block + s->at[key], s->len[key]));
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
    s->in_flight = true;
    redis_eval(redis, &s->store->settle, deadline_ms, on_reply, s, s->nkeys, s->argc, argv, s->len);
}

/* The new value of the claim up to the answer. Returns its length. */
static size_t claim_value(const store_settlement_t *settlement, char state, const char *digest,
                          char out[CLAIM_VALUE_MAX + 1])
{
    const char *record = store_is_hex(settlement->record_sha256, STORE_SHA) ? settlement->record_sha256 : "";
    const char *backend = settlement->backend != NULL ? settlement->backend : "";
    const char *code = settlement->unknown_code != NULL ? settlement->unknown_code : "";
    if (!store_is_word(backend, strlen(backend), STORE_BACKEND_MAX))
        backend = "";
    if (!store_is_word(code, strlen(code), STORE_CODE_MAX))
        code = "unknown";
    int len = 0;
    switch (state) {
    case 'A':
    case 'G':
        len = snprintf(out, CLAIM_VALUE_MAX + 1, "%c%s.%s:%s.%s:", state, digest, settlement->run_id, record, backend);
        break;
    case 'U':
        len = snprintf(out, CLAIM_VALUE_MAX + 1, "U%s.%s:%s", digest, settlement->run_id, code);
        break;
    default:
        len = snprintf(out, CLAIM_VALUE_MAX + 1, "%c%s.%s:", state, digest, settlement->run_id);
        break;
    }
    return (size_t)len;
}

static bool is_kept(const store_settlement_t *settlement)
{
    return settlement->answer != NULL && settlement->answer_len <= STORE_ANSWER_MAX;
}

/* `state` is what becomes of the claim: A, G, U, W, or R for "it goes". */
static store_settling_t *settling_build(store_t *store, const store_settlement_t *settlement, char state)
{
    /* A run whose digest nobody knows still uses its id up: no request has this digest. */
    static const char no_digest[] = "0000000000000000000000000000000000000000000000000000000000000000";
    const char *digest = store_is_hex(settlement->request_sha256, STORE_SHA) ? settlement->request_sha256 : no_digest;
    store_prefix_t prefix = store_prefix(store, settlement->caller);
    char keys[KEYS][STORE_CLAIM_KEY_MAX], value[CLAIM_VALUE_MAX + 1];
    store_argv_t args = {.argc = 0};
    store_argv_add(&args, keys[KEY_SLOTS], store_key(keys[KEY_SLOTS], &prefix, "slots", ""));
    store_argv_add(&args, keys[KEY_RUN], store_key(keys[KEY_RUN], &prefix, "run:", settlement->run_id));
    store_argv_add(&args, keys[KEY_RUNS], store_key(keys[KEY_RUNS], &prefix, "runs", ""));
    if (settlement->request_id != NULL)
        store_argv_add(&args, keys[KEY_CLAIM], store_key(keys[KEY_CLAIM], &prefix, "claim:", settlement->request_id));
    if (settlement->give_back_rate)
        store_argv_add(&args, keys[KEY_RATE], store_key(keys[KEY_RATE], &prefix, "rate", ""));
    args.nkeys = args.argc;
    size_t value_len = claim_value(settlement, state, digest, value), run_len;
    uint8_t *run;
    store_run_pack(settlement, &run, &run_len);
    store_argv_add(&args, value, value_len);
    store_argv_add(&args, (const char *)run, run_len);
    if (settlement->give_back_rate)
        store_argv_add(&args, "1", 1);
    bool with_answer = state == 'A' && settlement->request_id != NULL;
    store_settling_t *s =
        settling_create(store, &args, args.nkeys, settlement->answer, with_answer ? settlement->answer_len : 0);
    s->link_id[0] = settlement->run_id[0];
    free(run);
    return s;
}

store_settling_t *store_settling_of(store_t *store, const store_settlement_t *settlement)
{
    char state = 'R';
    if (settlement->verdict == VERDICT_ANSWERED)
        state = is_kept(settlement) ? 'A' : 'G';
    else if (settlement->verdict == VERDICT_UNKNOWN)
        state = 'U';
    return settling_build(store, settlement, state);
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
        store_settling_t *s = settling_create(store, &(store_argv_t){.argc = 1, .base = {""}}, 0, NULL, 0);
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
